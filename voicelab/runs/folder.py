"""Format of runs on disk, with a writer, and a reader that looks up takes by key.

    run.jsonl              backends and environment; then a line for each take, voice and failure, in order
    takes/DIGEST.wav       audio of takes as received, named by its SHA-256
    references/DIGEST      reference audio of requests, and recordings of created voices
    damaged/               quarantined files with a wrong digest

A line is a JSON object that ends with a checksum. It is appended in a single write after its audio, so a killed writer leaves
at most a torn last line, which readers skip and the next writer removes. Several threads and processes may write to a folder:
the file is locked for each line.
"""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NamedTuple

from voicelab.capabilities import Capabilities
from voicelab.clip import Take, take_key
from voicelab.distribution import __version__
from voicelab.errors import StoreError
from voicelab.storage import (
    UNFINISHED,
    BlobFolder,
    DamagedFile,
    data_home,
    digest_of,
    inode,
    make_folder,
    on_disk,
    open_atomic,
    restrict,
)

RUN_FILE: Final = "run.jsonl"
_VERSION: Final = 1
# Start of the header line.
_MAGIC: Final = b'{"run": '
_CHECK: Final = b', "check": "'
_DIGEST: Final = "[0-9a-f]{64}"
_KEY: Final = re.compile(_DIGEST, re.ASCII)
# Kind and keys of a line come first, so that large files can be indexed without parsing JSON.
_LINE: Final = re.compile(
    rf'\{{"line": "(take|failure|voice)", "asked": "({_DIGEST})", "key": "({_DIGEST})", "sound": "({_DIGEST}\.\w+|)"'.encode()
)
_SESSION: Final = b'{"line": "session"'
# Names of run files; the folder may contain other files.
_FILE_NAMES: Final = re.compile(
    rf"{re.escape(RUN_FILE)}|{UNFINISHED}[0-9a-f]{{16}}|{_DIGEST}(\.\w+)?(-[0-9a-f]{{8}})?", re.ASCII
)
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class Line(NamedTuple):
    """Index entry of a line: its kind, the keys of call and take, the audio file, the byte offset and the size."""

    kind: str
    call_key: str
    key: str
    sound: str
    start: int
    size: int


class RunFolder:
    """A run on disk. Methods raise only StoreErrors.

    ``sessions`` are the environments in which lines were written: versions, hardware, backends.

    Args:
        folder: Run folder, created by the first write.
        sync_s: Maximum time in seconds until a line is synced to disk; 0.0 syncs lines and audio at once; None leaves
            this to the system. Lines and audio lost in a power failure are detected when the folder is next read.
    """

    def __init__(self, folder: str | Path, *, sync_s: float | None = None) -> None:
        self.folder = Path(folder)
        self.path = self.folder / RUN_FILE
        self.takes = BlobFolder(self.folder / "takes", sync=sync_s == 0.0)
        self.references = BlobFolder(self.folder / "references")
        self.damaged = self.takes.damaged
        # Many takes share a reference, which may be large.
        self.reference = lru_cache(maxsize=4)(self.references.get)
        self._sync_s, self._synced = sync_s, time.monotonic()
        self._lock = threading.RLock()
        self._reset()

    def __contains__(self, key: str) -> bool:
        with self._reading():
            return self._has(key)

    def lost(self, sound: str) -> bool:
        """Return whether the audio file that a line names is missing."""
        return bool(sound) and not (self.takes.folder / sound).is_file()

    def lines(self) -> tuple[Line, ...]:
        """Return the index entries of all lines, in order."""
        with self._reading():
            return tuple(self._lines)

    def read(self) -> list[bytes]:
        """Read all lines as bytes; the last may be torn. Raises StoreError if there is no run."""
        if self.folder.is_file():
            raise StoreError(f"{self.folder} is a file; a run is a folder with {RUN_FILE}")
        with self._reading() as file:
            if file is None:
                check_older(self.folder)
                raise StoreError(f"{self.folder} has no run: {RUN_FILE} is missing")
            file.seek(0)
            return file.readlines() or [b""]

    def present(self) -> list[str]:
        """Return the keys of all takes with audio, in the order of creation."""
        with suppress(FileNotFoundError):
            sounds = {"", *(path.name for path in self.takes.folder.iterdir())}
            with self._reading():
                return [key for key, line in self._keys.items() if line.kind == "take" and line.sound in sounds]
        return []

    def record(self, key: str) -> dict[str, Any] | None:
        """Return the record of a key's last take or, without one, of its last failure or voice; None if it has none.

        Raises DamagedFile if the line is damaged; the line is ignored from then on.
        """
        if _KEY.fullmatch(key) is None:
            raise StoreError(f"a key must have 64 hexadecimal digits, got {key!r}")
        with self._reading() as file:
            line = self._keys.get(key)
            if file is None or line is None:
                return None
            file.seek(line.start)
            record = unseal(file.read(line.size))
            if record is None:
                del self._keys[key]
                raise DamagedFile(f"the line of {key[:12]}… in {self.path} is damaged")
        return record

    def take_of(self, record: Mapping[str, Any], *, audio: bool = False) -> Take:
        """Build the take of a record; if ``audio`` is False, its audio is loaded on first access.

        Raises StoreError if audio or a reference is missing or damaged, or the record is not of a take.
        """
        sound: Callable[[], bytes] = partial(self.takes.get, record["sound"]) if record["sound"] else bytes
        return Take.of_record(record["take"], sound() if audio else sound, self.reference)

    def light(self, take: Take) -> Take:
        """Return a stored take whose audio is loaded on access, to save memory."""
        name = f"{take.digest}.{take.suffix}"
        return replace(take, sound=partial(self.takes.get, name)) if (self.takes.folder / name).is_file() else take

    def add(self, take: Take, *, once: bool = False, call_key: str = "", key: str = "", **fields: object) -> bool:
        """Store the audio of a take, then append its line; return True if it was written.

        Args:
            take: Take to store.
            once: Keep an existing take of the key, so that concurrent writers agree on a single take.
            call_key: Key of the call (default: from the take).
            key: Key of the take (default: from the take).
            **fields: Additional JSON-serializable fields; ``failure`` marks the take of a failed call.
        """
        for item in take.request.references or ():
            self.references.put(item.audio)
        key, audio = key or take.key, take.audio
        if once and key in self:
            return False
        line = {
            "line": "failure" if "failure" in fields else "take",
            "asked": call_key or take_key(take.call, take.fingerprint),
            "key": key,
            "sound": "",
            **fields,
            "take": take.record(),
        }
        with self._writing() as file:
            is_new = not (once and self._has(key))
            if is_new:
                # While the file is locked, because ``drop`` removes audio that no line references.
                line["sound"] = self.takes.put(audio, f".{take.suffix}") if audio else ""
                self._append(file, line)
        return is_new

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, which must begin with ``line``, ``asked``, ``key`` and ``sound``, in this order."""
        with self._writing() as file:
            self._append(file, line)

    def begin(self, backends: Iterable[Capabilities], about: Mapping[str, Any] = _EMPTY) -> None:
        """Record backends and environment of the following lines; ``about`` (JSON) is stored when the run is created."""
        # Converted to JSON and back, to compare it with sessions that were read.
        session = json.loads(json.dumps({**_environment(), "backends": [backend.record() for backend in backends]}))
        with self._writing(session, about) as file:
            declared = latest_backends(self.sessions)
            new = [record for record in session["backends"] if declared.get(record["fingerprint"]) != record]
            if new or {**self.sessions[-1], "backends": []} != {**session, "backends": []}:
                self._append(file, {"line": "session", "started": datetime.now(UTC).isoformat(), "session": session})

    def backends(self) -> tuple[Capabilities, ...]:
        """Return the latest capabilities of each backend."""
        with self._reading():
            return tuple(map(Capabilities.of_record, latest_backends(self.sessions).values()))

    def drop(self, predicate: Callable[[Line], bool]) -> int:
        """Remove lines, and the audio that no other line references; return the number of removed lines."""
        with self._writing() as file:
            dropped = {line for line in self._lines if predicate(line)}
            if dropped:
                file.seek(0)
                data = file.read()
                ends = [0, *(line.start + line.size for line in self._lines if line in dropped)]
                starts = [*(line.start for line in self._lines if line in dropped), len(data)]
                with open_atomic(self.path, sync=self._sync_s is not None) as new:
                    new.write(b"".join(data[end:start] for end, start in zip(ends, starts, strict=True)))
                self._lines[:] = [line for line in self._lines if line not in dropped]
                self._remove_sounds({line.sound for line in dropped})
                self._reset()
        return len(dropped)

    def clear(self) -> None:
        """Remove all files of the run."""
        with self._lock:
            for path in sorted(self.files(), key=lambda path: path.name != RUN_FILE):
                with on_disk(path):
                    path.unlink(missing_ok=True)
            self._reset()

    def files(self) -> dict[Path, os.stat_result]:
        """List all files of the run; their modification times are the times of their last use."""
        files = {}
        for folder in (self.folder, self.takes.folder, self.references.folder, self.damaged):
            with suppress(FileNotFoundError), os.scandir(folder) as items:
                for item in items:
                    with suppress(FileNotFoundError):
                        if _FILE_NAMES.fullmatch(item.name) and item.is_file(follow_symlinks=False):
                            files[Path(item.path)] = item.stat(follow_symlinks=False)
        return files

    def sync(self) -> None:
        """Sync all lines to disk."""
        with self._reading() as file:
            if file is not None:
                self._flush(file)

    def _has(self, key: str) -> bool:
        line = self._keys.get(key)
        return line is not None and line.kind == "take" and not self.lost(line.sound)

    def _remove_sounds(self, sounds: set[str]) -> None:
        """Remove the given audio files unless a line references them."""
        for sound in sounds - {line.sound for line in self._lines} - {""}:
            (self.takes.folder / sound).unlink(missing_ok=True)

    def _reset(self) -> None:
        self._identity: tuple[int, int] | None = None
        self._indexed_bytes = 0
        self.sessions: list[dict[str, Any]] = []
        self._lines: list[Line] = []
        # The last line of each key, takes before failures.
        self._keys: dict[str, Line] = {}

    def _refresh(self, file: BinaryIO) -> None:
        size, identity = os.fstat(file.fileno()).st_size, inode(file.fileno())
        if identity != self._identity or size < self._indexed_bytes:
            self._reset()
            self._identity = identity
        if size == self._indexed_bytes:
            return
        file.seek(self._indexed_bytes)
        for line in file.read().split(b"\n")[:-1]:
            if self._indexed_bytes == 0:
                self.sessions.append(header_of(self.path, line)["session"])
            elif matched := _LINE.match(line):
                kind, call_key, key, sound = (group.decode() for group in matched.groups())
                entry = Line(kind, call_key, key, sound, self._indexed_bytes, len(line) + 1)
                self._lines.append(entry)
                if kind == "take" or self._keys.get(key, entry).kind != "take":
                    self._keys[key] = entry
            elif (
                line.startswith(_SESSION) and (record := unseal(line)) is not None and is_session(record.get("session"))
            ):
                self.sessions.append(record["session"])
            self._indexed_bytes += len(line) + 1

    @contextmanager
    def _reading(self) -> Iterator[BinaryIO | None]:
        """Open the file with an up-to-date index; None if it does not exist."""
        with self._lock:
            file: BinaryIO | None = None
            with on_disk(self.path), suppress(FileNotFoundError):
                file = self.path.open("rb")
            if file is None:
                self._reset()
                yield None
                return
            with file:
                self._refresh(file)
                yield file

    @contextmanager
    def _writing(self, session: Mapping[str, Any] = _EMPTY, about: Mapping[str, Any] = _EMPTY) -> Iterator[BinaryIO]:
        """Open and lock the file, write its header or remove a torn last line, and update the index."""
        with self._lock, on_disk(self.path), self._exclusive() as file:
            if not self._repair(file):
                session = session or {**_environment(), "backends": []}
                created = datetime.now(UTC).isoformat()
                self._append(file, {"run": _VERSION, "created": created, "about": {**about}, "session": session})
            self._refresh(file)
            yield file

    @contextmanager
    def _exclusive(self) -> Iterator[BinaryIO]:
        """Open or create the file, locked if the system supports it."""
        private = self.folder.is_relative_to(data_home())  # the cache contains people's texts and recordings
        make_folder(self.folder, private=private)
        if private:
            restrict(self.folder)
        if not self.path.exists():
            check_older(self.folder)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        while True:
            with os.fdopen(os.open(self.path, flags, 0o666), "r+b", buffering=0) as file, _locked(file):
                # The previous holder of the lock may have replaced the file.
                if inode(file.fileno()) == inode(self.path):
                    yield file
                    return

    def _repair(self, file: BinaryIO) -> int:
        """Remove a torn last line; return the size in bytes. Raises StoreError if the file is not a run."""
        end = file.seek(0, os.SEEK_END)
        if end == 0:
            return 0
        file.seek(end - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            data = file.read()
            end = data.rfind(b"\n") + 1
            if not end and not _MAGIC.startswith(data[: len(_MAGIC)]):
                header_of(self.path, data)
            file.truncate(end)
        return end

    def _append(self, file: BinaryIO, line: Mapping[str, Any]) -> None:
        """Append a line with its checksum; truncate the file if that fails."""
        content = json.dumps(line, ensure_ascii=False, allow_nan=False).encode()[:-1]
        data = content + _CHECK + _check(content) + b"\n"
        end = file.seek(0, os.SEEK_END)
        try:
            written_bytes = 0
            while written_bytes < len(data):
                written_bytes += file.write(data[written_bytes:])
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise
        self._refresh(file)
        if self._sync_s is not None and time.monotonic() - self._synced >= self._sync_s:
            self._flush(file)

    def _flush(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())
        self._synced = time.monotonic()


def header_of(path: Path, line: bytes) -> dict[str, Any]:
    """Parse the header line. Raises StoreError if it is missing, damaged or of a newer version."""
    try:
        number = json.loads(line)["run"]
    except (ValueError, KeyError, TypeError, RecursionError):
        number = None
    if isinstance(number, int) and number > _VERSION:
        raise StoreError(f"{path} was written by a newer voicelab (run version {number}, supported: {_VERSION})")
    header = unseal(line)
    with suppress(ValueError, KeyError, TypeError):
        if header is not None and number == _VERSION:
            datetime.fromisoformat(header["created"])
            if isinstance(header["about"], dict) and is_session(header["session"]):
                return header
    raise StoreError(f"{path} is not a run: its header is missing or damaged")


def is_session(value: object) -> bool:
    """Return whether a value is a valid record of a session."""
    backends = value.get("backends") if isinstance(value, dict) else None
    return isinstance(backends, list) and all(
        isinstance(record, dict) and isinstance(record.get("fingerprint"), str) for record in backends
    )


def latest_backends(sessions: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the latest record of each backend, by fingerprint."""
    return {record["fingerprint"]: record for session in sessions for record in session["backends"]}


def unseal(line: bytes) -> dict[str, Any] | None:
    """Parse a line; None if its checksum or JSON is wrong."""
    text, _, check = line.rstrip(b"\n").rpartition(_CHECK)
    if check != _check(text):
        return None
    try:
        record = json.loads(text + b"}")
    except (ValueError, RecursionError):  # a hostile file may have a valid checksum
        return None
    return record if isinstance(record, dict) else None


def _check(text: bytes) -> bytes:
    return digest_of(text)[:16].encode() + b'"}'


def check_older(folder: Path) -> None:
    """Raise StoreError for a folder in an older format of voicelab."""
    if (folder / "backend.json").exists() or next(folder.glob("*.entry"), None) is not None:
        raise StoreError(
            f"{folder} is in an older format of voicelab, which is no longer supported; choose another folder"
        )


@contextmanager
def _locked(file: BinaryIO) -> Iterator[None]:
    """Lock an open file during a ``with`` block, if the system and the file system support it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        # Unlock explicitly, because a process that was forked meanwhile also has the file open.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


# Libraries recorded for reproducibility: encoders, resamplers, the engine, metrics.
_LIBRARIES: Final = "av httpx msgpack numpy pandas pyloudnorm safetensors scipy soxr torch".split()


def library_versions() -> dict[str, str]:
    """Return the versions of libraries that are recorded for reproducibility, by name."""
    return dict(_environment()["libraries"])


@cache
def _environment() -> dict[str, Any]:
    """Return library versions and hardware, with memory in bytes."""
    versions = {"python": platform.python_version(), "voicelab": __version__}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    hardware: dict[str, Any] = {name: getattr(platform, name)() for name in ("system", "machine", "processor")}
    hardware |= {"cores": os.cpu_count(), "memory": None}
    with suppress(OSError, ValueError, TypeError):  # Linux only
        cpu_info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        hardware["processor"] = re.search(r"^model name\s*:\s*(.+)$", cpu_info, re.MULTILINE)[1]  # type: ignore[index]
    with suppress(OSError, ValueError, AttributeError):
        hardware["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"libraries": versions, "hardware": hardware}
