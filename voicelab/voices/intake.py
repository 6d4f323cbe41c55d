"""Uploaded recordings become the samples of a voice: decoded, made mono, trimmed, levelled, transcribed."""

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
"""Voice files in one voice model."""
MAX_TAGS = 64
"""Tags of one voice model."""
RATE = 44_100
"""Sample rate in Hz at which recordings are kept, as 16-bit WAV."""

# Characters. Records are read whole whenever a voice speaks; a transcript has as many as a request may have.
_LONGEST = {"title": 1000, "description": 10_000, "texts": 20_000, "tags": 100}
_LEVEL = -23.0
"""dBFS (RMS where there is sound) to which recordings are brought."""
_HEADROOM = 0.89
_MARGIN = 0.2
_SHORT, _LONG = 10.0, 30.0
_NOISY, _CLEAN = 15.0, 60.0
_TRANSCRIBED = 60.0
"""Seconds of each recording that its transcript is recognised from."""


def prepare_samples(
    request: VoiceCreate,
    recognizer: Callable[[], Recognizer | None],
    aligner: Callable[[], Aligner | None] = default_aligner,
) -> tuple[Sample, ...]:
    """Return the recordings of a request as they are kept, in order.

    ``recognizer`` is called only when transcripts are missing, which stay empty when it returns None; ``aligner`` only
    when they are given. Notes (too short or long for a good clone, noisy, enhanced, no transcript or one that does not
    match) stand in the sample's title.

    Raises RequestInvalid: what is no audio, too large, too long or no speech, with its position; too many
    files or tags, or too long ones; a cover image that is none.
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
    listener = None if request.texts else recognizer()
    checker = aligner() if request.texts else None
    samples = []
    for number, (sound, notes) in enumerate(recordings):
        if request.texts:
            text = request.texts[number]
            more = _match_notes(sound, text, checker)
        else:
            text, more = _transcript(sound, listener)
        title = f"Sample {number + 1}, {sound.size / RATE:.1f} s" + "".join(f"; {note}" for note in (*notes, *more))
        samples.append(Sample(Clip(sound, RATE).to_bytes("wav"), text, title))
    return tuple(samples)


def _limit_errors(request: VoiceCreate) -> Iterator[FieldError]:
    for name, limit in _LONGEST.items():
        value = getattr(request, name) or ""
        if any(len(text) > limit for text in ((value,) if isinstance(value, str) else value)):
            message = f"Input should have at most {limit} characters"
            yield FieldError(("body", name), "string_too_long", message, ctx=f"max_length: {limit}")
    for name, what, limit in (("tags", "tags", MAX_TAGS), ("voices", "voice files", MAX_FILES)):
        if (count := len(getattr(request, name))) > limit:
            message = f"There are {count} {what}; at most {limit} are taken"
            yield FieldError(("body", name), "too_long", message, ctx=f"max_length: {limit}")


def _prepare(data: bytes, *, enhanced: bool) -> tuple[Samples, list[str]]:
    """Return a recording as it is kept, at ``RATE``, and what its title should say. Raises AudioError."""
    samples, rate = decode_apart(data)
    result = survey(samples, rate)
    if result.problem:
        raise AudioError(f"there is no speech in it: {result.problem}")
    before = result.snr
    if enhanced:
        # Before anything is cut off: pauses tell what the noise is.
        samples = enhance(samples, rate)
        result = survey(samples, rate)
    first = max(0, int((result.start - _MARGIN) * rate))
    cut = samples[first : int((result.end + _MARGIN) * rate)]
    cut = resample(cut - np.float32(cut.mean()), rate, RATE)
    gain = 10 ** ((_LEVEL - result.level) / 20)
    # Turned down rather than limited: a limiter would change the voice.
    gain = min(gain, _HEADROOM / max(float(np.abs(cut).max()), 1e-9))
    sound = (cut * np.float32(gain)).astype(np.float32)
    notes, seconds = list[str](), sound.size / RATE
    if not _SHORT <= seconds <= _LONG:
        than = "shorter" if seconds < _SHORT else "longer"
        notes.append(f"{than} than the {_SHORT:g} to {_LONG:g} s that clone best")
    if enhanced:
        notes.append("enhanced" + (f" from {before:.0f} dB above the noise" if before < _CLEAN else ""))
    if result.snr < _NOISY:
        notes.append(f"noisy: the speech is only {result.snr:.0f} dB above the noise")
    return sound, notes


def _transcript(sound: Samples, listener: Recognizer | None) -> tuple[str, list[str]]:
    if listener is None:
        # The extra's name, not a command with a path in it: whoever calls a service reads this too.
        return "", [f"no transcript: no recognizer is installed ({DISTRIBUTION}[recognition])"]
    text = listener.recognise(sound[: int(_TRANSCRIBED * RATE)], RATE)
    if not text:
        return "", ["no transcript: no word was recognised"]
    notes = [f"its transcript was recognised by {getattr(listener, 'name', type(listener).__name__)}"]
    if sound.size > _TRANSCRIBED * RATE:
        notes.append(f"of its first {_TRANSCRIBED:g} s")
    return text, notes


def _match_notes(sound: Samples, text: str, aligner: Aligner | None) -> list[str]:
    if aligner is None:
        return []
    match = aligner.match(sound, RATE, text)
    if match is None:
        return ["its text was not compared with the sound: too few of its words are in the dictionary"]
    if match >= MATCHING:
        return []
    return [f"its text does not match: {match:.0%} of it is heard, or of the sound is text"]


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


_PICTURES = Sandbox(picture_problem, max_answer_size=200)
