"""Player: a widget that plays speech while it arrives, and shows it.

The sound goes to the browser as 16-bit PCM in binary messages and out through Web Audio
(static/player.js), because an ``<audio>`` element plays a stream of unknown length only at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from voicelab.audio.clip import Clip
from voicelab.audio.samples import Samples, as_samples, check_rate, to_int16

__all__ = ["Player", "pcm_bytes"]

_STATIC = Path(__file__).parent / "static"

# Audio contexts of browsers must take 8 to 96 kHz (Web Audio specification, section 1.2).
_LOWEST_RATE, _HIGHEST_RATE = 8_000, 96_000
_COMMON_RATE = 44_100


def pcm_bytes(samples: Samples) -> bytes:
    """Return float32 samples of shape (n,) in [-1, 1] as little-endian signed 16-bit PCM."""
    return to_int16(as_samples(samples)).tobytes()


class Player(anywidget.AnyWidget):
    """A player with a live waveform: hears and shows samples as they are fed.

    Args:
        clip: what it holds at first; None leaves it empty, for ``begin`` and ``feed``.
        label: what a screen reader calls it.
        name: the file name, without its suffix, of a download.

    Keys while it has the focus: space plays and pauses, the arrows go one second back and forth.
    ``begin``, ``feed`` and ``end`` may be called from any one thread; a view that opens later gets all
    that came before. Nothing is normalised: the loudness is the clip's.
    """

    _esm = _STATIC / "player.js"
    _css = _STATIC / "player.css"

    rate = traitlets.Int(_COMMON_RATE).tag(sync=True)
    label = traitlets.Unicode("Speech").tag(sync=True)
    name = traitlets.Unicode("speech").tag(sync=True)

    def __init__(self, clip: Clip | None = None, *, label: str = "Speech", name: str = "speech") -> None:
        self._lock = threading.RLock()
        self._take = 0
        self._pcm = bytearray()
        self._ended = False
        self._autoplay = False
        super().__init__(label=label, name=name)
        self.on_msg(self._on_message)
        if clip is not None:
            self.show(clip)

    def show(self, clip: Clip, *, autoplay: bool = False) -> None:
        """Replace what it holds by ``clip``."""
        playable = clip if _LOWEST_RATE <= clip.rate <= _HIGHEST_RATE else clip.resample(_COMMON_RATE)
        self.begin(playable.rate, autoplay=autoplay)
        self.feed(playable.samples)
        self.end()

    def begin(self, rate: int, *, autoplay: bool = True) -> None:
        """Empty it for new speech at ``rate`` Hz; with ``autoplay`` it sounds as soon as samples come.

        Raises AudioError unless ``rate`` is a whole number of Hz.
        """
        with self._lock:
            self._take += 1
            self._pcm = bytearray()
            self._ended = False
            self._autoplay = autoplay
            self.rate = check_rate(rate)
            self._tell("begin")

    def feed(self, samples: Samples) -> None:
        """Add float32 samples of shape (n,). Raises AudioError unless they are that."""
        data = pcm_bytes(samples)
        with self._lock:
            start = len(self._pcm) // 2
            self._pcm += data
            self._tell("audio", data, start=start)

    def end(self) -> None:
        """Say that the speech is complete, or that no more of it will come."""
        with self._lock:
            self._ended = True
            self._tell("end", samples=len(self))

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

    def __repr__(self) -> str:
        return f"Player({self.duration:.2f} s, {self.rate} Hz)"

    def _tell(self, kind: str, data: bytes | None = None, **fields: object) -> None:
        message = {"kind": kind, "take": self._take, "rate": self.rate, "autoplay": self._autoplay, **fields}
        self.send(message, None if data is None else [data])

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        """Answer a view that has just opened, or that has missed something, with all there is."""
        if message.get("kind") != "ready":
            return
        with self._lock:
            if self._take == 0:
                return
            # Only speech that is still arriving starts by itself: reloading a page must not make it talk.
            self._autoplay = self._autoplay and not self._ended
            self._tell("begin")
            self._tell("audio", bytes(self._pcm), start=0)
            if self._ended:
                self._tell("end", samples=len(self))
