"""connect() and Lab: the one line that says who speaks, and the calls that make it speak."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from voicelab.audio.clip import Clip
from voicelab.backend import Backend, Capabilities, SpeechStream, check_call, delete_voice, list_voices
from voicelab.call import Call, Knob, Voice, Voices, completed, is_field, merged_defaults, short_name, voice_id
from voicelab.display import completion_view, explore_panel_view, knob_panel_view, open_view, voice_panel_view
from voicelab.errors import FieldError, RequestInvalid, suggestion
from voicelab.registry import open_backend, split_address
from voicelab.schema import MODELS, TTSRequest, VoiceCreate, VoiceModel

if TYPE_CHECKING:
    from voicelab.experiments.cache import Cache
    from voicelab.experiments.knobs import KnobCheck
    from voicelab.experiments.sweeps.sweep import Sweep
    from voicelab.views.explore_panel import ExplorePanel
    from voicelab.views.knob_panel import KnobPanel
    from voicelab.views.voice_panel import VoicePanel

__all__ = ["BackendFactory", "Lab", "Voice", "connect"]


BASE_URL_VARIABLE: Final = "VOICELAB_BASE_URL"
# More voices than this are a table without samples: to make them would take too long.
_SAMPLED: Final = 16


def connect(
    backend: str | None = None,
    *,
    api_key: str | None = None,
    device: str | None = None,
    model: str | None = None,
    cache: Cache | str | Path | bool | None = None,
    record: str | Path | None = None,
    replay: str | Path | None = None,
    **defaults: object,
) -> Lab:
    """Return a Lab that speaks with the embedded voice, with the service at an address, or with any backend by its name.

    Args:
        backend: ``"https://voice.example"`` for a service; ``"NAME:"`` or ``"NAME:ADDRESS"`` for what ``vl.backends()``
            lists: ``"local:"`` is the embedded voice, ``"local:PATH"`` another checkpoint. The environment variable
            VOICELAB_BASE_URL when not given; with neither, the embedded voice speaks, offline.
        api_key: the service's key; from the environment when not given (VOICELAB_API_KEY for a service of the interface).
        device: where a backend of this machine runs ("cpu", "cuda"); chosen by itself when not given.
        model: synthesis model of every call, by the backend's own names; its default when not given.
        cache: keep speech that could only come out the same again, and do not make it twice: with a seed,
            where seeds are exact, and at temperature 0. True is the cache in voicelab's data folder; a
            folder or a Cache another one; without it every call is made anew.
        record: a folder in which every call and its answer are kept.
        replay: such a folder; its answers are played back with their own timing, and nothing else speaks.
        **defaults: fields of TTSRequest, or ``voice``, ``seed``, ``speed`` or ``volume``, or knobs of the backend's own,
            that every call starts from.

    Raises:
        RequestInvalid: a default is no field or out of its bounds, or an argument does not fit the backend.
        MissingExtra: the backend's dependencies are not installed.
        EngineError: a package offers the backend, and it does not work.
        StoreError: nothing can be recorded in the folder, or there is no recording in it.
    """
    if replay is not None:
        _check_replay(backend=backend, api_key=api_key, device=device, cache=cache, record=record)
        backend = f"replay:{replay}"
    address = backend or os.environ.get(BASE_URL_VARIABLE) or ""
    if model is not None:
        defaults["model"] = model
    # Before the backend starts: a bad default should not cost the time to load weights. Knobs are judged when it is there.
    merged_defaults({}, {name: value for name, value in defaults.items() if is_field(name)})
    name, _ = split_address(address)
    if name == "local" and api_key is not None:
        raise RequestInvalid.of(
            "api_key", "the embedded voice takes no key; give the service's address too", in_="header"
        )
    if name == "service" and device is not None:
        raise RequestInvalid.of(
            "device", "only a backend of this machine has a device; a service chooses its own", in_="query"
        )
    factory = BackendFactory(address, device)
    _complete_values()
    opened = factory(api_key)
    try:
        return Lab(_wrap_backend(opened, cache, record), factory=factory, **defaults)
    except BaseException:
        opened.close()
        raise


class Lab:
    """A backend with defaults: what ``connect()`` returns. A change of defaults is a new Lab.

    As a context manager it closes its backend at the end. A Lab is safe to use from several threads.
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
        self._defaults: Mapping[str, object] = MappingProxyType(merged_defaults({}, defaults, knobs))
        if "seed" in self._defaults or knobs or self._defaults.get("model", MODELS[0]) not in MODELS:
            # A service is not asked what it is for what every service takes.
            check_call(Call.of("defaults", self._defaults, knobs), backend.capabilities)

    @property
    def backend(self) -> Backend:
        """Whatever answers the calls."""
        return self._backend

    @property
    def factory(self) -> BackendFactory | None:
        """Opens the same backend in another process; None when ``connect`` did not make this lab."""
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

    def with_defaults(self, **fields: object) -> Lab:
        """Return a Lab on the same backend with ``fields`` added to the defaults.

        Takes what ``speak`` takes. None takes a default away. Raises RequestInvalid.
        """
        merged = merged_defaults(self._defaults, fields, self._knobs_for({**self._defaults, **fields}))
        lab = Lab(self._backend, factory=self._factory, **merged)
        lab._seen_voices = self._seen_voices
        return lab

    @completed
    def call(self, text: str, **fields: object) -> Call:
        """Return the call that ``speak`` would make, without speaking; takes what ``speak`` takes. Raises RequestInvalid."""
        with self._named_as_typed(fields):
            return Call.of(text, self._defaults, self._knobs_for({**self._defaults, **fields}), **fields)

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
                default speaker when not given. To clone from a recording without storing a voice, give
                ``references=[ReferenceAudio(audio=…, text=…)]`` instead.
            seed: a whole number from 0 to 2**63 - 1. With the same seed a backend whose capabilities say
                "exact" repeats the same samples. A new one every time when not given.
            model: one of ``lab.capabilities.models``; the Lab's own when not given.
            **fields: the fields of TTSRequest (temperature, top_p, latency, …), ``speed`` and ``volume`` for those of
                its prosody, and knobs of the backend's own (``lab.capabilities.knobs``). The fields' defaults are the
                interface's, except ``format``: a Lab asks for wav, which loses nothing.

        Raises:
            RequestInvalid: a field is unknown or out of its bounds, or the backend takes no seed.
            ServiceError: the service answered with an error, or not at all.
            EngineError: the local engine failed.
        """
        with self._named_as_typed({**fields, "voice": voice}):
            return self.stream(text, voice=voice, seed=seed, model=model, **fields).clip()

    @completed
    def sweep(
        self,
        text: str | Sequence[str] | Mapping[str, str],
        *,
        repeats: int = 1,
        seed: int | Sequence[int] = 0,
        lab: Mapping[str, Lab] = MappingProxyType({}),
        cache: Cache | str | Path | None = None,
        **fields: object,
    ) -> Sweep:
        """Return a sweep: ``lab.sweep(text, temperature="0..1 step 0.5", latency=["low", "normal"]).run()``.

        Args:
            text: what to say; a list of texts is an axis.
            repeats: takes of each cell, for telling a parameter's effect from the voice's own variety.
            seed: what the seeds of the repeats are drawn from, the same in every cell; or a list, an axis of seeds.
            lab: labs by name, an axis ``backend``: each speaks with its own voice and defaults, in the place of this one.
            cache: where takes are kept, a Cache or a folder; the cache in voicelab's data folder when not given.
            **fields: what ``speak`` takes, knobs of the backend's own too. A list, a mapping from labels to values, or a
                range such as ``"0.2..1.0 step 0.2"`` makes one an axis; ``speed`` and ``volume`` are prosody's.

        Nothing runs yet. Raises RequestInvalid: whatever is wrong with a value or a combination, a voice too that the
        backend has not got.
        """
        from voicelab.experiments.sweeps.sweep import sweep_of

        for name, one in lab.items():
            if not isinstance(one, Lab):
                raise RequestInvalid.of("lab", f"{name!r} is a {type(one).__name__}, not a Lab")
        with self._named_as_typed(fields):
            return sweep_of(self, text, repeats=repeats, seed=seed, labs=lab, cache=cache, fields=fields)

    def check_knobs(self, *names: str, repeats: int = 3, seed: int = 0) -> KnobCheck:
        """Turn every field and knob of the backend, or those of ``names``, and say of each whether it does anything.

        Some short texts are said ``repeats`` times with each value: see ``voicelab.experiments.knobs.check_knobs``.
        """
        from voicelab.experiments.knobs import check_knobs

        return check_knobs(self._backend, self.call("knobs"), names or None, repeats=repeats, seed=seed)

    def knob_panel(self, *names: str, repeats: int = 3, seed: int = 0) -> KnobPanel:
        """Return a panel that does what ``check_knobs`` does, with progress; show it as a cell's last value."""
        panel: KnobPanel = open_view(knob_panel_view, "a panel")(self, names, repeats=repeats, seed=seed)
        return panel

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

        Raises RequestInvalid, OSError for a path that cannot be read, ServiceError or EngineError.
        """
        several = [voices] if isinstance(voices, str | Path | bytes | Clip) else list(voices)
        spoken = (texts,) if isinstance(texts, str) else tuple(texts)
        fields.setdefault("visibility", "private")
        files = tuple(_recording(item) for item in several)
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
        one, they are those that this lab made or fetched. Raises StoreError.
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

    def panel(self) -> ExplorePanel:
        """Return a panel to type a text, turn the main knobs and listen; show it as a cell's last value."""
        panel: ExplorePanel = open_view(explore_panel_view, "a panel")(self, compact=True)
        return panel

    def explore(self, text: str = "The birch canoe slid on the smooth planks.") -> ExplorePanel:
        """Return a panel with a control for every field: letting go of one says ``text`` again; all takes are kept.

        Show it as a cell's last value. Raises RequestInvalid for a text that cannot be said.
        """
        panel: ExplorePanel = open_view(explore_panel_view, "a panel")(self, text)
        return panel

    def voice_panel(self, *recordings: Clip | str | Path) -> VoicePanel:
        """Return a panel to make voices of files, of the microphone or of clips, and to try those there are.

        ``recordings`` are in it from the beginning. Show it as a cell's last value. Raises OSError for a path that
        cannot be read.
        """
        panel: VoicePanel = open_view(voice_panel_view, "a panel")(self, recordings)
        return panel

    def close(self) -> None:
        """Let go of the backend's connections, threads and memory. May be called twice."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        defaults = "".join(f", {name}={_short(value)}" for name, value in self._defaults.items())
        return f"Lab({capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices{defaults})"


def _complete_values() -> None:
    """Let IPython complete voices and other values inside strings, where it runs."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        completion_view()(shell)


def _recording(item: str | Path | bytes | Clip) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, Clip):
        return item.to_bytes("wav")
    return Path(item).read_bytes()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


@dataclass(frozen=True, slots=True)
class BackendFactory:
    """Opens a backend by its address, here or in another process. No key is in it: there, the environment has it."""

    address: str = ""
    device: str | None = None

    def __call__(self, api_key: str | None = None) -> Backend:
        """Open the backend. Raises like ``open_backend``."""
        return open_backend(self.address, device=self.device, api_key=api_key)


def _wrap_backend(backend: Backend, cache: Cache | str | Path | bool | None, record: str | Path | None) -> Backend:
    """Return the backend behind a cache and a recording, where these are asked for. Raises StoreError."""
    if cache is not None and cache is not False:
        from voicelab.experiments.cache import Cache, CachedBackend

        folder = None if cache is True else cache
        backend = CachedBackend(backend, folder if isinstance(folder, Cache) else Cache(folder))
    if record is not None:
        from voicelab.experiments.recording import RecordingBackend

        # Outermost, so that what the cache answers is in the recording too.
        backend = RecordingBackend(backend, record)
    return backend


def _check_replay(**others: object) -> None:
    """Raise RequestInvalid for an argument that a recording, which answers by itself, has no use for."""
    for name, value in others.items():
        if value is not None:
            raise RequestInvalid.of(name, "a recording answers by itself; leave it out beside replay", in_="query")
