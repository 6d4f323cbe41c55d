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
from voicelab.engine.vocoder import LAG, STEP, Vocoder, VocoderState, mel_of

FINE = 4
"""Fine frames in a code frame: the rate of the encoder's spectrum and of the decoder's second stage."""
_F0_BASE = 120.0
_SPECTRUM_WINDOW = 2048


class Spectrum(nn.Module):
    """Samples → what the encoder sees: log mel bands and the lowest bins of the linear log spectrum.

    Shapes: (batch, n * hop) → (batch, mel_bands + linear_bins, n * FINE).
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.window: Tensor
        self.mel: Tensor
        self.step = config.hop // FINE
        self.linear_bins = config.linear_bins
        self.register_buffer("window", torch.hann_window(_SPECTRUM_WINDOW), persistent=False)
        self.register_buffer("mel", _mel_matrix(config), persistent=False)

    def forward(self, samples: Tensor) -> Tensor:
        """Shapes as above."""
        side = (_SPECTRUM_WINDOW - self.step) // 2
        frames = F.pad(samples, (side, side)).unfold(1, _SPECTRUM_WINDOW, self.step)
        magnitude = torch.fft.rfft(frames * self.window).abs() * (2 / _SPECTRUM_WINDOW)
        mel = torch.log(magnitude @ self.mel + 1e-4)
        low = torch.log(magnitude[..., 1 : self.linear_bins + 1] + 1e-4)
        return (torch.cat([mel, low], dim=-1).transpose(1, 2) + 6.0) / 3.0


class Encoder(nn.Module):
    """Spectrum → latents: (batch, bands, n * FINE) → (batch, n, latent)."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        fine, width = config.fine_width, config.width
        self.enter = nn.Conv1d(config.mel_bands + config.linear_bins, fine, 5, padding=2)
        self.fine = nn.ModuleList(ConvBlock(fine, causal=False) for _ in range(config.depth - 1))
        self.down = nn.Conv1d(fine, width, FINE, stride=FINE)
        self.coarse = nn.ModuleList(ConvBlock(width, causal=False) for _ in range(config.depth - 1))
        self.leave = nn.Linear(width, config.latent)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Shapes as above."""
        x = self.enter(spectrum)
        for block in self.fine:
            x, _ = block(x)
        x = self.down(x)
        for block in self.coarse:
            x, _ = block(x)
        out: Tensor = self.leave(x.transpose(1, 2))
        return out


class Quantizer(nn.Module):
    """Residual vector quantization: each codebook codes what the ones before it left over."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.tables = nn.ParameterList(
            nn.Parameter(torch.randn(size, config.latent) * 0.1, requires_grad=False) for size in config.codebooks
        )

    def encode(self, latents: Tensor) -> Tensor:
        """(batch, n, latent) → codes (batch, n, codebooks), int64."""
        rest, codes = latents, []
        for table in self.tables:
            distance = (table * table).sum(1) - 2 * rest @ table.t()
            chosen = distance.argmin(-1)
            codes.append(chosen)
            rest = rest - table[chosen]
        return torch.stack(codes, dim=-1)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes (batch, n, codebooks) → (batch, n, latent)."""
        return torch.stack([table[codes[..., i]] for i, table in enumerate(self.tables)]).sum(0)


@dataclass(frozen=True)
class Filters:
    """What the decoder's network says of every vocoder step."""

    f0: Tensor
    """(batch, steps) Hz."""
    harmonic: Tensor
    """(batch, steps, bands) log gains."""
    noise: Tensor
    """(batch, steps, bands) log gains."""


@dataclass(frozen=True)
class DecoderState:
    """What one stream of the decoder carries from piece to piece."""

    enter: Tensor
    coarse: State
    fine: State
    vocoder: VocoderState | None


class Decoder(nn.Module):
    """Latents → audio, a piece at a time or whole."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.bands = config.filter_bands
        self.fine_width = config.fine_width
        self.per_fine = config.hop // FINE // STEP
        self.enter = CausalConv(config.latent, config.width, 3)
        self.coarse = ConvStack(config.width, config.depth)
        self.up = nn.Linear(config.width, FINE * config.fine_width)
        self.fine = ConvStack(config.fine_width, config.depth)
        self.norm = nn.LayerNorm(config.fine_width)
        self.leave = nn.Linear(config.fine_width, self.per_fine * (1 + 2 * config.filter_bands))
        self.vocoder = Vocoder(config.sample_rate, config.filter_bands)

    def filters(self, latents: Tensor, state: DecoderState | None = None) -> tuple[Filters, DecoderState]:
        """(batch, n, latent) → the vocoder's input for n frames; the state returned lacks the vocoder's part."""
        x, enter = self.enter(latents.transpose(1, 2), state and state.enter)
        x, coarse = self.coarse(x, state and state.coarse)
        x = self.up(x.transpose(1, 2))
        x = x.reshape(x.shape[0], -1, self.fine_width).transpose(1, 2)
        x, fine = self.fine(x, state and state.fine)
        y = self.leave(self.norm(x.transpose(1, 2)))
        y = y.reshape(y.shape[0], -1, 1 + 2 * self.bands)
        f0 = _F0_BASE * torch.exp2(torch.clamp(y[..., 0], -1.5, 2.5))
        gains = torch.clamp(y[..., 1:] - 4.0, -14.0, 4.0)
        return Filters(f0, gains[..., : self.bands], gains[..., self.bands :]), DecoderState(
            enter, coarse, fine, state.vocoder if state else None
        )

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
        stream = DecoderStream(self)
        return torch.cat([stream.feed(codes), stream.finish()], dim=1)


class DecoderStream:
    """One stream of codes becoming audio: `feed` pieces, then `finish`; together they equal `Codec.decode` of the whole."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._state: DecoderState | None = None
        self._last: Tensor | None = None

    @torch.inference_mode()
    def feed(self, codes: Tensor) -> Tensor:
        """Codes (batch, n, codebooks) → the samples they complete (batch, …), float32."""
        if codes.shape[1] == 0:
            return codes.new_zeros(codes.shape[0], 0, dtype=torch.float32)
        latents = self._codec.quantizer.decode(codes)
        first = self._state is None
        samples, self._state = self._codec.decoder(latents, self._state)
        self._last = latents[:, -1:]
        made: Tensor = samples[:, LAG:] if first else samples
        return made

    @torch.inference_mode()
    def finish(self) -> Tensor:
        """The samples still open, (batch, LAG); the last frame is held while they fade out of the overlap."""
        if self._last is None:
            return torch.zeros(1, 0)
        samples, _ = self._codec.decoder(self._last, self._state)
        self._state = self._last = None
        open_still: Tensor = samples[:, :LAG]
        return open_still


def _mel_matrix(config: CodecConfig) -> Tensor:
    """(bins, mel_bands) triangles of unit sum, 0 to `mel_top`."""
    hz = torch.linspace(0, config.sample_rate / 2, _SPECTRUM_WINDOW // 2 + 1)
    edges = torch.linspace(0, float(mel_of(torch.tensor(config.mel_top))), config.mel_bands + 2)
    at = mel_of(hz)[:, None]
    rise = (at - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - at) / (edges[2:] - edges[1:-1])
    triangles = torch.clamp(torch.minimum(rise, fall), min=0)
    return triangles / torch.clamp(triangles.sum(0), min=1e-6)
