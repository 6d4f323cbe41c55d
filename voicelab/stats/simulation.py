"""Power of voicelab's analyses of listening tests and sweeps, simulated or computed exactly."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.stats.crossed import Claim, ComparedPairs, CrossedTest, claims_of, complete_tables
from voicelab.stats.effects import Effects
from voicelab.stats.estimate import between, one_of, whole
from voicelab.stats.factors import largest_p, smallest_p_of_takes, smallest_p_of_texts
from voicelab.stats.mixed import Floats
from voicelab.stats.planning import t_power

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Scale at which the logistic distribution function best approximates the normal one.
_LOGISTIC = 16.0 * math.sqrt(3.0) / (15.0 * math.pi)
_MAX_VALUES = 2_000_000
_CHANCE = 0.5
_Sds = tuple[float, float, float]
_Claim = tuple[str, float | None]
_MAX_DIFFERENCE = {"MOS": 4.0, "SMOS": 4.0, "DMOS": 4.0, "CMOS": 3.0, "MUSHRA": 100.0}
_MAX_DIFFERENCE |= {"MUSHRA-NMR": 100.0, "BWS": 2.0, "AB": 1.0, "ABX": 1.0}
_SIDES = {"different": "two-sided", "equivalent": "two one-sided tests"}


@dataclass(frozen=True, eq=False)
class PowerPlan:
    """Power of designs. ``frame`` has a row per design, with ``power`` and its 95 % interval ``low`` to ``high``.

    ``sd`` has the assumed SDs by name, and ``notes`` state limitations of the designs. If the SDs come from a pilot,
    the ends of the interval are the powers at the 95 % limits of the SDs (chi-square with the pilot's degrees of
    freedom). In tests of choices (``kind`` AB or ABX), ``difference`` is a share, and 0.5 is no difference.
    """

    frame: pd.DataFrame = field(repr=False)
    difference: float
    sd: dict[str, float]
    alpha: float
    notes: tuple[str, ...] = ()
    kind: str = ""

    def enough(self, power: float = 0.8) -> pd.DataFrame:
        """Return the designs with at least this power, sorted by number of responses (or takes)."""
        rows = self.frame[self.frame["power"] >= power]
        return rows.sort_values(["answers", "power"], ascending=[True, False], ignore_index=True)

    def __str__(self) -> str:
        sds = ", ".join(f"{name} {value:.3g}" for name, value in self.sd.items())
        effect = f"a difference of {self.difference:g}"
        if self.kind in {"AB", "ABX"}:
            owner = "for the first system" if self.kind == "AB" else "of correct responses"
            effect = f"a share of {self.difference:g} {owner} (0.5 is no difference)"
        head = f"power to detect {effect} at {self.alpha:g} (SD: {sds})"
        return "\n".join([head, self.frame.to_string(index=False, float_format="{:.3g}".format), *self.notes])

    __repr__ = __str__

    def plot(self, axes: Axes | None = None, *, power: float = 0.8) -> Axes:
        """Plot power against the first size of the design, with a line for each combination of the other sizes."""
        if axes is None:
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
        size, *groups = list(self.frame.columns[: self.frame.columns.get_loc("answers")])
        axes.axhline(power, color="0.7", lw=0.8, ls="--")
        for key, rows in self.frame.groupby(groups):
            label = ", ".join(f"{value} {name}" for value, name in zip(key, groups, strict=True))
            axes.plot(rows[size], rows["power"], "o-", label=label)
            axes.fill_between(rows[size], rows["low"], rows["high"], alpha=0.15, lw=0)
        axes.set(xlabel=size, ylabel=f"power at {self.alpha:g}", ylim=(0.0, 1.02))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
        return axes


def plan_test(
    kind: Literal["MOS", "SMOS", "DMOS", "CMOS", "MUSHRA", "MUSHRA-NMR", "BWS", "AB", "ABX"],
    difference: float,
    *,
    listeners: int | Sequence[int] = (6, 12, 18, 24, 36),
    items: int | Sequence[int] = (6, 12, 24),
    sd: _Sds | None = None,
    pilot: ComparedPairs | CrossedTest | None = None,
    systems: int = 2,
    claim: Claim | None = None,
    margin: float | None = None,
    alpha: float = 0.05,
    simulations: int = 1000,
    seed: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> PowerPlan:
    """Compute the power of ``analyze()`` to detect a difference between two systems, by number of listeners and items.

    Studies with random listeners and items are simulated, and each is analyzed with crossed random effects.

    Args:
        kind: kind of the listening test.
        difference: in points of the scale; for choices, the share of the first system (or correct responses), such as 0.6.
        listeners: numbers of listeners.
        items: numbers of sentences.
        sd: SDs of the listeners' and items' effects on the difference, and of single responses, in points of the scale. For
            choices they are in logits, and the last is ignored. If there is no pilot, try several.
        pilot: a result of ``analyze``, or one of its ``crossed`` tests; ``sd`` is the mean over its pairs.
        systems: number of systems; the significance level is that of the first step of Holm's correction over all pairs.
        claim: as in a registered plan. "different" is two-sided (ABX: one-sided), "better" one-sided. "not worse" and
            "equivalent" need a ``margin``. "better" and "not worse" are not available for ABX. Default: "equivalent" if
            there is a margin, else "different".
        margin: the largest irrelevant difference, in points of the scale (for choices, as a distance from 0.5).
        alpha: level of the test.
        simulations: number of simulated studies per combination.
        seed: seed of the simulation.
        progress: wrapper of the iteration, such as ``vl.progress``, which shows a bar.

    Raises ArgumentError for invalid arguments.
    """
    import pandas as pd

    one_of(kind, "kind", tuple(_MAX_DIFFERENCE))
    claim = claim or ("different" if margin is None else "equivalent")
    one_of(claim, "claim", claims_of(kind))
    between(alpha, "alpha", 0.0, 0.5)
    whole(simulations, "simulations", 100)
    _check_sizes(kind, difference, claim, margin)
    sds, pilot_df = _sds(kind, sd, pilot)
    tests = math.comb(whole(systems, "systems", 2), 2)
    sizes = [_counts("listeners", listeners, 2), _counts("items", items, 2)]
    combinations = progress(list(itertools.product(*sizes)))
    study = (kind, difference, sds, (claim, margin), alpha / tests)
    rows = [_row(study, numbers, _pilot_scales(pilot_df), simulations, seed) for numbers in combinations]
    sd_by_name = dict(zip(("listeners", "items", "answers"), sds, strict=True))
    sides = "one-sided" if kind == "ABX" else _SIDES.get(claim, "one-sided")
    within = "" if margin is None else f", margin {margin:g}"
    notes = (f"Claim: {claim}{within} ({sides}).", *_pilot_note(pilot_df))
    return PowerPlan(pd.DataFrame(rows), difference, sd_by_name, alpha, notes, kind)


def _pilot_scales(df: float) -> tuple[float, ...]:
    """Return the factors that convert a pilot's SDs to their upper and lower 95 % limits; () for assumed SDs."""
    from scipy.stats import chi2

    return tuple(math.sqrt(df / float(chi2.ppf(tail, df))) for tail in (0.025, 0.975)) if math.isfinite(df) else ()


def _row(
    study: tuple[str, float, _Sds, _Claim, float],
    numbers: tuple[int, ...],
    scales: tuple[float, ...],
    simulations: int,
    seed: int,
) -> dict[str, float]:
    """Return the power of a design, and its interval; with ``scales``, the ends are the powers at the limits of the SDs."""
    kind, difference, sds, claim, level = study
    row = _power(study, numbers, simulations, seed)
    for end, scale in zip(("low", "high"), scales, strict=False):
        scaled = (scale * sds[0], scale * sds[1], scale * sds[2])
        row[end] = _power((kind, difference, scaled, claim, level), numbers, simulations, seed)[end]
    return row


def _pilot_note(df: float) -> list[str]:
    note = f"Intervals include the uncertainty of the pilot's SDs ({df:.3g} degrees of freedom): use the column low."
    return [note] if math.isfinite(df) else []


def _check_sizes(kind: str, difference: float, claim: str, margin: float | None) -> None:
    largest, chosen = _MAX_DIFFERENCE[kind], kind in {"AB", "ABX"}
    if kind == "ABX" and difference < _CHANCE:
        raise ArgumentError.of("difference", f"must be at least {_CHANCE:g} for ABX (guessing), got {difference!r}")
    between(difference, "difference", 0.0 if chosen else -largest, largest)
    if (margin is None) == (claim in {"not worse", "equivalent"}):
        rule = "required" if margin is None else "not allowed"
        raise ArgumentError.of(
            "margin", f"is {rule} for the claim {claim!r}; the claims 'not worse' and 'equivalent' need one"
        )
    if margin is not None:
        between(margin, "margin", 0.0, 0.5 if chosen else largest)


def _counts(name: str, values: Sequence[int] | int, minimum: int) -> list[int]:
    """Validate numbers of listeners, items, repeats or texts; a single number becomes a list of length 1."""
    several = [values] if np.ndim(values) == 0 else list(values)  # type: ignore[arg-type]
    if not several:
        raise ArgumentError.of(name, "at least one number is required")
    return [whole(value, name, minimum) for value in several]


def _power(
    study: tuple[str, float, _Sds, _Claim, float],
    numbers: tuple[int, ...],
    simulations: int,
    seed: int,
) -> dict[str, float]:
    kind, difference, sds, claim, level = study
    listeners, items = numbers
    rng, chosen = np.random.default_rng((seed, *numbers)), kind in {"AB", "ABX"}
    size = max(1, min(simulations, _MAX_VALUES // (listeners * items)))
    tables = [
        _studies(chosen, difference, sds, (min(size, simulations - begin), *numbers), rng)
        for begin in range(0, simulations, size)
    ]
    power = float(np.concatenate([_hits(kind, table, claim, level) for table in tables]).mean())
    half_width = 1.96 * math.sqrt(max(power * (1.0 - power), 1.0 / simulations) / simulations)
    row = {"listeners": listeners, "items": items, "answers": math.prod(numbers), "power": power}
    return row | {"low": max(0.0, power - half_width), "high": min(1.0, power + half_width)}


def _sds(kind: str, sd: _Sds | None, pilot: ComparedPairs | CrossedTest | None) -> tuple[_Sds, float]:
    """Return the SDs and the mean degrees of freedom of the pilot, which are infinite if there is no pilot."""
    if (sd is None) == (pilot is None):
        raise ArgumentError.of("sd", "pass either sd or pilot")
    if pilot is not None:
        candidates = [pilot] if isinstance(pilot, CrossedTest) else pilot.crossed.values()
        tests = [test for test in candidates if test.sd[2] > 0.0]
        if not tests:
            raise ArgumentError.of(
                "pilot", "must be a result with listeners and items as random effects and a residual variance above 0"
            )
        # A logit changes by 1 / (p (1 - p)) per unit of share.
        units = [test.estimate.value * (1.0 - test.estimate.value) if test.null else 1.0 for test in tests]
        sds = np.array([np.array(test.sd) / unit for test, unit in zip(tests, units, strict=True)])
        listener, item, residual = np.sqrt(np.square(sds).mean(axis=0))
        df = float(np.mean([test.df for test in tests]))
        return (float(listener), float(item), float(residual)), df
    unit = ", in logits (the last is ignored)" * (kind in {"AB", "ABX"})
    listener, item, residual = _deviations(
        sd, f"three numbers of at least 0, of listeners, items and responses{unit}", 3
    )
    return (listener, item, residual), math.inf


def _deviations(sd: Any, rule: str, count: int) -> tuple[float, ...]:
    """Validate ``count`` SDs. Raises ArgumentError, which states the ``rule``."""
    try:
        values = tuple(map(float, sd))
    except (TypeError, ValueError):
        values = ()
    if len(values) != count or not all(math.isfinite(value) and value >= 0.0 for value in values):
        raise ArgumentError.of("sd", f"must be {rule}, got {sd!r}")
    return values


def _studies(chosen: bool, difference: float, sds: _Sds, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Simulate responses, shape (studies, listeners, items)."""
    count, listeners, items = shape
    effects = rng.normal(0, sds[0], (count, listeners, 1)) + rng.normal(0, sds[1], (count, 1, items))
    if not chosen:
        noise: Floats = rng.normal(0, sds[2], (count, listeners, items))
        return difference + effects + noise
    # Scale the logit to the population-averaged share.
    scale = math.sqrt(1.0 + _LOGISTIC**2 * (sds[0] ** 2 + sds[1] ** 2))
    probability = 1.0 / (1.0 + np.exp(-(math.log(difference / (1.0 - difference)) * scale + effects)))
    return (rng.random(shape) < probability).astype(np.float64)


def _hits(kind: str, tables: Floats, claim: _Claim, alpha: float) -> Floats:
    """Return for each study 1 if its result is significant and 0 otherwise, shape (studies,)."""
    from scipy.stats import t

    chosen = kind in {"AB", "ABX"}
    mean, error, df, _ = complete_tables(tables, 1.0)
    effect = mean - (0.5 if chosen else 0.0)
    above, below = (t.sf((effect + (claim[1] or 0.0)) / error, df), t.sf(((claim[1] or 0.0) - effect) / error, df))
    if claim[0] == "equivalent":
        p = below if kind == "ABX" else np.maximum(above, below)
    else:
        p = 2.0 * np.minimum(above, below) if claim[0] == "different" and kind != "ABX" else above
    return np.asarray(p <= alpha, np.float64)


def plan_sweep(
    difference: float,
    *,
    texts: int | Sequence[int] = (3, 6, 12, 24),
    repeats: int | Sequence[int] = (1, 2, 4, 8),
    sd: tuple[float, float] | None = None,
    pilot: Effects | None = None,
    metric: str | None = None,
    levels: int = 2,
    tests: int = 1,
    alpha: float = 0.05,
) -> PowerPlan:
    """Compute the power of ``effects()`` to detect that one level of an axis differs, with texts as a random effect.

    Args:
        difference: difference of one level from all others, in the metric's unit.
        texts: numbers of texts to compare; a single text is a fixed effect.
        repeats: numbers of takes per level and text to compare.
        sd: two SDs: that of the difference between texts, and that of repeated takes.
        pilot: a result of ``effects`` with texts as a block, from which ``sd`` is taken.
        metric: metric of the pilot; default: its first.
        levels: number of levels of the axis.
        tests: number of metrics times axes; the significance level is that of the first step of Holm's correction.
        alpha: level of the test.

    Variances are assumed to be equal. For two levels, the power is exact, by the noncentral t distribution; for more
    levels, it is from 9,999 simulated studies. Raises ArgumentError for invalid arguments.
    """
    import pandas as pd

    if (sd is None) == (pilot is None):
        raise ArgumentError.of("sd", "pass either sd or pilot")
    between(difference, "difference", -math.inf, math.inf)
    rule = "two numbers of at least 0, of texts and takes, not both 0"
    text_sd, take_sd, pilot_df = (
        _of_pilot(pilot, metric) if sd is None else (*_deviations(sd, rule, 2), math.inf)  # type: ignore[arg-type]
    )
    if not text_sd + take_sd > 0.0:
        raise ArgumentError.of("sd" if pilot is None else "pilot", f"must be {rule}, got {sd or (text_sd, take_sd)!r}")
    level = between(alpha, "alpha", 0.0, 0.5) / whole(tests, "tests", 1)
    whole(levels, "levels", 2)
    rows = []
    for count, times in itertools.product(_counts("texts", texts, 1), _counts("repeats", repeats, 1)):
        # SD of one level in one text; a single text is fixed.
        sd_of_level = math.sqrt((count > 1) * text_sd**2 / 2.0 + take_sd**2 / times)
        scales = (1.0, *(_pilot_scales(pilot_df) or (1.0, 1.0)))
        shifts = [difference / (sd_of_level * scale) if sd_of_level else math.inf for scale in scales]
        powers = [_power_of_levels(count, times, levels, shift, level) for shift in shifts]
        numbers = {"texts": count, "repeats": times, "answers": levels * count * times}
        rows.append({**numbers, **dict(zip(("power", "low", "high"), powers, strict=True))})
    sds, notes = {"texts": text_sd, "takes": take_sd}, tuple(_pilot_note(pilot_df))
    head = (
        f"Sides: two-sided, the largest difference from the first of {levels} levels."
        if levels > 2
        else "Sides: two-sided."
    )
    return PowerPlan(pd.DataFrame(rows), difference, sds, alpha, (head, *notes))


def _power_of_levels(texts: int, repeats: int, levels: int, shift: float, level: float) -> float:
    """Return the power of a test at ``level`` if one level differs by ``shift``, in SDs of a level's mean in a text."""
    df = (texts - 1) * (levels - 1) if texts > 1 else levels * (repeats - 1)
    # One text with one take per level leaves no residual degrees of freedom.
    if not df or not shift:
        return level * (df > 0)
    if levels == 2:
        return t_power(abs(shift) * math.sqrt(texts / 2.0), df, level)
    draws: Callable[..., Floats] = functools.partial(smallest_p_of_texts, texts, (levels,))
    if texts == 1:
        shares = np.vstack([np.ones((1, levels - 1, levels - 1)), [np.diag(row) for row in np.eye(levels - 1)]])
        draws = functools.partial(smallest_p_of_takes, shares.tobytes(), (repeats - 1.0,) * levels, float(df))
    return float((draws(shift=shift) <= largest_p(draws(shift=0.0), levels - 1, level)).mean())


def _of_pilot(pilot: Effects, metric: str | None) -> tuple[float, float, float]:
    """Estimate from a pilot the SD between texts of a level's difference, the SD of repeated takes, and their df."""
    contrasts, variance = pilot.contrasts, pilot.variance
    metric = metric if metric is not None else str(contrasts["metric"].iloc[0])
    rows = contrasts[contrasts["metric"] == metric]
    if "error_texts" not in rows or rows.empty or not np.isfinite(rows["error_texts"]).any():
        raise ArgumentError.of("pilot", f"must be a result of effects() with texts as a block for {metric!r}")
    take_sd = variance[(variance["metric"] == metric) & variance["source"].isin(["sampling", "residual"])]["sd"].iloc[0]
    count = rows["df_texts"] + 1.0
    # The error with random texts also includes the variance of takes, which the error with fixed texts estimates.
    between_texts = np.square(rows["error_texts"]) * count - np.square(rows["error"]) * count
    return math.sqrt(max(0.0, float(between_texts.mean()))), float(take_sd), float(rows["df_texts"].mean())
