"""The registry of metrics, the metrics of latency and playback, and functions that measure the clips of a table."""

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
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from voicelab.audio.encoders import header_bytes
from voicelab.clip import UNKNOWN_TEXT, Clip, Take
from voicelab.errors import ArgumentError, AudioError, MissingExtra, StoreError
from voicelab.guesses import hint
from voicelab.metrics import distances, level, models, pitch, programs, words
from voicelab.metrics.metric import Metric, Need, Subject, Tools, Undefined
from voicelab.recordings import Report, file_take, reasons_of, sounds_in, unreadable
from voicelab.schema import DEFAULT_MODEL
from voicelab.stats.estimate import one_of
from voicelab.tables import path_text
from voicelab.tags import said

if TYPE_CHECKING:
    import pandas as pd

GROUP = "voicelab.metrics"
"""Entry point group of metrics; each entry point is a Metric, or a list or tuple of Metrics."""

_PROBLEM: Final = "problem"  # key of an unreadable file's error, in its row until all files are read

_Floats = npt.NDArray[np.float64]
_BUFFER_S = 0.2


def _take(subject: Subject) -> Take:
    if subject.clip.take is None:
        raise Undefined("the clip has no take, so it has no chunk arrival times")
    if subject.clip.take.source:
        raise Undefined("the clip is from a file, so it has no chunk arrival times")
    return subject.clip.take


def first_audio(subject: Subject) -> float:
    """Time to first audio: seconds from the call to the first chunk with audio; a WAV header is not audio."""
    return _take(subject).timing.first_audio_s


def rtf(subject: Subject) -> float:
    """Real-time factor: seconds from the call to the last chunk per second of audio; below 1 is faster than real time."""
    value = _take(subject).timing.rtf(subject.clip.duration)
    if not math.isfinite(value):
        raise Undefined("the clip is empty")
    return value


def _received(subject: Subject) -> tuple[_Floats, _Floats]:
    """Return the arrival times of the chunks and the cumulative seconds of audio, each of shape (chunks,)."""
    take = _take(subject)
    arrivals = np.array(take.timing.arrivals, np.float64).reshape(-1, 2)
    header = header_bytes(take.request.format)
    sizes = np.maximum(np.cumsum(arrivals[:, 1]) - header, 0.0)
    if not sizes.size or sizes[-1] <= 0.0:
        raise Undefined("the take has no chunk arrival times")
    return arrivals[:, 0], sizes / sizes[-1] * subject.clip.duration


def _gaps(subject: Subject, buffer_s: float) -> _Floats:
    """Simulate playback; return the duration of each interruption in seconds."""
    times, seconds = subject.once(_received)
    start = int(np.argmax(seconds >= min(buffer_s, seconds[-1]) - 1e-9))
    gaps = []
    # Time at which the buffer runs empty.
    empty = times[start] + seconds[start]
    for time, before, after in zip(times[start + 1 :], seconds[start:], seconds[start + 1 :], strict=False):
        if after > before:
            if time > empty:
                gaps.append(time - empty)
            empty = max(time, empty) + after - before
    return np.array(gaps)


def underruns(subject: Subject, buffer_s: float = _BUFFER_S) -> float:
    """Number of buffer underruns when playback starts with 0.2 s buffered (or the whole clip, if shorter).

    Playback is simulated from the chunk arrival times: a chunk's duration is proportional to its size in bytes, and
    interrupted playback resumes with the next chunk. ``underruns_at`` returns the metric for another buffer.
    """
    return float(_gaps(subject, buffer_s).size)


def stalled(subject: Subject) -> float:
    """Total duration of interruptions in seconds; see ``underruns``."""
    return float(_gaps(subject, _BUFFER_S).sum())


def underruns_at(buffer_s: float) -> Metric:
    """Return the metric of underruns for a buffer of ``buffer_s`` seconds. Raises ArgumentError unless it is at least 0."""
    if not (math.isfinite(buffer_s) and buffer_s >= 0.0):
        raise ArgumentError.of("buffer_s", f"must be at least 0 seconds, got {buffer_s!r}")
    return Metric(f"underruns_{round(buffer_s * 1000)}ms", "", partial(underruns, buffer_s=buffer_s), better="lower")


def buffer_needed(subject: Subject) -> float:
    """Smallest buffer in seconds without underruns: the largest lag of a chunk behind playback from the first audio."""
    times, seconds = subject.once(_received)
    audible = seconds > 0.0
    times, seconds = times[audible], seconds[audible]
    played = np.concatenate(([0.0], seconds[:-1]))
    return float(np.max(times - played) - times[0])


_TEXT: tuple[Need, ...] = ("text",)
_REFERENCE: tuple[Need, ...] = ("reference",)

_slow = partial(Metric, slow=True)
_praat = partial(_slow, module="parselmouth", extra="praat")

_BUILTIN = (
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
    Metric("first_audio_s", "s", first_audio, better="lower"),
    Metric("rtf", "", rtf, better="lower"),
    Metric("underruns", "", underruns, better="lower"),
    Metric("stalled_s", "s", stalled, better="lower"),
    Metric("buffer_needed_s", "s", buffer_needed, better="lower"),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _BUILTIN}
"""Built-in metrics by name."""

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
"""Default metrics of ``measure``, which need no further inputs and take 1 to 2 ms per second of audio."""


def available() -> dict[str, Metric]:
    """Return all metrics by name, including those of entry points.

    Raises ArgumentError for an entry point that cannot be loaded, is not a Metric, or has the name of a built-in metric.
    """
    metrics = dict(METRICS)
    for entry in entry_points(group=GROUP):
        try:
            loaded = entry.load()
        except Exception as error:
            raise ArgumentError.of("metrics", f"the entry point {entry.value} cannot be loaded: {error}") from error
        for metric in (loaded,) if isinstance(loaded, Metric) else tuple(loaded):
            if not isinstance(metric, Metric):
                raise ArgumentError.of("metrics", f"the entry point {entry.value} must be a Metric, got {metric!r}")
            if metric.name in METRICS:
                raise ArgumentError.of(
                    "metrics", f"the entry point {entry.value} has the name of the built-in metric {metric.name!r}"
                )
            metrics[metric.name] = metric
    return metrics


def resolve(metrics: Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Return the Metric objects for names and metrics, in order.

    Raises ArgumentError for an unknown or repeated name, MissingExtra when a required package is not installed.
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
            raise ArgumentError.of("metrics", f"must be distinct, got {metric.name!r} twice")
        if metric.module and find_spec(metric.module) is None:
            raise MissingExtra.of(metric.extra, f"the metric {metric.name}")
        chosen[metric.name] = metric
    if not chosen:
        raise ArgumentError.of("metrics", "at least one metric is required")
    return tuple(chosen.values())


_CHUNKS_PER_JOB = 4
_MAX_CHUNK = 25


PROMPT = "prompt"
"""Value of ``reference`` that selects the first recording in the ``references`` of a take's request."""

MEASURE_OPTIONS = ("reference", "text", "tools", "jobs", "progress")
"""Keyword options of ``measure``."""


class Audible(Protocol):
    """Protocol for objects with a clip, such as a Take."""

    def clip(self) -> Clip:
        """Return the clip."""
        ...


def measure(
    clips: str | Path | Iterable[Clip | Audible | str | Path],
    metrics: Iterable[str | Metric] = BASIC,
    *,
    reference: Clip | Sequence[Clip | None] | Literal["prompt"] | None = None,
    text: str | Sequence[str | None] | None = None,
    tools: Tools | None = None,
    jobs: int = 1,
    progress: Callable[..., Iterable[Any]] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> pd.DataFrame:
    """Measure clips: a DataFrame with a row per clip, in order, and a float column per metric.

    Undefined values are NaN, and the column ``undefined`` has the reason, such as ``loudness: the duration must be at
    least 0.4 s, …``. With WER and CER, the columns ``recognizer`` and ``normalizer`` and a note below the printed
    table, ``table.attrs["note"]``, name the ASR model (``faster-whisper:base``, ``pocketsphinx``) and the text
    normalizer. For files the first column is ``file``, the column ``notes`` names averaged channels, clipping and the
    like, and ``table.attrs["excluded"]`` has the skipped files of folders, by path with the reason.

    Args:
        clips: Clips; Takes, whose audio is loaded one at a time; or one or more files and folders, in any format that FFmpeg
            reads, with texts in NAME.txt or NAME.lab.
        metrics: names (``METRICS`` and registered ones) or Metric objects, by default BASIC.
        reference: reference of metrics that compare clips: one for all clips, a sequence with one (or None) per clip, or
            "prompt", the recording from which the voice of each take was cloned.
        text: spoken text: one for all clips, or a sequence with one (or None) per clip; default: that of the clip's request.
        tools: recognizer, text normalizer, speaker encoder and MOS predictor other than the defaults.
        jobs: number of processes. Several are faster for slow metrics (F0, MFCC distance, WER) on dozens of clips; scripts
            then need the guard ``if __name__ == "__main__":``, and ``tools`` and ``metrics`` must be picklable.
        progress: ``vl.progress`` shows a bar.
        on_error: "raise" reports all unreadable files in one error; "skip" adds a row without values for each of them, with
            the reason in ``undefined``.

    Raises:
        StoreError, AudioError: files cannot be read or are damaged; an AudioError's ``files`` has all of them.
        ArgumentError: a metric is unknown, the numbers of clips and references or texts differ, a metric lacks its
            reference, or an argument cannot be pickled.
        MissingExtra: a required package is not installed.
    """
    import pandas as pd

    chosen, report = resolve(metrics), Report()
    listed = list(_opened([clips] if isinstance(clips, Clip | str | Path) else clips, report))
    options: dict[str, Any] = {"reference": reference, "text": text, "tools": tools, "jobs": jobs, "progress": progress}
    rows = measure_rows(listed, chosen, on_error=on_error, **options)
    files = ["file"] if any("file" in row for row in rows) else []
    columns = dict.fromkeys([*files, *(metric.name for metric in chosen), *chain.from_iterable(rows), "undefined"])
    numbers = {metric.name: float for metric in chosen}
    texts = dict.fromkeys(columns.keys() - numbers.keys(), "")
    frame = pd.DataFrame(rows, columns=list(columns)).fillna(texts).astype(numbers)
    frame.attrs["excluded"] = report.excluded
    return with_note(frame, chosen, tools)


def measure_rows(
    clips: str | Path | Iterable[Clip | Audible | str | Path],
    metrics: Iterable[str | Metric] = BASIC,
    *,
    reference: Clip | Sequence[Clip | None] | Literal["prompt"] | None = None,
    text: str | Sequence[str | None] | None = None,
    tools: Tools | None = None,
    jobs: int = 1,
    progress: Callable[..., Iterable[Any]] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> list[dict[str, Any]]:
    """Measure clips like ``measure``, but return dictionaries."""
    chosen = check_measuring(metrics, reference=reference, tools=tools, jobs=jobs)
    one_of(on_error, "on_error", ("raise", "skip"))
    items = list(_opened([clips] if isinstance(clips, Clip | str | Path) else clips, Report()))
    for number, clip in enumerate(items):
        if not isinstance(clip, Clip | Path) and (hasattr(clip, "dtype") or not callable(getattr(clip, "clip", None))):
            hint = "; use vl.Clip(samples, rate)" if hasattr(clip, "dtype") else ""
            message = f"must be Clips, Takes or paths, got {type(clip).__name__} at index {number}{hint}"
            raise ArgumentError.of("clips", message)
    references = [PROMPT] * len(items) if reference == PROMPT else _each(reference, len(items), "reference", Clip)
    texts = _each(text, len(items), "text", str)
    work = list(zip(items, references, texts, strict=True))
    tools = tools or Tools()
    show = progress or (lambda items, *_, **__: items)
    if jobs == 1 or len(work) < 2:
        rows = _rows(show(work, "clips", total=len(work)), chosen, tools)
    else:
        rows = _in_processes(work, chosen, tools, min(jobs, len(work)), show)
    problems = {row["file"]: error for row in rows if (error := row.pop(_PROBLEM, None))}
    if problems and on_error == "raise":
        raise unreadable(problems, len(rows))
    return rows


def check_measuring(
    metrics: Iterable[str | Metric], *, reference: object = None, tools: Tools | None = None, jobs: int = 1
) -> tuple[Metric, ...]:
    """Check the arguments of ``measure`` before takes are generated or files are read, and return the metrics.

    Raises ArgumentError for an unknown metric, a missing reference and ``jobs`` below 1; MissingExtra for a missing package.
    """
    chosen = resolve(metrics)
    if type(jobs) is not int or jobs < 1:
        raise ArgumentError.of("jobs", f"must be a whole number, 1 or more, got {jobs!r}")
    for metric in chosen:
        if "reference" in metric.needs and reference is None:
            raise ArgumentError.of("reference", f"{metric.name} compares clips with a reference: pass reference=…")
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
_Work = list[tuple[Clip | Audible | Path, Clip | str | None, str | None]]


def _each(value: Any, count: int, name: str, kind: type) -> list[Any]:
    if value is None or isinstance(value, kind):
        return [value] * count
    items = list(value)
    if len(items) != count:
        raise ArgumentError.of(name, f"must be {count}, one per clip, got {len(items)}")
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, kind):
            raise ArgumentError.of(name, f"item {index} must be a {kind.__name__}, got {type(item).__name__}")
    return items


def _opened(clips: Iterable[Any], report: Report) -> Iterator[Any]:
    """Yield the clips and paths, with the files of each folder in place of the folder."""
    for item in clips:
        if isinstance(item, str | Path):
            yield from sounds_in(item, report) if Path(item).is_dir() else [Path(item)]
        else:
            yield item


def listener_note(metrics: Iterable[str | Metric], tools: Tools | None = None) -> str:
    """Return a note on the ASR model behind WER and CER; "" if neither is among the metrics."""
    names = [metric.name for metric in resolve(metrics) if "recognizer" in metric.needs]
    if not names:
        return ""
    tools = tools or Tools()
    worth = getattr(words.recognizer_of(tools), "worth", "")
    models = f"ASR model {words.recognizer_name(tools)}, text normalizer {words.normalizer_name(tools)}"
    return f"{', '.join(names)}: {models}. {worth}".rstrip()


def with_note(frame: pd.DataFrame, metrics: Iterable[str | Metric], tools: Tools | None = None) -> pd.DataFrame:
    """Add the note on the ASR model to the attributes of a table of ``metrics``."""
    from voicelab.metrics.table import noted

    return noted(frame, listener_note(metrics, tools) if metrics else "")


def _rows(
    work: Iterable[tuple[Clip | Audible | Path, Clip | str | None, str | None]], metrics: Sequence[Metric], tools: Tools
) -> list[dict[str, Any]]:
    # A reference that many clips share is analyzed once.
    references: dict[object, Subject] = {}
    rows = []
    for number, (item, reference, request_text) in enumerate(work):
        reference_subject = None
        file: dict[str, Any] = {"file": path_text(item)} if isinstance(item, Path) else {}
        try:
            source = file_take(item) if isinstance(item, Path) else item
            clip = source if isinstance(source, Clip) else source.clip()
            take = clip.take
            if request_text is not None:
                text: str | None = said(request_text, take.call.model if take else DEFAULT_MODEL)
            else:
                text = clip.spoken_text if isinstance(source, Clip) else take.call.said if take else None
            text = None if text == UNKNOWN_TEXT else text
            if reference == PROMPT:
                prompts = take.request.references if take is not None else None
                if prompts and prompts[0] not in references:
                    references[prompts[0]] = Subject(Clip.load(prompts[0].audio), text=prompts[0].text, tools=tools)
                reference_subject = references[prompts[0]] if prompts else None
            elif isinstance(reference, Clip):
                reference_subject = references.setdefault(id(reference), Subject(reference, text=text, tools=tools))
            results = dict(getattr(source, "levels", {}))  # those of a loudness-matched take
            rows.append(file | _row(Subject(clip, reference_subject, text, tools, results), metrics))
            if file and clip.notes:
                rows[-1]["notes"] = " ".join(clip.notes)
        except Exception as error:
            if file and isinstance(error, StoreError | AudioError):
                (reason,) = reasons_of({file["file"]: error}).values()
                rows.append(
                    {**file, **{metric.name: math.nan for metric in metrics}, "undefined": reason, _PROBLEM: error}
                )
                continue
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
        if "recognizer" in metric.needs:  # next to its metrics, since the display of wide tables is truncated
            for column, name in (("recognizer", words.recognizer_name), ("normalizer", words.normalizer_name)):
                row.pop(column, None)
                row[column] = name(subject.tools)
    row["undefined"] = "; ".join(reasons)
    return row


def _in_processes(
    work: _Work, metrics: Sequence[Metric], tools: Tools, jobs: int, show: Callable[..., Iterable[Any]]
) -> list[dict[str, Any]]:
    try:
        ForkingPickler.dumps((metrics, tools))
    except Exception as error:
        raise ArgumentError.of("jobs", f"metrics and tools cannot be sent to other processes: {error}") from error
    size = min(-(-len(work) // (jobs * _CHUNKS_PER_JOB)), _MAX_CHUNK)
    chunks = [work[begin : begin + size] for begin in range(0, len(work), size)]
    # The start method is spawn, since threads (including torch's) do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            each = pool.map(partial(_rows, metrics=metrics, tools=tools), chunks)
            rows = list(show(chain.from_iterable(each), "clips", total=len(work)))
        except BrokenProcessPool as error:
            reason = (
                'the processes ended unexpectedly; a script must call this under the guard if __name__ == "__main__":'
            )
            raise ArgumentError.of("jobs", reason) from error
    return rows
