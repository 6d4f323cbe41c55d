"""``voicelab replay``: do a run again and say what became of each take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voicelab.cli.console import say_line
from voicelab.lab import connect

if TYPE_CHECKING:
    from rich.table import Table

    from voicelab.experiments.replay import Comparison, ReplayReport

__all__ = ["replay"]

_LONGEST_TEXT = 40
# In a file or a log no line needs to be broken.
_FILE_COLUMNS = 240

ManifestFile = Annotated[Path, typer.Argument(metavar="MANIFEST", help="What the run wrote.", show_default=False)]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="VOICELAB_BASE_URL",
        help="Service to use, with the key in VOICELAB_API_KEY. Without it the embedded voice speaks.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Where the embedded voice runs: cpu, cuda, cuda:1 …", show_default=False),
]
Takes = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where the takes' audio is, if no longer beside the run.", show_default=False),
]
Threads = Annotated[int, typer.Option(metavar="INTEGER", min=1, help="Takes asked for at once.")]
CheckSeeds = Annotated[
    bool, typer.Option("--check-seeds", help="Also check what the backend declares of its seeds, by speaking anew.")
]


def replay(
    manifest: ManifestFile,
    *,
    base_url: BaseUrl = None,
    device: Device = None,
    takes: Takes = None,
    threads: Threads = 4,
    check_seeds: CheckSeeds = False,
) -> None:
    """Do the run of MANIFEST again; say of each take whether it is identical, within tolerance or different.

    The exit status is 0 when every take is identical or within tolerance, 1 when one is not, 2 when the
    run cannot be done again.
    """
    from rich.console import Console

    from voicelab.experiments.manifest import load
    from voicelab.experiments.replay import check_seed_claim
    from voicelab.experiments.replay import replay as again

    run = load(manifest, folder=takes)
    with connect(base_url or None, device=device) as lab:
        say_line(f"{manifest}: {len(run)} takes, again by {lab.capabilities.name} on {lab.capabilities.device}")
        report = again(run, lab.backend, threads=threads)
        honest = True
        if check_seeds:
            checked = check_seed_claim(lab.backend)
            honest = checked.honest
            told = f" ({checked.reason})" if checked.reason else ""
            say_line(f"seeds: declared {checked.declared}, observed {checked.observed}{told}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_COLUMNS)
    console.print(_table(report))
    for note in report.notes:
        say_line(f"note: {note}", to_stderr=True)
    say_line(str(report))
    if not (report.same and honest):
        raise typer.Exit(1)


def _table(report: ReplayReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("take", "text", "seed", "repeat", "verdict", "s", "dB", "cents", "mel dB", "", box=None)
    for number, item in enumerate(report.comparisons, start=1):
        take = item.before
        words = " ".join(take.request.text.split())
        short = words if len(words) <= _LONGEST_TEXT else words[: _LONGEST_TEXT - 1] + "…"
        seed = "" if take.provenance.seed is None else str(take.provenance.seed)
        # Text, because what people say may look like markup.
        cells = (str(number), short, seed, str(take.repeat), item.verdict, *_differences(item), item.reason)
        table.add_row(*map(Text, cells))
    return table


def _differences(item: Comparison) -> tuple[str, ...]:
    values = ((item.duration, 3), (item.level, 1), (item.f0, 0), (item.mel, 1))
    return tuple(
        "" if value is None or item.verdict == "identical" else f"{value:+.{digits}f}" for value, digits in values
    )
