"""Text normalization: converts written text to words, in the language of the text.

There are three steps: `clean` reduces the character set; the rules of the language (`english`, `mandarin`) verbalize numbers,
dates, symbols and abbreviations; `tidy` reduces punctuation. Grapheme-to-phoneme conversion is part of each model family.

``normalize`` verbalizes fully; ``as_written`` is for requests with ``normalize=false`` and verbalizes only digits, one by
one, because omitted digits would be silence. Both return letters, spaces and ``, . ? ! ; : — - '`` only, and never raise.

Both take the languages of the voice, "en" (English) and "zh" (Mandarin). They return ASCII letters and, for a voice with
Mandarin, Chinese characters; other scripts are left out, with a note. A voice with both languages reads text without a
Chinese character as English.

Output conventions: capitalized acronyms (NASA, IBM) are left to the lexicon; words capitalized for emphasis ("NOT", or a
text all in capitals) become lower case; abbreviations with periods become single capitals ("U.S." is "U S"), with "ay" for
the letter A to distinguish it from the article.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from voicelab.tags import listed
from voicelab.text.clean import HAN, Normalized, clean
from voicelab.text.english import LAYOUT, english, english_plain
from voicelab.text.mandarin import mandarin, mandarin_plain
from voicelab.text.markup import plain

_HAN = re.compile(f"[{HAN}]")
_MAY_VANISH: Final = re.compile(
    rf"[<>^~*#`/]|(?<![A-Za-z\d])_|_(?![A-Za-z\d])|(?P<sign>[^\w\s.,!?;:'\"()-])(?P=sign)|{LAYOUT['emoticon'].regex}",
    re.MULTILINE,
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?\n]\s)|(?<=[\n。！？])")
_MAX_SENTENCES: Final = 20
"""Maximum number of sentences per symbol that `left_out` normalizes to find out whether the symbol is read."""
_UNREAD: Final = re.compile(r"[^\w\s,.?!;:—'\"()\[\]-]|_")


def normalize(text: str, languages: Collection[str] = ("en",)) -> Normalized:
    """Normalize `text` to words on a single line, with notes on omissions; paragraphs end with a period.

    The result is "" for a text without a speakable character, which `clean.speakable` rejects with the reason.
    """
    unmarked = plain(text)
    cleaned = clean(unmarked.text, chinese="zh" in languages)
    verbalize = mandarin if _is_chinese(cleaned.text, languages) else english
    unread: list[str] = []
    words = verbalize(cleaned.text, unread)
    if not words and not unread:
        unread += re.findall(r"[^\w\s]", cleaned.text)
    return Normalized(words, (*cleaned.notes, *unmarked.notes, *_notes(cleaned.text, unread)))


def left_out(text: str, languages: Collection[str] = ("en",)) -> tuple[str, ...]:
    """Return notes on markup, emoticons and symbols that ``normalize`` leaves out, in addition to the notes of `clean`."""
    unmarked = plain(text)
    rest = clean(unmarked.text, chinese="zh" in languages).text
    if not _MAY_VANISH.search(rest):
        return unmarked.notes
    verbalize = mandarin if _is_chinese(rest, languages) else english
    counts, unread = Counter[str](), list[str]()
    for sentence in _SENTENCE_END.split(rest):
        symbols = {m.group() for m in _MAY_VANISH.finditer(sentence)}
        if any(counts[symbol] < _MAX_SENTENCES for symbol in symbols):
            counts.update(symbols)
            verbalize(sentence, unread)
    return (*unmarked.notes, *_notes(rest, unread))


def _notes(text: str, unread: list[str]) -> tuple[str, ...]:
    dropped = {"emoticons": LAYOUT["emoticon"].pattern.findall(text), "symbols": ["".join(dict.fromkeys(unread))]}
    return tuple(f"{kind} left out: {listed(items)}" for kind, items in dropped.items() if any(items))


def as_written(text: str, languages: Collection[str] = ("en",)) -> Normalized:
    """Prepare `text` for ``normalize=false``: no expansion, digits one by one, symbols left out.

    "Dr. Lee paid $3.50" becomes "Dr. Lee paid three point five zero", with a note on $.
    """
    cleaned = clean(text, chinese="zh" in languages)
    unread = "".join(dict.fromkeys(_UNREAD.findall(cleaned.text)))
    notes = cleaned.notes + ((f"symbols left out because normalize is off: {unread}",) if unread else ())
    verbalize = mandarin_plain if _is_chinese(cleaned.text, languages) else english_plain
    return Normalized(verbalize(cleaned.text), notes)


def _is_chinese(text: str, languages: Collection[str]) -> bool:
    return "zh" in languages and (_HAN.search(text) is not None or "en" not in languages)
