"""How bench/voice.py sums up what was heard."""

from __future__ import annotations

import numpy as np
import pytest
from recognise import Recognition
from voice import lengths, longest_silence, of_presets, summary


def _results(errors: list[int], seconds: list[float]) -> list[Recognition]:
    return [Recognition(f"t{i}", "", e, 5, s) for i, (e, s) in enumerate(zip(errors, seconds, strict=True))]


def test_lengths_count_what_ran_away_or_was_cut() -> None:
    teacher = _results([0] * 5, [2.0] * 5)
    found = lengths(_results([0] * 5, [2.0, 1.2, 3.4, 1.0, 4.0]), teacher)
    assert found == {"min": 0.5, "median": 1.0, "max": 2.0, "outside": 2, "outside_texts": ["t3", "t4"]}


def test_summary_puts_the_others_beside_the_teacher() -> None:
    teacher, ours = _results([1, 0, 1, 0] * 10, [2.0] * 40), _results([1, 1, 1, 1] * 10, [2.2] * 40)
    found = summary({"rms": teacher, "voice": ours}, "rms")
    assert found["rms"]["wer"]["value"] == 0.1
    assert "ratio" not in found["rms"]
    assert found["voice"]["wer"]["value"] == 0.2
    assert 1.8 < found["voice"]["ratio"]["value"] < 2.1
    assert found["voice"]["length"]["median"] == 1.1


def test_the_longest_silence_is_the_one_inside() -> None:
    sound = np.ones(500, np.float32)
    quiet = np.zeros(800, np.float32)
    said = np.concatenate(
        [np.zeros(5000, np.float32), sound, quiet, sound, quiet[:300], sound, np.zeros(5000, np.float32)]
    )
    assert longest_silence(said, 1000) == pytest.approx(0.8, abs=0.002)
    assert longest_silence(quiet, 1000) == float("inf")


def test_the_mean_over_presets_leaves_codec_and_teacher_out() -> None:
    teacher, good, bad = (_results([e] * 10, [2.0] * 10) for e in (1, 1, 2))
    found = {"rms": teacher, "codec": bad, "voice": good, "voice:clara": bad}
    assert of_presets(found, "rms") == {"wer": 0.3, "ratio": 1.5}
