"""The most frequent English words: enough to tell English from other languages, and shouting from acronyms."""

from __future__ import annotations

from typing import Final

__all__ = ["ENGLISH"]

_FREQUENT: Final = (
    "the of and to in is that it for was on are as with his they at be this have from or one had by but not what "
    "all were we when your can said there use an each which she do how their if will up other about out many then "
    "them these so some her would make like him into time has look two more go see no way could people my than "
    "first been call who its now find long down day did get come made may i you he"
)
ENGLISH: Final = frozenset(_FREQUENT.split())
