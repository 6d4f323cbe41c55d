from __future__ import annotations

import numpy as np
import torch

from tests.engine.tiny import LANGUAGE
from tests.training.corpus_folder import SPEAKERS, rendering, small_codec
from training.codes import PEOPLE, WARPS, encode, prepare
from training.lm import Streams, Work, losses
from voicelab.engine.pointer.config import PHONES
from voicelab.engine.pointer.lm import LM


def test_encoded_utterances_are_training_data() -> None:
    codec = small_codec()
    rows = [encode(codec, prepare(rendering(n), codec), SPEAKERS[n % 2], n % 8 == 0) for n in range(16)]
    assert [PEOPLE[r.speaker] for r in rows[:2]] == list(SPEAKERS)
    for row in rows:
        assert [PHONES[i] for i in row.phones] == ["^", "aa0", "."]
        assert row.flags.tolist() == [3, 3, 3]
        assert row.codes.shape == (row.at.size, 3)
        assert np.all(np.diff(row.at) >= 0)
        assert set(row.at.tolist()) == {0, 1, 2}
    loss, _ = losses(LM(LANGUAGE), Streams(rows, LANGUAGE, seed=0).batch(2), torch.Generator().manual_seed(0), Work())
    assert torch.isfinite(loss)


def test_warped_utterance_is_longer_and_another_speaker() -> None:
    codec = small_codec()
    prepared = prepare(rendering(0, 250), codec)
    plain, warped = (encode(codec, prepared, SPEAKERS[0], False, warp) for warp in (0, len(WARPS)))
    assert warped.speaker == plain.speaker + len(WARPS) * len(PEOPLE)
    assert warped.codes.shape[0] > plain.codes.shape[0]
    assert np.array_equal(warped.phones, plain.phones)


def test_degraded_reference_changes_only_the_statistics() -> None:
    codec = small_codec()
    prepared = prepare(rendering(0), codec)
    plain, spoiled = (encode(codec, prepared, SPEAKERS[0], rough) for rough in (False, True))
    assert np.array_equal(spoiled.codes, plain.codes)
    assert not np.allclose(spoiled.statistics, plain.statistics)
