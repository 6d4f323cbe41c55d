"""How loud a clip is: level, peak, loudness by ITU-R BS.1770, and how far speech is above the noise."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from voicelab.experiments.metrics.activity import frame_powers, smoothed
from voicelab.experiments.metrics.metric import Subject, Undefined

__all__ = ["duration", "level", "loudness", "peak", "snr", "true_peak"]

_Floats = npt.NDArray[np.float64]

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
_PIECE, _TENTHS = 1024, 4
_OFFSET = -0.691
_ABSOLUTE_GATE, _RELATIVE_GATE = -70.0, -10.0
_NOISE_ROUNDS = 5


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
    samples = subject.clip.samples
    best = subject.clip.peak
    if best == 0.0:
        return _decibels(-math.inf)
    # Only a window with a sample large enough can hold a value above the largest sample.
    least = best / _GAIN
    # Silence goes on before and after; only the ends are copied for it.
    silence = np.zeros(_TAPS - 1, np.float32)
    if samples.size < _TAPS:
        samples = np.concatenate((silence, samples, silence))
    for part in (samples, np.concatenate((silence, samples[:_TAPS])), np.concatenate((samples[-_TAPS:], silence))):
        best = max(best, _between(part, least))
    return 20.0 * math.log10(best)


def _between(samples: npt.NDArray[np.float32], least: float) -> float:
    """Return the largest value between samples, of windows that lie inside and have one of ``least`` or more."""
    if samples.size < _TAPS:
        return 0.0
    large = np.flatnonzero((samples >= least) | (samples <= -least))
    wanted = np.zeros(samples.size + _TAPS, bool)
    for shift in range(_TAPS):
        wanted[large + shift] = True
    begins = np.flatnonzero(wanted[_TAPS - 1 : samples.size])
    windows = np.lib.stride_tricks.sliding_window_view(samples, _TAPS)
    best = 0.0
    # Small pieces, which the allocator has at hand.
    for first in range(0, begins.size, _PIECE):
        piece = windows[begins[first : first + _PIECE]].astype(np.float64) @ _FILTERS[:, ::-1].T
        best = max(best, float(piece.max()), -float(piece.min()))
    return best


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
    state = np.zeros(denominator.size - 1)
    # Every block is four tenths of a second: sums of tenths serve for all blocks.
    edges = np.round(np.arange(int(clip.duration * 10 + 1e-9) + 1) * clip.rate / 10).astype(np.int64)
    sums = []
    # A few tenths at a time: new memory for a whole clip takes as long as the arithmetic on it.
    for first in range(0, edges.size - 1, _TENTHS):
        here = edges[first : first + _TENTHS + 1]
        weighted, state = lfilter(numerator, denominator, clip.samples[here[0] : here[-1]], zi=state)
        sums.append(np.add.reduceat(np.square(weighted, out=weighted), here[:-1] - here[0]))
    tenths = np.concatenate(sums)
    blocks = np.convolve(tenths, np.ones(4), "valid") / (edges[4:] - edges[:-4])
    heard = blocks[blocks > 10.0 ** ((_ABSOLUTE_GATE - _OFFSET) / 10.0)]
    if not heard.size:
        raise Undefined("the clip is quieter than the gate of -70 LUFS throughout")
    kept = heard[heard > heard.mean() * 10.0 ** (_RELATIVE_GATE / 10.0)]
    return _OFFSET + 10.0 * math.log10(float(kept.mean()))


@lru_cache(maxsize=16)
def _k_weighting(rate: int) -> tuple[_Floats, _Floats]:
    from pyloudnorm import Meter

    numerator, denominator = np.ones(1), np.ones(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stages = list(Meter(rate, filter_class="DeMan")._filters.values())  # noqa: SLF001 - no public way to them
    for stage in stages:
        numerator = np.convolve(numerator, stage.passband_gain * np.asarray(stage.b))
        denominator = np.convolve(denominator, stage.a)
    return numerator, denominator


def snr(subject: Subject) -> float:
    """Estimate the signal-to-noise ratio in dB from the clip alone.

    Noise is the mean power of the 10 ms frames (smoothed over 30 ms) less than 3 dB above it, found from the quietest
    tenth of all: of much pause, that tenth is its quietest moments alone. The signal is the mean power of the frames
    at least 3 dB above the noise and within 25 dB of the loudest, less the noise. Energy-based, as are the
    estimates of the NIST Speech Quality Assurance package (1992). It holds to within about 1 dB from 5 dB on, for
    steady noise and a clip that has pauses, or silence at its ends, for a tenth of its length; otherwise it is too low,
    since quiet speech is taken for noise. Undefined when the quietest tenth is
    digital silence: then there is no noise to compare with.
    """
    powers = subject.once(frame_powers)
    noise = float(np.sort(powers)[: max(1, powers.size // 10)].mean())
    if noise < 1e-10:
        raise Undefined("the pauses are digital silence, so there is no noise to compare with")
    smooth = smoothed(powers)
    for _ in range(_NOISE_ROUNDS):
        quiet = powers[smooth < 2.0 * noise]
        noise = float(quiet.mean()) if quiet.size else noise
    speech = powers[smooth >= max(2.0 * noise, float(np.quantile(smooth, 0.99)) * 10.0 ** (-2.5))]
    signal = float(speech.mean()) - noise if speech.size else 0.0
    if signal <= 0.0:
        raise Undefined("nothing rises above the noise")
    return 10.0 * math.log10(signal / noise)


def _decibels(value: float) -> float:
    if not math.isfinite(value):
        raise Undefined("the clip is silent")
    return value
