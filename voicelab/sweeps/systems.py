"""Systems side by side: the same texts by several labs, at one loudness, in one table, and a blind test from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from voicelab.clip import Clip, Take
from voicelab.display import Shown, view
from voicelab.errors import ArgumentError, check_options
from voicelab.listening.design import Kind, ListeningTest, match_loudness
from voicelab.metrics import Metric, check_measuring, measure, with_note
from voicelab.runs.cache import Cache
from voicelab.session import Session
from voicelab.stats import Effects, crossed_mean, effects
from voicelab.stats.estimate import Estimate, between, holm, varies
from voicelab.sweeps.result import SweepResult, paired_by
from voicelab.sweeps.run import Outcome
from voicelab.sweeps.sweep import sweep_of
from voicelab.takes.comparison import Comparison

if TYPE_CHECKING:
    import pandas as pd

SYSTEM_METRICS: Final = ("duration", "word_rate", "f0_median", "f0_sd", "snr", "first_audio_s", "rtf")
"""What systems are compared in when nothing else is said."""


@dataclass(frozen=True)
class SystemComparison(Shown):
    """What several systems made of the same texts.

    ``result`` has all takes, on the axes ``text`` and ``backend``; ``metrics`` are the columns of ``frame``; ``notes`` say
    what was left out, and what is odd; ``measuring`` is what ``vl.measure`` takes besides: ``jobs``, ``tools``, ``progress``.
    """

    result: SweepResult
    metrics: tuple[str | Metric, ...]
    notes: tuple[str, ...] = ()
    measuring: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The systems, in order; the others are compared with the first."""
        return next(axis.labels for axis in self.result.grid.axes if axis.name == "backend")

    @property
    def texts(self) -> tuple[str, ...]:
        """What all of them said."""
        cells = self.result.grid.cells
        return tuple(text for _, text in dict.fromkeys((cell.labels["text"], cell.values["text"]) for cell in cells))

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that pair takes beside the text or item, and the repeat."""
        axes = (axis.name for axis in self.result.grid.axes)
        return tuple(name for name in axes if name not in {"text", "backend", "repeat"})

    def clips(self, text: str | int = 0, repeat: object = None, **keys: object) -> Mapping[str, Clip]:
        """Return the clips of one text by system, at one loudness; one without a loudness as it is.

        Args:
            text: the text, its label (the item of a recording), or its index.
            repeat: which repeat; the first there is when not given.
            **keys: the values of further columns that pair takes, such as ``speaker="anna"``.

        Raises NotFound when a system has no such take, RequestInvalid when several are like that.
        """
        axes = {axis.name: axis for axis in self.result.grid.axes}
        chosen = axes["text"].labels[text] if isinstance(text, int) else text
        if repeat is None:
            repeat = axes["repeat"].labels[0] if "repeat" in axes else 0
        where = {"text": chosen, "repeat": repeat, **keys}
        clips = {name: self.result.clip(backend=name, **where) for name in self.names}
        return match_loudness(clips).clips

    def compare(self, text: str | int = 0, repeat: object = None, **keys: object) -> Comparison:
        """Return one text by all systems, to be heard side by side at the same word; takes what ``clips`` takes."""
        return Comparison(self.clips(text, repeat, **keys))

    def panel(self, **options: Any) -> Any:
        """Return the panel in which all takes are heard, sorted and compared."""
        check_options(options, ())
        return self.result.panel(metrics=[name for name in self.metrics if isinstance(name, str)], **options)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each take: ``system``, ``text``, ``repeat``, and its metrics at one loudness."""
        import pandas as pd

        there = [outcome for outcome in self.result.outcomes if outcome.take is not None]
        rows = []
        for job in (outcome.job for outcome in there):
            own = {name: value for name, value in job.cell.plain.items() if name not in {"text", "backend"}}
            rows.append(
                {"system": job.cell.labels["backend"], "text": job.call.request.text, "repeat": job.repeat, **own}
            )
        measured = measure(map(self._levelled, there), self.metrics, **self.measuring)
        frame = pd.concat([pd.DataFrame(rows), measured], axis=1)
        return with_note(frame, self.metrics, self.measuring.get("tools"))

    def heard(self, outcome: Outcome) -> Clip:
        """Return the clip of an outcome at one loudness with its text by the others; as it is where that cannot be."""
        return self._levelled(outcome).clip()

    def _levelled(self, outcome: Outcome) -> _AtOneLoudness:
        group = self._groups[paired_by(outcome.job, "backend")]
        return _AtOneLoudness(group, outcome.job.cell.labels["backend"])

    @cached_property
    def _groups(self) -> Mapping[tuple[str, ...], _Group]:
        groups: dict[tuple[str, ...], _Group] = {}
        for outcome in self.result.outcomes:
            if outcome.take is not None:
                group = groups.setdefault(paired_by(outcome.job, "backend"), _Group())
                group.takes[outcome.job.cell.labels["backend"]] = outcome.take
        return groups

    @cached_property
    def loudness_note(self) -> str:
        """Whether the takes are at one loudness, with the takes whose loudness is not defined, which are as they were."""
        apart = []
        for key, group in self._groups.items():
            if group.unmatched is None:  # other processes measured it, or nobody yet
                _matched_clips(group)
            apart += [f"{name} {', '.join(key)} ({reason})" for name, reason in (group.unmatched or {}).items()]
        return f"at one loudness, except {'; '.join(apart)}" if apart else "at one loudness"

    @cached_property
    def effects(self) -> Effects:
        """The systems' effects on each metric, in texts like these where there are several: see ``vl.effects``.

        Raises ArgumentError when no metric has two values of each system.
        """
        if not self._compared:
            raise ArgumentError.of("metrics", "none has two values of each system; say more texts, or repeat them")
        blocks = ["item" if "item" in self.frame else "text", *self.keys]
        several = len(self.frame.drop_duplicates(blocks)) > 1
        return effects(self.frame, "system", self._compared, blocks=blocks if several else [])

    @property
    def _columns(self) -> list[str]:
        return [name if isinstance(name, str) else name.name for name in self.metrics]

    @cached_property
    def _compared(self) -> list[str]:
        """The metrics with at least two values of each system."""
        counts = self.frame.groupby("system")[self._columns].count().min()
        return [name for name in self._columns if counts[name] > 1]

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each metric, a column for each system: its mean; and how far it is from the first, with its interval.

        The interval is that in texts like these where there are several, and ``p`` is corrected by Holm over all metrics. Of
        one text said once there are the means alone.
        """
        means = self.frame.groupby("system")[self._columns].mean()
        if not self._compared or len(self.names) < 2:
            return with_note(means.loc[list(self.names)].T, self.metrics, self.measuring.get("tools"))
        compared, contrasts = self.effects.frame.set_index("metric"), self.effects.contrasts
        ending = "_texts" if "low_texts" in contrasts else ""
        table = means.loc[list(self.names), self._compared].T.rename_axis(columns=None)
        for name, rows in contrasts.set_index("metric").groupby("level", sort=False):
            for part, head in (("estimate", "difference"), ("low", "low"), ("high", "high")):
                table[f"{name} {head}"] = rows[f"{part}{ending}"]
        table["p"] = compared["p_texts_holm" if "p_texts_holm" in compared else "p_holm"]
        return with_note(table, self.metrics, self.measuring.get("tools"))

    def page(self, path: str | Path = "systems.html", **options: Any) -> Path:
        """Write one HTML file: the table, and every take, to be heard at one loudness; see ``SweepResult.page``."""
        written: Path = view("SystemComparison.page")(self, path, **options)
        return written

    def export(self, folder: str | Path, layout: str = "takes", **options: Any) -> Path:
        """Write all takes into a folder, as other tools read them: see ``SweepResult.export``."""
        return self.result.export(folder, layout, **options)

    def listening_test(self, kind: Kind = "AB", *, name: str = "systems", **options: Any) -> ListeningTest:
        """Return a blind test of the systems on all texts, at one loudness; takes what ListeningTest takes."""
        return self.result.listening_test(kind, "backend", name=name, **options)

    def __repr__(self) -> str:
        return f"SystemComparison({', '.join(self.names)}; texts: {len(self.texts)}, takes: {len(self.result.takes)})"


@dataclass(eq=False)
class _Group:
    """The takes of one text, and of one value of each other key, by all systems.

    ``unmatched`` has the reason why a take's loudness is not defined, by system; None until the takes were matched.
    """

    takes: dict[str, Take] = field(default_factory=dict)
    unmatched: Mapping[str, str] | None = None


@lru_cache(maxsize=2)
def _matched_clips(group: _Group) -> Mapping[str, Clip]:
    matched = match_loudness({name: take.clip() for name, take in group.takes.items()})
    group.unmatched = matched.unmatched
    return matched.clips


@dataclass(frozen=True, eq=False)
class _AtOneLoudness:
    """What ``measure`` fetches one after another: all clips at once may be more than the memory."""

    group: _Group
    name: str

    def clip(self) -> Clip:
        return _matched_clips(self.group)[self.name]


def compare_systems(
    texts: str | Sequence[str] | Mapping[str, str],
    *,
    metrics: Sequence[str | Metric] = SYSTEM_METRICS,
    repeats: int = 1,
    seed: int = 0,
    cache: Cache | str | Path | None = None,
    **labs: Session,
) -> SystemComparison:
    """Have several labs say the same texts, and compare them: ``vl.compare_systems(texts, ours=lab, theirs=other)``.

    Args:
        texts: what is said.
        metrics: what is measured of each take, as for ``vl.measure``.
        repeats: takes of each text by each system.
        seed: what the seeds of the repeats are drawn from, for those that take one.
        cache: where takes are kept; the cache in voicelab's data folder when not given.
        **labs: the systems by name, each with its own voice and defaults; others are compared with the first.

    All are asked at once. Raises ArgumentError for fewer than two systems, RequestInvalid for what one of them refuses, and
    the first error of a take that could not be had; before anything is said, what ``vl.measure`` raises for the metrics.
    """
    check_systems(labs)
    metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    check_measuring(metrics)
    spoken = [texts] if isinstance(texts, str) else texts
    lab = next(iter(labs.values()))
    sweep = sweep_of(lab, spoken, repeats=repeats, seed=seed, labs=labs, cache=cache, fields={})
    result = sweep.run()
    for outcome in result.failures:
        if outcome.error is not None:
            raise outcome.error
    return SystemComparison(result, metrics)


def check_systems(labs: Mapping[str, Session]) -> None:
    """Raise ArgumentError for fewer than two systems, or for what is none."""
    if len(labs) < 2:
        raise ArgumentError.of("labs", "name at least two systems: compare_systems(texts, a=lab, b=other)")
    for name, one in labs.items():
        if not hasattr(one, "capabilities") or not hasattr(one, "call"):
            raise ArgumentError.of(name, f"a system is a Lab, not a {type(one).__name__}")


def system_scores(
    frame: pd.DataFrame,
    metric: str,
    *,
    system: str = "system",
    samples: Sequence[str] = ("text",),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return a row for each system, and for each pair of them, with mean, interval and p of one metric.

    ``frame`` has a row for each clip, such as a sweep's ``result.frame(metric)``, with columns for the ``system``, the
    ``metric``, and the one or two things of which there are ``samples``, such as ``("text",)`` or ``("text", "voice")``:
    takes that have them alike are averaged first. With two, both are crossed random effects (``crossed_mean``); with one the
    interval is Student's t. Differences are of the same samples by both systems; their p is after Holm.

    Columns: ``system``, ``against`` ("" for a score), ``mean``, ``low``, ``high``, ``n`` (texts, say), ``p``. Rows whose
    metric is NaN are left out. A rate over words, such as a word error, is here a mean over clips: each weighs the same.
    Raises ArgumentError for a missing column, and where there are fewer than two samples.
    """
    import pandas as pd

    between(confidence, "confidence", 0.0, 1.0)
    for argument, column in (("system", system), ("metric", metric), *(("samples", name) for name in samples)):
        if column not in frame:
            raise ArgumentError.of(argument, f"there is no column {column!r}; there are {', '.join(map(str, frame))}")
    if not 0 < len(samples) < 3:
        raise ArgumentError.of("samples", "name one column or two")
    cells = frame.dropna(subset=[metric]).pivot_table(index=list(samples), columns=system, values=metric, sort=False)
    rows: list[dict[str, Any]] = []
    for name in cells:
        estimate, _ = _mean(cells[name].dropna(), confidence)
        rows.append({"system": name, "against": "", **_columns(estimate), "p": math.nan})
    pairs = list(itertools.combinations(cells, 2))
    compared = [_mean((cells[one] - cells[two]).dropna(), confidence) for one, two in pairs]
    corrected = holm([p for _, p in compared])
    for (one, two), (estimate, _), p in zip(pairs, compared, corrected, strict=True):
        rows.append({"system": one, "against": two, **_columns(estimate), "p": float(p)})
    return pd.DataFrame(rows)


def _columns(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def _mean(values: pd.Series[Any], confidence: float) -> tuple[Estimate, float]:
    """Return the mean over one kind of samples, or over two crossed ones, and its p against 0."""
    from scipy.stats import ttest_1samp

    numbers = values.to_numpy(float)
    if values.index.nlevels == 2 and varies(numbers):
        first, second = (list(values.index.get_level_values(level)) for level in (0, 1))
        test = crossed_mean(numbers, first, second, confidence=confidence)
        return test.estimate, test.p
    if numbers.size < 2:
        raise ArgumentError.of("samples", f"{values.index.name}: one is no sample; two or more are needed")
    mean = float(numbers.mean())
    if not varies(numbers):  # no variance: neither an interval nor p
        return Estimate(mean, math.nan, math.nan, confidence, numbers.size), math.nan
    test = ttest_1samp(numbers, 0.0)
    low, high = test.confidence_interval(confidence)
    return Estimate(mean, float(low), float(high), confidence, numbers.size), float(test.pvalue)
