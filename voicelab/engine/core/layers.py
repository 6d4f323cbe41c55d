"""Streaming torch layers, and the state of streams between blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""State of a stream, or of a batch of them, between blocks: a tensor per layer with left context, in layer order."""


class Carry:
    """State of a batch of streams: each layer in turn reads its left context and appends that of the next blocks."""

    def __init__(self, pasts: Sequence[State | None]) -> None:
        """Start from each stream's state after the previous block, or from one state of all streams; None at the start."""
        self._pasts = pasts
        self.after: list[Tensor] = []
        """State of all streams after this block."""

    def join(self, x: Tensor, context: int, dim: int = -1) -> Tensor:
        """Prepend the `context` preceding steps to a block, zeros at the start of a stream; time is axis `dim`."""
        if not context:
            return x

        def zeros() -> Tensor:
            shape = list(x.shape)
            shape[0], shape[dim] = len(x) // len(self._pasts), context
            return x.new_zeros(shape)

        extended = torch.cat([self.past(zeros), x], dim=dim)
        self.after.append(extended.narrow(dim, extended.shape[dim] - context, context))
        return extended

    def positions(self, steps: int, device: torch.device) -> Tensor:
        """Count each stream's steps before this block of `steps`: (batch,), or (1,) for a batch with one state."""
        before = self.past(lambda: torch.zeros(1, dtype=torch.int64, device=device))
        self.after.append(before + steps)
        return before

    def states(self) -> list[State]:
        """Return each stream's state after this block."""
        # Views: the streams of a batch share memory until their next block.
        return list(zip(*(after.split(1) for after in self.after), strict=True))

    def past(self, start: Callable[[], Tensor]) -> Tensor:
        """Return a layer's entry of `after` from the previous block, or `start()`; the layer then appends to `after`."""
        index = len(self.after)
        pasts = [start() if past is None else past[index] for past in self._pasts]
        return pasts[0] if len(pasts) == 1 else torch.cat(pasts)


class Chain(nn.ModuleList):
    """A sequence of layers."""

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Run the layers in order."""
        for layer in self:
            x = layer(x, carry)
        return x


class LayerGroup(nn.Module):
    """Layers that have a common name in the checkpoint; ``residual`` adds their input to their output."""

    def __init__(self, name: str, layers: Iterable[nn.Module], residual: bool = False) -> None:
        super().__init__()
        self.add_module(name, Chain(layers))
        self._name, self._residual = name, residual

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Run the layers in order."""
        y = cast("Tensor", self.get_submodule(self._name)(x, carry))
        return x + y if self._residual else y


class Conv(nn.Module):
    """A causal convolution over time. The number of time steps must be a multiple of its stride."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, groups=groups)
        self.context = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Convolve (batch, inputs, n · stride) to (batch, outputs, n)."""
        return cast("Tensor", self.conv(carry.join(x, self.context)))
