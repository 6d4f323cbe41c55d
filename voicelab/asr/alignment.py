"""Word times of a text in its audio, from forced alignment by pocketsphinx (English) or from Whisper (other languages).

With pocketsphinx each word gets the most likely interval, and a log likelihood per 10 ms frame relative to the best phone
sequence: about -1 for words that are in the audio, and about -5 for words that are not. The accuracy in rejecting wrong
transcripts is in docs/decisions/09-cloned-and-kept-voices.md.
"""

from __future__ import annotations

import difflib
import math
import re
import statistics
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from voicelab.asr.normalization import HAN, language_of, simplified, split_words
from voicelab.asr.recognizers import (
    PADDING_S,
    WordRecognizer,
    decode,
    pocketsphinx_decoder,
    pocketsphinx_input,
    recognizer_by_name,
)
from voicelab.audio.analysis import framed
from voicelab.audio.denoise import enhance
from voicelab.audio.samples import Samples
from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.tags import said

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_TOKEN = re.compile(r"[^\s\u2014\u2013]+")
_TOKEN_OR_HAN = re.compile(rf"{HAN.pattern}|(?:(?!{HAN.pattern})[^\s\u2014\u2013])+")
_PUNCTUATION = ".,;:!?\"'()[]{}\u2018\u2019\u201c\u201d\u2026\u00ab\u00bb"
_VARIANT = re.compile(r"\(\d+\)$")
_MIN_LIKELIHOOD = -3.0
MATCHING: Final = 0.7
"""Minimum match between a transcript and its audio (docs/decisions/09-cloned-and-kept-voices.md)."""
_UNLISTED: Final = "most of its words are not in the aligner's English dictionary"
_MISMATCH: Final = "it does not match the speech in this clip"
_OTHER_LANGUAGE: Final = '; for a language other than English, pass by="faster-whisper"'
_MIN_RECOGNIZED_SHARE = 0.5
"""Minimum share of a text's words in the transcript; recognizers write many Chinese words with other characters."""
_MIN_DICTIONARY_SHARE = 0.5
"""Minimum share of a text's letters that are in dictionary words; below it, the match is unreliable."""
_LOUD_RANGE_DB = 25.0
_FRAME, _HOP = 400, 160
_LETTERS_PER_DIGIT = 4.0
"""Mean number of letters of a spoken digit: "seven" has five, the "7" of 17 four."""


class _AlignedWord(NamedTuple):
    """Aligned word, with the numbers of its first and last 10 ms frames."""

    word: str
    start: int
    end: int
    likelihood: float


class Aligner:
    """Forced aligner. Thread-safe; calls are serialized."""

    def __init__(self) -> None:
        """Load the model. Raises ImportError when pocketsphinx is not installed."""
        self._decoder = pocketsphinx_decoder(lm=None)
        self._lock = threading.Lock()

    def match(self, samples: Samples, rate: int, text: str) -> float | None:
        """Compute the match between a text and the speech in the audio, 0 to 1.

        The match is the smaller of two proportions: of the text that is found in the audio, and of the loud audio that is
        aligned with words of the text. The result is None if most words of the text are missing from the English dictionary.
        """
        # Noise would lower the likelihoods of the words.
        audio = pocketsphinx_input(samples, rate, enhance)
        with self._lock:
            words = _words_in(text)
            listed = [word for word in words if self._decoder.lookup_word(word)]
            share = _letter_count(listed) / max(1.0, _letter_count(words))
            if share < _MIN_DICTIONARY_SHARE:
                return None
            likely = [segment for segment in self._segments(listed, audio) if segment.likelihood > _MIN_LIKELIHOOD]
        power = np.square(framed(audio.astype(np.float64), _FRAME, _HOP)).mean(axis=1)
        loud = power > np.percentile(power, 95) * 10 ** (-_LOUD_RANGE_DB / 10)
        explained = np.zeros(len(power) + 8, bool)
        for segment in likely:
            explained[segment.start : segment.end + 1] = True
        # Words missing from the dictionary also explain audio.
        explained_share = float((explained[: len(power)] & loud).sum() / max(1, loud.sum())) / share
        return min(1.0, explained_share, _letter_count(segment.word for segment in likely) / _letter_count(listed))

    def words(self, samples: Samples, rate: int, text: str) -> Words:
        """Align ``text`` with speech; words missing from the dictionary share the time between their neighbors.

        Raises ArgumentError on ``text`` when most of its words are missing from the English dictionary or the audio.
        """
        audio = pocketsphinx_input(samples, rate)
        tokens = [token.strip(_PUNCTUATION) for token in _TOKEN.findall(text) if _WORD.search(token)]
        with self._lock:
            token_words = [_words_in(token) for token in tokens]
            listed = [[word for word in words if self._decoder.lookup_word(word)] for words in token_words]
            words = list(chain.from_iterable(listed))
            if _letter_count(words) < _MIN_DICTIONARY_SHARE * max(1.0, _letter_count(chain.from_iterable(token_words))):
                raise ArgumentError.of("text", _UNLISTED + _OTHER_LANGUAGE)
            segments = self._segments(words, audio)
            if len(segments) < len(words):  # alignment failed because of noise
                segments = self._segments(words, pocketsphinx_input(samples, rate, enhance))
        # Forced alignment fits any text to any audio, so the match is checked.
        if len(segments) < len(words) or (self.match(samples, rate, text) or 0.0) < MATCHING:
            raise ArgumentError.of("text", _MISMATCH + _OTHER_LANGUAGE)
        duration_s = len(samples) / rate
        edges = iter(
            [
                [min(max(frame * 0.01 - PADDING_S, 0.0), duration_s) for frame in (segment.start, segment.end + 1)]
                for segment in segments
            ]
        )
        spans = [[next(edges) for _ in words] for words in listed]
        likelihood = round(statistics.median(segment.likelihood for segment in segments), 2)
        source = "forced alignment by pocketsphinx"
        return Words(_word_times(tokens, spans, duration_s), duration_s, likelihood, source)

    def _segments(self, words: list[str], audio: npt.NDArray[np.int16]) -> list[_AlignedWord]:
        """Align all words; return an empty list if the alignment fails."""
        self._decoder.set_align_text(" ".join(words))
        decode(self._decoder, audio)
        if self._decoder.hyp() is None:
            return []
        segments = []
        for aligned in self._decoder.seg():
            if aligned.word[0] not in "<[+":
                start, end = aligned.start_frame, aligned.end_frame
                likelihood = math.log(max(aligned.ascore, 1e-300)) / (end - start + 1)
                segments.append(_AlignedWord(_VARIANT.sub("", aligned.word), start, end, likelihood))
        return segments


def _word_times(tokens: list[str], spans: list[list[list[float]]], duration_s: float) -> list[WordTime]:
    """Return the tokens with their times; consecutive tokens without spans share the time between their neighbors."""
    times: list[WordTime] = []
    untimed: list[str] = []
    end = 0.0
    for token, span in zip([*tokens, ""], [*spans, [[duration_s, duration_s]]], strict=True):
        if not span:
            untimed.append(token)
            continue
        step = max(span[0][0] - end, 0.0) / max(len(untimed), 1)
        times += [WordTime(word, end + n * step, end + (n + 1) * step) for n, word in enumerate(untimed)]
        untimed = []
        if token:
            times.append(WordTime(token, max(span[0][0], end), max(span[-1][1], end)))
            end = times[-1].end
    return times


def align_words(clip: Clip, text: str | None = None, by: str | WordRecognizer | None = None) -> Clip:
    """Add word times to a clip by aligning it with a text; ``clip.words.source`` names the model.

    Args:
        clip: the clip.
        text: the spoken text, by default that of the clip's request; control tags are ignored.
        by: "pocketsphinx", forced alignment of English; "faster-whisper" or "faster-whisper:MODEL", Whisper's word times in
            any language, matched with the text; or a recognizer with a method ``words``. Default: pocketsphinx for text in
            its dictionary, otherwise Whisper if its weights are on this machine.

    Raises ArgumentError on ``text`` if it is unknown or does not match the speech, ArgumentError on ``recognizer`` for
    an unknown name or missing weights, and MissingExtra for a package that is not installed.
    """
    text = said(text) if text else clip.spoken_text or ""
    if not text.strip():
        raise ArgumentError.of("text", "is required, because the clip does not state its text")
    unlisted: ArgumentError | None = None
    if by == "pocketsphinx" or (by is None and language_of(text) == "en"):
        aligner = default_aligner()
        if aligner is None:
            raise MissingExtra.of("recognition", "word times of a clip")
        try:
            return replace(clip, words=aligner.words(clip.samples, clip.rate, text))
        except ArgumentError as error:
            if by or _UNLISTED not in str(error):
                raise
            unlisted = error
    try:
        recognizer = (
            _word_recognizer(by or "faster-whisper", by is not None) if by is None or isinstance(by, str) else by
        )
    except (ArgumentError, MissingExtra) as error:
        raise unlisted or error from error
    return replace(clip, words=_recognized_times(clip, text, recognizer))


@cache
def _word_recognizer(name: str, fetch: bool) -> WordRecognizer:
    recognizer = recognizer_by_name(name, fetch=fetch)
    if not isinstance(recognizer, WordRecognizer):
        raise ArgumentError.of("by", f"must be pocketsphinx, faster-whisper or faster-whisper:MODEL, got {name!r}")
    return recognizer


def _recognized_times(clip: Clip, text: str, recognizer: WordRecognizer) -> Words:
    """Match a text's words with recognized words; unmatched words share the time between their neighbors.

    Raises ArgumentError on ``text`` if it does not match the speech.
    """
    tokens = [token.strip(_PUNCTUATION) for token in _TOKEN_OR_HAN.findall(text)]
    tokens = [token for token in tokens if split_words(token)]
    units = [(index, unit) for index, token in enumerate(tokens) for unit in split_words(_comparable(token))]
    recognized: list[tuple[str, float, float]] = []
    for word in recognizer.words(clip.samples, clip.rate):
        names = split_words(_comparable(word.text))
        step = (word.end - word.start) / max(len(names), 1)
        recognized += [(name, word.start + n * step, word.start + (n + 1) * step) for n, name in enumerate(names)]
    spans: list[list[list[float]]] = [[] for _ in tokens]
    matched = 0
    matcher = difflib.SequenceMatcher(
        None, [unit for _, unit in units], [name for name, *_ in recognized], autojunk=False
    )
    for kind, start, end, begin_match, end_match in matcher.get_opcodes():
        matched += (end - start) * (kind == "equal")
        if end - start == end_match - begin_match:  # words that are equal, or misrecognized one for one
            for (index, _), (_, begin, stop) in zip(units[start:end], recognized[begin_match:end_match], strict=True):
                spans[index].append([begin, stop])
    if matched < _MIN_RECOGNIZED_SHARE * len(units) or not units:
        raise ArgumentError.of("text", _MISMATCH)
    name = getattr(recognizer, "name", type(recognizer).__name__)
    return Words(_word_times(tokens, spans, clip.duration), clip.duration, source=f"word times of {name}")


def _comparable(text: str) -> str:
    return simplified(text) if HAN.search(text) else text


@cache
def default_aligner() -> Aligner | None:
    """Load the process-wide aligner; return None without the extra ``recognition``."""
    try:
        return Aligner()
    except ImportError:
        return None


def _words_in(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def _letter_count(words: Iterable[str]) -> float:
    return sum(_LETTERS_PER_DIGIT if letter.isdigit() else 1.0 for word in words for letter in word)
