"""Sorts out what the teacher said badly: an utterance that Whisper base does not understand is not trained on.

What Whisper wrote and what was asked are both turned into the teacher's phones, so that spellings, figures and homophones
do not count; the share of phones that differ decides. Each shard's verdicts are a file beside it, written whole or not
at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.ears import QUICK, Ears
from training.kokoro import MARKS, RATE, STRESS, phonemes
from training.render import Rendering, load_shard

LIMIT = 0.35
"""Share of phones told wrong from which an utterance is left out."""
_IGNORED = MARKS | STRESS | frozenset(' “”"()')


def bare(symbols: str) -> str:
    """Phones alone: no stress, spaces or punctuation; tones stay."""
    return "".join(s for s in symbols if s not in _IGNORED)


def edits(a: Sequence[object], b: Sequence[object]) -> int:
    """Substitutions, deletions and insertions from `a` to `b`, at least (Levenshtein)."""
    row = np.arange(len(b) + 1)
    for i, one in enumerate(a, 1):
        cost = np.minimum(row[1:] + 1, row[:-1] + np.array([one != other for other in b], dtype=int))
        # An insertion costs one more than what is to its left: a running minimum once the slope is taken out.
        row = np.concatenate([[i], cost])
        row = np.minimum.accumulate(row - np.arange(len(b) + 1)) + np.arange(len(b) + 1)
    return int(row[-1])


def wrong(symbols: str, heard: str, language: str) -> float:
    """Share of the phones of `symbols` that differ in the words `heard`."""
    said = bare(symbols)
    return edits(said, bare(phonemes(heard, language)) if heard.strip() else "") / max(1, len(said))


def verdicts_of(shard: Path) -> Path:
    """Where a shard's verdicts are."""
    return shard.with_suffix(".heard.jsonl")


def understood(shard: Path, limit: float = LIMIT) -> list[Rendering]:
    """The utterances of a shard that may be trained on; its verdicts must be there."""
    lines = verdicts_of(shard).read_text(encoding="utf-8").splitlines()
    share = {line["number"]: line["wrong"] for line in map(json.loads, lines)}
    return [r for r in load_shard(shard) if share[r.request.number] <= limit]


def listen(folder: Path, python: Path | None = None) -> str:
    """Writes the verdicts of every shard in ``folder/speech`` that has none."""
    left = [p for p in sorted((folder / "speech").glob("?????.npz")) if not verdicts_of(p).exists()]
    if left:
        with Ears(python, QUICK) as ears:
            for shard in left:
                _listen_to(shard, ears)
    lines = [
        json.loads(line)
        for path in sorted((folder / "speech").glob("*.heard.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    bad = sum(line["wrong"] > LIMIT for line in lines)
    return f"{bad} of {len(lines)} utterances are left out"


def _listen_to(shard: Path, ears: Ears) -> None:
    verdicts: list[dict[str, Any]] = []
    for rendering in load_shard(shard):
        asked = rendering.request
        heard = ears.hear(rendering.audio(), RATE, asked.language).words
        share = round(wrong(rendering.symbols, heard, asked.language), 3)
        verdicts.append({"number": asked.number, "heard": heard, "wrong": share})
    part = shard.with_suffix(".part")
    part.write_text("".join(json.dumps(v, ensure_ascii=False) + "\n" for v in verdicts), encoding="utf-8")
    part.rename(verdicts_of(shard))
    bad = sum(v["wrong"] > LIMIT for v in verdicts)
    print(f"{shard.stem}: {bad} of {len(verdicts)} left out", flush=True)
