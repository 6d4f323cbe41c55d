"""Puts the trained parts together: one checkpoint with the preset voices, in half precision, inside the package."""

from __future__ import annotations

import hashlib
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from training import codes, common, listen, polish
from training.lm import unscaled
from voicelab.call import VoicePreset
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import PHONES, LMConfig
from voicelab.engine.pointer.lm import LM, speaker_statistics

OUT = Path(__file__).parent.parent / "voicelab" / "engine" / "weights"
"""The package's weights."""


@dataclass(frozen=True)
class Preset:
    """A named voice, which is one of the teacher's."""

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
"""Those rated best (DistillMOS 4.3 and more, but for `hugo`, 4.1), Mandarin's by the fewest syllables that Whisper got wrong.
Statistics of many utterances, whose moods are drawn, make the middle one; other moods come with references."""


def preset_statistics(folder: Path, codec: Codec, utterances: int = 24) -> dict[VoicePreset, Tensor]:
    """Speaker statistics of the presets who have said anything, from that many utterances each."""
    spoken: dict[int, list[codes.Encoded]] = {}
    for path in codes.files(folder):
        for encoded in codes.load(path):
            spoken.setdefault(encoded.speaker, []).append(encoded)
    found = {}
    for preset in PRESETS:
        if said := spoken.get(codes.PEOPLE.index(preset.teacher)):
            ids = torch.from_numpy(np.concatenate([e.codes for e in said[:utterances]]).astype(np.int64))
            statistics = speaker_statistics(codec.quantizer.decode(ids))
            found[VoicePreset(preset.id, preset.id.capitalize(), preset.description)] = statistics
    return found


def trained_codec(folder: Path) -> Codec:
    """The codec of the runs in `folder` as it is shipped."""
    return polish.polished(folder, listen.codec_of(folder)).eval()


def load_lm(path: Path) -> LM:
    """The averaged language model of a run."""
    model = LM(LMConfig.of(common.read_meta(path)["config"]))
    model.load_state_dict(unscaled({k[8:]: v for k, v in load_file(path).items() if k.startswith("average.")}))
    return model.eval()


def _about(run: Path) -> dict[str, object]:
    return {k: v for k, v in common.read_meta(run).items() if k != "config"}


def export(folder: Path, out: Path = OUT) -> Path:
    """Writes what was made in `folder`: ``out/voice.safetensors`` (s2-pro), ``s1.safetensors``, lexicon, guess, digests."""
    out.mkdir(parents=True, exist_ok=True)
    codec_run, large, small = (folder / f"{name}-run.safetensors" for name in ("codec", "s2-pro", "s1"))
    codec = trained_codec(folder)
    about = {"codec": _about(codec_run), "torch": torch.__version__, "machine": platform.machine()}
    path = out / checkpoint.EMBEDDED
    main = large if large.exists() else small
    lm = load_lm(main)
    said = (encoded.phones.max() for path in codes.files(folder) for encoded in codes.load(path))
    languages = ("en", "zh") if any(phone >= len(PHONES) for phone in said) else ("en",)
    checkpoint.save(path, codec, lm, preset_statistics(folder, codec), {**about, "lm": _about(main)}, languages)
    if large.exists() and small.exists():
        checkpoint.save_small(
            out / checkpoint.SMALL, load_lm(small), checkpoint.load(path), {**about, "lm": _about(small)}
        )
    for made in (folder / "lexicon.txt.gz", folder / "guess.safetensors"):
        if made.exists():
            shutil.copy(made, out)
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(out.glob("*.*"))]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
    return path
