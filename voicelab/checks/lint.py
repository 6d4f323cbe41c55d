"""What can be told of a notebook without running it: sizes, secrets, order, paths, widgets."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from voicelab.checks.finding import Finding, asks, code_cells, mime_texts, outputs_of

__all__ = ["Hits", "lint", "paths", "secrets", "source_digest"]

Hits = Iterator[tuple[int | None, str, str]]
"""What is found: the cell's place (None: the notebook's own metadata), its kind, what is said."""

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
# Variables whose values are secrets; an output that holds one has told it.
_NAMES: Final = re.compile(r"(?i)(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?)$")
_SHORTEST: Final = 12
# Sound and pictures are long runs of letters, in which anything could be seen.
_EMBEDDED: Final = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[0-9A-Za-z+/=\s]+")
_TEXT: Final = re.compile(r"^(?:text/.*|application/(?:.*\+)?json|application/javascript|image/svg\+xml)$")
# Where homes and temporary folders are, whoever's they are; the installation's own folders come from sys.
_FOLDERS: Final = (
    r"/(?:home|Users)/[\w.-]+|/root\b|/(?:private/)?(?:tmp|var/folders|var/tmp)/[\w.-]+|[A-Za-z]:\\+Users\\+[\w.-]+"
)


def lint(path: Path, notebook: Any, *, output_bytes: int, notebook_bytes: int) -> Iterator[Finding]:
    """Yield what is wrong with a notebook, in the order of its cells; ``path`` is the file it came from."""
    size = path.stat().st_size
    if size > notebook_bytes:
        yield Finding(path, None, "size", f"{_mib(size)}; a notebook has at most {_mib(notebook_bytes)}")
    found = [
        *_sizes(notebook, output_bytes),
        *secrets(notebook),
        *_order(notebook),
        *_changed(notebook),
        *paths(notebook, path.parent),
    ]
    found += [*_times(notebook), *_widgets(notebook)]
    for cell, kind, message in sorted(found, key=lambda hit: hit[0] or 0):
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
        yield from ((number, "secret", f"{what}, in the source") for what in _secrets_in(cell.source))
        yield from ((number, "secret", f"{what}, in the metadata") for what in _secrets_in(*_strings(cell.metadata)))
        shown = [text for output in outputs_of(cell) for text in _readable(output)]
        shown += [text for output in outputs_of(cell) for text in _strings(output.get("metadata", {}))]
        # A stream comes in pieces, and a key may be in two of them.
        shown.append("".join(output.text for output in outputs_of(cell) if output.output_type == "stream"))
        yield from ((number, "secret", f"{what}, in the output") for what in _secrets_in(*shown))


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
        if asks(cell, "nbval-skip"):
            # Whoever ran the notebook by hand may have run it.
            expected += count == expected
            continue
        if count is None:
            said = "has outputs, but was changed or cleared since" if outputs_of(cell) else "was not executed"
            yield number, "stale", f"the cell {said}; run the notebook from its beginning"
        elif count != expected:
            message = f"the cell was executed as number {count} where {expected} was its turn; run from the beginning"
            yield number, "stale", message
            expected = count + 1
        else:
            expected += 1


def source_digest(cell: Any) -> str:
    """Return what a cell's source is known by in the notebook's metadata, where ``update`` writes it."""
    return hashlib.sha256(cell.source.encode()).hexdigest()[:12]


def _changed(notebook: Any) -> Hits:
    """Yield cells whose source is not among those that ``update`` ran: an editor keeps old outputs under new sources."""
    known = notebook.metadata.get("voicelab", {}).get("sources")
    if not isinstance(known, list):
        return
    for number, cell in code_cells(notebook):
        if source_digest(cell) not in known:
            yield number, "stale", "the source was changed since the outputs were made; run voicelab check --update"


def paths(notebook: Any, folder: Path) -> Hits:
    """Yield outputs that name a folder of the machine on which the notebook ran, or runs now."""
    own = {str(folder.resolve()), str(Path.cwd()), str(Path.home()), sys.prefix, sys.base_prefix}
    here = "|".join(re.escape(name) for name in sorted(own, key=len, reverse=True) if name.count("/") > 1)
    shape = re.compile(rf"(?<![\w.:/])(?:{'|'.join(filter(None, (here, _FOLDERS)))})")
    for number, cell in code_cells(notebook):
        for output in outputs_of(cell):
            hit = next((match for text in _readable(output) if (match := shape.search(text))), None)
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
