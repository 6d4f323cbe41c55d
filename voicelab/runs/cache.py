"""Cache of takes by key, with LRU eviction, in the format of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from voicelab.backend import Backend, current_capabilities
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import Take, take_key
from voicelab.errors import RequestInvalid, StoreError
from voicelab.runs.folder import RUN_FILE, RunFolder
from voicelab.storage import DamagedFile, data_home

DEFAULT_MAX_BYTES = 4 * 1024**3
"""Default size limit in bytes, about ten thousand sentences as WAV."""

# Eviction reduces the size to this fraction of the limit, so that not every write evicts.
_EVICTION_TARGET = 0.9
# Other processes may write to the folder, so its size is measured again when limit / 64 bytes have been written.
_CHECKS_PER_LIMIT = 64


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Number of takes and size of a cache, and hits and misses since it was opened.

    ``bytes`` is the total size on disk, and ``damaged`` the number of quarantined files.
    """

    entries: int
    bytes: int
    max_bytes: int | None
    damaged: int
    hits: int
    misses: int


class Cache:
    """Takes by key in a run folder, with least-recently-used eviction.

    Takes are verified when read; damaged audio is quarantined in ``damaged/`` and synthesized again. Several processes may
    share a folder; concurrent writers of a key all get the take that was stored first.

    Args:
        folder: Folder, created by the first take; default: ``cache`` in voicelab's data folder.
        max_bytes: Limit of the total size; None for no limit.

    Raises RequestInvalid if ``max_bytes`` is below 1. Methods raise StoreError if the disk fails or is full.
    """

    def __init__(self, folder: str | Path | None = None, max_bytes: int | None = DEFAULT_MAX_BYTES) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise RequestInvalid.of("max_bytes", f"must be at least 1 or None (no limit), got {max_bytes}", in_="query")
        self.run = RunFolder(data_home() / "cache" if folder is None else folder)
        self.folder = self.run.folder
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        self._declared: set[str] = set()
        # Bytes that may be written before the folder is measured again.
        self._budget = 0

    def __repr__(self) -> str:
        bound = "" if self.max_bytes is None else f", at most {self.max_bytes / 1e6:.0f} MB"
        return f"Cache({str(self.folder)!r}{bound})"

    def __reduce__(self) -> tuple[type[Cache], tuple[Path, int | None]]:
        # Counters and lock are per process.
        return Cache, (self.folder, self.max_bytes)

    def __bool__(self) -> bool:
        # A cache is true even if len() is 0.
        return True

    def __len__(self) -> int:
        return len(self.run.present())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self.run

    def __iter__(self) -> Iterator[Take]:
        """Iterate over all undamaged takes, with audio that is loaded on access."""
        for key in self.run.present():
            with suppress(StoreError):
                take = self.get(key, audio=False)
                if take is not None:
                    yield take

    def get(self, key: str, *, audio: bool = True) -> Take | None:
        """Return a take, or None. With ``audio=False`` its audio is loaded on access.

        Raises DamagedFile (a StoreError) if its line or audio is damaged; later calls return None.
        """
        record = self.run.record(key)
        if record is None or record["line"] != "take" or self.run.lost(record["sound"]):
            return None
        return replace(self.run.take_of(record, audio=audio), cached=True)

    def put(self, take: Take, backend: Capabilities | None = None) -> Take:
        """Store a take and return it; if the cache already has a take of its key, return the cached take instead.

        ``backend`` are the capabilities of the take's backend, to store with it. Raises StoreError if the take cannot be
        stored.
        """
        if backend is not None and backend.fingerprint not in self._declared:
            self.run.begin([backend])
            self._declared.add(backend.fingerprint)
        for _ in range(3):
            # The run is not synced, because a take damaged by a power failure is detected and synthesized again.
            if self.run.add(take, once=True):
                self._count(sum(size for _, size in take.timing.arrivals))
                return take
            try:
                record = self.run.record(take.key)
                is_same = record is not None and record["take"]["digest"] == take.digest
                stored = take if is_same else self.get(take.key)
            except DamagedFile:
                continue
            if stored is not None:
                return stored
        return take

    def get_or_render(self, backend: Backend, call: Call, repeat: int = 0) -> Take:
        """Return the cached take (``take.cached`` is True), or synthesize and store it.

        A take that cannot be stored is returned with a note. Raises the errors of the backend.
        """
        capabilities = current_capabilities(backend)
        call = check_call(call, capabilities)
        cached, notes = self.look(take_key(call, capabilities.fingerprint, repeat))
        if cached is not None:
            return cached
        return self.keep(backend.synthesize(call).take(repeat), *notes, backend=capabilities)

    def look(self, key: str) -> tuple[Take | None, tuple[str, ...]]:
        """Look up a key; return its take, or None with notes for the take that will replace it. Counts a hit or miss.

        Never raises StoreError.
        """
        take: Take | None = None
        notes: tuple[str, ...] = ()
        try:
            take = self.get(key)
        except DamagedFile as error:
            notes = (f"The cached take was damaged; this one replaces it: {error}.",)
        except StoreError as error:
            notes = (f"The cached take cannot be used: {error}.",)
        with self._lock:
            self._hits += take is not None
            self._misses += take is None
        return take, notes

    def keep(self, take: Take, *notes: str, backend: Capabilities | None = None) -> Take:
        """Store a take like ``put`` and add ``notes``; if storing fails, add a note instead of raising."""
        try:
            stored = self.put(take, backend)
        except StoreError as error:
            return take.noted(*notes, f"This take could not be stored: {error}.")
        return stored.noted(*notes)

    def remove(self, key: str) -> bool:
        """Remove a take; return True if it existed. Raises StoreError."""
        existed = key in self.run
        self.run.drop(lambda line: line.key == key)
        return existed

    def clear(self) -> int:
        """Remove all takes, reference audio and quarantined files; return the number of takes. Raises StoreError."""
        count = len(self)
        self.run.clear()
        return count

    def stats(self) -> CacheStats:
        """Return contents, hits and misses."""
        files = self.run.files()
        size = sum(file.st_size for file in files.values())
        damaged = sum(path.parent == self.run.damaged for path in files)
        return CacheStats(len(self), size, self.max_bytes, damaged, self._hits, self._misses)

    def _count(self, size: int) -> None:
        """Count written bytes, and evict if the limit may be exceeded."""
        if self.max_bytes is not None:
            with self._lock:
                self._budget -= size
                if self._budget < 0:
                    free = self.max_bytes - self._evict(self.max_bytes)
                    self._budget = min(free, self.max_bytes // _CHECKS_PER_LIMIT)

    def _evict(self, limit: int) -> int:
        """If the size exceeds the limit, remove the least recently used files down to 90 % of it; return the new size."""
        files = self.run.files()
        total = sum(file.st_size for file in files.values())
        if total <= limit:
            return total
        # Never remove the newest file, which is about to be read.
        oldest_first = sorted(files, key=lambda path: files[path].st_mtime)
        for path in [path for path in oldest_first if path.name != RUN_FILE][:-1]:
            if total <= limit * _EVICTION_TARGET:
                break
            # Skip files that may not be removed, or that are open on Windows.
            with suppress(OSError):
                path.unlink(missing_ok=True)
                total -= files[path].st_size
        self.run.drop(lambda line: self.run.lost(line.sound))
        return sum(file.st_size for file in self.run.files().values())
