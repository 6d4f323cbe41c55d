"""Decoders that give samples while the bytes still arrive."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import av
import numpy as np
from av.packet import Packet

from voicelab.audio.mp3 import frame_length, read_info
from voicelab.audio.samples import SILENT, OneUse, Resampler, Samples, check_rate, from_int16
from voicelab.errors import AudioError
from voicelab.schema import DEFAULT_RATES, FORMATS, AudioFormat

UNKNOWN_FROM: Final = 0x7FFFF000
"""A size at or above this in a WAV header was written before the length was known."""
_OPUS_RATE = 48_000
# Of ID3 (1, 2, and where an ID3v2 at the end is), APE and Lyrics3.
_TAIL_TAGS = (b"TAG", b"ID3", b"3DI", b"APETAGEX", b"LYRICSBEGIN")
# FFmpeg's names of what numpy can hold and a file may reasonably have.
_SAMPLE_KINDS = ("u8", "s16", "s32", "flt", "dbl")
# Of Ogg pages: bytes of the header before its table, and flags.
_PAGE_HEADER = 27
_CONTINUED, _LAST = 1, 4
# Audio has at most 61 kB; tags may hold a picture.
_LONGEST_PACKET = 16 * 2**20
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def mono(frame: av.AudioFrame) -> Samples:
    """Return a decoded frame as one channel of float32; several channels are averaged.

    Raises AudioError for other kinds of samples and for values that are not finite.
    """
    if frame.format.name.removesuffix("p") not in _SAMPLE_KINDS:
        raise AudioError(f"the audio has samples of a kind that cannot be read: {frame.format.name}")
    values = frame.to_ndarray()
    channels = frame.layout.nb_channels
    if not frame.format.is_planar:
        values = values.reshape(-1, channels).T
    kind = values.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        floats = values.astype(np.float32)
    if kind.kind == "f" and not np.isfinite(floats).all():
        raise AudioError("there are samples that are not finite (NaN or infinity)")
    if kind == np.uint8:
        floats = (floats - np.float32(128.0)) / np.float32(128.0)
    elif kind.kind == "i":
        floats /= np.float32(2.0 ** (8 * kind.itemsize - 1))
    with np.errstate(over="ignore"):
        averaged: Samples = floats[0] if channels == 1 else floats.mean(axis=0, dtype=np.float32)
    return averaged


def _join(parts: list[Samples]) -> Samples:
    return np.concatenate(parts) if parts else SILENT


class _Pcm:
    """16-bit little-endian samples of one or more channels."""

    def __init__(self, rate: int, channels: int = 1) -> None:
        self.rate: int | None = rate
        self._width = 2 * channels
        self._channels = channels
        self._rest = b""

    def feed(self, data: bytes) -> Samples:
        data = self._rest + data
        whole = len(data) - len(data) % self._width
        self._rest = data[whole:]
        samples = from_int16(np.frombuffer(data[:whole], "<i2"))
        return samples if self._channels == 1 else samples.reshape(-1, self._channels).mean(axis=1, dtype=np.float32)

    def finish(self) -> Samples:
        if self._rest:
            raise AudioError("the audio is cut off in the middle of a sample")
        return SILENT


def wav_head(data: bytes) -> tuple[int, int | None, bytes]:
    """Walk through the chunks of a WAV file, or of its beginning.

    Returns where its samples begin, their size in bytes as the header has it, and the chunk that describes them; None in
    place of the size where they are not reached, with the place to look at once there is more.
    """
    at, form = 12, b""
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"data":
            return at + 8, size, form
        if name == b"fmt ":
            form = data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    return at, None, form


class _Wav:
    """A WAV file with 16-bit samples whose length may be unknown.

    A size of 0 is unknown too, as servers write it that stream (FFmpeg reads it so), unless the
    file goes on after the samples by its own size: then there are none, and other chunks follow.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self._head = b""
        self._pcm: _Pcm | None = None
        self._left: int | None = None

    def feed(self, data: bytes) -> Samples:
        if self._pcm is None:
            self._head += data
            data = self._start()
        if self._pcm is None:
            return SILENT
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        return self._pcm.feed(data)

    def finish(self) -> Samples:
        if self._pcm is None:
            raise AudioError("wav: the audio is cut off in its header")
        if self._left:
            raise AudioError(f"wav: the audio is cut off, {self._left} bytes are missing")
        return self._pcm.finish()

    def _start(self) -> bytes:
        """Read the header, once it is there; return what follows it."""
        head = self._head
        if len(head) >= 12 and (head[:4] != b"RIFF" or head[8:12] != b"WAVE"):
            raise AudioError("wav: the audio does not begin like a WAV file")
        begin, size, form = wav_head(head)
        if size is None:
            if begin > 1 << 20:
                raise AudioError("wav: there is no audio in the first MiB")
            return b""
        if not form:
            raise AudioError("wav: the samples come before their description")
        self.rate, channels = _read_form(form)
        # What the file says of its size leaves out the first 8 bytes, as this does the 8 before the samples.
        (file,) = struct.unpack_from("<I", head, 4)
        empty = size == 0 and begin - 8 < file < UNKNOWN_FROM
        self._left = size if empty or 0 < size < UNKNOWN_FROM else None
        self._pcm, self._head = _Pcm(self.rate, channels), b""
        return head[begin:]


def _read_form(chunk: bytes) -> tuple[int, int]:
    if len(chunk) < 16:
        raise AudioError("wav: the header is damaged")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == 0xFFFE and len(chunk) >= 26:
        (kind,) = struct.unpack_from("<H", chunk, 24)
    if kind != 1 or bits != 16 or not 1 <= channels <= 8:
        raise AudioError(f"wav: a stream holds 16-bit samples, not kind {kind} with {bits} bits")
    return check_rate(rate, "wav: sample rate"), channels


def _after_the_end(data: bytes) -> bool:
    """Whether bytes after the last frame of an MP3 are what tools leave there: padding, lines, tags."""
    rest = data.lstrip(b"\0 \t\r\n")
    return not rest or rest.startswith(_TAIL_TAGS)


class _Mp3:
    """Frames of MPEG layer III, without ID3 tags, and without the encoder's delay where the stream names it.

    An information frame names delay and padding, ours in a stream only the delay. Streams without one
    stay as they are, usually 1105 samples late.
    """

    def __init__(self) -> None:
        self.rate: int | None = None
        self._context = cast(av.AudioCodecContext, av.CodecContext.create("mp3float", "r"))
        self._head = b""
        self._tag_left = 0
        self._tags_over = False
        self._first = True
        self._skip = 0
        self._left: int | None = None

    def feed(self, data: bytes) -> Samples:
        if not self._tags_over:
            data = self._past_tags(data)
        return self._decode(self._context.parse(data)) if data else SILENT

    def finish(self) -> Samples:
        rest = self._context.parse(b"")
        packets = [packet for packet in rest if not _after_the_end(bytes(packet))]
        for packet in packets:
            # FFmpeg would make up the rest of a frame that is cut off.
            if packet.size < (frame_length(bytes(packet)[:4]) or 0):
                raise AudioError("mp3: the audio is cut off in the middle of a frame")
        tail = self._decode(packets)
        parts = [tail, *(self._take(frame) for frame in self._context.decode(None))]
        if self.rate is None:
            raise AudioError("mp3: there is no audio in it")
        if len(packets) < len(rest) and self._left:
            raise AudioError(f"mp3: the audio is cut off, {self._left} samples are missing")
        return _join(parts)

    def _past_tags(self, data: bytes) -> bytes:
        """Return what of ``data`` is no ID3 tag; they are dropped as they come, for they may be large."""
        while self._tag_left or data:
            passed = min(self._tag_left, len(data))
            self._tag_left -= passed
            data = data[passed:]
            if self._tag_left or not data:
                return b""
            self._head += data
            if self._head[:3] != b"ID3"[: len(self._head)]:
                self._tags_over = True
                return self._head
            if len(self._head) < 10:
                return b""
            sizes = zip(self._head[6:10], (21, 14, 7, 0), strict=True)
            self._tag_left = sum((byte & 0x7F) << shift for byte, shift in sizes)
            data, self._head = self._head[10:], b""
        return b""

    def _decode(self, packets: Iterable[Packet[Any]]) -> Samples:
        parts: list[Samples] = []
        for packet in packets:
            if self._first:
                self._first = False
                info = read_info(bytes(packet))
                if info is not None:
                    self._skip, self._left = info.skip, info.length
                    continue
            parts.extend(self._take(frame) for frame in self._context.decode(packet))
        return _join(parts)

    def _take(self, frame: av.AudioFrame) -> Samples:
        if self.rate is None:
            self.rate = frame.sample_rate
        elif self.rate != frame.sample_rate:
            raise AudioError("mp3: the sample rate changes in the middle")
        samples = mono(frame)
        skipped = min(self._skip, samples.size)
        self._skip -= skipped
        samples = samples[skipped:]
        if self._left is not None:
            samples = samples[: self._left]
            self._left -= samples.size
        return samples


def _crc(data: bytes) -> int:
    """Ogg's checksum: zlib's polynomial, but the highest bit first, from 0."""
    value = zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{value:032b}"[::-1], 2)


@dataclass(frozen=True, slots=True)
class OggPage:
    """The packets that end on a page; ``granule`` counts samples up to its end, -1 when none ends."""

    packets: tuple[bytes, ...]
    granule: int
    last: bool


class OggReader:
    """Turn bytes into Ogg pages (RFC 3533) of one stream. Raises AudioError on damage, by checksums and page numbers.

    PyAV reads on without an error past any flipped byte and any cut (noticed: 0 of
    300, here 300: bench/readers.py), and cannot be fed.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._partial = bytearray()
        self._continues = False
        self._next_number = 0
        self._serial: int | None = None

    @property
    def within_page(self) -> bool:
        """Whether bytes are waiting for the rest of their page or packet."""
        return bool(self._bytes) or self._continues

    def feed(self, data: bytes) -> list[OggPage]:
        """Take bytes, return the pages that are complete."""
        self._bytes += data
        pages = []
        while (page := self._next()) is not None:
            pages.append(page)
        return pages

    def _next(self) -> OggPage | None:
        held = self._bytes
        if held[:4] != b"OggS"[: len(held)]:
            raise AudioError("opus: an Ogg page does not begin where it should; the audio is damaged")
        if len(held) < _PAGE_HEADER or len(held) < _PAGE_HEADER + held[26]:
            return None
        lengths = held[_PAGE_HEADER : _PAGE_HEADER + held[26]]
        begin = _PAGE_HEADER + held[26]
        end = begin + sum(lengths)
        if len(held) < end:
            return None
        page = bytes(held[:end])
        del held[:end]
        self._check(page)
        flags = page[5]
        if bool(flags & _CONTINUED) != self._continues:
            raise AudioError("opus: a packet is broken off between two Ogg pages; the audio is damaged")
        (granule,) = struct.unpack_from("<q", page, 6)
        return OggPage(self._packets(page, bytes(lengths), begin), granule, bool(flags & _LAST))

    def _check(self, page: bytes) -> None:
        serial, number, checksum = struct.unpack_from("<III", page, 14)
        if checksum != _crc(page[:22] + bytes(4) + page[26:]):
            raise AudioError("opus: the checksum of an Ogg page is wrong; the audio is damaged")
        if self._serial is None:
            self._serial, self._next_number = serial, number
        if serial != self._serial:
            raise AudioError("opus: there is more than one stream in the Ogg file")
        if number != self._next_number:
            raise AudioError("opus: an Ogg page is missing")
        self._next_number = number + 1

    def _packets(self, page: bytes, lengths: bytes, begin: int) -> tuple[bytes, ...]:
        packets: list[bytes] = []
        for length in lengths:
            self._partial += page[begin : begin + length]
            begin += length
            # A segment of 255 bytes says that its packet goes on.
            if length < 255:
                packets.append(bytes(self._partial))
                self._partial.clear()
        if len(self._partial) > _LONGEST_PACKET:
            raise AudioError("opus: a packet is longer than any packet of audio or tags")
        self._continues = bool(lengths) and lengths[-1] == 255
        return tuple(packets)


class _Opus:
    """Ogg Opus; its header says what to skip, the last page where to stop, so the length is exact."""

    def __init__(self) -> None:
        self.rate: int | None = None
        self._reader = OggReader()
        self._context: av.AudioCodecContext | None = None
        self._packets = 0
        self._pre_skip = 0
        self._given = 0
        self._complete = False

    def feed(self, data: bytes) -> Samples:
        parts: list[Samples] = []
        for page in self._reader.feed(data):
            if self._complete:
                raise AudioError("opus: there is more after the end of the stream")
            samples = _join([self._packet(packet) for packet in page.packets])
            self._complete = page.last
            if page.last and page.granule >= 0:
                samples = samples[: max(0, page.granule - self._pre_skip - self._given)]
            self._given += samples.size
            parts.append(samples)
        return _join(parts)

    def finish(self) -> Samples:
        if self._reader.within_page or not self._complete:
            raise AudioError("opus: the audio is cut off before its end")
        return SILENT

    def _packet(self, packet: bytes) -> Samples:
        number, self._packets = self._packets, self._packets + 1
        if number == 0:
            self._read_head(packet)
        if number < 2 or self._context is None:
            return SILENT
        # FFmpeg leaves out the pre-skip that the header names.
        return _join([mono(frame) for frame in self._context.decode(Packet(packet))])

    def _read_head(self, packet: bytes) -> None:
        if len(packet) < 19 or packet[:8] != b"OpusHead" or packet[9] not in (1, 2) or packet[18] != 0:
            raise AudioError("opus: the stream does not begin like Ogg Opus of one or two channels")
        (self._pre_skip,) = struct.unpack_from("<H", packet, 10)
        context = av.AudioCodecContext.create("libopus", "r")
        context.extradata = packet
        context.sample_rate = _OPUS_RATE
        context.layout = "mono" if packet[9] == 1 else "stereo"
        context.open()
        self._context = context
        self.rate = _OPUS_RATE


class StreamDecoder(OneUse):
    """Decode a stream of bytes; samples come out while bytes still arrive.

    Args:
        format: wav, pcm, mp3 or opus. The bytes are read as this format and no other.
        sample_rate: rate in Hz of the samples that come out; None is the format's default. A stream that
            says another rate of itself is resampled.

    The samples do not depend on how the bytes are cut up, and stay within ±1. Raises AudioError on bytes
    of another kind, on damage, and from ``finish()`` when the stream was cut off.
    """

    _name = "decoder"

    def __init__(self, format: AudioFormat, sample_rate: int | None = None) -> None:
        if format not in FORMATS:
            raise AudioError(f"format: {format!r} is not one of {', '.join(FORMATS)}")
        self.format: AudioFormat = format
        self.rate = DEFAULT_RATES[format] if sample_rate is None else check_rate(sample_rate, "sample_rate")
        self._codec = _codec(format, self.rate)
        self._resampler: Resampler | None = None

    @property
    def source_rate(self) -> int | None:
        """Rate in Hz that the stream says it has; None until its header has come."""
        return self._codec.rate

    def feed(self, data: bytes) -> Samples:
        """Take bytes, return the samples that are ready, shape (n,), maybe none."""
        self._use()
        try:
            return self._at_rate(self._codec.feed(data))
        except av.FFmpegError as error:
            raise AudioError(f"{self.format}: the audio is damaged: {error}") from error

    def finish(self) -> Samples:
        """Return the samples that were still held; the decoder is of no use afterwards."""
        self._use(last=True)
        try:
            last = self._at_rate(self._codec.finish())
        except av.FFmpegError as error:
            raise AudioError(f"{self.format}: the audio is damaged or cut off: {error}") from error
        if self._resampler is None:
            return last
        return np.concatenate((last, _bounded(self._resampler.finish())))

    def _at_rate(self, samples: Samples) -> Samples:
        if samples.size == 0:
            return SILENT
        if self._resampler is None:
            self._resampler = Resampler(self._codec.rate or self.rate, self.rate)
        return _bounded(self._resampler.feed(samples))


def _bounded(samples: Samples) -> Samples:
    # Lossy codecs and resampling overshoot a little; no player plays what is beyond full scale.
    return np.clip(samples, np.float32(-1.0), np.float32(1.0))


def _codec(format: AudioFormat, rate: int) -> _Pcm | _Wav | _Mp3 | _Opus:
    if format == "pcm":
        return _Pcm(rate)
    return _Wav() if format == "wav" else _Mp3() if format == "mp3" else _Opus()
