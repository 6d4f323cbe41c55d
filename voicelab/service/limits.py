"""What a service bears."""

from __future__ import annotations

from dataclasses import dataclass

from voicelab.audio.files import MAX_BYTES

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a service bears. Sizes are in bytes, times in seconds.

    Over ``body`` the answer to a speech request is 413. The head of a request must arrive within
    ``head_seconds`` and a body within ``body_seconds`` (408). ``active`` requests speak at once and ``waiting``
    queue for at most ``waiting_seconds``; beyond that the answer is 503. ``buffer`` is how much audio of one
    request waits for its reader, who is given up when ``lag_seconds`` behind the pace at which it plays, and
    keeps a connection for at most ``linger_seconds`` after that.

    A voice model is made of at most ``upload`` bytes, each file at most ``file`` (413), sent within
    ``upload_seconds`` (408); ``uploads`` are taken in at once (503).
    """

    body: int = 64 * 1024 * 1024
    head_seconds: float = 20.0
    body_seconds: float = 60.0
    active: int = 8
    waiting: int = 32
    waiting_seconds: float = 60.0
    buffer: int = 1024 * 1024
    lag_seconds: float = 20.0
    linger_seconds: float = 5.0
    upload: int = 256 * 1024 * 1024
    file: int = MAX_BYTES
    upload_seconds: float = 300.0
    uploads: int = 4
