"""Compare embedded audio by content, because encoded bytes differ between encoder versions."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

import numpy as np

from voicelab.audio.analysis import mel
from voicelab.clip import Clip
from voicelab.errors import AudioError
from voicelab.takes.replay import Tolerance

_EMBEDDED: Final = re.compile(r"data:audio/[^,\"'\s]*;base64,([0-9A-Za-z+/=]+)")
# The mel distance between encodings of a signal is below 0.6 dB, between takes of a text above 2.9 dB.
ENCODING: Final = Tolerance(seconds=0.05, db=1.0, mel_db=1.5)
"""Tolerance of differences between encoder versions."""
_RATE, _BANDS, _FMAX_HZ = 16_000, 40, 7000.0  # a range that speech codecs preserve
_RANGE_DB: Final = 50.0
_MAX_LAG: Final = 8  # codec delay in frames of 10 ms


def embedded_audio(mime: str, text: str) -> list[str]:
    """Extract audio in base64 from an output, in order: all of an audio type, data URLs in other types."""
    return ["".join(text.split())] if mime.startswith("audio/") else _EMBEDDED.findall(text)


def audio_difference(expected: str, actual: str, tolerance: Tolerance = ENCODING) -> str | None:
    """Describe differences in duration, level or mel spectrum beyond a tolerance; None for equal audio.

    Args:
        expected: saved audio file in base64.
        actual: new audio file in base64.
        tolerance: bounds in s, dB and dB of mel distance.
    """
    if expected == actual:
        return None
    try:
        saved, new = (Clip.load(base64.b64decode(data)) for data in (expected, actual))
    except (AudioError, binascii.Error) as error:
        return f"cannot be decoded: {error}"
    level = 0.0 if saved.level == new.level else new.level - saved.level  # two silences have -inf
    differences = (
        ("duration", "s", new.duration - saved.duration, tolerance.seconds, "+.2f"),
        ("level", "dB", level, tolerance.db, "+.1f"),
        ("mel distance", "dB", _mel_distance(saved, new), tolerance.mel_db, ".1f"),
    )
    exceeded = [
        f"{name} {difference:{form}} {unit} (tolerance {bound:g})"
        for name, unit, difference, bound, form in differences
        if not abs(difference) <= bound
    ]
    return ", ".join(exceeded) or None


def _mel_distance(clip: Clip, reference: Clip) -> float:
    """Return the mean absolute difference of two mel spectrograms in dB, minimized over lags."""
    x, y = (mel(c.resample(_RATE), bands=_BANDS, fmin=80.0, fmax=_FMAX_HZ).db for c in (clip, reference))
    floor = max(float(x.max()), float(y.max())) - _RANGE_DB
    x, y = np.maximum(x, floor), np.maximum(y, floor)
    lags = range(-_MAX_LAG, _MAX_LAG + 1)
    return min(_mean_difference(x[:, max(0, lag) :], y[:, max(0, -lag) :]) for lag in lags)


def _mean_difference(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    frames = min(x.shape[1], y.shape[1])
    return float(np.abs(x[:, :frames] - y[:, :frames]).mean()) if frames else np.inf
