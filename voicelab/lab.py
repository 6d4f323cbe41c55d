"""connect() and Lab, the entry point of notebooks: synthesis, sweeps and panels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

from voicelab.backend import Backend
from voicelab.call import Voice, VoicePreset, completed
from voicelab.capabilities import SeedSupport
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.schema import AudioFormat, Latency, ProsodyControl
from voicelab.session import Reference, Session, SpeechFields

if TYPE_CHECKING:
    import pandas as pd

    from voicelab.metrics import Metric
    from voicelab.runs.cache import Cache
    from voicelab.sweeps.knobs import KnobCheck
    from voicelab.sweeps.sweep import Sweep
    from voicelab.views.explore_panel import ExplorePanel
    from voicelab.views.knob_panel import KnobPanel
    from voicelab.views.systems_panel import SystemsPanel
    from voicelab.views.voice_panel import VoicePanel


_T = TypeVar("_T")
_Axis: TypeAlias = _T | Iterable[_T | None] | Mapping[str, _T | None] | None
_Numbers: TypeAlias = _Axis[float] | str
_Integers: TypeAlias = _Axis[int] | str


class SweepFields(TypedDict, total=False):
    """Keywords of ``Lab.sweep`` and their types, for type checkers: fields of ``speak``, or axes of their values.

    An axis of numbers may also be a range, such as ``"0.2..1.0 step 0.2"``. Type checkers do not know knobs and placeholders:
    they accept ``extra={"noise_scale": [0.3, 0.6]}``.
    """

    voice: _Axis[Voice]
    model: _Axis[str]
    temperature: _Numbers
    top_p: _Numbers
    references: _Axis[Reference | Sequence[Reference]]
    reference_id: _Axis[str]
    prosody: _Axis[ProsodyControl | Mapping[str, float]]
    chunk_length: _Integers
    normalize: _Axis[bool]
    format: _Axis[AudioFormat]
    sample_rate: _Integers
    mp3_bitrate: _Integers
    opus_bitrate: _Integers
    latency: _Axis[Latency]
    max_new_tokens: _Integers
    repetition_penalty: _Numbers
    min_chunk_length: _Integers
    condition_on_previous_chunks: _Axis[bool]
    early_stop_threshold: _Numbers
    speed: _Numbers
    volume: _Numbers
    extra: Mapping[str, object] | None


@completed
def connect(
    backend: str | Backend | Callable[..., object] | None = None,
    *,
    api_key: str | None = None,
    device: str | None = None,
    voices: Sequence[str | VoicePreset] | None = None,
    at_once: int | None = None,
    time_limit_s: float | None = None,
    profile: str | None = None,
    fields: Mapping[str, object] | None = None,
    cache: Cache | str | Path | bool | None = None,
    record: str | Path | None = None,
    replay: str | Path | None = None,
    **defaults: Unpack[SpeechFields],
) -> Lab:
    """Open a backend and return its Lab.

    Args:
        backend: address of a service, or ``"NAME:ADDRESS"`` of ``vl.available_backends()``, such as ``"kokoro"``; a function,
            see `from_function`; or a Backend. Default: VOICELAB_BASE_URL in the environment, else the embedded voice.
        api_key: API key of the service. Default: from the environment (VOICELAB_API_KEY for a service of the interface).
        device: device of a local backend ("cpu", "cuda"). Default: chosen by the backend.
        voices: voices of a function, ``command:`` or ``worker:``. Default: those that it declares.
        at_once: number of concurrent calls of a function or ``command:``, or of processes of ``worker:``. Default: 1, or
            one per core for commands.
        time_limit_s: maximum duration of a ``command:``, by default 300 s, or time without an answer of a ``worker:``, by
            default 600 s.
        profile: kind of an ``openai:`` server: "openai", "vllm-omni", "kokoro-fastapi" or "speaches". Default: unknown.
        fields: parameters that an ``openai:`` server accepts: a mapping from names to bool, int, float, str, or choices.
        cache: cache of reproducible takes, which are those at temperature 0 and, if seeds are exact, those with a seed.
            True selects the cache in voicelab's data folder; otherwise a folder or a Cache. Default: none.
        record: folder to record every call and response in.
        replay: folder of a recording to replay, with its timing, in place of a backend.
        **defaults: defaults of ``speak``: fields of the request, listed below, and knobs of the backend.

    Raises:
        RequestInvalid: a default or argument is unknown, invalid, or not supported by the backend.
        MissingExtra: the backend's dependencies are not installed.
        EngineError: the package of the backend is broken.
        StoreError: the folder of ``record`` is not writable, or that of ``replay`` contains no recording.
    """
    options: dict[str, Any] = {"voices": voices, "at_once": at_once, "profile": profile, "fields": fields}
    options["time_limit_s"] = time_limit_s
    if replay is not None:
        unset = {"backend": backend, "api_key": api_key, "device": device, "cache": cache, "record": record}
        for name in (name for name, value in {**unset, **options}.items() if value is not None):
            raise RequestInvalid.of(name, "must be None with replay", in_="query")
        backend = f"replay:{replay}"
    _complete_values()
    return Lab.open(
        backend,
        api_key=api_key,
        device=device,
        options=options,
        wrap=lambda opened: _wrap_backend(opened, cache, record),
        **defaults,
    )


def from_function(
    function: Callable[..., object],
    *,
    voices: Sequence[str | VoicePreset] | None = None,
    models: Sequence[str] | None = None,
    seed: SeedSupport | None = None,
    languages: Sequence[str] | None = None,
    at_once: int | None = None,
) -> Lab:
    """Return the Lab of a function: ``def tts(text, voice="a", pitch=1.0): return samples, rate``.

    Parameters named ``voice``, ``seed``, ``speed``, ``model``, ``references`` (ReferenceAudio values), ``ref_audio`` and
    ``ref_text`` (path and transcript of one reference), or named as another field of ``speak``, receive its value. Other
    parameters with a default are backend parameters, with bounds and descriptions from ``Annotated``. Fields for which there
    is no parameter are declared as ignored. Seeds are passed modulo 2**31.

    Args:
        function: callable object whose first parameter is the text. It returns (samples, rate), a Clip, the bytes of an
            audio file or its path, or yields such values as blocks of a stream.
        voices: values of ``voice``. Default: those of its annotation ``Literal[...]``, else any.
        models: values of ``model``. Default: the function's name.
        seed: "exact" if equal seeds give equal samples, or if the function is deterministic and has no seed. Default:
            "best-effort" if there is a parameter ``seed``, else "none".
        languages: language codes.
        at_once: number of concurrent calls. Default: 1, since few models are thread-safe.

    Raises ArgumentError if the function has no parameter for the text, or if another parameter neither has a default nor
    receives a field.
    """
    options = {"voices": voices, "models": models, "seed": seed, "languages": languages, "at_once": at_once}
    _complete_values()
    return Lab.open(function, options=options)


class Lab(Session):
    """Session with sweeps and panels, the result of ``connect()``."""

    __slots__ = ()

    @completed
    def sweep(
        self,
        text: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        rows: pd.DataFrame | Iterable[Mapping[str, object]] | str | Path | None = None,
        repeats: int = 1,
        seed: int | Sequence[int] = 0,
        lab: Mapping[str, Session] = MappingProxyType({}),
        cache: Cache | str | Path | None = None,
        **fields: Unpack[SweepFields],
    ) -> Sweep:
        """Create a sweep: ``lab.sweep(text, temperature="0..1 step 0.5", latency=["low", "normal"]).run()``.

        Args:
            text: request text; a list is an axis. ``{name}`` in it is an axis with the values of the keyword ``name``;
                in tables, ``text`` is the template and ``sent`` the request text. ``{{name}}`` is a literal ``{name}``.
            rows: paired calls: a table, a list of mappings, or a CSV file with the columns ``text``, fields of ``speak``
                and placeholders of the text. Each row is combined with every combination of the axes; unset fields take the
                values of ``fields`` and the lab's defaults.
            repeats: takes of each cell, to estimate the variance between takes.
            seed: seed from which the seeds of the repeats are drawn, the same in every cell; a list is an axis.
            lab: labs by name, which replace this lab and form the axis ``backend``; each lab keeps its voice and defaults.
            cache: cache of takes, a Cache or a folder. Default: the cache in voicelab's data folder.
            **fields: fields of ``speak``, listed below, knobs of the backend, and placeholders. A list, a mapping
                from labels to values, or a range such as ``"0.2..1.0 step 0.2"`` is an axis. Knobs and placeholders
                may also be in ``extra``, which type checkers accept.

        Raises RequestInvalid for an unknown or invalid field, value, combination or voice.
        """
        from voicelab.sweeps.sweep import sweep_of

        for name, session in lab.items():
            if not isinstance(session, Session):
                raise RequestInvalid.of("lab", f"{name!r} must be a Lab, got {type(session).__name__}")
        with self._named_as_typed(fields):
            return sweep_of(self, text, rows=rows, repeats=repeats, seed=seed, labs=lab, cache=cache, fields=fields)

    def check_knobs(self, *names: str, repeats: int = 3, seed: int = 0) -> KnobCheck:
        """Test whether each field and knob of the backend (or each of ``names``) has an effect.

        Short texts are synthesized ``repeats`` times with each value, see ``voicelab.sweeps.knobs.check_knobs``.
        """
        from voicelab.sweeps.knobs import check_knobs

        return check_knobs(self._backend, self.call("knobs"), names or None, repeats=repeats, seed=seed)

    def knob_panel(self, *names: str, repeats: int = 3, seed: int = 0) -> KnobPanel:
        """Create the panel of ``check_knobs``, with progress."""
        from voicelab.views.knob_panel import KnobPanel

        return KnobPanel(self, names, repeats=repeats, seed=seed)

    def panel(self, text: str = "The birch canoe slid on the smooth planks.", *, compact: bool = False) -> ExplorePanel:
        """Create a panel with a control for every field; each change synthesizes ``text``, and all takes are kept.

        ``compact`` expands only the main fields, synthesizes when Speak is pressed, and keeps one take. Raises
        RequestInvalid for an invalid text.
        """
        from voicelab.views.explore_panel import ExplorePanel

        return ExplorePanel(self, text, compact=compact)

    def voice_panel(self, *recordings: Clip | str | Path) -> VoicePanel:
        """Create a panel that clones voices from ``recordings``, files and the microphone, and lists stored voices.

        Raises OSError for an unreadable file.
        """
        from voicelab.views.voice_panel import VoicePanel

        return VoicePanel(self, recordings)


def systems_panel(
    texts: str | Sequence[str],
    *,
    metrics: Sequence[str | Metric] | None = None,
    repeats: int = 1,
    seed: int = 0,
    cache: Cache | str | Path | None = None,
    **labs: Session,
) -> SystemsPanel:
    """Create a panel to choose systems and texts, synthesize, listen and test; arguments are those of ``compare_systems``.

    Systems can be excluded, and more systems opened by address. Raises ArgumentError for fewer than two systems.
    """
    from voicelab.runs.cache import Cache
    from voicelab.sweeps.systems import SYSTEM_METRICS, check_systems
    from voicelab.views.systems_panel import SystemsPanel

    check_systems(labs)
    opened = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    items = [texts] if isinstance(texts, str) else list(texts)
    return SystemsPanel(items, labs, metrics=metrics or SYSTEM_METRICS, repeats=repeats, seed=seed, cache=opened)


def _complete_values() -> None:
    """Install IPython's completion of voices and other values in strings, if running in IPython."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        from voicelab.views.notebook import install

        install(shell)


def _wrap_backend(backend: Backend, cache: Cache | str | Path | bool | None, record: str | Path | None) -> Backend:
    """Wrap the backend with a cache and a recording, if requested. Raises StoreError."""
    if cache is not None and cache is not False:
        from voicelab.backends.runs import CachedBackend
        from voicelab.runs.cache import Cache

        folder = None if cache is True else cache
        backend = CachedBackend(backend, folder if isinstance(folder, Cache) else Cache(folder))
    if record is not None:
        from voicelab.backends.runs import RecordingBackend

        # Outermost, so that cached takes are recorded too.
        backend = RecordingBackend(backend, record)
    return backend
