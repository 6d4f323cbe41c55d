"""Words to phones."""

from __future__ import annotations

import pytest

from voicelab.engine.text.english.pronunciation import LETTERS, Lexicon, load_lexicon, plural
from voicelab.engine.text.phones import PAUSES, PHONES


def _stub(word: str) -> tuple[str, ...]:
    """A guess that can be told from knowledge: one vowel for each letter."""
    return ("oy1",) * len(word)


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return Lexicon(_stub)


def _said(lexicon: Lexicon, word: str, after: str = "") -> str:
    return " ".join(lexicon.pronounce(word, after))


@pytest.mark.parametrize(
    ("word", "phones"),
    [
        ("I'm", "ay1 m"),
        ("I'M", "ay1 m"),
        ("I've", "ay1 v"),
        ("I'd", "ay1 d"),
        ("I'll", "ay1 l"),
        ("don't", "d ow1 n t"),
        ("DON'T", "d ow1 n t"),
        ("can't", "k ae1 n t"),
        ("won't", "w ow1 n t"),
        ("couldn't", "k uh1 d n t"),
        ("it's", "ih1 t s"),
        ("that's", "dh ae1 t s"),
        ("she's", "sh iy1 z"),
        ("let's", "l eh1 t s"),
        ("who's", "hh uw1 z"),
        ("we're", "w iy1 r"),
        ("you're", "y uw1 r"),
        ("they've", "dh ey1 v"),
        ("o'clock", "ax0 k l aa1 k"),
    ],
)
def test_contractions(lexicon: Lexicon, word: str, phones: str) -> None:
    assert _said(lexicon, word) == phones


@pytest.mark.parametrize("word", ["dog", "cat", "horse", "boss", "church", "judge", "garage", "fish", "boy", "book"])
def test_possessives_are_the_word_and_the_sound_of_its_s(lexicon: Lexicon, word: str) -> None:
    stem = lexicon.pronounce(word)
    assert lexicon.pronounce(f"{word}'s") == (*stem, *plural(stem[-1]))


def test_the_apostrophe_after_a_plural_is_silent(lexicon: Lexicon) -> None:
    assert lexicon.pronounce("dogs'") == lexicon.pronounce("dogs")
    assert lexicon.pronounce("James'") == lexicon.pronounce("James")


@pytest.mark.parametrize(
    ("last", "sound"), [("k", "s"), ("th", "s"), ("g", "z"), ("ow1", "z"), ("s", "ax0 z"), ("jh", "ax0 z")]
)
def test_the_sound_of_an_s(last: str, sound: str) -> None:
    assert " ".join(plural(last)) == sound


def test_a_plural_that_the_lexicon_lacks_is_built(lexicon: Lexicon) -> None:
    known = load_lexicon()
    word = next(w for w in sorted(known) if w.endswith("ck") and len(w) > 6 and f"{w}s" not in known)
    assert lexicon.pronounce(f"{word}s") == (*known[word].split(" "), "s")


@pytest.mark.parametrize(
    ("after", "sound"), [("ae1", "iy0"), ("ax0", "iy0"), ("k", "ax0"), ("y", "ax0"), ("hh", "ax0"), ("", "ax0")]
)
def test_the_before_a_vowel(lexicon: Lexicon, after: str, sound: str) -> None:
    for word in ("the", "The", "THE"):
        assert _said(lexicon, word, after) == f"dh {sound}"


def test_a_is_the_article_unless_it_stands_alone_as_a_capital(lexicon: Lexicon) -> None:
    assert _said(lexicon, "a", "k") == "ax0"
    assert _said(lexicon, "A", "k") == "ax0"
    assert _said(lexicon, "a") == "ax0"
    assert _said(lexicon, "A") == "ey1"


@pytest.mark.parametrize(
    ("word", "phones"),
    [
        ("US", "y uw1 eh1 s"),
        ("BBC", "b iy1 b iy1 s iy1"),
        ("HTML", "ey1 ch t iy1 eh1 m eh1 l"),
        ("TVs", "t iy1 v iy1 z"),
        ("UK's", "y uw1 k ey1 z"),
        ("US's", "y uw1 eh1 s ax0 z"),
        ("tv", "t iy1 v iy1"),
        ("pdf", "p iy1 d iy1 eh1 f"),
        ("FBI", "eh1 f b iy1 ay1"),
        ("UCLA", "y uw1 s iy1 eh1 l ey1"),
        ("ESPN", "iy1 eh1 s p iy1 eh1 n"),
        ("ADHD", "ey1 d iy1 ey1 ch d iy1"),
        ("PhD", "p iy1 ey1 ch d iy1"),
        ("PhDs", "p iy1 ey1 ch d iy1 z"),
        ("MPs", "eh1 m p iy1 z"),
        ("mRNA", "eh1 m aa1 r eh1 n ey1"),
        ("iOS", "ay1 ow1 eh1 s"),
        ("pH", "p iy1 ey1 ch"),
        ("X", "eh1 k s"),
        ("x", "eh1 k s"),
        ("I", "ay1"),
    ],
)
def test_letters_by_name(lexicon: Lexicon, word: str, phones: str) -> None:
    assert _said(lexicon, word) == phones


def test_acronyms_that_are_words_are_said_as_words(lexicon: Lexicon) -> None:
    assert lexicon.pronounce("NASA") == lexicon.pronounce("nasa")
    assert lexicon.pronounce("NASA's") == (*lexicon.pronounce("nasa"), "z")
    assert lexicon.pronounce("us") != lexicon.pronounce("US")


@pytest.mark.parametrize(
    ("word", "phones"),
    [
        ("RAM", "r ae1 m"),
        ("PIN", "p ih1 n"),
        ("GIF", "g ih1 f"),
        ("JPEG", "jh ey1 p eh1 g"),
        ("NAFTA", "n ae1 f t ax0"),
        ("NATO", "n ey1 t ow0"),
        ("GitHub", "g ih1 t hh ah1 b"),
        ("JSON", "jh ey1 s ax0 n"),
        ("YAML", "y ae1 m ax0 l"),
        ("GANs", "g ae1 n z"),
        ("WAV", "w ey1 v"),
        ("CUDA", "k uw1 d ax0"),
        ("NVIDIA", "ih0 n v ih1 d iy0 ax0"),
        ("NumPy", "n ah1 m p ay0"),
        ("Hz", "hh er1 t s"),
        ("kHz", "k ih1 l ax0 hh er1 t s"),
        ("MHz", "m eh1 g ax0 hh er1 t s"),
    ],
)
def test_acronyms_that_are_said_as_words(lexicon: Lexicon, word: str, phones: str) -> None:
    assert _said(lexicon, word) == phones


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("ChatGPT", ("Chat", "GPT")),
        ("camelCase", ("camel", "Case")),
        ("DeepMind", ("Deep", "Mind")),
        ("OpenAI", ("Open", "AI")),
        ("eBook", ("e", "Book")),
        ("O'Neil", ("oh", "Neil")),
    ],
)
def test_a_name_with_capitals_inside_is_said_in_its_parts(lexicon: Lexicon, word: str, parts: tuple[str, ...]) -> None:
    said = tuple(p.rstrip("01") for p in lexicon.pronounce(word))
    assert said == tuple(p.rstrip("01") for part in parts for p in lexicon.pronounce(part, "k"))


def test_names_that_the_lexicon_knows_are_not_taken_apart(lexicon: Lexicon) -> None:
    for word in ("YouTube", "McDonald", "JavaScript", "PayPal", "GitHub"):
        assert lexicon.pronounce(word) == lexicon.pronounce(word.lower())


def test_an_unknown_word_is_guessed_in_lower_case(lexicon: Lexicon) -> None:
    assert lexicon.pronounce("Zorbing") == _stub("zorbing")
    assert lexicon.pronounce("Zorbing's") == (*_stub("zorbing"), "z")


def test_a_word_that_the_lexicon_fails_at_is_guessed(lexicon: Lexicon) -> None:
    assert lexicon.known("skein") is None  # it has an entry without a vowel
    assert lexicon.pronounce("skein") == _stub("skein")
    assert lexicon.pronounce("hmm") == lexicon.known("hmm")


def test_endless_capitals_are_not_spelled_to_the_end(lexicon: Lexicon) -> None:
    asked = []

    def note(word: str) -> tuple[str, ...]:
        asked.append(word)
        return ("b",)

    assert Lexicon(note).pronounce("B" * 20_000) == ("b",)
    assert asked == ["b" * 20_000]


def test_the_whole_lexicon_is_within_the_inventory(lexicon: Lexicon) -> None:
    names = {name for phones in load_lexicon().values() for name in phones.split(" ")}
    assert names <= set(PHONES[1:]) - set(PAUSES)
    assert {p for phones in LETTERS.values() for p in phones} <= set(PHONES)
    assert set(LETTERS) == set("abcdefghijklmnopqrstuvwxyz")
    assert len(load_lexicon()) > 100_000
