"""What a form over a speech request needs to know, in plain Python: bounds, texts, checks and code.

Nothing here is written twice: labels, bounds and tooltips come from the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Literal, get_args, get_origin

from voicelab.backend import Capabilities, check_seed
from voicelab.errors import RequestInvalid
from voicelab.experiments.telling import told
from voicelab.schema import ProsodyControl, TTSRequest

__all__ = ["Knob", "call_code", "error_html", "expected_seconds", "knob", "parse_seed", "voice_choices"]

# English read aloud; only a progress bar depends on it.
_CHARACTERS_PER_SECOND: Final = 14.0


@dataclass(frozen=True, slots=True)
class Knob:
    """One field of TTSRequest as a form shows it; ``low``, ``high`` and ``choices`` where it has them."""

    name: str
    description: str
    default: Any
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()


def knob(name: str) -> Knob:
    """Return the field ``name`` of TTSRequest, or of its prosody: ``prosody.speed``. Raises RequestInvalid."""
    place, _, part = name.rpartition(".")
    field = (ProsodyControl if place == "prosody" else TTSRequest).model_fields.get(part)
    if field is None:
        raise RequestInvalid.of(name, "there is no such field")
    bounds = {key: getattr(item, key) for item in field.metadata for key in ("ge", "le") if hasattr(item, key)}
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return Knob(
        name=name,
        description=field.description or "",
        default=None if field.is_required() else field.default,
        low=bounds.get("ge"),
        high=bounds.get("le"),
        choices=choices,
    )


def voice_choices(capabilities: Capabilities, chosen: str | None = None) -> tuple[tuple[str, str | None], ...]:
    """Return (label, reference_id) of every voice to choose from: the default speaker, then the presets.

    ``chosen`` is added when it is none of them, so that a stored voice stays selectable.
    """
    presets = [
        (f"{voice.title} ({voice.description})" if voice.description else voice.title, voice.id)
        for voice in capabilities.voices
    ]
    if chosen is not None and chosen not in {identity for _, identity in presets}:
        presets.append((chosen, chosen))
    return (("Default speaker", None), *presets)


def parse_seed(text: str, capabilities: Capabilities) -> int | None:
    """Read a seed that somebody typed; blank is none. Raises RequestInvalid, which names ``seed``."""
    stripped = text.strip()
    if not stripped:
        return None
    try:
        seed = int(stripped)
    except ValueError:
        message = "Input should be a whole number, or empty for a new one every time"
        raise RequestInvalid.of("seed", message, type="int_type", in_="header") from None
    check_seed(seed, capabilities)
    return seed


def call_code(text: str, fields: Mapping[str, object], *, base: Mapping[str, object]) -> str:
    """Return the call that says ``text`` with ``fields``, without those that ``base`` has already."""
    # No seed is the lab's own, which need not be said.
    changed = {
        name: value for name, value in fields.items() if value != base.get(name) and (name, value) != ("seed", None)
    }
    return f"lab.speak({', '.join([repr(text), *(f'{name}={value!r}' for name, value in changed.items())])})"


def expected_seconds(text: str) -> float:
    """Return about how long ``text`` takes to say, in seconds, more than 0: for progress, not for science."""
    return max(len(text) / _CHARACTERS_PER_SECOND, 0.5)


def error_html(error: Exception) -> str:
    """Return the error for people: each field by its name, nothing of a traceback."""
    if isinstance(error, RequestInvalid):
        lines = [f"<b>{escape(item.field)}</b>: {escape(item.msg)}" for item in error.errors]
    else:
        lines = [escape(told(error))]
    return f'<div role="alert" style="color:var(--jp-error-color1,#c62828)">{"<br>".join(lines)}</div>'
