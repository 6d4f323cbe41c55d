"""Systems by name, and their teachers."""

from __future__ import annotations

import pytest
import systems
import teaching


@pytest.mark.parametrize(
    ("name", "teacher"),
    [
        ("voice", "am_michael"),
        ("s1", "am_michael"),
        ("codec", "am_michael"),
        ("voice:clara", "af_kore"),
        ("s1:mei", "zf_xiaoxiao"),
        ("codec:bf_emma", "bf_emma"),
        ("kokoro:af_heart", "af_heart"),
        ("flite:rms", None),
        ("old:voice:clara", "af_kore"),
        ("lab:kokoro:", None),
    ],
)
def test_teacher_of_a_system(name: str, teacher: str | None) -> None:
    assert systems.taught_by(name) == teacher


@pytest.mark.parametrize("name", ["nobody", "kokoro", "flite:", "old:nobody"])
def test_unknown_systems_are_named(name: str) -> None:
    with pytest.raises(SystemExit, match="nobody" if "nobody" in name else name):
        systems.speak(name, "hello")


def test_old_systems_require_against() -> None:
    with pytest.raises(SystemExit, match="--against"):
        systems.speak("old:voice", "hello")


def test_held_out_sentences() -> None:
    for language, count in (("en", 300), ("zh", 60)):
        texts = systems.sentences(300, language)
        assert len(texts) == len(set(texts)) == count
        assert {teaching.language_of(text) for text in texts} == {language}
