"""Training of the encoder on telephone speech: codes and decoder are unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.corpus_folder import SMALL, corpus, small_codec
from training import common, kept, listen


def test_crops_are_clean_or_degraded(tmp_path: Path) -> None:
    clips = [clip for _, clip in kept.all_clips(corpus(tmp_path, small_codec()))]
    clean, rough = listen.Crops(clips, SMALL, seed=0).batch()
    assert clean.shape == rough.shape == (listen.BATCH, (listen.FRAMES + 2) * SMALL.hop)
    unchanged = [torch.equal(a, b) for a, b in zip(clean, rough, strict=True)]
    assert any(unchanged)
    assert not all(unchanged)


@pytest.mark.thorough
def test_only_the_encoder_is_trained(tmp_path: Path) -> None:
    codec = small_codec()
    folder = corpus(tmp_path, codec)
    before = {k: v.clone() for k, v in codec.state_dict().items()}
    path = listen.train(tmp_path, folder, codec, 2)
    assert common.read_meta(path)["step"] == 2
    assert all(torch.equal(v, before[k]) for k, v in codec.state_dict().items())
    trained = listen.with_encoder(tmp_path, codec)
    changed = {k for k, v in trained.state_dict().items() if not torch.equal(v.cpu(), before[k])}
    assert changed
    assert all(name.startswith("encoder.") for name in changed)
    assert kept.digest_of(trained) == kept.digest_of(codec), "the codebooks must not change"
