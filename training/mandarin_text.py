"""Mandarin sentences from Debian's Chinese manuals, poems and word lists, and templates for other kinds of text.

Sampling is deterministic by seed.
"""

from __future__ import annotations

import gzip
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import numpy as np

PACKAGES = ("manpages-zh", "debian-faq-zh-cn", "maint-guide-zh-cn", "debian-edu-doc-zh-cn", "fortunes-zh", "rime-essay")
"""Documentation of free software, Tang and Song poems, and a word list with frequencies."""

_HAN = "\u4e00-\u9fff"
_SENTENCE = re.compile(f"(?<![{_HAN}0-9A-Za-z])[{_HAN}](?:[{_HAN}]|[，、；：](?=[{_HAN}]))+[。？！]")
_UNWANTED = re.compile("[性淫奸妓毒杀死尸屍殺屎尿奴娼嫖屌]|强暴|纳粹|自慰")
QUESTIONS = (
    "这是{}吗？|你知道{}吗？|{}在哪儿呢？|什么是{}？|你喜欢{}还是{}？|谁找到了{}？|{}怎么样？|"
    "你呢，{}呢？|为什么要{}？|你是不是{}？"
)
STATEMENTS = (
    "我很喜欢{}。|他说{}和{}不一样。|我们有{}、{}和{}。|她买了{}个{}。|昨天我看见了{}。|请你把{}给我。|那儿有一点儿{}。|"
    "今天没有{}，也没有{}。|一会儿我们去{}。|真的是{}！|多么好的{}！|关于{}的事情，我不知道。|{}，{}，{}。|小孩儿在那边儿玩儿{}呢。|"
    "不要{}！|我觉得{}比{}好。|先生说得对，{}很重要。|有点儿{}。|等一会儿再说{}吧。|这个故事的名字叫{}。|他们的朋友一下儿就{}了。"
)
_NUMBERED = (
    "一共{n}块钱。|今年是{y}年。|他住在{n}号。|现在{h}点{m}分。|{mo}月{d}日，星期{w}。|温度是{s}度。|他有{n}本书。|百分之{s}。|"
    "第{s}个是{}。|我的电话是{p}。|{n}加{n}等于多少？|{s}.{s}公里。|差{m}分{h}点。"
)
_ERHUA = (
    "花儿 玩儿 一点儿 这儿 那儿 哪儿 小孩儿 事儿 门儿 味儿 歌儿 鸟儿 画儿 块儿 空儿 劲儿 面条儿 "
    "冰棍儿 一会儿 好好儿 胡同儿 聊天儿"
).split()


def unpack(folder: Path) -> Path:
    """Download and unpack the packages under `folder`, without installing them; existing files are reused."""
    root = folder / "texts"
    if not root.exists():
        debs = folder / "debs"
        debs.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=debs, check=True)
        for deb in sorted(debs.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(deb), str(root)], check=True)
    return root


def _texts(root: Path) -> Iterator[str]:
    share = root / "usr/share"
    for path in sorted((share / "man/zh_CN").rglob("*.gz")):
        lines = gzip.decompress(path.read_bytes()).decode("utf-8", "ignore").splitlines()
        yield re.sub(r"\\f.|\\&", "", "\n".join("\n\n" if line[:1] in ".'" else line for line in lines))
    for path in sorted((share / "doc").rglob("*.gz")):
        if path.name.endswith("zh-cn.txt.gz"):
            yield gzip.decompress(path.read_bytes()).decode("utf-8", "ignore")
    for path in sorted((share / "doc").rglob("*manual.html")):
        yield unescape(re.sub(r"<[^>]*>", " ", path.read_text(encoding="utf-8")))
    for path in sorted((share / "games/fortunes").glob("*.u8")):
        yield re.sub(r"\x1b\[[0-9]*m", "\n", path.read_text(encoding="utf-8"))


def real_sentences(root: Path, min_length: int = 3, max_length: int = 25) -> list[str]:
    """Return unique sentences of only Chinese characters, in file order; long ones are split at commas."""
    out: dict[str, None] = {}
    for text in _texts(root):
        joined = re.sub(f"(?<=[{_HAN}，、；：])[ \t]*\n?[ \t]*(?=[{_HAN}，、；：。？！])", "", text)
        for sentence in _SENTENCE.findall(joined):
            for clause in _split(sentence, max_length):
                if min_length <= len(clause) and not _UNWANTED.search(clause):
                    out[clause] = None
    return list(out)


def _split(sentence: str, max_length: int) -> Iterator[str]:
    clauses = re.split("(?<=[，；：])", sentence)
    held = ""
    for clause in clauses:
        if held and len(held) + len(clause) > max_length:
            yield held[:-1] + "。"
            held = ""
        held += clause
    if len(held) <= max_length + 10:
        yield held


def words(root: Path, characters: set[str]) -> tuple[list[str], np.ndarray]:
    """Return words of 2 to 4 characters of `characters`, and their probabilities by the square root of frequency."""
    weights: dict[str, float] = {}
    for line in (root / "usr/share/rime-data/essay.txt").read_text(encoding="utf-8").splitlines():
        word, _, count = line.partition("\t")
        fit = 2 <= len(word) <= 4 and count.isdigit() and int(count) >= 30 and set(word) <= characters
        if fit and not _UNWANTED.search(word):
            weights[word] = float(count) ** 0.5
    share = np.array(list(weights.values()))
    return list(weights), share / share.sum()


class Sentences:
    """Random generator of sentences."""

    def __init__(self, root: Path, seed: int = 11) -> None:
        self.rng = np.random.default_rng(seed)
        self.real = real_sentences(root)
        self.characters = Counter("".join(self.real))
        self.words, self.share = words(root, {c for c, n in self.characters.items() if n >= 3})
        self._drawn: list[str] = []
        self._even = sorted(c for c in self.characters if re.match(f"[{_HAN}]", c) and not _UNWANTED.search(c))

    def word(self) -> str:
        """Draw a word."""
        if not self._drawn:
            self._drawn = [self.words[int(i)] for i in self.rng.choice(len(self.words), size=4096, p=self.share)]
        return self._drawn.pop()

    def _pick(self, values: list[str]) -> str:
        return values[int(self.rng.integers(len(values)))]

    def _thing(self) -> str:
        return self._pick(_ERHUA) if self.rng.random() < 0.12 else self.word()

    def _number(self) -> str:
        integers = self.rng.integers
        frame = self._pick(_NUMBERED.split("|"))
        drawn: dict[str, Callable[[], object]] = {
            "n": lambda: int(10 ** self.rng.uniform(0, 5.3)),
            "y": lambda: integers(1900, 2030),
            "h": lambda: integers(1, 24),
            "m": lambda: integers(2, 60),
            "mo": lambda: integers(1, 13),
            "d": lambda: integers(1, 32),
            "w": lambda: "一二三四五六"[integers(6)],
            "s": lambda: integers(1, 100),
            "p": lambda: "1" + "".join(str(integers(10)) for _ in range(10)),
        }
        return re.sub(r"\{(\w*)\}", lambda m: str(drawn[m[1]]()) if m[1] else self.word(), frame)

    def draw(self) -> str:
        """Draw a sentence."""
        kind = self.rng.random()
        if kind < 0.46:
            return self._pick(self.real)
        if kind < 0.56:  # random characters, to cover rare syllables
            return "".join(self._pick(self._even) for _ in range(int(self.rng.integers(2, 9)))) + self._pick(
                [*"。。。，？！"]
            )
        if kind < 0.66:
            return "".join(self.word() for _ in range(int(self.rng.integers(1, 4)))) + self._pick([*"。。。，？！"])
        if kind < 0.74:
            return self._number()
        frames = QUESTIONS if kind < 0.84 else STATEMENTS
        return re.sub(r"\{\}", lambda _: self._thing(), self._pick(frames.split("|")))
