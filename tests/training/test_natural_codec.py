from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.natural import corpus, measured, rendering
from training import codec, common, natural_codec, world
from training.natural_codec import CONFIG, FRAMES, STEPS, Crops, Targets, at_the_door, heard, speech_of
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.phones import PHONES


def test_a_frame_is_a_whole_number_of_steps_at_the_door_too() -> None:
    door = at_the_door(CONFIG)
    assert (door.sample_rate, door.hop, door.step, door.top) == (44_100, 2205, 441, 12_000)
    inside, outside = Codec(CONFIG).state_dict(), Codec(door).state_dict()
    assert {k: v.shape for k, v in inside.items()} == {k: v.shape for k, v in outside.items()}


def test_filters_are_those_of_the_window_and_f0_that_of_the_steps_end() -> None:
    said = rendering(0)
    rows = measured(said)
    count = rows.f0.size
    rising = np.linspace(100, 200, count, dtype=np.float32)
    marked = world.Measured(rows.meta, np.full_like(rows.envelope, 150), rows.aperiodicity, rising)
    marked.envelope[21] = 200
    envelope, share, f0 = Targets()(speech_of(said, marked), 4, 2)
    assert envelope.shape == share.shape == (2 * STEPS, CONFIG.filter_bands)
    assert (envelope[:, 0] > envelope[:, 0].min()).nonzero()[:, 0].tolist() == [
        22 - 4 * STEPS
    ]  # the step after its centre
    assert f0[0] == pytest.approx(marked.f0[4 * STEPS + 1])


@pytest.mark.parametrize(("coded", "wanted"), [(0, 1.0), (240, 0.0)])
def test_the_voices_share_is_worlds_and_none_without_f0(coded: int, wanted: float) -> None:
    rows = measured(rendering(0))
    noise = np.full_like(rows.aperiodicity, coded)
    f0 = rows.f0.copy()
    f0[: rows.f0.size // 2] = 0
    speech = speech_of(rendering(0), world.Measured(rows.meta, rows.envelope, noise, f0))
    _, share, _ = Targets()(speech, 0, speech.frames)
    assert float(share[: f0.size // 2].max()) < 0.003
    from_three_kilohertz_on = share[-3 * STEPS, 65:85].mean()
    assert float(from_three_kilohertz_on) == pytest.approx(wanted, abs=0.01)


def test_a_crop_is_heard_with_its_neighbours() -> None:
    speech = speech_of(rendering(0), measured(rendering(0)))
    whole = speech.samples.astype(np.float32) / 32768
    hop = CONFIG.hop
    assert np.array_equal(heard(speech, 2, 3), whole[hop : 6 * hop])
    beginning = heard(speech, 0, 2)
    assert not beginning[:hop].any()
    assert np.array_equal(beginning[hop:], whole[: 3 * hop])
    assert heard(speech, speech.frames - 1, 4).size == 6 * hop


def test_crops_have_the_shapes_that_the_codec_learns_from(tmp_path: Path) -> None:
    crops = Crops(corpus(tmp_path), seed=0)
    batch = crops.batch(3)
    assert batch.seen.shape == (3, FRAMES, 820)
    assert batch.envelope.shape == batch.voicing.shape == batch.weight.shape == (3, FRAMES * STEPS, CONFIG.filter_bands)
    names = {PHONES[i] for i in batch.phones.flatten().tolist()}
    assert names == {"^", "aa0", "."}
    assert torch.isfinite(batch.seen).all()


def test_training_pauses_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(CONFIG, codebooks=(8, 4), latent=8, width=16, fine_width=8, depth=2, filter_bands=world.BANDS)
    monkeypatch.setattr(natural_codec, "CONFIG", small)
    monkeypatch.setattr(natural_codec, "FRAMES", 6)
    monkeypatch.setattr(codec, "WARM", 3)
    folder = corpus(tmp_path, 2)
    path = natural_codec.train(folder, 5, minutes=0)
    assert common.read_meta(path)["step"] == 1
    path.unlink()  # the light one beside it is enough to go on from
    natural_codec.train(folder, 5)
    assert common.read_meta(path)["step"] == 5
    made = codec.load(path)
    assert made.config == small
    assert made.decode(torch.zeros(1, 3, 2, dtype=torch.int64)).shape == (1, 3 * small.hop)
