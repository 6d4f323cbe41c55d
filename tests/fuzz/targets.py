"""Whatever reads bytes of others, each as a function that ends well or with an error of ours; any other exception is a fault.

    python -m tests.fuzz.targets [TARGET…] [--seconds 600] [--found FOLDER]

drives them by atheris, coverage-guided, where it is installed (Linux and macOS), and otherwise with mutations at random. It
begins with what is kept in tests/fuzz/corpus, prints inputs, edges and each fault once, and exits 1 when there is one. The
inputs of faults, and short ones that reached something new, are left in ``--found``.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import torch
from starlette.exceptions import HTTPException

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.sandbox import decode_apart
from voicelab.backends.onnx import GraphSession
from voicelab.backends.openai import audio_of_events
from voicelab.backends.wire import Answer, capabilities_of, failure, voice_of
from voicelab.checks.check import check
from voicelab.engine.dual.files import TensorFiles
from voicelab.engine.pointer import checkpoint
from voicelab.errors import VoicelabError
from voicelab.listening.plan import Plan
from voicelab.runs.folder import _CHECK, _check
from voicelab.schema import AudioFormat, TTSRequest, VoiceCreate
from voicelab.service.requests import _Form, decode, form_fields
from voicelab.sweeps.spec import read_spec
from voicelab.takes.collection import load

CORPUS = Path(__file__).with_name("corpus")
_LONGEST = 16_384
"""Bytes of an input."""
_KEPT = 24
"""Inputs that are left of a run, the shortest."""
_FOLDER = Path(tempfile.mkdtemp(prefix="voicelab-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108 - memory is quicker
_INSTRUMENTED = ("voicelab", "python_multipart", "tomllib", "nbformat", "json")
_READERS: tuple[Callable[[bytes], object], ...] = (
    lambda data: voice_of(Answer(200, {}, data)),
    lambda data: str(failure(Answer(422, {}, data))),
    lambda data: capabilities_of(Answer(200, {}, data), "http://127.0.0.1"),
    lambda data: b"".join(audio_of_events([data[:50], data[50:]], str)),
)
_STREAMS: tuple[AudioFormat, ...] = ("wav", "mp3", "opus", "pcm")


def _file(name: str, data: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(data)
    return path


def _json(data: bytes) -> None:
    wire = decode(data, "json")
    TTSRequest.from_wire(wire, binary=False)


def _msgpack(data: bytes) -> None:
    wire = decode(data, "msgpack")
    for read in (lambda: TTSRequest.from_wire(wire, binary=True), lambda: VoiceCreate.from_wire(wire)):
        try:
            read()
        except VoicelabError:
            continue


def _form(data: bytes) -> None:
    form = _Form(b"x", 2000)
    for start in range(0, len(data), 500):
        form.feed(data[start : start + 500])
    VoiceCreate.from_wire(form_fields(form.finish()), form=True)


def _upload(data: bytes) -> None:
    decode_apart(data, max_seconds=2.0)


def _stream(data: bytes) -> None:
    decoder = StreamDecoder(_STREAMS[data[0] % len(_STREAMS)] if data else "wav", 24_000)
    for start in range(1, len(data), 700):
        decoder.feed(data[start : start + 700])
    decoder.finish()


def _run(data: bytes) -> None:
    """A run's lines, each with a check that fits: whoever sends a folder can make those."""
    lines = [line.rpartition(_CHECK)[0] or line for line in data.split(b"\n")]
    run = load(_file("run.jsonl", b"".join(line + _CHECK + _check(line) + b"\n" for line in lines)).parent)
    assert len(run.frame()) == len(run.rows)
    assert isinstance(run.run.problems, tuple)
    for take in run:
        try:
            take.clip()
        except VoicelabError:
            continue


def _tensors(data: bytes) -> None:
    path = _file("model.safetensors", data)
    try:
        checkpoint.load(path)
    except VoicelabError:
        files = TensorFiles.open(path)
        for name in files.entries:
            files.read(name, torch.device("cpu"))


def _answer(data: bytes) -> None:
    """What a service answers: a voice's record, a refusal, what it declares, and server-sent events."""
    for read in _READERS:
        try:
            read(data)
        except VoicelabError:
            continue


TARGETS: dict[str, Callable[[bytes], object]] = {
    "json": _json,
    "msgpack": _msgpack,
    "form": _form,
    "upload": _upload,
    "stream": _stream,
    "run": _run,
    "plan": lambda data: Plan.load(_file("plan.toml", data)),
    "sweep": lambda data: read_spec(_file("sweep.toml", data)),
    "onnx": lambda data: GraphSession(data, name="fuzz", extra="piper", threads=1),
    "safetensors": _tensors,
    "notebook": lambda data: check(_file("fuzz.ipynb", data), run=False),
    "answer": _answer,
}


def kept(target: str) -> list[bytes]:
    """What a run begins with: something valid of each kind, and what earlier runs left."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


def tried(target: str, data: bytes) -> str:
    """Let a target read an input; return where it failed: "" when it ended as it should."""
    try:
        TARGETS[target](data)
    except (VoicelabError, HTTPException):
        return ""
    except BaseException as error:  # noqa: BLE001 - what panics in Rust is no Exception
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
        return f"{type(error).__name__} in {Path(frames[-1].filename).name}:{frames[-1].lineno}: {str(error)[:100]}"
    return ""


def mutations(inputs: list[bytes], chance: random.Random) -> Iterator[bytes]:
    """Yield inputs with bytes flipped, cut out, doubled, nested or taken from another."""
    while True:
        data = bytearray(chance.choice(inputs))
        for _ in range(chance.randint(1, 4)):
            at, other = chance.randrange(len(data) + 1), chance.choice(inputs)
            piece = chance.choice(
                (b"", bytes([chance.randrange(256)]), b"[" * 40_000, b"9" * 30, other[at : at + 9], b"\xff" * 4)
            )
            data[at : at + chance.choice((0, 1, 1, 8))] = piece
        yield bytes(data)


def _guided(target: str, seconds: int, found: Path, note: Callable[[bytes], object]) -> None:
    import atheris

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in _INSTRUMENTED:
            for part in [*vars(module).values()]:
                for one in vars(part).values() if isinstance(part, type) else (part,):
                    if isinstance(one, FunctionType) and one.__module__ == name:
                        atheris.instrument_func(one)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={_LONGEST}",
        "-timeout=30",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
    ]
    atheris.Setup(["fuzz", *options, str(found), str(CORPUS / target)], note)
    atheris.Fuzz()


def _at_random(target: str, seconds: int, note: Callable[[bytes], object]) -> None:
    until, count = time.monotonic() + seconds, 0
    for data in mutations(kept(target), random.Random()):
        note(data)
        count += 1
        if time.monotonic() > until:
            break
    sys.stderr.write(f"stat::number_of_executed_units: {count}\n")


def drive(target: str, seconds: int, found: Path) -> None:
    """Feed one target for so long; each fault is written once beside what was found."""
    faults = set[str]()

    def note(data: bytes) -> None:
        where = tried(target, data)
        if where and where.partition(":")[0] not in faults:
            faults.add(where.partition(":")[0])
            (found.parent / f"fault-{target}-{len(faults)}").write_bytes(data)
            sys.stderr.write(f"FAULT {where}\n")

    logging.disable()
    if importlib.util.find_spec("atheris"):
        _guided(target, seconds, found, note)
    else:
        _at_random(target, seconds, note)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    arguments.add_argument("--seconds", type=int, default=600, help="of each target")
    arguments.add_argument("--found", type=Path, default=Path("build/fuzz"))
    arguments.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process
    said = arguments.parse_args()
    if said.here:
        drive(said.targets[0], said.seconds, said.found / said.targets[0])
        return 0
    bad = 0
    for target in said.targets or TARGETS:
        found = said.found / target
        found.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz.targets", target, "--here", "--found", str(said.found)]
        done = subprocess.run([*command, "--seconds", str(said.seconds)], capture_output=True, check=False)
        words = done.stderr.decode(errors="replace")
        faults = [line for line in words.splitlines() if line.startswith(("FAULT", "==", "SUMMARY"))]
        units = re.findall(r"number_of_executed_units:\s+(\d+)", words)
        edges = re.findall(r"cov: (\d+)", words)
        sys.stdout.write(
            f"{target}: {units[-1] if units else '?'} inputs, {edges[-1] if edges else '?'} edges, {len(faults)} faults\n"
        )
        sys.stdout.write("".join(f"  {line}\n" for line in faults))
        sys.stdout.flush()
        bad += bool(faults) or done.returncode != 0 or not units
        for path in sorted(found.iterdir(), key=lambda path: path.stat().st_size)[_KEPT:]:
            path.unlink()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
