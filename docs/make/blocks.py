"""Run the Python blocks of the documents and compare or update their outputs.

    python docs/make/blocks.py docs/tutorial.md          # run, and report differing outputs
    python docs/make/blocks.py --write docs/tutorial.md  # run, and write the outputs into the page

The blocks of a page run sequentially in one program, as in a notebook. A ``text`` block directly below a ``python``
block is its output. A page with the comment ``<!-- needs: a service -->`` gets a service with the embedded voice,
in VOICELAB_BASE_URL and VOICELAB_API_KEY; only the long tests run a page with ``<!-- runs: at night -->``.
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

_PYTHON = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SERVICE = "<!-- needs: a service -->"
_NIGHT = "<!-- runs: at night -->"


@dataclass(frozen=True)
class Block:
    """A Python block with its line number and the output on the page, if any."""

    code: str
    line: int
    output: str | None


def blocks(text: str) -> list[Block]:
    """Parse the Python blocks of a page."""
    return [
        Block(found["code"], text.count("\n", 0, found.start("code")) + 1, found["output"])
        for found in _PYTHON.finditer(text)
    ]


def needs_service(text: str) -> bool:
    """Test whether a page needs a service."""
    return _SERVICE in text


def runs_at_night(text: str) -> bool:
    """Test whether only the long tests run a page."""
    return _NIGHT in text


def outputs(text: str, name: str) -> list[str]:
    """Run the blocks of a page, in this process and folder; return their outputs. Tracebacks have lines of the page."""
    # Pickled functions of a page are looked up in a module of this name.
    names: dict[str, object] = {"__name__": "__main__"}
    printed = []
    for block in blocks(text):
        output = io.StringIO()
        program = compile("\n" * (block.line - 1) + block.code, name, "exec")
        with contextlib.redirect_stdout(output):
            exec(program, names)  # noqa: S102 - the documents are trusted
        printed.append(output.getvalue())
    return printed


def rewritten(text: str, printed: list[str]) -> str:
    """Return the page with updated outputs."""
    remaining = iter(printed)

    def replace(match: re.Match[str]) -> str:
        output = next(remaining)
        if match["output"] is None:
            return match[0]
        start, stop = (offset - match.start() for offset in match.span("output"))
        return match[0][:start] + output + match[0][stop:]

    return _PYTHON.sub(replace, text)


def agree(expected: str, printed: str) -> bool:
    """Compare two outputs, with a tolerance for the rounding of other processors."""
    if _NUMBER.sub("0", expected) != _NUMBER.sub("0", printed):
        return False
    numbers = zip(_NUMBER.findall(expected), _NUMBER.findall(printed), strict=True)
    # Integers are counts, decimals measurements.
    return all(a == b or ("." in a and math.isclose(float(a), float(b), rel_tol=0.1, abs_tol=0.02)) for a, b in numbers)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """Run a service with the embedded voice; yield its environment variables."""
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
    """Test whether the outputs on a page are up to date."""
    pairs = zip(blocks(text), printed, strict=True)
    return all(block.output is None or agree(block.output, output) for block, output in pairs)


def main() -> int:
    """Run pages; return 1 if an output differs."""
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
            print(f"{page}: {'written' if options.write else 'outputs differ'}")
            if options.write:
                page.write_text(rewritten(text, printed), encoding="utf-8")
    return 1 if differing and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
