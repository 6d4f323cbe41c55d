"""What all commands share: where lines go, how an error ends a command, and the options of requests.

These are derived from the schema: a decorator gives a command one option for every field of a request that is no argument
of its own. The command receives them as ``fields``, holding only what was given, converted but not judged: bounds are
the schema's to check, so that the command line, Python and the wire say the same about a bad value.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperGroup

from voicelab.call import bare_type, parse_value
from voicelab.distribution import __version__
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.schema import ProsodyControl, TTSRequest, VoiceCreate

EXIT_INVALID = 2
EXIT_INTERRUPTED = 130


_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that command a terminal: a title or an error may be another's."""


def say_line(line: str = "", *, to_stderr: bool = False) -> None:
    """Write one line of result (stdout), or of what goes on besides (stderr)."""
    typer.echo(_COMMANDS.sub("\ufffd", line), err=to_stderr)


def complain(message: str) -> None:
    """Write an error as one line on stderr."""
    say_line("voicelab: " + " ".join(message.split()), to_stderr=True)


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


BackendAddress = Annotated[
    str | None,
    typer.Option(
        "--backend",
        "--base-url",
        metavar="NAME:ADDRESS|URL",
        envvar="VOICELAB_BASE_URL",
        help="Who speaks: a service's URL, with its key in the environment, or a backend that voicelab doctor lists. "
        "Without it the embedded voice.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Where a backend of this machine runs: cpu, cuda, cuda:1 …", show_default=False),
]

# Fields that are no plain value, and what stands for them on the command line.
_ELSEWHERE = frozenset({"text", "references", "prosody"})
_PROSODY = tuple(ProsodyControl.model_fields)
# Of a voice: arguments of the command, and fields with one value only.
_GIVEN = frozenset({"title", "voices", "type", "train_mode"})
# A short name besides the field's own; what may be given several times is named in the singular.
_ALSO = {
    "reference_id": ("--voice",),
    "texts": ("--text",),
    "tags": ("--tag",),
    "cover_image": ("--cover",),
    "enhance_audio_quality": ("--enhance/--no-enhance",),
}
# A Lab's defaults where they are not the interface's.
_DEFAULTS = {"visibility": "private"}


REQUEST_FIELDS = {
    name: field
    for name, field in (TTSRequest.model_fields | ProsodyControl.model_fields).items()
    if name not in _ELSEWHERE
}
VOICE_FIELDS = {name: field for name, field in VoiceCreate.model_fields.items() if name not in _GIVEN}


def options_of(schema_fields: Mapping[str, FieldInfo]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what gives a command an option for each of these fields; it must take ``fields`` as a keyword.

    An option that cannot be converted raises RequestInvalid, which names the field; a file that cannot be read OSError.
    """

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        own = [item for item in inspect.signature(command, eval_str=True).parameters.values() if item.name != "fields"]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            raw = {name: values.pop(name) for name in schema_fields}
            given = {name: _value(name, text, schema_fields[name]) for name, text in raw.items() if text is not None}
            prosody = {name: given.pop(name) for name in _PROSODY if name in given}
            command(**values, fields=given | ({"prosody": prosody} if prosody else {}))

        # typer reads the signature; wraps() would lead it past this one, back to the command's own.
        signature = inspect.Signature([*own, *(_option(name, field) for name, field in schema_fields.items())])
        del run.__wrapped__
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
        return run

    return with_options


def whole_number(name: str, text: str | None) -> int | None:
    """Read an option that is a whole number; None stays None. Raises RequestInvalid, which names it."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        message = f"should be a whole number, not {text!r}"
        raise RequestInvalid.of(name, message, type="int_parsing") from None


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    flag, default = "--" + name.replace("_", "-"), _DEFAULTS.get(name, field.default)
    description = field.description or ""
    if default is not None and default != ():
        shown = str(default).lower() if isinstance(default, bool) else default
        description = f"{description} (default: {shown})"
    kind = bare_type(field.annotation)
    several = get_origin(kind) is tuple
    shown_types: dict[Any, str | None] = {bool: None, int: "INTEGER", float: "NUMBER", str: "TEXT", bytes: "FILE"}
    metavar = "TEXT" if several else shown_types.get(kind, "|".join(map(str, get_args(kind))))
    names = (*_ALSO.get(name, ()), f"{flag}/--no-{flag[2:]}" if kind is bool else flag)
    option: Any = typer.Option(*names, metavar=metavar, help=description, show_default=False)
    value_type: Any = bool | None if kind is bool else list[str] | None if several else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[value_type, option]
    )


def _value(name: str, text: Any, field: FieldInfo) -> Any:
    if bare_type(field.annotation) is bytes:
        return Path(text).read_bytes()
    return parse_value(name, text) if isinstance(text, str) else text
