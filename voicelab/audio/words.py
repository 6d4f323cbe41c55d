"""Words with their times, and the files that other tools keep them in: Praat's TextGrid, SRT and WebVTT."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from voicelab.display import Shown
from voicelab.errors import AudioError
from voicelab.storage import open_atomic

_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_TOKENS: Final = re.compile(rf'"((?:[^"]|"")*)"|({_NUMBER})')
_MARK: Final = r"(?:(\d+):)?(\d+):(\d+)[.,](\d{3})"
_CUE: Final = re.compile(rf"{_MARK}\s*-->\s*{_MARK}[^\n]*\n(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")
_BOMS: Final = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


@dataclass(frozen=True, slots=True)
class WordTime:
    """A word of the text and when it is said, in seconds from the beginning of the clip."""

    text: str
    start: float
    end: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.end) and 0.0 <= self.start <= self.end):
            raise AudioError(f"words: {self.text!r} lasts from {self.start} to {self.end} s, which is no time span")


class Words(Shown, tuple[WordTime, ...]):  # noqa: SLOT001 (a tuple takes no slots but empty ones)
    """The words of a clip in the order in which they are said; a tuple that can be saved and loaded.

    ``duration`` is that of the clip in seconds, which a TextGrid states. ``likelihood`` is how well forced alignment
    thinks that they fit, the median of its words (natural logarithm for each 10 ms: about -1 for what is said, -5 for what
    is not); None where the times are not from one.
    """

    duration: float
    likelihood: float | None

    def __new__(cls, words: Iterable[WordTime] = (), duration: float = 0.0, likelihood: float | None = None) -> Self:
        """Hold ``words``; the duration is never less than where the last one ends."""
        held = super().__new__(cls, words)
        held.likelihood = getattr(words, "likelihood", None) if likelihood is None else likelihood
        held.duration = max(duration, *(word.end for word in held), 0.0)
        return held

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.duration, self.likelihood

    def save(self, path: str | Path) -> Path:
        """Write the words, each with its times; the suffix says how: .TextGrid, .srt or .vtt.

        Returns the path. Raises AudioError for another suffix and OSError when it cannot be written.
        """
        target = Path(path)
        writer, _ = _format_of(target)
        data = writer(self).encode()
        with open_atomic(target, sync=False) as file:
            file.write(data)
        return target

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a .TextGrid (its tier "words", else the first one with intervals), .srt or .vtt file; a cue is one entry.

        Raises AudioError when it is none of these, and OSError when it cannot be read.
        """
        source = Path(path)
        _, reader = _format_of(source)
        data = source.read_bytes()
        encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
        try:
            return cls(reader(data.decode(encoding).replace("\r\n", "\n")))
        except (AudioError, ValueError) as error:
            raise AudioError(f"words: {source.name!r} is no {source.suffix.lstrip('.')} file: {error}") from error


def textgrid(tiers: Mapping[str, Words]) -> str:
    """Return a TextGrid in its long form, with these tiers of intervals.

    What lies between words is an interval without text, as Praat wants it; of words that overlap the later begins where the
    earlier ends.
    """
    duration = max((words.duration for words in tiers.values()), default=0.0)
    whole = f"xmin = 0\nxmax = {duration:.6f}\n"
    text = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
    text += f"{whole}tiers? <exists>\nsize = {len(tiers)}\nitem []:\n"
    for place, (name, words) in enumerate(tiers.items(), start=1):
        intervals = _intervals(words, duration)
        text += f'item [{place}]:\nclass = "IntervalTier"\nname = "{name}"\n{whole}intervals: size = {len(intervals)}\n'
        for number, (start, end, label) in enumerate(intervals, start=1):
            quoted = label.replace('"', '""')
            text += f'intervals [{number}]:\nxmin = {start:.6f}\nxmax = {end:.6f}\ntext = "{quoted}"\n'
    return text


def _intervals(words: Words, duration: float) -> list[tuple[float, float, str]]:
    intervals: list[tuple[float, float, str]] = []
    at = 0.0
    for word in sorted(words, key=lambda word: word.start):
        if word.start > at:
            intervals.append((at, word.start, ""))
        if word.end > max(at, word.start):
            intervals.append((max(at, word.start), word.end, word.text))
            at = word.end
    if duration > at or not intervals:
        intervals.append((at, duration, ""))
    return intervals


def _of_textgrid(text: str) -> list[WordTime]:
    """Read the long form or the short one: both have the same strings and numbers in the same order."""
    tokens = iter(
        quoted.replace('""', '"') if number == "" else float(number)
        for quoted, number in _TOKENS.findall(re.sub(r"\[\d*\]", "", text))
    )

    def take(kind: type[Any]) -> Any:
        value = next(tokens, None)
        if not isinstance(value, kind):
            raise AudioError(f"{kind.__name__} expected, not {value!r}")
        return value

    if (take(str), take(str)) != ("ooTextFile", "TextGrid"):
        raise AudioError("it does not begin as one")
    take(float), take(float)
    tiers: dict[str, list[WordTime]] = {}
    for _ in range(int(take(float))):
        kind, name, *_, count = take(str), take(str), take(float), take(float), int(take(float))
        if kind == "TextTier":
            for _ in range(count):
                take(float), take(str)
            continue
        rows = [(take(float), take(float), take(str)) for _ in range(count)]
        tiers[name] = [WordTime(word.strip(), start, end) for start, end, word in rows if word.strip()]
    if not tiers:
        raise AudioError("it has no tier of intervals")
    return tiers.get("words", next(iter(tiers.values())))


def _clock(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"


def _cues(words: Words, point: str) -> list[str]:
    return [f"{_clock(one.start, point)} --> {_clock(one.end, point)}\n{one.text}\n\n" for one in words]


def _of_cues(text: str) -> list[WordTime]:
    cues = _CUE.findall(text)
    if text.strip() not in {"", "WEBVTT"} and not cues:
        raise AudioError("it has no cues")
    return [
        WordTime(" ".join(_TAG.sub("", said).split()), _seconds(*mark[:4]), _seconds(*mark[4:])) for *mark, said in cues
    ]


def _seconds(hours: str, minutes: str, seconds: str, milliseconds: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(milliseconds) / 1000


_Format = tuple[Callable[[Words], str], Callable[[str], list[WordTime]]]
_FORMATS: Final[dict[str, _Format]] = {
    ".textgrid": (lambda words: textgrid({"words": words}), _of_textgrid),
    ".srt": (lambda words: "".join(f"{n}\n{cue}" for n, cue in enumerate(_cues(words, ","), start=1)), _of_cues),
    ".vtt": (lambda words: "".join(["WEBVTT\n\n", *_cues(words, ".")]), _of_cues),
}


def _format_of(path: Path) -> _Format:
    chosen = _FORMATS.get(path.suffix.lower())
    if chosen is None:
        raise AudioError(f"words: {path.name!r} does not end in one of .TextGrid, .srt, .vtt")
    return chosen
