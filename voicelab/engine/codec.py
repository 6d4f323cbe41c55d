"""The neural codec: audio to a few integers a frame, and those integers back to audio, causally.

``decode(codes)`` is the whole contract: timbre, pitch and words are in the codes. The encoder looks at a log spectrum (of
reference audio, so it may look ahead); residual vector quantization (Zeghidour et al., SoundStream, 2021) makes the codes;
the decoder predicts F0 and the filters of a harmonic-plus-noise vocoder.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voicelab.engine.config import CodecConfig
from voicelab.engine.layers import CausalConv, ConvBlock, ConvStack, State
from voicelab.engine.vocoder import LAG, STEP, WINDOW, Vocoder, VocoderState, mel_of

_F0_BASE = 120.0
_FAINTEST, _LOUDEST = -14.0, 4.0
_SILENCE = -7.8
"""Log gain at which training's floor lies (features.FLOOR, and a little more): what is no louder is not rendered."""
_LONG = 2048
"""Samples of the encoder's long window, which resolves harmonics; its short one is the vocoder's."""


class Spectrum(nn.Module):
    """Samples → what the encoder sees: log mel bands in short windows, the lowest linear bins in long ones.

    A short window follows bursts and glides, a long one resolves harmonics, so it carries F0. Everything that falls into
    one code frame stands together: (batch, n * hop) → (batch, n, steps * mel_bands + steps / 2 * linear_bins).
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.short: Tensor
        self.long: Tensor
        self.mel: Tensor
        self.hop = config.hop
        self.linear_bins = config.linear_bins
        self.register_buffer("short", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("long", torch.hann_window(_LONG), persistent=False)
        self.register_buffer(
            "mel", mel_triangles(config.sample_rate, WINDOW, config.mel_bands, config.mel_top), persistent=False
        )

    def forward(self, samples: Tensor) -> Tensor:
        """Shapes as above."""
        batch, count = samples.shape[0], samples.shape[1] // self.hop
        mel = _magnitudes(samples, self.short, STEP) @ self.mel
        low = _magnitudes(samples, self.long, 2 * STEP)[..., 1 : self.linear_bins + 1]
        both = torch.cat([mel.reshape(batch, count, -1), low.reshape(batch, count, -1)], dim=-1)
        return (torch.log(both + 1e-4) + 6.0) / 3.0


def _magnitudes(samples: Tensor, window: Tensor, step: int) -> Tensor:
    """(batch, time) → (batch, time / step, bins): windows centred on their steps, 1 for a full-scale tone."""
    side = (window.shape[0] - step) // 2
    frames = F.pad(samples, (side, side)).unfold(1, window.shape[0], step)
    sizes: Tensor = torch.fft.rfft(frames * window).abs()
    return sizes * (4 / window.shape[0])


class Encoder(nn.Module):
    """Spectrum → latents: (batch, n, features) → (batch, n, latent)."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        steps, width = config.hop // STEP, config.width
        self.enter = nn.Linear(steps * config.mel_bands + steps // 2 * config.linear_bins, width)
        self.blocks = nn.ModuleList(ConvBlock(width, causal=False) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, config.latent)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Shapes as above."""
        x = self.enter(spectrum).transpose(1, 2)
        for block in self.blocks:
            x, _ = block(x)
        out: Tensor = self.leave(self.norm(x.transpose(1, 2)))
        return out


class Quantizer(nn.Module):
    """Residual vector quantization: each codebook codes what the ones before it left over."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.tables = nn.ParameterList(
            nn.Parameter(torch.randn(size, config.latent) * 0.1, requires_grad=False) for size in config.codebooks
        )

    def encode(self, latents: Tensor, beams: int = 4) -> Tensor:
        """(batch, n, latent) → codes (batch, n, codebooks), int64; the best of `beams` sums of entries."""
        flat = latents.flatten(0, -2)
        rows = torch.arange(flat.shape[0], device=flat.device)[:, None]
        rest, codes = flat[:, None], flat.new_zeros(flat.shape[0], 1, 0, dtype=torch.int64)
        for table in self.tables:
            distance = rest.square().sum(-1, keepdim=True) + (table * table).sum(1) - 2 * rest @ table.t()
            at = distance.flatten(1).topk(min(beams, distance[0].numel()), largest=False).indices
            source, code = at // table.shape[0], at % table.shape[0]
            rest = rest[rows, source] - table[code]
            codes = torch.cat([codes[rows, source], code[..., None]], dim=-1)
        return codes[:, 0].reshape(*latents.shape[:-1], len(self.tables))

    def decode(self, codes: Tensor) -> Tensor:
        """Codes (batch, n, codebooks) → (batch, n, latent)."""
        return torch.stack([table[codes[..., i]] for i, table in enumerate(self.tables)]).sum(0)


@dataclass(frozen=True)
class Filters:
    """What the decoder's network says of every vocoder step."""

    f0: Tensor
    """(batch, steps) Hz."""
    envelope: Tensor
    """(batch, steps, bands) log gains of both sources together."""
    voicing: Tensor
    """(batch, steps, bands) logits of the pulse train's share of the power."""

    @property
    def harmonic(self) -> Tensor:
        """(batch, steps, bands) log gains."""
        return (self._heard + 0.5 * F.logsigmoid(self.voicing)).clamp(min=_FAINTEST)

    @property
    def noise(self) -> Tensor:
        """(batch, steps, bands) log gains."""
        return (self._heard + 0.5 * F.logsigmoid(-self.voicing)).clamp(min=_FAINTEST)

    @property
    def _heard(self) -> Tensor:
        """The envelope without the floor under it."""
        share = torch.exp(2 * (_SILENCE - self.envelope)).clamp(max=1 - 1e-6)
        return self.envelope + 0.5 * torch.log1p(-share)


@dataclass(frozen=True)
class DecoderState:
    """What one stream of the decoder carries from piece to piece."""

    enter: Tensor
    coarse: State
    fine: State
    vocoder: VocoderState | None


class Decoder(nn.Module):
    """Latents → audio, a piece at a time or whole.

    The envelope is a linear map of the frame's latent (the principal components of envelopes, so that distances between
    latents are distances between envelopes) and what two stages of convolutions add to it.
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.bands = config.filter_bands
        self.steps = config.hop // STEP
        self.fine_width = config.fine_width
        self.linear = nn.Linear(config.latent, self.steps * config.filter_bands)
        self.enter = CausalConv(config.latent, config.width, 3)
        self.coarse = ConvStack(config.width, config.depth)
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, self.steps * config.fine_width)
        self.fine = ConvStack(config.fine_width, config.depth - 1)
        self.leave = nn.Linear(config.fine_width, 1 + 2 * config.filter_bands)
        self.vocoder = Vocoder(config.sample_rate, config.filter_bands)

    def filters(self, latents: Tensor, state: DecoderState | None = None) -> tuple[Filters, DecoderState]:
        """(batch, n, latent) → the vocoder's input for n frames; the state returned lacks the vocoder's part."""
        x, enter = self.enter(latents.transpose(1, 2), state and state.enter)
        x, coarse = self.coarse(x, state and state.coarse)
        x = self.up(self.norm(x.transpose(1, 2)))
        x = x.reshape(x.shape[0], -1, self.fine_width).transpose(1, 2)
        x, fine = self.fine(x, state and state.fine)
        y = self.leave(x.transpose(1, 2))
        base = self.linear(latents).reshape(*y.shape[:2], self.bands)
        f0 = _F0_BASE * torch.exp2(torch.clamp(y[..., 0], -1.5, 2.5))
        envelope = torch.clamp(base + y[..., 1 : 1 + self.bands], _FAINTEST, _LOUDEST)
        voicing = torch.clamp(y[..., 1 + self.bands :], -12.0, 12.0)
        return Filters(f0, envelope, voicing), DecoderState(enter, coarse, fine, state.vocoder if state else None)

    def forward(self, latents: Tensor, state: DecoderState | None = None) -> tuple[Tensor, DecoderState]:
        """(batch, n, latent) → (batch, n * hop) samples, behind the input by the vocoder's `LAG`, and the new state."""
        found, after = self.filters(latents, state)
        samples, vocoder = self.vocoder(found.f0, found.harmonic, found.noise, after.vocoder)
        return samples, DecoderState(after.enter, after.coarse, after.fine, vocoder)


class Codec(nn.Module):
    """Encoder, quantizer and decoder of one checkpoint."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.spectrum = Spectrum(config)
        self.encoder = Encoder(config)
        self.quantizer = Quantizer(config)
        self.decoder = Decoder(config)

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Audio (batch, time) at the codec's rate → codes (batch, n, codebooks); the end is padded to a whole frame."""
        return self.quantizer.encode(self.latents(samples))

    @torch.inference_mode()
    def latents(self, samples: Tensor) -> Tensor:
        """Audio (batch, time) → what the quantizer is given, (batch, n, latent)."""
        samples = F.pad(samples, (0, -samples.shape[1] % self.config.hop))
        out: Tensor = self.encoder(self.spectrum(samples))
        return out

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes (batch, n, codebooks) → audio (batch, n * hop), the whole at once."""
        return DecoderStream(self).feed(codes, last=True)


class DecoderStream:
    """One stream of codes becoming audio: pieces of it, the last told as such; together they equal `Codec.decode`."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._state: DecoderState | None = None
        self._last: Tensor | None = None

    @torch.inference_mode()
    def feed(self, codes: Tensor, last: bool = False) -> Tensor:
        """Codes (batch, n, codebooks) → the samples they complete (batch, …), float32.

        The last piece, which may be empty, completes all: its last frame is held while it fades out of the overlap.
        """
        latents = self._codec.quantizer.decode(codes)
        if last:
            final = latents[:, -1:] if codes.shape[1] else self._last
            if final is None:
                return latents.new_zeros(codes.shape[0], 0)
            latents = torch.cat([latents, final], dim=1)
        elif codes.shape[1] == 0:
            return latents.new_zeros(codes.shape[0], 0)
        first = self._state is None
        samples, self._state = self._codec.decoder(latents, self._state)
        self._last = latents[:, -1:]
        begin = LAG if first else 0
        made: Tensor = samples[:, begin : codes.shape[1] * self._codec.config.hop + LAG if last else None]
        return made


def mel_triangles(rate: int, window: int, bands: int, top: float) -> Tensor:
    """(bins, bands) triangles of unit sum for a `window` of samples, from 0 to `top` Hz, none narrower than a bin."""
    hz = torch.linspace(0, rate / 2, window // 2 + 1)
    edges = torch.linspace(0, float(mel_of(torch.tensor(top))), bands + 2)
    corners = 700 * (10 ** (edges / 2595) - 1)
    reach = torch.clamp((corners[2:] - corners[:-2]) / 2, min=float(hz[1]))
    triangles = torch.clamp(1 - (hz[:, None] - corners[1:-1]).abs() / reach, min=0)
    return triangles / triangles.sum(0)
