"""ComparePanel: gapless switching between the clips of a Comparison, and its static output in a saved notebook."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np

from voicelab.audio.analysis import mel
from voicelab.audio.samples import to_int16
from voicelab.call import short_name
from voicelab.clip import Clip
from voicelab.metrics import BASIC, METRICS
from voicelab.metrics.level import HOP_S
from voicelab.runs.failures import error_message
from voicelab.takes.comparison import Comparison
from voicelab.views.background import Task
from voicelab.views.bundles import (
    BUDGET,
    TableCell,
    audio_element,
    embedded_audio,
    format_figure,
    metric_label,
    small_print,
    table,
)
from voicelab.views.panel import SavedOutput
from voicelab.views.plots import COLORS, INK, LABEL_SIZE, plot_clips, png, use_ink
from voicelab.views.scripts import PageWidget

_RATE: Final = 44_100
_BANDS: Final = 64
_RANGE_DB: Final = 80.0
_QUIET_DB: Final = -60.0
_MAX_COLUMNS: Final = 1_200
_MEASURED: Final = (*BASIC, "f0_median", "f0_range")
# A player that is started while another player of its table plays takes over at the same word. The script is in an
# attribute, since untrusted notebooks drop such attributes without harm.
_SWITCH: Final = (
    "var a=this,o=[...a.closest('table').querySelectorAll('audio')].find(x=>x!==a&&!x.paused);"
    "if(o){var k=x=>JSON.parse(x.dataset.knots),m=(p,f,t,x)=>{var i=1;while(i<p.length-1&&p[i][f]<=x)i++;"
    "var b=p[i-1],e=p[i];return b[t]+(Math.min(x,e[f])-b[f])/(e[f]-b[f])*(e[t]-b[t])};"
    "a.currentTime=m(k(a),0,1,m(k(o),1,0,o.currentTime));o.pause()}"
)


class ComparePanel(SavedOutput, PageWidget):
    """A panel to compare clips by listening: keys 1 to 8 switch between clips, the other keys are those of the player.

    Switching takes 13 ms and continues at the same word or time; loudness is matched or unmatched. A click on a picture
    seeks, a drag loops a region, and Escape ends the loop. "Blind" stops playback, shuffles the clips, and hides names,
    pictures and figures. Below the clips are their differences in pitch and level from the first clip, the differences
    between their requests, and measurements. These are computed in a thread after the audio is sent.
    """

    about = "a panel to compare clips by listening, with gapless switching"
    script = "compare.js"
    styles = ("compare.css", "words.css")

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison
        self._closed = threading.Event()
        self.at_close(self._closed.set)
        # Pages and the saved output are computed one at a time, since each caches results for the next.
        self._lock = threading.Lock()
        self.on_msg(self._on_message)

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        if message.get("kind") == "ready":
            Task(self._fill_page, name="comparison", failed=self._fail).start()

    def _fail(self, error: Exception) -> None:
        self.send({"kind": "failed", "text": error_message(error)})

    def _fill_page(self) -> None:
        with self._lock:
            if not self._closed.is_set():
                self.send(*_sounds(self.comparison))
            if not self._closed.is_set():
                self.send(*_figures(self.comparison, self._tables))

    def __repr__(self) -> str:
        return f"ComparePanel({self.comparison!r})"

    def saved_output(self) -> Mapping[str, str]:
        """Return the static output of the comparison."""
        with self._lock:
            return comparison_bundle(self.comparison, self._tables)

    @functools.cached_property
    def _tables(self) -> list[dict[str, Any]]:
        return _tables(self.comparison)


def _sounds(comparison: Comparison) -> tuple[dict[str, Any], list[bytes]]:
    gains, lufs = _gains(comparison)
    clips, buffers = [], []
    for name, clip in comparison.worded.items():
        playable = clip if clip.rate == _RATE else clip.resample(_RATE)
        picture = _spectrogram(clip)
        clips.append(
            {
                "name": name,
                "rate": _RATE,
                "gain": gains.get(name),
                "bands": picture.shape[0],
                "columns": picture.shape[1],
                "words": [[word.text, word.start, word.end] for word in clip.words],
                "knots": _knots(comparison, name),
            }
        )
        buffers += [to_int16(playable.samples).tobytes(), picture.tobytes()]
    return {"kind": "clips", "clips": clips, "lufs": lufs}, buffers


def _knots(comparison: Comparison, name: str) -> list[tuple[float, float]]:
    """Return pairs of aligned times, in the first clip and in the clip ``name``."""
    alignment = comparison.alignments.get(name)
    end = comparison.clips[name].duration
    return [(0.0, 0.0), (end, end)] if alignment is None else alignment.knots


def _figures(comparison: Comparison, tables: list[dict[str, Any]]) -> tuple[dict[str, Any], list[bytes]]:
    """Return the tables as text, and float32 contours of F0 and level for each clip but the first."""
    buffers, middles = [], []
    for name, contour in comparison.contours.items():
        buffers += [contour.f0.astype(np.float32).tobytes(), contour.energy.astype(np.float32).tobytes()]
        voiced = contour.f0[np.isfinite(contour.f0)]
        pitch = f"{_signed(voiced)} semitones" if voiced.size else "undefined (no frames voiced in both)"
        reason = comparison.alignments[name].reason
        words = comparison.worded[name].words
        likely = "" if words.likelihood is None else f", log likelihood {words.likelihood:.1f}"
        forced = f"; words by {words.source}{likely}" if words.source else ""
        why = f"; aligned by time: {reason}" if reason else forced
        middles.append(f"median difference {pitch}, {_signed(contour.energy)} dB, levels unmatched{why}")
    return {"kind": "figures", "hop": HOP_S, "middles": middles, "tables": tables}, buffers


def _signed(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    # The sum turns -0.0 into +0.0.
    return f"{round(float(np.median(values)), 1) + 0.0:+.1f}"


def _format_value(value: Any) -> str:
    """Format the value of a field; recordings are formatted as their number and digests."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict) and "audio_sha256" in value[0]:
        digests = ", ".join(f"#{str(item['audio_sha256'])[:4]}" for item in value)
        return f"{len(value)} recording{'s' * (len(value) > 1)} ({digests})"
    return "–" if value is None or value in ([], ()) else str(value)


def _tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Return tables of request differences and measurements: a title, column names, and rows of text."""
    requested = [name for name, clip in comparison.clips.items() if clip.take is not None]
    differing = comparison.differences()[requested].map(_format_value)
    recordings = ", ".join(name for name in comparison.names if name not in requested)
    if recordings:
        differing = differing[differing.nunique(axis=1) > 1]
    requests = [[short_name(field), *row] for field, *row in differing.itertuples()]
    title = "Request differences" + f" (without a request: {recordings})" * bool(recordings)
    same = "The requests are identical." * (len(requested) > 1) or f"Without a request: {recordings}."
    measured, units = comparison.metrics(*_MEASURED), {name: METRICS[name].unit for name in _MEASURED}
    measurements = [
        [metric_label(name, unit), *(format_figure(value, unit) for value in measured[name])]
        for name, unit in units.items()
    ]
    return [
        {"title": title, "heads": ["", *requested], "rows": requests, "empty": same},
        {"title": "Measurements", "heads": ["", *comparison.names], "rows": measurements, "empty": ""},
    ]


def _gains(comparison: Comparison) -> tuple[dict[str, float], str | None]:
    """Return the gains in dB of clips with a defined loudness, and the target in LUFS; None if no clip has one."""
    matched = comparison.matched
    gains = {name: round(gain, 2) for name, gain in matched.gains.items()}
    return gains, f"{round(matched.lufs, 1):g}" if gains else None


def _spectrogram(clip: Clip) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return mel levels, uint8 of shape (bands, columns), low bands first: 255 is the maximum, 0 is 80 dB below."""
    hop = max(0.005, clip.duration / _MAX_COLUMNS)
    db = mel(clip, bands=_BANDS, hop_s=hop).db
    # The lower bound of the maximum keeps silence dark.
    scaled = 255.0 * (1.0 + (db - max(db.max(), _QUIET_DB)) / _RANGE_DB)
    return np.ascontiguousarray(np.clip(scaled, 0.0, 255.0).astype(np.uint8))


def comparison_bundle(comparison: Comparison, tables: list[dict[str, Any]] | None = None) -> dict[str, str]:
    """Return the static outputs of a comparison: players, contours, tables and text.

    Where scripts may run, a started player stops the one that is playing, and continues at the same word.
    """
    text = repr(comparison)
    picture = _contours(comparison)
    budget = BUDGET // len(comparison.clips)
    gains, lufs = _gains(comparison)
    rows = []
    for name, clip in comparison.matched.clips.items():
        audio, note = embedded_audio(clip, budget)
        level = (
            f"gain {gains[name]:+.1f} dB, matched to {lufs} LUFS"
            if name in gains
            else f"level unmatched: {comparison.matched.unmatched[name]}"
        )
        knots = json.dumps(_knots(comparison, name), separators=(",", ":"))
        player = audio_element(audio, "height:32px;width:320px", data_knots=knots, onplay=_SWITCH)
        rows.append((name, TableCell(player), f"{level}; {note}"))
    listed = "".join(
        table(content["heads"], content["rows"], caption=content["title"]) or f"<p>{escape(content['empty'])}</p>"
        for content in tables or _tables(comparison)
    )
    html = small_print(
        f"{table((), rows, row_heads=True)}"
        f'<img alt="F0 and level, and their differences from the first clip. {escape(text)}" '
        f'style="max-width:640px;width:100%" src="data:image/png;base64,{picture}">{listed}'
    )
    return {"text/html": html, "image/png": picture, "text/plain": text}


def _contours(comparison: Comparison) -> str:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4, 4.8), dpi=100, layout="constrained", facecolor="none")
    axes = drawn.subplots(4, 1, sharex=True)
    plot_clips(*comparison.clips.values(), kind=("f0", "energy"), axes=axes[:2], labels=list(comparison.names))
    for number, contour in enumerate(comparison.contours.values(), start=1):
        for ax, values in zip(axes[2:], (contour.f0, contour.energy), strict=True):
            ax.plot(contour.times, values, color=COLORS[number % len(COLORS)], linewidth=1.0)
    for ax, label in zip(axes[2:], ("F0, semitones", "level, dB"), strict=True):
        ax.axhline(0.0, color=INK, linewidth=0.6)
        ax.set_ylabel(f"{label}\nabove {comparison.names[0]}", parse_math=False)
    axes[1].set_xlabel("")
    axes[3].set_xlabel("time (s); of the first clip for differences")
    use_ink(*axes, label_size=LABEL_SIZE)
    return png(drawn)
