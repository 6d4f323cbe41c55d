"""Recordings in files: their paths, texts and takes."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicelab.audio.formats import channels_of
from voicelab.call import Call
from voicelab.clip import UNKNOWN_TEXT, Clip, Take
from voicelab.errors import ArgumentError, AudioError, StoreError
from voicelab.storage import digest_of
from voicelab.tables import SUFFIXES as TABLES
from voicelab.tables import bytes_of, known_names, read_table, read_text, restore_texts

SUFFIXES: Final = frozenset(
    ".wav .flac .mp3 .ogg .oga .opus .m4a .mp4 .aac .aif .aiff .aifc .au .caf .webm .mka .wma .amr .sph .w64 .wv".split()
)
"""Suffixes of sound files in folders."""

_SIDECARS: Final = (".txt", ".lab", ".normalized.txt")
_FIELD: Final = re.compile(r"\{(\w+)\}")
# Names of the columns of the file and of its text.
_PATH: Final = ("path", "file", "file_name", "audio", "audio_file", "audio_path", "file_path", "wav", "wav_path")
_TEXT: Final = ("text", "transcription", "transcript", "sentence")
_SPAN: Final = ("start", "end")
_ITEM: Final = ("item", "id")
_SYSTEM: Final = ("system", "backend")
_COLUMNS: Final = (*_PATH, *_TEXT, *_SYSTEM, *_SPAN, *_ITEM, "repeat")
_FULL_SCALE: Final = 0.999
_SILENCE_PEAK: Final = 1e-4
_ROUNDING_S: Final = 0.01

REPEAT: Final = "repeat"
"""Column that numbers several takes of one item by one system."""


def sounds_in(folder: str | Path) -> list[Path]:
    """List the sound files in a folder and its subfolders, sorted. Raises StoreError if there are none."""
    listed = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not listed:
        raise StoreError(f"{folder} " + ("contains no sound files" if Path(folder).is_dir() else "does not exist"))
    return listed


def sidecar(path: Path) -> str:
    """Read the text of a recording from NAME.txt or NAME.lab next to it; "" without such a file."""
    for beside in map(path.with_suffix, _SIDECARS):
        if beside.is_file():
            return " ".join(read_text(beside).split())
    return ""


def file_take(path: Path) -> Take:
    """Read a file and its text as a take. Raises the errors of ``intervals_of``."""
    (take,) = intervals_of(path, [(0.0, None, sidecar(path))])
    return take


def intervals_of(path: Path, intervals: Sequence[tuple[float, float | None, str]]) -> tuple[Take, ...]:
    """Read intervals of a file (start and end in seconds, text), in any format of FFmpeg, as takes.

    Notes name silent, clipped and narrow-band audio. The audio of a complete file is read from it on access; an interval is
    held as WAV in 16 bit. Raises StoreError if the file cannot be read, AudioError for damage or an interval beyond its end.
    """
    data = bytes_of(path)
    try:
        recording, channels = Clip.load(data), channels_of(data)
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from error
    averaged = [f"It has {channels} channels, which were averaged."] if channels > 1 else []
    created = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    takes = []
    for start, end, text in intervals:
        if start or end is not None:
            if start >= recording.duration or (end is not None and end > recording.duration + _ROUNDING_S):
                raise AudioError(f"{path}: {start} to {end} s is beyond its {recording.duration:.2f} s")
            clip = recording.slice(start, end)
            sound: bytes | Callable[[], bytes] = (wav := clip.to_bytes("wav"))
            digest = digest_of(wav)
            source = f"{path.name}#t={start:g}" + ("" if end is None else f",{end:g}")
            notes = [*averaged, *_notes(clip)]
        else:
            digest = digest_of(data)
            sound, source = partial(_unchanged, path, digest), path.name
            notes = [*averaged, *_notes(recording), *recording.loading_notes]
        call = Call.of(text.strip() or UNKNOWN_TEXT, model="recorded")
        fields: dict[str, Any] = {"created": created, "digest": digest, "source": source, "notes": tuple(notes)}
        takes.append(Take(call, sound, device="file", **fields))
    return tuple(takes)


def clip_take(clip: Clip, source: str) -> Take:
    """Make the take of a clip from a file named ``source``, without a text."""
    call = Call.of(UNKNOWN_TEXT, model="recorded")
    return Take(call, clip.to_bytes("wav"), device="file", source=source, notes=tuple(_notes(clip)))


def _unchanged(path: Path, digest: str) -> bytes:
    data = bytes_of(path)
    if digest_of(data) != digest:
        raise StoreError(f"{path} has changed since it was collected")
    return data


def _notes(clip: Clip) -> list[str]:
    notes = []
    if clip.peak < _SILENCE_PEAK:
        notes.append("It is silent.")
    full = np.abs(clip.samples) >= _FULL_SCALE
    # A single sample at full scale is a peak; three in a row are clipping.
    if clipped := int((full[2:] & full[1:-1] & full[:-2]).sum()):
        notes.append(f"It is clipped: {clipped + 2} samples or more are at full scale.")
    if clip.rate < 16_000:
        notes.append(f"It has a sample rate of {clip.rate} Hz, so its bandwidth ends at {clip.rate / 2:g} Hz.")
    return notes


@dataclass(slots=True)
class Recording:
    """Recording as described by its source.

    Args:
        path: the file.
        system: the system.
        item: the item.
        text: the spoken text, "" if unknown.
        start: start of its interval in seconds.
        end: end of its interval in seconds; None for the end of the file.
        columns: values of the further columns of a table or fields of a pattern.
        fields: names of the fields of a pattern.
        take: the take, once the file is read.
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
        """Path, and start of an interval."""
        return f"{self.path} from {self.start:g} s" if self.is_interval else str(self.path)

    @property
    def is_interval(self) -> bool:
        """Whether the recording is an interval of its file."""
        return bool(self.start) or self.end is not None


def recordings_of(source: Any, system: str = "") -> list[Recording]:
    """List the recordings of a source of ``vl.collect``. Raises StoreError, ArgumentError."""
    if isinstance(source, Mapping):
        return [row for name, value in source.items() for row in recordings_of(value, str(name))]
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable):
            raise ArgumentError.of("source", f"must be a pattern, folder, table or list of paths, got {source!r}")
        listed = source.to_dict("records") if hasattr(source, "to_dict") else source
        return _table([row if isinstance(row, Mapping) else {"path": row} for row in listed], Path(), system)
    text, path = str(source), Path(source)
    if _FIELD.search(text):
        return _matching(text, system)
    if path.suffix.lower() in TABLES:
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
    """List the recordings whose paths match a pattern such as ``"samples/{system}/{item}.wav"``; ``*`` is a wildcard."""
    expression, fields = "", set[str]()
    for index, text in enumerate(_FIELD.split(Path(pattern).as_posix())):
        if index % 2 == 0:
            expression += re.escape(text).replace(r"\*", "[^/]*")
        else:
            expression += f"(?P={text})" if text in fields else f"(?P<{text}>[^/]+)"
            fields.add(text)
    rows = []
    literal = list(itertools.takewhile(lambda name: not set(name) & set("{*"), Path(pattern).parts))
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
        raise StoreError(f"no sound file matches {pattern}")
    return rows


def _read_table(path: Path) -> list[Any]:
    table = read_table(path, _COLUMNS)
    # In tables of other programs a quote is part of the text.
    return (restore_texts(table) if path.name == "takes.csv" else table).to_dict("records")


def _table(rows: Iterable[Mapping[str, Any]], folder: Path, system: str) -> list[Recording]:
    """List the recordings of a table; empty cells are missing values."""
    rows = list(rows)
    names = known_names(dict.fromkeys(chain.from_iterable(rows)), _COLUMNS)
    listed = []
    for number, row in enumerate(rows, start=1):
        cells = {
            names.get(str(key), str(key)): value for key, cell in row.items() if (value := _cell(cell)) is not None
        }
        path = next((cells.pop(name) for name in _PATH if name in cells), None)
        if path is None:
            columns = ", ".join(map(str, row)) or "none"
            message = f"must name a file in every row by a column {', '.join(_PATH)}; row {number} has {columns}"
            raise ArgumentError.of("source", message)
        text = next((str(cells.pop(name)) for name in _TEXT if name in cells), "")
        file = folder / str(path)
        span = {name: _seconds(cells.pop(name), name, number) for name in _SPAN if name in cells}
        suffix = f" {span.get('start', 0):g}" if span else ""
        item = next((cells.pop(name) for name in _ITEM if name in cells), file.stem + suffix)
        name = next((cells.pop(name) for name in _SYSTEM if name in cells), system or file.resolve().parent.name)
        listed.append(Recording(file, name, item, text, span.get("start", 0.0), span.get("end"), cells))
    return listed


def _seconds(value: Any, name: str, number: int) -> float:
    try:
        return float(str(value).replace(",", "."))
    except ValueError:
        raise ArgumentError.of("source", f"row {number}: {name} must be seconds, got {value!r}") from None


def key_of(value: str | float) -> str:
    """Normalize a key: composed Unicode (NFC), and 2 for 2.0."""
    integral = isinstance(value, float) and value.is_integer()
    return unicodedata.normalize("NFC", str(int(value) if integral else value))


def _cell(value: Any) -> Any:
    """Convert a cell of a table to a string or a number; None for an empty one."""
    value = value.item() if isinstance(value, np.generic) else value
    empty = value is None or value == "" if isinstance(value, str | None) else str(value) in {"nan", "NaT", "<NA>"}
    return None if empty else value if isinstance(value, str | int | float) else str(value)
