"""espeak-ng through its C library: audio and when every phoneme begins. One thread a process; the library has one state."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RETRIEVAL, _PHONEME_EVENTS, _UTF8, _MNEMONICS = 2, 1, 1, 0x100
_RATE, _PITCH, _RANGE = 1, 3, 4
_WORDS_A_MINUTE = 175
_PHONEME = 7  # espeakEVENT_PHONEME


class _Id(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    ]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class Event:
    """A phoneme begins."""

    name: str
    sample: int
    position: int
    """Of its word in the text, in characters from 0."""


class Espeak:
    """The library, with its voice and its settings."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libespeak-ng.so.1")
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self.rate: int = self._library.espeak_Initialize(_RETRIEVAL, 0, None, _PHONEME_EVENTS)
        self._chunks: list[NDArray[np.int16]] = []
        self._events: list[Event] = []
        self._hear = _CALLBACK(self._heard)  # kept alive as long as the library may call it
        self._library.espeak_SetSynthCallback(self._hear)

    def _heard(self, wave: Any, count: int, events: Any) -> int:
        if wave and count > 0:
            self._chunks.append(np.ctypeslib.as_array(wave, (count,)).copy())
        at = 0
        while events[at].type:
            if events[at].type == _PHONEME:
                name = events[at].id.string.decode()
                self._events.append(Event(name, events[at].sample, events[at].text_position - 1))
            at += 1
        return 0

    def voice(self, name: str, stretch: float = 1.0, pitch: float = 1.0, spread: float = 1.0) -> None:
        """Chooses a voice; F0's mean and range and durations are relative to its own."""
        if self._library.espeak_SetVoiceByName(name.encode()) != 0:
            raise SystemExit(f"espeak-ng has no voice {name}")
        set_parameter = self._library.espeak_SetParameter
        set_parameter(_RATE, round(max(80, _WORDS_A_MINUTE / stretch)), 0)
        set_parameter(_PITCH, int(np.clip(round(50 + 50 * np.log2(pitch)), 0, 99)), 0)  # its table has an octave in 50
        set_parameter(_RANGE, int(np.clip(round(50 * spread), 0, 99)), 0)

    def say(self, text: str) -> tuple[NDArray[np.int16], list[Event]]:
        """Samples at `rate` Hz and phonemes; ``[[...]]`` in the text holds mnemonics."""
        self._chunks, self._events = [], []
        raw = text.encode()
        self._library.espeak_Synth(raw, ctypes.c_size_t(len(raw) + 1), 0, 1, 0, _UTF8 | _MNEMONICS, None, None)
        self._library.espeak_Synchronize()
        return np.concatenate([np.zeros(0, np.int16), *self._chunks]), self._events

    def phonemes(self, text: str) -> str:
        """What it would say, in its own mnemonics with tones and stress, clause after clause."""
        buffer = ctypes.create_string_buffer(text.encode())
        rest = ctypes.c_void_p(ctypes.addressof(buffer))
        out = []
        while rest.value:
            said = self._library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, 0)
            out.append((said or b"").decode())
        return " ".join(out).strip()
