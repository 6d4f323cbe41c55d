"""All metrics by name, and measuring by them: one row a clip, one column a metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from itertools import chain
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from voicelab.clip import UNKNOWN_TEXT, Clip
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.guesses import hint
from voicelab.metrics import distances, latency, level, models, pitch, programs, words
from voicelab.metrics.metric import Metric, Need, Subject, Tools, Undefined
from voicelab.recordings import file_take, sounds_in
from voicelab.schema import DEFAULT_MODEL
from voicelab.tags import said

if TYPE_CHECKING:
    import pandas as pd

GROUP = "voicelab.metrics"
"""Entry points of this group add metrics: each names a Metric, or several in a list or tuple."""

_TEXT: tuple[Need, ...] = ("text",)
_REFERENCE: tuple[Need, ...] = ("reference",)

_slow = partial(Metric, slow=True)
_praat = partial(_slow, module="parselmouth", extra="praat")

_OWN = (
    Metric("duration", "s", level.duration),
    Metric("level", "dBFS", level.level),
    Metric("peak", "dBFS", level.peak),
    Metric("true_peak", "dBTP", level.true_peak),
    Metric("loudness", "LUFS", level.loudness),
    Metric("snr", "dB", level.snr, better="higher"),
    Metric("speech_time", "s", words.speech_time),
    Metric("pauses", "", words.pauses),
    Metric("pause_time", "s", words.pause_time),
    Metric("longest_pause", "s", words.longest_pause),
    Metric("word_rate", "1/s", words.word_rate),
    Metric("syllable_rate", "1/s", words.syllable_rate, needs=_TEXT),
    Metric("spectral_tilt", "dB/octave", pitch.spectral_tilt),
    Metric("f0_median", "Hz", pitch.f0_median, slow=True),
    Metric("f0_geometric_mean", "Hz", pitch.f0_geometric_mean, slow=True),
    Metric("f0_sd", "semitones", pitch.f0_sd, slow=True),
    Metric("f0_range", "semitones", pitch.f0_range, slow=True),
    Metric("voiced_share", "", pitch.voiced_share, slow=True),
    Metric("jitter", "%", pitch.jitter, better="lower", slow=True),
    Metric("shimmer_local", "%", pitch.shimmer_local, better="lower", slow=True),
    Metric("shimmer_rms", "%", pitch.shimmer_rms, better="lower", slow=True),
    _praat("praat_jitter_local", "%", programs.praat_jitter_local, better="lower"),
    _praat("praat_shimmer_local", "%", programs.praat_shimmer_local, better="lower"),
    _praat("praat_hnr", "dB", programs.praat_hnr, better="higher"),
    _praat("praat_cpps", "dB", programs.praat_cpps, better="higher"),
    Metric("mcd", "dB", programs.mcd, "lower", _REFERENCE, module="pyworld", extra="world", slow=True),
    Metric("mfcc_distance", "dB", distances.mfcc_distance, better="lower", needs=_REFERENCE, slow=True),
    Metric("log_f0_rmse", "semitones", distances.log_f0_rmse, better="lower", needs=_REFERENCE, slow=True),
    Metric("stoi", "", distances.stoi, "higher", _REFERENCE, module="pystoi", extra="metrics", slow=True),
    Metric("pesq", "MOS-LQO", distances.pesq, "higher", _REFERENCE, module="pesq", extra="pesq", slow=True),
    Metric("words", "", words.words, needs=_TEXT),
    Metric("wer", "", words.wer, "lower", ("text", "recognizer"), module="jiwer", extra="metrics", slow=True),
    Metric("cer", "", words.cer, "lower", ("text", "recognizer"), module="jiwer", extra="metrics", slow=True),
    Metric("spectral_similarity", "", models.spectral_similarity, "higher", _REFERENCE, slow=True),
    _slow("speaker_similarity", "", models.speaker_similarity, "higher", ("reference", "encoder"), extra="speaker"),
    Metric("predicted_mos", "MOS", models.predicted_mos, "higher", ("predictor",), extra="mos", slow=True),
    Metric("distillmos", "MOS", models.distillmos, "higher", module="distillmos", extra="distillmos", slow=True),
    Metric("first_audio_s", "s", latency.first_audio, better="lower"),
    Metric("rtf", "", latency.rtf, better="lower"),
    Metric("underruns", "", latency.underruns, better="lower"),
    Metric("stalled_s", "s", latency.stalled, better="lower"),
    Metric("buffer_needed_s", "s", latency.buffer_needed, better="lower"),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _OWN}
"""voicelab's own metrics by name."""

BASIC = (
    "duration",
    "level",
    "peak",
    "true_peak",
    "loudness",
    "snr",
    "speech_time",
    "pauses",
    "pause_time",
    "longest_pause",
    "word_rate",
)
"""What ``measure`` measures by default: figures of the clip alone, a millisecond or two for each second of it."""


def available() -> dict[str, Metric]:
    """Return all metrics by name, those of other packages included.

    A registered metric cannot take the name of one of voicelab's own. Raises ArgumentError, which names the
    entry point, for one that cannot be loaded or is no Metric.
    """
    metrics = dict(METRICS)
    for entry in entry_points(group=GROUP):
        try:
            loaded = entry.load()
        except Exception as error:
            raise ArgumentError.of("metrics", f"the entry point {entry.value} cannot be loaded: {error}") from error
        for metric in (loaded,) if isinstance(loaded, Metric) else tuple(loaded):
            if not isinstance(metric, Metric):
                raise ArgumentError.of("metrics", f"the entry point {entry.value} is no Metric: {metric!r}")
            if metric.name in METRICS:
                raise ArgumentError.of("metrics", f"{entry.value} takes the name of voicelab's own {metric.name!r}")
            metrics[metric.name] = metric
    return metrics


def resolve(metrics: Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Return the metrics that are named or given, in order, each once.

    Raises ArgumentError for an unknown or repeated name, MissingExtra for one that is not installed.
    """
    if isinstance(metrics, str):
        metrics = (metrics,)
    chosen: dict[str, Metric] = {}
    for item in metrics:
        metric = item if isinstance(item, Metric) else METRICS.get(item) or available().get(item)
        if metric is None:
            near = hint("metric", str(item), available()) or f"; available: {', '.join(available())}"
            raise ArgumentError.of("metrics", f"unknown metric {item!r}{near}")
        if metric.name in chosen:
            raise ArgumentError.of("metrics", f"{metric.name!r} is there twice")
        if metric.module and find_spec(metric.module) is None:
            raise MissingExtra.of(metric.extra, f"the metric {metric.name}")
        chosen[metric.name] = metric
    if not chosen:
        raise ArgumentError.of("metrics", "name at least one")
    return tuple(chosen.values())


_CHUNKS_EACH = 4
_LARGEST_CHUNK = 25


MEASURE_OPTIONS = ("reference", "text", "tools", "jobs", "progress")
"""Options of ``measure`` beside clips and metrics."""


class Audible(Protocol):
    """What has a clip, such as a Take."""

    def clip(self) -> Clip:
        """Return it."""
        ...


def measure(
    clips: str | Path | Iterable[Clip | Audible | str | Path],
    metrics: Iterable[str | Metric] = BASIC,
    *,
    reference: Clip | Sequence[Clip | None] | None = None,
    text: str | Sequence[str | None] | None = None,
    tools: Tools | None = None,
    jobs: int = 1,
    progress: Callable[..., Iterable[Any]] | None = None,
) -> pd.DataFrame:
    """Return a DataFrame with a row for each clip, in their order, and a column of floats for each metric.

    A metric that is undefined for a clip is NaN there, and the column ``undefined`` says why, "" where all are
    defined: ``loudness: needs a block of 0.4 s, …; f0_median: …``. Beside word and character errors the column
    ``recognizer`` names the ASR model, ``faster-whisper:base.en`` or ``pocketsphinx``, and a note below the printed table,
    ``table.attrs["note"]``, tells how reliable it is. Of files the first column is ``file``.

    Args:
        clips: what is measured: Clips, or Takes, whose audio is fetched one after another, so that there may be more
            of it than memory; or files and folders of any format that FFmpeg reads, one or several, whose texts are in
            files NAME.txt or NAME.lab beside them.
        metrics: names (``METRICS`` and registered ones) or Metric objects; BASIC when not given.
        reference: what each clip is compared with, by metrics that compare: one clip for all, or one or None
            for each.
        text: what the clips should say: one text for all, or one for each; None, and where it is not given, is the
            text of a clip's own request.
        tools: recognizer, speaker encoder, MOS predictor and reader of figures, where the defaults do not do.
        jobs: number of processes. More than one pays for slow metrics (pitch, MFCC distance, words) on some dozens of
            clips; a script must then guard its beginning with ``if __name__ == "__main__":``, and what is given
            as ``tools`` and ``metrics`` must be picklable.
        progress: ``vl.progress``, to see how far it is.

    Raises:
        ArgumentError: a metric is unknown, the numbers of clips and references or texts differ, a metric that
            compares was asked for without a reference, or something cannot be sent to the processes.
        MissingExtra: a metric needs something that is not installed; it says what.
    """
    import pandas as pd

    chosen = resolve(metrics)
    rows = measure_rows(clips, chosen, reference=reference, text=text, tools=tools, jobs=jobs, progress=progress)
    files = ["file"] if any("file" in row for row in rows) else []
    columns = list(rows[0]) if rows else [*(metric.name for metric in chosen), "undefined"]
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys([*files, *columns])))
    return with_note(frame.astype({metric.name: float for metric in chosen}), chosen, tools)


def measure_rows(
    clips: str | Path | Iterable[Clip | Audible | str | Path],
    metrics: Iterable[str | Metric] = BASIC,
    *,
    reference: Clip | Sequence[Clip | None] | None = None,
    text: str | Sequence[str | None] | None = None,
    tools: Tools | None = None,
    jobs: int = 1,
    progress: Callable[..., Iterable[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Return what ``measure`` does, as dictionaries and without pandas."""
    chosen = check_measuring(metrics, reference=reference, tools=tools, jobs=jobs)
    items = list(_opened([clips] if isinstance(clips, Clip | str | Path) else clips))
    for number, clip in enumerate(items):
        if not isinstance(clip, Clip | Path) and not callable(getattr(clip, "clip", None)):
            raise ArgumentError.of("clips", f"number {number} is a {type(clip).__name__}, not a Clip, a Take or a path")
    references = _each(reference, len(items), "reference", Clip)
    texts = _each(text, len(items), "text", str)
    work = list(zip(items, references, texts, strict=True))
    tools = tools or Tools()
    show = progress or (lambda items, *_, **__: items)
    if jobs == 1 or len(work) < 2:
        return _rows(show(work, "clips", total=len(work)), chosen, tools)
    return _in_processes(work, chosen, tools, min(jobs, len(work)), show)


def check_measuring(
    metrics: Iterable[str | Metric], *, reference: object = None, tools: Tools | None = None, jobs: int = 1
) -> tuple[Metric, ...]:
    """Return the metrics after checking all that ``measure`` needs: before takes are made or files read.

    Raises ArgumentError for an unknown metric, one without the reference that it needs, ``jobs`` below 1; MissingExtra for
    what is not installed.
    """
    chosen = resolve(metrics)
    if type(jobs) is not int or jobs < 1:
        raise ArgumentError.of("jobs", "Input should be a whole number from 1")
    for metric in chosen:
        if "reference" in metric.needs and reference is None:
            raise ArgumentError.of("reference", f"{metric.name} compares clips with a reference, and there is none")
    needs = {need for metric in chosen for need in metric.needs}
    for need, find in _TOOLS.items():
        if need in needs:
            find(tools or Tools())
    return chosen


_TOOLS: dict[str, Callable[[Tools], object]] = {
    "encoder": models.encoder_of,
    "predictor": models.predictor_of,
    "recognizer": words.recognizer_of,
}
_Work = list[tuple[Clip | Audible | Path, Clip | None, str | None]]


def _each(value: Any, count: int, name: str, kind: type) -> list[Any]:
    if value is None or isinstance(value, kind):
        return [value] * count
    several = list(value)
    if len(several) != count:
        raise ArgumentError.of(name, f"there are {len(several)} for {count} clips")
    for number, item in enumerate(several):
        if item is not None and not isinstance(item, kind):
            raise ArgumentError.of(name, f"number {number} is a {type(item).__name__}, not a {kind.__name__}")
    return several


def _opened(clips: Iterable[Any]) -> Iterator[Any]:
    """Yield what is measured: of a folder its files."""
    for one in clips:
        if isinstance(one, str | Path):
            yield from sounds_in(one) if Path(one).is_dir() else [Path(one)]
        else:
            yield one


def listener_note(metrics: Iterable[str | Metric], tools: Tools | None = None) -> str:
    """Return a note on the ASR model behind word and character errors; "" where no metric needs one."""
    listening = [metric.name for metric in resolve(metrics) if "recognizer" in metric.needs]
    if not listening:
        return ""
    tools = tools or Tools()
    worth = getattr(words.recognizer_of(tools), "worth", "")
    return f"{', '.join(listening)}: ASR model {words.recognizer_name(tools)}. {worth}".rstrip()


def with_note(frame: pd.DataFrame, metrics: Iterable[str | Metric], tools: Tools | None = None) -> pd.DataFrame:
    """Return a table of ``metrics`` that prints a note on the ASR model below its rows, where a metric needs one."""
    from voicelab.metrics.table import noted

    return noted(frame, listener_note(metrics, tools) if metrics else "")


def _rows(
    work: Iterable[tuple[Clip | Audible | Path, Clip | None, str | None]], metrics: Sequence[Metric], tools: Tools
) -> list[dict[str, Any]]:
    # A reference for many clips is analyzed once.
    references: dict[int, Subject] = {}
    rows = []
    for number, (item, reference, given) in enumerate(work):
        other = None
        try:
            there = file_take(item) if isinstance(item, Path) else item
            clip = there if isinstance(there, Clip) else there.clip()
            take = clip.take
            if given is not None:
                text: str | None = said(given, take.call.model if take else DEFAULT_MODEL)
            else:
                text = take.call.said if take else None
            text = None if text == UNKNOWN_TEXT else text
            if reference is not None:
                other = references.setdefault(id(reference), Subject(reference, text=text, tools=tools))
            named = {"file": str(item)} if isinstance(item, Path) else {}
            rows.append(named | _row(Subject(clip, other, text, tools), metrics))
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
        if "recognizer" in metric.needs:  # beside its metrics: tables are cut on the right
            row.pop("recognizer", None)
            row["recognizer"] = words.recognizer_name(subject.tools)
    row["undefined"] = "; ".join(reasons)
    return row


def _in_processes(
    work: _Work, metrics: Sequence[Metric], tools: Tools, jobs: int, show: Callable[..., Iterable[Any]]
) -> list[dict[str, Any]]:
    try:
        ForkingPickler.dumps((metrics, tools))
    except Exception as error:
        raise ArgumentError.of("jobs", f"metrics and tools cannot be sent to other processes: {error}") from error
    size = min(-(-len(work) // (jobs * _CHUNKS_EACH)), _LARGEST_CHUNK)
    chunks = [work[begin : begin + size] for begin in range(0, len(work), size)]
    # spawn: threads, torch's among them, do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            each = pool.map(partial(_rows, metrics=metrics, tools=tools), chunks)
            rows = list(show(chain.from_iterable(each), "clips", total=len(work)))
        except BrokenProcessPool as error:
            reason = 'the processes ended early; does the script guard itself with if __name__ == "__main__":?'
            raise ArgumentError.of("jobs", reason) from error
    return rows
