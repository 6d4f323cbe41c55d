"""Backends by name: one string opens any, here, on the command line, in a sweep file or in another process.

    ""  or  "local:"           the embedded voice; "local:PATH" another checkpoint
    "https://voice.example"    a service of the interface, "service:https://…" in full
    "replay:FOLDER"            a recording
    "NAME:ADDRESS"             whatever an installed package has in its entry points, group ``voicelab.backends``

An entry point names a function. It is called with what stands after the colon, and by keyword with those of ``device``,
``api_key`` and ``voices`` (where voice models are kept) that the caller gave; it returns the Backend.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires, version
from typing import Any, Final

from packaging.requirements import Requirement

from voicelab.backend import Backend
from voicelab.distribution import DISTRIBUTION, install_command
from voicelab.errors import EngineError, MissingExtra, RequestInvalid, VoicelabError, suggestion

GROUP: Final = "voicelab.backends"

_CALLS: Final = ("capabilities", "synthesize", "create_voice", "get_voice", "close")

_ADDRESS: Final = re.compile(r"(?P<name>[A-Za-z][\w-]*):(?P<rest>.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class OwnBackend:
    """A backend that comes with this package: what opens it, the extra that it needs, how it is written, what it is."""

    target: str
    form: str
    summary: str
    extra: str = ""


OWN: Final[Mapping[str, OwnBackend]] = {
    "local": OwnBackend(
        "voicelab.engine.local:open_local", "local: or local:PATH", "the embedded voice, or another checkpoint", "local"
    ),
    "service": OwnBackend("voicelab.client:open_service", "https://…", "a service of the interface"),
    "kokoro": OwnBackend(
        "voicelab.onnx.kokoro:open_kokoro",
        "kokoro: or kokoro:PATH",
        "Kokoro-82M, a natural voice, English and Mandarin",
        "kokoro",
    ),
    "piper": OwnBackend(
        "voicelab.onnx.piper:open_piper", "piper:PATH.onnx", "a voice of Piper's, VITS in ONNX", "piper"
    ),
    "openai": OwnBackend("voicelab.client.openai:open_openai", "openai:https://…", "a server of OpenAI's speech API"),
    "replay": OwnBackend(
        "voicelab.experiments.runs.backends:ReplayBackend", "replay:FOLDER", "a recording, played back"
    ),
}
"""The backends of this package; its entry points say the same."""


@dataclass(frozen=True, slots=True)
class InstalledBackend:
    """A backend that can be named, ``form`` being how; ``install`` is the command that completes it, if it lacks anything."""

    name: str
    form: str
    summary: str
    distribution: str
    install: str = ""

    def __str__(self) -> str:
        return f"{self.form:<22}{self.summary}" + (f"; to have it: {self.install}" if self.install else "")


def backends() -> tuple[InstalledBackend, ...]:
    """Return every backend that ``connect`` can open by name, those of other packages last, and what each still needs."""
    listed = []
    for name, own in OWN.items():
        lacks = own.extra and any(installed is None for installed, _ in requirements(own.extra).values())
        install = install_command(own.extra) if lacks else ""
        listed.append(InstalledBackend(name, own.form, own.summary, DISTRIBUTION, install))
    for point in _foreign():
        package, summary = ("", "") if point.dist is None else (point.dist.name, point.dist.metadata["Summary"] or "")
        listed.append(InstalledBackend(point.name, f"{point.name}:", summary, package))
    return tuple(listed)


def split_address(address: str | None) -> tuple[str, str]:
    """Return the name of a backend and what stands after the colon; None and "" are the embedded voice.

    Raises RequestInvalid for a name that nothing installed has.
    """
    if not address:
        return "local", ""
    matched = _ADDRESS.fullmatch(address)
    name = matched["name"] if matched else address
    # A word alone is no address of a service.
    if name.lower() in {"http", "https"} or not re.fullmatch(r"[\w-]+", name):
        return "service", address
    names = [*OWN, *(point.name for point in _foreign())]
    if matched is None or name not in names:
        near = f"; did you mean {name}:?" if name in names else suggestion(name, names)
        near = near or f"; there are {', '.join(names)}"
        message = f"there is no backend {name!r}{near}; a service's address begins with https:// or http://"
        raise RequestInvalid.of("backend", message, type="not_found", in_="query")
    return name, matched["rest"]


def open_backend(address: str | None, **options: Any) -> Backend:
    """Open what an address names.

    Args:
        address: see the module; None is the embedded voice.
        **options: ``device``, ``api_key``, ``voices``; None is not given.

    Raises RequestInvalid for a name that nothing has and for an option that this backend does not take, MissingExtra when
    its dependencies are not installed, EngineError for a package whose entry point does not work; and what the backend
    itself raises.
    """
    name, rest = split_address(address)
    opener = _load(name)
    given = {option: value for option, value in options.items() if value is not None}
    takes = inspect.signature(opener).parameters.values()
    every = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in takes)
    for option in given:
        if not every and option not in {item.name for item in takes}:
            message = f"the backend {name!r} takes none; leave it out"
            raise RequestInvalid.of(option, message, type="unsupported", in_="query")
    try:
        backend = opener(rest, **given)
    except ModuleNotFoundError as error:
        if isinstance(error, VoicelabError):
            raise
        raise _not_importable(name, error) from error
    if not isinstance(backend, Backend):
        lacking = ", ".join(call for call in _CALLS if not hasattr(backend, call))
        message = f"the backend {name!r} of {_source(name)} gave a {type(backend).__name__}, which lacks {lacking}"
        raise EngineError(f"{message}; update or remove that package")
    return backend


def _load(name: str) -> Any:
    own = [EntryPoint(name, OWN[name].target, GROUP)] if name in OWN else []
    (point,) = own or [point for point in _foreign() if point.name == name]
    try:
        opener = point.load()
    except Exception as error:  # somebody else's module may raise anything while it is imported
        raise _not_importable(name, error) from error
    if not callable(opener):
        kind = type(opener).__name__
        raise EngineError(f"the backend {name!r} of {_source(name)} is a {kind}, not a function; update it")
    return opener


def _not_importable(name: str, error: Exception) -> Exception:
    """Return the error that a failed import means; a defect of this package itself is passed on as it is."""
    own = OWN.get(name)
    if own is None:
        message = f"the backend {name!r} of {_source(name)} cannot be imported: {type(error).__name__}: {error}"
        return EngineError(f"{message}; install what it needs, update it, or remove it")
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if own.extra and missing and missing.partition(".")[0] != "voicelab":
        return MissingExtra.of(own.extra, own.summary.partition(",")[0])
    return error


def _source(name: str) -> str:
    dist = next((point.dist for point in _foreign() if point.name == name), None)
    return DISTRIBUTION if name in OWN else dist.name if dist is not None else "a package"


def _foreign() -> list[EntryPoint]:
    points = [point for point in entry_points(group=GROUP) if point.name not in OWN]
    return sorted(points, key=lambda one: one.name)


def requirements(extra: str = "") -> dict[str, tuple[str | None, Requirement]]:
    """Return what this package, or one of its extras alone, needs, and in which version it is there; in a folder, nothing."""
    try:
        every = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        return {}
    needed = [one for one in every if (one.marker.evaluate({"extra": extra}) if one.marker else not extra)]
    return {one.name: (installed_version(one.name), one) for one in needed}


def installed_version(name: str) -> str | None:
    """Return the version of a package, or None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
