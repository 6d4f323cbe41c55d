"""Compare embedded audio by content, because encoded bytes differ between encoder versions."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cache
from typing import Any, Final

import numpy as np

from voicelab.asr.normalization import split_words
from voicelab.asr.recognizers import PocketRecognizer, transcribing_recognizer
from voicelab.audio.analysis import mel
from voicelab.audio.paths import warping_path
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, AudioError, MissingExtra
from voicelab.takes.replay import Tolerance

_EMBEDDED: Final = re.compile(r"data:audio/[^,\"'\s]*;base64,([0-9A-Za-z+/=]+)")
# The mel distance between encodings of a signal is below 0.6 dB; between takes of a text, it is above 2.9 dB.
ENCODING: Final = Tolerance(seconds=0.05, db=1.0, mel_db=1.5)
"""Tolerance of differences between encoder versions."""
_RATE, _BANDS, _FMAX_HZ = 16_000, 40, 7000.0  # a range that speech codecs preserve
_RANGE_DB: Final = 50.0
_MAX_LAG: Final = 8  # codec delay in frames of 10 ms


def embedded_audio(mime: str, text: str) -> list[str]:
    """Extract base64 audio from an output, in order: its complete content if it is audio, else its data URLs."""
    return ["".join(text.split())] if mime.startswith("audio/") else _EMBEDDED.findall(text)


def audio_difference(expected: str, actual: str, tolerance: Tolerance = ENCODING) -> str | None:
    """Describe differences in duration, level or mel spectrum beyond a tolerance; None for equal audio.

    Args:
        expected: saved audio file in base64.
        actual: new audio file in base64.
        tolerance: bounds of the differences in duration (s), level (dB) and mel spectrum (dB).
    """
    if expected == actual:
        return None
    try:
        saved, new = (Clip.load(base64.b64decode(data)) for data in (expected, actual))
    except (AudioError, binascii.Error) as error:
        return f"cannot be decoded: {error}"
    level = 0.0 if saved.level == new.level else new.level - saved.level  # the level of silence is -inf
    differences = (
        ("duration", "s", new.duration - saved.duration, tolerance.seconds, "+.2f"),
        ("level", "dB", level, tolerance.db, "+.1f"),
        ("mel distance", "dB", _mel_distance(saved, new), tolerance.mel_db, ".1f"),
    )
    exceeded = [
        f"{name} {difference:{form}} {unit} (tolerance {bound:g})"
        for name, unit, difference, bound, form in differences
        if not abs(difference) <= bound
    ]
    return ", ".join(exceeded) or None


# Measured on takes of 16 sentences in 4 voices: pairs of the same sentence and voice are below 2.0, all others above 2.7.
_SAME_SPEECH: Final = 2.4
_MIN_WORDS: Final = 3
# Minimum ratio of equal words; different sentences are below 0.3.
_SAME_WORDS: Final = 0.4


def audible_change(expected: str, actual: str) -> str:
    """Describe the audible change between two audio files in base64: "louder by 6.0 dB", "another voice"; "" if uncertain."""
    try:
        saved, new = (Clip.load(base64.b64decode(data)) for data in (expected, actual))
    except (AudioError, binascii.Error):
        return ""
    return next(_changes(saved, new), "")


def _changes(saved: Clip, new: Clip) -> Iterator[str]:
    level = new.level - saved.level
    if not np.isfinite(level):
        yield "silence" if new.level < saved.level else "a sound instead of silence"
        return
    louder, softer = (new, saved) if level > 0 else (saved, new)
    scaled = Clip(louder.samples * np.float32(10 ** (-abs(level) / 20)), louder.rate)
    same_duration = abs(new.duration - saved.duration) <= ENCODING.seconds
    if same_duration and abs(level) > ENCODING.db and _mel_distance(scaled, softer) <= ENCODING.mel_db:
        yield f"{'louder' if level > 0 else 'softer'} by {abs(level):.1f} dB"
        return
    with suppress(ArgumentError, MissingExtra):
        recognizer = _recognizer()
        if recognizer is None or _speech_distance(saved, new) < _SAME_SPEECH:
            return
        saved_words, new_words = (split_words(recognizer.recognise(clip.samples, clip.rate)) for clip in (saved, new))
        if min(len(saved_words), len(new_words)) < _MIN_WORDS:
            return  # music, tones or noise
        if SequenceMatcher(None, saved_words, new_words, autojunk=False).ratio() > _SAME_WORDS:
            yield "another voice"
        else:
            # pocketsphinx may recognize no words in the audio of some voices.
            yield "another sentence or voice" if isinstance(recognizer, PocketRecognizer) else "another sentence"


_recognizer = cache(transcribing_recognizer)


def _speech_distance(clip: Clip, reference: Clip) -> float:
    """Return the mean distance between two clips after time warping, in standard deviations of their cepstra."""
    x, y = map(_cepstra, (clip, reference))
    steps = warping_path(x, y)
    return float(np.linalg.norm(x[:, steps[:, 0]] - y[:, steps[:, 1]], axis=0).mean())


def _cepstra(clip: Clip) -> np.ndarray[Any, Any]:
    from scipy.fft import dct

    db = mel(clip.resample(_RATE), bands=_BANDS, fmin=80.0, fmax=_FMAX_HZ).db
    onset, *_, offset = np.flatnonzero(db.max(axis=0) > db.max() - _RANGE_DB + 10)
    cepstra = dct(np.maximum(db[:, onset : offset + 1], db.max() - _RANGE_DB), axis=0)[1:14]
    normalized: np.ndarray[Any, Any] = (cepstra - cepstra.mean(axis=1, keepdims=True)) / cepstra.std(
        axis=1, keepdims=True
    )
    return normalized


def _mel_distance(clip: Clip, reference: Clip) -> float:
    """Return the mean absolute difference between two mel spectrograms in dB, minimized over lags."""
    x, y = (mel(c.resample(_RATE), bands=_BANDS, fmin=80.0, fmax=_FMAX_HZ).db for c in (clip, reference))
    floor = max(float(x.max()), float(y.max())) - _RANGE_DB
    x, y = np.maximum(x, floor), np.maximum(y, floor)
    lags = range(-_MAX_LAG, _MAX_LAG + 1)
    return min(_mean_difference(x[:, max(0, lag) :], y[:, max(0, -lag) :]) for lag in lags)


def _mean_difference(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    frames = min(x.shape[1], y.shape[1])
    return float(np.abs(x[:, :frames] - y[:, :frames]).mean()) if frames else np.inf
