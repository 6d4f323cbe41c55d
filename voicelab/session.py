"""Session, a backend with defaults: the part of a Lab that sweeps and views depend on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TypedDict, Unpack

from voicelab.backend import Backend, SpeechStream, delete_voice, list_voices
from voicelab.backends.function import FunctionBackend, FunctionFactory
from voicelab.backends.registry import check_accepted, open_backend, split_address
from voicelab.call import (
    Call,
    Knob,
    Voice,
    VoicePreset,
    Voices,
    completed,
    is_field,
    merged_defaults,
    short_name,
    voice_id,
)
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, FieldError, RequestInvalid, shortened, shown_value, suggestion
from voicelab.guesses import Guided
from voicelab.lifecycle import Closeable
from voicelab.schema import (
    MODELS,
    AudioFormat,
    Latency,
    ProsodyControl,
    ReferenceAudio,
    TTSRequest,
    VoiceCreate,
    VoiceModel,
)

BASE_URL_VARIABLE: Final = "VOICELAB_BASE_URL"
# Larger tables of voices have no samples: synthesis would take too long.
_MAX_SAMPLED_VOICES: Final = 16

Recording = str | Path | bytes | Clip
"""Path or content of an audio file, or a Clip."""
Reference = Recording | ReferenceAudio | Mapping[str, object]
"""Voice sample for ``references``."""


class SpeechFields(TypedDict, total=False):
    """Keywords of ``speak`` and their types, for type checkers; ``help(lab.speak)`` describes them. None means unset.

    Type checkers do not know the parameters of a backend (knobs): they accept ``extra={"noise_scale": 0.3}``.
    """

    voice: Voice | None
    seed: int | None
    model: str | None
    temperature: float | None
    top_p: float | None
    references: Reference | Sequence[Reference] | None
    reference_id: str | None
    prosody: ProsodyControl | Mapping[str, float] | None
    chunk_length: int | None
    normalize: bool | None
    format: AudioFormat | None
    sample_rate: int | None
    mp3_bitrate: Literal[64, 128, 192] | None
    opus_bitrate: Literal[-1000, 24, 32, 48, 64] | None
    latency: Latency | None
    max_new_tokens: int | None
    repetition_penalty: float | None
    min_chunk_length: int | None
    condition_on_previous_chunks: bool | None
    early_stop_threshold: float | None
    speed: float | None
    volume: float | None
    extra: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class BackendFactory:
    """Picklable function that opens a backend by its address. The API key is read from the environment, not stored."""

    address: str = ""
    device: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, api_key: str | None = None) -> Backend:
        """Open the backend. Raises the errors of ``open_backend``."""
        return open_backend(self.address, device=self.device, api_key=api_key, **dict(self.options))


def _hashable(value: Any) -> Any:
    """Convert lists and mappings in options to tuples, because factories must be hashable."""
    if isinstance(value, Mapping):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


class Session(Closeable, metaclass=Guided):
    """Backend with defaults. A session is immutable, thread-safe, and a context manager that closes the backend."""

    __slots__ = ("_backend", "_defaults", "_factory", "_seen_voices")

    def __init__(self, backend: Backend, *, factory: Callable[[], Backend] | None = None, **defaults: object) -> None:
        """Create a session.

        Args:
            backend: the backend.
            factory: opens the same backend in another process.
            **defaults: defaults of ``speak``.

        Raises RequestInvalid for unknown and invalid defaults.
        """
        if not hasattr(type(backend), "synthesize"):
            message = f"must be a Backend, got {type(backend).__name__}; use vl.connect(…) for a function or an address"
            raise ArgumentError.of("backend", message)
        self._backend = backend
        self._factory = factory
        self._seen_voices: dict[str, VoiceModel] = {}
        knobs = self._knobs_for(defaults)
        self._defaults: Mapping[str, object] = MappingProxyType(merged_defaults({}, recorded(defaults), knobs))
        if "seed" in self._defaults or knobs or self._defaults.get("model", MODELS[0]) not in MODELS:
            # All other defaults are valid for every service, so its capabilities need not be fetched.
            check_call(Call.of("defaults", self._defaults, knobs), backend.capabilities)

    @classmethod
    def open(
        cls,
        backend: str | Backend | Callable[..., object] | None = None,
        *,
        api_key: str | None = None,
        device: str | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        wrap: Callable[[Backend], Backend] | None = None,
        **defaults: Unpack[SpeechFields],
    ) -> Self:
        """Open a backend as ``connect`` does, and wrap it with ``wrap``.

        ``options`` are passed to the function that opens the backend; None means unset. Raises RequestInvalid for an invalid
        default or argument, and the errors of ``open_backend``.
        """
        options = {name: _hashable(value) for name, value in options.items() if value is not None}
        if backend is not None and not isinstance(backend, str):
            return cls._of_object(backend, {"api_key": api_key, "device": device}, options, wrap, defaults)
        address = backend or os.environ.get(BASE_URL_VARIABLE) or ""
        # Validate fields before weights are loaded; knobs can be validated only once the backend is open.
        merged_defaults({}, recorded({name: value for name, value in defaults.items() if is_field(name)}))
        name, _ = split_address(address)
        if name == "local" and api_key is not None:
            message = "must be None for the embedded voice; pass the address of a service with its key"
            raise RequestInvalid.of("api_key", message, in_="header")
        if name == "service" and device is not None:
            message = f"must be None for a service, which chooses its own device, got {shown_value(device)}"
            raise RequestInvalid.of("device", message, in_="query")
        factory = BackendFactory(address, device, tuple(options.items()))
        return cls._wrapped(factory(api_key), factory, wrap, defaults)

    @classmethod
    def _of_object(
        cls,
        backend: Backend | Callable[..., object],
        unset: Mapping[str, object],
        options: Mapping[str, Any],
        wrap: Callable[[Backend], Backend] | None,
        defaults: Mapping[str, object],
    ) -> Self:
        is_backend = hasattr(type(backend), "synthesize")
        if not (is_backend or callable(backend)):
            message = f"must be an address, a function or a Backend, got {type(backend).__name__}"
            raise RequestInvalid.of("backend", message, in_="query")
        for name, value in {**unset, **(options if is_backend else {})}.items():
            if value is not None:
                raise RequestInvalid.of(name, "must be None with a function or a Backend", in_="query")
        if is_backend:
            return cls._wrapped(backend, None, wrap, defaults)  # type: ignore[arg-type]
        check_accepted(options, FunctionBackend, "a function")
        factory = FunctionFactory(backend, tuple(options.items()))  # type: ignore[arg-type]
        return cls._wrapped(factory(), factory, wrap, defaults)

    @classmethod
    def _wrapped(
        cls,
        opened: Backend,
        factory: Callable[[], Backend] | None,
        wrap: Callable[[Backend], Backend] | None,
        defaults: Mapping[str, object],
    ) -> Self:
        own: Mapping[str, Any] = getattr(opened, "defaults", {})
        try:
            session = cls(wrap(opened) if wrap else opened, factory=factory, **(own or defaults))
            return session.with_defaults(**defaults) if own and defaults else session  # type: ignore[arg-type]
        except BaseException:
            opened.close()
            raise

    @property
    def backend(self) -> Backend:
        """Backend of the session."""
        return self._backend

    @property
    def factory(self) -> Callable[[], Backend] | None:
        """Function that opens the same backend in another process; None if unknown."""
        return self._factory

    @property
    def capabilities(self) -> Capabilities:
        """Models, device, seed support, voices and limits of the backend."""
        return self._backend.capabilities

    @property
    def voices(self) -> Voices:
        """Built-in voices of the backend, as a table; ``lab.voices.marlow`` is a value of ``voice``.

        If a service has no built-in voices, the table lists the caller's stored voices, provided that the service lists them.
        """
        own = () if self.capabilities.voices else list_voices(self._backend)
        voices = Voices(
            (*self.capabilities.voices, *(VoicePreset(item.id, item.title, item.description) for item in own))
        )
        if self.capabilities.prices == () and len(voices) <= _MAX_SAMPLED_VOICES:
            voices.sample = lambda voice: self.speak("Rice is often served.", voice=voice, seed=1)
        return voices

    @property
    def defaults(self) -> Mapping[str, object]:
        """Read-only defaults of every call, keyed by field name."""
        return self._defaults

    @completed
    def with_defaults(self, **fields: Unpack[SpeechFields]) -> Self:
        """Create a session on the same backend with additional defaults of ``speak``; None removes a default.

        Raises RequestInvalid.
        """
        fields = self._with_own_parameters(fields)
        merged = merged_defaults(self._defaults, recorded(fields), self._knobs_for({**self._defaults, **fields}))
        session = type(self)(self._backend, factory=self._factory, **merged)
        session._seen_voices = self._seen_voices  # noqa: SLF001
        return session

    @completed
    def call(self, text: str, **fields: Unpack[SpeechFields]) -> Call:
        """Create the Call that ``speak`` synthesizes for the same arguments. Raises RequestInvalid."""
        if isinstance(text, list | tuple | Mapping):
            message = f"must be one string, got {type(text).__name__}; use lab.sweep(texts) for several"
            raise RequestInvalid.of("text", message)
        if fields.get("voice", "") is None and self.capabilities.voice_required:
            fields["extra"] = {**(fields.get("extra") or {}), "voice": None}
        fields = self._with_own_parameters(fields)
        with self._named_as_typed(fields):
            return Call.of(text, self._defaults, self._knobs_for({**self._defaults, **fields}), **recorded(fields))

    def _with_own_parameters(self, fields: SpeechFields) -> SpeechFields:
        """Move backend parameters from ``extra`` to keywords, unless a service itself validates ``extra``."""
        if not fields.get("extra") or self.capabilities.open_ended:
            return fields
        moved: Any = without_extra(fields, {knob.name for knob in self.capabilities.knobs})
        return moved  # type: ignore[no-any-return]

    def _knobs_for(self, fields: Iterable[str]) -> tuple[Knob, ...]:
        # Fetches capabilities only for a field that some backends lack.
        return () if all(map(is_field, fields)) else self.capabilities.knobs

    def request(self, text: str, **fields: Unpack[SpeechFields]) -> TTSRequest:
        """Create the request that ``speak`` synthesizes for the same arguments. Raises RequestInvalid."""
        return self.call(text, **fields).request

    @completed
    def stream(self, text: str, **fields: Unpack[SpeechFields]) -> SpeechStream:
        """Start synthesis and return the audio as it arrives. Arguments and errors are those of ``speak``."""
        call = self.call(text, **fields)
        with self._named_as_typed(fields):
            return self._backend.synthesize(check_call(call, self.capabilities))

    @completed
    def speak(self, text: str, **fields: Unpack[SpeechFields]) -> Clip:
        """Synthesize a text and return the Clip.

        Args:
            text: request text, which may contain control tags.
            **fields: fields of the request, listed below, and knobs of the backend (``lab.capabilities.knobs``). Unset
                fields take the lab's defaults. ``references`` clones a voice without storing it: a path, a Clip,
                ``ReferenceAudio(audio=…, text=…)``, or a list of these.

        Raises:
            RequestInvalid: a field is unknown or invalid, or the backend does not support it.
            ServiceError: the service responded with an error or is unreachable.
            EngineError: the local engine failed.
        """
        with self._named_as_typed(fields):
            return self.stream(text, **fields).clip()

    def create_voice(
        self, title: str, voices: Iterable[Recording] | Recording, *, texts: Iterable[str] | str = (), **fields: object
    ) -> VoiceModel:
        """Create a voice model from recordings and return its record, which ``voice`` accepts.

        Args:
            title: title of the voice.
            voices: a recording, or several.
            texts: transcripts of the recordings. Default: the spoken texts of the takes if all recordings are Clips of takes,
                otherwise they are recognized.
            **fields: other fields of VoiceCreate. The default ``visibility`` is private, since public requires a cover
                image.

        Raises RequestInvalid, also for an unreadable file, ServiceError or EngineError.
        """
        recordings = [voices] if isinstance(voices, str | Path | bytes | Clip) else list(voices)
        transcripts = (texts,) if isinstance(texts, str) else tuple(texts)
        if not transcripts:
            spoken = [item.spoken_text if isinstance(item, Clip) else None for item in recordings]
            transcripts = tuple(filter(None, spoken)) if all(spoken) else ()
        fields.setdefault("visibility", "private")
        files = tuple(_recording(item, "voices") for item in recordings)
        voice = self._backend.create_voice(VoiceCreate.build(title=title, voices=files, texts=transcripts, **fields))
        self._seen_voices[voice.id] = voice
        return voice

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record of a stored voice. Raises NotFound."""
        voice = self._backend.get_voice(id)
        self._seen_voices[voice.id] = voice
        return voice

    def stored_voices(self) -> tuple[VoiceModel, ...]:
        """Return the records of your stored voices, newest first; ``voices`` lists the built-in voices.

        For the embedded voice, these are all voices stored on this machine; for a service, the voices that it lists and those
        that this session created or fetched. Raises StoreError, ServiceError.
        """
        voices = {**self._seen_voices, **{voice.id: voice for voice in list_voices(self._backend)}}
        return tuple(sorted(voices.values(), key=lambda voice: voice.created_at, reverse=True))

    def delete_voice(self, voice: VoiceModel | str) -> None:
        """Delete a stored voice and its recordings.

        Raises NotFound for an unknown id, StoreError if it cannot be deleted, and RequestInvalid for a backend that cannot
        delete voices, such as a service.
        """
        identifier = voice_id(voice)
        delete_voice(self._backend, identifier)
        self._seen_voices.pop(identifier, None)

    def close(self) -> None:
        """Release the backend's connections, threads and memory; repeated calls have no effect."""
        self._backend.close()

    @contextmanager
    def _named_as_typed(self, fields: Mapping[str, object]) -> Iterator[None]:
        """In errors of the block, name fields by the caller's keywords, and suggest a voice for an unknown voice."""
        try:
            yield
        except RequestInvalid as error:
            error.change(lambda item: self._as_typed(item, fields))
            raise

    def _as_typed(self, item: FieldError, fields: Mapping[str, object]) -> FieldError:
        short, msg = short_name(item.field), item.msg
        if msg.startswith("unknown field"):
            msg = getattr(self.backend, "unsettable", {}).get(item.field, msg)
        if item.field == "reference_id" and "did you mean" not in msg:
            typed = str(fields.get("voice") or fields.get("reference_id") or "")
            named = [voice.id for voice in self._seen_voices.values() if voice.title == typed]
            presets = [voice.id for voice in self.capabilities.voices]
            msg += f"; the voice {typed!r} has the id {named[0]!r}" if named else suggestion(typed, presets)
        # "extra=": nested calls name the fields of the same error.
        complete = "did you mean" in msg or "extra=" in msg
        if msg.startswith("unknown field") and not complete and self.capabilities.open_ended:
            msg += f"; extra={{{item.field!r}: …}} sends it unchecked"
        if fields.get(short) is None or short == item.field:
            return replace(item, msg=msg)
        return replace(item, loc=(item.loc[0], short), msg=msg)

    def __repr__(self) -> str:
        capabilities = self.capabilities
        defaults = "".join(f", {name}={shortened(repr(value), 40)}" for name, value in self._defaults.items())
        backend = f"{capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices"
        return f"{type(self).__name__}({backend}{defaults})"


def without_extra(fields: Mapping[str, object], names: set[str]) -> Mapping[str, object]:
    """Move the items of ``extra`` with these names to keywords. Raises RequestInvalid if a keyword of the name exists."""
    extra = fields.get("extra")
    if not isinstance(extra, Mapping):
        return fields
    for name in names & fields.keys() & extra.keys():
        raise RequestInvalid.of(name, f"pass {name} or extra[{name!r}], not both")
    items = {name: value for name, value in extra.items() if name in names}
    items["extra"] = {name: value for name, value in extra.items() if name not in names} or None
    # In a sweep, the order of keywords is that of the axes.
    return {
        key: value for name in fields for key, value in (items if name == "extra" else {name: fields[name]}).items()
    }


def recorded(fields: Mapping[str, object]) -> dict[str, object]:
    """Replace paths and Clips in ``references`` by ReferenceAudio; the transcript of a Clip is the text of its take.

    Lists of lists and mappings from labels (axes of a sweep) keep their structure. Raises RequestInvalid for an
    unreadable file.
    """
    return {name: _references(value) if name == "references" else value for name, value in fields.items()}


def _references(value: Any) -> Any:
    if isinstance(value, str | Path | bytes | Clip | ReferenceAudio):
        return (_reference(value),)
    if isinstance(value, Mapping):
        return value if "audio" in value else {label: _references(item) for label, item in value.items()}
    return [*map(_reference, value)] if isinstance(value, list | tuple) else value


def _reference(item: Any) -> Any:
    if isinstance(item, str | Path | bytes | Clip):
        text = item.spoken_text if isinstance(item, Clip) else None
        return ReferenceAudio.build(audio=_recording(item, "references"), text=text or "")
    return item if isinstance(item, ReferenceAudio) else _references(item)


def _recording(item: Recording, field: str) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, Clip):
        return item.to_bytes("wav")
    try:
        return Path(item).read_bytes()
    except OSError as error:
        raise RequestInvalid.of(field, f"{item} cannot be read: {error.strerror or error}") from error
