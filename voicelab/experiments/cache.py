"""Cache: takes that were made before, and CachedBackend: any backend with a cache in front of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from voicelab.backend import Backend, Capabilities, SpeechStream, check_call, delete_voice, list_voices
from voicelab.call import Call
from voicelab.clip import Take, take_key
from voicelab.errors import RequestInvalid, StoreError
from voicelab.experiments.entries import Entries, EntryFile
from voicelab.experiments.streams import RecordedStream, tee
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.storage import DamagedFile, data_home, disk_error

__all__ = ["DEFAULT_MAX_BYTES", "Cache", "CacheStats", "CachedBackend"]

DEFAULT_MAX_BYTES = 4 * 1024**3
"""Bytes that a cache takes up at most, unless given another bound: some ten thousand sentences as wav."""

# When there is too much, a little more is removed, so that not every take has to look for room.
_ROOM = 0.9
# A share of the bound: after writing so much, a cache looks again what other processes have written.
_LOOK = 64


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds, and what it did since it was opened.

    ``bytes`` is all it takes up on disk; ``damaged`` counts what was set aside there and not yet removed.
    """

    entries: int
    bytes: int
    max_bytes: int | None
    damaged: int
    hits: int
    misses: int


class Cache:
    """Takes by their keys, in a folder, the least recently used removed when there are too many bytes.

    Args:
        folder: where; made at the first take. None is the folder ``cache`` of voicelab's data.
        max_bytes: of all files together; None is no bound.

    Each take is one file with audio, timing and what was asked for, checked whenever it is read: one that has
    changed is set aside in ``damaged/`` and made anew. Several processes may use one folder; of several
    that make the same take at once, all get the one that was kept. Raises StoreError when the disk fails
    or is full, RequestInvalid for a bound below 1.
    """

    def __init__(self, folder: str | Path | None = None, max_bytes: int | None = DEFAULT_MAX_BYTES) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise RequestInvalid.of("max_bytes", "a cache needs room; None is no bound", in_="query")
        self.entries = Entries(data_home() / "cache" if folder is None else folder)
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        # Bytes that are certainly there, and how many of them are ours since we last looked.
        self._bytes: int | None = None
        self._since = 0

    @property
    def folder(self) -> Path:
        """Where the takes are."""
        return self.entries.folder

    def __repr__(self) -> str:
        bound = "" if self.max_bytes is None else f", at most {self.max_bytes / 1e6:.0f} MB"
        return f"Cache({str(self.folder)!r}{bound})"

    def __reduce__(self) -> tuple[type[Cache], tuple[Path, int | None]]:
        # To a worker process goes the folder; counters and lock are each process' own.
        return Cache, (self.folder, self.max_bytes)

    def __bool__(self) -> bool:
        # An empty cache is still a cache.
        return True

    def __len__(self) -> int:
        return sum(1 for _ in self.entries)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self.entries

    def __iter__(self) -> Iterator[Take]:
        """Iterate over all takes, their audio left on disk; damaged ones are set aside and left out."""
        for key in self.entries:
            try:
                take = self.get(key, audio=False)
            except StoreError:
                continue
            if take is not None:
                yield take

    def get(self, key: str, *, audio: bool = True) -> Take | None:
        """Return a take, or None. With ``audio=False`` its audio stays on disk until somebody asks for it.

        Raises DamagedFile (a StoreError) when it was damaged and has been set aside.
        """
        if audio:
            entry = self.entries.get(key)
            if entry is None:
                return None
            record, sound = entry
            take = Take.of_record(record, sound, self.entries.reference)
        else:
            described = self.entries.record(key)
            if described is None:
                return None
            take = Take.of_record(described, EntryFile(self.folder, key, described["digest"]), self.entries.reference)
        return replace(take, cached=True)

    def put(self, take: Take) -> Take:
        """Keep a take, and return the one that is kept: this, or the one that was there before.

        Raises StoreError, and nothing of the take is left.
        """
        key = take.key
        self.entries.put_references(take.request)
        for _ in range(3):
            if key not in self.entries:
                audio = take.audio
                # The disk is not waited for: an entry that a loss of power spoils is noticed, and made anew.
                if self.entries.put(key, take.record(), audio, sync=False):
                    self._grown(len(audio))
                    return take
            try:
                record = self.entries.record(key)
                # The very same is most often there because it came from here.
                kept = take if record is not None and record["digest"] == take.digest else self.get(key)
            except DamagedFile:
                continue
            if kept is not None:
                return kept
        return take

    def get_or_render(self, backend: Backend, call: Call, repeat: int = 0) -> Take:
        """Return the take that is kept, or make and keep it. ``take.cached`` says which.

        A take that cannot be kept is returned all the same, with a note that says why. Raises what the
        backend raises.
        """
        call = check_call(call, backend.capabilities)
        kept, notes = self.look(take_key(call, backend.capabilities.fingerprint, repeat))
        if kept is not None:
            return kept
        return self.keep(backend.synthesize(call).take(repeat), *notes)

    def look(self, key: str) -> tuple[Take | None, tuple[str, ...]]:
        """Return the take of a key, if it can be had, and notes for the one that is made in its place.

        Counts as a hit or a miss. Raises nothing but RequestInvalid and errors of this program.
        """
        take: Take | None = None
        notes: tuple[str, ...] = ()
        try:
            take = self.get(key)
        except DamagedFile as error:
            notes = (f"The kept take was damaged, and this one was made anew: {error}.",)
        except StoreError as error:
            notes = (f"The kept take cannot be used: {error}.",)
        with self._lock:
            self._hits += take is not None
            self._misses += take is None
        return take, notes

    def keep(self, take: Take, *notes: str) -> Take:
        """Keep a take as ``put`` does; where that fails, return it with ``notes`` and one that says why."""
        try:
            kept = self.put(take)
        except StoreError as error:
            return take.noted(*notes, f"This take could not be kept: {error}.")
        return kept.noted(*notes)

    def remove(self, key: str) -> bool:
        """Remove a take; return whether it was there. Raises StoreError."""
        with self._lock:
            self._bytes = None
        return self.entries.remove(key)

    def clear(self) -> int:
        """Remove all takes, what was set aside, and reference audio; return how many takes. Raises StoreError."""
        count = sum(self.entries.remove(key) for key in list(self.entries))
        for file in self.entries.files():
            try:
                file.path.unlink(missing_ok=True)
            except OSError as error:
                raise disk_error(error, file.path) from error
        with self._lock:
            self._bytes = None
        return count

    def stats(self) -> CacheStats:
        """Return what the cache holds and what it did."""
        files = self.entries.files()
        return CacheStats(
            entries=len(self),
            bytes=sum(file.size for file in files),
            max_bytes=self.max_bytes,
            damaged=sum(file.path.parent == self.entries.damaged for file in files),
            hits=self._hits,
            misses=self._misses,
        )

    def _grown(self, size: int) -> None:
        """Count bytes that were written, and make room when they are too many."""
        if self.max_bytes is None:
            return
        with self._lock:
            self._since += size
            if self._bytes is not None and self._since * _LOOK < self.max_bytes:
                self._bytes += size
                if self._bytes <= self.max_bytes:
                    return
            self._bytes = self._shrunk(self.max_bytes)
            self._since = 0

    def _shrunk(self, limit: int) -> int:
        """Remove the files least recently used until the limit is kept; return the bytes that are left."""
        self.entries.tidy()
        files = sorted(self.entries.files(), key=lambda file: file.used)
        total = sum(file.size for file in files)
        if total <= limit:
            return total
        # The newest stays in any case: it is what somebody is about to read.
        for file in files[:-1]:
            if total <= limit * _ROOM:
                break
            # One that may not be removed, somebody else's or one that is being read, stays.
            with suppress(OSError):
                file.path.unlink(missing_ok=True)
                total -= file.size
        return total


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
        call = check_call(call, capabilities)
        same = call.request.temperature == 0.0 or (call.seed is not None and capabilities.seed == "exact")
        if repeat is None and not same:
            return self.backend.synthesize(call)
        number = repeat or 0
        kept, notes = self.cache.look(take_key(call, capabilities.fingerprint, number))
        if kept is not None:
            return RecordedStream(kept, capabilities)

        def finished(stream: SpeechStream, audio: bytes) -> tuple[str, ...]:
            take = stream.take_of(audio, number)
            kept = self.cache.keep(take, *notes)
            return kept.notes[len(take.notes) :] if kept.digest == take.digest else notes

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
