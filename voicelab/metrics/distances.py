"""Comparison with a reference: distances of cepstra and F0 after time warping, intelligibility, and quality."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import mel
from voicelab.audio.paths import warping_path
from voicelab.metrics.level import HOP_S, activity
from voicelab.metrics.metric import Subject, Undefined
from voicelab.metrics.pitch import contour
from voicelab.metrics.words import other_words

_Floats = npt.NDArray[np.float64]
_Path = tuple[npt.NDArray[np.intp], _Floats]

_RATE = 16_000
_BANDS, _ORDER = 80, 24
_DYNAMIC_DB = 60.0
_DECIBELS = 10.0 * math.sqrt(2.0) / math.log(10.0)
# Limit on pairs of frames, at 9 bytes of cost and step each: 225 MB.
_MAX_PAIRS = 25_000_000
_MAX_LENGTH_DIFFERENCE_S, _MAX_LAG_S, _SEARCH_RANGE_S = 0.05, 0.005, 0.5


def cepstrum(db: _Floats, order: int) -> _Floats:
    """Compute mel-cepstral coefficients (order, frames), 1 to ``order``, from mel levels (bands, frames) in dB.

    They are scaled so that ln(amplitude) = c0 + sum of c[d] cos(pi d (m + 1/2) / bands). This is the convention of
    mel-cepstral analysis, for which the constant in the definition of MCD converts distances to decibels.
    """
    from scipy.fft import dct

    return np.asarray(dct(db, axis=0)[1 : order + 1] * (math.log(10.0) / 20.0 / len(db)), np.float64)


def _speech_cepstrum(subject: Subject) -> tuple[_Floats, int]:
    """Return the cepstra from speech onset to offset, and the index of the onset frame."""
    if subject.clip.rate < _RATE:
        raise Undefined(f"the rate must be at least {_RATE} Hz to compare spectra up to 8 kHz, got {subject.clip.rate}")
    speech = subject.once(activity)
    db = mel(subject.clip.resample(_RATE), bands=_BANDS, fmax=_RATE / 2, hop_s=HOP_S).db
    db = np.maximum(db, db.max() - _DYNAMIC_DB)
    onset, offset = round(speech.start / HOP_S), round(speech.end / HOP_S)
    return cepstrum(db[:, onset:offset], _ORDER), onset


def _path(subject: Subject) -> _Path:
    """Return the warping path from speech onset to offset, in frames of the clips, and the distance at each step."""
    ours, onset = subject.once(_speech_cepstrum)
    theirs, reference_onset = subject.other.once(_speech_cepstrum)
    steps, distances = _warped(subject, ours, theirs)
    return steps + np.array([onset, reference_onset]), distances


def dtw_distance(subject: Subject, ours: _Floats, theirs: _Floats) -> float:
    """Average the distance in dB between cepstra (order, frames) of the clip and its reference along the warping path."""
    return _DECIBELS * float(_warped(subject, ours, theirs)[1].mean())


def _warped(subject: Subject, ours: _Floats, theirs: _Floats) -> _Path:
    if reason := other_words(subject.clip, subject.other.clip):
        raise Undefined(f"the clips cannot be aligned: {reason}")
    if ours.shape[1] * theirs.shape[1] > _MAX_PAIRS:
        seconds = " and ".join(f"{bands.shape[1] * HOP_S:.0f}" for bands in (ours, theirs))
        raise Undefined(f"the clips must be at most 50 s long to be aligned, got {seconds} s")
    steps = warping_path(ours, theirs)
    return steps, np.linalg.norm(ours[:, steps[:, 0]] - theirs[:, steps[:, 1]], axis=0)


def warped_frames(subject: Subject) -> npt.NDArray[np.intp]:
    """Return the warping path of ``mfcc_distance``: indices of 10 ms frames in clip and reference, shape (steps, 2).

    Raises Undefined.
    """
    return subject.once(_path)[0]


def mfcc_distance(subject: Subject) -> float:
    """Distance of mel-frequency cepstra (MFCC) from the reference in dB, along the path of dynamic time warping.

    10 sqrt(2) / ln 10 times the Euclidean distance of coefficients 1 to 24 (without c0, the level), averaged over the path:
    R. F. Kubichek, "Mel-cepstral distance measure for objective speech quality assessment", IEEE PACRIM (1993); alignment by
    H. Sakoe & S. Chiba (1978) with steps (1,1), (0,1), (1,0). Cepstra are computed from 80 mel bands up to 8 kHz, with 40 ms
    windows every 10 ms and a dynamic range of 60 dB, from speech onset to offset. The result is not the mel-cepstral
    distortion of the literature, whose cepstra come from a vocoder (STRAIGHT, WORLD) and have another scale: see ``mcd``.
    """
    return _DECIBELS * float(subject.once(_path)[1].mean())


def log_f0_rmse(subject: Subject) -> float:
    """Root mean square difference of log-F0 from the reference, in semitones, along the path of ``mfcc_distance``.

    The mean is over pairs of voiced frames, with F0 as in ``f0_median``. Divide the result by 17.31 to convert it to
    natural logarithms.
    """
    path = warped_frames(subject)
    ours, theirs = subject.once(contour).values, subject.other.once(contour).values
    path = path[(path[:, 0] < ours.size) & (path[:, 1] < theirs.size)]
    difference = 12.0 * np.log2(ours[path[:, 0]] / theirs[path[:, 1]])
    voiced = difference[np.isfinite(difference)]
    if not voiced.size:
        raise Undefined("no frame is voiced in both clips")
    return float(np.sqrt(np.mean(np.square(voiced))))


def _aligned(subject: Subject) -> tuple[_Floats, _Floats]:
    """Return clip and reference at 16 kHz, aligned to the sample, with equal lengths. Raises Undefined."""
    from scipy.signal import correlate

    clip, reference = subject.clip, subject.other.clip
    if min(clip.rate, reference.rate) < _RATE:
        raise Undefined(f"the sample rates must be at least {_RATE} Hz, got {clip.rate} and {reference.rate}")
    if abs(clip.duration - reference.duration) > _MAX_LENGTH_DIFFERENCE_S:
        raise Undefined(
            f"the durations of aligned clips must differ by at most {1000 * _MAX_LENGTH_DIFFERENCE_S:.0f} ms, "
            f"got {clip.duration:.2f} s and, for the reference, {reference.duration:.2f} s"
        )
    ours, theirs = (sound.resample(_RATE).samples.astype(np.float64) for sound in (clip, reference))
    size = min(ours.size, theirs.size)
    ours, theirs = ours[:size], theirs[:size]
    if not ours.any() or not theirs.any():
        raise Undefined("one of the clips is silent")
    max_lag = min(size - 1, round(_SEARCH_RANGE_S * _RATE))
    correlation = correlate(ours, theirs, "full", "fft")[size - 1 - max_lag : size + max_lag]
    lag = int(np.argmax(np.abs(correlation))) - max_lag
    if abs(lag) > _MAX_LAG_S * _RATE:
        raise Undefined(
            f"the clip must be aligned with the reference within {1000 * _MAX_LAG_S:.0f} ms, "
            f"got a lag of {1000 * lag / _RATE:+.0f} ms"
        )
    return ours[max(0, lag) : size + min(0, lag)], theirs[max(0, -lag) : size - max(0, lag)]


def stoi(subject: Subject) -> float:
    """Short-time objective intelligibility against an aligned reference: a mean correlation, 1 for identical clips.

    Values around or below 0 mean no similarity. A lag of up to 5 ms, as from a codec, is compensated. C. H. Taal, R. C.
    Hendriks, R. Heusdens & J. Jensen, "An algorithm for intelligibility prediction of time-frequency weighted noisy
    speech", IEEE TASLP 19 (2011), by pystoi. Undefined for a difference of more than 50 ms in duration or a lag of more
    than 5 ms, since another take of the same text is not an aligned reference.
    """
    from pystoi import stoi as intelligibility

    ours, theirs = subject.once(_aligned)
    with warnings.catch_warnings():
        # pystoi returns 1e-5 with a warning if too few frames remain after it removes silence.
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(intelligibility(theirs, ours, _RATE))
        except RuntimeWarning as error:
            raise Undefined("there is less than 0.4 s of speech to compare") from error


def pesq(subject: Subject) -> float:
    """Perceptual evaluation of speech quality against an aligned reference: wideband MOS-LQO, 1.04 to 4.64.

    Recommendations ITU-T P.862 (2001) and P.862.2 (2007), by the package pesq, which contains the ITU's program under the
    ITU's terms. Undefined where ``stoi`` is undefined.
    """
    from pesq import PesqError
    from pesq import pesq as quality

    ours, theirs = subject.once(_aligned)
    try:
        return float(quality(_RATE, theirs.astype(np.float32), ours.astype(np.float32), "wb"))
    except PesqError as error:
        raise Undefined(f"PESQ failed: {error}") from error
