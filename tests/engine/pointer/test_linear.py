"""Matrix products, packed and blocked: exact, and independent per row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer import numpy_step as module
from voicelab.engine.pointer.family import PointerRunner
from voicelab.engine.pointer.numpy_step import Floats, linear, packed

SHAPES = [(768, 256), (256, 704), (7, 3_000), (131, 97), (1, 5), (2048, 256)]


def _weight(out: int, width: int) -> torch.Tensor:
    """Random weights, representable in float16."""
    return torch.from_numpy(_rows(out, width)).half().float()


def _rows(count: int, width: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize(("out", "width"), SHAPES)
def test_products_are_exact_per_row(out: int, width: int, bits: int) -> None:
    weight, x, bias = _weight(out, width), _rows(19, width, 1), _rows(1, out, 2)[0]
    weight = {16: weight, 32: weight * 1.001}[bits]
    multiply = linear(weight, torch.from_numpy(bias))
    made = multiply(x)
    np.testing.assert_allclose(
        made, x.astype(np.float64) @ weight.double().numpy().T + bias, atol=1e-5 * np.sqrt(width)
    )
    for count in range(1, 19):
        assert np.array_equal(multiply(x[:count]), made[:count]), count
    assert np.array_equal(multiply(x[18:])[0], made[18])


def test_only_lossless_weights_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = _weight(6, 4)
    if hasattr(torch, module._FP16_KERNEL) and "fbgemm" in torch.backends.quantized.supported_engines:
        assert packed(weight) is not None
    assert packed(weight * 1.001) is None
    assert packed(weight * 1e6) is None
    monkeypatch.setattr(module, "_FP16_KERNEL", "a_function_that_a_later_torch_does_not_have")
    assert packed(weight) is None


def test_embedded_weights_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocked products would take 1.5 times as long."""
    if "fbgemm" in torch.backends.quantized.supported_engines:
        monkeypatch.delattr(module, "blocked")
    weights = checkpoint.load()
    for model in (weights.lm, checkpoint.load_small(weights)):
        PointerRunner(model, 1, module.NumpyStep)
