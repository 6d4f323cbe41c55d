"""Power by simulation: how many listeners, sentences, repeats or texts a study needs, as the analysis that is run sees it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.stats.crossed import LOGISTIC, ComparedPairs, CrossedTest, SignTest, complete_tables
from voicelab.stats.effects import Effects
from voicelab.stats.estimate import between, one_of, whole
from voicelab.stats.judgements import wilcoxon
from voicelab.stats.planning import rating_power
from voicelab.stats.reml import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_WILCOXON = 200
_HELD = 2_000_000
_Spread = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class PowerPlan:
    """The power of designs: ``frame`` has a row for each, ``power`` in its last column but those of its 95 % interval.

    ``sd`` are the standard deviations that it was worked out with, by their names; ``notes`` limits of the design.
    """

    frame: pd.DataFrame = field(repr=False)
    difference: float
    sd: dict[str, float]
    alpha: float
    notes: tuple[str, ...] = ()

    def enough(self, power: float = 0.8) -> pd.DataFrame:
        """Return the designs with at least this power, those with the fewest answers (or takes) first."""
        rows = self.frame[self.frame["power"] >= power]
        return rows.sort_values(["answers", "power"], ascending=[True, False], ignore_index=True)

    def __str__(self) -> str:
        spread = ", ".join(f"{name} {value:.3g}" for name, value in self.sd.items())
        head = f"power to find a difference of {self.difference:g} at {self.alpha:g} (sd: {spread})"
        return "\n".join([head, self.frame.to_string(index=False, float_format="{:.3g}".format), *self.notes])

    __repr__ = __str__

    def plot(self, axes: Axes | None = None, *, power: float = 0.8) -> Axes:
        """Draw power against the first number of the design, a line for each of the others; return the axes."""
        if axes is None:
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
        first, *others = list(self.frame.columns[: self.frame.columns.get_loc("answers")])
        axes.axhline(power, color="0.7", lw=0.8, ls="--")
        for key, rows in self.frame.groupby(others):
            label = ", ".join(f"{value} {name}" for value, name in zip(key, others, strict=True))
            axes.plot(rows[first], rows["power"], "o-", label=label)
            axes.fill_between(rows[first], rows["low"], rows["high"], alpha=0.15, lw=0)
        axes.set(xlabel=first, ylabel=f"power at {self.alpha:g}", ylim=(0.0, 1.02))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
        return axes


def plan_test(
    kind: Literal["MOS", "CMOS", "MUSHRA", "AB", "ABX"],
    difference: float,
    *,
    listeners: Sequence[int] = (6, 12, 18, 24, 36),
    items: Sequence[int] = (6, 12, 24),
    repeats: Sequence[int] = (1,),
    sd: _Spread | None = None,
    pilot: ComparedPairs | None = None,
    systems: int = 2,
    margin: float | None = None,
    alpha: float = 0.05,
    simulations: int = 1000,
    seed: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> PowerPlan:
    """Return how likely ``analyze()`` finds a difference between two systems, for each combination of numbers.

    By simulated studies in which listeners and items are random, each analyzed by crossed random effects; ``wilcoxon``
    beside it is the power of the test of these sentences alone.

    Args:
        kind: of listening test.
        difference: in points of the scale; of choices the share that prefers the first (or is right), such as 0.6.
        listeners: numbers of listeners to try.
        items: numbers of sentences to try.
        repeats: how often each listener answers the same question.
        sd: of what listeners, and what items, lean to one of the two, and of single answers (differences of ratings; in
            the scale's points); of choices on the scale of logits, where the last does not count. A pilot
            says them best; without one, try several.
        pilot: a result of ``analyze`` to take ``sd`` from: the mean over its pairs.
        systems: in the test; the p-values of all pairs are corrected by Holm, of which the first step counts here.
        margin: find instead that the systems are equivalent within it, where they differ by ``difference``.
        alpha: level of the test.
        simulations: studies for each combination.
        seed: of the simulation.
        progress: wraps what is gone through: ``vl.progress`` shows a bar.

    Raises ArgumentError.
    """
    import pandas as pd

    one_of(kind, "kind", ("MOS", "CMOS", "MUSHRA", "AB", "ABX"))
    chosen = kind in {"AB", "ABX"}
    if chosen:
        between(difference, "difference", 0.0, 1.0)
    between(alpha, "alpha", 0.0, 0.5)
    whole(simulations, "simulations", 100)
    spread = _spread(sd, pilot)
    tests = math.comb(whole(systems, "systems", 2), 2)
    combinations = progress(list(itertools.product(listeners, items, repeats)))
    study = (kind, difference, spread, margin, alpha / tests)
    rows = [_power(study, numbers, simulations, seed) for numbers in combinations]
    named = dict(zip(("listeners", "items", "answers"), spread, strict=True))
    needed = math.ceil(1.0 - math.log2(alpha / tests))
    limit = f"With fewer than {needed} listeners or items unanimous choices are not significant: see sign_test."
    limited = kind == "AB" and margin is None and min(*listeners, *items) < needed
    return PowerPlan(pd.DataFrame(rows), difference, named, alpha, (limit,) if limited else ())


def _power(
    study: tuple[str, float, _Spread, float | None, float], numbers: tuple[int, int, int], simulations: int, seed: int
) -> dict[str, float]:
    """Return the row of a plan for these numbers of listeners, items and repeats."""
    kind, difference, spread, margin, level = study
    who, what, times = numbers
    for name, count, least in (("listeners", who, 2), ("items", what, 2), ("repeats", times, 1)):
        whole(count, name, least)
    rng, chosen = np.random.default_rng((seed, *numbers)), kind in {"AB", "ABX"}
    size = max(1, min(simulations, _HELD // (who * what)))
    tables = [
        _studies(chosen, difference, spread, (min(size, simulations - begin), *numbers), rng)
        for begin in range(0, simulations, size)
    ]
    power = float(np.concatenate([_hits(kind, table, margin, level) for table in tables]).mean())
    reach = 1.96 * math.sqrt(max(power * (1.0 - power), 1.0 / simulations) / simulations)
    row = {"listeners": who, "items": what, "repeats": times, "answers": who * what * times, "power": power}
    row |= {"low": max(0.0, power - reach), "high": min(1.0, power + reach)}
    if margin is None and kind != "ABX":
        null = np.full(who, 0.5 if chosen else 0.0)
        means = tables[0][:_WILCOXON].mean(axis=2)
        row["wilcoxon"] = float(np.mean([wilcoxon(own, null).p <= level for own in means]))
    return row


def _spread(sd: _Spread | None, pilot: ComparedPairs | CrossedTest | None) -> _Spread:
    if (sd is None) == (pilot is None):
        raise ArgumentError.of("sd", "give either the standard deviations or a pilot")
    if pilot is not None:
        given = [pilot] if isinstance(pilot, CrossedTest) else pilot.crossed.values()
        tests = [test for test in given if not isinstance(test, SignTest)]
        if not tests:
            raise ArgumentError.of("pilot", "it has no analysis by listeners and sentences to take them from")
        one, two, three = np.sqrt(np.mean(np.square([test.sd for test in tests]), axis=0))
        return float(one), float(two), float(three)
    if sd is None or not all(math.isfinite(own) and own >= 0.0 for own in sd):
        raise ArgumentError.of("sd", "Input should be three numbers from 0: of listeners, items and answers")
    return sd


def _studies(
    chosen: bool, difference: float, spread: _Spread, shape: tuple[int, int, int, int], rng: np.random.Generator
) -> Floats:
    """Return studies, (studies, listeners, items): each cell the mean of its repeated answers."""
    count, who, what, times = shape
    leans = rng.normal(0, spread[0], (count, who, 1)) + rng.normal(0, spread[1], (count, 1, what))
    if not chosen:
        noise: Floats = rng.normal(0, spread[2] / math.sqrt(times), (count, who, what))
        return difference + leans + noise
    # The logit whose share over all listeners and items is the one asked for.
    widening = math.sqrt(1.0 + LOGISTIC**2 * (spread[0] ** 2 + spread[1] ** 2))
    chance = 1.0 / (1.0 + np.exp(-(math.log(difference / (1.0 - difference)) * widening + leans)))
    return rng.binomial(times, chance) / times


def _hits(kind: str, tables: Floats, margin: float | None, alpha: float) -> Floats:
    """Return in which studies the analysis finds what it looks for."""
    from scipy.stats import t

    chosen = kind in {"AB", "ABX"}
    mean, error, df, _ = complete_tables(tables)
    away = mean - (0.5 if chosen else 0.0)
    error = np.where(error > 1e-12 * np.abs(mean), error, np.nan)
    if margin is not None:
        above = (away + margin) / error if kind != "ABX" else np.full_like(away, np.inf)
        p = np.maximum(t.sf(above, df), t.sf((margin - away) / error, df))
    else:
        p = t.sf(away / error, df) if kind == "ABX" else 2.0 * t.sf(np.abs(away) / error, df)
        # Without variance `analyze` makes an exact test: `sign_test`.
        signs = 0.5 ** tables[0].size if kind == "ABX" else 2.0 * 0.5 ** min(tables.shape[1:])
        p = np.where(np.isnan(error) & (away > 0.0 if kind == "ABX" else away != 0.0), signs, p)
    return np.asarray(p <= alpha, np.float64)


def plan_sweep(
    difference: float,
    *,
    texts: Sequence[int] = (3, 6, 12, 24),
    repeats: Sequence[int] = (1, 2, 4, 8),
    sd: tuple[float, float] | None = None,
    pilot: Effects | None = None,
    metric: str | None = None,
    tests: int = 1,
    alpha: float = 0.05,
) -> PowerPlan:
    """Return how likely ``effects()`` finds a difference between two levels in texts like these, for numbers of both.

    Args:
        difference: in the metric's unit.
        texts: numbers of texts to try; of one text it is the test of that text alone.
        repeats: numbers of takes of each level on each text to try.
        sd: of how much the difference depends on the text, and of repeated takes.
        pilot: a result of ``effects`` with texts for a block to take ``sd`` from.
        metric: of the pilot; when not given, its first.
        tests: metrics times axes that are tested; p-values are corrected by Holm, of which the first step counts here.
        alpha: level of the test.

    Exact, by the noncentral t distribution. Raises ArgumentError.
    """
    import pandas as pd

    if (sd is None) == (pilot is None):
        raise ArgumentError.of("sd", "give either the standard deviations or a pilot")
    lead, noise = sd if sd is not None else _of_pilot(pilot, metric)  # type: ignore[arg-type]
    rows = []
    for count, times in itertools.product(texts, repeats):
        level = alpha / whole(tests, "tests", 1)
        if whole(count, "texts", 1) > 1:
            spread = math.sqrt(lead**2 + 2.0 * noise**2 / whole(times, "repeats", 1))
            power = rating_power(count, difference, spread, alpha=level)
        else:  # one take of each tells nothing
            power = rating_power(times, difference, noise, paired=False, alpha=level) if times > 1 else 0.0
        numbers = {"texts": count, "repeats": times, "answers": 2 * count * times}
        rows.append({**numbers, "power": power, "low": power, "high": power})
    return PowerPlan(pd.DataFrame(rows), difference, {"texts": lead, "takes": noise}, alpha)


def _of_pilot(pilot: Effects, metric: str | None) -> tuple[float, float]:
    """Return how much a level's difference depends on the text, and the noise of takes, in an earlier sweep."""
    contrasts, variance = pilot.contrasts, pilot.variance
    metric = metric if metric is not None else str(contrasts["metric"].iloc[0])
    own = contrasts[contrasts["metric"] == metric]
    if "error_texts" not in own or own.empty or not np.isfinite(own["error_texts"]).any():
        raise ArgumentError.of("pilot", f"it has no texts for a block, or not in {metric!r}")
    noise = variance[(variance["metric"] == metric) & variance["source"].isin(["sampling", "residual"])]["sd"].iloc[0]
    count = own["df_texts"] + 1.0
    # The error over texts has the takes' noise in it, as Welch's error in these texts alone says how much.
    between_texts = np.square(own["error_texts"]) * count - np.square(own["error"]) * count
    return math.sqrt(max(0.0, float(between_texts.mean()))), float(noise)
