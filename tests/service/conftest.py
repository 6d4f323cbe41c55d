"""Real servers over real loopback sockets, with keys of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.served import Service, serving
from tests.service.host import ToneHost

Start = Callable[..., Service]


@pytest.fixture(scope="session")
def closers() -> Iterator[Callable[[ExitStack], None]]:
    """Close services beside the tests that follow: each takes a while to notice that it is to end."""
    closed: list[Future[None]] = []
    with ThreadPoolExecutor(2) as pool:
        yield lambda stack: closed.append(pool.submit(stack.close))
    for one in closed:
        one.result()


@pytest.fixture
def start(tmp_path: Path, closers: Callable[[ExitStack], None]) -> Iterator[Start]:
    """Start a service of the test's own."""
    stack = ExitStack()
    yield lambda *args, **options: stack.enter_context(serving(tmp_path, *args, **options))
    closers(stack)


@pytest.fixture(scope="session")
def start_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    with ExitStack() as stack:
        folder = partial(tmp_path_factory.mktemp, "service")
        yield lambda *args, **options: stack.enter_context(serving(folder(), *args, **options))


@pytest.fixture(scope="session")
def service(start_shared: Start) -> Service:
    """The service that tests share which do not look at its state."""
    return start_shared()


@pytest.fixture(scope="module")
def host(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that keeps voices, and says at most 60 characters."""
    backend = ToneHost(tmp_path_factory.mktemp("voices"), max_text=60)
    yield start_shared(backend)
    backend.close()
