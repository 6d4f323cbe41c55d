from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.engine.tiny import LANGUAGE
from tests.training.corpus_folder import SPEAKERS, corpus, small_codec
from training import common, export, kept, plan
from training.export import PRESETS
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.config import ALL_PHONES
from voicelab.engine.pointer.lm import LM


def test_presets_have_distinct_teachers_of_the_plan() -> None:
    assert len({p.id for p in PRESETS}) == len({p.teacher for p in PRESETS}) == len(PRESETS) == 12
    assert {p.teacher for p in PRESETS} <= {*plan.STOCK, *plan.BLEND_VOICES, *plan.MANDARIN}


@pytest.mark.parametrize("mandarin", [False, True])
def test_export_has_the_presets_of_the_corpus(tmp_path: Path, mandarin: bool) -> None:
    codec = small_codec()
    utterances = kept.load_all(corpus(tmp_path, codec), codec)
    if mandarin:
        phones = np.where(np.arange(utterances[0].phones.size) == 1, len(ALL_PHONES) - 1, utterances[0].phones).astype(
            np.int16
        )
        utterances[0] = dataclasses.replace(utterances[0], phones=phones)
    language = dataclasses.replace(LANGUAGE, phones=len(ALL_PHONES))
    model = LM(language)
    about = {"config": dataclasses.asdict(language)}
    common.save_run(tmp_path / "s2-pro-run.safetensors", model, common.Average(model), [], about)
    (tmp_path / "lexicon.txt.gz").write_bytes(b"words")
    loaded = checkpoint.load(export.export(tmp_path, utterances, codec, tmp_path / "out"))
    listed = [line.split()[1] for line in (tmp_path / "out" / "SHA256SUMS").read_text().splitlines()]
    assert listed == ["lexicon.txt.gz", "voice.safetensors"]
    assert [p.id for p in loaded.presets] == [p.id for p in PRESETS if p.teacher in SPEAKERS] == ["marlow", "juno"]
    voices = list(loaded.speakers.values())
    assert not np.allclose(voices[0], voices[1], atol=0)
    assert loaded.languages == (("en", "zh") if mandarin else ("en",))
    assert loaded.codec.config == codec.config
