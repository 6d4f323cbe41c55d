from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from training.__main__ import beside, main


def test_stages_that_are_not_named_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path), "--stages", "none"])
    main()
    assert list(tmp_path.iterdir()) == []


def test_stages_beside_others_that_fail_end_it_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(tmp_path)])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit, match=r"beside\.log says why"), beside(tmp_path, ("polish",)):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    assert "codec-run.safetensors" in (tmp_path / "beside.log").read_text()
