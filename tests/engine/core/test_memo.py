from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from voicelab.engine.core.decoding import Memo


def test_concurrent_requests_compute_once() -> None:
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


def test_least_recently_used_entry_is_evicted() -> None:
    memo: Memo[str] = Memo(2)
    for key in ("a", "b", "a", "c"):
        memo.get(key, f"{key} at first".__str__)
    assert memo.get("a", lambda: "again") == "a at first"
    assert memo.get("b", lambda: "again") == "again"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_exception_is_not_cached(error: BaseException) -> None:
    memo: Memo[int] = Memo(2)
    asked, go = threading.Event(), threading.Event()

    def fail() -> int:
        asked.set()
        assert go.wait(20)
        raise error

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(memo.get, 1, fail)
        assert asked.wait(20)
        others = [pool.submit(memo.get, 1, lambda: 5) for _ in range(2)]
        go.set()
        assert first.exception(20) is error
        assert [one.result(20) for one in others] == [5, 5]
    assert memo.get(1, lambda: 6) == 5
