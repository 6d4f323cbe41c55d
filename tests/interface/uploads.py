"""What POST /model is sent in these tests."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from tests.interface.wire import File

# Said in the recordings.
SAID = "The birch canoe slid on the smooth planks."


def png() -> bytes:
    """A picture of 2 by 2 grey points."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\x80\x90\0\xa0\xb0")) + chunk(b"IEND", b"")


Parts = list[tuple[str, Any]]


def parts(speech: bytes, **fields: Any) -> Parts:
    """The fields that are required, private, with a transcript; a field given as None is left out."""
    given: dict[str, Any] = {
        "type": "tts",
        "title": "Ada",
        "train_mode": "fast",
        "voices": File(speech),
        "visibility": "private",
    }
    given |= {"texts": SAID, **fields}
    return [(name, value) for name, value in given.items() if value is not None]


def body(speech: bytes, **fields: Any) -> dict[str, Any]:
    """The same as a MessagePack body."""
    return {name: value.data if isinstance(value, File) else value for name, value in parts(speech, **fields)}
