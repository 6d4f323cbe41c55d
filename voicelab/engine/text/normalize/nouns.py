"""Whether an amount describes the noun after it, and so stands in the singular: "a 5 km run", "the $2 bill"."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["before_noun", "describes"]

_ARTICLE = re.compile(
    r"(?<![A-Za-z])(?:(?P<sure>[Aa]n?|[Ee]ach|[Ee]very|[Oo]ther)|[Tt]he(?:ir)?|[Tt]h(?:is|at)|[Ii]ts|[Hh]is|[Hh]er|[Oo]ur|"
    r"[Yy]our|[Mm]y) \Z"
)
_WORD = re.compile(r"[ -](?P<word>[a-z]{3,})")
_NO_NOUN: Final = frozenset(
    (
        "was were are has had have will would can could may might must shall should did does she they you who whom whose "
        "that which what for from with and but nor than then when where while because since until till after before during "
        "between per each the this these those away apart off out over under down again ago also not now here there just "
        "only more less about above across against along among around back below behind beside beyond into near onto "
        "toward towards through throughout upon via within without went cost costs came seemed seems felt became took made "
        "left got goes comes takes feels makes means meant gets gives gave came still too very yet even ever never soon "
        "later earlier once high tall long wide deep thick old due plus minus times his her him its our your their all any "
        "some both how why"
    ).split()
)
_DAILY: Final = frozenset("daily weekly monthly yearly hourly early family supply".split())


def before_noun(text: str, end: int) -> bool:
    """Whether a noun, or an adjective before one, follows ``text[:end]``: no preposition, conjunction or verb."""
    found = _WORD.match(text, end)
    if found is None or found["word"] in _NO_NOUN:
        return False
    word = found["word"]
    return not word.endswith("ed") and (not word.endswith("ly") or word in _DAILY)


def describes(text: str, start: int, end: int) -> bool:
    """Whether the amount ``text[start:end]`` stands between an article or the like and a noun."""
    article = _ARTICLE.search(text[max(0, start - 8) : start])
    if article is None:
        return False
    # "a" before an amount is of the noun after it; "the" may be of the amount: "the 5 km were hard".
    return _WORD.match(text, end) is not None if article["sure"] else before_noun(text, end)
