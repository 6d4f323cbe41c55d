"""check(): everything that is wrong with a notebook, found without running it and by running it; update(): run it anew.

A notebook is executed from its beginning in a kernel of its own: no network, no key, no personal settings.
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
from voicelab.checks.lint import SKIP, Finding, NotebookLimits, code_cells, invisible, lint, requests, source_digest
from voicelab.errors import MissingExtra
from voicelab.storage import write_atomic
from voicelab.takes.replay import Tolerance

_ELSEWHERE = (
    "its figures are from another kind of processor ({}; here {}), so figures, pictures and sounds are not compared"
)


@dataclass(frozen=True, slots=True)
class NotebookReport:
    """What checking a notebook gave: ``findings`` in the order of its cells, and ``notes`` that do not fail it.

    ``seconds`` and ``memory`` (the peak of the kernel and what it started, in bytes) are None when it was not run.
    """

    notebook: Path
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    cells: int = 0
    seconds: float | None = None
    memory: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the notebook's file."""
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
    """Return what is wrong with a notebook; its file is left as it is.

    Where its outputs were made on another kind of processor, which its metadata tell, figures, pictures and sounds are not
    compared, and a note says so: the same voice rounds otherwise there, so that some takes come out otherwise.

    Args:
        path: the notebook, executed, with its outputs.
        limits: sizes, memory and times; the defaults when None.
        masks: further files of masks, in nbval's format.
        run: execute it, offline, and compare its outputs; without, only what the file itself tells.
        recordings_only: refuse the embedded voice too.
        tolerant: let clips move within ``tolerance``, with a note; otherwise every figure that a clip shows has to
            be the same.
        pictures: compare PNG and JPEG too, coarsely.
        tolerance: how far a clip may move; the defaults of a replay when None.

    Raises MissingExtra when Jupyter's parts are not installed, RequestInvalid for masks that are none, OSError for a
    file that cannot be read.
    """
    path, bounds, files = Path(path), limits or NotebookLimits(), tuple(masks)
    rules = Masks(files)
    notebook = read(path)
    if isinstance(notebook, Finding):
        return NotebookReport(path, (notebook,))
    findings = list(lint(path, notebook, path.stat().st_size, bounds))
    notes = [Finding(path, *hit) for hit in invisible(notebook)]
    cells = len(list(code_cells(notebook)))
    if not run:
        return NotebookReport(path, tuple(findings), tuple(notes), cells)
    elsewhere = notebook.metadata.get("voicelab", {}).get("processor", processor())
    same = elsewhere == processor()
    if not same:
        notes.append(Finding(path, None, "processor", _ELSEWHERE.format(elsewhere, processor())))
        rules = Masks((*files, FIGURES))
    compare = OutputComparison(rules, tolerance or Tolerance(), pictures=pictures and same, sounds=same)
    done = execute(path, notebook, timeout=bounds.timeout_s, recordings_only=recordings_only)
    for finding, tolerable in _differences(path, notebook, done, compare):
        (notes if tolerable and tolerant else findings).append(finding)
    findings += _stopped(path, done, bounds)
    findings.sort(key=lambda finding: finding.cell or 0)
    return NotebookReport(path, tuple(findings), tuple(notes), cells, done.seconds, done.memory)


def update(path: str | Path, *, limits: NotebookLimits | None = None, recordings_only: bool = False) -> NotebookReport:
    """Execute a notebook offline and write what it shows now into its file, without times, states or what else changes.

    The file is replaced whole, and only when every cell ran and nothing that ``check`` finds in a file is wrong with
    it. Arguments and errors are those of ``check``.
    """
    path, bounds = Path(path), limits or NotebookLimits()
    notebook = read(path)
    if isinstance(notebook, Finding):
        return NotebookReport(path, (notebook,))
    done = execute(path, notebook, timeout=bounds.timeout_s, recordings_only=recordings_only)
    findings = list(_stopped(path, done, bounds))
    if not findings:
        findings = _write(path, _normalised(done.notebook, notebook), bounds)
    return NotebookReport(path, tuple(findings), (), len(list(code_cells(notebook))), done.seconds, done.memory)


def _differences(
    path: Path, notebook: Any, done: Execution, compare: OutputComparison
) -> Iterable[tuple[Finding, bool]]:
    for (number, cell), (_, now) in zip(code_cells(notebook), code_cells(done.notebook), strict=True):
        if done.stopped is not None and number >= (done.stopped.cell or 0):
            return
        if not requests(cell, "nbval-ignore-output", *SKIP):
            for difference in compare.differences(cell.outputs, now.outputs):
                yield Finding(path, number, "difference", difference.words), difference.tolerable


def _stopped(path: Path, done: Execution, bounds: NotebookLimits) -> Iterable[Finding]:
    if done.stopped is not None:
        yield done.stopped
    if bounds.memory_bytes is not None and done.memory is not None and done.memory > bounds.memory_bytes:
        message = f"{done.memory / 2**20:.0f} MiB at most; it may have {bounds.memory_bytes / 2**20:.0f} MiB"
        yield Finding(path, None, "memory", message)


def _normalised(fresh: Any, was: Any) -> Any:
    """Return the executed notebook with the metadata that it had, less what a machine or a moment put there."""
    fresh.metadata.pop("widgets", None)
    # Which Python it was is this machine's affair, and would change the file with every release.
    fresh.metadata.get("language_info", {}).pop("version", None)
    for cell, old in zip(fresh.cells, was.cells, strict=True):
        cell.metadata = old.metadata
        for name in ("execution", "ExecuteTime"):
            cell.metadata.pop(name, None)
    sources = [source_digest(cell) for _, cell in code_cells(fresh)]
    fresh.metadata["voicelab"] = {"processor": processor(), "sources": sources}
    return fresh


def _write(path: Path, notebook: Any, bounds: NotebookLimits) -> list[Finding]:
    import nbformat

    data = nbformat.writes(notebook).rstrip("\n").encode() + b"\n"
    findings = list(lint(path, notebook, len(data), bounds))
    if not findings:
        write_atomic(path, data)
    return [Finding(path, item.cell, item.kind, f"{item.message}; nothing was written") for item in findings]


# The system keeps the peak of the main process itself; what its children hold is sampled.
_INTERVAL_S: Final = 0.1


class MemoryPeak:
    """Watches a process and its descendants until ``stop()``, which returns the most that they held together, in bytes.

    Several processes are counted by their proportional share (PSS), where the system tells it, so that a library that
    they share counts once; a single one by its resident size.
    """

    def __init__(self, pid: int) -> None:
        import psutil

        self._main = psutil.Process(pid)
        self._most = 0
        self._ended = Event()
        # At once: a notebook may end before the first interval has passed.
        self._look()
        self._thread = Thread(target=self._watch, name="voicelab-memory", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop watching; return the peak. The process may have ended."""
        self._ended.set()
        self._thread.join()
        self._look()
        return self._most

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self._look()

    def _look(self) -> None:
        import psutil

        try:
            children = self._main.children(recursive=True)
            held = sum(map(_share, (self._main, *children))) if children else self._main.memory_info().rss
            self._most = max(self._most, held, _high_water(self._main))
        except (psutil.Error, OSError):
            return  # it has ended, or a child between two looks


def _share(process: Any) -> int:
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.rss))


def _high_water(process: Any) -> int:
    """Return the most that Linux has seen a process hold, in bytes; 0 elsewhere. No peak is too short for it."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:  # noqa: PTH123 - no file of ours
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


_GUARD: Final = Path(__file__).with_name("guard")
# Recordings need neither; an address or a key from outside would make the check depend on who runs it.
_TAKEN_AWAY: Final = ("VOICELAB_API_KEY", "VOICELAB_BASE_URL")
# Programs that are not Python are sent to a proxy that is not there; guard/sitecustomize.py knows its port.
_NOWHERE: Final = "http://127.0.0.1:9"
_PROXIES: Final = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_LAST_LINES: Final = 15


@dataclass(frozen=True, slots=True)
class Execution:
    """A notebook with the outputs that it gives now, and what stopped it, if anything did.

    ``seconds`` is how long that took, ``memory`` how many bytes the kernel and what it started held at most;
    None when there was no kernel.
    """

    notebook: Any
    stopped: Finding | None
    seconds: float
    memory: int | None


def read(path: Path) -> Any:
    """Return the notebook in a file, as nbformat has it, or what is wrong with one that is none.

    Raises MissingExtra when Jupyter's parts are not installed.
    """
    with MissingExtra.where("notebook", "checking notebooks"):
        import nbformat
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - what nbformat raises for JSON that is something else depends on what it is
        return Finding(path, None, "not-a-notebook", next(iter(str(error).splitlines()), type(error).__name__)[:200])
    return notebook


def execute(path: Path, notebook: Any, *, timeout: float, recordings_only: bool = False) -> Execution:
    """Execute a copy of a notebook in the folder of ``path``, with a data folder and settings that go away.

    ``timeout`` is in seconds, for each cell. With ``recordings_only`` the embedded voice is refused like the network.
    Raises MissingExtra when Jupyter's parts are not installed.
    """
    with MissingExtra.where("notebook", "checking notebooks"):
        from nbclient import NotebookClient
    fresh = _emptied(notebook)
    client = NotebookClient(
        fresh,
        timeout=max(1, round(timeout)),
        resources={"metadata": {"path": str(path.resolve().parent)}},
        record_timing=False,
        # Without it, nbclient stumbles over an Output widget that prints; nobody keeps the states.
        store_widget_state=True,
        coalesce_streams=True,
    )
    place: list[int] = [0]
    watching: list[MemoryPeak] = []
    client.on_cell_start = lambda cell, cell_index: place.__setitem__(0, cell_index + 1)  # noqa: ARG005 - their names

    def begin(notebook: Any) -> None:  # noqa: ARG001 - its name
        watching.append(MemoryPeak(client.km.provisioner.pid))
        client.kc.shell_channel.get_msg = partial(_ask_again, client.kc.shell_channel.get_msg)

    client.on_notebook_start = begin
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="voicelab-check-", ignore_cleanup_errors=True) as folder:
        stopped = _outcome(client, path, Path(folder), place, timeout, _environment(Path(folder), recordings_only))
    peak = max((watch.stop() for watch in watching), default=None)
    return Execution(fresh, stopped, time.monotonic() - begun, peak)


async def _ask_again(get: Callable[[float], Awaitable[Any]], timeout: float) -> Any:  # noqa: ASYNC109 - its name
    """Ask every second: what nbclient sends for an Output widget can swallow the sign that the kernel has answered."""
    for _ in range(int(timeout)):
        with suppress(Empty):
            return await get(1)
    return await get(timeout % 1)


def _emptied(notebook: Any) -> Any:
    """Return a copy without outputs, but for cells that are skipped, with nbval's wishes as the tags that nbclient knows."""
    fresh = deepcopy(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = cell.outputs if requests(cell, *SKIP) else [], None
    for _, cell in code_cells(fresh):
        tags = {"nbval-raises-exception": "raises-exception"} | dict.fromkeys(SKIP, "skip-execution")
        if added := [tag for wish, tag in tags.items() if requests(cell, wish)]:
            cell.metadata["tags"] = [*cell.metadata.get("tags", ()), *added]
    return fresh


def _outcome(
    client: Any, path: Path, folder: Path, place: list[int], timeout: float, environment: dict[str, str]
) -> Finding | None:
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        manager = client.create_kernel_manager()
        if os.name == "posix":
            # Sockets of the file system: no port that somebody else could talk to.
            manager.transport, manager.connection_file = "ipc", str(folder / "kernel.json")
        # A loop of its own, and closed: client.execute() would leave one behind.
        asyncio.run(client.async_execute(env=environment))
    except NoSuchKernel as error:
        message = f"the notebook wants the kernel {error.name!r}, which is not installed here; save it with another one"
        return Finding(path, None, "kernel", message)
    except CellTimeoutError:
        return Finding(path, place[0], "timeout", f"the cell was still running after {timeout:g} s")
    except CellExecutionError as error:
        message = " ".join(_COLOURS.sub("", f"{error.ename}: {error.evalue}").split())
        lines = _COLOURS.sub("", error.traceback).splitlines()[-_LAST_LINES:]
        return Finding(path, place[0], "error", f"the cell failed: {message}", "\n".join(lines))
    except DeadKernelError:
        return Finding(path, place[0] or None, "error", "the kernel died in this cell; was its memory enough?")
    except RuntimeError as error:
        # Jupyter's own, when a kernel ends before it answers.
        return Finding(path, None, "kernel", f"the kernel did not start: {error}")
    return None


def _environment(folder: Path, recordings_only: bool) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _TAKEN_AWAY}
    # One thread unless the caller sets another number: sums in the same order on machines of any size.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment |= {case(name): _NOWHERE for name in _PROXIES for case in (str.lower, str.upper)}
    environment |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return environment | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_GUARD), environment.get("PYTHONPATH")))),
        "VOICELAB_HOME": str(folder / "home"),
        # Start-up files of whoever runs this are no part of the notebook.
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        # For guard/sitecustomize.py.
        "NOTEBOOK_RECORDINGS_ONLY": "1" if recordings_only else "",
    }
