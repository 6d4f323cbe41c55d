"""What a sweep will take, before it is run, and the cap that stops it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from voicelab.backend import Capabilities
from voicelab.errors import FieldError, RequestInvalid
from voicelab.experiments.sweeps.grid import Job

__all__ = ["Budget", "Estimate", "estimate"]

# English read at an even pace; measured on the embedded voice: 14 to 15 characters a second.
_CHARACTERS_PER_SECOND: Final = 14.5
# Chinese characters, each of them a syllable; measured on the embedded voice: 3.2 to 3.6 a second.
_HAN: Final = re.compile("[\u3400-\u9fff]")
_HAN_PER_SECOND: Final = 3.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the takes that are not there yet will need.

    ``characters`` and ``text_bytes`` (UTF-8) are exact; ``audio_s`` is guessed from them, ``compute_s`` from
    it and the real-time factor of earlier takes, None while there is none (takes made at once overlap, so the clock
    shows less); ``cost`` is in the account's
    currency, None where the backend names no price.
    """

    requests: int
    cached: int
    characters: int
    text_bytes: int
    audio_s: float
    compute_s: float | None
    cost: float | None

    def __str__(self) -> str:
        parts = [
            f"{self.requests} requests",
            f"{self.characters} characters",
            f"about {_time(self.audio_s)} of audio",
        ]
        if self.compute_s is not None:
            parts.append(f"about {_time(self.compute_s)} of work")
        if self.cost:
            parts.append(f"costs {self.cost:.4g}")
        if self.cached:
            parts.append(f"{self.cached} takes are there already")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps; None is no cap. A sweep whose estimate is over one does not begin, and it stops at one."""

    requests: int | None = None
    characters: int | None = None
    audio_s: float | None = None
    compute_s: float | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise RequestInvalid.of(f"budget.{item.name}", "Input should be a number, 0 or more")

    def check(self, needed: Estimate) -> None:
        """Raise RequestInvalid that names every cap that ``needed`` is over."""
        troubles = []
        for item in fields(self):
            cap, need = getattr(self, item.name), getattr(needed, item.name)
            if cap is not None and need is not None and need > cap:
                message = f"the sweep would take {need:g}, and the budget is {cap:g}"
                troubles.append(FieldError(("body", f"budget.{item.name}"), "budget_exceeded", message))
            if cap is not None and need is None and item.name == "cost":
                message = "the backend names no price, so a budget in money cannot be kept; cap characters instead"
                troubles.append(FieldError(("body", "budget.cost"), "unsupported", message))
        if troubles:
            raise RequestInvalid(troubles)


def estimate(
    jobs: Iterable[Job], capabilities: Mapping[str, Capabilities], *, cached: int = 0, rtf: float | None = None
) -> Estimate:
    """Return what ``jobs`` will need; ``capabilities`` has each backend by its name.

    ``rtf`` is seconds of work for a second of audio, measured on earlier takes; ``cached`` is told on.
    """
    requests = characters = text_bytes = 0
    audio, cost, priced = 0.0, 0.0, True
    for job in jobs:
        request = job.cell.call.request
        size = len(request.text.encode())
        requests += 1
        characters += len(request.text)
        text_bytes += size
        speed = request.prosody.speed if request.prosody else 1.0
        chinese = len(_HAN.findall(request.text))
        audio += ((len(request.text) - chinese) / _CHARACTERS_PER_SECOND + chinese / _HAN_PER_SECOND) / speed
        price = capabilities[job.cell.backend].price_per_million_bytes
        if price is None:
            priced = False
        else:
            cost += price * size / 1e6
    work = None if rtf is None else audio * rtf
    return Estimate(requests, cached, characters, text_bytes, audio, work, cost if priced else None)


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
