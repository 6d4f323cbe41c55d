"""Verbalization of written English: functions for the rules of ``tables/english/rules.tsv``.

Order of the rules: layout; multi-token expressions (addresses, telephone numbers, amounts, dates); measures, abbreviations
and Roman numerals; remaining numbers and symbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from voicelab.text.clean import FREQUENT, GREEK, UNREAD, Match, Rules, Verbalizer, alternation, named, rows, tidy
from voicelab.text.english_numbers import (
    AFTER_DEGREES,
    BOOKS,
    ELEMENTS,
    FIGURES,
    RAISED,
    UNITS,
    cardinal,
    counted,
    decimal,
    digits,
    ordinal,
    ordinal_plural,
    paired,
    plural,
    roman,
    spelled,
    year,
)
from voicelab.text.segments import (
    ABBREVIATIONS,
    BEFORE_NUMBER,
    INITIALISM,
    LISTS,
    MONTHS,
    SHORT_FORMS,
    TITLES,
    WEEKDAYS,
    ends_sentence,
    has_valid_case,
)

_PER: Final = {symbol: per for symbol, _, _, per in rows("english/units") if per != "-"}
_CURRENCIES: Final = {
    key: tuple("" if name == "-" else name for name in names) for key, *names in rows("english/currencies")
}
_SIGNS: Final = {sign: word for sign, word, *_ in rows("english/symbols") if word != "-"}
ADDRESS_SYMBOLS: Final = {sign: name for sign, _, name, *_ in rows("english/symbols") if name != "-"}
_SHORT_FORMS, _STREET_WORDS = SHORT_FORMS["short"], SHORT_FORMS["street"]
_SCALES: Final = {
    "k": "thousand",
    **dict.fromkeys(("m", "mn", "mm", "mil", "mio"), "million"),
    **dict.fromkeys(("b", "bn", "mrd"), "billion"),
    **dict.fromkeys(("t", "tn", "trn"), "trillion"),
}
_NAMES: Final = tuple(dict.fromkeys(MONTHS.values()))
_OF_MINUTES: Final = re.compile(
    r"(?i)\b(?:(?P<one>a|one|per)|couple of|few|many|several|two|three|four|five|six|seven|eight|nine|ten|fifteen|twenty|"
    r"thirty|forty|fifty|sixty|ninety) \Z"
)


# Amounts that modify a noun are singular: "a 5 km run", "the $2 bill".
_ARTICLE = re.compile(
    r"(?<![A-Za-z])(?:(?P<sure>[Aa]n?|[Ee]ach|[Ee]very|[Oo]ther)|[Tt]he(?:ir)?|[Tt]h(?:is|at)|[Ii]ts|[Hh]is|[Hh]er|[Oo]ur|"
    r"[Yy]our|[Mm]y) \Z"
)
_NEXT_WORD = re.compile(r"[ -](?P<word>[a-z]{3,})")


def _before_noun(text: str, end: int) -> bool:
    """Test whether a noun or adjective follows ``text[:end]``, as opposed to a preposition, conjunction or verb."""
    following = _NEXT_WORD.match(text, end)
    if following is None or following["word"] in LISTS["no_noun"]:
        return False
    word = following["word"]
    return not word.endswith("ed") and (not word.endswith("ly") or word in LISTS["daily"])


def _describes(m: Match) -> bool:
    """Test whether the amount is between a determiner and a noun."""
    article = _ARTICLE.search(m.string[max(0, m.start() - 8) : m.start()])
    if article is None:
        return False
    # "a" before an amount belongs to the following noun; "the" may belong to the amount: "the 5 km were hard".
    return _NEXT_WORD.match(m.string, m.end()) is not None if article["sure"] else _before_noun(m.string, m.end())


def _stop(m: Match) -> str:
    """Return "." if the period of an abbreviation also ends the sentence."""
    return "." if m.group().endswith(".") and ends_sentence(m.string, m.end()) else ""


def _range(start: str | None, words: str) -> str:
    return f"{decimal(start)} to {words}" if start else words


def _minus(sign: str | bool | None) -> str:
    return "minus " if sign else ""


# Addresses.
_ADDRESS_TOKEN = re.compile(r"[A-Za-z]+|\d+|.")


def address(text: str, names: Mapping[str, str] = ADDRESS_SYMBOLS, number: Callable[[str], str] = decimal) -> str:
    """Verbalize an e-mail or web address; punctuation is read by its name in `names`."""
    stripped = text.rstrip(".,;:!?")
    body = re.sub(r"^(?:https?|ftp)://|^mailto:", "", stripped).rstrip("/")
    words: list[str] = []
    for token in _ADDRESS_TOKEN.findall(body):
        if token.isdigit():
            words.append(number(token))
        elif token.isalpha():
            ending = words[-1:] == [names["."]] and token in LISTS["domains"] - LISTS["said_domains"]
            words.append(spelled(token) if ending or len(token) == 1 or token.lower() == "www" else token)
        elif token in names:
            words.append(names[token])
    return " ".join(words) + text[len(stripped) :]


def _lower_case(m: Match) -> str:
    word = m.group()
    if word in LISTS["acronyms"] or (not re.search("[AEIOUY]", word) and word not in _CAPITALIZED) or roman(word):
        return word
    if word in _CAPITALIZED or (word == "MAY" and re.match(r" \d", m.string[m.end() : m.end() + 2])):
        return word.capitalize()
    return word.lower()


def _shouted(m: Match) -> str:
    """Lowercase a text in capitals, unless it is a sequence of acronyms."""
    words = _CAPITALS.findall(m.group())
    ordinary = (LISTS["emphatic"] | {"IN", "OR"}) - LISTS["after_the"]
    if not any(word in ordinary or (len(word) > 3 and word.lower() in FREQUENT["English"]) for word in words):
        return m.group()
    if all(word in LISTS["acronyms"] | {"AND", "OR", "US", "IT"} for word in words):
        return m.group()
    text = _CAPITALS.sub(_lower_case, m.group())
    return re.sub(
        rf"(?i:(?P<label>\b(?:{RULES.fragments['label']}) )?)\bA(?= )",
        lambda m: f"{m['label']}A" if m["label"] else "a",
        text,
    )


_BEFORE_ACRONYM = re.compile(r"\b(?:[Tt]he|[A-Z]{2,},(?: and| or)?) \Z")


def _emphasis(m: Match) -> str:
    """Lowercase an ordinary word or a name in capitals, but not an acronym, as in "the MAD" or "FBI, ADD"."""
    word = m.group().partition("'")[0]
    is_acronym = word in LISTS["after_the"] and _BEFORE_ACRONYM.search(m.string[max(0, m.start() - 12) : m.start()])
    return m.group().lower() if m["word"] or (word in LISTS["emphatic"] and not is_acronym) else m.group()


_COMPARISONS: Final = {sign: words for sign, words, _ in rows("comparisons") if words != "-"}

_COUNTRIES: Final = {
    "US": "U S", "A": "Australian", "AU": "Australian", "C": "Canadian", "CA": "Canadian", "NZ": "New Zealand",
    "HK": "Hong Kong", "S": "Singapore", "NT": "New Taiwan",
}  # fmt: skip


def _amount(num: str, scale: str | None) -> str:
    """Verbalize a number with its scale: "3.5" and "m" is three point five million."""
    return decimal(num) + (f" {_SCALES.get(scale.lower().rstrip('.'), scale)}" if scale else "")


def _is_one(num: str) -> bool:
    return num.replace(",", "") in ("1", "1.0", "1.00")


def _per(unit: str | None, power: str = "") -> str:
    return f" per {power}{_PER.get(unit, unit)}" if unit else ""


def _money_words(num: str, scale: str | None, names: tuple[str, ...]) -> str:
    """Verbalize an amount. Decimals are minor units: "3.50" is three dollars and fifty cents, "0.99" ninety-nine cents."""
    singular, plural_form, coin, coins = names
    units, _, cents = num.replace(",", "").partition(".")
    if scale or len(cents) != 2 or not coin:
        return f"{_amount(num, scale)} {singular if _is_one(num) and not scale else plural_form}"
    amount = f"{decimal(units or '0')} {singular if _is_one(units) else plural_form}"
    if not cents.strip("0"):
        return amount
    change = f"{cardinal(int(cents))} {coin if cents == '01' else coins}"
    return f"{amount} and {change}" if units.strip("0") else change


def _money(m: Match) -> str:
    names = _CURRENCIES[m["sign"] or m["local"] or m["code"]]
    country = m["country"] or (m["after"] or "")[:2]
    if country:
        names = (f"{_COUNTRIES[country]} {names[0]}", f"{_COUNTRIES[country]} {names[1]}", *names[2:])
    if _describes(m):
        names = (names[0], names[0], *names[2:])  # "a $100 fine"
    amount = _money_words(m["last"] or m["num"], m["scale"], names)
    minus = _minus(m["minus"] or m["minus2"])
    start = f"{_money_words(m['num'], None, names)} to " if m["last"] and "." in m["num"] and not m["scale"] else ""
    amount = start + amount if start else _range(m["num"] if m["last"] else None, amount)
    words = minus + amount + _per(m["per"]) + _per(m["next"])
    before, after = m.string[max(0, m.start() - 1) : m.start()], m.string[m.end() : m.end() + 1]
    return f"{' ' * before.isalpha()}{words}{' ' * after.isalpha()}"


def _money_after(m: Match) -> str:
    if m["sign"] == "¢":
        return counted(m["num"], "cent") + _per(m["per"])
    return _money_words(m["num"], m["scale"], _CURRENCIES[m["sign"] or m["code"].rstrip(".")]) + _per(m["per"])


def _full(name: str) -> str:
    """Return the full name of a month or a day of the week."""
    return (MONTHS | WEEKDAYS).get(name.rstrip("."), name)


def _in_year(number: str | None) -> str:
    return f", {year(int(number))}" if number else ""


def _date_in_figures(m: Match) -> str:
    """Read the month first (US), or the day first if only that is a valid date or dots separate the numbers (Europe)."""
    month, day = int(m["a"]), int(m["b"])
    if month > 12 or (m["sep"] == "." and day <= 12):
        month, day = day, month
    is_version = m["sep"] == "." and len(m["year"]) == 2 and not re.fullmatch(r"\d\d\.0\d", f"{m['a']}.{m['b']}")
    if not (1 <= month <= 12 and 1 <= day <= 31) or is_version:
        return m.group()
    number = int(m["year"])
    if len(m["year"]) == 2:
        number += 2000 if number < 50 else 1900
    return f"{_NAMES[month - 1]} {ordinal(day)}, {year(number)}"


def _on_a_day(m: Match) -> str:
    month, day = int(m["a"]), int(m["b"])
    is_share = m["cue"] in ("by ", "By ") and month < day < 6  # reduced by 1/3
    if not (1 <= month <= 12 and 1 <= day <= 31) or (month, day) == (9, 11) or is_share:
        return m.group()
    cue = m["cue"].replace(m["weekday"] or "", _full(m["weekday"] or ""))
    return f"{cue}{_NAMES[month - 1]} {ordinal(day)}"


def _from_day_to_day_in_figures(m: Match) -> str:
    """Verbalize a range of dates such as 5/1–5/20, unless it could be a range of fractions such as 1/4–3/4."""
    (month, day), (last_month, last_day) = (int(m["a"]), int(m["b"])), (int(m["month"]), int(m["day"]))
    denominators = {2, 3, 4, 8, 16} if month == last_month else set(range(17))
    valid = 1 <= month <= last_month <= 12 and 1 <= day <= 31 and 1 <= last_day <= 31
    if not valid or (month, day) >= (last_month, last_day) or {day, last_day} <= denominators:
        return m.group()
    return f"{_NAMES[month - 1]} {ordinal(day)} to {_NAMES[last_month - 1]} {ordinal(last_day)}"


def _month_and_day(m: Match) -> str:
    if m["day"] is None:  # "Dec '24"
        return _full(m["month"])
    end = f" to {ordinal(int(m['last']))}" if m["last"] else ""
    return f"{_full(m['month'])} {ordinal(int(m['day']))}{end}{_in_year(m['year'])}"


def _time(m: Match) -> str:
    if m["hour"]:
        return cardinal(int(m["hour"])) + _half_day(m, m["half_day"])
    hour, minute = int(m["h"]), int(m["m"])
    if hour > 24:
        return m.group()
    fraction = (m["ms"] or m["milliseconds"] or "").rstrip("0")
    if (fraction or m["s"] not in (None, "00")) and not m["half"]:
        parts = ((str(hour), "hour"), (str(minute), "minute"), (f"{int(m['s'])}.{fraction}".rstrip("."), "second"))
        hours, minutes, seconds = (counted(number, name) for number, name in parts)
        is_stamp = not hour and m.string[m.start() - 1 : m.start()] == "["  # [00:01:02]
        return f"{'' if is_stamp else f'{hours}, '}{minutes} and {seconds}{_half_day(m, None)}"
    if minute:
        words = f"{cardinal(hour)} {'oh ' if minute < 10 else ''}{cardinal(minute)}"
    elif m["half"]:
        words = cardinal(hour)
    elif hour in (0, 24):
        words = "midnight"
    else:
        words = f"{cardinal(hour)} hundred" if hour > 12 else f"{cardinal(hour)} o'clock"
    if m["half"] and m["s"] not in (None, "00"):
        words += f" and {counted(str(int(m['s'])), 'second')}"
    return words + _half_day(m, m["half"]) + (" " if m.string[m.end() : m.end() + 1].isalpha() else "")


def _half_day(m: Match, half: str | None) -> str:
    if not half:
        offset = (m["z"] or "").replace(":", "")
        if len(offset) < 2:
            return " U T C" * len(offset)
        minutes = f" {cardinal(int(offset[3:]))}" if int(offset[3:]) else ""
        return f" U T C {'plus' if offset[0] == '+' else 'minus'} {cardinal(int(offset[1:3]))}{minutes}"
    return f" {'ay' if half[0] in 'aA' else 'P'} M{_stop(m)}"


def _month_of_a_year(m: Match) -> str:
    number, month = int(m["year"] or m["y"]), int(m["month"] or m["m"])
    # A season, 2009/10, or a range, 2009-12.
    if m["year"] and (month == number % 100 + 1 or ("-" in m.group() and month > number % 100)):
        return m.group()
    return f"{_NAMES[month - 1]} {year(number)}"


def _decade(m: Match) -> str:
    tens = cardinal(int(m["decade"] or m["short"] or 0) * 10)
    years = "hundreds" if tens == "zero" else plural(tens)
    if m["short"]:
        return years
    return "two thousands" if m["century"] + m["decade"] == "200" else f"{cardinal(int(m['century']))} {years}"


def _from_year_to_year(m: Match) -> str:
    start, end = int(m["first"]), int(m["last"])
    short, cue = len(m["last"]) == 2, re.sub(r"^c\.", "circa ", m["cue"] or "").strip()
    if m["sep"] == "/":  # a season: only two consecutive years
        if end % 100 != (start + 1) % 100 or (not short and end != start + 1):
            return m.group()
        return f"{cue} {year(start)} to {year(start + 1) if not short or end < 10 else cardinal(end)}"
    if short and end <= start % 100:
        return m.group()
    return f"{cue} {year(start)} to {cardinal(end) if short else year(end)}"


def _models(m: Match) -> str:
    """Verbalize the plural of a model name or a number. It is applied before the rule for seconds ("10s")."""
    letters, num = m["letters"], m["num"] or m["count"]
    number = paired(num) if len(num) == 3 or (m["before"] and len(num) > 2) else cardinal(int(num))
    before = m["before"] or f"{spelled(letters) if len(letters) < 3 else letters} "
    return before + plural(number)


def _spaced_range(m: Match) -> str:
    """Verbalize a range with spaces around its dash, but not "In 2024 - 5 years later" or "iPhone 15 - 3 colors"."""
    start, end = m["first"], m["last"]
    is_year = re.fullmatch(r"1[5-9]\d\d|20\d\d", start) is not None
    after_name = not m.string[max(0, m.start() - 20) : m.start()].rpartition(" ")[0].rpartition(" ")[2].islower()
    decreasing = float(end.replace(",", "")) < float(start.replace(",", ""))
    lower = re.match(" [a-z]", m.string[m.end("last") : m.end("last") + 2])
    return m.group() if (is_year and len(end) < 3) or (after_name and decreasing and lower) else f"{start} to "


def _exponent(sign: str, power: str) -> str:
    if not sign and power in ("2", "3"):
        return "squared" if power == "2" else "cubed"
    return f"to the power of {_minus(sign == '-')}{decimal(power) if power.isdigit() else power}"


def _degrees(m: Match) -> str:
    scale = f" {AFTER_DEGREES[m['scale']]}" if m["scale"] else ""
    number = _range(m["first"], _minus(m["minus2"]) + decimal(m["num"]))
    singular = not m["first"] and (_is_one(m["num"]) or (not scale and _describes(m)))
    return f"{_minus(m['minus'])}{number} degree{'' if singular else 's'}{scale}"


def _inches(m: Match) -> str:
    """Read a double quote after a number as inches unless it closes a quotation. Needs the complete text."""
    is_open = False

    def mark(m: Match) -> str:
        nonlocal is_open
        number = m["num"]
        if not number or is_open or m["after"]:
            is_open = not is_open
            return m.group()
        single = number == "1" or ("/" in number and not re.search("[ -]", number)) or _before_noun(m.string, m.end())
        return f"{number} {'inch' if single else 'inches'}"

    return _INCH_MARK.sub(mark, m.group())


_INCH_MARK = re.compile(r'(?P<num>(?<![\w.,])(?:\d{1,4}[ -])?\d{1,4}(?:\.\d{1,3}|/\d{1,2})?)?"(?P<after>\w)?')


def _feet(m: Match) -> str:
    """Read a single quote after a number as feet unless a quotation is open."""
    number = m["num"]
    if re.search(r"(?<!\w)'[A-Za-z(-]", m.string[max(0, m.start() - 200) : m.start()]):
        return m.group()
    return f"{number} {'foot' if number == '1' or _before_noun(m.string, m.end()) else 'feet'}"


def _fraction(m: Match) -> str:
    minus = _minus(m["minus"])
    if m["rating"]:
        return f"{decimal(m['rating'])} out of {cardinal(int(m['of']))}"
    top, bottom, integer = int(m["top"]), int(m["bottom"]), m["whole"]
    unit = " percent" if m["percent"] else ""
    if m["unit"]:
        unit = f" {UNITS[m['unit']][1 if integer or top > bottom else 0]}"
    shares = top + bottom == 100 and top >= 50 and not unit  # an 80/20 split
    if not integer and not minus and (shares or (top, bottom) in ((24, 7), (9, 11), (20, 20))):
        return f"{cardinal(top)} {cardinal(bottom)}{unit}"
    if not integer and not minus and top == bottom > 1:
        return f"{cardinal(top)} out of {cardinal(bottom)}{unit}"
    before = minus + (f"{cardinal(int(integer))} and " if integer else "")
    if not 0 < top < bottom <= 100 or (20 < bottom < 100 and bottom % 10):
        return f"{before.replace(' and ', ', ')}{cardinal(top)} over {cardinal(bottom)}{unit}"
    if top == 1 and bottom in (2, 4):
        return f"{before}{'a' if integer else 'one'} {'half' if bottom == 2 else 'quarter'}{unit}"
    return f"{before}{cardinal(top)} {ordinal(bottom) if top == 1 else ordinal_plural(bottom)}{unit}"


def _measure(m: Match) -> str:
    """Verbalize a number with its unit, which is singular in "a 5-km run"; "square" and "cubic" precede the unit."""
    singular, plural_form = UNITS[m["unit"]]
    is_one = _is_one(m["num"]) and not m["first"] and not m["scale"]
    is_singular = m["gap"] == "-" or is_one or _describes(m)
    word = RAISED[m["power"]] + (singular if is_singular else plural_form)
    per = _per(m["per"], RAISED[m["perpower"]]) + _per(m["next"])
    if m["of"]:
        is_dose = re.fullmatch(r"\w*g/\w?[lL]|[lL]/km", f"{m['unit']}/{m['of']}")  # otherwise a conversion
        per = f"{' per' if is_dose else ','} {decimal(m['amount'])} {UNITS[m['of']][0 if _is_one(m['amount']) else 1]}"
    return f"{_minus(m['minus'])}{_range(m['first'], decimal(m['num']))}{m['scale'] or ''} {word}{per}"


_ORDINAL_WORD: Final = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|[a-z]+teenth|[a-z]+tieth"
)
_HOUSE_NUMBER = re.compile(
    r"(?<![\w.,$£€-])(?<!\b[Ii]n )(?!(?:19|20)\d\d )\d{1,5}[A-Z]?(?: [NSEW]\.?)?"
    r"(?: (?!Dr\b|Call\b|Meet\b|Ask\b|See\b|Visit\b)"
    rf"(?:[A-Z][a-z]+|\d{{1,3}}(?:st|nd|rd|th)|(?:[a-z]+-)?(?:{_ORDINAL_WORD}))){{1,3}}\Z"
)
_BEFORE_STREET = re.compile(r"([A-Za-z'.]+|\d+(?:st|nd|rd|th))$")


def _saint_or_street(m: Match) -> str:
    """Expand a title before a name ("Dr. Smith", "St. John"), or a street after one ("Main St.", "Elm Dr.")."""
    before = m.string[max(0, m.start() - 40) : m.start()].rstrip(" ")
    match = _BEFORE_STREET.search(before)
    previous = match.group() if match else ""
    after_name = previous != "" and (
        previous[0].isupper() or previous[0].isdigit() or re.fullmatch(_ORDINAL_WORD, previous) is not None
    )
    after_name = after_name and previous.rstrip(".") not in LISTS["starters"] | {"Mr", "Mrs", "Prof"}
    period = m.group().endswith(".")
    if m["next"] and not (after_name and not before.endswith(".") and not period):
        following = re.match(r" ([A-Z][a-z']*)", m.string[m.end() : m.end() + 40])
        # After a house number or a common street name: "123 Main St. Springfield".
        street = _HOUSE_NUMBER.search(before) or (m["word"] == "St" and before.rpartition(" ")[2] in LISTS["streets"])
        street = street or (following and following.group(1) in LISTS["starters"] | LISTS["after_street"])
        if not (after_name and street):
            return TITLES[m["word"]]
    if not period and not after_name:
        return m.group()
    word = ("Street" if m["word"] == "St" else "Drive") if after_name else TITLES[m["word"]]
    return word + _stop(m)


def _capital_at_start(m: Match, words: str) -> str:
    return words[0].upper() + words[1:] if m.start() == 0 and m.group()[0].isupper() else words


def _initialism(m: Match) -> str:
    words = ABBREVIATIONS.get(m.group().rstrip(".").lower())
    return (_capital_at_start(m, words) if words else spelled(m.group())) + _stop(m)


def _abbreviation(m: Match) -> str:
    if not m["word"]:
        return MONTHS[m["month"] or m["rare"]] + _stop(m)
    if not has_valid_case(m["word"]):
        return m.group()
    words = ABBREVIATIONS[m["word"].lower()]
    number = _OF_MINUTES.search(m.string, max(0, m.start() - 12), m.start()) if m["word"] == "min" else None
    if number and (number["one"] not in {"a", "A"} or _stop(m)):  # "wait a min.", but "a min. age"
        words = "minute" if number["one"] else "minutes"
    return _capital_at_start(m, words) + _stop(m)


def _initial(m: Match) -> str:
    if m["goes_on"]:
        return m["goes_on"]
    follows = re.match(r"\s([A-Z][a-z']*)", m.string[m.end() : m.end() + 40])
    # "option B. Then we left" ends a sentence; "Samuel L. Jackson" and "J. K. Rowling" do not.
    if follows and follows.group(1) in LISTS["starters"] and m.string[max(0, m.start() - 3) : m.start()].strip():
        return m.group()
    return spelled(m["letter"]) + (" " if m["joined"] is not None else "")


def _chapter(m: Match) -> str:
    number = roman(m["num"])
    if m["num"] == "I" and m["cue"] not in RULES.fragments["sure_cue"].split("|"):  # "the part I liked"
        number = None if re.match(r"\s+(?!(?:and|or|to) )[a-z]", m.string[m.end() : m.end() + 40]) else number
    if number is None:
        return m.group()
    return f"{m['cue']} {cardinal(number)}"


def _plain_year(m: Match) -> str:
    """Verbalize a year ("the 1984 elections"), or a cardinal before a plural noun ("1250 grams")."""
    counts = m["many"] is not None and m["cue"] is None
    number = int(m["year"])
    cue = m["cue"] or ""
    return f"{cue}{' ' if cue[-1:].isalpha() else ''}{cardinal(number) if counts else year(number)}"


_VERBALIZERS: Final[dict[str, Verbalizer]] = named(globals()) | {
    "day month year": lambda m: (
        f"the {ordinal(int(m['day']))} of {_full(m['month'])}, {year(int(m['year']) + 2000 * (len(m['year']) == 2))}"
        + ", " * bool(m["time"])
    ),
    # IP addresses are read with "dot", versions with "point".
    "dotted": lambda m: (
        (" point " if m["num"].count(".") == 2 else " dot ").join(map(decimal, m["num"].split(".")))
        + " " * m.string[m.end() : m.end() + 1].isalpha()
    ),
    "iso date": lambda m: (
        f"{_NAMES[int(m['m']) - 1]} {ordinal(int(m['day']))}{_in_year(m['year'])}{', ' * m.group().endswith('T')}"
    ),
    "feet and inches": lambda m: (
        f"{counted(m['feet'], 'minute')} {counted(m['inches'], 'second')}"  # 5'30"
        if int(m["inches"] or 0) > 11
        else f"{cardinal(int(m['feet']))} {'foot' if m['feet'] == '1' else 'feet'} "
        f"{cardinal(int(m['inches'] or m['in']))} inch{'' if (m['inches'] or m['in']) == '1' else 'es'}"
    ),
    "company": lambda m: (
        " ".join({"&": "and", "A": "ay"}.get(letter, letter) for letter in m.group().rstrip("s").rstrip("'"))
        + "'s" * m.group().endswith("s")
    ),
    "era": lambda m: (
        f"{year(int(m['first'])) + ' to ' if m['first'] else ''}{year(int(m['year']))} {spelled(m['era'])}{_stop(m)}"
    ),
    "version": lambda m: (
        (m["what"] or "version") + (f" {cardinal(int(m['num']))} point {cardinal(int(m['part']))}" if m["num"] else " ")
    ),
    "short year": lambda m: f"{'oh ' if 0 < int(m['year']) < 10 else ''}{cardinal(int(m['year']))}",
    "from measure to measure": lambda m: (
        f"{decimal(m['num'])} to " if m["num"] and m["unit"] == m["next"] else f"{m['num'] or ''} {m['unit']} to "
    ),
    "from day to day": lambda m: (
        f"{_full(m['day'] or m['month'])} to {_full(m['last_day'] or m['last_month'])}{_stop(m)}"
    ),
    "basis points": lambda m: f"{m['number']} basis point{'' if m['gap'] == '-' or _describes(m) else 's'}",
    "hundreds": lambda m: "hundreds" if m["zeros"] == "00" else "thousands",
    "numbered": lambda m: (
        f"{m['what']} {paired(m['num'])}" if m["what"] else f"{spelled(m['letters'])} {paired(m['model'])}"
    ),
    "day and month": lambda m: (
        f"{m['the'] or 'the '}{ordinal(int(m['first'])) + ' to ' if m['first'] else ''}{ordinal(int(m['day']))} "
        f"of {_full(m['month'])}{_in_year(m['year'])}"
    ),
    "postcode": lambda m: f"{m['state']} {digits(m['zip'])}" + (f", {digits(m['four'])}" if m["four"] else ""),
    "comparison": lambda m: f"{m['left'] or ''} {_COMPARISONS[m['sign'] or m['between']]} ",
    "life": lambda m: "born " if m["what"] == "b" else "died ",
    "address": lambda m: address(m.group()),
    "path": lambda m: address(m.group()),
    "digital object": lambda m: f"{m['what'] or ''} {address(m['code'], number=digits)}",
    "way": lambda m: f"{AFTER_DEGREES[m['way']].capitalize()} ",
    "code": lambda m: m["what"] + digits(m["num"]),
    "telephone": FIGURES["foreign telephone"],
    "unit per unit": lambda m: f"{UNITS[m['unit']][1]}{_per(m['per'])}",
    "per unit": lambda m: _PER[m["unit"]],
    "spaced thousands": lambda m: m.group().replace(" ", ","),
    "weekday": lambda m: WEEKDAYS[m["day"]] + _stop(m),
    "month in small letters": lambda m: m["month"].capitalize(),
    "month and year": lambda m: f"{_full(m['month'])} {year(int(m['year']))}",
    "power of ten": lambda m: (
        f"{decimal(m['num'])}{' times ten' if m['times'] else ''} {_exponent(m['sign'], m['power'])}"
        + (f" {UNITS[m['unit']][1]}{_per(m['per'])}" if m["unit"] else "")
    ),
    "hexadecimal": lambda m: f"zero x {spelled(m['hex'])}",
    "screen": lambda m: f"{paired(m['a'])} by {paired(m['b'])}",
    "millions": lambda m: _range(m["first"], _amount(m["num"], m["scale"])),
    "times": lambda m: f"{_range(m['first'], decimal(m['num']))} times",
    "percent": lambda m: (
        f"{_minus(m['minus'])}{_range(m['first'], decimal(m['num']))} {'percent' if m['sign'] == '%' else 'per thousand'}"
    ),
    "ordinal": lambda m: ordinal(int(m["num"].replace(",", ""))),
    "number in groups": lambda m: ", ".join(digits(group) or group for group in re.split("[ -]", m.group())),
    "short form": lambda m: _SHORT_FORMS[m.group()],
    "part of a street": lambda m: _STREET_WORDS[m["word"]],
    "before a number": lambda m: f"{BEFORE_NUMBER[m['word'].lower()]} ",
    "title": lambda m: TITLES[m["title"] or m["bare"]],
    "letters and digits": lambda m: " ay " if m["a"] else " ",
    "power": lambda m: (
        f" {m['power']} {'plus' if m['charge'] == '+' else 'minus'} "
        if m["charge"]
        else f" {_exponent(m['sign'], m['power'])} "
    ),
    "range": lambda m: f"{decimal(m['first'] or m['ratio'])} to ",
    "sign": lambda m: " plus " if m["plus"] else " minus " if m["between"] or m["minus"] or m["less"] else " ",
    "language": lambda m: f"{m['plus']} plus plus" if m["plus"] else f"{m['sharp']} sharp",
    "hash": lambda m: " number " if m["number"] is not None else " hashtag ",
    "operator": lambda m: f" {'times' if m['times'] else _COMPARISONS[m['sign'] or m['arrow'] or m['than']]} ",
    "sign by name": lambda m: f" {_SIGNS[m.group()]} ",
    "number": lambda m: (
        f" {decimal(m['num'])}{' plus' * bool(m['plus'])}" + " " * (not m.string.startswith("'s", m.end()))
    ),
}


LAYOUT: Final = Rules("layout", {}, {})
"""Rules for paragraphs and lists, in both languages."""
RULES: Final = Rules(
    "english/rules",
    _VERBALIZERS | FIGURES,
    {
        "books": alternation(BOOKS),
        "abbreviations": alternation(ABBREVIATIONS),
        "before_number": alternation(BEFORE_NUMBER),
        "codes": alternation(code for code in _CURRENCIES if code.isupper() and len(code) == 3),
        "local": alternation(
            code for code in _CURRENCIES if code.isalpha() and not (code.isupper() and len(code) == 3)
        ),
        "days": alternation({*WEEKDAYS, *WEEKDAYS.values()}),
        "domains": alternation(LISTS["domains"]),
        "element": f"(?:{alternation(ELEMENTS)})",
        "element_name": alternation(ELEMENTS.values()),
        "greek": alternation(GREEK.values()),
        "initialism": INITIALISM.pattern,
        "label": "|".join(f"[{word[0].upper()}{word[0]}]{word[1:]}" for word in sorted(LISTS["labels"])),
        "month": f"(?:{alternation({*MONTHS, *_NAMES})})",
        "months": alternation({*MONTHS, *_NAMES}),
        "of_decade": "|".join(f"(?<=\\b{cue} )" for cue in "the The his her their my our your early late".split()),
        "per": alternation(_PER),
        # Or any singular word: 12 dB/octave, but not km/miles.
        "per_word": rf"{alternation(_PER)}|(?![a-z]*s(?![a-z]))[a-z]{{3,20}}",
        "regnal": alternation(LISTS["regnal"]),
        "short": alternation(_SHORT_FORMS),
        "signs": re.escape("".join(_SIGNS)),
        "streets": alternation(_STREET_WORDS),
        "titles": alternation(title for title in TITLES if title not in ("St", "Dr")),
        "unit": alternation(UNITS),
        "weekdays": alternation(WEEKDAYS),
    },
)
"""Rules of English, applied after `LAYOUT`."""
_CAPITALS: Final = re.compile(RULES.fragments["capitals"])
_CAPITALIZED: Final = {
    word.upper()
    for name in (
        *(*MONTHS, *_NAMES, *WEEKDAYS, *WEEKDAYS.values(), *TITLES, *LISTS["regnal"]),
        *"|".join(RULES.fragments[key] for key in ("sure_cue", "cue", "king")).split("|"),
    )
    for word in name.split(" ")
} - {"MAY", "MON", "SUN", "SAT", "WED", "MARCH", "MARK"}
"""Words that stay capitalized in a text in capitals, because the rules for dates, titles and numerals need capitals."""
ADDRESS: Final = RULES["address"].pattern
"""An e-mail or web address."""


def english(text: str, unread: list[str] | None = None) -> str:
    """Normalize cleaned English `text`, or prepare it as for ``normalize=false`` if it is only markup or a URL scheme.

    Symbols that are not read are appended to `unread`.
    """
    words = RULES.apply(LAYOUT.apply(text))
    if unread is not None:
        unread += UNREAD.findall(words)
    return tidy(words) or english_plain(text)


def english_plain(text: str) -> str:
    """Prepare cleaned `text` for ``normalize=false``, with digits one by one."""
    text = re.sub(r"(?<=\d)[,:–-](?=\d)", " ", re.sub(r"(?<=\d)\.(?=\d)", " point ", text))
    return tidy(re.sub(r"\d+", lambda m: f" {digits(m.group())} ", text))
