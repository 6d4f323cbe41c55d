"""Dask schedulers and workers as processes, which tests end by real signals; and the backends that workers open."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from tests.tones import ToneBackend
from voicelab.errors import EngineError, RequestInvalid

NOTHING: Mapping[str, str] = MappingProxyType({})
ROOT = Path(__file__).parents[2]


def tones() -> ToneBackend:
    """Return a backend whose fingerprint, failures and length of a note the worker's environment sets."""
    if "TONES_REFUSED" in os.environ:
        raise EngineError(os.environ["TONES_REFUSED"])
    if "TONES_CRASH" in os.environ:
        os._exit(3)
    broken = "TONES_BROKEN" in os.environ

    def step(number: int) -> None:
        if broken:
            raise EngineError("the disk is full")
        time.sleep(float(os.environ.get("TONES_NOTE_S", "0.004")))

    return ToneBackend(step, fingerprint=os.environ.get("TONES_FINGERPRINT", "tones-1"))


def picky() -> ToneBackend:
    """Return a backend that refuses texts with five characters or more."""

    def step(number: int) -> None:
        time.sleep(0.004)
        if number == 4:
            raise RequestInvalid.of("text", "five notes are too many")

    return ToneBackend(step)


@dataclass
class Processes:
    """A scheduler and workers, ended with the block."""

    folder: Path
    address: str = ""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        log = self.folder / "scheduler.log"
        self.scheduler = self._start(["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"], log)
        end = time.monotonic() + 60
        while not (listening := re.search(r"Scheduler at:\s+(tcp://\S+)", log.read_text())):
            assert time.monotonic() < end, log.read_text()
            assert self.scheduler.poll() is None, log.read_text()
            time.sleep(0.05)
        self.address = listening[1]
        return self

    def worker(
        self, name: str, preload: str = "", threads: int = 1, environment: Mapping[str, str] = NOTHING
    ) -> subprocess.Popen[bytes]:
        """Start a worker; ``preload`` is Python that it runs before it connects."""
        options = ["--name", name, "--nthreads", str(threads), "--no-nanny"]
        options += ["--local-directory", str(self.folder / name), "--host", "127.0.0.1"]
        if preload:
            (self.folder / f"{name}.py").write_text(preload)
            options += ["--preload", str(self.folder / f"{name}.py")]
        program = ["distributed.cli.dask_worker", self.address, *options]
        return self._start(program, self.folder / f"{name}.log", environment)

    def _start(
        self, program: list[str], log: Path, environment: Mapping[str, str] = NOTHING
    ) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", *program, "--no-dashboard"],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
                stdout=file,
                stderr=file,
            )
        self.running.append(process)
        return process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.running:
            process.kill()
            process.wait()
