"""Speakers of the embedded family: from reference audio to what the language model is given, and how near the result is.

A speaker is statistics of the codec's latents over a recording: see `lm.speaker_statistics`. The model learned from some
hundreds of speakers; given one that it never heard, it may be off by a semitone or two, and always in the same way. So it
says a few sentences, these are measured by the same statistics as the reference, and part of the difference is given back
(docs/decisions/09-cloned-and-kept-voices.md). Of a reference over a telephone, what the telephone did is taken away first:
the model's sentences are encoded once as they are and once over the same band, and the difference is the telephone's.

The long-term spectrum of speech gives a clone the filter of its speaker. Codes keep a timbre as far as the codebooks know
others like it, and the language model follows it as far as its training went. Part of what both lose is the same in every
sentence, so it is a filter, which the vocoder adds to its own. What codes lose is told from a recording and its own copy, in
the same words; what the language model loses, from that copy and what the model says, in others, so that only a part of the
difference is the speaker's (docs/decisions/09-cloned-and-kept-voices.md).
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
from voicelab.engine.family import REMEMBERED, EncodedReferences
from voicelab.engine.pointer.codec import LAG, STEP, WINDOW, Codec, Vocoder, mel_of
from voicelab.engine.pointer.config import Phonemes
from voicelab.engine.pointer.lm import STATISTICS, speaker_statistics
from voicelab.errors import AudioError
from voicelab.schema import ReferenceAudio

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
    copy = codec.decoder(quantized[None, :frames].to(vocoder.window.device), Carry([None]))
    return torch.stack([mean_power(samples[: frames * codec.config.hop], vocoder), mean_power(copy[0, LAG:], vocoder)])


def gain_of(wanted: Tensor, said: Tensor, vocoder: Vocoder) -> Tensor:
    """Log gains (bands,) that turn speech of one long-term spectrum into speech of another, as loud as it was.

    Args:
        wanted: (bands,) mean power of the one. What it lacks altogether is left as it is.
        said: (bands,) that of the other.
        vocoder: whose bands these are.
    """
    # The bands' middles, equally spaced in mel from 0 to half the rate.
    mel = torch.linspace(0, float(mel_of(torch.tensor(vocoder.sample_rate / 2))), len(wanted))
    hz = 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    present = (wanted > wanted.max() * 10 ** (-_ABSENT_DB / 10)) & (said > 0) & (hz > LOWEST_HZ) & (hz < HIGHEST_HZ)
    if not present.any():
        return torch.zeros_like(wanted)
    present &= hz < hz[present].max() * _EDGE
    louder = wanted[present].sum() / said[present].sum()
    gain = torch.where(present, 0.5 * torch.log(wanted / (said * louder)), torch.zeros_like(wanted))
    smooth = F.avg_pool1d(F.pad(gain[None], (1, 1)), 3, stride=1)[0]
    return smooth.clamp(-_MOST, _MOST)


LEVEL = 0.07
"""RMS of the speech that the codec was trained on."""
SHORTEST = 0.5
"""Seconds of sound below which a reference says nothing about a speaker."""
FOLLOWED = 0.88
"""Shares below this are outside what the voice can follow: see `share_kept`."""
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
"""Of no test set; together they hold every English phone but those of "boy" and "measure"."""
SHARE = 0.6
"""How much of a difference is given back: more of it follows the chance of eight sentences."""
_SILENT = 0.01
_MARGIN_S = 0.15
_SHORT_S = 3.0
_LONGEST = 160
"""Frames of a sentence (7 s): twice what it needs."""
_TELEPHONE_HZ = 4000.0
_DARK_DB = -50.0
_BEYOND = 1e-4
"""Share of the power below a band, and as much above it: what 8 bits of mu-law add there is less."""


@dataclass(frozen=True)
class TelephoneBand:
    """What a telephone left of speech, in whole Hz."""

    low: float
    high: float


def telephone_band(samples: Samples, rate: int) -> TelephoneBand | None:
    """The band of a mono recording over a telephone; None for one with more than -50 dB of its power above 4 kHz."""
    power: NDArray[np.float64] = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    hertz = np.fft.rfftfreq(samples.size, 1 / rate)
    narrow = hertz <= _TELEPHONE_HZ
    below = float(power[narrow].sum())
    if below <= 0 or float(power[~narrow].sum()) > below * 10 ** (_DARK_DB / 10):
        return None
    share = power[narrow].cumsum() / below
    edges = hertz[np.searchsorted(share, (_BEYOND, 1 - _BEYOND))]
    return TelephoneBand(*(float(round(edge)) for edge in edges))


def limit_band(samples: Samples, rate: int, band: TelephoneBand) -> Samples:
    """The same speech with nothing outside the band."""
    spectrum, hertz = np.fft.rfft(samples), np.fft.rfftfreq(samples.size, 1 / rate)
    spectrum[(hertz < band.low) | (hertz > band.high)] = 0
    return np.fft.irfft(spectrum, samples.size).astype(np.float32)


@dataclass(frozen=True)
class SpeakerProfile:
    """Who is to speak, measured from recordings."""

    statistics: Tensor
    """(STATISTICS * latent,), on the CPU: see lm.speaker_statistics."""
    powers: Tensor | None
    """(2, bands) of the recordings and their copies, see `powers`, on the CPU; None for a speaker of the training."""
    band: TelephoneBand | None = None
    """What was left of the speech, where all of it came over a telephone."""

    def to_bytes(self) -> bytes:
        """Statistics, powers and the edges of the band, 0 and 0 for none, as little-endian floats."""
        edges = (self.band.low, self.band.high) if self.band else (0.0, 0.0)
        powers = () if self.powers is None else self.powers.flatten().numpy()
        return np.concatenate([self.statistics.numpy(), powers, edges]).astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, packed: bytes, width: int, bands: int) -> SpeakerProfile | None:
        """What `to_bytes` wrote of `width` statistics and the powers of `bands`; None for bytes of another length."""
        if len(packed) != 4 * (width + 2 * bands + 2):
            return None
        values = torch.from_numpy(np.frombuffer(packed, "<f4").astype(np.float32))
        low, high = values[-2:].tolist()
        return cls(values[:width], values[width:-2].reshape(2, bands), TelephoneBand(low, high) if high else None)


@dataclass(frozen=True)
class _Encoded:
    """What the codec made of a reference."""

    latents: Tensor
    """(n, latent), quantized."""
    powers: Tensor
    """(2, bands): see `powers`."""
    band: TelephoneBand | None
    doubts: tuple[str, ...]


class References:
    """Makes speakers of references, and keeps the latest: a voice used again costs no encoding."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._all = EncodedReferences(self._encode, codec.config.sample_rate)

    def speaker(self, references: Sequence[ReferenceAudio]) -> SpeakerProfile:
        """The speaker of all references together, in whatever order.

        Raises:
            RequestInvalid: a reference is no audio, or holds no sound; the field is named with its position.
        """
        pairs = zip(references, self._all(references), strict=True)
        ordered = [encoded for _, encoded in sorted(pairs, key=lambda pair: hashlib.sha256(pair[0].audio).digest())]
        latents = torch.cat([encoded.latents for encoded in ordered])
        powers = torch.stack([encoded.powers * len(encoded.latents) for encoded in ordered]).sum(0) / len(latents)
        bands = [encoded.band for encoded in ordered if encoded.band is not None]
        all_over = len(bands) == len(ordered)
        band = TelephoneBand(min(b.low for b in bands), max(b.high for b in bands)) if all_over else None
        return SpeakerProfile(speaker_statistics(latents), powers, band)

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """What a listener should know of references that the voice cannot follow well, in sentences. Raises as `speaker`."""
        return tuple(
            f"reference {i + 1}: {doubt}" for i, encoded in enumerate(self._all(references)) for doubt in encoded.doubts
        )

    def _encode(self, samples: Samples) -> _Encoded:
        rate = self._codec.config.sample_rate
        samples = level(samples, rate)
        latents, quantized = encode_speech(self._codec, samples)
        heard = powers(self._codec, torch.from_numpy(samples), quantized)
        band = telephone_band(samples, rate)
        share = share_kept(latents, quantized)
        return _Encoded(quantized, heard, band, doubts(samples.size / rate, share, narrow=band is not None))


def encode_speech(codec: Codec, samples: Samples) -> tuple[Tensor, Tensor]:
    """Speech at the codec's rate and `LEVEL` → its latents (n, latent), and the same as the codes hold them, on the CPU."""
    device = codec.decoder.leave.weight.device
    latents = codec.latents(torch.from_numpy(samples).to(device)[None])
    quantized = codec.quantizer.decode(codec.quantizer.encode(latents))
    return latents[0].cpu(), quantized[0].cpu()


def level(samples: Samples, rate: int) -> Samples:
    """Speech without the silence around it, at the level the codec knows.

    Raises:
        AudioError: there is no sound in it, or less than `SHORTEST` seconds.
    """
    samples = samples - samples.mean(dtype=np.float64).astype(np.float32) if samples.size else samples
    peak = float(np.abs(samples).max(initial=0.0))
    if peak < 1e-3:
        raise AudioError("the reference is silent")
    loud = np.flatnonzero(np.abs(samples) > peak * 0.05)
    if loud[-1] + 1 - loud[0] < int(SHORTEST * rate):
        raise AudioError(f"the reference has less than {SHORTEST} s of sound")
    margin = int(_MARGIN_S * rate)
    samples = samples[max(0, loud[0] - margin) : loud[-1] + margin]
    active = samples[np.abs(samples) > max(_SILENT * peak, 1e-4)]
    rms = float(np.sqrt(np.mean(np.square(active))))
    levelled: Samples = np.clip(samples * (LEVEL / rms), -1.0, 1.0).astype(np.float32)
    return levelled


def share_kept(latents: Tensor, quantized: Tensor) -> float:
    """The share of a recording that the codebooks hold: 1 for what they were made for, 0 or less for what they do not know.

    One minus the energy of the difference over the energy of the latents around their mean; no unit. Speech of speakers like
    those of the training keeps .91 to .97, and so it does over a telephone or under noise, since the encoder hears through
    them; people keep .89 to .94, white noise alone .83, chords and tones less than nothing.

    Args:
        latents: (n, latent) what the codec's encoder makes of the recording.
        quantized: (n, latent) the same as the codes hold it.
    """
    spread = float((latents - latents.mean(0)).square().sum())
    lost = float((latents - quantized).square().sum())
    return 1.0 - lost / spread if spread > 0 else 0.0


def doubts(seconds: float, share: float, *, narrow: bool) -> tuple[str, ...]:
    """What stands in the way of following a reference, in phrases; nothing when all is well.

    Args:
        seconds: how long the recording lasts.
        share: see `share_kept`.
        narrow: whether it came over a telephone.
    """
    phrases = []
    if seconds < _SHORT_S:
        phrases.append(f"it lasts {seconds:.1f} s, and a voice takes at least {_SHORT_S:g} s")
    if narrow:
        phrases.append("it has nothing above 4 kHz, as over a telephone: what is above is guessed")
    if share < FOLLOWED:
        phrases.append(
            f"no speech, or a sound that the voice cannot follow: of it, the voice keeps {max(0.0, share):.0%}"
        )
    return tuple(phrases)


def similarity(one: Tensor, other: Tensor, voices: Tensor) -> float:
    """How near two speakers are: 1 for the same, 0 for as far apart as two voices of the checkpoint are on average.

    One minus their distance, as the language model sees speakers, over the mean distance between the checkpoint's voices; no
    unit, at most 1, below 0 for those further apart than voices usually are. Two texts of one speaker are some way below 1
    too, the more so the shorter they are: .67 to .84 for 3 s, .78 to .88 for 9 s. Others had 0 on average, .75 at most.

    Args:
        one: (width,) a speaker, as `LM.encode_speaker` makes it of its statistics.
        other: the same of the other.
        voices: (voices, width) those of the checkpoint; at least two that differ, or the answer is 0.
    """
    usual = float(torch.pdist(voices.float()).mean()) if len(voices) > 1 else 0.0
    return 1.0 - float((one - other).norm()) / usual if usual > 0 else 0.0


@dataclass(frozen=True)
class SpeakerFit:
    """A speaker, and what to give the models so that they come near; on the CPU."""

    target: Tensor
    """(STATISTICS * latent,) what speech of the speaker is like; without a telephone's part in it."""
    conditioning: Tensor
    """(STATISTICS * latent,) what the language model is given, that it may sound so."""
    gain: Tensor | None = None
    """(bands,) what the vocoder adds; None for a speaker of the training, and over a telephone."""


class SpeakerFitter:
    """Fits speakers to a language model, and keeps the latest.

    Args:
        codec: the checkpoint's.
        read: makes phones of a sentence.
    """

    def __init__(self, codec: Codec, read: Callable[[str], Phonemes]) -> None:
        self._codec, self._read = codec, read
        self._fits: Memo[SpeakerFit] = Memo(REMEMBERED)

    def fit(self, speaker: SpeakerProfile, scheduler: Scheduler, decoding: DecodingThread) -> SpeakerFit:
        """The fit to the model behind the scheduler; the same for the same weights.

        Raises:
            EngineError: the engine is closed, or failed.
        """
        if speaker.powers is None:
            return SpeakerFit(speaker.statistics, speaker.statistics)
        key = (scheduler, speaker.to_bytes())
        return self._fits.get(key, partial(self._fit, speaker, speaker.powers, scheduler, decoding))

    def _fit(
        self, speaker: SpeakerProfile, heard: Tensor, scheduler: Scheduler, decoding: DecodingThread
    ) -> SpeakerFit:
        target = self._without_telephone(speaker, scheduler, decoding)
        codes = self._say(target, scheduler)
        difference = target - self._statistics(codes)
        conditioning = _valid(target + SHARE * difference)
        if speaker.band is not None:  # its colour is the telephone's
            return SpeakerFit(target, conditioning)
        return SpeakerFit(target, conditioning, decoding.do(partial(self._gain, heard, codes), len(codes)))

    def _without_telephone(self, speaker: SpeakerProfile, scheduler: Scheduler, decoding: DecodingThread) -> Tensor:
        """The statistics without what a telephone adds to those of the same model's speech."""
        if speaker.band is None:
            return speaker.statistics
        codes = self._say(speaker.statistics, scheduler)
        try:
            narrow = decoding.do(partial(self._over_telephone, codes, speaker.band), len(codes))
        except AudioError:  # it says nothing that can be heard over it
            return speaker.statistics
        return _valid(speaker.statistics - (narrow - self._statistics(codes)))

    def _say(self, conditioning: Tensor, scheduler: Scheduler) -> Tensor:
        """The codes (n, codebooks) of all sentences, said side by side, one after the other."""
        sequences = []
        for seed, text in enumerate(SENTENCES):
            sequence = SpokenSequence(SpeakerFit(conditioning, conditioning), Settings(), seed, _LONGEST)
            sequence.wake_at = _LONGEST
            sequence.add(self._read(text))
            sequence.finish()
            sequences.append(sequence)
        scheduler.submit(*sequences)
        frames = [frame.codes for sequence in sequences for frame in sequence.frames() if frame.codes is not None]
        return torch.stack(frames).to(self._codec.quantizer.tables[0].device)

    def _gain(self, heard: Tensor, codes: Tensor) -> Tensor:
        """What the vocoder adds to the sound of codes, given the `timbre.powers` of their speaker."""
        (recorded, copied), vocoder = heard, self._codec.decoder.vocoder
        said = mean_power(self._codec.decode(codes[None])[0], vocoder)
        return gain_of(recorded, copied, vocoder) + SHARE * gain_of(copied, said, vocoder)

    def _statistics(self, codes: Tensor) -> Tensor:
        return speaker_statistics(self._codec.quantizer.decode(codes).cpu())

    def _over_telephone(self, codes: Tensor, band: TelephoneBand) -> Tensor:
        """The statistics of the codes' sound, encoded again over a band."""
        rate = self._codec.config.sample_rate
        samples = limit_band(self._codec.decode(codes[None])[0].cpu().numpy(), rate, band)
        return speaker_statistics(encode_speech(self._codec, level(samples, rate))[1])


def _valid(statistics: Tensor) -> Tensor:
    """Deviations and changes are not negative."""
    means = statistics.numel() // STATISTICS
    return torch.cat([statistics[:means], statistics[means:].clamp(min=0)])
