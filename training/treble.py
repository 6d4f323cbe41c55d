"""What is above 8 kHz: learned from the one teacher that has it, festival's slt by HTS at 32 kHz, and lent to the others.

A small network says from the envelope below what the envelope above is likely to be. It learns from that teacher played
slower and faster as well, so that it does not depend on one throat; what no teacher has, above 15.5 kHz, falls away.
"""

from __future__ import annotations

import itertools
import subprocess
import wave
from pathlib import Path

import numpy as np
import soxr
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from training import corpus
from training.features import band_centres, envelopes
from training.render import LEVEL, RATE
from voicelab.engine.pointer.codec import STEP, Vocoder

KNOWN = 6600.0
"""Hz up to which every teacher has sound, however it is warped."""
_HIGHEST, _FALL = 15_500.0, 0.06
_VOICE = "(voice_cmu_us_slt_arctic_hts)"


class Treble(nn.Module):
    """Envelopes (batch, steps, bands) and the Hz up to which each is known (batch,) → whole envelopes."""

    def __init__(self, vocoder: Vocoder) -> None:
        super().__init__()
        self.centres = band_centres(vocoder)
        self.low = int((self.centres <= KNOWN).sum()) // 4 * 4
        self.guess = nn.Sequential(
            nn.Conv1d(self.low // 4, 96, 5, padding=2), nn.GELU(), nn.Conv1d(96, self.centres.numel() - self.low, 1)
        )

    def forward(self, envelope: Tensor, top: Tensor) -> Tensor:
        """As above; nepers."""
        coarse = F.avg_pool1d(envelope[..., : self.low], 4)
        said = self.guess((coarse + 5.0).transpose(1, 2)).transpose(1, 2) + coarse[..., -1:]
        beyond = (self.centres[self.low :] > _HIGHEST).cumsum(0) * _FALL
        whole = torch.cat([envelope[..., : self.low], said - beyond], dim=-1)
        return torch.where(self.centres > top[:, None, None], whole.clamp(min=-8.05), envelope)


def speak(folder: Path, count: int) -> list[tuple[np.ndarray, int]]:
    """`count` sentences by festival's HTS voice: float samples and their rate."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [t.replace('"', "") for t in itertools.islice(corpus.sentences(count, seed=11), count)]
    if not (folder / f"{count - 1}.wav").exists():
        lines = [f'(utt.save.wave (SynthText "{t}") "{folder.resolve()}/{i}.wav")' for i, t in enumerate(texts)]
        script = folder / "speak.scm"
        script.write_text("\n".join([_VOICE, *lines]), encoding="utf-8")
        subprocess.run(["festival", "-b", str(script)], check=True)
    said = []
    for i in range(count):
        with wave.open(str(folder / f"{i}.wav")) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
            said.append((samples, file.getframerate()))
    return said


def _examples(vocoder: Vocoder, said: list[tuple[np.ndarray, int]], warps: tuple[float, ...]) -> list[Tensor]:
    out = []
    for i, (samples, rate) in enumerate(said):
        audio = soxr.resample(samples, rate * warps[i % len(warps)], RATE).astype(np.float32)
        active = audio[np.abs(audio) > 0.01]
        audio = np.pad(audio * LEVEL / np.sqrt(np.mean(active**2)), (0, -audio.size % (8 * STEP)))
        out.append(envelopes(torch.from_numpy(audio)[None], torch.zeros(1, audio.size // STEP), vocoder)[0])
    return out


def train(folder: Path, sentences: int = 300, steps: int = 1500, seed: int = 0) -> Path:
    """Trains on `sentences` of the 32 kHz teacher; returns the checkpoint."""
    path = folder / "treble.safetensors"
    if path.exists():
        return path
    torch.manual_seed(seed)
    vocoder = Vocoder(RATE, 100)
    model = Treble(vocoder)
    warps = (1.0, 0.92, 1.08, 1.17, 0.86)
    examples = _examples(vocoder, speak(folder / "treble", sentences), warps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rng, total = np.random.default_rng(seed), 0.0
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        chosen = rng.integers(len(examples), size=16)
        crops = [examples[i][(s := int(rng.integers(max(1, len(examples[i]) - 100)))) : s + 100] for i in chosen]
        rows = torch.stack([F.pad(c, (0, 0, 0, 100 - len(c)), value=-8.0) for c in crops])
        tops = torch.tensor([min(15_500.0, 15_500.0 * warps[i % len(warps)]) for i in chosen])
        said = model(rows, torch.full((16,), KNOWN))
        seen = ((model.centres > KNOWN) & (model.centres <= tops[:, None, None])).expand_as(rows)
        loss = (said - rows).abs()[seen].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = 0.95 * total + 0.05 * loss.item()
        if step % 250 == 249:
            print(step + 1, f"{total:.3f} nepers", flush=True)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, path)
    return path


def load(path: Path, vocoder: Vocoder) -> Treble:
    """What `train` made."""
    model = Treble(vocoder)
    model.load_state_dict(load_file(path))
    return model.eval().requires_grad_(False)
