"""What is published: a wheel with everything inside that the voice and the notebooks need, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A wheel larger than this would not be accepted by most package indexes.
LARGEST = 100 * 2**20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    # The environment's own hatchling builds it, so that no network is needed.
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = (path for path in (ROOT / "voicelab").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {path.relative_to(ROOT).as_posix() for path in files}
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert {"voicelab/py.typed", "voicelab/__init__.py"} <= wanted
    assert wanted - held == set()


def test_the_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"voicelab"}
    assert wheel.stat().st_size < LARGEST


def test_a_bare_install_does_not_need_torch(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode("utf-8"))
    requires = metadata.get_all("Requires-Dist") or []
    torch = [line for line in requires if line.startswith("torch")]
    assert torch
    assert all("; extra == " in line for line in torch)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
