"""Check notebooks by linting and executing them; update their outputs.

Notebooks are executed in a fresh kernel without network, API key or personal settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from voicelab.checks.compare import FIGURES, TIMINGS, Masks, OutputComparison, processor
from voicelab.checks.displays import saved_states, stable_states
from voicelab.checks.execution import Execution, execute
from voicelab.checks.lint import (
    SKIP,
    Finding,
    NotebookLimits,
    code_cells,
    has_tag,
    invisible,
    lint,
    source_digest,
    source_lines,
    times,
)
from voicelab.errors import MissingExtra
from voicelab.storage import write_atomic
from voicelab.takes.replay import Tolerance

_OTHER_PROCESSOR = "outputs are from processor {}, this one is {}, so numbers, pictures and audio are not compared"


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
    kernel: str | None = None,
    keep_going: bool = False,
) -> NotebookReport:
    """Check a notebook without changing its file.

    If the outputs are from a different kind of processor (recorded in the metadata), numbers, pictures and audio are not
    compared, and a note is added. The reason is that floating-point rounding differs there, which changes some takes.

    A finding becomes a note if its cell has the tag ``accept-KIND``, such as ``accept-path``, or if a mask deletes its line.
    The tag ``timing=COLUMN`` names a column of times in the cell's tables; its values must exist, but are not compared.

    Args:
        path: executed notebook with outputs.
        limits: limits of sizes, memory and time; defaults if None.
        masks: additional mask files in nbval's format.
        run: execute the notebook offline and compare outputs; if False, only lint the file.
        recordings_only: also block the embedded voice.
        tolerant: report clip differences within ``tolerance`` as notes instead of findings.
        pictures: compare PNG and JPEG too, at low resolution.
        tolerance: tolerance of clip digests; the tolerance of a replay if None.
        kernel: name of the kernel; the kernel of the notebook if None.
        keep_going: continue with the next cell after a failed one.

    Raises MissingExtra if the notebook extra is not installed, RequestInvalid for an invalid mask file, OSError for a
    file that cannot be read.
    """
    path, limits, mask_files = Path(path), limits or NotebookLimits(), tuple(masks)
    rules = acceptance = Masks(mask_files)
    notebook = read(path)
    if isinstance(notebook, Finding):
        return NotebookReport(path, (notebook,))
    findings = list(lint(path, notebook, path.stat().st_size, limits, acceptance))
    notes = [Finding(path, *problem) for problem in (*invisible(notebook), *times(notebook))]
    cells = len(list(code_cells(notebook)))
    if not run:
        return _with_lines(NotebookReport(path, *_sorted(notebook, acceptance, findings, notes), cells))
    saved_processor = notebook.metadata.get("voicelab", {}).get("processor", processor())
    same = saved_processor == processor()
    if not same:
        notes.append(Finding(path, None, "processor", _OTHER_PROCESSOR.format(saved_processor, processor())))
        rules = Masks((*mask_files, FIGURES))
    comparison = OutputComparison(rules, tolerance or Tolerance(), pictures=pictures and same, sounds=same)
    options: dict[str, Any] = {"recordings_only": recordings_only, "kernel": kernel, "keep_going": keep_going}
    execution = execute(path, notebook, timeout=limits.timeout_s, **options)
    comparison = replace(comparison, states=(saved_states(notebook), saved_states(execution.notebook)))
    for finding, accepted in _differences(path, notebook, execution, comparison, tolerant):
        (notes if accepted else findings).append(finding)
    findings += _failures(path, execution, limits)
    sorted_findings = _sorted(notebook, acceptance, findings, notes)
    return _with_lines(NotebookReport(path, *sorted_findings, cells, execution.seconds, execution.memory))


def update(
    path: str | Path,
    *,
    limits: NotebookLimits | None = None,
    masks: Iterable[Path] = (),
    recordings_only: bool = False,
    kernel: str | None = None,
) -> NotebookReport:
    """Execute a notebook offline and save its outputs, without execution times.

    The state of a widget is saved if the output has no other display. The file is replaced atomically, and only if
    every cell ran and the linter reports only accepted findings. Arguments and errors are those of ``check``.
    """
    path, limits, acceptance = Path(path), limits or NotebookLimits(), Masks(masks)
    notebook = read(path)
    if isinstance(notebook, Finding):
        return NotebookReport(path, (notebook,))
    execution = execute(path, notebook, timeout=limits.timeout_s, recordings_only=recordings_only, kernel=kernel)
    findings: _Findings = tuple(_failures(path, execution, limits))
    notes: _Findings = ()
    if not findings:
        import nbformat

        updated = _normalized(execution.notebook, notebook)
        data = nbformat.writes(updated).rstrip("\n").encode() + b"\n"
        problems = lint(path, updated, len(data), limits, acceptance)
        findings, notes = _sorted(updated, acceptance, problems, ())
        if not findings:
            write_atomic(path, data)
        findings = tuple(replace(item, message=f"{item.message}; the file was not updated") for item in findings)
    cells = len(list(code_cells(notebook)))
    return _with_lines(NotebookReport(path, findings, notes, cells, execution.seconds, execution.memory))


def _differences(
    path: Path, notebook: Any, execution: Execution, comparison: OutputComparison, tolerant: bool
) -> Iterator[tuple[Finding, bool]]:
    """Yield the differences of executed cells, and whether each is accepted; then a note on each timing column."""
    failed = {failure.cell for failure in execution.failures}
    timings: dict[str, list[int]] = {}
    for (number, cell), (_, executed) in zip(code_cells(notebook), code_cells(execution.notebook), strict=True):
        if execution.end is not None and number >= execution.end:
            break
        if number in failed or has_tag(cell, "nbval-ignore-output", *SKIP):
            continue
        rules = replace(comparison, timings=(*TIMINGS, *_timing_columns(cell)))
        for difference in rules.differences(cell.outputs, executed.outputs):
            accepted = difference.negligible or (tolerant and difference.tolerable)
            yield Finding(path, number, "difference", difference.message), accepted
        for name in rules.masked_timings(cell.outputs):
            timings.setdefault(name, []).append(number)
    for name, numbers in sorted(timings.items()):
        cells = ", ".join(map(str, numbers))
        yield (
            Finding(
                path,
                None,
                "timings",
                f"the column {name} (cells {cells}) contains times, so only its presence is compared",
            ),
            True,
        )


def _timing_columns(cell: Any) -> Iterator[str]:
    return (str(tag).partition("=")[2] for tag in cell.metadata.get("tags", ()) if str(tag).startswith("timing="))


def _failures(path: Path, execution: Execution, limits: NotebookLimits) -> Iterator[Finding]:
    yield from execution.failures
    if limits.memory_bytes is not None and execution.memory is not None and execution.memory > limits.memory_bytes:
        limit, peak = (f"{size / 2**20:.0f} MiB" for size in (limits.memory_bytes, execution.memory))
        yield Finding(path, None, "memory", f"peak memory must be at most {limit}, got {peak}")


_Findings = tuple[Finding, ...]


def _sorted(
    notebook: Any, masks: Masks, findings: Iterable[Finding], notes: Iterable[Finding]
) -> tuple[_Findings, _Findings]:
    """Return findings and notes in the order of cells; accepted findings become notes."""
    kept: list[Finding] = []
    accepted = list(notes)
    for finding in findings:
        tagged = finding.cell is not None and has_tag(notebook.cells[finding.cell - 1], f"accept-{finding.kind}")
        (accepted if tagged or not masks(str(finding)).strip() else kept).append(finding)
    by_cell = [tuple(sorted(each, key=lambda finding: finding.cell or 0)) for each in (kept, accepted)]
    return by_cell[0], by_cell[1]


def _with_lines(report: NotebookReport) -> NotebookReport:
    """Add the line numbers in the file to the findings of a report."""
    lines = source_lines(report.notebook.read_text(encoding="utf-8-sig"))

    def located(finding: Finding) -> Finding:
        if finding.cell is None:
            return finding
        cell = lines[finding.cell - 1]
        return replace(finding, line=cell[min((finding.source_line or 1), len(cell)) - 1])

    return replace(report, findings=tuple(map(located, report.findings)), notes=tuple(map(located, report.notes)))


def _normalized(executed: Any, saved: Any) -> Any:
    """Restore the saved metadata of an executed notebook, without entries that depend on machine or time."""
    executed.metadata.get("language_info", {}).pop("version", None)
    for cell, saved_cell in zip(executed.cells, saved.cells, strict=True):
        cell.metadata = saved_cell.metadata
        for name in ("execution", "ExecuteTime"):
            cell.metadata.pop(name, None)
    sources = [source_digest(cell) for _, cell in code_cells(executed)]
    executed.metadata["voicelab"] = {"processor": processor(), "sources": sources}
    return stable_states(executed)


def read(path: Path) -> Any:
    """Read a file as an nbformat notebook; return a Finding if it is not valid.

    Raises MissingExtra if the notebook extra is not installed.
    """
    with MissingExtra.where("notebook", "checking notebooks"):
        import nbformat
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8-sig"), as_version=4)
        nbformat.validate(notebook)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - nbformat raises errors of any class for JSON of another shape
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        return Finding(path, None, "not-a-notebook", f"the file must be a notebook, JSON in UTF-8: {reason}")
    return notebook
