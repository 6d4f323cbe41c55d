"""Player: a widget for streamed playback with waveform and spectrogram.

Audio is sent to the browser as 16-bit PCM in binary messages and played by Web Audio (static/player.js), since an
``<audio>`` element plays a stream of unknown length only after its end.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import traitlets

from voicelab.audio.analysis import f0, mel, spectrogram, stable_f0
from voicelab.audio.encoders import header_bytes
from voicelab.audio.samples import Samples, as_samples, check_rate, to_int16
from voicelab.audio.words import Words, WordTime, textgrid
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, AudioError, VoicelabError
from voicelab.schema import MEDIA_TYPES
from voicelab.views.background import Arrival, Task
from voicelab.views.bundles import clip_bundle
from voicelab.views.panel import SavedOutput
from voicelab.views.scripts import PageWidget

SpectrogramScale = Literal["mel", "linear"]

# Audio contexts of browsers must support 8 to 96 kHz (Web Audio specification, section 1.2).
_MIN_RATE, _MAX_RATE = 8_000, 96_000
_DEFAULT_RATE = 44_100
# One column per 5 ms as in the static picture, fewer for long clips, since canvas sizes are limited.
_HOP_S: Final = 0.005
_MAX_COLUMNS: Final = 8_000
# A region has as many columns as a wide screen has pixels.
_REGION_COLUMNS, _MIN_HOP_S = 1_600, 0.001
_WINDOW_S: Final[dict[SpectrogramScale, float]] = {"mel": 0.04, "linear": 0.025}
_MIN_WINDOW_S: Final = 0.005
_MEL_BANDS: Final = 96
_NAME_WORDS, _MAX_NAME = 5, 80  # limits of file names
_MAX_BANDS: Final = 256
_FLOOR_DB: Final = -120.0
_MEL_TICKS: Final = (200, 500, 1000, 2000, 5000, 10_000)


def pcm_bytes(samples: Samples) -> bytes:
    """Convert float32 samples of shape (n,) in [-1, 1] to little-endian signed 16-bit PCM."""
    return to_int16(as_samples(samples)).tobytes()


def playable(clip: Clip) -> Clip:
    """Return a clip at a sample rate that every browser supports."""
    return clip if _MIN_RATE <= clip.rate <= _MAX_RATE else clip.resample(_DEFAULT_RATE)


def spectrum_bytes(
    clip: Clip, scale: SpectrogramScale, region: tuple[float, float] | None = None
) -> tuple[dict[str, Any], bytes]:
    """Compute a spectrogram for the browser; return its metadata and levels.

    For a ``region``, (start, end) in seconds, the hop is shorter. The window is at most a fiftieth of the region, down to
    5 ms at 0.25 s, which resolves glottal pulses instead of harmonics.

    Levels are uint8 of shape (bands, columns), low bands first: 0 is -120 dB, 255 is 0 dB, the level of a full-scale
    sine. Metadata are ``bands``, ``columns``, ``hop``, ``start`` and ``window`` in seconds, ``ticks`` (labels of
    frequencies and their positions from 0, the bottom, to 1) and ``frequencies`` of bands in Hz.
    """
    window, start = _WINDOW_S[scale], 0.0
    hop = max(_HOP_S, clip.duration / _MAX_COLUMNS)
    if region is not None:
        span = region[1] - region[0]
        window, hop = max(_MIN_WINDOW_S, min(window, span / 50)), max(_MIN_HOP_S, span / _REGION_COLUMNS)
        start = max(0.0, region[0] - window)
        clip = clip.slice(start, region[1] + window)
    top = clip.rate / 2
    if scale == "mel":
        spectrum = mel(clip, bands=_MEL_BANDS, window_s=window, hop_s=hop)
        db, frequencies = spectrum.db, spectrum.frequencies
        shares = np.interp(_MEL_TICKS, spectrum.frequencies, (np.arange(_MEL_BANDS) + 0.5) / _MEL_BANDS)
        ticks = [(_hertz(hz), float(share)) for hz, share in zip(_MEL_TICKS, shares, strict=True) if hz < 0.9 * top]
    else:
        spectrum = spectrogram(clip, window_s=window, hop_s=hop)
        # At most as many bands as a screen shows; a band is the maximum of adjacent bins.
        bins_per_band = -(-len(spectrum.frequencies) // _MAX_BANDS)
        db = np.maximum.reduceat(spectrum.db, np.arange(0, len(spectrum.db), bins_per_band), axis=0)
        frequencies = (np.arange(len(db)) + 0.5) * top / len(db)
        step = 2000 if top <= 12_000 else 5000
        ticks = [(_hertz(hz), hz / top) for hz in range(step, int(0.95 * top), step)]
    scaled = np.clip((db - _FLOOR_DB) * (255.0 / -_FLOOR_DB), 0.0, 255.0)
    metadata = {"bands": db.shape[0], "columns": db.shape[1], "hop": round(hop * clip.rate) / clip.rate, "ticks": ticks}
    metadata |= {"start": start, "window": window, "scale": scale, "part": region}
    metadata["frequencies"] = [round(float(hertz)) for hertz in frequencies]
    return metadata, np.ascontiguousarray(np.rint(scaled).astype(np.uint8)).tobytes()


def _hertz(value: int) -> str:
    return f"{value // 1000} kHz" if value >= 1000 else f"{value} Hz"


def clip_arrivals(clip: Clip) -> list[Arrival]:
    """Return the arrivals of a clip's chunks; empty if unknown.

    Recorded arrivals have sizes in bytes. Samples are distributed in proportion to these, which is exact for WAV and
    PCM.
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


def file_name(clip: Clip) -> str:
    """Return a file name for a clip, without suffix: voice, first words and seed, ``ada-the-birch-canoe-seed7``."""
    if clip.take is None:
        return "speech"
    call = clip.take.call
    words = re.findall(r"\w+", call.said)[:_NAME_WORDS]
    seed = clip.take.seed if clip.take.seed is not None else call.seed
    parts = [call.request.reference_id or "", *words, "" if seed is None else f"seed{seed}"]
    return "-".join(re.sub(r"[^\w-]", "", part) for part in parts if part)[:_MAX_NAME] or "speech"


class Player(SavedOutput, PageWidget):
    """A player with a live waveform; plays and shows samples as they are fed.

    Args:
        clip: initial content; None for an empty player, filled by ``begin`` and ``feed``.
        label: accessible name.
        name: file name of downloads, without suffix; by default voice, first words and seed of the clip's call.
        compact: show playback and waveform only.

    Below the waveform are words (if known), a spectrogram (mel or linear, with adjustable range in dB), and the arrivals
    of chunks: one block per chunk at the time of its audio, higher if it arrived earlier. A click seeks, a drag loops a
    region, the wheel with Ctrl or Alt zooms; a click on a word plays from it, a double click loops it. Keys of the
    focused player: space plays and pauses, arrows seek by 1 s (with Shift 0.1 s), L loops, Escape ends the loop, [ and ]
    seek by word, + and - zoom, 0 shows all, F shows F0, M marks the loop as a region, renamed by a double click.

    ``begin``, ``feed`` and ``end`` may be called from any single thread; views opened later get all content. Loudness is
    not normalized.
    """

    about = "a speech player with waveform, spectrogram and arrival times of chunks"
    script = "player.js"
    styles = ("player.css", "words.css")

    rate = traitlets.Int(_DEFAULT_RATE).tag(sync=True)
    label = traitlets.Unicode("Speech").tag(sync=True)
    name = traitlets.Unicode("speech").tag(sync=True)
    compact = traitlets.Bool(False).tag(sync=True)
    words: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    """Words as (text, start, end), in seconds."""

    reports = traitlets.Bool(False).tag(sync=True)
    """Whether the page sends events."""

    marks: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    """Regions as (label, start, end), in seconds; see ``regions``."""

    # Spectrograms and files are computed one at a time for all players, to keep the kernel responsive.
    _work_lock = threading.Lock()

    def __init__(
        self, clip: Clip | None = None, *, label: str = "Speech", name: str = "", compact: bool = False
    ) -> None:
        self._lock = threading.RLock()
        self._take = 0
        self._pcm = bytearray()
        self._arrivals: list[tuple[float, int, int]] = []
        self._ended = False
        self._autoplay = False
        self._callbacks: list[Callable[[str, float], object]] = []
        name = name or ("speech" if clip is None else file_name(clip))
        super().__init__(label=label, name=name, compact=compact)
        self._model = self.model_id  # None once it is closed
        self.on_msg(self._on_message)
        if clip is not None:
            self.show(clip)

    def show(self, clip: Clip, *, autoplay: bool = False) -> None:
        """Replace the content by a clip."""
        clip = playable(clip)
        self.begin(clip.rate, autoplay=autoplay)
        self.feed(clip.samples, clip_arrivals(clip))
        self.end(clip.words)

    def begin(self, rate: int, *, autoplay: bool = True) -> None:
        """Clear the player for new audio at ``rate`` Hz; with ``autoplay``, playback starts with the first samples.

        Raises AudioError unless ``rate`` is an integer.
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
        """Append float32 samples of shape (n,) and the arrivals of their chunks. Raises AudioError for other arrays."""
        data = pcm_bytes(samples)
        with self._lock:
            start = offset = len(self)
            new = []
            for seconds, count in arrivals:
                new.append((round(seconds, 4), offset, count))
                offset += count
            self._pcm += data
            self._arrivals += new
            self._post("audio", data, start=start, arrivals=new)

    def end(self, words: Iterable[WordTime] = ()) -> None:
        """Mark the audio as complete; ``words`` are shown below the waveform."""
        with self._lock:
            self._ended = True
            self.words = [[word.text, round(word.start, 4), round(word.end, 4)] for word in words]
            self._post("end", samples=len(self))
        self.update_saved_output()

    def play(self, start_s: float | None = None) -> None:
        """Play on the page, from ``start_s`` or the current position. Browsers require an earlier click or key press."""
        self._control("play", start_s)

    def pause(self) -> None:
        """Pause on the page."""
        self._control("pause", None)

    def seek(self, seconds: float) -> None:
        """Move the playback position, also while paused."""
        self._control("seek", seconds)

    def on_event(self, callback: Callable[[str, float], object]) -> None:
        """Call ``callback`` with "play", "pause", "ended" or "position" (four times a second) and the position in seconds."""
        self._callbacks.append(callback)
        self.reports = True

    def _control(self, action: str, seconds: float | None) -> None:
        if seconds is not None and not 0.0 <= seconds <= self.duration:
            raise ArgumentError.of("seconds", f"must be between 0 and {self.duration:.3f}, got {seconds}")
        self._post("control", action=action, seconds=seconds)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._pcm) // 2

    def __bool__(self) -> bool:
        return True

    @property
    def duration(self) -> float:
        """Duration in seconds."""
        return len(self) / self.rate

    @property
    def clip(self) -> Clip:
        """Content as a Clip, quantized to 16 bits."""
        with self._lock:
            samples = np.frombuffer(bytes(self._pcm), "<i2").astype(np.float32) / np.float32(32768.0)
            return Clip(samples, self.rate, Words(WordTime(*word) for word in self.words))

    @property
    def regions(self) -> Words:
        """Labeled regions, which can be saved as TextGrid, SRT or WebVTT.

        May be set to WordTimes or (label, start, end) in seconds. Raises AudioError for invalid regions.
        """
        return Words((WordTime(*mark) for mark in self.marks), self.duration)

    @regions.setter
    def regions(self, regions: Iterable[WordTime | tuple[str, float, float]]) -> None:
        marks = [region if isinstance(region, WordTime) else WordTime(*region) for region in regions]
        for mark in marks:
            if mark.end > self.duration + 1e-3:
                raise AudioError(
                    f"regions: the end of {mark.text!r} must be at most {self.duration:.3f} s, got {mark.end} s"
                )
        self.marks = [[mark.text, mark.start, mark.end] for mark in marks]

    def cut(self, region: str | int = 0) -> Clip:
        """Return the clip of a region, selected by its label or by its index in ``regions``.

        Raises ArgumentError for an unknown region.
        """
        regions = self.regions
        labels: list[str | int] = [mark.text for mark in regions] if isinstance(region, str) else [*range(len(regions))]
        if region not in labels:
            names = ", ".join(repr(mark.text) for mark in regions) or "none; drag over the waveform and press M"
            raise ArgumentError.of("region", f"unknown region {region!r}; regions are: {names}")
        mark = regions[labels.index(region)]
        return self.clip.slice(mark.start, mark.end)

    def __repr__(self) -> str:
        return f"Player({self.duration:.2f} s, {self.rate} Hz)"

    def saved_output(self) -> Mapping[str, str]:
        """Return the static output of the content."""
        return clip_bundle(self.clip) if len(self) else {}

    def _post(self, kind: str, data: bytes | None = None, **fields: object) -> None:
        message = {
            "kind": kind,
            "take": self._take,
            "rate": self.rate,
            "autoplay": self._autoplay,
            "model": self._model,
            **fields,
        }
        self.send(message, None if data is None else [data])

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        if message.get("kind") == "ready":
            self._repeat()
        elif message.get("kind") == "event":
            for callback in self._callbacks:
                callback(str(message.get("event")), float(message.get("seconds", 0.0)))
        elif message.get("take") == self._take:
            take, clip = self._take, self.clip
            # Answer from a thread, so that the kernel stays free.
            Task(lambda: self._work(message, take, clip), name="player").start()

    def _repeat(self) -> None:
        """Send all content to a view that has just opened or has missed messages."""
        with self._lock:
            if self._take == 0:
                return
            # Complete audio does not play automatically, for example when a page is reloaded.
            self._autoplay = self._autoplay and not self._ended
            self._post("begin")
            self._post("audio", bytes(self._pcm), start=0, arrivals=self._arrivals)
            if self._ended:
                self._post("end", samples=len(self))

    def _work(self, message: dict[str, Any], take: int, clip: Clip) -> None:
        """Answer a request of a page, unless the content was replaced in the meantime."""
        try:
            with Player._work_lock:
                answer = self._answer(message, clip)
        except VoicelabError as error:
            answer = "problem", b"", {"message": str(error)}
        with self._lock:
            if answer is not None and take == self._take and self.comm is not None:
                kind, data, fields = answer
                self._post(kind, data, **fields)

    def _answer(self, message: dict[str, Any], clip: Clip) -> tuple[str, bytes, dict[str, Any]] | None:
        """Return kind, data and fields of an answer (spectrogram, pitch or file); None for an unknown request."""
        match message:
            case {"kind": "spectrogram", "scale": "mel" | "linear" as scale}:
                region = message.get("part")
                metadata, levels = spectrum_bytes(clip, scale, region and (region[0], region[1]))
                return "spectrogram", levels, metadata
            case {"kind": "pitch"}:
                return "pitch", stable_f0(f0(clip, hop_s=_HOP_S)).values.astype(np.float32).tobytes(), {"hop": _HOP_S}
            case {"kind": "encode", "format": "textgrid"}:
                tiers = {"words": Words(clip.words, clip.duration), "regions": self.regions}
                return "file", textgrid(tiers).encode(), {"name": f"{self.name}.TextGrid", "media": "text/plain"}
            case {"kind": "encode", "format": "wav" | "pcm" | "mp3" | "opus" as format}:
                name, media = f"{self.name}.{format}", MEDIA_TYPES[format]
                return "file", clip.to_bytes(format), {"name": name, "media": media}
        return None
