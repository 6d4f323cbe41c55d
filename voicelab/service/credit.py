"""What a request costs: the characters of its text, and of a speech cut short only what was delivered."""

from __future__ import annotations

import math
from collections.abc import Mapping

from voicelab.schema import OPUS_BITRATES, TTSRequest

__all__ = ["cost", "delivered_cost", "played_seconds"]

# Encoded speech does not say which character it has come to. Unhurried English has 12 to 15 characters
# a second; taking the low end, a caller whose speech was cut short never pays for more than it heard.
_CHARACTERS_PER_SECOND = 12.0
# What automatic Opus comes to for mono speech at most, in kbit/s; and what any Opus comes to at least, as a
# share of what was asked for, which for automatic is the lowest of the list.
_OPUS_AUTOMATIC = 51
_OPUS_LEAST = 0.5


def cost(wire: object) -> int:
    """Return the characters of a decoded body that need not be valid; 0 when it has no text."""
    text = wire.get("text") if isinstance(wire, Mapping) else None
    return len(text) if isinstance(text, str) else 0


def delivered_cost(request: TTSRequest, sent: int) -> int:
    """Return the characters to charge for the first ``sent`` bytes of a speech that was cut short."""
    speed = request.prosody.speed if request.prosody is not None else 1.0
    said = sent / _bytes_per_second(request) * speed * _CHARACTERS_PER_SECOND
    return min(len(request.text), math.ceil(said))


def played_seconds(request: TTSRequest, sent: int) -> float:
    """Return how long ``sent`` bytes of audio take to play, rather more than less."""
    if request.format != "opus":
        return sent / _bytes_per_second(request)
    asked = (
        min(bitrate for bitrate in OPUS_BITRATES if bitrate > 0) if request.opus_bitrate < 0 else request.opus_bitrate
    )
    return sent / (asked * 125.0 * _OPUS_LEAST)


def _bytes_per_second(request: TTSRequest) -> float:
    if request.format == "mp3":
        return request.mp3_bitrate * 125.0
    if request.format == "opus":
        return (_OPUS_AUTOMATIC if request.opus_bitrate < 0 else request.opus_bitrate) * 125.0
    return request.rate * 2.0
