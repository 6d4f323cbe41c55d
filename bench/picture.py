"""Spectrograms of one sentence by the teacher, the codec and the voice, for docs/images/.

    python bench/picture.py
    python bench/picture.py --text "Glue the sheet to the dark blue background." --out other.png

The last line has the file and the mean log-spectral distance of codec and teacher.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import librosa
import numpy as np
import systems
import teaching
from machine import machine, report
from matplotlib.figure import Figure
from numpy.typing import NDArray

RATE = 44_100
TOP = 10_000
"""Maximum frequency of the plot in Hz."""
OUT = teaching.ROOT / "docs" / "images" / "voice-against-teacher.png"
TEXT = "The birch canoe slid on the smooth planks."


def spectrum(samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Compute the spectrogram in dB relative to its maximum, shape (bins, frames)."""
    wide = librosa.resample(samples, orig_sr=rate, target_sr=RATE)
    magnitude = np.abs(librosa.stft(wide, n_fft=1024, hop_length=256))
    levels: NDArray[np.float32] = librosa.amplitude_to_db(magnitude, ref=np.max, top_db=80)
    return levels


def distance(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Compute the mean absolute distance in dB up to 8 kHz, over common frames."""
    frames, bins = min(a.shape[1], b.shape[1]), int(8000 / RATE * 1024)
    return float(np.abs(a[:bins, :frames] - b[:bins, :frames]).mean())


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--out", type=Path, default=OUT)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    teacher = f"kokoro:{systems.taught_by('voice')}"
    titles = {
        teacher: f"teacher ({teacher})",
        "codec": "codec",
        "voice": "voice (default speaker)",
    }
    spectra = {name: spectrum(*systems.speak(name, options.text)) for name in titles}
    figure = Figure(figsize=(9, 8), layout="constrained")
    duration_s = max(levels.shape[1] for levels in spectra.values()) * 256 / RATE
    for axes, (name, title) in zip(figure.subplots(3, 1, sharex=True), titles.items(), strict=True):
        levels = spectra[name]
        extent = (0.0, levels.shape[1] * 256 / RATE, 0.0, RATE / 2000)
        image = axes.imshow(levels, origin="lower", aspect="auto", extent=extent, cmap="magma", vmin=-80, vmax=0)
        axes.set(title=title, ylabel="kHz", ylim=(0, TOP / 1000), xlim=(0, duration_s))
    axes.set_xlabel("seconds")
    figure.colorbar(image, ax=figure.axes, label="dB relative to maximum")
    figure.suptitle(f"“{options.text}”")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=100, metadata={"Software": None})
    codec_distance = round(distance(spectra[teacher], spectra["codec"]), 2)
    report(
        {
            "figure": "spectrograms of one sentence",
            "file": options.out.name,
            "codec_distance_db": codec_distance,
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
