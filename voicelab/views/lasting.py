"""Lasting: what stays of a panel in a notebook that was saved, once its kernel has gone.

JupyterLab shows a widget that it trusts, and where the widget's kernel has gone an error: it does not go on to what
else the output holds. So a panel that ends a cell shows a second output, which holds what can be heard and seen of it
by then. Style in it hides it while the panel lives, and puts a sentence in place of JupyterLab's error. Elsewhere (not
trusted, nbconvert, plain text) both outputs are read, one below the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from html import escape
from typing import Any, ClassVar, Final

from voicelab.views.later import Later

__all__ = ["Lasting"]

# What is drawn for the notebook must not hold up the next take, nor what the page asks for of this one.
_SETTLE_S: Final = 1.0
# JupyterLab's output areas are widgets of its own, a page's are not: the rules hold in a notebook only. A panel takes a
# moment to be drawn, in which what lasts would flash up.
_STYLE: Final = """<style>
@keyframes voicelab-late { from { max-height: 0; overflow: hidden } }
.lm-Widget.jp-OutputArea .voicelab-lasting { animation: voicelab-late 1.5s step-end }
.lm-Widget.jp-OutputArea:has(> * > .lm-Panel.jp-OutputArea-output > .lm-Widget) .voicelab-lasting { display: none }
.jp-OutputArea:has(.voicelab-lasting) > * > .jupyter-widgets.jp-OutputArea-output:not(:has(*)) { font-size: 0 }
.jp-OutputArea:has(.voicelab-lasting) > * > .jupyter-widgets.jp-OutputArea-output:not(:has(*))::after {
  content: "The kernel of this panel has gone: run the cell to use it again.";
  font-size: 13px }
</style>"""


class Lasting:
    """A widget that leaves something in a saved notebook; put it before the widget's own class.

    ``about`` is what the widget is for, in words that complete "X: …".
    """

    about: ClassVar[str]
    _shown: Later | None = None
    _lasting: str = ""

    def lasting(self) -> Mapping[str, str]:
        """Return what there is to be heard and seen of it now, by media type; {} for nothing."""
        return {}

    def last(self) -> None:
        """Say that ``lasting`` has changed: the notebook gets it a moment later, from a thread."""
        if self._shown is not None:
            self._shown.ask()

    def close(self) -> None:
        """Take the widget off the page; what lasts stays."""
        if self._shown is not None:
            self._shown.close()
        super().close()  # type: ignore[misc]  # the widget's

    def _repr_mimebundle_(self, **options: Any) -> Any:
        shown: Any = super()._repr_mimebundle_(**options)  # type: ignore[misc]  # the widget's
        if shown is None:
            return None
        bundle, about = shown if isinstance(shown, tuple) else (shown, {})
        words = f"<p>{escape(repr(self))}: {escape(self.about)}. Run this cell to use it.</p>"
        return {**bundle, "text/html": words, "text/plain": repr(self)}, about

    def _ipython_display_(self) -> None:
        from IPython.display import display

        shown = self._repr_mimebundle_()
        if shown is None:
            return
        if self._shown is None:
            self._shown, self._lasting = Later(lambda _: self._publish(update=True), _SETTLE_S), uuid.uuid4().hex
        display(shown[0], metadata=shown[1], raw=True)  # type: ignore[no-untyped-call]
        self._publish(update=False)

    def _publish(self, *, update: bool) -> None:
        from IPython.display import publish_display_data

        held = dict(self.lasting())
        html = f'{_STYLE}<div class="voicelab-lasting">{held.get("text/html", "")}</div>'
        data = {"text/plain": repr(self), **held, "text/html": html}
        # The name of the output goes between kernel and page only: it is not in the file.
        to = {"display_id": self._lasting}
        publish_display_data(data, transient=to, update=update)  # type: ignore[no-untyped-call]
