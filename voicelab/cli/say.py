"""``voicelab say``: speak a text into a file, which is complete or not there, or onto stdout as the audio comes."""

from __future__ import annotations

import codecs
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from voicelab.audio.decoders import StreamDecoder, wav_head
from voicelab.backend import SpeechStream
from voicelab.call import Call, Knob, parse_value
from voicelab.cli.console import REQUEST_FIELDS, BackendAddress, Device, options_of, say_line, write_bytes
from voicelab.errors import RequestInvalid
from voicelab.lab import connect
from voicelab.schema import AudioFormat, ReferenceAudio, TTSRequest
from voicelab.storage import check_folder, open_atomic

_SUFFIXES: dict[str, AudioFormat] = {
    ".wav": "wav",
    ".pcm": "pcm",
    ".raw": "pcm",
    ".mp3": "mp3",
    ".opus": "opus",
    ".ogg": "opus",
}
_DEFAULT_FORMAT: AudioFormat = TTSRequest.model_fields["format"].default

# A text of this many characters is more than one segment, so that there is something to watch.
_LONG_TEXT = 300

Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Where to write; its suffix (.wav .mp3 .opus .ogg .pcm) chooses the format. - is stdout, "
        "as the audio comes. Without it: speech.FORMAT in this folder.",
        show_default=False,
    ),
]


@options_of(REQUEST_FIELDS)
def say(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.", show_default=False)
    ],
    *,
    output: Output = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Voice sample to clone (WAV, MP3, FLAC); repeatable.", show_default=False),
    ] = None,
    reference_text: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Transcript of each --reference, in order.", show_default=False),
    ] = None,
    seed: Annotated[
        str | None, typer.Option(metavar="INTEGER", help="Repeat a rendering exactly.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Synthesis model: s1, s2-pro, or one of the backend's own.", show_default=False
        ),
    ] = None,
    knob: Annotated[
        list[str] | None,
        typer.Option(
            "--knob",
            metavar="NAME=VALUE",
            help="A parameter of the backend's own, such as noise_scale=0.3 for piper:; repeatable.",
            show_default=False,
        ),
    ] = None,
    backend: BackendAddress = None,
    device: Device = None,
    progress: Annotated[
        bool | None,
        typer.Option(help="Show a progress bar (default: long text, in a terminal).", show_default=False),
    ] = None,
    fields: dict[str, Any],
) -> None:
    """Say TEXT. Prints the file, its seconds of audio, the seconds it took and the device."""
    spoken = _stdin() if text == "-" else text
    fields["format"] = audio_format = _format(output, fields.get("format"))
    if reference or reference_text:
        fields["references"] = _references(reference or [], reference_text or [])
    # Everything is checked before a backend is made, which takes longer than to say no.
    TTSRequest.build(text=spoken, **fields)
    number = None if seed is None else parse_value("seed", seed)
    target = output or f"speech.{audio_format}"
    check_folder(Path(target).parent, Path(target))
    started = time.perf_counter()
    with connect(backend or None, device=device, model=model) as lab:
        stream = lab.stream(spoken, seed=number, **fields, **_knob_values(knob or (), lab.capabilities.knobs))
        with stream, _bar(spoken, fields, shown=progress) as advance:
            file = target != "-"
            seconds = speak_to_file(stream, Path(target), advance) if file else _copy(stream, write_bytes, advance)
        report = f"{seconds:.2f} s of audio in {time.perf_counter() - started:.2f} s on {stream.backend.device}"
    for note in stream.summary.notes:
        say_line(f"note: {note}", to_stderr=True)
    say_line(f"{target}: {report}", to_stderr=target == "-")


def _format(output: str | None, chosen: str | None) -> str:
    """Return the format that is asked for; the file's suffix and --format must not disagree."""
    suffix = Path(output).suffix.lower() if output and output != "-" else ""
    if not suffix or (chosen is not None and suffix not in _SUFFIXES):
        # A name that says nothing about a format leaves it to --format and the interface's default.
        return chosen or _DEFAULT_FORMAT
    if suffix not in _SUFFIXES:
        message = f"the suffix {suffix!r} is none of {' '.join(_SUFFIXES)}; name the format with --format"
        raise RequestInvalid.of("format", message)
    if chosen is not None and chosen != _SUFFIXES[suffix]:
        raise RequestInvalid.of("format", f"{chosen} was asked for, but the file's suffix is {suffix!r}")
    return _SUFFIXES[suffix]


def _references(paths: list[Path], texts: list[str]) -> list[ReferenceAudio]:
    """Read the samples. A transcript belongs to each, or to none: the embedded voice can do without."""
    if texts and len(texts) != len(paths):
        message = f"{len(texts)} --reference-text for {len(paths)} --reference; give one for each, or none"
        raise RequestInvalid.of("references", message)
    pairs = zip(paths, texts or [""] * len(paths), strict=True)
    return [ReferenceAudio(audio=path.read_bytes(), text=words) for path, words in pairs]


def _knob_values(typed: Iterable[str], knobs: Sequence[Knob]) -> dict[str, Any]:
    """Return what ``NAME=VALUE`` says of the backend's own knobs. Raises RequestInvalid."""
    names = [knob.name for knob in knobs]
    values = {}
    for one in typed:
        name, equals, word = one.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise RequestInvalid.of("knob", f"write it as NAME=VALUE, not {one!r}", in_="query")
        if name not in names:
            has = f"its own knobs are {', '.join(names)}" if names else "it has no knobs of its own"
            raise RequestInvalid.of("knob", f"the backend has no knob {name!r}; {has}", in_="query")
        values[name] = parse_value(name, word, knobs)
    return values


@contextmanager
def _bar(text: str, fields: dict[str, Any], *, shown: bool | None) -> Iterator[Advance]:
    """Show how much has been spoken, on stderr, against how long the text should take."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if shown is None:
        shown = console.is_terminal and len(text) > _LONG_TEXT
    expected = max(1.0, Call.of(text, fields).expected_seconds)
    columns = (TextColumn("speaking"), BarColumn(), TextColumn("{task.completed:.1f} s of audio"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not shown) as progress:
        task = progress.add_task("speaking", total=expected)

        def advance(seconds: float) -> None:
            # A slow voice outlasts the estimate: the bar then waits just before its end.
            total = expected if seconds < expected * 0.98 else seconds / 0.98
            progress.update(task, completed=seconds, total=total)

        yield advance
        finished = progress.tasks[task].completed
        progress.update(task, total=finished)


def _stdin() -> str:
    """Return the text on stdin, with or without a mark of its order of bytes. Raises RequestInvalid unless it is UTF-8."""
    data = sys.stdin.buffer.read()
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        at = error.start + (len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
        message = f"stdin is no UTF-8, from byte {at} on; convert it, as with: iconv -f LATIN1 -t UTF-8"
        raise RequestInvalid.of("text", message, type="string_unicode") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


Advance = Callable[[float], None]
"""Called with the seconds of audio so far after every chunk."""

_HEAD = 1 << 20
"""Bytes of a WAV within which its samples begin."""


def speak_to_file(stream: SpeechStream, path: Path, advance: Advance) -> float:
    """Write a stream's bytes as they are, and return the seconds of audio.

    The sizes in a WAV are made exact. When anything fails, an older file of this name stays as it was.
    Raises OSError when the file cannot be written, and whatever the stream raises.
    """
    with _output_file(path) as file:
        seconds = _copy(stream, file.write, advance)
        if stream.request.format == "wav" and file.readable():
            complete_wav(file)
    return seconds


def complete_wav(file: BinaryIO) -> None:
    """Put the true sizes into a WAV whose length was not known when it began.

    A file that is no RIFF WAVE, or whose data chunk has its size, stays as it is.
    """
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD)
    begin, size, _ = wav_head(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE" and size is not None and begin + size > length:
        for place, missing in ((begin - 4, length - begin), (4, length - 8)):
            file.seek(place)
            file.write(struct.pack("<I", missing))


def _copy(stream: SpeechStream, write: Callable[[bytes], object], advance: Advance) -> float:
    samples = 0
    # Decoding along the way is what tells the seconds, in every format.
    decoder = StreamDecoder(stream.request.format, stream.rate)
    for chunk in stream:
        write(chunk)
        samples += decoder.feed(chunk).size
        advance(samples / stream.rate)
    samples += decoder.finish().size
    advance(samples / stream.rate)
    return samples / stream.rate


@contextmanager
def _output_file(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():
        # A device or a pipe cannot be replaced, and must not be.
        with path.open("wb") as file:
            yield file
        return
    with open_atomic(path) as file:
        yield file
