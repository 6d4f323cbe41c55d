"""Level, peak, loudness by ITU-R BS.1770, signal-to-noise ratio, and speech activity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from voicelab.metrics.metric import Results, Subject, Undefined

_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]

HOP_S = 0.01
"""Frame duration in seconds, without overlap."""
_FRAME_RATE = round(1 / HOP_S)
_SPEECH_RANGE_DB = 25.0
_NOISE_MARGIN_DB, _MIN_RANGE_DB = 6.0, 10.0
_SILENCE_POWER = 1e-9
_MIN_SPEECH_FRAMES = 5
_MIN_PAUSE_S = 0.25

# Recommendation ITU-R BS.1770-4, Annex 2: the interpolating filter of order 48 in four phases of twelve;
# the other two phases have these coefficients in reverse order.
# fmt: off
_PHASES = np.array([
    0.0017089843750, 0.0109863281250, -0.0196533203125, 0.0332031250000,
    -0.0594482421875, 0.1373291015625, 0.9721679687500, -0.1022949218750,
    0.0476074218750, -0.0266113281250, 0.0148925781250, -0.0083007812500,
    -0.0291748046875, 0.0292968750000, -0.0517578125000, 0.0891113281250,
    -0.1665039062500, 0.4650878906250, 0.7797851562500, -0.2003173828125,
    0.1015625000000, -0.0582275390625, 0.0330810546875, -0.0189208984375,
]).reshape(2, 12)
# fmt: on
_TAPS = _PHASES.shape[1]
_FILTERS = np.concatenate((_PHASES, _PHASES[::-1, ::-1]))
# Bound of an interpolated value relative to the largest sample under the filter.
_GAIN = float(np.abs(_FILTERS).sum(axis=1).max())
_BLOCK = 1024
_OFFSET = -0.691
_ABSOLUTE_GATE, _RELATIVE_GATE = -70.0, -10.0
_NOISE_ITERATIONS = 5


@dataclass(frozen=True, eq=False)
class Activity:
    """Speech activity: ``active`` (frames,) has a flag per 10 ms, ``pauses`` (count, 2) start and end in seconds.

    ``start`` and ``end`` are speech onset and offset in seconds.
    """

    active: _Bools
    pauses: _Floats
    start: float
    end: float


def frame_powers(subject: Subject) -> _Floats:
    """Compute the mean power of full 10 ms frames, shape (frames,).

    At rates where 10 ms is a fractional number of samples, such as 22.05 kHz, frames start at the rounded times. Raises
    Undefined for a clip shorter than a frame.
    """
    clip = subject.clip
    count = len(clip) * _FRAME_RATE // clip.rate
    if not count:
        raise Undefined(f"the duration must be at least 10 ms, got {clip.duration * 1000:.1f} ms")
    size = max(1, clip.rate // _FRAME_RATE)
    begins = np.arange(count) * clip.rate // _FRAME_RATE
    frames = np.lib.stride_tricks.sliding_window_view(clip.samples, size)[begins]
    powers: _Floats = np.einsum("ij,ij->i", frames, frames).astype(np.float64) / size
    return powers


def smoothed(powers: _Floats) -> _Floats:
    """Smooth frame powers over three frames."""
    return np.convolve(powers, np.full(3, 1 / 3), "same") if powers.size >= 3 else powers


def activity(subject: Subject) -> Activity:
    """Detect speech by level.

    A frame (smoothed over 30 ms) is speech if its level is at most 25 dB below the 99th percentile of frames. This is the
    threshold of N. H. de Jong & T. Wempe, "Praat script to detect syllable nuclei and measure speech rate automatically",
    Behavior Research Methods 41 (2009). In noise, the threshold is raised to 6 dB above the 5th percentile, but at most to
    10 dB below the 99th. Onset and offset frames must also reach the threshold without smoothing. Intervals below 50 ms are
    discarded as clicks, unless there are no others. A pause is a gap of at least 0.25 s between intervals of speech, F.
    Goldman-Eisler's threshold ("Psycholinguistics", 1968), which excludes articulatory silences.

    Raises Undefined for silence and for clips shorter than a frame.
    """
    powers = subject.once(frame_powers)
    smooth = smoothed(powers)
    peak, floor = np.quantile(smooth, (0.99, 0.05))
    if peak < _SILENCE_POWER:
        raise Undefined("the clip is silent")
    lower, upper = peak * 10.0 ** (-np.array([_SPEECH_RANGE_DB, _MIN_RANGE_DB]) / 10.0)
    threshold = max(lower, min(floor * 10.0 ** (_NOISE_MARGIN_DB / 10.0), upper))
    begins, ends = runs(smooth >= threshold)
    sustained = ends - begins >= _MIN_SPEECH_FRAMES
    if sustained.any():  # else there are only clicks
        begins, ends = begins[sustained], ends[sustained]
    # Smoothing extends an interval by one frame at each end.
    begins += (powers[begins] < threshold) & (ends - begins > 2)
    ends -= (powers[ends - 1] < threshold) & (ends - begins > 2)
    active = np.zeros(powers.size + 1, np.int64)
    active[begins] += 1
    active[ends] -= 1
    gaps = np.asarray(np.stack([ends[:-1], begins[1:]], axis=1) * HOP_S, np.float64)
    long = gaps[:, 1] - gaps[:, 0] >= _MIN_PAUSE_S - 1e-9
    return Activity(np.cumsum(active)[:-1] > 0, gaps[long], float(begins[0] * HOP_S), float(ends[-1] * HOP_S))


def runs(flags: _Bools) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the start and end indices of runs of True, each of shape (runs,)."""
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def duration(subject: Subject) -> float:
    """Duration of the clip in seconds, including silence at its ends."""
    return subject.clip.duration


def level(subject: Subject) -> float:
    """Root-mean-square level of the clip in dBFS: 0 for a full-scale square wave, -3.01 for a sine.

    In AES17-2020 a full-scale sine has 0 dBFS: add 3.01 dB to compare. Undefined for silence.
    """
    return _decibels(subject.clip.level)


def peak(subject: Subject) -> float:
    """Largest absolute sample in dBFS. Undefined for silence."""
    largest = subject.clip.peak
    return 20.0 * math.log10(largest) if largest > 0.0 else _decibels(-math.inf)


def true_peak(subject: Subject) -> float:
    """True peak in dBTP: the largest absolute value after oversampling by four.

    Recommendation ITU-R BS.1770-4 (2015), Annex 2, with its filter, whose error on steady sines is -0.1 to
    0.2 dB. Never below the sample peak. Undefined for silence.
    """
    maximum = subject.once(_interpolated_peak)
    return 20.0 * math.log10(maximum) if maximum > 0.0 else _decibels(-math.inf)


def _interpolated_peak(subject: Subject) -> float:
    maximum = subject.clip.peak
    if maximum == 0.0:
        return maximum
    samples = np.pad(subject.clip.samples, _TAPS - 1)
    windows = np.lib.stride_tricks.sliding_window_view(samples, _TAPS)
    # Interpolated values in other windows cannot exceed the largest sample.
    large = np.flatnonzero((samples >= maximum / _GAIN) | (samples <= -maximum / _GAIN))
    candidates = np.zeros(len(windows), bool)
    for shift in range(_TAPS):
        candidates[large - shift] = True
    begins = np.flatnonzero(candidates)
    # Work in blocks, since small arrays are faster to allocate.
    for offset in range(0, begins.size, _BLOCK):
        values = windows[begins[offset : offset + _BLOCK]].astype(np.float64) @ _FILTERS[:, ::-1].T
        maximum = max(maximum, float(np.abs(values).max()))
    return maximum


def loudness(subject: Subject) -> float:
    """Integrated loudness in LUFS of a single channel.

    Recommendation ITU-R BS.1770-4 (2015), Annex 1: K-weighting (the filters of pyloudnorm, C. J. Steinmetz & J. D. Reiss, AES
    150 (2021), in B. De Man's form, which matches the standard's filters at 48 kHz), blocks of 0.4 s overlapping by 75 %,
    gated at -70 LUFS and at 10 LU below their mean. A sine of 997 Hz at full scale is -3.01 LUFS; on two loudspeakers it is
    3.01 LU louder. Undefined for a clip that is shorter than a block or never above the gate.
    """
    blocks = subject.once(_block_powers)
    audible = blocks[blocks > 10.0 ** ((_ABSOLUTE_GATE - _OFFSET) / 10.0)]
    if not audible.size:
        raise Undefined("the clip is quieter than the gate of -70 LUFS throughout")
    gated = audible[audible > audible.mean() * 10.0 ** (_RELATIVE_GATE / 10.0)]
    return _OFFSET + 10.0 * math.log10(float(gated.mean()))


def _block_powers(subject: Subject) -> _Floats:
    from scipy.signal import lfilter

    clip = subject.clip
    if clip.duration < 0.4:
        raise Undefined(f"the duration must be at least 0.4 s, got {clip.duration:.3f} s")
    if clip.rate < 8000:
        raise Undefined(f"the rate must be at least 8000 Hz, got {clip.rate}")
    numerator, denominator = _k_weighting(clip.rate)
    # Overlapping blocks of 0.4 s share sums over 0.1 s.
    edges = np.round(np.arange(int(clip.duration * 10 + 1e-9) + 1) * clip.rate / 10).astype(np.int64)
    weighted = lfilter(numerator, denominator, clip.samples[: edges[-1]])
    tenths = np.add.reduceat(np.square(weighted, out=weighted), edges[:-1])
    powers: _Floats = np.convolve(tenths, np.ones(4), "valid") / (edges[4:] - edges[:-4])
    return powers


def amplified_levels(subject: Subject, gain_db: float) -> Results:
    """Return the intermediate results for the loudness and true peak of a clip after a gain."""
    gain = float(np.float32(10.0 ** (gain_db / 20.0)))
    peak, powers = subject.once(_interpolated_peak), subject.once(_block_powers)
    return {_interpolated_peak: peak * gain, _block_powers: powers * gain**2}


@lru_cache(maxsize=16)
def _k_weighting(rate: int) -> tuple[_Floats, _Floats]:
    """Return the numerator and denominator of the two-stage K-weighting filter."""
    from pyloudnorm import IIRfilter

    # Gain in dB, Q and frequency in Hz of B. De Man's form.
    shelf = IIRfilter(3.99984385397, 0.7071752369554193, 1681.9744509555319, rate, "high_shelf_DeMan")
    high_pass = IIRfilter(0.0, 0.5003270373253953, 38.13547087613982, rate, "high_pass_DeMan")
    return np.convolve(shelf.b, high_pass.b), np.convolve(shelf.a, high_pass.a)


def snr(subject: Subject) -> float:
    """Estimate the signal-to-noise ratio in dB from the clip alone.

    The noise power is the mean over the frames (10 ms, smoothed over 30 ms) that are less than 3 dB above it, iterated from
    the quietest 10 % of frames. The signal is the mean power of the frames at least 3 dB above the noise and within 25 dB of
    the loudest, minus the noise. The estimate is energy-based, like those of the NIST Speech Quality Assurance package
    (1992). For steady noise and clips with 10 % of pauses or silence the error is about 1 dB from 5 dB upward; with fewer
    pauses quiet speech counts as noise and the estimate is too low. At 0 dB the estimate is 2.5 dB. Undefined for digital
    silence in the quietest 10 %.
    """
    powers = subject.once(frame_powers)
    noise = float(np.sort(powers)[: max(1, powers.size // 10)].mean())
    smooth = smoothed(powers)
    for _ in range(_NOISE_ITERATIONS):
        quiet = powers[smooth < 2.0 * noise]
        noise = float(quiet.mean()) if quiet.size else noise
    if noise < 1e-10:
        raise Undefined("the pauses are digital silence, without noise")
    speech = powers[smooth >= max(2.0 * noise, float(np.quantile(smooth, 0.99)) * 10.0 ** (-2.5))]
    signal = float(speech.mean()) - noise if speech.size else 0.0
    if signal <= 0.0:
        raise Undefined("no frame exceeds the noise")
    return 10.0 * math.log10(signal / noise)


def _decibels(value: float) -> float:
    if not math.isfinite(value):
        raise Undefined("the clip is silent")
    return value
