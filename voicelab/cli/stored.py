"""``voicelab voices``: create, show, list and delete voices; ``voicelab weights``: check, accept, compile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from voicelab.cli.console import VOICE_FIELDS, BackendAddress, Device, options_of, print_line
from voicelab.errors import MissingExtra, NotFound
from voicelab.lab import connect
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.voices.store import LOCAL_OWNER, VoiceStore

voices = typer.Typer(
    help="Create voices from recordings, show, list and delete them.", no_args_is_help=True, rich_markup_mode=None
)

ALL_OWNERS = "all"
Owner = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Voices that callers of the service on this machine created: name or prefix of their key, or all.",
        show_default=False,
    ),
]


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
    """Create a voice from recordings and print its id on stdout, for voicelab say --voice ID."""
    recordings = [path.read_bytes() for path in files]
    # Validate before connecting: loading a backend takes seconds.
    VoiceCreate.build(**{"title": title, "voices": recordings, "visibility": "private", **fields})
    with connect(backend or None, device=device) as lab:
        voice = lab.create_voice(title, recordings, **fields)
    samples = len(voice.samples)
    summary = f"{voice.title}: {voice.state}, {voice.visibility}, {samples} recording{'s' if samples != 1 else ''}"
    print_line(f"{summary}; id:", to_stderr=True)
    print_line(voice.id)


@voices.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The voice's id.", show_default=False)],
    *,
    backend: BackendAddress = None,
    device: Device = None,
    owner: Owner = None,
) -> None:
    """Print the record of a voice as JSON."""
    if owner is not None:
        with VoiceStore() as store:
            _, voice = _owned_voice(store, id, owner)
    else:
        with connect(backend or None, device=device) as lab:
            voice = lab.get_voice(id)
    print_line(json.dumps(voice.to_wire(), indent=2, ensure_ascii=False))


@voices.command("list")
def listed(*, owner: Owner = None) -> None:
    """List the voices stored on this machine, newest first: id, state, date, title and, with --owner, the key."""
    # Read the store: services cannot list voices, and loading an engine takes seconds.
    with VoiceStore() as store:
        for owner_id, key in _owners(store, owner).items():
            for voice in store.listed(owner_id):
                print_line(f"{voice.id}  {voice.state:8}  {voice.created_at:%Y-%m-%d}  {voice.title}{key}")


@voices.command()
def delete(
    id: Annotated[str, typer.Argument(metavar="ID", help="The voice's id.", show_default=False)], *, owner: Owner = None
) -> None:
    """Delete a voice stored on this machine and its recordings permanently."""
    with VoiceStore() as store:
        store.remove(id, LOCAL_OWNER if owner is None else _owned_voice(store, id, owner)[0])
    print_line(f"deleted {id} and its recordings", to_stderr=True)


def _owners(store: VoiceStore, owner: str | None) -> dict[str, str]:
    """Return the owner ids that --owner selects, each with a description of its key. Raises NotFound."""
    if owner is None:
        return {LOCAL_OWNER: ""}
    from voicelab.service.keys import KeyStore

    with KeyStore() as keys:
        records = keys.list() if owner == ALL_OWNERS else keys.find(owner)
    unknown = [name for name in store.owners() if name != LOCAL_OWNER] if owner == ALL_OWNERS else []
    return dict.fromkeys(unknown, "  (key unknown)") | {key.owner: f"  {key.name} ({key.prefix}…)" for key in records}


def _owned_voice(store: VoiceStore, id: str, owner: str) -> tuple[str, VoiceModel]:
    """Return the owner id and the record of a voice. Raises NotFound."""
    for owner_id in _owners(store, owner):
        for voice in store.listed(owner_id):
            if voice.id == id:
                return owner_id, voice
    raise NotFound(f"there is no voice {id} of {owner}; voicelab voices list --owner {owner} lists them")


weights = typer.Typer(
    help="Check and compile open weights, and accept their license.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[
    Path, typer.Argument(metavar="PATH", help="Folder with S2-Pro, S1-mini or both.", show_default=False)
]


@weights.command()
def check(path: Folder) -> None:
    """Compare sizes, digests and tensors with the published ones. Exits with status 1 if there are problems."""
    with MissingExtra.where("open-weights", "reading weights"):
        from voicelab.engine.dual.folder import check_weights
    reports = []
    for report in check_weights(path):
        print_line(str(report))
        reports.append(report)
    problems = sum(bool(report.problem) for report in reports)
    unverified = sum(bool(report.unverified) for report in reports)
    print_line(f"{len(reports)} files: {problems} with problems, {unverified} not fully verified")
    if problems:
        raise typer.Exit(1)


@weights.command()
def accept(
    path: Folder, *, yes: Annotated[bool, typer.Option("--yes", help="Accept without confirmation.")] = False
) -> None:
    """Print the license of the weights and record its acceptance."""
    with MissingExtra.where("open-weights", "reading weights"):
        from voicelab.engine.dual.folder import LICENSES, model_folders
    for folder in model_folders(path):
        license = LICENSES[folder.config.model]  # noqa: A001 - the field's word
        print_line(str(license))
        for text in sorted(folder.folder.glob("LICENSE*")):
            print_line(f"Full text: {text}")
        print_line(license.notice)
        if not yes:
            typer.confirm(f"Do you accept the {license.name}?", abort=True)
        license.accept()
        print_line(f"accepted; load {license.weights} with vl.connect('local:{path}')", to_stderr=True)


@weights.command("compile")
def compile_(
    path: Folder, *, device: Annotated[str | None, typer.Option(help="torch device; a GPU by default.")] = None
) -> None:
    """Compile the models for a device ahead of the first request, and cache the code in VOICELAB_HOME."""
    with MissingExtra.where("open-weights", "compiling weights"):
        from voicelab.engine.local import compile_weights
    for model, seconds in compile_weights(path, device):
        print_line(f"{model}: ready after {seconds:.0f} s")


def worker_template() -> None:
    """Print a script that runs a model in a separate Python environment, opened as ``worker:PYTHON SCRIPT``."""
    from voicelab.backends.worker import TEMPLATE

    print_line(TEMPLATE.rstrip())
