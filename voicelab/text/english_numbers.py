"""Numbers as American English words, without "and" inside a number, and with hyphens as in twenty-one.

The module also verbalizes foreign figures, ranges, codes, and the notation of mathematics, chemistry, music and chess. It
does not use the package inflect, whose import takes 1.3 s, longer than the first audio, nor num2words, which is LGPL.
"""

from __future__ import annotations

import re
from typing import Final

from voicelab.text.clean import FREQUENT, Match, Verbalizer, named, pairs, rows
from voicelab.text.segments import LISTS

_ONES: Final = tuple(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen".split()
)
_TENS: Final = tuple("zero ten twenty thirty forty fifty sixty seventy eighty ninety".split())
_SCALES: Final = ("", "thousand", "million", "billion", "trillion")
_IRREGULAR: Final = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = dict(zip("IVXLCDM", (1, 5, 10, 50, 100, 500, 1000), strict=True))

MAX_CARDINAL = 10**15
"""Limit of cardinals: this number (a quadrillion) and larger ones are read digit by digit."""


def digits(text: str) -> str:
    """Spell the decimal digits of `text`, without other characters: "40-7" is "four zero seven"."""
    return " ".join(_ONES[int(c)] for c in text if c.isdecimal())


def _below_thousand(n: int) -> list[str]:
    words = [_ONES[n // 100], "hundred"] if n >= 100 else []
    n %= 100
    if n >= 20:
        words.append(_TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else ""))
    elif n:
        words.append(_ONES[n])
    return words


def cardinal(n: int) -> str:
    """Verbalize an integer; one of at least `MAX_CARDINAL` is read digit by digit."""
    if n < 0:
        return f"minus {cardinal(-n)}"
    if n == 0:
        return "zero"
    if n >= MAX_CARDINAL:
        return digits(str(n))
    words: list[str] = []
    for power in range(len(_SCALES) - 1, -1, -1):
        group = n // 1000**power % 1000
        if group:
            words += _below_thousand(group)
            if power:
                words.append(_SCALES[power])
    return " ".join(words)


def ordinal(n: int) -> str:
    """Verbalize an ordinal: 22 is "twenty-second"."""
    head, space, tail = cardinal(n).rpartition(" ")
    tens, hyphen, unit = tail.rpartition("-")
    unit = _IRREGULAR.get(unit) or (f"{unit[:-1]}ieth" if unit.endswith("y") else f"{unit}th")
    return f"{head}{space}{tens}{hyphen}{unit}"


def ordinal_plural(n: int) -> str:
    """Verbalize a plural denominator: 2 "halves", 4 "quarters", 8 "eighths"."""
    return {2: "halves", 4: "quarters"}.get(n) or f"{ordinal(n)}s"


def decimal(text: str) -> str:
    """Verbalize a number that matches ``[-+]?[0-9,]*(.[0-9]+)?``, with decimals digit by digit.

    Numbers with a leading zero are identifiers: "007" is read digit by digit.
    """
    sign = {"-": "minus ", "+": "plus "}.get(text[:1], "")
    integer, point, fraction = text.lstrip("+-").replace(",", "").partition(".")
    # int() rejects strings of thousands of digits.
    is_code = (len(integer) > 1 and integer.startswith("0")) or len(integer) > 15
    words = "" if not integer else digits(integer) if is_code else cardinal(int(integer))
    if point and fraction:
        words = f"{words} point {digits(fraction)}".strip()
    return sign + words


def year(n: int) -> str:
    """Verbalize a year: 1066 "ten sixty-six", 1905 "nineteen oh five", 2005 "two thousand five"."""
    if not 1010 <= n <= 2099 or 2000 <= n <= 2009:
        return cardinal(n)
    return f"{cardinal(n // 100)} {_last_two(n % 100)}"


def _last_two(n: int) -> str:
    return "hundred" if n == 0 else f"oh {cardinal(n)}" if n < 10 else cardinal(n)


def paired(number: str) -> str:
    """Verbalize a number in pairs of digits (rooms, roads, planes): 747 is seven forty-seven, 1204 twelve oh four."""
    head, tail = number[:-2], int(number[-2:])
    if head.startswith("0") or len(number) > 4 or (tail == 0 and head.endswith("0")):
        return digits(number) if number.startswith("0") else cardinal(int(number))
    return f"{cardinal(int(head))} {_last_two(tail)}"


def counted(number: str, name: str) -> str:
    """Verbalize a number with its noun: "1", "hour" is one hour, "2.5", "hour" two point five hours."""
    return f"{decimal(number)} {name}{'' if number == '1' else 's'}"


def plural(words: str) -> str:
    """Form the plural of a number in words: "tens", "sixes", "seven forties"."""
    if words.endswith("y"):
        return f"{words[:-1]}ies"
    return f"{words}es" if words.endswith("x") else f"{words}s"


def roman(text: str) -> int | None:
    """Parse a well-formed Roman numeral below 4,000: "XIV" is 14, "IIX" is None."""
    if not text or not _ROMAN.fullmatch(text):
        return None
    values = [_ROMAN_VALUES[letter] for letter in text]
    return sum(-value if value < max(values[i:]) else value for i, value in enumerate(values))


UNITS: Final = {symbol: (name, plural_form) for symbol, name, plural_form, _ in rows("english/units") if name != "-"}
"""Symbols of units → singular, plural."""
AFTER_DEGREES: Final = {
    "C": "Celsius", "F": "Fahrenheit", "K": "Kelvin", "N": "north", "S": "south", "E": "east", "W": "west",
}  # fmt: skip
RAISED: Final = {"2": "square ", "3": "cubic ", None: ""}
BOOKS: Final = pairs("english/books")
"""Abbreviations and names of books with chapters and verses."""


def spelled(code: str) -> str:
    """Spell the letters and digits of `code`; the letter A becomes "ay"."""
    return " ".join(digits(c) if c.isdigit() else "ay" if c in "Aa" else c.upper() for c in code if c.isalnum())


def grouped(figures: str) -> str:
    """Read groups of digits one by one, with a pause between them."""
    return ", ".join(digits(group) for group in re.findall(r"\d+", figures))


def _verse(m: Match) -> str:
    chapter, verse = int(m["chapter"]), int(m["verse"])
    number = {"1": "First ", "2": "Second ", "3": "Third ", None: ""}[m["number"]]
    between = " " if chapter < 100 and 9 < verse < 100 and not m["last"] else " verse "
    of_chapter = f"{cardinal(int(m['next']))} verse " if m["next"] else ""
    last = f" to {of_chapter}{cardinal(int(m['last']))}" if m["last"] else ""
    part = " and following" if (m["part"] or "").startswith("f") else f" {m['part']}" if m["part"] else ""
    return f"{number}{BOOKS.get(m['book'], m['book'])} {cardinal(chapter)}{between}{cardinal(verse)}{last}{part}"


def _fahrenheit(m: Match) -> str:
    before = re.search(r"([A-Za-z]+)[.:]? ?\Z", m.string[max(0, m.start() - 16) : m.start()])
    if before and before[1].lower() in LISTS["not_degrees"]:
        return m.group()
    start = f"{decimal(m['first'])} to " if m["first"] else ""
    return f"{'minus ' if m['minus'] else ''}{start}{decimal(m['num'])} degrees {AFTER_DEGREES[m['scale']]}"


def _identifier(m: Match) -> str:
    if m["ip"]:
        return " ".join(" colon " if group == ":" else spelled(group) for group in re.findall(r"\w+|:", m["ip"]))
    return ", ".join(spelled(group) for group in re.split(r"[-:./ ]", m.group()) if group)


ELEMENTS: Final = pairs("english/elements")
_OPERATOR: Final = re.compile(
    r"[+*×÷=^√±−]|\) ?/|/ ?\(|(?<![\w/])(?:a/[bd-z]|[b-mo-z]/a)(?![\w/])|(?<![A-Za-z])[b-hj-z](?![A-Za-z]) [-–]|"
    r"[-–] ?[b-hj-z](?![A-Za-z])|\(-"
)
_OPERATOR_WORDS: Final = tuple((re.compile(pattern), words) for pattern, words in rows("english/formulas"))
_FUNCTIONS: Final = {"sin": "sine", "cos": "cosine", "tan": "tangent", "ln": "natural log", "sqrt": "square root of"}
_NOT_VARIABLES: Final = FREQUENT["English"] - {"a"} | {"ay", "pi", "mu", "nu", "xi"}
_VARIABLES: Final = frozenset("abcnpqrtuvwxyz")
"""Letters that are variables after a number; others are units: 2x, but 2m."""


def _sum(m: Match) -> str:
    """Read the operators of an expression. Text without an operator, such as a date with slashes or dashes, is unchanged."""
    text = m.group()
    if not m["asked"] and (not _OPERATOR.search(text) or re.fullmatch("[A-Za-z](?:-[A-Za-z])+", text)):  # g-d, a-b
        return text
    text = re.sub(r"(?<=\d)-(?=\d)", " - ", text) if "=" in text else text
    for pattern, words in _OPERATOR_WORDS:
        text = pattern.sub(words, text)
    text = text if m.string.startswith(" over", m.end()) else text.removesuffix(")")
    return re.sub(r"(?<![A-Za-z^])(\d*)([A-Za-z]{1,4})(?![\w'])", _factor, text)


def _factor(m: Match) -> str:
    """Spell the variables of a product: 4ac is four ay c."""
    number, word = m.groups()
    if word in _FUNCTIONS:
        return f"{number} {_FUNCTIONS[word]}"
    if len(word) > 2 or word in _NOT_VARIABLES or (number and not _VARIABLES.issuperset(word)):
        return m.group()
    return f"{number} {' '.join('ay' if letter in 'aA' else letter for letter in word)}".strip()


def _position(m: Match) -> str:
    """Verbalize degrees, minutes and seconds of an angle, with the direction of a latitude or longitude."""
    parts = [(m["degrees"], "degree"), (m["minutes"], "minute"), (m["seconds"], "second")]
    words = " ".join(counted(number, name) for number, name in parts if number)
    return f"{words} {AFTER_DEGREES.get(m['way'], '')}".rstrip()


def _symbols(formula: str) -> str:
    """Spell the symbols of a chemical formula: CaCO3 is C ay C O three."""
    pieces = re.findall(r"[A-Za-z]|\d+", formula)
    return " ".join(decimal(piece) if piece.isdigit() else spelled(piece) for piece in pieces)


def _chemical(m: Match) -> str:
    charge = m["charge"] or m["plus"] or ""
    number = f" {cardinal(int(charge[:-1]))}" if charge[:-1] else ""
    return _symbols(m["formula"]) + (f"{number} {'plus' if charge[-1] == '+' else 'minus'}" if charge else "")


def _isotope(m: Match) -> str:
    name = ELEMENTS.get(m["symbol"] or m["before"] or m["short"], m["name"])
    mass = m["mass"] or m["number"] or m["last"] or m["after"]
    return f"{name} {paired(mass) if len(mass) > 2 else cardinal(int(mass))}"


_PIECES: Final = {"K": "king", "Q": "queen", "R": "rook", "B": "bishop", "N": "knight"}
_MOVE: Final = re.compile(
    r"(?P<number>\d{1,3})\.{1,3} ?|(?P<castles>O-O(?P<long>-O)?)|(?P<piece>[KQRBN])?(?P<origin>[a-h]?[1-8]?)"
    r"(?P<takes>x?)(?P<square>[a-h][1-8])(?:=(?P<new>[QRBN]))?(?P<check>[+#]?)"
)


def _move(m: Match) -> str:
    pause = ", " if m.start() and m.string[m.start() - 1] == " " else ""
    if m["number"]:
        return f"{pause}{cardinal(int(m['number']))}, "
    if m["castles"]:
        return f"{pause}castles {'queenside' if m['long'] else 'kingside'}"
    takes, promotes = "takes" if m["takes"] else "", f"promotes to {_PIECES[m['new']]}" if m["new"] else ""
    check = {"+": "check", "#": "checkmate", "": ""}[m["check"]]
    words = (_PIECES.get(m["piece"], ""), spelled(m["origin"]), takes, spelled(m["square"]), promotes, check)
    return pause + " ".join(filter(None, words))


def _function(m: Match) -> str:
    """Verbalize the application of a function: Var(X) is Var of X."""
    name = "ay" if m["name"] == "A" else _FUNCTIONS.get(m["name"], m["name"]).removesuffix(" of")
    return f"{name} of {re.sub(r'(?<![A-Za-z])[Aa](?![A-Za-z])', 'ay', m['of'])}"


def _letter_range(m: Match) -> str:
    """Verbalize a range of letters, sizes or cells, such as A1-C3, but not C3-A1."""
    if m["cue"]:
        return f"{m['cue']}{'ay' if m['start'] in 'Aa' else m['start']} to "
    if m["cell"] and m["row"] > m["last"]:
        return m.group()
    return re.sub("[Aa]", " ay", m["first"] or m["cell"] or m["size"]) + " to "


def _roman_page(m: Match) -> str:
    """Verbalize lowercase Roman numerals: pages iv-ix, (iii)."""
    first, to = roman((m["page"] or m["first"] or m["item"]).upper()), roman((m["to"] or "I").upper())
    if first is None or to is None:
        return m.group()
    cue = "" if m["page"] else "(" if m["item"] else f"{ {'p.': 'page', 'pp.': 'pages'}.get(m['cue'], m['cue']) } "
    return f"{cue}{cardinal(first)}{f' to {cardinal(to)}' if m['to'] else ''}{')' if m['item'] else ''}"


def _listed_numerals(m: Match) -> str:
    """Verbalize each Roman numeral of a list or an ascending range; before "centuries", a range is read as ordinals."""
    first, last = (roman(m[name] or "") for name in ("first", "last"))
    if m["first"]:
        if re.match(r" (?:compound|semiconductor|material)", m.string[m.end() :]):
            return f"{cardinal(first or 0)} {cardinal(last or 0)}"
        read = ordinal if re.match(r" [Cc]entur", m.string[m.end() : m.end() + 8]) else cardinal
        return f"{read(first)} to {read(last)}" if first and last and first < last else m.group()
    return re.sub(r"[IVX]+", lambda m: cardinal(roman(m[0]) or 0) if roman(m[0]) else m[0], m.group())


def _roman_item(m: Match) -> str:
    """Verbalize the number of a section ("II. Methods"); a single letter is unchanged unless there is a section II."""
    around = m.string[max(0, m.start() - 300) : m.end() + 300]
    is_item = len(m["number"]) > 1 or re.search("[.,;:?!] II[.] ", around)
    number = roman(m["number"])
    return f"{cardinal(number)}, " if is_item and number else m.group()


def _regnal(m: Match) -> str:
    number = roman(m["first"] or m["more"])
    if number is None or number > 40 or m["more"] in ("I", "X", "C", "L"):
        return m.group()
    return f"{m['before'] or m['name']}the {ordinal(number)}"


def _numeral(m: Match) -> str:
    number = roman(m["century"] or m["name"] or m["long"])
    if number is None or 39 < number < 1000:
        return m.group()
    if number >= 1000:
        return year(number)
    return f"{ordinal(number)} " if m["century"] else f"the {ordinal(number)}" if m["name"] else cardinal(number)


def _key(m: Match) -> str:
    """Verbalize a note or a chord: Bb7 is B-flat seven."""
    sign = m["word"] or ("sharp" if m["sign"] else "flat" if m["b"] else "")
    kind = {"maj": "major", "M": "major", "min": "minor", "m": "minor", "dim": "diminished", "aug": "augmented"}
    kind |= {"sus": "suspended", "add": "add"}
    words = ("ay" if m["note"] == "A" else m["note"], sign, kind.get(m["chord"] or "", ""), m["number"] or "")
    return " ".join(filter(None, words))


FIGURES: Final[dict[str, Verbalizer]] = (
    named(globals())
    | {
        "grouping": lambda m: (
            f"{int(re.sub('[^0-9]', '', m['integer'])):,}" + (f".{m['fraction'][1:]}" if m["fraction"] else "")
        ),
        "chess": lambda m: _MOVE.sub(_move, m.group()),  # Qxe5+ is queen takes E five check
        "decimal comma": lambda m: f"{m['sign'] or ''}{m['integer']}.{m['fraction']}",
        "beat": lambda m: f"{cardinal(int(m['top']))} {cardinal(int(m['bottom']))}",
        "digits after letters": lambda m: f"{m['letters'].rstrip(' #')} {digits(m['num'])}",
        "probability": lambda m: (
            f" {m['what']} of {spelled(m['of'])}{' given ' if m['given'] else ''}{spelled(m['given'] or '')} "
            + ("over " if m["over"] else "")
        ),
        "numbered groups": lambda m: f"number {grouped(m['groups'])}",
        "currency pair": lambda m: f"{spelled(m['first'])} {spelled(m['second'])}",
        "quarter": lambda m: (
            f"{ordinal(int(m['number']))} {'quarter' if m['part'] == 'Q' else 'half'} of {year(int(m['year']))}"
        ),
        "mixed amount": lambda m: f"{m['whole']}.{ {'1/2': 5, '1/4': 25, '3/4': 75}[m['part']] }",
        "scaled range": lambda m: f"{m['start']} to {m['sign'] if m['same'] is not None else ''}",
        "figure range": lambda m: f"'{m['short']}s to '" if m["short"] else f"{m['first'] or ''} to ",
        "standard": lambda m: f"{m['name'].replace('-', ' part ')}, {year(int(m['year']))}",
        "ratio": lambda m: f"{cardinal(int(m['one']))} to ",
        "proportion": lambda m: " to ".join(cardinal(int(n)) for n in m.group().split(":")),
        "foreign postcode": lambda m: f"{m['city'] or ''}{', '.join(map(spelled, (m['pin'] or m.group()).split()))}",
        "vanity number": lambda m: f"{'plus ' * m.group().startswith('+')}{grouped(m['digits'])}, ",
        "unit of density": lambda m: f"{UNITS[m['unit']][1]} per {RAISED[m['power']]}{UNITS[m['per']][0]}",
        "port": lambda m: f"{m['address']} {'colon' if m['mark'] == ':' else 'slash'} ",
        "color": lambda m: f"hash {spelled(m['color'])}",
        "foreign telephone": lambda m: ("plus " if m.group().startswith("+") else "") + grouped(m.group()),
        "plain telephone": lambda m: grouped(f"{m.group()[:-7]} {m.group()[-7:-4]} {m.group()[-4:]}"),
    }
)
"""Verbalizers of the first rules of ``tables/english/rules.tsv``: American grouping and decimals, ranges, spelled codes."""
