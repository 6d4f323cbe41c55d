"""Descriptions of the damage in audio files that cannot be decoded."""

from __future__ import annotations

import io
from typing import Final

from voicelab.audio.decoders import UNKNOWN_FROM, wav_head

# First bytes of files that are often named or downloaded as audio.
_SIGNATURES: Final = {
    b"<!doctype html": "an HTML page (a download that failed?)",
    b"<html": "an HTML page (a download that failed?)",
    b"version https://git-lfs": "a Git LFS pointer: run git lfs pull",
    b"\0\5\x16\7": "an AppleDouble file of macOS, which has no audio",
    b"pk\3\4": "a ZIP archive",
    b"\x1f\x8b": "a gzip archive",
    b"%pdf": "a PDF",
    b"\x89png": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
}
_VAGUE: Final = ("the audio is damaged:", "cut off", "signatures", "no audio")
_AUDIO: Final = (b"riff", b"flac", b"oggs", b"id3", b"form", b"\x1aE\xdf\xa3".lower())


def damage_of(data: bytes, error: Exception) -> str:
    """Describe why a file cannot be decoded: its actual type, or the seconds of audio before the damage.

    ``error`` was raised by the decoder; its message is returned if it is more specific.
    """
    if not data:
        return "the file is empty"
    if not data.strip(b"\0"):
        return f"the file consists of {len(data)} zero bytes"
    head = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return f"the file is {kind}"
    if not any(phrase in str(error) for phrase in _VAGUE):
        return str(error)
    if seconds := _decodable_s(data):
        declared = _wav_s(data)
        of = f" of {declared:.2f} s" if declared > seconds else ""
        return f"the audio is truncated or damaged after {seconds:.2f} s{of}"
    if head.startswith(_AUDIO) or data[4:8] == b"ftyp":
        return "the audio is truncated or damaged before its first sample"
    is_text = all(byte > 31 or byte in b"\t\r\n" for byte in data[:4096])
    return "the file is text, not audio" if is_text else "the file is not in a known audio format"


def _decodable_s(data: bytes) -> float:
    """Compute the seconds of audio that FFmpeg decodes before the first error."""
    import av

    seconds = 0.0
    try:
        with av.open(io.BytesIO(data), "r") as source:
            for frame in source.decode(audio=0):
                seconds += frame.samples / frame.sample_rate
    except (av.FFmpegError, IndexError, ValueError):
        pass
    return seconds


def _wav_s(data: bytes) -> float:
    """Return the duration in seconds that the header of a WAV file states; 0 for other files."""
    if data[:4] != b"RIFF":
        return 0.0
    _, size, form = wav_head(data)
    bytes_per_s = int.from_bytes(form[8:12], "little")
    return size / bytes_per_s if size and size < UNKNOWN_FROM and bytes_per_s else 0.0
