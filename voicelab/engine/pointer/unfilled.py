"""Construct modules whose weights a checkpoint will fill, without drawing any from torch's generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_FILLING: Final = frozenset({Tensor.normal_, Tensor.uniform_})


class Unfilled(TorchFunctionMode):
    """``with Unfilled(): module = nn.Linear(…)`` leaves weights as the memory has them, and random states as they are.

    torch's generator is the whole process's: what a user draws after ``torch.manual_seed`` must not depend on a checkpoint
    that was opened in between. Numbers drawn from a generator of one's own, which are constants, are drawn.
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
