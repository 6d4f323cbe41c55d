"""check(): everything that is wrong with a notebook, found without running it and by running it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from voicelab.checks.compare import Masks, differences, ignored
from voicelab.checks.execute import execute, read
from voicelab.checks.finding import Finding, code_cells, outputs_of
from voicelab.checks.lint import lint
from voicelab.errors import RequestInvalid
from voicelab.experiments.replay import Tolerance

__all__ = ["Limits", "check"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes that an output and a notebook may have, and seconds that a cell may run."""

    output_bytes: int = 2**20
    notebook_bytes: int = 3 * 2**19
    timeout_s: float = 300.0


def check(
    path: str | Path, *, limits: Limits | None = None, masks: Iterable[Path] = (), run: bool = True
) -> list[Finding]:
    """Return what is wrong with a notebook, in the order of its cells; nothing when all is well.

    Args:
        path: the notebook, with the outputs it is known to give.
        limits: sizes and times; the defaults when None.
        masks: further files of masks, in nbval's format.
        run: execute it, offline, and compare its outputs; without, only what the file itself tells.

    The notebook's file is left as it is. Raises MissingExtra when Jupyter's parts are not installed,
    RequestInvalid for masks that are none, OSError for a file that cannot be read.
    """
    path, bounds, hide = Path(path), limits or Limits(), Masks(masks)
    try:
        notebook = read(path)
    except RequestInvalid as error:
        return [Finding(path, None, "not-a-notebook", error.errors[0].msg)]
    found = list(lint(path, notebook, output_bytes=bounds.output_bytes, notebook_bytes=bounds.notebook_bytes))
    if run:
        found += _run(path, notebook, bounds, hide)
    return sorted(found, key=lambda finding: finding.cell or 0)


def _run(path: Path, notebook: object, bounds: Limits, masks: Masks) -> list[Finding]:
    fresh, stopped = execute(path, notebook, timeout=bounds.timeout_s)
    found = []
    for (number, cell), (_, now) in zip(code_cells(notebook), code_cells(fresh), strict=True):
        if stopped is not None and number == stopped.cell:
            found.append(stopped)
            break
        if not ignored(cell):
            told = differences(outputs_of(cell), outputs_of(now), masks, Tolerance())
            found += [Finding(path, number, "difference", words) for words in told]
    return found
