"""Takes as a tidy table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from voicelab.take import Take

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["take_row", "takes_frame"]


def take_row(take: Take) -> dict[str, Any]:
    """Return a take as a row: every field of its request by name, who spoke, when, and its timing.

    ``prosody`` is two columns, ``prosody.speed`` and ``prosody.volume``; of ``references`` there are the
    digests, separated by spaces, or None. Times are in seconds; ``bytes`` and ``chunks`` are those of the
    encoded audio. The audio itself is not read.
    """
    request = take.request.canonical()
    prosody = request.pop("prosody")
    references = request.pop("references")
    return {
        **request,
        "prosody.speed": prosody["speed"],
        "prosody.volume": prosody["volume"],
        "references": " ".join(item["audio_sha256"] for item in references) if references else None,
        "model": take.model,
        "backend": take.backend,
        "fingerprint": take.fingerprint,
        "device": take.device,
        "seed": take.call.seed,
        "seed_used": take.seed,
        "repeat": take.repeat,
        "first_audio_s": take.timing.first_audio_s,
        "total_s": take.timing.total_s,
        "chunks": len(take.timing.arrivals),
        "bytes": sum(size for _, size in take.timing.arrivals),
        "cached": take.cached,
        "created": take.created,
        "similarity": take.similarity,
        "notes": " ".join(take.notes),
        "digest": take.digest,
        "key": take.key,
    }


def takes_frame(takes: Iterable[Take], labels: Sequence[Mapping[str, Any]] | None = None) -> pd.DataFrame:
    """Return a tidy pandas table, one row a take, a column for every field: see ``take_row``.

    ``labels``, a mapping for each take, become further columns, the first ones. Seeds are whole numbers
    or missing (pandas' UInt64), whatever they are.
    """
    import pandas as pd

    rows = [take_row(take) for take in takes]
    if labels is not None:
        # What is said beside a take comes first, and stands where a field has the same name.
        rows = [{**beside, **row, **beside} for beside, row in zip(labels, rows, strict=True)]
    frame = pd.DataFrame(rows)
    for name in ("seed", "seed_used"):
        if name in frame:
            frame[name] = pd.array([row[name] for row in rows], dtype="UInt64")
    return frame
