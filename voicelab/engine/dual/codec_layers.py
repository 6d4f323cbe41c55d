"""The layers of the open weights' codec: every one is causal, and goes on from piece to piece exactly.

A layer maps (batch, channels, time) and takes a `Carry` beside it, in which it finds what it needs of the pieces before and
leaves what the next piece needs. It keeps nothing itself, so one module serves any number of streams, several in a batch.
Layers are named as in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ROTARY_BASE = 10_000.0

State = tuple[Tensor, ...]
"""What one stream carries from piece to piece: a tensor for each layer that looks back, of batch 1, in their order."""


class Carry:
    """The past of the streams of a batch, which layers read in turn, and the past of the next pieces."""

    def __init__(self, pasts: Sequence[State | None]) -> None:
        """Takes each stream's state after the piece before; None at its start."""
        self._pasts = pasts
        self._after: list[Tensor] = []

    def join(self, x: Tensor, left: int, dim: int = -1) -> Tensor:
        """Puts the `left` steps of time before it in front of a piece, zeros before the start; time is axis `dim`."""
        if not left:
            return x
        shape = list(x[:1].shape)
        shape[dim] = left
        whole = torch.cat([self._past(lambda: x.new_zeros(shape)), x], dim=dim)
        self._after.append(whole.narrow(dim, whole.shape[dim] - left, left))
        return whole

    def positions(self, steps: int, device: torch.device) -> Tensor:
        """(batch,) steps that each stream has done before this piece of so many."""
        before = self._past(lambda: torch.zeros(1, dtype=torch.int64, device=device))
        self._after.append(before + steps)
        return before

    def states(self) -> list[State]:
        """Each stream's state after this piece."""
        # Views: the streams of a batch share its memory until their next piece.
        return list(zip(*(after.split(1) for after in self._after), strict=True))

    def _past(self, zeros: Callable[[], Tensor]) -> Tensor:
        place = len(self._after)
        return torch.cat([zeros() if past is None else past[place] for past in self._pasts])


class Chain(nn.ModuleList):
    """Layers one after the other."""

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """The output of the last."""
        for layer in self:
            x = layer(x, carry)
        return x


class LayerGroup(nn.Module):
    """Layers that the checkpoint has under a name of their own; ``residual`` adds them to their input."""

    def __init__(self, name: str, layers: Iterable[nn.Module], residual: bool = False) -> None:
        super().__init__()
        self.add_module(name, Chain(layers))
        self._name, self._residual = name, residual

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """As `Chain`."""
        y = cast("Tensor", self.get_submodule(self._name)(x, carry))
        return x + y if self._residual else y


class Conv(nn.Module):
    """A convolution that ends with the step it is for; time must be a multiple of its stride."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, groups=groups)
        self._left = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, inputs, n · stride) → (batch, outputs, n)."""
        return cast("Tensor", self.conv(carry.join(x, self._left)))


class TransposedConv(nn.Module):
    """A transposed convolution without what reaches beyond the input's end."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)
        self._left, self._stride = (kernel - 1) // stride, stride

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, inputs, n) → (batch, outputs, n · stride)."""
        y = self.conv(carry.join(x, self._left))
        return cast("Tensor", y.narrow(-1, self._left * self._stride, x.shape[-1] * self._stride))


class Snake(nn.Module):
    """x + sin²(αx) / α (Ziyin et al., 2020), an α for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor, _: Carry) -> Tensor:
        """Elementwise."""
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


def residual_unit(channels: int, dilation: int) -> LayerGroup:
    """Snake, dilated convolution, snake, mixing of the channels, added to the input."""
    wide, mix = Conv(channels, channels, 7, dilation=dilation), Conv(channels, channels, 1)
    return LayerGroup("block", [Snake(channels), wide, Snake(channels), mix], residual=True)


class ConvNext(nn.Module):
    """A ConvNeXt block (Liu et al., 2022) over time."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = Conv(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Depthwise convolution and a pointwise MLP, scaled and added to the input."""
        y: Tensor = self.norm(self.dwconv(x, carry).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)


class Transformer(nn.Module):
    """A transformer over a window of time: a step sees itself and the ``window`` − 1 before it."""

    def __init__(self, width: int, layers: int, mlp: int, window: int, head_width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(width, mlp, window, head_width) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self._window, self._head_width = window, head_width

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, width, time) → the same shape."""
        steps, past = x.shape[-1], self._window - 1
        start = carry.positions(steps, x.device)[:, None]
        step, key = torch.arange(steps, device=x.device), torch.arange(past + steps, device=x.device)
        in_window = (key >= step[:, None]) & (key <= step[:, None] + past)
        mask = in_window & (start + key >= past)[:, None]  # keys before the stream's start are zeros, not keys
        turn = _turn(start + step, self._head_width)
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x, turn, mask[:, None], carry)
        y: Tensor = self.norm(x)
        return y.transpose(1, 2)


class _Layer(nn.Module):
    def __init__(self, width: int, mlp: int, window: int, head_width: int) -> None:
        super().__init__()
        linear = {"wqkv": nn.Linear(width, 3 * width, bias=False), "wo": nn.Linear(width, width, bias=False)}
        self.attention = nn.ModuleDict(linear)
        self.feed_forward = nn.ModuleDict({
            "w1": nn.Linear(width, mlp, bias=False),
            "w2": nn.Linear(mlp, width, bias=False),
            "w3": nn.Linear(width, mlp, bias=False),
        })  # fmt: skip
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.ffn_norm = nn.RMSNorm(width, eps=1e-5)
        self.attention_layer_scale = _Gamma(width)
        self.ffn_layer_scale = _Gamma(width)
        self._past, self._head_width = window - 1, head_width

    def forward(self, x: Tensor, turn: Tensor, mask: Tensor, carry: Carry) -> Tensor:
        """(batch, time, width) → the same shape."""
        qkv = self.attention["wqkv"](self.attention_norm(x)).unflatten(-1, (3, -1, self._head_width))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, head width)
        q, k = _rotated(q, turn), carry.join(_rotated(k, turn), self._past, dim=2)
        y = F.scaled_dot_product_attention(q, k, carry.join(v, self._past, dim=2), attn_mask=mask)
        x = x + self.attention_layer_scale.gamma * self.attention["wo"](y.transpose(1, 2).flatten(2))
        y, mlp = self.ffn_norm(x), self.feed_forward
        out: Tensor = x + self.ffn_layer_scale.gamma * mlp["w2"](F.silu(mlp["w1"](y)) * mlp["w3"](y))
        return out


class _Gamma(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))


def _turn(positions: Tensor, head_width: int) -> Tensor:
    """(batch, time) → (2, batch, 1, time, head width / 2) cosines and sines, rounded to bfloat16 as in training."""
    powers = torch.arange(0, head_width, 2, device=positions.device).float() / head_width
    angles = positions[..., None].float() * (1.0 / _ROTARY_BASE**powers)
    return torch.stack([angles.cos(), angles.sin()]).bfloat16().float()[:, :, None]


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)  # adjacent pairs
    cos, sin = turn
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x.dtype)
