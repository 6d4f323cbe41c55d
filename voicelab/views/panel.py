"""The shell of all panels: buttons and lines, tasks whose errors appear in the panel, and what a saved notebook keeps.

JupyterLab shows a widget that it trusts, and where the widget's kernel has gone an error: it does not go on to what
else the output holds. So a panel that ends a cell shows a second output, which holds what can be heard and seen of it
by then. Style in it hides it while the panel lives, and puts a sentence in place of JupyterLab's error. Elsewhere (not
trusted, nbconvert, plain text) both outputs are read, one below the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Final

import ipywidgets as w

from voicelab.errors import VoicelabError
from voicelab.views.background import Debouncer, Task
from voicelab.views.bundles import error_html

if TYPE_CHECKING:
    from voicelab.views.controls import Message

__all__ = ["WIDE", "Panel", "ProgressLine", "SavedOutput", "button", "close_children", "disable", "line", "mark_wrong"]

WIDE: Final = {"width": "calc(100% - 4px)"}
"""Layout of what takes the panel's whole width."""

# What is drawn for the notebook must not hold up the next take, nor what the page asks for of this one.
_SETTLE_S: Final = 1.0
# JupyterLab's output areas are widgets of its own, a page's are not: the rules hold in a notebook only. A panel takes a
# moment to be drawn, in which the saved output would flash up.
_STYLE: Final = """<style>
@keyframes voicelab-late { from { max-height: 0; overflow: hidden } }
.lm-Widget.jp-OutputArea .voicelab-saved { animation: voicelab-late 1.5s step-end }
.lm-Widget.jp-OutputArea:has(> * > .lm-Panel.jp-OutputArea-output > .lm-Widget) .voicelab-saved { display: none }
.jp-OutputArea:has(.voicelab-saved) > * > .jupyter-widgets.jp-OutputArea-output:not(:has(*)) { font-size: 0 }
.jp-OutputArea:has(.voicelab-saved) > * > .jupyter-widgets.jp-OutputArea-output:not(:has(*))::after {
  content: "The kernel of this panel has gone: run the cell to use it again.";
  font-size: 13px }
</style>"""


def button(text: str, action: Callable[[], object], name: str, **options: Any) -> w.Button:
    """Return a button as wide as its text, of the class ``voicelab-<name>``, that calls ``action``."""
    widget = w.Button(description=text, layout=w.Layout(width="auto"), **options)
    widget.add_class(f"voicelab-{name}")
    widget.on_click(lambda _: action())
    return widget


def line(*children: w.Widget) -> w.HBox:
    """Return widgets side by side, on as many lines as they need."""
    return w.HBox(list(children), layout=w.Layout(flex_flow="row wrap", align_items="center"))


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
    control.layout.border = "2px solid var(--jp-error-color1, #c62828)" if wrong else None


def disable(control: w.DOMWidget, reason: str) -> None:
    """Turn a control off that would do nothing, its tooltip being the reason; on again for ""."""
    if control.disabled != bool(reason):
        control.disabled = bool(reason)
    if reason:
        control.tooltip = f"It does nothing here: {reason}."


class SavedOutput:
    """A widget that leaves something in a saved notebook; put it before the widget's own class.

    ``about`` is what the widget is for, in words that complete "X: …".
    """

    about: ClassVar[str]
    _updates: Debouncer | None = None
    _display_id: str = ""

    def saved_output(self) -> Mapping[str, str]:
        """Return what there is to be heard and seen of it now, by media type; {} for nothing."""
        return {}

    def update_saved_output(self) -> None:
        """Say that ``saved_output`` has changed: the notebook gets it a moment later, from a thread."""
        if self._updates is not None:
            self._updates.ask()

    def close(self) -> None:
        """Take the widget off the page; the saved output stays."""
        if self._updates is not None:
            self._updates.close()
        super().close()  # type: ignore[misc]  # the widget's

    def _repr_mimebundle_(self, **options: Any) -> Any:
        shown: Any = super()._repr_mimebundle_(**options)  # type: ignore[misc]  # the widget's
        if shown is None:
            return None
        bundle, metadata = shown if isinstance(shown, tuple) else (shown, {})
        words = f"<p>{escape(repr(self))}: {escape(self.about)}. Run this cell to use it.</p>"
        return {**bundle, "text/html": words, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display

        shown = self._repr_mimebundle_()
        if shown is None:
            return
        if self._updates is None:
            self._updates, self._display_id = (
                Debouncer(lambda _: self._publish(update=True), _SETTLE_S),
                uuid.uuid4().hex,
            )
        display(shown[0], metadata=shown[1], raw=True)  # type: ignore[no-untyped-call]
        self._publish(update=False)

    def _publish(self, *, update: bool) -> None:
        from IPython.display import publish_display_data

        output = dict(self.saved_output())
        html = f'{_STYLE}<div class="voicelab-saved">{output.get("text/html", "")}</div>'
        data = {"text/plain": repr(self), **output, "text/html": html}
        # The name of the output goes between kernel and page only: it is not in the file.
        to = {"display_id": self._display_id}
        publish_display_data(data, transient=to, update=update)  # type: ignore[no-untyped-call]


class Panel(w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A box of widgets that says in ``message`` what goes wrong, the field named; ``name`` is its class on the page."""

    def __init__(self, name: str, children: list[w.Widget]) -> None:
        super().__init__(children)
        self.add_class(f"voicelab-{name}").add_class("voicelab-shell")

    @property
    def message(self) -> Message:
        """Where the panel speaks to its user."""
        if not hasattr(self, "_message"):
            from voicelab.views.controls import Message  # which are drawn by what draws players, and these are panels

            self._message = Message()
            self._message.add_class("voicelab-message")
        return self._message

    def say(self, text: str) -> None:
        """Say something to the user, and to a screen reader."""
        self.message.value = f'<div role="status">{escape(text)}</div>'

    def show_error(self, error: Exception | None) -> None:
        """Say what went wrong; None takes away what was said."""
        html = "" if error is None else error_html(error)
        if self.message.value != html:
            self.message.value = html

    def attempt(self, action: Callable[[], object]) -> bool:
        """Call ``action``, say what went wrong, and return whether nothing did."""
        self.show_error(None)
        try:
            action()
        except VoicelabError as error:
            self.show_error(error)
            return False
        return True

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

    def close(self) -> None:
        """Take the panel off the page, with all that is in it."""
        # Also called for a panel that could not be made, from its ``__del__``.
        if self.has_trait("children"):
            close_children(self)
        super().close()


class ProgressLine(w.HBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A bar and a few words beside it, in ``status``. ``share`` is how far the work is, 0 to 1."""

    def __init__(self) -> None:
        self.bar = w.FloatProgress(min=0.0, max=1.0, layout=w.Layout(width="160px"))
        self.status = w.Label()
        self.status.add_class("voicelab-status")
        super().__init__([self.bar, self.status])

    def show(self, status: str | None = None, share: float | None = None, style: str | None = None) -> None:
        """Show what is given and has changed; ``style`` is one of "info", "success", "warning", "danger"."""
        with self.bar.hold_sync():
            if share is not None and self.bar.value != share:
                self.bar.value = share
            if style is not None and self.bar.bar_style != style:
                self.bar.bar_style = style
        if status is not None and self.status.value != status:
            self.status.value = status
