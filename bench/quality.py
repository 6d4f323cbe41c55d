"""How good the voice sounds to a predictor of listeners' ratings (DNSMOS), beside its teacher, a vocoder, and other programs.

    python bench/quality.py
    python bench/quality.py --systems rms,voice,s1 --sentences 100

The predictor (extra `mos`) was made for noise and what suppressing it leaves: it hears noise, buzz and phasiness, and
little of how natural a voice is, up to 8 kHz. All systems are brought to one level, since it hears that too. `mos` is of
the whole (P.835 OVRL), `speech` of the speech alone (P.835 SIG), both from 1 to 5; `over_teacher` is the mean difference
from the teacher's same sentence. Intervals are 95 % intervals over sentences.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import stats
import systems
from machine import machine, report
from numpy.typing import NDArray

from voicelab.audio.samples import resample
from voicelab.engine.pointer.speakers import LEVEL
from voicelab.experiments.metrics.models import Dnsmos, Scale

SCALES: dict[str, Scale] = {"mos": "ovrl", "speech": "sig"}
_FAINT = 0.01
"""Of the peak: what is fainter is silence."""
_RATE = 16_000


@lru_cache(maxsize=2)
def _predictor(scale: Scale) -> Dnsmos:
    return Dnsmos(scale)


def levelled(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring the root mean square of what is not silence to `LEVEL`, at which the codec was trained."""
    active = samples[np.abs(samples) > _FAINT * np.abs(samples).max()]
    loudness = float(np.sqrt(np.mean(np.square(active))))
    even: NDArray[np.float32] = np.clip(samples * np.float32(LEVEL / loudness), -1, 1, dtype=np.float32)
    return even


def opinion(even: NDArray[np.float32], rate: int) -> float:
    """Return the rating of levelled samples as a whole."""
    return float(_predictor("ovrl").predict(resample(even, rate, _RATE), _RATE))


def rated(name: str, texts: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return (sentences,) ratings of a system on each scale."""
    said = [systems.speak(name, text) for text in texts]
    heard = [levelled(resample(samples, rate, _RATE)) for samples, rate in said]
    return {
        what: np.array([_predictor(scale).predict(samples, _RATE) for samples in heard])
        for what, scale in SCALES.items()
    }


def figures(ours: dict[str, NDArray[np.float64]], teacher: dict[str, NDArray[np.float64]] | None) -> dict[str, Any]:
    """Return the means with their intervals; beside the teacher's unless it is that one."""
    found = {what: stats.mean_interval(values).rounded() for what, values in ours.items()}
    beside = None if teacher is None else stats.mean_interval(ours["mos"] - teacher["mos"]).rounded()
    return {**found, "over_teacher": beside}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    world = ("world",) if find_spec("pyworld") else ()
    default = (systems.TEACHER, *world, "codec", "voice", "s1", *systems.OTHERS)
    parser.add_argument("--systems", default=",".join(default), help=f"of {', '.join(systems.NAMES)}")
    parser.add_argument("--sentences", type=int, default=60)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    texts, began = systems.sentences(options.sentences), time.perf_counter()
    teacher = rated(systems.TEACHER, texts)
    found = {systems.TEACHER: figures(teacher, None)}
    for name in options.systems.split(","):
        if name != systems.TEACHER:
            found[name] = figures(rated(name, texts), teacher)
        print(f"{name}: {found[name]['mos']['value']:.2f}", flush=True)
    report(
        {
            "figure": "predicted quality",
            "predictor": "DNSMOS P.835",
            "sentences": len(texts),
            "teacher": systems.TEACHER,
            "systems": found,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
