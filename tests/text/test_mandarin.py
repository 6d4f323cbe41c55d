"""What a Mandarin reader says for what people write in Chinese: one table, and what holds for every text."""

from __future__ import annotations

import pytest

from voicelab.errors import RequestInvalid
from voicelab.text import as_written, normalize
from voicelab.text.clean import speakable
from voicelab.text.mandarin import cardinal

BOTH = ("en", "zh")

TABLE = {
    "money": {
        "￥1,234.56元，票价100元，一共3.50元，他有$5": "一千二百三十四点五六元, 票价一百元, 一共三点五元, 他有五美元",
        "花了€20.5和£8，3.5亿元，12块5毛，200万美元": "花了二十点五欧元和八英镑, 三点五亿元, 十二块五毛, 两百万美元",
        "$3.5M的项目，收费$5-10，付RMB 100": "三百五十万美元的项目, 收费五到十美元, 付一百元",
    },
    "dates": {
        "2024年3月5日": "二零二四年三月五日",
        "今天是2024-03-05。": "今天是二零二四年三月五日.",
        "3月5号，1998年和98年，20世纪80年代，5000年文明": "三月五号, 一九九八年和九八年, 二十世纪八十年代, 五千年文明",
        "他活了80年，3月5日-8日，周一-周五，2024Q3财报": "他活了八十年, 三月五日到八日, 周一到周五, 二零二四 Q 三财报",
        "2008-09赛季，二〇二四年，2023-2024学年": "二零零八到零九赛季, 二零二四年, 二零二三到二零二四学年",
        "2008-2009赛季，2023～2024财年": "二零零八到二零零九赛季, 二零二三到二零二四财年",
        "2020-2024人": "两千零二十到两千零二十四人",
    },
    "times": {
        "现在是3:05，下午3点，15:30开会，8:00出发": "现在是三点零五分, 下午三点, 十五点三十分开会, 八点出发",
        "２：３０开始，10:15:30结束，上午9:30-11:30": "两点三十分开始, 十点十五分三十秒结束, 上午九点三十分到十一点三十分",
        "早上7:30 AM起床，2小时30分，12点和2点": "早上七点三十分起床, 两小时三十分, 十二点和两点",
    },
    "units": {
        "从5km-10km，2kg苹果，60km/h的速度": "从五公里到十公里, 两公斤苹果, 六十公里每小时的速度",
        "重力是10m/s²，100㎡的房子，增长30%": "重力是十米每平方秒, 一百平方米的房子, 增长百分之三十",
        "下降-5%，今天25℃，45°角，100Mbps宽带": "下降百分之负五, 今天二十五摄氏度, 四十五度角, 一百兆比特每秒宽带",
        "16GB内存，高1.75米": "十六 GB 内存, 高一点七五米",
    },
    "counted": {
        "2个人，12个人，22只，2月2日": "两个人, 十二个人, 二十二只, 二月二日",
        "2号楼，买2送1，2次和2次方，2000人": "二号楼, 买二送一, 两次和二次方, 两千人",
        "22222人，3個人和2歲，2百2十": "两万二千二百二十二人, 三個人和两歲, 两百二十",
    },
    "ordinals": {
        "第3名，第200页，第3-5章，①号": "第三名, 第二百页, 第三到五章, 一号",
        "Ⅱ型": "二型",
        "1. 苹果": "一, 苹果",
    },
    "telephone": {
        "请打13812345678": "请打幺三八, 幺二三四, 五六七八",
        "+86 138 1234 5678是我的": "加八六, 幺三八, 幺二三四, 五六七八是我的",
        "400-123-4567客服，拨打110": "四零零, 幺二三, 四五六七客服, 拨打幺幺零",
        "12306热线，3楼2单元501室，编号007": "幺二三零六热线, 三楼二单元五零幺室, 编号零零七",
        "K123次列车，波音747": "K 幺二三次列车, 波音七四七",
        "211大学": "二幺幺大学",
        "卡号6222 0210 0100 1234": "卡号六二二二, 零二幺零, 零幺零零, 幺二三四",
    },
    "numbers": {
        "圆周率是3.14，110元和15人，1005个和1050个": "圆周率是三点一四, 一百一十元和十五人, 一千零五个和一千零五十个",
        "12345号，1,000人，１２３个": "一万二千三百四十五号, 一千人, 一百二十三个",
        "共1234567人": "共一百二十三万四千五百六十七人",
        "12345678901234567890个": "一二三四五六七八九零一二三四五六七八九零个",
        "100+人": "一百多人",
    },
    "fractions": {
        "1/2的人，2½杯，9/11事件": "二分之一的人, 二又二分之一杯, 九幺幺事件",
    },
    "ranges": {
        "10~20人，3～5天，1-2次，比分是3:2": "十到二十人, 三到五天, 一到两次, 比分是三比二",
    },
    "sums": {
        "他说：“1+1=2，对吗？”": "他说: 一加一等于二, 对吗?",
        "计算3×4=12和10÷2，答案是5-3=2": "计算三乘四等于十二和十除以二, 答案是五减三等于二",
        "如果x>5，那么y≤3，IP是192.168.1.1": "如果 x 大于五, 那么 y 小于等于三, IP 是一九二点一六八点一点一",
        "误差<5%，≥18岁，年龄 <= 60岁，价格<¥100": "误差小于百分之五, 大于等于十八岁, 年龄小于等于六十岁, 价格小于一百元",
        "体温>37.5℃，利率>-5%，误差≈5%": "体温大于三十七点五摄氏度, 利率大于百分之负五, 误差约百分之五",
        "准确率=90%，100>99和5%<6%": "准确率等于百分之九十, 一百大于九十九和百分之五小于百分之六",
        "<b>重要</b>的3个": "重要的三个",
    },
    "mixed": {
        "我用iPhone 15打电话": "我用 iPhone 十五打电话",
        "电话010-8888 1234": "电话零幺零, 八八八八, 幺二三四",
        "电话021 6543 2100": "电话零二幺, 六五四三, 二幺零零",
        "版本3.010 1234": "版本三点零一零一千二百三十四",
        "COVID-19疫情": "COVID 十九疫情",
        "B2B模式": "B 二 B 模式",
        "CO₂排放": "CO 二排放",
        "PM2.5很高": "PM 二点五很高",
        "HTTP 404错误": "HTTP 四零四错误",
        "GDP 5000亿元": "GDP 五千亿元",
        "A股、T恤和卡拉OK": "ay 股, T 恤和卡拉 OK",
        "C++、C#和R&D": "C plus plus, C sharp 和 R and D",
        "Dr. Smith来了": "Doctor Smith 来了",
        "I have 3 apples。我有3个苹果。": "I have three apples. 我有三个苹果.",
        '他说 "I have 2 cats" 然后走了2步。': "他说 I have two cats 然后走了两步.",
        "On Jan. 5, 2024 we met. 我们在2024年1月5日见面。": "On January fifth, twenty twenty-four we met. "
        "我们在二零二四年一月五日见面.",
        "访问www.baidu.com吧": "访问 W W W 点 baidu 点 com 吧",
        "发到a@b.com。": "发到 ay 艾特 B 点 com.",
        "click第2个button": "click 第二个 button",
        "Python第3版": "Python 第三版",
        "我有 $5.99 的": "我有五点九九美元的",
        "这个 function 有 3 个参数": "这个 function 有三个参数",
    },
    "as pasted": {
        '身高5\'10"，配速5\'10"，屏幕27"，他说"第27"': "身高五英尺十英寸, 配速五分十秒, 屏幕二十七英寸, 他说第二十七",
        "北纬39°54′26″，单号SF12345678，预计3/14 14:30前": "北纬三十九度五十四分二十六秒, 单号 SF 幺二三四五六七八, "
        "预计三月十四日十四点三十分前",
        "房间号808，航班CA1234，QQ:12345678": "房间号八零八, 航班 CA 幺二三四, QQ: 幺二三四五六七八",
        "INV-2026/0042号，HT2026-031，京A·12345": "INV 二零二六, 零零四二号, HT 二零二六, 零三幺, 京 ay 幺二三四五",
        "电话0086-10-12345678，价格￥１２，８００": "电话零零, 八六, 幺零, 幺二三四五六七八, 价格一万二千八百元",
        "单价5.2万/㎡，油耗6.5L/100km": "单价五点二万每平方米, 油耗六点五升每一百公里",
        "血压120/80mmHg，150N·m，Ø5mm": "血压一百二十比八十毫米汞柱, 一百五十牛米, 直径五毫米",
        "李明(1990-2020)，(2019)京01民终": "李明, 一九九零到二零二零, 二零一九, 京零一民终",
        "约翰福音3:16，3月14日—16日，15k-25k": "约翰福音三章十六节, 三月十四日到十六日, 十五 k 到二十五 k",
        "煮10'，他说'第10'，“9·11”事件，“3·15”晚会，Ep.12": "煮十分, 他说第十, 九幺幺事件, 三幺五晚会, Ep 十二",
        "账号：6222 0210 0100 1234 567": "账号: 六二二二, 零二幺零, 零幺零零, 幺二三四, 五六七",
        "税号91110108MA01ABCD2X": "税号九幺幺幺零幺零八 M A 零幺 A B C D 二 X",
        "电话(010)8888-1234转801": "电话零幺零, 八八八八, 幺二三四转八零幺",
        "法释〔2020〕17号，10kΩ": "法释, 二零二零, 十七号, 十千欧",
    },
    "english with chinese words": {
        "The word 你好 appears 3 times.": "The word 你好 appears three times.",
        "The price is $5.99 (约¥42).": "The price is five dollars and ninety-nine cents, 约四十二元.",
        "It is sampled at 44.1 kHz 采样 and stored.": "It is sampled at forty-four point one kilohertz 采样 and stored.",
        "We found 声调 results with p < 0.05.": "We found 声调 results with p less than zero point zero five.",
        "In 2024 he met 李明 at 3:05.": "In twenty twenty-four he met 李明 at three oh five.",
        "He said 你好, which means hello, 5 times.": "He said 你好, which means hello, five times.",
        "The 第3章 is good and has 5 pages.": "The 第三章 is good and has five pages.",
        "We think the plan needs 3 个人 or 5 people.": "We think the plan needs 三个人 or five people.",
        "See www.baidu.com for the 百度 news.": "See W W W dot baidu dot com for the 百度 news.",
    },
    "lines": {
        "床前明月光，\n疑是地上霜。\n举头": "床前明月光, 疑是地上霜. 举头",
        "会议通知\n时间：3月5日\n地点：北京": "会议通知, 时间: 三月五日, 地点: 北京",
        "1. 苹果\n2. 香蕉\n10. 梨": "一, 苹果. 二, 香蕉. 十, 梨",
        "1.苹果\n2.香蕉": "一, 苹果. 二, 香蕉",
        "1、苹果\n2、香蕉": "一, 苹果. 二, 香蕉",
        "购物\n- 苹果\n- 香蕉": "购物. 苹果. 香蕉",
        "Hello\n你好\nWorld": "Hello, 你好, World",
        "价格3.5元\n3.5倍": "价格三点五元, 三点五倍",
        "标题\n\n正文": "标题. 正文",
        "你好\n": "你好",
        f"{'长' * 30}\n行": f"{'长' * 30}行",
        f"{'长' * 29}\n行": f"{'长' * 29}, 行",
    },
    "marks": {
        "《三体》、『你好』【注意】": "三体, 你好, 注意",
        "（见第5页）": "见第五页",
        "卡尔·马克思": "卡尔马克思",
        "我……不知道": "我, 不知道",
        "他——走了": "他 — 走了",
        "好的～": "好的",
        "真的？！好！！": "真的? 好!",
        "你好😀世界": "你好世界",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("written", "said"),
    [pytest.param(w, s, id=f"{group}-{i}") for group, rows in TABLE.items() for i, (w, s) in enumerate(rows.items())],
)
def test_normalized_text(written: str, said: str) -> None:
    assert normalize(written, BOTH).text == said


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "零"), (10, "十"), (19, "十九"), (110, "一百一十"), (1015, "一千零一十五"),
        (10_005, "一万零五"), (20_000, "两万"),
        (100_010, "十万零一十"), (100_500, "十万零五百"), (101_000, "十万一千"), (1_001_000, "一百万一千"),
        (2 * 10**7, "两千万"),
        (100_000_001, "一亿零一"), (100_200_300, "一亿零二十万零三百"), (1_100_000_000, "十一亿"), (10**12, "一万亿"),
    ],
)  # fmt: skip
def test_cardinals(number: int, words: str) -> None:
    assert cardinal(number) == words


def test_ordinals_never_use_liang() -> None:
    assert [cardinal(n, ordinal=True) for n in (2, 200, 2000)] == ["二", "二百", "二千"]


def test_chinese_is_noted_for_a_voice_without_mandarin() -> None:
    result = normalize("The word is 你好 in 3 places")
    assert result.text == "The word is in three places"
    assert result.notes == ("Chinese characters cannot be spoken and were left out: 你好",)


def test_chinese_has_no_notes_for_a_mandarin_voice() -> None:
    assert normalize("你好，《三体》第3部。", BOTH).notes == ()
    assert speakable("你好世界", BOTH) == ()
    assert speakable("第3章", ("zh",)) == ()


def test_other_scripts_are_rejected_for_a_mandarin_voice() -> None:
    with pytest.raises(RequestInvalid, match="it reads English and Mandarin"):
        speakable("Привет, мир", BOTH)
    with pytest.raises(RequestInvalid, match="Japanese"):
        speakable("こんにちは世界", BOTH)


def test_digits_for_a_voice_with_mandarin_only() -> None:
    assert normalize("3:05", ("zh",)).text == "三点零五分"
    assert normalize("3:05", BOTH).text == "three oh five"


def test_as_written_reads_digits_in_the_surrounding_language() -> None:
    result = as_written("¥3.50是2024年的价格，I have 3 of them。", BOTH)
    assert result.text == "三点五零是二零二四年的价格, I have three of them."
    assert result.notes == ("symbols left out because normalize is off: ¥",)


def test_as_written_separates_lines() -> None:
    assert as_written("床前明月光\n疑是地上霜", BOTH).text == "床前明月光, 疑是地上霜"
    assert as_written("The word 你好 is in 3 places", BOTH).text == "The word 你好 is in three places"
