"""Scripts and styles of widgets, sent once for all widgets.

A widget's own script is static/boot.js, which gets the others from a shared ``Scripts`` model: six panels would otherwise
store 1 MB of identical text in a notebook.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakSet

import anywidget
import ipywidgets as w
import traitlets

from voicelab.views.background import marimo

STATIC: Final = Path(__file__).parent / "static"

_UNSEEN_S: Final = 1.0
# Files that widgets do not load from the shared model: those of served pages and of marimo.
_SEPARATE: Final = frozenset({"boot.js", "boxes.css", "boxes.js", "page.css", "page.js", "saved.css"})

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./([a-z-]+\.js)";\n', re.MULTILINE)
# Comments on lines of their own, and all indentation.
_COMMENT: Final = re.compile(r"^ *(?://.*|/\*(?:.|\n)*?\*/)\n *|^ +", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=class |function |const |async )", re.MULTILINE)


def styled(*names: str) -> str:
    """Return the style sheet of all panels, followed by the named style sheets, as a single text."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in ("look.css", *names))


def inlined(name: str) -> str:
    """Return a JavaScript module of static/ bundled with its imports.

    anywidget accepts a single module; served pages load the same files separately. Modules in static/ import by name
    only, and only the entry module has a default export.
    """
    sources: list[str] = []
    seen: set[str] = set()

    def add(file: str, *, is_entry: bool) -> None:
        if file in seen:
            return
        seen.add(file)
        source = (STATIC / file).read_text(encoding="utf-8")
        for imported in _IMPORT.findall(source):
            add(imported, is_entry=False)
        source = _IMPORT.sub("", source)
        sources.append(source if is_entry else _EXPORT.sub("", source))

    add(name, is_entry=True)
    return "\n".join(sources)


class Scripts(w.Widget):  # type: ignore[misc]  # ipywidgets publishes no types
    """All scripts and style sheets by name, as JSON compressed by gzip, in base64."""

    packed = traitlets.Unicode("").tag(sync=True)
    digest = traitlets.Unicode("").tag(sync=True)


@functools.cache
def _packed() -> tuple[str, str]:
    """Return the scripts for the page, and their digest."""
    # Style sheets are compressed together, since similar text compresses better.
    paths = sorted(
        (path for path in STATIC.iterdir() if path.name not in _SEPARATE), key=lambda path: (path.suffix, path.name)
    )
    data = json.dumps({path.name: _COMMENT.sub("", path.read_text(encoding="utf-8")) for path in paths}).encode()
    return base64.b64encode(gzip.compress(data, mtime=0)).decode("ascii"), hashlib.sha256(data).hexdigest()[:16]


_shared: list[Scripts] = []


def shared_scripts() -> Scripts:
    """Return the model that all widgets share."""
    if not _shared or _shared[-1].comm is None:  # closed by Widget.close_all()
        packed, digest = _packed()
        _shared[:] = [Scripts(packed=packed, digest=digest)]
    return _shared[-1]


looks: Final[ContextVar[dict[tuple[object, ...], Any] | None]] = ContextVar("voicelab_looks", default=None)
"""The layouts and styles of the panel that is being created. Panels share none: VS Code and Colab do not know models that
were opened before the page."""
shared_looks: Final[WeakSet[w.Widget]] = WeakSet()


def look(kind: Callable[..., Any], **traits: str) -> Any:
    """Return a layout or style; in a constructor of a panel, widgets with equal traits share it."""
    created = looks.get()
    if created is None:
        return kind(**traits)
    key = (kind, *traits.items())
    if key not in created:
        created[key] = kind(**traits)
        shared_looks.add(created[key])
    return created[key]


class PageWidget(anywidget.AnyWidget):
    """Base of widgets with a ``script`` of static/ and style sheets (``styles``) in addition to look.css.

    ``unseen`` is called if the last view on a page was removed, for example with its cell, and did not return within a
    second; reloading a page does not count as removal. The widget answers pings of the page, by which a button on the page
    detects that the kernel has handled a press.
    """

    script: ClassVar[str]
    styles: ClassVar[tuple[str, ...]] = ()
    _esm = _COMMENT.sub("", (STATIC / "boot.js").read_text(encoding="utf-8"))

    parts: traitlets.List[str] = traitlets.List().tag(sync=True)
    """Name of the script, and of the style sheets."""
    scripts = traitlets.Instance(Scripts, allow_none=True).tag(sync=True, **w.widget_serialization)

    def __init__(self, **traits: Any) -> None:
        if marimo():  # it has no shared models, and files only for widgets that a cell creates itself
            script = base64.b64encode(inlined(self.script).encode()).decode("ascii")
            self._esm, self._css = f"data:text/javascript;base64,{script}", styled(*self.styles)
        else:
            traits |= {"scripts": shared_scripts(), "parts": [self.script, *self.styles]}
        if not hasattr(self, "saved_output"):  # a part of a panel, whose layout is never changed
            traits["layout"] = look(w.Layout)
        self.unseen: Callable[[], object] = lambda: None
        self._unseen = threading.Timer(0, self.unseen)
        super().__init__(**traits)
        self.on_msg(self._on_page)

    def _on_page(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        if message.get("kind") == "ping":
            self.send({"kind": "pong", "number": message.get("number")})
        elif message.get("kind") == "scripts" and self.scripts is not None:
            self.send({"kind": "scripts", "packed": self.scripts.packed, "digest": self.scripts.digest})
        elif message.get("kind") == "views":
            self._unseen.cancel()
            if message.get("count") == 0:
                # A view that moves is removed first.
                self._unseen = threading.Timer(_UNSEEN_S, self.unseen)
                self._unseen.daemon = True
                self._unseen.start()
