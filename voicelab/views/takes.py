"""TakeGrid: takes as small players with their figures, as many as there are: only those in sight are built."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import anywidget
import traitlets

from voicelab.errors import VoicelabError
from voicelab.experiments.metrics import Metric
from voicelab.experiments.sweeps.rows import Row
from voicelab.views.modules import STATIC, inlined
from voicelab.views.player import pcm_bytes
from voicelab.views.sweep import SHOWN
from voicelab.views.takework import TakeWork

__all__ = ["TakeGrid"]

# Web Audio takes 8 to 96 kHz (its specification, section 1.2); a backend of ours makes nothing else.
_LOWEST_RATE: Final = 8_000
_HIGHEST_RATE: Final = 96_000
_COMMON_RATE: Final = 44_100


class TakeGrid(anywidget.AnyWidget):
    """A grid of takes. ``work`` holds its rows; ``selected`` and ``pinned`` the ids of some of them.

    Keys while it has the focus: the arrows go from take to take, space plays and pauses, X selects, P pins.
    ``gone`` is called when no page has shown it for some seconds.
    """

    _esm = inlined("takes.js")
    _css = STATIC / "takes.css"

    label = traitlets.Unicode("Takes").tag(sync=True)
    columns = traitlets.Int(1).tag(sync=True)
    """Takes that belong in one row, where so many fit."""
    selected: traitlets.List[int] = traitlets.List(traitlets.Int()).tag(sync=True)
    pinned: traitlets.List[int] = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        metrics: Iterable[str | Metric] = SHOWN,
        gone: Callable[[], object] = lambda: None,
        **traits: Any,
    ) -> None:
        self.work = TakeWork(self._tell, metrics)
        self._gone = gone
        super().__init__(**traits)
        self.on_msg(self._on_message)
        self.observe(lambda change: self.work.pin(change["new"]), names="pinned")
        self.work.put(rows)

    def reveal(self, id: int) -> None:
        """Bring a take into sight and mark it."""
        self._tell({"kind": "reveal", "id": id}, [])

    def clear(self) -> None:
        """Forget all takes."""
        self.selected, self.pinned = [], []
        self.work.clear()
        self._tell({"kind": "clear"}, [])

    def close(self) -> None:
        """Stop what is being worked out and take it off the page."""
        if hasattr(self, "work"):
            self.work.close()
        super().close()

    def __repr__(self) -> str:
        return f"TakeGrid({len(self.work.rows)} takes)"

    def _tell(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        if self.comm is not None:
            self.send(message, buffers)

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        kind = message.get("kind")
        if kind == "ready":
            self.work.again()
        elif kind == "show":
            self.work.show([key for key in message.get("ids", ()) if isinstance(key, int)])
        elif kind == "sound":
            # Not behind the figures: somebody is waiting for it.
            threading.Thread(target=self._sound, args=(message.get("id"),), name="voicelab-sound", daemon=True).start()
        elif kind == "gone":
            self._gone()

    def _sound(self, id: object) -> None:
        row = self.work.row(id) if isinstance(id, int) else None
        if row is None:
            return
        try:
            clip = row.clip()
        except VoicelabError:
            return  # the row says so itself, once it was tried to be measured
        playable = clip if _LOWEST_RATE <= clip.rate <= _HIGHEST_RATE else clip.resample(_COMMON_RATE)
        self._tell({"kind": "sound", "id": id, "rate": playable.rate}, [pcm_bytes(playable.samples)])
