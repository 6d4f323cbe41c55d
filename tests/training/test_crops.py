from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.corpus_folder import corpus, measured, rendering
from training import world
from training.crops import CONFIG, FRAMES, STEPS, Crops, Targets, heard, speech_of
from voicelab.engine.pointer.config import PHONES


def test_filters_are_those_of_the_window_and_f0_that_of_the_steps_end() -> None:
    said = rendering(0)
    rows = measured(said)
    count = rows.f0.size
    rising = np.linspace(100, 200, count, dtype=np.float32)
    marked = world.Measured(rows.meta, np.full_like(rows.envelope, 150), rows.aperiodicity, rising)
    marked.envelope[21] = 200
    envelope, share, f0 = Targets()(speech_of(said, marked), 2, 2)
    assert envelope.shape == share.shape == (2 * STEPS, CONFIG.filter_bands)
    assert (envelope[:, 0] > envelope[:, 0].min()).nonzero()[:, 0].tolist() == [
        22 - 2 * STEPS
    ]  # the step after its centre
    assert f0[0] == pytest.approx(marked.f0[2 * STEPS + 1])


@pytest.mark.parametrize(("coded", "wanted"), [(0, 1.0), (240, 0.0)])
def test_the_voices_share_is_worlds_and_none_without_f0(coded: int, wanted: float) -> None:
    rows = measured(rendering(0))
    noise = np.full_like(rows.aperiodicity, coded)
    f0 = rows.f0.copy()
    f0[: rows.f0.size // 2] = 0
    speech = speech_of(rendering(0), world.Measured(rows.meta, rows.envelope, noise, f0))
    _, share, _ = Targets()(speech, 0, speech.frames)
    assert float(share[: f0.size // 2].max()) < 0.003
    from_three_kilohertz_on = share[-3 * STEPS, 50:70].mean()
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
    assert batch.seen.shape == (3, FRAMES, 896)
    assert batch.envelope.shape == batch.voicing.shape == batch.weight.shape == (3, FRAMES * STEPS, CONFIG.filter_bands)
    names = {PHONES[i] for i in batch.phones.flatten().tolist()}
    assert {"^", "aa0"} <= names <= {"^", "aa0", "."}
    assert torch.isfinite(batch.seen).all()
