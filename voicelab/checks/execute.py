"""A notebook executed from its beginning in a kernel of its own, without network, key, or anybody's settings."""

from __future__ import annotations

import os
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from voicelab.checks.finding import Finding
from voicelab.errors import MissingExtra, RequestInvalid

__all__ = ["execute", "read"]

_GUARD: Final = Path(__file__).with_name("guard")
# Recordings need neither; an address or a key from outside would make the check depend on who runs it.
_TAKEN_AWAY: Final = ("VOICELAB_API_KEY", "VOICELAB_BASE_URL")


def read(path: Path) -> Any:
    """Return the notebook in a file, as nbformat has it.

    Raises MissingExtra when Jupyter's parts are not installed, RequestInvalid when it is no notebook.
    """
    try:
        import nbformat
    except ModuleNotFoundError as error:
        raise MissingExtra.of("notebook", "checking notebooks") from error
    text = path.read_text(encoding="utf-8")
    try:
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
    except (ValueError, AttributeError, KeyError, TypeError, nbformat.ValidationError) as error:
        # What nbformat raises for JSON that is something else depends on what it is.
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise RequestInvalid.of("notebook", first[:200]) from None
    return notebook


def execute(path: Path, notebook: Any, *, timeout: float) -> tuple[Any, Finding | None]:
    """Return a copy of the notebook with the outputs that it gives now, and what stopped it, if anything did.

    ``timeout`` is in seconds, for each cell. The kernel runs in the notebook's folder, with a data folder and
    settings of its own that go away.
    """
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ModuleNotFoundError as error:
        raise MissingExtra.of("notebook", "checking notebooks") from error
    fresh = deepcopy(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        fresh,
        timeout=max(1, round(timeout)),
        resources={"metadata": {"path": str(path.resolve().parent)}},
        record_timing=False,
        store_widget_state=False,
    )
    place: list[int] = [0]
    client.on_cell_start = lambda cell, cell_index: place.__setitem__(0, cell_index + 1)  # noqa: ARG005 - their names
    with tempfile.TemporaryDirectory(prefix="voicelab-check-") as folder:
        if os.name == "posix":
            # Sockets of the file system: no port that somebody else could talk to.
            manager = client.create_kernel_manager()
            manager.transport, manager.connection_file = "ipc", str(Path(folder) / "kernel.json")
        try:
            client.execute(env=_environment(Path(folder)))
        except CellTimeoutError:
            return fresh, Finding(path, place[0], "timeout", f"the cell was still running after {timeout:g} s")
        except CellExecutionError as error:
            said = " ".join(f"{error.ename}: {error.evalue}".split())
            return fresh, Finding(path, place[0], "error", f"the cell failed: {said}")
        except DeadKernelError:
            return fresh, Finding(path, place[0], "error", "the kernel died in this cell; was its memory enough?")
    return fresh, None


def _environment(folder: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _TAKEN_AWAY}
    inherited = environment.get("PYTHONPATH")
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_GUARD), inherited))),
        "VOICELAB_HOME": str(folder / "home"),
        # Start-up files of whoever runs this are no part of the notebook.
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    return environment
