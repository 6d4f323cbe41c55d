"""The recorded request nearest to one that was not recorded, in a sentence."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from voicelab.call import Call
from voicelab.errors import StoreError
from voicelab.experiments.entries import Entries
from voicelab.schema import DEFAULT_RATES, ProsodyControl

__all__ = ["nearest"]

_LONGEST = 60


def nearest(entries: Entries, call: Call) -> str:
    """Return a sentence for an error: what was recorded that is nearest, and in which fields it differs."""
    asked = {**call.request.canonical(), "model": call.model, "seed": call.seed}
    best: tuple[float, dict[str, Any]] | None = None
    for key in entries:
        try:
            record = entries.record(key)
        except StoreError:
            continue
        if record is None or record.get("kind", "take") != "take":
            continue
        known = {**_canonical(record["request"]), "model": record["model"], "seed": record["seed"]}
        distance = _distance(asked, known)
        if best is None or distance < best[0]:
            best = (distance, known)
    start = f"{entries.folder} has no recording of this request"
    if best is None:
        return f"{start}; no speech was recorded in it"
    fields = [name for name in asked if asked[name] != best[1].get(name)]
    if not fields:
        return f"{start} by this backend; the same request to another one was recorded"
    told = ", ".join(f"{name} (recorded {_short(best[1].get(name))}, asked {_short(asked[name])})" for name in fields)
    return f"{start}; the nearest that was recorded differs in {told}"


def _canonical(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical form of a request's record: see ``TTSRequest.canonical``."""
    fields = dict(record)
    if fields["sample_rate"] is None:
        fields["sample_rate"] = DEFAULT_RATES.get(fields["format"])
    fields["prosody"] = fields["prosody"] or ProsodyControl().model_dump()
    if not fields["references"] or fields["reference_id"] is not None:
        fields["references"] = None
    return fields


def _distance(asked: Mapping[str, Any], known: Mapping[str, Any]) -> float:
    others: int = sum(asked[name] != known.get(name) for name in asked if name != "text")
    # Another text is a difference like any other when it is quite another, and less when it is alike.
    matcher = difflib.SequenceMatcher(None, asked["text"][:1000], str(known.get("text"))[:1000], autojunk=False)
    return others + 2.0 * (1.0 - matcher.quick_ratio())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
