"""How well a cloned voice keeps who is speaking: pitch, long-term spectrum, and whether it is told from others.

    python bench/clone.py                                    the embedded voice, on held-out virtual speakers
    python bench/clone.py --pairs ref1.wav=said1.wav ref2.wav=said2.wav

F0 error is between median pitches, in semitones. Spectrum distance is the root mean square difference, in dB, of the
mel spectra averaged over the loud frames, after their mean levels are made equal. Identification asks which of all
references is nearest to the synthesized speech. The words of a clone are judged against the warped teacher's, since
the recognizer dislikes warped timbres as such.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import stats
import systems
from machine import machine, report
from numpy.typing import NDArray
from recognise import recognise, words

from voicelab.audio.analysis import f0, mel
from voicelab.audio.clip import Clip

ROOT = Path(__file__).resolve().parent.parent
BANDS, TOP_HZ = 40, 7600.0
"""Mel bands of the long-term spectrum, up to what the 16 kHz teachers can say."""
LOUD_DB = 30.0
"""Frames this far below the loudest are pauses and say nothing about the speaker."""
REFERENCE_S = 12.0


@dataclass(frozen=True)
class Portrait:
    """What a voice sounds like, in two measurements."""

    pitch: float
    """Median F0 in semitones above 1 Hz."""
    spectrum: NDArray[np.float64]
    """(BANDS,) dB, mean 0."""


def portrait(clip: Clip) -> Portrait:
    """Measure a clip of a few seconds."""
    db = mel(clip, bands=BANDS, fmin=60.0, fmax=TOP_HZ).db
    loudness = 10 * np.log10(np.power(10, db / 10).sum(0))
    loud = db[:, loudness > loudness.max() - LOUD_DB]
    spectrum = 10 * np.log10(np.power(10, loud / 10).mean(1))
    return Portrait(12 * float(np.log2(f0(clip).median)), spectrum - spectrum.mean())


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


@dataclass(frozen=True)
class Recording:
    """A clip and its transcript."""

    text: str
    clip: Clip


def _teachers(count: int, distractors: int, sentences: int) -> tuple[list[Recording], list[list[Recording]]]:
    """References of `count` held-out speakers and `distractors` others, and what the first ones should say."""
    sys.path.insert(0, str(ROOT))  # training is a package of the repository, not an installed one
    from training.render import RATE, build_teacher, speak
    from training.speakers import HELD_OUT, all_speakers

    everyone = all_speakers()
    chosen = everyone[-HELD_OUT:][:count]
    step = max(1, (len(everyone) - HELD_OUT) // max(1, distractors))
    others = everyone[: len(everyone) - HELD_OUT : step][:distractors]
    program = build_teacher(ROOT / "data" / "bench")
    texts = systems.sentences(300)
    references = []
    for speaker in [*chosen, *others]:
        said, samples = [], np.zeros(0, np.float32)
        for found in speak(program, [(text, speaker) for text in texts[-12:]]):
            if samples.size < REFERENCE_S * RATE:
                samples = np.concatenate([samples, found.audio(speaker)])
                said.append(found.text)
        references.append(Recording(" ".join(said), Clip(samples=samples, rate=RATE)))
    should = [
        [
            Recording(found.text, Clip(samples=found.audio(speaker), rate=RATE))
            for found in speak(program, [(text, speaker) for text in texts[:sentences]])
        ]
        for speaker in chosen
    ]
    return references, should


def score(text: str, clip: Clip) -> stats.Score:
    """Count the words of `text` that the recognizer misses in `clip`."""
    return stats.word_errors(words(text), words(recognise(clip.samples, clip.rate)))


def heldout(count: int, distractors: int, sentences: int) -> dict[str, Any]:
    """Clone held-out virtual speakers with the embedded voice and measure the clones."""
    from voicelab.schema import ReferenceAudio

    references, should = _teachers(count, distractors, sentences)
    portraits, clone_scores, teacher_scores = [], [], []
    for reference, rows in zip(references, should, strict=False):
        audio = ReferenceAudio(audio=reference.clip.to_bytes("wav"), text=reference.text)
        texts = [row.text for row in rows]
        clips = [systems.lab().speak(text, references=[audio], seed=systems.SEED) for text in texts]
        portraits.append(portrait(Clip(samples=np.concatenate([c.samples for c in clips]), rate=clips[0].rate)))
        clone_scores += [score(text, clip) for text, clip in zip(texts, clips, strict=True)]
        teacher_scores += [score(row.text, row.clip) for row in rows]
    return {
        "speakers": len(portraits),
        "sentences_each": sentences,
        **likeness([portrait(reference.clip) for reference in references], portraits),
        "wer": stats.rate_interval(clone_scores).rounded(),
        "wer_teacher": stats.rate_interval(teacher_scores).rounded(),
        "wer_ratio": stats.ratio(clone_scores, teacher_scores).rounded(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", metavar="REFERENCE=SAID", help="audio files to compare instead")
    parser.add_argument("--speakers", type=int, default=8)
    parser.add_argument("--distractors", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=6, help="sentences that each clone says")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    started = time.perf_counter()
    if options.pairs:
        files = [pair.partition("=") for pair in options.pairs]
        references = [portrait(Clip.load(reference)) for reference, _, _ in files]
        figures: dict[str, Any] = likeness(references, [portrait(Clip.load(said)) for _, _, said in files])
    else:
        figures = heldout(options.speakers, options.distractors, options.sentences)
    took = round(time.perf_counter() - started, 1)
    report({"figure": "likeness of cloned voices", **figures, "took_s": took, "machine": machine()})


if __name__ == "__main__":
    main()
