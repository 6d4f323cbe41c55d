"""What a service bears."""

from __future__ import annotations

from dataclasses import dataclass

from voicelab.audio.files import MAX_BYTES

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a service bears. Sizes are in bytes, times in seconds.

    Over ``json_body`` and ``body`` (MessagePack, which carries audio) the answer is 413; a body must
    arrive within ``body_seconds`` (408). ``active`` requests speak at once and ``waiting`` queue for at
    most ``waiting_seconds``; beyond that the answer is 503. ``buffer`` is how much audio of one request
    waits for its reader, who is given up after taking nothing for ``send_seconds``.

    A voice model is made of at most ``upload`` bytes, each file at most ``file`` (413), sent within
    ``upload_seconds`` (408); ``uploads`` are taken in at once (503).
    """

    json_body: int = 512 * 1024
    body: int = 64 * 1024 * 1024
    body_seconds: float = 60.0
    active: int = 8
    waiting: int = 32
    waiting_seconds: float = 60.0
    buffer: int = 256 * 1024
    send_seconds: float = 120.0
    upload: int = 256 * 1024 * 1024
    file: int = MAX_BYTES
    upload_seconds: float = 300.0
    uploads: int = 4
