"""Fusion of a model step into few kernel launches: torch's Inductor compiles its parts, and a CUDA graph runs them all.

Compiled code is stored in VOICELAB_HOME for all processes. The uncompiled function gives equal results up to rounding and is
the fallback without a compiler, unless compilation is required.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor

from voicelab.engine.core.scheduler import out_of_memory
from voicelab.errors import EngineUnavailable
from voicelab.storage import data_home

_Output = TypeVar("_Output", Tensor, tuple[Tensor, ...])
_LOG = logging.getLogger("voicelab.engine")
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"combo_kernels": True}
"""Options of Inductor: independent operations are fused into one kernel as well."""
_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_ENGINE = "voicelab.engine."
_NO_LENGTHS: Mapping[int, int] = MappingProxyType({})
_CAPTURING = threading.Lock()
"""Serializes captures in a process: torch's capture state is global to all threads."""


class Regions:
    """Functions of a model, each compiled twice: at its first call for one row, and at its first call for several.

    Weights are inputs of the compiled code, so that all layers of equal shape share the code. Compiling a function then
    takes seconds instead of minutes.

    Args:
        required: whether a missing or failing compiler raises EngineUnavailable; otherwise functions run uncompiled.
        options: options of Inductor in addition to `OPTIONS`.
    """

    def __init__(self, *, required: bool, **options: bool) -> None:
        from torch import _dynamo  # noqa: F401 - takes seconds: only if compiling, and before the first step

        # The import, which operations on meta tensors cause too, sets the variable to torch's default.
        configured, default = os.environ.get(_CACHE_VARIABLE), str(Path(tempfile.gettempdir()) / "torchinductor_")
        if configured is None or configured.startswith(default):
            os.environ[_CACHE_VARIABLE] = str(_cache_folder())
        self._required, self._options, self._failed = required, OPTIONS | options, False

    @contextmanager
    def progress(self, step: str) -> Iterator[None]:
        """Log the duration of a compilation, which is short if its code is in the cache."""
        start_s = time.perf_counter()
        _LOG.warning("compiling %s; compiled code is cached in %s", step, os.environ[_CACHE_VARIABLE])
        yield
        if not self._failed:
            _LOG.warning("compiled %s in %.0f s", step, time.perf_counter() - start_s)

    def compiled(
        self, function: Callable[..., _Output], lengths: Mapping[int, int] = _NO_LENGTHS
    ) -> Callable[..., _Output]:
        """Return a compiled function; the code for several rows is used for any number of rows above one.

        Args:
            function: function of tensors (rows, …), None, or other objects that hold weights.
            lengths: axis of variable length by index of the argument; the same axes must be variable at every call.
        """
        fused: dict[tuple[bool, ...], Callable[..., _Output]] = {}

        def run(*args: Any) -> _Output:
            if self._failed:
                return function(*args)
            kind = tuple(each is None or (isinstance(each, Tensor) and len(each) > 1) for each in args)
            if kind in fused:
                return fused[kind](*args)
            fused[kind] = self._stored(function, args, lengths)
            return self._first(fused[kind], function, args)

        return run

    def _stored(
        self, function: Callable[..., _Output], args: tuple[Any, ...], lengths: Mapping[int, int]
    ) -> Callable[..., _Output]:
        """Load the stored code of an engine function for arguments of these types, or compile and store it.

        If the arguments do not match the guards of the stored code, or if storing fails, torch compiles the function.
        """
        compiled: Any = torch.compile(_with_copied_code(function), fullgraph=True, options=self._options)

        def traced(*args: Any) -> _Output:
            mark_dynamic(args, lengths)
            output: _Output = compiled(*args)
            return output

        if not (function.__module__.startswith(_ENGINE) and hasattr(compiled, "aot_compile")):  # since torch 2.12
            return traced
        owner = (function.__self__,) if isinstance(function, MethodType) else ()
        path = Path(os.environ[_CACHE_VARIABLE]) / "functions" / _file_name(function, args, self._options)
        try:
            code: Any = _loaded(path, function) if path.exists() else None
            if code is None or not code.guard_check(*owner, *args):
                path.parent.mkdir(parents=True, exist_ok=True)
                mark_dynamic(args, lengths)
                code = compiled.aot_compile((args, {}))
                code.save_compiled_function(str(path))
        except Exception as error:  # noqa: BLE001 - torch then traces the function, and raises its own errors
            _LOG.debug("%s is not stored: %s", function.__qualname__, error)
            return traced
        return lambda *args: code.fn(*owner, *args) if code.guard_check(*owner, *args) else traced(*args)

    def _first(self, fused: Callable[..., _Output], function: Callable[..., _Output], args: tuple[Any, ...]) -> _Output:
        """Call a compiled function for the first time; if it cannot be compiled, call the original function."""
        from torch import _dynamo as dynamo

        try:
            try:
                return fused(*args)
            except dynamo.exc.BackendCompilerFailed as error:
                # A killed process or a full disk leaves an incomplete library, which torch does not rebuild. A folder that
                # the user configured is left alone.
                broken = isinstance(error.inner_exception, ImportError | OSError)
                if not broken or Path(os.environ[_CACHE_VARIABLE]) != _cache_folder():
                    raise
                shutil.rmtree(_cache_folder(), ignore_errors=True)
                return fused(*args)
        except Exception as error:
            if not isinstance(error, dynamo.exc.TorchDynamoException) and out_of_memory(error):
                raise
            message = " ".join(str(error).split("Set TORCHDYNAMO")[0].split()[-40:])  # the cause is at the end
            reason = (
                f"frames cannot be compiled; torch needs g++, and on CUDA triton, a C compiler and Python.h: {message}"
            )
            if self._required:
                raise EngineUnavailable(f"{reason}; compile=False runs them uncompiled") from error
            self._failed = True
            _LOG.warning("%s; they run uncompiled, which is slower", reason)
            return function(*args)


def mark_dynamic(args: tuple[Any, ...], lengths: Mapping[int, int]) -> None:
    """Mark the axes of variable size for the compiler: several rows, and the axes in `lengths` (see `Regions.compiled`)."""
    from torch import _dynamo as dynamo

    for index, tensor in enumerate(args):
        if isinstance(tensor, Tensor):
            if len(tensor) > 1:
                dynamo.maybe_mark_dynamic(tensor, 0)
            if index in lengths:
                dynamo.maybe_mark_dynamic(tensor, lengths[index] % tensor.ndim)


def has_compiler(device: torch.device) -> bool:
    """Return whether frames are compiled by default: on CUDA devices, if triton is installed."""
    spec = importlib.util.find_spec("triton")
    return device.type == "cuda" and spec is not None and spec.origin is not None  # not a folder that has the name


def _cache_folder() -> Path:
    return data_home() / "compiled"


def _loaded(path: Path, function: Callable[..., Any]) -> Any:
    """Load stored code; return None if the file is damaged, or is for another GPU or library version."""
    try:
        with path.open("rb") as file:
            return torch.compiler.load_compiled_function(file, f_globals=function.__globals__)
    except Exception as error:  # noqa: BLE001 - whatever is in the file
        _LOG.warning("%s is compiled again, because stored code cannot be used: %s", function.__qualname__, error)
        return None


def _file_name(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    """Compute a file name from the engine's source, versions, processor, and the types and sizes of the arguments.

    The file name contains sizes, so that the code for models of different sizes is in different files.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(source.read_bytes())
    processor = torch.backends.cpu.get_cpu_capability()
    described = [_described(arg) for arg in args]
    digest.update(repr((torch.__version__, sys.version, processor, options, described)).encode())
    return f"{function.__qualname__}-{digest.hexdigest()[:32]}"


def _described(value: Any) -> Any:
    """Describe a tensor by type, device, last axis and whether it has several rows; other arguments by their attributes."""
    if isinstance(value, Tensor):
        return value.dtype, value.device, len(value) > 1, value.shape[-1]
    return type(value), [_described(item) for item in vars(value).values()] if hasattr(value, "__dict__") else value


def _with_copied_code(function: Callable[..., _Output]) -> Callable[..., _Output]:
    """Copy a function or method with a separate code object, because torch limits the compilations per code object."""
    plain: Any = function.__func__ if isinstance(function, MethodType) else function
    code = plain.__code__.replace()
    copied = FunctionType(code, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
    return MethodType(copied, function.__self__) if isinstance(function, MethodType) else copied


class FrameGraphs:
    """CUDA graphs of a function that reads and writes memory at fixed addresses; one graph per tuple of arguments.

    Args:
        device: a CUDA device.
        frame: function of integer sizes. It must be idempotent and must not copy between the device and the host.
    """

    def __init__(self, device: torch.device, frame: Callable[..., None]) -> None:
        self._device, self._frame = device, frame
        self._graphs: dict[tuple[int, ...], torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()  # shared memory: graphs do not run concurrently

    def run(self, *sizes: int) -> None:
        """Run the function; its graph is captured first if `prepare` was not called."""
        self.prepare(*sizes)
        with torch.cuda.device(self._device):  # on its stream, whatever the thread's default device is
            self._graphs[sizes].replay()

    def prepare(self, *sizes: int) -> None:
        """Capture the graph for these arguments; this runs the function a few times."""
        if sizes not in self._graphs:
            with _CAPTURING, torch.cuda.device(self._device):
                self._graphs[sizes] = self._capture(sizes)

    def _capture(self, sizes: tuple[int, ...]) -> torch.cuda.CUDAGraph:
        """Run the function a few times, so that libraries are initialized, and capture its graph."""
        side, current = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(2):
                self._frame(*sizes)
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # thread_local, because the codec's thread keeps running and its allocations must not end the capture.
        # On a stream of this device, because torch's default is one stream per process, on the device that captured first.
        with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
            self._frame(*sizes)
        return graph


def power_of_two(number: int) -> int:
    """Round a positive number up to a power of two, so that few sizes, and therefore few graphs, are needed."""
    return 1 << (number - 1).bit_length()
