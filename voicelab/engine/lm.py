"""The dual autoregressive language model: phones and a speaker in, codec frames out, one frame after another.

A causal transformer over time (the slow one) predicts the first codebook of a frame; a small transformer over depth
predicts its other codebooks, each from those before it. The small members of the family carry a monotonic text pointer:
every step also receives the phone that the pointer is at, and the first symbol of a frame is (code, how far the pointer
moves). So the model cannot skip or repeat a word, speech ends when the pointer leaves the text, and word times are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from voicelab.engine.config import LMConfig
from voicelab.engine.transformer import Stack

DWELL_STEPS = 24
"""Dwell (frames already spent on a phone) is told to the model up to this many."""
STATISTICS = 3
"""Numbers told of a speaker for every dimension of a latent: see `speaker_statistics`."""


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
        out: Tensor = self.read(self.text(self.phone(phones) + self.flag(flags), valid))
        return out

    def encode_speaker(self, statistics: Tensor) -> Tensor:
        """(batch, STATISTICS * latent) of a reference, as `speaker_statistics` says → (batch, slow width)."""
        out: Tensor = self.speaker(statistics)
        return out

    def encode_frames(self, codes: Tensor) -> Tensor:
        """Frames (…, codebooks) → (…, slow width)."""
        return torch.stack([table(codes[..., i]) for i, table in enumerate(self.frame)]).sum(0)

    def step_input(self, frames: Tensor, text: Tensor, dwell: Tensor, speaker: Tensor) -> Tensor:
        """What the slow transformer receives: the frame before, the phone at the pointer, the time spent there, the speaker.

        All (batch, time, slow width) but `dwell` (batch, time) and `speaker` (batch, slow width).
        """
        out: Tensor = frames + text + self.dwell(dwell.clamp(max=DWELL_STEPS - 1)) + speaker[:, None]
        return out

    def first_logits(self, hidden: Tensor) -> Tensor:
        """(…, slow width) → (…, advances, entries of the first codebook)."""
        out: Tensor = self.first(hidden)
        return out.reshape(*out.shape[:-1], self.config.advances, self.config.codebooks[0])

    def depth_logits(self, hidden: Tensor, codes: Tensor) -> list[Tensor]:
        """Training's view of the depth transformer.

        Args:
            hidden: (n, slow width), one a frame.
            codes: (n, codebooks) the true codes.

        Returns:
            logits (n, entries) for each codebook but the first.
        """
        x = torch.stack([table(codes[:, i]) for i, table in enumerate(self.codes)], dim=1)
        x = torch.cat([x[:, :1] + self.enter_depth(hidden)[:, None], x[:, 1:]], dim=1)
        y = self.depth(x)
        return [head(y[:, i]) for i, head in enumerate(self.others)]


def speaker_statistics(latents: Tensor) -> Tensor:
    """What a reference tells of its speaker, whatever it says.

    Args:
        latents: (n, latent) quantized latents.

    Returns:
        (STATISTICS * latent,) mean and standard deviation over time (timbre, pitch and its range), and the mean change from
        frame to frame (pace).
    """
    change = latents.diff(dim=0).abs().mean(0) if len(latents) > 1 else torch.zeros_like(latents[0])
    return torch.cat([latents.mean(0), latents.std(0, unbiased=False), change])
