"""A real server over a real loopback socket, with keys of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.tones import ToneBackend
from voicelab.service.keys import KeyStore
from voicelab.service.requests import Limits
from voicelab.service.run import running


@dataclass(frozen=True)
class Service:
    url: str
    secret: str
    backend: ToneBackend
    keys: KeyStore
    http: httpx.Client

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


Start = Callable[..., Service]


@pytest.fixture(scope="session")
def start_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    yield from _starter(tmp_path_factory.mktemp("service"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a service of the test's own; stopped at its end."""
    yield from _starter(tmp_path)


@pytest.fixture(scope="session")
def service(start_shared: Start) -> Service:
    """The service that tests share which do not look at its state."""
    return start_shared(ToneBackend())


def _starter(folder: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(
            backend: ToneBackend | None = None, *, credit: int | None = None, busy_s: float = 2.0, **limits: float
        ) -> Service:
            backend = backend or ToneBackend()
            keys = stack.enter_context(KeyStore(folder / "keys.sqlite3", busy_s=busy_s))
            url = stack.enter_context(running(backend, keys=keys, limits=Limits(**limits)))  # type: ignore[arg-type]
            secret = keys.create("test", credit=credit).secret
            headers = {"authorization": f"Bearer {secret}"}
            http = stack.enter_context(httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=20))
            return Service(url, secret, backend, keys, http)

        yield begin
