from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tests.training.natural import corpus, measured, rendering
from training import codec, common, source_filter
from training.natural_codec import CONFIG, Targets, speech_of
from training.source_filter import Distance, rendered, source, told, with_head
from voicelab.engine.pointer.codec import Codec, Head, Vocoder


def test_pulses_run_in_the_phase_of_the_teachers_own_source() -> None:
    """The buzz of the test corpus has 39 harmonics in that phase, the pulses those and 41 above them."""
    speech = speech_of(rendering(0), measured(rendering(0)))
    vocoder = Vocoder(CONFIG.sample_rate, CONFIG.filter_bands, CONFIG.step)
    hz, cycles = (torch.from_numpy(x)[None] for x in source(speech, 0, speech.frames))
    filters = told(*(x[None] for x in Targets()(speech, 0, speech.frames)))
    made = rendered(None, vocoder, replace(filters, envelope=torch.full_like(filters.envelope, -2.0)), hz, cycles, 0)[0]
    middle = slice(12_000, 24_000)
    said = torch.from_numpy(speech.samples[middle].astype(np.float32))
    likeness = torch.corrcoef(torch.stack([made[middle], said]))[0, 1]
    assert float(likeness) == pytest.approx((39 / 80) ** 0.5, abs=0.03)


def test_where_the_teacher_has_no_voice_f0_is_bridged() -> None:
    said = rendering(0)
    f0 = said.f0.copy()
    f0[60:80] = 5
    speech = speech_of(replace(said, f0=f0), measured(said))
    hz, cycles = source(speech, 0, speech.frames)
    assert hz.min() == pytest.approx(150)
    assert cycles.size == hz.size == speech.samples.size


def test_a_fresh_head_adds_nothing_and_the_distance_of_a_thing_to_itself_is_none() -> None:
    config = replace(CONFIG, head_width=8, head_depth=1)
    vocoder, head = Vocoder(config.sample_rate, config.filter_bands, config.step), Head(config)
    filters = told(torch.full((1, 20, 100), -3.0), torch.full((1, 20, 100), 0.5), torch.full((1, 20), 150.0))
    hz, cycles = torch.full((1, 4800), 150.0), (torch.arange(4800.0) / 160).double()[None]
    plain = rendered(None, vocoder, filters, hz, cycles, 3)
    assert torch.allclose(plain, rendered(head, vocoder, filters, hz, cycles, 3), atol=1e-6)
    with torch.no_grad():
        head.leave.bias.fill_(0.2)
    louder = rendered(head, vocoder, filters, hz, cycles, 3)
    distances = Distance()(louder, plain)
    assert all(float(part.detach()) > 0.01 for part in distances.values())
    assert all(float(part) == 0 for part in Distance()(plain, plain).values())


def test_a_head_is_trained_on_measures_then_on_codes_and_joins_the_codec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, codebooks=(8, 4), latent=8, width=16, fine_width=8, depth=2)
    monkeypatch.setattr(source_filter, "WITH_HEAD", replace(CONFIG, head_width=8, head_depth=1))
    monkeypatch.setattr(source_filter, "BATCH", 2)
    folder = corpus(tmp_path, 3)
    trained = codec.Training(config)
    common.save_run(
        folder / "codec-run.safetensors", trained, common.Average(trained), [], {"config": config.to_dict()}
    )
    coded = Mock(side_effect=source_filter.coded)
    monkeypatch.setattr(source_filter, "coded", coded)
    path = source_filter.train(folder, 4)
    assert coded.call_count == 2
    whole = with_head(codec.load(folder / "codec-run.safetensors"), path)
    assert isinstance(whole, Codec)
    assert whole.decoder.head is not None
    assert whole.decoder.head.leave.weight.detach().any()
    assert whole.decode(torch.zeros(1, 3, 2, dtype=torch.int64)).shape == (1, 3 * config.hop)
