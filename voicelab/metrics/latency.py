"""Latency and playback metrics from the arrival times of a take's chunks."""

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
        raise Undefined("the clip has no take, and so no arrival times")
    if subject.clip.take.source:
        raise Undefined("the clip is from a file, and so has no arrival times")
    return subject.clip.take


def first_audio(subject: Subject) -> float:
    """Time to first audio: seconds from the call to the first chunk with audio; a WAV header is not audio."""
    return _take(subject).timing.first_audio_s


def rtf(subject: Subject) -> float:
    """Real-time factor: seconds from the call to the last chunk per second of audio; below 1 is faster than real time."""
    value = _take(subject).timing.rtf(subject.clip.duration)
    if not math.isfinite(value):
        raise Undefined("the clip is empty")
    return value


def _received(subject: Subject) -> tuple[_Floats, _Floats]:
    """Return the arrival time of each chunk and the cumulative seconds of audio, (chunks,) each."""
    take = _take(subject)
    arrivals = np.array(take.timing.arrivals, np.float64).reshape(-1, 2)
    header = header_bytes(take.request.format)
    sizes = np.maximum(np.cumsum(arrivals[:, 1]) - header, 0.0)
    if not sizes.size or sizes[-1] <= 0.0:
        raise Undefined("the take has no arrivals")
    return arrivals[:, 0], sizes / sizes[-1] * subject.clip.duration


def _gaps(subject: Subject, buffer_s: float) -> _Floats:
    """Simulate playback; returns the duration of each interruption in seconds."""
    times, seconds = subject.once(_received)
    start = int(np.argmax(seconds >= min(buffer_s, seconds[-1]) - 1e-9))
    gaps = []
    # Time at which the buffer runs empty.
    empty = times[start] + seconds[start]
    for time, before, after in zip(times[start + 1 :], seconds[start:], seconds[start + 1 :], strict=False):
        if after > before:
            if time > empty:
                gaps.append(time - empty)
            empty = max(time, empty) + after - before
    return np.array(gaps)


def underruns(subject: Subject, buffer_s: float = _BUFFER_S) -> float:
    """Number of buffer underruns when playback starts with 0.2 s buffered (or the whole clip, if shorter).

    Simulated from arrivals: a chunk's duration is proportional to its bytes, and playback resumes with the next chunk.
    ``underruns_at`` returns the metric for another buffer.
    """
    return float(_gaps(subject, buffer_s).size)


def stalled(subject: Subject) -> float:
    """Total duration of interruptions in seconds; see ``underruns``."""
    return float(_gaps(subject, _BUFFER_S).sum())


def underruns_at(buffer_s: float) -> Metric:
    """Return the metric of underruns for a buffer of ``buffer_s`` seconds. Raises ArgumentError unless it is at least 0."""
    if not (math.isfinite(buffer_s) and buffer_s >= 0.0):
        raise ArgumentError.of("buffer_s", f"must be at least 0 seconds, got {buffer_s!r}")
    return Metric(f"underruns_{round(buffer_s * 1000)}ms", "", partial(underruns, buffer_s=buffer_s), better="lower")


def buffer_needed(subject: Subject) -> float:
    """Buffer in seconds that avoids underruns: the largest lag of a chunk behind playback from the first audio."""
    times, seconds = subject.once(_received)
    audible = seconds > 0.0
    times, seconds = times[audible], seconds[audible]
    played = np.concatenate(([0.0], seconds[:-1]))
    return float(np.max(times - played) - times[0])
