"""Int8 matrices: error bounds, and the effect on depth logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.dual.tiny import SPEECH, config_of, tensors_of, write_model
from tests.engine.dual.tiny_codec import REAL_TIME, save_codec, tiny_tensors
from voicelab.engine.dual.model import DualLM
from voicelab.engine.dual.tower import Int8Matrix, Slots, dequantized, linear
from voicelab.engine.local import LocalBackend
from voicelab.errors import EngineError
from voicelab.lab import Lab


@pytest.mark.parametrize("shape", [(32,), (1, 32), (3, 5, 32)])
def test_int8_product_error_bound(shape: tuple[int, ...]) -> None:
    weight, x = torch.randn(48, 32), torch.randn(shape)
    rounded = Int8Matrix.of(weight)
    near = linear(x, rounded)
    assert near.shape == (*shape[:-1], 48)
    restored = rounded.weight.float() * rounded.scale[:, None]
    torch.testing.assert_close(near, linear(x, restored), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(near, dequantized(x, rounded), atol=1e-5, rtol=1e-5)
    assert bool(((restored - weight).abs() <= 0.5001 * rounded.scale[:, None]).all())


def test_a_row_of_zeros_stays_zero() -> None:
    assert not linear(torch.ones(1, 4), Int8Matrix.of(torch.zeros(2, 4))).any()


def test_int8_depth_changes_only_depth_logits() -> None:
    """Logits of the first passes; a layout error would change them far more."""
    config = config_of("s2-pro")
    tensors = tensors_of(config)
    model = DualLM(config, lambda name, *_: tensors[name], SPEECH, 64)
    small = model.with_int8_depth()
    assert small.slow is model.slow
    given = torch.randn(200, config.fast.width)
    logits: list[list[torch.Tensor]] = [[], []]
    for kept, one in zip(logits, (model, small), strict=True):

        def pick(_: int, of: torch.Tensor, kept: list[torch.Tensor] = kept) -> torch.Tensor:
            kept.append(of)
            return torch.zeros(len(of), dtype=torch.int64)  # the same codes, so that errors do not add up

        slots = Slots(config.fast, len(given), config.codebooks, model.embeddings)
        one.codes(given, torch.zeros(len(given), dtype=torch.int64), pick, slots)
    exact, near = (torch.stack(each) for each in logits)
    assert 0 < float((near - exact).std()) < 0.03 * float(exact.std())


def test_int8_depth_changes_the_fingerprint(tmp_path: Path) -> None:
    save_codec(write_model(tmp_path / "s1", "s1") / "codec.pth", tiny_tensors(REAL_TIME))
    spoken, prints = [], set()
    for int8_depth in (False, True):
        with LocalBackend("cpu", weights=tmp_path, rows=1, int8_depth=int8_depth) as backend:
            clip = Lab(backend).speak("Hello.", temperature=0, max_new_tokens=6)
            spoken.append(clip.samples)
            prints.add(backend.capabilities.fingerprint)
    assert len(prints) == 2
    assert spoken[0].std() > 0
    assert spoken[1].std() > 0
    with pytest.raises(EngineError, match="int8_depth requires open weights"):
        LocalBackend("cpu", int8_depth=True)
