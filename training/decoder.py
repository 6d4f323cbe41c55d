"""Teaches the decoder alone to say of codes what it says of the latents that they stand for.

The decoder before is the teacher, since it is told more: the latents, unquantized. Distances alone are least when a decoder
averages over all that a code may mean, and averages sound blurred; a discriminator looks at what the vocoder is told, as a
picture of time and bands, and the decoder learns to be taken for its teacher (least squares: Mao et al., 2017; with the
distances between the discriminator's features: Larsen et al., 2016). Codes, encoder and language models stay, so that all
that is kept stays worth what it was. It hears what is rendered (``speech/``): latents are too large to be kept.
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
from training.codes import said_by
from training.understood import understood, verdicts_of
from voicelab.engine.core.decoding import Carry
from voicelab.engine.pointer.codec import Codec, Decoder, Filters

BATCH = 12
FRAMES = 48
EDGE = 8
"""Frames at the beginning of a crop that are not judged: the decoder lacks its past."""
ALONE = 200
"""Steps in which the discriminator learns and the decoder does not."""
MANDARIN = 0.5
"""Share of the crops that are Mandarin, of which codes lose most."""
WEIGHTS = {"envelope": 4.0, "semitones": 0.4, "share": 1.0, "taken": 0.5, "features": 2.0}
_PEAK = 3e-4


class Discriminator(nn.Module):
    """Tells pictures of the teacher from the learner's: (batch, 3, steps, bands) → (batch, steps / 4, bands / 8) scores."""

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


def picture(filters: Filters, voiced: Tensor) -> Tensor:
    """(batch, 3, steps, bands): envelope, share of the voice, and F0 where there is a voice; all around 0 and 1 in size."""
    envelope = filters.envelope
    octaves = (torch.log2(filters.f0 / 150) * 2 * voiced)[..., None].expand_as(envelope)
    return torch.stack([(envelope + 5) / 2, torch.sigmoid(filters.voicing) * 2 - 1, octaves], 1)


def losses(pair: Pair, made: Filters, true: Filters, edge: int) -> tuple[Tensor, dict[str, Tensor]]:
    """(how badly the discriminator tells the two apart, what the decoder does wrong), without the first `edge` steps."""
    share = torch.sigmoid(true.voicing)
    # The voice's share of the power of the bands below 2 kHz, about.
    voiced = share[..., :40].mean(-1) > 0.5
    (fake, seen), (real, wanted) = (pair.discriminator(picture(f, voiced)[:, :, edge:]) for f in (made, true))
    weight = ((true.envelope + 8.5) / 3).clamp(0.2, 1)
    weight[:, :edge] = 0
    octaves = (torch.log2(made.f0) - torch.log2(true.f0)).abs()
    heard = voiced & (weight[..., 0] > 0)
    apart = [F.l1_loss(a, b.detach()) / b.detach().abs().mean() for a, b in zip(seen, wanted, strict=True)]
    return (real - 1).square().mean() + fake.square().mean(), {
        "envelope": ((made.envelope - true.envelope).abs() * weight).sum() / weight.sum(),
        "semitones": (octaves * heard).sum() / heard.sum().clamp(min=1) * 12,
        "share": F.binary_cross_entropy_with_logits(made.voicing, share, weight=weight),
        "taken": (fake - 1).square().mean(),
        "features": torch.stack(apart).mean(),
    }


class Crops:
    """Latents of what was rendered and understood, cut."""

    def __init__(self, folder: Path, codec: Codec, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.of: dict[bool, list[NDArray[np.float16]]] = {True: [], False: []}
        for shard in sorted((folder / "speech").glob("?????.npz")):
            if verdicts_of(shard).exists():
                for mandarin, latents in _latents(folder, shard, codec):
                    self.of[mandarin].append(latents)

    def batch(self) -> Tensor:
        """(BATCH, FRAMES, latent); the last frame goes on where an utterance is too short."""
        rows = []
        for _ in range(BATCH):
            wanted = self.rng.random() < MANDARIN
            pool = self.of[wanted] or self.of[not wanted]
            latents = pool[int(self.rng.integers(len(pool)))]
            first = int(self.rng.integers(0, max(1, len(latents) - FRAMES + 1)))
            rows.append(latents[np.minimum(np.arange(first, first + FRAMES), len(latents) - 1)])
        return torch.from_numpy(np.stack(rows).astype(np.float32)).to(common.DEVICE)


def _latents(folder: Path, shard: Path, codec: Codec) -> list[tuple[bool, NDArray[np.float16]]]:
    """(whether it is Mandarin, (frames, latent)) of each utterance of a shard, reckoned once."""
    path = folder / "latents" / f"{shard.stem}.safetensors"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        rows = {}
        for rendering in understood(shard):
            audio = said_by(rendering, codec).samples.astype(np.float32) / np.float32(32768)
            latents = codec.latents(torch.from_numpy(audio)[None])[0].numpy().astype(np.float16)
            rows[f"{rendering.request.language}{rendering.request.number}"] = latents
        part = path.with_suffix(".part")
        save_file(rows, part)
        part.rename(path)
    return [(name.startswith("zh"), latents) for name, latents in load_numpy(path).items()]


def train(folder: Path, codec: Codec, steps: int, minutes: float | None = None, seed: int = 0) -> Path | str:
    """Trains for `steps`, resuming what is in `folder`, for so many `minutes` now; returns the checkpoint.

    Where nothing is rendered the decoder stays, and a line says so.
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
        return f"nothing in {folder / 'speech'} was rendered and understood: the decoder stays"
    for step in run:
        latents = crops.batch()
        with torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
            with torch.no_grad():
                chosen = teacher.quantizer.decode(teacher.quantizer.encode(latents))
                true = teacher.decoder.filters(latents, Carry([None]))
            made = pair.decoder.filters(chosen, Carry([None]))
            told, parts = losses(pair, made, true, edge)
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


def with_decoder(folder: Path, codec: Codec) -> Codec:
    """The codec with the averaged decoder of the run in `folder`, where there is one."""
    path, taught = folder / "decoder-run.safetensors", copy.deepcopy(codec)
    if path.exists():
        prefix = "average.decoder."
        values = {k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)}
        taught.decoder.load_state_dict(values)
    return taught
