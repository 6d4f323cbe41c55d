"""A host of voices for tests: tones that speak, a real store, and real intake; only the engine is not there."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Self

from tests.tones import VOICES, ToneBackend
from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.errors import NotFound, RequestInvalid
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.voices.intake import prepare_samples
from voicelab.voices.store import LOCAL_OWNER, VoiceStore


class ToneHost(ToneBackend):
    """Keeps voices in ``folder`` and says notes with all of them."""

    def __init__(self, folder: Path, *, max_text: int = 20_000, busy_s: float = 2.0) -> None:
        super().__init__(max_text=max_text)
        self.store = VoiceStore(folder, busy_s=busy_s)
        self._owner = LOCAL_OWNER

    def acting_for(self, owner: str) -> Self:
        other = copy.copy(self)
        other._owner = owner
        return other

    def synthesize(self, call: Call) -> SpeechStream:
        voice = call.request.reference_id
        if voice is not None and voice not in {one.id for one in VOICES}:
            try:
                self.store.get(voice, self._owner)
            except NotFound:
                raise RequestInvalid.of("reference_id", "There is no such voice", type="not_found") from None
            call = call.replace(reference_id=None)
        return super().synthesize(call)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        voice = self.store.begin(request, prepare_samples(request, lambda: None), self._owner, ("en",))
        self.store.train(voice)
        return self.store.finish(voice, self.capabilities.fingerprint, b"")

    def get_voice(self, id: str) -> VoiceModel:
        return self.store.get(id, self._owner)

    def usage(self) -> tuple[int, int]:
        return self.store.usage(self._owner)

    def cover_image(self, id: str) -> bytes:
        return self.store.cover(id, self._owner)

    def sample_audio(self, id: str, number: int) -> bytes:
        return self.store.sample(id, self._owner, number)

    def close(self) -> None:
        self.store.close()
