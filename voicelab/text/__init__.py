"""Text normalization: what is written becomes what is said, in words of the language it is written in.

The way of a text: `clean` gives each character one spelling, the rules of its language (`english`,
`mandarin`) turn what is written into words, `tidy` reduces the punctuation. How words sound is a family's own affair.

``normalize`` reads numbers, dates, money and abbreviations as a person would; ``as_written`` is for requests
with ``normalize=false``: the text is taken as written, except that digits are still read one by one, since
leaving them out would pass silence off as speech. Both return letters, spaces and ``, . ? ! ; : — - '`` only, and
never raise.

Both are told which languages the voice speaks, "en" (English) and "zh" (Mandarin); the letters are ASCII, and
Chinese characters for a voice that speaks Mandarin. What is in another script is left out, and the notes say so. Text
without a Chinese character is read as English by a voice that speaks both.

Conventions for the next stage: words in capitals (NASA, IBM) are left for the lexicon to say or spell, except plain
words capitalised for emphasis ("NOT", or a text that is shouted throughout), which become lower case; initialisms
written with periods come as single capitals ("U.S." is "U S"), with the letter A written "ay" so that it is not
taken for the article.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from voicelab.tags import listed
from voicelab.text.clean import HAN, Normalized, clean
from voicelab.text.english import LAYOUT, RULES, english, english_plain
from voicelab.text.mandarin import mandarin, mandarin_plain

_HAN = re.compile(f"[{HAN}]")
_MAY_VANISH: Final = re.compile(r"[<>^~*#`]|(?:^|\s)(?:[:;=]-?[()DPp]|XD)", re.MULTILINE)
_UNSAID: Final = re.compile(r"[^\w\s,.?!;:—'\"()\[\]{}/|–-]")
_MAX_LOOKED_AT: Final = 1000
"""Characters of lines with signs that the rules are applied to once more, to see which signs are read."""
_UNREAD: Final = re.compile(r"[^\w\s,.?!;:—'\"()\[\]-]|_")


def normalize(text: str, languages: Collection[str] = ("en",)) -> Normalized:
    """`text` in words, with notes on what was left out.

    The text is "" when nothing in it can be said; `clean.speakable` tells beforehand, with the reason. One line of
    output: paragraphs end with a period.
    """
    cleaned = clean(text, chinese="zh" in languages)
    read = mandarin if _is_chinese(cleaned.text, languages) else english
    return Normalized(read(cleaned.text), (*cleaned.notes, *left_out(cleaned.text, languages)))


def left_out(text: str, languages: Collection[str] = ("en",)) -> tuple[str, ...]:
    """Return notes on what ``normalize`` leaves out of cleaned text: angle brackets, emoticons, in English signs too."""
    if not _MAY_VANISH.search(text):
        return ()
    markup, emoticon = LAYOUT["markup"].pattern, RULES["emoticon"].pattern
    rest = markup.sub(" ", text)
    dropped = {"text in angle brackets": markup.findall(text), "emoticons": emoticon.findall(rest)}
    if not _is_chinese(text, languages):
        lines = "\n".join(line for line in rest.splitlines() if _MAY_VANISH.search(line))[:_MAX_LOOKED_AT]
        dropped["symbols"] = ["".join(dict.fromkeys(_UNSAID.findall(RULES.apply(LAYOUT.apply(lines)))))]
    return tuple(f"{kind} left out: {listed(items)}" for kind, items in dropped.items() if any(items))


def as_written(text: str, languages: Collection[str] = ("en",)) -> Normalized:
    """`text` as it stands, for ``normalize=false``: no expansion, digits one by one, symbols left out.

    "Dr. Lee paid $3.50" becomes "Dr. Lee paid three point five zero", and a note says that $ was left out.
    """
    cleaned = clean(text, chinese="zh" in languages)
    unread = "".join(dict.fromkeys(_UNREAD.findall(cleaned.text)))
    notes = cleaned.notes + ((f"symbols left out because normalize is off: {unread}",) if unread else ())
    read = mandarin_plain if _is_chinese(cleaned.text, languages) else english_plain
    return Normalized(read(cleaned.text), notes)


def _is_chinese(text: str, languages: Collection[str]) -> bool:
    return "zh" in languages and (_HAN.search(text) is not None or "en" not in languages)
