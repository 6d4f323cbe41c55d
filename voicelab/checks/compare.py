"""What a notebook shows compared with what it showed: strictly, but for sound and pictures that differ by processor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Any, Final

from voicelab.checks.digests import digests_in, moved
from voicelab.checks.finding import mime_texts
from voicelab.checks.lint import WIDGET
from voicelab.errors import RequestInvalid
from voicelab.experiments.replay import Tolerance

__all__ = ["MASKS", "Masks", "differences", "ignored"]

MASKS: Final = Path(__file__).with_name("masks.cfg")
"""The masks that always apply, in nbval's format (``--nbval-sanitize-with`` takes the file as it is)."""

# Pictures are drawn alike only by the same libraries on the same processor, and a widget's id is drawn by lot.
_ONLY_THERE: Final = {"image/png", "image/jpeg", WIDGET}
_IGNORED_TAGS: Final = {"nbval-ignore-output", "nbval-skip"}
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]{6,}\b")
_LONGEST: Final = 100

_Shown = tuple[str, str]


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
                self._rules += [
                    (re.compile(parser[name]["regex"]), parser[name]["replace"]) for name in parser.sections()
                ]
            except (ConfigError, KeyError, re.error, UnicodeDecodeError) as error:
                raise RequestInvalid.of("masks", f"{file} is no file of masks: {error}", in_="query") from None

    def __call__(self, text: str) -> str:
        """Return ``text`` with everything replaced that a mask fits."""
        for shape, replacement in self._rules:
            text = shape.sub(replacement, text)
        return text


def ignored(cell: Any) -> bool:
    """Say whether a cell asks that its outputs are not compared: nbval's tags and markers."""
    tags = {str(tag).lower().replace("_", "-") for tag in cell.metadata.get("tags", ())}
    return bool(tags & _IGNORED_TAGS) or cell.source.lstrip().startswith(
        ("# NBVAL_IGNORE_OUTPUT", "#NBVAL_IGNORE_OUTPUT")
    )


def differences(was: list[Any], now: list[Any], masks: Masks, tolerance: Tolerance) -> Iterator[str]:
    """Yield in words what differs between the outputs of a cell, as committed and as they are now."""
    before, after = _merged(was), _merged(now)
    if len(before) != len(after):
        listed = ", ".join(" and ".join(mime for mime, _ in shown) for shown in after) or "nothing"
        yield f"{len(after)} outputs where there were {len(before)}; now: {listed}"
        return
    for place, (old, new) in enumerate(zip(before, after, strict=True), start=1):
        kinds, kinds_now = [mime for mime, _ in old], [mime for mime, _ in new]
        if kinds != kinds_now:
            yield f"output {place} is {' and '.join(kinds_now)} where it was {' and '.join(kinds)}"
            continue
        changed = [
            (mime, a, b)
            for (mime, text), (_, text_now) in zip(old, new, strict=True)
            if mime not in _ONLY_THERE and (a := masks(text)) != (b := masks(text_now))
        ]
        if changed:
            # What is plain comes first: the same figures stand in the HTML beside it.
            mime, a, b = min(changed, key=lambda item: item[0] != "text/plain")
            yield f"output {place} ({mime}): {_explained(a, b, tolerance)}"


def _merged(outputs: list[Any]) -> list[list[_Shown]]:
    """Return what each output shows, sorted by media type; pieces of one stream count as one."""
    merged: list[list[_Shown]] = []
    names: list[str | None] = []
    for output in outputs:
        name = output.name if output.output_type == "stream" else None
        if name is not None and names and names[-1] == name:
            ((kind, text),) = merged[-1]
            merged[-1] = [(kind, text + output.text)]
            continue
        names.append(name)
        if name is not None:
            merged.append([(name, output.text)])
        elif output.output_type == "error":
            merged.append([("error", f"{output.ename}: {output.evalue}")])
        else:
            merged.append(sorted(mime_texts(output)))
    return merged


def _explained(was: str, now: str, tolerance: Tolerance) -> str:
    old, new = digests_in(was), digests_in(now)
    if old and len(old) == len(new) and old != new:
        told = [
            f"clip {number}: {moved(a, b, tolerance)}" if len(old) > 1 else f"the clip moved: {moved(a, b, tolerance)}"
            for number, (a, b) in enumerate(zip(old, new, strict=True), start=1)
            if a != b
        ]
        return "; ".join(told)
    if _ADDRESS.sub("", was) == _ADDRESS.sub("", now):
        return "only addresses in memory differ: show something that has a name of its own"
    lines, lines_now = was.splitlines(), now.splitlines()
    for line, line_now in zip(lines, lines_now, strict=False):
        if line != line_now:
            return f"{_short(line_now, line)!r} where it was {_short(line, line_now)!r}"
    if len(lines) == len(lines_now):
        return "only the ends of lines differ"
    return f"{len(lines_now)} lines where there were {len(lines)}"


def _short(text: str, beside: str) -> str:
    """Return the part of a line around the first character in which it differs from the other."""
    first = next((place for place, (a, b) in enumerate(zip(text, beside, strict=False)) if a != b), 0)
    begin = max(0, first - _LONGEST // 2) if len(text) > _LONGEST else 0
    part = text[begin : begin + _LONGEST]
    return ("…" if begin else "") + part + ("…" if begin + _LONGEST < len(text) else "")
