"""ExplorePanel: interactive synthesis with a control for every parameter, streamed playback, and takes to compare."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

from voicelab.audio.samples import Samples
from voicelab.audio.words import WordTime
from voicelab.backend import Backend
from voicelab.call import Call, short_name
from voicelab.clip import Clip
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.session import Session
from voicelab.takes.cards import TakeCard
from voicelab.takes.comparison import with_words
from voicelab.views.background import Arrival, Debouncer, SpeechTask, Task, interruptible
from voicelab.views.bundles import clip_bundle
from voicelab.views.controls import FIELDS, CallCode, Controls
from voicelab.views.panel import Panel, SavedOutput, button
from voicelab.views.player import Player, file_name
from voicelab.views.takes import TakesView

TEXT: Final = "The birch canoe slid on the smooth planks."
"""Initial text of a panel."""

_MAX_TAKES: Final = 500
_SETTLE_S: Final = 0.1
# Two updates a second: together with 13 messages for audio, a page gets fewer than 20 messages a second.
_BAR_S: Final = 0.5


class ExplorePanel(SavedOutput, Panel):
    """A panel with a control for every field of a call; Speak, or a change of a control, synthesizes the text.

    A new take replaces one in progress. ``code`` is the Python call of the current values, ``clip`` the latest complete
    take, ``takes`` the grid of all takes. The ``compact`` form expands only the main fields, synthesizes when Speak is
    pressed, and has no grid (``takes`` is None). Work runs in threads; ``close()`` stops it and removes the panel. The
    saved notebook contains the latest take and its call.
    """

    about = "a panel to synthesize a text with any parameters and to compare the takes"

    def __init__(self, lab: Session, text: str = TEXT, *, compact: bool = False) -> None:
        self._lab = lab
        self.lock = threading.RLock()
        self._take: _TakeTask | None = None
        self.newest = 0
        self._initial_text = text
        self.clip: Clip | None = None
        self._clip_code = ""
        self._debouncer = Debouncer(self._begin, _SETTLE_S)
        self.controls = Controls(lab, text, compact=compact, changed=self._released, pressed=self._pressed)
        self.player = Player(label="Latest take", name="take")
        self.foot = CallCode()
        self.compact = compact
        super().__init__("panel" if compact else "explore", [self.controls, self.player, self.foot])
        self.controls.unseen = self.cancel
        self.at_close(self._debouncer.close, self.cancel)
        self.check()

    @functools.cached_property
    def takes(self) -> TakesView | None:
        """Grid of all takes, created at the first take; None in the compact form."""
        if self.compact:
            return None
        takes = TakesView(axes=("text", "reference_id", *FIELDS))
        takes.tools.children = (button("Restore settings of the selected take", self.recall, "recall"),)
        self.children = (*self.children, takes)
        return takes

    @property
    def code(self) -> str:
        """Python call of the current values. Raises RequestInvalid if a value is invalid."""
        return self.controls.code(self.controls.call())

    @property
    def status(self) -> str:
        """Status of the latest take, as text."""
        return str(self.controls.status)

    def speak(self) -> None:
        """Synthesize with the current values, as the Speak button does; a take in progress is cancelled."""
        self._debouncer.cancel()
        self._begin(lambda: True)

    def cancel(self) -> None:
        """Cancel the take in progress, as the Cancel button does."""
        self._debouncer.cancel()
        with self.lock:
            take = self._take
        if take is not None:
            take.cancel()

    def recall(self) -> None:
        """Restore the settings of the selected take, without synthesizing."""
        for row in self.takes.selected[:1] if self.takes is not None else ():
            if (take := row.clip().take) is not None:
                self.controls.put(take.call)
                self.check()

    def wait(self, timeout: float = 30.0) -> bool:
        """Wait at most ``timeout`` seconds for the requested take; return whether it has ended."""
        if not self._debouncer.settled(timeout):
            return False
        take = self._take
        return take is None or take.wait(timeout)

    def check(self) -> Call | None:
        """Validate the values and update the code; return the call, None if a value is invalid."""
        try:
            call = self.controls.call()
        except RequestInvalid as error:
            self.controls.show_error(error)
            self.foot.code = ""
            return None
        self.controls.show_error(None)
        self.foot.code = self.controls.code(call)
        return call

    def _pressed(self, name: str) -> None:
        if name == "cancel":
            self.cancel()
            return
        if name == "draw":
            self.controls.draw_seed()
        self.speak()

    def _released(self) -> None:
        if self.check() is not None and self.controls.speak_on_change:
            self._debouncer.ask()

    def _begin(self, current: Callable[[], bool]) -> None:
        """Start a take and cancel the previous one; draw a new seed unless the seed is held."""
        if not current():
            return
        if not self.controls.held:
            self.controls.draw_seed()
        if (call := self.check()) is None:
            return
        with self.lock:
            previous, self.newest = self._take, self.newest + 1
            # Set under the lock, so that ``cancel`` finds the task.
            self._take = _TakeTask(self, self._lab.backend, self.newest, call).start()
            if previous is not None:
                previous.cancel()

    def keep(self, take: _TakeTask, clip: Clip) -> None:
        """Add a finished take to the grid."""
        with self.lock:
            if self.takes is None:
                return
        text = take.call.request.text
        labels = {"take": str(take.number)} | ({"text": text} if text != self._initial_text else {})
        # Labels are the changed settings and the seed; the panel itself sets latency.
        settings, base = take.call.settings, self.controls.base.settings
        labels |= {
            short_name(name): str(value)
            for name, value in settings.items()
            if name != "latency" and (value != base.get(name) or name == "seed") and value is not None
        }
        values = {"take": take.number, "text": text, **settings}
        code = self.controls.code(take.call)
        grid = self.takes.grid
        grid.work.put([TakeCard(take.number, labels, values, "done", notes=clip.notes, fetch=lambda: clip, code=code)])
        with self.lock:
            if len(rows := grid.work.rows) > _MAX_TAKES:
                # Drop the oldest take that is not pinned.
                grid.work.drop([next((row.id for row in rows if row.id not in grid.pinned), take.number)])

    def show_finished(self, take: _TakeTask, clip: Clip) -> None:
        """Show the latest take and its notes, and update the saved output."""
        self.player.name = file_name(clip)
        self.clip, self._clip_code = clip, self.controls.code(take.call)
        self.controls.notes = list(clip.notes)
        self.update_saved_output()

    def __repr__(self) -> str:
        capabilities = self._lab.capabilities
        return f"ExplorePanel({capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices)"

    def saved_output(self) -> Mapping[str, str]:
        """Return the latest take, below its call."""
        if self.clip is None:
            return {}
        output = clip_bundle(self.clip)
        return {**output, "text/html": f"<pre>{escape(self._clip_code)}</pre>{output['text/html']}"}


class _TakeTask(SpeechTask):
    """Synthesis of one take; the panel displays only the newest take."""

    def __init__(self, panel: ExplorePanel, backend: Backend, number: int, call: Call) -> None:
        super().__init__(lambda: backend.synthesize(call))
        self.number = number
        self.call = call
        self._panel = panel
        self._title = f"take {number}: " if not panel.compact else ""
        self._expected_s = max(call.expected_seconds, 0.5)
        self._moved = time.monotonic()
        self._seconds = 0.0
        panel.controls.notes = []
        waiting = f"{self._title}waiting for the first audio…"
        panel.controls.show(status=waiting, share=0.0, tone="info", busy=True)

    @property
    def newest(self) -> bool:
        """Whether no later take has begun."""
        return self._panel.newest == self.number

    def _speak(self) -> None:
        with interruptible(self.cancel):
            super()._speak()

    def began(self, rate: int) -> None:
        with self._panel.lock:
            if self.newest:
                self._panel.player.begin(rate)
                self._panel.controls.show(status=f"{self._title}speaking…")

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        with self._panel.lock:
            if not self.newest:
                return
            self._panel.player.feed(samples, arrivals)
            self._seconds = self._panel.player.duration
            moment = time.monotonic()
            if moment - self._moved >= _BAR_S:
                self._moved = moment
                # The expected duration is an estimate, so the bar stays below 100 % until the end.
                self._panel.controls.show(share=min(self._seconds / self._expected_s, 0.95))

    def finished(self, clip: Clip) -> None:
        # A complete take is added even if another has begun.
        self._panel.keep(self, clip)
        timing = clip.take.timing if clip.take else None
        details = f", first audio {timing.first_audio_s:.2f} s, RTF {timing.rtf(clip.duration):.2f}" if timing else ""
        if self.newest:
            self._panel.controls.share = 1.0
            self._over(f"{clip.duration:.1f} s{details}", "success", clip.words)
            self._panel.show_finished(self, clip)
            if not clip.words:
                Task(lambda: self._align(clip), name="words").start()

    def _align(self, clip: Clip) -> None:
        """If the backend returns no word times, show those of a forced alignment."""
        words = with_words(clip).words
        with self._panel.lock:
            if words and self.newest:
                self._panel.player.end(words)

    def failed(self, error: Exception) -> None:
        if not self.newest:
            return  # cancelled in favor of the next take
        if isinstance(error, Cancelled):
            self._over(f"cancelled after {self._seconds:.1f} s", "warning")
        else:
            self._over("failed", "danger")
            self._panel.controls.show_error(error)

    def _over(self, status: str, tone: str, words: Sequence[WordTime] = ()) -> None:
        self._panel.player.end(words)
        self._panel.controls.show(status=f"{self._title}{status}", tone=tone, busy=False)
