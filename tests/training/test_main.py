from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.training.corpus_folder import rendering
from tests.training.test_guess import WORDS
from training import guess, kept, lexicon, render, understood
from training.__main__ import beside, main


def test_stages_that_are_not_named_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guess, "HELD", 20)
    lexicon.write(WORDS, tmp_path)
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path), "--stages", "guess", "--guess-steps", "1"])
    main()
    (line,) = (tmp_path / "stages.jsonl").read_text().splitlines()
    assert json.loads(line)["stage"] == "guess"


def test_every_shard_is_kept_before_the_next_is_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def rendered(folder: Path, voices: Path, work: render.Work, jobs: int) -> str:
        steps.extend(f"render {path.stem}" for path, _ in work)
        return ""

    asked = [rendering(n).request for n in range(6)]
    monkeypatch.setattr(render, "PER_SHARD", 2)
    monkeypatch.setattr(render, "plan", lambda *_: asked)
    monkeypatch.setattr(render, "fetch_voices", lambda folder: folder)
    monkeypatch.setattr(render, "render", rendered)
    monkeypatch.setattr(understood, "listen", lambda *_: steps.append("listen"))
    monkeypatch.setattr(kept, "keep_all", lambda *_: steps.append("keep"))
    command = ["training", "--folder", str(tmp_path), "--corpus", str(tmp_path), "--jobs", "1", "--shards", "2"]
    monkeypatch.setattr(sys, "argv", [*command, "--stages", "render,understood,keep"])
    main()
    assert steps == ["render 00000", "listen", "keep", "render 00001", "listen", "keep"]


def test_a_stage_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--stages", "keep,coder"])
    with pytest.raises(SystemExit):
        main()
    assert "no stage is called 'coder': there are render" in capsys.readouterr().err


@pytest.mark.thorough
def test_stages_beside_others_that_fail_end_it_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path), "--corpus", str(tmp_path / "none")])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit, match=r"beside\.log says why"), beside(tmp_path, ("listen",)):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    assert f"nothing is kept in {tmp_path / 'none'}" in (tmp_path / "beside.log").read_text()
