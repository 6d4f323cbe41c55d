"""English pronunciation: lexicon, spelled letters, homographs in context, and the G2P model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from training.guess import GuesserModule
from voicelab.engine.pointer.config import PAUSES, PHONES
from voicelab.engine.pointer.english import (
    LETTER_IDS,
    LETTERS,
    MAX_LETTERS,
    PER_LETTER,
    Guesser,
    Lexicon,
    PronunciationTable,
    arpabet_of_ipa,
    load_guess,
    load_lexicon,
    plural,
    with_accents,
)
from voicelab.engine.pointer.front import FrontEnd
from voicelab.errors import WeightsError
from voicelab.text import normalize
from voicelab.text.clean import pairs


def _stub(word: str) -> tuple[str, ...]:
    """A recognizable G2P stub: one vowel per letter."""
    return ("oy1",) * len(word)


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return Lexicon(_stub)


def _said(lexicon: Lexicon, word: str, after: str = "") -> str:
    return " ".join(lexicon.pronounce(word, after))


WORDS = {
    "contractions": {
        "I'm": "ay1 m",
        "I've": "ay1 v",
        "I'd": "ay1 d",
        "I'll": "ay1 l",
        "don't": "d ow1 n t",
        "DON'T": "d ow1 n t",
        "won't": "w ow0 n t",
        "it's": "ih0 t s",
        "we're": "w ih0 r",
        "o'clock": "ax0 k l aa1 k",
    },
    "letters by name": {
        "US": "y uw1 eh1 s",
        "HTML": "ey1 ch t iy1 eh1 m eh1 l",
        "UK's": "y uw1 k ey1 z",
        "US's": "y uw1 eh1 s ax0 z",
        "tv": "t iy1 v iy1",
        "UCLA": "y uw1 s iy1 eh1 l ey1",
        "ESPN": "iy1 eh1 s p iy1 eh1 n",
        "ADHD": "ey1 d iy1 ey1 ch d iy1",
        "PhD": "p iy1 ey1 ch d iy1",
        "PhDs": "p iy1 ey1 ch d iy1 z",
        "MPs": "eh1 m p iy1 z",
        "mRNA": "eh1 m aa1 r eh1 n ey1",
        "iOS": "ay1 ow1 eh1 s",
        "pH": "p iy1 ey1 ch",
        "X": "eh1 k s",
        "x": "eh1 k s",
        "I": "ay1",
    },
    "acronyms that are said as words": {
        "RAM": "r ae1 m",
        "JPEG": "jh ey1 p eh1 g",
        "NATO": "n ey1 t ow0",
        "GANs": "g ae1 n z",
        "WAV": "w ey1 v",
        "NumPy": "n ah1 m p ay0",
        "kHz": "k ih1 l ax0 hh er1 t s",
    },
}


@pytest.mark.parametrize(
    ("word", "phones"),
    [pytest.param(w, p, id=f"{group}-{w}") for group, rows in WORDS.items() for w, p in rows.items()],
)
def test_pronunciations(lexicon: Lexicon, word: str, phones: str) -> None:
    assert _said(lexicon, word) == phones


def test_exceptions_follow_their_table(lexicon: Lexicon) -> None:
    for word, phones in pairs("english/exceptions").items():
        assert _said(lexicon, word) == phones
        assert _said(lexicon, word.capitalize()) == phones


@pytest.mark.parametrize("word", ["dog", "cat", "horse", "boss", "church", "judge", "garage", "fish", "boy", "book"])
def test_possessive_adds_the_plural_sound(lexicon: Lexicon, word: str) -> None:
    stem = lexicon.pronounce(word)
    assert lexicon.pronounce(f"{word}'s") == (*stem, *plural(stem[-1]))


def test_the_apostrophe_after_a_plural_is_silent(lexicon: Lexicon) -> None:
    assert lexicon.pronounce("dogs'") == lexicon.pronounce("dogs")
    assert lexicon.pronounce("James'") == lexicon.pronounce("James")


@pytest.mark.parametrize(
    ("last", "sound"), [("k", "s"), ("th", "s"), ("g", "z"), ("ow1", "z"), ("s", "ax0 z"), ("jh", "ax0 z")]
)
def test_plural_sound(last: str, sound: str) -> None:
    assert " ".join(plural(last)) == sound


def test_plural_not_in_the_lexicon(lexicon: Lexicon) -> None:
    known = load_lexicon()
    word = next(w for w in sorted(known) if w.endswith("ck") and len(w) > 6 and f"{w}s" not in known)
    assert lexicon.pronounce(f"{word}s") == (*known[word].split(" "), "s")


@pytest.mark.parametrize(
    ("after", "sound"), [("ae1", "iy0"), ("ax0", "iy0"), ("k", "ax0"), ("y", "ax0"), ("hh", "ax0"), ("", "ax0")]
)
def test_the_before_a_vowel(lexicon: Lexicon, after: str, sound: str) -> None:
    for word in ("the", "The", "THE"):
        assert _said(lexicon, word, after) == f"dh {sound}"


def test_a_is_the_article_except_as_single_capital(lexicon: Lexicon) -> None:
    assert _said(lexicon, "a", "k") == "ax0"
    assert _said(lexicon, "A", "k") == "ax0"
    assert _said(lexicon, "a") == "ax0"
    assert _said(lexicon, "A") == "ey1"


def test_acronyms_read_as_words(lexicon: Lexicon) -> None:
    assert lexicon.pronounce("NASA") == lexicon.pronounce("nasa")
    assert lexicon.pronounce("NASA's") == (*lexicon.pronounce("nasa"), "z")
    assert lexicon.pronounce("us") != lexicon.pronounce("US")


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
def test_camel_case_is_read_in_parts(lexicon: Lexicon, word: str, parts: tuple[str, ...]) -> None:
    said = tuple(p.rstrip("01") for p in lexicon.pronounce(word))
    assert said == tuple(p.rstrip("01") for part in parts for p in lexicon.pronounce(part, "k"))


def test_known_camel_case_is_not_split(lexicon: Lexicon) -> None:
    for word in ("YouTube", "McDonald", "JavaScript", "PayPal", "GitHub"):
        assert lexicon.pronounce(word) == lexicon.pronounce(word.lower())


def test_unknown_word_uses_the_g2p_model(lexicon: Lexicon) -> None:
    assert lexicon.pronounce("Zorbing") == _stub("zorbing")
    assert lexicon.pronounce("Zorbing's") == (*_stub("zorbing"), "z")


def test_lexicon_entry_without_vowel_uses_the_g2p_model(lexicon: Lexicon) -> None:
    assert lexicon.look_up("braer") is None  # it has an entry without a vowel
    assert lexicon.pronounce("braer") == _stub("braer")
    assert lexicon.pronounce("hmm") == lexicon.look_up("hmm")


def test_long_capital_strings_are_not_spelled(lexicon: Lexicon) -> None:
    asked = []

    def note(word: str) -> tuple[str, ...]:
        asked.append(word)
        return ("b",)

    assert Lexicon(note).pronounce("B" * 20_000) == ("b",)
    assert asked == ["b" * 20_000]


def test_table_finds_every_word_and_no_other() -> None:
    lines = ["'em\tax0 m", "a\tey1", "ab\tae1 b", "abs\tae1 b z", "b\tb iy1", "bee\tb iy1"]
    for count in range(len(lines) + 1):
        table = PronunciationTable("".join(f"{line}\n" for line in lines[:count]))
        assert [f"{word}\t{table[word]}" for word in table] == lines[:count]
        assert len(table) == count
        assert not any(word in table for word in ("", "'", "aa", "absz", "be", "z"))
    assert (table.word("b iy1"), table.word("ax0 m"), table.word("iy1")) == ("b", "'em", "")


def test_lexicon_is_within_the_inventory(lexicon: Lexicon) -> None:
    # `values` searches for every word, which fails if the file is not sorted.
    names = {name for phones in load_lexicon().values() for name in phones.split(" ")}
    assert names <= set(PHONES[1:]) - set(PAUSES)
    assert {p for phones in LETTERS.values() for p in phones} <= set(PHONES)
    assert set(LETTERS) == set("abcdefghijklmnopqrstuvwxyz")
    assert len(load_lexicon()) > 100_000


FRONT = FrontEnd(Lexicon(lambda _: ("z", "oy1", "b")))


def _said_in(sentence: str, word: str) -> str:
    read = FRONT.read(sentence)
    first, after = next((a, b) for name, a, b in read.words if name.lower() == word)
    return " ".join(PHONES[i] for i in read.phones[first:after])


@pytest.mark.parametrize(
    ("sentence", "word", "phones"),
    [
        ("I want to read it.", "read", "r iy1 d"),
        ("I have read it.", "read", "r eh1 d"),
        ("Read the book.", "read", "r iy1 d"),
        ("She read the book.", "read", "r eh1 d"),
        ("They will lead us.", "lead", "l iy1 d"),
        ("It is lead paint.", "lead", "l eh1 d"),
        ("A pipe made of lead.", "lead", "l eh1 d"),
        ("We live in Rome.", "live", "l ih1 v"),
        ("This is live music.", "live", "l ay1 v"),
        ("We go live now.", "live", "l ay1 v"),
        ("We are live!", "live", "l ay1 v"),
        ("We watch live demos.", "live", "l ay1 v"),
        ("They live sessions apart.", "live", "l ih1 v"),
        ("She lives in Rome.", "lives", "l ih1 v z"),
        ("Anna lives alone.", "lives", "l ih1 v z"),
        ("The man who lives nearby.", "lives", "l ih1 v z"),
        ("Their lives here.", "lives", "l ay1 v z"),
        ("It saves lives in war.", "lives", "l ay1 v z"),
        ("People's lives in danger.", "lives", "l ay1 v z"),
        ("Nine lives.", "lives", "l ay1 v z"),
        ("A bass guitar.", "bass", "b ey1 s"),
        ("Fried sea bass.", "bass", "b ae1 s"),
        ("Go bass fishing.", "bass", "b ae1 s"),
        ("We convert text.", "convert", "k ax0 n v er1 t"),
        ("Convert text to speech.", "convert", "k ax0 n v er1 t"),
        ("It converts text.", "converts", "k ax0 n v er1 t s"),
        ("He is a convert.", "convert", "k aa1 n v er0 t"),
        ("The new converts.", "converts", "k aa1 n v er0 t s"),
        ("The wind is cold.", "wind", "w ih1 n d"),
        ("Wind up the clock.", "wind", "w ay1 n d"),
        ("They wound up lost.", "wound", "w aw1 n d"),
        ("A deep wound.", "wound", "w uw1 n d"),
        ("Close the door.", "close", "k l ow1 z"),
        ("They will close soon.", "close", "k l ow1 z"),
        ("It is close to us.", "close", "k l ow1 s"),
        ("It was a close call.", "close", "k l ow1 s"),
        ("What is the use of it?", "use", "y uw1 s"),
        ("You can use it.", "use", "y uw1 z"),
        ("Many people use phones.", "use", "y uw1 z"),
        ("It is of no use.", "use", "y uw1 s"),
        ("Set a new record.", "record", "r eh1 k er0 d"),
        ("We record it.", "record", "r ih0 k ao1 r d"),
        ("He got a present.", "present", "p r eh1 z ax0 n t"),
        ("I will present it.", "present", "p r ih0 z eh1 n t"),
        ("That is an object.", "object", "aa1 b jh eh0 k t"),
        ("I object!", "object", "ax0 b jh eh1 k t"),
        ("We eat fresh produce.", "produce", "p r ow1 d uw0 s"),
        ("The produce is fresh.", "produce", "p r ow1 d uw0 s"),
        ("They separate them.", "separate", "s eh1 p er0 ey0 t"),
        ("Yesterday he read it, she will learn.", "read", "r eh1 d"),
        ("I read it yesterday. We go every day.", "read", "r eh1 d"),
    ],
)
def test_homographs_in_context(sentence: str, word: str, phones: str) -> None:
    assert _said_in(sentence, word) == phones


def test_context_ends_at_a_pause() -> None:
    assert _said_in("To me, use is all.", "use") == "y uw1 s"
    assert _said_in("I said to, record of records!", "record") == "r eh1 k er0 d"


@pytest.mark.parametrize(
    ("written", "phones", "word"),
    [
        ("Touché!", "t uw0 sh ey1 .", "touche"),
        ("résumés", "r eh1 z ax0 m ey0 z .", "resumes"),
        ("Beyoncé's", "b iy0 aa1 n s ey0 z .", "beyonce's"),
        ("jalapeño", "hh aa1 l ax0 p ey1 n y ow0 .", "jalapeno"),
    ],
)
def test_accents_are_looked_up_as_written(written: str, phones: str, word: str) -> None:
    read = FrontEnd(Lexicon(load_guess())).read(normalize(with_accents(written)).text)
    assert " ".join(PHONES[phone] for phone in read.phones[1:]).replace("!", ".") == phones
    assert read.words[0][0] == word
    assert with_accents("Zoltan's résumés, straße").endswith(", straße")


@pytest.mark.parametrize(
    ("ipa", "arpabet", "unknown"),
    [
        ("ɹid", "R IY1 D", ""),
        ("təˈmeɪtoʊ", "T AH0 M EY1 T OW0", ""),
        ("ˈtʃɜːrtʃ", "CH ER1 CH", ""),
        ("bɹɪd͡ʒ", "B R IH1 JH", ""),
        ("ʘa", "", "ʘ"),
    ],
)
def test_ipa_becomes_arpabet(ipa: str, arpabet: str, unknown: str) -> None:
    assert arpabet_of_ipa(ipa) == (arpabet, unknown)


SOUNDS = set(PHONES[1:]) - set(PAUSES)


@pytest.mark.parametrize("word", ["voicelab", "zorbing", "flimsington", "krumple", "snarfblatt", "d'artanyan"])
def test_g2p_output_is_pronounceable(word: str) -> None:
    found = load_guess()(word)
    assert set(found) <= SOUNDS
    assert any(p[-1] in "01" for p in found)
    assert len(word) / 3 <= len(found) <= 1.3 * len(word)


def test_g2p_matches_the_lexicon() -> None:
    """Most consonants of common words are correct; a broken model would get almost none."""
    guess, right, all_words = load_guess(), 0, 0
    for word, phones in sorted(load_lexicon().items())[::2500]:
        if not word.isalpha() or len(word) < 4:
            continue
        wanted = [p for p in phones.split(" ") if p[-1] not in "01"]
        right += [p for p in guess(word) if p[-1] not in "01"] == wanted
        all_words += 1
    assert all_words > 30
    assert right > 0.6 * all_words


def test_long_words_are_truncated() -> None:
    guess = load_guess()
    assert guess("lolo" * 10_000) == guess(("lolo" * 10_000)[:MAX_LETTERS])


def test_word_without_letters_is_empty() -> None:
    assert load_guess()("123") == ()


def _always(phone: int, *blank_at: int) -> Guesser:
    with torch.no_grad():
        module = GuesserModule()
        module.out.weight.zero_()
        module.out.bias.zero_()
        module.out.bias.view(PER_LETTER, -1)[:, phone] = 5
        module.out.bias.view(PER_LETTER, -1)[blank_at, 0] = 9
    return module.words()


def test_ctc_decoding_merges_repeats_and_drops_blanks() -> None:
    assert _always(PHONES.index("b")).guess("abc") == ("b",)
    assert _always(0).guess("ab") == (*LETTERS["a"], *LETTERS["b"])  # nothing was guessed: it is spelled
    model = _always(PHONES.index("b"), 1)
    assert model.guess("abc") == ("b",) * 4  # b _ b|b _ b|b _ b: a blank parts them


def test_padding_does_not_change_output() -> None:
    """In training; and the model without it equals that in numpy."""
    torch.manual_seed(0)
    model = GuesserModule().eval()
    one = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(
        model(torch.tensor([[1, 2, 3, 0, 0], [5, 6, 7, 8, 9]]))[0, : 3 * PER_LETTER],
        model(one)[0],
        atol=1e-4,
        rtol=1e-4,
    )
    letters = [1 + i % (len(LETTER_IDS) - 1) for i in range(100)]
    scores = torch.from_numpy(model.words().scores(letters)).log_softmax(-1)
    torch.testing.assert_close(model(torch.tensor([letters]))[0], scores, atol=1e-4, rtol=1e-4)


def test_g2p_is_cached() -> None:
    guess = load_guess()
    assert guess("zorbing") is guess("zorbing")


@pytest.mark.parametrize("kind", ["missing", "damaged", "foreign"])
def test_unreadable_g2p_weights_are_rejected(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "strange.safetensors"
    if kind == "damaged":
        path.write_bytes(b"\x10\0\0\0\0\0\0\0{")
    elif kind == "foreign":
        save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(WeightsError, match=r"strange\.safetensors"):
        load_guess(path)
