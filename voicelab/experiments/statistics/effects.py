"""Effect or noise? What each axis of a sweep does to each metric, beside how much repeated takes differ."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.display import Shown
from voicelab.errors import ArgumentError
from voicelab.experiments.metrics.measure import available
from voicelab.experiments.statistics.estimate import (
    Estimate,
    benjamini_hochberg,
    cliff_delta,
    holm,
    mean_delta,
    percent,
    standardised_difference,
    whole,
)
from voicelab.experiments.statistics.factors import (
    Contrasts,
    Design,
    Noise,
    build,
    columns_of,
    noise_of,
    over_texts,
    permutation_p,
    welch_contrasts,
    without_rounding,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# A sweep's table has them of every take, and each test more makes the correction of the others stricter.
_ALWAYS_THERE = ("first_audio_s", "rtf")

_PARTS = ("estimate", "low", "high", "p", "error", "df")
_NOISE = {"sampling": "repeated takes", "residual": "takes beside what axes and blocks explain"}
# The band is thin enough to be looked through on light and dark pages.
_BAND, _EFFECT, _NOTHING = ("0.5", 0.2), "tab:blue", "0.45"


@dataclass(frozen=True, eq=False)
class Effects(Shown):
    """Effects of axes on metrics: three tidy tables, a text form and a plot.

    ``frame``: a row for each metric and axis. Where texts are a block, ``p_texts`` of the hypothesis that the axis does
    nothing in texts of which these ``texts`` are a sample, and ``p_texts_holm`` corrected for all rows; ``p`` speaks of
    these texts alone, and new ones may overturn it: B. L. Welch's test, which takes levels of any number of takes and any
    spread; ``p_holm`` and ``p_bh`` corrected for all rows. ``p_permutation`` beside it needs no normal noise, but takes
    levels for equally spread. ``eta_sq`` and ``omega_sq`` the axis' share of the variance, ``levels``, ``takes``.

    ``contrasts``: a row for each metric, axis and level but the first: ``estimate`` is the difference from the
    first level (``baseline``) in the metric's unit, with its standard ``error`` and ``df``; ``low`` and ``high`` its
    interval, and ``p``, which is small just where that leaves out 0. ``in_sd`` is the estimate in standard deviations of the
    noise, the ``sd`` of ``variance``, and ``delta`` Cliff's: how much more often a take is above one of the baseline than
    below, each with its interval (``_low``, ``_high``). Where texts are a block, ``low_texts`` to ``high_texts``
    is the interval in texts like these, around the mean of the texts, ``estimate_texts``. They are NaN where no takes
    separate the level's difference from that of another axis or of the blocks; a note says so.

    ``variance``: where each metric's variance comes from: a row for each axis, ``blocks``, ``interactions`` and
    ``sampling`` (repeats of one cell), with ``df``, ``sum_sq``, ``eta_sq`` and ``omega_sq``; ``sd`` of sampling in
    the metric's unit. Where no cell has two takes, as with the seed for a block, ``residual`` stands in place of the
    last two: what axes and blocks leave over. The shares sum to 1 when all cells have equally many takes.

    ``notes`` are sentences on what the reader should know.
    """

    frame: pd.DataFrame = field(repr=False)
    contrasts: pd.DataFrame = field(repr=False)
    variance: pd.DataFrame = field(repr=False)
    confidence: float
    seed: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        tests = len(self.frame)
        lines = [f"{percent(self.confidence)} intervals; p by Welch's test, corrected by Holm over {tests} tests"]
        contrasts = self.contrasts.to_dict("records")
        for row in self.frame.to_dict("records"):
            name, axis = row["metric"], row["axis"]
            share = f"omega² {row['omega_sq']:.2f}" if math.isfinite(row["omega_sq"]) else "share unknown"
            here = f"p {_p(row['p'])}, corrected {_p(row['p_holm'])}" if math.isfinite(row["p"]) else "no p"
            if math.isfinite(row.get("p_texts", math.nan)):
                there = f"p {_p(row['p_texts'])}, corrected {_p(row['p_texts_holm'])}"
                lines.append(f"{name} by {axis}: in texts like these {there}; in these alone {here}; {share}")
            else:
                lines.append(f"{name} by {axis}: {here}; {share}")
            lines += [
                f"    {item['baseline']} → {item['level']}: {_difference(item)}"
                for item in contrasts
                if (item["metric"], item["axis"]) == (name, axis)
            ]
        where = {"sampling": "between takes of one cell", "residual": "beside what axes and blocks explain"}
        lines += [
            f"{row['metric']} varies by {row['sd']:.4g} (sd) {where[row['source']]}, {row['eta_sq']:.0%} of its variance"
            for row in self.variance.to_dict("records")
            if row["source"] in where and math.isfinite(row["eta_sq"])
        ]
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def plot(self, axes: Axes | None = None, *, alpha: float = 0.05) -> Axes:
        """Draw every contrast with its interval, in standard deviations of the noise; return the axes.

        Where texts are a block it is the interval in texts like these, and that in these alone lies wide and pale behind it.

        The band is one standard deviation to each side: how far takes of one cell differ anyway, or, where no cell has
        two, what axes and blocks leave over; its label says which. Filled marks are contrasts whose own interval
        leaves out 0, of effects whose p, corrected by Holm, is at most ``alpha``. ``axes`` is where to draw, a new
        figure when not given.
        """
        return _draw(self, axes, alpha)


def effects(
    frame: pd.DataFrame,
    axes: Sequence[str] | str,
    metrics: Sequence[str] | str | None = None,
    *,
    blocks: Sequence[str] | str = (),
    texts: str = "text",
    confidence: float = 0.95,
    permutations: int = 4999,
    seed: int = 0,
) -> Effects:
    """Return whether each axis does anything to each metric, and how much.

    Args:
        frame: one row a take.
        axes: columns with what was varied.
        metrics: columns with what was measured. When not given, those that are named as metrics are (see
            ``voicelab.experiments.metrics``), but ``first_audio_s`` and ``rtf``, which every table of a sweep has, asked
            for or not, only where there is no other; or, where none is, all numeric columns but axes and blocks. Takes in
            which a metric is NaN are left out of its tests.
        blocks: columns with what else differs and is held fixed, such as the text. Several make one factor together:
            a block is the takes of one text and one seed. Where the cells of a grid share
            their seeds, add the seed, which compares like with like; without it the test is valid, but weaker. With it
            no cell has two takes, so that noise is then what differs after the block's own effect.
        texts: the block, where it is one, whose levels are a sample of all texts: what is found is given for texts like
            these first, then for these alone. "" takes them for all there are.
        confidence: of the intervals.
        permutations: how many, for ``p_permutation``, a multiple of 1 / (permutations + 1).
        seed: of the permutations; each metric and axis draws from its own stream, so that adding another changes
            nothing.

    The order of the rows changes nothing, but for words as levels: the first to appear is the baseline. An axis is
    tested by its main effect: one that raises a metric in one cell as much as it lowers it in another
    has none, and shows among the interactions. With no repeats the interactions are taken for noise, and a note
    says so.

    Raises ArgumentError for an unknown column, an axis with one level, or fewer than two takes.
    """
    names = columns_of(frame, axes, "axes")
    held = columns_of(frame, blocks, "blocks")
    if not names:
        raise ArgumentError.of("axes", "name at least one")
    if set(names) & set(held):
        raise ArgumentError.of("blocks", "a column is both axis and block")
    if metrics is None:
        metrics = _measured_columns(frame, {*names, *held})
    measured = columns_of(frame, metrics, "metrics")
    if not measured:
        raise ArgumentError.of("metrics", "there is no column with numbers besides axes and blocks")
    _check_numbers(confidence, permutations, seed)
    tables = _Tables()
    for metric in measured:
        design = build(frame, names, held, metric, texts)
        missing = len(frame) - design.values.size
        if missing:
            tables.notes.append(f"{metric} is undefined for {missing} of {len(frame)} takes, which were left out.")
        _one_metric(tables, design, metric, names, (confidence, permutations, seed))
    return tables.finish(confidence, seed)


def _measured_columns(frame: pd.DataFrame, others: set[str]) -> list[str]:
    numeric = [str(name) for name in frame.select_dtypes("number") if name not in others]
    registered = set(available())
    metrics = [name for name in numeric if name in registered]
    return [name for name in metrics if name not in _ALWAYS_THERE] or metrics or numeric


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def _difference(contrast: dict[Any, Any]) -> str:
    if math.isnan(contrast["estimate"]):
        return "cannot be estimated"
    sure = math.isfinite(contrast["low"]) and math.isfinite(contrast["high"])
    within = f"{contrast['low']:+.4g}, {contrast['high']:+.4g}" if sure else "too few takes for an interval"
    here = f"{contrast['estimate']:+.4g} [{within}]"
    if math.isnan(contrast.get("low_texts", math.nan)):
        return here
    there = f"{contrast['estimate_texts']:+.4g} [{contrast['low_texts']:+.4g}, {contrast['high_texts']:+.4g}]"
    return f"{there} in texts like these; {here} in these alone"


def _check_numbers(confidence: float, permutations: int, seed: int) -> None:
    if not 0.5 <= confidence < 1.0:
        raise ArgumentError.of("confidence", "Input should be from 0.5 to below 1")
    whole(permutations, "permutations", 99)
    whole(seed, "seed", 0)


class _Tables:
    """Rows of the three tables, collected metric by metric."""

    def __init__(self) -> None:
        self.frame: list[dict[str, Any]] = []
        self.contrasts: list[dict[str, Any]] = []
        self.variance: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def finish(self, confidence: float, seed: int) -> Effects:
        import pandas as pd

        frame = pd.DataFrame(self.frame)
        frame.insert(3, "p_holm", holm(frame["p"]))
        frame.insert(4, "p_bh", benjamini_hochberg(frame["p"]))
        columns = ["metric", "axis", "baseline", "level", *_PARTS]
        columns += [f"{name}{end}" for name in ("in_sd", "delta") for end in ("", "_low", "_high")]
        if "p_texts" in frame:
            frame["p_texts_holm"] = holm(frame["p_texts"])
            columns += [f"{part}_texts" for part in _PARTS]
        contrasts = pd.DataFrame(self.contrasts, columns=columns)
        notes = tuple(dict.fromkeys(self.notes))
        return Effects(frame, contrasts, pd.DataFrame(self.variance), confidence, seed, notes)


def _one_metric(
    tables: _Tables, design: Design, metric: str, names: Sequence[str], how: tuple[float, int, int]
) -> None:
    confidence, permutations, seed = how
    if design.values.size < 2:
        raise ArgumentError.of("metrics", f"{metric!r} has {design.values.size} values, too few to compare")
    noise = noise_of(design)
    if not noise.repeats:
        tables.notes.append(
            "No cell has two takes: interactions cannot be separated from sampling, and count as sampling."
        )
    tables.notes += _still(design, metric, names, noise)
    if float(np.ptp(design.values)) == 0.0:
        tables.notes.append(f"{metric} is the same in all {design.values.size} takes: there is nothing to compare.")
    shares = _variance(design, metric, names, noise)
    tables.variance += shares
    for number, axis in enumerate(names):
        present = np.unique(design.codes[number])
        if present.size < 2:
            raise ArgumentError.of("axes", f"{axis!r} has one level where {metric!r} has values: nothing to compare")
        stream = (seed, zlib.crc32(str(metric).encode()), zlib.crc32(str(axis).encode()))
        contrasts = welch_contrasts(design, number, noise)
        p = contrasts.p if np.ptp(design.values) else 1.0
        permuted = permutation_p(design, number, permutations, np.random.default_rng((*stream, 0)))
        texts = over_texts(design, number)
        if texts is None and design.texts is not None:
            tables.notes.append(f"{metric} by {axis}: no two texts have all levels, so it speaks of these texts alone.")
        tables.frame.append(
            {
                "metric": metric,
                "axis": axis,
                "p": p,
                "p_permutation": permuted,
                "eta_sq": shares[number]["eta_sq"],
                "omega_sq": shares[number]["omega_sq"],
                "levels": present.size,
                "takes": design.values.size,
                **({"p_texts": texts.contrasts.p, "texts": texts.count} if texts is not None else {}),
            }
        )
        if (p <= 0.05) != (permuted <= 0.05) and math.isfinite(p):
            tables.notes.append(
                f"{metric} by {axis}: p is {_p(p)} by Welch's test and {_p(permuted)} by permutation, which takes levels for "
                f"equally spread{_unequal(design, number, noise)}."
            )
        over = {"": contrasts, **({"_texts": texts.contrasts} if texts is not None else {})}
        _contrast_rows(tables, design, (metric, axis, number), over, noise, confidence)


def _unequal(design: Design, axis: int, noise: Noise) -> str:
    """Say how levels differ in their numbers of takes and in their spread, if they do."""
    _, level, takes = np.unique(design.codes[axis], return_inverse=True, return_counts=True)
    spread = np.sqrt(np.bincount(level, np.square(noise.residuals)) / takes)
    if takes.min() == takes.max() or spread.max() < 1.5 * spread.min():
        return "; with few takes the larger is the safer"
    return f"; these have {takes.min()} to {takes.max()} takes, and sd from {spread.min():.3g} to {spread.max():.3g}"


def _contrast_rows(
    tables: _Tables,
    design: Design,
    of: tuple[str, str, int],
    over: Mapping[str, Contrasts],
    noise: Noise,
    confidence: float,
) -> None:
    """Add the contrasts of a metric and an axis, the axis also by its number; ``over`` by what their columns end in."""
    metric, axis, number = of
    level, (first, *others) = design.levels[number], np.unique(design.codes[number])
    constant = float(np.ptp(design.values)) == 0.0
    parts: dict[str, npt.NDArray[np.float64]] = {}
    for ending, contrasts in over.items():
        low, high = contrasts.interval(confidence)
        values = (contrasts.estimate, low, high, contrasts.p_each, contrasts.error, contrasts.df)
        parts |= {f"{name}{ending}": value for name, value in zip(_PARTS, values, strict=True)}
    for row, code in enumerate(others):
        named = {name: float(value[row]) for name, value in parts.items()}
        if math.isnan(named["estimate"]):
            tables.notes.append(
                f"{axis} {level[code]} cannot be compared with {level[first]} in {metric}: "
                "another axis or the blocks differ with it."
            )
        elif constant:  # means of equal numbers differ by their rounding
            named = {name: float(name.startswith("p")) for name in named}
        size = standardised_difference(
            named["estimate"], named["error"], named["df"], noise.sd, n=design.values.size, confidence=confidence
        )
        value = named["estimate"] / noise.sd if noise.sd > 0.0 else math.nan
        delta = _delta(design, number, (int(code), int(first)), confidence)
        sizes = {"in_sd": value, "in_sd_low": size.low, "in_sd_high": size.high}
        sizes |= {"delta": delta.value, "delta_low": delta.low, "delta_high": delta.high}
        names = {"metric": metric, "axis": axis, "baseline": level[first], "level": level[code]}
        tables.contrasts.append({**names, **named, **sizes})


def _delta(design: Design, axis: int, pair: tuple[int, int], confidence: float) -> Estimate:
    """Return Cliff's delta of a level over another, of takes that are alike in all else, averaged over texts or strata."""
    strata, codes = design.strata(axis), design.codes[axis]
    groups = design.texts if design.texts is not None else strata
    deltas: dict[int, list[float]] = {}
    for stratum in np.unique(strata):
        ours, theirs = (design.values[(strata == stratum) & (codes == code)] for code in pair)
        if ours.size and theirs.size:
            delta = float(np.sign(ours[:, None] - theirs[None]).mean())
            deltas.setdefault(int(groups[strata == stratum][0]), []).append(delta)
    if len(deltas) == 1 and strata.max() == 0 and min(ours.size, theirs.size) > 1:
        return cliff_delta(ours, theirs, confidence=confidence)
    return mean_delta([sum(own) / len(own) for own in deltas.values()], confidence)


def _still(design: Design, metric: str, names: Sequence[str], noise: Noise) -> list[str]:
    """Name the levels at which repeated takes never differ, as at temperature 0, beside others at which they do."""
    if not (noise.repeats and noise.sum_sq > 0.0):
        return []
    cells = design.cells
    several = (np.bincount(cells) > 1)[cells]
    notes = []
    for number, axis in enumerate(names):
        codes = design.codes[number]
        for code in np.unique(codes[several]):
            if not noise.residuals[several & (codes == code)].any():
                level = design.levels[number][code]
                notes.append(
                    f"At {axis} {level} repeated takes have the same {metric}; that spread of 0 is part of the sd given."
                )
    return notes


def _variance(design: Design, metric: str, names: Sequence[str], noise: Noise) -> list[dict[str, Any]]:
    """Split the sum of squares: each factor's is what the additive model loses without it (type II)."""
    factors = design.factors
    total = float(np.square(without_rounding(design.values - design.values.mean(), design.values)).sum())
    left, model_df = _residual(design, factors)
    mean_noise = noise.sum_sq / noise.df if noise.df > 0 else math.nan

    def row(source: str, df: int, sum_sq: float) -> dict[str, Any]:
        varies = total > 0.0
        return {
            "metric": metric,
            "source": source,
            "df": df,
            "sum_sq": sum_sq,
            "eta_sq": sum_sq / total if varies else math.nan,
            "omega_sq": (sum_sq - df * mean_noise) / (total + mean_noise) if varies else math.nan,
            "sd": math.nan,
        }

    rows = []
    for number, axis in enumerate(names):
        without, df = _residual(design, [other for other in factors if other != number])
        rows.append(row(axis, model_df - df, without - left))
    if len(factors) > len(names):
        without, df = _residual(design, range(len(names)))
        rows.append(row("blocks", model_df - df, without - left))
    if noise.repeats:
        rows.append(row("interactions", design.values.size - noise.df - model_df, left - noise.sum_sq))
    sampling = row("sampling" if noise.repeats else "residual", noise.df, noise.sum_sq)
    # What is left of 1 when the other shares are freed of the noise in them.
    sampling["omega_sq"] = design.values.size * mean_noise / (total + mean_noise) if total > 0.0 else math.nan
    sampling["sd"] = noise.sd
    return [*rows, sampling]


def _residual(design: Design, factors: Sequence[int]) -> tuple[float, int]:
    model = design.dummies(factors)
    solution, _, rank, _ = np.linalg.lstsq(model, design.values, rcond=None)
    return float(np.square(design.values - model @ solution).sum()), int(rank)


def _draw(result: Effects, axes: Axes | None, alpha: float) -> Axes:
    corrected = [name for name in ("p_holm", "p_texts_holm") if name in result.frame]
    table = result.contrasts.merge(result.frame[["metric", "axis", *corrected]], on=["metric", "axis"], sort=False)
    noise = result.variance[result.variance.source.isin(list(_NOISE))]
    spread = noise.set_index("metric")["sd"]
    noises = " or ".join(_NOISE[source] for source in noise.source.unique())
    table = table.assign(unit=table.metric.map(spread))
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(7.0, 1.2 + 0.35 * len(table)), layout="constrained")
    axes.axvspan(-1.0, 1.0, color=_BAND, lw=0, label=f"±1 sd of {noises}")
    axes.axvline(0.0, color=_NOTHING, lw=0.8)
    for place, row in enumerate(table.to_dict("records")):
        if not row["unit"] > 0.0:
            continue
        ending = "_texts" if math.isfinite(row.get("low_texts", math.nan)) else ""
        low, middle, high = np.array([row[f"{part}{ending}"] for part in ("low", "estimate", "high")]) / row["unit"]
        # An axis may do something while this level does not.
        sure = row[f"p{ending}_holm"] <= alpha and (low > 0.0 or high < 0.0)
        color = _EFFECT if sure else _NOTHING
        if ending:
            own = np.array([row["low"], row["high"]]) / row["unit"]
            axes.plot(own, [place, place], color=color, lw=5.0, alpha=0.25, solid_capstyle="butt")
        axes.plot([low, high], [place, place], color=color, lw=1.5, solid_capstyle="butt")
        axes.plot(middle, place, "o", color=color, mfc=color if sure else "white")
    names = [
        f"{row['metric']} · {row['axis']} {row['baseline']} → {row['level']}"
        + ("\ncannot be estimated" if np.isnan(row["estimate"]) else "")
        + ("" if row["unit"] > 0.0 else f"\n{row['estimate']:+.3g}, {noises} never differ")
        for row in table.to_dict("records")
    ]
    over = ", in texts like these (wide: in these alone)" if "low_texts" in table else ""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(
        f"difference in sd of {noises}, {percent(result.confidence)} interval{over}\n"
        f"filled: the interval leaves out 0, and p ≤ {alpha:g}, corrected by Holm"
    )
    # Above the axes: inside, it would lie on an interval.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, frameon=False, fontsize="small")
    return axes
