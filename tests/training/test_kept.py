"""What is kept of a rendered shard comes back as the language models want it, from one codec only."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from tests.training.corpus_folder import SPEAKERS, rendering
from training import codes, crops, kept, render, understood
from training.plan import Request
from voicelab.engine.pointer.codec import Codec

SMALL = replace(crops.CONFIG, codebooks=(16, 8, 8), latent=8, width=16, fine_width=8, depth=2)


def small_codec(seed: int) -> Codec:
    torch.manual_seed(seed)
    return Codec(SMALL).eval()


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Eight utterances, of which Whisper understood all but the second."""
    folder = tmp_path / "voice" / "speech"
    folder.mkdir(parents=True)
    render.save_shard(folder / "00000.npz", [rendering(n) for n in range(8)])
    lines = [f'{{"number": {n}, "heard": "ah", "wrong": {1.0 if n == 1 else 0.0}}}\n' for n in range(8)]
    understood.verdicts_of(folder / "00000.npz").write_text("".join(lines))
    return tmp_path / "voice"


def requests() -> list[Request]:
    return [rendering(n).request for n in range(8)]


def test_codes_are_packed_in_nine_bits() -> None:
    values = np.arange(512, dtype=np.int16).reshape(64, 8)
    assert kept.packed(values).size == 512 * 9 // 8
    assert np.array_equal(kept.unpacked(kept.packed(values), 512), values.ravel())


def test_what_is_kept_is_what_was_encoded(shard: Path, tmp_path: Path) -> None:
    codec = small_codec(0)
    assert kept.keep_all(shard, codec, requests(), 100, tmp_path / "corpus").startswith("1 shards")
    (path,) = kept.files(tmp_path / "corpus")
    rows = kept.load(path, codec)
    plain = [row for row in rows if row.speaker < len(codes.PEOPLE)]
    assert (len(plain), len(rows)) == (7, 10), "one was not understood, and 0, 3 and 6 are there warped too"
    assert [codes.PEOPLE[row.speaker] for row in plain[:2]] == [SPEAKERS[0], SPEAKERS[0]]
    for number, row in zip([0, *range(2, 8)], plain, strict=True):
        fresh = codes.encode(codec, crops.said_by(rendering(number)), SPEAKERS[number % 2], number % 8 == 0)
        for name in ("speaker", "phones", "flags", "codes", "at"):
            assert np.array_equal(getattr(row, name), getattr(fresh, name)), name
        np.testing.assert_allclose(row.statistics, fresh.statistics, atol=2e-3)
    before = path.read_bytes()
    kept.keep_all(shard, codec, requests(), 100, tmp_path / "corpus")
    assert path.read_bytes() == before


def test_some_audio_of_every_speaker_is_kept(shard: Path, tmp_path: Path) -> None:
    kept.keep_all(shard, small_codec(0), requests(), 100, tmp_path)
    clips = kept.clips(kept.files(tmp_path)[0])
    assert [who for who, _ in clips] == [SPEAKERS[n % 2] for n in (0, *range(2, 8))]
    with av.open(io.BytesIO(clips[0][1])) as file:
        heard = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio=0)])
    assert heard.size > 24_000
    assert np.abs(heard).max() > 0.01


def test_a_file_of_another_codec_or_a_damaged_one_is_named(shard: Path, tmp_path: Path) -> None:
    kept.keep_all(shard, small_codec(0), requests(), 100, tmp_path)
    (path,) = kept.files(tmp_path)
    with pytest.raises(kept.DamagedShard, match=r"00000\.safetensors: another codec"):
        kept.load(path, small_codec(1))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(kept.DamagedShard, match=r"00000\.safetensors: it cannot be read"):
        kept.load(path, small_codec(0))
