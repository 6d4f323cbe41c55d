"""Effects of sweep axes on metrics, tested against the variance of repeated takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from voicelab.display import Shown, note_on
from voicelab.errors import ArgumentError
from voicelab.stats.diagnostics import (
    interaction_sentence,
    interactions_of,
    missing_notes,
    outlier_notes,
    outliers_of,
    small_level_notes,
    unnamed_columns,
)
from voicelab.stats.estimate import (
    Estimate,
    benjamini_hochberg,
    cliff_delta,
    holm,
    mean_delta,
    percent,
    standardized_difference,
)
from voicelab.stats.factors import (
    Contrasts,
    Design,
    Noise,
    build,
    cell_medians,
    columns_of,
    contrasts_of,
    exchanged_p,
    noise_of,
    over_texts,
    text_profiles,
    values_of,
    without_rounding,
)
from voicelab.stats.planning import t_power

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIGNIFICANT, NOT_SIGNIFICANT, UNDERPOWERED = "significant", "not significant", "underpowered"
NO_DIFFERENCE, CONFOUNDED, NO_VARIANCE = "no difference", "confounded", "no residual variance"
VERDICTS = (SIGNIFICANT, NOT_SIGNIFICANT, NO_VARIANCE, UNDERPOWERED, CONFOUNDED, NO_DIFFERENCE)
"""Verdicts on an axis and a metric, in table order."""

# A test whose interval has a half width above this many SDs is underpowered; two single takes would reach it.
_MAX_HALF_WIDTH_SD = 3.0
# Samples are float32, so metrics agree to this relative precision only.
_FLOAT32_PRECISION = 1e-6
_Floats = npt.NDArray[np.float64]
_INTERACTION_COLUMNS = ["metric", "axis", "other", "p", "test", "eta_sq", "baseline", "level", "low_at", "low"]
_INTERACTION_COLUMNS += ["high_at", "high", "without_noise"]
_OUTLIER_COLUMNS = ["metric", "row", "value", "expected", "z"]
_CONTRAST_COLUMNS = ("estimate", "low", "high", "p", "error", "df")
_NOISE = {"sampling": "repeated takes", "residual": "the additive model's residuals"}
# The band is translucent, for light and dark pages.
_BAND, _SIGNIFICANT_COLOR, _NEUTRAL_COLOR = ("0.5", 0.2), "tab:blue", "0.45"


@dataclass(frozen=True, eq=False)
class Effects(Shown):
    """Effects of axes on metrics: tidy tables, a text form and a plot.

    ``frame``: a row per metric and axis. ``verdict`` is the result of the test at a level of 1 - ``confidence`` after Holm's
    correction. ``p`` is the p-value of the null hypothesis that no level differs from the first in these texts. ``test`` is
    "pooled" (one variance for all levels) if there are no repeats or few takes, otherwise "Welch" (one variance per level).
    ``p_holm`` and ``p_bh`` are corrected over all rows. Where texts are a block, ``p_texts`` treats the texts (``texts`` is
    their number) as a random sample, and ``p_texts_holm`` is corrected. p is NaN if there are too few takes, and is from a
    permutation test if the residual variance is 0. With ``robust``, ``p_robust`` is from a permutation test of ranks, and
    ``p_robust_holm`` is corrected. ``eta_sq`` and ``omega_sq`` are the proportion of variance explained by the axis.
    ``depends_on`` names the axes whose interaction with this axis is significant. ``levels`` and ``takes`` are counts.

    ``contrasts``: a row per metric, axis and level other than the first. ``estimate`` is the difference from the first level
    (``baseline``) in the metric's unit, with its standard error ``error`` and its degrees of freedom ``df``. The intervals
    (``low``, ``high``) and ``p`` are simultaneous over the levels of the axis: at least one interval excludes 0 if and only
    if the axis' p is at most 1 - ``confidence``. ``in_sd`` is the estimate in units of the residual ``sd`` of ``variance``,
    and ``delta`` is Cliff's delta against the baseline, each with its interval (``_low``, ``_high``). Where texts are a
    block, the columns ``estimate_texts`` to ``df_texts`` treat texts as random. ``mode`` is the median of the differences of
    ``units`` texts, ``differing`` the number of texts with another difference, and ``largest`` their largest distance from
    ``mode``; if texts are fixed, these columns describe values of takes. Estimates are NaN if the level is confounded with
    another axis or the blocks; a note then reports it. If the residual variance is 0, ``error`` is 0, and the interval and p
    are NaN.

    ``variance``: the decomposition of each metric's variance. Its rows are the axes, ``blocks``, ``interactions`` and
    ``sampling`` (repeats within a cell), with ``df``, ``sum_sq``, ``eta_sq``, ``omega_sq`` and, for sampling, ``sd`` in
    the metric's unit. If no cell is repeated, as when the seed is a block, the row ``residual`` replaces
    ``interactions`` and ``sampling``. The shares of a balanced design sum to 1.

    ``interactions``: a row per metric and pair of axes that have takes at all combinations, with ``p``, its ``test``,
    ``p_holm`` (corrected over all interactions) and ``eta_sq``. The difference of ``level`` from ``baseline`` is smallest
    at level ``low_at`` of the ``other`` axis, where it is ``low``, and greatest at ``high_at``, where it is ``high``. If an
    interaction is significant, main effects are averages over the other axis.

    ``outliers``: a row per metric and take that lies more than 6 robust SDs from its ``expected`` value. ``z`` is the
    distance in robust SDs, and ``row`` the take's label. Outliers are not excluded.

    ``notes`` are sentences on assumptions and exclusions. ``mixed`` are the settings that vary within the cells, because they
    are neither axes nor blocks, so that the residual SD includes their differences.
    """

    frame: pd.DataFrame = field(repr=False)
    contrasts: pd.DataFrame = field(repr=False)
    variance: pd.DataFrame = field(repr=False)
    interactions: pd.DataFrame = field(repr=False)
    outliers: pd.DataFrame = field(repr=False)
    confidence: float
    notes: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()

    @property
    def sorted(self) -> pd.DataFrame:
        """``frame`` sorted by verdict, then by p."""
        order = self.frame["verdict"].map(VERDICTS.index)
        return self.frame.assign(order=order, by=_corrected(self.frame)).sort_values(["order", "by"], kind="stable")

    @property
    def caption(self) -> str:
        """Summary of the tests in one line."""
        names = {"pooled": "t tests with one variance for all levels", "Welch": "Welch's test"}
        tests = " or ".join(name for test, name in names.items() if test in set(self.frame["test"])) or "no test"
        count = int(_corrected(self.frame).notna().sum())
        corrected = f", Holm-corrected over {count} tests" if count > 1 else ""
        texts = " and p with texts random; with texts fixed" if "p_texts" in self.frame else ";"
        return f"{percent(self.confidence)} intervals{texts} p by {tests}{corrected}"

    @property
    def noise(self) -> str:
        """Residual SD of each metric in one line; "" if no metric has one."""
        rows = self.variance[self.variance["sd"] > 0.0]
        metrics = ", ".join(f"{metric} {sd:.3g}" for metric, sd in zip(rows["metric"], rows["sd"], strict=True))
        model = "" if (rows["source"] == "sampling").any() else " of the additive model"
        return f"residual SD{model}: {metrics}" if metrics else ""

    @property
    def conditions(self) -> list[str]:
        """A sentence on each significant interaction."""
        return [interaction_sentence(row) for row in self.interactions.to_dict("records") if row["significant"]]

    def rows(self) -> Iterator[tuple[str, str, list[tuple[str, str]], dict[str, str], str]]:
        """Yield formatted rows: metric, axis, pairs of level and difference, numbers by column title, and verdict."""
        tests = {"p": "p_texts_holm", "p, texts fixed": "p_holm"} if "p_texts" in self.frame else {"p": "p_holm"}
        tests |= {"p, ranks": "p_robust_holm"} if "p_robust" in self.frame else {}
        contrasts = {key: rows.to_dict("records") for key, rows in self.contrasts.groupby(["metric", "axis"])}
        for row in self.sorted.to_dict("records"):
            differences = [
                (f"{item['baseline']} → {item['level']}", _difference(item))
                for item in contrasts[row["metric"], row["axis"]]
            ]
            omega = row["omega_sq"]
            share = "–" if not math.isfinite(omega) else f"{omega:.2f}" if omega >= 0.005 else "0"
            numbers = {head: format_p(row[test]) for head, test in tests.items()} | {"omega²": share}
            depends = f", depends on {row['depends_on']}" if row["depends_on"] else ""
            yield row["metric"], row["axis"], differences, numbers, f"{row['verdict']}{depends}"

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = []
        for metric, axis, differences, numbers, verdict in self.rows():
            lines = lines or [("metric", "axis", "effect", "", *numbers, "")]
            head, tail = (metric, axis), (*numbers.values(), verdict)
            for level, difference in differences:
                lines.append((*head, level, difference, *tail))
                head, tail = ("", ""), ("",) * len(tail)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*self.conditions, self.caption, *table, *filter(None, [self.noise]), *self.notes])

    __repr__ = __str__

    def plot(self, axes: Axes | None = None, *, alpha: float = 0.05) -> Axes:
        """Plot the contrasts with their intervals in units of the residual SD.

        If texts are a block, the interval treats texts as random; a thick, pale interval treats them as fixed. The band
        is ±1 SD of repeated takes (of all takes of a cell, if other settings vary within it) or, if no cell is repeated, of
        the additive model's residuals. A mark is filled if its interval excludes 0 and the Holm-corrected p of the effect is
        at most ``alpha``. ``axes`` defaults to a new figure.
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
    robust: bool = False,
    totals: Mapping[str, str] | None = None,
    settings: Sequence[str] = (),
) -> Effects:
    """Test the main effect of each axis on each metric: see ``voicelab.effects``.

    ``metrics`` defaults to all numeric columns except axes, blocks and totals. ``settings`` are the columns of settings of
    the takes; a note names those that vary although they are neither axes nor blocks.
    """
    axis_names, block_names, metric_names = _columns(frame, axes, blocks, metrics, totals or {})
    tables = _Tables(confidence, robust)
    values = values_of(frame, metric_names)
    weights = _totals(frame, metric_names, totals or {}, np.isfinite(values))
    # Metrics defined for the same takes share the design and its matrices.
    defined = np.isfinite(values)
    groups: dict[bytes, list[int]] = {}
    for index, column in enumerate(defined.T):
        groups.setdefault(column.tobytes(), []).append(index)
    for indices in groups.values():
        mask, names = defined[:, indices[0]], [metric_names[index] for index in indices]
        if mask.sum() < 2:
            tables.exclude("metrics", f"{' and '.join(names)}: {mask.sum()} values, too few to compare")
            continue
        if not mask.all():
            everything, order = build(frame, axis_names, block_names, texts)
            tables.notes += missing_notes(everything, ~mask[order], names, axis_names, 1.0 - confidence)
        design, order = build(frame[mask], axis_names, block_names, texts)
        selected = [array[mask][:, indices][order] for array in (values, weights)]
        _add_design(tables, design, selected, names, axis_names, list(frame[mask].index[order]))
    if texts in block_names:
        tables.notes += [
            f"{metric}: texts are weighted by their {totals[metric]}, as in a pooled rate."
            for metric in metric_names
            if totals and metric in totals
        ]
    tables.notes += outlier_notes(tables.outliers, "digest" in frame, robust)
    tables.mixed, notes = unnamed_columns(
        frame.iloc[np.flatnonzero(defined.any(axis=1))], axis_names, block_names, settings
    )
    tables.notes += notes
    tables.notes += filter(None, [note_on(frame, metric_names)])
    return tables.finish(metric_names)


def _totals(
    frame: pd.DataFrame, metrics: Sequence[str], totals: Mapping[str, str], defined: npt.NDArray[np.bool_]
) -> _Floats:
    """Return the weights (takes, metrics): each metric's totals, or 1 without totals. ``defined`` marks defined values."""
    weights = np.ones(defined.shape)
    for index, metric in enumerate(metrics):
        if metric in totals:
            weights[:, index] = values_of(frame, [totals[metric]])[:, 0]
            invalid = defined[:, index] & ~(weights[:, index] > 0.0)
            if invalid.any():
                row = frame.index[invalid][0]
                needed = f"{totals[metric]!r} must be above 0 where {metric} is defined"
                raise ArgumentError.of("totals", f"{needed}, got {frame[totals[metric]][row]} in row {row}")
    return weights


def _columns(
    frame: pd.DataFrame,
    axes: Sequence[str] | str,
    blocks: Sequence[str] | str,
    metrics: Sequence[str] | str | None,
    totals: Mapping[str, str],
) -> tuple[list[str], list[str], list[str]]:
    axis_names, block_names = columns_of(frame, axes, "axes"), columns_of(frame, blocks, "blocks")
    if not axis_names:
        raise ArgumentError.of("axes", "at least one axis is required")
    if both := set(axis_names) & set(block_names):
        raise ArgumentError.of("blocks", f"a column cannot be both axis and block, got {min(both)!r} in both")
    columns_of(frame, list(dict.fromkeys(totals.values())), "totals")
    if metrics is None:
        metrics = numeric_columns(frame, {*axis_names, *block_names, *totals.values()})
    metric_names = columns_of(frame, metrics, "metrics")
    if factors := [name for name in metric_names if name in {*axis_names, *block_names}]:
        raise ArgumentError.of("metrics", f"must not be an axis or a block, got {factors[0]!r}")
    if not metric_names:
        raise ArgumentError.of("metrics", "there is no numeric column besides axes and blocks")
    return axis_names, block_names, metric_names


def numeric_columns(frame: pd.DataFrame, exclude: set[str]) -> list[str]:
    """Return the names of numeric columns."""
    return [str(name) for name in frame.select_dtypes("number") if name not in exclude]


def format_p(value: float) -> str:
    """Format a p-value, or NaN as a dash."""
    return "–" if not math.isfinite(value) else f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def format_difference(value: float, scale: float = 0.0, form: str = "+.3g") -> str:
    """Format a difference: as 0 if it is below the float32 precision of ``scale``, and as a dash if it is NaN."""
    return "–" if not math.isfinite(value) else "0" if abs(value) <= _FLOAT32_PRECISION * scale else f"{value:{form}}"


def _suffix(contrast: Mapping[Any, Any]) -> str:
    """Return the suffix of the columns of a contrast: ``_texts`` if texts are random, else ""."""
    return "_texts" if math.isfinite(contrast.get("error_texts", math.nan)) else ""


def _difference(contrast: dict[Any, Any]) -> str:
    suffix = _suffix(contrast)
    value, low, high = (contrast[f"{name}{suffix}"] for name in ("estimate", "low", "high"))
    if math.isnan(value):
        return "cannot be estimated"
    size = max(abs(low), abs(high)) if math.isfinite(low + high) else 0.0
    missing = "too few takes" if contrast[f"error{suffix}"] else "no variance"
    interval = (
        f"{format_difference(low, size)}, {format_difference(high, size)}" if math.isfinite(low + high) else missing
    )
    return f"{format_difference(value, size)} [{interval}]"


def _corrected(frame: pd.DataFrame) -> pd.Series[float]:
    """Return the corrected p-values that determine the verdicts; texts are random if they are a block."""
    random = "p_texts_holm" in frame
    return frame["p_texts_holm"].where(frame["texts"].notna(), frame["p_holm"]) if random else frame["p_holm"]


class _Tables:
    """Rows of the tables of the result, to which the results of each design are added."""

    def __init__(self, confidence: float, robust: bool) -> None:
        if not 0.5 <= confidence < 1.0:
            raise ArgumentError.of("confidence", f"must be at least 0.5 and below 1, got {confidence!r}")
        self.confidence = confidence
        self.robust = robust
        self.frame: list[dict[str, Any]] = []
        self.contrasts: list[dict[str, Any]] = []
        self.variance: list[dict[str, Any]] = []
        self.interactions: list[dict[str, Any]] = []
        self.outliers: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.mixed: tuple[str, ...] = ()
        self._error: tuple[str, str] | None = None

    def exclude(self, argument: str, reason: str) -> None:
        """Add a note on an excluded comparison. If all comparisons are excluded, the note is raised as an error."""
        self._error = self._error or (argument, reason)
        self.notes.append(f"{reason}.")

    def finish(self, metrics: Sequence[str]) -> Effects:
        import pandas as pd

        if not self.frame:
            raise ArgumentError.of(*(self._error or ("metrics", "must vary over the levels of an axis")))
        positions = {name: index for index, name in enumerate(metrics)}
        for table in (self.frame, self.contrasts, self.variance, self.interactions):
            table.sort(key=lambda row: positions[row["metric"]])
        rows, contrasts, variance = map(pd.DataFrame, (self.frame, self.contrasts, self.variance))
        interactions = pd.DataFrame(self.interactions, columns=_INTERACTION_COLUMNS)
        outliers = pd.DataFrame(self.outliers, columns=_OUTLIER_COLUMNS)
        level = 1.0 - self.confidence
        interactions["p_holm"] = holm(interactions["p"])
        interactions["significant"] = interactions.pop("without_noise").eq(True) | (interactions["p_holm"] <= level)
        rows.insert(4, "p_holm", holm(rows["p"]))
        rows.insert(5, "p_bh", benjamini_hochberg(rows["p"]))
        for name in ("p_texts", "p_robust"):
            if name in rows:
                rows[f"{name}_holm"] = holm(rows[name])
        rows.loc[_corrected(rows) <= level, "verdict"] = SIGNIFICANT
        pairs = interactions[interactions["significant"]]
        keys = [*pairs[["metric", "axis", "other"]].values, *pairs[["metric", "other", "axis"]].values]
        rows["depends_on"] = [
            ", ".join(str(second) for metric, axis, second in keys if (metric, axis) == key)
            for key in zip(rows["metric"], rows["axis"], strict=True)
        ]
        notes = tuple(dict.fromkeys(self.notes))
        return Effects(rows, contrasts, variance, interactions, outliers, self.confidence, notes, self.mixed)


def _add_design(
    tables: _Tables,
    design: Design,
    weighted: Sequence[_Floats],
    metrics: Sequence[str],
    axes: Sequence[str],
    labels: Sequence[Any],
) -> None:
    """Add the tests of all metrics of a design; ``weighted`` are values and weights, each (takes, metrics)."""
    values, weights = weighted
    noise = noise_of(design, values)
    tables.interactions += interactions_of(design, values, weights, metrics, axes)
    tables.outliers += outliers_of(design, values, metrics, noise, labels)
    for index, metric in enumerate(metrics):
        if not np.ptp(values[:, index]):
            tables.notes.append(f"{metric} is the same in all {design.takes} takes: nothing to compare.")
    tables.notes += _constant_levels(design, metrics, axes, noise)
    shares = _variance(design, values, metrics, axes, noise)
    tables.variance += [row for rows in shares for row in rows]
    tests: dict[int, str] = {}
    for number, axis in enumerate(axes):
        present = np.unique(design.codes[number])
        if present.size < 2:
            tables.exclude(
                "axes", f"{axis!r} has one level where {' and '.join(metrics)} is defined: nothing to compare"
            )
            continue
        contrasts = contrasts_of(design, values, number, noise)
        tests[number] = contrasts.test
        profiles = text_profiles(design, values, number, weights)
        random = over_texts(profiles, values)
        if random is None and design.texts is not None:
            fixed = "fewer than two texts allow a comparison of all levels, so texts are fixed."
            tables.notes += [f"{metric} by {axis}: {fixed}" for metric in metrics]
        by_suffix = {"": contrasts, **({"_texts": random} if random is not None else {})}
        events = _events(design, values, number, profiles)
        verdicts = _add_contrasts(tables, design, values, (metrics, axis, number), by_suffix, noise, events)
        for index, metric in enumerate(metrics):
            share = {name: shares[index][number][name] for name in ("eta_sq", "omega_sq")}
            profile = None if profiles is None else profiles[0][..., index]
            row = {"metric": metric, "axis": axis, "verdict": verdicts[index], "p": contrasts.p[index]}
            row |= {"test": contrasts.test, **share, "levels": present.size, "takes": design.takes}
            if random is not None and profiles is not None:
                row |= {"p_texts": random.p[index], "texts": len(profiles[0])}
            if verdicts[index] == NO_VARIANCE:
                # t is undefined, but all arrangements of the levels are still equally probable.
                for name, units in {"p": None, "p_texts": profile}.items():
                    if name in row and not math.isfinite(row[name]):
                        row[name], least = p, _ = exchanged_p(design, values[:, index], number, units)
                texts = "" if profiles is None else f"equal differences in all {len(profiles[0])} texts"
                tables.notes.append(
                    f"{metric} by {axis}: {texts or 'repeats do not vary'}, so the residual variance is 0: p {p:.3g} "
                    f"by permutation (smallest possible: {least:.3g}), no interval."
                )
            tables.frame.append(row)
        if tables.robust:
            _add_ranks(tables, design, (values, weights), (number, axis), tables.frame[-len(metrics) :])
    tables.notes += [*small_level_notes(design, noise, axes), *_assumptions(design, noise, tests, axes)]


def _add_ranks(
    tables: _Tables,
    design: Design,
    weighted: tuple[_Floats, _Floats],
    of: tuple[int, str],
    rows: Sequence[dict[str, Any]],
) -> None:
    """Add the p-values of rank tests to the ``rows`` of an axis; ``of`` is its number and name."""
    (values, weights), (number, axis) = weighted, of
    # Medians of cells, so that a single outlier does not change its text.
    profiles = text_profiles(design, cell_medians(design, values), number, weights)
    for index, row in enumerate(rows):
        profile = None if profiles is None else profiles[0][..., index]
        row["p_robust"], least = exchanged_p(design, values[:, index], number, profile, ranks=True)
        note = f"{axis}: p_robust cannot be below {least:.3g} here; add texts or repeats."
        tables.notes += [note] * (least > 1.0 - tables.confidence)


def _assumptions(design: Design, noise: Noise, tests: Mapping[int, str], axes: Sequence[str]) -> list[str]:
    """Return notes on tests that assume equal variances, on the repeats that avoid it, and on the detectable difference."""
    pooled = [number for number, test in tests.items() if test != "Welch"]
    if not pooled:
        return []
    if noise.repeats and not noise.sum_sq.any():
        return ["Repeated takes are identical, so more repeats add nothing; add texts or other levels."]
    cells = np.unique(design.cells).size
    levels = {number: np.unique(design.codes[number]).size for number in pooled}
    needed = max(1 + math.ceil(count * (count + 2) / cells) for count in levels.values())
    if noise.df < 1:
        notes = ["One take per level: no residual degrees of freedom, so no effect can be tested."]
    elif noise.repeats:
        names = " and ".join(axes[number] for number in pooled)
        notes = [f"{names}: few takes per level, so equal variances are assumed; repeats={needed} would avoid that."]
    else:
        avoided = "both" if needed == 2 else f"the first, repeats={needed} both"
        assumed = "interactions count as residual variance, and equal variances are assumed"
        notes = [f"No cell has two takes: {assumed}; repeats=2 would avoid {avoided}."]
    weights = [matrix[estimable] for matrix, estimable in map(design.differences, pooled)]
    # For random texts, `plan_sweep` computes the power. This is the variance of a difference with one take per cell, in
    # units of a take's variance.
    variance = max(np.square(matrix).sum(axis=1).max(initial=0.0) for matrix in weights) * design.takes / cells
    if variance > 0.0 and design.texts is None:
        powers = (t_power(math.sqrt(count / variance), cells * (count - 1)) for count in itertools.count(2))
        repeats = next(count for count, power in enumerate(powers, 2) if power >= 0.8)
        notes += [f"A difference of one SD is detected with a power of {percent(0.8)} from repeats={repeats}."]
    return notes


def _add_contrasts(
    tables: _Tables,
    design: Design,
    values: _Floats,
    of: tuple[Sequence[str], str, int],
    by_suffix: Mapping[str, Contrasts],
    noise: Noise,
    events: Mapping[str, _Floats],
) -> list[str]:
    """Add the contrasts of an axis for each metric.

    ``of`` contains the metrics, the name of the axis and its number; ``by_suffix`` has the contrasts by suffix of their
    columns. Returns for each metric the verdict that applies if the effect is not significant.
    """
    metrics, axis, number = of
    level, (baseline, *codes) = design.levels[number], np.unique(design.codes[number])
    columns: dict[str, _Floats] = {}
    for suffix, contrasts in by_suffix.items():
        half_width = contrasts.half_width(tables.confidence)
        low, high = contrasts.estimate - half_width, contrasts.estimate + half_width
        numbers = (contrasts.estimate, low, high, contrasts.p_each, contrasts.error, contrasts.df)
        columns |= {f"{name}{suffix}": value for name, value in zip(_CONTRAST_COLUMNS, numbers, strict=True)}
    for row, code in enumerate(codes):
        if np.isnan(columns["estimate"][row]).any():
            pair = f"{axis} {level[code]} cannot be compared with {level[baseline]}"
            tables.notes += [f"{pair} in {metric}: confounded with another axis or the blocks." for metric in metrics]
        deltas = _deltas(design, values, number, (int(code), int(baseline)), tables.confidence)
        for index, metric in enumerate(metrics):
            item = {name: float(value[row, index]) for name, value in columns.items()}
            sd, delta = float(noise.sd[index]), deltas[index]
            size = standardized_difference(
                item["estimate"], item["error"], item["df"], sd, n=design.takes, confidence=tables.confidence
            )
            in_sd = item["estimate"] / sd if sd > 0.0 else math.nan
            sizes = {"in_sd": in_sd, "in_sd_low": size.low, "in_sd_high": size.high}
            sizes |= {"delta": delta.value, "delta_low": delta.low, "delta_high": delta.high}
            keys = {"metric": metric, "axis": axis, "baseline": level[baseline], "level": level[code]}
            counts = {name: float(event[row, index]) for name, event in events.items()}
            tables.contrasts.append({**keys, **item, **sizes, **counts})
    suffix, contrasts = list(by_suffix.items())[-1]
    # With random texts, the unit is the SD of the texts' differences.
    unit = contrasts.error * np.sqrt(contrasts.df + 1.0) if suffix else noise.sd
    arrays = (contrasts.estimate, half_width, contrasts.error, unit, contrasts.p)
    return [_nonsignificant(*(array[..., index] for array in arrays)) for index in range(len(metrics))]


def _events(design: Design, values: _Floats, axis: int, of_texts: tuple[_Floats, _Floats] | None) -> dict[str, _Floats]:
    """Count the texts (or takes of a level) that differ from the median, and compute their largest distance from it.

    The arrays have the shape (contrasts, metrics). ``equivalence`` uses them if most values are equal, as for the WER of a
    good system, because Student's t is invalid if large values are rare.
    """
    if of_texts is not None:
        profiles, weights = of_texts
        mode = np.median(profiles[:, 1:], axis=0)
        off = len(profiles) * weights[:, None] * np.abs(without_rounding(profiles[:, 1:] - mode, values))
        units = np.full(mode.shape, float(len(profiles)))
        return {"differing": (off > 0.0).sum(axis=0), "units": units, "mode": mode, "largest": off.max(axis=0)}
    off = np.abs(without_rounding(values - cell_medians(design, values), values))
    codes = design.codes[axis]
    levels = [off[codes == code] for code in np.unique(codes)]
    medians = [np.median(values[codes == code], axis=0) for code in np.unique(codes)]
    pairs = [(levels[0], level) for level in levels[1:]]
    return {
        "differing": np.array([np.maximum(*((level > 0.0).sum(axis=0) for level in pair)) for pair in pairs]),
        "units": np.array([[min(map(len, pair))] * values.shape[1] for pair in pairs]),
        "mode": np.array([median - medians[0] for median in medians[1:]]),
        "largest": np.array([np.vstack(pair).max(axis=0) for pair in pairs]),
    }


def _nonsignificant(estimate: _Floats, half_width: _Floats, error: _Floats, unit: _Floats, p: _Floats) -> str:
    """Return the verdict on an axis that has no significant effect."""
    if np.isnan(estimate).all():
        return CONFOUNDED
    if not (estimate.any() or error.any()):
        return NO_DIFFERENCE
    if np.isnan(p) and (error == 0.0).any():
        return NO_VARIANCE
    return NOT_SIGNIFICANT if (half_width <= _MAX_HALF_WIDTH_SD * unit).any() else UNDERPOWERED


def _deltas(design: Design, values: _Floats, axis: int, pair: tuple[int, int], confidence: float) -> list[Estimate]:
    """Return Cliff's delta of each metric between two levels, averaged over texts or strata."""
    import pandas as pd

    rows = np.isin(design.codes[axis], pair)
    strata, first, values = design.strata(axis)[rows], design.codes[axis][rows] == pair[0], values[rows]
    groups = design.texts[rows] if design.texts is not None else strata
    # Ties have mean ranks, so they count for neither level.
    ranks = pd.DataFrame(values).groupby(strata).rank().to_numpy()
    n, m = (np.bincount(strata[mask], minlength=strata.max() + 1) for mask in (first, ~first))
    compared = n * m > 0
    if compared.sum() == 1 and strata.max() == 0 and min(n[0], m[0]) > 1:
        return [
            cliff_delta(*samples, confidence=confidence)
            for samples in zip(values[first].T, values[~first].T, strict=True)
        ]
    sums = np.zeros((n.size, values.shape[1]))
    np.add.at(sums, strata[first], ranks[first])
    n, m, sums = n[compared, None], m[compared, None], sums[compared]
    group = np.zeros(compared.size, np.intp)
    group[strata] = groups
    means = pd.DataFrame((2.0 * sums - n * (n + 1)) / (n * m) - 1.0).groupby(group[compared]).mean().to_numpy()
    return [mean_delta(list(column), confidence) for column in means.T]


def _constant_levels(design: Design, metrics: Sequence[str], axes: Sequence[str], noise: Noise) -> list[str]:
    """Describe levels whose repeats are constant, as at temperature 0, while the repeats of other levels vary."""
    if not noise.repeats:
        return []
    repeated = (np.bincount(design.cells) > 1)[design.cells]
    notes = []
    for number, axis in enumerate(axes):
        codes = design.codes[number]
        for code in np.unique(codes[repeated]):
            constant = ~noise.residuals[repeated & (codes == code)].any(axis=0) & (noise.sum_sq > 0.0)
            level = f"At {axis} {design.levels[number][code]} repeated takes have the same"
            notes += [
                f"{level} {metric}; their SD of 0 is pooled into the residual SD."
                for metric in itertools.compress(metrics, constant)
            ]
    return notes


def _variance(
    design: Design, values: _Floats, metrics: Sequence[str], axes: Sequence[str], noise: Noise
) -> list[list[dict[str, Any]]]:
    """Decompose each metric's sum of squares (type II): the loss of fit if the additive model omits a factor."""
    factors = design.factors
    total = np.square(without_rounding(values - values.mean(axis=0), values)).sum(axis=0)
    residual, model_df = _residual(design, values, factors)
    sources: list[tuple[str, int, _Floats]] = []
    for number, axis in enumerate(axes):
        without, df = _residual(design, values, [factor for factor in factors if factor != number])
        sources.append((axis, model_df - df, without - residual))
    if len(factors) > len(axes):
        without, df = _residual(design, values, range(len(axes)))
        sources.append(("blocks", model_df - df, without - residual))
    if noise.repeats:
        sources.append(("interactions", design.takes - noise.df - model_df, residual - noise.sum_sq))
    sources.append(("sampling" if noise.repeats else "residual", noise.df, noise.sum_sq))
    tables = []
    for index, metric in enumerate(metrics):
        total_sq, mean_sq = total[index] or math.nan, noise.sum_sq[index] / noise.df if noise.df else math.nan
        rows = []
        for source, df, sums in sources:
            sum_sq = float(sums[index]) if abs(sums[index]) > 1e-12 * total[index] else 0.0
            shares = {"eta_sq": sum_sq / total_sq, "omega_sq": (sum_sq - df * mean_sq) / (total_sq + mean_sq)}
            rows.append({"metric": metric, "source": source, "df": df, "sum_sq": sum_sq, **shares, "sd": math.nan})
        # The complement of the unbiased shares of the other sources.
        rows[-1] |= {"omega_sq": design.takes * mean_sq / (total_sq + mean_sq), "sd": float(noise.sd[index])}
        tables.append(rows)
    return tables


def _residual(design: Design, values: _Floats, factors: Sequence[int]) -> tuple[_Floats, int]:
    residuals, rank, _ = design.residuals(factors, values)
    return np.square(residuals).sum(axis=0), rank


def _draw(result: Effects, axes: Axes | None, alpha: float) -> Axes:
    corrected = [name for name in ("p_holm", "p_texts_holm") if name in result.frame]
    table = result.sorted[["metric", "axis", *corrected]].merge(result.contrasts, on=["metric", "axis"], sort=False)
    noise = result.variance[result.variance.source.isin(list(_NOISE))]
    mixed = {"sampling": f"takes that differ in {' and '.join(result.mixed)}"} if result.mixed else {}
    sources = " or ".join((_NOISE | mixed)[source] for source in noise.source.unique())
    table = table.assign(unit=table.metric.map(noise.set_index("metric")["sd"]))
    position: Literal["right"] | None = None
    if axes is None:
        import matplotlib.pyplot as plt

        # A centered long label would not fit the figure.
        position = "right" if len(corrected) > 1 or result.mixed else None
        _, axes = plt.subplots(figsize=(7.0, 1.2 + 0.35 * len(table)), layout="constrained")
    axes.axvspan(-1.0, 1.0, color=_BAND, lw=0, label=f"±1 SD of {sources}")
    axes.axvline(0.0, color=_NEUTRAL_COLOR, lw=0.8)
    for index, row in enumerate(table.to_dict("records")):
        if not row["unit"] > 0.0:
            continue
        suffix = _suffix(row)
        low, middle, high = np.array([row[f"{name}{suffix}"] for name in ("low", "estimate", "high")]) / row["unit"]
        # An axis with a significant effect may have levels without one.
        significant = row[f"p{suffix}_holm"] <= alpha and (low > 0.0 or high < 0.0)
        color = _SIGNIFICANT_COLOR if significant else _NEUTRAL_COLOR
        if suffix:
            fixed = np.array([row["low"], row["high"]]) / row["unit"]
            axes.plot(fixed, [index, index], color=color, lw=5.0, alpha=0.25, solid_capstyle="butt")
        axes.plot([low, high], [index, index], color=color, lw=1.5, solid_capstyle="butt")
        axes.plot(middle, index, "o", color=color, mfc=color if significant else "white")
    names = [
        f"{row['metric']} · {row['axis']} {row['baseline']} → {row['level']}"
        + ("\ncannot be estimated" if np.isnan(row["estimate"]) else "")
        + ("" if row["unit"] > 0.0 else f"\n{format_difference(row['estimate'])}, {sources} do not vary")
        for row in table.to_dict("records")
    ]
    random = ", texts random (wide: texts fixed)" if "low_texts" in table else ""
    separator = "\n" if position else " "
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(
        f"difference in SD of {sources},{separator}{percent(result.confidence)} interval{random}\n"
        f"filled: the interval excludes 0, and Holm-corrected p ≤ {alpha:g}",
        loc=position,
    )
    # The legend is above the axes, where it covers no interval.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, frameon=False, fontsize="small")
    return axes
