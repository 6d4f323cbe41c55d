from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from voicelab.engine.core.threads import Memo


def test_many_who_ask_at_once_wait_for_one() -> None:
    memo: Memo[int] = Memo(4)
    asked, go = [], threading.Event()

    def make() -> int:
        asked.append(threading.get_ident())
        assert go.wait(20)
        return len(asked)

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(memo.get, "voice", make) for _ in range(8)]
        while not asked:
            pass
        go.set()
        assert {one.result(20) for one in waiting} == {1}
    assert memo.get("voice", make) == 1
    assert len(asked) == 1


def test_the_least_used_is_forgotten() -> None:
    memo: Memo[str] = Memo(2)
    for key in ("a", "b", "a", "c"):
        memo.get(key, f"{key} at first".__str__)
    assert memo.get("a", lambda: "again") == "a at first"
    assert memo.get("b", lambda: "again") == "again"


def test_all_who_wait_hear_of_a_failure_and_the_next_tries_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    memo: Memo[int] = Memo(2)
    asked, go = threading.Event(), threading.Event()
    waiting, result = threading.Semaphore(0), Future.result

    def noted(made: Future[int]) -> int:
        waiting.release()
        return result(made)

    def fail() -> int:
        asked.set()
        assert go.wait(20)
        raise ValueError("no")

    with ThreadPoolExecutor(3) as pool:
        all_of_them = [pool.submit(memo.get, 1, fail)]
        assert asked.wait(20)
        monkeypatch.setattr(Future, "result", noted)
        all_of_them += [pool.submit(memo.get, 1, lambda: 5) for _ in range(2)]
        assert waiting.acquire(timeout=20)
        assert waiting.acquire(timeout=20)
        monkeypatch.undo()
        go.set()
        assert [str(one.exception(20)) for one in all_of_them] == ["no"] * 3
    assert memo.get(1, lambda: 5) == 5


def test_an_interrupt_of_one_is_none_of_the_others() -> None:
    memo: Memo[int] = Memo(2)
    asked, go = threading.Event(), threading.Event()

    def interrupted() -> int:
        asked.set()
        assert go.wait(20)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(memo.get, 1, interrupted)
        assert asked.wait(20)
        others = [pool.submit(memo.get, 1, lambda: 5) for _ in range(2)]
        go.set()
        assert isinstance(first.exception(20), KeyboardInterrupt)
        assert [one.result(20) for one in others] == [5, 5]
