from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.training.test_guess import WORDS
from training import guess, lexicon
from training.__main__ import beside, main


def test_stages_that_are_not_named_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guess, "HELD", 20)
    lexicon.write(WORDS, tmp_path)
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path), "--stages", "guess", "--guess-steps", "1"])
    main()
    (line,) = (tmp_path / "stages.jsonl").read_text().splitlines()
    assert json.loads(line)["stage"] == "guess"


def test_a_stage_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--stages", "codes,coder"])
    with pytest.raises(SystemExit):
        main()
    assert "no stage is called 'coder': there are render" in capsys.readouterr().err


@pytest.mark.thorough
def test_stages_beside_others_that_fail_end_it_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path)])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit, match=r"beside\.log says why"), beside(tmp_path, ("polish",)):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    assert "codec-run.safetensors" in (tmp_path / "beside.log").read_text()
