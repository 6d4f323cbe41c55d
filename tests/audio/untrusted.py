"""Malicious and faulty decoders, run in the sandbox by test_sandbox.py."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from pathlib import Path

import numpy as np

from voicelab.errors import AudioError


def echo(data: bytes, *, times: int = 1) -> bytes:
    return data * times


def refuse(data: bytes) -> bytes:
    raise AudioError(f"no: {data.decode()}")


def fail(data: bytes) -> bytes:
    raise KeyError(data)


def crash(data: bytes) -> bytes:
    ctypes.string_at(0)
    return data


def hang(data: bytes) -> bytes:
    time.sleep(600)
    return data


def spin(data: bytes) -> bytes:
    while True:
        pass


def eat(data: bytes) -> bytes:
    return np.ones(2**31, np.uint8).tobytes()[: len(data)]


def chatter(data: bytes) -> bytes:
    sys.stdout.write("not an answer")
    sys.stdout.flush()
    os.write(1, b"not an answer either")
    return data


def tell(data: bytes) -> bytes:
    return f"{os.getpid()} {sorted(os.environ)}".encode()


def write_file(data: bytes) -> bytes:
    Path("left-behind").write_bytes(data)
    return b"written"


def read_file(data: bytes) -> bytes:
    return Path(data.decode()).read_bytes()


def connect(data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", int(data)), timeout=5):
        return b"connected"
