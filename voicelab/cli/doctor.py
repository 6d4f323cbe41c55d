"""``voicelab doctor``: report the installation, its problems and their fixes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, astuple, dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicelab.backend import Backend
from voicelab.backends.registry import (
    BUILT_IN,
    available_backends,
    installed_version,
    open_backend,
    requirements,
    split_address,
)
from voicelab.call import EXTRA, Call
from voicelab.cli.console import print_line
from voicelab.distribution import DISTRIBUTION, install_command
from voicelab.errors import (
    ArgumentError,
    AuthenticationError,
    EngineError,
    MissingExtra,
    RequestInvalid,
    ServiceError,
    VoicelabError,
)
from voicelab.schema import FORMATS

if TYPE_CHECKING:
    from voicelab.sweeps.knobs import FieldProbe

# Extras for users; all other extras are for development.
_EXTRAS = (
    "gpu notebook metrics open-weights praat world distillmos recognition whisper mos pesq speaker cluster mandarin"
).split()
_MIN_FREE_BYTES = 200 * 2**20
_SERVICE_TIMEOUT_S = 5.0
_SENTENCE = "The birch canoe slid on the smooth planks."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the report: a ``note``, or a ``warning`` or ``problem`` with the command that fixes it (``fix``)."""

    name: str
    value: str
    note: str = ""
    problem: str = ""
    fix: str = ""
    warning: str = ""

    def __post_init__(self) -> None:
        if not (self.problem or self.warning):
            object.__setattr__(self, "fix", "")


def _system() -> Iterator[Diagnosis]:
    old = sys.version_info < (3, 11)
    problem = "voicelab needs Python 3.11 or newer" if old else ""
    fix = "python3.11 -m venv .venv"
    yield Diagnosis("python", platform.python_version(), sys.executable, problem, fix)
    yield Diagnosis("platform", platform.platform(), f"{os.cpu_count()} CPUs")
    yield Diagnosis("sqlite", sqlite3.sqlite_version)


def _packages() -> Iterator[Diagnosis]:
    version = installed_version(DISTRIBUTION)
    if version is None:
        problem = "voicelab is imported from a folder, not from an installed package"
        yield Diagnosis(DISTRIBUTION, "not installed", problem=problem, fix=install_command())
        return
    yield Diagnosis(DISTRIBUTION, version)
    if (conflict := installed_version("voicelab")) is not None:
        problem = (
            "the acoustic analysis package voicelab has the same import name; only one of the two can be installed"
        )
        yield Diagnosis("voicelab", conflict, problem=problem, fix=f"pip uninstall voicelab && {install_command()}")
    yield _extra("")
    yield from _torch()
    yield from (_extra(extra) for extra in _EXTRAS if not _missing(extra))
    if absent := [f"{extra} ({', '.join(_missing(extra))})" for extra in _EXTRAS if _missing(extra)]:
        yield Diagnosis("extras not installed", ", ".join(absent), f"to install: {install_command('NAME')}")


def _torch() -> Iterator[Diagnosis]:
    """Import torch, if it is installed.

    On a CPU the voice works without torch, so nothing else would report a broken installation of it.
    """
    if (version := installed_version("torch")) is None:
        return
    try:
        import_module("torch").tensor([0.0])
    except Exception as error:  # noqa: BLE001 - depends on what is missing
        problem = f"torch is installed incompletely: {_line(error)}"
        yield Diagnosis("torch", version, problem=problem, fix="pip install --force-reinstall torch")


def _missing(extra: str) -> list[str]:
    return [package for package, (installed, _) in requirements(extra).items() if installed is None]


def _extra(extra: str) -> Diagnosis:
    problems = [f"missing: {', '.join(_missing(extra))}"] if _missing(extra) else []
    versions = []
    for package, (installed, requirement) in requirements(extra).items():
        versions += [f"{package} {installed}"] if installed else []
        if installed and not requirement.specifier.contains(installed, prereleases=True):
            problems.append(f"{package} {installed} (must be {requirement.specifier})")
    name = f"extra {extra}" if extra else "dependencies"
    return Diagnosis(name, ", ".join(versions), problem="; ".join(problems), fix=install_command(extra))


def _encoders() -> Iterator[Diagnosis]:
    import av
    import numpy as np

    from voicelab.audio.formats import encode

    libraries = sorted(av.library_versions.items())
    yield Diagnosis("ffmpeg", ", ".join(f"{name} {'.'.join(map(str, number))}" for name, number in libraries))
    formats, errors = [], []
    tone = np.sin(np.arange(4410, dtype=np.float32) / 16)
    for format in FORMATS:  # noqa: A001 - the interface's name
        try:
            encode(tone, format, 44_100)
            formats.append(format)
        except VoicelabError as error:
            errors.append(f"{format}: {error}")
    yield Diagnosis("encoders", ", ".join(formats), problem="; ".join(errors), fix="pip install --force-reinstall av")


def _weights() -> Iterator[Diagnosis]:
    """Compare the digests of the embedded voice's files with SHA256SUMS."""
    folder = files("voicelab") / "engine" / "weights"
    sums = [line.split(maxsplit=1) for line in (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()]
    problems = []
    for digest, name in sums:
        try:
            actual = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
        else:
            if actual != digest:
                problems.append(f"{name} is damaged: SHA-256 must be {digest[:16]}…, got {actual[:16]}…")
    digests = ", ".join(f"{name} {digest[:16]}" for digest, name in sums)
    clone = Path(str(folder)).parents[2]
    restore = f"git -C {shlex.quote(str(clone))} checkout voicelab/engine/weights"
    fix = restore if (clone / ".git").exists() else f"{install_command()} --force-reinstall --no-deps"
    yield Diagnosis("weights files", digests, problem="; ".join(problems), fix=fix)


def _voice() -> Iterator[Diagnosis]:
    try:
        backend = open_backend("local:")
    except (VoicelabError, ImportError, OSError) as error:
        fix = f"{install_command()} --force-reinstall"
        yield Diagnosis("voice", "not available", problem=_line(error), fix=fix)
        return
    try:
        capabilities = backend.capabilities
        yield Diagnosis("device", capabilities.device)
        yield Diagnosis("weights", capabilities.fingerprint)
        yield Diagnosis("voices", str(len(capabilities.voices)), ", ".join(voice.id for voice in capabilities.voices))
        yield from _recognition(backend)
    finally:
        backend.close()


def _recognition(backend: Backend) -> Iterator[Diagnosis]:
    """Transcribe a synthesized sentence with the ASR model, and warn about recognition errors."""
    from voicelab.asr.recognizers import default_recognizer, full_name

    with suppress(VoicelabError):  # reported by _recognizer
        recognizer, name = default_recognizer(fetch=False), full_name(os.environ.get("VOICELAB_RECOGNIZER", ""))
        if recognizer is not None:
            clip = backend.synthesize(Call.of(_SENTENCE, seed=1)).take().clip()
            transcript = recognizer.recognise(clip.samples, clip.rate)
            note, warning = f"text: {_SENTENCE!r} {getattr(recognizer, 'worth', '')}".strip(), ""
            if re.findall(r"\w+", transcript.lower()) != re.findall(r"\w+", _SENTENCE.lower()):
                warning = f"misrecognized: WER and CER by {name} are not reliable"
            yield Diagnosis("hearing", f"{name}: {transcript!r}", note, warning=warning)


def _backends() -> Iterator[Diagnosis]:
    for item in available_backends():
        note = f"to install: {item.install}" if item.install else ""
        yield Diagnosis(f"backend {item.name}", f"{item.form}: {item.summary}", note)


def _recognizer() -> Iterator[Diagnosis]:
    from voicelab.asr.recognizers import default_recognizer, fetch_command, full_name

    name = "VOICELAB_RECOGNIZER"
    value = os.environ.get(name, "")
    try:
        recognizer = default_recognizer(fetch=False)
    except VoicelabError as error:
        fix = install_command(error.extra) if isinstance(error, MissingExtra) else fetch_command(value)
        cause = re.split(": with a network|; or ", _line(error))[0]
        if value:
            yield Diagnosis(name, value, problem=cause, fix=fix or f"unset {name}")
        else:
            yield Diagnosis(name, full_name(""), warning=f"WER and CER are not available: {cause}", fix=fix)
        return
    note = "used for WER, CER and missing transcripts" if recognizer else "disabled: missing transcripts stay empty"
    yield Diagnosis(name, full_name(value), note)


def _home() -> Iterator[Diagnosis]:
    from voicelab.storage import data_home

    home = data_home()
    origin = "from the environment" if os.environ.get("VOICELAB_HOME") else "the platform's default"
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    note, problem, fix = f"{origin}; {free / 2**30:.1f} GiB free", "", "export VOICELAB_HOME=/path/to/another/folder"
    if free < _MIN_FREE_BYTES:
        problem = f"{free / 2**20:.0f} MiB free, must be at least {_MIN_FREE_BYTES / 2**20:.0f} MiB"
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        problem, fix = f"{existing} cannot be written to: {error.strerror}", f"chmod u+rwx {shlex.quote(str(existing))}"
    yield Diagnosis("VOICELAB_HOME", str(home), note, problem, fix)


def _jupyter() -> Iterator[Diagnosis]:
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
        from jupyter_core.paths import jupyter_path
    except ImportError:
        yield Diagnosis("jupyter", "not installed", f"to install: {install_command('notebook')}")
        return
    try:
        program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        yield Diagnosis("kernel", "none", problem="the kernel python3 is not installed", fix="pip install ipykernel")
    else:
        # A name that is not a path means the Python that runs Jupyter.
        differs = Path(program).is_absolute() and Path(program) != Path(sys.executable)
        problem = "the kernel python3 uses a different Python" if differs else ""
        fix = f"{sys.executable} -m ipykernel install --sys-prefix"
        yield Diagnosis("kernel", program, problem=problem, fix=fix)
    for name, extension in (("ipywidgets", "@jupyter-widgets/jupyterlab-manager"), ("anywidget", "anywidget")):
        folders = [Path(folder, extension) for folder in jupyter_path("labextensions")]
        installed = any((folder / "package.json").is_file() for folder in folders)
        problem = "" if installed else "its JupyterLab extension is not installed: widgets are not displayed"
        fix = "pip install --force-reinstall --no-deps jupyterlab_widgets anywidget"
        yield Diagnosis(name, installed_version(name) or "not installed", problem=problem, fix=fix)


def _service() -> Iterator[Diagnosis]:
    from voicelab.backends.caller import RetryPolicy
    from voicelab.backends.service import ServiceBackend

    address, key = os.environ.get("VOICELAB_BASE_URL"), os.environ.get("VOICELAB_API_KEY")
    if not address:
        yield Diagnosis("VOICELAB_BASE_URL", "not set: the embedded voice is used")
    else:
        try:
            kind, rest = split_address(address)
            options: Any = {"timeout": _SERVICE_TIMEOUT_S, "retry": RetryPolicy(attempts=1)}
            with closing(
                ServiceBackend(rest, key, **options) if kind == "service" else open_backend(address)
            ) as opened:
                _check(opened)
            yield Diagnosis("VOICELAB_BASE_URL", address, "reachable, key accepted" if kind == "service" else "")
        except (VoicelabError, ImportError, OSError) as error:
            yield _failed("VOICELAB_BASE_URL", address, error)
    # The key itself is never printed.
    yield Diagnosis("VOICELAB_API_KEY", "set" if key else "not set")


def _check(backend: Backend) -> None:
    """Check address and key of a service without synthesis. Raises ServiceError and its subclasses."""
    from voicelab.backends.service import ServiceBackend

    if isinstance(backend, ServiceBackend):
        backend.check()


def _failed(name: str, address: str, error: Exception, voices: Sequence[str] = ()) -> Diagnosis:
    """Return the cause of a backend's failure, with the command to type next."""
    kind, _, rest = address.partition(":")
    retry, program = f"voicelab doctor --backend {shlex.quote(address)}", rest.split(" ")[0]
    fields = {item.loc[-1] for item in error.errors} if isinstance(error, RequestInvalid) else set()
    fix = (
        f"voicelab doctor --backend {BUILT_IN[kind].form.partition(' or ')[0]}"
        if kind in BUILT_IN
        else "voicelab doctor"
    )
    if isinstance(error, MissingExtra):
        fix = install_command(error.extra)
    elif isinstance(error, AuthenticationError) or "authorization" in fields:
        variable = "OPENAI_API_KEY" if kind == "openai" else "VOICELAB_API_KEY"
        fix = f"export {variable}={'ANOTHER_KEY' if os.environ.get(variable) else 'KEY'}"
    elif fields & {"voice", "reference_id"} or (getattr(error, "status", 0) == 400 and "voice" in str(error).lower()):
        fix = f"{retry} --voice {shlex.quote(voices[0]) if voices else 'NAME'}"
    elif isinstance(error, ServiceError):
        fix = f"curl -i {shlex.quote(rest.partition('?')[0] if kind in ('openai', 'service') else address)}"
    elif kind in ("command", "worker") and isinstance(error, EngineError):
        # Show the command of the program itself, with values instead of placeholders.
        values = {"text": "Hello.", "out": "out.wav"}
        fix = re.sub(
            r"\{(\w+)=?([^{}|]*)[^{}]*\}", lambda match: values.get(match[1], match[2] or match[1].upper()), rest
        )
    elif kind == "worker" and isinstance(error, ArgumentError):
        fix = "voicelab worker-template > script.py"
    elif kind in ("command", "worker") and "backend" in fields:
        fix = retry.replace(program, f"/path/to/{program or 'program'}", 1)
    return Diagnosis(name, address, problem=_line(error), fix=fix)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


CHECKS = _system, _packages, _encoders, _weights, _voice, _backends, _recognizer, _home, _jupyter, _service
"""Checks in the order of the report."""


def _probes(address: str, voice: str | None) -> tuple[list[Diagnosis], list[FieldProbe]]:
    """Compare the audio that a backend synthesizes with and without each field."""
    from voicelab.sweeps.knobs import PROBE_TEXT, UNKNOWN_FIELD, probe_fields

    voices: list[str] = []
    try:
        with closing(open_backend(address)) as backend:
            _check(backend)
            can = backend.capabilities
            voices = [preset.id for preset in can.voices]
            print_line(f"one sentence is synthesized with and without each field by {address}", to_stderr=True)
            probes = probe_fields(backend, Call.of(PROBE_TEXT, voice=voice))
    except (VoicelabError, ImportError, OSError) as error:
        return [_failed("backend", address, error, voices)], []
    report = [Diagnosis("backend", address, f"voices: {len(can.voices)}; models: {', '.join(can.models)}")]
    if any(probe.name == EXTRA + UNKNOWN_FIELD and probe.accepted == "yes" for probe in probes):
        report.append(
            Diagnosis("acceptance", "no evidence", "the backend accepts even unknown fields; only effects count")
        )
    if unclear := sum(probe.acts == "unclear" for probe in probes):
        note = (
            f"two takes of the same call differ; to test with repeats: voicelab knobs --backend {shlex.quote(address)}"
        )
        report.append(Diagnosis("unclear effects", str(unclear), note))
    return report, probes


def _print_probes(probes: list[FieldProbe]) -> None:
    rows = [("field", "value", "accepted", "acts", ""), *map(astuple, probes)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print_line("  ".join([*cells, row[4]]).rstrip())


def doctor(
    *,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME:ADDRESS|URL", help="Test only the fields of this backend.", show_default=False),
    ] = None,
    voice: Annotated[str | None, typer.Option(metavar="ID", help="Voice for --backend.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Report versions, device, weights, Jupyter, service and settings, with a fix for each problem.

    With --backend, synthesizes a sentence with and without each field instead, and reports which fields the backend accepts
    and which change the audio. Exits with status 1 if there are problems, 0 if there are only warnings.
    """
    if voice is not None and backend is None:
        raise RequestInvalid.of("voice", f"needs --backend, got only --voice {voice}; add --backend", in_="query")
    probes: list[FieldProbe] = []
    if backend is None:
        report = [item for check in CHECKS for item in check()]
    else:
        report, probes = _probes(backend, voice)
    problems = [item.name for item in report if item.problem]
    if as_json:
        rows: dict[str, Any] = {
            item.name: {k: v for k, v in asdict(item).items() if k == "value" or (v and k != "name")} for item in report
        }
        print_line(json.dumps({**rows, "fields": [asdict(probe) for probe in probes]} if probes else rows))
    else:
        _print_report(report, probes, problems)
    if problems:
        raise typer.Exit(1)


def _print_report(report: list[Diagnosis], probes: list[FieldProbe], problems: list[str]) -> None:
    if probes:
        _print_probes(probes)
    for item in report:
        warning = f"WARNING: {'; '.join(filter(None, (item.warning, item.note)))}" if item.warning else item.note
        remark = f"PROBLEM: {item.problem}" if item.problem else warning
        print_line(f"{item.name:<22}{item.value}" + (f"  ({remark})" if remark else ""))
        if item.fix:
            print_line(f"{'':<22}fix: {item.fix}")
    warnings = [item.name for item in report if item.warning]
    kinds = (("problems", problems), ("warnings", warnings))
    print_line("; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds if names) or "no problems")
