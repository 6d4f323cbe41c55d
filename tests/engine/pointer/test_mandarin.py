"""Mandarin: readings, tone sandhi, erhua, and the phone inventory."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicelab.engine.pointer.config import ALL_PHONES, MANDARIN_PHONES, PHONES
from voicelab.engine.pointer.mandarin import Syllable, pinyin, read
from voicelab.text import normalize
from voicelab.text.clean import speakable


def _said(text: str) -> str:
    return " ".join(
        part if isinstance(part, str) else f"{part.initial}{part.final}{part.tone}{'r' if part.erhua else ''}"
        for part in read(text)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # readings, finals in full
        ("思知日二，雨绿略云圆", "siz1 zhir1 rir4 er4 ， v3 lv4 lve4 vn2 van2"),
        ("威文我爷优，银行行走，音乐快乐", "uei1 uen2 uo3 ie2 iou1 ， in2 hang2 xing2 zou3 ， in1 ve4 kuai4 le4"),
        ("重庆很重要", "chong2 qing4 hen3 zhong4 iao4"),
        # the third tone
        ("你好，水果，我很好", "ni2 hao3 ， shuei2 guo3 ， uo3 hen2 hao3"),
        ("我想买水果，很重", "uo3 xiang2 mai3 shuei2 guo3 ， hen3 zhong4"),
        # 不
        ("不是，不去，不好，看不见", "bu2 shir4 ， bu2 qv4 ， bu4 hao3 ， kan4 bu2 jian4"),
        # 一
        ("一个，一万，一天，一条，一百", "i2 ge4 ， i2 uan4 ， i4 tian1 ， i4 tiao2 ， i4 bai3"),
        ("第一天，统一，十一，一九九八年", "di4 i1 tian1 ， tong3 i1 ， shir2 i1 ， i1 jiou2 jiou3 ba1 nian2"),
        ("一月，看一看", "i1 ve4 ， kan4 i5 kan4"),
        # the neutral tone
        ("妈妈，葡萄，我的桌子，好吗，吃了", "ma1 ma5 ， pu2 tao5 ， uo3 de5 zhuo1 ziz5 ， hao3 ma5 ， chir1 le5"),
        ("跑得快，得到", "pao3 de5 kuai4 ， de2 dao4"),
        # erhua
        ("花儿，小孩儿玩儿，女儿和儿子", "hua1r ， xiao3 hai2r uan2r ， nv3 er2 he2 er2 ziz5"),
        # with English and marks
        ("我用 iPhone 十五打电话.", "uo3 iong4 iPhone shir2 u2 da3 dian4 hua4 ."),
        ("喝 OK, 好吗?", "he1 OK, hao3 ma5 ?"),
        ("問題", "uen4 ti2"),
    ],
)
def test_readings_and_tones(text: str, said: str) -> None:
    assert _said(text) == said


READINGS = {
    "i4": "过了[一]年 [一]年四季 我有[一]点累 [一]点儿 下午[一]点 [一]点零五分 [一]点三十分 [一]点一点地 一点[一]点地 "
    "一点[一]滴 快点[一]起去 一天[一]天 有[一]年",
    "i2": "[一]个一个 一个[一]个来 一步[一]步 [一]步一步 九点[一]刻 一遍又[一]遍",
    "i5": "看[一]看 等[一]等 点[一]点头 想[一]想",
    "i1": "[一]年级 高[一]年级 [一]点二 [一]点五倍 零点[一] 零点[一]个 二零零[一]年 十[一]年 第[一]年 [一]等奖 星期[一]",
    "ziz3": "电[子]邮件 一名男[子] 孔[子] 因[子]分解 粒[子] 质[子] 光[子] 瓜[子] 男[子]汉 王[子] 一个[子]集 [子]系统",
    "ziz5": "妻[子] 桌[子] 例[子] 孩[子]们 句[子]里 种[子] 日[子] 房[子]",
    "de5": "慢慢[地]走 高兴[地]说 认真[地]工作 轻轻[地]点了头 静静[地]下着雪 小心翼翼[地]走 深深[地]震撼 那么[地]美丽 "
    "一步一步[地]走 认认真真[地]写 更多[地]关注 创造性[地]用 冷静[地]面对 逐渐[地]形成 突然[地]上升 "
    "一遍又一遍[地]听 认真[地]理解 跑[得]快 长[得]漂亮",
    "di4": "土[地]上 当[地]人 各[地]人 本[地] 内[地] 陆[地] 基[地]里 目的[地]是 什么[地]方 突然[地]震了 常常[地]震 "
    "天天[地]铁上班 女性[地]位 有效[地]址 自然[地]理 更多[地]区 爸爸[地]里干活 就[地]取材 草[地]上 什么[地]点 "
    "直接[地]图",
    "dei3": "你[得]去看医生 我[得]去了 我还[得]去 我们[得]快走 他就[得]这样做 大家[得]注意 你[得]了解情况 你[得]知道 "
    "你[得]出去",
    "de2": "因为[得]了奖 我[得]了奖 他[得]了第一名 我还[得]了奖 他[得]到 他[得]意地笑 他[得]出结论 她[得]知消息 总[得]分 "
    "他[得]的奖",
    "can1": "三百人[参]加了 三人[参]与 两个人[参]观了 本人[参]选 [参]加",
    "shen1": "人[参] 人[参]汤 人[参]和鹿茸 海[参]",
    "zhir1": "三[只]狗 两[只]猫 这[只]鸟 每[只]鸟 几[只] 一[只]猫 三[只]是白的 十五[只]",
    "zhir3": "这[只]是 那[只]能 这[只]会 他[只]去了 万一[只]能",
    "hang2": "第三[行]代码 两[行] 每[行]都有 十五[行] 第一[行] 一[行]代码 五[行]代码 第五[行] 三百六十[行]",
    "xing2": "五[行]八卦 一[行]人 三[行]人 第二[行]星 执[行]两次 每[行]驶一公里 自[行]车 三人[行]",
    "jiao1": "他[教]英语 你[教]我们 [教]会他 他[教]学生 谁[教]你的 我们[教]数学",
    "jiao4": "请[教]他 我们去[教]堂 佛[教]我不懂 来[教]室 他[教]学 他从事[教]育 家[教]他",
    "chong2": "[重]采样 [重]写 [重]试 [重]启 [重]新",
    "zhong4": "权[重]采样 体[重] [重]要性 体[重]试验 [重]装备 [重]设备",
    "cha1": "方[差] 残[差] 协方[差] 误[差] 时[差] 标准[差] 温[差]很大",
    "cha4": "[差]不多 质量[差] 对方[差]一点 当时[差]点迟到 成绩[差]",
    "huan2": "[还]款 [还]款日期 [还]信用卡 归[还]",
    "zhe5": "跟[著] 看[著] 隨[著] 有[著] 沿[著] 接[著] 意味[著] 他笑[著]說 看[著]書 他看[著]有點累 "
    "王子看[著] 黃牛走[著] 帶[著]名片 穿[著]紅衣服",
    "zhao2": "[著]火 [著]涼 [著]急 睡[著] 找不[着] 睡不[著]",
    "zhuo2": "[著]陸 [著]手 [著]重 衣[著] 執[著] 他的穿[著] 穿[著]打扮",
    "zhu4": "[著]作 [著]名 顯[著] 名[著] 專[著] 原[著] 土[著] 卓[著] 他[著]有很多書 [著]書立說 所[著] 显[著] 鲁迅[著] "
    "王小明[著] 陳映真[著]",
    "hai2": "[还]有 [还]是 他[还]没来",
}
"""How the character in brackets is said, by the dictionary (Xiandai Hanyu Cidian) and Chao; no third tone follows a third."""


@pytest.mark.parametrize(("said", "text"), [(said, text) for said, texts in READINGS.items() for text in texts.split()])
def test_polyphonic_characters(said: str, text: str) -> None:
    at = text.index("[")
    text = text.replace("[", "").replace("]", "")
    syllables = [part for part in read(text) if isinstance(part, Syllable)]
    places = [i for i, syllable in enumerate(syllables) for _ in syllable.character]
    syllable = syllables[places[at]]
    assert f"{syllable.initial}{syllable.final}{syllable.tone}" == said


@pytest.mark.parametrize("unit", "地 慢慢地 慢 认真地 一 看一 一点 我得 我就 只 行 重 教".split())
def test_hostile_repetition_takes_linear_time(unit: str) -> None:
    text = unit * (3_000 // len(unit))
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 3.0


def test_phones_carry_the_tone() -> None:
    (syllable,) = read("花儿")
    assert isinstance(syllable, Syllable)
    assert syllable == Syllable("花儿", "h", "ua", 1, erhua=True)
    assert syllable.phones == ("zh_h", "zh_ua1", "zh_rr")


def test_phones_are_spelled_in_pinyin() -> None:
    text = "思知日二雨绿略云圆，威文我爷优，鱼捐军兄，丢归准，一阳用英，五弯王翁，女花儿"
    said = "si1 zhi1 ri4 er4 yu3 lv4 lve4 yun2 yuan2 wei1 wen2 wo3 ye2 you1 yu2 juan1 jun1 xiong1 diu1 gui1 zhun3"
    said += " yi4 yang2 yong4 ying1 wu3 wan1 wang2 weng1 nv3 hua1r"
    assert [pinyin(s.phones) for s in read(text) if isinstance(s, Syllable)] == said.split()


def test_the_english_phones_keep_their_ids() -> None:
    assert not set(MANDARIN_PHONES) & set(PHONES)
    assert len(set(MANDARIN_PHONES)) == len(MANDARIN_PHONES)
    ids = [i for part in read("花儿你好") if isinstance(part, Syllable) for i in map(ALL_PHONES.index, part.phones)]
    assert min(ids) >= len(PHONES)
    assert [(*PHONES, *MANDARIN_PHONES)[i] for i in ids] == "zh_h zh_ua1 zh_rr zh_n zh_i2 zh_h zh_ao3".split()


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), max_size=20) | st.text(max_size=40))
def test_any_text_can_be_read(text: str) -> None:
    for part in read(normalize(text, ("en", "zh")).text):
        if isinstance(part, Syllable):
            assert set(part.phones) <= set(MANDARIN_PHONES)
        else:
            assert part.strip() == part != ""


def test_numbers_after_normalization() -> None:
    assert _said(normalize("2个人3:05", ("zh",)).text) == "liang3 ge4 ren2 san1 dian3 ling2 u3 fen1"


def test_pypinyin_is_loaded_for_chinese_only() -> None:
    code = (
        "import sys; from voicelab.engine.pointer.mandarin import read; "
        "assert read('Hello, you.') == ('Hello, you.',); "
        "assert 'pypinyin' not in sys.modules; read('你'); assert 'pypinyin' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


_TRADITIONAL = (
    "銀行 音樂 睡覺 還錢 會計 重慶 快樂 還書 長城 校長 重複 重量 調整 調皮 傳說 傳記 彈性 子彈 藏書 西藏 覺得 午覺 朝陽 "
    "朝鮮 參加 人參 曲線 歌曲 降落 投降 處理 到處 樸素 樸姓 假期 真假 間隔 中間 供應 供詞 盡管 盡頭 將來 將領 教書 教室 "
    "數學 數錢 興趣 興奮 應該 應用 難過 災難 鮮花 朝鮮族 強調 勉強 縫衣服 門縫 轉身 轉圈 著急 看著 薄餅 薄弱 給予 供給 "
    "勝任 名勝 負債累累 勞累 儘量 大量 測量 論語 理論 寧可 安寧 蒙古 蒙騙 舍不得 宿舍 喪失 喪事 空間 空缺 載客 記載 鑽石 "
    "鑽研 漲價 頭昏腦漲 倒車 倒閉 創傷 創造 擔任 扁擔 當然 上當 發現 理髮 乾燥 乾隆 乾杯 裏面 行業 行動 樂器 樂觀 還是 "
    "歸還 為了 認為 種類 播種 禁止 不禁 吐痰 嘔吐 相片 相信 露面 露水 削皮 剝削 血跡 流血 熟悉 暈車 頭暈 頭髮 乾淨 樂隊 "
    "調查 彈琴 將軍 結實 難民 血液 應付 載重 種樹 轉動 花兒"
)
_SIMPLIFIED = (
    "银行 音乐 睡觉 还钱 会计 重庆 快乐 还书 长城 校长 重复 重量 调整 调皮 传说 传记 弹性 子弹 藏书 西藏 觉得 午觉 朝阳 "
    "朝鲜 参加 人参 曲线 歌曲 降落 投降 处理 到处 朴素 朴姓 假期 真假 间隔 中间 供应 供词 尽管 尽头 将来 将领 教书 教室 "
    "数学 数钱 兴趣 兴奋 应该 应用 难过 灾难 鲜花 朝鲜族 强调 勉强 缝衣服 门缝 转身 转圈 着急 看着 薄饼 薄弱 给予 供给 "
    "胜任 名胜 负债累累 劳累 尽量 大量 测量 论语 理论 宁可 安宁 蒙古 蒙骗 舍不得 宿舍 丧失 丧事 空间 空缺 载客 记载 钻石 "
    "钻研 涨价 头昏脑涨 倒车 倒闭 创伤 创造 担任 扁担 当然 上当 发现 理发 干燥 乾隆 干杯 里面 行业 行动 乐器 乐观 还是 "
    "归还 为了 认为 种类 播种 禁止 不禁 吐痰 呕吐 相片 相信 露面 露水 削皮 剥削 血迹 流血 熟悉 晕车 头晕 头发 干净 乐队 "
    "调查 弹琴 将军 结实 难民 血液 应付 载重 种树 转动 花儿"
)


def test_traditional_characters_sound_as_simplified() -> None:
    for traditional, simplified in zip(_TRADITIONAL.split(), _SIMPLIFIED.split(), strict=True):
        syllables = [s for s in read(traditional) if not isinstance(s, str)]
        assert [s.phones for s in syllables] == [s.phones for s in read(simplified) if not isinstance(s, str)]
        assert "".join(s.character for s in syllables) == traditional


def test_japanese_is_noted() -> None:
    assert "the text looks like Japanese; its kanji are read as Mandarin" in speakable(
        "今日は大阪に行きます", ("en", "zh")
    )
