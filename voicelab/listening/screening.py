"""Screening of listeners: P.808's rules, attention checks, and the post-screening of MUSHRA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from voicelab.listening.design import REFERENCE, SINGLE, ListeningTest
from voicelab.stats import screen_mushra

if TYPE_CHECKING:
    import pandas as pd

FAILED_CHECKS: Final = 0.25
_MIN_VARIANCE: Final = 0.1
_Failure = tuple[str, str, str, str]


@dataclass(frozen=True)
class ScreenedResponses:
    """Responses to analyze, and the failed rules.

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
    - MOS, SMOS, DMOS and CMOS with gold or trapping questions, following ITU-T P.808: the variance of a listener's
      ratings, except of these questions, must be at least 0.1. Where playbacks were counted, every response must follow
      a playback. If ``complete`` (``frame`` has every stored response), all trials must be
      answered.
    - MUSHRA: ``voicelab.stats.screen_mushra``.

    In other tests, a note names the listeners who answered less than half of the trials; they are not excluded.

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
