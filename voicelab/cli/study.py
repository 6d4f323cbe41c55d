"""``voicelab sweep``, ``replay``, ``evaluate``: sweeps; ``measure``, ``compare``: recordings; ``knobs``: parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicelab.cli.console import EXIT_INVALID, BackendAddress, Device, print_line
from voicelab.errors import ArgumentError, ExecutorError, MissingExtra, RequestInvalid, VoicelabError, shortened
from voicelab.lab import connect
from voicelab.runs.cache import Cache
from voicelab.storage import check_folder, check_writable, write_atomic
from voicelab.sweeps.evaluation import PROTOCOLS
from voicelab.sweeps.spec import in_file, read_spec
from voicelab.tables import bytes_of
from voicelab.takes.export import write_files

Spec = Annotated[
    Path,
    typer.Argument(metavar="SPEC", help="TOML file: text or rows, [fields], [axes], [budget]; or a table of rows."),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FOLDER",
        help="Folder for the run, takes.csv and audio/ (default: the file's name without its suffix). "
        "An interrupted sweep resumes there.",
        show_default=False,
    ),
]


def sweep(
    spec: Spec,
    *,
    output: Folder = None,
    repeats: Annotated[
        int | None,
        typer.Option(metavar="INTEGER", min=1, help="Takes per cell (default: from SPEC, or 1).", show_default=False),
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Print an estimate and exit.")] = False,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786.", show_default=False)
    ] = None,
    backend: BackendAddress = None,
    device: Device = None,
) -> None:
    """Synthesize the missing takes of SPEC. Ctrl-C stops; running the command again resumes."""
    from voicelab.views.notebook import progress

    with in_file(spec):
        spec_file = read_spec(spec)
    folder = output if output is not None else spec.with_suffix("")
    check_folder(folder)
    if folder == spec:
        message = f"{spec} has no suffix, so a folder is required: pass --output"
        raise RequestInvalid.of("output", message, in_="query")
    _check_spec(folder, spec)
    with ExitStack() as opened:
        lab = opened.enter_context(connect(spec_file.backend or backend or None, device=device))
        labs = {name: opened.enter_context(connect(address)) for name, address in spec_file.backends.items()}
        arguments = {**spec_file.options, **({} if repeats is None else {"repeats": repeats})}
        with in_file(spec):
            plan = lab.sweep(spec_file.text, lab=labs, **arguments)
        cost = plan.estimate(Cache(folder, max_bytes=None))
        print_line(str(cost))
        if estimate:
            return
        spec_file.budget.check(cost)
        write_atomic(folder / _SPEC_FOLDER / spec.name, bytes_of(spec))
        with _cluster(dask) as executor:
            run = plan.start(folder, executor=executor, budget=spec_file.budget, **spec_file.run)
            try:
                for _ in progress(run, "takes"):
                    pass
            except KeyboardInterrupt:
                run.cancel()
                with suppress(VoicelabError):  # Ctrl-C ends the processes of a local cluster too
                    run.wait()
            except ExecutorError as error:
                print_line(str(error), to_stderr=True)
        table = plan.table(run)
        # Replaces the table of an earlier version of the spec; the run has the takes of all versions.
        write_files(folder, table.frame(), [row for row in table.rows if row.state != "waiting"], replace=True)
    print_line(f"{folder}: {run.progress}")
    for note in table.notes:
        print_line(f"note: {note}", to_stderr=True)
    for row in table.failures if table.state != "failed" else ():
        print_line(f"failed: {dict(row.labels)}: {row.error}", to_stderr=True)
    if table.state != "done" or table.failures:
        raise typer.Exit(1)


_SPEC_FOLDER = "spec"


def _check_spec(folder: Path, spec: Path) -> None:
    """Raise RequestInvalid if a folder contains another sweep or table, because it would be replaced."""
    names = [path.name for path in sorted((folder / _SPEC_FOLDER).glob("*"))]
    names = names or [path.name for path in folder.glob("takes.csv")]
    if names and spec.name not in names:
        message = f"must be new or contain an earlier sweep of {spec.name}, got {folder} with {', '.join(names)}"
        raise RequestInvalid.of("output", message, in_="query")


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
        raise RequestInvalid.of("dask", f"cannot connect to a scheduler at {address}: {error}", in_="query") from None
    with client:
        yield client


if TYPE_CHECKING:
    from rich.table import Table

    from voicelab.takes.replay import ReplayReport, TakeComparison


_MAX_TEXT_CHARACTERS = 40
# Width if stdout is not a terminal, so that no line wraps in a file or log.
_FILE_COLUMNS = 240


def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a sweep, a recording or a cache.", show_default=False)
    ],
    *,
    backend: BackendAddress = None,
    device: Device = None,
    threads: Annotated[int, typer.Option(metavar="INTEGER", min=1, help="Concurrent requests.")] = 4,
    check_seeds: Annotated[
        bool, typer.Option("--check-seeds", help="Also test the backend's declared seed support.")
    ] = False,
) -> None:
    """Reproduce the run in FOLDER and report each take as identical, within tolerance, or different.

    Exits with status 0 if every take is identical or within tolerance, 1 if a take is different, 2 if the run
    cannot be reproduced or its folder is incomplete: damaged lines, missing takes, missing or modified audio, wrong labels.
    """
    from rich.console import Console

    from voicelab.takes.collection import load
    from voicelab.takes.replay import check_seed_claim
    from voicelab.takes.replay import replay as replay_run

    run = load(folder)
    with connect(backend or None, device=device) as lab:
        print_line(f"{folder}: {len(run)} takes, replayed by {lab.capabilities.name} on {lab.capabilities.device}")
        report = replay_run(run, lab.backend, threads=threads)
        honest = True
        if check_seeds:
            checked = check_seed_claim(lab.backend)
            honest = checked.honest
            reason = f" ({checked.reason})" if checked.reason else ""
            print_line(f"seeds: declared {checked.declared}, observed {checked.observed}{reason}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_COLUMNS)
    console.print(_table(report))
    for note in report.notes:
        print_line(f"note: {note}", to_stderr=True)
    for problem in report.problems:
        print_line(f"problem: {problem}", to_stderr=True)
    print_line(str(report))
    if report.problems:
        raise typer.Exit(EXIT_INVALID)
    if not (report.same and honest):
        raise typer.Exit(1)


def knobs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Fields and parameters to check (default: all).")
    ] = None,
    *,
    backend: BackendAddress = None,
    device: Device = None,
    repeats: Annotated[int, typer.Option(metavar="INTEGER", min=2, help="Repeats per text and value.")] = 3,
) -> None:
    """Vary each field and backend parameter, test whether it has an effect, and compare with the declared capabilities.

    Exits with status 1 if a result contradicts the capabilities.
    """
    with connect(backend or None, device=device) as lab:
        checked = lab.check_knobs(*(name.replace("-", "_") for name in names or ()), repeats=repeats)
    for finding in checked.findings:
        print_line(str(finding))
    if not checked.honest:
        raise typer.Exit(1)


def _table(report: ReplayReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("take", "text", "seed", "repeat", "verdict", "s", "dB", "cents", "mel dB", "", box=None)
    for number, item in enumerate(report.comparisons, start=1):
        take = item.before
        text = shortened(" ".join(take.request.text.split()), _MAX_TEXT_CHARACTERS)
        seed = "" if take.seed is None else str(take.seed)
        # rich.text.Text, because request texts may contain markup.
        cells = (str(number), text, seed, str(take.repeat), item.verdict, *_differences(item), item.reason)
        table.add_row(*map(Text, cells))
    return table


def _differences(item: TakeComparison) -> tuple[str, ...]:
    values = ((item.duration, 3), (item.level, 1), (item.f0, 0), (item.mel, 1))
    return tuple("" if x is None or item.verdict == "identical" else f"{x:+.{digits}f}" for x, digits in values)


Metrics = Annotated[
    str, typer.Option("-m", "--metrics", metavar="NAME,…", help="Metrics, separated by commas.", show_default=False)
]
Jobs = Annotated[int, typer.Option(metavar="INTEGER", min=1, help="Parallel processes.")]
OnError = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="raise|skip",
        help="Exit with a list of all unreadable files, or exclude them.",
    ),
]


def measure(
    files: Annotated[list[Path], typer.Argument(metavar="FILES…", help="Audio files in any format, and folders.")],
    *,
    metrics: Metrics = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="TABLE", help="A .csv or .parquet file (default: stdout).")
    ] = None,
    jobs: Jobs = 1,
    on_error: OnError = "raise",
) -> None:
    """Measure recordings: one row per file, one column per metric.

    Texts are read from NAME.txt or NAME.lab next to a file, or as in VCTK and LibriSpeech.
    """
    from voicelab.metrics import BASIC
    from voicelab.metrics import measure as measure_files
    from voicelab.recordings import Report, skipped_note
    from voicelab.tables import csv_bytes
    from voicelab.views.notebook import progress

    suffix = ".csv" if output is None else output.suffix.lower()
    if suffix not in {".csv", ".parquet"}:
        raise RequestInvalid.of("output", f"must end in .csv or .parquet, got {str(output)!r}", in_="query")
    if suffix == ".parquet" and not any(map(find_spec, ("pyarrow", "fastparquet"))):
        message = "Parquet requires pyarrow: pip install pyarrow, or write a .csv"
        raise RequestInvalid.of("output", message, in_="query")
    if output is not None:
        check_writable(output)
    options: Any = {"jobs": jobs, "on_error": on_error, "progress": progress}
    frame = measure_files(files, _split(metrics) or BASIC, **options)
    if output is None:
        print_line(frame.round(4).to_string(index=False))
    else:
        data = csv_bytes(frame) if suffix == ".csv" else frame.to_parquet(index=False)
        write_atomic(output, data)
    if note := frame.attrs.get("note"):
        print_line(note, to_stderr=output is not None)
    if excluded := frame.attrs["excluded"]:
        print_line(f"note: not measured: {skipped_note(Report(excluded))}", to_stderr=True)


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FOLDERS…", help="One folder per system, or a pattern, a table or a webMUSHRA YAML."),
    ],
    *,
    metrics: Metrics = "",
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PAGE", help="HTML file.")] = Path("systems.html"),
    transcribe: Annotated[bool, typer.Option("--transcribe", help="Transcribe recordings that have no text.")] = False,
    jobs: Jobs = 1,
    on_error: OnError = "raise",
) -> None:
    """Write an HTML comparison of systems: loudness-matched recordings, metrics and differences."""
    from voicelab.takes.collection import COLLECTED_METRICS, collect
    from voicelab.views.notebook import progress
    from voicelab.views.sweep_tables import check_page

    folders = {Path(source).name or source: source for source in sources}
    if len(folders) < len(sources):  # A/wav and B/wav
        folders = {source: source for source in sources}
    check_page(output)
    chosen, source = _split(metrics) or COLLECTED_METRICS, sources[0] if len(sources) == 1 else folders
    options: Any = {"jobs": jobs, "on_error": on_error, "progress": progress}
    systems = collect(source, metrics=chosen, transcribe=transcribe, **options)
    print_line(f"{systems.page(output)}: {', '.join(systems.systems)}; {len(systems)} takes")
    notes = [f"Playback is {systems.loudness_note}."] if "except" in systems.loudness_note else []
    for note in [*systems.notes, *notes]:
        print_line(f"note: {note}", to_stderr=True)
    for record in systems.excluded:
        print_line(f"excluded: {record['file']}: {record['reason']}", to_stderr=True)


def _split(metrics: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in metrics.split(",") if name.strip())


def _model(role: str) -> Any:
    return typer.Option(
        metavar="NAME", help=f"{role} (default: that of the protocol, else of voicelab).", show_default=False
    )


def evaluate(
    items: Annotated[
        Path,
        typer.Argument(
            metavar="LIST",
            help="id|prompt text|prompt wav|text (.lst), a table with text, reference_audio, reference_text, or a folder.",
        ),
    ],
    *,
    protocol: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(PROTOCOLS)}.")] = "seed-tts-eval",
    backend: BackendAddress = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Another backend to compare with; repeatable.", show_default=False),
    ] = None,
    device: Device = None,
    repeats: Annotated[int, typer.Option(metavar="INTEGER", min=1, help="Takes per row and backend.")] = 3,
    seed: Annotated[int, typer.Option(metavar="INTEGER", min=0, help="Seed for drawing the repeats' seeds.")] = 0,
    metrics: Annotated[
        str | None,
        typer.Option("-m", "--metrics", metavar="NAMES", help="Metrics, comma-separated.", show_default=False),
    ] = None,
    recognizer: Annotated[str | None, _model("ASR model of WER, such as faster-whisper or pocketsphinx")] = None,
    normalizer: Annotated[str | None, _model("Text normalizer of WER")] = None,
    encoder: Annotated[str, _model("Speaker encoder")] = "resemblyzer",
    predictor: Annotated[str, _model("MOS predictor")] = "dnsmos",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            help="Run folder (default: LIST-evaluation, without the suffix of LIST).",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Synthesize every row of LIST and score the systems, with confidence intervals; running the command again resumes."""
    from voicelab.sweeps.evaluation import evaluate as evaluate_list
    from voicelab.views.notebook import progress

    with ExitStack() as opened:
        labs = {backend or "local:": opened.enter_context(connect(backend, device=device))}
        for address in against or ():
            if address in labs:
                raise ArgumentError.of("against", f"must be a backend other than {', '.join(labs)}, got {address}")
            labs[address] = opened.enter_context(connect(address))
        models = {"recognizer": recognizer, "normalizer": normalizer, "encoder": encoder, "predictor": predictor}
        arguments: Any = {
            "protocol": protocol,
            "repeats": repeats,
            "seed": seed,
            "progress": progress,
            **models,
            **labs,
        }
        folder = output or items.with_name(f"{items.stem}-evaluation")
        result = evaluate_list(items, folder=folder, metrics=_split(metrics or ""), **arguments)
    print_line(json.dumps(result.record(), ensure_ascii=False) if as_json else repr(result))
