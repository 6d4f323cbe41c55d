"""A frame, or a piece of the codec, as few launches: compiled by torch's Inductor, captured as a graph on a CUDA device.

Compiled code is kept in VOICELAB_HOME, where other processes find it. The function as it stands has the same numbers but for
rounding, and runs where there is no compiler, unless compiling was asked for.
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

_Made = TypeVar("_Made", Tensor, tuple[Tensor, ...])
_LOG = logging.getLogger("voicelab.engine")
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"combo_kernels": True}
"""What does not depend on each other becomes one kernel, too."""
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_CAPTURING = threading.Lock()
"""One capture at a time in a process: torch keeps what is being captured in one place for all threads."""


def compile_frame(frame: Callable[..., _Made], *, must: bool, **options: bool) -> Callable[..., _Made]:
    """A method of tensors, compiled at its first call for one row, and at its first call for more.

    Args:
        frame: its tensors are (rows, …), but for the last, (some for each row, …, length). Code for more than one row is the
            same for any number of them, and all code for any length: few compilations, of a minute or more.
        must: whether a compiler that is missing, or fails, is an EngineUnavailable; if not, the frame runs as it stands.
        options: of Inductor, beside `OPTIONS`.
    """
    os.environ.setdefault(_FOLDER, str(_folder()))  # before torch puts its own default there
    from torch import _dynamo as dynamo  # takes seconds: only those who compile shall wait

    method = MethodType(_apart(frame.__func__), frame.__self__) if isinstance(frame, MethodType) else frame
    fused: Callable[..., _Made] = torch.compile(method, fullgraph=True, options=OPTIONS | options)
    sizes, failed = set[bool](), False

    def run(*tensors: Tensor) -> _Made:
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
            try:
                after = fused(*tensors)
            except dynamo.exc.BackendCompilerFailed as error:
                # A process that was killed, or had a full disk, leaves half a library, which torch does not make anew.
                # Somebody else's folder is left alone.
                broken = isinstance(error.inner_exception, ImportError | OSError)
                if not broken or Path(os.environ[_FOLDER]) != _folder():
                    raise
                shutil.rmtree(_folder(), ignore_errors=True)
                after = fused(*tensors)
        except dynamo.exc.TorchDynamoException as error:
            why = " ".join(str(error).split("Set TORCHDYNAMO")[0].split()[-40:])  # the fault comes last
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


def was_compiled(device: torch.device) -> bool:
    """Whether code for a CUDA device may be kept: making it takes minutes, for which only those wait who ask."""
    return device.type == "cuda" and _folder().exists()


def _folder() -> Path:
    return data_home() / "compiled"


def _apart(function: Any) -> FunctionType:
    """The same with code of its own: torch counts compilations by that, and stops after some."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


class FrameGraphs:
    """Graphs of a function that reads and writes memory which stays where it is; one graph for each of its arguments.

    Args:
        device: a CUDA device.
        frame: takes whole numbers, on which the shapes depend, and may be run as often as one likes with the same effect. It
            must not read from the device, nor write to it from the host.
    """

    def __init__(self, device: torch.device, frame: Callable[..., None]) -> None:
        self._device, self._frame = device, frame
        self._graphs: dict[tuple[int, ...], torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()  # they share their memory: one runs at a time

    def run(self, *sizes: int) -> None:
        """Runs the function; its graph is captured if `prepare` did not."""
        self.prepare(*sizes)
        with torch.cuda.device(self._device):  # on its stream, whichever device the thread has by default
            self._graphs[sizes].replay()

    def prepare(self, *sizes: int) -> None:
        """Captures the graph of these arguments, which runs the function a few times."""
        if sizes not in self._graphs:
            with _CAPTURING, torch.cuda.device(self._device):
                self._graphs[sizes] = self._capture(sizes)

    def _capture(self, sizes: tuple[int, ...]) -> torch.cuda.CUDAGraph:
        """Runs the function until the libraries have what they need; then captures it."""
        side, now = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        side.wait_stream(now)
        with torch.cuda.stream(side):
            for _ in range(2):
                self._frame(*sizes)
        now.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # The codec's thread goes on meanwhile, and what it allocates is none of the graph's affair.
        # On a stream of this device: torch's own is one for the process, of the device that was the first to capture.
        with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
            self._frame(*sizes)
        return graph


def power_of_two(number: int) -> int:
    """The smallest that is no smaller than a number from 1 on: few sizes, few graphs."""
    return 1 << (number - 1).bit_length()
