"""Study: a listening test with all that stands around it on a page, from the welcome to the completion code."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
import sqlite3
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np

from voicelab.clip import Clip
from voicelab.display import view
from voicelab.errors import ArgumentError, NotFound, RequestInvalid, StoreError, shortened
from voicelab.listening.blocks import check_connected
from voicelab.listening.design import SETTINGS, ListeningTest, wav_bytes
from voicelab.listening.plan import Plan
from voicelab.listening.results import analyze, excluded_listeners
from voicelab.listening.votes import Ballot, BlindBallot, number_of, text_of
from voicelab.recordings import read_text
from voicelab.stats import BettingTest
from voicelab.stats.estimate import one_of, whole
from voicelab.storage import disk_error, restrict, write_atomic

Headphones = Literal["", "huggins", "antiphase"]

_FILE: Final = "study.toml"
_SIX: Final = 6
CHECKS: Final = 2 * _SIX
"""Trials of the check of headphones: six, and six for who fails the first time."""
_SETS: Final = 4  # a server makes no more of them than it can keep
RIGHT: Final[Mapping[str, int]] = {"": 0, "huggins": 6, "antiphase": 5}
"""How many of the six answers must be right."""
_ASKED: Final[Mapping[str, str]] = {
    "huggins": "You hear noise three times. In one of them there is a faint tone: in which?",
    "antiphase": "You hear a tone three times. Which is the softest?",
}
_LONGEST: Final = 5000
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)
_toml = partial(json.dumps, ensure_ascii=False)
_P808: Final[Mapping[str, str]] = {
    "MOS": "How do you rate the overall quality of the speech?",
    "CMOS": "How is the quality of the second compared with the quality of the first?",
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the listener, asked before the test.

    Args:
        name: of the answer's column: letters, digits and _.
        text: what is asked.
        kind: "text", "number", or "choice" of ``options``.
        options: of a choice.
        required: whether it must be answered.
        low, high: of a number.
        accept: of a choice, the answers with which a listener takes part; () for all. With another the study ends.

    Raises ArgumentError.
    """

    name: str
    text: str
    kind: Literal["text", "number", "choice"] = "text"
    options: tuple[str, ...] = ()
    required: bool = True
    low: float = 0.0
    high: float = 1e9
    accept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("options", "accept"):  # lists, as a file has them
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.name.isidentifier() or self.kind not in {"text", "number", "choice"}:
            raise ArgumentError.of(
                "questions", f"{self.name!r} is no name of a column, or {self.kind!r} no kind of question"
            )
        if (self.kind == "choice") != bool(self.options) or not set(self.accept) <= set(self.options):
            raise ArgumentError.of("options", "a choice needs them, nothing else has them, and accept is among them")

    def checked(self, answer: object) -> str | float | None:
        """Return the answer as it is kept. Raises RequestInvalid, which names the question."""
        if answer is None or answer == "":
            if self.required:
                raise RequestInvalid.of(self.name, "needs an answer", type="missing")
            return None
        if self.kind == "number":
            return number_of(self.name, answer, self.low, self.high)
        if self.options and answer not in self.options:
            raise RequestInvalid.of(self.name, f"Input should be {', '.join(self.options)}")
        return text_of(self.name, answer, 0, _LONGEST)


@dataclass(frozen=True)
class Study:
    """A listening test as a small study on a page; every step but the trials and the volume may be left out.

    Args:
        test: what is asked. Listeners read its name and instructions as the welcome.
        listeners: number of listeners who are to finish and count by the exclusion rules of ``analyze``; then the page takes
            no new ones. The trials of an excluded listener go to a new one.
        consent: what a listener agrees to; each line is a paragraph.
        questions: about the listener; ``accept`` of one makes it a qualification.
        headphones: a check of six trials: "huggins", a pitch that only both ears together hear (A. E. Milne et al., "An
            online headphone screening test based on dichotic pitch", Behavior Research Methods 53, 2021; six right answers),
            or "antiphase", a tone that loudspeakers cancel (K. J. P. Woods et al., "Headphone screening to facilitate
            web-based auditory experiments", Attention, Perception, & Psychophysics 79, 2017; five). Who fails twice is out.
        breaks: trials after which a pause is offered; 0 for none.
        comment: what is asked at the end, for free text.
        code: what a listener gives to a crowd platform for having finished.
        return_to: the address of such a platform, opened by a link at the end.
        idle_minutes: after which an unfinished listener's trials go to the next one too.

    Raises ArgumentError, also when so many listeners leave items unconnected with ``per_listener`` of them each.
    """

    test: ListeningTest
    listeners: int
    consent: str = field(default="", repr=False)
    questions: tuple[Question, ...] = field(default=(), repr=False)
    headphones: Headphones = ""
    breaks: int = 0
    comment: str = field(default="", repr=False)
    code: str = ""
    return_to: str = ""
    idle_minutes: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("listeners", 1), ("breaks", 0)):
            object.__setattr__(self, name, whole(getattr(self, name), name, least))
        one_of(self.headphones, "headphones", tuple(RIGHT))
        if not self.idle_minutes > 0:
            raise ArgumentError.of("idle_minutes", "Input should be above 0")
        if self.return_to and not self.return_to.startswith(("https://", "http://")):
            raise ArgumentError.of("return_to", "Input should be an address that begins with https://")
        if len({question.name for question in self.questions}) != len(self.questions):
            raise ArgumentError.of("questions", "two have one name")
        items = tuple(self.test.items)
        check_connected(self.listeners, items, self.test.per_listener or len(items), self.test.seed)

    @classmethod
    def preset(cls, name: Literal["P.808"], test: ListeningTest, listeners: int, **more: Any) -> Self:
        """Return a study by Recommendation ITU-T P.808 (2021), of a MOS (ACR) or CMOS (CCR) test.

        The test gets five training trials and a gold question, where it has fewer, and the question; it must have a trapping
        question (``traps``). The study asks for hearing and age, and checks headphones by "antiphase". It has no test of
        hearing by digits in noise, and none of the surroundings. ``more`` are fields of the study. Raises ArgumentError.
        """
        if str(name) != "P.808" or test.kind not in _P808 or not test.traps:
            needs = "needs a MOS (ACR) or CMOS (CCR) test with a trapping question, as traps={2: clip}"
            raise ArgumentError.of("preset", f"the one preset is P.808, and {needs}")
        question, training = _P808[test.kind], max(5, test.training)
        test = replace(test, training=training, checks=max(1, test.checks), question=question)
        ears, answers = "Do you hear normally with both ears?", ("yes", "no", "I do not know")
        hearing = Question("hearing", ears, "choice", answers, accept=("yes",))
        questions = (hearing, Question("age", "How old are you?", "number", low=18, high=120))
        return cls(test, listeners, **{"questions": questions, "headphones": "antiphase", "breaks": 20, **more})

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of what a listener goes through, in order."""
        asked = {
            "consent": self.consent,
            "questionnaire": self.questions,
            "headphones": self.headphones,
            "volume": True,
            "training": self.test.training,
            "trials": True,
            "comment": self.comment,
        }
        return tuple(name for name, there in asked.items() if there)

    def page(self, *, accept: bool = False) -> dict[str, Any]:
        """Return what a page needs to ask all but the trials; with ``accept`` also which answers are accepted."""
        questions = [{**asdict(one), "accept": one.accept if accept else ()} for one in self.questions]
        return {"consent": self.consent, "questions": questions, "breaks": self.breaks, "comment": self.comment}

    def save(self, folder: str | Path) -> Path:
        """Write the study into a folder, ``study.toml`` and its sounds, for ``load`` and ``voicelab listen``; return it.

        Only their owner may read the files, beside which answers are kept. ``study.toml`` may be edited. Raises StoreError.
        """
        folder, test = Path(folder), self.test
        own = [item.name for item in fields(self) if item.name not in {"test", "questions"}]
        lines = [f"{name} = {_toml(getattr(self, name))}" for name in own]
        lines += ["", "[test]", *(f"{name} = {_toml(getattr(test, name))}" for name in SETTINGS if name != "lufs")]
        lines += [f"lufs = {test.lufs}"] * (test.lufs is not None)
        for question in self.questions:
            lines += ["", "[[questions]]", *(f"{name} = {_toml(value)}" for name, value in asdict(question).items())]
        parts = {f"items.{_toml(item)}": clips for item, clips in test.items.items()}
        parts |= {"references": test.references, "traps": {str(wanted): clip for wanted, clip in test.traps.items()}}
        for number, (section, clips) in enumerate(parts.items()):
            lines += ["", f"[{section}]"]
            for place, (name, clip) in enumerate(clips.items()):
                path = f"sounds/{number:04}-{place:02}.wav"
                write_atomic(folder / path, wav_bytes(clip.samples, clip.rate), private=True)
                lines.append(f"{_toml(name)} = {_toml(path)}")
        write_atomic(folder / _FILE, ("\n".join(lines) + "\n").encode(), private=True)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote, or was edited since. Raises StoreError, AudioError, and ArgumentError for bad values."""
        folder = Path(folder)

        def clips(paths: Mapping[str, str]) -> dict[str, Clip]:
            return {name: Clip.load(folder / path) for name, path in paths.items()}

        try:
            content = tomllib.loads((folder / _FILE).read_text(encoding="utf-8"))
            items = {item: clips(paths) for item, paths in content.pop("items").items()}
            references, traps = clips(content.pop("references", {})), clips(content.pop("traps", {}))
            trapped = {int(wanted): clip for wanted, clip in traps.items()}
            settings = {"lufs": None, **content.pop("test")}
            test = ListeningTest(items=items, references=references, traps=trapped, **settings)
            questions = tuple(Question(**one) for one in content.pop("questions", []))
            return cls(test, questions=questions, **content)
        except FileNotFoundError as error:
            raise StoreError(
                f"{folder} holds no study, as Study.save writes one: there is no {error.filename}"
            ) from error
        except OSError as error:
            raise disk_error(error, folder / _FILE) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{folder / _FILE} cannot be read as a study: {error}") from error

    def export(self, folder: str | Path, *, to: str = "") -> Path:
        """Write the study as a static page: one folder for any web host; return it.

        ``to`` is where answers go at the end: an https address that takes a POST of JSON, or a mail address, to which the
        listener sends the file that the page saves; "" only saves it. ``collect`` reads the files. Raises StoreError.
        """
        path: Path = view("Study.export")(self, Path(folder), to)
        return path

    def collect(self, ballot: Ballot, *files: str | Path) -> int:
        """Add the answers of a static page to the ballot; return how many listeners are new.

        A file is JSON, of one listener, or JSONL: a line each, as a program that takes POSTs appends them. Who was added
        before adds nothing. Raises StoreError for a file that is none, or has answers to another design of the test,
        RequestInvalid and NotFound for answers that are none.
        """
        before, blind = len(ballot.listeners), BlindBallot(ballot)
        for file, text in _contents(files):
            try:
                answers = json.loads(text)
                name, block = str(answers["listener"])[:32], int(answers["block"])
                steps = {
                    text_of("steps", step, 1, 100): dict(fields) for step, fields in dict(answers["steps"]).items()
                }
                votes, design = [dict(one) for one in answers["votes"]], str(answers["design"])
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                raise StoreError(f"{file} cannot be read as a listener's answers: {error}") from error
            if design != self.test.digest:
                raise StoreError(f"{file} has answers to another design of the test: its digest is {design[:16]}…")
            number = ballot.join(name, block=block % self.listeners)
            for vote in votes:
                blind.vote(number, vote)
            for step, given in steps.items():
                ballot.keep_step(number, step, given)
        return len(ballot.listeners) - before

    def finished(self, ballot: Ballot) -> tuple[str, ...]:
        """Return the listeners who have gone through every step, in the order in which they did."""
        return ballot.reached(self.steps[-1])

    def counted(self, ballot: Ballot) -> tuple[str, ...]:
        """Return the finished listeners whom ``analyze`` does not exclude, in the order in which they finished."""
        finished = self.finished(ballot)
        excluded = excluded_listeners(self.test, ballot.frame()) if finished else {}
        return tuple(name for name in finished if name not in excluded)

    def progress(self, ballot: Ballot, *, plan: Plan | None = None, rule: BettingTest | None = None) -> StudyProgress:
        """Return how far the study is: who has finished and counts, how wide the interval is, and whether it is enough.

        The pair is the plan's, or the test's first two systems. Enough is when the plan's number of listeners (or
        ``listeners``) has finished and counts by the exclusion rules of ``analyze``, or, for AB and ABX, when ``rule`` says
        so, which may be asked after every listener.
        """
        counted, rows = self.counted(ballot), ballot.frame()
        pair = self.test.systems[:2] if plan is None else plan.primary
        wanted = self.listeners if plan is None else plan.listeners
        width, decision = None, None
        if counted:
            rows = rows[rows["listener"].isin(counted)]
            crossed = {frozenset(names): test.estimate for names, test in analyze(self.test, rows).crossed.items()}
            if (estimate := crossed.get(frozenset(pair))) is not None:
                width = (estimate.high - estimate.low) / 2.0
        if rule is not None:
            if self.test.kind not in {"AB", "ABX"}:
                raise ArgumentError.of(
                    "rule", f"a test by betting is of choices (AB, ABX), and this is {self.test.kind}"
                )
            shares: dict[Any, Any] = {}
            if counted:
                rows = rows[~rows["check"].astype(bool) & rows[["chosen", "other"]].isin(pair).all(axis=1)]
                right = rows["right"] if self.test.kind == "ABX" else rows["chosen"] == pair[0]
                shares = right.groupby(rows["listener"]).mean().to_dict()
            decision = rule.decide([shares[name] for name in counted if name in shares])
        enough = len(counted) >= wanted or decision in {"effect", "no effect"}
        return StudyProgress(len(self.finished(ballot)), wanted, width, enough, decision, len(counted))


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """How far a study is. ``width`` is half of the interval of the pair's difference (or share), None before there is one.

    ``decision`` is the stopping rule's, None without one, and ``enough`` whether the asking may end. ``counted`` of the
    ``finished`` listeners are not excluded by ``analyze``.
    """

    finished: int
    wanted: int
    width: float | None
    enough: bool
    decision: str | None = None
    counted: int = 0

    def __str__(self) -> str:
        parts = [listeners_text(self.counted, self.finished, self.wanted)]
        parts += [f"interval ±{self.width:.2f}".replace("±0.", "±.")] if self.width is not None else []
        parts += [f"stopping rule: {self.decision}"] if self.decision is not None else []
        return ", ".join([*parts, *["enough"] * self.enough])


def listeners_text(counted: int, finished: int, wanted: int) -> str:
    """Return how many of the wanted listeners there are, with the number of finished ones where some are excluded."""
    excluded = f" ({finished} finished, {finished - counted} excluded)" * (counted < finished)
    return f"{counted} of {wanted} listeners{excluded}"


class BlindStudy(BlindBallot):
    """A Study as its page conducts it: one attempt a person, who goes on where they were; idle trials are handed on.

    A person is the ``id`` of a platform, else the browser, and is kept as a keyed hash of it; the key lies beside the file
    of votes. Without it nobody can say whose answers these are. No change of the clock moves what is idle.
    """

    def __init__(self, study: Study, ballot: Ballot) -> None:
        super().__init__(ballot)
        self.study = study
        path = ballot.path.with_name(f"{ballot.path.name}.key")
        write_atomic(path, secrets.token_hex(32).encode(), replace=False, private=True)
        restrict(path)
        try:
            self._key = path.read_bytes()
        except OSError as error:
            raise disk_error(error, path) from error
        # Read once, and kept here: many listeners would wait for the file, which only this process writes.
        self._secrets: dict[int, str] = {}
        self._steps: dict[int, dict[str, Any]] = {}
        self._began = time.monotonic()
        self._active: dict[int, float] = {}
        self._standing = (-1, frozenset[int]())

    def test(self) -> dict[str, Any]:
        """Return what everybody may read: of the test, and of the steps around it."""
        return {**super().test(), "study": self.study.page()}

    def answer(self, call: object, listener: Any, body: Mapping[str, Any]) -> Any:
        """Answer a call, as of a test; each of a listener shows the ``secret`` of the browser."""
        if call == "join":
            return self.enter(body.get("session"), body.get("id", ""))
        if call != "test":
            self.check(listener, body.get("secret"))
        if call == "step":
            return self.step(listener, body.get("step"), body.get("answers"))
        return super().answer(call, listener, body)

    def enter(self, session: object, id: object = "") -> dict[str, Any]:
        """Let a person begin, or go on, in this browser; return their ``state``.

        ``session`` is a secret of the browser, 16 characters or more, and ``id`` the platform's of the person. A person who
        comes from another browser goes on there, and no longer here. Raises RequestInvalid.
        """
        session, own = text_of("session", session, 16, 100), text_of("id", id, 0, 200)
        if not session.isascii():  # a header has to bring it
            raise RequestInvalid.of("session", "Input should be ASCII")
        person = f"id {own}" if own else f"browser {session}"
        name = hmac.new(self._key, person.encode(), hashlib.sha256).hexdigest()[:16]
        excluded = self._excluded()
        number = self.ballot.together(lambda store: self._enter(store, name, session, excluded))
        if number is None:
            return {"end": "full"}
        self._active[number], self._secrets[number] = time.monotonic(), session
        return self.state(number)

    def _excluded(self) -> frozenset[int]:
        """Return the numbers of finished listeners who do not count, once enough have finished for that to matter."""
        finished = self.study.finished(self.ballot)
        if len(finished) < self.study.listeners:
            return frozenset()
        if self._standing[0] != len(finished):
            out = {*finished} - {*self.study.counted(self.ballot)}
            numbers = (number for number, name in enumerate(self.ballot.listeners) if name in out)
            self._standing = (len(finished), frozenset(numbers))
        return self._standing[1]

    def _enter(self, store: sqlite3.Connection, name: str, session: str, excluded: frozenset[int]) -> int | None:
        row = store.execute("SELECT number FROM listener WHERE name = ?", (name,)).fetchone()
        if row is not None:
            store.execute("UPDATE listener SET session = ? WHERE number = ?", (session, row[0]))
            return int(row[0])
        query = "SELECT listener, name FROM step WHERE name IN (?, 'left')"
        ended: dict[int, str] = dict(store.execute(query, (self.study.steps[-1],)).fetchall())
        ended |= dict.fromkeys(excluded, "left")
        if sum(step != "left" for step in ended.values()) >= self.study.listeners:
            return None
        # Trials that nobody has answered to the end, and nobody is busy with, go first.
        late = time.monotonic() - 60.0 * self.study.idle_minutes
        held: dict[int, bool] = {}
        for number, block in store.execute("SELECT number, block FROM listener").fetchall():
            busy = self._active.get(number, self._began) > late if number not in ended else ended[number] != "left"
            held[block] = held.get(block, False) or busy
        free = min((block for block in held if not held[block]), default=len(held))
        return self.ballot.add(store, name, session, free)

    def check(self, listener: int, session: object) -> None:
        """Raise NotFound unless the listener goes on in the browser with this secret."""
        if type(listener) is not int:
            raise NotFound("no listener has this number; join first")
        if listener not in self._secrets:
            self._secrets[listener] = self.ballot.session(listener)
        if not session or self._secrets[listener] != session:
            raise NotFound("this study goes on in another window; load this page again to go on here")
        self._active[listener] = time.monotonic()

    def state(self, listener: int) -> dict[str, Any]:
        """Return where a listener is: the ``steps`` that are left and what they need, or how it has come to its ``end``."""
        done, block = self._done(listener), self.ballot.block(listener)
        left = [step for step in self.study.steps if step not in done]
        if "left" in done:
            return {"end": "left", **done["left"]}
        if not left:
            return {"end": "finished", "code": self.study.code, "return_to": self.study.return_to}
        first = _SIX * ("headphones 1" in done)
        checks = [check_trial(self.study, listener % _SETS, number) for number in range(first, first + _SIX)]
        return {
            "listener": listener,
            "steps": left,
            "volume": self.volume(block),
            "training": self.training(block) if "training" in left else [],
            "headphones": checks if "headphones" in left else [],
        }

    def trial(self, listener: int) -> dict[str, Any] | None:
        """Return what the listener is asked next, None at the end. Raises RequestInvalid before the steps that come first."""
        self._now(listener, "trials")
        return super().trial(listener)

    def vote(self, listener: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keep an answer, as of a test. Raises RequestInvalid before the steps that come first."""
        self._now(listener, "trials")
        return super().vote(listener, body)

    def step(self, listener: int, name: object, answers: object) -> dict[str, Any]:
        """Keep the answers of a step and return the listener's state; of a step that is done nothing changes.

        Raises RequestInvalid for answers that are none, and for a step that comes later.
        """
        if not isinstance(answers, Mapping):
            raise RequestInvalid.of("answers", "Input should be an object", type="model_type")
        done = self._done(listener)
        if not (isinstance(name, str) and name in done) and "left" not in done:
            self._now(listener, name)
            for step, kept in self._kept(str(name), listener, answers, done).items():
                self.ballot.keep_step(listener, step, kept)
            self._steps.pop(listener, None)
        return self.state(listener)

    def _done(self, listener: int) -> dict[str, Any]:
        if listener not in self._steps:
            self._steps[listener] = self.ballot.steps(listener)
        return self._steps[listener]

    def _kept(
        self, name: str, listener: int, given: Mapping[str, Any], done: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return what is to be kept of a step, ``left`` among it where the listener is left out."""
        kept: dict[str, Any] = {}
        reason = ""
        if name == "consent":
            kept = {"agreed": given.get("agreed") is True}
            reason = "consent" * (not kept["agreed"])
        elif name == "questionnaire":
            kept = {one.name: one.checked(given.get(one.name)) for one in self.study.questions}
            refused = any(one.accept and kept[one.name] not in one.accept for one in self.study.questions)
            reason = "qualification" * refused
        elif name == "headphones":
            again, answers = "headphones 1" in done, given.get("answers")
            if not isinstance(answers, list) or len(answers) != _SIX:
                raise RequestInvalid.of("answers", f"Input should be a list of {_SIX}")
            trials = range(_SIX * again, _SIX * (1 + again))
            right = sum(one == check_answer(listener % _SETS, n) for one, n in zip(answers, trials, strict=True))
            kept = {"right": right, "again": again}
            if right < RIGHT[self.study.headphones]:
                name, kept, reason = f"headphones {1 + again}", {"right": right}, "headphones" * again
        elif name == "comment":
            kept = {"comment": Question("comment", "", required=False).checked(given.get("comment"))}
        elif name == "trials" and self.ballot.next_trial(listener) is not None:
            raise RequestInvalid.of("step", "there are trials left")
        return {name: kept, **({"left": {"reason": reason}} if reason else {})}

    def _now(self, listener: object, step: object) -> None:
        done = self._done(listener) if type(listener) is int else {}
        if "left" in done or step != next((name for name in self.study.steps if name not in done), None):
            raise RequestInvalid.of("step", f"{shortened(repr(step), 100)} is not what comes now", type="order")

    def sound(self, id: object) -> bytes:
        """Return a sound as a WAV file: of a trial, or of the check of headphones. Raises NotFound."""
        which, check, number = id.partition("-headphones") if isinstance(id, str) else ("", "", "")
        if self.study.headphones and check and _NUMBER.fullmatch(which) and _NUMBER.fullmatch(number):
            return check_wav(self.study.headphones, int(which) % _SETS, int(number) % CHECKS)
        return super().sound(id)


def _contents(files: Iterable[str | Path]) -> Iterator[tuple[Path, str]]:
    """Yield every listener's answers as they stand in the files, each with its file. Raises StoreError."""
    for file in map(Path, files):
        text = read_text(file)
        lines = text.split("\n") if file.suffix == ".jsonl" else [text]
        yield from ((file, line) for line in lines if line.strip() or len(lines) == 1)


def check_answer(which: int, number: int) -> int:
    """Return which of three sounds is the right one, 1 to 3, in a trial of the set ``which`` of the check of headphones."""
    return int(np.random.default_rng((which, number, 3)).integers(1, 4))


def check_trial(study: Study, which: int, number: int) -> dict[str, Any]:
    """Return what a page needs to ask a trial of the check of headphones."""
    name = f"{which}-headphones{number}"
    trial = {
        "id": name,
        "kind": "headphones",
        "question": _ASKED.get(study.headphones),
        "place": number % _SIX,
        "total": _SIX,
    }
    return {**trial, "letters": [{"letter": "A", "sound": name}], "reference": None, "scale": [1, 3]}


@lru_cache(maxsize=_SETS * CHECKS)
def check_wav(kind: Headphones, which: int, number: int) -> bytes:
    """Return three sounds after one another, one second each, as a stereo WAV file: see ``Study.headphones``."""
    draw, right, size = np.random.default_rng((which, number)), check_answer(which, number), 22_050
    # Loudspeakers make the tone in antiphase the softest; over headphones another one is.
    wrong = int(draw.choice([place for place in (1, 2, 3) if place != right]))
    seconds = np.arange(size) / size
    ramp = np.minimum(1.0, 10.0 * np.minimum(seconds, seconds[::-1]))
    parts = []
    for place in (1, 2, 3):
        if kind == "huggins":
            noise = 0.05 * draw.standard_normal(size)
            spectrum = np.fft.rfft(noise)
            # Half a turn within 6 % of 600 Hz, in one ear.
            turned = (np.abs(np.arange(spectrum.size) - 600) <= 36) & (place == right)
            sound = np.stack([noise, np.fft.irfft(np.where(turned, -spectrum, spectrum), size)])
        else:
            tone = 0.25 * np.sin(2 * math.pi * 200.0 * seconds) * (0.5 if place == right else 1.0)
            sound = np.stack([tone, -tone if place == wrong else tone])
        parts += [sound * ramp, np.zeros((2, size // 2))]
    return wav_bytes((np.concatenate(parts[:-1], axis=1).T * 32767).round().astype(np.int16), size)
