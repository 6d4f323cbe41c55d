"""Measure clips: one row a clip, one column a metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Protocol

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.experiments.metrics.catalogue import BASIC, resolve
from voicelab.experiments.metrics.listeners import encoder_of, predictor_of
from voicelab.experiments.metrics.metric import Metric, Subject, Tools, Undefined
from voicelab.experiments.metrics.words import recognizer_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Audible", "measure", "measure_rows"]

_CHUNKS_EACH = 4


class Audible(Protocol):
    """What has a clip, such as a Take."""

    def clip(self) -> Clip:
        """Return it."""
        ...


def measure(
    clips: Iterable[Clip | Audible],
    metrics: Iterable[str | Metric] = BASIC,
    *,
    reference: Clip | Sequence[Clip | None] | None = None,
    text: str | Sequence[str | None] | None = None,
    tools: Tools | None = None,
    jobs: int = 1,
) -> pd.DataFrame:
    """Return a DataFrame with a row for each clip, in their order, and a column of floats for each metric.

    A metric that is undefined for a clip is NaN there, and the column ``undefined`` says why, "" where all are
    defined: ``loudness: needs a block of 0.4 s, …; f0_median: …``.

    Args:
        clips: what is measured: Clips, or Takes, whose audio is fetched one after another, so that there may be more
            of it than memory.
        metrics: names (``METRICS`` and registered ones) or Metric objects; BASIC when not given.
        reference: what each clip is compared with, by metrics that compare: one clip for all, or one or None
            for each.
        text: what the clips should say: one text for all, or one for each; None, and where it is not given, is the
            text of a clip's own request.
        tools: recognizer, speaker encoder, MOS predictor and reader of figures, where the defaults do not do.
        jobs: number of processes. More than one pays for slow metrics (pitch, MCD, words) on some dozens of
            clips; a script must then guard its beginning with ``if __name__ == "__main__":``, and what is given
            as ``tools`` and ``metrics`` must be picklable.

    Raises:
        RequestInvalid: a metric is unknown, the numbers of clips and references or texts differ, a metric that
            compares was asked for without a reference, or something cannot be sent to the processes.
        MissingExtra: a metric needs something that is not installed; it says what.
    """
    import pandas as pd

    chosen = resolve(metrics)
    rows = measure_rows(clips, chosen, reference=reference, text=text, tools=tools, jobs=jobs)
    frame = pd.DataFrame(rows, columns=[*(metric.name for metric in chosen), "undefined"])
    return frame.astype({metric.name: float for metric in chosen})


def measure_rows(
    clips: Iterable[Clip | Audible],
    metrics: Iterable[str | Metric] = BASIC,
    *,
    reference: Clip | Sequence[Clip | None] | None = None,
    text: str | Sequence[str | None] | None = None,
    tools: Tools | None = None,
    jobs: int = 1,
) -> list[dict[str, Any]]:
    """Return what ``measure`` does, as dictionaries and without pandas."""
    chosen = resolve(metrics)
    found = [clips] if isinstance(clips, Clip) else list(clips)
    for number, clip in enumerate(found):
        if not isinstance(clip, Clip) and not callable(getattr(clip, "clip", None)):
            raise RequestInvalid.of("clips", f"number {number} is a {type(clip).__name__}, not a Clip or a Take")
    references = _each(reference, len(found), "reference", Clip)
    texts = _each(text, len(found), "text", str)
    if type(jobs) is not int or jobs < 1:
        raise RequestInvalid.of("jobs", "Input should be a whole number from 1")
    for metric in chosen:
        if "reference" in metric.needs and reference is None:
            raise RequestInvalid.of("reference", f"{metric.name} compares clips with a reference, and there is none")
    work = list(zip(found, references, texts, strict=True))
    given = tools or Tools()
    _ready(given, chosen)
    if jobs == 1 or len(work) < 2:
        return _rows(work, chosen, given)
    return _in_processes(work, chosen, given, min(jobs, len(work)))


_Work = list[tuple[Clip | Audible, Clip | None, str | None]]


def _each(value: Any, count: int, name: str, kind: type) -> list[Any]:
    if value is None or isinstance(value, kind):
        return [value] * count
    several = list(value)
    if len(several) != count:
        raise RequestInvalid.of(name, f"there are {len(several)} for {count} clips")
    for number, item in enumerate(several):
        if item is not None and not isinstance(item, kind):
            raise RequestInvalid.of(name, f"number {number} is a {type(item).__name__}, not a {kind.__name__}")
    return several


def _ready(tools: Tools, metrics: Sequence[Metric]) -> None:
    """Fail before the work starts where a tool is missing."""
    needs = {need for metric in metrics for need in metric.needs}
    for need, find in (("encoder", encoder_of), ("predictor", predictor_of), ("recognizer", recognizer_of)):
        if need in needs:
            find(tools)


def _rows(work: _Work, metrics: Sequence[Metric], tools: Tools) -> list[dict[str, Any]]:
    # A reference for many clips is analysed once.
    references: dict[int, Subject] = {}
    rows = []
    for number, (item, reference, said) in enumerate(work):
        other = None
        try:
            clip = item if isinstance(item, Clip) else item.clip()
            text = clip.provenance.request.text if said is None and clip.provenance is not None else said
            if reference is not None:
                other = references.setdefault(id(reference), Subject(reference, text=text, tools=tools))
            rows.append(_row(Subject(clip, other, text, tools), metrics))
        except Exception as error:
            error.add_note(f"while measuring clip {number}")
            raise
    return rows


def _row(subject: Subject, metrics: Sequence[Metric]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    reasons = []
    for metric in metrics:
        try:
            value, reason = float(metric.compute(subject)), ""
        except Undefined as error:
            value, reason = math.nan, str(error)
        if not math.isfinite(value):
            reasons.append(f"{metric.name}: {reason or f'the result is {value}'}")
            value = math.nan
        row[metric.name] = value
    row["undefined"] = "; ".join(reasons)
    return row


def _in_processes(work: _Work, metrics: Sequence[Metric], tools: Tools, jobs: int) -> list[dict[str, Any]]:
    try:
        ForkingPickler.dumps((metrics, tools))
    except Exception as error:
        raise RequestInvalid.of("jobs", f"metrics and tools cannot be sent to other processes: {error}") from error
    size = -(-len(work) // (jobs * _CHUNKS_EACH))
    chunks = [work[begin : begin + size] for begin in range(0, len(work), size)]
    # spawn: threads, torch's among them, do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            done = list(pool.map(partial(_rows, metrics=metrics, tools=tools), chunks))
        except BrokenProcessPool as error:
            reason = 'the processes ended early; does the script guard itself with if __name__ == "__main__":?'
            raise RequestInvalid.of("jobs", reason) from error
    return [row for rows in done for row in rows]
