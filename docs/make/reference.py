"""Reference pages made from the code: the fields of the schema and the command line; names.py has Python's names."""

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
    "`model` stand beside it: `model` is a header (`s1` or `s2-pro`), `seed` a whole number from 0 to 2^63 - 1.",
    ReferenceAudio: "An item of `references`.",
    ProsodyControl: "The value of `prosody`. `lab.sweep` and the command line take `speed` and `volume` by themselves.",
    VoiceCreate: "The body of `POST /model`, and the keywords of `lab.create_voice`, which makes voices private unless "
    "it is told otherwise.",
    VoiceModel: "What `POST /model` and `GET /model/{id}` return. On the wire `id` is `_id`.",
    Author: "The value of `author`.",
    SampleEntity: "An item of `samples`.",
}


def fields() -> str:
    """Return the page on fields: every field with its type, default and bounds, from the schema itself."""
    lines = [
        "# Fields",
        "",
        "Every field of the interface, as the schema has it. A value that breaks a rule raises",
        "[`RequestInvalid`](errors.md), which names the field; a service answers 422 with the same words.",
        "What the fields do to the sound: [what each parameter does](../explanation/parameters.md).",
    ]
    for model, about in _MODELS.items():
        lines += ["", f"## {model.__name__}", "", about, "", "| field | type | default | allowed | meaning |"]
        lines += ["|---|---|---|---|---|", *_rows(model)]
    lines += ["", "## Formats", "", "| format | media type | sample rates in Hz | by itself |", "|---|---|---|---|"]
    for name, rates in RATES.items():
        told = ", ".join(str(rate) for rate in rates)
        lines.append(f"| `{name}` | `{MEDIA_TYPES[name]}` | {told} | {DEFAULT_RATES[name]} |")
    return "\n".join([*lines, ""])


def command_line() -> str:
    """Return the page on the command line: every command with its arguments and options, from the program itself."""
    group = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "Everything that a program wants to read goes to standard output, everything for people to standard error.",
        "Settings come from the [environment](environment.md); a key never comes from an option.",
        "",
        "| exit status | meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | done, and what was found is not well: takes that differ or failed, trouble that `doctor` sees |",
        "| 2 | it could not be done: the last line on standard error says why, and names the field |",
        "| 130 | Ctrl-C |",
    ]
    for name, command in _commands(group, "voicelab"):
        lines += ["", f"## {name}", "", *_command(name, command)]
    return "\n".join([*lines, ""])


def notebooks() -> str:
    """Return the page that lists the notebooks: of each its title, which leads to what it showed, and its first sentences."""
    lines = [
        "# Notebooks",
        "",
        "Each asks one question and runs offline on the embedded voice. Open one to read and to hear",
    ]
    lines += [
        "it, as it is committed; `make lab` opens the first to run. `make notebooks-update` makes all outputs anew;"
    ]
    lines += ["CI runs them and compares.", "", "| notebook | what it is about |", "|---|---|"]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        words = "".join(next(cell["source"] for cell in cells if cell["cell_type"] == "markdown"))
        title, _, rest = words.partition("\n")
        first = next((part for part in rest.split("\n\n") if part.strip()), "")
        lines.append(f"| **[{title.strip('# ')}](notebooks/{path.stem}.html)**<br>`{path.name}` | {_cell(first)} |")
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
        return "one of these"
    if field.get("type") == "array":
        return f"list of {_kinds(field.get('items', {}), shared)}"
    if field.get("format") == "binary":
        return "bytes"
    if field.get("format") == "date-time":
        return "date and time"
    kind = str(field.get("type", "any"))
    return {"integer": "whole number", "null": "nothing"}.get(kind, kind)


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
    for name, one in inner.items():
        yield from _commands(one, f"{path} {name}")


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield inspect.cleandoc(command.help or "")
    yield from ("", "```text", f"{name} {' '.join(command.collect_usage_pieces(context))}", "```")
    for kind in ("argument", "option"):
        told = [item.get_help_record(context) for item in command.params if item.param_type_name == kind]
        if any(told):
            yield from ("", f"| {kind} | meaning |", "|---|---|")
            # The other spelling of a flag, --no-…, stands in the same record.
            yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in filter(None, told))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: Mapping[str, Callable[[], str]] = {
    "notebooks.md": notebooks,
    "reference/fields.md": fields,
    "reference/command-line.md": command_line,
    **names.PAGES,
}
"""Where each page stands in the site, and what makes it."""
