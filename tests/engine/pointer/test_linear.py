"""Matrix products: exact, and independent per row."""

from __future__ import annotations

import numpy as np
import pytest

from voicelab.engine.pointer.arrays import ROW_SCALES, Floats, Weights, gelu, linear, product, widened
from voicelab.errors import WeightsError

SHAPES = [(768, 256), (256, 704), (7, 3_000), (131, 97), (1, 5), (2048, 256), (3, 12_000)]


def _rows(count: int, width: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def test_int8_weights_are_rounded_like_a_cast_to_float16() -> None:
    # Scales of all magnitudes, subnormal ones too; more numbers than are converted at once; ties.
    scales = np.concatenate([np.float16(2.0) ** np.arange(-24, 4), np.linspace(6e-8, 9, 400)]).astype(np.float16)
    matrix = np.broadcast_to(np.arange(-127, 128, dtype=np.int8), (len(scales), 255))
    wanted = (matrix.astype(np.float32) * scales.astype(np.float32)[:, None]).astype(np.float16).astype(np.float32)
    assert np.array_equal(widened({"a": matrix, "a" + ROW_SCALES: scales}, "a"), wanted)
    with pytest.raises(WeightsError, match="a has values that are not finite"):
        widened({"a": matrix, "a" + ROW_SCALES: np.full_like(scales, np.inf)}, "a")


@pytest.mark.parametrize(("out", "width"), SHAPES)
def test_products_are_exact_per_row(out: int, width: int) -> None:
    weight, x, bias = _rows(out, width), _rows(19, width, 1), _rows(1, out, 2)[0]
    multiply = linear(weight, bias)
    made = multiply(x)
    wanted = x.astype(np.float64) @ weight.astype(np.float64).T + bias
    np.testing.assert_allclose(made, wanted, atol=1e-5 * np.sqrt(width))
    for count in range(1, 19):
        assert np.array_equal(multiply(x[:count]), made[:count]), count
    assert np.array_equal(multiply(x[18:])[0], made[18])
    longer = _rows(61, width, 3)  # more rows than one product takes
    wanted = longer.astype(np.float64) @ weight.astype(np.float64).T + bias
    np.testing.assert_allclose(product(weight, bias)(longer), wanted, atol=1e-5 * np.sqrt(width))
    assert product(weight)(longer[:0]).shape == (0, out)


def test_gelu() -> None:
    torch = pytest.importorskip("torch")
    x = np.linspace(-12, 12, 4001, dtype=np.float32)
    np.testing.assert_allclose(gelu(x), torch.nn.functional.gelu(torch.from_numpy(x)).numpy(), atol=2e-6)


def test_weights_are_taken_once_in_their_shape() -> None:
    weights = Weights({"a.x": _rows(2, 3), "a.y": _rows(1, 1), "b": _rows(1, 1)})
    under = weights.under("a.")
    assert under.take("x", 2, 3).shape == (2, 3)
    with pytest.raises(WeightsError, match=r"a\.x is missing"):
        under.take("x", 2, 3)
    with pytest.raises(WeightsError, match=r"a\.y must have the shape \(4,\), got \(1, 1\)"):
        under.take("y", 4)
    under.finish()
    with pytest.raises(WeightsError, match="unexpected b"):
        weights.finish()
