"""LocalBackend: the engine behind the same three calls as any service."""

from __future__ import annotations

import copy
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Self

import torch

from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.prosody import ProsodyProcessor, stretch_words
from voicelab.backend import (
    DEFAULT_MAX_TEXT,
    Capabilities,
    SpeechStream,
    StreamSummary,
    check_text_length,
)
from voicelab.call import Call
from voicelab.engine import checkpoint
from voicelab.engine.fit import Fitted, Fitting, as_it_is
from voicelab.engine.likeness import similarity
from voicelab.engine.pipeline import BATCH, Parts, Speech
from voicelab.engine.scheduler import ROWS, Scheduler
from voicelab.engine.speakers import References, Speaker
from voicelab.engine.text.english.pronunciation import Lexicon, load_guess
from voicelab.engine.text.front import FrontEnd
from voicelab.engine.threads import OneThread
from voicelab.engine.voices import StoredVoices
from voicelab.errors import EngineError, RequestInvalid
from voicelab.schema import Model, TTSRequest, VoiceCreate, VoiceModel
from voicelab.voices.store import LOCAL_OWNER, VoiceStore

REVISION = 10
"""To be raised whenever the same weights, request and seed give other samples than before: caches then ask anew."""
_ONE_VOICE = "model s1: this voice is one model, which speaks the same as s1 and as s2-pro"
_SMALL: Model = "s1"


class LocalBackend:
    """The embedded voice, or another checkpoint of its family, on this machine.

    Seeds are exact: the same request, seed and device give the same samples. Without a seed one is drawn, and kept in the
    clip's take. The model s1 is a second, smaller language model on the same codec, loaded when it is first asked for.
    Where a checkpoint has none, s2-pro speaks under both names: the capabilities say so (``one_model``), and a clip of s1
    notes it. Voices are the same for both.
    Voices made with `create_voice` are kept on disk; for speech with the voices inside the package no disk is touched.

    Args:
        device: as torch names it (``"cpu"``, ``"cuda:0"``); by default a CUDA device if there is one, else the CPU.
        threads: CPU threads for torch, in the whole process; by default torch's own choice.
        weights: a checkpoint, a file or a folder of two models; by default the one inside the package.
        rows: most utterances of a model spoken at once; more wait.
        voices: where voices are kept; by default in VOICELAB_HOME.

    Raises:
        WeightsError: the checkpoint cannot be read.
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
    ) -> None:
        if rows < 1 or (threads is not None and threads < 1):
            raise EngineError(f"rows and threads must be at least 1, not {rows} and {threads}")
        if threads is not None:
            torch.set_num_threads(threads)
        self._device = _device(device)
        self._checkpoint = checkpoint.load(weights, self._device)
        self._scheduler = Scheduler(self._checkpoint.lm, rows)
        front = FrontEnd(Lexicon(load_guess()), self._checkpoint.languages)
        self._parts = Parts(self._checkpoint.codec, self._scheduler, front, OneThread("voicelab-codec"))
        self._second = _Second(self._checkpoint, self._parts)
        self._references, self._fit = References(self._checkpoint.codec), Fitting()
        self._own_store = voices is None
        self._voices = StoredVoices(
            VoiceStore() if voices is None else voices,
            self._references,
            self._checkpoint.codec_digest,
            next(iter(self._checkpoint.speakers.values())).numel(),
            self._checkpoint.languages,
        )
        self._owner = LOCAL_OWNER
        self._capabilities = Capabilities(
            name="embedded" if weights is None else weights.stem,
            models=("s1", "s2-pro"),
            device=_describe(self._device),
            seed="exact",
            fingerprint=_fingerprint(self._checkpoint, self._device, self._scheduler.rows),
            languages=self._checkpoint.languages,
            voices=self._checkpoint.presets,
            max_text=DEFAULT_MAX_TEXT,
            price_per_million_bytes=0.0,
            one_model=self._checkpoint.small is None,
            at_once=rows,
        )

    @property
    def capabilities(self) -> Capabilities:
        """What this backend is and can do."""
        return self._capabilities

    @property
    def healthy(self) -> bool:
        """Whether what is asked for now will be spoken: False once closed, or while a dead or hanging thread is in place."""
        return self._scheduler.healthy and self._second.healthy

    def synthesize(self, call: Call) -> SpeechStream:
        """Begins to speak.

        Raises:
            RequestInvalid: nothing in the text can be spoken, it is too long, or a voice or reference is unusable.
            WeightsError: the model's weights, read when it is first asked for, are damaged.
            EngineError: the engine is closed.
        """
        started = time.perf_counter()
        request = call.request
        check_text_length(request, self._capabilities.max_text)
        seed = secrets.randbits(32) if call.seed is None else call.seed
        speaker, rate = self._speaker(request), self._parts.codec.config.sample_rate
        prosody, encoder = ProsodyProcessor.for_request(request, rate), StreamEncoder.for_request(request, rate)
        parts = self._second.parts() if call.model == _SMALL else self._parts
        fitted = cache(partial(self._fit, speaker, parts) if self._cloned(request) else partial(as_it_is, speaker))
        speech = Speech(parts, request, lambda: fitted().told, seed)  # last: from here on there is work to be cancelled
        return SpeechStream(
            _encoded(speech, prosody, encoder),
            call=call,
            backend=self._capabilities,
            seed=seed,
            on_close=speech.cancel,
            summary=partial(self._summary, call, speech, prosody, fitted),
            started=started,
        )

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Makes a voice of recordings, at once, and keeps it on disk.

        Raises:
            RequestInvalid: a voice file is no audio or holds no speech, or the cover image is none.
            StoreError: the voice cannot be kept.
        """
        return self._voices.create(request, self._owner)

    def get_voice(self, id: str) -> VoiceModel:
        """The record of a stored voice.

        Raises:
            NotFound: there is none of this id, or it is private to another caller.
            StoreError: it is kept, and cannot be read.
        """
        return self._voices.store.get(id, self._owner)

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """The records of the caller's stored voices, the newest first.

        Raises:
            StoreError: they are kept, and cannot be read.
        """
        return self._voices.store.listed(self._owner)

    def delete_voice(self, id: str) -> None:
        """Forgets a stored voice of the caller's, and its recordings.

        Raises:
            NotFound: the caller has made none of this id.
            StoreError: it cannot be removed.
        """
        self._voices.store.remove(id, self._owner)

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
        return self._voices.store.cover(id, self._owner)

    def sample_audio(self, id: str, number: int) -> bytes:
        """A sample of a stored voice, as a WAV file; they count from 0.

        Raises:
            NotFound: there is no such voice or sample, or the voice is private to another caller.
            StoreError: it is kept, and cannot be read.
        """
        return self._voices.store.sample(id, self._owner, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the engine's threads; what still speaks fails. May be called twice. A store that was given stays open."""
        self._scheduler.close()
        self._second.close()
        self._parts.decoding.close()
        if self._own_store:
            self._voices.store.close()

    def _summary(
        self, call: Call, speech: Speech, prosody: ProsodyProcessor, fitted: Callable[[], Fitted]
    ) -> StreamSummary:
        request = call.request
        voice = request.reference_id
        if voice is not None and voice not in self._checkpoint.speakers:
            self._voices.count(voice)
        alone = self._checkpoint.small is None
        notes = (*speech.notes, *prosody.notes, *((_ONE_VOICE,) if alone and call.model == _SMALL else ()))
        near = None
        if self._cloned(request):
            every = torch.stack([speech.speaker, fitted().wanted, *self._checkpoint.speakers.values()])
            with torch.inference_mode():
                told = self._checkpoint.lm.encode_speaker(every.to(self._device)).cpu()
            near = similarity(told[0], told[1], told[2:])
        if request.references and voice is None:
            notes += self._references.doubts(request.references)
        return StreamSummary(stretch_words(speech.words, prosody.speed), notes, near)

    def _cloned(self, request: TTSRequest) -> bool:
        """Whether the speaker is none that training heard."""
        if request.reference_id is not None:
            return request.reference_id not in self._checkpoint.speakers
        return bool(request.references)

    def _speaker(self, request: TTSRequest) -> Speaker:
        speakers = self._checkpoint.speakers
        if request.reference_id is not None:
            if request.reference_id in speakers:
                return Speaker(speakers[request.reference_id])
            stored = self._voices.speaker(request.reference_id, self._owner)
            if stored is None:
                known = ", ".join(speakers)
                raise RequestInvalid.of(
                    "reference_id", f"there is no voice {request.reference_id!r}; the voices here are {known}"
                )
            return stored
        if request.references:
            return self._references.speaker(request.references)
        return Speaker(speakers[self._checkpoint.presets[0].id])


class _Second:
    """The second model of a checkpoint: what its requests share, from the first of them on. Without one, the first's."""

    def __init__(self, found: checkpoint.Checkpoint, first: Parts) -> None:
        self._checkpoint, self._first = found, first
        self._made: Parts | None = None
        self._closed = False
        self._lock = threading.Lock()

    def parts(self) -> Parts:
        """Loads the model if it is there and was not asked for before. Raises WeightsError, EngineError when closed."""
        if self._checkpoint.small is None:
            return self._first
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            if self._made is None:
                scheduler = Scheduler(checkpoint.load_small(self._checkpoint), self._first.scheduler.rows)
                self._made = replace(self._first, scheduler=scheduler)
            return self._made

    @property
    def healthy(self) -> bool:
        """Whether it speaks, or has not been asked to."""
        made = self._made
        return made is None or made.scheduler.healthy

    def close(self) -> None:
        """Ends its thread, if it has one."""
        with self._lock:
            self._closed, made = True, self._made
        if made is not None:
            made.scheduler.close()


def _encoded(speech: Speech, prosody: ProsodyProcessor, encoder: StreamEncoder) -> Iterator[bytes]:
    for samples in speech.audio():
        yield encoder.feed(prosody.feed(samples))
    yield encoder.feed(prosody.finish()) + encoder.finish()


def _fingerprint(found: checkpoint.Checkpoint, device: torch.device, rows: int) -> str:
    """Other weights, another revision or another kind of device, another fingerprint: each has samples of its own.

    So have fewer rows than segments begin together, since early_stop_threshold is a share of these.
    """
    known = [str(REVISION), found.digest, *([found.small_digest] if found.small_digest else [])]
    if device.type != "cpu":
        known.append(device.type)
    if rows < BATCH:
        known.append(f"{rows} rows")
    return hashlib.sha256(":".join(known).encode()).hexdigest()[:16]


def _device(name: str | None) -> torch.device:
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises either, by how it was built
        raise EngineError(f"the device {name!r} cannot be used: {error}") from error
    return device


def _describe(device: torch.device) -> str:
    return f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type
