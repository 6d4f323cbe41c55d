from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from tests.tones import there
from voicelab.audio.analysis import Contour
from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.views import plots
from voicelab.views.plots import INK, plot_clips, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATE = 16_000


@pytest.fixture(autouse=True)
def _headless() -> Iterator[None]:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    yield
    plt.close("all")


def tone(hertz: float = 200.0, seconds: float = 0.5, level: float = 0.5) -> Clip:
    time = np.arange(int(seconds * RATE)) / RATE
    words = Words((WordTime("one", 0.0, seconds / 2), WordTime("two", seconds / 2, seconds)))
    return Clip((level * np.sin(2 * np.pi * hertz * time)).astype(np.float32), RATE, words=words)


def texts(axes: tuple[Axes, ...]) -> list[str]:
    return [item.get_text() for ax in axes for item in ax.texts]


def edges(ax: Axes) -> list[float]:
    """Where the words' lines are: those from the bottom of the axes to its top."""
    lines = (np.asarray(line.get_xydata(), float) for line in ax.lines)
    return [float(line[0, 0]) for line in lines if line[:, 1].tolist() == [0, 1]]


def test_clip_plot_is_waveform_and_mel_with_words() -> None:
    axes = tone().plot()
    assert [ax.get_ylabel() for ax in axes] == ["amplitude", "mel (Hz)"]
    assert axes[-1].get_xlabel() == "time (s)"
    assert texts(axes) == ["one", "two"]
    assert [edges(ax) for ax in axes] == [[0.0, 0.25, 0.5]] * 2
    bare = tone().plot(words=False)
    assert texts(bare) == []
    assert [edges(ax) for ax in bare] == [[], []]


def test_waveform_is_not_normalized() -> None:
    (ax,) = plot_clips(tone(level=0.1), kind="waveform")
    heights = np.asarray(ax.lines[0].get_ydata(), float)
    assert heights.max() == pytest.approx(0.1, abs=0.001)
    assert ax.get_ylim()[1] == pytest.approx(0.105, abs=0.001)


def test_long_waveform_is_decimated_with_its_peaks() -> None:
    samples = np.zeros(60 * RATE, np.float32)
    samples[123_456] = 0.9
    (ax,) = plot_clips(Clip(samples, RATE), kind="waveform")
    heights = np.asarray(ax.lines[0].get_ydata(), float)
    assert heights.max() == pytest.approx(0.9)
    assert len(heights) < 3_100


def test_f0_is_in_hertz_and_energy_in_dbfs() -> None:
    (pitch,) = plot_clips(tone(200.0), kind="f0", words=False)
    assert np.nanmedian(np.asarray(pitch.lines[0].get_ydata(), float)) == pytest.approx(200.0, rel=0.01)
    (level,) = plot_clips(tone(level=0.5), kind="energy", words=False)
    assert np.median(np.asarray(level.lines[0].get_ydata(), float)) == pytest.approx(-9.03, abs=0.1)


@pytest.mark.parametrize("kind", ["spectrogram", "mel"])
def test_a_spectrogram_is_brightest_at_the_tone(kind: Any) -> None:
    (ax,) = plot_clips(tone(2000.0), kind=kind, words=False)
    image = ax.images[0]
    data = np.asarray(image.get_array())
    row = int(data.mean(axis=1).argmax())
    low, high = image.get_extent()[2:]
    middle = low + (high - low) * row / (data.shape[0] - 1)
    if kind == "spectrogram":
        assert middle == pytest.approx(2.0, abs=0.1)
    else:
        ticks = dict(zip([label.get_text() for label in ax.get_yticklabels()], ax.get_yticks(), strict=True))
        assert middle == pytest.approx(ticks["2k"], abs=1.5)


def test_repeated_clip_has_two_labels() -> None:
    clip = tone()
    axes = plot_clips(clip, clip, kind="mel", labels=["a", "b"])
    assert [ax.get_title(loc="left") for ax in axes] == ["a", "b"]


def test_axes_are_used_and_returned() -> None:
    from matplotlib import pyplot as plt

    _, grid = plt.subplots(2, 1)
    assert plot_clips(tone(), axes=grid) == tuple(grid)
    _, one = plt.subplots()
    assert plot_clips(tone(), kind="f0", axes=one) == (one,)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"kind": "pitch"}, "kind"),
        ({"kind": ()}, "kind"),
        ({"labels": ["a", "b"]}, "labels"),
        ({"axes": ()}, "axes"),
        ({"style": "papre"}, "did you mean paper"),
        ({"style": {"axes.colour": "red"}}, "style: axes.colour"),
    ],
)
def test_invalid_argument_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestInvalid, match=field):
        plot_clips(tone(), **options)


@pytest.mark.parametrize("name", ["plot", "plot.docx"])
def test_unsupported_suffix_raises(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestInvalid, match=r"the suffix must be .*\.pdf"):
        save_figure(plot_clips(tone(), kind="waveform"), tmp_path / name)


def test_no_clip_raises() -> None:
    with pytest.raises(RequestInvalid, match="clips"):
        plot_clips()


@pytest.mark.parametrize("samples", [0, 1, 100])
def test_very_short_clips_are_plotted(samples: int) -> None:
    clip = Clip(np.zeros(samples, np.float32), RATE)
    axes = plot_clips(clip, kind=("waveform", "spectrogram", "mel", "f0", "energy"))
    axes[0].figure.canvas.draw()


def test_words_of_the_first_clip_and_labels_outside_the_axes() -> None:
    clips = tone(200.0), tone(300.0, 0.8)
    axes = pitch, level, first, second = plot_clips(*clips, kind=("f0", "energy", "mel"))
    assert [edges(ax) for ax in axes] == [[0.0, 0.25, 0.5]] * 3 + [[0.0, 0.4, 0.8]]
    assert texts(axes) == ["one", "two"]
    assert [item.get_text() for item in pitch.texts] == ["one", "two"]
    legend = there(pitch.get_legend())
    assert [item.get_text() for item in legend.get_texts()] == ["1", "2"]
    assert [line.get_color() for line in legend.get_lines()] == ["#0072B2", "#D55E00"]
    assert pitch.get_xlim() == (0.0, 0.8)
    assert level.get_legend() is None
    pitch.figure.canvas.draw()
    assert legend.get_window_extent().y0 >= max(text.get_window_extent().y1 for text in pitch.texts) - 1
    assert pitch.texts[0].get_window_extent().y0 >= pitch.get_window_extent().y1
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("1", "2")


@pytest.mark.parametrize(("frames", "wide"), [(1, False), (3, False), (30, True)])
def test_f0_outliers_do_not_change_the_limits(monkeypatch: pytest.MonkeyPatch, frames: int, wide: bool) -> None:
    from voicelab.audio.analysis import f0 as real

    def jumping(clip: Clip) -> Contour:
        contour = real(clip)
        values = contour.values.copy()
        values[20 : 20 + frames] = 615.0
        return replace(contour, values=values)

    monkeypatch.setattr(plots, "f0", jumping)
    (ax,) = plot_clips(tone(200.0, 1.0), kind="f0")
    low, high = ax.get_ylim()
    assert low < 200 < high
    # A voice that jumps for 0.3 s is no error of the tracker. The wrong frames are drawn, beyond the edge.
    assert (high > 615) == wide
    assert (np.nanmax(np.asarray(ax.lines[0].get_ydata(), float)) == 615.0) == wide, "a gap stands in their place"
    if not wide:
        assert high - low < 20


def test_notebook_style_is_transparent_and_paper_style_black(tmp_path: Path) -> None:
    from PIL import Image

    sizes, ink = {}, {}
    for style in ("notebook", "paper", "dark_background", {"text.color": "red", "axes.labelcolor": "red"}, None):
        axes = plot_clips(tone(), kind=("waveform", "f0"), style=style)
        save_figure(axes, tmp_path / "plot.png")
        image = Image.open(tmp_path / "plot.png").convert("RGBA")
        sizes[str(style)], ink[str(style)] = image.getpixel((1, 1)), axes[0].yaxis.label.get_color()
    assert [sizes[name] for name in ("notebook", "None", "paper", "dark_background")] == [
        (255, 255, 255, 0), (255, 255, 255, 0), (255, 255, 255, 255), (0, 0, 0, 255)]  # fmt: skip
    assert list(ink.values()) == [INK, "black", "white", "red", INK]
    assert mpl.rcParams["axes.labelcolor"] == "black"


def test_words_do_not_overlap() -> None:
    clip = Clip(
        tone(seconds=1.0).samples, RATE, words=Words(tuple(WordTime("word", n / 20, (n + 1) / 20) for n in range(20)))
    )
    axes = plot_clips(clip, kind="waveform", style="paper")
    axes[0].figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes[0].texts]
    assert 5 < len(boxes) < 20
    assert all(one.x1 <= other.x0 for one, other in itertools.pairwise(boxes))
    assert len(edges(axes[0])) == 21


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_figures_are_saved_as_vectors(tmp_path: Path, suffix: str) -> None:
    clips = tone(200.0), tone(300.0, 0.8)
    axes = plot_clips(*clips, kind=("waveform", "spectrogram", "mel", "f0", "energy"), labels=["first", "second"])
    path = tmp_path / f"plot.{suffix}"
    with mpl.rc_context({"pdf.compression": 0}):
        save_figure(axes, path)
    data = path.read_bytes()
    if suffix == "svg":
        root = ET.fromstring(data)  # noqa: S314 (our own file)
        name = "{http://www.w3.org/2000/svg}"
        points = sum(path.attrib["d"].count("L") for path in root.iter(f"{name}path"))
        assert points > 1000, "lines are no pixels"
        # Of the four spectrograms, a picture each; all else is drawn.
        assert len(root.findall(f".//{name}image")) == 4
        said = {text.text for text in root.iter(f"{name}text")}
        assert {"first", "second", "time (s)", "F0 (Hz)"} <= said
    else:
        assert data.startswith(b"%PDF-")
        assert data.rstrip().endswith(b"%%EOF")
        # Letters are those of an embedded font, which journals ask for, and no outlines of type 3.
        assert b"/FontFile2" in data
        assert b"/Subtype /Type3" not in data
        assert data.count(b"/Subtype /Image") == 4
        assert data.count(b" l\n") > 1000, "lines are no pixels"


def test_words_without_glyphs_are_omitted_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    # This sign is in STIX and not in matplotlib's own font, as Chinese is in fonts that systems bring.
    clip = Clip(tone(seconds=1.0).samples, RATE, words=Words((WordTime("one", 0.0, 0.5), WordTime("\u2316", 0.5, 1.0))))
    for fonts, written in (((), ["one"]), (("Nowhere", "STIXGeneral"), ["one", "\u2316"])):
        monkeypatch.setattr(plots, "_CHINESE", fonts)
        axes = plot_clips(clip, kind="waveform")
        assert texts(axes) == written
        assert edges(axes[0]) == [0.0, 0.5, 1.0]
        axes[0].figure.canvas.draw()
