"""Stored voices and the engine: recordings become a speaker once, and are kept as one for these weights."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import torch

from voicelab.engine.channel import Band
from voicelab.engine.speakers import References, Speaker
from voicelab.errors import NotFound, RequestInvalid, StoreError
from voicelab.schema import ReferenceAudio, VoiceCreate, VoiceModel
from voicelab.voices.intake import prepare_samples
from voicelab.voices.store import Sample, VoiceStore
from voicelab.voices.transcripts import Recognizer, default_recognizer

_LOG = logging.getLogger("voicelab.engine")


class StoredVoices:
    """Voices of a store, as speakers of one checkpoint.

    Args:
        store: where they are kept.
        references: what makes a speaker of recordings.
        fingerprint: digest of the checkpoint; a voice made with another is encoded again from its recordings.
        width: length of a speaker's vector.
        languages: those that the checkpoint speaks, in any voice.
    """

    def __init__(
        self, store: VoiceStore, references: References, fingerprint: str, width: int, languages: tuple[str, ...]
    ) -> None:
        self.store = store
        self._references = references
        self._fingerprint = fingerprint
        self._width = width
        self._languages = languages
        self._recognizer: Recognizer | None = None
        self._lock = threading.Lock()

    def create(self, request: VoiceCreate, owner: str) -> VoiceModel:
        """Makes a voice and keeps it.

        Raises:
            RequestInvalid: what is given is no speech, or no picture.
            StoreError: it cannot be kept.
        """
        samples = prepare_samples(request, self._listener)
        voice = self.store.begin(request, samples, owner, self._languages)
        self.store.train(voice)
        try:
            speaker = self._encode(samples)
        except BaseException:
            with suppress(StoreError):
                self.store.fail(voice)
            raise
        return self.store.finish(voice, self._fingerprint, _bytes(speaker))

    def speaker(self, voice: str, owner: str) -> Speaker | None:
        """The speaker of a voice; None when there is none that `owner` may use.

        Raises:
            StoreError: it is kept, and cannot be read.
        """
        try:
            kept = self.store.embedding(voice, owner, self._fingerprint)
            if kept is not None and len(kept) == 4 * (self._width + 2):
                return _speaker(kept)
            speaker = self._encode(self.store.samples(voice, owner))
        except NotFound:
            return None
        self.store.keep_embedding(voice, self._fingerprint, _bytes(speaker))
        return speaker

    def count(self, voice: str) -> None:
        """Counts a synthesis. A store that fails now costs nobody the speech that they have already."""
        try:
            self.store.count(voice)
        except StoreError as error:
            _LOG.warning("a synthesis was not counted: %s", error)

    def _encode(self, samples: Iterable[Sample]) -> Speaker:
        references = [ReferenceAudio(audio=sample.audio, text=sample.text) for sample in samples]
        try:
            return self._references.speaker(references)
        except RequestInvalid as error:
            raise RequestInvalid.of("voices", error.errors[0].msg) from error

    def _listener(self) -> Recognizer | None:
        with self._lock:
            if self._recognizer is None:
                self._recognizer = default_recognizer()
            return self._recognizer


def _bytes(speaker: Speaker) -> bytes:
    """The statistics, and the edges of the band: 0 and 0 for none."""
    edges = (speaker.band.low, speaker.band.high) if speaker.band else (0.0, 0.0)
    return np.concatenate([speaker.statistics.numpy(), edges]).astype("<f4").tobytes()


def _speaker(kept: bytes) -> Speaker:
    found = np.frombuffer(kept, "<f4").astype(np.float32)
    low, high = map(float, found[-2:])
    return Speaker(torch.from_numpy(found[:-2]), Band(low, high) if high else None)
