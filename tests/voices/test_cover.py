from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from voicelab.errors import RequestInvalid
from voicelab.voices.intake import MAX_COVER_BYTES, check_cover, image_kind

KINDS = ("png", "jpeg", "webp")


def picture(kind: str = "png", width: int = 40, height: int = 30, **options: Any) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 255, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "options"),
    [("png", {}), ("jpeg", {}), *(("webp", one) for one in ({"lossless": True}, {}, {"exif": b"Exif\x00\x00MM"}))],
    ids=str,
)
def test_image_formats_are_detected_from_content(kind: str, options: dict[str, Any]) -> None:
    assert check_cover(picture(kind, **options)) == kind
    with pytest.raises(RequestInvalid, match="wide and high"):
        check_cover(picture(kind, 9000, 2, **options))


def _bomb(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "PNG, JPEG or WebP"),
        (b"GIF89a" + bytes(100), "PNG, JPEG or WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "PNG, JPEG or WebP"),
        (b"https://example.org/cover.png", "PNG, JPEG or WebP"),
        (b"ffconcat version 1.0\nfile 'secret.png'\n", "PNG, JPEG or WebP"),
        (picture()[:60], "damaged"),
        (picture("jpeg")[:20], "damaged"),
        (b"\x89PNG\r\n\x1a\n", "damaged"),
        (_bomb(60_000, 60_000), "wide and high"),
        (_bomb(0, 5), "wide and high|damaged"),
        (b"\x89PNG\r\n\x1a\n" + bytes(MAX_COVER_BYTES), "at most"),
    ],
    ids=str,
)
def test_invalid_images_are_rejected(data: bytes, why: str) -> None:
    with pytest.raises(RequestInvalid, match=why) as caught:
        check_cover(data)
    assert caught.value.errors[0].loc == ("body", "cover_image")


def test_mutated_images_raise_only_request_invalid() -> None:
    source = np.random.default_rng(2)
    for kind in KINDS:
        whole = picture(kind)
        for _ in range(200):
            data = bytearray(whole[: int(source.integers(10, len(whole) + 1))])
            for at in source.integers(0, min(60, len(data)), 3):
                data[at] = int(source.integers(0, 256))
            try:
                assert check_cover(bytes(data)) == image_kind(bytes(data))
            except RequestInvalid:
                continue
