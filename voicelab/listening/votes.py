"""Votes: what listeners are shown and what they answered, in one SQLite file that several may write."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from voicelab.errors import NotFound, RequestInvalid, StoreError, VoicelabError
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
"""A listener is a session: of a browser, or where nobody names one, of everybody with that name. ``block`` is the number
whose trials a listener is asked; a ``step`` has what a study asks besides them."""
_T = TypeVar("_T")
_RATE: Final = 44_100
_OPEN: Final = "reference"
_VOLUME: Final = "volume"
_TRAINING: Final = "training"
# The ids of sounds: which listener's trials, which of them, and under which letter.
_SOUND: Final = re.compile(
    rf"(?P<block>\d{{1,10}})-(?P<place>{_VOLUME}|(?P<training>{_TRAINING})?\d+)-(?P<letter>\w*)", re.ASCII
)
_NOT_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_MOST: Final = 2**31
"""Above every count that occurs, and small enough for an integer of SQLite."""


@dataclass(frozen=True, slots=True)
class Vote:
    """An answer: ``answers`` has a rating for each letter, or for a choice ``{"choice": "A"}``.

    ``seconds`` from the first sound to the answer, ``plays`` how often a sound was started.
    """

    listener: str
    trial: Trial
    answers: Mapping[str, float | str]
    seconds: float = 0.0
    plays: int = 0

    @property
    def passed(self) -> bool:
        """Whether a check was answered as an attentive listener would; of other trials always."""
        return self.trial.passed(next(iter(self.answers.values())))


class Ballot(Closeable):
    """The votes of a listening test, in a file. A listener who comes back goes on where they were.

    Safe to use from several threads, and several processes may write one file. Raises StoreError when the file
    cannot be used, is of another test, or was begun by a voicelab whose order of this test was another.
    """

    def __init__(self, test: ListeningTest, path: str | Path) -> None:
        self.test = test
        self.path = Path(path)
        # Versions 1 and 2 are no longer read; one of version 3 before this is refused as that of another order.
        self._database = Database(self.path, "file of votes", ("", "", _TABLES), busy_s=10.0)
        self._trials = lru_cache(maxsize=4096)(test.trials)
        self._names: dict[int, tuple[str, int]] = {}
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]] = []
        self._writer, self._writing = threading.Condition(), False
        try:
            self._begin()
        except BaseException:
            self._database.close()
            raise

    def join(self, name: str, session: str = "", *, block: int | None = None) -> int:
        """Return the number of the listener of this name in this session; a new one gets the next.

        Two of one name are told apart by their sessions: each browser has its own. Without one, a name is a listener.
        ``block`` is the number whose trials a new one is asked, by default the own one.
        Raises RequestInvalid when the name is blank, or when either is longer than 100 characters.
        """
        name, session = text_of("name", name, 1, 100), text_of("session", session, 0, 100)

        def join(store: sqlite3.Connection) -> int:
            query = "SELECT number FROM listener WHERE name = ? AND session = ?"
            row = store.execute(query, (name, session)).fetchone()
            return int(row[0]) if row is not None else self.add(store, name, session, block)

        return self.together(join)

    @staticmethod
    def add(store: sqlite3.Connection, name: str, session: str, block: int | None = None) -> int:
        """Add a listener, within ``together``, who is asked the trials of the number ``block``; by default of the own one."""
        number = int(store.execute("SELECT COUNT(*) FROM listener").fetchone()[0])
        values = (number, name, _now(), session, number if block is None else block)
        store.execute("INSERT INTO listener VALUES (?, ?, ?, ?, ?)", values)
        return number

    def together(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do ``work`` in a transaction shared with all who come meanwhile: one wait for the disk. Kept when this returns.

        An error of ours, or of a constraint, undoes this work alone, and is raised.
        """
        job: Future[_T] = Future()
        with self._writer:
            self._waiting.append((work, job))
            self._writer.wait_for(lambda: job.done() or not self._writing)
            if job.done():  # who wrote before has written this too
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
        """Who has joined, in order; the second of a name has a number behind it."""
        names: dict[str, None] = {}
        for number, name in self._read("SELECT number, name FROM listener ORDER BY number"):
            names[name if name not in names else f"{name} ({number + 1})"] = None
        return tuple(names)

    def block(self, listener: int) -> int:
        """Return the number whose trials the listener is asked. Raises NotFound for an unknown listener."""
        return self._fixed(listener)[1]

    def session(self, listener: int) -> str:
        """Return the session in which a listener goes on, "" for an unknown one."""
        rows = self._read("SELECT session FROM listener WHERE number = ?", listener if 0 <= listener < _MOST else -1)
        return str(rows[0][0]) if rows else ""

    @property
    def last_block(self) -> int:
        """The greatest number whose trials somebody is asked; -1 where nobody has joined."""
        ((last,),) = self._read("SELECT MAX(block) FROM listener")
        return -1 if last is None else int(last)

    def trials(self, listener: int) -> tuple[Trial, ...]:
        """Return what the listener is asked, in order. Raises NotFound for an unknown number."""
        return self._trials(self.block(listener))

    def steps(self, listener: int) -> dict[str, Any]:
        """Return what the listener answered besides the trials, by the names of the steps of a study."""
        query = "SELECT name, answers FROM step WHERE listener = ? ORDER BY rowid"
        return {name: json.loads(answers) for name, answers in self._read(query, listener)}

    def keep_step(self, listener: int, name: str, answers: Mapping[str, Any]) -> None:
        """Keep the answers of a step of a study; the first ones stay."""
        values = (listener, name, json.dumps(dict(answers)), _now())
        self.together(lambda store: store.execute("INSERT OR IGNORE INTO step VALUES (?, ?, ?, ?)", values))

    def reached(self, step: str) -> tuple[str, ...]:
        """Return who has done a step of a study, in the order in which they did, whatever the clock said."""
        rows, names = self._read("SELECT listener FROM step WHERE name = ? ORDER BY rowid", step), self.listeners
        return tuple(names[number] for (number,) in rows)

    def people(self) -> pd.DataFrame:
        """Return the listeners of a study, a row each: ``listener``, ``block``, ``votes``, and a column for every answer.

        These are named by step and question (``questionnaire.age``); of each step ``….since`` has the time (UTC).
        """
        import pandas as pd

        query = "SELECT block, COUNT(place) FROM listener LEFT JOIN vote ON listener = number GROUP BY number ORDER BY number"
        rows: list[dict[str, Any]] = [
            {"listener": name, "block": block, "votes": count}
            for name, (block, count) in zip(self.listeners, self._read(query), strict=True)
        ]
        for number, step, answers, since in self._read("SELECT * FROM step ORDER BY rowid"):
            given = {f"{step}.{name}": value for name, value in json.loads(answers).items()}
            rows[number] |= {**given, f"{step}.since": since}
        return pd.DataFrame(rows, columns=None if rows else ["listener", "block", "votes"])

    @property
    def begun(self) -> str | None:
        """When the first vote was given (UTC), None where there is none."""
        ((first,),) = self._read("SELECT MIN(since) FROM vote")
        return None if first is None else str(first)

    def next_trial(self, listener: int) -> Trial | None:
        """Return what the listener is asked next; None when all is answered. Raises NotFound for an unknown number."""
        trials = self.trials(listener)
        done = {place for (place,) in self._read("SELECT place FROM vote WHERE listener = ?", listener)}
        return next((trial for place, trial in enumerate(trials) if place not in done), None)

    def vote(self, listener: int, trial: str, answers: object, *, seconds: float = 0.0, plays: int = 0) -> Vote:
        """Keep an answer; it is on disk when this returns. A second answer to a trial is refused, not taken.

        Raises RequestInvalid for an answer that the trial has not, NotFound for a trial that the listener has not.
        """
        name, _ = self._fixed(listener)
        places = {one.id: place for place, one in enumerate(self.trials(listener))}
        if (place := places.get(trial)) is None:
            raise NotFound(f"listener {listener} has no trial {trial!r}")
        question = self.trials(listener)[place]
        given = checked(question, answers)
        seconds = number_of("seconds", seconds, 0, _MOST)
        plays = int(number_of("plays", plays, 0, _MOST, whole=True))
        row = (listener, place, json.dumps(given), seconds, plays, _now())
        try:
            self.together(lambda store: store.execute("INSERT INTO vote VALUES (?, ?, ?, ?, ?, ?)", row))
        except sqlite3.IntegrityError:
            raise RequestInvalid.of("trial", "this trial was answered before", type="duplicate") from None
        return Vote(name, question, given, seconds, plays)

    def votes(self) -> tuple[Vote, ...]:
        """Return all votes, listener by listener, in the order in which they were asked."""
        names = self.listeners
        query = (
            "SELECT vote.listener, block, place, answers, seconds, plays FROM vote "
            "JOIN listener ON number = vote.listener ORDER BY vote.listener, place"
        )
        return tuple(
            Vote(names[number], self._trials(block)[place], json.loads(answers), seconds, plays)
            for number, block, place, answers, seconds, plays in self._read(query)
        )

    def frame(self) -> pd.DataFrame:
        """Return the votes as a tidy table, unblinded: one row for each rating, or for each choice.

        Columns: ``listener``, ``trial``, ``item``, ``kind``, ``check``, ``passed``, ``seconds``, ``plays``; for
        ratings ``system`` and ``rating``; for choices ``chosen`` and ``other`` (ABX: ``right``).
        """
        import pandas as pd

        return pd.DataFrame([row for vote in self.votes() for row in _rows(vote)])

    def close(self) -> None:
        """Let go of the file. May be called twice."""
        self._database.close()

    def _begin(self) -> None:
        record = json.dumps({**self.test.to_record(), "digest": self.test.digest}, sort_keys=True)
        with self._database.writing() as store:
            row = store.execute("SELECT record FROM test").fetchone()
            if row is None:
                store.execute("INSERT INTO test VALUES (?)", (record,))
            elif row[0] != record:
                message = "holds the votes of another test, or of a voicelab that asked it in another order"
                raise StoreError(f"{self.path} {message}; give each its own file")

    def _fixed(self, listener: int) -> tuple[str, int]:
        """Return the name and the block of a listener, which never change. Raises NotFound."""
        if type(listener) is not int or not 0 <= listener < _MOST:
            raise NotFound("no listener has this number; join first")
        if listener not in self._names:
            rows = self._read("SELECT name, block FROM listener WHERE number = ?", listener)
            if not rows:
                raise NotFound(f"no listener has the number {listener}; join first")
            self._names[listener] = (str(rows[0][0]), int(rows[0][1]))
        return self._names[listener]

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._database.reading() as store:
            return store.execute(query, values).fetchall()


def text_of(field: str, value: object, least: int, most: int) -> str:
    """Return text that somebody sent, without blanks around it. Raises RequestInvalid, which names the field."""
    text = value.strip() if isinstance(value, str) else None
    if text is None or not least <= len(text) <= most or _NOT_TEXT.search(text):
        message = (
            f"Input should be text of {least} to {most} characters, without control characters and lone surrogates"
        )
        raise RequestInvalid.of(field, message)
    return text


def number_of(field: str, value: object, low: float, high: float, *, whole: bool = False) -> float:
    """Return a number that somebody sent. Raises RequestInvalid, which names the field."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= high or (whole and number != int(number)):
        raise RequestInvalid.of(field, f"Input should be a {'whole ' * whole}number from {low:g} to {high:g}")
    return float(number)


def checked(trial: Trial, answers: object) -> dict[str, float | str]:
    """Return the answers that a trial takes. Raises RequestInvalid naming the letter."""
    if not isinstance(answers, Mapping):
        raise RequestInvalid.of("answers", "Input should be an object", type="model_type")
    if trial.kind not in SCALES:
        if answers not in ({"choice": "A"}, {"choice": "B"}):
            raise RequestInvalid.of("choice", "Input should be 'A' or 'B'", type="literal_error")
        return dict(answers)
    # CMOS is one rating: of B against A.
    letters = ["B"] if trial.kind == "CMOS" else list(trial.slots)
    if set(answers) != set(letters):
        raise RequestInvalid.of("answers", f"Input should have a rating for {', '.join(letters)}", type="missing")
    whole = trial.kind != "MUSHRA"
    return {letter: number_of(letter, answers[letter], *SCALES[trial.kind], whole=whole) for letter in letters}


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
    else:
        for letter, rating in vote.answers.items():
            against = {"against": trial.slots["A"].system} if trial.kind == "CMOS" else {}
            yield {**row, "system": trial.slots[letter].system, **against, "rating": float(rating)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class BlindTest:
    """A ListeningTest as its listeners see it: nothing here says which sound is which. ``block`` is a listener's number."""

    def __init__(self, test: ListeningTest) -> None:
        self.plain = test
        self._seconds: dict[str, float] = {}
        for sound in test.sounds:
            self._seconds[sound.item] = max(sound.clip.duration, self._seconds.get(sound.item, 0.0))
        self._trials = lru_cache(maxsize=4096)(test.trials)
        self._training = lru_cache(maxsize=4096)(test.training_trials)

    def test(self) -> dict[str, Any]:
        """Return what everybody may read before they join: the test's name, its kind and its instructions."""
        return {"name": self.plain.name, "kind": self.plain.kind, "instructions": self.plain.instructions}

    def volume(self, block: int) -> str:
        """Return the id of a sound to set the volume by."""
        return f"{block}-{_VOLUME}-"

    def training(self, block: int) -> list[dict[str, Any]]:
        """Return the trials to practise on."""
        return [self.shown(one) for one in self._training(block)]

    def shown(self, trial: Trial) -> dict[str, Any]:
        """Return what a page needs to ask a trial."""
        block, _, place = trial.id.partition("-")
        return {
            "id": trial.id,
            "kind": trial.kind,
            "question": self.plain.question,
            "place": int(place.removeprefix(_TRAINING)),
            "total": len(self._trials(int(block))),
            "letters": [{"letter": letter, "sound": f"{trial.id}-{letter}"} for letter in trial.slots],
            "reference": f"{trial.id}-{_OPEN}" if trial.reference is not None else None,
            "scale": SCALES.get(trial.kind),
        }

    def sound(self, id: object) -> bytes:
        """Return a sound of a trial as a WAV file: all of one item have one length, and no two the same bytes.

        Its id says in which place it stands, not what it is. Raises NotFound for any other.
        """
        return self.wav(self.stimulus(id), id)

    def wav(self, stimulus: Stimulus, id: object) -> bytes:
        """Return a stimulus as a WAV file, with noise of half a bit that ``id`` decides."""
        # A browser's decoder takes any rate; the file formats of the service only some.
        length = math.ceil(self._seconds[stimulus.item] * _RATE)
        return blind_wav(stimulus.clip, f"{self.plain.seed} {self.plain.name} {id}", _RATE, length)

    def stimulus(self, id: object) -> Stimulus:
        """Return what a sound's id stands for. Raises NotFound."""
        matched = _SOUND.fullmatch(id) if isinstance(id, str) else None
        if matched is not None and self._has(block := int(matched["block"])):
            trials = self._training(block) if matched["training"] else self._trials(block)
            if matched["place"] == _VOLUME:
                # One that is not buried in noise, and where there is one the reference.
                first = next(trial for trial in trials if not trial.check)
                return first.reference or first.slots["A"]
            for trial in trials:
                if trial.id == f"{block}-{matched['place']}":
                    sounds = {**trial.slots, _OPEN: trial.reference}
                    if (sound := sounds.get(matched["letter"])) is not None:
                        return sound
        raise NotFound("there is no such sound")

    def _has(self, block: int) -> bool:
        return block < _MOST


class BlindBallot(BlindTest):
    """A Ballot as its listeners see it: nothing here says which sound is which."""

    def __init__(self, ballot: Ballot) -> None:
        super().__init__(ballot.test)
        self.ballot = ballot
        self._last = -1

    def answer(self, call: object, listener: Any, body: Mapping[str, Any]) -> Any:
        """Return what a page is answered to a call, of a listener where it is one's.

        Raises RequestInvalid for a body that is none, NotFound for what is not there.
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
        raise NotFound("a test without a study has no steps")

    def join(self, name: Any, session: Any = "") -> dict[str, Any]:
        """Return the listener's number, a sound to set the volume by, and the trials to practise on, for who has no vote yet.

        That is ``{"listener": …, "volume": …, "training": […]}``. Raises RequestInvalid for a name that is none.
        """
        number = self.ballot.join(name, session)
        block = self.ballot.block(number)
        begun = self._trials(block)[0] != self.ballot.next_trial(number)
        training = [] if begun else self.training(block)
        return {"listener": number, "volume": self.volume(block), "training": training}

    def trial(self, listener: int) -> dict[str, Any] | None:
        """Return what the listener is asked next, None at the end. Raises NotFound for an unknown number."""
        trial = self.ballot.next_trial(listener)
        return None if trial is None else self.shown(trial)

    def _has(self, block: int) -> bool:
        if block > self._last:
            self._last = self.ballot.last_block
        return block <= self._last

    def vote(self, listener: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keep an answer: ``{"trial": …, "answers": {…}, "seconds": …, "plays": …}``; return whether it was kept.

        A second one to a trial is not, and is no error: the page did not hear that the first was kept.
        Raises RequestInvalid, which names what is wrong, and NotFound.
        """
        trial = text_of("trial", body.get("trial"), 1, 100)
        more = {name: body[name] for name in ("seconds", "plays") if name in body}
        try:
            self.ballot.vote(listener, trial, body.get("answers"), **more)
        except RequestInvalid as error:
            if error.errors[0].type != "duplicate":
                raise
            return {"kept": False}
        return {"kept": True}
