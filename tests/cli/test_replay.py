from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tones import ToneBackend
from voicelab.experiments.journal import Journal
from voicelab.experiments.take import Take, render
from voicelab.schema import TTSRequest


@pytest.fixture
def manifest(run: Any, tones: ToneBackend) -> Path:
    """A run of two takes that the tones have made, one of a text that looks like markup and holds a key's place."""
    path = Path("run.jsonl")
    with Journal(path, [tones.capabilities]) as journal:
        for text in ("The birch canoe", "slid [bold]on[/] the smooth planks, and further on than a column is wide"):
            journal.add(render(tones, TTSRequest(text=text, format="wav", sample_rate=8000), seed=3))
    tones.asked.clear()
    return path


def _add_another(path: Path, tones: ToneBackend) -> None:
    take = render(tones, TTSRequest(text="Changed", format="pcm", sample_rate=8000), seed=4)
    with Journal(path, [tones.capabilities]) as journal:
        journal.add(Take(take.provenance, bytes(len(take.audio)), seed=4))


def test_a_run_that_repeats_ends_with_0(run: Any, manifest: Path, service: str, tones: ToneBackend) -> None:
    done = run("replay", str(manifest), "--base-url", service)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "run.jsonl: 2 takes, again by tones on remote"
    assert lines[-1] == "2 takes: 2 identical"
    assert done.stdout.count("identical") == 3
    assert "[bold]" in done.stdout
    assert [seed for _, _, seed in tones.asked] == [3, 3]


def test_a_take_that_differs_ends_with_1_and_says_by_how_much(
    run: Any, manifest: Path, service: str, tones: ToneBackend
) -> None:
    _add_another(manifest, tones)
    done = run("replay", str(manifest), "--base-url", service)
    assert done.exit_code == 1, done.stderr
    assert "2 identical, 1 different" in done.stdout.splitlines()[-1]
    assert "+0.000" in done.stdout
    assert "note: tones declares exact seeds, and 1 takes of its own did not come out the same." in done.stderr


def test_seeds_are_checked_when_asked(run: Any, manifest: Path, service: str) -> None:
    done = run("replay", str(manifest), "--base-url", service, "--check-seeds")
    assert done.exit_code == 0, done.stderr
    assert "seeds: declared exact, observed exact" in done.stdout


def test_what_cannot_be_replayed_ends_with_2(run: Any, manifest: Path, service: str) -> None:
    for path in ("nowhere.jsonl", "run.takes"):
        done = run("replay", path, "--base-url", service)
        assert (done.exit_code, done.stdout) == (2, "")
        assert path in done.stderr
    manifest.write_bytes(manifest.read_bytes().replace(b'{"manifest": 1', b'{"manifest": 9', 1))
    done = run("replay", str(manifest), "--base-url", service)
    assert done.exit_code == 2
    assert "newer voicelab" in done.stderr


def test_takes_may_be_elsewhere(run: Any, manifest: Path, service: str, tones: ToneBackend) -> None:
    _add_another(manifest, tones)
    Path("run.takes").rename("elsewhere")
    done = run("replay", str(manifest), "--base-url", service)
    assert done.exit_code == 1
    assert "cannot be" in done.stdout
    done = run("replay", str(manifest), "--base-url", service, "--takes", "elsewhere")
    assert done.exit_code == 1
    assert "cannot be" not in done.stdout
