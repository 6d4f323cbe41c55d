"""Data sets of takes: audio files, runs, and the layouts of Hugging Face, LJSpeech, Kaldi, LibriSpeech, LibriTTS and VCTK."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from voicelab.capabilities import Capabilities
from voicelab.clip import UNKNOWN_TEXT, Clip, Take
from voicelab.errors import ArgumentError, StoreError, shortened, some
from voicelab.recordings import REPEAT, file_of
from voicelab.runs.folder import RUN_FILE
from voicelab.runs.run import Journal, read_run, take_row
from voicelab.storage import digest_of, write_atomic
from voicelab.tables import csv_bytes, read_table, restore_texts
from voicelab.takes.rows import SYSTEM, Column, TakeRow

if TYPE_CHECKING:
    import pandas as pd

LAYOUTS: Final[Mapping[str, str]] = {
    "audiofolder": "audio/{name}.wav",
    "ljspeech": "wavs/{name}.wav",
    "kaldi": "wav/{name}.wav",
    "librispeech": "{number}/1/{number}-1-{index:04d}.flac",
    "libritts": "{number}/1/{number}_1_{index:06d}_000000.wav",
    "vctk": "wav48/{speaker}/{speaker}_{index:03d}.wav",
}
"""Layouts of other tools, with the path of an audio file; ``number`` is the number of the speaker."""


_CARD: Final = "README.md"
_SUMS: Final = "SHA256SUMS"
_MAX_LISTED: Final = 5
_MAX_CHARACTERS: Final = 60


def _check_others(table: Path, others: Sequence[str]) -> None:
    if others:
        message = "must be new or contain an earlier export of the same takes, got other rows in"
        listed = some([shortened(other, _MAX_CHARACTERS) for other in others], _MAX_LISTED, "; ")
        raise StoreError(f"{table.parent} {message} {table.name}: {listed}; export to a new folder")


def _check_files(folder: Path, takes: Mapping[str, Take], earlier: Collection[str]) -> None:
    """Raise StoreError if a folder has files that are not of an ``earlier`` export, or the takes' own recordings.

    ``takes`` maps the files to write to their takes.
    """
    existing = [name for name in takes if name not in earlier and (folder / name).exists()]
    written, home = {(folder / name).resolve(): take for name, take in takes.items()}, folder.resolve()
    for take in takes.values():
        source = file_of(take)
        if source is not None and (path := source.resolve()).is_relative_to(home) and written.get(path) is not take:
            existing.append(path.relative_to(home).as_posix())
    if existing:
        message = f"got the files {some(existing, _MAX_LISTED)}; export to a new folder"
        raise StoreError(f"{folder} must be new or contain an earlier export of the same takes, {message}")


def _check_earlier(folder: Path, files: Collection[str], records: Sequence[Mapping[str, Any]]) -> Collection[str]:
    """Raise StoreError if a folder has another program's files, or an earlier export with rows not in ``records``.

    Returns the audio files of the earlier export.
    """
    import pandas as pd

    table = folder / ("takes.csv" if "takes.csv" in files else "metadata.csv")
    if not table.is_file():
        if existing := [file for file in files if (folder / file).exists()]:
            message = f"got {some(existing, _MAX_LISTED)} without {table.name}; export to a new folder"
            raise StoreError(f"{folder} must be new or contain an earlier export of the same takes, {message}")
        return ()
    earlier = read_table(table) if table.name == "metadata.csv" else restore_texts(read_table(table))
    latest = _as_read(pd.DataFrame(records).drop(columns="file_name").to_csv(index=False).encode())
    names = [name for name in latest if name in earlier]
    latest_keys = {tuple(key) for key in latest[names].to_numpy().tolist() if names}
    rows = zip(earlier.to_numpy().tolist(), earlier[names].to_numpy().tolist(), strict=True)
    _check_others(table, [", ".join(filter(None, row)) for row, key in rows if tuple(key) not in latest_keys])
    return [file for name in ("file", "file_name") if name in earlier for file in earlier[name]]


def _as_read(csv: bytes) -> pd.DataFrame:
    """Parse CSV as a table of strings, like ``read_table``."""
    import pandas as pd

    return pd.read_csv(io.BytesIO(csv), dtype=str, keep_default_na=False)


def write_files(folder: Path, frame: pd.DataFrame, rows: Sequence[TakeRow], *, replace: bool = False) -> Path:
    """Write the audio of takes as received, and ``frame`` with an additional column ``file`` as ``takes.csv``.

    Audio files of an earlier export that are not written again are removed. Raises StoreError if a file cannot be written
    or, unless ``replace`` is set, if the folder has other takes.
    """
    table = folder / "takes.csv"
    records = read_table(table).to_dict("records") if table.is_file() else []
    names = ["digest", *(rows[0].keys if rows else ())]
    identities: set[object] = set()
    for record in _as_read(csv_bytes(frame)).to_dict("records") if records else ():
        identities |= {record["key"], tuple(map(record.get, names))}
    others = [
        ", ".join(filter(None, record.values()))
        for record in records
        if record.get("file") != "" and identities.isdisjoint((record.get("key"), tuple(map(record.get, names))))
    ]
    _check_others(table, [] if replace else others)
    files = [
        "" if row.take is None else f"audio/{_number(index, len(rows))}.{row.take.suffix}"
        for index, row in enumerate(rows)
    ]
    takes = {file: row.take for file, row in zip(files, rows, strict=True) if row.take is not None}
    _check_files(folder, takes, [record.get("file", "") for record in records])
    for file, take in takes.items():
        write_atomic(folder / file, take.audio, sync=False)
    write_atomic(table, csv_bytes(frame.assign(file=files)), sync=False)
    for name in {record.get("file", "") for record in records} - {*files}:
        if re.fullmatch(r"audio/\d+\.\w+", name):
            (folder / name).unlink(missing_ok=True)
    return table


def write_run(folder: Path, rows: Sequence[TakeRow], about: Mapping[str, Any]) -> Path:
    """Write takes as a run, labeled by their columns; return the path of its run.jsonl."""
    takes = [(index, row, row.take) for index, row in enumerate(rows) if row.take is not None]
    if (folder / RUN_FILE).is_file():
        run, take_keys = read_run(folder), {take.key for _, _, take in takes}
        labels = [labels for take, labels in zip(run.takes, run.labels, strict=True) if take.key not in take_keys]
        _check_others(folder / RUN_FILE, [", ".join(map(str, label.values())) for label in labels])
    declared = {
        take.fingerprint: Capabilities(take.backend, (take.model,), take.device, "none", take.fingerprint)
        for _, _, take in takes
    }
    with Journal(folder, declared.values(), about=about) as journal:
        for index, row, take in takes:
            fields = take_row(take)
            columns = {name: value for name, value in row.columns.items() if name not in fields}
            journal.add(take, **{**columns, **row.keys, "cell": index})
    return folder / RUN_FILE


def write_layout(folder: Path, layout: str, columns: Sequence[Column], rows: Sequence[TakeRow]) -> Path:
    """Write takes as WAV files (librispeech: FLAC) with a data card, digests, and the tables of ``layout``.

    The layouts are audiofolder (metadata.csv), ljspeech (wavs/, metadata.csv separated by bars), kaldi (wav.scp, text,
    utt2spk, spk2utt; paths are relative to the folder), librispeech (SPEAKERS.TXT with the number of each speaker; texts in
    the .trans.txt of a chapter), libritts (speakers.tsv with the number of each speaker; texts in NAME.normalized.txt,
    NAME.original.txt and the .trans.tsv of a chapter) and vctk (wav48/, txt/). The speakers of a layout are the speakers of
    each system; a system whose takes name no speaker is one speaker. All layouts except audiofolder have takes.csv, from
    which ``vl.collect`` restores the key columns. Returns the first table. Raises StoreError if writing fails, or the folder
    has other takes or tables.
    """
    import pandas as pd

    name_columns = [
        column.name for column in columns if column.name not in {SYSTEM, "backend", "text"} and len(column) > 1
    ]
    takes: list[Take] = []
    records: list[dict[str, Any]] = []
    numbers: dict[str, int] = {}
    for index, row in enumerate(rows):
        if (take := row.take) is None:
            continue
        text = "" if take.request.text == UNKNOWN_TEXT else " ".join(take.request.text.split())
        system = row.labels.get(SYSTEM, row.labels.get("backend", take.backend))
        keys = {column: value for column, value in row.keys.items() if column != REPEAT or column in name_columns}
        record = {**keys, **row.columns, "text": text, "system": system}
        name = "-".join([_number(index, len(rows)), *(plain_name(row.labels[column]) for column in name_columns)])
        speaker = _speaker(record)
        number = numbers.setdefault(speaker, len(numbers) + 1)
        file = LAYOUTS[layout].format(name=name, speaker=speaker, number=number, index=index + 1)
        takes.append(take)
        records.append(record | {"file_name": file})
    if not takes:
        message = f"must be one or more for layout {layout!r}, got none ({len(rows)} failed)"
        raise ArgumentError.of("takes", message)
    tables = _tables(layout, records)
    table = next(name for name in (*tables, "takes.csv") if "/" not in name)
    if layout != "audiofolder":  # the other layouts cannot store items, systems and further columns
        frame = pd.DataFrame(records).rename(columns={"file_name": "file"})
        tables = {"takes.csv": csv_bytes(frame).decode(), **tables}
    earlier = _check_earlier(folder, (*tables, _CARD, _SUMS), records)
    _check_files(folder, {record["file_name"]: take for take, record in zip(takes, records, strict=True)}, earlier)
    sums, seconds, rates = "", 0.0, set[int]()
    for take, record in zip(takes, records, strict=True):
        clip = take.clip()
        data = _flac(clip) if layout == "librispeech" else clip.to_bytes("wav")
        seconds += clip.duration
        rates.add(clip.rate)
        sums += f"{digest_of(data)}  {record['file_name']}\n"
        write_atomic(folder / record["file_name"], data, sync=False)
    tables |= {_CARD: _card(layout, records, seconds, rates), _SUMS: sums}
    for name, lines in tables.items():
        write_atomic(folder / name, lines.encode(), sync=False)
    return folder / table


def _flac(clip: Clip) -> bytes:
    """Encode a clip as FLAC in 16 bit."""
    import av

    data = io.BytesIO()
    samples = (clip.samples.clip(-1.0, 1.0) * 32767.0).round().astype(np.int16)
    frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
    frame.rate = clip.rate
    with av.open(data, "w", "flac") as file:
        stream = file.add_stream("flac", rate=clip.rate, layout="mono")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)
    return data.getvalue()


def _speaker(record: Mapping[str, Any]) -> str:
    return plain_name("-".join(str(record[name]) for name in ("system", "speaker") if name in record))


def plain_name(name: str) -> str:
    """Replace characters of a file name other than letters, digits, ``.``, ``-`` and ``_``, such as spaces and slashes."""
    return re.sub(r"[^\w.-]+", "_", name) or "_"


def _number(index: int, count: int) -> str:
    return f"{index:0{len(str(count))}d}"


def _tables(layout: str, records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the tables and texts of a layout by path.

    Kaldi's tables are sorted by bytes, and the name of an utterance begins with its speaker.
    """
    import pandas as pd

    if layout == "audiofolder":
        table = pd.DataFrame(records)
        table.insert(0, "file_name", table.pop("file_name"))
        # Unescaped: a quote before a formula would become part of the transcript.
        return {"metadata.csv": table.to_csv(index=False)}
    if layout == "ljspeech":  # the third column is the normalized text, here the same
        texts = [(Path(record["file_name"]).stem, record["text"].replace("|", " ")) for record in records]
        return {"metadata.csv": "".join(f"{name}|{text}|{text}\n" for name, text in texts)}
    if layout == "vctk":
        return {
            record["file_name"].replace("wav48", "txt", 1).removesuffix("wav") + "txt": f"{record['text']}\n"
            for record in records
        }
    numbers = {record["file_name"].partition("/")[0]: _speaker(record) for record in records}
    if layout == "librispeech":
        files = {"SPEAKERS.TXT": "".join(f"{number} | | | | {speaker}\n" for number, speaker in numbers.items())}
        for record in records:
            path = Path(record["file_name"])
            chapter = f"{path.with_name(path.stem.rpartition('-')[0]).as_posix()}.trans.txt"
            files[chapter] = files.get(chapter, "") + f"{path.stem} {record['text']}\n"
        return files
    if layout == "libritts":
        speakers = [f"{number}\t\t\t{speaker}\n" for number, speaker in numbers.items()]
        files = {"speakers.tsv": "READER\tGENDER\tSUBSET\tNAME\n" + "".join(speakers)}
        for record in records:
            stem, text = record["file_name"].removesuffix(".wav"), record["text"]
            files |= {f"{stem}.normalized.txt": text, f"{stem}.original.txt": text}
            chapter = stem.rsplit("_", 2)[0] + ".trans.tsv"
            files[chapter] = files.get(chapter, "") + f"{Path(stem).name}\t{text}\t{text}\n"
        return files
    utterances = [
        (f"{_speaker(record)}-{Path(record['file_name']).stem}", _speaker(record), record) for record in records
    ]
    utterances.sort(key=lambda utterance: utterance[0])
    by_speaker: dict[str, list[str]] = {}
    for utterance, speaker, _ in utterances:
        by_speaker.setdefault(speaker, []).append(utterance)
    return {
        "wav.scp": "".join(f"{utterance} {record['file_name']}\n" for utterance, _, record in utterances),
        "text": "".join(f"{utterance} {record['text']}\n" for utterance, _, record in utterances),
        "utt2spk": "".join(f"{utterance} {speaker}\n" for utterance, speaker, _ in utterances),
        "spk2utt": "".join(f"{speaker} {' '.join(listed)}\n" for speaker, listed in sorted(by_speaker.items())),
    }


def _card(layout: str, records: Iterable[Mapping[str, Any]], seconds: float, rates: set[int]) -> str:
    records = list(records)
    counts = Counter(record["system"] for record in records)
    systems = "".join(f"| {name} | {count} |\n" for name, count in counts.items())
    without = sum(not record["text"] for record in records)
    return (
        f"# Recordings of {', '.join(counts)}\n\n{len(records)} recordings, {seconds / 60:.1f} minutes, 16 bit at "
        f"{', '.join(map(str, sorted(rates)))} Hz, mono, at their original level; layout: {layout}.\n\n"
        f"| system | recordings |\n|---|---|\n{systems}\n"
        f"Recordings with a text: {len(records) - without}, without: {without}. Digests: `SHA256SUMS`.\n\n"
        "License, consent of the speakers, permitted use: describe them here before you share the data set.\n"
    )
