"""``voicelab serve``: a backend behind the interface's HTTP; ``keys``: of its callers; ``listen``: a listening study."""

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
from voicelab.cli.console import Device, options_of, say_line, whole_number
from voicelab.errors import RequestInvalid
from voicelab.service.keys import ApiKey, KeyStore, lifetime
from voicelab.service.limits import VARIABLE, KeyLimits, Limits, describe_limits, read_limits
from voicelab.service.record import LogForm, write_log
from voicelab.service.run import LOOPBACK, PORT
from voicelab.service.run import serve as run
from voicelab.voices.store import VoiceStore


@options_of(Limits.model_fields)
def serve(
    *,
    host: Annotated[str, typer.Option(help="Address to listen at; by default this machine alone can call.")] = LOOPBACK,
    port: Annotated[str, typer.Option(metavar="N", help="Port to listen at; 0 takes any free one.")] = str(PORT),
    backend: Annotated[
        str, typer.Option(metavar="NAME:ADDRESS", help="Who speaks; voicelab doctor lists the backends.")
    ] = "local:",
    device: Device = None,
    openai: Annotated[bool, typer.Option("--openai", help="Answer OpenAI's speech API too, below /v1.")] = False,
    log: Annotated[
        str | None,
        typer.Option(metavar="json|text|none", help="A line for each request; on a terminal text is the default."),
    ] = None,
    log_text: Annotated[bool, typer.Option("--log-text", help="Write into it what was to be spoken, too.")] = False,
    metrics: Annotated[
        str | None, typer.Option(metavar="PORT", help="Serve /metrics at this port of 127.0.0.1.")
    ] = None,
    limits: Annotated[
        Path | None, typer.Option(metavar="FILE", envvar=VARIABLE + "LIMITS", help="TOML file with limits.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Print the limits that would hold, as such a file.")] = False,
    fields: Mapping[str, Any],
) -> None:
    """Serve the embedded voice, or any other backend, until Ctrl-C or SIGTERM. Keys are made with voicelab keys create."""
    number = _port("port", port)
    held, sources = read_limits(fields, limits)
    if log not in (None, *get_args(LogForm)):
        raise RequestInvalid.of("log", f"should be json, text or none, not {log!r}")
    measured = None if metrics is None else _port("metrics", metrics)
    if check:
        say_line(describe_limits(held, sources))
        return
    form = cast("LogForm", log or ("text" if sys.stdout.isatty() else "none"))
    # The keys first: they are quick to open, and a store that cannot be used is quick to tell.
    with write_log(form, texts=log_text), KeyStore() as keys, VoiceStore(exclusive=True) as voices:
        kept = voices if split_address(backend)[0] == "local" else None
        speaker = open_backend(backend, device=device, voices=kept)
        try:
            say = partial(say_line, to_stderr=True)
            run(speaker, host, number, keys=keys, limits=held, openai=openai, metrics=measured, say=say)
        finally:
            speaker.close()


def listen(
    folder: Annotated[Path, typer.Argument(metavar="STUDY", help="What Study.save wrote.", show_default=False)],
    *,
    host: Annotated[str, typer.Option(help="Address to listen at; by default this machine alone can come.")] = LOOPBACK,
    port: Annotated[str, typer.Option(metavar="N", help="Port to listen at; 0 takes any free one.")] = str(PORT),
    votes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the answers go; votes.sqlite3 in STUDY when not given.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve a listening study until Ctrl-C or SIGTERM; the same command goes on with it."""
    # With them come the libraries of notebooks and sounds, for which other commands need not wait.
    from voicelab.listening.study import Study, listeners_text
    from voicelab.listening.votes import Ballot
    from voicelab.views.listening import listening_page

    study, stop = Study.load(folder), threading.Event()
    if sys.platform != "win32":
        import resource

        # Every listener's browser has several connections.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard > 0 else 65_536, hard))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    finished = -1
    with (
        Ballot(study.test, votes or folder / "votes.sqlite3") as ballot,
        listening_page(ballot, study, host=host, port=_port("port", port)) as address,
    ):
        say_line(f"voicelab: {study.test.name} is at {address}", to_stderr=True)
        while not stop.wait(1.0):
            if finished != (finished := len(study.finished(ballot))):
                counted = len(study.counted(ballot))
                say_line(f"voicelab: {listeners_text(counted, finished, study.listeners)}", to_stderr=True)


def _port(name: str, text: str) -> int:
    number = whole_number(name, text)
    if number is None or not 0 <= number <= 65535:
        raise RequestInvalid.of(name, f"should be 0 to 65535, not {text}")
    return number


keys = typer.Typer(help="Make, list and revoke the keys of the service.", no_args_is_help=True, rich_markup_mode=None)


@keys.command()
@options_of(KeyLimits.model_fields)
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
    fields: Mapping[str, Any],
) -> None:
    """Make a key and print its secret once, last on stdout. It is kept nowhere."""
    expires_in = lifetime(expires) if expires is not None else None
    characters = whole_number("credit", credit)
    with KeyStore() as store:
        created = store.create(name, expires_in=expires_in, credit=characters, limits=KeyLimits(**fields))
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
    parts += [f"{name} {value}" for name, value in key.limits if value is not None]
    return "  ".join(parts)
