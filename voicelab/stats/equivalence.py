"""As good as: whether a difference is smaller than a margin that was named beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from voicelab.errors import ArgumentError
from voicelab.stats.crossed import ComparedPairs, CrossedTest, SignTest
from voicelab.stats.effects import Effects
from voicelab.stats.estimate import Estimate, between, holm, interval, one_of, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_SHOWN, _OPEN, _BAND = "tab:blue", "0.45", "0.9"


@dataclass(frozen=True, eq=False)
class Equivalence:
    """Which differences are shown to lie within a margin: one row each in ``frame``, a sentence each as text, a picture.

    ``frame``: ``first`` and ``second``, of a sweep also ``metric`` and ``axis``; ``estimate`` of the first less the second
    (of choices the first's share) with ``low`` and ``high``, the interval at a confidence of 1 - 2 ``alpha``; ``lower`` and
    ``upper`` what it must lie between; ``p`` of the hypothesis that it does not, ``p_holm`` corrected for all rows, and
    whether the claim is ``shown``. Where p is NaN, ``reason`` says why: without residual variance nothing is shown.
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
        """Draw each interval over the band that it must lie in, and return the axes; what is shown is filled."""
        rows = self.frame.to_dict("records")
        if axes is None:
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(figsize=(7.0, 1.2 + 0.45 * len(rows)), layout="constrained")
        named = ("estimate", "low", "high", "lower", "upper")
        ends = [row[name] for row in rows for name in named if math.isfinite(row[name])]
        room = 0.15 * (max(ends) - min(ends))
        least, most = min(ends) - room, max(ends) + room
        for place, row in enumerate(rows):
            color = _SHOWN if row["shown"] else _OPEN
            lower, upper = max(row["lower"], least), min(row["upper"], most)
            axes.barh(place, upper - lower, left=lower, height=0.8, color=_BAND, lw=0)
            axes.plot([row["low"], row["high"]], [place, place], color=color, lw=1.5, solid_capstyle="butt")
            axes.plot(row["estimate"], place, "o", color=color, mfc=color if row["shown"] else "white")
        axes.set_xlim(least, most)
        axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(f"{percent(1.0 - 2.0 * self.alpha)} interval; the band is the margin; filled: shown after Holm")
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
    """Test whether differences are smaller than a ``margin``: as good as, or not worse.

    "No significant difference" is no proof of none; this is. Two one-sided tests, at ``alpha`` each (D. J. Schuirmann,
    Journal of Pharmacokinetics and Biopharmaceutics 15, 1987), of the analysis that speaks of other listeners and sentences
    (``analyze``), or of other texts (``effects`` with texts for a block; without, of these texts alone): equivalent where
    the interval at 1 - 2 alpha lies within the margin.

    Args:
        result: of ``analyze`` or of ``effects``.
        margin: the largest difference that does not matter, named before anybody was asked: in points of the scale (MOS,
            CMOS, MUSHRA), in shares away from one half (AB, ABX: 0.1 is 40 to 60 %), in the metric's unit (sweeps; a
            mapping gives each metric its own).
        claim: "equivalent", or "not worse": only the lower side counts (of ABX, where less than chance means nothing, only
            the upper).
        of: the system that the claim is about, set against each other one; when not given, the first of each pair.
        lower_is_better: of metrics such as word errors: "not worse" is then not above.
        alpha: chance of a claim that is false, over all rows together (S. Holm).

    Raises ArgumentError for a margin that is none, and where the result has no analysis that generalises.
    """
    import pandas as pd

    one_of(claim, "claim", ("equivalent", "not worse"))
    between(alpha, "alpha", 0.0, 0.5)
    compared, notes = _compared(result, margin, of)
    claimed = "" if claim == "equivalent" else "upper" if lower_is_better else "lower"
    rows = [{**names, **_tested(test, own, sided or claimed, alpha)} for names, test, own, sided in compared]
    corrected = holm([row["p"] for row in rows])
    frame = pd.DataFrame(rows).assign(p_holm=corrected, shown=corrected <= alpha)
    frame["reason"] = frame.pop("reason")
    return Equivalence(frame, claim, alpha, tuple(notes))


# The names of what is compared, its test, the margin, and the one side that counts where the claim does not decide it.
_Compared = list[tuple[dict[str, Any], CrossedTest, float, str]]


def _compared(
    result: ComparedPairs | Effects | CrossedTest, margin: float | Mapping[str, float], of: str | None
) -> tuple[_Compared, list[str]]:
    if isinstance(result, Effects):
        return _of_sweep(result, margin)
    if not isinstance(margin, int | float):
        raise ArgumentError.of("margin", "Input should be a number: a listening test has one scale")
    if isinstance(result, CrossedTest):
        return [({"first": "first", "second": "second"}, result, margin, "")], []
    if not result.crossed:
        raise ArgumentError.of("result", " ".join(["it has no analysis that generalises.", *result.notes]))
    abx, rows = result.kind == "ABX", _Compared()
    for pair, test in result.crossed.items():
        if of is None or of in pair:
            first, second = pair[::-1] if pair[1] == of else pair
            own = test.turned() if pair[1] == of and not abx else test  # right answers have no direction
            rows.append(({"first": first, "second": second}, own, margin, "upper" * abx))
    if not rows:
        raise ArgumentError.of("of", f"{of!r} is in no pair that was analyzed")
    missing = [" against ".join(pair) for pair in result.tests if pair not in result.crossed]
    return rows, [f"{pair}: not among these, since it cannot be generalised." for pair in missing]


def _of_sweep(result: Effects, margin: float | Mapping[str, float]) -> tuple[_Compared, list[str]]:
    rows, alone = _Compared(), False
    for contrast in result.contrasts.to_dict("records"):
        ending = "_texts" if math.isfinite(contrast.get("error_texts", math.nan)) else ""
        alone |= not ending
        own = margin.get(contrast["metric"]) if isinstance(margin, Mapping) else margin
        if own is None:
            continue
        value, error, df = (contrast[f"{name}{ending}"] for name in ("estimate", "error", "df"))
        names = {"metric": contrast["metric"], "axis": contrast["axis"]}
        names |= {"first": contrast["level"], "second": contrast["baseline"]}
        estimate = Estimate(value, value, value, result.confidence, 0)
        rows.append((names, CrossedTest("", math.nan, math.nan, estimate, error, df, (math.nan,) * 3), own, ""))
    if not rows:
        raise ArgumentError.of("margin", "there is none for any metric of these effects")
    return rows, ["This speaks of these texts alone."] * alone


def _tested(test: CrossedTest, margin: float, sided: str, alpha: float) -> dict[str, float | str]:
    """Return the estimate, the interval, the bounds and p of one row, or the reason why there is no p."""
    value, centre, signs = test.estimate.value, test.null, isinstance(test, SignTest)
    if not 0.0 < margin < (centre or math.inf):
        raise ArgumentError.of("margin", f"Input should be {'between 0 and 0.5' if centre else 'a number above 0'}")
    lower = -math.inf if sided == "upper" else centre - margin
    upper = math.inf if sided == "lower" else centre + margin
    low, high, p, reason = math.nan, math.nan, math.nan, ""
    if test.error > 0.0 or (signs and sided):
        ends = test.interval(1.0 - 2.0 * alpha)
        low, high, p = ends.low, ends.high, max(test.p_above(lower), test.p_below(upper))
    else:
        reason = "no residual variance" if signs or test.error == 0.0 else "too few takes"
    return {"estimate": value, "low": low, "high": high, "lower": lower, "upper": upper, "p": p, "reason": reason}


def _name(row: Mapping[Any, Any]) -> str:
    name = f"{row['first']} against {row['second']}"
    return f"{row['metric']} · {row['axis']} {name}" if "metric" in row else name


def _sentence(row: Mapping[Any, Any], claim: str, alpha: float) -> str:
    within = f"{interval(row['low'], row['high'])} ({percent(1.0 - 2.0 * alpha)})"
    lower, upper = row["lower"], row["upper"]
    place = f"within {lower:.3g} to {upper:.3g}"
    if math.isinf(lower) or math.isinf(upper):
        place = f"below {upper:.3g}" if math.isinf(lower) else f"above {lower:.3g}"
    if "metric" in row:
        subject = f"{row['metric']} at {row['axis']} {row['first']} is"
        subject += f" {'as' if claim == 'equivalent' else 'not worse than'} at {row['second']}"
    else:
        subject = f"{row['first']} is {'as good as' if claim == 'equivalent' else 'not worse than'} {row['second']}"
    if row["reason"]:
        return f"It cannot be tested whether {subject}: {row['estimate']:.3g}, {row['reason']}."
    shown, lies = (subject, "lies") if row["shown"] else (f"It is not shown that {subject}", "does not lie")
    return f"{shown}: {row['estimate']:.3g} {within} {lies} {place}, p {row['p_holm']:.4g}."
