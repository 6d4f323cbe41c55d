"""A model in a separate Python environment, as a backend: ``worker:PATH/python SCRIPT``.

The script loads the model and defines ``tts(text, ...)``, like a function for ``vl.connect``. ``voicelab.backends.child``
runs it in a long-lived process. ``voicelab worker-template`` prints a script to start from.
"""

from __future__ import annotations

import base64
import collections
import itertools
import json
import queue
import subprocess
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicelab.backends import child
from voicelab.backends.command import close_pipes, ended, files_digest, kill, time_limit_of, words_of
from voicelab.backends.model import ModelBackend, Parameter, check_at_once
from voicelab.call import VoicePreset
from voicelab.errors import ArgumentError, Cancelled, EngineError, EngineUnavailable
from voicelab.lifecycle import ProcessOwner

TEMPLATE: Final = '''\
"""A model for voicelab: vl.connect("worker:PATH/TO/ENVIRONMENT/bin/python THIS_SCRIPT.py").

Runs in the environment of the model, which does not need voicelab. The code outside the function runs once. Parameters
with a default are parameters of the backend; voice, seed, speed, ref_audio and ref_text receive voicelab's fields.
"""

import math

RATE = 24_000  # load the model here


def tts(text: str, voice: str = "low", pitch: float = 1.0, seed: int = 0):
    frequency = pitch * (220 if voice == "low" else 440)
    samples = [0.3 * math.sin(2 * math.pi * frequency * n / RATE) for n in range(RATE * len(text) // 15)]
    return samples, RATE  # or the path of a file, or its bytes; yield blocks to stream
'''

_START_LIMIT_S: Final = 900.0
_LOG_LINES: Final = 40
_MAX_LOG: Final = 600
_EXAMPLE: Final = "worker:/path/to/environment/bin/python script.py"


class WorkerBackend(ModelBackend):
    """Backend of a script that runs in another Python environment and loads its model once per process.

    If the process of the script has ended, the next call starts a new one.

    Args:
        command: path of a Python executable, path of a script, and arguments of the script.
        voices: values of ``voice``; by default those in the annotation ``Literal[...]`` of this parameter.
        at_once: maximum number of processes, each of which loads the model.
        time_limit_s: maximum time without an answer, in seconds.

    Raises:
        RequestInvalid: the Python executable does not exist.
        ArgumentError: the script does not exist, or a parameter of ``tts`` has no default and is not mapped by name.
        EngineError: the script fails; the message contains the end of its log.
    """

    def __init__(
        self,
        command: str,
        *,
        voices: Iterable[str | VoicePreset] | None = None,
        at_once: int = 1,
        time_limit_s: float = 600.0,
    ) -> None:
        check_at_once(at_once)  # before the model is loaded
        words = words_of(command, _EXAMPLE)
        if len(words) < 2 or not Path(words[1]).is_file():
            got = f"{words[1]!r}, which is not a file" if len(words) > 1 else "none"
            raise ArgumentError.of("worker", f"must have a script, as in {_EXAMPLE}; got {got}")
        self._command = [words[0], str(Path(child.__file__)), *words[1:]]
        self._name, self._time_limit_s = Path(words[1]).stem, time_limit_of(time_limit_s)
        self._count, self._owner = at_once, ProcessOwner()
        self._processes: list[_Process] = []
        self._starting = threading.Lock()
        # A notebook that opens a backend again must not keep the old model in memory.
        weakref.finalize(self, _close, self._processes)
        first = self._start()
        versions = json.dumps(first.greeting["versions"], sort_keys=True)
        super().__init__(
            self._name,
            map(Parameter.of, first.greeting["parameters"]),
            voices=voices,
            fingerprint=files_digest(versions, [*words[1:], *first.greeting["files"]]),
            at_once=at_once,
        )

    def run(self, text: str, arguments: Mapping[str, Any], stop: threading.Event) -> Iterator[object]:
        """Send a request to the least busy process and yield its answers. Raises EngineError, Cancelled."""
        sent = dict(arguments)
        if "references" in sent:
            encoded = [(base64.b64encode(item.audio).decode(), item.text) for item in sent["references"]]
            sent["references"] = [{"audio": audio, "text": text} for audio, text in encoded]
        process = self._process()
        for message in process.answers({"text": text, "arguments": sent}, stop, self._time_limit_s):
            if "error" in message:
                error = EngineError(f"{self._name} raised {message['error']}")
                error.add_note("\n".join(filter(None, (process.log.removeprefix("; "), message["traceback"]))))
                raise error
            if "samples" in message:
                data = base64.b64decode(message["samples"])
                samples = np.frombuffer(data, np.dtype(message["format"])).reshape(message["shape"])
                yield samples, message["rate"]
            else:
                yield message["path"] if "path" in message else base64.b64decode(message["audio"])

    def close(self) -> None:
        """End the processes; running streams raise EngineError. Idempotent."""
        super().close()
        _close(self._processes)

    def _process(self) -> _Process:
        with self._starting:
            if self._owner.forked:  # the processes belong to the parent
                self._owner = ProcessOwner()
            for process in [process for process in self._processes if not process.alive]:
                process.close()
                self._processes.remove(process)
            idle = any(not process.pending for process in self._processes)
            if not idle and len(self._processes) < self._count:
                self._start()
            return min(self._processes, key=lambda process: len(process.pending))

    def _start(self) -> _Process:
        process = _Process(self._command, self._name)
        self._processes.append(process)
        return process


class _Process:
    """Process of a script. Each answer has the id of its request, so answers may arrive in any order."""

    def __init__(self, command: list[str], name: str) -> None:
        self._name = name
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        self._owner = ProcessOwner()
        self._log: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)
        self.pending: dict[int, queue.SimpleQueue[dict[str, Any]]] = {0: queue.SimpleQueue()}
        self._ids, self._sending = itertools.count(1), threading.Lock()
        self._logger = threading.Thread(target=self._read_log, daemon=True)
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._logger.start()
        self._reader.start()
        try:
            self.greeting = self._next(0, _START_LIMIT_S)
        except BaseException:
            self.close()
            raise
        del self.pending[0]

    @property
    def alive(self) -> bool:
        return not self._owner.forked and self._process.poll() is None and self._reader.is_alive()

    @property
    def log(self) -> str:
        """End of the script's output, for an error message."""
        text = " ".join(" ".join(self._log).split())
        return f"; log: …{text[-_MAX_LOG:]}" if len(text) > _MAX_LOG else f"; log: {text}" if text else ""

    def answers(self, request: Mapping[str, Any], stop: threading.Event, limit_s: float) -> Iterator[dict[str, Any]]:
        """Send a request and yield the messages that answer it. Raises EngineError, Cancelled."""
        key = next(self._ids)
        self.pending[key] = queue.SimpleQueue()
        try:
            with self._sending:
                try:
                    stdin: Any = self._process.stdin
                    stdin.write(json.dumps({"id": key, **request}).encode() + b"\n")
                    stdin.flush()
                except OSError:
                    raise self._ended() from None
            while not (message := self._next(key, limit_s, stop)).get("done"):
                yield message
        finally:
            self.pending.pop(key, None)

    def close(self) -> None:
        if self._owner.forked:
            return
        if self._process.poll() is None:
            kill(self._process)
        self._logger.join(1.0)
        self._reader.join(1.0)
        close_pipes(self._process)

    def _next(self, key: int, limit_s: float, stop: threading.Event | None = None) -> dict[str, Any]:
        waited = 0.0
        while True:
            with suppress(queue.Empty):
                return self.pending[key].get(timeout=0.001 if not self._reader.is_alive() else 0.1)
            if not self._reader.is_alive() and self.pending[key].empty():
                raise self._ended()
            waited += 0.1
            if stop is not None and stop.is_set():
                raise Cancelled("the synthesis was cancelled")
            if waited > limit_s:
                self.close()
                raise EngineError(f"{self._name} did not answer within {limit_s:g} s and was stopped{self.log}")

    def _ended(self) -> EngineError:
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.close()
            code = self._process.wait()
        self._logger.join(1.0)
        kind = EngineUnavailable if code < 0 else EngineError
        return kind(f"{self._name} ended with {ended(code)}{self.log}")

    def _read_log(self) -> None:
        for line in self._process.stderr or ():
            self._log.append(line.decode("utf-8", "replace"))

    def _read_answers(self) -> None:
        for line in self._process.stdout or ():
            message = json.loads(line)
            waiting = self.pending.get(message.get("id", 0))
            if waiting is not None:  # else it was cancelled meanwhile
                waiting.put(message)


def _close(processes: list[_Process]) -> None:
    for process in processes:
        process.close()
