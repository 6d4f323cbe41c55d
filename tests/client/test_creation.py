"""Voices are made once, whatever a service does, and looked up as often as it takes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.conftest import CREATE, QUICK, RECORD, Script, reply, reset
from tests.served import accepting
from voicelab.client import RetryPolicy, Timeouts
from voicelab.errors import ServiceTimeout, ServiceUnavailable

Connect = Callable[..., Any]


@pytest.mark.parametrize("upload", ["msgpack", "multipart"])
def test_an_upload_that_is_cut_off_is_not_sent_again(connect: Connect, upload: str) -> None:
    large = CREATE.replace(voices=(bytes(8_000_000),))
    got: list[int] = []

    def serve(connection: socket.socket) -> None:
        got.append(len(connection.recv(100_000)))
        reset(connection)

    with (
        accepting(serve) as url,
        connect(url, retry=QUICK, upload=upload) as backend,
        pytest.raises(ServiceUnavailable),
    ):
        backend.create_voice(large)
    assert len(got) == 1
    assert got[0] > 0


def test_a_voice_is_sent_again_when_nobody_took_the_call(script: Script, connect: Connect) -> None:
    # Bound, but not listening yet: connections are refused.
    later = socket.socket()
    later.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    later.bind(("127.0.0.1", 0))
    script.acts = [reply(201, RECORD), reply(201, RECORD)]

    def serve() -> None:
        with later:
            later.listen()
            connection, _ = later.accept()
            with connection:
                script.serve(connection)

    opening = threading.Timer(0.3, serve)
    opening.start()
    url = f"http://127.0.0.1:{later.getsockname()[1]}"
    with connect(url, retry=RetryPolicy(attempts=40, base_s=0.1, longest_s=0.1)) as backend:
        assert backend.create_voice(CREATE).id == "v1"
    opening.join(5)
    assert len(script.asked) == 1


def test_a_service_that_takes_no_more_is_given_up_in_time(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        large = CREATE.replace(voices=(bytes(30_000_000),))
        with (
            connect(url, timeout=Timeouts(send=0.3), retry=QUICK) as backend,
            pytest.raises(ServiceTimeout, match="did not answer in time"),
        ):
            backend.create_voice(large)
        listener.setblocking(False)
        connection, _ = listener.accept()
        connection.close()
        with pytest.raises(BlockingIOError):
            listener.accept()
