"""Money, measures, percentages, fractions, ranges, telephone and plain numbers in words."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.normalize.lengths import LENGTHS
from voicelab.engine.text.normalize.nouns import describes
from voicelab.engine.text.normalize.numbers import cardinal, decimal, digits, ordinal, ordinal_plural, paired
from voicelab.engine.text.normalize.units import CURRENCIES, CURRENCY_CODES, PER, UNITS
from voicelab.engine.text.normalize.values import Rules

__all__ = ["EARLY", "LATE", "NUMBERS"]

_NUM: Final = r"(?:\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_TO: Final = r"\s?(?:-|–|—|to)\s?"
_SCALE: Final = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "mm": "million",
    "mil": "million",
    "b": "billion",
    "bn": "billion",
    "t": "trillion",
    "tn": "trillion",
    "trn": "trillion",
}
_SCALE_WORD: Final = r"hundred|thousand|million|billion|trillion|mn|mm|mil|bn|tn|trn|[kmbtKMBT]"
_UNIT: Final = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
_PER: Final = "|".join(re.escape(unit) for unit in sorted(PER, key=len, reverse=True))

_PER_WORD: Final = rf"{_PER}|(?![a-z]*s(?![a-z]))[a-z]{{3,20}}"
"""What may follow a slash, or any word in the singular: 12 dB/octave, but km/miles are two."""

_MONEY = re.compile(
    r"(?P<minus>(?<![\w)])-)?(?P<country>\b(?:US|A|C|AU|CA|NZ|HK|S)(?=\$))?"
    rf"(?P<sign>[$£€¥₹]) ?(?P<minus2>-)?(?P<num>{_NUM})"
    rf"(?:{_TO}(?P=sign)?(?P<last>{_NUM}))?(?:(?: ?|-(?=[a-z]{{5}}))(?P<scale>{_SCALE_WORD})(?![A-Za-z]))?"
    rf"(?: ?/ ?(?P<per>{_PER_WORD})(?![A-Za-z])(?:/(?P<next>{_PER_WORD})(?![A-Za-z]))?)?"
)
_LANDS: Final = {
    "US": "U S",
    "A": "Australian",
    "AU": "Australian",
    "C": "Canadian",
    "CA": "Canadian",
    "NZ": "New Zealand",
    "HK": "Hong Kong",
    "S": "Singapore",
}
_DOLLARS = re.compile(rf"(?<![A-Za-z])\$(?P<num>{_NUM}) ?(?P<code>USD?|AUD?|CAD?|NZD?|HKD?)(?![A-Za-z])")
_RUPEES = re.compile(r"\bRs\.? ?(?=\d)")
_SPACED = re.compile(r"(?<![\w.,])\d{1,3}(?: 000)+(?![\w,])")
_MONEY_AFTER = re.compile(
    rf"(?<![\w.,])(?P<num>{_NUM})(?: ?(?P<scale>{_SCALE_WORD})(?=[ €£¥₹¢$]))? ?(?P<sign>[€£¥₹¢]|\$(?![\d]))(?![\d])"
)
_CODE_FIRST = re.compile(
    rf"\b(?P<code>{'|'.join(CURRENCY_CODES)}) (?P<num>{_NUM})(?: ?(?P<scale>{_SCALE_WORD})(?![A-Za-z]))?"
)
_CODE_LAST = re.compile(
    rf"(?<![\w.,])(?P<num>{_NUM})(?: ?(?P<scale>{_SCALE_WORD}))? (?P<code>{'|'.join(CURRENCY_CODES)})\b"
    rf"(?:/(?P<per>{_PER_WORD})(?![A-Za-z]))?"
)
_DEGREES = re.compile(
    rf"(?P<minus>(?<![\w)])-)?(?<![\w.,])(?:(?P<first>{_NUM})(?: ?°)?(?P<to>{_TO})(?P<minus2>-)?)?(?P<num>{_NUM}) ?°"
    r"(?: ?(?P<scale>[CFK])(?![A-Za-z]))?"
)
_SIZE = re.compile(rf"(?<![\w.,])(?P<a>{_NUM})(?:×| ?x ?| × (?={_NUM} ?(?:{_UNIT})(?![A-Za-z])))(?=\.?\d)")
_SCREEN = re.compile(r"(?<![\w.,])(?P<a>\d{3,4}) ?[x×] ?(?P<b>\d{3,4})(?![\w.,])")
_TIMES = re.compile(rf"(?<![\w.,])(?:(?P<first>{_NUM})(?P<to>{_TO}))?(?P<num>{_NUM})[x×](?!\w| ?[-+=*/^])")
_MEGA = re.compile(rf"(?<![\w.,$£€])(?P<num>{_NUM}) ?(?P<scale>bn|mn|tn|M|(?<=\.\d)B)(?![\w/&-])")
_MEASURE = re.compile(
    rf"(?P<minus>(?<![\w)])-)?(?<![\w.,/])(?:(?P<first>{_NUM})(?P<to>{_TO}))?"
    rf"(?P<num>{_NUM})(?P<gap>[ -]?)(?P<unit>{_UNIT})"
    rf"(?:\^(?P<power>[23]))?(?: ?/ ?(?P<per>{_PER_WORD})(?:\^(?P<perpower>[23]))?(?:/(?P<next>{_PER_WORD})(?![A-Za-z]))?)?"
    r"(?![A-Za-z^']|/(?!\d))"
)
_PERCENT = re.compile(
    rf"(?P<minus>(?<![\w)])-)?(?:(?<![\w.,])(?P<first>{_NUM}) ?%?(?P<to>{_TO}))?(?<![\d,.])(?P<num>{_NUM}) ?(?P<sign>[%‰])"
)
_SCIENTIFIC = re.compile(rf"(?<![\w.,])(?P<num>{_NUM})(?: ?[×x*] ?10\^|[eE])(?P<sign>[-+]?)(?P<power>\d{{1,4}})(?!\w)")
_POWER = re.compile(r"(?<=[\w)])\^(?P<sign>[-+]?)(?P<power>\d{1,4}|[a-z](?![a-z]))")
_ORDINAL = re.compile(r"(?<![\w.,])(?P<num>\d{1,3}(?:,\d{3})+|\d{1,15})(?:st|nd|rd|th|ST|ND|RD|TH)(?!\w)")
_FRACTION = re.compile(
    r"(?P<minus>(?<![\w)])-)?(?<![\w.,/])(?:(?P<whole>\d{1,6})[ -])?(?P<top>\d{1,4})/(?P<bottom>\d{1,4})"
    rf"(?![\d/]|[.,]\d)(?: ?(?P<unit>{_UNIT})(?![\w'/^]))?(?!\w)"
)
_RATED = re.compile(r"(?<![\w.,/])(?P<top>\d{1,2}\.\d)/(?P<bottom>5|10|100)(?![\w/]|[.,]\d)")
_PHONE = re.compile(
    r"(?<![\w.,-])(?:(?P<country>\+?\d{1,3})[ .-])?(?:\((?P<area1>\d{3})\) ?|(?P<area2>\d{3})[ .-])"
    r"(?P<mid>\d{3})[ .-](?P<last>\d{4})"
    r"(?![\w-]|\.\d)"
)
_PHONE_ABROAD = re.compile(r"(?<![\w.,])\+(?P<groups>\d{1,3}(?:[ .-]?\(?\d{2,5}\)?){2,5})(?!\w)")
_PHONE_LOCAL = re.compile(r"(?<![\w.,/$£€-])(?P<mid>\d{3})[-](?P<last>\d{4})(?![\w-]|[.,]\d)")
_CALL = re.compile(r"\b(?P<verb>[Cc]all|[Dd]ial|[Dd]ialed|[Cc]alled|[Tt]ext) (?P<num>\d{3})(?![\w,./:-])")
_NUMBERED = re.compile(
    r"\b(?P<what>(?:[Rr]oute|[Rr]oom|[Ss]uite|[Hh]ighway|[Ii]nterstate|[Ff]light|[Gg]ate|[Bb]us|Boeing|Airbus|Hwy)"
    r"(?: [A-Z]{2})?) ?"
    r"(?P<num>\d{3,4})(?![\w,/:]|\.\d|-\d)|"
    r"(?<![\w-])(?P<letters>[A-Z]{1,2})-?(?P<model>\d{3})(?![\w,-]|\.\d)"
)
_VERSION = re.compile(r"\b(?P<what>Python|[Vv]ersion|iOS|macOS|Android) (?P<num>\d+)\.(?P<part>[1-9]\d)(?![\w.])")
_HEX = re.compile(r"(?<!\w)0x(?P<hex>[0-9A-Fa-f]+)(?!\w)")
_CHAIN = re.compile(
    r"(?<![\w.,-])(?=[\d-]*\d{4}|(?:\d+-){3})\d+(?:-\d+){2,}(?:-X)?(?![\w-])|(?<![\w.,-])\d{4}(?: \d{4}){3}(?![\w-])"
)
_SAME_UNIT = re.compile(rf"(?<![\w.,/])(?P<num>{_NUM}) ?(?P<unit>{_UNIT})\s?[-–]\s?(?={_NUM} ?(?P=unit)(?![A-Za-z]))")
_UNIT_TO = re.compile(rf"(?<=\d)(?P<unit> ?(?:{_UNIT}))\s?[-–]\s?(?={_NUM} ?(?:{_UNIT})(?![A-Za-z]))")
_SAME_DEGREES = re.compile(rf"(?<=\d) ?°(?P<scale>[CFK])(?P<to>\s?[-–]\s?)(?=-?{_NUM} ?°(?P=scale)(?![A-Za-z]))")
_SQUARED = re.compile(r"(?P<unit>(?:(?<=\d)|(?<=\d )|(?<=[a-zA-Z]/))(?:[kcdm]?m|ft))(?P<power>[23])(?!\w)")
_SQUARE = re.compile(r"\b(?P<kind>sq|cu)\. ?(?=(?:ft|in|km?|mi?|yd)\b)")
_PER_UNIT = re.compile(rf"(?<=\b[Pp]er )(?P<unit>(?!.\b)(?:{_PER}))(?![\w/^'])(?:\.(?=,|;| [a-z\d(]))?")
_RATE = re.compile(
    r"(?:(?<=[a-z]{2}s)|(?P<counted>(?<=\d )[a-z]{2,20}))/"
    r"(?=(?:second|minute|hour|day|night|week|month|quarter|year|person|user)\b)"
)
_UNIT_BY = re.compile(rf"(?<=\d)(?P<unit> ?(?:{_UNIT})) ?[x×] ?(?=\d)")
_UNIT_STOP = re.compile(
    r"(?<=[\d/])(?P<unit> ?(?:(?:sq |cu )(?:ft|yd|mi|in)|ft|yd|mi|lbs?|oz|tsp|tbsp|hrs?|mins?|secs?|gal|yrs?|wks?))\."
    r"(?=,|;| (?:[a-z\d(]|x ))"
)
_WAYS: Final = {"N": "north", "S": "south", "E": "east", "W": "west"}
_COMPASS = re.compile(r"(?<=\d) ?° ?(?P<way>[NSEW])(?![A-Za-z])")
_VERSE = re.compile(r"(?<![\w.,:])(?P<chapter>\d{1,3}):(?P<first>\d{1,3})[-–](?=\d{1,3}(?![\w:]))")
_DOTTED = re.compile(r"(?<![\w.,])(?P<num>\d+(?:\.\d+){2,})(?![\w])")
_RANGE = re.compile(rf"(?<![\w.,$£€-])(?P<first>{_NUM})(?:-| ?– ?)(?={_NUM}(?!-?\d| ?=|[\w-]))")
_PART = re.compile(r"(?<=[A-Za-z])(?P<first>\d+)-(?=\d)")
_ZONE = re.compile(r"\b(?P<zone>UTC|GMT)[-−](?=\d)")
_RATIO = re.compile(r"(?<![\w.,:])(?P<first>\d{1,6}):(?=\d{1,6}(?![\w:]))")
_MINUS = re.compile(rf"(?<![\w)])-(?={_NUM})")
_SUBTRACT = re.compile(r"(?<=\d)-(?=\d+ ?=)")
_PLUS = re.compile(rf"(?<!\w)\+(?={_NUM})")
_NUMBER = re.compile(rf"(?<!\d)(?P<num>{_NUM})(?P<plus>\+(?!\w))?")


def _range(match: re.Match[str], spoken: str) -> str:
    return f"{decimal(match['first'])} to {spoken}" if match["first"] else spoken


def _amount(num: str, scale: str | None) -> str:
    """The words of "3.5" with "m": three point five million."""
    return decimal(num) + (f" {_SCALE.get(scale.lower(), scale)}" if scale else "")


def _is_one(num: str) -> bool:
    return num.replace(",", "") in ("1", "1.0", "1.00")


def _per(unit: str | None, power: str = "") -> str:
    return f" per {power}{PER.get(unit, unit)}" if unit else ""


def _money_words(num: str, scale: str | None, names: tuple[str, str, str, str]) -> str:
    """Two decimals are the small coin: "3.50" is three dollars and fifty cents, "0.99" ninety-nine cents."""
    one, many, coin, coins = names
    whole, _, part = num.replace(",", "").partition(".")
    if scale or len(part) != 2 or not coin:
        return f"{_amount(num, scale)} {one if _is_one(num) and not scale else many}"
    words = []
    if whole.strip("0") or not part.strip("0"):
        words.append(f"{decimal(whole or '0')} {one if _is_one(whole) else many}")
    if part.strip("0"):
        words.append(f"{cardinal(int(part))} {coin if part == '01' else coins}")
    return " and ".join(words)


def _money(match: re.Match[str]) -> str:
    names = CURRENCIES[match["sign"]]
    if match["country"]:
        land = _LANDS[match["country"]]
        names = (f"{land} {names[0]}", f"{land} {names[1]}", names[2], names[3])
    if describes(match.string, *match.span()):
        names = (names[0], names[0], *names[2:])  # "a $100 fine"
    minus = "minus " if match["minus"] or match["minus2"] else ""
    per = _per(match["per"]) + _per(match["next"])
    if match["last"]:
        first = decimal(match["num"])
        return f"{minus}{first} to {_money_words(match['last'], match['scale'], names)}{per}"
    return f"{minus}{_money_words(match['num'], match['scale'], names)}{per}"


def _money_after(match: re.Match[str]) -> str:
    if match["sign"] == "¢":
        return f"{decimal(match['num'])} cent{'' if _is_one(match['num']) else 's'}"
    return _money_words(match["num"], match["scale"], CURRENCIES[match["sign"]])


def _money_code(match: re.Match[str]) -> str:
    per = _per(match["per"]) if "per" in match.groupdict() else ""
    return _money_words(match["num"], match["scale"], CURRENCY_CODES[match["code"]]) + per


def _degrees(match: re.Match[str]) -> str:
    minus = "minus " if match["minus"] else ""
    unit = "degree" if _is_one(match["num"]) else "degrees"
    scale = {"C": " Celsius", "F": " Fahrenheit", "K": " Kelvin", None: ""}[match["scale"]]
    second = "minus " if match["minus2"] else ""
    return f"{minus}{_range(match, second + decimal(match['num']))} {unit}{scale}"


def _measure(match: re.Match[str]) -> str:
    """A number with its unit; "a 5-km run" keeps the singular, squares and cubes go before the unit."""
    one, many = UNITS[match["unit"]]
    single = match["gap"] == "-" or (_is_one(match["num"]) and not match["first"])
    word = one if single or describes(match.string, *match.span()) else many
    if match["power"]:
        word = f"{'square' if match['power'] == '2' else 'cubic'} {word}"
    per = _per(match["per"], {"2": "square ", "3": "cubic ", None: ""}[match["perpower"]]) + _per(match["next"])
    minus = "minus " if match["minus"] else ""
    return f"{minus}{_range(match, decimal(match['num']))} {word}{per}"


def _percent(match: re.Match[str]) -> str:
    unit = "percent" if match["sign"] == "%" else "per thousand"
    return f"{'minus ' if match['minus'] else ''}{_range(match, decimal(match['num']))} {unit}"


def _exponent(match: re.Match[str]) -> str:
    power, sign = match["power"], {"-": "minus ", "+": "", "": ""}[match["sign"]]
    if not sign and power in ("2", "3"):
        return "squared" if power == "2" else "cubed"
    return f"to the power of {sign}{decimal(power) if power.isdigit() else power}"


def _scientific(match: re.Match[str]) -> str:
    return f"{decimal(match['num'])} times ten {_exponent(match)}"


def _fraction(match: re.Match[str]) -> str:
    unit = (
        f" {UNITS[match['unit']][1 if match['whole'] or int(match['top']) > int(match['bottom']) else 0]}"
        if match["unit"]
        else ""
    )
    return _part(match) + unit


def _part(match: re.Match[str]) -> str:
    top, bottom = int(match["top"]), int(match["bottom"])
    minus = "minus " if match["minus"] else ""
    whole = minus + (f"{cardinal(int(match['whole']))} and " if match["whole"] else "")
    shares = top + bottom == 100 and top >= 50 and not match["unit"]  # an 80/20 split
    if not match["whole"] and not minus and (shares or (top, bottom) in ((24, 7), (9, 11), (20, 20))):
        return f"{cardinal(top)} {cardinal(bottom)}"
    if not match["whole"] and not minus and top == bottom > 1:
        return f"{cardinal(top)} out of {cardinal(bottom)}"
    if not 0 < top < bottom or bottom < 2 or bottom > 100 or (20 < bottom < 100 and bottom % 10):
        over = f"{cardinal(top)} over {cardinal(bottom)}"
        return f"{minus}{cardinal(int(match['whole']))}, {over}" if match["whole"] else minus + over
    if top == 1 and bottom in (2, 4):
        part = "half" if bottom == 2 else "quarter"
        return f"{whole}a {part}" if match["whole"] else f"{minus}one {part}"
    return whole + f"{cardinal(top)} {ordinal(bottom) if top == 1 else ordinal_plural(bottom)}"


def _numbered(match: re.Match[str]) -> str:
    if match["what"]:
        return f"{match['what']} {paired(match['num'])}"
    return f"{' '.join(match['letters']).replace('A', 'ay')} {paired(match['model'])}"


def _groups(*groups: str | None) -> str:
    return ", ".join(digits(group) for group in groups if group)


def _phone(match: re.Match[str]) -> str:
    plus = "plus " if (match["country"] or "").startswith("+") else ""
    return plus + _groups(match["country"], match["area1"], match["area2"], match["mid"], match["last"])


def _number(match: re.Match[str]) -> str:
    return f" {decimal(match['num'])}{' plus' if match['plus'] else ''} "


def _dotted(match: re.Match[str]) -> str:
    """An address of the internet has dots, a version has points."""
    parts = match["num"].split(".")
    return (" point " if len(parts) == 3 else " dot ").join(decimal(part) for part in parts)


EARLY: Final[Rules] = (
    (_SQUARE, r"\g<kind> "),
    (_UNIT_STOP, lambda m: m["unit"]),
    (_PER_UNIT, lambda m: PER[m["unit"]]),
    (_PHONE, _phone),
    (_PHONE_ABROAD, lambda m: "plus " + _groups(*re.findall(r"\d+", m["groups"]))),
    (_SPACED, lambda m: m.group().replace(" ", ",")),
    (_DOLLARS, lambda m: f"{m['code'][:2]}${m['num']}"),
    (_RUPEES, "₹"),
    (_MONEY, _money),
    (_MONEY_AFTER, _money_after),
    (_CODE_FIRST, _money_code),
    (_CODE_LAST, _money_code),
    (_RATE, lambda m: f"{m['counted'] or ''} per "),
)
"""Before the dates: a telephone number or an amount may hold what looks like a year."""

LATE: Final[Rules] = (
    (_SCIENTIFIC, _scientific),
    (_ZONE, r"\g<zone> minus "),
    (_PART, r"\g<first> "),
    (re.compile(r"(?<![A-Za-z])v(?=\d+\.\d)"), "version "),
    (_HEX, lambda m: "zero x " + " ".join(digits(c) or c.upper().replace("A", "ay") for c in m["hex"])),
    (_CHAIN, lambda m: ", ".join(digits(part) or part for part in re.split("[ -]", m.group()))),
    (_VERSION, lambda m: f"{m['what']} {cardinal(int(m['num']))} point {cardinal(int(m['part']))}"),
    (_NUMBERED, _numbered),
    (_VERSE, lambda m: f"{decimal(m['chapter'])}, {decimal(m['first'])} to "),
    (_COMPASS, lambda m: f"° {_WAYS[m['way']]}"),
    (_SAME_DEGREES, r"\g<to>"),
    (_DEGREES, _degrees),
    (_SQUARED, r"\g<unit>^\g<power>"),
    (_SAME_UNIT, lambda m: f"{decimal(m['num'])} to "),
    (_UNIT_TO, r"\g<unit> to "),
    (re.compile(r"(?<=\dh)(?P<gap> ?)(?P<num>[0-5]?\d)m(?!\w)"), r" \g<num> min"),
    (_UNIT_BY, lambda m: f"{m['unit']} by "),
    *LENGTHS,
    (_SCREEN, lambda m: f"{paired(m['a'])} by {paired(m['b'])}"),
    (_SIZE, lambda m: f"{decimal(m['a'])} by "),
    (_MEGA, lambda m: _amount(m["num"], m["scale"])),
    (_TIMES, lambda m: f"{_range(m, decimal(m['num']))} times"),
    (_PERCENT, _percent),
    (_RATED, lambda m: f"{decimal(m['top'])} out of {cardinal(int(m['bottom']))}"),
    (_FRACTION, _fraction),
    (_MEASURE, _measure),
    (_ORDINAL, lambda m: ordinal(int(m["num"].replace(",", "")))),
    (_PHONE_LOCAL, lambda m: _groups(m["mid"], m["last"])),
    (_CALL, lambda m: f"{m['verb']} {digits(m['num'])}"),
    (_DOTTED, _dotted),
)
"""After the dates; each asks for a digit."""

NUMBERS: Final[Rules] = (
    (_POWER, lambda m: f" {_exponent(m)} "),
    (_RANGE, lambda m: f"{decimal(m['first'])} to "),
    (_RATIO, lambda m: f"{decimal(m['first'])} to "),
    (_SUBTRACT, " minus "),
    (_MINUS, " minus "),
    (re.compile(r"(?<=\d)-(?=\d)"), " "),
    (_PLUS, " plus "),
    (_NUMBER, _number),
)
"""What is left once years are read: signs, ranges and bare numbers. No digit survives this."""
