"""ExplorePanel: type a text, turn the knobs, hear what they do while it is being made; takes stay to be compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

from voicelab.audio.samples import Samples
from voicelab.audio.words import WordTime
from voicelab.backend import Backend
from voicelab.call import Call, short_name
from voicelab.clip import Clip
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.session import Session
from voicelab.takes.cards import TakeCard
from voicelab.takes.comparison import with_words
from voicelab.views.background import Arrival, Debouncer, SpeechTask, Task
from voicelab.views.bundles import clip_bundle
from voicelab.views.controls import FIELDS, CallCode, Controls
from voicelab.views.panel import Panel, SavedOutput, button
from voicelab.views.player import Player
from voicelab.views.takes import TakesView

TEXT: Final = "The birch canoe slid on the smooth planks."
"""What a panel says at first."""

_MOST: Final = 500
_SETTLE_S: Final = 0.1
# The bar moves twice a second: with the sound, which takes 13 messages, a page gets fewer than 20 a second.
_BAR_S: Final = 0.5


class ExplorePanel(SavedOutput, Panel):
    """A control for every field of a call; Speak, or a change of one, says the text again in place of what sounds.

    ``code`` is the call that makes what the knobs say, ``clip`` the last take in full, ``takes`` the view of all of
    them, to be heard, pinned and compared. The ``compact`` form shows the main knobs first, speaks when Speak is
    pressed, and keeps only the last take: its ``takes`` is None. The work runs in threads; ``close()`` stops it and
    takes the panel off the page. The notebook keeps the last take, and the call that makes it.
    """

    about = "a panel to type a text, turn the knobs of a voice and hear what each of them does"

    def __init__(self, lab: Session, text: str = TEXT, *, compact: bool = False) -> None:
        self._lab = lab
        self.lock = threading.RLock()
        self._take: _Take | None = None
        self.newest = 0
        self._first_text = text
        self.clip: Clip | None = None
        self._clip_code = ""
        self._debouncer = Debouncer(self._begin, _SETTLE_S)
        self.controls = Controls(lab, text, compact=compact, changed=self._released, pressed=self._pressed)
        self.player = Player(label="The last take", name="take")
        self.foot = CallCode()
        self.takes = None if compact else TakesView(axes=("text", "reference_id", *FIELDS), gone=self.cancel)
        several = []
        if self.takes is not None:
            self.takes.tools.children = (button("Back to the selected take", self.recall, "recall"),)
            several.append(self.takes)
        super().__init__("panel" if compact else "explore", [self.controls, self.player, self.foot, *several])
        self.at_close(self._debouncer.close, self.cancel)
        self.check()

    @property
    def code(self) -> str:
        """The Python call that says the text with what the knobs say. Raises RequestInvalid while something is wrong."""
        return self.controls.code(self.controls.call())

    @property
    def status(self) -> str:
        """How far the last take is, in words."""
        return str(self.controls.status)

    def speak(self) -> None:
        """Do what the Speak button does: speak with what the knobs say, in place of what is being spoken."""
        self._debouncer.cancel()
        self._begin(lambda: True)

    def cancel(self) -> None:
        """Do what the Cancel button does."""
        self._debouncer.cancel()
        with self.lock:
            take = self._take
        if take is not None:
            take.cancel()

    def recall(self) -> None:
        """Turn the knobs back to what the selected take was made with, without speaking."""
        for row in self.takes.selected[:1] if self.takes is not None else ():
            if (take := row.clip().take) is not None:
                self.controls.put(take.call)
                self.check()

    def wait(self, timeout: float = 30.0) -> bool:
        """Wait until what was asked for is spoken; returns whether it is."""
        if not self._debouncer.settled(timeout):
            return False
        take = self._take
        return take is None or take.wait(timeout)

    def check(self) -> Call | None:
        """Check the knobs and write the call; returns it, None where something is wrong."""
        try:
            call = self.controls.call()
        except RequestInvalid as error:
            self.controls.show_error(error)
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

    def _begin(self, wanted: Callable[[], bool]) -> None:
        """Begin a take in place of the one before, with a new seed unless it is held; in a thread after a knob's release."""
        if not wanted():
            return
        if not self.controls.held:
            self.controls.draw_seed()
        if (call := self.check()) is None:
            return
        with self.lock:
            before, self.newest = self._take, self.newest + 1
            # Begun under the lock, so that ``cancel`` finds it.
            self._take = _Take(self, self._lab.backend, self.newest, call).start()
            if before is not None:
                before.cancel()

    def keep(self, take: _Take, clip: Clip) -> None:
        """Put a finished take among the others."""
        if self.takes is None:
            return
        text = take.call.request.text
        labels = {"take": str(take.number)} | ({"text": text} if text != self._first_text else {})
        # Told apart by what was turned, and the seed always; latency is the panel's own choice, and hardly heard.
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
            if len(rows := grid.work.rows) > _MOST:
                # The oldest that is not pinned makes room.
                grid.work.drop([next((row.id for row in rows if row.id not in grid.pinned), take.number)])

    def show_finished(self, take: _Take, clip: Clip) -> None:
        """Show the last take, and leave it in the notebook."""
        self.clip, self._clip_code = clip, self.controls.code(take.call)
        self.controls.notes = list(clip.notes)
        self.update_saved_output()

    def _display_(self) -> Any:
        """Return what marimo shows, which has no boxes of ipywidgets: the anywidgets in it, one below the other."""
        import marimo

        parts = [self.controls, self.player, self.foot, *([self.takes.grid] if self.takes is not None else [])]
        return marimo.vstack([marimo.ui.anywidget(part) for part in parts])

    def __repr__(self) -> str:
        capabilities = self._lab.capabilities
        return f"ExplorePanel({capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices)"

    def saved_output(self) -> Mapping[str, str]:
        """Return the last take, below the call that makes it."""
        if self.clip is None:
            return {}
        output = clip_bundle(self.clip)
        return {**output, "text/html": f"<pre>{escape(self._clip_code)}</pre>{output['text/html']}"}


class _Take(SpeechTask):
    """One take on its way; only the panel's newest shows itself."""

    def __init__(self, panel: ExplorePanel, backend: Backend, number: int, call: Call) -> None:
        super().__init__(lambda: backend.synthesize(call))
        self.number = number
        self.call = call
        self._panel = panel
        self._title = f"take {number}: " if panel.takes is not None else ""
        self._expected_s = max(call.expected_seconds, 0.5)
        self._moved = time.monotonic()
        self._seconds = 0.0
        panel.controls.notes = []
        waiting = f"{self._title}waiting for the first audio…"
        panel.controls.show(status=waiting, share=0.0, tone="info", busy=True)

    @property
    def newest(self) -> bool:
        """Whether no other take has begun since."""
        return self._panel.newest == self.number

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
            now = time.monotonic()
            if now - self._moved >= _BAR_S:
                self._moved = now
                # How long a text takes is known only at its end: the bar never says that it is over before.
                self._panel.controls.show(share=min(self._seconds / self._expected_s, 0.95))

    def finished(self, clip: Clip) -> None:
        # Kept, whether or not another has begun: it is whole.
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
        """Show the words of a backend that says no word times, where they can be found."""
        words = with_words(clip).words
        with self._panel.lock:
            if words and self.newest:
                self._panel.player.end(words)

    def failed(self, error: Exception) -> None:
        if not self.newest:
            return  # it was broken off for the next one
        if isinstance(error, Cancelled):
            self._over(f"cancelled after {self._seconds:.1f} s", "warning")
        else:
            self._over("failed", "danger")
            self._panel.controls.show_error(error)

    def _over(self, status: str, tone: str, words: Sequence[WordTime] = ()) -> None:
        self._panel.player.end(words)
        self._panel.controls.show(status=f"{self._title}{status}", tone=tone, busy=False)
