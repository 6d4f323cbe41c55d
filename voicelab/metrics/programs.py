"""Figures by the programs that published ones come from, to be compared with these: Praat's, and WORLD's cepstra."""

from __future__ import annotations

import math
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from voicelab.metrics.distances import dtw_distance
from voicelab.metrics.level import activity
from voicelab.metrics.metric import Subject, Undefined

_Floats = npt.NDArray[np.float64]

# What Praat's own windows propose: pitch floor and ceiling in Hz; the shortest and longest period in s, the largest factors
# between neighbouring periods and amplitudes.
_PITCH = (75.0, 600.0)
_PERIODS = (0.0001, 0.02, 1.3)
_AMPLITUDES = 1.6
# Of mel-cepstra: those of SPTK's and Merlin's recipes for 16 kHz.
_RATE, _HOP_S, _ORDER, _ALPHA = 16_000, 0.005, 24, 0.42


def _praat(subject: Subject, objects: list[Any], command: str, *values: object) -> Any:
    import parselmouth

    try:
        return parselmouth.praat.call(objects, command, *values)
    except parselmouth.PraatError as error:
        reason = str(error).strip().splitlines()[0]
        raise Undefined(f"Praat has no figure of {subject.clip.duration:.2f} s: {reason}") from error


def _sound(subject: Subject) -> Any:
    import parselmouth

    return parselmouth.Sound(subject.clip.samples.astype(np.float64), subject.clip.rate)


def _pulses(subject: Subject) -> Any:
    return _praat(subject, [subject.once(_sound)], "To PointProcess (periodic, cc)", *_PITCH)


def _defined(value: float, reason: str) -> float:
    if not math.isfinite(value):
        raise Undefined(reason)
    return value


def praat_jitter_local(subject: Subject) -> float:
    """Local jitter in percent, by Praat itself (P. Boersma & D. Weenink), with the settings that it proposes.

    Pulses by cross-correlation, 75 to 600 Hz. ``jitter`` is the same definition on voicelab's own pulses, 60 to 600 Hz.
    """
    share = _praat(subject, [subject.once(_pulses)], "Get jitter (local)", 0, 0, *_PERIODS)
    return _defined(100.0 * share, "no voiced stretch is long enough to compare its periods")


def praat_shimmer_local(subject: Subject) -> float:
    """Local shimmer in percent, by Praat itself, with the settings that it proposes; see ``praat_jitter_local``."""
    pulses = [subject.once(_sound), subject.once(_pulses)]
    share = _praat(subject, pulses, "Get shimmer (local)", 0, 0, *_PERIODS, _AMPLITUDES)
    return _defined(100.0 * share, "no voiced stretch is long enough to compare its amplitudes")


def praat_hnr(subject: Subject) -> float:
    """Mean harmonics-to-noise ratio of the voiced frames in dB, by Praat itself: cross-correlation, 75 Hz and up.

    P. Boersma, "Accurate short-term analysis of the fundamental frequency and the harmonics-to-noise ratio of a sampled
    sound", IFA Proceedings 17 (1993). 20 dB is a healthy sustained vowel; running speech has less.
    """
    harmonicity = _praat(subject, [subject.once(_sound)], "To Harmonicity (cc)", 0.01, _PITCH[0], 0.1, 1.0)
    return _defined(_praat(subject, [harmonicity], "Get mean", 0, 0), "nothing in the clip is voiced")


def praat_cpps(subject: Subject) -> float:
    """Smoothed cepstral peak prominence (CPPS) in dB, by Praat itself, with the settings that it proposes.

    J. Hillenbrand & R. A. Houde, "Acoustic correlates of breathy vocal quality: dysphonic voices and continuous speech",
    JSHR 39 (1996); Y. Maryn & D. Weenink, Journal of Voice 29 (2015). The whole clip counts, its pauses too: cut them out
    to compare clips with more and fewer of them.
    """
    cepstrogram = _praat(subject, [subject.once(_sound)], "To PowerCepstrogram", 60.0, 0.002, 5000.0, 50.0)
    settings = ("yes", 0.02, 0.0005, 60.0, 330.0, 0.05, "Parabolic", 0.001, 0.05, "Exponential decay", "Robust")
    return _defined(_praat(subject, [cepstrogram], "Get CPPS", *settings), "there is no cepstral peak")


def pyworld() -> Any:
    """Return the package of that name, which asks pkg_resources for its own version and for nothing else."""
    stand_in = ModuleType("pkg_resources")
    stand_in.get_distribution = lambda _: SimpleNamespace(version="")  # type: ignore[attr-defined]
    if "pyworld" not in sys.modules:
        with patch.dict(sys.modules, pkg_resources=stand_in):
            module = import_module("pyworld")
        sys.modules["pyworld"] = module
    return sys.modules["pyworld"]


def mel_cepstrum(power: _Floats, order: int = _ORDER, alpha: float = _ALPHA) -> _Floats:
    """Return mel-cepstra (frames, order + 1) of power spectra (frames, bins): SPTK's ``freqt`` of the cepstrum.

    A. V. Oppenheim & D. H. Johnson, "Discrete representation of signals", Proceedings of the IEEE 60 (1972). The first
    coefficient is the level.
    """
    cepstrum = np.fft.irfft(np.log(power), axis=1)[:, : power.shape[1]]
    cepstrum[:, [0, -1]] /= 2.0
    warped = np.zeros((len(power), order + 1))
    for column in cepstrum[:, ::-1].T:
        before, warped = warped, np.empty_like(warped)
        warped[:, 0] = column + alpha * before[:, 0]
        if order:
            warped[:, 1] = (1.0 - alpha**2) * before[:, 0] + alpha * before[:, 1]
        for place in range(2, order + 1):
            warped[:, place] = before[:, place - 1] + alpha * (before[:, place] - warped[:, place - 1])
    return warped


def _spoken_mel_cepstrum(subject: Subject) -> _Floats:
    if subject.clip.rate < _RATE:
        raise Undefined(f"spectra are compared up to 8 kHz, and a rate of {subject.clip.rate} Hz ends before")
    speech = subject.once(activity)
    world = pyworld()
    sound = subject.clip.resample(_RATE).samples.astype(np.float64)
    f0, times = world.harvest(sound, _RATE, frame_period=1000.0 * _HOP_S)
    power = world.cheaptrick(sound, f0, times, _RATE)
    first, last = round(speech.start / _HOP_S), round(speech.end / _HOP_S)
    return mel_cepstrum(power)[first:last, 1:]


def mcd(subject: Subject) -> float:
    """Mel-cepstral distortion (MCD) from the reference in dB, of WORLD's spectral envelopes, after dynamic time warping.

    10 sqrt(2) / ln 10 times the Euclidean distance of the coefficients 1 to 24, averaged over the path: R. F. Kubichek,
    IEEE PACRIM (1993). Envelopes by CheapTrick on Harvest's F0 every 5 ms (M. Morise et al., "WORLD", IEICE Transactions
    E99-D (2016)) at 16 kHz, warped with alpha 0.42; c0, the level, and silence at the ends are left out. Published figures
    differ in all of this, mostly in rate, order, c0 and silence: compare within one recipe, and name it.
    """
    ours, theirs = subject.once(_spoken_mel_cepstrum), subject.other.once(_spoken_mel_cepstrum)
    return dtw_distance(subject, ours.T, theirs.T)
