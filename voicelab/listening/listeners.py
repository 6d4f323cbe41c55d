"""Screening of listeners by P.808 and MUSHRA, and the choices, sensitivity and dispersion of each listener."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from voicelab.listening.design import REFERENCE, SINGLE, ListeningTest
from voicelab.stats import binomial, screen_mushra

if TYPE_CHECKING:
    import pandas as pd

FAILED_CHECKS: Final = 0.25
_MIN_VARIANCE: Final = 0.1
# If both sounds are equally likely, p of as many equal choices is at most .05.
_MIN_EQUAL_CHOICES: Final = 6
_Failure = tuple[str, str, str, str]


@dataclass(frozen=True)
class ScreenedResponses:
    """Responses of the listeners who passed the screening, and the rules that others failed.

    ``table`` has a row per listener and failed rule, with the columns listener, rule, trials and reason.
    """

    frame: pd.DataFrame = field(repr=False)
    table: pd.DataFrame
    notes: tuple[str, ...]


def screen(test: ListeningTest, frame: pd.DataFrame, *, complete: bool = False) -> ScreenedResponses:
    """Screen the listeners of a test by every rule that applies to the responses.

    - Gold questions (noise-masked attention checks): at most 25 % may be failed. In MOS, SMOS and DMOS, a rating above
      2 fails, since a rating of 1, ± 1, is expected.
    - Trapping questions: none may be failed.
    - MOS, SMOS, DMOS and CMOS with gold or trapping questions, following ITU-T P.808: the variance of a listener's ratings,
      excluding answers to these questions, must be at least 0.1. Where playbacks were counted, every response must follow a
      playback. If ``complete`` (``frame`` has every stored response), all trials must be answered.
    - MUSHRA: ``voicelab.stats.screen_mushra``.

    In other tests, a note names the listeners who answered less than half of the trials; they are not excluded. In AB and ABX
    a note names the listeners who always chose the first or always the second of at least six pairs.

    Thresholds are those of the P.808 toolkit: B. Naderi & R. Cutler, "An open source implementation of ITU-T Recommendation
    P.808 with validation", Interspeech 2020.
    """
    import pandas as pd

    failures, notes = list(_failed_checks(test, frame)), []
    p808 = test.kind in {*SINGLE, "CMOS"} and bool(test.checks or test.traps or frame["check"].any())
    if p808:
        failures += _p808(frame)
    counts = frame.groupby("listener", sort=False)["trial"].nunique()
    expected = len(test.trials(0)) if complete else int(counts.max())
    missing = counts[counts < expected]
    if p808 and complete:
        failures += [
            (str(name), "completeness", "", f"answered {n} of {expected} trials") for name, n in missing.items()
        ]
    elif few := [f"{name} ({count})" for name, count in missing.items() if 2 * count < expected]:
        notes.append(f"Listeners who answered less than half of {expected} trials: {', '.join(few)}.")
    excluded = {listener for listener, *_ in failures}
    frame = frame[~frame["listener"].isin(excluded) & ~frame["check"]]
    if test.kind == "MUSHRA" and not frame.empty:
        rows = frame[frame["scale"] == next(iter(test.scales))] if test.scales else frame
        screened = screen_mushra(rows, reference=REFERENCE, anchor="anchor70")
        trials = frame.drop_duplicates(["listener", "item"]).set_index(["listener", "item"])["trial"]
        for name, rule, items, reason in screened.table.itertuples(index=False, name=None):
            failures.append((str(name), rule, ", ".join(str(trials[name, item]) for item in items), reason))
        frame, notes = frame[frame["listener"].isin(screened.kept)], [*notes, *screened.notes]
    if test.kind in {"AB", "ABX"} and "first" in frame:
        shares = frame["first"].astype(float).groupby(frame["listener"], sort=False).agg(["mean", "size"])
        shares = shares[shares["mean"].isin([0.0, 1.0]) & (shares["size"] >= _MIN_EQUAL_CHOICES)]
        for name, share, count in shares.itertuples(name=None):
            notes.append(f"{name} chose the {'first' if share else 'second'} sound in all {count} trials.")
    table = pd.DataFrame(failures, columns=["listener", "rule", "trials", "reason"])
    return ScreenedResponses(frame, table, tuple(notes))


def _failed_checks(test: ListeningTest, frame: pd.DataFrame) -> Iterator[_Failure]:
    checks = frame[frame["check"]].drop_duplicates(["listener", "trial"])
    trapping = checks["item"].isin([f"trap {rating}" for rating in test.traps])
    for rule, mask, allowed in (("trapping questions", trapping, 0.0), ("attention checks", ~trapping, FAILED_CHECKS)):
        for name, rows in checks[mask].groupby("listener", sort=False):
            failed = rows[~rows["passed"].astype(bool)]
            if len(failed) > allowed * len(rows):
                yield str(name), rule, _ids(failed), f"failed {len(failed)} of {len(rows)} {rule}"


def _p808(frame: pd.DataFrame) -> Iterator[_Failure]:
    for name, rows in frame.groupby("listener", sort=False):
        rated = rows.loc[~rows["check"], "rating"]
        variance = rated.var(ddof=0)
        if len(rated) > 1 and variance < _MIN_VARIANCE:
            reason = f"variance of ratings {variance:.2g}, below {_MIN_VARIANCE:g}"
            yield str(name), "constant ratings", "", reason
        silent = rows[rows["plays"] == 0]
        if len(silent) and (frame["plays"] > 0).any():
            yield str(name), "playback", _ids(silent), f"{silent['trial'].nunique()} responses without playback"


def _ids(rows: pd.DataFrame) -> str:
    return ", ".join(dict.fromkeys(map(str, rows["trial"])))


_MAX_DPRIME: Final = 20.0
_DRAWS: Final = 999


def by_listener(choices: pd.DataFrame, *, abx: bool, confidence: float) -> pd.DataFrame:
    """Tabulate the ``choices`` (columns listener and value, 0 or 1) of each listener: see ``ListeningResult.by_listener``."""
    import pandas as pd

    rows, sided = [], max(0.01, 2.0 * confidence - 1.0) if abx else confidence
    for name, values in choices.groupby("listener", sort=False)["value"]:
        test = binomial(int(values.sum()), len(values), alternative="greater" if abx else "two-sided", confidence=sided)
        share = test.estimate
        row = {"listener": name, "responses": len(values), "share": share.value, "low": share.low, "high": share.high}
        row["p"] = test.p
        if abx:
            ends = (share.value, share.low, share.high)
            row |= dict(zip(("d'", "d' low", "d' high"), map(sensitivity, ends), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def sensitivity(share: float) -> float:
    """Return d' of ABX for a share of correct responses: 0 at 0.5 or less, infinite at 1.

    Assumes an unbiased listener with the differencing strategy (N. A. Macmillan & C. D. Creelman, "Detection Theory",
    2nd ed., 2005, chapter 9): because the sounds vary between trials, listeners compare X with A and with B.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    def excess(dprime: float) -> float:
        # The response is correct if the comparison of A with B and that of X with their mean are both right or both
        # wrong.
        between, with_x = ndtr(dprime / math.sqrt(2.0)), ndtr(dprime / math.sqrt(6.0))
        return float(between * with_x + (1.0 - between) * (1.0 - with_x)) - share

    if share <= 0.5:
        return 0.0
    return float(brentq(excess, 0.0, _MAX_DPRIME)) if excess(_MAX_DPRIME) > 0.0 else math.inf


def discriminators(share: float) -> float:
    """Return the proportion of trials in which X was recognized, if listeners guessed in all other trials."""
    return max(0.0, 2.0 * share - 1.0)


def dispersion(counts: npt.ArrayLike, trials: npt.ArrayLike) -> tuple[float, float]:
    """Return the ratio of the variance between listeners to the binomial variance, and the p-value for a ratio above 1.

    ``counts`` (listeners,) are the numbers of choices of 1 among ``trials`` (listeners,). The ratio is Pearson's chi
    squared divided by its degrees of freedom. p is from the conditional permutation test of this statistic, with 999
    random exchanges of responses between listeners. Both are NaN for a single listener and for unanimous responses.
    """
    ones, sizes = np.asarray(counts, np.int64), np.asarray(trials, np.int64)
    share, df = ones.sum() / sizes.sum(), ones.size - 1
    if not df or share in {0.0, 1.0}:
        return math.nan, math.nan
    draws = np.random.default_rng(0).multivariate_hypergeometric(sizes, int(ones.sum()), _DRAWS, method="marginals")
    # The observed arrangement is included among the exchanges.
    squares = np.square(np.vstack([ones, draws]) - sizes * share) / (sizes * share * (1.0 - share))
    statistics = squares.sum(axis=1) / df
    return float(statistics[0]), float((statistics >= statistics[0] - 1e-9).mean())
