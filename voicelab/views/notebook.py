"""Notebook tools: the magics %speak and %%speak, progress(), and completion inside strings.

Scalar fields of TTSRequest are options of the magics (``--temperature 0.4``, ``--latency low``), as are ``--voice``,
``--seed``, ``--model``, ``--speed`` and ``--volume``; the schema validates their values.
"""

from __future__ import annotations

import operator
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, TypeVar, get_args

from IPython.core.magic import Magics, line_cell_magic, magics_class

from voicelab.call import Knob, field_name, parse_value, short_name
from voicelab.capabilities import Capabilities
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, suggestion
from voicelab.schema import Model, ProsodyControl, TTSRequest
from voicelab.session import Session

_Item = TypeVar("_Item")

# Ten updates a second; more would only queue up.
_INTERVAL_S: Final = 0.1
_OPTION = re.compile(r"""\s*--(?P<name>[A-Za-z_-]+)(?:\s*=\s*|\s+)(?P<value>"[^"]*"|'[^']*'|\S+)""")
_END = re.compile(r"\s*--(?:\s+|$)")
# Fields that are not options.
_NOT_TYPED: Final = frozenset({"text", "references", "prosody"})
_EXTRA_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "voice": {"type": "string", "description": "Id of a preset or stored voice."},
    "seed": {"type": "integer", "description": "An integer; the same seed reproduces the same speech."},
    "model": {"enum": list(get_args(Model)), "type": "string", "description": "The synthesis model."},
    "lab": {"type": "string", "description": "Name of the variable of the lab; 'lab' by default."},
    "to": {"type": "string", "description": "Name of a variable to assign the Clip to."},
}

# An unterminated string, which is the value of a keyword (alone or in a list), a voice, or another part of a call.
_KEYWORD: Final = re.compile(r"""(\w+)\s*=\s*[\[(]?\s*(?:(?:"[^"]*"|'[^']*')\s*,\s*)*["']([^"']*)$""")
_KEY: Final = re.compile(r"""\.voices(?:\[["']|\.)([^"']*)$""")
_MEASURING: Final = re.compile(r"""\b(?:measure|measure_rows|effects|frame)\(.*["']([^"']*)$""", re.DOTALL)


OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    **{name: field for name, field in TTSRequest.model_json_schema()["properties"].items() if name not in _NOT_TYPED},
    **ProsodyControl.model_json_schema()["properties"],
    **_EXTRA_OPTIONS,
}
"""JSON schemas of the options by name."""


def parse(line: str, knobs: Sequence[Knob] = ()) -> tuple[dict[str, Any], str]:
    """Parse options at the beginning of a line; return them and the remaining text.

    ``knobs`` of the lab's backend are additional options. ``--`` ends the options. Raises RequestInvalid for unknown
    options.
    """
    fields: dict[str, Any] = {}
    at = 0
    while (end := _END.match(line, at)) is None and (option := _OPTION.match(line, at)) is not None:
        name = option["name"].replace("-", "_")
        if name not in (options := (*OPTIONS, *(knob.name for knob in knobs))):
            hint = suggestion(name, options) or f"; options are {', '.join(options)}"
            raise RequestInvalid.of(name, f"unknown option{hint}", in_="query")
        typed = option["value"]
        word = typed[1:-1] if typed[:1] in "\"'" and typed[-1:] == typed[:1] else typed
        fields[name] = word if name in ("lab", "to") else parse_value(name, word, knobs)
        at = option.end()
    if end is not None:
        at = end.end()
    elif re.match(r"\s*--", line[at:]):
        raise RequestInvalid.of(line[at:].split(maxsplit=1)[0].lstrip("-"), "the option requires a value", in_="query")
    return fields, line[at:].strip()


def complete(line: str, lab: Session | None = None) -> list[str]:
    """Return completions of a line: options, or the values of the preceding option.

    With a lab, completions include its voices, models and knobs, and exclude the fields that its backend ignores.
    """
    words = line.split(" ")
    option = words[-2] if len(words) > 1 else ""
    schemas = OPTIONS if lab is None else _options_of(lab.capabilities)
    if option.startswith("--") and option != "--":
        schema = schemas.get(option.lstrip("-").replace("-", "_"), {})
        values = ["True", "False"] if schema.get("type") == "boolean" else [str(x) for x in schema.get("enum", ())]
        return [value for value in values if value.startswith(words[-1])]
    used = {word for word in words[:-1] if word.startswith("--")}
    return [f"--{name}" for name in schemas if f"--{name}".startswith(words[-1] or "--") and f"--{name}" not in used]


def _options_of(capabilities: Capabilities) -> Mapping[str, dict[str, Any]]:
    """Return the options that a backend supports, with their values."""
    voices = {"enum": [voice.id for voice in capabilities.voices]}
    schemas = {**OPTIONS, "voice": voices, "reference_id": voices, "model": {"enum": list(capabilities.models)}}
    ignored = {name for name in schemas if capabilities.ignored(field_name(name))}
    if capabilities.seed == "none":
        ignored.add("seed")
    for support in capabilities.fields:
        if support.values and short_name(support.field) in schemas:
            schemas[short_name(support.field)] = {"enum": list(support.values)}
    knobs = {
        knob.name: {"type": "boolean"} if knob.type == "bool" else {"enum": list(knob.choices)}
        for knob in capabilities.knobs
    }
    return {**{name: schema for name, schema in schemas.items() if name not in ignored}, **knobs}


@magics_class
class SpeakMagics(Magics):
    """Magics ``%speak`` and ``%%speak``, which use the lab in the variable ``lab``, or open a lab at first use."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._names: dict[str, Any] = shell.user_ns
        self._default_lab: Session | None = None

    @line_cell_magic
    def speak(self, line: str, cell: str | None = None) -> Clip:
        """Synthesize the line or the cell and return the Clip.

        Options come first, then the text: ``%speak --temperature 0.4 --voice ada Good morning.``
        """
        lab = self._current_lab(line)
        fields, text = parse(line, lab.capabilities.knobs if lab is not None else ())
        lab = self.lab(fields.pop("lab", None))
        to = fields.pop("to", None)
        if cell is not None:
            text = f"{text}\n{cell}".strip()
        clip = lab.speak(text, **fields)
        if to is not None:
            self._names[to] = clip
        return clip

    def lab(self, name: str | None = None) -> Session:
        """Return the lab in the variable ``name``. Raises RequestInvalid if the variable is not a lab."""
        value: Any = self._names.get(name or "lab")
        if isinstance(value, Session):
            return value
        if name is not None:
            raise RequestInvalid.of("lab", f"the variable {name!r} is not a lab", in_="query")
        if self._default_lab is None:
            self._default_lab = Session.open()
        return self._default_lab

    def _current_lab(self, line: str) -> Session | None:
        """Return the lab that a line would use; None if the line would open a new lab."""
        name = next((option["value"] for option in _OPTION.finditer(line) if option["name"] == "lab"), "lab")
        lab: Any = self._names.get(name, self._default_lab)
        return lab if isinstance(lab, Session) else None

    def complete(self, _: Any, event: Any) -> list[str]:
        """Return completions for IPython, without opening a lab."""
        return complete(event.line, self._current_lab(event.line))


def register(shell: Any) -> None:
    """Register ``%speak`` and ``%%speak`` in an IPython shell, with help and completion."""
    install(shell)
    magics = SpeakMagics(shell)
    options = "\n".join(f"    --{name}: {schema.get('description', '')}" for name, schema in OPTIONS.items())
    shell.register_magics(magics)
    documented = (
        "Synthesize the line or the cell and return the Clip: %speak --temperature 0.4 Good morning.\n\n"
        "Knobs of the lab's backend are options too; lab.capabilities lists them and the fields that have no effect.\n\n"
    )
    SpeakMagics.speak.__doc__ = f"{documented}Options, before the text; a single -- ends them:\n\n{options}\n"
    for command in ("%speak", "%%speak"):
        shell.set_hook("complete_command", magics.complete, str_key=command)


def progress(items: Iterable[_Item], about: str = "", *, total: int | None = None) -> Iterator[_Item]:
    """Yield items and show a progress bar: ``for text in vl.progress(texts): lab.speak(text)``.

    ``items`` may be a running sweep: ``for outcome in vl.progress(sweep.start()): …``. After the loop, the output shows
    the count without times, so that it is reproducible.

    Args:
        items: iterable.
        about: label before the count.
        total: number of items if ``len(items)`` is undefined; without a total there is a count only.
    """
    total = operator.length_hint(items, 0) or None if total is None else total
    show = _notebook() or _terminal(about)
    began, updated, done = time.monotonic(), 0.0, 0
    show(about, 0, total, None)
    try:
        for item in items:
            yield item
            done += 1
            moment = time.monotonic()
            if moment >= updated + _INTERVAL_S:
                show(about, done, total, (moment - began) / done * (total - done) if total else None)
                updated = moment
    finally:
        show(about, done, total, -1.0)


_Show = Callable[[str, int, int | None, float | None], object]
"""Callback for a label, items done, total, and seconds remaining (-1 at the end)."""


def _notebook() -> _Show | None:
    """Return a callback that updates a progress bar in the output of a cell; None outside notebooks."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    handles: list[Any] = []

    def show(about: str, done: int, total: int | None, remaining_s: float | None) -> None:
        count = f"{done} of {total}" if total else str(done)
        remaining = f", about {remaining_s:.0f} s left" if remaining_s is not None and remaining_s >= 0.5 else ""
        text = f"{about}: {count}{remaining}" if about else f"{count}{remaining}"
        bar = "" if remaining_s == -1.0 else f'<progress value="{done}" max="{total}"></progress> ' if total else ""
        data = {"text/html": f'<div role="status">{bar}{escape(text)}</div>', "text/plain": text}
        if handles:
            handles[0].update(data, raw=True)
        else:
            handles.append(display(data, raw=True, display_id=True))  # type: ignore[no-untyped-call]

    return show


def _terminal(about: str) -> _Show:
    """Return a callback that updates a progress bar in the terminal; it writes nothing if stderr is not a terminal."""
    from rich import markup
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, disable=not console.is_terminal)
    task = bar.add_task(markup.escape(about), total=None)
    bar.start()

    def show(_: str, done: int, total: int | None, remaining_s: float | None) -> None:
        bar.update(task, completed=done, total=total)
        if remaining_s == -1.0:
            bar.stop()

    return show


def complete_value(text: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return completions of the unterminated string at the end of ``text``; [] if its meaning is unknown."""
    choices: Iterable[str] = ()
    if (match := _KEYWORD.search(text)) is not None:
        choices = _metrics() if match[1] in {"metrics", "metric"} else _values(match[1], text, namespace)
    elif (match := _KEY.search(text)) is not None:
        choices = _values("voice", text, namespace)
    elif (match := _MEASURING.search(text)) is not None:
        choices = _metrics()
    return [choice for choice in choices if match and choice.startswith(match.groups()[-1])]


def _values(keyword: str, text: str, namespace: Mapping[str, Any]) -> Iterable[str]:
    """Return the values of a keyword, for the lab last used in ``text`` or, without one, for all labs."""
    labs = {name: value for name, value in namespace.items() if isinstance(value, Session)}
    mentioned = [labs[name] for name in re.findall(r"\w+", text) if name in labs]
    schemas = [_options_of(lab.capabilities) for lab in mentioned[-1:] or labs.values()] or [OPTIONS]
    return dict.fromkeys(str(value) for schema in schemas for value in schema.get(keyword, {}).get("enum", ()))


def _metrics() -> Iterable[str]:
    from voicelab.metrics.measure import METRICS  # deferred: slow to import

    return METRICS


def install(shell: Any) -> None:
    """Add completion of voices, metrics and field values to an IPython shell, once."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    matchers = shell.Completer.custom_matchers
    if any(getattr(matcher, "matcher_identifier", "") == "voicelab" for matcher in matchers):
        return

    @context_matcher(identifier="voicelab")  # type: ignore[untyped-decorator]  # IPython's
    def matcher(context: Any) -> Any:
        values = complete_value(context.text_until_cursor, shell.user_ns)
        # A completion replaces IPython's token, which may begin before the string.
        typed = re.split(r"[\"']|\.voices\.", context.text_until_cursor)[-1]
        prefix = context.token.removesuffix(typed)
        offers = [SimpleCompletion(prefix + value, type="string") for value in values]
        return {"completions": offers, "suppress": bool(values), "ordered": True}

    matchers.append(matcher)
