from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from training import corpus, plan, render
from training.kokoro import FRAME, Kokoro, Spoken
from training.plan import HELD_OUT_STOCK, PARTS, Part, Request, normalised, speakers


@pytest.fixture
def wordnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A small WordNet whose examples are the held-out sentences and as many others; returns the others."""
    held = corpus.HELDOUT.read_text(encoding="utf-8").splitlines()
    others = [" ".join(["the", *line.rstrip(".!?").split()[::-1]]) for line in held if len(line.split()) < 12]
    for part in ("noun", "verb", "adj", "adv"):
        said = "; ".join(f'"{s}"' for s in (*held, *others))
        (tmp_path / f"data.{part}").write_text(f"0 n 1 | a small plain thing; {said}\n", encoding="latin-1")
    monkeypatch.setattr(corpus, "WORDNET", tmp_path)
    return others


def planned(part: Part, texts: list[str], scale: float = 1.0) -> list[Request]:
    drawn = cycle(texts)
    return list(plan.requests(part, lambda: next(drawn), scale))


def test_held_out_sentences_are_in_no_text(wordnet: list[str]) -> None:
    english = plan.English(1)
    said = [normalised(english.one()) for _ in range(150)]
    held = {s for s in plan.held_out() if len(s.split()) > 3}
    assert not [(h, s) for h in held for s in said if h in s]
    assert sum(normalised(s) in " ".join(said) for s in wordnet) > 30


def test_the_same_seed_draws_the_same_texts(wordnet: list[str]) -> None:
    one, again, other = (plan.English(seed) for seed in (1, 1, 2))
    texts = [one.one() for _ in range(40)]
    assert [again.one() for _ in range(40)] == texts
    assert [other.one() for _ in range(40)] != texts
    assert max(map(len, texts)) <= plan.LONGEST_TEXT


def test_held_out_speakers_have_no_part_in_the_plan() -> None:
    trained = {name: recipe for part in PARTS for name, recipe in speakers(part.name)}
    assert not set(HELD_OUT_STOCK) & {name for recipe in trained.values() for name, _ in recipe}
    every = plan.blends()
    assert len(every) == plan.BLENDS + plan.HELD_OUT_BLENDS
    assert not set(every[plan.BLENDS :]) & set(trained.values())
    assert every == plan.blends()


def test_blends_are_inside_the_hull_and_of_all_kinds() -> None:
    every = plan.blends()
    assert all(abs(sum(w for _, w in recipe) - 1) < 1e-9 and min(w for _, w in recipe) > 0 for recipe in every)
    assert all(len({name for name, _ in recipe}) == len(recipe) for recipe in every)
    pairs = [recipe for recipe in every if len(recipe) == 2]
    across = sum(recipe[0][0][1] != recipe[1][0][1] for recipe in pairs)
    assert 40 < across < len(pairs) - 40
    assert len(every) - len(pairs) > 40


def test_a_small_plan_has_fewer_speakers_not_less_than_a_sentence_of_each() -> None:
    part, text = Part("blend", 2.7, "en", 5), ["One two three four five six seven eight nine ten."]
    assert len({r.speaker for r in planned(part, text)}) == plan.BLENDS
    small = planned(part, text, 0.004)
    assert 100 < len({r.speaker for r in small}) == len(small) < 300


def test_every_speaker_says_his_minutes_in_moods(wordnet: list[str]) -> None:
    part = Part("stock", 2, "en", 5)
    asked = planned(part, ["One two three four five six seven eight nine ten."])
    assert asked == planned(part, ["One two three four five six seven eight nine ten."])
    assert [r.number for r in asked] == list(range(len(asked)))
    for name, recipe in speakers("stock"):
        his = [r for r in asked if r.speaker == name]
        assert {r.recipe for r in his} == {recipe}
        assert 1.9 < sum(len(r.text) / 14.5 / r.speed for r in his) / 60 < 2.2
    slowest, fastest = min(r.speed for r in asked), max(r.speed for r in asked)
    assert 0.9 <= slowest < 0.92
    assert 1.08 < fastest <= 1.1
    assert {r.offset for r in asked} <= set(range(-20, 21))
    # Any beginning of the plan is even: a round takes everybody once.
    assert len({r.speaker for r in asked[:10]}) == 10


def test_every_other_blend_has_the_prosody_of_another_and_keeps_to_a_mood_of_its_own() -> None:
    (part,) = (p for p in PARTS if p.name == "blend")
    asked = planned(part, ["One two three four five six seven eight nine ten."])
    for at, (name, recipe) in enumerate(speakers("blend")[:40]):
        his = [r for r in asked if r.speaker == name]
        assert {r.recipe for r in his} == {recipe}
        assert {bool(r.prosody) for r in his} == {at % 2 == 1}
        assert max(r.speed for r in his) / min(r.speed for r in his) < 1.25**0.6, (
            "others are as far apart as .8 and 1.25"
        )
    assert min(r.speed for r in asked) < 0.85
    assert max(r.speed for r in asked) > 1.18


def test_any_beginning_of_the_plan_has_a_share_of_every_part() -> None:
    counts = {"stock": 40, "mandarin": 20}
    parts = [planned(Part(name, 1, "en", 5), ["One two three."])[:count] for name, count in counts.items()]
    every = plan.mixed(parts)
    assert len(every) == 60
    for size in (6, 15, 30):
        assert sum(r.part == "mandarin" for r in every[:size]) == pytest.approx(size / 3, abs=1)


def test_what_comes_later_changes_nothing_before_it_and_is_said_by_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "texts", lambda part, chinese: lambda: "One two three four five six seven.")
    every = plan.drawn(Path)
    monkeypatch.setattr(plan, "LATER", ())
    before = plan.drawn(Path)
    assert every[: len(before)] == before
    assert [r.number for r in every] == list(range(len(every)))
    assert {r.speaker for r in every} == {r.speaker for r in before}


def test_texts_are_drawn_so_that_kinds_come_evenly() -> None:
    rng = np.random.default_rng(0)
    drawn = plan.evenly(lambda: "aaaaaaab"[int(rng.integers(8))], lambda text: text)
    assert 120 < sum(drawn() == "b" for _ in range(300)) < 180


@pytest.mark.parametrize(("text", "consonant"), [("中国", "zh"), ("安全", ""), ("我们", "w"), ("去吧", "q")])
def test_a_mandarin_text_begins_with_an_initial_or_none(text: str, consonant: str) -> None:
    pytest.importorskip("pypinyin")
    assert plan.initial(text) == consonant


class Toy:
    """A teacher that says noise."""

    said = 0

    def unknown(self, symbols: str) -> set[str]:
        return set(symbols) & {"é"}

    def speak(self, symbols: str, recipe: object, speed: float, offset: int, prosody: object) -> Spoken:
        Toy.said += 1
        rng = np.random.default_rng([ord(s) for s in symbols])
        durations = rng.integers(1, 5, len(symbols) + 2).astype(np.uint8)
        frames = int(durations.sum())
        audio = rng.uniform(-1.5, 1.5, frames * FRAME).astype(np.float32)
        return Spoken(audio, durations, rng.random(2 * frames, np.float32), rng.random(2 * frames, np.float32))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> type[Toy]:
    monkeypatch.setattr(render, "_teacher", lambda voices: Toy())
    monkeypatch.setattr(render, "phonemes", lambda text, language: text.lower())
    monkeypatch.setattr(render, "PER_SHARD", 4)
    Toy.said = 0
    return Toy


def request(number: int, text: str) -> Request:
    return Request(number, "blend", "blend003", (("af_sky", 0.4), ("am_adam", 0.6)), "en", text, 1.02, -7)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    asked = [request(i, "abc" * (i + 1)) for i in range(9)]
    monkeypatch.setattr(render, "drawn", lambda chinese, scale: asked)
    return tmp_path / "voice"


def test_a_shard_comes_back_as_it_was_written(tmp_path: Path, toy: type[Toy]) -> None:
    teacher: Kokoro = toy()  # type: ignore[assignment]
    made = [render.render_one(teacher, request(i, text)) for i, text in enumerate(("a “b”, c?", "ˈu"))]
    renderings = [r for r in made if isinstance(r, render.Rendering)]
    path = tmp_path / "00000.npz"
    render.save_shard(path, renderings)
    for before, after in zip(renderings, render.load_shard(path), strict=True):
        assert after.request == before.request
        assert (after.symbols, after.gain) == (before.symbols, before.gain)
        for name in ("durations", "f0", "energy", "samples"):
            assert np.array_equal(getattr(after, name), getattr(before, name)), name
        assert after.samples.size == FRAME * int(after.durations.sum())
        assert after.phones[-1].end <= after.seconds
        assert np.abs(after.audio()).max() == pytest.approx(1.5, abs=0.01)  # the gain against clipping is undone
    assert [p.name for p in tmp_path.iterdir()] == ["00000.npz"]


def test_what_cannot_be_said_is_left_out_with_its_reason(toy: type[Toy]) -> None:
    teacher: Kokoro = toy()  # type: ignore[assignment]
    assert render.render_one(teacher, request(0, "café")) == "no token for é"
    assert render.render_one(teacher, request(0, "a" * 500)) == "500 tokens"


def test_a_run_that_was_cut_off_goes_on_where_it_was(folder: Path, toy: type[Toy], tmp_path: Path) -> None:
    def chinese() -> Path:
        raise AssertionError

    asked = render.plan(folder, chinese)
    kept = frozenset({"00001"})
    assert [path.stem for path, _ in render.missing(folder, asked, kept)] == ["00000", "00002"]
    work = render.missing(folder, asked, frozenset())
    render.render(folder, tmp_path, work[:1])
    assert toy.said == 4
    first = (folder / "speech" / "00000.npz").read_bytes()
    # Cut off between the shard and its line, and in the middle of the next shard.
    (folder / "speech" / "index.jsonl").unlink()
    (folder / "speech" / "00001.part.npz").write_bytes(b"half")
    assert render.plan(folder, chinese) == asked
    left = render.missing(folder, asked, frozenset())
    assert [path.stem for path, _ in left] == ["00001", "00002"]
    assert render.render(folder, tmp_path, left).endswith("hours in 3 shards")
    assert toy.said == 9
    assert (folder / "speech" / "00000.npz").read_bytes() == first
    lines = (folder / "speech" / "index.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["utterances"] for line in lines] == [4, 4, 1]
    numbers = [r.request.number for p in sorted((folder / "speech").glob("?????.npz")) for r in render.load_shard(p)]
    assert numbers == list(range(9))
    assert not render.missing(folder, asked, frozenset())
