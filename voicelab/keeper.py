"""VoiceKeeper: what some backends can do with the voice models they keep, for which the interface has no call."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from voicelab.backend import Backend
from voicelab.errors import RequestInvalid
from voicelab.schema import VoiceModel

__all__ = ["VoiceKeeper", "forget_voice", "voices_of"]


@runtime_checkable
class VoiceKeeper(Protocol):
    """A backend that says which voice models it keeps, and forgets them when asked to."""

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return the voice models that its caller has made, the newest first. Raises StoreError."""

    def delete_voice(self, id: str) -> None:
        """Forget a voice model that its caller has made, with its recordings. Raises NotFound, StoreError."""


def voices_of(backend: Backend) -> tuple[VoiceModel, ...]:
    """Return what a VoiceKeeper lists, and nothing for any other backend."""
    return backend.list_voices() if isinstance(backend, VoiceKeeper) else ()


def forget_voice(backend: Backend, id: str) -> None:
    """Let a VoiceKeeper forget a voice model. Raises like it, and RequestInvalid for any other backend."""
    if not isinstance(backend, VoiceKeeper):
        message = f"the backend {backend.capabilities.name!r} has no call that deletes a voice"
        raise RequestInvalid.of("voice", message, type="unsupported")
    backend.delete_voice(id)
