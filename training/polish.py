"""Teaches the decoder alone to sound like its teachers, through the audio that it renders.

Training by measured envelopes (`codec`) tells it the middle of what a code may mean; what is heard of a speaker is also how
power adds up over time. Here the codes of the language models' own data are decoded, and spectra are compared, those of
moments and the mean over each crop. Above what a teacher has to say the decoder stays what it was. Codes, encoder and
language models do not change.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from training import codes as codes_module
from training import common, mandarin, pitch
from training.codes import Encoded
from training.features import band_centres, between, f0_at
from training.render import RATE, Utterance, load_shard
from training.speakers import all_speakers
from voicelab.engine.pointer.codec import LAG, STEP, Codec, Decoder, Filters, mel_triangles

FRAMES, EDGE, BATCH = 28, 4, 8
"""Frames of a crop, of which the first EDGE lack the decoder's past and are not judged; crops of a step."""
_REACH = 0.86
"""Share of a teacher's own band, up to half its rate, in which it is compared: above, it fades."""
_BANDS, _TOP_HZ = 48, 9000.0
_MANDARIN = 0.2
"""Share of the crops; the codec was trained without, and the teacher does not tell its F0."""


@dataclass(frozen=True)
class Batch:
    """Crops of audio with their codes."""

    codes: Tensor
    """(batch, FRAMES, codebooks)."""
    audio: Tensor
    """(batch, samples)."""
    f0: Tensor
    """(batch, steps) Hz at the end of every step, 0 where unvoiced."""
    tops: Tensor
    """(batch,) Hz up to which the audio is compared."""


class Crops:
    """Random crops of encoded utterances."""

    def __init__(self, folder: Path, shards: int, hop: int, seed: int) -> None:
        self.hop, self.rng = hop, np.random.default_rng(seed)
        self.speakers = {s.id: s for s in (*all_speakers(), *mandarin.speakers())}
        english = sorted((folder / "shards").glob("????.npz"))[:shards]
        chinese = sorted((folder / "shards-zh").glob("????.npz"), key=lambda path: path.stem[::-1])[
            : max(1, shards // 4)
        ]
        self.pairs = [
            [pair for path in paths for pair in _pairs(folder, path)] for paths in (english, chinese) if paths
        ]
        self.share = _MANDARIN if len(self.pairs) > 1 else 0.0

    def batch(self) -> Batch:
        """BATCH crops."""
        rows = [self._row() for _ in range(BATCH)]
        codes, audio, f0, tops = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
        return Batch(codes, audio, f0, tops)

    def _row(self) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        pairs = self.pairs[int(self.rng.random() < self.share)]
        utterance, encoded = pairs[int(self.rng.integers(len(pairs)))]
        speaker = self.speakers[utterance.speaker]
        first = int(self.rng.integers(encoded.at.size - FRAMES))
        start, length = first * self.hop, FRAMES * self.hop
        audio = np.pad(utterance.audio(speaker), (0, length))[start : start + length]
        seconds = STEP * np.arange(1, length // STEP + 1) / RATE
        told = utterance.f0.size > 1
        f0 = (
            f0_at(utterance, start / RATE + seconds) if told else between(pitch.track(audio, RATE), pitch.STEP, seconds)
        )
        top = np.array(utterance.raw_rate * speaker.formants / 2 * _REACH, np.float32)
        return encoded.codes[first : first + FRAMES].astype(np.int64), audio, f0, top


def _pairs(folder: Path, shard: Path) -> list[tuple[Utterance, Encoded]]:
    """The utterances of a shard that are long enough, with their codes."""
    both = zip(load_shard(shard), codes_module.load(folder / "codes" / shard.name), strict=True)
    return [(utterance, encoded) for utterance, encoded in both if encoded.at.size > FRAMES]


def distances(made: Tensor, true: Tensor, tops: Tensor) -> tuple[Tensor, Tensor]:
    """(of moments, of the crops' mean spectra) below `tops`, from (batch, samples) each.

    Moments as Yamamoto et al. (2020) at three resolutions; the means in nepers over _BANDS mel bands.
    """
    moments, means = made.new_zeros(()), made.new_zeros(())
    for size in (2048, 1024, 384):
        window = torch.hann_window(size)
        a, b = (
            torch.stft(x, size, size // 4, window=window, return_complex=True, center=False).abs() / size**0.5
            for x in (made, true)
        )
        seen = (torch.linspace(0, RATE / 2, size // 2 + 1) < tops[:, None])[..., None]
        share = seen.float().mean()
        moments = moments + F.l1_loss(torch.log(a + 5e-4) * seen, torch.log(b + 5e-4) * seen) / share
        moments = moments + 4.0 * F.l1_loss(torch.sqrt(a + 1e-6) * seen, torch.sqrt(b + 1e-6) * seen) / share
        if size == 2048:
            bands = mel_triangles(RATE, size, _BANDS, _TOP_HZ)
            heard = (
                (bands.t() @ (b * b).mean(-1, keepdim=True))[..., 0],
                (bands.t() @ (a * a).mean(-1, keepdim=True))[..., 0],
            )
            inside = (bands.t() @ seen.float())[..., 0] > 0.99
            apart = (torch.log(heard[1] + 1e-7) - torch.log(heard[0] + 1e-7)).abs() / 2
            means = (apart * inside).sum() / inside.sum()
    return moments / 3, means


def losses(decoder: Decoder, before: Decoder, latents: Tensor, batch: Batch, centres: Tensor) -> dict[str, Tensor]:
    """What the decoder does wrong: against the audio, its F0, and what it said `before` above the teacher's band."""
    found, _ = decoder.filters(latents)
    with torch.no_grad():
        old = bridged(before.filters(latents)[0], batch.tops, centres)
    voiced = batch.f0 > 0
    octaves = (torch.log2(found.f0) - torch.log2(batch.f0.clamp(min=1))).abs() * voiced
    # The true F0 keeps the harmonics comparable.
    told = torch.where(voiced, batch.f0, found.f0.detach())
    made = decoder.vocoder(told, found.harmonic, found.noise)[0]
    skip = EDGE * (batch.audio.shape[1] // FRAMES)
    moments, means = distances(made[:, LAG + skip :], batch.audio[:, skip:-LAG], batch.tops)
    return {
        "moments": moments,
        "means": means,
        "octaves": octaves[:, skip // STEP :].sum() / voiced[:, skip // STEP :].sum().clamp(min=1),
        "above": _moved(found, old, centres > batch.tops[:, None]),
    }


def bridged(old: Filters, tops: Tensor, centres: Tensor) -> Filters:
    """The filters with a straight line where the teacher fades: from `tops` (batch,) to where the guessed treble begins."""
    low = (centres[None] <= tops[:, None]).sum(1) - 1
    high = (centres[None] < tops[:, None] / _REACH).sum(1).clamp(max=centres.numel() - 1)
    band = torch.arange(centres.numel())
    share = ((band - low[:, None]) / (high - low)[:, None]).clamp(0, 1)
    inside = (band > low[:, None]) & (band < high[:, None])

    def line(values: Tensor) -> Tensor:
        every = torch.arange(values.shape[0])
        left, right = values[every, :, low][..., None], values[every, :, high][..., None]
        return torch.where(inside[:, None], left + (right - left) * share[:, None], values)

    return Filters(old.f0, line(old.envelope), line(old.voicing), old.silence)


def _moved(found: Filters, old: Filters, above: Tensor) -> Tensor:
    """Mean distance of the filters `above` (batch, bands) from the old ones."""
    apart = (found.envelope - old.envelope).abs() + 0.25 * (found.voicing - old.voicing).abs()
    return (apart.mean(1) * above).sum() / above.sum().clamp(min=1)


WEIGHTS = {"moments": 1.0, "means": 1.0, "octaves": 5.0, "above": 2.0}


def train(folder: Path, codec: Codec, steps: int, shards: int = 24, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is there; returns the checkpoint, for `polished`."""
    torch.manual_seed(seed)
    codec.requires_grad_(False)
    before = codec.decoder
    decoder = copy.deepcopy(before).requires_grad_(True)
    optimizers = [torch.optim.AdamW(decoder.parameters(), lr=3e-4, betas=(0.8, 0.98))]
    path = folder / "polish-run.safetensors"
    run = common.Run(path, steps, decoder, optimizers, decay=0.995, warm=50, hold=0.3, about={"seed": seed})
    crops = Crops(folder, shards, codec.config.hop, seed + run.step)
    centres = band_centres(decoder.vocoder)
    for _ in run:
        batch = crops.batch()
        parts = losses(decoder, before, codec.quantizer.decode(batch.codes), batch, centres)
        run.descend(torch.stack([WEIGHTS[name] * part for name, part in parts.items()]).sum(), **parts)
    return path


def polished(folder: Path, codec: Codec) -> Codec:
    """The same codec with the decoder of the run in `folder`, where there is one."""
    path = folder / "polish-run.safetensors"
    if path.exists():
        prefix = "average."
        codec.decoder.load_state_dict({k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)})
    return codec
