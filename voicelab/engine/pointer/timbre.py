"""The long-term spectrum of speech, and the filter that gives a clone its speaker's.

Codes keep a timbre as far as the codebooks know others like it, and the language model follows it as far as its training
went. Part of what both lose is the same in every sentence, so it is a filter, and the vocoder, which has one for every step
already, adds it to these. What codes lose is told from the recording and its own copy, in the same words; what the language
model loses, from that copy and what the model says, in others, so that only a part of the difference is the speaker's
(docs/decisions/09-cloned-and-kept-voices.md).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from voicelab.engine.pointer.codec import LAG, STEP, WINDOW, Codec, Vocoder, mel_of

LOWEST_HZ, HIGHEST_HZ = 90.0, 11_000.0
"""Below is rumble; the models were not taught what is above 12 kHz."""
LONGEST_S = 30.0
"""What is listened to of a recording, so that long ones take no longer."""
_LOUD_DB = 25.0
"""Windows fainter than the loudest by more are pauses, or a room."""
_LOUDEST = 0.99
"""Share of the windows that are no louder than what counts as the loudest."""
_FAINTEST = 0.05
"""Share of the windows that are a pause, at least: speech has as many."""
_ABSENT_DB = 75.0
"""Bands fainter than the strongest by more were cut off: no microphone and no speaker leaves so little."""
_EDGE = 0.92
"""Filters that cut begin to fall before they cut."""
_MOST = 1.2
"""Log gain of a band, at most, either way: 10 dB."""


def mean_power(samples: Tensor, vocoder: Vocoder) -> Tensor:
    """Mean power of speech (time,) at the vocoder's rate, in its bands: (bands,), on the CPU.

    That of the loud windows less that of the faintest, which are the room and its noise; 0 in bands that are more noise than
    speech.
    """
    samples = F.pad(samples, (0, max(0, WINDOW - samples.shape[0]))).to(vocoder.window.device)
    spectra = torch.fft.rfft(samples.unfold(0, WINDOW, STEP) * vocoder.window)
    power = spectra.abs().square() @ (vocoder.spread / vocoder.spread.sum(1, keepdim=True)).t()
    level = power.sum(1)
    loud = power[level >= level.quantile(_LOUDEST) * 10 ** (-_LOUD_DB / 10)].mean(0)
    noise = power[level <= level.quantile(_FAINTEST)].mean(0)
    return torch.where(loud > 2 * noise, loud - noise, torch.zeros_like(loud)).cpu()


@torch.inference_mode()
def powers(codec: Codec, samples: Tensor, quantized: Tensor) -> Tensor:
    """Mean powers (2, bands) of a recording (time,), and of its copy from its latents (n, latent) as the codes hold them."""
    vocoder, frames = codec.decoder.vocoder, int(LONGEST_S * codec.config.sample_rate) // codec.config.hop
    copy, _ = codec.decoder(quantized[None, :frames].to(vocoder.window.device))
    return torch.stack([mean_power(samples[: frames * codec.config.hop], vocoder), mean_power(copy[0, LAG:], vocoder)])


def gain_of(wanted: Tensor, said: Tensor, vocoder: Vocoder) -> Tensor:
    """Log gains (bands,) that turn speech of one long-term spectrum into speech of another, as loud as it was.

    Args:
        wanted: (bands,) mean power of the one. What it lacks altogether is left as it is.
        said: (bands,) that of the other.
        vocoder: whose bands these are.
    """
    hz = _band_hz(vocoder)
    present = (wanted > wanted.max() * 10 ** (-_ABSENT_DB / 10)) & (said > 0) & (hz > LOWEST_HZ) & (hz < HIGHEST_HZ)
    if not present.any():
        return torch.zeros_like(wanted)
    present &= hz < hz[present].max() * _EDGE
    louder = wanted[present].sum() / said[present].sum()
    gain = torch.where(present, 0.5 * torch.log(wanted / (said * louder)), torch.zeros_like(wanted))
    smooth = F.avg_pool1d(F.pad(gain[None], (1, 1)), 3, stride=1)[0]
    return smooth.clamp(-_MOST, _MOST)


def _band_hz(vocoder: Vocoder) -> Tensor:
    """(bands,) their middles: equally spaced in mel from 0 to half the rate."""
    bands = vocoder.spread.shape[0]
    top = mel_of(torch.tensor(vocoder.sample_rate / 2))
    return 700.0 * (10.0 ** (torch.linspace(0, float(top), bands) / 2595.0) - 1.0)
