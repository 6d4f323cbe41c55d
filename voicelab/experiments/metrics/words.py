"""Are the words right? Word and character errors by a recognizer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from voicelab.audio.clip import Clip
from voicelab.errors import MissingExtra
from voicelab.experiments.metrics.metric import Subject, Tools, Undefined
from voicelab.voices.transcripts import PocketRecognizer, Recognizer, default_recognizer

__all__ = ["cer", "heard", "other_words", "recognizer_of", "split_words", "wer", "words"]

# Letters of a text that an error repeats.
_TOLD = 40
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_BESIDE_HAN = re.compile(f" (?={_HAN.pattern})|(?<={_HAN.pattern}) ")
_APOSTROPHES = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")


def split_words(text: str, spoken: Callable[[str], str] | None, *, figures: bool = True) -> list[str]:
    """Return the words of ``text`` as they are compared.

    ``spoken`` reads the text out first, when given. Then: Unicode NFKC, case folded, apostrophes inside words
    taken out ("don't" is "dont", since nobody hears them), and everything that is no letter, mark or digit
    divides words, hyphens too. A Chinese character is a word by itself, as in the mixed error rates of texts in Mandarin
    and English. Raises Undefined when there is a digit and ``figures`` forbids it, for "1984"
    can be heard in several ways.
    """
    plain = unicodedata.normalize("NFKC", spoken(text) if spoken is not None else text).casefold()
    plain = _APOSTROPHES.sub("", plain)
    kept = "".join(sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in plain)
    kept = _HAN.sub(r" \g<0> ", kept)
    if not figures and any(unicodedata.category(sign)[0] == "N" for sign in kept):
        raise Undefined("the text has figures in it, which can be read out in several ways: give Tools(spoken=…)")
    return kept.split()


def other_words(first: Clip, second: Clip) -> str:
    """Say that two clips were asked to say different words; "" where they were not, or nobody knows."""
    texts = [clip.provenance.request.text for clip in (first, second) if clip.provenance is not None]
    if len(texts) < 2 or split_words(texts[0], None) == split_words(texts[1], None):
        return ""
    one, other = (text if len(text) <= _TOLD else text[: _TOLD - 1] + "…" for text in texts)
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


def heard(subject: Subject) -> list[str]:
    """Return the words that the recognizer hears in the clip. Raises Undefined for what it was not made to hear."""
    recognizer = recognizer_of(subject.tools)
    if isinstance(recognizer, PocketRecognizer) and _HAN.search(subject.said):
        raise Undefined("the text has Chinese in it, and pocketsphinx hears English alone: give Tools(recognizer=…)")
    return split_words(recognizer.recognise(subject.clip.samples, subject.clip.rate), subject.tools.spoken)


def _wanted(subject: Subject) -> list[str]:
    found = split_words(subject.said, subject.tools.spoken, figures=False)
    if not found:
        raise Undefined("there is no word in the text")
    return found


def words(subject: Subject) -> float:
    """Number of words in the text, as ``wer`` counts them: the weight of a clip in a rate over many."""
    return float(len(_wanted(subject)))


def wer(subject: Subject) -> float:
    """Word error rate: words substituted, left out and put in, over the words of the text; may pass 1.

    The least number of edits (V. I. Levenshtein, 1966), counted by jiwer, between the text and what the
    recognizer hears, both normalised as ``split_words`` says, so that Chinese
    characters count as words. A recognizer makes errors of its own, so that
    rates mean something only side by side; over many clips, weigh by ``words``.
    """
    import jiwer

    return float(jiwer.wer(" ".join(_wanted(subject)), " ".join(subject.once(heard))))


def cer(subject: Subject) -> float:
    """Character error rate: as ``wer``, by letters; the spaces between words count as letters, where words have some."""
    import jiwer

    wanted, found = (_BESIDE_HAN.sub("", " ".join(each)) for each in (_wanted(subject), subject.once(heard)))
    return float(jiwer.cer(wanted, found))
