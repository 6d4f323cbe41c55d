"""``voicelab serve``: serve a backend over HTTP; ``keys``: manage API keys; ``listen``: serve a listening study."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from voicelab.backends.registry import open_backend, split_address
from voicelab.cli.console import Device, options_of, parse_integer, print_line
from voicelab.errors import RequestInvalid
from voicelab.service.keys import ApiKey, KeyStore, lifetime
from voicelab.service.limits import VARIABLE, KeyLimits, Limits, describe_limits, read_limits
from voicelab.service.record import LogForm, write_log
from voicelab.service.run import LOOPBACK, PORT, raise_descriptor_limit
from voicelab.service.run import serve as run
from voicelab.voices.store import VoiceStore


@options_of(Limits.model_fields)
def serve(
    *,
    host: Annotated[str, typer.Option(help="Address to bind; the default accepts local connections only.")] = LOOPBACK,
    port: Annotated[str, typer.Option(metavar="N", help="Port; 0 selects a free port.")] = str(PORT),
    backend: Annotated[
        str, typer.Option(metavar="NAME:ADDRESS", help="Backend to serve; voicelab doctor lists the backends.")
    ] = "local:",
    device: Device = None,
    openai: Annotated[bool, typer.Option("--openai", help="Also serve OpenAI's speech API at /v1.")] = False,
    log: Annotated[
        str | None, typer.Option(metavar="json|text|none", help="Request log format; text by default on a terminal.")
    ] = None,
    log_text: Annotated[bool, typer.Option("--log-text", help="Include request texts in the log.")] = False,
    metrics: Annotated[
        str | None, typer.Option(metavar="PORT", help="Serve /metrics at this port of 127.0.0.1.")
    ] = None,
    limits: Annotated[
        Path | None, typer.Option(metavar="FILE", envvar=VARIABLE + "LIMITS", help="TOML file with limits.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Print the effective limits as TOML and exit.")] = False,
    fields: Mapping[str, Any],
) -> None:
    """Serve the embedded voice, or another backend, until Ctrl-C or SIGTERM. Create keys with voicelab keys create."""
    port_number = _port("port", port)
    effective, sources = read_limits(fields, limits)
    if log not in (None, *get_args(LogForm)):
        raise RequestInvalid.of("log", f"must be json, text or none, got {log!r}")
    metrics_port = None if metrics is None else _port("metrics", metrics)
    if check:
        print_line(describe_limits(effective, sources))
        return
    form = cast("LogForm", log or ("text" if sys.stdout.isatty() else "none"))
    # Open the stores before the backend, so that their errors appear before weights are loaded, which takes seconds.
    with write_log(form, texts=log_text), KeyStore() as keys, VoiceStore(exclusive=True) as voices:
        voice_store = voices if split_address(backend)[0] == "local" else None
        served = open_backend(backend, device=device, voices=voice_store)
        try:
            say = partial(print_line, to_stderr=True)
            run(served, host, port_number, keys=keys, limits=effective, openai=openai, metrics=metrics_port, say=say)
        finally:
            served.close()


def listen(
    folder: Annotated[Path, typer.Argument(metavar="STUDY", help="Folder written by Study.save.", show_default=False)],
    *,
    host: Annotated[str, typer.Option(help="Address to bind; the default accepts local connections only.")] = LOOPBACK,
    port: Annotated[str, typer.Option(metavar="N", help="Port; 0 selects a free port.")] = str(PORT),
    votes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Response database (default: votes.sqlite3 in STUDY).", show_default=False),
    ] = None,
) -> None:
    """Serve a listening study until Ctrl-C or SIGTERM; running the command again resumes it."""
    # Imported here because they import notebook and audio libraries, which the other commands do not need.
    from voicelab.listening.study import Study, listeners_text
    from voicelab.listening.votes import Ballot
    from voicelab.views.listening import listening_page

    study, stop = Study.load(folder), threading.Event()
    raise_descriptor_limit()  # every listener's browser has several connections
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    finished = -1
    with (
        Ballot(study.test, votes or folder / "votes.sqlite3") as ballot,
        listening_page(ballot, study, host=host, port=_port("port", port)) as address,
    ):
        print_line(f"voicelab: {study.test.name} is at {address}", to_stderr=True)
        while not stop.wait(1.0):
            if finished != (finished := len(study.finished(ballot))):
                counted = len(study.counted(ballot))
                print_line(f"voicelab: {listeners_text(counted, finished, study.listeners)}", to_stderr=True)


def _port(name: str, text: str) -> int:
    number = parse_integer(name, text)
    if number is None or not 0 <= number <= 65535:
        raise RequestInvalid.of(name, f"must be between 0 and 65535, got {text}")
    return number


keys = typer.Typer(help="Create, list and revoke API keys of the service.", no_args_is_help=True, rich_markup_mode=None)


@keys.command()
@options_of(KeyLimits.model_fields)
def create(
    name: Annotated[str, typer.Argument(help="Name of the key's user.", show_default=False)],
    *,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lifetime: 90m, 12h, 30d, 4w.", show_default=False)
    ] = None,
    credit: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Characters that the key can synthesize (default: unlimited).", show_default=False
        ),
    ] = None,
    fields: Mapping[str, Any],
) -> None:
    """Create a key and print its secret as the only line on stdout. The secret is not stored."""
    expires_in = lifetime(expires) if expires is not None else None
    characters = parse_integer("credit", credit)
    with KeyStore() as store:
        created = store.create(name, expires_in=expires_in, credit=characters, limits=KeyLimits(**fields))
    print_line(f"{_describe(created.key)}; secret (printed only once):", to_stderr=True)
    print_line(created.secret)


@keys.command("list")
def list_keys() -> None:
    """List keys by the prefix of their secrets, oldest first."""
    with KeyStore() as store:
        records = store.list()
    if not records:
        print_line("no keys; create one with voicelab keys create NAME", to_stderr=True)
    for key in records:
        print_line(_describe(key))


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Name of the key, or prefix of its secret.", show_default=False)],
    *,
    delete_voices: Annotated[
        bool, typer.Option("--delete-voices", help="Also delete the key's voices and their recordings.")
    ] = False,
) -> None:
    """Revoke a key permanently."""
    from voicelab.voices.store import VoiceStore

    with KeyStore() as store:
        revoked = store.revoke(key)
    print_line(_describe(revoked))
    with VoiceStore() as voice_store:
        voices = voice_store.listed(revoked.owner)
        for voice in voices if delete_voices else ():
            voice_store.remove(voice.id, revoked.owner)
            print_line(f"deleted the voice {voice.id} ({voice.title}) and its recordings", to_stderr=True)
    if voices and not delete_voices:
        print_line(f"voices of this key that remain: {len(voices)}; --delete-voices deletes them", to_stderr=True)


def _describe(key: ApiKey) -> str:
    columns = [f"{key.prefix}…", key.name, key.state(datetime.now(UTC)), f"created {key.created_at:%Y-%m-%d}"]
    if key.expires_at is not None:
        columns.append(f"expires {key.expires_at:%Y-%m-%d %H:%M} UTC")
    if key.credit is not None:
        columns.append(f"{key.credit} characters left")
    columns += [f"{name} {value}" for name, value in key.limits if value is not None]
    return "  ".join(columns)
