"""What a Clip shows as a cell's last value: one output that carries all its fallbacks.

The output is static, so that it plays in a notebook that has been saved and opened again, in one that
nobody trusts, on a page made from it, and so that it is the same bytes every time
(docs/decisions/2026-11-20-views.md says why it holds no widget). The live player is
``voicelab.views.player.Player``.
"""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any, Final

from voicelab.audio.analysis import digest
from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.views.plots import plot_clips

__all__ = ["BUDGET", "INK", "clip_audio", "clip_bundle", "clip_picture", "clip_text", "embedded_audio"]

BUDGET: Final = 1024 * 1024
"""Bytes of base64 that the audio of one output may take."""

# kbit/s of mp3, best first. Every browser plays mp3; Opus in Ogg is newer in Safari than some macOS.
_BITRATES: Final = (128, 64)
_DPI: Final = 100
_SIZE: Final = (6.4, 2.6)
_LEFT, _WIDTH = 0.09, 0.90
# Grey that can be read on white and on JupyterLab's dark background alike (contrast 4.5 and 4.2 to 1).
INK: Final = "#767676"
"""Colour of text and axes in pictures that any page may have behind it."""
_PALETTE: Final = 128
# Pitch takes a second for half a minute of sound: of long clips the beginning is measured.
_MEASURED_S: Final = 60.0


def clip_bundle(clip: Clip) -> dict[str, str]:
    """Return the outputs of ``clip`` by media type: text/html, image/png (base64) and text/plain.

    The HTML plays and shows by itself: ``<audio>`` with the sound inside (mp3, never normalised, within
    ``BUDGET``, and it says how much) and the picture. Where scripts may run, the picture has a cursor and
    a click on it plays from there.
    """
    text = clip_text(clip)
    picture = base64.b64encode(clip_picture(clip)).decode("ascii")
    return {"text/html": _html(clip, text, picture), "image/png": picture, "text/plain": text}


def clip_audio(clip: Clip, **options: Any) -> Any:
    """Return a plain ``IPython.display.Audio``: the clip's own samples, in a WAV, never normalised.

    IPython's own way from samples would make every clip as loud as it can be, unless told otherwise.
    """
    from IPython.display import Audio

    return Audio(data=clip.to_bytes("wav"), **{"normalize": False, **options})  # type: ignore[no-untyped-call]


def clip_text(clip: Clip) -> str:
    """Return the clip in one line of rounded figures, the same wherever it is made."""
    known = digest(clip if clip.duration <= _MEASURED_S else clip.slice(0.0, _MEASURED_S))
    pitch = "unvoiced" if known.f0 is None else f"F0 {known.f0:.0f} Hz"
    bands = " ".join(f"{level:.0f}" for level in known.mel)
    part = f" (first {_MEASURED_S:.0f} s)" if clip.duration > _MEASURED_S else ""
    return f"Clip({clip.duration:.2f} s, {clip.rate} Hz, {clip.level:.0f} dBFS, {pitch}, mel {bands} dB{part})"


def clip_picture(clip: Clip) -> bytes:
    """Return waveform over mel spectrogram as a small PNG that is readable on light and dark pages."""
    # No pyplot: it would keep the figure, and a notebook would show it a second time.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=_SIZE, dpi=_DPI)
    canvas = FigureCanvasAgg(figure)
    figure.patch.set_alpha(0.0)
    axes = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"left": _LEFT, "right": _LEFT + _WIDTH, "bottom": 0.17, "top": 0.93}
    )
    plot_clips(clip, axes=axes)
    for ax in axes:
        ax.patch.set_alpha(0.0)
        ax.tick_params(colors=INK, labelsize=7)
        ax.xaxis.label.set_color(INK)
        ax.yaxis.label.set_color(INK)
        for item in (ax.xaxis.label, ax.yaxis.label):
            item.set_fontsize(7)
        for item in ax.texts:
            item.set_color(INK)
        for spine in ax.spines.values():
            spine.set_color(INK)
    canvas.draw()  # type: ignore[no-untyped-call]  # matplotlib's backends are not annotated
    # A palette makes the file a third as large; it also drops the version that matplotlib writes into it.
    drawn = Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba()))  # type: ignore[no-untyped-call]
    image = drawn.quantize(_PALETTE, method=Image.Quantize.FASTOCTREE)
    data = io.BytesIO()
    image.save(data, format="PNG", optimize=True)
    return data.getvalue()


def embedded_audio(clip: Clip, budget: int) -> tuple[str, str]:
    """Return the sound as base64 mp3 of at most ``budget`` bytes, and the sentence that says what it is.

    Raises RequestInvalid for a budget below 4096 bytes.
    """
    if budget < 4096:
        raise RequestInvalid.of("budget", "an output needs 4096 bytes for its sound at least", in_="query")
    part, said = clip, ""
    longest = _seconds(_BITRATES[-1], budget)
    while True:
        if part.duration > longest:
            part = clip.slice(0.0, longest)
            said = f"; only the first {longest:.1f} s of {clip.duration:.1f} s fit, save() keeps all"
        for bitrate in _BITRATES:
            if part.duration > _seconds(bitrate, budget):
                continue
            data = base64.b64encode(part.to_bytes("mp3", bitrate=bitrate)).decode("ascii")
            if len(data) <= budget:
                return data, f"mp3, {bitrate} kbit/s, {len(data) / 1024:.0f} of {budget / 1024:.0f} KiB{said}"
        longest *= 0.98  # headers and the last frame count too


def _seconds(bitrate: int, budget: int) -> float:
    """Return how long an mp3 of ``bitrate`` kbit/s may be to take ``budget`` bytes of base64."""
    return budget * 3 / 4 / (bitrate * 1000 / 8)


def _html(clip: Clip, text: str, picture: str, budget: int = BUDGET) -> str:
    audio, said = embedded_audio(clip, budget)
    duration = f"{max(clip.duration, 0.001):.4f}"
    # In attributes, because an untrusted notebook loses them without harm, and they need no ids.
    follow = (
        "var c=this.parentNode.querySelector('i');c.style.display='block';"
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
        f'<img alt="Waveform and mel spectrogram. {escape(text)}" style="width:100%" '
        f'src="data:image/png;base64,{picture}" onclick="{seek}"></div>'
        f'<div style="color:{INK}">{escape(text)}; {escape(said)}</div>{notes}</div>'
    )
