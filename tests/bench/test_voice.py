"""How bench/voice.py sums up what was heard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import systems
import voice
from recognise import Recognition
from voice import Heard, lengths, longest_silence, of_presets, summary


def _results(errors: list[int], seconds: list[float]) -> list[Recognition]:
    return [Recognition(f"t{i}", "", e, 5, s) for i, (e, s) in enumerate(zip(errors, seconds, strict=True))]


def test_lengths_count_what_ran_away_or_was_cut() -> None:
    teacher = _results([0] * 5, [2.0] * 5)
    found = lengths(_results([0] * 5, [2.0, 1.2, 3.4, 1.0, 4.0]), teacher)
    assert found == {"min": 0.5, "median": 1.0, "max": 2.0, "outside": 2}


def test_summary_puts_the_others_beside_the_teacher() -> None:
    teacher, ours = _results([1, 0, 1, 0] * 10, [2.0] * 40), _results([1, 1, 1, 1] * 10, [2.2] * 40)
    found = summary({"rms": teacher, "voice": ours}, "rms")
    assert found["rms"]["wer"]["value"] == 0.1
    assert found["rms"]["ratio"] is None
    assert found["voice"]["wer"]["value"] == 0.2
    assert 1.8 < found["voice"]["ratio"]["value"] < 2.1
    assert found["voice"]["length"]["median"] == 1.1


def test_who_said_fewer_sentences_is_compared_on_those() -> None:
    teacher, ours = _results([1] * 20 + [0] * 20, [2.0] * 40), _results([1] * 40, [2.0] * 40)
    some = _results([1] * 20, [2.0] * 20)
    found = {"rms": teacher, "voice": ours, "s1": some, "voice:clara": some, "slt": some}
    assert summary(found, "rms")["s1"]["ratio"]["value"] == 1
    assert of_presets(found, ["voice", "voice:clara"])["ratio"]["value"] == 1


def test_a_preset_is_compared_with_the_one_that_taught_it() -> None:
    rms, slt, warped = (_results([e] * 10, [s] * 10) for e, s in ((1, 2.0), (2, 1.5), (4, 1.0)))
    ours = {"voice": rms, "voice:clara": _results([3] * 10, [3.0] * 10), "voice:juno": _results([4] * 10, [1.0] * 10)}
    found = {"rms": rms, **ours, "slt": slt, "teacher:juno": warped}
    figures = summary(found, "rms")
    assert figures["voice:clara"]["beside"] == "slt"
    assert figures["voice:clara"]["length"]["median"] == 2
    assert figures["voice:clara"]["ratio"]["value"] == pytest.approx(1.5, abs=0.02)
    assert figures["voice:juno"]["ratio"]["value"] == 1
    assert figures["teacher:juno"]["ratio"] is figures["teacher:juno"]["beside"] is None
    mean = of_presets(found, list(ours))
    assert mean["count"] == 3
    assert mean["wer"]["value"] == pytest.approx(8 / 15, abs=0.001)
    assert mean["wer_of_teachers"]["value"] == pytest.approx(7 / 15, abs=0.001)
    assert mean["ratio"]["value"] == pytest.approx(8 / 7, abs=0.01)


def test_whoever_taught_a_preset_is_found() -> None:
    assert systems.taught_by("voice:ewan") == "awb"
    assert systems.taught_by("voice:iris") == "teacher:iris"
    assert systems.taught_by("codec", "slt") == "slt"
    assert [systems.at_home_in_english(name) for name in ("voice", "voice:iris", "voice:mei")] == [True, True, False]


def test_the_longest_silence_is_the_one_inside() -> None:
    sound = np.ones(500, np.float32)
    quiet = np.zeros(800, np.float32)
    said = np.concatenate(
        [np.zeros(5000, np.float32), sound, quiet, sound, quiet[:300], sound, np.zeros(5000, np.float32)]
    )
    assert longest_silence(said, 1000) == pytest.approx(0.8, abs=0.002)
    assert longest_silence(quiet, 1000) == float("inf")


def test_what_was_heard_is_kept_and_not_listened_to_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened: list[str] = []

    def listen(name: str, texts: list[str], jobs: int) -> list[Recognition]:
        listened.append(name)
        return [Recognition(text, "heard", jobs, 5, 1.5) for text in texts]

    monkeypatch.setattr(voice, "score_system", listen)
    path = tmp_path / "heard.json"
    first = Heard(path).get("rms", ["one", "two"], 1)
    assert Heard(path).get("rms", ["one", "two"], 1) == first
    assert listened == ["rms"]
    Heard(path).get("rms", ["one", "three"], 1)  # other sentences
    Heard(path).get("slt", ["one", "three"], 1)
    Heard(None).get("slt", ["one", "three"], 1)
    assert listened == ["rms", "rms", "slt", "slt"]


def test_another_voice_is_heard_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Named:
        def __init__(self, fingerprint: str) -> None:
            self.capabilities = self
            self.fingerprint = fingerprint

    monkeypatch.setattr(
        voice, "score_system", lambda name, texts, jobs: [Recognition(t, name, 0, 1, 1.0) for t in texts]
    )
    path = tmp_path / "heard.json"
    for fingerprint in ("a", "b", "a"):
        monkeypatch.setattr(systems, "lab", lambda fingerprint=fingerprint: Named(fingerprint))
        Heard(path).get("voice:clara", ["one"], 1)
    assert path.read_text(encoding="utf-8").count("voice:clara ") == 2
