"""The record of a run folder (Run), and a writer of run folders (Journal)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

from voicelab.capabilities import Capabilities
from voicelab.clip import NoRecord, Take
from voicelab.errors import ArgumentError, suggestion
from voicelab.lifecycle import Closeable
from voicelab.runs.failures import Failed, Failure
from voicelab.runs.folder import RUN_FILE, RunFolder, header_of, is_session, latest_backends, unseal
from voicelab.schema import VoiceModel
from voicelab.storage import FileLock

Labels = Mapping[str, Any]
_EMPTY: Final[Labels] = MappingProxyType({})


@dataclass(frozen=True)
class Run:
    """Record of a run folder.

    Args:
        folder: the folder.
        created: when it was created.
        about: description by its writer: the axes of a sweep, the columns of a table.
        sessions: libraries, hardware and backends of each session.
        takes: the takes, whose audio is read on access, in the order of the sweep or table, else in the order of writing.
        labels: labels that the writer gave to each take, such as the cell of a sweep.
        failures: failed calls of which the run has no take.
        voices: records of voices that were created or fetched.
        notes: damaged lines, as sentences.
    """

    folder: Path
    created: datetime
    about: Mapping[str, Any]
    sessions: tuple[Mapping[str, Any], ...]
    takes: tuple[Take, ...]
    labels: tuple[Labels, ...]
    failures: tuple[Failed, ...]
    voices: tuple[VoiceModel, ...]
    notes: tuple[str, ...]

    @property
    def backends(self) -> tuple[Capabilities, ...]:
        """Capabilities of each backend, as declared in its latest session."""
        return tuple(map(Capabilities.of_record, latest_backends(self.sessions).values()))

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why the folder is an incomplete record: damaged lines, missing takes, labels that differ from the call."""
        problems = [*self.notes, *(() if self.takes else ("The run has no take.",))]
        if self._planned_count is None:  # only labels of a sweep are values of its calls
            return tuple(problems)
        labelled = list(zip(self.takes, self.labels, strict=True))
        written_count = len({(_line_of("", labels), take.repeat) for take, labels in labelled}) + len(self.failures)
        if self.takes and written_count < self._planned_count:
            problems.append(f"The run has {written_count} of the {self._planned_count} takes of its axes and repeats.")
        for take, labels in labelled:
            for name, label in labels.items():
                value = take_value(take, name)
                # A sweep may name its voices, fill in placeholders of a text, and label a field that a row does not set.
                free = name == "reference_id" or (name == "text" and "{" in str(label)) or label == "default"
                if isinstance(value, str | int | float) and value != label and not free:
                    problems.append(f"Take {take.key[:12]}… is labeled {name} {label!r}, but was made with {value!r}.")
        return tuple(problems)

    @property
    def _planned_count(self) -> int | None:
        """Number of takes of the sweep that began the run; None for other writers."""
        match self.about.get("sweep"):
            case {"takes": int(count)}:
                return count
            case {"axes": dict(axes), "repeats": int(repeats)} if all(isinstance(each, list) for each in axes.values()):
                return math.prod(map(len, axes.values())) * repeats
        return None


def read_run(folder: str | Path) -> Run:
    """Read the run of a sweep, a recording, a cache or a table, from its folder or its run.jsonl.

    Truncated lines and lines with a wrong checksum are excluded, with a note. Raises StoreError if there is no run, its
    version is newer, or reference audio of a take is missing.
    """
    folder = Path(folder)
    reader = _Reader(RunFolder(folder.parent if folder.name == RUN_FILE else folder))
    about = reader.header["about"]
    labelled = list(reader.takes.values())
    if {"sweep", "table"} & about.keys() and all(isinstance(cell, int) for cell in reader.cells.values()):
        labelled = _in_order(labelled, reader.cells)
    taken_keys = {take.key for take, _ in labelled}
    return Run(
        folder=reader.folder.folder,
        created=datetime.fromisoformat(reader.header["created"]),
        about=about,
        sessions=tuple(reader.sessions),
        takes=tuple(take for take, _ in labelled),
        labels=tuple(labels for _, labels in labelled),
        failures=tuple(failed for key, failed in reader.failures.items() if key not in taken_keys),
        voices=tuple(reader.voices),
        notes=tuple(reader.notes),
    )


def take_value(take: Take, name: str) -> object:
    """Return the value of an axis in a take's call; None for other names."""
    if name in {"model", "seed"}:
        return getattr(take.call, name)
    if name in dict(take.call.knobs):
        return dict(take.call.knobs)[name]
    outer, _, inner = name.partition(".")
    value = getattr(take.request, outer, None)
    return getattr(value, inner, None) if inner else value


def _in_order(labelled: list[tuple[Take, Labels]], cells: Mapping[tuple[str, str], int]) -> list[tuple[Take, Labels]]:
    """Sort takes by the cell number last written for their labels, and number the cells without duplicates."""
    ranks = cells
    if len(set(cells.values())) < len(cells):  # cells of an earlier grid have that grid's numbers
        order = sorted(cells, key=lambda line: (cells[line], line))
        ranks = {line: rank for rank, line in enumerate(order)}
    numbered = [(take, {**labels, "cell": ranks[_line_of("", labels)]}) for take, labels in labelled]
    return sorted(numbered, key=lambda pair: (pair[1]["cell"], pair[0].repeat))


def _line_of(key: str, labels: Labels) -> tuple[str, str]:
    """Return the key and the labels of a line of takes, without "cell", which a larger sweep renumbers."""
    return key, json.dumps({name: value for name, value in labels.items() if name != "cell"}, sort_keys=True)


class _Reader:
    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.takes: dict[tuple[str, str], tuple[Take, Labels]] = {}
        self.cells: dict[tuple[str, str], Any] = {}
        self.failures: dict[str, Failed] = {}
        self.voices: list[VoiceModel] = []
        self.notes: list[str] = []
        header, *lines = folder.read()
        self.header = header_of(folder.path, header)
        self.sessions: list[Mapping[str, Any]] = [self.header["session"]]
        for number, line in enumerate(lines, start=2):
            if not line.endswith(b"\n"):
                self.notes.append(f"The last line of {RUN_FILE} is truncated, as after a crash, and is excluded.")
            elif not self._is_read(line):
                self.notes.append(f"Line {number} of {RUN_FILE} is damaged and is excluded.")

    def _is_read(self, line: bytes) -> bool:
        """Read a line; return False if it is damaged or of an unknown kind."""
        record = unseal(line) or {}
        try:
            match record.get("line"):
                case "session" if is_session(record["session"]):
                    self.sessions.append(record["session"])
                case "take":
                    labels = record.get("labels", _EMPTY)
                    self.takes[_line_of(record["key"], labels)] = self.folder.take_of(record), labels
                    self.cells[_line_of("", labels)] = labels.get("cell")
                case "failure":
                    failure = Failure.of_record(record["failure"])
                    self.failures[record["key"]] = Failed(self.folder.take_of(record), failure, record["at"])
                case "voice":
                    self.voices += [] if record["voice"] is None else [VoiceModel.from_wire(record["voice"])]
                case _:
                    return False
        except (NoRecord, ValueError, KeyError, TypeError):
            return False
        return True


class Journal(Closeable):
    """Writer of a run folder, locked against other processes. Use it in a ``with`` block, or ``close()`` it.

    Args:
        folder: the folder; an existing run is continued.
        backends: capabilities of each backend of the run.
        about: JSON description, written once, when the run is created.

    ``add`` and ``fail`` are thread-safe. Raises StoreError if the folder cannot be written, contains no run or a run of a
    newer version, or is being written by another process.
    """

    def __init__(
        self, folder: str | Path, backends: Iterable[Capabilities], *, about: Mapping[str, Any] = _EMPTY
    ) -> None:
        self.run = RunFolder(folder, sync_s=1.0)
        self._lock = Lock()
        problem = f"{folder} is being written by another process"
        self._file_lock = FileLock(self.run.folder / ".lock", problem, temporary=True)
        try:
            self.run.begin(backends, about)
            lines = _Reader(self.run).takes.items()
        except BaseException:
            self._file_lock.close()
            raise
        self._written = {line: (labels.get("cell"), take.digest) for line, (take, labels) in lines}

    def add(self, take: Take, /, **labels: object) -> Take:
        """Write a take with ``labels`` (JSON values) and return it with its audio on disk.

        A take is written again only if its labels differ: cells of a sweep may share a take, and a larger sweep renumbers
        its cells. Raises StoreError if the disk fails or is full; earlier takes remain.
        """
        line, entry = _line_of(take.key, labels), (labels.get("cell"), take.digest)
        with self._lock:
            if self._written.get(line) != entry or take.key not in self.run:
                self.run.add(take, labels=labels)
                self._written[line] = entry
        return self.run.light(take)

    def fail(self, failed: Failed) -> None:
        """Write a failed call. Raises StoreError."""
        self.run.add(failed.take, failure=failed.failure.record(), at=failed.at)

    def close(self) -> None:
        """Flush and unlock the folder; idempotent."""
        with self._lock:
            try:
                self.run.sync()
            finally:
                self._file_lock.close()


def take_row(take: Take) -> dict[str, Any]:
    """Return a take as a record: every field of its request, backend, seeds, timing and notes.

    ``prosody`` becomes two columns, ``prosody.speed`` and ``prosody.volume``; ``references`` contains the digests, separated
    by spaces, or None; backend parameters are columns unless they have their default values. Times are in seconds, and
    ``created`` is in UTC, without a time zone, which Excel does not support; ``bytes`` and ``chunks`` are those of the
    encoded audio. The audio is not read.
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
        **{name: getattr(take, name) for name in ("model", "backend", "fingerprint", "device", "host")},
        "seed": take.call.seed,
        "seed_used": take.seed,
        "repeat": take.repeat,
        "first_audio_s": take.timing.first_audio_s,
        "total_s": take.timing.total_s,
        "chunks": len(take.timing.arrivals),
        "bytes": sum(size for _, size in take.timing.arrivals),
        "cached": take.cached,
        "created": take.created.astimezone(UTC).replace(tzinfo=None),
        "similarity": take.similarity,
        "notes": " ".join(take.notes),
        "digest": take.digest,
        "key": take.key,
    }


def take_columns(take: Take, names: Iterable[str]) -> dict[str, Any]:
    """Return columns of ``take_row`` by name. Raises ArgumentError for an unknown name."""
    row = {**take_row(take), "source": take.source}
    for name in names:
        if name not in row:
            raise ArgumentError.of("also", f"must be columns of a take, got {name!r}{suggestion(name, row)}")
    return {name: row[name] for name in names}
