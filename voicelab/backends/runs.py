"""CachedBackend, RecordingBackend, ReplayBackend: a backend with a run behind it, and a run that answers as a backend.

A recording is a run that is used in order: the n-th call of a kind gets the n-th answer that was written down, speech in
the chunks in which it came, a voice's record, or an error. What is kept is what was asked and what was answered; keys,
headers and addresses of calls are not among it.
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

from voicelab.backend import Backend, SpeechStream, StreamSummary, delete_voice, list_voices
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call, check_text_length
from voicelab.clip import Take, Timing, take_key
from voicelab.errors import Cancelled, RequestInvalid, StoreError, VoicelabError, shortened
from voicelab.runs.cache import Cache
from voicelab.runs.failures import Failed, Failure
from voicelab.runs.folder import RUN_FILE, RunFolder, check_older
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.storage import digest_of

ReplayTiming = Literal["original", "at once"]
"""Whether recorded chunks come when they came then, or as fast as they are read."""
VoiceCall = Literal["create_voice", "get_voice"]

_LONGEST: Final = 60


class _BackendWrapper:
    """A backend that passes everything on to another; closing it closes that."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @property
    def capabilities(self) -> Capabilities:
        """What the backend behind it is and can do."""
        return self.backend.capabilities

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Make a voice model. Raises what the backend raises."""
        return self.backend.create_voice(request)

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record. Raises what the backend raises."""
        return self.backend.get_voice(id)

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return the caller's voice models, where the backend says which they are."""
        return list_voices(self.backend)

    def delete_voice(self, id: str) -> None:
        """Forget a voice model, where the backend can; takes that were kept stay. Raises like ``delete_voice``."""
        delete_voice(self.backend, id)

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()


class CachedBackend(_BackendWrapper):
    """A backend that makes nothing twice which it could only make the same again.

    That is speech with a seed, where the backend's seeds are exact, and speech at temperature 0. All
    other speech is made anew at every call, as without a cache, and not kept; where repeated takes shall
    be kept too, ask with ``repeat`` (see ``Cache.get_or_render``). A kept take comes at once, with a note that
    says when it was made, and the timing of its making.
    """

    def __init__(self, backend: Backend, cache: Cache) -> None:
        super().__init__(backend)
        self.cache = cache

    def __repr__(self) -> str:
        return f"CachedBackend({self.backend!r}, {self.cache!r})"

    def synthesize(self, call: Call, repeat: int | None = None) -> SpeechStream:
        """Begin to speak, or play what is kept. ``repeat`` keeps each of several takes of one request.

        Raises what the backend raises. A take that cannot be kept is spoken all the same, with a note.
        """
        capabilities = self.backend.capabilities
        call = check_call(call, capabilities)
        same = call.request.temperature == 0.0 or (call.seed is not None and capabilities.seed == "exact")
        if repeat is None and not same:
            return self.backend.synthesize(call)
        number = repeat or 0
        kept, notes = self.cache.look(take_key(call, capabilities.fingerprint, number))
        if kept is not None:
            return _RecordedStream(kept, capabilities)

        def finished(stream: SpeechStream, audio: bytes) -> tuple[str, ...]:
            take = stream.take_of(audio, number)
            kept = self.cache.keep(take, *notes, backend=capabilities)
            return kept.notes[len(take.notes) :] if kept.digest == take.digest else notes

        return self.backend.synthesize(call).keep(finished)


class RecordingBackend(_BackendWrapper):
    """A backend of which every call is kept, to be played back by ReplayBackend.

    Args:
        backend: who answers. Closing this closes it.
        folder: where the run is kept; made here. What an earlier recording of the same calls left
            there is replaced, so that a notebook that runs again is recorded anew.

    Kept are finished streams and those that ended with an error; not those whose reader left. A take
    that cannot be kept is spoken all the same, with a note. Raises StoreError when nothing can be written
    to the folder, when it holds the recording of another backend, or of one while this one cannot be asked what it is.
    """

    def __init__(self, backend: Backend, folder: str | Path) -> None:
        super().__init__(backend)
        self.run = RunFolder(folder, sync_s=0.0)
        self._answers: Counter[str] = Counter()
        self._lock = threading.Lock()
        # What is declared now names all answers, even where a service can tell more later.
        self._declared = backend.capabilities
        _declare(self.run, self._declared)

    def __repr__(self) -> str:
        return f"RecordingBackend({self.backend!r}, {str(self.run.folder)!r})"

    def synthesize(self, call: Call) -> SpeechStream:
        """Begin to speak, and keep what is said. Raises what the backend raises."""
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
            refused = Failed.of(call, self._declared, error, started=started)
            self._keep(refused.take, failure=refused.failure.record(), at="call")
            raise
        return stream.keep(finished, failed)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Make a voice model, and keep its record and recordings. Raises what the backend raises, and StoreError."""
        for audio in request.voices:
            self.run.references.put(audio)
        return self._voice("create_voice", _create_record(request), lambda: self.backend.create_voice(request))

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record, and keep it. Raises what the backend raises, and StoreError."""
        return self._voice("get_voice", {"id": id}, lambda: self.backend.get_voice(id))

    def _number(self, asked: str) -> int:
        """Return how many answers of this kind there were; with the first, those of an earlier recording go."""
        with self._lock:
            number = self._answers[asked]
            self._answers[asked] += 1
            if number == 0:
                self.run.drop(lambda line: line.asked == asked)
        return number

    def _keep(self, take: Take, **more: Any) -> tuple[str, ...]:
        """Keep a take, of a call that failed as far as it came; return notes when it cannot be kept."""
        fingerprint = self._declared.fingerprint
        asked = take_key(take.call, fingerprint)
        try:
            take = replace(take, repeat=self._number(asked))
            self.run.add(take, asked=asked, key=take_key(take.call, fingerprint, take.repeat), **more)
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
        asked = _voice_key(call, fields)
        key = _voice_key(call, fields, self._number(asked))
        answer = {"call": call, "fields": fields, "voice": voice, "failure": failure}
        self.run.write({"line": "voice", "asked": asked, "key": key, "sound": "", **answer})


class ReplayBackend:
    """A run played back as a backend: no key, no GPU, no network.

    Args:
        folder: what RecordingBackend wrote, a Cache, or a sweep over one backend.
        timing: "original" lets each chunk come as late as it came when it was recorded; "at once" does not wait.

    Answers what was recorded and nothing else: a request that was not raises StoreError, which names the
    nearest one that was, and in which fields it differs. Of several takes of one request each call gets
    the next, and after the last the first again. Errors that were recorded are raised again. Raises
    StoreError when the folder holds no run, or one of several backends.
    """

    def __init__(self, folder: str | Path, timing: ReplayTiming = "original") -> None:
        if timing not in ("original", "at once"):
            raise RequestInvalid.of("timing", "Input should be 'original' or 'at once'", in_="query")
        self.run = RunFolder(folder)
        self.timing: ReplayTiming = timing
        speaker = _speaker(self.run)
        if speaker is None:
            check_older(self.run.folder)
            raise StoreError(f"{folder} holds no recording: there is no {RUN_FILE} in it that says who spoke")
        self.capabilities = speaker
        """What the recorded backend declared about itself."""
        keys: dict[str, dict[str, None]] = {}
        for line in self.run.lines():
            keys.setdefault(line.asked, {})[line.key] = None
        # Each gives one thread after another its next key.
        self._keys = {asked: itertools.cycle(own) for asked, own in keys.items()}

    def __repr__(self) -> str:
        return f"ReplayBackend({str(self.run.folder)!r}, timing={self.timing!r})"

    def synthesize(self, call: Call) -> SpeechStream:
        """Begin to play. Raises StoreError for what was not recorded or is damaged, and what was recorded."""
        # What the backend itself would have refused is refused alike.
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
        """Return the record that was made then. Raises StoreError for a call that was not recorded."""
        return self._voice("create_voice", _create_record(request), request.title)

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record as it was then. Raises StoreError for a call that was not recorded."""
        return self._voice("get_voice", {"id": id}, id)

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _next(self, asked: str) -> dict[str, Any] | None:
        keys = self._keys.get(asked)
        return None if keys is None else self.run.record(next(keys))

    def _voice(self, call: VoiceCall, fields: Mapping[str, Any], name: str) -> VoiceModel:
        record = self._next(_voice_key(call, fields))
        if record is None:
            raise StoreError(f"{self.run.folder} has no recording of {call} for {name!r} with these values")
        if record["failure"] is not None:
            raise Failure.of_record(record["failure"]).error()
        return VoiceModel.from_wire(record["voice"])


class _RecordedStream(SpeechStream):
    """A take played back, in the chunks in which it came, and its error after them; its timing is that of its making."""

    def __init__(
        self,
        take: Take,
        backend: Capabilities,
        timing: ReplayTiming = "at once",
        error: VoicelabError | None = None,
    ) -> None:
        self._take = take
        self._error = error
        self._left = threading.Event()
        started = time.perf_counter()
        super().__init__(
            self._played(started if timing == "original" else None),
            call=take.call,
            backend=backend,
            seed=take.seed,
            on_close=self._left.set,
            notes=lambda: take.all_notes,
            summary=lambda: StreamSummary(take.words, take.all_notes, take.similarity),
            started=started,
        )

    @property
    def timing(self) -> Timing:
        """When the audio came when it was made."""
        return self._take.timing

    def take_of(self, audio: bytes, repeat: int = 0) -> Take:  # noqa: ARG002 - the take has its audio
        """Return the take that is played, as the take of the call that it was asked for as."""
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
            # Ends early when the stream is closed, by whomever.
            self._left.wait(started + seconds - time.perf_counter())


def _voice_key(call: VoiceCall, fields: Mapping[str, Any], repeat: int = 0) -> str:
    return digest_of(json.dumps([call, fields, repeat], sort_keys=True).encode())


def _create_record(request: VoiceCreate) -> dict[str, Any]:
    """Return a request for a voice as a JSON-able object, its files named by their sha256."""
    wire = request.to_wire()
    wire["voices"] = [digest_of(audio) for audio in request.voices]
    wire["cover_image"] = None if request.cover_image is None else digest_of(request.cover_image)
    return wire


def _speaker(run: RunFolder) -> Capabilities | None:
    """Return who spoke in a run, None where nothing says so. Raises StoreError where there were several."""
    declared = run.backends()
    # One that could not be asked when it was recorded first may be one that could be later.
    several = [one for one in declared if one.seed != "unknown"] or list(declared)
    if len(several) > 1:
        said = f"{run.folder} holds what several backends said ({', '.join(one.name for one in several)})"
        raise StoreError(f"{said}; one of them has to be recorded alone")
    return several[0] if several else None


def _declare(run: RunFolder, capabilities: Capabilities) -> None:
    before = _speaker(run)
    asked = capabilities.seed != "unknown"
    if before is not None:
        if before.fingerprint == capabilities.fingerprint and not asked:
            return
        if before.fingerprint != capabilities.fingerprint and not (before.seed == "unknown" and asked):
            message = f"{run.folder} holds a recording of another backend ({before.name}, {before.fingerprint[:40]})"
            if not asked:
                message += ", or what answers now is busy or out of reach, and could not be asked what it is: try again"
            raise StoreError(f"{message}; give another folder, or remove it")
    run.begin([capabilities])


def _describe_closest(run: RunFolder, call: Call) -> str:
    """Return a sentence for an error: what was recorded that is nearest, and in which fields it differs."""
    wanted, recorded = _fields(call), []
    for key in dict.fromkeys(line.key for line in run.lines() if line.kind != "voice"):
        with suppress(StoreError):  # a damaged one is no help
            if (record := run.record(key)) is not None:
                recorded.append(_fields(run.take_of(record).call))
    start = f"{run.folder} has no recording of this request"
    if not recorded:
        return f"{start}; no speech was recorded in it"
    best = min(recorded, key=lambda fields: _distance(wanted, fields))
    fields = [name for name in wanted if wanted[name] != best[name]]
    if not fields:
        return f"{start} by this backend; the same request to another one was recorded"
    before, asked = ({name: shortened(repr(one[name]), _LONGEST) for name in fields} for one in (best, wanted))
    each = (f"{name} (recorded {before[name]}, asked {asked[name]})" for name in fields)
    return f"{start}; the nearest that was recorded differs in {', '.join(each)}"


def _fields(call: Call) -> dict[str, Any]:
    return {**call.request.canonical(), "model": call.model, "seed": call.seed, "knobs": dict(call.knobs)}


def _distance(wanted: Mapping[str, Any], recorded: Mapping[str, Any]) -> float:
    others: int = sum(wanted[name] != recorded[name] for name in wanted if name != "text")
    # Another text is a difference like any other when it is quite another, and less when it is alike.
    matcher = difflib.SequenceMatcher(None, wanted["text"][:1000], recorded["text"][:1000], autojunk=False)
    return others + 2.0 * (1.0 - matcher.quick_ratio())
