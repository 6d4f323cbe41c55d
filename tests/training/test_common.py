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
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW([model.weight], lr=0.1),
        torch.optim.AdamW([model.bias], lr=0.2),
    ]
    return model, optimizers


def test_set_rate_scales_the_peak_rates() -> None:
    _, optimizers = fresh()
    set_rate(optimizers, 0.5)
    set_rate(optimizers, 0.5)
    assert [o.param_groups[0]["lr"] for o in optimizers] == [0.05, 0.1]


def test_rate_schedule() -> None:
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


def test_completed_run_is_not_repeated(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run.safetensors", 7)
    train(run)
    assert read_meta(run.path) == {"step": 7, "spent": run.spent, "seed": 7}
    resumed = run_of(run.path, 7)
    assert list(resumed) == []
    assert resumed.spent == run.spent
    assert all(torch.equal(value, run.average.values[name]) for name, value in resumed.average.values.items())


def test_interrupted_run_equals_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uninterrupted = run_of(tmp_path / "uninterrupted.safetensors", 9)
    train(uninterrupted)
    # The clock advances by two minutes per call, so that every step writes a checkpoint.
    ticking = itertools.count(0.0, 121.0)
    # Patch only the clock of the training module.
    monkeypatch.setattr(common, "time", SimpleNamespace(monotonic=lambda: next(ticking)))
    cut = run_of(tmp_path / "cut.safetensors", 9)
    train(cut, until=5)
    resumed = run_of(cut.path, 9)
    # The interrupted step is repeated.
    assert resumed.step == 4
    assert resumed.spent == 4 * 121
    train(resumed)
    for name, value in uninterrupted.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)
        assert torch.equal(resumed.average.values[name], uninterrupted.average.values[name])


def test_run_resumes_from_a_light_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "MAX_FILE_BYTES", 25)  # the weight has 24 bytes in half precision, the bias 6
    train(run_of(tmp_path / "run.safetensors", 7))
    light = common.light_files(tmp_path / "run-light.safetensors")
    assert [path.name for path in light] == ["run-light-0.safetensors", "run-light-1.safetensors"]
    (tmp_path / "run.safetensors").unlink()
    resumed = run_of(tmp_path / "run.safetensors", 9)
    assert resumed.step == 7
    train(resumed)
    assert read_meta(resumed.path)["step"] == 9
