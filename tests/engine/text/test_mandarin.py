"""Characters to syllables: readings, tones as they are said, erhua, and phones that leave the English ones alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicelab.engine.text.mandarin import MANDARIN_PHONES, Syllable, read
from voicelab.engine.text.normalize import normalize
from voicelab.engine.text.phones import PHONES


def _said(text: str) -> str:
    return " ".join(
        part if isinstance(part, str) else f"{part.initial}{part.final}{part.tone}{'r' if part.erhua else ''}"
        for part in read(text)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # readings, finals in full
        ("思知日二", "siz1 zhir1 rir4 er4"),
        ("雨绿略云圆", "v3 lv4 lve4 vn2 van2"),
        ("威文我爷优", "uei1 uen2 uo3 ie2 iou1"),
        ("银行行走", "in2 hang2 xing2 zou3"),
        ("音乐快乐", "in1 ve4 kuai4 le4"),
        ("重庆很重要", "chong2 qing4 hen3 zhong4 iao4"),
        # the third tone
        ("你好", "ni2 hao3"),
        ("水果", "shuei2 guo3"),
        ("我很好", "uo3 hen2 hao3"),
        ("我想买水果", "uo3 xiang2 mai3 shuei2 guo3"),
        ("很重", "hen3 zhong4"),
        # 不
        ("不是", "bu2 shir4"),
        ("不去", "bu2 qv4"),
        ("不好", "bu4 hao3"),
        ("看不见", "kan4 bu2 jian4"),
        # 一
        ("一个", "i2 ge4"),
        ("一万", "i2 uan4"),
        ("一天", "i4 tian1"),
        ("一条", "i4 tiao2"),
        ("一百", "i4 bai3"),
        ("第一天", "di4 i1 tian1"),
        ("统一", "tong3 i1"),
        ("十一", "shir2 i1"),
        ("一九九八年", "i1 jiou2 jiou3 ba1 nian2"),
        ("一月", "i1 ve4"),
        ("看一看", "kan4 i5 kan4"),
        # the neutral tone
        ("妈妈", "ma1 ma5"),
        ("葡萄", "pu2 tao5"),
        ("我的桌子", "uo3 de5 zhuo1 ziz5"),
        ("好吗", "hao3 ma5"),
        ("吃了", "chir1 le5"),
        ("跑得快", "pao3 de5 kuai4"),
        ("得到", "de2 dao4"),
        # erhua
        ("花儿", "hua1r"),
        ("小孩儿玩儿", "xiao3 hai2r uan2r"),
        ("女儿和儿子", "nv3 er2 he2 er2 ziz5"),
        # with English and marks
        ("我用 iPhone 十五打电话.", "uo3 iong4 iPhone shir2 u2 da3 dian4 hua4 ."),
        ("喝 OK, 好吗?", "he1 OK, hao3 ma5 ?"),
        ("問題", "uen4 ti2"),
    ],
)
def test_what_is_said(text: str, said: str) -> None:
    assert _said(text) == said


def test_phones_carry_the_tone() -> None:
    (syllable,) = read("花儿")
    assert isinstance(syllable, Syllable)
    assert syllable == Syllable("花儿", "h", "ua", 1, erhua=True)
    assert syllable.phones == ("zh_h", "zh_ua1", "zh_rr")


def test_the_english_phones_keep_their_ids() -> None:
    assert not set(MANDARIN_PHONES) & set(PHONES)
    assert len(set(MANDARIN_PHONES)) == len(MANDARIN_PHONES)
    ids = [i for part in read("花儿你好") if isinstance(part, Syllable) for i in part.ids]
    assert min(ids) >= len(PHONES)
    assert [(*PHONES, *MANDARIN_PHONES)[i] for i in ids] == "zh_h zh_ua1 zh_rr zh_n zh_i2 zh_h zh_ao3".split()


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), max_size=20) | st.text(max_size=40))
def test_every_text_is_read(text: str) -> None:
    for part in read(normalize(text, ("en", "zh")).text):
        if isinstance(part, Syllable):
            assert set(part.phones) <= set(MANDARIN_PHONES)
        else:
            assert part.strip() == part != ""


def test_numbers_are_said_after_normalization() -> None:
    assert _said(normalize("2个人3:05", ("zh",)).text) == "liang3 ge4 ren2 san1 dian3 ling2 u3 fen1"


def test_pypinyin_is_loaded_for_chinese_only() -> None:
    code = (
        "import sys; from voicelab.engine.text.mandarin import read; assert read('Hello, you.') == ('Hello, you.',); "
        "assert 'pypinyin' not in sys.modules; read('你'); assert 'pypinyin' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
