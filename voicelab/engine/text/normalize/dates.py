"""Dates, years and times of day in words."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.abbreviations import MONTHS, ends_sentence
from voicelab.engine.text.normalize.numbers import cardinal, ordinal, year
from voicelab.engine.text.normalize.values import Rules

__all__ = ["PLAIN_YEARS", "RULES", "WEEKDAYS"]

_NAMES: Final = tuple(dict.fromkeys(MONTHS.values()))
_MONTH: Final = rf"(?P<month>{'|'.join(_NAMES)}|{'|'.join(MONTHS)})\b\.?"
_DAY: Final = r"(?P<day>0?[1-9]|[12]\d|3[01])"
_YEAR: Final = r"(?P<year>1\d{3}|20\d\d)(?![\d,]*\d)"
_CUE: Final = (
    r"(?:in|since|by|of|from|until|till|before|after|during|around|about|circa|year|the|early|late|mid|"
    r"spring|summer|fall|autumn|winter)"
)

_ISO = re.compile(
    r"(?<![\d/-])(?P<year>\d{4})(?P<sep>[-/])(?P<m>0?[1-9]|1[0-2])(?P=sep)(?P<day>0?[1-9]|[12]\d|3[01])(?![\d/-])(?:T(?=\d))?"
)
_SLASHED = re.compile(
    r"(?<![\d/.-])(?P<a>\d{1,2})(?P<sep>[/.-])(?P<b>\d{1,2})(?P=sep)(?P<year>(?:1[5-9]|2\d)\d\d|(?<!-)\d\d)(?![\d/-]|\.\d)"
)
_ON_DATE = re.compile(r"\b(?P<cue>[Oo]n|[Bb]y|[Ss]ince|[Uu]ntil|[Dd]ue) (?P<a>\d{1,2})/(?P<b>\d{1,2})(?![\d/])")
_MONTH_DAY = re.compile(
    rf"\b{_MONTH} {_DAY}(?:st|nd|rd|th)?(?:\s?[-–]\s?(?P<last>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?)?"
    rf"(?![\d:]|,\d{{3}}(?!\d)|\.\d)(?:,? {_YEAR})?"
)
_DAY_MONTH = re.compile(
    rf"(?P<the>\b[Tt]he )?(?<![\d.,:/-]){_DAY}(?:st|nd|rd|th)?(?P<of> of)? {_MONTH}(?:,? {_YEAR})?(?!\w)"
)
_MONTH_YEAR = re.compile(rf"\b{_MONTH},? {_YEAR}")
_OF_DECADE: Final = "|".join(f"(?<=\\b{cue} )" for cue in "the The his her their my our your early late".split())
_DECADE = re.compile(
    r"(?<![\w.,'])(?P<century>1[1-9]|20)(?P<decade>\d)0'?s\b|"
    rf"(?:(?<!\w)'|{_OF_DECADE}|(?<=[Mm]id[- ])|(?<=s and )|(?<=s or )|(?<=s to )|"
    r"(?<!\w)(?=\d0s (?:music|fashion|style|rock|pop|hits|movies|bands?|kids?|songs?|sitcoms?|cartoons?|"
    r"nostalgia|vibes?|icons?|hip|disco|party|parties|look|hair|bab(?:y|ies)|retro|classics?|culture|teens?|dance|era)\b))"
    r"'?(?P<short>[2-9])0'?s\b"
)
_SHORT_YEAR = re.compile(r"(?<!\w)'(?P<year>\d\d)(?!\w)")
_ERA = re.compile(
    r"(?<![\w.,])(?:(?P<first>\d{1,4}) ?[-–] ?)?(?P<year>\d{1,4}) ?(?P<era>BCE?|CE|AD|B\.C\.E?\.?|A\.D\.)(?![A-Za-z])"
)
_SPAN = re.compile(
    r"(?<![\w.,$£€-])(?P<first>1[1-9]\d\d|20\d\d)\s?[-–]\s?(?P<last>1[1-9]\d\d|20\d\d|\d\d)(?![\w-]|[.,]\d| ?=)"
)
_PLAIN_YEAR = re.compile(
    rf"(?P<cue>\b{_CUE} )?(?<![\w.,$£€#%+=/:-])(?P<year>1[1-9]\d\d|20\d\d|(?<=in )10[1-9]\d)"
    r"(?!\w|[.,/:]\d| ?[+*=/^×÷%°]| ?-\s?\d)"
    r"(?P<plural>(?= (?:people|(?!was|is|has|as|this|its|does|his|us|always|perhaps)[a-z]+s)\b))?",
    re.IGNORECASE,
)
_FISCAL = re.compile(r"\b(?P<what>FY|CY|Q[1-4]) ?(?P<year>20\d\d)(?![\d.,])")
WEEKDAYS: Final = {
    **dict.fromkeys(("Mon",), "Monday"),
    **dict.fromkeys(("Tue", "Tues"), "Tuesday"),
    **dict.fromkeys(("Wed",), "Wednesday"),
    **dict.fromkeys(("Thu", "Thur", "Thurs"), "Thursday"),
    **dict.fromkeys(("Fri",), "Friday"),
    **dict.fromkeys(("Sat",), "Saturday"),
    **dict.fromkeys(("Sun",), "Sunday"),
}
_WEEKDAY = re.compile(
    rf"\b(?P<day>{'|'.join(WEEKDAYS)})\b\.?(?=,? (?:(?:{'|'.join(MONTHS)})\b|\d{{1,2}}(?::\d\d)? ?(?:[ap]m\b|[A-Z])))"
)
_MONTH_SHORT_YEAR = re.compile(rf"\b(?P<month>{'|'.join(MONTHS)})\.?(?= '\d\d\b)")
_TIME = re.compile(
    r"(?<![\d:.,])(?P<h>\d{1,2})(?::|\.(?=\d\d ?[aApP]\.?[mM]))(?P<m>[0-5]\d)"
    r"(?::(?P<s>[0-5]\d)(?:\.\d+)?)?(?![\d:])(?P<z>Z\b)?"
    r"(?: ?(?P<half>[aApP])(?:\.[mM]\.|[mM]\b))?"
)
_HOUR = re.compile(r"(?<![\d:.,$£€/])(?P<h>1[0-2]|0?[1-9]) ?(?P<half>[aApP])(?:\.[mM]\.|[mM]\b(?!-))")
_HALF_SPAN = re.compile(r"(?<=\d)(?P<half> ?[aApP]\.?[mM]\.?) ?[-–] ?(?=\d)")
_HOUR_SPAN = re.compile(r"(?<=\d)\s?[-–]\s?(?=\d{1,2}(?::[0-5]\d)? ?[aApP](?:\.[mM]\.|[mM]\b))")
_TIME_SPAN = re.compile(r"(?<=:[0-5]\d)\s?[-–]\s?(?=\d{1,2}:[0-5]\d)")


def _month(name: str) -> str:
    return MONTHS.get(name.rstrip("."), name)


def _tail(match: re.Match[str]) -> str:
    return f", {year(int(match['year']))}" if match["year"] else ""


def _iso(match: re.Match[str]) -> str:
    after = ", " if match.group().endswith("T") else ""
    return f"{_NAMES[int(match['m']) - 1]} {ordinal(int(match['day']))}{_tail(match)}{after}"


def _slashed(match: re.Match[str]) -> str:
    """American month first, unless only the other order is a date; dots are the European day first."""
    month, day = int(match["a"]), int(match["b"])
    if month > 12 or (match["sep"] == "." and day <= 12):
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31) or (match["sep"] == "." and len(match["year"]) == 2):
        return match.group()
    number = int(match["year"])
    if len(match["year"]) == 2:
        number += 2000 if number < 50 else 1900
    return f"{_NAMES[month - 1]} {ordinal(day)}, {year(number)}"


def _on_date(match: re.Match[str]) -> str:
    month, day = int(match["a"]), int(match["b"])
    if not (1 <= month <= 12 and 1 <= day <= 31) or (month, day) == (9, 11):
        return match.group()
    return f"{match['cue']} {_NAMES[month - 1]} {ordinal(day)}"


def _month_day(match: re.Match[str]) -> str:
    last = f" to {ordinal(int(match['last']))}" if match["last"] else ""
    return f"{_month(match['month'])} {ordinal(int(match['day']))}{last}{_tail(match)}"


def _day_month(match: re.Match[str]) -> str:
    the = match["the"] or "the "
    return f"{the}{ordinal(int(match['day']))} of {_month(match['month'])}{_tail(match)}"


def _decade(match: re.Match[str]) -> str:
    tens = cardinal(int(match["decade"] or match["short"] or 0) * 10)
    plural = "hundreds" if tens == "zero" else "tens" if tens == "ten" else f"{tens[:-1]}ies"
    if match["short"]:
        return plural
    if match["century"] == "20" and tens == "zero":
        return "two thousands"
    return f"{cardinal(int(match['century']))} {plural}"


def _short_year(match: re.Match[str]) -> str:
    number = int(match["year"])
    return f"oh {cardinal(number)}" if 0 < number < 10 else cardinal(number)


def _era(match: re.Match[str]) -> str:
    letters = " ".join(match["era"].replace(".", "")).replace("A", "ay")
    stop = "." if match["era"].endswith(".") and ends_sentence(match.string, match.end()) else ""
    first = f"{year(int(match['first']))} to " if match["first"] else ""
    return f"{first}{year(int(match['year']))} {letters}{stop}"


def _span(match: re.Match[str]) -> str:
    first, last = int(match["first"]), int(match["last"])
    if len(match["last"]) == 2 and last <= first % 100:
        return match.group()
    return f"{year(first)} to {year(last) if last > 99 else cardinal(last)}"


def _plain_year(match: re.Match[str]) -> str:
    number = int(match["year"])
    # "1250 grams" counts something, "the 1984 elections" does not.
    counts = match["plural"] is not None and match["cue"] is None
    return (match["cue"] or "") + (cardinal(number) if counts else year(number))


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match["h"]), int(match["m"])
    if hour > 24:
        return match.group()
    if match["s"] not in (None, "00"):
        hours = f"{cardinal(hour)} hour{'' if hour == 1 else 's'}"
        minutes = f"{cardinal(minute)} minute{'' if minute == 1 else 's'}"
        seconds = f"{cardinal(int(match['s']))} second{'' if match['s'] == '01' else 's'}"
        return f"{hours}, {minutes} and {seconds}{_half(match)}"
    if minute:
        spoken = f"{cardinal(hour)} {'oh ' if minute < 10 else ''}{cardinal(minute)}"
    elif match["half"]:
        spoken = cardinal(hour)
    elif hour in (0, 24):
        spoken = "midnight"
    else:
        suffix = "hundred" if hour > 12 else "o'clock"
        spoken = f"{cardinal(hour)} {suffix}"
    return spoken + _half(match)


def _half(match: re.Match[str]) -> str:
    if not match["half"]:
        return " U T C" if "z" in match.groupdict() and match["z"] else ""
    stop = "." if match.group().endswith(".") and ends_sentence(match.string, match.end()) else ""
    return f" {'ay' if match['half'] in 'aA' else 'P'} M{stop}"


def _hour(match: re.Match[str]) -> str:
    return cardinal(int(match["h"])) + _half(match)


RULES: Final[Rules] = (
    (_WEEKDAY, lambda m: WEEKDAYS[m["day"]]),
    (_MONTH_SHORT_YEAR, lambda m: MONTHS[m["month"]]),
    (_FISCAL, lambda m: f"{m['what']} {year(int(m['year']))}"),
    (_ISO, _iso),
    (_SLASHED, _slashed),
    (_ON_DATE, _on_date),
    (_MONTH_DAY, _month_day),
    (_DAY_MONTH, _day_month),
    (_MONTH_YEAR, lambda m: f"{_month(m['month'])} {year(int(m['year']))}"),
    (_HALF_SPAN, r"\g<half> to "),
    (_HOUR_SPAN, " to "),
    (_TIME_SPAN, " to "),
    (_TIME, _time),
    (_HOUR, _hour),
    (_ERA, _era),
    (_DECADE, _decade),
    (_SHORT_YEAR, _short_year),
    (_SPAN, _span),
)
"""(pattern, replacement) in the order they apply. Plain years come later, once money and units are gone."""

PLAIN_YEARS: Final[Rules] = ((_PLAIN_YEAR, _plain_year),)
