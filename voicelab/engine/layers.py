"""Convolutions that stream: given what came before, a piece at a time gives what the whole would have given.

A streaming module takes ``past`` (None at the start) and returns the new one beside its output; it keeps nothing itself, so
one module serves any number of streams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

State = list[Tensor]
"""What a stack of streaming convolutions remembers: one tensor a convolution, in order."""


class CausalConv(nn.Module):
    """A convolution over time that sees only the past.

    Shapes: (batch, channels_in, time) → (batch, channels_out, time).
    """

    def __init__(self, channels_in: int, channels_out: int, kernel: int, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, kernel, groups=groups)
        self.left = kernel - 1

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output, and what to pass as `past` with the next piece."""
        if past is None:
            past = x.new_zeros(x.shape[0], x.shape[1], self.left)
        x = torch.cat([past, x], dim=-1)
        return self.conv(x), x[..., x.shape[-1] - self.left :]


class ConvBlock(nn.Module):
    """A ConvNeXt block over time: depthwise convolution, then a pointwise MLP, added to the input.

    Shapes: (batch, channels, time) → the same. ``causal=False`` pads both sides (the encoder).
    """

    def __init__(self, channels: int, expansion: int = 3, kernel: int = 7, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.kernel = kernel
        self.depthwise = CausalConv(channels, channels, kernel, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, expansion * channels)
        self.narrow = nn.Linear(expansion * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output, and what to pass as `past` with the next piece."""
        if self.causal:
            y, past = self.depthwise(x, past)
        else:
            half = self.kernel // 2
            y = self.depthwise.conv(F.pad(x, (half, half)))
            past = x
        y = self.narrow(F.gelu(self.widen(self.norm(y.transpose(1, 2)))))
        return x + (self.scale * y).transpose(1, 2), past


class ConvStack(nn.Module):
    """Several causal blocks with one state."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ConvBlock(channels) for _ in range(blocks))

    def forward(self, x: Tensor, past: State | None = None) -> tuple[Tensor, State]:
        """The output, and what to pass as `past` with the next piece."""
        after: State = []
        for i, block in enumerate(self.blocks):
            x, new = block(x, None if past is None else past[i])
            after.append(new)
        return x, after
