"""Recorder: where files are dropped and the microphone is recorded; what comes is handed on whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import anywidget

from voicelab.audio.formats import MAX_BYTES
from voicelab.views.modules import STATIC, inlined

__all__ = ["Recorder"]

# Files on their way at the same time; a page that was closed in the middle never sends the rest of its own.
_MOST: Final = 32


class Recorder(anywidget.AnyWidget):
    """A place to drop files, a button to choose them, and one to record the microphone, where the browser allows.

    ``came`` is called with a name and the bytes of a file, whatever they are; ``refused`` with a name and a sentence
    for a file of more than ``MAX_BYTES``.
    """

    _esm = inlined("recorder.js")
    _css = STATIC / "recorder.css"

    def __init__(self, came: Callable[[str, bytes], object], refused: Callable[[str, str], object]) -> None:
        self._came = came
        self._refused = refused
        self._files: dict[str, bytearray] = {}
        super().__init__()
        self.on_msg(self._on_message)

    def _on_message(self, _: Any, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        if message.get("kind") != "piece":
            return
        file, name, size, at = (message.get(key) for key in ("file", "name", "size", "at"))
        if not (isinstance(file, str) and isinstance(name, str) and isinstance(size, int) and isinstance(at, int)):
            return
        if size > MAX_BYTES:
            self.send({"kind": "got", "file": file, "at": -1})
            self._refused(name, f"it has {size / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB are taken")
            return
        held = self._files.setdefault(file, bytearray())
        while len(self._files) > _MOST:
            del self._files[next(iter(self._files))]
        if at == len(held):
            for piece in buffers:
                held += bytes(piece)
        if len(held) >= size:
            self._files.pop(file, None)
        self.send({"kind": "got", "file": file, "at": len(held)})
        if len(held) >= size:
            self._came(name, bytes(held[:size]))

    def __repr__(self) -> str:
        return f"Recorder({len(self._files)} files on their way)"
