"""What all commands share: where lines go, and how an error ends a command."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from voicelab.distribution import __version__
from voicelab.errors import VoicelabError

__all__ = ["EXIT_INVALID", "HouseGroup", "complain", "say_line", "show_version", "write_bytes"]

EXIT_INVALID = 2
EXIT_INTERRUPTED = 130


def say_line(line: str = "", *, to_stderr: bool = False) -> None:
    """Write one line of result (stdout), or of what goes on besides (stderr)."""
    typer.echo(line, err=to_stderr)


def complain(message: str) -> None:
    """Write an error as one line on stderr."""
    typer.echo("voicelab: " + " ".join(message.split()), err=True)


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout and let them go at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class HouseGroup(TyperGroup):
    """The root of the commands: turns errors made on purpose into one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command named; its errors end the program with status 2, Ctrl-C with 130."""
        try:
            return super().invoke(ctx)
        except VoicelabError as error:
            complain(str(error))
            raise typer.Exit(EXIT_INVALID) from None
        except BrokenPipeError:
            # Whoever read our output has left. Nothing more can be said, and Python must not try at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            raise typer.Exit(EXIT_INVALID) from None
        except KeyboardInterrupt:
            complain("stopped")
            raise typer.Exit(EXIT_INTERRUPTED) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        say_line(__version__)
        raise typer.Exit


def show_version(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A laboratory for synthetic voices, with a small neural voice of its own inside."""
