"""Comparison of clip digests, pictures and numbers, on the same and on another kind of processor."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.checks.conftest import Write, printed, shown
from voicelab.checks import check, update
from voicelab.checks.compare import FIGURES, Masks, digest_difference, digests_in, picture_difference, processor
from voicelab.clip import Clip
from voicelab.takes.replay import Tolerance
from voicelab.views.bundles import clip_text

WAS = "Clip(2.88 s, 44100 Hz, -26 dBFS, F0 102 Hz, mel -26 -39 -48 dB)"


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (WAS.replace("2.88", "2.92"), "duration +0.04 s (tolerance 0.05): within tolerance"),
        (WAS.replace("2.88", "2.95"), "duration +0.07 s (tolerance 0.05): beyond tolerance"),
        (WAS.replace("-26 dBFS", "-24 dBFS"), "level +2 dB (tolerance 1.5): beyond tolerance"),
        (WAS.replace("102", "108"), "F0 +99 cents (tolerance 50): beyond tolerance"),
        (WAS.replace("F0 102 Hz", "unvoiced"), "unvoiced, expected voiced: beyond tolerance"),
        (WAS.replace("-39 -48", "-41 -44"), "mel band 3 of 3 +4 dB (tolerance 3): beyond tolerance"),
        (WAS.replace(" -48", ""), "2 mel bands, expected 3: beyond tolerance"),
        (WAS, "equal digests"),
    ],
)
def test_digest_differences(now: str, words: str) -> None:
    (was,), (new,) = digests_in(WAS), digests_in(now)
    difference = digest_difference(was, new, Tolerance())
    assert str(difference) == words
    assert difference.tolerable is not words.endswith("beyond tolerance")


def test_every_line_that_a_clip_shows_is_read() -> None:
    wave = (0.3 * np.sin(2 * np.pi * 220.0 * np.arange(44_100) / 44_100)).astype(np.float32)
    loud, silent = clip_text(Clip(wave, 44_100)), clip_text(Clip(0 * wave, 44_100))
    first, second = digests_in(f"{loud}\n<p>{silent}</p>")
    assert first.f0 == pytest.approx(220.0, abs=1.0)
    assert len(first.mel) == 8
    assert second.f0 is None
    assert second.level < -100


def picture(dot: int = 300, noise: int = 0, size: tuple[int, int] = (700, 300), kind: str = "PNG") -> str:
    """A curve and a dot on a transparent ground, its colours a little off by ``noise``."""
    image = Image.new("RGBA", size, (0, 0, 0, 0))
    drawing = ImageDraw.Draw(image)
    drawing.line([(x, 150 + 100 * np.sin(x / 50)) for x in range(700)], fill=(0, 90, 180, 255), width=3)
    drawing.ellipse((dot - 20, 40, dot + 20, 80), fill=(200 + noise, 30, 30, 255))
    data = io.BytesIO()
    (image if kind == "PNG" else image.convert("RGB")).save(data, format=kind)
    return base64.b64encode(data.getvalue()).decode()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_equal_pictures(kind: str) -> None:
    assert picture(kind=kind) != picture(noise=3, kind=kind)
    assert picture_difference(picture(kind=kind), picture(kind=kind)) is None
    difference = picture_difference(picture(kind=kind), picture(noise=3, kind=kind))
    assert difference is not None
    assert difference.negligible
    assert re.fullmatch(r"0\.\d\d% of the pixels differ, within tolerance", difference.message)


def test_different_pictures() -> None:
    difference = picture_difference(picture(dot=600), picture(dot=660))
    assert "around the top right" in str(difference)
    assert "of its area" in str(picture_difference(picture(kind="JPEG"), picture(dot=400, kind="JPEG")))


def test_picture_size_and_invalid_pictures() -> None:
    assert str(picture_difference(picture(), picture(size=(700, 400)))) == "got 700 × 400 pixels, expected 700 × 300"
    assert "cannot be read" in str(picture_difference(picture(), "bm9uZQ=="))


CODE = "from voicelab.checks.compare import processor; print(processor())"


@pytest.mark.parametrize("threads", ["1", "4"])
def test_processor_is_the_same_in_every_process(threads: str) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{processor()}\n"
    assert len(processor().split()) == 3


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ("p 0.0794, -1.2e-05 [−0.08, nan]", "p 1, 3 [0.5, 12.75]", True),
        ("   temperature    1.0     9.99", "   temperature    1.0   -10.01", True),
        ("Clip(2.97 s, 44100 Hz, -24.3 dBFS)", "Clip(3.1 s, 44100 Hz, -9 dBFS)", True),
        ("1 recording (#fccd)", "1 recording (#0c23)", True),
        (
            "Clip(2.9 s, 44100 Hz, -24 dBFS, F0 120 Hz, mel 1 -2.5 dB)",
            "Clip(3 s, 44100 Hz, -9 dBFS, unvoiced, mel -3 4 dB)",
            True,
        ),
        ("f0_sd of s1 as mp3", "f0_sd of s2 as mp3", False),
        ("3 takes differ", "no takes differ", False),
        ("1 2", "1 2 3", False),
    ],
)
def test_masks_of_numbers(was: str, now: str, same: bool) -> None:
    masks = Masks((FIGURES,))
    assert (masks(was) == masks(now)) is same


def test_update_and_check_on_same_and_other_processor(
    write: Write,
) -> None:
    path = write(("print(1.5, 'dB')",), ("'p 0.02'",))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["cells"][1]["metadata"] = {"execution": {"iopub.status.idle": "2026-01-01T00:00:00Z"}, "tags": ["kept"]}
    path.write_text(json.dumps(notebook), encoding="utf-8")
    report = update(path)
    assert report.findings == check(path).findings == ()
    assert report.memory is not None
    assert 30 * 2**20 < report.memory < 4 * 2**30

    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["cells"][1]["metadata"] == {"tags": ["kept"]}
    assert [cell["execution_count"] for cell in notebook["cells"]] == [1, 2]
    assert notebook["metadata"]["voicelab"]["processor"] == processor()
    notebook["cells"][0]["outputs"] = [printed("2.75 dB\n")]
    notebook["cells"][1]["outputs"] = [shown("'q 0.02'")]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert [(finding.cell, finding.kind, finding.message) for finding in check(path).findings] == [
        (1, "difference", "stdout: got '1.5 dB', expected '2.75 dB'"),
        (2, "difference", "output 1 (text/plain): got \"'p 0.02'\", expected \"'q 0.02'\""),
    ]
    notebook["metadata"]["voicelab"]["processor"] = "riscv64 Nobody 01234567"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    report = check(path)
    assert [finding.cell for finding in report.findings] == [2]
    (note,) = report.notes
    assert note.kind == "processor"
    assert "riscv64 Nobody 01234567" in note.message
    assert processor() in note.message
