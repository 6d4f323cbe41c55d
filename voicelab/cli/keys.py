"""``voicelab keys``: make, list and revoke the keys of the service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from voicelab.cli.console import say_line
from voicelab.cli.options import whole_number
from voicelab.service.keys import ApiKey, KeyStore, lifetime

__all__ = ["keys"]

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
        made = store.create(name, expires_in=expires_in, credit=characters)
    say_line(f"{_describe(made.key)}; this is its secret, shown once:", to_stderr=True)
    say_line(made.secret)


@keys.command("list")
def list_keys() -> None:
    """List the keys, the oldest first, by the beginning of their secrets."""
    with KeyStore() as store:
        found = store.list()
    if not found:
        say_line("there are no keys; voicelab keys create NAME makes one", to_stderr=True)
    for key in found:
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
