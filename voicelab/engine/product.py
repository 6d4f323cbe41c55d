"""A weight times a few rows, on the thread that asks, each row as if it were alone: what a step is mostly made of."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
_PIECE = 9216
"""Numbers in a matrix from which on OpenBLAS shares a product with a vector among threads."""
_HALF = "fbgemm_linear_fp16_weight_fp32_activation"


def product(weight: Tensor, bias: Tensor | None = None) -> Callable[[Floats], Floats]:
    """(n, in) → (n, out) for a weight (out, in): packed where that loses nothing and the processor can, else in pieces.

    Whichever it is, a row's numbers do not depend on the rows beside it, to the bit.
    """
    weight = weight.detach().cpu().float()
    packed = _pack(weight)
    multiply = Pieces(weight) if packed is None else Packed(packed)
    if bias is None:
        return multiply
    added = bias.detach().cpu().float().numpy()
    return lambda x: multiply(x) + added


class Packed:
    """16-bit weights in the order the kernel reads them (FBGEMM; Khudia et al., 2021): two to four times as fast as pieces.

    Only weights that 16 bits hold are packed, as those of a checkpoint are; inputs and sums have 32 bits. It uses one thread.
    """

    def __init__(self, packed: Tensor) -> None:
        self._packed, self._multiply = packed, getattr(torch, _HALF)

    def __call__(self, x: Floats) -> Floats:
        """(n, in) → (n, out)."""
        out: Floats = self._multiply(torch.from_numpy(x), self._packed, None).numpy()
        return out


class Pieces:
    """On any processor: pieces so small that BLAS multiplies each on the thread that asks.

    Each row is multiplied by itself, since a product of matrices rounds otherwise than one of a matrix and a vector; piece
    after piece, so that a piece stays in the cache for all rows.
    """

    def __init__(self, weight: Tensor) -> None:
        held = weight.numpy()
        out, width = held.shape
        count = next((k for k in range(1, out) if out % k == 0 and out // k * width < _PIECE), out)
        self._pieces = np.ascontiguousarray(held).reshape(count, 1, out // count, width)
        self._out = out

    def __call__(self, x: Floats) -> Floats:
        """(n, in) → (n, out)."""
        made = np.matmul(self._pieces, x[:, :, None])
        flat: Floats = (made if len(x) == 1 else made.swapaxes(0, 1)).reshape(len(x), self._out)
        return flat


def _pack(weight: Tensor) -> Tensor | None:
    """None where 16 bits do not hold the weight, or torch was built without the kernel, or no longer has it."""
    if not torch.equal(weight.half().float(), weight) or not hasattr(torch, _HALF):
        return None
    try:
        with warnings.catch_warnings():
            # It is said to go away some day; then the pieces are there.
            warnings.filterwarnings("ignore", "fbgemm_.* is deprecated", UserWarning)
            packed: Tensor = torch.fbgemm_pack_gemm_matrix_fp16(weight)
            getattr(torch, _HALF)(weight.new_zeros(1, weight.shape[1]), packed, None)
    except (RuntimeError, TypeError):  # an earlier torch wants a bias
        return None
    return packed
