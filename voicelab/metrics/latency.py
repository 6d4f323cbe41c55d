"""How soon and how smoothly the audio came, from the arrival times of a clip's take."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from voicelab.audio.encoders import header_bytes
from voicelab.clip import Take
from voicelab.errors import ArgumentError
from voicelab.metrics.metric import Metric, Subject, Undefined

_Floats = npt.NDArray[np.float64]
_BUFFER_S = 0.2


def _take(subject: Subject) -> Take:
    if subject.clip.take is None:
        raise Undefined("the clip comes from no take, and so has no arrival times")
    if subject.clip.take.source:
        raise Undefined("the clip is of a file, which has no arrival times")
    return subject.clip.take


def first_audio(subject: Subject) -> float:
    """Seconds from the call to the first chunk with audio in it; a WAV's header is not audio."""
    return _take(subject).timing.first_audio_s


def rtf(subject: Subject) -> float:
    """Real-time factor: seconds from the call to the last chunk for each second of audio; below 1 keeps up."""
    value = _take(subject).timing.rtf(subject.clip.duration)
    if not math.isfinite(value):
        raise Undefined("the clip is empty")
    return value


def _received(subject: Subject) -> tuple[_Floats, _Floats]:
    """Return when each chunk came, and the seconds of audio there were with it, both (chunks,)."""
    take = _take(subject)
    arrivals = np.array(take.timing.arrivals, np.float64).reshape(-1, 2)
    header = header_bytes(take.request.format)
    sizes = np.maximum(np.cumsum(arrivals[:, 1]) - header, 0.0)
    if not sizes.size or sizes[-1] <= 0.0:
        raise Undefined("the take has no arrivals")
    return arrivals[:, 0], sizes / sizes[-1] * subject.clip.duration


def _gaps(subject: Subject, buffer_s: float) -> _Floats:
    """Play the clip as it came; return the seconds of every interruption."""
    times, seconds = subject.once(_received)
    start = int(np.argmax(seconds >= min(buffer_s, seconds[-1]) - 1e-9))
    gaps = []
    # The moment at which what has arrived so far will have been played.
    dry = times[start] + seconds[start]
    for time, before, after in zip(times[start + 1 :], seconds[start:], seconds[start + 1 :], strict=False):
        if after > before:
            if time > dry:
                gaps.append(time - dry)
            dry = max(time, dry) + after - before
    return np.array(gaps)


def underruns(subject: Subject, buffer_s: float = _BUFFER_S) -> float:
    """How often playback stops for want of audio, when it begins with 0.2 s received (or all, if that is less).

    Simulated from the arrivals: a chunk's bytes stand for their share of the clip's duration, and playback goes
    on with the next chunk. ``underruns_at`` makes the metric for another buffer.
    """
    return float(_gaps(subject, buffer_s).size)


def stalled(subject: Subject) -> float:
    """Seconds that playback stands still after it began; see ``underruns``."""
    return float(_gaps(subject, _BUFFER_S).sum())


def underruns_at(buffer_s: float) -> Metric:
    """Return the metric that counts underruns when playback begins with ``buffer_s`` seconds received.

    Raises ArgumentError unless it is a number from 0.
    """
    if not (math.isfinite(buffer_s) and buffer_s >= 0.0):
        raise ArgumentError.of("buffer_s", "Input should be a number of seconds from 0")
    return Metric(f"underruns_{round(buffer_s * 1000)}ms", "", partial(underruns, buffer_s=buffer_s), better="lower")


def buffer_needed(subject: Subject) -> float:
    """Seconds that playback must wait after the first audio so that it never stops.

    The largest lag of any chunk behind continuous playback from the first audio on.
    """
    times, seconds = subject.once(_received)
    audible = seconds > 0.0
    times, seconds = times[audible], seconds[audible]
    played = np.concatenate(([0.0], seconds[:-1]))
    return float(np.max(times - played) - times[0])
