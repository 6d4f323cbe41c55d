"""The install command refers to the original source of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from voicelab import distribution
from voicelab.distribution import install_command
from voicelab.errors import MissingExtra

_REPOSITORY = {
    "url": "https://host/a/b.git",
    "vcs_info": {"vcs": "git", "commit_id": "40ac", "requested_revision": "main"},
}


@pytest.mark.parametrize(
    ("record", "command"),
    [
        (None, "pip install 'jupyter-voicelab[gpu]'"),
        ({"url": "file:///a%20clone/of%27it", "dir_info": {}}, """pip install '/a clone/of'"'"'it[gpu]'"""),
        ({"url": "file:///clone", "dir_info": {"editable": False}}, "pip install '/clone[gpu]'"),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, "pip install -e '/clone[gpu]'"),
        (
            {"url": "file:///dist/jupyter_voicelab-9.0-py3-none-any.whl", "archive_info": {"hashes": {}}},
            "pip install 'jupyter-voicelab[gpu] @ file:///dist/jupyter_voicelab-9.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://host/voicelab-9.0.tar.gz", "archive_info": {}},
            "pip install 'jupyter-voicelab[gpu] @ https://host/voicelab-9.0.tar.gz'",
        ),
        (_REPOSITORY, "pip install 'jupyter-voicelab[gpu] @ git+https://host/a/b.git@40ac'"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="paths differ on Windows")
def test_install_command_uses_the_recorded_source(
    record: dict[str, object] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "jupyter_voicelab-9.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: jupyter-voicelab\nVersion: 9.0\n")
    if record is not None:
        (installed / "direct_url.json").write_text(json.dumps(record))
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command("gpu") == command
    assert "[" not in install_command()
    assert command in str(MissingExtra.of("gpu", "open weights"))


@pytest.mark.parametrize(
    "fault",
    [
        ImportError("libtorch_cpu.so: cannot open shared object file"),
        OSError("libcudart.so.12: cannot open shared object file"),
        ModuleNotFoundError("No module named 'torch._C'", name="torch._C"),
    ],
)
def test_incomplete_package_is_reinstalled(fault: Exception) -> None:
    """Installing the extra would change nothing, since pip has recorded the package."""
    with (
        pytest.raises(MissingExtra, match=f"installed incompletely; reinstall it: {re.escape(str(fault))}"),
        MissingExtra.where("gpu", "the device 'cuda'"),
    ):
        raise fault


def test_install_command_of_an_uninstalled_clone(tmp_path: Path) -> None:
    (tmp_path / "voicelab").mkdir()
    module = shutil.copy(distribution.__file__, tmp_path / "voicelab")
    (tmp_path / "pyproject.toml").touch()
    # -S: without site-packages.
    code = "import runpy, sys; print(runpy.run_path(sys.argv[1])['install_command']('x'))"
    command = [sys.executable, "-ISc", code, module]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout.strip() == f"pip install -e '{tmp_path}[x]'"


def test_extras_named_in_errors_exist() -> None:
    root = Path(distribution.__file__).parent
    extras = tomllib.loads((root.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    named = {
        extra
        for module in root.rglob("*.py")
        for extra in re.findall(r"MissingExtra\.(?:of|where)\(\s*\"([^\"]+)\"", module.read_text(encoding="utf-8"))
    }
    assert len(named) > 8
    assert named <= extras.keys()
