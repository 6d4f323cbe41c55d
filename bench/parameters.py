"""Effects of each parameter on the embedded voice: plots and audio for docs/explanation/parameters.md.

    python bench/parameters.py
    python bench/parameters.py --takes 4 --out build/parameters

Plots are written to docs/images/parameters, audio to docs/sounds/parameters (mp3, 64 kbit/s). Figures are the variability
between takes of one sentence: of F0 (SD over takes at the same points of the words), of the spectrum (RMS over takes, words
and mel bands) and of word durations.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, report
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

import voicelab as vl
from voicelab.audio import analysis
from voicelab.schema import Latency
from voicelab.text.segments import segment

ROOT = Path(__file__).resolve().parents[1]
TEXT = "The birch canoe slid on the smooth planks."
NUMBERS = "Dr. Lee paid $12.50 at 7:45 on May 3rd."
SENTENCES = (
    "Glue the sheet. Rice is often served in round bowls. It is easy to tell the depth of a well, the age of a tree, "
    "the weight of a stone, the speed of a horse, the price of a coat and the heat of a day, but only to those who "
    "have been taught how to look. The hogs were fed. These days a chicken leg is a rare dish."
)
PASSAGE = (
    "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. It is easy to tell "
    "the depth of a well. These days a chicken leg is a rare dish. Rice is often served in round bowls. The juice "
    "of lemons makes fine punch. The box was thrown beside the parked truck."
)
TEMPERATURES = (0.0, 0.35, 0.7, 1.0)
NUCLEI = (0.2, 0.5, 0.7, 1.0)
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Okabe-Ito palette, accessible to color-blind readers."""
# Seven equally spaced relative positions inside a word.
_POSITIONS = np.linspace(0.0, 1.0, 9)[1:-1]

Floats = NDArray[np.float64]


class Studio:
    """The lab and the output folders."""

    def __init__(self, lab: vl.Lab, out: Path, takes: int) -> None:
        self.lab, self.takes = lab, takes
        self.images, self.sounds = out / "images" / "parameters", out / "sounds" / "parameters"
        for folder in (self.images, self.sounds):
            folder.mkdir(parents=True, exist_ok=True)

    def say(self, text: str = TEXT, **fields: Any) -> vl.Clip:
        """Synthesize a text, with seed 1 by default."""
        return self.lab.speak(text, **{"seed": 1, **fields})

    def render_takes(self, **fields: Any) -> list[vl.Clip]:
        """Render takes with different seeds concurrently, excluding takes with skipped words."""
        streams = [self.lab.stream(TEXT, seed=seed, **fields) for seed in range(self.takes)]
        return [clip for clip in (stream.clip() for stream in streams) if len(clip.words) == len(TEXT.split())]

    def keep(self, name: str, clip: vl.Clip) -> None:
        """Write a clip."""
        clip.save(self.sounds / f"{name}.mp3", bitrate=64)

    def draw(self, name: str, rows: int, size: tuple[float, float], *, columns: int = 1) -> tuple[Figure, list[Axes]]:
        """Create a figure and its axes; ``done`` writes it."""
        figure = Figure(figsize=size, dpi=96, layout="constrained")
        FigureCanvasAgg(figure)
        figure.set_label(name)
        return figure, list(np.ravel(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)))

    def done(self, figure: Figure) -> None:
        """Write a figure."""
        figure.savefig(self.images / f"{figure.get_label()}.png", metadata={"Software": None})


def pitch(clip: vl.Clip) -> analysis.Contour:
    """Compute F0 of the default, male speaker, up to 300 Hz to exclude harmonics."""
    return analysis.f0(clip, fmax=300.0)


def pitch_at(clip: vl.Clip) -> Floats:
    """Compute F0 at seven points of every word in semitones above 100 Hz, NaN where unvoiced."""
    contour = pitch(clip)
    times = np.concatenate([word.start + _POSITIONS * (word.end - word.start) for word in clip.words])
    index = np.clip(np.searchsorted(contour.times, times), 0, contour.values.size - 1)
    semitones: Floats = 12 * np.log2(contour.values[index] / 100)
    return semitones


def variability(takes: Sequence[vl.Clip]) -> dict[str, float]:
    """Compute the variability between takes."""
    contours = np.array([pitch_at(take) for take in takes])
    voiced = np.isfinite(contours).sum(axis=0) >= max(2, 0.6 * len(takes))
    spectra = []
    for take in takes:
        mel = analysis.mel(take, bands=40, fmax=8000.0)
        spectra.append([mel.db[:, (mel.times >= w.start) & (mel.times < w.end)].mean(axis=1) for w in take.words])
    lengths = np.array([[word.end - word.start for word in take.words] for take in takes])
    return {
        "pitch_semitones": round(float(np.nanstd(contours[:, voiced], axis=0).mean()), 3),
        "spectrum_db": round(float(np.sqrt(np.array(spectra).var(axis=0).mean())), 3),
        "word_length_ms": round(float(1000 * np.sqrt(lengths.var(axis=0).mean())), 1),
        "takes": len(takes),
    }


def draw_pitch(axes: Axes, clip: vl.Clip, color: str, **style: Any) -> None:
    """Draw the pitch of a clip."""
    contour = pitch(clip)
    axes.plot(contour.times, contour.values, color=color, **{"linewidth": 1.2, "alpha": 0.75, **style})


def draw_spectrogram(axes: Axes, clip: vl.Clip, title: str, top: float = 10_000.0) -> None:
    """Draw the spectrogram of a clip, in dB relative to its maximum."""
    spectrum = analysis.spectrogram(clip)
    axes.pcolormesh(
        spectrum.times,
        spectrum.frequencies / 1000,
        spectrum.db - spectrum.db.max(),
        vmin=-80,
        vmax=0,
        cmap="cividis",
        rasterized=True,
        shading="nearest",
    )
    axes.set(title=title, ylabel="kHz", ylim=(0, top / 1000))


def temperature(studio: Studio) -> dict[str, Any]:
    """Plot F0 of takes by temperature, at top_p 1."""
    figure, panels = studio.draw("temperature", len(TEMPERATURES), (7, 6.4))
    figures = {}
    for axes, value in zip(panels, TEMPERATURES, strict=True):
        takes = studio.render_takes(temperature=value, top_p=1.0)
        figures[str(value)] = variability(takes)
        for number, take in enumerate(takes):
            draw_pitch(axes, take, COLORS[number % len(COLORS)])
        axes.set_title(f"temperature {value:g}: SD {figures[str(value)]['pitch_semitones']:.2f} semitones", fontsize=9)
        axes.set_ylabel("F0 (Hz)")
        for number, take in enumerate(takes[: 1 if value == 0.0 else 2]):
            studio.keep(f"temperature-{value:g}-{number + 1}", take)
    panels[-1].set_xlabel("time (s)")
    studio.done(figure)
    return figures


def top_p(studio: Studio) -> dict[str, Any]:
    """Plot the variability between takes by top_p and temperature."""
    figure, (axes, *_) = studio.draw("top_p", 1, (6, 3.4))
    figures: dict[str, Any] = {}
    for color, heat in zip(COLORS, TEMPERATURES[1:], strict=False):
        rows = [variability(studio.render_takes(temperature=heat, top_p=nucleus)) for nucleus in NUCLEI]
        figures |= {f"{heat:g}, {nucleus:g}": row for nucleus, row in zip(NUCLEI, rows, strict=True)}
        deviation_db = [row["spectrum_db"] for row in rows]
        axes.plot(NUCLEI, deviation_db, marker="o", color=color, label=f"temperature {heat:g}")
    axes.set(xlabel="top_p", ylabel="spectral SD between takes (dB)", ylim=(0, None))
    axes.legend(frameon=False)
    studio.done(figure)
    for nucleus in (0.2, 1.0):
        studio.keep(f"top_p-{nucleus:g}", studio.say(temperature=1.0, top_p=nucleus, seed=3))
    return figures


def repetition_penalty(studio: Studio) -> None:
    """Render one sentence by repetition_penalty."""
    clips = {value: studio.say(repetition_penalty=value) for value in (0.5, 1.2, 3.0)}
    figure, panels = studio.draw("repetition_penalty", 3, (7, 5.4))
    for axes, (value, clip) in zip(panels, clips.items(), strict=True):
        draw_spectrogram(axes, clip, f"repetition_penalty {value:g}")
        studio.keep(f"repetition_penalty-{value:g}", clip)
    panels[-1].set_xlabel("time (s)")
    studio.done(figure)


def speed(studio: Studio) -> None:
    """Plot F0 by speed."""
    clips = {value: studio.say(prosody={"speed": value}) for value in (0.5, 1.0, 2.0)}
    figure, panels = studio.draw("speed", 3, (7, 5.4))
    for axes, (value, clip) in zip(panels, clips.items(), strict=True):
        draw_pitch(axes, clip, COLORS[0], linewidth=1.6)
        for word in clip.words:
            axes.axvline(word.start, color="0.85", linewidth=0.8, zorder=0)
        axes.set(title=f"speed {value:g}: {clip.duration:.2f} s, median {pitch(clip).median:.0f} Hz", ylabel="F0 (Hz)")
        studio.keep(f"speed-{value:g}", clip)
    panels[-1].set_xlabel("time (s)")
    studio.done(figure)


def volume(studio: Studio) -> None:
    """Plot the waveform by volume."""
    clips = {value: studio.say(prosody={"volume": value}) for value in (-12.0, 0.0, 12.0)}
    figure, panels = studio.draw("volume", 3, (7, 4.6))
    for axes, (value, clip) in zip(panels, clips.items(), strict=True):
        axes.plot(np.arange(len(clip)) / clip.rate, clip.samples, color=COLORS[0], linewidth=0.4)
        axes.set(title=f"volume {value:+g} dB: {clip.level:.1f} dBFS, peak {clip.peak:.2f}", ylim=(-1, 1))
        studio.keep(f"volume-{value:g}", clip)
    panels[-1].set_xlabel("time (s)")
    studio.done(figure)


def latency(studio: Studio) -> dict[str, Any]:
    """Plot the arrival of audio by latency mode, best of several calls."""
    figure, (axes, *_) = studio.draw("latency", 1, (7, 3.6))
    figures: dict[str, Any] = {}
    modes: tuple[Latency, ...] = ("low", "balanced", "normal")
    for color, mode in zip(COLORS, modes, strict=False):
        tries = []
        for seed in range(max(studio.takes, 3)):
            with studio.lab.stream(PASSAGE, latency=mode, format="pcm", seed=seed) as stream:
                list(stream)
            tries.append(stream)
        best = min(tries, key=lambda stream: stream.first_audio_s or np.inf)
        times = [seconds for seconds, _ in best.arrivals]
        received_s = np.cumsum([size for _, size in best.arrivals]) / 2 / best.rate
        axes.step(
            [0.0, *times],
            [0.0, *received_s],
            where="post",
            color=color,
            label=f"{mode}: first {times[0] * 1000:.0f} ms",
        )
        figures[mode] = {"first_audio_ms": round(1000 * times[0], 1), "chunks": len(times)}
    limit = 2.5
    axes.plot([0, limit], [0, limit], color="0.6", linestyle=":", label="real time")
    axes.set(xlabel="seconds since the call", ylabel="seconds of audio received", xlim=(0, limit), ylim=(0, 8))
    axes.legend(frameon=False, fontsize=8)
    studio.done(figure)
    return figures


def segments(studio: Studio) -> None:
    """Plot the segments of a text by chunk_length and min_chunk_length."""
    settings = [(300, 50), (200, 50), (100, 50), (100, 0)]
    figure, (axes, *_) = studio.draw("segments", 1, (7, 2.6))
    for row, (length, min_length) in enumerate(settings):
        parts = segment(SENTENCES, length, min_length)
        for number, item in enumerate(parts):
            axes.barh(row, item.end - item.start, left=item.start, color=COLORS[number % 2], alpha=0.75, height=0.6)
            axes.text(
                (item.start + item.end) / 2, row, str(item.end - item.start), ha="center", va="center", fontsize=7
            )
    axes.set(
        yticks=range(len(settings)), yticklabels=[f"{a}, {b}" for a, b in settings], xlabel="characters of the text"
    )
    axes.set_ylabel("chunk_length,\nmin_chunk_length", fontsize=8)
    axes.invert_yaxis()
    studio.done(figure)


def text(studio: Studio) -> None:
    """Render normalization, truncation and context."""
    studio.keep("normalize-true", studio.say(NUMBERS))
    studio.keep("normalize-false", studio.say(NUMBERS, normalize=False))
    studio.keep("max_new_tokens-20", studio.say(max_new_tokens=20))
    studio.keep("context-true", studio.say(PASSAGE[:160], chunk_length=100, temperature=1.0))
    studio.keep(
        "context-false",
        studio.say(PASSAGE[:160], chunk_length=100, temperature=1.0, condition_on_previous_chunks=False),
    )


def formats(studio: Studio) -> None:
    """Plot one take by audio format."""
    settings: dict[str, dict[str, Any]] = {
        "wav, 44.1 kHz": {"format": "wav"},
        "mp3, 64 kbit/s": {"format": "mp3", "mp3_bitrate": 64},
        "opus, 24 kbit/s": {"format": "opus", "opus_bitrate": 24},
        "wav, 8 kHz": {"format": "wav", "sample_rate": 8000},
    }
    figure, panels = studio.draw("formats", 2, (8, 5), columns=2)
    for axes, (title, fields) in zip(panels, settings.items(), strict=True):
        draw_spectrogram(axes, studio.say(**fields), title, top=20_000.0)
    for axes in panels[2:]:
        axes.set_xlabel("time (s)")
    studio.done(figure)


def main() -> None:
    """Render, plot and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=8, help="takes per setting")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    host = machine()
    plain: tuple[Callable[[Studio], None], ...] = (repetition_penalty, speed, volume, segments, text, formats)
    with vl.connect() as lab:
        studio = Studio(lab, options.out, options.takes)
        studio.say("Ready.")
        figures = {"by temperature, top_p 1": temperature(studio), "by temperature, top_p": top_p(studio)}
        figures["arrivals"] = latency(studio)
        for render in plain:
            render(studio)
    report({"figure": "effects of the parameters", **figures, "machine": host})


if __name__ == "__main__":
    main()
