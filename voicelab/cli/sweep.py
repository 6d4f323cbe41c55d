"""``voicelab sweep``: a grid of requests out of a file, made, kept, and gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from voicelab.cli.console import say_line
from voicelab.cli.options import BaseUrl, Device
from voicelab.errors import MissingExtra, RequestInvalid
from voicelab.experiments.cache import Cache
from voicelab.experiments.sweeps.run import Run
from voicelab.experiments.sweeps.spec import read_spec
from voicelab.lab import connect

__all__ = ["sweep"]

SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file: text, [fields], [axes], [budget].")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FOLDER",
        help="Where manifest.jsonl, takes.csv and audio/ go; the file's name without .toml when not given. "
        "With what is there already the sweep goes on.",
        show_default=False,
    ),
]
EstimateOnly = Annotated[bool, typer.Option("--estimate", help="Say what it would take, and make nothing.")]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Dask scheduler to work on, such as tcp://host:8786.", show_default=False),
]


def sweep(
    spec: SpecFile,
    *,
    output: Folder = None,
    estimate: EstimateOnly = False,
    dask: Cluster = None,
    base_url: BaseUrl = None,
    device: Device = None,
) -> None:
    """Make every take of SPEC that is not there yet; Ctrl-C stops, the same command goes on."""
    said = read_spec(spec)
    folder = output if output is not None else spec.with_suffix("")
    if folder == spec:
        raise RequestInvalid.of(
            "output", f"{spec} has no suffix to leave out; name a folder with --output", in_="query"
        )
    manifest = folder / "manifest.jsonl"
    kept = Cache(manifest.with_name("manifest.takes"), max_bytes=None)
    with connect(base_url or None, device=device) as lab:
        work = lab.sweep(said.text, cache=kept, **said.asked)
        needed = work.estimate()
        say_line(str(needed))
        if estimate:
            return
        said.budget.check(needed)
        folder.mkdir(parents=True, exist_ok=True)
        with _cluster(dask) as executor:
            run = work.start(manifest=manifest, executor=executor, budget=said.budget, **said.run)
            _watch(run)
        made = work.result(run)
        made.export(folder)
    say_line(f"{folder}: {run.progress}")
    for outcome in made.failures:
        say_line(
            f"failed: {dict(outcome.job.cell.labels)} repeat {outcome.job.repeat}: {outcome.error}", to_stderr=True
        )
    if made.state != "done" or made.failures:
        raise typer.Exit(1)


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise MissingExtra.of("cluster", "a sweep on a Dask cluster") from error
    try:
        client = Client(address, timeout="10s")  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise RequestInvalid.of("dask", f"there is no scheduler at {address}: {error}", in_="query") from None
    with client:
        yield client


def _watch(run: Run) -> None:
    """Show how far it is on stderr until it is over; a keyboard interrupt stops it, and keeps what is made."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("takes", total=run.progress.total)
        try:
            while not run.wait(0.2):
                bar.update(task, completed=run.progress.done)
        except KeyboardInterrupt:
            run.cancel()
            run.wait()
        bar.update(task, completed=run.progress.done)
