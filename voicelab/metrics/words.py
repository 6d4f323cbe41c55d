"""Word and character error rates, speaking rate and pauses."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final

from voicelab.asr.normalization import HAN, has_digits, language_of, normalized_words, simplified, spelled, split_words
from voicelab.asr.recognizers import Recognizer, default_recognizer, full_name, recognizer_by_name
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, shortened
from voicelab.metrics.level import activity
from voicelab.metrics.metric import Subject, Tools, Undefined

# Maximum number of characters of a text that an error quotes.
_QUOTED_LENGTH = 40
_DIGITS: Final = (
    "the text has digits, which are spelled out in English and Mandarin only: pass Tools(normalizer=a function)"
)
_SPACE_BY_HAN = re.compile(f" (?={HAN.pattern})|(?<={HAN.pattern}) ")
_VOWELS = re.compile(r"[aeiouy]+")
# Endings that are not silent: table, agreed, hundred, churches, tables.
_SILENT_END = re.compile(
    r"(?:(?<![aeiouy])(?<![^aeiouylr]l)e"
    r"|(?<![aeiouytd])(?<![^aeiouylr]l)(?<![^aeiouyr]r)ed"
    r"|(?<![sxzcgaeiouy])(?<!sh)(?<!ch)(?<![^aeiouylr]l)es)$"
)
# Two syllables in one group of vowels, or one without a vowel: go-ing, ra-di-o (but na-tion), u-su-al, did-n't, pris-m.
_EXTRA_SYLLABLE = re.compile(r"[aeiouy]ing|(?<![cstgx])i[ao](?!ge)|(?<![gq])ua|[ds]nt$|(?:s|th)m$")


def other_words(first: Clip, second: Clip) -> str:
    """Return a message if the request texts of two clips differ; "" if they are equal or one is unknown."""
    texts = [clip.take.call.said for clip in (first, second) if clip.take is not None]
    if len(texts) < 2 or split_words(texts[0]) == split_words(texts[1]):
        return ""
    return "the clips have different texts, {!r} and {!r}".format(*(shortened(text, _QUOTED_LENGTH) for text in texts))


@lru_cache(maxsize=4)
def _recognizer(name: str, variable: str) -> Recognizer:  # noqa: ARG001 (the environment variable selects the default)
    recognizer = recognizer_by_name(name) if name else default_recognizer()
    if recognizer is None:
        raise ArgumentError.of("recognizer", "is required, as VOICELAB_RECOGNIZER is none; pass Tools(recognizer=...)")
    return recognizer


def recognizer_of(tools: Tools) -> Recognizer:
    """Return the tools' recognizer, or the default.

    Raises ArgumentError for an unknown name or missing weights, MissingExtra if it is not installed.
    """
    chosen = tools.recognizer or ""
    recognizer = _recognizer(chosen, os.environ.get("VOICELAB_RECOGNIZER", "")) if isinstance(chosen, str) else chosen
    if not isinstance(recognizer, Recognizer):
        raise ArgumentError.of("recognizer", f"must be a name or a voicelab.asr.recognizers.Recognizer, got {chosen!r}")
    return recognizer


def recognizer_name(tools: Tools) -> str:
    """Return the name of the tools' recognizer with its model, without loading it, or the class name of an unnamed one."""
    recognizer = tools.recognizer or os.environ.get("VOICELAB_RECOGNIZER", "")
    return (
        full_name(recognizer) if isinstance(recognizer, str) else getattr(recognizer, "name", type(recognizer).__name__)
    )


def normalizer_name(tools: Tools) -> str:
    """Return the name of the text normalizer: "voicelab", "whisper", "none", or that of a function."""
    chosen = tools.normalizer
    return chosen if isinstance(chosen, str) else "none" if chosen is None else getattr(chosen, "__name__", "custom")


def recognized_words(subject: Subject) -> list[str]:
    """Transcribe the clip into normalized words. Raises Undefined for a language that the recognizer does not support."""
    recognizer, language = recognizer_of(subject.tools), language_of(subject.said)
    name = recognizer_name(subject.tools)
    if language == "zh" and (name == "pocketsphinx" or name.endswith(".en")):
        raise Undefined(f"the text contains Chinese, but {name} supports only English: pass Tools(recognizer=...)")
    transcript = recognizer.recognise(subject.clip.samples, subject.clip.rate)
    if language == "zh" and subject.tools.normalizer == "seed-tts-eval":
        transcript = simplified(transcript)
    return normalized_words(transcript, subject.tools.normalizer, language)


def _reference_words(subject: Subject) -> list[str]:
    language, normalizer = language_of(subject.said), subject.tools.normalizer
    reference = normalized_words(subject.said, normalizer, language)
    if normalizer == "voicelab" and not language and has_digits(reference):
        raise Undefined(_DIGITS)
    if not reference:
        raise Undefined("the text contains no word")
    return reference


def words(subject: Subject) -> float:
    """Number of words in the normalized text: the weight of a clip in a pooled WER."""
    return float(len(_reference_words(subject)))


def wer(subject: Subject) -> float:
    """Word error rate: substitutions, deletions and insertions per word of the text; may exceed 1.

    It is the Levenshtein distance (1966), computed by jiwer, between the text and the transcript. Both are normalized
    by ``Tools.normalizer`` (``voicelab.asr.normalization.normalized_words``), so that "$100" and "one hundred dollars"
    are equal and each Chinese character is a word. The columns ``recognizer`` and ``normalizer`` name the ASR model and
    the rules. The rate includes the recognizer's own errors, so only compare rates of one recognizer and normalizer. To
    pool clips, weight their rates by ``words``.
    """
    import jiwer

    return float(jiwer.wer(" ".join(_reference_words(subject)), " ".join(subject.once(recognized_words))))


def cer(subject: Subject) -> float:
    """Character error rate, normalized like ``wer``; spaces between words count as characters, except in Chinese."""
    import jiwer

    reference = _SPACE_BY_HAN.sub("", " ".join(_reference_words(subject)))
    return float(jiwer.cer(reference, _SPACE_BY_HAN.sub("", " ".join(subject.once(recognized_words)))))


def pauses(subject: Subject) -> float:
    """Number of pauses of 0.25 s or longer between intervals of speech, as detected by ``activity``.

    Threshold: F. Goldman-Eisler, "Psycholinguistics: Experiments in Spontaneous Speech" (1968).
    """
    return float(len(subject.once(activity).pauses))


def pause_time(subject: Subject) -> float:
    """Total duration of the pauses in seconds; see ``pauses``."""
    spans = subject.once(activity).pauses
    return float((spans[:, 1] - spans[:, 0]).sum())


def longest_pause(subject: Subject) -> float:
    """Duration of the longest pause in seconds, 0 if there are no pauses; see ``pauses``."""
    spans = subject.once(activity).pauses
    return float((spans[:, 1] - spans[:, 0]).max(initial=0.0))


def speech_time(subject: Subject) -> float:
    """Seconds from speech onset to speech offset, pauses included."""
    speech = subject.once(activity)
    return speech.end - speech.start


def word_rate(subject: Subject) -> float:
    """Speaking rate: words per second from speech onset to offset, pauses included.

    The words are those of the text as written (in Chinese, its characters) or, if the text is unknown, those for which
    the backend returned times. Definition: F. Goldman-Eisler (1968).
    """
    count = len(split_words(subject.text)) if subject.text else len(subject.clip.words)
    if not count:
        raise Undefined("the clip's words are unknown")
    return count / speech_time(subject)


def syllable_rate(subject: Subject) -> float:
    """Articulation rate: syllables per second of speech without pauses (F. Goldman-Eisler, 1968).

    The number of syllables of an English word is estimated from its spelling as the number of vowel groups, with rules
    for silent endings and hiatus, and is at least one. The estimate is right for 90 % of the words of the CMU
    Pronouncing Dictionary and within 1 % on running text. A Chinese character is a syllable; other languages are not
    supported.
    """
    words = split_words(spelled(subject.said, language_of(subject.said)))
    if has_digits(words):
        raise Undefined(_DIGITS)
    count = sum(map(_syllables, words))
    return count / (speech_time(subject) - pause_time(subject))


def _syllables(word: str) -> int:
    groups = len(_VOWELS.findall(word)) + len(_EXTRA_SYLLABLE.findall(word))
    silent = groups > 1 and _SILENT_END.search(word) is not None
    return max(1, groups - silent)
