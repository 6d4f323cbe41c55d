"""Fusion of a model step into few kernel launches: compiled by torch's Inductor, captured as a CUDA graph.

Compiled code is cached in VOICELAB_HOME for all processes. The uncompiled function gives equal results up to rounding and is
the fallback without a compiler, unless compilation is required.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor

from voicelab.errors import EngineUnavailable
from voicelab.storage import data_home

_Output = TypeVar("_Output", Tensor, tuple[Tensor, ...])
_LOG = logging.getLogger("voicelab.engine")
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"combo_kernels": True}
"""Options of Inductor: independent operations are fused into one kernel, too."""
_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_CAPTURING = threading.Lock()
"""Serializes captures in a process: torch's capture state is global to all threads."""


def compile_frame(frame: Callable[..., _Output], *, required: bool, **options: bool) -> Callable[..., _Output]:
    """Compile a function of tensors at its first call with one row, and again at its first call with several.

    Args:
        frame: takes tensors (rows, …), and last (any, …, length). Code compiled for several rows serves any number of
            rows, and all compiled code serves any length: compilations, of a minute or more each, are few.
        required: whether a missing or failing compiler raises EngineUnavailable; otherwise the frame runs uncompiled.
        options: options of Inductor besides `OPTIONS`.
    """
    os.environ.setdefault(_CACHE_VARIABLE, str(_cache_folder()))  # before torch sets its default
    from torch import _dynamo as dynamo  # takes seconds, so only if compiling

    method = MethodType(_with_copied_code(frame.__func__), frame.__self__) if isinstance(frame, MethodType) else frame
    fused: Callable[..., _Output] = torch.compile(method, fullgraph=True, options=OPTIONS | options)
    sizes, failed = set[bool](), False

    def run(*tensors: Tensor) -> _Output:
        nonlocal failed
        batched = len(tensors[0]) > 1
        if failed:
            return frame(*tensors)
        for tensor in tensors if batched else ():
            dynamo.maybe_mark_dynamic(tensor, 0)
        dynamo.maybe_mark_dynamic(tensors[-1], tensors[-1].ndim - 1)
        if batched in sizes:
            return fused(*tensors)
        began = time.perf_counter()
        _LOG.info("compiling a frame of %s into %s", "rows" if batched else "one row", os.environ[_CACHE_VARIABLE])
        try:
            try:
                output = fused(*tensors)
            except dynamo.exc.BackendCompilerFailed as error:
                # A killed process or a full disk leaves an incomplete library, which torch does not rebuild. A folder that
                # the user configured is left alone.
                broken = isinstance(error.inner_exception, ImportError | OSError)
                if not broken or Path(os.environ[_CACHE_VARIABLE]) != _cache_folder():
                    raise
                shutil.rmtree(_cache_folder(), ignore_errors=True)
                output = fused(*tensors)
        except dynamo.exc.TorchDynamoException as error:
            message = " ".join(str(error).split("Set TORCHDYNAMO")[0].split()[-40:])  # the cause is at the end
            reason = f"frames cannot be compiled; torch needs g++ on a CPU, triton on CUDA: {message}"
            if required:
                raise EngineUnavailable(reason) from error
            failed = True
            _LOG.warning("%s; they run uncompiled, slower", reason)
            return frame(*tensors)
        _LOG.info("compiled in %.0f s", time.perf_counter() - began)
        sizes.add(batched)
        return output

    return run


def was_compiled(device: torch.device) -> bool:
    """Whether compiled code for a CUDA device may be cached; compiling takes minutes, so it is only done on request."""
    return device.type == "cuda" and _cache_folder().exists()


def _cache_folder() -> Path:
    return data_home() / "compiled"


def _with_copied_code(function: Any) -> FunctionType:
    """Copy a function with a separate code object: torch limits the compilations per code object."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


class FrameGraphs:
    """CUDA graphs of a function that reads and writes memory at fixed addresses; one graph per argument tuple.

    Args:
        device: a CUDA device.
        frame: takes sizes as integers and must be idempotent. It must not copy between the device and the host.
    """

    def __init__(self, device: torch.device, frame: Callable[..., None]) -> None:
        self._device, self._frame = device, frame
        self._graphs: dict[tuple[int, ...], torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()  # shared memory: graphs do not run concurrently

    def run(self, *sizes: int) -> None:
        """Run the function; its graph is captured first if `prepare` was not called."""
        self.prepare(*sizes)
        with torch.cuda.device(self._device):  # on its stream, whichever device the thread has by default
            self._graphs[sizes].replay()

    def prepare(self, *sizes: int) -> None:
        """Capture the graph for these arguments; this runs the function a few times."""
        if sizes not in self._graphs:
            with _CAPTURING, torch.cuda.device(self._device):
                self._graphs[sizes] = self._capture(sizes)

    def _capture(self, sizes: tuple[int, ...]) -> torch.cuda.CUDAGraph:
        """Warm up the function, so that libraries are initialized; then capture it."""
        side, current = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(2):
                self._frame(*sizes)
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # thread_local: the codec's thread keeps running, and its allocations must not end the capture.
        # On a stream of this device: torch's default is one stream per process, on the first device to capture.
        with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
            self._frame(*sizes)
        return graph


def power_of_two(number: int) -> int:
    """Round a positive number up to a power of two, so that few sizes, and few graphs, are needed."""
    return 1 << (number - 1).bit_length()
