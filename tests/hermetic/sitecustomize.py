"""Refuse every socket that leaves this machine.

Python imports a module of this name at start-up when its folder is on PYTHONPATH; tests/conftest.py
puts it there, so that the programs that a test starts are as hermetic as the test itself.
"""

from __future__ import annotations

import ipaddress
import sys

_REFUSED = "tests are hermetic: no connection to {!r}"


def is_local(host: object) -> bool:
    """Say whether a host, as the socket functions take it, is this machine's loopback."""
    if isinstance(host, (bytes, bytearray)):
        host = host.decode("ascii", "replace")
    if host is None or host in {"", "localhost"}:
        return True
    try:
        address = ipaddress.ip_address(str(host).split("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def guard(event: str, args: tuple[object, ...]) -> None:
    """Raise ConnectionRefusedError for a connection, a datagram or a look-up that is not local."""
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in {"socket.connect", "socket.sendto"}:
        address = args[1]
        if not isinstance(address, tuple):
            return  # a Unix socket: a path on this machine
        host = address[0]
    else:
        return
    if not is_local(host):
        raise ConnectionRefusedError(_REFUSED.format(host))


# An audit hook also sees calls made from C, which a patched socket class would miss.
sys.addaudithook(guard)
