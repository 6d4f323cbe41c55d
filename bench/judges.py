"""Whom bench/ asks about a sentence that a system said, and what it keeps of their verdicts.

Words are Whisper's (base, beam 5), beside pocketsphinx's (en-us), which ranks a natural voice behind flite's; opinions from 1
to 5 are DistillMOS's, beside DNSMOS's, which hears noise and little of how natural a voice is: these two stay so that figures
can be compared with older ones. Likeness is Resemblyzer's cosine to each preset's teacher, who says other sentences; no other
trained encoder of speakers is among the packages that this repository pins. All systems are brought to one level.

Whisper and DistillMOS live in an environment of their own: training/ears.py says how to make it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import stats
import systems
import teaching
from numpy.typing import NDArray

from voicelab.engine.pointer.mandarin import Syllable, read
from voicelab.engine.pointer.speakers import LEVEL
from voicelab.engine.text import normalize
from voicelab.experiments.metrics.models import Dnsmos, Resemblyzer

__all__ = ["Verdict", "Verdicts", "embedding", "errors", "hear", "judge", "levelled", "recognise", "sounding", "units"]

_RATE = 16_000
_PAD = 0.2
"""Seconds of near silence put on both ends: pocketsphinx loses words at a hard edge."""
_FAINT = 0.003
"""Amplitude, at `LEVEL`, below which there is silence."""
REFERENCES = {
    "en": (
        "Four hours of steady work faced us. A large size in stockings is hard to sell.",
        "The boy was there when the sun rose. A rod is used to catch pink salmon.",
    ),
    "zh": ("我昨天在书店里遇见了一位老朋友。", "冬天的早上，湖面上有一层薄薄的冰。", "他们打算下个月搬到北京去住。"),
}
"""What a teacher says to be told by: Harvard sentences (IEEE, 1969), and some of ours."""
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judges say of one sentence by one system."""

    system: str
    """Its name, and the weights' fingerprint where they are ours."""
    text: str
    whisper: str
    """What Whisper heard."""
    distillmos: float
    pocketsphinx: str | None
    """What it heard; None of Mandarin, or where it was not asked."""
    dnsmos: float | None
    likeness: dict[str, float]
    """Cosine to each preset's teacher, by the teacher's voice."""
    seconds: float
    """From the first sound to the last."""


def units(text: str) -> list[Any]:
    """Return what is counted in `text`: lower-case words of English, with numbers in words; syllables with tone of Mandarin.

    Apostrophes go: nobody can hear whether "candidates" has one. Syllables are those that our front end reads, so that
    characters that sound alike are alike.
    """
    if teaching.language_of(text) == "zh":
        parts = read(normalize(text, ("zh",)).text)
        return [part.phones for part in parts if isinstance(part, Syllable)]
    return re.findall(r"[a-z]+", normalize(text).text.lower().replace("-", " ").replace("'", ""))


def errors(text: str, heard: str) -> stats.Score:
    """Count the words or syllables of `text` that are wrong in `heard`, at most all of them.

    Of speech that it does not understand Whisper may write one word a hundred times.
    """
    counted = stats.word_errors(units(text), units(heard))
    return stats.Score(min(counted.errors, counted.words), counted.words)


def levelled(samples: Samples) -> Samples:
    """Bring the root mean square of what is not silence to `LEVEL`, at which the codec was trained."""
    active = samples[np.abs(samples) > 0.01 * np.abs(samples).max()]
    loudness = float(np.sqrt(np.mean(np.square(active))))
    even: Samples = np.clip(samples * np.float32(LEVEL / loudness), -1, 1, dtype=np.float32)
    return even


def sounding(even: Samples, rate: int) -> tuple[float, float]:
    """Return the seconds from the first sound to the last, and those of the longest silence between."""
    loud = np.flatnonzero(np.abs(even) > _FAINT)
    if not loud.size:
        return 0.0, float("inf")
    return float(loud[-1] - loud[0]) / rate, float(np.diff(loud).max(initial=0)) / rate


# ---- the judges


@cache
def _ears() -> Any:
    return teaching.training("ears").Ears()


def hear(samples: Samples, rate: int, language: str = "en") -> Any:
    """Return Whisper's words and DistillMOS's opinion of levelled samples."""
    return _ears().hear(samples, rate, language)


@cache
def _pocketsphinx() -> Any:
    from pocketsphinx import Decoder

    # cmn=batch: each utterance is normalised by itself, so that the order of sentences cannot matter.
    return Decoder(samprate=_RATE, cmn="batch", loglevel="FATAL")


def recognise(samples: Samples, rate: int) -> str:
    """Return what pocketsphinx hears in mono `samples` ([-1, 1] at `rate` Hz)."""
    audio = np.asarray(samples, np.float32)
    audio = soxr.resample(audio, rate, _RATE) if rate != _RATE else audio
    peak = float(np.max(np.abs(audio))) if audio.size else 0.0
    if peak > 0:
        audio = audio * (0.5 / peak)
    quiet = np.zeros(int(_PAD * _RATE), np.float32)
    padded = np.concatenate([quiet, audio, quiet])
    # Digital silence has no logarithm; two steps of fixed noise stand in for a room.
    room = padded + np.random.default_rng(0).uniform(-2, 2, padded.size) / 32768
    decoder = _pocketsphinx()
    decoder.reinit_feat()  # or it keeps something of what it heard before
    decoder.start_utt()
    decoder.process_raw((np.clip(room, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True)
    decoder.end_utt()
    heard = decoder.hyp()
    return str(heard.hypstr) if heard is not None else ""


@cache
def _dnsmos() -> Dnsmos:
    return Dnsmos()


@cache
def _resemblyzer() -> Resemblyzer:
    return Resemblyzer()


def embedding(samples: Samples, rate: int) -> NDArray[np.float64]:
    """Return Resemblyzer's 256 numbers, of length 1."""
    vector = np.asarray(_resemblyzer().embed(samples, rate), np.float64)
    return vector / np.linalg.norm(vector)


@cache
def _teachers() -> dict[str, NDArray[np.float64]]:
    """Who each preset's teacher is, as Resemblyzer tells speakers."""
    vectors: dict[str, NDArray[np.float64]] = {}
    for voice in teaching.teachers().values():
        texts = REFERENCES["zh" if voice.startswith("z") else "en"]
        mean = np.mean([embedding(*teaching.blend(((voice, 1.0),), text)) for text in texts], axis=0)
        vectors[voice] = np.asarray(mean / np.linalg.norm(mean), np.float64)
    return vectors


def judge(name: str, key: str, older: bool, text: str) -> Verdict:
    """Let a system say `text` and ask all about it; `older` are DNSMOS and pocketsphinx."""
    samples, rate = systems.speak(name, text)
    even, language = levelled(np.asarray(samples, np.float32)), teaching.language_of(text)
    heard, who = hear(even, rate, language), embedding(even, rate)
    return Verdict(
        key,
        text,
        heard.words,
        heard.opinion,
        recognise(even, rate) if older and language == "en" else None,
        _dnsmos().predict(soxr.resample(even, rate, _RATE), _RATE) if older else None,
        {voice: round(float(who @ reference), 4) for voice, reference in _teachers().items()},
        sounding(even, rate)[0],
    )


class Verdicts:
    """Verdicts, in a file if there is one (a line of JSON each): hours of work go on where they were cut off.

    Our own voices are known by their weights' fingerprint, so that another voice is judged anew, and files of several runs
    may be put one behind the other.
    """

    def __init__(self, path: Path | None = None, *, older: int | None = None, jobs: int = 1) -> None:
        """`older`: of how many texts, the first, DNSMOS and pocketsphinx are asked too; all if None."""
        self._path, self._older, self._jobs = path, older, jobs
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self._kept = {(v.system, v.text): v for v in (Verdict(**json.loads(line)) for line in lines)}

    def of(self, name: str, texts: Sequence[str]) -> list[Verdict]:
        """Return one verdict a text, in order: as the file has it, or else asked for now and kept."""
        key = self._key(name)
        every = {text: i < len(texts[: self._older]) for i, text in enumerate(dict.fromkeys(texts))}
        missing = {text: older for text, older in every.items() if self._lacks(self._kept.get((key, text)), older)}
        for verdict in self._asked(name, key, missing):
            self._kept[key, verdict.text] = verdict
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
        return [self._kept[key, text] for text in texts]

    @staticmethod
    def _key(name: str) -> str:
        kind, _, rest = name.partition(":")
        ours = (rest if kind == "old" else name).partition(":")[0] in ("codec", "voice", "s1")
        variable = systems.OLD if kind == "old" else systems.WEIGHTS
        what = rest if kind == "old" else name
        return f"{what} {systems.lab(variable=variable).capabilities.fingerprint}" if ours else what

    @staticmethod
    def _lacks(verdict: Verdict | None, older: bool) -> bool:
        return verdict is None or (older and verdict.dnsmos is None)

    def _asked(self, name: str, key: str, texts: Mapping[str, bool]) -> Iterator[Verdict]:
        if not texts:
            return
        _teachers()  # rendered once, before several processes ask for them
        if self._jobs == 1:
            yield from map(partial(judge, name, key), texts.values(), texts)
            return
        # spawn: torch's threads do not survive a fork.
        with ProcessPoolExecutor(self._jobs, mp_context=get_context("spawn")) as pool:
            yield from pool.map(partial(judge, name, key), texts.values(), texts)
