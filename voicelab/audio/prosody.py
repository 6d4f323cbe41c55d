"""Streaming time stretching at constant pitch, and gain with a limiter."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import numpy as np

from voicelab.audio.samples import NO_SAMPLES, OneUse, Samples, as_samples, check_rate
from voicelab.audio.words import WordTime
from voicelab.schema import ProsodyControl, TTSRequest

if TYPE_CHECKING:
    import av.filter
else:
    from voicelab.audio import ffmpeg as av

CEILING_DBFS = -0.1
"""Maximum peak level of limited audio in dBFS."""

# Look-ahead before a peak, and time constant of the release.
_LOOK_AHEAD_S, _RELEASE_S = 0.005, 0.08
_BLOCK_S = 0.001
# Gains above this (-0.01 dB) are set to 1, so that samples below the ceiling stay bit-exact.
_UNITY_THRESHOLD = 0.999
# In samples. Frames of a fixed size make FFmpeg's output independent of the caller's block sizes.
_TEMPO_FRAME_SIZE = 1024


class Limiter:
    """Streaming look-ahead peak limiter.

    The gain is set every millisecond and interpolated linearly. It begins to fall 5 ms before a peak, and
    recovers with a time constant of 80 ms. Samples below the ceiling are unchanged. The output has as many
    samples as the input and does not depend on block sizes.
    """

    def __init__(self, rate: int) -> None:
        self._ceiling = 10.0 ** (CEILING_DBFS / 20.0)
        self._block = max(1, round(check_rate(rate) * _BLOCK_S))
        self._ahead = round(_LOOK_AHEAD_S / _BLOCK_S)
        self._recovery = 1.0 - math.exp(-_BLOCK_S / _RELEASE_S)
        self._pending = NO_SAMPLES
        # Maximum gains for the block before the pending blocks, and for each pending block.
        self._gain_limits: list[float] = [1.0]
        # Gain at the start of the pending samples.
        self._gain: float | None = None
        self._min_gain = 1.0

    @property
    def reduction_db(self) -> float:
        """Maximum gain reduction so far in dB, at least 0."""
        return -20.0 * math.log10(self._min_gain)

    def feed(self, samples: Samples) -> Samples:
        """Add samples; return the limited samples that are ready (delay: about 6 ms)."""
        self._pending = np.concatenate((self._pending, samples))
        measured = len(self._gain_limits) - 1
        block_count = self._pending.size // self._block
        fresh = self._pending[measured * self._block : block_count * self._block].reshape(-1, self._block)
        peaks = np.abs(fresh).max(axis=1, initial=0.0)
        self._gain_limits.extend(min(1.0, self._ceiling / float(peak)) if peak else 1.0 for peak in peaks)
        return self._run(block_count - self._ahead - 1)

    def finish(self) -> Samples:
        """Return the remaining samples."""
        remaining = self._pending.size
        padding = np.zeros((self._ahead + 2) * self._block, np.float32)
        return self.feed(padding)[:remaining] if remaining else NO_SAMPLES

    def _max_gain(self, end: int) -> float:
        """Return the maximum gain at the start of pending block ``end``."""
        # The minimum over linear ramps down to each upcoming limit; distance -1 is block end - 1.
        return min(
            limit + (1.0 - limit) * max(0, distance) / (self._ahead + 1)
            for distance, limit in enumerate(self._gain_limits[end : end + self._ahead + 2], start=-1)
        )

    def _run(self, blocks: int) -> Samples:
        """Apply the gain to the first ``blocks`` pending blocks and return their samples."""
        if blocks <= 0:
            return NO_SAMPLES
        gains = [self._max_gain(0) if self._gain is None else self._gain]
        for end in range(1, blocks + 1):
            recovered = gains[-1] + (1.0 - gains[-1]) * self._recovery
            gains.append(min(self._max_gain(end), 1.0 if recovered > _UNITY_THRESHOLD else recovered))
        self._gain = gains[-1]
        self._min_gain = min(self._min_gain, *gains)
        count = blocks * self._block
        ready, self._pending = self._pending[:count], self._pending[count:]
        del self._gain_limits[:blocks]
        if min(gains) == 1.0:
            return ready
        steps = np.arange(self._block) / self._block
        line = np.array(gains[:-1])[:, None] + np.diff(gains)[:, None] * steps
        return (ready * line.ravel()).astype(np.float32)


class _Tempo:
    """Time stretching at constant pitch by FFmpeg's atempo (WSOLA)."""

    def __init__(self, rate: int, speed: float) -> None:
        self._rate = rate
        self._speed = speed
        self._graph = graph = av.filter.Graph()
        time_base = Fraction(1, rate)
        source = graph.add_abuffer(format="fltp", sample_rate=rate, layout="mono", time_base=time_base, name="source")
        graph.link_nodes(source, graph.add("atempo", f"{speed:.9f}"), graph.add("abuffersink")).configure()
        self._remainder = NO_SAMPLES
        self._fed = 0
        self._returned = 0

    def feed(self, samples: Samples) -> Samples:
        pending = np.concatenate((self._remainder, samples))
        end = pending.size - pending.size % _TEMPO_FRAME_SIZE
        self._remainder = pending[end:]
        blocks = [self._push(pending[start : start + _TEMPO_FRAME_SIZE]) for start in range(0, end, _TEMPO_FRAME_SIZE)]
        return np.concatenate(blocks) if blocks else NO_SAMPLES

    def finish(self) -> Samples:
        blocks = [self._push(self._remainder)] if self._remainder.size else []
        if self._fed:
            self._graph.push(None)
            blocks.append(self._pull())
        tail = np.concatenate(blocks) if blocks else NO_SAMPLES
        # The filter ends a few samples early or late; pad or trim to the exact duration.
        remaining = round(self._fed / self._speed) - (self._returned - tail.size)
        return np.concatenate((tail, np.zeros(max(0, remaining - tail.size), np.float32)))[: max(0, remaining)]

    def _push(self, samples: Samples) -> Samples:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples)[None], format="fltp", layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self._fed
        self._fed += samples.size
        self._graph.push(frame)
        return self._pull()

    def _pull(self) -> Samples:
        blocks: list[Samples] = []
        with suppress(av.BlockingIOError, av.EOFError):
            while isinstance(frame := self._graph.pull(), av.AudioFrame):
                blocks.append(frame.to_ndarray()[0])
        ready = np.concatenate(blocks) if blocks else NO_SAMPLES
        self._returned += ready.size
        return ready


class ProsodyProcessor(OneUse):
    """Change the speed (0.5 to 2.0) and the volume (in dB) of a stream of samples at ``rate`` Hz.

    Speed preserves the pitch; ``n`` samples become ``round(n / speed)``. A volume above 0 dB is limited at
    -0.1 dBFS, and ``notes`` states the gain reduction. Delay: 0 at speed 1 and volume 0 (samples unchanged),
    about 0.1 s at other speeds, 6 ms at volumes above 0. The output does not depend on block sizes. Raises
    RequestInvalid, which names the field, for values that ProsodyControl rejects.
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
        """Create the processor with the prosody of ``request`` for samples at ``rate`` Hz."""
        control = request.prosody or ProsodyControl()
        return cls(rate, control.speed, control.volume)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, as sentences; complete after ``finish()``."""
        reduction = 0.0 if self._limiter is None else self._limiter.reduction_db
        if reduction < 0.05:
            return ()
        return (f"The volume of {self.volume:+g} dB was limited by up to {reduction:.1f} dB to avoid clipping.",)

    def feed(self, samples: Samples) -> Samples:
        """Add samples of shape (n,); return the processed samples that are ready, which may be empty."""
        self._use()
        samples = as_samples(samples)
        return self._apply_volume(samples if self._tempo is None else self._tempo.feed(samples))

    def finish(self) -> Samples:
        """Return the remaining samples and close the processor."""
        self._use(final=True)
        tail = NO_SAMPLES if self._tempo is None else self._apply_volume(self._tempo.finish())
        return tail if self._limiter is None else np.concatenate((tail, self._limiter.finish()))

    def _apply_volume(self, samples: Samples) -> Samples:
        if self.volume != 0.0:
            samples = samples * self._gain
        return samples if self._limiter is None else self._limiter.feed(samples)


def stretch_words(words: Iterable[WordTime], speed: float) -> tuple[WordTime, ...]:
    """Scale word times to audio played at ``speed``."""
    return tuple(WordTime(word.text, word.start / speed, word.end / speed) for word in words)
