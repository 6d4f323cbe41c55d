"""Type I error, coverage and power of the statistical analyses in simulated studies.

    python bench/inference.py                     # 30 designs and bench/cases.py, 2,000 data sets each, half an hour
    python bench/inference.py --sets 200 --only AB
    python bench/inference.py --only grid         # sweeps of 2 to 6 levels, one to three axes, 1 to 4 takes per cell
    python bench/inference.py --write             # and writes the tables into docs/explanation/statistics.md
    python bench/inference.py --rows rows.jsonl   # keeps each row there; a second call resumes
    python bench/inference.py --anytimemonitor --sets 200  # `SequentialTest` beside that package, 4 minutes

Listeners and items are random effects: the SD of the listener × system interaction is `listener_sd`, of the item × system
interaction `item_sd`, and the residual SD `noise`. Ratings are rounded to their scale. `type1` is the fraction of data sets
without a difference with p <= 0.05; for data sets with a difference, `coverage` is the fraction whose 95 % interval contains
it, and `power` the fraction with p <= 0.05. `bench/cases.py` has the cases of discrete and degenerate data. Each
analysis is the primary one of `analyze()`, `mixed_model()`,
`equivalence()` and `effects()`. Grids use five times as many data sets; noise is normal or lognormal (sigma 0.5), with equal
SD or an SD ratio of 1 : 3 from the first to the last level of the first axis.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cases import CASES
from machine import machine, report

from voicelab.listening.blocks import block_of
from voicelab.stats import SequentialTest, crossed_mean, crossed_share, effects, mixed_model
from voicelab.stats.factors import build, contrasts_of, noise_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "statistics.md"
Outcome = tuple[float, float, float]
"""p, and the ends of the interval."""


@dataclass(frozen=True)
class Design:
    """Design of a simulated study.

    ``difference`` is the true difference for power; ``gaps`` the fraction of missing responses; ``items_per_listener`` the
    number of items per listener in the blocks of ``vl.Study(per_listener=…)``, 0 for all.
    """

    kind: str
    listeners: int
    items: int
    difference: float = 0.5
    listener_sd: float = 0.5
    item_sd: float = 0.5
    noise: tuple[float, float] = (0.7, 0.7)
    gaps: float = 0.0
    systems: int = 2
    items_per_listener: int = 0

    @property
    def name(self) -> str:
        """Label in the table."""
        if self.kind.startswith("sweep"):
            return self.kind
        gaps, share = (
            f", {self.gaps:.0%} missing" * bool(self.gaps),
            f", {self.items_per_listener} per listener" * bool(self.items_per_listener),
        )
        return f"{self.kind} {self.listeners} × {self.items}{share}{gaps}"


DESIGNS = (
    Design("MOS", 6, 6),
    Design("MOS", 8, 12),
    Design("MOS", 12, 8),
    Design("MOS", 24, 6),
    Design("MOS", 30, 24),
    Design("MOS", 3, 12),
    Design("MOS", 20, 4),
    Design("MOS", 12, 8, gaps=0.3),
    Design("MOS", 24, 12, gaps=0.5),
    Design("MOS, SD 1 : 3", 12, 12, noise=(0.5, 1.5)),
    Design("MOS, listener SD 0.1", 12, 8, listener_sd=0.1),
    Design("MUSHRA", 10, 8, difference=10.0, listener_sd=8.0, item_sd=8.0, noise=(12.0, 12.0)),
    Design("CMOS", 12, 8),
    Design("AB", 12, 8, difference=1.0, listener_sd=0.8, item_sd=0.8),
    Design("AB", 24, 12, difference=1.0, listener_sd=0.8, item_sd=0.8),
    Design("AB", 20, 4, difference=1.0, listener_sd=0.8, item_sd=0.8),
    Design("AB", 16, 12, difference=1.0, listener_sd=0.8, item_sd=0.8, gaps=0.4),
    Design("four systems", 12, 8, systems=4),
    Design("sweep: takes 8 : 3, SD 1 : 4", 11, 1, difference=4.0, noise=(1.0, 4.0)),
    Design("sweep: 8 texts, 3 levels", 4, 8, difference=0.8, listener_sd=0.0),
    Design("MOS", 24, 12, items_per_listener=4),
    Design("MOS", 60, 40, items_per_listener=10),
    Design("MOS", 24, 12, items_per_listener=6, gaps=0.2),
    Design("CMOS", 30, 20, items_per_listener=8),
    Design("AB", 30, 20, difference=1.0, listener_sd=0.8, item_sd=0.8, items_per_listener=8),
    Design("four systems", 24, 12, systems=4, items_per_listener=4),
    Design("BWS, 4 systems", 12, 8, difference=1.0, systems=4),
    Design("BWS, 8 systems", 24, 12, difference=1.0, systems=8),
    Design("transcription, 2 systems", 12, 12, difference=1.0),
    Design("transcription, 3 systems", 24, 18, difference=1.0, systems=3),
)
GRIDS = ((2,), (4,), (6,), (2, 2), (3, 2), (5, 2), (3, 3), (6, 4), (2, 2, 2), (4, 3, 2), (6, 2, 2))
TAKES = (1, 2, 3, 4)
NOISES = {
    "normal": ("normal", 1.0),
    "lognormal": ("lognormal", 1.0),
    "normal, 1 : 3": ("normal", 3.0),
    "lognormal, 1 : 3": ("lognormal", 3.0),
}
SIGMA = 0.5


def ratings(design: Design, rng: np.random.Generator, difference: float, count: int = 2) -> np.ndarray[Any, Any]:
    """Simulate ratings, shape (systems, listeners, items); the first system is better by `difference`."""
    shape = design.listeners, design.items
    if design.kind.startswith("MUSHRA"):
        middle, scale, ends = 60.0, 10.0, (0, 100)
    else:
        middle, scale, ends = 3.0, 0.4, (1, 5)
    level = middle + rng.normal(0, scale, (shape[0], 1)) + rng.normal(0, scale, (1, shape[1]))
    spread = np.resize(design.noise, count)[:, None, None]
    interactions = rng.normal(0, design.listener_sd, (count, shape[0], 1)) + rng.normal(
        0, design.item_sd, (count, 1, shape[1])
    )
    table = level + interactions / math.sqrt(2) + spread * rng.standard_normal((count, *shape))
    table[0] += difference
    rounded: np.ndarray[Any, Any] = np.clip(np.rint(table), *ends)
    return rounded


def answers(design: Design, rng: np.random.Generator, difference: float) -> np.ndarray[Any, Any]:
    """Simulate one number per listener and item: rating difference, comparison rating, or choice."""
    if design.kind.startswith(("MOS", "MUSHRA")):
        better, baseline = ratings(design, rng, difference)
        differences: np.ndarray[Any, Any] = better - baseline
        return differences
    shape = design.listeners, design.items
    lead = difference + rng.normal(0, design.listener_sd, (shape[0], 1)) + rng.normal(0, design.item_sd, (1, shape[1]))
    if design.kind == "AB":
        chosen: np.ndarray[Any, Any] = (lead + rng.logistic(size=shape) > 0).astype(float)
        return chosen
    rated: np.ndarray[Any, Any] = np.clip(np.rint(lead + design.noise[0] * rng.standard_normal(shape)), -3, 3)
    return rated


def assign_items(design: Design, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Assign items to listeners; return a boolean array, shape (listeners, items)."""
    if not design.items_per_listener:
        return np.ones((design.listeners, design.items), bool)
    seed = int(rng.integers(16))  # few seeds, since blocks are slow to build and cached
    table = np.zeros((design.listeners, design.items), bool)
    for listener in range(design.listeners):
        table[listener, list(block_of(listener, design.items, design.items_per_listener, seed))] = True
    return table


def paired(design: Design, rng: np.random.Generator, difference: float) -> Outcome:
    """Analyze one number per cell by crossed random effects."""
    table = answers(design, rng, difference)
    listener, item = (axis.ravel() for axis in np.indices(table.shape))
    observed = (rng.random(listener.size) >= design.gaps) & assign_items(design, rng)[listener, item]
    values, listeners, items = table.ravel()[observed], listener[observed], item[observed]
    if design.kind == "AB":
        test = crossed_share(values, listeners, items)
    else:
        test = crossed_mean(values, listeners, items, step=1.0)
    return test.p, test.estimate.low, test.estimate.high


def several(design: Design, rng: np.random.Generator, difference: float) -> Outcome:
    """Analyze four systems jointly; the interval is that of the first minus the second."""
    cube = ratings(design, rng, difference, design.systems)
    system, listener, item = (axis.ravel() for axis in np.indices(cube.shape))
    frame = pd.DataFrame({"rating": cube.ravel(), "system": system, "listener": listener, "item": item})
    model = mixed_model(frame[assign_items(design, rng)[listener, item]])
    row = model.pairs.iloc[0]
    return model.p, row["low"], row["high"]


def counts(design: Design, rng: np.random.Generator, difference: float) -> np.ndarray[Any, Any]:
    """Simulate best-worst trials of four systems, shape (systems, listeners, items): 1, -1 or 0; NaN if not in the trial."""
    shape = design.listeners, design.items
    level = rng.gumbel(size=(design.systems, *shape)) + rng.normal(0, design.listener_sd, (design.systems, shape[0], 1))
    level += rng.normal(0, design.item_sd, (design.systems, 1, shape[1]))
    level[0] += difference
    for listener, item in np.ndindex(shape):
        level[sorted({*range(design.systems)} - {*block_of(listener + item, design.systems, 4, 0)}), listener, item] = (
            np.nan
        )
    found: np.ndarray[Any, Any] = (level == np.nanmax(level, axis=0)) - (level == np.nanmin(level, axis=0)).astype(
        float
    )
    return np.where(np.isnan(level), np.nan, found)


def best_worst(design: Design, rng: np.random.Generator, difference: float) -> Outcome:
    """Analyze the counts of the first minus the second system."""
    table = np.subtract(*counts(design, rng, difference)[:2])
    listeners, items = np.nonzero(np.isfinite(table))
    test = crossed_mean(table[listeners, items], listeners, items, step=1.0)
    return test.p, test.estimate.low, test.estimate.high


def correct(design: Design, rng: np.random.Generator, difference: float) -> np.ndarray[Any, Any]:
    """Simulate the percentage of 7 words correct, shape (systems, listeners, items)."""
    shape = design.systems, design.listeners, design.items
    logit = 1.0 + rng.normal(0, 1, (1, shape[1], 1)) + rng.normal(0, 1, (1, 1, shape[2]))
    logit = logit + rng.normal(0, design.listener_sd, (*shape[:2], 1)) / math.sqrt(2)
    logit = logit + rng.normal(0, design.item_sd, (shape[0], 1, shape[2])) / math.sqrt(2)
    logit[0] += difference
    found: np.ndarray[Any, Any] = rng.binomial(7, 1 / (1 + np.exp(-logit)), shape) * (100 / 7)
    return found


def transcription(design: Design, rng: np.random.Generator, difference: float) -> Outcome:
    """Analyze transcriptions, each item heard once by a listener, as the first minus the second system."""
    listener, item = (axis.ravel() for axis in np.indices((design.listeners, design.items)))
    system = (listener + item) % design.systems
    frame = pd.DataFrame({"rating": correct(design, rng, difference)[system, listener, item], "system": system})
    pairs = mixed_model(frame.assign(listener=listener, item=item).sort_values("system")).pairs
    row = pairs.iloc[0]
    return row["p"], row["low"], row["high"]


def sweep(design: Design, rng: np.random.Generator, difference: float) -> Outcome:
    """Analyze a sweep: two levels with unequal numbers of takes, or three levels in several texts."""
    if design.items == 1:
        values = np.concatenate((rng.normal(0, design.noise[0], 8), rng.normal(difference, design.noise[1], 3)))
        frame = pd.DataFrame({"level": [0] * 8 + [1] * 3, "f0": values})
        table = effects(frame, "level", "f0")
        row = table.contrasts.iloc[0]
        return table.frame["p"][0], row["low"], row["high"]
    shape = design.items, 3, design.listeners
    text, level, _ = (axis.ravel() for axis in np.indices(shape))
    lead = rng.normal(0, 1, (shape[0], 1, 1)) + rng.normal(0, design.item_sd, (*shape[:2], 1))
    values = lead + difference * (np.arange(3) == 1)[None, :, None] + rng.normal(0, design.noise[0], shape)
    frame = pd.DataFrame({"level": level, "text": text, "f0": values.ravel()})
    table = effects(frame, "level", "f0", blocks="text")
    row = table.contrasts.iloc[0]
    return table.frame["p_texts"][0], row["low_texts"], row["high_texts"]


def truth(design: Design, rng: np.random.Generator) -> float:
    """Estimate the true difference after rounding and clipping."""
    if design.kind.startswith("sweep"):
        return design.difference
    if design.kind.startswith(("BWS", "transcription")):
        simulate, size = (counts, 200) if design.kind.startswith("BWS") else (correct, 1000)
        large = replace(design, listeners=size, items=size)
        leads = [np.subtract(*simulate(large, rng, design.difference)[:2]) for _ in range(4)]
        return float(np.mean([np.nanmean(lead) for lead in leads]))
    large = Design(design.kind, 1500, 1500, listener_sd=design.listener_sd, item_sd=design.item_sd, noise=design.noise)
    draws = answers if design.systems == 2 else (lambda *arguments: np.subtract(*ratings(*arguments)))
    return float(np.mean([draws(large, rng, design.difference).mean() for _ in range(4)]))


def measure(design: Design, sets: int, seed: int) -> dict[str, Any]:
    """Measure type I error, coverage and power of a design, and the CPU time per analysis."""
    analyses = {"sweep": sweep, "BWS": best_worst, "transcription": transcription}
    analyze: Callable[[Design, np.random.Generator, float], Outcome] = next(
        (analyses[kind] for kind in analyses if design.kind.startswith(kind)), several if design.systems > 2 else paired
    )
    rng = np.random.default_rng(seed)
    started = time.process_time()
    null = np.array([analyze(design, rng, 0.0)[0] for _ in range(sets)])
    seconds = time.process_time() - started
    true = truth(design, rng)
    alternative = np.array([analyze(design, rng, design.difference) for _ in range(sets // 2)])
    return {
        "design": design.name,
        "type1": round(float(np.mean(null <= 0.05)), 4),
        "coverage": round(float(np.mean((alternative[:, 1] <= true) & (true <= alternative[:, 2]))), 4),
        "power": round(float(np.mean(alternative[:, 0] <= 0.05)), 3),
        "ms": round(1000.0 * seconds / sets, 1),
    }


def grid(levels: tuple[int, ...], takes: int, sets: int, rng: np.random.Generator) -> dict[str, Any]:
    """Measure type I error and coverage of a grid by noise: minimum and maximum over axes and levels."""
    axes = [f"axis {index}" for index in range(len(levels))]
    cells = itertools.product(*map(range, levels), range(takes))
    frame = pd.DataFrame(cells, columns=[*axes, "take"])
    design, order = build(frame, axes, [])
    row: dict[str, Any] = {"grid": " × ".join(map(str, levels)), "takes": takes}
    for name, (kind, spread) in NOISES.items():
        noise = rng.standard_normal((len(frame), sets))
        if kind == "lognormal":
            noise = (np.exp(SIGMA * noise) - math.exp(SIGMA**2 / 2)) / math.sqrt(
                math.exp(SIGMA**2) * math.expm1(SIGMA**2)
            )
        values = (noise * spread ** (frame[axes[0]].to_numpy() / (levels[0] - 1))[:, None])[order]
        residual = noise_of(design, values)
        tests = [contrasts_of(design, values, number, residual) for number in range(len(levels))]
        type1 = [float(np.mean(test.p <= 0.05)) for test in tests]
        covered = np.concatenate([(np.abs(test.estimate) <= test.half_width(0.95)).mean(axis=1) for test in tests])
        row["test"] = "/".join(dict.fromkeys(test.test for test in tests))
        ends = {"type1": (min(type1), max(type1)), "coverage": (covered.min(), covered.max())}
        row[name] = {figure: [round(float(end), 4) for end in bounds] for figure, bounds in ends.items()}
    return row


def grids(sets: int, rows: Rows, only: str = "") -> list[dict[str, Any]]:
    """Measure all grids, excluding those without replication."""
    found = []
    for number, (levels, takes) in enumerate(itertools.product(GRIDS, TAKES)):
        if len(levels) * takes > 1 and "grid".startswith(only):
            rng = np.random.default_rng((39, number))
            name = f"grid {levels}, {takes}, {sets} sets"
            found.append(rows.row(name, functools.partial(grid, levels, takes, sets, rng)))
    return found


class Rows:
    """Measured rows, kept in a file of JSON lines, so that an interrupted measurement resumes."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self.rows = dict(map(json.loads, lines))

    def row(self, name: str, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the row of this name, measured unless it is in the file."""
        if name not in self.rows:
            self.rows[name] = measured()
            print(self.rows[name], flush=True)
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, self.rows[name]]) + "\n")
        row: dict[str, Any] = self.rows[name]
        return row


def full_analysis_s(sets: int) -> float:
    """Measure the CPU time of analyzing 30 listeners × 24 items × 4 systems, the maximum over `sets`."""
    design, rng = Design("four systems", 30, 24, systems=4), np.random.default_rng(0)
    took = []
    several(design, rng, 0.5)  # imports
    for _ in range(sets):
        started = time.process_time()
        several(design, rng, 0.5)
        took.append(time.process_time() - started)
    return round(max(took), 2)


def write(result: Mapping[str, Any]) -> None:
    """Write the tables into the page."""
    lines = ["| design | type I | coverage | power | CPU ms per analysis |", "|---|---|---|---|---|"]
    row = "| {design} | {type1:.3f} | {coverage:.3f} | {power:.2f} | {ms} |"
    lines += [row.format(**measured) for measured in result["designs"]]
    lines += [
        "",
        f"{result['sets']:,} data sets per row without a difference, half as many with one, by `bench/inference.py`;",
    ]
    lines += [
        f"{result['machine']['cpu']}, one core of {result['machine']['cores']}, load {result['machine']['load']}."
    ]
    lines += [f"30 listeners × 24 items × 4 systems are analyzed in {result['four_systems_s']} s."]
    figures = ("type1", "power", "fixed", "one_noisy", "first_noisy", "share")
    heads = (
        "type I",
        "power",
        "power of one test",
        "type I, one level 3 SD",
        "type I, first level 3 SD",
        "noted, covered",
    )
    of_choices = {row["case"]: row.get("type1") for row in result["cases"]}
    sds = ("0", "0.8", "1.5", "3", "1.5, sentences only", "3, sentences only")
    table = ["| listeners × sentences | " + " | ".join(f"SD {sd}" for sd in sds) + " |", "|---|" + "---|" * len(sds)]
    for name in dict.fromkeys(name.partition(",")[0] for name in of_choices if name.startswith("choices")):
        rates = " | ".join(f"{of_choices[f'{name}, SD {sd}']:.3f}" for sd in sds)
        table.append(f"| {name.removeprefix('choices ')} | {rates} |")
    others = [f"| case | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for measured in (row for row in result["cases"] if not row["case"].startswith("choices")):
        cells = (f"{measured[figure]:.3f}" if figure in measured else "" for figure in figures)
        others.append(f"| {measured['case']} | {' | '.join(cells)} |")
    noises = list(NOISES)
    more = [f"| grid, takes per cell | test | {' | '.join(noises)} |", "|---|---|" + "---|" * len(noises)]
    for measured in result["grids"]:
        cells = (" · ".join(map(_range, measured[name].values())) for name in noises)
        more.append(f"| {measured['grid']}, {measured['takes']} | {measured['test']} | {' | '.join(cells)} |")
    more += [
        "",
        f"Type I · coverage, minimum and maximum over axes and levels; {5 * result['sets']:,} data sets each.",
    ]
    text = PAGE.read_text(encoding="utf-8")
    for name, rows, section in (
        ("inference", result["designs"], lines),
        ("choices", result["cases"], table),
        ("cases", result["cases"], others),
        ("grids", result["grids"], more),
    ):
        if rows:
            before, mark, rest = text.partition(f"<!-- {name} -->\n")
            text = before + mark + "\n".join(section) + "\n" + rest[rest.index("<!-- / -->") :]
    PAGE.write_text(text, encoding="utf-8")


SEQUENTIAL = (Design("MOS", 60, 24), Design("MOS", 60, 24, listener_sd=0.8, item_sd=0.2))
LOOKS = range(6, 61, 6)
WIDTHS = (12, 24, 60)
MARGIN = 0.5
Look = tuple[float, float, str]
"""Ends of the interval, and the decision."""


def look(table: np.ndarray[Any, Any]) -> Look:
    """Analyze ratings, shape (2, listeners, items), by `SequentialTest`."""
    test = crossed_mean((table[0] - table[1]).ravel(), *map(np.ravel, np.indices(table.shape[1:])), step=1.0)
    rule = SequentialTest(margin=MARGIN)
    interval = rule.interval(test)
    return interval.low, interval.high, rule.decide(test)


def their_look(table: np.ndarray[Any, Any], planned: int | None = None) -> Look:
    """Analyze the same ratings by anytimemonitor, with the number of items as planned, or `planned`."""
    try:
        package = importlib.import_module("anytimemonitor")
    except ImportError:
        raise SystemExit("--anytimemonitor requires its package: pip install anytimemonitor==0.10.0") from None
    system, listener, item = map(np.ravel, np.indices(table.shape))
    frame = pd.DataFrame({"listener_id": listener, "item": item, "system": system, "rating": table.ravel()})
    # add_ratings() would make a column of objects, which pandas averages ten times slower.
    monitor = package.AnytimeMonitor(MARGIN, avci_n_planned=planned or table.shape[2], _data=frame)
    setattr(monitor, "_sigma2_ga_bootstrap_ci", _listener_variance)  # noqa: B010
    found = monitor.decision(0, 1)
    return found.ci_lo, found.ci_hi, {"STOP": "effect", "STOP_EQUIV": "equivalent"}.get(found.verdict, "continue")


def _listener_variance(*_: object, B: int, seed: int, pair_matrix: tuple[Any, ...]) -> dict[str, float]:  # noqa: N803
    """Return the same bootstrap of the listeners' variance as the package, of the same draws, without its loops."""
    table = pair_matrix[0]
    drawn = np.random.default_rng(seed).integers(0, table.shape[1], (B, table.shape[1]))
    between, within = table.mean(axis=0)[drawn].var(axis=1, ddof=1), table.var(axis=0, ddof=1)[drawn].mean(axis=1)
    variance = np.maximum(0.0, (between - within / len(table)) / 2.0)
    quantiles = {f"q{level:02}": float(np.quantile(variance, level / 100)) for level in (5, 95)}
    return {"median": float(np.median(variance)), "mean": float(variance.mean()), **quantiles}


def stopped(
    design: Design, difference: float, sets: int, analyze: Callable[[np.ndarray[Any, Any]], Look], seed: int
) -> dict[str, Any]:
    """Analyze data sets after every six listeners, until the interval excludes 0."""
    rng, large = np.random.default_rng(seed), replace(design, difference=difference)
    true = truth(large, np.random.default_rng(0)) if difference else 0.0
    widths: dict[int, list[float]] = {count: [] for count in WIDTHS}
    needed, missed, equivalent = [], 0, 0
    for _ in range(sets):
        table, outside, decisions = ratings(design, rng, difference), False, []
        for count in LOOKS:
            low, high, decision = analyze(table[:, :count])
            outside |= not low <= true <= high
            decisions.append(decision)
            if count in widths:
                widths[count].append(high - low)
            if decision == "effect":
                break
        needed.append(LOOKS[len(decisions) - 1] if decision == "effect" else math.inf)
        missed += outside
        equivalent += "equivalent" in decisions
    row = {"true": round(true, 2), "separated": round(float(np.mean(np.isfinite(needed))), 3)}
    row |= {"missed": round(missed / sets, 3), "equivalent": round(equivalent / sets, 3)}
    row["listeners"] = float(np.median(needed))
    return {**row, **{f"width of {count}": round(float(np.mean(found)), 2) for count, found in widths.items() if found}}


def compare(sets: int, rows: Rows) -> None:
    """Print how `SequentialTest` and anytimemonitor stop simulated MOS tests."""
    rates = "excludes 0 | median listeners | excludes the difference | equivalent"
    print(f"| listener, item SD | difference | analysis | {rates} | width |\n|---|---|---|---|---|---|---|---|")
    analyses = {"`SequentialTest`": look, "anytimemonitor": their_look}
    cells = itertools.product(SEQUENTIAL, (0.0, 0.3, 0.5), analyses.items())
    for design, difference, (name, analyze) in cells:
        sds = f"{design.listener_sd:g}, {design.item_sd:g}"
        measured = functools.partial(stopped, design, difference, sets, analyze, 53)
        row = rows.row(f"{name} {sds}, {difference:g}, {sets} sets", measured)
        widths = " · ".join(f"{row[f'width of {count}']:.2f}" for count in WIDTHS) if not difference else ""
        listeners = f"{row['listeners']:g}" if math.isfinite(row["listeners"]) else "> 60"
        rates = f"{row['separated']:.3f} | {listeners} | {row['missed']:.3f} | {row['equivalent']:.3f}"
        print(f"| {sds} | {row['true']:.2f} | {name} | {rates} | {widths} |", flush=True)
    table = ratings(SEQUENTIAL[0], np.random.default_rng(53), 0.0)
    (low, high, _), (lower, upper, _) = their_look(table), their_look(table, 240)
    width, default = f"{high - low:.2f}", f"{upper - lower:.2f}"
    print(f"anytimemonitor, 60 listeners, 24 or 240 planned items: width {width} or {default}")


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def _range(ends: list[float]) -> str:
    return "–".join(dict.fromkeys(f"{end:.3f}" for end in ends))


def main() -> None:
    """Measure, print, and optionally write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=2000, help="data sets without a difference; half as many with one")
    parser.add_argument("--only", default="", help="designs whose names begin with this")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    parser.add_argument("--rows", type=Path, help="file of measured rows, from which an interrupted run resumes")
    parser.add_argument("--anytimemonitor", action="store_true", help="compare sequential tests with that package")
    options = parser.parse_args()
    rows = Rows(options.rows)
    if options.anytimemonitor:
        compare(options.sets, rows)
        return
    designs = [
        rows.row(f"{design.name}, {options.sets} sets", functools.partial(measure, design, options.sets, number))
        for number, design in enumerate(DESIGNS)
        if design.name.startswith(options.only)
    ]
    cases = [
        {
            "case": name,
            **rows.row(f"{name}, {options.sets} sets", functools.partial(case, options.sets, _generator(name))),
        }
        for name, case in CASES.items()
        if name.startswith(options.only)
    ]
    result = {
        "machine": machine(),
        "sets": options.sets,
        "designs": designs,
        "cases": cases,
        "four_systems_s": full_analysis_s(3),
    }
    result["grids"] = grids(5 * options.sets, rows, options.only)
    if options.write:
        write(result)
    report(result)


if __name__ == "__main__":
    main()
