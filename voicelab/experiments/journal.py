"""Journal: writes a manifest while a run goes on, and goes on with one after a crash."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, Final, Self

from voicelab.backend import Capabilities
from voicelab.errors import StoreError
from voicelab.experiments.cache import Cache
from voicelab.experiments.declared import capabilities_record
from voicelab.experiments.manifest import MANIFEST_VERSION, Failed, Manifest, check_header, line_of, load
from voicelab.experiments.surroundings import hardware, libraries
from voicelab.storage import disk_error
from voicelab.take import Take, request_record

__all__ = ["Journal"]

_SYNC_SECONDS: Final = 1.0
# How every manifest begins.
_HEADER: Final = b'{"manifest": '
_NEVER: Final = object()
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Journal:
    """The manifest of a run that is under way.

    Args:
        path: the file. When it is there already the run goes on: what it holds is ``manifest``, and a
            last line that a crash has torn is removed.
        backends: what each backend of the run declares.
        about: what else shall be known of the run, JSON-able; kept from the first time.
        cache: where the takes' audio is kept; a folder beside the file, without a bound, when not given.
            A run that goes on keeps to the folder that it began with.

    ``add`` and ``fail`` may be called from several threads. One process writes at a time. Raises
    StoreError when the file cannot be written, is no manifest or of a newer version, or is being
    written by another process. Use it in a ``with`` block, or ``close()`` it.
    """

    def __init__(
        self,
        path: str | Path,
        backends: Iterable[Capabilities],
        *,
        about: Mapping[str, Any] = _NOTHING,
        cache: Cache | None = None,
    ) -> None:
        self.path = Path(path)
        self._lock = Lock()
        self._synced = time.monotonic()
        session = {
            "libraries": libraries(),
            "hardware": hardware(),
            "backends": [capabilities_record(each) for each in backends],
        }
        self._file, self._process = _opened(self.path), os.getpid()
        try:
            if self._unbegun():
                beside = self.path.with_name(f"{self.path.stem}.takes")
                self.cache = cache or Cache(beside, max_bytes=None)
                self._write(_header(self.path, self.cache.folder, session, about))
                self.sync()
                self.manifest = load(self.path)
            else:
                self.manifest = self._gone_on(session, cache)
        except BaseException:
            self._shut()
            raise
        # Audio that was lost since then, or changed, is made again like a take that never was.
        held = zip(self.manifest.takes, self.manifest.labels, self.manifest.numbers, strict=True)
        self._written = {line_of(take.key, labels): number for take, labels, number in held if self._whole(take)}

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the takes that are written down and whose audio is there: what need not be done again."""
        with self._lock:
            return frozenset(key for key, _ in self._written)

    def add(self, take: Take, **labels: object) -> Take:
        """Keep a take's audio, then write it down with ``labels`` (JSON-able) beside it; return the take kept.

        A take that is written down already is not written again, but for other labels: several cells of a sweep may
        share one take, and a sweep that has grown counts its cells anew. Raises StoreError when the disk fails or
        is full; all that was written before stays.
        """
        kept = self.cache.put(take)
        key, cell = kept.key, labels.get("cell")
        line = {"line": "take", "key": key, "labels": labels, "take": kept.record()}
        with self._lock:
            if self._written.get(line_of(key, labels), _NEVER) != cell:
                self._write(line)
                self._written[line_of(key, labels)] = cell
        return kept

    def fail(self, failed: Failed) -> None:
        """Write down that a take could not be had. Raises StoreError."""
        self.cache.entries.put_references(failed.call.request)
        line = {
            "line": "failure",
            "key": failed.key,
            "request": request_record(failed.call.request),
            "model": failed.call.model,
            "backend": failed.backend,
            "fingerprint": failed.fingerprint,
            "seed": failed.call.seed,
            "repeat": failed.repeat,
            "failure": failed.failure.record(),
            "created": failed.created.isoformat(),
        }
        with self._lock:
            self._write(line)

    def sync(self) -> None:
        """Wait until all that is written down would survive a loss of power. Raises StoreError."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise disk_error(error, self.path) from error
        self._synced = time.monotonic()

    def close(self) -> None:
        """Write everything out and let others write. May be called twice."""
        with self._lock:
            if not self._file.closed:
                try:
                    self.sync()
                finally:
                    self._shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _shut(self) -> None:
        """Close the file and give its lock back: a process that was forked meanwhile has the file too, and would keep it."""
        if os.getpid() == self._process:  # the lock is not such a process's own
            with suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()

    @staticmethod
    def _whole(take: Take) -> bool:
        try:
            return bool(take.audio)
        except StoreError:
            return False

    def _unbegun(self) -> bool:
        """Say whether there is no run yet; a torn header is removed. Raises StoreError when it is no manifest."""
        self._file.seek(0)
        data = self._file.read()
        if b"\n" not in data and _HEADER.startswith(data[: len(_HEADER)]):
            self._file.truncate(0)
            return True
        check_header(self.path, data.partition(b"\n")[0])
        return False

    def _gone_on(self, session: Mapping[str, Any], cache: Cache | None) -> Manifest:
        manifest = load(self.path)
        same = cache is not None and cache.folder.resolve() == manifest.folder.resolve()
        self.cache = cache if cache is not None and same else manifest.cache
        self._file.seek(0)
        self._file.truncate(self._file.read().rfind(b"\n") + 1)
        if session != manifest.sessions[-1]:
            self._write({"line": "session", "started": datetime.now(UTC).isoformat(), "session": session})
        return manifest

    def _write(self, line: Mapping[str, Any]) -> None:
        """Append a line in one piece; when that fails, what was written of it is taken back."""
        text = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        before = self._file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(text):
                written += self._file.write(text[written:])
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)
            raise disk_error(error, self.path) from error
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self.sync()


def _header(path: Path, folder: Path, session: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    try:
        takes = os.path.relpath(folder.resolve(), path.parent.resolve())
    except ValueError:  # another drive
        takes = str(folder)
    return {
        "manifest": MANIFEST_VERSION,
        "created": datetime.now(UTC).isoformat(),
        "about": dict(about),
        "takes": Path(takes).as_posix(),
        "session": session,
    }


def _opened(path: Path) -> BinaryIO:
    """Return the file, open for reading and writing, not buffered, and locked for this process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "r+b", buffering=0)
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        import fcntl
    except ImportError:  # Windows, where nobody is kept out
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise StoreError(f"{path} is being written by another process") from error
    except OSError:
        return file  # a disk that knows no locks
    return file
