"""A command as a backend: ``command:espeak-ng -v {voice=en} -s {rate=170} -w {out} {text}``.

Placeholders: ``{text}``, ``{text_file}`` (a UTF-8 file), ``{out}`` (the audio file to write), ``{voice}``, ``{seed}``,
``{speed}``, ``{ref_audio}``, ``{ref_text}``. Other placeholders are backend parameters. They state a default, as in
``{rate=170}``, or the allowed values with the default first, as in ``{style=calm|lively}``. If the command has neither
``{text}`` nor ``{text_file}``, the text is written to standard input. If it has no ``{out}``, the audio is read from
standard output. ``{{`` and ``}}`` are literal braces.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from voicelab.backends.model import MAPPED, ModelBackend, Parameter
from voicelab.call import VoicePreset
from voicelab.errors import ArgumentError, Cancelled, EngineError, RequestInvalid, shown_value

_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([^\W\d]\w*)(?:=([^{}]*))?\}")
_OWN: Final = ("text", "text_file", "out")
_SHELL: Final = frozenset(("|", ">", ">>", "<", "2>", "2>&1", "&", "&&", "||", ";"))
_MAX_ERROR: Final = 600
_DIGESTED: Final = 8 * 2**20
"""Bytes at the beginning and the end of a program or model file that are part of the fingerprint."""


class CommandBackend(ModelBackend):
    """Backend that runs a command once per call, without a shell.

    The value of a placeholder is not split: it becomes one argument of the command, or part of one.

    Args:
        command: command with placeholders, see the module docstring.
        voices: allowed values of ``{voice}``; by default any.
        at_once: maximum number of concurrent commands; by default one per core.
        time_limit_s: maximum duration of a command in seconds.

    Raises ArgumentError for an invalid placeholder, RequestInvalid if the program does not exist.
    """

    def __init__(
        self,
        command: str,
        *,
        voices: Iterable[str | VoicePreset] | None = None,
        at_once: int | None = None,
        time_limit_s: float = 300.0,
    ) -> None:
        program, *arguments = words_of(command, "command:espeak-ng -v {voice} -w {out} {text}")
        self._words = [program, *arguments]
        self._time_limit_s = time_limit_of(time_limit_s)
        matches = [match for word in self._words for match in _PLACEHOLDER.finditer(word) if match[1]]
        matches.sort(key=lambda match: match[2] is not None)  # a default applies to every occurrence
        defaults: dict[str, str | None] = {match[1]: match[2] for match in matches}
        self._names = defaults.keys()
        for word in self._words:
            if word in _SHELL:
                script = 'sh -c \'… "$1" … "$2"\' sh {text} {out}'
                message = f"must not contain {word!r}, because it is run without a shell; write a script, or {script}"
                raise ArgumentError.of("command", message)
            if re.search("[{}]", _PLACEHOLDER.sub("", word)):
                message = f"must have placeholders such as {{text}} or {{rate=170}}, and {{{{ for a brace, got {word!r}"
                raise ArgumentError.of("command", message)
        listed = [_parameter(name, default) for name, default in defaults.items() if name not in _OWN]
        super().__init__(
            Path(program).name,
            listed,
            voices=voices,
            fingerprint=files_digest(command, self._words),
            at_once=at_once if at_once is not None else os.cpu_count() or 1,
        )

    def run(self, text: str, arguments: Mapping[str, Any], stop: threading.Event) -> Iterator[object]:
        """Run the command and yield the audio that it wrote, to a file or to standard output. Raises EngineError."""
        with tempfile.TemporaryDirectory(prefix="voicelab-") as folder:
            out, text_file = Path(folder, "out.wav"), Path(folder, "text.txt")
            text_file.write_text(text, encoding="utf-8")
            defaults = {item.name: item.default for item in self._parameters.values()}
            # A text that begins with "-" would be an option of the program.
            own = {"text": text if text[:1] != "-" else f" {text}", "text_file": text_file, "out": out}
            values = {**defaults, **arguments, **own}
            command = [self._filled(word, values) for word in self._words]
            given = b"" if {"text", "text_file"} & self._names else text.encode()
            output = self._output(command, given, stop)
            if "out" in self._names:
                if not out.exists() or not out.stat().st_size:
                    files = ", ".join(path.name for path in sorted(Path(folder).iterdir()) if path != text_file)
                    got = f"an empty {out.name}" if out.exists() else f"{files or 'no file'} instead of {out.name}"
                    raise EngineError(
                        f"{self._capabilities.name} must write audio to {{out}}, got {got}{_end(output[1])}"
                    )
                yield out.read_bytes()
            elif output[0]:
                yield output[0]
            else:
                message = f"{self._capabilities.name} must write audio to standard output or to {{out}}, got nothing"
                raise EngineError(message + _end(output[1]))

    def _filled(self, word: str, values: Mapping[str, Any]) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0][0]
            filled = "" if values[match[1]] is None else _written(values[match[1]])
            if filled.startswith("-") and match.start() == 0 and isinstance(values[match[1]], str):
                raise RequestInvalid.of(match[1], f"must not begin with '-', got {filled!r}")
            return filled

        return _PLACEHOLDER.sub(value, word)

    def _output(self, command: list[str], given: bytes, stop: threading.Event) -> tuple[bytes, bytes]:
        """Run a command and return its standard output and error. Raises EngineError, Cancelled."""
        name, deadline = self._capabilities.name, time.monotonic() + self._time_limit_s
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except (OSError, ValueError) as error:  # ValueError: a null character in the text
            raise EngineError(f"{name} cannot be started: {getattr(error, 'strerror', None) or error}") from error
        first: bytes | None = given
        try:
            while True:
                try:
                    output, errors = process.communicate(first, timeout=0.1)
                    break
                except subprocess.TimeoutExpired:
                    first = None
                if stop.is_set():
                    raise Cancelled("the synthesis was cancelled")
                if time.monotonic() > deadline:
                    raise EngineError(f"{name} did not finish within {self._time_limit_s:g} s and was stopped")
        finally:
            if process.poll() is None:
                kill(process)
            close_pipes(process)
        if process.returncode:
            details = errors or (b"" if b"\0" in output else output)  # the output is not audio
            raise EngineError(f"{name} ended with {ended(process.returncode)}{_end(details)}")
        return output, errors


def words_of(command: str, example: str) -> list[str]:
    """Split a command into the path of its program and arguments, with ``~`` expanded.

    Raises ArgumentError for unbalanced quotes, RequestInvalid if the program does not exist.
    """
    try:
        words = [os.path.expanduser(word) for word in shlex.split(command)]  # noqa: PTH111 - of arguments, not paths
    except ValueError as error:
        raise ArgumentError.of("command", f"must have balanced quotes, got {command!r} ({error})") from None
    program = shutil.which(words[0]) if words else None
    if program is None:
        got = f"{words[0]!r}, which is not an executable program on the PATH" if words else "nothing"
        if any(Path(" ".join(words[:count])).is_file() for count in range(2, len(words) + 1)):
            got += "; quote a path that contains spaces"
        raise RequestInvalid.of("backend", f"must be a command such as {example}, got {got}", in_="query")
    return [program, *words[1:]]


def time_limit_of(value: Any) -> float:
    """Return a time limit in seconds. Raises ArgumentError if it is not a positive number."""
    if not isinstance(value, int | float) or not value > 0:
        raise ArgumentError.of("time_limit_s", f"must be a positive number of seconds, got {shown_value(value)}")
    return value


def _parameter(name: str, default: str | None) -> Parameter:
    """Return the parameter of a placeholder; its type is that of its default, or of its allowed values."""
    if default is None:
        if name not in MAPPED:
            mapped = "{text}, {text_file}, {out}, {voice}, {seed}, {speed}, {ref_audio}, {ref_text}"
            message = f"placeholder {{{name}}} must have a default, as in {{{name}=1}}, or be one of {mapped}"
            raise ArgumentError.of("command", message)
        return Parameter(name, "str", required=True)
    words = default.split("|")
    choices = words if len(words) > 1 else []
    if {*words} <= {"true", "false"}:
        return Parameter(name, "bool", default=words[0] == "true")
    for kind in (int, float):
        with suppress(ValueError):
            return Parameter(name, kind.__name__, default=kind(words[0]), choices=tuple(map(kind, choices)))
    return Parameter(name, "str", default=words[0], choices=tuple(choices))


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a session leader with its children, and wait until it has ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    process.wait()


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a process that ended."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def ended(code: int) -> str:
    """Describe an exit code. A negative exit code means that a signal ended the process."""
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _end(output: bytes) -> str:
    """Return the last part of a program's messages, for an error message."""
    text = " ".join(output.decode("utf-8", "replace").split())
    return f": …{text[-_MAX_ERROR:]}" if len(text) > _MAX_ERROR else f": {text}" if text else ""


def files_digest(command: str, words: Iterable[str]) -> str:
    """Compute the fingerprint of a command from its text and the files that it names.

    Of a large file, only the beginning and the end are read.
    """
    sha = hashlib.sha256(command.encode())
    for word in words:
        try:
            with Path(word).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                sha.update(f"{size}".encode() + file.read(_DIGESTED))
                if size > _DIGESTED:
                    file.seek(max(_DIGESTED, size - _DIGESTED))
                    sha.update(file.read(_DIGESTED))
        except (OSError, ValueError):
            continue
    return sha.hexdigest()[:16]
