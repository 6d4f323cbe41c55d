"""Plots of clips for papers and pages, with matplotlib.

Line colors are those of Okabe and Ito (2008), the color map is cividis (Nuñez et al. 2018): both are safe for
color-blind readers and distinguishable in grayscale.
"""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from voicelab.audio.analysis import Contour, energy, f0, mel, spectrogram, stable_f0
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, suggestion
from voicelab.storage import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PlotKind = Literal["waveform", "spectrogram", "mel", "f0", "energy"]

COLORS: Final = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000")
"""Line colors, in the order of clips."""
MAP: Final = "cividis"
"""Color map of spectrograms."""

INK: Final = "#767676"
"""Gray of text and axes: contrast 4.5:1 with white, 4.2:1 with JupyterLab's dark pages, where no gray has 4.5:1 with both."""
LABEL_SIZE: Final = 7
"""Font size of labels in static outputs, in points."""
PAPER: Final[Mapping[str, Any]] = {
    "figure.figsize": (3.5, 2.5),
    "figure.dpi": 150,
    "font.size": 8,
    **dict.fromkeys(("axes.labelsize", "legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    "axes.linewidth": 0.6,
}
"""The rcParams of the style "paper", one column wide."""

_KINDS: Final[tuple[PlotKind, ...]] = get_args(PlotKind)
# Kinds that need separate axes for each clip; lines of several clips share axes.
_PICTURES: Final = frozenset({"spectrogram", "mel"})
_RANGE_DB: Final = 80.0
_WORD_SIZE: Final = 7  # points
_ROW_INCHES: Final = 1.6
_WIDTH_INCHES: Final = 7.0  # of a new figure in a notebook
_PALETTE: Final = 128  # colors
# More columns than pixels of a screen would add no detail.
_COLUMNS: Final = 1_500
_MAX_HOP_S: Final = 1.0
# System fonts with Chinese characters, which matplotlib's default font lacks.
_CHINESE: Final = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Droid Sans Fallback", "Arial Unicode MS"),
)

# rcParams are saved and restored globally, so only one thread may do this at a time.
_RC_LOCK: Final = threading.RLock()


def plot_clips(
    *clips: Clip,
    kind: PlotKind | Sequence[PlotKind] = ("waveform", "mel"),
    axes: Axes | Iterable[Axes] | None = None,
    words: bool = True,
    labels: Sequence[str] | None = None,
    style: str | Mapping[str, Any] | None = None,
) -> tuple[Axes, ...]:
    """Plot clips and return the axes.

    F0 has gaps where the tracker jumps for less than 50 ms (octave errors). ``save_figure`` writes a file for a paper.

    Args:
        clips: one or more.
        kind: "waveform", "spectrogram", "mel", "f0" (Hz) or "energy" (dBFS), or a sequence of these. Lines of several
            clips share axes; spectrograms have separate axes for each clip. Time is in seconds.
        axes: axes to draw in, as many as needed; by default those of a new figure.
        words: mark word boundaries if a clip has words; in shared axes those of the first clip, labeled on top.
        labels: names of the clips for the legend; by default "1", "2", …
        style: "notebook" (transparent, readable on light and dark pages; the default of new figures), "paper" (black, 3.5
            inches wide), a matplotlib style (``"default"``, ``"ggplot"``), or a mapping of rcParams.

    Raises RequestInvalid, which names the argument.
    """
    kinds, names = _checked(clips, kind, labels)
    separate, shared = [(number,) for number in range(len(clips))], [range(len(clips))]
    rows = [(name, group) for name in kinds for group in (separate if name in _PICTURES else shared)]
    light = style == "notebook" or (style is None and axes is None)
    with plot_style(style, activate=axes is None):
        drawn = _axes(axes, len(rows), _WIDTH_INCHES if light else None)
        has_words = words and any(word.text for word in clips[0].words)
        for row, (ax, (name, group)) in enumerate(zip(drawn, rows, strict=True)):
            _DRAW[name](ax, [clips[number] for number in group])
            ax.set_xlim(0.0, max(clip.duration for clip in clips) or 1.0)
            ax.label_outer()
            above = 11.0 if has_words and row == 0 else 0.0  # room for the words
            if len(clips) > 1 and name in _PICTURES:
                ax.set_title(names[group[0]], fontsize="small", loc="left", parse_math=False, pad=4 + above)
            elif len(clips) > 1 and name == next(kind for kind in kinds if kind not in _PICTURES):
                _legend(ax, names, above)
            if words:
                _mark_words(ax, clips[group[0]])
        drawn[-1].set_xlabel("time (s)")
        if words:
            _write_words(drawn[0], clips[0])
    if light:
        use_ink(*drawn)
    return drawn


def save_figure(axes: Axes | Iterable[Axes], path: str | Path) -> None:
    """Write the figure of ``axes`` to a file, in the format of its suffix (.pdf, .svg, .eps, .png and others).

    Text stays searchable and editable: PDF and EPS embed TrueType fonts, as journals require; SVG refers to fonts by
    name. Raises RequestInvalid for an unsupported suffix, StoreError if the file cannot be written.
    """
    from matplotlib import rc_context

    figure: Any = np.ravel(np.asarray(axes, dtype=object))[0].get_figure(root=True)
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in (suffixes := figure.canvas.get_supported_filetypes()):
        message = f"the suffix must be one of {', '.join(f'.{each}' for each in suffixes)}, got {Path(path).name!r}"
        raise RequestInvalid.of("path", message, in_="query")
    data = io.BytesIO()
    with _RC_LOCK, rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}):
        figure.savefig(data, format=suffix)
    write_atomic(Path(path), data.getvalue())


def png(figure: Figure) -> str:
    """Return a figure as a base64 PNG, reproducible byte for byte."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]  # matplotlib's backends are not annotated
    # A palette reduces the size to a third, and omits the metadata with matplotlib's version.
    drawn = Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba()))  # type: ignore[no-untyped-call]
    data = io.BytesIO()
    drawn.quantize(_PALETTE, method=Image.Quantize.FASTOCTREE).save(data, format="PNG", optimize=True)
    return base64.b64encode(data.getvalue()).decode("ascii")


def use_ink(*axes: Axes, label_size: float | None = None) -> None:
    """Color axes and their content for light and dark pages: gray text and lines, transparent background.

    Sets properties of artists, since threads of panels must not change the process-wide rcParams.
    """
    from matplotlib.text import Text

    for ax in axes:
        ax.set_facecolor("none")
        figure: Any = ax.get_figure(root=True)
        figure.set_facecolor("none")
        ax.tick_params(which="both", colors=INK)
        for line in ax.spines.values():
            line.set_edgecolor(INK)
        for text in (*ax.findobj(Text), ax.xaxis.label, ax.yaxis.label):
            text.set(color=INK)
        if label_size is not None:
            ax.tick_params(which="both", labelsize=label_size)
            for label in (ax.xaxis.label, ax.yaxis.label):
                label.set_fontsize(label_size)
    # Jupyter's inline backend puts white behind a transparent figure whose tick labels are all on one side of middle gray.
    for label in axes[0].yaxis.get_ticklabels()[:1]:
        label.set_color("#808080")


@contextmanager
def plot_style(style: str | Mapping[str, Any] | None, *, activate: bool) -> Iterator[None]:
    """Apply "paper", a matplotlib style, or rcParams; None and "notebook" change nothing. Raises RequestInvalid.

    With ``activate`` the backend is initialized first, since it sets rcParams (such as "interactive" in Jupyter, without
    which no figure is shown) that must persist.
    """
    from matplotlib import style as styles

    if style is None or style == "notebook":
        yield
        return
    if isinstance(style, str) and style not in ("paper", "default") and style not in styles.library:
        choices = ["notebook", "paper", "default", *styles.available]
        hint = suggestion(style, choices) or f"; choose from {', '.join(choices)}"
        raise RequestInvalid.of("style", f"unknown style {style!r}{hint}", in_="query")
    rules: Any = PAPER if style == "paper" else style
    if activate:
        from matplotlib import pyplot as plt

        # This initializes the backend and has no other effect.
        plt.draw_if_interactive()  # type: ignore[no-untyped-call]
    with _RC_LOCK, ExitStack() as stack:
        try:
            stack.enter_context(styles.context(rules))
        except (KeyError, ValueError) as error:
            raise RequestInvalid.of("style", str(error).strip("'\""), in_="query") from error
        yield


def _checked(
    clips: Sequence[Clip], kind: PlotKind | Sequence[PlotKind], labels: Sequence[str] | None
) -> tuple[tuple[PlotKind, ...], Sequence[str]]:
    if not clips:
        raise RequestInvalid.of("clips", "at least one clip is required", in_="query")
    kinds: tuple[Any, ...] = (kind,) if isinstance(kind, str) else tuple(kind)
    wrong = [repr(name) for name in kinds if name not in _KINDS]
    if wrong or not kinds:
        message = f"must be one of {', '.join(_KINDS)}, got {', '.join(wrong) or 'none'}"
        raise RequestInvalid.of("kind", message, in_="query")
    if labels is not None and len(labels) != len(clips):
        raise RequestInvalid.of(
            "labels", f"must have one label per clip, got {len(labels)} for {len(clips)} clips", in_="query"
        )
    return kinds, labels or [str(number + 1) for number in range(len(clips))]


def _axes(axes: Axes | Iterable[Axes] | None, count: int, width_inches: float | None) -> tuple[Axes, ...]:
    if axes is None:
        # Created by pyplot, so that a notebook displays the figure.
        from matplotlib import pyplot as plt

        width = width_inches or plt.rcParams["figure.figsize"][0]
        size = (width, _ROW_INCHES * min(1.0, width / 5.0) * count + 0.4)
        figure, grid = plt.subplots(count, 1, sharex=True, squeeze=False, figsize=size, layout="constrained")
        if width_inches:
            figure.set_facecolor("none")
        return tuple(grid[:, 0])
    array: tuple[Axes, ...] = tuple(np.ravel(np.asarray(axes, dtype=object)))
    if len(array) != count:
        raise RequestInvalid.of("axes", f"must be {count} axes, got {len(array)}", in_="query")
    return array


def _legend(ax: Axes, names: Sequence[str], above: float) -> None:
    """Draw a legend above the axes, ``above`` points higher."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    higher = ax.transAxes + ScaledTranslation(0.0, above / 72.0, figure.dpi_scale_trans) if figure else ax.transAxes
    legend = ax.legend(
        ax.lines[: len(names)],
        names,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        bbox_transform=higher,
        borderaxespad=0.1,
        frameon=False,
        fontsize="small",
        ncols=min(len(names), 4),
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _waveform(ax: Axes, clips: Sequence[Clip]) -> None:
    for number, clip in enumerate(clips):
        color = COLORS[number % len(COLORS)]
        step = max(1, len(clip) // _COLUMNS)
        blocks = clip.samples[: len(clip) // step * step].reshape(-1, step)
        if blocks.size == 0:
            blocks = np.zeros((1, 1), np.float32)
        times = np.arange(len(blocks)) * step / clip.rate
        ax.plot(times, blocks.max(axis=1), color=color, linewidth=0.6, alpha=0.9)
        ax.fill_between(times, blocks.min(axis=1), blocks.max(axis=1), color=color, linewidth=0.3, alpha=0.9)
    # Amplitudes are not normalized; the limits follow the highest peak.
    room = max(*(clip.peak for clip in clips), 0.01) * 1.05
    ax.set_ylim(-room, room)
    ax.set_ylabel("amplitude")


def _picture(ax: Axes, clips: Sequence[Clip], *, mel_scale: bool = False) -> None:
    clip = clips[0]
    hop = min(max(0.005, clip.duration / _COLUMNS), _MAX_HOP_S)
    spectrum = mel(clip, hop_s=hop) if mel_scale else spectrogram(clip, hop_s=hop)
    top = float(spectrum.db.max(initial=-_RANGE_DB))
    bands = np.arange(len(spectrum.frequencies)) if mel_scale else spectrum.frequencies / 1000.0
    times = spectrum.times if spectrum.times.size > 1 else np.array([0.0, 1e-3])
    edges = (float(times[0]), float(times[-1]), float(bands[0]), float(bands[-1]))
    ax.imshow(
        spectrum.db,
        origin="lower",
        aspect="auto",
        cmap=MAP,
        vmin=top - _RANGE_DB,
        vmax=top,
        extent=edges,
        interpolation="nearest",
    )
    if mel_scale:
        ticks = [hz for hz in (200, 1000, 2000, 5000, 10_000) if hz < spectrum.frequencies[-1]]
        names = [f"{hz // 1000}k" if hz >= 1000 else str(hz) for hz in ticks]
        ax.set_yticks(np.interp(ticks, spectrum.frequencies, bands), names)
        ax.set_ylabel("mel (Hz)")
    else:
        ax.set_ylabel("kHz")


def _contours(ax: Axes, contours: Sequence[Contour], label: str) -> None:
    for number, contour in enumerate(contours):
        ax.plot(contour.times, contour.values, color=COLORS[number % len(COLORS)], linewidth=1.4)
    ax.set_ylabel(label)


def _pitch(ax: Axes, clips: Sequence[Clip]) -> None:
    contours = [stable_f0(f0(clip)) for clip in clips]
    _contours(ax, contours, "F0 (Hz)")
    voiced = np.concatenate([contour.values[np.isfinite(contour.values)] for contour in contours])
    if voiced.size:
        margin = max(0.08 * float(np.ptp(voiced)), 0.02 * float(voiced.max()))
        ax.set_ylim(voiced.min() - margin, voiced.max() + margin)


def _energy(ax: Axes, clips: Sequence[Clip]) -> None:
    _contours(ax, [energy(clip) for clip in clips], "level (dBFS)")
    ax.set_ylim(bottom=-_RANGE_DB)


def _mark_words(ax: Axes, clip: Clip) -> None:
    # Coinciding boundaries give a single line.
    for edge in sorted({round(edge, 4) for word in clip.words for edge in (word.start, word.end)}):
        ax.axvline(edge, color="#888888", linewidth=0.6, alpha=0.7)


def _families() -> list[str]:
    """Return font families for text: the default, and a font with Chinese characters if one is installed."""
    from matplotlib import font_manager, rcParams

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [*rcParams["font.family"], *[name for name in _CHINESE if name in installed][:1]]


def _writable(text: str, families: Sequence[str]) -> bool:
    """Return whether the fonts have every character of a text; otherwise matplotlib warns and draws boxes."""
    from matplotlib import font_manager

    properties = [font_manager.FontProperties(family=[name]) for name in families]
    fonts = [font_manager.get_font(font_manager.findfont(item)) for item in properties]
    return all(any(font.get_char_index(ord(char)) for font in fonts) for char in text)


def _write_words(top: Axes, clip: Clip) -> None:
    families = _families()
    figure = top.get_figure(root=True)
    points_per_s = top.get_position().width * figure.get_size_inches()[0] * 72 / top.get_xlim()[1] if figure else np.inf
    end = -np.inf
    for word in clip.words:
        half = len(word.text) * _WORD_SIZE * 0.3 / points_per_s
        if (word.start + word.end) / 2 - half < end:
            continue  # it would overlap the previous word
        if not word.text.isascii() and not _writable(word.text, families):
            continue
        middle = (word.start + word.end) / 2
        end = middle + half
        top.annotate(
            word.text,
            (middle, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=_WORD_SIZE,
            fontfamily=families,
            annotation_clip=False,
            parse_math=False,  # dollar signs are not formulas
        )


_DRAW: Final[dict[PlotKind, Callable[[Axes, Sequence[Clip]], None]]] = {
    "waveform": _waveform,
    "spectrogram": _picture,
    "mel": partial(_picture, mel_scale=True),
    "f0": _pitch,
    "energy": _energy,
}
