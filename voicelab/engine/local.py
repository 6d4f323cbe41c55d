"""LocalBackend: speech synthesis on this machine, with stored voices."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

from voicelab.asr.recognizers import Recognizer, transcribing_recognizer
from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.prosody import ProsodyProcessor, stretch_words
from voicelab.backend import DEFAULT_MAX_TEXT, SpeechStream, StreamSummary
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_text_length
from voicelab.engine.core.decoding import DecodingThread, Memo
from voicelab.engine.core.devices import choose_device, describe_device, loaded_torch
from voicelab.engine.core.scheduler import ROWS, Scheduler
from voicelab.engine.family import EngineParts, Family
from voicelab.engine.pointer.checkpoint import EMBEDDED
from voicelab.engine.pointer.family import PointerFamily
from voicelab.engine.speech import BATCH, Speech
from voicelab.errors import EngineError, MissingExtra, NotFound, RequestInvalid, StoreError
from voicelab.lifecycle import Closeable, ProcessOwner
from voicelab.schema import Model, ReferenceAudio, TTSRequest, VoiceCreate, VoiceModel
from voicelab.voices.store import LOCAL_OWNER, Sample, VoiceStore

_LOG = logging.getLogger("voicelab.engine")
REVISION = 15
"""Increment when the samples of a call change with the same weights, to invalidate caches."""
_IMPORTED = ProcessOwner()
_CALLS: set[tuple[int, object]] = set()
"""Process id and identity of each call in progress. A fork inherits the entries of its parent. While those calls run, threads
of the parent may hold locks, including import locks, that would stay locked in the fork."""
_ONE_MODEL_NOTE = "model {}: this voice has a single model, so s1 and s2-pro give the same speech"


@contextmanager
def _in_progress() -> Iterator[None]:
    call = (os.getpid(), object())
    _CALLS.add(call)
    try:
        yield
    finally:
        _CALLS.discard(call)


class LocalBackend(Closeable):
    """The embedded voice, another checkpoint of its family, or open weights, on this machine.

    Seeds of the embedded family are exact: the same request, seed and device give the same samples. Seeds of open weights are
    best effort, because concurrent requests change rounding. If a call has no seed, one is drawn and recorded in the take.
    The model s1 is a smaller language model on the same codec, loaded on first use. If the weights have only one of the two
    models, both names select it: ``capabilities.one_model`` is then True, and clips of the missing model have a note. Both
    models share the voices; created voices are stored on disk.

    Args:
        device: ``"cpu"`` or a torch device (``"cuda:0"``); default, CUDA if available, else the CPU.
        threads: CPU threads of torch in this process; default, torch's setting. On a CPU, only language models of open
            weights use them. Always 1 in a fork of a process that had imported the engine, because torch would wait for
            OpenMP threads that fork() does not copy.
        weights: Checkpoint (a file, or a folder of two models), or a folder with S2-Pro, S1-mini or both; default, the
            checkpoint of the package.
        rows: Maximum number of concurrent utterances per model; more are queued.
        voices: Voice store; default, the one in VOICELAB_HOME.
        int8_depth: Quantize the fast transformer of open weights to 8 bits; it causes half of the memory traffic per frame.
        compile: Compile open weights with torch. By default, only the language model is compiled, and only on a CUDA device
            if triton is installed: once for all processes, with its progress in the log; if that fails, frames run
            uncompiled. If True, the codec is compiled as well, and a failure is an error.

    Raises:
        WeightsError: The checkpoint is unreadable.
        LicenseRequired: The license of open weights was not accepted.
        EngineUnavailable: ``compile`` is True, but torch has no compiler.
        EngineError: The device is unavailable, ``rows`` or ``threads`` is below 1, or this process was forked while another
            thread of its parent synthesized.
    """

    def __init__(
        self,
        device: str | None = None,
        threads: int | None = None,
        *,
        weights: Path | None = None,
        rows: int = ROWS,
        voices: VoiceStore | None = None,
        int8_depth: bool = False,
        compile: bool | None = None,
    ) -> None:
        if rows < 1 or (threads is not None and threads < 1):
            raise EngineError(f"rows and threads must be at least 1, got {rows} and {threads}")
        if _IMPORTED.forked:
            _check_parent_was_idle()
            threads = 1
        self._device = choose_device(device)
        self._family = _family(weights, self._device, rows, int8_depth=int8_depth, compile=compile)
        if threads is not None and (torch := loaded_torch()) is not None:
            torch.set_num_threads(threads)
        self._models = _Models(self._family, rows, self._device)
        self._own_store = voices is None
        self._store = VoiceStore() if voices is None else voices
        self._recognizer: Memo[Recognizer | None] = Memo(1)
        self._owner = LOCAL_OWNER
        self._capabilities = Capabilities(
            name="embedded" if weights is None else weights.stem,
            models=("s1", "s2-pro"),
            device=describe_device(self._device),
            seed=self._family.seeds,
            fingerprint=_fingerprint(self._family.digests, rows),
            languages=self._family.languages,
            voices=self._family.presets,
            max_text=DEFAULT_MAX_TEXT,
            prices=(),
            one_model=len(self._family.models) == 1,
            at_once=rows,
            license=self._family.license,
            notice=self._family.notice,
        )

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine."""
        return self._capabilities

    @property
    def healthy(self) -> bool:
        """False after close(), or while a worker thread is dead or hung."""
        return self._models.healthy

    @_in_progress()
    def synthesize(self, call: Call) -> SpeechStream:
        """Start the synthesis of a call.

        Raises:
            RequestInvalid: The text is not speakable or too long, or a voice or reference is unusable.
            WeightsError: The weights of the model, read on first use, are damaged.
            EngineError: The engine is closed, or this process is a fork of one that used it.
        """
        started = time.perf_counter()
        self._models.begin()
        request = call.request
        check_text_length(request, self._capabilities.max_text)
        seed = secrets.randbits(32) if call.seed is None else call.seed
        speaker, rate = self._speaker(request), self._family.decoding.sample_rate
        prosody, encoder = ProsodyProcessor.for_request(request, rate), StreamEncoder.for_request(request, rate)
        parts = self._models.parts(call.model)
        voice = cache(partial(self._family.voice, speaker, parts))
        speech = Speech(parts, call, voice, seed)  # starts work, so it comes after everything that may raise
        return SpeechStream(
            _encoded(speech, prosody, encoder),
            call=call,
            backend=self._capabilities,
            seed=seed,
            on_close=speech.cancel,
            notes=partial(self._notes, call, speech, prosody),
            summary=partial(self._summary, call, speech, prosody, voice),
            started=started,
        )

    @_in_progress()
    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Create and store a voice from recordings. The licenses of the weights, if any, are added to its tags.

        Raises:
            RequestInvalid: A voice file has no audio or no speech, or the cover image is invalid.
            StoreError: The voice cannot be stored.
        """
        from voicelab.voices.intake import prepare_samples

        self._models.begin()
        if license := self._family.license:  # noqa: A001 - the term
            request = request.model_copy(update={"tags": (*request.tags, *license.split("; "))})
        samples = prepare_samples(request, partial(self._recognizer.get, "", transcribing_recognizer))
        voice = self._store.begin(request, samples, self._owner, self._family.languages)
        self._store.train(voice)
        try:
            speaker = self._encode(samples)
        except BaseException:
            with suppress(StoreError):
                self._store.fail(voice)
            raise
        return self._store.finish(voice, self._family.voice_digest, speaker.to_bytes())

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record of a stored voice.

        Raises:
            NotFound: The voice is unknown, or private to another caller.
            StoreError: The voice cannot be read.
        """
        return self._store.get(id, self._owner)

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """List the stored voices of the caller, newest first.

        Raises:
            StoreError: The store cannot be read.
        """
        return self._store.listed(self._owner)

    def delete_voice(self, id: str) -> None:
        """Delete a stored voice of the caller, with its recordings.

        Raises:
            NotFound: The caller has no such voice.
            StoreError: The voice cannot be removed.
        """
        self._store.remove(id, self._owner)

    def acting_for(self, owner: str) -> Self:
        """Return this backend for another caller, with access to its private voices. Closing either closes both."""
        backend = copy.copy(self)
        backend._owner = owner  # noqa: SLF001 - a copy of self
        return backend

    def usage(self) -> tuple[int, int]:
        """Return the number of the caller's stored voices and the size of their recordings in bytes. Raises StoreError."""
        return self._store.usage(self._owner)

    def cover_image(self, id: str) -> bytes:
        """Return the cover image of a stored voice.

        Raises:
            NotFound: The voice or image does not exist, or the voice is private to another caller.
            StoreError: The image cannot be read.
        """
        return self._store.cover(id, self._owner)

    def sample_audio(self, id: str, number: int) -> bytes:
        """Return a sample of a stored voice as a WAV file; numbers start at 0.

        Raises:
            NotFound: The voice or sample does not exist, or the voice is private to another caller.
            StoreError: The sample cannot be read.
        """
        return self._store.sample(id, self._owner, number)

    def close(self) -> None:
        """Stop all threads; running synthesis fails. Idempotent. A store passed as ``voices`` remains open."""
        self._models.close()
        if self._own_store:
            self._store.close()

    def _summary(
        self, call: Call, speech: Speech, prosody: ProsodyProcessor, voice: Callable[[], Any]
    ) -> StreamSummary:
        request, family = call.request, self._family
        name = request.reference_id
        if name is not None and not self._is_preset(name):
            try:
                self._store.count(name)
            except StoreError as error:  # the audio is complete
                _LOG.warning("a synthesis was not counted: %s", error)
        cloned = not self._is_preset(name) if name is not None else bool(request.references)
        similarity = family.similarity(speech.codes, voice()) if cloned else None
        notes = self._notes(call, speech, prosody)
        return StreamSummary(stretch_words(speech.words, prosody.speed), notes, similarity)

    def _notes(self, call: Call, speech: Speech, prosody: ProsodyProcessor) -> tuple[str, ...]:
        request, family = call.request, self._family
        model_notes = (_ONE_MODEL_NOTE.format(call.model),) if call.model not in family.models else ()
        cloned = request.references if request.reference_id is None else None
        return (*speech.notes, *prosody.notes, *model_notes, *(family.reference_notes(cloned) if cloned else ()))

    def _is_preset(self, name: str) -> bool:
        return any(preset.id == name for preset in self._family.presets)

    def _speaker(self, request: TTSRequest) -> Any:
        """Return the speaker of a request, in the representation of the family."""
        name, presets = request.reference_id, self._family.presets
        if name is None and request.references:
            return self._family.speaker(request.references)
        if name is None or self._is_preset(name):
            return self._family.preset(name or presets[0].id)
        try:
            return self._stored(name)
        except NotFound:
            names = ", ".join(preset.id for preset in presets)
            message = f"must be a preset ({names}) or the id of a stored voice, got {name!r}"
            raise RequestInvalid.of("reference_id", message) from None

    def _stored(self, voice: str) -> Any:
        """Return the speaker of a stored voice; it is encoded again if the stored embedding is from other weights."""
        family = self._family
        packed = self._store.embedding(voice, self._owner, family.voice_digest)
        speaker = None if packed is None else family.unpack(packed)
        if speaker is None:
            speaker = self._encode(self._store.samples(voice, self._owner))
            self._store.add_embedding(voice, family.voice_digest, speaker.to_bytes())
        return speaker

    def _encode(self, samples: Iterable[Sample]) -> Any:
        try:
            return self._family.speaker([ReferenceAudio(audio=sample.audio, text=sample.text) for sample in samples])
        except RequestInvalid as error:
            raise RequestInvalid.of("voices", error.errors[0].msg) from error


class _Models:
    """Schedulers of the models of a family, created on first use, with a shared decoding thread."""

    def __init__(self, family: Family, rows: int, device: str) -> None:
        self._family, self._rows, self._device = family, rows, device
        self._decoding = DecodingThread(family.decoding)
        self._parts: dict[Model, EngineParts] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._owner, self._is_used = ProcessOwner(), False

    def begin(self) -> None:
        """Record the first use of the engine in this process.

        Raises:
            EngineError: this process is a fork, and its parent has used the engine or the engine is not on the CPU.
        """
        if self._owner.forked:
            if self._is_used or self._device != "cpu":
                self._owner.check("the engine")
            if (torch := loaded_torch()) is not None:
                torch.set_num_threads(1)  # as in LocalBackend
            self._owner = ProcessOwner()
        self._is_used = True

    def parts(self, model: str) -> EngineParts:
        """Return the components of a model, which is loaded on first use.

        Raises:
            WeightsError: the weights are damaged.
            EngineError: the engine is closed.
        """
        name = next((name for name in self._family.models if name == model), self._family.models[0])
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            if name not in self._parts:
                torch = loaded_torch()
                threads = 1 if self._family.seeds == "exact" or torch is None else torch.get_num_threads()
                scheduler = Scheduler(self._family.runners(name, self._rows), self._rows, threads=threads)
                self._parts[name] = EngineParts(self._family, scheduler, self._decoding)
            return self._parts[name]

    @property
    def healthy(self) -> bool:
        """True if the schedulers of all loaded models are healthy."""
        return not self._closed and all(parts.scheduler.healthy for parts in tuple(self._parts.values()))

    def close(self) -> None:
        """Stop all threads."""
        if self._owner.forked:
            return
        with self._lock:
            self._closed = True
        for parts in self._parts.values():
            parts.scheduler.close()
        self._decoding.close()


def open_local(path: str = "", *, device: str | None = None, voices: VoiceStore | None = None) -> LocalBackend:
    """Open ``local:``, the embedded voice, or ``local:PATH``, another checkpoint. Raises the same errors as LocalBackend."""
    return LocalBackend(device, weights=Path(path) if path else None, voices=voices)


def compile_weights(weights: Path, device: str | None = None) -> Iterator[tuple[Model, float]]:
    """Compile each model of a folder of open weights; yield its name and the duration of its compilation in seconds.

    Raises the same errors as LocalBackend.
    """
    family = _family(weights, choose_device(device), ROWS, int8_depth=False, compile=True)
    for model in family.models:
        started = time.perf_counter()
        family.runners(model, ROWS)()
        yield model, time.perf_counter() - started


def _family(weights: Path | None, device: str, rows: int, *, int8_depth: bool, compile: bool | None) -> Family:
    """Load a checkpoint of the embedded family, or, if the folder has none, open weights."""
    if weights is None or not weights.is_dir() or (weights / EMBEDDED).exists():
        if int8_depth:
            raise EngineError("int8_depth requires open weights; the embedded family does not support it")
        return PointerFamily(weights, device)
    with MissingExtra.where("open-weights", "loading open weights"):
        from voicelab.engine.dual.family import DualFamily

    return DualFamily(weights, device, rows, int8_depth=int8_depth, compile=compile)


def _encoded(speech: Speech, prosody: ProsodyProcessor, encoder: StreamEncoder) -> Iterator[bytes]:
    with _in_progress():
        for samples in speech.audio():
            yield encoder.feed(prosody.feed(samples))
        yield encoder.feed(prosody.finish()) + encoder.finish()


def _check_parent_was_idle() -> None:
    if any(process != os.getpid() for process, _ in _CALLS):
        raise EngineError(
            "this process was forked while another thread of its parent synthesized, and could wait forever for a lock of "
            "that thread: start processes by multiprocessing.get_context('spawn'), or fork while no thread synthesizes"
        )


def _fingerprint(digests: tuple[str, ...], rows: int) -> str:
    """Compute the fingerprint from the revision, the weights, and the number of rows if it is below BATCH.

    It does not include the device, so that runs can be resumed on other machines; each take records its device.
    """
    fields = (str(REVISION), *digests, *((f"{rows} rows",) if rows < BATCH else ()))
    return hashlib.sha256(":".join(fields).encode()).hexdigest()[:16]
