"""Telephone numbers, dates, times, money, units and sums in Chinese text; the digits that remain are read afterwards."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.normalize.hanzi import HAN, decimal, digits, telephone
from voicelab.engine.text.normalize.hanzi_measures import CODES, MEASURES, MONEY, UNITS
from voicelab.engine.text.normalize.values import Rules

__all__ = ["DATES", "LABELS", "MATHS", "MEASURED", "NUM", "RANGES", "TELEPHONE"]

NUM: Final = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)"
_WHOLE: Final = rf"(?<!\d)(?!(?<=\d,)\d{{3}}(?!\d)){NUM}"
"""Not begun inside: otherwise a long one would be tried from each of its digits."""
_TO: Final = r"\s?[-–—~至到]\s?"
_FREE: Final = r"(?<![\d.])(?<!\d,)"

_MOBILE = re.compile(r"(?<!\d)(?:\+?(?P<land>86)[- ]?)?(?P<a>1[3-9]\d)[- ]?(?P<b>\d{4})[- ]?(?P<c>\d{4})(?!\d)")
_LANDLINE = re.compile(
    r"(?<!\d)(?:\((?P<area>0\d{1,3})\)\s?|(?P<area2>0\d{1,3})-)(?P<a>\d{3,4})-?(?P<b>\d{4})(?:-(?P<ext>\d{1,5}))?(?!\d)"
)
_FREEPHONE = re.compile(r"(?<!\d)(?P<a>[48]00)[- ]?(?P<b>\d{3,4})[- ]?(?P<c>\d{3,4})(?!\d)")
_ABROAD = re.compile(r"(?<!\d)\+(?P<groups>\d{1,3}(?:[ .-]\(?\d{2,5}\)?){2,5})(?!\d)")

_DATE = re.compile(r"(?<!\d)(?P<y>\d{4})(?P<sep>[-/.])(?P<m>\d{1,2})(?P=sep)(?P<d>\d{1,2})(?!\d)(?:T(?=\d))?")
_YEARS = re.compile(rf"(?<![\d.,])(?P<a>[12]\d{{3}})年?{_TO}(?P<b>[12]\d{{3}})(?=[学學财財]?年|赛季|賽季)")
_YEAR = re.compile(r"(?<![\d.,])(?P<y>[12]\d{3})(?=\s?年)(?P<ago>(?=\s?年(?:前|来|來|历史|歷史|的历史|的歷史|间|間)))?")
_ERA = re.compile(r"(?P<era>公元前?|西元前?)\s?(?P<y>\d{3,4})(?=年)")
_SHORT_YEAR = re.compile(
    r"(?<![\d.,了共有满滿过過近])(?P<y>0\d|[7-9]\d)(?=年(?!代|前|后|後|来|來|历|歷|间|間|内|以|多))"
)
_CLASS = re.compile(
    r"(?<![\d.,])(?P<y>[12]\d{3})"
    r"(?:[-–](?P<next>\d\d)(?=赛季|賽季|学年|學年|财年)|(?=[Qq][1-4]|财年|財年|赛季|賽季|届|屆|级|級|版|款))"
)
_BORN = re.compile(r"(?<!\d)(?P<y>[05-9][05]|10)(?=[后後](?!天|年|日|的?时|分|秒))")
_ZERO = re.compile(r"(?<!\d)0(?=\d[月日号號点點时時])")
_SCORE = re.compile(
    rf"(?P<cue>(?:比分|比例|比率|高比|宽比|寬比|以|[胜勝负負平])[^\d{HAN}]{{0,3}}[是为為]?\s?)(?P<a>\d{{1,3}}):(?P<b>\d{{1,3}})(?!\d)"
)
_TIME = re.compile(
    r"(?<![\d:])(?P<h>[01]?\d|2[0-4]):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?(?![\d:])(?:\s?(?P<half>[AaPp])\.?[Mm](?![A-Za-z])\.?)?(?:\s?分)?"
)
_HOUR = re.compile(r"(?<![\d:])(?P<h>1[0-2]|0?[1-9])\s?(?P<half>[AaPp])\.?[Mm](?![A-Za-z])\.?")

_CUED = re.compile(
    r"(?P<cue>(?:房间|房間|房|门牌|門牌|编|編|尾|账|帳|卡|学|學|工|考|单|單|证|證|代|型)[号號]|邮编|郵編|密码|密碼|验证码|驗證碼|"
    r"代码|代碼|QQ号?|车牌号?|航班号?|热线|熱線|电话|電話|拨打?|撥打?|打|致电|致電|客服|呼叫|波音|空客)(?P<gap>\s?[:是为為]?\s?)"
    rf"(?P<num>\d{{3,}})(?![\d.,])(?!\s?(?:{MEASURES}))"
)
_ROOM = re.compile(r"(?<![\d.,])(?P<num>\d{3,4})(?=\s?(?:室|房|[号號]房|寝室|寢室|包厢|包廂|教室|航班))")
_TRAIN = re.compile(r"(?<![A-Za-z])(?P<kind>[GDCZTKYL])(?P<num>\d{1,4})(?=次)")
_PROJECT = re.compile(r"(?<!\d)(?P<num>211|985|863|973|315)(?=大学|大學|高校|院校|工程|计划|計劃|重点|晚会)")
_MODEL = re.compile(rf"(?<=[A-Za-z])(?P<gap>[- ]?)(?P<num>\d{{3,}})(?![\d.,%°-])(?!\s?(?:{MEASURES}|[A-Za-z年]))")
_SERVICE = re.compile(r"(?<![\d.,])(?P<num>\d{3,6})(?=热线|熱線|报警|報警|急救|火警|客服|电话|電話)")
_CARD = re.compile(r"(?<!\d)\d{4}(?: \d{4}){2,4}(?!\d)")
_PART = re.compile(r"(?<=[A-Za-z])(?P<a>\d{1,2})-(?P<b>\d{2,})(?!\d)")
_NO = re.compile(r"(?<![A-Za-z])[Nn][Oo]\.?\s?(?=\d)|(?<!\w)#(?=\d)")

_SCALES: Final = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
_SCALE: Final = r"(?P<scale>[百千万萬亿億]+|[kKmMbB]n?(?![A-Za-z]))?"
_CODE: Final = "|".join(re.escape(code) for code in sorted(CODES, key=len, reverse=True))
_SIGNED = re.compile(
    rf"(?<![A-Za-z])(?P<sign>{_CODE}|[¥$€£₹])\s?(?P<num>{NUM})(?:{_TO}(?:(?P=sign))?(?P<last>{NUM}))?\s?{_SCALE}"
    r"(?P<unit>(?:美|欧|歐|日|港)?元|人民币|人民幣|块|塊|英镑)?"
)
_CODED = re.compile(rf"(?P<num>{_WHOLE})\s?{_SCALE}\s?(?P<sign>{_CODE}|[¥$€£₹](?!\d))(?![A-Za-z])")
_SCALED = re.compile(rf"(?P<num>{_WHOLE})\s?(?P<scale>[kKmMbB]n?)(?=\s?(?:[美欧歐日港]?元|英镑|块))")
_CENTS = re.compile(
    r"(?<![\d.])(?<!\d,)(?P<whole>\d[\d,]*)\.(?P<part>(?:\d*[1-9])?)0+(?!\d)(?=\s?(?:[百千万亿]*)(?:[元块塊]|[美欧日港]元|英镑))"
)
_TEMPERATURE = re.compile(
    rf"(?:(?P<minus>-)?{_FREE}(?P<first>{NUM})\s?(?:°[CF]?)?{_TO})?(?P<minus2>(?<!\d)-)?(?P<num>{_WHOLE})\s?"
    r"°\s?(?P<scale>[CF])?(?![A-Za-z])"
)
_BELOW_ZERO = re.compile(rf"(?<![\dA-Za-z)])-(?={NUM}\s?度)")
_PERCENT = re.compile(rf"(?:{_FREE}(?P<minus>(?<![\dA-Za-z)])-)?(?P<first>{NUM})\s?%?{_TO})?(?P<minus2>(?<![\dA-Za-z)])-)?"
                      rf"(?P<num>{_WHOLE})\s?%")  # fmt: skip
_UNIT: Final = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
_MEASURE = re.compile(
    rf"(?P<num>{_WHOLE})\s?(?P<unit>{_UNIT})(?:\^(?P<power>[23]))?(?:/(?P<per>{_UNIT})(?:\^(?P<power2>[23]))?)?(?![A-Za-z\d^/])"
)
_PER = re.compile(rf"(?<=[元块次人里米克升分点页字])/(?=[{HAN}])")

_FRACTION = re.compile(
    r"(?<![\d/.])(?:(?P<whole>\d{1,6})[ 又])?(?P<top>\d{1,4})\s?/\s?(?P<bottom>\d{1,4})(?![\d/])(?!\.\d)"
)
_NAMED: Final = {("9", "11"): "九幺幺", ("24", "7"): "七乘二十四"}
_DOTTED = re.compile(r"(?<![\d.])\d+(?:\.\d+){2,}(?![\d])")
_POWER = re.compile(r"\^(?P<power>-?\d{1,4}|[a-z](?![a-z]))")
_OPERAND: Final = r"[\dA-Za-z)百千万亿零一二三四五六七八九十方]"
_SUM: Final[Rules] = tuple(
    (re.compile(pattern), said)
    for pattern, said in (
        (rf"(?<={_OPERAND})\s?(?:>=|≥)\s?", "大于等于"),
        (rf"(?<={_OPERAND})\s?(?:<=|≤)\s?", "小于等于"),
        (r"\s?(?:!=|≠)\s?", "不等于"),
        (rf"(?<={_OPERAND})\s?>\s?(?=[\dA-Za-z(-])", "大于"),
        (rf"(?<={_OPERAND})\s?<\s?(?=[\dA-Za-z(-])", "小于"),
        (r">(?=\d)", "大于"),
        (r"<(?=\d)", "小于"),
        (r"(?<=\d)[xX×](?![\dA-Za-z ])", "倍"),
        (r"(?<=\d)\s?[xX×*]\s?(?=\d)|(?<=[\dA-Za-z)])\s?×\s?(?=[\dA-Za-z(])", "乘"),
        (r"\s?÷\s?", "除以"),
        (r"(?<=[\dA-Za-z)])\s-\s(?=\d)|(?<=\d)-(?=\d+\s?=)", "减"),
        (rf"(?<={_OPERAND})\s?=\s?", "等于"),
        (rf"(?<=0)\+(?=[{HAN}])", "多"),
        (r"(?<=[\d)])\s?\+\s?(?=[\dA-Za-z(])|(?<=[A-Za-z])\s?\+\s?(?=\d)|(?<=[a-z])\s?\+\s?(?=[a-z])", "加"),
        (r"(?<=\d)\+|(?<![\dA-Za-z+])\+(?=\d)", "加"),
        (r"(?<![\d])[~≈]\s?(?=\d)", "约"),
        (r"±", "正负"),
        (r"√", "根号"),
        (rf"(?<=[{HAN}\s])&(?=[{HAN}\s])", "和"),
        (r"@", "艾特"),
        (r"°", "度"),
        (r"%", "百分号"),
    )
)

_VALUE: Final = r"(?=[-+]?[¥$€£]?\d)"
_BESIDE: Final = r"(?:(?<=[\w%)°])\s?|(?<![-=<>]))"
_COMPARED: Final[Rules] = (
    (re.compile(rf"{_BESIDE}(?:>=|≥)\s?{_VALUE}"), "大于等于"),
    (re.compile(rf"{_BESIDE}(?:<=|≤)\s?{_VALUE}"), "小于等于"),
    (re.compile(rf"{_BESIDE}>\s?{_VALUE}"), "大于"),
    (re.compile(rf"{_BESIDE}<\s?{_VALUE}"), "小于"),
    (re.compile(rf"{_BESIDE}≈\s?{_VALUE}"), "约"),
    (re.compile(rf"(?<=[{HAN}])\s?=\s?{_VALUE}"), "等于"),
)
"""Before what is measured: afterwards no digit follows the sign (>90% is >百分之90)."""

_CHAIN = re.compile(r"(?<![\d-])\d+(?:-\d+){2,}(?![\d-])")
_SPAN = re.compile(
    rf"(?<=[\d%])\s?(?:[-–~]|—(?!—))\s?(?={NUM})|(?<=[年月日号號点點分秒元里米克升度岁歲])\s?[-–~]\s?(?=\d)"
)
_WEEK = re.compile(r"(?<=[周期][一二三四五六日天])\s?[-–~]\s?(?=周|星期)")
_MINUS = re.compile(r"(?<![\dA-Za-z)])-(?=\d)")


def _land(match: re.Match[str]) -> str:
    return f"加{telephone(match['land'])}, " if match["land"] else ""


def _mobile(match: re.Match[str]) -> str:
    return _land(match) + telephone(match["a"], match["b"], match["c"])


def _landline(match: re.Match[str]) -> str:
    extension = f"转{telephone(match['ext'])}" if match["ext"] else ""
    return telephone(match["area"] or match["area2"], match["a"], match["b"]) + extension


def _date(match: re.Match[str]) -> str:
    month, day = int(match["m"]), int(match["d"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match.group()
    return f"{digits(match['y'])}年{month}月{day}日 "


def _year(match: re.Match[str]) -> str:
    lasting = match["y"] == "1000" or (match["ago"] is not None and match["y"].endswith("00"))
    return match["y"] if lasting else digits(match["y"])


def _half(match: re.Match[str]) -> str:
    told = re.search(r"[早上下午晚凌晨中]\s?\Z", match.string[max(0, match.start() - 2) : match.start()])
    return "" if told or not match["half"] else "上午" if match["half"] in "aA" else "下午"


def _time(match: re.Match[str]) -> str:
    minutes = f"{match['m']}分" if match["m"] != "00" or match["s"] else ""
    seconds = f"{match['s']}秒" if match["s"] else ""
    return f"{_half(match)}{int(match['h'])}点{minutes}{seconds}"


def _trimmed(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _amount(match: re.Match[str]) -> str:
    """The number of an amount, with its scale: 3.5M is 3500000, 3.5亿 stays."""
    factor = _SCALES.get((match["scale"] or "").lower())
    number = _trimmed(match["num"])
    if factor is None:
        return number + (match["scale"] or "")
    whole, _, part = number.replace(",", "").partition(".")
    if len(whole) > 6 or len(part) > 6:
        return f"{number} {match['scale']}"
    scaled = int(whole + part) * factor
    return str(scaled // 10 ** len(part)) if scaled % 10 ** len(part) == 0 else f"{number} {match['scale']}"


def _money(match: re.Match[str]) -> str:
    groups = match.groupdict()
    name = groups.get("unit") or CODES.get(match["sign"]) or MONEY[match["sign"]]
    if not groups.get("last"):
        return _amount(match) + name
    scale = match["scale"] or ""
    return f"{_trimmed(match['num'])}到{_trimmed(match['last'])}{scale}{name}"


def _temperature(match: re.Match[str]) -> str:
    scale = {"C": "摄氏度", "F": "华氏度", None: "度"}[match["scale"]]
    first = f"{'零下' if match['minus'] else ''}{match['first']}到" if match["first"] else ""
    return f"{first}{'零下' if match['minus2'] else ''}{match['num']}{scale}"


def _percent(match: re.Match[str]) -> str:
    first = f"百分之{'负' if match['minus'] else ''}{match['first']}到" if match["first"] else ""
    return f"{first}百分之{'负' if match['minus2'] else ''}{match['num']}"


def _power_of(power: str | None) -> str:
    return {"2": "平方", "3": "立方", None: ""}[power]


def _measure(match: re.Match[str]) -> str:
    per = f"每{_power_of(match['power2'])}{UNITS[match['per']]}" if match["per"] else ""
    return f"{match['num']}{_power_of(match['power'])}{UNITS[match['unit']]}{per}"


def _fraction(match: re.Match[str]) -> str:
    if match["whole"] is None and (named := _NAMED.get((match["top"], match["bottom"]))):
        return named
    parts = (decimal(match[part], ordered=True) for part in ("bottom", "top"))
    return (f"{match['whole']}又" if match["whole"] else "") + "分之".join(parts)


def _dotted(match: re.Match[str]) -> str:
    parts = match.group().split(".")
    return "点".join(digits(part) if len(part) > 2 else decimal(part) for part in parts)


def _power(match: re.Match[str]) -> str:
    power = match["power"]
    named = {"2": "平方", "3": "立方"}.get(power) or f"{power.replace('-', '负')}次方"
    return f"的{named}"


TELEPHONE: Final[Rules] = (
    (_MOBILE, _mobile),
    (_LANDLINE, _landline),
    (_FREEPHONE, lambda m: telephone(m["a"], m["b"], m["c"])),
    (_ABROAD, lambda m: "加" + telephone(*re.findall(r"\d+", m["groups"]))),
)
DATES: Final[Rules] = (
    (_DATE, _date),
    (_YEARS, lambda m: f"{digits(m['a'])}到{digits(m['b'])}"),
    (_ERA, lambda m: m["era"] + digits(m["y"])),
    (_YEAR, _year),
    (_SHORT_YEAR, lambda m: digits(m["y"])),
    (_CLASS, lambda m: digits(m["y"]) + (f"到{digits(m['next'])}" if m["next"] else "")),
    (_BORN, lambda m: digits(m["y"])),
    (_ZERO, ""),
    (_SCORE, lambda m: f"{m['cue']}{m['a']}比{m['b']}"),
    (_TIME, _time),
    (_HOUR, lambda m: f"{_half(m)}{int(m['h'])}点"),
    (re.compile(r"(?<=\d):(?=\d)"), "比"),
)
LABELS: Final[Rules] = (
    (_TRAIN, lambda m: f"{m['kind']} {telephone(m['num'])}"),
    (_CARD, lambda m: telephone(*m.group().split(" "))),
    (_CUED, lambda m: f"{m['cue']}{m['gap']}{telephone(m['num'])}"),
    (_ROOM, lambda m: telephone(m["num"])),
    (_SERVICE, lambda m: telephone(m["num"])),
    (_PART, lambda m: f"{m['a']} {telephone(m['b'])}"),
    (_PROJECT, lambda m: telephone(m["num"])),
    (_NO, "第"),
)
"""Numbers that are names are read digit by digit."""
MEASURED: Final[Rules] = (
    *_COMPARED,
    (_SIGNED, _money),
    (_CODED, _money),
    (_SCALED, _amount),
    (_CENTS, lambda m: m["whole"] + (f".{m['part']}" if m["part"] else "")),
    (_TEMPERATURE, _temperature),
    (_BELOW_ZERO, "零下"),
    (_PERCENT, _percent),
    (_MEASURE, _measure),
    (_PER, "每"),
    (re.compile(r"(?<=[KMGT]B)/s(?![A-Za-z])"), "每秒"),
    (_MODEL, lambda m: f" {telephone(m['num'])}"),
)
MATHS: Final[Rules] = ((_DOTTED, _dotted), (_FRACTION, _fraction), (_POWER, _power), *_SUM)
RANGES: Final[Rules] = (
    (_CHAIN, lambda m: ", ".join(digits(part) for part in m.group().split("-"))),
    (_WEEK, "到"),
    (_SPAN, "到"),
    (_MINUS, "负"),
    (re.compile(r"(?<=[A-Za-z])-(?=\d)"), " "),
    (re.compile("(?<=和)/(?=或)"), ""),
    (re.compile(rf"(?<=[{HAN}])/(?=[{HAN}])"), ", "),
)
