from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.corpus_folder import corpus
from training import common, crops, polish
from training.polish import Discriminator, picture
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import CodecConfig

SMALL = CodecConfig(codebooks=(16, 8), latent=6, width=16, fine_width=12, depth=2, phones=4)


def test_a_discriminator_learns_to_tell_a_blurred_picture_from_a_sharp_one() -> None:
    torch.manual_seed(0)
    sharp = torch.randn(4, 3, 32, 64)
    blurred = torch.nn.functional.avg_pool2d(sharp, (1, 5), stride=1, padding=(0, 2))
    tell = Discriminator()
    optimizer = torch.optim.AdamW(tell.parameters(), lr=2e-3)
    losses = []
    for _ in range(40):
        loss = polish.told_apart(tell(blurred)[0], tell(sharp)[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]


def test_f0_is_seen_only_where_there_is_a_voice() -> None:
    level = torch.full((1, 4, 8), -5.0)
    voiced = torch.tensor([[True, True, False, False]])
    seen = picture(level, torch.full_like(level, 0.5), torch.tensor([[150.0, 300.0, 300.0, 80.0]]), voiced)
    assert seen.shape == (1, 3, 4, 8)
    assert seen[0, 2, :, 0].tolist() == [0, 2, 0, 0]
    assert Discriminator()(seen)[0].shape == (1, 1, 1)


def test_the_decoder_learns_alone_once_there_is_a_discriminator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(crops, "FRAMES", 8)
    monkeypatch.setattr(polish, "BATCH", 2)
    monkeypatch.setattr(polish, "ALONE", 2)
    folder, codec = corpus(tmp_path, 4), Codec(SMALL)
    before = {k: v.clone() for k, v in codec.state_dict().items()}
    path = polish.train(folder, codec, 2)
    assert all(torch.equal(v, before[k]) for k, v in codec.state_dict().items())
    polish.train(folder, codec, 4)
    assert common.read_meta(path)["step"] == 4
    changed = {k for k, v in polish.polished(folder, codec).state_dict().items() if not torch.equal(v.cpu(), before[k])}
    assert changed
    assert all(name.startswith("decoder.") for name in changed)
