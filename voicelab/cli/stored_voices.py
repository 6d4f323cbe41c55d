"""``voicelab voices``: make a voice from recordings, show one, list them, delete one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from voicelab.cli.console import say_line
from voicelab.cli.options import BackendAddress, Device, voice_options
from voicelab.lab import connect
from voicelab.schema import VoiceCreate
from voicelab.voices.store import LOCAL_OWNER, VoiceStore

__all__ = ["voices"]

voices = typer.Typer(
    help="Make voices from recordings, show and delete them.", no_args_is_help=True, rich_markup_mode=None
)


@voices.command()
@voice_options
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
