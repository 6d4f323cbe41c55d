from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from training import corpus, plan, render
from training.kokoro import FRAME, Kokoro, Synthesis
from training.plan import HELD_OUT_STOCK, PARTS, Part, Request, normalize_words, speakers


@pytest.fixture
def wordnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Create a small WordNet with the held-out sentences and as many further examples; return the latter."""
    held = corpus.HELDOUT.read_text(encoding="utf-8").splitlines()
    examples = [" ".join(["the", *line.rstrip(".!?").split()[::-1]]) for line in held if len(line.split()) < 12]
    for part_of_speech in ("noun", "verb", "adj", "adv"):
        quoted = "; ".join(f'"{s}"' for s in (*held, *examples))
        (tmp_path / f"data.{part_of_speech}").write_text(f"0 n 1 | a small plain thing; {quoted}\n", encoding="latin-1")
    monkeypatch.setattr(corpus, "WORDNET", tmp_path)
    return examples


def planned(part: Part, texts: list[str], scale: float = 1.0) -> list[Request]:
    repeated = cycle(texts)
    return list(plan.requests(part, lambda: next(repeated), scale))


def test_held_out_sentences_are_not_drawn(wordnet: list[str]) -> None:
    english = plan.English(1)
    drawn_texts = [normalize_words(english.draw()) for _ in range(150)]
    held = {s for s in plan.held_out() if len(s.split()) > 3}
    assert not [(h, s) for h in held for s in drawn_texts if h in s]
    assert sum(normalize_words(s) in " ".join(drawn_texts) for s in wordnet) > 30


def test_texts_are_deterministic_by_seed(wordnet: list[str]) -> None:
    generator, repeat, different = (plan.English(seed) for seed in (1, 1, 2))
    texts = [generator.draw() for _ in range(40)]
    assert [repeat.draw() for _ in range(40)] == texts
    assert [different.draw() for _ in range(40)] != texts
    assert max(map(len, texts)) <= plan.MAX_TEXT_LENGTH


def test_held_out_speakers_are_not_in_the_plan() -> None:
    trained = {name: recipe for part in PARTS for name, recipe in speakers(part.name)}
    assert not set(HELD_OUT_STOCK) & {name for recipe in trained.values() for name, _ in recipe}
    recipes = plan.blends()
    assert len(recipes) == plan.BLENDS + plan.HELD_OUT_BLENDS
    assert not set(recipes[plan.BLENDS :]) & set(trained.values())
    assert recipes == plan.blends()


def test_blends_are_convex_and_varied() -> None:
    recipes = plan.blends()
    assert all(abs(sum(w for _, w in recipe) - 1) < 1e-9 and min(w for _, w in recipe) > 0 for recipe in recipes)
    assert all(len({name for name, _ in recipe}) == len(recipe) for recipe in recipes)
    pairs = [recipe for recipe in recipes if len(recipe) == 2]
    across = sum(recipe[0][0][1] != recipe[1][0][1] for recipe in pairs)
    assert 40 < across < len(pairs) - 40
    assert len(recipes) - len(pairs) > 40


def test_small_plan_has_fewer_speakers() -> None:
    part, text = Part("blend", 2.7, "en", 5), ["One two three four five six seven eight nine ten."]
    assert len({r.speaker for r in planned(part, text)}) == plan.BLENDS
    small = planned(part, text, 0.004)
    assert 100 < len({r.speaker for r in small}) == len(small) < 300


def test_minutes_speed_and_style_of_every_speaker(wordnet: list[str]) -> None:
    part = Part("stock", 2, "en", 5)
    requests = planned(part, ["One two three four five six seven eight nine ten."])
    assert requests == planned(part, ["One two three four five six seven eight nine ten."])
    assert [r.number for r in requests] == list(range(len(requests)))
    for name, recipe in speakers("stock"):
        own_requests = [r for r in requests if r.speaker == name]
        assert {r.recipe for r in own_requests} == {recipe}
        assert 1.9 < sum(len(r.text) / 14.5 / r.speed for r in own_requests) / 60 < 2.2
    slowest, fastest = min(r.speed for r in requests), max(r.speed for r in requests)
    assert 0.9 <= slowest < 0.92
    assert 1.08 < fastest <= 1.1
    assert {r.offset for r in requests} <= set(range(-20, 21))
    # Each round has recipes speaker once.
    assert len({r.speaker for r in requests[:10]}) == 10


def test_prosody_and_consistency_of_blends() -> None:
    (part,) = (p for p in PARTS if p.name == "blend")
    requests = planned(part, ["One two three four five six seven eight nine ten."])
    for index, (name, recipe) in enumerate(speakers("blend")[:40]):
        own_requests = [r for r in requests if r.speaker == name]
        assert {r.recipe for r in own_requests} == {recipe}
        assert {bool(r.prosody) for r in own_requests} == {index % 2 == 1}
        assert max(r.speed for r in own_requests) / min(r.speed for r in own_requests) < 1.25**0.6, (
            "speeds of a speaker must vary less than those of the part"
        )
    assert min(r.speed for r in requests) < 0.85
    assert max(r.speed for r in requests) > 1.18


def test_prefixes_of_the_plan_are_balanced() -> None:
    counts = {"stock": 40, "mandarin": 20}
    parts = [planned(Part(name, 1, "en", 5), ["One two three."])[:count] for name, count in counts.items()]
    recipes = plan.mixed(parts)
    assert len(recipes) == 60
    for size in (6, 15, 30):
        assert sum(r.part == "mandarin" for r in recipes[:size]) == pytest.approx(size / 3, abs=1)


def test_supplement_leaves_the_plan_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "texts", lambda part, chinese: lambda: "One two three four five six seven.")
    recipes = plan.draw_plan(Path)
    monkeypatch.setattr(plan, "SUPPLEMENT", ())
    before = plan.draw_plan(Path)
    assert recipes[: len(before)] == before
    assert [r.number for r in recipes] == list(range(len(recipes)))
    assert {r.speaker for r in recipes} == {r.speaker for r in before}


def test_evenly_balances_kinds() -> None:
    rng = np.random.default_rng(0)
    draw = plan.evenly(lambda: "aaaaaaab"[int(rng.integers(8))], lambda text: text)
    assert 120 < sum(draw() == "b" for _ in range(300)) < 180


@pytest.mark.parametrize(("text", "consonant"), [("中国", "zh"), ("安全", ""), ("我们", "w"), ("去吧", "q")])
def test_initial_of_a_mandarin_text(text: str, consonant: str) -> None:
    pytest.importorskip("pypinyin")
    assert plan.initial(text) == consonant


class Toy:
    """A teacher that synthesizes noise."""

    call_count = 0

    def unknown(self, symbols: str) -> set[str]:
        return set(symbols) & {"é"}

    def speak(self, symbols: str, recipe: object, speed: float, offset: int, prosody: object) -> Synthesis:
        Toy.call_count += 1
        rng = np.random.default_rng([ord(s) for s in symbols])
        durations = rng.integers(1, 5, len(symbols) + 2).astype(np.uint8)
        frames = int(durations.sum())
        audio = rng.uniform(-1.5, 1.5, frames * FRAME).astype(np.float32)
        return Synthesis(audio, durations, rng.random(2 * frames, np.float32), rng.random(2 * frames, np.float32))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> type[Toy]:
    monkeypatch.setattr(render, "_teacher", lambda voices: Toy())
    monkeypatch.setattr(render, "phonemes", lambda text, language: text.lower())
    monkeypatch.setattr(render, "PER_SHARD", 4)
    Toy.call_count = 0
    return Toy


def request(number: int, text: str) -> Request:
    return Request(number, "blend", "blend003", (("af_sky", 0.4), ("am_adam", 0.6)), "en", text, 1.02, -7)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    requests = [request(i, "abc" * (i + 1)) for i in range(9)]
    monkeypatch.setattr(render, "draw_plan", lambda chinese, scale: requests)
    return tmp_path / "voice"


def test_shard_round_trip(tmp_path: Path, toy: type[Toy]) -> None:
    teacher: Kokoro = toy()  # type: ignore[assignment]
    results = [render.render_one(teacher, request(i, text)) for i, text in enumerate(("a “b”, c?", "ˈu"))]
    renderings = [r for r in results if isinstance(r, render.Rendering)]
    path = tmp_path / "00000.npz"
    render.save_shard(path, renderings)
    for before, after in zip(renderings, render.load_shard(path), strict=True):
        assert after.request == before.request
        assert (after.symbols, after.gain) == (before.symbols, before.gain)
        for name in ("durations", "f0", "energy", "samples"):
            assert np.array_equal(getattr(after, name), getattr(before, name)), name
        assert after.samples.size == FRAME * int(after.durations.sum())
        assert after.phones[-1].end <= after.seconds
        assert np.abs(after.audio()).max() == pytest.approx(1.5, abs=0.01)  # the gain is undone
    assert [p.name for p in tmp_path.iterdir()] == ["00000.npz"]


def test_render_one_returns_the_reason_of_a_failure(toy: type[Toy]) -> None:
    teacher: Kokoro = toy()  # type: ignore[assignment]
    assert render.render_one(teacher, request(0, "café")) == "no token for é"
    assert render.render_one(teacher, request(0, "a" * 500)) == "500 tokens"


def test_interrupted_rendering_resumes(folder: Path, toy: type[Toy], tmp_path: Path) -> None:
    def chinese() -> Path:
        raise AssertionError

    requests = render.plan(folder, chinese)
    encoded = frozenset({"00001"})
    assert [path.stem for path, _ in render.missing(folder, requests, encoded)] == ["00000", "00002"]
    work = render.missing(folder, requests, frozenset())
    render.render(folder, tmp_path, work[:1])
    assert toy.call_count == 4
    shard_bytes = (folder / "speech" / "00000.npz").read_bytes()
    # Interrupted between the shard and its index line, and within the next shard.
    (folder / "speech" / "index.jsonl").unlink()
    (folder / "speech" / "00001.part.npz").write_bytes(b"half")
    assert render.plan(folder, chinese) == requests
    pending = render.missing(folder, requests, frozenset())
    assert [path.stem for path, _ in pending] == ["00001", "00002"]
    assert render.render(folder, tmp_path, pending).endswith("hours in 3 shards")
    assert toy.call_count == 9
    assert (folder / "speech" / "00000.npz").read_bytes() == shard_bytes
    lines = (folder / "speech" / "index.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["utterances"] for line in lines] == [4, 4, 1]
    numbers = [r.request.number for p in sorted((folder / "speech").glob("?????.npz")) for r in render.load_shard(p)]
    assert numbers == list(range(9))
    assert not render.missing(folder, requests, frozenset())
