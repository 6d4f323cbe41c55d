"""The shell of all panels: its controls and its look, tasks whose errors appear in it, and what a saved notebook keeps.

ipywidgets composes and anywidget draws; static/look.css makes the controls of both look alike.

JupyterLab shows a widget that it trusts, and where the widget's kernel has gone an error: it does not go on to what
else the output holds. So a panel that ends a cell shows a second output, which holds what can be heard and seen of it
by then. Style in it hides it while the panel lives, and puts a sentence in place of JupyterLab's error. Elsewhere (not
trusted, nbconvert, plain text) both outputs are read, one below the other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import anywidget
import ipywidgets as w
import traitlets

from voicelab.errors import VoicelabError
from voicelab.views.background import Debouncer, Task
from voicelab.views.bundles import error_html

STATIC: Final = Path(__file__).parent / "static"

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./([a-z-]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=class |function |const |async )", re.MULTILINE)

# What is drawn for the notebook must not hold up the next take, nor what the page asks for of this one.
_SETTLE_S: Final = 1.0


def styled(*names: str) -> str:
    """Return the look of all panels, and style sheets of static/ after it, as one text."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in ("look.css", *names))


def inlined(name: str) -> str:
    """Return a module of static/ with the modules that it imports written before it, each once.

    A notebook's widget is given as one text; a served page loads the same files by themselves. Modules in
    static/ import by name only, and export no default but the last one's.
    """
    parts: list[str] = []
    seen: set[str] = set()

    def add(file: str, *, last: bool) -> None:
        if file in seen:
            return
        seen.add(file)
        source = (STATIC / file).read_text(encoding="utf-8")
        for imported in _IMPORT.findall(source):
            add(imported, last=False)
        source = _IMPORT.sub("", source)
        parts.append(source if last else _EXPORT.sub("", source))

    add(name, last=True)
    return "\n".join(parts)


class Message(anywidget.AnyWidget):
    """The line in which a panel speaks to its user, as HTML; it brings the look of the panel around it."""

    _esm = inlined("message.js")
    _css = styled()

    value = traitlets.Unicode("").tag(sync=True)


class ProgressLine(Message):
    """A bar and a few words beside it: ``status``. ``share`` is how far the work is, 0 to 1; ``tone`` how it went."""

    status, share, tone = "", 0.0, ""

    def report(self, status: str | None = None, share: float | None = None, tone: str | None = None) -> None:
        """Show what is given and has changed; ``tone`` is one of "info", "success", "warning", "danger"."""
        self.status = self.status if status is None else status
        self.share = self.share if share is None else share
        self.tone = tone or self.tone
        bar = f'<progress max="1" value="{self.share:.3f}" aria-label="How far it is"></progress>'
        self.value = (
            f'<div class="voicelab-progress" data-tone="{self.tone}">{bar if self.tone == "info" else ""}'
            f'<span class="voicelab-status" role="status">{escape(self.status)}</span></div>'
        )


def classed(widget: Any, *names: str) -> Any:
    """Return a widget, of the classes ``voicelab-<name>`` from now on."""
    for name in names:
        widget.add_class(f"voicelab-{name}")
    return widget


def control(
    kind: Callable[..., Any], label: str = "", name: str = "", *, help: str = "", width: str = "", **options: Any
) -> Any:
    """Return a control with its label, of the class ``voicelab-<name>``; ``help`` is its tooltip."""
    widget = kind(description=label, **options)
    if width:
        widget.layout.width = width
    if help:
        widget.tooltip = help
    return classed(widget, name) if name else widget


def button(text: str, action: Callable[[], object], name: str, **options: Any) -> w.Button:
    """Return a button as wide as its text, of the class ``voicelab-<name>``, that calls ``action``."""
    widget = control(w.Button, text, name, **options)
    widget.on_click(lambda _: action())
    return widget


def line(*children: w.Widget, name: str = "line") -> w.HBox:
    """Return widgets side by side, on as many lines as they need; of the name "buttons", always on one."""
    return classed(w.HBox(list(children)), *dict.fromkeys(("line", name)))


def fold(title: str, *children: w.Widget, shown: bool = False) -> w.Accordion:
    """Return widgets below a title that a click folds away."""
    return w.Accordion([w.VBox(list(children))], titles=(title,), selected_index=0 if shown else None)


def close_children(box: w.Box) -> None:
    """Close all that is in ``box`` and in the boxes in it, with what says how they look; ``box`` itself stays."""
    for child in box.children:
        if isinstance(child, w.Box):
            close_children(child)
        child.close()
        for look in ("style", "layout"):
            if child.has_trait(look):
                getattr(child, look).close()


def mark_wrong(control: w.DOMWidget, wrong: object) -> None:
    """Put a red border round a control, or take it away."""
    (control.add_class if wrong else control.remove_class)("voicelab-wrong")


def disable(control: w.DOMWidget, reason: str) -> None:
    """Turn a control off that would do nothing, its tooltip being the reason; on again for ""."""
    control.disabled = bool(reason)
    if reason:
        control.tooltip = f"It does nothing here: {reason}."


class Ending:
    """A widget with work that ends when it is closed; put it before the widget's own class."""

    def at_close(self, *actions: Callable[[], object]) -> None:
        """Have these called when the widget is closed, in this order, before what is in it is closed too."""
        self.__dict__["_endings"] = (*self.__dict__.get("_endings", ()), *actions)

    def close(self) -> None:
        """End the work and take the widget off the page, with all that is in it."""
        # Also called for one that could not be made, from its ``__del__``.
        for action in self.__dict__.pop("_endings", ()):
            action()
        if isinstance(self, w.Box) and self.has_trait("children"):
            close_children(self)
        super().close()  # type: ignore[misc]  # the widget's


class SavedOutput(Ending):
    """A widget that leaves something in a saved notebook; put it before the widget's own class.

    ``about`` is what the widget is for, in words that complete "X: …".
    """

    about: ClassVar[str]
    _updates: Debouncer | None = None

    def saved_output(self) -> Mapping[str, str]:
        """Return what there is to be heard and seen of it now, by media type; {} for nothing."""
        return {}

    def update_saved_output(self) -> None:
        """Say that ``saved_output`` has changed: the notebook gets it a moment later, from a thread."""
        if self._updates is not None:
            self._updates.ask()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        shown: Any = super()._repr_mimebundle_(**options)  # type: ignore[misc]  # the widget's
        if shown is None:
            return None
        bundle, metadata = shown if isinstance(shown, tuple) else (shown, {})
        words = f"<p>{escape(repr(self))}: {escape(self.about)}. Run this cell to use it.</p>"
        return {**bundle, "text/html": words, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        from IPython.display import DisplayHandle, display

        shown = self._repr_mimebundle_()
        if shown is None:
            return
        if self._updates is None:
            self._saved: Any = DisplayHandle()  # type: ignore[no-untyped-call]
            self._updates = Debouncer(lambda _: self._saved.update(self._output(), raw=True), _SETTLE_S)
            self.at_close(self._updates.close)
        display(shown[0], metadata=shown[1], raw=True)  # type: ignore[no-untyped-call]
        self._saved.display(self._output(), raw=True)

    def _output(self) -> dict[str, str]:
        # JupyterLab's output areas are widgets of its own, a page's are not: the rules hold in a notebook only. A panel
        # takes a moment to be drawn, in which the saved output would flash up.
        output, style = dict(self.saved_output()), (STATIC / "saved.css").read_text(encoding="utf-8")
        html = f'<style>\n{style}</style><div class="voicelab-saved">{output.get("text/html", "")}</div>'
        return {"text/plain": repr(self), **output, "text/html": html}


class Panel(Ending, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A box of widgets that says in ``message`` what goes wrong, the field named; ``name`` is its class on the page."""

    @functools.cached_property
    def message(self) -> Message:
        """Where the panel speaks to its user."""
        return cast("Message", classed(Message(), "message"))

    def __init__(self, name: str, children: list[w.Widget]) -> None:
        super().__init__(children)
        classed(self, name, "shell")

    def say(self, text: str) -> None:
        """Say something to the user, and to a screen reader."""
        self.message.value = f'<div role="status">{escape(text)}</div>'

    def show_error(self, error: Exception | None) -> None:
        """Say what went wrong; None takes away what was said."""
        self.message.value = "" if error is None else error_html(error)

    def attempt(self, action: Callable[[], object]) -> None:
        """Call ``action`` and say what went wrong."""
        self.show_error(None)
        try:
            action()
        except VoicelabError as error:
            self.show_error(error)

    def in_background(
        self, work: Callable[[], object], name: str, failed: Callable[[Exception], object] | None = None
    ) -> Task:
        """Begin ``work`` in a thread; ``failed`` gets its error, otherwise the panel shows it."""
        return Task(work, name=name, failed=failed or self.show_error).start()

    def _display_(self) -> Any:
        """Return what marimo shows, which has no boxes of ipywidgets: what a saved notebook keeps, and where to go."""
        import marimo

        kept = self.saved_output().get("text/html", "") if isinstance(self, SavedOutput) else ""
        return marimo.vstack([marimo.md(f"`{self!r}` needs JupyterLab, Notebook or VS Code."), marimo.Html(kept)])
