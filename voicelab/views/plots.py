"""Plots of clips for papers and pages: matplotlib axes in, axes out.

The colours are those of Okabe and Ito (2008) and the map is cividis (Nuñez et al. 2018): both are told
apart by colour-blind readers, and in print without colour.
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
import numpy.typing as npt

from voicelab.audio.analysis import Contour, energy, f0, mel, spectrogram
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, suggestion
from voicelab.storage import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["waveform", "spectrogram", "mel", "f0", "energy"]

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000")
"""Line colours, in the order in which clips take them."""
MAP: Final = "cividis"
"""The colour map of spectrograms."""

INK: Final = "#767676"
"""Grey of text and axes that is read on white and on JupyterLab's dark pages alike: contrast 4.5 and 4.2 to 1."""
LABEL_SIZE: Final = 7
"""Points of the labels in the pictures of outputs."""
PAPER: Final[Mapping[str, Any]] = {
    "figure.figsize": (3.5, 2.5),
    "figure.dpi": 150,
    "font.size": 8,
    **dict.fromkeys(("axes.labelsize", "legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    "axes.linewidth": 0.6,
}
"""The rcParams of the style "paper", which is as wide as a column."""

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
# Pictures cannot lie on one another, lines can: these take one axes for each clip.
_PICTURES: Final = frozenset({"spectrogram", "mel"})
_RANGE_DB: Final = 80.0
# Voice lasts longer than this between two jumps of the pitch; what is shorter is taken for an error of the tracker.
_VOICED_S: Final = 0.05
_JUMP: Final = 1.2
_WORD_SIZE: Final = 7  # points
_ROW_INCHES: Final = 1.6
_WIDTH_INCHES: Final = 7.0  # of a new figure in a notebook
_PALETTE: Final = 128  # colours
# More columns than a screen has pixels show nothing more.
_COLUMNS: Final = 1_500
_LONGEST_HOP_S: Final = 1.0
# Fonts with Chinese characters that systems bring; matplotlib's own has none.
_CHINESE: Final = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Droid Sans Fallback", "Arial Unicode MS"),
)

# rcParams are saved and restored as a whole: two threads at it would restore each other's.
_RC_LOCK: Final = threading.RLock()


def plot_clips(
    *clips: Clip,
    kind: Kind | Sequence[Kind] = ("waveform", "mel"),
    axes: Axes | Iterable[Axes] | None = None,
    words: bool = True,
    labels: Sequence[str] | None = None,
    style: str | Mapping[str, Any] | None = None,
) -> tuple[Axes, ...]:
    """Plot one clip or several below each other and return the axes, so that they can be changed further.

    The limits of F0 leave out frames that jump away from all around them; ``save_figure`` writes a file for a paper.

    Args:
        clips: one or more.
        kind: "waveform", "spectrogram", "mel", "f0" (Hz) or "energy" (dBFS), or several of them. Lines
            of several clips share one axes; spectrograms have one for each clip. The time is in seconds.
        axes: where to draw, as many as the drawing needs; a new figure when not given.
        words: mark where each word begins and ends, where a clip knows its words: in axes of several clips those of the
            first, which are written above the whole.
        labels: names of the clips for the legend; "1", "2", … when not given.
        style: "notebook" (transparent, readable on light and dark pages: a new figure's when not given), "paper" (black,
            3.5 inches wide), a style of matplotlib's (``"default"``, ``"ggplot"``), or a mapping of its rcParams.

    Raises RequestInvalid, which names the argument.
    """
    kinds, names = _checked(clips, kind, labels)
    alone, together = [(number,) for number in range(len(clips))], [range(len(clips))]
    rows = [(name, group) for name in kinds for group in (alone if name in _PICTURES else together)]
    light = style == "notebook" or (style is None and axes is None)
    with plot_style(style, activate=axes is None):
        drawn = _axes(axes, len(rows), _WIDTH_INCHES if light else None)
        written = words and any(word.text for word in clips[0].words)
        for place, (ax, (name, group)) in enumerate(zip(drawn, rows, strict=True)):
            _DRAW[name](ax, [clips[number] for number in group])
            ax.set_xlim(0.0, max(clip.duration for clip in clips) or 1.0)
            ax.label_outer()
            # Room for the words above the first axes.
            above = 11.0 if written and place == 0 else 0.0
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
    """Write the figure that ``axes`` are of, as the suffix of ``path`` says: .pdf, .svg, .eps, .png and what matplotlib has.

    Letters stay text that can be searched and edited: PDF and EPS have their fonts embedded as TrueType, which journals ask
    for, SVG names them. Raises RequestInvalid for a suffix that nothing writes, StoreError for a file that cannot be written.
    """
    from matplotlib import rc_context

    figure: Any = np.ravel(np.asarray(axes, dtype=object))[0].get_figure(root=True)
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in (suffixes := figure.canvas.get_supported_filetypes()):
        message = f"{Path(path).name!r} does not end in one of {', '.join(f'.{each}' for each in suffixes)}"
        raise RequestInvalid.of("path", message, in_="query")
    data = io.BytesIO()
    with _RC_LOCK, rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}):
        figure.savefig(data, format=suffix)
    write_atomic(Path(path), data.getvalue())


def png(figure: Figure) -> str:
    """Return a figure as a PNG in base64, the same bytes every time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]  # matplotlib's backends are not annotated
    # A palette makes the file a third as large; it also drops the version that matplotlib writes into it.
    drawn = Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba()))  # type: ignore[no-untyped-call]
    data = io.BytesIO()
    drawn.quantize(_PALETTE, method=Image.Quantize.FASTOCTREE).save(data, format="PNG", optimize=True)
    return base64.b64encode(data.getvalue()).decode("ascii")


def use_ink(*axes: Axes, label_size: float | None = None) -> None:
    """Color axes, and what is drawn in them so far, for light and dark pages: grey text and lines, no background.

    It sets the artists' own properties: rcParams belong to the whole process, where a thread of a panel must not change them.
    """
    from matplotlib.text import Text

    for ax in axes:
        ax.set_facecolor("none")
        ax.tick_params(which="both", colors=INK)
        for line in ax.spines.values():
            line.set_edgecolor(INK)
        for text in (*ax.findobj(Text), ax.xaxis.label, ax.yaxis.label):
            text.set(color=INK)
        if label_size is not None:
            ax.tick_params(which="both", labelsize=label_size)
            for label in (ax.xaxis.label, ax.yaxis.label):
                label.set_fontsize(label_size)


@contextmanager
def plot_style(style: str | Mapping[str, Any] | None, *, activate: bool) -> Iterator[None]:
    """Draw in "paper", a style of matplotlib's, or by rcParams; None and "notebook" set none. Raises RequestInvalid.

    With ``activate``, the backend starts before rcParams change: it sets some of its own (Jupyter's "interactive", without
    which no figure is shown), and they would be restored with the others.
    """
    from matplotlib import style as styles

    if style is None or style == "notebook":
        yield
        return
    if isinstance(style, str) and style not in ("paper", "default") and style not in styles.library:
        choices = ["notebook", "paper", "default", *styles.available]
        hint = suggestion(style, choices) or f"; choose from {', '.join(choices)}"
        raise RequestInvalid.of("style", f"there is no style {style!r}{hint}", in_="query")
    rules: Any = PAPER if style == "paper" else style
    if activate:
        from matplotlib import pyplot as plt

        # Of all that needs a backend, the function that does least.
        plt.draw_if_interactive()  # type: ignore[no-untyped-call]
    with _RC_LOCK, ExitStack() as stack:
        try:
            stack.enter_context(styles.context(rules))
        except (KeyError, ValueError) as error:
            raise RequestInvalid.of("style", str(error).strip("'\""), in_="query") from error
        yield


def _checked(
    clips: Sequence[Clip], kind: Kind | Sequence[Kind], labels: Sequence[str] | None
) -> tuple[tuple[Kind, ...], Sequence[str]]:
    if not clips:
        raise RequestInvalid.of("clips", "there is no clip to plot", in_="query")
    kinds: tuple[Any, ...] = (kind,) if isinstance(kind, str) else tuple(kind)
    wrong = [repr(name) for name in kinds if name not in _KINDS]
    if wrong or not kinds:
        message = f"{', '.join(wrong) or 'nothing'} cannot be plotted; choose from {', '.join(_KINDS)}"
        raise RequestInvalid.of("kind", message, in_="query")
    if labels is not None and len(labels) != len(clips):
        raise RequestInvalid.of("labels", f"{len(labels)} labels for {len(clips)} clips", in_="query")
    return kinds, labels or [str(number + 1) for number in range(len(clips))]


def _axes(given: Axes | Iterable[Axes] | None, needed: int, wide: float | None) -> tuple[Axes, ...]:
    if given is None:
        # pyplot, so that a notebook shows the figure as it shows any other.
        from matplotlib import pyplot as plt

        width = wide or plt.rcParams["figure.figsize"][0]
        size = (width, _ROW_INCHES * min(1.0, width / 5.0) * needed + 0.4)
        figure, grid = plt.subplots(needed, 1, sharex=True, squeeze=False, figsize=size, layout="constrained")
        if wide:
            figure.set_facecolor("none")
        return tuple(grid[:, 0])
    several: tuple[Axes, ...] = tuple(np.ravel(np.asarray(given, dtype=object)))
    if len(several) != needed:
        raise RequestInvalid.of("axes", f"{len(several)} axes given, {needed} needed", in_="query")
    return several


def _legend(ax: Axes, names: Sequence[str], above: float) -> None:
    """Name the lines above the axes, where no line is, ``above`` points higher."""
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
        colour = COLOURS[number % len(COLOURS)]
        step = max(1, len(clip) // _COLUMNS)
        whole = clip.samples[: len(clip) // step * step].reshape(-1, step)
        if whole.size == 0:
            whole = np.zeros((1, 1), np.float32)
        times = np.arange(len(whole)) * step / clip.rate
        ax.plot(times, whole.max(axis=1), color=colour, linewidth=0.6, alpha=0.9)
        ax.fill_between(times, whole.min(axis=1), whole.max(axis=1), color=colour, linewidth=0.3, alpha=0.9)
    # The scale follows the loudest clip and says so by its figures: nothing is normalised.
    room = max(*(clip.peak for clip in clips), 0.01) * 1.05
    ax.set_ylim(-room, room)
    ax.set_ylabel("amplitude")


def _picture(ax: Axes, clips: Sequence[Clip], *, mel_scale: bool = False) -> None:
    clip = clips[0]
    hop = min(max(0.005, clip.duration / _COLUMNS), _LONGEST_HOP_S)
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
        ax.plot(contour.times, contour.values, color=COLOURS[number % len(COLOURS)], linewidth=1.4)
    ax.set_ylabel(label)


def _pitch(ax: Axes, clips: Sequence[Clip]) -> None:
    contours = [f0(clip) for clip in clips]
    _contours(ax, contours, "F0 (Hz)")
    spoken = np.concatenate([_lasting(contour) for contour in contours])
    if spoken.size:
        margin = max(0.08 * float(np.ptp(spoken)), 0.02 * float(spoken.max()))
        ax.set_ylim(spoken.min() - margin, spoken.max() + margin)


def _lasting(contour: Contour) -> npt.NDArray[np.float64]:
    """Return the values that stand among others like them for a while: an octave error of one frame does not."""
    values, times = contour.values, contour.times
    with np.errstate(invalid="ignore"):
        step = np.abs(np.log(values[1:] / values[:-1])) <= np.log(_JUMP)  # False beside an unvoiced frame
    runs = np.split(np.arange(values.size), np.flatnonzero(~step) + 1)
    hop = float(times[1] - times[0]) if times.size > 1 else 0.0
    long = [run for run in runs if np.isfinite(values[run[:1]]).all() and run.size * hop >= _VOICED_S]
    return values[np.concatenate(long)] if long else values[np.isfinite(values)]


def _energy(ax: Axes, clips: Sequence[Clip]) -> None:
    _contours(ax, [energy(clip) for clip in clips], "level (dBFS)")
    ax.set_ylim(bottom=-_RANGE_DB)


def _mark_words(ax: Axes, clip: Clip) -> None:
    # Where one word ends and the next begins at once, a single line.
    for edge in sorted({round(edge, 4) for word in clip.words for edge in (word.start, word.end)}):
        ax.axvline(edge, color="#888888", linewidth=0.6, alpha=0.7)


def _families() -> list[str]:
    """Return the fonts that words are written in: the usual ones, and one with Chinese characters if there is any."""
    from matplotlib import font_manager, rcParams

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [*rcParams["font.family"], *[name for name in _CHINESE if name in installed][:1]]


def _writable(text: str, families: Sequence[str]) -> bool:
    """Whether the fonts have every character; matplotlib would warn of the others and draw boxes."""
    from matplotlib import font_manager

    wanted = [font_manager.FontProperties(family=[name]) for name in families]
    fonts = [font_manager.get_font(font_manager.findfont(one)) for one in wanted]
    return all(any(font.get_char_index(ord(char)) for font in fonts) for char in text)


def _write_words(top: Axes, clip: Clip) -> None:
    families = _families()
    figure = top.get_figure(root=True)
    wide = top.get_position().width * figure.get_size_inches()[0] * 72 / top.get_xlim()[1] if figure else np.inf
    end = -np.inf
    for word in clip.words:
        half = len(word.text) * _WORD_SIZE * 0.3 / wide
        if (word.start + word.end) / 2 - half < end:
            continue  # it would lie over the one before
        if not word.text.isascii() and not _writable(word.text, families):
            continue  # its edges are marked all the same
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
            parse_math=False,  # two prices in a sentence are no formula
        )


_DRAW: Final[dict[Kind, Callable[[Axes, Sequence[Clip]], None]]] = {
    "waveform": _waveform,
    "spectrogram": _picture,
    "mel": partial(_picture, mel_scale=True),
    "f0": _pitch,
    "energy": _energy,
}
