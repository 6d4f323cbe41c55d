"""Speaking: the part of a panel that says something, its buttons, how far it is, and a player that sounds meanwhile."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, Protocol

import ipywidgets as w

from voicelab.audio.clip import Clip
from voicelab.audio.samples import Samples
from voicelab.backend import Capabilities, SpeechStream
from voicelab.errors import Cancelled
from voicelab.schema import TTSRequest
from voicelab.views.form import error_html, expected_seconds
from voicelab.views.job import Arrival, SpeechJob
from voicelab.views.player import Player
from voicelab.views.takesview import shut, small

__all__ = ["Speaker", "Speaking", "shut"]

# The bar moves twice a second: with the sound, which takes 13 messages, a page gets fewer than 20 a second.
_BAR_S: Final = 0.5


class Speaker(Protocol):
    """What a panel asks of a Lab."""

    @property
    def capabilities(self) -> Capabilities:
        """What the backend is and can do."""

    @property
    def defaults(self) -> Mapping[str, object]:
        """What every call starts from."""

    def request(self, text: str, **fields: Any) -> TTSRequest:
        """Return the request that would be made. Raises RequestInvalid."""

    def stream(self, text: str, **fields: Any) -> SpeechStream:
        """Begin to speak."""


class Speaking(w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """What a form that speaks is built on; it has the parts, the form puts them where it wants them.

    ``clip`` is what was said last in full, None before. The work runs in a thread, the kernel stays free; ``close()``
    stops it and takes everything off the page.
    """

    def __init__(self, lab: Speaker, label: str) -> None:
        self._lab = lab
        self._job: SpeechJob | None = None
        self._expected = 1.0
        self._moved = 0.0
        self._began = False
        self.clip: Clip | None = None
        self.speak_button = small("Speak", self.speak, "speak", button_style="primary", icon="volume-up")
        self.cancel_button = small("Cancel", self.cancel, "cancel", icon="stop", disabled=True)
        self.progress = w.FloatProgress(min=0.0, max=1.0, layout=w.Layout(width="160px"))
        self.status = w.Label()
        self.status.add_class("voicelab-status")
        self.message = w.HTML()
        self.message.add_class("voicelab-message")
        self.player = Player(label=label)
        super().__init__()

    @property
    def running(self) -> bool:
        """Whether something is being said."""
        return self._job is not None and self._job.running

    def wanted(self) -> tuple[str, dict[str, Any]] | None:
        """Return the text and the fields of the call that the form asks for, None while it has an error."""
        raise NotImplementedError

    def speak(self) -> SpeechJob | None:
        """Do what the Speak button does; returns the work, or None when the form has an error."""
        if self.running:
            return self._job
        wanted = self.wanted()
        if wanted is None:
            return None
        text, fields = wanted
        self.speak_button.disabled = True
        self.cancel_button.disabled = False
        self.message.value = ""
        self.status.value = "waiting for the first audio…"
        self._expected, self._moved, self._began = expected_seconds(text), time.monotonic(), False
        self._move("info", 0.0)
        self._job = SpeechJob(lambda: self._lab.stream(text, **fields), self)
        return self._job

    def cancel(self) -> None:
        """Do what the Cancel button does."""
        if self._job is not None:
            self._job.cancel()

    def close(self) -> None:
        """Stop the work and take the panel off the page."""
        # Also called for a panel that could not be made, from its ``__del__``.
        if hasattr(self, "player"):
            self.cancel()
            shut(self)
        super().close()

    # What the job tells, from its own thread.

    def began(self, rate: int) -> None:
        """Empty the player for new speech."""
        self._began = True
        self.player.begin(rate)
        self.status.value = "speaking…"

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        """Let new samples sound, and move the progress bar."""
        self.player.feed(samples, arrivals)
        now = time.monotonic()
        if now - self._moved >= _BAR_S:
            self._moved = now
            # How long a text takes is known only at its end: the bar never says that it is over before.
            self.progress.value = min(self.player.duration / self._expected, 0.95)

    def finished(self, clip: Clip) -> None:
        """Keep the clip and say how it went."""
        self.clip = clip
        timing = clip.provenance.timing if clip.provenance else None
        took = (
            f", first audio after {timing.first_audio_s:.2f} s, RTF {timing.rtf(clip.duration):.2f}" if timing else ""
        )
        self._over("success", 1.0, f"{clip.duration:.1f} s{took}", "<br>".join(map(escape, clip.notes)))

    def failed(self, error: Exception) -> None:
        """Say in the panel what went wrong."""
        if isinstance(error, Cancelled):
            said = self.player.duration if self._began else 0.0
            self._over("warning", self.progress.value, f"cancelled after {said:.1f} s")
        else:
            self._over("danger", self.progress.value, "failed", error_html(error))

    def _over(self, style: str, share: float, status: str, message: str = "") -> None:
        self.player.end()
        self._move(style, share)
        self.status.value = status
        self.cancel_button.disabled = True
        # The form may have been changed meanwhile, to something that cannot be said, and then it says so itself.
        self.speak_button.disabled = self.wanted() is None
        if message:
            self.message.value = message

    def _move(self, style: str, share: float) -> None:
        with self.progress.hold_sync():
            self.progress.bar_style = style
            self.progress.value = share
