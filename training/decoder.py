"""Train the decoder to reproduce from codes its output for the unquantized latents.

The teacher is the initial decoder with unquantized latents. Regression losses alone yield blurred averages over the latents
of a code, so the decoder is also trained against a discriminator on the vocoder parameters, as an image of time and bands
(least-squares GAN: Mao et al., 2017; feature matching: Larsen et al., 2016). Codes, encoder and language models are frozen,
so that the encoded corpus stays valid. Training data is the rendered audio (``speech/``), since latents are too large to
store.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file as load_numpy
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from training import common
from training.codes import prepare
from training.understood import understood, verdicts_of
from voicelab.engine.core.layers import Carry
from voicelab.engine.pointer.codec import Codec, Decoder, Filters

BATCH = 12
FRAMES = 48
EDGE = 8
"""Initial frames of a crop without loss, since the decoder lacks left context."""
DISCRIMINATOR_STEPS = 200
"""Initial steps that train only the discriminator."""
MANDARIN = 0.5
"""Fraction of Mandarin crops, where quantization loses most."""
WEIGHTS = {"envelope": 4.0, "semitones": 0.4, "share": 1.0, "taken": 0.5, "features": 2.0}
_PEAK = 3e-4


class Discriminator(nn.Module):
    """Discriminator of teacher and student: (batch, 3, steps, bands) → scores (batch, steps / 4, bands / 8)."""

    def __init__(self) -> None:
        super().__init__()
        shapes = ((3, 24, (1, 2)), (24, 32, (2, 2)), (32, 48, (2, 2)), (48, 48, (1, 1)))
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 5, stride, padding=2) for a, b, stride in shapes)
        self.out = nn.Conv2d(48, 1, 3, padding=1)

    def forward(self, picture: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return scores, and the features of every layer."""
        features = []
        for layer in self.layers:
            picture = F.leaky_relu(layer(picture), 0.1)
            features.append(picture)
        return self.out(picture)[:, 0], features


class Pair(nn.Module):
    """Decoder and discriminator in one module."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder, self.discriminator = decoder, Discriminator()


def picture(filters: Filters, voiced: Tensor) -> Tensor:
    """Build the discriminator input (batch, 3, steps, bands): normalized envelope, voicing, and F0 where voiced."""
    envelope = filters.envelope
    octaves = (torch.log2(filters.f0 / 150) * 2 * voiced)[..., None].expand_as(envelope)
    return torch.stack([(envelope + 5) / 2, torch.sigmoid(filters.voicing) * 2 - 1, octaves], 1)


def losses(pair: Pair, made: Filters, true: Filters, edge: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the discriminator loss and the decoder losses, excluding the first `edge` steps."""
    share = torch.sigmoid(true.voicing)
    # Voiced fraction of the power in bands below about 2 kHz.
    voiced = share[..., :40].mean(-1) > 0.5
    (fake, fake_features), (real, real_features) = (
        pair.discriminator(picture(f, voiced)[:, :, edge:]) for f in (made, true)
    )
    weight = ((true.envelope + 8.5) / 3).clamp(0.2, 1)
    weight[:, :edge] = 0
    octaves = (torch.log2(made.f0) - torch.log2(true.f0)).abs()
    valid = voiced & (weight[..., 0] > 0)
    feature_losses = [
        F.l1_loss(a, b.detach()) / b.detach().abs().mean() for a, b in zip(fake_features, real_features, strict=True)
    ]
    return (real - 1).square().mean() + fake.square().mean(), {
        "envelope": ((made.envelope - true.envelope).abs() * weight).sum() / weight.sum(),
        "semitones": (octaves * valid).sum() / valid.sum().clamp(min=1) * 12,
        "share": F.binary_cross_entropy_with_logits(made.voicing, share, weight=weight),
        "taken": (fake - 1).square().mean(),
        "features": torch.stack(feature_losses).mean(),
    }


class Crops:
    """Random crops of latents of the intelligible renderings."""

    def __init__(self, folder: Path, codec: Codec, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.of: dict[bool, list[NDArray[np.float16]]] = {True: [], False: []}
        for shard in sorted((folder / "speech").glob("?????.npz")):
            if verdicts_of(shard).exists():
                for mandarin, latents in _latents(folder, shard, codec):
                    self.of[mandarin].append(latents)

    def batch(self) -> Tensor:
        """Draw a batch (BATCH, FRAMES, latent), repeating the last frame of short utterances."""
        rows = []
        for _ in range(BATCH):
            mandarin = self.rng.random() < MANDARIN
            pool = self.of[mandarin] or self.of[not mandarin]
            latents = pool[int(self.rng.integers(len(pool)))]
            start = int(self.rng.integers(0, max(1, len(latents) - FRAMES + 1)))
            rows.append(latents[np.minimum(np.arange(start, start + FRAMES), len(latents) - 1)])
        return torch.from_numpy(np.stack(rows).astype(np.float32)).to(common.DEVICE)


def _latents(folder: Path, shard: Path, codec: Codec) -> list[tuple[bool, NDArray[np.float16]]]:
    """Return (is Mandarin, latents (frames, latent)) of each utterance of a shard, cached."""
    path = folder / "latents" / f"{shard.stem}.safetensors"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        rows = {}
        for rendering in understood(shard):
            audio = prepare(rendering, codec).samples.astype(np.float32) / np.float32(32768)
            latents = codec.latents(torch.from_numpy(audio)[None])[0].numpy().astype(np.float16)
            rows[f"{rendering.request.language}{rendering.request.number}"] = latents
        partial = path.with_suffix(".part")
        save_file(rows, partial)
        partial.rename(path)
    return [(name.startswith("zh"), latents) for name, latents in load_numpy(path).items()]


def train(folder: Path, codec: Codec, steps: int, minutes: float | None = None, seed: int = 0) -> Path | str:
    """Train for `steps`, resuming the run in `folder`, for at most `minutes` now; return the checkpoint path.

    Without renderings, the decoder is unchanged and a message is returned.
    """
    torch.manual_seed(seed)
    teacher = copy.deepcopy(codec).to(common.DEVICE).requires_grad_(False)
    pair = Pair(copy.deepcopy(teacher.decoder).requires_grad_(True)).to(common.DEVICE)
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=_PEAK, betas=(0.8, 0.98))
        for model in (pair.decoder, pair.discriminator)
    ]
    path, about = folder / "decoder-run.safetensors", {"seed": seed}
    run = common.Run(path, steps, pair, optimizers, decay=0.995, warm=50, hold=0.5, about=about, minutes=minutes)
    crops, edge = Crops(folder, codec, seed + run.step), EDGE * teacher.decoder.steps
    if not any(crops.of.values()):
        return f"no intelligible renderings in {folder / 'speech'}: the decoder is unchanged"
    for step in run:
        latents = crops.batch()
        with torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
            with torch.no_grad():
                chosen = teacher.quantizer.decode(teacher.quantizer.encode(latents))
                true = teacher.decoder.filters(latents, Carry([None]))
            made = pair.decoder.filters(chosen, Carry([None]))
            discriminator_loss, parts = losses(pair, made, true, edge)
        loss = torch.stack([WEIGHTS[name] * term for name, term in parts.items()]).sum()
        _descend(run, pair, loss, discriminator_loss, step >= DISCRIMINATOR_STEPS)
        run.tell(loss=loss, told=discriminator_loss, **parts)
    return path


def _descend(run: common.Run, pair: Pair, loss: Tensor, discriminator_loss: Tensor, train_decoder: bool) -> None:
    """Step the discriminator, and optionally the decoder, each on its own loss."""
    decoder, discriminator = (list(model.parameters()) for model in (pair.decoder, pair.discriminator))
    gradients = torch.autograd.grad(discriminator_loss, discriminator, retain_graph=True)
    for parameter, gradient in zip(discriminator, gradients, strict=True):
        parameter.grad = gradient
    if train_decoder:
        for parameter, gradient in zip(decoder, torch.autograd.grad(loss, decoder), strict=True):
            parameter.grad = gradient
    run.move()


def with_decoder(folder: Path, codec: Codec) -> Codec:
    """Return the codec with the averaged decoder of the run in `folder`, if there is one."""
    path, result = folder / "decoder-run.safetensors", copy.deepcopy(codec)
    if path.exists():
        prefix = "average.decoder."
        values = {k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)}
        result.decoder.load_state_dict(values)
    return result
