from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.training.corpus_folder import rendering
from tests.training.test_guess import WORDS
from training import guess, kept, lexicon, render, understood
from training.__main__ import background_stages, main


def test_only_selected_stages_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guess, "HELD_OUT", 20)
    lexicon.write(WORDS, tmp_path)
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path), "--stages", "guess", "--guess-steps", "1"])
    main()
    (line,) = (tmp_path / "stages.jsonl").read_text().splitlines()
    assert json.loads(line)["stage"] == "guess"


def test_shards_are_encoded_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def record(folder: Path, voices: Path, work: render.Work, jobs: int) -> str:
        steps.extend(f"render {path.stem}" for path, _ in work)
        return ""

    requests = [rendering(n).request for n in range(6)]
    monkeypatch.setattr(render, "PER_SHARD", 2)
    monkeypatch.setattr(render, "plan", lambda *_: requests)
    monkeypatch.setattr(render, "fetch_voices", lambda folder: folder)
    monkeypatch.setattr(render, "render", record)
    monkeypatch.setattr(understood, "listen", lambda *_: steps.append("listen"))
    monkeypatch.setattr(kept, "keep_all", lambda *_: steps.append("keep"))
    command = ["training", "--folder", str(tmp_path), "--corpus", str(tmp_path), "--jobs", "1", "--shards", "2"]
    monkeypatch.setattr(sys, "argv", [*command, "--stages", "render,understood,keep"])
    main()
    assert steps == ["render 00000", "listen", "keep", "render 00001", "listen", "keep"]


def test_unknown_stage_is_rejected(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--stages", "keep,coder"])
    with pytest.raises(SystemExit):
        main()
    assert "got 'coder'" in capsys.readouterr().err


@pytest.mark.thorough
def test_failed_background_stage_exits_and_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path), "--corpus", str(tmp_path / "none")])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit, match=r"see .*beside\.log"), background_stages(tmp_path, ("listen",)):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    assert f"no encoded corpus in {tmp_path / 'none'}" in (tmp_path / "beside.log").read_text()
