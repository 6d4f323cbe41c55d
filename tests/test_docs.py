"""The documents say what is there: every command is named, every example runs, every link leads somewhere."""

from __future__ import annotations

import gc
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.engine.dual.tiny import write_model
from tests.engine.dual.tiny_codec import REAL_TIME, save_codec, tiny_tensors
from voicelab.cli import app

ROOT = Path(__file__).parents[1]
# The commands of docs/make import each other as scripts do: from their own folder.
sys.path.insert(0, str(ROOT / "docs" / "make"))
import blocks  # noqa: E402
import names  # noqa: E402
import reference  # noqa: E402

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in DOCUMENTS}
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _commands(group: Any, prefix: str = "voicelab") -> list[str]:
    found = []
    for name, command in group.commands.items():
        inner = _commands(command, f"{prefix} {name}") if hasattr(command, "commands") else []
        found += inner or [f"{prefix} {name}"]
    return found


COMMANDS = _commands(typer.main.get_command(app))


def _shell_lines() -> list[str]:
    found = (
        block for text in TEXTS.values() for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    )
    return [line.split(" #")[0].strip() for block in found for line in block.replace("\\\n", " ").splitlines()]


def _lines() -> list[str]:
    return [line for line in _shell_lines() if line.startswith("voicelab ")]


def test_there_are_commands_and_examples() -> None:
    assert {"voicelab say", "voicelab keys create"} <= set(COMMANDS)
    assert blocks.blocks(README)
    assert len(_lines()) >= len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_shown_in_a_document(command: str) -> None:
    assert [name for name, text in TEXTS.items() if name != "CHANGELOG.md" and re.search(rf"{command}[ \n`]", text)]


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


@pytest.mark.parametrize("target", sorted({line.split()[1] for line in _shell_lines() if line.startswith("make ")}))
def test_every_target_of_make_that_is_named_is_there(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_test_that_is_named_is_there() -> None:
    tests = {path.as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    named = {found for text in TEXTS.values() for found in re.findall(r"`((?:\w+/)*test_\w+\.py|…)(?:::(\w+))?", text)}
    assert len(named) > 50
    for file, name in named - {("…", "")}:
        ends, says = "/" + file if file != "…" else "", f"def {name}(" if name else ""
        assert [path for path, text in tests.items() if path.endswith(ends) and says in text], (file, name)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with blocks.serving(tmp_path_factory.mktemp("service")) as variables:
        yield variables


def _pages() -> Iterator[Any]:
    for name, text in TEXTS.items():
        if blocks.blocks(text):
            yield pytest.param(name, marks=[pytest.mark.thorough] if blocks.runs_at_night(text) else [])


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(_pages()))
def test_every_python_example_runs_and_prints_what_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = TEXTS[name]
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "home"))
    if blocks.needs_service(text):
        for variable, value in request.getfixturevalue("service").items():
            monkeypatch.setenv(variable, value)
    folder = tmp_path / "work"
    folder.mkdir()
    if "<!-- needs: open weights -->" in text:
        config = write_model(folder / "weights" / "s2-pro", "s2-pro") / "config.json"
        values = config.read_text().replace('"max_seq_len": 512', '"max_seq_len": 4096')
        config.write_text(values)  # room for recordings
        save_codec(config.with_name("codec.pth"), tiny_tensors(REAL_TIME))
        monkeypatch.setenv("VOICELAB_ACCEPT_LICENSE", "fish-audio-research")
    monkeypatch.chdir(folder)
    printed = blocks.outputs(text, str(ROOT / name))
    gc.collect()  # what a page leaves open is closed here, and a warning belongs to it
    expected = [block.output for block in blocks.blocks(text)]
    assert blocks.true(text, printed), f"{expected} {printed}: python docs/make/blocks.py --write {name}"


def test_an_output_that_is_not_true_is_found() -> None:
    page = "# A\n\n```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nx = 3\n```\n\nIt is.\n"
    assert [block.output for block in blocks.blocks(page)] == ["2\n", None]
    printed = blocks.outputs(page, "a.md")
    assert not blocks.true(page, printed)
    assert blocks.rewritten(page, printed) == page.replace("2\n", "1\n")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("p 0.6090 of 8 takes", "p 0.6101 of 8 takes", True),
        ("p 0.6090 of 8 takes", "p 0.7200 of 8 takes", False),
        ("p 0.6090 of 8 takes", "p 0.6090 of 9 takes", False),
        ("True", "False", False),
        ("one 1", "one 1 2", False),
    ],
)
def test_measured_numbers_may_round_otherwise_and_nothing_else(expected: str, printed: str, same: bool) -> None:
    assert blocks.agree(expected, printed) is same


def test_an_error_in_an_example_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        blocks.outputs("# A\n\n```python\nx = 1\nx / 0\n```\n", "a.md")
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno) == ("a.md", 4)


def test_the_first_example_of_say_runs(tmp_path: Path) -> None:
    line = next(line for line in _lines() if line.startswith("voicelab say ") and "canoe" in line)
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
    (audio,) = tmp_path.glob("canoe.*")
    assert audio.stat().st_size > 1000


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_inside_the_repository_leads_somewhere(path: Path) -> None:
    made = {(ROOT / "docs" / uri).resolve() for uri in reference.PAGES}
    text = re.sub(r"`[^`\n]*`", "", path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        there = (path.parent / target).resolve()
        assert there.exists() or there in made, target


def test_every_public_name_is_on_a_page_of_the_reference() -> None:
    assert names.unplaced() == []


@pytest.mark.parametrize("path", sorted({path for page in names.PAGES.values() for path in page.beside}))
def test_every_name_on_a_page_of_the_reference_exists(path: str) -> None:
    assert pkgutil.resolve_name(path) is not None


def test_the_reference_has_every_field_and_every_option() -> None:
    fields = reference.fields()
    assert "| `temperature` | number | `0.7` | 0 to 1 |" in fields
    assert "| `text` | string | **required** | not empty |" in fields
    assert "| `latency` | choice | `normal` | `low`, `normal`, `balanced` |" in fields
    options = reference.command_line()
    assert [command for command in COMMANDS if f"\n## {command}\n" not in options] == []
    assert "`--early-stop-threshold NUMBER`" in options


def test_every_variable_of_the_environment_is_in_the_documents() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "voicelab").rglob("*.py"))
    named = {name for text in sources for name in re.findall(r"\bVOICELAB_[A-Z_]+\b", text)}
    page = TEXTS["docs/reference/environment.md"]
    assert {name for name in named if name not in page} == set()
