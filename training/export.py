"""Puts the trained parts together: one checkpoint with the preset voices, in half precision, inside the package."""

from __future__ import annotations

import platform
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from training import codes, common, listen, mandarin, natural_codec, natural_codes, polish, source_filter
from training.lexicon import OUT
from training.lm import unscaled
from training.speakers import HELD_OUT, Speaker, all_speakers
from voicelab.backend import VoicePreset
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import LMConfig
from voicelab.engine.pointer.lm import LM, speaker_statistics
from voicelab.engine.pointer.phones import ALL_PHONES, PHONES


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

NATURAL = (
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
"""The same names of the natural voice, each a stock voice of its teacher: those rated best (DistillMOS 4.3 and more, but for
`hugo`, 4.1), Mandarin's by the fewest syllables that Whisper got wrong. Statistics of many utterances, whose moods are drawn,
make the middle one; other moods come with references."""


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
    """Speaker statistics of the presets, from that many utterances of the nearest speakers that were trained on.

    In a natural corpus, of the very speakers, where they have said anything.
    """
    spoken: dict[int, list[codes.Encoded]] = {}
    for path in codes.files(folder):
        for encoded in codes.load(path):
            spoken.setdefault(encoded.speaker, []).append(encoded)
    found = {}
    for preset, speaker in _natural(spoken) if (folder / "world").is_dir() else _parametric(spoken):
        said = np.concatenate([e.codes for e in spoken[speaker][:utterances]])
        latents = codec.quantizer.decode(torch.from_numpy(said.astype(np.int64)))
        found[VoicePreset(preset.id, preset.id.capitalize(), preset.description)] = speaker_statistics(latents)
    return found


def _natural(spoken: Container[int]) -> list[tuple[Preset, int]]:
    people = [(preset, natural_codes.PEOPLE.index(preset.teacher)) for preset in NATURAL]
    return [(preset, speaker) for preset, speaker in people if speaker in spoken]


def _parametric(spoken: Container[int]) -> list[tuple[Preset, int]]:
    english = [s for s in all_speakers()[:-HELD_OUT] if s.id in spoken]
    chinese = [s for s in mandarin.speakers() if s.id in spoken]
    pairs = [(p, english) for p in PRESETS] + [(p, chinese) for p in MANDARIN_PRESETS if chinese]
    return [(preset, _nearest(preset, among).id) for preset, among in pairs]


def trained_codec(folder: Path) -> Codec:
    """The codec of the runs in `folder` as it is shipped: a natural one with its head, for audio at 44.1 kHz."""
    codec = polish.polished(folder, listen.codec_of(folder))
    if not (folder / "world").is_dir():
        return codec
    head = folder / "head-run.safetensors"
    if head.exists():
        codec = source_filter.with_head(codec, head)
    outside = Codec(natural_codec.at_the_door(codec.config))
    outside.load_state_dict(codec.state_dict())
    return outside.eval()


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
    codec = trained_codec(folder)
    about = {"codec": _about(codec_run), "torch": torch.__version__, "machine": platform.machine()}
    path = out / checkpoint.EMBEDDED
    main = large if large.exists() else small
    lm = load_lm(main)
    said = (encoded.phones.max() for path in codes.files(folder) for encoded in codes.load(path))
    taught = lm.config.phones == len(ALL_PHONES) and any(phone >= len(PHONES) for phone in said)
    languages = ("en", "zh") if taught else ("en",)
    checkpoint.save(path, codec, lm, preset_statistics(folder, codec), {**about, "lm": _about(main)}, languages)
    if large.exists() and small.exists():
        checkpoint.save_small(
            out / checkpoint.SMALL, load_lm(small), checkpoint.load(path), {**about, "lm": _about(small)}
        )
    return path
