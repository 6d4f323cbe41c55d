"""A sandbox: bytes of unknown origin are decoded in a separate process that may be lost.

A decoder that crashes, hangs or takes all memory does no harm to the caller; one that an attacker controls can open no
file, write to no folder, and sees nothing of the environment. Where the platform has no such limits
(Windows) it is a separate process all the same. That process runs

    python -m voicelab.audio.sandbox MODULE:FUNCTION MEMORY CPU_SECONDS

Calls come on its standard input, answers leave on its standard output.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import av
import numpy as np

from voicelab.audio.formats import MAX_BYTES, MAX_SAMPLES_PER_SECOND, MAX_SECONDS, decode
from voicelab.audio.samples import Samples, as_samples, check_rate
from voicelab.errors import AudioError, VoicelabError

_CALL = struct.Struct("<QI")
"""How a call begins: bytes of data, then bytes of the options in JSON. The options follow, then the data."""
_ANSWER = struct.Struct("<BQ")
"""How an answer begins: ``_OK`` or ``_REFUSED``, then how many bytes of result, or of the reason, follow."""
_OK, _REFUSED = 0, 1

_LONGEST_REASON = 2000
"""Bytes."""
_IDLE = 2
"""Processes that are kept for the next call."""
# All that the process needs of the environment, which may hold keys and addresses.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG")


class Sandbox:
    """Calls ``function(data, **options) -> bytes`` in processes that can do nothing else.

    Processes are kept warm, and replaced when a call has killed them; as many run as calls come at once. Safe to use
    from several threads, and after a fork.

    Args:
        function: of a module, not of a class or another function; it refuses by raising one of our errors.
        seconds: a call may take so long, by the clock and of CPU time.
        memory: bytes it may take besides those that a process has when it starts.
        most: bytes of the longest answer.
    """

    def __init__(
        self, function: Callable[..., bytes], *, seconds: float = 30.0, memory: int = 2**30, most: int = 2**28
    ) -> None:
        self._name = f"{function.__module__}:{function.__qualname__}"
        self._seconds = seconds
        self._memory = memory
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._owner = os.getpid()
        atexit.register(self.close)

    def call(self, data: bytes, **options: object) -> bytes:
        """Return what the function returns. Raises AudioError with its reason, or with how the process ended."""
        worker = self._take()
        began = time.monotonic()
        # The caller, who waits for its answer, sees it end and clears up.
        timer = threading.Timer(self._seconds, worker.kill)
        timer.start()
        try:
            status, answer = self._ask(worker, data, json.dumps(options).encode())
        except (OSError, EOFError) as error:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(1.0)  # how it ended by itself is the reason, not that it is ended here
            late = time.monotonic() - began >= self._seconds
            status = worker.returncode
            ended = "stopped" if status is None or status >= 0 else f"was ended by signal {-status}"
            why = f"took longer than {self._seconds:g} s" if late else ended
            _end(worker)
            raise AudioError(f"the data cannot be decoded: the decoder {why}") from error
        except BaseException:
            _end(worker)
            raise
        finally:
            timer.cancel()
        with self._lock:
            again = len(self._idle) < _IDLE and worker.poll() is None
            if again:
                self._idle.append(worker)
        if not again:
            _end(worker)
        if status != _OK:
            raise AudioError(answer.decode(errors="replace"))
        return answer

    def close(self) -> None:
        """End the processes that wait. The next call starts another."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._owner == os.getpid():
            for worker in idle:
                _end(worker)

    def _ask(self, worker: subprocess.Popen[bytes], data: bytes, options: bytes) -> tuple[int, bytes]:
        calls, answers = worker.stdin, worker.stdout
        if calls is None or answers is None:
            raise EOFError
        calls.write(_CALL.pack(len(data), len(options)) + options)
        calls.write(data)
        calls.flush()
        status, size = _ANSWER.unpack(_read(answers, _ANSWER.size))
        if size > (self._most if status == _OK else _LONGEST_REASON):
            raise AudioError("the decoder answered with more than it should")
        return status, _read(answers, size)

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._owner != os.getpid():
                # After a fork they belong to the parent process.
                self._owner, self._idle = os.getpid(), []
            while self._idle:
                worker = self._idle.pop()
                if worker.poll() is None:
                    return worker
                _end(worker)
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # The modules that this process has, from the same places; and no threads, each of which maps much memory.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if os.path.isabs(path))  # noqa: PTH117 - a string
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        program = [sys.executable, "-P", "-m", "voicelab.audio.sandbox"]
        limits = [str(self._memory), str(self._seconds)]
        try:
            return subprocess.Popen(
                [*program, self._name, *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        except OSError as error:
            raise AudioError(f"the decoder cannot be started: {error}") from error


def decode_apart(data: bytes, *, max_seconds: float = MAX_SECONDS, max_bytes: int = MAX_BYTES) -> tuple[Samples, int]:
    """Decode a file as ``decode`` does, in a process of its own. Raises AudioError as it does."""
    if len(data) > max_bytes:
        raise AudioError(f"the audio file has {len(data)} bytes; at most {max_bytes} are read")
    answer = _AUDIO.call(data, max_seconds=max_seconds)
    if len(answer) < _RATE.size or (len(answer) - _RATE.size) % 4:
        raise AudioError("the decoder answered with something else than audio")
    (rate,) = _RATE.unpack_from(answer)
    # The process may be under the sender's control by now: its answer is checked like any other audio.
    samples = as_samples(np.frombuffer(answer, "<f4", offset=_RATE.size))
    if samples.size > max_seconds * MAX_SAMPLES_PER_SECOND or np.abs(samples).max(initial=0.0) > 1.0:
        raise AudioError("the decoder answered with something else than audio")
    return samples, check_rate(rate)


def decode_to_bytes(data: bytes, *, max_seconds: float) -> bytes:
    """Decode a file; return its rate in Hz (32 bits), then its samples as float32. Runs in the sandbox."""
    samples, rate = decode(data, max_seconds=max_seconds, max_bytes=None)
    return _RATE.pack(rate) + samples.astype("<f4").tobytes()


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    worker.wait()


def main(arguments: list[str]) -> None:
    """Be the other side of a Sandbox: give up all rights, then answer calls until there are no more."""
    module, _, name = arguments[0].partition(":")
    function: Callable[..., bytes] = getattr(importlib.import_module(module), name)
    # PyAV loads some of its modules when they are first needed; by then no file can be opened.
    for part in pkgutil.walk_packages(av.__path__, "av."):
        if not part.name.endswith("__main__"):
            importlib.import_module(part.name)
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    renew = _give_up_rights(int(arguments[1]), float(arguments[2]), answers.fileno() + 1)
    calls = sys.stdin.buffer
    while header := calls.read(_CALL.size):
        size, more = _CALL.unpack(header)
        options = json.loads(calls.read(more))
        renew()
        status, answer = _serve_one(function, calls.read(size), options)
        answers.write(_ANSWER.pack(status, len(answer)))
        answers.write(answer)
        answers.flush()


def _serve_one(function: Callable[..., bytes], data: bytes, options: dict[str, Any]) -> tuple[int, bytes]:
    try:
        return _OK, function(data, **options)
    except VoicelabError as error:
        return _REFUSED, str(error).encode(errors="replace")[:_LONGEST_REASON]
    except MemoryError:
        return _REFUSED, b"it takes too much memory"


def _give_up_rights(memory: int, cpu_seconds: float, files: int) -> Callable[[], None]:
    """Leave no folder to write to, no file to open and no more memory; return what grants a call its CPU time."""
    here = tempfile.mkdtemp(prefix="voicelab-")
    os.chdir(here)
    with suppress(OSError):  # Windows keeps the folder of a process
        os.rmdir(here)  # noqa: PTH106 - nothing can be made in a folder that is gone
    try:
        import resource
    except ImportError:
        return lambda: None

    def limit(kind: int, soft: int, hard: int) -> None:
        with suppress(OSError, ValueError):  # not every system has every limit
            resource.setrlimit(kind, (soft, hard))

    def renew() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + cpu_seconds) + 1, resource.RLIM_INFINITY)

    limit(resource.RLIMIT_CORE, 0, 0)
    limit(resource.RLIMIT_FSIZE, 0, 0)
    limit(resource.RLIMIT_AS, memory + _mapped(), memory + _mapped())
    # As many as are open: input, output, errors, answers. No other can be opened, not even to be read.
    limit(resource.RLIMIT_NOFILE, files, files)
    return renew


def _mapped() -> int:
    """Bytes of address space in use; as many as they can be where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 8 * 2**30


_RATE = struct.Struct("<I")
_AUDIO = Sandbox(decode_to_bytes)

if __name__ == "__main__":
    main(sys.argv[1:])
