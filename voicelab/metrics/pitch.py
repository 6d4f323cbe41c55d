"""What the voice does: pitch, its regularity, and the slope of its spectrum."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import Contour, f0
from voicelab.metrics.level import HOP_S, activity, runs
from voicelab.metrics.metric import Subject, Undefined

_Floats = npt.NDArray[np.float64]

_LOWEST_HZ, _HIGHEST_HZ = 60.0, 600.0
_PERIODS_AT_LEAST = 3
_OCTAVES_FROM_HZ, _OCTAVES_TO_HZ = 100.0, 8000.0
# Praat's limits: neighbouring periods that differ more are a mistake of the measurement, not of the voice.
_PERIOD_FACTOR, _AMPLITUDE_FACTOR = 1.3, 1.6
_PULSE_RATE = 48_000
_PULSE_HOP = round(HOP_S * _PULSE_RATE)
_LEAST_LIKENESS = 0.7


def contour(subject: Subject) -> Contour:
    """Return the pitch in Hz every 10 ms by pyin, 60 to 600 Hz, NaN where nothing is voiced.

    M. Mauch & S. Dixon, "pYIN: A fundamental frequency estimator using probabilistic threshold distributions",
    ICASSP (2014), as librosa has it: in steps of 0.1 semitone (0.6 %), so that a figure of one frame is up to 0.05
    semitones off, and medians of clips may be equal to the last digit.
    """
    return f0(subject.clip, fmin=_LOWEST_HZ, fmax=_HIGHEST_HZ, hop_s=HOP_S, method="pyin")


def _voiced(subject: Subject) -> _Floats:
    values = subject.once(contour).values
    voiced: _Floats = values[np.isfinite(values)]
    if not voiced.size:
        raise Undefined("nothing in the clip is voiced")
    return voiced


def _semitones(subject: Subject) -> _Floats:
    semitones: _Floats = 12.0 * np.log2(_voiced(subject))
    return semitones


def f0_median(subject: Subject) -> float:
    """Median of the voiced frames' pitch in Hz (see ``contour``)."""
    return float(np.median(_voiced(subject)))


def f0_geometric_mean(subject: Subject) -> float:
    """Geometric mean of the voiced frames' pitch in Hz: the mean in semitones, turned back into Hz (see ``contour``).

    Published means are mostly arithmetic, which are a little higher: of speech with an sd of 3 semitones, by 1.5 %.
    """
    return float(2.0 ** (_semitones(subject).mean() / 12.0))


def f0_sd(subject: Subject) -> float:
    """Standard deviation of the voiced frames' pitch in semitones (see ``contour``).

    In semitones, because intonation is heard and made on a logarithmic scale: F. Nolan, "Intonational equivalence:
    an experimental evaluation of pitch scales", ICPhS (2003).
    """
    values = _semitones(subject)
    if values.size < 2:
        raise Undefined("a single voiced frame has no spread")
    return float(values.std(ddof=1))


def f0_range(subject: Subject) -> float:
    """Distance in semitones between the 5th and 95th percentile of the voiced frames' pitch (see ``contour``)."""
    low, high = np.quantile(_semitones(subject), (0.05, 0.95))
    return float(high - low)


def voiced_share(subject: Subject) -> float:
    """Share of the frames with speech that are voiced, 0 to 1 (see ``contour`` and ``activity``)."""
    active = subject.once(activity).active
    voiced = np.isfinite(subject.once(contour).values)
    count = min(active.size, voiced.size)
    return float(voiced[:count][active[:count]].mean())


def _sound(subject: Subject) -> _Floats:
    return subject.clip.resample(_PULSE_RATE).samples.astype(np.float64)


def pulses(subject: Subject) -> list[_Floats]:
    """Return stretches of glottal pulses, each of shape (count, 2): time in seconds and amplitude.

    From the largest peak of a voiced stretch, forward and backward, each next pulse is where the waveform of one
    period repeats itself best, 0.8 to 1.25 periods on: the cross-correlation method of P. Boersma, "Should jitter be
    measured by peak picking or by waveform matching?", Folia Phoniatrica et Logopaedica 61 (2009), between samples by
    a parabola. Where it repeats itself nowhere in there, or with a correlation below 0.7, Praat's limit for the edge of
    a voiced interval, the pulses end, and what is left of the voiced stretch is searched from its own largest peak.
    The amplitude is the root mean square of the period around a pulse.
    """
    pitch = subject.once(contour)
    sound = subject.once(_sound)
    periods = _PULSE_RATE / pitch.values
    voiced = zip(*runs(np.isfinite(periods)), strict=True)
    parts = [(int(first) * _PULSE_HOP, min(int(last) * _PULSE_HOP, sound.size)) for first, last in voiced]
    stretches = []
    while parts:
        begin, end = parts.pop()
        if begin >= end:
            continue
        start = begin + int(np.argmax(np.abs(sound[begin:end])))
        period = float(periods[start // _PULSE_HOP])
        if end - begin <= (_PERIODS_AT_LEAST + 1) * period:
            continue
        back, on = (_follow(sound, start, (begin, end), periods, way) for way in (-1, 1))
        places = [*reversed(back), float(start), *on]
        if len(places) > _PERIODS_AT_LEAST:
            stretches.append(np.array([(place / _PULSE_RATE, _amplitude(sound, place, periods)) for place in places]))
        parts += [(begin, int(places[0] - period / 2)), (int(places[-1] + period / 2), end)]
    return stretches


def _follow(sound: _Floats, start: int, within: tuple[int, int], periods: _Floats, way: int) -> list[float]:
    """Return the places of the pulses after ``start`` (``way`` 1) or before it (-1), in samples, nearest first."""
    places: list[float] = []
    place = float(start)
    while True:
        period = float(periods[int(place) // _PULSE_HOP])
        shortest, longest, half = int(0.8 * period), math.ceil(1.25 * period), int(period / 2)
        here = round(place)
        first = here + (shortest if way > 0 else -longest)
        last = first + longest - shortest
        if min(here, first) < half or max(here, last) + half > sound.size:
            return places
        window = sound[here - half : here + half]
        others = np.lib.stride_tricks.sliding_window_view(sound[first - half : last + half], window.size)
        likeness = (others @ window) / np.sqrt(np.einsum("ij,ij->i", others, others) * (window @ window) + 1e-20)
        best = int(np.argmax(likeness))
        # At the border of the range the likeness still grows beyond it: no period, but what the waveform's decay makes.
        if best in (0, likeness.size - 1) or likeness[best] < _LEAST_LIKENESS:
            return places
        left, middle, right = likeness[best - 1 : best + 2]
        bend = left - 2.0 * middle + right
        # The window moves by whole samples, so the pulse keeps its place between them.
        place += first - here + best + (0.5 * (left - right) / bend if bend < 0.0 else 0.0)
        if not within[0] <= place < within[1]:
            return places
        places.append(place)


def _amplitude(sound: _Floats, place: float, periods: _Floats) -> float:
    here, half = round(place), int(periods[int(place) // _PULSE_HOP] / 2)
    return float(np.sqrt(np.mean(np.square(sound[max(0, here - half) : here + half]))))


def jitter(subject: Subject) -> float:
    """Local jitter in percent: the mean difference of neighbouring periods over the mean period.

    As Praat defines it ("jitter (local)", P. Boersma & D. Weenink): periods that differ by more than a factor
    of 1.3 are left out. Measured on ``pulses``; meant for sustained vowels, in running speech intonation adds
    to it.
    """
    periods = [np.diff(stretch[:, 0]) for stretch in subject.once(pulses)]
    return _share([_neighbours(own, own, _PERIOD_FACTOR) for own in periods], periods)


def shimmer_local(subject: Subject) -> float:
    """Local shimmer in percent: the mean difference of neighbouring pulses' amplitudes over the mean amplitude.

    "Shimmer (local)" as Praat has it (P. Boersma & D. Weenink): the amplitude is the root mean square under a Hann
    window that reaches 0.2 periods to each side of the pulse; pulses whose periods before and after differ by more than
    a factor of 1.3 have none, and amplitudes that differ by more than 1.6 are not compared. Measured on ``pulses``.
    """
    sound = subject.once(_sound)
    differences, sizes = [], []
    for stretch in subject.once(pulses):
        lengths = np.diff(stretch[:, 0])
        regular = np.abs(np.log(lengths[1:] / lengths[:-1])) <= math.log(_PERIOD_FACTOR)
        middle = zip(stretch[1:-1, 0][regular], lengths[:-1][regular], lengths[1:][regular], strict=True)
        amplitudes = np.array([_peak_amplitude(sound, *pulse) for pulse in middle])
        differences.append(_neighbours(amplitudes, np.ones(amplitudes.size), _PERIOD_FACTOR, _AMPLITUDE_FACTOR))
        sizes.append(amplitudes)
    return _share(differences, sizes)


def _peak_amplitude(sound: _Floats, seconds: float, before: float, after: float) -> float:
    """Return the amplitude of the pulse at ``seconds`` by a Hann window of 0.2 of the periods ``before`` and ``after``."""
    first, last = (max(0, round(edge * _PULSE_RATE)) for edge in (seconds - 0.2 * before, seconds + 0.2 * after))
    away = np.arange(first, min(last + 1, sound.size)) / _PULSE_RATE - seconds
    phase = np.clip(away / np.where(away < 0.0, 0.2 * before, 0.2 * after), -1.0, 1.0)
    weights = np.square(0.5 + 0.5 * np.cos(np.pi * phase))
    return float(np.sqrt(np.square(sound[first : first + away.size]) @ weights / weights.sum()))


def shimmer_rms(subject: Subject) -> float:
    """Shimmer in percent of whole periods: the mean difference of neighbouring periods' levels over the mean level.

    As ``shimmer_local``, but with the root mean square of the whole period around a pulse as its amplitude, which noise
    and formants move less: the figure is lower, and not to be compared with Praat's.
    """
    periods = [(stretch[:-1, 1], np.diff(stretch[:, 0])) for stretch in subject.once(pulses)]
    differences = [_neighbours(*own, _PERIOD_FACTOR, _AMPLITUDE_FACTOR) for own in periods]
    return _share(differences, [amplitudes for amplitudes, _ in periods])


def _neighbours(values: _Floats, lengths: _Floats, factor: float, own: float = math.inf) -> _Floats:
    alike = np.abs(np.log(lengths[1:] / lengths[:-1])) <= math.log(factor)
    alike &= np.abs(np.log(np.maximum(values[1:], 1e-12) / np.maximum(values[:-1], 1e-12))) <= math.log(own)
    steps: _Floats = np.abs(np.diff(values))[alike]
    return steps


def _share(differences: list[_Floats], values: list[_Floats]) -> float:
    if not values or not (steps := np.concatenate(differences)).size:
        raise Undefined("no voiced stretch is long enough to compare its periods")
    return 100.0 * float(steps.mean() / np.concatenate(values).mean())


def spectral_tilt(subject: Subject) -> float:
    """Slope of the long-term average spectrum in dB per octave, 100 Hz to 8 kHz, over the frames with speech.

    The power per Hz is averaged in thirds of an octave and a straight line laid through the levels by least
    squares, so that white noise has 0 and pink noise -3.01; speech has -6 to -12, the less the brighter or more
    pressed the voice: G. Fant, "Acoustic Theory of Speech Production" (1960). Undefined below a rate of 16 kHz,
    where the octaves would be others.
    """
    from scipy.signal import stft

    clip = subject.clip
    if clip.rate < 2 * _OCTAVES_TO_HZ:
        raise Undefined(f"the spectrum is measured up to 8 kHz, and a rate of {clip.rate} Hz ends before")
    active = subject.once(activity).active
    sound = clip.samples[: round(active.size * HOP_S * clip.rate)].astype(np.float64)
    window = min(sound.size, round(0.04 * clip.rate))
    hop = round(HOP_S * clip.rate)
    if window <= hop:
        raise Undefined(f"{clip.duration * 1000:.0f} ms is too short for a spectrum")
    hertz, times, lines = stft(sound, clip.rate, nperseg=window, noverlap=window - hop)
    # A hop of whole samples need not be 10 ms.
    frames = np.round(times / HOP_S).astype(np.intp)
    inside = frames < active.size
    mean = np.square(np.abs(lines[:, inside][:, active[frames[inside]]])).mean(axis=1)
    middles = np.arange(math.log2(_OCTAVES_FROM_HZ), math.log2(_OCTAVES_TO_HZ) + 1e-9, 1 / 3)
    near = np.abs(np.log2(np.maximum(hertz, 1e-3))[None] - middles[:, None]) <= 1 / 6
    covered = near.any(axis=1)
    levels = 10.0 * np.log10(np.maximum((near @ mean)[covered] / near.sum(axis=1)[covered], 1e-20))
    return float(np.polyfit(middles[covered], levels, 1)[0])
