"""Files named by the SHA-256 of their bytes: written whole or not at all, and checked whenever they are read."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

from voicelab.errors import StoreError
from voicelab.voices.folders import make_folder, sync_folder

__all__ = ["Blobs"]

_LOG = logging.getLogger("voicelab.voices")
_NAME = re.compile("[0-9a-f]{64}", re.ASCII)
_UNFINISHED = "unfinished-"


class Blobs:
    """A folder of files that nobody outside names: a digest is the only way in.

    All its errors are StoreErrors. Safe to use from several threads and processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged = folder.parent / "damaged"

    def put(self, data: bytes) -> str:
        """Keep ``data`` and return its digest. When this returns, the bytes survive a loss of power."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / digest
        try:
            if path.is_file() and path.read_bytes() == data:
                os.utime(path)  # as young as if it were written now, for the sweep
                return digest
            make_folder(self.folder)
            self._write(path, data)
        except OSError as error:
            raise StoreError(f"the voice store cannot write to {self.folder}: {error.strerror or error}") from error
        return digest

    def get(self, digest: str) -> bytes:
        """Return the bytes of a digest. A file whose bytes have changed is set aside, and never returned."""
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"a file of the voice store is missing: {path}") from None
        except OSError as error:
            raise StoreError(f"a file of the voice store cannot be read: {path}: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            aside = self._set_aside(path)
            _LOG.error("a file of the voice store is damaged and was set aside: %s", aside)
            raise StoreError(f"a file of the voice store is damaged; it was set aside as {aside}")
        return data

    def sweep(self, keep: Container[str], older_than: float) -> int:
        """Remove files that are not in ``keep`` and were written more than ``older_than`` seconds ago; return how many."""
        before = time.time() - older_than
        removed = 0
        with suppress(OSError):
            for path in list(self.folder.iterdir()):
                ours = path.name.startswith(_UNFINISHED) or _NAME.fullmatch(path.name) is not None
                if ours and path.name not in keep and path.stat().st_mtime <= before:
                    path.unlink()
                    removed += 1
        return removed

    def remove(self, digests: Iterable[str]) -> None:
        """Remove files, those that are gone already too."""
        for digest in digests:
            path = self._path(digest)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                message = f"a file of the voice store cannot be removed: {path}: {error.strerror or error}"
                raise StoreError(message) from error

    def empty(self) -> bool:
        """Say whether no file was ever kept here."""
        return not self.folder.is_dir() or not any(_NAME.fullmatch(path.name) for path in self.folder.iterdir())

    def _path(self, digest: str) -> Path:
        if _NAME.fullmatch(digest) is None:
            raise StoreError("the voice store names a file that it cannot have written; its database is damaged")
        return self.folder / digest

    def _write(self, path: Path, data: bytes) -> None:
        unfinished = self.folder / f"{_UNFINISHED}{secrets.token_hex(8)}"
        try:
            with open(unfinished, "xb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        sync_folder(self.folder)

    def _set_aside(self, path: Path) -> Path:
        aside = self.damaged / f"{path.name}-{secrets.token_hex(4)}"
        try:
            self.damaged.mkdir(mode=0o700, exist_ok=True)
            path.replace(aside)
        except OSError:
            return path  # a disk that takes no changes; the error is the same
        return aside


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
