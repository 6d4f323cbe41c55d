"""Objective metrics of synthesized sentences for bench/, with a cache of the results.

WER is by Whisper (base, beam 5), and by pocketsphinx (en-us), which ranks natural voices below flite. Predicted MOS (1 to 5)
is by DistillMOS, and by DNSMOS, which is sensitive to noise more than to naturalness. pocketsphinx and DNSMOS remain for
comparison with older results. Speaker similarity is the cosine of Resemblyzer embeddings to each preset's teacher in other
sentences; no other speaker encoder is among the pinned packages. All audio is normalized to one level.

Whisper and DistillMOS need an environment of their own, see training/ears.py.
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
from voicelab.metrics.models import Dnsmos, Resemblyzer
from voicelab.text import normalize

__all__ = [
    "Verdict",
    "Verdicts",
    "embedding",
    "errors",
    "judge",
    "normalize_level",
    "sounding",
    "transcribe",
    "transcribe_pocketsphinx",
    "units",
]

_RATE = 16_000
_PAD = 0.2
"""Seconds of near silence at both ends: pocketsphinx skips words at hard edges."""
_SILENCE_AMPLITUDE = 0.003
"""Maximum amplitude of silence, at `LEVEL`."""
REFERENCES = {
    "en": (
        "Four hours of steady work faced us. A large size in stockings is hard to sell.",
        "The boy was there when the sun rose. A rod is used to catch pink salmon.",
    ),
    "zh": ("我昨天在书店里遇见了一位老朋友。", "冬天的早上，湖面上有一层薄薄的冰。", "他们打算下个月搬到北京去住。"),
}
"""Reference sentences of the teachers: Harvard sentences (IEEE, 1969), and some of voicelab's."""
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Objective metrics of one sentence by one system."""

    system: str
    """Name of the system, with the fingerprint of voicelab's weights."""
    text: str
    whisper: str
    """Transcript by Whisper."""
    distillmos: float
    pocketsphinx: str | None
    """Transcript by pocketsphinx; None for Mandarin, or if not run."""
    dnsmos: float | None
    likeness: dict[str, float]
    """Cosine similarity to each preset's teacher, by voice of the teacher."""
    seconds: float
    """Duration from the first sound to the last."""


def units(text: str) -> list[Any]:
    """Split `text` into the units of WER: normalized lower-case words of English, or syllables with tone of Mandarin.

    Apostrophes are removed, since they are inaudible. Syllables are those of voicelab's front end, so that homophones are
    equal.
    """
    if teaching.language_of(text) == "zh":
        parts = read(normalize(text, ("zh",)).text)
        return [item.phones for item in parts if isinstance(item, Syllable)]
    return re.findall(r"[a-z]+", normalize(text).text.lower().replace("-", " ").replace("'", ""))


def errors(text: str, transcript: str) -> stats.Score:
    """Count word or syllable errors, at most the number of units (Whisper may repeat a word a hundred times)."""
    counted = stats.word_errors(units(text), units(transcript))
    return stats.Score(min(counted.errors, counted.words), counted.words)


def normalize_level(samples: Samples) -> Samples:
    """Normalize the RMS of non-silent samples to `LEVEL`, the level of the codec's training data."""
    active = samples[np.abs(samples) > 0.01 * np.abs(samples).max()]
    loudness = float(np.sqrt(np.mean(np.square(active))))
    even: Samples = np.clip(samples * np.float32(LEVEL / loudness), -1, 1, dtype=np.float32)
    return even


def sounding(even: Samples, rate: int) -> tuple[float, float]:
    """Return the duration from the first sound to the last, and that of the longest silence between, in seconds."""
    loud = np.flatnonzero(np.abs(even) > _SILENCE_AMPLITUDE)
    if not loud.size:
        return 0.0, float("inf")
    return float(loud[-1] - loud[0]) / rate, float(np.diff(loud).max(initial=0)) / rate


# ---- evaluators


@cache
def _evaluators() -> Any:
    return teaching.training("ears").Evaluators()


def transcribe(samples: Samples, rate: int, language: str = "en") -> Any:
    """Return Whisper's transcript and the MOS predicted by DistillMOS, for level-normalized samples."""
    return _evaluators().evaluate(samples, rate, language)


@cache
def _pocketsphinx() -> Any:
    from pocketsphinx import Decoder

    # cmn=batch: normalization per utterance, independent of the order of sentences.
    return Decoder(samprate=_RATE, cmn="batch", loglevel="FATAL")


def transcribe_pocketsphinx(samples: Samples, rate: int) -> str:
    """Transcribe mono `samples` ([-1, 1] at `rate` Hz) with pocketsphinx."""
    audio = np.asarray(samples, np.float32)
    audio = soxr.resample(audio, rate, _RATE) if rate != _RATE else audio
    peak = float(np.max(np.abs(audio))) if audio.size else 0.0
    if peak > 0:
        audio = audio * (0.5 / peak)
    quiet = np.zeros(int(_PAD * _RATE), np.float32)
    padded = np.concatenate([quiet, audio, quiet])
    # Fixed low-level noise, since the log of digital silence is undefined.
    room = padded + np.random.default_rng(0).uniform(-2, 2, padded.size) / 32768
    decoder = _pocketsphinx()
    decoder.reinit_feat()  # resets adaptation from previous utterances
    decoder.start_utt()
    decoder.process_raw((np.clip(room, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return str(hypothesis.hypstr) if hypothesis is not None else ""


@cache
def _dnsmos() -> Dnsmos:
    return Dnsmos()


@cache
def _resemblyzer() -> Resemblyzer:
    return Resemblyzer()


def embedding(samples: Samples, rate: int) -> NDArray[np.float64]:
    """Compute Resemblyzer's L2-normalized embedding, shape (256,)."""
    vector = np.asarray(_resemblyzer().embed(samples, rate), np.float64)
    return vector / np.linalg.norm(vector)


@cache
def _teachers() -> dict[str, NDArray[np.float64]]:
    """Compute the speaker embedding of each preset's teacher."""
    vectors: dict[str, NDArray[np.float64]] = {}
    for voice in teaching.teachers().values():
        texts = REFERENCES["zh" if voice.startswith("z") else "en"]
        mean = np.mean([embedding(*teaching.blend(((voice, 1.0),), text)) for text in texts], axis=0)
        vectors[voice] = np.asarray(mean / np.linalg.norm(mean), np.float64)
    return vectors


def judge(name: str, key: str, older: bool, text: str) -> Verdict:
    """Synthesize `text` and compute all metrics; `older` adds DNSMOS and pocketsphinx."""
    samples, rate = systems.speak(name, text)
    even, language = normalize_level(np.asarray(samples, np.float32)), teaching.language_of(text)
    result, speaker = transcribe(even, rate, language), embedding(even, rate)
    return Verdict(
        key,
        text,
        result.words,
        result.opinion,
        transcribe_pocketsphinx(even, rate) if older and language == "en" else None,
        _dnsmos().predict(soxr.resample(even, rate, _RATE), _RATE) if older else None,
        {voice: round(float(speaker @ reference), 4) for voice, reference in _teachers().items()},
        sounding(even, rate)[0],
    )


class Verdicts:
    """Cache of verdicts, in an optional JSON-lines file from which an interrupted run resumes.

    Voices of voicelab are keyed by the fingerprint of their weights, so that retrained voices are evaluated again. Files of
    several runs may be concatenated.
    """

    def __init__(self, path: Path | None = None, *, older: int | None = None, jobs: int = 1) -> None:
        """`older` is the number of texts that are also evaluated by DNSMOS and pocketsphinx; None for all."""
        self._path, self._older, self._jobs = path, older, jobs
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self._verdicts = {(v.system, v.text): v for v in (Verdict(**json.loads(line)) for line in lines)}

    def of(self, name: str, texts: Sequence[str]) -> list[Verdict]:
        """Return one verdict per text, in order, from the cache or evaluated now."""
        key = self._key(name)
        every = {text: i < len(texts[: self._older]) for i, text in enumerate(dict.fromkeys(texts))}
        missing = {text: older for text, older in every.items() if self._lacks(self._verdicts.get((key, text)), older)}
        for verdict in self._evaluate(name, key, missing):
            self._verdicts[key, verdict.text] = verdict
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
        return [self._verdicts[key, text] for text in texts]

    @staticmethod
    def _key(name: str) -> str:
        kind, _, rest = name.partition(":")
        ours = (rest if kind == "old" else name).partition(":")[0] in ("codec", "voice", "s1")
        variable = systems.OLD if kind == "old" else systems.WEIGHTS
        system = rest if kind == "old" else name
        return f"{system} {systems.lab(variable=variable).capabilities.fingerprint}" if ours else system

    @staticmethod
    def _lacks(verdict: Verdict | None, older: bool) -> bool:
        return verdict is None or (older and verdict.dnsmos is None)

    def _evaluate(self, name: str, key: str, texts: Mapping[str, bool]) -> Iterator[Verdict]:
        if not texts:
            return
        _teachers()  # render once, before the worker processes start
        if self._jobs == 1:
            yield from map(partial(judge, name, key), texts.values(), texts)
            return
        # spawn, since torch's threads do not survive a fork
        with ProcessPoolExecutor(self._jobs, mp_context=get_context("spawn")) as pool:
            yield from pool.map(partial(judge, name, key), texts.values(), texts)
