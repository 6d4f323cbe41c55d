"""Trial: a sentence, a button and a player, to hear a voice at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ipywidgets as w

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.views.form import error_html
from voicelab.views.speaking import Speaker, Speaking
from voicelab.views.takesview import flow

__all__ = ["Trial"]

_SENTENCE: Final = "The birch canoe slid on the smooth planks."


class Trial(Speaking):
    """Says a sentence with the voice whose id ``voice`` returns, "" for the default speaker, None for none to try.

    ``said`` is called when a sentence was spoken in full.
    """

    def __init__(self, lab: Speaker, voice: Callable[[], str | None], said: Callable[[], object]) -> None:
        super().__init__(lab, "The voice on trial")
        self._voice = voice
        self._said = said
        self.text = w.Text(value=_SENTENCE, description="sentence", layout=w.Layout(flex="1 1 320px"))
        self.text.add_class("voicelab-text")
        self.text.observe(lambda _: self.check(), names="value")
        line = flow(self.text, self.speak_button, self.cancel_button)
        self.children = [line, flow(self.progress, self.status), self.message, self.player]

    def wanted(self) -> tuple[str, dict[str, Any]] | None:
        """Return the sentence and whose voice says it; what is wrong with it is named."""
        voice = self._voice()
        if voice is None:
            return None
        fields = {"reference_id": voice or None}
        try:
            self._lab.request(self.text.value, **fields)
        except RequestInvalid as error:
            self.message.value = error_html(error)
            return None
        return self.text.value, fields

    def finished(self, clip: Clip) -> None:
        """Keep the clip, and say so."""
        super().finished(clip)
        self._said()

    def check(self) -> None:
        """Look again whether the sentence can be said."""
        self.message.value = ""
        self.speak_button.disabled = self.wanted() is None or self.running
