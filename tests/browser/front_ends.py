"""The table of docs/how-to/front-ends.md, made of the tests that show what works in a front end.

python -m tests.browser.front_ends    # writes it
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., None])
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "front-ends.md"
BEGIN, END = "<!-- written by tests/browser/front_ends.py -->\n\n", "\n<!-- end -->"
PARTS = {
    "clips": "clips and tables play",
    "panel": "a panel synthesizes",
    "sweep": "a sweep runs",
    "compare": "a comparison switches",
    "voice": "a voice panel opens",
    "saved": "saved output without a kernel",
}


def shows(front_end: str, *parts: str) -> Callable[[Test], Test]:
    """Declare that a test shows these ``PARTS`` in a front end; it is read from the source."""
    if unknown := set(parts) - set(PARTS):
        raise ValueError(f"parts must be of {', '.join(PARTS)}, got {unknown}")
    return lambda test: test


def table() -> str:
    """Return the table: what the tests of each front end show, and their names."""
    shown: dict[str, dict[str, list[str]]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "shows":
                    front_end, *parts = (ast.literal_eval(value) for value in mark.args)
                    for part in parts:
                        shown.setdefault(front_end, {}).setdefault(part, []).append(path.name)
    rows = [["front end", *PARTS.values(), "shown by"], ["---"] * (len(PARTS) + 2)]
    for front_end, found in sorted(shown.items(), key=lambda item: -len(item[1])):
        files = sorted({f"`{name}`" for names in found.values() for name in names})
        rows.append([front_end, *("yes" if part in found else "–" for part in PARTS), ", ".join(files)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def written(page: str) -> str:
    """Return the page with the table."""
    return page.partition(BEGIN)[0] + BEGIN + table() + END + page.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
