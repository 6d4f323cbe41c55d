"""For code in a notebook: %speak and %%speak, which say a line or a cell; progress(); and what completes inside strings.


Every field of TTSRequest that a word can give is an option of the magics (``--temperature 0.4``, ``--latency low``),
and so are ``--voice``, ``--seed``, ``--model``, ``--speed`` and ``--volume``: all come from the schema, which also checks
the values.
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

# Ten a second look alive; more would only queue up on their way to the page.
_INTERVAL_S: Final = 0.1
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

# A string that was begun and not ended: the value of a keyword, alone or in a list; a voice; or anywhere in a call.
_KEYWORD: Final = re.compile(r"""(\w+)\s*=\s*[\[(]?\s*(?:(?:"[^"]*"|'[^']*')\s*,\s*)*["']([^"']*)$""")
_KEY: Final = re.compile(r"""\.voices(?:\[["']|\.)([^"']*)$""")
_MEASURING: Final = re.compile(r"""\b(?:measure|measure_rows|effects|frame)\(.*["']([^"']*)$""", re.DOTALL)


OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    **{name: field for name, field in TTSRequest.model_json_schema()["properties"].items() if name not in _NOT_TYPED},
    **ProsodyControl.model_json_schema()["properties"],
    **_OURS,
}
"""The options by name, each with its JSON schema."""


def parse(line: str, knobs: Sequence[Knob] = ()) -> tuple[dict[str, Any], str]:
    """Read options from the beginning of ``line``; returns them, and the text after them as it is.

    ``knobs`` are options of the lab's backend. A single ``--`` ends the options. Raises RequestInvalid for one that there
    is not.
    """
    given: dict[str, Any] = {}
    at = 0
    while (end := _END.match(line, at)) is None and (option := _OPTION.match(line, at)) is not None:
        name = option["name"].replace("-", "_")
        if name not in (options := (*OPTIONS, *(knob.name for knob in knobs))):
            near = suggestion(name, options) or f"; there are {', '.join(options)}"
            raise RequestInvalid.of(name, f"there is no such option{near}", in_="query")
        typed = option["value"]
        word = typed[1:-1] if typed[:1] in "\"'" and typed[-1:] == typed[:1] else typed
        given[name] = word if name in ("lab", "to") else parse_value(name, word, knobs)
        at = option.end()
    if end is not None:
        at = end.end()
    elif re.match(r"\s*--", line[at:]):
        raise RequestInvalid.of(line[at:].split(maxsplit=1)[0].lstrip("-"), "the option has no value", in_="query")
    return given, line[at:].strip()


def complete(line: str, lab: Session | None = None) -> list[str]:
    """Return what can stand at the end of ``line``: options, or the values of the option before.

    Of a lab they are what acts there: its voices and models, its backend's own knobs, no field that does nothing.
    """
    words = line.split(" ")
    before = words[-2] if len(words) > 1 else ""
    schemas = OPTIONS if lab is None else _options_of(lab.capabilities)
    if before.startswith("--") and before != "--":
        schema = schemas.get(before.lstrip("-").replace("-", "_"), {})
        values = ["True", "False"] if schema.get("type") == "boolean" else [str(x) for x in schema.get("enum", ())]
        return [value for value in values if value.startswith(words[-1])]
    used = {word for word in words[:-1] if word.startswith("--")}
    return [f"--{name}" for name in schemas if f"--{name}".startswith(words[-1] or "--") and f"--{name}" not in used]


def _options_of(capabilities: Capabilities) -> Mapping[str, dict[str, Any]]:
    """Return the options that do something in a backend, with the values that it takes."""
    voices = {"enum": [voice.id for voice in capabilities.voices]}
    schemas = {**OPTIONS, "voice": voices, "reference_id": voices, "model": {"enum": list(capabilities.models)}}
    off = {name for name in schemas if capabilities.ignored(field_name(name))}
    if capabilities.seed == "none":
        off.add("seed")
    for one in capabilities.fields:
        if one.values and short_name(one.field) in schemas:
            schemas[short_name(one.field)] = {"enum": list(one.values)}
    knobs = {
        knob.name: {"type": "boolean"} if knob.type == "bool" else {"enum": list(knob.choices)}
        for knob in capabilities.knobs
    }
    return {**{name: schema for name, schema in schemas.items() if name not in off}, **knobs}


@magics_class
class SpeakMagics(Magics):
    """The magics, before the lab in the variable ``lab``; where there is none, one is opened when it is first needed."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._names: dict[str, Any] = shell.user_ns
        self._own: Session | None = None

    @line_cell_magic
    def speak(self, line: str, cell: str | None = None) -> Clip:
        """Say the line, or the cell, and return the Clip.

        Options come first, then the text: ``%speak --temperature 0.4 --voice ada Good morning.``
        """
        lab = self._named(line)
        given, text = parse(line, lab.capabilities.knobs if lab is not None else ())
        lab = self.lab(given.pop("lab", None))
        to = given.pop("to", None)
        if cell is not None:
            text = f"{text}\n{cell}".strip()
        clip = lab.speak(text, **given)
        if to is not None:
            self._names[to] = clip
        return clip

    def lab(self, name: str | None = None) -> Session:
        """Return the lab that is in the variable ``name``. Raises RequestInvalid when none is there."""
        value: Any = self._names.get(name or "lab")
        if isinstance(value, Session):
            return value
        if name is not None:
            raise RequestInvalid.of("lab", f"the variable {name!r} holds no lab", in_="query")
        if self._own is None:
            self._own = Session.open()
        return self._own

    def _named(self, line: str) -> Session | None:
        """Return the lab that a line names, so far as there is one."""
        named = next((option["value"] for option in _OPTION.finditer(line) if option["name"] == "lab"), "lab")
        lab: Any = self._names.get(named, self._own)
        return lab if isinstance(lab, Session) else None

    def complete(self, _: Any, event: Any) -> list[str]:
        """Answer IPython's completer. Opens no lab: without one there are no voices to choose from."""
        return complete(event.line, self._named(event.line))


def register(shell: Any) -> None:
    """Give ``%speak`` and ``%%speak`` to an IPython ``shell``, their options to its help and its completer."""
    install(shell)
    magics = SpeakMagics(shell)
    listed = "\n".join(f"    --{name}: {schema.get('description', '')}" for name, schema in OPTIONS.items())
    shell.register_magics(magics)
    documented = (
        "Say the line, or the cell, and return the Clip: %speak --temperature 0.4 Good morning.\n\n"
        "Own knobs of a lab's backend are options too; lab.capabilities lists them, and the fields that do nothing there.\n\n"
    )
    SpeakMagics.speak.__doc__ = f"{documented}Options, before the text; a single -- ends them:\n\n{listed}\n"
    for command in ("%speak", "%%speak"):
        shell.set_hook("complete_command", magics.complete, str_key=command)


def progress(items: Iterable[_Item], about: str = "", *, total: int | None = None) -> Iterator[_Item]:
    """Yield ``items`` and show how far they are: ``for text in vl.progress(texts): lab.speak(text)``.

    Anything that can be iterated; a sweep at work too, whose outcomes come as they are made:
    ``for outcome in vl.progress(sweep.start()): …``.

    Args:
        items: what is gone through.
        about: a word or two before the count.
        total: how many there are, where ``len(items)`` does not say; without it they are only counted.

    At the end, and when the loop is left early, the count alone stays, no times: the same at every run.
    """
    total = operator.length_hint(items, 0) or None if total is None else total
    show = _notebook() or _terminal(about)
    began, last, done = time.monotonic(), 0.0, 0
    show(about, 0, total, None)
    try:
        for item in items:
            yield item
            done += 1
            now = time.monotonic()
            if now >= last + _INTERVAL_S:
                left = (now - began) / done * (total - done) if total else None
                show(about, done, total, left)
                last = now
    finally:
        show(about, done, total, -1.0)


_Show = Callable[[str, int, int | None, float | None], object]
"""Shows about what, how many are done, of how many, and the seconds left; -1 when no more will come."""


def _notebook() -> _Show | None:
    """Return what shows progress in a cell's output, None where there is no notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    handles: list[Any] = []

    def show(about: str, done: int, total: int | None, left: float | None) -> None:
        count = f"{done} of {total}" if total else str(done)
        remaining = f", about {left:.0f} s left" if left is not None and left >= 0.5 else ""
        text = f"{about}: {count}{remaining}" if about else f"{count}{remaining}"
        bar = "" if left == -1.0 else f'<progress value="{done}" max="{total}"></progress> ' if total else ""
        data = {"text/html": f'<div role="status">{bar}{escape(text)}</div>', "text/plain": text}
        if handles:
            handles[0].update(data, raw=True)
        else:
            handles.append(display(data, raw=True, display_id=True))  # type: ignore[no-untyped-call]

    return show


def _terminal(about: str) -> _Show:
    """Return what shows progress in a line of the terminal; nothing where the output is none."""
    from rich import markup
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, disable=not console.is_terminal)
    task = bar.add_task(markup.escape(about), total=None)
    bar.start()

    def show(_: str, done: int, total: int | None, left: float | None) -> None:
        bar.update(task, completed=done, total=total)
        if left == -1.0:
            bar.stop()

    return show


def complete_value(text: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return what the string that ``text`` ends in can be; [] where that is not known."""
    choices: Iterable[str] = ()
    if (match := _KEYWORD.search(text)) is not None:
        choices = _metrics() if match[1] in {"metrics", "metric"} else _values(match[1], text, namespace)
    elif (match := _KEY.search(text)) is not None:
        choices = _values("voice", text, namespace)
    elif (match := _MEASURING.search(text)) is not None:
        choices = _metrics()
    return [choice for choice in choices if match and choice.startswith(match.groups()[-1])]


def _values(keyword: str, text: str, namespace: Mapping[str, Any]) -> Iterable[str]:
    """Return the values of a keyword that the lab takes that is named last in ``text``, or else all labs that there are."""
    labs = {name: value for name, value in namespace.items() if isinstance(value, Session)}
    named = [labs[name] for name in re.findall(r"\w+", text) if name in labs]
    schemas = [_options_of(lab.capabilities) for lab in named[-1:] or labs.values()] or [OPTIONS]
    return dict.fromkeys(str(value) for schema in schemas for value in schema.get(keyword, {}).get("enum", ()))


def _metrics() -> Iterable[str]:
    from voicelab.metrics.measure import METRICS  # by then somebody measures

    return METRICS


def install(shell: Any) -> None:
    """Let the completer of an IPython ``shell`` offer voices, metrics and what a field can be; once."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    matchers = shell.Completer.custom_matchers
    if any(getattr(matcher, "matcher_identifier", "") == "voicelab" for matcher in matchers):
        return

    @context_matcher(identifier="voicelab")  # type: ignore[untyped-decorator]  # IPython's
    def matcher(context: Any) -> Any:
        values = complete_value(context.text_until_cursor, shell.user_ns)
        # A completion stands in the place of IPython's token, which may begin before the string.
        typed = re.split(r"[\"']|\.voices\.", context.text_until_cursor)[-1]
        before = context.token.removesuffix(typed)
        offers = [SimpleCompletion(before + value, type="string") for value in values]
        return {"completions": offers, "suppress": bool(values), "ordered": True}

    matchers.append(matcher)
