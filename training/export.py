"""Puts the trained parts together: one checkpoint with the preset voices, in half precision, inside the package."""

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


def preset_statistics(said: Sequence[Encoded], codec: Codec, utterances: int = 24) -> dict[VoicePreset, Tensor]:
    """(STATISTICS * latent,) of each preset that has said anything, from that many utterances."""
    spoken: dict[int, list[Encoded]] = {}
    for encoded in said:
        spoken.setdefault(encoded.speaker, []).append(encoded)
    voices = {}
    for preset in PRESETS:
        if own := spoken.get(PEOPLE.index(preset.teacher)):
            ids = torch.from_numpy(np.concatenate([e.codes for e in own[:utterances]]).astype(np.int64))
            statistics = speaker_statistics(codec.quantizer.decode(ids))
            voices[VoicePreset(preset.id, preset.id.capitalize(), preset.description)] = statistics
    return voices


def load_lm(path: Path) -> LM:
    """The averaged language model of a run."""
    model = LM(LMConfig.of(common.read_meta(path)["config"]))
    model.load_state_dict(unscaled({k[8:]: v for k, v in load_file(path).items() if k.startswith("average.")}))
    return model.eval()


def _about(run: Path) -> dict[str, object]:
    return {k: v for k, v in common.read_meta(run).items() if k != "config"}


def export(folder: Path, said: Sequence[Encoded], codec: Codec, out: Path = OUT) -> Path:
    """Writes what was made in `folder`: ``out/voice.safetensors`` (s2-pro), ``s1.safetensors``, lexicon, guess, digests.

    `said` is the corpus, from which presets are, and `codec` the one whose codes are frozen; its encoder may
    have listened since, and its decoder learned.
    """
    out.mkdir(parents=True, exist_ok=True)
    large, small = (folder / f"{name}-run.safetensors" for name in ("s2-pro", "s1"))
    about = {"codec": {"books": kept.digest_of(codec)}, "torch": torch.__version__, "machine": platform.machine()}
    path = out / checkpoint.EMBEDDED
    main = large if large.exists() else small
    languages = ("en", "zh") if any(encoded.phones.max() >= len(PHONES) for encoded in said) else ("en",)
    presets = preset_statistics(said, codec)
    listening = listen.with_encoder(folder, decoder.with_decoder(folder, codec)).eval()
    checkpoint.save(path, listening, load_lm(main), presets, {**about, "lm": _about(main)}, languages)
    if large.exists() and small.exists():
        beside = checkpoint.load(path)
        checkpoint.save_small(out / checkpoint.S1_FILE, load_lm(small), beside, {**about, "lm": _about(small)})
    for written in (folder / "lexicon.txt.gz", folder / "guess.safetensors"):
        if written.exists():
            shutil.copy(written, out)
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(out.glob("*.*"))]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
    return path
