"""The Python of the documents: every block runs, and what stands under it is what it prints.

    python docs/make/blocks.py docs/tutorial.md          # run, and say where the outputs differ
    python docs/make/blocks.py --write docs/tutorial.md  # run, and write the outputs into the page

The blocks of a page run one after the other in one program, as in a notebook. A block of ``text`` right under a block
of ``python`` is what that prints. A page with the comment ``<!-- needs: a service -->`` gets one, the embedded voice
behind it, in VOICELAB_BASE_URL and VOICELAB_API_KEY; one with ``<!-- runs: at night -->`` is run by the long tests only.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "agree", "blocks", "needs_service", "outputs", "rewritten", "runs_at_night", "serving", "true"]

_PYTHON = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<told>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SERVICE = "<!-- needs: a service -->"
_NIGHT = "<!-- runs: at night -->"


@dataclass(frozen=True)
class Block:
    """A block of Python, the line that it begins on, and what the page says that it prints; None when it says nothing."""

    code: str
    line: int
    told: str | None


def blocks(text: str) -> list[Block]:
    """Return the blocks of Python of a page."""
    return [
        Block(found["code"], text.count("\n", 0, found.start("code")) + 1, found["told"])
        for found in _PYTHON.finditer(text)
    ]


def needs_service(text: str) -> bool:
    """Say whether a page's code needs a service."""
    return _SERVICE in text


def runs_at_night(text: str) -> bool:
    """Say whether a page's code takes so long that only the long tests run it."""
    return _NIGHT in text


def outputs(text: str, name: str) -> list[str]:
    """Run the blocks of a page, in this process and folder; return what each prints. Errors name the page's own lines."""
    # Where pickled functions of a page are looked for, it is a module like any other.
    names: dict[str, object] = {"__name__": "__main__"}
    printed = []
    for block in blocks(text):
        told = io.StringIO()
        program = compile("\n" * (block.line - 1) + block.code, name, "exec")
        with contextlib.redirect_stdout(told):
            exec(program, names)  # noqa: S102 - running the documents is what this is for
        printed.append(told.getvalue())
    return printed


def rewritten(text: str, printed: list[str]) -> str:
    """Return the page with what its blocks print, where it says anything."""
    remaining = iter(printed)

    def told(found: re.Match[str]) -> str:
        new = next(remaining)
        if found["told"] is None:
            return found[0]
        begin, end = (place - found.start() for place in found.span("told"))
        return found[0][:begin] + new + found[0][end:]

    return _PYTHON.sub(told, text)


def agree(told: str, printed: str) -> bool:
    """Say whether two outputs are the same, but for numbers that another processor may round otherwise."""
    if _NUMBER.sub("0", told) != _NUMBER.sub("0", printed):
        return False
    numbers = zip(_NUMBER.findall(told), _NUMBER.findall(printed), strict=True)
    # Whole numbers count something; those with a point measure.
    return all(a == b or ("." in a and math.isclose(float(a), float(b), rel_tol=0.1, abs_tol=0.02)) for a, b in numbers)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """Run a service with the embedded voice; yield the variables that lead to it."""
    from voicelab import LocalBackend
    from voicelab.service.keys import KeyStore
    from voicelab.service.run import running

    with (
        contextlib.closing(LocalBackend()) as voice,
        KeyStore(folder / "keys.sqlite3") as keys,
        running(voice, keys=keys) as url,
    ):
        yield {"VOICELAB_BASE_URL": url, "VOICELAB_API_KEY": keys.create("documents").secret}


def true(text: str, printed: list[str]) -> bool:
    """Say whether a page's blocks print what it says."""
    found = zip(blocks(text), printed, strict=True)
    return all(block.told is None or agree(block.told, said) for block, said in found)


def main() -> int:
    """Run pages; return 1 when an output is not what the page says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write the outputs into the pages")
    options = parser.parse_args()
    os.environ["MPLBACKEND"] = "agg"
    differing = 0
    for page in (path.resolve() for path in options.pages):
        text = page.read_text(encoding="utf-8")
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            os.environ["VOICELAB_HOME"] = str(folder / "home")
            if needs_service(text):
                os.environ |= stack.enter_context(serving(folder))
            (folder / "work").mkdir()
            stack.enter_context(contextlib.chdir(folder / "work"))
            printed = outputs(text, str(page))
        for name in ("VOICELAB_BASE_URL", "VOICELAB_API_KEY"):
            os.environ.pop(name, None)
        if not true(text, printed):
            differing += 1
            print(f"{page}: {'written' if options.write else 'prints something else'}")
            if options.write:
                page.write_text(rewritten(text, printed), encoding="utf-8")
    return 1 if differing and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
