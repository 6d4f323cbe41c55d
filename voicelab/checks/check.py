"""check(): everything that is wrong with a notebook, found without running it and by running it; update(): run it anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicelab.checks.compare import Masks, OutputComparison, processor
from voicelab.checks.execute import Execution, execute, read
from voicelab.checks.lint import Finding, code_cells, invisible, lint, outputs_of, requests, source_digest
from voicelab.errors import RequestInvalid
from voicelab.experiments.runs.replay import Tolerance
from voicelab.storage import write_atomic

__all__ = ["NotebookLimits", "NotebookReport", "check", "update"]

_ELSEWHERE = "its figures are from another kind of processor ({}; here {}), so they and its pictures are not compared"


@dataclass(frozen=True, slots=True)
class NotebookLimits:
    """What a notebook may take: bytes of an output, of the file and of memory (None: any), seconds of a cell."""

    output_bytes: int = 2**20
    notebook_bytes: int = 3 * 2**19
    memory_bytes: int | None = None
    timeout_s: float = 300.0


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

    Where its outputs were made on another kind of processor, which its metadata tell, figures and pictures are not
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
    path, bounds, all_masks = Path(path), limits or NotebookLimits(), Masks(masks)
    try:
        notebook = read(path)
    except RequestInvalid as error:
        return NotebookReport(path, (Finding(path, None, "not-a-notebook", error.errors[0].msg),))
    most = {"output_bytes": bounds.output_bytes, "notebook_bytes": bounds.notebook_bytes}
    findings = list(lint(path, notebook, size=path.stat().st_size, **most))
    notes = [Finding(path, *hit) for hit in invisible(notebook)]
    cells = len(list(code_cells(notebook)))
    if not run:
        return NotebookReport(path, tuple(findings), tuple(notes), cells)
    elsewhere = notebook.metadata.get("voicelab", {}).get("processor", processor())
    same = elsewhere == processor()
    if not same:
        notes.append(Finding(path, None, "processor", _ELSEWHERE.format(elsewhere, processor())))
    compare = OutputComparison(all_masks, tolerance or Tolerance(), pictures=pictures and same, figures=same)
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
    try:
        notebook = read(path)
    except RequestInvalid as error:
        return NotebookReport(path, (Finding(path, None, "not-a-notebook", error.errors[0].msg),))
    done = execute(path, notebook, timeout=bounds.timeout_s, recordings_only=recordings_only)
    cells = len(list(code_cells(notebook)))
    findings = list(_stopped(path, done, bounds))
    if not findings:
        findings = _write(path, _normalised(done.notebook, notebook), bounds)
    return NotebookReport(path, tuple(findings), (), cells, done.seconds, done.memory)


def _differences(
    path: Path, notebook: Any, done: Execution, compare: OutputComparison
) -> Iterable[tuple[Finding, bool]]:
    for (number, cell), (_, now) in zip(code_cells(notebook), code_cells(done.notebook), strict=True):
        if done.stopped is not None and number >= (done.stopped.cell or 0):
            return
        if not requests(cell, "nbval-ignore-output", "nbval-skip"):
            for difference in compare.differences(outputs_of(cell), outputs_of(now)):
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
    most = {"output_bytes": bounds.output_bytes, "notebook_bytes": bounds.notebook_bytes}
    findings = list(lint(path, notebook, size=len(data), **most))
    if not findings:
        write_atomic(path, data)
    return [Finding(path, item.cell, item.kind, f"{item.message}; nothing was written") for item in findings]
