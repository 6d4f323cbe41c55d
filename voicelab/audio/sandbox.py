"""Decode untrusted bytes in a sandboxed worker process.

A decoder that crashes, hangs or exhausts memory does not affect the caller. Its process cannot open files, because all its
file descriptors are in use, and its environment has no secrets. The sandbox does not contain an attacker who runs code in
the process. On Windows no limits are set, so the separate process is the only protection. The worker process runs

    python -m voicelab.audio.sandbox MODULE:FUNCTION MEMORY CPU_SECONDS

and reads calls from standard input and writes results to standard output.
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

import numpy as np

from voicelab.audio.formats import MAX_BYTES, MAX_SAMPLES_PER_SECOND, MAX_SECONDS, decode
from voicelab.audio.samples import Samples, as_samples, check_rate
from voicelab.errors import AudioError, VoicelabError

_CALL = struct.Struct("<QI")
"""Header of a call: sizes in bytes of the data and of the JSON options. The options follow, then the data."""
_ANSWER = struct.Struct("<BQ")
"""Header of an answer: ``_OK`` or ``_REJECTED``, then the size in bytes of the result or error message that follows."""
_OK, _REJECTED = 0, 1

_MAX_MESSAGE_SIZE = 2000
"""Maximum size of an error message in bytes."""
_MAX_IDLE_WORKERS = 2
"""Maximum number of idle worker processes."""
# Environment variables passed to the worker; all others may hold secrets.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG")


class Sandbox:
    """Run ``function(data, **options) -> bytes`` in sandboxed worker processes, one per concurrent call.

    Idle workers are reused and crashed workers replaced. Thread-safe and fork-safe.

    Args:
        function: module-level function; raises a VoicelabError to reject the data.
        seconds: timeout of a call, in wall-clock and CPU time.
        memory: memory limit in bytes, in addition to the memory of a new process.
        max_answer_size: maximum size of an answer in bytes.
    """

    def __init__(
        self,
        function: Callable[..., bytes],
        *,
        seconds: float = 30.0,
        memory: int = 2**30,
        max_answer_size: int = 2**28,
    ) -> None:
        self._name = f"{function.__module__}:{function.__qualname__}"
        self._seconds = seconds
        self._memory = memory
        self._max_answer_size = max_answer_size
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._owner_pid = os.getpid()
        atexit.register(self.close)

    def call(self, data: bytes, **options: object) -> bytes:
        """Call the function. Raises AudioError if it rejects the data, times out or crashes."""
        worker = self._take()
        began = time.monotonic()
        # Killing the worker ends the caller's blocking read.
        timer = threading.Timer(self._seconds, worker.kill)
        timer.start()
        try:
            status, answer = self._ask(worker, data, json.dumps(options).encode())
        except (OSError, EOFError) as error:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(1.0)  # to read the exit status of the crash, not of the kill below
            timed_out = time.monotonic() - began >= self._seconds
            status = worker.returncode
            ended = "stopped" if status is None or status >= 0 else f"was ended by signal {-status}"
            reason = f"took longer than {self._seconds:g} s" if timed_out else ended
            _end(worker)
            raise AudioError(f"the data cannot be decoded: the decoder {reason}") from error
        except BaseException:
            _end(worker)
            raise
        finally:
            timer.cancel()
        with self._lock:
            reusable = len(self._idle) < _MAX_IDLE_WORKERS and worker.poll() is None
            if reusable:
                self._idle.append(worker)
        if not reusable:
            _end(worker)
        if status != _OK:
            raise AudioError(answer.decode(errors="replace"))
        return answer

    def close(self) -> None:
        """Stop idle workers. The next call starts a new worker."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._owner_pid == os.getpid():
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
        if size > (self._max_answer_size if status == _OK else _MAX_MESSAGE_SIZE):
            raise AudioError("the decoder returned more data than allowed")
        return status, _read(answers, size)

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._owner_pid != os.getpid():
                # After a fork the idle workers belong to the parent process.
                self._owner_pid, self._idle = os.getpid(), []
            while self._idle:
                worker = self._idle.pop()
                if worker.poll() is None:
                    return worker
                _end(worker)
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # Use the import path of this process, and one thread, since each thread maps much memory.
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
            raise AudioError(f"the decoder process could not be started: {error}") from error


def decode_apart(data: bytes, *, max_seconds: float = MAX_SECONDS, max_bytes: int = MAX_BYTES) -> tuple[Samples, int]:
    """Decode a file with ``decode`` in a sandboxed process. Raises the same AudioError as ``decode``."""
    if len(data) > max_bytes:
        raise AudioError(f"the audio file must be at most {max_bytes} bytes, got {len(data)}")
    answer = _AUDIO.call(data, max_seconds=max_seconds)
    if len(answer) < _RATE.size or (len(answer) - _RATE.size) % 4:
        raise AudioError("the decoder returned invalid audio")
    (rate,) = _RATE.unpack_from(answer)
    # A compromised worker may return anything, so validate its answer.
    samples = as_samples(np.frombuffer(answer, "<f4", offset=_RATE.size))
    if samples.size > max_seconds * MAX_SAMPLES_PER_SECOND or np.abs(samples).max(initial=0.0) > 1.0:
        raise AudioError("the decoder returned invalid audio")
    return samples, check_rate(rate)


def decode_to_bytes(data: bytes, *, max_seconds: float) -> bytes:
    """Decode a file to bytes: the rate in Hz as uint32, then float32 samples. Runs in the sandbox."""
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
    """Run the worker: drop privileges, then answer calls until standard input ends."""
    module, _, name = arguments[0].partition(":")
    function: Callable[..., bytes] = getattr(importlib.import_module(module), name)
    import av

    # PyAV loads some modules lazily, which fails once files cannot be opened.
    for submodule in pkgutil.walk_packages(av.__path__, "av."):
        if not submodule.name.endswith("__main__"):
            importlib.import_module(submodule.name)
    # Keep the output of libraries apart from answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    renew = _drop_privileges(int(arguments[1]), float(arguments[2]), answers.fileno() + 1)
    calls = sys.stdin.buffer
    while header := calls.read(_CALL.size):
        size, options_size = _CALL.unpack(header)
        options = json.loads(calls.read(options_size))
        renew()
        status, answer = _answer(function, calls.read(size), options)
        answers.write(_ANSWER.pack(status, len(answer)))
        answers.write(answer)
        answers.flush()


def _answer(function: Callable[..., bytes], data: bytes, options: dict[str, Any]) -> tuple[int, bytes]:
    try:
        return _OK, function(data, **options)
    except VoicelabError as error:
        return _REJECTED, str(error).encode(errors="replace")[:_MAX_MESSAGE_SIZE]
    except MemoryError:
        return _REJECTED, b"the decoder exceeded its memory limit"


def _drop_privileges(memory: int, cpu_seconds: float, files: int) -> Callable[[], None]:
    """Apply the resource limits of the sandbox; return a function that renews the CPU time limit before each call."""
    folder = tempfile.mkdtemp(prefix="voicelab-")
    os.chdir(folder)
    with suppress(OSError):  # Windows cannot delete the working directory
        os.rmdir(folder)  # noqa: PTH106 - no file can be created in a deleted folder
    try:
        import resource
    except ImportError:
        return lambda: None

    def limit(kind: int, soft: int, hard: int) -> None:
        with suppress(OSError, ValueError):  # some limits are missing on some systems
            resource.setrlimit(kind, (soft, hard))

    def renew() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + cpu_seconds) + 1, resource.RLIM_INFINITY)

    limit(resource.RLIMIT_CORE, 0, 0)
    limit(resource.RLIMIT_FSIZE, 0, 0)
    limit(resource.RLIMIT_AS, memory + _mapped(), memory + _mapped())
    # The files already open: standard input, output, error, and answers.
    limit(resource.RLIMIT_NOFILE, files, files)
    return renew


def _mapped() -> int:
    """Return the address space in use in bytes; where /proc is missing, return 8 GiB, which is an upper bound."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 8 * 2**30


_RATE = struct.Struct("<I")
_AUDIO = Sandbox(decode_to_bytes)

if __name__ == "__main__":
    main(sys.argv[1:])
