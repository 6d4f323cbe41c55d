"""Conversion of Mandarin characters to syllables and phones.

pypinyin (MIT, in the extra ``mandarin``) supplies the readings, word by word; they are corrected by the table
``polyphones.tsv``. Tone sandhi, neutral tones and erhua are handled here, since pypinyin's sandhi (0.55) leaves 不去, 一天
and 很好 in citation form. The rules are those of Chao, A Grammar of Spoken Chinese (1968), 1.3. A third tone before a third
tone becomes a second tone. 不 has the second tone before a fourth. 一 has the second tone before a fourth, the fourth before
the other tones, and the first as a digit or at the end of a word. pypinyin's segmenter knows only words with irregular
readings, so three third tones in a word with regular readings (展览馆) are paired from the right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Final

from voicelab.engine.pointer.config import FINALS
from voicelab.errors import MissingExtra
from voicelab.text.clean import HAN, rows

_RUN = re.compile(f"[{HAN}]+")
_SYLLABLE: Final = r"[a-zü]+[1-5]"
_PINYIN: Final = re.compile(rf"{_SYLLABLE}(?: {_SYLLABLE})*")
_DIGIT: Final = "零一二三四五六七八九十两幺"
_NUMERAL: Final = f"{_DIGIT}百千万亿"
_PLAIN_ONE: Final = re.compile(
    # A digit, also next to a decimal point; not an hour (一点零五分), nor after an hour (九点一刻, 三点一起).
    rf"(?<=[{_NUMERAL}])一|(?<=[{_NUMERAL}]点)一(?![点滴刻起定直些同])|一(?=[{_DIGIT}])|"
    rf"一(?=点(?!零.分|.?十|[一三]刻|一[点滴])[零幺一二三四五六七八九])|"
    # An ordinal; the end of a word or a run (统一, 唯一, 星期一).
    r"一(?=[月日号號楼级級等班]|年[级級])|(?<=[统統唯之周期单單专專初第])一|一\Z"
)
"""Contexts where 一 has the first tone."""
_TRIED: Final = re.compile(rf"(?<![{_NUMERAL}第每])([^{_NUMERAL}])(一)\1")
"""Verb-一-verb: 看一看, but not 一步一步."""
_ALWAYS_SYLLABLE: Final = frozenset("女婴嬰幼孤少胎男生血宠寵健产產育托")
"""Characters after which 儿 is a syllable: 女儿, 婴儿."""
_WITH_CHILD: Final = frozenset("子童女歌科孙孫媳戏戲")
"""Characters before which 儿 is a syllable: 儿子, 儿童."""
_PARTICLES: Final = frozenset("吗嗎呢吧们們么麼")
_OBTAINING: Final = re.compile(
    r"得(?=[到意以罪失知分出奖票胜益逞])|(?<=[获獲取值懂记認认免不难贏赢])得|\A得|(?<=[必总还就])得"
)
"""Contexts where 得 is a verb, not a particle."""
_KIN: Final = re.compile(r"([妈媽爸哥姐弟妹爷爺奶叔伯姑舅婆公宝寶])\1")
_SIMPLIFIED: Final = str.maketrans(*rows("mandarin/simplified")[0])
_DRY: Final = re.compile("乾(?![隆坤卦])")
_ASPECT: Final = re.compile(
    "(?<![顯显名專专原土論论巨編编譯译遺遗合昭卓彰所拙])著(?!作(?![業业])|名(?![片單单字])|[述錄录稱称於于者]|[書书]立)"
    "(?<![他她曾並]著(?=有))"
)
"""Contexts where traditional 著 is simplified 着, not a work or to be known (zhù)."""
_LIGHT_WORD: Final = re.compile("|".join(word for (word,) in rows("mandarin/neutral")))
"""Words whose second syllable has the neutral tone."""


_BYLINE: Final = re.compile(
    "[王李张張刘劉陈陳杨楊赵趙黄黃吴吳徐朱郭罗羅郑鄭梁宋韩韓冯馮邓鄧彭萧蕭蔡潘袁董叶葉苏蘇魏吕呂丁沈卢盧姚钟鍾姜崔谭譚汪廖鲁魯]"
    "[^子人牛们們门門][^看跑走坐站睡住開开想說说跟等帶带笑哭唱吃喝听聽写寫讀读做拿抱拉推站躺穿戴掛挂拖沿隨随朝向对對為为開閉闭活]?著"
)
"""A run of characters that is the name of an author, before 著 (to write): 王小明著."""


@cache
def _polyphones() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Load (pattern, reading) rules. A reading applies to the pattern's last group, or to the whole match without groups."""
    table = rows("mandarin/polyphones")
    macros = {name: pattern.replace(" ", "|") for name, pattern in table if name[1:-1].isidentifier()}
    name = re.compile("|".join(macros))
    rules = [
        (name.sub(lambda m: macros[m.group()], pattern), reading) for pattern, reading in table if pattern not in macros
    ]
    return tuple((re.compile(pattern), reading) for pattern, reading in rules)


@dataclass(frozen=True, slots=True)
class Syllable:
    """The pronunciation of one character."""

    character: str
    initial: str
    """The initial in pinyin; "" without one."""
    final: str
    tone: int
    """1 to 4, or 5 for the neutral tone."""
    erhua: bool = False
    """Whether the syllable ends in the r of a 儿 that is not a syllable itself; `character` then has both characters."""

    @property
    def phones(self) -> tuple[str, ...]:
        """The syllable's phones, named as in `MANDARIN_PHONES`."""
        begin = (f"zh_{self.initial}",) if self.initial else ()
        return (*begin, f"zh_{self.final}{self.tone}", *(("zh_rr",) if self.erhua else ()))


def check(text: str) -> None:
    """Check that Chinese characters in `text`, if any, can be read.

    Raises:
        MissingExtra: pypinyin is not installed.
    """
    if _RUN.search(text):
        with MissingExtra.where("mandarin", "reading Chinese characters"):
            import pypinyin  # noqa: F401


def characters_of_pinyin(pinyin: str) -> str:
    """Convert a pinyin span, "gong1 cheng2", to characters that have only that reading, common ones if possible.

    Returns "" if the span is not lower-case pinyin with tone digits (5 for neutral, v or ü for the vowel of 女), or if a
    syllable has no character with a single reading.

    Raises:
        MissingExtra: pypinyin is not installed.
    """
    if not _PINYIN.fullmatch(pinyin):
        return ""
    with MissingExtra.where("mandarin", "reading pinyin"):
        from pypinyin.constants import PINYIN_DICT
        from pypinyin.contrib.tone_convert import to_tone
    out = []
    for syllable in pinyin.split():
        reading = to_tone(syllable.replace("ü", "v"))
        homophones = [chr(code) for code, entry in PINYIN_DICT.items() if entry == reading and _RUN.match(chr(code))]
        out.append(min(homophones, key=lambda character: not character.encode("gb2312", "ignore"), default=""))
    return "".join(out) if all(out) else ""


_SPELLINGS: Final = (
    (r"(?<=[hrzcs])i[rz]\b", "i"),
    (r"\bi(?=[aeo])", "y"),
    (r"\bi", "yi"),
    (r"\bu(?=[aeo])", "w"),
    (r"\bu", "wu"),
    (r"\bv", "yu"),
    (r"(?<=[jqx])v", "u"),
    (r"(?<=\wi)o(?=u)|(?<=\wu)e(?=[in])", ""),
)
"""Steps from initial and final to the spelling in pinyin."""


def pinyin(phones: Iterable[str]) -> str:
    """Spell the phones of a syllable in pinyin with a tone digit: zh_h, zh_uei4 is hui4."""
    first, tone, rest = re.split(r"(\d)", "".join(phones).replace("zh_", ""))
    for pattern, spelling in _SPELLINGS:
        first = re.sub(pattern, spelling, first)
    return first + tone + rest[:1]


def read(text: str) -> tuple[Syllable | str, ...]:
    """Convert normalized text to syllables; spans between Chinese characters (English, punctuation) are kept as strings.

    A character without a reading is omitted.

    Raises:
        MissingExtra: the text has Chinese characters, and pypinyin is not installed.
    """
    check(text)
    out: list[Syllable | str] = []
    end = 0
    for run in _RUN.finditer(text):
        if between := text[end : run.start()].strip():
            out.append(between)
        out.extend(_run(run.group()))
        end = run.end()
    if rest := text[end:].strip():
        out.append(rest)
    return tuple(out)


def _fits(text: str, encoding: str) -> bool:
    return text.encode(encoding, "ignore").decode(encoding) == text


def _run(text: str) -> list[Syllable]:
    from pypinyin.constants import PINYIN_DICT
    from pypinyin.seg.mmseg import seg

    # Dictionaries of words have simplified characters.
    simplified = _DRY.sub("干", text.translate(_SIMPLIFIED))
    if not _BYLINE.fullmatch(text) and (_fits(text, "big5") or not _fits(text, "gb2312") or text[-1] != "著"):
        simplified = _ASPECT.sub("着", simplified)
    originals = [w for w, s in zip(text, simplified, strict=True) if ord(s) in PINYIN_DICT]
    characters = "".join(character for character in simplified if ord(character) in PINYIN_DICT)
    words = [[syllable for syllable in _readings(word) if syllable] for word in seg.cut(characters)]
    flat = [syllable for word in words for syllable in word]
    ends = {sum(map(len, words[: i + 1])) - 1 for i in range(len(words))}
    _neutralize_tones(flat)
    _apply_polyphones(flat, words)
    _apply_yi_bu_sandhi(flat)
    inside = [i for i in range(len(flat) - 1) if i not in ends]
    borders = [i for i in range(len(flat) - 2, -1, -1) if i in ends]
    for i in (*inside, *borders):
        if flat[i].tone == 3 and flat[i + 1].tone == 3:
            flat[i] = replace(flat[i], tone=2)
    if len(originals) == len(flat):
        flat = [replace(s, character=w) if s.character != w else s for s, w in zip(flat, originals, strict=True)]
    return _with_erhua(flat)


def _readings(word: str) -> Iterator[Syllable | None]:
    from pypinyin import Style, lazy_pinyin

    spellings = lazy_pinyin(word, style=Style.TONE3, neutral_tone_with_five=True, errors="ignore")
    for character, spelled in zip(word, spellings, strict=True):
        yield _syllable(character, spelled)


def _syllable(character: str, spelled: str) -> Syllable | None:
    """Parse pinyin with a tone digit; return None for other text."""
    from pypinyin.contrib.tone_convert import to_finals, to_initials

    plain, tone = spelled[:-1], spelled[-1:]
    if not (plain.isascii() and plain.isalpha() and tone.isdigit()):
        return None
    initial, final = to_initials(plain, strict=True), to_finals(plain, strict=True, v_to_u=False).replace("ü", "v")
    if final == "i" and initial:
        final = "ir" if initial in ("zh", "ch", "sh", "r") else "iz" if initial in ("z", "c", "s") else "i"
    if plain in ("n", "ng", "m", "hm", "hng"):
        initial, final = "", "ng"
    # Citation tones, because the dictionary already applies some sandhi.
    tone_number = {"一": 1, "不": 4}.get(character, int(tone)) if tone != "5" else 5
    return Syllable(character, initial, final, tone_number) if final in FINALS else None


def _apply_polyphones(run: list[Syllable], words: list[list[Syllable]]) -> None:
    """Apply the readings that depend on the context beyond a dictionary word."""
    text = "".join(s.character for s in run)
    for where, spelled in _polyphones():
        for match in where.finditer(text):
            at = match.start(match.lastindex or 0)
            run[at] = _syllable(text[at], spelled) or run[at]
    # 地 after an idiom, a word of four characters: 小心翼翼地.
    at = 0
    for word, after in pairwise(words):
        at += len(word)
        if len(word) == 4 and [s.character for s in after] == ["地"]:
            run[at] = replace(run[at], tone=5)


def _neutralize_tones(run: list[Syllable]) -> None:
    """Set the neutral tones."""
    text = "".join(s.character for s in run)
    light = {m.end() - 1 for pattern in (_LIGHT_WORD, _KIN) for m in pattern.finditer(text)}
    light |= {i for i, character in enumerate(text) if character in _PARTICLES}
    for i in light:
        run[i] = replace(run[i], tone=5)
    verbs = {m.start() for m in _OBTAINING.finditer(text)}
    for i, character in enumerate(text):
        if character == "得" and run[i].final == "e":
            run[i] = replace(run[i], tone=2 if i in verbs else 5)


def _apply_yi_bu_sandhi(run: list[Syllable]) -> None:
    """Set the tones of 一 and 不."""
    text = "".join(s.character for s in run)
    tones = dict.fromkeys((m.start() for m in _PLAIN_ONE.finditer(text)), 1)
    tones |= dict.fromkeys((m.start(2) for m in _TRIED.finditer(text)), 5)
    for i, (here, after) in enumerate(pairwise(run)):
        falls = after.tone == 4 or after.character in "个個"
        if here.character == "不" and after.tone == 4:
            run[i] = replace(here, tone=2)
        if here.character == "一" and here.tone == 1:
            run[i] = replace(here, tone=tones.get(i, 2 if falls else 4))


def _with_erhua(run: list[Syllable]) -> list[Syllable]:
    out: list[Syllable] = []
    for here, after in zip(run, [*(s.character for s in run), ""][1:], strict=True):
        previous = out[-1] if out else None
        child = here.character in "儿兒" and after not in _WITH_CHILD
        if child and previous and previous.character not in _ALWAYS_SYLLABLE and previous.final != "er":
            out[-1] = replace(previous, character=previous.character + here.character, erhua=True)
        else:
            out.append(here)
    return out
