"""Caching, recording and replay of a backend, in the run format of `voicelab.runs`.

A recording is replayed in order: the n-th identical call gets the n-th recorded response, which is audio in its original
chunks, a voice record or an error. A recording contains requests and responses, but no keys, HTTP headers or addresses.
"""

from __future__ import annotations

import difflib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from voicelab.backend import Backend, SpeechStream, StreamSummary, current_capabilities, delete_voice, list_voices
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call, check_text_length
from voicelab.clip import Take, Timing, take_key
from voicelab.errors import Cancelled, RequestInvalid, StoreError, VoicelabError, shortened, shown_value
from voicelab.runs.cache import Cache
from voicelab.runs.failures import Failed, Failure
from voicelab.runs.folder import RUN_FILE, RunFolder, check_older
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.storage import digest_of

ReplayTiming = Literal["original", "at once"]
"""Replay chunks with their recorded timing, or as fast as they are read."""
VoiceCall = Literal["create_voice", "get_voice"]

_MAX_VALUE_LENGTH: Final = 60


class BackendWrapper:
    """Base of backends that delegate to another one; closing the wrapper closes the wrapped backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the wrapped backend."""
        return self.backend.capabilities

    def renew_fingerprint(self) -> None:
        """Renew the fingerprint, if the backend is a function."""
        current_capabilities(self.backend)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Create a voice model. Raises the errors of the backend."""
        return self.backend.create_voice(request)

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record of a voice model. Raises the errors of the backend."""
        return self.backend.get_voice(id)

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """List the voice models of the caller, if the backend supports it."""
        return list_voices(self.backend)

    def delete_voice(self, id: str) -> None:
        """Delete a voice model, if the backend supports it; stored takes remain.

        Raises the same errors as ``voicelab.backend.delete_voice``.
        """
        delete_voice(self.backend, id)

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()


class CachedBackend(BackendWrapper):
    """Backend that caches deterministic calls: those at temperature 0, and those with a seed if seeds are exact.

    Other calls bypass the cache. A cached take is returned at once, with its original timing and a note that states its
    date.
    """

    def __init__(self, backend: Backend, cache: Cache) -> None:
        super().__init__(backend)
        self.cache = cache

    def __repr__(self) -> str:
        return f"CachedBackend({self.backend!r}, {self.cache!r})"

    def synthesize(self, call: Call) -> SpeechStream:
        """Synthesize, or return the cached take.

        Raises the errors of the backend. A take that cannot be stored is returned with a note.
        """
        capabilities = current_capabilities(self.backend)
        call = check_call(call, capabilities)
        deterministic = call.request.temperature == 0.0 or (call.seed is not None and capabilities.seed == "exact")
        if not deterministic:
            return self.backend.synthesize(call)
        cached, notes = self.cache.look(take_key(call, capabilities.fingerprint))
        if cached is not None:
            return _RecordedStream(cached, capabilities)

        def finished(stream: SpeechStream, audio: bytes) -> tuple[str, ...]:
            take = stream.take_of(audio)
            stored = self.cache.keep(take, *notes, backend=capabilities)
            return stored.notes[len(take.notes) :] if stored.digest == take.digest else notes

        return self.backend.synthesize(call).keep(finished)


class RecordingBackend(BackendWrapper):
    """Backend that records all calls for ReplayBackend.

    Streams are recorded when they finish or fail, but not when their reader closes them. A take that cannot be recorded is
    returned with a note.

    Args:
        backend: Backend to record; it is closed together with this one.
        folder: Run folder, created if necessary. An earlier recording of the same calls is replaced.

    Raises:
        StoreError: The folder is not writable, has a recording of another backend, or has a recording and the service is
            unreachable, so that it cannot be identified.
    """

    def __init__(self, backend: Backend, folder: str | Path) -> None:
        super().__init__(backend)
        self.run = RunFolder(folder, sync_s=0.0)
        self._answers: Counter[str] = Counter()
        self._lock = threading.Lock()
        # A service that was unreachable may declare more later, but all keys must be computed from one declaration.
        self._declared = backend.capabilities
        _declare(self.run, self._declared)

    def __repr__(self) -> str:
        return f"RecordingBackend({self.backend!r}, {str(self.run.folder)!r})"

    def synthesize(self, call: Call) -> SpeechStream:
        """Synthesize and record. Raises the errors of the backend."""
        started = time.perf_counter()
        call = check_call(call, self._declared)

        def finished(stream: SpeechStream, audio: bytes) -> tuple[str, ...]:
            return self._keep(stream.take_of(audio))

        def failed(stream: SpeechStream, audio: bytes, error: VoicelabError) -> None:
            self._keep(stream.take_of(audio), failure=Failure.of(error).record(), at="stream")

        try:
            stream = self.backend.synthesize(call)
        except Cancelled:
            raise
        except VoicelabError as error:
            failed_call = Failed.of(call, self._declared, error, started=started)
            self._keep(failed_call.take, failure=failed_call.failure.record(), at="call")
            raise
        return stream.keep(finished, failed)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Create a voice model, and record it with its audio. Raises the errors of the backend, and StoreError."""
        for audio in request.voices:
            self.run.references.put(audio)
        return self._voice("create_voice", _create_record(request), lambda: self.backend.create_voice(request))

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record of a voice model, and record it. Raises the errors of the backend, and StoreError."""
        return self._voice("get_voice", {"id": id}, lambda: self.backend.get_voice(id))

    def _next_number(self, call_key: str) -> int:
        """Return the index of the next response to a call; if it is the first, remove an earlier recording of the call."""
        with self._lock:
            number = self._answers[call_key]
            self._answers[call_key] += 1
            if number == 0:
                self.run.drop(lambda line: line.call_key == call_key)
        return number

    def _keep(self, take: Take, **more: Any) -> tuple[str, ...]:
        """Record a complete or partial take; return a note if recording fails."""
        fingerprint = self._declared.fingerprint
        call_key = take_key(take.call, fingerprint)
        try:
            take = replace(take, repeat=self._next_number(call_key))
            self.run.add(take, call_key=call_key, key=take_key(take.call, fingerprint, take.repeat), **more)
        except StoreError as problem:
            return (f"This take could not be recorded: {problem}.",)
        return ()

    def _voice(self, call: VoiceCall, fields: Mapping[str, Any], answer: Callable[[], VoiceModel]) -> VoiceModel:
        try:
            voice = answer()
        except Cancelled:
            raise
        except VoicelabError as error:
            self._keep_voice(call, fields, None, Failure.of(error).record())
            raise
        self._keep_voice(call, fields, voice.to_wire(), None)
        return voice

    def _keep_voice(self, call: VoiceCall, fields: Mapping[str, Any], voice: object, failure: object) -> None:
        call_key = _voice_key(call, fields)
        key = _voice_key(call, fields, self._next_number(call_key))
        answer = {"call": call, "fields": fields, "voice": voice, "failure": failure}
        self.run.write({"line": "voice", "asked": call_key, "key": key, "sound": "", **answer})


class ReplayBackend:
    """Backend that replays a run, without key, GPU or network.

    Several takes of a request are replayed in turn, then again from the first. Recorded errors are raised. A request that
    was not recorded raises StoreError, whose message names the fields in which the most similar recorded request differs.

    Args:
        folder: Run of RecordingBackend, a Cache, or a sweep of a single backend.
        timing: "original" replays the recorded arrival times; "at once" does not wait.

    Raises:
        StoreError: The folder has no run, or a run of several backends.
    """

    def __init__(self, folder: str | Path, timing: ReplayTiming = "original") -> None:
        if timing not in ("original", "at once"):
            raise RequestInvalid.of(
                "timing", f"must be 'original' or 'at once', got {shown_value(timing)}", in_="query"
            )
        self.run = RunFolder(folder)
        self.timing: ReplayTiming = timing
        capabilities = _recorded_capabilities(self.run)
        if capabilities is None:
            check_older(self.run.folder)
            raise StoreError(f"{folder} has no recording: no {RUN_FILE} with the capabilities of a backend")
        self.capabilities = capabilities
        """Capabilities of the recorded backend."""
        keys: dict[str, dict[str, None]] = {}
        for line in self.run.lines():
            keys.setdefault(line.call_key, {})[line.key] = None
        self._keys = {call_key: itertools.cycle(take_keys) for call_key, take_keys in keys.items()}

    def __repr__(self) -> str:
        return f"ReplayBackend({str(self.run.folder)!r}, timing={self.timing!r})"

    def synthesize(self, call: Call) -> SpeechStream:
        """Start the replay. Raises recorded errors, and StoreError if the call was not recorded or its record is damaged."""
        check_text_length(call.request, self.capabilities.max_text)
        call = check_call(call, self.capabilities)
        record = self._next(take_key(call, self.capabilities.fingerprint))
        if record is None:
            raise StoreError(_describe_closest(self.run, call))
        error = Failure.of_record(record["failure"]).error() if "failure" in record else None
        if error is not None and record["at"] == "call":
            raise error
        take = replace(self.run.take_of(record, audio=True), cached=True)
        return _RecordedStream(take, self.capabilities, self.timing, error)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Return the recorded voice model. Raises recorded errors, and StoreError if the call was not recorded."""
        return self._voice("create_voice", _create_record(request), request.title)

    def get_voice(self, id: str) -> VoiceModel:
        """Return the recorded voice model. Raises recorded errors, and StoreError if the call was not recorded."""
        return self._voice("get_voice", {"id": id}, id)

    def close(self) -> None:
        """Do nothing; required by the protocol."""

    def _next(self, call_key: str) -> dict[str, Any] | None:
        keys = self._keys.get(call_key)
        return None if keys is None else self.run.record(next(keys))

    def _voice(self, call: VoiceCall, fields: Mapping[str, Any], name: str) -> VoiceModel:
        record = self._next(_voice_key(call, fields))
        if record is None:
            raise StoreError(
                f"{self.run.folder} must contain a recording of {call}() for {name!r} with the same fields, got none"
            )
        if record["failure"] is not None:
            raise Failure.of_record(record["failure"]).error()
        return VoiceModel.from_wire(record["voice"])


class _RecordedStream(SpeechStream):
    """Stream of a stored take in its original chunks, followed by its error, if any."""

    def __init__(
        self,
        take: Take,
        backend: Capabilities,
        timing: ReplayTiming = "at once",
        error: VoicelabError | None = None,
    ) -> None:
        self._take = take
        self._error = error
        self._stop = threading.Event()
        started = time.perf_counter()
        super().__init__(
            self._played(started if timing == "original" else None),
            call=take.call,
            backend=backend,
            seed=take.seed,
            on_close=self._stop.set,
            notes=lambda: take.all_notes,
            summary=lambda: StreamSummary(take.words, take.all_notes, take.similarity),
            started=started,
        )

    @property
    def timing(self) -> Timing:
        """Original arrival times of the audio."""
        return self._take.timing

    def take_of(self, audio: bytes, repeat: int = 0) -> Take:  # noqa: ARG002 - the stored take has its audio
        """Return the stored take with ``repeat`` as its index."""
        return replace(self._take, repeat=repeat)

    def _played(self, started: float | None) -> Iterator[bytes]:
        timing = self._take.timing
        for chunk, (seconds, _) in zip(self._take.chunks, timing.arrivals, strict=True):
            self._wait(started, seconds)
            yield chunk
        self._wait(started, timing.total_s)
        if self._error is not None:
            raise self._error

    def _wait(self, started: float | None, seconds: float) -> None:
        if started is not None:
            self._stop.wait(started + seconds - time.perf_counter())


def _voice_key(call: VoiceCall, fields: Mapping[str, Any], repeat: int = 0) -> str:
    return digest_of(json.dumps([call, fields, repeat], sort_keys=True).encode())


def _create_record(request: VoiceCreate) -> dict[str, Any]:
    """Convert a voice request to a JSON-serializable object in which files are represented by their SHA-256."""
    wire = request.to_wire()
    wire["voices"] = [digest_of(audio) for audio in request.voices]
    wire["cover_image"] = None if request.cover_image is None else digest_of(request.cover_image)
    return wire


def _recorded_capabilities(run: RunFolder) -> Capabilities | None:
    """Return the capabilities of the backend of a run, or None. Raises StoreError for several backends."""
    declared = run.backends()
    # A service that was unreachable in an earlier session may be the one that was reachable later.
    backends = [capabilities for capabilities in declared if capabilities.seed != "unknown"] or list(declared)
    if len(backends) > 1:
        names = ", ".join(capabilities.name for capabilities in backends)
        raise StoreError(f"{run.folder} must have the takes of a single backend, got {names}")
    return backends[0] if backends else None


def _declare(run: RunFolder, capabilities: Capabilities) -> None:
    recorded = _recorded_capabilities(run)
    is_known = capabilities.seed != "unknown"
    if recorded is not None:
        if recorded.fingerprint == capabilities.fingerprint and not is_known:
            return
        if recorded.fingerprint != capabilities.fingerprint and not (recorded.seed == "unknown" and is_known):
            message = f"{run.folder} has a recording of another backend ({recorded.name}, {recorded.fingerprint[:40]})"
            if not is_known:
                message += ", or the service is unreachable and cannot be identified (try again)"
            raise StoreError(f"{message}; choose another folder, or remove it")
    run.begin([capabilities])


def _describe_closest(run: RunFolder, call: Call) -> str:
    """Describe the most similar recorded request and the fields in which it differs, for an error message."""
    requested, recorded = _fields(call), []
    for key in dict.fromkeys(line.key for line in run.lines() if line.kind != "voice"):
        with suppress(StoreError):  # skip damaged takes
            if (record := run.record(key)) is not None:
                recorded.append(_fields(run.take_of(record).call))
    message = f"{run.folder} has no recording of this request"
    if not recorded:
        return f"{message}, and no recorded take"
    closest = min(recorded, key=lambda fields: _distance(requested, fields))
    names = [name for name in requested if requested[name] != closest[name]]
    if not names:
        return f"{message} to this backend; the same request to another backend was recorded"
    old, new = (
        {name: shortened(repr(values[name]), _MAX_VALUE_LENGTH) for name in names} for values in (closest, requested)
    )
    differences = (f"{name} (recorded {old[name]}, requested {new[name]})" for name in names)
    return f"{message}; the most similar recorded request differs in {', '.join(differences)}"


def _fields(call: Call) -> dict[str, Any]:
    return {**call.request.canonical(), "model": call.model, "seed": call.seed, "knobs": dict(call.knobs)}


def _distance(requested: Mapping[str, Any], recorded: Mapping[str, Any]) -> float:
    """Count the fields that differ. A different text counts between 0 and 2, depending on how dissimilar it is."""
    field_count: int = sum(requested[name] != recorded[name] for name in requested if name != "text")
    matcher = difflib.SequenceMatcher(None, requested["text"][:1000], recorded["text"][:1000], autojunk=False)
    return field_count + 2.0 * (1.0 - matcher.quick_ratio())
