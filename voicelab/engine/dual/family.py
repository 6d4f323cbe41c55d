"""The open weights behind `engine.family.Family`: a folder with S2-Pro, S1-mini or both, on one codec."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from voicelab.backend import SeedSupport, VoicePreset
from voicelab.engine.dual import voices
from voicelab.engine.dual.codec import load_codec
from voicelab.engine.dual.config import CONFIG, DualConfig
from voicelab.engine.dual.files import digests, shards_of
from voicelab.engine.dual.memory import MemoryPlan
from voicelab.engine.dual.model import DualLM, model_file
from voicelab.engine.dual.prompt import FIRST_SPEAKER, SPEAKER_TAG, ChatPrompts, InterleavedPrompts, Prompts
from voicelab.engine.dual.runner import DualRunner, DualVoice, Turn
from voicelab.engine.dual.terms import require_accepted
from voicelab.engine.dual.tokens import HUB, SPECIAL, TABLE, load_tokenizer, speech_ids
from voicelab.engine.family import EngineParts, SpeechPlan
from voicelab.engine.text.clean import FREQUENT, is_han
from voicelab.engine.text.normalize import normalize
from voicelab.engine.text.segments import segment
from voicelab.errors import WeightsError
from voicelab.schema import Model, ReferenceAudio, TTSRequest

CODEC = "codec.pth"
POSITIONS = 4096
"""Of a row, at most: 3 minutes of references, text and speech."""
TOGETHER = 16
"""Streams that the codec decodes in one batch."""
_DEFAULT_PENALTY = 1.2
_INLINE = re.compile(r"(<\|[^|>]*\|>|\[[^\]]*\]|\([^)\d]*\))")
"""Tags of speakers and of styles, which the models read themselves."""
_TO_WRITE_OUT = re.compile(r"[\d$£€¥₹¢%&@#=+<>°×÷±≤≥²³]")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk."""

    folder: Path
    config: DualConfig
    codec: Path

    @property
    def files(self) -> list[Path]:
        """All that the model's codes depend on."""
        folder = self.folder
        beside = [folder / name for name in (CONFIG, HUB, TABLE, SPECIAL) if (folder / name).exists()]
        weights = model_file(folder)
        return [*beside, weights, *(folder / name for name in shards_of(weights))]

    @property
    def positions(self) -> int:
        """Of a row."""
        return min(POSITIONS, self.config.slow.positions)


def model_folders(path: Path) -> list[ModelFolder]:
    """The models of a folder: its own, or those of the folders in it; S2-Pro first.

    Raises:
        WeightsError: there is none, or one twice, or a codec is missing.
    """
    places = [path] if (path / CONFIG).exists() else sorted(one.parent for one in path.glob(f"*/{CONFIG}"))
    models: dict[Model, ModelFolder] = {}
    for folder in places:
        config = DualConfig.read(folder)
        codec = next((one / CODEC for one in (folder, path) if (one / CODEC).exists()), None)
        if codec is None:
            raise WeightsError(f"the weights {folder.name}: there is no {CODEC}")
        if config.model in models:
            raise WeightsError(f"{models[config.model].folder.name} and {folder.name} are both {config.model}")
        models[config.model] = ModelFolder(folder, config, codec)
    if not models:
        raise WeightsError(f"there is no model in the folder {path}: neither a {CONFIG} nor a folder with one")
    return [models[name] for name in sorted(models, reverse=True)]


class DualFamily:
    """The models of a folder, ready to run on one device. A model is loaded for its first request.

    Args:
        weights: the folder.
        device: where its models run, in the type that their files have.
        rows: most sequences of a model at once; they say how much memory is needed.
        int8_depth: whether the fast transformers' matrices are rounded to 8 bits.

    Raises:
        WeightsError: what is in the folder cannot be used.
        EngineError: the first model does not fit into the memory that is left.
        LicenseRequired: the license of a model was not accepted.
        MissingExtra: the tokenizer needs what is not installed.
    """

    seeds: SeedSupport = "best-effort"  # a batch of another size sums in another order
    languages = ("en", "zh")  # those whose numbers are written out; the models speak more

    def __init__(self, weights: Path, device: torch.device, rows: int, *, int8_depth: bool = False) -> None:
        self._folders, self._device = {one.config.model: one for one in model_folders(weights)}, device
        self._int8_depth, folders = int8_depth, list(self._folders.values())
        self.models: tuple[Model, ...] = tuple(self._folders)
        self.license, self.notice = require_accepted(self.models, weights)
        self._tokenizers = {one.config.model: load_tokenizer(one.folder) for one in folders}
        self._plan(folders[0], rows, folders[0].codec).check(device)
        codecs = sorted({one.codec for one in folders})
        *of_codecs, self.voice_digest = digests(codecs)
        if of_codecs and of_codecs[0] != self.voice_digest:
            raise WeightsError(
                f"the {CODEC} of {' and '.join(self.models)} differ; voices are of one: load them one by one"
            )
        self.digests = (*digests([path for one in folders for path in one.files]), self.voice_digest)
        if int8_depth:
            self.digests += ("int8 depth",)
        codec = load_codec(codecs[0], device)
        self.decoding = codec.decoding(TOGETHER)
        for one in folders:
            if one.config.codebooks != self.decoding.codebooks:
                raise WeightsError(
                    f"{one.folder.name} has {one.config.codebooks} codebooks, {CODEC} {self.decoding.codebooks}"
                )
        room = min(one.positions for one in folders) // 2
        self._voices = voices.VoiceEncoder(codec.encode, self.decoding.sample_rate, room)
        title = "whoever the model makes up; another with every seed"
        self.presets = (VoicePreset("default", "No reference", title),)

    def runners(self, model: Model, rows: int) -> Callable[[], DualRunner]:
        """See engine.family.Family. Raises EngineError: the model does not fit into the memory that is left."""
        one = self._folders[model]
        self._plan(one, rows, None).check(self._device)
        tokenizer = self._tokenizers[model]
        speech = speech_ids(one.config, tokenizer)
        lm = DualLM.load(one.folder, one.config, speech, self._device, one.positions)
        if self._int8_depth:
            lm = lm.with_int8_depth()
        form = ChatPrompts if model == "s2-pro" else InterleavedPrompts
        prompts: Prompts = form(tokenizer, lm.begin, one.config.codebooks)
        return partial(DualRunner, lm, prompts, rows)

    def plan(self, request: TTSRequest) -> SpeechPlan:
        """See engine.family.Family."""
        return SpeechPlan(self._segments(request), tuple(self._notes(request)))

    def _notes(self, request: TTSRequest) -> Iterator[str]:
        if request.normalize and _TO_WRITE_OUT.search(_INLINE.sub("", request.text)) and not _writes_out(request.text):
            yield "normalize had no effect: numbers are written out in English and Mandarin texts only"
        if (penalty := request.repetition_penalty) not in {1.0, _DEFAULT_PENALTY}:
            above = "a code that repeats is drawn once more; how far the value is above 1 has no effect"
            below = "no effect: these models cannot be made to repeat"
            yield f"repetition_penalty={penalty:g}: {above if penalty > 1 else below}"

    def _segments(self, request: TTSRequest) -> Iterator[Turn]:
        """A segment that does not begin with a speaker's tag gets the last one before it."""
        tag = FIRST_SPEAKER
        write_out = request.normalize and _writes_out(request.text)
        for part in segment(request.text, request.chunk_length, request.min_chunk_length):
            text = "".join(_written_out(piece) for piece in _INLINE.split(part.text)) if write_out else part.text
            tags = SPEAKER_TAG.findall(text)
            yield Turn(text, "" if SPEAKER_TAG.match(text) else tag)
            tag = tags[-1] if tags else tag

    def preset(self, id: str) -> DualVoice:  # noqa: ARG002 - there is one
        """See engine.family.Family."""
        return voices.voice_of(())

    def speaker(self, references: Sequence[ReferenceAudio]) -> DualVoice:
        """See engine.family.Family."""
        return self._voices.voice(references)

    def pack(self, speaker: DualVoice) -> bytes:
        """See engine.family.Family."""
        return voices.pack(speaker)

    def unpack(self, packed: bytes) -> DualVoice | None:
        """See engine.family.Family."""
        return voices.unpack(packed, self.decoding.codebooks)

    def voice(self, speaker: DualVoice, parts: EngineParts) -> DualVoice:  # noqa: ARG002 - nothing is spoken to find out
        """See engine.family.Family."""
        return speaker

    def similarity(self, codes: Tensor, voice: DualVoice) -> None:  # noqa: ARG002 - the family has no measure of it
        """See engine.family.Family."""
        return

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """See engine.family.Family."""
        return self._voices.doubts(references)

    def _plan(self, one: ModelFolder, rows: int, codec: Path | None) -> MemoryPlan:
        return MemoryPlan.of(one.folder, one.config, rows, one.positions, codec)


def _writes_out(text: str) -> bool:
    """Whether our rules know the language: Chinese without Japanese, or letters of English among which is a common word."""
    words = _WORD.findall(_INLINE.sub(" ", text))
    if any(is_han(char) for word in words for char in word):
        return all(is_han(char) or char.isascii() for word in words for char in word)
    return all(word.isascii() for word in words) and any(word.lower() in FREQUENT["English"] for word in words)


def _written_out(piece: str) -> str:
    """A piece between tags, with the sentences that hold figures and signs in words."""
    if _INLINE.fullmatch(piece) or not _TO_WRITE_OUT.search(piece):
        return piece
    out, end = "", 0
    for sentence in segment(piece, len(piece) + 1, 0):
        read = (
            normalize(sentence.text, DualFamily.languages).text
            if _TO_WRITE_OUT.search(sentence.text)
            else sentence.text
        )
        out, end = out + piece[end : sentence.start] + read, sentence.end
    return out + piece[end:]
