"""``voicelab serve``: put the embedded voice behind the interface's HTTP."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import voicelab
from voicelab.cli.console import say_line
from voicelab.cli.options import whole_number
from voicelab.errors import RequestInvalid
from voicelab.service.keys import KeyStore
from voicelab.service.run import LOOPBACK, PORT
from voicelab.service.run import serve as run
from voicelab.voices.store import VoiceStore

__all__ = ["serve"]


def serve(
    *,
    host: Annotated[str, typer.Option(help="Address to listen at; by default this machine alone can call.")] = LOOPBACK,
    port: Annotated[str, typer.Option(metavar="N", help="Port to listen at; 0 takes any free one.")] = str(PORT),
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the voice runs: cpu, cuda, cuda:1 …", show_default=False)
    ] = None,
) -> None:
    """Serve the embedded voice until Ctrl-C or SIGTERM. Keys are made with voicelab keys create."""
    number = whole_number("port", port)
    if number is None or not 0 <= number <= 65535:
        raise RequestInvalid.of("port", f"should be 0 to 65535, not {port}")
    # The keys first: they are quick to open, and a store that cannot be used is quick to tell.
    with KeyStore() as keys, VoiceStore(exclusive=True) as voices:
        backend = voicelab.LocalBackend(device=device, voices=voices)
        try:
            run(backend, host, number, keys=keys, say=partial(say_line, to_stderr=True))
        finally:
            backend.close()
