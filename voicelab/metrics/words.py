"""What is said: errors of words by a recognizer, how fast somebody speaks, and where they pause."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from voicelab.asr.transcripts import PocketRecognizer, Recognizer, default_recognizer
from voicelab.clip import Clip
from voicelab.errors import MissingExtra, shortened
from voicelab.metrics.level import activity
from voicelab.metrics.metric import Subject, Tools, Undefined

# Letters of a text that an error repeats.
_SHOWN = 40
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_BESIDE_HAN = re.compile(f" (?={_HAN.pattern})|(?<={_HAN.pattern}) ")
_APOSTROPHES = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
# Combining marks of Latin and Greek letters: elsewhere they make other letters.
_DIACRITICS = re.compile(r"(?<=[^\W\u0400-\u04ff])[\u0300-\u036f]+")
_VOWELS = re.compile(r"[aeiouy]+")
# Not silent: table, agreed, hundred, churches, tables.
_SILENT_END = re.compile(
    r"(?:(?<![aeiouy])(?<![^aeiouylr]l)e"
    r"|(?<![aeiouytd])(?<![^aeiouylr]l)(?<![^aeiouyr]r)ed"
    r"|(?<![sxzcgaeiouy])(?<!sh)(?<!ch)(?<![^aeiouylr]l)es)$"
)
# Two syllables in one group of vowels, or one without a vowel: go-ing, ra-di-o (but na-tion), u-su-al, did-n't, pris-m.
_APART = re.compile(r"[aeiouy]ing|(?<![cstgx])i[ao](?!ge)|(?<![gq])ua|[ds]nt$|(?:s|th)m$")


def split_words(text: str, spoken: Callable[[str], str] | None, *, figures: bool = True) -> list[str]:
    """Return the words of ``text`` as they are compared.

    ``spoken`` reads the text out first, when given. Then: Unicode NFKC, case folded, diacritics taken off ("café" is
    "cafe", as recognizers write either; where they alone tell words apart, as tones do in Vietnamese, such errors are
    not counted), apostrophes inside words
    taken out ("don't" is "dont", since they are not heard), and everything that is no letter, mark or digit
    divides words, hyphens too. A Chinese character is a word by itself, as in the mixed error rates of texts in Mandarin
    and English. Raises Undefined when there is a digit and ``figures`` forbids it, for "1984"
    can be heard in several ways.
    """
    plain = unicodedata.normalize("NFKC", spoken(text) if spoken is not None else text).casefold()
    plain = unicodedata.normalize("NFC", _DIACRITICS.sub("", unicodedata.normalize("NFD", plain)))
    plain = _APOSTROPHES.sub("", plain)
    kept = "".join(sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in plain)
    kept = _HAN.sub(r" \g<0> ", kept)
    if not figures and any(unicodedata.category(sign)[0] == "N" for sign in kept):
        raise Undefined("the text has figures in it, which can be read out in several ways: give Tools(spoken=…)")
    return kept.split()


def other_words(first: Clip, second: Clip) -> str:
    """Say that two clips were asked to say different words; "" where they were not, or that is unknown."""
    texts = [clip.take.call.said for clip in (first, second) if clip.take is not None]
    if len(texts) < 2 or split_words(texts[0], None) == split_words(texts[1], None):
        return ""
    one, other = (shortened(text, _SHOWN) for text in texts)
    return f"they say different texts, {one!r} and {other!r}"


@lru_cache(maxsize=1)
def _own_recognizer() -> Recognizer:
    recognizer = default_recognizer()
    if recognizer is None:
        raise MissingExtra.of("recognition", "hearing words")
    return recognizer


def recognizer_of(tools: Tools) -> Recognizer:
    """Return the recognizer given, or voicelab's own. Raises MissingExtra when that is not installed."""
    return tools.recognizer or _own_recognizer()


def recognizer_name(tools: Tools) -> str:
    """Return the ``name`` of the recognizer, with its weights where it has several; its class where it has none."""
    recognizer = recognizer_of(tools)
    return str(getattr(recognizer, "name", type(recognizer).__name__))


def recognised_words(subject: Subject) -> list[str]:
    """Return the words that the recognizer hears in the clip. Raises Undefined for what it was not made to hear."""
    recognizer = recognizer_of(subject.tools)
    if isinstance(recognizer, PocketRecognizer) and _HAN.search(subject.said):
        raise Undefined("the text has Chinese in it, and pocketsphinx hears English alone: give Tools(recognizer=…)")
    return split_words(recognizer.recognise(subject.clip.samples, subject.clip.rate), subject.tools.spoken)


def _wanted(subject: Subject) -> list[str]:
    wanted = split_words(subject.said, subject.tools.spoken, figures=False)
    if not wanted:
        raise Undefined("there is no word in the text")
    return wanted


def words(subject: Subject) -> float:
    """Number of words in the text, as ``wer`` counts them: the weight of a clip in a rate over many."""
    return float(len(_wanted(subject)))


def wer(subject: Subject) -> float:
    """Word error rate: words substituted, left out and put in, over the words of the text; may pass 1.

    The least number of edits (V. I. Levenshtein, 1966), counted by jiwer, between the text and what the
    recognizer hears, which the column ``recognizer`` names, both normalised as ``split_words`` says, so that Chinese
    characters count as words. A recognizer makes errors of its own, so that
    rates mean something only side by side; over many clips, weigh by ``words``.
    """
    import jiwer

    return float(jiwer.wer(" ".join(_wanted(subject)), " ".join(subject.once(recognised_words))))


def cer(subject: Subject) -> float:
    """Character error rate: as ``wer``, by letters; the spaces between words count as letters, where words have some."""
    import jiwer

    both = (_wanted(subject), subject.once(recognised_words))
    wanted, recognised = (_BESIDE_HAN.sub("", " ".join(each)) for each in both)
    return float(jiwer.cer(wanted, recognised))


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
    speech = subject.once(activity)
    return speech.end - speech.start


def word_rate(subject: Subject) -> float:
    """Words per second from the first speech to the last, pauses included: the speaking rate.

    As opposed to the articulation rate, which leaves pauses out (F. Goldman-Eisler, 1968). The words are those
    of the text, counted as written (of Chinese, the characters), or without a text those that the backend timed.
    """
    count = len(split_words(subject.text, None)) if subject.text else len(subject.clip.words)
    if not count:
        raise Undefined("the clip's words are unknown")
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
