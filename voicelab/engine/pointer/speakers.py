"""Speakers of the embedded family: measured from reference audio, fitted to the language model, and compared.

A speaker is statistics of the codec's latents over a recording: see `lm.speaker_statistics`. The model was trained on some
hundreds of speakers; for an unseen one it may be off by a semitone or two, with a constant bias. So it synthesizes a few
sentences, their statistics are compared to the reference's, and a share of the difference is added to its conditioning
(docs/decisions/09-cloned-and-kept-voices.md). For a telephone reference, the channel is compensated first: the model's
sentences are encoded once as they are and once band-limited, and the difference is the channel's.

The long-term spectrum of speech gives a clone the timbre of its speaker. Codes preserve a timbre as far as the codebooks
cover it, and the language model as far as its training does. Some of both errors is constant over sentences: a filter, which
is applied in the vocoder. The codec's error is measured between a recording and its decoded copy, with the same words; the
language model's error, between that copy and synthesized speech, with different words, so only a share of that difference is
attributed to the speaker (docs/decisions/09-cloned-and-kept-voices.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from voicelab.engine.core.decoding import Carry, DecodingThread, Memo, Samples
from voicelab.engine.core.scheduler import Scheduler
from voicelab.engine.core.sequence import Sequence as SpokenSequence
from voicelab.engine.core.sequence import Settings
from voicelab.engine.family import MAX_CACHED_REFERENCES, EncodedReferences
from voicelab.engine.pointer.codec import LAG, STEP, WINDOW, Codec, Vocoder, mel_of
from voicelab.engine.pointer.config import Phonemes
from voicelab.engine.pointer.lm import STATISTICS, speaker_statistics
from voicelab.errors import AudioError
from voicelab.schema import ReferenceAudio

LOWEST_HZ, HIGHEST_HZ = 90.0, 11_000.0
"""Range of the timbre filter: below is rumble; the training data has nothing above 12 kHz."""
MAX_REFERENCE_S = 30.0
"""Maximum duration of a recording that is analyzed, to bound the time."""
_ACTIVE_RANGE_DB = 25.0
"""Windows further below the peak level are pauses or room noise."""
_PEAK_QUANTILE = 0.99
"""Quantile of the window levels that counts as the peak level."""
_NOISE_QUANTILE = 0.05
"""Quantile of the window levels at or below which windows are pauses: speech has at least as many."""
_CUTOFF_DB = 75.0
"""Bands further below the strongest band were filtered out: no microphone or speaker attenuates that much."""
_CUTOFF_MARGIN = 0.92
"""Fraction of the cutoff frequency up to which bands are used: filters roll off before their cutoff."""
_MAX_LOG_GAIN = 1.2
"""Maximum absolute log gain of a band: 10 dB."""


def mean_power(samples: Tensor, vocoder: Vocoder) -> Tensor:
    """Estimate the long-term power spectrum (bands,) of speech (time,) at the vocoder's rate; on the CPU.

    Average power of the active windows minus that of the quietest, which are room and noise; 0 where noise exceeds speech.
    """
    samples = F.pad(samples, (0, max(0, WINDOW - samples.shape[0]))).to(vocoder.window.device)
    spectra = torch.fft.rfft(samples.unfold(0, WINDOW, STEP) * vocoder.window)
    power = spectra.abs().square() @ (vocoder.spread / vocoder.spread.sum(1, keepdim=True)).t()
    level = power.sum(1)
    loud = power[level >= level.quantile(_PEAK_QUANTILE) * 10 ** (-_ACTIVE_RANGE_DB / 10)].mean(0)
    noise = power[level <= level.quantile(_NOISE_QUANTILE)].mean(0)
    return torch.where(loud > 2 * noise, loud - noise, torch.zeros_like(loud)).cpu()


@torch.inference_mode()
def powers(codec: Codec, samples: Tensor, quantized: Tensor) -> Tensor:
    """Compute mean powers (2, bands) of a recording (time,) and of its copy decoded from quantized latents (n, latent)."""
    vocoder, frames = codec.decoder.vocoder, int(MAX_REFERENCE_S * codec.config.sample_rate) // codec.config.hop
    copy = codec.decoder(quantized[None, :frames].to(vocoder.window.device), Carry([None]))
    return torch.stack([mean_power(samples[: frames * codec.config.hop], vocoder), mean_power(copy[0, LAG:], vocoder)])


def gain_of(target: Tensor, source: Tensor, vocoder: Vocoder) -> Tensor:
    """Compute the log gains (bands,) that match one long-term spectrum to another at equal loudness.

    Args:
        target: (bands,) mean power to match; bands absent from it are left unchanged.
        source: (bands,) mean power to filter.
        vocoder: defines the bands.
    """
    # Band centers, equally spaced in mel from 0 to the Nyquist frequency.
    mel = torch.linspace(0, float(mel_of(torch.tensor(vocoder.sample_rate / 2))), len(target))
    hz = 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    present = (target > target.max() * 10 ** (-_CUTOFF_DB / 10)) & (source > 0) & (hz > LOWEST_HZ) & (hz < HIGHEST_HZ)
    if not present.any():
        return torch.zeros_like(target)
    present &= hz < hz[present].max() * _CUTOFF_MARGIN
    louder = target[present].sum() / source[present].sum()
    gain = torch.where(present, 0.5 * torch.log(target / (source * louder)), torch.zeros_like(target))
    smooth = F.avg_pool1d(F.pad(gain[None], (1, 1)), 3, stride=1)[0]
    return smooth.clamp(-_MAX_LOG_GAIN, _MAX_LOG_GAIN)


LEVEL = 0.07
"""RMS of the codec's training speech."""
MIN_SOUND_S = 0.5
"""Minimum seconds of sound in a reference."""
MIN_RETAINED = 0.88
"""Retained shares below this are outside the voice's range: see `retained_share`."""
SENTENCES = (
    "The old clock in the hall strikes nine before the children wake up.",
    "She bought fresh bread, a jar of honey, and two ripe pears.",
    "Why should anyone choose the longer road through the valley?",
    "A thin layer of ice covered the pond, yet nobody slipped.",
    "Our neighbour plays the violin whenever the weather is dull.",
    "Judge the picture by its colours, not by the size of its frame.",
    "They watched five yellow boats leave the harbour at noon.",
    "Thank you for showing us how the machine was built.",
)
"""In no test set; together they contain every English phone but those of "boy" and "measure"."""
CORRECTION = 0.6
"""Share of a measured difference that is corrected: more would fit the variance of eight sentences."""
_SILENCE_RATIO = 0.01
_MARGIN_S = 0.15
_MIN_REFERENCE_S = 3.0
_MAX_SENTENCE_FRAMES = 160
"""Maximum frames of a sentence (7 s): twice its usual length."""
_TELEPHONE_HZ = 4000.0
_HIGH_BAND_DB = -50.0
_BAND_EDGE_SHARE = 1e-4
"""Share of the power below the band, and above it: more than the quantization noise of 8-bit mu-law."""


@dataclass(frozen=True)
class TelephoneBand:
    """Pass band of a telephone recording, in whole Hz."""

    low: float
    high: float


def telephone_band(samples: Samples, rate: int) -> TelephoneBand | None:
    """Find the pass band of a mono recording; None if more than -50 dB of its power is above 4 kHz."""
    power: NDArray[np.float64] = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    hertz = np.fft.rfftfreq(samples.size, 1 / rate)
    narrow = hertz <= _TELEPHONE_HZ
    below = float(power[narrow].sum())
    if below <= 0 or float(power[~narrow].sum()) > below * 10 ** (_HIGH_BAND_DB / 10):
        return None
    share = power[narrow].cumsum() / below
    edges = hertz[np.searchsorted(share, (_BAND_EDGE_SHARE, 1 - _BAND_EDGE_SHARE))]
    return TelephoneBand(*(float(round(edge)) for edge in edges))


def limit_band(samples: Samples, rate: int, band: TelephoneBand) -> Samples:
    """Remove all frequencies outside a band."""
    spectrum, hertz = np.fft.rfft(samples), np.fft.rfftfreq(samples.size, 1 / rate)
    spectrum[(hertz < band.low) | (hertz > band.high)] = 0
    return np.fft.irfft(spectrum, samples.size).astype(np.float32)


@dataclass(frozen=True)
class SpeakerProfile:
    """A speaker, measured from recordings."""

    statistics: Tensor
    """(STATISTICS * latent,), on the CPU: see lm.speaker_statistics."""
    powers: Tensor | None
    """(2, bands) of the recordings and their copies, see `powers`, on the CPU; None for a training speaker."""
    band: TelephoneBand | None = None
    """The pass band, if all recordings are telephone recordings."""

    def to_bytes(self) -> bytes:
        """Serialize statistics, powers and band edges (0 and 0 for none) as little-endian floats."""
        edges = (self.band.low, self.band.high) if self.band else (0.0, 0.0)
        powers = () if self.powers is None else self.powers.flatten().numpy()
        return np.concatenate([self.statistics.numpy(), powers, edges]).astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, packed: bytes, width: int, bands: int) -> SpeakerProfile | None:
        """Deserialize `to_bytes` with `width` statistics and `bands` powers; None if the length does not match."""
        if len(packed) != 4 * (width + 2 * bands + 2):
            return None
        values = torch.from_numpy(np.frombuffer(packed, "<f4").astype(np.float32))
        low, high = values[-2:].tolist()
        return cls(values[:width], values[width:-2].reshape(2, bands), TelephoneBand(low, high) if high else None)


@dataclass(frozen=True)
class _Encoded:
    """Measurements of one reference."""

    latents: Tensor
    """(n, latent), quantized."""
    powers: Tensor
    """(2, bands): see `powers`."""
    band: TelephoneBand | None
    notes: tuple[str, ...]


class References:
    """Measures speakers from references; recent references are cached."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._encoded = EncodedReferences(self._encode, codec.config.sample_rate)

    def speaker(self, references: Sequence[ReferenceAudio]) -> SpeakerProfile:
        """Measure one speaker from all references; their order does not matter.

        Raises:
            RequestInvalid: a reference is not audio or has no sound; the error names the field and its index.
        """
        pairs = zip(references, self._encoded(references), strict=True)
        ordered = [encoded for _, encoded in sorted(pairs, key=lambda pair: hashlib.sha256(pair[0].audio).digest())]
        latents = torch.cat([encoded.latents for encoded in ordered])
        powers = torch.stack([encoded.powers * len(encoded.latents) for encoded in ordered]).sum(0) / len(latents)
        bands = [encoded.band for encoded in ordered if encoded.band is not None]
        all_over = len(bands) == len(ordered)
        band = TelephoneBand(min(b.low for b in bands), max(b.high for b in bands)) if all_over else None
        return SpeakerProfile(speaker_statistics(latents), powers, band)

    def notes(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """Describe problems with references as user-facing notes. Raises as `speaker`."""
        return tuple(
            f"reference {i + 1}: {note}"
            for i, encoded in enumerate(self._encoded(references))
            for note in encoded.notes
        )

    def _encode(self, samples: Samples) -> _Encoded:
        rate = self._codec.config.sample_rate
        samples = level(samples, rate)
        latents, quantized = encode_speech(self._codec, samples)
        speaker_powers = powers(self._codec, torch.from_numpy(samples), quantized)
        band = telephone_band(samples, rate)
        retained = retained_share(latents, quantized)
        return _Encoded(
            quantized, speaker_powers, band, reference_notes(samples.size / rate, retained, narrow=band is not None)
        )


def encode_speech(codec: Codec, samples: Samples) -> tuple[Tensor, Tensor]:
    """Encode speech at the codec's rate and `LEVEL`: latents (n, latent) and quantized latents, on the CPU."""
    device = codec.decoder.leave.weight.device
    latents = codec.latents(torch.from_numpy(samples).to(device)[None])
    quantized = codec.quantizer.decode(codec.quantizer.encode(latents))
    return latents[0].cpu(), quantized[0].cpu()


def level(samples: Samples, rate: int) -> Samples:
    """Trim silence around speech and normalize its level for the codec.

    Raises:
            AudioError: the audio is silent or has less than `MIN_SOUND_S` seconds of sound.
    """
    samples = samples - samples.mean(dtype=np.float64).astype(np.float32) if samples.size else samples
    peak = float(np.abs(samples).max(initial=0.0))
    if peak < 1e-3:
        raise AudioError("the reference is silent")
    loud = np.flatnonzero(np.abs(samples) > peak * 0.05)
    if loud[-1] + 1 - loud[0] < int(MIN_SOUND_S * rate):
        raise AudioError(f"the reference has less than {MIN_SOUND_S} s of sound")
    margin = int(_MARGIN_S * rate)
    samples = samples[max(0, loud[0] - margin) : loud[-1] + margin]
    active = samples[np.abs(samples) > max(_SILENCE_RATIO * peak, 1e-4)]
    rms = float(np.sqrt(np.mean(np.square(active))))
    leveled: Samples = np.clip(samples * (LEVEL / rms), -1.0, 1.0).astype(np.float32)
    return leveled


def retained_share(latents: Tensor, quantized: Tensor) -> float:
    """Compute the share of a recording's variance that the codebooks retain: 1 for all, 0 or less for unknown sounds.

    One minus the energy of the quantization error over the energy of the latents around their mean. Speech of speakers
    similar to the training data has .91 to .97, also over a telephone or in noise, to which the encoder is robust; other
    speakers .89 to .94, white noise alone .83, chords and tones less than 0.

    Args:
        latents: (n, latent) encoder output.
        quantized: (n, latent) the same after quantization.
    """
    spread = float((latents - latents.mean(0)).square().sum())
    lost = float((latents - quantized).square().sum())
    return 1.0 - lost / spread if spread > 0 else 0.0


def reference_notes(seconds: float, retained: float, *, narrow: bool) -> tuple[str, ...]:
    """Describe problems of a reference recording; empty if it has none.

    Args:
        seconds: duration of the recording.
        retained: see `retained_share`.
        narrow: whether it has telephone bandwidth.
    """
    phrases = []
    if seconds < _MIN_REFERENCE_S:
        phrases.append(f"it lasts {seconds:.1f} s; use at least {_MIN_REFERENCE_S:g} s")
    if narrow:
        phrases.append("it has telephone bandwidth, nothing above 4 kHz: higher frequencies are guessed")
    if retained < MIN_RETAINED:
        phrases.append(
            f"not speech, or a sound outside the voice's range: the codec retains {max(0.0, retained):.0%} of it"
        )
    return tuple(phrases)


def similarity(speaker: Tensor, target: Tensor, voices: Tensor) -> float:
    """Compute the similarity of two speakers: 1 for the same, 0 for the mean distance of two preset voices.

    One minus their distance in the language model's speaker embedding over the mean distance between the checkpoint's
    voices; at most 1, negative for greater distances. Two texts of one speaker also score below 1, lower for shorter ones:
    .67 to .84 for 3 s, .78 to .88 for 9 s. Different speakers scored 0 on average, .75 at most.

    Args:
        speaker: (width,) speaker embedding from `LM.encode_speaker`.
        target: (width,) embedding to compare it to.
        voices: (voices, width) embeddings of the checkpoint's voices; with fewer than two distinct ones the result is 0.
    """
    mean_distance = float(torch.pdist(voices.float()).mean()) if len(voices) > 1 else 0.0
    return 1.0 - float((speaker - target).norm()) / mean_distance if mean_distance > 0 else 0.0


@dataclass(frozen=True)
class SpeakerFit:
    """Model inputs fitted to a speaker, on the CPU."""

    target: Tensor
    """(STATISTICS * latent,) statistics of the speaker's speech, compensated for a telephone channel."""
    conditioning: Tensor
    """(STATISTICS * latent,) statistics that condition the language model to match `target`."""
    gain: Tensor | None = None
    """(bands,) log gains of the vocoder; None for a training speaker, and for a telephone reference."""


class SpeakerFitter:
    """Fits speakers to a language model; recent fits are cached.

    Args:
        codec: the checkpoint's codec.
        read: converts a sentence to phones.
    """

    def __init__(self, codec: Codec, read: Callable[[str], Phonemes]) -> None:
        self._codec, self._read = codec, read
        self._fits: Memo[SpeakerFit] = Memo(MAX_CACHED_REFERENCES)

    def fit(self, speaker: SpeakerProfile, scheduler: Scheduler, decoding: DecodingThread) -> SpeakerFit:
        """Fit a speaker to the scheduler's model; deterministic for given weights.

        Raises:
            EngineError: the engine is closed or has failed.
        """
        if speaker.powers is None:
            return SpeakerFit(speaker.statistics, speaker.statistics)
        key = (scheduler, speaker.to_bytes())
        return self._fits.get(key, partial(self._fit, speaker, speaker.powers, scheduler, decoding))

    def _fit(
        self, speaker: SpeakerProfile, speaker_powers: Tensor, scheduler: Scheduler, decoding: DecodingThread
    ) -> SpeakerFit:
        target = self._without_telephone(speaker, scheduler, decoding)
        codes = self._synthesize(target, scheduler)
        difference = target - self._statistics(codes)
        conditioning = _valid(target + CORRECTION * difference)
        if speaker.band is not None:  # the spectrum is the channel's, not the speaker's
            return SpeakerFit(target, conditioning)
        return SpeakerFit(target, conditioning, decoding.do(partial(self._gain, speaker_powers, codes), len(codes)))

    def _without_telephone(self, speaker: SpeakerProfile, scheduler: Scheduler, decoding: DecodingThread) -> Tensor:
        """Compensate the statistics for a telephone channel, estimated from the model's speech."""
        if speaker.band is None:
            return speaker.statistics
        codes = self._synthesize(speaker.statistics, scheduler)
        try:
            narrow = decoding.do(partial(self._over_telephone, codes, speaker.band), len(codes))
        except AudioError:  # the band-limited sentences are silent
            return speaker.statistics
        return _valid(speaker.statistics - (narrow - self._statistics(codes)))

    def _synthesize(self, conditioning: Tensor, scheduler: Scheduler) -> Tensor:
        """Synthesize all sentences in one batch; their codes (n, codebooks) are concatenated."""
        sequences = []
        for seed, text in enumerate(SENTENCES):
            sequence = SpokenSequence(SpeakerFit(conditioning, conditioning), Settings(), seed, _MAX_SENTENCE_FRAMES)
            sequence.wake_at = _MAX_SENTENCE_FRAMES
            sequence.add(self._read(text))
            sequence.finish()
            sequences.append(sequence)
        scheduler.submit(*sequences)
        frames = [frame.codes for sequence in sequences for frame in sequence.frames() if frame.codes is not None]
        return torch.stack(frames).to(self._codec.quantizer.tables[0].device)

    def _gain(self, speaker_powers: Tensor, codes: Tensor) -> Tensor:
        """Compute the vocoder's gains from the `powers` of the speaker's recordings and from synthesized codes."""
        (recorded, copied), vocoder = speaker_powers, self._codec.decoder.vocoder
        generated = mean_power(self._codec.decode(codes[None])[0], vocoder)
        return gain_of(recorded, copied, vocoder) + CORRECTION * gain_of(copied, generated, vocoder)

    def _statistics(self, codes: Tensor) -> Tensor:
        return speaker_statistics(self._codec.quantizer.decode(codes).cpu())

    def _over_telephone(self, codes: Tensor, band: TelephoneBand) -> Tensor:
        """Measure the statistics of decoded codes after band limiting."""
        rate = self._codec.config.sample_rate
        samples = limit_band(self._codec.decode(codes[None])[0].cpu().numpy(), rate, band)
        return speaker_statistics(encode_speech(self._codec, level(samples, rate))[1])


def _valid(statistics: Tensor) -> Tensor:
    """Clamp standard deviations and changes to non-negative."""
    means = statistics.numel() // STATISTICS
    return torch.cat([statistics[:means], statistics[means:].clamp(min=0)])
