"""Audio that was not made here: recordings in folders, tables and tests, as systems that are compared like any others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from voicelab.clip import UNKNOWN_TEXT
from voicelab.errors import ArgumentError
from voicelab.experiments.files import clip_take, parts_of, rows_of, sidecar
from voicelab.experiments.listening.design import REFERENCE
from voicelab.experiments.listening.webmushra import import_webmushra
from voicelab.experiments.metrics import Metric, Tools
from voicelab.experiments.metrics.words import recognizer_name, recognizer_of
from voicelab.experiments.statistics.estimate import one_of
from voicelab.experiments.sweeps.axes import Axis, Cell, Grid, Job
from voicelab.experiments.sweeps.result import SweepResult
from voicelab.experiments.sweeps.run import Outcome
from voicelab.experiments.systems import SystemComparison
from voicelab.storage import digest_of
from voicelab.voices.transcripts import Recognizer

COLLECTED_METRICS: Final = ("duration", "word_rate", "pause_time", "spectral_tilt", "snr")
"""What collected systems are compared in when nothing else is said: quick ones, since there may be thousands of files."""

_OURS: Final = frozenset({"path", "system", "item", "text", "start", "end", "take"})
_NAMED: Final = 5

Shown = Callable[..., Iterable[Any]]
"""Shows how far something is, as ``vl.progress`` does: called with what is gone through, a word, and ``total=``."""


def collect(
    source: Any,
    *,
    metrics: Sequence[str | Metric] = COLLECTED_METRICS,
    root: str | Path | None = None,
    transcribe: bool | Recognizer = False,
    missing: Literal["leave out", "refuse"] = "leave out",
    progress: Shown | None = None,
    **options: Any,
) -> SystemComparison:
    """Collect recordings of one or several systems; compare, hear, measure and test them like those of ``compare_systems``.

        vl.collect("samples/{system}/{item}.wav")

    Args:
        source: a pattern with fields in braces, of which ``system`` and ``item`` say what is compared and every other one
            is a column; a folder of folders, one for each system; ``{"ours": "folder", "theirs": …}``; a table (CSV,
            TSV, JSONL, DataFrame, list of mappings) with the columns ``path``, ``system``, ``item``, ``text``, ``start`` and
            ``end`` (seconds: a part of a long file) and others; a folder with metadata.csv or metadata.jsonl, as Hugging
            Face's audiofolder; webMUSHRA's YAML; a list of paths, whose folders are the systems.
        metrics: what is measured of each, as for ``vl.measure``.
        root: of webMUSHRA, the folder below which its files lie; that of the YAML when not given.
        transcribe: whether words that neither the table nor a file NAME.txt or NAME.lab beside the recording says are
            recognised, from the first system's recording of an item; or by whom. The column ``text_by`` then names who
            listened: word errors against such a text compare ears, not voices.
        missing: of an item that some system lacks: "leave out" for all, and say so in ``notes``; or "refuse".
        progress: ``vl.progress``, to see how far it is.
        **options: what ``vl.measure`` takes besides: ``jobs``, ``tools``.

    Every file is read and decoded once, by the formats that FFmpeg reads; what is odd about it is in its take's notes, and
    in the comparison's. Raises StoreError for what cannot be read, AudioError for a damaged file, which it names,
    ArgumentError where an item has two texts, or nothing is left.
    """
    show = progress or (lambda items, *_, **__: items)
    is_yaml = isinstance(source, str | Path) and Path(source).suffix.lower() in {".yaml", ".yml"}
    rows = _webmushra(Path(source), root) if is_yaml else rows_of(source)
    items: _Items = {}
    for row in rows:
        items.setdefault(row["item"], []).append(row)
    systems = list(dict.fromkeys(row["system"] for row in rows))
    notes = _even(items, systems, missing)
    kept = [row for own in items.values() for row in own]
    _read(kept, show)
    for item, own in items.items():
        _share_text(item, own)
    if transcribe:
        _recognise(items, Tools(recognizer=None if transcribe is True else transcribe), show)
    if progress is not None:
        options["progress"] = progress
    return SystemComparison(_result(items, systems), tuple(metrics), (*notes, *_oddities(kept)), options)


def _webmushra(path: Path, root: str | Path | None) -> list[dict[str, Any]]:
    test = import_webmushra(path, path.parent if root is None else root)
    more = {item: {REFERENCE: clip} for item, clip in test.references.items()}
    return [
        {"system": system, "item": item, "take": clip_take(clip, f"{item}-{system}.wav")}
        for item, clips in test.items.items()
        for system, clip in {**clips, **more.get(item, {})}.items()
    ]


_Items = dict[str, list[dict[str, Any]]]
"""The rows of each item; after ``_even`` as many of each system, in the order of systems."""


def _even(items: _Items, systems: Sequence[str], missing: str) -> list[str]:
    """Leave out items that a system lacks, and recordings that others have not as many of; return what was left out."""
    one_of(missing, "missing", ("leave out", "refuse"))
    counts = {item: Counter(row["system"] for row in own) for item, own in items.items()}
    lacking = {item: names for item, own in counts.items() if (names := [one for one in systems if not own[one]])}
    listed = _some([f"{item} (not by {', '.join(names)})" for item, names in lacking.items()])
    if lacking and missing == "refuse":
        raise ArgumentError.of("missing", f"a system lacks what others have: {listed}")
    if len(lacking) == len(items):
        raise ArgumentError.of(
            "source", f"no item is there of every system: {listed}; name items alike, or give a table"
        )
    for item in lacking:
        del items[item]
    notes = [f"Left out, since a system lacks it: {listed}."] if lacking else []
    for item, own in items.items():
        fewest = min(counts[item].values())
        if fewest < max(counts[item].values()):
            notes.append(f"Of {item} there are {fewest} recordings of each system; further ones are left out.")
        items[item] = [row for name in systems for row in [row for row in own if row["system"] == name][:fewest]]
    return notes


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _read(rows: Sequence[dict[str, Any]], show: Shown) -> None:
    """Give each row its ``take``: every file is read once, however many parts of it there are."""
    by_file: dict[Path, list[dict[str, Any]]] = {}
    for row in rows:
        if "take" not in row:
            by_file.setdefault(Path(row["path"]), []).append(row)
    for path, parts in show(by_file.items(), "files", total=len(by_file)):
        for row in parts:
            row["text"] = row.get("text") or ("" if "start" in row else sidecar(path))
        spans = [(row.get("start", 0.0), row.get("end"), row["text"]) for row in parts]
        for row, take in zip(parts, parts_of(path, spans), strict=True):
            row["take"] = take


def _share_text(item: str, rows: Sequence[dict[str, Any]]) -> None:
    """Give all recordings of an item the text that some of them have. Raises ArgumentError where they have several."""
    texts = list(dict.fromkeys(" ".join(row["text"].split()) for row in rows if row.get("text")))
    if len(texts) > 1:
        raise ArgumentError.of("text", f"the recordings of item {item!r} say {texts[0]!r} and {texts[1]!r}")
    for row in rows:
        row["text"] = texts[0] if texts else ""


def _recognise(items: _Items, tools: Tools, show: Shown) -> None:
    unknown = [own for own in items.values() if not own[0]["text"]]
    if not unknown:
        return
    ears, by = recognizer_of(tools), f"recognised by {recognizer_name(tools)}"
    for own in show(unknown, "texts", total=len(unknown)):
        clip = own[0]["take"].clip()
        text = ears.recognise(clip.samples, clip.rate)
        for row in own:
            row |= {"text": text, "text_by": by, "take": row["take"].noted(f"Its text was {by}.")}
    for own in items.values():
        for row in own:
            row.setdefault("text_by", "given")


def _result(items: _Items, systems: Sequence[str]) -> SweepResult:
    texts = tuple(own[0]["text"] or UNKNOWN_TEXT for own in items.values())
    axes = (Axis("text", texts, tuple(items)), Axis("backend", tuple(systems), tuple(systems)))
    digests: dict[str, list[str]] = {name: [] for name in systems}
    for row in (row for own in items.values() for row in own):
        digests[row["system"]].append(row["take"].digest)
    prints = {name: f"files:{digest_of(' '.join(own).encode())[:32]}" for name, own in digests.items()}
    cells: list[Cell] = []
    outcomes: list[Outcome] = []
    counts = Counter[tuple[str, str]]()
    for (item, own), text in zip(items.items(), texts, strict=True):
        for place, row in enumerate(own):
            name, repeat = row["system"], place % (len(own) // len(systems))
            plain = {key: value for key, value in row.items() if key not in _OURS}
            call = row["take"].call.replace(text=text)
            if repeat == 0:
                values = {"text": text, "backend": name, "item": item, **plain}
                labels = {**{key: str(value) for key, value in plain.items()}, "text": item, "backend": name}
                cells.append(Cell(len(cells), MappingProxyType(labels), MappingProxyType(values), call, name))
            # Two items may say the same words: their takes are the first, the second … of that call.
            take = replace(row["take"], call=call, backend=name, fingerprint=prints[name], repeat=counts[name, text])
            counts[name, text] += 1
            outcomes.append(Outcome(Job(cells[-1], repeat, None), take))
    repeats = max(outcome.job.repeat for outcome in outcomes) + 1
    return SweepResult(Grid(axes, tuple(cells), repeats, (0,) * repeats), tuple(outcomes), "done")


def _oddities(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for everything that is odd about a system's recordings, with the first of them."""
    odd: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for note in row["take"].notes:
            odd.setdefault((row["system"], note.partition(":")[0].rstrip(".")), []).append(row["take"].source)
    return [
        f"{system}: {len(files)} recording{'s' * (len(files) > 1)} noted, {note[0].lower()}{note[1:]}: {_some(files)}."
        for (system, note), files in odd.items()
        if not note.startswith("Its text")
    ]
