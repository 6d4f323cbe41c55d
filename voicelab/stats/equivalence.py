"""Equivalence and non-inferiority tests against a margin chosen beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from voicelab.errors import ArgumentError
from voicelab.stats.crossed import ComparedPairs, CrossedTest
from voicelab.stats.effects import Effects
from voicelab.stats.estimate import Estimate, between, holm, interval, one_of, p_text, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# A reason states how many takes are required to exclude that this share of takes differs.
_RARE = 0.05
_SHOWN_COLOR, _NEUTRAL_COLOR, _BAND = "tab:blue", "0.45", "0.9"


@dataclass(frozen=True, eq=False)
class Equivalence:
    """Equivalence tests: a table, a text form with a sentence per row, and a plot.

    ``frame`` has a row per comparison of ``first`` with ``second``; for sweeps it also has the columns ``metric`` and
    ``axis``. ``estimate`` is the first minus the second (for choices, the share of the first), with its interval
    ``low`` to ``high`` at a confidence of 1 - 2 ``alpha``. ``p`` is the p-value of the null hypothesis that the
    difference lies outside the bounds ``lower`` and ``upper``, and ``p_holm`` is corrected over all rows. ``shown`` is
    whether the claim holds. If p is NaN, ``reason`` explains why.
    """

    frame: pd.DataFrame = field(repr=False)
    claim: str
    alpha: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        sentences = (_sentence(row, self.claim, self.alpha) for row in self.frame.to_dict("records"))
        return "\n".join([*sentences, *self.notes])

    __repr__ = __str__

    def plot(self, axes: Axes | None = None) -> Axes:
        """Plot each interval over its margin. The marks of claims that hold are filled."""
        rows = self.frame.to_dict("records")
        if axes is None:
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(figsize=(7.0, 1.2 + 0.45 * len(rows)), layout="constrained")
        columns = ("estimate", "low", "high", "lower", "upper")
        ends = [row[name] for row in rows for name in columns if math.isfinite(row[name])]
        padding = 0.15 * (max(ends) - min(ends))
        left, right = min(ends) - padding, max(ends) + padding
        for index, row in enumerate(rows):
            color = _SHOWN_COLOR if row["shown"] else _NEUTRAL_COLOR
            lower, upper = max(row["lower"], left), min(row["upper"], right)
            axes.barh(index, upper - lower, left=lower, height=0.8, color=_BAND, lw=0)
            axes.plot([row["low"], row["high"]], [index, index], color=color, lw=1.5, solid_capstyle="butt")
            axes.plot(row["estimate"], index, "o", color=color, mfc=color if row["shown"] else "white")
        axes.set_xlim(left, right)
        axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(
            f"{percent(1.0 - 2.0 * self.alpha)} interval; band: margin; filled: shown after Holm's correction"
        )
        return axes


def equivalence(
    result: ComparedPairs | Effects | CrossedTest,
    margin: float | Mapping[str, float],
    *,
    claim: Literal["equivalent", "not worse"] = "equivalent",
    of: str | None = None,
    lower_is_better: bool = False,
    alpha: float = 0.05,
) -> Equivalence:
    """Test whether differences are smaller than a ``margin``: equivalence, or non-inferiority.

    A nonsignificant difference does not show equivalence, but this test can. It consists of two one-sided tests at
    ``alpha`` each (TOST: D. J. Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987). For ``analyze``,
    listeners and sentences are random; for ``effects``, texts are random if they are a block, otherwise fixed. Systems
    are equivalent if the interval at 1 - 2 alpha lies within the margin.

    Args:
        result: result of ``analyze`` or ``effects``.
        margin: the largest negligible difference, chosen before data collection. Its unit is a point of the scale (MOS,
            CMOS, MUSHRA) or the metric's unit (sweeps; a mapping gives a margin per metric); for AB and ABX it is the
            distance of the share from 0.5 (0.1 means 40 to 60 %).
        claim: "equivalent" (in ABX, only the upper bound is tested), or "not worse", which tests only the lower bound and is
            not available for ABX, because correct responses have no direction.
        of: the system compared with every other system; default: the first of each pair.
        lower_is_better: reverse the direction of "not worse", for metrics such as WER.
        alpha: type I error rate over all rows (Holm's correction).

    Raises ArgumentError for an invalid margin, or a listening test whose analysis does not generalize to new listeners
    and items.
    """
    import pandas as pd

    one_of(claim, "claim", ("equivalent", "not worse"))
    between(alpha, "alpha", 0.0, 0.5)
    if claim == "not worse" and getattr(result, "kind", "") == "ABX":
        rule = f"must be 'equivalent' for ABX, whose correct responses have no direction, got {claim!r}"
        raise ArgumentError.of("claim", rule)
    compared, notes = _compared(result, margin, of)
    claimed = "" if claim == "equivalent" else "upper" if lower_is_better else "lower"
    rows = [
        {**names, **_test_row(test, bound, sided or claimed, alpha, rare)}
        for names, test, bound, sided, rare in compared
    ]
    corrected = holm([row["p"] for row in rows])
    frame = pd.DataFrame(rows).assign(p_holm=corrected, shown=corrected <= alpha)
    frame["reason"] = frame.pop("reason")
    return Equivalence(frame, claim, alpha, tuple(notes))


# Labels, test, margin, and the side of a one-sided test that does not depend on the claim.
_Compared = list[tuple[dict[str, Any], CrossedTest, float, str, "_Rare | None"]]


class _Rare(NamedTuple):
    """Distribution of a metric that is equal for most texts or takes of a sweep.

    Of ``units`` texts or takes, ``differing`` have another value than ``mode``; they differ by at most ``largest``.
    """

    differing: int
    units: int
    mode: float
    largest: float

    def p(self, distance: float) -> float:
        """Return a lower bound of the p-value for a mean at ``distance``, by a binomial test of the differing units."""
        from scipy.stats import binom

        rare = 2 * self.differing <= self.units and self.largest > 0.0
        return (
            float(binom.cdf(self.differing, self.units, min(1.0, max(0.0, distance / self.largest)))) if rare else 0.0
        )

    def reach(self, alpha: float) -> float:
        """Return an upper bound of the distance between mean and mode (Clopper & Pearson, Biometrika 26, 1934)."""
        from scipy.stats import beta

        rare = 2 * self.differing <= self.units
        share = float(beta.ppf(1.0 - alpha, self.differing + 1, self.units - self.differing)) if rare else 0.0
        return share * self.largest


def _compared(
    result: ComparedPairs | Effects | CrossedTest, margin: float | Mapping[str, float], of: str | None
) -> tuple[_Compared, list[str]]:
    if isinstance(result, Effects):
        return _of_sweep(result, margin)
    if not isinstance(margin, int | float):
        raise ArgumentError.of("margin", f"must be a number, since a listening test has one scale, got {margin}")
    if isinstance(result, CrossedTest):
        return [({"first": "first", "second": "second"}, result, margin, "", None)], []
    if not result.crossed:
        raise ArgumentError.of(
            "result", " ".join(["must have a test with random listeners and sentences.", *result.notes])
        )
    abx, rows = result.kind == "ABX", _Compared()
    for pair, test in result.crossed.items():
        if of is None or of in pair:
            first, second = pair[::-1] if pair[1] == of else pair
            reverse = pair[1] == of and not abx  # correct responses have no direction
            compared = test.turned() if reverse else test
            rows.append(({"first": first, "second": second}, compared, margin, "upper" * abx, None))
    if not rows:
        raise ArgumentError.of("of", f"must be a system of an analyzed pair, got {of!r}")
    missing = [" against ".join(pair) for pair in result.tests if pair not in result.crossed]
    return rows, [f"{pair} is excluded, since its analysis does not generalize." for pair in missing]


def _of_sweep(result: Effects, margin: float | Mapping[str, float]) -> tuple[_Compared, list[str]]:
    rows, fixed = _Compared(), False
    for contrast in result.contrasts.to_dict("records"):
        suffix = "_texts" if math.isfinite(contrast.get("error_texts", math.nan)) else ""
        fixed |= not suffix
        metric_margin = margin.get(contrast["metric"]) if isinstance(margin, Mapping) else margin
        if metric_margin is None:
            continue
        if not isinstance(metric_margin, int | float):
            raise ArgumentError.of("margin", f"must be a number, or a number per metric, got {metric_margin!r}")
        value, error, df = (contrast[f"{name}{suffix}"] for name in ("estimate", "error", "df"))
        names = {"metric": contrast["metric"], "axis": contrast["axis"]}
        names |= {"first": contrast["level"], "second": contrast["baseline"]}
        estimate = Estimate(value, value, value, result.confidence, 0)
        test = CrossedTest("", math.nan, math.nan, estimate, error, df, (math.nan,) * 3)
        differing, units, mode, largest = (contrast[name] for name in ("differing", "units", "mode", "largest"))
        rows.append((names, test, metric_margin, "", _Rare(int(differing), int(units), mode, largest)))
    if not rows:
        metrics = ", ".join(dict.fromkeys(result.contrasts["metric"]))
        raise ArgumentError.of("margin", f"must name a metric among {metrics}, got {margin!r}")
    return rows, ["Texts are fixed: the result does not generalize to other texts."] * fixed


def _test_row(test: CrossedTest, margin: float, sided: str, alpha: float, rare: _Rare | None) -> dict[str, float | str]:
    """Return estimate, interval, bounds and p for a row of the table, or the reason why p is undefined."""
    value, null = test.estimate.value, test.null
    if not 0.0 < margin < (null or math.inf):
        raise ArgumentError.of("margin", f"must be {'above 0 and below 0.5' if null else 'above 0'}, got {margin!r}")
    lower = -math.inf if sided == "upper" else null - margin
    upper = math.inf if sided == "lower" else null + margin
    low, high, p, reason = math.nan, math.nan, math.nan, ""
    # Constant responses show a direction, but without variance they cannot be tested against a margin.
    constant = test.sd[2] == 0.0 and not sided
    if test.error > 0.0 and not constant:
        ends = test.interval(1.0 - 2.0 * alpha)
        low, high, p = ends.low, ends.high, max(test.p_above(lower), test.p_below(upper))
        if rare is not None and rare.reach(alpha) > 0.0:
            low, high = min(low, rare.mode - rare.reach(alpha)), max(high, rare.mode + rare.reach(alpha))
            p = max(p, rare.p(min(rare.mode - lower, upper - rare.mode)))
    else:
        reason = "no residual variance" if constant or test.error == 0.0 else "too few takes"
        if rare is not None and test.error == 0.0:
            share, enough = 1.0 - alpha ** (1.0 / rare.units), math.ceil(math.log(alpha) / math.log(1.0 - _RARE))
            reason += (
                f": after {rare.units} equal values, up to {share:.0%} of all values may still differ from them "
                f"(after {enough}, up to {_RARE:.0%})"
            )
    return {"estimate": value, "low": low, "high": high, "lower": lower, "upper": upper, "p": p, "reason": reason}


def _name(row: Mapping[Any, Any]) -> str:
    name = f"{row['first']} against {row['second']}"
    return f"{row['metric']} · {row['axis']} {name}" if "metric" in row else name


def _sentence(row: Mapping[Any, Any], claim: str, alpha: float) -> str:
    within = f"{interval(row['low'], row['high'])} ({percent(1.0 - 2.0 * alpha)})"
    lower, upper = row["lower"], row["upper"]
    bounds = f"within {lower:.3g} to {upper:.3g}"
    if math.isinf(lower) or math.isinf(upper):
        bounds = f"below {upper:.3g}" if math.isinf(lower) else f"above {lower:.3g}"
    metric, axis = (f"{row['metric']} at ", f"{row['axis']} ") if "metric" in row else ("", "")
    relation = "equivalent to" if claim == "equivalent" else "not worse than"
    claimed = f"{metric}{axis}{row['first']} is {relation} {axis}{row['second']}"
    if row["reason"]:
        return f"It cannot be tested whether {claimed}: {row['estimate']:.3g}, {row['reason']}."
    sentence, lies = (claimed, "lies") if row["shown"] else (f"It is not shown that {claimed}", "does not lie")
    return f"{sentence}: {row['estimate']:.3g} {within} {lies} {bounds}, {p_text(row['p_holm'])}."
