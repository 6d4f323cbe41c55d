"""Systems by their names, and who taught whom."""

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
def test_whoever_taught_a_system_is_known(name: str, teacher: str | None) -> None:
    assert systems.taught_by(name) == teacher


@pytest.mark.parametrize("name", ["nobody", "kokoro", "flite:", "old:nobody"])
def test_an_unknown_system_is_named(name: str) -> None:
    with pytest.raises(SystemExit, match="nobody" if "nobody" in name else name):
        systems.speak(name, "hello")


def test_older_weights_need_a_name() -> None:
    with pytest.raises(SystemExit, match="--against"):
        systems.speak("old:voice", "hello")


def test_there_are_sentences_to_judge_on() -> None:
    for language, count in (("en", 300), ("zh", 60)):
        texts = systems.sentences(300, language)
        assert len(texts) == len(set(texts)) == count
        assert {teaching.language_of(text) for text in texts} == {language}
