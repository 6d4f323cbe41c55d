"""Recordings in files: their paths, texts and takes."""

from __future__ import annotations

import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicelab.audio.decoders import UNKNOWN_FROM, wav_head
from voicelab.audio.formats import stream_of
from voicelab.call import Call
from voicelab.clip import UNKNOWN_TEXT, Clip, Take
from voicelab.errors import ArgumentError, AudioError, StoreError, some
from voicelab.storage import digest_of
from voicelab.tables import (
    JSON_SUFFIXES,
    bytes_of,
    known_names,
    path_text,
    read_cells,
    read_table,
    read_text,
    restore_texts,
    table_of,
)
from voicelab.tables import SUFFIXES as TABLES

SUFFIXES: Final = frozenset(
    ".wav .flac .mp3 .ogg .oga .opus .m4a .mp4 .aac .aif .aiff .aifc .au .caf .webm .mka .wma .amr .sph .w64 .wv".split()
)
"""Suffixes of sound files in folders."""

_SIDECARS: Final = (".txt", ".lab", ".normalized.txt")
# Suffixes of files that often accompany recordings and are not counted as skipped.
_COMPANIONS: Final = (*TABLES, ".txt", ".lab", ".textgrid", ".md", ".yaml", ".yml", ".html")
_SYSTEM_NAMES: Final = frozenset(
    (
        "__MACOSX",
        "$RECYCLE.BIN",
        "System Volume Information",
        "lost+found",
        "@eaDir",
        "#recycle",
        "Thumbs.db",
        "desktop.ini",
    )
)
_MICROPHONE: Final = re.compile(r"_mic\d$")  # VCTK 0.92
_MAX_LISTED: Final = 20
_FIELD: Final = re.compile(r"\{(\w+)\}")
# Column names of the file path and the text.
_PATH: Final = tuple("path file file_name audio audio_file audio_path audio_filepath file_path wav wav_path".split())
_TEXT: Final = ("text", "transcription", "transcript", "sentence")
_KALDI_LISTS: Final = ("wav.scp", "text", "utt2spk", "segments", "spk2utt")
_FOLDER_TABLES: Final = ("takes.csv", "metadata.csv", "metadata.tsv", "metadata.jsonl", "wav.scp")
_AUDIO_FOLDERS: Final = ("wavs/", "wav/", "audio/", "clips/")
_SPAN: Final = ("start", "end")
_LENGTH: Final = ("offset", "duration")
_ITEM: Final = ("item", "id")
_SYSTEM: Final = ("system", "backend")
_COLUMNS: Final = (*_PATH, *_TEXT, *_SYSTEM, *_SPAN, *_ITEM, "repeat")
_FULL_SCALE: Final = 0.999
_SILENCE_PEAK: Final = 1e-4
_NOTED_OFFSET: Final = 0.005  # lowers the SNR of a clean recording from 54 to 20 dB
_ROUNDING_S: Final = 0.01
# Line of a label track (HTK, Audacity): start, end and label.
_LABEL: Final = re.compile(r"\s*\d+(?:\.\d+)?\s+\d+(?:\.\d+)?(?:\s.*)?")
_WINDOWS_ROOT: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")
# First bytes of files that are often named or downloaded as audio.
_SIGNATURES: Final = {
    b"<!doctype html": "an HTML page (a download that failed?)",
    b"<html": "an HTML page (a download that failed?)",
    b"version https://git-lfs": "a Git LFS pointer: run git lfs pull",
    b"\0\5\x16\7": "an AppleDouble file of macOS, which has no audio",
    b"pk\3\4": "a ZIP archive: unpack it",
    b"\x1f\x8b": "a gzip archive: unpack it",
    b"par1": "a Parquet table: pass pandas.read_parquet(…) of it, with a column of paths",
    b"%pdf": "a PDF",
    b"\x89png": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
}
_VAGUE: Final = ("the audio is damaged:", "cut off", "signatures", "no audio")
_AUDIO_HEADS: Final = (b"riff", b"flac", b"oggs", b"id3", b"form", b"\x1aE\xdf\xa3".lower())

REPEAT: Final = "repeat"
"""Column that numbers several takes of one item by one system."""


@dataclass(slots=True)
class Report:
    """Mapping from the files of a source that are not collected to the reasons, and notes on its tables."""

    excluded: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def exclude(self, path: Path, reason: str) -> None:
        """Record an excluded file."""
        self.excluded[path_text(path)] = reason


def sounds_in(folder: str | Path, report: Report | None = None) -> list[Path]:
    """List the sound files in a folder and its subfolders, sorted; links are followed, except to an ancestor folder.

    Hidden files, system files, and files with other suffixes are excluded and added to ``report``. Raises StoreError if
    no sound file is left.
    """
    folder, report = Path(folder), report or Report()
    if not folder.is_dir():
        raise StoreError(f"{folder} does not exist")
    skipped = Report()
    listed = sorted(_walk(folder, skipped, frozenset()))
    if not listed:
        note = f", got {skipped_note(skipped)}" if skipped.excluded else ""
        raise StoreError(f"{folder} contains no sound files ({', '.join(sorted(SUFFIXES))}){note}")
    report.excluded |= skipped.excluded
    return listed


def _walk(folder: Path, report: Report, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    try:
        status = folder.stat()
        entries = sorted(folder.iterdir())
    except OSError as error:
        return report.exclude(folder, f"the folder cannot be read: {error.strerror}")
    here = (status.st_dev, status.st_ino)
    if here in above:
        return report.exclude(folder, "a link to a folder above it")
    for path in entries:
        if is_hidden(path.name):
            report.exclude(path, "hidden or system file")
        elif path.is_dir():
            yield from _walk(path, report, above | {here})
        elif path.suffix.lower() in SUFFIXES:
            if path.is_file():
                yield path
            else:
                report.exclude(path, _no_file(path))
        elif path.suffix.lower() not in _COMPANIONS and path.name not in _KALDI_LISTS:
            report.exclude(path, f"not a sound file ({path.suffix or 'no suffix'})")
    return None


def _no_file(path: Path) -> str:
    return "a link to a file that does not exist" if path.is_symlink() and not path.exists() else "not a regular file"


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden, or was created by an operating or storage system."""
    return name.startswith(".") or name in _SYSTEM_NAMES


def skipped_note(report: Report) -> str:
    """Format the number of excluded files by reason: "2 × hidden or system file"."""
    reasons = Counter(report.excluded.values())
    return ", ".join(f"{count} × {reason}" for reason, count in reasons.most_common())


def sidecar(path: Path) -> str:
    """Read the text of a recording; "" if there is none.

    It is read from NAME.txt or NAME.lab next to the recording, from the transcripts of a LibriSpeech chapter
    (SPEAKER-CHAPTER.trans.txt), or from a folder ``txt`` next to the recordings' folder, as in VCTK. A label track (HTK,
    Audacity) is not a text.
    """
    stem = _MICROPHONE.sub("", path.stem)
    beside = [path.with_suffix(suffix) for suffix in _SIDECARS]
    beside += [
        above / "txt" / path.relative_to(child).with_name(f"{stem}.txt")
        for child, above in itertools.pairwise(path.parents[:3])
    ]
    for file in beside:
        if is_file(file) and not _is_label_track(text := read_text(file)):
            return " ".join(text.split())
    listed = path.parent / f"{stem.rpartition('-')[0]}.trans.txt"
    lines = read_text(listed).splitlines() if is_file(listed) else []
    return next((text.strip() for key, _, text in (line.partition(" ") for line in lines) if key == stem), "")


def _is_label_track(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return all(map(_LABEL.fullmatch, lines)) and (len(lines) > 1 or "\t" in text)


def file_take(path: Path) -> Take:
    """Read a file and its text as a take. Raises the same errors as ``intervals_of``."""
    ((take, _),) = intervals_of(path, [(0.0, None, sidecar(path))])
    return take


def load_file(path: Path) -> tuple[bytes, Clip]:
    """Read and decode a file. Raises StoreError if it cannot be read, AudioError if it cannot be decoded."""
    data = bytes_of(path)
    if path.suffix.lower() in TABLES:
        raise StoreError(f"{path_text(path)} is a table, not audio; vl.collect and voicelab compare read it")
    try:
        return data, Clip.load(data)
    except AudioError as error:
        raise AudioError(f"{path_text(path)}: {damage_of(data, error)}") from error


def damage_of(data: bytes, error: Exception) -> str:
    """Describe why a file cannot be decoded: it has another type, or is damaged after some seconds of audio.

    ``error`` was raised by the decoder; its message is returned if it is more specific.
    """
    if not data:
        return "the file is empty"
    if not data.strip(b"\0"):
        return f"the file consists of {len(data)} zero bytes"
    head = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return f"the file is {kind}"
    if not any(phrase in str(error) for phrase in _VAGUE):
        return str(error)
    if seconds := _decodable_s(data):
        declared = _wav_s(data)
        of = f" of {declared:.2f} s" if declared > seconds else ""
        return f"the audio is truncated or damaged after {seconds:.2f} s{of}"
    if head.startswith(_AUDIO_HEADS) or data[4:8] == b"ftyp":
        return "the audio is truncated or damaged before its first sample"
    is_text = all(byte > 31 or byte in b"\t\r\n" for byte in data[:4096])
    return "the file is text, not audio" if is_text else "the file is not in a known audio format"


def _decodable_s(data: bytes) -> float:
    """Compute the seconds of audio that FFmpeg decodes before the first error."""
    import av

    seconds = 0.0
    try:
        with av.open(io.BytesIO(data), "r") as source:
            for frame in source.decode(audio=0):
                seconds += frame.samples / frame.sample_rate
    except (av.FFmpegError, IndexError, ValueError):
        pass
    return seconds


def _channel_peak(data: bytes) -> float:
    """Return the largest absolute sample in all channels of a decodable file, 0 to 1."""
    import av

    resampler = av.AudioResampler(format="fltp")
    with av.open(io.BytesIO(data), "r") as source:
        frames = chain.from_iterable(map(resampler.resample, source.decode(audio=0)))
        return max((float(np.abs(frame.to_ndarray()).max(initial=0.0)) for frame in frames), default=0.0)


def _wav_s(data: bytes) -> float:
    """Return the duration in seconds that the header of a WAV file states; 0 for other files."""
    if data[:4] != b"RIFF":
        return 0.0
    _, size, form = wav_head(data)
    bytes_per_s = int.from_bytes(form[8:12], "little")
    return size / bytes_per_s if size and size < UNKNOWN_FROM and bytes_per_s else 0.0


def intervals_of(path: Path, intervals: Sequence[tuple[float, float | None, str]]) -> tuple[tuple[Take, Clip], ...]:
    """Read intervals of a file (start and end in seconds, text), in any format of FFmpeg, as takes with their clips.

    Notes report silent, clipped and narrow-band audio, DC offsets, averaged channels and padding. The audio of a file is
    read from disk on access; an interval is kept in memory as 16-bit WAV. Raises StoreError if the file cannot be read,
    AudioError if it is damaged or ends before an interval does.
    """
    data, recording = load_file(path)
    channels, codec = stream_of(data)
    file_notes = [f"It has {channels} channels, which were averaged."] if channels > 1 else []
    if channels > 1 and recording.peak < _SILENCE_PEAK <= _channel_peak(data):
        file_notes.append("Its channels are in antiphase and cancel when averaged: invert one of them.")
    if codec.startswith("aac"):
        file_notes.append("Its codec, AAC, pads the audio by up to 0.05 s at each end; the duration may include this.")
    created = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    name = path_text(path.name)
    takes = []
    for start, end, text in intervals:
        if start or end is not None:
            stop = recording.duration if end is None else end
            if not 0.0 <= start < stop <= recording.duration + _ROUNDING_S:
                until = "the end" if end is None else f"{end} s"
                raise AudioError(
                    f"{path_text(path)}: {start} s to {until} must be an interval of its {recording.duration:.2f} s"
                )
            clip = recording.slice(start, end)
            sound: bytes | Callable[[], bytes] = (wav := clip.to_bytes("wav"))
            digest = digest_of(wav)
            source = f"{name}#t={start:g}" + ("" if end is None else f",{end:g}")
            notes = [*file_notes, *_notes(clip)]
        else:
            clip, digest = recording, digest_of(data)
            sound, source = partial(_unchanged, path, digest), name
            notes = [*file_notes, *_notes(recording), *recording.loading_notes]
        call = Call.of(text.strip() or UNKNOWN_TEXT, model="recorded")
        fields: dict[str, Any] = {"created": created, "digest": digest, "source": source, "notes": tuple(notes)}
        takes.append((Take(call, sound, device="file", **fields), clip))
    return tuple(takes)


def reasons_of(problems: Mapping[str, Exception]) -> dict[str, str]:
    """Map paths of unreadable files to error messages, with the path removed from the message."""
    return {path: str(error).removeprefix(path).lstrip(": ") for path, error in problems.items()}


def unreadable(problems: Mapping[str, StoreError | AudioError], count: int) -> StoreError | AudioError:
    """Combine the errors of unreadable files, of ``count`` in total, into one; ``problems`` maps their paths to errors."""
    reasons = reasons_of(problems)
    lines = some([f"{path}: {reason}" for path, reason in reasons.items()], _MAX_LISTED, "\n  ")
    advice = 'on_error="skip" (--on-error skip) excludes them'
    message = f"{len(reasons)} of {count} files cannot be read; {advice}:\n  {lines}"
    message += ", all in the error's ``files``" if len(reasons) > _MAX_LISTED else ""
    kind = StoreError if all(isinstance(problem, StoreError) for problem in problems.values()) else AudioError
    error = kind(message) if len(problems) > 1 else next(iter(problems.values()))
    error.files = reasons
    return error


def clip_take(clip: Clip, source: str) -> Take:
    """Create a take, with unknown text, of a clip from the file ``source``."""
    call = Call.of(UNKNOWN_TEXT, model="recorded")
    return Take(call, clip.to_bytes("wav"), device="file", source=source, notes=tuple(_notes(clip)))


def file_of(take: Take) -> Path | None:
    """Return the file that a take is read from on access; None if its audio is in memory or in a run."""
    return take.sound.args[0] if isinstance(take.sound, partial) and take.sound.func is _unchanged else None


def _unchanged(path: Path, digest: str) -> bytes:
    data = bytes_of(path)
    if digest_of(data) != digest:
        raise StoreError(f"{path} has changed since it was collected")
    return data


def _notes(clip: Clip) -> list[str]:
    notes = []
    if clip.peak < _SILENCE_PEAK:
        notes.append("It is silent.")
    if abs(offset := float(clip.samples.mean())) > _NOTED_OFFSET:
        rounded = float(f"{offset * 100:.1g}")  # recordings with the same note are listed together
        notes.append(f"It has a DC offset of {rounded:+g} % of full scale, which lowers SNR and changes pauses and F0.")
    full = np.abs(clip.samples) >= _FULL_SCALE
    # A single sample at full scale is a peak; three in a row are clipping.
    if clipped := int((full[2:] & full[1:-1] & full[:-2]).sum()):
        notes.append(f"It is clipped: {clipped + 2} samples or more are at full scale.")
    if clip.rate < 16_000:
        notes.append(f"It has a sample rate of {clip.rate} Hz, so its bandwidth ends at {clip.rate / 2:g} Hz.")
    return notes


@dataclass(slots=True)
class Recording:
    """Recording in a source of ``vl.collect``.

    Args:
        path: the file.
        system: name of the system.
        item: name of the item.
        text: the spoken text, "" if unknown.
        start: start of the interval in seconds.
        end: end of the interval in seconds; None for the end of the file.
        columns: values of additional columns of a table or fields of a pattern.
        fields: names of the fields of a pattern.
        take: the take, once the file is read.
        rate: sample rate of the file in Hz, once the file is read.
        duration_s: duration in seconds, once the file is read.
        loudness: loudness of the file in LUFS; None if undefined.
        digest: digest of the samples, once the file is read.
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
    rate: int = 0
    duration_s: float | None = None
    loudness: float | None = None
    digest: str = ""

    def __post_init__(self) -> None:
        self.system, self.item = key_of(self.system), key_of(self.item)
        self.columns = {
            name: key_of(value) if isinstance(value, str) else value for name, value in self.columns.items()
        }

    @property
    def name(self) -> str:
        """Path, followed by the start if the recording is an interval."""
        text = path_text(self.path)
        return f"{text} from {self.start:g} s" if self.is_interval else text

    @property
    def is_interval(self) -> bool:
        """Whether the recording is an interval of its file."""
        return bool(self.start) or self.end is not None


def recordings_of(source: Any, report: Report, system: str = "") -> list[Recording]:
    """List the recordings of a source of ``vl.collect``; add excluded files and notes to ``report``.

    Raises StoreError, ArgumentError.
    """
    if isinstance(source, Mapping):
        return [row for name, value in source.items() for row in recordings_of(value, report, str(name))]
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable):
            raise ArgumentError.of("source", f"must be a pattern, folder, table or list of paths, got {source!r}")
        listed = source.to_dict("records") if hasattr(source, "to_dict") else source
        return _table(_numbered(row if isinstance(row, Mapping) else {"path": row} for row in listed), Path(), system)
    text, path = str(source), Path(source)
    if _FIELD.search(text) or ("*" in text and not path.exists()):
        return _matching(text, report, system)
    if path.name == "wav.scp":
        return _kaldi(path, system)
    if path.suffix.lower() in TABLES:
        return _table(_read_table(path, report), path.parent, system, path.name, report.notes)
    if not path.is_dir():
        if not path.exists():
            bytes_of(path)  # raises the error that says why
        return [Recording(path, system or path.parent.name, path.stem)]
    for name in _FOLDER_TABLES:
        if (path / name).is_file():
            listed = recordings_of(path / name, report, system or path.resolve().name)
            unlisted = set(_walk(path, report, frozenset())) - {recording.path for recording in listed}
            for file in sorted(unlisted):
                report.exclude(file, f"not in {name}")
            return listed
    files = sounds_in(path, report)
    tables = [
        file.name for file in sorted(path.iterdir()) if file.suffix.lower() in TABLES and not is_hidden(file.name)
    ]
    if tables:
        listed = some(tables, _MAX_LISTED)
        report.notes.append(
            f"Tables in {path_text(path)} are not read: {listed}; pass one as the source for its columns."
        )
    if system or any(file.parent == path for file in files):
        system = system or path.resolve().name
        return [Recording(file, system, file.relative_to(path).with_suffix("").as_posix()) for file in files]
    rows = []
    for name, listed in itertools.groupby(files, lambda file: file.relative_to(path).parts[0]):
        folder = path / name
        if any((folder / table).is_file() for table in _FOLDER_TABLES):
            rows += recordings_of(folder, report, name)
        else:
            items = ((file, file.relative_to(folder).with_suffix("").as_posix()) for file in listed)
            rows += [Recording(file, name, item) for file, item in items]
    return rows


def _matching(pattern: str, report: Report, system: str) -> list[Recording]:
    """List the recordings whose paths match a pattern such as ``"samples/{system}/{item}.wav"``; ``*`` is a wildcard.

    The case of the suffix is ignored. Files whose paths differ from the pattern only in the suffix are recorded as excluded.
    """
    path = Path(pattern)
    suffix = path.suffix if path.suffix.lower() in SUFFIXES else ""
    expression, fields = "", set[str]()
    for index, text in enumerate(_FIELD.split(path.as_posix().removesuffix(suffix))):
        if index % 2 == 0:
            expression += re.escape(text).replace(r"\*", "[^/]*")
        else:
            expression += f"(?P={text})" if text in fields else f"(?P<{text}>[^/]+)"
            fields.add(text)
    literal = list(itertools.takewhile(lambda name: not set(name) & set("{*"), path.parts))
    if not system and _FIELD.search(path.parent.name) and literal:  # the file's folder is another column
        system = literal[-1]
    rest = "/".join(path.parts[len(literal) :]).removesuffix(suffix)
    rows = []
    for file in sorted(Path(*literal).glob(_FIELD.sub("*", rest) + (".*" if suffix else ""))):
        matched = re.fullmatch(expression, file.as_posix().removesuffix(file.suffix) if suffix else file.as_posix())
        hidden = any(map(is_hidden, file.parts[len(literal) :])) and not any(map(is_hidden, path.parts))
        if not matched or file.suffix.lower() not in SUFFIXES:
            continue
        if not file.is_file():
            report.exclude(file, _no_file(file))
            continue
        if hidden or (suffix and file.suffix.lower() != suffix.lower()):
            report.exclude(file, "hidden or system file" if hidden else f"its suffix is not {suffix}")
            continue
        columns = matched.groupdict()
        name = columns.pop("system", system or file.parent.name)
        joined = " ".join(value for key, value in columns.items() if key != REPEAT)
        item, text = columns.pop("item", joined or file.stem), columns.pop("text", "")
        rows.append(Recording(file, name, item, text, columns=columns, fields=tuple(columns)))
    if not rows:
        note = f", got {skipped_note(report)}" if report.excluded else ""
        raise StoreError(f"no sound file matches {pattern}{note}")
    return rows


def _numbered(rows: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    return dict(enumerate(rows, start=1))


def _read_table(path: Path, report: Report) -> dict[int, Mapping[str, Any]]:
    """Read the numbered rows of a table that has a header row, or the layout of LJSpeech, which has none."""
    if path.suffix.lower() in JSON_SUFFIXES:
        table = read_table(path)
    else:
        cells = read_cells(path, _COLUMNS)
        heading = cells.rows[0]
        if not {*heading, *known_names(heading, _PATH).values()} & {*_PATH} and _sound_named(path.parent, heading[0]):
            return dict(zip(cells.numbers, _unlabeled(path, cells.rows), strict=True))
        table = table_of(cells, _COLUMNS, path.name)
        report.notes += table.attrs["notes"]
    # In tables written by other programs, a quote is part of the text.
    own = path.name == "takes.csv"
    records: Any = (restore_texts(table) if own else table).to_dict("index")
    if own:  # failed takes have no file
        for number, record in records.items():
            if not record.get("file"):
                report.exclude(path / str(number), f"a failed take: {record.get('error')}")
        records = {number: record for number, record in records.items() if record.get("file")}
    return records  # type: ignore[no-any-return]


def _unlabeled(path: Path, rows: Sequence[Sequence[str]]) -> list[Mapping[str, Any]]:
    """Label the cells of a table that has no header row: file path or stem, text, normalized text."""
    if len(rows[0]) > 3:
        message = (
            f"{path} must have a header row, or the columns file, text, normalized text; got {len(rows[0])} columns"
        )
        raise ArgumentError.of("source", message)
    records: list[Mapping[str, Any]] = []
    for name, *texts in rows:
        item = Path(name).stem if Path(name).suffix.lower() in SUFFIXES else name
        record = {"path": _sound_named(path.parent, name) or name, "item": item, "text": texts[-1] if texts else ""}
        if len(texts) == 2 and texts[0] != texts[1]:
            record["written_text"] = texts[0]
        records.append(record)
    return records


def _sound_named(folder: Path, name: str) -> str | None:
    """Find an audio file in a folder or its audio subfolder by its name, with or without suffix; return its relative path."""
    names = (
        f"{sub}{name}{suffix}" for suffix in ("", ".wav", ".flac", ".mp3", ".ogg") for sub in ("", *_AUDIO_FOLDERS)
    )
    return next((name for name in names if is_file(folder / name)), None)


def is_file(path: Path) -> bool:
    """Return whether a file exists; False for a name that is too long."""
    try:
        return path.is_file()
    except OSError:
        return False


def _listed_file(folder: Path, name: str) -> Path:
    """Find a file of a table by its path, relative to the table's folder or audio subfolder; backslashes are accepted."""
    if "://" in name or _WINDOWS_ROOT.match(name):
        return Path(name)
    names = [name, name.replace("\\", "/")] if "\\" in name else [name]
    return folder / next(filter(None, (_sound_named(folder, name) for name in names)), name)


def _kaldi(path: Path, system: str) -> list[Recording]:
    """List the recordings of Kaldi's wav.scp, using the lists text, utt2spk and segments in the same folder.

    Paths are relative to that folder, to a folder above it, or to the working directory. A command in wav.scp is listed as a
    file that cannot be read.
    """
    lists: dict[str, dict[str, str]] = {}
    for name in _KALDI_LISTS:
        file = path.with_name(name)
        lines = [
            line.split(maxsplit=1) for line in (read_text(file).splitlines() if file.is_file() else ()) if line.strip()
        ]
        lists[name] = {key: " ".join(values).strip() for key, *values in lines}
    files, rows = lists["wav.scp"], []
    for utterance, span in (lists["segments"] or dict.fromkeys(files, "")).items():
        name, *seconds = span.split() or [utterance]
        sound = files.get(name) or f"{name} (not in {path.name})"
        above = (folder / sound for folder in (path.parent, *path.absolute().parents[1:], Path()))
        missing = Path(sound) if sound.endswith("|") else path.parent / sound
        row: dict[str, Any] = {"path": next(filter(is_file, above), missing), "item": utterance}
        row |= {"text": lists["text"].get(utterance, ""), "speaker": lists["utt2spk"].get(utterance)}
        rows.append(row | dict(zip(_SPAN, seconds, strict=False)))
    return _table(_numbered(rows), Path(), system or path.resolve().parent.name)


def _table(
    rows: Mapping[int, Mapping[str, Any]], folder: Path, system: str, title: str = "", notes: Sequence[str] = ()
) -> list[Recording]:
    """List the recordings of numbered rows; empty cells are missing values. Errors contain title and notes of the table."""
    names = known_names(dict.fromkeys(chain.from_iterable(rows.values())), _COLUMNS)
    listed: list[Recording] = []
    untimed: list[str] = []
    unsystematic: list[str] = []
    unnamed: dict[str, list[str]] = {}
    for number, row in rows.items():
        cells = {
            names.get(str(key), str(key)): value for key, cell in row.items() if (value := _cell(cell)) is not None
        }
        decoded = [key for key, cell in row.items() if isinstance(cell, Mapping) and names.get(str(key), key) in _PATH]
        path = next((cells.pop(name) for name in _PATH if name in cells), "")
        if decoded:  # audio of Hugging Face's datasets
            unnamed.setdefault(f"a dict in {decoded[0]}, not a path: write its samples to a file", []).append(
                str(number)
            )
        elif path == "":
            unnamed.setdefault(", ".join(cells) or "none", []).append(str(number))
        text = next((str(cells.pop(name)) for name in _TEXT if name in cells), "")
        file = _listed_file(folder, str(path))
        span = _span(cells, number, untimed)
        if str(cells.get(REPEAT, "")).isdecimal():
            cells[REPEAT] = int(cells[REPEAT])
        suffix = f" {span.get('start', 0):g}" if span else ""
        item = next((cells.pop(name) for name in _ITEM if name in cells), file.stem + suffix)
        name = next((cells.pop(name) for name in _SYSTEM if name in cells), "")
        if not name:
            unsystematic.append(f"row {number} has none")
            name = system or file.resolve().parent.name
        listed.append(Recording(file, name, item, text, span.get("start", 0.0), span.get("end"), cells))
    pathless = [
        f"row {numbers[0]} has {columns}" if len(numbers) == 1 else f"rows {some(numbers, _MAX_LISTED)} have {columns}"
        for columns, numbers in unnamed.items()
    ]
    rules = {f"a file in every row, in a column {', '.join(_PATH)}": pathless, "start and end in seconds": untimed}
    if len(unsystematic) < len(rows):
        rules["a system in every row or in none"] = unsystematic
    for rule, problems in rules.items():
        if problems:
            message = f"{title} must have {rule}; {some(problems, _MAX_LISTED, '; ')}".strip()
            raise ArgumentError.of("source", " ".join([f"{message}.", *notes]) if notes else message)
    return listed


def _span(cells: dict[str, Any], number: int, problems: list[str]) -> dict[str, float]:
    """Remove the columns of the interval from a row: ``start`` and ``end``, or ``offset`` and ``duration`` as in NeMo."""
    is_length = not {*_SPAN} & cells.keys() and {*_LENGTH} <= cells.keys()
    span = {}
    for edge, name in zip(_SPAN, _LENGTH if is_length else _SPAN, strict=True):
        if name in cells:
            value = cells.pop(name)
            try:
                span[edge] = float(str(value).replace(",", "."))
            except ValueError:
                problems.append(f"row {number} has {name} {value!r}")
    if is_length and len(span) == len(_SPAN):
        span["end"] += span["start"]
    return span


def key_of(value: str | float) -> str:
    """Normalize a key: convert it to composed Unicode (NFC), escape bytes that are not UTF-8, and write 2.0 as "2"."""
    integral = isinstance(value, float) and value.is_integer()
    return unicodedata.normalize("NFC", path_text(str(int(value) if integral else value)))


def _cell(value: Any) -> Any:
    """Convert a table cell to a string or a number; None if it is empty."""
    value = value.item() if isinstance(value, np.generic) else value
    empty = value is None or value == "" if isinstance(value, str | None) else str(value) in {"nan", "NaT", "<NA>"}
    return None if empty else value if isinstance(value, str | int | float) else str(value)
