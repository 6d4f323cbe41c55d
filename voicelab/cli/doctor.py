"""``voicelab doctor``: what is installed here, and what stands in the way."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from voicelab.cli.console import say_line
from voicelab.errors import MissingExtra, VoicelabError

__all__ = ["Finding", "doctor", "wal_reset_risk"]

_PACKAGES = (
    "voicelab",
    "torch",
    "safetensors",
    "numpy",
    "av",
    "soxr",
    "librosa",
    "pydantic",
    "httpx",
    "msgpack",
    "starlette",
    "uvicorn",
    "ipywidgets",
    "anywidget",
    "jupyterlab",
)
# Two connections that write and checkpoint at once can corrupt a write-ahead log in these versions.
_WAL_RESET = ((3, 7, 0), (3, 51, 2))


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; ``trouble`` says what is wrong, ``note`` what is good to know."""

    name: str
    value: str
    note: str = ""
    trouble: str = ""


def wal_reset_risk(sqlite: tuple[int, ...]) -> bool:
    """Say whether an SQLite of this version can corrupt a write-ahead log that two connections write."""
    return _WAL_RESET[0] <= sqlite <= _WAL_RESET[1]


def doctor(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False
) -> None:
    """Report versions, device, weights and settings. Exit status 1 when something is wrong."""
    findings = list(_findings())
    if as_json:
        say_line(json.dumps({item.name: _as_json(item) for item in findings}))
    else:
        for item in findings:
            remark = f"TROUBLE: {item.trouble}" if item.trouble else item.note
            say_line(f"{item.name:<22}{item.value}" + (f"  ({remark})" if remark else ""))
    if any(item.trouble for item in findings):
        raise typer.Exit(1)


def _as_json(item: Finding) -> dict[str, str]:
    parts = {"value": item.value, "note": item.note, "trouble": item.trouble}
    return {name: text for name, text in parts.items() if text or name == "value"}


def _findings() -> Iterator[Finding]:
    yield Finding("python", platform.python_version(), note=sys.executable)
    yield Finding("platform", platform.platform(), note=f"{os.cpu_count()} CPUs")
    for package in _PACKAGES:
        try:
            yield Finding(package, version(package))
        except PackageNotFoundError:
            yield Finding(package, "not installed", note="comes with an extra; see README")
    yield _sqlite()
    yield _ffmpeg()
    yield from _voice()
    yield _home()
    yield Finding("VOICELAB_BASE_URL", os.environ.get("VOICELAB_BASE_URL") or "not set: the embedded voice speaks")
    # Whether there is a key, never the key, nor any part of it.
    yield Finding("VOICELAB_API_KEY", "set" if os.environ.get("VOICELAB_API_KEY") else "not set")


def _sqlite() -> Finding:
    note = ""
    if wal_reset_risk(sqlite3.sqlite_version_info):
        note = "has the WAL-reset defect of 3.7.0 to 3.51.2: voicelab keeps to one writer; so should other programs"
    return Finding("sqlite", sqlite3.sqlite_version, note=note)


def _ffmpeg() -> Finding:
    import av

    libraries = ", ".join(
        f"{name} {'.'.join(map(str, number))}" for name, number in sorted(av.library_versions.items())
    )
    return Finding("ffmpeg", libraries)


def _voice() -> Iterator[Finding]:
    # The embedded voice itself, loaded: whether it speaks is what the doctor is asked about.
    import voicelab

    try:
        backend = voicelab.LocalBackend()
    except MissingExtra as error:
        # Who speaks through a service does well without.
        missing = {"note" if os.environ.get("VOICELAB_BASE_URL") else "trouble": str(error)}
        yield Finding("voice", "not installed", **missing)
        return
    except VoicelabError as error:
        yield Finding("voice", "not available", trouble=str(error))
        return
    try:
        can = backend.capabilities
        yield Finding("device", can.device)
        yield Finding("weights", can.fingerprint)
        yield Finding("voices", str(len(can.voices)), note=", ".join(voice.id for voice in can.voices))
    finally:
        backend.close()


def _home() -> Finding:
    from voicelab.voices.home import data_home

    home = data_home()
    origin = "from the environment" if os.environ.get("VOICELAB_HOME") else "the platform's default"
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    return Finding("VOICELAB_HOME", str(home), note=origin, trouble=_unwritable(existing))


def _unwritable(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder} cannot be written to: {error.strerror}"
