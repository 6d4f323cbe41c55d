"""Kokoro and Piper through voicelab and through their own packages, side by side in one run: seconds to the first audio,
seconds of work for one of audio, and what voicelab itself adds to a call.

    python bench/other_voices.py --theirs VENV/bin/python
    python bench/other_voices.py --theirs VENV/bin/python --piper NAME.onnx --repeats 20

`--theirs` is a Python with kokoro-onnx and piper-tts, which is GPL and so runs in a process of its own; both processes read
the same graph, voice and text, with as many threads, and take turns. Our phones of English are given to kokoro-onnx, which
else brings espeak-ng. Without `--theirs` only our own figures are measured.
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
"""How we are asked: ``sentences`` is cut as Piper's package cuts; the default joins those of fewer than 50 characters."""
OVERHEAD_S = 0.005
"""What voicelab may add to a call, beside the work of the graph."""

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
    """Their package in a process of its own."""

    def __init__(self, python: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", THEIRS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        line = self._process.stdout.readline()
        if not line:
            sys.exit("their package ended; its errors are above")
        return line

    def say(self, **asked: str) -> list[float]:
        """Return the seconds to the first audio and to the last, and those of the audio."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer: list[float] = json.loads(self._line())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def ours(backend: Any, text: str, mode: str) -> list[float]:
    """Return what `Theirs.say` does, and the processor's seconds in our thread that were not the graph's."""
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
        own = time.thread_time() - begun - spent
    finally:
        backend.session.run = run
    size = len(take.audio) / 2 / 24000
    return [take.timing.first_audio_s, take.timing.total_s, size, own]


def middle(rows: list[list[float]], place: int) -> float:
    """The median of a column."""
    return round(float(np.median([row[place] for row in rows])), 4)


def span(rows: list[list[float]], place: int) -> list[float]:
    """The quarter and three quarters of a column."""
    return [round(float(one), 4) for one in np.quantile([row[place] for row in rows], (0.25, 0.75))]


def side_by_side(
    backend: Any, their: Theirs | None, phones: Callable[[str], str], repeats: int, texts: Sequence[str]
) -> dict[str, Any]:
    """Both on each text, in an order that changes every time, after one unmeasured call each."""
    figures: dict[str, Any] = {}
    ours(backend, "Ready.", "normal")
    if their is not None:
        their.say(text="Ready.", phones=phones("Ready."))
    for name in texts:
        text = TEXTS[name]
        rows: dict[str, list[list[float]]] = {"theirs": [], **{mode: [] for mode in MODES}}
        order = list(rows) if their is not None else list(MODES)
        for turn in range(repeats):
            # Whoever speaks after a pause of its process speaks a little slower: everybody is anybody's neighbour.
            random.Random(turn).shuffle(order)
            for who in order:
                if who != "theirs":
                    rows[who].append(ours(backend, text, who))
                elif their is not None:
                    rows[who].append(their.say(text=text, phones=phones(text)))
        figures[name] = {
            "first_audio_s": {key: middle(each, 0) for key, each in rows.items() if each},
            "first_audio_quartiles_s": {key: span(each, 0) for key, each in rows.items() if each},
            "rtf": {key: round(middle(each, 1) / middle(each, 2), 3) for key, each in rows.items() if each},
            "overhead_s": middle(rows["normal"], 3),
            "overhead_quartiles_s": span(rows["normal"], 3),
        }
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--theirs", help="a Python with kokoro-onnx and piper-tts")
    parser.add_argument("--piper", type=Path, help="a voice of Piper's, its JSON beside it; else Kokoro alone")
    parser.add_argument("--only", choices=("kokoro", "piper"))
    parser.add_argument("--texts", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    from voicelab.onnx.kokoro import KokoroBackend, package_graph
    from voicelab.onnx.phonemes import pieces
    from voicelab.onnx.piper import PiperBackend

    figures: dict[str, Any] = {"machine": machine(), "threads": asked.threads, "overhead_goal_s": OVERHEAD_S}
    if asked.only != "piper":
        with tempfile.TemporaryDirectory() as folder:
            kokoro = KokoroBackend(threads=asked.threads)
            graph, voices = Path(folder) / "kokoro.onnx", Path(folder) / "voices.npz"
            graph.write_bytes(package_graph())
            np.savez(voices, af_heart=kokoro._tables["af_heart"][:, None])  # noqa: SLF001 - the table that it speaks with
            their = (
                Theirs(asked.theirs, "kokoro", str(graph), str(voices), str(asked.threads)) if asked.theirs else None
            )
            phones = lambda text: "".join(piece.symbols for piece in pieces(text))  # noqa: E731
            figures["kokoro"] = side_by_side(kokoro, their, phones, asked.repeats, asked.texts)
            if their is not None:
                their.close()
    if asked.only != "kokoro" and asked.piper is not None:
        piper = PiperBackend(asked.piper, threads=asked.threads)
        their = Theirs(asked.theirs, "piper", str(asked.piper), "", str(asked.threads)) if asked.theirs else None
        figures["piper"] = side_by_side(piper, their, lambda text: text, asked.repeats, asked.texts)
        if their is not None:
            their.close()
    report(figures)


if __name__ == "__main__":
    main()
