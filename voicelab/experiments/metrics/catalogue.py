"""All metrics there are: voicelab's own, and those that other packages register."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points

from voicelab.errors import RequestInvalid
from voicelab.experiments.metrics import compare, latency, level, listeners, pitch, tempo, words
from voicelab.experiments.metrics.metric import Metric, Need

__all__ = ["BASIC", "GROUP", "METRICS", "available", "resolve"]

GROUP = "voicelab.metrics"
"""Entry points of this group add metrics: each names a Metric, or several in a list or tuple."""

_TEXT: tuple[Need, ...] = ("text",)
_REFERENCE: tuple[Need, ...] = ("reference",)

_OWN = (
    Metric("duration", "s", level.duration),
    Metric("level", "dBFS", level.level),
    Metric("peak", "dBFS", level.peak),
    Metric("true_peak", "dBTP", level.true_peak),
    Metric("loudness", "LUFS", level.loudness),
    Metric("snr", "dB", level.snr, better="higher"),
    Metric("speech_time", "s", tempo.speech_time),
    Metric("pauses", "", tempo.pauses),
    Metric("pause_time", "s", tempo.pause_time),
    Metric("longest_pause", "s", tempo.longest_pause),
    Metric("word_rate", "1/s", tempo.word_rate),
    Metric("syllable_rate", "1/s", tempo.syllable_rate, needs=_TEXT),
    Metric("spectral_tilt", "dB/octave", pitch.spectral_tilt),
    Metric("f0_median", "Hz", pitch.f0_median, slow=True),
    Metric("f0_mean", "Hz", pitch.f0_mean, slow=True),
    Metric("f0_sd", "semitones", pitch.f0_sd, slow=True),
    Metric("f0_range", "semitones", pitch.f0_range, slow=True),
    Metric("voiced_share", "", pitch.voiced_share, slow=True),
    Metric("jitter", "%", pitch.jitter, better="lower", slow=True),
    Metric("shimmer", "%", pitch.shimmer, better="lower", slow=True),
    Metric("mcd", "dB", compare.mcd, better="lower", needs=_REFERENCE, slow=True),
    Metric("log_f0_rmse", "semitones", compare.log_f0_rmse, better="lower", needs=_REFERENCE, slow=True),
    Metric("stoi", "", compare.stoi, "higher", _REFERENCE, module="pystoi", extra="metrics", slow=True),
    Metric("pesq", "MOS-LQO", compare.pesq, "higher", _REFERENCE, module="pesq", extra="pesq", slow=True),
    Metric("words", "", words.words, needs=_TEXT),
    Metric("wer", "", words.wer, "lower", ("text", "recognizer"), module="jiwer", extra="metrics", slow=True),
    Metric("cer", "", words.cer, "lower", ("text", "recognizer"), module="jiwer", extra="metrics", slow=True),
    Metric("speaker_similarity", "", listeners.speaker_similarity, "higher", ("reference", "encoder"), slow=True),
    Metric("predicted_mos", "MOS", listeners.predicted_mos, "higher", ("predictor",), extra="mos", slow=True),
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
"""What ``measure`` measures when not told: figures of the clip alone, a millisecond or two for each second."""


def available() -> dict[str, Metric]:
    """Return all metrics by name, those of other packages included.

    A registered metric cannot take the name of one of voicelab's own. Raises RequestInvalid, which names the
    entry point, for one that cannot be loaded or is no Metric.
    """
    found = dict(METRICS)
    for entry in entry_points(group=GROUP):
        try:
            loaded = entry.load()
        except Exception as error:
            raise RequestInvalid.of("metrics", f"the entry point {entry.value} cannot be loaded: {error}") from error
        for metric in (loaded,) if isinstance(loaded, Metric) else tuple(loaded):
            if not isinstance(metric, Metric):
                raise RequestInvalid.of("metrics", f"the entry point {entry.value} is no Metric: {metric!r}")
            if metric.name in METRICS:
                raise RequestInvalid.of("metrics", f"{entry.value} takes the name of voicelab's own {metric.name!r}")
            found[metric.name] = metric
    return found


def resolve(metrics: Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Return the metrics that are named or given, in order, each once.

    Raises RequestInvalid for an unknown or repeated name, MissingExtra for one that is not installed.
    """
    if isinstance(metrics, str):
        metrics = (metrics,)
    chosen: dict[str, Metric] = {}
    for item in metrics:
        metric = item if isinstance(item, Metric) else METRICS.get(item)
        if metric is None:
            everything = available()
            if item not in everything:
                raise RequestInvalid.of("metrics", f"there is no metric {item!r}; there are {', '.join(everything)}")
            metric = everything[str(item)]
        if metric.name in chosen:
            raise RequestInvalid.of("metrics", f"{metric.name!r} is there twice")
        metric.check_installed()
        chosen[metric.name] = metric
    if not chosen:
        raise RequestInvalid.of("metrics", "name at least one")
    return tuple(chosen.values())
