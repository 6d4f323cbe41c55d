"""Synthesis of one request: submits its segments as sequences, decodes frames to audio, and collects word times and notes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from voicelab.audio.words import WordTime
from voicelab.call import Call
from voicelab.engine.core.decoding import CodeBlock, Samples
from voicelab.engine.core.sequence import Codes, Frame, Group, Sequence, Settings
from voicelab.engine.family import EngineParts, Segment
from voicelab.errors import EngineError, RequestInvalid
from voicelab.schema import Latency

BLOCK_FRAMES: dict[Latency, tuple[int, ...]] = {"low": (*[1] * 8, 2), "balanced": (8,), "normal": (24,)}
"""Frames per decoded block, in order; the last size repeats. Sizes affect when audio is available, but not its samples.

A block is longer than the first one only after enough audio has been sent, so that playback never stalls as long as synthesis
is faster than real time.
"""
BATCH = 8
"""Maximum number of segments per batch when segments are independent (condition_on_previous_chunks off)."""
_SILENCE_PEAK = 2e-2
"""Output peak below which a segment counts as silent: speech peaks at 0.2 or more."""
_FADE_S = 0.008
"""Duration of the fade-out where speech is cut off, which avoids a click."""


class Speech:
    """Synthesis of a request. Iterate over `audio` once, then read `words` and `notes`."""

    def __init__(self, parts: EngineParts, call: Call, voice: Callable[[], Any], seed: int) -> None:
        """Start the synthesis. `voice` returns the voice for the family's runner; it is called only if the text has words.

        Raises:
            RequestInvalid: the text has no words, or a tag in it is invalid.
            MissingExtra: the text needs an optional package that is not installed.
        """
        self._parts, self._request, self._seed = parts, call.request, seed
        self._codec = parts.decoding.decoding
        self._batch = min(BATCH, parts.scheduler.rows)
        plan = parts.family.plan(call)
        self._notes, self._last_pause_s = list(plan.notes), plan.pause_s
        self._pauses: deque[tuple[int, int]] = deque()
        self._silent_s, self._sample_count = 0.0, 0
        first_segment = next(plan.segments, None)
        if first_segment is None:
            raise RequestInvalid.of("text", "the text has no word that can be spoken")
        self._unsubmitted = chain((first_segment,), plan.segments)
        self._voice = voice()
        self._segments: list[Segment] = []
        self._sequences: list[Sequence] = []
        self._word_times: list[WordTime] = []
        self._codes: list[Codes] = []
        self._cancelled = False
        self._submit()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on omissions, cuts and fields without effect."""
        return tuple(dict.fromkeys([*self._notes, *self._without_effect()]))

    @property
    def words(self) -> tuple[WordTime, ...]:
        """Words as spoken, with their times; () if the family has no word times."""
        return tuple(self._word_times)

    @property
    def codes(self) -> Codes:
        """Generated codes (frames, codebooks). Raises EngineError if no frame has been generated."""
        if not self._codes:
            raise EngineError("no frame has been generated: iterate over audio() first")
        return np.stack(self._codes)

    def cancel(self) -> None:
        """Stop the synthesis; further reads raise Cancelled."""
        self._cancelled = True
        for sequence in tuple(self._sequences):
            sequence.cancel()
        self._parts.scheduler.notify()

    def audio(self) -> Iterator[Samples]:
        """Yield mono samples at the codec's rate as they are decoded, with silence for pause tags."""
        for decoded in self._speech_samples():
            samples, end = decoded, self._sample_count + decoded.size
            while self._pauses and self._pauses[0][0] < end:
                sample_index, length = self._pauses.popleft()
                yield np.concatenate((samples[: sample_index - self._sample_count], np.zeros(length, np.float32)))
                samples, self._sample_count = samples[sample_index - self._sample_count :], sample_index
            self._sample_count = end
            yield samples
        if self._last_pause_s:
            yield np.zeros(round(self._last_pause_s * self._codec.sample_rate), np.float32)

    def _speech_samples(self) -> Iterator[Samples]:
        sizes = iter(BLOCK_FRAMES[self._request.latency])
        size = next(sizes)
        for offset, sequence in self._streams():
            stream, peak, length, begun = self._codec.open(self._voice), 0.0, 0, len(self._codes)
            codes: list[Codes] = []
            sequence.wake_at = size
            for frame in self._follow(sequence, offset):
                codes.append(frame)
                if len(codes) == size and not self._cut:
                    samples = self._decode(stream, codes)
                    peak, length = max(peak, _peak(samples)), length + samples.size
                    yield samples
                    codes, size = [], next(sizes, size)
                    sequence.wake_at = len(self._codes) - begun + size
            samples = self._decode(stream, codes, final=True)
            if max(peak, _peak(samples)) < _SILENCE_PEAK and not self._cut:
                raise EngineError("the model synthesized only silence for this text; please report the text")
            if length + samples.size != (len(self._codes) - begun) * self._codec.hop:
                raise EngineError("the decoded length does not match the number of codes")
            if self._cut:
                size = min(samples.size, round(_FADE_S * self._codec.sample_rate))
                fade = np.cos(np.linspace(0, np.pi / 2, size, dtype=np.float32)) ** 2
                samples = np.concatenate((samples[: samples.size - size], samples[samples.size - size :] * fade))
            yield samples

    def _streams(self) -> Iterator[tuple[int, Sequence]]:
        """Yield the sequences in order, each with the index of its first segment; the next batch is submitted in advance."""
        independent = not self._request.condition_on_previous_chunks
        for offset, sequence in enumerate(self._sequences):  # the list grows during iteration
            if independent and offset % self._batch == 0:
                self._submit()
            yield offset, sequence

    def _decode(self, stream: Any, frames: list[Codes], final: bool = False) -> Samples:
        codes = np.stack(frames) if frames else np.zeros((0, self._codec.codebooks), np.int64)
        return self._parts.decoding.feed(CodeBlock(stream, codes, final))

    def _follow(self, sequence: Sequence, offset: int) -> Iterator[Codes]:
        """Yield the codes of a sequence's frames. Also queues its next segments and records word times and endings."""
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
            # A fade is needed where no other segment continues the speech.
            self._cut = (frame.cut or frame.ending not in {None, "text"}) and (
                not self._request.condition_on_previous_chunks or offset + begun + 1 == len(self._segments)
            )
            if frame.codes is None:
                ended = frame.segment
                self._end(frame, offset)
            else:
                self._time_word(frame, offset)
                self._codes.append(frame.codes)
                yield frame.codes
        if ended < 0 or begun > ended:
            raise EngineError("the speech ended before the end of the text")

    def _submit(self) -> None:
        """Submit the next segments: several independent ones as a batch, or one that later segments will continue."""
        request = self._request
        independent = not request.condition_on_previous_chunks
        batch = list(islice(self._unsubmitted, self._batch if independent else 1))
        if not batch:
            return
        settings = Settings(request.temperature, request.top_p, request.repetition_penalty)
        group = Group(len(batch), request.early_stop_threshold) if independent else None
        sequences = []
        for number, segment in enumerate(batch, start=len(self._sequences)):
            seed = _seed(self._seed, number)
            sequences.append(Sequence(self._voice, settings, seed, request.max_new_tokens, group))
            sequences[-1].add(segment)
            if independent:
                sequences[-1].finish()
        self._segments.extend(batch)
        self._sequences.extend(sequences)
        self._parts.scheduler.submit(*sequences)
        if self._cancelled:  # meanwhile, by another thread
            self.cancel()

    def _feed(self, sequence: Sequence) -> None:
        """Queue one segment in advance, so that long texts are processed while they are played."""
        if not self._request.condition_on_previous_chunks:
            return
        following = next(self._unsubmitted, None)
        if following is None:
            sequence.finish()
        else:
            self._segments.append(following)
            sequence.add(following)
        self._parts.scheduler.notify()

    def _time_word(self, frame: Frame, offset: int) -> None:
        word = self._word_at.get(frame.position, -1)
        if word < 0:
            return
        step = self._codec.hop / self._codec.sample_rate
        begin, end = (self._silent_s + frame_count * step for frame_count in (len(self._codes), len(self._codes) + 1))
        if word != self._word:
            self._word = word
            self._word_times.append(WordTime(self._segments[offset + frame.segment].words[word][0], begin, end))
        else:
            self._word_times[-1] = replace(self._word_times[-1], end=end)

    def _end(self, frame: Frame, offset: int) -> None:
        request = self._request
        reason = {
            "no_room": ": the model has no positions left; use a smaller chunk_length or shorter references",
            "max_new_tokens": f" by max_new_tokens={request.max_new_tokens:g}",
            "early_stop": f" by early_stop_threshold={request.early_stop_threshold:g}",
        }.get(frame.ending or "")
        if reason:
            self._notes.append(f"segment {offset + frame.segment + 1} was cut off{reason}")

    def _without_effect(self) -> Iterator[str]:
        request = self._request
        note = f"early_stop_threshold={request.early_stop_threshold:g} had no effect"
        if request.early_stop_threshold < 1 and request.condition_on_previous_chunks:
            yield f"{note}: with condition_on_previous_chunks, segments are not synthesized as a batch"
        elif request.early_stop_threshold < 1 and self._batch == 1:
            yield f"{note}: this backend synthesizes one segment at a time"
        elif request.early_stop_threshold < 1 and len(self._segments) == 1:
            yield f"{note}: the text has only one segment"


def _seed(seed: int, sequence: int) -> int:
    """Derive the seed of a sequence from the seed of its request by a hash, because generators use only 32 bits."""
    return int(np.random.SeedSequence((seed, sequence)).generate_state(1)[0])


def _peak(samples: Samples) -> float:
    peak = float(np.abs(samples).max(initial=0.0))
    if not math.isfinite(peak):
        raise EngineError("the codec's output is not finite; the weights may be damaged")
    return peak
