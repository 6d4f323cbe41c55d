"""How loud a clip is: level, peak, loudness by ITU-R BS.1770, noise; and where in it somebody speaks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from voicelab.metrics.metric import Subject, Undefined

_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]

HOP_S = 0.01
"""Seconds of one frame; frames do not overlap."""
_PER_SECOND = round(1 / HOP_S)
_BELOW_DB = 25.0
_ABOVE_NOISE_DB, _NEVER_WITHIN_DB = 6.0, 10.0
_INAUDIBLE = 1e-9
_SHORTEST_SOUND = 5
_SHORTEST_PAUSE_S = 0.25

# Recommendation ITU-R BS.1770-4, Annex 2: the interpolating filter of order 48 in four phases of twelve;
# the other two phases are these reversed.
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
# No interpolated value is larger than the largest sample under the filter times this.
_GAIN = float(np.abs(_FILTERS).sum(axis=1).max())
_PIECE = 1024
_OFFSET = -0.691
_ABSOLUTE_GATE, _RELATIVE_GATE = -70.0, -10.0
_NOISE_ROUNDS = 5


@dataclass(frozen=True, eq=False)
class Activity:
    """Speech and pauses: ``active`` (frames,) of 10 ms; ``pauses`` (count, 2), begin and end of each in seconds.

    ``start`` and ``end`` in seconds are of the first and last speech.
    """

    active: _Bools
    pauses: _Floats
    start: float
    end: float


def frame_powers(subject: Subject) -> _Floats:
    """Return the mean power of every 10 ms, shape (frames,); a last frame that is not full is left out.

    Where 10 ms are no whole number of samples, as at 22.05 kHz, a sample is left out between some of them, so that they
    keep the time. Raises Undefined for a clip shorter than a frame.
    """
    clip = subject.clip
    count = len(clip) * _PER_SECOND // clip.rate
    if not count:
        raise Undefined(f"{clip.duration * 1000:.1f} ms is too short to measure")
    size = max(1, clip.rate // _PER_SECOND)
    begins = np.arange(count) * clip.rate // _PER_SECOND
    frames = np.lib.stride_tricks.sliding_window_view(clip.samples, size)[begins]
    powers: _Floats = np.einsum("ij,ij->i", frames, frames).astype(np.float64) / size
    return powers


def smoothed(powers: _Floats) -> _Floats:
    """Return frame powers averaged over three frames."""
    return np.convolve(powers, np.full(3, 1 / 3), "same") if powers.size >= 3 else powers


def activity(subject: Subject) -> Activity:
    """Find speech by its level.

    A frame (smoothed over 30 ms) is speech unless it is more than 25 dB below the 99th percentile of all
    frames, the threshold of N. H. de Jong & T. Wempe, "Praat script to detect syllable nuclei and measure
    speech rate automatically", Behavior Research Methods 41 (2009); in noise, it must also be 6 dB above the
    5th percentile, if that leaves 10 dB. The first and the last frame of speech must be so without smoothing too. What
    sounds for less than 50 ms after smoothing is a click. A pause lies between two stretches of
    speech and lasts 0.25 s or longer, F. Goldman-Eisler's limit ("Psycholinguistics", 1968) between pauses and
    the silences of articulation.

    Raises Undefined for silence and for clips shorter than a frame.
    """
    powers = subject.once(frame_powers)
    smooth = smoothed(powers)
    peak, floor = np.quantile(smooth, (0.99, 0.05))
    if peak < _INAUDIBLE:
        raise Undefined("the clip is silent")
    below = np.array([_BELOW_DB, _NEVER_WITHIN_DB])
    quiet, loudest = peak * 10.0 ** (-below / 10.0)
    least = max(quiet, min(floor * 10.0 ** (_ABOVE_NOISE_DB / 10.0), loudest))
    begins, ends = runs(smooth >= least)
    sounding = ends - begins >= _SHORTEST_SOUND
    if sounding.any():  # otherwise the clicks are all there is
        begins, ends = begins[sounding], ends[sounding]
    # Smoothing lets a sound begin a frame early and end a frame late.
    begins += (powers[begins] < least) & (ends - begins > 2)
    ends -= (powers[ends - 1] < least) & (ends - begins > 2)
    active = np.zeros(powers.size + 1, np.int64)
    active[begins] += 1
    active[ends] -= 1
    gaps = np.asarray(np.stack([ends[:-1], begins[1:]], axis=1) * HOP_S, np.float64)
    long = gaps[:, 1] - gaps[:, 0] >= _SHORTEST_PAUSE_S - 1e-9
    return Activity(np.cumsum(active)[:-1] > 0, gaps[long], float(begins[0] * HOP_S), float(ends[-1] * HOP_S))


def runs(flags: _Bools) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return where stretches of true begin, and the places after their ends, (stretches,) each."""
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def duration(subject: Subject) -> float:
    """Length of the clip in seconds, silence at its ends included."""
    return subject.clip.duration


def level(subject: Subject) -> float:
    """Root-mean-square level of the whole clip in dBFS: a square wave of full scale is 0, a sine -3.01.

    AES17-2020 counts a full-scale sine as 0 instead; add 3.01 dB to compare. Undefined for silence.
    """
    return _decibels(subject.clip.level)


def peak(subject: Subject) -> float:
    """Largest absolute sample in dBFS. Undefined for silence."""
    largest = subject.clip.peak
    return 20.0 * math.log10(largest) if largest > 0.0 else _decibels(-math.inf)


def true_peak(subject: Subject) -> float:
    """True peak in dBTP: the largest absolute value after oversampling by four.

    Recommendation ITU-R BS.1770-4 (2015), Annex 2, with the filter printed there, which reads steady
    sines from 0.1 dB too low to 0.2 dB too high. A sample of the clip itself counts too, so that the
    figure is never below the sample peak. Undefined for silence.
    """
    best = subject.clip.peak
    if best == 0.0:
        return _decibels(-math.inf)
    # Silence goes on before and after.
    samples = np.pad(subject.clip.samples, _TAPS - 1)
    windows = np.lib.stride_tricks.sliding_window_view(samples, _TAPS)
    # Only a window with a sample large enough can hold a value above the largest sample.
    large = np.flatnonzero((samples >= best / _GAIN) | (samples <= -best / _GAIN))
    wanted = np.zeros(len(windows), bool)
    for shift in range(_TAPS):
        wanted[large - shift] = True
    begins = np.flatnonzero(wanted)
    # Small pieces, which the allocator has at hand.
    for first in range(0, begins.size, _PIECE):
        values = windows[begins[first : first + _PIECE]].astype(np.float64) @ _FILTERS[:, ::-1].T
        best = max(best, float(np.abs(values).max()))
    return 20.0 * math.log10(best)


def loudness(subject: Subject) -> float:
    """Integrated loudness in LUFS of the clip as one channel.

    Recommendation ITU-R BS.1770-4 (2015), Annex 1: K-weighting (the filters of pyloudnorm, C. J. Steinmetz &
    J. D. Reiss, AES 150 (2021), in B. De Man's form, which meets the standard's at 48 kHz), blocks of 0.4 s
    overlapping by 75 %, gated at -70 LUFS and at 10 LU below their mean. A sine of 997 Hz at full scale is
    -3.01 LUFS; the same sound on two loudspeakers is 3.01 LU louder. Undefined for a clip shorter than a
    block and for one that is below the gate throughout.
    """
    from scipy.signal import lfilter

    clip = subject.clip
    if clip.duration < 0.4:
        raise Undefined(f"loudness needs a block of 0.4 s, and the clip has {clip.duration:.3f} s")
    if clip.rate < 8000:
        raise Undefined(f"loudness needs a rate of 8 kHz or more, and the clip has {clip.rate} Hz")
    numerator, denominator = _k_weighting(clip.rate)
    # Every block is four tenths of a second: sums of tenths serve for all blocks.
    edges = np.round(np.arange(int(clip.duration * 10 + 1e-9) + 1) * clip.rate / 10).astype(np.int64)
    weighted = lfilter(numerator, denominator, clip.samples[: edges[-1]])
    tenths = np.add.reduceat(np.square(weighted, out=weighted), edges[:-1])
    blocks = np.convolve(tenths, np.ones(4), "valid") / (edges[4:] - edges[:-4])
    audible = blocks[blocks > 10.0 ** ((_ABSOLUTE_GATE - _OFFSET) / 10.0)]
    if not audible.size:
        raise Undefined("the clip is quieter than the gate of -70 LUFS throughout")
    kept = audible[audible > audible.mean() * 10.0 ** (_RELATIVE_GATE / 10.0)]
    return _OFFSET + 10.0 * math.log10(float(kept.mean()))


@lru_cache(maxsize=16)
def _k_weighting(rate: int) -> tuple[_Floats, _Floats]:
    """Return the numerator and denominator of the K-weighting at a rate, both stages in one."""
    from pyloudnorm import IIRfilter

    # The gain in dB, Q and frequency in Hz of B. De Man's form.
    shelf = IIRfilter(3.99984385397, 0.7071752369554193, 1681.9744509555319, rate, "high_shelf_DeMan")
    high_pass = IIRfilter(0.0, 0.5003270373253953, 38.13547087613982, rate, "high_pass_DeMan")
    return np.convolve(shelf.b, high_pass.b), np.convolve(shelf.a, high_pass.a)


def snr(subject: Subject) -> float:
    """Estimate the signal-to-noise ratio in dB from the clip alone.

    Noise is the mean power of the 10 ms frames (smoothed over 30 ms) less than 3 dB above it, found from the quietest
    tenth of all: of much pause, that tenth is its quietest moments alone. The signal is the mean power of the frames
    at least 3 dB above the noise and within 25 dB of the loudest, less the noise. Energy-based, as are the
    estimates of the NIST Speech Quality Assurance package (1992). It holds to within about 1 dB from 5 dB on, for
    steady noise and a clip that has pauses, or silence at its ends, for a tenth of its length; otherwise it is too low,
    since quiet speech is taken for noise. At 0 dB it says 2.5 dB, and seldom less than 0.5 below that: only what rises
    3 dB above the noise counts as signal. Undefined when the quietest tenth is digital silence: then there is no noise to
    compare with.
    """
    powers = subject.once(frame_powers)
    noise = float(np.sort(powers)[: max(1, powers.size // 10)].mean())
    smooth = smoothed(powers)
    for _ in range(_NOISE_ROUNDS):
        quiet = powers[smooth < 2.0 * noise]
        noise = float(quiet.mean()) if quiet.size else noise
    if noise < 1e-10:
        raise Undefined("the pauses are digital silence, so there is no noise to compare with")
    speech = powers[smooth >= max(2.0 * noise, float(np.quantile(smooth, 0.99)) * 10.0 ** (-2.5))]
    signal = float(speech.mean()) - noise if speech.size else 0.0
    if signal <= 0.0:
        raise Undefined("nothing rises above the noise")
    return 10.0 * math.log10(signal / noise)


def _decibels(value: float) -> float:
    if not math.isfinite(value):
        raise Undefined("the clip is silent")
    return value
