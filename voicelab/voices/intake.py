"""Preparation of uploaded recordings of a voice: decode, mix to mono, trim, normalize the level, transcribe."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Final, Literal

import numpy as np
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from voicelab.asr.alignment import MATCHING, Aligner, default_aligner
from voicelab.asr.recognizers import Recognizer
from voicelab.audio.denoise import enhance, survey
from voicelab.audio.samples import Samples, resample
from voicelab.audio.sandbox import Sandbox, decode_apart
from voicelab.clip import Clip
from voicelab.distribution import DISTRIBUTION
from voicelab.errors import AudioError, FieldError, RequestInvalid
from voicelab.schema import VoiceCreate
from voicelab.voices.store import Sample

MAX_FILES = 20
"""Maximum number of voice files per voice model."""
MAX_TAGS = 64
"""Maximum number of tags per voice model."""
RATE = 44_100
"""Sample rate in Hz of stored recordings, 16-bit WAV."""

# Limits in characters. Records are limited because each synthesis reads the complete record. The limit of transcripts is that
# of request texts.
_MAX_LENGTHS = {"title": 1000, "description": 10_000, "texts": 20_000, "tags": 100}
_LEVEL = -23.0
"""Target level of recordings: RMS of active frames in dBFS."""
_MAX_PEAK = 0.89
_MARGIN_S = 0.2
_MIN_BEST_S, _MAX_BEST_S = 10.0, 30.0
_NOISY_SNR_DB, _CLEAN_SNR_DB = 15.0, 60.0
_MAX_TRANSCRIBED_S = 60.0
"""Maximum seconds of each recording that are transcribed."""


def prepare_samples(
    request: VoiceCreate,
    recognizer: Callable[[], Recognizer | None],
    aligner: Callable[[], Aligner | None] = default_aligner,
) -> tuple[Sample, ...]:
    """Prepare the recordings of a request for the store, in order.

    Notes are appended to the title of a sample if the duration is not 10 to 30 s, the recording is noisy or was enhanced, or
    the transcript is missing or does not match.

    Args:
        request: Request with encoded recordings.
        recognizer: Called to create missing transcripts; if it returns None, they stay empty.
        aligner: Called to check the request's transcripts; if it returns None, they are not checked.

    Raises:
        RequestInvalid: A recording contains no audio or speech, or is too large or too long (the error states its index);
            there are too many files or tags; a title, description, text or tag is too long; or the cover image is invalid.
    """
    errors = list(_limit_errors(request))
    if request.cover_image:
        try:
            check_cover(request.cover_image)
        except RequestInvalid as error:
            errors.extend(error.errors)
    if errors:
        raise RequestInvalid(errors)
    recordings: list[tuple[Samples, list[str]]] = []
    for number, data in enumerate(request.voices):
        try:
            recordings.append(_prepare(data, enhanced=request.enhance_audio_quality))
        except AudioError as error:
            message = f"Voice file {number + 1}: {error}"
            errors.append(FieldError(("body", "voices"), "audio_invalid", message, ctx=f"index: {number}"))
    if errors:
        raise RequestInvalid(errors)
    asr_model = None if request.texts else recognizer()
    text_aligner = aligner() if request.texts else None
    samples = []
    for number, (sound, notes) in enumerate(recordings):
        if request.texts:
            text = request.texts[number]
            text_notes = _match_notes(sound, text, text_aligner)
        else:
            text, text_notes = _transcript(sound, asr_model)
        title = "; ".join((f"Sample {number + 1}, {sound.size / RATE:.1f} s", *notes, *text_notes))
        samples.append(Sample(Clip(sound, RATE).to_bytes("wav"), text, title))
    return tuple(samples)


def _limit_errors(request: VoiceCreate) -> Iterator[FieldError]:
    for name, limit in _MAX_LENGTHS.items():
        value = getattr(request, name) or ""
        if any(len(text) > limit for text in ((value,) if isinstance(value, str) else value)):
            message = f"must have at most {limit} characters"
            yield FieldError(("body", name), "string_too_long", message, ctx=f"max_length: {limit}")
    for name, noun, limit in (("tags", "tags", MAX_TAGS), ("voices", "voice files", MAX_FILES)):
        if (count := len(getattr(request, name))) > limit:
            message = f"must have at most {limit} {noun}, got {count}"
            yield FieldError(("body", name), "too_long", message, ctx=f"max_length: {limit}")


def _prepare(data: bytes, *, enhanced: bool) -> tuple[Samples, list[str]]:
    """Decode a recording and prepare it for storage at ``RATE``; return it with notes for its title. Raises AudioError."""
    samples, rate = decode_apart(data)
    result = survey(samples, rate)
    if result.problem:
        raise AudioError(f"no speech detected: {result.problem}")
    original_snr = result.snr
    if enhanced:
        # Denoise before trimming, since the noise is estimated from pauses.
        samples = enhance(samples, rate)
        result = survey(samples, rate)
    start = max(0, int((result.start - _MARGIN_S) * rate))
    trimmed = samples[start : int((result.end + _MARGIN_S) * rate)]
    trimmed = resample(trimmed - np.float32(trimmed.mean()), rate, RATE)
    gain = 10 ** ((_LEVEL - result.level) / 20)
    # Reduce the gain instead of limiting peaks, which would change the voice.
    gain = min(gain, _MAX_PEAK / max(float(np.abs(trimmed).max()), 1e-9))
    sound = (trimmed * np.float32(gain)).astype(np.float32)
    notes, seconds = list[str](), sound.size / RATE
    if not _MIN_BEST_S <= seconds <= _MAX_BEST_S:
        comparison = "shorter" if seconds < _MIN_BEST_S else "longer"
        notes.append(f"{comparison} than the {_MIN_BEST_S:g} to {_MAX_BEST_S:g} s that clone best")
    if enhanced:
        notes.append("enhanced" + (f", original SNR {original_snr:.0f} dB" if original_snr < _CLEAN_SNR_DB else ""))
    if result.snr < _NOISY_SNR_DB:
        notes.append(f"noisy: SNR {result.snr:.0f} dB")
    return sound, notes


def _transcript(sound: Samples, recognizer: Recognizer | None) -> tuple[str, list[str]]:
    if recognizer is None:
        # Name the extra rather than a command with a local path, since callers of a service read this note too.
        return "", [f"no transcript: no recognizer is installed ({DISTRIBUTION}[recognition])"]
    text = recognizer.recognise(sound[: int(_MAX_TRANSCRIBED_S * RATE)], RATE)
    if not text:
        return "", ["no transcript: no words were recognized"]
    notes = [f"transcript by {getattr(recognizer, 'name', type(recognizer).__name__)}"]
    if sound.size > _MAX_TRANSCRIBED_S * RATE:
        notes.append(f"of the first {_MAX_TRANSCRIBED_S:g} s")
    return text, notes


def _match_notes(sound: Samples, text: str, aligner: Aligner | None) -> list[str]:
    if aligner is None:
        return []
    match = aligner.match(sound, RATE, text)
    if match is None:
        return ["text not checked: too few of its words are in the dictionary"]
    if match >= MATCHING:
        return []
    return [f"text does not match the audio: {match:.0%} aligned"]


ImageKind = Literal["png", "jpeg", "webp"]

MAX_COVER_BYTES = 10 * 2**20
"""Maximum size of a cover image in bytes."""
MAX_COVER_SIDE = 8192
"""Maximum width and height of a cover image in pixels."""

# Imported at module level, since the sandbox cannot open files.
_DECODERS: Final[dict[ImageKind, type[ImageFile]]] = {"png": PngImageFile, "jpeg": JpegImageFile, "webp": WebPImageFile}


def image_kind(data: bytes) -> ImageKind | None:
    """Detect PNG, JPEG or WebP from the signature; return None for other data."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return None


def check_cover(data: bytes) -> ImageKind:
    """Decode an image and return its format. Raises RequestInvalid, with the field ``cover_image``, if it is not valid."""
    if len(data) > MAX_COVER_BYTES:
        raise _image_error(f"The image must be at most {MAX_COVER_BYTES} bytes, got {len(data)}")
    kind = image_kind(data)
    if kind is None:
        raise _image_error(f"The image must be PNG, JPEG or WebP, got data that begin with {data[:8]!r}")
    try:
        problem = _IMAGE_SANDBOX.call(data, kind=kind)
    except AudioError as error:
        raise _image_error("The image is damaged") from error
    if problem:
        raise _image_error(problem.decode())
    return kind


def image_problem(data: bytes, *, kind: ImageKind) -> bytes:
    """Decode an image in the sandbox; return b"" if it is valid, else an error message. Raises AudioError for damage."""
    try:
        with _DECODERS[kind](io.BytesIO(data)) as image:
            # Check the size before decoding, since a few kilobytes may decompress to gigabytes.
            if not all(1 <= side <= MAX_COVER_SIDE for side in image.size):
                return f"The image must be 1 to {MAX_COVER_SIDE} pixels wide and high".encode()
            image.load()
    except Exception as error:
        raise AudioError("the image is damaged") from error
    return b""


def _image_error(message: str) -> RequestInvalid:
    return RequestInvalid.of("cover_image", message, type="image_invalid")


_IMAGE_SANDBOX = Sandbox(image_problem, max_answer_size=200)
