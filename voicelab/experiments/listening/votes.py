"""Votes: what listeners are shown and what they answered, in one SQLite file that several may write."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from voicelab.errors import NotFound, RequestInvalid, StoreError
from voicelab.experiments.listening.design import SCALES, ListeningTest, Stimulus, Trial, blind_wav
from voicelab.storage import Database

if TYPE_CHECKING:
    import pandas as pd

_TABLES: Final = """
CREATE TABLE test (record TEXT NOT NULL);
CREATE TABLE listener (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, since TEXT NOT NULL);
CREATE TABLE vote (
    listener INTEGER NOT NULL REFERENCES listener (number),
    place INTEGER NOT NULL,
    answers TEXT NOT NULL,
    seconds REAL NOT NULL,
    plays INTEGER NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (listener, place)
);
"""
# A listener is a session: of a browser, or where nobody names one, of everybody with that name.
_SESSIONS: Final = """
CREATE TABLE person (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, since TEXT NOT NULL, session TEXT NOT NULL, UNIQUE (name, session)
);
INSERT INTO person SELECT number, name, since, '' FROM listener;
CREATE TABLE answer (
    listener INTEGER NOT NULL REFERENCES person (number),
    place INTEGER NOT NULL,
    answers TEXT NOT NULL,
    seconds REAL NOT NULL,
    plays INTEGER NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (listener, place)
);
INSERT INTO answer SELECT * FROM vote;
DROP TABLE vote;
DROP TABLE listener;
ALTER TABLE person RENAME TO listener;
ALTER TABLE answer RENAME TO vote;
"""
_RATE: Final = 44_100
_OPEN: Final = "reference"
_VOLUME: Final = "volume"
_TRAINING: Final = "training"
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


class Ballot:
    """The votes of a listening test, in a file. A listener who comes back goes on where they were.

    Safe to use from several threads, and several processes may write one file. Raises StoreError when the file
    cannot be used, is of another test, or was begun by a voicelab whose order of this test was another.
    """

    def __init__(self, test: ListeningTest, path: str | Path) -> None:
        self.test = test
        self.path = Path(path)
        self._database = Database(self.path, "file of votes", (_TABLES, _SESSIONS), busy_s=10.0, private=False)
        try:
            self._begin()
        except BaseException:
            self._database.close()
            raise

    def join(self, name: str, session: str = "") -> int:
        """Return the number of the listener of this name in this session; a new one gets the next.

        Two of one name are told apart by their sessions: each browser has its own. Without one, a name is a listener.
        Raises RequestInvalid when the name is blank, or when either is longer than 100 characters.
        """
        name = name.strip()
        if not 0 < len(name) <= 100:
            raise RequestInvalid.of("listener", "a listener needs a name of at most 100 characters")
        if len(session) > 100:
            raise RequestInvalid.of("session", "Input should have at most 100 characters", type="string_too_long")
        if any("\ud800" <= character <= "\udfff" for character in name + session):
            raise RequestInvalid.of("listener", "a name needs whole characters, and here is half of one")
        with self._database.writing() as store:
            query = "SELECT number FROM listener WHERE name = ? AND session = ?"
            row = store.execute(query, (name, session)).fetchone()
            if row is not None:
                return int(row[0])
            number = int(store.execute("SELECT COUNT(*) FROM listener").fetchone()[0])
            store.execute("INSERT INTO listener VALUES (?, ?, ?, ?)", (number, name, _now(), session))
            return number

    @property
    def listeners(self) -> tuple[str, ...]:
        """Who has joined, in order; the second of a name has a number behind it."""
        names: list[str] = []
        for number, name in self._read("SELECT number, name FROM listener ORDER BY number"):
            names.append(name if name not in names else f"{name} ({number + 1})")
        return tuple(names)

    @property
    def begun(self) -> str | None:
        """When the first vote was given (UTC), None where there is none."""
        ((first,),) = self._read("SELECT MIN(since) FROM vote")
        return None if first is None else str(first)

    def next_trial(self, listener: int) -> Trial | None:
        """Return what the listener is asked next; None when all is answered. Raises NotFound for an unknown number."""
        self._name_of(listener)
        done = {place for (place,) in self._read("SELECT place FROM vote WHERE listener = ?", listener)}
        trials = self.test.trials(listener)
        return next((trial for place, trial in enumerate(trials) if place not in done), None)

    def vote(
        self, listener: int, trial: str, answers: Mapping[str, Any], *, seconds: float = 0.0, plays: int = 0
    ) -> Vote:
        """Keep an answer; it is on disk when this returns. A second answer to a trial is refused, not taken.

        Raises RequestInvalid for an answer that the trial has not, NotFound for a trial that the listener has not.
        """
        name = self._name_of(listener)
        place, question = self._trial(listener, trial)
        given = checked(question, answers)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise RequestInvalid.of("seconds", "Input should be a number, 0 or more")
        with self._database.writing() as store:
            try:
                store.execute(
                    "INSERT INTO vote VALUES (?, ?, ?, ?, ?, ?)",
                    (listener, place, json.dumps(given), float(seconds), int(plays), _now()),
                )
            except sqlite3.IntegrityError:
                raise RequestInvalid.of("trial", "this trial was answered before", type="duplicate") from None
        return Vote(name, question, given, float(seconds), int(plays))

    def votes(self) -> tuple[Vote, ...]:
        """Return all votes, listener by listener, in the order in which they were asked."""
        names = self.listeners
        trials: dict[int, tuple[Trial, ...]] = {}
        votes = []
        query = "SELECT listener, place, answers, seconds, plays FROM vote ORDER BY listener, place"
        for number, place, answers, seconds, plays in self._read(query):
            own = trials.setdefault(number, self.test.trials(number))
            votes.append(Vote(names[number], own[place], json.loads(answers), seconds, plays))
        return tuple(votes)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        design = {**self.test.to_record(), "sounds": sorted(self.test.stimuli)}
        older = record = json.dumps(design, sort_keys=True)
        # What is asked where, and under which letter, was once decided otherwise: a vote is kept by these alone.
        if self.test.kind in {"ABX", "MOS"}:
            record = json.dumps({**design, "order": 3}, sort_keys=True)
        elif self.test.kind in {"AB", "CMOS"} and len(self.test.pairs) % 2 == 0:
            record = json.dumps({**design, "order": 2}, sort_keys=True)
        with self._database.writing() as store:
            row = store.execute("SELECT record FROM test").fetchone()
            if row is None:
                store.execute("INSERT INTO test VALUES (?)", (record,))
            elif row[0] != record:
                if row[0] in {older, json.dumps({**design, "order": 2}, sort_keys=True)}:
                    message = "was begun by an older voicelab, which had another order: count it with that"
                    raise StoreError(f"{self.path} {message}, or begin anew in another file")
                raise StoreError(f"{self.path} holds the votes of another test; give each its own file")

    def _name_of(self, listener: int) -> str:
        rows = self._read("SELECT name FROM listener WHERE number = ?", listener)
        if not rows:
            raise NotFound(f"no listener has the number {listener}; join first")
        return str(rows[0][0])

    def _trial(self, listener: int, id: str) -> tuple[int, Trial]:
        for place, trial in enumerate(self.test.trials(listener)):
            if trial.id == id:
                return place, trial
        raise NotFound(f"listener {listener} has no trial {id!r}")

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._database.reading() as store:
            return store.execute(query, values).fetchall()


def checked(trial: Trial, answers: Mapping[str, Any]) -> dict[str, float | str]:
    """Return the answers that a trial takes. Raises RequestInvalid naming the letter."""
    scale = SCALES.get(trial.kind)
    if scale is None:
        choice = answers.get("choice")
        if choice not in ("A", "B") or len(answers) != 1:
            raise RequestInvalid.of("choice", "Input should be 'A' or 'B'", type="literal_error")
        return {"choice": str(choice)}
    # CMOS is one rating: of B against A.
    letters = ["B"] if trial.kind == "CMOS" else list(trial.slots)
    if set(answers) != set(letters):
        raise RequestInvalid.of("answers", f"Input should have a rating for {', '.join(letters)}", type="missing")
    low, high = scale
    given: dict[str, float | str] = {}
    for letter in letters:
        rating = answers[letter]
        if isinstance(rating, bool) or not isinstance(rating, int | float) or not low <= rating <= high:
            raise RequestInvalid.of(letter, f"Input should be a number from {low} to {high}")
        if trial.kind != "MUSHRA" and rating != int(rating):
            raise RequestInvalid.of(letter, f"Input should be a whole number from {low} to {high}")
        given[letter] = float(rating)
    return given


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


class BlindBallot:
    """A Ballot as its listeners see it: nothing here says which sound is which."""

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self._seconds: dict[str, float] = {}
        for sound in ballot.test.sounds:
            self._seconds[sound.item] = max(sound.clip.duration, self._seconds.get(sound.item, 0.0))

    def test(self) -> dict[str, Any]:
        """Return what everybody may read before they join: the test's name, its kind and its instructions."""
        test = self.ballot.test
        return {"name": test.name, "kind": test.kind, "instructions": test.instructions}

    def join(self, name: object, session: object = "") -> dict[str, Any]:
        """Return the listener's number, a sound to set the volume by, and the trials to practise on, for who has no vote yet.

        That is ``{"listener": …, "volume": …, "training": […]}``. Raises RequestInvalid for a name that is none.
        """
        if not isinstance(name, str):
            raise RequestInvalid.of("name", "a listener needs a name", type="string_type")
        if not isinstance(session, str):
            raise RequestInvalid.of("session", "Input should be a string", type="string_type")
        test, number = self.ballot.test, self.ballot.join(name, session)
        first = test.trials(number)[0]
        begun = first != self.ballot.next_trial(number)
        training = () if begun else test.training_trials(number)
        return {
            "listener": number,
            "volume": f"{number}-{_VOLUME}-",
            "training": [self._shown(one) for one in training],
        }

    def trial(self, listener: object) -> dict[str, Any] | None:
        """Return what the listener is asked next, None at the end. Raises NotFound for an unknown number."""
        trial = self.ballot.next_trial(_number(listener))
        return None if trial is None else self._shown(trial)

    def _shown(self, trial: Trial) -> dict[str, Any]:
        listener, _, place = trial.id.partition("-")
        return {
            "id": trial.id,
            "kind": trial.kind,
            "question": self.ballot.test.question,
            "place": int(place.removeprefix(_TRAINING)),
            "total": len(self.ballot.test.trials(int(listener))),
            "letters": [{"letter": letter, "sound": f"{trial.id}-{letter}"} for letter in trial.slots],
            "reference": f"{trial.id}-{_OPEN}" if trial.reference is not None else None,
            "scale": SCALES.get(trial.kind),
        }

    def sound(self, id: object) -> bytes:
        """Return a sound of a trial as a WAV file: all of one item have one length, and no two the same bytes.

        Its id says in which place it stands, not what it is. Raises NotFound for any other.
        """
        stimulus = self._stimulus(id) if isinstance(id, str) else None
        if stimulus is None:
            raise NotFound("there is no such sound")
        # A browser's decoder takes any rate; the file formats of the service only some.
        length = math.ceil(self._seconds[stimulus.item] * _RATE)
        test = self.ballot.test
        return blind_wav(stimulus.clip, f"{test.seed} {test.name} {id}", _RATE, length)

    def _stimulus(self, id: str) -> Stimulus | None:
        listener, _, rest = id.partition("-")
        place, _, letter = rest.partition("-")
        test = self.ballot.test
        if not listener.isdecimal() or int(listener) >= len(self.ballot.listeners):
            return None
        number = int(listener)
        if place == _VOLUME:
            # One that is not buried in noise, and where there is one the reference.
            first = next(trial for trial in test.trials(number) if not trial.check)
            return first.reference or first.slots["A"]
        trials = test.training_trials(number) if place.startswith(_TRAINING) else test.trials(number)
        trial = next((trial for trial in trials if trial.id == f"{listener}-{place}"), None)
        if trial is None:
            return None
        return trial.reference if letter == _OPEN else trial.slots.get(letter)

    def vote(self, listener: object, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keep an answer: ``{"trial": …, "answers": {…}, "seconds": …, "plays": …}``.

        Raises RequestInvalid, which names what is wrong, and NotFound.
        """
        trial, answers = body.get("trial"), body.get("answers")
        if not isinstance(trial, str):
            raise RequestInvalid.of("trial", "Input should be the id of a trial", type="string_type")
        if not isinstance(answers, Mapping):
            raise RequestInvalid.of("answers", "Input should be an object", type="model_type")
        seconds, plays = body.get("seconds", 0.0), body.get("plays", 0)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _MOST:
            raise RequestInvalid.of("seconds", "Input should be a number, 0 or more", type="float_type")
        if type(plays) is not int or not 0 <= plays < _MOST:
            raise RequestInvalid.of("plays", "Input should be a whole number from 0", type="int_type")
        self.ballot.vote(_number(listener), trial, answers, seconds=seconds, plays=plays)
        return {"kept": True}


def _number(listener: object) -> int:
    if type(listener) is not int or not 0 <= listener < _MOST:
        raise NotFound("no listener has this number; join first")
    return listener
