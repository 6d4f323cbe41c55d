"""Loading: a run folder as a TakeTable, a sound file as a Clip."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from voicelab.recordings import REPEAT, SUFFIXES, load_file
from voicelab.runs.run import Run, read_run, take_row, take_value
from voicelab.takes.rows import SYSTEM, Column, TakeRow, value_label
from voicelab.takes.table import TakeTable

# Fields of a take that are results of its call.
_RESULTS: Final = frozenset(
    "device host seed_used repeat first_audio_s total_s chunks bytes cached created similarity notes digest key".split()
)


def load(path: str | Path) -> Any:
    """Load a run folder as a TakeTable, or a sound file as a Clip.

    Args:
        path: a folder that a sweep, a recording, a cache or ``TakeTable.save`` wrote, or its run.jsonl; or a sound file.

    Returns:
        TakeTable: of a folder. Damaged lines are excluded, with a note; ``table.run`` has versions, hardware, backends and
        problems.
        Clip: of a sound file.

    Raises:
        StoreError: the sound file cannot be read, the folder has no run, the run has a newer version, or reference audio of
            a take is missing.
        AudioError: the sound file is damaged.
    """
    path = Path(path)
    return load_file(path)[1] if path.suffix.lower() in SUFFIXES and not path.is_dir() else run_table(read_run(path))


def run_table(run: Run) -> TakeTable:
    """Make the table of a run, with the key columns of the sweep or table that wrote it.

    Where its lines have no labels, as in a cache, these are the text and all fields that differ between the takes.
    """
    fields = [take_row(take) for take in run.takes]
    saved = _saved_table(run.about)
    names = list(saved.pop("columns", dict.fromkeys(chain.from_iterable(run.labels))))
    names = [name for name in names if name not in {"cell", REPEAT}] or _differing(fields)
    pairs = zip(run.takes, run.labels, fields, strict=True)
    rows = [
        _row(TakeRow({}, {}, take.call, take, cached=take.cached), {**record, **labels}, names)
        for take, labels, record in pairs
    ]
    for failed in run.failures:
        values = take_row(failed.take) | {name: take_value(failed.take, name) for name in names}
        rows.append(_row(TakeRow({}, {}, failed.call, error=failed.failure.error()), values, names))
    columns = tuple(Column.of_rows(name, rows) for name in (*names, REPEAT))
    notes = (*saved.pop("notes", ()), *run.notes)
    return TakeTable(columns, tuple(rows), **saved, notes=notes, run=run)


def _row(row: TakeRow, values: Mapping[str, Any], names: Sequence[str]) -> TakeRow:
    keys = {name: _plain(values.get(name)) for name in (*names, REPEAT)}
    labels = {name: value_label(value) for name, value in keys.items()}
    columns = {name: value for name, value in values.items() if name not in keys and name != "cell"}
    return replace(row, keys=keys, labels=labels, columns=columns)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else json.dumps(value, sort_keys=True, default=str)


def _differing(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for name in chain.from_iterable(fields) if name not in _RESULTS)
    return [name for name in names if name == "text" or len({repr(record.get(name)) for record in fields}) > 1]


def _saved_table(about: Mapping[str, Any]) -> dict[str, Any]:
    """Read what ``TakeTable.save`` described; empty for other writers."""
    match about.get("table"):
        case {"columns": [*columns], "metrics": [*metrics], "matched": bool(matched), "notes": [*notes], **more}:
            texts = {"columns": columns, "metrics": metrics, "notes": notes}
            saved: dict[str, Any] = {
                name: tuple(text for text in listed if isinstance(text, str)) for name, listed in texts.items()
            }
            excluded = more.get("excluded")
            records = excluded if isinstance(excluded, list) else []
            saved["excluded"] = tuple(record for record in records if isinstance(record, dict))
            return saved | {"matched": matched and SYSTEM in saved["columns"], "state": str(more.get("state", "done"))}
    return {}
