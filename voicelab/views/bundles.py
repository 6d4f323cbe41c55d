"""What values show as a cell's last value: static HTML, a picture and plain text, which carry all they need.

The outputs hold no widget, so that they play in a notebook that was saved and opened again, in one that is not
trusted, and on a page made from it, and so that they are the same bytes every time
(docs/decisions/14-what-a-notebook-shows.md).
Of records and errors only the fields named here are shown: an answer's raw body, a key or a request's audio never are.
"""

from __future__ import annotations

import base64
import math
import textwrap
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
from voicelab.metrics.words import recognizer_name
from voicelab.runs.failures import error_message
from voicelab.schema import VoiceModel
from voicelab.stats.effects import ACTS, NOTHING, Effects
from voicelab.sweeps.knobs import KnobCheck
from voicelab.views.plots import INK, LABEL_SIZE, plot_clips, png, use_ink

BUDGET: Final = 1024 * 1024
"""Bytes of base64 that the audio of one output may take."""

_ERROR: Final = "color:var(--jp-error-color1,#c62828)"
_LEFT_CELL: Final = 'style="text-align:left;vertical-align:top"'
# kbit/s of mp3, best first. Every browser plays mp3; Opus in Ogg is newer in Safari than some macOS.
_BITRATES: Final = (128, 64)
_DPI: Final = 100
_SAMPLE_BYTES: Final = 20_000
_SIZE: Final = (6.4, 2.6)
_LEFT, _WIDTH = 0.09, 0.90
# Rows of effects in one picture.
_DRAWN: Final = 24
# What a caption says in another way, or not at all.
_CAPTIONED: Final = frozenset({"temperature", "reference_id", "seed"})
# Pitch takes a second for half a minute of sound: of long clips the beginning is measured.
_MEASURED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class TableCell:
    """A table's cell that is HTML already, with attributes of its own; any other value is escaped text."""

    html: str
    attributes: str = _LEFT_CELL


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", row_heads: bool = False) -> str:
    """Return an HTML table; "" for one without rows.

    A cell is a TableCell or anything whose ``str`` is its text. The last cell of a row that is too short spans what is left.
    With ``row_heads`` the first cell of each row is its heading.
    """
    width = len(heads)
    body = "".join(table_row(row, width, row_head=row_heads) for row in rows)
    if not body:
        return ""
    title = f'<caption style="text-align:left;opacity:0.75">{escape(caption)}</caption>' if caption else ""
    head = "".join(f'<th scope="col" {_LEFT_CELL}>{escape(text)}</th>' for text in heads)
    return f"<table>{title}{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def table_row(row: Sequence[object], width: int = 0, *, row_head: bool = False) -> str:
    """Return one row of an HTML table that has ``width`` columns, as ``table`` says."""
    cells = [cell if isinstance(cell, TableCell) else TableCell(escape(str(cell))) for cell in row]
    span = f' colspan="{width - len(cells) + 1}"' if len(cells) < width else ""
    html = ""
    for place, cell in enumerate(cells):
        wide = span if place == len(cells) - 1 else ""
        if row_head and place == 0:
            html += f'<th scope="row" {cell.attributes}>{cell.html}</th>'
        else:
            html += f"<td {cell.attributes}{wide}>{cell.html}</td>"
    return f"<tr>{html}</tr>"


def small_print(html: str) -> str:
    """Return a part of an output in the size of its tables."""
    return f'<div style="font-size:12px">{html}</div>'


def audio_element(data: str, style: str, **attributes: str) -> str:
    """Return a player of mp3 in base64, with attributes besides."""
    more = "".join(f'{name.replace("_", "-")}="{escape(value)}" ' for name, value in attributes.items())
    return f'<audio controls {more}src="data:audio/mpeg;base64,{data}" style="{style}"></audio>'


def metric_label(name: str, unit: str = "") -> str:
    """Return what a metric is called for people: ``F0 median, Hz``; of word errors, by whom: ``WER by pocketsphinx``."""
    short = {"f0", "snr", "mos", "pesq", "stoi", "mcd", "mfcc", "wer", "cer", "rtf", "rmse", "sd", "hnr", "cpps"}
    words = " ".join(word.upper() if word in short else word for word in name.split("_"))
    with suppress(VoicelabError):
        words += f" by {recognizer_name(Tools())}" if name in METRICS and "recognizer" in METRICS[name].needs else ""
    return f"{words[:1].upper()}{words[1:]}, {unit}".rstrip(", ")


def format_figure(value: float, unit: str) -> str:
    """Return a measurement for people, without its unit; a dash where it is not defined."""
    if not math.isfinite(value):
        return "–"
    whole = unit == "Hz" or (not unit and value == int(value))
    return f"{value:.0f}" if whole else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def clip_bundle(clip: Clip) -> dict[str, str]:
    """Return the outputs of ``clip`` by media type: text/html, image/png (base64) and text/plain.

    The HTML plays and shows by itself: ``<audio>`` with the sound inside (mp3, never normalised, within
    ``BUDGET``, and it says how much) and the picture. Where scripts may run, the picture has a cursor and
    a click on it plays from there.
    """
    picture = clip_picture(clip)
    return {"text/html": _clip_html(clip, picture), "image/png": picture, "text/plain": clip_text(clip)}


def clip_audio(clip: Clip, **options: Any) -> Any:
    """Return a plain ``IPython.display.Audio``: the clip's own samples, in a WAV, never normalised.

    IPython's own way from samples would make every clip as loud as it can be, unless told otherwise.
    """
    from IPython.display import Audio

    return Audio(data=clip.to_bytes("wav"), **{"normalize": False, **options})  # type: ignore[no-untyped-call]


def clip_text(clip: Clip) -> str:
    """Return the clip in one line of rounded figures, the same wherever it is made."""
    short = digest(clip if clip.duration <= _MEASURED_S else clip.slice(0.0, _MEASURED_S))
    pitch = "unvoiced" if short.f0 is None else f"F0 {short.f0:.0f} Hz"
    bands = " ".join(f"{level:.0f}" for level in short.mel)
    part = f" (first {_MEASURED_S:.0f} s)" if clip.duration > _MEASURED_S else ""
    return f"Clip({clip.duration:.2f} s, {clip.rate} Hz, {clip.level:.0f} dBFS, {pitch}, mel {bands} dB{part})"


def caption(clip: Clip) -> str:
    """Return what a clip is, for people: ``2.93 s · marlow · temperature 0.7 · seed 1``, and all else that was asked for."""
    parts = [f"{clip.duration:.2f} s"]
    take = clip.take
    if take is None:
        return f"{parts[0]} · {clip.rate} Hz"
    cloned = take.request.references and take.request.reference_id is None
    parts.append("cloned voice" if cloned else take.request.reference_id or "default voice")
    settings, plain = take.call.settings, Call.of("x").settings
    asked = {name: value for name, value in settings.items() if value != plain.get(name) and name not in _CAPTIONED}
    said = {"temperature": take.request.temperature, **asked}
    parts += [f"{short_name(name)} {value}" for name, value in said.items()]
    parts += [f"seed {take.seed}"] if take.seed is not None else []
    return " · ".join(parts)


def clip_picture(clip: Clip) -> str:
    """Return waveform over mel spectrogram as a small PNG that is readable on light and dark pages, in base64."""
    # No pyplot: it would keep the figure, and a notebook would show it a second time.
    from matplotlib.figure import Figure

    edges = {"left": _LEFT, "right": _LEFT + _WIDTH, "bottom": 0.17, "top": 0.93}
    figure = Figure(figsize=_SIZE, dpi=_DPI, facecolor="none")
    axes = plot_clips(clip, axes=figure.subplots(2, 1, sharex=True, gridspec_kw=edges))
    use_ink(*axes, label_size=LABEL_SIZE)
    return png(figure)


def embedded_audio(clip: Clip, budget: int) -> tuple[str, str]:
    """Return the sound as base64 mp3 of at most ``budget`` bytes, and the sentence that says what it is.

    Raises RequestInvalid for a budget below 4096 bytes.
    """
    if budget < 4096:
        raise RequestInvalid.of("budget", "an output needs 4096 bytes for its sound at least", in_="query")
    part, cut, longest = clip, "", budget * 3 / 4 / (_BITRATES[-1] * 125)
    while True:
        if part.duration > longest:
            part = clip.slice(0.0, longest)
            cut = f"; only the first {longest:.1f} s of {clip.duration:.1f} s fit, save() keeps all"
        (data,), note = embedded_audios([part], budget)
        if data is not None:
            return data, note + cut
        longest *= 0.98  # headers and the last frame count too


def embedded_audios(clips: Sequence[Clip], budget: int) -> tuple[list[str | None], str]:
    """Return clips as base64 mp3 whose sum stays within ``budget`` bytes, and a sentence on what they are.

    All have the same bitrate, the better of 128 and 64 kbit/s that lets all in; where neither does, the first that
    fit are whole and of the others there is None.
    """
    seconds = sum(clip.duration for clip in clips)
    # 4/3 for base64; a frame or two of each file, and its header, are not sound.
    need = {rate: (seconds * rate * 125 + 1500 * len(clips)) * 4 / 3 for rate in _BITRATES}
    bitrate = next((rate for rate in _BITRATES if need[rate] <= budget), _BITRATES[-1])
    parts: list[str | None] = []
    used = 0
    for clip in clips:
        data = base64.b64encode(clip.to_bytes("mp3", bitrate=bitrate)).decode("ascii")
        if used + len(data) > budget:
            # The first that does not fit ends it, or short takes would be heard and long ones not.
            break
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
    # In attributes, because an untrusted notebook loses them without harm, and they need no ids.
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
    """Return what a backend is and can do, and its voices."""
    prices, longest = capabilities.prices, capabilities.max_text
    html = _fields(
        ("backend", f"{capabilities.name} on {capabilities.device}"),
        ("models", ", ".join(capabilities.models) + (" (one set of weights)" if capabilities.one_model else "")),
        ("seed", capabilities.seed),
        ("languages", ", ".join(capabilities.languages)),
        ("longest text", "" if longest is None else f"{longest:,} characters"),
        ("price", "" if prices is None else ", ".join(map(str, prices)) or "free"),
        ("fingerprint", capabilities.fingerprint),
        ("license", capabilities.license),
        ("notice", capabilities.notice),
    )
    limited = [
        (short_name(one.field), f"does nothing: {one.ignored}" if one.ignored else one.narrowed)
        for one in capabilities.fields
    ]
    html += table(("field", "here"), limited)
    html += table(("own knob", "takes", "default", "what it does"), map(_knob_row, capabilities.knobs))
    html += _presets_table(Voices(capabilities.voices))
    return {"text/html": small_print(html), "text/plain": repr(capabilities)}


def _knob_row(knob: Knob) -> tuple[object, ...]:
    takes = ", ".join(knob.choices) or knob.type
    if knob.bounds is not None:
        takes = f"{knob.type} from {knob.bounds[0]:g} to {knob.bounds[1]:g}"
    return knob.name, takes, knob.default, knob.description


def presets_bundle(voices: Voices) -> dict[str, str]:
    """Return the voices that a backend brings with it as a table, each with a sample where that is free."""
    return {"text/html": small_print(_presets_table(voices)), "text/plain": repr(tuple(voices))}


def _presets_table(voices: Voices) -> str:
    rows: list[tuple[Any, ...]] = [(voice.id, voice.title, voice.description) for voice in voices]
    plain = table(("voice", "title", "description"), rows)
    if voices.sample is None:
        return plain
    try:
        with ThreadPoolExecutor() as pool:  # a backend makes those that are asked for together together
            clips = list(pool.map(voices.sample, voices))
    except VoicelabError as error:  # a recording without them, a lab that was closed
        return f"{plain}<div>No samples: {escape(str(error))}</div>"
    samples = [embedded_audio(clip, _SAMPLE_BYTES)[0] for clip in clips]
    players = [TableCell(audio_element(sample, "height:32px;width:240px")) for sample in samples]
    heard = [(*row, player) for row, player in zip(rows, players, strict=True)]
    return table(("voice", "title", "description", "sample"), heard)


def knob_check_bundle(check: KnobCheck) -> dict[str, str]:
    """Return what was measured of each field and knob beside what is declared."""
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
    head = ("field or knob", "measured", "declared", "values", "other samples", "strongest difference", "")
    return {"text/html": small_print(table(head, rows)), "text/plain": str(check)}


def voice_bundle(voice: VoiceModel) -> dict[str, str]:
    """Return the record of a voice: its id and state, and what it was made of."""
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
    """Return a table of voices: ids and states, and of how many recordings they were made; "" for none."""
    rows = [
        (voice.title, voice.id, voice.state, voice.visibility, _moment(voice.created_at), len(voice.samples))
        for voice in voices
    ]
    return small_print(table(("title", "voice", "state", "visibility", "created", "recordings"), rows)) if rows else ""


def take_bundle(take: Take) -> dict[str, str]:
    """Return where a take comes from: what was asked, what answered, and what tells it from every other."""
    asked = {short_name(name): value for name, value in take.call.settings.items() if value is not None}
    created = f"{take.created:%Y-%m-%d %H:%M:%S} UTC" + (", kept from an earlier run" if take.cached else "")
    html = _fields(
        ("text", take.request.text),
        *((name, value) for name, value in asked.items() if name not in {"text", "seed", "references"}),
        ("references", len(take.request.references or ()) or ""),
        ("seed", "not known" if take.seed is None else take.seed),
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
    """Return words with their times as a table."""
    rows = [
        (word.text, f"{word.start:.3f}", f"{word.end:.3f}", f"{1000 * (word.end - word.start):.0f}") for word in words
    ]
    html = table(("word", "start, s", "end, s", "lasts, ms"), rows) or "<p>No word times are known.</p>"
    if words.likelihood is not None:
        about = "about -1 for what is said, -5 for other words"
        html += f"<div>By forced alignment, log likelihood {words.likelihood:.1f}: {about}.</div>"
    return {"text/html": small_print(html), "text/plain": repr(tuple(words))}


def error_bundle(error: VoicelabError) -> dict[str, str]:
    """Return an error for people: a table of the fields of a RequestInvalid, otherwise its sentence."""
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
    """Return what each axis does to each metric, what acts first: a table, the forest plot beside it, notes below."""
    from matplotlib.figure import Figure

    shown = effects.sorted[effects.sorted["verdict"] != NOTHING]
    left = len(shown) - _DRAWN
    notes = [effects.noise, f"The picture leaves out {left} rows of the table." if left > 0 else "", *effects.notes]
    said = "".join(f'<p role="note">{escape(note)}</p>' for note in notes if note)
    outputs = {"text/plain": str(effects)}
    image = ""
    if len(shown):
        drawing = Figure(dpi=_DPI, layout="constrained", facecolor="none")
        axes = drawing.subplots()
        axes.tick_params(labelsize=8)
        replace(effects, frame=shown.head(_DRAWN)).plot(axes)
        drawing.set_size_inches(4.2, 1.3 + 0.3 * len(axes.get_yticks()))
        # Centred below all of it: below the axes alone it would be cut.
        lines = [textwrap.fill(line, 68) for line in axes.get_xlabel().split("\n")]
        drawing.supxlabel("\n".join(lines), fontsize=8, color=INK)
        axes.set_xlabel("")
        use_ink(axes)
        outputs["image/png"] = picture = png(drawing)
        what = "Each difference with its interval; the table says the same"
        image = f'<img alt="{what}" style="max-width:100%" src="data:image/png;base64,{picture}">'
    beside = f'<div style="flex:1 1 400px">{_effects_table(effects)}</div>{image}'
    html = f'<div style="display:flex;flex-wrap:wrap;gap:12px;align-items:flex-start">{beside}</div>{said}'
    return {"text/html": small_print(html), **outputs}


def _effects_table(effects: Effects) -> str:
    """Return a row for each metric and axis; a panel makes buttons of the names that have ``data-pick``."""
    rows = []
    for name, axis, does, numbers, verdict in effects.rows():
        label = escape(metric_label(name, METRICS[name].unit if name in METRICS else ""))
        changes = (f"<div>{escape(level)}: {escape(change).replace(', ', ',&nbsp;')}</div>" for level, change in does)
        said = TableCell(f"<b>{escape(verdict)}</b>" if verdict == ACTS else escape(verdict))
        subject = TableCell(f'<b data-pick="{escape(name)}">{label}</b><div>{escape(axis)}</div>')
        figures = (number.replace(" ", "\u00a0") for number in numbers.values())
        rows.append((subject, TableCell("".join(changes)), *figures, said))
    heads = ("metric by axis", "effect", *(head.replace("omega", "ω") for head in numbers), "")
    return table(heads, rows, caption=effects.caption)


def error_html(error: Exception) -> str:
    """Return an error for a panel: each field by its name, nothing of a traceback."""
    if isinstance(error, RequestInvalid):
        lines = [f"<b>{escape(item.field)}</b>: {escape(item.msg)}" for item in error.errors]
    else:
        lines = [escape(error_message(error))]
    return f'<div role="alert" style="{_ERROR}">{"<br>".join(lines)}</div>'


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z").strip()


def _fields(*rows: tuple[str, object]) -> str:
    """Return a table of labels and values, without those that are empty."""
    head = f'style="text-align:left;vertical-align:top;color:{INK}"'
    return table((), [(TableCell(escape(label), head), value) for label, value in rows if value], row_heads=True)
