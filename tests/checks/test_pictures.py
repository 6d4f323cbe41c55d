from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from voicelab.checks.pictures import moved_picture


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
def test_what_shows_the_same(kind: str) -> None:
    assert picture(kind=kind) != picture(noise=3, kind=kind)
    assert moved_picture(picture(kind=kind), picture(noise=3, kind=kind)) is None


def test_what_shows_something_else_and_where() -> None:
    said = moved_picture(picture(dot=600), picture(dot=660))
    assert said is not None
    assert "around the top right" in said
    assert "something else" in (moved_picture(picture(kind="JPEG"), picture(dot=400, kind="JPEG")) or "")


def test_another_size_and_what_is_no_picture() -> None:
    assert moved_picture(picture(), picture(size=(700, 400))) == "700 × 400 pixels where it was 700 × 300"
    assert "cannot be read" in (moved_picture(picture(), "bm9uZQ==") or "")
