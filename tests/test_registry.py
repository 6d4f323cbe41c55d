"""Backends by name: those of this package, those of others by their entry points, and what is wrong with such."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

import voicelab as vl
from tests.tones import ToneBackend
from voicelab.backend import Backend
from voicelab.errors import EngineError, MissingExtra, RequestInvalid
from voicelab.registry import GROUP, OWN, open_backend, split_address

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
    """A package installed in a folder of its own, as pip would leave it."""
    (tmp_path / "tonepack.py").write_text(_MODULE)
    info = tmp_path / "tonepack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tonepack\nVersion: 1.0\nSummary: notes for words\n")
    targets = {"tones": "open_tones", "nothing": "open_nothing", "word": "word", "absent": "open_absent"}
    entries = [f"{name} = tonepack:{target}" for name, target in targets.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *entries, "broken = tonepacks_other:open"]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tonepack", raising=False)


def test_the_package_s_own_entry_points_are_those_that_it_opens_without_being_installed() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = {name: f"{one.target} [{one.extra}]" if one.extra else one.target for name, one in OWN.items()}
    assert project["entry-points"][GROUP] == own
    assert {one.extra for one in OWN.values() if one.extra} <= set(project["optional-dependencies"])


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
def test_an_address_names_a_backend_and_what_it_opens(address: str | None, expected: tuple[str, str]) -> None:
    assert split_address(address) == expected


@pytest.mark.usefixtures("package")
def test_a_backend_of_another_package_is_opened_by_its_name() -> None:
    with vl.connect("tones:there", device="moon", top_p=0.5) as lab:
        assert isinstance(lab.backend, Backend)
        assert (lab.capabilities.name, lab.capabilities.device) == ("tones at there", "moon")
        assert lab.factory is not None
        assert isinstance(lab.factory(), ToneBackend), "as a worker elsewhere opens it"
    listed = {one.name: one for one in vl.backends()}
    assert [*OWN] == [*listed][: len(OWN)]
    assert (listed["tones"].form, listed["tones"].summary, listed["tones"].distribution) == (
        "tones:",
        "notes for words",
        "tonepack",
    )


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("broken:", "'broken' of tonepack cannot be imported: ModuleNotFoundError: .*tonepacks_other.*remove it"),
        ("absent:", "'absent' of tonepack cannot be imported: AttributeError"),
        ("word:", "'word' of tonepack is a str, not a function"),
        ("nothing:", "'nothing' of tonepack gave a int, which lacks capabilities, synthesize"),
    ],
)
def test_an_entry_point_that_does_not_work_is_named_with_what_to_do(address: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        open_backend(address)


@pytest.mark.usefixtures("package")
def test_what_there_is_not_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestInvalid, match=r"backend: there is no backend 'kolibri'; there are local, .*tones"):
        vl.connect("kolibri:")
    for typed, near in (
        ("tone", r"did you mean tones\?"),
        ("tones", "did you mean tones:"),
        ("kolibri", "there are local"),
    ):
        with pytest.raises(RequestInvalid, match=f"backend: there is no backend '{typed}'; {near}"):
            vl.connect(typed)
    with pytest.raises(RequestInvalid, match="api_key: the backend 'tones' takes none"):
        open_backend("tones:", api_key="k")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "voicelab.engine.local", raising=False)
    with pytest.raises(MissingExtra, match=r"the embedded voice needs .*pip install .*\[local\]"):
        open_backend("local:")
