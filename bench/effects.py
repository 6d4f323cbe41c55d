"""Effects of temperature, top_p and repetition_penalty on prosody, compared with the variance between takes.

    python bench/effects.py
    python bench/effects.py --takes 4 --texts 4 --only temperature

Every level of a parameter renders the same sentences with the same seeds and defaults elsewhere; top_p is varied at
temperature 1, where it truncates most. `range` is the central 90 % range of F0 in semitones. Three metrics are deviations
of a take from the median of its cell: `contour`, of F0 at seven points per word (median absolute, semitones; robust to octave
errors, 1 point in 400), `pace`, of log word durations (RMS), and `spectrum`, of mel spectra of words (dB). `change` is the
mel spectral change over one codec frame of 46 ms (dB, loud frames), lower for repetitive codes. `p` tests the hypothesis of
no effect with texts as random (ANOVA over texts), `p_holm` is Holm-corrected over all tests of the run; `at_each` is the mean
at each level.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import systems
from machine import machine, report
from numpy.typing import NDArray
from parameters import pitch_at

from voicelab.audio import analysis
from voicelab.clip import Clip
from voicelab.stats import effects, holm

LEVELS: Mapping[str, Sequence[float]] = {
    "temperature": (0.2, 0.6, 1.0),
    "top_p": (0.2, 0.6, 1.0),
    "repetition_penalty": (1.0, 1.2, 2.0),
}
FIXED_FIELDS: Mapping[str, Mapping[str, float]] = {"temperature": {"top_p": 1.0}, "top_p": {"temperature": 1.0}}
"""Other fields that are not at their default."""
METRICS = ("range", "contour", "pace", "spectrum", "change")
FRAME_S = 2048 / 44_100
"""Duration of a codec frame."""
LOUD_DB = 30.0
"""Frames more than this below the loudest frame are excluded as pauses."""
ALPHA = 0.01
"""Significance level for `p_holm`."""
CONCURRENCY = 8
"""Number of concurrent streams."""
Floats = NDArray[np.float64]


def f0_range(clip: Clip) -> float:
    """Compute the range of F0 between the 5th and 95th percentile in semitones; NaN if unvoiced."""
    hz = analysis.f0(clip).values
    low, high = np.percentile(hz[np.isfinite(hz)], (5, 95)) if np.isfinite(hz).any() else (np.nan, np.nan)
    return float(12 * np.log2(high / low))


def spectra(clip: Clip) -> Floats:
    """Compute the mean mel spectrum of every word in dB, shape (words, bands)."""
    mel = analysis.mel(clip, bands=40, fmax=8000.0)
    inside = [(mel.times >= word.start) & (mel.times < word.end) for word in clip.words]
    return np.array([mel.db[:, mask].mean(axis=1) if mask.any() else np.full(40, np.nan) for mask in inside])


def change(clip: Clip) -> float:
    """Compute the RMS change of mel bands over `FRAME_S` in dB, averaged over loud frames."""
    mel = analysis.mel(clip, bands=40, fmax=8000.0)
    lag = round(FRAME_S / float(mel.times[1] - mel.times[0]))
    level = mel.db.max(axis=0)
    loud = (level[lag:] > level.max() - LOUD_DB) & (level[:-lag] > level.max() - LOUD_DB)
    return float(np.sqrt(np.square(mel.db[:, lag:] - mel.db[:, :-lag]).mean(axis=0))[loud].mean())


def root_mean_square(values: Floats) -> float:
    """Compute the RMS of an array."""
    return float(math.sqrt(np.mean(np.square(values))))


def deviations(values: Sequence[Floats], typical: Callable[[Floats], Any] = root_mean_square) -> list[float]:
    """Compute the typical deviation of each take from the median of all takes.

    Deviations decrease with fewer takes, so compare only cells of equal size.
    """
    table = np.array(values)
    defined = np.isfinite(table).sum(axis=0) >= max(2, 0.6 * len(table))
    distances = np.abs(table[:, defined] - np.nanmedian(table[:, defined], axis=0))
    return [float(typical(row[np.isfinite(row)])) if np.isfinite(row).any() else math.nan for row in distances]


def cell(takes: Sequence[Clip]) -> list[dict[str, float]]:
    """Compute the metrics of every take of one text at one level, excluding takes with skipped words."""
    word_count = max(len(take.words) for take in takes)
    complete = [take for take in takes if len(take.words) == word_count]
    lengths = [np.log([max(word.end - word.start, 0.01) for word in take.words]) for take in complete]
    columns = (
        [f0_range(take) for take in complete],
        deviations([pitch_at(take) for take in complete], np.median),
        deviations(lengths),
        deviations([spectra(take) for take in complete]),
        [change(take) for take in complete],
    )
    return [dict(zip(METRICS, row, strict=True)) for row in zip(*columns, strict=True)]


def table(parameter: str, texts: Sequence[str], takes: int) -> pd.DataFrame:
    """Render all takes of a parameter; return one row per take: level, text and metrics."""
    lab, rows = systems.lab(), []
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        for text in texts:
            for level in LEVELS[parameter]:
                fields: dict[str, Any] = {**FIXED_FIELDS.get(parameter, {}), parameter: level}
                clips = list(pool.map(lambda seed: lab.speak(text, seed=seed, **fields), range(takes)))  # noqa: B023
                rows += [{"text": text, parameter: level, **figures} for figures in cell(clips)]
    return pd.DataFrame(rows)


def analyze(parameter: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row per metric: its mean at each level, and p."""
    result = effects(frame, parameter, METRICS, blocks="text").frame.set_index("metric")
    means = frame.groupby(parameter)[list(METRICS)].mean()
    return [
        {
            "parameter": parameter,
            "metric": metric,
            "levels": list(LEVELS[parameter]),
            "at_each": [round(float(value), 3) for value in means[metric]],
            "p": float(result["p_texts"][metric]),
        }
        for metric in METRICS
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=8, help="takes per text and level")
    parser.add_argument("--texts", type=int, default=12, help="number of sentences")
    parser.add_argument("--only", default=",".join(LEVELS), help=f"comma-separated: {', '.join(LEVELS)}")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    texts, began, rows = systems.sentences(options.texts), time.perf_counter(), []
    for parameter in options.only.split(","):
        rows += analyze(parameter, table(parameter, texts, options.takes))
    for row, corrected in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row |= {"p": float(f"{row['p']:.2g}"), "p_holm": float(f"{corrected:.2g}"), "met": bool(corrected < ALPHA)}
        print(f"{row['metric']} by {row['parameter']}: {row['at_each']}, p {row['p_holm']}", flush=True)
    report(
        {
            "figure": "effects of sampling on prosody",
            "takes_each": options.takes,
            "texts": len(texts),
            "effects": rows,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
