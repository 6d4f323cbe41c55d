"""Backends by address: built-in ones, and entry points of other packages, working and broken."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

import voicelab as vl
from tests.tones import ToneBackend
from voicelab.backend import Backend
from voicelab.backends.registry import BUILT_IN, GROUP, open_backend, split_address
from voicelab.errors import EngineError, MissingExtra, RequestInvalid

_MODULE = """
from tests.tones import ToneBackend

def open_tones(address, *, device=None):
    return ToneBackend(name=f"tones at {address}", device=device or "cpu")

def open_nothing(address):
    return 3

word = "tones"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with entry points."""
    (tmp_path / "tonepack.py").write_text(_MODULE)
    info = tmp_path / "tonepack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tonepack\nVersion: 1.0\nSummary: notes for words\n")
    targets = {"tones": "open_tones", "nothing": "open_nothing", "word": "word", "absent": "open_absent"}
    entries = [f"{name} = tonepack:{target}" for name, target in targets.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *entries, "broken = tonepacks_other:open"]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tonepack", raising=False)


def test_built_in_backends_equal_the_entry_points() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    expected = {name: f"{item.target} [{item.extra}]" if item.extra else item.target for name, item in BUILT_IN.items()}
    assert project["entry-points"][GROUP] == expected
    assert {item.extra for item in BUILT_IN.values() if item.extra} <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (None, ("local", "")),
        ("", ("local", "")),
        ("local:", ("local", "")),
        ("local:/a/b", ("local", "/a/b")),
        ("replay:C:\\takes", ("replay", "C:\\takes")),
        ("https://voice.example", ("service", "https://voice.example")),
        ("HTTP://voice.example", ("service", "HTTP://voice.example")),
        ("service:https://voice.example", ("service", "https://voice.example")),
    ],
)
def test_addresses_are_split(address: str | None, expected: tuple[str, str]) -> None:
    assert split_address(address) == expected


@pytest.mark.usefixtures("package")
def test_backend_of_another_package_is_opened() -> None:
    with vl.connect("tones:there", device="moon", top_p=0.5) as lab:
        assert isinstance(lab.backend, Backend)
        assert (lab.capabilities.name, lab.capabilities.device) == ("tones at there", "moon")
        assert lab.factory is not None
        assert isinstance(lab.factory(), ToneBackend), "a worker process must be able to open it"
    listed = {item.name: item for item in vl.available_backends()}
    assert [*BUILT_IN] == [*listed][: len(BUILT_IN)]
    assert (listed["tones"].form, listed["tones"].summary, listed["tones"].distribution) == (
        "tones:",
        "notes for words",
        "tonepack",
    )


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "broken:",
            "'broken' of tonepack cannot be imported: ModuleNotFoundError: .*tonepacks_other.*remove the package",
        ),
        ("absent:", "'absent' of tonepack cannot be imported: AttributeError"),
        ("word:", "'word' of tonepack must be a function, got a str"),
        ("nothing:", "'nothing' of tonepack returned a int without capabilities, synthesize"),
    ],
)
def test_broken_entry_points_are_named(address: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        open_backend(address)


@pytest.mark.usefixtures("package")
def test_unknown_backends_and_options_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestInvalid, match=r"backend: unknown backend 'kolibri'; available: local, .*tones"):
        vl.connect("kolibri:")
    for typed, hint in (
        ("tone", r"did you mean tones\?"),
        ("kolibri", "available: local"),
    ):
        with pytest.raises(RequestInvalid, match=f"backend: unknown backend '{typed}'; {hint}"):
            vl.connect(typed)
    assert vl.connect("tones").capabilities.name.startswith("tones")
    with pytest.raises(RequestInvalid, match="api_key: the backend 'tones' does not accept"):
        open_backend("tones:", api_key="k")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"the device 'cuda' requires .*pip install .*\[gpu\]"):
        open_backend("local:", device="cuda")
