from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

# A documentation address (RFC 5737): nothing answers there, and nothing must be asked.
ELSEWHERE = ("192.0.2.1", 9)


def test_no_connection_datagram_or_look_up_leaves_loopback() -> None:
    with socket.socket() as client, pytest.raises(ConnectionRefusedError, match="hermetic"):
        client.connect(ELSEWHERE)
    with socket.socket(type=socket.SOCK_DGRAM) as client, pytest.raises(ConnectionRefusedError, match="hermetic"):
        client.sendto(b"x", ELSEWHERE)
    with pytest.raises(ConnectionRefusedError, match="hermetic"):
        socket.getaddrinfo("voice.example", 443)


def test_a_program_that_a_test_starts_is_refused_too() -> None:
    code = f"import socket; socket.socket().connect({ELSEWHERE!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "hermetic" in done.stderr


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=answer)
        thread.start()
        with socket.create_connection(("localhost", server.getsockname()[1]), timeout=5) as client:
            assert client.recv(1) == b""
        thread.join(timeout=5)
