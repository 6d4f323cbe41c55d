"""LocalBackend: the engine behind the same three calls as any service, and the voices that it keeps."""

from __future__ import annotations

import copy
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import torch

from voicelab.asr.recognizers import Recognizer, default_recognizer
from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.prosody import ProsodyProcessor, stretch_words
from voicelab.backend import DEFAULT_MAX_TEXT, SpeechStream, StreamSummary
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_text_length
from voicelab.engine.core.decoding import DecodingThread, Memo
from voicelab.engine.core.scheduler import ROWS, Scheduler
from voicelab.engine.family import EngineParts, Family
from voicelab.engine.pointer.checkpoint import EMBEDDED
from voicelab.engine.pointer.family import PointerFamily
from voicelab.engine.speech import BATCH, Speech
from voicelab.errors import EngineError, NotFound, RequestInvalid, StoreError
from voicelab.schema import Model, ReferenceAudio, TTSRequest, VoiceCreate, VoiceModel
from voicelab.storage import Closing, ProcessOwner
from voicelab.voices.intake import prepare_samples
from voicelab.voices.store import LOCAL_OWNER, Sample, VoiceStore

_LOG = logging.getLogger("voicelab.engine")
REVISION = 14
"""To be raised whenever the same weights, request and seed give other samples than before: caches then ask anew."""
_IMPORTED = ProcessOwner()
_ONE_VOICE = "model {}: this voice is one model, which speaks the same as s1 and as s2-pro"


class LocalBackend(Closing):
    """The embedded voice, another checkpoint of its family, or open weights, on this machine.

    Seeds of the embedded family are exact: the same request, seed and device give the same samples; those of open weights are
    best effort, since other requests at the same time change how sums are rounded. Without a seed one is drawn, and kept in
    the clip's take. The model s1 is a second, smaller language model on the same codec, loaded for its first request.
    Where a checkpoint has none, s2-pro speaks under both names: the capabilities say so (``one_model``), and a clip of s1
    notes it. Voices are the same for both.
    Voices made with `create_voice` are kept on disk; for speech with the voices inside the package no disk is touched.

    Args:
        device: as torch names it (``"cpu"``, ``"cuda:0"``); by default a CUDA device if there is one, else the CPU.
        threads: CPU threads for torch, in the whole process; by default torch's own choice. Those who speak work alone,
            but for the language models of open weights: the embedded family's samples must not depend on it. In a fork of a
            process that has opened an engine it is 1: OpenMP's threads are not copied, and torch would wait for them.
        weights: a checkpoint, a file or a folder of two models, or a folder with S2-Pro, S1-mini or both; by default the
            checkpoint inside the package.
        rows: most utterances of a model spoken at once; more wait.
        voices: where voices are kept; by default in VOICELAB_HOME.
        int8_depth: whether the fast transformer of open weights, which is half of what a frame reads, is rounded to 8 bits.
        compile: whether torch's compiler makes few kernels of a frame of open weights; by default on a CUDA device where
            ``voicelab weights compile`` was run before. With True the first sentence waits for it, for minutes; where there
            is no compiler, it is an EngineUnavailable.

    Raises:
        WeightsError: the checkpoint cannot be read.
        LicenseRequired: the license of open weights was not accepted.
        EngineError: the device is not there, or there shall be no rows or threads.
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
            raise EngineError(f"rows and threads must be at least 1, not {rows} and {threads}")
        if _IMPORTED.forked:
            threads = 1
        if threads is not None:
            torch.set_num_threads(threads)
        self._device = on = _device(device)
        self._family = _family(weights, self._device, rows, int8_depth=int8_depth, compile=compile)
        self._models = _Models(self._family, rows, on)
        self._own_store = voices is None
        self._store = VoiceStore() if voices is None else voices
        self._recognizer: Memo[Recognizer | None] = Memo(1)
        self._owner = LOCAL_OWNER
        self._capabilities = Capabilities(
            name="embedded" if weights is None else weights.stem,
            models=("s1", "s2-pro"),
            device=f"{on} {torch.cuda.get_device_name(on)}" if on.type == "cuda" else on.type,
            seed=self._family.seeds,
            fingerprint=_fingerprint(self._family.digests, self._device, rows),
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
        """What this backend is and can do."""
        return self._capabilities

    @property
    def healthy(self) -> bool:
        """Whether a request made now will be spoken: False once closed, or while a dead or hanging thread is in place."""
        return self._models.healthy

    def synthesize(self, call: Call) -> SpeechStream:
        """Begins to speak.

        Raises:
            RequestInvalid: nothing in the text can be spoken, it is too long, or a voice or reference is unusable.
            WeightsError: the model's weights, read for its first request, are damaged.
            EngineError: the engine is closed, or this is a fork of a process in which it has spoken.
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
        speech = Speech(parts, call, voice, seed)  # last: from here on there is work to be cancelled
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

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Makes a voice of recordings, at once, and keeps it on disk; where weights are under a license, that is a tag of it.

        Raises:
            RequestInvalid: a voice file is no audio or holds no speech, or the cover image is none.
            StoreError: the voice cannot be kept.
        """
        self._models.begin()
        if license := self._family.license:  # noqa: A001 - what it is
            request = request.model_copy(update={"tags": (*request.tags, *license.split("; "))})
        samples = prepare_samples(request, partial(self._recognizer.get, "", default_recognizer))
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
        """The record of a stored voice.

        Raises:
            NotFound: there is none of this id, or it is private to another caller.
            StoreError: it is kept, and cannot be read.
        """
        return self._store.get(id, self._owner)

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """The records of the caller's stored voices, the newest first.

        Raises:
            StoreError: they are kept, and cannot be read.
        """
        return self._store.listed(self._owner)

    def delete_voice(self, id: str) -> None:
        """Forgets a stored voice of the caller's, and its recordings.

        Raises:
            NotFound: the caller has made none of this id.
            StoreError: it cannot be removed.
        """
        self._store.remove(id, self._owner)

    def acting_for(self, owner: str) -> Self:
        """The same backend for another caller, whose private voices are its own. Closing either closes both."""
        other = copy.copy(self)
        other._owner = owner  # noqa: SLF001 - our own copy
        return other

    def cover_image(self, id: str) -> bytes:
        """The cover image of a stored voice.

        Raises:
            NotFound: there is no such voice or image, or the voice is private to another caller.
            StoreError: it is kept, and cannot be read.
        """
        return self._store.cover(id, self._owner)

    def sample_audio(self, id: str, number: int) -> bytes:
        """A sample of a stored voice, as a WAV file; they count from 0.

        Raises:
            NotFound: there is no such voice or sample, or the voice is private to another caller.
            StoreError: it is kept, and cannot be read.
        """
        return self._store.sample(id, self._owner, number)

    def close(self) -> None:
        """Ends the engine's threads; what still speaks fails. May be called twice. A store that was given stays open."""
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
            except StoreError as error:  # it must not cost the caller the speech that is there already
                _LOG.warning("a synthesis was not counted: %s", error)
        cloned = not self._is_preset(name) if name is not None else bool(request.references)
        similarity = family.similarity(speech.codes, voice()) if cloned else None
        notes = self._notes(call, speech, prosody)
        return StreamSummary(stretch_words(speech.words, prosody.speed), notes, similarity)

    def _notes(self, call: Call, speech: Speech, prosody: ProsodyProcessor) -> tuple[str, ...]:
        request, family = call.request, self._family
        one_voice = (_ONE_VOICE.format(call.model),) if call.model not in family.models else ()
        cloned = request.references if request.reference_id is None else None
        return (*speech.notes, *prosody.notes, *one_voice, *(family.reference_notes(cloned) if cloned else ()))

    def _is_preset(self, name: str) -> bool:
        return any(preset.id == name for preset in self._family.presets)

    def _speaker(self, request: TTSRequest) -> Any:
        """The family's speaker of a request."""
        name, presets = request.reference_id, self._family.presets
        if name is None and request.references:
            return self._family.speaker(request.references)
        if name is None or self._is_preset(name):
            return self._family.preset(name or presets[0].id)
        try:
            return self._stored(name)
        except NotFound:
            names = ", ".join(preset.id for preset in presets)
            message = f"there is no voice {name!r}; the voices here are {names}"
            raise RequestInvalid.of("reference_id", message) from None

    def _stored(self, voice: str) -> Any:
        """The speaker of a stored voice; one that was made with other weights is encoded again from its recordings."""
        family = self._family
        packed = self._store.embedding(voice, self._owner, family.voice_digest)
        speaker = None if packed is None else family.unpack(packed)
        if speaker is None:
            speaker = self._encode(self._store.samples(voice, self._owner))
            self._store.keep_embedding(voice, family.voice_digest, speaker.to_bytes())
        return speaker

    def _encode(self, samples: Iterable[Sample]) -> Any:
        try:
            return self._family.speaker([ReferenceAudio(audio=sample.audio, text=sample.text) for sample in samples])
        except RequestInvalid as error:
            raise RequestInvalid.of("voices", error.errors[0].msg) from error


class _Models:
    """What the requests of each model of a family share, from the first request on; and one decoding thread for all."""

    def __init__(self, family: Family, rows: int, device: torch.device) -> None:
        self._family, self._rows, self._device = family, rows, device
        self._decoding = DecodingThread(family.decoding)
        self._parts: dict[Model, EngineParts] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._owner, self._begun = ProcessOwner(), False

    def begin(self) -> None:
        """Check that the engine's threads are this process's, or will be. Raises EngineError in a fork of theirs."""
        if self._owner.forked:
            if self._begun or self._device.type != "cpu":
                self._owner.check("the engine")
            torch.set_num_threads(1)  # as in LocalBackend
            self._owner = ProcessOwner()
        self._begun = True

    def parts(self, model: str) -> EngineParts:
        """Those of a model, which is loaded if need be. Raises WeightsError, and EngineError when closed."""
        chosen = next((name for name in self._family.models if name == model), self._family.models[0])
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            if chosen not in self._parts:
                threads = 1 if self._family.seeds == "exact" else torch.get_num_threads()
                scheduler = Scheduler(self._family.runners(chosen, self._rows), self._rows, threads=threads)
                self._parts[chosen] = EngineParts(self._family, scheduler, self._decoding)
            return self._parts[chosen]

    @property
    def healthy(self) -> bool:
        """Whether every model that has spoken still can."""
        return not self._closed and all(parts.scheduler.healthy for parts in tuple(self._parts.values()))

    def close(self) -> None:
        """Ends the threads."""
        if self._owner.forked:
            return
        with self._lock:
            self._closed = True
        for parts in self._parts.values():
            parts.scheduler.close()
        self._decoding.close()


def open_local(path: str = "", *, device: str | None = None, voices: VoiceStore | None = None) -> LocalBackend:
    """Open ``local:``, the embedded voice, or ``local:PATH``, another checkpoint. Raises like LocalBackend."""
    return LocalBackend(device, weights=Path(path) if path else None, voices=voices)


def compile_weights(weights: Path, device: str | None = None) -> Iterator[tuple[Model, float]]:
    """Compiles each model of a folder of open weights for a device; gives its name, and the seconds that took.

    Raises like LocalBackend.
    """
    family = _family(weights, _device(device), ROWS, int8_depth=False, compile=True)
    for model in family.models:
        began = time.perf_counter()
        family.runners(model, ROWS)()
        yield model, time.perf_counter() - began


def _family(weights: Path | None, device: torch.device, rows: int, *, int8_depth: bool, compile: bool | None) -> Family:
    """A folder without a checkpoint of the embedded family is one of open weights."""
    if weights is None or not weights.is_dir() or (weights / EMBEDDED).exists():
        if int8_depth:
            raise EngineError("int8_depth is for open weights; the embedded family has no matrices of 8 bits")
        return PointerFamily(weights, device)
    from voicelab.engine.dual.family import DualFamily

    return DualFamily(weights, device, rows, int8_depth=int8_depth, compile=compile)


def _encoded(speech: Speech, prosody: ProsodyProcessor, encoder: StreamEncoder) -> Iterator[bytes]:
    for samples in speech.audio():
        yield encoder.feed(prosody.feed(samples))
    yield encoder.feed(prosody.finish()) + encoder.finish()


def _fingerprint(digests: tuple[str, ...], device: torch.device, rows: int) -> str:
    """Of weights, revision and kind of device, each with samples of its own; and of rows where they are less than a batch."""
    kind = () if device.type == "cpu" else (device.type,)
    parts = (str(REVISION), *digests, *kind, *((f"{rows} rows",) if rows < BATCH else ()))
    return hashlib.sha256(":".join(parts).encode()).hexdigest()[:16]


def _device(name: str | None) -> torch.device:
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises either, by how it was built
        raise EngineError(f"the device {name!r} cannot be used: {error}") from error
    return device
