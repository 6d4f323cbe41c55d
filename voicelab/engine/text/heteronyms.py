"""Which reading a Mandarin character has beside its neighbours, where pypinyin's words do not tell: data for `mandarin`.

A rule stands here only if the neighbours leave little doubt. Readings as in Xiandai Hanyu Cidian (7th edition, 2016).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["READINGS"]

_PERSON: Final = "我你您他她它們们咱谁誰"
_SEVERAL: Final = "二两兩三四六七八九十百千万萬几幾"

_ADVERBIAL: Final = (
    "高兴 高興 认真 認真 仔细 仔細 详细 詳細 努力 用力 大力 有力 极力 热情 熱情 热烈 熱烈 强烈 激烈 剧烈 安静 安靜 平静 "
    "平靜 冷静 冷靜 轻松 輕鬆 轻易 清楚 清晰 明确 准确 準確 正确 正確 精确 快速 迅速 飞快 很快 尽快 愉快 快乐 快樂 痛快 "
    "缓慢 逐渐 逐步 进一步 不断 不斷 不停 不住 不时 自觉 持续 持續 连续 陆续 反复 简单 簡單 直接 间接 自动 自動 主动 "
    "主動 被动 激动 激動 生动 感动 自由 自信 自豪 骄傲 坚定 坚决 坚强 勇敢 大胆 大声 大聲 小声 低声 轻声 高声 温柔 溫柔 "
    "温和 亲切 友好 礼貌 诚恳 真诚 小心 耐心 开心 開心 伤心 傷心 专心 精心 细心 放心 好奇 惊讶 惊喜 兴奋 興奮 愤怒 生气 "
    "悲伤 难过 痛苦 失望 绝望 幸福 满意 得意 紧张 緊張 着急 焦急 匆忙 严肃 嚴肅 严格 严重 嚴重 严厉 深刻 深入 深情 广泛 "
    "廣泛 普遍 全面 彻底 徹底 完整 完美 完全 充分 有效 高效 合理 合法 灵活 熟练 巧妙 科学 系统 积极 積極 消极 顺利 順利 "
    "成功 勉强 随便 隨便 随意 随机 任意 公开 秘密 孤独 寂寞 悠闲 优雅 美丽 幽默 疯狂 拼命 无意 有意 故意 刻意 相对 绝对 "
    "过度 适度 极度 更好 更多 更快 很好 最好 极大 明显 明顯 显著 独立 稳定 紧密 密切 均匀 独自 一致 同样 异常 似的"
)
"""What makes an adverb with 地, as far as its form does not show it."""
_GROUND: Final = (
    "方|[址球铁鐵板毯段域势勢狱獄税稅壳殼幔名]|下[室水铁鐵道]|[区區](?![分别別])|[图圖](?![谋謀])|震(?![动動颤顫荡盪撼惊驚慑懾])|"
    "理(?![解顺順会會睬清])|面(?![对對向临臨朝])|主(?![持张張动動导導要宰管])|[产產](?![生出])|形(?![成容象变變])|位(?![移于])|"
    "[质質](?![疑问問询詢变變])|基(?!于)|道(?![出来來歉谢謝])|[带帶](?![领領着著来來走动動给給入出回])|"
    "[点點](?![头頭点點燃着著了击擊亮])|步(?![行入])"
)
"""With one of these 地 is a noun: 常常地震."""
_GAINED: Final = (
    "[到意以罪失奖獎票胜勝益逞的宠寵寸分名病势勢很]|知(?![道会會])|了(?!解)|出(?![门門去发發来來差国國])|体(?![谅諒会會验驗现現检檢贴貼])|"
    "體|手(?![动動工写寫洗])|力(?![争爭])|救了|[过過][奖獎且诺冠金银铜癌]|不[到偿償出]|天独|心应"
)
"""With one of these 得 is no "must": 得到, 得了奖."""
_OF_RANK: Final = "电電原离離量粒质質因光男女弟君孔孟荀墨太皇公天才骄驕学學游浪母次独獨孝逆介精卵配莲蓮松棋瓜鱼魚定算中"
_TEACHING: Final = "[育师師室授练練材堂训訓程会會科派主徒义義养養案导導务務龄齡改研士母父皇条條规規学學]"
_TEACHINGS: Final = "宗佛道儒回邪传傳督主请請指家管求讨討受"
_AGAIN: Final = (
    "采样|採樣|试|試|排|写|寫|构|構|置|[装裝](?![备備甲])|算|传|傳|编|編|训|命名|定向|参数|做|来|來|开|開|"
    "[设設](?![备備施])|分配|发|發|录|錄|说|說"
)
_WEIGHTS: Final = "体體权權严嚴沉加比超净淨毛负負轻輕贵貴尊注"
_NOT_ROWS: Final = "人动動为為程星驶駛政走李使善贿"


def _rules(*pairs: tuple[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), spelled) for pattern, spelled in pairs)


READINGS: Final = _rules(
    # 子 that is no suffix: a particle, a person of rank or kin, a seed; then one that begins its word.
    (f"(?<=[{_OF_RANK}])子", "zi3"),
    (r"(?:\A|(?<=[个個这這那每的]))子(?=集|公司|系统|系統|网|類|类|目录|任务|程序|宫|夜|进程|空间|串|句)", "zi3"),
    ("(?<=妻)子(?![女弟孙孫])", "zi5"),
    # 地 that makes an adverb: a word said twice, one of a form, one that is listed.
    (rf"([^爸妈媽爷爺奶哥姐弟妹叔姑舅婆公])(?:\1|一\1|又一\1)(地)(?!{_GROUND})", "de5"),
    (
        rf"(?:[然性式般]|[一这那各]样|[一這那各]樣|[这這那多][么麼]|{_ADVERBIAL.replace(' ', '|')})(地)(?!{_GROUND})",
        "de5",
    ),
    # 得 that is must, or to get.
    (rf"(?:[{_PERSON}][就还還也都才又总總可必真先]{{0,2}}|(?:大家|自己)[就还還也都]?)(得)(?!{_GAINED})", "dei3"),
    (rf"(?<=[总總还還就也非])得(?!{_GAINED})", "dei3"),
    (f"(?<=[总總])得(?=[分票])|得(?=了[奖獎病癌冠金银铜第满感]|天独|心应)|(?<=[{_PERSON}])得(?=的|了(?!解))", "de2"),
    # Counted animals and things, counted lines.
    (f"(?<=[{_SEVERAL}五半])只|(?<=[这這那每哪某])只(?![是能会會有好不要在需让讓为為剩想够夠当當怕限说說])", "zhi1"),
    (rf"(?<=[{_SEVERAL}每逐换換末])行(?![{_NOT_ROWS}])|(?<=[第十百]五)行(?![{_NOT_ROWS}])", "hang2"),
    (rf"(?<=[一五])行(?=[代文字诗詩注])|(?<=第一|[上下这這那每]一)行(?![{_NOT_ROWS}])", "hang2"),
    # 参 of those who take part: the dictionary takes 人参 out of them.
    ("(?<=人)[参參](?=[加与與观觀考赛賽展会會选選战戰军軍股保])", "can1"),
    # To teach.
    (f"(?<=[{_PERSON}们們来來])教(?!{_TEACHING})", "jiao1"),
    (f"(?<![{_TEACHINGS}])教(?=[{_PERSON}]|[会會][{_PERSON}了]|学生|學生|孩子)", "jiao1"),
    # Again.
    (f"(?<![{_WEIGHTS}])重(?={_AGAIN})", "chong2"),
    # The difference between two values.
    ("(?<=[残殘误誤偏逆顺順])差|(?<=标准|標準)差|(?<=[方时時温溫落反色])差(?!不多|[点點一得劲勁])", "cha1"),
    ("还(?=[款贷]|房贷|车贷|信用卡)|還(?=[款貸]|信用卡)", "huan2"),
)
"""(where, how it is read): the last group is the character, the whole match where there is none."""
