"""Implementation of `engine.family.Family` for open weights: a folder with S2-Pro, S1-mini or both, with a common codec."""

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
from voicelab.engine.core.sequence import Codes
from voicelab.engine.dual.codec import MAX_STREAMS, CodecFile, DualDecoding
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
from voicelab.errors import AudioError, RequestInvalid, WeightsError
from voicelab.schema import Model, ReferenceAudio, TTSRequest
from voicelab.text import left_out, normalize
from voicelab.text.clean import FREQUENT, clean, is_han
from voicelab.text.segments import TextSegment, segment

ADVISED_DURATION_S = (10.0, 30.0)
"""Duration of a reference that the models' authors recommend, in seconds."""
_SILENCE_PEAK = 1e-3
_DEFAULT_PENALTY = 1.2
_TAG = re.compile(r"(<\|[^|>]*\|>|\[[^\]]*\]|\([^)\d]*\))")
"""Tags of speakers and styles, which the models interpret."""
_NEEDS_NORMALIZATION = re.compile(r"[\d$£€¥₹¢%&@#=+<>°×÷±≤≥²³]")
_WORD = re.compile(r"[^\W\d_]+")


class DualFamily:
    """The models of a folder on one device. A model is loaded at its first request.

    Args:
        weights: the folder.
        device: device of the models, which keep the number types of their files.
        rows: maximum concurrent sequences per model, for the memory estimate.
        int8_depth: whether the fast transformers' matrices are quantized to int8.
        compile: see DualStep.

    Raises:
        WeightsError: the folder's files cannot be used.
        EngineError: the first model does not fit into free memory.
        LicenseRequired: the license of a model was not accepted.
        MissingExtra: the tokenizer needs an optional package that is not installed.
    """

    seeds: SeedSupport = "best-effort"  # summation order depends on the batch size
    languages: tuple[str, ...] = ("en", "zh")  # those of normalization; the models support more

    def __init__(
        self, weights: Path, device: str, rows: int, *, int8_depth: bool = False, compile: bool | None = None
    ) -> None:
        self._folders, self._device = (
            {model_folder.config.model: model_folder for model_folder in model_folders(weights)},
            torch.device(device),
        )
        self._int8_depth, self._compile, folders = int8_depth, compile, list(self._folders.values())
        self.models: tuple[Model, ...] = tuple(self._folders)
        self.license, self.notice = require_accepted(self.models, weights)
        # All validation that does not require reading the files in full precedes loading.
        codecs = sorted({model_folder.codec for model_folder in folders})
        file, *_ = [CodecFile.open(model_folder) for model_folder in codecs]
        sizes = file.codec.sizes
        self._tokenizers = {
            model_folder.config.model: load_tokenizer(model_folder.folder, model_folder.config.vocabulary)
            for model_folder in folders
        }
        self._speech = {
            model_folder.config.model: self._checked(model_folder, sizes.codebooks) for model_folder in folders
        }
        MemoryPlan.of(folders[0], rows, sizes).check(self._device)
        *of_codecs, self.voice_digest = digests(codecs)
        if of_codecs and of_codecs[0] != self.voice_digest:
            models = " and ".join(self.models)
            raise WeightsError(
                f"the {CODEC} of {models} differ, so voices cannot be shared: load the models separately"
            )
        files = [path for model_folder in folders for path in model_folder.files]
        self.digests = (*digests(files), self.voice_digest, *(("int8 depth",) if int8_depth else ()))
        codec = file.load(self._device)
        self.decoding, self._codebooks = DualDecoding(codec, MAX_STREAMS, compile=compile is True), sizes.codebooks
        self._room, self._encode = min(model_folder.positions for model_folder in folders) // 2, codec.encode
        self._encoded = EncodedReferences(self._codes, self.decoding.sample_rate)
        title = "a voice chosen by the model, different for every seed"
        self.presets: tuple[VoicePreset, ...] = (VoicePreset("default", "No reference", title),)

    def _checked(self, model_folder: ModelFolder, codebooks: Sequence[int]) -> tuple[int, int, int]:
        """Check that a model's files match each other and the codec; return the ids of its speech tokens."""
        config = model_folder.config
        if (config.codebooks, config.entries) != (len(codebooks), codebooks[0]) or max(codebooks) > config.entries:
            has = f"{config.codebooks} codebooks of {config.entries} codes"
            raise WeightsError(f"{model_folder.folder.name} has {has}, but {CODEC} has codebooks of {codebooks} codes")
        model_tensors(model_folder.folder, config)
        with naming(model_folder.folder / tokenizer_files(model_folder.folder)[-1]):
            return speech_ids(config, self._tokenizers[config.model])

    def runners(self, model: Model, rows: int) -> Callable[[], DualRunner]:
        """Load a model's weights; return a function that makes its runner. Raises EngineError if memory does not suffice."""
        model_folder = self._folders[model]
        MemoryPlan.of(model_folder, rows).check(self._device)
        files = model_tensors(model_folder.folder, model_folder.config)  # loaded one by one onto the device
        lm = DualLM(
            model_folder.config,
            lambda name, *_: files.read(name, self._device),
            self._speech[model],
            model_folder.positions,
        )
        if self._int8_depth:
            lm = lm.with_int8_depth()
        prompt_format = ChatPrompts if model == "s2-pro" else InterleavedPrompts
        self.decoding.prepare()
        prompts: Prompts = prompt_format(self._tokenizers[model], lm.begin, model_folder.config.codebooks)
        return partial(DualRunner, lm, prompts, rows, compile=self._compile)

    def plan(self, call: Call) -> SpeechPlan:
        """Plan the turns of a call's text; tags remain in the text, because the models interpret them."""
        return SpeechPlan(self._segments(call.request), tuple(self._notes(call.request)))

    def _notes(self, request: TTSRequest) -> Iterator[str]:
        if (
            request.normalize
            and _NEEDS_NORMALIZATION.search(_TAG.sub("", request.text))
            and not _can_normalize(request.text)
        ):
            yield "normalize had no effect: numbers are written out in English and Mandarin texts only"
        elif request.normalize:
            for span in _TAG.split(request.text):
                for sentence in _unnormalized_sentences(span):
                    cleaned = clean(sentence.text, chinese=True)
                    yield from (*cleaned.notes, *left_out(sentence.text, self.languages))
        if (penalty := request.repetition_penalty) not in {1.0, _DEFAULT_PENALTY}:
            above = "values above 1 have the same effect: a repeated code is redrawn once"
            below = "no effect: these models cannot be made to repeat"
            yield f"repetition_penalty={penalty:g}: {above if penalty > 1 else below}"

    def _segments(self, request: TTSRequest) -> Iterator[Turn]:
        """Split a text into turns; a turn without a leading speaker tag inherits the last speaker tag before it."""
        tag = FIRST_SPEAKER
        normalizing = request.normalize and _can_normalize(request.text)
        for text_segment in segment(request.text, request.chunk_length, request.min_chunk_length):
            text = (
                "".join(_normalize_sentences(span) for span in _TAG.split(text_segment.text))
                if normalizing
                else text_segment.text
            )
            tags = SPEAKER_TAG.findall(text)
            yield Turn(text, "" if SPEAKER_TAG.match(text) else tag)
            tag = tags[-1] if tags else tag

    def preset(self, id: str) -> DualVoice:  # noqa: ARG002 - there is only one
        """Return a voice without references, the only preset."""
        return DualVoice()

    def speaker(self, references: Sequence[ReferenceAudio]) -> DualVoice:
        """Encode the references, in their order, as the voice of one speaker.

        Raises:
            RequestInvalid: a reference is not audio or is silent, or the references are too long for the models.
        """
        encoded = self._encoded(references)
        inputs = tuple(
            Reference(reference.text, codes) for reference, (codes, _) in zip(references, encoded, strict=True)
        )
        needed = sum(
            len(reference.codes) + len(reference.text.encode()) for reference in inputs
        )  # a token has at least one byte
        if needed > self._room:
            message = (
                f"the references last {sum(seconds for _, seconds in encoded):.0f} s and leave no room for speech; use "
                f"{ADVISED_DURATION_S[0]:.0f} to {ADVISED_DURATION_S[1]:.0f} s"
            )
            raise RequestInvalid.of("references", message)
        return DualVoice(inputs)

    def _codes(self, samples: Samples) -> tuple[Tensor, float]:
        """Encode a recording; return its codes and its duration in seconds."""
        if float(np.abs(samples).max(initial=0.0)) < _SILENCE_PEAK:
            raise AudioError("the reference is silent")
        return self._encode(torch.from_numpy(samples)), samples.size / self.decoding.sample_rate

    def unpack(self, packed: bytes) -> DualVoice | None:
        """Deserialize a stored voice; return None for another format."""
        return DualVoice.from_bytes(packed, self._codebooks)

    def voice(self, speaker: DualVoice, parts: EngineParts) -> DualVoice:  # noqa: ARG002 - no fitting is needed
        """Return the voice unchanged: these models need no fitting."""
        return speaker

    def similarity(self, codes: Codes, voice: DualVoice) -> None:  # noqa: ARG002 - the family has no such metric
        """Return None: this family has no speaker similarity."""
        return

    def reference_notes(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """Describe references of unsuitable duration or without a transcript, as notes for the user."""
        sentences = []
        for i, (reference, (_, seconds)) in enumerate(zip(references, self._encoded(references), strict=True), 1):
            if not ADVISED_DURATION_S[0] <= seconds <= ADVISED_DURATION_S[1]:
                sentences.append(f"reference {i}: it lasts {seconds:.1f} s; 10 to 30 s are recommended")
            if not reference.text.strip():
                sentences.append(f"reference {i}: without its transcript the voice is matched less well")
        return tuple(sentences)


def _can_normalize(text: str) -> bool:
    """Return whether normalization supports the language of a text.

    It supports Chinese text, which may have ASCII words but no kana, and ASCII text with a common English word.
    """
    words = _WORD.findall(_TAG.sub(" ", text))
    if any(is_han(char) for word in words for char in word):
        return all(is_han(char) or char.isascii() for word in words for char in word)
    return all(word.isascii() for word in words) and any(word.lower() in FREQUENT["English"] for word in words)


def _normalize_sentences(span: str) -> str:
    """Write numbers and symbols as words, in a span of text without tags."""
    out, end = "", 0
    for sentence in _unnormalized_sentences(span):
        read = normalize(sentence.text, DualFamily.languages).text
        out, end = out + span[end : sentence.start] + read, sentence.end
    return out + span[end:]


def _unnormalized_sentences(span: str) -> Iterator[TextSegment]:
    """Yield the sentences of a span that contain numbers or symbols; none if the span is a tag."""
    if not _TAG.fullmatch(span) and _NEEDS_NORMALIZATION.search(span):
        yield from (
            sentence for sentence in segment(span, len(span) + 1, 0) if _NEEDS_NORMALIZATION.search(sentence.text)
        )
