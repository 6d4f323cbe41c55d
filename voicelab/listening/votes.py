"""Responses of listeners in an SQLite file to which several processes may write, and the blinded test for the web page."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from voicelab.asr.normalization import words_correct
from voicelab.errors import NotFound, RequestInvalid, StoreError, VoicelabError, shown_value
from voicelab.lifecycle import Closeable
from voicelab.listening.design import SCALES, ListeningTest, Stimulus, Trial, blind_wav
from voicelab.storage import Database

if TYPE_CHECKING:
    import pandas as pd

_TABLES: Final = """
CREATE TABLE test (record TEXT NOT NULL);
CREATE TABLE listener (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    since TEXT NOT NULL,
    session TEXT NOT NULL,
    block INTEGER NOT NULL,
    UNIQUE (name, session)
);
CREATE TABLE vote (
    listener INTEGER NOT NULL REFERENCES listener (number),
    place INTEGER NOT NULL,
    answers TEXT NOT NULL,
    seconds REAL NOT NULL,
    plays INTEGER NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (listener, place)
);
CREATE TABLE step (
    listener INTEGER NOT NULL REFERENCES listener (number),
    name TEXT NOT NULL,
    answers TEXT NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (listener, name)
);
"""
"""A listener is a browser session or, if there is none, a name. ``block`` is the index of the block of trials assigned
to the listener. A row of ``step`` has the answers to a step of a study other than its trials."""
_T = TypeVar("_T")
_RATE: Final = 44_100
_REFERENCE: Final = "reference"
_VOLUME: Final = "volume"
_TRAINING: Final = "training"
# Ids of sounds consist of block, trial and letter.
_SOUND: Final = re.compile(
    rf"(?P<block>\d{{1,10}})-(?P<place>{_VOLUME}|(?P<training>{_TRAINING})?\d+)-(?P<letter>\w*)", re.ASCII
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_TEXT: Final = 1000
MAX_INT: Final = 2**31
"""Upper bound of listener numbers, seconds and plays; within SQLite's integer range."""


@dataclass(frozen=True, slots=True)
class Vote:
    """Response to a trial.

    ``answers`` are ratings by letter (on several scales by letter and scale, such as ``"A naturalness"``), the text of a
    transcription by letter, ``{"choice": "A"}``, or ``{"best": "A", "worst": "B"}``.

    ``seconds`` is the time from the first sound to the answer, ``plays`` the number of playbacks.
    """

    listener: str
    trial: Trial
    answers: Mapping[str, float | str]
    seconds: float = 0.0
    plays: int = 0

    @property
    def passed(self) -> bool:
        """Whether the listener passed an attention check; True for other trials."""
        return self.trial.passed(next(iter(self.answers.values())))


class Ballot(Closeable):
    """Responses to a listening test, stored in a file; returning listeners resume.

    Several threads and processes may use a file at the same time. Raises StoreError if the file cannot be used, or
    belongs to another test or another order of its trials.
    """

    def __init__(self, test: ListeningTest, path: str | Path) -> None:
        self.test = test
        self.path = Path(path)
        # Schema versions 1 and 2 cannot be read.
        self._database = Database(self.path, "file of responses", ("", "", _TABLES), busy_s=10.0)
        self.block_trials = lru_cache(maxsize=512)(test.trials)
        self._names: dict[int, tuple[str, int]] = {}
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]] = []
        self._writer, self._writing = threading.Condition(), False
        try:
            self._begin()
        except BaseException:
            self._database.close()
            raise

    def join(self, name: str, session: str = "", *, block: int | None = None) -> int:
        """Return the number of the listener with this name and session; a new listener gets the next number.

        Listeners of the same name are distinguished by their sessions; every browser has its own session. ``block`` is
        the index of the block of trials assigned to a new listener; default: the listener's number. Raises
        RequestInvalid unless the name has 1 to 100 characters.
        """
        name, session = text_of("name", name, 1, 100), text_of("session", session, 0, 100)

        def join(store: sqlite3.Connection) -> int:
            query = "SELECT number FROM listener WHERE name = ? AND session = ?"
            row = store.execute(query, (name, session)).fetchone()
            return int(row[0]) if row is not None else self.add(store, name, session, block)

        return self.together(join)

    @staticmethod
    def add(store: sqlite3.Connection, name: str, session: str, block: int | None = None) -> int:
        """Add a listener in a transaction of `together`; return their number, which is also the default of ``block``."""
        number = int(store.execute("SELECT COUNT(*) FROM listener").fetchone()[0])
        values = (number, name, _now(), session, number if block is None else block)
        store.execute("INSERT INTO listener VALUES (?, ?, ?, ?, ?)", values)
        return number

    def together(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work`` in a transaction that is shared with concurrent callers and is committed on return.

        If ``work`` raises a VoicelabError or violates a constraint, only its own changes are rolled back, and the error
        is raised.
        """
        job: Future[_T] = Future()
        with self._writer:
            self._waiting.append((work, job))
            self._writer.wait_for(lambda: job.done() or not self._writing)
            if job.done():  # committed by another caller
                return job.result()
            jobs, self._waiting, self._writing = self._waiting, [], True
        try:
            self._commit(jobs)
        finally:
            with self._writer:
                self._writing = False
                self._writer.notify_all()
        return job.result()

    def _commit(self, jobs: list[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]]) -> None:
        settle: list[Callable[[], None]] = []
        try:
            with self._database.writing() as store:
                for work, job in jobs:
                    store.execute("SAVEPOINT work")
                    try:
                        settle.append(partial(job.set_result, work(store)))
                    except (VoicelabError, sqlite3.IntegrityError) as error:
                        store.execute("ROLLBACK TO work")
                        settle.append(partial(job.set_exception, error))
                    store.execute("RELEASE work")
        except BaseException as error:
            settle = [partial(job.set_exception, error) for _, job in jobs]
            raise
        finally:
            for outcome in settle:
                outcome()

    @property
    def listeners(self) -> tuple[str, ...]:
        """Names of the listeners in the order in which they joined; a number is appended to a repeated name."""
        names: dict[str, None] = {}
        for number, name in self._read("SELECT number, name FROM listener ORDER BY number"):
            names[name if name not in names else f"{name} ({number + 1})"] = None
        return tuple(names)

    def block(self, listener: int) -> int:
        """Return the index of the block of trials assigned to a listener. Raises NotFound for an unknown listener."""
        return self._fixed(listener)[1]

    def session(self, listener: int) -> str:
        """Return the listener's current session, or "" for an unknown listener."""
        rows = self._read("SELECT session FROM listener WHERE number = ?", listener if 0 <= listener < MAX_INT else -1)
        return str(rows[0][0]) if rows else ""

    @property
    def last_block(self) -> int:
        """Largest block index in use; -1 before the first listener joins."""
        ((index,),) = self._read("SELECT MAX(block) FROM listener")
        return -1 if index is None else int(index)

    def trials(self, listener: int) -> tuple[Trial, ...]:
        """Return the listener's trials in order. Raises NotFound for an unknown listener."""
        return self.block_trials(self.block(listener))

    def steps(self, listener: int) -> dict[str, Any]:
        """Return the listener's answers to the steps of a study, by step."""
        query = "SELECT name, answers FROM step WHERE listener = ? ORDER BY rowid"
        return {name: json.loads(answers) for name, answers in self._read(query, listener)}

    def keep_step(self, listener: int, name: str, answers: Mapping[str, Any]) -> None:
        """Store the answers to a step of a study, unless answers to this step are already stored."""
        values = (listener, name, json.dumps(dict(answers)), _now())
        self.together(lambda store: store.execute("INSERT OR IGNORE INTO step VALUES (?, ?, ?, ?)", values))

    def reached(self, step: str) -> tuple[str, ...]:
        """Return the listeners who completed a step of a study, in order of completion."""
        rows, names = self._read("SELECT listener FROM step WHERE name = ? ORDER BY rowid", step), self.listeners
        return tuple(names[number] for (number,) in rows)

    def people(self) -> pd.DataFrame:
        """Return a table of the listeners of a study: ``listener``, ``block``, ``votes``, and a column for every answer.

        Answer columns are named by step and question (``questionnaire.age``). The column ``….since`` has the time at
        which a step was completed (UTC).
        """
        import pandas as pd

        query = "SELECT block, COUNT(place) FROM listener LEFT JOIN vote ON listener = number GROUP BY number ORDER BY number"
        rows: list[dict[str, Any]] = [
            {"listener": name, "block": block, "votes": count}
            for name, (block, count) in zip(self.listeners, self._read(query), strict=True)
        ]
        for number, step, answers, since in self._read("SELECT * FROM step ORDER BY rowid"):
            values = {f"{step}.{name}": value for name, value in json.loads(answers).items()}
            rows[number] |= {**values, f"{step}.since": since}
        return pd.DataFrame(rows, columns=None if rows else ["listener", "block", "votes"])

    @property
    def begun(self) -> str | None:
        """Time of the first response (UTC), or None if there are no responses."""
        ((since,),) = self._read("SELECT MIN(since) FROM vote")
        return None if since is None else str(since)

    def next_trial(self, listener: int) -> Trial | None:
        """Return the listener's next trial, None after the last. Raises NotFound for an unknown number."""
        trials = self.trials(listener)
        answered = {index for (index,) in self._read("SELECT place FROM vote WHERE listener = ?", listener)}
        return next((trial for index, trial in enumerate(trials) if index not in answered), None)

    def vote(self, listener: int, trial: str, answers: object, *, seconds: float = 0.0, plays: int = 0) -> Vote:
        """Store a response; it is on disk when the method returns.

        Raises RequestInvalid for an answer that the trial does not allow or a second response to the trial, NotFound if
        the trial is not one of the listener's.
        """
        name, _ = self._fixed(listener)
        indices = {item.id: index for index, item in enumerate(self.trials(listener))}
        if (index := indices.get(trial)) is None:
            raise NotFound(f"trial {trial!r} not found for listener {listener}")
        question = self.trials(listener)[index]
        values = checked(question, answers, self.test.scales)
        seconds = number_of("seconds", seconds, 0, MAX_INT)
        plays = int(number_of("plays", plays, 0, MAX_INT, integer=True))
        row = (listener, index, json.dumps(values), seconds, plays, _now())
        try:
            self.together(lambda store: store.execute("INSERT INTO vote VALUES (?, ?, ?, ?, ?, ?)", row))
        except sqlite3.IntegrityError:
            raise RequestInvalid.of("trial", "this trial was answered before", type="duplicate") from None
        return Vote(name, question, values, seconds, plays)

    def votes(self) -> tuple[Vote, ...]:
        """Return all responses by listener, in the order of the trials."""
        names = self.listeners
        query = (
            "SELECT vote.listener, block, place, answers, seconds, plays FROM vote "
            "JOIN listener ON number = vote.listener ORDER BY vote.listener, place"
        )
        return tuple(
            Vote(names[number], self.block_trials(block)[index], json.loads(answers), seconds, plays)
            for number, block, index, answers, seconds, plays in self._read(query)
        )

    def frame(self) -> pd.DataFrame:
        """Return the responses as a tidy, unblinded table with a row for each rating or choice.

        All tables have the columns ``listener``, ``trial``, ``item``, ``kind``, ``check``, ``passed``, ``seconds`` and
        ``plays``. Ratings add ``system`` and ``rating``, and ``scale`` if there are several. Transcriptions add
        ``system``, ``answer`` and, as ``rating``, the percentage of correct words. Choices add ``chosen``, ``other``
        and, in ABX, ``right``.
        """
        import pandas as pd

        return pd.DataFrame([row for vote in self.votes() for row in _rows(vote)])

    def close(self) -> None:
        """Close the file. A second call has no effect."""
        self._database.close()

    def _begin(self) -> None:
        record = json.dumps({**self.test.to_record(), "digest": self.test.digest}, sort_keys=True)
        with self._database.writing() as store:
            row = store.execute("SELECT record FROM test").fetchone()
            if row is None:
                store.execute("INSERT INTO test VALUES (?)", (record,))
            elif row[0] != record:
                message = "has responses to another test, or to another order of its trials"
                raise StoreError(f"{self.path} {message}; use a new file")

    def _fixed(self, listener: int) -> tuple[str, int]:
        """Return the name and the block of a listener, which never change. Raises NotFound for an unknown listener."""
        if type(listener) is not int or not 0 <= listener < MAX_INT:
            raise NotFound("listener not found; join first")
        if listener not in self._names:
            rows = self._read("SELECT name, block FROM listener WHERE number = ?", listener)
            if not rows:
                raise NotFound(f"listener {listener} not found; join first")
            self._names[listener] = (str(rows[0][0]), int(rows[0][1]))
        return self._names[listener]

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._database.reading() as store:
            return store.execute(query, values).fetchall()


def text_of(field: str, value: object, low: int, high: int) -> str:
    """Validate text from a request, and return it stripped. Raises RequestInvalid, which names the field."""
    text = value.strip() if isinstance(value, str) else None
    if text is None or not low <= len(text) <= high or _CONTROL.search(text):
        rule = f"text of {low} to {high} characters, without control characters and lone surrogates"
        raise RequestInvalid.of(field, f"must be {rule}, got {shown_value(value)}")
    return text


def number_of(field: str, value: object, low: float, high: float, *, integer: bool = False) -> float:
    """Validate a number from a request. Raises RequestInvalid, which names the field."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= high or (integer and number != int(number)):
        raise RequestInvalid.of(
            field, f"must be a {'whole ' * integer}number from {low:g} to {high:g}, got {shown_value(value)}"
        )
    return float(number)


def checked(trial: Trial, answers: object, scales: Iterable[str] = ()) -> dict[str, float | str]:
    """Validate the answers to a trial. Raises RequestInvalid, which names the letter."""
    if not isinstance(answers, Mapping):
        raise RequestInvalid.of("answers", f"must be an object, got {shown_value(answers)}", type="model_type")
    if trial.kind == "BWS":
        letters = list(trial.slots)
        if (
            not (set(answers) == {"best", "worst"} and {*map(str, answers.values())} <= {*letters})
            or len({*answers.values()}) != 2
        ):
            rule = f"best and worst must be two of {', '.join(letters)}, got {shown_value(answers)}"
            raise RequestInvalid.of("answers", rule, type="literal_error")
        return dict(answers)
    if trial.kind == "transcription" and set(answers) == {"A"}:
        return {"A": text_of("A", answers["A"], 1, _MAX_TEXT)}
    if trial.kind not in SCALES:
        if answers not in ({"choice": "A"}, {"choice": "B"}):
            raise RequestInvalid.of("choice", f"must be 'A' or 'B', got {answers}", type="literal_error")
        return dict(answers)
    # CMOS has a single rating, of B against A.
    letters = ["B"] if trial.kind == "CMOS" else list(trial.slots)
    letters = [f"{letter} {scale}" for letter in letters for scale in scales] or letters
    if set(answers) != set(letters):
        message = f"must have a rating for {', '.join(letters)}, got {', '.join(map(str, answers)) or 'none'}"
        raise RequestInvalid.of("answers", message, type="missing")
    integer = not trial.kind.startswith("MUSHRA")
    return {letter: number_of(letter, answers[letter], *SCALES[trial.kind], integer=integer) for letter in letters}


def _rows(vote: Vote) -> Iterator[dict[str, Any]]:
    trial = vote.trial
    row = {
        "listener": vote.listener,
        "trial": trial.id,
        "item": trial.item,
        "kind": trial.kind,
        "check": trial.check,
        "passed": vote.passed,
        "seconds": vote.seconds,
        "plays": vote.plays,
    }
    if "choice" in vote.answers:
        chosen = str(vote.answers["choice"])
        other = "B" if chosen == "A" else "A"
        row |= {"chosen": trial.slots[chosen].system, "other": trial.slots[other].system, "first": chosen == "A"}
        if trial.kind == "ABX":
            row["right"] = chosen == trial.answer
        yield row
    elif "best" in vote.answers:
        for letter, sound in trial.slots.items():
            count = float(letter == vote.answers["best"]) - float(letter == vote.answers["worst"])
            yield {**row, "system": sound.system, "rating": count}
    elif trial.kind == "transcription":
        answer = str(vote.answers["A"])
        rating = words_correct(trial.text, answer)
        yield {**row, "system": trial.slots["A"].system, "answer": answer, "rating": rating}
    else:
        for name, value in vote.answers.items():
            letter, _, scale = name.partition(" ")
            more = {"against": trial.slots["A"].system} if trial.kind == "CMOS" else {}
            more |= {"scale": scale} if scale else {}
            yield {**row, "system": trial.slots[letter].system, **more, "rating": float(value)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _reversed(sound: Stimulus) -> Stimulus:
    """Return a sound that is played backward, so that the volume setting does not reveal words of a transcription test."""
    clip = replace(sound.source, samples=sound.source.samples[::-1])
    return replace(sound, id=f"{sound.id}r", source=clip)


class BlindTest:
    """Blinded view of a ListeningTest for the test page.

    ``block`` is the index of the block of trials assigned to a listener.
    """

    def __init__(self, test: ListeningTest) -> None:
        self.design = test
        self._seconds: dict[str, float] = {}
        for sound in test.sounds:
            self._seconds[sound.item] = max(sound.source.duration, self._seconds.get(sound.item, 0.0))
        self._trials = lru_cache(maxsize=512)(test.trials)
        self._training = lru_cache(maxsize=512)(test.training_trials)

    def test(self) -> dict[str, Any]:
        """Return the name, kind and instructions of the test, which visitors may read before they join."""
        return {"name": self.design.name, "kind": self.design.kind, "instructions": self.design.instructions}

    def volume(self, block: int) -> str:
        """Return the id of the sound for the volume setting."""
        return f"{block}-{_VOLUME}-"

    def training(self, block: int) -> list[dict[str, Any]]:
        """Return the training trials."""
        return [self.shown(trial) for trial in self._training(block)]

    def shown(self, trial: Trial) -> dict[str, Any]:
        """Return a trial as the page's JSON object."""
        block, _, position = trial.id.partition("-")
        return {
            "id": trial.id,
            "kind": trial.kind,
            "question": self.design.question,
            "place": int(position.removeprefix(_TRAINING)),
            "total": len(self._trials(int(block))),
            "letters": [{"letter": letter, "sound": f"{trial.id}-{letter}"} for letter in trial.slots],
            "reference": f"{trial.id}-{_REFERENCE}" if trial.reference is not None else None,
            "scale": SCALES.get(trial.kind),
            "scales": list(self.design.scales.items()),
        }

    def sound(self, id: object) -> bytes:
        """Return a sound of a trial as a WAV file. The files of an item have equal lengths and different bytes.

        The id contains the position of the sound in the test. Raises NotFound for an unknown id.
        """
        return self.wav(self.stimulus(id), id)

    def wav(self, stimulus: Stimulus, id: object) -> bytes:
        """Return a stimulus as a WAV file with dither seeded by ``id``."""
        length = math.ceil(self._seconds[stimulus.item] * _RATE)
        return blind_wav(stimulus.clip, f"{self.design.seed} {self.design.name} {id}", _RATE, length)

    def stimulus(self, id: object) -> Stimulus:
        """Return the stimulus with this id. Raises NotFound for an unknown id."""
        matched = _SOUND.fullmatch(id) if isinstance(id, str) else None
        if matched is not None and self._has(block := int(matched["block"])):
            trials = self._training(block) if matched["training"] else self._trials(block)
            if matched["place"] == _VOLUME:
                # A sound without noise, preferably the reference.
                regular = next(trial for trial in trials if not trial.check)
                example = regular.reference or regular.slots["A"]
                return _reversed(example) if regular.kind == "transcription" else example
            for trial in trials:
                if trial.id == f"{block}-{matched['place']}":
                    sounds = {**trial.slots, _REFERENCE: trial.reference}
                    if (sound := sounds.get(matched["letter"])) is not None:
                        return sound
        raise NotFound("sound not found")

    def _has(self, block: int) -> bool:
        return block < MAX_INT


class BlindBallot(BlindTest):
    """Blinded view of a Ballot that answers the calls of a page."""

    def __init__(self, ballot: Ballot) -> None:
        super().__init__(ballot.test)
        self.ballot, self._trials = ballot, ballot.block_trials
        self._last_block = -1

    def answer(self, call: object, listener: Any, body: Mapping[str, Any]) -> Any:
        """Answer a call of the page. ``listener`` is ignored by calls that do not concern a listener.

        Raises RequestInvalid for an invalid body, NotFound for an unknown call, listener, trial or sound.
        """
        if call == "test":
            return self.test()
        if call == "join":
            return self.join(body.get("name"), body.get("session", ""))
        if call == "trial":
            return self.trial(listener)
        if call == "sound":
            return self.sound(body.get("id"))
        if call == "vote":
            return self.vote(listener, body)
        raise NotFound("steps are available only in a study")

    def join(self, name: Any, session: Any = "") -> dict[str, Any]:
        """Return ``{"listener": …, "volume": …, "training": […]}``.

        The values are the listener's number, the id of the sound for the volume setting, and the training trials, which
        are empty for a listener who has already responded. Raises RequestInvalid for an invalid name.
        """
        number = self.ballot.join(name, session)
        block = self.ballot.block(number)
        started = self._trials(block)[0] != self.ballot.next_trial(number)
        training = [] if started else self.training(block)
        return {"listener": number, "volume": self.volume(block), "training": training}

    def trial(self, listener: int) -> dict[str, Any] | None:
        """Return the listener's next trial as JSON, None at the end. Raises NotFound for an unknown number."""
        trial = self.ballot.next_trial(listener)
        return None if trial is None else self.shown(trial)

    def _has(self, block: int) -> bool:
        if block > self._last_block:
            self._last_block = self.ballot.last_block
        return block <= self._last_block

    def vote(self, listener: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store a response, ``{"trial": …, "answers": {…}, "seconds": …, "plays": …}``; return whether it was stored.

        A repeated response is ignored without an error, because the page resends a response whose reply was lost.
        Raises RequestInvalid for an invalid response, and NotFound for an unknown listener or trial.
        """
        trial = text_of("trial", body.get("trial"), 1, 100)
        options = {name: body[name] for name in ("seconds", "plays") if name in body}
        try:
            self.ballot.vote(listener, trial, body.get("answers"), **options)
        except RequestInvalid as error:
            if error.errors[0].type != "duplicate":
                raise
            return {"kept": False}
        return {"kept": True}
