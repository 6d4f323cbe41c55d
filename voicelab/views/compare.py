"""ComparePanel: a Comparison to be heard, switched without a gap; and what stays of it in a saved notebook."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import anywidget
import numpy as np

from voicelab.audio.analysis import mel
from voicelab.audio.clip import Clip
from voicelab.audio.samples import to_int16
from voicelab.errors import ArgumentError
from voicelab.experiments.comparison import Comparison
from voicelab.experiments.metrics import BASIC, METRICS
from voicelab.experiments.metrics.level import HOP_S
from voicelab.experiments.sweeps.axes import short_name
from voicelab.views.display import INK, embedded_audio
from voicelab.views.lasting import Lasting
from voicelab.views.modules import STATIC, inlined
from voicelab.views.plots import COLOURS, plot_clips
from voicelab.views.sweep import figure

__all__ = ["ComparePanel", "comparison_bundle"]

_RATE: Final = 44_100
_BANDS: Final = 64
_RANGE_DB: Final = 80.0
_QUIET_DB: Final = -60.0
_MOST_COLUMNS: Final = 1_200
_BUDGET: Final = 1024 * 1024


class ComparePanel(Lasting, anywidget.AnyWidget):
    """A comparison to listen to: keys 1 to 8 switch, space plays and pauses, the arrows go a second back and forth.

    Sounds take over within 13 ms, at the same word or at the same time, at one loudness or as they are. A click into
    a picture goes there, a drag repeats that part, Escape ends that; "Blind" stops, shuffles, and hides the names,
    the pictures and all else that would tell them. Below: how far pitch and level are above those of the first clip,
    what differs between the requests, and measurements. They are worked out in a thread; the sounds come first.
    """

    about = "a panel to hear clips side by side and switch between them without a gap"
    _esm = inlined("compare.js")
    _css = STATIC / "compare.css"

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison
        self._closed = False
        self._telling = threading.Lock()
        self.on_msg(self._on_message)

    def close(self) -> None:
        """Take it off the page, and tell it no more."""
        self._closed = True
        super().close()

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        if message.get("kind") == "ready":
            threading.Thread(target=self._tell, name="voicelab-comparison", daemon=True).start()

    def _tell(self) -> None:
        # One page at a time: a second one finds most of it worked out.
        with self._telling:
            for told in (_told, _figures):
                if not self._closed:
                    message, buffers = told(self.comparison)
                    self.send(message, buffers)

    def __repr__(self) -> str:
        return f"ComparePanel({self.comparison!r})"

    def lasting(self) -> Mapping[str, str]:
        """Return what the comparison itself shows."""
        return comparison_bundle(self.comparison)


def _told(comparison: Comparison) -> tuple[dict[str, Any], list[bytes]]:
    gains, lufs = _gains(comparison) or (dict.fromkeys(comparison.names, 0.0), None)
    clips, buffers = [], []
    for name, clip in comparison.clips.items():
        playable = clip if clip.rate == _RATE else clip.resample(_RATE)
        picture = _spectrogram(clip)
        known = comparison.alignments.get(name)
        clips.append(
            {
                "name": name,
                "rate": _RATE,
                "gain": gains[name],
                "bands": picture.shape[0],
                "columns": picture.shape[1],
                "knots": known.knots if known is not None else [(0.0, 0.0), (clip.duration, clip.duration)],
            }
        )
        buffers += [to_int16(playable.samples).tobytes(), picture.tobytes()]
    return {"kind": "clips", "clips": clips, "lufs": lufs}, buffers


def _figures(comparison: Comparison) -> tuple[dict[str, Any], list[bytes]]:
    """Return the tables as text, and the contours of each clip but the first: float32, F0 and then level."""
    buffers, middles = [], []
    for name, found in comparison.contours.items():
        buffers += [found.f0.astype(np.float32).tobytes(), found.energy.astype(np.float32).tobytes()]
        known = found.f0[np.isfinite(found.f0)]
        pitch = f"{_signed(known)} semitones" if known.size else "nothing voiced in both"
        reason = comparison.alignments[name].reason
        why = f"; it runs in step: {reason}" if reason else ""
        middles.append(f"{pitch}, {_signed(found.energy)} dB as they are, in the median{why}")
    return {"kind": "figures", "hop": HOP_S, "middles": middles, "tables": _tables(comparison)}, buffers


def _signed(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    # The sum makes what is nearly nothing +0.0.
    return f"{round(float(np.median(values)), 1) + 0.0:+.1f}"


def _shown(value: Any) -> str:
    """Return a field's value for people; of recordings, how many, and what tells them from others."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict) and "audio_sha256" in value[0]:
        told = ", ".join(str(item["audio_sha256"])[:6] for item in value)
        return f"{len(value)} recording{'s' * (len(value) > 1)} ({told})"
    return "–" if value is None or value in ([], ()) else str(value)


def _tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Return what differs between the requests, and measurements: a title, heads, and rows of text."""
    heads = ["", *comparison.names]
    differing = comparison.differences()
    asked = [
        [short_name(str(field)), *map(_shown, row)]
        for field, row in zip(differing.index, differing.to_numpy(dtype=object).tolist(), strict=True)
    ]
    measured = comparison.metrics(*BASIC)
    figures = [
        [f"{name}, {METRICS[name].unit}".rstrip(", "), *(figure(value, METRICS[name].unit) for value in measured[name])]
        for name in BASIC
    ]
    return [
        {
            "title": "What differs in the requests",
            "heads": heads,
            "rows": asked,
            "empty": "Their requests do not differ.",
        },
        {"title": "Measurements", "heads": heads, "rows": figures, "empty": ""},
    ]


def _gains(comparison: Comparison) -> tuple[dict[str, float], str] | None:
    """Return decibels by name, and to how many LUFS they bring; None where a clip has no loudness."""
    try:
        matched = comparison.matched
    except ArgumentError:
        # It is heard as it is, and so are the others.
        return None
    return {name: round(gain, 2) for name, gain in matched.gains.items()}, f"{matched.lufs:.1f}"


def _spectrogram(clip: Clip) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return mel levels as bytes, (bands, columns), low bands first: 255 is the loudest or -60 dB, 0 is 80 dB below it."""
    hop = max(0.005, clip.duration / _MOST_COLUMNS)
    db = mel(clip, bands=_BANDS, hop_s=hop).db
    # Of silence, and of what is nearly that, no part is bright.
    scaled = 255.0 * (1.0 + (db - max(db.max(), _QUIET_DB)) / _RANGE_DB)
    return np.ascontiguousarray(np.clip(scaled, 0.0, 255.0).astype(np.uint8))


def comparison_bundle(comparison: Comparison) -> dict[str, str]:
    """Return the static outputs of a comparison: players one below the other, contours on one axis, tables, text."""
    text = repr(comparison)
    picture = base64.b64encode(_contours(comparison)).decode("ascii")
    budget = _BUDGET // len(comparison.clips)
    known = _gains(comparison)
    rows = []
    for name, clip in (comparison.clips if known is None else comparison.matched.clips).items():
        audio, said = embedded_audio(clip, budget)
        level = "as it is" if known is None else f"{known[0][name]:+.1f} dB to {known[1]} LUFS"
        rows.append(
            f'<tr><th style="text-align:left">{escape(name)}</th><td>'
            f'<audio controls src="data:audio/mpeg;base64,{audio}" style="height:32px;width:320px"></audio></td>'
            f'<td style="color:{INK}">{escape(level)}; {escape(said)}</td></tr>'
        )
    tables = "".join(map(_table, _tables(comparison)))
    html = (
        f'<div style="font-size:12px"><table>{"".join(rows)}</table>'
        f'<img alt="F0 and energy, and how far they are above the first clip\'s. {escape(text)}" '
        f'style="max-width:640px;width:100%" src="data:image/png;base64,{picture}">{tables}</div>'
    )
    return {"text/html": html, "image/png": picture, "text/plain": text}


def _table(table: dict[str, Any]) -> str:
    left = 'style="text-align:left"'
    rows = [[f"<td {left}>{escape(cell)}</td>" for cell in row] for row in table["rows"]]
    if not rows:
        return f"<p>{escape(table['empty'])}</p>"
    heads = "".join(f'<th scope="col" {left}>{escape(head)}</th>' for head in table["heads"])
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    title = f'<caption style="text-align:left;color:{INK}">{escape(table["title"])}</caption>'
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _contours(comparison: Comparison) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4, 4.8), dpi=100, layout="constrained")
    FigureCanvasAgg(drawn)
    drawn.patch.set_alpha(0.0)
    axes = drawn.subplots(4, 1, sharex=True)
    plot_clips(*comparison.clips.values(), kind=("f0", "energy"), axes=axes[:2], labels=list(comparison.names))
    for number, found in enumerate(comparison.contours.values(), start=1):
        for ax, values in zip(axes[2:], (found.f0, found.energy), strict=True):
            ax.plot(found.times, values, color=COLOURS[number % len(COLOURS)], linewidth=1.0)
    for ax, label in zip(axes[2:], ("F0, semitones", "level, dB"), strict=True):
        ax.axhline(0.0, color=INK, linewidth=0.6)
        ax.set_ylabel(f"{label}\nabove {comparison.names[0]}", parse_math=False)
    axes[1].set_xlabel("")
    axes[3].set_xlabel("time (s), of the first clip where it is a difference")
    for ax in axes:
        ax.patch.set_alpha(0.0)
        ax.tick_params(colors=INK, labelsize=7)
        for item in (ax.xaxis.label, ax.yaxis.label):
            item.set_color(INK)
            item.set_fontsize(7)
    data = io.BytesIO()
    drawn.savefig(data, format="png", metadata={"Software": None})
    return data.getvalue()
