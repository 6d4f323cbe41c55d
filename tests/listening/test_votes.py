from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import subprocess
import sys
import wave
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.listening.test_design import listening_test
from tests.tones import there
from voicelab.errors import ArgumentError, NotFound, RequestInvalid, StoreError
from voicelab.listening.design import ANCHORS, KINDS, REFERENCE, SCALES, Kind, ListeningTest, Trial
from voicelab.listening.results import ListeningResult, analyze
from voicelab.listening.votes import Ballot, BlindBallot
from voicelab.stats import binomial, wilcoxon

Voter = Callable[[Trial], dict[str, Any]]


def anything(trial: Trial, scales: Iterable[str] = ()) -> dict[str, Any]:
    scale = SCALES.get(trial.kind)
    if scale is None:
        return {"choice": "A"}
    if trial.kind == "transcription":
        return {"A": "the table talked, through"}
    if trial.kind == "BWS":
        return {"best": "A", "worst": "B"}
    letters = ["B"] if trial.kind == "CMOS" else list(trial.slots)
    return dict.fromkeys([f"{letter} {name}" for letter in letters for name in scales] or letters, scale[1])


def vote_all(ballot: Ballot, name: str, voter: Voter = anything) -> None:
    number = ballot.join(name)
    while (trial := ballot.next_trial(number)) is not None:
        ballot.vote(number, trial.id, voter(trial), seconds=2.5, plays=2)


def judged(folder: Path, test: ListeningTest, *voters: Voter) -> ListeningResult:
    """Return what the votes of these listeners say."""
    with Ballot(test, folder / "votes") as ballot:
        for number, voter in enumerate(voters):
            vote_all(ballot, f"listener {number}", voter)
        return analyze(test, ballot)


@pytest.mark.parametrize("kind", KINDS)
def test_responses_are_stored_and_a_listener_resumes(tmp_path: Path, kind: Kind) -> None:
    test = listening_test(kind)
    with Ballot(test, tmp_path / "votes.sqlite3") as ballot:
        number = ballot.join("Ada")
        first = ballot.next_trial(number)
        assert first == test.trials(0)[0]
        ballot.vote(number, first.id, anything(first))
    with Ballot(listening_test(kind), tmp_path / "votes.sqlite3") as ballot:
        assert ballot.join("Ada") == number
        assert ballot.next_trial(number) == test.trials(0)[1]
        vote_all(ballot, "Ada")
        assert ballot.next_trial(number) is None
        assert len(ballot.votes()) == len(test.trials(0))
        assert ballot.join("Ben") == 1
        assert ballot.listeners == ("Ada", "Ben")


@pytest.mark.parametrize(
    ("kind", "answers", "field"),
    [
        ("AB", {"choice": "C"}, "choice"),
        ("AB", {}, "choice"),
        ("AB", {"choice": "A", "B": 1}, "choice"),
        ("MOS", {"A": 6}, "A"),
        ("MOS", {"A": 2.5}, "A"),
        ("MOS", {"A": True}, "A"),
        ("MOS", {"A": "5"}, "A"),
        ("MOS", {"A": float("nan")}, "A"),
        ("MOS", {}, "answers"),
        ("SMOS", {"A": 0}, "A"),
        ("DMOS", {"A": 3, "reference": 5}, "answers"),
        ("CMOS", {"A": 1}, "answers"),
        ("CMOS", {"B": -4}, "B"),
        ("MUSHRA", {"A": 50}, "answers"),
        ("MUSHRA-NMR", {"A": 50, "B": 101}, "B"),
        ("BWS", {"best": "A", "worst": "A"}, "answers"),
        ("BWS", {"best": "A", "worst": "D"}, "answers"),
        ("BWS", {"best": "A", "worst": [1]}, "answers"),
        ("BWS", {"best": "A"}, "answers"),
        ("BWS", {"A": 1, "B": -1}, "answers"),
        ("transcription", {"A": " "}, "A"),
        ("transcription", {"A": 4}, "A"),
        ("transcription", {}, "answers"),
    ],
)
def test_invalid_answers_are_rejected(tmp_path: Path, kind: Kind, answers: dict[str, Any], field: str) -> None:
    with Ballot(listening_test(kind), tmp_path / "votes") as ballot:
        number = ballot.join("Ada")
        trial = there(ballot.next_trial(number))
        with pytest.raises(RequestInvalid) as caught:
            ballot.vote(number, trial.id, answers)
        assert caught.value.errors[0].field == field
        assert ballot.next_trial(number) == trial


def test_trials_of_other_listeners_are_not_found(tmp_path: Path) -> None:
    with Ballot(listening_test("AB"), tmp_path / "votes") as ballot:
        number = ballot.join("Ada")
        trial = there(ballot.next_trial(number))
        ballot.vote(number, trial.id, {"choice": "A"})
        with pytest.raises(RequestInvalid, match="answered before"):
            ballot.vote(number, trial.id, {"choice": "B"})
        with pytest.raises(NotFound):
            ballot.vote(number, "1-0", {"choice": "A"})
        with pytest.raises(NotFound):
            ballot.next_trial(7)
        with pytest.raises(RequestInvalid, match="name"):
            ballot.join("  ")
        (kept,) = ballot.votes()
        assert kept.answers == {"choice": "A"}


def test_file_of_another_test_is_rejected(tmp_path: Path) -> None:
    Ballot(listening_test("AB"), tmp_path / "votes").close()
    for other in (listening_test("ABX"), listening_test("AB", seed=1), listening_test("AB", items=3)):
        with pytest.raises(StoreError, match="another test"):
            Ballot(other, tmp_path / "votes")
    with (
        Ballot(listening_test("AB"), tmp_path / "votes") as ballot,
        pytest.raises(ArgumentError, match="must be responses to this test, got a Ballot of another test"),
    ):
        analyze(listening_test("AB", seed=1), ballot)
    (tmp_path / "junk").write_bytes(b"no database, and long enough to be looked at" * 100)
    with pytest.raises(StoreError):
        Ballot(listening_test("AB"), tmp_path / "junk")


def test_file_of_another_order_is_rejected(tmp_path: Path) -> None:
    test = listening_test("AB")
    Ballot(test, tmp_path / "votes").close()
    with closing(sqlite3.connect(tmp_path / "votes")) as store, store:
        store.execute("UPDATE test SET record = ?", (json.dumps({**test.to_record(), "order": 2}),))
    with pytest.raises(StoreError, match="another order of its trials"):
        Ballot(test, tmp_path / "votes")


def test_listeners_of_one_name_are_distinguished_by_session(tmp_path: Path) -> None:
    with Ballot(listening_test("MOS", items=1), tmp_path / "votes") as ballot:
        numbers = [ballot.join("Ada", session) for session in ("one", "two", "one", "")]
        assert numbers == [0, 1, 0, 2]
        assert ballot.listeners == ("Ada", "Ada (2)", "Ada (3)")
        for number in (0, 1):
            ballot.vote(number, f"{number}-0", {"A": 4})
        assert ballot.frame()["listener"].tolist() == ["Ada", "Ada (2)"]


def test_duplicate_responses_are_rejected_by_name(tmp_path: Path) -> None:
    for kind in KINDS:
        with Ballot(listening_test(kind), tmp_path / kind) as ballot:
            vote_all(ballot, "Ada")
            vote_all(ballot, "Ben")
            frame = ballot.frame()
            analyze(ballot.test, frame)
            with pytest.raises(ArgumentError, match=r"Ben voted twice on .* in 's"):
                analyze(ballot.test, pd.concat([frame, frame[-1:]]))


def pcm(data: bytes) -> np.ndarray[Any, np.dtype[np.int16]]:
    with wave.open(io.BytesIO(data)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_and_digests_of_sounds_are_blinded(tmp_path: Path, kind: Kind) -> None:
    # The systems differ in length by 0.1 s: once sizes solved ABX, and digests found the hidden reference.
    test = listening_test(kind, "abc", items=3)
    with Ballot(test, tmp_path / "votes") as ballot:
        session = BlindBallot(ballot)
        sent: dict[str, set[int]] = {}
        digests: list[str] = []
        for _ in range(2):
            listener = session.join(f"Eve {len(digests)}")["listener"]
            for trial in test.trials(listener):
                ids = [f"{trial.id}-{letter}" for letter in trial.slots]
                ids += [f"{trial.id}-reference"] * (trial.reference is not None)
                sounds = [session.sound(name) for name in ids]
                sent.setdefault(trial.item, set()).update(len(data) for data in sounds)
                digests += [hashlib.sha256(data).hexdigest() for data in sounds]
                stimuli = [*trial.slots.values(), *([trial.reference] if trial.reference else [])]
                for data, stimulus in zip(sounds, stimuli, strict=True):
                    heard = pcm(data)
                    plain = stimulus.clip.resample(44_100).samples * 32767
                    assert np.abs(heard[: plain.size] - plain).max() <= 1.0
                    assert np.abs(heard[plain.size :]).max(initial=0) <= 1
        assert all(len(sizes) == 1 for sizes in sent.values())
        assert len(set(digests)) == len(digests)
        assert session.sound(ids[0]) == sounds[0]
        for unknown in ("0-0-Z", "9-0-A", "0-99-A", "0-0", "-1-0-A", "x", None):
            with pytest.raises(NotFound):
                session.sound(unknown)


def on_the_wire(session: BlindBallot, test: ListeningTest, listener: int, plain: bool) -> Iterator[tuple[Any, int]]:
    """Yield what the network tab shows of each trial's letters, (letters, features), and which of them is to be guessed.

    That is the X of ABX, or else the hidden reference; ``plain`` sends the sounds as they are.
    """
    for place, trial in enumerate(test.trials(listener)):
        guessed = there(trial.slots["X"] if trial.kind == "ABX" else trial.reference)
        sounds = {letter: trial.slots[letter] for letter in trial.slots if letter != "X"} | {"": guessed}
        last = "X" if trial.kind == "ABX" else "reference"
        sent = [
            sound.clip.to_bytes() if plain else session.sound(f"{trial.id}-{letter or last}")
            for letter, sound in sounds.items()
        ]
        sizes = np.array([len(data) for data in sent], float)
        digests = [hashlib.sha256(data).digest() for data in sent]
        codes = np.array([int.from_bytes(digest[:4]) / 2**32 for digest in digests])
        letters = np.arange(len(sent) - 1)
        rows = [sizes == sizes[-1], codes == codes[-1], abs(sizes - sizes[-1]), abs(codes - codes[-1]), codes,
                sizes.argsort().argsort(), codes.argsort().argsort()]  # fmt: skip
        order = [letters == letter for letter in letters]
        order += [one * np.cos(2 * np.pi * place / period) for one in order for period in (2, 3, 4)]
        order += [one * (listener % 2) for one in order]
        right = [sound.system for sound in sounds.values()][:-1].index(guessed.system)
        yield np.array([row[:-1] for row in rows] + order, float).T, right


@pytest.mark.parametrize("kind", ["ABX", "MUSHRA"])
def test_network_traffic_is_blinded(tmp_path: Path, kind: Kind) -> None:
    test = listening_test(kind, items=10)
    rates = {}
    with Ballot(test, tmp_path / "votes") as ballot:
        session = BlindBallot(ballot)
        numbers = [ballot.join(f"Eve {number}") for number in range(30)]
        for plain in (True, False):
            trials = [one for number in numbers for one in on_the_wire(session, test, number, plain)]
            # Eve learns by least squares from 100 trials that were solved for her, and guesses in 200 others.
            count = len(trials[0][0])
            seen = np.vstack([features for features, _ in trials[:100]])
            solved = np.concatenate([np.arange(count) == right for _, right in trials[:100]])
            weights = np.linalg.lstsq(seen, solved.astype(float), rcond=None)[0]
            rates[plain] = sum(int(np.argmax(features @ weights)) == right for features, right in trials[100:])
    assert rates[True] == 200
    assert stats.binomtest(rates[False], 200, 1 / count).pvalue > 0.05, rates


def test_concurrent_listeners(tmp_path: Path) -> None:
    test = listening_test("MOS", items=3)
    with Ballot(test, tmp_path / "votes") as ballot, Ballot(test, tmp_path / "votes") as other:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: vote_all((ballot, other)[number % 2], f"listener {number}"), range(8)))
        assert len(ballot.votes()) == 8 * 6
        assert len(set(ballot.listeners)) == 8


def test_acknowledged_response_survives_a_kill(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from tests.listening.test_votes import anything, listening_test
from voicelab.listening.votes import Ballot
ballot = Ballot(listening_test("AB"), sys.argv[1])
number = ballot.join("Ada")
ballot.vote(number, ballot.next_trial(number).id, {"choice": "B"})
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "votes")], check=False, cwd=Path.cwd())
    with Ballot(listening_test("AB"), tmp_path / "votes") as ballot:
        assert [vote.answers for vote in ballot.votes()] == [{"choice": "B"}]


def prefers(system: str, share: float, seed: int) -> Voter:
    draw = np.random.default_rng(seed)

    def voter(trial: Trial) -> dict[str, Any]:
        if trial.answer is not None and trial.check:
            return {"choice": trial.answer}
        letter = next(letter for letter in "AB" if trial.slots[letter].system == system)
        return {"choice": letter if draw.random() < share else {"A": "B", "B": "A"}[letter]}

    return voter


def test_ab_preferences(tmp_path: Path) -> None:
    test = listening_test("AB", items=10, checks=2)
    found = judged(tmp_path, test, *(prefers("a", 0.9, number) for number in range(6)))
    assert (found.listeners, found.excluded) == (6, {})
    # All six prefer a, whatever the order in which they heard it.
    assert found.tests["a", "b"].p == 2 / 2**6
    assert found.tests["a", "b"].estimate.value > 0.8
    assert "a against b" in str(found)


def test_inattentive_listener_is_screened_out(tmp_path: Path) -> None:
    def deaf(trial: Trial) -> dict[str, Any]:
        return {"choice": {"A": "B", "B": "A", None: "A"}[trial.answer]}

    found = judged(tmp_path, listening_test("AB", items=6, checks=3), prefers("a", 1.0, 0), deaf)
    assert found.excluded == {"listener 1": "failed 3 of 3 attention checks"}
    assert found.tests["a", "b"] == binomial(6, 6)


def test_abx_is_tested_against_guessing(tmp_path: Path) -> None:
    test = listening_test("ABX", items=8)
    found = judged(tmp_path, test, lambda trial: {"choice": trial.answer}, lambda _: {"choice": "A"})
    right = 8 + sum(trial.answer == "A" for trial in test.trials(1))
    assert found.tests["a", "b"] == binomial(right, 16, alternative="greater", confidence=2 * 0.95 - 1)


def test_shares_of_three_systems(tmp_path: Path) -> None:
    def voter(trial: Trial, draw: np.random.Generator) -> dict[str, Any]:
        better = min("AB", key=lambda letter: trial.slots[letter].system)
        return {"choice": better if draw.random() < 0.85 else {"A": "B", "B": "A"}[better]}

    voters = (partial(voter, draw=np.random.default_rng(number)) for number in range(4))
    found = judged(tmp_path, listening_test("AB", "abc", items=8), *voters)
    values = [found.scores[system].value for system in "abc"]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1.5)
    assert all(0.0 <= score.low < score.value < score.high <= 1.0 for score in found.scores.values())
    assert f"a preferred to the others: {found.scores['a']}" in str(found)
    assert len(found.p_holm) == 3
    assert all(found.p_holm[pair] >= found.tests[pair].p for pair in found.tests)


def test_mos_scores(tmp_path: Path) -> None:
    def voter(trial: Trial, draw: np.random.Generator) -> dict[str, Any]:
        return {"A": int({"a": 4, "b": 3, "c": 2}[trial.slots["A"].system] + draw.integers(-1, 2))}

    voters = (partial(voter, draw=np.random.default_rng(number)) for number in range(6))
    found = judged(tmp_path, listening_test("MOS", "abc", items=4), *voters)
    frame = found.votes
    for system, score in found.scores.items():
        rows = frame[frame["system"] == system]
        assert score.value == pytest.approx(rows["rating"].mean())
        assert score.low < score.value < score.high
    means = frame.pivot_table(index="listener", columns="system", values="rating")
    assert found.tests["a", "c"] == wilcoxon(list(means["a"]), list(means["c"]))
    mixed = found.mixed_model()
    assert {name: score.value for name, score in mixed.scores.items()} == pytest.approx(
        {name: score.value for name, score in found.scores.items()}, abs=1e-6
    )
    assert mixed.p < 0.01
    assert set(mixed.sd) == {"listener", "item", "listener x system", "item x system", "residual"}


def test_cmos_is_independent_of_presentation_order(tmp_path: Path) -> None:
    def voter(trial: Trial) -> dict[str, Any]:
        # b is always better by 2, whichever comes first.
        return {"B": 2 if trial.slots["B"].system == "b" else -2}

    found = judged(tmp_path, listening_test("CMOS", items=6), *[voter] * 4)
    with pytest.raises(ArgumentError, match=r"for a mixed model\), got CMOS"):
        found.mixed_model()
    assert found.scores["b against a"].value == 2.0
    assert found.tests["a", "b"].estimate.value == -2.0


def test_failed_commit_is_not_counted_and_the_next_succeeds(
    tmp_path: Path,
) -> None:
    with Ballot(listening_test("AB"), tmp_path / "votes") as ballot:
        ballot.join("Ada")
        with ballot._database.reading() as store:
            store.execute("PRAGMA busy_timeout=50")
        with closing(sqlite3.connect(tmp_path / "votes", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM listener").fetchall()
            with pytest.raises(StoreError, match="locked"):
                ballot.join("Ben")
        assert ballot.listeners == ("Ada",)
        assert ballot.join("Cy") == 1
    with Ballot(listening_test("AB"), tmp_path / "votes") as ballot:
        assert ballot.listeners == ("Ada", "Cy")


def mushra(reference: int) -> Voter:
    level = {REFERENCE: reference, "anchor35": 20, "anchor70": 50, "a": 80, "b": 60}
    return lambda trial: {letter: level[slot.system] for letter, slot in trial.slots.items()}


def test_mushra_screens_by_the_hidden_reference(tmp_path: Path) -> None:
    found = judged(tmp_path, listening_test("MUSHRA", items=5), *[mushra(100)] * 3, mushra(40))
    assert list(found.excluded) == ["listener 3"]
    assert found.listeners == 3
    assert {name: score.value for name, score in found.scores.items()} == {
        "a": 80.0,
        "b": 60.0,
        REFERENCE: 100.0,
        **dict(zip(ANCHORS, (20.0, 50.0), strict=True)),
    }
