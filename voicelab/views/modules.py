"""The JavaScript of the views: modules in static/, put into one where a widget needs a single file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["STATIC", "inlined"]

STATIC: Final = Path(__file__).parent / "static"

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./([a-z-]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=class |function |const |async )", re.MULTILINE)


def inlined(name: str) -> str:
    """Return a module of static/ with the modules that it imports written before it, each once.

    A notebook's widget is given as one text; a served page loads the same files by themselves. Modules in
    static/ import by name only, and export no default but the last one's.
    """
    parts: list[str] = []
    seen: set[str] = set()

    def take(file: str, *, last: bool) -> None:
        if file in seen:
            return
        seen.add(file)
        source = (STATIC / file).read_text(encoding="utf-8")
        for wanted in _IMPORT.findall(source):
            take(wanted, last=False)
        source = _IMPORT.sub("", source)
        parts.append(source if last else _EXPORT.sub("", source))

    take(name, last=True)
    return "\n".join(parts)
