"""Execute notebooks in fresh kernels, without network, API key or personal settings."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty
from threading import Event, Lock, Thread
from typing import Any, Final

from voicelab.checks.lint import SKIP, Finding, code_cells, has_tag
from voicelab.errors import MissingExtra

# Linux records the peak of the main process; the memory of its children is sampled.
_INTERVAL_S: Final = 0.1


class MemoryPeak:
    """Monitor of the peak memory of a process and its descendants, in bytes.

    If the process has children, memory is the sum of proportional set sizes (PSS, where available), so that shared
    libraries count once. Otherwise it is the resident set size.
    """

    def __init__(self, pid: int) -> None:
        import psutil

        self._main = psutil.Process(pid)
        self._peak = 0
        self._stopped = Event()
        # Take a sample now, because a notebook may end within the first interval.
        self._sample()
        self._thread = Thread(target=self._monitor, name="voicelab-memory", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop monitoring and return the peak. The process may have ended."""
        self._stopped.set()
        self._thread.join()
        self._sample()
        return self._peak

    def _monitor(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        import psutil

        try:
            children = self._main.children(recursive=True)
            memory = sum(map(_pss, (self._main, *children))) if children else self._main.memory_info().rss
            self._peak = max(self._peak, memory, _high_water(self._main))
        except (psutil.Error, OSError):
            return  # the process, or a child, ended during sampling


def _pss(process: Any) -> int:
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.rss))


def _high_water(process: Any) -> int:
    """Return the peak resident set size that Linux recorded for a process, in bytes; 0 on other systems."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:  # noqa: PTH123 - not a file of voicelab
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


_GUARD: Final = Path(__file__).with_name("guard")
# The result must not depend on the user's service.
_UNSET_VARIABLES: Final = ("VOICELAB_API_KEY", "VOICELAB_BASE_URL")
# A proxy setting with a closed port blocks programs other than Python; guard/sitecustomize.py uses the same port.
_CLOSED_PROXY: Final = "http://127.0.0.1:9"
_PROXIES: Final = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_ANSI_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK_LINES: Final = 15
_CELL_LINE: Final = re.compile(r"Cell In\[\d+\], line (\d+)")


@dataclass(frozen=True, slots=True)
class Execution:
    """An executed notebook, its failures, duration in s and peak memory in bytes.

    ``end`` is the number of the cell at which execution stopped early (0: no cell was executed), or None.
    ``memory`` is None if no kernel started.
    """

    notebook: Any
    failures: tuple[Finding, ...]
    end: int | None
    seconds: float
    memory: int | None


def execute(
    path: Path,
    notebook: Any,
    *,
    timeout: float,
    recordings_only: bool = False,
    kernel: str | None = None,
    keep_going: bool = False,
) -> Execution:
    """Execute a copy of a notebook in the folder of ``path``, with temporary data folder and settings.

    ``timeout`` is in seconds per cell. With ``recordings_only`` the embedded voice is blocked like the network. ``kernel`` is
    the name of a kernel other than the notebook's; with ``keep_going`` cells after a failed one are executed too.
    Raises MissingExtra if the notebook extra is not installed, KeyboardInterrupt after ``interrupt``.
    """
    with MissingExtra.where("notebook", "checking notebooks"):
        from nbclient import NotebookClient
    copy = _without_outputs(notebook)
    client = NotebookClient(
        copy,
        timeout=max(1, round(timeout)),
        iopub_timeout=max(1, round(timeout)),  # by default outputs that arrive 4 s after the end of a cell are lost
        resources={"metadata": {"path": str(path.resolve().parent)}},
        record_timing=False,
        # If this is False, nbclient fails on an Output widget that prints.
        store_widget_state=True,
        coalesce_streams=True,
        allow_errors=keep_going,
        **({"kernel_name": kernel} if kernel else {}),
    )
    # Nothing is logged, because the errors are reported as findings.
    client.log.setLevel("CRITICAL")
    cell_number: list[int] = [0]
    monitors: list[MemoryPeak] = []
    client.on_cell_start = lambda cell, cell_index: cell_number.__setitem__(0, cell_index + 1)  # noqa: ARG005 - nbclient's names

    def start_monitor(notebook: Any) -> None:  # noqa: ARG001 - nbclient's name
        monitors.append(MemoryPeak(client.km.provisioner.pid))
        client.kc.shell_channel.get_msg = partial(_poll_message, client.kc.shell_channel.get_msg)

    client.on_notebook_start = start_monitor
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="voicelab-check-", ignore_cleanup_errors=True) as folder:
        failure = _run(client, path, Path(folder), cell_number, timeout, _environment(Path(folder), recordings_only))
    peak = max((monitor.stop() for monitor in monitors), default=None)
    errors = (error for error in _errors(path, copy) if failure is None or error.cell != failure.cell)
    failures = [*errors, *([failure] if failure else [])]
    end = None if not failures or (keep_going and failure is None) else cell_number[0]
    return Execution(copy, tuple(failures), end, time.monotonic() - start, peak)


def _errors(path: Path, notebook: Any) -> Iterator[Finding]:
    """Yield the errors of executed cells that are not expected to fail."""
    for number, cell in code_cells(notebook):
        error = next((output for output in cell.outputs if output.output_type == "error"), None)
        if error is None or has_tag(cell, "raises-exception", *SKIP):
            continue
        message = " ".join(_ANSI_COLORS.sub("", f"{error.ename}: {error.evalue}").split())
        lines = _ANSI_COLORS.sub("", "\n".join(error.traceback)).splitlines()
        # The first frame of a traceback is the cell's own.
        place = next((match for line in lines if (match := _CELL_LINE.search(line))), None)
        where = f" in line {place[1]}" if place else ""
        detail, source_line = "\n".join(lines[-_TRACEBACK_LINES:]), int(place[1]) if place else None
        yield Finding(path, number, "error", f"the cell failed{where}: {message}", detail, source_line=source_line)


async def _poll_message(get: Callable[[float], Awaitable[Any]], timeout: float) -> Any:  # noqa: ASYNC109 - nbclient's name
    """Get a message, polling every second, because nbclient's messages for Output widgets can clear the ready event."""
    for _ in range(int(timeout)):
        with suppress(Empty):
            return await get(1)
    return await get(timeout % 1)


def _without_outputs(notebook: Any) -> Any:
    """Copy a notebook without outputs, except those of skipped cells; translate nbval's tags to nbclient's."""
    copy = deepcopy(notebook)
    for cell in copy.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = cell.outputs if has_tag(cell, *SKIP) else [], None
    for _, cell in code_cells(copy):
        tags = {"nbval-raises-exception": "raises-exception"} | dict.fromkeys(SKIP, "skip-execution")
        if additions := [tag for nbval_tag, tag in tags.items() if has_tag(cell, nbval_tag)]:
            cell.metadata["tags"] = [*cell.metadata.get("tags", ()), *additions]
    return copy


def _run(
    client: Any, path: Path, folder: Path, cell_number: list[int], timeout: float, environment: dict[str, str]
) -> Finding | None:
    """Execute the client's notebook; return the failure that stopped it. ``cell_number`` is set to the running cell."""
    from jupyter_client.kernelspec import NoSuchKernel, find_kernel_specs
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        manager = client.create_kernel_manager()
        if os.name == "posix":
            # Use Unix sockets, because other users of the machine could connect to TCP ports.
            manager.transport, manager.connection_file = "ipc", str(folder / "kernel.json")
        # client.execute() would leave its event loop open.
        asyncio.run(_interruptible(client, environment))
    except NoSuchKernel as error:
        kernels = ", ".join(sorted(find_kernel_specs()))
        message = (
            f"kernel {error.name!r} is not installed; install it, or pass another with --kernel (installed: {kernels})"
        )
        return Finding(path, None, "kernel", message)
    except CellTimeoutError:
        return Finding(path, cell_number[0], "timeout", f"the cell exceeded the time limit of {timeout:g} s")
    except CellExecutionError:
        return None  # the error is among the outputs
    except DeadKernelError:
        return Finding(path, cell_number[0] or None, "error", "the kernel died in this cell (out of memory?)")
    except RuntimeError as error:
        # Raised by Jupyter if a kernel ends during startup.
        return Finding(path, None, "kernel", f"the kernel did not start: {error}")
    return None


_lock = Lock()
_CANCEL_S: Final = 0.2
_running: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()


def interrupt() -> None:
    """Kill the kernels of all executions, in any thread."""
    with _lock:
        for loop, stopped in _running:
            loop.call_soon_threadsafe(stopped.set)


async def _interruptible(client: Any, environment: dict[str, str]) -> None:
    """Execute a client's notebook until ``interrupt`` is called."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    # When a kernel is killed, Jupyter's tasks that read from its sockets end with a meaningless error.
    loop.set_exception_handler(lambda _loop, _context: None)
    with _lock:
        _running.add((loop, stopped))
    execution, waiting = (
        asyncio.ensure_future(each) for each in (client.async_execute(env=environment), stopped.wait())
    )
    try:
        await asyncio.wait((execution, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not stopped.is_set():
            await execution
            return
        client.shutdown_kernel = "immediate"
        while not execution.done():  # Jupyter catches the first cancellation in some places
            execution.cancel()
            await asyncio.wait((execution,), timeout=_CANCEL_S)
        raise KeyboardInterrupt
    finally:
        waiting.cancel()
        with _lock:
            _running.discard((loop, stopped))


def _environment(folder: Path, recordings_only: bool) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET_VARIABLES}
    # The order of floating-point sums depends on the number of threads.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment |= {case(name): _CLOSED_PROXY for name in _PROXIES for case in (str.lower, str.upper)}
    environment |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return environment | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_GUARD), environment.get("PYTHONPATH")))),
        "VOICELAB_HOME": str(folder / "home"),
        # The user's IPython startup files must not be run.
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        # This variable is read by guard/sitecustomize.py.
        "NOTEBOOK_RECORDINGS_ONLY": "1" if recordings_only else "",
    }
