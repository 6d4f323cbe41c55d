from __future__ import annotations

import io
import struct

import pytest

from voicelab.cli.output import Report, complete_wav

AUDIO = bytes(range(10))
UNKNOWN = 0xFFFFFFFF


def _wav(*, riff: int, data: int, extra: bytes = b"") -> bytes:
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    return b"RIFF" + struct.pack("<I", riff) + b"WAVE" + fmt + extra + b"data" + struct.pack("<I", data) + AUDIO


@pytest.mark.parametrize("extra", [b"", b"LIST" + struct.pack("<I", 3) + b"abc\0"], ids=["plain", "odd chunk before"])
def test_sizes_that_were_unknown_become_exact(extra: bytes) -> None:
    file = io.BytesIO(_wav(riff=UNKNOWN, data=UNKNOWN, extra=extra))
    complete_wav(file)
    assert file.getvalue() == _wav(riff=36 + len(extra) + len(AUDIO), data=len(AUDIO), extra=extra)


@pytest.mark.parametrize(
    "content",
    [_wav(riff=46, data=10), b"", b"RIFF", b"ID3" + bytes(60), b"RIFF\0\0\0\0WAVE"],
    ids=["exact", "empty", "cut", "mp3", "no data"],
)
def test_anything_else_stays_as_it_is(content: bytes) -> None:
    file = io.BytesIO(content)
    complete_wav(file)
    assert file.getvalue() == content


def test_a_report_is_one_line() -> None:
    assert Report("a.wav", 2.346, 0.5, "cpu").line() == "a.wav: 2.35 s of audio in 0.50 s on cpu"
