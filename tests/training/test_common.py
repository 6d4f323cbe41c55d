from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from training.common import Average, Clock, load_run, save_run, set_rate


def one_step(model: nn.Module, optimizers: list[torch.optim.Optimizer], value: float) -> None:
    loss = (model(torch.full((1, 4), value)) ** 2).sum()
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


def fresh() -> tuple[nn.Linear, Average, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    both: list[torch.optim.Optimizer] = [
        torch.optim.AdamW([model.weight], lr=0.1),
        torch.optim.AdamW([model.bias], lr=0.2),
    ]
    return model, Average(model), both


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    model, average, optimizers = fresh()
    for value in (1.0, 2.0):
        one_step(model, optimizers, value)
        average.update(model)
    save_run(tmp_path / "run.safetensors", model, average, optimizers, {"step": 2})
    one_step(model, optimizers, 3.0)

    again, its_average, its_optimizers = fresh()
    assert load_run(tmp_path / "run.safetensors", again, its_average, its_optimizers)["step"] == 2
    one_step(again, its_optimizers, 3.0)
    assert torch.equal(again.weight, model.weight)
    assert torch.equal(again.bias, model.bias)


def test_the_rate_is_a_share_of_what_each_group_began_with() -> None:
    _, _, optimizers = fresh()
    set_rate(optimizers, 0.5)
    set_rate(optimizers, 0.5)
    assert [o.param_groups[0]["lr"] for o in optimizers] == [0.05, 0.1]


def test_the_clock_counts_what_was_spent_before() -> None:
    clock = Clock(minutes=1, spent=45)
    assert 0.75 <= clock.done < 0.8
    assert Clock(minutes=1, spent=61).done == 1
    assert clock.rate(1.0, step=0, warm=10) < clock.rate(1.0, step=10, warm=10)
    assert Clock(minutes=1, spent=59.9).rate(1.0, step=999) < 0.05
