"""Units of WER, level normalization, and the cache of verdicts."""

from __future__ import annotations

import shutil
from pathlib import Path

import judges
import numpy as np
import pytest
import systems
from judges import Verdict, Verdicts, errors, normalize_level, sounding, transcribe_pocketsphinx, units

from voicelab.engine.pointer.speakers import LEVEL

needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")


def test_units_are_normalized_words() -> None:
    assert (
        units("The well-known candidate's 3 cats, Dr. Lee!")
        == "the well known candidates three cats doctor lee".split()
    )


def test_mandarin_errors_count_syllables_with_tones() -> None:
    assert errors("他在那里。", "她再那里").errors == 0
    assert errors("买书。", "卖书").errors == 1
    assert errors("今天天气很好。", "今天天气好").errors == 1
    assert errors("今天天气很好。", "").words == 6
    assert errors("买书。", "买" * 200).errors == 2


def test_level_normalization_ignores_pauses() -> None:
    tone = np.sin(np.arange(16_000) * 0.3).astype(np.float32)
    quiet, paused = 0.02 * tone, np.concatenate([0.5 * tone, np.zeros(30_000, np.float32)])
    for samples in (quiet, paused):
        even = normalize_level(samples)
        assert np.sqrt(np.mean(np.square(even[:16_000]))) == pytest.approx(LEVEL, rel=0.02)


def test_sounding_duration_and_longest_silence() -> None:
    sound, quiet = np.ones(500, np.float32), np.zeros(800, np.float32)
    ends = np.zeros(5000, np.float32)
    signal = np.concatenate([ends, sound, quiet, sound, quiet[:300], sound, ends])
    assert sounding(signal, 1000) == pytest.approx((2.6, 0.8), abs=0.002)
    assert sounding(quiet, 1000) == (0.0, float("inf"))


def test_pocketsphinx_transcript_of_silence_is_empty() -> None:
    assert transcribe_pocketsphinx(np.zeros(16_000, np.float32), 16_000) == ""
    assert transcribe_pocketsphinx(np.zeros(0, np.float32), 44_100) == ""


SECOND_SENTENCE = ("flite:slt", "we agreed on a dinner date")


@needs_flite
@pytest.mark.thorough
def test_pocketsphinx_is_independent_of_level_and_order() -> None:
    text = "the children played in the garden all day"
    samples, rate = systems.speak("flite:rms", text)
    assert rate == 16_000
    transcript = transcribe_pocketsphinx(samples, rate)
    assert units(transcript) == units(text)
    assert transcribe_pocketsphinx(samples * np.float32(0.1), rate) == transcript
    audio, next_audio = (
        systems.speak(*pair)[0] for pair in (("flite:rms", "the muscles and nerves of his body"), SECOND_SENTENCE)
    )
    transcript = transcribe_pocketsphinx(audio, rate)
    transcribe_pocketsphinx(next_audio, rate)
    assert transcribe_pocketsphinx(audio, rate) == transcript


def _verdict(name: str, key: str, older: bool, text: str) -> Verdict:
    return Verdict(key, text, name, 4.0, "", 3.0 if older else None, {"am_michael": 0.9}, 2.0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Collect (system, text) of every evaluation."""
    calls: list[tuple[str, str]] = []

    def record(name: str, key: str, older: bool, text: str) -> Verdict:
        calls.append((name, text))
        return _verdict(name, key, older, text)

    monkeypatch.setattr(judges, "judge", record)
    monkeypatch.setattr(judges, "_teachers", dict)
    return calls


def test_verdicts_are_cached(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    path = tmp_path / "verdicts.jsonl"
    verdicts = Verdicts(path, older=0).of("flite:rms", ["one", "two"])
    assert Verdicts(path, older=0).of("flite:rms", ["two", "one"]) == verdicts[::-1]
    assert [text for _, text in calls] == ["one", "two"]
    Verdicts(path, older=0).of("flite:slt", ["one"])
    # The older judges were not calls then: now they are.
    assert Verdicts(path).of("flite:rms", ["one", "three"])[0].dnsmos == 3.0
    assert [text for _, text in calls] == ["one", "two", "one", "one", "three"]
    assert Verdicts(path).of("flite:rms", ["one"])[0].dnsmos == 3.0
    partial = Verdicts(older=1).of("flite:rms", ["four", "five"])
    assert [verdict.dnsmos for verdict in partial] == [3.0, None]


def test_verdicts_are_keyed_by_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, str]]
) -> None:
    class Named:
        def __init__(self, fingerprint: str) -> None:
            self.capabilities = self
            self.fingerprint = fingerprint

    monkeypatch.setattr(systems, "lab", lambda variable: Named("a" if variable == systems.WEIGHTS else "b"))
    path = tmp_path / "verdicts.jsonl"
    Verdicts(path).of("voice:clara", ["one"])
    Verdicts(path).of("old:voice:clara", ["one"])
    monkeypatch.setattr(systems, "lab", lambda variable: Named("b"))
    Verdicts(path).of("voice:clara", ["one"])
    assert [name for name, _ in calls] == ["voice:clara", "old:voice:clara"]
