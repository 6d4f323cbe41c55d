"""Numbers that name rather than count: postcodes, codes, telephones with a leading zero, models, seasons."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.normalize.numbers import cardinal, digits, paired, plural, year
from voicelab.engine.text.normalize.values import Rules

__all__ = ["CODES", "PLURALS"]

_STATES: Final = (
    "AL|AK|AZ|AR|CA|CO|CT|DE|DC|FL|GA|ID|IL|IA|KS|KY|LA|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY|NC|ND|OH|PA|PR|RI|SC|SD|TN|TX|"
    "UT|VT|VA|WA|WV|WI|WY"
)
_WORD_STATES: Final = "HI|IN|ME|OK|OR"
"""Also words: states only after a comma."""
_ZIP = re.compile(
    rf"(?P<state>(?:(?<=[A-Za-z.], )(?:{_WORD_STATES})|(?:(?<=[A-Za-z.], )|(?<=[a-z] ))(?:{_STATES})),?) "
    r"(?P<zip>\d{5})(?:-(?P<four>\d{4}))?(?![\w-]|[.,]\d)"
)
_NOT_COUNTED: Final = (
    r"(?! (?!was|is|has|as|this|its|expires|unless|always)[a-z]+s\b| (?:percent|people|million|thousand|billion))"
)
_CODE = re.compile(
    r"\b(?P<what>(?:(?:[Cc]ode|CODE|PINs?|ZIP|[Zz]ip|OTP|[Pp]asscode|[Pp]asskey|[Pp]assword|[Aa]ccount|[Ee]xtension|[Ee]xt)\.?"
    r"(?:,? (?:number|no\.|code))?(?: is|:| is:|(?<=number)|(?<=no\.))|"
    r"(?:[Aa]rea|[Zz]ip|ZIP|[Pp]ostal|[Dd]iall?ing|[Vv]erification|[Ss]ecurity|[Aa]ccess|PIN) code) #?)"
    rf"(?P<num>\d{{3,12}})(?![\w/:%$£€-]|[.,]\d){_NOT_COUNTED}"
)
_ZERO_PHONE = re.compile(
    r"(?<![\w.,/:$£€+-])(?P<groups>\(?0\d{2,4}\)?(?:[ -]\d{3,4}){2}|\(?0\d{2,4}\)?[ -]\d{6}|0\d(?: \d\d){4})"
    r"(?![\w/:-]|[.,]\d)"
)
_SEASON = re.compile(r"(?<![\w/.,-])(?P<first>1[89]\d\d|20\d\d)/(?P<last>(?:\d\d)?\d\d)(?![\w/]|[.,]\d)")
_ERA_PREFIX = re.compile(
    r"\b(?P<prefix>[Pp]re|[Pp]ost|[Mm]id|[Ll]ate|[Ee]arly)-(?P<year>1[1-9]\d\d|20\d\d)(?![\w/-]|[.,]\d)"
)

_MODELS = re.compile(r"(?<![\w-])(?P<letters>[A-Z]{1,3})-?(?P<num>\d{1,4})s(?![\w'])")
_SECONDS: Final = (
    "clip|video|segment|window|sample|recording|interval|delay|timeout|chunk|burst|break|ad|intro|timer|limit|pause"
)
_NUMERALS: Final = "[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive|[Ss]ix|[Ss]even|[Ee]ight|[Nn]ine|[Tt]en|[Tt]welve"
_COUNTED = re.compile(
    rf"(?P<before>\b(?:{_NUMERALS}|[Ss]everal|[Mm]any|[Tt]hese|[Tt]hose|[Tt]op|[Pp]erfect|[Ss]traight) )"
    rf"(?P<num>[1-9]\d{{1,3}})s(?![\w'])(?! (?:{_SECONDS})s?\b)"
)


def _code(match: re.Match[str]) -> str:
    return f"{match['what']}{digits(match['num'])}"


def _season(match: re.Match[str]) -> str:
    """Two years in a row: 2023/24."""
    first, last = int(match["first"]), int(match["last"])
    if last % 100 != (first + 1) % 100 or (last > 99 and last != first + 1):
        return match.group()
    return f"{year(first)} to {year(first + 1) if last > 99 or last < 10 else cardinal(last)}"


def _models(match: re.Match[str]) -> str:
    letters = " ".join(match["letters"]).replace("A", "ay") if len(match["letters"]) < 3 else match["letters"]
    number = match["num"]
    return f"{letters} {plural(paired(number) if len(number) == 3 else cardinal(int(number)))}"


def _counted(match: re.Match[str]) -> str:
    number = match["num"]
    return f"{match['before']}{plural(paired(number) if len(number) > 2 else cardinal(int(number)))}"


CODES: Final[Rules] = (
    (_ZIP, lambda m: f"{m['state']} {digits(m['zip'])}" + (f", {digits(m['four'])}" if m["four"] else "")),
    (_CODE, _code),
    (_ZERO_PHONE, lambda m: ", ".join(digits(group) for group in re.findall(r"\d+", m["groups"]))),
    (_SEASON, _season),
    (_ERA_PREFIX, lambda m: f"{m['prefix']}-{year(int(m['year']))}"),
)
"""Before amounts and dates: digits one by one, and years that are written together."""

PLURALS: Final[Rules] = ((_MODELS, _models), (_COUNTED, _counted))
"""Several of a model or of a number, before the s is taken for seconds."""
