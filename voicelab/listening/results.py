"""What a listening test says: who is left out and why, then the statistics that its kind calls for."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from voicelab.display import view
from voicelab.errors import ArgumentError
from voicelab.listening.design import ANCHORS, REFERENCE, SCALES, ListeningTest
from voicelab.listening.plan import Plan, PlannedOutcome, outcome
from voicelab.listening.votes import Ballot
from voicelab.stats import (
    BradleyTerry,
    CrossedTest,
    Estimate,
    Friedman,
    MixedModel,
    OrdinalModel,
    SignTest,
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
    sign_test,
    standardized_difference,
    superiority,
    wilcoxon,
)
from voicelab.stats.estimate import mean_delta, odds

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
    sizes: dict[tuple[str, str], dict[str, Estimate]]
    tests: dict[tuple[str, str], Test]
    ranking: BradleyTerry | None
    overall: Friedman | None
    notes: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    votes: pd.DataFrame = field(repr=False)
    design: Mapping[str, Any] = field(repr=False)
    people: pd.DataFrame = field(repr=False)
    outcome: PlannedOutcome | None = None

    @property
    def crossed_p_holm(self) -> dict[tuple[str, str], float]:
        """The p-values of ``crossed``, corrected together."""
        return _corrected(self.crossed)

    @property
    def p_holm(self) -> dict[tuple[str, str], float]:
        """The p-values of ``tests``, corrected together."""
        return _corrected(self.tests)

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

        Of MOS and MUSHRA, there of the systems alone; see ``voicelab.stats.mixed_model``, which says
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
        lines += [f"  {line}" for line in self.comparisons()]
        if self.ranking is not None:
            confidence = next(iter(self.tests.values())).estimate.confidence
            for one, two in itertools.combinations(self.ranking.frame()["system"], 2):
                chance = self.ranking.preference(one, two, confidence)
                lines.append(f"  Bradley-Terry, {one} preferred to {two}: {chance}")
        lines += [f"  left out: {name} ({reason})" for name, reason in self.excluded.items()]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def comparisons(self) -> Iterator[str]:
        """Yield what is said of each pair, and of all systems together, a line each; what belongs to a line is indented."""
        crossed, alone = self.crossed_p_holm, self.p_holm
        for pair, test in self.tests.items():
            name = f"{pair[0]} against {pair[1]}"
            if pair in crossed:
                corrected = f", p {crossed[pair]:.4g} after Holm" if len(crossed) > 1 else ""
                yield f"{name}: {self.crossed[pair]}{corrected}"
                yield from (f"  {size}: {value}" for size, value in self.sizes[pair].items())
            corrected = f", p {alone[pair]:.4g} after Holm" if len(alone) > 1 else ""
            yield f"{name}, on these sentences alone: {test}{corrected}"
        if self.overall is not None:
            yield f"Friedman: chi squared {self.overall.statistic:.4g}, p {self.overall.p:.4g}"
            yield f"  Kendall's W: {self.overall.concordance}"


def analyze(
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
    ratings (CMOS; ``crossed_mean``), of the choices against one half by a logistic model (AB, ABX; ``crossed_share``).
    Answers without residual variance, such as unanimous ones, have an exact test in its place (``sign_test``), and a note.
    With one sentence there is none. Beside it, a test of other listeners on these sentences alone, which new sentences may
    overturn:

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
    design = json.loads(json.dumps(test.to_record()))
    listeners = int(frame["listener"].nunique())
    begun = votes.begun if isinstance(votes, Ballot) else None
    work = _Work(test, confidence, frame)
    return ListeningResult(
        kind=test.kind,
        listeners=listeners,
        excluded=excluded,
        scores=work.scores,
        crossed=work.crossed,
        sizes=work.sizes,
        tests=work.tests,
        ranking=work.ranking,
        overall=work.overall,
        notes=tuple(work.notes),
        frame=frame,
        votes=everything.assign(counts=everything.index.isin(frame.index)),
        design=design,
        people=_people(votes, frame),
        outcome=None if plan is None else outcome(plan, design, work.crossed, listeners=listeners, begun=begun),
    )


def _people(votes: Ballot | pd.DataFrame, counting: pd.DataFrame) -> pd.DataFrame:
    """Return the listeners with what a study asked them: a table may have been joined with the answers of who voted."""
    if isinstance(votes, Ballot):
        people = votes.people()
    else:
        asked = [name for name in votes if "." in str(name)]
        people = votes[["listener", *asked]].astype({"listener": str}).drop_duplicates("listener")
    return people.assign(counts=people["listener"].isin(counting["listener"]))


def excluded_listeners(test: ListeningTest, votes: pd.DataFrame) -> dict[str, str]:
    """Return the listeners whom ``analyze`` excludes, each with the reason."""
    return {} if votes.empty else _counting(test, votes)[1]


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
    systems = frame[[name for name in ("system", "against", "chosen", "other") if name in frame]].astype(str)
    asked = frame[["listener", "item"]].assign(systems=systems.agg(frozenset, axis=1))
    for listener, item, two in asked[asked.duplicated()].itertuples(index=False, name=None):
        what = " against ".join(sorted(two))
        raise ArgumentError.of("votes", f"{listener} voted twice on {what} in {item!r}; each vote counts once")


def _sizes(
    tested: CrossedTest, values: npt.NDArray[np.float64], who: list[str], what: list[str], sd: float
) -> dict[str, Estimate]:
    """Return effect sizes: of choices, or of differences where single ratings spread by ``sd``."""
    if tested.null:
        return {"odds ratio": odds(tested.estimate), "probability of superiority": tested.estimate}
    estimate, signs = tested.estimate, np.sign(values)
    confidence = estimate.confidence
    if np.ptp(signs):
        testing = sign_test if isinstance(tested, SignTest) else crossed_mean
        delta = testing(signs, who, what, scale=(-1.0, 1.0), confidence=confidence).estimate
    else:
        delta = mean_delta([float(signs[0])] * len(set(who)), confidence)
    ordinal = {"Cliff's delta": delta, "probability of superiority": superiority(delta)}
    if isinstance(tested, SignTest):
        return ordinal
    size = standardized_difference(estimate.value, tested.error, tested.df, sd, n=estimate.n, confidence=confidence)
    return {"standardised difference": size, **ordinal}


def _inattentive(frame: pd.DataFrame) -> dict[str, str]:
    checks = frame[frame["check"]].drop_duplicates(["listener", "trial"])
    excluded = {}
    for name, rows in checks.groupby("listener"):
        failed = int((~rows["passed"].astype(bool)).sum())
        if failed > FAILED_CHECKS * len(rows):
            excluded[str(name)] = f"failed {failed} of {len(rows)} attention checks"
    return excluded


def leads(frame: pd.DataFrame, kind: str, pair: tuple[str, str]) -> tuple[pd.DataFrame, float]:
    """Return the lead of a pair's first system by listener and item (column ``value``), and the SD of single ratings."""
    if kind in {"MOS", "MUSHRA"}:
        first, second = pair
        cells = frame.pivot_table(index=["listener", "item"], columns="system", values="rating")
        variances = [frame.loc[frame["system"] == system, "rating"].var() for system in pair]
        return (cells[first] - cells[second]).dropna().reset_index(name="value"), math.sqrt(sum(variances) / 2)
    names = ["system", "against"] if kind == "CMOS" else ["chosen", "other"]
    rows = frame[frame[names].isin(pair).all(axis=1)]
    if kind == "CMOS":
        rows = rows.assign(value=np.where(rows["system"] == pair[0], rows["rating"], -rows["rating"]))
        return rows, float(rows["value"].std())
    won = rows["right"].astype(bool) if kind == "ABX" else rows["chosen"] == pair[0]
    return rows.assign(value=won.astype(float)), math.nan


class _Work:
    """What can be computed of the votes that count; ``notes`` say what cannot."""

    def __init__(self, test: ListeningTest, confidence: float, frame: pd.DataFrame) -> None:
        self.test, self.confidence, self.frame = test, confidence, frame
        self.scores: dict[str, Estimate] = {}
        self.crossed: dict[tuple[str, str], CrossedTest] = {}
        self.sizes: dict[tuple[str, str], dict[str, Estimate]] = {}
        self.tests: dict[tuple[str, str], Test] = {}
        self.ranking: BradleyTerry | None = None
        self.overall: Friedman | None = None
        self.notes: list[str] = []
        if frame.empty:
            self.notes.append("No listener is left whose votes count.")
        elif test.kind in {"MOS", "MUSHRA"}:
            self._ratings()
        else:
            for pair in test.pairs:
                self._pair(pair)
        if test.kind == "AB" and len(test.systems) > 2 and not frame.empty:
            self._ranking()
        lowest = least_p(self.tests)
        if lowest > _ALPHA:
            listeners = min(test.estimate.n for test in self.tests.values() if test.name.startswith("Wilcoxon"))
            corrected = " after Holm's correction" * (len(self.tests) > 1)
            self.notes.append(
                f"Of {listeners} listeners no p{corrected} can be below {lowest:.3g}, however clear "
                "their votes are: more listeners help, more sentences do not."
            )

    def _ranking(self) -> None:
        names, counts = self.test.systems, self.frame.groupby(["chosen", "other"]).size()
        try:
            self.ranking = bradley_terry([[counts.get((one, two), 0) for two in names] for one in names], names)
        except ArgumentError as error:
            self.notes.append(f"No ranking: {error}")

    def _ratings(self) -> None:
        for system, rows in self.frame.groupby("system", sort=False):
            self._score(str(system), rows.assign(value=rows["rating"]))
        # What MUSHRA adds differs from the systems by design: tests of it would only dilute the correction for theirs.
        rated = self.frame[self.frame["system"].isin(self.test.systems)]
        means = rated.pivot_table(index="listener", columns="system", values="rating").dropna()
        named = [name for name in self.test.systems if name in means]
        for one, two in itertools.combinations(named, 2):
            self._pair((one, two), means[one] - means[two])
        if len(named) > 2 and len(means) > 1:
            try:
                self.overall = friedman(means[named].to_numpy(), named, confidence=self.confidence)
            except ArgumentError as error:
                self.notes.append(f"No Friedman test: {error}")

    def _pair(self, pair: tuple[str, str], ahead: pd.Series[Any] | None = None) -> None:
        """Test the first of a pair over its second; of ratings, ``ahead`` is how far it is for each listener."""
        rows, sd = leads(self.frame, self.test.kind, pair)
        if ahead is None:
            if rows.empty:
                return
            ahead = rows.groupby("listener")["value"].mean()
        if self.test.kind == "CMOS":
            self._score(f"{pair[1]} against {pair[0]}", rows.assign(value=-rows["value"]))
        self._generalise(pair, rows, sd)
        if self.test.kind in {"AB", "ABX"}:
            self._choices(pair, rows["value"], ahead)
        elif len(ahead) < 2:
            self.notes.append(f"{pair[0]} against {pair[1]}: no test: it takes two listeners or more.")
        else:
            self.tests[pair] = wilcoxon(ahead, [0.0] * len(ahead), confidence=self.confidence)

    def _choices(self, pair: tuple[str, str], won: pd.Series[Any], shares: pd.Series[Any]) -> None:
        """Test choices on these sentences alone, by the ``shares`` of listeners."""
        side: Literal["two-sided", "greater"] = "greater" if self.test.kind == "ABX" else "two-sided"
        self.tests[pair] = votes = binomial(int(won.sum()), len(won), alternative=side, confidence=self.confidence)
        if self.test.kind == "ABX":
            return  # who guesses is right by chance in every trial, so that all are independent
        if len(shares) == 1:
            self.notes.append(
                f"{pair[0]} against {pair[1]}: one listener voted; the test is of that listener's votes alone."
            )
        elif len(shares) < len(won):
            ranks = wilcoxon(shares - 0.5, [0.0] * len(shares), confidence=self.confidence)
            # Shares that are all alike have no spread of their own; that of the votes within them is there all the same.
            low = max(0.0, min(ranks.estimate.low + 0.5, votes.estimate.low))
            high = min(1.0, max(ranks.estimate.high + 0.5, votes.estimate.high))
            share = replace(ranks.estimate, value=ranks.estimate.value + 0.5, low=low, high=high)
            self.tests[pair] = replace(ranks, name=f"{ranks.name}, of listeners' shares", estimate=share)

    def _generalise(self, pair: tuple[str, str], rows: pd.DataFrame, sd: float) -> None:
        """Test the first of the pair over its second in listeners and sentences like these, or say why that cannot be."""
        if rows["listener"].nunique() < 2:
            return  # noted by the test of these sentences
        name = f"{pair[0]} against {pair[1]}"
        if rows["item"].nunique() < 2:
            self.notes.append(f"{name}: one sentence, so the result speaks of these sentences alone.")
            return
        given = (rows["value"].to_numpy(float), list(rows["listener"]), list(rows["item"]))
        side: Literal["two-sided", "greater"] = "greater" if self.test.kind == "ABX" else "two-sided"
        try:
            if self.test.kind in {"AB", "ABX"}:
                tested = crossed_share(*given, alternative=side, confidence=self.confidence)
            else:
                tested = crossed_mean(*given, confidence=self.confidence)
        except ArgumentError:
            scale = (0.0, 1.0) if self.test.kind in {"AB", "ABX"} else (-math.inf, math.inf)
            tested = sign_test(*given, scale=scale, alternative=side, confidence=self.confidence)
            least = 2.0 ** (1 - tested.estimate.n)
            limited = least > _ALPHA and side != "greater"
            few = f"; with so few listeners or sentences its p is at least {least:.3g}" * limited
            self.notes.append(
                f"{name}: the answers have no residual variance, so an exact test replaces the model{few}."
            )
        self.crossed[pair], self.sizes[pair] = tested, _sizes(tested, *given, sd)

    def _score(self, name: str, rows: pd.DataFrame) -> None:
        numbers, listeners = rows["value"].to_numpy(float), list(rows["listener"])
        given: dict[str, Any] = {"scale": SCALES[self.test.kind], "confidence": self.confidence}
        if len(rows) < 2:
            self.notes.append(f"{name}: one rating has no interval.")
            return
        try:
            self.scores[name] = crossed_mean(numbers, listeners, list(rows["item"]), **given).estimate
        except ArgumentError:  # one listener or one sentence, or nothing but agreement
            several = listeners if len(set(listeners)) > 1 else None
            if several is None:
                self.notes.append(f"{name}: rated by one listener; its interval is of that listener's votes alone.")
            self.scores[name] = mean_opinion_score(numbers, listeners=several, **given)
