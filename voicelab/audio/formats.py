"""Encode and decode complete audio files: wav, pcm, mp3 and opus; FLAC and Vorbis are decoded only.

``encode`` and ``decode`` give the same result as ``StreamEncoder`` and ``StreamDecoder``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from voicelab.audio.decoders import UNKNOWN_FROM, StreamDecoder, mono, wav_head
from voicelab.audio.encoders import StreamEncoder, wav_header
from voicelab.audio.mp3 import with_exact_info
from voicelab.audio.samples import NO_SAMPLES, Samples, as_samples, check_rate, resample, to_int16
from voicelab.errors import AudioError
from voicelab.schema import DEFAULT_RATES, AudioFormat

if TYPE_CHECKING:
    import av
else:
    from voicelab.audio import ffmpeg as av

Container = Literal["wav", "mp3", "flac", "ogg"]

MAX_SECONDS = 300.0
"""Default maximum duration in seconds of decode()."""
MAX_BYTES = 50 * 2**20
"""Default maximum size in bytes of decode()."""

# With a forged rate, millions of samples would count as a few seconds.
MAX_SAMPLES_PER_SECOND = 96_000
"""Maximum number of samples per second of ``max_seconds``, at any declared rate."""
_FOREIGN = (
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,matroska,webm,mov,mp4,mpc,mpc8,nistsphere,tta,voc,w64,wav,wv"
)
"""FFmpeg's names of additional formats for local files, none of which can reference other files."""
_MAX_MISSING_S = 0.1
_CONTAINER: dict[str, Container] = {"wav": "wav", "mp3": "mp3", "opus": "ogg"}


def encode(
    samples: Samples,
    format: AudioFormat,
    source_rate: int,
    sample_rate: int | None = None,
    mp3_bitrate: int = 128,
    opus_bitrate: int = -1000,
) -> bytes:
    """Encode samples of shape (n,) as a complete file; the arguments are those of StreamEncoder.

    The audio equals that of a StreamEncoder. The headers of wav and mp3 also state the exact length, so that the
    duration is preserved, unless a player ignores the header of an mp3 file. Raises AudioError.
    """
    encoder = StreamEncoder(format, source_rate, sample_rate, mp3_bitrate, opus_bitrate)
    if format == "wav":
        data = to_int16(resample(as_samples(samples), source_rate, encoder.rate)).tobytes()
        return wav_header(encoder.rate, len(data)) + data
    data = encoder.feed(samples) + encoder.finish()
    return with_exact_info(data, encoder.samples) if format == "mp3" and data else data


def sniff(data: bytes) -> Container:
    """Detect the container from the first bytes: wav, mp3, flac or ogg. Raises AudioError for any other container."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"fLaC":
        return "flac"
    if data[:4] == b"OggS":
        return "ogg"
    if data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2):
        return "mp3"
    raise AudioError(f"the audio must be WAV, MP3, FLAC or Ogg, got data that begin with {data[:12]!r}")


def read(
    data: bytes,
    format: AudioFormat | None = None,
    *,
    sample_rate: int | None = None,
    max_seconds: float | None = MAX_SECONDS,
    max_bytes: int | None = MAX_BYTES,
    foreign: bool = False,
) -> tuple[Samples, int]:
    """Decode a complete WAV, MP3, FLAC or Ogg file to mono; channels are averaged.

    Args:
        data: content of the file. It is decoded only as the format of its signature: playlists and concat
            scripts, which could reference other files, are rejected.
        format: required format; None for any. pcm has no signature and must be specified.
        sample_rate: rate in Hz of pcm; None for 44100.
        max_seconds: maximum duration, which also limits the sample count to 96,000 per second at any
            declared rate. None for no limit.
        max_bytes: maximum file size. None for no limit.
        foreign: also accept M4A, AIFF, WebM, WMA, CAF, Sphere and similar, for local files of the user; FFmpeg
            then detects only formats that cannot reference other files.

    Returns:
        The samples, float32 of shape (n,), and their rate in Hz. Float WAV and Vorbis may exceed ±1.

    Raises:
        AudioError: the data have another format, are damaged or truncated, or exceed the limits, or samples
            are not finite.
    """
    if max_bytes is not None and len(data) > max_bytes:
        raise AudioError(f"the audio file must be at most {max_bytes} bytes, got {len(data)}")
    if format == "pcm":
        rate = DEFAULT_RATES["pcm"] if sample_rate is None else check_rate(sample_rate, "sample_rate")
        return _join(_decode_stream(data, "pcm", rate), rate, max_seconds)
    try:
        container = sniff(data)
    except AudioError:
        if not foreign:
            raise
        if data[:4] == b"RF64":
            _check_complete_wav(data)
        return _decode_container(data, None, max_seconds)
    if format is not None and container != _CONTAINER.get(format):
        raise AudioError(f"the audio must be {format}, got {container}")
    if container == "mp3":
        data = _strip_tail_tags(data)
        rate = _mp3_rate(data)
        return _join(_decode_stream(data, "mp3", rate), rate, max_seconds)
    if container == "ogg" and b"OpusHead" in data[:64]:
        rate = DEFAULT_RATES["opus"]
        return _join(_decode_stream(data, "opus", rate), rate, max_seconds)
    if container == "wav":
        _check_complete_wav(data)
        if plain := _plain_wav_rate(data):  # 20 times as fast as FFmpeg
            return _join(_decode_stream(data, "wav", plain), plain, max_seconds)
    return _decode_container(data, container, max_seconds)


def decode(
    data: bytes,
    format: AudioFormat | None = None,
    *,
    sample_rate: int | None = None,
    max_seconds: float | None = MAX_SECONDS,
    max_bytes: int | None = MAX_BYTES,
) -> tuple[Samples, int]:
    """Decode a complete file like ``read``; samples beyond ±1 are clipped."""
    samples, rate = read(data, format, sample_rate=sample_rate, max_seconds=max_seconds, max_bytes=max_bytes)
    return np.clip(samples, np.float32(-1.0), np.float32(1.0)), rate


def _join(blocks: Iterable[Samples], rate: int, max_seconds: float | None) -> tuple[Samples, int]:
    """Concatenate blocks of samples; return them with their rate. Raises AudioError once the limit is exceeded."""
    collected, count = [NO_SAMPLES], 0
    for block in blocks:
        collected.append(block)
        count += block.size
        if max_seconds is not None and count > max_seconds * min(rate, MAX_SAMPLES_PER_SECOND):
            raise AudioError(f"the audio must be at most {max_seconds:g} s long")
    return np.concatenate(collected), rate


def _decode_stream(data: bytes, format: AudioFormat, rate: int) -> Iterator[Samples]:
    decoder = StreamDecoder(format, rate)
    # Decode in chunks, so that a decompression bomb is rejected before it is fully decompressed.
    for start in range(0, len(data), 1 << 16):
        yield decoder.feed(data[start : start + (1 << 16)])
    yield decoder.finish()


def _mp3_rate(data: bytes) -> int:
    probe = StreamDecoder("mp3")
    for start in range(0, len(data), 4096):
        probe.feed(data[start : start + 4096])
        if probe.source_rate is not None:
            return probe.source_rate
    probe.finish()  # raises if the data contain no audio
    return probe.source_rate or probe.rate


def _strip_tail_tags(data: bytes) -> bytes:
    if data[-128:-125] == b"TAG":
        data = data[:-128]
    if data[-32:-24] == b"APETAGEX":
        (size,) = struct.unpack_from("<I", data, len(data) - 20)
        data = data[: -min(len(data), size + 32 * bool(data[-9] & 0x80))]
    return data


def _check_complete_wav(data: bytes) -> None:
    # FFmpeg reads truncated files without an error.
    begin, size, _ = wav_head(data)
    if size is None:
        raise AudioError("wav: the file is cut off before its samples")
    if size < UNKNOWN_FROM and begin + size > len(data):
        raise AudioError(f"wav: the audio is cut off: {begin + size - len(data)} bytes are missing")


def _plain_wav_rate(data: bytes) -> int | None:
    """Return the sample rate of a complete 16-bit WAV file with one or two channels; None for any other file."""
    _, size, form = wav_head(data)
    if not size or size >= UNKNOWN_FROM or len(form) < 16:
        return None
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", form)
    is_plain = kind == 1 and bits == 16 and channels in (1, 2) and size % (2 * channels) == 0
    return rate if is_plain and 1000 <= rate <= 768_000 else None


def _declared_s(source: av.container.InputContainer, stream: av.AudioStream) -> float | None:
    """Return the duration in seconds declared by the stream or its container; None if neither declares it."""
    if stream.duration and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return source.duration / av.time_base if source.duration else None


def stream_of(data: bytes) -> tuple[int, str]:
    """Return a file's channel count and FFmpeg's name for its codec ("pcm" for WAV). Raises AudioError if it is not audio."""
    try:
        container: Container | None = sniff(data)
    except AudioError:
        container = None
    if container == "wav":  # FFmpeg takes longer to open a file than to decode it
        return int.from_bytes(wav_head(data)[2][2:4], "little"), "pcm"
    try:
        with av.open(io.BytesIO(data), "r", format=container, options=_options(container)) as source:
            codec = source.streams.audio[0].codec_context
            return int(codec.layout.nb_channels), codec.name
    except (av.FFmpegError, IndexError) as error:
        raise AudioError(f"the audio is damaged: {error}") from error


def _options(container: Container | None) -> dict[str, str]:
    """Return FFmpeg's options for a container. WAV probes only the header: full probing takes 12 ms, 40 times as long."""
    return {"probesize": "32"} if container == "wav" else {} if container else {"format_whitelist": _FOREIGN}


def _decode_container(data: bytes, container: Container | None, max_seconds: float | None) -> tuple[Samples, int]:
    name = container or "the file"
    try:
        with av.open(io.BytesIO(data), "r", format=container, options=_options(container)) as source:
            if len(source.streams.audio) != 1:
                raise AudioError(f"{name}: the file must have one audio stream, got {len(source.streams.audio)}")
            stream = source.streams.audio[0]
            # Contrary to PyAV's types, an unknown codec has no context.
            if getattr(stream, "codec_context", None) is None:
                raise AudioError(f"{name}: the codec is not supported")
            rate = check_rate(stream.codec_context.sample_rate, f"{name}: sample rate")
            declared = _declared_s(source, stream) if container in ("flac", None) else None
            samples, _ = _join(_frames(source.decode(stream), rate, name), rate, max_seconds)
            if declared is not None:
                missing = round(declared * rate) - samples.size
                # Foreign codecs add or remove a few milliseconds.
                if missing > (0 if container else _MAX_MISSING_S * rate):
                    raise AudioError(f"{name}: the audio is cut off: {missing} samples are missing")
    except av.FFmpegError as error:
        raise AudioError(f"{name}: the audio is damaged: {error}") from error
    if not samples.size and container != "wav":
        raise AudioError(f"{name}: the file contains no audio")
    return samples, rate


def _frames(frames: Iterator[av.AudioFrame], rate: int, name: str) -> Iterator[Samples]:
    for frame in frames:
        if frame.sample_rate != rate:
            raise AudioError(f"{name}: the sample rate must stay at {rate} Hz, got {frame.sample_rate} Hz")
        yield mono(frame)
