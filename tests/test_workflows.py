"""The workflows, ours and the one that users copy, are what GitHub takes, and run what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
OURS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHECK = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.github-workflows"]


def _refused(*paths: Path) -> str:
    done = subprocess.run([*CHECK, *map(str, paths)], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout if done.returncode else ""


@pytest.mark.thorough
def test_workflows_are_what_the_schema_takes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "validate-in-ci.md").read_text(encoding="utf-8")
    (to_copy,) = re.findall(r"^```yaml\n(name: .*?)^```", page, re.MULTILINE | re.DOTALL)
    copied = tmp_path / "notebooks.yml"
    copied.write_text(to_copy)
    assert _refused(*OURS, copied) == ""
    copied.write_text(to_copy.replace("runs-on", "runs_on"))
    assert "runs_on" in _refused(copied)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_what_they_run_is_there(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    steps = [step for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values() for step in job["steps"]]
    ran = [step["run"] for step in steps if "run" in step]
    assert ran
    for line in ran:
        program, *words = line.split()
        assert words[0] in targets if program == "make" else (ROOT / program).is_file()
