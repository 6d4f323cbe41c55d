"""Training of the decoder: codes and encoder are unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.corpus_folder import SMALL, small_codec, speech
from training import common, decoder, kept
from voicelab.engine.core.layers import Carry


def test_crops_are_of_intelligible_utterances_and_cached(tmp_path: Path) -> None:
    crops = decoder.Crops(speech(tmp_path), small_codec(), seed=0)
    assert {mandarin: len(pool) for mandarin, pool in crops.of.items()} == {True: 0, False: 7}
    assert crops.batch().shape == (decoder.BATCH, decoder.FRAMES, SMALL.latent)
    before = (tmp_path / "latents" / "00000.safetensors").read_bytes()
    cached = decoder.Crops(tmp_path, small_codec(1), seed=0)
    assert (tmp_path / "latents" / "00000.safetensors").read_bytes() == before
    for latents, cached_latents in zip(crops.of[False], cached.of[False], strict=True):
        np.testing.assert_array_equal(latents, cached_latents)


@torch.no_grad()
def test_losses_of_the_teacher_itself_are_zero() -> None:
    codec, latents = small_codec(), torch.randn(2, 12, SMALL.latent)
    pair, edge = decoder.Pair(codec.decoder), 2 * codec.decoder.steps
    true = codec.decoder.filters(latents, Carry([None]))
    different = codec.decoder.filters(latents.flip(1), Carry([None]))
    _, parts = decoder.losses(pair, true, true, edge)
    _, wrong = decoder.losses(pair, different, true, edge)
    assert parts["envelope"] == parts["semitones"] == parts["features"] == 0
    assert all(wrong[name] > parts[name] for name in ("envelope", "share", "features"))


def test_without_renderings_the_decoder_is_unchanged(tmp_path: Path) -> None:
    assert "the decoder is unchanged" in str(decoder.train(tmp_path, small_codec(), 2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_only_the_decoder_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "DISCRIMINATOR_STEPS", 1)
    codec = small_codec()
    before = {k: v.clone() for k, v in codec.state_dict().items()}
    decoder.train(speech(tmp_path), codec, 3)
    assert common.read_meta(tmp_path / "decoder-run.safetensors")["step"] == 3
    assert all(torch.equal(v, before[k]) for k, v in codec.state_dict().items())
    trained = decoder.with_decoder(tmp_path, codec)
    changed = {k for k, v in trained.state_dict().items() if not torch.equal(v.cpu(), before[k])}
    assert changed
    assert all(name.startswith("decoder.") for name in changed)
    assert kept.digest_of(trained) == kept.digest_of(codec), "the codebooks must not change"
