"""Figures of other countries, ranges and codes: verbalizers of the first rules of ``tables/english/rules.tsv``.

Grouping and decimal marks become American ones, a dash between amounts becomes "to", and identifiers are spelled.
"""

from __future__ import annotations

import re
from typing import Final

from voicelab.text.clean import Match, Verbalizers, pairs
from voicelab.text.english_numbers import cardinal, decimal, digits, year

FIGURES: Final = Verbalizers()
BOOKS: Final = pairs("english/books")
"""Abbreviations and names of books with chapters and verses."""


def spelled(code: str) -> str:
    """Spell the letters and digits of `code`, "A" as "ay"."""
    return " ".join(digits(c) if c.isdigit() else "ay" if c in "Aa" else c.upper() for c in code if c.isalnum())


def grouped(figures: str) -> str:
    """Read groups of digits one by one, with a pause between them."""
    return ", ".join(digits(group) for group in re.findall(r"\d+", figures))


@FIGURES.register
def _grouping(m: Match) -> str:
    """Write the digits with American grouping, and a decimal comma as a point."""
    integer = int(re.sub(r"\D", "", m["integer"]))
    mark = m["fraction"]
    return f"{integer:,}" + (f".{mark[1:]}" if mark else "")


@FIGURES.register
def _decimal_comma(m: Match) -> str:
    return f"{m['sign'] or ''}{m['integer']}.{m['fraction']}"


@FIGURES.register
def _verse(m: Match) -> str:
    chapter, verse = int(m["chapter"]), int(m["verse"])
    number = {"1": "First ", "2": "Second ", "3": "Third ", None: ""}[m["number"]]
    between = " " if chapter < 100 and verse > 9 and not m["last"] else " verse "
    last = f" to {cardinal(int(m['last']))}" if m["last"] else ""
    return f"{number}{BOOKS.get(m['book'], m['book'])} {cardinal(chapter)}{between}{cardinal(verse)}{last}"


@FIGURES.register
def _fahrenheit(m: Match) -> str:
    scale = "Fahrenheit" if m["scale"] == "F" else "Celsius"
    start = f"{decimal(m['first'])} to " if m["first"] else ""
    return f"{'minus ' if m['minus'] else ''}{start}{decimal(m['num'])} degrees {scale}"


@FIGURES.register
def _identifier(m: Match) -> str:
    if m["ip"]:
        return " ".join(" colon " if group == ":" else spelled(group) for group in re.findall(r"\w+|:", m["ip"]))
    return ", ".join(spelled(group) for group in re.split(r"[-: ]", m.group()) if group)


FIGURES.update(
    {
        "scaled range": lambda m: f"{m['start']} to {m['sign'] if m['same'] is not None else ''}",
        "figure range": lambda m: f"'{m['short']}s to '" if m["short"] else f"{m['first'] or ''} to ",
        "standard": lambda m: f"{m['name'].replace('-', ' part ')}, {year(int(m['year']))}",
        "ratio": lambda m: f"{cardinal(int(m['one']))} to ",
        "port": lambda m: f"{m['address']} {'colon' if m['mark'] == ':' else 'slash'} ",
        "color": lambda m: f"hash {spelled(m['color'])}",
        "foreign telephone": lambda m: ("plus " if m.group().startswith("+") else "") + grouped(m.group()),
        "plain telephone": lambda m: grouped(f"{m.group()[:-7]} {m.group()[-7:-4]} {m.group()[-4:]}"),
    }
)
