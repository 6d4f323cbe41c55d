"""WAV, MPEG audio and Ogg Opus read by hand from their own specifications, without voicelab's codecs."""

from __future__ import annotations

import struct
from typing import NamedTuple

# ISO/IEC 11172-3, 2.4.2.3: MPEG-1 Layer III
_KBPS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_HZ = (44100, 48000, 32000)


class Wav(NamedTuple):
    riff_size: int
    tag: int  # 1 is PCM
    channels: int
    rate: int
    byte_rate: int
    block: int
    bits: int
    data_size: int
    data: bytes


def wav(raw: bytes) -> Wav:
    riff, riff_size, wave = struct.unpack_from("<4sI4s", raw)
    assert (riff, wave) == (b"RIFF", b"WAVE")
    name, size, tag, channels, rate, byte_rate, block, bits = struct.unpack_from("<4sIHHIIHH", raw, 12)
    assert name == b"fmt "
    at = 20 + size
    name, data_size = struct.unpack_from("<4sI", raw, at)
    assert name == b"data"
    return Wav(riff_size, tag, channels, rate, byte_rate, block, bits, data_size, raw[at + 8 :])


class Frame(NamedTuple):
    """An MPEG-1 Layer III frame of 1152 samples."""

    kbps: int
    rate: int
    mono: bool


def mpeg(raw: bytes) -> list[Frame]:
    """All frames; every byte of the stream belongs to one."""
    at, frames = 0, []
    if raw[:3] == b"ID3":
        at = 10 + sum(byte << shift for byte, shift in zip(raw[6:10], (21, 14, 7, 0), strict=True))
    while at < len(raw):
        (word,) = struct.unpack_from(">I", raw, at)
        assert word >> 20 == 0xFFF, f"no frame at byte {at}"
        assert word >> 17 & 7 == 0b101, "not MPEG-1 Layer III"
        kbps, rate = _KBPS[word >> 12 & 15], _HZ[word >> 10 & 3]
        frames.append(Frame(kbps, rate, word >> 6 & 3 == 3))
        at += 144_000 * kbps // rate + (word >> 9 & 1)
    assert at == len(raw), "the last frame is cut"
    return frames


class Page(NamedTuple):
    flags: int  # 2 begins the stream, 4 ends it
    granule: int
    serial: int
    sequence: int
    packets: list[bytes]


def ogg(raw: bytes) -> list[Page]:
    """All pages (RFC 3533), each with its checksum verified; packets must not span pages."""
    at, pages = 0, []
    while at < len(raw):
        capture, version, flags, granule, serial, sequence, crc, count = struct.unpack_from("<4sBBqIIIB", raw, at)
        assert (capture, version) == (b"OggS", 0)
        lacing = raw[at + 27 : at + 27 + count]
        end = at + 27 + count + sum(lacing)
        assert end <= len(raw), "the last page is cut"
        value = 0
        for byte in raw[at : at + 22] + bytes(4) + raw[at + 26 : end]:
            value ^= byte << 24
            for _ in range(8):
                value = (value << 1 ^ 0x04C11DB7 if value >> 31 else value << 1) & 0xFFFFFFFF
        assert value == crc, f"page {sequence} is damaged"
        packets, packet, place = [], b"", at + 27 + count
        for size in lacing:
            packet += raw[place : place + size]
            place += size
            if size < 255:
                packets.append(packet)
                packet = b""
        assert not packet
        pages.append(Page(flags, granule, serial, sequence, packets))
        at = end
    return pages


class OpusHead(NamedTuple):
    """RFC 7845, 5.1."""

    version: int
    channels: int
    pre_skip: int
    rate: int
    gain: int
    mapping: int


def opus_head(packet: bytes) -> OpusHead:
    assert packet[:8] == b"OpusHead"
    return OpusHead(*struct.unpack_from("<BBHIhB", packet, 8))


def opus_samples(packet: bytes) -> int:
    """Samples at 48 kHz in a packet (RFC 6716, 3.1)."""
    config, code = packet[0] >> 3, packet[0] & 3
    if config < 12:
        size = (480, 960, 1920, 2880)[config % 4]
    elif config < 16:
        size = (480, 960)[config % 2]
    else:
        size = (120, 240, 480, 960)[config % 4]
    return size * (1, 2, 2, packet[1] & 63 if code == 3 else 0)[code]


def opus_mono(packet: bytes) -> bool:
    return not packet[0] & 4


def chunks(raw: bytes) -> tuple[list[bytes], bytes]:
    """The chunks of a chunked body (RFC 9112, 7.1), without the empty last one, and what is left after it."""
    found: list[bytes] = []
    while True:
        line, _, raw = raw.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        chunk, raw = raw[:size], raw[size:]
        assert raw[:2] == b"\r\n", "a chunk does not end where its size says"
        raw = raw[2:]
        if not size:
            return found, raw
        assert len(chunk) == size
        found.append(chunk)
