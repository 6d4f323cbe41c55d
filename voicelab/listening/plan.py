"""Preregistration of the confirmatory analysis with a digest, and a report of a study's deviations from it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from voicelab.errors import ArgumentError, StoreError
from voicelab.stats import CrossedTest, Estimate
from voicelab.stats.crossed import Claim, claims_of
from voicelab.stats.estimate import between, one_of, p_text, whole
from voicelab.storage import write_atomic

_PREPOSITIONS: Final[Mapping[Claim, str]] = {
    "better": "than",
    "different": "from",
    "not worse": "than",
    "equivalent": "to",
}
_CLAIMS_WITH_MARGIN: Final = ("not worse", "equivalent")


@dataclass(frozen=True)
class Plan:
    """Confirmatory analysis of a study, registered before data collection.

    Args:
        hypothesis: expected result, in words.
        primary: the two systems to compare.
        listeners: number of listeners to analyze.
        claim: claim about the first system relative to the second: "different" (two-sided), "better", "not worse" (one-sided)
            or "equivalent" (two one-sided tests). ABX has no direction: "different" (one-sided: correct above chance) or
            "equivalent".
        margin: for "not worse" and "equivalent", the largest irrelevant difference: in rating points, or for AB and ABX
            as a distance of the proportion from 0.5.
        alpha: type I error.
        exclusions: exclusion criteria, in words, in addition to those of ``analyze``.
        stopping: stopping rule, in words.
        design: record of the test. ``register`` sets it and ``registered``, the time of registration (UTC).

    Raises ArgumentError for an unknown claim, a missing or superfluous margin, or a number out of range.
    """

    hypothesis: str
    primary: tuple[str, str]
    listeners: int
    claim: Claim = "better"
    margin: float | None = None
    alpha: float = 0.05
    exclusions: str = "the screening of voicelab's analyze()"
    stopping: str = "when the planned number of listeners has completed the test"
    design: Mapping[str, Any] = field(default_factory=dict, repr=False)
    registered: str = ""

    def __post_init__(self) -> None:
        one_of(self.claim, "claim", claims_of(self.design.get("kind", "")))
        if (self.margin is not None) != (self.claim in _CLAIMS_WITH_MARGIN):
            rule = "required" if self.margin is None else "not allowed"
            raise ArgumentError.of("margin", f"{rule} for the claim {self.claim!r}")
        if self.margin is not None and not self.margin > 0.0:
            raise ArgumentError.of("margin", f"must be above 0, got {self.margin}")
        between(self.alpha, "alpha", 0.0, 1.0)
        object.__setattr__(self, "listeners", whole(self.listeners, "listeners", 2))

    @property
    def _abx(self) -> bool:
        return self.design.get("kind") == "ABX"

    @property
    def sides(self) -> str:
        """Words before the p-value: "two-sided" or "one-sided"; for "equivalent", "two one-sided tests,"."""
        return (
            "one-sided"
            if self._abx
            else {"different": "two-sided", "equivalent": "two one-sided tests,"}.get(self.claim, "one-sided")
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the plan and its registration time, for publication or deposit."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        content = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "design"}
        design = json.dumps(dict(self.design), sort_keys=True, ensure_ascii=False)
        return {**content, "primary": list(self.primary), "design": design}

    def save(self, path: str | Path) -> None:
        """Write the plan as TOML with its digest. Raises StoreError if the file exists or writing fails."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in self._content().items() if value is not None]
        data = "\n".join([*lines, f'digest = "{self.digest}"', ""]).encode()
        if not write_atomic(Path(path), data, replace=False):
            raise StoreError(f"{path} exists, and registering never replaces a file; choose another path")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a registered plan. Raises StoreError if it cannot be read or does not match its digest."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            digest = content.pop("digest")
            content |= {"primary": tuple(content["primary"]), "design": json.loads(content["design"])}
            plan = cls(**content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} cannot be read as a plan: {error}") from error
        if plan.digest != digest:
            raise StoreError(f"{path} was changed after it was registered: its digest differs")
        return plan


@dataclass(frozen=True)
class PlannedOutcome:
    """Result of a plan: the confirmatory test, and the deviations of the study from the registration."""

    plan: Plan
    test: CrossedTest | None
    p: float | None
    departures: tuple[str, ...]

    @property
    def estimate(self) -> Estimate | None:
        """Estimate with the interval that corresponds to p: at 1 - alpha for "different", otherwise at 1 - 2 alpha."""
        sides = 1.0 if self.plan.sides == "two-sided" else 2.0
        return None if self.test is None else self.test.interval(max(0.01, 1.0 - sides * self.plan.alpha))

    @property
    def holds(self) -> bool:
        """Whether the test supports the claim at the planned alpha."""
        return self.p is not None and self.p < self.plan.alpha

    def __str__(self) -> str:
        plan = self.plan
        first, second = plan.primary
        scales = plan.design.get("scales", ())
        claim = f"{first} is {plan.claim} {_PREPOSITIONS[plan.claim]} {second}" + (
            f" on {scales[0][0]}" if scales else ""
        )
        margin = "" if plan.margin is None else f" within {plan.margin:g}"
        if self.p is None or self.test is None:
            verdict = "could not be tested as planned"
        else:
            supported = f"{'supported' if self.holds else 'not supported'} at alpha {plan.alpha:g}"
            method = self.test.name.rpartition(", ")[0]  # without the sides of the unplanned test
            verdict = f"{supported}, {plan.sides} {p_text(self.p)}; {self.estimate}, {method}"
        lines = [f"confirmatory, as registered: {claim}{margin}: {verdict}"]
        return "\n  ".join([*lines, *(f"deviation from the plan: {departure}" for departure in self.departures)])


def outcome(
    plan: Plan,
    design: Mapping[str, Any],
    crossed: Mapping[tuple[str, str], CrossedTest],
    *,
    listeners: int,
    begun: str | None,
) -> PlannedOutcome:
    """Select the planned test among ``crossed``, and list the deviations from the plan.

    ``begun`` is the time of the first response; None if unknown.
    """
    test, reverse = crossed.get(plan.primary), crossed.get(plan.primary[::-1])
    if test is None and reverse is not None:
        test = reverse if design["kind"] == "ABX" else reverse.turned()  # correct responses have no direction
    p = None if test is None else _p(plan, test)
    return PlannedOutcome(plan, test, p, tuple(_departures(plan, design, test, listeners, begun)))


def _p(plan: Plan, test: CrossedTest) -> float:
    margin, null = plan.margin or 0.0, test.null
    above, below = test.p_above(null - margin), test.p_below(null + margin)
    if plan.sides == "two-sided":
        return min(1.0, 2.0 * min(above, below))
    if plan.claim == "equivalent":
        return below if plan.sides == "one-sided" else max(above, below)
    return above


def _departures(
    plan: Plan, design: Mapping[str, Any], test: CrossedTest | None, listeners: int, begun: str | None
) -> Iterator[str]:
    for name in sorted({*plan.design, *design} - {"gains_db"}):
        planned, actual = plan.design.get(name), design.get(name)
        if planned != actual:
            yield f"{name} was {planned!r} and is {actual!r}"
    if plan.design.get("gains_db") != design.get("gains_db") and plan.design.get("items") == design.get("items"):
        yield "the sounds or their levels differ"
    if listeners != plan.listeners:
        yield f"{plan.listeners} listeners were planned, {listeners} were analyzed"
    if begun is not None and begun < plan.registered:
        yield f"the first response was given on {begun}, before the plan was registered"
    if test is None:
        yield "the responses do not allow the crossed analysis, so the claim was not tested"
