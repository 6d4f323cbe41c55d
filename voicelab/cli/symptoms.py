"""What ``voicelab doctor`` looks at: one check for each thing that can be wrong with an installation."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path

from packaging.requirements import Requirement

from voicelab.errors import AuthenticationError, MissingExtra, RequestInvalid, ServiceError, VoicelabError
from voicelab.schema import FORMATS

__all__ = ["CHECKS", "Symptom", "wal_reset_risk"]

# Extras that whoever uses voicelab can want; the others are for those who work on it.
_EXTRAS = (
    "local",
    "notebook",
    "metrics",
    "recognition",
    "whisper",
    "mos",
    "pesq",
    "speaker",
    "cluster",
    "mandarin",
)
_DISTRIBUTION = "voicelab"
# Two connections that write and checkpoint at once can corrupt a write-ahead log in these versions.
_WAL_RESET = ((3, 7, 0), (3, 51, 2))
_REINSTALL = "pip install --force-reinstall --no-deps voicelab, or in a clone: git checkout voicelab/engine/weights"
# Below this, a voice and a few takes do not fit.
_FREE_BYTES = 200 * 2**20
_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class Symptom:
    """One line of the report: ``note`` is good to know, ``trouble`` says what is wrong, ``mend`` what to do about it."""

    name: str
    value: str
    note: str = ""
    trouble: str = ""
    mend: str = ""


def wal_reset_risk(sqlite: tuple[int, ...]) -> bool:
    """Say whether an SQLite of this version can corrupt a write-ahead log that two connections write."""
    return _WAL_RESET[0] <= sqlite <= _WAL_RESET[1]


def _system() -> Iterator[Symptom]:
    old = sys.version_info < (3, 11)
    trouble = "voicelab needs Python 3.11 or newer" if old else ""
    mend = "make a new environment with a newer Python: python3.11 -m venv .venv" if old else ""
    yield Symptom("python", platform.python_version(), sys.executable, trouble, mend)
    yield Symptom("platform", platform.platform(), f"{os.cpu_count()} CPUs")
    note = ""
    if wal_reset_risk(sqlite3.sqlite_version_info):
        note = "has the WAL-reset defect of 3.7.0 to 3.51.2: voicelab keeps to one writer; so should other programs"
    yield Symptom("sqlite", sqlite3.sqlite_version, note)


def _packages() -> Iterator[Symptom]:
    """What voicelab needs, in the versions that it needs; and its extras, each with what it lacks."""
    try:
        yield Symptom(_DISTRIBUTION, version(_DISTRIBUTION))
        wanted = [Requirement(line) for line in requires(_DISTRIBUTION) or ()]
    except PackageNotFoundError:
        mend = "in a clone: pip install -e . -c constraints.txt"
        yield Symptom(_DISTRIBUTION, "not installed", trouble="it runs from a folder, not from a package", mend=mend)
        return
    for extra in ("", *_EXTRAS):
        needed = [item for item in wanted if (item.marker is None) == (not extra) and _belongs(item, extra)]
        yield _extra(extra, {item.name: (_found(item.name), item) for item in needed})


def _belongs(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _found(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _extra(extra: str, needed: dict[str, tuple[str | None, Requirement]]) -> Symptom:
    name = f"extra {extra}" if extra else "dependencies"
    install = f"pip install 'voicelab[{extra}]'" if extra else "pip install voicelab"
    absent = [package for package, (found, _) in needed.items() if found is None]
    old = [
        f"{package} {found} ({wanted.specifier} is wanted)"
        for package, (found, wanted) in needed.items()
        if found and not wanted.specifier.contains(found, prereleases=True)
    ]
    told = ", ".join(f"{package} {found}" for package, (found, _) in needed.items() if found)
    if extra and 2 * len(absent) > len(needed):  # what others brought is not yet the extra
        return Symptom(name, "not installed", f"to have it: {install}")
    if absent or old:
        wrong = "; ".join(filter(None, (f"missing: {', '.join(absent)}" if absent else "", *old)))
        return Symptom(name, told, trouble=wrong, mend=install)
    return Symptom(name, told)


def _encoders() -> Iterator[Symptom]:
    import av
    import numpy as np

    from voicelab.audio.formats import encode

    libraries = sorted(av.library_versions.items())
    yield Symptom("ffmpeg", ", ".join(f"{name} {'.'.join(map(str, number))}" for name, number in libraries))
    works, fails = [], []
    tone = np.sin(np.arange(4410, dtype=np.float32) / 16)
    for format in FORMATS:  # noqa: A001 - the interface's name
        try:
            encode(tone, format, 44_100)
            works.append(format)
        except VoicelabError as error:
            fails.append(f"{format}: {error}")
    yield Symptom(
        "encoders", ", ".join(works), trouble="; ".join(fails), mend="pip install --force-reinstall av" if fails else ""
    )


def _weights() -> Iterator[Symptom]:
    """The embedded voice's files against the digests that were written down when they were made."""
    folder = files("voicelab") / "engine" / "weights"
    listed = [line.split(maxsplit=1) for line in (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()]
    wrong = []
    for digest, name in listed:
        try:
            found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            wrong.append(f"{name}: {error.strerror}")
        else:
            wrong += [f"{name} is damaged: it is {found[:16]}…, not {digest[:16]}…"] if found != digest else []
    told = ", ".join(f"{name} {digest[:16]}" for digest, name in listed)
    yield Symptom("weights files", told, trouble="; ".join(wrong), mend=_REINSTALL if wrong else "")


def _voice() -> Iterator[Symptom]:
    # The embedded voice itself, loaded: whether it speaks is what the doctor is asked about.
    import voicelab

    try:
        backend = voicelab.LocalBackend()
    except MissingExtra as error:
        # Who speaks through a service does well without.
        needed = not os.environ.get("VOICELAB_BASE_URL")
        told = {"trouble": str(error), "mend": "pip install 'voicelab[local]'"} if needed else {"note": str(error)}
        yield Symptom("voice", "not installed", **told)
        return
    except (VoicelabError, ImportError, OSError) as error:
        mend = "pip install --force-reinstall 'voicelab[local]' -c constraints.txt"
        yield Symptom("voice", "not available", trouble=" ".join(str(error).split()), mend=mend)
        return
    try:
        can = backend.capabilities
        yield Symptom("device", can.device)
        yield Symptom("weights", can.fingerprint)
        yield Symptom("voices", str(len(can.voices)), ", ".join(voice.id for voice in can.voices))
    finally:
        backend.close()


def _recognizer() -> Iterator[Symptom]:
    """Who writes down what is said in recordings that come without a transcript."""
    from voicelab.voices.recognise import WhisperRecognizer, default_recognizer

    name = "VOICELAB_RECOGNIZER"
    asked = os.environ.get(name, "")
    try:
        found = default_recognizer()
    except RequestInvalid as error:
        yield Symptom(name, asked, trouble=error.errors[0].msg, mend=f"correct {name}, or unset it")
        return
    heard = "none" if found is None else "faster-whisper" if isinstance(found, WhisperRecognizer) else "pocketsphinx"
    if asked.partition(":")[0] not in {"", heard}:
        extra = "whisper" if asked.startswith("faster-whisper") else "recognition"
        mend = f"pip install 'voicelab[{extra}]'" + (
            ", and put its weights on this machine" if extra == "whisper" else ""
        )
        yield Symptom(name, heard, trouble=f"{asked} was asked for, and cannot be had", mend=mend)
    elif heard == asked == "none":
        yield Symptom(name, heard, "as asked for: transcripts that are missing stay empty")
    elif heard == "none":
        yield Symptom(name, heard, "transcripts that are missing stay empty; pip install 'voicelab[recognition]'")
    else:
        yield Symptom(name, heard, "it writes transcripts that are missing")


def _home() -> Iterator[Symptom]:
    from voicelab.voices.home import data_home

    home = data_home()
    origin = "from the environment" if os.environ.get("VOICELAB_HOME") else "the platform's default"
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    note = f"{origin}; {free / 2**30:.1f} GiB free"
    elsewhere = "or name another folder in VOICELAB_HOME"
    if trouble := _unwritable(existing):
        yield Symptom("VOICELAB_HOME", str(home), note, trouble, f"chown or chmod u+rwx {existing}, {elsewhere}")
    elif free < _FREE_BYTES:
        trouble = f"only {free / 2**20:.0f} MiB are free; voices and takes need some"
        yield Symptom("VOICELAB_HOME", str(home), note, trouble, f"make room, {elsewhere}")
    else:
        yield Symptom("VOICELAB_HOME", str(home), note)


def _unwritable(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder} cannot be written to: {error.strerror}"


def _jupyter() -> Iterator[Symptom]:
    """Whether a notebook would run in this Python, and whether JupyterLab would find the scripts of the widgets."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
        from jupyter_core.paths import jupyter_path
    except ImportError:
        yield Symptom("jupyter", "not installed", "to have it: pip install 'voicelab[notebook]'")
        return
    try:
        program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        yield Symptom("kernel", "none", trouble="no kernel python3 is known", mend="pip install ipykernel")
    else:
        # A bare name is the Python that runs Jupyter.
        other = Path(program).is_absolute() and Path(program) != Path(sys.executable)
        trouble = "notebooks run in another Python than this" if other else ""
        mend = f"{sys.executable} -m ipykernel install --sys-prefix" if other else ""
        yield Symptom("kernel", program, trouble=trouble, mend=mend)
    for name, where in (("ipywidgets", "@jupyter-widgets/jupyterlab-manager"), ("anywidget", "anywidget")):
        folders = [Path(folder, where) for folder in jupyter_path("labextensions")]
        seen = any((folder / "package.json").is_file() for folder in folders)
        trouble = "" if seen else "JupyterLab does not find its scripts: widgets would not show"
        mend = "" if seen else "pip install --force-reinstall --no-deps jupyterlab_widgets anywidget"
        yield Symptom(name, _found(name) or "not installed", trouble=trouble, mend=mend)


def _service() -> Iterator[Symptom]:
    address, key = os.environ.get("VOICELAB_BASE_URL"), os.environ.get("VOICELAB_API_KEY")
    if not address:
        yield Symptom("VOICELAB_BASE_URL", "not set: the embedded voice speaks")
    else:
        trouble, mend = _asked(address, key)
        yield Symptom("VOICELAB_BASE_URL", address, "" if trouble else "it answers, and takes the key", trouble, mend)
    # Whether there is a key, never the key, nor any part of it.
    yield Symptom("VOICELAB_API_KEY", "set" if key else "not set")


def _asked(address: str, key: str | None) -> tuple[str, str]:
    """Ask a service for nothing, which costs nothing; return what is wrong, and what to do."""
    from voicelab.client import RetryPolicy, ServiceBackend

    try:
        with ServiceBackend(address, key, timeout=_ASK_S, retry=RetryPolicy(attempts=1)) as service:
            service.check()
    except AuthenticationError as error:
        told = (
            "a key in VOICELAB_API_KEY" if key is None else "another key in VOICELAB_API_KEY: this one is not accepted"
        )
        return str(error), f"put {told}"
    except ServiceError as error:
        return str(
            error
        ), "see that the address is right and the service runs; unset VOICELAB_BASE_URL for the embedded voice"
    except VoicelabError as error:
        return str(error), "correct VOICELAB_BASE_URL (https://host) or VOICELAB_API_KEY"
    return "", ""


CHECKS: tuple[Callable[[], Iterator[Symptom]], ...] = (
    _system,
    _packages,
    _encoders,
    _weights,
    _voice,
    _recognizer,
    _home,
    _jupyter,
    _service,
)
"""The checks, in the order in which they are reported."""
