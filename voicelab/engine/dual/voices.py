"""Voices of the family: recordings encoded once, kept as codes with what is said in them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import msgpack  # type: ignore[import-untyped]  # it publishes no types
import numpy as np
import torch
from torch import Tensor

from voicelab.audio.samples import resample
from voicelab.audio.sandbox import decode_apart
from voicelab.engine.core.threads import Memo
from voicelab.engine.dual.prompt import Reference
from voicelab.engine.dual.runner import DualVoice
from voicelab.errors import AudioError, RequestInvalid
from voicelab.schema import ReferenceAudio

ADVISED_S = (10.0, 30.0)
"""Length of a reference that the models' makers advise."""
_SILENT = 1e-3
_REMEMBERED = 32
_FORM = "dual 1"

Encode = Callable[[Tensor], Tensor]


class VoiceEncoder:
    """Makes voices of references, and keeps the latest: one used again costs no encoding.

    Args:
        encode: the codec's: mono samples at its rate → (frames, codebooks).
        rate: Hz.
        room: most positions of a model that a voice may take.
    """

    def __init__(self, encode: Encode, rate: int, room: int) -> None:
        self._encode, self._rate, self._room = encode, rate, room
        self._codes: Memo[tuple[Tensor, float]] = Memo(_REMEMBERED)

    def voice(self, references: Sequence[ReferenceAudio]) -> DualVoice:
        """The voice of all references together, in their order.

        Raises:
            RequestInvalid: a reference is no audio, or silent, or they are too long for the models; the field is named.
        """
        read = tuple(Reference(one.text, self._read(i, one)[0]) for i, one in enumerate(references))
        needed = sum(len(one.codes) + len(one.text.encode()) for one in read)  # a token is a byte or more
        if needed > self._room:
            seconds = sum(self._read(i, one)[1] for i, one in enumerate(references))
            raise RequestInvalid.of(
                "references",
                f"{seconds:.0f} s of recordings and their texts leave the model no room to speak; "
                f"{ADVISED_S[0]:.0f} to {ADVISED_S[1]:.0f} s are advised",
            )
        return voice_of(read)

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """What a listener should know of the references, in sentences. Raises as `voice`."""
        sentences = []
        for i, one in enumerate(references):
            seconds = self._read(i, one)[1]
            if not ADVISED_S[0] <= seconds <= ADVISED_S[1]:
                sentences.append(f"reference {i + 1}: it lasts {seconds:.1f} s; 10 to 30 s are advised")
            if not one.text.strip():
                sentences.append(f"reference {i + 1}: without its text the voice is followed less well")
        return tuple(sentences)

    def _read(self, number: int, reference: ReferenceAudio) -> tuple[Tensor, float]:
        """Its codes, and its length in seconds."""
        key = hashlib.sha256(reference.audio).hexdigest()
        try:
            return self._codes.get(key, partial(self._encoded, reference.audio))
        except AudioError as error:
            raise RequestInvalid.of(f"references.{number}.audio", str(error)) from error

    def _encoded(self, audio: bytes) -> tuple[Tensor, float]:
        samples = resample(*decode_apart(audio), self._rate)  # the bytes may come from anybody
        if float(np.abs(samples).max(initial=0.0)) < _SILENT:
            raise AudioError("the reference is silent")
        return self._encode(torch.from_numpy(samples)), samples.size / self._rate


def voice_of(references: tuple[Reference, ...]) -> DualVoice:
    """The voice with its key."""
    return DualVoice(references, hashlib.sha256(_packed(references)).hexdigest() if references else "")


def pack(voice: DualVoice) -> bytes:
    """A voice as a stored one keeps it."""
    return _packed(voice.references)


def unpack(packed: bytes, codebooks: int) -> DualVoice | None:
    """The voice of `pack`; None for bytes of another form."""
    try:
        form, *items = msgpack.unpackb(packed)
        if form != _FORM:
            return None
        codes = [
            torch.from_numpy(np.frombuffer(raw, "<i2").astype(np.int64).reshape(-1, codebooks)) for _, raw in items
        ]
        return voice_of(tuple(Reference(text, one) for (text, _), one in zip(items, codes, strict=True)))
    except (ValueError, TypeError, msgpack.UnpackException):
        return None


def _packed(references: tuple[Reference, ...]) -> bytes:
    items = [(one.text, one.codes.numpy().astype("<i2").tobytes()) for one in references]
    packed: bytes = msgpack.packb([_FORM, *items])
    return packed
