"""Streaming audio encoders with low latency to the first bytes.

Latency of the first bytes that contain audio, without resampling: none for wav and pcm, 2304 samples for
mp3 (52 ms at 44.1 kHz), 0.2 s for opus (its pages hold 0.1 s). Resampling adds a look-ahead of about
0.03 to 0.08 s.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from voicelab.audio.mp3 import MP3_DELAY, MP3_FRAME, info_frame
from voicelab.audio.samples import NO_SAMPLES, OneUse, Resampler, Samples, as_samples, check_rate, to_int16
from voicelab.errors import AudioError
from voicelab.schema import DEFAULT_RATES, FORMATS, MP3_BITRATES, OPUS_BITRATES, RATES, AudioFormat, TTSRequest

if TYPE_CHECKING:
    import av
else:
    from voicelab.audio import ffmpeg as av

_WAV_HEADER_BYTES = 44

UNKNOWN_SIZE = 0xFFFFFFFF
"""Value of both size fields of a streamed WAV: the length is unknown."""

_MP3_SCALE = {64: 0.95, 128: 0.95, 192: 0.97}
"""Gain that LAME's presets apply at each bitrate in kbit/s, as headroom for overshoots."""

# In bit/s, the value that libopus chooses for OPUS_AUTO (-1000) with one channel at 48 kHz in 20 ms frames:
# 60 * frames per second + rate * channels. FFmpeg rejects the constant itself.
_OPUS_AUTO_BITRATE = 60 * 50 + 48_000


def header_bytes(format: AudioFormat) -> int:
    """Return the header size in bytes of a stream of ``format``: 44 for wav, 0 otherwise."""
    return _WAV_HEADER_BYTES if format == "wav" else 0


def wav_header(rate: int, size: int | None = None) -> bytes:
    """Build the 44-byte header of a 16-bit mono WAV; ``size`` is the size of the samples in bytes, None if unknown."""
    if size is not None and size > UNKNOWN_SIZE - 37:
        raise AudioError(f"a WAV file must be at most 4 GiB, got {size} bytes")
    riff, data = (UNKNOWN_SIZE, UNKNOWN_SIZE) if size is None else (36 + size, size)
    return struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", riff, b"WAVEfmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", data)


class _PcmEncoder:
    """Encoder of 16-bit little-endian samples, with an optional WAV header."""

    def __init__(self, header: bytes = b"") -> None:
        self._header = header

    def feed(self, samples: Samples) -> bytes:
        if samples.size == 0:
            return b""
        head, self._header = self._header, b""
        return head + to_int16(samples).tobytes()

    def finish(self) -> bytes:
        head, self._header = self._header, b""
        return head


class _Framed:
    """Encoder of clipped samples, times ``gain``, in frames of the codec's frame size."""

    def __init__(self, context: av.AudioCodecContext, layout: str, gain: float = 1.0) -> None:
        self._context = context
        self._layout = layout
        self._gain = np.float32(gain)
        self._remainder = NO_SAMPLES
        self.fed = 0

    def feed(self, samples: Samples) -> list[av.Packet[Any]]:
        waiting = np.concatenate((self._remainder, np.clip(samples, np.float32(-1.0), np.float32(1.0)) * self._gain))
        size = self._context.frame_size
        end = waiting.size - waiting.size % size
        self._remainder = waiting[end:]
        return [packet for start in range(0, end, size) for packet in self._encode(waiting[start : start + size])]

    def finish(self) -> list[av.Packet[Any]]:
        if not self.fed and not self._remainder.size:
            # A valid file needs at least one frame; the header states a length of zero samples.
            self._remainder = np.zeros(1, np.float32)
        packets = self._encode(self._remainder) if self._remainder.size else []
        return [*packets, *self._context.encode(None)]

    def _encode(self, samples: Samples) -> list[av.Packet[Any]]:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples)[None], format=self._layout, layout="mono")
        frame.sample_rate = self._context.sample_rate
        frame.time_base = Fraction(1, self._context.sample_rate)
        frame.pts = self.fed
        self.fed += samples.size
        return list(self._context.encode(frame))


class _Mp3Encoder:
    """Encoder of constant-bitrate MP3 at unity gain, without bit reservoir, so that each frame is ready at once."""

    def __init__(self, rate: int, bitrate: int) -> None:
        context = av.AudioCodecContext.create("libmp3lame", "w")
        context.sample_rate = rate
        context.layout = "mono"
        context.format = "fltp"
        context.bit_rate = bitrate * 1000
        context.time_base = Fraction(1, rate)
        context.options = {"reservoir": "0"}
        context.open()
        # The decoded signal is within ±1 again: LAME does not clip its input, and applies the inverse gain.
        self._frames = _Framed(context, "fltp", 1 / _MP3_SCALE[bitrate])
        self._frame_count = 0

    def feed(self, samples: Samples) -> bytes:
        return self._join(self._frames.feed(samples))

    def finish(self) -> bytes:
        packets = self._frames.finish()
        # LAME pads with up to two frames; keep only those that the last sample needs.
        needed = -(-(self._frames.fed + MP3_DELAY) // MP3_FRAME)
        return self._join(packets[: max(0, needed - self._frame_count)])

    def _join(self, packets: Iterable[av.Packet[Any]]) -> bytes:
        frames = [bytes(packet) for packet in packets]
        head = info_frame(frames[0]) if frames and not self._frame_count else b""
        self._frame_count += len(frames)
        return head + b"".join(frames)


class _Sink:
    """Non-seekable file object that FFmpeg writes to."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._chunks.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data, self._chunks = b"".join(self._chunks), []
        return data


class _OpusEncoder:
    """Encoder of Ogg Opus in 20 ms frames. The headers are sent together with the first page of audio."""

    def __init__(self, rate: int, bitrate: int) -> None:
        self._sink = _Sink()
        # The first two options shorten pages, which would otherwise be up to 2 s long; bitexact sets a fixed serial
        # number, so that equal audio gives equal bytes.
        options = {"page_duration": "100000", "flush_packets": "1", "fflags": "+bitexact"}
        self._container = av.open(self._sink, "w", format="ogg", options=options)
        # Unconstrained VBR reaches 100 kbit/s on speech at a target of 64.
        coding = {"frame_duration": "20", "vbr": "constrained"}
        stream = self._container.add_stream("libopus", rate=rate, layout="mono", options=coding)
        stream.bit_rate = _OPUS_AUTO_BITRATE if bitrate < 0 else bitrate * 1000
        stream.codec_context.format = "flt"
        self._stream = stream
        self._container.start_encoding()
        self._frames = _Framed(stream.codec_context, "flt")
        self._header = self._sink.take()

    def feed(self, samples: Samples) -> bytes:
        self._mux(self._frames.feed(samples))
        return self._with_header(self._sink.take())

    def finish(self) -> bytes:
        self._mux(self._frames.finish())
        self._container.close()
        return self._with_header(self._sink.take()) or self._header

    def _mux(self, packets: Iterable[av.Packet[Any]]) -> None:
        for packet in packets:
            packet.stream = self._stream
            self._container.mux(packet)

    def _with_header(self, pages: bytes) -> bytes:
        if not pages:
            return b""
        head, self._header = self._header, b""
        return head + pages


class StreamEncoder(OneUse):
    """Encode a stream of samples; the bytes do not depend on block sizes. Samples beyond ±1 are clipped.

    mp3 delays the audio by 1105 samples and pads its last frame. A stream begins with an Info frame (LAME header)
    that states the delay, which StreamDecoder removes; the decoded length is exact to one frame (1152 samples).
    Opus streams state delay and length, and decode to the exact length.

    Args:
        format: wav (with sizes of 0xFFFFFFFF, which means unknown), pcm (16-bit little-endian), mp3 or opus.
        source_rate: rate in Hz of the samples passed to ``feed``.
        sample_rate: rate in Hz of the encoded audio; None for the format's default. Any for wav and pcm,
            32000 or 44100 for mp3, 48000 for opus.
        mp3_bitrate: 64, 128 or 192 kbit/s, constant.
        opus_bitrate: 24, 32, 48 or 64 kbit/s on average; -1000 for libopus' default (51).

    Raises:
        AudioError: an argument is out of range; the message names it.
    """

    _name = "encoder"

    def __init__(
        self,
        format: AudioFormat,
        source_rate: int,
        sample_rate: int | None = None,
        mp3_bitrate: int = 128,
        opus_bitrate: int = -1000,
    ) -> None:
        if format not in FORMATS:
            raise AudioError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
        self.format: AudioFormat = format
        self.rate = DEFAULT_RATES[format] if sample_rate is None else check_rate(sample_rate, "sample_rate")
        if format in ("mp3", "opus") and self.rate not in RATES[format]:
            listed = " or ".join(map(str, RATES[format]))
            raise AudioError(f"sample_rate of {format} must be {listed} Hz, got {self.rate}")
        self._resampler = Resampler(source_rate, self.rate)
        self._codec = _codec(format, self.rate, mp3_bitrate, opus_bitrate)
        self.samples = 0
        """Number of samples encoded so far, at ``rate``."""

    @classmethod
    def for_request(cls, request: TTSRequest, source_rate: int) -> Self:
        """Create the encoder with the output settings of ``request`` for samples at ``source_rate`` Hz."""
        return cls(request.format, source_rate, request.rate, request.mp3_bitrate, request.opus_bitrate)

    def feed(self, samples: Samples) -> bytes:
        """Add samples of shape (n,); return the bytes that are ready, which may be empty."""
        self._use()
        return self._encode(self._resampler.feed(as_samples(samples)))

    def finish(self) -> bytes:
        """Return the remaining bytes and close the encoder."""
        self._use(final=True)
        return self._encode(self._resampler.finish(), final=True)

    def _encode(self, samples: Samples, *, final: bool = False) -> bytes:
        self.samples += samples.size
        try:
            return self._codec.feed(samples) + (self._codec.finish() if final else b"")
        except av.FFmpegError as error:
            raise AudioError(f"{self.format}: the audio could not be encoded: {error}") from error


def _codec(
    format: AudioFormat, rate: int, mp3_bitrate: int, opus_bitrate: int
) -> _PcmEncoder | _Mp3Encoder | _OpusEncoder:
    if mp3_bitrate not in MP3_BITRATES:
        raise AudioError(f"mp3_bitrate must be one of {', '.join(map(str, MP3_BITRATES))}, got {mp3_bitrate}")
    if opus_bitrate not in OPUS_BITRATES:
        raise AudioError(f"opus_bitrate must be one of {', '.join(map(str, OPUS_BITRATES))}, got {opus_bitrate}")
    if format == "mp3":
        return _Mp3Encoder(rate, mp3_bitrate)
    if format == "opus":
        return _OpusEncoder(rate, opus_bitrate)
    return _PcmEncoder(wav_header(rate) if format == "wav" else b"")
