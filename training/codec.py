"""Trains the codec: audio through codes and back, judged by its short-time spectra, with the teacher's own F0 as a guide."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from training import common
from training.render import Utterance, load_shard
from training.speakers import all_speakers
from voicelab.engine.codec import Codec, Decoder, Filters
from voicelab.engine.config import CodecConfig
from voicelab.engine.text.phones import PHONES
from voicelab.engine.vocoder import LAG, STEP, WINDOW, Vocoder, mel_of

FRAMES = 32
WARM = 400
"""Steps without quantization, after which the codebooks start from what the encoder says."""
RENDER_EVERY = 8
"""Steps from one that renders audio to the next: the envelope guides as well, at a quarter of the cost."""
FLOOR = 1e-7
"""Power density below which nothing is heard (-70 dBFS of white noise)."""


@dataclass(frozen=True)
class Batch:
    """Crops of FRAMES code frames."""

    audio: Tensor
    """(batch, FRAMES * hop)."""
    f0: Tensor
    """(batch, steps) Hz at the end of each vocoder step, 0 where unvoiced."""
    phones: Tensor
    """(batch, FRAMES) the phone at the middle of each frame."""


class Crops:
    """Random crops of rendered utterances."""

    def __init__(self, shards: list[Path], config: CodecConfig, seed: int) -> None:
        self.config = config
        self.speakers = all_speakers()
        self.utterances = [u for path in shards for u in load_shard(path)]
        self.rng = np.random.default_rng(seed)

    def batch(self, size: int) -> Batch:
        """`size` crops of different utterances."""
        rows = [self._crop(self.utterances[int(i)]) for i in self.rng.integers(len(self.utterances), size=size)]
        return Batch(*(torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)))

    def _crop(self, utterance: Utterance) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
        hop, rate = self.config.hop, self.config.sample_rate
        audio = utterance.audio(self.speakers[utterance.speaker], rate)
        length = FRAMES * hop
        start = int(self.rng.integers(max(1, audio.size - length + 1)))
        piece = audio[start : start + length]
        piece = np.pad(piece, (0, length - piece.size))
        ends = (start + STEP * np.arange(1, length // STEP + 1)) / rate
        middles = (start + hop * (np.arange(FRAMES) + 0.5)) / rate
        return piece, f0_at(utterance, ends), phones_at(utterance, middles)


def f0_at(utterance: Utterance, seconds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The teacher's F0 at these times, linear within voiced stretches, 0 outside them."""
    place = seconds / utterance.f0_step
    low = np.clip(place.astype(int), 0, utterance.f0.size - 1)
    high = np.clip(low + 1, 0, utterance.f0.size - 1)
    a, b = utterance.f0[low], utterance.f0[high]
    mixed = a + (b - a) * (place - low)
    return np.where((a > 0) & (b > 0) & (place < utterance.f0.size), mixed, 0).astype(np.float32)


def phones_at(utterance: Utterance, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The phone spoken at these times (ids of the inventory)."""
    ends = np.array([p.end for p in utterance.phones])
    ids = np.array([PHONES.index(p.name) for p in utterance.phones])
    return ids[np.minimum(np.searchsorted(ends, seconds), ids.size - 1)]


class Training(nn.Module):
    """The codec with what only training needs: running codebook statistics and the phone classifier."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.codec = Codec(config)
        self.classify = nn.Linear(config.latent, config.phones)
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
            table[dead] = flat[torch.randint(flat.shape[0], (dead.numel(),))]
            count[dead], total[dead] = 0.2, 0.2 * table[dead]

    @torch.no_grad()
    def start_codebooks(self, latents: Tensor) -> None:
        """K-means, one codebook after the other, on (n, latent)."""
        rest = latents
        for i, table in enumerate(self.codec.quantizer.tables):
            table.copy_(rest[torch.randperm(rest.shape[0])[: table.shape[0]]])
            for _ in range(12):
                codes = ((table * table).sum(1) - 2 * rest @ table.t()).argmin(-1)
                count = torch.bincount(codes, minlength=table.shape[0])[:, None]
                total = torch.zeros_like(table).index_add_(0, codes, rest)
                table.copy_(torch.where(count > 0, total / count.clamp(min=1), table))
            getattr(self, f"count{i}").fill_(1.0)
            getattr(self, f"total{i}").copy_(table)
            rest = rest - table[((table * table).sum(1) - 2 * rest @ table.t()).argmin(-1)]


def spectral_loss(made: Tensor, true: Tensor) -> Tensor:
    """Mean over three resolutions of the log and the linear distance of magnitudes (Yamamoto et al., 2020)."""
    total = made.new_zeros(())
    for size in (2048, 1024, 384):
        window = torch.hann_window(size, device=made.device)
        a, b = (
            torch.stft(x, size, size // 4, window=window, return_complex=True, center=False).abs() / size**0.5
            for x in (made, true)
        )
        total = (
            total
            + F.l1_loss(torch.log(a + 5e-4), torch.log(b + 5e-4))
            + 4.0 * F.l1_loss(torch.sqrt(a + 1e-6), torch.sqrt(b + 1e-6))
        )
    return total / 3


def envelopes(audio: Tensor, f0: Tensor, vocoder: Vocoder) -> Tensor:
    """What the vocoder's filters ought to add up to, measured on the true audio.

    Args:
        audio: (batch, steps * STEP).
        f0: (batch, steps) Hz, 0 where unvoiced.
        vocoder: whose windows and bands these are.

    Returns:
        (batch, steps, bands) log amplitude densities: the power spectrum is averaged over one F0 around each band, so that
        harmonics do not show (as Morise's CheapTrick does, 2015), and over the band where that is wider.
    """
    frames = F.pad(audio, (LAG, 0)).unfold(1, WINDOW, STEP) * vocoder.window
    power = torch.fft.rfft(frames).abs().square() / vocoder.window.square().sum()
    bins, per_bin = power.shape[-1], vocoder.sample_rate / WINDOW
    total = F.pad(power.double().cumsum(-1), (1, 0))
    centres, widths = _bands(vocoder)
    width = torch.maximum(torch.where(f0 > 0, f0, 150.0)[..., None], widths) / per_bin
    low = (centres / per_bin + 0.5 - width / 2).clamp(0, bins - 1.001)
    high = (centres / per_bin + 0.5 + width / 2).clamp(1, bins - 0.001)
    mean = (_between(total, high) - _between(total, low)) / (high - low)
    return 0.5 * torch.log(mean.float() + FLOOR)


def _bands(vocoder: Vocoder) -> tuple[Tensor, Tensor]:
    """Centre and width of the vocoder's bands in Hz."""
    top = mel_of(torch.tensor(vocoder.sample_rate / 2))
    mels = torch.arange(vocoder.spread.shape[0]) / (vocoder.spread.shape[0] - 1) * top
    hz = 700 * (10 ** (mels / 2595) - 1)
    return hz, torch.gradient(hz)[0]


def _between(values: Tensor, place: Tensor) -> Tensor:
    """Linear interpolation of (batch, steps, n) at places (batch, steps, m)."""
    low = place.floor().long()
    share = place - low
    return values.gather(-1, low) * (1 - share) + values.gather(-1, low + 1) * share


def envelope_loss(found: Filters, true: Tensor) -> Tensor:
    """Mean distance of the two filters' sum from the true envelope, in nepers: a cheap and well-shaped guide."""
    both = 0.5 * torch.log(torch.exp(2 * found.harmonic) + torch.exp(2 * found.noise) + FLOOR)
    return F.l1_loss(both, true)


def decoder_losses(decoder: Decoder, into: Tensor, batch: Batch, render: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """(spectral loss, 0 unless rendered; F0 error in octaves; envelope loss) of latents (batch, FRAMES, latent) decoded."""
    found, _ = decoder.filters(into)
    envelope = envelope_loss(found, envelopes(batch.audio, batch.f0, decoder.vocoder))
    voiced = batch.f0 > 0
    octaves = (torch.log2(found.f0) - torch.log2(batch.f0.clamp(min=1))).abs()
    f0 = (octaves * voiced).sum() / voiced.sum().clamp(min=1)
    if not render:
        return envelope.new_zeros(()), f0, envelope
    made, _ = decoder.vocoder(torch.where(voiced, batch.f0, found.f0.detach()), found.harmonic, found.noise)
    return spectral_loss(made[:, LAG:], batch.audio[:, :-LAG]), f0, envelope


def losses(model: Training, batch: Batch, quantized: bool, render: bool) -> tuple[Tensor, dict[str, float], Tensor]:
    """(loss, its parts for the log, the latents)."""
    codec = model.codec
    latents = codec.encoder(codec.spectrum(batch.audio))
    commit = phone = latents.new_zeros(())
    into = first = latents
    if quantized:
        into, first, commit = model.quantize(latents)
    phone = F.cross_entropy(model.classify(first).flatten(0, 1), batch.phones.flatten())
    spectral, f0, envelope = decoder_losses(codec.decoder, into, batch, render)
    loss = spectral + 4.0 * envelope + 5.0 * f0 + 0.15 * commit + 0.2 * phone
    right = (model.classify(first).argmax(-1) == batch.phones).float().mean()
    return (
        loss,
        {
            "envelope": envelope.item(),
            **({"spectral": spectral.item()} if render else {}),
            "f0": f0.item() * 12,
            "commit": commit.item(),
            "phone": phone.item(),
            "right": right.item(),
        },
        latents,
    )


def train(
    folder: Path, minutes: float, batch_size: int = 12, seed: int = 0, peak: float = 1e-3, shards: int = 24
) -> Path:
    """Trains for `minutes` of clock time, resuming what is there; returns the checkpoint."""
    torch.manual_seed(seed)
    config = CodecConfig(phones=len(PHONES))
    model = Training(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.85, 0.98), weight_decay=1e-3)
    average = common.Average(model)
    path, step, spent = folder / "codec-run.safetensors", 0, 0.0
    if path.exists():
        meta = common.load_run(path, model, average, [optimizer])
        step, spent = meta["step"], meta["spent"]
    crops = Crops(sorted((folder / "shards").glob("????.npz"))[:shards], config, seed + step)
    clock, saved, seen = common.Clock(minutes, spent), time.monotonic(), []
    sums: dict[str, float] = {}
    while clock.done < 1:
        for group in optimizer.param_groups:
            group["lr"] = clock.rate(peak, step, hold=0.7)
        loss, parts, latents = losses(model, crops.batch(batch_size), step >= WARM, step % RENDER_EVERY == 0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model)
        if WARM - 40 <= step < WARM:
            seen.append(latents.detach().flatten(0, 1))
        if step == WARM - 1:
            model.start_codebooks(torch.cat(seen))
            average = common.Average(model)
        step += 1
        sums |= {k: sums.get(k, v) * 0.95 + v * 0.05 for k, v in parts.items()}
        if step % 50 == 0:
            print(
                step,
                f"{clock.spent:.0f}s",
                {k: round(v, 4) for k, v in sums.items()},
                flush=True,
            )
        if time.monotonic() - saved > 150 or clock.done >= 1:
            common.save_run(
                path,
                model,
                average,
                [optimizer],
                {"step": step, "spent": clock.spent, "seed": seed, "config": dataclasses.asdict(config)},
            )
            saved = time.monotonic()
    return path


def train_decoder(folder: Path, minutes: float, batch_size: int = 12, seed: int = 1, peak: float = 5e-4) -> Path:
    """Goes on with the decoder alone: codes stay what the language model has learned, only their rendering gets better."""
    torch.manual_seed(seed)
    codec = load(folder / "codec-run.safetensors")
    decoder = codec.decoder.train().requires_grad_(True)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=peak, betas=(0.85, 0.98), weight_decay=1e-3)
    average = common.Average(decoder)
    path, step, spent = folder / "decoder-run.safetensors", 0, 0.0
    if path.exists():
        meta = common.load_run(path, decoder, average, [optimizer])
        step, spent = meta["step"], meta["spent"]
    shards = sorted((folder / "shards").glob("????.npz"))
    crops = Crops(shards[-24:], codec.config, seed + step)
    clock, saved, total = common.Clock(minutes, spent), time.monotonic(), 0.0
    while clock.done < 1:
        for group in optimizer.param_groups:
            group["lr"] = clock.rate(peak, step, warm=50, hold=0.2)
        batch = crops.batch(batch_size)
        with torch.no_grad():
            into = codec.quantizer.decode(codec.encode(batch.audio))
        spectral, f0, envelope = decoder_losses(decoder, into.clone(), batch)
        optimizer.zero_grad()
        (spectral + envelope + 5.0 * f0).backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        average.update(decoder)
        step += 1
        total = total * 0.95 + spectral.item() * 0.05
        if step % 50 == 0:
            print(step, f"{clock.spent:.0f}s", round(total / (1 - 0.95**step), 4), round(f0.item() * 12, 3), flush=True)
        if time.monotonic() - saved > 150 or clock.done >= 1:
            common.save_run(path, decoder, average, [optimizer], {"step": step, "spent": clock.spent, "seed": seed})
            saved = time.monotonic()
    return path


def load_decoder(codec: Codec, path: Path) -> None:
    """Gives a codec the averaged decoder of `train_decoder`."""
    from safetensors.torch import load_file

    codec.decoder.load_state_dict({k[8:]: v for k, v in load_file(path).items() if k.startswith("average.")})


def load(path: Path) -> Codec:
    """The averaged codec of a run."""
    from safetensors.torch import load_file

    codec = Codec(CodecConfig.of(common.read_meta(path)["config"]))
    prefix = "average.codec."
    codec.load_state_dict({k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)})
    return codec.eval()
