"""``voicelab check``: run notebooks offline, compare their outputs, lint their files; reports as JSON and JUnit XML."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree as ET

import typer

from voicelab.checks import Finding, NotebookLimits, NotebookReport, interrupt
from voicelab.checks import check as check_notebook
from voicelab.checks import update as update_notebook
from voicelab.cli.console import print_line
from voicelab.errors import RequestInvalid
from voicelab.storage import write_atomic

_MIB = 2**20
_INTERRUPT_S = 0.2

Notebooks = Annotated[
    list[Path],
    typer.Argument(metavar="NOTEBOOKS…", help="Executed notebooks, or folders with notebooks.", show_default=False),
]
Masks = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Additional masks in nbval's format; repeatable.", show_default=False),
]


def check(
    notebooks: Notebooks,
    *,
    execute: Annotated[bool, typer.Option(help="Run the notebooks and compare, or only lint the files.")] = True,
    update: Annotated[
        bool, typer.Option("--update", help="Run the notebooks and save the new outputs in the files.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Number of notebooks run in parallel.")
    ] = 1,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Time limit per cell.")] = 300.0,
    max_output: Annotated[float, typer.Option(metavar="MIB", min=0, help="Size limit per output.")] = 1.0,
    max_notebook: Annotated[float, typer.Option(metavar="MIB", min=0, help="Size limit per notebook.")] = 1.5,
    max_memory: Annotated[
        float | None, typer.Option(metavar="MIB", min=1, help="Memory limit per notebook.", show_default="unlimited")
    ] = None,
    masks: Masks = None,
    recordings_only: Annotated[
        bool, typer.Option("--recordings-only", help="Refuse the embedded voice; only connect(replay=…) works.")
    ] = False,
    tolerant: Annotated[
        bool, typer.Option("--tolerant", help="Accept clips within tolerance, as on other processors.")
    ] = False,
    pictures: Annotated[bool, typer.Option(help="Compare pictures too, at low resolution.")] = True,
    kernel: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kernel to run.", show_default="that of the notebook")
    ] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Continue after a failed cell.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the findings as JSON.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the findings as JUnit XML.")] = None,
) -> None:
    """Run notebooks offline in fresh kernels, compare their outputs with the saved ones, and lint the files.

    Prints one line per finding, `notebook:cell: kind: message`, with cells counted from 1. Exits with status 1 if there
    are findings. Network access beyond this machine is refused; service address and key are removed from the environment.
    """
    if update and (not execute or keep_going):
        option = "--keep-going" if execute else "--no-execute"
        raise RequestInvalid.of("update", f"--update saves only complete runs; remove {option}", in_="query")
    limits = NotebookLimits(
        round(max_output * _MIB),
        round(max_notebook * _MIB),
        None if max_memory is None else round(max_memory * _MIB),
        timeout,
    )
    task = partial(update_notebook if update else check_notebook, limits=limits, masks=masks or (), kernel=kernel)
    options = {"run": execute, "tolerant": tolerant, "pictures": pictures, "keep_going": keep_going}
    task = partial(task, recordings_only=recordings_only, **({} if update else options))
    start = time.monotonic()
    reports = list(_reports(task, _files(notebooks), jobs, "updated" if update else "passed"))
    if json is not None:
        write_atomic(json, json_report(reports))
    if junit is not None:
        write_atomic(junit, junit_report(reports))
    print_line(_summary(reports, time.monotonic() - start))
    if any(report.findings for report in reports):
        raise typer.Exit(1)


def _reports(
    task: Callable[[Path], NotebookReport], paths: list[Path], jobs: int, success: str
) -> Iterator[NotebookReport]:
    """Run a task for each notebook and print the reports in order as they complete. Ctrl-C kills all kernels."""
    with ThreadPoolExecutor(jobs, thread_name_prefix="voicelab-check") as pool:
        futures = [pool.submit(task, path) for path in paths]
        try:
            for future in futures:
                _print_report(report := future.result(), success)
                yield report
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            while wait(futures, _INTERRUPT_S).not_done:  # a kernel may start only now
                interrupt()
            raise


def _files(paths: list[Path]) -> list[Path]:
    """Expand folders to their notebooks. Raises OSError for a missing file, RequestInvalid for other files or no notebook."""
    notebooks: list[Path] = []
    for path in paths:
        if path.is_dir():
            files = sorted(path.rglob("*.ipynb"))
            notebooks += [f for f in files if not any(name.startswith(".") for name in f.relative_to(path).parts)]
        else:
            path.stat()
            if path.suffix != ".ipynb":
                raise RequestInvalid.of("notebooks", f"must be .ipynb files or folders, got {path}", in_="query")
            notebooks.append(path)
    if not notebooks:
        raise RequestInvalid.of("notebooks", f"no notebook in {', '.join(map(str, paths))}", in_="query")
    return notebooks


def _print_report(report: NotebookReport, success: str) -> None:
    for finding in report.findings:
        print_line(str(finding))
        for line in finding.detail.splitlines():
            print_line(f"    {line}")
        _annotate(finding)
    for note in report.notes:
        print_line(f"{note} (accepted)")
    if not report.findings:
        print_line(f"{report.notebook}: {success} ({_statistics(report)})")


def _statistics(report: NotebookReport) -> str:
    figures = [f"{report.cells} cells", f"{report.size / _MIB:.2f} MiB"]
    if report.seconds is not None:
        figures.append(f"{report.seconds:.0f} s")
    if report.memory is not None:
        figures.append(f"peak memory {report.memory / _MIB:.0f} MiB")
    return ", ".join(figures)


def _annotate(finding: Finding) -> None:
    """Print a GitHub Actions annotation for a finding."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        place = {"file": finding.notebook, "line": finding.line, "title": finding.kind}
        properties = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in place.items() if value)
        cell = f"cell {finding.cell}: " if finding.cell is not None else ""
        print_line(f"::error {properties}::{_escaped(cell + finding.message)}")


def _escaped(text: str, separators: str = "") -> str:
    """Escape text for a GitHub workflow command."""
    for character in f"%\r\n{separators}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _summary(reports: list[NotebookReport], seconds: float) -> str:
    kinds = Counter(finding.kind for report in reports for finding in report.findings)
    failed = sum(bool(report.findings) for report in reports)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    name = "notebook" if len(reports) == 1 else "notebooks"
    verdict = f"{failed} with findings ({counts})" if failed else "no findings"
    return f"{len(reports)} {name} in {seconds:.0f} s: {verdict}"


# XML 1.0 allows no other control characters, escaped or not.
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def json_report(reports: Iterable[NotebookReport]) -> bytes:
    """Encode reports as a JSON array with an object per notebook: findings and notes with cell and line."""

    def encoded(findings: Sequence[Finding]) -> list[dict[str, object]]:
        return [{**asdict(finding), "notebook": str(finding.notebook)} for finding in findings]

    notebooks = [
        {
            "notebook": str(report.notebook),
            "cells": report.cells,
            "seconds": report.seconds,
            "memory_bytes": report.memory,
            "findings": encoded(report.findings),
            "notes": encoded(report.notes),
        }
        for report in reports
    ]
    return json.dumps(notebooks, ensure_ascii=False, indent=1).encode() + b"\n"


def junit_report(reports: Iterable[NotebookReport]) -> bytes:
    """Encode reports as JUnit XML: a test suite per notebook, with a test case per cell with findings.

    A test case "notebook" contains the findings of the whole notebook, and the duration of the run.
    """
    root = ET.Element("testsuites")
    for report in reports:
        cells = sorted({finding.cell or 0 for finding in report.findings} | {0})
        suite = ET.SubElement(root, "testsuite", name=str(report.notebook), tests=str(len(cells)))
        suite.set("failures", str(len({finding.cell for finding in report.findings})))
        for cell in cells:
            case = ET.SubElement(suite, "testcase", classname=str(report.notebook))
            case.set("name", f"cell {cell}" if cell else "notebook")
            case.set("time", f"{0.0 if cell else report.seconds or 0.0:.3f}")
            findings = [finding for finding in report.findings if (finding.cell or 0) == cell]
            if findings:
                case.set("file", str(report.notebook))
                case.set("line", str(findings[0].line or 1))
                failure = ET.SubElement(case, "failure", type=findings[0].kind)
                failure.set("message", _NOT_XML.sub("\ufffd", findings[0].message))
                lines = "\n".join(f"{finding}\n{finding.detail}".rstrip() for finding in findings)
                failure.text = _NOT_XML.sub("\ufffd", lines)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
