"""Cumulative link model of ordinal ratings with crossed random effects."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import between, interval, p_text
from voicelab.stats.mixed import Codes, Floats, codes_of, count_of, indicators, pairs_of

if TYPE_CHECKING:
    import pandas as pd

_MAX_CATEGORIES = 20
_MAX_ITERATIONS = 100
# The information at the mode is then exact, too; the gain by rounding alone is 2e-27 for 1,440 effects.
_MIN_GAIN = 1e-22
# A step that gains more than this share of the last one's gain converges slowly.
_MAX_GAIN_RATIO = 0.3
# Logarithm of the smallest SD of a random effect.
_MIN_LOG_SD = -7.0
# Log odds of three million to one.
_MAX_LOGIT = 15.0


@dataclass(frozen=True, eq=False)
class OrdinalModel:
    """Effects of systems on the odds of a higher rating category.

    ``thresholds`` (categories - 1,) are those of the first system, in logits. ``pairs`` has a row per pair with
    ``log_odds``, the log odds ratio of a higher category for ``first`` over ``second``, ``error``, ``low``, ``high``,
    ``p`` (Wald's z) and ``p_holm``. ``sd`` are the SDs of the random effects, and ``log_likelihood`` is Laplace's
    approximation.
    """

    thresholds: Floats = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)
    sd: dict[str, float]
    log_likelihood: float

    def __str__(self) -> str:
        lines = [
            f"{row['first']} - {row['second']}: odds of a higher category × {_odds(row['log_odds']):.3g} "
            f"{interval(_odds(row['low']), _odds(row['high']))}, Holm-corrected {p_text(row['p_holm'])}"
            for row in self.pairs.to_dict("records")
        ]
        return "\n".join([*lines, "SD: " + ", ".join(f"{name} {value:.3g}" for name, value in self.sd.items())])


def _odds(logit: float) -> float:
    return math.exp(logit) if logit < 700.0 else math.inf


def ordinal_model(frame: pd.DataFrame, *, interactions: bool = True, confidence: float = 0.95) -> OrdinalModel:
    """Fit a proportional odds model of ratings with crossed random effects of listeners and items.

    Because ratings from 1 to 5 are ordinal, the model serves as a sensitivity analysis of ``mixed_model``. The model is that
    of P. McCullagh, "Regression models for ordinal data", JRSS B 42 (1980), with random effects integrated by Laplace's
    approximation, as in R's ordinal::clmm. p is from Wald's test, which is too small if there are few listeners or items, so
    compare only the order and size of differences with those of ``mixed_model``.

    Args:
        frame: a row per rating, with the columns rating, system, listener and item.
        interactions: include listener x system and item x system.
        confidence: level of the intervals.

    Raises ArgumentError for a missing column, a single system, or fewer than 2 or more than 20 categories, and if the
    ratings of systems do not overlap, since no finite odds exist then.
    """
    between(confidence, "confidence", 0.0, 1.0)
    for column in ("rating", "system", "listener", "item"):
        if column not in frame.columns:
            raise ArgumentError.of("frame", f"must have a column {column!r}, got {list(frame.columns)}")
    categories, ratings = np.unique(frame["rating"].to_numpy(np.float64), return_inverse=True)
    if not 2 <= categories.size <= _MAX_CATEGORIES:
        raise ArgumentError.of("rating", f"must have 2 to {_MAX_CATEGORIES} categories, got {categories.size}")
    systems = codes_of(frame["system"])
    names = [str(name) for name in frame["system"].unique()]
    if len(names) < 2:
        raise ArgumentError.of("system", f"must include at least two systems, got only {names[0]!r}")
    groups = {name: codes_of(frame[name]) for name in ("listener", "item")}
    groups = {name: code for name, code in groups.items() if count_of(code) > 1}
    if interactions:
        crossed = {f"{name} x system": codes_of(code * len(names) + systems) for name, code in groups.items()}
        groups |= {name: code for name, code in crossed.items() if count_of(code) < code.size}
    model = CumulativeLink(np.asarray(ratings, np.intp), indicators(systems)[:, 1:], list(groups.values()))
    roots, effects, covariance, likelihood = model.fit()
    logits = np.concatenate(([0.0], effects[categories.size - 1 :]))
    if np.ptp(logits) > _MAX_LOGIT:
        rule = "ratings of systems must overlap, or the odds are infinite"
        raise ArgumentError.of(
            "rating", f"{rule}; use the crossed test of analyze() (result.crossed) for an interval and p"
        )
    system_covariance = np.zeros((len(names), len(names)))
    system_covariance[1:, 1:] = covariance[categories.size - 1 :, categories.size - 1 :]
    pairs = pairs_of(names, logits, system_covariance, lambda _: math.inf, confidence, "log_odds")
    sd = dict(zip(groups, map(float, roots), strict=True))
    return OrdinalModel(effects[: categories.size - 1], pairs, sd, likelihood)


class CumulativeLink:
    """Likelihood of ordered categories: logit P(y <= j) = threshold_j - design @ beta - random effects.

    ``ratings`` (n,) are category indices from 0, ``design`` (n, columns) is the matrix of fixed effects, and ``groups``
    are the codes of each random effect. The parameters are the lowest threshold and the logarithms of the steps between
    thresholds, which keeps them ordered, then the coefficients and the log SDs.
    """

    def __init__(self, ratings: Codes, design: Floats, groups: list[Codes]) -> None:
        self.ratings, self.design = ratings, design
        self.categories = count_of(ratings)
        self.fixed = self.categories - 1 + design.shape[1]
        # The largest group is separated and eliminated in closed form, since no rating has two of its levels.
        self.order = sorted(range(len(groups)), key=lambda index: -count_of(groups[index]))
        self.groups = [groups[index] for index in self.order] or [np.zeros(ratings.size, np.intp)]
        self.sizes = [count_of(code) for code in self.groups]
        self.largest, self.starts = self.sizes[0], np.cumsum([0, *self.sizes])
        self.columns = np.stack([code + start for code, start in zip(self.groups, self.starts, strict=False)])
        # Cells of the products of all levels with those of the other groups.
        rest = sum(self.sizes) - self.largest
        pairs = [row * rest + column - self.largest for row in self.columns for column in self.columns[1:]]
        self.cells = np.concatenate([np.zeros(0, np.intp), *pairs])
        self._modes = np.zeros(sum(self.sizes))
        self._last: _Information | None = None

    def fit(self) -> tuple[Floats, Floats, Floats, float]:
        """Return the SDs of random effects, thresholds with coefficients and their covariance, and the log likelihood."""
        from scipy.optimize import minimize

        shares = np.cumsum(np.bincount(self.ratings))[:-1] / self.ratings.size
        cuts, count = np.log(shares / (1.0 - shares)), len(self.order)
        start = np.array([cuts[0], *np.log(np.diff(cuts)), *np.zeros(self.design.shape[1]), *np.full(count, -0.5)])
        bounds = [(None, None)] * self.fixed + [(_MIN_LOG_SD, 3.0)] * count
        best = minimize(self.deviance, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 400})
        optimum = np.asarray(best.x, np.float64)
        # An SD at its lower bound represents 0 and has a zero gradient.
        free = np.flatnonzero([*[True] * self.fixed, *(optimum[self.fixed :] > _MIN_LOG_SD + 0.5)])
        step, rows = 1e-3, []
        for axis in np.eye(optimum.size)[free]:
            ends = [self.deviance(optimum + sign * step * axis)[1][free] for sign in (1.0, -1.0)]
            rows.append((ends[0] - ends[1]) / (2.0 * step))
        inverse = np.linalg.pinv((np.array(rows) + np.array(rows).T) / 2.0, hermitian=True)
        value, gradient = self.deviance(optimum)
        polished = optimum.copy()
        polished[free] -= inverse @ gradient[free]
        lower = self.deviance(polished)[0]
        optimum, value = (polished, lower) if lower < value else (optimum, value)
        covariance = 2.0 * inverse[: self.fixed, : self.fixed]
        jacobian = self._jacobian(optimum)
        effects = np.concatenate((self._thresholds(optimum), optimum[self.categories - 1 : self.fixed]))
        roots = np.zeros(count)
        logs = optimum[self.fixed :]
        roots[self.order] = np.where(logs > _MIN_LOG_SD + 0.5, np.exp(logs), 0.0)
        return roots, effects, jacobian @ covariance @ jacobian.T, -value / 2.0

    def _thresholds(self, parameters: Floats) -> Floats:
        steps = np.exp(np.clip(parameters[1 : self.categories - 1], -30.0, 30.0))
        return np.asarray(parameters[0] + np.concatenate(([0.0], np.cumsum(steps))), np.float64)

    def _jacobian(self, parameters: Floats) -> Floats:
        """Return the derivatives of thresholds and coefficients with respect to the parameters."""
        jacobian, steps = np.eye(self.fixed), np.exp(np.clip(parameters[1 : self.categories - 1], -30.0, 30.0))
        for row in range(1, self.categories - 1):
            jacobian[row, 0], jacobian[row, 1 : row + 1] = 1.0, steps[:row]
        return jacobian

    def deviance(self, parameters: Floats) -> tuple[float, Floats]:
        """Compute -2 times Laplace's log likelihood at the mode of the random effects, and its gradient.

        Newton's method starts at the mode of the previous call, and reuses that call's information matrix while it converges.
        """
        cuts = np.concatenate(([-np.inf], self._thresholds(parameters), [np.inf]))
        predictor = self.design @ parameters[self.categories - 1 : self.fixed]
        scales = np.exp(parameters[self.fixed :]) if self.order else np.zeros(1)
        scale, modes = np.repeat(scales, self.sizes), self._modes

        def at(modes: Floats) -> tuple[float, _Link]:
            link = _Link(
                cuts[self.ratings], cuts[self.ratings + 1], predictor + (scale * modes)[self.columns].sum(axis=0)
            )
            return link.loss + 0.5 * float(modes @ modes), link

        # Information is costly, so that of the last call serves until its steps converge slowly.
        (value, link), information, last = at(modes), self._last, math.inf
        for _ in range(_MAX_ITERATIONS):
            gradient = scale * self._sums(link.score) - modes
            direction = information.solve(gradient) if information else gradient
            gain = 0.5 * float(gradient @ direction)
            if information is None or gain > _MAX_GAIN_RATIO * last:
                information, last = self._information(link, scale), math.inf
                continue
            if gain < _MIN_GAIN:
                break
            rate = 1.0
            while rate > 1e-4 and (after := at(modes + rate * direction))[0] > value + 1e-9:
                rate /= 2.0
            last, modes, (value, link) = gain, modes + rate * direction, after
        self._modes = modes
        self._last = information = self._information(link, scale)
        return 2.0 * value + information.log_determinant, self._gradient(parameters, link, information, scale)

    def _sums(self, values: Floats) -> Floats:
        """Sum values (n,) over the ratings of each level of each group."""
        return np.concatenate(
            [np.bincount(code, values, size) for code, size in zip(self.groups, self.sizes, strict=True)]
        )

    def _information(self, link: _Link, scale: Floats) -> _Information:
        """Return the information matrix of the random effects: the identity plus weighted products of their indicators."""
        total, split = int(self.starts[-1]), self.largest
        weights = np.tile(link.weight, len(self.columns) * len(self.columns[1:]))
        sums = np.bincount(self.cells, weights, total * (total - split)).reshape(total, total - split)
        products = sums * (scale[:, None] * scale[None, split:])
        diagonal = 1.0 + scale[:split] ** 2 * np.bincount(self.groups[0], link.weight, split)
        return _Information(diagonal, products[:split], products[split:] + np.eye(total - split))

    def _gradient(self, parameters: Floats, link: _Link, information: _Information, scale: Floats) -> Floats:
        rest, links, diagonal = information.inverse()
        split, (lead, *columns) = self.largest, self.columns
        scaled_rest, scaled_links = rest * scale[None, split:] * scale[split:, None], links * scale[None, split:]
        variance = (scale[:split] ** 2 * diagonal)[lead]
        for column in columns:
            variance = variance + 2.0 * scale[lead] * scaled_links[lead, column - split]
            for second in columns:
                variance = variance + scaled_rest[column - split, second - split]
        # The mode moves with the parameters; this is the effect on the determinant.
        moved = information.solve(scale * self._sums(variance * link.weight_slope))
        shift = (scale * moved)[self.columns].sum(axis=0)
        of_predictor = -2.0 * link.score + variance * link.weight_slope - shift * link.weight
        upper = (
            -2.0 * link.upper / link.probability + variance * link.upper * (1.0 - 2.0 * link.above) + shift * link.upper
        )
        lower = (
            2.0 * link.lower / link.probability + variance * link.lower * (1.0 - 2.0 * link.below) + shift * link.lower
        )
        cuts = np.bincount(self.ratings + 1, upper, self.categories + 1) + np.bincount(
            self.ratings, lower, self.categories + 1
        )
        effects = np.concatenate([cuts[1:-1], self.design.T @ of_predictor]) @ self._jacobian(parameters)
        inverse, sds = np.concatenate([diagonal, rest.diagonal()]), []
        for begin, end, column in zip(self.starts, self.starts[1:], self.columns, strict=False):
            block = slice(begin, end)
            explicit = 2.0 * (end - begin - inverse[block].sum()) + moved[block] @ self._modes[block]
            sds.append(explicit + of_predictor @ (scale * self._modes)[column])
        return np.concatenate([effects, sds[: len(self.order)]])


class _Link:
    """Probabilities of the ratings at a linear predictor (n,), and their derivatives."""

    def __init__(self, low: Floats, high: Floats, predictor: Floats) -> None:
        from scipy.special import expit

        self.above, self.below = expit(high - predictor), expit(low - predictor)
        self.probability = np.maximum(self.above - self.below, 1e-300)
        self.upper, self.lower = self.above * (1.0 - self.above), self.below * (1.0 - self.below)
        self.loss = -float(np.log(self.probability).sum())
        # d log(probability) / d predictor, for the logistic link; its negative slope; the slope of that.
        self.score, self.weight = self.above + self.below - 1.0, self.upper + self.lower
        self.weight_slope = self.upper * (2.0 * self.above - 1.0) + self.lower * (2.0 * self.below - 1.0)


class _Information:
    """A matrix whose first block is diagonal, factorized by the Schur complement of that block."""

    def __init__(self, diagonal: Floats, links: Floats, rest: Floats) -> None:
        from scipy.linalg import cho_factor

        root = np.sqrt(diagonal)[:, None]
        scaled = links / root
        self.diagonal, self.links = diagonal, scaled / root
        self.factor = cho_factor(rest - scaled.T @ scaled, lower=True, check_finite=False) if rest.size else None
        self.log_determinant = float(np.log(diagonal).sum())
        if self.factor is not None:
            self.log_determinant += 2.0 * float(np.log(self.factor[0].diagonal()).sum())

    def solve(self, values: Floats) -> Floats:
        """Solve for values (size,)."""
        split = self.diagonal.size
        rest = self._inner(values[split:] - self.links.T @ values[:split])
        return np.concatenate([values[:split] / self.diagonal - self.links @ rest, rest])

    def inverse(self) -> tuple[Floats, Floats, Floats]:
        """Return blocks of the inverse: the last block, the off-diagonal block, and the diagonal of the first block."""
        rest = self._inner(np.eye(self.links.shape[1]))
        links = -self.links @ rest
        return rest, links, 1.0 / self.diagonal - np.einsum("ij,ij->i", links, self.links)

    def _inner(self, values: Floats) -> Floats:
        from scipy.linalg import cho_solve

        return values if self.factor is None else np.asarray(cho_solve(self.factor, values, check_finite=False))
