"""Text normalization: written text to words, in the language of the text.

Steps: `clean` reduces the character set, the rules of the language (`english`, `mandarin`) verbalize numbers, dates,
symbols and abbreviations, `tidy` reduces punctuation. Grapheme-to-phoneme conversion belongs to each model family.

``normalize`` verbalizes fully; ``as_written`` is for requests with ``normalize=false`` and verbalizes only digits, one by
one, because omitted digits would be silence. Both return letters, spaces and ``, . ? ! ; : — - '`` only, and never raise.

Both need the languages of the voice, "en" (English) and "zh" (Mandarin). Letters are ASCII, and Chinese characters for a
voice with Mandarin; other scripts are left out, with a note. A voice with both languages reads text without a Chinese
character as English.

Output conventions: capitalized acronyms (NASA, IBM) are left to the lexicon; words capitalized for emphasis ("NOT", or a
text all in capitals) become lower case; abbreviations with periods become single capitals ("U.S." is "U S"), with "ay" for
the letter A to distinguish it from the article.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from voicelab.tags import listed
from voicelab.text.clean import HAN, Normalized, clean
from voicelab.text.english import LAYOUT, RULES, english, english_plain
from voicelab.text.mandarin import mandarin, mandarin_plain
from voicelab.text.markup import plain

_HAN = re.compile(f"[{HAN}]")
_MAY_VANISH: Final = re.compile(r"[<>^~*#`]|(?:^|\s)(?:[:;=]-?[()DPp]|XD)", re.MULTILINE)
_UNSAID: Final = re.compile(r"[^\w\s,.?!;:—'\"()\[\]{}/|–-]")
_MAX_SYMBOL_TEXT: Final = 1000
"""Number of characters that `left_out` normalizes to detect symbols without a verbalization."""
_UNREAD: Final = re.compile(r"[^\w\s,.?!;:—'\"()\[\]-]|_")


def normalize(text: str, languages: Collection[str] = ("en",)) -> Normalized:
    """Normalize `text` to words on a single line, with notes on omissions; paragraphs end with a period.

    Texts without a speakable character give "" (`clean.speakable` rejects them with the reason).
    """
    unmarked = plain(text)
    cleaned = clean(unmarked.text, chinese="zh" in languages)
    verbalize = mandarin if _is_chinese(cleaned.text, languages) else english
    return Normalized(verbalize(cleaned.text), (*cleaned.notes, *left_out(text, languages)))


def left_out(text: str, languages: Collection[str] = ("en",)) -> tuple[str, ...]:
    """Return notes on omissions of ``normalize``, besides those of `clean`: markup, emoticons and, in English, symbols."""
    unmarked = plain(text)
    rest = clean(unmarked.text, chinese="zh" in languages).text
    if not _MAY_VANISH.search(rest):
        return unmarked.notes
    dropped = {"emoticons": RULES["emoticon"].pattern.findall(rest)}
    if not _is_chinese(rest, languages):
        lines = "\n".join(line for line in rest.splitlines() if _MAY_VANISH.search(line))[:_MAX_SYMBOL_TEXT]
        dropped["symbols"] = ["".join(dict.fromkeys(_UNSAID.findall(RULES.apply(LAYOUT.apply(lines)))))]
    more = (f"{kind} left out: {listed(items)}" for kind, items in dropped.items() if any(items))
    return (*unmarked.notes, *more)


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
