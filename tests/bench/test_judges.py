"""What is counted, how sentences are brought to one level, and verdicts that are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import judges
import numpy as np
import pytest
import systems
from judges import Verdict, Verdicts, errors, levelled, recognise, sounding, units

from voicelab.engine.pointer.speakers import LEVEL

needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")


def test_words_are_compared_as_they_sound() -> None:
    assert (
        units("The well-known candidate's 3 cats, Dr. Lee!")
        == "the well known candidates three cats doctor lee".split()
    )


def test_syllables_count_with_their_tone_and_however_they_are_written() -> None:
    assert errors("他在那里。", "她再那里").errors == 0
    assert errors("买书。", "卖书").errors == 1
    assert errors("今天天气很好。", "今天天气好").errors == 1
    assert errors("今天天气很好。", "").words == 6
    assert errors("买书。", "买" * 200).errors == 2


def test_all_systems_are_brought_to_one_level_whatever_they_pause() -> None:
    tone = np.sin(np.arange(16_000) * 0.3).astype(np.float32)
    quiet, paused = 0.02 * tone, np.concatenate([0.5 * tone, np.zeros(30_000, np.float32)])
    for samples in (quiet, paused):
        even = levelled(samples)
        assert np.sqrt(np.mean(np.square(even[:16_000]))) == pytest.approx(LEVEL, rel=0.02)


def test_seconds_are_those_between_the_sounds_and_the_longest_silence_is_one_inside() -> None:
    sound, quiet = np.ones(500, np.float32), np.zeros(800, np.float32)
    ends = np.zeros(5000, np.float32)
    said = np.concatenate([ends, sound, quiet, sound, quiet[:300], sound, ends])
    assert sounding(said, 1000) == pytest.approx((2.6, 0.8), abs=0.002)
    assert sounding(quiet, 1000) == (0.0, float("inf"))


def test_pocketsphinx_hears_nothing_in_silence() -> None:
    assert recognise(np.zeros(16_000, np.float32), 16_000) == ""
    assert recognise(np.zeros(0, np.float32), 44_100) == ""


OTHER = ("flite:slt", "we agreed on a dinner date")


@needs_flite
@pytest.mark.thorough
def test_pocketsphinx_hears_alike_at_any_level_and_after_any_sentence() -> None:
    text = "the children played in the garden all day"
    samples, rate = systems.speak("flite:rms", text)
    assert rate == 16_000
    heard = recognise(samples, rate)
    assert units(heard) == units(text)
    assert recognise(samples * np.float32(0.1), rate) == heard
    one, other = (systems.speak(*said)[0] for said in (("flite:rms", "the muscles and nerves of his body"), OTHER))
    heard = recognise(one, rate)
    recognise(other, rate)
    assert recognise(one, rate) == heard


def _verdict(name: str, key: str, older: bool, text: str) -> Verdict:
    return Verdict(key, text, name, 4.0, "", 3.0 if older else None, {"am_michael": 0.9}, 2.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(system, text) of every judgement, in order."""
    asked: list[tuple[str, str]] = []

    def ask(name: str, key: str, older: bool, text: str) -> Verdict:
        asked.append((name, text))
        return _verdict(name, key, older, text)

    monkeypatch.setattr(judges, "judge", ask)
    monkeypatch.setattr(judges, "_teachers", dict)
    return asked


def test_verdicts_are_kept_and_only_what_is_missing_is_asked_for(tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    path = tmp_path / "kept.jsonl"
    first = Verdicts(path, older=0).of("flite:rms", ["one", "two"])
    assert Verdicts(path, older=0).of("flite:rms", ["two", "one"]) == first[::-1]
    assert [text for _, text in asked] == ["one", "two"]
    Verdicts(path, older=0).of("flite:slt", ["one"])
    # The older judges were not asked then: now they are.
    assert Verdicts(path).of("flite:rms", ["one", "three"])[0].dnsmos == 3.0
    assert [text for _, text in asked] == ["one", "two", "one", "one", "three"]
    assert Verdicts(path).of("flite:rms", ["one"])[0].dnsmos == 3.0
    some = Verdicts(older=1).of("flite:rms", ["four", "five"])
    assert [verdict.dnsmos for verdict in some] == [3.0, None]


def test_another_voice_is_judged_anew_and_one_that_is_older_now_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str]]
) -> None:
    class Named:
        def __init__(self, fingerprint: str) -> None:
            self.capabilities = self
            self.fingerprint = fingerprint

    monkeypatch.setattr(systems, "lab", lambda variable: Named("a" if variable == systems.WEIGHTS else "b"))
    path = tmp_path / "kept.jsonl"
    Verdicts(path).of("voice:clara", ["one"])
    Verdicts(path).of("old:voice:clara", ["one"])
    monkeypatch.setattr(systems, "lab", lambda variable: Named("b"))
    Verdicts(path).of("voice:clara", ["one"])
    assert [name for name, _ in asked] == ["voice:clara", "old:voice:clara"]
