"""Tables of takes from files: run folders, and recordings from patterns, folders, tables and webMUSHRA tests."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

from voicelab.asr.recognizers import Recognizer
from voicelab.clip import UNKNOWN_TEXT, Clip, Take
from voicelab.errors import ArgumentError, AudioError, StoreError, check_options, some, suggestion
from voicelab.guesses import answers
from voicelab.listening.design import REFERENCE
from voicelab.listening.webmushra import import_webmushra
from voicelab.metrics import Metric, Tools, available, check_measuring
from voicelab.metrics.level import loudness
from voicelab.metrics.metric import Subject, Undefined
from voicelab.metrics.words import recognizer_name, recognizer_of
from voicelab.recordings import (
    REPEAT,
    SUFFIXES,
    Recording,
    Report,
    clip_take,
    intervals_of,
    is_file,
    key_of,
    load_file,
    reasons_of,
    recordings_of,
    sidecar,
    skipped_note,
    unreadable,
)
from voicelab.runs.folder import RUN_FILE
from voicelab.runs.run import Run, read_run, take_row, take_value
from voicelab.stats.estimate import one_of
from voicelab.storage import digest_of
from voicelab.tables import folded, path_text
from voicelab.takes.rows import SYSTEM, TAKE_COLUMNS, Column, TakeRow, device_notes, value_label
from voicelab.takes.table import TakeTable

COLLECTED_METRICS: Final = ("duration", "word_rate", "pause_time", "spectral_tilt", "snr")
"""Default metrics of recordings; they are fast enough for thousands of files."""

ITEM: Final = "item"

# Column names that tables and exports write themselves.
_RESERVED_NAMES: Final = frozenset(
    [
        *TAKE_COLUMNS,
        *"system item text backend cell sent file file_name path undefined recognizer file_loudness".split(),
    ]
)
FILE_LOUDNESS: Final = "file_loudness"
"""Column of the original loudness of a file in LUFS (ITU-R BS.1770-4), before loudness is matched."""

_PREFIX: Final = "source_"
_MISSING_VALUE: Final = "(none)"
_MAX_LISTED: Final = 5
_ALL_EXCLUDED: Final = "all in table.excluded"
_NOTED_DIFFERENCE_DB: Final = 1.0

Progress = Callable[..., Iterable[Any]]
"""Progress display such as ``vl.progress``, called with items, a label, and ``total=``."""


def collect(
    source: Any,
    *,
    metrics: Sequence[str | Metric] = COLLECTED_METRICS,
    keys: Sequence[str] | None = None,
    root: str | Path | None = None,
    transcribe: bool | Recognizer = False,
    missing: Literal["leave out", "refuse"] = "leave out",
    on_error: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
    **options: Any,
) -> TakeTable:
    """Collect recordings of systems as a table: ``vl.collect("samples/{system}/{speaker}/{item}.wav")``.

    Args:
        source: a pattern with fields in braces (``system``, ``item``, other key columns) and ``*``; a folder with a subfolder
            per system; ``{"ours": "folder", "theirs": …}``; a table (CSV, TSV, JSONL, Excel, DataFrame, list of mappings)
            with ``path``, ``system``, ``item``, ``text``, ``start`` and ``end`` (interval in seconds) and other columns; an
            export, audiofolder (Hugging Face), LJSpeech or Kaldi folder; a webMUSHRA YAML; a list of paths in system folders.
        metrics: metrics of ``frame()``, as for ``vl.measure``.
        keys: columns that pair recordings of several systems, besides ``item`` and ``repeat``. Default: all fields of a
            pattern; for a table, the columns that vary within an item of a system.
        root: folder of the files of a webMUSHRA test; by default that of the YAML.
        transcribe: recognize missing texts from the first system's recording, with this recognizer or the default; the
            column ``text_by`` names it. WER against such a text is the difference between two transcripts.
        missing: "leave out" excludes an item that a system lacks from all systems (see ``excluded``); "refuse" raises.
        on_error: "raise" reports all unreadable files in one error, "skip" excludes them (see ``excluded``).
        progress: ``vl.progress`` to show progress.
        **options: ``jobs`` and ``tools`` of ``vl.measure``.

    Returns:
        A table with the key columns ``item``, your own, ``system`` and ``repeat``. The clips of a pair are loudness-matched;
        ``file_loudness`` has their original loudness in LUFS. ``notes`` name unusual files, ``excluded`` lists those that
        are not collected.

    Raises:
        StoreError, AudioError: files cannot be read or are damaged; an AudioError's ``files`` has all of them.
        ArgumentError: two recordings have the same keys, an item has two texts, or no item is complete.
        MissingExtra: a metric or the reader of Excel files is not installed.
    """
    check_options(options, "metrics keys root transcribe missing on_error progress jobs tools".split())
    metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    check_measuring(metrics, **options)
    one_of(missing, "missing", ("leave out", "refuse"))
    report, show = Report(), progress or (lambda items, *_, **__: items)
    recordings = _recordings(source, root, report)
    notes = _rename(recordings, {*available(), *(metric.name for metric in metrics if isinstance(metric, Metric))})
    notes += _alike(recordings)
    names = _key_columns(recordings, keys, notes)
    systems = list(dict.fromkeys(recording.system for recording in recordings))
    groups = _group(recordings, names)
    exclude = partial(_exclude_incomplete, groups, names, systems, missing, notes)
    excluded = _read_pairs(groups, exclude, on_error, show, notes)
    _note_differences(groups, names, notes)
    if transcribe:
        _recognize(groups, Tools(recognizer=None if transcribe is True else transcribe), show)
    notes = [*report.notes, *_skipped(report), *notes, *_note_oddities(groups)]
    excluded += [{"file": file, "reason": reason} for file, reason in report.excluded.items()]
    measuring = {**options, **({"progress": progress} if progress else {})}
    return TakeTable(*_rows(groups, names, systems), metrics, True, tuple(notes), tuple(excluded), measuring=measuring)


def _recordings(source: Any, root: str | Path | None, report: Report) -> list[Recording]:
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix.lower() in {".yaml", ".yml"}:
            return _webmushra(path, root)
        if (path / RUN_FILE).is_file() and not (path / "takes.csv").is_file():
            raise ArgumentError.of("source", f"{path} is a run folder: use vl.load, which keeps its columns")
    return recordings_of(source, report)


def _alike(recordings: Iterable[Recording]) -> list[str]:
    alike = _systems_by(lambda recording: folded(recording.system), recordings)
    return [
        f"Names of systems differ only in case, spaces, hyphens or underscores: {', '.join(names)}." for names in alike
    ]


def _skipped(report: Report) -> list[str]:
    return [f"Files that are not collected ({_ALL_EXCLUDED}): {skipped_note(report)}."] if report.excluded else []


def _webmushra(path: Path, root: str | Path | None) -> list[Recording]:
    test = import_webmushra(path, path.parent if root is None else root)
    references = {item: {REFERENCE: clip} for item, clip in test.references.items()}
    return [
        Recording(path, system, item, take=clip_take(clip, f"{item}-{system}.wav"))
        for item, clips in test.items.items()
        for system, clip in {**clips, **references.get(item, {})}.items()
    ]


_Groups = dict[tuple[str, ...], list[Recording]]
"""Recordings by item and key columns; after ``_exclude_incomplete``, each group has one per system, in their order."""


def _rename(recordings: Sequence[Recording], metrics: Iterable[str]) -> list[str]:
    """Rename columns that have the name of a metric or of a column that tables write; return notes on the new names."""
    reserved = {name for recording in recordings for name in recording.columns} & {*_RESERVED_NAMES, *metrics}
    for recording in recordings:
        recording.columns = {_renamed(name, reserved): value for name, value in recording.columns.items()}
        recording.fields = tuple(_renamed(name, reserved) for name in recording.fields)
    listed = ", ".join(f"{name} is {_renamed(name, reserved)}" for name in sorted(reserved))
    return [f"Columns of the source with reserved names are renamed: {listed}."] if reserved else []


def _renamed(name: str, reserved: Iterable[str]) -> str:
    return f"{_PREFIX}{name}" if name in reserved else name


def _key_columns(recordings: Sequence[Recording], keys: Sequence[str] | None, notes: list[str]) -> list[str]:
    """Return the key columns other than ``item`` and ``system``; add a note if they are inferred from a table's values."""
    columns = list(dict.fromkeys(name for recording in recordings for name in recording.columns))
    repeat = [REPEAT] * (REPEAT in columns)
    if keys is not None:
        names = [name for name in ([keys] if isinstance(keys, str) else keys) if name not in {SYSTEM, ITEM}]
        names = [name if name in columns else _renamed(name, [name]) for name in names]
        for name in names:
            if name not in columns:
                typed = name.removeprefix(_PREFIX)
                near = suggestion(typed, columns) or f"; the columns are {', '.join(columns) or 'none'}"
                raise ArgumentError.of("keys", f"must be columns of the source, got {typed!r}{near}")
        return list(dict.fromkeys([*names, *repeat]))
    fields = {name for recording in recordings for name in recording.fields}
    names = [name for name in columns if name in fields or name == REPEAT]
    groups: dict[tuple[str, ...], list[Recording]] = {}
    for recording in recordings:
        groups.setdefault((recording.system, recording.item, *_values(recording, names)), []).append(recording)
    described = [name for name in columns if not name.startswith(_PREFIX)]  # others are measurements
    varying = {
        name
        for group in groups.values()
        for name in described
        if len({_values(recording, [name]) for recording in group}) > 1
    }
    if varying and len({recording.system for recording in recordings}) > 1:
        listed = ", ".join([ITEM, *(name for name in columns if name in varying or name in names)])
        notes.append(f"Recordings are paired by {listed}, which vary within a system; keys=… chooses the columns.")
    return [name for name in columns if name in varying or name in names]


def _values(recording: Recording, names: Iterable[str]) -> tuple[str, ...]:
    columns = recording.columns
    return tuple(key_of(columns[name]) if name in columns else _MISSING_VALUE for name in names)


def _group(recordings: Iterable[Recording], names: Sequence[str]) -> _Groups:
    """Group recordings by item and keys. Raises ArgumentError if a system has two recordings in a group."""
    groups: dict[tuple[str, ...], dict[str, Recording]] = {}
    problems = []
    for recording in recordings:
        key = (recording.item, *_values(recording, names))
        twin = groups.setdefault(key, {}).setdefault(recording.system, recording)
        if twin is not recording:
            keys = ", ".join(f"{name} {value!r}" for name, value in zip([ITEM, *names], key, strict=True))
            problems.append(f"{twin.name} and {recording.name} are both {keys} of system {recording.system!r}")
    if problems:
        listed = some(problems, _MAX_LISTED, "; ")
        raise ArgumentError.of("source", f"{listed}; distinguish them by a field or column, such as {REPEAT}")
    return {key: list(by_system.values()) for key, by_system in groups.items()}


def _exclude_incomplete(
    groups: _Groups, names: Sequence[str], systems: Sequence[str], missing: str, notes: list[str]
) -> list[Mapping[str, Any]]:
    """Exclude groups without a recording of each system, with a note; order the remaining groups by system.

    Returns the excluded recordings.
    """
    by_system = {key: {recording.system: recording for recording in group} for key, group in groups.items()}
    lacking = {
        key: absent for key, group in by_system.items() if (absent := [name for name in systems if name not in group])
    }
    listed = some([f"{', '.join(key)} (not in {', '.join(absent)})" for key, absent in lacking.items()], _MAX_LISTED)
    if lacking and missing == "refuse":
        raise ArgumentError.of("missing", f"every system must have every item, got incomplete items: {listed}")
    if len(lacking) == len(groups):
        if not groups:
            raise ArgumentError.of("source", "; ".join(["must have readable recordings, got none", *notes]))
        by = f" with the same {', '.join(names)}" if names else ""
        advice = f"keys=… chooses which columns pair recordings, now {', '.join([ITEM, *names])}" if names else ""
        advice = advice or 'give items the same names, give a table, or name a single system: {"NAME": source}'
        message = f"at least one item must have recordings of all systems{by}, got {listed}; {advice}."
        raise ArgumentError.of("source", " ".join([message, *notes]))
    for key in groups.keys() - lacking.keys():
        groups[key] = [by_system[key][name] for name in systems]
    for key in lacking:
        del groups[key]
    more = f" ({_ALL_EXCLUDED})" if len(lacking) > _MAX_LISTED else ""
    notes += [f"Items excluded because a system lacks them: {listed}{more}."] if lacking else []
    return [
        {
            **dict(zip([ITEM, *names], key, strict=True)),
            SYSTEM: recording.system,
            "file": recording.name,
            "reason": f"the item is not in {', '.join(absent)}",
        }
        for key, absent in lacking.items()
        for recording in by_system[key].values()
    ]


def _note_differences(groups: _Groups, names: Sequence[str], notes: list[str]) -> None:
    """Add a note on each column, other than the keys, in which the systems of a group differ."""
    columns = dict.fromkeys(name for group in groups.values() for recording in group for name in recording.columns)
    differing = [
        name
        for name in columns
        if not (name in names or name.startswith(_PREFIX))
        and any(len({_values(recording, [name]) for recording in group}) > 1 for group in groups.values())
    ]
    if differing:
        notes.append(f"Recordings of a pair differ in columns that are not keys: {some(differing, _MAX_LISTED)}.")


def _read_pairs(
    groups: _Groups, exclude: Callable[[], list[Mapping[str, Any]]], on_error: str, show: Progress, notes: list[str]
) -> list[Mapping[str, Any]]:
    """Exclude incomplete groups, set the ``take`` and text of every recording, and exclude unreadable recordings.

    Each file is read once. Returns the excluded recordings. Raises one error for all unreadable files, unless ``on_error`` is
    "skip".
    """
    one_of(on_error, "on_error", ("raise", "skip"))
    # A missing file is named as such, not as an incomplete item.
    missing = any(
        recording.take is None and not is_file(recording.path) for recording in chain.from_iterable(groups.values())
    )
    problems: dict[str, StoreError | AudioError] = {}
    by_file: dict[Path, list[Recording]] = {}
    for recording in chain.from_iterable(groups.values()):
        if recording.take is None:
            by_file.setdefault(recording.path, []).append(recording)
    excluded = [] if missing else exclude()
    for path, recordings in show(by_file.items(), "files", total=len(by_file)):
        for recording in recordings:
            recording.text = recording.text or ("" if recording.is_interval else sidecar(path))
        spans = [(recording.start, recording.end, recording.text) for recording in recordings]
        try:
            takes = intervals_of(path, spans)
        except (StoreError, AudioError) as error:
            problems[path_text(path)] = error
            continue
        for recording, (take, clip) in zip(recordings, takes, strict=True):
            recording.take, recording.rate, recording.duration_s = take, clip.rate, clip.duration
            recording.loudness, recording.digest = _loudness_or_none(clip), clip.sha256
    if problems and on_error == "raise":
        raise unreadable(problems, len(by_file))
    differing = []
    for key, group in list(groups.items()):
        groups[key] = [recording for recording in group if recording.take is not None]
        texts = list(dict.fromkeys(" ".join(recording.text.split()) for recording in groups[key] if recording.text))
        if len(texts) > 1:
            differing.append(f"{texts[0]!r} and {texts[1]!r} of item {', '.join(key)!r}")
        for recording in groups[key]:  # recordings of an item share the text that some of them have
            recording.text = texts[0] if texts else ""
        if not groups[key]:
            del groups[key]
    if differing:
        listed = some(differing, _MAX_LISTED, "; ")
        raise ArgumentError.of("text", f"must be the same in all recordings of an item, got {listed}")
    if not problems:
        return excluded
    reasons = reasons_of(problems)
    listed = some([f"{Path(file).name} ({reason})" for file, reason in reasons.items()], _MAX_LISTED)
    notes.append(f"{len(reasons)} of {len(by_file)} files cannot be read ({_ALL_EXCLUDED}): {listed}.")
    excluded = [record for record in excluded if record["file"] not in reasons]
    return [*excluded, *({"file": file, "reason": reason} for file, reason in reasons.items()), *exclude()]


def _loudness_or_none(clip: Clip) -> float | None:
    try:
        return round(loudness(Subject(clip)), 2)
    except Undefined:
        return None


def _take(recording: Recording) -> Take:
    if recording.take is None:
        raise ArgumentError.of("source", f"{recording.name} was not read")
    return recording.take


def _recognize(groups: _Groups, tools: Tools, show: Progress) -> None:
    unknown = [group for group in groups.values() if not group[0].text]
    if not unknown:
        return
    recognizer, name = recognizer_of(tools), f"recognized by {recognizer_name(tools)}"
    for group in show(unknown, "texts", total=len(unknown)):
        clip = _take(group[0]).clip()
        text = recognizer.recognise(clip.samples, clip.rate)
        for recording in group:
            recording.text, recording.take = text, _take(recording).noted(f"Its text was {name}.")
            recording.columns["text_by"] = name
    for group in groups.values():
        for recording in group:
            recording.columns.setdefault("text_by", "given")


def _numeric_columns(recordings: Iterable[Recording]) -> dict[str, type[int | float]]:
    """Return the types of columns in which every value is the text of a number without leading zeros, as in a CSV file."""
    cells = {(name, value) for recording in recordings for name, value in recording.columns.items()}
    texts = {name for name, value in cells if not (isinstance(value, str) and _NUMBER.fullmatch(value))}
    fractions = {name for name, value in cells if not str(value).lstrip("-").isdecimal()}
    return {name: float if name in fractions else int for name, _ in cells if name not in texts}


def _rows(
    groups: _Groups, names: Sequence[str], systems: Sequence[str]
) -> tuple[tuple[Column, ...], tuple[TakeRow, ...]]:
    """Return the key columns, and the rows in their order."""
    recordings = list(chain.from_iterable(groups.values()))
    digests = {
        name: [_take(recording).digest for recording in recordings if recording.system == name] for name in systems
    }
    fingerprints = {name: f"files:{digest_of(' '.join(listed).encode())[:32]}" for name, listed in digests.items()}
    key_values: dict[tuple[str, str], Any] = {}
    numeric = _numeric_columns(recordings)
    rows: list[TakeRow] = []
    counts = Counter[tuple[str, str]]()
    for recording in recordings:
        system, text = recording.system, recording.text or UNKNOWN_TEXT
        labels = dict(zip(names, _values(recording, names), strict=True))
        # The values 1 in one source and "1" in another are the same key.
        values = {
            name: key_values.setdefault((name, label), recording.columns.get(name, label))
            for name, label in labels.items()
        }
        keys = {REPEAT: 0, ITEM: recording.item, **values, SYSTEM: system}
        labels = {REPEAT: "0", ITEM: recording.item, **labels, SYSTEM: system}
        columns = {
            name: numeric[name](value) if name in numeric else value
            for name, value in recording.columns.items()
            if name not in keys
        }
        columns[FILE_LOUDNESS] = recording.loudness
        # Items may share a text; their takes are repeats of the text's call.
        call, repeat, fingerprint = _take(recording).call.replace(text=text), counts[system, text], fingerprints[system]
        counts[system, text] += 1
        take = replace(_take(recording), call=call, backend=system, fingerprint=fingerprint, repeat=repeat)
        rows.append(
            TakeRow(keys, labels, call, take, columns={"text": text, **columns}, duration_s=recording.duration_s)
        )
    column_names = (ITEM, *(name for name in names if name != REPEAT), SYSTEM, REPEAT)
    key_columns = tuple(Column.of_rows(name, rows) for name in column_names)
    ranks = {column.name: {label: rank for rank, label in enumerate(column.labels)} for column in key_columns}
    rows.sort(key=lambda row: [ranks[name][row.labels[name]] for name in column_names])
    return key_columns, tuple(rows)


def _note_oddities(groups: _Groups) -> list[str]:
    """Return notes on the takes of each system, with the files concerned, and on differences in level and sample rate."""
    files: dict[tuple[str, str], list[str]] = {}
    levels: dict[str, list[float]] = {}
    rates: dict[str, set[int]] = {}
    for recording in chain.from_iterable(groups.values()):
        rates.setdefault(recording.system, set()).add(recording.rate)
        if recording.loudness is not None:
            levels.setdefault(recording.system, []).append(recording.loudness)
        for note in _take(recording).notes:
            files.setdefault((recording.system, note.partition(":")[0].rstrip(".")), []).append(_take(recording).source)
    more = ' (all by frame(also=["source", "notes"]))'
    notes = [
        f'{system}: note on {len(listed)} recording{"s" * (len(listed) > 1)}, "{note}": '
        f"{some(listed, _MAX_LISTED)}{more * (len(listed) > _MAX_LISTED)}."
        for (system, note), listed in files.items()
        if not note.startswith("Its text")
    ]
    same = [
        f"{', '.join(key)} ({' = '.join(listed)})"
        for key, group in groups.items()
        for listed in _systems_by(lambda recording: recording.digest, group)
    ]
    if same:
        notes.append(f"Recordings of different systems have identical samples: {some(same, _MAX_LISTED)}.")
    medians = {system: statistics.median(values) for system, values in levels.items()}
    if medians and max(medians.values()) - min(medians.values()) > _NOTED_DIFFERENCE_DB:
        listed = ", ".join(f"{system} {level:.1f} LUFS" for system, level in medians.items())
        notes.append(
            f"The files differ in loudness, which is matched in each pair; medians (column {FILE_LOUDNESS}): {listed}."
        )
    if len(set(chain.from_iterable(rates.values()))) > 1:
        listed = ", ".join(f"{system} {'/'.join(map(str, sorted(values)))} Hz" for system, values in rates.items())
        notes.append(f"The files differ in sample rate, and each is measured at its own rate: {listed}.")
    return notes


def _systems_by(value: Callable[[Recording], str], recordings: Iterable[Recording]) -> list[list[str]]:
    """Group systems by a value of their recordings other than ""; return the groups of several systems."""
    systems: dict[str, dict[str, None]] = {}
    for recording in recordings:
        systems.setdefault(value(recording), {})[recording.system] = None
    return [list(listed) for shared, listed in systems.items() if shared and len(listed) > 1]


_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
# Fields of a take that result from its call.
_RESULTS: Final = frozenset(
    "device host seed_used repeat first_audio_s total_s chunks bytes cached created similarity notes digest key".split()
)


@answers(**dict.fromkeys(("sr", "rate", "sample_rate"), "vl.load(path).resample(16000)"))
def load(path: str | Path) -> Any:
    """Load a run folder as a TakeTable, or a sound file as a Clip.

    Args:
        path: a folder written by a sweep, a recording, a cache or ``TakeTable.save``, or its run.jsonl; or a sound file.

    Returns:
        TakeTable: for a folder. Damaged lines are excluded, with a note. If the folder has takes of several sweeps, the
        fields in which the sweeps differ become key columns, with a note. ``table.run`` has versions, hardware, backends
        and problems.
        Clip: for a sound file.

    Raises:
        StoreError: the sound file cannot be read, the folder has no run, the run has a newer version, or reference audio of
            a take is missing.
        AudioError: the sound file is damaged.
    """
    path = Path(path)
    return load_file(path)[1] if path.suffix.lower() in SUFFIXES and not path.is_dir() else run_table(read_run(path))


def run_table(run: Run) -> TakeTable:
    """Create the table of a run, with the key columns of the sweep or table that wrote it.

    If the lines of the run have no labels, as in a cache, the key columns are the text and all fields that differ between
    takes.
    """
    fields = [take_row(take) for take in run.takes]
    saved = _saved_table(run.about)
    names = list(saved.pop("columns", dict.fromkeys(chain.from_iterable(run.labels))))
    names = [name for name in names if name not in {"cell", REPEAT}] or list(
        dict.fromkeys(["text", *_differing(fields)])
    )
    pairs = list(zip(run.takes, run.labels, fields, strict=True))
    mixed: tuple[str, ...] = ()
    if "sweep" in run.about:
        # A take that is in two sweeps has a line of each.
        pairs = list({(pair[0].key, *_values_of(pair, names)): pair for pair in pairs}.values())
        confounded = _confounded(pairs, names)
        if confounded or len({frozenset(labels.keys() - {"cell"}) for _, labels, _ in pairs}) > 1:
            more = f", which also differ in {', '.join(confounded)}" if confounded else ""
            mixed = (f"The folder has takes of several sweeps{more}.",)
        names += confounded
    rows = [
        _row(TakeRow({}, {}, take.call, take, cached=take.cached), {**record, **labels}, names)
        for take, labels, record in pairs
    ]
    for failed in run.failures:
        values = take_row(failed.take) | {name: take_value(failed.take, name) for name in names}
        rows.append(_row(TakeRow({}, {}, failed.call, error=failed.failure.error()), values, names))
    columns = tuple(Column.of_rows(name, rows) for name in (*names, REPEAT))
    notes = (*saved.pop("notes", ()), *run.notes, *mixed, *device_notes(rows))
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
    return [name for name in names if len({repr(record.get(name)) for record in fields}) > 1]


_Line = tuple[Take, Mapping[str, Any], Mapping[str, Any]]
"""A take of a run, its labels, and its record."""


def _values_of(line: _Line, names: Iterable[str]) -> tuple[str, ...]:
    _, labels, record = line
    return tuple(repr(labels.get(name, record.get(name))) for name in (*names, REPEAT))


def _confounded(lines: Sequence[_Line], names: Sequence[str]) -> list[str]:
    """List the fields in which the sweeps of a folder differ although they are not axes."""
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    backends: dict[Any, list[Mapping[str, Any]]] = {}
    for line in lines:
        cells.setdefault(_values_of(line, names), []).append(line[2])
        backends.setdefault(line[1].get("backend"), []).append(line[2])
    fields = [name for records in cells.values() if len(records) > 1 for name in _differing(records)]
    # Fields that an axis sets: a placeholder the text, a format the sample rate, a recording the voice.
    placeholders = set(names) - {name for _, _, record in lines for name in record}
    sets = {"format": "sample_rate", "references": "reference_id", "reference_id": "references"}
    explained = {"seed", *names, *(sets[name] for name in names if name in sets), *(["text"] if placeholders else ())}
    differing = [name for records in backends.values() for name in _differing(records)]
    fields += [name for name in differing if not {name, name.partition(".")[0]} & explained]
    return list(dict.fromkeys(name for name in fields if name not in names))


def _saved_table(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description that ``TakeTable.save`` wrote; empty if another writer wrote the run."""
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
