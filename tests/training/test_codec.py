from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.corpus_folder import corpus
from training import codec, common, crops
from training.codec import WARM, Training, train
from training.crops import CONFIG
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import PHONES, CodecConfig


def test_codebooks_begin_at_the_data_and_the_residual_shrinks_with_each() -> None:
    torch.manual_seed(0)
    config = CodecConfig(
        codebooks=(16, 8, 8), latent=6, width=16, fine_width=12, depth=2, filter_bands=20, phones=len(PHONES)
    )
    training = Training(config).eval()
    latents = torch.randn(400, 6)
    training.start_codebooks(latents)
    codes = training.codec.quantizer.encode(latents, beams=1)
    errors = []
    rest = latents
    for i, table in enumerate(training.codec.quantizer.tables):
        rest = rest - table[codes[:, i]]
        errors.append(float(rest.square().mean()))
    assert errors[0] < 0.7
    assert errors[2] < errors[1] < errors[0]


def test_a_codec_that_would_end_before_its_codebooks_begin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"--codec-steps is {WARM}"):
        train(tmp_path, None, WARM)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> CodecConfig:
    config = replace(CONFIG, codebooks=(8, 4), latent=8, width=16, fine_width=8, depth=2)
    for module in (crops, codec):
        monkeypatch.setattr(module, "CONFIG", config)
    monkeypatch.setattr(crops, "FRAMES", 6)
    monkeypatch.setattr(codec, "BATCH", 4)
    monkeypatch.setattr(codec, "WARM", 3)
    return config


def test_training_pauses_and_goes_on(tmp_path: Path, small: CodecConfig) -> None:
    folder = corpus(tmp_path, 2)
    path = train(folder, None, 5, minutes=0)
    assert common.read_meta(path)["step"] == 1
    path.unlink()  # the light one beside it is enough to go on from
    train(folder, None, 5)
    assert common.read_meta(path)["step"] == 5
    made = codec.load(path)
    assert made.config == small
    assert made.decode(torch.zeros(1, 3, 2, dtype=torch.int64)).shape == (1, 3 * small.hop)


def test_a_codec_that_was_trained_before_goes_on_from_where_it_was(tmp_path: Path, small: CodecConfig) -> None:
    torch.manual_seed(1)
    start = Codec(small)
    before = {k: v.clone() for k, v in start.state_dict().items()}
    moved = {k: v - before[k] for k, v in codec.load(train(corpus(tmp_path, 2), start, 1)).state_dict().items()}
    assert max(float(v.abs().max()) for k, v in moved.items() if "tables" not in k) < 1e-4
    assert all(v.any() for k, v in moved.items() if k.endswith(("tables.0", "linear.bias", "enter.weight")))
