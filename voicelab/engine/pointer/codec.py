"""The neural codec: encodes audio as a few integers per frame, and decodes these to audio causally.

The codes carry timbre, pitch and words; ``decode(codes)`` needs nothing else. The encoder reads the log spectrum of
reference audio, with look-ahead; residual vector quantization (Zeghidour et al., SoundStream, 2021) converts it to codes.
The decoder predicts F0 and the filters of a vocoder, which filters a pulse train and noise in the short-time Fourier domain.

The convolutions stream: decoding chunk by chunk gives the same samples as decoding at once. A streaming module keeps no
state: it reads its state from a `Carry` and appends the state for the next chunk, so one module serves any number of streams.

The vocoder is harmonic-plus-noise synthesis (Stylianou 2001; in networks: Engel et al., DDSP, 2020) with a minimum-phase
harmonic filter; only the resonance of the glottal flow has maximum phase, as in speech. The vocoder has no learned
parameters and is differentiable. The pulse train has a closed form (the Dirichlet kernel), so its cost does not grow with
the number of harmonics. Time is counted in steps of `STEP` samples. The filter of step j covers the window that ends with
step j, so the vocoder is causal. Samples are complete `LAG` samples after their step, which is the latency of the
overlap-add.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from voicelab.engine.core.decoding import Samples
from voicelab.engine.core.layers import Carry, Conv, LayerGroup, State, Unfilled, filled
from voicelab.engine.core.sequence import Codes
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.config import CodecConfig
from voicelab.engine.pointer.numpy_codec import (
    F0_BASE,
    FAINTEST,
    GLOTTAL_DAMPING,
    LAG,
    LONG_WINDOW,
    LOUDEST,
    NOISE_STEPS,
    SILENCE,
    STEP,
    WINDOW,
    cepstrum_fold,
    frequencies,
    hann,
    mel_triangles,
    noise_spectra,
    spread,
)


def _register_constants(module: nn.Module, **arrays: NDArray[Any]) -> None:
    """Register constants that move with the module and are not saved in a checkpoint."""
    for name, array in arrays.items():
        module.register_buffer(name, torch.tensor(array), persistent=False)


class ConvBlock(nn.Module):
    """A ConvNeXt block over time: depthwise convolution, then a pointwise MLP, added to the input.

    Shapes: (batch, channels, time) → (batch, channels, time). If there is no `Carry`, as in the
    encoder, both sides are padded.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = Conv(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, 3 * channels)
        self.narrow = nn.Linear(3 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor, carry: Carry | None) -> Tensor:
        """Apply the block; the class describes the shapes."""
        half = self.depthwise.context // 2
        y: Tensor = self.depthwise.conv(F.pad(x, (half, half))) if carry is None else self.depthwise(x, carry)
        y = self.narrow(F.gelu(self.widen(self.norm(y.transpose(1, 2)))))
        return x + (self.scale * y).transpose(1, 2)


class Vocoder(nn.Module):
    """Harmonic-plus-noise vocoder with `bands` filter gains per step for each of its two sources."""

    def __init__(self, sample_rate: int, bands: int) -> None:
        super().__init__()
        self.window: Tensor
        self.spread: Tensor
        self.noise: Tensor
        self.fold: Tensor
        self.hz: Tensor
        self.sample_rate = sample_rate
        _register_constants(
            self,
            window=hann(WINDOW),
            spread=spread(sample_rate, bands),
            noise=noise_spectra(),
            fold=cepstrum_fold(),
            hz=frequencies(sample_rate),
        )

    def forward(self, f0: Tensor, harmonic: Tensor, noise: Tensor, carry: Carry) -> Tensor:
        """Render the next steps of a stream.

        Args:
            f0: (batch, steps) Hz at the end of each step, positive.
            harmonic: (batch, steps, bands) natural log gains of the pulse train's filter.
            noise: (batch, steps, bands) natural log gains of the noise's filter.
            carry: the phase and F0 at the end of the previous chunk, its latest pulses and overlap-add tail, and the number
                of steps so far, which selects the segment of noise.

        Returns:
            (batch, steps * STEP) samples, delayed by `LAG`: the first `LAG` samples of a stream precede its first frame.
        """
        batch, steps = f0.shape
        source = carry.join(self._pulses(f0, carry), LAG)
        spectra = torch.fft.rfft(source.unfold(1, WINDOW, STEP) * self.window)
        before = carry.positions(steps, f0.device)[:, None]
        indices = (torch.arange(steps, device=f0.device) + before) % NOISE_STEPS
        hiss = torch.view_as_real(self.noise[indices]) * torch.exp(noise @ self.spread)[..., None]
        mixed = spectra * self._response(harmonic @ self.spread, f0) + torch.view_as_complex(hiss)
        frames = torch.fft.irfft(mixed, n=WINDOW) * (self.window / 1.5)
        summed = _overlap_add(frames, carry.past(lambda: f0.new_zeros(batch, LAG)))
        carry.after.append(summed[:, steps * STEP :])
        return summed[:, : steps * STEP]

    def _pulses(self, f0: Tensor, carry: Carry) -> Tensor:
        """Compute the pulse train of F0 (batch, steps): (batch, steps * STEP) samples of unit power."""
        before = torch.cat([carry.past(lambda: f0[:, :1]), f0[:, :-1]], dim=1)
        carry.after.append(f0[:, -1:])
        ramp = torch.arange(1, STEP + 1, device=f0.device, dtype=f0.dtype) / STEP
        hz = (before[..., None] + (f0 - before)[..., None] * ramp).flatten(1)
        phase = carry.past(lambda: f0.new_zeros(len(f0), 1, dtype=torch.float64))
        cycles = phase + torch.cumsum(hz.double() / self.sample_rate, dim=1)
        carry.after.append(cycles[:, -1:] % 1.0)
        angle = (2 * math.pi * (cycles % 1.0)).to(f0.dtype)
        # The top harmonic fades in below the Nyquist frequency: a whole number of harmonics would click when F0 glides.
        harmonics = self.sample_rate / 2 / hz
        harmonic_count = torch.floor(harmonics)
        below = torch.sin(angle / 2)
        near = below.abs() < 1e-4
        kernel = (
            torch.sin((harmonic_count + 0.5) * angle) / (2 * torch.where(near, torch.ones_like(below), below)) - 0.5
        )
        pulses = torch.where(near, harmonic_count, kernel) + (harmonics - harmonic_count) * torch.cos(
            (harmonic_count + 1) * angle
        )
        return pulses * 2 * torch.sqrt(hz / self.sample_rate)

    def _response(self, log_gain: Tensor, f0: Tensor) -> Tensor:
        """Compute the frequency response for log gains: minimum phase (Oppenheim and Schafer, ch. 13) plus glottal phase."""
        # The glottal flow rises slowly and ends abruptly: a resonance of maximum phase (Doval, d'Alessandro, Henrich, 2006).
        cepstrum = torch.fft.irfft(log_gain.to(torch.float32), n=WINDOW)
        octave = self.hz / f0[..., None]
        turned = 2 * torch.atan2(2 * GLOTTAL_DAMPING * octave, 1 - octave.square())
        phase = torch.fft.rfft(cepstrum * self.fold).imag + turned
        gain = torch.exp(log_gain)
        # Composed of its parts, because torch's complex exponential takes nine times as long.
        return torch.complex(gain * torch.cos(phase), gain * torch.sin(phase))


def _overlap_add(frames: Tensor, tail: Tensor) -> Tensor:
    """Add frames (batch, steps, WINDOW) and the tail (batch, LAG) into (batch, steps * STEP + LAG)."""
    batch, steps, _ = frames.shape
    hops = WINDOW // STEP
    out = frames.new_zeros(batch, steps + hops - 1, STEP)
    for hop in range(hops):
        out[:, hop : hop + steps] += frames[..., hop * STEP : (hop + 1) * STEP]
    out = out.flatten(1)
    return torch.cat([out[:, :LAG] + tail, out[:, LAG:]], dim=1)


class EncoderSpectrum(nn.Module):
    """Features of samples for the encoder: log mel bands in short windows, and the lowest linear bins in long windows.

    A short window follows bursts and glides. A long window resolves harmonics and therefore carries F0. All features of one
    code frame are concatenated: (batch, n * hop) → (batch, n, steps * mel_bands + steps / 2 * linear_bins).
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.short: Tensor
        self.long: Tensor
        self.mel: Tensor
        self.hop = config.hop
        self.linear_bins = config.linear_bins
        mel = mel_triangles(config.sample_rate, WINDOW, config.mel_bands, config.mel_top)
        _register_constants(self, short=hann(WINDOW), long=hann(LONG_WINDOW), mel=mel)

    def forward(self, samples: Tensor) -> Tensor:
        """Compute the features; the class describes the shapes."""
        batch, count = samples.shape[0], samples.shape[1] // self.hop
        mel = _magnitudes(samples, self.short, STEP) @ self.mel
        low = _magnitudes(samples, self.long, 2 * STEP)[..., 1 : self.linear_bins + 1]
        features = torch.cat([mel.reshape(batch, count, -1), low.reshape(batch, count, -1)], dim=-1)
        return (torch.log(features + 1e-4) + 6.0) / 3.0


def _magnitudes(samples: Tensor, window: Tensor, step: int) -> Tensor:
    """Return magnitudes (batch, time / step, bins) of samples (batch, time): centered windows, 1 for a full-scale tone."""
    side = (window.shape[0] - step) // 2
    frames = F.pad(samples, (side, side)).unfold(1, window.shape[0], step)
    sizes: Tensor = torch.fft.rfft(frames * window).abs()
    return sizes * (4 / window.shape[0])


class Encoder(nn.Module):
    """Encoder of the features of `EncoderSpectrum` to latents: (batch, n, features) → (batch, n, latent)."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        steps, width = config.hop // STEP, config.width
        self.enter = nn.Linear(steps * config.mel_bands + steps // 2 * config.linear_bins, width)
        self.blocks = nn.ModuleList(ConvBlock(width) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, config.latent)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Encode features; the class describes the shapes."""
        x = self.enter(spectrum).transpose(1, 2)
        for block in self.blocks:
            x = block(x, None)
        return cast("Tensor", self.leave(self.norm(x.transpose(1, 2))))


class Quantizer(nn.Module):
    """Residual vector quantization: each codebook encodes the residual of the codebooks before it."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.tables = nn.ParameterList(
            nn.Parameter(torch.randn(size, config.latent) * 0.1, requires_grad=False) for size in config.codebooks
        )

    def encode(self, latents: Tensor, beams: int = 4) -> Tensor:
        """Quantize latents (batch, n, latent) to int64 codes (batch, n, codebooks) by a beam search of width `beams`."""
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
        """Sum the codebook entries of codes (batch, n, codebooks) to latents (batch, n, latent)."""
        return torch.stack([table[codes[..., i]] for i, table in enumerate(self.tables)]).sum(0)


@dataclass(frozen=True)
class Filters:
    """Vocoder parameters predicted by the decoder, per vocoder step."""

    f0: Tensor
    """(batch, steps) Hz."""
    envelope: Tensor
    """(batch, steps, bands) log gains of the sum of both sources."""
    voicing: Tensor
    """(batch, steps, bands) logits of the pulse train's share of the power."""
    gain: Tensor | None = None
    """(bands,) log gains of the speaker, added to both sources: see `speakers`."""

    @property
    def harmonic(self) -> Tensor:
        """Log gains of the pulse train's filter, shape (batch, steps, bands)."""
        return (self._clean_envelope + 0.5 * F.logsigmoid(self.voicing)).clamp(min=FAINTEST)

    @property
    def noise(self) -> Tensor:
        """Log gains of the noise's filter, shape (batch, steps, bands)."""
        return (self._clean_envelope + 0.5 * F.logsigmoid(-self.voicing)).clamp(min=FAINTEST)

    @property
    def _clean_envelope(self) -> Tensor:
        """Envelope without its noise floor, sharpened because bands and the synthesis window smooth it."""
        average = F.avg_pool1d(F.pad(self.envelope, (1, 1), mode="replicate"), 3, stride=1)
        sharp = 2 * self.envelope - average
        share = torch.exp(2 * (SILENCE - sharp)).clamp(max=1 - 1e-6)
        clean = sharp + 0.5 * torch.log1p(-share)
        return (clean if self.gain is None else clean + self.gain).clamp(max=LOUDEST)


class Decoder(nn.Module):
    """Decoder of latents to audio, chunk by chunk or at once.

    The spectral envelope is the sum of a linear function of the frame's latent and the output of two stages of convolutions.
    Latents are principal components of envelopes, so distances between latents are distances between envelopes.
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.bands = config.filter_bands
        self.steps = config.hop // STEP
        self.fine_width = config.fine_width
        self.linear = nn.Linear(config.latent, self.steps * config.filter_bands)
        self.enter = Conv(config.latent, config.width, 3)
        self.coarse = LayerGroup("blocks", (ConvBlock(config.width) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, self.steps * config.fine_width)
        self.fine = LayerGroup("blocks", (ConvBlock(config.fine_width) for _ in range(config.depth - 1)))
        self.leave = nn.Linear(config.fine_width, 1 + 2 * config.filter_bands)
        self.vocoder = Vocoder(config.sample_rate, config.filter_bands)

    def filters(self, latents: Tensor, carry: Carry, gain: Tensor | None = None) -> Filters:
        """Predict vocoder parameters from latents (batch, n, latent); `gain` is the speaker's gain (see `Filters`)."""
        x = self.coarse(self.enter(latents.transpose(1, 2), carry), carry)
        x = self.up(self.norm(x.transpose(1, 2)))
        x = x.reshape(x.shape[0], -1, self.fine_width).transpose(1, 2)
        y = self.leave(self.fine(x, carry).transpose(1, 2))
        base = self.linear(latents).reshape(*y.shape[:2], self.bands)
        f0 = F0_BASE * torch.exp2(torch.clamp(y[..., 0], -1.5, 2.5))
        envelope = torch.clamp(base + y[..., 1 : 1 + self.bands], FAINTEST, LOUDEST)
        voicing = torch.clamp(y[..., 1 + self.bands :], -12.0, 12.0)
        return Filters(f0, envelope, voicing, gain)

    def forward(self, latents: Tensor, carry: Carry, gain: Tensor | None = None) -> Tensor:
        """Decode latents (batch, n, latent) to samples (batch, n * hop), delayed by `LAG`; `gain` is the speaker's gain."""
        filters = self.filters(latents, carry, gain)
        return cast("Tensor", self.vocoder(filters.f0, filters.harmonic, filters.noise, carry))


class Codec(nn.Module):
    """Encoder, quantizer and decoder of one checkpoint."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.spectrum = EncoderSpectrum(config)
        self.encoder = Encoder(config)
        self.quantizer = Quantizer(config)
        self.decoder = Decoder(config)

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Encode audio (batch, time) at the codec's rate to codes (batch, n, codebooks); the end is zero-padded."""
        return self.quantizer.encode(self.latents(samples))

    @torch.inference_mode()
    def latents(self, samples: Tensor) -> Tensor:
        """Encode audio (batch, time) to latents before quantization, (batch, n, latent)."""
        samples = F.pad(samples, (0, -samples.shape[1] % self.config.hop))
        return cast("Tensor", self.encoder(self.spectrum(samples)))

    @torch.inference_mode()
    def decode(self, codes: Tensor, gain: Tensor | None = None) -> Tensor:
        """Decode codes (batch, n, codebooks) to audio (batch, n * hop) at once; `gain` is the speaker's gain."""
        return DecoderStream(self, gain).feed(codes, final=True)


class DecoderStream:
    """Incremental decoder of one stream; its concatenated chunks equal the result of `Codec.decode`."""

    def __init__(self, codec: Codec, gain: Tensor | None = None) -> None:
        self._codec, self._gain = codec, gain
        self._state: State | None = None
        self._last: Tensor | None = None

    @torch.inference_mode()
    def feed(self, codes: Tensor, final: bool = False) -> Tensor:
        """Decode codes (batch, n, codebooks) to the float32 samples (batch, …) that they complete.

        The final block, which may be empty, flushes the stream: the last frame is repeated to complete its overlap-add.
        """
        latents = self._codec.quantizer.decode(codes)
        if final:
            tail = latents[:, -1:] if codes.shape[1] else self._last
            if tail is None:
                return latents.new_zeros(codes.shape[0], 0)
            latents = torch.cat([latents, tail], dim=1)
        elif codes.shape[1] == 0:
            return latents.new_zeros(codes.shape[0], 0)
        begin, carry = LAG if self._state is None else 0, Carry([self._state])
        samples = self._codec.decoder(latents, carry, self._gain)
        self._state, self._last = tuple(carry.after), latents[:, -1:]
        return cast("Tensor", samples[:, begin : codes.shape[1] * self._codec.config.hop + LAG if final else None])


class TorchCodec:
    """Implementation of `numpy_codec.SpeechCodec` by a torch module, on the module's device."""

    def __init__(self, module: Codec) -> None:
        self.module, self.config = module, module.config

    @classmethod
    def of(cls, config: CodecConfig, tensors: Mapping[str, Floats], device: str) -> Self:
        """Build the codec from the tensors of a checkpoint, on a device."""
        with Unfilled():
            module = Codec(config)
        return cls(filled(module, tensors, "codec.").to(device))

    def latents(self, samples: Samples) -> Floats:
        """Encode audio (time,) to latents (n, latent)."""
        return _array(self.module.latents(self._tensor(samples)[None])[0])

    def quantize(self, latents: Floats) -> Codes:
        """Quantize latents (n, latent) to codes (n, codebooks)."""
        codes: Codes = self.module.quantizer.encode(self._tensor(latents)[None])[0].cpu().numpy()
        return codes

    def dequantize(self, codes: Codes) -> Floats:
        """Sum the codebook entries of codes (n, codebooks) to latents (n, latent)."""
        return _array(self.module.quantizer.decode(self._tensor(codes)))

    def open(self, gain: Floats | None = None) -> TorchStream:
        """Open a decoding stream with the gain of a speaker."""
        return TorchStream(self.module, None if gain is None else self._tensor(gain))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.module.decoder.leave.weight.device)


class TorchStream:
    """Implementation of `numpy_codec.Stream` by a torch module, on the module's device."""

    def __init__(self, module: Codec, gain: Tensor | None) -> None:
        self._module, self._gain, self._stream = module, gain, DecoderStream(module, gain)

    def feed(self, codes: Codes, final: bool = False) -> Samples:
        """Decode codes (n, codebooks) to the samples that they complete; the final block flushes the stream."""
        device = self._module.decoder.leave.weight.device
        return _array(self._stream.feed(torch.from_numpy(codes)[None].to(device), final)[0])

    @torch.inference_mode()
    def render(self, latents: Floats) -> Samples:
        """Decode latents (n, latent) to samples (n * hop,), delayed by `LAG`."""
        device = self._module.decoder.leave.weight.device
        return _array(self._module.decoder(torch.from_numpy(latents)[None].to(device), Carry([None]), self._gain)[0])


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.cpu().numpy()
    return array
