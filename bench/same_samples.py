"""Comparison of two checkouts: samples and word times of about fifty requests with seeds.

    python bench/same_samples.py OLD NEW      # two checkouts of this repository; exits 1 if more than rounding differs
    git fetch --depth 1 origin COMMIT && git worktree add --detach ../old FETCH_HEAD    # for shallow clones
    python bench/same_samples.py ../old .

Each checkout renders the requests in a separate process, through `vl.connect().speak()`: presets, clones, stored voices,
English and Mandarin, long texts, all latencies, formats and sampling fields, both models, and eight concurrent requests. It
reports clips that are not bit-identical with the largest difference of a sample, and those that differ by more than rounding
(`TOLERANCE`, or in word times): then `REVISION` in `voicelab/engine/local.py` is incremented.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, report
from numpy.typing import NDArray

Samples = NDArray[np.float64]

SENTENCE = "The birch canoe slid on the smooth planks."
PASSAGE = (
    "Rice is often served in round bowls, and the juice of lemons makes fine punch. "
    "The box was thrown beside the parked truck while the hogs were fed chopped corn. "
    "Four hours of steady work faced us, so we packed a large lunch. "
    "A large size in stockings is hard to sell, but a small one is not."
)
CHINESE = "你好，今天天气很好。"
MIXED = "I said 谢谢 to her on March 5, 2024, and paid $12.50."
TOLERANCE = 2e-3
"""Largest difference of a sample that is rounding: a last bit of F0 moves its highest harmonics by so much."""
CONCURRENT = (
    "preset marlow",
    "long",
    "apart",
    "chinese",
    "clone one",
    "temperature 1.0",
    "s1 low",
    "early stop",
)
"""Requests that are repeated concurrently."""
_SAMPLES = "SAME_SAMPLES_FOLDER"
ODD = "Dr. Smith's 3 cats weigh 4.5 kg; isn't that odd?"


def requests(presets: list[str], references: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return requests by name: text and arguments of speak()."""
    segments = {"chunk_length": 100, "min_chunk_length": 20}
    independent = {**segments, "condition_on_previous_chunks": False}
    second_preset = presets[1 % len(presets)]
    result: dict[str, tuple[str, dict[str, Any]]] = {
        **{f"preset {name}": (SENTENCE, {"voice": name}) for name in presets[:6]},
        **{f"seed {seed}": (SENTENCE, {"seed": seed}) for seed in (0, 2**40 + 3)},
        **{f"s1 {name}": (SENTENCE, {"model": "s1", "voice": name}) for name in presets[:2]},
        **{f"latency {name}": (SENTENCE, {"latency": name}) for name in ("low", "balanced", "normal")},
        "s1 low": (ODD, {"model": "s1", "latency": "low"}),
        **{f"temperature {t}": (SENTENCE, {"temperature": t}) for t in (0.0, 0.2, 1.0)},
        "s1 temperature 0": (SENTENCE, {"model": "s1", "temperature": 0.0}),
        **{f"top_p {p}": (SENTENCE, {"top_p": p, "temperature": 1.0}) for p in (0.1, 1.0)},
        **{f"repetition_penalty {r}": (SENTENCE, {"repetition_penalty": r}) for r in (0.8, 2.0)},
        "max_new_tokens": (PASSAGE, {**segments, "max_new_tokens": 40}),
        "long": (PASSAGE, segments),
        "long low": (PASSAGE, {**segments, "latency": "low", "voice": second_preset}),
        "long s1": (PASSAGE, {**segments, "model": "s1"}),
        "apart": (PASSAGE, independent),
        "apart s1": (PASSAGE, {**independent, "model": "s1"}),
        "early stop": (PASSAGE, {**independent, "early_stop_threshold": 0.5}),
        "early stop low": (PASSAGE, {**independent, "early_stop_threshold": 0.3, "latency": "low"}),
        "speed": (SENTENCE, {"speed": 1.4}),
        "volume": (SENTENCE, {"volume": -6.0, "speed": 0.8}),
        "odd": (ODD, {"voice": second_preset}),
        "as written": ("Room seven, second floor.", {"normalize": False}),
        "mp3": (SENTENCE, {"format": "mp3"}),
        "opus": (SENTENCE, {"format": "opus", "sample_rate": 48000}),
        "rate 16000": (SENTENCE, {"sample_rate": 16000}),
        "chinese": (CHINESE, {}),
        "chinese s1": (CHINESE, {"model": "s1", "voice": second_preset}),
        "mixed": (MIXED, {}),
    }
    for name, reference in references.items():
        result[f"clone {name}"] = (SENTENCE, reference)
    result["clone s1"] = (SENTENCE, {**references["one"], "model": "s1"})
    result["clone chinese"] = (CHINESE, references["one"])
    return result


def wav(samples: Samples, rate: int) -> bytes:
    """Encode a 16-bit WAV."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def shifted(samples: Samples, factor: float) -> Samples:
    """Raise the pitch and shorten by a factor."""
    positions = np.arange(0, len(samples) - 1, factor)
    moved: Samples = np.interp(positions, np.arange(len(samples)), samples)
    return moved


def band(samples: Samples, rate: int) -> Samples:
    """Limit to the telephone band."""
    spectrum, hertz = np.fft.rfft(samples), np.fft.rfftfreq(len(samples), 1 / rate)
    spectrum[(hertz < 300) | (hertz > 3400)] = 0
    narrow: Samples = np.fft.irfft(spectrum, len(samples))
    return narrow


def digest(clip: Any) -> dict[str, Any]:
    """Compute the digest of samples and word times."""
    samples = np.ascontiguousarray(clip.samples, dtype="<f4")
    words = json.dumps([[w.text, round(w.start, 9), round(w.end, 9)] for w in clip.words])
    digested = hashlib.sha256(samples.tobytes()).hexdigest()
    if folder := os.environ.get(_SAMPLES):
        np.save(Path(folder) / digested, samples)
    return {
        "samples": digested,
        "words": hashlib.sha256(words.encode()).hexdigest()[:16],
        "seconds": round(len(samples) / clip.rate, 3),
    }


def references_of(lab: Any, source: Any, second: Any) -> dict[str, dict[str, Any]]:
    """Return request fields of cloned speakers: reference recordings, and a stored voice."""
    from voicelab import ReferenceAudio

    high, low = shifted(source.samples, 1.12), shifted(second.samples, 0.9)

    def reference(samples: Samples) -> Any:
        return ReferenceAudio(audio=wav(samples, source.rate), text=PASSAGE)

    stored = lab.create_voice("Kept", [wav(low, source.rate)], texts=[PASSAGE])
    return {
        "one": {"references": [reference(high)]},
        "two": {"references": [reference(high), reference(low)]},
        "telephone": {"references": [reference(band(low, source.rate))]},
        "stored": {"voice": stored.id},
        "hot": {"references": [reference(low)], "temperature": 1.0, "top_p": 0.95},
    }


def render() -> dict[str, Any]:
    """Compute the digests of all clips with the imported voicelab."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["VOICELAB_HOME"] = home
        import voicelab as vl

        with vl.connect() as lab:
            presets = [voice.id for voice in lab.voices]
            source, second = (lab.speak(PASSAGE, voice=presets[index], seed=seed) for index, seed in ((0, 5), (-1, 6)))
            all_requests = requests(presets, references_of(lab, source, second))

            def speak(name: str) -> dict[str, Any]:
                text, fields = all_requests[name]
                return digest(lab.speak(text, **{"seed": 7, **fields}))

            clips = {"reference": digest(source), **{name: speak(name) for name in all_requests}}
            with ThreadPoolExecutor(len(CONCURRENT)) as pool:
                together = dict(zip(CONCURRENT, pool.map(speak, CONCURRENT), strict=True))
            clips |= {f"together: {name}": result for name, result in together.items()}
            return {"imported": vl.__file__, "fingerprint": lab.capabilities.fingerprint, "clips": clips}


def rendered(checkout: Path, folder: str) -> dict[str, Any]:
    """Run `render` in a checkout; samples are written to a folder by their digests."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), _SAMPLES: folder}
    command = [sys.executable, str(Path(__file__).resolve()), "--render"]
    process = subprocess.run(command, env=environment, cwd=checkout, check=True, capture_output=True, text=True)
    rendering: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    if not Path(rendering["imported"]).is_relative_to(checkout.resolve()):
        raise SystemExit(f"{checkout} imported voicelab from elsewhere: {rendering['imported']}")
    return rendering


def compared(old: dict[str, Any], new: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compare two renderings."""
    names = sorted({*old["clips"], *new["clips"]})
    changed = {}
    for name in names:
        before, after = old["clips"].get(name), new["clips"].get(name)
        if before != after:
            same_words = before and after and (before["words"], before["seconds"]) == (after["words"], after["seconds"])
            changed[name] = _difference(folder, before, after) if same_words else None
    return {
        "figure": "same samples",
        "clips": len(names),
        "seconds": round(sum(clip["seconds"] for clip in new["clips"].values()), 1),
        "largest_differences": changed,
        "differing": [name for name, largest in changed.items() if largest is None or largest > TOLERANCE],
        "same_fingerprint": old["fingerprint"] == new["fingerprint"],
    }


def _difference(folder: Path, *clips: dict[str, Any]) -> float:
    before, after = (np.load(folder / f"{clip['samples']}.npy") for clip in clips)
    return round(float(np.abs(before - after).max()), 6)


def main() -> None:
    """Render and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--render", action="store_true", help="only print the digests of the imported voicelab")
    options = parser.parse_args()
    if options.render:
        report(render())
        return
    if len(options.checkouts) != 2:
        parser.error("two checkouts are required")
    with tempfile.TemporaryDirectory() as folder:
        old, new = (rendered(checkout, folder) for checkout in options.checkouts)
        result = compared(old, new, Path(folder))
    report({**result, "machine": machine()})
    raise SystemExit(1 if result["differing"] else 0)


if __name__ == "__main__":
    main()
