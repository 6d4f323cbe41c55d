"""Tiny codecs in the published layout, with random weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from voicelab.engine.dual.codec import CodecSizes, DualCodec

TINY = CodecSizes(
    encoder_width=32,
    encoder_strides=(2, 3),
    encoder_layers=2,
    encoder_mlp=96,
    latent=128,
    layers=2,
    mlp=80,
    window=6,
    codebooks=(64, 16, 16),
    decoder_width=24,
    decoder_strides=(3, 2),
)
"""24 samples per frame; 3,600 samples exceed the encoder's window."""
REAL_TIME = replace(TINY, encoder_width=8, encoder_strides=(2, 4, 8, 8), decoder_width=32, decoder_strides=(8, 8, 4, 2))
"""2,048 samples per frame, as published, so that seconds of audio are few positions."""


def tiny_tensors(sizes: CodecSizes = TINY, seed: int = 0) -> dict[str, Tensor]:
    """Make random codec tensors by published name, with weight norms of both forms."""
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        parameters = dict(DualCodec(sizes).named_parameters())
    return {
        stored: tensor
        for name, parameter in parameters.items()
        for stored, tensor in _stored(name, _drawn(name, parameter.shape, generator), generator).items()
    }


def _drawn(name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    normal = torch.randn(shape, generator=generator)
    if name.endswith("alpha"):
        return 0.3 + 2 * torch.rand(shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1 + 0.2 * normal
    if name.endswith(("gamma", "codebook.weight")):
        return normal
    if name.endswith("bias"):
        return 0.1 * normal
    gain = 2.0 if "quantizer" in name else 0.5  # loud where attention is, so that no fact of it hides
    return gain * normal / math.sqrt(math.prod(shape[1:]))


def has_weight_norm(name: str, shape: torch.Size) -> bool:
    """Whether the published file stores a tensor as gain and direction."""
    return len(shape) == 3 and name.endswith("weight") and "sample" not in name


def _stored(name: str, weight: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    if not has_weight_norm(name, weight.shape):
        return {name: weight}
    gain = weight.norm(dim=(1, 2), keepdim=True)
    v = weight * (0.5 + torch.rand(gain.shape, generator=generator))
    if "_proj" in name:
        return {name + "_g": gain, name + "_v": v}
    stem = name.removesuffix("weight") + "parametrizations.weight.original"
    return {stem + "0": gain, stem + "1": v}


def save_codec(path: Path, tensors: Mapping[str, Tensor], form: str = "hub", sizes: CodecSizes = TINY) -> Path:
    """Write `codec.pth` and `sizes.json`, in the published form or ``plain``."""
    untold = {"window": sizes.window, "encoder_window": sizes.encoder_window, "head_dim": sizes.head_width}
    path.with_name("sizes.json").write_text(json.dumps(untold))
    stored: Mapping[str, object] = tensors
    if form == "hub":
        buffers = {"quantizer.pre_module.causal_mask": torch.ones(8, 8).tril().bool()}
        buffers["encoder.block.2.block.5.freqs_cis"] = torch.zeros(8, 32, 2).bfloat16()
        stored = {"state_dict": {f"generator.{name}": tensor for name, tensor in {**tensors, **buffers}.items()}}
    torch.save(stored, path)
    return path
