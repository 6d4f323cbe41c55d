"""CachedBackend: any backend, and a cache in front of it."""

from __future__ import annotations

import time

from voicelab.backend import Backend, Capabilities, SpeechStream, check_seed_support, delete_voice, list_voices
from voicelab.call import Call
from voicelab.experiments.cache import Cache
from voicelab.experiments.streams import RecordedStream, tee
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.take import take_key

__all__ = ["CachedBackend"]


class CachedBackend:
    """A backend that makes nothing twice which it could only make the same again.

    That is speech with a seed, where the backend's seeds are exact, and speech at temperature 0. All
    other speech is made anew at every call, as without a cache, and not kept; where repeated takes shall
    be kept too, ask with ``repeat`` (see ``Cache.get_or_render``). A kept take comes at once, with a note that
    says when it was made, and the timing of its making.
    """

    def __init__(self, backend: Backend, cache: Cache) -> None:
        self.backend = backend
        self.cache = cache

    def __repr__(self) -> str:
        return f"CachedBackend({self.backend!r}, {self.cache!r})"

    @property
    def capabilities(self) -> Capabilities:
        """What the backend behind it is and can do."""
        return self.backend.capabilities

    def synthesize(self, call: Call, repeat: int | None = None) -> SpeechStream:
        """Begin to speak, or play what is kept. ``repeat`` keeps each of several takes of one request.

        Raises what the backend raises. A take that cannot be kept is spoken all the same, with a note.
        """
        started = time.perf_counter()
        capabilities = self.backend.capabilities
        check_seed_support(call, capabilities)
        same = call.request.temperature == 0.0 or (call.seed is not None and capabilities.seed == "exact")
        if repeat is None and not same:
            return self.backend.synthesize(call)
        number = repeat or 0
        kept, notes = self.cache.look(take_key(call, capabilities.fingerprint, number))
        if kept is not None:
            return RecordedStream(kept, capabilities)

        def finished(stream: SpeechStream, audio: bytes) -> tuple[str, ...]:
            made = stream.take_of(audio, number)
            kept = self.cache.keep(made, *notes)
            return kept.notes[len(made.notes) :] if kept.digest == made.digest else notes

        return tee(self.backend.synthesize(call), started=started, finished=finished)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Make a voice model, as the backend does."""
        return self.backend.create_voice(request)

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record, as the backend does."""
        return self.backend.get_voice(id)

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return the caller's voice models, where the backend says which they are."""
        return list_voices(self.backend)

    def delete_voice(self, id: str) -> None:
        """Forget a voice model, where the backend can; takes that were kept stay. Raises like ``delete_voice``."""
        delete_voice(self.backend, id)

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()
