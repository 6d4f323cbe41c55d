"""Streaming audio decoders, which return samples while bytes are still arriving."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from voicelab.audio.mp3 import frame_length, read_info
from voicelab.audio.samples import NO_SAMPLES, OneUse, Resampler, Samples, check_rate, from_int16
from voicelab.errors import AudioError
from voicelab.schema import DEFAULT_RATES, FORMATS, AudioFormat

if TYPE_CHECKING:
    import av
else:
    from voicelab.audio import ffmpeg as av

UNKNOWN_FROM: Final = 0x7FFFF000
"""A WAV header's size field at or above this value means that the length was unknown when it was written."""
_OPUS_RATE = 48_000
# Signatures of ID3v1, ID3v2, the ID3v2 footer, APE and Lyrics3 tags.
_TAIL_TAGS = (b"TAG", b"ID3", b"3DI", b"APETAGEX", b"LYRICSBEGIN")
# FFmpeg's names of the supported sample formats.
_SAMPLE_FORMATS = ("u8", "s16", "s32", "flt", "dbl")
# Ogg pages: bytes of the header before its segment table, and header-type flags.
_PAGE_HEADER = 27
_FLAG_CONTINUED, _FLAG_LAST = 1, 4
# Maximum size of a packet in bytes. Audio packets have at most 61 kB; tag packets may contain a picture.
_MAX_PACKET_SIZE = 16 * 2**20
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def mono(frame: av.AudioFrame) -> Samples:
    """Convert a decoded frame to float32 mono; channels are averaged.

    Raises AudioError for unsupported sample formats and for values that are not finite.
    """
    if frame.format.name.removesuffix("p") not in _SAMPLE_FORMATS:
        raise AudioError(f"the sample format {frame.format.name} is not supported")
    values = frame.to_ndarray()
    channels = frame.layout.nb_channels
    if not frame.format.is_planar:
        values = values.reshape(-1, channels).T
    dtype = values.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        floats = values.astype(np.float32)
    if dtype.kind == "f" and not np.isfinite(floats).all():
        raise AudioError("samples must be finite, got NaN or infinity")
    if dtype == np.uint8:
        floats = (floats - np.float32(128.0)) / np.float32(128.0)
    elif dtype.kind == "i":
        floats /= np.float32(2.0 ** (8 * dtype.itemsize - 1))
    with np.errstate(over="ignore"):
        averaged: Samples = floats[0] if channels == 1 else floats.mean(axis=0, dtype=np.float32)
    return averaged


def _join(blocks: list[Samples]) -> Samples:
    return np.concatenate(blocks) if blocks else NO_SAMPLES


class _PcmDecoder:
    """Decoder of 16-bit little-endian samples with one or more channels."""

    def __init__(self, rate: int, channels: int = 1) -> None:
        self.rate: int | None = rate
        self._width = 2 * channels
        self._channels = channels
        self._remainder = b""

    def feed(self, data: bytes) -> Samples:
        data = self._remainder + data
        end = len(data) - len(data) % self._width
        self._remainder = data[end:]
        samples = from_int16(np.frombuffer(data[:end], "<i2"))
        return samples if self._channels == 1 else samples.reshape(-1, self._channels).mean(axis=1, dtype=np.float32)

    def finish(self) -> Samples:
        if self._remainder:
            raise AudioError("the audio is cut off in the middle of a sample")
        return NO_SAMPLES


def wav_head(data: bytes) -> tuple[int, int | None, bytes]:
    """Parse the chunks of a WAV or RF64 file, or of its beginning, up to the samples.

    Returns:
        The offset of the samples in bytes, their declared size in bytes, and the body of the ``fmt`` chunk. If ``data``
        ends before the samples, the size is None and the offset is that of the next chunk.
    """
    offset, form, long_size = 12, b"", None
    while offset + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, offset)
        if name == b"data":
            return offset + 8, size if long_size is None else long_size, form
        if name == b"fmt ":
            form = data[offset + 8 : offset + 8 + size]
        if name == b"ds64":  # EBU Tech 3306: sizes of RIFF and of the samples in 64 bits
            long_size = int.from_bytes(data[offset + 16 : offset + 24], "little")
        offset += 8 + size + size % 2
    return offset, None, form


def is_empty_wav(data: bytes) -> bool:
    """Return whether a complete file is a WAV file without samples."""
    begin, size, _ = wav_head(data) if data[:4] in (b"RIFF", b"RF64") else (0, None, b"")
    return size is not None and begin >= len(data)


class _Wav:
    """Decoder of WAV streams with 16-bit samples; the length of a stream may be unknown.

    A data size of 0 also means an unknown length, as streaming servers write it and FFmpeg reads it, unless the RIFF size
    shows that other chunks follow: then the file contains no samples.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self._head = b""
        self._pcm: _PcmDecoder | None = None
        self._remaining: int | None = None

    def feed(self, data: bytes) -> Samples:
        if self._pcm is None:
            self._head += data
            data = self._start()
        if self._pcm is None:
            return NO_SAMPLES
        if self._remaining is not None:
            data = data[: self._remaining]
            self._remaining -= len(data)
        return self._pcm.feed(data)

    def finish(self) -> Samples:
        if self._pcm is None:
            raise AudioError("wav: the audio is cut off in its header")
        if self._remaining:
            raise AudioError(f"wav: the audio is cut off: {self._remaining} bytes are missing")
        return self._pcm.finish()

    def _start(self) -> bytes:
        """Parse the header once it is complete; return the bytes after it."""
        head = self._head
        if len(head) >= 12 and (head[:4] != b"RIFF" or head[8:12] != b"WAVE"):
            raise AudioError("wav: the header must begin with RIFF and WAVE")
        begin, size, form = wav_head(head)
        if size is None:
            if begin > 1 << 20:
                raise AudioError("wav: no data chunk in the first MiB")
            return b""
        if not form:
            raise AudioError("wav: the data chunk must come after the fmt chunk")
        self.rate, channels = _read_form(form)
        # The RIFF size excludes the first 8 bytes; begin - 8 excludes the 8 of the data chunk's header.
        (riff_size,) = struct.unpack_from("<I", head, 4)
        empty = size == 0 and begin - 8 < riff_size < UNKNOWN_FROM
        self._remaining = size if empty or 0 < size < UNKNOWN_FROM else None
        self._pcm, self._head = _PcmDecoder(self.rate, channels), b""
        return head[begin:]


def _read_form(chunk: bytes) -> tuple[int, int]:
    if len(chunk) < 16:
        raise AudioError(f"wav: the fmt chunk must have at least 16 bytes, got {len(chunk)}")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == 0xFFFE and len(chunk) >= 26:
        (kind,) = struct.unpack_from("<H", chunk, 24)
    if kind != 1 or bits != 16 or not 1 <= channels <= 8:
        raise AudioError(
            f"wav: streams must be 16-bit PCM with 1 to 8 channels, got format {kind}, {bits} bits, {channels} channels"
        )
    return check_rate(rate, "wav: sample rate"), channels


def _is_trailer(data: bytes) -> bool:
    """Return whether bytes after the last frame of an MP3 are padding, blank lines or tags."""
    stripped = data.lstrip(b"\0 \t\r\n")
    return not stripped or stripped.startswith(_TAIL_TAGS)


class _Mp3Decoder:
    """Decoder of MP3 streams; skips ID3 tags, and removes the encoder delay if the stream states it.

    The Info frame (LAME header) states delay and padding; in streams encoded by voicelab, only the delay. If there
    is no such frame, the delay remains, usually 1105 samples.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self._context = cast("av.AudioCodecContext", av.CodecContext.create("mp3float", "r"))
        self._head = b""
        self._tag_remaining = 0
        self._tags_done = False
        self._at_first_packet = True
        self._skip = 0
        self._remaining: int | None = None

    def feed(self, data: bytes) -> Samples:
        if not self._tags_done:
            data = self._skip_tags(data)
        return self._decode(self._context.parse(data)) if data else NO_SAMPLES

    def finish(self) -> Samples:
        parsed = self._context.parse(b"")
        packets = [packet for packet in parsed if not _is_trailer(bytes(packet))]
        for packet in packets:
            # FFmpeg pads a truncated frame without reporting an error.
            if packet.size < (frame_length(bytes(packet)[:4]) or 0):
                raise AudioError("mp3: the audio is cut off in the middle of a frame")
        tail = self._decode(packets)
        blocks = [tail, *(self._take(frame) for frame in self._context.decode(None))]
        if self.rate is None:
            raise AudioError("mp3: the data contain no audio frame")
        if len(packets) < len(parsed) and self._remaining:
            raise AudioError(f"mp3: the audio is cut off: {self._remaining} samples are missing")
        return _join(blocks)

    def _skip_tags(self, data: bytes) -> bytes:
        """Drop ID3 tags as they arrive, since they may be large; return the bytes after them."""
        while self._tag_remaining or data:
            skipped = min(self._tag_remaining, len(data))
            self._tag_remaining -= skipped
            data = data[skipped:]
            if self._tag_remaining or not data:
                return b""
            self._head += data
            if self._head[:3] != b"ID3"[: len(self._head)]:
                self._tags_done = True
                return self._head
            if len(self._head) < 10:
                return b""
            sizes = zip(self._head[6:10], (21, 14, 7, 0), strict=True)
            self._tag_remaining = sum((byte & 0x7F) << shift for byte, shift in sizes)
            data, self._head = self._head[10:], b""
        return b""

    def _decode(self, packets: Iterable[av.Packet[Any]]) -> Samples:
        blocks: list[Samples] = []
        for packet in packets:
            if self._at_first_packet:
                self._at_first_packet = False
                info = read_info(bytes(packet))
                if info is not None:
                    self._skip, self._remaining = info.skip, info.length
                    continue
            blocks.extend(self._take(frame) for frame in self._context.decode(packet))
        return _join(blocks)

    def _take(self, frame: av.AudioFrame) -> Samples:
        if self.rate is None:
            self.rate = frame.sample_rate
        elif self.rate != frame.sample_rate:
            raise AudioError(f"mp3: the sample rate must stay at {self.rate} Hz, got {frame.sample_rate} Hz")
        samples = mono(frame)
        skipped = min(self._skip, samples.size)
        self._skip -= skipped
        samples = samples[skipped:]
        if self._remaining is not None:
            samples = samples[: self._remaining]
            self._remaining -= samples.size
        return samples


def _crc(data: bytes) -> int:
    """Compute Ogg's CRC-32: zlib's polynomial, most significant bit first, initial value 0."""
    value = zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{value:032b}"[::-1], 2)


@dataclass(frozen=True, slots=True)
class OggPage:
    """Packets that end on a page; ``granule`` is the sample count at the page's end, -1 if no packet ends."""

    packets: tuple[bytes, ...]
    granule: int
    last: bool


class OggReader:
    """Parse bytes into Ogg pages (RFC 3533) of one stream. Raises AudioError if checksums or page numbers show damage.

    PyAV is not used, because it cannot parse bytes as they arrive and reports no error for damaged and truncated files: it
    detects 0 of 300 damaged files, this class all 300 (bench/readers.py).
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._partial = bytearray()
        self._continues = False
        self._next_number = 0
        self._serial: int | None = None

    @property
    def within_page(self) -> bool:
        """Whether a page or packet is incomplete."""
        return bool(self._bytes) or self._continues

    def feed(self, data: bytes) -> list[OggPage]:
        """Add bytes; return the pages that they complete."""
        self._bytes += data
        pages = []
        while (page := self._next()) is not None:
            pages.append(page)
        return pages

    def _next(self) -> OggPage | None:
        buffer = self._bytes
        if buffer[:4] != b"OggS"[: len(buffer)]:
            raise AudioError("opus: an Ogg page must begin with OggS; the audio is damaged")
        if len(buffer) < _PAGE_HEADER or len(buffer) < _PAGE_HEADER + buffer[26]:
            return None
        lengths = buffer[_PAGE_HEADER : _PAGE_HEADER + buffer[26]]
        begin = _PAGE_HEADER + buffer[26]
        end = begin + sum(lengths)
        if len(buffer) < end:
            return None
        page = bytes(buffer[:end])
        del buffer[:end]
        self._check(page)
        flags = page[5]
        if bool(flags & _FLAG_CONTINUED) != self._continues:
            raise AudioError("opus: a packet is incomplete between two Ogg pages; the audio is damaged")
        (granule,) = struct.unpack_from("<q", page, 6)
        return OggPage(self._packets(page, bytes(lengths), begin), granule, bool(flags & _FLAG_LAST))

    def _check(self, page: bytes) -> None:
        serial, number, checksum = struct.unpack_from("<III", page, 14)
        if checksum != _crc(page[:22] + bytes(4) + page[26:]):
            raise AudioError("opus: checksum mismatch in an Ogg page; the audio is damaged")
        if self._serial is None:
            self._serial, self._next_number = serial, number
        if serial != self._serial:
            raise AudioError("opus: an Ogg file must have one stream, got several")
        if number != self._next_number:
            raise AudioError("opus: an Ogg page is missing")
        self._next_number = number + 1

    def _packets(self, page: bytes, lengths: bytes, begin: int) -> tuple[bytes, ...]:
        packets: list[bytes] = []
        for length in lengths:
            self._partial += page[begin : begin + length]
            begin += length
            # A segment of 255 bytes continues in the next one.
            if length < 255:
                packets.append(bytes(self._partial))
                self._partial.clear()
        if len(self._partial) > _MAX_PACKET_SIZE:
            raise AudioError(f"opus: a packet must be at most {_MAX_PACKET_SIZE} bytes, got {len(self._partial)}")
        self._continues = bool(lengths) and lengths[-1] == 255
        return tuple(packets)


class _OpusDecoder:
    """Decoder of Ogg Opus. The header's pre-skip and the last page's granule position determine the exact length."""

    def __init__(self) -> None:
        self.rate: int | None = None
        self._reader = OggReader()
        self._context: av.AudioCodecContext | None = None
        self._packet_count = 0
        self._pre_skip = 0
        self._returned = 0
        self._complete = False

    def feed(self, data: bytes) -> Samples:
        blocks: list[Samples] = []
        for page in self._reader.feed(data):
            if self._complete:
                raise AudioError("opus: pages follow the last page of the stream")
            samples = _join([self._packet(packet) for packet in page.packets])
            self._complete = page.last
            if page.last and page.granule >= 0:
                samples = samples[: max(0, page.granule - self._pre_skip - self._returned)]
            self._returned += samples.size
            blocks.append(samples)
        return _join(blocks)

    def finish(self) -> Samples:
        if self._reader.within_page or not self._complete:
            raise AudioError("opus: the audio is cut off before its end")
        return NO_SAMPLES

    def _packet(self, packet: bytes) -> Samples:
        number, self._packet_count = self._packet_count, self._packet_count + 1
        if number == 0:
            self._read_head(packet)
        if number < 2 or self._context is None:
            return NO_SAMPLES
        # FFmpeg removes the pre-skip.
        return _join([mono(frame) for frame in self._context.decode(av.Packet(packet))])

    def _read_head(self, packet: bytes) -> None:
        if len(packet) < 19 or packet[:8] != b"OpusHead" or packet[9] not in (1, 2) or packet[18] != 0:
            raise AudioError("opus: the first packet must be an OpusHead of one or two channels")
        (self._pre_skip,) = struct.unpack_from("<H", packet, 10)
        context = av.AudioCodecContext.create("libopus", "r")
        context.extradata = packet
        context.sample_rate = _OPUS_RATE
        context.layout = "mono" if packet[9] == 1 else "stereo"
        context.open()
        self._context = context
        self.rate = _OPUS_RATE


class StreamDecoder(OneUse):
    """Decode a stream of bytes and return samples while bytes are still arriving.

    The samples do not depend on chunk sizes, and stay within ±1.

    Args:
        format: wav, pcm, mp3 or opus. The bytes are decoded as this format only.
        sample_rate: output rate in Hz; None for the format's default. A stream of another rate is resampled.

    Raises:
        AudioError: the bytes have another format or are damaged; in ``finish()``, the stream is truncated.
    """

    _name = "decoder"

    def __init__(self, format: AudioFormat, sample_rate: int | None = None) -> None:
        if format not in FORMATS:
            raise AudioError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
        self.format: AudioFormat = format
        self.rate = DEFAULT_RATES[format] if sample_rate is None else check_rate(sample_rate, "sample_rate")
        self._codec = _codec(format, self.rate)
        self._resampler: Resampler | None = None

    @property
    def source_rate(self) -> int | None:
        """Rate in Hz stated in the stream's header; None until the header has arrived."""
        return self._codec.rate

    def feed(self, data: bytes) -> Samples:
        """Add bytes; return the samples that are ready, shape (n,), which may be empty."""
        self._use()
        try:
            return self._at_rate(self._codec.feed(data))
        except av.FFmpegError as error:
            raise AudioError(f"{self.format}: the audio is damaged: {error}") from error

    def finish(self) -> Samples:
        """Return the remaining samples and close the decoder."""
        self._use(final=True)
        try:
            samples = self._at_rate(self._codec.finish())
        except av.FFmpegError as error:
            raise AudioError(f"{self.format}: the audio is damaged or cut off: {error}") from error
        if self._resampler is None:
            return samples
        return np.concatenate((samples, _bounded(self._resampler.finish())))

    def _at_rate(self, samples: Samples) -> Samples:
        if samples.size == 0:
            return NO_SAMPLES
        if self._resampler is None:
            self._resampler = Resampler(self._codec.rate or self.rate, self.rate)
        return _bounded(self._resampler.feed(samples))


def _bounded(samples: Samples) -> Samples:
    # Lossy codecs and resampling overshoot slightly; players clip at full scale.
    return np.clip(samples, np.float32(-1.0), np.float32(1.0))


def _codec(format: AudioFormat, rate: int) -> _PcmDecoder | _Wav | _Mp3Decoder | _OpusDecoder:
    if format == "pcm":
        return _PcmDecoder(rate)
    return _Wav() if format == "wav" else _Mp3Decoder() if format == "mp3" else _OpusDecoder()
