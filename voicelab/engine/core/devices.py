"""Devices of the engine, by name. torch is imported only where it is needed: for CUDA, and for open weights."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from typing import Any

from voicelab.errors import EngineError, MissingExtra

_CUDA_DRIVER = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"


def choose_device(name: str | None) -> str:
    """Check and return the name of a device; without a name, return CUDA if it is available, else the CPU.

    Raises:
        MissingExtra: the device is not the CPU, and torch is not installed.
        EngineError: the device cannot be used.
    """
    if name is None:
        return "cuda" if has_cuda() else "cpu"
    if name != "cpu":
        with MissingExtra.where("gpu", f"the device {name!r}"):
            import torch
        try:
            torch.empty(1, device=torch.device(name))
        except (RuntimeError, AssertionError, AttributeError) as error:  # depends on the build of torch
            raise EngineError(f"the device {name!r} cannot be used: {error}") from error
    return name


@cache
def has_cuda() -> bool:
    """Return whether torch can use a CUDA device; imports torch only if the driver is installed."""
    try:
        ctypes.CDLL(_CUDA_DRIVER)
        import torch

        return torch.cuda.is_available()
    except (ImportError, OSError, AttributeError):  # no driver, or torch is missing or half installed
        return False


def describe_device(name: str) -> str:
    """Return a device's name, with the model name of a GPU."""
    if not name.startswith("cuda"):
        return name
    import torch

    return f"{name} {torch.cuda.get_device_name(name)}"


def loaded_torch() -> Any:
    """Return torch if this process has imported it, else None; in the latter case no torch threads exist."""
    module = sys.modules.get("torch")
    return module if hasattr(module, "set_num_threads") else None  # another thread may be importing it


def set_thread_count(number: int) -> None:
    """Set the number of torch's CPU threads for operations of the calling thread only.

    torch has a count for each thread, but new threads inherit the value that was set last. Therefore a helper thread sets
    the previous value again.
    """
    torch = loaded_torch()
    if torch is None:
        return
    thread_count = torch.get_num_threads()
    torch.set_num_threads(number)
    restorer = threading.Thread(target=torch.set_num_threads, args=(thread_count,))
    restorer.start()
    restorer.join()
