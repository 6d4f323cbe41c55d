"""Study: a listening test on a web page, with consent, questions, a headphone check and a completion code."""

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
from voicelab.errors import ArgumentError, NotFound, RequestInvalid, StoreError, shortened, shown_value
from voicelab.listening.blocks import check_connected
from voicelab.listening.design import MAPPINGS, SETTINGS, ListeningTest, Trial, wav_bytes
from voicelab.listening.listeners import screen
from voicelab.listening.plan import Plan
from voicelab.listening.results import analyze
from voicelab.listening.votes import MAX_INT, Ballot, BlindBallot, number_of, text_of
from voicelab.stats import SequentialTest
from voicelab.stats.estimate import one_of, whole
from voicelab.storage import disk_error, restrict, write_atomic
from voicelab.tables import read_text

Headphones = Literal["", "huggins", "antiphase"]

_FILE: Final = "study.toml"
_CHECK_TRIALS: Final = 6
CHECKS: Final = 2 * _CHECK_TRIALS
"""Number of trials of the headphone check: six for each of two attempts."""
_SETS: Final = 4  # sets of headphone trials, few enough to cache
RIGHT: Final[Mapping[str, int]] = {"": 0, "huggins": 6, "antiphase": 5}
"""Required number of correct answers out of six, by kind of headphone check."""
_CHECK_QUESTIONS: Final[Mapping[str, str]] = {
    "huggins": "You hear noise three times. In one of them there is a faint tone: in which?",
    "antiphase": "You hear a tone three times. Which is the softest?",
}
_MAX_ANSWER_LENGTH: Final = 5000
_CLOCK_TOLERANCE: Final = 0.9
"""Minimum playback time by the clocks of browser and server, as a fraction of the length of the sounds."""
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)
_BREAK: Final = "break "
"""Prefix of the name of a break's step; the number of answered trials follows."""
_toml = partial(json.dumps, ensure_ascii=False)
_P808_QUESTIONS: Final[Mapping[str, str]] = {
    "MOS": "How do you rate the overall quality of the speech?",
    "CMOS": "How is the quality of the second compared with the quality of the first?",
}


@dataclass(frozen=True, slots=True)
class Question:
    """Question to the listener, before the test or at each break.

    Args:
        name: column of the answer: letters, digits and _.
        text: text of the question.
        kind: "text", "number", or "choice" of ``options``.
        options: options of a choice.
        required: whether an answer is required.
        low: minimum of a number.
        high: maximum of a number.
        accept: answers of a choice that qualify a listener; () for all. Other answers end the study.
        when: "before" the test, or at its "breaks".

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
    when: Literal["before", "breaks"] = "before"

    def __post_init__(self) -> None:
        for name in ("options", "accept"):  # read as lists from a file
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.name.isidentifier() or self.kind not in {"text", "number", "choice"}:
            message = "name must be an identifier, and kind must be text, number or choice"
            raise ArgumentError.of("questions", f"{message}, got {self.name!r} and {self.kind!r}")
        if (self.kind == "choice") != bool(self.options) or not set(self.accept) <= set(self.options):
            raise ArgumentError.of(
                "options", "must be given if and only if kind is choice, and accept must be a subset of them"
            )
        one_of(self.when, "when", ("before", "breaks"))
        if self.accept and self.when == "breaks":
            raise ArgumentError.of("accept", f"must be () for a question at breaks, got {self.accept}")

    def checked(self, answer: object) -> str | float | None:
        """Validate an answer. Raises RequestInvalid with the name of the question."""
        if answer is None or answer == "":
            if self.required:
                raise RequestInvalid.of(self.name, "Answer required", type="missing")
            return None
        if self.kind == "number":
            return number_of(self.name, answer, self.low, self.high)
        if self.options and answer not in self.options:
            raise RequestInvalid.of(self.name, f"must be {' or '.join(self.options)}, got {shown_value(answer)}")
        return text_of(self.name, answer, 0, _MAX_ANSWER_LENGTH)


@dataclass(frozen=True)
class Study:
    """Listening test as a study on a web page. All steps except the volume setting and the trials are optional.

    Args:
        test: the listening test; its name and instructions are the welcome page.
        listeners: target number of listeners who complete the study and are not excluded by ``analyze``. The study
            closes when it is reached. The trials of excluded listeners are reassigned.
        consent: consent text; each line is a paragraph.
        questions: questions about the listener; a question with ``accept`` is a qualification.
        headphones: headphone check of six trials: "huggins", a dichotic pitch (A. E. Milne et al., "An online headphone
            screening test based on dichotic pitch", Behavior Research Methods 53, 2021; six correct answers), or
            "antiphase", a tone that loudspeakers cancel (K. J. P. Woods et al., "Headphone screening to facilitate
            web-based auditory experiments", Attention, Perception, & Psychophysics 79, 2017; five correct answers).
            Listeners who fail twice are screened out.
        breaks: number of trials between breaks; 0 for none.
        comment: question for free text at the end.
        code: completion code for a crowdsourcing platform.
        return_to: URL of the platform, to which the final page links.
        idle_minutes: minutes of inactivity after which a listener's trials are reassigned.

    Raises ArgumentError for invalid values, and if this number of listeners with ``per_listener`` items each leaves
    items unconnected.
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
        for name, minimum in (("listeners", 1), ("breaks", 0)):
            object.__setattr__(self, name, whole(getattr(self, name), name, minimum))
        one_of(self.headphones, "headphones", tuple(RIGHT))
        if not self.idle_minutes > 0:
            raise ArgumentError.of("idle_minutes", f"must be above 0, got {self.idle_minutes}")
        if self.return_to and not self.return_to.startswith(("https://", "http://")):
            raise ArgumentError.of("return_to", f"must begin with https:// or http://, got {self.return_to!r}")
        names = [question.name for question in self.questions]
        if len(set(names)) != len(names):
            raise ArgumentError.of("questions", f"names must be unique, got {', '.join(names)}")
        if self.questions_at("breaks") and not self.breaks:
            raise ArgumentError.of("breaks", "must be above 0 for questions at breaks, got 0")
        items = tuple(self.test.items)
        check_connected(self.listeners, items, self.test.per_listener or len(items), self.test.seed)

    @classmethod
    def preset(cls, name: Literal["P.808"], test: ListeningTest, listeners: int, **options: Any) -> Self:
        """Create a study of a MOS (ACR) or CMOS (CCR) test following Recommendation ITU-T P.808 (2021).

        Sets the question of P.808, at least five training trials and at least one gold question. The test must already
        have a trapping question (``traps``). The study asks about hearing and age, and has the headphone check
        "antiphase". Digits-in-noise hearing tests and environment tests are not included. ``options`` are fields of the
        study. Raises ArgumentError if the test or an option is unsuitable.
        """
        if str(name) != "P.808" or test.kind not in _P808_QUESTIONS or not test.traps:
            message = (
                "must be P.808, for a MOS (ACR) or CMOS (CCR) test with a trapping question such as traps={2: clip}"
            )
            raise ArgumentError.of("preset", message)
        question, training = _P808_QUESTIONS[test.kind], max(5, test.training)
        test = replace(test, training=training, checks=max(1, test.checks), question=question)
        text, answers = "Is your hearing normal in both ears?", ("yes", "no", "I do not know")
        hearing = Question("hearing", text, "choice", answers, accept=("yes",))
        questions = (hearing, Question("age", "How old are you?", "number", low=18, high=120))
        return cls(test, listeners, **{"questions": questions, "headphones": "antiphase", "breaks": 20, **options})

    def questions_at(self, when: str) -> tuple[Question, ...]:
        """Return the questions before the test or, for "breaks", those at its breaks."""
        return tuple(question for question in self.questions if question.when == when)

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps in order."""
        enabled = {
            "consent": self.consent,
            "questionnaire": self.questions_at("before"),
            "headphones": self.headphones,
            "volume": True,
            "training": self.test.training,
            "trials": True,
            "comment": self.comment,
        }
        return tuple(name for name, value in enabled.items() if value)

    def page(self, *, static: bool = False) -> dict[str, Any]:
        """Return all steps except the trials as JSON for the page; ``static`` adds hashes of the accepted answers."""
        hashes = {item.name: [answer_hash(item.name, answer) for answer in item.accept] for item in self.questions}
        questions = [{**asdict(item), "accept": hashes[item.name] if static else ()} for item in self.questions]
        return {"consent": self.consent, "questions": questions, "breaks": self.breaks, "comment": self.comment}

    def checked(self, when: str, answers: Mapping[str, Any]) -> dict[str, str | float | None]:
        """Validate the answers to the questions before the test, or at a break. Raises RequestInvalid."""
        return {question.name: question.checked(answers.get(question.name)) for question in self.questions_at(when)}

    def save(self, folder: str | Path) -> Path:
        """Write ``study.toml`` and the sounds into a folder for ``load`` and ``voicelab listen``; return the folder.

        Files are readable by their owner only. ``study.toml`` may be edited. Responses will be stored in the same
        folder. Raises StoreError if writing fails.
        """
        folder, test = Path(folder), self.test
        names = [item.name for item in fields(self) if item.name not in {"test", "questions"}]
        lines = [f"{name} = {_toml(getattr(self, name))}" for name in names]
        lines += ["", "[test]", *(f"{name} = {_toml(getattr(test, name))}" for name in SETTINGS if name != "lufs")]
        lines += [f"lufs = {test.lufs}"] * (test.lufs is not None)
        for mapping in MAPPINGS:
            pairs = getattr(test, mapping).items()
            lines += [f"[test.{mapping}]", *(f"{_toml(name)} = {_toml(value)}" for name, value in pairs)] * bool(pairs)
        for question in self.questions:
            lines += ["", "[[questions]]", *(f"{name} = {_toml(value)}" for name, value in asdict(question).items())]
        sections = {f"items.{_toml(item)}": clips for item, clips in test.items.items()}
        sections |= {"references": test.references, "traps": {str(rating): clip for rating, clip in test.traps.items()}}
        for number, (section, clips) in enumerate(sections.items()):
            lines += ["", f"[{section}]"]
            for index, (name, clip) in enumerate(clips.items()):
                path = f"sounds/{number:04}-{index:02}.wav"
                write_atomic(folder / path, wav_bytes(clip.samples, clip.rate), private=True)
                lines.append(f"{_toml(name)} = {_toml(path)}")
        write_atomic(folder / _FILE, ("\n".join(lines) + "\n").encode(), private=True)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a folder that ``save`` wrote.

        Raises StoreError for unreadable files, AudioError for unreadable sounds, ArgumentError for invalid values.
        """
        folder = Path(folder)

        def clips(paths: Mapping[str, str]) -> dict[str, Clip]:
            return {name: Clip.load(folder / path) for name, path in paths.items()}

        try:
            content = tomllib.loads((folder / _FILE).read_text(encoding="utf-8"))
            items = {item: clips(paths) for item, paths in content.pop("items").items()}
            references, traps = clips(content.pop("references", {})), clips(content.pop("traps", {}))
            traps_by_rating = {int(rating): clip for rating, clip in traps.items()}
            settings = {"lufs": None, **content.pop("test")}
            test = ListeningTest(items=items, references=references, traps=traps_by_rating, **settings)
            questions = tuple(Question(**values) for values in content.pop("questions", []))
            return cls(test, questions=questions, **content)
        except FileNotFoundError as error:
            raise StoreError(f"{folder} is not a folder of Study.save: {error.filename} not found") from error
        except OSError as error:
            raise disk_error(error, folder / _FILE) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{folder / _FILE} cannot be read as a study: {error}") from error

    def export(self, folder: str | Path, *, to: str = "") -> Path:
        """Write the study as a static page, a folder for any web host; return the folder.

        ``to`` is the destination of the answers: an https URL, to which the page posts them as JSON, or an email
        address, to which the listener sends the saved file. If it is "", the page only saves the file. ``collect``
        reads these files. Raises StoreError if writing fails.
        """
        path: Path = view("Study.export")(self, Path(folder), to)
        return path

    def collect(self, ballot: Ballot, *files: str | Path) -> int:
        """Add the answers of a static page to the ballot; return the number of new listeners.

        A file has a listener's answers as JSON, or one listener per line as JSONL. Listeners already in the ballot are
        skipped. Raises StoreError, which names the file and the listener, for an unreadable file, invalid answers, or
        answers to another design of the test.
        """
        before, blind = len(ballot.listeners), BlindBallot(ballot)
        for file, text in _contents(files):
            try:
                answers = json.loads(text)
                name, block = str(answers["listener"])[:32], int(answers["block"])
                steps = {
                    text_of("steps", step, 1, 100): dict(fields) for step, fields in dict(answers["steps"]).items()
                }
                votes, design = [dict(vote) for vote in answers["votes"]], str(answers["design"])
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                raise StoreError(f"{file} cannot be read as a listener's answers: {error}") from error
            if design != self.test.digest:
                message = f"{file}, listener {name}: answers to another design of the test (digest {design[:16]}…)"
                raise StoreError(message)
            questionnaire = steps.get("questionnaire", {})
            # A changed page may accept other answers or skip the questions.
            if (votes or questionnaire) and not self.qualifies(questionnaire):
                votes, steps = [], {"questionnaire": questionnaire, "left": {"reason": "qualification"}}
            try:
                number = ballot.join(name, block=block % self.listeners)
                for vote in votes:
                    blind.vote(number, vote)
            except (RequestInvalid, NotFound) as error:
                raise StoreError(f"{file}, listener {name}: {error}") from error
            for step, values in steps.items():
                ballot.keep_step(number, step, values)
        return len(ballot.listeners) - before

    def qualifies(self, answers: Mapping[str, Any]) -> bool:
        """Return whether the answers to the questionnaire qualify a listener."""
        return all(answers.get(item.name) in item.accept for item in self.questions if item.accept)

    def finished(self, ballot: Ballot) -> tuple[str, ...]:
        """Return the listeners who completed every step, in order of completion."""
        return ballot.reached(self.steps[-1])

    def counted(self, ballot: Ballot) -> tuple[str, ...]:
        """Return the finished listeners whom ``analyze`` does not exclude, in order of completion."""
        finished = self.finished(ballot)
        if not finished or (frame := ballot.frame()).empty:
            return finished
        excluded = {*screen(self.test, frame, complete=True).table["listener"]}
        return tuple(name for name in finished if name not in excluded)

    def progress(
        self, ballot: Ballot, *, plan: Plan | None = None, rule: SequentialTest | None = None
    ) -> StudyProgress:
        """Return the numbers of finished and counted listeners, half of the width of the interval, and whether to stop.

        The interval is that of the plan's pair or, without a plan, of the first two systems. ``enough`` is True if as many
        listeners as the plan or ``listeners`` requires have finished and are not excluded by ``analyze``, or if the stopping
        rule ``rule`` has decided; the rule is valid after any number of listeners.
        """
        counted, rows = self.counted(ballot), ballot.frame()
        pair = self.test.systems[:2] if plan is None else plan.primary
        target = self.listeners if plan is None else plan.listeners
        width, decision, advice = None, None if rule is None else "continue", ""
        if counted:
            rows = rows[rows["listener"].isin(counted)]
            crossed = {frozenset(names): test for names, test in analyze(self.test, rows).crossed.items()}
            if (test := crossed.get(frozenset(pair))) is not None:
                estimate = test.estimate if rule is None else rule.interval(test)
                width = (estimate.high - estimate.low) / 2.0
                if rule is not None and (decision := rule.decide(test)) == "continue":
                    advice = rule.advice(test)
        enough = len(counted) >= target or decision not in {None, "continue"}
        return StudyProgress(len(self.finished(ballot)), target, width, enough, decision, len(counted), advice)


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """Progress of a study.

    ``width`` is half the width of the interval of the pair's difference or share, or of the anytime-valid interval if
    there is a stopping rule. It is None until the interval can be computed. ``decision`` is the decision of the
    stopping rule, None without a rule, and ``advice`` states whether more listeners or more items would shorten the
    interval. ``enough`` is whether to stop. ``counted`` is the number of ``finished`` listeners who are not excluded by
    ``analyze``, and ``wanted`` the target number.
    """

    finished: int
    wanted: int
    width: float | None
    enough: bool
    decision: str | None = None
    counted: int = 0
    advice: str = ""

    def __str__(self) -> str:
        parts = [listeners_text(self.counted, self.finished, self.wanted)]
        parts += (
            [f"interval ±{self.width:.2f}".replace("±0.", "±.")]
            if self.width is not None and math.isfinite(self.width)
            else []
        )
        parts += [f"stopping rule: {self.decision}"] if self.decision is not None else []
        parts += [self.advice] * bool(self.advice)
        return ", ".join([*parts, *["enough"] * self.enough])


def listeners_text(counted: int, finished: int, target: int) -> str:
    """Format the numbers of counted and of excluded listeners."""
    excluded = f" ({finished} finished, {finished - counted} excluded)" * (counted < finished)
    return f"{counted} of {target} listeners{excluded}"


class BlindStudy(BlindBallot):
    """Blinded view of a Study for its page. Each person has one attempt, which may be resumed.

    The trials of idle listeners are reassigned. A person is identified by a platform's ``id`` or, if there is none, by
    the browser. Only a keyed hash of this identity is stored, and the key is in a separate file next to the responses,
    so that responses alone do not identify people. Idle times are measured by a monotonic clock.
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
        # Cached, since only this process writes the file.
        self._secrets: dict[int, str] = {}
        self._steps: dict[int, dict[str, Any]] = {}
        self._start = time.monotonic()
        self._active: dict[int, float] = {}
        self._excluded_cache = (-1, frozenset[int]())
        # Id and start time of each listener's current trial, and ids of fetched sounds; kept in this process only.
        self._issued: dict[int, tuple[str, float]] = {}
        self._fetched: set[str] = set()

    def test(self) -> dict[str, Any]:
        """Return the public description of the test and its steps, which visitors may read before they join."""
        return {**super().test(), "study": self.study.page()}

    def answer(self, call: object, listener: Any, body: Mapping[str, Any]) -> Any:
        """Answer a call of the page. Calls on behalf of a listener require the browser's ``secret``."""
        if call == "join":
            return self.enter(body.get("session"), body.get("id", ""))
        if call != "test":
            self.check(listener, body.get("secret"))
        if call == "step":
            return self.step(listener, body.get("step"), body.get("answers"))
        return super().answer(call, listener, body)

    def enter(self, session: object, id: object = "") -> dict[str, Any]:
        """Start or resume a person's attempt in this browser; return its ``state``, or the ``end`` "full" or "busy".

        "full" means that the target number of listeners has finished, "busy" that the remaining trials are assigned to
        active listeners. ``session`` is a secret of the browser with at least 16 characters, ``id`` the platform's id
        of the person. Resuming in another browser ends the session in the earlier one. Raises RequestInvalid for an
        invalid ``session`` or ``id``.
        """
        session, platform_id = text_of("session", session, 16, 100), text_of("id", id, 0, 200)
        if not session.isascii():  # sent as a header
            raise RequestInvalid.of("session", "must be ASCII")
        person = f"id {platform_id}" if platform_id else f"browser {session}"
        name = hmac.new(self._key, person.encode(), hashlib.sha256).hexdigest()[:16]
        number = self.ballot.together(lambda store: self._enter(store, name, session, frozenset()))
        if isinstance(number, str) and (excluded := self._excluded()):
            number = self.ballot.together(lambda store: self._enter(store, name, session, excluded))
        if isinstance(number, str):
            return {"end": number}
        self._active[number], self._secrets[number] = time.monotonic(), session
        return self.state(number)

    def _excluded(self) -> frozenset[int]:
        """Return the numbers of the finished listeners whom ``analyze`` excludes."""
        finished = self.study.finished(self.ballot)
        if self._excluded_cache[0] != len(finished):
            names = {*finished} - {*self.study.counted(self.ballot)}
            numbers = (number for number, name in enumerate(self.ballot.listeners) if name in names)
            self._excluded_cache = (len(finished), frozenset(numbers))
        return self._excluded_cache[1]

    def _enter(self, store: sqlite3.Connection, name: str, session: str, excluded: frozenset[int]) -> int | str:
        row = store.execute("SELECT number FROM listener WHERE name = ?", (name,)).fetchone()
        if row is not None:
            store.execute("UPDATE listener SET session = ? WHERE number = ?", (session, row[0]))
            return int(row[0])
        query = "SELECT listener, name FROM step WHERE name IN (?, 'left')"
        ended: dict[int, str] = dict(store.execute(query, (self.study.steps[-1],)).fetchall())
        ended |= dict.fromkeys(excluded, "left")
        if sum(step != "left" for step in ended.values()) >= self.study.listeners:
            return "full"
        # Blocks that are unfinished and have no active listener are assigned before new blocks.
        deadline = time.monotonic() - 60.0 * self.study.idle_minutes
        assigned: dict[int, bool] = {}
        for number, block in store.execute("SELECT number, block FROM listener").fetchall():
            busy = self._active.get(number, self._start) > deadline if number not in ended else ended[number] != "left"
            assigned[block] = assigned.get(block, False) or busy
        if sum(assigned.values()) >= self.study.listeners:
            return "busy"
        free = min((block for block, busy in assigned.items() if not busy), default=len(assigned))
        return self.ballot.add(store, name, session, free)

    def check(self, listener: int, session: object) -> None:
        """Raise NotFound unless ``session`` is the secret of the listener's current browser."""
        if type(listener) is not int:
            raise NotFound("listener not found; join first")
        if listener not in self._secrets:
            self._secrets[listener] = self.ballot.session(listener)
        if not session or self._secrets[listener] != session:
            raise NotFound("this study is open in another window; reload this page to continue here")
        self._active[listener] = time.monotonic()

    def state(self, listener: int) -> dict[str, Any]:
        """Return the remaining ``steps`` of a listener and their content, or the ``end`` of the attempt."""
        done, block = self._done(listener), self.ballot.block(listener)
        remaining = [step for step in self.study.steps if step not in done]
        if "left" in done:
            return {"end": "left", **done["left"]}
        if not remaining:
            return {"end": "finished", "code": self.study.code, "return_to": self.study.return_to}
        start = _CHECK_TRIALS * ("headphones 1" in done)
        checks = [check_trial(self.study, listener % _SETS, number) for number in range(start, start + _CHECK_TRIALS)]
        return {
            "listener": listener,
            "steps": remaining,
            "volume": self.volume(block),
            "training": self.training(block) if "training" in remaining else [],
            "headphones": checks if "headphones" in remaining else [],
        }

    def trial(self, listener: int) -> dict[str, Any] | None:
        """Return the listener's next trial, None at the end. Raises RequestInvalid if a preceding step is incomplete."""
        if not str(self._current(listener)).startswith(_BREAK):  # the page shows the break before the trial
            self._require_current(listener, "trials")
        trial = super().trial(listener)
        if trial is not None and self._issued.get(listener, ("",))[0] != trial["id"]:
            self._issued[listener] = (trial["id"], time.monotonic())
        return trial

    def vote(self, listener: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store a response to the listener's next trial.

        Raises RequestInvalid if a sound of the trial was not fetched and played to its end, or a preceding step is
        incomplete.
        """
        self._require_current(listener, "trials")
        ids = [trial.id for trial in self.ballot.trials(listener)]
        trial, voted = self.ballot.next_trial(listener), body.get("trial")
        if trial is not None and voted in ids[ids.index(trial.id) :]:  # not a response resent after a lost reply
            if voted != trial.id:
                raise RequestInvalid.of("trial", f"must be the current trial {trial.id}, got {voted!r}", type="order")
            self._check_played(listener, trial, body)
            self._fetched -= {f"{trial.id}-{letter}" for letter in (*trial.slots, "reference")}
        return super().vote(listener, body)

    def _check_played(self, listener: int, trial: Trial, body: Mapping[str, Any]) -> None:
        """Raise RequestInvalid unless every sound of a trial was fetched and played to its end."""
        letters = [*trial.slots, *["reference"] * (trial.reference is not None)]
        seconds = _CLOCK_TOLERANCE * len(letters) * self._seconds[trial.item]
        trial_id, issued = self._issued.get(listener, ("", 0.0))
        missing = [letter for letter in letters if f"{trial.id}-{letter}" not in self._fetched]
        if trial_id == trial.id:
            elapsed = time.monotonic() - issued
            if missing or elapsed < seconds:
                unfetched = f", without {', '.join(missing)}" if missing else ""
                message = (
                    f"must follow playback of all sounds ({seconds:.1f} s), got them after {elapsed:.1f} s{unfetched}"
                )
                raise RequestInvalid.of("answers", message, type="not_played")
        for name, minimum in (("plays", len(letters)), ("seconds", seconds)):
            number_of(name, body.get(name, 0), minimum, MAX_INT)

    def step(self, listener: int, name: object, answers: object) -> dict[str, Any]:
        """Store the answers to a step unless the step is complete, and return the listener's state.

        Raises RequestInvalid for invalid answers, or if a preceding step is incomplete.
        """
        if not isinstance(answers, Mapping):
            raise RequestInvalid.of("answers", f"must be an object, got {shown_value(answers)}", type="model_type")
        done = self._done(listener)
        if not (isinstance(name, str) and name in done) and "left" not in done:
            self._require_current(listener, name)
            for step, values in self._checked_step(str(name), listener, answers, done).items():
                self.ballot.keep_step(listener, step, values)
            self._steps.pop(listener, None)
        return self.state(listener)

    def _done(self, listener: int) -> dict[str, Any]:
        if listener not in self._steps:
            self._steps[listener] = self.ballot.steps(listener)
        return self._steps[listener]

    def _checked_step(
        self, name: str, listener: int, answers: Mapping[str, Any], done: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Validate the answers to a step; return the values to store by step, with ``left`` for a listener to screen out."""
        values: dict[str, Any] = {}
        reason = ""
        if name == "consent":
            values = {"agreed": answers.get("agreed") is True}
            reason = "consent" * (not values["agreed"])
        elif name == "questionnaire":
            values = self.study.checked("before", answers)
            reason = "qualification" * (not self.study.qualifies(values))
        elif name == "headphones":
            repeated, choices = "headphones 1" in done, answers.get("answers")
            if not isinstance(choices, list) or len(choices) != _CHECK_TRIALS:
                raise RequestInvalid.of(
                    "answers", f"must be a list of {_CHECK_TRIALS} numbers, got {shown_value(choices)}"
                )
            numbers = range(_CHECK_TRIALS * repeated, _CHECK_TRIALS * (1 + repeated))
            correct = (check_answer(listener % _SETS, number) for number in numbers)
            right = sum(choice == answer for choice, answer in zip(choices, correct, strict=True))
            values = {"right": right, "again": repeated}
            if right < RIGHT[self.study.headphones]:
                name, values, reason = f"headphones {1 + repeated}", {"right": right}, "headphones" * repeated
        elif name.startswith(_BREAK):
            values = self.study.checked("breaks", answers)
        elif name == "comment":
            values = {"comment": Question("comment", "", required=False).checked(answers.get("comment"))}
        elif name == "trials" and self.ballot.next_trial(listener) is not None:
            raise RequestInvalid.of("step", "Trials are unanswered")
        return {name: values, **({"left": {"reason": reason}} if reason else {})}

    def _current(self, listener: object) -> str | None:
        """Return the current step of a listener; during the trials, this is a break if its questions are unanswered."""
        done = self._done(listener) if type(listener) is int else {}
        current = None if "left" in done else next((name for name in self.study.steps if name not in done), None)
        if current == "trials" and type(listener) is int and self.study.questions_at("breaks"):
            trial = self.ballot.next_trial(listener)
            trial_number = int(trial.id.partition("-")[2]) if trial is not None else 0
            if trial_number and trial_number % self.study.breaks == 0 and f"{_BREAK}{trial_number}" not in done:
                return f"{_BREAK}{trial_number}"
        return current

    def _require_current(self, listener: object, step: object) -> None:
        if step is None or step != self._current(listener):
            raise RequestInvalid.of(
                "step", f"{shortened(repr(step), 100)} is not the current step; reload the page", type="order"
            )

    def sound(self, id: object) -> bytes:
        """Return a sound of a trial or of the headphone check as a WAV file. Raises NotFound for an unknown id."""
        data = self._sound(id)
        self._fetched.add(str(id))
        return data

    def _sound(self, id: object) -> bytes:
        set_index, check, number = id.partition("-headphones") if isinstance(id, str) else ("", "", "")
        if self.study.headphones and check and _NUMBER.fullmatch(set_index) and _NUMBER.fullmatch(number):
            return check_wav(self.study.headphones, int(set_index) % _SETS, int(number) % CHECKS)
        return super().sound(id)


def _contents(files: Iterable[str | Path]) -> Iterator[tuple[Path, str]]:
    """Yield every listener's JSON text and the file that contains it. Raises StoreError for an unreadable file."""
    for file in map(Path, files):
        text = read_text(file)
        lines = text.split("\n") if file.suffix == ".jsonl" else [text]
        yield from ((file, line) for line in lines if line.strip() or len(lines) == 1)


def answer_hash(name: str, answer: object) -> int:
    """Return the 32-bit FNV-1a hash by which a static page checks an answer, as ``listening-study.js`` computes it."""
    value = 0x811C9DC5
    for byte in f"{name}={answer}".encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


def check_answer(set_index: int, number: int) -> int:
    """Return the correct answer, 1 to 3, of a trial of the headphone check."""
    return int(np.random.default_rng((set_index, number, 3)).integers(1, 4))


def check_trial(study: Study, set_index: int, number: int) -> dict[str, Any]:
    """Return a trial of the headphone check as the page's JSON object."""
    name = f"{set_index}-headphones{number}"
    trial = {
        "id": name,
        "kind": "headphones",
        "question": _CHECK_QUESTIONS.get(study.headphones),
        "place": number % _CHECK_TRIALS,
        "total": _CHECK_TRIALS,
    }
    return {**trial, "letters": [{"letter": "A", "sound": name}], "reference": None, "scale": [1, 3]}


@lru_cache(maxsize=_SETS * CHECKS)
def check_wav(kind: Headphones, set_index: int, number: int) -> bytes:
    """Return the three 1 s sounds of a headphone trial as a stereo WAV file: see ``Study.headphones``."""
    rng, right, size = np.random.default_rng((set_index, number)), check_answer(set_index, number), 22_050
    # The softest tone is the antiphase one over loudspeakers, where it cancels, and the correct answer over headphones.
    wrong = int(rng.choice([position for position in (1, 2, 3) if position != right]))
    seconds = np.arange(size) / size
    ramp = np.minimum(1.0, 10.0 * np.minimum(seconds, seconds[::-1]))
    sections = []
    for position in (1, 2, 3):
        if kind == "huggins":
            noise = 0.05 * rng.standard_normal(size)
            spectrum = np.fft.rfft(noise)
            # Phase shift of 180 degrees within 6 % of 600 Hz, in one channel.
            shifted = (np.abs(np.arange(spectrum.size) - 600) <= 36) & (position == right)
            sound = np.stack([noise, np.fft.irfft(np.where(shifted, -spectrum, spectrum), size)])
        else:
            tone = 0.25 * np.sin(2 * math.pi * 200.0 * seconds) * (0.5 if position == right else 1.0)
            sound = np.stack([tone, -tone if position == wrong else tone])
        sections += [sound * ramp, np.zeros((2, size // 2))]
    return wav_bytes((np.concatenate(sections[:-1], axis=1).T * 32767).round().astype(np.int16), size)
