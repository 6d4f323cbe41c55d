"""RunFolder: the form of what is kept on disk, its writer, and its reader by key.

    run.jsonl              who made it and with what; then a line for each take, voice and failure, in order
    takes/DIGEST.wav       the audio of takes as it was received, named by its SHA-256
    references/DIGEST      recordings that were sent with a request, or that voices were made of
    damaged/               what no longer fits its digest

A line is a JSON object. It ends with a check of all that stands before it, and is written in one piece, after the audio
that it names: a writer that is killed loses nothing that it had finished, and leaves at most a torn last line, which readers
leave out and the next writer removes. Many threads and processes may write to one folder: the file is locked for each line.
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
# How every run begins.
_BEGINNING: Final = b'{"run": '
_CHECK: Final = b', "check": "'
_DIGEST: Final = "[0-9a-f]{64}"
_KEY: Final = re.compile(_DIGEST, re.ASCII)
# What a line is about stands first, so that a large file is searched without being parsed.
_LINE: Final = re.compile(
    rf'\{{"line": "(take|failure|voice)", "asked": "({_DIGEST})", "key": "({_DIGEST})", "sound": "({_DIGEST}\.\w+|)"'.encode()
)
_SESSION: Final = b'{"line": "session"'
# What is ours: there may be files of somebody's own beside them.
_OURS: Final = re.compile(
    rf"{re.escape(RUN_FILE)}|{UNFINISHED}[0-9a-f]{{16}}|{_DIGEST}(\.\w+)?(-[0-9a-f]{{8}})?", re.ASCII
)
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Line(NamedTuple):
    """A line of a run: what it is, what was asked, what names it, the file of its audio, and where it stands."""

    kind: str
    asked: str
    key: str
    sound: str
    start: int
    size: int


class RunFolder:
    """A run on disk. All its errors are StoreErrors.

    Args:
        folder: where; nothing is written before there is something to write.
        sync_s: when what is written survives a loss of power: 0.0 at once, audio too; otherwise lines after so many
            seconds at most; None whenever the system likes. Lines and audio that were lost are noticed when they are read.

    ``sessions`` are the circumstances under which lines were written: versions, hardware, backends.
    """

    def __init__(self, folder: str | Path, *, sync_s: float | None = None) -> None:
        self.folder = Path(folder)
        self.path = self.folder / RUN_FILE
        self.takes = BlobFolder(self.folder / "takes", sync=sync_s == 0.0)
        self.references = BlobFolder(self.folder / "references")
        self.damaged = self.takes.damaged
        # Many takes share one reference, and a recording of a voice is large.
        self.reference = lru_cache(maxsize=4)(self.references.get)
        self._sync_s, self._synced = sync_s, time.monotonic()
        self._lock = threading.RLock()
        self._forget()

    def __contains__(self, key: str) -> bool:
        with self._reading():
            return self._has(key)

    def lost(self, sound: str) -> bool:
        """Say whether the audio that a line names is no longer there."""
        return bool(sound) and not (self.takes.folder / sound).is_file()

    def lines(self) -> tuple[Line, ...]:
        """Return what the lines are about, in order."""
        with self._reading():
            return tuple(self._lines)

    def read(self) -> list[bytes]:
        """Return all lines as they stand, the last one torn perhaps. Raises StoreError where there is no run."""
        if self.folder.is_file():
            raise StoreError(f"{self.folder} is a file: a run is a folder with {RUN_FILE} in it")
        with self._reading() as file:
            if file is None:
                check_older(self.folder)
                raise StoreError(f"{self.folder} holds no run: there is no {RUN_FILE} in it")
            file.seek(0)
            return file.readlines() or [b""]

    def present(self) -> list[str]:
        """Return the keys of all takes whose audio is there, in the order in which they were made."""
        with suppress(FileNotFoundError):
            sounds = {"", *(path.name for path in self.takes.folder.iterdir())}
            with self._reading():
                return [key for key, line in self._keys.items() if line.kind == "take" and line.sound in sounds]
        return []

    def record(self, key: str) -> dict[str, Any] | None:
        """Return the last line of a key, a take's if there is one; None when there is none.

        Raises DamagedFile when the line is damaged; it is left out from then on.
        """
        if _KEY.fullmatch(key) is None:
            raise StoreError(f"{key!r} names no take; a key has 64 hexadecimal digits")
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
        """Return the take of a record; without ``audio`` that stays on disk until somebody asks for it.

        Raises StoreError when audio or a reference is missing or damaged, or the record is none of a take.
        """
        sound: Callable[[], bytes] = partial(self.takes.get, record["sound"]) if record["sound"] else bytes
        return Take.of_record(record["take"], sound() if audio else sound, self.reference)

    def light(self, take: Take) -> Take:
        """Return a take that is kept here with its audio left on disk: all takes may be more than the memory."""
        name = f"{take.digest}.{take.suffix}"
        return replace(take, sound=partial(self.takes.get, name)) if (self.takes.folder / name).is_file() else take

    def add(self, take: Take, *, once: bool = False, asked: str = "", key: str = "", **more: object) -> bool:
        """Keep a take's audio, then write its line with ``more`` (JSON-able) in it; return whether it was written.

        With ``once`` a take that is there already stays, so that several writers of one key end with one take.
        ``asked`` and ``key`` are the take's own when not given. A line with ``failure`` is one of a take that was not had.
        """
        for item in take.request.references or ():
            self.references.put(item.audio)
        key, audio = key or take.key, take.audio
        if once and key in self:
            return False
        line = {
            "line": "failure" if "failure" in more else "take",
            "asked": asked or take_key(take.call, take.fingerprint),
            "key": key,
            "sound": self.takes.put(audio, f".{take.suffix}") if audio else "",
            **more,
            "take": take.record(),
        }
        with self._writing() as file:
            written = not (once and self._has(key))
            if written:
                self._append(file, line)
            else:
                self._remove_sounds({str(line["sound"])})
        return written

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line as it is: it has ``line``, ``asked``, ``key`` and ``sound``, in this order, and what else it says."""
        with self._writing() as file:
            self._append(file, line)

    def begin(self, backends: Iterable[Capabilities], about: Mapping[str, Any] = _NOTHING) -> None:
        """Say who makes what comes now, and with what; ``about`` (JSON-able) is kept from the first time."""
        # As it is read back, which may have lists in place of tuples.
        session = json.loads(json.dumps({**_environment(), "backends": [one.record() for one in backends]}))
        with self._writing(session, about) as file:
            declared = latest_backends(self.sessions)
            new = [one for one in session["backends"] if declared.get(one["fingerprint"]) != one]
            if new or {**self.sessions[-1], "backends": []} != {**session, "backends": []}:
                self._append(file, {"line": "session", "started": datetime.now(UTC).isoformat(), "session": session})

    def backends(self) -> tuple[Capabilities, ...]:
        """Return what each backend declared about itself, the last word of each."""
        with self._reading():
            return tuple(map(Capabilities.of_record, latest_backends(self.sessions).values()))

    def drop(self, unwanted: Callable[[Line], bool]) -> int:
        """Remove lines, and audio that no other line names; return how many lines."""
        with self._writing() as file:
            gone = {line for line in self._lines if unwanted(line)}
            if gone:
                file.seek(0)
                data = file.read()
                ends = [0, *(line.start + line.size for line in self._lines if line in gone)]
                starts = [*(line.start for line in self._lines if line in gone), len(data)]
                with open_atomic(self.path, sync=self._sync_s is not None) as new:
                    new.write(b"".join(data[end:start] for end, start in zip(ends, starts, strict=True)))
                self._lines[:] = [line for line in self._lines if line not in gone]
                self._remove_sounds({line.sound for line in gone})
                self._forget()
        return len(gone)

    def clear(self) -> None:
        """Remove everything that is ours."""
        with self._lock:
            for path in sorted(self.files(), key=lambda path: path.name != RUN_FILE):
                with on_disk(path):
                    path.unlink(missing_ok=True)
            self._forget()

    def files(self) -> dict[Path, os.stat_result]:
        """Return all files of ours that take up room; when one was last used is when it was modified."""
        files = {}
        for folder in (self.folder, self.takes.folder, self.references.folder, self.damaged):
            with suppress(FileNotFoundError), os.scandir(folder) as items:
                for item in items:
                    with suppress(FileNotFoundError):
                        if _OURS.fullmatch(item.name) and item.is_file(follow_symlinks=False):
                            files[Path(item.path)] = item.stat(follow_symlinks=False)
        return files

    def sync(self) -> None:
        """Wait until all lines would survive a loss of power."""
        with self._reading() as file:
            if file is not None:
                self._flush(file)

    def _has(self, key: str) -> bool:
        line = self._keys.get(key)
        return line is not None and line.kind == "take" and not self.lost(line.sound)

    def _remove_sounds(self, sounds: set[str]) -> None:
        """Remove audio that no line names."""
        for sound in sounds - {line.sound for line in self._lines} - {""}:
            (self.takes.folder / sound).unlink(missing_ok=True)

    def _forget(self) -> None:
        self._identity: tuple[int, int] | None = None
        self._read = 0
        self.sessions: list[dict[str, Any]] = []
        self._lines: list[Line] = []
        # The last line of each key, a take's if there is one.
        self._keys: dict[str, Line] = {}

    def _refresh(self, file: BinaryIO) -> None:
        """Read the whole lines that were written since last time."""
        size, same = os.fstat(file.fileno()).st_size, inode(file.fileno())
        if same != self._identity or size < self._read:
            self._forget()
            self._identity = same
        if size == self._read:
            return
        file.seek(self._read)
        for line in file.read().split(b"\n")[:-1]:
            if self._read == 0:
                self.sessions.append(header_of(self.path, line)["session"])
            elif matched := _LINE.match(line):
                kind, asked, key, sound = (part.decode() for part in matched.groups())
                about = Line(kind, asked, key, sound, self._read, len(line) + 1)
                self._lines.append(about)
                if kind == "take" or self._keys.get(key, about).kind != "take":
                    self._keys[key] = about
            elif (
                line.startswith(_SESSION) and (record := unseal(line)) is not None and is_session(record.get("session"))
            ):
                self.sessions.append(record["session"])
            self._read += len(line) + 1

    @contextmanager
    def _reading(self) -> Iterator[BinaryIO | None]:
        """Hold the file open, all of its lines known; None when there is none."""
        with self._lock:
            file: BinaryIO | None = None
            with on_disk(self.path), suppress(FileNotFoundError):
                file = self.path.open("rb")
            if file is None:
                self._forget()
                yield None
                return
            with file:
                self._refresh(file)
                yield file

    @contextmanager
    def _writing(
        self, session: Mapping[str, Any] = _NOTHING, about: Mapping[str, Any] = _NOTHING
    ) -> Iterator[BinaryIO]:
        """Hold the file open and alone, with its header, a torn last line removed, and all of its lines known."""
        with self._lock, on_disk(self.path), self._alone() as file:
            if not self._whole(file):
                session = session or {**_environment(), "backends": []}
                now = datetime.now(UTC).isoformat()
                self._append(file, {"run": _VERSION, "created": now, "about": {**about}, "session": session})
            self._refresh(file)
            yield file

    @contextmanager
    def _alone(self) -> Iterator[BinaryIO]:
        """Hold the file open, made if there is none, and locked where the system has locks."""
        private = self.folder.is_relative_to(data_home())  # the cache: texts, and recordings of people
        make_folder(self.folder, private=private)
        if private:
            restrict(self.folder)
        if not self.path.exists():
            check_older(self.folder)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        while True:
            with os.fdopen(os.open(self.path, flags, 0o666), "r+b", buffering=0) as file, _locked(file):
                # Whoever held it may have put another in its place.
                if inode(file.fileno()) == inode(self.path):
                    yield file
                    return

    def _whole(self, file: BinaryIO) -> int:
        """Remove a torn last line, and return how many bytes there are. Raises StoreError for what is no run."""
        end = file.seek(0, os.SEEK_END)
        if end == 0:
            return 0
        file.seek(end - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            data = file.read()
            end = data.rfind(b"\n") + 1
            if not end and not _BEGINNING.startswith(data[: len(_BEGINNING)]):
                header_of(self.path, data)
            file.truncate(end)
        return end

    def _append(self, file: BinaryIO, line: Mapping[str, Any]) -> None:
        """Append a line in one piece; when that fails, what was written of it is taken back."""
        said = json.dumps(line, ensure_ascii=False, allow_nan=False).encode()[:-1]
        text = said + _CHECK + _check(said) + b"\n"
        before = file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(text):
                written += file.write(text[written:])
        except OSError:
            with suppress(OSError):
                file.truncate(before)
            raise
        self._refresh(file)
        if self._sync_s is not None and time.monotonic() - self._synced >= self._sync_s:
            self._flush(file)

    def _flush(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())
        self._synced = time.monotonic()


def header_of(path: Path, line: bytes) -> dict[str, Any]:
    """Return a run's first line as an object. Raises StoreError when it is none, damaged, or of a newer version."""
    try:
        number = json.loads(line)["run"]
    except (ValueError, KeyError, TypeError, RecursionError):
        number = None
    if isinstance(number, int) and number > _VERSION:
        raise StoreError(f"{path} was written by a newer voicelab (run version {number}, known: {_VERSION})")
    header = unseal(line)
    with suppress(ValueError, KeyError, TypeError):
        if header is not None and number == _VERSION:
            datetime.fromisoformat(header["created"])
            if isinstance(header["about"], dict) and is_session(header["session"]):
                return header
    raise StoreError(f"{path} is no run: its first line does not say so, or is damaged")


def is_session(value: object) -> bool:
    """Say whether a value is what ``begin`` writes of a session, as far as readers of runs need it."""
    backends = value.get("backends") if isinstance(value, dict) else None
    return isinstance(backends, list) and all(
        isinstance(one, dict) and isinstance(one.get("fingerprint"), str) for one in backends
    )


def latest_backends(sessions: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the records of backends by their fingerprints, the last one of each."""
    return {one["fingerprint"]: one for session in sessions for one in session["backends"]}


def unseal(line: bytes) -> dict[str, Any] | None:
    """Return a line as an object, or None when it does not fit its check."""
    text, _, check = line.rstrip(b"\n").rpartition(_CHECK)
    if check != _check(text):
        return None
    try:
        record = json.loads(text + b"}")
    except (ValueError, RecursionError):  # whoever hands on a folder can make a check that fits
        return None
    return record if isinstance(record, dict) else None


def _check(text: bytes) -> bytes:
    return digest_of(text)[:16].encode() + b'"}'


def check_older(folder: Path) -> None:
    """Raise StoreError for a folder that holds what voicelab wrote before there were runs."""
    if (folder / "backend.json").exists() or next(folder.glob("*.entry"), None) is not None:
        message = f"{folder} holds what an older voicelab kept, which cannot be read any more"
        raise StoreError(f"{message}; give another folder")


@contextmanager
def _locked(file: BinaryIO) -> Iterator[None]:
    """Hold an open file's lock, where the system and the disk have locks."""
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
        # A process that was forked meanwhile has the file too, and would keep the lock.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


# Whatever may change a sample: encoders, resamplers, the engine; and what measures.
_LIBRARIES: Final = "av httpx librosa msgpack numpy pandas pyloudnorm safetensors scipy soxr torch".split()


def library_versions() -> dict[str, str]:
    """Return the versions of Python, voicelab and what makes or measures audio, by name."""
    return dict(_environment()["libraries"])


@cache
def _environment() -> dict[str, Any]:
    """Return the versions of Python, voicelab and what makes or measures audio; and the machine, its memory in bytes."""
    versions = {"python": platform.python_version(), "voicelab": __version__}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    hardware: dict[str, Any] = {name: getattr(platform, name)() for name in ("system", "machine", "processor")}
    hardware |= {"cores": os.cpu_count(), "memory": None}
    with suppress(OSError, ValueError, TypeError):  # Linux alone says it there
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        hardware["processor"] = re.search(r"^model name\s*:\s*(.+)$", about, re.MULTILINE)[1]  # type: ignore[index]
    with suppress(OSError, ValueError, AttributeError):
        hardware["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"libraries": versions, "hardware": hardware}
