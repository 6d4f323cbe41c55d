"""Voice metrics: F0, jitter, shimmer and spectral tilt."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import Contour, f0
from voicelab.metrics.level import HOP_S, activity, runs
from voicelab.metrics.metric import Subject, Undefined

_Floats = npt.NDArray[np.float64]

_MIN_F0_HZ, _MAX_F0_HZ = 60.0, 600.0
_MIN_PERIODS = 3
_MIN_TILT_HZ, _MAX_TILT_HZ = 100.0, 8000.0
# Praat's limits: larger differences between consecutive periods are measurement errors.
_PERIOD_FACTOR, _AMPLITUDE_FACTOR = 1.3, 1.6
_PULSE_RATE = 48_000
_PULSE_HOP = round(HOP_S * _PULSE_RATE)
_MIN_CORRELATION = 0.7


def contour(subject: Subject) -> Contour:
    """Track F0 in Hz every 10 ms by pYIN, 60 to 600 Hz, NaN in unvoiced frames.

    M. Mauch & S. Dixon, "pYIN: A fundamental frequency estimator using probabilistic threshold distributions", ICASSP
    (2014), with the parameters and values of librosa. The resolution is 0.1 semitones (0.6 %), so the medians of two
    clips may be exactly equal.
    """
    return f0(subject.clip, fmin=_MIN_F0_HZ, fmax=_MAX_F0_HZ, hop_s=HOP_S, method="pyin")


def _voiced(subject: Subject) -> _Floats:
    values = subject.once(contour).values
    voiced: _Floats = values[np.isfinite(values)]
    if not voiced.size:
        raise Undefined("no frame is voiced")
    return voiced


def _semitones(subject: Subject) -> _Floats:
    semitones: _Floats = 12.0 * np.log2(_voiced(subject))
    return semitones


def f0_median(subject: Subject) -> float:
    """Median F0 of voiced frames in Hz (see ``contour``)."""
    return float(np.median(_voiced(subject)))


def f0_geometric_mean(subject: Subject) -> float:
    """Geometric mean F0 of voiced frames in Hz, the mean on a semitone scale (see ``contour``).

    Most published means are arithmetic means, which are higher: by 1.5 % for an SD of 3 semitones.
    """
    return float(2.0 ** (_semitones(subject).mean() / 12.0))


def f0_sd(subject: Subject) -> float:
    """Standard deviation of F0 over voiced frames in semitones (see ``contour``).

    The unit is semitones, since intonation is perceived and produced on a logarithmic scale: F. Nolan, "Intonational
    equivalence: an experimental evaluation of pitch scales", ICPhS (2003).
    """
    values = _semitones(subject)
    if values.size < 2:
        raise Undefined("a single voiced frame has no SD")
    return float(values.std(ddof=1))


def f0_range(subject: Subject) -> float:
    """Range from the 5th to the 95th percentile of F0 over voiced frames in semitones (see ``contour``)."""
    low, high = np.quantile(_semitones(subject), (0.05, 0.95))
    return float(high - low)


def voiced_share(subject: Subject) -> float:
    """Share of voiced frames among speech frames, 0 to 1 (see ``contour`` and ``activity``)."""
    active = subject.once(activity).active
    voiced = np.isfinite(subject.once(contour).values)
    count = min(active.size, voiced.size)
    return float(voiced[:count][active[:count]].mean())


def _sound(subject: Subject) -> _Floats:
    return subject.clip.resample(_PULSE_RATE).samples.astype(np.float64)


def pulses(subject: Subject) -> list[_Floats]:
    """Detect trains of glottal pulses, each of shape (count, 2): time in seconds and amplitude.

    The search starts at the largest peak of a voiced interval. In both directions, the next pulse is at the maximum
    cross-correlation of one period within 0.8 to 1.25 periods, refined by a parabola: P. Boersma, "Should jitter be
    measured by peak picking or by waveform matching?", Folia Phoniatrica et Logopaedica 61 (2009). A train ends where
    there is no maximum or the correlation is below 0.7, Praat's limit at the edge of a voiced interval; the rest of the
    interval is searched in turn. The amplitude is the root mean square of the period around a pulse.
    """
    pitch = subject.once(contour)
    sound = subject.once(_sound)
    periods = _PULSE_RATE / pitch.values
    voiced = zip(*runs(np.isfinite(periods)), strict=True)
    intervals = [(int(begin) * _PULSE_HOP, min(int(end) * _PULSE_HOP, sound.size)) for begin, end in voiced]
    trains = []
    while intervals:
        begin, end = intervals.pop()
        if begin >= end:
            continue
        start = begin + int(np.argmax(np.abs(sound[begin:end])))
        period = float(periods[start // _PULSE_HOP])
        if end - begin <= (_MIN_PERIODS + 1) * period:
            continue
        backward, forward = (_follow(sound, start, (begin, end), periods, direction) for direction in (-1, 1))
        positions = [*reversed(backward), float(start), *forward]
        if len(positions) > _MIN_PERIODS:
            trains.append(
                np.array([(position / _PULSE_RATE, _amplitude(sound, position, periods)) for position in positions])
            )
        intervals += [(begin, int(positions[0] - period / 2)), (int(positions[-1] + period / 2), end)]
    return trains


def _follow(sound: _Floats, start: int, interval: tuple[int, int], periods: _Floats, direction: int) -> list[float]:
    """Return the positions of pulses in samples, after ``start`` (``direction`` 1) or before (-1), nearest to farthest."""
    positions: list[float] = []
    position = float(start)
    while True:
        period = float(periods[int(position) // _PULSE_HOP])
        min_period, max_period, half = int(0.8 * period), math.ceil(1.25 * period), int(period / 2)
        center = round(position)
        begin = center + (min_period if direction > 0 else -max_period)
        end = begin + max_period - min_period
        if min(center, begin) < half or max(center, end) + half > sound.size:
            return positions
        window = sound[center - half : center + half]
        windows = np.lib.stride_tricks.sliding_window_view(sound[begin - half : end + half], window.size)
        correlation = (windows @ window) / np.sqrt(np.einsum("ij,ij->i", windows, windows) * (window @ window) + 1e-20)
        index = int(np.argmax(correlation))
        # A maximum at the border of the range is not a period, but the decay of the waveform.
        if index in (0, correlation.size - 1) or correlation[index] < _MIN_CORRELATION:
            return positions
        before, peak, after = correlation[index - 1 : index + 2]
        curvature = before - 2.0 * peak + after
        # Windows start at integer samples, so the fractional position of the pulse is preserved.
        position += begin - center + index + (0.5 * (before - after) / curvature if curvature < 0.0 else 0.0)
        if not interval[0] <= position < interval[1]:
            return positions
        positions.append(position)


def _amplitude(sound: _Floats, position: float, periods: _Floats) -> float:
    center, half = round(position), int(periods[int(position) // _PULSE_HOP] / 2)
    return float(np.sqrt(np.mean(np.square(sound[max(0, center - half) : center + half]))))


def jitter(subject: Subject) -> float:
    """Local jitter in percent: the mean difference of consecutive periods over the mean period.

    Praat's "jitter (local)" (P. Boersma & D. Weenink): pairs of periods that differ by a factor above 1.3 are excluded.
    It is computed on ``pulses`` and meant for sustained vowels, since intonation increases jitter in running speech.
    """
    periods = [np.diff(train[:, 0]) for train in subject.once(pulses)]
    return _percent([_differences(lengths, lengths, _PERIOD_FACTOR) for lengths in periods], periods)


def shimmer_local(subject: Subject) -> float:
    """Local shimmer in percent: the mean difference of consecutive pulses' amplitudes over the mean amplitude.

    Praat's "shimmer (local)" (P. Boersma & D. Weenink): the amplitude is the root mean square under a Hann window of 0.2
    periods on each side of the pulse, excluding pulses between periods that differ by a factor above 1.3 and amplitudes that
    differ by a factor above 1.6. Computed on ``pulses``.
    """
    sound = subject.once(_sound)
    differences, sizes = [], []
    for train in subject.once(pulses):
        lengths = np.diff(train[:, 0])
        regular = np.abs(np.log(lengths[1:] / lengths[:-1])) <= math.log(_PERIOD_FACTOR)
        inner = zip(train[1:-1, 0][regular], lengths[:-1][regular], lengths[1:][regular], strict=True)
        amplitudes = np.array([_peak_amplitude(sound, *pulse) for pulse in inner])
        differences.append(_differences(amplitudes, np.ones(amplitudes.size), _PERIOD_FACTOR, _AMPLITUDE_FACTOR))
        sizes.append(amplitudes)
    return _percent(differences, sizes)


def _peak_amplitude(sound: _Floats, seconds: float, before: float, after: float) -> float:
    """Compute the amplitude of the pulse at ``seconds``; the Hann window extends 0.2 periods to each side."""
    begin, end = (max(0, round(edge * _PULSE_RATE)) for edge in (seconds - 0.2 * before, seconds + 0.2 * after))
    offsets = np.arange(begin, min(end + 1, sound.size)) / _PULSE_RATE - seconds
    phase = np.clip(offsets / np.where(offsets < 0.0, 0.2 * before, 0.2 * after), -1.0, 1.0)
    weights = np.square(0.5 + 0.5 * np.cos(np.pi * phase))
    return float(np.sqrt(np.square(sound[begin : begin + offsets.size]) @ weights / weights.sum()))


def shimmer_rms(subject: Subject) -> float:
    """Shimmer of full periods in percent: the mean difference of consecutive periods' levels over the mean level.

    Like ``shimmer_local``, but with the root mean square of the full period as the amplitude, which depends less on noise and
    formants: values are lower than Praat's and not comparable with them.
    """
    periods = [(train[:-1, 1], np.diff(train[:, 0])) for train in subject.once(pulses)]
    differences = [_differences(*period, _PERIOD_FACTOR, _AMPLITUDE_FACTOR) for period in periods]
    return _percent(differences, [amplitudes for amplitudes, _ in periods])


def _differences(values: _Floats, lengths: _Floats, max_length_factor: float, max_factor: float = math.inf) -> _Floats:
    valid = np.abs(np.log(lengths[1:] / lengths[:-1])) <= math.log(max_length_factor)
    valid &= np.abs(np.log(np.maximum(values[1:], 1e-12) / np.maximum(values[:-1], 1e-12))) <= math.log(max_factor)
    steps: _Floats = np.abs(np.diff(values))[valid]
    return steps


def _percent(differences: list[_Floats], values: list[_Floats]) -> float:
    if not values or not (steps := np.concatenate(differences)).size:
        raise Undefined("no voiced interval is long enough to compare its periods")
    return 100.0 * float(steps.mean() / np.concatenate(values).mean())


def spectral_tilt(subject: Subject) -> float:
    """Slope of the long-term average spectrum in dB per octave, 100 Hz to 8 kHz, over speech frames.

    The slope is a linear regression on the levels of power density in third-octave bands. White noise has 0, pink noise
    -3.01, and speech -6 to -12, with flatter slopes for brighter or pressed voices: G. Fant, "Acoustic Theory of Speech
    Production" (1960). Undefined for sample rates below 16 kHz.
    """
    from scipy.signal import stft

    clip = subject.clip
    if clip.rate < 2 * _MAX_TILT_HZ:
        raise Undefined(f"the rate must be at least {2 * _MAX_TILT_HZ:g} Hz, got {clip.rate}")
    active = subject.once(activity).active
    sound = clip.samples[: round(active.size * HOP_S * clip.rate)].astype(np.float64)
    window = min(sound.size, round(0.04 * clip.rate))
    hop = round(HOP_S * clip.rate)
    if window <= hop:
        raise Undefined(f"a spectrum needs more than 10 ms, got {clip.duration * 1000:.0f} ms")
    hertz, times, lines = stft(sound, clip.rate, nperseg=window, noverlap=window - hop)
    # A hop is a whole number of samples, so it is not always exactly 10 ms.
    frames = np.round(times / HOP_S).astype(np.intp)
    inside = frames < active.size
    mean = np.square(np.abs(lines[:, inside][:, active[frames[inside]]])).mean(axis=1)
    centers = np.arange(math.log2(_MIN_TILT_HZ), math.log2(_MAX_TILT_HZ) + 1e-9, 1 / 3)
    bands = np.abs(np.log2(np.maximum(hertz, 1e-3))[None] - centers[:, None]) <= 1 / 6
    covered = bands.any(axis=1)
    levels = 10.0 * np.log10(np.maximum((bands @ mean)[covered] / bands.sum(axis=1)[covered], 1e-20))
    return float(np.polyfit(centers[covered], levels, 1)[0])
