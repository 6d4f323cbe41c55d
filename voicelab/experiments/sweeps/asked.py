"""What somebody asks of a lab in keywords, as a Sweep: which of them are axes, and which stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from voicelab.backend import Backend
from voicelab.call import Call
from voicelab.errors import RequestInvalid
from voicelab.experiments.cache import Cache
from voicelab.experiments.sweeps.axes import Axis, varied
from voicelab.experiments.sweeps.sweep import ONLY, Sweep
from voicelab.experiments.sweeps.workers import Factory

__all__ = ["Asked", "sweep_of"]


class Asked(Protocol):
    """What a sweep needs of a Lab."""

    @property
    def backend(self) -> Backend:
        """Who answers."""

    @property
    def opening(self) -> Factory | None:
        """How another process opens the backend."""

    @property
    def defaults(self) -> Mapping[str, object]:
        """What every call starts from."""

    def call(self, text: str, **fields: Any) -> Call:
        """Return the call that ``speak`` would make. Raises RequestInvalid."""


def sweep_of(
    lab: Asked,
    text: str | Sequence[str] | Mapping[str, str],
    *,
    repeats: int = 1,
    seed: int | Sequence[int] = 0,
    labs: Mapping[str, Asked],
    cache: Cache | str | Path | None = None,
    fields: Mapping[str, object],
) -> Sweep:
    """Return the sweep that ``Lab.sweep`` describes; ``fields`` are its keywords. Raises RequestInvalid."""
    repeats, seed = _plain(repeats), _plain(seed)
    known = {name: value for name, value in fields.items() if value is not None}
    axes = [Axis.of(name, value) for name, value in known.items() if varied(name, value)]
    fixed = {name: value for name, value in known.items() if not varied(name, value)}
    if isinstance(text, str):
        first = text
    else:
        axes.insert(0, Axis.of("text", text))
        first = axes[0].values[0]
    if not isinstance(seed, int):
        axes.append(Axis.of("seed", seed))
        seed = 0
    for name, one in labs.items():
        if not callable(getattr(one, "call", None)):
            raise RequestInvalid.of("labs", f"{name!r} is a {type(one).__name__}, not a Lab")
    if labs:
        axes.append(Axis.of("backend", [ONLY, *labs]))
    everyone = {ONLY: lab, **labs}
    return Sweep(
        lab.call(first, **fixed),
        tuple(axes),
        {name: one.backend for name, one in everyone.items()},
        repeats=repeats,
        seed=seed,
        factories={name: one.opening for name, one in everyone.items() if one.opening is not None},
        cache=cache if cache is None or isinstance(cache, Cache) else Cache(cache),
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
