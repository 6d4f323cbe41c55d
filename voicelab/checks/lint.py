"""What a notebook's file says without running it: sizes, secrets, order, paths, widgets, what a code host would show."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from voicelab.checks.displays import Displays, lost_output


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: in which notebook, in which cell (from 1, as they stand; None: the whole), and what.

    ``kind`` is one of not-a-notebook, size, secret, stale, times, path, widget, empty, preview, kernel, error, timeout,
    memory, processor, difference. ``detail`` is what a reader may want to see besides, in lines: the traceback of an error.
    """

    notebook: Path
    cell: int | None
    kind: str
    message: str
    detail: str = ""

    def __str__(self) -> str:
        place = f"{self.notebook}:{self.cell}" if self.cell is not None else str(self.notebook)
        return f"{place}: {self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class NotebookLimits:
    """What a notebook may take: bytes of an output, of the file and of memory (None: any), seconds of a cell."""

    output_bytes: int = 2**20
    notebook_bytes: int = 3 * 2**19
    memory_bytes: int | None = None
    timeout_s: float = 300.0


def code_cells(notebook: Any) -> Iterator[tuple[int, Any]]:
    """Yield the code cells that say something, each with its place among all cells, from 1."""
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code" and cell.source.strip():
            yield number, cell


def requests(cell: Any, *wishes: str) -> bool:
    """Say whether a cell has one of these tags, or the comment that nbval takes for it ("nbval-skip": # NBVAL_SKIP)."""
    lines = map(str.strip, cell.source.splitlines())
    comments = (line.lstrip("#").strip() for line in lines if line.startswith("#"))
    named = (str(one).lower().replace("_", "-") for one in (*cell.metadata.get("tags", ()), *comments))
    return not set(wishes).isdisjoint(named)


SKIP: Final = ("nbval-skip", "skip-execution")
"""Tags of cells that are not executed: nbval's, and the one of nbclient, nbconvert and Jupyter Book."""


def outputs_of(cell: Any) -> list[Any]:
    """Return a cell's outputs; those of other cells than code are none."""
    return list(cell.get("outputs", ()))


def mime_texts(output: Any) -> Iterator[tuple[str, str]]:
    """Yield what an output shows as (media type, text); a stream and an error are text/plain."""
    if output.output_type == "stream":
        yield "text/plain", output.text
    elif output.output_type == "error":
        yield "text/plain", "\n".join([f"{output.ename}: {output.evalue}", *output.traceback])
    else:
        for mime, value in output.get("data", {}).items():
            yield mime, value if isinstance(value, str) else repr(value)


# Taken out with all that is in them; what is in a template is shown by scripts only.
_STRIPPED: Final = frozenset({"audio", "canvas", "iframe", "object", "script", "style", "svg", "template", "video"})
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")


class _Reader(HTMLParser):
    """Collects the words that a page shows when what hosts strip is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.pictures = 0
        self.lost = False
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _STRIPPED:
            self._inside.append(tag)
            self.lost |= tag != "style"
        elif tag == "img" and not self._inside:
            attributes = dict(attrs)
            inline = (attributes.get("src") or "").startswith("data:image/")
            self.pictures += inline
            self.lost |= not inline
            self.words.append(attributes.get("alt") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _STRIPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            del self._inside[self._inside.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)


def visible(html: str) -> tuple[str, int, bool]:
    """Return the words that a code host shows of some HTML, those in place of pictures too, and how many pictures.

    The last value says whether it strips anything that is seen, heard or run elsewhere.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return " ".join(" ".join(reader.words).split()), reader.pictures, reader.lost


def invisible(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """Yield outputs of which nothing is seen on a code host: no picture, and no word of HTML, where that comes first."""
    for number, cell in code_cells(notebook):
        for place, output in enumerate(outputs_of(cell), start=1):
            data = output.get("data", {})
            # Where nothing is stripped either, it is a place kept for later.
            if not any(mime in data for mime in _PICTURES) and visible(data.get("text/html", "")) == ("", 0, True):
                message = f"output {place} is scripts or sound alone: a code host shows nothing of it"
                yield number, "preview", f"{message}; add words or a PNG"


Hits = Iterator[tuple[int | None, str, str]]
"""What is found: the cell's place (None: the notebook's own metadata), its kind, what is said."""

_HIDDEN: Final = ("remove-output", "remove-cell")
WIDGET: Final = "application/vnd.jupyter.widget-view+json"

# Words that are no secret: what documents put in the place of one.
_PLACEHOLDER: Final = r"(?!<|\$|\{|\.\.\.|…|YOUR|your|xxx|XXX)"
_SECRETS: Final = {
    # A little shorter than whole ones, so that a key cut at its end is found as well.
    "a key of a voicelab service": re.compile(r"vl_[0-9A-Za-z]{32,}"),
    "a bearer credential": re.compile(rf"(?i)\bbearer\s+{_PLACEHOLDER}[0-9A-Za-z._~+/=-]{{16,}}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a key of AWS": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a token of GitHub": re.compile(r"\b(?:gh[pousr]_[0-9A-Za-z]{36,}|github_pat_[0-9A-Za-z_]{22,})"),
    "a token of GitLab": re.compile(r"\bglpat-[0-9A-Za-z_-]{20,}"),
    "a token of Slack": re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
    "a token of a model hub": re.compile(r"\bhf_[0-9A-Za-z]{30,}"),
    "a key of Google": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "an API key": re.compile(r"\bsk[-_][0-9A-Za-z_-]{20,}"),
    "a JSON web token": re.compile(r"\beyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"),
    "a password in an address": re.compile(rf"\b[a-z][a-z0-9+.-]*://[^/\s:@'\"]+:{_PLACEHOLDER}[^/\s:@'\"]{{3,}}@"),
    "a secret that is written down": re.compile(
        rf"(?i)(?:api_?key|access_?token|auth_?token|secret(?:_?key)?|passwd|password)['\"]?\s*[=:]\s*['\"]{_PLACEHOLDER}"
        r"[0-9A-Za-z._~+/=-]{16,}['\"]"
    ),
}
# Variables whose values are secrets; an output that holds one has leaked it.
_NAMES: Final = re.compile(r"(?i)(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?)$")
_SHORTEST: Final = 12
# Sound and pictures are long runs of letters, in which anything could be seen.
_EMBEDDED: Final = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[0-9A-Za-z+/=\s]+")
_TEXT: Final = re.compile(r"^(?:text/.*|application/(?:.*\+)?json|application/javascript|image/svg\+xml)$")
# The file that a kernel makes of a cell, which warnings name; it is masked where outputs are compared.
_CELL_FILE: Final = re.compile(r"[^\s\"'<>]*ipykernel_\d+[/\\]\d+\.py")
# Where homes and temporary folders are, whoever's they are; the installation's own folders come from sys.
_FOLDERS: Final = (
    r"/(?:home|Users)/[\w.-]+|/root\b|/(?:private/)?(?:tmp|var/folders|var/tmp)/[\w.-]+|[A-Za-z]:\\+Users\\+[\w.-]+"
)


def lint(path: Path, notebook: Any, size: int, limits: NotebookLimits) -> Iterator[Finding]:
    """Yield what is wrong with a notebook of ``size`` bytes, in the order of its cells; ``path`` is its file."""
    if size > limits.notebook_bytes:
        yield Finding(path, None, "size", f"{_mib(size)}; a notebook has at most {_mib(limits.notebook_bytes)}")
    hits = [*_sizes(notebook, limits.output_bytes), *secrets(notebook), *_order(notebook), *_changed(notebook)]
    hits += [*paths(notebook, path.parent), *_times(notebook), *_widgets(notebook), *_empty(notebook)]
    for cell, kind, message in sorted(hits, key=lambda hit: hit[0] or 0):
        yield Finding(path, cell, kind, message)


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"


def _sizes(notebook: Any, most: int) -> Hits:
    for number, cell in code_cells(notebook):
        for place, output in enumerate(outputs_of(cell), start=1):
            size = len(json.dumps(output, ensure_ascii=False).encode())
            if size > most:
                yield number, "size", f"output {place} has {_mib(size)}; an output has at most {_mib(most)}"


def secrets(notebook: Any) -> Hits:
    """Yield what looks like a secret, in sources, outputs, attachments and metadata; never the secret itself."""
    yield from ((None, "secret", f"{what}, in the metadata") for what in _secrets_in(*_strings(notebook.metadata)))
    for number, cell in enumerate(notebook.cells, start=1):
        shown = [text for output in outputs_of(cell) for text in _readable(output)]
        shown += [text for output in outputs_of(cell) for text in _strings(output.get("metadata", {}))]
        # A stream comes in pieces, and a key may be in two of them.
        shown.append("".join(output.text for output in outputs_of(cell) if output.output_type == "stream"))
        for place, texts in (("source", [cell.source]), ("metadata", _strings(cell.metadata)), ("output", shown)):
            yield from ((number, "secret", f"{what}, in the {place}") for what in _secrets_in(*texts))


def _secrets_in(*texts: str) -> Iterator[str]:
    plain = [_EMBEDDED.sub(" ", text) for text in texts]
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _NAMES.search(name) and any(value in text for text in plain):
            yield f"this is the value of {name}"
    for what, shape in _SECRETS.items():
        if any(shape.search(text) for text in plain):
            yield f"this looks like {what}"


def _strings(value: Any, name: str = "") -> Iterator[str]:
    """Yield every string of a JSON value as people write it: with the name it goes by, where it has one."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, name)
    elif isinstance(value, str):
        yield f'{name} = "{value}"'
        yield value


def _readable(output: Any) -> Iterator[str]:
    for mime, text in mime_texts(output):
        if _TEXT.match(mime):
            yield _EMBEDDED.sub(" ", text)


def _order(notebook: Any) -> Hits:
    """Yield cells that were not executed from first to last in one go; what they show may come from another source."""
    expected = 1
    for number, cell in code_cells(notebook):
        count = cell.execution_count
        if requests(cell, *SKIP):
            # Whoever ran the notebook by hand may have run it.
            expected += count == expected
        elif count is None:
            state = "has outputs, but was changed or cleared since" if outputs_of(cell) else "was not executed"
            yield number, "stale", f"the cell {state}; run the notebook from its beginning"
        else:
            if count != expected:
                message = f"the cell was executed as number {count} where {expected} was its turn"
                yield number, "stale", f"{message}; run from the beginning"
            expected = count + 1


def source_digest(cell: Any) -> str:
    """Return what a cell's source is known by in the notebook's metadata, where ``update`` writes it."""
    return hashlib.sha256(cell.source.encode()).hexdigest()[:12]


def _changed(notebook: Any) -> Hits:
    """Yield cells whose source is not among those that ``update`` ran: an editor keeps old outputs under new sources."""
    sources = notebook.metadata.get("voicelab", {}).get("sources")
    if not isinstance(sources, list):
        return
    for number, cell in code_cells(notebook):
        if source_digest(cell) not in sources:
            yield number, "stale", "the source was changed since the outputs were made; run voicelab check --update"


def paths(notebook: Any, folder: Path) -> Hits:
    """Yield outputs that name a folder of the machine on which the notebook ran, or runs now."""
    own = {str(folder.resolve()), str(Path.cwd()), str(Path.home()), sys.prefix, sys.base_prefix}
    here = "|".join(re.escape(name) for name in sorted(own, key=len, reverse=True) if name.count("/") > 1)
    shape = re.compile(rf"(?<![\w.:/])(?:{'|'.join(filter(None, (here, _FOLDERS)))})")
    for number, cell in code_cells(notebook):
        for output in outputs_of(cell):
            texts = (_CELL_FILE.sub(" ", text) for text in _readable(output))
            hit = next((match for text in texts if (match := shape.search(text))), None)
            if hit is not None:
                yield number, "path", f"the output names {hit.group()!r}, which is on this machine only"
                break


def _times(notebook: Any) -> Hits:
    for number, cell in code_cells(notebook):
        if cell.metadata.get("execution"):
            yield number, "times", "times of execution are stored, and change with every run (record_timing=False)"


def _widgets(notebook: Any) -> Hits:
    states = notebook.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {}).get("state", {})
    for number, cell in code_cells(notebook):
        for output in outputs_of(cell):
            data = output.get("data", {})
            view = data.get(WIDGET)
            if view is not None and "text/html" not in data and view.get("model_id") not in states:
                yield number, "widget", "a widget without its state and without HTML beside it shows nothing when saved"


def _empty(notebook: Any) -> Hits:
    displays = Displays()
    for number, cell in code_cells(notebook):
        expected = displays.expected(cell.source)
        executed = cell.execution_count and not requests(cell, *SKIP, *_HIDDEN)
        if executed and expected and lost_output(expected, outputs_of(cell)):
            yield number, "empty", f"the cell shows {expected}, and its saved output has none; run the notebook again"
