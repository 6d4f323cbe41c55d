"""Metrics by reference programs, for comparison with published figures: Praat and WORLD."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from voicelab.metrics.distances import dtw_distance
from voicelab.metrics.level import activity
from voicelab.metrics.metric import Subject, Undefined

_Floats = npt.NDArray[np.float64]

# Praat's defaults: pitch range in Hz; minimum and maximum period in s and maximum period factor; maximum amplitude factor.
_PITCH = (75.0, 600.0)
_PERIODS = (0.0001, 0.02, 1.3)
_AMPLITUDE_FACTOR = 1.6
# Mel-cepstral parameters of the SPTK and Merlin recipes for 16 kHz.
_RATE, _HOP_S, _ORDER, _ALPHA = 16_000, 0.005, 24, 0.42


def _praat(subject: Subject, objects: list[Any], command: str, *values: object) -> Any:
    import parselmouth

    try:
        return parselmouth.praat.call(objects, command, *values)
    except parselmouth.PraatError as error:
        reason = str(error).strip().splitlines()[0]
        raise Undefined(f"Praat failed on a clip of {subject.clip.duration:.2f} s: {reason}") from error


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
    """Local jitter in percent by Praat (P. Boersma & D. Weenink) with its default settings.

    Praat finds pulses by cross-correlation, 75 to 600 Hz; ``jitter`` has the same definition on voicelab's pulses, 60 to 600
    Hz.
    """
    share = _praat(subject, [subject.once(_pulses)], "Get jitter (local)", 0, 0, *_PERIODS)
    return _defined(100.0 * share, "no voiced interval is long enough to compare its periods")


def praat_shimmer_local(subject: Subject) -> float:
    """Local shimmer in percent by Praat with its default settings; see ``praat_jitter_local``."""
    pulses = [subject.once(_sound), subject.once(_pulses)]
    share = _praat(subject, pulses, "Get shimmer (local)", 0, 0, *_PERIODS, _AMPLITUDE_FACTOR)
    return _defined(100.0 * share, "no voiced interval is long enough to compare its amplitudes")


def praat_hnr(subject: Subject) -> float:
    """Mean harmonics-to-noise ratio of the voiced frames in dB by Praat: cross-correlation from 75 Hz.

    P. Boersma, "Accurate short-term analysis of the fundamental frequency and the harmonics-to-noise ratio of a sampled
    sound", IFA Proceedings 17 (1993). Healthy sustained vowels have about 20 dB, running speech less.
    """
    harmonicity = _praat(subject, [subject.once(_sound)], "To Harmonicity (cc)", 0.01, _PITCH[0], 0.1, 1.0)
    return _defined(_praat(subject, [harmonicity], "Get mean", 0, 0), "no frame is voiced")


def praat_cpps(subject: Subject) -> float:
    """Smoothed cepstral peak prominence (CPPS) in dB by Praat with its default settings.

    J. Hillenbrand & R. A. Houde, "Acoustic correlates of breathy vocal quality: dysphonic voices and continuous speech",
    JSHR 39 (1996); Y. Maryn & D. Weenink, Journal of Voice 29 (2015). Pauses affect the value: remove them to compare clips
    with different pauses.
    """
    cepstrogram = _praat(subject, [subject.once(_sound)], "To PowerCepstrogram", 60.0, 0.002, 5000.0, 50.0)
    settings = ("yes", 0.02, 0.0005, 60.0, 330.0, 0.05, "Parabolic", 0.001, 0.05, "Exponential decay", "Robust")
    return _defined(_praat(subject, [cepstrogram], "Get CPPS", *settings), "there is no cepstral peak")


def import_versioned(name: str) -> Any:
    """Import a module that reads only its own version from pkg_resources, which setuptools 82 and later lack."""
    with stub_module("pkg_resources", get_distribution=lambda _: SimpleNamespace(version="")):
        return import_module(name)


@contextmanager
def stub_module(name: str, **attributes: object) -> Iterator[None]:
    """Replace a module with a stub during a ``with`` block that imports other modules."""
    module, stub = sys.modules.get(name), ModuleType(name)
    vars(stub).update(attributes)
    sys.modules[name] = stub
    try:
        yield
    finally:
        del sys.modules[name]
        if module is not None:
            sys.modules[name] = module


def mel_cepstrum(power: _Floats, order: int = _ORDER, alpha: float = _ALPHA) -> _Floats:
    """Compute mel-cepstra (frames, order + 1) of power spectra (frames, bins), like SPTK's ``freqt``; c0 is the level.

    A. V. Oppenheim & D. H. Johnson, "Discrete representation of signals", Proceedings of the IEEE 60 (1972).
    """
    cepstrum = np.fft.irfft(np.log(power), axis=1)[:, : power.shape[1]]
    cepstrum[:, [0, -1]] /= 2.0
    warped = np.zeros((len(power), order + 1))
    for column in cepstrum[:, ::-1].T:
        previous, warped = warped, np.empty_like(warped)
        warped[:, 0] = column + alpha * previous[:, 0]
        if order:
            warped[:, 1] = (1.0 - alpha**2) * previous[:, 0] + alpha * previous[:, 1]
        for index in range(2, order + 1):
            warped[:, index] = previous[:, index - 1] + alpha * (previous[:, index] - warped[:, index - 1])
    return warped


def _speech_mel_cepstrum(subject: Subject) -> _Floats:
    if subject.clip.rate < _RATE:
        raise Undefined(f"the rate must be at least {_RATE} Hz to compare spectra up to 8 kHz, got {subject.clip.rate}")
    speech = subject.once(activity)
    world = import_versioned("pyworld")
    sound = subject.clip.resample(_RATE).samples.astype(np.float64)
    f0, times = world.harvest(sound, _RATE, frame_period=1000.0 * _HOP_S)
    power = world.cheaptrick(sound, f0, times, _RATE)
    onset, offset = round(speech.start / _HOP_S), round(speech.end / _HOP_S)
    return mel_cepstrum(power)[onset:offset, 1:]


def mcd(subject: Subject) -> float:
    """Mel-cepstral distortion (MCD) of WORLD's spectral envelopes from the reference in dB, after dynamic time warping.

    10 sqrt(2) / ln 10 times the Euclidean distance of the coefficients 1 to 24, averaged over the path: R. F. Kubichek,
    IEEE PACRIM (1993). Envelopes are estimated by CheapTrick from Harvest's F0 every 5 ms (M. Morise et al., "WORLD",
    IEICE Transactions E99-D (2016)) at 16 kHz, and warped with alpha 0.42. The level, c0, and silence at the ends are
    excluded. Published figures differ in all these settings, mostly in rate, order, c0 and silence, so only compare
    values that were computed with the same settings.
    """
    ours, theirs = subject.once(_speech_mel_cepstrum), subject.other.once(_speech_mel_cepstrum)
    return dtw_distance(subject, ours.T, theirs.T)
