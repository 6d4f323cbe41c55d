"""Whether a text can be spoken: refused with the reason, or accepted with notes on what will be left out."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from typing import Final

from voicelab.engine.text.normalize.clean import clean, fold, is_emoji, is_han, script
from voicelab.engine.text.normalize.frequent import ENGLISH
from voicelab.errors import RequestInvalid

__all__ = ["LANGUAGES", "speakable"]

LANGUAGES: Final = {"en": "English", "zh": "Mandarin"}
"""What the front end can normalize: code → name."""

_OTHERS: Final = {
    "French": "le la les des est et dans une pour que qui pas vous nous avec sur ce il elle je suis sont au aux du",
    "German": "der die das und ist nicht ein eine ich wir sie mit auf für von dem den zu auch es im war wird",
    "Spanish": "el la los las es y en una por que con para del su como pero muy está son lo se al más",
    "Italian": "il la gli le è e di che non una per con del della sono come ma più questo anche nel",
    "Portuguese": "o os as é e em uma por que com para do da não se mais como mas ao são dos",
    "Dutch": "de het een en is van niet dat op te zijn voor met aan er maar ook bij naar ik wij",
}
"""Frequent short words, enough to notice that a Latin-letter text is not English."""

_WORD = re.compile(r"[^\W\d_]+")
_MIN_WORDS: Final = 5


def _language(text: str) -> str | None:
    """The name of the language if `text` is plainly one of `_OTHERS` and not English."""
    words = [word.lower() for word in _WORD.findall(unicodedata.normalize("NFC", text))]
    if len(words) < _MIN_WORDS:
        return None
    english = sum(word in ENGLISH for word in words)
    scores = {name: sum(word in frequent.split() for word in words) for name, frequent in _OTHERS.items()}
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] >= max(2, 0.2 * len(words)) and scores[best] > 2 * english else None


def _count(text: str, chinese: bool) -> tuple[int, int, Counter[str]]:
    """Letters that can be spoken, digits, and letters per script that cannot."""
    spoken = figures = 0
    foreign: Counter[str] = Counter()
    for char in unicodedata.normalize("NFC", text):
        if char.isascii():
            spoken += char.isalpha()
            figures += char.isdigit()
        elif is_emoji(char):
            continue
        elif chinese and is_han(char):
            spoken += 1
        else:
            plain = fold(char) or ""
            if any(c.isascii() and c.isalpha() for c in plain) and unicodedata.category(char)[0] in "LN":
                spoken += 1
            elif any(c.isascii() and c.isdigit() for c in plain):
                figures += 1
            elif unicodedata.category(char).startswith("L"):
                foreign[script(char)] += 1
    return spoken, figures, foreign


def _refusal(text: str, spoken: int, figures: int, foreign: Counter[str], languages: Collection[str]) -> str | None:
    if not text.strip():
        return "the text is blank"
    strange = foreign.total()
    if strange > spoken and (strange or not figures):
        names = " and ".join(name for name, _ in foreign.most_common(2))
        reads = " and ".join(LANGUAGES.get(language, language) for language in languages)
        return f"the text is mostly in {names} characters, which this voice cannot speak; it reads {reads}"
    if spoken or figures:
        return None
    visible = [c for c in text if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf", "Mn")]
    if not visible:
        return "the text holds only invisible characters"
    kind = "emoji" if all(is_emoji(c) for c in visible) else "symbols and punctuation"
    return f"the text holds only {kind}: there is no letter or digit to speak"


def speakable(text: str, languages: Collection[str] = ("en",)) -> tuple[str, ...]:
    """Return notes on what of `text` (the whole request, as the user wrote it) will be left out or misread.

    Raises RequestInvalid at ``body.text`` when nothing in it can be spoken (blank, only symbols, only emoji), or
    when more than half of its letters are in a script that a voice of these `languages` cannot speak, which the
    message names.
    """
    chinese = "zh" in languages
    spoken, figures, foreign = _count(text, chinese)
    reason = _refusal(text, spoken, figures, foreign, languages)
    if reason is not None:
        raise RequestInvalid.of("text", reason)
    notes = clean(text, chinese=chinese).notes
    language = _language(text)
    if language is not None:
        notes += (f"the text looks like {language}; it is read as if it were English",)
    return notes
