"""A small service as the interface document describes it, without a line of voicelab. It writes down what arrives.

It answers what the document shows and nothing else: no /health, no headers of ours, another spelling of headers, chunks
with extensions; and it notes as a fault what the document does not show.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgpack  # type: ignore[import-untyped]

from tests.interface import tables

KEY = "a-key-of-the-foreign-service"
HEADERS = set(
    "host accept accept-encoding connection user-agent content-length content-type authorization model".split()
)
FIELDS = {"/v1/tts": set(tables.TTS_REQUEST), "/model": set(tables.VOICE_FORM)}


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    headers: Message
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get_content_type()

    @property
    def value(self) -> Any:
        return json.loads(self.body) if self.kind == "application/json" else msgpack.unpackb(self.body)

    @property
    def parts(self) -> list[tuple[str, str | None, bytes]]:
        """(name, file name, content) of every part of a form."""
        head = f"Content-Type: {self.headers['content-type']}\r\n\r\n".encode()
        parts: list[Any] = BytesParser().parsebytes(head + self.body).get_payload()  # type: ignore[assignment]
        names = [str(part.get_param("name", header="content-disposition")) for part in parts]
        return [
            (name, part.get_filename(), part.get_payload(decode=True)) for name, part in zip(names, parts, strict=True)
        ]


@dataclass
class Foreign:
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    # What the next calls are answered: status, body, media type. Without any, as the document says.
    answers: list[tuple[int, bytes, str]] = field(default_factory=list)
    audio: dict[str, bytes] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def answer(self, status: int, body: object, kind: str = "application/json") -> None:
        self.answers.append((status, body if isinstance(body, bytes) else json.dumps(body).encode(), kind))

    @property
    def last(self) -> Call:
        return self.calls[-1]


def record(**fields: Any) -> dict[str, Any]:
    """A voice model record with the fields that are required, and those given."""
    return {
        "_id": "802e3bc2b27e49c2995d23ef70e6ac89", "type": "tts", "title": "Ada", "description": "", "cover_image": "",
        "state": "trained", "tags": [], "visibility": "public",
        "created_at": "2026-01-02T03:04:05.678901Z", "updated_at": "2026-01-02T03:04:05.678901Z",
        "like_count": 0, "mark_count": 0, "shared_count": 0, "task_count": 0,
        "author": {"_id": "1", "nickname": "n", "avatar": ""}, **fields,
    }  # fmt: skip


def _faults(call: Call) -> list[str]:
    """What the document does not show: headers, fields, references in JSON, a field without a value."""
    strange = {name.lower() for name in call.headers} - HEADERS
    path = call.path[call.path.rfind("/v1/tts") :] if call.path.endswith("/v1/tts") else "/model"
    if call.method == "POST":
        names = [name.partition("[")[0] for name, _, _ in call.parts] if "multipart" in call.kind else list(call.value)
        strange |= set(names) - FIELDS[path]
        if call.kind == "application/json" and call.value.get("references"):
            strange.add("references")
    return [f"{call.method} {call.path}: {strange}"] if strange else []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Foreign

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("CONTENT-TYPE", kind)
        self.send_header("cOnTeNt-LeNgTh", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _speak(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 1000):
            chunk = body[at : at + 1000]
            # A chunk may carry an extension, and its length may be written in capitals with zeros before it.
            self.wfile.write(b"%06X;note=1\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\nX-Trailer: yes\r\n\r\n")

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        call = Call(self.command, self.path, self.headers, body)
        if not self.path.endswith(("/v1/tts", "/model")) and "/model/" not in self.path:
            # No such thing in the document; what a client of ours asks besides is not what is looked at here.
            self._reply(404, b'{"status": 404, "message": "Not found"}', "application/json")
            return
        self.service.calls.append(call)
        self.service.faults += _faults(call)
        if self.service.answers:
            self._reply(*self.service.answers.pop(0))
        elif self.headers.get("authorization") != f"Bearer {KEY}":
            self._reply(401, b'{"status": 401, "message": "No permission"}', "application/json")
        elif self.path.endswith("/v1/tts"):
            self._speak(self.service.audio[call.value.get("format", "mp3")], "application/octet-stream")
        elif self.command == "POST":
            made = record(_id=f"made-{len(self.service.records) + 1}")
            self.service.records[made["_id"]] = made
            self._reply(201, json.dumps(made).encode(), "application/json; charset=utf-8")
        else:
            found = self.service.records.get(self.path.rpartition("/")[2])
            self._reply(200 if found else 404, json.dumps(found or {}).encode(), "application/json")

    do_GET = do_POST = _handle  # noqa: N815 - the names are http.server's

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def serving() -> Iterator[Foreign]:
    service = Foreign()
    handler = type("Handler", (_Handler,), {"service": service})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
    assert service.faults == []
