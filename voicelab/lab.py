"""connect() and Lab: what a person does from a notebook: speak, sweep, compare, and open panels. The top of the library."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from voicelab.backend import Backend
from voicelab.call import completed
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.session import Session

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
        backend: ``"https://voice.example"`` for a service; ``"NAME:"`` or ``"NAME:ADDRESS"`` of
            ``vl.available_backends()``: ``"local:"`` is the embedded voice, ``"local:PATH"`` another checkpoint. Without it
            the environment variable VOICELAB_BASE_URL, else the embedded voice, offline.
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
        others = {"backend": backend, "api_key": api_key, "device": device, "cache": cache, "record": record}
        for name in (name for name, value in others.items() if value is not None):
            raise RequestInvalid.of(name, "a recording answers by itself; leave it out beside replay", in_="query")
        backend = f"replay:{replay}"
    if model is not None:
        defaults["model"] = model
    _complete_values()
    return Lab.open(
        backend, api_key=api_key, device=device, wrap=lambda one: _wrap_backend(one, cache, record), **defaults
    )


class Lab(Session):
    """A session from which experiments and panels are opened: what ``connect()`` returns."""

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
        **fields: object,
    ) -> Sweep:
        """Return a sweep: ``lab.sweep(text, temperature="0..1 step 0.5", latency=["low", "normal"]).run()``.

        Args:
            text: what to say; a list of texts is an axis. ``{name}`` in it is an axis too: ``name=[…]`` fills it, and
                tables have the template as ``text`` and what came of it as ``sent``; ``{{name}}`` is said as it stands.
            rows: paired calls in the place of a grid: a table, a list of mappings or the path of a CSV file, whose columns
                are ``text``, fields of ``speak``, and names in the text; each row is said with every combination of the axes.
                What a row leaves out is as ``fields`` and the lab have it.
            repeats: takes of each cell, for telling a parameter's effect from the voice's own variety.
            seed: what the seeds of the repeats are drawn from, the same in every cell; or a list, an axis of seeds.
            lab: labs by name, an axis ``backend``: each speaks with its own voice and defaults, in the place of this one.
            cache: where takes are kept, a Cache or a folder; the cache in voicelab's data folder when not given.
            **fields: what ``speak`` takes, knobs of the backend's own too. A list, a mapping from labels to values, or a
                range such as ``"0.2..1.0 step 0.2"`` makes one an axis; ``speed`` and ``volume`` are prosody's.

        Nothing runs yet. Raises RequestInvalid: whatever is wrong with a value or a combination, a voice too that the
        backend has not got.
        """
        from voicelab.sweeps.sweep import sweep_of

        for name, one in lab.items():
            if not isinstance(one, Session):
                raise RequestInvalid.of("lab", f"{name!r} is a {type(one).__name__}, not a Lab")
        with self._named_as_typed(fields):
            return sweep_of(self, text, rows=rows, repeats=repeats, seed=seed, labs=lab, cache=cache, fields=fields)

    def check_knobs(self, *names: str, repeats: int = 3, seed: int = 0) -> KnobCheck:
        """Turn every field and knob of the backend, or those of ``names``, and say of each whether it does anything.

        Some short texts are said ``repeats`` times with each value: see ``voicelab.sweeps.knobs.check_knobs``.
        """
        from voicelab.sweeps.knobs import check_knobs

        return check_knobs(self._backend, self.call("knobs"), names or None, repeats=repeats, seed=seed)

    def knob_panel(self, *names: str, repeats: int = 3, seed: int = 0) -> KnobPanel:
        """Return a panel that does what ``check_knobs`` does, with progress; show it as a cell's last value."""
        from voicelab.views.knob_panel import KnobPanel

        return KnobPanel(self, names, repeats=repeats, seed=seed)

    def panel(self) -> ExplorePanel:
        """Return a panel to type a text, turn the main knobs and listen; show it as a cell's last value."""
        from voicelab.views.explore_panel import ExplorePanel

        return ExplorePanel(self, compact=True)

    def explore(self, text: str = "The birch canoe slid on the smooth planks.") -> ExplorePanel:
        """Return a panel with a control for every field: letting go of one says ``text`` again; all takes are kept.

        Show it as a cell's last value. Raises RequestInvalid for a text that cannot be said.
        """
        from voicelab.views.explore_panel import ExplorePanel

        return ExplorePanel(self, text)

    def voice_panel(self, *recordings: Clip | str | Path) -> VoicePanel:
        """Return a panel to make voices of files, of the microphone or of clips, and to try those there are.

        ``recordings`` are in it from the beginning. Show it as a cell's last value. Raises OSError for a path that
        cannot be read.
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
    """Return a panel that does what ``compare_systems`` does: choose systems and texts, run, hear, test blindly.

    Takes what ``compare_systems`` takes; systems can be left out there, and others opened by their address. Show it as a
    cell's last value. Raises ArgumentError for fewer than two systems.
    """
    from voicelab.runs.cache import Cache
    from voicelab.sweeps.systems import SYSTEM_METRICS, check_systems
    from voicelab.views.systems_panel import SystemsPanel

    check_systems(labs)
    kept = cache if cache is None or isinstance(cache, Cache) else Cache(cache)
    spoken = [texts] if isinstance(texts, str) else list(texts)
    return SystemsPanel(spoken, labs, metrics=metrics or SYSTEM_METRICS, repeats=repeats, seed=seed, cache=kept)


def _complete_values() -> None:
    """Let IPython complete voices and other values inside strings, where it runs."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        from voicelab.views.notebook import install

        install(shell)


def _wrap_backend(backend: Backend, cache: Cache | str | Path | bool | None, record: str | Path | None) -> Backend:
    """Return the backend behind a cache and a recording, where these are asked for. Raises StoreError."""
    if cache is not None and cache is not False:
        from voicelab.backends.runs import CachedBackend
        from voicelab.runs.cache import Cache

        folder = None if cache is True else cache
        backend = CachedBackend(backend, folder if isinstance(folder, Cache) else Cache(folder))
    if record is not None:
        from voicelab.backends.runs import RecordingBackend

        # Outermost, so that what the cache answers is in the recording too.
        backend = RecordingBackend(backend, record)
    return backend
