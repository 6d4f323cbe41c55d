"""A notebook executed from its beginning in its own kernel: no network, no key, no personal settings; its peak of memory."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from voicelab.checks.lint import Finding, code_cells, requests
from voicelab.errors import MissingExtra, RequestInvalid

__all__ = ["Execution", "MemoryPeak", "execute", "read"]


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
    """Return the notebook in a file, as nbformat has it.

    Raises MissingExtra when Jupyter's parts are not installed, RequestInvalid when it is no notebook.
    """
    try:
        import nbformat
    except ModuleNotFoundError as error:
        raise MissingExtra.of("notebook", "checking notebooks") from error
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
    except (ValueError, AttributeError, KeyError, TypeError, nbformat.ValidationError) as error:
        # What nbformat raises for JSON that is something else depends on what it is.
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise RequestInvalid.of("notebook", first[:200]) from None
    return notebook


def execute(path: Path, notebook: Any, *, timeout: float, recordings_only: bool = False) -> Execution:
    """Execute a copy of a notebook in the folder of ``path``, with a data folder and settings that go away.

    ``timeout`` is in seconds, for each cell. With ``recordings_only`` the embedded voice is refused like the network.
    Raises MissingExtra when Jupyter's parts are not installed.
    """
    try:
        from nbclient import NotebookClient
    except ModuleNotFoundError as error:
        raise MissingExtra.of("notebook", "checking notebooks") from error
    fresh = _emptied(notebook)
    client = NotebookClient(
        fresh,
        timeout=max(1, round(timeout)),
        resources={"metadata": {"path": str(path.resolve().parent)}},
        record_timing=False,
        # Without it, nbclient stumbles over an Output widget that prints; nobody keeps the states.
        store_widget_state=True,
        coalesce_streams=True,
        skip_cells_with_tag="nbval-skip",
    )
    place: list[int] = [0]
    watching: list[MemoryPeak] = []
    client.on_cell_start = lambda cell, cell_index: place.__setitem__(0, cell_index + 1)  # noqa: ARG005 - their names
    client.on_notebook_start = lambda notebook: watching.append(MemoryPeak(client.km.provisioner.pid))  # noqa: ARG005
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="voicelab-check-", ignore_cleanup_errors=True) as folder:
        stopped = _outcome(client, path, Path(folder), place, timeout, _environment(Path(folder), recordings_only))
    peak = max((watch.stop() for watch in watching), default=None)
    return Execution(fresh, stopped, time.monotonic() - begun, peak)


def _emptied(notebook: Any) -> Any:
    """Return a copy without outputs, with nbval's wishes as the tags that nbclient knows."""
    fresh = deepcopy(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    for _, cell in code_cells(fresh):
        tags = {
            "raises-exception": requests(cell, "nbval-raises-exception"),
            "nbval-skip": requests(cell, "nbval-skip"),
        }
        if any(tags.values()):
            added = [tag for tag, wished in tags.items() if wished]
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
    inherited = environment.get("PYTHONPATH")
    # One thread unless the caller sets another number: sums in the same order on machines of any size.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment |= {case(name): _NOWHERE for name in _PROXIES for case in (str.lower, str.upper)}
    environment |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")
    return environment | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_GUARD), inherited))),
        "VOICELAB_HOME": str(folder / "home"),
        # Start-up files of whoever runs this are no part of the notebook.
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        # For guard/sitecustomize.py.
        "NOTEBOOK_RECORDINGS_ONLY": "1" if recordings_only else "",
    }
