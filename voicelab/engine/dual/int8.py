"""Matrices in 8 bits with a scale for each output: half the bytes of bf16, where a frame waits for bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGEST = 127


@dataclass(frozen=True)
class Int8Matrix:
    """A matrix (out, in), rounded to nearest by rows."""

    weight: Tensor
    """(out, in) int8."""
    scale: Tensor
    """(out,) what 1 stands for, of the type of the inputs."""

    @classmethod
    def of(cls, weight: Matrix) -> Int8Matrix:
        """The nearest to a matrix; itself if it is one."""
        if isinstance(weight, Int8Matrix):
            return weight
        scale = weight.float().abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / _LARGEST
        return cls((weight.float() / scale[:, None]).round().to(torch.int8), scale.to(weight.dtype))


Matrix = Tensor | Int8Matrix


def linear(x: Tensor, weight: Matrix) -> Tensor:
    """(…, in) → (…, out)."""
    if isinstance(weight, Tensor):
        return F.linear(x, weight)
    out: Tensor = torch.ops.aten._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), weight.weight, weight.scale)  # noqa: SLF001
    return out.view(*x.shape[:-1], -1)
