"""Speed without a change of pitch, and volume without clipping, on a stream of samples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from typing import Self

import av
import av.filter
import numpy as np

from voicelab.audio.samples import SILENT, OneUse, Samples, as_samples, check_rate
from voicelab.audio.words import WordTime
from voicelab.schema import ProsodyControl, TTSRequest

CEILING_DBFS = -0.1
"""Peak level in dBFS that limited audio does not exceed."""

# The limiter begins to turn down this long before a peak and recovers with this time constant.
_LOOK_AHEAD_S, _RELEASE_S = 0.005, 0.08
_BLOCK_S = 0.001
# A gain this near to 1 is 1 (0.01 dB), so that what needs no limiting is left exactly as it was.
_RECOVERED = 0.999
# FFmpeg is always fed frames of this many samples, so that its output cannot depend on the caller's.
_TEMPO_FRAME = 1024


class Limiter:
    """A look-ahead peak limiter for a stream: turns peaks down instead of cutting them off.

    The gain is decided once a millisecond and runs in a straight line between; it comes down over the
    5 ms before a peak and recovers in about 80 ms. Samples that need no limiting pass unchanged. The
    output has as many samples as the input and does not depend on how the input is cut up.
    """

    def __init__(self, rate: int) -> None:
        self._ceiling = 10.0 ** (CEILING_DBFS / 20.0)
        self._block = max(1, round(check_rate(rate) * _BLOCK_S))
        self._ahead = round(_LOOK_AHEAD_S / _BLOCK_S)
        self._recovery = 1.0 - math.exp(-_BLOCK_S / _RELEASE_S)
        self._waiting = SILENT
        # Gains needed by the block before the waiting ones and by each of them.
        self._needed: list[float] = [1.0]
        # The gain at the boundary before the waiting samples.
        self._gain: float | None = None
        self._lowest = 1.0

    @property
    def reduction_db(self) -> float:
        """The most by which a peak was turned down so far, in dB, 0 or more."""
        return -20.0 * math.log10(self._lowest)

    def feed(self, samples: Samples) -> Samples:
        """Take samples, return those that are ready (about 6 ms later)."""
        self._waiting = np.concatenate((self._waiting, samples))
        measured = len(self._needed) - 1
        whole = self._waiting.size // self._block
        fresh = self._waiting[measured * self._block : whole * self._block].reshape(-1, self._block)
        peaks = np.abs(fresh).max(axis=1, initial=0.0)
        self._needed.extend(min(1.0, self._ceiling / float(peak)) if peak else 1.0 for peak in peaks)
        return self._run(whole - self._ahead - 1)

    def finish(self) -> Samples:
        """Return the samples that were still held."""
        left = self._waiting.size
        padding = np.zeros((self._ahead + 2) * self._block, np.float32)
        return self.feed(padding)[:left] if left else SILENT

    def _near(self, end: int) -> float:
        """Return the most that the gain may be at the boundary before waiting block ``end``."""
        # A straight line down to each gain that is needed soon; behind the boundary lies block end-1.
        return min(
            needed + (1.0 - needed) * max(0, distance) / (self._ahead + 1)
            for distance, needed in enumerate(self._needed[end : end + self._ahead + 2], start=-1)
        )

    def _run(self, blocks: int) -> Samples:
        """Put out the first ``blocks`` waiting blocks; the gain at both ends of each suits it."""
        if blocks <= 0:
            return SILENT
        gains = [self._near(0) if self._gain is None else self._gain]
        for end in range(1, blocks + 1):
            recovered = gains[-1] + (1.0 - gains[-1]) * self._recovery
            gains.append(min(self._near(end), 1.0 if recovered > _RECOVERED else recovered))
        self._gain = gains[-1]
        self._lowest = min(self._lowest, *gains)
        count = blocks * self._block
        ready, self._waiting = self._waiting[:count], self._waiting[count:]
        del self._needed[:blocks]
        if min(gains) == 1.0:
            return ready
        steps = np.arange(self._block) / self._block
        line = np.array(gains[:-1])[:, None] + np.diff(gains)[:, None] * steps
        return (ready * line.ravel()).astype(np.float32)


class _Tempo:
    """FFmpeg's atempo (overlap-add of similar waveforms): another duration, the same pitch."""

    def __init__(self, rate: int, speed: float) -> None:
        self._rate = rate
        self._speed = speed
        self._graph = graph = av.filter.Graph()
        beat = Fraction(1, rate)
        source = graph.add_abuffer(format="fltp", sample_rate=rate, layout="mono", time_base=beat, name="source")
        graph.link_nodes(source, graph.add("atempo", f"{speed:.9f}"), graph.add("abuffersink")).configure()
        self._rest = SILENT
        self._fed = 0
        self._given = 0

    def feed(self, samples: Samples) -> Samples:
        waiting = np.concatenate((self._rest, samples))
        whole = waiting.size - waiting.size % _TEMPO_FRAME
        self._rest = waiting[whole:]
        parts = [self._push(waiting[start : start + _TEMPO_FRAME]) for start in range(0, whole, _TEMPO_FRAME)]
        return np.concatenate(parts) if parts else SILENT

    def finish(self) -> Samples:
        parts = [self._push(self._rest)] if self._rest.size else []
        if self._fed:
            self._graph.push(None)
            parts.append(self._pull())
        rest = np.concatenate(parts) if parts else SILENT
        # The filter ends a few samples early or late; the duration is what the speed says.
        left = round(self._fed / self._speed) - (self._given - rest.size)
        return np.concatenate((rest, np.zeros(max(0, left - rest.size), np.float32)))[: max(0, left)]

    def _push(self, samples: Samples) -> Samples:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples)[None], format="fltp", layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self._fed
        self._fed += samples.size
        self._graph.push(frame)
        return self._pull()

    def _pull(self) -> Samples:
        parts: list[Samples] = []
        with suppress(av.BlockingIOError, av.EOFError):
            while isinstance(frame := self._graph.pull(), av.AudioFrame):
                parts.append(frame.to_ndarray()[0])
        ready = np.concatenate(parts) if parts else SILENT
        self._given += ready.size
        return ready


class ProsodyProcessor(OneUse):
    """Change the speed (0.5 to 2.0) and the volume (in dB) of a stream of samples at ``rate`` Hz.

    Speed keeps the pitch; ``n`` samples become ``round(n / speed)``. Volume above 0 dB goes through a
    limiter at -0.1 dBFS, and ``notes`` says by how much. Speed 1 with volume 0 passes samples through
    untouched and at once; a speed holds them back for about 0.1 s, a volume above 0 for 6 ms. The
    output does not depend on how the input is cut up. Raises RequestInvalid, which names the field, for
    values that ProsodyControl refuses.
    """

    _name = "processor"

    def __init__(self, rate: int, speed: float = 1.0, volume: float = 0.0) -> None:
        control = ProsodyControl(speed=speed, volume=volume)
        self.rate = check_rate(rate)
        self.speed = control.speed
        self.volume = control.volume
        self._gain = np.float32(10.0 ** (control.volume / 20.0))
        self._tempo = None if control.speed == 1.0 else _Tempo(self.rate, control.speed)
        self._limiter = Limiter(self.rate) if control.volume > 0.0 else None

    @classmethod
    def for_request(cls, request: TTSRequest, rate: int) -> Self:
        """Make the processor that ``request`` asks for, for samples of ``rate`` Hz."""
        control = request.prosody or ProsodyControl()
        return cls(rate, control.speed, control.volume)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the listener should know, in sentences; complete after ``finish()``."""
        reduction = 0.0 if self._limiter is None else self._limiter.reduction_db
        if reduction < 0.05:
            return ()
        return (f"The volume of {self.volume:+g} dB was limited by up to {reduction:.1f} dB, so as not to clip.",)

    def feed(self, samples: Samples) -> Samples:
        """Take samples of shape (n,), return those that are ready, maybe none."""
        self._use()
        samples = as_samples(samples)
        return self._louder(samples if self._tempo is None else self._tempo.feed(samples))

    def finish(self) -> Samples:
        """Return the samples that were still held; the processor is of no use afterwards."""
        self._use(last=True)
        last = SILENT if self._tempo is None else self._louder(self._tempo.finish())
        return last if self._limiter is None else np.concatenate((last, self._limiter.finish()))

    def _louder(self, samples: Samples) -> Samples:
        if self.volume != 0.0:
            samples = samples * self._gain
        return samples if self._limiter is None else self._limiter.feed(samples)


def stretch_words(words: Iterable[WordTime], speed: float) -> tuple[WordTime, ...]:
    """Return when the words are said once the audio goes ``speed`` times as fast."""
    return tuple(WordTime(word.text, word.start / speed, word.end / speed) for word in words)
