"""What records and errors show as a cell's last value: their fields as a table, beside the plain text.

Only the fields named here are shown: an answer's raw body, a key or a request's audio never are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Any

from voicelab.backend import Capabilities
from voicelab.errors import MissingExtra, RequestInvalid, ServiceError, VoicelabError, install_command
from voicelab.schema import VoiceModel
from voicelab.views.display import INK

__all__ = ["capabilities_bundle", "error_bundle", "voice_bundle", "voices_table"]

_LEFT = 'style="text-align:left;vertical-align:top"'
_ERROR = "color:var(--jp-error-color1,#c62828)"


def capabilities_bundle(capabilities: Capabilities) -> dict[str, str]:
    """Return what a backend is and can do, and its voices."""
    price = capabilities.price_per_million_bytes
    rows = [
        ("backend", f"{capabilities.name} on {capabilities.device}"),
        ("models", ", ".join(capabilities.models) + (" (one set of weights)" if capabilities.one_model else "")),
        ("seed", capabilities.seed),
        ("languages", ", ".join(capabilities.languages)),
        ("longest text", "" if capabilities.max_text is None else f"{capabilities.max_text:,} characters"),
        ("price", "" if price is None else f"{price:g} per million bytes of text"),
        ("fingerprint", capabilities.fingerprint),
    ]
    html = _pairs(rows)
    if capabilities.voices:
        voices = [(voice.id, voice.title, voice.description) for voice in capabilities.voices]
        html += _table(("voice", "title", "description"), voices)
    return {"text/html": _page(html), "text/plain": repr(capabilities)}


def voice_bundle(voice: VoiceModel) -> dict[str, str]:
    """Return the record of a voice: what to call it by, its state, and what it was made of."""
    rows = [
        ("id", voice.id),
        ("title", voice.title),
        ("description", voice.description),
        ("state", voice.state),
        ("visibility", voice.visibility),
        ("languages", ", ".join(voice.languages)),
        ("tags", ", ".join(voice.tags)),
        ("author", voice.author.nickname),
        ("made", _moment(voice.created_at)),
        ("changed", _moment(voice.updated_at)),
    ]
    html = _pairs(rows)
    if voice.samples:
        html += _table(("sample", "text"), [(sample.title, sample.text) for sample in voice.samples])
    return {"text/html": _page(html), "text/plain": repr(voice)}


def voices_table(voices: Sequence[VoiceModel]) -> str:
    """Return a table of voices: what to call them by, their state, and what they were made of; empty for none."""
    rows = [
        (voice.title, voice.id, voice.state, voice.visibility, _moment(voice.created_at), str(len(voice.samples)))
        for voice in voices
    ]
    return _page(_table(("title", "voice", "state", "visibility", "made", "recordings"), rows)) if rows else ""


def error_bundle(error: VoicelabError) -> dict[str, str]:
    """Return an error for people: a table of the fields of a RequestInvalid, otherwise its sentence."""
    name = f'<b style="{_ERROR}">{escape(type(error).__name__)}</b>'
    if isinstance(error, RequestInvalid):
        rows = [(item.field, item.in_, item.msg, item.type) for item in error.errors]
        html = name + _table(("field", "in", "what is wrong", "type"), rows)
    else:
        html = f"{name}: {escape(str(error))}"
    if isinstance(error, ServiceError | RequestInvalid):
        known = (("status", error.status), ("request", error.request_id))
        html += _pairs([(label, "" if value is None else str(value)) for label, value in known])
    if isinstance(error, MissingExtra):
        html += f"<pre>{escape(install_command(error.extra), quote=False)}</pre>"
    return {"text/html": _page(f'<div role="alert">{html}</div>'), "text/plain": repr(error)}


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z").strip()


def _page(html: str) -> str:
    return f'<div style="font-size:12px">{html}</div>'


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of labels and values, without those that are not known."""
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left;vertical-align:top;color:{INK}">{escape(label)}</th>'
        f"<td {_LEFT}>{escape(value)}</td></tr>"
        for label, value in rows
        if value
    )
    return f"<table>{cells}</table>" if cells else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col" {_LEFT}>{escape(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(f"<td {_LEFT}>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
