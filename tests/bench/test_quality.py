"""What the predictor hears is of one level, and systems are compared sentence by sentence."""

from __future__ import annotations

import numpy as np
import pytest
import systems
from quality import figures, levelled, rated

from voicelab.engine.pointer.speakers import LEVEL


def test_all_systems_are_brought_to_one_level_whatever_they_pause() -> None:
    tone = np.sin(np.arange(16_000) * 0.3).astype(np.float32)
    quiet, paused = 0.02 * tone, np.concatenate([0.5 * tone, np.zeros(30_000, np.float32)])
    for samples in (quiet, paused):
        found = levelled(samples)
        assert np.sqrt(np.mean(np.square(found[:16_000]))) == pytest.approx(LEVEL, rel=0.02)


def test_a_teacher_is_compared_with_nobody_and_others_with_it_sentence_by_sentence() -> None:
    teacher = {"mos": np.array([3.0, 2.0, 3.5, 2.5]), "speech": np.array([3.5, 2.5, 4.0, 3.0])}
    better = {what: values + 0.1 for what, values in teacher.items()}
    assert figures(teacher, None)["over_teacher"] is None
    found = figures(better, teacher)
    assert found["over_teacher"] == {"value": 0.1, "low": 0.1, "high": 0.1}
    assert found["mos"]["low"] < found["mos"]["value"] < found["mos"]["high"]


def test_noise_is_rated_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("speechmos")

    def speak(name: str, text: str) -> tuple[np.ndarray[tuple[int], np.dtype[np.float32]], int]:
        samples, rate = systems.voice(text)
        noise = np.random.default_rng(0).standard_normal(samples.size).astype(np.float32)
        return (samples + 0.03 * noise if name == "noisy" else samples), rate

    monkeypatch.setattr(systems, "speak", speak)
    texts = ["The birch canoe slid on the smooth planks."]
    assert rated("noisy", texts)["mos"][0] < rated("clean", texts)["mos"][0] - 0.3
