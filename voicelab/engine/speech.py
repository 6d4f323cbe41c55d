"""One request being spoken: segments to sequences, frames from the scheduler to audio, words and notes at the end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voicelab.audio.words import WordTime
from voicelab.call import Call
from voicelab.engine.core.decoding import Piece, Samples
from voicelab.engine.core.sequence import Frame, Group, Sequence, Settings
from voicelab.engine.family import EngineParts, Segment
from voicelab.errors import EngineError, RequestInvalid
from voicelab.schema import Latency

PIECES: dict[Latency, tuple[int, ...]] = {"low": (*[1] * 8, 2), "balanced": (8,), "normal": (24,)}
"""Frames decoded at once, piece after piece; the last goes on. What is said does not depend on it, only when it is heard.

No piece is longer than the first, or not before enough has come: none is late where speech is made faster than it is heard.
"""
BATCH = 8
"""Segments that are spoken side by side when each is to be independent of those before it."""
_QUIET = 2e-2
"""Peak of the codec's output below which a segment is no speech: the codec speaks at peaks of 0.2 and more."""
_FADE_S = 0.008
"""Over which speech that is cut in the middle of a sound goes to zero, so that it ends without a click."""


class Speech:
    """A request on its way to audio. Iterate over `audio` once, then read `words` and `notes`."""

    def __init__(self, parts: EngineParts, call: Call, voice: Callable[[], Any], seed: int) -> None:
        """Begins at once. `voice` gives what the family's runner takes, and is called when the text is known to hold words.

        Raises:
            RequestInvalid: there is nothing in the text that can be spoken, or a tag in it cannot be read.
            MissingExtra: reading the text needs what is not installed.
        """
        self._parts, self._request, self._seed = parts, call.request, seed
        self._codec = parts.decoding.decoding
        self._batch = min(BATCH, parts.scheduler.rows)
        plan = parts.family.plan(call)
        self._notes, self._last_pause_s = list(plan.notes), plan.pause_s
        self._pauses: deque[tuple[int, int]] = deque()
        self._silent_s, self._heard = 0.0, 0
        first = next(plan.segments, None)
        if first is None:
            raise RequestInvalid.of("text", "there is no word in the text that can be spoken")
        self._unsubmitted = chain((first,), plan.segments)
        self._voice = voice()
        self._segments: list[Segment] = []
        self._sequences: list[Sequence] = []
        self._word_times: list[WordTime] = []
        self._codes: list[Tensor] = []
        self._cancelled = False
        self._submit()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, or cut, or had no effect."""
        return tuple(dict.fromkeys([*self._notes, *self._without_effect()]))

    @property
    def words(self) -> tuple[WordTime, ...]:
        """Each word as it was read, and when it was said; none where the family does not know."""
        return tuple(self._word_times)

    @property
    def codes(self) -> Tensor:
        """(frames, codebooks) of what was said. Raises EngineError: nothing was said yet."""
        if not self._codes:
            raise EngineError("nothing was said yet")
        return torch.stack(self._codes)

    def cancel(self) -> None:
        """Stops the work; what is still read of it raises Cancelled."""
        self._cancelled = True
        for sequence in tuple(self._sequences):
            sequence.cancel()
        self._parts.scheduler.poke()

    def audio(self) -> Iterator[Samples]:
        """Mono samples at the codec's rate, as they come, and silence where the text has pauses."""
        for spoken in self._spoken():
            samples, end = spoken, self._heard + spoken.size
            while self._pauses and self._pauses[0][0] < end:
                place, length = self._pauses.popleft()
                yield np.concatenate((samples[: place - self._heard], np.zeros(length, np.float32)))
                samples, self._heard = samples[place - self._heard :], place
            self._heard = end
            yield samples
        if self._last_pause_s:
            yield np.zeros(round(self._last_pause_s * self._codec.sample_rate), np.float32)

    def _spoken(self) -> Iterator[Samples]:
        sizes = iter(PIECES[self._request.latency])
        size = next(sizes)
        for offset, sequence in self._streams():
            stream, loudest, length, begun = self._codec.open(self._voice), 0.0, 0, len(self._codes)
            waiting: list[Tensor] = []
            sequence.wake_at = size
            for frame in self._follow(sequence, offset):
                waiting.append(frame)
                if len(waiting) == size and not self._cut:
                    samples = self._decode(stream, waiting)
                    loudest, length = max(loudest, _peak(samples)), length + samples.size
                    yield samples
                    waiting, size = [], next(sizes, size)
                    sequence.wake_at = len(self._codes) - begun + size
            samples = self._decode(stream, waiting, last=True)
            if max(loudest, _peak(samples)) < _QUIET and not self._cut:
                raise EngineError("the voice made nothing but silence of this text; please report the text")
            if length + samples.size != (len(self._codes) - begun) * self._codec.hop:
                raise EngineError("the codec made more or less audio than its codes stand for")
            if self._cut:
                size = min(samples.size, round(_FADE_S * self._codec.sample_rate))
                fade = np.cos(np.linspace(0, np.pi / 2, size, dtype=np.float32)) ** 2
                samples = np.concatenate((samples[: samples.size - size], samples[samples.size - size :] * fade))
            yield samples

    def _streams(self) -> Iterator[tuple[int, Sequence]]:
        """The sequences in order, each with the number of its first segment; the engine is one batch ahead."""
        apart = not self._request.condition_on_previous_chunks
        for offset, sequence in enumerate(self._sequences):  # a list that grows meanwhile
            if apart and offset % self._batch == 0:
                self._submit()
            yield offset, sequence

    def _decode(self, stream: Any, frames: list[Tensor], last: bool = False) -> Samples:
        codes = torch.stack(frames) if frames else torch.zeros(0, self._codec.codebooks, dtype=torch.int64)
        return self._parts.decoding.feed(Piece(stream, codes, last))

    def _follow(self, sequence: Sequence, offset: int) -> Iterator[Tensor]:
        """Codes of a sequence's frames; meanwhile gives it the next segment, and notes words and endings."""
        begun, ended = -1, -1
        for frame in sequence.frames():
            if frame.segment != begun:
                begun = frame.segment
                self._feed(sequence)
                if pause_s := self._segments[offset + begun].pause_s:
                    rate = self._codec.sample_rate
                    self._pauses.append((len(self._codes) * self._codec.hop, round(pause_s * rate)))
                    self._silent_s += self._pauses[-1][1] / rate
                self._word_at = {
                    position: w
                    for w, (_, a, b) in enumerate(self._segments[offset + begun].words)
                    for position in range(a, b)
                }
                self._word = -1
            # A cut is heard where no other segment goes on from there.
            self._cut = (frame.cut or frame.ending not in {None, "text"}) and (
                not self._request.condition_on_previous_chunks or offset + begun + 1 == len(self._segments)
            )
            if frame.codes is None:
                ended = frame.segment
                self._end(frame, offset)
            else:
                self._place_word(frame, offset)
                self._codes.append(frame.codes)
                yield frame.codes
        if ended < 0 or begun > ended:
            raise EngineError("the speech broke off before the end of the text")

    def _submit(self) -> None:
        """Gives the engine segments, if there are any left: one that others will follow, or a batch of them."""
        request = self._request
        apart = not request.condition_on_previous_chunks
        batch = list(islice(self._unsubmitted, self._batch if apart else 1))
        if not batch:
            return
        settings = Settings(request.temperature, request.top_p, request.repetition_penalty)
        group = Group(len(batch), request.early_stop_threshold) if apart else None
        sequences = []
        for number, segment in enumerate(batch, start=len(self._sequences)):
            seed = _seed(self._seed, number)
            sequences.append(Sequence(self._voice, settings, seed, request.max_new_tokens, group))
            sequences[-1].add(segment)
            if apart:
                sequences[-1].finish()
        self._segments.extend(batch)
        self._sequences.extend(sequences)
        self._parts.scheduler.submit(*sequences)
        if self._cancelled:  # meanwhile, by another thread
            self.cancel()

    def _feed(self, sequence: Sequence) -> None:
        """One segment ahead of what is spoken: long texts are read as they are listened to."""
        if not self._request.condition_on_previous_chunks:
            return
        following = next(self._unsubmitted, None)
        if following is None:
            sequence.finish()
        else:
            self._segments.append(following)
            sequence.add(following)
        self._parts.scheduler.poke()

    def _place_word(self, frame: Frame, offset: int) -> None:
        word = self._word_at.get(frame.position, -1)
        if word < 0:
            return
        step = self._codec.hop / self._codec.sample_rate
        begin, end = (self._silent_s + place * step for place in (len(self._codes), len(self._codes) + 1))
        if word != self._word:
            self._word = word
            self._word_times.append(WordTime(self._segments[offset + frame.segment].words[word][0], begin, end))
        else:
            self._word_times[-1] = replace(self._word_times[-1], end=end)

    def _end(self, frame: Frame, offset: int) -> None:
        request = self._request
        why = {
            "no_room": ": the model has no room for more; a smaller chunk_length, or shorter references, leave it some",
            "max_new_tokens": f" by max_new_tokens={request.max_new_tokens:g}",
            "early_stop": f" by early_stop_threshold={request.early_stop_threshold:g}",
        }.get(frame.ending or "")
        if why:
            self._notes.append(f"segment {offset + frame.segment + 1} was cut off{why}")

    def _without_effect(self) -> Iterator[str]:
        request = self._request
        what = f"early_stop_threshold={request.early_stop_threshold:g} had nothing to stop"
        if request.early_stop_threshold < 1 and request.condition_on_previous_chunks:
            yield f"{what}: condition_on_previous_chunks lets segments follow each other, not run together as a batch"
        elif request.early_stop_threshold < 1 and self._batch == 1:
            yield f"{what}: this backend synthesizes one segment at a time"
        elif request.early_stop_threshold < 1 and len(self._segments) == 1:
            yield f"{what}: the text is one segment"


def _seed(seed: int, sequence: int) -> int:
    """Independent randomness for each sequence of a request; torch's CPU generator looks at 32 bits only, so mixed."""
    return int(np.random.SeedSequence((seed, sequence)).generate_state(1)[0])


def _peak(samples: Samples) -> float:
    peak = float(np.abs(samples).max(initial=0.0))
    if not math.isfinite(peak):
        raise EngineError("the codec's numbers are not finite; the weights may be damaged")
    return peak
