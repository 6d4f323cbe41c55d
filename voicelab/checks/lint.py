"""Lint a notebook's file: sizes, secrets, execution order, local paths, widgets, display on code hosts."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from voicelab.checks.displays import VIEW, Displays, lost_output, saved_states


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a notebook, or in one of its cells (counted from 1; None for the whole notebook).

    ``kind`` is one of not-a-notebook, size, secret, stale, times, timings, path, widget, empty, preview, kernel, error,
    timeout, memory, processor, difference. ``detail`` holds further lines, such as the traceback of an error. ``line`` is
    the line of the file (from 1) with the first line of the cell's source or, after a failure, with line ``source_line`` of
    the source.
    """

    notebook: Path
    cell: int | None
    kind: str
    message: str
    detail: str = ""
    line: int | None = None
    source_line: int | None = None

    def __str__(self) -> str:
        location = f"{self.notebook}:{self.cell}" if self.cell is not None else str(self.notebook)
        return f"{location}: {self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class NotebookLimits:
    """Size limits of an output and of the file, memory limit of the kernel (None: unlimited), and time limit of a cell."""

    output_bytes: int = 2**20
    notebook_bytes: int = 3 * 2**19
    memory_bytes: int | None = None
    timeout_s: float = 300.0


def code_cells(notebook: Any) -> Iterator[tuple[int, Any]]:
    """Yield the nonblank code cells with their numbers, counted from 1 among all cells."""
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code" and cell.source.strip():
            yield number, cell


def has_tag(cell: Any, *tags: str) -> bool:
    """Return True if a cell has one of the tags, or nbval's comment for it (# NBVAL_SKIP for "nbval-skip")."""
    lines = map(str.strip, cell.source.splitlines())
    comments = (line.lstrip("#").strip() for line in lines if line.startswith("#"))
    cell_tags = (str(tag).lower().replace("_", "-") for tag in (*cell.metadata.get("tags", ()), *comments))
    return not set(tags).isdisjoint(cell_tags)


SKIP: Final = ("nbval-skip", "skip-execution")
"""Tags of cells that are not executed: nbval's, and that of nbclient, nbconvert and Jupyter Book."""


def outputs_of(cell: Any) -> list[Any]:
    """Return a cell's outputs; an empty list for cells other than code."""
    return list(cell.get("outputs", ()))


def mime_texts(output: Any) -> Iterator[tuple[str, str]]:
    """Yield the contents of an output as (media type, text); streams and errors are text/plain."""
    if output.output_type == "stream":
        yield "text/plain", output.text
    elif output.output_type == "error":
        yield "text/plain", "\n".join([f"{output.ename}: {output.evalue}", *output.traceback])
    else:
        for mime, value in output.get("data", {}).items():
            yield mime, value if isinstance(value, str) else repr(value)


# Elements that code hosts remove with their content.
_STRIPPED: Final = frozenset({"audio", "canvas", "iframe", "object", "script", "style", "svg", "template", "video"})
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")


class _PageParser(HTMLParser):
    """Parser for the text of a page as code hosts display it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.pictures = 0
        self.removed = False
        self._stack: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _STRIPPED:
            self._stack.append(tag)
            self.removed |= tag != "style"
        elif tag == "img" and not self._stack:
            attributes = dict(attrs)
            inline = (attributes.get("src") or "").startswith("data:image/")
            self.pictures += inline
            self.removed |= not inline
            self.texts.append(attributes.get("alt") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _STRIPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._stack:
            del self._stack[self._stack.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._stack:
            self.texts.append(data)


def visible(html: str) -> tuple[str, int, bool]:
    """Return the text and the number of pictures that a code host displays for an HTML output.

    The third value is True if the host removes visible, audible or executable elements.
    """
    reader = _PageParser()
    reader.feed(html)
    reader.close()
    return " ".join(" ".join(reader.texts).split()), reader.pictures, reader.removed


def invisible(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """Yield outputs that code hosts display as empty: HTML without text and pictures after removal of scripts and audio."""
    for number, cell in code_cells(notebook):
        for index, output in enumerate(outputs_of(cell), start=1):
            data = output.get("data", {})
            # HTML is a placeholder if it is empty although nothing was removed from it.
            if not any(mime in data for mime in _PICTURES) and visible(data.get("text/html", "")) == ("", 0, True):
                message = f"output {index} has only scripts or audio, which code hosts do not display"
                yield number, "preview", f"{message}; add text or a PNG"


Problems = Iterator[tuple[int | None, str, str]]
"""Problems as (cell number, or None for the notebook's metadata; kind; message)."""

_HIDDEN: Final = ("remove-output", "remove-cell")

# Placeholders of documentation are not secrets.
_PLACEHOLDER: Final = r"(?!<|\$|\{|\.\.\.|…|YOUR|your|xxx|XXX)"
_SECRETS: Final = {
    # Patterns are shorter than complete keys, to find truncated ones too.
    "a voicelab API key": re.compile(r"vl_[0-9A-Za-z]{32,}"),
    "a bearer token": re.compile(rf"(?i)\bbearer\s+{_PLACEHOLDER}[0-9A-Za-z._~+/=-]{{16,}}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[0-9A-Za-z]{36,}|github_pat_[0-9A-Za-z_]{22,})"),
    "a GitLab token": re.compile(r"\bglpat-[0-9A-Za-z_-]{20,}"),
    "a Slack token": re.compile(r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}"),
    "a model hub token": re.compile(r"\bhf_[0-9A-Za-z]{30,}"),
    "a Google key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "an API key": re.compile(r"\bsk[-_](?=[0-9A-Za-z_-]*\d)[0-9A-Za-z_-]{20,}"),
    "a JSON web token": re.compile(r"\beyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"),
    "a password in a URL": re.compile(rf"\b[a-z][a-z0-9+.-]*://[^/\s:@'\"]+:{_PLACEHOLDER}[^/\s:@'\"]{{3,}}@"),
    "a hard-coded secret": re.compile(
        rf"(?i)(?:api_?key|access_?token|auth_?token|secret(?:_?key)?|passwd|password)['\"]?\s*[=:]\s*['\"]{_PLACEHOLDER}"
        r"[0-9A-Za-z._~+/=-]{16,}['\"]"
    ),
}
# Environment variables with secret values, which must not be in an output.
_SECRET_VARIABLES: Final = re.compile(r"(?i)(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?)$")
_MIN_SECRET_CHARACTERS: Final = 12
# Base64 of audio and pictures can match any pattern.
_EMBEDDED: Final = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[0-9A-Za-z+/=\s]+")
_TEXT: Final = re.compile(r"^(?:text/.*|application/(?:.*\+)?json|application/javascript|image/svg\+xml)$")
# The temporary file of a cell, named in warnings; masked in comparisons.
_CELL_FILE: Final = re.compile(r"(?<![^\s\"'<>])[^\s\"'<>]*ipykernel_\d+[/\\]\d+\.py")
# Home and temporary folders of any user.
_FOLDERS: Final = (
    r"/(?:home|Users)/[\w.-]+|/root\b|/(?:private/)?(?:tmp|var/folders|var/tmp)/[\w.-]+|[A-Za-z]:\\+Users\\+[\w.-]+"
)


_CELLS: Final = re.compile(r'"cells"\s*:\s*\[')
_NEXT_CELL: Final = re.compile(r"[\s,]*(?=\{)")
_SOURCE: Final = re.compile(r'"source"\s*:\s*')


def source_lines(text: str) -> list[list[int]]:
    """Return, for each cell, the numbers of the lines in a notebook's file (from 1) that contain its source lines."""
    decoder = json.JSONDecoder()
    lines: list[list[int]] = []
    cells = _CELLS.search(text)
    position = cells.end() if cells else len(text)
    while start := _NEXT_CELL.match(text, position):
        cell, position = decoder.raw_decode(text, start.end())
        source = cell.get("source", "")
        # The key "source" may also occur in an output.
        keys = (key.end() for key in _SOURCE.finditer(text, start.end(), position))
        begin = next(
            (key for key in keys if text[key] in '["' and decoder.raw_decode(text, key)[0] == source), start.end()
        )
        end = decoder.raw_decode(text, begin)[1]
        first, breaks = text.count("\n", 0, begin) + 1, text.count("\n", begin, end)
        listed = isinstance(source, list) and breaks > len(source)
        lines.append([first + 1 + index for index in range(len(source))] if listed else [first])
    return lines


def lint(
    path: Path, notebook: Any, size: int, limits: NotebookLimits, mask: Callable[[str], str] = str
) -> Iterator[Finding]:
    """Yield findings for a notebook with a file of ``size`` bytes at ``path``, in the order of its cells.

    Local paths are searched for in the texts that ``mask`` returns.
    """
    if size > limits.notebook_bytes:
        message = f"a notebook must be at most {_mib(limits.notebook_bytes)}, got {_mib(size)}"
        yield Finding(path, None, "size", message)
    problems = [*_sizes(notebook, limits.output_bytes), *secrets(notebook), *_order(notebook), *_changed(notebook)]
    problems += [*paths(notebook, path.parent, mask), *_widgets(notebook), *_empty(notebook)]
    for cell, kind, message in sorted(problems, key=lambda problem: problem[0] or 0):
        yield Finding(path, cell, kind, message)


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"


def _sizes(notebook: Any, limit: int) -> Problems:
    for number, cell in code_cells(notebook):
        for index, output in enumerate(outputs_of(cell), start=1):
            size = len(json.dumps(output, ensure_ascii=False).encode())
            if size > limit:
                yield number, "size", f"output {index} must be at most {_mib(limit)}, got {_mib(size)}"


def secrets(notebook: Any) -> Problems:
    """Yield probable secrets in sources, outputs, attachments and metadata, by kind, without their values."""
    yield from ((None, "secret", f"{secret}, in the metadata") for secret in _secrets_in(*_strings(notebook.metadata)))
    for number, cell in enumerate(notebook.cells, start=1):
        outputs = [text for output in outputs_of(cell) for text in _readable(output)]
        outputs += [text for output in outputs_of(cell) for text in _strings(output.get("metadata", {}))]
        # A key may be split between two outputs of a stream.
        outputs.append("".join(output.text for output in outputs_of(cell) if output.output_type == "stream"))
        for location, texts in (("source", [cell.source]), ("metadata", _strings(cell.metadata)), ("output", outputs)):
            yield from ((number, "secret", f"{secret}, in the {location}") for secret in _secrets_in(*texts))


def _secrets_in(*texts: str) -> Iterator[str]:
    plain = [_EMBEDDED.sub(" ", text) for text in texts]
    for name, value in os.environ.items():
        secret = len(value) >= _MIN_SECRET_CHARACTERS and _SECRET_VARIABLES.search(name)
        if secret and any(value in text for text in plain):
            yield f"the value of {name}"
    for secret_kind, pattern in _SECRETS.items():
        if any(pattern.search(text) for text in plain):
            yield f"probably {secret_kind}"


def _strings(value: Any, name: str = "") -> Iterator[str]:
    """Yield each string in a JSON value twice: as an assignment to its key, and alone."""
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


def _order(notebook: Any) -> Problems:
    """Yield cells that were not executed in order in a single run, so that outputs may belong to other source code."""
    expected = 1
    for number, cell in code_cells(notebook):
        count = cell.execution_count
        if has_tag(cell, *SKIP):
            # The cell may have been run by hand.
            expected += count == expected
        elif count is None:
            state = "was changed or cleared after it was executed" if outputs_of(cell) else "was not executed"
            yield number, "stale", f"the cell {state}; run the notebook from the start"
        else:
            if count != expected:
                message = f"execution count must be {expected}, got {count}"
                yield number, "stale", f"{message}; run the notebook from the start"
            expected = count + 1


def source_digest(cell: Any) -> str:
    """Return the digest of a cell's source that ``update`` writes into the notebook's metadata."""
    return hashlib.sha256(cell.source.encode()).hexdigest()[:12]


def _changed(notebook: Any) -> Problems:
    """Yield cells whose source differs from the sources that ``update`` executed."""
    sources = notebook.metadata.get("voicelab", {}).get("sources")
    if not isinstance(sources, list):
        return
    for number, cell in code_cells(notebook):
        if source_digest(cell) not in sources:
            yield number, "stale", "the source was changed after the outputs were saved; run voicelab check --update"


def paths(notebook: Any, folder: Path, mask: Callable[[str], str]) -> Problems:
    """Yield outputs with paths of the local machine: home, temporary, working and installation folders."""
    folders = {str(folder.resolve()), str(Path.cwd()), str(Path.home()), sys.prefix, sys.base_prefix}
    local = "|".join(re.escape(name) for name in sorted(folders, key=len, reverse=True) if name.count("/") > 1)
    pattern = re.compile(rf"(?<![\w.:/])(?:{'|'.join(filter(None, (local, _FOLDERS)))})")
    for number, cell in code_cells(notebook):
        for output in outputs_of(cell):
            texts = (mask(_CELL_FILE.sub(" ", text)) for text in _readable(output))
            match = next((match for text in texts if (match := pattern.search(text))), None)
            if match is not None:
                yield number, "path", f"the output contains the local path {match.group()!r}"
                break


def times(notebook: Any) -> Iterator[tuple[None, str, str]]:
    """Yield the number of cells with execution times, which nbclient, papermill and ``jupyter execute`` save."""
    count = sum(bool(cell.metadata.get("execution")) for _, cell in code_cells(notebook))
    if count:
        yield (
            None,
            "times",
            f"execution times are saved ({count} cells); they change with every run, and --update removes them",
        )


def _widgets(notebook: Any) -> Problems:
    states = saved_states(notebook)
    for number, cell in code_cells(notebook):
        for output in outputs_of(cell):
            data = output.get("data", {})
            view = data.get(VIEW)
            if view is not None and "text/html" not in data and view.get("model_id") not in states:
                yield (
                    number,
                    "widget",
                    "the widget has no saved state, so only a kernel displays it; voicelab check --update saves the state",
                )


def _empty(notebook: Any) -> Problems:
    displays = Displays()
    for number, cell in code_cells(notebook):
        expected = displays.expected(cell.source)
        executed = cell.execution_count and not has_tag(cell, *SKIP, *_HIDDEN)
        if executed and expected and lost_output(expected, outputs_of(cell)):
            yield number, "empty", f"the cell displays {expected} that is not saved; run the notebook again"
