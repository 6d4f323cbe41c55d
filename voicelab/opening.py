"""Opening: how a backend comes to be, here or in another process; and what ``connect`` puts around it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from voicelab.backend import Backend
from voicelab.errors import MissingExtra, RequestInvalid

if TYPE_CHECKING:
    from voicelab.experiments.cache import Cache

__all__ = ["API_KEY_VARIABLE", "BASE_URL_VARIABLE", "Opening", "check_replay", "kept"]

BASE_URL_VARIABLE: Final = "VOICELAB_BASE_URL"
API_KEY_VARIABLE: Final = "VOICELAB_API_KEY"

# The engine's own dependencies; they come with the extra "local" only.
_LOCAL_ONLY: Final = frozenset({"torch", "safetensors"})


@dataclass(frozen=True, slots=True)
class Opening:
    """How a backend is opened: another process can do the same. No key is in it; there, the environment has it."""

    base_url: str | None = None
    device: str | None = None
    replay: str | Path | None = None

    def __call__(self, api_key: str | None = None) -> Backend:
        """Open the backend. Raises MissingExtra when its dependencies are not installed, StoreError."""
        if self.replay is not None:
            from voicelab.experiments.recording import ReplayBackend

            return ReplayBackend(self.replay)
        if self.base_url is None:
            return _embedded(self.device)
        from voicelab.client import ServiceBackend

        return ServiceBackend(self.base_url, api_key or os.environ.get(API_KEY_VARIABLE) or None)


def kept(backend: Backend, cache: Cache | str | Path | bool | None, record: str | Path | None) -> Backend:
    """Return the backend behind a cache and a recording, where these are asked for. Raises StoreError."""
    if cache is not None and cache is not False:
        from voicelab.experiments.cache import Cache as TakeCache
        from voicelab.experiments.cached import CachedBackend

        folder = None if cache is True else cache
        backend = CachedBackend(backend, folder if isinstance(folder, TakeCache) else TakeCache(folder))
    if record is not None:
        from voicelab.experiments.recording import RecordingBackend

        # Outermost, so that what the cache answers is in the recording too.
        backend = RecordingBackend(backend, record)
    return backend


def check_replay(**others: object) -> None:
    """Raise RequestInvalid for an argument that a recording, which answers by itself, has no use for."""
    for name, value in others.items():
        if value is not None:
            raise RequestInvalid.of(name, "a recording answers by itself; leave it out beside replay", in_="query")


def _embedded(device: str | None) -> Backend:
    try:
        from voicelab.engine.local import LocalBackend
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LOCAL_ONLY:
            raise
        raise MissingExtra.of("local", "the embedded voice") from error
    return LocalBackend(device=device)
