"""The judges' table: figures with intervals, differences by sentence, and verdicts that are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import judges
import numpy as np
import pytest
import quality
import systems
from judges import Judged, Judges, figures, table


def _judged(opinions: list[float], heard: str = "one two", older: bool = True) -> list[Judged]:
    return [
        Judged(f"one two {'three ' * (i % 2)}", heard, o, "one" if older else None, 3.0 if older else None, 1.0)
        for i, o in enumerate(opinions)
    ]


def test_every_figure_has_its_interval_and_the_difference_is_by_sentence() -> None:
    first = _judged([4.0, 3.0, 5.0, 4.0])
    row = figures(_judged([3.5, 2.5, 4.5, 3.5]), first)
    assert row["behind"] == {"value": -0.5, "low": -0.5, "high": -0.5}
    assert row["distillmos"]["low"] < row["distillmos"]["value"] == 3.5 < row["distillmos"]["high"]
    assert row["whisper"]["value"] == pytest.approx(2 / 10)
    assert row["pocketsphinx"]["value"] == pytest.approx(6 / 10)
    assert row["dnsmos"]["value"] == 3
    assert figures(first, first)["behind"]["value"] == 0


def test_without_the_older_judges_their_columns_are_missing() -> None:
    found = _judged([4.0, 3.0], older=False)
    assert set(figures(found, found)) == {"whisper", "distillmos", "behind"}


class Ears:
    asked: ClassVar[list[int]] = []

    def hear(self, samples: Any, rate: int) -> Any:
        Ears.asked.append(rate)
        loud = float(np.abs(samples).max())
        return type("Heard", (), {"words": "one two", "opinion": 3 + loud})()


def test_verdicts_are_kept_and_only_what_is_missing_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systems, "training", lambda module: type("M", (), {"Ears": Ears}))
    monkeypatch.setattr(systems, "speak", lambda name, text: (np.sin(np.arange(8000) * 0.1).astype(np.float32), 8000))
    monkeypatch.setattr(judges, "recognise", lambda samples, rate: "one two")
    monkeypatch.setattr(quality, "opinion", lambda samples, rate: 3.2)
    Ears.asked = []
    keep = tmp_path / "judged.json"
    Judges(keep, older=False).judge("rms", ["one two", "two"])
    assert len(Ears.asked) == 2
    found = table(["rms"], ["one two", "two", "three"], Judges(keep, older=False))
    assert len(Ears.asked) == 3
    assert "rms: whisper" in capsys.readouterr().out
    assert "dnsmos" not in found["rms"]
    # The older judges were not asked then: now they are.
    assert table(["rms"], ["one two"], Judges(keep))["rms"]["dnsmos"]["value"] == 3.2
    assert len(Ears.asked) == 4
