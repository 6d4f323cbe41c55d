"""Reduce printed text to the text that remains visible, however the executing program processed carriage returns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# Characters deleted by a backspace, and text overwritten after a carriage return: the rules of nbclient and JupyterLab.
_DELETED: Final = re.compile(r"[^\n\x08]\x08")
_OVERWRITTEN: Final = re.compile(r"[^\n]*\r(?=[^\r\n])")
_RETURN: Final = re.compile(r"\r+(?=\n|$)")
# Nested bars are drawn below the outer one, and the cursor returns upward: such a state is overwritten later.
_UP: Final = re.compile(r"[^\n]*?\x1b\[\d*A")
_BAR: Final = re.compile(r"^(?P<name>[^\n|]*?) *\d+%\|[^|]*\| (?P<count>[\d.]+\w*)/(?P<total>[\d.]+\w*) ")


def visible_text(text: str) -> str:
    """Apply backspaces and carriage returns; of nested progress bars, keep the last state of each bar.

    Idempotent: notebooks saved by JupyterLab and nbclient have these characters applied in part already.
    """
    if not re.search(r"[\r\x08\x1b]", text):
        return text
    while (shorter := _DELETED.sub("", text)) != text:
        text = shorter
    text = _RETURN.sub("", _OVERWRITTEN.sub("", text))
    if not _UP.search(text):
        return re.sub(r"(?m)^ +$", "", text)
    lines = [line for line in _UP.sub("", text).split("\n") if line.strip()]
    return "\n".join(_last_states(lines)) + "\n"


def _last_states(lines: list[str]) -> Iterator[str]:
    bars = [_BAR.match(line) for line in lines]
    for index, (line, bar) in enumerate(zip(lines, bars, strict=True)):
        later = (other for other in bars[index + 1 :] if other and bar)
        if not bar or not any(_overwrites(bar, other) for other in later):
            yield line


def _overwrites(bar: re.Match[str], later: re.Match[str]) -> bool:
    """Return True for a later state of the same bar; a complete bar is followed by another with its name."""
    same = (bar["name"], bar["total"]) == (later["name"], later["total"])
    return same and bar["count"] != bar["total"]
