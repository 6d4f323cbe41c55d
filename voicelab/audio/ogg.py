"""Read Ogg pages as they arrive (RFC 3533), just enough for one stream of Opus (RFC 7845)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from voicelab.errors import AudioError

__all__ = ["OggPage", "OggReader"]

_FIXED = 27
_CONTINUED, _LAST = 1, 4
# Audio has at most 61 kB; tags may hold a picture.
_LONGEST_PACKET = 16 * 2**20


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = (value << 1) ^ (0x04C11DB7 if value & 0x80000000 else 0)
        entries.append(value & 0xFFFFFFFF)
    return tuple(entries)


_CRC = _table()


def _crc(data: bytes) -> int:
    value = 0
    for byte in data:
        value = ((value << 8) & 0xFFFFFFFF) ^ _CRC[(value >> 24) ^ byte]
    return value


@dataclass(frozen=True, slots=True)
class OggPage:
    """The packets that end on a page; ``granule`` counts samples up to its end, -1 when none ends."""

    packets: tuple[bytes, ...]
    granule: int
    last: bool


class OggReader:
    """Turn bytes into pages. Raises AudioError on damage: checksums and page numbers are compared."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._partial = bytearray()
        self._continues = False
        self._next_number = 0
        self._serial: int | None = None

    @property
    def within_page(self) -> bool:
        """Whether bytes are waiting for the rest of their page or packet."""
        return bool(self._bytes) or self._continues

    def feed(self, data: bytes) -> list[OggPage]:
        """Take bytes, return the pages that are complete."""
        self._bytes += data
        pages = []
        while (page := self._next()) is not None:
            pages.append(page)
        return pages

    def _next(self) -> OggPage | None:
        held = self._bytes
        if held[:4] != b"OggS"[: len(held)]:
            raise AudioError("opus: an Ogg page does not begin where it should; the audio is damaged")
        if len(held) < _FIXED or len(held) < _FIXED + held[26]:
            return None
        lengths = held[_FIXED : _FIXED + held[26]]
        begin = _FIXED + held[26]
        end = begin + sum(lengths)
        if len(held) < end:
            return None
        page = bytes(held[:end])
        del held[:end]
        self._check(page)
        flags = page[5]
        if bool(flags & _CONTINUED) != self._continues:
            raise AudioError("opus: a packet is broken off between two Ogg pages; the audio is damaged")
        (granule,) = struct.unpack_from("<q", page, 6)
        return OggPage(self._packets(page, bytes(lengths), begin), granule, bool(flags & _LAST))

    def _check(self, page: bytes) -> None:
        serial, number, checksum = struct.unpack_from("<III", page, 14)
        if checksum != _crc(page[:22] + bytes(4) + page[26:]):
            raise AudioError("opus: the checksum of an Ogg page is wrong; the audio is damaged")
        if self._serial is None:
            self._serial, self._next_number = serial, number
        if serial != self._serial:
            raise AudioError("opus: there is more than one stream in the Ogg file")
        if number != self._next_number:
            raise AudioError("opus: an Ogg page is missing")
        self._next_number = number + 1

    def _packets(self, page: bytes, lengths: bytes, begin: int) -> tuple[bytes, ...]:
        packets: list[bytes] = []
        for length in lengths:
            self._partial += page[begin : begin + length]
            begin += length
            # A segment of 255 bytes says that its packet goes on.
            if length < 255:
                packets.append(bytes(self._partial))
                self._partial.clear()
        if len(self._partial) > _LONGEST_PACKET:
            raise AudioError("opus: a packet is longer than any packet of audio or tags")
        self._continues = bool(lengths) and lengths[-1] == 255
        return tuple(packets)
