"""The guess at unknown words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from voicelab.engine.text.english.pronunciation import LETTERS, LONGEST, PER_LETTER, Guesser, load_guess, load_lexicon
from voicelab.engine.text.phones import PAUSES, PHONES
from voicelab.errors import WeightsError

SOUNDS = set(PHONES[1:]) - set(PAUSES)


@pytest.mark.parametrize("word", ["voicelab", "zorbing", "flimsington", "krumple", "snarfblatt", "d'artanyan"])
def test_the_embedded_weights_give_something_that_can_be_said(word: str) -> None:
    found = load_guess()(word)
    assert set(found) <= SOUNDS
    assert any(p[-1] in "01" for p in found)
    assert len(word) / 3 <= len(found) <= 1.3 * len(word)


def test_the_embedded_weights_have_learned_the_lexicon() -> None:
    """Most consonants of common words come out; a guess that is broken gets next to none of them."""
    guess, right, all_words = load_guess(), 0, 0
    for word, phones in sorted(load_lexicon().items())[::2500]:
        if not word.isalpha() or len(word) < 4:
            continue
        wanted = [p for p in phones.split(" ") if p[-1] not in "01"]
        right += [p for p in guess(word) if p[-1] not in "01"] == wanted
        all_words += 1
    assert all_words > 30
    assert right > 0.6 * all_words


def test_what_is_longer_than_any_word_is_cut() -> None:
    guess = load_guess()
    assert guess("lolo" * 10_000) == guess(("lolo" * 10_000)[:LONGEST])


def test_a_word_without_letters_is_nothing() -> None:
    assert load_guess()("123") == ()


def _always(phone: int) -> Guesser:
    model = Guesser()
    model.out.weight.data.zero_()
    bias = torch.zeros(PER_LETTER, len(PHONES))
    bias[:, phone] = 5
    model.out.bias.data.copy_(bias.flatten())
    return model


def test_repeats_are_one_and_blanks_are_none() -> None:
    assert _always(PHONES.index("b")).guess("abc") == ("b",)
    assert _always(0).guess("ab") == (*LETTERS["a"], *LETTERS["b"])  # nothing was guessed: it is spelled
    model = _always(PHONES.index("b"))
    model.out.bias.data.view(PER_LETTER, -1)[1, 0] = 9
    assert model.guess("abc") == ("b",) * 4  # b _ b|b _ b|b _ b: a blank parts them


def test_padding_changes_no_word() -> None:
    torch.manual_seed(0)
    model = Guesser().eval()
    one = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(
        model(torch.tensor([[1, 2, 3, 0, 0], [5, 6, 7, 8, 9]]))[0, : 3 * PER_LETTER],
        model(one)[0],
        atol=1e-4,
        rtol=1e-4,
    )


def test_the_memory_knows_what_was_asked() -> None:
    guess = load_guess()
    assert guess("zorbing") is guess("zorbing")


@pytest.mark.parametrize("kind", ["missing", "damaged", "foreign"])
def test_weights_that_cannot_be_read_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "strange.safetensors"
    if kind == "damaged":
        path.write_bytes(b"\x10\0\0\0\0\0\0\0{")
    elif kind == "foreign":
        save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(WeightsError, match=r"strange\.safetensors"):
        load_guess(path)
