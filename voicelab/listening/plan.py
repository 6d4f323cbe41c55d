"""Preregistration: what will be tested, written down and sealed before anybody is asked, and held against what was done."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from voicelab.errors import ArgumentError, StoreError
from voicelab.stats import CrossedTest, SignTest, Test
from voicelab.stats.estimate import between, one_of, whole
from voicelab.storage import write_atomic

Claim = Literal["better", "different", "not worse", "equivalent"]

_BEFORE: Final[Mapping[Claim, str]] = {"better": "than", "different": "from", "not worse": "than", "equivalent": "to"}
_NEEDS_MARGIN: Final = ("not worse", "equivalent")


@dataclass(frozen=True)
class Plan:
    """The one analysis that a study stands or falls by, fixed beforehand.

    Args:
        hypothesis: what is expected, in words.
        primary: the two systems that it is about.
        claim: of the first over the second: "better", "different", "not worse" or "equivalent".
        margin: for the last two, how much worse (or apart) is still as good: in points of the rating, or for AB in shares.
        alpha: the error that is accepted.
        listeners: how many are to count.
        exclusions: who is left out, in words, beside whom ``analyze`` leaves out by itself.
        stopping: when the asking ends, in words.
        design: the record of the test that it is for, and ``registered``, the time (UTC): both are set by ``register``.

    Raises ArgumentError for an unknown claim, a margin that is missing or has no use, and numbers out of range.
    """

    hypothesis: str
    primary: tuple[str, str]
    listeners: int
    claim: Claim = "better"
    margin: float | None = None
    alpha: float = 0.05
    exclusions: str = "as voicelab's analyze() does by itself"
    stopping: str = "when the planned number of listeners has answered everything"
    design: Mapping[str, Any] = field(default_factory=dict, repr=False)
    registered: str = ""

    def __post_init__(self) -> None:
        one_of(self.claim, "claim", get_args(Claim))
        if (self.margin is not None) != (self.claim in _NEEDS_MARGIN):
            wanted = "needs" if self.margin is None else "has no use for"
            raise ArgumentError.of("margin", f"the claim {self.claim!r} {wanted} a margin")
        if self.margin is not None and not self.margin > 0.0:
            raise ArgumentError.of("margin", "Input should be above 0")
        between(self.alpha, "alpha", 0.0, 1.0)
        object.__setattr__(self, "listeners", whole(self.listeners, "listeners", 2))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the plan says, its time too: what to print, or to deposit elsewhere."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        content = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "design"}
        design = json.dumps(dict(self.design), sort_keys=True, ensure_ascii=False)
        return {**content, "primary": list(self.primary), "design": design}

    def save(self, path: str | Path) -> None:
        """Write it as TOML with its digest. Raises StoreError where there is a file already, or the disk fails."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in self._content().items() if value is not None]
        data = "\n".join([*lines, f'digest = "{self.digest}"', ""]).encode()
        if not write_atomic(Path(path), data, replace=False):
            raise StoreError(f"{path} is there already: a plan is registered once")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a registered plan. Raises StoreError when it cannot be read, or was changed since: its digest says so."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            digest = content.pop("digest")
            content |= {"primary": tuple(content["primary"]), "design": json.loads(content["design"])}
            plan = cls(**content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} cannot be read as a plan: {error}") from error
        if plan.digest != digest:
            raise StoreError(f"{path} was changed after it was registered: its digest is another")
        return plan


@dataclass(frozen=True)
class PlannedOutcome:
    """What came of a plan: the confirmatory test, and where the study departs from what was registered."""

    plan: Plan
    test: Test | None
    p: float | None
    departures: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the claim is shown at the planned error."""
        return self.p is not None and self.p < self.plan.alpha

    def __str__(self) -> str:
        plan = self.plan
        one, two = plan.primary
        claim = f"{one} is {plan.claim} {_BEFORE[plan.claim]} {two}"
        margin = "" if plan.margin is None else f" within {plan.margin:g}"
        if self.p is None:
            verdict = "could not be tested as planned"
        else:
            verdict = f"{'shown' if self.holds else 'not shown'} at {plan.alpha:g}: p {self.p:.4g}; {self.test}"
        lines = [f"confirmatory, as registered: {claim}{margin}: {verdict}"]
        return "\n  ".join([*lines, *(f"departs from the plan: {departure}" for departure in self.departures)])


def outcome(
    plan: Plan,
    design: Mapping[str, Any],
    crossed: Mapping[tuple[str, str], CrossedTest],
    *,
    listeners: int,
    begun: str | None,
) -> PlannedOutcome:
    """Make the planned test of the crossed ones, and say what departs.

    ``begun`` is the time of the first vote, None where that is unknown.
    """
    test, reverse = crossed.get(plan.primary), crossed.get(plan.primary[::-1])
    if test is None and reverse is not None:
        test = reverse if design["kind"] == "ABX" else reverse.turned()  # right answers have no direction
    p = None if test is None else _p(plan, test)
    return PlannedOutcome(plan, test, p, tuple(_departures(plan, design, test, listeners, begun)))


def _p(plan: Plan, test: CrossedTest) -> float:
    margin, null = plan.margin or 0.0, test.null
    above, below = test.p_above(null - margin), test.p_below(null + margin)
    if plan.claim == "different":
        return min(1.0, 2.0 * min(above, below))
    return max(above, below) if plan.claim == "equivalent" else above


def _departures(
    plan: Plan, design: Mapping[str, Any], test: Test | None, listeners: int, begun: str | None
) -> Iterator[str]:
    for name in sorted({*plan.design, *design} - {"gains_db"}):
        planned, done = plan.design.get(name), design.get(name)
        if planned != done:
            yield f"{name} was {planned!r} and is {done!r}"
    if plan.design.get("gains_db") != design.get("gains_db") and plan.design.get("items") == design.get("items"):
        yield "the sounds are others, or at other levels"
    if listeners != plan.listeners:
        yield f"{plan.listeners} listeners were to count, and {listeners} do"
    if begun is not None and begun < plan.registered:
        yield f"the first vote was given {begun}, before the plan was registered"
    if isinstance(test, SignTest):
        yield "the answers have no residual variance, so an exact test replaces the crossed model"
    if test is None:
        yield "the crossed analysis cannot be made of these votes, so nothing is confirmed"
