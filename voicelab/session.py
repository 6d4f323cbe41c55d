"""Session: a backend with defaults, and the calls that make it speak. All that experiments and views know of a lab."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from voicelab.backend import Backend, SpeechStream, delete_voice, list_voices
from voicelab.backends.registry import open_backend, split_address
from voicelab.call import Call, Knob, Voice, Voices, completed, is_field, merged_defaults, short_name, voice_id
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import Clip
from voicelab.errors import FieldError, RequestInvalid, shortened, suggestion
from voicelab.schema import MODELS, ReferenceAudio, TTSRequest, VoiceCreate, VoiceModel
from voicelab.storage import Closing

BASE_URL_VARIABLE: Final = "VOICELAB_BASE_URL"
# More voices than this are a table without samples: to make them would take too long.
_SAMPLED: Final = 16


@dataclass(frozen=True, slots=True)
class BackendFactory:
    """Opens a backend by its address, here or in another process. No key is in it: there, the environment has it."""

    address: str = ""
    device: str | None = None

    def __call__(self, api_key: str | None = None) -> Backend:
        """Open the backend. Raises like ``open_backend``."""
        return open_backend(self.address, device=self.device, api_key=api_key)


class Session(Closing):
    """A backend with defaults: calls, streams, clips and voices. A change of defaults is a new session.

    As a context manager it closes its backend at the end. It is safe to use from several threads.
    """

    __slots__ = ("_backend", "_defaults", "_factory", "_seen_voices")

    def __init__(self, backend: Backend, *, factory: BackendFactory | None = None, **defaults: object) -> None:
        """Put ``defaults`` (fields of TTSRequest, ``voice``, ``seed``, ``model``, knobs, …) before ``backend``.

        ``factory`` opens the same backend in another process. Raises RequestInvalid when a default
        is unknown or out of its bounds.
        """
        self._backend = backend
        self._factory = factory
        self._seen_voices: dict[str, VoiceModel] = {}
        knobs = self._knobs_for(defaults)
        self._defaults: Mapping[str, object] = MappingProxyType(merged_defaults({}, recorded(defaults), knobs))
        if "seed" in self._defaults or knobs or self._defaults.get("model", MODELS[0]) not in MODELS:
            # A service is not asked what it is for what every service takes.
            check_call(Call.of("defaults", self._defaults, knobs), backend.capabilities)

    @classmethod
    def open(
        cls,
        backend: str | None = None,
        *,
        api_key: str | None = None,
        device: str | None = None,
        wrap: Callable[[Backend], Backend] | None = None,
        **defaults: object,
    ) -> Self:
        """Open a backend by its name and address, as ``connect`` takes it; ``wrap`` may put another before it.

        Raises RequestInvalid for a default or an argument that does not fit, and what opening the backend raises.
        """
        address = backend or os.environ.get(BASE_URL_VARIABLE) or ""
        # Before the backend starts: a bad default should not cost loading weights. Knobs are judged when it is there.
        merged_defaults({}, recorded({name: value for name, value in defaults.items() if is_field(name)}))
        name, _ = split_address(address)
        if name == "local" and api_key is not None:
            message = "the embedded voice takes no key; give the service's address too"
            raise RequestInvalid.of("api_key", message, in_="header")
        if name == "service" and device is not None:
            message = "only a backend of this machine has a device; a service chooses its own"
            raise RequestInvalid.of("device", message, in_="query")
        factory = BackendFactory(address, device)
        opened = factory(api_key)
        try:
            return cls(wrap(opened) if wrap else opened, factory=factory, **defaults)
        except BaseException:
            opened.close()
            raise

    @property
    def backend(self) -> Backend:
        """Whatever answers the calls."""
        return self._backend

    @property
    def factory(self) -> BackendFactory | None:
        """Opens the same backend in another process; None where nothing can."""
        return self._factory

    @property
    def capabilities(self) -> Capabilities:
        """What the backend is and can do: models, device, seed support, voices, limits."""
        return self._backend.capabilities

    @property
    def voices(self) -> Voices:
        """The voices that the backend brings with it, a table; ``lab.voices.marlow`` is what ``voice`` takes, or its id."""
        voices = Voices(self.capabilities.voices)
        if self.capabilities.prices == () and len(voices) <= _SAMPLED:
            voices.sample = lambda voice: self.speak("Rice is often served.", voice=voice, seed=1)
        return voices

    @property
    def defaults(self) -> Mapping[str, object]:
        """What every call starts from, by the schema's names and ``model`` and ``seed``; read-only."""
        return self._defaults

    def with_defaults(self, **fields: object) -> Self:
        """Return one on the same backend with ``fields`` added to the defaults.

        Takes what ``speak`` takes. None takes a default away. Raises RequestInvalid.
        """
        merged = merged_defaults(self._defaults, recorded(fields), self._knobs_for({**self._defaults, **fields}))
        session = type(self)(self._backend, factory=self._factory, **merged)
        session._seen_voices = self._seen_voices  # noqa: SLF001 (its own kind)
        return session

    @completed
    def call(self, text: str, **fields: object) -> Call:
        """Return the call that ``speak`` would make, without speaking; takes what ``speak`` takes. Raises RequestInvalid."""
        with self._named_as_typed(fields):
            return Call.of(text, self._defaults, self._knobs_for({**self._defaults, **fields}), **recorded(fields))

    def _knobs_for(self, fields: Iterable[str]) -> tuple[Knob, ...]:
        """The backend's own knobs where one may be meant; a service need not be asked for fields that all have."""
        return () if all(map(is_field, fields)) else self.capabilities.knobs

    def request(self, text: str, **fields: object) -> TTSRequest:
        """Return the request of the call that ``speak`` would make. Raises RequestInvalid."""
        return self.call(text, **fields).request

    @completed
    def stream(
        self,
        text: str,
        *,
        voice: Voice | None = None,
        seed: int | None = None,
        model: str | None = None,
        **fields: object,
    ) -> SpeechStream:
        """Begin to say ``text`` and return its audio as it arrives. Takes what ``speak`` takes."""
        call = self.call(text, voice=voice, seed=seed, model=model, **fields)
        with self._named_as_typed({**fields, "voice": voice}):
            return self._backend.synthesize(check_call(call, self.capabilities))

    @completed
    def speak(
        self,
        text: str,
        *,
        voice: Voice | None = None,
        seed: int | None = None,
        model: str | None = None,
        **fields: object,
    ) -> Clip:
        """Say ``text`` and return the Clip.

        Args:
            text: what to say.
            voice: id of a preset or stored voice, a preset of ``lab.voices``, or a VoiceModel; the
                default speaker when not given. To clone from recordings without storing a voice, give ``references``
                instead: a path, a Clip, ``ReferenceAudio(audio=…, text=…)``, or several of them.
            seed: a whole number from 0 to 2**63 - 1. With the same seed a backend whose capabilities say
                "exact" repeats the same samples. A new one every time when not given.
            model: one of ``lab.capabilities.models``; the session's own when not given.
            **fields: the fields of TTSRequest (temperature, top_p, latency, …), ``speed`` and ``volume`` for those of
                its prosody, and knobs of the backend's own (``lab.capabilities.knobs``). The fields' defaults are the
                interface's, except ``format``: a session asks for wav, which loses nothing.

        Raises:
            RequestInvalid: a field is unknown or out of its bounds, or the backend takes no seed.
            ServiceError: the service answered with an error, or not at all.
            EngineError: the local engine failed.
        """
        with self._named_as_typed({**fields, "voice": voice}):
            return self.stream(text, voice=voice, seed=seed, model=model, **fields).clip()

    def create_voice(
        self,
        title: str,
        voices: Iterable[str | Path | bytes | Clip] | str | Path | bytes | Clip,
        *,
        texts: Iterable[str] | str = (),
        **fields: object,
    ) -> VoiceModel:
        """Make a voice model from recordings and return its record, usable as ``voice`` at once.

        Args:
            title: its name.
            voices: one or more recordings: paths, the bytes of files, or Clips.
            texts: what is said in each, in the same order; recognised when left out.
            **fields: the other fields of VoiceCreate. ``visibility`` is private when not given: the
                interface's own default, public, needs a cover image.

        Raises RequestInvalid, for a path that cannot be read too, ServiceError or EngineError.
        """
        several = [voices] if isinstance(voices, str | Path | bytes | Clip) else list(voices)
        spoken = (texts,) if isinstance(texts, str) else tuple(texts)
        fields.setdefault("visibility", "private")
        files = tuple(_recording(item, "voices") for item in several)
        voice = self._backend.create_voice(VoiceCreate.build(title=title, voices=files, texts=spoken, **fields))
        self._seen_voices[voice.id] = voice
        return voice

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record of a stored voice. Raises NotFound when it is unknown."""
        voice = self._backend.get_voice(id)
        self._seen_voices[voice.id] = voice
        return voice

    def stored_voices(self) -> tuple[VoiceModel, ...]:
        """Return the records of your stored voices, the newest first; ``voices`` are those the backend brings with it.

        The embedded voice lists all that were made on this machine. The interface has no such call for a service: of
        one, they are those that this session made or fetched. Raises StoreError.
        """
        voices = {**self._seen_voices, **{voice.id: voice for voice in list_voices(self._backend)}}
        return tuple(sorted(voices.values(), key=lambda voice: voice.created_at, reverse=True))

    def delete_voice(self, voice: VoiceModel | str) -> None:
        """Forget a stored voice and its recordings, given by its record or its id.

        Raises NotFound when you have none of this id, StoreError when it cannot be deleted, and RequestInvalid for a
        service: the interface has no such call.
        """
        name = voice_id(voice)
        delete_voice(self._backend, name)
        self._seen_voices.pop(name, None)

    def close(self) -> None:
        """Let go of the backend's connections, threads and memory. May be called twice."""
        self._backend.close()

    @contextmanager
    def _named_as_typed(self, fields: Mapping[str, object]) -> Iterator[None]:
        """Let an error call a field as the caller did, and suggest a voice for one that there is not."""
        try:
            yield
        except RequestInvalid as error:
            error.change(lambda item: self._as_typed(item, fields))
            raise

    def _as_typed(self, item: FieldError, fields: Mapping[str, object]) -> FieldError:
        short = short_name(item.field)
        msg = item.msg
        if item.field == "reference_id" and "did you mean" not in msg:
            typed = str(fields.get("voice") or fields.get("reference_id") or "")
            msg += suggestion(typed.casefold(), [voice.id for voice in self.voices])
        if fields.get(short) is None or short == item.field:
            return replace(item, msg=msg)
        return replace(item, loc=(item.loc[0], short), msg=msg)

    def __repr__(self) -> str:
        capabilities = self.capabilities
        # References are audio: their names say enough.
        defaults = "".join(f", {name}={shortened(repr(value), 40)}" for name, value in self._defaults.items())
        backend = f"{capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices"
        return f"{type(self).__name__}({backend}{defaults})"


def recorded(fields: Mapping[str, object]) -> dict[str, object]:
    """Return fields with ``references`` as a request has them, of paths and Clips; a Clip brings what its take said.

    A list of lists, or a mapping from labels, stays one: an axis of a sweep. Raises RequestInvalid for a path that cannot
    be read.
    """
    return {name: _references(value) if name == "references" else value for name, value in fields.items()}


def _references(value: Any) -> Any:
    if isinstance(value, str | Path | bytes | Clip):
        return (_reference(value),)
    if isinstance(value, Mapping):
        return value if "audio" in value else {label: _references(item) for label, item in value.items()}
    return [*map(_reference, value)] if isinstance(value, list | tuple) else value


def _reference(item: Any) -> Any:
    if isinstance(item, str | Path | bytes | Clip):
        take = item.take if isinstance(item, Clip) else None
        return ReferenceAudio.build(audio=_recording(item, "references"), text=take.call.said if take else "")
    return _references(item)


def _recording(item: str | Path | bytes | Clip, field: str) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, Clip):
        return item.to_bytes("wav")
    try:
        return Path(item).read_bytes()
    except OSError as error:
        raise RequestInvalid.of(field, f"{item} cannot be read: {error.strerror or error}") from error
