"""How many syllables of Mandarin, with their tones, Whisper base hears wrong: the teacher's, through the codec, the voice's.

    python bench/syllables.py --keep build/verdicts.jsonl
    python bench/syllables.py --systems kokoro:zm_yunxi,voice:mei --sentences 10

Sentences of everyday Mandarin that training never saw. What Whisper writes is read by our own front end, so that characters
that sound alike are no error, and compared syllable by syllable: `whisper` is the rate, and the other columns are those of
bench/voice.py. `voice`, the default preset, is at home in English.
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
"""Errors at most, of the presets at home in Mandarin."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"of {', '.join(systems.NAMES)}, and s1:PRESET")
    parser.add_argument("--texts", type=Path, help="sentences in place of the held-out ones, one a line")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    parser.add_argument("--keep", type=Path, help="keep the verdicts here and go on from there (lines of JSON)")
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    texts, began = systems.sentences(options.sentences, "zh", options.texts), time.perf_counter()
    rows = table(dict.fromkeys(options.systems.split(","), texts), Verdicts(options.keep, jobs=options.jobs))
    at_home = [row["whisper"]["value"] for name, row in rows.items() if name in ("voice:mei", "voice:wei")]
    report(
        {
            "figure": "syllables of Mandarin heard wrong",
            "judges": "Whisper base, beam 5; DistillMOS 0.9.1; DNSMOS P.835; Resemblyzer 0.1.4",
            "syllables": sum(len(units(text)) for text in texts),
            **({"goal": GOAL, "met": max(at_home) <= GOAL} if at_home else {}),
            "systems": rows,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
