"""Real servers over real loopback sockets, with keys of their own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.served import Held, Service, call, serving, until
from tests.service.host import ToneHost
from tests.tones import ToneBackend

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


@contextmanager
def filled(start: Start, callers: int, **limits: float) -> Iterator[tuple[Service, Held, list[socket.socket]]]:
    """Start a service in which nobody is answered before ``release``, and let some call it: more than may speak."""
    held = Held(0)
    service = start(ToneBackend(held), **limits)
    with ExitStack() as stack:
        calls = [stack.enter_context(call(service, str(number))) for number in range(callers)]
        until(lambda: service.backend.open == limits["active"])
        time.sleep(0.1)  # for those who wait
        yield service, held, calls
        held.release()
