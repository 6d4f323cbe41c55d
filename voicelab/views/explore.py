"""ExplorePanel: turn a knob, let go, hear what it does; every take stays, beside those before it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import ipywidgets as w

from voicelab.audio.clip import Clip
from voicelab.audio.samples import Samples
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.experiments.sweeps.rows import Row
from voicelab.schema import DEFAULT_MODEL
from voicelab.views.display import clip_bundle
from voicelab.views.form import call_code, error_html
from voicelab.views.job import Arrival, SpeechJob
from voicelab.views.knobs import MORE, SLIDERS, Knobs
from voicelab.views.lasting import Lasting
from voicelab.views.later import Later
from voicelab.views.panel import Speaker
from voicelab.views.player import Player
from voicelab.views.takesview import TakesView, flow, shut, small

__all__ = ["ExplorePanel"]

_TEXT: Final = "The birch canoe slid on the smooth planks."
_WIDE: Final = {"width": "calc(100% - 4px)"}
_MOST: Final = 500
_SETTLE_S: Final = 0.1


class _Listener:
    """One take on its way; it stops telling the panel once another has begun."""

    def __init__(self, panel: ExplorePanel, number: int, settings: dict[str, Any], text: str) -> None:
        self.panel = panel
        self.number = number
        self.settings = settings
        self.text = text

    def began(self, rate: int) -> None:
        self.panel.began(self, rate)

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        self.panel.arrived(self, samples, arrivals)

    def finished(self, clip: Clip) -> None:
        self.panel.finished(self, clip)

    def failed(self, error: Exception) -> None:
        self.panel.failed(self, error)


class ExplorePanel(Lasting, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """Knobs for every field; letting go of one speaks again, and breaks off what is still being spoken.

    ``code`` is the call that makes what the knobs say, ``clip`` the last take, ``takes`` the view of all of them, to be
    heard, pinned and compared. The work runs in threads; ``close()`` stops it and takes the panel off the page.
    The notebook keeps the last take, and the call that makes it.
    """

    about = "a panel to turn the knobs of a voice and hear what each of them does"

    def __init__(self, lab: Speaker, text: str = _TEXT) -> None:
        self._lab = lab
        self._lock = threading.RLock()
        self._job: SpeechJob | None = None
        self._now: _Listener | None = None
        self._wanted = False
        self._number = 0
        self._first = text
        self._kept: dict[int, tuple[dict[str, Any], str]] = {}
        self.clip: Clip | None = None
        self._said = ""
        self._later = Later(self._begin, _SETTLE_S)
        seed = lab.defaults.get("seed")
        self.knobs = Knobs(
            lab.request(text),
            lab.capabilities,
            model=str(lab.defaults.get("model") or DEFAULT_MODEL),
            seed=seed if isinstance(seed, int) else None,
            told=self._released,
        )
        self._build(text)
        self._check()

    def _build(self, text: str) -> None:
        self.text = w.Textarea(value=text, rows=2, layout=_WIDE, continuous_update=False)
        self.text.add_class("voicelab-text")
        self.speak_button = small("Speak", self.speak, "speak", button_style="primary", icon="volume-up")
        self.cancel_button = small("Cancel", self.cancel, "cancel", icon="stop", disabled=True)
        self.recall_button = small("Back to the selected take", self.recall, "recall", icon="undo")
        self.at_once = w.Checkbox(value=True, description="speak when a knob is let go", indent=False)
        self.status = w.Label()
        self.status.add_class("voicelab-status")
        self.message = w.HTML()
        self.message.add_class("voicelab-message")
        self.player = Player(label="The last take", name="take")
        self.code_view = w.HTML(layout=_WIDE)
        self.code_view.add_class("voicelab-code")
        self.takes = TakesView(axes=("text", *self.knobs.controls), gone=self.cancel)
        self.takes.tools.children = (self.recall_button,)
        controls = self.knobs.controls
        first = [controls[name] for name in ("voice", "latency", "seed", "model", *SLIDERS)]
        more = w.Accordion([flow(*(controls[name] for name in MORE))], titles=("More fields",), selected_index=None)
        super().__init__(
            [
                self.text,
                flow(*first),
                more,
                flow(self.speak_button, self.cancel_button, self.at_once, self.status),
                self.message,
                self.player,
                self.code_view,
                self.takes,
            ]
        )
        self.add_class("voicelab-explore")
        self.text.observe(lambda _: self._released(), names="value")

    @property
    def code(self) -> str:
        """The call that says the text with what the knobs say. Raises RequestInvalid for a bad seed."""
        return call_code(self.text.value, self.knobs.fields(self.knobs.settings()), base={})

    def speak(self) -> None:
        """Do what the Speak button does: speak with what the knobs say, in place of what is being spoken."""
        if self._check() is not None:
            self._ask()

    def cancel(self) -> None:
        """Do what the Cancel button does."""
        with self._lock:
            self._wanted = False
            job = self._job
        if job is not None:
            job.cancel()

    def recall(self) -> None:
        """Turn the knobs back to what the selected take was made with, without speaking."""
        for row in self.takes.selected[:1]:
            settings, text = self._kept[row.id]
            self.knobs.put(settings)
            before, self.at_once.value = self.at_once.value, False
            self.text.value = text
            self.at_once.value = before
            self._check()

    def wait(self, timeout: float = 30.0) -> bool:
        """Wait until what was asked for is spoken; returns whether it is."""
        if not self._later.settled(timeout):
            return False
        job = self._job
        return job is None or job.wait(timeout)

    def close(self) -> None:
        """Stop the work and take the panel off the page."""
        if hasattr(self, "takes"):
            self._later.close()
            self.cancel()
            shut(self)
        super().close()

    def _released(self) -> None:
        if self._check() is not None and self.at_once.value:
            self._ask()

    def _ask(self) -> None:
        self._wanted = True
        self._later.ask()

    def _check(self) -> dict[str, Any] | None:
        """Check the knobs and write the call; returns what they say, None where something is wrong with it."""
        try:
            settings = self.knobs.settings()
            fields = self.knobs.fields(settings)
            asked = {name: value for name, value in fields.items() if name not in {"seed", "model"}}
            self._lab.request(self.text.value, **asked)
        except RequestInvalid as error:
            self.knobs.wrong(error)
            self.message.value = error_html(error)
            self.speak_button.disabled = True
            return None
        self.knobs.wrong(None)
        self.message.value = ""
        self.speak_button.disabled = False
        code = escape(call_code(self.text.value, fields, base={}))
        # One click selects the whole call, another one copies it.
        self.code_view.value = (
            f'<pre style="user-select:all;white-space:pre-wrap;margin:0">{code}</pre>'
            f'<button class="jupyter-button" data-code="{code}" title="Copy the call" '
            "onclick=\"navigator.clipboard.writeText(this.dataset.code);this.textContent='Copied'\">Copy</button>"
        )
        return settings

    def _begin(self, wanted: Any) -> None:
        """Begin a take in place of the one before; called in a thread, a moment after the last release."""
        try:
            settings = self.knobs.settings()
        except RequestInvalid:
            return
        if not (wanted() and self._wanted):
            return
        text, fields = self.text.value, self.knobs.fields(settings)
        with self._lock:
            before, self._number = self._job, self._number + 1
            listener = self._now = _Listener(self, self._number, settings, text)
        if before is not None:
            before.cancel()
        self.cancel_button.disabled = False
        self.status.value = f"take {listener.number}: waiting for the first audio…"
        with self._lock:
            # Under the lock, so that whoever cancels finds the job that has begun.
            self._job = SpeechJob(lambda: self._lab.stream(text, **fields), listener)

    # What a take tells, from its own thread.

    def began(self, take: _Listener, rate: int) -> None:
        """Empty the player for a new take."""
        with self._lock:
            if take is self._now:
                self.player.begin(rate)

    def arrived(self, take: _Listener, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        """Let new samples sound."""
        with self._lock:
            if take is self._now:
                self.player.feed(samples, arrivals)

    def finished(self, take: _Listener, clip: Clip) -> None:
        """Keep the take, whether or not another has begun: it is whole."""
        changed = self.knobs.changes(take.settings)
        labels = {"take": str(take.number)}
        if take.text != self._first:
            labels["text"] = take.text
        labels |= {name.removeprefix("prosody."): str(value) for name, value in changed.items()}
        values = {"take": take.number, "text": take.text, **take.settings}
        row = Row(take.number, labels, values, "done", notes=clip.notes, hear=lambda: clip)
        with self._lock:
            self._kept[take.number] = (take.settings, take.text)
            if len(self._kept) > _MOST:
                # The oldest that nobody has pinned makes room.
                free = next((key for key in self._kept if key not in self.takes.grid.pinned), take.number)
                del self._kept[free]
                self.takes.grid.work.drop([free])
        self.takes.grid.work.put([row])
        if take is not self._now:
            return
        self.clip, self._said = clip, call_code(take.text, self.knobs.fields(take.settings), base={})
        timing = clip.provenance.timing if clip.provenance else None
        took = f", RTF {timing.rtf(clip.duration):.2f}" if timing else ""
        self._over(f"take {take.number}: {clip.duration:.1f} s{took}")
        self.last()

    def failed(self, take: _Listener, error: Exception) -> None:
        """Say what went wrong, unless it was broken off for the next take."""
        if take is not self._now:
            return
        if isinstance(error, Cancelled):
            self._over(f"take {take.number}: cancelled")
        else:
            self._over(f"take {take.number}: failed")
            self.message.value = error_html(error)

    def _over(self, status: str) -> None:
        self.player.end()
        self.status.value = status
        self.cancel_button.disabled = True

    def __repr__(self) -> str:
        capabilities = self._lab.capabilities
        return f"ExplorePanel({capabilities.name} on {capabilities.device}, {len(self._kept)} takes)"

    def lasting(self) -> Mapping[str, str]:
        """Return the last take, below the call that makes it."""
        if self.clip is None:
            return {}
        held = clip_bundle(self.clip)
        return {**held, "text/html": f"<pre>{escape(self._said)}</pre>{held['text/html']}"}
