"""The engine behind the service: a caller that leaves frees its place in the batch, and disturbs nobody."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.served import Service, call, read, reset_when_closed, tiny_engine, until
from tests.service.conftest import Start
from voicelab.backends.service import ServiceBackend
from voicelab.call import Call
from voicelab.engine.local import LocalBackend
from voicelab.schema import TTSRequest

REQUEST = TTSRequest(text="The birch canoe slid on the smooth planks.", format="pcm", sample_rate=8000)
LONG = "Glue the sheet to the dark blue background. " * 100


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackend]:
    with tiny_engine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


def _leave_early(service: Service, after: int) -> None:
    with call(service, LONG, rate=44100) as raw:
        read(raw, after)
        reset_when_closed(raw)


def test_callers_that_leave_free_their_places_and_change_nobodys_bytes(engine: LocalBackend, start: Start) -> None:
    alone = b"".join(engine.synthesize(Call(REQUEST, seed=1)))
    service = start(engine)
    with ServiceBackend(service.url, service.secret) as backend, ThreadPoolExecutor(6) as pool:
        leaving = [pool.submit(_leave_early, service, 1 + 3000 * number) for number in range(12)]
        staying = [pool.submit(lambda: b"".join(backend.synthesize(Call(REQUEST, seed=1)))) for _ in range(6)]
        for done in leaving:
            done.result()
        assert [done.result() for done in staying] == [alone] * 6
        until(lambda: engine._models.parts("s2-pro").scheduler.load == (0, 0), 20)
        assert b"".join(backend.synthesize(Call(REQUEST, seed=1))) == alone
