"""torch modules with the weights of a checkpoint, constructed without drawing from torch's generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from voicelab.engine.pointer.arrays import Floats

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


def filled(module: _Module, tensors: Mapping[str, Floats], prefix: str) -> _Module:
    """Fill a module with the tensors whose names begin with a prefix, for inference."""
    module.load_state_dict(
        {name[len(prefix) :]: torch.from_numpy(value) for name, value in tensors.items() if name.startswith(prefix)}
    )
    return module.eval().requires_grad_(False)
