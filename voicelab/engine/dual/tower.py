"""The transformer of open weights: grouped-query attention, QK norm, rotary positions, a preallocated KV cache.

Both transformers of the family are instances of `Tower`. A step never copies from the device to the host, and the cache is at
fixed addresses, so that a CUDA graph can capture the step. Matrices may be int8 with a scale per output. These have half the
bytes of bf16, which matters because memory bandwidth limits the speed of a frame.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from voicelab.engine.core.fused import Regions
from voicelab.engine.dual.config import TowerConfig

_INT8_MAX = 127


@dataclass(frozen=True)
class Int8Matrix:
    """A matrix (out, in) quantized to int8, with a scale for each row."""

    weight: Tensor
    """(out, in) int8."""
    scale: Tensor
    """(out,) scale of each row, in the type of the inputs."""

    @classmethod
    def of(cls, weight: Matrix) -> Int8Matrix:
        """Quantize a matrix; an Int8Matrix is returned unchanged."""
        if isinstance(weight, Int8Matrix):
            return weight
        weight = weight.to_dense() if weight.is_mkldnn else weight
        scale = weight.float().abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / _INT8_MAX
        return cls((weight.float() / scale[:, None]).round().to(torch.int8), scale.to(weight.dtype))


Matrix = Tensor | Int8Matrix


def linear(x: Tensor, weight: Matrix) -> Tensor:
    """Multiply x (…, in) by a matrix (out, in) → (…, out)."""
    if isinstance(weight, Tensor):
        if weight.is_mkldnn:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")  # noqa: SLF001
            return product
        return F.linear(x, weight)
    if x.device.type != "cpu":
        return dequantized(x, weight)
    # Uncompiled, a CPU would materialize the dequantized matrix: 6 times as slow in bf16.
    out: Tensor = torch.ops.aten._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), weight.weight, weight.scale)  # noqa: SLF001
    return out.view(*x.shape[:-1], -1)


def packed(weight: Tensor) -> Tensor:
    """Reorder a matrix for oneDNN, which doubles the speed of bf16 products, if the CPU supports them."""
    ops = torch.ops.mkldnn
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16 or not ops._is_mkldnn_bf16_supported():  # noqa: SLF001
        return weight
    ordered: Tensor = ops._reorder_linear_weight(weight, 1)  # noqa: SLF001
    return ordered


def dequantized(x: Tensor, weight: Int8Matrix) -> Tensor:
    """Multiply like `linear`, in operations that a compiler can fuse, so that only int8 is read from memory."""
    return F.linear(x, weight.weight.to(x.dtype)) * weight.scale


class Slots:
    """KV cache for `rows` rows of `positions` positions each.

    Each layer has a tensor (2, rows, kv_heads, positions, head_width), allocated separately so that compiled code updates it
    in place. Values after a row's position are never read.
    """

    def __init__(self, config: TowerConfig, rows: int, positions: int, like: Tensor) -> None:
        shape = (2, rows, config.kv_heads, positions, config.head_width)
        self.layers = [like.new_zeros(shape) for _ in range(config.layers)]
        self.rows, self.positions = rows, positions

    def take(self, slot: int, length: int) -> Tensor:
        """Copy a slot's first `length` keys and values: (layers, 2, kv_heads, length, head_width)."""
        return torch.stack([layer[:, slot, :, :length] for layer in self.layers])

    def put(self, slot: int, cached: Tensor) -> None:
        """Restore keys and values that `take` copied, from any device."""
        for layer, numbers in zip(self.layers, cached, strict=True):
            layer[:, slot, :, : cached.shape[3]] = numbers

    def clear(self, slot: int) -> None:
        """Clear a slot, because a number that is not finite would corrupt the next sequence even if masked."""
        for layer in self.layers:
            layer[:, slot] = 0


def bytes_of(config: TowerConfig, positions: int, width: int) -> int:
    """Compute the size in bytes of the keys and values of `positions` positions, with `width` bytes per number."""
    return 2 * config.layers * config.kv_heads * config.head_width * positions * width


@dataclass(frozen=True)
class TowerLayer:
    """Weights of one layer; matrices have the shape (out, in)."""

    wqkv: Matrix
    """Queries, keys, values."""
    wo: Matrix
    w13: Matrix
    """Gate (w1) and up (w3) projections of the MLP."""
    w2: Matrix
    attention_norm: Tensor
    ffn_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None

    def rounded(self) -> TowerLayer:
        """Return a copy with matrices quantized to int8."""
        wqkv, wo, w13, w2 = (Int8Matrix.of(matrix) for matrix in (self.wqkv, self.wo, self.w13, self.w2))
        return replace(self, wqkv=wqkv, wo=wo, w13=w13, w2=w2)


class Tower:
    """A transformer with a KV cache, which appends positions to several rows at once.

    Args:
        config: sizes of the transformer.
        blocks: layers.
        norm: (width,) weights of the final norm.
        positions: maximum number of positions; by default the configuration's.
    """

    def __init__(
        self, config: TowerConfig, blocks: list[TowerLayer], norm: Tensor, positions: int | None = None
    ) -> None:
        self.config, self.blocks, self.norm_weight = config, blocks, norm
        table = rotary(torch.arange(positions or config.positions), config.head_width, config.rope_base)
        self.rotary = table.to(norm.device)
        self.layer: Callable[..., Tensor] = self._layer

    def compiled(self, regions: Regions) -> Tower:
        """Return a copy with compiled layers, which share the compiled code."""
        tower = copy.copy(self)
        tower.layer = regions.compiled(self._layer, {2: 3, 4: -1})
        return tower

    def __call__(
        self,
        x: Tensor,
        slots: Slots,
        rows: slice,
        positions: Tensor,
        length: int,
        *,
        mask: Tensor | None = None,
        full: bool = False,
    ) -> Tensor:
        """Append positions to rows; returns states (rows, n, width) before the final norm, and updates the slots.

        Args:
            x: (rows, n, width) inputs.
            slots: keys and values of earlier positions.
            rows: slots of the rows.
            positions: (rows, n) int64, or (1, n) for all rows.
            length: number of positions of a slot to attend to; more than the largest of `positions`.
            mask: result of `mask` for the same arguments, if already computed.
            full: whether each of `positions` attends to all `length` positions, so that no mask is needed.
        """
        if mask is None and not full:
            mask = self.mask(positions, length, x.dtype)
        for block, cached in zip(self.blocks, slots.layers, strict=True):
            # With a mask, the complete slots are passed, because idle rows may write beyond the positions to attend to.
            x = self.layer(x, block, cached[:, rows, :, : length if full else None].transpose(0, 1), positions, mask)
        return x

    def _layer(self, x: Tensor, block: TowerLayer, cached: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Run a layer on x (rows, n, width); `cached` is (rows, 2, kv_heads, positions, head_width)."""
        attended = self._attend(self.norm(x, block.attention_norm), block, cached, positions, mask)
        x = x + linear(attended, block.wo)
        gate, up = linear(self.norm(x, block.ffn_norm), block.w13).chunk(2, -1)
        return x + linear(F.silu(gate) * up, block.w2)

    def mask(self, positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
        """Compute the attention mask: 0 up to each of the positions (rows, n), -inf after.

        Its shape is (rows * kv_heads, 1, n * group, length): a batch item is one key head of one row, with the queries of
        its group at all n positions.
        """
        config, (rows, n) = self.config, positions.shape
        future = torch.arange(length, device=positions.device) > positions[..., None]
        added = torch.zeros(future.shape, dtype=dtype, device=positions.device).masked_fill_(future, -torch.inf)
        group = config.heads // config.kv_heads
        return added[:, None, :, None].expand(rows, config.kv_heads, n, group, length).reshape(-1, 1, n * group, length)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply RMS norm in float32; the result is rounded to the model's type before the weight is applied."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.eps)).to(x.dtype) * weight

    def _attend(self, x: Tensor, block: TowerLayer, cached: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        config, (rows, n, _) = self.config, x.shape
        sizes = config.heads, config.kv_heads, config.kv_heads
        q, k, v = linear(x, block.wqkv).view(rows, n, -1, config.head_width).split(sizes, 2)
        if block.q_norm is not None and block.k_norm is not None:
            q, k = (F.rms_norm(y, w.shape, w, config.eps) for y, w in ((q, block.q_norm), (k, block.k_norm)))
        turn = self.rotary[positions].float()[:, :, None]
        q, k, row_index = rotate(q, turn), rotate(k, turn), torch.arange(rows, device=x.device)[:, None]
        cached[row_index, :, :, positions] = torch.stack((k, v), 2)
        # The queries of a key head's group, at all positions, share its keys.
        grouped = q.unflatten(2, (config.kv_heads, -1)).transpose(1, 2)
        q = grouped.reshape(rows * config.kv_heads, 1, -1, config.head_width)
        attended = cached if mask is None else cached[..., : mask.shape[-1], :]
        keys, values = (half.flatten(0, 1)[:, None] for half in attended.unbind(1))
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return y.view(rows, config.kv_heads, n, -1).transpose(1, 2).reshape(rows, n, -1)


def rotary(positions: Tensor, head_width: int, base: float) -> Tensor:
    """Return cosines and sines (…, head_width / 2, 2) of positions (…,), rounded to bf16 as in the models' training.

    With a float32 table S2-Pro's speech degenerates after a while.
    """
    steps = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions.device) / head_width
    angles = positions[..., None].float() * (1.0 / base**steps)
    return torch.stack((angles.cos(), angles.sin()), -1).to(torch.bfloat16)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate adjacent pairs of x (…, width) by a `rotary` table (…, width / 2, 2), in float32."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = turn.unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)
