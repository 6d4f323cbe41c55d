"""``voicelab weights``: check a folder of open weights, and accept the license that they are under."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicelab.cli.console import say_line
from voicelab.errors import MissingExtra

__all__ = ["weights"]

weights = typer.Typer(help="Check open weights, and accept their license.", no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[
    Path, typer.Argument(metavar="PATH", help="Folder with S2-Pro, S1-mini or both.", show_default=False)
]


@weights.command()
def check(path: Folder) -> None:
    """Compare sizes, digests and tensors with those published; what could not be verified is said. Status 1: a problem."""
    try:
        from voicelab.engine.dual.folder import check_weights
    except ModuleNotFoundError as error:
        raise MissingExtra.of("local", "reading weights") from error
    reports = []
    for report in check_weights(path):
        say_line(str(report))
        reports.append(report)
    problems = sum(bool(report.problem) for report in reports)
    unverified = sum(bool(report.unverified) for report in reports)
    say_line(f"{len(reports)} files: {problems} with a problem, {unverified} of which not all could be verified")
    if problems:
        raise typer.Exit(1)


@weights.command()
def accept(
    path: Folder, *, yes: Annotated[bool, typer.Option("--yes", help="Accept without being asked.")] = False
) -> None:
    """Show the terms that the weights are under, and write down that they are accepted."""
    try:
        from voicelab.engine.dual.folder import LICENSES, model_folders
    except ModuleNotFoundError as error:
        raise MissingExtra.of("local", "reading weights") from error
    for folder in model_folders(path):
        license = LICENSES[folder.config.model]  # noqa: A001 - what it is
        say_line(str(license))
        for text in sorted(folder.folder.glob("LICENSE*")):
            say_line(f"Its full text: {text}")
        say_line(license.notice)
        if not yes:
            typer.confirm(f"Do you accept the {license.name}?", abort=True)
        license.accept()
        say_line(f"accepted; vl.connect('local:{path}') now speaks with {license.weights}", to_stderr=True)
