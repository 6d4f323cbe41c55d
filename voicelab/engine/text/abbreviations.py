"""Abbreviations with a period: what they stand for, and when the period also ends the sentence.

Shared by the normalizer, which expands them, and the segmenter, which must not split after them.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ABBREVIATIONS",
    "BEFORE_NUMBER",
    "CAPITALISED_ONLY",
    "INITIALISM",
    "LOWERCASE_ONLY",
    "MONTHS",
    "STARTERS",
    "TITLES",
    "ends_sentence",
]

TITLES: Final = {
    "Dr": "Doctor",
    "Mr": "Mister",
    "Mrs": "Missus",
    "Ms": "Miz",
    "Messrs": "Messers",
    "Prof": "Professor",
    "Gen": "General",
    "Col": "Colonel",
    "Maj": "Major",
    "Capt": "Captain",
    "Cpt": "Captain",
    "Lt": "Lieutenant",
    "Sgt": "Sergeant",
    "Cpl": "Corporal",
    "Pvt": "Private",
    "Adm": "Admiral",
    "Cmdr": "Commander",
    "Gov": "Governor",
    "Sen": "Senator",
    "Rep": "Representative",
    "Pres": "President",
    "Rev": "Reverend",
    "Fr": "Father",
    "Hon": "Honorable",
    "Mt": "Mount",
    "Ft": "Fort",
    "St": "Saint",
}
"""Written before a name, so their period never ends a sentence."""

ABBREVIATIONS: Final = {
    "e.g": "for example",
    "i.e": "that is",
    "etc": "et cetera",
    "vs": "versus",
    "v": "versus",
    "approx": "approximately",
    "dept": "department",
    "est": "established",
    "fig": "figure",
    "figs": "figures",
    "eq": "equation",
    "vol": "volume",
    "vols": "volumes",
    "ch": "chapter",
    "sec": "section",
    "ed": "edition",
    "ext": "extension",
    "tel": "telephone",
    "apt": "apartment",
    "ste": "suite",
    "al": "al",
    "cf": "compare",
    "ca": "circa",
    "temp": "temperature",
    "avg": "average",
    "misc": "miscellaneous",
    "govt": "government",
    "assn": "association",
    "assoc": "association",
    "univ": "university",
    "intl": "international",
    "natl": "national",
    "asst": "assistant",
    "mfg": "manufacturing",
    "hr": "hour",
    "hrs": "hours",
    "min": "minutes",
    "max": "maximum",
    "inc": "Incorporated",
    "ltd": "Limited",
    "co": "Company",
    "corp": "Corporation",
    "bros": "Brothers",
    "jr": "Junior",
    "sr": "Senior",
    "esq": "Esquire",
    "ave": "Avenue",
    "blvd": "Boulevard",
    "rd": "Road",
    "ln": "Lane",
    "hwy": "Highway",
    "pkwy": "Parkway",
    "sq": "Square",
    "mon": "Monday",
    "tue": "Tuesday",
    "tues": "Tuesday",
    "wed": "Wednesday",
    "thu": "Thursday",
    "thur": "Thursday",
    "thurs": "Thursday",
    "fri": "Friday",
    "ph.d": "P H D",
    "ed.d": "E D D",
    "b.sc": "B S C",
    "m.sc": "M S C",
}
"""Lower case without the last period; their period ends a sentence only where one plainly ends."""

BEFORE_NUMBER: Final = {
    "no": "number",
    "nos": "numbers",
    "p": "page",
    "pp": "pages",
    "para": "paragraph",
    "art": "article",
    "c": "circa",
    "sec": "section",
    "ch": "chapter",
    "min": "minimum",
    "nr": "number",
    "fl": "flourished",
}
"""Abbreviations only in front of a number: "no. 5", but not "No. Five left."."""

CAPITALISED_ONLY: Final = frozenset({"co", "mon", "wed", "fri", "thu", "tue", "jr", "sr", "ave", "ln", "sq", "inc"})
"""Also a word or a part of one in lower case, so these are taken for abbreviations only with a capital."""

LOWERCASE_ONLY: Final = frozenset({"ed", "al", "v", "hr", "min", "max", "temp", "ch", "sec", "est", "ste", "art"})
"""Also a name with a capital ("Ed. Then", "Al. Then", "Max."), so these only in lower case."""

MONTHS: Final = {
    "Jan": "January",
    "Feb": "February",
    "Mar": "March",
    "Apr": "April",
    "May": "May",
    "Jun": "June",
    "Jul": "July",
    "Aug": "August",
    "Sep": "September",
    "Sept": "September",
    "Oct": "October",
    "Nov": "November",
    "Dec": "December",
}

_STARTERS: Final = (
    "A After All Also An And Another Are As At Be Because Before Both But By Can Did Do Does Each Even Every "
    "First For From Had Has Have He Her Here His How However I If In Is It Its Let Many May Maybe More Most My "
    "Next No Nobody Not Nothing Now Of On Once One Only Or Our Perhaps Please Several She Should Since So Some "
    "Somebody Someone Soon Still Such Take That The Their Then There These They This Those Though Three Thus To "
    "Today Tomorrow Two Under Until Was We Were What When Where Whether Which While Who Whose Why Will With "
    "Would Yes Yesterday Yet You Your "
    "Although Among Analysts Anybody Anyone Anything Critics Despite During Everybody Everyone Everything Experts Finally "
    "Furthermore Instead Investors Later Meanwhile Moreover Neither Nor Officials Otherwise People Prices Recently "
    "Researchers Residents Scientists Shares Sometimes Stocks Therefore Unfortunately Usually Within Without"
)
STARTERS: Final = frozenset(_STARTERS.split())
"""Words that begin a sentence after an abbreviation; any other capital may be a name ("the U.S. Army")."""

INITIALISM: Final = re.compile(r"(?<![A-Za-z.'])(?:[A-Za-z]\.){2,}(?![A-Za-z])")
"""U.S., a.m., D.C., e.g. — letters, each with its period."""

_NEXT_WORD = re.compile(r"[\"')\]]*\s+[\"'(\[]*([A-Z][a-z]*)(?![A-Za-z])")
# "At 5 p.m. Anna left": the sentence began with its time.
_TIME_BEFORE = re.compile(
    r"(?P<opening>\b(?:At|By|Around|About|Until|Till|Since|Before|After|From) )?"
    r"(?<![\d:.])\d{1,2}(?:[:.]\d\d)? ?[apAP]\.[mM]\.\Z"
)
_AFTER_TIME = re.compile(r"[A-Za-z]+\.?(?: [Tt]ime\b)?")
_WEEKDAYS: Final = frozenset("Mon Tue Wed Thu Fri Sat Sun".split())
_OF_TIME: Final = frozenset("Eastern Pacific Central Mountain Atlantic Greenwich Zulu Standard Daylight Sharp".split())
_REST = re.compile(r"[\"')\]\s]*\Z")


def ends_sentence(text: str, end: int) -> bool:
    """Whether the abbreviation whose period stands at ``text[end - 1]`` ends its sentence too.

    True at the end of the text and before a word that typically starts a sentence (`STARTERS`); after a time of day
    before any word with a capital but a day, a month, a time zone or a title.
    """
    if _REST.match(text, end):
        return True
    follows = _NEXT_WORD.match(text, end)
    if follows is None:
        return False
    if follows.group(1) in STARTERS:
        return True
    time = _TIME_BEFORE.search(text, max(0, end - 24), end)
    if time is None or time["opening"]:
        return False
    word = follows.group(1)
    after = _AFTER_TIME.match(text, follows.start(1))
    dated = word[:3] in MONTHS or word[:3] in _WEEKDAYS or word in TITLES or word in _OF_TIME
    return len(word) > 1 and not dated and not (after and after.group().lower().endswith(" time"))
