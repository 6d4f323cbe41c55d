"""Studies: ``sweep`` and ``replay`` run a grid out of a file, and again; ``measure`` and ``compare`` take recordings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicelab.cli.console import EXIT_INVALID, BackendAddress, Device, say_line
from voicelab.errors import ExecutorError, MissingExtra, RequestInvalid, VoicelabError, shortened
from voicelab.lab import connect
from voicelab.runs.cache import Cache
from voicelab.storage import check_folder, check_writable, write_atomic
from voicelab.sweeps.spec import read_spec

Folder = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FOLDER",
        help="Where the run, takes.csv and audio/ go; the file's name without its suffix when not given. "
        "With what is there already the sweep goes on.",
        show_default=False,
    ),
]


def sweep(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help="A TOML file: text or rows, [fields], [axes], [budget]; or rows: a .csv file."
        ),
    ],
    *,
    output: Folder = None,
    repeats: Annotated[
        int | None,
        typer.Option(metavar="INTEGER", min=1, help="Takes of each; as SPEC says, or 1.", show_default=False),
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it would take, and make nothing.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Dask scheduler to work on, such as tcp://host:8786.", show_default=False),
    ] = None,
    backend: BackendAddress = None,
    device: Device = None,
) -> None:
    """Make every take of SPEC that is not there yet; Ctrl-C stops, the same command goes on."""
    from voicelab.views.notebook import progress

    spec_file = read_spec(spec)
    folder = output if output is not None else spec.with_suffix("")
    check_folder(folder)
    if folder == spec:
        raise RequestInvalid.of(
            "output", f"{spec} has no suffix to leave out; name a folder with --output", in_="query"
        )
    with ExitStack() as opened:
        lab = opened.enter_context(connect(spec_file.backend or backend or None, device=device))
        labs = {name: opened.enter_context(connect(address)) for name, address in spec_file.backends.items()}
        asked = {**spec_file.asked, **({} if repeats is None else {"repeats": repeats})}
        work = lab.sweep(spec_file.text, lab=labs, **asked)
        needed = work.estimate(Cache(folder, max_bytes=None))
        say_line(str(needed))
        if estimate:
            return
        spec_file.budget.check(needed)
        with _cluster(dask) as executor:
            run = work.start(folder, executor=executor, budget=spec_file.budget, **spec_file.run)
            try:
                for _ in progress(run, "takes"):
                    pass
            except KeyboardInterrupt:  # what is made is kept
                run.cancel()
                with suppress(VoicelabError):  # Ctrl-C ends the processes of a local cluster too
                    run.wait()
            except ExecutorError as error:
                say_line(str(error), to_stderr=True)
        table = work.table(run)
        table.export(folder)
    say_line(f"{folder}: {run.progress}")
    for note in table.notes:
        say_line(f"note: {note}", to_stderr=True)
    for row in table.failures if table.state != "failed" else ():
        say_line(f"failed: {dict(row.labels)}: {row.error}", to_stderr=True)
    if table.state != "done" or table.failures:
        raise typer.Exit(1)


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    if address is None:
        yield None
        return
    with MissingExtra.where("cluster", "a sweep on a Dask cluster"):
        from distributed import Client
    try:
        client = Client(address, timeout="10s")  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise RequestInvalid.of("dask", f"there is no scheduler at {address}: {error}", in_="query") from None
    with client:
        yield client


if TYPE_CHECKING:
    from rich.table import Table

    from voicelab.takes.replay import ReplayReport, TakeComparison


_LONGEST_TEXT = 40
# In a file or a log no line needs to be broken.
_FILE_COLUMNS = 240


def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="What a sweep, a recording or a cache wrote.", show_default=False)
    ],
    *,
    backend: BackendAddress = None,
    device: Device = None,
    threads: Annotated[int, typer.Option(metavar="INTEGER", min=1, help="Takes asked for at once.")] = 4,
    check_seeds: Annotated[
        bool, typer.Option("--check-seeds", help="Also check what the backend declares of its seeds, by speaking anew.")
    ] = False,
) -> None:
    """Do the run of FOLDER again; say of each take whether it is identical, within tolerance or different.

    The exit status is 0 when every take is identical or within tolerance, 1 when one is not, 2 when the
    run cannot be done again, or its folder is no full record of it: damaged lines, missing takes, sounds that are
    gone or changed, labels that are not true.
    """
    from rich.console import Console

    from voicelab.takes.loading import load
    from voicelab.takes.replay import check_seed_claim
    from voicelab.takes.replay import replay as again

    run = load(folder)
    with connect(backend or None, device=device) as lab:
        say_line(f"{folder}: {len(run)} takes, again by {lab.capabilities.name} on {lab.capabilities.device}")
        report = again(run, lab.backend, threads=threads)
        honest = True
        if check_seeds:
            checked = check_seed_claim(lab.backend)
            honest = checked.honest
            reason = f" ({checked.reason})" if checked.reason else ""
            say_line(f"seeds: declared {checked.declared}, observed {checked.observed}{reason}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_COLUMNS)
    console.print(_table(report))
    for note in report.notes:
        say_line(f"note: {note}", to_stderr=True)
    for problem in report.problems:
        say_line(f"problem: {problem}", to_stderr=True)
    say_line(str(report))
    if report.problems:
        raise typer.Exit(EXIT_INVALID)
    if not (report.same and honest):
        raise typer.Exit(1)


def knobs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Fields and knobs to check; all when none is named.")
    ] = None,
    *,
    backend: BackendAddress = None,
    device: Device = None,
    repeats: Annotated[int, typer.Option(metavar="INTEGER", min=2, help="Takes of each text at each value.")] = 3,
) -> None:
    """Turn every field and knob of a backend; say of each whether it acts, and whether that is what is declared.

    The exit status is 1 when something contradicts what is declared.
    """
    with connect(backend or None, device=device) as lab:
        checked = lab.check_knobs(*(name.replace("-", "_") for name in names or ()), repeats=repeats)
    for finding in checked.findings:
        say_line(str(finding))
    if not checked.honest:
        raise typer.Exit(1)


def _table(report: ReplayReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("take", "text", "seed", "repeat", "verdict", "s", "dB", "cents", "mel dB", "", box=None)
    for number, item in enumerate(report.comparisons, start=1):
        take = item.before
        words = " ".join(take.request.text.split())
        short = shortened(words, _LONGEST_TEXT)
        seed = "" if take.seed is None else str(take.seed)
        # Text, because what people say may look like markup.
        cells = (str(number), short, seed, str(take.repeat), item.verdict, *_differences(item), item.reason)
        table.add_row(*map(Text, cells))
    return table


def _differences(item: TakeComparison) -> tuple[str, ...]:
    values = ((item.duration, 3), (item.level, 1), (item.f0, 0), (item.mel, 1))
    return tuple("" if one is None or item.verdict == "identical" else f"{one:+.{digits}f}" for one, digits in values)


Metrics = Annotated[
    str,
    typer.Option(
        "-m", "--metrics", metavar="NAME,…", help="What is measured, with commas between.", show_default=False
    ),
]
Jobs = Annotated[int, typer.Option(metavar="INTEGER", min=1, help="Processes that measure.")]


def measure(
    files: Annotated[list[Path], typer.Argument(metavar="FILES…", help="Files and folders of sound, of any format.")],
    *,
    metrics: Metrics = "",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="TABLE", help="A .csv or .parquet file; printed when not given."),
    ] = None,
    jobs: Jobs = 1,
) -> None:
    """Measure recordings: a row for each, a column for each metric. Texts are in NAME.txt or NAME.lab beside them."""
    from voicelab.metrics import BASIC
    from voicelab.metrics import measure as table_of
    from voicelab.tables import csv_bytes
    from voicelab.views.notebook import progress

    suffix = ".csv" if output is None else output.suffix.lower()
    if suffix not in {".csv", ".parquet"}:
        raise RequestInvalid.of("output", f"{output} should end in .csv or .parquet", in_="query")
    if suffix == ".parquet" and not any(map(find_spec, ("pyarrow", "fastparquet"))):
        message = "pandas writes no Parquet without pyarrow: pip install pyarrow, or write a .csv"
        raise RequestInvalid.of("output", message, in_="query")
    if output is not None:
        check_writable(output)
    frame = table_of(files, _listed(metrics) or BASIC, jobs=jobs, progress=progress)
    if output is None:
        say_line(frame.round(4).to_string(index=False))
    else:
        data = csv_bytes(frame) if suffix == ".csv" else frame.to_parquet(index=False)
        write_atomic(output, data)
    if note := frame.attrs.get("note"):
        say_line(note, to_stderr=output is not None)


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FOLDERS…", help="A folder for each system, or one pattern, table or webMUSHRA's YAML."),
    ],
    *,
    metrics: Metrics = "",
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PAGE", help="The HTML file.")] = Path(
        "systems.html"
    ),
    transcribe: Annotated[bool, typer.Option("--transcribe", help="Recognise texts that are nowhere.")] = False,
    jobs: Jobs = 1,
) -> None:
    """Write a page of systems: their recordings at one loudness, what is measured of them, and how far they differ."""
    from voicelab.takes.collection import COLLECTED_METRICS, collect
    from voicelab.views.notebook import progress
    from voicelab.views.sweep_tables import check_page

    named = {Path(one).name or one: one for one in sources}
    if len(named) < len(sources):  # A/wav and B/wav
        named = {one: one for one in sources}
    source = sources[0] if len(sources) == 1 else named
    check_page(output)
    chosen = _listed(metrics) or COLLECTED_METRICS
    systems = collect(source, metrics=chosen, transcribe=transcribe, jobs=jobs, progress=progress)
    say_line(f"{systems.page(output)}: {', '.join(systems.systems)}; {len(systems)} takes")
    notes = [f"Sound is {systems.loudness_note}."] if "except" in systems.loudness_note else []
    for note in [*systems.notes, *notes]:
        say_line(f"note: {note}", to_stderr=True)


def _listed(metrics: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in metrics.split(",") if name.strip())
