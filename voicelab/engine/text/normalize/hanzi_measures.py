"""What is counted and measured in Chinese: data for `hanzi_rules`."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CODES", "MEASURES", "MONEY", "UNITS"]

UNITS: Final = {
    "km": "公里", "m": "米", "dm": "分米", "cm": "厘米", "mm": "毫米", "µm": "微米", "nm": "纳米",
    "kg": "公斤", "g": "克", "mg": "毫克", "µg": "微克", "t": "吨",
    "L": "升", "l": "升", "mL": "毫升", "ml": "毫升",
    "h": "小时", "hr": "小时", "min": "分钟", "s": "秒", "ms": "毫秒",
    "Hz": "赫兹", "kHz": "千赫", "MHz": "兆赫", "GHz": "吉赫",
    "W": "瓦", "kW": "千瓦", "MW": "兆瓦", "kWh": "千瓦时", "V": "伏", "kV": "千伏", "mA": "毫安", "mAh": "毫安时",
    "Ω": "欧姆", "J": "焦耳", "kJ": "千焦", "cal": "卡", "kcal": "千卡", "Pa": "帕", "kPa": "千帕", "MPa": "兆帕",
    "N": "牛", "dB": "分贝", "mol": "摩尔", "ft": "英尺", "mi": "英里", "lb": "磅", "oz": "盎司", "ha": "公顷",
    "mph": "英里每小时", "rpm": "转每分钟", "Mbps": "兆比特每秒", "Gbps": "吉比特每秒", "px": "像素",
}  # fmt: skip
"""Symbol → name; what people say as letters (GB, MB) is left as letters."""

MONEY: Final = {"¥": "元", "$": "美元", "€": "欧元", "£": "英镑", "₹": "卢比"}
CODES: Final = {
    "RMB": "元", "CNY": "元", "USD": "美元", "US$": "美元", "EUR": "欧元", "GBP": "英镑", "JPY": "日元", "HKD": "港元",
    "HK$": "港元", "NT$": "新台币", "TWD": "新台币", "A$": "澳元", "AUD": "澳元", "C$": "加元", "CAD": "加元",
    "S$": "新加坡元",
}  # fmt: skip

_WORDS: Final = (
    "个 個 只 隻 条 條 张 張 本 位 名 件 台 臺 辆 輛 间 間 家 所 座 回 遍 趟 场 場 "
    "局 轮 輪 届 屆 天 周年 小时 小時 分 秒 点 點 岁 歲 人 元 块 塊 毛 角 美元 欧元 "
    "英镑 斤 公 千 克 吨 噸 磅 米 厘 毫 里 寸 尺 升 倍 成 种 種 类 類 项 項 款 份 "
    "对 對 双 雙 套 批 群 把 根 支 枝 颗 顆 粒 片 幅 副 首 部 篇 节 節 门 門 句 页 "
    "頁 行 列 排 杯 碗 瓶 盒 箱 包 袋 桶 盘 盤 壶 口 头 頭 匹 棵 株 朵 架 艘 顶 頂 "
    "扇 面 笔 筆 封 集 大 万 萬 亿 億 百 平方 立方 英里 英尺 星期 周 季 年 名 步 拳 "
    "针 針 胎 国 國 地 省 市"
)
MEASURES: Final = (
    "(?:" + "|".join(map(re.escape, sorted(_WORDS.split(), key=len, reverse=True))) + ")|次(?![方元函])|代(?=人)"
)
"""What makes a 2 before it 两; 月, 日, 号, 楼, 级 and their like are counted with 二."""
