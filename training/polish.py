"""Teaches the decoder alone to decide what its codes leave open, instead of saying the mean of it.

Distances alone (`codec`) are least when a decoder averages over all that a code may mean, and averages sound blurred. Here a
discriminator looks at what the vocoder is told, as a picture of time and bands, beside what WORLD measured, and the decoder
learns to be taken for it (least squares: Mao et al., 2017; with the distances between the discriminator's features: Larsen
et al., 2016), no further from the measures than before. No audio is rendered. Codes, encoder and language models stay.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from training import common
from training.codec import decoder_losses
from training.crops import EDGE, STEPS, Batch, Crops
from voicelab.engine.pointer.codec import Codec, Decoder, Filters

BATCH = 12
ALONE = 200
"""Steps in which the discriminator learns and the decoder does not."""
WEIGHTS = {"envelope": 4.0, "semitones": 0.4, "share": 1.0, "taken": 0.5, "features": 2.0}
_PEAK = 3e-4


class Discriminator(nn.Module):
    """Tells measured pictures from decoded ones: (batch, 3, steps, bands) → (batch, steps / 4, bands / 8) scores."""

    def __init__(self) -> None:
        super().__init__()
        shapes = ((3, 24, (1, 2)), (24, 32, (2, 2)), (32, 48, (2, 2)), (48, 48, (1, 1)))
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 5, stride, padding=2) for a, b, stride in shapes)
        self.out = nn.Conv2d(48, 1, 3, padding=1)

    def forward(self, picture: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Scores, and the features of every layer."""
        features = []
        for layer in self.layers:
            picture = F.leaky_relu(layer(picture), 0.1)
            features.append(picture)
        return self.out(picture)[:, 0], features


class Pair(nn.Module):
    """The decoder and its discriminator, for one checkpoint."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder, self.discriminator = decoder, Discriminator()


def picture(envelope: Tensor, share: Tensor, f0: Tensor, voiced: Tensor) -> Tensor:
    """(batch, 3, steps, bands): envelope, share of the voice, and F0 where there is a voice; all around 0 and 1 in size."""
    octaves = (torch.log2(f0.clamp(min=1) / 150) * 2 * voiced)[..., None].expand_as(envelope)
    return torch.stack([(envelope + 5) / 2, share * 2 - 1, octaves], 1)


def _pictures(found: Filters, batch: Batch) -> tuple[Tensor, Tensor]:
    """(decoded, measured), without the first EDGE frames."""
    voiced = batch.f0 > 0
    made = picture(found.envelope, torch.sigmoid(found.voicing), found.f0, voiced)
    true = picture(batch.envelope, batch.voicing, batch.f0, voiced)
    return made[:, :, EDGE * STEPS :], true[:, :, EDGE * STEPS :]


def told_apart(fake: Tensor, real: Tensor) -> Tensor:
    """How badly scores tell decoded pictures from measured ones."""
    return (real - 1).square().mean() + fake.square().mean()


def losses(pair: Pair, found: Filters, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """(how badly the discriminator tells decoded from measured, what the decoder does wrong)."""
    made, true = _pictures(found, batch)
    (fake, seen), (real, wanted) = pair.discriminator(made), pair.discriminator(true)
    envelope, octaves, share = decoder_losses(found, batch)
    apart = [F.l1_loss(a, b.detach()) / b.detach().abs().mean() for a, b in zip(seen, wanted, strict=True)]
    return told_apart(fake, real), {
        "envelope": envelope,
        "semitones": octaves * 12,
        "share": share,
        "taken": (fake - 1).square().mean(),
        "features": torch.stack(apart).mean(),
    }


def train(folder: Path, codec: Codec, steps: int, minutes: float | None = None, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is there, for so many `minutes` now; returns the checkpoint, for `polished`."""
    torch.manual_seed(seed)
    codec = codec.to(common.DEVICE).requires_grad_(False)
    pair = Pair(codec.decoder.requires_grad_(True)).to(common.DEVICE)
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=_PEAK, betas=(0.8, 0.98))
        for model in (pair.decoder, pair.discriminator)
    ]
    path = folder / "polish-run.safetensors"
    about = {"seed": seed}
    run = common.Run(path, steps, pair, optimizers, decay=0.995, warm=50, hold=0.5, about=about, minutes=minutes)
    crops = Crops(folder, seed + run.step)
    for step in run:
        batch = crops.batch(BATCH)
        with torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
            with torch.no_grad():
                latents = codec.quantizer.decode(codec.quantizer.encode(codec.encoder(batch.seen).float()))
            found, _ = pair.decoder.filters(latents)
            told, parts = losses(pair, found, batch)
        loss = torch.stack([WEIGHTS[name] * part for name, part in parts.items()]).sum()
        _descend(run, pair, loss, told, step >= ALONE)
        run.tell(loss=loss, told=told, **parts)
    return path


def _descend(run: common.Run, pair: Pair, loss: Tensor, told: Tensor, both: bool) -> None:
    """A step of the discriminator, and one of the decoder where `both` learn; each by its own loss."""
    decoder, discriminator = (list(model.parameters()) for model in (pair.decoder, pair.discriminator))
    gradients = torch.autograd.grad(told, discriminator, retain_graph=True)
    for parameter, gradient in zip(discriminator, gradients, strict=True):
        parameter.grad = gradient
    if both:
        for parameter, gradient in zip(decoder, torch.autograd.grad(loss, decoder), strict=True):
            parameter.grad = gradient
    run.move()


def polished(folder: Path, codec: Codec) -> Codec:
    """The same codec with the averaged decoder of the run in `folder`, where there is one."""
    path = folder / "polish-run.safetensors"
    if path.exists():
        prefix = "average.decoder."
        codec.decoder.load_state_dict({k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)})
    return codec
