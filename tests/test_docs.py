"""The documents say what is there: every command is named, every example runs, every link leads somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from voicelab.cli import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _commands(group: Any, prefix: str = "voicelab") -> list[str]:
    found = []
    for name, command in group.commands.items():
        inner = _commands(command, f"{prefix} {name}") if hasattr(command, "commands") else []
        found += inner or [f"{prefix} {name}"]
    return found


COMMANDS = _commands(typer.main.get_command(app))


def _blocks(language: str) -> list[tuple[str, str]]:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        (f"{path.relative_to(ROOT)}#{number}", block)
        for path in DOCUMENTS
        for number, block in enumerate(fence.findall(path.read_text(encoding="utf-8")), start=1)
    ]


def _lines() -> list[str]:
    lines = (line.split("#")[0].strip() for _, block in _blocks("sh") for line in block.splitlines())
    return [line for line in lines if line.startswith("voicelab ")]


def test_there_are_commands_and_examples() -> None:
    assert {"voicelab say", "voicelab keys create"} <= set(COMMANDS)
    assert _blocks("python")
    assert len(_lines()) >= len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_named_in_the_documents(command: str) -> None:
    assert re.search(rf"{command}[ \n`]", README)


@pytest.mark.parametrize("line", _lines())
def test_every_example_names_a_command_and_its_options(line: str) -> None:
    # What a shell would hand over, without pipes and redirections.
    words = shlex.split(re.split(r" [<|] ", line)[0])[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[0] in command.commands
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("-") and word != "-"} <= known


@pytest.mark.parametrize(("name", "block"), _blocks("python"), ids=[name for name, _ in _blocks("python")])
def test_every_python_example_runs(name: str, block: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"


def test_the_first_example_of_say_runs(tmp_path: Path) -> None:
    line = next(line for line in _lines() if line.startswith("voicelab say "))
    script = Path(sys.executable).with_name("voicelab")
    done = subprocess.run(
        [str(script), *shlex.split(line)[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "canoe.wav").stat().st_size > 44


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_inside_the_repository_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_every_variable_of_the_environment_is_in_the_readme() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "voicelab").rglob("*.py"))
    named = {name for text in sources for name in re.findall(r"\bVOICELAB_[A-Z_]+\b", text)}
    assert {name for name in named if name not in README} == set()
