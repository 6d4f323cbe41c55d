"""What POST /model is sent in these tests."""

from __future__ import annotations

from typing import Any

from tests.interface.wire import Answer, Caller, File
from tests.voices.test_cover import picture

# Said in the recordings.
SAID = "The birch canoe slid on the smooth planks."


COVER = File(picture("png", 2, 2), "c.png", "image/png")


def parts(speech: bytes, **fields: Any) -> list[tuple[str, Any]]:
    """The fields that are required, private, with a transcript; a field given as None is left out."""
    given: dict[str, Any] = {"type": "tts", "title": "Ada", "train_mode": "fast", "voices": File(speech)}
    given |= {"visibility": "private", "texts": SAID, **fields}
    return [(name, value) for name, value in given.items() if value is not None]


def body(speech: bytes, **fields: Any) -> dict[str, Any]:
    """The same as a MessagePack body."""
    return {name: value.data if isinstance(value, File) else value for name, value in parts(speech, **fields)}


def both(caller: Caller, speech: bytes, **fields: Any) -> list[Answer]:
    """The answers to both of them."""
    return [caller.create(parts(speech, **fields)), caller.create(body(speech, **fields))]
