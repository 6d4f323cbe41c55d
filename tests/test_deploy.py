"""The files of deploy/ use options, variables, ports and paths that exist; no image is built here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from voicelab.service.run import PORT

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_command_of_the_container_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path))
    program, *arguments = json.loads(CONTAINERFILE.rpartition("\nCMD ")[2])
    assert program == "voicelab"
    command = [sys.executable, "-c", "from voicelab.cli import app; app()", *arguments, "--check"]
    assert "active" in subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    (extra,) = re.findall(r"\.whl\)\[(\w+)\]", CONTAINERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extra in project["optional-dependencies"]


def test_ports_are_those_of_the_service() -> None:
    metrics = CONTAINERFILE.rpartition('"--metrics", "')[2].partition('"')[0]
    assert f'"127.0.0.1:{metrics}"' in (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    for text in ((DEPLOY / "Caddyfile").read_text(encoding="utf-8"), CONTAINERFILE):
        assert f"127.0.0.1:{PORT}" in text
    # Service and metrics are bound to 127.0.0.1, so that others must share its network.
    assert {name for name, one in SERVICES.items() if one.get("network_mode") != "service:voicelab"} == {"voicelab"}


def test_paths_and_volumes_exist() -> None:
    build = SERVICES["voicelab"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    assert (ROOT / "constraints.txt").is_file()
    (home,) = re.findall(r"ENV VOICELAB_HOME=(\S+)", CONTAINERFILE)
    mounts = [mount.split(":") for one in SERVICES.values() for mount in one["volumes"]]
    assert ["home", home] in mounts
    for source, *_ in mounts:
        assert source in COMPOSE["volumes"] or (DEPLOY / source).is_file()
    named = set(re.findall(r"VOICELAB_\w+", "".join(file.read_text(encoding="utf-8") for file in DEPLOY.iterdir())))
    assert named == {"VOICELAB_HOME", *SERVICES["caddy"]["environment"]}
