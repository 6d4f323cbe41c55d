"""Manifest: the file that lets a run be repeated, one JSON object a line.

The first line says what made the run: versions, hardware, what each backend declares, and the folder of
the takes' audio, relative to the file. Then comes a line for every take and every failure, in the order
in which they ended, and a line ``session`` whenever the run went on under other circumstances. A line is
written in one piece once its audio is on disk, so that a run that is killed loses nothing it had finished.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from voicelab.backend import Capabilities
from voicelab.call import Call, call_of, call_record
from voicelab.clip import NoRecord, Take, take_key
from voicelab.distribution import __version__
from voicelab.errors import StoreError
from voicelab.experiments.cache import Cache
from voicelab.experiments.entries import Entries, EntryFile
from voicelab.experiments.metrics import Metric, measure
from voicelab.experiments.records import Failure, capabilities_of, capabilities_record
from voicelab.storage import disk_error

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "MANIFEST_VERSION",
    "Failed",
    "Journal",
    "Manifest",
    "hardware",
    "libraries",
    "load",
    "take_row",
    "takes_frame",
]

MANIFEST_VERSION = 1


@dataclass(frozen=True)
class Failed:
    """A take that was asked for and not had, and why."""

    call: Call
    backend: str
    fingerprint: str
    repeat: int
    failure: Failure
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def key(self) -> str:
        """What the take would have been named: see ``take_key``."""
        return take_key(self.call, self.fingerprint, self.repeat)


@dataclass(frozen=True)
class Manifest:
    """A run as it was written down. Iterating gives its takes, whose audio stays on disk until it is asked for.

    ``path`` is the file; ``about`` what its writer said about the run; ``labels`` has a mapping for each
    take, what the writer said beside it (the cell of a sweep). The takes of a sweep are in the order of its grid,
    others in that in which they ended. Where a sweep was changed and a number would stand for two cells, all are numbered
    anew; ``numbers`` are those that each take was written down with. ``notes`` name lines that could not be
    read; ``problems`` everything for which the file is no full record of its run; ``sessions`` are the circumstances:
    versions, hardware, backends.
    """

    path: Path
    folder: Path
    created: datetime
    about: Mapping[str, Any]
    sessions: tuple[Mapping[str, Any], ...]
    takes: tuple[Take, ...]
    labels: tuple[Mapping[str, Any], ...]
    numbers: tuple[object, ...]
    failures: tuple[Failed, ...]
    notes: tuple[str, ...]

    def __iter__(self) -> Iterator[Take]:
        return iter(self.takes)

    def __len__(self) -> int:
        return len(self.takes)

    def __bool__(self) -> bool:
        # A run without a take is still a run.
        return True

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Manifest({str(self.path)!r}, {len(self.takes)} takes{failed})"

    @property
    def backends(self) -> tuple[Capabilities, ...]:
        """What each backend of the run declared about itself, the last word of each."""
        latest = {record["fingerprint"]: record for session in self.sessions for record in session["backends"]}
        return tuple(capabilities_of(record) for record in latest.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this is no full record of the run, in sentences: lines left out, takes missing, labels that are not true."""
        missing = () if self.takes else ("The run has no take.",)
        return (*self.notes, *missing, *self._incomplete(), *self._contradictions())

    @property
    def _planned(self) -> int | None:
        """How many takes the sweep that began the run makes; None where ``about`` describes no sweep of ours."""
        match self.about.get("sweep"):
            case {"axes": dict(axes), "repeats": int(repeats)} if all(isinstance(each, list) for each in axes.values()):
                return math.prod(map(len, axes.values())) * repeats
        return None

    def _incomplete(self) -> Iterator[str]:
        lines = {(line_of("", labels), take.repeat) for take, labels in zip(self.takes, self.labels, strict=True)}
        written = len(lines) + len(self.failures)
        if self.takes and self._planned is not None and written < self._planned:
            yield f"The run has {written} of the {self._planned} takes that its axes and repeats make."

    def _contradictions(self) -> Iterator[str]:
        if self._planned is None:  # labels of another writer mean what that writer says
            return
        for take, labels in zip(self.takes, self.labels, strict=True):
            for name, said in labels.items():
                actual = _value_of(take, name)
                if isinstance(actual, str | int | float) and actual != said:
                    yield f"Take {take.key[:12]}… is labelled {name} {said!r}, and was made with {actual!r}."

    @property
    def cache(self) -> Cache:
        """The takes of the run, as a cache without a bound."""
        return Cache(self.folder, max_bytes=None)

    def frame(self, *metrics: str | Metric, **options: Any) -> pd.DataFrame:
        """Return a tidy table, one row a take: see ``takes_frame``. What the writer said beside takes comes first.

        ``metrics`` are further columns, the last ones: names or Metric objects, as for ``vl.measure``, which says what
        ``options`` there are and what it raises.
        """
        table = takes_frame(self.takes, self.labels)
        return table.assign(**dict(measure(self.takes, metrics, **options))) if metrics else table


def load(path: str | Path, *, folder: str | Path | None = None) -> Manifest:
    """Read a manifest and give all its takes back.

    Args:
        path: the file.
        folder: where the takes' audio is; what the manifest says when not given.

    A last line that was torn by a crash is left out, and so is a line whose content does not fit its own
    key; ``notes`` tell of both. Raises StoreError when the file is not there, no manifest or of a newer
    version, or when reference audio of a take is missing.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    whole, _, torn = data.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    header = check_header(path, lines[0] if lines else torn)
    where = Path(folder) if folder is not None else path.parent / header["takes"]
    reader = _Reader(path, Entries(where))
    if torn:
        reader.notes.append(f"The last line of {path.name} was torn off, as a crash does; it is left out.")
    for number, line in enumerate(lines[1:], start=2):
        reader.read(number, line)
    labelled = list(reader.takes.values())
    had = {key for key, _ in reader.takes}
    numbers = [labels.get("cell") for _, labels in labelled]
    if "sweep" in header["about"] and all(isinstance(number, int) for number in numbers):
        labelled, numbers = _in_order(labelled, reader.cells)
    return Manifest(
        path=path,
        folder=where,
        created=datetime.fromisoformat(header["created"]),
        about=header["about"],
        sessions=(header["session"], *reader.sessions),
        takes=tuple(take for take, _ in labelled),
        labels=tuple(labels for _, labels in labelled),
        numbers=tuple(numbers),
        failures=tuple(failed for key, failed in reader.failures.items() if key not in had),
        notes=tuple(reader.notes),
    )


def _value_of(take: Take, name: str) -> object:
    """Return the value of an axis in a take's call; None for what is no field of it."""
    if name in {"model", "seed"}:
        return getattr(take.call, name)
    if name in dict(take.call.knobs):
        return dict(take.call.knobs)[name]
    outer, _, inner = name.partition(".")
    value = getattr(take.request, outer, None)
    return getattr(value, inner, None) if inner else value


def _in_order(
    labelled: list[tuple[Take, Mapping[str, Any]]], cells: Mapping[tuple[str, str], int]
) -> tuple[list[tuple[Take, Mapping[str, Any]]], list[object]]:
    """The takes of a sweep in the order of its grid, each cell with one number, and the numbers that were written.

    ``cells`` are those that were written last. Which of several takes ended first is chance, and does not show.
    """
    ranks = cells
    if len(set(cells.values())) < len(cells):  # what is left of an earlier grid has its numbers
        order = sorted(cells, key=lambda said: (cells[said], said))
        ranks = {said: rank for rank, said in enumerate(order)}
    placed = [(ranks[line_of("", labels)], take, labels) for take, labels in labelled]
    placed.sort(key=lambda one: (one[0], one[1].repeat))
    again: list[tuple[Take, Mapping[str, Any]]] = [(take, {**labels, "cell": rank}) for rank, take, labels in placed]
    return again, [labels["cell"] for _, _, labels in placed]


def line_of(key: str, labels: Mapping[str, Any]) -> tuple[str, str]:
    """Return what tells the line of a take from others: its key and what is said beside it, but for a cell's number.

    That is left out since a sweep that has grown counts its cells anew.
    """
    said = {name: value for name, value in labels.items() if name != "cell"}
    return key, json.dumps(said, sort_keys=True)


def check_header(path: Path, line: bytes) -> dict[str, Any]:
    """Return a manifest's first line as an object. Raises StoreError when it is none, or of a newer version."""
    try:
        header = json.loads(line)
        version = header["manifest"]
        if isinstance(version, int) and version > MANIFEST_VERSION:
            message = f"{path} was written by a newer voicelab (manifest version {version}, known: {MANIFEST_VERSION})"
            raise StoreError(message)
        fields = {name: header[name] for name in ("manifest", "created", "about", "takes", "session")}
        datetime.fromisoformat(fields["created"])
        os.fspath(fields["takes"])
        _ = fields["session"]["backends"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no manifest: its first line does not say so") from error
    return fields


class _Reader:
    """Collects the lines of a manifest. A take that was had in a later try counts as had."""

    def __init__(self, path: Path, entries: Entries) -> None:
        self._path = path
        self._entries = entries
        self.takes: dict[tuple[str, str], tuple[Take, Mapping[str, Any]]] = {}
        self.cells: dict[tuple[str, str], Any] = {}
        self.failures: dict[str, Failed] = {}
        self.sessions: list[Mapping[str, Any]] = []
        self.notes: list[str] = []

    def read(self, number: int, line: bytes) -> None:
        """Read one line; what cannot be read becomes a note."""
        try:
            record = json.loads(line)
            kind = record["line"]
            if kind == "session":
                _ = record["session"]["backends"]
                self.sessions.append(record["session"])
                return
            named = self._take(record) if kind == "take" else self._failed(record)
        except (NoRecord, ValueError, KeyError, TypeError):
            named = False
        if not named:
            self.notes.append(f"Line {number} of {self._path.name} is damaged; it is left out.")

    def _take(self, record: Mapping[str, Any]) -> bool:
        key = record["key"]
        take = Take.of_record(
            record["take"],
            EntryFile(self._entries.folder, key, record["take"]["digest"]),
            self._entries.reference,
        )
        if take.key != key:
            return False
        self.takes[line_of(key, record["labels"])] = (take, record["labels"])
        self.cells[line_of("", record["labels"])] = record["labels"].get("cell")
        return True

    def _failed(self, record: Mapping[str, Any]) -> bool:
        failed = Failed(
            call=call_of(record, self._entries.reference),
            backend=record["backend"],
            fingerprint=record["fingerprint"],
            repeat=record["repeat"],
            failure=Failure.of_record(record["failure"]),
            created=datetime.fromisoformat(record["created"]),
        )
        if failed.key != record["key"]:
            return False
        self.failures[failed.key] = failed
        return True


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
            **call_record(failed.call),
            "backend": failed.backend,
            "fingerprint": failed.fingerprint,
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


def take_row(take: Take) -> dict[str, Any]:
    """Return a take as a row: every field of its request by name, who spoke, when, and its timing.

    ``prosody`` is two columns, ``prosody.speed`` and ``prosody.volume``; of ``references`` there are the
    digests, separated by spaces, or None; own knobs of the backend are columns where they are not at their defaults.
    Times are in seconds; ``bytes`` and ``chunks`` are those of the encoded audio. The audio itself is not read.
    """
    request = take.request.canonical()
    prosody = request.pop("prosody")
    references = request.pop("references")
    return {
        **request,
        "prosody.speed": prosody["speed"],
        "prosody.volume": prosody["volume"],
        "references": " ".join(item["audio_sha256"] for item in references) if references else None,
        **dict(take.call.knobs),
        "model": take.model,
        "backend": take.backend,
        "fingerprint": take.fingerprint,
        "device": take.device,
        "seed": take.call.seed,
        "seed_used": take.seed,
        "repeat": take.repeat,
        "first_audio_s": take.timing.first_audio_s,
        "total_s": take.timing.total_s,
        "chunks": len(take.timing.arrivals),
        "bytes": sum(size for _, size in take.timing.arrivals),
        "cached": take.cached,
        "created": take.created,
        "similarity": take.similarity,
        "notes": " ".join(take.notes),
        "digest": take.digest,
        "key": take.key,
    }


def takes_frame(takes: Iterable[Take], labels: Sequence[Mapping[str, Any]] | None = None) -> pd.DataFrame:
    """Return a tidy pandas table, one row a take, a column for every field: see ``take_row``.

    ``labels``, a mapping for each take, become further columns, the first ones. Seeds are whole numbers
    or missing (pandas' UInt64), whatever they are.
    """
    import pandas as pd

    rows = [take_row(take) for take in takes]
    if labels is not None:
        # What is said beside a take comes first, and stands where a field has the same name.
        rows = [{**beside, **row, **beside} for beside, row in zip(labels, rows, strict=True)]
    frame = pd.DataFrame(rows)
    for name in ("seed", "seed_used"):
        if name in frame:
            frame[name] = pd.array([row[name] for row in rows], dtype="UInt64")
    return frame


# Whatever may change a sample: encoders, resamplers, the engine; and what measures.
_LIBRARIES = (
    "av",
    "httpx",
    "librosa",
    "msgpack",
    "numpy",
    "pandas",
    "pyloudnorm",
    "safetensors",
    "scipy",
    "soxr",
    "torch",
)


def libraries() -> dict[str, str]:
    """Return the versions of Python, voicelab and of the installed libraries that make or measure audio."""
    versions = {"python": platform.python_version(), "voicelab": __version__}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def hardware() -> dict[str, Any]:
    """Return system, architecture, processor, its logical cores, and memory in bytes (None when unknown)."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": _memory(),
    }


def _processor() -> str:
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        named = None
    return named[1] if named else platform.processor()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
