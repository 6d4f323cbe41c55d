"""Common base of panels: controls, styles, background tasks with error display, and the output of a saved notebook.

ipywidgets renders standard controls, and anywidget all other widgets; static/look.css styles the controls of both alike.

For a trusted widget without a kernel JupyterLab shows an error instead of the widget's other representations. Therefore
a panel displays a second output with its audio and figures. CSS in that output hides it while the panel is live, and
replaces JupyterLab's error by a message. Elsewhere (untrusted notebooks, nbconvert, plain text) both outputs appear, one
below the other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import ipywidgets as w
import traitlets

from voicelab.errors import VoicelabError
from voicelab.views.background import Debouncer, Task, interruptible
from voicelab.views.bundles import error_html
from voicelab.views.controls import field_label
from voicelab.views.scripts import STATIC, PageWidget, look, looks, shared_looks

# Rendering the saved output must delay neither the next take nor answers to the page.
_SETTLE_S: Final = 1.0


def problem_html(error: Exception | None) -> str:
    """Return an error as HTML, with the labels of its fields; "" for None."""
    return "" if error is None else error_html(error, field_label)


class Message(PageWidget):
    """The message line of a panel, as HTML; it loads the style sheet of the panel around it."""

    script = "message.js"

    value = traitlets.Unicode("").tag(sync=True)


class _Boxes(PageWidget):
    """View of a panel in a marimo notebook."""

    script = "boxes.js"
    styles = ("boxes.css",)

    root = traitlets.Unicode().tag(sync=True)


class ProgressLine(Message):
    """A progress bar with a ``status`` text; ``share`` is the progress, 0 to 1, ``tone`` the style."""

    status, share, tone = "", 0.0, ""

    def report(self, status: str | None = None, share: float | None = None, tone: str | None = None) -> None:
        """Update the line; ``tone`` is "info", "success", "warning" or "danger"."""
        self.status = self.status if status is None else status
        self.share = self.share if share is None else share
        self.tone = tone or self.tone
        bar = f'<progress max="1" value="{self.share:.3f}" aria-label="Progress"></progress>'
        self.value = (
            f'<div class="voicelab-progress" data-tone="{self.tone}">{bar if self.tone == "info" else ""}'
            f'<span class="voicelab-status" role="status">{escape(self.status)}</span></div>'
        )


def classed(widget: Any, *names: str) -> Any:
    """Add the CSS classes ``voicelab-<name>`` to a widget and return it."""
    for name in names:
        widget.add_class(f"voicelab-{name}")
    return widget


def control(kind: Any, label: str = "", *names: str, help: str = "", width: str = "", **options: Any) -> Any:
    """Return a widget with a label, CSS classes ``voicelab-<name>``, and ``help`` as tooltip.

    The widgets of a panel share layouts and styles, because separate ones would be two thirds of all its models.
    """
    if label:
        options["description"] = label
    if help:
        options["tooltip"] = help
    if hasattr(kind, "style"):
        options["style"] = look(kind.style.klass)
    layout = look(w.Layout, width=width) if width else look(w.Layout)
    return kind(layout=layout, _dom_classes=[f"voicelab-{name}" for name in names], **options)


def html(value: str = "", *names: str) -> w.HTML:
    """Return HTML with CSS classes ``voicelab-<name>``."""
    return cast("w.HTML", control(w.HTML, "", *names, value=value))


def stack(*children: w.Widget, names: Sequence[str] = ()) -> w.VBox:
    """Return widgets below each other."""
    return cast("w.VBox", control(w.VBox, "", *names, children=children))


def button(text: str, action: Callable[[], object], name: str, *names: str, **options: Any) -> w.Button:
    """Return a button with CSS classes ``voicelab-<name>`` that calls ``action``."""
    widget = control(w.Button, text, name, *names, **options)
    widget.on_click(lambda _: action())
    return cast("w.Button", widget)


def main_button(text: str, action: Callable[[], object], name: str) -> w.Button:
    """Return the main button of a panel, which Shift+Enter and Ctrl+Enter in a text field also press."""
    keys = "Also Shift+Enter or Ctrl+Enter in a text field"
    return button(text, action, name, button_style="primary", help=keys)


def line(*children: w.Widget, name: str = "") -> w.HBox:
    """Return widgets in a row that wraps, unless ``name`` is "buttons"."""
    return cast("w.HBox", control(w.HBox, "", "line", *filter(None, [name]), children=children))


def fold(title: str, *children: w.Widget, shown: bool = False) -> w.Accordion:
    """Return widgets in a section that can be collapsed; ``shown`` expands it initially."""
    selected = 0 if shown else None
    return cast(
        "w.Accordion", control(w.Accordion, children=[stack(*children)], titles=(title,), selected_index=selected)
    )


def file_link(path: Path) -> str:
    """Return an HTML link to a file, which works where the notebook's server gives access to it."""
    # The path of the notebook; if it is not set, the kernel runs in the notebook's folder.
    folder = Path(os.environ.get("JPY_SESSION_NAME", "")).parent
    return f'<a data-file="{escape(Path(os.path.relpath(path, folder)).as_posix())}">{escape(path.name)}</a>'


def hide(widget: w.DOMWidget, hidden: object = True) -> None:
    """Hide a widget, or show it."""
    if widget.layout in shared_looks:
        widget.layout = w.Layout(width=widget.layout.width)
    widget.layout.display = "none" if hidden else None


def close_widgets(widgets: Iterable[w.Widget]) -> None:
    """Close widgets, their descendants, and the layouts and styles of these."""
    for widget in widgets:
        if isinstance(widget, w.Box):
            close_widgets(widget.children)
        widget.close()
        for name in ("style", "layout"):
            if widget.has_trait(name) and getattr(widget, name) not in shared_looks:
                getattr(widget, name).close()


def mark_wrong(control: w.DOMWidget, wrong: object) -> None:
    """Mark a control as invalid, or clear the mark."""
    (control.add_class if wrong else control.remove_class)("voicelab-wrong")


def disable(control: w.DOMWidget, reason: str) -> None:
    """Disable a control that has no effect, with the reason as tooltip; "" enables it."""
    control.disabled = bool(reason)
    if reason:
        control.tooltip = f"No effect: {reason}."


class Ending:
    """Mixin for widgets whose work must be stopped on close; list it before the widget class."""

    def at_close(self, *actions: Callable[[], object]) -> None:
        """Register callbacks that ``close`` calls, in order, before it closes the children."""
        self.__dict__["_endings"] = (*self.__dict__.get("_endings", ()), *actions)

    def close(self) -> None:
        """Stop the work and remove the widget with its children."""
        # ``__del__`` also calls this for an instance whose ``__init__`` failed.
        for action in self.__dict__.pop("_endings", ()):
            action()
        if isinstance(self, w.Box) and self.has_trait("children"):
            close_widgets(self.children)
        super().close()  # type: ignore[misc]  # the widget's


class SavedOutput(Ending):
    """Mixin for widgets with a static output in the saved notebook; list it before the widget class.

    ``about`` describes the widget in its text output, after its repr.
    """

    about: ClassVar[str]
    _updates: Debouncer | None = None

    def saved_output(self) -> Mapping[str, str]:
        """Return the current static output by media type; {} if there is none."""
        return {}

    def update_saved_output(self) -> None:
        """Schedule an update of the saved output in a thread."""
        if self._updates is not None:
            self._updates.ask()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        mimebundle: Any = super()._repr_mimebundle_(**options)  # type: ignore[misc]  # the widget's
        if mimebundle is None:
            return None
        bundle, metadata = mimebundle if isinstance(mimebundle, tuple) else (mimebundle, {})
        words = f"<p>{escape(repr(self))}: {escape(self.about)}. Run this cell to use it.</p>"
        return {**bundle, "text/html": words, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        from IPython.core.getipython import get_ipython
        from IPython.display import DisplayHandle, display

        mimebundle = self._repr_mimebundle_()
        if mimebundle is None:
            return
        if self._updates is None:
            self._saved: Any = DisplayHandle()  # type: ignore[no-untyped-call]
            self._updates = Debouncer(lambda _: self._update(), _SETTLE_S)
            self.at_close(self._updates.close)
        display(mimebundle[0], metadata=mimebundle[1], raw=True)  # type: ignore[no-untyped-call]
        # If the cell was run by a user, who may be waiting, the output is made in a thread: a comparison takes seconds.
        request: dict[str, Any] = getattr(get_ipython(), "get_parent", dict)()
        live = request.get("content", {}).get("allow_stdin", False)
        self._output_now: Mapping[str, str] = {} if live else self.saved_output()
        self._saved.display(self._output(self._output_now), raw=True)
        if live:
            self._updates.ask()

    def _update(self) -> None:
        output = self.saved_output()
        if output != self._output_now:  # an update marks a notebook that was just saved as changed
            self._output_now = output
            self._saved.update(self._output(output), raw=True)

    def _output(self, output: Mapping[str, str]) -> dict[str, str]:
        # CSS hides it in JupyterLab before the panel is rendered, otherwise the saved output would flash up.
        style = (STATIC / "saved.css").read_text(encoding="utf-8")
        # On a page without a kernel, such as an exported one, it is the only output.
        nothing = f"<p>{escape(repr(self))} has no saved output. Run the cell in a notebook to use it.</p>"
        html = f'<style>\n{style}</style><div class="voicelab-saved">{output.get("text/html", nothing)}</div>'
        return {"text/plain": repr(self), **output, "text/html": html}


class _PanelClass(type(w.VBox)):  # type: ignore[misc]  # ipywidgets publishes no types
    """Metaclass of panels: the widgets that a constructor creates share their layouts and styles."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if looks.get() is not None:  # a part of another panel
            return super().__call__(*args, **options)
        created: dict[tuple[object, ...], Any] = {}
        token = looks.set(created)
        try:
            panel = super().__call__(*args, **options)
        finally:
            looks.reset(token)
        panel.at_close(*(shared.close for shared in created.values()))
        return panel


class Panel(Ending, w.VBox, metaclass=_PanelClass):  # type: ignore[misc]  # ipywidgets publishes no types
    """A box of widgets with a message line for errors; ``name`` is its CSS class."""

    children: tuple[w.Widget, ...]

    @functools.cached_property
    def message(self) -> Message:
        """The message line."""
        return cast("Message", classed(Message(), "message"))

    def __init__(self, name: str, children: list[w.Widget]) -> None:
        super().__init__(children)
        classed(self, name, "shell")

    def say(self, text: str) -> None:
        """Show a text in the message line, announced by screen readers."""
        self.message.value = f'<div role="status">{escape(text)}</div>'

    def show_error(self, error: Exception | None) -> None:
        """Show an error in the message line; None clears it."""
        self.message.value = problem_html(error)

    def attempt(self, action: Callable[[], object]) -> None:
        """Call ``action``; if it raises an error, show the error in the message line."""
        self.show_error(None)
        try:
            action()
        except VoicelabError as error:
            self.show_error(error)

    def in_background(
        self,
        work: Callable[[], object],
        name: str,
        failed: Callable[[Exception], object] | None = None,
        stop: Callable[[], object] | None = None,
    ) -> Task:
        """Start ``work`` in a thread; ``failed`` is called with its error, by default to show it in the message line.

        ``stop`` is called if the kernel is interrupted during the work.
        """
        if stop is None:
            return Task(work, name=name, failed=failed or self.show_error).start()

        def stoppable() -> None:
            with interruptible(stop):
                work()

        return Task(stoppable, name=name, failed=failed or self.show_error).start()

    def _display_(self) -> Any:
        """Return a view for marimo, which does not display ipywidgets' boxes and controls."""
        import marimo

        return marimo.ui.anywidget(_Boxes(root=f"IPY_MODEL_{self.model_id}"))
