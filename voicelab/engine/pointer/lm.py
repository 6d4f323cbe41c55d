"""The dual autoregressive language model, which generates codec frames one by one from phones and a speaker.

A causal transformer over time (the slow stack) predicts the first codebook of a frame; a small transformer over depth
predicts the other codebooks, each from the preceding ones. Small models of the family have a monotonic text pointer: every
step also receives the phone at the pointer, and the first symbol of a frame is (code, pointer advance). So the model cannot
skip or repeat a word, speech ends when the pointer leaves the text, and word times are exact. All stacks have the same
architecture: pre-norm with RMS norm (Zhang and Sennrich, 2019), rotary positions (Su et al., RoFormer, 2021), gated MLP
(Shazeer, 2020), windowed attention.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voicelab.engine.pointer.config import LMConfig, StackConfig
from voicelab.engine.pointer.rows import DWELL_STEPS, STATISTICS, KVCache


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
    """Layers and a final norm. `forward` runs complete sequences; `extend` appends to cached ones, with equal results."""

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
        """Append the same number of positions to several rows of the cache. CUDA graphs can capture this function.

        Args:
            x: inputs (rows, new, width).
            cache: its keys and values are updated in place; its lengths are not.
            rows: rows of the cache, as a slice or (rows,) int64.
            slot: (rows, new) int64, positions in the cache.
            offset: (rows, 1) int64, number of positions already evicted.
            seen: cache positions to attend to.

        Returns:
            States (rows, new, width).
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
        """Embed speaker statistics (batch, STATISTICS * latent) as (batch, slow width)."""
        return cast("Tensor", self.speaker(statistics))

    def encode_frames(self, codes: Tensor) -> Tensor:
        """Embed frames (…, codebooks) as (…, slow width)."""
        return torch.stack([table(codes[..., i]) for i, table in enumerate(self.frame)]).sum(0)

    def step_input(self, frames: Tensor, text: Tensor, dwell: Tensor, speaker: Tensor | float = 0.0) -> Tensor:
        """Sum the slow stack's inputs: previous frame, phone at the pointer, its dwell (frames so far), and speaker.

        All are (batch, time, slow width) except `dwell`, which is (batch, time). `speaker` may be (batch, 1, slow width).
        """
        return cast("Tensor", frames + text + self.dwell(dwell.clamp(max=DWELL_STEPS - 1)) + speaker)

    def first_logits(self, hidden: Tensor) -> Tensor:
        """Compute logits (…, advances, entries of the first codebook) of hidden states (…, slow width)."""
        out: Tensor = self.first(hidden)
        return out.reshape(*out.shape[:-1], self.config.advances, self.config.codebooks[0])
