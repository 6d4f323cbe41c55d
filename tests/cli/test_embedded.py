"""``voicelab say`` with the voice inside the package: nothing but the program and its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

import voicelab
from tests.cli.conftest import Run
from voicelab.call import Call
from voicelab.schema import TTSRequest

TEXT = "A seed repeats."


def test_it_says_what_the_library_says(run: Run) -> None:
    done = run.well(
        *("say", TEXT, "-o", "a.pcm", "--seed", "7", "--temperature", "0.5", "--sample-rate", "16000"),
    )
    assert done.stdout.startswith("a.pcm: ")
    said = Path("a.pcm").read_bytes()
    backend = voicelab.LocalBackend()
    try:
        request = TTSRequest.build(text=TEXT, temperature=0.5, format="pcm", sample_rate=16000)
        assert said == b"".join(backend.synthesize(Call(request, seed=7)))
    finally:
        backend.close()
    # The bytes are speech: more than a third of a second of it, and not all the same.
    assert len(said) > 2 * 16000 / 3
    assert len(set(said)) > 50


def test_another_seed_says_it_otherwise(run: Run, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        run.well("say", TEXT, "-o", f"{seed}.wav", "--seed", seed, "--temperature", "1", "--top-p", "1")
    assert (tmp_path / "1.wav").read_bytes() != (tmp_path / "2.wav").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("!?… —",), "text: "),
        (("word " * 5000,), "text: "),
        (("Hello.", "--voice", "nobody"), "reference_id: "),
        (("Hello.", "--reference", "noise.wav"), "reference"),
        (("Hello.", "--device", "abacus"), "abacus"),
    ],
    ids=["only symbols", "too long", "unknown voice", "no audio", "unknown device"],
)
def test_what_it_cannot_do_is_one_line(run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "noise.wav").write_bytes(b"this is no audio")
    assert said in run.refused("say", *arguments, "-o", "a.wav")
    assert not (tmp_path / "a.wav").exists()
