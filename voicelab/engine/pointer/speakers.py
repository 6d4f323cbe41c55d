"""Speakers of the embedded family: measured from reference audio, fitted to the language model, and compared.

A speaker is described by statistics of the codec's latents over a recording: see `speaker_statistics`. The model was trained
on some hundreds of speakers; for an unseen speaker, its pitch has a constant bias of up to two semitones. So the model
synthesizes a few sentences, their statistics are compared to those of the reference, and a share of the difference is added
to the conditioning (docs/decisions/09-cloned-and-kept-voices.md). For a telephone reference, the channel is compensated
first: the model's sentences are encoded once unchanged and once band-limited, and the difference is attributed to the
channel.

The timbre of a cloned voice depends on its long-term spectrum, in which the codebooks and the language model have errors if
the speaker is unlike those of the training data. These errors are partly constant over sentences, so a filter in the
vocoder can correct them. The codec's error is measured between a recording and its decoded copy, which have the
same words. The language model's error is measured between that copy and synthesized speech, which have different words, so
only a share of that difference is attributed to the speaker (docs/decisions/09-cloned-and-kept-voices.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from voicelab.engine.core.decoding import DecodingThread, Memo, Samples
from voicelab.engine.core.scheduler import Scheduler
from voicelab.engine.core.sequence import Codes, Settings
from voicelab.engine.core.sequence import Sequence as SpokenSequence
from voicelab.engine.family import MAX_CACHED_REFERENCES, EncodedReferences
from voicelab.engine.pointer.arrays import Floats, product
from voicelab.engine.pointer.config import CodecConfig, Phonemes
from voicelab.engine.pointer.numpy_codec import LAG, STEP, WINDOW, SpeechCodec, hann, mel_of, spread
from voicelab.engine.pointer.rows import STATISTICS
from voicelab.errors import AudioError
from voicelab.schema import ReferenceAudio

LOWEST_HZ, HIGHEST_HZ = 90.0, 11_000.0
"""Range of the timbre filter: lower frequencies are rumble, and the training data has no energy above 12 kHz."""
MAX_REFERENCE_S = 30.0
"""Maximum duration of a recording that is analyzed, to bound the time."""
_ACTIVE_RANGE_DB = 25.0
"""Windows more than this below the peak level are pauses or room noise."""
_PEAK_QUANTILE = 0.99
"""Quantile of the window levels that counts as the peak level."""
_NOISE_QUANTILE = 0.05
"""Quantile of the window levels at or below which windows are pauses: speech has at least as many."""
_CUTOFF_DB = 75.0
"""Bands more than this below the strongest band were filtered out: no microphone or speaker attenuates that much."""
_CUTOFF_MARGIN = 0.92
"""Fraction of the cutoff frequency up to which bands are used: filters roll off before their cutoff."""
_MAX_LOG_GAIN = 1.2
"""Maximum absolute log gain of a band: 10 dB."""


def speaker_statistics(latents: Floats) -> Floats:
    """Summarize a reference recording's speaker, independent of its words.

    Args:
        latents: (n, latent) quantized latents.

    Returns:
        (STATISTICS * latent,) mean and standard deviation over time (timbre, pitch and its range), and the mean absolute
        change from frame to frame (pace).
    """
    wide = latents.astype(np.float64)
    change = np.abs(np.diff(wide, axis=0)).mean(0) if len(wide) > 1 else np.zeros_like(wide[0])
    return np.concatenate([wide.mean(0), wide.std(0), change]).astype(np.float32)


def mean_power(samples: Samples, config: CodecConfig) -> Floats:
    """Estimate the long-term power spectrum (bands,) of speech (time,) at the codec's rate.

    It is the average power of the active windows minus that of the quietest windows, which contain only room and noise. It
    is 0 in bands where the noise exceeds the speech.
    """
    samples = np.pad(samples, (0, max(0, WINDOW - samples.size)))
    spectra = np.fft.rfft(sliding_window_view(samples, WINDOW)[::STEP] * hann(WINDOW))
    bins = spread(config.sample_rate, config.filter_bands)
    power = product(bins / bins.sum(1, keepdims=True))(np.square(np.abs(spectra)))
    level = power.sum(1)
    loud = power[level >= np.quantile(level, _PEAK_QUANTILE) * 10 ** (-_ACTIVE_RANGE_DB / 10)].mean(0)
    noise = power[level <= np.quantile(level, _NOISE_QUANTILE)].mean(0)
    return np.where(loud > 2 * noise, loud - noise, 0).astype(np.float32)


def powers(codec: SpeechCodec, samples: Samples, quantized: Floats) -> Floats:
    """Compute the mean powers (2, bands) of a recording (time,) and of the audio decoded from its quantized latents."""
    config = codec.config
    frames = int(MAX_REFERENCE_S * config.sample_rate) // config.hop
    copy = codec.open().render(quantized[:frames])
    return np.stack([mean_power(samples[: frames * config.hop], config), mean_power(copy[LAG:], config)])


def gain_of(target: Floats, source: Floats, sample_rate: int) -> Floats:
    """Compute the log gains (bands,) that match one long-term spectrum to another at equal loudness.

    Args:
        target: (bands,) mean power to match; bands without power are left unchanged.
        source: (bands,) mean power to filter.
        sample_rate: sample rate in Hz; bands are equally spaced in mel up to half the sample rate.
    """
    mel = np.linspace(0, mel_of(sample_rate / 2), len(target))
    hz = 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    present = (target > target.max() * 10 ** (-_CUTOFF_DB / 10)) & (source > 0) & (hz > LOWEST_HZ) & (hz < HIGHEST_HZ)
    if not present.any():
        return np.zeros_like(target)
    present &= hz < hz[present].max() * _CUTOFF_MARGIN
    louder = target[present].sum() / source[present].sum()
    gain = np.zeros_like(target)
    gain[present] = np.float32(0.5) * np.log(target[present] / (source[present] * louder))
    smooth = np.convolve(gain, np.full(3, 1 / 3, np.float32), "same")
    return smooth.clip(-_MAX_LOG_GAIN, _MAX_LOG_GAIN).astype(np.float32)


LEVEL = 0.07
"""RMS of the codec's training speech."""
MIN_SOUND_S = 0.5
"""Minimum seconds of sound in a reference."""
MIN_RETAINED = 0.88
"""Recordings with a lower retained share are outside the voice's range: see `retained_share`."""
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
"""Sentences that are in no test set. They contain every English phone except the vowel of "boy" and the s of "measure"."""
CORRECTION = 0.6
"""Share of a measured difference that is corrected: a larger share would fit the random variation of eight sentences."""
_SILENCE_RATIO = 0.01
_MARGIN_S = 0.15
_MIN_REFERENCE_S = 3.0
_MAX_SENTENCE_FRAMES = 160
"""Maximum frames of a sentence (7 s): twice its usual length."""
_TELEPHONE_HZ = 4000.0
_HIGH_BAND_DB = -50.0
_BAND_EDGE_SHARE = 1e-4
"""Maximum shares of the power below and above the band; both exceed the quantization noise of 8-bit mu-law."""


@dataclass(frozen=True)
class TelephoneBand:
    """Pass band of a telephone recording, in whole Hz."""

    low: float
    high: float


def telephone_band(samples: Samples, rate: int) -> TelephoneBand | None:
    """Find the pass band of a mono recording; return None if the power above 4 kHz is over -50 dB relative to that below."""
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

    statistics: Floats
    """(STATISTICS * latent,): see `speaker_statistics`."""
    powers: Floats | None
    """(2, bands) of the recordings and their copies, see `powers`; None for a training speaker."""
    band: TelephoneBand | None = None
    """The pass band, if all recordings are telephone recordings."""

    def to_bytes(self) -> bytes:
        """Serialize statistics, powers and band edges (0 and 0 for none) as little-endian floats."""
        edges = (self.band.low, self.band.high) if self.band else (0.0, 0.0)
        powers = () if self.powers is None else self.powers.ravel()
        return np.concatenate([self.statistics, powers, edges]).astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, packed: bytes, width: int, bands: int) -> SpeakerProfile | None:
        """Deserialize `to_bytes` with `width` statistics and `bands` powers; return None if the length does not match."""
        if len(packed) != 4 * (width + 2 * bands + 2):
            return None
        values = np.frombuffer(packed, "<f4").astype(np.float32)
        low, high = values[-2:].tolist()
        return cls(values[:width], values[width:-2].reshape(2, bands), TelephoneBand(low, high) if high else None)


@dataclass(frozen=True)
class _Encoded:
    """Measurements of one reference recording."""

    latents: Floats
    """(n, latent), quantized."""
    powers: Floats
    """(2, bands): see `powers`."""
    band: TelephoneBand | None
    notes: tuple[str, ...]


class References:
    """Measures speakers from references; recent references are cached."""

    def __init__(self, codec: SpeechCodec) -> None:
        self._codec = codec
        self._encoded = EncodedReferences(self._encode, codec.config.sample_rate)

    def speaker(self, references: Sequence[ReferenceAudio]) -> SpeakerProfile:
        """Measure one speaker from all references; their order does not matter.

        Raises:
            RequestInvalid: a reference is not audio or has no sound; the error names the field and its index.
        """
        pairs = zip(references, self._encoded(references), strict=True)
        ordered = [encoded for _, encoded in sorted(pairs, key=lambda pair: hashlib.sha256(pair[0].audio).digest())]
        latents = np.concatenate([encoded.latents for encoded in ordered])
        lengths = [len(encoded.latents) for encoded in ordered]
        powers = np.average([encoded.powers for encoded in ordered], 0, lengths).astype(np.float32)
        bands = [encoded.band for encoded in ordered if encoded.band is not None]
        all_over = len(bands) == len(ordered)
        band = TelephoneBand(min(b.low for b in bands), max(b.high for b in bands)) if all_over else None
        return SpeakerProfile(speaker_statistics(latents), powers, band)

    def notes(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """Describe problems with references as user-facing notes. Raises the same errors as `speaker`."""
        return tuple(
            f"reference {i + 1}: {note}"
            for i, encoded in enumerate(self._encoded(references))
            for note in encoded.notes
        )

    def _encode(self, samples: Samples) -> _Encoded:
        rate = self._codec.config.sample_rate
        samples = level(samples, rate)
        latents, quantized = encode_speech(self._codec, samples)
        speaker_powers = powers(self._codec, samples, quantized)
        band = telephone_band(samples, rate)
        retained = retained_share(latents, quantized)
        return _Encoded(
            quantized, speaker_powers, band, reference_notes(samples.size / rate, retained, narrow=band is not None)
        )


def encode_speech(codec: SpeechCodec, samples: Samples) -> tuple[Floats, Floats]:
    """Encode speech at `LEVEL` and the codec's rate; return the latents (n, latent) before and after quantization."""
    latents = codec.latents(samples)
    return latents, codec.dequantize(codec.quantize(latents))


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


def retained_share(latents: Floats, quantized: Floats) -> float:
    """Compute the share of a recording's variance that the codebooks retain: 1 if all is retained, 0 or less if none is.

    The share is 1 minus the ratio of the energy of the quantization error to the energy of the latents around their mean. It
    is .91 to .97 for speakers similar to the training data, even over a telephone or in noise, because the encoder is robust
    to both. It is .89 to .94 for other speakers, .83 for white noise alone, and below 0 for chords and tones.

    Args:
        latents: (n, latent) encoder output.
        quantized: (n, latent) encoder output after quantization.
    """
    spread = float(np.square(latents - latents.mean(0)).sum())
    lost = float(np.square(latents - quantized).sum())
    return 1.0 - lost / spread if spread > 0 else 0.0


def reference_notes(seconds: float, retained: float, *, narrow: bool) -> tuple[str, ...]:
    """Describe the problems of a reference recording; return () if it has none.

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


def similarity(speaker: Floats, target: Floats, voices: Floats) -> float:
    """Compute the similarity of two speakers: 1 for the same speaker, 0 at the mean distance between preset voices.

    The similarity is 1 minus the ratio of two distances between speaker embeddings of the language model: that of the two
    speakers, and the mean between the checkpoint's voices. It is at most 1, and negative for greater distances. Recordings
    of one speaker with different texts score below 1, and shorter ones lower: .67 to .84 for 3 s, .78 to .88 for 9 s.
    Different speakers scored 0 on average and at most .75.

    Args:
        speaker: (width,) speaker embedding from `LanguageModel.encode_speaker`.
        target: (width,) embedding to compare it to.
        voices: (voices, width) embeddings of the checkpoint's voices; with fewer than two distinct ones the result is 0.
    """
    first, second = np.triu_indices(len(voices), 1)
    mean_distance = float(np.linalg.norm(voices[first] - voices[second], axis=1).mean()) if len(first) else 0.0
    return 1.0 - float(np.linalg.norm(speaker - target)) / mean_distance if mean_distance > 0 else 0.0


@dataclass(frozen=True)
class SpeakerFit:
    """Model inputs fitted to a speaker."""

    target: Floats
    """(STATISTICS * latent,) statistics of the speaker's speech, compensated for a telephone channel."""
    conditioning: Floats
    """(STATISTICS * latent,) statistics that condition the language model to match `target`."""
    gain: Floats | None = None
    """(bands,) log gains of the vocoder; None for a training speaker, and for a telephone reference."""


class SpeakerFitter:
    """Fits speakers to a language model; recent fits are cached.

    Args:
        codec: the checkpoint's codec.
        read: converts a sentence to phones.
    """

    def __init__(self, codec: SpeechCodec, read: Callable[[str], Phonemes]) -> None:
        self._codec, self._read = codec, read
        self._fits: Memo[SpeakerFit] = Memo(MAX_CACHED_REFERENCES)

    def fit(self, speaker: SpeakerProfile, scheduler: Scheduler, decoding: DecodingThread) -> SpeakerFit:
        """Fit a speaker to the scheduler's model. The result depends only on the speaker and the weights.

        Raises:
            EngineError: the engine is closed or has failed.
        """
        if speaker.powers is None:
            return SpeakerFit(speaker.statistics, speaker.statistics)
        key = (scheduler, speaker.to_bytes())
        return self._fits.get(key, partial(self._fit, speaker, speaker.powers, scheduler, decoding))

    def _fit(
        self, speaker: SpeakerProfile, speaker_powers: Floats, scheduler: Scheduler, decoding: DecodingThread
    ) -> SpeakerFit:
        target = self._without_telephone(speaker, scheduler, decoding)
        codes = self._synthesize(target, scheduler)
        difference = target - self._statistics(codes)
        conditioning = _valid(target + CORRECTION * difference)
        if speaker.band is not None:  # the spectrum is the channel's, not the speaker's
            return SpeakerFit(target, conditioning)
        return SpeakerFit(target, conditioning, decoding.do(partial(self._gain, speaker_powers, codes), len(codes)))

    def _without_telephone(self, speaker: SpeakerProfile, scheduler: Scheduler, decoding: DecodingThread) -> Floats:
        """Return the statistics without the effect of a telephone channel, which is estimated from the model's speech."""
        if speaker.band is None:
            return speaker.statistics
        codes = self._synthesize(speaker.statistics, scheduler)
        try:
            narrow = decoding.do(partial(self._over_telephone, codes, speaker.band), len(codes))
        except AudioError:  # the band-limited sentences are silent
            return speaker.statistics
        return _valid(speaker.statistics - (narrow - self._statistics(codes)))

    def _synthesize(self, conditioning: Floats, scheduler: Scheduler) -> Codes:
        """Synthesize all sentences in one batch; return their concatenated codes (n, codebooks)."""
        sequences = []
        for seed, text in enumerate(SENTENCES):
            sequence = SpokenSequence(SpeakerFit(conditioning, conditioning), Settings(), seed, _MAX_SENTENCE_FRAMES)
            sequence.wake_at = _MAX_SENTENCE_FRAMES
            sequence.add(self._read(text))
            sequence.finish()
            sequences.append(sequence)
        scheduler.submit(*sequences)
        frames = [frame.codes for sequence in sequences for frame in sequence.frames() if frame.codes is not None]
        return np.stack(frames)

    def _gain(self, speaker_powers: Floats, codes: Codes) -> Floats:
        """Compute the vocoder's gains from the `powers` of the speaker's recordings and from synthesized codes."""
        (recorded, copied), rate = speaker_powers, self._codec.config.sample_rate
        generated = mean_power(self._decode(codes), self._codec.config)
        return gain_of(recorded, copied, rate) + CORRECTION * gain_of(copied, generated, rate)

    def _statistics(self, codes: Codes) -> Floats:
        return speaker_statistics(self._codec.dequantize(codes))

    def _decode(self, codes: Codes) -> Samples:
        return self._codec.open().feed(codes, final=True)

    def _over_telephone(self, codes: Codes, band: TelephoneBand) -> Floats:
        """Decode codes, limit the band, and return the statistics of the result."""
        rate = self._codec.config.sample_rate
        samples = limit_band(self._decode(codes), rate, band)
        return speaker_statistics(encode_speech(self._codec, level(samples, rate))[1])


def _valid(statistics: Floats) -> Floats:
    """Limit standard deviations and mean changes to non-negative values."""
    means = statistics.size // STATISTICS
    return np.concatenate([statistics[:means], statistics[means:].clip(min=0)])
