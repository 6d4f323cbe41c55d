"""A frame compiled by torch's own compiler, Inductor: the library fuses what surrounds the products of matrices.

Compiled code is kept in VOICELAB_HOME, where other processes find it. The function as it stands has the same numbers but for
rounding, and runs where there is no compiler, unless compiling was asked for.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from voicelab.errors import EngineUnavailable
from voicelab.storage import data_home

_LOG = logging.getLogger("voicelab.engine")
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"combo_kernels": True}
"""What does not depend on each other becomes one kernel, too."""
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"


def compile_frame(frame: Callable[..., Tensor], *, must: bool) -> Callable[..., Tensor]:
    """A method of tensors, compiled at its first call for one row, and at its first call for more.

    Args:
        frame: its tensors are (rows, …), but for the last, (some for each row, …, length). Code for more than one row is the
            same for any number of them, and all code for any length: few compilations, of a minute or more.
        must: whether a compiler that is missing, or fails, is an EngineUnavailable; if not, the frame runs as it stands.
    """
    os.environ.setdefault(_FOLDER, str(data_home() / "compiled"))  # before torch puts its own default there
    from torch import _dynamo as dynamo  # takes seconds: only those who compile shall wait

    method = MethodType(_apart(frame.__func__), frame.__self__) if isinstance(frame, MethodType) else frame
    fused: Callable[..., Tensor] = torch.compile(method, fullgraph=True, options=OPTIONS)
    sizes, failed = set[bool](), False

    def run(*tensors: Tensor) -> Tensor:
        nonlocal failed
        many = len(tensors[0]) > 1
        if failed:
            return frame(*tensors)
        for tensor in tensors if many else ():
            dynamo.maybe_mark_dynamic(tensor, 0)
        dynamo.maybe_mark_dynamic(tensors[-1], tensors[-1].ndim - 1)
        if many in sizes:
            return fused(*tensors)
        began = time.perf_counter()
        _LOG.info("compiling a frame of %s, which is kept in %s", "rows" if many else "one row", os.environ[_FOLDER])
        try:
            after = fused(*tensors)
        except dynamo.exc.TorchDynamoException as error:
            why = " ".join(str(error).split()[:40])
            reason = f"frames cannot be compiled; torch needs g++ on a CPU, triton on CUDA: {why}"
            if must:
                raise EngineUnavailable(reason) from error
            failed = True
            _LOG.warning("%s; they run as they stand, slower", reason)
            return frame(*tensors)
        _LOG.info("compiled in %.0f s", time.perf_counter() - began)
        sizes.add(many)
        return after

    return run


def _apart(function: Any) -> FunctionType:
    """The same with code of its own: torch counts compilations by that, and stops after some."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
