"""Measuring what the voice says: takes, pitch by word, spectra, codes, segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voicelab.audio import analysis
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.engine.local import LocalBackend
from voicelab.engine.speech import Speech
from voicelab.schema import TTSRequest

Floats = npt.NDArray[np.float64]
SENTENCE = "The birch canoe slid on the smooth planks."
WORDS = len(SENTENCE.split())
HOP = 2048
RATE = 44_100
# Of each word, the middle: seven places between its eighths.
_PLACES = np.linspace(0.0, 1.0, 9)[1:-1]


class Voice:
    """A backend with short ways to ask it."""

    def __init__(self, backend: LocalBackend) -> None:
        self.backend = backend
        self._kept: dict[tuple[str, int, str], Clip] = {}

    def request(self, text: str = SENTENCE, **fields: Any) -> TTSRequest:
        return TTSRequest.build(text=text, **{"format": "pcm", **fields})

    def say(self, text: str = SENTENCE, *, seed: int = 1, **fields: Any) -> Clip:
        return self.backend.synthesize(Call(self.request(text, **fields), seed=seed)).clip()

    def kept(self, text: str = SENTENCE, *, seed: int = 1, **fields: Any) -> Clip:
        """The same, spoken once however often it is asked for."""
        key = (text, seed, repr(sorted(fields.items())))
        if key not in self._kept:
            self._kept[key] = self.say(text, seed=seed, **fields)
        return self._kept[key]

    def takes(self, seeds: Iterable[int], text: str = SENTENCE, **fields: Any) -> list[Clip]:
        """One clip a seed, spoken together."""
        request = self.request(text, **fields)
        streams = [self.backend.synthesize(Call(request, seed=seed)) for seed in seeds]
        return [stream.clip() for stream in streams]

    def speech(self, request: TTSRequest, seed: int = 1) -> Speech:
        """A request on its way to audio, before it is encoded."""
        parts = self.backend._models.parts("s2-pro")
        return Speech(parts, Call(request), lambda: parts.family.voice(self.backend._speaker(request), parts), seed)

    def codes(self, seeds: Iterable[int], text: str = SENTENCE, **fields: Any) -> list[npt.NDArray[np.int64]]:
        """The codec frames as the language model made them, (frames, codebooks), one array a seed, spoken together."""
        request = self.request(text, **fields)
        spoken = [self.speech(request, seed) for seed in seeds]
        return [
            np.array([c.tolist() for offset, sequence in one._streams() for c in one._follow(sequence, offset)])
            for one in spoken
        ]


def semitones(hertz: Floats | float) -> Any:
    """Over 100 Hz."""
    return 12 * np.log2(np.asarray(hertz) / 100)


def cents(one: Clip, other: Clip) -> float:
    """By how much the pitch of the second is above that of the first: the median over places of the words voiced in both.

    The medians of whole clips differ more: a tracker's window spans twice as much of speech at twice the speed, and
    loses other frames, though the pitch at every place is the same.
    """
    apart = pitch_contour(other) - pitch_contour(one)
    return float(100 * np.median(apart[np.isfinite(apart)]))


def pitch_contour(clip: Clip) -> Floats:
    """Semitones at seven places of every word, NaN where nothing is voiced: takes of one text compare place by place."""
    found = analysis.f0(clip)
    places = np.concatenate([word.start + _PLACES * (word.end - word.start) for word in clip.words])
    index = np.clip(np.searchsorted(found.times, places), 0, found.values.size - 1)
    contour: Floats = semitones(found.values[index])
    return contour


def word_spectra(clip: Clip) -> Floats:
    """Mean level in dB of 40 mel bands over each word: (words, bands)."""
    found = analysis.mel(clip, bands=40, fmax=8000.0)
    return np.array([found.db[:, (found.times >= w.start) & (found.times < w.end)].mean(axis=1) for w in clip.words])


def durations(clip: Clip) -> Floats:
    """Seconds of each word."""
    return np.array([word.end - word.start for word in clip.words])


def comparable(takes: Iterable[Clip], words: int = WORDS) -> list[Clip]:
    """Takes with every word; the pointer may step over a short one, and then places do not compare."""
    return [take for take in takes if len(take.words) == words]


def pitch_spread(takes: Sequence[Clip]) -> float:
    """Standard deviation over takes, in semitones, averaged over places that most takes voice."""
    contours = np.array([pitch_contour(take) for take in takes])
    voiced = np.isfinite(contours).sum(axis=0) >= max(2, 0.6 * len(takes))
    return float(np.nanstd(contours[:, voiced], axis=0).mean())


def mel_spread(takes: Sequence[Clip]) -> float:
    """Root mean square over takes, words and bands of the deviation from the takes' mean, in dB."""
    return float(np.sqrt(np.array([word_spectra(take) for take in takes]).var(axis=0).mean()))


def duration_spread(takes: Sequence[Clip]) -> float:
    """Root mean square over takes and words of the deviation from the word's mean duration, in seconds."""
    return float(np.sqrt(np.array([durations(take) for take in takes]).var(axis=0).mean()))


def long_term_spectrum(clip: Clip, start: float = 0.0, end: float = np.inf) -> Floats:
    """Mean level in dB of 40 mel bands over what is not silent between two times, without its overall level."""
    found = analysis.mel(clip, bands=40, fmax=8000.0)
    loudest = found.db.max(axis=0)
    chosen = (found.times >= start) & (found.times < end) & (loudest > loudest.max() - 35)
    mean = found.db[:, chosen].mean(axis=1)
    shape: Floats = mean - mean.mean()
    return shape


def rms_db(samples: npt.NDArray[np.float32]) -> float:
    return float(10 * np.log10(np.mean(np.square(samples.astype(np.float64)))))


def said(clip: Clip) -> list[str]:
    return [word.text for word in clip.words]
