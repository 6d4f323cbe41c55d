"""False rejection and false acceptance of transcripts by voice intake.

    python bench/transcripts.py --systems voice voice:clara flite:rms flite:slt --sentences 10

Held-out sentences rendered by systems of bench/; a match below the limit counts as doubted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import systems
from machine import machine, report
from numpy.typing import NDArray

from voicelab.asr.alignment import Aligner

LIMIT = 0.7
FOREIGN_TEXTS = (
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Ich habe gestern mit meiner Schwester im Garten gearbeitet.",
    "El perro corre por el parque todas las mañanas.",
    "No me gusta la comida que hay en la mesa.",
)
Sound = NDArray[np.float32]


def pairs(sound: Sound, text: str, next_text: str, foreign_text: str) -> Iterator[tuple[str, Sound, str]]:
    """Yield pairs of sound and text by kind; "right" pairs should be accepted, all others doubted."""
    words = text.split()
    power = float(np.mean(np.square(sound)))
    for snr in (20, 10):
        # Low-pass filtered white noise, similar to room noise.
        noise = np.convolve(np.random.default_rng(snr).standard_normal(sound.size), np.ones(8) / 8, "same")
        noise *= np.sqrt(power / 10 ** (snr / 10) / np.mean(np.square(noise)))
        yield f"right, {snr} dB", (sound + noise).astype(np.float32), text
    yield "right", sound, text
    yield "another sentence", sound, next_text
    yield "first half of the text", sound, " ".join(words[: len(words) // 2])
    yield "second half of the text", sound, " ".join(words[len(words) // 2 :])
    yield "half of the sound", sound[: sound.size // 2], text
    yield "another language", sound, foreign_text


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", default=["voice", "voice:clara", "flite:rms", "flite:slt"])
    parser.add_argument("--sentences", type=int, default=10)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    aligner, texts = Aligner(), systems.sentences(options.sentences + 1)
    matches_by_kind: dict[str, list[float]] = {}
    for name in options.systems:
        for number, text in enumerate(texts[:-1]):
            sound, rate = systems.speak(name, text)
            for kind, samples, transcript in pairs(
                sound, text, texts[number + 1], FOREIGN_TEXTS[number % len(FOREIGN_TEXTS)]
            ):
                matches_by_kind.setdefault(kind, []).append(aligner.match(samples, rate, transcript) or 0.0)
    figures = {
        kind: {
            "pairs": len(matches),
            "doubted": sum(match < LIMIT for match in matches),
            "lowest": round(min(matches), 2),
            "highest": round(max(matches), 2),
        }
        for kind, matches in matches_by_kind.items()
    }
    report({"figure": "transcripts", "limit": LIMIT, **figures, "machine": machine()})


if __name__ == "__main__":
    main()
