"""Player: a widget that plays speech while it arrives, and shows it.

The sound goes to the browser as 16-bit PCM in binary messages and out through Web Audio
(static/player.js), because an ``<audio>`` element plays a stream of unknown length only at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import anywidget
import numpy as np
import traitlets

from voicelab.audio.analysis import f0, mel, spectrogram
from voicelab.audio.encoders import header_bytes
from voicelab.audio.samples import Samples, as_samples, check_rate, to_int16
from voicelab.audio.words import Words, WordTime, textgrid
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, AudioError, VoicelabError
from voicelab.schema import MEDIA_TYPES
from voicelab.views.background import Arrival, Task
from voicelab.views.bundles import clip_bundle
from voicelab.views.panel import SavedOutput, inlined, styled

Scale = Literal["mel", "linear"]

# Audio contexts of browsers must take 8 to 96 kHz (Web Audio specification, section 1.2).
_LOWEST_RATE, _HIGHEST_RATE = 8_000, 96_000
_COMMON_RATE = 44_100
# One column each 5 ms, as the static picture has; of long clips fewer, a canvas has its limits.
_HOP_S: Final = 0.005
_MOST_COLUMNS: Final = 8_000
# Of a part as many columns as a wide screen has, and no closer than samples differ.
_PART_COLUMNS, _CLOSEST_S = 1_600, 0.001
_WINDOW_S: Final[dict[Scale, float]] = {"mel": 0.04, "linear": 0.025}
_SHORTEST_S: Final = 0.005
_MEL_BANDS: Final = 96
_MOST_LINES: Final = 256
_FLOOR_DB: Final = -120.0
_MEL_TICKS: Final = (200, 500, 1000, 2000, 5000, 10_000)


def pcm_bytes(samples: Samples) -> bytes:
    """Return float32 samples of shape (n,) in [-1, 1] as little-endian signed 16-bit PCM."""
    return to_int16(as_samples(samples)).tobytes()


def playable(clip: Clip) -> Clip:
    """Return ``clip`` at a rate that every browser plays."""
    return clip if _LOWEST_RATE <= clip.rate <= _HIGHEST_RATE else clip.resample(_COMMON_RATE)


def spectrum_bytes(clip: Clip, scale: Scale, part: tuple[float, float] | None = None) -> tuple[dict[str, Any], bytes]:
    """Return a spectrogram for the browser: what it is, and its levels.

    Of a ``part``, from and to in seconds, the columns are closer, and below 2 s the window becomes shorter, to 5 ms at
    0.25 s: what one looks at closely is shown with its single glottal pulses, not its harmonics.

    The levels are unsigned bytes of shape (bands, columns), low bands first: 0 is -120 dB, 255 is 0 dB, where a
    full-scale sine is. The other value holds ``bands``, ``columns``, ``hop`` (seconds between columns), ``start`` (of
    the first) and ``window``, ``ticks``: labels of frequencies and where they are, from 0 (below) to 1, and
    ``frequencies``: Hz of every band.
    """
    window, start = _WINDOW_S[scale], 0.0
    hop = max(_HOP_S, clip.duration / _MOST_COLUMNS)
    if part is not None:
        span = part[1] - part[0]
        window, hop = max(_SHORTEST_S, min(window, span / 50)), max(_CLOSEST_S, span / _PART_COLUMNS)
        start = max(0.0, part[0] - window)
        clip = clip.slice(start, part[1] + window)
    top = clip.rate / 2
    if scale == "mel":
        spectrum = mel(clip, bands=_MEL_BANDS, window_s=window, hop_s=hop)
        db, frequencies = spectrum.db, spectrum.frequencies
        shares = np.interp(_MEL_TICKS, spectrum.frequencies, (np.arange(_MEL_BANDS) + 0.5) / _MEL_BANDS)
        ticks = [(_hertz(hz), float(share)) for hz, share in zip(_MEL_TICKS, shares, strict=True) if hz < 0.9 * top]
    else:
        spectrum = spectrogram(clip, window_s=window, hop_s=hop)
        # No more lines than a screen shows: of neighbours the loudest.
        several = -(-len(spectrum.frequencies) // _MOST_LINES)
        db = np.maximum.reduceat(spectrum.db, np.arange(0, len(spectrum.db), several), axis=0)
        frequencies = (np.arange(len(db)) + 0.5) * top / len(db)
        step = 2000 if top <= 12_000 else 5000
        ticks = [(_hertz(hz), hz / top) for hz in range(step, int(0.95 * top), step)]
    scaled = np.clip((db - _FLOOR_DB) * (255.0 / -_FLOOR_DB), 0.0, 255.0)
    about = {"bands": db.shape[0], "columns": db.shape[1], "hop": round(hop * clip.rate) / clip.rate, "ticks": ticks}
    about |= {"start": start, "window": window, "scale": scale, "part": part}
    about["frequencies"] = [round(float(hertz)) for hertz in frequencies]
    return about, np.ascontiguousarray(np.rint(scaled).astype(np.uint8)).tobytes()


def _hertz(value: int) -> str:
    return f"{value // 1000} kHz" if value >= 1000 else f"{value} Hz"


def clip_arrivals(clip: Clip) -> list[Arrival]:
    """Return when each part of ``clip`` arrived; empty where that is not known.

    Arrivals count bytes. Samples are taken to be spread over them evenly, which is exact for wav and pcm.
    """
    take = clip.take
    if take is None or not take.timing.arrivals:
        return []
    header = header_bytes(take.request.format)
    ends = np.maximum(np.cumsum([size for _, size in take.timing.arrivals]) - header, 0)
    if ends[-1] == 0:
        return []
    edges = np.rint(ends / ends[-1] * len(clip)).astype(int)
    counts = np.diff(edges, prepend=0)
    times = (seconds for seconds, _ in take.timing.arrivals)
    return [(seconds, int(count)) for seconds, count in zip(times, counts, strict=True) if count]


class Player(SavedOutput, anywidget.AnyWidget):
    """A player with a live waveform: hears and shows samples as they are fed.

    Args:
        clip: what it holds at first; None leaves it empty, for ``begin`` and ``feed``.
        label: what a screen reader calls it.
        name: the file name, without its suffix, of a download.
        compact: show only what a grid of many has room for.

    Below the waveform are a spectrogram (mel or linear, its range in dB to choose) and the arrival of every
    chunk: a block where its sound is, as high as it came early. Words stand below the waveform where they are known: a
    click plays from one, a double click repeats it. A click goes there, a drag repeats a part, the
    wheel with Ctrl or Alt zooms. Keys while it has the focus: space plays and pauses, the arrows go one second
    back and forth (with shift a tenth), L repeats, Escape ends that, [ and ] go from word to word,
    + and - zoom, 0 shows all, F draws the pitch, M marks the part that repeats as a region, to be named by a double click.

    ``begin``, ``feed`` and ``end`` may be called from any one thread; a view that opens later gets all
    that came before. Nothing is normalised: the loudness is the clip's.
    """

    about = "a player of speech, with its waveform, its spectrogram and how it arrived"
    _esm = inlined("player.js")
    _css = styled("player.css", "words.css")

    rate = traitlets.Int(_COMMON_RATE).tag(sync=True)
    label = traitlets.Unicode("Speech").tag(sync=True)
    name = traitlets.Unicode("speech").tag(sync=True)
    compact = traitlets.Bool(False).tag(sync=True)
    words: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    """Its words: a text, and from when to when it is said, in seconds."""

    marks: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    """Its regions, as ``words`` are; ``regions`` has them as values."""

    # Pictures and files are made one after another, so that many players do not crowd out the kernel.
    _one_at_a_time = threading.Lock()

    def __init__(
        self, clip: Clip | None = None, *, label: str = "Speech", name: str = "speech", compact: bool = False
    ) -> None:
        self._lock = threading.RLock()
        self._take = 0
        self._pcm = bytearray()
        self._arrivals: list[tuple[float, int, int]] = []
        self._ended = False
        self._autoplay = False
        super().__init__(label=label, name=name, compact=compact)
        self.on_msg(self._on_message)
        if clip is not None:
            self.show(clip)

    def show(self, clip: Clip, *, autoplay: bool = False) -> None:
        """Replace what it holds by ``clip``."""
        clip = playable(clip)
        self.begin(clip.rate, autoplay=autoplay)
        self.feed(clip.samples, clip_arrivals(clip))
        self.end(clip.words)

    def begin(self, rate: int, *, autoplay: bool = True) -> None:
        """Empty it for new speech at ``rate`` Hz; with ``autoplay`` it sounds as soon as samples come.

        Raises AudioError unless ``rate`` is a whole number of Hz.
        """
        with self._lock:
            self._take += 1
            self._pcm = bytearray()
            self._arrivals = []
            self._ended = False
            self._autoplay = autoplay
            self.words, self.marks = [], []
            self.rate = check_rate(rate)
            self._post("begin")

    def feed(self, samples: Samples, arrivals: Sequence[Arrival] = ()) -> None:
        """Add float32 samples of shape (n,), and which chunks brought them. Raises AudioError unless they are that."""
        data = pcm_bytes(samples)
        with self._lock:
            start = first = len(self)
            new = []
            for seconds, count in arrivals:
                new.append((round(seconds, 4), first, count))
                first += count
            self._pcm += data
            self._arrivals += new
            self._post("audio", data, start=start, arrivals=new)

    def end(self, words: Iterable[WordTime] = ()) -> None:
        """Say that the speech is complete, or that no more of it will come; ``words`` are shown below the waveform."""
        with self._lock:
            self._ended = True
            self.words = [[word.text, round(word.start, 4), round(word.end, 4)] for word in words]
            self._post("end", samples=len(self))
        self.update_saved_output()

    def __len__(self) -> int:
        """Samples held."""
        return len(self._pcm) // 2

    def __bool__(self) -> bool:
        # An empty player is still a player.
        return True

    @property
    def duration(self) -> float:
        """Seconds held."""
        return len(self) / self.rate

    @property
    def clip(self) -> Clip:
        """What it holds, in 16 bits, as a Clip."""
        with self._lock:
            samples = np.frombuffer(bytes(self._pcm), "<i2").astype(np.float32) / np.float32(32768.0)
            return Clip(samples, self.rate, Words(WordTime(*word) for word in self.words))

    @property
    def regions(self) -> Words:
        """The parts that were marked in it, with their labels: a table that can be saved as a TextGrid, SRT or WebVTT.

        Set it to mark parts from here, as WordTimes or (label, start, end) in seconds. Raises AudioError for what is no part.
        """
        return Words((WordTime(*mark) for mark in self.marks), self.duration)

    @regions.setter
    def regions(self, regions: Iterable[WordTime | tuple[str, float, float]]) -> None:
        parts = [part if isinstance(part, WordTime) else WordTime(*part) for part in regions]
        for part in parts:
            if part.end > self.duration + 1e-3:
                raise AudioError(f"regions: {part.text!r} ends at {part.end} s, the sound at {self.duration:.3f} s")
        self.marks = [[part.text, part.start, part.end] for part in parts]

    def cut(self, region: str | int = 0) -> Clip:
        """Return the part of its clip that a region marks: the first of this label, or by its place in ``regions``.

        Raises ArgumentError when there is none.
        """
        regions = self.regions
        labels: list[str | int] = [part.text for part in regions] if isinstance(region, str) else [*range(len(regions))]
        if region not in labels:
            have = ", ".join(repr(part.text) for part in regions) or "none; drag over the waveform and press M"
            raise ArgumentError.of("region", f"there is no region {region!r}; there are: {have}")
        part = regions[labels.index(region)]
        return self.clip.slice(part.start, part.end)

    def __repr__(self) -> str:
        return f"Player({self.duration:.2f} s, {self.rate} Hz)"

    def saved_output(self) -> Mapping[str, str]:
        """Return what it holds, to be heard and seen."""
        return clip_bundle(self.clip) if len(self) else {}

    def _post(self, kind: str, data: bytes | None = None, **fields: object) -> None:
        message = {"kind": kind, "take": self._take, "rate": self.rate, "autoplay": self._autoplay, **fields}
        self.send(message, None if data is None else [data])

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        if message.get("kind") == "ready":
            self._repeat()
        elif message.get("take") == self._take:
            take, clip = self._take, self.clip
            # From a thread, so that the kernel stays free.
            Task(lambda: self._work(message, take, clip), name="player").start()

    def _repeat(self) -> None:
        """Answer a view that has just opened, or that has missed something, with all there is."""
        with self._lock:
            if self._take == 0:
                return
            # Only speech that is still arriving starts by itself: reloading a page must not make it talk.
            self._autoplay = self._autoplay and not self._ended
            self._post("begin")
            self._post("audio", bytes(self._pcm), start=0, arrivals=self._arrivals)
            if self._ended:
                self._post("end", samples=len(self))

    def _work(self, message: dict[str, Any], take: int, clip: Clip) -> None:
        """Answer what a page asks of a take; nothing is sent of one that has been replaced."""
        try:
            with Player._one_at_a_time:
                answer = self._answer(message, clip)
        except VoicelabError as error:
            answer = "problem", b"", {"message": str(error)}
        with self._lock:
            if answer is not None and take == self._take and self.comm is not None:
                kind, data, fields = answer
                self._post(kind, data, **fields)

    def _answer(self, message: dict[str, Any], clip: Clip) -> tuple[str, bytes, dict[str, Any]] | None:
        """Return a picture, the pitch or a file, with what there is to say of it; None for what is none of these."""
        match message:
            case {"kind": "spectrogram", "scale": "mel" | "linear" as scale}:
                part = message.get("part")
                about, levels = spectrum_bytes(clip, scale, part and (part[0], part[1]))
                return "spectrogram", levels, about
            case {"kind": "pitch"}:
                return "pitch", f0(clip, hop_s=_HOP_S).values.astype(np.float32).tobytes(), {"hop": _HOP_S}
            case {"kind": "encode", "format": "textgrid"}:
                tiers = {"words": Words(clip.words, clip.duration), "regions": self.regions}
                return "file", textgrid(tiers).encode(), {"name": f"{self.name}.TextGrid", "media": "text/plain"}
            case {"kind": "encode", "format": "wav" | "pcm" | "mp3" | "opus" as format}:
                name, media = f"{self.name}.{format}", MEDIA_TYPES[format]
                return "file", clip.to_bytes(format), {"name": name, "media": media}
        return None
