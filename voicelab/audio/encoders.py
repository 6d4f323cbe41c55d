"""Encoders that let the first bytes go with the first audio.

Measured on the first bytes that carry audio, without resampling: wav and pcm after the samples fed,
mp3 after 2304 samples (52 ms at 44.1 kHz), opus after 0.2 s (its pages hold 0.1 s). Resampling adds
about 0.03 to 0.08 s of look-ahead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Self

import av
import numpy as np
from av.packet import Packet

from voicelab.audio.mp3 import MP3_DELAY, MP3_FRAME, info_frame
from voicelab.audio.samples import SILENT, OneUse, Resampler, Samples, as_samples, check_rate, to_int16
from voicelab.errors import AudioError
from voicelab.schema import DEFAULT_RATES, FORMATS, MP3_BITRATES, OPUS_BITRATES, RATES, AudioFormat, TTSRequest

_WAV_HEADER_BYTES = 44

UNKNOWN_SIZE = 0xFFFFFFFF
"""What both size fields of a streamed WAV say: the length is still unknown."""

_MP3_SCALE = {64: 0.95, 128: 0.95, 192: 0.97}
"""What LAME multiplies its input by at each bitrate, in kbit/s: its presets leave room for overshoots."""

# libopus' own choice (OPUS_AUTO, which is -1000) for one channel at 48 kHz in 20 ms frames:
# 60 * frames per second + rate * channels. FFmpeg refuses the constant itself.
_OPUS_AUTOMATIC = 60 * 50 + 48_000


def header_bytes(format: AudioFormat) -> int:
    """Return how many bytes a stream of ``format`` has before its audio: a WAV's header, 0 for all others."""
    return _WAV_HEADER_BYTES if format == "wav" else 0


def wav_header(rate: int, size: int | None = None) -> bytes:
    """Return the 44 bytes before 16-bit mono samples; ``size`` is in bytes, None while unknown."""
    if size is not None and size > UNKNOWN_SIZE - 37:
        raise AudioError(f"a WAV file holds at most 4 GiB, not {size} bytes")
    riff, data = (UNKNOWN_SIZE, UNKNOWN_SIZE) if size is None else (36 + size, size)
    return struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", riff, b"WAVEfmt ", 16, 1, 1, rate, rate * 2, 2, 16, b"data", data)


class _Pcm:
    """Samples as they are, 16 bits each, little-endian; after a WAV header when there is one."""

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
    """Clips samples, multiplies them by ``gain``, and cuts them into the frames that a codec wants, at the sample."""

    def __init__(self, context: av.AudioCodecContext, layout: str, gain: float = 1.0) -> None:
        self._context = context
        self._layout = layout
        self._gain = np.float32(gain)
        self._rest = SILENT
        self.fed = 0

    def feed(self, samples: Samples) -> list[Packet[Any]]:
        waiting = np.concatenate((self._rest, np.clip(samples, np.float32(-1.0), np.float32(1.0)) * self._gain))
        size = self._context.frame_size
        whole = waiting.size - waiting.size % size
        self._rest = waiting[whole:]
        return [packet for start in range(0, whole, size) for packet in self._encode(waiting[start : start + size])]

    def finish(self) -> list[Packet[Any]]:
        if not self.fed and not self._rest.size:
            # A file needs a frame to be one, and a stream to have an end; its header says that none of it is audio.
            self._rest = np.zeros(1, np.float32)
        packets = self._encode(self._rest) if self._rest.size else []
        return [*packets, *self._context.encode(None)]

    def _encode(self, samples: Samples) -> list[Packet[Any]]:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples)[None], format=self._layout, layout="mono")
        frame.sample_rate = self._context.sample_rate
        frame.time_base = Fraction(1, self._context.sample_rate)
        frame.pts = self.fed
        self.fed += samples.size
        return list(self._context.encode(frame))


class _Mp3:
    """Constant bitrate, as loud as what was fed; every frame stands alone (no bit reservoir), so the first leaves at once."""

    def __init__(self, rate: int, bitrate: int) -> None:
        context = av.AudioCodecContext.create("libmp3lame", "w")
        context.sample_rate = rate
        context.layout = "mono"
        context.format = "fltp"
        context.bit_rate = bitrate * 1000
        context.time_base = Fraction(1, rate)
        context.options = {"reservoir": "0"}
        context.open()
        # LAME itself does not clip: what is beyond ±1 after this comes back within.
        self._frames = _Framed(context, "fltp", 1 / _MP3_SCALE[bitrate])
        self._written = 0

    def feed(self, samples: Samples) -> bytes:
        return self._join(self._frames.feed(samples))

    def finish(self) -> bytes:
        rest = self._frames.finish()
        # LAME pads with up to two frames; what is needed to hear the last sample is enough.
        needed = -(-(self._frames.fed + MP3_DELAY) // MP3_FRAME)
        return self._join(rest[: max(0, needed - self._written)])

    def _join(self, packets: Iterable[Packet[Any]]) -> bytes:
        parts = [bytes(packet) for packet in packets]
        head = info_frame(parts[0]) if parts and not self._written else b""
        self._written += len(parts)
        return head + b"".join(parts)


class _Sink:
    """A file that cannot be rewound; FFmpeg writes into it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


class _Opus:
    """Ogg Opus in frames of 20 ms. The headers are held back until the first page of audio."""

    def __init__(self, rate: int, bitrate: int) -> None:
        self._sink = _Sink()
        # Without these two options the first page would wait for two seconds of audio; bitexact gives
        # the stream a fixed serial number instead of a random one, so that equal audio is equal bytes.
        options = {"page_duration": "100000", "flush_packets": "1", "fflags": "+bitexact"}
        self._container = av.open(self._sink, "w", format="ogg", options=options)
        # Unconstrained, libopus spends 100 kbit/s on a voice where the request says 64: pitched sound costs it more.
        coding = {"frame_duration": "20", "vbr": "constrained"}
        stream = self._container.add_stream("libopus", rate=rate, layout="mono", options=coding)
        stream.bit_rate = _OPUS_AUTOMATIC if bitrate < 0 else bitrate * 1000
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
        rest = self._sink.take()
        return self._with_header(rest) or self._header

    def _mux(self, packets: Iterable[Packet[Any]]) -> None:
        for packet in packets:
            packet.stream = self._stream
            self._container.mux(packet)

    def _with_header(self, pages: bytes) -> bytes:
        if not pages:
            return b""
        head, self._header = self._header, b""
        return head + pages


class StreamEncoder(OneUse):
    """Encode a stream of samples; the bytes do not depend on how the samples are cut up.

    Args:
        format: wav (its size fields say 0xFFFFFFFF: unknown), pcm (16 bits, little-endian), mp3, opus.
        source_rate: rate in Hz of the samples that are fed.
        sample_rate: rate in Hz of the encoded audio; None is the format's default. wav and pcm take any,
            mp3 32000 and 44100, opus 48000.
        mp3_bitrate: 64, 128 or 192 kbit/s, constant.
        opus_bitrate: 24, 32, 48 or 64 kbit/s on average; -1000 leaves it to libopus (51).

    mp3 delays the audio by 1105 samples and fills its last frame. A stream begins with a frame that
    tells the delay, which our decoders take out; the length then comes out right to within one frame
    (1152 samples). Opus carries both figures and comes out exact. Samples beyond ±1 are clipped.

    Raises AudioError, which names the argument.
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
            raise AudioError(f"format: {format!r} is not one of {', '.join(FORMATS)}")
        self.format: AudioFormat = format
        self.rate = DEFAULT_RATES[format] if sample_rate is None else check_rate(sample_rate, "sample_rate")
        if format in ("mp3", "opus") and self.rate not in RATES[format]:
            listed = " or ".join(map(str, RATES[format]))
            raise AudioError(f"sample_rate: {format} can be {listed} Hz, not {self.rate}")
        self._resampler = Resampler(source_rate, self.rate)
        self._codec = _codec(format, self.rate, mp3_bitrate, opus_bitrate)
        self.samples = 0
        """Samples at ``rate`` that were encoded so far."""

    @classmethod
    def for_request(cls, request: TTSRequest, source_rate: int) -> Self:
        """Make the encoder that answers ``request`` with audio of ``source_rate`` Hz."""
        return cls(request.format, source_rate, request.rate, request.mp3_bitrate, request.opus_bitrate)

    def feed(self, samples: Samples) -> bytes:
        """Take samples of shape (n,), return the bytes that are ready, maybe none."""
        self._use()
        return self._encode(self._resampler.feed(as_samples(samples)))

    def finish(self) -> bytes:
        """Return the bytes that were still held; the encoder is of no use afterwards."""
        self._use(last=True)
        return self._encode(self._resampler.finish(), last=True)

    def _encode(self, samples: Samples, *, last: bool = False) -> bytes:
        self.samples += samples.size
        try:
            return self._codec.feed(samples) + (self._codec.finish() if last else b"")
        except av.FFmpegError as error:
            raise AudioError(f"{self.format}: the audio could not be encoded: {error}") from error


def _codec(format: AudioFormat, rate: int, mp3_bitrate: int, opus_bitrate: int) -> _Pcm | _Mp3 | _Opus:
    if mp3_bitrate not in MP3_BITRATES:
        raise AudioError(f"mp3_bitrate: {mp3_bitrate} is not one of {', '.join(map(str, MP3_BITRATES))}")
    if opus_bitrate not in OPUS_BITRATES:
        raise AudioError(f"opus_bitrate: {opus_bitrate} is not one of {', '.join(map(str, OPUS_BITRATES))}")
    if format == "mp3":
        return _Mp3(rate, mp3_bitrate)
    if format == "opus":
        return _Opus(rate, opus_bitrate)
    return _Pcm(wav_header(rate) if format == "wav" else b"")
