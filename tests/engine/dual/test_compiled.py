"""A frame as torch's compiler makes it, on the CPU: the same codes and the same keys and values as uncompiled.

`make test` compiles nothing: that takes a minute for each configuration.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.engine.dual.tiny import CODEBOOKS, SPEECH, config_of, model_of, tensors_of
from voicelab.engine.core.compiled import compile_frame
from voicelab.engine.dual.step import DualStep, RowInput, RowState
from voicelab.errors import EngineUnavailable
from voicelab.schema import Model


def _run(step: DualStep, rows: int, frames: int = 8) -> tuple[list[list[RowState]], Tensor]:
    """States after each frame, and all that the slots hold; halfway a row is parked, and resumed."""
    after = []
    for position in range(frames):
        inputs = {}
        for row in range(rows):
            start = RowState((SPEECH[0] + 5 + row, *[5] * CODEBOOKS), 0, 0)
            inputs[row] = RowInput(None if position else start, position, row, 0.8, 0.9, again=True)
        step.launch(inputs, {})
        after.append([one.state for one in step.read().values()])
        if position == frames // 2:
            held = step.slots.take(0, position + 1)
            step.slots.clear(0)
            step.slots.put(0, held)
    return after, torch.stack(step.slots.layers)[:, :, :rows, :, :frames]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
@pytest.mark.parametrize("name", ["s2-pro", "s1"])
@torch.inference_mode()
def test_compiled_is_eager(name: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    config = config_of(name)
    model = model_of(config, tensors_of(config))
    compiled = DualStep(model, 16, compile=True)
    compiled.prepare()
    for rows in (1, 2, 5, 16):
        states, held = _run(compiled, rows)
        expected, of_eager = _run(DualStep(model, 16), rows)
        assert states == expected
        torch.testing.assert_close(held, of_eager, atol=1e-5, rtol=1e-5)
    assert any((tmp_path / "compiled").rglob("*.so"))


def test_without_a_compiler_a_frame_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.WARNING, "voicelab.engine")
    with config.patch({"cpp.cxx": (str(tmp_path / "none"),), "fx_graph_cache": False}):
        frame = compile_frame(lambda x, y: (x * 2 + y).sin(), must=False)
        for _ in range(2):
            assert torch.equal(frame(torch.ones(1, 3), torch.ones(3)), torch.full((1, 3), 3.0).sin())
        with pytest.raises(EngineUnavailable, match="needs g\\+\\+"):
            compile_frame(lambda x, y: (x * 2 + y).cos(), must=True)(torch.ones(1, 3), torch.ones(3))
    assert sum("cannot be compiled" in message for message in caplog.messages) == 1
