"""Compare embedded sounds by their content: the bytes of an encoder change from version to version."""

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
# Between encoders, bit rates and formats of one sound the distance is below 0.6 dB; between two takes of a text, above 2.9.
ENCODING: Final = Tolerance(seconds=0.05, db=1.0, mel_db=1.5)
"""How far one sound may be from itself, encoded by another version of an encoder."""
_RATE, _BANDS, _TOP_HZ = 16_000, 40, 7000.0  # what encoders of speech leave alone
_RANGE_DB: Final = 50.0
_LAG: Final = 8  # frames of 10 ms: an encoder's delay


def sounds_in(mime: str, text: str) -> list[str]:
    """Return the sounds of an output in base64, in order: the whole of an audio type, data addresses in another."""
    return ["".join(text.split())] if mime.startswith("audio/") else _EMBEDDED.findall(text)


def moved_sound(was: str, now: str, tolerance: Tolerance = ENCODING) -> str | None:
    """Describe how two sounds in base64 differ beyond a tolerance in duration, level or mel spectrum; None if they do not."""
    if was == now:
        return None
    try:
        old, new = (Clip.load(base64.b64decode(data)) for data in (was, now))
    except (AudioError, binascii.Error) as error:
        return f"cannot be decoded: {error}"
    distance = _distance(old, new)
    level = 0.0 if old.level == new.level else new.level - old.level  # two silences have -inf
    differences = (
        ("duration", "s", new.duration - old.duration, tolerance.seconds, "+.2f"),
        ("level", "dB", level, tolerance.db, "+.1f"),
        ("mel distance", "dB", distance, tolerance.mel_db, ".1f"),
    )
    beyond = [
        f"{name} {difference:{form}} {unit} (tolerance {bound:g})"
        for name, unit, difference, bound, form in differences
        if not abs(difference) <= bound
    ]
    return ", ".join(beyond) or None


def _distance(old: Clip, new: Clip) -> float:
    """Return the mean absolute difference in dB of two mel spectrograms, at the lag at which it is least."""
    was, now = (mel(clip.resample(_RATE), bands=_BANDS, fmin=80.0, fmax=_TOP_HZ).db for clip in (old, new))
    floor = max(float(was.max()), float(now.max())) - _RANGE_DB
    was, now = np.maximum(was, floor), np.maximum(now, floor)
    return min(_gap(was[:, max(0, lag) :], now[:, max(0, -lag) :]) for lag in range(-_LAG, _LAG + 1))


def _gap(was: np.ndarray[Any, Any], now: np.ndarray[Any, Any]) -> float:
    frames = min(was.shape[1], now.shape[1])
    return float(np.abs(was[:, :frames] - now[:, :frames]).mean()) if frames else np.inf
