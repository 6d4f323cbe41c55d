from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from voicelab.engine.latest import Latest


def test_many_who_ask_at_once_wait_for_one() -> None:
    latest: Latest[int] = Latest(4)
    asked, go = [], threading.Event()

    def make() -> int:
        asked.append(threading.get_ident())
        assert go.wait(20)
        return len(asked)

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(latest.get, "voice", make) for _ in range(8)]
        while not asked:
            pass
        go.set()
        assert {one.result(20) for one in waiting} == {1}
    assert latest.get("voice", make) == 1
    assert len(asked) == 1


def test_the_least_used_is_forgotten() -> None:
    latest: Latest[str] = Latest(2)
    for key in ("a", "b", "a", "c"):
        latest.get(key, f"{key} at first".__str__)
    assert latest.get("a", lambda: "again") == "a at first"
    assert latest.get("b", lambda: "again") == "again"


def test_all_who_wait_hear_of_a_failure_and_the_next_tries_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    latest: Latest[int] = Latest(2)
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
        all_of_them = [pool.submit(latest.get, 1, fail)]
        assert asked.wait(20)
        monkeypatch.setattr(Future, "result", noted)
        all_of_them += [pool.submit(latest.get, 1, lambda: 5) for _ in range(2)]
        assert waiting.acquire(timeout=20)
        assert waiting.acquire(timeout=20)
        monkeypatch.undo()
        go.set()
        assert [str(one.exception(20)) for one in all_of_them] == ["no"] * 3
    assert latest.get(1, lambda: 5) == 5


def test_an_interrupt_of_one_is_none_of_the_others() -> None:
    latest: Latest[int] = Latest(2)
    asked, go = threading.Event(), threading.Event()

    def interrupted() -> int:
        asked.set()
        assert go.wait(20)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(latest.get, 1, interrupted)
        assert asked.wait(20)
        others = [pool.submit(latest.get, 1, lambda: 5) for _ in range(2)]
        go.set()
        assert isinstance(first.exception(20), KeyboardInterrupt)
        assert [one.result(20) for one in others] == [5, 5]
