"""The embedded family behind `engine.family.Family`: one checkpoint, which reads English and Mandarin text."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from voicelab.backend import SeedSupport
from voicelab.engine.family import EngineParts, SpeechPlan
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import PointerDecoding
from voicelab.engine.pointer.english import Lexicon, load_guess
from voicelab.engine.pointer.front import FrontEnd
from voicelab.engine.pointer.lm import LM, speaker_statistics
from voicelab.engine.pointer.phones import Phonemes
from voicelab.engine.pointer.runner import PointerRunner
from voicelab.engine.pointer.speakers import References, SpeakerFit, SpeakerFitter, SpeakerProfile, similarity
from voicelab.engine.text.clean import HAN
from voicelab.engine.text.normalize import as_written, normalize, speakable
from voicelab.engine.text.segments import segment
from voicelab.schema import Model, ReferenceAudio, TTSRequest

_LONGEST_READ = 600
"""Characters of normalized text that are read at once; said, they fit the default max_new_tokens."""
_LONGEST_CHINESE = 160
"""The same where there are Chinese characters, each of which is a syllable."""
_HAN = re.compile(f"[{HAN}]")


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
        self._small: LM | None = None
        self._lock = threading.Lock()

    def runners(self, model: Model, rows: int) -> Callable[[], PointerRunner]:
        """See engine.family.Family."""
        return partial(PointerRunner, self._small_lm() if model == "s1" else self.checkpoint.lm, rows)

    def plan(self, request: TTSRequest) -> SpeechPlan:
        """See engine.family.Family. The notes are of the whole text: those of each segment would say the same again."""
        self.front.check(request.text)
        written = () if request.normalize else as_written(request.text, self.languages).notes
        return SpeechPlan(self._segments(request), (*speakable(request.text, self.languages), *written))

    def _segments(self, request: TTSRequest) -> Iterator[Phonemes]:
        for part in segment(request.text, request.chunk_length, request.min_chunk_length):
            written = (normalize if request.normalize else as_written)(part.text, self.languages)
            for piece in pieces(written.text):
                phonemes = self.front.read(piece)
                if phonemes.words:
                    yield phonemes

    def preset(self, id: str) -> SpeakerProfile:
        """See engine.family.Family."""
        return SpeakerProfile(self.checkpoint.speakers[id], None)

    def speaker(self, references: Sequence[ReferenceAudio]) -> SpeakerProfile:
        """See engine.family.Family."""
        return self.references.speaker(references)

    def pack(self, speaker: SpeakerProfile) -> bytes:
        """See engine.family.Family."""
        return speaker.to_bytes()

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

    def _small_lm(self) -> LM:
        with self._lock:
            if self._small is None:
                self._small = checkpoint.load_small(self.checkpoint)
            return self._small


def pieces(text: str) -> tuple[str, ...]:
    """A segment in words can be many times as long as it was in figures; attention needs memory by the square of it."""
    longest = _LONGEST_CHINESE if _HAN.search(text) else _LONGEST_READ
    if len(text) <= longest:
        return (text,)
    return tuple(part.text for part in segment(text, longest, 0))
