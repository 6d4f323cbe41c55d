"""torch modules from checkpoint files: for training, and as the reference in tests."""

from __future__ import annotations

from pathlib import Path

from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec, TorchCodec
from voicelab.engine.pointer.config import CodecConfig, LMConfig
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.step import TorchLM


def load_codec(path: Path) -> Codec:
    """Load the codec of a checkpoint file. Raises the same errors as `checkpoint.load`."""
    meta, tensors = checkpoint.read(path)
    return TorchCodec.of(CodecConfig.of(meta["codec"]), tensors, "cpu").module


def load_lm(path: Path) -> LM:
    """Load the language model of a checkpoint file. Raises the same errors as `checkpoint.load`."""
    meta, tensors = checkpoint.read(path)
    return TorchLM.of(LMConfig.of(meta["lm"]), tensors, "cpu").module
