"""``voicelab doctor``: what is installed here, what is wrong with it, and how to fix that."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement

from voicelab.backend import Backend
from voicelab.backends.registry import available_backends, installed_version, open_backend, requirements
from voicelab.call import Call
from voicelab.cli.console import say_line
from voicelab.distribution import DISTRIBUTION, install_command
from voicelab.errors import AuthenticationError, MissingExtra, ServiceError, VoicelabError
from voicelab.schema import FORMATS

# Extras that whoever uses voicelab can want; the others are for those who work on it.
_EXTRAS = (
    "local notebook metrics open-weights praat world distillmos recognition whisper mos pesq speaker cluster mandarin"
).split()
# Two connections that write and checkpoint at once can corrupt a write-ahead log in these versions.
_WAL_RESET = ((3, 7, 0), (3, 51, 2))
# Below this, a voice and a few takes do not fit.
_FREE_BYTES = 200 * 2**20
_ASK_S = 5.0
_SENTENCE = "The birch canoe slid on the smooth planks."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the report: a ``note`` or ``warning``, or a ``problem`` with its ``fix``."""

    name: str
    value: str
    note: str = ""
    problem: str = ""
    fix: str = ""
    warning: str = ""

    def __post_init__(self) -> None:
        if not self.problem:
            object.__setattr__(self, "fix", "")


def wal_reset_risk(sqlite: tuple[int, ...]) -> bool:
    """Say whether an SQLite of this version can corrupt a write-ahead log that two connections write."""
    return _WAL_RESET[0] <= sqlite <= _WAL_RESET[1]


def _system() -> Iterator[Diagnosis]:
    old = sys.version_info < (3, 11)
    problem = "voicelab needs Python 3.11 or newer" if old else ""
    fix = "make a new environment with a newer Python: python3.11 -m venv .venv"
    yield Diagnosis("python", platform.python_version(), sys.executable, problem, fix)
    yield Diagnosis("platform", platform.platform(), f"{os.cpu_count()} CPUs")
    defect = "has the WAL-reset defect of 3.7.0 to 3.51.2: voicelab keeps to one writer; so should other programs"
    risk = wal_reset_risk(sqlite3.sqlite_version_info)
    yield Diagnosis("sqlite", sqlite3.sqlite_version, defect if risk else "")


def _packages() -> Iterator[Diagnosis]:
    """What voicelab needs, in the versions that it needs; and its extras, each with what it lacks."""
    own = installed_version(DISTRIBUTION)
    if own is None:
        problem = "it runs from a folder, not from a package"
        yield Diagnosis(DISTRIBUTION, "not installed", problem=problem, fix=install_command())
        return
    yield Diagnosis(DISTRIBUTION, own)
    if (other := installed_version("voicelab")) is not None:
        problem = "the acoustic analysis package of this name has the same import name; only one of them can work here"
        yield Diagnosis("voicelab", other, problem=problem, fix=f"pip uninstall voicelab && {install_command()}")
    for extra in ("", *_EXTRAS):
        yield _extra(extra, requirements(extra))


def _extra(extra: str, needed: dict[str, tuple[str | None, Requirement]]) -> Diagnosis:
    name = f"extra {extra}" if extra else "dependencies"
    install = install_command(extra)
    absent = [package for package, (installed, _) in needed.items() if installed is None]
    old = [
        f"{package} {installed} ({wanted.specifier} is wanted)"
        for package, (installed, wanted) in needed.items()
        if installed and not wanted.specifier.contains(installed, prereleases=True)
    ]
    versions = ", ".join(f"{package} {installed}" for package, (installed, _) in needed.items() if installed)
    if extra and 2 * len(absent) > len(needed):  # what others brought is not yet the extra
        return Diagnosis(name, "not installed", f"to install: {install}")
    missing = [f"missing: {', '.join(absent)}"] if absent else []
    return Diagnosis(name, versions, problem="; ".join([*missing, *old]), fix=install)


def _encoders() -> Iterator[Diagnosis]:
    import av
    import numpy as np

    from voicelab.audio.formats import encode

    libraries = sorted(av.library_versions.items())
    yield Diagnosis("ffmpeg", ", ".join(f"{name} {'.'.join(map(str, number))}" for name, number in libraries))
    works, fails = [], []
    tone = np.sin(np.arange(4410, dtype=np.float32) / 16)
    for format in FORMATS:  # noqa: A001 - the interface's name
        try:
            encode(tone, format, 44_100)
            works.append(format)
        except VoicelabError as error:
            fails.append(f"{format}: {error}")
    yield Diagnosis("encoders", ", ".join(works), problem="; ".join(fails), fix="pip install --force-reinstall av")


def _weights() -> Iterator[Diagnosis]:
    """The embedded voice's files against the digests that were written down when they were made."""
    folder = files("voicelab") / "engine" / "weights"
    listed = [line.split(maxsplit=1) for line in (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()]
    wrong = []
    for digest, name in listed:
        try:
            actual = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            wrong.append(f"{name}: {error.strerror}")
        else:
            wrong += [f"{name} is damaged: it is {actual[:16]}…, not {digest[:16]}…"] if actual != digest else []
    digests = ", ".join(f"{name} {digest[:16]}" for digest, name in listed)
    fix = (
        f"in a clone: git checkout voicelab/engine/weights; elsewhere: {install_command()} --force-reinstall --no-deps"
    )
    yield Diagnosis("weights files", digests, problem="; ".join(wrong), fix=fix)


def _voice() -> Iterator[Diagnosis]:
    # The embedded voice itself, loaded: whether it speaks is what the doctor is asked about.
    try:
        backend = open_backend("local:")
    except MissingExtra as error:
        # Who speaks through a service does well without.
        note, problem = (str(error), "") if os.environ.get("VOICELAB_BASE_URL") else ("", str(error))
        yield Diagnosis("voice", "not installed", note, problem, install_command("local"))
        return
    except (VoicelabError, ImportError, OSError) as error:
        fix = f"{install_command('local')} --force-reinstall"
        yield Diagnosis("voice", "not available", problem=" ".join(str(error).split()), fix=fix)
        return
    try:
        can = backend.capabilities
        yield Diagnosis("device", can.device)
        yield Diagnosis("weights", can.fingerprint)
        yield Diagnosis("voices", str(len(can.voices)), ", ".join(voice.id for voice in can.voices))
        yield from _hearing(backend)
    finally:
        backend.close()


def _hearing(backend: Backend) -> Iterator[Diagnosis]:
    """The ASR model's transcript of a sentence by the embedded voice, with a warning where words differ."""
    from voicelab.asr.transcripts import default_recognizer

    with suppress(VoicelabError):  # the check of VOICELAB_RECOGNIZER says what is wrong
        ears = default_recognizer()
        if ears is not None:
            clip = backend.synthesize(Call.of(_SENTENCE, seed=1)).take().clip()
            heard = ears.recognise(clip.samples, clip.rate)
            note, warning = f"of {_SENTENCE!r} {getattr(ears, 'worth', '')}".strip(), ""
            if re.findall(r"\w+", heard.lower()) != re.findall(r"\w+", _SENTENCE.lower()):
                warning = f"misrecognized: WER and CER by {ears.name} are not reliable"
            yield Diagnosis("hearing", f"{ears.name}: {heard!r}", note, warning=warning)


def _backends() -> Iterator[Diagnosis]:
    """What ``--backend`` and ``vl.connect`` can name."""
    for item in available_backends():
        note = f"to install: {item.install}" if item.install else ""
        yield Diagnosis(f"backend {item.name}", f"{item.form}: {item.summary}", note)


def _recognizer() -> Iterator[Diagnosis]:
    """Who writes down what is said in recordings that come without a transcript."""
    from voicelab.asr.transcripts import default_recognizer

    name = "VOICELAB_RECOGNIZER"
    wanted = os.environ.get(name, "")
    try:
        installed = default_recognizer()
    except MissingExtra as error:
        yield Diagnosis(name, wanted, problem=f"it cannot be had: {error}", fix=install_command(error.extra))
        return
    except VoicelabError as error:
        yield Diagnosis(name, wanted, problem=str(error), fix=f"correct {name}, or unset it")
        return
    if installed is None:
        empty = "transcripts that are missing stay empty"
        note = f"as asked for: {empty}" if wanted == "none" else f"{empty}; {install_command('recognition')}"
    else:
        better = "" if installed.name.startswith("faster-whisper") else f"; a better ear: {install_command('whisper')}"
        note = f"it writes transcripts that are missing{better}"
    yield Diagnosis(name, "none" if installed is None else installed.name, note)


def _home() -> Iterator[Diagnosis]:
    from voicelab.storage import data_home

    home = data_home()
    origin = "from the environment" if os.environ.get("VOICELAB_HOME") else "the platform's default"
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    note, problem, fix = f"{origin}; {free / 2**30:.1f} GiB free", "", "make room"
    if free < _FREE_BYTES:
        problem = f"only {free / 2**20:.0f} MiB are free; voices and takes need some"
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        problem, fix = f"{existing} cannot be written to: {error.strerror}", f"chown or chmod u+rwx {existing}"
    yield Diagnosis("VOICELAB_HOME", str(home), note, problem, f"{fix}, or name another folder in VOICELAB_HOME")


def _jupyter() -> Iterator[Diagnosis]:
    """Whether a notebook would run in this Python, and whether JupyterLab would find the scripts of the widgets."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
        from jupyter_core.paths import jupyter_path
    except ImportError:
        yield Diagnosis("jupyter", "not installed", f"to install: {install_command('notebook')}")
        return
    try:
        program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        yield Diagnosis("kernel", "none", problem="no kernel python3 is known", fix="pip install ipykernel")
    else:
        # A bare name is the Python that runs Jupyter.
        other = Path(program).is_absolute() and Path(program) != Path(sys.executable)
        problem = "notebooks run in another Python than this" if other else ""
        fix = f"{sys.executable} -m ipykernel install --sys-prefix"
        yield Diagnosis("kernel", program, problem=problem, fix=fix)
    for name, where in (("ipywidgets", "@jupyter-widgets/jupyterlab-manager"), ("anywidget", "anywidget")):
        folders = [Path(folder, where) for folder in jupyter_path("labextensions")]
        seen = any((folder / "package.json").is_file() for folder in folders)
        problem = "" if seen else "JupyterLab does not find its scripts: widgets would not show"
        fix = "pip install --force-reinstall --no-deps jupyterlab_widgets anywidget"
        yield Diagnosis(name, installed_version(name) or "not installed", problem=problem, fix=fix)


def _service() -> Iterator[Diagnosis]:
    address, key = os.environ.get("VOICELAB_BASE_URL"), os.environ.get("VOICELAB_API_KEY")
    if not address:
        yield Diagnosis("VOICELAB_BASE_URL", "not set: the embedded voice speaks")
    else:
        problem, fix = _service_problem(address, key)
        yield Diagnosis("VOICELAB_BASE_URL", address, "" if problem else "it answers, and takes the key", problem, fix)
    # Whether there is a key, never the key, nor any part of it.
    yield Diagnosis("VOICELAB_API_KEY", "set" if key else "not set")


def _service_problem(address: str, key: str | None) -> tuple[str, str]:
    """Ask a service for nothing, which costs nothing; return what is wrong, and what to do."""
    from voicelab.backends.caller import RetryPolicy
    from voicelab.backends.service import ServiceBackend

    try:
        with ServiceBackend(address, key, timeout=_ASK_S, retry=RetryPolicy(attempts=1)) as service:
            service.check()
    except AuthenticationError as error:
        other = "another key in VOICELAB_API_KEY: this one is not accepted"
        return str(error), f"put {'a key in VOICELAB_API_KEY' if key is None else other}"
    except ServiceError as error:
        fix = "see that the address is right and the service runs; unset VOICELAB_BASE_URL for the embedded voice"
        return str(error), fix
    except VoicelabError as error:
        return str(error), "correct VOICELAB_BASE_URL (https://host) or VOICELAB_API_KEY"
    return "", ""


CHECKS = _system, _packages, _encoders, _weights, _voice, _backends, _recognizer, _home, _jupyter, _service
"""The checks, in the order in which they are reported."""


def doctor(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False
) -> None:
    """Report versions, device, weights, Jupyter, service and settings. Exit status 1 with a problem, 0 with a warning.

    Under what is wrong stands what to do about it.
    """
    report = [symptom for check in CHECKS for symptom in check()]
    wrong = [item.name for item in report if item.problem]
    if as_json:
        rows = {
            one.name: {k: v for k, v in asdict(one).items() if k == "value" or (v and k != "name")} for one in report
        }
        say_line(json.dumps(rows))
    else:
        for item in report:
            warning = f"WARNING: {item.warning}; {item.note}" if item.warning else item.note
            remark = f"PROBLEM: {item.problem}" if item.problem else warning
            say_line(f"{item.name:<22}{item.value}" + (f"  ({remark})" if remark else ""))
            if item.fix:
                say_line(f"{'':<22}to fix it: {item.fix}")
        warned = [item.name for item in report if item.warning]
        lines = [f"{kind}: {', '.join(names)}" for kind, names in (("problems", wrong), ("warnings", warned)) if names]
        say_line("; ".join(lines) or "all is well")
    if wrong:
        raise typer.Exit(1)
