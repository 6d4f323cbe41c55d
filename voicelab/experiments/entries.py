"""A folder of entries: what a cache and a recording keep their takes in.

An entry is one file that holds all of one thing: a line, a JSON object, and bytes of audio.

    voicelab-entry 1 <bytes of JSON> <bytes of audio> <sha256 of the JSON>
    {"digest": "<sha256 of the audio>", "key": "<the file's own name>", …}
    <audio>

Every byte of the file is covered by a digest, and the object can be read without the audio. Entries are
written whole or not at all, by as many processes as like. One that does not fit its digests is set aside
in ``damaged/``, never returned. Reference audio, which many takes share, lies in ``references/``, each
file named by the sha256 of its bytes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from voicelab.errors import StoreError
from voicelab.schema import TTSRequest
from voicelab.storage import UNFINISHED, BlobFolder, digest_of, disk_error, set_aside, write_atomic

__all__ = ["Entries", "EntryFile", "File"]

_MAGIC = "voicelab-entry"
_VERSION = 1
_HEAD = re.compile(rb"voicelab-entry ([1-9][0-9]{0,5}) ([1-9][0-9]{0,9}) (0|[1-9][0-9]{0,15}) ([0-9a-f]{64})\n")
_LONGEST_HEAD = 128
# The object of a take of some seconds fits into one read with the line before it.
_FIRST_READ = 16 * 1024
_SUFFIX = ".entry"
_KEY = re.compile("[0-9a-f]{64}", re.ASCII)
# What is ours in each folder: there may be files of somebody's own beside them.
_OURS = re.compile(rf"{_KEY.pattern}{re.escape(_SUFFIX)}|{UNFINISHED}[0-9a-f]{{16}}", re.ASCII)
_OURS_REFERENCE = re.compile(rf"{_KEY.pattern}|{UNFINISHED}[0-9a-f]{{16}}", re.ASCII)
_OURS_DAMAGED = re.compile(rf"{_KEY.pattern}({re.escape(_SUFFIX)})?-[0-9a-f]{{8}}", re.ASCII)
_UNFINISHED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class File:
    """A file of the folder: its size in bytes and when it was last used, in seconds since 1970."""

    path: Path
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class EntryFile:
    """What fetches the audio of one entry: calling it reads the file, and checks it."""

    folder: Path
    key: str
    digest: str

    def __call__(self) -> bytes:
        """Return the audio. Raises StoreError when it is gone, damaged, or another one by now."""
        entry = Entries(self.folder).get(self.key)
        if entry is None:
            raise StoreError(f"the audio of take {self.key[:12]}… is no longer in {self.folder}")
        record, audio = entry
        if record["digest"] != self.digest:
            raise StoreError(f"take {self.key[:12]}… in {self.folder} was made anew, its audio is another one now")
        return audio


class Entries:
    """A folder of entries by their keys (64 hexadecimal digits). All its errors are StoreErrors.

    Nothing is written before the first ``put``. Safe to use from several threads and processes.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.references = self.folder / "references"
        self.damaged = self.folder / "damaged"
        self._blobs = BlobFolder(self.references)
        # Many takes share one reference, and a recording of a voice is large.
        self._remembered = lru_cache(maxsize=4)(self._blobs.get)

    def __contains__(self, key: str) -> bool:
        return self._path(key).is_file()

    def put(
        self, key: str, record: Mapping[str, Any], audio: bytes, *, replace: bool = False, sync: bool = True
    ) -> bool:
        """Keep an entry; return whether it is this one that is kept now.

        One that is there already stays, so that several writers of one key end with one entry, unless
        ``replace``. ``record`` is JSON-able; "key" and "digest" are added to it. Without ``sync`` a loss of
        power may take the entry away, or leave one that does not fit its digests.
        """
        if not replace and key in self:
            return False
        named = {**record, "key": key, "digest": digest_of(audio)}
        text = json.dumps(named, ensure_ascii=False, sort_keys=True, allow_nan=False).encode() + b"\n"
        head = f"{_MAGIC} {_VERSION} {len(text)} {len(audio)} {digest_of(text)}\n".encode()
        return write_atomic(self._path(key), head + text + audio, replace=replace, sync=sync)

    def record(self, key: str) -> dict[str, Any] | None:
        """Return an entry's object without reading its audio; None when there is none.

        Raises DamagedFile when it is damaged, StoreError when it was written by a newer version.
        """
        with _opened(self._path(key)) as file:
            return None if file is None else self._object(key, file)[0]

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """Return an entry's object and its audio, both checked; None when there is none. Raises like ``record``."""
        with _opened(self._path(key)) as file:
            if file is None:
                return None
            record, start = self._object(key, file)
            file.seek(start)
            audio = file.read()
        if digest_of(audio) != record["digest"]:
            raise set_aside(self._path(key), "its audio has changed", self.damaged)
        # The time of change says when it was last used, since many disks keep no time of access.
        with suppress(OSError):
            os.utime(self._path(key))
        return record, audio

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys of all entries, in no order."""
        with suppress(FileNotFoundError), os.scandir(self.folder) as items:
            for item in items:
                if item.name.endswith(_SUFFIX) and _KEY.fullmatch(item.name[: -len(_SUFFIX)]):
                    yield item.name[: -len(_SUFFIX)]

    def files(self) -> list[File]:
        """Return all files of ours that take up room: entries, reference audio, what was set aside or not finished."""
        files = []
        ours = {self.folder: _OURS, self.references: _OURS_REFERENCE, self.damaged: _OURS_DAMAGED}
        for folder, name in ours.items():
            with suppress(FileNotFoundError), os.scandir(folder) as items:
                for item in items:
                    with suppress(FileNotFoundError):
                        if name.fullmatch(item.name) and item.is_file(follow_symlinks=False):
                            status = item.stat(follow_symlinks=False)
                            files.append(File(Path(item.path), status.st_size, status.st_mtime))
        return files

    def remove(self, key: str) -> bool:
        """Remove an entry; return whether it was there."""
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk_error(error, self.folder) from error
        return True

    def put_references(self, request: TTSRequest) -> None:
        """Keep the reference audio of a request, each piece once."""
        for item in request.references or ():
            self._blobs.put(item.audio)

    def reference(self, digest: str) -> bytes:
        """Return reference audio by its sha256. Raises StoreError when it is missing or damaged."""
        return self._remembered(digest)

    def _path(self, key: str) -> Path:
        if _KEY.fullmatch(key) is None:
            raise StoreError(f"{key!r} is no key of an entry; a key has 64 hexadecimal digits")
        return self.folder / f"{key}{_SUFFIX}"

    def _object(self, key: str, file: BinaryIO) -> tuple[dict[str, Any], int]:
        """Return the object of an open entry, checked, and where its audio begins."""
        path = self._path(key)
        data = file.read(_FIRST_READ)
        head = _HEAD.match(data[:_LONGEST_HEAD])
        if head is None:
            raise set_aside(path, "its first line cannot be read", self.damaged)
        version, text_bytes, audio_bytes = (int(head[number]) for number in (1, 2, 3))
        if version > _VERSION:
            raise StoreError(f"{path} was written by a newer voicelab (entry version {version}, known: {_VERSION})")
        start = head.end() + text_bytes
        if os.fstat(file.fileno()).st_size != start + audio_bytes:
            raise set_aside(path, "its length has changed", self.damaged)
        if len(data) < start:
            data += file.read(start - len(data))
        text = data[head.end() : start]
        if version != _VERSION or digest_of(text).encode() != head[4]:
            raise set_aside(path, "its description has changed", self.damaged)
        record: dict[str, Any] = json.loads(text)
        if record["key"] != key:
            raise set_aside(path, "it is the entry of another key", self.damaged)
        return record, start

    def tidy(self) -> None:
        """Remove what writers that were killed left unfinished an hour ago or earlier."""
        before = time.time() - _UNFINISHED_SECONDS
        for file in self.files():
            if file.path.name.startswith(UNFINISHED) and file.used < before:
                with suppress(OSError):
                    file.path.unlink()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | None]:
    """Yield an open file, None when there is none."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise disk_error(error, path) from error
    with file:
        yield file
