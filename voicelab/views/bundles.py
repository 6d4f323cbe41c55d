"""Static outputs of values in a notebook: self-contained HTML, a PNG and plain text.

They contain no widgets, so they play in reopened and untrusted notebooks and on exported pages, and are reproducible byte
for byte (docs/decisions/14-what-a-notebook-shows.md). Of records and errors, only the fields listed here are output; raw
response bodies, keys and the audio of a request are never output.
"""

from __future__ import annotations

import base64
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from typing import Any, Final

from voicelab.audio.analysis import digest
from voicelab.audio.words import Words
from voicelab.call import Call, Knob, Voices, short_name
from voicelab.capabilities import Capabilities
from voicelab.clip import Clip, Take
from voicelab.distribution import install_command
from voicelab.errors import MissingExtra, RequestInvalid, ServiceError, VoicelabError
from voicelab.metrics import METRICS, Tools
from voicelab.metrics.words import normalizer_name, recognizer_name
from voicelab.runs.failures import error_message
from voicelab.schema import VoiceModel
from voicelab.stats.effects import NO_DIFFERENCE, SIGNIFICANT, Effects
from voicelab.sweeps.knobs import KnobCheck
from voicelab.views.plots import INK, LABEL_SIZE, plot_clips, png, use_ink

BUDGET: Final = 1024 * 1024
"""Maximum size of the audio in an output, in bytes of base64."""

_ERROR: Final = "color:var(--jp-error-color1,#c62828)"
_LEFT_CELL: Final = 'style="text-align:left;vertical-align:top"'
# MP3 bitrates in kbit/s, best first. Every browser plays MP3; Safari plays Ogg Opus only on recent macOS.
_BITRATES: Final = (128, 64)
_DPI: Final = 100
_SAMPLE_BYTES: Final = 20_000
_SIZE: Final = (6.4, 2.6)
_LEFT, _WIDTH = 0.09, 0.90
# Maximum number of effects (rows) in a figure.
_MAX_FOREST_ROWS: Final = 24
# Settings that a caption formats differently or omits.
_CAPTIONED: Final = frozenset({"temperature", "reference_id", "seed"})
# Pitch tracking takes 1 s for 30 s of audio, so only the beginning of long clips is analyzed.
_MEASURED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class TableCell:
    """A table cell of raw HTML, with attributes for its tag; any other value is escaped as text."""

    html: str
    attributes: str = _LEFT_CELL


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", row_heads: bool = False) -> str:
    """Return an HTML table; "" without rows.

    Cells are TableCells or values shown by ``str``. In a short row the final cell spans the remaining columns. With
    ``row_heads`` the first cell of each row is a header cell.
    """
    width = len(heads)
    body = "".join(table_row(row, width, row_head=row_heads) for row in rows)
    if not body:
        return ""
    title = f'<caption style="text-align:left;opacity:0.75">{escape(caption)}</caption>' if caption else ""
    head = "".join(f'<th scope="col" {_LEFT_CELL}>{escape(text)}</th>' for text in heads)
    return f"<table>{title}{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def table_row(row: Sequence[object], width: int = 0, *, row_head: bool = False) -> str:
    """Return a row of an HTML table with ``width`` columns; see ``table``."""
    cells = [cell if isinstance(cell, TableCell) else TableCell(escape(str(cell))) for cell in row]
    span = f' colspan="{width - len(cells) + 1}"' if len(cells) < width else ""
    html = ""
    for index, cell in enumerate(cells):
        wide = span if index == len(cells) - 1 else ""
        if row_head and index == 0:
            html += f'<th scope="row" {cell.attributes}>{cell.html}</th>'
        else:
            html += f"<td {cell.attributes}{wide}>{cell.html}</td>"
    return f"<tr>{html}</tr>"


def small_print(html: str) -> str:
    """Wrap HTML in the font size of tables."""
    return f'<div style="font-size:12px">{html}</div>'


def audio_element(data: str, style: str, **attributes: str) -> str:
    """Return an HTML audio element with additional attributes.

    ``data`` is MP3 in base64, or the address of a file if it contains a dot.
    """
    source = data if "." in data else f"data:audio/mpeg;base64,{data}"
    more = "".join(f'{name.replace("_", "-")}="{escape(value)}" ' for name, value in attributes.items())
    return f'<audio controls {more}src="{source}" style="{style}"></audio>'


def metric_label(name: str, unit: str = "") -> str:
    """Return the label of a metric, ``F0 median, Hz``; for WER and CER, it names the ASR model and the normalizer."""
    short = {"f0", "snr", "mos", "pesq", "stoi", "mcd", "mfcc", "wer", "cer", "rtf", "rmse", "sd", "hnr", "cpps"}
    words = " ".join(word.upper() if word in short else word for word in name.split("_"))
    if name in METRICS and "recognizer" in METRICS[name].needs:
        words += f" by {recognizer_name(Tools())}, normalizer {normalizer_name(Tools())}"
    return f"{words[:1].upper()}{words[1:]}, {unit}".rstrip(", ")


def format_figure(value: float, unit: str) -> str:
    """Format a measurement without its unit; a dash if it is undefined."""
    if not math.isfinite(value):
        return "–"
    as_integer = unit == "Hz" or (not unit and value == int(value))
    return f"{value:.0f}" if as_integer else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def with_unit(figure: str, unit: str) -> str:
    """Append the unit to a formatted measurement: ``2.47/s``, ``0.9 s``."""
    return f"{figure}/s" if unit == "1/s" else f"{figure} {unit}".rstrip()


def clip_bundle(clip: Clip) -> dict[str, str]:
    """Return the outputs of ``clip`` by media type: text/html, image/png (base64) and text/plain.

    The HTML is self-contained: it has the picture and an ``<audio>`` element with embedded MP3, which is not normalized,
    fits ``BUDGET``, and has a note on its size. Where scripts may run, the picture shows the playback position, and a click
    plays from the clicked time.
    """
    picture = clip_picture(clip)
    return {"text/html": _clip_html(clip, picture), "image/png": picture, "text/plain": clip_text(clip)}


def clip_audio(clip: Clip, **options: Any) -> Any:
    """Return an ``IPython.display.Audio`` of the clip as WAV; it is not normalized, unlike IPython's default."""
    from IPython.display import Audio

    return Audio(data=clip.to_bytes("wav"), **{"normalize": False, **options})  # type: ignore[no-untyped-call]


def clip_text(clip: Clip) -> str:
    """Return a one-line summary with rounded numbers, equal on every platform."""
    short = digest(clip if clip.duration <= _MEASURED_S else clip.slice(0.0, _MEASURED_S))
    pitch = "unvoiced" if short.f0 is None else f"F0 {short.f0:.0f} Hz"
    bands = " ".join(f"{level:.0f}" for level in short.mel)
    scope = f" (first {_MEASURED_S:.0f} s)" if clip.duration > _MEASURED_S else ""
    return f"Clip({clip.duration:.2f} s, {clip.rate} Hz, {clip.level:.0f} dBFS, {pitch}, mel {bands} dB{scope})"


def caption(clip: Clip) -> str:
    """Return a clip's caption: ``2.93 s · marlow · temperature 0.7 · seed 1``, with all non-default settings."""
    parts = [f"{clip.duration:.2f} s"]
    take = clip.take
    if take is None:
        return f"{parts[0]} · {clip.rate} Hz"
    cloned = take.request.references and take.request.reference_id is None
    parts.append("cloned voice" if cloned else take.request.reference_id or "default voice")
    settings, plain = take.call.settings, Call.of("x").settings
    changed = {name: value for name, value in settings.items() if value != plain.get(name) and name not in _CAPTIONED}
    parts += [
        f"{short_name(name)} {value}" for name, value in {"temperature": take.request.temperature, **changed}.items()
    ]
    parts += [f"seed {take.seed}"] if take.seed is not None else []
    return " · ".join(parts)


def clip_picture(clip: Clip) -> str:
    """Draw waveform and mel spectrogram as a base64 PNG that is readable on light and dark pages."""
    # Not created by pyplot, which would retain the figure and display it twice.
    from matplotlib.figure import Figure

    edges = {"left": _LEFT, "right": _LEFT + _WIDTH, "bottom": 0.17, "top": 0.93}
    figure = Figure(figsize=_SIZE, dpi=_DPI, facecolor="none")
    axes = plot_clips(clip, axes=figure.subplots(2, 1, sharex=True, gridspec_kw=edges))
    use_ink(*axes, label_size=LABEL_SIZE)
    return png(figure)


def embedded_audio(clip: Clip, budget: int) -> tuple[str, str]:
    """Encode a clip as base64 MP3 of at most ``budget`` bytes; return it with a note on bitrate, size and truncation.

    Raises RequestInvalid for a budget below 4096 bytes.
    """
    if budget < 4096:
        raise RequestInvalid.of("budget", f"must be at least 4096 bytes, got {budget}", in_="query")
    excerpt, cut, max_s = clip, "", budget * 3 / 4 / (_BITRATES[-1] * 125)
    while True:
        if excerpt.duration > max_s:
            excerpt = clip.slice(0.0, max_s)
            cut = f"; only the first {max_s:.1f} s of {clip.duration:.1f} s fit, save() keeps all"
        (data,), note = embedded_audios([excerpt], budget)
        if data is not None:
            return data, note + cut
        max_s *= 0.98  # headers and the final frame also count


def embedded_audios(clips: Sequence[Clip], budget: int) -> tuple[list[str | None], str]:
    """Encode clips as base64 MP3 of at most ``budget`` bytes in all; return them with a note on bitrate and size.

    All have the same bitrate: 128 kbit/s if all fit, otherwise 64 kbit/s. If not all fit at 64 kbit/s, the first clips are
    encoded, and the others are None.
    """
    seconds = sum(clip.duration for clip in clips)
    # 4/3 for base64; 1500 bytes for the header and padding frames of each file.
    need = {rate: (seconds * rate * 125 + 1500 * len(clips)) * 4 / 3 for rate in _BITRATES}
    bitrate = next((rate for rate in _BITRATES if need[rate] <= budget), _BITRATES[-1])
    parts: list[str | None] = []
    used = 0
    for clip in clips:
        data = base64.b64encode(clip.to_bytes("mp3", bitrate=bitrate)).decode("ascii")
        if used + len(data) > budget:
            break  # rather than embedding short takes only
        parts.append(data)
        used += len(data)
    note = f"mp3, {bitrate} kbit/s, {used / 1024:.0f} of {budget / 1024:.0f} KiB"
    if len(parts) < len(clips):
        note += f"; only the first {len(parts)} of {len(clips)} takes fit: panel() plays all, export() writes them"
    return parts + [None] * (len(clips) - len(parts)), note


def _clip_html(clip: Clip, picture: str) -> str:
    text = caption(clip)
    audio, note = embedded_audio(clip, BUDGET)
    duration = f"{max(clip.duration, 0.001):.4f}"
    # Scripts in attributes need no ids, and untrusted notebooks drop them without harm.
    follow = (
        "var c=this.parentNode.querySelector('i');c.style.display='block';"
        "if(matchMedia('(prefers-reduced-motion:reduce)').matches)c.style.transition='none';"
        f"c.style.left=({100 * _LEFT:.0f}+{100 * _WIDTH:.0f}*Math.min(1,this.currentTime/{duration}))+'%'"
    )
    seek = (
        "var a=this.parentNode.parentNode.querySelector('audio'),r=this.getBoundingClientRect();"
        f"a.currentTime=Math.max(0,((event.clientX-r.left)/r.width-{_LEFT})/{_WIDTH})*{duration};a.play()"
    )
    notes = "".join(f'<div role="note">{escape(note)}</div>' for note in clip.notes)
    return (
        '<div style="max-width:640px;font-size:12px">'
        f'<audio controls src="data:audio/mpeg;base64,{audio}" style="width:100%;height:36px" '
        f'ontimeupdate="{follow}"></audio>'
        '<div style="position:relative;cursor:pointer">'
        '<i style="display:none;position:absolute;top:7%;bottom:17%;width:2px;background:#D55E00;'
        'transition:left .25s linear;pointer-events:none"></i>'
        f'<img alt="Waveform and mel spectrogram" style="width:100%" '
        f'src="data:image/png;base64,{picture}" onclick="{seek}"></div>'
        f'<div class="voicelab-caption">{escape(text)} <span style="opacity:0.75">{escape(note)}</span></div>{notes}</div>'
    )


def capabilities_bundle(capabilities: Capabilities) -> dict[str, str]:
    """Return the static output of the capabilities of a backend, with its voices."""
    prices, max_text = capabilities.prices, capabilities.max_text
    html = _fields(
        ("backend", f"{capabilities.name} on {capabilities.device}"),
        ("models", ", ".join(capabilities.models) + (" (shared weights)" if capabilities.one_model else "")),
        ("seed", capabilities.seed),
        ("languages", ", ".join(capabilities.languages)),
        ("max text length", "" if max_text is None else f"{max_text:,} characters"),
        ("price", "" if prices is None else ", ".join(map(str, prices)) or "free"),
        ("fingerprint", capabilities.fingerprint),
        ("license", capabilities.license),
        ("notice", capabilities.notice),
    )
    limited = [
        (short_name(support.field), f"no effect: {support.ignored}" if support.ignored else support.narrowed)
        for support in capabilities.fields
    ]
    html += table(("field", "support"), limited)
    html += table(("knob", "values", "default", "description"), map(_knob_row, capabilities.knobs))
    html += _presets_table(Voices(capabilities.voices))
    return {"text/html": small_print(html), "text/plain": repr(capabilities)}


def _knob_row(knob: Knob) -> tuple[object, ...]:
    values = ", ".join(map(str, knob.choices)) or knob.type
    if knob.bounds is not None:
        values = f"{knob.type} from {knob.bounds[0]:g} to {knob.bounds[1]:g}"
    return knob.name, values, knob.default, knob.description


def presets_bundle(voices: Voices) -> dict[str, str]:
    """Return the static output of preset voices: a table, with a sample of each voice if synthesis is free."""
    return {"text/html": small_print(_presets_table(voices)), "text/plain": repr(tuple(voices))}


def _presets_table(voices: Voices) -> str:
    rows: list[tuple[Any, ...]] = [(voice.id, voice.title, voice.description) for voice in voices]
    plain = table(("voice", "title", "description"), rows)
    if voices.sample is None:
        return plain
    try:
        with ThreadPoolExecutor() as pool:  # concurrent requests are synthesized as a batch
            clips = list(pool.map(voices.sample, voices))
    except VoicelabError as error:  # for example a closed lab
        return f"{plain}<div>No samples: {escape(str(error))}</div>"
    samples = [embedded_audio(clip, _SAMPLE_BYTES)[0] for clip in clips]
    players = [TableCell(audio_element(sample, "height:32px;width:240px")) for sample in samples]
    with_samples = [(*row, player) for row, player in zip(rows, players, strict=True)]
    return table(("voice", "title", "description", "sample"), with_samples)


def knob_check_bundle(check: KnobCheck) -> dict[str, str]:
    """Return the static output of a knob check: a table of measured and declared effects."""
    rows = [
        (
            item.name,
            item.verdict,
            item.declared,
            " → ".join(map(str, item.values)),
            "" if item.changed is None else f"{item.changed:.0%}",
            item.difference,
            item.reason,
        )
        for item in check.findings
    ]
    head = ("field or knob", "measured", "declared", "values", "samples changed", "largest difference", "")
    return {"text/html": small_print(table(head, rows)), "text/plain": str(check)}


def voice_bundle(voice: VoiceModel) -> dict[str, str]:
    """Return the static output of a stored voice: its record, samples and transcripts."""
    html = _fields(
        ("id", voice.id),
        ("title", voice.title),
        ("description", voice.description),
        ("state", voice.state),
        ("visibility", voice.visibility),
        ("languages", ", ".join(voice.languages)),
        ("tags", ", ".join(voice.tags)),
        ("author", voice.author.nickname),
        ("created", _moment(voice.created_at)),
        ("changed", _moment(voice.updated_at)),
    )
    html += table(("sample", "text"), [(sample.title, sample.text) for sample in voice.samples])
    return {"text/html": small_print(html), "text/plain": repr(voice)}


def voices_table(voices: Sequence[VoiceModel]) -> str:
    """Return a table of stored voices; "" if empty."""
    rows = [
        (voice.title, voice.id, voice.state, voice.visibility, _moment(voice.created_at), len(voice.samples))
        for voice in voices
    ]
    return small_print(table(("title", "voice", "state", "visibility", "created", "recordings"), rows)) if rows else ""


def take_bundle(take: Take) -> dict[str, str]:
    """Return the static output of a take: its request, backend, timing and digest."""
    settings = {short_name(name): value for name, value in take.call.settings.items() if value is not None}
    created = f"{take.created:%Y-%m-%d %H:%M:%S} UTC" + (", from the cache" if take.cached else "")
    html = _fields(
        ("text", take.request.text),
        *((name, value) for name, value in settings.items() if name not in {"text", "seed", "references"}),
        ("references", len(take.request.references or ()) or ""),
        ("seed", "unknown" if take.seed is None else take.seed),
        ("backend", take.backend),
        ("device", take.device),
        ("fingerprint", take.fingerprint),
        ("created", created),
        ("first audio, s", f"{take.timing.first_audio_s:.3f}"),
        ("total, s", f"{take.timing.total_s:.3f}"),
        ("similarity", "" if take.similarity is None else f"{take.similarity:.2f}"),
        ("sha256 of the audio", take.digest),
        ("notes", " ".join(take.all_notes)),
    )
    return {"text/html": small_print(html), "text/plain": repr(take)}


def words_bundle(words: Words) -> dict[str, str]:
    """Return the static output of words: a table with their times."""
    rows = [
        (word.text, f"{word.start:.3f}", f"{word.end:.3f}", f"{1000 * (word.end - word.start):.0f}") for word in words
    ]
    html = table(("word", "start, s", "end, s", "duration, ms"), rows) or "<p>No word times available.</p>"
    if words.source:
        about = "about -1 for a matching text, -5 for a different text"
        likely = "" if words.likelihood is None else f", log likelihood {words.likelihood:.1f}: {about}"
        html += f"<div>By {escape(words.source)}{likely}.</div>"
    return {"text/html": small_print(html), "text/plain": repr(tuple(words))}


def error_bundle(error: VoicelabError) -> dict[str, str]:
    """Return the static output of an error: a table of fields for RequestInvalid, otherwise the message."""
    name = f'<b style="{_ERROR}">{escape(type(error).__name__)}</b>'
    if isinstance(error, RequestInvalid):
        rows = [(item.field, item.in_, item.msg, item.type) for item in error.errors]
        html = name + table(("field", "in", "problem", "type"), rows)
    else:
        html = f"{name}: {escape(str(error))}"
    if isinstance(error, ServiceError | RequestInvalid):
        html += _fields(("status", error.status or ""), ("request", error.request_id or ""))
    if isinstance(error, MissingExtra):
        html += f"<pre>{escape(install_command(error.extra), quote=False)}</pre>"
    return {"text/html": small_print(f'<div role="alert">{html}</div>'), "text/plain": repr(error)}


def effects_bundle(effects: Effects) -> dict[str, str]:
    """Return the static output of effects: a table with significant effects first, a forest plot and notes."""
    from matplotlib.figure import Figure

    selection = effects.sorted[effects.sorted["verdict"] != NO_DIFFERENCE]
    excess = len(selection) - _MAX_FOREST_ROWS
    notes = [effects.noise, f"The figure omits {excess} rows of the table." if excess > 0 else "", *effects.notes]
    notes_html = "".join(f'<p role="note">{escape(note)}</p>' for note in notes if note)
    outputs = {"text/plain": str(effects)}
    image = ""
    if len(selection):
        drawing = Figure(dpi=_DPI, layout="constrained", facecolor="none")
        axes = drawing.subplots()
        axes.tick_params(labelsize=8)
        replace(effects, frame=selection.head(_MAX_FOREST_ROWS)).plot(axes)
        drawing.set_size_inches(4.2, 1.3 + 0.3 * len(axes.get_yticks()))
        # Centered below the figure, since below the axes it would be cut off.
        lines = [textwrap.fill(line, 68) for line in axes.get_xlabel().split("\n")]
        drawing.supxlabel("\n".join(lines), fontsize=8, color=INK)
        axes.set_xlabel("")
        use_ink(axes)
        outputs["image/png"] = picture = png(drawing)
        alt = "Forest plot of the effects in the table, with intervals"
        image = f'<img alt="{alt}" style="max-width:100%" src="data:image/png;base64,{picture}">'
    columns = f'<div style="flex:1 1 400px">{_effects_table(effects)}</div>{image}'
    html = f'<div style="display:flex;flex-wrap:wrap;gap:12px;align-items:flex-start">{columns}</div>{notes_html}'
    conditions = "".join(f'<p role="note"><b>{escape(sentence)}</b></p>' for sentence in effects.conditions)
    return {"text/html": small_print(conditions + html), **outputs}


def _effects_table(effects: Effects) -> str:
    """Return an HTML table with a row per metric and axis; panels turn names with ``data-pick`` into buttons."""
    rows = []
    for name, axis, does, numbers, verdict in effects.rows():
        label = escape(metric_label(name, METRICS[name].unit if name in METRICS else ""))
        changes = (f"<div>{escape(level)}: {escape(change).replace(', ', ',&nbsp;')}</div>" for level, change in does)
        verdict_cell = TableCell(f"<b>{escape(verdict)}</b>" if verdict.startswith(SIGNIFICANT) else escape(verdict))
        subject = TableCell(f'<b data-pick="{escape(name)}">{label}</b><div>{escape(axis)}</div>')
        figures = (number.replace(" ", "\u00a0") for number in numbers.values())
        rows.append((subject, TableCell("".join(changes)), *figures, verdict_cell))
    heads = ("metric by axis", "effect", *(head.replace("omega", "ω") for head in numbers), "")
    return table(heads, rows, caption=effects.caption)


def error_html(error: Exception, label: Callable[[str], str] = str) -> str:
    """Return an error as HTML for a panel, without a traceback: the label of each invalid field, and its problem."""
    if isinstance(error, RequestInvalid):
        lines = [f"<b>{escape(label(item.field))}</b>: {escape(item.msg)}" for item in error.errors]
    else:
        lines = [escape(error_message(error))]
    return f'<div role="alert" style="{_ERROR}">{"<br>".join(lines)}</div>'


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z").strip()


def _fields(*rows: tuple[str, object]) -> str:
    """Return a table of labels and values, omitting empty values."""
    head = 'style="text-align:left;vertical-align:top;opacity:0.75"'
    return table((), [(TableCell(escape(label), head), value) for label, value in rows if value], row_heads=True)
