"""Encoded shards: round trip, and checks of codec and plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.corpus_folder import SPEAKERS, corpus, rendering, requests, small_codec
from training import codes, kept, listen


def test_codes_are_packed_in_nine_bits() -> None:
    values = np.arange(512, dtype=np.int16).reshape(64, 8)
    assert kept.packed(values).size == 512 * 9 // 8
    assert np.array_equal(kept.unpacked(kept.packed(values), 512), values.ravel())


def test_shard_round_trip(tmp_path: Path) -> None:
    codec = small_codec()
    (path,) = kept.files(corpus(tmp_path, codec))
    rows = kept.load(path, codec)
    plain = [row for row in rows if row.speaker < len(codes.PEOPLE)]
    assert (len(plain), len(rows)) == (7, 9), "one is unintelligible, two are also warped"
    assert [codes.PEOPLE[row.speaker] for row in plain[:2]] == [SPEAKERS[0], SPEAKERS[0]]
    for number, row in zip([0, *range(2, 8)], plain, strict=True):
        fresh = codes.encode(codec, codes.prepare(rendering(number), codec), SPEAKERS[number % 2], number % 8 == 0)
        for name in ("speaker", "phones", "flags", "codes", "at"):
            assert np.array_equal(getattr(row, name), getattr(fresh, name)), name
        np.testing.assert_allclose(row.statistics, fresh.statistics, atol=2e-3)
    before = path.read_bytes()
    kept.keep_all(tmp_path / "voice", codec, requests(), 100, path.parent)
    assert path.read_bytes() == before, "encoded shards must not change"
    assert len(kept.load_all(path.parent, codec)) == len(rows)


def test_audio_clips_of_every_speaker(tmp_path: Path) -> None:
    clips = kept.clips(kept.files(corpus(tmp_path, small_codec()))[0])
    assert [speaker for speaker, _ in clips] == [SPEAKERS[n % 2] for n in (0, *range(2, 8))]
    audio = listen.from_opus(clips[0][1], 44_100)
    assert 44_100 < audio.size < 2.6 * 44_100
    assert 0.05 < np.sqrt(np.mean(np.square(audio[22_050:44_100]))) < 0.09, "at the level of speech"


def test_shards_of_another_codec_and_damaged_shards_are_named(tmp_path: Path) -> None:
    (path,) = kept.files(corpus(tmp_path, small_codec()))
    with pytest.raises(kept.DamagedShard, match=r"00000\.safetensors must be encoded with the frozen codec"):
        kept.load(path, small_codec(1))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(kept.DamagedShard, match=r"00000\.safetensors cannot be read"):
        kept.load(path, small_codec())


def test_shards_of_another_plan_are_named(tmp_path: Path) -> None:
    folder, plan_requests = corpus(tmp_path, small_codec()), requests()
    kept.check_plan(plan_requests, 100, folder)
    plan_requests[3] = replace(plan_requests[3], text="oh.")
    with pytest.raises(kept.DamagedShard, match=r"00000\.safetensors belongs to another plan"):
        kept.check_plan(plan_requests, 100, folder)


def test_missing_corpus_exits_with_the_stages_to_run(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="run the stages render, understood and keep"):
        kept.load_all(tmp_path, small_codec())
