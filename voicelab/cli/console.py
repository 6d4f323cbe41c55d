"""Shared code of the commands: output lines, errors and exit statuses, options generated from the schema.

``options_of`` gives a command one option per request field. The command receives the options that were set as ``fields``,
parsed; the schema checks bounds, so that errors are the same on the command line, in Python and over HTTP.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperGroup

from voicelab.call import bare_type, parse_value, short_name
from voicelab.distribution import __version__
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.schema import ProsodyControl, TTSRequest, VoiceCreate

EXIT_INVALID = 2
EXIT_INTERRUPTED = 130


# Titles and error messages may come from other machines: no control characters reach the terminal.
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_line(line: str = "", *, to_stderr: bool = False) -> None:
    """Write a line to stdout (results) or stderr (progress, notes, errors)."""
    typer.echo(_CONTROL_CHARACTERS.sub("\ufffd", line), err=to_stderr)


def print_error(message: str) -> None:
    """Write an error to stderr: one line, followed by a line for each listed item."""
    lines = [" ".join(line.split()) for line in message.split("\n  ")]
    print_line("voicelab: " + "\n  ".join(lines), to_stderr=True)


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout and flush."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class _Commands(UserDict[str, Any]):
    """Commands by name, each imported on first use from the module given as its value."""

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
        if isinstance(command, str):
            command = getattr(import_module(f"voicelab.cli.{command}"), name.replace("-", "_"))
            if isinstance(command, typer.Typer):
                command = typer.main.get_group(command)
            else:
                only = typer.Typer(add_completion=False, rich_markup_mode=None)
                only.command(name)(command)
                command = typer.main.get_command(only)
            self.data[name] = command
        return command


class CommandGroup(TyperGroup):
    """Root command group: prints expected errors as one line and sets the exit status."""

    modules: Mapping[str, str] = {
        "say": "say",
        "serve": "serve",
        "listen": "serve",
        "sweep": "study",
        "replay": "study",
        "measure": "study",
        "compare": "study",
        "evaluate": "study",
        "knobs": "study",
        "lab": "lab",
        "check": "check",
        "doctor": "doctor",
        "keys": "serve",
        "voices": "stored",
        "weights": "stored",
        "worker-template": "stored",
    }
    """Command → module of ``voicelab.cli`` that defines it, in the order of the help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands({**self.modules, **self.commands})

    def invoke(self, ctx: Any) -> Any:
        """Run a command; errors exit with status 2, Ctrl-C with 130."""
        try:
            return super().invoke(ctx)
        except VoicelabError as error:
            print_error(str(error))
            raise typer.Exit(EXIT_INVALID) from None
        except BrokenPipeError:
            # The reader of stdout is closed; without this, Python fails again when it flushes stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            raise typer.Exit(EXIT_INVALID) from None
        except KeyboardInterrupt:
            print_error("stopped")
            raise typer.Exit(EXIT_INTERRUPTED) from None


def _print_version(enabled: bool) -> None:
    if enabled:
        print_line(__version__)
        raise typer.Exit


def show_version(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A toolkit for speech synthesis in Jupyter, with a small neural voice included."""


BackendAddress = Annotated[
    str | None,
    typer.Option(
        "--backend",
        "--base-url",
        metavar="NAME:ADDRESS|URL",
        envvar="VOICELAB_BASE_URL",
        help="Service URL (key in VOICELAB_API_KEY) or a backend listed by voicelab doctor. "
        "Default: the embedded voice.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None, typer.Option(metavar="NAME", help="Device of a local backend: cpu, cuda, cuda:1 …", show_default=False)
]

# Request fields with arguments or options of a different shape.
_REQUEST_ARGUMENTS = frozenset({"text", "references", "prosody"})
_PROSODY = tuple(ProsodyControl.model_fields)
# Voice fields that are arguments or allow only one value.
_VOICE_ARGUMENTS = frozenset({"title", "voices", "type", "train_mode"})
# Short names in addition to the field names; repeatable options are singular.
_ALIASES = {
    "reference_id": ("--voice",),
    "texts": ("--text",),
    "tags": ("--tag",),
    "cover_image": ("--cover",),
    "enhance_audio_quality": ("--enhance/--no-enhance",),
}
# Defaults of Lab that differ from those of the interface.
_DEFAULTS = {"visibility": "private"}


REQUEST_FIELDS = {
    name: field
    for name, field in (TTSRequest.model_fields | ProsodyControl.model_fields).items()
    if name not in _REQUEST_ARGUMENTS
}
VOICE_FIELDS = {name: field for name, field in VoiceCreate.model_fields.items() if name not in _VOICE_ARGUMENTS}


def options_of(schema_fields: Mapping[str, FieldInfo]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add one option per schema field to a command, which receives the parsed values as ``fields``.

    The command raises RequestInvalid for a value that cannot be parsed, OSError for a file that cannot be read.
    """

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "fields"]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            raw = {name: values.pop(name) for name in schema_fields}
            parsed = {name: _value(name, text, schema_fields[name]) for name, text in raw.items() if text is not None}
            prosody = {name: parsed.pop(name) for name in _PROSODY if name in parsed}
            try:
                command(**values, fields=parsed | ({"prosody": prosody} if prosody else {}))
            except RequestInvalid as error:  # named as the options
                error.change(lambda item: replace(item, loc=(*item.loc[:-1][:1], short_name(item.field))))
                raise

        # typer must read the signature of run; after wraps() it would read that of the command.
        signature = inspect.Signature([*parameters, *(_option(name, field) for name, field in schema_fields.items())])
        del run.__wrapped__
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        return run

    return with_options


def parse_integer(name: str, text: str | None) -> int | None:
    """Parse an integer option; None stays None. Raises RequestInvalid."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        message = f"must be an integer, got {text!r}"
        raise RequestInvalid.of(name, message, type="int_parsing") from None


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    flag, default = "--" + name.replace("_", "-"), _DEFAULTS.get(name, field.default)
    description = field.description or ""
    if default is not None and default != ():
        description = f"{description} (default: {str(default).lower() if isinstance(default, bool) else default})"
    kind = bare_type(field.annotation)
    repeatable = get_origin(kind) is tuple
    metavars: dict[Any, str | None] = {bool: None, int: "INTEGER", float: "NUMBER", str: "TEXT", bytes: "FILE"}
    metavar = "TEXT" if repeatable else metavars.get(kind, "|".join(map(str, get_args(kind))))
    names = (*_ALIASES.get(name, ()), f"{flag}/--no-{flag[2:]}" if kind is bool else flag)
    option: Any = typer.Option(*names, metavar=metavar, help=description, show_default=False)
    value_type: Any = bool | None if kind is bool else list[str] | None if repeatable else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[value_type, option]
    )


def _value(name: str, text: Any, field: FieldInfo) -> Any:
    if bare_type(field.annotation) is bytes:
        return Path(text).read_bytes()
    return parse_value(name, text) if isinstance(text, str) else text
