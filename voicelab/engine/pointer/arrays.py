"""Arithmetic of the embedded family in numpy: named weights, matrix products, norms, and a transformer over a sequence.

Results are deterministic: no product is large enough for BLAS to split it among threads, because the rounding of a sum would
then depend on the number of threads (docs/decisions/07-the-same-samples.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from voicelab.engine.pointer.config import StackConfig
from voicelab.errors import WeightsError

Floats = NDArray[np.float32]
Multiply = Callable[[Floats], Floats]
_VECTOR_SIZE = 9216
"""Matrix size from which OpenBLAS multithreads a product with a vector."""
_MATRIX_SIZE = 262_144
"""Number of multiplications from which OpenBLAS multithreads a product of matrices."""
_ROWS = 24
"""Maximum rows of one product of matrices; more rows are split among several products."""
_AREA, _LINE = 8 << 20, 16
"""Count of float32 numbers in a memory area, and in a cache line."""
EPS = np.float32(1e-5)
_BLOCK = 24_576
"""Count of numbers converted at once, chosen so that temporary arrays stay in the cache."""
ROW_SCALES = ".row_scales"
"""Suffix that turns the name of an int8 matrix into that of its scales (rows,)."""


class Weights:
    """Tensors of a checkpoint by name. `take` converts a tensor and removes it; `finish` rejects the remaining tensors."""

    def __init__(self, tensors: dict[str, NDArray[Any]], prefix: str = "") -> None:
        self._tensors, self._prefix = tensors, prefix

    def under(self, prefix: str) -> Weights:
        """Return the tensors whose names begin with a prefix, which is removed from the names."""
        return Weights(self._tensors, self._prefix + prefix)

    def take(self, name: str, *shape: int) -> Floats:
        """Remove and return a tensor as float32. Raises WeightsError if missing, misshapen or not finite."""
        name = self._prefix + name
        if name not in self._tensors:
            raise WeightsError(f"the tensors do not match the configuration: {name} is missing")
        tensor = widened(self._tensors, name)
        del self._tensors[name]
        self._tensors.pop(name + ROW_SCALES, None)
        if tensor.shape != shape:
            message = f"{name} must have the shape {shape}, got {tensor.shape}"
            raise WeightsError(f"the tensors do not match the configuration: {message}")
        return tensor

    def finish(self) -> None:
        """Raise WeightsError if tensors were not taken."""
        if left := sorted(name for name in self._tensors if name.startswith(self._prefix)):
            raise WeightsError(f"the tensors do not match the configuration: unexpected {', '.join(left[:5])}")


def widened(tensors: Mapping[str, NDArray[Any]], name: str) -> Floats:
    """Return a stored tensor as float32. Raises WeightsError if a number is not finite, or a scale per row is missing."""
    tensor, scales = tensors[name], tensors.get(name + ROW_SCALES)
    if not np.isfinite(tensor if scales is None else scales).all():
        raise WeightsError(f"{name} has values that are not finite")
    if scales is None:
        return tensor.astype(np.float32)
    if tensor.ndim != 2 or scales.shape != tensor.shape[:1]:
        raise WeightsError(
            f"{name} must be a matrix with one scale per row, got the shapes {tensor.shape}, {scales.shape}"
        )
    wide, factors = np.empty(tensor.shape, np.float32), scales.astype(np.float32)[:, None]
    count = max(1, _BLOCK // tensor.shape[1])
    for rows in (slice(i, i + count) for i in range(0, len(tensor), count)):
        wide[rows] = _rounded(tensor[rows] * factors[rows])
    return wide


def _rounded(x: Floats) -> Floats:
    """Round products of int8 and float16 numbers to float16, as earlier revisions of the engine computed them.

    This bit operation is several times as fast as a cast. Subnormal products are multiples of 2^-24, the smallest float16,
    so they are exact.
    """
    bits = x.view(np.uint32)
    up = bits >> 13
    up &= 1  # ties to even
    up += 0xFFF
    up += bits
    up &= np.uint32(0xFFFFE000)
    return up.view(np.float32)


class _Areas:
    """Allocator of large memory areas for weights that stay loaded.

    Linux uses huge pages for large areas, which reduces the time of a frame by a fifth.
    """

    def __init__(self) -> None:
        self._lock, self._free = threading.Lock(), np.empty(0, np.float32)

    def copy(self, x: Floats) -> Floats:
        """Copy to a contiguous array in an area."""
        with self._lock:
            if x.size > self._free.size:
                area = np.empty(max(_AREA, x.size) + _LINE, np.float32)
                self._free = area[-area.ctypes.data // area.itemsize % _LINE :]
            block, self._free = self._free[: x.size], self._free[-(-x.size // _LINE) * _LINE :]
        out = block.reshape(x.shape)
        out[:] = x
        return out


_areas: Final = _Areas()


def linear(weight: Floats, bias: Floats | None = None) -> Multiply:
    """Return a function that multiplies (n, in) → (n, out) by a weight (out, in); a row's result is equal in any batch.

    Each row is multiplied separately, because matrix-matrix products round differently from matrix-vector products. The
    weight is processed block by block, so that a block stays in the cache for all rows.
    """
    out, width = weight.shape
    blocks = _blocks(weight, (_VECTOR_SIZE - 1) // width)

    def multiply(x: Floats) -> Floats:
        if len(x) == 1:
            products: Floats = np.matmul(x[:, None, None], blocks).reshape(1, out)
        else:
            products = np.matmul(x[:, None], blocks[:, None]).swapaxes(0, 1).reshape(len(x), out)
        return products if bias is None else products + bias

    return multiply


def product(weight: Floats, bias: Floats | None = None) -> Multiply:
    """Return a function that multiplies sequences (n, in) → (n, out), faster than `linear`; the rounding depends on n."""
    out, width = weight.shape
    blocks = _blocks(weight, _MATRIX_SIZE // (_ROWS * width))

    def multiply(x: Floats) -> Floats:
        products = np.empty((len(x), len(blocks), out // len(blocks)), np.float32)
        for i in range(0, len(x), _ROWS):
            products[i : i + _ROWS] = np.matmul(x[i : i + _ROWS], blocks).swapaxes(0, 1)
        flat = products.reshape(len(x), out)
        return flat if bias is None else flat + bias

    return multiply


def _blocks(weight: Floats, columns: int) -> Floats:
    """Split a weight (out, in) into (blocks, in, outputs per block), with up to `columns` outputs."""
    out, width = weight.shape
    sizes = [size for size in range(1, min(out, max(1, columns)) + 1) if out % size == 0]
    size = next((size for size in reversed(sizes) if size % 8 == 0), sizes[-1])
    return _areas.copy(weight.reshape(-1, size, width).swapaxes(1, 2))


def rms_norm(weight: Floats) -> Multiply:
    """Return a function that computes the RMS norm of rows (n, width)."""
    return lambda x: x / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / x.shape[1] + EPS) * weight


def layer_norm(weights: Weights, width: int) -> Multiply:
    """Return a function that computes the layer norm of rows (n, width)."""
    weight, bias = weights.take("weight", width), weights.take("bias", width)

    def norm(x: Floats) -> Floats:
        centered = x - x.mean(-1, keepdims=True)
        scaled: Floats = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + EPS) * weight + bias
        return scaled

    return norm


def affine(weights: Weights, out: int, width: int) -> Multiply:
    """Return a function that multiplies by the tensor ``weight`` and adds the tensor ``bias``."""
    return product(weights.take("weight", out, width), weights.take("bias", out))


def silu(x: Floats) -> Floats:
    """Compute x · sigmoid(x)."""
    out: Floats = x / (1 + np.exp(-x))
    return out


_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def gelu(x: Floats) -> Floats:
    """Compute x · Φ(x) with the error function of Abramowitz and Stegun, 7.1.26, which is accurate to 1.5e-7."""
    size = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = np.zeros_like(t)
    for factor in reversed(_ERF):
        series += np.float32(factor)
        series *= t
    tail = np.float32(0.5) * series * np.exp(-size * size)
    out: Floats = x * np.where(x < 0, tail, 1 - tail)
    return out


class Layer:
    """One layer of a stack; see lm.Block. The weights are reordered for rotary pairs; `rotation` includes the scale.

    Args:
        multiply: makes the layer's products, `linear` or `product`.
    """

    def __init__(self, weights: Weights, config: StackConfig, multiply: Callable[[Floats], Multiply]) -> None:
        width, hidden = config.width, config.hidden
        self.heads, self.head = config.heads, width // config.heads
        qkv = weights.take("qkv.weight", 3 * width, width).reshape(3, self.heads, self.head, width).copy()
        # Rotary pairs are interleaved, so that one complex product rotates them; this does not change the scores.
        pairs = np.arange(self.head).reshape(2, -1).T.ravel()
        qkv[:2] = qkv[:2, :, pairs]
        self._norm_attention = rms_norm(weights.take("norm_attention.weight", width))
        self._norm_mlp = rms_norm(weights.take("norm_mlp.weight", width))
        self._qkv = multiply(qkv.reshape(3 * width, width))
        self._join = multiply(weights.take("join.weight", width, width))
        self._gate_up = multiply(weights.take("gate_up.weight", 2 * hidden, width))
        self._down = multiply(weights.take("down.weight", width, hidden))

    def project(self, x: Floats, turn: NDArray[np.complex64]) -> tuple[Floats, Floats, Floats]:
        """Project x (n, width) to queries, keys and values, each (n, heads, head), rotated by `turn` (see `rotation`)."""
        qkv = self._qkv(self._norm_attention(x)).reshape(len(x), 3, self.heads, self.head)
        turned = (qkv[:, :2].view(np.complex64) * turn).view(np.float32)
        return turned[:, 0], turned[:, 1], qkv[:, 2]

    def finish(self, x: Floats, attended: Floats) -> Floats:
        """Add attention (n, heads, head) and the MLP to x."""
        x = x + self._join(attended.reshape(x.shape))
        gate_up = self._gate_up(self._norm_mlp(x))
        hidden = gate_up.shape[1] // 2
        out: Floats = x + self._down(silu(gate_up[:, :hidden]) * gate_up[:, hidden:])
        return out


def rotation(positions: Floats, head: int) -> NDArray[np.complex64]:
    """Compute complex factors (n, 2, 1, head / 2) that rotate queries and keys to positions (n,).

    The factors of queries include the scale of attention.
    """
    frequencies = (10_000.0 ** (-np.arange(0, head, 2, dtype=np.float32) / head)).astype(np.float32)
    angles = positions[:, None, None] * frequencies
    turn = np.cos(angles) + np.complex64(1j) * np.sin(angles)
    out: NDArray[np.complex64] = np.stack([turn * np.float32(head**-0.5), turn], axis=1)
    return out


class NumpyStack:
    """Layers and a final norm; see lm.Stack."""

    def __init__(self, weights: Weights, config: StackConfig, multiply: Callable[[Floats], Multiply] = product) -> None:
        self.layers = [Layer(weights.under(f"blocks.{i}."), config, multiply) for i in range(config.layers)]
        self.norm = rms_norm(weights.take("norm.weight", config.width))
        self.head, self._window = config.width // config.heads, config.window

    def both_ways(self, x: Floats) -> Floats:
        """Run the stack on a sequence (n, width); a position attends to the positions within the window on both sides."""
        positions = np.arange(len(x), dtype=np.float32)
        turn = rotation(positions, self.head)
        hidden = np.abs(positions[:, None] - positions) >= self._window
        count = max(1, _MATRIX_SIZE // (len(x) * self.head))  # queries per product
        for layer in self.layers:
            query, key, value = (part.swapaxes(0, 1) for part in layer.project(x, turn))
            attended = np.empty_like(query)
            for rows in (slice(i, i + count) for i in range(0, len(x), count)):
                scores = np.matmul(query[:, rows], key.swapaxes(1, 2))
                scores[:, hidden[rows]] = -np.inf
                scores -= scores.max(-1, keepdims=True)
                np.exp(scores, out=scores)
                scores /= scores.sum(-1, keepdims=True)
                np.matmul(scores, value, out=attended[:, rows])
            x = layer.finish(x, attended.swapaxes(0, 1))
        return self.norm(x)
