"""Metrics of clips: one function per metric, which cites its source, and functions to measure metrics by name."""

from voicelab.metrics.measure import (
    BASIC,
    MEASURE_OPTIONS,
    METRICS,
    available,
    check_measuring,
    listener_note,
    measure,
    measure_rows,
    underruns_at,
    with_note,
)
from voicelab.metrics.metric import Metric, MosPredictor, SpeakerEncoder, Subject, Tools, Undefined
from voicelab.metrics.models import DistillMos, Dnsmos, Resemblyzer

__all__ = [
    "BASIC",
    "MEASURE_OPTIONS",
    "METRICS",
    "DistillMos",
    "Dnsmos",
    "Metric",
    "MosPredictor",
    "Resemblyzer",
    "SpeakerEncoder",
    "Subject",
    "Tools",
    "Undefined",
    "available",
    "check_measuring",
    "listener_note",
    "measure",
    "measure_rows",
    "underruns_at",
    "with_note",
]
