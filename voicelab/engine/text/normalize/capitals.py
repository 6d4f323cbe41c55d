"""Capitals: those that shout become ordinary words, those that are letters are named as letters."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.abbreviations import MONTHS, TITLES
from voicelab.engine.text.normalize.dates import WEEKDAYS
from voicelab.engine.text.normalize.frequent import ENGLISH
from voicelab.engine.text.normalize.numbers import roman
from voicelab.engine.text.normalize.values import Rules
from voicelab.engine.text.normalize.written import CUES, REGNAL

__all__ = ["EMPHASIS", "LETTER_A", "SHOUTED"]

_EMPHATIC: Final = frozenset(
    (
        "NOT YOU ALL THE AND BUT YES NOW OUT DID GET LET SHE HIS HER HOW WHY NEW ONE TWO TOO WAS HAS HAD FOR OUR OFF OWN "
        "ANY BIG BAD NO MY WE HE BE DO SO HEY STOP SALE FREE THIS THAT WITH WHAT VERY NEVER EVER ONLY JUST MUST WILL HAVE "
        "FROM MORE MOST PLEASE HELP ALWAYS IS IF AS AT BY OF ON TO UP GO CAN ARE GOT HIM ITS MAY NOR SAY SEE TRY USE VIA "
        "WAY YET OLD RED HOT END TIP TOP LOW FUN SAD ODD RAW DRY WET FEW FAR LOT DAY BOY MAN MEN GUY KID KIDS MOM DAD "
        "GOD JOB KEY LAW LIE MAP OIL PAY RUN SIT SIX TEN WAR WIN WON WOW YAY UGH HUH AHA BUY BUT EAT ASK ATE BED BOX BUS "
        "CAR CAT CRY CUT DIE DOG EGG EYE FIX FLY GUN HIT JOY LEG PUT SAW SEA SEX SKY SON SUN TOY"
    ).split()
)
"""Words that stand in capitals for emphasis and are no acronyms; IT, US or WHO may be either and stay."""
_CAPITALS = re.compile(r"(?<![\w'.&-])[A-Z]{2,}(?:'[A-Z]+)?(?![\w'&]|\.[A-Z]|-\d)")
_SHOUTED = re.compile(r"\A(?=(?:[^A-Za-z]*[A-Z']+){2})[^a-z]*\Z")
_AMONG_WORDS = re.compile(r"(?<=[a-z] )(?<!\b[Tt]he )(?<!\ban )(?<!\b[Ee]ach )(?:IN|OR|ME)(?= [a-z])|(?<=\bI )AM\b")
"""Also Indiana, Oregon or Maine, an operating room or a medical examiner: not between plain words."""
_ACRONYMS: Final = frozenset(
    (
        "UK EU UN USA FBI CIA IBM AI UCLA CEO CFO CTO BBC NYC LA DC UFO IQ EV UAE IMF AOL IRS ICU ER API CPU GPU URL HIV "
        "AIDS NASA ID OK EST CEST AC IP IPO IPA UI UX VIP USB ATM ASAP FAQ FAA FDA EPA IOS USD EUR AUD CAD"
    ).split()
)
"""Kept in capitals where a whole text is."""
_NAMES: Final = frozenset(
    f"{'|'.join((*MONTHS, *MONTHS.values(), *WEEKDAYS, *WEEKDAYS.values(), *TITLES))}|{CUES}|{REGNAL}".replace(" ", "|")
    .upper()
    .split("|")
) - {"MAY", "MON", "SUN", "SAT", "WED", "MARCH", "MARK"}
"""Words of a shouted text that keep their first capital, since the rules for dates, titles and numerals ask for it."""

_LABEL: Final = (
    "[Gg]roup|[Tt]eam|[Pp]lan|[Oo]ption|[Vv]itamin|[Hh]epatitis|[Tt]ype|[Gg]rade|[Cc]lass|[Ss]ection|[Pp]art|[Ee]xhibit|"
    "[Aa]ppendix|[Ff]igure|[Tt]able|[Pp]oint|[Ll]evel|[Ss]eries|[Cc]ategory|[Cc]olumn|[Bb]lock|[Bb]uilding|[Gg]ate|"
    "[Tt]erminal|[Uu]nit|[Aa]partment|[Zz]one|[Pp]hase|[Ss]chedule|[Ff]orm|[Mm]odel|[Vv]ersion|[Vv]ariant|[Ss]ample|"
    "[Cc]ondition|[Pp]layer|[Ss]peaker|[Pp]atient|[Ss]cenario|[Ff]actor|[Ii]nfluenza|[Pp]latform|[Ll]etter|[Cc]ohort|[Vv]oice|"
    "[Ss]ystem|[Ss]ide"
)
_TOGETHER: Final = "and|or|to|vs|versus|through|plus|minus"
_LETTER_A = re.compile(
    rf"(?<![\w'.&-])A(?=/[A-Z](?!\w)|-(?!ha\b)[A-Za-z][a-z]|[+-](?!\w)| (?:{_TOGETHER}) [B-Z](?![\w'])|, [B-HJ-Z](?![\w'.]))|"
    rf"(?<=\b[B-Z]/)A(?!\w)|(?P<plain>(?<![\w'])[a-z]+ )A(?= [a-z\d]|[,;:!?)])|(?P<label>\b(?:{_LABEL}) )A(?![\w'./]|-\w)"
)


def _shouted(match: re.Match[str]) -> str:
    """A text all in capitals with an ordinary word in it is shouted, not a row of acronyms."""
    words = _CAPITALS.findall(match.group())
    if not any(
        word in _EMPHATIC or word in ("IN", "OR") or (len(word) > 3 and word.lower() in ENGLISH) for word in words
    ):
        return match.group()
    if all(word in _ACRONYMS or word in ("AND", "OR", "US", "IT") for word in words):
        return match.group()
    text = _CAPITALS.sub(_quieter, match.group())
    return re.sub(rf"(?i:(?P<label>\b(?:{_LABEL}) )?)\bA(?= )", lambda m: f"{m['label']}A" if m["label"] else "a", text)


def _quieter(match: re.Match[str]) -> str:
    word = match.group()
    if word in _ACRONYMS or (not re.search("[AEIOUY]", word) and word not in _NAMES) or roman(word):
        return word
    if word in _NAMES or (word == "MAY" and re.match(r" \d", match.string[match.end() : match.end() + 2])):
        return word.capitalize()
    return word.lower()


SHOUTED: Final[Rules] = ((_SHOUTED, _shouted),)
"""Before any number is written out in lower case, since a text is shouted only as a whole."""

EMPHASIS: Final[Rules] = (
    (_CAPITALS, lambda m: m.group().lower() if m.group() in _EMPHATIC else m.group()),
    (_AMONG_WORDS, lambda m: m.group().lower()),
)
"""Capitals for emphasis become ordinary words, since the next stage spells short words in capitals."""

LETTER_A: Final[Rules] = ((_LETTER_A, lambda m: f"{m['label'] or m['plain'] or ''}ay"),)
"""The letter A written "ay", where it is not the article: a grade, a group, a vitamin, one of two."""
