"""The judges' table: words by Whisper base, opinion by DistillMOS, and by the older judges, of systems side by side.

    python bench/judges.py --systems kokoro:am_michael,voice,rms --sentences 40
    python bench/judges.py --keep judged.json           goes on where it was cut off
    python bench/judges.py --older no                   without DNSMOS and pocketsphinx

`whisper` and `pocketsphinx` are word errors, `distillmos` and `dnsmos` predicted opinions from 1 to 5, each with its 95 %
interval over sentences; `behind` is the mean difference in DistillMOS from the first system named, sentence by sentence.
All systems are brought to one level. Whisper and DistillMOS live in an environment of their own: training/ears.py says how
to make it. DistillMOS hears what is natural in a voice, where DNSMOS gives a parametric voice 3.2 and a natural one 3.3,
and pocketsphinx ranks a natural voice behind flite's: these two stay so that figures can be compared with older ones.

The teacher of the natural voice, ``kokoro:VOICE``, needs its packages (training/README.md) and its voices.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import quality
import stats
import systems
from machine import machine, report
from recognise import recognise, words

_OF_THE_VOICE = ("voice", "codec", "s1")


@dataclass(frozen=True, slots=True)
class Judged:
    """One sentence by one system."""

    text: str
    whisper: str
    """What Whisper heard."""
    distillmos: float
    pocketsphinx: str | None
    """What pocketsphinx heard."""
    dnsmos: float | None
    seconds: float


class Judges:
    """Asks all judges; the verdicts are kept in a file if there is one.

    The embedded voice is known by its fingerprint, so that another voice is judged anew.
    """

    def __init__(self, keep: Path | None = None, *, older: bool = True) -> None:
        self._keep, self._older = keep, older
        self._ears: Any = None
        known = json.loads(keep.read_text(encoding="utf-8")) if keep is not None and keep.exists() else {}
        self._found = {name: [Judged(**item) for item in items] for name, items in known.items()}

    def judge(self, name: str, texts: Sequence[str]) -> list[Judged]:
        """Return one verdict a text, in order."""
        key = name
        if name.partition(":")[0] in _OF_THE_VOICE:
            key = f"{name} {systems.lab().capabilities.fingerprint}"
        known = {item.text: item for item in self._found.get(key, [])}
        for text in texts:
            item = known.get(text)
            if item is None or (self._older and item.dnsmos is None):
                known[text] = self._one(name, text)
                self._found[key] = list(known.values())
                self._write()
        return [known[text] for text in texts]

    def _one(self, name: str, text: str) -> Judged:
        samples, rate = systems.speak(name, text)
        even = quality.levelled(np.asarray(samples, np.float32))
        if self._ears is None:
            self._ears = systems.training("ears").Ears()
        heard = self._ears.hear(even, rate)
        return Judged(
            text,
            heard.words,
            heard.opinion,
            recognise(even, rate) if self._older else None,
            quality.opinion(even, rate) if self._older else None,
            samples.size / rate,
        )

    def _write(self) -> None:
        if self._keep is not None:
            kept = {name: [asdict(item) for item in items] for name, items in self._found.items()}
            self._keep.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def errors(found: Sequence[Judged], heard: Sequence[str]) -> dict[str, float]:
    """Return the word error rate of what was heard, with its interval."""
    counted = [stats.word_errors(words(item.text), words(said)) for item, said in zip(found, heard, strict=True)]
    return stats.rate_interval(counted).rounded()


def figures(found: Sequence[Judged], first: Sequence[Judged]) -> dict[str, Any]:
    """Return a system's figures; `first` is the one that it is compared with."""
    opinions = np.array([item.distillmos for item in found])
    older = [item for item in found if item.dnsmos is not None and item.pocketsphinx is not None]
    out: dict[str, Any] = {
        "whisper": errors(found, [item.whisper for item in found]),
        "distillmos": stats.mean_interval(opinions).rounded(),
        "behind": stats.mean_interval(opinions - np.array([item.distillmos for item in first])).rounded(),
    }
    if len(older) == len(found):
        out["dnsmos"] = stats.mean_interval(np.array([item.dnsmos or 0.0 for item in older])).rounded()
        out["pocketsphinx"] = errors(older, [item.pocketsphinx or "" for item in older])
    return out


def table(names: Sequence[str], texts: Sequence[str], judges: Judges) -> dict[str, dict[str, Any]]:
    """Return the figures of every system beside the first, and print a line of each."""
    out: dict[str, dict[str, Any]] = {}
    first = judges.judge(names[0], texts)
    for name in names:
        row = out[name] = figures(judges.judge(name, texts), first)
        said = "  ".join(f"{what} {v['value']:.3f} ({v['low']:.3f}–{v['high']:.3f})" for what, v in row.items())
        print(f"{name}: {said}", flush=True)
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="kokoro:am_michael,voice,rms", help=f"of {', '.join(systems.NAMES)}")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="keep the verdicts here and go on from there (JSON)")
    parser.add_argument("--older", choices=("yes", "no"), default="yes", help="ask DNSMOS and pocketsphinx too")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    texts, began = systems.sentences(options.sentences), time.perf_counter()
    judges = Judges(options.keep, older=options.older == "yes")
    report(
        {
            "figure": "judges",
            "judges": "Whisper base, beam 5; DistillMOS 0.9.1; DNSMOS P.835; pocketsphinx en-us",
            "sentences": len(texts),
            "systems": table(options.systems.split(","), texts, judges),
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
