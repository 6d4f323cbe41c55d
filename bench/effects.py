"""Whether temperature, top_p and repetition_penalty move what is heard of prosody, beside what differs between takes anyway.

    python bench/effects.py
    python bench/effects.py --takes 4 --texts 4 --only temperature

Every level of a parameter speaks the same sentences with the same seeds, the other parameters at their defaults; top_p at
temperature 1, where it cuts off most. `range` is the middle 90 % of a take's F0 in semitones, `contour` how far its F0 at
seven places of every word lies from the median of its cell's takes (half of the places are nearer, semitones: one place in
400 is an octave off, which a mean square would be about), `pace` how far the lengths of its words do (root mean square of
their logarithms' differences), `spectrum` how far its mel spectra of words do (dB): these three are spreads between takes.
`change` is how far a take's mel spectrum lies from that of 46 ms before, the length of a frame of codes (dB, of loud
frames): what repeats itself changes less. `p` is of the hypothesis that the parameter does nothing in texts like these
(analysis of variance over texts), `p_holm` corrected by Holm over all tests of the run; `at_each` is the mean at each
level.
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
from voicelab.experiments.statistics import effects, holm

LEVELS: Mapping[str, Sequence[float]] = {
    "temperature": (0.2, 0.6, 1.0),
    "top_p": (0.2, 0.6, 1.0),
    "repetition_penalty": (1.0, 1.2, 2.0),
}
BESIDE: Mapping[str, Mapping[str, float]] = {"temperature": {"top_p": 1.0}, "top_p": {"temperature": 1.0}}
"""What else is set, and not at its default."""
METRICS = ("range", "contour", "pace", "spectrum", "change")
FRAME_S = 2048 / 44_100
"""Of codes."""
LOUD_DB = 30.0
"""Frames this far below the loudest are pauses, which repeat themselves anyway."""
P = 0.01
"""The goal: what `p_holm` is below."""
TOGETHER = 8
"""Streams at once."""
Floats = NDArray[np.float64]


def f0_range(clip: Clip) -> float:
    """Return the semitones between the 5th and the 95th percentile of F0; NaN without a voice."""
    hz = analysis.f0(clip).values
    low, high = np.percentile(hz[np.isfinite(hz)], (5, 95)) if np.isfinite(hz).any() else (np.nan, np.nan)
    return float(12 * np.log2(high / low))


def spectra(clip: Clip) -> Floats:
    """Return the mean mel spectrum of every word, (words, bands) in dB."""
    mel = analysis.mel(clip, bands=40, fmax=8000.0)
    inside = [(mel.times >= word.start) & (mel.times < word.end) for word in clip.words]
    return np.array([mel.db[:, at].mean(axis=1) if at.any() else np.full(40, np.nan) for at in inside])


def change(clip: Clip) -> float:
    """Return the mean over loud frames of the root mean square of what mel bands change by within `FRAME_S`, in dB."""
    mel = analysis.mel(clip, bands=40, fmax=8000.0)
    lag = round(FRAME_S / float(mel.times[1] - mel.times[0]))
    level = mel.db.max(axis=0)
    loud = (level[lag:] > level.max() - LOUD_DB) & (level[:-lag] > level.max() - LOUD_DB)
    return float(np.sqrt(np.square(mel.db[:, lag:] - mel.db[:, :-lag]).mean(axis=0))[loud].mean())


def root_mean_square(values: Floats) -> float:
    """Return it."""
    return float(math.sqrt(np.mean(np.square(values))))


def away(values: Sequence[Floats], typical: Callable[[Floats], Any] = root_mean_square) -> list[float]:
    """Return each take's typical distance from the median of all, where that is known.

    The fewer the takes, the nearer each is to their median: compare cells of equally many.
    """
    table = np.array(values)
    known = np.isfinite(table).sum(axis=0) >= max(2, 0.6 * len(table))
    apart = np.abs(table[:, known] - np.nanmedian(table[:, known], axis=0))
    return [float(typical(row[np.isfinite(row)])) if np.isfinite(row).any() else math.nan for row in apart]


def cell(takes: Sequence[Clip]) -> list[dict[str, float]]:
    """Return the figures of every take of one text at one level; takes that lost a word are left out."""
    most = max(len(take.words) for take in takes)
    whole = [take for take in takes if len(take.words) == most]
    lengths = [np.log([max(word.end - word.start, 0.01) for word in take.words]) for take in whole]
    columns = (
        [f0_range(take) for take in whole],
        away([pitch_at(take) for take in whole], np.median),
        away(lengths),
        away([spectra(take) for take in whole]),
        [change(take) for take in whole],
    )
    return [dict(zip(METRICS, row, strict=True)) for row in zip(*columns, strict=True)]


def table(parameter: str, texts: Sequence[str], takes: int) -> pd.DataFrame:
    """Return one row a take: level, text and figures."""
    lab, rows = systems.lab(), []
    with ThreadPoolExecutor(TOGETHER) as pool:
        for text in texts:
            for level in LEVELS[parameter]:
                fields: dict[str, Any] = {**BESIDE.get(parameter, {}), parameter: level}
                said = list(pool.map(lambda seed: lab.speak(text, seed=seed, **fields), range(takes)))  # noqa: B023
                rows += [{"text": text, parameter: level, **figures} for figures in cell(said)]
    return pd.DataFrame(rows)


def tested(parameter: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row for each figure: its mean at each level, and p."""
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
    parser.add_argument("--takes", type=int, default=8, help="of each text at each level")
    parser.add_argument("--texts", type=int, default=12, help="sentences")
    parser.add_argument("--only", default=",".join(LEVELS), help=f"of {', '.join(LEVELS)}")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    texts, began, rows = systems.sentences(options.texts), time.perf_counter(), []
    for parameter in options.only.split(","):
        rows += tested(parameter, table(parameter, texts, options.takes))
    for row, corrected in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row |= {"p": float(f"{row['p']:.2g}"), "p_holm": float(f"{corrected:.2g}"), "met": bool(corrected < P)}
        print(f"{row['metric']} by {row['parameter']}: {row['at_each']}, p {row['p_holm']}", flush=True)
    report(
        {
            "figure": "what sampling does to prosody",
            "takes_each": options.takes,
            "texts": len(texts),
            "effects": rows,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
