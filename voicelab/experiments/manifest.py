"""Manifest: the file that lets a run be repeated, one JSON object a line.

The first line says what made the run: versions, hardware, what each backend declares, and the folder of
the takes' audio, relative to the file. Then comes a line for every take and every failure, in the order
in which they ended, and a line ``session`` whenever the run went on under other circumstances. A line is
written in one piece once its audio is on disk, so that a run that is killed loses nothing it had finished.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicelab.backend import Capabilities
from voicelab.call import Call
from voicelab.errors import StoreError
from voicelab.experiments.cache import Cache
from voicelab.experiments.declared import capabilities_of
from voicelab.experiments.entries import Entries, EntryFile
from voicelab.experiments.failure import Failure
from voicelab.experiments.frame import takes_frame
from voicelab.experiments.metrics import Metric, measure
from voicelab.schema import check_model
from voicelab.take import NoRecord, Take, request_of, take_key

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MANIFEST_VERSION", "Failed", "Manifest", "load"]

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
    anew; ``numbers`` are those that each take was written down with. ``notes`` tell of lines that could not be
    read; ``sessions`` are the circumstances: versions, hardware, backends.
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
        found = {record["fingerprint"]: record for session in self.sessions for record in session["backends"]}
        return tuple(capabilities_of(record) for record in found.values())

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
    found = list(reader.takes.values())
    had = {key for key, _ in reader.takes}
    numbers = [labels.get("cell") for _, labels in found]
    if "sweep" in header["about"] and all(isinstance(number, int) for number in numbers):
        found, numbers = _in_order(found, reader.cells)
    return Manifest(
        path=path,
        folder=where,
        created=datetime.fromisoformat(header["created"]),
        about=header["about"],
        sessions=(header["session"], *reader.sessions),
        takes=tuple(take for take, _ in found),
        labels=tuple(labels for _, labels in found),
        numbers=tuple(numbers),
        failures=tuple(failed for key, failed in reader.failures.items() if key not in had),
        notes=tuple(reader.notes),
    )


def _in_order(
    found: list[tuple[Take, Mapping[str, Any]]], cells: Mapping[tuple[str, str], int]
) -> tuple[list[tuple[Take, Mapping[str, Any]]], list[object]]:
    """The takes of a sweep in the order of its grid, each cell with one number, and the numbers that were written.

    ``cells`` are those that were written last. Which of several takes ended first is chance, and does not show.
    """
    ranks = cells
    if len(set(cells.values())) < len(cells):  # what is left of an earlier grid has its numbers
        order = sorted(cells, key=lambda said: (cells[said], said))
        ranks = {said: rank for rank, said in enumerate(order)}
    placed = [(ranks[line_of("", labels)], take, labels) for take, labels in found]
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
        known = {name: header[name] for name in ("manifest", "created", "about", "takes", "session")}
        datetime.fromisoformat(known["created"])
        os.fspath(known["takes"])
        _ = known["session"]["backends"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no manifest: its first line does not say so") from error
    return known


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
            call=Call(
                request_of(record["request"], self._entries.reference), check_model(record["model"]), record["seed"]
            ),
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
