"""How well a cloned voice keeps who is speaking, from clean references and from spoiled, short and long ones.

    python bench/clone.py --speakers 100                     the embedded voice, on held-out virtual speakers
    python bench/clone.py --conditions clean,noise --speakers 20
    python bench/clone.py --conditions clean --words          and the words of clones, by Whisper base
    python bench/clone.py --recordings anna ben carl          real people: a folder of recordings of each
    python bench/clone.py --pairs ref1.wav=said1.wav ref2.wav=said2.wav

The speakers are the teacher's stock voices that training never heard, the blends that it never heard, and further blends, of
which those voices may be a part, and which have at most 1 - `UNLIKE` in common with any blend of training. Who speaks is
judged by Resemblyzer, which had no part in training: `first` is how often a clone is nearest to its own speaker's clean
reference among those of all speakers, `cosine` how near, beside what the teacher's own speech in the same words reaches
(`same_voice`) and what other speakers do (`others`). `--encoder` names another encoder that is installed as a plugin.

F0 error is between median pitches, in semitones. Spectrum distance is the root mean square difference, in dB, of the mel
spectra averaged over the loud frames, after their mean levels are made equal. `pace_follows` and `range_follows` are
rank correlations over speakers of the clones' durations and spreads of F0 with the teacher's in the same sentences;
`range_follows_themselves` is that of the teacher's spreads in the references, other words, with those in the sentences.
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
from voicelab.experiments.metrics import SpeakerEncoder, Tools
from voicelab.experiments.metrics.models import encoder_of

BANDS, TOP_HZ = 40, 7600.0
"""Mel bands of the long-term spectrum, up to what a recording at 16 kHz has."""
LOUD_DB = 30.0
"""Frames this far below the loudest are pauses and say nothing about the speaker."""
REFERENCE_S = 12.0
UNLIKE, SEED = 0.3, 32
"""Share of a further blend that no single blend of training has; what they are drawn from."""
Recipe = tuple[tuple[str, float], ...]
Samples = NDArray[np.float32]


def noisy(samples: Samples, rate: int, snr_db: float = 10.0) -> Samples:
    """Add pink noise, `snr_db` below the mean power of the whole."""
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(samples.size))
    spectrum[1:] /= np.sqrt(np.arange(1, spectrum.size) / rate)
    noise = np.fft.irfft(spectrum, samples.size)
    noise *= np.sqrt(np.mean(np.square(samples)) / np.mean(np.square(noise))) * 10 ** (-snr_db / 20)
    return (samples + noise).astype(np.float32)


def roomy(samples: Samples, rate: int, seconds: float = 0.5) -> Samples:
    """Add a tail as loud as the voice itself, which falls by 60 dB in `seconds`: a living room from two metres away."""
    time = np.arange(round(seconds * rate)) / rate
    tail = np.random.default_rng(0).standard_normal(time.size) * 10 ** (-3 * time / seconds)
    wet = fftconvolve(samples, tail)[: samples.size]
    wet *= np.sqrt(np.mean(np.square(samples)) / np.mean(np.square(wet)))
    heard = samples + wet
    return np.asarray(heard * np.abs(samples).max() / np.abs(heard).max(), np.float32)


def telephone(samples: Samples, rate: int) -> Samples:
    """Keep 300 to 3,400 Hz and go through 8 kHz and the 8 bits of mu-law."""
    narrow = np.clip(soxr.resample(samples, rate, 8000), -1, 1)
    hz, spectrum = np.fft.rfftfreq(narrow.size, 1 / 8000), np.fft.rfft(narrow)
    narrow = np.fft.irfft(np.where((hz > 300) & (hz < 3400), spectrum, 0), narrow.size)
    level = np.round(np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256) * 127) / 127
    said: Samples = soxr.resample(np.sign(level) * np.expm1(np.abs(level) * np.log(256)) / 255, 8000, rate)
    return said.astype(np.float32)


CONDITIONS: dict[str, tuple[float, Callable[[Samples, int], Samples] | None]] = {
    "clean": (REFERENCE_S, None),
    "noise": (REFERENCE_S, noisy),
    "room": (REFERENCE_S, roomy),
    "telephone": (REFERENCE_S, telephone),
    "short": (3.0, None),
    "long": (60.0, None),
}
"""Seconds of the reference, and what happens to it."""


@dataclass(frozen=True)
class Portrait:
    """What a voice sounds like, in two measurements."""

    pitch: float
    """Median F0 in semitones above 1 Hz."""
    spectrum: NDArray[np.float64]
    """(BANDS,) dB, mean 0."""
    range: float = 0.0
    """Interquartile range of F0 in semitones."""


def portrait(clip: Clip) -> Portrait:
    """Measure a clip of a few seconds."""
    db = mel(clip, bands=BANDS, fmin=60.0, fmax=TOP_HZ).db
    loudness = 10 * np.log10(np.power(10, db / 10).sum(0))
    loud = db[:, loudness > loudness.max() - LOUD_DB]
    spectrum = 10 * np.log10(np.power(10, loud / 10).mean(1))
    pitch = f0(clip)
    hz = pitch.values[np.isfinite(pitch.values)]
    low, high = np.percentile(hz, (25, 75)) if hz.size else (1.0, 1.0)
    return Portrait(12 * float(np.log2(pitch.median)), spectrum - spectrum.mean(), 12 * float(np.log2(high / low)))


def pitch_error(a: Portrait, b: Portrait) -> float:
    """Return the distance of two pitches in semitones; NaN when one has no voiced frame."""
    return abs(a.pitch - b.pitch)


def spectrum_distance(a: Portrait, b: Portrait) -> float:
    """Return the distance of two long-term spectra in dB."""
    return float(np.sqrt(np.mean((a.spectrum - b.spectrum) ** 2)))


def ranks(references: Sequence[Portrait], said: Sequence[Portrait]) -> list[int]:
    """Return for each synthesized voice the rank of its own reference among all (0 is nearest).

    ``said[i]`` belongs to ``references[i]``; further references are distractors. Both distances are divided by
    their median over pairs of references, so that neither rules the other.
    """
    pitches = np.array([[pitch_error(s, r) for r in references] for s in said])
    spectra = np.array([[spectrum_distance(s, r) for r in references] for s in said])
    upper = [(a, b) for i, a in enumerate(references) for b in references[:i]]
    pitch_scale = float(np.median([pitch_error(a, b) for a, b in upper])) if upper else 1.0
    spectrum_scale = float(np.median([spectrum_distance(a, b) for a, b in upper])) if upper else 1.0
    # A voice without pitch is far from everyone.
    distance = np.hypot(np.nan_to_num(pitches, nan=100.0) / (pitch_scale or 1.0), spectra / (spectrum_scale or 1.0))
    return [int((row < row[i]).sum()) for i, row in enumerate(distance)]


def likeness(references: Sequence[Portrait], said: Sequence[Portrait]) -> dict[str, Any]:
    """Return the figures for matching pairs, beside what any two different voices would get."""
    count = len(said)
    others = [(s, r) for i, s in enumerate(said) for j, r in enumerate(references) if i != j]
    places = ranks(references, said)

    def median(values: Sequence[float]) -> float | None:
        known = [value for value in values if np.isfinite(value)]
        return round(float(np.median(known)), 3) if known else None

    return {
        "f0_error_semitones": median([pitch_error(s, r) for s, r in zip(said, references, strict=False)]),
        "f0_error_others": median([pitch_error(s, r) for s, r in others]),
        "spectrum_db": median([spectrum_distance(s, r) for s, r in zip(said, references, strict=False)]),
        "spectrum_db_others": median([spectrum_distance(s, r) for s, r in others]),
        "candidates": len(references),
        "first": round(sum(place == 0 for place in places) / count, 3),
        "in_five": round(sum(place < 5 for place in places) / count, 3),
    }


@lru_cache(maxsize=1)
def _encoder(name: str) -> SpeakerEncoder:
    return encoder_of(Tools(encoder=name))


def embedding(clip: Clip, encoder: str) -> NDArray[np.float64]:
    """Return the encoder's numbers for a clip, of length 1."""
    vector = np.asarray(_encoder(encoder).embed(clip.samples, clip.rate), np.float64)
    return vector / np.linalg.norm(vector)


def by_ear(
    references: Sequence[Clip], said: Sequence[Clip], teachers: Sequence[Clip], encoder: str = "resemblyzer"
) -> dict[str, float]:
    """Return what the encoder says of clones whose `said[i]` belongs to ``references[i]`` and ``teachers[i]``."""
    own_voices, ours, theirs = (
        np.stack([embedding(clip, encoder) for clip in clips]) for clips in (references, said, teachers)
    )
    ours, theirs = ours @ own_voices.T, theirs @ own_voices.T
    own = np.arange(len(said))
    other = np.eye(len(said), len(references)) == 0
    return {
        "first": round(float(np.mean(ours.argmax(1) == own)), 3),
        "in_five": round(float(np.mean((ours > ours[own, own][:, None]).sum(1) < 5)), 3),
        "cosine": round(float(ours[own, own].mean()), 3),
        "others": round(float(ours[other].mean()), 3),
        "same_voice": round(float(theirs[own, own].mean()), 3),
        "same_voice_first": round(float(np.mean(theirs.argmax(1) == own)), 3),
    }


def follows(said: Sequence[float], teachers: Sequence[float]) -> float:
    """Return Spearman's rank correlation; NaN for less than three pairs."""
    from scipy.stats import spearmanr

    return round(float(spearmanr(said, teachers).statistic), 3) if len(said) > 2 else float("nan")


@dataclass(frozen=True)
class Target:
    """A held-out speaker: one long reference, and what a clone ought to sound like."""

    reference: Clip
    """As long as the longest condition asks."""
    said: tuple[Clip, ...]
    """The test sentences by the speaker himself."""


def _joined(clips: Sequence[Clip]) -> Clip:
    return Clip(samples=np.concatenate([clip.samples for clip in clips]), rate=clips[0].rate)


def _in_common(a: Recipe, b: Recipe) -> float:
    """The share of a blend that another one has too."""
    other = dict(b)
    return sum(min(weight, other.get(voice, 0.0)) for voice, weight in a)


def further(count: int) -> list[Recipe]:
    """Draw blends, pairs and triples as training's are, of all voices, those that were held out too."""
    corpus, rng = teaching.training("plan"), np.random.default_rng(SEED)
    pool, trained = [*corpus.STOCK, *corpus.MORE, *corpus.HELD_OUT_STOCK], corpus.blends()[: corpus.BLENDS]
    drawn: list[Recipe] = []
    while len(drawn) < count:
        parts = 2 if rng.random() < 0.65 else 3
        voices = [str(voice) for voice in rng.choice(pool, size=parts, replace=False)]
        first = float(rng.uniform(0.35, 0.65))
        weights = [first, 1 - first] if parts == 2 else rng.dirichlet([4.0] * 3).tolist()
        recipe = tuple(zip(voices, weights, strict=True))
        if min(weights) > 0.05 and all(_in_common(recipe, other) <= 1 - UNLIKE for other in trained):
            drawn.append(recipe)
    return drawn


def held_out(count: int) -> list[Recipe]:
    """Return the first `count` speakers that training never heard: stock voices, its own held-out blends, further ones."""
    corpus = teaching.training("plan")
    alone = [((voice, 1.0),) for voice in corpus.HELD_OUT_STOCK]
    kept = [*alone, *corpus.blends()[corpus.BLENDS :]]
    return [*kept, *further(max(0, count - len(kept)))][:count]


def _said(recipe: Recipe, text: str) -> Clip:
    samples, rate = teaching.blend(recipe, text)
    return Clip(samples=samples, rate=rate)


def targets(count: int, seconds: float, texts: Sequence[str]) -> list[Target]:
    """Return `count` speakers that training never heard; what they say is kept, see `systems`."""
    others, every = systems.sentences(300)[::-1], []
    for recipe in held_out(count):
        parts: list[Clip] = []
        while sum(part.duration for part in parts) < seconds:
            parts.append(_said(recipe, others[len(parts)]))
        every.append(Target(_joined(parts), tuple(_said(recipe, text) for text in texts)))
    return every


def recorded(folder: Path, seconds: float) -> Target:
    """Return a real speaker: `seconds` of the folder's recordings, in order of name, and what comes after them."""
    clips = [Clip.load(path) for path in sorted(folder.iterdir()) if path.is_file()]
    parts = list(clips[:1])
    while sum(part.duration for part in parts) < seconds and len(parts) < len(clips) - 1:
        parts.append(clips[len(parts)])
    return Target(_joined(parts), tuple(clips[len(parts) :]))


def score(text: str, clip: Clip) -> stats.Score:
    """Count the words of `text` that Whisper misses in `clip`."""
    return judges.errors(text, judges.hear(judges.levelled(clip.samples), clip.rate).words)


def condition(
    name: str, speakers: Sequence[Target], texts: Sequence[str], encoder: str, *, listen: bool
) -> dict[str, Any]:
    """Clone the speakers under one of the CONDITIONS and return the figures; `listen` adds the words."""
    from voicelab.schema import ReferenceAudio

    seconds, spoil = CONDITIONS[name]
    clones: list[list[Clip]] = []
    for target in speakers:
        rate = target.reference.rate
        samples = target.reference.samples[: int(seconds * rate)]
        heard = Clip(samples=spoil(samples, rate) if spoil else samples, rate=rate)
        audio = ReferenceAudio(audio=heard.to_bytes("wav"), text="")
        clones.append([systems.lab().speak(text, references=[audio], seed=systems.SEED) for text in texts])
    said, own = [_joined(clips) for clips in clones], [_joined(target.said) for target in speakers]
    clean = [
        Clip(samples=t.reference.samples[: int(REFERENCE_S * t.reference.rate)], rate=t.reference.rate)
        for t in speakers
    ]
    ours, theirs, known = ([portrait(clip) for clip in clips] for clips in (said, own, clean))
    figures = {
        **by_ear(clean, said, own, encoder),
        **{k: v for k, v in likeness(known, ours).items() if k.startswith(("f0", "spectrum"))},
        "pace_follows": follows([clip.duration for clip in said], [clip.duration for clip in own]),
        "range_follows": follows([p.range for p in ours], [p.range for p in theirs]),
        "range_follows_themselves": follows([p.range for p in known], [p.range for p in theirs]),
    }
    if listen:
        pairs = [
            (t, c, o)
            for cs, target in zip(clones, speakers, strict=True)
            for t, c, o in zip(texts, cs, target.said, strict=True)
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
    parser.add_argument("--pairs", nargs="+", metavar="REFERENCE=SAID", help="audio files to compare instead")
    parser.add_argument("--recordings", nargs="+", type=Path, metavar="FOLDER", help="real speakers to clone instead")
    parser.add_argument("--speakers", type=int, default=100, help="how many virtual ones")
    parser.add_argument("--sentences", type=int, default=3, help="sentences that each clone says")
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help=f"of {', '.join(CONDITIONS)}")
    parser.add_argument("--words", action="store_true", help="word errors of clean clones too, by Whisper base")
    parser.add_argument("--encoder", default="resemblyzer", help="who tells speakers apart, by its plugin's name")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    started = time.perf_counter()
    if options.pairs:
        files = [pair.partition("=") for pair in options.pairs]
        references = [portrait(Clip.load(reference)) for reference, _, _ in files]
        figures: dict[str, Any] = likeness(references, [portrait(Clip.load(said)) for _, _, said in files])
    else:
        names, texts = options.conditions.split(","), systems.sentences(options.sentences)
        longest = max(CONDITIONS[name][0] for name in names)
        if options.recordings:
            speakers = [recorded(folder, longest) for folder in options.recordings]
        else:
            speakers = targets(options.speakers, longest, texts)
        figures = {"speakers": len(speakers), "sentences_each": len(texts), "encoder": options.encoder}
        figures["conditions"] = {
            name: condition(name, speakers, texts, options.encoder, listen=name == "clean" and options.words)
            for name in names
        }
    took = round(time.perf_counter() - started, 1)
    report({"figure": "likeness of cloned voices", **figures, "took_s": took, "machine": machine()})


if __name__ == "__main__":
    main()
