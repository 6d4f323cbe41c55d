"""What is said in a recording: recognizers write it down, and an aligner checks what somebody wrote.

``VOICELAB_RECOGNIZER`` chooses the recognizer: ``faster-whisper:MODEL`` (a folder with weights, or a name such as
``small.en``, which its library fetches once and keeps), ``faster-whisper`` (the best weights that are on this machine),
``pocketsphinx``, ``none``. What is chosen and cannot be had is an error; without a choice it is the best that is there.

Alignment is pocketsphinx's. Each word gets the stretch of sound that fits it best, and with it a likelihood: how much
worse its phones explain the frames than the best of all phones would. A word that is said gets about -1 (natural
logarithm for each 10 ms), one that is not some -5. How well this separates wrong texts from right ones:
docs/decisions/09-cloned-and-kept-voices.md.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import framed
from voicelab.audio.denoise import enhance
from voicelab.audio.samples import Samples, resample
from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.storage import read_published
from voicelab.tags import said

_RATE: Final = 16_000
"""Sample rate in Hz that recognizers listen at."""

_PAD = 0.2
_VARIABLE = "VOICELAB_RECOGNIZER"
# Of those whose weights are here the first: the largest that a laptop's core hears with in real time, and so on.
_WHISPERS = ("small.en", "small", "base.en", "base", "tiny.en", "tiny")

_POCKETSPHINX_SHA256 = (  # of the model in 5.1.1, and in 5.0.4
    "2deaa14d2364b2046ea1626413168f2256302e3efd5ae3e16e1fe4db0d285e9c",
    "536777c2f92f9934b3e6a68557e26a7eb0c08e25887009594329cc9ae8511f3a",
)

# Of the aligner.
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_WRITTEN = re.compile(r"[^\s\u2014\u2013]+")
_MARKS = ".,;:!?\"'()[]{}\u2018\u2019\u201c\u201d\u2026\u00ab\u00bb"
_VARIANT = re.compile(r"\(\d+\)$")
_SAID = -3.0
MATCHING: Final = 0.7
"""Share of a text that is heard, from which on it counts as what is said (docs/decisions/09-cloned-and-kept-voices.md)."""
_LEAST_SHARE = 0.5
"""Share of a text that must be words of the dictionary; with less, a match means nothing."""
_LOUD_DB = 25.0
_FRAME, _HOP = 400, 160
_SPELLED = 4.0
"""Letters of a digit when it is said: "seven" has five, the "7" of 17 four."""


@runtime_checkable
class Recognizer(Protocol):
    """Hears words in speech."""

    def recognise(self, samples: Samples, rate: int) -> str:
        """Return what is said in mono ``samples`` in [-1, 1] at ``rate`` Hz; empty when no word is heard."""
        ...


class PocketRecognizer:
    """pocketsphinx with the US English model inside its wheel: small, quick, and often wrong.

    Safe to use from several threads, which take turns. ``name`` is what ``VOICELAB_RECOGNIZER`` calls it.
    """

    name: Final = "pocketsphinx"
    worth: Final = (
        "It often misrecognizes clear speech, natural voices most: WER 31 % for Kokoro's bf_emma and 10 % for flite's rms, "
        "by Whisper base 1 % and 2 %. So do not rank systems by it; faster-whisper is more accurate (the extra whisper)."
    )

    def __init__(self) -> None:
        """Load the model. Raises ImportError when pocketsphinx is not installed."""
        self._decoder = _pocketsphinx()
        self._lock = threading.Lock()

    def recognise(self, samples: Samples, rate: int) -> str:
        """Return what is heard, in lower case and without punctuation."""
        if not samples.any():
            return ""
        sound = _pocketsphinx_input(samples, rate)
        with self._lock:
            _hear(self._decoder, sound)
            result = self._decoder.hyp()
        return str(result.hypstr) if result is not None else ""


class WhisperRecognizer:
    """faster-whisper (the extra ``whisper``), the recommended ear.

    ``name`` is what ``VOICELAB_RECOGNIZER`` calls it, of a folder its last part alone.

    Args:
        model: a name, or a folder with weights for CTranslate2.
        fetch: whether its library may fetch weights that are named and not on this machine, into a cache of its own;
            with ``HF_HUB_OFFLINE=1`` it does not.
    """

    def __init__(self, model: str = "base.en", *, fetch: bool = False) -> None:
        """Load the weights. Raises ImportError when faster-whisper is not installed; without weights what it raises."""
        from faster_whisper import WhisperModel

        # Tables are published, the folders of somebody's machine are not.
        self.name = f"faster-whisper:{Path(model).name}"
        self._model: Any = WhisperModel(model, device="cpu", compute_type="int8", local_files_only=not fetch)

    def recognise(self, samples: Samples, rate: int) -> str:
        """Return what is heard, with punctuation: always the same of the same samples."""
        # Greedy beams alone: where it falls back on temperatures it draws, and what it heard before leads it on.
        options: dict[str, Any] = {"beam_size": 5, "temperature": 0.0, "condition_on_previous_text": False}
        segments, _ = self._model.transcribe(resample(samples, rate, _RATE), **options)
        return " ".join(str(segment.text).strip() for segment in segments)


def default_recognizer() -> PocketRecognizer | WhisperRecognizer | None:
    """Return the recognizer that ``VOICELAB_RECOGNIZER`` chooses, None for none; without a choice the best that is there.

    Raises ArgumentError for another word and for weights that cannot be had, MissingExtra for what is not installed.
    """
    chosen = os.environ.get(_VARIABLE, "")
    name, _, model = chosen.partition(":")
    if name not in {"", "pocketsphinx", "faster-whisper", "none"} or (model and name != "faster-whisper"):
        message = f"{_VARIABLE} should be pocketsphinx, faster-whisper, faster-whisper:MODEL or none, not {chosen!r}"
        raise ArgumentError(message, argument=_VARIABLE)
    if name == "none":
        return None
    if name != "pocketsphinx":
        try:
            if not model:
                return _first_whisper()
            folder = Path(model).is_dir() or len(Path(model).parts) > 2  # one slash: an account and a model of a hub
            return WhisperRecognizer(model, fetch=not folder)
        except Exception as error:  # what it raises for missing or broken weights is its own affair
            if name:
                raise _no_whisper(model, error) from error
    try:
        return PocketRecognizer()
    except ImportError as error:
        if name:
            raise MissingExtra.of("recognition", f"{_VARIABLE}={name}") from error
        return None


def _first_whisper() -> WhisperRecognizer:
    for model in _WHISPERS[:-1]:
        with suppress(OSError, RuntimeError, ValueError):  # no weights of this one here, or broken ones
            return WhisperRecognizer(model)
    return WhisperRecognizer(_WHISPERS[-1])


def _no_whisper(model: str, error: Exception) -> MissingExtra | ArgumentError:
    if isinstance(error, ImportError):
        return MissingExtra.of("whisper", f"{_VARIABLE}=faster-whisper")
    what = f"the weights {model!r}" if model else f"weights of {', '.join(_WHISPERS)}"
    message = (
        f"{_VARIABLE}: {what} are not on this machine, and could not be fetched: name a folder that holds them, "
        f"faster-whisper:PATH, or pocketsphinx ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    )
    return ArgumentError(message, argument=_VARIABLE)


class Aligner:
    """Compares texts with sound. Safe to use from several threads, which take turns."""

    def __init__(self) -> None:
        """Load the model. Raises ImportError when pocketsphinx is not installed."""
        self._decoder = _pocketsphinx(lm=None)
        self._lock = threading.Lock()

    def match(self, samples: Samples, rate: int, text: str) -> float | None:
        """Return how much of the text is heard, or of the sound is text, whichever is less: 0 to 1.

        None when most words of the text are not in the dictionary, which is English.
        """
        # Noise would lower the likelihoods of the words.
        sound = _pocketsphinx_input(samples, rate, enhance)
        with self._lock:
            words = _WORD.findall(text.lower().replace("\u2019", "'"))
            listed = [word for word in words if self._decoder.lookup_word(word)]
            share = _letters(listed) / max(1.0, _letters(words))
            if share < _LEAST_SHARE:
                return None
            said = [segment for segment in self._segments(listed, sound) if segment[3] > _SAID]
        power = np.square(framed(sound.astype(np.float64), _FRAME, _HOP)).mean(axis=1)
        loud = power > np.percentile(power, 95) * 10 ** (-_LOUD_DB / 10)
        explained = np.zeros(len(power) + 8, bool)
        for _, first, last, _ in said:
            explained[first : last + 1] = True
        # Words that the dictionary lacks were left out, and the sound that they explain with them.
        explained_share = float((explained[: len(power)] & loud).sum() / max(1, loud.sum())) / share
        return min(1.0, explained_share, _letters(word for word, *_ in said) / _letters(listed))

    def words(self, samples: Samples, rate: int, text: str) -> Words:
        """Return when each word of ``text`` is said; a word that the dictionary lacks shares what its neighbours leave.

        Raises ArgumentError, which names ``text``, when most of its words are not in the dictionary, which is English, or
        are not heard.
        """
        sound = _pocketsphinx_input(samples, rate)
        written = [word.strip(_MARKS) for word in _WRITTEN.findall(text) if _WORD.search(word)]
        with self._lock:
            parts = [_WORD.findall(word.lower().replace("\u2019", "'")) for word in written]
            listed = [[part for part in one if self._decoder.lookup_word(part)] for one in parts]
            words = list(chain.from_iterable(listed))
            if _letters(words) < _LEAST_SHARE * max(1.0, _letters(chain.from_iterable(parts))):
                raise ArgumentError.of("text", "most of its words are not in the dictionary of the aligner")
            segments = self._segments(words, sound)
            if len(segments) < len(words):  # it gave up in the noise
                segments = self._segments(words, _pocketsphinx_input(samples, rate, enhance))
        # Forced, it puts any words to any sound.
        if len(segments) < len(words) or (self.match(samples, rate, text) or 0.0) < MATCHING:
            raise ArgumentError.of("text", "it is not what is heard in this clip")
        seconds = len(samples) / rate
        edges = iter([[min(max(at * 0.01 - _PAD, 0.0), seconds) for at in (one[1], one[2] + 1)] for one in segments])
        spans = [[next(edges) for _ in one] for one in listed]
        return Words(_timed(written, spans, seconds), seconds, round(statistics.median(one[3] for one in segments), 2))

    def _segments(self, words: list[str], sound: npt.NDArray[np.int16]) -> list[tuple[str, int, int, float]]:
        """All words, with their first and last frames of 10 ms, and how likely they are to be there."""
        decoder = self._decoder
        decoder.set_align_text(" ".join(words))
        _hear(decoder, sound)
        if decoder.hyp() is None:
            return []
        segments = []
        for one in decoder.seg():
            length = one.end_frame - one.start_frame + 1
            if one.word[0] not in "<[+":
                likely = math.log(max(one.ascore, 1e-300)) / length
                segments.append((_VARIANT.sub("", one.word), one.start_frame, one.end_frame, likely))
        return segments


def _timed(written: list[str], spans: list[list[list[float]]], seconds: float) -> list[WordTime]:
    """Return words with their times; those without a span share the time between the ones that have."""
    words: list[WordTime] = []
    waiting: list[str] = []
    at = 0.0
    for word, span in zip([*written, ""], [*spans, [[seconds, seconds]]], strict=True):
        if not span:
            waiting.append(word)
            continue
        step = max(span[0][0] - at, 0.0) / max(len(waiting), 1)
        words += [WordTime(one, at + n * step, at + (n + 1) * step) for n, one in enumerate(waiting)]
        waiting = []
        if word:
            words.append(WordTime(word, max(span[0][0], at), max(span[-1][1], at)))
            at = words[-1].end
    return words


def align_words(clip: Clip, text: str | None = None) -> Clip:
    """Return ``clip`` with the times of its words, found by forced alignment with a text, which is English.

    ``text`` is what is said in it, tags apart; what was asked for when not given. Raises ArgumentError, which names
    ``text``, when there is none or the clip does not say it, and MissingExtra without the extra ``recognition``.
    """
    aligner = default_aligner()
    if aligner is None:
        raise MissingExtra.of("recognition", "word times of a clip")
    text = said(text) if text else clip.take.call.said if clip.take is not None else ""
    if not text.strip():
        raise ArgumentError.of("text", "say what is spoken in the clip")
    return replace(clip, words=aligner.words(clip.samples, clip.rate, text))


@cache
def default_aligner() -> Aligner | None:
    """Return the one aligner of this process, or None without the extra ``recognition``."""
    try:
        return Aligner()
    except ImportError:
        return None


def _pocketsphinx(**options: Any) -> Any:
    """Return a decoder, once its model is what was published. Raises ImportError, WeightsError."""
    from pocketsphinx import Decoder, get_model_path

    model = Path(get_model_path()) / "en-us"
    files = sorted(path for path in model.rglob("*") if path.is_file() and path.name != "README")
    read_published("pocketsphinx", files, *_POCKETSPHINX_SHA256)
    return Decoder(samprate=_RATE, cmn="batch", loglevel="FATAL", **options)


def _hear(decoder: Any, sound: npt.NDArray[np.int16]) -> None:
    """Let a decoder hear a recording from its beginning to its end, always alike, whatever it has heard before."""
    # cmn=batch normalises each recording by itself; the front end keeps something of the recording before all the same.
    decoder.reinit_feat()
    decoder.start_utt()
    decoder.process_raw(sound.tobytes(), full_utt=True)
    decoder.end_utt()


def _pocketsphinx_input(
    samples: Samples, rate: int, change: Callable[[Samples, int], Samples] | None = None
) -> npt.NDArray[np.int16]:
    """Return 16-bit samples at ``_RATE`` Hz as pocketsphinx likes them, at one level, with quiet around them."""
    sound = resample(samples, rate, _RATE)
    if change is not None:
        sound = change(sound, _RATE)
    peak = float(np.abs(sound).max(initial=0.0))
    # It loses words at a hard edge, and digital silence has no logarithm.
    quiet = np.zeros(int(_PAD * _RATE), np.float32)
    sound = np.concatenate([quiet, sound * np.float32(0.5 / max(peak, 1e-9)), quiet])
    sound += (np.random.default_rng(0).uniform(-2, 2, sound.size) / 32768).astype(np.float32)
    return (np.clip(sound, -1, 1) * 32767).astype("<i2")


def _letters(words: Iterable[str]) -> float:
    return sum(_SPELLED if letter.isdigit() else 1.0 for word in words for letter in word)
