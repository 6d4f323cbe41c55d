"""Does a transcript say what is heard? A forced alignment of the text with the sound, by pocketsphinx.

Each word gets the stretch of sound that fits it best, and with it a likelihood: how much worse its phones explain the
frames than the best of all phones would. A word that is said gets about -1 (natural logarithm for each 10 ms), one that
is not some -5. How well this tells wrong texts from right ones: docs/decisions/2026-11-21-transcripts.md.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from voicelab.audio.samples import Samples
from voicelab.voices.enhance import enhance
from voicelab.voices.recognise import PRONOUNCED, as_heard

__all__ = ["Aligner", "default_aligner"]

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_VARIANT = re.compile(r"\(\d+\)$")
_SAID = -3.0
_KNOWN = 0.5
"""Share of a text that must be words of the dictionary, or else nothing can be told."""
_LOUD_DB = 25.0
_FRAME, _HOP = 400, 160
_SPELLED = 4.0
"""Letters of a digit when it is said: "seven" has five, the "7" of 17 four."""


class Aligner:
    """Compares texts with sound. Safe to use from several threads, which take turns."""

    def __init__(self) -> None:
        """Load the model. Raises ImportError when pocketsphinx is not installed."""
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(samprate=PRONOUNCED, cmn="batch", lm=None, loglevel="FATAL")
        self._lock = threading.Lock()

    def match(self, samples: Samples, rate: int, text: str) -> float | None:
        """Return how much of the text is heard, or of the sound is text, whichever is less: 0 to 1.

        None when most words of the text are not in the dictionary, which is English.
        """
        # What is told by scores of words would else be told by the noise.
        sound = as_heard(samples, rate, enhance)
        with self._lock:
            words = _WORD.findall(text.lower().replace("\u2019", "'"))
            known = [word for word in words if self._decoder.lookup_word(word)]
            share = _size(known) / max(1.0, _size(words))
            if share < _KNOWN:
                return None
            said = self._said(known, sound)
        frames = np.lib.stride_tricks.sliding_window_view(sound.astype(np.float64), _FRAME)[::_HOP]
        power = np.square(frames).mean(axis=1)
        loud = power > np.percentile(power, 95) * 10 ** (-_LOUD_DB / 10)
        explained = np.zeros(len(power) + 8, bool)
        for _, first, last in said:
            explained[first : last + 1] = True
        # Words that the dictionary lacks were left out, and the sound that they explain with them.
        sounds = float((explained[: len(power)] & loud).sum() / max(1, loud.sum())) / share
        return min(1.0, sounds, _size(word for word, _, _ in said) / _size(known))

    def _said(self, words: list[str], sound: npt.NDArray[np.int16]) -> list[tuple[str, int, int]]:
        """The words that are there, with their first and last frames of 10 ms."""
        decoder = self._decoder
        decoder.set_align_text(" ".join(words))
        decoder.start_utt()
        decoder.process_raw(sound.tobytes(), full_utt=True)
        decoder.end_utt()
        if decoder.hyp() is None:
            return []
        said = []
        for one in decoder.seg():
            length = one.end_frame - one.start_frame + 1
            silent = one.word[0] in "<[+"
            if not silent and math.log(max(one.ascore, 1e-300)) > _SAID * length:
                said.append((_VARIANT.sub("", one.word), one.start_frame, one.end_frame))
        return said


@cache
def default_aligner() -> Aligner | None:
    """Return the one aligner of this process, or None without the extra ``recognition``."""
    try:
        return Aligner()
    except ImportError:
        return None


def _size(words: Iterable[str]) -> float:
    return sum(_SPELLED if letter.isdigit() else 1.0 for word in words for letter in word)
