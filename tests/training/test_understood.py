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


def test_edits_are_levenshteins() -> None:
    assert edits("kitten", "sitting") == 3
    assert edits("", "abc") == edits("abc", "") == 3
    assert edits("abc", "abc") == 0
    assert edits("flaw", "lawn") == 2
    assert edits("ab", "ba") == 2


def test_stress_spaces_and_punctuation_do_not_count_but_tones_do() -> None:
    assert bare("“wˌɛɹ ɪz ɪt?”") == "wɛɹɪzɪt"
    assert bare("ʨi→n, xau↓!") == "ʨi→nxau↓"


def rendering(number: int, text: str) -> render.Rendering:
    asked = Request(number, "stock", "af_sky", (("af_sky", 1.0),), "en", text, 1.0, 0)
    durations = np.full(len(text) + 2, 2, np.uint8)
    frames = int(durations.sum())
    values, samples = np.ones(2 * frames, np.float32), np.zeros(600 * frames, np.int16)
    return render.Rendering(asked, text, durations, values, values, samples, 1.0)


class Deaf:
    """Hears "fox" whatever is said."""

    asked = 0

    def __init__(self, python: Path | None, judges: object) -> None:
        assert judges == ears.QUICK

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def hear(self, samples: object, rate: int, language: str) -> ears.Heard:
        Deaf.asked += 1
        return ears.Heard("fox", None)


def test_what_is_not_understood_is_left_out_and_shards_are_heard_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(understood, "Ears", Deaf)
    monkeypatch.setattr(understood, "phonemes", lambda text, language: text)
    shards = tmp_path / "speech"
    shards.mkdir()
    for at in range(2):
        said = [rendering(3 * at + i, text) for i, text in enumerate(("fˈox.", "fog", "hare"))]
        render.save_shard(shards / f"{at:05d}.npz", said)
    assert listen(tmp_path) == "2 of 6 utterances are left out"
    assert listen(tmp_path) == "2 of 6 utterances are left out"
    assert Deaf.asked == 6
    first = min(shards.glob("?????.npz"))
    assert [r.request.text for r in understood.understood(first)] == ["fˈox.", "fog"]
    assert [r.request.text for r in understood.understood(first, limit=0.1)] == ["fˈox."]
    lines = verdicts_of(first).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["wrong"] for line in lines] == [0, 0.333, 1]


@pytest.fixture
def judges(tmp_path: Path) -> Path:
    """An interpreter that answers with the length and the rate of what it is given, and ends at silence."""
    script = tmp_path / "judges"
    script.write_text(
        f"#!{sys.executable}\n"
        "import base64, json, sys\n"
        "for line in sys.stdin:\n"
        "    told = json.loads(line)\n"
        "    size = len(base64.b64decode(told['samples'])) // 4\n"
        "    if not size: break\n"
        "    words = f\"{size} at {told['rate']} in {told['language']} by {sys.argv[2:]}\"\n"
        "    print(json.dumps({'words': words, 'opinion': 4.5}), flush=True)\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def test_the_judges_are_asked_in_their_own_process(judges: Path) -> None:
    with ears.Ears(judges) as asked:
        heard = asked.hear(np.zeros(7, np.float32), 24_000, "zh")
        assert heard == ears.Heard("7 at 24000 in zh by ['whisper', 'opinion']", 4.5)
        with pytest.raises(SystemExit, match="process ended"):
            asked.hear(np.zeros(0, np.float32), 24_000)


def test_without_their_environment_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"training/ears\.py says how"):
        ears.Ears(tmp_path / "none")
