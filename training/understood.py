"""Filter renderings by ASR: utterances that Whisper base does not recognize are excluded from training.

The phone error rate between transcript and text is computed on the teacher's phones, so that spelling, numerals and
homophones do not matter. The verdicts of a shard are written atomically to a file next to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.ears import FAST_ASR, Evaluators
from training.kokoro import MARKS, RATE, STRESS, phonemes
from training.render import Rendering, load_shard

MAX_PHONE_ERROR = 0.35
"""Maximum phone error rate of an utterance for training."""
_IGNORED = MARKS | STRESS | frozenset(' “”"()')


def bare(symbols: str) -> str:
    """Remove stress, spaces and punctuation; keep phones and tones."""
    return "".join(s for s in symbols if s not in _IGNORED)


def edits(a: Sequence[object], b: Sequence[object]) -> int:
    """Compute the Levenshtein distance."""
    row = np.arange(len(b) + 1)
    for i, item in enumerate(a, 1):
        cost = np.minimum(row[1:] + 1, row[:-1] + np.array([item != candidate for candidate in b], dtype=int))
        # Insertions cost 1 per step to the right: a running minimum after removing the slope.
        row = np.concatenate([[i], cost])
        row = np.minimum.accumulate(row - np.arange(len(b) + 1)) + np.arange(len(b) + 1)
    return int(row[-1])


def phone_error(symbols: str, transcript: str, language: str) -> float:
    """Compute the phone error rate of a transcript relative to `symbols`."""
    expected = bare(symbols)
    return edits(expected, bare(phonemes(transcript, language)) if transcript.strip() else "") / max(1, len(expected))


def verdicts_of(shard: Path) -> Path:
    """Return the path of a shard's verdicts."""
    return shard.with_suffix(".heard.jsonl")


def understood(shard: Path, limit: float = MAX_PHONE_ERROR) -> list[Rendering]:
    """Load the intelligible utterances of a shard, by its verdicts."""
    lines = verdicts_of(shard).read_text(encoding="utf-8").splitlines()
    share = {line["number"]: line["wrong"] for line in map(json.loads, lines)}
    return [r for r in load_shard(shard) if share[r.request.number] <= limit]


def listen(folder: Path, python: Path | None = None) -> str:
    """Evaluate every shard in ``folder/speech`` without verdicts."""
    pending = [p for p in sorted((folder / "speech").glob("?????.npz")) if not verdicts_of(p).exists()]
    if pending:
        with Evaluators(python, FAST_ASR) as evaluators:
            for shard in pending:
                _evaluate(shard, evaluators)
    lines = [
        json.loads(line)
        for path in sorted((folder / "speech").glob("*.heard.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    excluded = sum(line["wrong"] > MAX_PHONE_ERROR for line in lines)
    return f"{excluded} of {len(lines)} utterances are excluded"


def _evaluate(shard: Path, evaluators: Evaluators) -> None:
    verdicts: list[dict[str, Any]] = []
    for rendering in load_shard(shard):
        request = rendering.request
        transcript = evaluators.evaluate(rendering.audio(), RATE, request.language).words
        share = round(phone_error(rendering.symbols, transcript, request.language), 3)
        verdicts.append({"number": request.number, "heard": transcript, "wrong": share})
    partial = shard.with_suffix(".part")
    partial.write_text("".join(json.dumps(v, ensure_ascii=False) + "\n" for v in verdicts), encoding="utf-8")
    partial.rename(verdicts_of(shard))
    excluded = sum(v["wrong"] > MAX_PHONE_ERROR for v in verdicts)
    print(f"{shard.stem}: {excluded} of {len(verdicts)} excluded", flush=True)
