"""How fast somebody speaks, and where he pauses."""

from __future__ import annotations

import re

from voicelab.experiments.metrics.activity import activity
from voicelab.experiments.metrics.metric import Subject, Undefined
from voicelab.experiments.metrics.words import split_words

__all__ = ["longest_pause", "pause_time", "pauses", "speech_time", "syllable_rate", "word_rate"]

_VOWELS = re.compile(r"[aeiouy]+")
# Not silent: table, agreed, hundred, churches, tables.
_SILENT_END = re.compile(
    r"(?:(?<![aeiouy])(?<![^aeiouylr]l)e"
    r"|(?<![aeiouytd])(?<![^aeiouylr]l)(?<![^aeiouyr]r)ed"
    r"|(?<![sxzcgaeiouy])(?<!sh)(?<!ch)(?<![^aeiouylr]l)es)$"
)
# Two syllables in one group of vowels, or one without a vowel: go-ing, ra-di-o (but na-tion), u-su-al, did-n't, pris-m.
_APART = re.compile(r"[aeiouy]ing|(?<![cstgx])i[ao](?!ge)|(?<![gq])ua|[ds]nt$|(?:s|th)m$")


def pauses(subject: Subject) -> float:
    """Number of pauses of 0.25 s or longer between two stretches of speech; ``activity`` says what speech is.

    F. Goldman-Eisler, "Psycholinguistics: Experiments in Spontaneous Speech" (1968), for the limit.
    """
    return float(len(subject.once(activity).pauses))


def pause_time(subject: Subject) -> float:
    """Seconds of all pauses together; see ``pauses``."""
    spans = subject.once(activity).pauses
    return float((spans[:, 1] - spans[:, 0]).sum())


def longest_pause(subject: Subject) -> float:
    """Seconds of the longest pause, 0 when there is none; see ``pauses``."""
    spans = subject.once(activity).pauses
    return float((spans[:, 1] - spans[:, 0]).max(initial=0.0))


def speech_time(subject: Subject) -> float:
    """Seconds from the first speech to the last, pauses included and silence at the ends left out."""
    found = subject.once(activity)
    return found.end - found.start


def word_rate(subject: Subject) -> float:
    """Words per second from the first speech to the last, pauses included: the speaking rate.

    As opposed to the articulation rate, which leaves pauses out (F. Goldman-Eisler, 1968). The words are those
    of the text, counted as written (of Chinese, the characters), or those whose times the backend told when there is no text.
    """
    count = len(split_words(subject.text, None)) if subject.text else len(subject.clip.words)
    if not count:
        raise Undefined("nobody says what words are in the clip")
    return count / speech_time(subject)


def syllable_rate(subject: Subject) -> float:
    """Syllables per second of speech without its pauses: the articulation rate (F. Goldman-Eisler, 1968).

    Syllables of English are counted by the groups of vowels in the spelling, without silent endings and with what is
    spoken apart, at least one a word: as the CMU Pronouncing Dictionary has it for nine of ten of its words, and to
    within 1 % for running text; not for other languages but Chinese, where a character is a syllable.
    Undefined for a text with figures in it unless ``Tools.spoken`` reads them out.
    """
    words = split_words(subject.said, subject.tools.spoken, figures=False)
    spoken = speech_time(subject) - pause_time(subject)
    return sum(_syllables(word) for word in words) / spoken


def _syllables(word: str) -> int:
    groups = len(_VOWELS.findall(word)) + len(_APART.findall(word))
    silent = groups > 1 and _SILENT_END.search(word) is not None
    return max(1, groups - silent)
