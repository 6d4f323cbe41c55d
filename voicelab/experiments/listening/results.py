"""What a listening test says: who is left out and why, then the statistics that its kind calls for."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from voicelab.display import view
from voicelab.errors import ArgumentError
from voicelab.experiments.listening.design import ANCHORS, REFERENCE, SCALES, ListeningTest
from voicelab.experiments.listening.plan import Plan, PlannedOutcome, outcome
from voicelab.experiments.listening.votes import Ballot
from voicelab.experiments.statistics import (
    BradleyTerry,
    CrossedTest,
    Estimate,
    Friedman,
    MixedModel,
    OrdinalModel,
    Test,
    binomial,
    bradley_terry,
    crossed_mean,
    crossed_share,
    friedman,
    holm,
    mean_opinion_score,
    mixed_model,
    ordinal_model,
    screen_mushra,
    standardised_difference,
    superiority,
    wilcoxon,
)
from voicelab.experiments.statistics.estimate import mean_delta, odds

if TYPE_CHECKING:
    import pandas as pd

FAILED_CHECKS: Final = 0.25
_ALPHA: Final = 0.05


@dataclass(frozen=True)
class ListeningResult:
    """The outcome of a listening test.

    ``crossed`` has a test for each pair of systems, of the first over the second, that speaks of other listeners *and*
    other sentences like these, and ``crossed_p_holm`` its p-values corrected together; ``tests`` and ``p_holm`` have tests
    that speak of other listeners on these sentences alone. ``sizes`` has each pair's effect sizes by their names, with
    intervals as ``crossed`` has them: of ratings the standardised difference (in sd of single ratings), Cliff's delta of the
    pairs of ratings of one listener on one sentence, and the probability of superiority; of choices that and the odds
    ratio. ``scores`` has the mean rating of each system with its interval
    over listeners and sentences (MOS, CMOS of each pair's second against the first, MUSHRA, the hidden reference and the
    anchors among them); ``ranking`` is Bradley and Terry's (AB, three systems
    or more), which takes all votes for independent, ``overall`` Friedman's (MOS and MUSHRA, three systems or more).
    ``mixed_model()`` fits a model in which listeners and items are random, ``ordinal_model()`` one of ordered categories.
    ``excluded`` says who does not count, and why; ``notes`` what could not be computed, and what these votes cannot
    show; ``frame`` are the rows that count, ``votes`` all of them, and ``design`` is the record of the test. ``people`` has a
    row for each listener, as ``Ballot.people``: what a study asked them, and whether their votes count (``counts``). Of a
    study with a registered plan ``outcome`` is its one confirmatory test; everything else is exploratory then.
    """

    kind: str
    listeners: int
    excluded: dict[str, str]
    scores: dict[str, Estimate]
    crossed: dict[tuple[str, str], CrossedTest]
    crossed_p_holm: dict[tuple[str, str], float]
    sizes: dict[tuple[str, str], dict[str, Estimate]]
    tests: dict[tuple[str, str], Test]
    p_holm: dict[tuple[str, str], float]
    ranking: BradleyTerry | None
    overall: Friedman | None
    notes: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    votes: pd.DataFrame = field(repr=False)
    design: Mapping[str, Any] = field(repr=False)
    people: pd.DataFrame = field(repr=False)
    outcome: PlannedOutcome | None = None

    def report(self) -> Any:
        """Return what a paper tells of the test, a ListeningReport: text, a page, every figure and the votes behind it."""
        return view("ListeningResult.report")(self)

    def ordinal_model(self, confidence: float = 0.95) -> OrdinalModel:
        """Fit a cumulative link model to the votes of a MOS test, for a sensitivity analysis: see the function of this name.

        Raises ArgumentError for any other kind.
        """
        if self.kind != "MOS":
            raise ArgumentError.of("kind", f"{self.kind} has no few ordered categories; MOS has")
        return ordinal_model(self.frame, confidence=confidence)

    def mixed_model(self, confidence: float = 0.95) -> MixedModel:
        """Fit a linear mixed model to the ratings that count, with listeners and items as random effects.

        Of MOS and MUSHRA, there of the systems alone; see ``voicelab.experiments.statistics.mixed_model``, which says
        when to prefer it to Friedman's test, and what it raises. ArgumentError for a test without ratings of systems.
        """
        if self.kind not in {"MOS", "MUSHRA"}:
            raise ArgumentError.of("kind", f"{self.kind} has no ratings of single systems; MOS and MUSHRA have")
        # Only a MUSHRA test has these names to itself.
        added = self.frame["system"].isin([REFERENCE, *ANCHORS]) & (self.kind == "MUSHRA")
        return mixed_model(self.frame[~added], confidence=confidence)

    def __str__(self) -> str:
        lines = [
            f"{self.kind}, {self.listeners} listeners" + (f", {len(self.excluded)} left out" * bool(self.excluded))
        ]
        if self.outcome is not None:
            lines += [f"  {self.outcome}", "  exploratory, none of it registered:"]
        lines += [f"  {name}: {score}" for name, score in self.scores.items()]
        for pair, test in self.tests.items():
            name = f"  {pair[0]} against {pair[1]}"
            if pair in self.crossed:
                corrected = f", p {self.crossed_p_holm[pair]:.4g} after Holm" if len(self.crossed) > 1 else ""
                lines.append(f"{name}: {self.crossed[pair]}{corrected}")
                lines += [f"    {size}: {value}" for size, value in self.sizes[pair].items()]
            corrected = f", p {self.p_holm[pair]:.4g} after Holm" if len(self.tests) > 1 else ""
            lines.append(f"{name}, on these sentences alone: {test}{corrected}")
        if self.overall is not None:
            lines.append(f"  Friedman: chi squared {self.overall.statistic:.4g}, p {self.overall.p:.4g}")
            lines.append(f"    Kendall's W: {self.overall.concordance}")
        if self.ranking is not None:
            confidence = next(iter(self.tests.values())).estimate.confidence
            for one, two in itertools.combinations(self.ranking.frame()["system"], 2):
                chance = self.ranking.preference(one, two, confidence)
                lines.append(f"  Bradley-Terry, {one} preferred to {two}: {chance}")
        lines += [f"  left out: {name} ({reason})" for name, reason in self.excluded.items()]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def analyse(
    test: ListeningTest,
    votes: Ballot | pd.DataFrame,
    *,
    confidence: float = 0.95,
    plan: Plan | str | Path | None = None,
) -> ListeningResult:
    """Return what the votes say: a Ballot's, or a table with its columns, such as webMUSHRA's results read back.

    Left out are listeners who failed more than a quarter of their attention checks, and of MUSHRA those whom
    Recommendation ITU-R BS.1534-3 leaves out. Then, for each pair of systems, a test by crossed random effects of
    listeners and sentences, whose result holds for others like both: of the differences of ratings (MOS, MUSHRA), of the
    ratings (CMOS; ``crossed_mean``), of the choices against one half by a logistic model (AB, ABX; ``crossed_share``). A
    note says where it cannot be made, as with
    one sentence. Beside it, a test of other listeners on these sentences alone, which new sentences may overturn:

    - MOS and MUSHRA: Wilcoxon's test of the listeners' means; CMOS: of the listeners' mean ratings against 0.
    - AB: Wilcoxon's test of the listeners' shares against one half, since votes of one listener are not independent.
      The estimate is the middle of the shares (Hodges & Lehmann's), its interval at least as wide as the votes' exact
      one. Where each listener voted once, or one alone, it is the exact binomial test of the votes.
    - ABX: the exact binomial test of right answers against chance, one-sided. Who guesses is right by chance in every
      trial, so that all trials are independent, whoever answers; the share's interval speaks of these listeners.

    A note says where so few listeners cannot give a p-value below 0.05.

    ``plan`` is a registered one (``ListeningTest.register``), or its file: then ``outcome`` is the test that it names, by the
    crossed effects, with what departs from the plan, and all else is exploratory. Raises ArgumentError when there are no
    votes, or two of one listener on one thing, StoreError for a plan that was changed. What a study asked of its listeners is
    there where ``votes`` is a Ballot, or a table that was merged with ``Ballot.people``.
    """
    plan = plan if plan is None or isinstance(plan, Plan) else Plan.load(plan)
    frame = votes.frame() if isinstance(votes, Ballot) else votes
    if frame.empty:
        raise ArgumentError.of("votes", "there are no votes yet")
    # A table that was read from a file may have numbers for names.
    frame = everything = frame.assign(listener=frame["listener"].map(str)).reset_index(drop=True)
    _refuse_double_votes(frame[~frame["check"].astype(bool)])
    frame, excluded = _counting(test, frame)
    work = _Work(test, confidence)
    work.all(frame)
    design = json.loads(json.dumps(test.to_record()))
    listeners = int(frame["listener"].nunique())
    begun = votes.begun if isinstance(votes, Ballot) else None
    # A table may have been joined with the answers of who voted.
    asked = [name for name in everything if "." in str(name)]
    people = (
        votes.people() if isinstance(votes, Ballot) else everything[["listener", *asked]].drop_duplicates("listener")
    )
    return ListeningResult(
        kind=test.kind,
        listeners=listeners,
        excluded=excluded,
        scores=work.scores,
        crossed=work.crossed,
        crossed_p_holm=_corrected(work.crossed),
        sizes=work.sizes,
        tests=work.tests,
        p_holm=_corrected(work.tests),
        ranking=work.ranking,
        overall=work.overall,
        notes=tuple(work.notes),
        frame=frame,
        votes=everything.assign(counts=everything.index.isin(frame.index)),
        design=design,
        people=people.assign(counts=people["listener"].isin(frame["listener"])),
        outcome=None if plan is None else outcome(plan, design, work.crossed, listeners=listeners, begun=begun),
    )


def _counting(test: ListeningTest, frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the rows that count, and who is left out for which reason."""
    excluded = _inattentive(frame)
    frame = frame[~frame["listener"].isin(list(excluded)) & ~frame["check"]]
    if test.kind == "MUSHRA" and not frame.empty:
        screened = screen_mushra(frame, reference=REFERENCE, anchor="anchor70", stimulus="system")
        return screened.frame, excluded | screened.excluded
    return frame, excluded


def _corrected(tests: Mapping[tuple[str, str], Test]) -> dict[tuple[str, str], float]:
    corrected = holm([test.p for test in tests.values()])
    return {pair: float(p) for pair, p in zip(tests, corrected, strict=True)}


def least_p(tests: Mapping[tuple[str, str], Test]) -> float:
    """Return the least corrected p that any votes of so few listeners could give; 0 where listeners do not limit it."""
    # The signs of n differences fall in 2^n ways, of which the two outermost are the furthest out.
    least = [2.0 ** (1 - test.estimate.n) if test.name.startswith("Wilcoxon") else 0.0 for test in tests.values()]
    return float(max(holm(least), default=0.0))


def _refuse_double_votes(frame: pd.DataFrame) -> None:
    """Raise ArgumentError, which names listener and question, where one voted twice on one thing."""
    names = [name for name in ("system", "against", "chosen", "other") if name in frame]
    asked = zip(frame["listener"], frame["item"], *(frame[name] for name in names), strict=True)
    cells = set[tuple[str, str, frozenset[str]]]()
    for listener, item, *systems in asked:
        cell = (listener, item, frozenset(str(system) for system in systems))
        if cell in cells:
            what = " against ".join(sorted(cell[2]))
            raise ArgumentError.of("votes", f"{listener} voted twice on {what} in {item!r}; each vote counts once")
        cells.add(cell)


def _sizes(
    tested: CrossedTest, values: npt.NDArray[np.float64], who: list[str], what: list[str], sd: float
) -> dict[str, Estimate]:
    """Return effect sizes: of choices, or of differences where single ratings spread by ``sd``."""
    if tested.scale == (0.0, 1.0):
        return {"odds ratio": odds(tested.estimate), "probability of superiority": tested.estimate}
    estimate, signs = tested.estimate, np.sign(values)
    confidence = estimate.confidence
    if np.ptp(signs):
        delta = crossed_mean(signs, who, what, scale=(-1.0, 1.0), confidence=confidence).estimate
    else:
        delta = mean_delta([float(signs[0])] * len(set(who)), confidence)
    size = standardised_difference(estimate.value, tested.error, tested.df, sd, n=estimate.n, confidence=confidence)
    return {"standardised difference": size, "Cliff's delta": delta, "probability of superiority": superiority(delta)}


def _inattentive(frame: pd.DataFrame) -> dict[str, str]:
    checks = frame[frame["check"]].drop_duplicates(["listener", "trial"])
    excluded = {}
    for name, rows in checks.groupby("listener"):
        failed = int((~rows["passed"].astype(bool)).sum())
        if failed > FAILED_CHECKS * len(rows):
            excluded[str(name)] = f"failed {failed} of {len(rows)} attention checks"
    return excluded


@dataclass
class _Work:
    """Collects what can be computed of the votes that count."""

    test: ListeningTest
    confidence: float
    scores: dict[str, Estimate] = field(default_factory=dict)
    crossed: dict[tuple[str, str], CrossedTest] = field(default_factory=dict)
    sizes: dict[tuple[str, str], dict[str, Estimate]] = field(default_factory=dict)
    tests: dict[tuple[str, str], Test] = field(default_factory=dict)
    ranking: BradleyTerry | None = None
    overall: Friedman | None = None
    notes: list[str] = field(default_factory=list)

    def all(self, frame: pd.DataFrame) -> None:
        """Compute what the kind of test calls for."""
        kind = self.test.kind
        if frame.empty:
            self.notes.append("No listener is left whose votes count.")
            return
        if kind in {"AB", "ABX"}:
            for pair in self.test.pairs:
                self._choices(pair, frame[frame[["chosen", "other"]].isin(pair).all(axis=1)])
        elif kind == "CMOS":
            for pair in self.test.pairs:
                self._comparisons(pair, frame[frame[["system", "against"]].isin(pair).all(axis=1)])
        else:
            self._ratings(frame)
        if kind == "AB" and len(self.test.systems) > 2:
            names = self.test.systems
            wins = [[int(((frame["chosen"] == one) & (frame["other"] == two)).sum()) for two in names] for one in names]
            try:
                self.ranking = bradley_terry(wins, names)
            except ArgumentError as error:
                self.notes.append(f"No ranking: {error}")
        lowest = least_p(self.tests)
        if lowest > _ALPHA:
            listeners = min(test.estimate.n for test in self.tests.values() if test.name.startswith("Wilcoxon"))
            corrected = " after Holm's correction" * (len(self.tests) > 1)
            self.notes.append(
                f"Of {listeners} listeners no p{corrected} can be below {lowest:.3g}, however clear "
                "their votes are: more listeners help, more sentences do not."
            )

    def _choices(self, pair: tuple[str, str], rows: pd.DataFrame) -> None:
        if rows.empty:
            return
        side: Literal["two-sided", "greater"] = "greater" if self.test.kind == "ABX" else "two-sided"
        won = rows["right"] if self.test.kind == "ABX" else rows["chosen"] == pair[0]
        self._generalise(pair, won, rows, side)
        self.tests[pair] = votes = binomial(int(won.sum()), len(rows), alternative=side, confidence=self.confidence)
        shares = won.groupby(rows["listener"]).mean()
        if self.test.kind == "ABX":
            return  # who guesses is right by chance in every trial, so that all are independent
        if len(shares) == 1:
            self.notes.append(
                f"{pair[0]} against {pair[1]}: one listener voted; the test is of that listener's votes alone."
            )
        elif len(shares) < len(rows):
            self._signed_rank(pair, shares - 0.5)
            ranks = self.tests[pair]
            # Shares that are all alike have no spread of their own; that of the votes within them is there all the same.
            low = max(0.0, min(ranks.estimate.low + 0.5, votes.estimate.low))
            high = min(1.0, max(ranks.estimate.high + 0.5, votes.estimate.high))
            share = replace(ranks.estimate, value=ranks.estimate.value + 0.5, low=low, high=high)
            self.tests[pair] = replace(ranks, name=f"{ranks.name}, of listeners' shares", estimate=share)

    def _comparisons(self, pair: tuple[str, str], rows: pd.DataFrame) -> None:
        """CMOS: every rating is turned so that it is of the pair's first against its second."""
        if rows.empty:
            return
        ratings = rows["rating"].where(rows["system"] == pair[0], -rows["rating"])
        self._score(f"{pair[1]} against {pair[0]}", -ratings, rows)
        self._generalise(pair, ratings, rows, sd=float(ratings.std()))
        self._signed_rank(pair, ratings.groupby(rows["listener"]).mean())

    def _ratings(self, frame: pd.DataFrame) -> None:
        """MOS and MUSHRA."""
        for system, rows in frame.groupby("system", sort=False):
            self._score(str(system), rows["rating"], rows)
        # What MUSHRA adds differs from the systems by design: tests of it would only dilute the correction for theirs.
        rated = frame[frame["system"].isin(self.test.systems)]
        means = rated.pivot_table(index="listener", columns="system", values="rating").dropna()
        named = [name for name in self.test.systems if name in means]
        cells = rated.pivot_table(index=["listener", "item"], columns="system", values="rating")
        for one, two in itertools.combinations(named, 2):
            differences = (cells[one] - cells[two]).dropna().reset_index(name="difference")
            spread = math.sqrt(sum(float(rated.rating[rated.system == name].var()) for name in (one, two)) / 2.0)
            self._generalise((one, two), differences["difference"], differences, sd=spread)
            self._signed_rank((one, two), means[one] - means[two])
        if len(named) > 2 and len(means) > 1:
            try:
                self.overall = friedman(means[named].to_numpy(), named, confidence=self.confidence)
            except ArgumentError as error:
                self.notes.append(f"No Friedman test: {error}")

    def _generalise(
        self,
        pair: tuple[str, str],
        values: pd.Series[Any],
        rows: pd.DataFrame,
        alternative: Literal["two-sided", "greater"] = "two-sided",
        sd: float = math.nan,
    ) -> None:
        """Test the first of the pair over its second in listeners and sentences like these, or say why that cannot be."""
        if rows["listener"].nunique() < 2:
            return  # noted by the test of these sentences
        numbers, who, what = values.to_numpy(float), list(rows["listener"]), list(rows["item"])
        if rows["item"].nunique() < 2:
            reason = "one sentence"
        else:
            try:
                if self.test.kind in {"AB", "ABX"}:
                    tested = crossed_share(numbers, who, what, alternative=alternative, confidence=self.confidence)
                else:
                    tested = crossed_mean(numbers, who, what, confidence=self.confidence)
                self.crossed[pair] = tested
                self.sizes[pair] = _sizes(tested, numbers, who, what, sd)
                return
            except ArgumentError:
                reason = "answers do not differ between sentences"
        self.notes.append(f"{pair[0]} against {pair[1]}: {reason}, so the result speaks of these sentences alone.")

    def _score(self, name: str, ratings: pd.Series[Any], rows: pd.DataFrame) -> None:
        listeners, scale, confidence = list(rows["listener"]), SCALES[self.test.kind], self.confidence
        if len(ratings) < 2:
            self.notes.append(f"{name}: one rating has no interval.")
            return
        numbers = ratings.to_numpy(float)
        try:
            crossed = crossed_mean(numbers, listeners, list(rows["item"]), scale=scale, confidence=confidence)
            self.scores[name] = crossed.estimate
        except ArgumentError:  # one listener or one sentence, or nothing but agreement
            several = listeners if len(set(listeners)) > 1 else None
            if several is None:
                self.notes.append(f"{name}: rated by one listener; its interval is of that listener's votes alone.")
            self.scores[name] = mean_opinion_score(numbers, listeners=several, scale=scale, confidence=confidence)

    def _signed_rank(self, pair: tuple[str, str], ahead: pd.Series[Any]) -> None:
        """Test the first of the pair over its second: how far it is ahead for each listener."""
        if len(ahead) < 2:
            self.notes.append(f"{pair[0]} against {pair[1]}: no test: it takes two listeners or more.")
            return
        self.tests[pair] = wilcoxon(ahead, [0.0] * len(ahead), confidence=self.confidence)
