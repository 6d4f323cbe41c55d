"""Speaker similarity and identification of cloned voices, by reference condition: clean, degraded, short and long.

    python bench/clone.py --speakers 100                     the embedded voice, on held-out virtual speakers
    python bench/clone.py --conditions clean,noise --speakers 20
    python bench/clone.py --conditions clean --words          plus WER of the clones by Whisper base
    python bench/clone.py --recordings anna ben carl          real people: a folder of recordings of each
    python bench/clone.py --pairs ref1.wav=clone1.wav ref2.wav=clone2.wav

The speakers are stock voices and blends of the teacher that are held out of training, and further blends that share at
most 1 - `UNLIKE` of their weights with any training blend. Speaker similarity is by Resemblyzer, not used in training:
`first` and `in_five` are top-1 and top-5 identification of a clone among the clean references of all speakers, `cosine` the
mean similarity to its own reference, compared with the teacher's own speech of the same sentences (`same_voice`) and with
other speakers (`others`). `--encoder` selects another encoder, installed as a plugin.

F0 error is the difference of median pitches in semitones. Spectral distance is the RMS difference in dB of mel spectra
averaged over loud frames, after level normalization. `pace_follows` and `range_follows` are rank correlations over speakers
of duration and F0 range between the clones and the teacher in the same sentences; `range_follows_themselves` is that of the
teacher's F0 range between references (other texts) and sentences.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import judges
import numpy as np
import soxr
import stats
import systems
import teaching
from machine import machine, report
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from voicelab.audio.analysis import f0, mel
from voicelab.clip import Clip
from voicelab.metrics import SpeakerEncoder, Tools
from voicelab.metrics.models import encoder_of

BANDS, TOP_HZ = 40, 7600.0
"""Mel bands of the long-term spectrum, and upper limit for recordings at 16 kHz."""
LOUD_DB = 30.0
"""Frames more than this below the loudest frame are excluded as pauses."""
REFERENCE_S = 12.0
UNLIKE, SEED = 0.3, 32
"""Minimum share of a further blend not in any training blend, and random seed."""
Recipe = tuple[tuple[str, float], ...]
Samples = NDArray[np.float32]


def add_noise(samples: Samples, rate: int, snr_db: float = 10.0) -> Samples:
    """Add pink noise at an SNR of `snr_db`."""
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(samples.size))
    spectrum[1:] /= np.sqrt(np.arange(1, spectrum.size) / rate)
    noise = np.fft.irfft(spectrum, samples.size)
    noise *= np.sqrt(np.mean(np.square(samples)) / np.mean(np.square(noise))) * 10 ** (-snr_db / 20)
    return (samples + noise).astype(np.float32)


def reverberate(samples: Samples, rate: int, seconds: float = 0.5) -> Samples:
    """Add exponentially decaying noise reverberation with T60 = `seconds`, at the level of the dry signal."""
    time = np.arange(round(seconds * rate)) / rate
    tail = np.random.default_rng(0).standard_normal(time.size) * 10 ** (-3 * time / seconds)
    wet = fftconvolve(samples, tail)[: samples.size]
    wet *= np.sqrt(np.mean(np.square(samples)) / np.mean(np.square(wet)))
    mixed = samples + wet
    return np.asarray(mixed * np.abs(samples).max() / np.abs(mixed).max(), np.float32)


def telephone(samples: Samples, rate: int) -> Samples:
    """Simulate a telephone channel: 300 to 3,400 Hz, 8 kHz, 8-bit mu-law."""
    narrow = np.clip(soxr.resample(samples, rate, 8000), -1, 1)
    hz, spectrum = np.fft.rfftfreq(narrow.size, 1 / 8000), np.fft.rfft(narrow)
    narrow = np.fft.irfft(np.where((hz > 300) & (hz < 3400), spectrum, 0), narrow.size)
    level = np.round(np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256) * 127) / 127
    restored: Samples = soxr.resample(np.sign(level) * np.expm1(np.abs(level) * np.log(256)) / 255, 8000, rate)
    return restored.astype(np.float32)


CONDITIONS: dict[str, tuple[float, Callable[[Samples, int], Samples] | None]] = {
    "clean": (REFERENCE_S, None),
    "noise": (REFERENCE_S, add_noise),
    "room": (REFERENCE_S, reverberate),
    "telephone": (REFERENCE_S, telephone),
    "short": (3.0, None),
    "long": (60.0, None),
}
"""Duration of the reference in seconds, and its degradation."""


@dataclass(frozen=True)
class Portrait:
    """Pitch and long-term spectrum of a voice."""

    pitch: float
    """Median F0 in semitones above 1 Hz."""
    spectrum: NDArray[np.float64]
    """(BANDS,) dB, mean 0."""
    range: float = 0.0
    """Interquartile range of F0 in semitones."""


def portrait(clip: Clip) -> Portrait:
    """Compute the portrait of a clip of a few seconds."""
    db = mel(clip, bands=BANDS, fmin=60.0, fmax=TOP_HZ).db
    loudness = 10 * np.log10(np.power(10, db / 10).sum(0))
    loud = db[:, loudness > loudness.max() - LOUD_DB]
    spectrum = 10 * np.log10(np.power(10, loud / 10).mean(1))
    pitch = f0(clip)
    hz = pitch.values[np.isfinite(pitch.values)]
    low, high = np.percentile(hz, (25, 75)) if hz.size else (1.0, 1.0)
    return Portrait(12 * float(np.log2(pitch.median)), spectrum - spectrum.mean(), 12 * float(np.log2(high / low)))


def pitch_error(a: Portrait, b: Portrait) -> float:
    """Compute the difference of two pitches in semitones; NaN if one has no voiced frame."""
    return abs(a.pitch - b.pitch)


def spectrum_distance(a: Portrait, b: Portrait) -> float:
    """Compute the RMS distance of two long-term spectra in dB."""
    return float(np.sqrt(np.mean((a.spectrum - b.spectrum) ** 2)))


def ranks(references: Sequence[Portrait], clones: Sequence[Portrait]) -> list[int]:
    """Return the rank (from 0) of each clone's own reference among all references.

    ``clones[i]`` belongs to ``references[i]``; further references are distractors. Pitch and spectral distances are
    normalized by their medians over pairs of references.
    """
    pitches = np.array([[pitch_error(s, r) for r in references] for s in clones])
    spectra = np.array([[spectrum_distance(s, r) for r in references] for s in clones])
    upper = [(a, b) for i, a in enumerate(references) for b in references[:i]]
    pitch_scale = float(np.median([pitch_error(a, b) for a, b in upper])) if upper else 1.0
    spectrum_scale = float(np.median([spectrum_distance(a, b) for a, b in upper])) if upper else 1.0
    # An unvoiced clip has the maximum pitch distance.
    distance = np.hypot(np.nan_to_num(pitches, nan=100.0) / (pitch_scale or 1.0), spectra / (spectrum_scale or 1.0))
    return [int((row < row[i]).sum()) for i, row in enumerate(distance)]


def portrait_distances(references: Sequence[Portrait], clones: Sequence[Portrait]) -> dict[str, Any]:
    """Summarize distances of matching pairs and of non-matching pairs."""
    count = len(clones)
    mismatched = [(s, r) for i, s in enumerate(clones) for j, r in enumerate(references) if i != j]
    rank_of_clone = ranks(references, clones)

    def median(values: Sequence[float]) -> float | None:
        finite = [value for value in values if np.isfinite(value)]
        return round(float(np.median(finite)), 3) if finite else None

    return {
        "f0_error_semitones": median([pitch_error(s, r) for s, r in zip(clones, references, strict=False)]),
        "f0_error_others": median([pitch_error(s, r) for s, r in mismatched]),
        "spectrum_db": median([spectrum_distance(s, r) for s, r in zip(clones, references, strict=False)]),
        "spectrum_db_others": median([spectrum_distance(s, r) for s, r in mismatched]),
        "candidates": len(references),
        "first": round(sum(rank == 0 for rank in rank_of_clone) / count, 3),
        "in_five": round(sum(rank < 5 for rank in rank_of_clone) / count, 3),
    }


@lru_cache(maxsize=1)
def _encoder(name: str) -> SpeakerEncoder:
    return encoder_of(Tools(encoder=name))


def embedding(clip: Clip, encoder: str) -> NDArray[np.float64]:
    """Compute the L2-normalized speaker embedding of a clip."""
    vector = np.asarray(_encoder(encoder).embed(clip.samples, clip.rate), np.float64)
    return vector / np.linalg.norm(vector)


def identify_speakers(
    references: Sequence[Clip], clones: Sequence[Clip], teachers: Sequence[Clip], encoder: str = "resemblyzer"
) -> dict[str, float]:
    """Compute identification and similarity; ``clones[i]`` belongs to ``references[i]`` and ``teachers[i]``."""
    reference_vectors, ours, theirs = (
        np.stack([embedding(clip, encoder) for clip in clips]) for clips in (references, clones, teachers)
    )
    ours, theirs = ours @ reference_vectors.T, theirs @ reference_vectors.T
    target = np.arange(len(clones))
    mismatched = np.eye(len(clones), len(references)) == 0
    return {
        "first": round(float(np.mean(ours.argmax(1) == target)), 3),
        "in_five": round(float(np.mean((ours > ours[target, target][:, None]).sum(1) < 5)), 3),
        "cosine": round(float(ours[target, target].mean()), 3),
        "others": round(float(ours[mismatched].mean()), 3),
        "same_voice": round(float(theirs[target, target].mean()), 3),
        "same_voice_first": round(float(np.mean(theirs.argmax(1) == target)), 3),
    }


def rank_correlation(clones: Sequence[float], teachers: Sequence[float]) -> float:
    """Compute Spearman's rank correlation; NaN for fewer than three pairs."""
    from scipy.stats import spearmanr

    return round(float(spearmanr(clones, teachers).statistic), 3) if len(clones) > 2 else float("nan")


@dataclass(frozen=True)
class Target:
    """A held-out speaker: a long reference recording, and the test sentences."""

    reference: Clip
    """As long as the longest condition requires."""
    sentences: tuple[Clip, ...]
    """Test sentences by the speaker."""


def _joined(clips: Sequence[Clip]) -> Clip:
    return Clip(samples=np.concatenate([clip.samples for clip in clips]), rate=clips[0].rate)


def _overlap(a: Recipe, b: Recipe) -> float:
    """Return the shared weight of two blends."""
    weights = dict(b)
    return sum(min(weight, weights.get(voice, 0.0)) for voice, weight in a)


def draw_blends(count: int) -> list[Recipe]:
    """Draw blends of two or three voices like those of training, including held-out voices."""
    corpus, rng = teaching.training("plan"), np.random.default_rng(SEED)
    pool, trained = [*corpus.STOCK, *corpus.BLEND_VOICES, *corpus.HELD_OUT_STOCK], corpus.blends()[: corpus.BLENDS]
    drawn: list[Recipe] = []
    while len(drawn) < count:
        parts = 2 if rng.random() < 0.65 else 3
        voices = [str(voice) for voice in rng.choice(pool, size=parts, replace=False)]
        weight = float(rng.uniform(0.35, 0.65))
        weights = [weight, 1 - weight] if parts == 2 else rng.dirichlet([4.0] * 3).tolist()
        recipe = tuple(zip(voices, weights, strict=True))
        if min(weights) > 0.05 and all(_overlap(recipe, blend) <= 1 - UNLIKE for blend in trained):
            drawn.append(recipe)
    return drawn


def held_out(count: int) -> list[Recipe]:
    """Return `count` held-out speakers: stock voices, held-out blends, then further blends."""
    corpus = teaching.training("plan")
    stock = [((voice, 1.0),) for voice in corpus.HELD_OUT_STOCK]
    speakers = [*stock, *corpus.blends()[corpus.BLENDS :]]
    return [*speakers, *draw_blends(max(0, count - len(speakers)))][:count]


def _render(recipe: Recipe, text: str) -> Clip:
    samples, rate = teaching.blend(recipe, text)
    return Clip(samples=samples, rate=rate)


def targets(count: int, seconds: float, texts: Sequence[str]) -> list[Target]:
    """Render reference and test sentences of `count` held-out speakers (cached, see `teaching`)."""
    reference_texts, result = systems.sentences(300)[::-1], []
    for recipe in held_out(count):
        parts: list[Clip] = []
        while sum(part.duration for part in parts) < seconds:
            parts.append(_render(recipe, reference_texts[len(parts)]))
        result.append(Target(_joined(parts), tuple(_render(recipe, text) for text in texts)))
    return result


def load_target(folder: Path, seconds: float) -> Target:
    """Load a real speaker: `seconds` of the folder's recordings as reference, the others as test sentences."""
    clips = [Clip.load(path) for path in sorted(folder.iterdir()) if path.is_file()]
    parts = list(clips[:1])
    while sum(part.duration for part in parts) < seconds and len(parts) < len(clips) - 1:
        parts.append(clips[len(parts)])
    return Target(_joined(parts), tuple(clips[len(parts) :]))


def score(text: str, clip: Clip) -> stats.Score:
    """Count the word errors of Whisper on `clip`."""
    return judges.errors(text, judges.transcribe(judges.normalize_level(clip.samples), clip.rate).words)


def condition(
    name: str, speakers: Sequence[Target], texts: Sequence[str], encoder: str, *, listen: bool
) -> dict[str, Any]:
    """Clone the speakers under one of the CONDITIONS; `listen` adds WER."""
    from voicelab.schema import ReferenceAudio

    seconds, degrade = CONDITIONS[name]
    clones: list[list[Clip]] = []
    for target in speakers:
        rate = target.reference.rate
        samples = target.reference.samples[: int(seconds * rate)]
        degraded = Clip(samples=degrade(samples, rate) if degrade else samples, rate=rate)
        audio = ReferenceAudio(audio=degraded.to_bytes("wav"), text="")
        clones.append([systems.lab().speak(text, references=[audio], seed=systems.SEED) for text in texts])
    joined_clones, originals = [_joined(clips) for clips in clones], [_joined(target.sentences) for target in speakers]
    clean = [
        Clip(samples=t.reference.samples[: int(REFERENCE_S * t.reference.rate)], rate=t.reference.rate)
        for t in speakers
    ]
    ours, theirs, references = ([portrait(clip) for clip in clips] for clips in (joined_clones, originals, clean))
    figures = {
        **identify_speakers(clean, joined_clones, originals, encoder),
        **{k: v for k, v in portrait_distances(references, ours).items() if k.startswith(("f0", "spectrum"))},
        "pace_follows": rank_correlation(
            [clip.duration for clip in joined_clones], [clip.duration for clip in originals]
        ),
        "range_follows": rank_correlation([p.range for p in ours], [p.range for p in theirs]),
        "range_follows_themselves": rank_correlation([p.range for p in references], [p.range for p in theirs]),
    }
    if listen:
        pairs = [
            (t, c, o)
            for cs, target in zip(clones, speakers, strict=True)
            for t, c, o in zip(texts, cs, target.sentences, strict=True)
        ]
        cloned, taught = [score(t, c) for t, c, _ in pairs], [score(t, o) for t, _, o in pairs]
        figures["wer"], figures["wer_teacher"] = (
            stats.rate_interval(cloned).rounded(),
            stats.rate_interval(taught).rounded(),
        )
        figures["wer_ratio"] = stats.ratio(cloned, taught).rounded()
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", metavar="REFERENCE=CLONE", help="compare pairs of audio files instead")
    parser.add_argument("--recordings", nargs="+", type=Path, metavar="FOLDER", help="clone real speakers instead")
    parser.add_argument("--speakers", type=int, default=100, help="number of virtual speakers")
    parser.add_argument("--sentences", type=int, default=3, help="sentences per clone")
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help=f"comma-separated: {', '.join(CONDITIONS)}")
    parser.add_argument("--words", action="store_true", help="also measure WER of clean clones by Whisper base")
    parser.add_argument("--encoder", default="resemblyzer", help="speaker encoder, by plugin name")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    started = time.perf_counter()
    if options.pairs:
        files = [pair.partition("=") for pair in options.pairs]
        references = [portrait(Clip.load(reference)) for reference, _, _ in files]
        figures: dict[str, Any] = portrait_distances(references, [portrait(Clip.load(clone)) for _, _, clone in files])
    else:
        names, texts = options.conditions.split(","), systems.sentences(options.sentences)
        reference_s = max(CONDITIONS[name][0] for name in names)
        if options.recordings:
            speakers = [load_target(folder, reference_s) for folder in options.recordings]
        else:
            speakers = targets(options.speakers, reference_s, texts)
        figures = {"speakers": len(speakers), "sentences_each": len(texts), "encoder": options.encoder}
        figures["conditions"] = {
            name: condition(name, speakers, texts, options.encoder, listen=name == "clean" and options.words)
            for name in names
        }
    took = round(time.perf_counter() - started, 1)
    report({"figure": "speaker similarity of cloned voices", **figures, "took_s": took, "machine": machine()})


if __name__ == "__main__":
    main()
