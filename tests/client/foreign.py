"""A service written from the interface alone, on the standard library, that knows nothing of voicelab.

It answers what the document shows and nothing else: no /health, no headers of ours, other media types and another
spelling of headers; and it notes as a fault what the document does not show.
"""

from __future__ import annotations

import email
import email.policy
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it publishes no types
import numpy as np

SECRET = "secret-1"

TTS_FIELDS = {
    "text", "temperature", "top_p", "references", "reference_id", "prosody", "chunk_length", "normalize", "format",
    "sample_rate", "mp3_bitrate", "opus_bitrate", "latency", "max_new_tokens", "repetition_penalty",
    "min_chunk_length", "condition_on_previous_chunks", "early_stop_threshold",
}  # fmt: skip
FORM_FIELDS = {
    "type", "title", "train_mode", "visibility", "description", "cover_image", "texts", "tags",
    "enhance_audio_quality",
}  # fmt: skip
HTTP_HEADERS = {
    "host", "accept", "accept-encoding", "connection", "user-agent", "content-length", "content-type",
    "authorization", "model",
}  # fmt: skip


@dataclass
class Served:
    """One running service: its address, the voices it made, and what it was asked that the interface does not show."""

    url: str = ""
    voices: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Served]:
    """Run the service; at its end nothing must have been asked that the interface does not show."""

    class Handler(Foreign):
        served = Served()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Handler.served.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Handler.served
        finally:
            server.shutdown()
            thread.join()
    assert Handler.served.faults == []


class Foreign(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Served

    def do_GET(self) -> None:
        if not self.path.startswith("/model/"):
            self._answer(404, b"<html>There is nothing here</html>", "text/html")
        elif self._authorized():
            found = self.served.voices.get(self.path.removeprefix("/model/"))
            if found is None:
                self._answer(404, b"no such model", "text/plain")
            else:
                self._answer(200, json.dumps(found).encode(), "application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        unknown = {name.lower() for name in self.headers} - HTTP_HEADERS
        if unknown:
            self.served.faults.append(f"headers {unknown}")
        if not self._authorized():
            return
        {"/v1/tts": self._tts, "/model": self._model}[self.path](body)

    def _authorized(self) -> bool:
        if self.headers.get("authorization") == f"Bearer {SECRET}":
            return True
        self._answer(401, b'{"status": 401, "message": "no permission"}', "application/json")
        return False

    def _tts(self, body: bytes) -> None:
        kind = self.headers["content-type"]
        fields = msgpack.unpackb(body) if kind == "application/msgpack" else json.loads(body)
        if set(fields) - TTS_FIELDS or (kind == "application/json" and fields.get("references")):
            self.served.faults.append(f"{kind} {set(fields) - TTS_FIELDS}")
        if self.headers.get("model") not in {"s1", "s2-pro"}:
            self.served.faults.append("model")
        if fields["text"] == "too dear":
            self._answer(402, b'{"status": 402, "message": "please pay"}', "application/json")
        elif fields.get("reference_id", "v7") not in self.served.voices | {"v7": None}:
            wrong = [{"loc": ["body", "reference_id"], "type": "missing", "msg": "unknown", "in": "body"}]
            self._answer(422, json.dumps(wrong).encode(), "application/json")
        else:
            self._speak(fields)

    def _speak(self, fields: dict[str, Any]) -> None:
        rate = fields.get("sample_rate") or 44100
        samples = np.full(rate // 10, len(fields["text"]) * 100, "<i2").tobytes()
        if fields["format"] == "wav":
            samples = struct.pack(
                "<4sI4s4sIHHIIHH4sI", b"RIFF", 0xFFFFFFFF, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data",
                0xFFFFFFFF,
            ) + samples  # fmt: skip
        self.send_response(200, "Fine")
        self.send_header("TRANSFER-ENCODING", "chunked")
        self.send_header("content-TYPE", "application/octet-stream")
        self.end_headers()
        for begin in range(0, len(samples), 1000):
            part = samples[begin : begin + 1000]
            # A chunk may carry an extension, and its length may be written in capitals with zeros before it.
            self.wfile.write(b"%06X;note=1\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\nX-Trailer: yes\r\n\r\n")

    def _model(self, body: bytes) -> None:
        kind = self.headers["content-type"]
        fields: dict[str, Any] = {"texts": [], "tags": []}
        if kind == "application/msgpack":
            fields |= msgpack.unpackb(body)
            files = fields.pop("voices")
        else:
            message = email.message_from_bytes(
                b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body, policy=email.policy.HTTP
            )
            files = []
            for part in message.iter_parts():
                name, data = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
                if name in {"texts", "tags"}:
                    fields[name].append(data.decode())  # type: ignore[union-attr]
                elif name == f"voices[{len(files)}]":
                    files.append(data)
                else:
                    fields[str(name)] = data if part.get_filename() else data.decode()  # type: ignore[union-attr]
        if set(fields) - FORM_FIELDS or not files or fields["type"] != "tts" or fields["train_mode"] != "fast":
            self.served.faults.append(f"{kind} {fields}")
        # Only what is required, other fields null, and some that came later.
        record = {
            "_id": f"v{len(self.served.voices) + 1}", "type": "tts", "title": fields["title"], "description": "",
            "cover_image": "", "state": "trained", "tags": fields["tags"], "created_at": "2026-11-21T10:00:00.5Z",
            "updated_at": "2026-11-21T10:00:00+02:00", "visibility": fields["visibility"], "like_count": 0,
            "mark_count": 0, "shared_count": 0, "task_count": 0, "author": {"_id": "a", "nickname": "n", "avatar": ""},
            "samples": [{"title": "s", "text": text, "task_id": "t", "audio": "u", "new": 1} for text in fields["texts"]],
            "languages": None, "default_text": None, "x": {"y": [len(file) for file in files]},
        }  # fmt: skip
        self.served.voices[record["_id"]] = record
        self._answer(200, json.dumps(record).encode(), "application/json; charset=utf-8")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("cOnTeNt-LeNgTh", str(len(body)))
        self.send_header("CONTENT-TYPE", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
