"""The other side of a Sandbox: a process that gives up its rights, then calls one function for as long as it lives.

    python -m voicelab.audio.sandboxed MODULE:FUNCTION MEMORY CPU_SECONDS

Calls come on standard input, answers leave on standard output; see ``sandbox`` for their form.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import av

from voicelab.audio.sandbox import ANSWER, CALL, LONGEST_REASON, OK, REFUSED
from voicelab.errors import VoicelabError

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Serve calls until there are no more."""
    module, _, name = arguments[0].partition(":")
    function: Callable[..., bytes] = getattr(importlib.import_module(module), name)
    # PyAV loads some of its modules when they are first needed; by then no file can be opened.
    for found in pkgutil.walk_packages(av.__path__, "av."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    renew = _give_up_rights(int(arguments[1]), float(arguments[2]), answers.fileno() + 1)
    calls = sys.stdin.buffer
    while header := calls.read(CALL.size):
        size, more = CALL.unpack(header)
        options = json.loads(calls.read(more))
        renew()
        status, answer = _answer(function, calls.read(size), options)
        _write(answers, ANSWER.pack(status, len(answer)))
        _write(answers, answer)


def _answer(function: Callable[..., bytes], data: bytes, options: dict[str, Any]) -> tuple[int, bytes]:
    try:
        return OK, function(data, **options)
    except VoicelabError as error:
        return REFUSED, str(error).encode(errors="replace")[:LONGEST_REASON]
    except MemoryError:
        return REFUSED, b"it takes too much memory"


def _write(file: BinaryIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


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


if __name__ == "__main__":
    main(sys.argv[1:])
