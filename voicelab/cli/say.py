"""``voicelab say``: synthesize a text into a file, atomically, or stream it to stdout."""

from __future__ import annotations

import codecs
import gc
import os
import re
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from voicelab.audio.decoders import StreamDecoder, wav_head
from voicelab.backend import SpeechStream
from voicelab.call import Call, Knob, parse_value
from voicelab.cli.console import REQUEST_FIELDS, BackendAddress, Device, options_of, print_line, write_bytes
from voicelab.errors import RequestInvalid
from voicelab.lab import connect
from voicelab.schema import DEFAULT_MODEL, AudioFormat, ReferenceAudio, TTSRequest
from voicelab.storage import check_folder, make_folder, on_disk, open_atomic
from voicelab.tags import read_tags
from voicelab.text import as_written, normalize
from voicelab.text.clean import HAN, clean, is_han, recorded_changes
from voicelab.text.markup import plain

_SUFFIXES: dict[str, AudioFormat] = {
    ".wav": "wav",
    ".pcm": "pcm",
    ".raw": "pcm",
    ".mp3": "mp3",
    ".opus": "opus",
    ".ogg": "opus",
}
_DEFAULT_FORMAT: AudioFormat = TTSRequest.model_fields["format"].default

# Longer texts have more than one segment, so a progress bar is useful.
_BAR_MIN_CHARACTERS = 300

Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Output file; its suffix (.wav .mp3 .opus .ogg .pcm) sets the format. - streams to stdout. "
        "Default: speech.FORMAT.",
        show_default=False,
    ),
]


ShowText = Annotated[bool, typer.Option("--show-text", help="Print the spoken text and its changes, without audio.")]
Progress = Annotated[
    bool | None, typer.Option(help="Show a progress bar (default: for long texts in a terminal).", show_default=False)
]
Seed = Annotated[str | None, typer.Option(metavar="INTEGER", help="Seed for reproducible output.", show_default=False)]


@options_of(REQUEST_FIELDS)
def say(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text to synthesize; - reads stdin.", show_default=False)],
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
    seed: Seed = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Synthesis model: s1, s2-pro, or a model of the backend.", show_default=False
        ),
    ] = None,
    knob: Annotated[
        list[str] | None,
        typer.Option(
            "--knob",
            metavar="NAME=VALUE",
            help="Backend parameter, such as noise_scale=0.3 for piper:; repeatable.",
            show_default=False,
        ),
    ] = None,
    backend: BackendAddress = None,
    device: Device = None,
    progress: Progress = None,
    show_text: ShowText = False,
    fields: dict[str, Any],
) -> None:
    """Synthesize TEXT. Prints file, audio duration, elapsed time and device."""
    text = _stdin() if text == "-" else text
    if show_text:
        _show_text(Call(TTSRequest.build(text=text, **fields), model or DEFAULT_MODEL))
        return
    fields["format"] = audio_format = _format(output, fields.get("format"))
    if reference or reference_text:
        fields["references"] = _references(reference or [], reference_text or [])
    # Validate before connecting: loading a backend takes seconds.
    TTSRequest.build(text=text, **fields)
    seed_value = None if seed is None else parse_value("seed", seed)
    target = output or f"speech.{audio_format}"
    check_folder(Path(target).parent, Path(target))
    start = time.perf_counter()
    with ExitStack() as opened:
        with _paused_collection():
            lab = opened.enter_context(connect(backend or None, device=device, model=model))
            knobs = _knob_values(knob or (), lab.capabilities.knobs)
            stream = lab.stream(text, seed=seed_value, **fields, **knobs)
        with stream, _bar(text, fields, enabled=progress) as advance:
            to_file = target != "-"
            seconds = speak_to_file(stream, Path(target), advance) if to_file else _copy(stream, write_bytes, advance)
        report = f"{seconds:.2f} s of audio in {time.perf_counter() - start:.2f} s on {stream.backend.device}"
    for note in stream.summary.notes:
        print_line(f"note: {note}", to_stderr=True)
    print_line(f"{target}: {report}", to_stderr=target == "-")


def _show_text(call: Call) -> None:
    """Print the spoken text, its changed passages with reasons, homographs in Arpabet, Chinese in pinyin, and notes."""
    from voicelab.engine.pointer.config import ALL_PHONES, Phonemes
    from voicelab.engine.pointer.family import PointerFamily
    from voicelab.engine.pointer.homographs import HOMOGRAPHS
    from voicelab.engine.pointer.mandarin import pinyin

    text, normalized = call.request.text, call.request.normalize
    plan = PointerFamily(None).plan(call)
    tagged = read_tags(text, call.model)
    with recorded_changes() as changes:
        result = (normalize if normalized else as_written)(tagged.said, ("en", "zh"))
    print_line(result.text)
    unmarked = plain(tagged.said).text if normalized else tagged.said
    steps = {"tag": tagged.said, "markup": unmarked, "characters": clean(unmarked, chinese=True).text}
    text_words, spoken_words = _WORD.findall(text), _WORD.findall(result.text)
    # The "and" of three pounds and fifty pence does not align with an "and" of the text.
    matcher = SequenceMatcher(lambda word: word == "and", text_words, spoken_words, autojunk=False)
    for kind, begin, end, first, last in matcher.get_opcodes():
        if kind != "equal":
            passage = _joined(text_words[begin:end])
            step = next((name for name, after in steps.items() if passage not in _joined(_WORD.findall(after))), "")
            rules = [rule for part, rule in changes if _overlaps(part, passage)]
            why = ", ".join(dict.fromkeys(filter(None, (step, *rules)))) or "punctuation"
            print_line(f"  {passage or '-'} → {_joined(spoken_words[first:last]) or '-'} ({why})")
    for segment in (segment for segment in plan.segments if isinstance(segment, Phonemes)):
        phones = [ALL_PHONES[phone] for phone in segment.phones]
        for word, begin, end in segment.words:
            if word.lower() in HOMOGRAPHS:
                print_line(f"  {word} → {' '.join(phones[begin:end]).upper().replace('AX', 'AH')} (homograph)")
        for chinese, run in groupby(segment.words, lambda word: is_han(word[0][0])):
            characters, begins, ends = zip(*run, strict=True)
            if chinese:
                syllables = (pinyin(phones[begin:end]) for begin, end in zip(begins, ends, strict=True))
                print_line(f"  {''.join(characters)} → {' '.join(syllables)} (pinyin)")
    for note in dict.fromkeys(plan.notes):
        print_line(f"note: {note}")


_WORD = re.compile(rf"[{HAN}]|[^\s{HAN}]+")
"""A word, or a Chinese character."""


def _joined(words: Sequence[str]) -> str:
    return re.sub(rf"(?<=[{HAN}]) (?=[{HAN},.?!;:])", "", " ".join(words))


def _overlaps(part: str, passage: str) -> bool:
    """Test whether the text that a rule changed is in a passage, contains it, or shares a number or symbol with it."""
    part = " ".join(part.split())
    shared = {token for token in part.split() if not token.isalpha()}.intersection(passage.split())
    return bool(part) and (part in passage or passage in part or bool(shared))


def _format(output: str | None, option: str | None) -> str:
    """Determine the format from the file's suffix and --format. Raises RequestInvalid if they contradict each other."""
    suffix = Path(output).suffix.lower() if output and output != "-" else ""
    if not suffix or (option is not None and suffix not in _SUFFIXES):
        return option or _DEFAULT_FORMAT
    if suffix not in _SUFFIXES:
        message = f"suffix must be {', '.join(_SUFFIXES)}, got {suffix!r}; or pass --format"
        raise RequestInvalid.of("format", message)
    if option is not None and option != _SUFFIXES[suffix]:
        raise RequestInvalid.of("format", f"must match the file's suffix {suffix!r}, got {option}")
    return _SUFFIXES[suffix]


def _references(paths: list[Path], texts: list[str]) -> list[ReferenceAudio]:
    """Read reference recordings. Transcripts are optional: the embedded voice does not need them."""
    if texts and len(texts) != len(paths):
        message = f"need one --reference-text per --reference, or none; got {len(texts)} for {len(paths)}"
        raise RequestInvalid.of("references", message)
    pairs = zip(paths, texts or [""] * len(paths), strict=True)
    return [ReferenceAudio(audio=path.read_bytes(), text=text) for path, text in pairs]


def _knob_values(options: Iterable[str], knobs: Sequence[Knob]) -> dict[str, Any]:
    names = [knob.name for knob in knobs]
    values = {}
    for option in options:
        name, equals, text = option.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise RequestInvalid.of("knob", f"must be NAME=VALUE, got {option!r}", in_="query")
        if name not in names:
            allowed = f"must be {' or '.join(names)}" if names else "the backend has no parameters besides the fields"
            raise RequestInvalid.of("knob", f"unknown parameter {name!r}; {allowed}", in_="query")
        values[name] = parse_value(name, text, knobs)
    return values


@contextmanager
def _paused_collection() -> Iterator[None]:
    """Pause garbage collection while modules are loaded, because it takes a tenth of the loading time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _bar(text: str, fields: dict[str, Any], *, enabled: bool | None) -> Iterator[Advance]:
    """Show a progress bar on stderr: seconds of audio relative to the expected duration."""
    if enabled is None:
        enabled = sys.stderr.isatty() and len(text) > _BAR_MIN_CHARACTERS
    if not enabled:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    expected = max(1.0, Call.of(text, fields).expected_seconds)
    columns = (TextColumn("speaking"), BarColumn(), TextColumn("{task.completed:.1f} s of audio"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("speaking", total=expected)

        def advance(seconds: float) -> None:
            # Audio may be longer than estimated: the bar then stays at 98%.
            total = expected if seconds < expected * 0.98 else seconds / 0.98
            progress.update(task, completed=seconds, total=total)

        yield advance
        finished = progress.tasks[task].completed
        progress.update(task, total=finished)


def _stdin() -> str:
    """Read UTF-8 text from stdin, with or without a byte order mark. Raises RequestInvalid."""
    data = sys.stdin.buffer.read()
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        offset = error.start + (len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
        message = f"stdin must be UTF-8, invalid at byte {offset}; convert it, for example: iconv -f LATIN1 -t UTF-8"
        raise RequestInvalid.of("text", message, type="string_unicode") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


Advance = Callable[[float], None]
"""Progress callback, called with the seconds of audio so far."""

_MAX_HEADER_BYTES = 1 << 20


def speak_to_file(stream: SpeechStream, path: Path, advance: Advance) -> float:
    """Write a stream's bytes to a file atomically, with exact sizes in a WAV header; return the seconds of audio.

    Raises OSError if the file cannot be written, and the errors of the stream.
    """
    with _output_file(path) as file:
        seconds = _copy(stream, file.write, advance)
        if stream.request.format == "wav" and file.readable():
            complete_wav(file)
    return seconds


def complete_wav(file: BinaryIO) -> None:
    """Write the exact sizes into the header of a streamed WAV; leave other files unchanged."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = file.read(_MAX_HEADER_BYTES)
    start, size, _ = wav_head(header)
    if header[:4] == b"RIFF" and header[8:12] == b"WAVE" and size is not None and start + size > length:
        for offset, size_bytes in ((start - 4, length - start), (4, length - 8)):
            file.seek(offset)
            file.write(struct.pack("<I", size_bytes))


def _copy(stream: SpeechStream, write: Callable[[bytes], object], advance: Advance) -> float:
    samples = 0
    # The duration of a compressed stream is known only by decoding it.
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
        # Devices and pipes must not be replaced.
        with path.open("wb") as file:
            yield file
        return
    with on_disk(path):
        make_folder(path.parent)
    with open_atomic(path) as file:
        yield file
