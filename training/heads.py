"""The comparison that chose the decoder: python -m training.heads --folder build/voice --head filter --minutes 10.

Two heads are trained from nothing on the codes of one finished codec, for the same CPU time and with the same losses: the
harmonic-plus-noise filters, and an inverse short-time Fourier transform (Siuzdak, Vocos, 2024) whose magnitudes and phases
are both learned. ``--adversary`` goes on from a run without it, with a light multi-resolution spectrogram discriminator
(Jang et al., UnivNet, 2021). The results are in docs/decisions/2026-11-21-the-codec.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from training import codec as codec_training
from training import common
from training.features import f0_at
from training.render import RATE, load_shard
from training.speakers import all_speakers
from voicelab.engine.pointer.codec import LAG, STEP, WINDOW, CausalConv, Codec, ConvStack, Decoder, _overlap_add

FRAMES = 24


class Inverse(nn.Module):
    """Latents (batch, n, latent) → samples (batch, n * hop), behind by LAG, through a learned spectrum of every step."""

    def __init__(self, codec: Codec, fine: int = 192) -> None:
        super().__init__()
        config = codec.config
        self.steps, self.width = config.hop // STEP, fine
        self.enter = CausalConv(config.latent, config.width, 3)
        self.coarse = ConvStack(config.width, config.depth)
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, self.steps * fine)
        self.fine = ConvStack(fine, config.depth)
        self.leave = nn.Linear(fine, 3 * (WINDOW // 2 + 1))
        self.window: Tensor
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)

    def forward(self, latents: Tensor) -> Tensor:
        """Shapes as above."""
        x, _ = self.coarse(self.enter(latents.transpose(1, 2))[0])
        x = self.up(self.norm(x.transpose(1, 2)))
        x, _ = self.fine(x.reshape(x.shape[0], -1, self.width).transpose(1, 2))
        size, real, imaginary = self.leave(x.transpose(1, 2)).float().chunk(3, dim=-1)
        # A direction and not an angle: nothing jumps at half a turn.
        norm = torch.rsqrt(real * real + imaginary * imaginary + 1e-6)
        size = torch.exp(torch.clamp(size - 2.0, max=6.0)) * norm
        frames = torch.fft.irfft(torch.complex(size * real, size * imaginary), n=WINDOW) * (self.window / 1.5)
        return _overlap_add(frames, frames.new_zeros(frames.shape[0], LAG))[:, : frames.shape[1] * STEP]


class Adversary(nn.Module):
    """Says of spectrograms at one resolution which parts are real: (batch, time) → scores."""

    def __init__(self, size: int, width: int = 16) -> None:
        super().__init__()
        self.size = size
        self.window: Tensor
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        channels = (1, width, width, width, 1)
        strides = ((1, 2), (2, 2), (1, 2), (1, 1))
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv2d(a, b, (3, 7), stride=s, padding=(1, 3)))
            for a, b, s in zip(channels, channels[1:], strides, strict=False)
        )

    def forward(self, samples: Tensor) -> list[Tensor]:
        """The layers' outputs, the scores last."""
        x = torch.stft(samples, self.size, self.size // 4, window=self.window, return_complex=True).abs()
        x, out = torch.log(x + 1e-3).transpose(1, 2)[:, None], []
        for layer in self.layers:
            x = layer(x)
            out.append(x)
            x = F.leaky_relu(x, 0.1)
        return out


class Crops:
    """Random crops with everything that either head needs."""

    def __init__(self, folder: Path, shards: int, seed: int) -> None:
        self.utterances = [u for p in sorted((folder / "shards").glob("????.npz"))[-shards:] for u in load_shard(p)]
        self.speakers, self.rng = all_speakers(), np.random.default_rng(seed)

    def batch(self, size: int, hop: int) -> tuple[Tensor, Tensor]:
        """(audio, F0 at the end of every step)."""
        audio: list[NDArray[np.float32]] = []
        f0: list[NDArray[np.float32]] = []
        while len(audio) < size:
            u = self.utterances[int(self.rng.integers(len(self.utterances)))]
            samples = u.audio(self.speakers[u.speaker])
            if samples.size > FRAMES * hop:
                start = int(self.rng.integers(samples.size - FRAMES * hop))
                audio.append(samples[start : start + FRAMES * hop])
                f0.append(f0_at(u, (start + STEP * np.arange(1, FRAMES * hop // STEP + 1)) / RATE))
        return torch.from_numpy(np.stack(audio)), torch.from_numpy(np.stack(f0))


def spectral_loss(made: Tensor, true: Tensor) -> Tensor:
    """Mean over three resolutions of the log and the linear distance of magnitudes (Yamamoto et al., 2020)."""
    total = made.new_zeros(())
    for size in (2048, 1024, 384):
        window = torch.hann_window(size)
        a, b = (
            torch.stft(x, size, size // 4, window=window, return_complex=True, center=False).abs() / size**0.5
            for x in (made, true)
        )
        total = total + F.l1_loss(torch.log(a + 5e-4), torch.log(b + 5e-4))
        total = total + 4.0 * F.l1_loss(torch.sqrt(a + 1e-6), torch.sqrt(b + 1e-6))
    return total / 3


def render(head: Decoder | Inverse, latents: Tensor, f0: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(samples, F0 error in octaves); the true F0, where it is given, keeps the harmonics comparable."""
    if isinstance(head, Inverse):
        return head(latents), latents.new_zeros(())
    found, _ = head.filters(latents)
    if f0 is None:
        return head.vocoder(found.f0, found.harmonic, found.noise)[0], latents.new_zeros(())
    voiced = f0 > 0
    octaves = ((torch.log2(found.f0) - torch.log2(f0.clamp(min=1))).abs() * voiced).sum() / voiced.sum().clamp(min=1)
    told = torch.where(voiced, f0, found.f0.detach())
    return head.vocoder(told, found.harmonic, found.noise)[0], octaves


def make(codec: Codec, kind: str) -> Decoder | Inverse:
    """A head with fresh weights."""
    torch.manual_seed(0)
    head = Inverse(codec) if kind == "inverse" else Decoder(codec.config)
    if isinstance(head, Decoder):
        nn.init.constant_(head.linear.bias, -5.0)
    return head


def train(folder: Path, kind: str, minutes: float, adversary: bool, batch_size: int = 10) -> Path:
    """Trains one head for `minutes` of the processor: at one price, so that heads compare; returns where its weights are."""
    codec = codec_training.load(folder / "codec-run.safetensors").requires_grad_(False)
    head = make(codec, kind)
    name = folder / f"head-{kind}{'-adversary' if adversary else ''}.pt"
    if adversary:
        head.load_state_dict(torch.load(folder / f"head-{kind}.pt"))
    judges = nn.ModuleList(Adversary(size) for size in (2048, 1024, 512)) if adversary else None
    optimizer = torch.optim.AdamW(head.parameters(), lr=5e-4 if adversary else 1e-3, betas=(0.8, 0.98))
    against = torch.optim.AdamW(judges.parameters(), lr=5e-4, betas=(0.8, 0.98)) if judges is not None else None
    crops, step = Crops(folder, 16, 1), 0
    average = common.Average(head, 0.995)
    begun, spent = time.process_time(), 0.0
    while spent < 60 * minutes:
        common.set_rate([optimizer], common.rate(spent / 60 / minutes, step, warm=50, hold=0.3))
        audio, f0 = crops.batch(batch_size, codec.config.hop)
        with torch.no_grad():
            latents = codec.quantizer.decode(codec.quantizer.encode(codec.encoder(codec.spectrum(audio)), beams=1))
        made, octaves = render(head, latents.clone(), f0)
        made, true = made[:, LAG:], audio[:, :-LAG]
        loss = spectral_loss(made, true) + 5.0 * octaves
        if judges is not None and against is not None:
            real, false = [j(true) for j in judges], [j(made.detach()) for j in judges]
            wrong = sum(((1 - r[-1]) ** 2).mean() + (f[-1] ** 2).mean() for r, f in zip(real, false, strict=True))
            against.zero_grad()
            wrong.backward()
            against.step()
            said, real = [j(made) for j in judges], [[x.detach() for x in j(true)] for j in judges]
            loss = loss + 0.1 * sum(((1 - s[-1]) ** 2).mean() for s in said)
            loss = loss + 0.2 * sum(
                F.l1_loss(a, b) for s, r in zip(said, real, strict=True) for a, b in zip(s, r, strict=True)
            )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        average.update(head)
        step, spent = step + 1, time.process_time() - begun
        if step % 25 == 0:
            print(kind, step, f"{spent:.0f}s", round(float(loss.detach()), 3), flush=True)
    torch.save(average.values, name)
    print(name, step, "steps", flush=True)
    return name


def main() -> None:
    """Trains and says how fast the head is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/voice"))
    parser.add_argument("--head", choices=("filter", "inverse"), default="filter")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--adversary", action="store_true")
    options = parser.parse_args()
    train(options.folder, options.head, options.minutes, options.adversary)
    codec = codec_training.load(options.folder / "codec-run.safetensors")
    head, latents = make(codec, options.head).eval(), torch.randn(1, 215, codec.config.latent) * 0.1
    started = time.perf_counter()
    with torch.inference_mode():
        render(head, latents)
    print("real-time factor", round((time.perf_counter() - started) / 10, 4))


if __name__ == "__main__":
    main()
