"""Effect or noise? What each axis of a sweep does to each metric, beside how much repeated takes differ."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.display import Shown
from voicelab.errors import ArgumentError
from voicelab.metrics.measure import available, note_on
from voicelab.stats.estimate import (
    Estimate,
    benjamini_hochberg,
    cliff_delta,
    holm,
    mean_delta,
    percent,
    standardised_difference,
    whole,
)
from voicelab.stats.factors import (
    Contrasts,
    Design,
    Noise,
    build,
    columns_of,
    contrasts_of,
    noise_of,
    over_texts,
    permutation_p,
    values_of,
    without_rounding,
)
from voicelab.stats.planning import t_power

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# A sweep's table has them of every take, and each test more makes the correction of the others stricter.
_ALWAYS_THERE = ("first_audio_s", "rtf")

ACTS, NOT_TOLD, TOO_FEW = "acts", "not told from noise", "too few takes to tell"
NOTHING, CONFOUNDED, NO_VARIANCE = "no difference", "not separable", "no residual variance"
VERDICTS = (ACTS, NOT_TOLD, NO_VARIANCE, TOO_FEW, CONFOUNDED, NOTHING)
"""What is said of an axis and a metric, in the order in which tables have it."""

# Where intervals reach this many sd to each side, takes are too few: two single ones would show what is found.
_FAR = 3.0
# Samples are in float32: figures measured from them agree to so much and no more.
_FLOAT32 = 1e-6
_Floats = npt.NDArray[np.float64]
_PARTS = ("estimate", "low", "high", "p", "error", "df")
_NOISE = {"sampling": "repeated takes", "residual": "takes beside what axes and blocks explain"}
# The band is thin enough to be looked through on light and dark pages.
_BAND, _EFFECT, _NOTHING = ("0.5", 0.2), "tab:blue", "0.45"


@dataclass(frozen=True, eq=False)
class Effects(Shown):
    """Effects of axes on metrics: three tidy tables, a text form and a plot.

    ``frame``: a row for each metric and axis: ``verdict`` in words, at 1 less the confidence after Holm; ``p`` of the
    hypothesis that the axis does nothing in these texts, by ``test``: "F", with one variance for all levels, where nothing
    repeats or takes are few, else "Welch", with one for each level; ``p_holm`` and ``p_bh`` corrected for all rows. Where
    texts are a block, ``p_texts`` of the hypothesis that it does nothing in texts of which these ``texts`` are a sample, and
    ``p_texts_holm``; new texts may overturn what ``p`` says. p is NaN where takes are too few, or the residual variance is 0.
    ``p_permutation`` where it was asked for. ``eta_sq`` and ``omega_sq`` the axis' share of the variance, ``levels``,
    ``takes``.

    ``contrasts``: a row for each metric, axis and level but the first: ``estimate`` is the difference from the
    first level (``baseline``) in the metric's unit, with its standard ``error`` and ``df``; ``low`` and ``high`` its
    interval, and ``p``, which is small just where that leaves out 0. ``in_sd`` is the estimate in standard deviations of the
    noise, the ``sd`` of ``variance``, and ``delta`` Cliff's: how much more often a take is above one of the baseline than
    below, each with its interval (``_low``, ``_high``). Where texts are a block, ``low_texts`` to ``high_texts``
    is the interval in texts like these, around the mean of the texts, ``estimate_texts``. They are NaN where no takes
    separate the level's difference from that of another axis or of the blocks; a note says so. Where the residual variance
    is 0, ``error`` is 0 and there is neither an interval nor p.

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

    @property
    def sorted(self) -> pd.DataFrame:
        """``frame`` with what acts first, the smallest p of these first."""
        places = self.frame["verdict"].map(VERDICTS.index)
        return self.frame.assign(place=places, by=_corrected(self.frame)).sort_values(["place", "by"], kind="stable")

    @property
    def caption(self) -> str:
        """How it was tested, in a line."""
        names = {"F": "an F test with one variance for all levels", "Welch": "Welch's test"}
        by = " or ".join(name for test, name in names.items() if test in set(self.frame["test"])) or "no test"
        count = int(_corrected(self.frame).notna().sum())
        corrected = f", after Holm over {count} tests" if count > 1 else ""
        there = " and p in texts like these; in these alone" if "p_texts" in self.frame else ";"
        return f"{percent(self.confidence)} intervals{there} p by {by}{corrected}"

    @property
    def noise(self) -> str:
        """How much each metric's takes differ anyway, in a line; "" where none do."""
        rows = self.variance[self.variance["sd"] > 0.0]
        each = [f"{metric} {sd:.3g}" for metric, sd in zip(rows["metric"], rows["sd"], strict=True)]
        repeats = (rows["source"] == "sampling").any()
        where = "between takes of one cell" if repeats else "beside what axes and blocks explain"
        return f"sd {where}: {', '.join(each)}" if each else ""

    def rows(self) -> Iterator[tuple[str, str, list[tuple[str, str]], dict[str, str], str]]:
        """Yield what people read of each metric and axis: both, what each level does, numbers by heading, the verdict."""
        tests = {"p": "p_texts_holm", "these alone": "p_holm"} if "p_texts" in self.frame else {"p": "p_holm"}
        contrasts = {key: rows.to_dict("records") for key, rows in self.contrasts.groupby(["metric", "axis"])}
        for row in self.sorted.to_dict("records"):
            does = [
                (f"{item['baseline']} → {item['level']}", _difference(item))
                for item in contrasts[row["metric"], row["axis"]]
            ]
            omega = row["omega_sq"]
            share = "–" if not math.isfinite(omega) else f"{omega:.2f}" if omega >= 0.005 else "0"
            numbers = {head: p_value(row[test]) for head, test in tests.items()} | {"omega²": share}
            yield row["metric"], row["axis"], does, numbers, row["verdict"]

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = []
        for metric, axis, does, numbers, verdict in self.rows():
            lines = lines or [("metric", "axis", "effect", "", *numbers, "")]
            head, tail = (metric, axis), (*numbers.values(), verdict)
            for level, difference in does:
                lines.append((*head, level, difference, *tail))
                head, tail = ("", ""), ("",) * len(tail)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([self.caption, *table, *filter(None, [self.noise]), *self.notes])

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
    permutations: int = 0,
    seed: int = 0,
) -> Effects:
    """Return whether each axis does anything to each metric, and how much.

    Args:
        frame: one row a take.
        axes: columns with what was varied.
        metrics: columns with what was measured. When not given, those that are named as metrics are (see
            ``voicelab.metrics``), but ``first_audio_s`` and ``rtf``, which every table of a sweep has, only
            where there is no other; or, where none is, all numeric columns but axes and blocks. Takes in
            which a metric is NaN are left out of its tests.
        blocks: columns with what else differs and is held fixed, such as the text. Several make one factor together:
            a block is the takes of one text and one seed. Where the cells of a grid share their seeds, add the seed, which
            compares like with like; without it the test is valid, but weaker. With it no cell has two takes, so that noise
            is then what differs after the block's own effect.
        texts: the block, where it is one, whose levels are a sample of all texts: what is found is given for texts like
            these first, then for these alone. "" takes them for all there are.
        confidence: of the intervals.
        permutations: how many, 99 or more, for the column ``p_permutation``, which needs no normal noise, but takes levels
            for equally spread; 0 for none.
        seed: of the permutations; each metric and axis draws from its own stream.

    The order of the rows changes nothing, but for words as levels: the first to appear is the baseline. An axis is
    tested by its main effect: one that raises a metric in one cell as much as it lowers it in another has none, and shows
    among the interactions. Metrics and axes with nothing to compare are left out, with a note.

    Raises ArgumentError for an unknown column, and where nothing can be compared: an axis with one level, fewer than two
    takes.
    """
    names, held, measured = _columns(frame, axes, blocks, metrics)
    tables = _Tables(confidence, permutations, seed)
    values = values_of(frame, measured)
    # Metrics that have values in the same takes share all that depends on the design.
    there = np.isfinite(values)
    together: dict[bytes, list[int]] = {}
    for place, column in enumerate(there.T):
        together.setdefault(column.tobytes(), []).append(place)
    for places in together.values():
        kept, own = there[:, places[0]], [measured[place] for place in places]
        if kept.sum() < 2:
            tables.left_out("metrics", f"{' and '.join(own)}: {kept.sum()} values, too few to compare")
            continue
        if not kept.all():
            missing = f"undefined for {len(frame) - kept.sum()} of {len(frame)} takes, which were left out."
            tables.notes += [f"{metric} is {missing}" for metric in own]
        design, order = build(frame[kept], names, held, texts)
        _one_design(tables, design, values[kept][:, places][order], own, names)
    tables.notes += filter(None, [note_on(frame, measured)])
    return tables.finish(measured)


def _columns(
    frame: pd.DataFrame, axes: Sequence[str] | str, blocks: Sequence[str] | str, metrics: Sequence[str] | str | None
) -> tuple[list[str], list[str], list[str]]:
    """Return the names of axes, blocks and metrics after checking them."""
    names, held = columns_of(frame, axes, "axes"), columns_of(frame, blocks, "blocks")
    if not names:
        raise ArgumentError.of("axes", "name at least one")
    if set(names) & set(held):
        raise ArgumentError.of("blocks", "a column is both axis and block")
    if metrics is None:
        numeric = [str(name) for name in frame.select_dtypes("number") if name not in {*names, *held}]
        registered = set(available())
        of_metrics = [name for name in numeric if name in registered]
        metrics = [name for name in of_metrics if name not in _ALWAYS_THERE] or of_metrics or numeric
    measured = columns_of(frame, metrics, "metrics")
    if not measured:
        raise ArgumentError.of("metrics", "there is no column with numbers besides axes and blocks")
    return names, held, measured


def p_value(value: float) -> str:
    """Return p as people write it; a dash where there is none."""
    return "–" if not math.isfinite(value) else f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def figure(value: float, scale: float = 0.0, form: str = "+.3g") -> str:
    """Return a difference as people write it; 0 is one beside which ``scale`` is a million times larger."""
    return "–" if not math.isfinite(value) else "0" if abs(value) <= _FLOAT32 * scale else f"{value:{form}}"


def _ending(contrast: Mapping[Any, Any]) -> str:
    """Return the ending of the columns that a contrast is read from: those over texts where there are some."""
    return "_texts" if math.isfinite(contrast.get("error_texts", math.nan)) else ""


def _difference(contrast: dict[Any, Any]) -> str:
    ending = _ending(contrast)
    value, low, high = (contrast[f"{part}{ending}"] for part in ("estimate", "low", "high"))
    if math.isnan(value):
        return "cannot be estimated"
    size = max(abs(low), abs(high)) if math.isfinite(low + high) else 0.0
    missing = "too few takes" if contrast[f"error{ending}"] else "no variance"
    within = f"{figure(low, size)}, {figure(high, size)}" if math.isfinite(low + high) else missing
    return f"{figure(value, size)} [{within}]"


def _corrected(frame: pd.DataFrame) -> pd.Series[float]:
    """Return the p of the verdict: over texts where they are a block."""
    over = "p_texts_holm" in frame
    return frame["p_texts_holm"].where(frame["texts"].notna(), frame["p_holm"]) if over else frame["p_holm"]


class _Tables:
    """Rows of the three tables, collected design by design."""

    def __init__(self, confidence: float, permutations: int, seed: int) -> None:
        if not 0.5 <= confidence < 1.0:
            raise ArgumentError.of("confidence", "Input should be from 0.5 to below 1")
        self.confidence = confidence
        self.permutations, self.seed = (
            whole(permutations, "permutations", 99 if permutations else 0),
            whole(seed, "seed", 0),
        )
        self.frame: list[dict[str, Any]] = []
        self.contrasts: list[dict[str, Any]] = []
        self.variance: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._refused: tuple[str, str] | None = None

    def left_out(self, argument: str, reason: str) -> None:
        """Note what cannot be compared; where nothing else can, it is what is wrong."""
        self._refused = self._refused or (argument, reason)
        self.notes.append(f"{reason}.")

    def finish(self, measured: Sequence[str]) -> Effects:
        import pandas as pd

        if not self.frame:
            raise ArgumentError.of(*(self._refused or ("metrics", "there is nothing to compare")))
        places = {name: place for place, name in enumerate(measured)}
        for part in (self.frame, self.contrasts, self.variance):
            part.sort(key=lambda row: places[row["metric"]])
        rows, contrasts, variance = map(pd.DataFrame, (self.frame, self.contrasts, self.variance))
        rows.insert(4, "p_holm", holm(rows["p"]))
        rows.insert(5, "p_bh", benjamini_hochberg(rows["p"]))
        if "p_texts" in rows:
            rows["p_texts_holm"] = holm(rows["p_texts"])
        rows.loc[_corrected(rows) <= 1.0 - self.confidence, "verdict"] = ACTS
        return Effects(rows, contrasts, variance, self.confidence, self.seed, tuple(dict.fromkeys(self.notes)))


def _one_design(tables: _Tables, design: Design, values: _Floats, metrics: Sequence[str], names: Sequence[str]) -> None:
    """Add all metrics that have values in the takes of one design."""
    noise = noise_of(design, values)
    for place, metric in enumerate(metrics):
        if not np.ptp(values[:, place]):
            tables.notes.append(f"{metric} is the same in all {design.takes} takes: there is nothing to compare.")
    tables.notes += _still(design, metrics, names, noise)
    shares = _variance(design, values, metrics, names, noise)
    tables.variance += [row for rows in shares for row in rows]
    tests: dict[int, str] = {}
    for number, axis in enumerate(names):
        present = np.unique(design.codes[number])
        if present.size < 2:
            where = " and ".join(metrics)
            tables.left_out("axes", f"{axis!r} has one level where {where} has values: nothing to compare")
            continue
        contrasts = contrasts_of(design, values, number, noise)
        tests[number] = contrasts.test
        over = over_texts(design, values, number)
        if over is None and design.texts is not None:
            alone = "no two texts have all levels, so it speaks of these texts alone."
            tables.notes += [f"{metric} by {axis}: {alone}" for metric in metrics]
        several = {"": contrasts, **({"_texts": over[1]} if over is not None else {})}
        verdicts = _contrast_rows(tables, design, values, (metrics, axis, number), several, noise)
        for place, metric in enumerate(metrics):
            part = {name: shares[place][number][name] for name in ("eta_sq", "omega_sq")}
            row = {"metric": metric, "axis": axis, "verdict": verdicts[place], "p": contrasts.p[place]}
            row |= {"test": contrasts.test, **part, "levels": present.size, "takes": design.takes}
            if verdicts[place] == NO_VARIANCE:
                equal = (
                    "its differences do not vary" if over is None else f"its difference is equal in all {over[0]} texts"
                )
                tables.notes.append(
                    f"{metric} by {axis}: {equal}, so there is no variance to test by: no p, no interval."
                )
            if over is not None:
                row |= {"p_texts": over[1].p[place], "texts": over[0]}
            if tables.permutations:
                stream = (tables.seed, zlib.crc32(str(metric).encode()), zlib.crc32(str(axis).encode()), 0)
                draw = np.random.default_rng(stream)
                row["p_permutation"] = permutation_p(design, values[:, place], number, tables.permutations, draw)
            tables.frame.append(row)
    tables.notes += _assumed(design, noise, tests, names)


def _assumed(design: Design, noise: Noise, tests: Mapping[int, str], names: Sequence[str]) -> list[str]:
    """Say what is assumed of the takes where one variance stands for all, and what more takes would free."""
    pooled = [number for number, test in tests.items() if test != "Welch"]
    if not pooled:
        return []
    cells = np.unique(design.cells).size
    levels = {number: np.unique(design.codes[number]).size for number in pooled}
    own = max(1 + math.ceil(count * (count + 2) / cells) for count in levels.values())
    if noise.df < 1:
        notes = ["One take of each level, and nothing else, tells no effect from noise."]
    elif noise.repeats:
        which = " and ".join(names[number] for number in pooled)
        notes = [
            f"{which}: of so few takes a level, levels are taken for equally spread; repeats={own} would free that."
        ]
    else:
        both = "both" if own == 2 else f"the first, repeats={own} both"
        assumed = "interactions count as sampling, and levels are taken for equally spread"
        notes = [f"No cell has two takes: {assumed}; repeats=2 would free {both}."]
    shares = [design.differences(number) for number in pooled]
    # Of texts `plan_sweep` says it; here the variance of a difference is that with one take a cell, in that of a take.
    each = [np.square(weights[estimable]).sum(axis=1).max(initial=0.0) for weights, estimable in shares]
    variance = max(each) * design.takes / cells
    if variance > 0.0 and design.texts is None:
        power = (t_power(math.sqrt(count / variance), cells * (count - 1)) for count in itertools.count(2))
        repeats = 2 + next(place for place, one in enumerate(power) if one >= 0.8)
        notes += [f"A difference of one sd is found in 4 of 5 such sweeps from repeats={repeats} on."]
    return notes


def _contrast_rows(
    tables: _Tables,
    design: Design,
    values: _Floats,
    of: tuple[Sequence[str], str, int],
    over: Mapping[str, Contrasts],
    noise: Noise,
) -> list[str]:
    """Add the contrasts of an axis, also given by its number, for each metric; ``over`` by what their columns end in.

    Returns what is said of each metric where p does not say that the axis acts.
    """
    metrics, axis, number = of
    level, (first, *others) = design.levels[number], np.unique(design.codes[number])
    parts: dict[str, _Floats] = {}
    for ending, contrasts in over.items():
        reach = contrasts.reach(tables.confidence)
        low, high = contrasts.estimate - reach, contrasts.estimate + reach
        numbers = (contrasts.estimate, low, high, contrasts.p_each, contrasts.error, contrasts.df)
        parts |= {f"{name}{ending}": value for name, value in zip(_PARTS, numbers, strict=True)}
    for row, code in enumerate(others):
        if np.isnan(parts["estimate"][row]).any():
            pair = f"{axis} {level[code]} cannot be compared with {level[first]}"
            tables.notes += [f"{pair} in {metric}: another axis or the blocks differ with it." for metric in metrics]
        deltas = _deltas(design, values, number, (int(code), int(first)), tables.confidence)
        for place, metric in enumerate(metrics):
            named = {name: float(value[row, place]) for name, value in parts.items()}
            sd, spread = float(noise.sd[place]), (named["error"], named["df"])
            size = standardised_difference(named["estimate"], *spread, sd, n=design.takes, confidence=tables.confidence)
            value, delta = named["estimate"] / sd if sd > 0.0 else math.nan, deltas[place]
            sizes = {"in_sd": value, "in_sd_low": size.low, "in_sd_high": size.high}
            sizes |= {"delta": delta.value, "delta_low": delta.low, "delta_high": delta.high}
            names = {"metric": metric, "axis": axis, "baseline": level[first], "level": level[code]}
            tables.contrasts.append({**names, **named, **sizes})
    ending, contrasts = list(over.items())[-1]
    # Of texts the spread is that of their differences.
    unit = contrasts.error * np.sqrt(contrasts.df + 1.0) if ending else noise.sd
    return [
        _otherwise(*(part[..., place] for part in (contrasts.estimate, reach, contrasts.error, unit, contrasts.p)))
        for place in range(len(metrics))
    ]


def _otherwise(estimate: _Floats, reach: _Floats, error: _Floats, unit: _Floats, p: _Floats) -> str:
    """Return the verdict on an axis that is not significant."""
    if np.isnan(estimate).all():
        return CONFOUNDED
    if not (estimate.any() or error.any()):
        return NOTHING
    if np.isnan(p) and (error == 0.0).any():
        return NO_VARIANCE
    return NOT_TOLD if (reach <= _FAR * unit).any() else TOO_FEW


def _deltas(design: Design, values: _Floats, axis: int, pair: tuple[int, int], confidence: float) -> list[Estimate]:
    """Return each metric's Cliff's delta of a level over another, of takes alike in all else: a mean over texts or strata."""
    from scipy.stats import rankdata

    strata, codes = design.strata(axis), design.codes[axis]
    groups = design.texts if design.texts is not None else strata
    deltas: dict[int, list[_Floats]] = {}
    for stratum in np.unique(strata):
        ours, theirs = (values[(strata == stratum) & (codes == code)] for code in pair)
        one, two = len(ours), len(theirs)
        if one and two:
            # Ties have the mean of their ranks, and count for neither.
            ranks = rankdata(np.concatenate((ours, theirs)), axis=0)[:one].sum(axis=0)
            delta = (2.0 * ranks - one * (one + 1)) / (one * two) - 1.0
            deltas.setdefault(int(groups[strata == stratum][0]), []).append(delta)
    if len(deltas) == 1 and strata.max() == 0 and min(one, two) > 1:
        return [cliff_delta(*both, confidence=confidence) for both in zip(ours.T, theirs.T, strict=True)]
    means = np.reshape([np.mean(own, axis=0) for own in deltas.values()], (-1, values.shape[1]))
    return [mean_delta(list(own), confidence) for own in means.T]


def _still(design: Design, metrics: Sequence[str], names: Sequence[str], noise: Noise) -> list[str]:
    """Name the levels at which repeated takes never differ, as at temperature 0, beside others at which they do."""
    if not noise.repeats:
        return []
    several = (np.bincount(design.cells) > 1)[design.cells]
    notes = []
    for number, axis in enumerate(names):
        codes = design.codes[number]
        for code in np.unique(codes[several]):
            still = ~noise.residuals[several & (codes == code)].any(axis=0) & (noise.sum_sq > 0.0)
            beginning = f"At {axis} {design.levels[number][code]} repeated takes have the same"
            notes += [
                f"{beginning} {metric}; that spread of 0 is part of the sd given."
                for metric, one in zip(metrics, still, strict=True)
                if one
            ]
    return notes


def _variance(
    design: Design, values: _Floats, metrics: Sequence[str], names: Sequence[str], noise: Noise
) -> list[list[dict[str, Any]]]:
    """Split each metric's sum of squares: each factor's is what the additive model loses without it (type II)."""
    factors = design.factors
    total = np.square(without_rounding(values - values.mean(axis=0), values)).sum(axis=0)
    left, model_df = _residual(design, values, factors)
    sources: list[tuple[str, int, _Floats]] = []
    for number, axis in enumerate(names):
        without, df = _residual(design, values, [other for other in factors if other != number])
        sources.append((axis, model_df - df, without - left))
    if len(factors) > len(names):
        without, df = _residual(design, values, range(len(names)))
        sources.append(("blocks", model_df - df, without - left))
    if noise.repeats:
        sources.append(("interactions", design.takes - noise.df - model_df, left - noise.sum_sq))
    sources.append(("sampling" if noise.repeats else "residual", noise.df, noise.sum_sq))
    rows = []
    for place, metric in enumerate(metrics):
        whole, mean_noise = total[place] or math.nan, noise.sum_sq[place] / noise.df if noise.df else math.nan
        own = []
        for source, df, several in sources:
            sum_sq = float(several[place]) if abs(several[place]) > 1e-12 * total[place] else 0.0
            shares = {"eta_sq": sum_sq / whole, "omega_sq": (sum_sq - df * mean_noise) / (whole + mean_noise)}
            own.append({"metric": metric, "source": source, "df": df, "sum_sq": sum_sq, **shares, "sd": math.nan})
        # What is left of 1 when the other shares are freed of the noise in them.
        own[-1] |= {"omega_sq": design.takes * mean_noise / (whole + mean_noise), "sd": float(noise.sd[place])}
        rows.append(own)
    return rows


def _residual(design: Design, values: _Floats, factors: Sequence[int]) -> tuple[_Floats, int]:
    model = design.dummies(factors)
    solution, _, rank, _ = np.linalg.lstsq(model, values, rcond=None)
    return np.square(values - model @ solution).sum(axis=0), int(rank)


def _draw(result: Effects, axes: Axes | None, alpha: float) -> Axes:
    corrected = [name for name in ("p_holm", "p_texts_holm") if name in result.frame]
    table = result.sorted[["metric", "axis", *corrected]].merge(result.contrasts, on=["metric", "axis"], sort=False)
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
        ending = _ending(row)
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
        + ("" if row["unit"] > 0.0 else f"\n{figure(row['estimate'])}, {noises} never differ")
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
