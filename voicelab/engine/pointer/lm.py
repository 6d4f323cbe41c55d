"""The dual autoregressive language model: phones and a speaker in, codec frames out, frame by frame.
A causal transformer over time (the slow stack) predicts the first codebook of a frame; a small transformer over depth
predicts its other codebooks, each from the preceding ones. The small members of the family have a monotonic text pointer:
every step also receives the phone at the pointer, and the first symbol of a frame is (code, pointer advance). So the model
cannot skip or repeat a word, speech ends when the pointer leaves the text, and word times are exact.

All stacks are one transformer: pre-norm with RMS norm (Zhang and Sennrich, 2019), rotary positions (Su et al., RoFormer,
2021), gated MLP (Shazeer, 2020), windowed attention.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voicelab.engine.pointer.config import LMConfig, StackConfig

DWELL_STEPS = 24
"""Largest dwell (frames already spent on a phone) that the model distinguishes."""
STATISTICS = 3
"""Statistics per latent dimension that describe a speaker: see `speaker_statistics`."""
GRAIN = 32
"""Cached positions are evicted in multiples of this, so sums over them are grouped alike after any number of evictions."""


Parked = tuple[Tensor, Tensor, int]
"""A saved cache row: keys and values (layers, heads, length, head width), and the number of positions evicted before."""


class KVCache:
    """Preallocated key-value cache of several sequences.

    Shapes: keys and values (layers, rows, heads, room, head width); `lengths[row]` positions of a row are filled.
    A row is filled from its start; when it is full, `make_room` slides the window back, so a sequence can be of any length.
    """

    def __init__(self, config: StackConfig, rows: int, device: torch.device, dtype: torch.dtype) -> None:
        head = config.width // config.heads
        self.window = config.window
        self.room = -(-3 * config.window // (2 * GRAIN)) * GRAIN + GRAIN
        shape = (config.layers, rows, config.heads, self.room, head)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.lengths = [0] * rows
        self.offsets = [0] * rows
        """Evicted positions of each row: rotary positions keep counting."""

    def reset(self, row: int) -> None:
        """Clear a row for a new sequence; zeros, since a number that is not finite would propagate even if masked."""
        self.keys[:, row] = self.values[:, row] = 0
        self.lengths[row] = self.offsets[row] = 0

    def take(self, row: int) -> Parked:
        """Copy the positions of a row that later positions can attend to."""
        length = self.lengths[row]
        begin = self._evictable(length)
        keys, values = (store[:, row, :, begin:length].clone() for store in (self.keys, self.values))
        return keys, values, self.offsets[row] + begin

    def put(self, row: int, parked: Parked) -> None:
        """Restore a row from `take` of any row."""
        keys, values, offset = parked
        length = keys.shape[2]
        self.reset(row)
        self.keys[:, row, :, :length], self.values[:, row, :, :length] = keys, values
        self.lengths[row], self.offsets[row] = length, offset

    def rewind(self, row: int, position: int) -> None:
        """Drop the positions from this one on; positions count from the start of the sequence."""
        self.lengths[row] = position - self.offsets[row]

    def position(self, row: int) -> int:
        """Count the positions added to a row since its reset."""
        return self.lengths[row] + self.offsets[row]

    def make_room(self, row: int, count: int) -> None:
        """Slide the row's window to its start if `count` more positions would not fit."""
        length = self.lengths[row]
        if length + count > self.room:
            keep = length - self._evictable(length)
            for store in (self.keys, self.values):
                store[:, row, :, :keep] = store[:, row, :, length - keep : length].clone()
            self.lengths[row] = keep
            self.offsets[row] += length - keep

    def _evictable(self, length: int) -> int:
        """Count the leading positions outside the attention window."""
        return max(0, length - self.window) // GRAIN * GRAIN


def rotary(positions: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of positions (…,), each (…, head / 2)."""
    frequencies = 10_000.0 ** (-torch.arange(0, head, 2, device=positions.device, dtype=torch.float32) / head)
    angles = positions[..., None].float() * frequencies
    return torch.cos(angles), torch.sin(angles)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm_attention = nn.RMSNorm(config.width, eps=1e-5)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.join = nn.Linear(config.width, config.width, bias=False)
        self.norm_mlp = nn.RMSNorm(config.width, eps=1e-5)
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project x (batch, time, width) to rotated queries, keys and values, each (batch, heads, time, head width)."""
        batch, time, _ = x.shape
        q, k, v = self.qkv(self.norm_attention(x)).reshape(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return _turn(q, cos, sin), _turn(k, cos, sin), v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add attention (batch, heads, time, head width) and the MLP to x."""
        x = x + self.join(attended.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_mlp(x)).chunk(2, dim=-1)
        return cast("Tensor", x + self.down(F.silu(gate) * up))


class Stack(nn.Module):
    """Layers and a final norm. `forward` runs whole sequences; `extend` appends to cached ones, with the same result."""

    def __init__(self, config: StackConfig, causal: bool) -> None:
        super().__init__()
        self.config = config
        self.causal = causal
        self.head = config.width // config.heads
        self.blocks = cast("Iterable[Block]", nn.ModuleList(Block(config) for _ in range(config.layers)))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Run the stack on x (batch, time, width); `valid` (batch, time) is False at padding."""
        time = x.shape[1]
        positions = torch.arange(time, device=x.device)
        cos, sin = rotary(positions, self.head)
        lag = positions[:, None] - positions[None, :]
        seen = (lag < self.config.window) & (lag >= (0 if self.causal else 1 - self.config.window))
        plain = self.causal and valid is None and time <= self.config.window
        mask = None if plain else seen
        if valid is not None:
            mask = seen & valid[:, None, None, :] | torch.eye(time, dtype=torch.bool, device=x.device)
        for block in self.blocks:
            q, k, v = block.project(x, cos, sin)
            x = block.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=plain))
        return cast("Tensor", self.norm(x))

    def extend(
        self, x: Tensor, cache: KVCache, rows: slice | Tensor, slot: Tensor, offset: Tensor, seen: slice
    ) -> Tensor:
        """Append the same number of positions to each of several cache rows. A CUDA graph can capture it.

        Args:
            x: (rows, new, width).
            cache: its keys and values are updated in place; its lengths are not.
            rows: rows of the cache, as a slice or (rows,) int64.
            slot: (rows, new) int64, indices into the cache's room.
            offset: (rows, 1) int64, positions evicted before.
            seen: slice of the room to attend to.

        Returns:
            (rows, new, width).
        """
        cos, sin = (t[:, None] for t in rotary(slot + offset, self.head))
        lag = slot[:, :, None] - torch.arange(seen.start or 0, seen.stop, device=x.device)
        mask = ((lag >= 0) & (lag < self.config.window))[:, None]
        index = torch.arange(rows.stop, device=x.device) if isinstance(rows, slice) else rows
        for i, block in enumerate(self.blocks):
            q, k, v = block.project(x, cos, sin)
            cache.keys[i, index[:, None], :, slot] = k.transpose(1, 2)
            cache.values[i, index[:, None], :, slot] = v.transpose(1, 2)
            keys, values = (store[i][rows][:, :, seen] for store in (cache.keys, cache.values))
            x = block.finish(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))
        return cast("Tensor", self.norm(x))


class LM(nn.Module):
    """Text encoder, slow transformer, depth transformer."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.config = config
        slow, depth = config.slow.width, config.depth.width
        self.phone = nn.Embedding(config.phones, config.text.width)
        self.flag = nn.Embedding(config.flags, config.text.width)
        self.text = Stack(config.text, causal=False)
        self.read = nn.Linear(config.text.width, slow)
        self.dwell = nn.Embedding(DWELL_STEPS, slow)
        self.speaker = nn.Sequential(nn.Linear(STATISTICS * config.latent, slow), nn.SiLU(), nn.Linear(slow, slow))
        self.frame = nn.ModuleList(nn.Embedding(size, slow) for size in config.codebooks)
        self.begin = nn.Parameter(torch.zeros(slow))
        self.slow = Stack(config.slow, causal=True)
        self.first = nn.Linear(slow, config.codebooks[0] * config.advances, bias=False)
        self.enter_depth = nn.Linear(slow, depth)
        self.codes = nn.ModuleList(nn.Embedding(size, depth) for size in config.codebooks[:-1])
        self.depth = Stack(config.depth, causal=True)
        self.others = nn.ModuleList(nn.Linear(depth, size, bias=False) for size in config.codebooks[1:])
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.3 / len(config.codebooks) ** 0.5)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.7 * module.in_features**-0.5)

    def encode_text(self, phones: Tensor, flags: Tensor, valid: Tensor | None = None) -> Tensor:
        """Encode phone ids and flags, each (batch, phones), as (batch, phones, slow width)."""
        return cast("Tensor", self.read(self.text(self.phone(phones) + self.flag(flags), valid)))

    def encode_speaker(self, statistics: Tensor) -> Tensor:
        """Embed `speaker_statistics` (batch, STATISTICS * latent) as (batch, slow width)."""
        return cast("Tensor", self.speaker(statistics))

    def encode_frames(self, codes: Tensor) -> Tensor:
        """Embed frames (…, codebooks) as (…, slow width)."""
        return torch.stack([table(codes[..., i]) for i, table in enumerate(self.frame)]).sum(0)

    def step_input(self, frames: Tensor, text: Tensor, dwell: Tensor, speaker: Tensor) -> Tensor:
        """Sum the slow stack's inputs: the previous frame, the phone at the pointer, the dwell on it, and the speaker.

        All (batch, time, slow width) but `dwell` (batch, time); `speaker` may be (batch, 1, slow width).
        """
        return cast("Tensor", frames + text + self.dwell(dwell.clamp(max=DWELL_STEPS - 1)) + speaker)

    def first_logits(self, hidden: Tensor) -> Tensor:
        """Compute logits (…, advances, entries of the first codebook) of hidden states (…, slow width)."""
        out: Tensor = self.first(hidden)
        return out.reshape(*out.shape[:-1], self.config.advances, self.config.codebooks[0])


def speaker_statistics(latents: Tensor) -> Tensor:
    """Summarize a reference recording's speaker, independent of its words.

    Args:
        latents: (n, latent) quantized latents.

    Returns:
        (STATISTICS * latent,) mean and standard deviation over time (timbre, pitch and its range), and the mean absolute
        change from frame to frame (pace).
    """
    change = latents.diff(dim=0).abs().mean(0) if len(latents) > 1 else torch.zeros_like(latents[0])
    return torch.cat([latents.mean(0), latents.std(0, unbiased=False), change])
