"""The audio formats of the interface (wav, pcm, mp3, opus), as streams and as whole files; FLAC and Vorbis are read too.

``StreamEncoder`` and ``StreamDecoder`` work while the audio is still being made or received; ``encode`` and ``decode``
do the same with what is there as a whole, and give the same result.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from typing import Literal

import av
import numpy as np

from voicelab.audio.decoders import UNKNOWN_FROM, StreamDecoder, mono, wav_head
from voicelab.audio.encoders import StreamEncoder, wav_header
from voicelab.audio.mp3 import with_exact_info
from voicelab.audio.samples import SILENT, Samples, as_samples, check_rate, resample, to_int16
from voicelab.errors import AudioError
from voicelab.schema import DEFAULT_RATES, AudioFormat

Container = Literal["wav", "mp3", "flac", "ogg"]

MAX_SECONDS = 300.0
"""Seconds of audio that decode() takes by default."""
MAX_BYTES = 50 * 2**20
"""Bytes that decode() takes by default."""

# A forged rate would let millions of samples pass as seconds, so they are counted too.
MAX_SAMPLES_PER_SECOND = 96_000
"""However high a rate the file claims."""
_FOREIGN = "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,matroska,webm,mov,mp4,mpc,mpc8,nistsphere,tta,voc,w64,wv"
"""FFmpeg's names of what a file of one's own may be besides: none of them names other files."""
_SHORT_S = 0.1
_CONTAINER: dict[str, Container] = {"wav": "wav", "mp3": "mp3", "opus": "ogg"}


def encode(
    samples: Samples,
    format: AudioFormat,
    source_rate: int,
    sample_rate: int | None = None,
    mp3_bitrate: int = 128,
    opus_bitrate: int = -1000,
) -> bytes:
    """Encode samples of shape (n,) as a whole file; the arguments are those of StreamEncoder.

    The audio is that of a StreamEncoder; the headers of wav and mp3 tell the exact length besides, so that
    every format but for mp3 in players that ignore its header comes back as long as it was. Raises AudioError.
    """
    encoder = StreamEncoder(format, source_rate, sample_rate, mp3_bitrate, opus_bitrate)
    if format == "wav":
        data = to_int16(resample(as_samples(samples), source_rate, encoder.rate)).tobytes()
        return wav_header(encoder.rate, len(data)) + data
    data = encoder.feed(samples) + encoder.finish()
    return with_exact_info(data, encoder.samples) if format == "mp3" and data else data


def sniff(data: bytes) -> Container:
    """Return what the first bytes are the beginning of: wav, mp3, flac or ogg. Raises AudioError for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"fLaC":
        return "flac"
    if data[:4] == b"OggS":
        return "ogg"
    if data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        return "mp3"
    raise AudioError("the bytes are no WAV, MP3, FLAC or Ogg audio")


def read(
    data: bytes,
    format: AudioFormat | None = None,
    *,
    sample_rate: int | None = None,
    max_seconds: float | None = MAX_SECONDS,
    max_bytes: int | None = MAX_BYTES,
    foreign: bool = False,
) -> tuple[Samples, int]:
    """Decode a whole file: WAV, MP3, FLAC or Ogg; several channels are averaged.

    Args:
        data: the file. Its first bytes decide what it is, and it is read as that and nothing else: a
            playlist or a concat script, which could name other files, is refused.
        format: what it must be; None takes any. pcm has no marks and must be named.
        sample_rate: only for pcm, its rate in Hz; None is 44100.
        max_seconds: longer audio is refused, and so are more than 96,000 samples for each such second,
            whatever rate the file claims. None is no limit.
        max_bytes: larger files are refused. None is no limit.
        foreign: whether other bytes are tried as M4A, AIFF, WebM, WMA, CAF, Sphere and the like, for files that are
            one's own: FFmpeg then chooses among formats that cannot name other files.

    Returns:
        The samples, float32 of shape (n,), and their rate in Hz. Those of a WAV in floats, or of Vorbis, may be beyond ±1.

    Raises AudioError for other bytes, damaged or cut off audio, samples that are not finite, and files
    beyond the limits.
    """
    if max_bytes is not None and len(data) > max_bytes:
        raise AudioError(f"the audio file has {len(data)} bytes; at most {max_bytes} are read")
    if format == "pcm":
        rate = DEFAULT_RATES["pcm"] if sample_rate is None else check_rate(sample_rate, "sample_rate")
        return _joined(_decoded(data, "pcm", rate), rate, max_seconds)
    try:
        container = sniff(data)
    except AudioError:
        if not foreign:
            raise
        return _decode_container(data, None, max_seconds)
    if format is not None and container != _CONTAINER.get(format):
        raise AudioError(f"expected {format} audio, but the bytes are {container}")
    if container == "mp3":
        data = _without_tail_tags(data)
        rate = _mp3_rate(data)
        return _joined(_decoded(data, "mp3", rate), rate, max_seconds)
    if container == "ogg" and b"OpusHead" in data[:64]:
        rate = DEFAULT_RATES["opus"]
        return _joined(_decoded(data, "opus", rate), rate, max_seconds)
    if container == "wav":
        _check_complete_wav(data)
    return _decode_container(data, container, max_seconds)


def decode(
    data: bytes,
    format: AudioFormat | None = None,
    *,
    sample_rate: int | None = None,
    max_seconds: float | None = MAX_SECONDS,
    max_bytes: int | None = MAX_BYTES,
) -> tuple[Samples, int]:
    """Decode a whole file like ``read``; samples beyond ±1 are clipped."""
    samples, rate = read(data, format, sample_rate=sample_rate, max_seconds=max_seconds, max_bytes=max_bytes)
    return np.clip(samples, np.float32(-1.0), np.float32(1.0)), rate


def _joined(parts: Iterable[Samples], rate: int, max_seconds: float | None) -> tuple[Samples, int]:
    """The samples and their rate. Raises AudioError as soon as there are too many."""
    taken, count = [SILENT], 0
    for part in parts:
        taken.append(part)
        count += part.size
        if max_seconds is not None and count > max_seconds * min(rate, MAX_SAMPLES_PER_SECOND):
            raise AudioError(f"the audio lasts longer than {max_seconds:g} seconds, the most that is read")
    return np.concatenate(taken), rate


def _decoded(data: bytes, format: AudioFormat, rate: int) -> Iterator[Samples]:
    decoder = StreamDecoder(format, rate)
    # In pieces, so that what unpacks into too much is stopped before it has done so.
    for start in range(0, len(data), 1 << 16):
        yield decoder.feed(data[start : start + (1 << 16)])
    yield decoder.finish()


def _mp3_rate(data: bytes) -> int:
    probe = StreamDecoder("mp3")
    for start in range(0, len(data), 4096):
        probe.feed(data[start : start + 4096])
        if probe.source_rate is not None:
            return probe.source_rate
    probe.finish()  # raises where there is no audio
    return probe.source_rate or probe.rate


def _without_tail_tags(data: bytes) -> bytes:
    if data[-128:-125] == b"TAG":
        data = data[:-128]
    if data[-32:-24] == b"APETAGEX":
        (size,) = struct.unpack_from("<I", data, len(data) - 20)
        data = data[: -min(len(data), size + 32 * bool(data[-9] & 0x80))]
    return data


def _check_complete_wav(data: bytes) -> None:
    # FFmpeg reads a file that is cut off without a word.
    begin, size, _ = wav_head(data)
    if size is None:
        raise AudioError("wav: the audio is cut off before its samples")
    if size < UNKNOWN_FROM and begin + size > len(data):
        raise AudioError(f"wav: the audio is cut off, {begin + size - len(data)} bytes are missing")


def _declared_s(source: av.container.InputContainer, stream: av.AudioStream) -> float | None:
    """Return how long the stream, or else its file, says that it is; None where neither does."""
    if stream.duration and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return source.duration / av.time_base if source.duration else None


def channels_of(data: bytes) -> int:
    """Return how many channels a file has that ``read`` reads. Raises AudioError for what is none."""
    try:
        container: Container | None = sniff(data)
    except AudioError:
        container = None
    try:
        with av.open(io.BytesIO(data), "r", format=container, options=_options(container)) as source:
            return int(source.streams.audio[0].codec_context.layout.nb_channels)
    except (av.FFmpegError, IndexError) as error:
        raise AudioError(f"the audio is damaged: {error}") from error


def _options(container: Container | None) -> dict[str, str]:
    """Return what FFmpeg opens a file with. The header of a WAV says all; to look further takes 40 times as long, 12 ms."""
    return {"probesize": "32"} if container == "wav" else {} if container else {"format_whitelist": _FOREIGN}


def _decode_container(data: bytes, given: Container | None, max_seconds: float | None) -> tuple[Samples, int]:
    container = given or "the file"
    try:
        with av.open(io.BytesIO(data), "r", format=given, options=_options(given)) as source:
            if len(source.streams.audio) != 1:
                raise AudioError(f"{container}: expected one audio stream, found {len(source.streams.audio)}")
            stream = source.streams.audio[0]
            # PyAV's types leave out that a codec which it does not know has no context.
            if getattr(stream, "codec_context", None) is None:
                raise AudioError(f"{container}: the audio is of a kind that cannot be read")
            rate = check_rate(stream.codec_context.sample_rate, f"{container}: sample rate")
            declared = _declared_s(source, stream) if given in ("flac", None) else None
            samples, _ = _joined(_frames(source.decode(stream), rate, str(container)), rate, max_seconds)
            if declared is not None:
                missing = round(declared * rate) - samples.size
                # Codecs of the foreign ones add and cut some milliseconds.
                if missing > (0 if given else _SHORT_S * rate):
                    raise AudioError(f"{container}: the audio is cut off, {missing} samples are missing")
    except av.FFmpegError as error:
        raise AudioError(f"{container}: the audio is damaged: {error}") from error
    if not samples.size and container != "wav":
        raise AudioError(f"{container}: there is no audio in it")
    return samples, rate


def _frames(frames: Iterator[av.AudioFrame], rate: int, container: str) -> Iterator[Samples]:
    for frame in frames:
        if frame.sample_rate != rate:
            raise AudioError(f"{container}: the sample rate changes in the middle")
        yield mono(frame)
