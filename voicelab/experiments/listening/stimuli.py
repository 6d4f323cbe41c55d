"""What listeners hear: clips brought to one loudness, and the anchors that a MUSHRA test needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.experiments.metrics.level import loudness, true_peak
from voicelab.experiments.metrics.metric import Subject, Undefined

__all__ = ["ANCHORS", "TARGET_LUFS", "Matched", "anchor", "match_loudness"]

TARGET_LUFS: Final = -23.0
"""Loudness that clips are brought to where their peaks allow: EBU R 128's."""

ANCHORS: Final = {"anchor35": 3500.0, "anchor70": 7000.0}
"""The anchors of Recommendation ITU-R BS.1534-3: names, and the ends of their pass-bands in Hz."""

_CEILING: Final = -1.0
"""dBTP that no clip is raised above."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Clips at one loudness: ``gains`` in dB say what was done to each, ``lufs`` what they have now."""

    clips: Mapping[str, Clip]
    gains: Mapping[str, float]
    lufs: float


def match_loudness(clips: Mapping[str, Clip], lufs: float = TARGET_LUFS) -> Matched:
    """Bring clips to the same integrated loudness (ITU-R BS.1770-4) by one gain each.

    To ``lufs``, or lower where a clip's true peak would rise above -1 dBTP: all go down together, nothing is
    limited. Raises RequestInvalid naming a clip whose loudness is not defined (shorter than 0.4 s, or silent).
    """
    measured: dict[str, float] = {}
    rooms: list[float] = [lufs]
    for name, clip in clips.items():
        subject = Subject(clip)
        try:
            measured[name] = loudness(subject)
            rooms.append(measured[name] + _CEILING - true_peak(subject))
        except Undefined as error:
            raise RequestInvalid.of(name, f"its loudness cannot be matched: {error}") from error
    target = min(rooms)
    gains = {name: target - level for name, level in measured.items()}
    made = {name: _amplified(clip, gains[name]) for name, clip in clips.items()}
    return Matched(made, gains, target)


def anchor(clip: Clip, cutoff: float) -> Clip:
    """Return the clip low-passed for use as an anchor: Recommendation ITU-R BS.1534-3 (2015), section 5.1.

    Pass-band to ``cutoff`` Hz with at most 0.1 dB of ripple; at 8/7 of it at least 25 dB down, at 9/7 at least 50
    (for 3.5 kHz: at 4 and 4.5 kHz). A linear-phase filter whose delay is taken out. Raises RequestInvalid when
    the clip's rate leaves nothing to take away.
    """
    from scipy.signal import fftconvolve, firwin, kaiserord

    if cutoff * 9 / 7 >= clip.rate / 2:
        message = f"a clip of {clip.rate} Hz has nothing above {cutoff * 9 / 7:.0f} Hz to take away"
        raise RequestInvalid.of("clip", message)
    # 60 dB at the end of the transition, which ends where 25 dB are asked for; its ripple is then far below 0.1 dB.
    width = cutoff / 7
    taps, beta = kaiserord(60.0, 2 * width / clip.rate)
    taps |= 1  # odd: a whole number of samples of delay
    kernel = firwin(taps, cutoff + width / 2, window=("kaiser", beta), fs=clip.rate)
    filtered = fftconvolve(clip.samples.astype(np.float64), kernel, mode="full")
    half = taps // 2
    return replace(clip, samples=np.clip(filtered[half : half + len(clip)], -1.0, 1.0).astype(np.float32))


def _amplified(clip: Clip, gain: float) -> Clip:
    factor = 10.0 ** (gain / 20.0)
    return replace(clip, samples=(clip.samples * np.float32(factor)).clip(-1.0, 1.0).astype(np.float32))
