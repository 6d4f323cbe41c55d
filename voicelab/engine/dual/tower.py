"""The family's transformer: grouped heads, norm of queries and keys, rotary positions, keys and values in slots.

Both of its transformers are this one. Nothing here reads a number back from the device, and the slots are memory that never
moves, so that a CUDA graph can hold it. Its matrices may be of 8 bits with a scale for each output: half the bytes of bf16,
where a frame waits for bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from voicelab.engine.dual.config import TowerConfig

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
        weight = weight.to_dense() if weight.is_mkldnn else weight
        scale = weight.float().abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / _LARGEST
        return cls((weight.float() / scale[:, None]).round().to(torch.int8), scale.to(weight.dtype))


Matrix = Tensor | Int8Matrix


def linear(x: Tensor, weight: Matrix) -> Tensor:
    """(…, in) → (…, out)."""
    if isinstance(weight, Tensor):
        if weight.is_mkldnn:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")  # noqa: SLF001
            return product
        return F.linear(x, weight)
    if x.device.type != "cpu":
        return dequantised(x, weight)
    # Uncompiled, a CPU would write the whole matrix anew: 6 times as slow in bf16.
    out: Tensor = torch.ops.aten._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), weight.weight, weight.scale)  # noqa: SLF001
    return out.view(*x.shape[:-1], -1)


def packed(weight: Tensor) -> Tensor:
    """A matrix in oneDNN's own order, where products read bf16 twice as fast: on a CPU that can; else as it is."""
    ops = torch.ops.mkldnn
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16 or not ops._is_mkldnn_bf16_supported():  # noqa: SLF001
        return weight
    ordered: Tensor = ops._reorder_linear_weight(weight, 1)  # noqa: SLF001
    return ordered


def dequantised(x: Tensor, weight: Int8Matrix) -> Tensor:
    """As `linear`, in plain operations, of which a compiler makes one that reads the 8 bits."""
    return F.linear(x, weight.weight.to(x.dtype)) * weight.scale


class Slots:
    """Room for the keys and values of `rows` rows of `positions` positions each.

    A tensor (2, rows, kv_heads, positions, head_width) for each layer, in memory of its own: a compiler writes it
    in place. What lies behind a row's position is never looked at.
    """

    def __init__(self, config: TowerConfig, rows: int, positions: int, like: Tensor) -> None:
        shape = (2, rows, config.kv_heads, positions, config.head_width)
        self.layers = [like.new_zeros(shape) for _ in range(config.layers)]
        self.rows, self.positions = rows, positions

    def take(self, slot: int, length: int) -> Tensor:
        """A copy (layers, 2, kv_heads, length, head_width) of what a slot holds of its first positions."""
        return torch.stack([layer[:, slot, :, :length] for layer in self.layers])

    def put(self, slot: int, held: Tensor) -> None:
        """Puts back what `take` copied, from wherever it was kept."""
        for layer, numbers in zip(self.layers, held, strict=True):
            layer[:, slot, :, : held.shape[3]] = numbers

    def clear(self, slot: int) -> None:
        """Forgets a slot: a number that is not finite would spoil the next sequence there, even masked."""
        for layer in self.layers:
            layer[:, slot] = 0


def bytes_of(config: TowerConfig, positions: int, width: int) -> int:
    """Memory of so many positions, with numbers of so many bytes."""
    return 2 * config.layers * config.kv_heads * config.head_width * positions * width


@dataclass(frozen=True)
class TowerLayer:
    """The weights of one layer; each matrix (out, in)."""

    wqkv: Matrix
    """Queries, keys, values."""
    wo: Matrix
    w13: Matrix
    """The gate (w1) and what it lets through (w3)."""
    w2: Matrix
    attention_norm: Tensor
    ffn_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None

    def rounded(self) -> TowerLayer:
        """The same with matrices of 8 bits."""
        wqkv, wo, w13, w2 = (Int8Matrix.of(matrix) for matrix in (self.wqkv, self.wo, self.w13, self.w2))
        return replace(self, wqkv=wqkv, wo=wo, w13=w13, w2=w2)


class Tower:
    """A transformer over positions of a row.

    Args:
        config: its sizes.
        blocks: its layers.
        norm: (width,) weights of its last norm.
        positions: how many there can be; by default as many as the configuration says.
    """

    def __init__(
        self, config: TowerConfig, blocks: list[TowerLayer], norm: Tensor, positions: int | None = None
    ) -> None:
        self.config, self.blocks, self.norm_weight = config, blocks, norm
        table = rotary(torch.arange(positions or config.positions), config.head_width, config.rope_base)
        self.rotary = table.to(norm.device)

    def __call__(
        self,
        x: Tensor,
        slots: Slots,
        rows: slice,
        positions: Tensor,
        length: int,
        *,
        mask: Tensor | None = None,
        whole: bool = False,
    ) -> Tensor:
        """States (rows, n, width) before the last norm; the keys and values of the positions are put into the slots.

        Args:
            x: (rows, n, width) what stands at the positions.
            slots: keys and values of what stood before.
            rows: which slots the rows are.
            positions: (rows, n) int64.
            length: positions of a slot that are looked at; more than the largest of `positions`.
            mask: what `mask` gives of them, where it is there already.
            whole: whether nothing that is looked at lies behind one of `positions`.
        """
        turn = self.rotary[positions].float()[:, :, None]
        if mask is None and not whole:
            mask = self.mask(positions, length, x.dtype)
        for block, held in zip(self.blocks, slots.layers, strict=True):
            normed = self.norm(x, block.attention_norm)
            given = self._attend(normed, block, held[:, rows], turn, positions, mask, length)
            x = x + linear(given, block.wo)
            gate, through = linear(self.norm(x, block.ffn_norm), block.w13).chunk(2, -1)
            x = x + linear(F.silu(gate) * through, block.w2)
        return x

    def mask(self, positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
        """What is added to scores: 0 up to each of the positions (rows, n), -inf behind; as attention reads it.

        One key head of one row is one of the batch, and the queries of its group are at the same positions.
        """
        config, (rows, n) = self.config, positions.shape
        behind = torch.arange(length, device=positions.device) > positions[..., None]
        added = torch.zeros(behind.shape, dtype=dtype, device=positions.device).masked_fill_(behind, -torch.inf)
        group = config.heads // config.kv_heads
        return added[:, None, :, None].expand(rows, config.kv_heads, n, group, length).reshape(-1, 1, n * group, length)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS norm in float32, rounded to the model's type before the weight."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.eps)).to(x.dtype) * weight

    def _attend(
        self,
        x: Tensor,
        block: TowerLayer,
        held: Tensor,
        turn: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        length: int,
    ) -> Tensor:
        config, (rows, n, _) = self.config, x.shape
        sizes = config.heads, config.kv_heads, config.kv_heads
        q, k, v = linear(x, block.wqkv).view(rows, n, -1, config.head_width).split(sizes, 2)
        if block.q_norm is not None and block.k_norm is not None:
            q, k = (F.rms_norm(y, w.shape, w, config.eps) for y, w in ((q, block.q_norm), (k, block.k_norm)))
        q, k, each = rotate(q, turn), rotate(k, turn), torch.arange(rows, device=x.device)[:, None]
        held[:, each, :, positions] = torch.stack((k, v), 2)
        # The queries of a key head's group, at all positions, share its keys.
        grouped = q.unflatten(2, (config.kv_heads, -1)).transpose(1, 2)
        q = grouped.reshape(rows * config.kv_heads, 1, -1, config.head_width)
        keys, values = held[..., :length, :].flatten(1, 2)[:, :, None]
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return y.view(rows, config.kv_heads, n, -1).transpose(1, 2).reshape(rows, n, -1)


def rotary(positions: Tensor, head_width: int, base: float) -> Tensor:
    """(…,) positions → (…, head_width / 2, 2) cosines and sines, rounded to bf16 as in the models' training.

    With a table in float32 S2-Pro's speech falls apart after a while.
    """
    steps = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions.device) / head_width
    angles = positions[..., None].float() * (1.0 / base**steps)
    return torch.stack((angles.cos(), angles.sin()), -1).to(torch.bfloat16)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Turns adjacent pairs of x (…, width) by what `rotary` says of their positions (…, width / 2, 2), in float32."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = turn.unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)
