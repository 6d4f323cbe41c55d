"""A frame on a CUDA device as a graph: what it launches is recorded once and started at once ever after."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

_CAPTURING = threading.Lock()
"""One capture at a time in a process: torch keeps what is being captured in one place for all threads."""


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
