"""%speak and %%speak: say a line, or a cell, with the fields of the schema as options.

Every field of TTSRequest that a word can give is an option (``--temperature 0.4``, ``--latency low``), and so
are ``--voice``, ``--seed``, ``--model``, ``--speed`` and ``--volume``: none is written here, all come from the
schema, which also checks the values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, get_args

from IPython.core.magic import Magics, line_cell_magic, magics_class

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.schema import ProsodyControl, TTSRequest
from voicelab.schema.speech import Model
from voicelab.views.form import voice_choices
from voicelab.views.panel import Speaker

__all__ = ["OPTIONS", "SpeakMagics", "complete", "parse", "register"]

_OPTION = re.compile(r"""\s*--(?P<name>[A-Za-z_-]+)(?:\s*=\s*|\s+)(?P<value>"[^"]*"|'[^']*'|\S+)""")
_END = re.compile(r"\s*--(?:\s+|$)")
# What no word on a line can say.
_NOT_TYPED: Final = frozenset({"text", "references", "prosody"})
_OURS: Final[dict[str, dict[str, Any]]] = {
    "voice": {"type": "string", "description": "Id of a preset or of a stored voice."},
    "seed": {"type": "integer", "description": "A whole number; the same seed repeats the same speech."},
    "model": {"enum": list(get_args(Model)), "type": "string", "description": "The synthesis model."},
    "lab": {"type": "string", "description": "Name of the variable that holds the lab; 'lab' when not given."},
    "to": {"type": "string", "description": "Name of a variable to keep the Clip in."},
}


def _options() -> Mapping[str, dict[str, Any]]:
    fields = TTSRequest.model_json_schema()["properties"]
    prosody = ProsodyControl.model_json_schema()["properties"]
    return {**{name: field for name, field in fields.items() if name not in _NOT_TYPED}, **prosody, **_OURS}


OPTIONS: Final = _options()
"""The options by name, each with its JSON schema."""


class Speaking(Speaker, Protocol):
    """What the magics ask of a Lab."""

    def speak(self, text: str, **fields: Any) -> Clip:
        """Say it."""


def parse(line: str) -> tuple[dict[str, Any], str]:
    """Read options from the beginning of ``line``; returns them, and the text after them as it is.

    A single ``--`` ends the options. Raises RequestInvalid for one that there is not.
    """
    given: dict[str, Any] = {}
    at = 0
    while (end := _END.match(line, at)) is None and (found := _OPTION.match(line, at)) is not None:
        name = found["name"].replace("-", "_")
        if name not in OPTIONS:
            raise RequestInvalid.of(name, f"there is no such option; there are {', '.join(OPTIONS)}", in_="query")
        given[name] = _value(found["value"], OPTIONS[name])
        at = found.end()
    if end is not None:
        at = end.end()
    elif re.match(r"\s*--", line[at:]):
        raise RequestInvalid.of(line[at:].split(maxsplit=1)[0].lstrip("-"), "the option has no value", in_="query")
    return given, line[at:].strip()


def _value(typed: str, schema: Mapping[str, Any]) -> Any:
    """Return the word as a Python value, where the field is not a text; whether it fits, the schema says."""
    word = typed[1:-1] if typed[:1] in "\"'" and typed[-1:] == typed[:1] else typed
    kinds = {part.get("type") for part in schema.get("anyOf", [schema])}
    if word.lower() == "none" and "null" in kinds:
        return None
    if "boolean" in kinds and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if "string" in kinds:
        return word
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word  # the schema's own message says what was wanted


def complete(line: str, voices: tuple[str, ...] = ()) -> list[str]:
    """Return what can stand at the end of ``line``: options, or the values of the option before."""
    words = line.split(" ")
    before = words[-2] if len(words) > 1 else ""
    if before.startswith("--") and before != "--":
        schema = OPTIONS.get(before.lstrip("-").replace("-", "_"), {})
        if before in ("--voice", "--reference_id"):
            return [voice for voice in voices if voice.startswith(words[-1])]
        values = ["True", "False"] if schema.get("type") == "boolean" else [str(x) for x in schema.get("enum", ())]
        return [value for value in values if value.startswith(words[-1])]
    used = {word for word in words[:-1] if word.startswith("--")}
    return [f"--{name}" for name in OPTIONS if f"--{name}".startswith(words[-1] or "--") and f"--{name}" not in used]


@magics_class
class SpeakMagics(Magics):
    """The magics, before the lab in the variable ``lab``; where there is none, one is opened when it is first needed."""

    def __init__(self, shell: Any, connect: Callable[[], Speaking]) -> None:
        super().__init__(shell)
        self._names: dict[str, Any] = shell.user_ns
        self._connect = connect
        self._own: Speaking | None = None

    @line_cell_magic
    def speak(self, line: str, cell: str | None = None) -> Clip:
        """Say the line, or the cell, and return the Clip.

        Options come first, then the text: ``%speak --temperature 0.4 --voice ada Good morning.``
        """
        given, text = parse(line)
        lab = self.lab(given.pop("lab", None))
        to = given.pop("to", None)
        if cell is not None:
            text = f"{text}\n{cell}".strip()
        clip = lab.speak(text, **given)
        if to is not None:
            self._names[to] = clip
        return clip

    def lab(self, name: str | None = None) -> Speaking:
        """Return the lab that is in the variable ``name``. Raises RequestInvalid when none is there."""
        found: Any = self._names.get(name or "lab")
        if callable(getattr(found, "speak", None)) and hasattr(found, "capabilities"):
            lab: Speaking = found
            return lab
        if name is not None:
            raise RequestInvalid.of("lab", f"the variable {name!r} holds no lab", in_="query")
        if self._own is None:
            self._own = self._connect()
        return self._own

    def complete(self, _: Any, event: Any) -> list[str]:
        """Answer IPython's completer. Opens no lab: without one there are no voices to choose from."""
        found: Any = self._own or self._names.get("lab")
        known = voice_choices(found.capabilities) if hasattr(found, "capabilities") else ()
        return complete(event.line, tuple(identity for _, identity in known if identity))


def register(shell: Any, connect: Callable[[], Speaking]) -> None:
    """Give ``%speak`` and ``%%speak`` to an IPython ``shell``, their options to its help and its completer."""
    magics = SpeakMagics(shell, connect)
    listed = "\n".join(f"    --{name}: {schema.get('description', '')}" for name, schema in OPTIONS.items())
    shell.register_magics(magics)
    documented = "Say the line, or the cell, and return the Clip: %speak --temperature 0.4 Good morning.\n\n"
    SpeakMagics.speak.__doc__ = f"{documented}Options, before the text; a single -- ends them:\n\n{listed}\n"
    for command in ("%speak", "%%speak"):
        shell.set_hook("complete_command", magics.complete, str_key=command)
