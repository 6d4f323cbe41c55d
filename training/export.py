"""Puts the trained parts together: one checkpoint with the preset voices, in half precision, inside the package."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from training import codes, common, listen, mandarin, polish
from training.lexicon import OUT
from training.lm import unscaled
from training.speakers import HELD_OUT, Speaker, all_speakers
from voicelab.backend import VoicePreset
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import LMConfig
from voicelab.engine.pointer.lm import LM, speaker_statistics
from voicelab.engine.pointer.phones import ALL_PHONES


@dataclass(frozen=True)
class Preset:
    """A named voice: the trained speaker nearest to what is asked for."""

    id: str
    description: str
    teacher: str
    f0_ratio: float = 1.0
    formants: float = 1.0
    plain: bool = False


PRESETS = (
    Preset("marlow", "a calm man, American; the default, and the clearest", "rms", plain=True),
    Preset("clara", "a woman, American, lively", "slt", plain=True),
    Preset("ewan", "a man, Scottish", "awb", plain=True),
    Preset("otto", "a man, American, clipped, an older kind of synthesis", "kal16", plain=True),
    Preset("juno", "a young woman, bright and high", "slt", 1.15, 1.08),
    Preset("nadia", "a woman, low and dark", "slt", 0.85, 0.94),
    Preset("victor", "a man, deep and large", "rms", 0.85, 0.92),
    Preset("felix", "a young man, light", "rms", 1.2, 1.08),
    Preset("hugo", "a man, Scottish, deep", "awb", 0.85, 0.94),
    Preset("iris", "a woman, Scottish, light", "awb", 1.28, 1.1),
)
MANDARIN_PRESETS = (
    Preset("mei", "a woman, a formant synthesizer's; at home in Mandarin", "steph"),
    Preset("wei", "a man, a formant synthesizer's; at home in Mandarin", "m2"),
)
"""Where Mandarin was learned."""


def speaker_of(name: str) -> Speaker:
    """The trained speaker whom the preset of that name speaks as, where every speaker has been rendered."""
    for presets, speakers in ((PRESETS, all_speakers()[:-HELD_OUT]), (MANDARIN_PRESETS, mandarin.speakers())):
        for preset in presets:
            if preset.id == name:
                return _nearest(preset, speakers)
    known = ", ".join(preset.id for preset in PRESETS + MANDARIN_PRESETS)
    raise SystemExit(f"there is no preset {name!r}; the presets are {known}")


def _nearest(preset: Preset, speakers: list[Speaker]) -> Speaker:
    if preset.plain:
        return next((s for s in speakers if s.teacher == preset.teacher), speakers[0])
    fit = [s for s in speakers if s.teacher == preset.teacher and abs(s.tilt) < 0.2] or speakers

    def distance(speaker: Speaker) -> float:
        pitch = abs(np.log2(speaker.f0_ratio / preset.f0_ratio))
        return float(pitch * 3 + abs(speaker.formants - preset.formants) * 10 + abs(speaker.stretch - 1))

    return min(fit, key=distance)


def preset_statistics(folder: Path, codec: Codec, utterances: int = 24) -> dict[VoicePreset, Tensor]:
    """Speaker statistics of the presets, from that many utterances of the nearest speakers that were trained on."""
    spoken: dict[int, list[codes.Encoded]] = {}
    for path in codes.files(folder):
        for encoded in codes.load(path):
            spoken.setdefault(encoded.speaker, []).append(encoded)
    speakers = [s for s in all_speakers()[:-HELD_OUT] if s.id in spoken]
    others = [s for s in mandarin.speakers() if s.id in spoken]
    found = {}
    for preset, among in [(p, speakers) for p in PRESETS] + [(p, others) for p in MANDARIN_PRESETS if others]:
        said = np.concatenate([e.codes for e in spoken[_nearest(preset, among).id][:utterances]])
        latents = codec.quantizer.decode(torch.from_numpy(said.astype(np.int64)))
        found[VoicePreset(preset.id, preset.id.capitalize(), preset.description)] = speaker_statistics(latents)
    return found


def load_lm(path: Path) -> LM:
    """The averaged language model of a run."""
    model = LM(LMConfig.of(common.read_meta(path)["config"]))
    model.load_state_dict(unscaled({k[8:]: v for k, v in load_file(path).items() if k.startswith("average.")}))
    return model.eval()


def _about(run: Path) -> dict[str, object]:
    return {k: v for k, v in common.read_meta(run).items() if k != "config"}


def export(folder: Path, out: Path = OUT) -> Path:
    """Writes the checkpoints of the runs in `folder`: ``out/voice.safetensors`` (s2-pro) and ``out/s1.safetensors``."""
    codec_run, large, small = (folder / f"{name}-run.safetensors" for name in ("codec", "s2-pro", "s1"))
    codec = polish.polished(folder, listen.codec_of(folder))
    about = {"codec": _about(codec_run), "torch": torch.__version__, "machine": platform.machine()}
    path = out / checkpoint.EMBEDDED
    main = large if large.exists() else small
    lm = load_lm(main)
    taught = lm.config.phones == len(ALL_PHONES) and any((folder / "codes").glob("zh??.npz"))
    languages = ("en", "zh") if taught else ("en",)
    checkpoint.save(path, codec, lm, preset_statistics(folder, codec), {**about, "lm": _about(main)}, languages)
    if large.exists() and small.exists():
        checkpoint.save_small(
            out / checkpoint.SMALL, load_lm(small), checkpoint.load(path), {**about, "lm": _about(small)}
        )
    return path
