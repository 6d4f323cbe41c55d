"""Check notebooks by linting and executing them; update their outputs.

Notebooks are executed in a fresh kernel without network, API key or personal settings.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty
from threading import Event, Thread
from typing import Any, Final

from voicelab.checks.compare import FIGURES, Masks, OutputComparison, processor
from voicelab.checks.lint import SKIP, Finding, NotebookLimits, code_cells, has_tag, invisible, lint, source_digest
from voicelab.errors import MissingExtra
from voicelab.storage import write_atomic
from voicelab.takes.replay import Tolerance

_OTHER_PROCESSOR = "outputs are from processor {}, this is {}: numbers, pictures and audio are not compared"


@dataclass(frozen=True, slots=True)
class NotebookReport:
    """Result of a check: ``findings`` in the order of cells, and ``notes``, which do not count as failures.

    ``seconds`` and ``memory`` (peak of the kernel and its child processes, in bytes) have values after execution only.
    """

    notebook: Path
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    cells: int = 0
    seconds: float | None = None
    memory: int | None = None

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.notebook.stat().st_size


def check(
    path: str | Path,
    *,
    limits: NotebookLimits | None = None,
    masks: Iterable[Path] = (),
    run: bool = True,
    recordings_only: bool = False,
    tolerant: bool = False,
    pictures: bool = True,
    tolerance: Tolerance | None = None,
) -> NotebookReport:
    """Check a notebook without changing its file.

    If the outputs are from a different kind of processor (recorded in the metadata), numbers, pictures and audio are not
    compared, and a note is added: floating-point rounding differs there, and with it some takes.

    Args:
        path: executed notebook with outputs.
        limits: limits of sizes, memory and time; defaults if None.
        masks: additional mask files in nbval's format.
        run: execute the notebook offline and compare outputs; if False, only lint the file.
        recordings_only: refuse the embedded voice too.
        tolerant: report clip differences within ``tolerance`` as notes instead of findings.
        pictures: compare PNG and JPEG too, at low resolution.
        tolerance: tolerance of clip digests; that of a replay if None.

    Raises MissingExtra if the notebook extra is not installed, RequestInvalid for an invalid mask file, OSError for a
    file that cannot be read.
    """
    path, limits, mask_files = Path(path), limits or NotebookLimits(), tuple(masks)
    rules = Masks(mask_files)
    notebook = read(path)
    if isinstance(notebook, Finding):
        return NotebookReport(path, (notebook,))
    findings = list(lint(path, notebook, path.stat().st_size, limits))
    notes = [Finding(path, *problem) for problem in invisible(notebook)]
    cells = len(list(code_cells(notebook)))
    if not run:
        return NotebookReport(path, tuple(findings), tuple(notes), cells)
    saved_processor = notebook.metadata.get("voicelab", {}).get("processor", processor())
    same = saved_processor == processor()
    if not same:
        notes.append(Finding(path, None, "processor", _OTHER_PROCESSOR.format(saved_processor, processor())))
        rules = Masks((*mask_files, FIGURES))
    comparison = OutputComparison(rules, tolerance or Tolerance(), pictures=pictures and same, sounds=same)
    execution = execute(path, notebook, timeout=limits.timeout_s, recordings_only=recordings_only)
    for finding, tolerable in _differences(path, notebook, execution, comparison):
        (notes if tolerable and tolerant else findings).append(finding)
    findings += _failures(path, execution, limits)
    findings.sort(key=lambda finding: finding.cell or 0)
    return NotebookReport(path, tuple(findings), tuple(notes), cells, execution.seconds, execution.memory)


def update(path: str | Path, *, limits: NotebookLimits | None = None, recordings_only: bool = False) -> NotebookReport:
    """Execute a notebook offline and save its outputs, without execution times and widget states.

    The file is replaced atomically, and only if every cell ran and the linter reports nothing. Arguments and errors are
    those of ``check``.
    """
    path, limits = Path(path), limits or NotebookLimits()
    notebook = read(path)
    if isinstance(notebook, Finding):
        return NotebookReport(path, (notebook,))
    execution = execute(path, notebook, timeout=limits.timeout_s, recordings_only=recordings_only)
    findings = list(_failures(path, execution, limits))
    if not findings:
        findings = _write(path, _normalized(execution.notebook, notebook), limits)
    cells = len(list(code_cells(notebook)))
    return NotebookReport(path, tuple(findings), (), cells, execution.seconds, execution.memory)


def _differences(
    path: Path, notebook: Any, execution: Execution, comparison: OutputComparison
) -> Iterable[tuple[Finding, bool]]:
    for (number, cell), (_, executed) in zip(code_cells(notebook), code_cells(execution.notebook), strict=True):
        if execution.failure is not None and number >= (execution.failure.cell or 0):
            return
        if not has_tag(cell, "nbval-ignore-output", *SKIP):
            for difference in comparison.differences(cell.outputs, executed.outputs):
                yield Finding(path, number, "difference", difference.message), difference.tolerable


def _failures(path: Path, execution: Execution, limits: NotebookLimits) -> Iterable[Finding]:
    if execution.failure is not None:
        yield execution.failure
    if limits.memory_bytes is not None and execution.memory is not None and execution.memory > limits.memory_bytes:
        limit, peak = (f"{size / 2**20:.0f} MiB" for size in (limits.memory_bytes, execution.memory))
        yield Finding(path, None, "memory", f"peak memory must be at most {limit}, got {peak}")


def _normalized(executed: Any, saved: Any) -> Any:
    """Restore the saved metadata of an executed notebook, without entries that depend on machine or time."""
    executed.metadata.pop("widgets", None)
    executed.metadata.get("language_info", {}).pop("version", None)
    for cell, saved_cell in zip(executed.cells, saved.cells, strict=True):
        cell.metadata = saved_cell.metadata
        for name in ("execution", "ExecuteTime"):
            cell.metadata.pop(name, None)
    sources = [source_digest(cell) for _, cell in code_cells(executed)]
    executed.metadata["voicelab"] = {"processor": processor(), "sources": sources}
    return executed


def _write(path: Path, notebook: Any, limits: NotebookLimits) -> list[Finding]:
    import nbformat

    data = nbformat.writes(notebook).rstrip("\n").encode() + b"\n"
    findings = list(lint(path, notebook, len(data), limits))
    if not findings:
        write_atomic(path, data)
    return [Finding(path, item.cell, item.kind, f"{item.message}; the file was not updated") for item in findings]


# Linux records the peak of the main process; the memory of its children is sampled.
_INTERVAL_S: Final = 0.1


class MemoryPeak:
    """Monitor of the peak memory of a process and its descendants, in bytes.

    With children, memory is the sum of proportional set sizes (PSS, where available), so that shared libraries count
    once; without, the resident set size.
    """

    def __init__(self, pid: int) -> None:
        import psutil

        self._main = psutil.Process(pid)
        self._peak = 0
        self._stopped = Event()
        # A notebook may end within the first interval.
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
            return  # the process has ended, or a child during sampling


def _pss(process: Any) -> int:
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.rss))


def _high_water(process: Any) -> int:
    """Return the peak resident set size that Linux recorded for a process, in bytes; 0 on other systems."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:  # noqa: PTH123 - no file of ours
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


_GUARD: Final = Path(__file__).with_name("guard")
# The result must not depend on the user's service.
_UNSET_VARIABLES: Final = ("VOICELAB_API_KEY", "VOICELAB_BASE_URL")
# A closed port as proxy blocks programs other than Python; guard/sitecustomize.py has the same port.
_CLOSED_PROXY: Final = "http://127.0.0.1:9"
_PROXIES: Final = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_ANSI_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class Execution:
    """An executed notebook, the failure that stopped it (or None), duration in s and peak memory in bytes.

    ``memory`` is None if no kernel started.
    """

    notebook: Any
    failure: Finding | None
    seconds: float
    memory: int | None


def read(path: Path) -> Any:
    """Read a file as an nbformat notebook; return a Finding if it is not valid.

    Raises MissingExtra if the notebook extra is not installed.
    """
    with MissingExtra.where("notebook", "checking notebooks"):
        import nbformat
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - nbformat raises errors of any class for JSON of another shape
        return Finding(path, None, "not-a-notebook", next(iter(str(error).splitlines()), type(error).__name__)[:200])
    return notebook


def execute(path: Path, notebook: Any, *, timeout: float, recordings_only: bool = False) -> Execution:
    """Execute a copy of a notebook in the folder of ``path``, with temporary data folder and settings.

    ``timeout`` is in seconds per cell. With ``recordings_only`` the embedded voice is refused like the network.
    Raises MissingExtra if the notebook extra is not installed.
    """
    with MissingExtra.where("notebook", "checking notebooks"):
        from nbclient import NotebookClient
    copy = _without_outputs(notebook)
    client = NotebookClient(
        copy,
        timeout=max(1, round(timeout)),
        resources={"metadata": {"path": str(path.resolve().parent)}},
        record_timing=False,
        # Without it, nbclient fails on an Output widget that prints.
        store_widget_state=True,
        coalesce_streams=True,
    )
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
    return Execution(copy, failure, time.monotonic() - start, peak)


async def _poll_message(get: Callable[[float], Awaitable[Any]], timeout: float) -> Any:  # noqa: ASYNC109 - nbclient's name
    """Poll every second: a message that nbclient sends for an Output widget can clear the socket's readiness event."""
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
    """Execute the client's notebook; return the failure that stopped it. ``cell_number`` holds the running cell."""
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        manager = client.create_kernel_manager()
        if os.name == "posix":
            # Unix sockets instead of TCP ports, which other users of the machine could connect to.
            manager.transport, manager.connection_file = "ipc", str(folder / "kernel.json")
        # client.execute() would leave its event loop open.
        asyncio.run(client.async_execute(env=environment))
    except NoSuchKernel as error:
        message = f"kernel {error.name!r} is not installed; install it, or save the notebook with another kernel"
        return Finding(path, None, "kernel", message)
    except CellTimeoutError:
        return Finding(path, cell_number[0], "timeout", f"the cell exceeded the time limit of {timeout:g} s")
    except CellExecutionError as error:
        message = " ".join(_ANSI_COLORS.sub("", f"{error.ename}: {error.evalue}").split())
        lines = _ANSI_COLORS.sub("", error.traceback).splitlines()[-_TRACEBACK_LINES:]
        return Finding(path, cell_number[0], "error", f"the cell failed: {message}", "\n".join(lines))
    except DeadKernelError:
        return Finding(path, cell_number[0] or None, "error", "the kernel died in this cell (out of memory?)")
    except RuntimeError as error:
        # Raised by Jupyter if a kernel ends during startup.
        return Finding(path, None, "kernel", f"the kernel did not start: {error}")
    return None


def _environment(folder: Path, recordings_only: bool) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET_VARIABLES}
    # The order of floating-point sums depends on the number of threads.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment |= {case(name): _CLOSED_PROXY for name in _PROXIES for case in (str.lower, str.upper)}
    environment |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return environment | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_GUARD), environment.get("PYTHONPATH")))),
        "VOICELAB_HOME": str(folder / "home"),
        # No IPython startup files of the user.
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        # For guard/sitecustomize.py.
        "NOTEBOOK_RECORDINGS_ONLY": "1" if recordings_only else "",
    }
