"""Tiny models of the embedded family with random weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicelab.call import VoicePreset
from voicelab.engine.core.scheduler import STEP_TIMEOUT_S, Scheduler
from voicelab.engine.core.sequence import Frame, Group, Sequence, Settings
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.arrays import Weights
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import PHONES, CodecConfig, LMConfig, Phonemes, StackConfig
from voicelab.engine.pointer.family import PointerRunner
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.numpy_codec import NumpyCodec
from voicelab.engine.pointer.numpy_step import NumpyLM
from voicelab.engine.pointer.rows import STATISTICS, LanguageModel, PointerRow
from voicelab.engine.pointer.speakers import SpeakerFit
from voicelab.engine.pointer.step import Sampler, TorchLM, sampling

CODEBOOKS = (16, 8, 8)
LATENT = 8
CODEC = CodecConfig(
    codebooks=CODEBOOKS,
    latent=LATENT,
    width=16,
    fine_width=12,
    depth=2,
    mel_bands=20,
    linear_bins=12,
    filter_bands=24,
    phones=len(PHONES),
)
LANGUAGE = LMConfig(
    codebooks=CODEBOOKS,
    latent=LATENT,
    phones=len(PHONES),
    dwell=6,
    text=StackConfig(width=32, layers=1, heads=2, hidden=48, window=8),
    slow=StackConfig(width=32, layers=2, heads=2, hidden=48, window=12),
    depth=StackConfig(width=32, layers=1, heads=2, hidden=48, window=16),
)
LIVELY = Settings(temperature=1.0, top_p=1.0, repetition_penalty=1.0)


def make_codec(seed: int = 1) -> Codec:
    """Make a codec with random weights whose output is loud, so that errors are not hidden by silence."""
    torch.manual_seed(seed)
    made = Codec(CODEC).eval().requires_grad_(False)
    for table in made.quantizer.tables:
        table.mul_(8)
    made.encoder.leave.weight.mul_(10)
    made.decoder.leave.weight.mul_(4)
    made.decoder.leave.bias[1:].add_(0.5)
    return made


def make_lm(seed: int = 2, config: LMConfig = LANGUAGE) -> LM:
    """Make a language model with random weights."""
    torch.manual_seed(seed)
    return LM(config).eval().requires_grad_(False)


class _Shared(Weights):
    """Weights that are not copied, so that a test can alter them."""

    def under(self, prefix: str) -> Weights:
        return _Shared(self._tensors, self._prefix + prefix)

    def take(self, name: str, *shape: int) -> Any:
        return self._tensors.pop(self._prefix + name)


def numpy_lm(lm: LM) -> NumpyLM:
    """Make the same model in numpy, with the same vectors: matrices are copied."""
    return NumpyLM(lm.config, _Shared({name: tensor.numpy() for name, tensor in lm.state_dict().items()}))


def numpy_codec(codec: Codec) -> NumpyCodec:
    """Make the same codec in numpy."""
    return NumpyCodec(codec.config, Weights({name: tensor.numpy() for name, tensor in codec.state_dict().items()}))


BOTH = (numpy_lm, TorchLM)
"""Both implementations of a language model."""


def write_weights(path: Path, codec: Codec | None = None, *names: str) -> Path:
    """Write a checkpoint of a tiny model with presets of these names."""
    voices = {VoicePreset(name, name.title()): speaker(i) for i, name in enumerate(names or ("ada",), 1)}
    checkpoint.save(path, codec or make_codec(), make_lm(), voices, {})
    return path


def until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def sampler_of(settings: list[Settings]) -> Sampler:
    return Sampler(torch.tensor([sampling(one) for one in settings]))


def phonemes(count: int, seed: int = 0) -> Phonemes:
    """Make a segment of `count` random phones."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, len(PHONES), (count,), generator=generator).tolist()
    return Phonemes(tuple(ids), (1,) * count, (("word", 0, count),))


def speaker(seed: int = 0) -> Tensor:
    return torch.randn(STATISTICS * LATENT, generator=torch.Generator().manual_seed(seed))


def voice(seed: int = 0) -> SpeakerFit:
    """Make a voice for the runner."""
    return SpeakerFit(speaker(seed).numpy(), speaker(seed).numpy())


def scheduler(lm: LM | LanguageModel, rows: int, step_timeout_s: float = STEP_TIMEOUT_S) -> Scheduler:
    model = numpy_lm(lm) if isinstance(lm, LM) else lm
    return Scheduler(partial(PointerRunner, model, rows), rows, step_timeout_s)


def sequence(
    *segments: Phonemes,
    seed: int = 0,
    settings: Settings = LIVELY,
    max_frames: int = 1000,
    group: Group | None = None,
    speaker_seed: int = 0,
) -> Sequence:
    """Make a sequence with all its segments."""
    made = Sequence(voice(speaker_seed), settings, seed, max_frames, group)
    for segment in segments:
        made.add(segment)
    made.finish()
    return made


def begun(runner: PointerRunner, row: int, text: Phonemes, seed: int = 0, settings: Settings = LIVELY) -> PointerRow:
    """Admit a row with a segment; return its state."""
    runner.admit(row, voice(seed), settings, seed)
    runner.add_segment(row, text)
    return runner.rows[row]


def stepped(runner: PointerRunner, rows: list[int]) -> list[list[int]]:
    """Step rows and return their codes."""
    return [step.codes.tolist() for step in runner.step(rows) if step.codes is not None]


def spoken(frames: list[Frame]) -> list[tuple[int, ...]]:
    """Collect the codes of frames, without segment ends."""
    return [tuple(frame.codes.tolist()) for frame in frames if frame.codes is not None]
