"""One request being spoken: text to segments to phones, frames from the scheduler to audio, words and notes at the end."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voicelab.audio.clip import WordTime
from voicelab.engine.codec import Codec, DecoderStream
from voicelab.engine.lm import speaker_statistics
from voicelab.engine.sampling import Settings
from voicelab.engine.scheduler import Scheduler
from voicelab.engine.sequence import Frame, Group, Phonemes, Sequence
from voicelab.engine.text.front import FrontEnd
from voicelab.engine.text.normalize import as_written, normalize, speakable
from voicelab.engine.text.normalize.hanzi import HAN
from voicelab.engine.text.segments import segment
from voicelab.engine.threads import OneThread
from voicelab.errors import EngineError, RequestInvalid
from voicelab.schema import Latency, TTSRequest

PIECES: dict[Latency, tuple[int, ...]] = {"low": (*[1] * 8, 2), "balanced": (8,), "normal": (24,)}
"""Frames decoded at once, piece after piece; the last goes on. What is said does not depend on it, only when it is heard.

No piece is longer than the first, or not before enough has come: none is late where speech is made faster than it is heard.
"""
BATCH = 8
"""Segments that are spoken side by side when each is to be independent of those before it."""
_QUIET = 5e-3
"""Peak of the codec's output below which a segment is no speech: the codec speaks at peaks of 0.2 and more."""
_FADE_S = 0.008
"""Over which speech that is cut in the middle of a sound goes to zero, so that it ends without a click."""
_LONGEST_READ = 600
"""Characters of normalized text that are read at once; said, they fit the default max_new_tokens."""
_LONGEST_CHINESE = 160
"""The same where there are Chinese characters, each of which is a syllable."""
_HAN = re.compile(f"[{HAN}]")


@dataclass(frozen=True)
class Parts:
    """What the engine's requests share."""

    codec: Codec
    scheduler: Scheduler
    front: FrontEnd
    decoding: OneThread
    """Where codes become audio."""


class Speech:
    """A request on its way to audio. Iterate over `audio` once, then ask for `words` and `notes`."""

    def __init__(self, parts: Parts, request: TTSRequest, speaker: Callable[[], Tensor], seed: int) -> None:
        """Begins at once. `speaker` gives (STATISTICS * latent,), and is asked when the text is known to hold words.

        Raises:
            RequestInvalid: there is nothing in the text that can be spoken.
            MissingExtra: there are Chinese characters in it, and their readings are not installed.
        """
        self._parts, self._request, self._seed = parts, request, seed
        self._batch = min(BATCH, parts.scheduler.rows)
        # Notes of the whole text: those of each segment would say the same again.
        languages = parts.front.languages
        parts.front.check(request.text)
        written = () if request.normalize else as_written(request.text, languages).notes
        self._notes = [*speakable(request.text, languages), *written]
        segments = self._read()
        first = next(segments, None)
        if first is None:
            raise RequestInvalid.of("text", "there is no word in the text that can be spoken")
        self._segments = chain((first,), segments)
        self._speaker = speaker()
        self._phonemes: list[Phonemes] = []
        self._sequences: list[Sequence] = []
        self._place: list[tuple[str, int, int]] = []
        self._said: list[Tensor] = []
        self._cancelled = False
        self._submit()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, or cut, or had no effect."""
        return tuple(dict.fromkeys([*self._notes, *self._without_effect()]))

    @property
    def words(self) -> tuple[WordTime, ...]:
        """Each word as it was read, and when it was said: exact, since the pointer told."""
        step = self._parts.codec.config.hop / self._parts.codec.config.sample_rate
        return tuple(WordTime(text, first * step, last * step) for text, first, last in self._place)

    @property
    def speaker(self) -> Tensor:
        """(STATISTICS * latent,) of what was said: those of the codes themselves, so that nothing is encoded again.

        Raises:
            EngineError: nothing was said yet.
        """
        if not self._said:
            raise EngineError("nothing was said yet")
        codes = torch.stack(self._said)[None].to(self._parts.codec.decoder.leave.weight.device)
        return speaker_statistics(self._parts.codec.quantizer.decode(codes)[0].cpu())

    def cancel(self) -> None:
        """Stops the work; what is still read of it raises Cancelled."""
        self._cancelled = True
        for sequence in tuple(self._sequences):
            sequence.cancel()
        self._parts.scheduler.poke()

    def audio(self) -> Iterator[NDArray[np.float32]]:
        """Mono samples at the codec's rate, as they come."""
        pieces = iter(PIECES[self._request.latency])
        size = next(pieces)
        hop = self._parts.codec.config.hop
        for offset, sequence in self._streams():
            decoder, loudest, length, begun = DecoderStream(self._parts.codec), 0.0, 0, len(self._said)
            waiting: list[Tensor] = []
            self._cut, sequence.wake_at = False, size
            for frame in self._follow(sequence, offset):
                waiting.append(frame)
                if len(waiting) == size:
                    made = self._decode(decoder, waiting)
                    loudest, length = max(loudest, _peak(made)), length + made.size
                    yield made
                    waiting, size = [], next(pieces, size)
                    sequence.wake_at = len(self._said) - begun + size
            made = self._decode(decoder, waiting, last=True)
            if max(loudest, _peak(made)) < _QUIET and not self._cut:
                raise EngineError("the voice made nothing but silence of this text; please report the text")
            if length + made.size != (len(self._said) - begun) * hop:
                raise EngineError("the codec made more or less audio than its codes stand for")
            yield self._faded(made) if self._cut else made

    def _streams(self) -> Iterator[tuple[int, Sequence]]:
        """The sequences in order, each with the number of its first segment; the engine is one batch ahead."""
        apart = not self._request.condition_on_previous_chunks
        for offset, sequence in enumerate(self._sequences):  # a list that grows meanwhile
            if apart and offset % self._batch == 0:
                self._submit()
            yield offset, sequence

    def _decode(self, decoder: DecoderStream, frames: list[Tensor], last: bool = False) -> NDArray[np.float32]:
        codec = self._parts.codec
        codes = torch.stack(frames) if frames else torch.zeros(0, len(codec.config.codebooks), dtype=torch.int64)
        given = codes[None].to(codec.decoder.leave.weight.device)
        made: NDArray[np.float32] = self._parts.decoding.do(
            lambda: decoder.feed(given, last)[0].cpu().numpy(), len(frames)
        )
        return made

    def _faded(self, made: NDArray[np.float32]) -> NDArray[np.float32]:
        """The end of speech that was cut."""
        size = min(made.size, round(_FADE_S * self._parts.codec.config.sample_rate))
        fade = np.cos(np.linspace(0, np.pi / 2, size, dtype=np.float32)) ** 2
        return np.concatenate((made[: made.size - size], made[made.size - size :] * fade))

    def _follow(self, sequence: Sequence, offset: int) -> Iterator[Tensor]:
        """Codes of a sequence's frames; meanwhile gives it the next segment, and notes words and endings."""
        begun, ended = -1, -1
        for frame in sequence.frames():
            if frame.segment != begun and frame.codes is not None:
                begun = frame.segment
                self._feed(sequence)
                self._word_at = {
                    phone: w
                    for w, (_, a, b) in enumerate(self._phonemes[offset + begun].words)
                    for phone in range(a, b)
                }
                self._word = -1
            if frame.codes is None:
                ended = frame.segment
                self._end(frame, offset)
            else:
                self._place_word(frame, offset)
                self._said.append(frame.codes)
                yield frame.codes
        if ended < 0 or begun > ended:
            raise EngineError("the speech broke off before the end of the text")

    def _submit(self) -> None:
        """Gives the engine segments, if there are any left: one that others will follow, or a batch of them."""
        request = self._request
        apart = not request.condition_on_previous_chunks
        batch = list(islice(self._segments, self._batch if apart else 1))
        if not batch:
            return
        settings = Settings(request.temperature, request.top_p, request.repetition_penalty)
        group = Group(len(batch), request.early_stop_threshold) if apart else None
        made = []
        for number, phonemes in enumerate(batch, start=len(self._sequences)):
            seed = _seed(self._seed, number)
            made.append(Sequence(self._speaker, settings, seed, request.max_new_tokens, group))
            made[-1].add(phonemes)
            if apart:
                made[-1].finish()
        self._phonemes.extend(batch)
        self._sequences.extend(made)
        self._parts.scheduler.submit(*made)
        if self._cancelled:  # meanwhile, by another thread
            self.cancel()

    def _feed(self, sequence: Sequence) -> None:
        """One segment ahead of what is spoken: long texts are read as they are listened to."""
        if not self._request.condition_on_previous_chunks:
            return
        following = next(self._segments, None)
        if following is None:
            sequence.finish()
        else:
            self._phonemes.append(following)
            sequence.add(following)
        self._parts.scheduler.poke()

    def _place_word(self, frame: Frame, offset: int) -> None:
        word = self._word_at.get(frame.phone, -1)
        if word < 0:
            return
        if word != self._word:
            self._place.append(
                (self._phonemes[offset + frame.segment].words[word][0], len(self._said), len(self._said) + 1)
            )
            self._word = word
        else:
            text, first, _ = self._place[-1]
            self._place[-1] = (text, first, len(self._said) + 1)

    def _end(self, frame: Frame, offset: int) -> None:
        limits = {"max_new_tokens": self._request.max_new_tokens, "early_stop": self._request.early_stop_threshold}
        if frame.ending in limits:
            self._cut = True
            name = "early_stop_threshold" if frame.ending == "early_stop" else frame.ending
            self._notes.append(f"segment {offset + frame.segment + 1} was cut off by {name}={limits[frame.ending]:g}")

    def _without_effect(self) -> Iterator[str]:
        request = self._request
        if request.early_stop_threshold < 1:
            what = f"early_stop_threshold={request.early_stop_threshold:g} had nothing to stop"
            if request.condition_on_previous_chunks:
                yield f"{what}: condition_on_previous_chunks lets segments follow each other, not run together as a batch"
            elif len(self._phonemes) == 1:
                yield f"{what}: the text is one segment"

    def _read(self) -> Iterator[Phonemes]:
        """Segments of the text that hold a word, as phones."""
        request = self._request
        for part in segment(request.text, request.chunk_length, request.min_chunk_length):
            written = (normalize if request.normalize else as_written)(part.text, self._parts.front.languages)
            for piece in _pieces(written.text):
                phonemes = self._parts.front.read(piece)
                if phonemes.words:
                    yield phonemes


def _seed(seed: int, sequence: int) -> int:
    """Independent randomness for each sequence of a request; torch's CPU generator looks at 32 bits only, so mixed."""
    return int(np.random.SeedSequence((seed, sequence)).generate_state(1)[0])


def _pieces(text: str) -> tuple[str, ...]:
    """A segment in words can be many times as long as it was in figures; attention needs memory by the square of it."""
    longest = _LONGEST_CHINESE if _HAN.search(text) else _LONGEST_READ
    if len(text) <= longest:
        return (text,)
    return tuple(part.text for part in segment(text, longest, 0))


def _peak(samples: NDArray[np.float32]) -> float:
    peak = float(np.abs(samples).max(initial=0.0))
    if not math.isfinite(peak):
        raise EngineError("the codec's numbers are not finite; the weights may be damaged")
    return peak
