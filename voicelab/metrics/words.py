"""Word and character error rates, speaking rate and pauses."""

from __future__ import annotations

import re
from functools import lru_cache

from voicelab.asr.normalization import HAN, has_digits, split_words
from voicelab.asr.recognizers import PocketRecognizer, Recognizer, default_recognizer
from voicelab.clip import Clip
from voicelab.errors import MissingExtra, shortened
from voicelab.metrics.level import activity
from voicelab.metrics.metric import Subject, Tools, Undefined

# Characters of a text quoted in an error.
_QUOTED_LENGTH = 40
_SPACE_BY_HAN = re.compile(f" (?={HAN.pattern})|(?<={HAN.pattern}) ")
_VOWELS = re.compile(r"[aeiouy]+")
# Not silent: table, agreed, hundred, churches, tables.
_SILENT_END = re.compile(
    r"(?:(?<![aeiouy])(?<![^aeiouylr]l)e"
    r"|(?<![aeiouytd])(?<![^aeiouylr]l)(?<![^aeiouyr]r)ed"
    r"|(?<![sxzcgaeiouy])(?<!sh)(?<!ch)(?<![^aeiouylr]l)es)$"
)
# Two syllables in one group of vowels, or one without a vowel: go-ing, ra-di-o (but na-tion), u-su-al, did-n't, pris-m.
_EXTRA_SYLLABLE = re.compile(r"[aeiouy]ing|(?<![cstgx])i[ao](?!ge)|(?<![gq])ua|[ds]nt$|(?:s|th)m$")


def other_words(first: Clip, second: Clip) -> str:
    """Explain that the request texts of two clips differ; "" when they are equal or unknown."""
    texts = [clip.take.call.said for clip in (first, second) if clip.take is not None]
    if len(texts) < 2 or split_words(texts[0]) == split_words(texts[1]):
        return ""
    return "they say different texts, {!r} and {!r}".format(*(shortened(text, _QUOTED_LENGTH) for text in texts))


@lru_cache(maxsize=1)
def _default_recognizer() -> Recognizer:
    recognizer = default_recognizer()
    if recognizer is None:
        raise MissingExtra.of("recognition", "speech recognition")
    return recognizer


def recognizer_of(tools: Tools) -> Recognizer:
    """Return the tools' recognizer, or the default. Raises MissingExtra when none is installed."""
    return tools.recognizer or _default_recognizer()


def recognizer_name(tools: Tools) -> str:
    """Return the recognizer's ``name``, which includes its model, or else its class name."""
    recognizer = recognizer_of(tools)
    return str(getattr(recognizer, "name", type(recognizer).__name__))


def recognized_words(subject: Subject) -> list[str]:
    """Transcribe the clip into normalized words. Raises Undefined for a language that the recognizer lacks."""
    recognizer = recognizer_of(subject.tools)
    if isinstance(recognizer, PocketRecognizer) and HAN.search(subject.said):
        raise Undefined("the text has Chinese in it, and pocketsphinx is English only: pass Tools(recognizer=…)")
    return split_words(recognizer.recognise(subject.clip.samples, subject.clip.rate), subject.tools.spoken)


def _spelled_words(subject: Subject) -> list[str]:
    reference = split_words(subject.said, subject.tools.spoken)
    if has_digits(reference):
        raise Undefined("the text has digits in it, whose reading is ambiguous: pass Tools(spoken=…)")
    return reference


def _reference_words(subject: Subject) -> list[str]:
    reference = _spelled_words(subject)
    if not reference:
        raise Undefined("there is no word in the text")
    return reference


def words(subject: Subject) -> float:
    """Number of words in the normalized text: the weight of a clip in a pooled WER."""
    return float(len(_reference_words(subject)))


def wer(subject: Subject) -> float:
    """Word error rate: substitutions, deletions and insertions, over the words of the text; may exceed 1.

    Levenshtein distance (1966), by jiwer, between the text and the transcript of the recognizer, which the column
    ``recognizer`` names, both normalized by ``split_words``, so that each Chinese character is a word. The rate includes
    the recognizer's own errors, so only compare rates of one recognizer; over many clips, weight by ``words``.
    """
    import jiwer

    return float(jiwer.wer(" ".join(_reference_words(subject)), " ".join(subject.once(recognized_words))))


def cer(subject: Subject) -> float:
    """Character error rate, normalized as ``wer``; spaces between words count as characters, except in Chinese."""
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
    """Duration of the longest pause in seconds, 0 without pauses; see ``pauses``."""
    spans = subject.once(activity).pauses
    return float((spans[:, 1] - spans[:, 0]).max(initial=0.0))


def speech_time(subject: Subject) -> float:
    """Seconds from speech onset to speech offset, pauses included."""
    speech = subject.once(activity)
    return speech.end - speech.start


def word_rate(subject: Subject) -> float:
    """Speaking rate: words per second from speech onset to offset, pauses included.

    The words are those of the text as written (in Chinese, characters), or without a text those timed by the backend.
    Definition: F. Goldman-Eisler (1968).
    """
    count = len(split_words(subject.text)) if subject.text else len(subject.clip.words)
    if not count:
        raise Undefined("the clip's words are unknown")
    return count / speech_time(subject)


def syllable_rate(subject: Subject) -> float:
    """Articulation rate: syllables per second of speech without pauses (F. Goldman-Eisler, 1968).

    English syllables are estimated from spelling: groups of vowels, with rules for silent endings and hiatus, at least
    one per word; right for 90 % of the words of the CMU Pronouncing Dictionary and within 1 % on running text. A Chinese
    character is a syllable; other languages are not supported. Undefined for a text with digits unless ``Tools.spoken``
    spells them out.
    """
    count = sum(map(_syllables, _spelled_words(subject)))
    return count / (speech_time(subject) - pause_time(subject))


def _syllables(word: str) -> int:
    groups = len(_VOWELS.findall(word)) + len(_EXTRA_SYLLABLE.findall(word))
    silent = groups > 1 and _SILENT_END.search(word) is not None
    return max(1, groups - silent)
