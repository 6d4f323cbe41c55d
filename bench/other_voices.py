"""Kokoro and Piper through voicelab and through their own packages, in one run: time to first audio, real-time factor, and
the overhead of voicelab per call.

    python bench/other_voices.py --theirs VENV/bin/python
    python bench/other_voices.py --theirs VENV/bin/python --piper NAME.onnx --repeats 20

`--theirs` is a Python interpreter with kokoro-onnx and piper-tts, in a separate process because piper-tts is GPL. Both
processes use the same graph, voice, text and number of threads, and alternate. kokoro-onnx gets voicelab's English phones,
since it would otherwise need espeak-ng. Without `--theirs` only voicelab is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, report

TEXTS = {
    "sentence": "The birch canoe slid on the smooth planks.",
    "passage": "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. It is easy to tell "
    "the depth of a well. These days a chicken leg is a rare dish. Rice is often served in round bowls.",
}
MODES: dict[str, dict[str, Any]] = {
    "low": {"latency": "low"},
    "balanced": {"latency": "balanced"},
    "sentences": {"min_chunk_length": 0},
    "normal": {},
}
"""Request fields: ``sentences`` splits like Piper's package; the default joins sentences of fewer than 50 characters."""
OVERHEAD_S = 0.005
"""Maximum overhead of voicelab per call, excluding the graph."""

THEIRS = """
import json, sys, time
import numpy as np
import onnxruntime as rt
kind, path, more, threads = sys.argv[1:]
options = rt.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
if kind == "kokoro":
    import asyncio
    from kokoro_onnx import Kokoro
    voice = Kokoro.from_session(rt.InferenceSession(path, options, providers=["CPUExecutionProvider"]), more)
    async def speak(asked):
        begun, first, size = time.perf_counter(), None, 0
        async for samples, rate in voice.create_stream(asked["phones"], voice="af_heart", is_phonemes=True, trim=False):
            first = first or time.perf_counter() - begun
            size += samples.size
        return first, time.perf_counter() - begun, size / rate
    say = lambda asked: asyncio.run(speak(asked))
else:
    from pathlib import Path
    from piper import PiperVoice
    from piper.config import PiperConfig
    config = PiperConfig.from_dict(json.loads(Path(path + ".json").read_text()))
    voice = PiperVoice(config=config, session=rt.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
    def say(asked):
        begun, first, size = time.perf_counter(), None, 0
        for chunk in voice.synthesize(asked["text"]):
            first = first or time.perf_counter() - begun
            size += chunk.audio_float_array.size
        return first, time.perf_counter() - begun, size / config.sample_rate
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(say(json.loads(line))), flush=True)
"""


class Theirs:
    """The original package in a separate process."""

    def __init__(self, python: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", THEIRS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the process of the original package ended; see its errors above")
        return line

    def say(self, **fields: str) -> list[float]:
        """Synthesize; return the time to first audio, the total time, and the audio duration, in seconds."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        print(json.dumps(fields), file=self._process.stdin, flush=True)
        result: list[float] = json.loads(self._line())
        return result

    def close(self) -> None:
        """Stop the process."""
        self._process.communicate()


def ours(backend: Any, text: str, mode: str) -> list[float]:
    """Measure like `Theirs.say`, plus the CPU seconds of this thread outside the graph."""
    from voicelab.call import Call

    spent, run = 0.0, backend.session.run

    def timed(*arguments: Any) -> Any:
        nonlocal spent
        begun = time.thread_time()
        try:
            return run(*arguments)
        finally:
            spent += time.thread_time() - begun

    backend.session.run = timed
    try:
        call = Call.of(text, format="pcm", sample_rate=24000, **MODES[mode])
        begun = time.thread_time()
        take = backend.synthesize(call).take()
        overhead_s = time.thread_time() - begun - spent
    finally:
        backend.session.run = run
    size = len(take.audio) / 2 / 24000
    return [take.timing.first_audio_s, take.timing.total_s, size, overhead_s]


def median(rows: list[list[float]], column: int) -> float:
    """Return the median of a column."""
    return round(float(np.median([row[column] for row in rows])), 4)


def quartiles(rows: list[list[float]], column: int) -> list[float]:
    """Return the first and third quartile of a column."""
    return [round(float(value), 4) for value in np.quantile([row[column] for row in rows], (0.25, 0.75))]


def side_by_side(
    backend: Any, their: Theirs | None, phones: Callable[[str], str], repeats: int, texts: Sequence[str]
) -> dict[str, Any]:
    """Measure both packages on each text in random order, after one warm-up call each."""
    figures: dict[str, Any] = {}
    ours(backend, "Ready.", "normal")
    if their is not None:
        their.say(text="Ready.", phones=phones("Ready."))
    for name in texts:
        text = TEXTS[name]
        rows: dict[str, list[list[float]]] = {"theirs": [], **{mode: [] for mode in MODES}}
        order = list(rows) if their is not None else list(MODES)
        for turn in range(repeats):
            # Random order, since a call after an idle period is slower.
            random.Random(turn).shuffle(order)
            for system in order:
                if system != "theirs":
                    rows[system].append(ours(backend, text, system))
                elif their is not None:
                    rows[system].append(their.say(text=text, phones=phones(text)))
        figures[name] = {
            "first_audio_s": {key: median(each, 0) for key, each in rows.items() if each},
            "first_audio_quartiles_s": {key: quartiles(each, 0) for key, each in rows.items() if each},
            "rtf": {key: round(median(each, 1) / median(each, 2), 3) for key, each in rows.items() if each},
            "overhead_s": median(rows["normal"], 3),
            "overhead_quartiles_s": quartiles(rows["normal"], 3),
        }
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--theirs", help="Python interpreter with kokoro-onnx and piper-tts")
    parser.add_argument("--piper", type=Path, help="Piper voice (with its JSON); default: Kokoro only")
    parser.add_argument("--only", choices=("kokoro", "piper"))
    parser.add_argument("--texts", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    from voicelab.backends.kokoro import KokoroBackend, package_graph
    from voicelab.backends.phonemes import kokoro_tokens
    from voicelab.backends.piper import PiperBackend

    figures: dict[str, Any] = {"machine": machine(), "threads": options.threads, "overhead_goal_s": OVERHEAD_S}
    if options.only != "piper":
        with tempfile.TemporaryDirectory() as folder:
            kokoro = KokoroBackend(threads=options.threads)
            graph, voices = Path(folder) / "kokoro.onnx", Path(folder) / "voices.npz"
            graph.write_bytes(package_graph())
            np.savez(voices, af_heart=kokoro._tables["af_heart"][:, None])  # noqa: SLF001 - same style table
            their = (
                Theirs(options.theirs, "kokoro", str(graph), str(voices), str(options.threads))
                if options.theirs
                else None
            )
            phones = lambda text: "".join(token.symbols for token in kokoro_tokens(text))  # noqa: E731
            figures["kokoro"] = side_by_side(kokoro, their, phones, options.repeats, options.texts)
            if their is not None:
                their.close()
    if options.only != "kokoro" and options.piper is not None:
        piper = PiperBackend(options.piper, threads=options.threads)
        their = (
            Theirs(options.theirs, "piper", str(options.piper), "", str(options.threads)) if options.theirs else None
        )
        figures["piper"] = side_by_side(piper, their, lambda text: text, options.repeats, options.texts)
        if their is not None:
            their.close()
    report(figures)


if __name__ == "__main__":
    main()
