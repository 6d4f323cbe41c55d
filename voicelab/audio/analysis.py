"""Acoustic analysis of a clip: pitch, energy, spectrogram, mel spectrogram, and a digest.

Definitions and values are those of librosa, reimplemented in NumPy because importing librosa takes longer than synthesis, and
its dependencies (numba, scikit-learn) need 230 MB of disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from voicelab.audio.paths import voiced_track
from voicelab.audio.samples import Sound
from voicelab.errors import ArgumentError

_FLOOR_DB = -120.0
# Sample rate of the pitch tracker in Hz: fast, and resolves 600 Hz to one cent.
_F0_RATE = 16_000
# A frame is voiced if its normalized autocorrelation at one period reaches this value, and its level is within
# this range of the loudest frame.
_VOICED_SIMILARITY, _VOICED_RANGE_DB = 0.6, 40.0

# YIN's absolute threshold on the normalized difference function.
_YIN_THRESHOLD = 0.1
_BINS_PER_SEMITONE = 10
# pYIN's probability that a frame is voiced though no dip is below the threshold.
_NO_DIP_BELOW = 0.01
_FRAMES_PER_BLOCK = 1024
# A frame of noise has 80 dips, each with 100 thresholds: at most 130 MB.
_F0_FRAMES_PER_BLOCK = 256
# Voiced runs shorter than this between F0 jumps are treated as tracking errors.
_VOICED_S = 0.05
_JUMP = 1.2

_Floats = npt.NDArray[np.float64]


def _frozen(values: npt.ArrayLike) -> _Floats:
    array = np.array(values, np.float64)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Contour:
    """One value per frame: ``times`` in seconds (frame centers) and ``values``, both of shape (frames,)."""

    times: _Floats
    values: _Floats
    unit: str

    @property
    def median(self) -> float:
        """Median of the finite values; NaN if there are none."""
        finite = self.values[np.isfinite(self.values)]
        return float(np.median(finite)) if finite.size else math.nan

    @property
    def share(self) -> float:
        """Fraction of frames with a finite value, 0 to 1; for a pitch contour, the voiced fraction."""
        return float(np.isfinite(self.values).mean()) if self.values.size else 0.0

    def __repr__(self) -> str:
        return f"Contour({self.values.size} frames, median {self.median:.1f} {self.unit}, {self.share:.0%} valued)"


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Level in dB by frequency and time: ``db`` has shape (frequencies, times); a full-scale sine reaches 0 dB.

    ``frequencies`` are in Hz (band centers for a mel spectrogram), ``times`` in seconds.
    """

    times: _Floats
    frequencies: _Floats
    db: _Floats

    def __repr__(self) -> str:
        bands, frames = self.db.shape
        top = self.frequencies[-1] if self.frequencies.size else 0.0
        return f"Spectrum({bands} bands to {top:.0f} Hz, {frames} frames)"


@dataclass(frozen=True, slots=True)
class Digest:
    """Acoustic summary of a clip, reproducible across machines within tolerances.

    ``duration`` in seconds, ``level`` in dBFS (-inf for silence), ``f0`` the median pitch in Hz (None if
    unvoiced), ``mel`` the mean levels in dB of eight mel bands between 80 Hz and 8 kHz.
    """

    duration: float
    level: float
    f0: float | None
    mel: tuple[float, ...]

    def __str__(self) -> str:
        pitch = "unvoiced" if self.f0 is None else f"F0 {self.f0:.0f} Hz"
        return f"{self.duration:.2f} s, {self.level:.1f} dBFS, {pitch}, mel {' '.join(f'{x:.0f}' for x in self.mel)} dB"

    def close_to(
        self, other: Digest, *, seconds: float = 0.05, db: float = 1.5, cents: float = 50.0, mel_db: float = 3.0
    ) -> bool:
        """Return whether two digests agree within tolerances; levels of -inf agree with each other."""
        if abs(self.duration - other.duration) > seconds or (self.f0 is None) != (other.f0 is None):
            return False
        if self.level != other.level and not abs(self.level - other.level) <= db:
            return False
        if self.f0 is not None and other.f0 is not None and abs(1200.0 * math.log2(self.f0 / other.f0)) > cents:
            return False
        return all(abs(a - b) <= mel_db for a, b in zip(self.mel, other.mel, strict=True))


def f0(
    clip: Sound, *, fmin: float = 60.0, fmax: float = 600.0, hop_s: float = 0.01, method: Literal["yin", "pyin"] = "yin"
) -> Contour:
    """Estimate the pitch contour in Hz, NaN in unvoiced frames.

    ``yin`` (de Cheveigné & Kawahara 2002) runs in milliseconds and decides voicing by the similarity of
    adjacent periods; ``pyin`` (Mauch & Dixon 2014) smooths the contour and decides voicing with a
    hidden Markov model, and takes about 30 ms per second of speech. Raises ArgumentError for invalid bounds.
    """
    if not 20.0 <= fmin < fmax <= _F0_RATE / 4 or not 0.001 <= hop_s <= 1.0:
        raise ArgumentError.of(
            "f0",
            f"must be 20 <= fmin < fmax <= {_F0_RATE // 4} Hz and 0.001 <= hop_s <= 1, got {fmin} to {fmax} Hz, {hop_s} s",
        )
    if method not in ("yin", "pyin"):
        raise ArgumentError.of("method", f"must be 'yin' or 'pyin', got {method!r}")
    frame = 2 ** math.ceil(math.log2(3.0 * _F0_RATE / fmin))
    hop = round(hop_s * _F0_RATE)
    samples = clip.resample(_F0_RATE).samples.astype(np.float64)
    if not samples.any():
        return Contour(_frozen([]), _frozen([]), "Hz")
    if method == "pyin":
        values = _pyin(samples, fmin, fmax, frame, hop)
    else:
        values = _yin(samples, fmin, fmax, frame, hop)
        values = np.where(_voiced(samples, values, frame, hop), values, np.nan)
    return Contour(_frozen(np.arange(len(values)) * hop / _F0_RATE), _frozen(values), "Hz")


def stable_f0(contour: Contour) -> Contour:
    """Set short runs between jumps of an F0 contour, such as octave errors of single frames, to NaN."""
    values, times = contour.values, contour.times
    with np.errstate(invalid="ignore"):
        step = np.abs(np.log(values[1:] / values[:-1])) <= np.log(_JUMP)  # False next to an unvoiced frame
    runs = np.split(np.arange(values.size), np.flatnonzero(~step) + 1)
    hop = float(times[1] - times[0]) if times.size > 1 else 0.0
    long = [run for run in runs if np.isfinite(values[run[:1]]).all() and run.size * hop >= _VOICED_S]
    if not long:
        return contour
    stable = np.full_like(values, np.nan)
    stable[np.concatenate(long)] = values[np.concatenate(long)]
    return replace(contour, values=_frozen(stable))


def _yin(samples: _Floats, fmin: float, fmax: float, frame: int, hop: int) -> _Floats:
    """Estimate the pitch of every frame by YIN (de Cheveigné & Kawahara 2002), equal to ``librosa.yin``."""
    min_lag = int(_F0_RATE / fmax)
    return _F0_RATE / np.concatenate([min_lag + _lags(dips) for dips in _dips(samples, fmin, min_lag, frame, hop)])


def _pyin(samples: _Floats, fmin: float, fmax: float, frame: int, hop: int) -> _Floats:
    """Track the pitch by pYIN (Mauch & Dixon 2014), NaN in unvoiced frames; equal to ``librosa.pyin``.

    Each dip of a frame's difference function is a candidate. The probability of each threshold (a beta distribution) is
    divided among the dips below the threshold; earlier dips get larger shares.
    """
    min_lag = int(_F0_RATE / fmax)
    bins = int(np.floor(12 * _BINS_PER_SEMITONE * np.log2(fmax / fmin))) + 1
    thresholds = np.linspace(0, 1, 101)
    priors = np.diff(1 - (1 - thresholds) ** 18 * (1 + 18 * thresholds))  # of the distribution Beta(2, 18)
    blocks = []
    for dips in _dips(samples, fmin, min_lag, frame, hop):
        row, lag = np.nonzero(_troughs(dips))
        depth = dips[row, lag]
        below = depth[:, None] < thresholds[1:]
        # Rank of each dip among the frame's dips below a threshold, and their number.
        begins = np.searchsorted(row, np.arange(len(dips) + 1))
        total: npt.NDArray[np.int64] = np.concatenate((np.zeros((1, 100), np.int64), np.cumsum(below, axis=0)))
        rank = np.asarray(total[1:] - total[begins[row]] - 1, np.float64)
        count = np.maximum((total[begins[1:]] - total[begins[:-1]])[row], 1.0)
        decay = np.where(below, np.exp(-2.0 * rank) * (1 - np.exp(-2.0)) / -np.expm1(-2.0 * count), 0.0)
        share = decay @ priors
        deepest = np.lexsort((lag, depth, row))[begins[:-1][np.diff(begins) > 0]]
        share[deepest] += _NO_DIP_BELOW * np.where(below[deepest], 0.0, priors).sum(axis=1)
        hertz = _F0_RATE / (min_lag + lag + _shifts(dips)[row, lag])
        index = np.clip(np.round(12 * _BINS_PER_SEMITONE * np.log2(hertz / fmin)), 0, bins).astype(np.intp)
        probabilities = np.zeros((len(dips), bins + 1))
        likely = share > 0
        probabilities[row[likely], index[likely]] = share[likely]
        blocks.append(probabilities[:, :bins])  # the last column has pitches above fmax
    width = 2 * min(_BINS_PER_SEMITONE * round(35.92 * 12 * hop / _F0_RATE) // 2, bins - 1) + 1
    track = voiced_track(np.concatenate(blocks), width, 0.01)
    return np.where(track < 0, np.nan, fmin * 2.0 ** (track / (12 * _BINS_PER_SEMITONE)))


def _dips(samples: _Floats, fmin: float, min_lag: int, frame: int, hop: int) -> Iterator[_Floats]:
    """Yield YIN's cumulative mean normalized difference at lags from `min_lag` on, as blocks of shape (frames, lags).

    Frames are centered at multiples of `hop`, with zeros before and after the samples.
    """
    frames = framed(np.pad(samples, frame // 2), frame, hop)
    max_lag = min(math.ceil(_F0_RATE / fmin), frame - 1)
    for start in range(0, len(frames), _F0_FRAMES_PER_BLOCK):
        yield _difference(frames[start : start + _F0_FRAMES_PER_BLOCK], max_lag)[:, min_lag - 1 :]


def _difference(frames: _Floats, max_lag: int) -> _Floats:
    """Compute YIN's cumulative mean normalized difference (equation 8) at lags of 1 to ``max_lag`` samples."""
    spectrum = np.fft.rfft(frames, 2 * frames.shape[1])
    similar = np.fft.irfft(np.square(spectrum.real) + np.square(spectrum.imag))[:, : max_lag + 1]
    difference = 2.0 * (similar[:, :1] - similar[:, 1:]) - np.cumsum(np.square(frames), axis=1)[:, :max_lag]
    mean = np.cumsum(difference, axis=1) / np.arange(1, max_lag + 1)
    return cast("_Floats", difference / (mean + np.finfo(np.float64).tiny))


def _lags(dips: _Floats) -> _Floats:
    """Estimate the period of every frame as a lag: the first dip below the threshold or else the minimum, interpolated."""
    trough = _troughs(dips) & (dips < _YIN_THRESHOLD)
    lag = np.where(trough.any(axis=1), trough.argmax(axis=1), dips.argmin(axis=1))
    return cast("_Floats", lag + _shifts(dips)[np.arange(len(dips)), lag])


def _troughs(dips: _Floats) -> npt.NDArray[np.bool_]:
    """Find the local minima of every frame."""
    trough = np.zeros(dips.shape, np.bool_)
    trough[:, 1:-1] = (dips[:, 1:-1] < dips[:, :-2]) & (dips[:, 1:-1] <= dips[:, 2:])
    trough[:, 0], trough[:, -1] = dips[:, 0] < dips[:, 1], dips[:, -1] < dips[:, -2]
    return trough


def _shifts(dips: _Floats) -> _Floats:
    """Return the offset from each lag to its parabola's minimum; 0 if this is not between the neighboring lags."""
    shifts = np.zeros(dips.shape)
    curve, slope = dips[:, 2:] + dips[:, :-2] - 2.0 * dips[:, 1:-1], (dips[:, 2:] - dips[:, :-2]) / 2.0
    np.divide(-slope, curve, out=shifts[:, 1:-1], where=np.abs(slope) < np.abs(curve))
    return shifts


def framed(samples: npt.NDArray[Any], frame: int, hop: int) -> npt.NDArray[Any]:
    """Return a view of the samples as overlapping frames, shape (frames, frame)."""
    return np.lib.stride_tricks.sliding_window_view(samples, frame)[::hop]


def _voiced(samples: _Floats, pitch: _Floats, frame: int, hop: int) -> npt.NDArray[np.bool_]:
    half = frame // 4
    longest = int(_F0_RATE / pitch.min()) + 1
    padded = np.pad(samples, (half, half + longest))
    similarity, power = np.zeros(len(pitch)), np.zeros(len(pitch))
    for index, hertz in enumerate(pitch):
        begin = index * hop
        lag = round(_F0_RATE / hertz)
        here, later = padded[begin : begin + 2 * half], padded[begin + lag : begin + lag + 2 * half]
        here = here[: later.size]
        power[index] = here @ here
        similarity[index] = (here @ later) / math.sqrt(power[index] * (later @ later) + 1e-12)
    loud = power > power.max() * 10.0 ** (-_VOICED_RANGE_DB / 10.0)
    return cast("npt.NDArray[np.bool_]", loud & (similarity >= _VOICED_SIMILARITY))


def energy(clip: Sound, *, window_s: float = 0.025, hop_s: float = 0.01) -> Contour:
    """Compute the RMS level in dBFS in a window around each frame, with a floor of -120."""
    window, hop = _frame_sizes(clip, window_s, hop_s)
    padded = np.pad(clip.samples.astype(np.float64), (window // 2, window))
    power = np.concatenate(([0.0], np.cumsum(np.square(padded))))
    begins = np.arange(0, max(1, len(clip)), hop)
    mean = np.maximum(power[begins + window] - power[begins], 0.0) / window
    level = np.maximum(10.0 * np.log10(np.maximum(mean, 1e-30)), _FLOOR_DB)
    return Contour(_frozen(begins / clip.rate), _frozen(level), "dBFS")


def spectrogram(clip: Sound, *, window_s: float = 0.025, hop_s: float = 0.005) -> Spectrum:
    """Compute the short-time spectrum in dB with a Hann window, shape (frequencies, frames)."""
    power, window, hop = _power(clip, window_s, hop_s)
    frequencies = np.fft.rfftfreq(window, 1.0 / clip.rate)
    return Spectrum(_frozen(np.arange(power.shape[1]) * hop / clip.rate), _frozen(frequencies), _frozen(_db(power)))


def mel(
    clip: Sound,
    *,
    bands: int = 80,
    fmin: float = 0.0,
    fmax: float | None = None,
    window_s: float = 0.04,
    hop_s: float = 0.01,
) -> Spectrum:
    """Compute the mel spectrogram in dB (Slaney's scale), shape (bands, frames).

    ``fmax`` is in Hz, None for half the sample rate. Raises ArgumentError for invalid bounds.
    """
    top = clip.rate / 2 if fmax is None else min(fmax, clip.rate / 2)
    if bands < 1 or not 0.0 <= fmin < top:
        raise ArgumentError.of(
            "mel", f"bands must be at least 1 and 0 <= fmin < fmax, got {bands} bands from {fmin} to {top} Hz"
        )
    power, window, hop = _power(clip, window_s, hop_s)
    edges = _hertz(np.linspace(_mels(fmin), _mels(top), bands + 2))
    frequencies = np.fft.rfftfreq(window, 1.0 / clip.rate)
    rise = (frequencies[None] - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - frequencies[None]) / np.diff(edges)[1:, None]
    weights = np.maximum(0.0, np.minimum(rise, fall))
    # Low bands may be narrower than the bin spacing of the spectrum; they use the nearest bin.
    for band in np.flatnonzero(weights.sum(axis=1) == 0.0):
        weights[band, np.argmin(np.abs(frequencies - edges[band + 1]))] = 1.0
    times = np.arange(power.shape[1]) * hop / clip.rate
    return Spectrum(_frozen(times), _frozen(edges[1:-1]), _frozen(_db(weights @ power)))


def _mels(hertz: float) -> float:
    """Convert Hz to mels by Slaney's scale (Auditory Toolbox, 1998): linear to 1000 Hz (15 mels), logarithmic above."""
    return hertz * 3.0 / 200.0 if hertz < 1000.0 else 15.0 + math.log(hertz / 1000.0) * 27.0 / math.log(6.4)


def _hertz(mels: _Floats) -> _Floats:
    return np.where(mels < 15.0, mels * 200.0 / 3.0, 1000.0 * np.exp((mels - 15.0) * math.log(6.4) / 27.0))


def digest(clip: Sound) -> Digest:
    """Compute the digest used to compare notebook outputs. Takes about 30 ms for 3 s of audio."""
    pitch = f0(clip).median
    bands = np.power(10.0, mel(clip, bands=8, fmin=80.0, fmax=8000.0).db / 10.0).mean(axis=1)
    return Digest(
        duration=round(clip.duration, 3),
        level=round(clip.level, 2),
        f0=None if math.isnan(pitch) else round(pitch, 1),
        mel=tuple(round(float(value), 1) for value in _db(bands)),
    )


def _frame_sizes(clip: Sound, window_s: float, hop_s: float) -> tuple[int, int]:
    if not 0.001 <= hop_s <= 1.0 or not 0.001 <= window_s <= 1.0:
        raise ArgumentError.of("window_s, hop_s", f"must be between 0.001 and 1 s, got {window_s} and {hop_s}")
    return max(2, round(window_s * clip.rate)), max(1, round(hop_s * clip.rate))


def _power(clip: Sound, window_s: float, hop_s: float) -> tuple[_Floats, int, int]:
    window, hop = _frame_sizes(clip, window_s, hop_s)
    # Pad with zeros: the signal outside the clip is silence.
    samples = np.pad(clip.samples, (window // 2, window // 2 + max(0, window - len(clip))))
    hann = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(window) / window)
    frames = framed(samples, window, hop)
    power: _Floats = np.empty((window // 2 + 1, len(frames)))
    for start in range(0, len(frames), _FRAMES_PER_BLOCK):
        spectrum = np.fft.rfft(hann * frames[start : start + _FRAMES_PER_BLOCK])
        # The peak magnitude of a full-scale sine is half the window's sum: for Hann, a quarter of its length.
        power[:, start : start + len(spectrum)] = np.square(np.abs(spectrum.T) / (window / 4.0))
    return power, window, hop


def _db(power: _Floats) -> _Floats:
    return cast("_Floats", np.maximum(10.0 * np.log10(np.maximum(power, 1e-30)), _FLOOR_DB))
