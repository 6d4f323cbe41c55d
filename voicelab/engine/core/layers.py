"""Streaming torch layers, the state of streams between blocks, and modules without random initial weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

State = tuple[Tensor, ...]
"""State of a stream, or of a batch of streams, between blocks: one tensor per layer that has left context, in layer order."""


class Carry:
    """State of a batch of streams: each layer reads its left context, and appends its left context for the next block."""

    def __init__(self, pasts: Sequence[State | None]) -> None:
        """Start from the state of each stream after its previous block, or from one state of all streams.

        None represents the state of a stream without a previous block.
        """
        self._pasts = pasts
        self.after: list[Tensor] = []
        """State of all streams after this block."""

    def join(self, x: Tensor, context: int, dim: int = -1) -> Tensor:
        """Prepend the `context` preceding steps to a block (zeros at the start of a stream). Time is axis `dim`."""
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
        """Return the number of steps before this block of `steps`: (batch,), or (1,) if all streams share one state."""
        before = self.past(lambda: torch.zeros(1, dtype=torch.int64, device=device))
        self.after.append(before + steps)
        return before

    def states(self) -> list[State]:
        """Return each stream's state after this block."""
        # Views: the streams of a batch share memory until their next block.
        return list(zip(*(after.split(1) for after in self.after), strict=True))

    def past(self, start: Callable[[], Tensor]) -> Tensor:
        """Return the state that this layer saved for the previous block, or `start()` for the first block of a stream.

        The layer must then append its state after this block to `after`.
        """
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
    """Layers under one name in the checkpoint; with ``residual``, the input of the group is added to its output."""

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


_Module = TypeVar("_Module", bound=nn.Module)
_FILLING: Final = frozenset({Tensor.normal_, Tensor.uniform_})


class Unfilled(TorchFunctionMode):
    """Context in which modules are constructed with uninitialized weights: ``with Unfilled(): module = nn.Linear(…)``.

    torch's generator is process-wide: numbers that a user draws after ``torch.manual_seed`` must not depend on loading a
    checkpoint in between. Draws from an explicit generator, which initialize constants, are unaffected.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        _types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        if func is torch.randn and "generator" not in options:
            return torch.empty(*args, **options)
        if func in _FILLING or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else options["tensor"]
        return func(*args, **options)


def filled(module: _Module, tensors: Mapping[str, NDArray[np.float32]], prefix: str) -> _Module:
    """Fill a module with the tensors whose names begin with a prefix, for inference."""
    module.load_state_dict(
        {name[len(prefix) :]: torch.from_numpy(value) for name, value in tensors.items() if name.startswith(prefix)}
    )
    return module.eval().requires_grad_(False)
