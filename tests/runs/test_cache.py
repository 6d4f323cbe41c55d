from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kept import ask, spoil
from tests.tones import ToneBackend, there
from voicelab.backends.runs import CachedBackend
from voicelab.call import Call
from voicelab.errors import RequestInvalid, StoreError
from voicelab.runs.cache import Cache
from voicelab.schema import ReferenceAudio
from voicelab.storage import DamagedFile

WRITER = Path(__file__).with_name("writer.py")


def test_take_is_synthesized_once(cache: Cache, tones: ToneBackend) -> None:
    made = cache.get_or_render(tones, Call(ask(), seed=3))
    kept = cache.get_or_render(tones, Call(ask(), seed=3))
    assert len(tones.asked) == 1
    assert kept == made
    assert kept.audio == made.audio
    assert (made.cached, kept.cached) == (False, True)
    assert made.clip().notes == ()
    assert kept.clip().notes == (f"This is a cached take, made {made.created:%Y-%m-%d %H:%M:%S} UTC.",)
    assert kept.clip() == made.clip()
    assert kept.clip().take == made.clip().take
    stats = cache.stats()
    assert (stats.entries, stats.hits, stats.misses, stats.damaged) == (1, 1, 1, 0)


def test_iteration_loads_no_audio(cache: Cache, tones: ToneBackend) -> None:
    made = [cache.get_or_render(tones, Call(ask(), seed=seed)) for seed in range(3)]
    found = sorted(cache, key=lambda take: take.seed or 0)
    assert found == made
    for file in (cache.folder / "takes").iterdir():
        file.unlink()
    with pytest.raises(StoreError, match="missing file"):
        _ = found[0].audio


def test_references_are_restored(cache: Cache, tones: ToneBackend) -> None:
    request = ask(references=(ReferenceAudio(audio=b"RIFF" * 1000, text="Hi"),))
    made = cache.get_or_render(tones, Call(request, seed=3))
    kept = there(Cache(cache.folder).get(made.key))
    assert kept.request == request
    assert cache.stats().bytes > 4000 + len(made.audio)
    # Without the reference the take cannot say what was asked; it counts as missing, and is made anew.
    for path in cache.run.references.folder.iterdir():
        path.unlink()
    again = Cache(cache.folder).get_or_render(tones, Call(request, seed=3))
    assert again.request == request
    assert len(tones.asked) == 2
    assert Cache(cache.folder).get_or_render(tones, Call(request, seed=3)).cached


def test_damaged_take_is_quarantined_noted_and_replaced(cache: Cache, tones: ToneBackend) -> None:
    made = cache.get_or_render(tones, Call(ask(), seed=3))
    spoil(cache.run, made.key)
    again = cache.get_or_render(tones, Call(ask(), seed=3))
    assert not again.cached
    assert again.audio == made.audio
    assert "replaces it" in again.notes[0]
    assert str(cache.folder / "damaged") in again.notes[0]
    assert cache.stats().damaged == 1
    assert cache.get_or_render(tones, Call(ask(), seed=3)).cached
    spoil(cache.run, made.key)
    with pytest.raises(DamagedFile):
        cache.get(made.key)


def test_eviction_of_the_least_recently_used(tmp_path: Path, tones: ToneBackend) -> None:
    size = len(tones.synthesize(Call(ask(), seed=0)).take().audio) + 2000
    cache = Cache(tmp_path, max_bytes=10 * size)
    first = cache.get_or_render(tones, Call(ask(), seed=0))
    for seed in range(1, 40):
        cache.get_or_render(tones, Call(ask(), seed=seed))
        # Used all the time; disks that keep times by the 4 ms need a little patience.
        time.sleep(0.005)
        assert cache.get(first.key) is not None
        assert cache.stats().bytes <= 10 * size
    kept = {take.seed for take in cache}
    assert len(kept) >= 8
    assert kept == {0, *range(40 - len(kept) + 1, 40)}


def test_writes_of_other_processes_count_toward_the_limit(tmp_path: Path, tones: ToneBackend) -> None:
    size = len(tones.synthesize(Call(ask(), seed=0)).take().audio)
    one, two = Cache(tmp_path, max_bytes=10 * size), Cache(tmp_path, max_bytes=10 * size)
    for seed in range(20):
        one.get_or_render(tones, Call(ask(), seed=seed))
        two.get_or_render(tones, Call(ask(), seed=100 + seed))
        assert one.stats().bytes <= 11 * size + 2000


def test_take_larger_than_the_limit_is_returned(tmp_path: Path, tones: ToneBackend) -> None:
    cache = Cache(tmp_path, max_bytes=10)
    for seed in range(3):
        assert cache.get_or_render(tones, Call(ask(), seed=seed)).audio
    assert len(cache) == 1


def test_unfinished_files_are_evicted_first(tmp_path: Path, tones: ToneBackend) -> None:
    (tmp_path / "takes").mkdir()
    left = tmp_path / "takes" / f"unfinished-{1:016x}"
    left.write_bytes(bytes(90_000))
    os.utime(left, (time.time() - 7200,) * 2)
    cache = Cache(tmp_path, max_bytes=100_000)
    for seed in range(3):
        cache.get_or_render(tones, Call(ask(), seed=seed))
    assert (left.exists(), len(cache)) == (False, 3)


def test_undeletable_files_are_skipped(tmp_path: Path, tones: ToneBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    really = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if not path.name.startswith("unfinished-"):
            raise PermissionError(13, "somebody else's", str(path))
        really(path)

    cache = Cache(tmp_path, max_bytes=10)
    monkeypatch.setattr(Path, "unlink", refused)
    for seed in range(3):
        assert cache.keep(tones.synthesize(Call(ask(), seed=seed)).take()).notes == ()
    assert len(cache) == 3
    with pytest.raises(StoreError, match="somebody else's"):
        cache.clear()


def test_removing(cache: Cache, tones: ToneBackend) -> None:
    made = cache.get_or_render(tones, Call(ask(), seed=0))
    cache.get_or_render(tones, Call(ask(), seed=1))
    assert made.key in cache
    assert cache.remove(made.key)
    assert not cache.remove(made.key)
    assert made.key not in cache
    spoil(cache.run, cache.get_or_render(tones, Call(ask(), seed=1)).key)
    cache.get_or_render(tones, Call(ask(), seed=1))
    assert cache.clear() == 1
    assert cache.stats().bytes == 0
    assert (len(cache), bool(cache)) == (0, True)


def test_foreign_files_are_untouched(tmp_path: Path, tones: ToneBackend) -> None:
    own = [tmp_path / name for name in ("corpus.wav", "references/ada.wav", "damaged/why.txt", "unfinished-work.txt")]
    for path in own:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1_000_000))
        os.utime(path, (0, 0))
    cache = Cache(tmp_path, max_bytes=100_000)
    for number in range(20):
        cache.get_or_render(tones, Call(ask(f"Take {number}."), seed=1))
    assert cache.stats().bytes <= 100_000
    assert 0 < len(cache) < 20
    cache.clear()
    assert len(cache) == cache.stats().bytes == 0
    assert all(path.stat().st_size == 1_000_000 for path in own)


def test_take_that_cannot_be_stored_is_returned_with_a_note(tmp_path: Path, tones: ToneBackend) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file" / "cache")
    take = cache.get_or_render(tones, Call(ask(), seed=3))
    assert take.clip() == tones.synthesize(Call(ask(), seed=3)).clip()
    assert "could not be stored" in take.notes[-1]
    clip = CachedBackend(tones, cache).synthesize(Call(ask(), seed=3)).clip()
    assert clip == take.clip()
    assert "could not be stored" in clip.notes[-1]
    with pytest.raises(StoreError):
        cache.put(take)


def test_errors_are_not_cached(cache: Cache) -> None:
    def step(number: int) -> None:
        if number == 2:
            raise StoreError("planted")

    for _ in range(2):
        with pytest.raises(StoreError, match="planted"):
            cache.get_or_render(ToneBackend(step), Call(ask(), seed=3))
        with pytest.raises(StoreError, match="planted"):
            CachedBackend(ToneBackend(step), cache).synthesize(Call(ask(), seed=3)).clip()
    assert len(cache) == 0


def test_a_cache_can_be_sent_to_another_process(cache: Cache, tones: ToneBackend) -> None:
    made = cache.get_or_render(tones, Call(ask(), seed=3))
    copy = pickle.loads(pickle.dumps(cache))  # noqa: S301 - our own bytes
    assert (copy.folder, copy.max_bytes) == (cache.folder, cache.max_bytes)
    kept = pickle.loads(pickle.dumps(next(iter(copy))))  # noqa: S301 - our own bytes
    assert kept == made
    assert kept.audio == made.audio


def test_limit_below_1_is_rejected() -> None:
    with pytest.raises(RequestInvalid, match="max_bytes"):
        Cache(max_bytes=0)


def test_the_default_folder_is_in_voicelabs_data() -> None:
    assert Cache().folder == Path(os.environ["VOICELAB_HOME"]) / "cache"
    assert "at most" in repr(Cache())


# Several writers; kills are in tests/week.


def test_eight_writers_of_a_key_share_a_single_take(tmp_path: Path) -> None:
    command = [sys.executable, str(WRITER), str(tmp_path), "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True)
    said = [(int(repeat), digest) for repeat, digest in map(str.split, done.stdout.splitlines())]
    assert len(said) == 160
    kept = {take.repeat: take.digest for take in Cache(tmp_path)}
    assert len(kept) == 20
    assert set(said) == set(kept.items())
    assert all(take.clip().duration > 0 for take in Cache(tmp_path))
    assert len(list((tmp_path / "takes").iterdir())) == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.jsonl", "takes"]  # nothing unfinished or set aside
