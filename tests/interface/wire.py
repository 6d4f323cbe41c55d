"""HTTP by hand: what a caller who has only the interface document would send, and what comes back."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgpack  # type: ignore[import-untyped]

JSON = "application/json"
MSGPACK = "application/msgpack"
KINDS = (JSON, MSGPACK)
BOUNDARY = "a-boundary-of-the-tests"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class File(NamedTuple):
    """A part of a form that is a file."""

    data: bytes
    name: str = "speech.wav"
    type: str = "audio/wav"


def encode(value: Any, kind: str) -> bytes:
    if kind == JSON:
        return json.dumps(value).encode()  # with NaN, Infinity and \\ud800 where the value has them
    packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return packed


def form(parts: list[tuple[str, str | File]]) -> bytes:
    """A multipart/form-data body (RFC 7578) of BOUNDARY."""
    out = b""
    for name, value in parts:
        out += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        if isinstance(value, File):
            out += f'; filename="{value.name}"\r\nContent-Type: {value.type}\r\n\r\n'.encode() + value.data + b"\r\n"
        else:
            out += b"\r\n\r\n" + value.encode() + b"\r\n"
    return out + f"--{BOUNDARY}--\r\n".encode()


@dataclass(frozen=True)
class Caller:
    """Somebody with a key, or without one."""

    url: str
    key: str | None

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> Answer:
        """Underscores in the names of headers are hyphens; None sends none."""
        sent = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        if self.key is not None:
            sent.setdefault("Authorization", f"Bearer {self.key}")
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=120)) as line:
            line.request(method, path, body, sent)
            response = line.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def tts(self, value: Any, kind: str = JSON, model: str | None = "s2-pro", **headers: str | None) -> Answer:
        """POST /v1/tts with a value in an encoding; bytes are sent as they are."""
        body = value if isinstance(value, bytes) else encode(value, kind)
        headers = {"Content_Type": kind, "model": model, **headers}
        return self.call("POST", "/v1/tts", body, **headers)

    def create(self, parts: list[tuple[str, str | File]] | dict[str, Any]) -> Answer:
        """POST /model: a list is sent as a form, a mapping as MessagePack."""
        if isinstance(parts, dict):
            return self.call("POST", "/model", encode(parts, MSGPACK), Content_Type=MSGPACK)
        return self.call("POST", "/model", form(parts), Content_Type=f"multipart/form-data; boundary={BOUNDARY}")

    def get(self, id: str) -> Answer:
        return self.call("GET", f"/model/{id}")

    def open(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=60)

    def raw(self, value: Any, kind: str = JSON) -> bytes:
        """The bytes of a POST /v1/tts, to be written to a socket."""
        body = encode(value, kind)
        head = (
            f"POST /v1/tts HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.key}\r\nmodel: s2-pro\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80


def fields(answer: Answer) -> list[list[str]]:
    """The ``loc`` of every item of a 422 answer, whose shape (part 7) is checked on the way."""
    assert answer.status == 422, (answer.status, answer.body[:300])
    assert answer.headers["content-type"].split(";")[0] == JSON
    items = answer.json()
    assert isinstance(items, list)
    assert items
    for item in items:
        assert isinstance(item, dict)
        assert set(item) <= {"loc", "type", "msg", "ctx", "in"}
        assert isinstance(item["loc"], list)
        assert item["loc"]
        assert all(isinstance(part, str) for part in item["loc"])
        assert all(isinstance(item[name], str) and item[name] for name in ("type", "msg"))
        assert isinstance(item.get("ctx", ""), str)
        assert item.get("in", "body") in {"path", "query", "header", "cookie", "body"}
    return [item["loc"] for item in items]


def refusal(answer: Answer, status: int) -> str:
    """The message of a ``{status, message}`` body, whose shape (part 7) is checked."""
    assert answer.status == status, (answer.status, answer.body[:300])
    body = answer.json()
    message = str(body["message"])
    assert body == {"status": status, "message": message}
    assert type(body["status"]) is int
    assert message
    return message
