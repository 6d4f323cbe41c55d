"""ComparePanel: a Comparison to be heard, switched without a gap; and what stays of it in a saved notebook."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import anywidget
import numpy as np

from voicelab.audio.analysis import mel
from voicelab.audio.clip import Clip
from voicelab.audio.samples import to_int16
from voicelab.errors import RequestInvalid
from voicelab.experiments.comparison.comparison import Comparison
from voicelab.views.display import INK, embedded_audio
from voicelab.views.modules import STATIC, inlined
from voicelab.views.plots import plot_clips

__all__ = ["ComparePanel", "comparison_bundle"]

_RATE: Final = 44_100
_BANDS: Final = 64
_RANGE_DB: Final = 80.0
_MOST_COLUMNS: Final = 1_200
_BUDGET: Final = 1024 * 1024


class ComparePanel(anywidget.AnyWidget):
    """A comparison to listen to: keys 1 to 8 switch, space plays and pauses, the arrows go a second back and forth.

    Sounds take over within 8 ms, at the same word or at the same time, at one loudness or as they are. A click into
    a picture goes there, a drag repeats that part, Escape ends that; "Blind" shuffles and hides the names.
    """

    _esm = inlined("compare.js")
    _css = STATIC / "compare.css"

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison
        self.on_msg(self._on_message)

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        if message.get("kind") == "ready":
            told, buffers = _told(self.comparison)
            self.send({"kind": "clips", **told}, buffers)

    def __repr__(self) -> str:
        return f"ComparePanel({self.comparison!r})"


def _told(comparison: Comparison) -> tuple[dict[str, Any], list[bytes]]:
    gains, lufs = _gains(comparison)
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
    return {"clips": clips, "lufs": lufs}, buffers


def _gains(comparison: Comparison) -> tuple[dict[str, float], str]:
    try:
        matched = comparison.matched
    except RequestInvalid:
        # A clip without loudness is heard as it is, and so are the others.
        return dict.fromkeys(comparison.names, 0.0), "not defined"
    return {name: round(gain, 2) for name, gain in matched.gains.items()}, f"{matched.lufs:.1f}"


def _spectrogram(clip: Clip) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return mel levels as bytes, (bands, columns), low bands first; 255 is the loudest, 0 is 80 dB below it."""
    hop = max(0.005, clip.duration / _MOST_COLUMNS)
    db = mel(clip, bands=_BANDS, hop_s=hop).db
    scaled = 255.0 * (1.0 + (db - db.max()) / _RANGE_DB)
    return np.ascontiguousarray(np.clip(scaled, 0.0, 255.0).astype(np.uint8))


def comparison_bundle(comparison: Comparison) -> dict[str, str]:
    """Return the static outputs of a comparison: players one below the other, contours on one axis, tables, text."""
    text = repr(comparison)
    picture = base64.b64encode(_contours(comparison)).decode("ascii")
    budget = _BUDGET // len(comparison.clips)
    gains, lufs = _gains(comparison)
    rows = []
    for name, clip in comparison.clips.items():
        audio, said = embedded_audio(clip, budget)
        rows.append(
            f'<tr><th style="text-align:left">{escape(name)}</th><td>'
            f'<audio controls src="data:audio/mpeg;base64,{audio}" style="height:32px;width:320px"></audio></td>'
            f'<td style="color:{INK}">{gains[name]:+.1f} dB to {escape(lufs)} LUFS; {escape(said)}</td></tr>'
        )
    table = comparison.differences()
    differing = table.to_html(na_rep="", border=0) if len(table) else "<p>Their requests do not differ.</p>"
    html = (
        f'<div style="font-size:12px"><table>{"".join(rows)}</table>'
        f'<img alt="F0 and energy. {escape(text)}" style="max-width:640px;width:100%" src="data:image/png;base64,{picture}">'
        f"{differing}</div>"
    )
    return {"text/html": html, "image/png": picture, "text/plain": text}


def _contours(comparison: Comparison) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    figure.patch.set_alpha(0.0)
    axes = figure.subplots(2, 1, sharex=True)
    plot_clips(*comparison.clips.values(), kind=("f0", "energy"), axes=axes, labels=list(comparison.names))
    for ax in axes:
        ax.patch.set_alpha(0.0)
        ax.tick_params(colors=INK, labelsize=7)
        for item in (ax.xaxis.label, ax.yaxis.label):
            item.set_color(INK)
            item.set_fontsize(7)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})
    return data.getvalue()
