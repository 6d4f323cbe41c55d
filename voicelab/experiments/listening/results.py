"""What a listening test says: who is left out and why, then the statistics that its kind calls for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from voicelab.errors import RequestInvalid
from voicelab.experiments.listening.design import REFERENCE, SCALES, ListeningTest
from voicelab.experiments.listening.stimuli import ANCHORS
from voicelab.experiments.listening.votes import Ballot
from voicelab.experiments.statistics import (
    BradleyTerry,
    Estimate,
    Friedman,
    MixedModel,
    Test,
    binomial,
    bradley_terry,
    friedman,
    holm,
    mean_opinion_score,
    mixed_model,
    screen_mushra,
    wilcoxon,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ListeningResult", "analyse"]

_FAILED_CHECKS: Final = 0.25


@dataclass(frozen=True)
class ListeningResult:
    """The outcome of a listening test.

    ``scores`` has the mean rating of each system with its interval (MOS, CMOS of each pair's second against the first,
    MUSHRA); ``tests`` one test for each pair, ``p_holm`` their p-values corrected together; ``ranking`` is
    Bradley and Terry's (AB, three systems or more), ``overall`` Friedman's (MOS and MUSHRA, three or more).
    ``mixed_model()`` fits a model in which listeners and items are random.
    ``excluded`` says who does not count, and why; ``notes`` what could not be worked out; ``frame`` are the rows
    that count.
    """

    kind: str
    listeners: int
    excluded: dict[str, str]
    scores: dict[str, Estimate]
    tests: dict[tuple[str, str], Test]
    p_holm: dict[tuple[str, str], float]
    ranking: BradleyTerry | None
    overall: Friedman | None
    notes: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)

    def mixed_model(self, confidence: float = 0.95) -> MixedModel:
        """Fit a linear mixed model to the ratings that count, with listeners and items as random effects.

        Of MOS and MUSHRA; see ``voicelab.experiments.statistics.mixed_model``, which says when to prefer it to
        Friedman's test, and what it raises. RequestInvalid for a test without ratings of systems.
        """
        if self.kind not in {"MOS", "MUSHRA"}:
            raise RequestInvalid.of("kind", f"{self.kind} has no ratings of single systems; MOS and MUSHRA have")
        return mixed_model(self.frame, confidence=confidence)

    def __str__(self) -> str:
        lines = [
            f"{self.kind}, {self.listeners} listeners" + (f", {len(self.excluded)} left out" * bool(self.excluded))
        ]
        lines += [f"  {name}: {score}" for name, score in self.scores.items()]
        for pair, test in self.tests.items():
            corrected = f", p {self.p_holm[pair]:.4g} after Holm" if len(self.tests) > 1 else ""
            lines.append(f"  {pair[0]} against {pair[1]}: {test}{corrected}")
        if self.overall is not None:
            lines.append(f"  Friedman: chi squared {self.overall.statistic:.4g}, p {self.overall.p:.4g}")
        lines += [f"  left out: {name} ({reason})" for name, reason in self.excluded.items()]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def analyse(test: ListeningTest, votes: Ballot | pd.DataFrame, *, confidence: float = 0.95) -> ListeningResult:
    """Return what the votes say: a Ballot's, or a table with its columns, such as webMUSHRA's results read back.

    Left out are listeners who failed more than a quarter of their attention checks, and of MUSHRA those whom
    Recommendation ITU-R BS.1534-3 leaves out. Then, for each pair of systems: AB the exact binomial test of
    preferences, ABX of right answers against chance (one-sided), MOS and MUSHRA Wilcoxon's test of the listeners'
    means, CMOS the mean with its interval and Wilcoxon's test against 0. Raises RequestInvalid when there are no
    votes.
    """
    frame = votes.frame() if isinstance(votes, Ballot) else votes
    if frame.empty:
        raise RequestInvalid.of("votes", "nobody has voted yet", type="too_short")
    excluded = _inattentive(frame)
    frame = frame[~frame["listener"].isin(list(excluded)) & ~frame["check"]]
    work = _Work(test, confidence)
    if test.kind == "MUSHRA" and not frame.empty:
        screened = screen_mushra(frame, reference=REFERENCE, anchor="anchor70", stimulus="system")
        excluded |= {str(name): reason for name, reason in screened.excluded.items()}
        frame = screened.frame
    if frame.empty:
        work.notes.append("Nobody is left whose votes count.")
    elif test.kind in {"AB", "ABX"}:
        work.choices(frame)
    elif test.kind == "CMOS":
        work.comparisons(frame)
    else:
        work.ratings(frame)
    corrected = list(holm([found.p for found in work.tests.values()])) if work.tests else []
    return ListeningResult(
        kind=test.kind,
        listeners=int(frame["listener"].nunique()),
        excluded=excluded,
        scores=work.scores,
        tests=work.tests,
        p_holm={pair: float(p) for pair, p in zip(work.tests, corrected, strict=True)},
        ranking=work.ranking,
        overall=work.overall,
        notes=tuple(work.notes),
        frame=frame,
    )


def _inattentive(frame: pd.DataFrame) -> dict[str, str]:
    checks = frame[frame["check"]].drop_duplicates(["listener", "trial"])
    found = {}
    for name, rows in checks.groupby("listener"):
        failed = int((~rows["passed"].astype(bool)).sum())
        if failed > _FAILED_CHECKS * len(rows):
            found[str(name)] = f"failed {failed} of {len(rows)} attention checks"
    return found


class _Work:
    """Collects what can be worked out of the votes that count."""

    def __init__(self, test: ListeningTest, confidence: float) -> None:
        self.test = test
        self.confidence = confidence
        self.scores: dict[str, Estimate] = {}
        self.tests: dict[tuple[str, str], Test] = {}
        self.ranking: BradleyTerry | None = None
        self.overall: Friedman | None = None
        self.notes: list[str] = []

    def choices(self, frame: pd.DataFrame) -> None:
        """AB and ABX."""
        for one, two in self.test.pairs:
            rows = frame[frame[["chosen", "other"]].isin([one, two]).all(axis=1)]
            if rows.empty:
                continue
            if self.test.kind == "ABX":
                right = int(rows["right"].sum())
                self.tests[one, two] = binomial(right, len(rows), alternative="greater", confidence=self.confidence)
            else:
                first = int((rows["chosen"] == one).sum())
                self.tests[one, two] = binomial(first, len(rows), confidence=self.confidence)
        if self.test.kind == "AB" and len(self.test.systems) > 2:
            names = self.test.systems
            wins = [[int(((frame["chosen"] == one) & (frame["other"] == two)).sum()) for two in names] for one in names]
            try:
                self.ranking = bradley_terry(wins, names)
            except RequestInvalid as error:
                self.notes.append(f"No ranking: {error}")

    def comparisons(self, frame: pd.DataFrame) -> None:
        """CMOS: every rating is turned so that it is of the pair's second against its first."""
        for one, two in self.test.pairs:
            as_is = frame[(frame["system"] == two) & (frame["against"] == one)]
            turned = frame[(frame["system"] == one) & (frame["against"] == two)]
            ratings = [*as_is["rating"], *(-turned["rating"])]
            listeners = [*as_is["listener"], *turned["listener"]]
            if not ratings:
                continue
            name = f"{two} against {one}"
            self._score(name, ratings, listeners)
            self._try((one, two), ratings, [0.0] * len(ratings))

    def ratings(self, frame: pd.DataFrame) -> None:
        """MOS and MUSHRA."""
        import pandas as pd

        for system, rows in frame.groupby("system", sort=False):
            self._score(str(system), list(rows["rating"]), list(rows["listener"]))
        means = pd.pivot_table(frame, index="listener", columns="system", values="rating").dropna()
        named = [name for name in (*self.test.systems, REFERENCE, *ANCHORS) if name in means]
        for one, two in itertools.combinations(named, 2):
            self._try((one, two), list(means[one]), list(means[two]))
        if len(named) > 2 and len(means) > 1:
            try:
                self.overall = friedman(means[named].to_numpy(), named)
            except RequestInvalid as error:
                self.notes.append(f"No Friedman test: {error}")

    def _score(self, name: str, ratings: list[float], listeners: list[Any]) -> None:
        several = len(set(listeners)) > 1
        if len(ratings) < 2:
            self.notes.append(f"{name}: one rating has no interval.")
            return
        if not several:
            self.notes.append(f"{name}: rated by one listener; its interval is of that listener's votes alone.")
        self.scores[name] = mean_opinion_score(
            ratings,
            listeners=listeners if several else None,
            scale=SCALES[self.test.kind],
            confidence=self.confidence,
        )

    def _try(self, pair: tuple[str, str], first: list[float], second: list[float]) -> None:
        try:
            self.tests[pair] = wilcoxon(first, second, confidence=self.confidence)
        except RequestInvalid as error:
            self.notes.append(f"{pair[0]} against {pair[1]}: no test: {error}")
