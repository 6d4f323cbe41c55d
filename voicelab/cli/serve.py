"""``voicelab serve``: put a backend behind the interface's HTTP; ``voicelab keys``: the keys of its callers."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from voicelab.cli.console import Device, say_line, whole_number
from voicelab.errors import RequestInvalid
from voicelab.registry import open_backend, split_address
from voicelab.service.keys import ApiKey, KeyStore, lifetime
from voicelab.service.run import LOOPBACK, PORT
from voicelab.service.run import serve as run
from voicelab.voices.store import VoiceStore


def serve(
    *,
    host: Annotated[str, typer.Option(help="Address to listen at; by default this machine alone can call.")] = LOOPBACK,
    port: Annotated[str, typer.Option(metavar="N", help="Port to listen at; 0 takes any free one.")] = str(PORT),
    backend: Annotated[
        str, typer.Option(metavar="NAME:ADDRESS", help="Who speaks; voicelab doctor lists the backends.")
    ] = "local:",
    device: Device = None,
    openai: Annotated[bool, typer.Option("--openai", help="Answer OpenAI's speech API too, below /v1.")] = False,
) -> None:
    """Serve the embedded voice, or any other backend, until Ctrl-C or SIGTERM. Keys are made with voicelab keys create."""
    number = whole_number("port", port)
    if number is None or not 0 <= number <= 65535:
        raise RequestInvalid.of("port", f"should be 0 to 65535, not {port}")
    # The keys first: they are quick to open, and a store that cannot be used is quick to tell.
    with KeyStore() as keys, VoiceStore(exclusive=True) as voices:
        kept = voices if split_address(backend)[0] == "local" else None
        speaker = open_backend(backend, device=device, voices=kept)
        try:
            run(speaker, host, number, keys=keys, openai=openai, say=partial(say_line, to_stderr=True))
        finally:
            speaker.close()


keys = typer.Typer(help="Make, list and revoke the keys of the service.", no_args_is_help=True, rich_markup_mode=None)


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="Who uses the key.", show_default=False)],
    *,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lifetime: 90m, 12h, 30d, 4w.", show_default=False)
    ] = None,
    credit: Annotated[
        str | None,
        typer.Option(metavar="N", help="Characters it may speak (default: not counted).", show_default=False),
    ] = None,
) -> None:
    """Make a key and print its secret once, last on stdout. It is kept nowhere."""
    expires_in = lifetime(expires) if expires is not None else None
    characters = whole_number("credit", credit)
    with KeyStore() as store:
        created = store.create(name, expires_in=expires_in, credit=characters)
    say_line(f"{_describe(created.key)}; this is its secret, shown once:", to_stderr=True)
    say_line(created.secret)


@keys.command("list")
def list_keys() -> None:
    """List the keys, the oldest first, by the beginning of their secrets."""
    with KeyStore() as store:
        listed = store.list()
    if not listed:
        say_line("there are no keys; voicelab keys create NAME makes one", to_stderr=True)
    for key in listed:
        say_line(_describe(key))


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The key's name, or the beginning of its secret.", show_default=False)],
) -> None:
    """Refuse a key from now on, for good."""
    with KeyStore() as store:
        revoked = store.revoke(key)
    say_line(_describe(revoked))


def _describe(key: ApiKey) -> str:
    parts = [f"{key.prefix}…", key.name, key.state(datetime.now(UTC)), f"made {key.created_at:%Y-%m-%d}"]
    if key.expires_at is not None:
        parts.append(f"expires {key.expires_at:%Y-%m-%d %H:%M} UTC")
    if key.credit is not None:
        parts.append(f"{key.credit} characters left")
    return "  ".join(parts)
