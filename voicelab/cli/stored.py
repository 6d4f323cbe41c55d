"""``voicelab voices``: make a voice, show, list, delete; ``voicelab weights``: check, accept, compile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from voicelab.cli.console import VOICE_FIELDS, BackendAddress, Device, options_of, say_line
from voicelab.errors import MissingExtra
from voicelab.lab import connect
from voicelab.schema import VoiceCreate
from voicelab.voices.store import LOCAL_OWNER, VoiceStore

voices = typer.Typer(
    help="Make voices from recordings, show and delete them.", no_args_is_help=True, rich_markup_mode=None
)


@voices.command()
@options_of(VOICE_FIELDS)
def create(
    title: Annotated[str, typer.Argument(metavar="TITLE", help="Name of the voice.", show_default=False)],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Recordings (WAV, MP3, FLAC) of one speaker.", show_default=False),
    ],
    *,
    backend: BackendAddress = None,
    device: Device = None,
    fields: dict[str, Any],
) -> None:
    """Make a voice from recordings and print its id, last on stdout; say it with voicelab say --voice ID."""
    recordings = [path.read_bytes() for path in files]
    # Everything is checked before a backend is made, which takes longer than to say no.
    VoiceCreate.build(**{"title": title, "voices": recordings, "visibility": "private", **fields})
    with connect(backend or None, device=device) as lab:
        voice = lab.create_voice(title, recordings, **fields)
    samples = len(voice.samples)
    summary = f"{voice.title}: {voice.state}, {voice.visibility}, {samples} recording{'s' if samples != 1 else ''}"
    say_line(f"{summary}; this is its id:", to_stderr=True)
    say_line(voice.id)


@voices.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The voice's id.", show_default=False)],
    *,
    backend: BackendAddress = None,
    device: Device = None,
) -> None:
    """Print the record of a voice as JSON."""
    with connect(backend or None, device=device) as lab:
        voice = lab.get_voice(id)
    say_line(json.dumps(voice.to_wire(), indent=2, ensure_ascii=False))


@voices.command("list")
def listed() -> None:
    """List the voices made on this machine: id, state, date and title, the newest first."""
    # The store is asked, not a backend: a service could not tell, and an engine takes a while to load.
    with VoiceStore() as store:
        for voice in store.listed(LOCAL_OWNER):
            say_line(f"{voice.id}  {voice.state:8}  {voice.created_at:%Y-%m-%d}  {voice.title}")


@voices.command()
def delete(id: Annotated[str, typer.Argument(metavar="ID", help="The voice's id.", show_default=False)]) -> None:
    """Delete a voice made on this machine, and its recordings, for good."""
    with VoiceStore() as store:
        store.remove(id, LOCAL_OWNER)
    say_line(f"{id} and its recordings are deleted.", to_stderr=True)


weights = typer.Typer(help="Check open weights, and accept their license.", no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[
    Path, typer.Argument(metavar="PATH", help="Folder with S2-Pro, S1-mini or both.", show_default=False)
]


@weights.command()
def check(path: Folder) -> None:
    """Compare sizes, digests and tensors with those published; what could not be verified is said. Status 1: a problem."""
    with MissingExtra.where("local", "reading weights"):
        from voicelab.engine.dual.folder import check_weights
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
    with MissingExtra.where("local", "reading weights"):
        from voicelab.engine.dual.folder import LICENSES, model_folders
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


@weights.command("compile")
def compile_(
    path: Folder, *, device: Annotated[str | None, typer.Option(help="As torch names it; by default a GPU.")] = None
) -> None:
    """Compile the models for a device, so that no sentence waits for it; the code is kept in VOICELAB_HOME."""
    with MissingExtra.where("local", "compiling weights"):
        from voicelab.engine.local import compile_weights
    for model, seconds in compile_weights(path, device):
        say_line(f"{model}: ready after {seconds:.0f} s")
