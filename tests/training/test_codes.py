from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tests.engine.tiny import LANGUAGE
from tests.training.corpus_folder import SPEAKERS, corpus
from training import codes
from training.crops import CONFIG
from training.lm import Streams, Work, losses
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import PHONES
from voicelab.engine.pointer.lm import LM


def test_codes_are_what_the_language_model_trains_on(tmp_path: Path) -> None:
    folder = corpus(tmp_path, 16)
    torch.manual_seed(0)
    codec = Codec(replace(CONFIG, codebooks=(16, 8, 8), latent=8, width=16, fine_width=8, depth=2)).eval()
    assert "hours" in codes.encode_all(folder, codec)
    rows = codes.load(folder / "codes" / "00000.npz")
    assert [codes.PEOPLE[r.speaker] for r in rows[:2]] == list(SPEAKERS)
    for row in rows:
        assert [PHONES[i] for i in row.phones] == ["^", "aa0", "."]
        assert row.flags.tolist() == [3, 3, 3]
        assert row.codes.shape == (row.at.size, 3)
        assert np.all(np.diff(row.at) >= 0)
        assert set(row.at.tolist()) == {0, 1, 2}
    streams = Streams(codes.files(folder), LANGUAGE, seed=0)
    loss, _ = losses(LM(LANGUAGE), streams.batch(2), torch.Generator().manual_seed(0), Work())
    assert torch.isfinite(loss)
    before = (folder / "codes" / "00000.npz").stat().st_mtime_ns
    codes.encode_all(folder, codec)
    assert (folder / "codes" / "00000.npz").stat().st_mtime_ns == before
