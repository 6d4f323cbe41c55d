"""Audio that was not made here: recordings in folders, tables and tests, as systems that are compared like any others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from voicelab.asr.recognizers import Recognizer
from voicelab.clip import UNKNOWN_TEXT, Take
from voicelab.errors import ArgumentError, check_options, suggestion
from voicelab.listening.design import REFERENCE
from voicelab.listening.webmushra import import_webmushra
from voicelab.metrics import Metric, Tools, available, check_measuring
from voicelab.metrics.words import recognizer_name, recognizer_of
from voicelab.recordings import REPEAT, Recording, clip_take, key_of, parts_of, recordings_of, sidecar
from voicelab.stats.estimate import one_of
from voicelab.storage import digest_of
from voicelab.sweeps.axes import Axis, Cell, Grid, Job
from voicelab.sweeps.result import TAKE_COLUMNS, SweepResult
from voicelab.sweeps.run import Outcome
from voicelab.sweeps.systems import SystemComparison

COLLECTED_METRICS: Final = ("duration", "word_rate", "pause_time", "spectral_tilt", "snr")
"""What collected systems are compared in when nothing else is said: quick ones, since there may be thousands of files."""

# Columns that tables and exports write themselves.
_RESERVED_NAMES: Final = frozenset(
    [*TAKE_COLUMNS, *"system item text backend cell sent file file_name path undefined recognizer".split()]
) - {REPEAT}
_PREFIX: Final = "source_"
_MISSING_VALUE: Final = "(none)"
_NAMED: Final = 5

Shown = Callable[..., Iterable[Any]]
"""Shows how far something is, as ``vl.progress`` does: called with what is gone through, a word, and ``total=``."""


def collect(
    source: Any,
    *,
    metrics: Sequence[str | Metric] = COLLECTED_METRICS,
    keys: Sequence[str] | None = None,
    root: str | Path | None = None,
    transcribe: bool | Recognizer = False,
    missing: Literal["leave out", "refuse"] = "leave out",
    progress: Shown | None = None,
    **options: Any,
) -> SystemComparison:
    """Collect recordings of one or several systems; compare, hear, measure and test them like those of ``compare_systems``.

        vl.collect("samples/{system}/{speaker}/{item}.wav")

    Args:
        source: a pattern with fields in braces, of which ``system`` and ``item`` say what is compared and every other one
            is a column; a folder of folders, one for each system; ``{"ours": "folder", "theirs": …}``; a table (CSV,
            TSV, JSONL, DataFrame, list of mappings) with the columns ``path``, ``system``, ``item``, ``text``, ``start`` and
            ``end`` (seconds: a part of a long file) and others; a folder with metadata.csv or metadata.jsonl, as Hugging
            Face's audiofolder; webMUSHRA's YAML; a list of paths, whose folders are the systems.
        metrics: what is measured of each, as for ``vl.measure``.
        keys: the columns that pair recordings of several systems, beside ``item`` and ``repeat``. When not given: all fields
            of a pattern; of a table the columns that vary within an item of a system. Other columns describe a recording.
        root: of webMUSHRA, the folder below which its files lie; that of the YAML when not given.
        transcribe: whether words that neither the table nor a file NAME.txt or NAME.lab beside the recording says are
            recognised, from the first system's recording of an item; or by whom. The column ``text_by`` then names who
            listened: word errors against such a text compare ears, not voices.
        missing: of an item that some system lacks: "leave out" for all, and say so in ``notes``; or "refuse".
        progress: ``vl.progress``, to see how far it is.
        **options: what ``vl.measure`` takes besides: ``jobs``, ``tools``.

    Every file is read and decoded once, by the formats that FFmpeg reads; what is odd about it is in its take's notes, and
    in the comparison's. Raises StoreError for what cannot be read, AudioError for a damaged file, which it names,
    ArgumentError where two recordings have the same keys, an item has two texts, or no item is left; MissingExtra for a
    metric that is not installed.
    """
    check_options(options, ("jobs", "tools"))
    metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    check_measuring(metrics, **options)
    one_of(missing, "missing", ("leave out", "refuse"))
    show = progress or (lambda items, *_, **__: items)
    is_yaml = isinstance(source, str | Path) and Path(source).suffix.lower() in {".yaml", ".yml"}
    rows = _webmushra(Path(source), root) if is_yaml else recordings_of(source)
    notes = _rename(rows, {*available(), *(metric.name for metric in metrics if isinstance(metric, Metric))})
    names = _key_columns(rows, keys, notes)
    systems = list(dict.fromkeys(row.system for row in rows))
    units = _units(rows, names)
    _even(units, names, systems, missing, notes)
    _differing(units, names, notes)
    rows = [row for several in units.values() for row in several]
    _read(rows, show)
    for key, several in units.items():
        _share_text(", ".join(key), several)
    if transcribe:
        _recognise(units, Tools(recognizer=None if transcribe is True else transcribe), show)
    if progress is not None:
        options["progress"] = progress
    notes += _oddities(rows)
    return SystemComparison(_result(units, names, systems), metrics, tuple(notes), options)


def _webmushra(path: Path, root: str | Path | None) -> list[Recording]:
    test = import_webmushra(path, path.parent if root is None else root)
    more = {item: {REFERENCE: clip} for item, clip in test.references.items()}
    return [
        Recording(path, system, item, take=clip_take(clip, f"{item}-{system}.wav"))
        for item, clips in test.items.items()
        for system, clip in {**clips, **more.get(item, {})}.items()
    ]


_Units = dict[tuple[str, ...], list[Recording]]
"""The recordings that a listener may compare, by item and key columns: after ``_even`` one of each system, in their order."""


def _rename(rows: Sequence[Recording], measured: Iterable[str]) -> list[str]:
    """Rename columns that have the name of a metric or of a column that tables write; return a note of it."""
    reserved = {name for row in rows for name in row.columns} & {*_RESERVED_NAMES, *measured}
    for row in rows:
        row.columns = {_renamed(name, reserved): value for name, value in row.columns.items()}
        row.fields = tuple(_renamed(name, reserved) for name in row.fields)
    listed = ", ".join(f"{name} is {_renamed(name, reserved)}" for name in sorted(reserved))
    return [f"Columns of the source with names that are in use are renamed: {listed}."] if reserved else []


def _renamed(name: str, reserved: Iterable[str]) -> str:
    return f"{_PREFIX}{name}" if name in reserved else name


def _key_columns(rows: Sequence[Recording], keys: Sequence[str] | None, notes: list[str]) -> list[str]:
    """Return the columns that pair recordings beside ``item``; add a note where the values of a table decide which.

    Recordings are paired by all of these columns, so that a pair differs in nothing but the system.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row.columns))
    repeat = [REPEAT] * (REPEAT in columns)
    if keys is not None:
        names = [name for name in ([keys] if isinstance(keys, str) else keys) if name not in {"system", "item"}]
        names = [name if name in columns else _renamed(name, [name]) for name in names]
        for name in names:
            if name not in columns:
                plain = name.removeprefix(_PREFIX)
                near = suggestion(plain, columns) or f"; there are {', '.join(columns) or 'none'}"
                raise ArgumentError.of("keys", f"must be columns, got {plain!r}{near}")
        return list(dict.fromkeys([*names, *repeat]))
    fields = {name for row in rows for name in row.fields}
    names = [name for name in columns if name in fields or name == REPEAT]
    alike: dict[tuple[str, ...], list[Recording]] = {}
    for row in rows:
        alike.setdefault((row.system, row.item, *_values(row, names)), []).append(row)
    described = [name for name in columns if not name.startswith(_PREFIX)]  # others are measurements
    varying = {
        name for group in alike.values() for name in described if len({_values(row, [name]) for row in group}) > 1
    }
    if varying and len({row.system for row in rows}) > 1:
        listed = ", ".join(["item", *(name for name in columns if name in varying or name in names)])
        notes.append(f"Recordings are paired by {listed}, which vary within a system; keys=… chooses the columns.")
    return [name for name in columns if name in varying or name in names]


def _values(row: Recording, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(key_of(row.columns[name]) if name in row.columns else _MISSING_VALUE for name in names)


def _units(rows: Iterable[Recording], names: Sequence[str]) -> _Units:
    """Return the recordings by item and keys. Raises ArgumentError, which names both, for two of one system in a unit."""
    units: dict[tuple[str, ...], dict[str, Recording]] = {}
    for row in rows:
        key = (row.item, *_values(row, names))
        present = units.setdefault(key, {}).setdefault(row.system, row)
        if present is not row:
            keys = ", ".join(f"{name} {value!r}" for name, value in zip(["item", *names], key, strict=True))
            message = f"{present.name} and {row.name} are both {keys} of system {row.system!r}"
            raise ArgumentError.of("source", f"{message}; tell them apart by a field or column, such as {REPEAT}")
    return {key: list(by_system.values()) for key, by_system in units.items()}


def _even(units: _Units, names: Sequence[str], systems: Sequence[str], missing: str, notes: list[str]) -> None:
    """Leave out units that a system lacks, and add a note of them; order the others by system."""
    by_system = {key: {row.system: row for row in group} for key, group in units.items()}
    lacking = {
        key: absent for key, group in by_system.items() if (absent := [name for name in systems if name not in group])
    }
    listed = _some([f"{', '.join(key)} (not by {', '.join(absent)})" for key, absent in lacking.items()])
    if lacking and missing == "refuse":
        raise ArgumentError.of("missing", f"a system lacks what others have: {listed}")
    if len(lacking) == len(units):
        by = f" with the same {', '.join(names)}" if names else ""
        advice = f"keys=… chooses which columns pair recordings, now {', '.join(['item', *names])}" if names else ""
        advice = advice or "name items alike, or give a table"
        raise ArgumentError.of("source", f"no item is there of every system{by}: {listed}; {advice}")
    for key in units.keys() - lacking.keys():
        units[key] = [by_system[key][name] for name in systems]
    for key in lacking:
        del units[key]
    notes += [f"Left out, since a system lacks it: {listed}."] if lacking else []


def _differing(units: _Units, names: Sequence[str], notes: list[str]) -> None:
    """Add a note of the columns, other than keys, in which the systems of a unit differ."""
    columns = dict.fromkeys(name for several in units.values() for row in several for name in row.columns)
    differing = [
        name
        for name in columns
        if not (name in names or name.startswith(_PREFIX))
        and any(len({_values(row, [name]) for row in group}) > 1 for group in units.values())
    ]
    if differing:
        notes.append(f"Recordings of a pair differ in columns that are not keys: {_some(differing)}.")


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _read(rows: Sequence[Recording], show: Shown) -> None:
    """Give each recording its ``take``: every file is read once, however many parts of it there are."""
    by_file: dict[Path, list[Recording]] = {}
    for row in rows:
        if row.take is None:
            by_file.setdefault(row.path, []).append(row)
    for path, parts in show(by_file.items(), "files", total=len(by_file)):
        for row in parts:
            row.text = row.text or ("" if row.is_part else sidecar(path))
        spans = [(row.start, row.end, row.text) for row in parts]
        for row, take in zip(parts, parts_of(path, spans), strict=True):
            row.take = take


def _take(row: Recording) -> Take:
    if row.take is None:
        raise ArgumentError.of("source", f"{row.name} was not read")
    return row.take


def _share_text(unit: str, rows: Sequence[Recording]) -> None:
    """Give all recordings of a unit the text that some of them have. Raises ArgumentError where they have several."""
    texts = list(dict.fromkeys(" ".join(row.text.split()) for row in rows if row.text))
    if len(texts) > 1:
        raise ArgumentError.of("text", f"the recordings of item {unit!r} say {texts[0]!r} and {texts[1]!r}")
    for row in rows:
        row.text = texts[0] if texts else ""


def _recognise(units: _Units, tools: Tools, show: Shown) -> None:
    unknown = [group for group in units.values() if not group[0].text]
    if not unknown:
        return
    ears, by = recognizer_of(tools), f"recognised by {recognizer_name(tools)}"
    for group in show(unknown, "texts", total=len(unknown)):
        clip = _take(group[0]).clip()
        text = ears.recognise(clip.samples, clip.rate)
        for row in group:
            row.text, row.take = text, _take(row).noted(f"Its text was {by}.")
            row.columns["text_by"] = by
    for group in units.values():
        for row in group:
            row.columns.setdefault("text_by", "given")


def _result(units: _Units, names: Sequence[str], systems: Sequence[str]) -> SweepResult:
    rows = [row for several in units.values() for row in several]
    digests = {name: [_take(row).digest for row in rows if row.system == name] for name in systems}
    prints = {name: f"files:{digest_of(' '.join(listed).encode())[:32]}" for name, listed in digests.items()}
    key_values: dict[tuple[str, str], Any] = {}
    outcomes: list[Outcome] = []
    counts = Counter[tuple[str, str]]()
    for row in rows:
        name, text = row.system, row.text or UNKNOWN_TEXT
        call = _take(row).call.replace(text=text)
        keys = dict(zip(names, _values(row, names), strict=True))
        # 1 of one source and "1" of another are the same key.
        same = {key: key_values.setdefault((key, keys[key]), row.columns[key]) for key in names if key in row.columns}
        labels = {**keys, "text": row.item, "backend": name}
        values = {"text": text, "backend": name, "item": row.item, **row.columns, **same}
        cell = Cell(len(outcomes), MappingProxyType(labels), MappingProxyType(values), call, name)
        # Two items may say the same words: their takes are the first, the second … of that call.
        take = replace(_take(row), call=call, backend=name, fingerprint=prints[name], repeat=counts[name, text])
        counts[name, text] += 1
        outcomes.append(Outcome(Job(cell, 0, None), take))
    cells = tuple(outcome.job.cell for outcome in outcomes)
    axes = tuple(_axis(name, cells) for name in ("text", *names, "backend"))
    return SweepResult(Grid(axes, cells, 1, (0,)), tuple(outcomes), "done")


def _axis(name: str, cells: Iterable[Cell]) -> Axis:
    values = {cell.labels[name]: cell.values.get(name) for cell in cells}
    return Axis(name, tuple(values.values()), tuple(values))


def _oddities(rows: Sequence[Recording]) -> list[str]:
    """Return a sentence for everything that is odd about a system's recordings, with the first of them."""
    odd: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for note in _take(row).notes:
            odd.setdefault((row.system, note.partition(":")[0].rstrip(".")), []).append(_take(row).source)
    return [
        f"{system}: {len(files)} recording{'s' * (len(files) > 1)} noted, {note[0].lower()}{note[1:]}: {_some(files)}."
        for (system, note), files in odd.items()
        if not note.startswith("Its text")
    ]
