"""What is written in English to what is said: one table of rules, in the order in which they apply.

Layout goes first, then what must stay whole (addresses, telephone numbers, amounts, dates), then measures, abbreviations and
Roman numerals, and at last the numbers and signs that are left. A function says the matches of the rule of its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from voicelab.text.clean import FREQUENT, Functions, Match, Rules, any_of, rows, tidy
from voicelab.text.english_numbers import (
    cardinal,
    decimal,
    digits,
    ordinal,
    ordinal_plural,
    paired,
    plural,
    roman,
    year,
)
from voicelab.text.segments import (
    ABBREVIATIONS,
    BEFORE_NUMBER,
    INITIALISM,
    LISTS,
    MONTHS,
    TITLES,
    WEEKDAYS,
    WRITTEN_SHORT,
    ends_sentence,
    fits_case,
)

_SAYS: Final = Functions()
_UNITS: Final = {symbol: (one, many) for symbol, one, many, _ in rows("english/units") if one != "-"}
_PER: Final = {symbol: per for symbol, _, _, per in rows("english/units") if per != "-"}
_CURRENCIES: Final = {
    key: tuple("" if name == "-" else name for name in names) for key, *names in rows("english/currencies")
}
_SIGNS: Final = {sign: word for sign, word, _, _ in rows("english/symbols") if word != "-"}
IN_ADDRESS: Final = {sign: name for sign, _, name, _ in rows("english/symbols") if name != "-"}
_SHORT, _IN_STREET = WRITTEN_SHORT["short"], WRITTEN_SHORT["street"]
_SCALES: Final = {
    "k": "thousand",
    **dict.fromkeys(("m", "mn", "mm", "mil"), "million"),
    **dict.fromkeys(("b", "bn"), "billion"),
    **dict.fromkeys(("t", "tn", "trn"), "trillion"),
}
_NAMES: Final = tuple(dict.fromkeys(MONTHS.values()))


# Whether an amount describes the noun after it, and so stands in the singular: "a 5 km run", "the $2 bill".
_ARTICLE = re.compile(
    r"(?<![A-Za-z])(?:(?P<sure>[Aa]n?|[Ee]ach|[Ee]very|[Oo]ther)|[Tt]he(?:ir)?|[Tt]h(?:is|at)|[Ii]ts|[Hh]is|[Hh]er|[Oo]ur|"
    r"[Yy]our|[Mm]y) \Z"
)
_NEXT_WORD = re.compile(r"[ -](?P<word>[a-z]{3,})")


def _before_noun(text: str, end: int) -> bool:
    """Whether a noun, or an adjective before one, follows ``text[:end]``: no preposition, conjunction or verb."""
    following = _NEXT_WORD.match(text, end)
    if following is None or following["word"] in LISTS["no_noun"]:
        return False
    word = following["word"]
    return not word.endswith("ed") and (not word.endswith("ly") or word in LISTS["daily"])


def _describes(m: Match) -> bool:
    """Whether the amount stands between an article or the like and a noun."""
    article = _ARTICLE.search(m.string[max(0, m.start() - 8) : m.start()])
    if article is None:
        return False
    # "a" before an amount is of the noun after it; "the" may be of the amount: "the 5 km were hard".
    return _NEXT_WORD.match(m.string, m.end()) is not None if article["sure"] else _before_noun(m.string, m.end())


def _stop(m: Match) -> str:
    """The period of an abbreviation, where it ends the sentence too."""
    return "." if m.group().endswith(".") and ends_sentence(m.string, m.end()) else ""


def _letters(text: str) -> str:
    """Letters one by one; "A" is also the article, so its name is written out."""
    return " ".join("ay" if letter in "Aa" else letter.upper() for letter in text)


def _range(first: str | None, spoken: str) -> str:
    return f"{decimal(first)} to {spoken}" if first else spoken


def _minus(sign: str | bool | None) -> str:
    return "minus " if sign else ""


# Addresses.
_WAYS: Final = {"N": "North", "S": "South", "E": "East", "W": "West"}
_ADDRESS_PART = re.compile(r"[A-Za-z]+|\d+|.")


def address(text: str, names: Mapping[str, str] = IN_ADDRESS, number: Callable[[str], str] = decimal) -> str:
    """An address read aloud: letters as words where they are, punctuation by its name in `names`."""
    stripped = text.rstrip(".,;:!?")
    body = re.sub(r"^(?:https?|ftp)://|^mailto:", "", stripped).rstrip("/")
    words: list[str] = []
    for part in _ADDRESS_PART.findall(body):
        if part.isdigit():
            words.append(number(part))
        elif part.isalpha():
            ending = words[-1:] == [names["."]] and part in LISTS["domains"] - LISTS["said_domains"]
            words.append(_letters(part) if ending or len(part) == 1 or part.lower() == "www" else part)
        elif part in names:
            words.append(names[part])
    return " ".join(words) + text[len(stripped) :]


def _quieter(m: Match) -> str:
    word = m.group()
    if word in LISTS["acronyms"] or (not re.search("[AEIOUY]", word) and word not in _CAPITALISED) or roman(word):
        return word
    if word in _CAPITALISED or (word == "MAY" and re.match(r" \d", m.string[m.end() : m.end() + 2])):
        return word.capitalize()
    return word.lower()


@_SAYS.says
def _shouted(m: Match) -> str:
    """A text all in capitals with an ordinary word in it is shouted, not a row of acronyms."""
    words = _CAPITALS.findall(m.group())
    ordinary = LISTS["emphatic"] | {"IN", "OR"}
    if not any(word in ordinary or (len(word) > 3 and word.lower() in FREQUENT["English"]) for word in words):
        return m.group()
    if all(word in LISTS["acronyms"] | {"AND", "OR", "US", "IT"} for word in words):
        return m.group()
    text = _CAPITALS.sub(_quieter, m.group())
    return re.sub(
        rf"(?i:(?P<label>\b(?:{RULES.parts['label']}) )?)\bA(?= )",
        lambda m: f"{m['label']}A" if m["label"] else "a",
        text,
    )


# Signs between numbers, and dashes between days: before amounts and dates, which would take the numbers away.
_COMPARED: Final = {sign: said for sign, said, _ in rows("comparisons") if said != "-"}
_OPERATOR = re.compile(r"[+*×÷=^]|(?<![A-Za-z])[b-hj-z](?![A-Za-z])")


@_SAYS.says
def _sum(m: Match) -> str:
    """Only in a sum is a spaced dash a minus: it has another sign, a variable, or was asked for."""
    text = m.group()
    return re.sub(" [-–] ", " minus ", text) if m["asked"] or _OPERATOR.search(text) else text


def _groups(text: str) -> str:
    return ", ".join(digits(group) for group in re.findall(r"\d+", text))


# Amounts of money: before the dates, since an amount may hold what looks like a year.
_LANDS: Final = {
    "US": "U S", "A": "Australian", "AU": "Australian", "C": "Canadian", "CA": "Canadian", "NZ": "New Zealand",
    "HK": "Hong Kong", "S": "Singapore",
}  # fmt: skip


def _amount(num: str, scale: str | None) -> str:
    """The words of "3.5" with "m": three point five million."""
    return decimal(num) + (f" {_SCALES.get(scale.lower(), scale)}" if scale else "")


def _is_one(num: str) -> bool:
    return num.replace(",", "") in ("1", "1.0", "1.00")


def _per(unit: str | None, power: str = "") -> str:
    return f" per {power}{_PER.get(unit, unit)}" if unit else ""


def _money_words(num: str, scale: str | None, names: tuple[str, ...]) -> str:
    """Two decimals are the small coin: "3.50" is three dollars and fifty cents, "0.99" ninety-nine cents."""
    one, many, coin, coins = names
    whole, _, part = num.replace(",", "").partition(".")
    if scale or len(part) != 2 or not coin:
        return f"{_amount(num, scale)} {one if _is_one(num) and not scale else many}"
    amount = f"{decimal(whole or '0')} {one if _is_one(whole) else many}"
    if not part.strip("0"):
        return amount
    change = f"{cardinal(int(part))} {coin if part == '01' else coins}"
    return f"{amount} and {change}" if whole.strip("0") else change


@_SAYS.says
def _money(m: Match) -> str:
    names = _CURRENCIES[m["sign"] or m["rupees"] or m["code"]]
    land = m["country"] or (m["after"] or "")[:2]
    if land:
        names = (f"{_LANDS[land]} {names[0]}", f"{_LANDS[land]} {names[1]}", *names[2:])
    if _describes(m):
        names = (names[0], names[0], *names[2:])  # "a $100 fine"
    amount = _money_words(m["last"] or m["num"], m["scale"], names)
    minus = _minus(m["minus"] or m["minus2"])
    return minus + _range(m["num"] if m["last"] else None, amount) + _per(m["per"]) + _per(m["next"])


@_SAYS.says
def _money_after(m: Match) -> str:
    if m["sign"] == "¢":
        return f"{decimal(m['num'])} cent{'' if _is_one(m['num']) else 's'}"
    return _money_words(m["num"], m["scale"], _CURRENCIES[m["sign"] or m["code"]]) + _per(m["per"])


def _full(name: str) -> str:
    """The full name of a month or a day of the week."""
    return (MONTHS | WEEKDAYS).get(name.rstrip("."), name)


def _in_year(number: str | None) -> str:
    return f", {year(int(number))}" if number else ""


@_SAYS.says
def _iso_date(m: Match) -> str:
    after = ", " if m.group().endswith("T") else ""
    return f"{_NAMES[int(m['m']) - 1]} {ordinal(int(m['day']))}{_in_year(m['year'])}{after}"


@_SAYS.says
def _date_in_figures(m: Match) -> str:
    """American month first, unless only the other order is a date; dots are the European day first."""
    month, day = int(m["a"]), int(m["b"])
    if month > 12 or (m["sep"] == "." and day <= 12):
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31) or (m["sep"] == "." and len(m["year"]) == 2):
        return m.group()
    number = int(m["year"])
    if len(m["year"]) == 2:
        number += 2000 if number < 50 else 1900
    return f"{_NAMES[month - 1]} {ordinal(day)}, {year(number)}"


@_SAYS.says
def _on_a_day(m: Match) -> str:
    month, day = int(m["a"]), int(m["b"])
    if not (1 <= month <= 12 and 1 <= day <= 31) or (month, day) == (9, 11):
        return m.group()
    return f"{m['cue']} {_NAMES[month - 1]} {ordinal(day)}"


@_SAYS.says
def _month_and_day(m: Match) -> str:
    if m["day"] is None:  # "Dec '24"
        return _full(m["month"])
    last = f" to {ordinal(int(m['last']))}" if m["last"] else ""
    return f"{_full(m['month'])} {ordinal(int(m['day']))}{last}{_in_year(m['year'])}"


@_SAYS.says
def _time(m: Match) -> str:
    if m["hour"]:
        return cardinal(int(m["hour"])) + _half_day(m, m["half_day"])
    hour, minute = int(m["h"]), int(m["m"])
    if hour > 24:
        return m.group()
    if m["s"] not in (None, "00"):
        parts = ((hour, "hour"), (minute, "minute"), (int(m["s"]), "second"))
        hours, minutes, seconds = (f"{cardinal(n)} {name}{'' if n == 1 else 's'}" for n, name in parts)
        return f"{hours}, {minutes} and {seconds}{_half_day(m, m['half'])}"
    if minute:
        spoken = f"{cardinal(hour)} {'oh ' if minute < 10 else ''}{cardinal(minute)}"
    elif m["half"]:
        spoken = cardinal(hour)
    elif hour in (0, 24):
        spoken = "midnight"
    else:
        spoken = f"{cardinal(hour)} hundred" if hour > 12 else f"{cardinal(hour)} o'clock"
    return spoken + _half_day(m, m["half"])


def _half_day(m: Match, half: str | None) -> str:
    if not half:
        return " U T C" if m["z"] else ""
    return f" {'ay' if half[0] in 'aA' else 'P'} M{_stop(m)}"


@_SAYS.says
def _era(m: Match) -> str:
    first = f"{year(int(m['first']))} to " if m["first"] else ""
    return f"{first}{year(int(m['year']))} {_letters(m['era'].replace('.', ''))}{_stop(m)}"


@_SAYS.says
def _decade(m: Match) -> str:
    tens = cardinal(int(m["decade"] or m["short"] or 0) * 10)
    many = "hundreds" if tens == "zero" else plural(tens)
    if m["short"]:
        return many
    return "two thousands" if m["century"] + m["decade"] == "200" else f"{cardinal(int(m['century']))} {many}"


@_SAYS.says
def _from_year_to_year(m: Match) -> str:
    first, last = int(m["first"]), int(m["last"])
    short = len(m["last"]) == 2
    if m["sep"] == "/":  # a season: only two years in a row
        if last % 100 != (first + 1) % 100 or (not short and last != first + 1):
            return m.group()
        return f"{year(first)} to {year(first + 1) if not short or last < 10 else cardinal(last)}"
    if short and last <= first % 100:
        return m.group()
    return f"{year(first)} to {cardinal(last) if short else year(last)}"


@_SAYS.says
def _models(m: Match) -> str:
    """Several of a model or of a number, before the s is taken for seconds."""
    letters, num = m["letters"], m["num"] or m["count"]
    number = paired(num) if len(num) == 3 or (m["before"] and len(num) > 2) else cardinal(int(num))
    before = m["before"] or f"{_letters(letters) if len(letters) < 3 else letters} "
    return before + plural(number)


@_SAYS.says
def _spaced_range(m: Match) -> str:
    """Not after a year ("In 2024 - 5 years later"), nor after a name with its number ("iPhone 15 - 3 colors")."""
    first, last = m["first"], m["last"]
    is_year = re.fullmatch(r"1[5-9]\d\d|20\d\d", first) is not None
    named = not m.string[max(0, m.start() - 20) : m.start()].rpartition(" ")[0].rpartition(" ")[2].islower()
    fewer = float(last.replace(",", "")) < float(first.replace(",", ""))
    lower = re.match(" [a-z]", m.string[m.end("last") : m.end("last") + 2])
    return m.group() if (is_year and len(last) < 3) or (named and fewer and lower) else f"{first} to "


def _exponent(sign: str, power: str) -> str:
    if not sign and power in ("2", "3"):
        return "squared" if power == "2" else "cubed"
    return f"to the power of {_minus(sign == '-')}{decimal(power) if power.isdigit() else power}"


@_SAYS.says
def _version(m: Match) -> str:
    number = f"{cardinal(int(m['num']))} point {cardinal(int(m['part']))}" if m["num"] else ""
    return f"{m['what'] or 'version'} {number}"


_AFTER_DEGREES: Final = {
    "C": " Celsius", "F": " Fahrenheit", "K": " Kelvin", "N": " north", "S": " south", "E": " east", "W": " west",
}  # fmt: skip


@_SAYS.says
def _degrees(m: Match) -> str:
    scale = _AFTER_DEGREES.get(m["scale"], "")
    spoken = _range(m["first"], _minus(m["minus2"]) + decimal(m["num"]))
    return f"{_minus(m['minus'])}{spoken} {'degree' if _is_one(m['num']) else 'degrees'}{scale}"


@_SAYS.says
def _feet_and_inches(m: Match) -> str:
    feet, inches = int(m["feet"]), int(m["inches"] or m["in"])
    return f"{cardinal(feet)} {'foot' if feet == 1 else 'feet'} {cardinal(inches)} inch{'' if inches == 1 else 'es'}"


@_SAYS.says
def _inches(m: Match) -> str:
    """A mark after a number is inches while no quotation is open, so the text is looked at as a whole."""
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


@_SAYS.says
def _feet(m: Match) -> str:
    """A mark after a number is feet while no quotation is open."""
    number = m["num"]
    if re.search(r"(?<!\w)'[A-Za-z(-]", m.string[max(0, m.start() - 200) : m.start()]):
        return m.group()
    return f"{number} {'foot' if number == '1' or _before_noun(m.string, m.end()) else 'feet'}"


@_SAYS.says
def _fraction(m: Match) -> str:
    minus = _minus(m["minus"])
    if m["rating"]:
        return f"{decimal(m['rating'])} out of {cardinal(int(m['of']))}"
    top, bottom, whole = int(m["top"]), int(m["bottom"]), m["whole"]
    unit = f" {_UNITS[m['unit']][1 if whole or top > bottom else 0]}" if m["unit"] else ""
    shares = top + bottom == 100 and top >= 50 and not unit  # an 80/20 split
    if not whole and not minus and (shares or (top, bottom) in ((24, 7), (9, 11), (20, 20))):
        return f"{cardinal(top)} {cardinal(bottom)}{unit}"
    if not whole and not minus and top == bottom > 1:
        return f"{cardinal(top)} out of {cardinal(bottom)}{unit}"
    before = minus + (f"{cardinal(int(whole))} and " if whole else "")
    if not 0 < top < bottom <= 100 or (20 < bottom < 100 and bottom % 10):
        return f"{before.replace(' and ', ', ')}{cardinal(top)} over {cardinal(bottom)}{unit}"
    if top == 1 and bottom in (2, 4):
        return f"{before}{'a' if whole else 'one'} {'half' if bottom == 2 else 'quarter'}{unit}"
    return f"{before}{cardinal(top)} {ordinal(bottom) if top == 1 else ordinal_plural(bottom)}{unit}"


@_SAYS.says
def _measure(m: Match) -> str:
    """A number with its unit; "a 5-km run" keeps the singular, squares and cubes go before the unit."""
    one, many = _UNITS[m["unit"]]
    single = m["gap"] == "-" or (_is_one(m["num"]) and not m["first"]) or _describes(m)
    raised = {"2": "square ", "3": "cubic ", None: ""}
    word = raised[m["power"]] + (one if single else many)
    per = _per(m["per"], raised[m["perpower"]]) + _per(m["next"])
    return f"{_minus(m['minus'])}{_range(m['first'], decimal(m['num']))} {word}{per}"


_ORDINAL_WORD: Final = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|[a-z]+teenth|[a-z]+tieth"
)
_HOUSE_NUMBER = re.compile(
    r"(?<![\w.,$£€-])(?<!\b[Ii]n )(?!(?:19|20)\d\d )\d{1,5}[A-Z]?(?: [NSEW]\.?)?"
    r"(?: (?!Dr\b|Call\b|Meet\b|Ask\b|See\b|Visit\b)"
    rf"(?:[A-Z][a-z]+|\d{{1,3}}(?:st|nd|rd|th)|(?:[a-z]+-)?(?:{_ORDINAL_WORD}))){{1,3}}\Z"
)
_BEFORE_STREET = re.compile(r"([A-Za-z'.]+|\d+(?:st|nd|rd|th))$")


@_SAYS.says
def _saint_or_street(m: Match) -> str:
    """Expand "Dr. Smith", "St. John" before a name; "Main St.", "Elm Dr." after one."""
    before = m.string[max(0, m.start() - 40) : m.start()].rstrip(" ")
    match = _BEFORE_STREET.search(before)
    previous = match.group() if match else ""
    named = previous != "" and (
        previous[0].isupper() or previous[0].isdigit() or re.fullmatch(_ORDINAL_WORD, previous) is not None
    )
    named = named and previous.rstrip(".") not in LISTS["starters"] | {"Mr", "Mrs", "Prof"}
    period = m.group().endswith(".")
    if m["next"] and not (named and not before.endswith(".") and not period):
        following = re.match(r" ([A-Z][a-z']*)", m.string[m.end() : m.end() + 40])
        # A house number, or the name of a known street, stands before: "123 Main St. Springfield".
        street = _HOUSE_NUMBER.search(before) or (m["word"] == "St" and before.rpartition(" ")[2] in LISTS["streets"])
        street = street or (following and following.group(1) in LISTS["starters"] | LISTS["after_street"])
        if not (named and street):
            return TITLES[m["word"]]
    if not period and not named:
        return m.group()
    word = ("Street" if m["word"] == "St" else "Drive") if named else TITLES[m["word"]]
    return word + _stop(m)


def _capital_at_start(m: Match, spoken: str) -> str:
    return spoken[0].upper() + spoken[1:] if m.start() == 0 and m.group()[0].isupper() else spoken


@_SAYS.says
def _initialism(m: Match) -> str:
    spoken = ABBREVIATIONS.get(m.group().rstrip(".").lower())
    return (_capital_at_start(m, spoken) if spoken else _letters(m.group().replace(".", ""))) + _stop(m)


@_SAYS.says
def _abbreviation(m: Match) -> str:
    if not m["word"]:
        return MONTHS[m["month"] or m["rare"]] + _stop(m)
    if not fits_case(m["word"]):
        return m.group()
    return _capital_at_start(m, ABBREVIATIONS[m["word"].lower()]) + _stop(m)


@_SAYS.says
def _initial(m: Match) -> str:
    if m["goes_on"]:
        return m["goes_on"]
    follows = re.match(r"\s([A-Z][a-z']*)", m.string[m.end() : m.end() + 40])
    # "option B. Then we left" ends a sentence; "Samuel L. Jackson" and "J. K. Rowling" do not.
    if follows and follows.group(1) in LISTS["starters"] and m.string[max(0, m.start() - 3) : m.start()].strip():
        return m.group()
    return _letters(m["letter"]) + (" " if m["joined"] is not None else "")


@_SAYS.says
def _listed_numerals(m: Match) -> str:
    """Numerals in a row are all numbers."""
    return re.sub(r"[IVX]+", lambda m: cardinal(roman(m[0]) or 0) if roman(m[0]) else m[0], m.group())


@_SAYS.says
def _regnal(m: Match) -> str:
    number = roman(m["first"] or m["more"])
    if number is None or number > 40 or m["more"] in ("I", "X", "C", "L"):
        return m.group()
    return f"{m['before'] or m['name']}the {ordinal(number)}"


@_SAYS.says
def _chapter(m: Match) -> str:
    number = roman(m["num"])
    if m["num"] == "I" and m["cue"] not in RULES.parts["sure_cue"].split("|"):  # "the part I liked"
        number = None if re.match(r"\s+(?!(?:and|or|to) )[a-z]", m.string[m.end() : m.end() + 40]) else number
    if number is None:
        return m.group()
    return f"{m['cue']} {cardinal(number)}"


@_SAYS.says
def _numeral(m: Match) -> str:
    number = roman(m["century"] or m["name"] or m["long"])
    if number is None or number > 39:
        return m.group()
    return f"{ordinal(number)} " if m["century"] else f"the {ordinal(number)}" if m["name"] else cardinal(number)


@_SAYS.says
def _plain_year(m: Match) -> str:
    """A number that counts something is no year ("1250 grams"), but "the 1984 elections" are of one."""
    counts = m["many"] is not None and m["cue"] is None
    number = int(m["year"])
    cue = m["cue"] or ""
    return f"{cue}{' ' if cue[-1:].isalpha() else ''}{cardinal(number) if counts else year(number)}"


@_SAYS.says
def _company(m: Match) -> str:
    letters = m.group().rstrip("s").rstrip("'")
    said = " ".join({"&": "and", "A": "ay"}.get(letter, letter) for letter in letters)
    return f"{said}'s" if m.group().endswith("s") else said


_SAYS.update(
    {
        # An address of the internet has dots, a version has points.
        "dotted": lambda m: (" point " if m["num"].count(".") == 2 else " dot ").join(
            map(decimal, m["num"].split("."))
        ),
        "short year": lambda m: f"{'oh ' if 0 < int(m['year']) < 10 else ''}{cardinal(int(m['year']))}",
        "from measure to measure": lambda m: (
            f"{decimal(m['num'])} to " if m["num"] and m["unit"] == m["next"] else f"{m['num'] or ''} {m['unit']} to "
        ),
        "from day to day": lambda m: f"{_full(m['day'] or m['month'])} to {_full(m['last_day'] or m['last_month'])}",
        "numbered": lambda m: (
            f"{m['what']} {paired(m['num'])}" if m["what"] else f"{_letters(m['letters'])} {paired(m['model'])}"
        ),
        "day and month": lambda m: (
            f"{m['the'] or 'the '}{ordinal(int(m['day']))} of {_full(m['month'])}{_in_year(m['year'])}"
        ),
        "postcode": lambda m: f"{m['state']} {digits(m['zip'])}" + (f", {digits(m['four'])}" if m["four"] else ""),
        "comparison": lambda m: f"{m['left'] or ''} {_COMPARED[m['sign'] or m['between']]} ",
        "life": lambda m: "born " if m["what"] == "b" else "died ",
        "address": lambda m: address(m.group()),
        "path": lambda m: address(m.group()),
        "way": lambda m: f"{_WAYS[m['way']]} ",
        "code": lambda m: m["what"] + digits(m["num"]),
        "telephone": lambda m: ("plus " if m.group().startswith("+") else "") + _groups(m.group()),
        "per unit": lambda m: _PER[m["unit"]],
        "spaced thousands": lambda m: m.group().replace(" ", ","),
        "weekday": lambda m: WEEKDAYS[m["day"]],
        "month and year": lambda m: f"{_full(m['month'])} {year(int(m['year']))}",
        "power of ten": lambda m: f"{decimal(m['num'])} times ten {_exponent(m['sign'], m['power'])}",
        "hexadecimal": lambda m: "zero x " + " ".join(digits(c) or _letters(c) for c in m["hex"]),
        "screen": lambda m: f"{paired(m['a'])} by {paired(m['b'])}",
        "millions": lambda m: _amount(m["num"], m["scale"]),
        "times": lambda m: f"{_range(m['first'], decimal(m['num']))} times",
        "percent": lambda m: (
            f"{_minus(m['minus'])}{_range(m['first'], decimal(m['num']))} {'percent' if m['sign'] == '%' else 'per thousand'}"
        ),
        "ordinal": lambda m: ordinal(int(m["num"].replace(",", ""))),
        "number in groups": lambda m: ", ".join(digits(part) or part for part in re.split("[ -]", m.group())),
        "short form": lambda m: _SHORT[m.group()],
        "part of a street": lambda m: _IN_STREET[m["word"]],
        "before a number": lambda m: f"{BEFORE_NUMBER[m['word'].lower()]} ",
        "title": lambda m: TITLES[m["title"] or m["bare"]],
        "emphasis": lambda m: m.group().lower() if m["word"] or m.group() in LISTS["emphatic"] else m.group(),
        "letters and digits": lambda m: " ay " if m["a"] else " ",
        "power": lambda m: f" {_exponent(m['sign'], m['power'])} ",
        "range": lambda m: f"{decimal(m['first'] or m['ratio'])} to ",
        "sign": lambda m: " plus " if m["plus"] else " minus " if m["between"] or m["minus"] else " ",
        "language": lambda m: f"{m['plus']} plus plus" if m["plus"] else f"{m['sharp']} sharp",
        "hash": lambda m: " number " if m["number"] is not None else " hashtag ",
        "operator": lambda m: f" {'times' if m['times'] else _COMPARED[m['sign'] or m['arrow'] or m['than']]} ",
        "sign by name": lambda m: f" {_SIGNS[m.group()]} ",
        "number": lambda m: f" {decimal(m['num'])}{' plus' if m['plus'] else ''} ",
    }
)


LAYOUT: Final = Rules("layout", {}, {})
"""What is laid out rather than said: markup, paragraphs, lists; for both languages."""
RULES: Final = Rules(
    "english/rules",
    _SAYS,
    {
        "abbreviations": any_of(ABBREVIATIONS),
        "before_number": any_of(BEFORE_NUMBER),
        "codes": any_of(code for code in _CURRENCIES if len(code) == 3),
        "days": any_of({*WEEKDAYS, *WEEKDAYS.values()}),
        "domains": any_of(LISTS["domains"]),
        "initialism": INITIALISM.pattern,
        "label": "|".join(f"[{word[0].upper()}{word[0]}]{word[1:]}" for word in sorted(LISTS["labels"])),
        "month": f"(?:{any_of({*MONTHS, *_NAMES})})",
        "months": any_of({*MONTHS, *_NAMES}),
        "of_decade": "|".join(f"(?<=\\b{cue} )" for cue in "the The his her their my our your early late".split()),
        "per": any_of(_PER),
        # Or any word in the singular: 12 dB/octave, but km/miles are two.
        "per_word": rf"{any_of(_PER)}|(?![a-z]*s(?![a-z]))[a-z]{{3,20}}",
        "regnal": any_of(LISTS["regnal"]),
        "short": any_of(_SHORT),
        "signs": re.escape("".join(_SIGNS)),
        "streets": any_of(_IN_STREET),
        "titles": any_of(title for title in TITLES if title not in ("St", "Dr")),
        "unit": any_of(_UNITS),
        "weekdays": any_of(WEEKDAYS),
    },
)
"""After `LAYOUT`."""
_CAPITALS: Final = re.compile(RULES.parts["capitals"])
_CAPITALISED: Final = {
    word.upper()
    for name in (
        *(*MONTHS, *_NAMES, *WEEKDAYS, *WEEKDAYS.values(), *TITLES, *LISTS["regnal"]),
        *"|".join(RULES.parts[part] for part in ("sure_cue", "cue", "king")).split("|"),
    )
    for word in name.split(" ")
} - {"MAY", "MON", "SUN", "SAT", "WED", "MARCH", "MARK"}
"""Words of a shouted text that keep their first capital, since the rules for dates, titles and numerals ask for it."""
ADDRESS: Final = RULES["address"].pattern
"""An address of mail or of the web."""


def english(text: str) -> str:
    """Clean `text` as it is said; what would leave nothing (markup, a bare address scheme) is taken as written."""
    return tidy(RULES.apply(LAYOUT.apply(text))) or english_plain(text)


def english_plain(text: str) -> str:
    """Clean `text` as it stands, digits one by one, for ``normalize=false``."""
    text = re.sub(r"(?<=\d)[,:–-](?=\d)", " ", re.sub(r"(?<=\d)\.(?=\d)", " point ", text))
    return tidy(re.sub(r"\d+", lambda m: f" {digits(m.group())} ", text))
