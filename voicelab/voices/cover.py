"""Cover images: PNG, JPEG or WebP by their content, whatever they were called, and no larger than a picture is."""

from __future__ import annotations

import io
import struct
from typing import Literal

import av

from voicelab.audio.sandbox import Sandbox
from voicelab.errors import AudioError, RequestInvalid

__all__ = ["MAX_COVER_BYTES", "MAX_COVER_SIDE", "ImageKind", "check_cover", "image_kind"]

ImageKind = Literal["png", "jpeg", "webp"]

MAX_COVER_BYTES = 10 * 2**20
"""Bytes of the largest cover image that is taken."""
MAX_COVER_SIDE = 8192
"""Pixels of its longest side."""

_DEMUXERS = {"png": "png_pipe", "jpeg": "jpeg_pipe", "webp": "webp_pipe"}
_PNG = b"\x89PNG\r\n\x1a\n"
# Start-of-frame markers; C4, C8 and CC lie among them and are something else.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_kind(data: bytes) -> ImageKind | None:
    """Tell PNG, JPEG and WebP by their first bytes; None for anything else."""
    if data.startswith(_PNG):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return None


def check_cover(data: bytes) -> ImageKind:
    """Return what kind of picture it is, after decoding it. Raises RequestInvalid for ``cover_image``."""
    if len(data) > MAX_COVER_BYTES:
        raise _refused(f"The image has {len(data)} bytes; at most {MAX_COVER_BYTES} are taken")
    kind = image_kind(data)
    if kind is None:
        raise _refused("The image should be PNG, JPEG or WebP")
    # Before decoding: a few kilobytes can unpack into gigabytes.
    size = _size(data, kind)
    if size is None or not all(1 <= side <= MAX_COVER_SIDE for side in size):
        raise _refused(f"The image should be 1 to {MAX_COVER_SIDE} pixels wide and high")
    try:
        _PICTURES.call(data, kind=kind)
    except AudioError as error:
        raise _refused("The image is damaged") from error
    return kind


def decode_picture(data: bytes, *, kind: ImageKind) -> bytes:
    """Decode a picture, of which nothing is kept. Raises AudioError when it is damaged. Runs in the sandbox."""
    try:
        with av.open(io.BytesIO(data), "r", format=_DEMUXERS[kind]) as source:
            frame = next(iter(source.decode(video=0)), None)
    except (av.FFmpegError, IndexError) as error:
        raise AudioError("the image is damaged") from error
    if frame is None:
        raise AudioError("the image is damaged")
    return b""


def _size(data: bytes, kind: ImageKind) -> tuple[int, int] | None:
    try:
        if kind == "png":
            return struct.unpack_from(">II", data, 16)
        return _jpeg_size(data) if kind == "jpeg" else _webp_size(data)
    except (struct.error, IndexError):
        return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while data[at] == 0xFF:
        marker, length = struct.unpack_from(">xBH", data, at)
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    return None


def _refused(message: str) -> RequestInvalid:
    return RequestInvalid.of("cover_image", message, type="image_invalid")


_PICTURES = Sandbox(decode_picture, most=0)
