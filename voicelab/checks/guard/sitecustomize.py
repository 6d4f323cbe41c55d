"""Block network connections beyond this machine, in the kernel and in all Python subprocesses.

Python imports ``sitecustomize`` from PYTHONPATH at startup. Other programs are not covered; those that use a proxy
(curl, git, pip, R, …) are given a closed port as proxy.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_REFUSED = "notebooks are checked offline: no connection to {}"
# The closed proxy of voicelab.checks.check.
_CLOSED_PROXY = ("127.0.0.1", 9)


def is_local(host: object) -> bool:
    """Return True if a host argument of a socket function is loopback or unspecified."""
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
    """Raise ConnectionRefusedError for audit events of nonlocal connections, datagrams and look-ups."""
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        address = args[1]
        if not isinstance(address, tuple):
            return  # a Unix socket, or a message over an open connection
        host = address[0]
        if address[:2] == _CLOSED_PROXY and _CLOSED_PROXY[0] in os.environ.get("http_proxy", ""):
            raise ConnectionRefusedError(_REFUSED.format("other machines"))
    else:
        return
    if not is_local(host):
        raise ConnectionRefusedError(_REFUSED.format(repr(host)))


class _NoVoice:
    """Import finder that blocks the embedded voice."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise ImportError for the engine; return None (not found) for other modules."""
        if name == "voicelab.engine":
            message = (
                "notebooks are checked with recordings only: use vl.connect(replay=…) instead of the embedded voice"
            )
            raise ImportError(message, name=name)


# An audit hook also covers calls from C, unlike a patched socket class.
sys.addaudithook(guard)
if os.environ.get("NOTEBOOK_RECORDINGS_ONLY"):
    sys.meta_path.insert(0, _NoVoice)

# This module shadows the environment's sitecustomize, so run that too.
_here = Path(__file__).parent
_hidden = PathFinder.find_spec("sitecustomize", [folder for folder in sys.path if folder and Path(folder) != _here])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
