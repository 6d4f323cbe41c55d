"""The codec on a CPU: the arithmetic of `codec.Codec` for inference in numpy, one recording or stream at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from voicelab.engine.core.decoding import CodeBlock, Samples
from voicelab.engine.core.sequence import Codes
from voicelab.engine.pointer.arrays import Floats, Multiply, Weights, affine, gelu, layer_norm, product
from voicelab.engine.pointer.config import CodecConfig
from voicelab.engine.pointer.rows import random_numbers

STEP = 256
WINDOW = 1024
LAG = WINDOW - STEP
"""Delay of the output in samples."""
NOISE_STEPS = 344
F0_BASE = 120.0
FAINTEST, LOUDEST = -14.0, 4.0
SILENCE = -7.8
"""Log gain of the noise floor that training added; anything quieter is not rendered."""
GLOTTAL_DAMPING = 0.6
"""Damping of the glottal flow's resonance, which is centered on F0."""
LONG_WINDOW = 2048
"""Samples of the encoder's long window, which resolves harmonics; the short window is that of the vocoder."""
_KERNEL = 7


def hann(size: int) -> Floats:
    """Compute a periodic Hann window."""
    window: Floats = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)
    return window


def mel_of(hz: Any) -> Any:
    """Convert Hz to mel by O'Shaughnessy's formula, 2595 log10(1 + f/700)."""
    return 2595.0 * np.log10(1.0 + hz / 700.0)


@cache
def frequencies(sample_rate: int) -> Floats:
    """Return the frequencies (bins,) of the vocoder's window, in Hz."""
    return np.linspace(0, sample_rate / 2, WINDOW // 2 + 1).astype(np.float32)


@cache
def spread(sample_rate: int, bands: int) -> Floats:
    """Compute the (bands, bins) matrix that interpolates gains at mel-spaced frequencies (0 to Nyquist) to spectral bins."""
    mel = mel_of(np.linspace(0, sample_rate / 2, WINDOW // 2 + 1))
    position = mel / mel[-1] * (bands - 1)
    matrix: Floats = np.clip(1 - np.abs(position - np.arange(bands)[:, None]), 0, None).astype(np.float32)
    return matrix


@cache
def widening(sample_rate: int, bands: int) -> Multiply:
    """Return a function that interpolates gains (n, bands) to spectral bins (n, bins) with the matrix of `spread`."""
    return product(spread(sample_rate, bands).T)


@cache
def mel_triangles(rate: int, window: int, bands: int, top: float) -> Floats:
    """Compute triangular mel filters (bins, bands) from 0 to `top` Hz: sum 1, at least a bin wide, `window` in samples."""
    hz = np.linspace(0, rate / 2, window // 2 + 1)
    corners = 700 * (10 ** (np.linspace(0, mel_of(top), bands + 2) / 2595) - 1)
    reach = np.maximum((corners[2:] - corners[:-2]) / 2, hz[1])
    triangles = np.clip(1 - np.abs(hz[:, None] - corners[1:-1]) / reach, 0, None)
    out: Floats = (triangles / triangles.sum(0)).astype(np.float32)
    return out


@cache
def noise_spectra() -> NDArray[np.complex64]:
    """Compute the windowed spectra (NOISE_STEPS, bins) of the vocoder's periodic noise, from ``torch.randn`` with seed 1."""
    uniform = random_numbers(1)(NOISE_STEPS * STEP).reshape(-1, 2, 8)
    radius, angle = np.sqrt(-2 * np.log(1 - uniform[:, 0])), np.float32(2 * np.pi) * uniform[:, 1]
    noise = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
    frames = sliding_window_view(np.concatenate([noise, noise[:LAG]]), WINDOW)[::STEP]
    return np.fft.rfft(frames * hann(WINDOW)).astype(np.complex64)


@cache
def cepstrum_fold() -> Floats:
    """Compute the weights (WINDOW,) that convert a cepstrum to the cepstrum of the minimum-phase response."""
    fold = np.zeros(WINDOW, np.float32)
    fold[[0, WINDOW // 2]] = 1
    fold[1 : WINDOW // 2] = 2
    return fold


class _ConvBlock:
    """A ConvNeXt block over time; see codec.ConvBlock. Shapes: (time, channels) → (time, channels)."""

    def __init__(self, weights: Weights, channels: int) -> None:
        self._taps = weights.take("depthwise.conv.weight", channels, 1, _KERNEL)[:, 0].T.copy()
        self._bias = weights.take("depthwise.conv.bias", channels)
        self._norm = layer_norm(weights.under("norm."), channels)
        self._widen = affine(weights.under("widen."), 3 * channels, channels)
        self._narrow = affine(weights.under("narrow."), channels, 3 * channels)
        self._scale = weights.take("scale", channels)

    def __call__(self, x: Floats, past: Floats, future: int = 0) -> Floats:
        """Apply the block to x, preceded by `past` (steps, channels) and followed by `future` steps of zeros."""
        padded = np.concatenate([past, x, np.zeros((future, x.shape[1]), np.float32)])
        y = np.empty_like(x)
        y[:] = self._bias
        for tap, weight in enumerate(self._taps):
            y += padded[tap : tap + len(x)] * weight
        out: Floats = x + self._scale * self._narrow(gelu(self._widen(self._norm(y))))
        return out


@dataclass(frozen=True)
class _Filters:
    """Vocoder parameters per step; see codec.Filters."""

    f0: Floats
    envelope: Floats
    voicing: Floats
    gain: Floats | None

    def sources(self) -> tuple[Floats, Floats]:
        """Compute the log gains (steps, bands) of the pulse train's filter and of the noise's."""
        padded = np.pad(self.envelope, ((0, 0), (1, 1)), mode="edge")
        sharp = 2 * self.envelope - (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3
        clean = sharp + np.float32(0.5) * np.log1p(-np.minimum(np.exp(2 * (SILENCE - sharp)), np.float32(1 - 1e-6)))
        clean = np.minimum(clean if self.gain is None else clean + self.gain, LOUDEST)
        softplus = np.logaddexp(0, self.voicing)  # -log sigmoid(-voicing)
        noise = np.maximum(clean - np.float32(0.5) * softplus, FAINTEST)
        return np.maximum(clean + np.float32(0.5) * (self.voicing - softplus), FAINTEST), noise


class NumpyStream:
    """Incremental decoder of one stream; its concatenated chunks equal the audio decoded at once.

    Args:
        decoder: codec that has the weights.
        gain: (bands,) log gains of the speaker, added to both sources.
    """

    def __init__(self, decoder: NumpyCodec, gain: Floats | None = None) -> None:
        self._codec, self._gain = decoder, gain
        config = decoder.config
        coarse, fine = ([np.zeros((_KERNEL - 1, n), np.float32)] for n in (config.width, config.fine_width))
        self._pasts = [np.zeros((2, config.latent), np.float32), *coarse * config.depth, *fine * (config.depth - 1)]
        self._begun, self._last = False, np.zeros((0, config.latent), np.float32)
        self._f0: Floats | None = None
        self._phase, self._steps = 0.0, 0
        self._source, self._tail = np.zeros(LAG, np.float32), np.zeros(LAG, np.float32)

    def feed(self, codes: Codes, final: bool = False) -> Samples:
        """Decode codes (n, codebooks) to the samples that they complete.

        The final block, which may be empty, flushes the stream: the last frame is repeated to complete its overlap-add.
        """
        latents = self._codec.dequantize(codes)
        if final:
            latents = np.concatenate([latents, latents[-1:] if len(codes) else self._last])
        if not len(latents):
            return np.zeros(0, np.float32)
        begin, self._begun, self._last = 0 if self._begun else LAG, True, latents[-1:]
        return self.render(latents)[begin : len(codes) * self._codec.config.hop + LAG if final else None]

    def render(self, latents: Floats) -> Samples:
        """Decode latents (n, latent) to samples (n * hop,), delayed by `LAG`."""
        with np.errstate(all="ignore"):
            filters = self._codec.filters(latents, self._pasts, self._gain)
            return self._vocode(filters.f0, *filters.sources())

    def _vocode(self, f0: Floats, harmonic: Floats, noise: Floats) -> Samples:
        """Render vocoder steps to samples; see codec.Vocoder."""
        config, window, steps = self._codec.config, hann(WINDOW), len(f0)
        widen = widening(config.sample_rate, config.filter_bands)
        source = np.concatenate([self._source, self._pulses(f0)])
        self._source = source[-LAG:]
        spectra = np.fft.rfft(sliding_window_view(source, WINDOW)[::STEP] * window)
        spectra *= self._response(widen(harmonic), f0)
        places = (np.arange(steps) + self._steps) % NOISE_STEPS
        self._steps += steps
        spectra += noise_spectra()[places] * np.exp(widen(noise))
        frames = np.fft.irfft(spectra, n=WINDOW) * (window / np.float32(1.5))
        hops = WINDOW // STEP
        out = np.zeros((steps + hops - 1, STEP), np.float32)
        for hop in range(hops):
            out[hop : hop + steps] += frames[:, hop * STEP : (hop + 1) * STEP]
        samples = out.ravel()
        samples[:LAG] += self._tail
        self._tail = samples[steps * STEP :].copy()
        return samples[: steps * STEP]

    def _pulses(self, f0: Floats) -> Samples:
        """Compute the pulse train of F0 (steps,): (steps * STEP,) samples of unit power."""
        rate = self._codec.config.sample_rate
        before = np.concatenate([f0[:1] if self._f0 is None else self._f0, f0[:-1]])
        self._f0 = f0[-1:]
        ramp = np.arange(1, STEP + 1, dtype=np.float32) / STEP
        hz = (before[:, None] + (f0 - before)[:, None] * ramp).ravel()
        cycles = self._phase + np.cumsum(hz.astype(np.float64) / rate)
        self._phase = float(cycles[-1] % 1)
        angle = (2 * math.pi * (cycles % 1)).astype(np.float32)
        # The top harmonic fades in below the Nyquist frequency: a whole number of harmonics would click when F0 glides.
        harmonics = np.float32(rate / 2) / hz
        count = np.floor(harmonics)
        below = np.sin(angle / 2)
        near = np.abs(below) < 1e-4
        kernel = np.sin((count + np.float32(0.5)) * angle) / (2 * np.where(near, np.float32(1), below)) - np.float32(
            0.5
        )
        pulses = np.where(near, count, kernel) + (harmonics - count) * np.cos((count + 1) * angle)
        out: Samples = pulses * 2 * np.sqrt(hz / rate)
        return out

    def _response(self, log_gain: Floats, f0: Floats) -> NDArray[np.complex64]:
        """Compute the frequency response for log gains, with minimum phase except for the glottal flow."""
        phase = np.fft.rfft(np.fft.irfft(log_gain, n=WINDOW) * cepstrum_fold()).imag
        octave = frequencies(self._codec.config.sample_rate) / f0[:, None]
        phase += 2 * np.arctan2(np.float32(2 * GLOTTAL_DAMPING) * octave, 1 - np.square(octave))
        gain = np.exp(log_gain)
        response = np.empty(gain.shape, np.complex64)
        response.real, response.imag = gain * np.cos(phase), gain * np.sin(phase)
        return response


class NumpyCodec:
    """Encoder, quantizer and decoder of one checkpoint.

    Raises:
        WeightsError: a tensor is missing, unexpected, or of another shape.
    """

    def __init__(self, config: CodecConfig, weights: Weights) -> None:
        self.config = config
        width, fine, steps, bands = config.width, config.fine_width, config.hop // STEP, config.filter_bands
        self._tables = [
            weights.take(f"quantizer.tables.{i}", size, config.latent) for i, size in enumerate(config.codebooks)
        ]
        self._mel = product(mel_triangles(config.sample_rate, WINDOW, config.mel_bands, config.mel_top).T)
        of = weights.under("encoder.")
        self._enter = affine(of.under("enter."), width, steps * config.mel_bands + steps // 2 * config.linear_bins)
        self._blocks = [_ConvBlock(of.under(f"blocks.{i}."), width) for i in range(config.depth)]
        self._norm, self._leave = layer_norm(of.under("norm."), width), affine(of.under("leave."), config.latent, width)
        of = weights.under("decoder.")
        self._linear = affine(of.under("linear."), steps * bands, config.latent)
        taps = of.take("enter.conv.weight", width, config.latent, 3)
        self._taps = [product(taps[:, :, tap]) for tap in range(3)]
        self._bias = of.take("enter.conv.bias", width)
        self._coarse = [_ConvBlock(of.under(f"coarse.blocks.{i}."), width) for i in range(config.depth)]
        self._middle, self._up = layer_norm(of.under("norm."), width), affine(of.under("up."), steps * fine, width)
        self._fine = [_ConvBlock(of.under(f"fine.blocks.{i}."), fine) for i in range(config.depth - 1)]
        self._out = affine(of.under("leave."), 1 + 2 * bands, fine)
        weights.finish()

    def latents(self, samples: Samples) -> Floats:
        """Encode audio (time,) at the codec's rate to latents (n, latent) before quantization; the end is zero-padded."""
        x = self._enter(self.spectrum(np.pad(samples, (0, -len(samples) % self.config.hop))))
        half = np.zeros((_KERNEL // 2, self.config.width), np.float32)
        for block in self._blocks:
            x = block(x, half, len(half))
        return self._leave(self._norm(x))

    def spectrum(self, samples: Samples) -> Floats:
        """Compute the encoder's features (n, features) of samples (n * hop,); see codec.EncoderSpectrum."""
        config, count = self.config, len(samples) // self.config.hop
        mel = self._mel(_magnitudes(samples, WINDOW, STEP))
        low = _magnitudes(samples, LONG_WINDOW, 2 * STEP)[:, 1 : config.linear_bins + 1]
        features = np.concatenate([mel.reshape(count, -1), low.reshape(count, -1)], axis=1)
        return ((np.log(features + np.float32(1e-4)) + 6) / 3).astype(np.float32, copy=False)

    def quantize(self, latents: Floats, beams: int = 4) -> Codes:
        """Quantize latents (n, latent) to codes (n, codebooks) by a beam search of width `beams`."""
        rows = np.arange(len(latents))[:, None]
        rest, codes = latents[:, None], np.zeros((len(latents), 1, 0), np.int64)
        for table in self._tables:
            distance = np.square(rest).sum(-1, keepdims=True) + np.square(table).sum(1) - 2 * rest @ table.T
            flat = distance.reshape(len(latents), -1)
            width = min(beams, flat.shape[1])
            at = np.argpartition(flat, width - 1, axis=1)[:, :width]
            at = np.take_along_axis(at, np.argsort(flat[rows, at], axis=1, kind="stable"), 1)
            source, code = np.divmod(at, len(table))
            rest = rest[rows, source] - table[code]
            codes = np.concatenate([codes[rows, source], code[..., None]], axis=-1)
        return codes[:, 0]

    def dequantize(self, codes: Codes) -> Floats:
        """Sum the codebook entries of codes (n, codebooks) to latents (n, latent)."""
        out = np.zeros((len(codes), self.config.latent), np.float32)
        for table, column in zip(self._tables, codes.T, strict=True):
            out += table[column]
        return out

    def filters(self, latents: Floats, pasts: list[Floats], gain: Floats | None) -> _Filters:
        """Predict vocoder parameters of latents (n, latent); `pasts`, the convolutions' left contexts, are updated."""
        count, bands = len(latents), self.config.filter_bands
        padded = np.concatenate([pasts[0], latents])
        pasts[0] = padded[count:]
        x: Floats = np.repeat(self._bias[None], count, 0)
        for tap, multiply in enumerate(self._taps):
            x += multiply(padded[tap : tap + count])
        blocks = [*self._coarse, *self._fine]
        for i, block in enumerate(blocks, 1):
            if i == len(self._coarse) + 1:
                x = self._up(self._middle(x)).reshape(-1, self.config.fine_width)
            past = np.concatenate([pasts[i], x[-len(pasts[i]) :]])[-len(pasts[i]) :]
            x, pasts[i] = block(x, pasts[i]), past
        y = self._out(x)
        base = self._linear(latents).reshape(len(y), bands)
        f0 = (F0_BASE * np.exp2(np.clip(y[:, 0], -1.5, 2.5))).astype(np.float32)
        envelope = np.clip(base + y[:, 1 : 1 + bands], FAINTEST, LOUDEST)
        return _Filters(f0, envelope, np.clip(y[:, 1 + bands :], -12, 12), gain)

    def open(self, gain: Floats | None = None) -> NumpyStream:
        """Open a decoding stream with the gain of a speaker."""
        return NumpyStream(self, gain)


def _magnitudes(samples: Samples, window: int, step: int) -> Floats:
    """Return magnitudes (time / step, bins) of samples (time,): centered windows, 1 for a full-scale tone."""
    side = (window - step) // 2
    frames = sliding_window_view(np.pad(samples, side), window)[::step]
    sizes: Floats = np.abs(np.fft.rfft(frames * hann(window))) * np.float32(4 / window)
    return sizes


class Stream(Protocol):
    """A stream of codes to decode."""

    def feed(self, codes: Codes, final: bool = False) -> Samples:
        """Decode codes (n, codebooks) to the samples that they complete; the final block flushes the stream."""

    def render(self, latents: Floats) -> Samples:
        """Decode latents (n, latent) to samples (n * hop,), delayed by `LAG`."""


class SpeechCodec(Protocol):
    """A codec on a device; its inputs and results are numpy arrays. See `NumpyCodec`."""

    config: CodecConfig

    def latents(self, samples: Samples) -> Floats:
        """Encode audio (time,) to latents (n, latent)."""

    def quantize(self, latents: Floats) -> Codes:
        """Quantize latents (n, latent) to codes (n, codebooks)."""

    def dequantize(self, codes: Codes) -> Floats:
        """Sum the codebook entries of codes (n, codebooks) to latents (n, latent)."""

    def open(self, gain: Floats | None = None) -> Stream:
        """Open a decoding stream with the gain of a speaker."""


class PointerDecoding:
    """Implements `core.decoding.Decoding` with the codec's decoder, one stream at a time."""

    max_batch = 1

    def __init__(self, codec: SpeechCodec) -> None:
        self._codec = codec
        self.sample_rate, self.hop = codec.config.sample_rate, codec.config.hop
        self.codebooks = len(codec.config.codebooks)

    def open(self, voice: Any) -> Stream:
        """Open a stream for a `speakers.SpeakerFit`, of which the decoder uses only the gain."""
        return self._codec.open(voice.gain)

    def feed(self, blocks: Sequence[CodeBlock]) -> list[Samples]:
        """Decode one block per stream; return the samples that each block completes."""
        return [block.stream.feed(block.codes, block.final) for block in blocks]
