"""Analysis of listening tests: screening of listeners, followed by the statistics for the kind of test."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from voicelab.display import view
from voicelab.errors import ArgumentError
from voicelab.listening.design import ANCHORS, BY_SYSTEM, REFERENCE, SCALES, SINGLE, ListeningTest
from voicelab.listening.listeners import by_listener, discriminators, dispersion, screen, sensitivity
from voicelab.listening.plan import Plan, PlannedOutcome, outcome
from voicelab.listening.responses import read_responses
from voicelab.listening.votes import Ballot
from voicelab.stats import (
    CrossedTest,
    Estimate,
    MixedModel,
    OrdinalModel,
    Test,
    binomial,
    crossed_mean,
    crossed_share,
    holm,
    mean_opinion_score,
    mixed_model,
    ordinal_model,
    standardized_difference,
    superiority,
    wilcoxon,
)
from voicelab.stats.estimate import odds, p_text
from voicelab.stats.judgements import reasons_by_listener

if TYPE_CHECKING:
    import pandas as pd

_ALPHA: Final = 0.05
_MAX_LISTED: Final = 20
# Step of all rating scales, in points.
_STEP: Final = 1.0
# Column of the votes that the exported programs use as the item.
_TEXT: Final = "text_of_item"


@dataclass(frozen=True)
class ListeningResult:
    """Result of a listening test.

    Attributes:
        kind: kind of the test.
        listeners: number of analyzed listeners.
        screening: a row for each rule that an excluded listener failed, with ``listener``, ``rule``, ``trials`` (ids)
            and ``reason``. The property ``excluded`` joins the reasons of each listener.
        scores: mean rating with its interval over listeners and items: of each system in kinds that rate single systems
            (in MUSHRA also of the hidden reference and the anchors); in CMOS, of each pair, for the second system
            relative to the first. In AB with three systems or more: the share of choices for each system.
        crossed: test of the first against the second system of each pair, with listeners and items as random effects.
        sizes: effect sizes of each pair, with listeners and items as random effects, as in ``crossed``. For ratings: the
            standardized difference (in SDs of single ratings), Cliff's delta of paired ratings and the probability of
            superiority; for AB: the odds ratio and the probability of superiority; for ABX: d' and the proportion of
            discriminators, which assumes that all other listeners guess.
        tests: test of each pair with listeners as a random effect and items fixed.
        notes: sentences on tests that could not be computed and on limitations of the sample.
        frame: analyzed responses. ``votes`` has all responses; its column ``counts`` marks the analyzed ones.
        design: record of the test.
        scales: results by scale, if a test has several; each scale is analyzed separately. The other attributes are
            those of the first scale. ``crossed_p_holm`` and ``p_holm`` correct over the pairs of all scales.
        people: listeners of a study as in ``Ballot.people``, with the column ``counts``.
        outcome: confirmatory test, if a plan was registered; all other tests are then exploratory.
    """

    kind: str
    listeners: int
    screening: pd.DataFrame = field(repr=False)
    scores: dict[str, Estimate]
    crossed: dict[tuple[str, str], CrossedTest]
    sizes: dict[tuple[str, str], dict[str, Estimate]]
    tests: dict[tuple[str, str], Test]
    notes: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    votes: pd.DataFrame = field(repr=False)
    design: Mapping[str, Any] = field(repr=False)
    people: pd.DataFrame = field(repr=False)
    outcome: PlannedOutcome | None = None
    scales: Mapping[str, ListeningResult] = field(default_factory=dict, repr=False)
    beside: tuple[_Analysis, ...] = field(default=(), repr=False)
    """Analyses of the other scales."""

    @property
    def excluded(self) -> dict[str, str]:
        """Reasons for exclusion by listener."""
        return reasons_by_listener(self.screening)

    @property
    def crossed_p_holm(self) -> dict[tuple[str, str], float]:
        """p-values of ``crossed`` after Holm's correction."""
        return _corrected(self.crossed, [analysis.crossed for analysis in self.beside])

    @property
    def p_holm(self) -> dict[tuple[str, str], float]:
        """p-values of ``tests`` after Holm's correction."""
        return _corrected(self.tests, [analysis.tests for analysis in self.beside])

    def report(self) -> Any:
        """Return a ListeningReport: a methods section, an HTML page, all numerical results and the responses."""
        return view("ListeningResult.report")(self)

    def by_listener(self, pair: tuple[str, str] | None = None, *, confidence: float = 0.95) -> pd.DataFrame:
        """Tabulate each analyzed listener's choices in an AB or ABX test, for ``pair`` or the first two systems.

        ``share`` is the share of the pair's first system (ABX: of correct responses) among the ``responses`` of a
        ``listener``, with its exact interval ``low`` to ``high``. ``p`` is from the exact binomial test (ABX:
        one-sided, with the interval at 2 ``confidence`` - 1) and is not corrected for multiple listeners. ABX also has
        ``d'`` with its interval (``voicelab.listening.listeners.sensitivity``). Raises ArgumentError for other kinds
        of tests and unknown pairs.
        """
        if self.kind not in {"AB", "ABX"}:
            raise ArgumentError.of("kind", f"must be AB or ABX for choices by listener, got {self.kind}")
        systems = self.design["systems"]
        pair = pair or (systems[0], systems[1])
        if len({*pair}) != 2 or not {*pair} <= {*systems}:
            raise ArgumentError.of("pair", f"must be two of {', '.join(systems)}, got {pair!r}")
        return by_listener(leads(self.frame, self.kind, pair)[0], abx=self.kind == "ABX", confidence=confidence)

    def ordinal_model(self, confidence: float = 0.95) -> OrdinalModel:
        """Fit ``voicelab.stats.ordinal_model`` to the ratings of a MOS, SMOS or DMOS test, as a sensitivity analysis.

        Raises ArgumentError for other kinds.
        """
        if self.kind not in SINGLE:
            raise ArgumentError.of("kind", f"must be MOS, SMOS or DMOS for an ordinal model, got {self.kind}")
        self._require_listeners()
        return ordinal_model(self.frame, confidence=confidence)

    def mixed_model(self, confidence: float = 0.95) -> MixedModel:
        """Fit ``voicelab.stats.mixed_model`` to the analyzed ratings, with random effects of listeners and items.

        Raises ArgumentError for kinds that compare pairs and for BWS, and the same errors as
        ``voicelab.stats.mixed_model``.
        """
        if self.kind not in BY_SYSTEM or self.kind == "BWS":
            raise ArgumentError.of(
                "kind", f"must be one in which systems are rated (for a mixed model), got {self.kind}"
            )
        self._require_listeners()
        # Other kinds may have systems with these names.
        added = self.frame["system"].isin([REFERENCE, *ANCHORS]) & (self.kind == "MUSHRA")
        return mixed_model(self.frame[~added], confidence=confidence)

    def _require_listeners(self) -> None:
        if self.listeners < 2:
            rule = f"must be 2 or more for a model of listeners and items, got {self.listeners}; add listeners"
            raise ArgumentError.of("listeners", rule)

    def __str__(self) -> str:
        lines = [
            f"{self.kind}, {self.listeners} listener{'s' * (self.listeners != 1)}"
            + (f", {len(self.excluded)} excluded" * bool(self.excluded))
        ]
        if self.outcome is not None:
            lines += [f"  {self.outcome}", "  exploratory (not registered):"]
        for scale, result in self.scales.items():
            lines += [f"  {scale}:", *(f"  {line}" for line in result.lines())]
        lines += [] if self.scales else self.lines()
        lines += [f"  excluded: {name} ({reason})" for name, reason in self.excluded.items()]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def lines(self) -> list[str]:
        """Return the printed lines on scores and pairs; if there are several scales, those of the first."""
        rated = " preferred to the others" * (self.kind == "AB")
        lines = [f"  {name}{rated}: {score}" for name, score in self.scores.items()]
        return [*lines, *(f"  {line}" for line in self.comparisons())]

    def comparisons(self) -> Iterator[str]:
        """Yield the results of each pair as lines, with details indented.

        Tests with fixed items have more false positives, so they are printed only where no other test is possible. In
        ABX the guesses of a listener are independent, so its exact test is printed too.
        """
        crossed, fixed = self.crossed_p_holm, self.p_holm
        for pair in dict.fromkeys([*self.crossed, *self.tests]):
            name = f"{pair[0]} against {pair[1]}" if self.kind != "ABX" else f"correct with {pair[0]} and {pair[1]}"
            if pair in crossed:
                corrected = f", {p_text(crossed[pair])} after Holm" if len(crossed) > 1 or self.beside else ""
                yield f"{name}: {self.crossed[pair]}{corrected}"
                yield from (f"  {size}: {value}" for size, value in self.sizes[pair].items())
            if pair in fixed and (pair not in crossed or self.kind == "ABX"):
                corrected = f", {p_text(fixed[pair])} after Holm" if len(fixed) > 1 or self.beside else ""
                yield f"{name}{', items fixed' * (self.kind != 'ABX')}: {self.tests[pair]}{corrected}"


def analyze(
    test: ListeningTest,
    votes: Ballot | pd.DataFrame | str | Path,
    *,
    confidence: float = 0.95,
    plan: Plan | str | Path | None = None,
    missing: object = (),
) -> ListeningResult:
    """Analyze the responses of a listening test.

    Listeners are first excluded by ``voicelab.listening.listeners.screen``. Each pair of systems is then tested twice. The
    first test has crossed random effects of listeners and items, and requires two items. It is ``crossed_mean`` of rating
    differences (for CMOS, of ratings), or for AB and ABX ``crossed_share`` of choices. In the second test, items are fixed:

    - MOS, SMOS, DMOS and MUSHRA: Wilcoxon's test of the listeners' means; CMOS: of the listeners' mean ratings against 0.
    - AB: Wilcoxon's test of the listeners' shares against 0.5, with the Hodges-Lehmann estimate and an interval at least as
      wide as the exact binomial one. With one listener, or one response per listener: the exact binomial test.
    - ABX: the one-sided exact binomial test of correct responses, because guesses are independent between trials.

    - BWS: the tests of MOS, with the scores 1 (best), -1 (worst) and 0 (other sounds; T. N. Flynn & A. A. J. Marley, 2014).
    - Transcription: only ``mixed_model`` of the percentage of correct words, because each item is heard with one system.
      If it cannot be fitted, as without residual variance: Wilcoxon's test of the listeners' means.

    Notes are added if the listeners are too few for a p-value below 0.05, and if ratings of some systems are missing.

    Args:
        test: the design.
        votes: a Ballot; a table, CSV or Excel file with the columns of ``Ballot.frame``; or results of webMUSHRA. The rows
            of a table are checked (``voicelab.listening.responses``). The result includes the answers to a study's questions
            if this is a Ballot, or a table merged with ``Ballot.people``.
        confidence: confidence level of the intervals; in ABX, 2 ``confidence`` - 1, to agree with the one-sided tests.
        plan: registered plan (``ListeningTest.register``) or its file. ``outcome`` then has the planned test, of the first
            of several scales, and the deviations from the plan; all other tests are exploratory.
        missing: code or codes of missing ratings in a table, such as 99.

    Raises ArgumentError if there are no responses or a listener answered a question twice, StoreError for a changed plan.
    """
    plan = plan if plan is None or isinstance(plan, Plan) else Plan.load(plan)
    votes = votes if isinstance(votes, Ballot) else read_responses(test, votes, missing)
    frame = _responses(test, votes)
    frame = everything = frame.assign(listener=frame["listener"].map(str)).reset_index(drop=True)
    _check_duplicates(frame[~frame["check"].astype(bool)])
    screened = screen(test, frame, complete=isinstance(votes, Ballot))
    read, frame = frame.attrs.get("notes", ()), screened.frame
    design, listeners = json.loads(json.dumps(test.to_record())), int(frame["listener"].nunique())
    begun = votes.begun if isinstance(votes, Ballot) else None
    common = {
        "kind": test.kind,
        "listeners": listeners,
        "screening": screened.table,
        "votes": _with_texts(test, everything).assign(counts=everything.index.isin(frame.index)),
        "design": design,
        "people": _people(votes, frame),
    }
    result = _result(test, confidence, frame, (*read, *screened.notes), common)
    if plan is None:
        return result
    return replace(result, outcome=outcome(plan, design, result.crossed, listeners=listeners, begun=begun))


def _responses(test: ListeningTest, votes: Ballot | pd.DataFrame) -> pd.DataFrame:
    if isinstance(votes, Ballot) and votes.test.digest != test.digest:
        rule = "must be responses to this test, got a Ballot of another test; pass ballot.test to analyze it"
        raise ArgumentError.of("votes", rule)
    frame = votes.frame() if isinstance(votes, Ballot) else votes
    if frame.empty:
        raise ArgumentError.of("votes", "there are no votes yet")
    return frame


def _with_texts(test: ListeningTest, frame: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``text_of_item`` if several texts are repeated."""
    if not 1 < len({*test.texts.values()}) < len(test.items):
        return frame
    return frame.assign(**{_TEXT: frame["item"].replace(dict(test.texts))})


def _result(
    test: ListeningTest, confidence: float, frame: pd.DataFrame, notes: tuple[str, ...], common: dict[str, Any]
) -> ListeningResult:
    """Analyze the responses to each scale separately; ``common`` has the attributes that all results share."""
    frame = _with_texts(test, frame)
    if _TEXT in frame:  # takes of one text are not independent
        frame = frame.assign(item=frame.pop(_TEXT))
        texts = len({*test.texts.values()})
        notes = (*notes, f"The {len(test.items)} items are takes of {texts} texts, so the tests have texts as items.")
    responses = {scale: frame[frame["scale"] == scale] for scale in test.scales} or {"": frame}
    analyses = {scale: _Analysis(test, confidence, rows) for scale, rows in responses.items()}
    results = {
        scale: ListeningResult(
            **common,
            scores=analysis.scores,
            crossed=analysis.crossed,
            sizes=analysis.sizes,
            tests=analysis.tests,
            notes=(*notes, *analysis.notes),
            frame=analysis.frame,
            beside=tuple(analyses[name] for name in analyses if name != scale),
        )
        for scale, analysis in analyses.items()
    }
    primary = next(iter(results.values()))
    if not test.scales:
        return primary
    count = sum(len(analysis.crossed) for analysis in analyses.values())
    by_scale = [f"{scale}: {note}" for scale, analysis in analyses.items() for note in analysis.notes]
    by_scale += [f"Each scale is analyzed separately; Holm's correction is over {count} tests of all scales."]
    return replace(primary, scales=results, notes=(*notes, *by_scale))


def _people(votes: Ballot | pd.DataFrame, counting: pd.DataFrame) -> pd.DataFrame:
    """Return the listeners with their answers to a study's questions, from the ballot or a table merged with them."""
    if isinstance(votes, Ballot):
        people = votes.people()
    else:
        answers = [name for name in votes if "." in str(name)]
        people = votes[["listener", *answers]].astype({"listener": str}).drop_duplicates("listener")
    return people.assign(counts=people["listener"].isin(counting["listener"]))


def _corrected(
    tests: Mapping[tuple[str, str], Test], beside: Sequence[Mapping[tuple[str, str], Test]]
) -> dict[tuple[str, str], float]:
    """Correct the p-values of ``tests`` by Holm's method over these tests and ``beside``, the tests of other scales."""
    corrected = holm([test.p for group in (tests, *beside) for test in group.values()])
    return {pair: float(p) for pair, p in zip(tests, corrected, strict=False)}


def least_p(tests: Mapping[tuple[str, str], Test], scales: int = 1) -> float:
    """Return the smallest corrected p-value attainable with this number of listeners; 0 if p has no lower bound."""
    # The signs of n differences have 2^n combinations, and the rejection region of a two-sided test has at least two.
    minima = [2.0 ** (1 - test.estimate.n) if test.name.startswith("Wilcoxon") else 0.0 for test in tests.values()]
    return float(max(holm(minima * scales), default=0.0))


def _check_duplicates(frame: pd.DataFrame) -> None:
    names = [name for name in ("system", "against", "chosen", "other") if name in frame]
    systems = np.sort(frame[names].to_numpy(str).astype(object), axis=1)
    items = frame["item"] + (" (" + frame["scale"] + ")" if "scale" in frame else "")
    questions = frame[["listener"]].assign(item=items, **dict(zip(names, systems.T, strict=True)))
    repeated = [
        f"{listener} voted twice on {' against '.join(compared)} in {item!r}"
        for listener, item, *compared in questions[questions.duplicated()].itertuples(index=False, name=None)
    ]
    if repeated:
        more = f"; and {len(repeated) - _MAX_LISTED} more" * (len(repeated) > _MAX_LISTED)
        text = f"{'; '.join(repeated[:_MAX_LISTED])}{more}; remove the duplicate{'s' * (len(repeated) > 1)}"
        raise ArgumentError.of("votes", text)


def _effect_sizes(
    test: CrossedTest, values: npt.NDArray[np.float64], listeners: list[str], items: list[str], sd: float, abx: bool
) -> dict[str, Estimate]:
    """Return the effect sizes of choices, or of rating differences; ``sd`` is the SD of single ratings."""
    if abx:
        share = test.estimate
        functions = {"d'": sensitivity, "proportion of discriminators": discriminators}
        return {
            name: replace(share, value=size(share.value), low=size(share.low), high=size(share.high))
            for name, size in functions.items()
        }
    if test.null:
        return {"odds ratio": odds(test.estimate), "probability of superiority": test.estimate}
    estimate = test.estimate
    options: dict[str, Any] = {"scale": (-1.0, 1.0), "step": 1.0, "confidence": estimate.confidence}
    delta = crossed_mean(np.sign(values), listeners, items, **options).estimate
    ordinal = {"Cliff's delta": delta, "probability of superiority": superiority(delta)}
    if not sd > 0.0:
        return ordinal
    size = standardized_difference(
        estimate.value, test.error, test.df, sd, n=estimate.n, confidence=estimate.confidence
    )
    return {"standardized difference": size, **ordinal}


def leads(frame: pd.DataFrame, kind: str, pair: tuple[str, str]) -> tuple[pd.DataFrame, float]:
    """Return a table of the differences between a pair's systems by listener and item, and the SD of single ratings.

    The column ``value`` has the rating difference (first minus second system) or, for choices, 1 if the first system was
    chosen (ABX: if the response is correct), else 0.
    """
    if kind in BY_SYSTEM:
        first, second = pair
        rows = frame[frame["system"].isin(pair)]
        cells = rows.pivot_table(index=["listener", "item"], columns="system", values="rating")
        variances = [rows.loc[rows["system"] == system, "rating"].var() for system in pair]
        return (cells[first] - cells[second]).dropna().reset_index(name="value"), math.sqrt(sum(variances) / 2)
    names = ["system", "against"] if kind == "CMOS" else ["chosen", "other"]
    rows = frame[frame[names].isin(pair).all(axis=1)]
    if kind == "CMOS":
        rows = rows.assign(value=np.where(rows["system"] == pair[0], rows["rating"], -rows["rating"]))
        return rows, float(rows["value"].std())
    won = rows["right"].astype(bool) if kind == "ABX" else rows["chosen"] == pair[0]
    return rows.assign(value=won.astype(float)), math.nan


def _by_item(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of the column ``value`` over repeated takes, for each listener and item."""
    return rows.groupby(["listener", "item"], sort=False)["value"].mean().reset_index()


class _Analysis:
    """Statistics of the analyzed responses; ``notes`` explain which statistics could not be computed."""

    def __init__(self, test: ListeningTest, confidence: float, frame: pd.DataFrame) -> None:
        self.test, self.frame = test, frame
        # The interval that agrees with a one-sided test.
        self.confidence = max(0.01, 2.0 * confidence - 1.0) if test.kind == "ABX" else confidence
        self.scores: dict[str, Estimate] = {}
        self.crossed: dict[tuple[str, str], CrossedTest] = {}
        self.sizes: dict[tuple[str, str], dict[str, Estimate]] = {}
        self.tests: dict[tuple[str, str], Test] = {}
        self.notes: list[str] = []
        if frame.empty:
            self.notes.append("All listeners were excluded.")
        elif test.kind in BY_SYSTEM:
            self._ratings()
        else:
            for pair in test.pairs:
                self._pair(pair)
        if test.kind == "AB" and len(test.systems) > 2:
            self._shares()
        alone = {pair: self.tests[pair] for pair in self.tests if pair not in self.crossed}
        lowest = least_p(alone, max(1, len(test.scales)))
        if lowest > _ALPHA:
            listeners = min(test.estimate.n for test in alone.values() if test.name.startswith("Wilcoxon"))
            corrected = " after Holm's correction" * (len(self.tests) * max(1, len(test.scales)) > 1)
            self.notes.append(
                f"With {listeners} listeners no p{corrected} can be below {lowest:.3g} if items are fixed: "
                "add listeners, not items."
            )

    def _ratings(self) -> None:
        for system, rows in self.frame.groupby("system", sort=False):
            self._score(str(system), rows.assign(value=rows["rating"]))
        if self.test.kind == "transcription":
            self._unpaired()
            return
        # References and anchors of MUSHRA are not tested, since more tests would reduce power under Holm's correction.
        rated = self.frame[self.frame["system"].isin(self.test.systems)]
        if self.test.kind != "BWS":
            self._missing(rated)
        means = rated.pivot_table(index="listener", columns="system", values="rating").dropna()
        systems = [name for name in self.test.systems if name in means]
        for first, second in itertools.combinations(systems, 2):
            self._pair((first, second), means[first] - means[second])

    def _missing(self, rated: pd.DataFrame) -> None:
        """Add a note on the numbers of missing ratings, and on a test of whether systems differ in these numbers."""
        from scipy.stats import chisquare

        counts = rated.groupby(["listener", "item", "system"]).size().unstack(fill_value=0)
        complete = counts.max(axis=1)
        cells = int(complete.sum())
        missing = {name: int((complete - counts[name]).sum()) for name in self.test.systems if name in counts}
        if any(missing.values()):
            p = float(chisquare([*missing.values()]).pvalue)
            listed = ", ".join(f"{name} {count} of {cells}" for name, count in missing.items())
            doubt = ": differences may be due to which ratings remain" * (p <= _ALPHA)
            self.notes.append(f"Missing ratings: {listed} (equal numbers: {p_text(p)}){doubt}.")

    def _unpaired(self) -> None:
        """Test the systems by a mixed model, because no listener heard an item with two systems."""
        try:
            # The pairs are in the order of the test's systems.
            frame = self.frame.sort_values(
                "system", key=lambda names: names.map(self.test.systems.index), kind="stable"
            )
            model = mixed_model(frame, confidence=self.confidence)
        except ArgumentError as problem:
            means = self.frame.pivot_table(index="listener", columns="system", values="rating")
            for pair in self.test.pairs if {*self.test.systems} <= {*means} else ():
                difference = (means[pair[0]] - means[pair[1]]).dropna()
                if len(difference) > 1:
                    self.tests[pair] = wilcoxon(difference, [0.0] * len(difference), confidence=self.confidence)
            done = "Listeners' means are compared, with items fixed" if self.tests else "Systems are not tested"
            self.notes.append(f"{done}, because no mixed model could be fitted: {problem}.")
            return
        counts = f"{self.frame['listener'].nunique()} listeners and {self.frame['item'].nunique()} items"
        # Interval of the difference between two systems.
        sds = [math.sqrt(2.0) * model.sd.get(name, 0.0) for name in ("listener x system", "item x system", "residual")]
        for row in model.pairs.to_dict("records"):
            value, error = row["difference"], row["error"]
            ends = (value, row["low"], row["high"])
            estimate = Estimate(*ends, self.confidence, self.frame["listener"].nunique())
            name, sd = f"mixed model of {counts}, two-sided", (sds[0], sds[1], sds[2])
            test = CrossedTest(name, value / error, row["p"], estimate, error, row["df"], sd, (-100.0, 100.0))
            self.crossed[row["first"], row["second"]], self.sizes[row["first"], row["second"]] = test, {}

    def _pair(self, pair: tuple[str, str], means: pd.Series[Any] | None = None) -> None:
        """Test the first system of a pair against the second; ``means`` are the mean differences of each listener."""
        rows, sd = leads(self.frame, self.test.kind, pair)
        if means is None:
            if rows.empty:
                return
            means = rows.groupby("listener")["value"].mean()
        if self.test.kind == "CMOS":
            self._score(f"{pair[1]} against {pair[0]}", rows.assign(value=-rows["value"]))
        self._test_crossed(pair, rows, sd)
        if self.test.kind in {"AB", "ABX"}:
            self._choices(pair, rows["value"], means)
        elif len(means) < 2:
            self.notes.append(
                f"{pair[0]} against {pair[1]}: not tested, since at least 2 listeners must have rated both, got {len(means)}."
            )
        else:
            self.tests[pair] = wilcoxon(means, [0.0] * len(means), confidence=self.confidence)

    def _choices(self, pair: tuple[str, str], won: pd.Series[Any], shares: pd.Series[Any]) -> None:
        """Test choices with fixed items: the ``shares`` of listeners, or all choices in an exact binomial test."""
        side: Literal["two-sided", "greater"] = "greater" if self.test.kind == "ABX" else "two-sided"
        counts = won.groupby(self.frame["listener"]).agg(["sum", "size"])
        ratio, p = dispersion(counts["sum"], counts["size"])
        if p <= _ALPHA:
            self.notes.append(
                f"{pair[0]} and {pair[1]}: listeners differ, the variance of their shares is {ratio:.2g} times the binomial, "
                f"{p_text(p)}; see by_listener()."
            )
        self.tests[pair] = exact = binomial(int(won.sum()), len(won), alternative=side, confidence=self.confidence)
        if self.test.kind == "ABX":
            return  # guesses are independent between trials
        if len(shares) == 1:
            self.notes.append(
                f"{pair[0]} against {pair[1]}: one listener, so the result does not generalize to others."
            )
        elif len(shares) < len(won):
            ranks = wilcoxon(shares - 0.5, [0.0] * len(shares), confidence=self.confidence)
            # Equal shares have no variance between listeners, but responses vary within them.
            low = max(0.0, min(ranks.estimate.low + 0.5, exact.estimate.low))
            high = min(1.0, max(ranks.estimate.high + 0.5, exact.estimate.high))
            share = replace(ranks.estimate, value=ranks.estimate.value + 0.5, low=low, high=high)
            self.tests[pair] = replace(ranks, name=f"{ranks.name}, of listeners' shares", estimate=share)

    def _test_crossed(self, pair: tuple[str, str], rows: pd.DataFrame, sd: float) -> None:
        """Test a pair's first system against the second with random effects of listeners and items, or add a note."""
        if rows["listener"].nunique() < 2:
            return  # the test with fixed items adds the note
        name = f"{pair[0]} against {pair[1]}"
        if rows["item"].nunique() < 2:
            self.notes.append(f"{name}: one item, so the result does not generalize to new items.")
            return
        rows = _by_item(rows)
        columns = (rows["value"].to_numpy(float), rows["listener"].tolist(), rows["item"].tolist())
        side: Literal["two-sided", "greater"] = "greater" if self.test.kind == "ABX" else "two-sided"
        if self.test.kind in {"AB", "ABX"}:
            result = crossed_share(*columns, alternative=side, confidence=self.confidence)
        else:
            result = crossed_mean(*columns, step=_STEP, confidence=self.confidence)
        self.crossed[pair], self.sizes[pair] = result, _effect_sizes(result, *columns, sd, side == "greater")

    def _shares(self) -> None:
        """Score each system by its share of choices: the value of a listener for an item is the mean over opponents."""
        for system in self.test.systems:
            rows = self.frame[(self.frame["chosen"] == system) | (self.frame["other"] == system)]
            chosen = (rows["chosen"] == system).groupby([rows["listener"], rows["item"]]).mean()
            if not chosen.empty:
                self._score(system, chosen.reset_index(name="value"), _STEP / (len(self.test.systems) - 1))

    def _score(self, name: str, rows: pd.DataFrame, step: float = _STEP) -> None:
        rows = _by_item(rows)
        ratings, listeners = rows["value"].to_numpy(float), rows["listener"].tolist()
        scale = SCALES.get(self.test.kind, (0, 1))
        options: dict[str, Any] = {"scale": scale, "confidence": self.confidence}
        if len(rows) < 2:
            self.notes.append(f"{name}: no interval for a single rating.")
            return
        try:
            self.scores[name] = crossed_mean(ratings, listeners, rows["item"].tolist(), step=step, **options).estimate
        except ArgumentError:  # one listener or one item
            groups = listeners if len(set(listeners)) > 1 else None
            if groups is None:
                self.notes.append(f"{name}: one listener, so the interval does not generalize to others.")
            self.scores[name] = mean_opinion_score(ratings, listeners=groups, **options)
