"""MP3 frame headers and the Info frame (Xing/LAME header), which states encoder delay and padding.

The layout is LAME's (http://gabriel.mp3-tech.org/mp3infotag.html), inside a frame that other decoders play as silence.
Frames and tags are parsed here because FFmpeg writes the Info frame only for complete files, and reports no error
for truncated MP3 (it detects 1 of 100 truncated files, this module 99: bench/readers.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MP3_FRAME = 1152
"""Samples in a frame of MPEG-1 layer III."""
MP3_DELAY = 1105
"""Delay in samples of decoded LAME audio: 576 of the encoder, 529 of the decoder."""

_ENCODER_DELAY, _DECODER_DELAY = 576, 529
# Offset in bytes, after the frame header and the side information of one channel.
_TAG_OFFSET = 4 + 17
# kbit/s by index for layer III of MPEG-1 and of MPEG-2, and Hz by index for MPEG-1; 0 where undefined.
_BITRATES = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)
_HALF_BITRATES = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)
_RATES = (44100, 48000, 32000, 0)


@dataclass(frozen=True, slots=True)
class Mp3Info:
    """Number of samples to skip at the beginning, and number of audio samples after those (None if unknown)."""

    skip: int
    length: int | None


def info_frame(audio_frame: bytes, frames: int | None = None, size: int | None = None, padding: int = 0) -> bytes:
    """Build the Info frame of a mono MPEG-1 layer III stream.

    Args:
        audio_frame: first frame of the stream, or its header.
        frames: number of audio frames; None for a stream whose length is unknown.
        size: size of the file in bytes, including this frame; None for a stream.
        padding: samples of padding after the audio.
    """
    header = bytearray(audio_frame[:4])
    header[2] &= 0xFD  # clear the padding bit
    tag = bytearray(b"Info")
    tag += struct.pack(">I", 0) if frames is None or size is None else struct.pack(">III", 3, frames, size)
    bitrate = _BITRATES[header[2] >> 4]
    # Encoder, constant bitrate, then zeros for lowpass, peak, two replay gains and flags.
    tag += b"LAME3.100" + bytes((1,)) + bytes(1 + 4 + 2 + 2 + 1) + bytes((bitrate,))
    tag += ((_ENCODER_DELAY << 12) | min(padding, 0xFFF)).to_bytes(3, "big")
    tag += bytes(1 + 1 + 2) + struct.pack(">IH", size or 0, 0)
    head = bytes(header) + bytes(_TAG_OFFSET - 4) + bytes(tag)
    return (head + struct.pack(">H", _crc16(head))).ljust(frame_length(bytes(header)) or 0, b"\0")


def read_info(frame: bytes) -> Mp3Info | None:
    """Parse an Info frame; return None for a frame of audio."""
    offset = max(frame.find(b"Xing", 0, 64), frame.find(b"Info", 0, 64))
    if offset < 0 or len(frame) < offset + 8:
        return None
    flags = int.from_bytes(frame[offset + 4 : offset + 8], "big")
    frames = int.from_bytes(frame[offset + 8 : offset + 12], "big") if flags & 1 else 0
    tag = offset + 8 + 4 * (flags & 1) + 4 * bool(flags & 2) + 100 * bool(flags & 4) + 4 * bool(flags & 8)
    if len(frame) < tag + 24 or frame[tag : tag + 4] not in (b"LAME", b"Lavf", b"Lavc"):
        return Mp3Info(skip=0, length=None)
    packed = int.from_bytes(frame[tag + 21 : tag + 24], "big")
    delay, padding = packed >> 12, packed & 0xFFF
    size = MP3_FRAME if frame[1] & 0x08 else MP3_FRAME // 2
    length = max(0, frames * size - delay - padding) if frames else None
    return Mp3Info(skip=delay + _DECODER_DELAY, length=length)


def with_exact_info(data: bytes, samples: int) -> bytes:
    """Replace the Info frame of a complete stream with one that states the length, ``samples``."""
    frames = -(-(samples + MP3_DELAY) // MP3_FRAME)
    padding = frames * MP3_FRAME - samples - _ENCODER_DELAY
    length = frame_length(data[:4]) or 0
    return info_frame(data, frames, len(data), padding) + data[length:]


def frame_length(header: bytes) -> int | None:
    """Return the size in bytes of the frame that begins with ``header``; None if it is invalid or has no fixed bitrate."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return None
    # 3 is MPEG-1, 2 is MPEG-2 (half the rates and samples), 0 is MPEG-2.5 (a quarter of the rates).
    version = header[1] >> 3 & 3
    rate = _RATES[header[2] >> 2 & 3] // {3: 1, 2: 2, 0: 4}.get(version, 1)
    bitrate = (_BITRATES if version == 3 else _HALF_BITRATES)[header[2] >> 4]
    if not bitrate or not rate or version == 1:
        return None
    return (144_000 if version == 3 else 72_000) * bitrate // rate + (header[2] >> 1 & 1)


def _crc16(data: bytes) -> int:
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
    return value
