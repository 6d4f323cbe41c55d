from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.tiny import LANGUAGE
from tests.training.corpus_folder import SPEAKERS, corpus
from training import codec, codes, common, export, plan
from training.crops import CONFIG
from training.export import PRESETS
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.config import ALL_PHONES
from voicelab.engine.pointer.lm import LM


def test_each_preset_is_another_speaker_of_the_plan() -> None:
    assert len({p.id for p in PRESETS}) == len({p.teacher for p in PRESETS}) == len(PRESETS) == 12
    assert {p.teacher for p in PRESETS} <= {*plan.STOCK, *plan.MORE, *plan.MANDARIN}


@pytest.mark.parametrize("mandarin", [False, True])
def test_a_voice_is_exported_with_the_speakers_that_spoke(tmp_path: Path, mandarin: bool) -> None:
    folder = corpus(tmp_path, 4)
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIG, codebooks=LANGUAGE.codebooks, latent=8, width=16, fine_width=8, depth=2)
    trained = codec.Training(config)
    run = folder / "codec-run.safetensors"
    common.save_run(run, trained, common.Average(trained), [], {"config": config.to_dict()})
    codes.encode_all(folder, codec.load(run))
    if mandarin:
        path = codes.files(folder)[0]
        first, *rest = codes.load(path)
        spoken = np.where(np.arange(first.phones.size) == 1, len(ALL_PHONES) - 1, first.phones).astype(np.int16)
        codes.save(path, [dataclasses.replace(first, phones=spoken), *rest])
    language = dataclasses.replace(LANGUAGE, phones=len(ALL_PHONES))
    model = LM(language)
    about = {"config": dataclasses.asdict(language)}
    common.save_run(folder / "s2-pro-run.safetensors", model, common.Average(model), [], about)
    (folder / "lexicon.txt.gz").write_bytes(b"words")
    loaded = checkpoint.load(export.export(folder, folder / "out"))
    listed = [line.split()[1] for line in (folder / "out" / "SHA256SUMS").read_text().splitlines()]
    assert listed == ["lexicon.txt.gz", "voice.safetensors"]
    assert [p.id for p in loaded.presets] == [p.id for p in PRESETS if p.teacher in SPEAKERS] == ["marlow", "juno"]
    assert not torch.equal(*loaded.speakers.values())
    assert loaded.languages == (("en", "zh") if mandarin else ("en",))
    assert loaded.codec.config == config
