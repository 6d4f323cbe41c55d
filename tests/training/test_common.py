from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from training import common
from training.common import Run, rate, read_meta, set_rate


def fresh() -> tuple[nn.Linear, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    both: list[torch.optim.Optimizer] = [
        torch.optim.AdamW([model.weight], lr=0.1),
        torch.optim.AdamW([model.bias], lr=0.2),
    ]
    return model, both


def test_the_rate_is_a_share_of_what_each_group_began_with() -> None:
    _, optimizers = fresh()
    set_rate(optimizers, 0.5)
    set_rate(optimizers, 0.5)
    assert [o.param_groups[0]["lr"] for o in optimizers] == [0.05, 0.1]


def test_the_rate_rises_holds_and_falls() -> None:
    assert rate(0.0, step=0, warm=10) < rate(0.01, step=9, warm=10) == rate(0.4, step=400, warm=10) == 1
    assert rate(0.7, step=700) == pytest.approx(0.515)
    assert rate(1.0, step=1000) == pytest.approx(0.03)


def run_of(path: Path, steps: int) -> Run:
    model, optimizers = fresh()
    return Run(path, steps, model, optimizers, decay=0.9, warm=3, hold=0.5, about={"seed": 7})


def train(run: Run, until: int = 100) -> None:
    for step in run:
        loss = (run.model(torch.full((1, 4), float(step))) - 1).square().sum()
        run.descend(loss, part=step)
        if step + 1 == until:
            break


def test_a_run_ends_after_its_steps_and_is_not_done_again(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run.safetensors", 7)
    train(run)
    assert read_meta(run.path) == {"step": 7, "spent": run.spent, "seed": 7}
    again = run_of(run.path, 7)
    assert list(again) == []
    assert again.spent == run.spent
    assert all(torch.equal(value, run.average.values[name]) for name, value in again.average.values.items())


def test_a_run_cut_off_ends_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_of(tmp_path / "whole.safetensors", 9)
    train(whole)
    # Two minutes pass at every look at the clock, so every step leaves a checkpoint.
    ticking = itertools.count(0.0, 121.0)
    # The clock of training alone: event loops of other tests' services run by the one of `time`.
    monkeypatch.setattr(common, "time", SimpleNamespace(monotonic=lambda: next(ticking)))
    cut = run_of(tmp_path / "cut.safetensors", 9)
    train(cut, until=5)
    resumed = run_of(cut.path, 9)
    # The step in which it was cut off is done again.
    assert resumed.step == 4
    assert resumed.spent == 4 * 121
    train(resumed)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)
        assert torch.equal(resumed.average.values[name], whole.average.values[name])


def test_a_light_checkpoint_lies_in_small_files_and_is_enough_to_go_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "PIECE", 25)  # the weight has 24 bytes in half precision, the bias 6
    train(run_of(tmp_path / "run.safetensors", 7))
    light = common.light_files(tmp_path / "run-light.safetensors")
    assert [path.name for path in light] == ["run-light-0.safetensors", "run-light-1.safetensors"]
    (tmp_path / "run.safetensors").unlink()
    again = run_of(tmp_path / "run.safetensors", 9)
    assert again.step == 7
    train(again)
    assert read_meta(again.path)["step"] == 9
