"""``voicelab check``: whether notebooks run offline, still show what they showed, and hold nothing they should not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicelab.checks import Limits
from voicelab.checks import check as look
from voicelab.cli.console import say_line

__all__ = ["check"]

_MIB = 2**20

Notebooks = Annotated[list[Path], typer.Argument(metavar="NOTEBOOKS…", help="Executed notebooks.", show_default=False)]
Execute = Annotated[bool, typer.Option(help="Run them and compare, or only look at the files.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How long a cell may run.")]
MaxOutput = Annotated[float, typer.Option(metavar="MIB", min=0, help="How large an output may be.")]
MaxNotebook = Annotated[float, typer.Option(metavar="MIB", min=0, help="How large a notebook may be.")]
Masks = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Further masks, in nbval's format; repeatable.", show_default=False),
]


def check(
    notebooks: Notebooks,
    *,
    execute: Execute = True,
    timeout: Timeout = 300.0,
    max_output: MaxOutput = 1.0,
    max_notebook: MaxNotebook = 1.5,
    masks: Masks = None,
) -> None:
    """Run each notebook offline in a fresh kernel, compare its outputs strictly, and look for what must not be in it.

    One line for each finding, `notebook:cell: kind: what`, cells counted from 1. The exit status is 1 when there
    is any. Sockets that leave this machine are refused; the key and the address of a service are taken away.
    """
    limits = Limits(round(max_output * _MIB), round(max_notebook * _MIB), timeout)
    found = 0
    for notebook in notebooks:
        findings = look(notebook, limits=limits, masks=masks or (), run=execute)
        for finding in findings:
            say_line(str(finding))
        found += len(findings)
        if not findings:
            say_line(f"{notebook}: as it should be")
    if found:
        raise typer.Exit(1)
