"""The dual autoregressive language model: phones and a speaker in, codec frames out, one frame after another.

A causal transformer over time (the slow one) predicts the first codebook of a frame; a small transformer over depth
predicts its other codebooks, each from those before it. The small members of the family carry a monotonic text pointer:
every step also receives the phone that the pointer is at, and the first symbol of a frame is (code, how far the pointer
moves). So the model cannot skip or repeat a word, speech ends when the pointer leaves the text, and word times are exact.

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
"""Dwell (frames already spent on a phone) is an input of the model up to this many."""
STATISTICS = 3
"""Numbers that describe a speaker for every dimension of a latent: see `speaker_statistics`."""
GRAIN = 32
"""Positions of a cache are forgotten by so many at once: however often that happened, sums over them are grouped alike."""


Parked = tuple[Tensor, Tensor, int]
"""What a row of a cache holds, taken out: keys and values (layers, heads, length, head width), positions forgotten before."""


class KVCache:
    """Keys and values of several sequences, allocated once.

    Shapes: keys and values (layers, rows, heads, room, head width); `lengths[row]` positions of a row are filled.
    A row's room is used from its start; `make_room` slides the window back when it is full, so that a sequence has no end.
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
        """Positions of the row that were forgotten: rotary positions go on counting."""

    def reset(self, row: int) -> None:
        """Empties a row for a new sequence. A number that is not finite would spoil it, even masked, so all are zero."""
        self.keys[:, row] = self.values[:, row] = 0
        self.lengths[row] = self.offsets[row] = 0

    def take(self, row: int) -> Parked:
        """A copy of all that later positions of the row can see."""
        length = self.lengths[row]
        first = self._forgettable(length)
        keys, values = (store[:, row, :, first:length].clone() for store in (self.keys, self.values))
        return keys, values, self.offsets[row] + first

    def put(self, row: int, parked: Parked) -> None:
        """Fills a row with what another, or the same, held before."""
        keys, values, offset = parked
        length = keys.shape[2]
        self.reset(row)
        self.keys[:, row, :, :length], self.values[:, row, :, :length] = keys, values
        self.lengths[row], self.offsets[row] = length, offset

    def rewind(self, row: int, position: int) -> None:
        """Forgets what was added from this position on; positions count from the start of the sequence."""
        self.lengths[row] = position - self.offsets[row]

    def position(self, row: int) -> int:
        """Positions added to the row since it was reset."""
        return self.lengths[row] + self.offsets[row]

    def make_room(self, row: int, count: int) -> None:
        """Slides the row's window to its start if `count` more positions would not fit."""
        length = self.lengths[row]
        if length + count > self.room:
            keep = length - self._forgettable(length)
            for store in (self.keys, self.values):
                store[:, row, :, :keep] = store[:, row, :, length - keep : length].clone()
            self.lengths[row] = keep
            self.offsets[row] += length - keep

    def _forgettable(self, length: int) -> int:
        """Positions at the start that nothing to come sees."""
        return max(0, length - self.window) // GRAIN * GRAIN


def rotary(positions: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """(…,) positions → cosines and sines, each (…, head / 2)."""
    frequencies = 10_000.0 ** (-torch.arange(0, head, 2, device=positions.device, dtype=torch.float32) / head)
    angles = positions[..., None].float() * frequencies
    return torch.cos(angles), torch.sin(angles)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Block(nn.Module):
    """One layer."""

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
        """(batch, time, width) → queries, keys, values, each (batch, heads, time, head width), turned to their positions."""
        batch, time, _ = x.shape
        q, k, v = self.qkv(self.norm_attention(x)).reshape(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return _turn(q, cos, sin), _turn(k, cos, sin), v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Adds attention (batch, heads, time, head width) and the MLP to x."""
        x = x + self.join(attended.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_mlp(x)).chunk(2, dim=-1)
        return cast("Tensor", x + self.down(F.silu(gate) * up))


class Stack(nn.Module):
    """Layers and a last norm. `forward` sees whole sequences; `extend` adds to those in a cache, with the same result."""

    def __init__(self, config: StackConfig, causal: bool) -> None:
        super().__init__()
        self.config = config
        self.causal = causal
        self.head = config.width // config.heads
        self.blocks = cast("Iterable[Block]", nn.ModuleList(Block(config) for _ in range(config.layers)))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(batch, time, width) → the same; `valid` (batch, time) marks what is no padding."""
        time = x.shape[1]
        at = torch.arange(time, device=x.device)
        cos, sin = rotary(at, self.head)
        apart = at[:, None] - at[None, :]
        seen = (apart < self.config.window) & (apart >= (0 if self.causal else 1 - self.config.window))
        plain = self.causal and valid is None and time <= self.config.window
        mask = None if plain else seen
        if valid is not None:
            mask = seen & valid[:, None, None, :] | torch.eye(time, dtype=torch.bool, device=x.device)
        for block in self.blocks:
            q, k, v = block.project(x, cos, sin)
            x = block.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=plain))
        return cast("Tensor", self.norm(x))

    def extend(
        self, x: Tensor, cache: KVCache, rows: slice | Tensor, place: Tensor, offset: Tensor, seen: slice
    ) -> Tensor:
        """Adds the same number of positions to each of some rows of a cache. A CUDA graph can hold it.

        Args:
            x: (rows, new, width).
            cache: its keys and values are changed in place; its lengths stay as they are.
            rows: which rows of the cache these are, or (rows,) int64.
            place: (rows, new) int64, where in the cache's room they come.
            offset: (rows, 1) int64, positions before the room.
            seen: what of the room is looked at.

        Returns:
            (rows, new, width).
        """
        cos, sin = (t[:, None] for t in rotary(place + offset, self.head))
        apart = place[:, :, None] - torch.arange(seen.start or 0, seen.stop, device=x.device)
        mask = ((apart >= 0) & (apart < self.config.window))[:, None]
        index = torch.arange(rows.stop, device=x.device) if isinstance(rows, slice) else rows
        for i, block in enumerate(self.blocks):
            q, k, v = block.project(x, cos, sin)
            cache.keys[i, index[:, None], :, place] = k.transpose(1, 2)
            cache.values[i, index[:, None], :, place] = v.transpose(1, 2)
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
        """(batch, phones) ids and places in the word → (batch, phones, slow width)."""
        return cast("Tensor", self.read(self.text(self.phone(phones) + self.flag(flags), valid)))

    def encode_speaker(self, statistics: Tensor) -> Tensor:
        """(batch, STATISTICS * latent) of a reference, as `speaker_statistics` says → (batch, slow width)."""
        return cast("Tensor", self.speaker(statistics))

    def encode_frames(self, codes: Tensor) -> Tensor:
        """Frames (…, codebooks) → (…, slow width)."""
        return torch.stack([table(codes[..., i]) for i, table in enumerate(self.frame)]).sum(0)

    def step_input(self, frames: Tensor, text: Tensor, dwell: Tensor, speaker: Tensor) -> Tensor:
        """What the slow transformer receives: the frame before, the phone at the pointer, the time spent there, the speaker.

        All (batch, time, slow width) but `dwell` (batch, time); `speaker` may be one for all times (batch, 1, slow width).
        """
        return cast("Tensor", frames + text + self.dwell(dwell.clamp(max=DWELL_STEPS - 1)) + speaker)

    def first_logits(self, hidden: Tensor) -> Tensor:
        """(…, slow width) → (…, advances, entries of the first codebook)."""
        out: Tensor = self.first(hidden)
        return out.reshape(*out.shape[:-1], self.config.advances, self.config.codebooks[0])


def speaker_statistics(latents: Tensor) -> Tensor:
    """What a reference says about its speaker, independent of its words.

    Args:
        latents: (n, latent) quantized latents.

    Returns:
        (STATISTICS * latent,) mean and standard deviation over time (timbre, pitch and its range), and the mean change from
        frame to frame (pace).
    """
    change = latents.diff(dim=0).abs().mean(0) if len(latents) > 1 else torch.zeros_like(latents[0])
    return torch.cat([latents.mean(0), latents.std(0, unbiased=False), change])
