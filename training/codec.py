"""Trains the codec: what the encoder sees, through codes, to the envelope, the share of the voice and the F0 of every step.

No audio is rendered here: the vocoder is fixed, and what it has to be told was measured beforehand (`world`). Some of what
the encoder sees is spoiled, while the targets stay clean, so that a reference's noise does not become the voice's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from training import common
from training.crops import CONFIG, Batch, Crops
from voicelab.engine.pointer.codec import STEP, Codec, Filters
from voicelab.engine.pointer.config import CodecConfig

BATCH = 24
WARM = 250
"""Steps without quantization, after which the codebooks start from what the encoder says; none for a codec that goes on."""
_PEAK = 1.5e-3
_SCALE = 8.0
"""Latents are principal components divided by this."""
_COMPONENTS = 80
_F0_WEIGHT, _VOICING_WEIGHT = 12.0, 0.5
"""In principal components: an octave, and all of the voice, against a neper."""


def patches(batch: Batch, per: int) -> Tensor:
    """(batch * FRAMES, values): all that the decoder is to say of a frame, weighted so that distances mean the same."""
    f0 = torch.log2(bridged(batch.f0) / 120)[..., None] * _F0_WEIGHT
    voice = F.avg_pool1d(batch.voicing, 5) * _VOICING_WEIGHT
    every = torch.cat([batch.envelope, f0, voice], dim=-1)
    return every.reshape(-1, per, every.shape[-1]).flatten(1)


def bridged(f0: Tensor) -> Tensor:
    """F0 with straight lines where there is no voice."""
    out, place = f0.cpu().numpy().copy(), np.arange(f0.shape[1])
    for row in out:
        row[:] = np.interp(place, place[row > 0], row[row > 0]) if (row > 0).any() else 120.0
    return torch.from_numpy(out).to(f0.device)


class Training(nn.Module):
    """The codec with what only training needs: running codebook statistics and the phone classifier."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.codec = Codec(config)
        self.classify = nn.Linear(config.latent, config.phones)
        self.mean: Tensor
        self.basis: Tensor
        values = config.hop // STEP * (config.filter_bands + 1 + config.filter_bands // 5)
        self.register_buffer("mean", torch.zeros(values))
        self.register_buffer("basis", torch.zeros(values, min(config.latent, _COMPONENTS)))
        for i, size in enumerate(config.codebooks):
            self.register_buffer(f"count{i}", torch.ones(size))
            self.register_buffer(f"total{i}", torch.zeros(size, config.latent))

    def quantize(self, latents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(quantized with straight-through gradient, its first stage likewise, commitment loss); moves the codebooks."""
        rest, chosen, loss = latents, torch.zeros_like(latents), latents.new_zeros(())
        first = latents
        for i, table in enumerate(self.codec.quantizer.tables):
            with torch.no_grad():
                flat = rest.reshape(-1, rest.shape[-1])
                codes = ((table * table).sum(1) - 2 * flat @ table.t()).argmin(-1)
                if self.training:
                    self._move(i, table, flat, codes)
            picked = table[codes].reshape(rest.shape)
            loss = loss + F.mse_loss(rest, picked)
            chosen = chosen + picked
            rest = rest - picked
            if i == 0:
                first = latents + (chosen - latents).detach()
        return latents + (chosen - latents).detach(), first, loss

    def _move(self, index: int, table: Tensor, flat: Tensor, codes: Tensor, decay: float = 0.98) -> None:
        count, total = getattr(self, f"count{index}"), getattr(self, f"total{index}")
        count.mul_(decay).add_(torch.bincount(codes, minlength=count.numel()).to(count.dtype), alpha=1 - decay)
        total.mul_(decay).index_add_(0, codes, flat, alpha=1 - decay)
        table.copy_(total / count.clamp(min=1e-4)[:, None])
        dead = (count < 0.02).nonzero()[:, 0]
        if dead.numel():  # an entry nobody uses starts again at something somebody needs
            table[dead] = flat[torch.randint(flat.shape[0], (dead.numel(),), device=flat.device)]
            count[dead], total[dead] = 0.2, 0.2 * table[dead]

    @torch.no_grad()
    def go_on_from(self, codec: Codec) -> None:
        """Takes up what was trained before."""
        self.codec.load_state_dict(codec.state_dict())
        for i, table in enumerate(self.codec.quantizer.tables):
            getattr(self, f"total{i}").copy_(table)

    @torch.no_grad()
    def start_basis(self, values: Tensor) -> None:
        """Sets the decoder's linear map, and what the encoder is first taught, by the principal components of patches."""
        self.mean.copy_(values.mean(0))
        centred = values - self.mean
        _, vectors = torch.linalg.eigh(centred.t() @ centred)
        self.basis.copy_(vectors.flip(1)[:, : self.basis.shape[1]])
        decoder = self.codec.decoder
        per = decoder.steps
        decoder.linear.weight.zero_()
        weight = self.basis.reshape(per, -1, self.basis.shape[1])[:, : decoder.bands].flatten(0, 1) * _SCALE
        decoder.linear.weight[:, : weight.shape[1]] = weight
        decoder.linear.bias.copy_(self.mean.reshape(per, -1)[:, : decoder.bands].flatten())
        decoder.leave.weight.mul_(0.1)
        decoder.leave.bias.zero_()
        decoder.leave.bias[0] = float(self.mean.reshape(per, -1)[:, decoder.bands].mean()) / _F0_WEIGHT

    @torch.no_grad()
    def start_codebooks(self, latents: Tensor) -> None:
        """K-means, one codebook after the other, on (n, latent)."""
        rest = latents
        for i, table in enumerate(self.codec.quantizer.tables):
            table.copy_(rest[torch.randperm(rest.shape[0], device=rest.device)[: table.shape[0]]])
            for _ in range(12):
                codes = ((table * table).sum(1) - 2 * rest @ table.t()).argmin(-1)
                count = torch.bincount(codes, minlength=table.shape[0])[:, None]
                total = torch.zeros_like(table).index_add_(0, codes, rest)
                table.copy_(torch.where(count > 0, total / count.clamp(min=1), table))
            getattr(self, f"count{i}").fill_(1.0)
            getattr(self, f"total{i}").copy_(table)
            rest = rest - table[((table * table).sum(1) - 2 * rest @ table.t()).argmin(-1)]


def decoder_losses(found: Filters, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """(envelope error in nepers, F0 error in octaves, cross-entropy of the voice's share)."""
    envelope = ((found.envelope - batch.envelope).abs() * batch.weight).sum() / batch.weight.sum()
    voiced = (batch.f0 > 0) & (batch.weight[..., 0] > 0)
    octaves = (torch.log2(found.f0) - torch.log2(batch.f0.clamp(min=1))).abs()
    f0 = (octaves * voiced).sum() / voiced.sum().clamp(min=1)
    share = F.binary_cross_entropy_with_logits(found.voicing, batch.voicing, weight=batch.weight)
    return envelope, f0, share


def losses(model: Training, batch: Batch, quantized: bool, guided: float) -> tuple[Tensor, dict[str, float], Tensor]:
    """(loss, its parts for the log, the latents); `guided` is how much the principal components teach the encoder."""
    codec = model.codec
    latents = codec.encoder(batch.seen).float()
    commit = latents.new_zeros(())
    into = first = latents
    if quantized:
        into, first, commit = model.quantize(latents)
    said = model.classify(first)
    phone = F.cross_entropy(said.flatten(0, 1), batch.phones.flatten())
    found, _ = codec.decoder.filters(into)
    envelope, f0, share = decoder_losses(found, batch)
    loss = 4.0 * envelope + 5.0 * f0 + share + 0.25 * commit + 0.1 * phone
    if guided:
        true = (patches(batch, codec.decoder.steps) - model.mean) @ model.basis / _SCALE
        loss = loss + guided * F.mse_loss(latents.flatten(0, 1)[:, : true.shape[1]], true)
    right = (said.argmax(-1) == batch.phones).float().mean()
    parts = {
        "envelope": envelope,
        "semitones": f0 * 12,
        "share": share,
        "commit": commit,
        "right": right,
    }
    return loss, {k: float(v.detach()) for k, v in parts.items()}, latents


def optimizers_for(model: nn.Module, peak: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan, 2024) for the matrices inside the blocks, AdamW for the rest."""
    trained = [(k, p) for k, p in model.named_parameters() if p.requires_grad]
    inside = [p for k, p in trained if k.endswith(("widen.weight", "narrow.weight"))]
    rest = [p for k, p in trained if not k.endswith(("widen.weight", "narrow.weight"))]
    return [
        torch.optim.Muon(inside, lr=peak, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.98), weight_decay=1e-3),
    ]


def train(folder: Path, start: Codec | None, steps: int, minutes: float | None = None, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is there, for so many `minutes` now; returns the checkpoint.

    From `start` on, where there is one: with its codebooks, which move, from the first step.

    Raises:
        SystemExit: without a start, `steps` end before the codebooks begin.
    """
    warm = WARM if start is None else 0
    if steps <= warm:
        raise SystemExit(f"--codec-steps is {steps}: the codec needs more than {warm}, or it has no codebooks")
    torch.manual_seed(seed)
    model, crops = Training(CONFIG).to(common.DEVICE), Crops(folder, seed)
    about = {"seed": seed, "config": CONFIG.to_dict()}
    path = folder / "codec-run.safetensors"
    optimizers = optimizers_for(model, _PEAK if start is None else _PEAK / 2)
    run = common.Run(path, steps, model, optimizers, decay=0.999, warm=100, hold=0.5, about=about, minutes=minutes)
    if run.step:
        crops.rng = np.random.default_rng(seed + run.step)
        torch.manual_seed(seed + run.step)
    elif start is not None:
        model.go_on_from(start)
        run.average = common.Average(model)
    else:
        model.start_basis(torch.cat([patches(crops.batch(64), model.codec.decoder.steps) for _ in range(16)]))
        run.average = common.Average(model)
    seen: list[Tensor] = []
    for step in run:
        guided = 0.0 if start is not None else 1.0 if step < warm else 0.05
        with torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
            loss, parts, latents = losses(model, crops.batch(BATCH), step >= warm, guided)
        run.descend(loss, **parts)
        if step < warm:
            seen = [*seen[-59:], latents.detach().flatten(0, 1)]
        if step == warm - 1:
            model.start_codebooks(torch.cat(seen))
            run.average = common.Average(model)
    return path


def load(path: Path) -> Codec:
    """The averaged codec of a run."""
    codec = Codec(CodecConfig.of(common.read_meta(path)["config"]))
    prefix = "average.codec."
    codec.load_state_dict({k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)})
    return codec.eval()
