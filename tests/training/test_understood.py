from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from training import ears, render, understood
from training.plan import Request
from training.understood import bare, edits, listen, verdicts_of


def test_edits() -> None:
    assert edits("kitten", "sitting") == 3
    assert edits("", "abc") == edits("abc", "") == 3
    assert edits("abc", "abc") == 0
    assert edits("flaw", "lawn") == 2
    assert edits("ab", "ba") == 2


def test_bare_keeps_phones_and_tones() -> None:
    assert bare("“wˌɛɹ ɪz ɪt?”") == "wɛɹɪzɪt"
    assert bare("ʨi→n, xau↓!") == "ʨi→nxau↓"


def rendering(number: int, text: str) -> render.Rendering:
    request = Request(number, "stock", "af_sky", (("af_sky", 1.0),), "en", text, 1.0, 0)
    durations = np.full(len(text) + 2, 2, np.uint8)
    frames = int(durations.sum())
    values, samples = np.ones(2 * frames, np.float32), np.zeros(600 * frames, np.int16)
    return render.Rendering(request, text, durations, values, values, samples, 1.0)


class ConstantEvaluator:
    """Evaluator that transcribes everything as "fox"."""

    call_count = 0

    def __init__(self, python: Path | None, judges: object) -> None:
        assert judges == ears.FAST_ASR

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def evaluate(self, samples: object, rate: int, language: str) -> ears.Evaluation:
        ConstantEvaluator.call_count += 1
        return ears.Evaluation("fox", None)


def test_unintelligible_utterances_are_excluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(understood, "Evaluators", ConstantEvaluator)
    monkeypatch.setattr(understood, "phonemes", lambda text, language: text)
    shards = tmp_path / "speech"
    shards.mkdir()
    for shard_index in range(2):
        renderings = [rendering(3 * shard_index + i, text) for i, text in enumerate(("fˈox.", "fog", "hare"))]
        render.save_shard(shards / f"{shard_index:05d}.npz", renderings)
    assert listen(tmp_path) == "2 of 6 utterances are excluded"
    assert listen(tmp_path) == "2 of 6 utterances are excluded"
    assert ConstantEvaluator.call_count == 6
    shard = min(shards.glob("?????.npz"))
    assert [r.request.text for r in understood.understood(shard)] == ["fˈox.", "fog"]
    assert [r.request.text for r in understood.understood(shard, limit=0.1)] == ["fˈox."]
    lines = verdicts_of(shard).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["wrong"] for line in lines] == [0, 0.333, 1]


@pytest.fixture
def judges(tmp_path: Path) -> Path:
    """Create an interpreter that responds with length and rate of the audio, and exits on empty audio."""
    script = tmp_path / "judges"
    script.write_text(
        f"#!{sys.executable}\n"
        "import base64, json, sys\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    size = len(base64.b64decode(request['samples'])) // 4\n"
        "    if not size: break\n"
        "    words = f\"{size} at {request['rate']} in {request['language']} by {sys.argv[2:]}\"\n"
        "    print(json.dumps({'words': words, 'opinion': 4.5}), flush=True)\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def test_evaluator_process(judges: Path) -> None:
    with ears.Evaluators(judges) as evaluators:
        evaluation = evaluators.evaluate(np.zeros(7, np.float32), 24_000, "zh")
        assert evaluation == ears.Evaluation("7 at 24000 in zh by ['whisper', 'opinion']", 4.5)
        with pytest.raises(SystemExit, match="process ended"):
            evaluators.evaluate(np.zeros(0, np.float32), 24_000)


def test_missing_environment_exits(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"see training/ears\.py"):
        ears.Evaluators(tmp_path / "none")
