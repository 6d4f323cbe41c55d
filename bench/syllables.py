"""Syllable error rate (SER, with tones) of Mandarin by Whisper base: teacher, teacher through the codec, and voice.

    python bench/syllables.py --keep build/verdicts.jsonl
    python bench/syllables.py --systems kokoro:zm_yunxi,voice:mei --sentences 10

The sentences are everyday Mandarin held out of training. Whisper's transcript is converted to syllables by voicelab's front
end, so that homophones are not errors: `whisper` is the SER, the other columns are those of bench/voice.py. `voice`, the
default preset, is an English voice.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import systems
from judges import Verdicts, units
from machine import machine, report
from voice import table

SYSTEMS = (
    *("kokoro:zf_xiaoxiao", "kokoro:zm_yunjian", "codec:zf_xiaoxiao", "codec:zm_yunjian"),
    *("voice:mei", "voice:wei", "voice", "s1:mei"),
)
GOAL = 0.10
"""Maximum SER of the Mandarin presets."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--systems", default=",".join(SYSTEMS), help=f"comma-separated: {', '.join(systems.NAMES)}, and s1:PRESET"
    )
    parser.add_argument("--texts", type=Path, help="file of sentences instead of the held-out ones, one per line")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--keep", type=Path, help="JSON-lines file of verdicts, from which an interrupted run resumes")
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    texts, began = systems.sentences(options.sentences, "zh", options.texts), time.perf_counter()
    rows = table(dict.fromkeys(options.systems.split(","), texts), Verdicts(options.keep, jobs=options.jobs))
    mandarin_rates = [row["whisper"]["value"] for name, row in rows.items() if name in ("voice:mei", "voice:wei")]
    report(
        {
            "figure": "syllable error rate of Mandarin",
            "judges": "Whisper base, beam 5; DistillMOS 0.9.1; DNSMOS P.835; Resemblyzer 0.1.4",
            "syllables": sum(len(units(text)) for text in texts),
            **({"goal": GOAL, "met": max(mandarin_rates) <= GOAL} if mandarin_rates else {}),
            "systems": rows,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
