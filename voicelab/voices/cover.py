"""Cover images: PNG, JPEG or WebP by their content, whatever they were called, and no larger than a picture is."""

from __future__ import annotations

import io
from typing import Final, Literal

from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from voicelab.audio.sandbox import Sandbox
from voicelab.errors import AudioError, RequestInvalid

__all__ = ["MAX_COVER_BYTES", "MAX_COVER_SIDE", "ImageKind", "check_cover", "image_kind"]

ImageKind = Literal["png", "jpeg", "webp"]

MAX_COVER_BYTES = 10 * 2**20
"""Bytes of the largest cover image that is taken."""
MAX_COVER_SIDE = 8192
"""Pixels of its longest side."""

# Imported above, since the sandbox can open no file later.
_DECODERS: Final[dict[ImageKind, type[ImageFile]]] = {"png": PngImageFile, "jpeg": JpegImageFile, "webp": WebPImageFile}


def image_kind(data: bytes) -> ImageKind | None:
    """Return what the first bytes are the beginning of: PNG, JPEG or WebP; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
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
    try:
        problem = _PICTURES.call(data, kind=kind)
    except AudioError as error:
        raise _refused("The image is damaged") from error
    if problem:
        raise _refused(problem.decode())
    return kind


def picture_problem(data: bytes, *, kind: ImageKind) -> bytes:
    """Decode a picture, of which nothing is kept; return what is wrong with it, nothing when all is well.

    Raises AudioError when it is damaged. Runs in the sandbox.
    """
    try:
        with _DECODERS[kind](io.BytesIO(data)) as picture:
            # Before decoding: a few kilobytes can unpack into gigabytes.
            if not all(1 <= side <= MAX_COVER_SIDE for side in picture.size):
                return f"The image should be 1 to {MAX_COVER_SIDE} pixels wide and high".encode()
            picture.load()
    except Exception as error:
        raise AudioError("the image is damaged") from error
    return b""


def _refused(message: str) -> RequestInvalid:
    return RequestInvalid.of("cover_image", message, type="image_invalid")


_PICTURES = Sandbox(picture_problem, most=200)
