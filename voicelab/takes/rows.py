"""Rows and key columns of a TakeTable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from voicelab.audio.encoders import header_bytes
from voicelab.call import Call, short_name
from voicelab.clip import Take
from voicelab.errors import VoicelabError
from voicelab.recordings import REPEAT
from voicelab.runs.failures import error_message

SYSTEM: Final = "system"
"""Name of the key column that holds the systems of a comparison."""

RowState = Literal["waiting", "running", "done", "failed"]

TAKE_COLUMNS: Final = "seed duration_s first_audio_s total_s rtf cached digest key error".split()
"""Columns of a synthesized take in ``TakeTable.frame``, after its key columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """Key column: name, values in order, and their unique labels in tables and panels."""

    name: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]

    @classmethod
    def of_rows(cls, name: str, rows: Iterable[TakeRow]) -> Self:
        """Collect the values of a key column in the order of the rows."""
        values: dict[str, Any] = {}
        for row in rows:
            values.setdefault(row.labels[name], row.keys[name])
        return cls(name, tuple(values.values()), tuple(values))

    @property
    def title(self) -> str:
        """Short name of the field: ``voice`` for ``reference_id``."""
        return short_name(self.name)

    def find(self, value: object) -> list[str]:
        """Return the labels of a key that is given by its value or label, or of a list of such keys."""
        choices = value if isinstance(value, list | tuple | set) else [value]
        pairs = zip(self.values, self.labels, strict=True)
        return [label for level, label in pairs if any(choice in (level, label) for choice in choices)]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class TakeRow:
    """Row of a TakeTable: a take, a failure, or a take that is not synthesized yet.

    Args:
        keys: value of each key column; a value other than a number or text is replaced by its label.
        labels: label of each key column.
        call: the call of the take.
        take: the take; None for a failure, and before synthesis.
        error: error of a failed call.
        cached: whether the take was in a cache.
        columns: further columns, which are not used for pairing.
        duration_s: duration of a take from a file in seconds; if None, it is measured.
    """

    keys: Mapping[str, Any]
    labels: Mapping[str, str]
    call: Call
    take: Take | None = None
    error: Exception | None = None
    cached: bool = False
    columns: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    duration_s: float | None = None

    @property
    def repeat(self) -> Any:
        """Value of the key column ``repeat``."""
        return self.keys[REPEAT]

    @property
    def state(self) -> RowState:
        """``done``, ``failed``, or ``waiting`` for a take that is not synthesized yet."""
        return "done" if self.take is not None else "waiting" if self.error is None else "failed"

    def rename(self, names: Mapping[str, str]) -> Self:
        """Rename key columns."""
        keys, labels = (
            {names.get(name, name): value for name, value in pairs.items()} for pairs in (self.keys, self.labels)
        )
        return replace(self, keys=keys, labels=labels)

    def record(self) -> dict[str, Any]:
        """Return the key columns, the further columns and the TAKE_COLUMNS, without metrics."""
        take = self.take
        record = {**self.keys, **self.columns}
        if take is None or not take.source:
            record |= {**dict.fromkeys(TAKE_COLUMNS), "seed": self.call.seed, "cached": self.cached}
            record["error"] = None if self.error is None else error_message(self.error)
        if take is not None:
            seconds = _seconds_or_none(take) if self.duration_s is None else self.duration_s
            record |= {"duration_s": seconds, "digest": take.digest, "key": take.key}
            if not take.source:
                timing = take.timing
                record |= {"first_audio_s": timing.first_audio_s, "total_s": timing.total_s}
                record["rtf"] = None if seconds is None else timing.rtf(seconds)
        return record


def device_type(device: str) -> str:
    """Return the type of a device without its index and model: "cuda" for "cuda:0 NVIDIA H100"."""
    return re.split("[ :]", device)[0]


def device_notes(rows: Iterable[TakeRow]) -> tuple[str, ...]:
    """Return a note for each backend whose takes are from devices of several types, such as CPUs and GPUs."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        if row.take is not None:
            devices = counts.setdefault((row.take.backend, row.take.fingerprint), Counter())
            devices[device_type(row.take.device)] += 1
    return tuple(
        f"Takes of {backend} are from several devices ({', '.join(f'{device}: {n}' for device, n in devices.items())}), "
        'which round differently: a few takes may have other codes; frame(also=["device"]) names the device of each.'
        for (backend, _), devices in counts.items()
        if len(devices) > 1
    )


def value_label(value: str | float | None) -> str:
    """Format a plain value of a key column."""
    if value is None or isinstance(value, bool):
        return {None: "default", True: "on", False: "off"}[value]
    if value == "":
        return "(none)"
    return f"{value:g}" if isinstance(value, float) else str(value)


def seconds_of(take: Take) -> float:
    """Measure the duration of a take in seconds, decoding its audio only if the byte count does not suffice."""
    request = take.request
    if request.format in {"wav", "pcm"} and not take.source:
        size = sum(size for _, size in take.timing.arrivals)
        return max(size - header_bytes(request.format), 0) / 2 / request.rate
    return take.clip().duration


def _seconds_or_none(take: Take) -> float | None:
    try:
        return seconds_of(take)
    except VoicelabError:  # the audio is gone or damaged
        return None
