"""``voicelab evaluate``: score backends on a list of texts and voice prompts."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from voicelab.cli.console import BackendAddress, Device, print_line
from voicelab.errors import ArgumentError
from voicelab.lab import connect
from voicelab.sweeps.evaluation import PROTOCOLS
from voicelab.sweeps.evaluation import evaluate as evaluate_list


def _model(what: str) -> Any:
    return typer.Option(metavar="NAME", help=f"{what} (default: protocol's, else voicelab's).", show_default=False)


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
    seed: Annotated[int, typer.Option(metavar="INTEGER", min=0, help="Source of the seeds of the repeats.")] = 0,
    metrics: Annotated[
        str | None,
        typer.Option("-m", "--metrics", metavar="NAMES", help="Metrics, comma-separated.", show_default=False),
    ] = None,
    recognizer: Annotated[str | None, _model("ASR model of WER, such as faster-whisper or pocketsphinx")] = None,
    normalizer: Annotated[str | None, _model("Text normalizer of WER")] = None,
    encoder: Annotated[str | None, _model("Speaker encoder")] = None,
    predictor: Annotated[str | None, _model("MOS predictor")] = None,
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
    """Synthesize and score every row of LIST, with intervals. Running the command again resumes."""
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
        result = evaluate_list(items, folder=folder, metrics=metrics.split(",") if metrics else None, **arguments)
    print_line(json.dumps(result.record(), ensure_ascii=False) if as_json else repr(result))
