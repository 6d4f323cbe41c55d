"""The open weights behind `engine.family.Family`: a folder with S2-Pro, S1-mini or both, on one codec."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from voicelab.call import Call, VoicePreset
from voicelab.capabilities import SeedSupport
from voicelab.engine.core.decoding import Samples
from voicelab.engine.dual.codec import TOGETHER, CodecFile, DualDecoding
from voicelab.engine.dual.files import digests, naming
from voicelab.engine.dual.folder import CODEC, MemoryPlan, ModelFolder, model_folders, require_accepted
from voicelab.engine.dual.model import DualLM, model_tensors
from voicelab.engine.dual.prompt import (
    FIRST_SPEAKER,
    SPEAKER_TAG,
    ChatPrompts,
    DualVoice,
    InterleavedPrompts,
    Prompts,
    Reference,
    load_tokenizer,
    speech_ids,
    tokenizer_files,
)
from voicelab.engine.dual.runner import DualRunner, Turn
from voicelab.engine.family import EncodedReferences, EngineParts, SpeechPlan
from voicelab.engine.text import left_out, normalize
from voicelab.engine.text.clean import FREQUENT, clean, is_han
from voicelab.engine.text.segments import TextSegment, segment
from voicelab.errors import AudioError, RequestInvalid, WeightsError
from voicelab.schema import Model, ReferenceAudio, TTSRequest

ADVISED_S = (10.0, 30.0)
"""Length of a reference that the models' makers advise."""
_SILENT = 1e-3
_DEFAULT_PENALTY = 1.2
_INLINE = re.compile(r"(<\|[^|>]*\|>|\[[^\]]*\]|\([^)\d]*\))")
"""Tags of speakers and of styles, which the models read themselves."""
_TO_WRITE_OUT = re.compile(r"[\d$£€¥₹¢%&@#=+<>°×÷±≤≥²³]")
_WORD = re.compile(r"[^\W\d_]+")


class DualFamily:
    """The models of a folder, ready to run on one device. A model is loaded for its first request.

    Args:
        weights: the folder.
        device: where its models run, in the type that their files have.
        rows: most sequences of a model at once; they say how much memory is needed.
        int8_depth: whether the fast transformers' matrices are rounded to 8 bits.
        compile: see DualStep.

    Raises:
        WeightsError: what is in the folder cannot be used.
        EngineError: the first model does not fit into the memory that is left.
        LicenseRequired: the license of a model was not accepted.
        MissingExtra: the tokenizer needs what is not installed.
    """

    seeds: SeedSupport = "best-effort"  # a batch of another size sums in another order
    languages: tuple[str, ...] = ("en", "zh")  # those whose numbers are written out; the models speak more

    def __init__(
        self, weights: Path, device: torch.device, rows: int, *, int8_depth: bool = False, compile: bool | None = None
    ) -> None:
        self._folders, self._device = {one.config.model: one for one in model_folders(weights)}, device
        self._int8_depth, self._compile, folders = int8_depth, compile, list(self._folders.values())
        self.models: tuple[Model, ...] = tuple(self._folders)
        self.license, self.notice = require_accepted(self.models, weights)
        # All that can be said of the files without reading them whole comes before the first of them is.
        codecs = sorted({one.codec for one in folders})
        file, *_ = [CodecFile.open(one) for one in codecs]
        sizes = file.codec.sizes
        self._tokenizers = {one.config.model: load_tokenizer(one.folder, one.config.vocabulary) for one in folders}
        self._speech = {one.config.model: self._checked(one, sizes.codebooks) for one in folders}
        MemoryPlan.of(folders[0], rows, sizes).check(device)
        *of_codecs, self.voice_digest = digests(codecs)
        if of_codecs and of_codecs[0] != self.voice_digest:
            models = " and ".join(self.models)
            raise WeightsError(f"the {CODEC} of {models} differ; voices are of one: load them one by one")
        files = [path for one in folders for path in one.files]
        self.digests = (*digests(files), self.voice_digest, *(("int8 depth",) if int8_depth else ()))
        codec = file.load(device)
        self.decoding, self._codebooks = DualDecoding(codec, TOGETHER, compile=compile), sizes.codebooks
        self._room, self._encode = min(one.positions for one in folders) // 2, codec.encode
        self._encoded = EncodedReferences(self._codes, self.decoding.sample_rate)
        title = "whoever the model makes up; another with every seed"
        self.presets: tuple[VoicePreset, ...] = (VoicePreset("default", "No reference", title),)

    def _checked(self, one: ModelFolder, codebooks: Sequence[int]) -> tuple[int, int, int]:
        """The ids of a model's speech, when it is seen that its files fit each other and the codec."""
        config = one.config
        if (config.codebooks, config.entries) != (len(codebooks), codebooks[0]) or max(codebooks) > config.entries:
            has = f"{config.codebooks} codebooks of {config.entries} codes"
            raise WeightsError(f"{one.folder.name} has {has}, {CODEC} {codebooks}")
        model_tensors(one.folder, config)
        with naming(one.folder / tokenizer_files(one.folder)[-1]):
            return speech_ids(config, self._tokenizers[config.model])

    def runners(self, model: Model, rows: int) -> Callable[[], DualRunner]:
        """See engine.family.Family. Raises EngineError: the model does not fit into the memory that is left."""
        one = self._folders[model]
        MemoryPlan.of(one, rows).check(self._device)
        files = model_tensors(one.folder, one.config)  # each is read straight onto the device
        lm = DualLM(one.config, lambda name, *_: files.read(name, self._device), self._speech[model], one.positions)
        if self._int8_depth:
            lm = lm.with_int8_depth()
        form = ChatPrompts if model == "s2-pro" else InterleavedPrompts
        self.decoding.prepare()
        prompts: Prompts = form(self._tokenizers[model], lm.begin, one.config.codebooks)
        return partial(DualRunner, lm, prompts, rows, compile=self._compile)

    def plan(self, call: Call) -> SpeechPlan:
        """See engine.family.Family. The models read tags themselves."""
        return SpeechPlan(self._segments(call.request), tuple(self._notes(call.request)))

    def _notes(self, request: TTSRequest) -> Iterator[str]:
        if request.normalize and _TO_WRITE_OUT.search(_INLINE.sub("", request.text)) and not _writes_out(request.text):
            yield "normalize had no effect: numbers are written out in English and Mandarin texts only"
        elif request.normalize:
            for piece in _INLINE.split(request.text):
                for sentence in _to_write_out(piece):
                    cleaned = clean(sentence.text, chinese=True)
                    yield from (*cleaned.notes, *left_out(cleaned.text, self.languages))
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
        return DualVoice()

    def speaker(self, references: Sequence[ReferenceAudio]) -> DualVoice:
        """See engine.family.Family: in their order. RequestInvalid also where they are too long for the models."""
        encoded = self._encoded(references)
        read = tuple(Reference(one.text, codes) for one, (codes, _) in zip(references, encoded, strict=True))
        needed = sum(len(one.codes) + len(one.text.encode()) for one in read)  # a token is a byte or more
        if needed > self._room:
            message = (
                f"{sum(seconds for _, seconds in encoded):.0f} s of recordings and their texts leave the model no room to "
                f"speak; {ADVISED_S[0]:.0f} to {ADVISED_S[1]:.0f} s are advised"
            )
            raise RequestInvalid.of("references", message)
        return DualVoice(read)

    def _codes(self, samples: Samples) -> tuple[Tensor, float]:
        """Codes of a recording, and its seconds."""
        if float(np.abs(samples).max(initial=0.0)) < _SILENT:
            raise AudioError("the reference is silent")
        return self._encode(torch.from_numpy(samples)), samples.size / self.decoding.sample_rate

    def unpack(self, packed: bytes) -> DualVoice | None:
        """See engine.family.Family."""
        return DualVoice.from_bytes(packed, self._codebooks)

    def voice(self, speaker: DualVoice, parts: EngineParts) -> DualVoice:  # noqa: ARG002 - nothing is spoken to find out
        """See engine.family.Family."""
        return speaker

    def similarity(self, codes: Tensor, voice: DualVoice) -> None:  # noqa: ARG002 - the family has no measure of it
        """See engine.family.Family."""
        return

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """See engine.family.Family."""
        sentences = []
        for i, (one, (_, seconds)) in enumerate(zip(references, self._encoded(references), strict=True), 1):
            if not ADVISED_S[0] <= seconds <= ADVISED_S[1]:
                sentences.append(f"reference {i}: it lasts {seconds:.1f} s; 10 to 30 s are advised")
            if not one.text.strip():
                sentences.append(f"reference {i}: without its text the voice is followed less well")
        return tuple(sentences)


def _writes_out(text: str) -> bool:
    """Whether our rules know the language: Chinese without Japanese, or letters of English among which is a common word."""
    words = _WORD.findall(_INLINE.sub(" ", text))
    if any(is_han(char) for word in words for char in word):
        return all(is_han(char) or char.isascii() for word in words for char in word)
    return all(word.isascii() for word in words) and any(word.lower() in FREQUENT["English"] for word in words)


def _written_out(piece: str) -> str:
    """Write the sentences of a piece that hold figures and signs in words."""
    out, end = "", 0
    for sentence in _to_write_out(piece):
        read = normalize(sentence.text, DualFamily.languages).text
        out, end = out + piece[end : sentence.start] + read, sentence.end
    return out + piece[end:]


def _to_write_out(piece: str) -> Iterator[TextSegment]:
    """Yield the sentences with figures and signs of a piece between tags."""
    if not _INLINE.fullmatch(piece) and _TO_WRITE_OUT.search(piece):
        yield from (one for one in segment(piece, len(piece) + 1, 0) if _TO_WRITE_OUT.search(one.text))
