"""Run: what was kept, read back as takes and as a table; and Journal, the run of a plan that is under way."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from voicelab.capabilities import Capabilities
from voicelab.clip import NoRecord, Take
from voicelab.errors import ArgumentError, check_options, suggestion
from voicelab.lifecycle import Closeable
from voicelab.metrics import MEASURE_OPTIONS, Metric, measure, with_note
from voicelab.runs.failures import Failed, Failure
from voicelab.runs.folder import RUN_FILE, RunFolder, header_of, is_session, latest_backends, unseal
from voicelab.schema import VoiceModel
from voicelab.storage import FileLock

if TYPE_CHECKING:
    import pandas as pd

Labels = Mapping[str, Any]
_NOTHING: Final[Labels] = MappingProxyType({})


@dataclass(frozen=True)
class Run:
    """What a folder has kept. Iterating gives its takes, whose audio stays on disk until it is asked for.

    ``about`` is what its writer said about the run; ``labels`` has a mapping for each take, what the writer said beside
    it (the cell of a sweep). The takes of a sweep are in the order of its grid, others in that in which they ended; where
    a sweep was changed and a number would stand for two cells, all are numbered anew. ``voices`` are the records that were
    made or fetched. ``notes`` name lines that could not be read; ``problems`` everything for which the folder is no full
    record of its run; ``sessions`` are the circumstances: versions, hardware, backends.
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

    def __iter__(self) -> Iterator[Take]:
        return iter(self.takes)

    def __len__(self) -> int:
        return len(self.takes)

    def __bool__(self) -> bool:
        # A run without a take is still a run.
        return True

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Run({str(self.folder)!r}, {len(self.takes)} takes{failed})"

    @property
    def backends(self) -> tuple[Capabilities, ...]:
        """What each backend of the run declared about itself, the last word of each."""
        return tuple(map(Capabilities.of_record, latest_backends(self.sessions).values()))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this is no full record of the run, in sentences: lines left out, takes missing, labels that are not true."""
        problems = [*self.notes, *(() if self.takes else ("The run has no take.",))]
        if self._planned is None:  # labels of another writer mean what that writer says
            return tuple(problems)
        labelled = list(zip(self.takes, self.labels, strict=True))
        written = len({(_line_of("", labels), take.repeat) for take, labels in labelled}) + len(self.failures)
        if self.takes and written < self._planned:
            problems.append(f"The run has {written} of the {self._planned} takes that its axes and repeats make.")
        for take, labels in labelled:
            for name, said in labels.items():
                actual = _value_of(take, name)
                if isinstance(actual, str | int | float) and actual != said:
                    problems.append(f"Take {take.key[:12]}… is labelled {name} {said!r}, and was made with {actual!r}.")
        return tuple(problems)

    @property
    def _planned(self) -> int | None:
        """How many takes the sweep that began the run makes; None where ``about`` describes no sweep of ours."""
        match self.about.get("sweep"):
            case {"axes": dict(axes), "repeats": int(repeats)} if all(isinstance(each, list) for each in axes.values()):
                return math.prod(map(len, axes.values())) * repeats
        return None

    def frame(self, *metrics: str | Metric, **options: Any) -> pd.DataFrame:
        """Return a tidy table, one row a take: see ``takes_frame``. What the writer said beside takes comes first.

        ``metrics`` are further columns, the last ones: names or Metric objects, as for ``vl.measure``, which says what
        ``options`` there are and what it raises.
        """
        check_options(options, MEASURE_OPTIONS)
        table = takes_frame(self.takes, self.labels)
        if not metrics:
            return table
        measured = measure(self.takes, metrics, **options)
        return with_note(table.assign(**dict(measured)), metrics, options.get("tools"))


def load(folder: str | Path) -> Run:
    """Read a run, whoever wrote it: a sweep, a recording or a cache.

    ``folder`` is the folder, or its run.jsonl. A last line that was torn by a crash is left out, and so is a line that does
    not fit its check; ``notes`` tell of both. Raises StoreError when there is no run, one of a newer version, or when
    reference audio of a take is missing.
    """
    folder = Path(folder)
    reader = _Reader(RunFolder(folder.parent if folder.name == RUN_FILE else folder))
    labelled = list(reader.takes.values())
    if "sweep" in reader.header["about"] and all(isinstance(cell, int) for cell in reader.cells.values()):
        labelled = _in_order(labelled, reader.cells)
    had = {take.key for take, _ in labelled}
    return Run(
        folder=reader.kept.folder,
        created=datetime.fromisoformat(reader.header["created"]),
        about=reader.header["about"],
        sessions=tuple(reader.sessions),
        takes=tuple(take for take, _ in labelled),
        labels=tuple(labels for _, labels in labelled),
        failures=tuple(failed for key, failed in reader.failures.items() if key not in had),
        voices=tuple(reader.voices),
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


def _in_order(labelled: list[tuple[Take, Labels]], cells: Mapping[tuple[str, str], int]) -> list[tuple[Take, Labels]]:
    """Return the takes of a sweep in the order of its grid, each cell with one number; ``cells`` are those written last."""
    ranks = cells
    if len(set(cells.values())) < len(cells):  # what is left of an earlier grid has its numbers
        order = sorted(cells, key=lambda said: (cells[said], said))
        ranks = {said: rank for rank, said in enumerate(order)}
    placed = [(take, {**labels, "cell": ranks[_line_of("", labels)]}) for take, labels in labelled]
    return sorted(placed, key=lambda one: (one[1]["cell"], one[0].repeat))


def _line_of(key: str, labels: Labels) -> tuple[str, str]:
    """Return what tells the line of a take from others: its key and what is said beside it."""
    # But for a cell's number: a sweep that has grown counts its cells anew.
    said = {name: value for name, value in labels.items() if name != "cell"}
    return key, json.dumps(said, sort_keys=True)


class _Reader:
    """Collects the lines of a run. A take that was had in a later try counts as had."""

    def __init__(self, kept: RunFolder) -> None:
        self.kept = kept
        self.takes: dict[tuple[str, str], tuple[Take, Labels]] = {}
        self.cells: dict[tuple[str, str], Any] = {}
        self.failures: dict[str, Failed] = {}
        self.voices: list[VoiceModel] = []
        self.notes: list[str] = []
        first, *lines = kept.read()
        self.header = header_of(kept.path, first)
        self.sessions: list[Mapping[str, Any]] = [self.header["session"]]
        for number, line in enumerate(lines, start=2):
            if not line.endswith(b"\n"):
                self.notes.append(f"The last line of {RUN_FILE} was torn off, as a crash does; it is left out.")
            elif not self._is_read(line):
                self.notes.append(f"Line {number} of {RUN_FILE} is damaged; it is left out.")

    def _is_read(self, line: bytes) -> bool:
        """Take in a whole line; return whether it fits its check and is of a kind that there is."""
        record = unseal(line) or {}
        try:
            match record.get("line"):
                case "session" if is_session(record["session"]):
                    self.sessions.append(record["session"])
                case "take":
                    labels = record.get("labels", _NOTHING)
                    self.takes[_line_of(record["key"], labels)] = self.kept.take_of(record), labels
                    self.cells[_line_of("", labels)] = labels.get("cell")
                case "failure":
                    failure = Failure.of_record(record["failure"])
                    self.failures[record["key"]] = Failed(self.kept.take_of(record), failure, record["at"])
                case "voice":
                    self.voices += [] if record["voice"] is None else [VoiceModel.from_wire(record["voice"])]
                case _:
                    return False
        except (NoRecord, ValueError, KeyError, TypeError):
            return False
        return True


class Journal(Closeable):
    """The run of a plan that is under way, in a folder that this process alone writes.

    Args:
        folder: where. When there is a run already it goes on.
        backends: what each backend of the run declares.
        about: what else shall be known of the run, JSON-able; kept from the first time.

    ``add`` and ``fail`` may be called from several threads. Raises StoreError when the folder cannot be written, holds no
    run or one of a newer version, or is being written by another process. Use it in a ``with`` block, or ``close()`` it.
    """

    def __init__(
        self, folder: str | Path, backends: Iterable[Capabilities], *, about: Mapping[str, Any] = _NOTHING
    ) -> None:
        self.run = RunFolder(folder, sync_s=1.0)
        self._lock = Lock()
        refused = f"{folder} is being written by another process"
        self._alone = FileLock(self.run.folder / ".lock", refused, temporary=True)
        try:
            self.run.begin(backends, about)
            held = _Reader(self.run).takes.items()
        except BaseException:
            self._alone.close()
            raise
        self._written = {line: (labels.get("cell"), take.digest) for line, (take, labels) in held}

    def add(self, take: Take, /, **labels: object) -> Take:
        """Keep a take and write it down with ``labels`` (JSON-able) beside it; return it with its audio left on disk.

        A take that is written down and there already is not written again, but for other labels: several cells of a sweep
        may share one take, and a sweep that has grown counts its cells anew. Raises StoreError when the disk fails or is
        full; all that was written before stays.
        """
        line, said = _line_of(take.key, labels), (labels.get("cell"), take.digest)
        with self._lock:
            if self._written.get(line) != said or take.key not in self.run:
                self.run.add(take, labels=labels)
                self._written[line] = said
        return self.run.light(take)

    def fail(self, failed: Failed) -> None:
        """Write down that a take could not be had. Raises StoreError."""
        self.run.add(failed.take, failure=failed.failure.record(), at=failed.at)

    def close(self) -> None:
        """Write everything out and let others write. May be called twice."""
        with self._lock:
            try:
                self.run.sync()
            finally:
                self._alone.close()


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
        **{name: getattr(take, name) for name in ("model", "backend", "fingerprint", "device", "host")},
        "seed": take.call.seed,
        "seed_used": take.seed,
        "repeat": take.repeat,
        "first_audio_s": take.timing.first_audio_s,
        "total_s": take.timing.total_s,
        "chunks": len(take.timing.arrivals),
        "bytes": sum(size for _, size in take.timing.arrivals),
        **{name: getattr(take, name) for name in ("cached", "created", "similarity")},
        "notes": " ".join(take.notes),
        "digest": take.digest,
        "key": take.key,
    }


def take_columns(take: Take, names: Iterable[str]) -> dict[str, Any]:
    """Return columns of ``take_row`` by name. Raises ArgumentError for one that is not there."""
    row = take_row(take)
    for name in names:
        if name not in row:
            raise ArgumentError.of("also", f"a take has no {name!r}{suggestion(name, row)}")
    return {name: row[name] for name in names}


def takes_frame(takes: Iterable[Take], labels: Sequence[Labels] | None = None) -> pd.DataFrame:
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
