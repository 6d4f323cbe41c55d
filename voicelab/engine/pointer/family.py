"""The embedded family behind `engine.family.Family`: one checkpoint, which reads English and Mandarin text, and its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, pairwise
from pathlib import Path

import torch
from torch import Tensor

from voicelab.call import Call
from voicelab.capabilities import SeedSupport
from voicelab.engine.core.decoding import Memo
from voicelab.engine.core.scheduler import RowStep
from voicelab.engine.core.sequence import Settings
from voicelab.engine.family import EngineParts, SpeechPlan
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import PointerDecoding
from voicelab.engine.pointer.config import PHONES, VOWELS, Phonemes
from voicelab.engine.pointer.english import Lexicon, load_guess, word_of_arpabet
from voicelab.engine.pointer.front import FrontEnd
from voicelab.engine.pointer.lm import LM, KVCache, speaker_statistics
from voicelab.engine.pointer.mandarin import characters_of_pinyin
from voicelab.engine.pointer.numpy_step import NumpyStep
from voicelab.engine.pointer.speakers import References, SpeakerFit, SpeakerFitter, SpeakerProfile, similarity
from voicelab.engine.pointer.step import PointerRow, Step, TorchStep
from voicelab.engine.text import as_written, left_out, normalize
from voicelab.engine.text.clean import HAN, clean, speakable
from voicelab.engine.text.segments import segment
from voicelab.errors import RequestInvalid
from voicelab.schema import Model, ReferenceAudio, TTSRequest
from voicelab.tags import Tag, TaggedText, ignored, read_tags

KEPT_PHONES = 40
"""Phones of what was said before that the text encoder still sees when the next segment follows."""


class PointerRunner:
    """The model and its cache, as `core.scheduler.Runner` says.

    Args:
        model: it must not change from now on.
        rows: most sequences at once.
        step: what does the arithmetic; by default what is fastest on the model's device.
    """

    def __init__(self, model: LM, rows: int, step: Callable[[LM, KVCache], Step] | None = None) -> None:
        weight = model.begin
        self.model = model
        self.device = weight.device
        self.slow = KVCache(model.config.slow, rows, weight.device, weight.dtype)
        self._step = (step or (NumpyStep if self.device.type == "cpu" else TorchStep))(model, self.slow)
        self.rows: dict[int, PointerRow] = {}

    @torch.inference_mode()
    def admit(self, row: int, voice: SpeakerFit, settings: Settings, seed: int) -> None:
        """See Runner."""
        self.slow.reset(row)
        speaker = self.model.encode_speaker(voice.conditioning.to(self.device)[None])[0]
        self.rows[row] = PointerRow(row, settings, torch.Generator().manual_seed(seed), speaker)

    @torch.inference_mode()
    def more(self, row: int, segment: Phonemes) -> None:
        """See Runner. The pointer is put before the segment.

        The text encoder also sees how the segment begins once more after its end: in training, speech nearly always
        went on after a pause. The pointer never gets there.
        """
        state = self.rows[row]
        old = state.segment
        kept_phones = old.phones[-KEPT_PHONES:] if old else ()
        kept_flags = old.flags[-KEPT_PHONES:] if old else ()
        phones = torch.tensor([[*kept_phones, *segment.phones, segment.phones[0]]], device=self.device)
        flags = torch.tensor([[*kept_flags, *segment.flags, segment.flags[0]]], device=self.device)
        state.text = self.model.encode_text(phones, flags)[0]
        state.segment, state.kept = segment, len(kept_phones)
        state.pointer, state.dwell = state.kept, 0

    @torch.inference_mode()
    def step(self, rows: Sequence[int]) -> list[RowStep]:
        """See Runner. A segment ends when the pointer leaves it."""
        states = [self.rows[row] for row in rows]
        before = [self.slow.position(row) for row in rows]
        try:
            codes, moves = self._step.step(states, [self._draws(state) for state in states])
        except BaseException:
            for row, position in zip(rows, before, strict=True):
                self.slow.rewind(row, position)
            raise
        return [self._advance(state, frame, move) for state, frame, move in zip(states, codes, moves, strict=True)]

    @torch.inference_mode()
    def park(self, row: int) -> PointerRow:
        """See Runner."""
        state = self.rows.pop(row)
        state.held = self.slow.take(row)
        return state

    @torch.inference_mode()
    def resume(self, row: int, parked: PointerRow) -> None:
        """See Runner."""
        if parked.held is not None:
            self.slow.put(row, parked.held)
        parked.row, parked.held = row, None
        self.rows[row] = parked

    @torch.inference_mode()
    def discard(self, row: int) -> None:
        """See Runner."""
        self.slow.reset(row)

    def free_memory(self) -> None:
        """See Runner. On the CPU torch keeps nothing."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _advance(self, state: PointerRow, frame: Tensor, move: int) -> RowStep:
        phones, position = state.segment.phones if state.segment else (), state.pointer - state.kept
        if phones[position - 1 : position] == _SILENCE and not state.dwell:
            move = 0
        state.before, state.draws = frame, None
        state.recent = [*state.recent[1:], int(frame[0])]
        state.pointer += move
        slowly = state.segment is not None and state.pointer - state.kept in state.segment.emphasised
        state.dwell = 0 if move else state.dwell + (_EMPHASIS if slowly else 1)
        return RowStep(frame, position, ended=state.pointer >= state.kept + len(phones))

    def _draws(self, state: PointerRow) -> Tensor:
        if state.draws is None:
            state.draws = torch.rand(len(self.model.config.codebooks), generator=state.generator)
        return state.draws


_SILENCE = (PHONES.index("^"),)
"""Before speech. What follows, unless skipped, lasts two frames or more: its beginning may still be silent."""
_EMPHASIS = 0.16
"""What a frame counts for in the rest on a phone, in a word that is to be emphasised: it is said half as long again."""
_LONGEST_READ = 600
"""Characters of normalized text that are read at once; said, they fit the default max_new_tokens."""
_LONGEST_CHINESE = 160
"""The same where there are Chinese characters, each of which is a syllable."""
_HAN = re.compile(f"[{HAN}]")
_ACTING = ("pause", "phonemes", "emphasis")
"""Kinds of tags that do something; phonemes are CMU Arpabet or pinyin, and emphasis is of the word that follows."""


class PointerFamily:
    """A checkpoint of the family, ready to run on one device.

    Args:
        weights: a checkpoint, a file or a folder of two models; by default the one inside the package.
        device: where its models run.

    Raises:
        WeightsError: the checkpoint cannot be read.
    """

    seeds: SeedSupport = "exact"
    license = notice = ""

    def __init__(self, weights: Path | None, device: torch.device) -> None:
        self.checkpoint = checkpoint.load(weights, device)
        self.presets, self.languages = self.checkpoint.presets, self.checkpoint.languages
        self.models: tuple[Model, ...] = ("s2-pro", "s1") if self.checkpoint.small else ("s2-pro",)
        self.digests = tuple(filter(None, (self.checkpoint.digest, self.checkpoint.small_digest)))
        self.voice_digest = self.checkpoint.codec_digest
        self.decoding = PointerDecoding(self.checkpoint.codec)
        self.front = FrontEnd(Lexicon(load_guess()), self.languages)
        self.references = References(self.checkpoint.codec)
        self._fitter = SpeakerFitter(self.checkpoint.codec, self.front.read)
        self._small: Memo[LM] = Memo(1)

    def runners(self, model: Model, rows: int) -> Callable[[], PointerRunner]:
        """See engine.family.Family."""
        small = partial(checkpoint.load_small, self.checkpoint)
        return partial(PointerRunner, self._small.get("", small) if model == "s1" else self.checkpoint.lm, rows)

    def plan(self, call: Call) -> SpeechPlan:
        """See engine.family.Family. The notes are of the whole text: those of each segment would say the same again."""
        request = call.request
        tagged = read_tags(request.text, call.model, lambda tag: self._spelled(tag) or tag.word)
        if "<|phoneme_start|>" in tagged.said:
            raise RequestInvalid.of("text", "<|phoneme_start|> is never closed: <|phoneme_end|> ends a phoneme span")
        self.front.check(tagged.said)
        if request.normalize:
            written = left_out(clean(tagged.said, chinese="zh" in self.languages).text, self.languages)
        else:
            written = as_written(tagged.said, self.languages).notes
        unread = [tag for tag in tagged.tags if tag.kind == "phonemes" and not self._spelled(tag)]
        late = [tag.text for tag in tagged.tags if tag.kind == "emphasis" and not _speaks(tagged.said[tag.at :])]
        lost = (f"{tag} did nothing: no word follows it" for tag in late)
        notes = (*speakable(tagged.said, self.languages), *written, *ignored(tagged, _ACTING, unread), *lost)
        *parts, last = _between_pauses(tagged)
        ends = not _speaks(last[1])
        segments = self._segments(request, parts if ends else [*parts, last], self._emphasised(request, tagged))
        return SpeechPlan(segments, notes, last[0] if ends else 0.0)

    def _segments(
        self, request: TTSRequest, parts: Iterable[tuple[float, str]], emphasised: Collection[int]
    ) -> Iterator[Phonemes]:
        pause_s, words = 0.0, 0
        for seconds, text in parts:
            pause_s += seconds
            for part in segment(text, request.chunk_length, request.min_chunk_length):
                for phonemes in self._read(request, part.text):
                    spans = [range(*at) for n, (_, *at) in enumerate(phonemes.words, words) if n in emphasised]
                    vowels = frozenset(at for at in chain(*spans) if phonemes.phones[at] in VOWELS)
                    yield replace(phonemes, pause_s=pause_s, emphasised=vowels)
                    pause_s, words = 0.0, words + len(phonemes.words)

    def _spelled(self, tag: Tag) -> str:
        """What a phoneme span is in a text: characters for pinyin, a word for Arpabet, "" for neither."""
        pinyin = characters_of_pinyin(tag.name) if "zh" in self.languages else ""
        return pinyin or word_of_arpabet(tag.name, tag.word)

    def _read(self, request: TTSRequest, text: str) -> Iterator[Phonemes]:
        written = (normalize if request.normalize else as_written)(text, self.languages)
        return filter(lambda phonemes: phonemes.words, map(self.front.read, pieces(written.text)))

    def _emphasised(self, request: TTSRequest, text: TaggedText) -> frozenset[int]:
        """Numbers of the words, as they are read, that a tag asks to emphasise."""
        places = [tag.at for tag in text.tags if tag.kind == "emphasis"]
        parts = [text.said[begin:end] for begin, end in pairwise([0, *places])]
        return frozenset(accumulate(sum(len(read.words) for read in self._read(request, part)) for part in parts))

    def preset(self, id: str) -> SpeakerProfile:
        """See engine.family.Family."""
        return SpeakerProfile(self.checkpoint.speakers[id], None)

    def speaker(self, references: Sequence[ReferenceAudio]) -> SpeakerProfile:
        """See engine.family.Family."""
        return self.references.speaker(references)

    def unpack(self, packed: bytes) -> SpeakerProfile | None:
        """See engine.family.Family."""
        width = self.checkpoint.speakers[self.presets[0].id].numel()
        return SpeakerProfile.from_bytes(packed, width, self.checkpoint.codec.config.filter_bands)

    def voice(self, speaker: SpeakerProfile, parts: EngineParts) -> SpeakerFit:
        """See engine.family.Family. A speaker that the training never heard is fitted to the model."""
        return self._fitter.fit(speaker, parts.scheduler, parts.decoding)

    @torch.inference_mode()
    def similarity(self, codes: Tensor, voice: SpeakerFit) -> float:
        """See engine.family.Family. The codes themselves are measured, so that nothing is encoded again."""
        codec, lm = self.checkpoint.codec, self.checkpoint.lm
        device = lm.begin.device
        spoken = speaker_statistics(codec.quantizer.decode(codes.to(device)).cpu())
        statistics = torch.stack([spoken, voice.target, *self.checkpoint.speakers.values()])
        encoded = lm.encode_speaker(statistics.to(device)).cpu()
        return similarity(encoded[0], encoded[1], encoded[2:])

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """See engine.family.Family."""
        return self.references.doubts(references)


def _speaks(text: str) -> bool:
    return any(map(str.isalnum, text))


def _between_pauses(text: TaggedText) -> Iterator[tuple[float, str]]:
    """The parts of a text between the pauses that its tags ask for, with the seconds before each."""
    begin, seconds = 0, 0.0
    for tag in text.tags:
        if tag.kind == "pause" and tag.seconds:
            part = text.said[begin : tag.at].rstrip()
            yield seconds, f"{part}," if part[-1:].isalnum() else part  # the voice rests where it is interrupted
            begin, seconds = tag.at, tag.seconds
    yield seconds, text.said[begin:]


def pieces(text: str) -> tuple[str, ...]:
    """A segment in words can be many times as long as it was in figures; attention needs memory by the square of it."""
    longest = _LONGEST_CHINESE if _HAN.search(text) else _LONGEST_READ
    if len(text) <= longest:
        return (text,)
    return tuple(part.text for part in segment(text, longest, 0))
