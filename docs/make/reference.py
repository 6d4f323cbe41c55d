"""Reference pages generated from the code: fields of the schema and the command line; names.py has Python names."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import names
import typer.main
from pydantic import BaseModel

from voicelab.cli import app
from voicelab.schema import (
    DEFAULT_RATES,
    MEDIA_TYPES,
    RATES,
    Author,
    ProsodyControl,
    ReferenceAudio,
    SampleEntity,
    TTSRequest,
    VoiceCreate,
    VoiceModel,
)

__all__ = ["PAGES", "command_line", "fields", "notebooks"]

ROOT = Path(__file__).resolve().parents[2]

_LARGEST = 2**63 - 1
_MODELS: Mapping[type[BaseModel], str] = {
    TTSRequest: "The body of `POST /v1/tts`, and the keywords of `lab.speak`, `lab.stream` and `lab.sweep`. `seed` and "
    "`model` are separate: `model` is a header (`s1` or `s2-pro`), `seed` an integer from 0 to 2^63 - 1.",
    ReferenceAudio: "An item of `references`.",
    ProsodyControl: "The value of `prosody`. `lab.sweep` and the command line accept `speed` and `volume` directly.",
    VoiceCreate: "The body of `POST /model`, and the keywords of `lab.create_voice`, which creates private voices by "
    "default.",
    VoiceModel: "The response of `POST /model` and `GET /model/{id}`. On the wire `id` is `_id`.",
    Author: "The value of `author`.",
    SampleEntity: "An item of `samples`.",
}


def fields() -> str:
    """Format the page of fields with types, defaults and bounds, from the schema."""
    lines = [
        "# Fields",
        "",
        "Every field of the interface, generated from the schema. An invalid value raises",
        "[`RequestInvalid`](errors.md), which names the field; a service responds with 422 and the same message.",
        "[What each parameter does](../explanation/parameters.md) has the effects on sound.",
    ]
    for model, about in _MODELS.items():
        lines += ["", f"## {model.__name__}", "", about, "", "| field | type | default | allowed | meaning |"]
        lines += ["|---|---|---|---|---|", *_rows(model)]
    lines += ["", "## Formats", "", "| format | media type | sample rates in Hz | default |", "|---|---|---|---|"]
    for name, rates in RATES.items():
        listed = ", ".join(str(rate) for rate in rates)
        lines.append(f"| `{name}` | `{MEDIA_TYPES[name]}` | {listed} | {DEFAULT_RATES[name]} |")
    return "\n".join([*lines, ""])


def command_line() -> str:
    """Format the page of commands with arguments and options, from the program."""
    group = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "Results for programs go to standard output, messages for people to standard error.",
        "Settings are read from the [environment](environment.md); a key is never an option.",
        "",
        "| exit status | meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | done, with problems: different or failed takes, findings, problems reported by `doctor` |",
        "| 2 | error: the last line on standard error has the reason, and names the field |",
        "| 130 | Ctrl-C |",
    ]
    for name, command in _commands(group, "voicelab"):
        lines += ["", f"## {name}", "", *_command(name, command)]
    return "\n".join([*lines, ""])


def notebooks() -> str:
    """Format the page of notebooks: titles with links, and first paragraphs."""
    lines = [
        "# Notebooks",
        "",
        "Each answers one question and runs offline with the embedded voice. The links open the committed outputs with",
        "sound; `make lab` opens the first notebook to run. `make notebooks-update` updates all outputs; CI compares them.",
        "",
        "| notebook | subject |",
        "|---|---|",
    ]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        words = "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "markdown"))
        title, _, rest = words.partition("\n")
        paragraph = next((text for text in rest.split("\n\n") if text.strip()), "")
        lines.append(f"| **[{title.strip('# ')}](notebooks/{path.stem}.html)**<br>`{path.name}` | {_cell(paragraph)} |")
    return "\n".join([*lines, ""])


def _rows(model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema(by_alias=False)
    required = set(schema.get("required", ()))
    shared = schema.get("$defs", {})
    for name, field in schema["properties"].items():
        kinds, bounds = _kinds(field, shared), "; ".join(dict.fromkeys(_bounds(field)))
        default = "**required**" if name in required or "default" not in field else f"`{_shown(field['default'])}`"
        yield f"| `{name}` | {kinds} | {default} | {bounds} | {_cell(field.get('description', ''))} |"


def _kinds(field: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kinds(item, shared) for item in field["anyOf"])
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in field or "const" in field:
        return "choice"
    if field.get("type") == "array":
        return f"list of {_kinds(field.get('items', {}), shared)}"
    if field.get("format") == "binary":
        return "bytes"
    if field.get("format") == "date-time":
        return "date and time"
    kind = str(field.get("type", "any"))
    return {"integer": "integer", "null": "null"}.get(kind, kind)


def _bounds(field: Mapping[str, Any]) -> Iterator[str]:
    for item in field.get("anyOf", ()):
        yield from _bounds(item)
    if "enum" in field:
        yield ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        yield f"`{field['const']}`"
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        yield f"{_number(low)} to {_number(high)}"
    elif "exclusiveMinimum" in field:
        yield f"above {_number(field['exclusiveMinimum'])}" + (f", to {_number(high)}" if high is not None else "")
    if "minLength" in field:
        yield "not empty"


def _number(value: float) -> str:
    return "2^63 - 1" if value == _LARGEST else f"{value:g}"


def _shown(value: object) -> str:
    return json.dumps(value) if value != "" and not isinstance(value, str) else str(value) or '""'


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, subcommand in inner.items():
        yield from _commands(subcommand, f"{path} {name}")


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield inspect.cleandoc(command.help or "")
    yield from ("", "```text", f"{name} {' '.join(command.collect_usage_pieces(context))}", "```")
    for kind in ("argument", "option"):
        records = [item.get_help_record(context) for item in command.params if item.param_type_name == kind]
        if any(records):
            yield from ("", f"| {kind} | meaning |", "|---|---|")
            # A record includes the negative form of a flag, --no-….
            yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in filter(None, records))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: Mapping[str, Callable[[], str]] = {
    "notebooks.md": notebooks,
    "reference/fields.md": fields,
    "reference/command-line.md": command_line,
    **names.PAGES,
}
"""Generators of pages by their path in the site."""
