"""Implementation of `engine.family.Family` for the embedded voice: its runner, its text segments and its speakers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, pairwise
from pathlib import Path

import numpy as np

from voicelab.call import Call
from voicelab.capabilities import SeedSupport
from voicelab.engine.core.decoding import Memo
from voicelab.engine.core.scheduler import RowStep
from voicelab.engine.core.sequence import Codes, Settings
from voicelab.engine.family import EngineParts, SpeechPlan
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.config import PHONES, VOWELS, Phonemes
from voicelab.engine.pointer.english import Lexicon, arpabet_of_ipa, load_guess, with_accents, word_of_arpabet
from voicelab.engine.pointer.front import FrontEnd
from voicelab.engine.pointer.mandarin import characters_of_pinyin
from voicelab.engine.pointer.numpy_codec import PointerDecoding
from voicelab.engine.pointer.rows import LanguageModel, PointerRow, random_numbers
from voicelab.engine.pointer.speakers import (
    References,
    SpeakerFit,
    SpeakerFitter,
    SpeakerProfile,
    similarity,
    speaker_statistics,
)
from voicelab.errors import RequestInvalid
from voicelab.lifecycle import COMPUTING
from voicelab.schema import Model, ReferenceAudio, TTSRequest
from voicelab.tags import Tag, TaggedText, ignored, read_tags
from voicelab.text import as_written, left_out, normalize
from voicelab.text.clean import HAN, speakable
from voicelab.text.markup import plain
from voicelab.text.segments import segment

CONTEXT_PHONES = 40
"""Number of phones of the previous segment that the text encoder also receives, as context."""


class PointerRunner:
    """Implementation of `core.scheduler.Runner`: the language model and its cache.

    Args:
        model: must not change afterwards.
        rows: maximum number of concurrent sequences.
    """

    def __init__(self, model: LanguageModel, rows: int) -> None:
        self.model = model
        self.slow = model.cache(rows)
        self._step = model.step(self.slow)
        self.rows: dict[int, PointerRow] = {}

    def admit(self, row: int, voice: SpeakerFit, settings: Settings, seed: int) -> None:
        """Start a new sequence in an empty row."""
        self.slow.reset(row)
        speaker = self.model.encode_speaker(voice.conditioning[None])[0]
        self.rows[row] = PointerRow(row, settings, random_numbers(seed), speaker)

    def add_segment(self, row: int, segment: Phonemes) -> None:
        """Start the next segment of a row, with the pointer at its first phone.

        This phone is also appended to the segment as context, because speech in the training data usually continues after a
        pause. The pointer never reaches the appended phone.
        """
        state = self.rows[row]
        previous = state.segment
        context_phones = previous.phones[-CONTEXT_PHONES:] if previous else ()
        context_flags = previous.flags[-CONTEXT_PHONES:] if previous else ()
        phones = [*context_phones, *segment.phones, segment.phones[0]]
        state.text = self.model.encode_text(phones, [*context_flags, *segment.flags, segment.flags[0]])
        state.segment, state.context_length = segment, len(context_phones)
        state.pointer, state.dwell = state.context_length, 0

    def step(self, rows: Sequence[int]) -> list[RowStep]:
        """Compute one frame per row; a segment ends when the pointer passes its last phone."""
        states = [self.rows[row] for row in rows]
        before = [self.slow.position(row) for row in rows]
        try:
            codes, moves = self._step.step(states, [self._draws(state) for state in states])
        except BaseException:
            for row, position in zip(rows, before, strict=True):
                self.slow.rewind(row, position)
            raise
        return [self._advance(state, frame, move) for state, frame, move in zip(states, codes, moves, strict=True)]

    def park(self, row: int) -> PointerRow:
        """Remove and return all state of a row."""
        state = self.rows.pop(row)
        state.parked_cache = self.slow.take(row)
        return state

    def resume(self, row: int, parked: PointerRow) -> None:
        """Restore the state that `park` removed from this or another row."""
        if parked.parked_cache is not None:
            self.slow.put(row, parked.parked_cache)
        parked.row, parked.parked_cache = row, None
        self.rows[row] = parked

    def discard(self, row: int) -> None:
        """Clear a row after a failed step."""
        self.slow.reset(row)

    def free_memory(self) -> None:
        """Release cached memory."""
        self.model.free_memory()

    def _advance(self, state: PointerRow, frame: Codes, move: int) -> RowStep:
        phones, position = state.segment.phones if state.segment else (), state.pointer - state.context_length
        if phones[position - 1 : position] == _SILENCE and not state.dwell:
            move = 0
        state.before, state.draws = frame, None
        state.recent = [*state.recent[1:], int(frame[0])]
        state.pointer += move
        emphasized = state.segment is not None and state.pointer - state.context_length in state.segment.emphasized
        state.dwell = 0 if move else state.dwell + (_EMPHASIS if emphasized else 1)
        return RowStep(frame, position, ended=state.pointer >= state.context_length + len(phones))

    def _draws(self, state: PointerRow) -> Floats:
        if state.draws is None:
            state.draws = state.random(len(self.model.config.codebooks))
        return state.draws


_SILENCE = (PHONES.index("^"),)
"""The silence before speech. It lasts at least two frames, because the beginning of the next phone may still be silent."""
_EMPHASIS = 0.16
"""Dwell of a frame on a vowel of an emphasized word, instead of 1, which lengthens the word by half."""
_MAX_CHARACTERS = 600
"""Maximum characters of normalized text per model input; the speech of that many fits the default max_new_tokens."""
_MAX_CHINESE_CHARACTERS = 160
"""The same for text with Chinese characters (one syllable per character)."""
_HAN = re.compile(f"[{HAN}]")
_TAG_KINDS = ("pause", "phonemes", "emphasis")
"""Kinds of tags with an effect. Phonemes are CMU Arpabet, IPA or pinyin; emphasis applies to the word that follows."""


class PointerFamily:
    """A checkpoint of the embedded family on one device.

    Args:
        weights: a checkpoint file, or a folder of two models; by default the checkpoint in the package.
        device: device of the models, which run in numpy on "cpu" and in torch on other devices.

    Raises:
        WeightsError: the checkpoint cannot be read.
    """

    seeds: SeedSupport = "exact"
    license = notice = ""

    def __init__(self, weights: Path | None, device: str = "cpu") -> None:
        self.checkpoint, self._device = checkpoint.load(weights, device), device
        self.presets, self.languages = self.checkpoint.presets, self.checkpoint.languages
        self.models: tuple[Model, ...] = ("s2-pro", "s1") if self.checkpoint.small else ("s2-pro",)
        self.digests = tuple(filter(None, (self.checkpoint.digest, self.checkpoint.small_digest)))
        self.voice_digest = self.checkpoint.codec_digest
        self.decoding = PointerDecoding(self.checkpoint.codec)
        self.front = FrontEnd(Lexicon(load_guess()), self.languages)
        self.references = References(self.checkpoint.codec)
        self._fitter = SpeakerFitter(self.checkpoint.codec, self.front.read)
        self._small: Memo[LanguageModel] = Memo(1)

    def runners(self, model: Model, rows: int) -> Callable[[], PointerRunner]:
        """Load a model on first use, and return a function that makes a runner with `rows` rows."""
        small = partial(checkpoint.load_small, self.checkpoint, self._device)
        return partial(PointerRunner, self._small.get("", small) if model == "s1" else self.checkpoint.lm, rows)

    def plan(self, call: Call) -> SpeechPlan:
        """Plan the segments of a call's text; notes are collected from the whole text, so that none is repeated."""
        request = call.request
        tagged = read_tags(request.text, call.model, lambda tag: self._spelled(tag) or tag.word)
        if "<|phoneme_start|>" in tagged.said:
            raise RequestInvalid.of("text", "<|phoneme_start|> is never closed: <|phoneme_end|> ends a phoneme span")
        self.front.check(tagged.said)
        if request.normalize:
            unread_notes = left_out(tagged.said, self.languages)
        else:
            unread_notes = as_written(tagged.said, self.languages).notes
        unread = [tag for tag in tagged.tags if tag.kind == "phonemes" and not self._spelled(tag)]
        late = [tag.text for tag in tagged.tags if tag.kind == "emphasis" and not _has_words(tagged.said[tag.at :])]
        unused = (f"{tag} had no effect: no word follows it" for tag in late)
        notes = (
            *speakable(tagged.said, self.languages),
            *unread_notes,
            *ignored(tagged, _TAG_KINDS, unread),
            *(
                f"{tag.text}: {symbols} must be English IPA, Arpabet or pinyin"
                for tag in unread
                if (symbols := self._unknown_symbols(tag))
            ),
            *unused,
        )
        *spans, final = _between_pauses(tagged)
        if request.normalize:
            spans, final = [(s, plain(text).text) for s, text in spans], (final[0], plain(final[1]).text)
        ends = not _has_words(final[1])
        segments = self._segments(request, spans if ends else [*spans, final], self._emphasized(request, tagged))
        return SpeechPlan(segments, notes, final[0] if ends else 0.0)

    def _segments(
        self, request: TTSRequest, spans: Iterable[tuple[float, str]], emphasized: Collection[int]
    ) -> Iterator[Phonemes]:
        pause_s, words = 0.0, 0
        for seconds, text in spans:
            pause_s += seconds
            for text_segment in segment(text, request.chunk_length, request.min_chunk_length):
                for phonemes in self._read(request, text_segment.text):
                    emphasized_ranges = [
                        range(*index) for n, (_, *index) in enumerate(phonemes.words, words) if n in emphasized
                    ]
                    vowels = frozenset(index for index in chain(*emphasized_ranges) if phonemes.phones[index] in VOWELS)
                    yield replace(phonemes, pause_s=pause_s, emphasized=vowels)
                    pause_s, words = 0.0, words + len(phonemes.words)

    def _spelled(self, tag: Tag) -> str:
        """Return text that the front end reads as the phonemes of a tag; "" if they are not valid pinyin, Arpabet or IPA.

        Pinyin is converted to Chinese characters, Arpabet and IPA to a word whose letters encode the phones.
        """
        pinyin = characters_of_pinyin(tag.name) if "zh" in self.languages else ""
        arpabet = word_of_arpabet(tag.name, tag.word)
        return pinyin or arpabet or word_of_arpabet(arpabet_of_ipa(tag.name)[0], tag.word)

    def _unknown_symbols(self, tag: Tag) -> str:
        """Return the unknown phones or syllables of a tag in Arpabet or pinyin, or its unknown IPA symbols."""
        unknown = arpabet_of_ipa(tag.name)[1]
        phones = dict.fromkeys(tag.name.split()) if tag.name.isascii() else ()
        return ", ".join(phone for phone in phones if not self._spelled(replace(tag, name=phone))) or unknown

    def _read(self, request: TTSRequest, text: str) -> Iterator[Phonemes]:
        normalized = (normalize if request.normalize else as_written)(with_accents(text), self.languages)
        return filter(lambda phonemes: phonemes.words, map(self.front.read, split_long(normalized.text)))

    def _emphasized(self, request: TTSRequest, text: TaggedText) -> frozenset[int]:
        """Return the indices of the words that tags emphasize."""
        offsets = [tag.at for tag in text.tags if tag.kind == "emphasis"]
        word_spans = [text.said[begin:end] for begin, end in pairwise([0, *offsets])]
        return frozenset(accumulate(sum(len(read.words) for read in self._read(request, span)) for span in word_spans))

    def preset(self, id: str) -> SpeakerProfile:
        """Return the speaker of a preset."""
        return SpeakerProfile(self.checkpoint.speakers[id], None)

    @COMPUTING
    def speaker(self, references: Sequence[ReferenceAudio]) -> SpeakerProfile:
        """Measure one speaker from all references."""
        return self.references.speaker(references)

    def unpack(self, packed: bytes) -> SpeakerProfile | None:
        """Deserialize a stored speaker; return None for another format."""
        width = self.checkpoint.speakers[self.presets[0].id].size
        return SpeakerProfile.from_bytes(packed, width, self.checkpoint.codec.config.filter_bands)

    def voice(self, speaker: SpeakerProfile, parts: EngineParts) -> SpeakerFit:
        """Convert a speaker for the runner; a speaker outside the training data is fitted to the model."""
        return self._fitter.fit(speaker, parts.scheduler, parts.decoding)

    @COMPUTING
    def similarity(self, codes: Codes, voice: SpeakerFit) -> float:
        """Compute the similarity of speech to a voice, from the codes, so that no audio is encoded again."""
        codec, lm = self.checkpoint.codec, self.checkpoint.lm
        speech_statistics = speaker_statistics(codec.dequantize(codes))
        encoded = lm.encode_speaker(np.stack([speech_statistics, voice.target, *self.checkpoint.speakers.values()]))
        return similarity(encoded[0], encoded[1], encoded[2:])

    def reference_notes(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """Describe problems with references as notes for the user."""
        return self.references.notes(references)


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _between_pauses(text: TaggedText) -> Iterator[tuple[float, str]]:
    """Split a text at its pause tags; yield each span with the seconds of silence before it."""
    begin, seconds = 0, 0.0
    for tag in text.tags:
        if tag.kind == "pause" and tag.seconds:
            span = text.said[begin : tag.at].rstrip()
            yield seconds, f"{span}," if span[-1:].isalnum() else span  # a comma, so that the voice pauses at the cut
            begin, seconds = tag.at, tag.seconds
    yield seconds, text.said[begin:]


def split_long(text: str) -> tuple[str, ...]:
    """Split a normalized segment that is too long for the model: the memory for attention grows with the square of length."""
    max_characters = _MAX_CHINESE_CHARACTERS if _HAN.search(text) else _MAX_CHARACTERS
    if len(text) <= max_characters:
        return (text,)
    return tuple(piece.text for piece in segment(text, max_characters, 0))
