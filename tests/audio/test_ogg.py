from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from voicelab.audio.formats import encode
from voicelab.audio.ogg import OggPage, OggReader
from voicelab.audio.samples import Samples
from voicelab.errors import AudioError


@pytest.fixture(scope="module")
def data(babble: Callable[..., Samples]) -> bytes:
    return encode(babble(48000, 0.5), "opus", 48000)


def starts(data: bytes) -> list[int]:
    found = [0]
    while (at := data.find(b"OggS", found[-1] + 1)) >= 0:
        found.append(at)
    return found


def test_pages_come_out_the_same_however_the_bytes_are_cut(
    data: bytes, pieces: Callable[..., Iterator[tuple[int, int]]]
) -> None:
    whole = OggReader().feed(data)
    for seed, longest in ((1, 1), (2, 50), (3, 5000)):
        reader = OggReader()
        parts: list[OggPage] = []
        for begin, end in pieces(len(data), seed, longest):
            parts += reader.feed(data[begin:end])
        assert parts == whole
        assert not reader.within_page
    assert [page.last for page in whole] == [False] * (len(whole) - 1) + [True]


def test_every_flipped_byte_of_a_page_is_noticed(data: bytes) -> None:
    first, second = starts(data)[2:4]
    for at in range(first, second, 7):
        damaged = data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :]
        with pytest.raises(AudioError, match="opus: "):
            OggReader().feed(damaged)


def test_a_missing_page_is_noticed(data: bytes) -> None:
    first, second = starts(data)[3:5]
    with pytest.raises(AudioError, match="missing"):
        OggReader().feed(data[:first] + data[second:])


def test_a_part_of_a_page_is_told(data: bytes) -> None:
    reader = OggReader()
    reader.feed(data[:-1])
    assert reader.within_page


def test_a_packet_over_several_pages_is_put_together() -> None:
    packet = np.random.default_rng(0).integers(0, 256, 255 * 3 + 10, np.uint8).tobytes()
    pages = [page_of(0, 0, bytes((255, 255)), packet[:510]), page_of(1, 1, bytes((255, 10)), packet[510:])]
    reader = OggReader()
    assert [page.packets for page in reader.feed(pages[0])] == [()]
    assert reader.within_page
    assert [page.packets for page in reader.feed(pages[1])] == [(packet,)]
    lonely = OggReader()
    with pytest.raises(AudioError, match="broken off"):
        lonely.feed(page_of(0, 1, bytes((10,)), packet[:10]))


def page_of(number: int, flags: int, lengths: bytes, body: bytes) -> bytes:
    """Build a page by the RFC, with a checksum computed bit by bit."""
    page = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, 0, 7, number, 0, len(lengths)) + lengths + body
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1) ^ (0x04C11DB7 if value & 0x80000000 else 0)
        value &= 0xFFFFFFFF
    return page[:22] + struct.pack("<I", value) + page[26:]
