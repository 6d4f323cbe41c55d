"""How far a clip is from a reference: spectrum and pitch along a warped path, intelligibility and quality."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import mel
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
# The accumulated costs of a path take 8 bytes a pair of frames; this many are 200 MB.
_MOST_PAIRS = 25_000_000
_LENGTH_APART_S, _LAG_S, _LAGS_SEARCHED_S = 0.05, 0.005, 0.5


def cepstrum(db: _Floats, order: int) -> _Floats:
    """Return mel-cepstral coefficients 1 to ``order``, shape (order, frames), of mel levels in dB, (bands, frames).

    Scaled so that ln(amplitude) = c0 + sum of c[d] cos(pi d (m + 1/2) / bands): the convention of mel-cepstral
    analysis, in which the distortion's constant turns distances into decibels.
    """
    from scipy.fft import dct

    return np.asarray(dct(db, axis=0)[1 : order + 1] * (math.log(10.0) / 20.0 / len(db)), np.float64)


def _spoken_cepstrum(subject: Subject) -> tuple[_Floats, int]:
    """Return the coefficients of the frames from the first speech to the last, and the number of the first."""
    if subject.clip.rate < _RATE:
        raise Undefined(f"spectra are compared up to 8 kHz, and a rate of {subject.clip.rate} Hz ends before")
    speech = subject.once(activity)
    db = mel(subject.clip.resample(_RATE), bands=_BANDS, fmax=_RATE / 2, hop_s=HOP_S).db
    db = np.maximum(db, db.max() - _DYNAMIC_DB)
    first, last = round(speech.start / HOP_S), round(speech.end / HOP_S)
    return cepstrum(db[:, first:last], _ORDER), first


def _path(subject: Subject) -> _Path:
    """Return the path of the spoken parts, its frames counted from the clips' beginnings, and the distance at each step."""
    ours, first = subject.once(_spoken_cepstrum)
    theirs, other_first = subject.other.once(_spoken_cepstrum)
    steps, distances = _warped(subject, ours, theirs)
    return steps + np.array([first, other_first]), distances


def dtw_distance(subject: Subject, ours: _Floats, theirs: _Floats) -> float:
    """Return the distance in dB of cepstra (order, frames) of the clip and its reference, averaged along the path."""
    return _DECIBELS * float(_warped(subject, ours, theirs)[1].mean())


def _warped(subject: Subject, ours: _Floats, theirs: _Floats) -> _Path:
    import librosa

    if reason := other_words(subject.clip, subject.other.clip):
        raise Undefined(f"what is said cannot be aligned: {reason}")
    if ours.shape[1] * theirs.shape[1] > _MOST_PAIRS:
        raise Undefined("the clips are too long to be aligned; 50 s each is the most")
    _, steps = librosa.sequence.dtw(ours, theirs, metric="euclidean")
    steps = steps[::-1]
    return steps, np.linalg.norm(ours[:, steps[:, 0]] - theirs[:, steps[:, 1]], axis=0)


def warped_frames(subject: Subject) -> npt.NDArray[np.intp]:
    """Return the path of ``mfcc_distance``: pairs of 10 ms frames, (steps, 2), of the clip and of its reference.

    Raises Undefined when they cannot be aligned.
    """
    return subject.once(_path)[0]


def mfcc_distance(subject: Subject) -> float:
    """Distance of mel-frequency cepstra (MFCC) from the reference in dB, along the path of dynamic time warping.

    10 sqrt(2) / ln 10 times the Euclidean distance of the coefficients 1 to 24, averaged over the path; c0, the
    level, is left out: the formula of R. F. Kubichek, "Mel-cepstral distance measure for objective speech quality
    assessment", IEEE PACRIM (1993); alignment as in H. Sakoe & S. Chiba (1978) with steps (1,1), (0,1), (1,0). The
    cepstra are of 80 mel bands up to 8 kHz, 40 ms windows every 10 ms, levels more than 60 dB below the loudest raised to
    there, silence at the ends left out. It is not the mel-cepstral distortion (MCD) of the literature, whose cepstra are
    a vocoder's (STRAIGHT, WORLD) and on another scale: that is ``mcd``.
    """
    return _DECIBELS * float(subject.once(_path)[1].mean())


def log_f0_rmse(subject: Subject) -> float:
    """Root mean square difference of log-F0 from the reference, in semitones, along the path of ``mfcc_distance``.

    Over the pairs of frames that are voiced in both; pitch as in ``f0_median``. Divide by 17.31 for natural
    logarithms.
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
    """Return clip and reference at 16 kHz, equally long, in step to the sample; Undefined where they are not nearly so."""
    from scipy.signal import correlate

    clip, other = subject.clip, subject.other.clip
    if min(clip.rate, other.rate) < _RATE:
        raise Undefined(f"both clips need a rate of {_RATE} Hz or more")
    if abs(clip.duration - other.duration) > _LENGTH_APART_S:
        lasting = f"it lasts {other.duration:.2f} s and the clip {clip.duration:.2f} s"
        raise Undefined(f"the reference is not aligned: {lasting}")
    ours, theirs = (sound.resample(_RATE).samples.astype(np.float64) for sound in (clip, other))
    size = min(ours.size, theirs.size)
    ours, theirs = ours[:size], theirs[:size]
    if not ours.any() or not theirs.any():
        raise Undefined("one of the clips is silent")
    reach = min(size - 1, round(_LAGS_SEARCHED_S * _RATE))
    similarity = correlate(ours, theirs, "full", "fft")[size - 1 - reach : size + reach]
    lag = int(np.argmax(np.abs(similarity))) - reach
    if abs(lag) > _LAG_S * _RATE:
        raise Undefined(f"the reference is not aligned: the clip resembles it most {lag / _RATE * 1000:+.0f} ms away")
    return ours[max(0, lag) : size + min(0, lag)], theirs[max(0, -lag) : size - max(0, lag)]


def stoi(subject: Subject) -> float:
    """Short-time objective intelligibility against an aligned reference: a mean correlation, 1 for the same sound.

    Around 0, and below it too, there is no similarity. A lag of up to 5 ms, as a codec leaves, is taken out first.
    C. H. Taal, R. C. Hendriks, R. Heusdens & J. Jensen, "An algorithm for intelligibility prediction of
    time-frequency weighted noisy speech", IEEE TASLP 19 (2011), by pystoi. Undefined when the two differ by more
    than 50 ms in length or are out of step by more than 5 ms: other takes of a text are no aligned reference.
    """
    from pystoi import stoi as intelligibility

    ours, theirs = subject.once(_aligned)
    with warnings.catch_warnings():
        # pystoi answers 1e-5 with a warning when too little is left without the silent frames.
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(intelligibility(theirs, ours, _RATE))
        except RuntimeWarning as error:
            raise Undefined("there is less than 0.4 s of speech to compare") from error


def pesq(subject: Subject) -> float:
    """Perceptual evaluation of speech quality against an aligned reference: wideband MOS-LQO, 1.04 to 4.64.

    Recommendations ITU-T P.862 (2001) and P.862.2 (2007), by the package pesq, which holds the ITU's program
    under the ITU's terms. Undefined where ``stoi`` is.
    """
    from pesq import PesqError
    from pesq import pesq as quality

    ours, theirs = subject.once(_aligned)
    try:
        return float(quality(_RATE, theirs.astype(np.float32), ours.astype(np.float32), "wb"))
    except PesqError as error:
        raise Undefined(f"PESQ found nothing to compare: {error}") from error
