"""RecordingBackend and ReplayBackend: what a backend answered, kept in a folder, and played back from it.

A recording is a folder of entries (see ``entries``) and ``backend.json``, the Capabilities of the backend.
Each call is an entry: a take with its audio in the chunks in which it came, a failure, or a voice's
record. The n-th call of the same kind is the n-th entry of it. What is kept is what was asked and what
was answered; keys, headers and addresses of calls are not among it.
"""

from __future__ import annotations

import difflib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from voicelab.backend import (
    Backend,
    Capabilities,
    SpeechStream,
    check_call,
    check_text_length,
    delete_voice,
    list_voices,
)
from voicelab.call import Call
from voicelab.clip import Take, Timing, take_key
from voicelab.errors import Cancelled, RequestInvalid, StoreError, VoicelabError
from voicelab.experiments.entries import Entries
from voicelab.experiments.records import Failure, capabilities_of, capabilities_record
from voicelab.experiments.streams import RecordedStream, ReplayTiming, tee
from voicelab.schema import DEFAULT_RATES, ProsodyControl, VoiceCreate, VoiceModel
from voicelab.storage import digest_of, write_atomic

__all__ = ["RecordingBackend", "ReplayBackend", "describe_closest", "open_recording"]

_BACKEND = "backend.json"
_VERSION = 1
FailedAt = Literal["call", "stream"]
VoiceCall = Literal["create_voice", "get_voice"]


class RecordingBackend:
    """A backend of which every call is kept, to be played back by ReplayBackend.

    Args:
        backend: who answers. Closing this closes it.
        folder: where the recording is kept; made here. What an earlier recording of the same calls left
            there is replaced, so that a notebook that runs again is recorded anew.

    Kept are finished streams and those that ended with an error; not those whose reader left. A take
    that cannot be kept is spoken all the same, with a note. Raises StoreError when nothing can be written
    to the folder, when it holds the recording of another backend, or of one while this one cannot be asked what it is.
    """

    def __init__(self, backend: Backend, folder: str | Path) -> None:
        self.backend = backend
        self.entries = Entries(folder)
        self._answers: Counter[str] = Counter()
        self._lock = Lock()
        # What is declared now names all entries, even where a service can tell more later.
        self._declared = backend.capabilities
        _declare(self.entries.folder, self._declared)

    def __repr__(self) -> str:
        return f"RecordingBackend({self.backend!r}, {str(self.entries.folder)!r})"

    @property
    def capabilities(self) -> Capabilities:
        """What the backend is and can do."""
        return self.backend.capabilities

    def synthesize(self, call: Call) -> SpeechStream:
        """Begin to speak, and keep what is said. Raises what the backend raises."""
        started = time.perf_counter()
        call = check_call(call, self._declared)

        def finished(stream: SpeechStream, audio: bytes) -> tuple[str, ...]:
            return self._keep_take(stream.take_of(audio))

        def failed(stream: SpeechStream, audio: bytes, error: VoicelabError) -> None:
            self._keep_take(stream.take_of(audio), error, "stream")

        try:
            stream = self.backend.synthesize(call)
        except Cancelled:
            raise
        except VoicelabError as error:
            declared = self._declared
            failed_take = Take(
                call,
                b"",
                Timing(0.0, time.perf_counter() - started),
                backend=declared.name,
                fingerprint=declared.fingerprint,
                device=declared.device,
                seed=call.seed,
            )
            self._keep_take(failed_take, error, "call")
            raise
        return tee(stream, started=started, finished=finished, failed=failed)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Make a voice model, and keep its record. Raises what the backend raises, and StoreError."""
        return self._voice("create_voice", _create_record(request), lambda: self.backend.create_voice(request))

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record, and keep it. Raises what the backend raises, and StoreError."""
        return self._voice("get_voice", {"id": id}, lambda: self.backend.get_voice(id))

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return the caller's voice models, where the backend says which they are."""
        return list_voices(self.backend)

    def delete_voice(self, id: str) -> None:
        """Forget a voice model, where the backend can; takes that were kept stay. Raises like ``delete_voice``."""
        delete_voice(self.backend, id)

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()

    def _numbered(self, key: Callable[[int], str]) -> tuple[str, int]:
        """Return the key of this answer, and how many there were before of its kind."""
        first = key(0)
        with self._lock:
            number = self._answers[first]
            self._answers[first] += 1
            # What an earlier recording had more of is no part of this one.
            self.entries.remove(key(number + 1))
        return (key(number) if number else first), number

    def _keep_take(
        self, take: Take, error: VoicelabError | None = None, failed_at: FailedAt | None = None
    ) -> tuple[str, ...]:
        """Keep a take, of a call that failed as far as it came; return notes when it cannot be kept."""
        failure = None if error is None else Failure.of(error).record()
        try:
            key, repeat = self._numbered(partial(take_key, take.call, self._declared.fingerprint))
            record = replace(take, repeat=repeat).record()
            self.entries.put_references(take.request)
            whole = {**record, "kind": "take", "failure": failure, "failed_at": failed_at}
            self.entries.put(key, whole, take.audio, replace=True)
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
        key, repeat = self._numbered(partial(_voice_key, call, fields))
        record = {"kind": "voice", "call": call, "asked": fields, "repeat": repeat, "voice": voice, "failure": failure}
        self.entries.put(key, record, b"", replace=True)


class ReplayBackend:
    """A recording played back as a backend: no key, no GPU, no network.

    Args:
        folder: what RecordingBackend wrote.
        timing: "original" lets each chunk come as late as it came when it was recorded; "at once" does not wait.

    Answers what was recorded and nothing else: a request that was not raises StoreError, which names the
    nearest one that was, and in which fields it differs. Of several takes of one request each call gets
    the next, and after the last the first again. Errors that were recorded are raised again. Raises
    StoreError when the folder holds no recording.
    """

    def __init__(self, folder: str | Path, timing: ReplayTiming = "original") -> None:
        if timing not in ("original", "at once"):
            raise RequestInvalid.of("timing", "Input should be 'original' or 'at once'", in_="query")
        self.entries = Entries(folder)
        self.timing: ReplayTiming = timing
        self._capabilities = _declared(self.entries.folder)
        self._calls: Counter[str] = Counter()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"ReplayBackend({str(self.entries.folder)!r}, timing={self.timing!r})"

    @property
    def capabilities(self) -> Capabilities:
        """What the recorded backend declared about itself."""
        return self._capabilities

    def synthesize(self, call: Call) -> SpeechStream:
        """Begin to play. Raises StoreError for what was not recorded or is damaged, and what was recorded."""
        # What the backend itself would have refused is refused alike.
        check_text_length(call.request, self._capabilities.max_text)
        call = check_call(call, self._capabilities)
        entry = self._next(partial(take_key, call, self._capabilities.fingerprint))
        if entry is None:
            raise StoreError(describe_closest(self.entries, call))
        record, audio = entry
        take = replace(Take.of_record(record, audio, self.entries.reference), cached=True)
        failure = record.get("failure")
        error = None if failure is None else Failure.of_record(failure).error()
        if error is not None and record["failed_at"] == "call":
            raise error
        return RecordedStream(take, self._capabilities, timing=self.timing, error=error)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Return the record that was made then. Raises StoreError for a call that was not recorded."""
        return self._voice("create_voice", _create_record(request), request.title)

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record as it was then. Raises StoreError for a call that was not recorded."""
        return self._voice("get_voice", {"id": id}, id)

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _next(self, key: Callable[[int], str]) -> tuple[dict[str, Any], bytes] | None:
        first = key(0)
        with self._lock:
            number = self._calls[first]
            self._calls[first] += 1
        entry = self.entries.get(key(number) if number else first)
        if entry is None and number:
            with self._lock:
                self._calls[first] = 1
            entry = self.entries.get(first)
        return entry

    def _voice(self, call: VoiceCall, fields: Mapping[str, Any], name: str) -> VoiceModel:
        entry = self._next(partial(_voice_key, call, fields))
        if entry is None:
            raise StoreError(f"{self.entries.folder} has no recording of {call} for {name!r} with these values")
        record, _ = entry
        if record["failure"] is not None:
            raise Failure.of_record(record["failure"]).error()
        return VoiceModel.from_wire(record["voice"])


def open_recording(folder: str) -> ReplayBackend:
    """Open ``replay:FOLDER``. Raises StoreError when it holds no recording."""
    return ReplayBackend(folder)


def _voice_key(call: VoiceCall, fields: Mapping[str, Any], repeat: int) -> str:
    return digest_of(json.dumps([call, fields, repeat], sort_keys=True).encode())


def _create_record(request: VoiceCreate) -> dict[str, Any]:
    """Return a request for a voice as a JSON-able object, its files named by their sha256."""
    wire = request.to_wire()
    wire["voices"] = [digest_of(audio) for audio in request.voices]
    wire["cover_image"] = None if request.cover_image is None else digest_of(request.cover_image)
    return wire


def _declare(folder: Path, capabilities: Capabilities) -> None:
    path = folder / _BACKEND
    if path.is_file():
        before = _declared(folder)
        asked = capabilities.seed != "unknown"
        if before.fingerprint == capabilities.fingerprint and not asked:
            return
        # One that could not be asked when it was recorded first may be this one.
        if before.fingerprint != capabilities.fingerprint and not (before.seed == "unknown" and asked):
            message = f"{folder} holds a recording of another backend ({before.name}, {before.fingerprint[:40]})"
            if not asked:
                message += ", or what answers now is busy or out of reach, and could not be asked what it is: try again"
            raise StoreError(f"{message}; give another folder, or remove it")
    record = {"version": _VERSION, "capabilities": capabilities_record(capabilities)}
    write_atomic(path, json.dumps(record, indent=2, ensure_ascii=False).encode() + b"\n")


def _declared(folder: Path) -> Capabilities:
    path = folder / _BACKEND
    try:
        record = json.loads(path.read_bytes())
        version = record["version"]
    except FileNotFoundError:
        raise StoreError(f"{folder} holds no recording: there is no {_BACKEND} in it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if version != _VERSION:
        raise StoreError(f"{path} was written by a newer voicelab (version {version}, known: {_VERSION})")
    return capabilities_of(record.get("capabilities"))


_LONGEST = 60


def describe_closest(entries: Entries, call: Call) -> str:
    """Return a sentence for an error: what was recorded that is nearest, and in which fields it differs."""
    wanted = {**call.request.canonical(), "model": call.model, "seed": call.seed, "knobs": dict(call.knobs)}
    best: tuple[float, dict[str, Any]] | None = None
    for key in entries:
        try:
            record = entries.record(key)
        except StoreError:
            continue
        if record is None or record.get("kind", "take") != "take":
            continue
        recorded = {**_canonical(record["request"]), "model": record["model"], "seed": record["seed"]}
        recorded["knobs"] = record.get("knobs", {})
        distance = _distance(wanted, recorded)
        if best is None or distance < best[0]:
            best = (distance, recorded)
    start = f"{entries.folder} has no recording of this request"
    if best is None:
        return f"{start}; no speech was recorded in it"
    fields = [name for name in wanted if wanted[name] != best[1].get(name)]
    if not fields:
        return f"{start} by this backend; the same request to another one was recorded"
    differences = ", ".join(
        f"{name} (recorded {_short(best[1].get(name))}, asked {_short(wanted[name])})" for name in fields
    )
    return f"{start}; the nearest that was recorded differs in {differences}"


def _canonical(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical form of a request's record: see ``TTSRequest.canonical``."""
    fields = dict(record)
    if fields["sample_rate"] is None:
        fields["sample_rate"] = DEFAULT_RATES.get(fields["format"])
    fields["prosody"] = fields["prosody"] or ProsodyControl().model_dump()
    if not fields["references"] or fields["reference_id"] is not None:
        fields["references"] = None
    return fields


def _distance(wanted: Mapping[str, Any], recorded: Mapping[str, Any]) -> float:
    others: int = sum(wanted[name] != recorded.get(name) for name in wanted if name != "text")
    # Another text is a difference like any other when it is quite another, and less when it is alike.
    matcher = difflib.SequenceMatcher(None, wanted["text"][:1000], str(recorded.get("text"))[:1000], autojunk=False)
    return others + 2.0 * (1.0 - matcher.quick_ratio())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
