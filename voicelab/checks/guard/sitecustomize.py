"""Refuse every socket that leaves this machine, in the kernel and in every Python that it starts.

Python imports a module of this name when it starts and its folder is on PYTHONPATH. A program that is not Python
is not held by it; those that heed a proxy (curl, git, pip, R, …) are sent to one that is not there.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_REFUSED = "notebooks are checked offline: no connection to {}"
# Where voicelab.checks.check sends what heeds a proxy.
_NOWHERE = ("127.0.0.1", 9)


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
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        address = args[1]
        if not isinstance(address, tuple):
            return  # a Unix socket, or a message over a connection that was let through
        host = address[0]
        if address[:2] == _NOWHERE and _NOWHERE[0] in os.environ.get("http_proxy", ""):
            raise ConnectionRefusedError(_REFUSED.format("other machines"))
    else:
        return
    if not is_local(host):
        raise ConnectionRefusedError(_REFUSED.format(repr(host)))


class _NoVoice:
    """Stands before the folders of modules, and refuses the embedded voice."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise ImportError for the engine; leave everything else to those who look next."""
        if name == "voicelab.engine":
            message = (
                "notebooks are checked with recordings only: use vl.connect(replay=…) instead of the embedded voice"
            )
            raise ImportError(message, name=name)


# An audit hook also sees calls made from C, which a patched socket class would miss.
sys.addaudithook(guard)
if os.environ.get("NOTEBOOK_RECORDINGS_ONLY"):
    sys.meta_path.insert(0, _NoVoice)

# Only one module of this name is found: the one that this one hides is run here.
_here = Path(__file__).parent
_hidden = PathFinder.find_spec("sitecustomize", [folder for folder in sys.path if folder and Path(folder) != _here])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
