from __future__ import annotations

import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from voicelab import errors


def _classes() -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }


def test_the_docstring_draws_the_tree_as_it_is() -> None:
    drawn = re.findall(r"^    [│ ]*(?:[├└]── )?(\w+)(?: \((\w+)\))?", errors.__doc__ or "", flags=re.MULTILINE)
    assert {name for name, _ in drawn} == set(_classes())
    for name, builtin in drawn:
        named = [base.__name__ for base in _classes()[name].__bases__ if base.__module__ == "builtins"]
        assert named == ([builtin] if builtin else ["Exception"] if name == "VoicelabError" else [])


def test_all_lists_every_error() -> None:
    assert set(errors.__all__) == {*_classes(), "DISTRIBUTION", "FieldError", "install_command", "suggestion"}


@pytest.mark.parametrize(
    ("typed", "near"),
    [("temp", "temperature"), ("temprature", "temperature"), ("speed", ""), ("zzz", ""), ("sped", "speed")],
)
def test_a_suggestion_is_what_was_meant_or_nothing(typed: str, near: str) -> None:
    said = errors.suggestion(typed, ["temperature", "top_p", "speed"])
    assert said == (f"; did you mean {near}?" if near else "")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.RequestInvalid.of("text", "is empty"), ValueError),
        (errors.ArgumentError.of("p_values", "there are none"), ValueError),
        (errors.NotFound("no such voice", status=404), LookupError),
        (errors.ServiceTimeout("no answer in 3 s"), TimeoutError),
        (errors.AudioError("truncated"), ValueError),
        (errors.WeightsError("digest differs"), RuntimeError),
        (errors.MissingExtra.of("local", "the embedded voice"), ImportError),
    ],
)
def test_an_error_is_also_the_builtin_that_fits(error: Exception, builtin: type[Exception]) -> None:
    assert isinstance(error, builtin)
    assert isinstance(error, errors.VoicelabError)


def test_request_invalid_names_every_field() -> None:
    error = errors.RequestInvalid(
        (
            errors.FieldError(("body", "prosody", "speed"), "less_than_equal", "must be 2.0 or less"),
            errors.FieldError(("header", "model"), "enum", "must be s1 or s2-pro", in_="header"),
        )
    )
    assert str(error) == "prosody.speed: must be 2.0 or less; model: must be s1 or s2-pro"


def test_an_argument_is_named_and_is_no_field_of_a_request() -> None:
    error = errors.ArgumentError.of("p_values", "there are none")
    assert (str(error), error.argument) == ("p_values: there are none", "p_values")
    assert not isinstance(error, errors.RequestInvalid)


def test_a_refusal_that_never_left_has_no_answer() -> None:
    error = errors.RequestInvalid.of("text", "is empty")
    assert (error.status, error.body, error.request_id) == (None, None, None)


def test_a_field_error_on_the_wire() -> None:
    (error,) = errors.RequestInvalid.of("prosody.speed", "too fast", type="less_than_equal").errors
    assert error.to_wire() == {
        "loc": ["body", "prosody", "speed"],
        "type": "less_than_equal",
        "msg": "too fast",
        "in": "body",
    }
    assert errors.FieldError(("path", "id"), "t", "m", ctx="more", in_=None).to_wire() == {
        "loc": ["path", "id"],
        "type": "t",
        "msg": "m",
        "ctx": "more",
    }


@pytest.mark.parametrize(
    "error",
    [
        errors.RequestInvalid.of("text", "is empty"),
        errors.RequestInvalid((errors.FieldError(("body",), "t", "m"),), status=422, body=b"[]", request_id="r1"),
        errors.ArgumentError.of("p_values", "there are none"),
        errors.StreamTruncated("cut", partial=b"RIFF", status=200, request_id="r1"),
        errors.ServiceTimeout("late", status=None),
        errors.MissingExtra.of("local", "the voice"),
    ],
)
def test_errors_cross_a_process_boundary_whole(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


_REPOSITORY = {
    "url": "https://host/a/b.git",
    "vcs_info": {"vcs": "git", "commit_id": "40ac", "requested_revision": "main"},
}


@pytest.mark.parametrize(
    ("record", "command"),
    [
        (None, "pip install 'jupyter-voicelab[local]'"),
        ({"url": "file:///a%20clone/of%27it", "dir_info": {}}, """pip install '/a clone/of'"'"'it[local]'"""),
        ({"url": "file:///clone", "dir_info": {"editable": False}}, "pip install '/clone[local]'"),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, "pip install -e '/clone[local]'"),
        (
            {"url": "file:///dist/jupyter_voicelab-9.0-py3-none-any.whl", "archive_info": {"hashes": {}}},
            "pip install 'jupyter-voicelab[local] @ file:///dist/jupyter_voicelab-9.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://host/voicelab-9.0.tar.gz", "archive_info": {}},
            "pip install 'jupyter-voicelab[local] @ https://host/voicelab-9.0.tar.gz'",
        ),
        (_REPOSITORY, "pip install 'jupyter-voicelab[local] @ git+https://host/a/b.git@40ac'"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="folders look otherwise there")
def test_an_extra_is_installed_from_where_the_package_came(
    record: dict[str, object] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "jupyter_voicelab-9.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: jupyter-voicelab\nVersion: 9.0\n")
    if record is not None:
        (installed / "direct_url.json").write_text(json.dumps(record))
    monkeypatch.syspath_prepend(tmp_path)
    assert errors.install_command("local") == command
    assert "[" not in errors.install_command()
    assert command in str(errors.MissingExtra.of("local", "the embedded voice"))


def test_a_folder_that_was_never_installed_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "voicelab"
    folder.mkdir()
    for name in ("errors.py", "display.py"):
        shutil.copy(Path(errors.__file__).with_name(name), folder)
    (folder / "__init__.py").touch()
    (tmp_path / "pyproject.toml").touch()
    # Without the folders in which packages are installed.
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from voicelab.errors import *; print(install_command('x'))"
    )
    done = subprocess.run([sys.executable, "-ISc", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == f"pip install -e '{tmp_path}[x]'"
