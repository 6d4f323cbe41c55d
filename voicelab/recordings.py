"""Recordings in files: where they lie, what is said in them, takes of them; and takes laid out as other tools read them."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicelab.audio.formats import channels_of
from voicelab.call import Call
from voicelab.clip import UNKNOWN_TEXT, Clip, Take
from voicelab.errors import ArgumentError, AudioError, StoreError
from voicelab.storage import digest_of
from voicelab.tables import restore_texts

SUFFIXES: Final = frozenset(
    ".wav .flac .mp3 .ogg .oga .opus .m4a .mp4 .aac .aif .aiff .aifc .au .caf .webm .mka .wma .amr .sph .w64 .wv".split()
)
"""What files of sound end in, where a folder is looked through."""

_SIDECARS: Final = (".txt", ".lab", ".normalized.txt")
_FIELD: Final = re.compile(r"\{(\w+)\}")
# What tables call the file, and what is said in it.
_PATH: Final = ("path", "file", "file_name", "filename", "audio")
_TEXT: Final = ("text", "transcription", "transcript", "sentence")
_TABLES: Final = (".csv", ".tsv", ".jsonl")
_SYSTEM: Final = ("system", "backend")
_FULL: Final = 0.999
_SILENT: Final = 1e-4
_ROUNDED_S: Final = 0.01

REPEAT: Final = "repeat"
"""The column that numbers several recordings of one item by one system."""


def sounds_in(folder: str | Path) -> list[Path]:
    """Return the files of sound in a folder and those below it, sorted. Raises StoreError where there is none."""
    listed = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not listed:
        raise StoreError(f"{folder} has no files of sound" if Path(folder).is_dir() else f"there is no folder {folder}")
    return listed


def sidecar(path: Path) -> str:
    """Return what a file beside a recording says is said in it, NAME.txt or NAME.lab; "" where there is none."""
    for beside in map(path.with_suffix, _SIDECARS):
        if beside.is_file():
            return " ".join(read_text(beside).split())
    return ""


def file_take(path: Path) -> Take:
    """Return the take that a file is of, with the words beside it. Raises what ``parts_of`` raises."""
    (take,) = parts_of(path, [(0.0, None, sidecar(path))])
    return take


def parts_of(path: Path, parts: Sequence[tuple[float, float | None, str]]) -> tuple[Take, ...]:
    """Return takes of parts of a file of any format that FFmpeg reads: start and end in seconds, and the text of each.

    Their notes say what is odd: silent, clipped, narrow. A whole file stays where it is; a part is held as a WAV in 16 bit.
    Raises StoreError when it cannot be read, AudioError, which names it, for damage or a part beyond its end.
    """
    data = bytes_of(path)
    try:
        whole, count = Clip.load(data), channels_of(data)
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from error
    averaged = [f"It has {count} channels, which were averaged."] if count > 1 else []
    created = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    takes = []
    for start, end, text in parts:
        if start or end is not None:
            if start >= whole.duration or (end is not None and end > whole.duration + _ROUNDED_S):
                raise AudioError(f"{path}: {start} to {end} s is beyond its {whole.duration:.2f} s")
            clip = whole.slice(start, end)
            sound: bytes | Callable[[], bytes] = (wav := clip.to_bytes("wav"))
            digest = digest_of(wav)
            source = f"{path.name}#t={start:g}" + ("" if end is None else f",{end:g}")
            notes = [*averaged, *_notes(clip)]
        else:
            digest = digest_of(data)
            sound, source = partial(_unchanged, path, digest), path.name
            notes = [*averaged, *_notes(whole), *whole.loading_notes]
        call = Call.of(text.strip() or UNKNOWN_TEXT, model="recorded")
        noted = tuple(notes)
        takes.append(Take(call, sound, device="file", created=created, digest=digest, source=source, notes=noted))
    return tuple(takes)


def clip_take(clip: Clip, source: str) -> Take:
    """Return a take of a clip that a file called ``source`` had; its words are not known."""
    call = Call.of(UNKNOWN_TEXT, model="recorded")
    return Take(call, clip.to_bytes("wav"), device="file", source=source, notes=tuple(_notes(clip)))


def bytes_of(path: Path) -> bytes:
    """Return what is in a file. Raises StoreError, which names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error


def read_text(path: Path) -> str:
    """Return what is written in a file. Raises StoreError, which names it."""
    try:
        return bytes_of(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is no text in UTF-8: {error}") from error


def _unchanged(path: Path, digest: str) -> bytes:
    data = bytes_of(path)
    if digest_of(data) != digest:
        raise StoreError(f"{path} has changed since it was collected")
    return data


def _notes(clip: Clip) -> list[str]:
    notes = []
    if clip.peak < _SILENT:
        notes.append("It is silent.")
    full = np.abs(clip.samples) >= _FULL
    # One sample at full scale is a peak; three in a row were cut off.
    if clipped := int((full[2:] & full[1:-1] & full[:-2]).sum()):
        notes.append(f"It is clipped: {clipped + 2} samples or more are at full scale.")
    if clip.rate < 16_000:
        notes.append(f"It has {clip.rate} samples a second, so nothing above {clip.rate / 2:g} Hz.")
    return notes


@dataclass(slots=True)
class Recording:
    """A recording as its source describes it.

    ``columns`` has its values in the further columns of a table or fields of a pattern; ``fields`` the names of the latter.
    ``take`` is filled when the file is read.
    """

    path: Path
    system: str
    item: str
    text: str = ""
    start: float = 0.0
    end: float | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    take: Take | None = None

    def __post_init__(self) -> None:
        self.system, self.item = key_of(self.system), key_of(self.item)
        self.columns = {
            name: key_of(value) if isinstance(value, str) else value for name, value in self.columns.items()
        }

    @property
    def name(self) -> str:
        """The path, and of an interval its start."""
        return f"{self.path} from {self.start:g} s" if self.is_part else str(self.path)

    @property
    def is_part(self) -> bool:
        """Whether it is an interval of its file."""
        return bool(self.start) or self.end is not None


def recordings_of(source: Any, system: str = "") -> list[Recording]:
    """Return the recordings that ``source`` names; ``vl.collect`` documents the sources. Raises StoreError, ArgumentError."""
    if isinstance(source, Mapping):
        return [row for name, one in source.items() for row in recordings_of(one, str(name))]
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable):
            raise ArgumentError.of("source", f"a pattern, folder, table or list of paths, not {source!r}")
        listed = source.to_dict("records") if hasattr(source, "to_dict") else source
        return _table([one if isinstance(one, Mapping) else {"path": one} for one in listed], Path(), system)
    text, path = str(source), Path(source)
    if _FIELD.search(text):
        return _matching(text, system)
    if path.suffix.lower() in _TABLES:
        return _table(_read_table(path), path.parent, system)
    if not path.is_dir():
        return [Recording(path, system or path.parent.name, path.stem)]
    for name in ("metadata.csv", "metadata.jsonl"):
        if (path / name).is_file():
            return _table(_read_table(path / name), path, system or path.resolve().name)
    files = sounds_in(path)
    if system or any(file.parent == path for file in files):
        system = system or path.resolve().name
        return [Recording(file, system, file.relative_to(path).with_suffix("").as_posix()) for file in files]
    folders = sorted({path / file.relative_to(path).parts[0] for file in files})
    return [row for folder in folders for row in recordings_of(folder, folder.name)]


def _matching(pattern: str, system: str) -> list[Recording]:
    """Return the recordings whose paths match a pattern such as ``"samples/{system}/{item}.wav"``; ``*`` is a wildcard."""
    parts = _FIELD.split(Path(pattern).as_posix())
    expression, seen = "", set[str]()
    for number, part in enumerate(parts):
        if number % 2 == 0:
            expression += re.escape(part).replace(r"\*", "[^/]*")
        else:
            expression += f"(?P={part})" if part in seen else f"(?P<{part}>[^/]+)"
            seen.add(part)
    rows = []
    literal = list(itertools.takewhile(lambda part: not set(part) & set("{*"), Path(pattern).parts))
    rest = Path(pattern).parts[len(literal) :]
    for file in sorted(Path(*literal).glob(_FIELD.sub("*", "/".join(rest)))):
        matched = re.fullmatch(expression, file.as_posix())
        if matched and file.suffix.lower() in SUFFIXES and file.is_file():
            columns = matched.groupdict()
            name = columns.pop("system", system or file.parent.name)
            joined = " ".join(value for key, value in columns.items() if key != REPEAT)
            item, text = columns.pop("item", joined or file.stem), columns.pop("text", "")
            rows.append(Recording(file, name, item, text, columns=columns, fields=tuple(columns)))
    if not rows:
        raise StoreError(f"no file of sound fits {pattern}")
    return rows


def _read_table(path: Path) -> list[Any]:
    import pandas as pd

    try:
        if path.suffix.lower() == ".jsonl":
            return [dict(json.loads(line)) for line in read_text(path).splitlines() if line.strip()]
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        table = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)
        # In tables of other programs a quote is part of the text.
        return (restore_texts(table) if path.name == "takes.csv" else table).to_dict("records")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _table(rows: Iterable[Mapping[str, Any]], folder: Path, system: str) -> list[Recording]:
    """Return the recordings of a table's rows; empty cells are left out."""
    listed = []
    for number, row in enumerate(rows, start=1):
        there = {str(key): value for key, cell in row.items() if (value := _cell(cell)) is not None}
        path = next((there.pop(name) for name in _PATH if name in there), None)
        if path is None:
            raise ArgumentError.of("source", f"row {number} names no file: give a column {', '.join(_PATH[:3])}")
        text = next((str(there.pop(name)) for name in _TEXT if name in there), "")
        file = folder / str(path)
        span: dict[str, float] = {}
        try:
            span |= {name: float(there.pop(name)) for name in ("start", "end") if name in there}
        except ValueError as error:
            raise ArgumentError.of("source", f"row {number}: start and end are seconds: {error}") from None
        between = f" {span.get('start', 0):g}" if span else ""
        item = next((there.pop(name) for name in ("item", "id") if name in there), file.stem + between)
        by = next((there.pop(name) for name in _SYSTEM if name in there), system or file.resolve().parent.name)
        listed.append(Recording(file, by, item, text, span.get("start", 0.0), span.get("end"), there))
    return listed


def key_of(value: str | float) -> str:
    """Return the text of a key: in Unicode's composed form (NFC), and 2 for 2.0."""
    integral = isinstance(value, float) and value.is_integer()
    return unicodedata.normalize("NFC", str(int(value) if integral else value))


def _cell(value: Any) -> Any:
    """Return a cell of a table as a string, a number or a path; None where it is empty."""
    value = value.item() if isinstance(value, np.generic) else value
    empty = value is None or value == "" if isinstance(value, str | None) else str(value) in {"nan", "NaT", "<NA>"}
    return None if empty else value if isinstance(value, str | int | float) else str(value)
