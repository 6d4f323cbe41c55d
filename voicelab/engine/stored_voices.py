"""Stored voices and the engine: recordings become a speaker once, and are kept as one for these weights."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from voicelab.engine.family import Family
from voicelab.errors import NotFound, RequestInvalid, StoreError
from voicelab.schema import ReferenceAudio, VoiceCreate, VoiceModel
from voicelab.voices.intake import prepare_samples
from voicelab.voices.store import Sample, VoiceStore
from voicelab.voices.transcripts import Recognizer, default_recognizer

_LOG = logging.getLogger("voicelab.engine")


class StoredVoices:
    """Voices of a store, as speakers of one family. A voice made with other weights is encoded again from its recordings."""

    def __init__(self, store: VoiceStore, family: Family) -> None:
        self.store = store
        self._family = family
        self._recognizer: Recognizer | None = None
        self._lock = threading.Lock()

    def create(self, request: VoiceCreate, owner: str) -> VoiceModel:
        """Makes a voice and keeps it.

        Raises:
            RequestInvalid: what is given is no speech, or no picture.
            StoreError: it cannot be kept.
        """
        samples = prepare_samples(request, self._listener)
        voice = self.store.begin(request, samples, owner, self._family.languages)
        self.store.train(voice)
        try:
            speaker = self._encode(samples)
        except BaseException:
            with suppress(StoreError):
                self.store.fail(voice)
            raise
        return self.store.finish(voice, self._family.voice_digest, self._family.pack(speaker))

    def speaker(self, voice: str, owner: str) -> Any:
        """The speaker of a voice, see `Family.speaker`; None when there is none that `owner` may use.

        Raises:
            StoreError: it is kept, and cannot be read.
        """
        family = self._family
        try:
            packed = self.store.embedding(voice, owner, family.voice_digest)
            speaker = None if packed is None else family.unpack(packed)
            if speaker is not None:
                return speaker
            speaker = self._encode(self.store.samples(voice, owner))
        except NotFound:
            return None
        self.store.keep_embedding(voice, family.voice_digest, family.pack(speaker))
        return speaker

    def count(self, voice: str) -> None:
        """Counts a synthesis. A store that fails now must not cost the caller the speech that is there already."""
        try:
            self.store.count(voice)
        except StoreError as error:
            _LOG.warning("a synthesis was not counted: %s", error)

    def _encode(self, samples: Iterable[Sample]) -> Any:
        references = [ReferenceAudio(audio=sample.audio, text=sample.text) for sample in samples]
        try:
            return self._family.speaker(references)
        except RequestInvalid as error:
            raise RequestInvalid.of("voices", error.errors[0].msg) from error

    def _listener(self) -> Recognizer | None:
        with self._lock:
            if self._recognizer is None:
                self._recognizer = default_recognizer()
            return self._recognizer
