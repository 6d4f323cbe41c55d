"""Base of backends of models with named parameters: a Python function, a command, or a worker process.

The parameters of the model are mapped by name: ``voice``, ``seed``, ``speed``, ``model``, ``references`` (recordings as
ReferenceAudio), ``ref_audio`` and ``ref_text`` (path and transcript of one recording), and fields of the interface such as
``temperature``. Other parameters that have a default become backend parameters. `ModelBackend` converts the returned audio
to a stream.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.formats import MAX_BYTES, read
from voicelab.audio.prosody import ProsodyProcessor
from voicelab.audio.samples import Samples, check_rate
from voicelab.backend import DEFAULT_MAX_TEXT, SpeechStream, StreamSummary, VoicelessBackend
from voicelab.backends.child import described
from voicelab.call import Call, Knob, VoicePreset, is_field, merged_defaults
from voicelab.capabilities import SYNTHESIS_FIELDS, Capabilities, FieldSupport, SeedSupport, field_value
from voicelab.clip import Clip
from voicelab.errors import (
    ArgumentError,
    AudioError,
    EngineError,
    RequestInvalid,
    VoicelabError,
    shortened,
    shown_value,
)
from voicelab.recordings import damage_of
from voicelab.schema import ReferenceAudio, TTSRequest

_MAX_SEED: Final = 2**31 - 1
_MAX_PEAK: Final = 8.0
_NAMED: Final = ("voice", "seed", "speed", "model")
_REFERENCES: Final = ("references", "ref_audio", "ref_text")
MAPPED: Final = (*_NAMED, *_REFERENCES, *SYNTHESIS_FIELDS)
"""Parameters that are mapped by name."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a model. ``type`` is "bool", "int", "float", "str", or "" for any other type."""

    name: str
    type: str = "str"
    required: bool = False
    optional: bool = False
    default: Any = None
    bounds: tuple[float, float] | None = None
    choices: tuple[Any, ...] = ()
    description: str = ""

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Parameter:
        """Create from a description returned by ``voicelab.backends.child.parameters``."""
        bounds = described["bounds"]
        return cls(**{**described, "bounds": bounds and tuple(bounds), "choices": tuple(described["choices"])})


def presets(voices: Iterable[str | VoicePreset]) -> tuple[VoicePreset, ...]:
    """Convert voice ids to presets. Raises ArgumentError."""
    listed = _names("voices", voices)
    return tuple(voice if isinstance(voice, VoicePreset) else VoicePreset(voice, voice) for voice in listed)


def _names(argument: str, values: Any) -> tuple[Any, ...]:
    """Convert a single name, or an iterable of names, to a tuple of names. Raises ArgumentError."""
    listed = (values,) if isinstance(values, str) or not isinstance(values, Iterable) else tuple(values)
    if wrong := [value for value in listed if not value or not isinstance(value, str | VoicePreset)]:
        raise ArgumentError.of(argument, f"must be a list of names, got {wrong[0]!r}")
    return listed


def check_at_once(value: Any) -> None:
    """Raise ArgumentError if a number of concurrent calls is not a positive integer."""
    if not isinstance(value, int) or value < 1:
        raise ArgumentError.of("at_once", f"must be a whole number, at least 1, got {shown_value(value)}")


class ModelBackend(VoicelessBackend, ABC):
    """Base class of backends of models with named parameters.

    Args:
        name: name of the model, for messages and tables.
        parameters: parameters of the model, except the text.
        voices: voices of the model; by default the choices of its parameter ``voice``.
        models: values of a parameter ``model``; by default its default and choices, or else the name.
        seed: seed support; by default best-effort if there is a parameter ``seed``, else none.
        languages: language codes.
        fingerprint: digest of the model.
        at_once: maximum number of concurrent calls.

    Raises:
        ArgumentError: a parameter has no default and is not mapped by name, or voices are given without a parameter
            ``voice``.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[Parameter],
        *,
        voices: Iterable[str | VoicePreset] | None = None,
        models: Iterable[str] | None = None,
        seed: SeedSupport | None = None,
        languages: Iterable[str] = (),
        fingerprint: str,
        at_once: int,
    ) -> None:
        check_at_once(at_once)
        if seed not in (None, *(allowed := get_args(SeedSupport))):
            raise ArgumentError.of("seed", f"must be one of {', '.join(allowed)}, got {shown_value(seed)}")
        self._parameters = {item.name: item for item in parameters}
        names = self._parameters.keys()
        if voices is not None and "voice" not in names:
            raise ArgumentError.of("voices", f"{name} must have a parameter 'voice', got {', '.join(names) or 'none'}")
        voices = self._texts("voice") if voices is None else voices
        models = _names("models", models or self._texts("model", default=True))
        unknown = [item for item in self._parameters.values() if item.name not in MAPPED]
        for item in unknown:
            if item.required:
                raise ArgumentError.of("parameters", f"{name}: {_unmapped(item.name)}")
        own = [
            item for item in unknown if item.type and (item.default is not None or item.optional) and _usable(item.name)
        ]
        self.unsettable: Mapping[str, str] = {
            item.name: f"cannot be set; {name} must annotate it with bool, int, float, str, or a Literal or Enum of one type"
            for item in unknown
            if item not in own and not is_field(item.name)
        }
        """Parameters that calls cannot set, with the reasons."""
        self._knobs = tuple(Knob(i.name, i.type, i.default, i.description, i.bounds, i.choices) for i in own)  # type: ignore[arg-type]
        self.defaults: Mapping[str, object] = self._own_defaults(name)
        ignored = {field for field in SYNTHESIS_FIELDS if field not in names}
        ignored |= {
            field
            for field, parameter in (("prosody.speed", "speed"), ("reference_id", "voice"))
            if parameter not in names
        }
        ignored |= set() if {"references", "ref_audio"} & names else {"references"}
        self._slots = threading.BoundedSemaphore(at_once)
        capabilities = Capabilities(
            name=name,
            models=models or (name,),
            device="cpu",
            seed=seed or ("best-effort" if "seed" in names else "none"),
            fingerprint=fingerprint,
            languages=_names("languages", languages),
            voices=presets(voices),
            max_text=DEFAULT_MAX_TEXT,
            prices=(),
            one_model=None if models else True,
            at_once=at_once,
            fields=tuple(FieldSupport(field, ignored=f"{name} has no such parameter") for field in sorted(ignored)),
            knobs=self._knobs,
        )
        super().__init__(capabilities)

    def _texts(self, name: str, *, default: bool = False) -> tuple[str, ...]:
        """Return the choices of a parameter that are strings; with ``default``, its default comes first."""
        item = self._parameters.get(name, Parameter(name))
        values = (item.default, *item.choices) if default else item.choices
        return tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value))

    def _own_defaults(self, name: str) -> Mapping[str, object]:
        """Return the model's defaults for request fields; the lab uses them as its own defaults."""
        own = {
            item.name: item.default
            for item in self._parameters.values()
            if item.name in (*SYNTHESIS_FIELDS, "speed") and item.default is not None
        }
        try:
            merged_defaults({}, own)
        except RequestInvalid as error:
            message = f"{name}: {error}; rename this parameter, since a field of the interface has its name"
            raise ArgumentError.of("parameters", message) from None
        return own

    @abstractmethod
    def run(self, text: str, arguments: Mapping[str, Any], stop: threading.Event) -> Iterator[object]:
        """Call the model and yield its results, in the types that `samples_of` accepts.

        ``stop`` is set when the audio is no longer needed.
        """

    def synthesize(self, call: Call) -> SpeechStream:
        """Return a stream of audio; the model is called when the stream is first read.

        Raises RequestInvalid for an unknown voice, and for a voice or references if the model supports none. Reading the
        stream raises EngineError with the model's own error.
        """
        started = time.perf_counter()
        call = self.checked(call)
        self._check_speaker(call.request)
        seed, notes, stop = self._seed(call), list[str](), threading.Event()

        def audio() -> Iterator[bytes]:
            with ExitStack() as stack:
                blocks = self._blocks(call.request.text, self._arguments(call, seed, stack), stop, notes)
                samples, rate = next(blocks)
                encoder = StreamEncoder.for_request(call.request, rate)
                prosody = ProsodyProcessor(rate, volume=call.request.prosody.volume if call.request.prosody else 0.0)
                yield encoder.feed(prosody.feed(samples))
                for samples, _ in blocks:
                    yield encoder.feed(prosody.feed(samples))
                yield encoder.feed(prosody.finish()) + encoder.finish()
                notes.extend(prosody.notes)

        return SpeechStream(
            audio(),
            call=call,
            backend=self.capabilities,
            seed=seed,
            on_close=stop.set,
            notes=lambda: tuple(dict.fromkeys(notes)),
            summary=lambda: StreamSummary(notes=tuple(dict.fromkeys(notes))),
            started=started,
        )

    def _check_speaker(self, request: TTSRequest) -> None:
        name, voices = self._capabilities.name, self._capabilities.voices
        voice = request.reference_id
        if voice is not None and "voice" not in self._parameters:
            raise RequestInvalid.of(
                "reference_id", f"{name} has no parameter 'voice', got {voice!r}", type="unsupported"
            )
        if voices and voice is not None and voice not in {preset.id for preset in voices}:
            available = ", ".join(preset.id for preset in voices)
            raise RequestInvalid.of(
                "reference_id", f"unknown voice {voice!r}; available: {available}", type="not_found"
            )
        references = () if voice is not None else request.references or ()
        if references and self._capabilities.ignored("references"):
            message = f"{name} has no parameter 'references' or 'ref_audio' for a recording"
            raise RequestInvalid.of("references", message, type="unsupported")
        single = "references" not in self._parameters
        if single and len(references) > 1:
            raise RequestInvalid.of("references", f"{name} takes one recording, got {len(references)}")
        required = [item for item in _REFERENCES if item in self._parameters and self._parameters[item].required]
        if required and not references:
            raise RequestInvalid.of("references", f"{name} needs a recording ({required[0]}); pass references=PATH")
        if voice is None and not voices and "voice" in self._parameters and self._parameters["voice"].required:
            raise RequestInvalid.of("voice", f"{name} needs a voice; pass voice=NAME")

    def _seed(self, call: Call) -> int | None:
        """Return the seed of a call, else the model's default, else a random one; None if the model has no seed."""
        parameter = self._parameters.get("seed")
        if call.seed is not None or parameter is None:
            return call.seed
        return parameter.default if isinstance(parameter.default, int) else random.SystemRandom().randrange(_MAX_SEED)

    def _arguments(self, call: Call, seed: int | None, stack: ExitStack) -> dict[str, Any]:
        """Return the arguments of the model by name; parameters that are unset keep the model's defaults and are omitted."""
        request = call.request
        values: dict[str, Any] = dict(self._capabilities.knob_values(call))
        references = () if request.reference_id is not None else request.references or ()
        voices = self._capabilities.voices
        if request.reference_id is not None:
            values["voice"] = request.reference_id
        elif "voice" in self._parameters and self._parameters["voice"].required:
            values["voice"] = voices[0].id
        values |= {"model": call.model, "speed": field_value(request, "prosody.speed")}
        values |= {field: field_value(request, field) for field in SYNTHESIS_FIELDS}
        if seed is not None:
            values["seed"] = seed % (_MAX_SEED + 1)  # many programs and libraries accept only 31 or 32 bits
        if references:
            values |= {"references": references, "ref_text": references[0].text}
            if "ref_audio" in self._parameters:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="voicelab-"))
                values["ref_audio"] = _recording(references[0], Path(folder))
        return {name: values[name] for name in self._parameters if name in values}

    def _blocks(
        self, text: str, arguments: dict[str, Any], stop: threading.Event, notes: list[str]
    ) -> Iterator[tuple[Samples, int]]:
        """Call the model and yield its audio. Raises EngineError if the model fails or returns no audio."""
        name = self._capabilities.name
        rate, peak, empty = 0, 0.0, True
        source = self.run(text, arguments, stop)
        try:
            while True:
                with self._slots:  # per block, so that an unread stream does not block others
                    value = next(source, source)
                if value is source:
                    break
                samples, block_rate, note = samples_of(value, name)
                rate = rate or block_rate
                _check_same_rate(name, rate, block_rate)
                notes.extend(item for item in note if item not in notes)
                peak, empty = max(peak, float(np.abs(samples).max(initial=0.0))), empty and not samples.size
                yield samples, rate
        except (VoicelabError, GeneratorExit):
            raise
        except (Exception, SystemExit) as error:  # SystemExit: programs turned into functions call sys.exit()
            message = f"{name} raised {type(error).__name__}" + (f": {error}" if str(error) else "")
            raise EngineError(message) from error
        finally:
            source.close()  # type: ignore[attr-defined]  # a generator
        if empty:
            raise EngineError(f"{name} must return audio, got no samples")
        if peak > 1.0:
            notes.append(f"Samples up to {peak:.2f} were clipped to ±1.")


def _check_same_rate(name: str, rate: int, other: int) -> None:
    if rate != other:
        raise EngineError(f"{name} must return one sample rate, got {rate} and {other} Hz in a stream")


def _unmapped(name: str) -> str:
    """Return the reason why a parameter that has no default and is not mapped by name is invalid."""
    if name in ("text", "sentence", "prompt", "input"):
        return f"the first parameter must be the text, got {name!r} elsewhere; for a class, pass a bound method"
    return f"parameter {name!r} must have a default, or be {', '.join((*_NAMED, *_REFERENCES))} or a field of speak"


def _usable(name: str) -> bool:
    """Return whether a backend parameter may have this name.

    The name must not be that of a field, or of an argument that all backends have.
    """
    try:
        Knob(name, "bool", default=False)
    except ArgumentError:
        return False
    return not is_field(name)


def _recording(reference: ReferenceAudio, folder: Path) -> str:
    """Write a recording as a WAV file and return its path. Raises RequestInvalid if it cannot be read."""
    try:
        samples, rate = read(reference.audio)
    except AudioError as error:
        raise RequestInvalid.of("references", str(error)) from None
    path = folder / "reference.wav"
    Clip(samples, rate).save(path)
    return str(path)


def samples_of(value: object, name: str) -> tuple[Samples, int, tuple[str, ...]]:
    """Convert the return value of a model to samples, rate and notes.

    Accepts (samples, rate) in either order, ``{"audio": samples, "sampling_rate": rate}``, a Clip, the bytes of an audio
    file, or its path. Integers are scaled to ±1. Channels are averaged, with a note for arrays. Raises EngineError.
    """
    if isinstance(value, Clip):
        return value.samples, value.rate, ()
    try:
        if isinstance(value, str | os.PathLike):
            with Path(value).open("rb") as file:
                value = file.read(MAX_BYTES + 1)
        if isinstance(value, bytes | bytearray | memoryview):
            if not len(value):
                raise EngineError(f"{name} must return audio, got an empty file")
            samples, rate = read(bytes(value), foreign=True)
            return samples, rate, ()
    except OSError as error:
        raise EngineError(f"{name} must return readable audio: {error}") from error
    except AudioError as error:
        data = bytes(value) if isinstance(value, bytes | bytearray | memoryview) else b""
        start = shortened(repr(data[:60]), 40)
        raise EngineError(
            f"{name} must return readable audio: {damage_of(data, error)}; it begins with {start}"
        ) from error
    if isinstance(value, Mapping) and {"audio", "sampling_rate"} <= value.keys():
        value = (value["audio"], value["sampling_rate"])
    if not isinstance(value, tuple | list) or len(value) != 2:
        wanted = "(samples, rate), a Clip, the bytes of an audio file or a path"
        raise EngineError(f"{name} must return {wanted}, got {described(value)}")
    samples, rate = value if not np.isscalar(value[0]) else value[::-1]
    rate = rate.item() if hasattr(rate, "item") and np.ndim(rate) == 0 else rate  # of NumPy or PyTorch
    if isinstance(rate, float) and float(rate).is_integer():
        rate = int(rate)
    try:
        checked = check_rate(rate, "a sample rate that")
    except AudioError as error:
        raise EngineError(f"{name} returned {error}") from None
    mono, notes = _mono(samples, name)
    return mono, checked, notes


def _mono(value: Any, name: str) -> tuple[Samples, tuple[str, ...]]:
    """Convert an array or tensor of samples to mono in ±1. Raises EngineError."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    try:
        array = np.squeeze(np.asarray(value))
    except ValueError as error:
        raise EngineError(f"{name} must return samples as one array: {error}") from None
    array = array.reshape(1) if array.ndim == 0 and array.dtype.kind in "iuf" and np.ndim(value) else array
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2):
        raise EngineError(f"{name} must return numbers of shape (n,), got {array.dtype} of shape {array.shape}")
    notes: tuple[str, ...] = ()
    if array.dtype.kind == "u":
        array = array.astype(np.float64) / (np.iinfo(array.dtype).max / 2) - 1.0
    elif array.dtype.kind == "i":
        limit = -float(np.iinfo(array.dtype).min)
        array = array.astype(np.float64) / (limit if array.dtype.itemsize < 8 else 32_768.0)
    if array.ndim == 2:
        axis = int(np.argmin(array.shape))
        if array.shape[axis] > 8:
            raise EngineError(f"{name} must return samples of shape (n,), got shape {array.shape}")
        notes = (f"The {array.shape[axis]} channels were averaged.",)
        array = array.mean(axis=axis)
    samples = np.ascontiguousarray(array, np.float32)
    finite = np.isfinite(samples)
    if not finite.all():
        position = int(np.argmin(finite))
        raise EngineError(f"{name} must return finite samples, got {samples[position]} at sample {position}")
    peak = float(np.abs(samples).max(initial=0.0))
    if peak > _MAX_PEAK:
        raise EngineError(f"{name} must return samples between -1 and 1, got {peak:g}; divide 16-bit values by 32768")
    return samples, notes
