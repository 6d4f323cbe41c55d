"""Every word that the normalizer writes of its own accord, so that the lexicon can be sure to know them."""

from __future__ import annotations

import re
from functools import lru_cache

from voicelab.engine.text.abbreviations import ABBREVIATIONS, BEFORE_NUMBER, MONTHS, TITLES
from voicelab.engine.text.normalize.clean import GREEK
from voicelab.engine.text.normalize.dates import WEEKDAYS
from voicelab.engine.text.normalize.numbers import cardinal, ordinal, ordinal_plural, plural
from voicelab.engine.text.normalize.symbols import NAMES
from voicelab.engine.text.normalize.units import CURRENCIES, CURRENCY_CODES, PER, UNITS
from voicelab.engine.text.normalize.written import IN_ADDRESS

__all__ = ["vocabulary"]

_LOOSE = (
    "point minus plus over to and a half quarter quarters per percent thousand million billion trillion times ten "
    "power squared cubed square cubic degree degrees Celsius Fahrenheit Kelvin foot feet inch inches by number "
    "hashtag sharp less greater than equal not about Street Drive the oh hour hours minute minutes second seconds "
    "o'clock midnight hundred hundreds thousands tens twenties thirties forties fifties sixties seventies eighties "
    "nineties ay with without dot Australian Canadian Singapore New Zealand Hong Kong north south east west born died "
    "version World War First Second Third out of zero care because he she his her or him infinity minimum Apartment Suite"
)
_WORD = re.compile(r"[a-z']+")


@lru_cache(maxsize=1)
def vocabulary() -> frozenset[str]:
    """Return the words in lower case, single letters left out."""
    phrases = [_LOOSE, *WEEKDAYS.values(), *PER.values(), *GREEK.values(), *NAMES.values(), *IN_ADDRESS.values()]
    for names in (*UNITS.values(), *CURRENCIES.values(), *CURRENCY_CODES.values()):
        phrases.extend(names)
    for table in (ABBREVIATIONS, BEFORE_NUMBER, MONTHS, TITLES):
        phrases.extend(table.values())
    for n in range(101):
        phrases += [cardinal(n), ordinal(n), ordinal_plural(n), plural(cardinal(n))]
    phrases += [ordinal(10**power) for power in (3, 6, 9, 12)]
    return frozenset(word for word in _WORD.findall(" ".join(phrases).lower()) if len(word) > 1)
