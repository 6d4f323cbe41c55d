"""What a notebook shows compared with what it showed: strictly, but for sound and pictures that differ by processor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voicelab.checks.digests import digests_in, moved, without_digests
from voicelab.checks.finding import mime_texts
from voicelab.checks.lint import WIDGET
from voicelab.checks.pictures import moved_picture
from voicelab.checks.processor import without_figures
from voicelab.errors import RequestInvalid
from voicelab.experiments.replay import Tolerance

__all__ = ["MASKS", "Comparing", "Difference", "Masks"]

MASKS: Final = Path(__file__).with_name("masks.cfg")
"""The masks that always apply, in nbval's format (``--nbval-sanitize-with`` takes the file as it is)."""

_PICTURES: Final = ("image/png", "image/jpeg")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]{6,}\b")
_LONGEST: Final = 100

_Shown = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, in words; ``tolerable`` when it is only the figures of clips, and all are within tolerance."""

    words: str
    tolerable: bool = False

    def __str__(self) -> str:
        return self.words


class Masks:
    """Replacements in outputs before they are compared: those of voicelab, then those of ``files``.

    Each file has sections with ``regex`` and ``replace``, as nbval's do. Raises RequestInvalid for one that has not.
    """

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._rules: list[tuple[re.Pattern[str], str]] = []
        for file in (MASKS, *files):
            parser = ConfigParser(interpolation=None)
            try:
                parser.read_string(file.read_text(encoding="utf-8"), str(file))
                for name in parser.sections():
                    shape, replacement = re.compile(parser[name]["regex"]), parser[name]["replace"]
                    shape.sub(replacement, "")
                    self._rules.append((shape, replacement))
            except (ConfigError, KeyError, re.error, IndexError, UnicodeDecodeError) as error:
                raise RequestInvalid.of("masks", f"{file} is no file of masks: {error}", in_="query") from None

    def __call__(self, text: str) -> str:
        """Return ``text`` with everything replaced that a mask fits."""
        for shape, replacement in self._rules:
            text = shape.sub(replacement, text)
        return text


@dataclass(frozen=True, slots=True)
class Comparing:
    """How outputs are compared: behind which masks, with which tolerance told; pictures and figures too or not."""

    masks: Masks
    tolerance: Tolerance
    pictures: bool = True
    figures: bool = True

    def differences(self, was: list[Any], now: list[Any]) -> Iterator[Difference]:
        """Yield what differs between the outputs of a cell, as committed and as they are now."""
        before, after = _merged(was), _merged(now)
        if [place for place, _ in before] != [place for place, _ in after]:
            gone = [f"{place} ({_kinds(shown)})" for place, shown in before if place not in dict(after)]
            new = [f"{place} ({_kinds(shown)})" for place, shown in after if place not in dict(before)]
            told = [f"{word}: {', '.join(places)}" for word, places in (("missing", gone), ("new", new)) if places]
            yield Difference("; ".join(told))
        for place, old in before:
            new_one = dict(after).get(place)
            if new_one is None:
                continue
            if [mime for mime, _ in old] != [mime for mime, _ in new_one]:
                yield Difference(f"{place} is {_kinds(new_one)} where it was {_kinds(old)}")
                continue
            yield from self._in_one(place, old, new_one)

    def _in_one(self, place: str, old: _Shown, new: _Shown) -> Iterator[Difference]:
        pairs = [(mime, a, b) for (mime, a), (_, b) in zip(old, new, strict=True) if mime != WIDGET]
        texts = [(mime, self._told(a), self._told(b)) for mime, a, b in pairs if mime not in _PICTURES]
        changed = [(mime, a, b) for mime, a, b in texts if a != b]
        if changed:
            # What is plain comes first: the same figures stand in the HTML beside it.
            mime, a, b = min(changed, key=lambda item: item[0] != "text/plain")
            tolerable = all(self._tolerable(a, b) for _, a, b in changed)
            name = place if mime == place else f"{place} ({mime})"
            yield Difference(f"{name}: {self._explained(a, b)}", tolerable)
            return
        for mime, a, b in pairs if self.pictures else ():
            if mime in _PICTURES and (said := moved_picture(a, b)):
                yield Difference(f"{place} ({mime}): {said}")

    def _told(self, text: str) -> str:
        masked = self.masks(text)
        return masked if self.figures else without_figures(masked)

    def _tolerable(self, was: str, now: str) -> bool:
        if without_digests(was) != without_digests(now):
            return False
        pairs = zip(digests_in(was), digests_in(now), strict=True)
        return all(not moved(a, b, self.tolerance).beyond for a, b in pairs)

    def _explained(self, was: str, now: str) -> str:
        old, new = digests_in(was), digests_in(now)
        if old and len(old) == len(new) and old != new:
            return "; ".join(
                f"{f'clip {number}' if len(old) > 1 else 'the clip'} moved: {moved(a, b, self.tolerance)}"
                for number, (a, b) in enumerate(zip(old, new, strict=True), start=1)
                if a != b
            )
        if _ADDRESS.sub("", was) == _ADDRESS.sub("", now):
            return "only addresses in memory differ: show something that has a name of its own"
        lines, lines_now = was.splitlines(), now.splitlines()
        for line, line_now in zip(lines, lines_now, strict=False):
            if line != line_now:
                return f"{_short(line_now, line)!r} where it was {_short(line, line_now)!r}"
        if len(lines) == len(lines_now):
            return "only the ends of lines differ"
        return f"{len(lines_now)} lines where there were {len(lines)}"


def _kinds(shown: _Shown) -> str:
    return " and ".join(mime for mime, _ in shown)


def _merged(outputs: list[Any]) -> list[tuple[str, _Shown]]:
    """Return what each output shows, by media type, under its name; streams first, each in one piece.

    How the pieces of two streams and other outputs come between each other depends on chance.
    """
    streams: dict[str, str] = {}
    others: list[_Shown] = []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] = streams.get(output.name, "") + output.text
        elif output.output_type == "error":
            others.append([("error", f"{output.ename}: {output.evalue}")])
        else:
            others.append(sorted(mime_texts(output)))
    named: list[tuple[str, _Shown]] = [(name, [(name, text)]) for name, text in sorted(streams.items(), reverse=True)]
    return [*named, *((f"output {number}", shown) for number, shown in enumerate(others, start=1))]


def _short(text: str, beside: str) -> str:
    """Return the part of a line around the first character in which it differs from the other."""
    first = next((place for place, (a, b) in enumerate(zip(text, beside, strict=False)) if a != b), 0)
    begin = max(0, first - _LONGEST // 2) if len(text) > _LONGEST else 0
    part = text[begin : begin + _LONGEST]
    return ("…" if begin else "") + part + ("…" if begin + _LONGEST < len(text) else "")
