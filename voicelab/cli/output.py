"""Where spoken audio goes: a file that is either complete or not there, or stdout as it comes."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from voicelab.audio.formats import StreamDecoder
from voicelab.backend import SpeechStream
from voicelab.cli.console import write_bytes

__all__ = ["Advance", "Report", "complete_wav", "speak_to_file", "speak_to_stdout"]

Advance = Callable[[float], None]
"""Told the seconds of audio so far after every chunk."""

_RIFF_HEADER = 12
_CHUNK_HEADER = 8


@dataclass(frozen=True, slots=True)
class Report:
    """What a command says about audio it made; times in seconds."""

    file: str
    audio_s: float
    taken_s: float
    device: str

    def line(self) -> str:
        """Return the report as one line."""
        return f"{self.file}: {self.audio_s:.2f} s of audio in {self.taken_s:.2f} s on {self.device}"


def speak_to_file(stream: SpeechStream, path: Path, advance: Advance) -> float:
    """Write a stream's bytes as they are, and return the seconds of audio.

    The sizes in a WAV are made exact. When anything fails, an older file of this name stays as it was.
    Raises OSError when the file cannot be written, and whatever the stream raises.
    """
    with _whole_or_not_at_all(path) as file:
        seconds = _copy(stream, file.write, advance)
        if stream.request.format == "wav" and file.readable():
            complete_wav(file)
    return seconds


def speak_to_stdout(stream: SpeechStream, advance: Advance) -> float:
    """Write a stream's bytes to stdout, each chunk when it comes, and return the seconds of audio."""
    return _copy(stream, write_bytes, advance)


def complete_wav(file: BinaryIO) -> None:
    """Put the true sizes into a WAV whose length was not known when it began.

    A file that is no RIFF WAVE, or whose data chunk has its size, stays as it is.
    """
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_RIFF_HEADER)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return
    at = _RIFF_HEADER
    while at + _CHUNK_HEADER <= length:
        file.seek(at)
        name, size = struct.unpack("<4sI", file.read(_CHUNK_HEADER))
        if name == b"data":
            if at + _CHUNK_HEADER + size > length:
                file.seek(at + 4)
                file.write(struct.pack("<I", length - at - _CHUNK_HEADER))
                file.seek(4)
                file.write(struct.pack("<I", length - 8))
            return
        at += _CHUNK_HEADER + size + size % 2


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
def _whole_or_not_at_all(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():
        # A device or a pipe cannot be replaced, and must not be.
        with path.open("wb") as file:
            yield file
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        # mkstemp makes a file for its owner alone; this one is as any other of theirs.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
