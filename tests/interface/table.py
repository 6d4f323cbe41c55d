"""Write docs/interface.md: every sentence of the interface, where it is implemented, and the tests that prove it.

    python tests/interface/table.py

A test compares the file with what this writes, so it cannot rot.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "interface.md"
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.interface.rules import RULES, part  # noqa: E402 - run as a command, the root must be found first
from tests.interface.sentences import SILENT  # noqa: E402
from tests.interface.where import home  # noqa: E402

PARTS = {
    "1": "Operations of the service",
    "2.1": "TTSRequest",
    "2.2": "ReferenceAudio",
    "2.3": "ProsodyControl",
    "2.4": "Voice model record",
    "3": "States and transitions",
    "4.1": "POST /v1/tts",
    "4.2": "POST /model",
    "4.3": "GET /model/{id}",
    "5": "Authentication",
    "7.1": "Errors",
    "8": "Limits",
    "9": "Versioning",
    "D": "Decisions where the interface is silent",
}
HEAD = """# The interface, sentence by sentence

This page lists every requirement of the speech interface, with the modules that implement it and the tests that verify
it. The service is tested with plain HTTP against a real server; the client (`test_client.py`) is tested against a small
independent service written from the document. `test_properties.py` also draws random values: valid values must be accepted,
and all others must get a 422 that names the field. Tests are in `tests/interface/`, modules in `voicelab/`. The tests in
`tests/effects/` measure the effect of each field on the embedded voice.

`python tests/interface/table.py` writes this page; a test fails if it is out of date.
"""


def proofs() -> dict[str, list[str]]:
    """Return the tests of every sentence, as ``file::test[row]``."""
    found: dict[str, list[str]] = {name: [] for name in RULES}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = import_module(f"tests.interface.{path.stem}")
        for name, test in vars(module).items():
            if name.startswith("test_") and getattr(test, "__module__", None) == module.__name__:
                for rule, row in getattr(test, "proofs", {}).items():
                    found[rule].append(f"{path.name}::{name}{row}")
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def lines() -> Iterator[str]:
    """Yield the page."""
    proved = proofs()
    yield from HEAD.splitlines()
    for number, title in PARTS.items():
        yield ""
        yield f"## {title}" if number == "D" else f"## {number} {title}"
        yield ""
        yield "| rule | content | modules | tests |"
        yield "|---|---|---|---|"
        for rule, says in RULES.items():
            if part(rule) == number:
                tests = "<br>".join(f"`{test}`" for test in proved[rule])
                yield f"| {_cell(rule)} | {_cell(says)} | {', '.join(f'`{one}`' for one in home(rule))} | {tests} |"
    yield ""
    yield "## Not covered by the interface"
    yield ""
    yield "| section | not covered | behavior |"
    yield "|---|---|---|"
    for where, what, done in SILENT:
        yield f"| {where} | {_cell(what)} | {_cell(done)} |"


def page() -> str:
    """Return the page as one text."""
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
