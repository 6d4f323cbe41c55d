"""``voicelab check``: whether notebooks run offline, still show what they showed, and hold nothing they should not."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from voicelab.checks import Finding, NotebookLimits, NotebookReport
from voicelab.checks import check as look
from voicelab.checks import update as renew
from voicelab.cli.console import say_line
from voicelab.errors import RequestInvalid

_MIB = 2**20

Notebooks = Annotated[
    list[Path],
    typer.Argument(metavar="NOTEBOOKS…", help="Executed notebooks, or folders of them.", show_default=False),
]
Masks = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Further masks, in nbval's format; repeatable.", show_default=False),
]


def check(
    notebooks: Notebooks,
    *,
    execute: Annotated[bool, typer.Option(help="Run them and compare, or only look at the files.")] = True,
    update: Annotated[
        bool, typer.Option("--update", help="Run them, and write what they show into the files.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", min=1, help="How many notebooks run at once.")] = 1,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How long a cell may run.")] = 300.0,
    max_output: Annotated[float, typer.Option(metavar="MIB", min=0, help="How large an output may be.")] = 1.0,
    max_notebook: Annotated[float, typer.Option(metavar="MIB", min=0, help="How large a notebook may be.")] = 1.5,
    max_memory: Annotated[
        float | None,
        typer.Option(metavar="MIB", min=1, help="How much memory a notebook may take.", show_default="any"),
    ] = None,
    masks: Masks = None,
    recordings_only: Annotated[
        bool, typer.Option("--recordings-only", help="Refuse the embedded voice too: connect(replay=…) alone speaks.")
    ] = False,
    tolerant: Annotated[
        bool, typer.Option("--tolerant", help="Let the figures of clips move within tolerance (other processors).")
    ] = False,
    pictures: Annotated[bool, typer.Option(help="Compare pictures too, coarsely.")] = True,
) -> None:
    """Run each notebook offline in a fresh kernel, compare its outputs strictly, and look for what must not be in it.

    One line for each finding, `notebook:cell: kind: what`, cells counted from 1. The exit status is 1 when there
    is any. Sockets that leave this machine are refused; the key and the address of a service are taken away.
    """
    if update and not execute:
        raise RequestInvalid.of("update", "--update runs the notebooks; leave --no-execute out", in_="query")
    limits = NotebookLimits(
        round(max_output * _MIB),
        round(max_notebook * _MIB),
        None if max_memory is None else round(max_memory * _MIB),
        timeout,
    )
    if update:
        one = partial(renew, limits=limits, recordings_only=recordings_only)
    else:
        one = partial(
            look,
            limits=limits,
            masks=masks or (),
            run=execute,
            recordings_only=recordings_only,
            tolerant=tolerant,
            pictures=pictures,
        )
    begun = time.monotonic()
    reports = []
    with ThreadPoolExecutor(jobs, thread_name_prefix="voicelab-check") as pool:
        for report in pool.map(one, _files(notebooks)):
            _tell(report, "written" if update else "as it should be")
            reports.append(report)
    say_line(_summary(reports, time.monotonic() - begun))
    if any(report.findings for report in reports):
        raise typer.Exit(1)


def _files(named: list[Path]) -> list[Path]:
    """Return the notebooks named, and those in folders named. Raises OSError, RequestInvalid when there are none."""
    notebooks: list[Path] = []
    for path in named:
        if path.is_dir():
            inside = sorted(path.rglob("*.ipynb"))
            notebooks += [
                file for file in inside if not any(part.startswith(".") for part in file.relative_to(path).parts)
            ]
        else:
            path.stat()
            notebooks.append(path)
    if not notebooks:
        raise RequestInvalid.of("notebooks", f"no notebook in {', '.join(map(str, named))}", in_="query")
    return notebooks


def _tell(report: NotebookReport, well: str) -> None:
    for finding in report.findings:
        say_line(str(finding))
        for line in finding.detail.splitlines():
            say_line(f"    {line}")
        _annotate(finding)
    for note in report.notes:
        say_line(f"{note}; let pass")
    if not report.findings:
        say_line(f"{report.notebook}: {well} ({_measured(report)})")


def _measured(report: NotebookReport) -> str:
    parts = [f"{report.cells} cells", f"{report.size / _MIB:.2f} MiB"]
    if report.seconds is not None:
        parts.append(f"{report.seconds:.0f} s")
    if report.memory is not None:
        parts.append(f"at most {report.memory / _MIB:.0f} MiB of memory")
    return ", ".join(parts)


def _annotate(finding: Finding) -> None:
    """Let GitHub show a finding beside the change that made it."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        place = f"cell {finding.cell}: " if finding.cell is not None else ""
        message = f"{place}{finding.message}".replace("%", "%25").replace("\n", "%0A")
        say_line(f"::error file={finding.notebook},title={finding.kind}::{message}")


def _summary(reports: list[NotebookReport], seconds: float) -> str:
    kinds = Counter(finding.kind for report in reports for finding in report.findings)
    wrong = sum(bool(report.findings) for report in reports)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    name = "notebook" if len(reports) == 1 else "notebooks"
    verdict = f"{wrong} with findings ({counts})" if wrong else "nothing found"
    return f"{len(reports)} {name} in {seconds:.0f} s: {verdict}"
