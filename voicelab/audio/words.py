"""Word timestamps, and their file formats: Praat TextGrid, SRT and WebVTT."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from voicelab.display import Shown
from voicelab.errors import AudioError
from voicelab.guesses import Guided
from voicelab.storage import write_atomic

_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_TOKENS: Final = re.compile(rf'"((?:[^"]|"")*)"|({_NUMBER})')
_TIMESTAMP: Final = r"(?:(\d+):)?(\d+):(\d+)[.,](\d{3})"
_CUE: Final = re.compile(rf"{_TIMESTAMP}\s*-->\s*{_TIMESTAMP}[^\n]*\n(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")
_BOMS: Final = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


@dataclass(frozen=True, slots=True)
class WordTime(metaclass=Guided):
    """A word with its start and end in seconds from the start of the clip."""

    text: str
    start: float
    end: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.end) and 0.0 <= self.start <= self.end):
            raise AudioError(
                f"words: times must satisfy 0 <= start <= end, got {self.start} to {self.end} s for {self.text!r}"
            )


class Words(Shown, tuple[WordTime, ...], metaclass=Guided):  # noqa: SLOT001 (a tuple takes no slots but empty ones)
    """Word timestamps of a clip, in order; a tuple with ``save`` and ``load``.

    ``duration`` is the clip's duration in seconds, the end of a TextGrid. ``likelihood`` is the log-likelihood of the
    forced alignment: the median over words of the mean natural logarithm per 10 ms frame, about -1 for spoken and -5 for
    absent words; None if the times have another source. ``source`` names the model that found the times, "" for the backend.
    """

    duration: float
    likelihood: float | None
    source: str

    def __new__(
        cls, words: Iterable[WordTime] = (), duration: float = 0.0, likelihood: float | None = None, source: str = ""
    ) -> Self:
        """Create from an iterable of words; the duration is at least the end of the last word."""
        instance = super().__new__(cls, words)
        instance.source = source or getattr(words, "source", "")
        instance.likelihood = getattr(words, "likelihood", None) if likelihood is None else likelihood
        instance.duration = max(duration, *(word.end for word in instance), 0.0)
        return instance

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.duration, self.likelihood, self.source

    def save(self, path: str | Path) -> Path:
        """Write the words to a .TextGrid, .srt or .vtt file and return its path.

        A missing folder is created. Raises AudioError for any other suffix, and StoreError if the file cannot be written.
        """
        target = Path(path)
        writer, _ = _format_of(target)
        write_atomic(target, writer(self).encode(), sync=False)
        return target

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a .TextGrid (its tier "words", else the first interval tier), .srt or .vtt file (one entry per cue).

        Raises AudioError for invalid content or any other suffix, and OSError if the file cannot be read.
        """
        source = Path(path)
        _, reader = _format_of(source)
        data = source.read_bytes()
        encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
        try:
            return cls(reader(data.decode(encoding).replace("\r\n", "\n")))
        except (AudioError, ValueError) as error:
            raise AudioError(
                f"words: {source.name!r} is not a valid {source.suffix.lstrip('.')} file: {error}"
            ) from error


def textgrid(tiers: Mapping[str, Words]) -> str:
    """Format interval tiers as a TextGrid in the long format.

    Gaps become intervals with an empty label, as Praat requires; a word that overlaps the previous one begins at its end.
    """
    duration = max((words.duration for words in tiers.values()), default=0.0)
    bounds = f"xmin = 0\nxmax = {duration:.6f}\n"
    text = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
    text += f"{bounds}tiers? <exists>\nsize = {len(tiers)}\nitem []:\n"
    for index, (name, words) in enumerate(tiers.items(), start=1):
        intervals = _intervals(words, duration)
        text += (
            f'item [{index}]:\nclass = "IntervalTier"\nname = "{name}"\n{bounds}intervals: size = {len(intervals)}\n'
        )
        for number, (start, end, label) in enumerate(intervals, start=1):
            quoted = label.replace('"', '""')
            text += f'intervals [{number}]:\nxmin = {start:.6f}\nxmax = {end:.6f}\ntext = "{quoted}"\n'
    return text


def _intervals(words: Words, duration: float) -> list[tuple[float, float, str]]:
    intervals: list[tuple[float, float, str]] = []
    previous_end = 0.0
    for word in sorted(words, key=lambda word: word.start):
        if word.start > previous_end:
            intervals.append((previous_end, word.start, ""))
        if word.end > max(previous_end, word.start):
            intervals.append((max(previous_end, word.start), word.end, word.text))
            previous_end = word.end
    if duration > previous_end or not intervals:
        intervals.append((previous_end, duration, ""))
    return intervals


def _parse_textgrid(text: str) -> list[WordTime]:
    """Parse a TextGrid; the long and short formats contain the same strings and numbers in the same order."""
    tokens = iter(
        quoted.replace('""', '"') if number == "" else float(number)
        for quoted, number in _TOKENS.findall(re.sub(r"\[\d*\]", "", text))
    )

    def take(kind: type[Any]) -> Any:
        value = next(tokens, None)
        if not isinstance(value, kind):
            expected = "a number" if kind is float else "text in quotation marks"
            raise AudioError(f"expected {expected}, got {'the end of the file' if value is None else repr(value)}")
        return value

    if (header := (take(str), take(str))) != ("ooTextFile", "TextGrid"):
        raise AudioError(f"the header must be ooTextFile, TextGrid, got {', '.join(header)}")
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
        raise AudioError("it has no interval tier")
    return tiers.get("words", next(iter(tiers.values())))


def _clock(seconds: float, point: str) -> str:
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"


def _format_cues(words: Words, point: str) -> list[str]:
    return [f"{_clock(word.start, point)} --> {_clock(word.end, point)}\n{word.text}\n\n" for word in words]


def _parse_cues(text: str) -> list[WordTime]:
    cues = _CUE.findall(text)
    if text.strip() not in {"", "WEBVTT"} and not cues:
        raise AudioError("it has no cues")
    return [
        WordTime(" ".join(_TAG.sub("", text).split()), _seconds(*mark[:4]), _seconds(*mark[4:])) for *mark, text in cues
    ]


def _seconds(hours: str, minutes: str, seconds: str, milliseconds: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(milliseconds) / 1000


_Format = tuple[Callable[[Words], str], Callable[[str], list[WordTime]]]
_FORMATS: Final[dict[str, _Format]] = {
    ".textgrid": (lambda words: textgrid({"words": words}), _parse_textgrid),
    ".srt": (
        lambda words: "".join(f"{n}\n{cue}" for n, cue in enumerate(_format_cues(words, ","), start=1)),
        _parse_cues,
    ),
    ".vtt": (lambda words: "".join(["WEBVTT\n\n", *_format_cues(words, ".")]), _parse_cues),
}


def _format_of(path: Path) -> _Format:
    words_format = _FORMATS.get(path.suffix.lower())
    if words_format is None:
        raise AudioError(f"words: the file suffix must be .TextGrid, .srt or .vtt, got {path.name!r}")
    return words_format
