"""Registry of backends: open any backend by an address, in Python, on the command line, or in a sweep file.

    ""  or  "local:"           the embedded voice; "local:PATH" for another checkpoint
    "https://voice.example"    a service of the interface, in full "service:https://…"
    "replay:FOLDER"            a recording
    "NAME:ADDRESS"             a backend of an installed package, by its entry point in the group ``voicelab.backends``

An entry point refers to a function that returns the Backend. Its arguments are the address after the colon and, as
keywords, the options set by the caller: ``device``, ``api_key`` and ``voices`` (location of voice models).
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires, version
from typing import TYPE_CHECKING, Any, Final

from voicelab.backend import Backend
from voicelab.distribution import DISTRIBUTION, install_command
from voicelab.errors import EngineError, MissingExtra, RequestInvalid, VoicelabError, suggestion

if TYPE_CHECKING:
    from packaging.requirements import Requirement

GROUP: Final = "voicelab.backends"

_PROTOCOL: Final = ("capabilities", "synthesize", "create_voice", "get_voice", "close")

_ADDRESS: Final = re.compile(r"(?P<name>[A-Za-z][\w-]*):(?P<rest>.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class BuiltInBackend:
    """A backend of this package: entry point, address format, description and required extra."""

    target: str
    form: str
    summary: str
    extra: str = ""


BUILT_IN: Final[Mapping[str, BuiltInBackend]] = {
    "local": BuiltInBackend(
        "voicelab.engine.local:open_local", "local: or local:PATH", "the embedded voice, or another checkpoint"
    ),
    "service": BuiltInBackend("voicelab.backends.service:open_service", "https://…", "a service of the interface"),
    "kokoro": BuiltInBackend(
        "voicelab.backends.kokoro:open_kokoro",
        "kokoro: or kokoro:PATH",
        "Kokoro-82M, a natural voice, English and Mandarin",
        "kokoro",
    ),
    "piper": BuiltInBackend(
        "voicelab.backends.piper:open_piper", "piper:PATH.onnx", "a Piper voice (VITS in ONNX)", "piper"
    ),
    "openai": BuiltInBackend(
        "voicelab.backends.openai:open_openai", "openai:https://…", "a server of OpenAI's speech API"
    ),
    "command": BuiltInBackend(
        "voicelab.backends.command:CommandBackend", "command:PROGRAM …", "a program, started for each text"
    ),
    "worker": BuiltInBackend(
        "voicelab.backends.worker:WorkerBackend", "worker:PYTHON SCRIPT", "a model in a separate environment"
    ),
    "replay": BuiltInBackend("voicelab.backends.runs:ReplayBackend", "replay:FOLDER", "a recording, played back"),
}
"""Backends of this package, which must equal its entry points."""


@dataclass(frozen=True, slots=True)
class InstalledBackend:
    """An available backend. ``form`` is its address format; ``install`` the command for missing dependencies, if any."""

    name: str
    form: str
    summary: str
    distribution: str
    install: str = ""

    def __str__(self) -> str:
        return f"{self.form:<22}{self.summary}" + (f"; to install: {self.install}" if self.install else "")


def available_backends() -> tuple[InstalledBackend, ...]:
    """List every backend that ``connect`` can open, those of other packages last."""
    listed = []
    for name, built_in in BUILT_IN.items():
        incomplete = built_in.extra and any(installed is None for installed, _ in requirements(built_in.extra).values())
        install = install_command(built_in.extra) if incomplete else ""
        listed.append(InstalledBackend(name, built_in.form, built_in.summary, DISTRIBUTION, install))
    for point in _foreign_entry_points():
        package, summary = ("", "") if point.dist is None else (point.dist.name, point.dist.metadata["Summary"] or "")
        listed.append(InstalledBackend(point.name, f"{point.name}:", summary, package))
    return tuple(listed)


def split_address(address: str | None) -> tuple[str, str]:
    """Split an address into the name of a backend and the text after the colon; None and "" are the embedded voice.

    Raises RequestInvalid if no installed package provides the backend.
    """
    if not address:
        return "local", ""
    matched = _ADDRESS.fullmatch(address)
    name = matched["name"] if matched else address
    if name.lower() in {"http", "https"}:
        return "service", address
    names = [*BUILT_IN, *(point.name for point in _foreign_entry_points())]
    if name not in names:
        near = _meant(address) or suggestion(name, names) or f"; available: {', '.join(names)}"
        message = f"unknown backend {name.rpartition('@')[2]!r}{near}; the address of a service must begin with https:// or http://"
        raise RequestInvalid.of("backend", message, type="not_found", in_="query")
    return name, matched["rest"] if matched else ""


def _meant(address: str) -> str:
    """Suggest an address for an invalid one that looks like a host, a script or a program; "" for any other."""
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?", address):
        return f"; did you mean http://{address}?"
    if address.endswith(".py"):
        return f"; for a script: worker:PYTHON {address}"
    text = "" if "{" in address else " {text}"
    return f"; for a program: command:{address}{text}" if shutil.which(address.partition(" ")[0]) else ""


def open_backend(address: str | None, **options: Any) -> Backend:
    """Open the backend of an address.

    Args:
        address: see the module docstring; None for the embedded voice.
        **options: keywords of the entry point, such as ``device`` and ``api_key``; None means unset.

    Raises:
        RequestInvalid: the backend is unknown, or does not accept an option.
        MissingExtra: its dependencies are not installed.
        EngineError: the entry point of its package is broken.

    Errors of the backend propagate.
    """
    name, rest = split_address(address)
    opener = _load(name)
    arguments = {option: value for option, value in options.items() if value is not None}
    check_accepted(arguments, opener, f"the backend {name!r}")
    try:
        backend = opener(rest, **arguments)
    except ModuleNotFoundError as error:
        if isinstance(error, VoicelabError):
            raise
        raise _not_importable(name, error) from error
    if not isinstance(backend, Backend):
        missing = ", ".join(call for call in _PROTOCOL if not hasattr(backend, call))
        message = f"the backend {name!r} of {_source(name)} returned a {type(backend).__name__} without {missing}"
        raise EngineError(f"{message}; update or remove that package")
    return backend


def check_accepted(options: Iterable[str], opener: Any, subject: str) -> None:
    """Raise RequestInvalid for the first option that the function that opens a backend does not accept."""
    parameters = inspect.signature(opener).parameters.values()
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters):
        return
    for option in options:
        if option not in {item.name for item in parameters}:
            message = f"{subject} does not accept this option; omit it"
            raise RequestInvalid.of(option, message, type="unsupported", in_="query")


def _load(name: str) -> Any:
    built_in = [EntryPoint(name, BUILT_IN[name].target, GROUP)] if name in BUILT_IN else []
    (point,) = built_in or [point for point in _foreign_entry_points() if point.name == name]
    try:
        opener = point.load()
    except Exception as error:  # importing a foreign module may raise anything
        raise _not_importable(name, error) from error
    if not callable(opener):
        kind = type(opener).__name__
        raise EngineError(
            f"the backend {name!r} of {_source(name)} must be a function, got a {kind}; update the package"
        )
    return opener


def _not_importable(name: str, error: Exception) -> Exception:
    """Convert the error of a failed import to MissingExtra or EngineError; return an error of voicelab itself unchanged."""
    built_in = BUILT_IN.get(name)
    if built_in is None:
        message = f"the backend {name!r} of {_source(name)} cannot be imported: {type(error).__name__}: {error}"
        return EngineError(f"{message}; install its dependencies, or update or remove the package")
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if built_in.extra and missing and missing.partition(".")[0] != "voicelab":
        return MissingExtra.of(built_in.extra, built_in.summary.partition(",")[0])
    return error


def _source(name: str) -> str:
    dist = next((point.dist for point in _foreign_entry_points() if point.name == name), None)
    return DISTRIBUTION if name in BUILT_IN else dist.name if dist is not None else "a package"


def _foreign_entry_points() -> list[EntryPoint]:
    points = [point for point in entry_points(group=GROUP) if point.name not in BUILT_IN]
    return sorted(points, key=lambda point: point.name)


def requirements(extra: str = "") -> dict[str, tuple[str | None, Requirement]]:
    """Map the dependencies of voicelab, or of one of its extras, to the installed version and the required versions.

    Empty if voicelab is not installed as a package.
    """
    from packaging.requirements import Requirement

    try:
        declared = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        return {}
    needed = [item for item in declared if (item.marker.evaluate({"extra": extra}) if item.marker else not extra)]
    return {item.name: (installed_version(item.name), item) for item in needed}


def installed_version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
