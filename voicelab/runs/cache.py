"""Cache: a run that is used by key: takes that were made before, the least recently used removed when there are too many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from voicelab.backend import Backend
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import Take, take_key
from voicelab.errors import RequestInvalid, StoreError
from voicelab.runs.folder import RUN_FILE, RunFolder
from voicelab.storage import DamagedFile, data_home

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
    """Takes by their keys, in the folder of a run, the least recently used removed when there are too many bytes.

    Args:
        folder: where; made at the first take. None is the folder ``cache`` of voicelab's data.
        max_bytes: of all files together; None is no bound.

    Takes are checked whenever they are read: one whose audio has changed is set aside in ``damaged/`` and made anew.
    Several processes may use one folder; of several that make the same take at once, all get the one that was kept. Raises
    StoreError when the disk fails or is full, RequestInvalid for a bound below 1.
    """

    def __init__(self, folder: str | Path | None = None, max_bytes: int | None = DEFAULT_MAX_BYTES) -> None:
        if max_bytes is not None and max_bytes < 1:
            raise RequestInvalid.of("max_bytes", "a cache needs room; None is no bound", in_="query")
        self.run = RunFolder(data_home() / "cache" if folder is None else folder)
        self.folder = self.run.folder
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        self._declared: set[str] = set()
        # Bytes that may be written before we look again how many there are.
        self._room = 0

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
        return len(self.run.present())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self.run

    def __iter__(self) -> Iterator[Take]:
        """Iterate over all takes, their audio left on disk; damaged ones are left out."""
        for key in self.run.present():
            with suppress(StoreError):
                take = self.get(key, audio=False)
                if take is not None:
                    yield take

    def get(self, key: str, *, audio: bool = True) -> Take | None:
        """Return a take, or None. With ``audio=False`` its audio stays on disk until somebody asks for it.

        Raises DamagedFile (a StoreError) when it was damaged and has been set aside.
        """
        record = self.run.record(key)
        if record is None or record["line"] != "take" or self.run.lost(record["sound"]):
            return None
        return replace(self.run.take_of(record, audio=audio), cached=True)

    def put(self, take: Take, backend: Capabilities | None = None) -> Take:
        """Keep a take, and return the one that is kept: this, or the one that was there before.

        ``backend`` is what its backend declares, to be kept too. Raises StoreError, and nothing of the take is left.
        """
        if backend is not None and backend.fingerprint not in self._declared:
            self.run.begin([backend])
            self._declared.add(backend.fingerprint)
        for _ in range(3):
            # The disk is not waited for: a take that a loss of power spoils is noticed, and made anew.
            if self.run.add(take, once=True):
                self._grown(sum(size for _, size in take.timing.arrivals))
                return take
            try:
                record = self.run.record(take.key)
                # The very same is most often there because it came from here.
                same = record is not None and record["take"]["digest"] == take.digest
                kept = take if same else self.get(take.key)
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
        return self.keep(backend.synthesize(call).take(repeat), *notes, backend=backend.capabilities)

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

    def keep(self, take: Take, *notes: str, backend: Capabilities | None = None) -> Take:
        """Keep a take as ``put`` does; where that fails, return it with ``notes`` and one that says why."""
        try:
            kept = self.put(take, backend)
        except StoreError as error:
            return take.noted(*notes, f"This take could not be kept: {error}.")
        return kept.noted(*notes)

    def remove(self, key: str) -> bool:
        """Remove a take; return whether it was there. Raises StoreError."""
        there = key in self.run
        self.run.drop(lambda line: line.key == key)
        return there

    def clear(self) -> int:
        """Remove all takes, what was set aside, and reference audio; return how many takes. Raises StoreError."""
        count = len(self)
        self.run.clear()
        return count

    def stats(self) -> CacheStats:
        """Return what the cache holds and what it did."""
        files = self.run.files()
        size = sum(file.st_size for file in files.values())
        damaged = sum(path.parent == self.run.damaged for path in files)
        return CacheStats(len(self), size, self.max_bytes, damaged, self._hits, self._misses)

    def _grown(self, size: int) -> None:
        """Count bytes that were written, and make room when they may be too many."""
        if self.max_bytes is not None:
            with self._lock:
                self._room -= size
                if self._room < 0:
                    self._room = min(self.max_bytes - self._shrunk(self.max_bytes), self.max_bytes // _LOOK)

    def _shrunk(self, limit: int) -> int:
        """Remove the files least recently used until the limit is kept; return the bytes that are left."""
        files = self.run.files()
        total = sum(file.st_size for file in files.values())
        if total <= limit:
            return total
        # The newest stays in any case: it is what somebody is about to read.
        oldest_first = sorted(files, key=lambda path: files[path].st_mtime)
        for path in [path for path in oldest_first if path.name != RUN_FILE][:-1]:
            if total <= limit * _ROOM:
                break
            # One that may not be removed, somebody else's or one that is being read, stays.
            with suppress(OSError):
                path.unlink(missing_ok=True)
                total -= files[path].st_size
        self.run.drop(lambda line: self.run.lost(line.sound))
        return sum(file.st_size for file in self.run.files().values())
