from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from voicelab.audio.clip import Clip, Words, WordTime
from voicelab.errors import RequestInvalid
from voicelab.views import plots
from voicelab.views.plots import plot_clips

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


def test_a_clip_plots_itself_as_waveform_over_mel_with_its_words() -> None:
    axes = tone().plot()
    assert [ax.get_ylabel() for ax in axes] == ["amplitude", "mel (Hz)"]
    assert axes[-1].get_xlabel() == "time (s)"
    assert texts(axes) == ["one", "two"]
    assert [edges(ax) for ax in axes] == [[0.0, 0.25, 0.5]] * 2
    bare = tone().plot(words=False)
    assert texts(bare) == []
    assert [edges(ax) for ax in bare] == [[], []]


def test_the_waveform_is_the_samples_and_is_not_normalised() -> None:
    (ax,) = plot_clips(tone(level=0.1), kind="waveform")
    heights = np.asarray(ax.lines[0].get_ydata(), float)
    assert heights.max() == pytest.approx(0.1, abs=0.001)
    assert ax.get_ylim()[1] == pytest.approx(0.105, abs=0.001)


def test_a_long_waveform_keeps_its_peaks_and_is_short() -> None:
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


def test_lines_of_several_clips_share_an_axes_and_pictures_do_not() -> None:
    clips = tone(200.0), tone(300.0, 0.8)
    axes = plot_clips(*clips, kind=("f0", "mel"), labels=["a", "b"])
    assert len(axes) == 3
    legend = axes[0].get_legend()
    assert legend is not None
    assert [item.get_text() for item in legend.get_texts()] == ["a", "b"]
    assert [ax.get_title(loc="left") for ax in axes[1:]] == ["a", "b"]
    assert axes[0].get_xlim() == (0.0, 0.8)
    assert texts(axes) == []


def test_the_same_clip_twice_keeps_both_names() -> None:
    clip = tone()
    axes = plot_clips(clip, clip, kind="mel", labels=["a", "b"])
    assert [ax.get_title(loc="left") for ax in axes] == ["a", "b"]


def test_axes_go_in_and_come_out() -> None:
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
    ],
)
def test_a_bad_argument_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestInvalid, match=field):
        plot_clips(tone(), **options)


def test_no_clip_at_all() -> None:
    with pytest.raises(RequestInvalid, match="clips"):
        plot_clips()


@pytest.mark.parametrize("samples", [0, 1, 100])
def test_hardly_anything_can_be_plotted(samples: int) -> None:
    clip = Clip(np.zeros(samples, np.float32), RATE)
    axes = plot_clips(clip, kind=("waveform", "spectrogram", "mel", "f0", "energy"))
    axes[0].figure.canvas.draw()


def test_words_of_several_clips_have_their_lines_colours() -> None:
    clips = tone(200.0), tone(300.0, 0.8)
    pitch, first, second = plot_clips(*clips, kind=("f0", "mel"))
    assert edges(pitch) == [0.0, 0.25, 0.5, 0.0, 0.4, 0.8]
    assert [line.get_color() for line in pitch.lines[2:]] == ["#0072B2"] * 3 + ["#D55E00"] * 3
    assert (edges(first), edges(second)) == ([0.0, 0.25, 0.5], [0.0, 0.4, 0.8])
    legend = pitch.get_legend()
    assert legend is not None
    assert [line.get_color() for line in legend.get_lines()] == ["#0072B2", "#D55E00"]


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_a_plot_is_written_as_vectors(tmp_path: Path, suffix: str) -> None:
    clips = tone(200.0), tone(300.0, 0.8)
    axes = plot_clips(*clips, kind=("waveform", "spectrogram", "mel", "f0", "energy"), labels=["first", "second"])
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    path = tmp_path / f"plot.{suffix}"
    with mpl.rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "pdf.compression": 0}):
        figure.savefig(path)
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
        assert data.count(b"/Subtype /Image") == 4
        assert data.count(b" l\n") > 1000, "lines are no pixels"


def test_words_that_no_font_can_write_are_left_out_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    # This sign is in STIX and not in matplotlib's own font, as Chinese is in fonts that systems bring.
    clip = Clip(tone(seconds=1.0).samples, RATE, words=Words((WordTime("one", 0.0, 0.5), WordTime("\u2316", 0.5, 1.0))))
    for fonts, written in (((), ["one"]), (("Nowhere", "STIXGeneral"), ["one", "\u2316"])):
        monkeypatch.setattr(plots, "_CHINESE", fonts)
        axes = plot_clips(clip, kind="waveform")
        assert texts(axes) == written
        assert edges(axes[0]) == [0.0, 0.5, 1.0]
        axes[0].figure.canvas.draw()
