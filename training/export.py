"""Export the trained models: checkpoints with the preset voices, in half precision, into the package."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from training import common, decoder, kept, listen
from training.codes import PEOPLE, Encoded
from training.lm import unscaled
from voicelab.call import VoicePreset
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import PHONES, LMConfig
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.speakers import speaker_statistics

OUT = Path(__file__).parent.parent / "voicelab" / "engine" / "weights"
"""Folder of the packaged weights."""


@dataclass(frozen=True)
class Preset:
    """A preset voice, trained on one voice of the teacher."""

    id: str
    description: str
    teacher: str


PRESETS = (
    Preset("marlow", "a man, American, calm; the default", "am_michael"),
    Preset("clara", "a woman, American, lively", "af_kore"),
    Preset("ewan", "a man, British", "bm_fable"),
    Preset("otto", "a man, American", "am_adam"),
    Preset("juno", "a woman, American, bright", "af_sky"),
    Preset("nadia", "a woman, American, low", "af_alloy"),
    Preset("victor", "a man, American, deep", "am_echo"),
    Preset("felix", "a man, American, light", "am_eric"),
    Preset("hugo", "a man, British, deep", "bm_daniel"),
    Preset("iris", "a woman, British, high", "bf_emma"),
    Preset("mei", "a woman; at home in Mandarin", "zf_xiaoxiao"),
    Preset("wei", "a man; at home in Mandarin", "zm_yunjian"),
)
"""The voices with the highest predicted MOS (DistillMOS 4.3 or more, `hugo` 4.1); for Mandarin, with the lowest SER.
Preset statistics are pooled over many utterances of random style, and so have an average style."""


def preset_statistics(corpus: Sequence[Encoded], codec: Codec, utterances: int = 24) -> dict[VoicePreset, Tensor]:
    """Compute the speaker statistics of each preset from up to `utterances`, shape (STATISTICS * latent,)."""
    by_speaker: dict[int, list[Encoded]] = {}
    for encoded in corpus:
        by_speaker.setdefault(encoded.speaker, []).append(encoded)
    voices = {}
    for preset in PRESETS:
        if available := by_speaker.get(PEOPLE.index(preset.teacher)):
            ids = torch.from_numpy(np.concatenate([e.codes for e in available[:utterances]]).astype(np.int64))
            statistics = torch.from_numpy(speaker_statistics(codec.quantizer.decode(ids).numpy()))
            voices[VoicePreset(preset.id, preset.id.capitalize(), preset.description)] = statistics
    return voices


def load_lm(path: Path) -> LM:
    """Load the averaged language model of a run."""
    model = LM(LMConfig.of(common.read_meta(path)["config"]))
    model.load_state_dict(unscaled({k[8:]: v for k, v in load_file(path).items() if k.startswith("average.")}))
    return model.eval()


def _about(run: Path) -> dict[str, object]:
    return {k: v for k, v in common.read_meta(run).items() if k != "config"}


def export(folder: Path, corpus: Sequence[Encoded], codec: Codec, out: Path = OUT) -> Path:
    """Write ``voice.safetensors`` (s2-pro), ``s1.safetensors``, lexicon, letter-to-sound model and digests to `out`.

    Presets are computed from `corpus`. `codec` has the frozen codebooks; its encoder and decoder are replaced by the
    trained ones of `folder`.
    """
    out.mkdir(parents=True, exist_ok=True)
    large, small = (folder / f"{name}-run.safetensors" for name in ("s2-pro", "s1"))
    about = {"codec": {"books": kept.digest_of(codec)}, "torch": torch.__version__, "machine": platform.machine()}
    path = out / checkpoint.EMBEDDED
    main = large if large.exists() else small
    languages = ("en", "zh") if any(encoded.phones.max() >= len(PHONES) for encoded in corpus) else ("en",)
    presets = preset_statistics(corpus, codec)
    trained_codec = listen.with_encoder(folder, decoder.with_decoder(folder, codec)).eval()
    checkpoint.save(path, trained_codec, load_lm(main), presets, {**about, "lm": _about(main)}, languages)
    if large.exists() and small.exists():
        large_weights = checkpoint.load(path)
        checkpoint.save_small(out / checkpoint.S1_FILE, load_lm(small), large_weights, {**about, "lm": _about(small)})
    for file in (folder / "lexicon.txt.gz", folder / "guess.safetensors"):
        if file.exists():
            shutil.copy(file, out)
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(out.glob("*.*"))]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
    return path
