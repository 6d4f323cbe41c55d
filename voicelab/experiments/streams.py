"""Streams that are listened to while somebody else reads them, and streams of takes that were kept."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

from voicelab.audio.clip import Provenance
from voicelab.backend import Capabilities, Epilogue, SpeechStream
from voicelab.errors import Cancelled, VoicelabError
from voicelab.experiments.take import Take
from voicelab.schema import check_model

__all__ = ["PlayedStream", "ReplayTiming", "overheard"]

ReplayTiming = Literal["original", "at once"]
"""Whether recorded chunks come when they came then, or as fast as they are read."""

Finished = Callable[[SpeechStream, bytes], tuple[str, ...]]
Failed = Callable[[SpeechStream, bytes, VoicelabError], None]


def overheard(
    stream: SpeechStream, *, started: float, finished: Finished, failed: Failed | None = None
) -> SpeechStream:
    """Return a stream of the same audio, at the same times, of which somebody is told the end.

    Args:
        stream: read by nobody else.
        started: ``time.perf_counter()`` at the call.
        finished: gets the stream and all its audio once that has arrived; returns notes to add.
        failed: gets the stream, the audio so far and the error that ends it.

    A stream that its reader leaves is told to nobody.
    """
    parts: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        try:
            for chunk in stream:
                parts.append(chunk)
                yield chunk
        except Cancelled:
            raise
        except VoicelabError as error:
            if failed is not None:
                failed(stream, b"".join(parts), error)
            raise

    def epilogue() -> Epilogue:
        outer = weak()
        if outer is not None:
            # A service may have drawn a seed, and told it with the audio.
            outer.seed = stream.seed
        told = stream.epilogue
        return Epilogue(told.words, (*told.notes, *finished(stream, b"".join(parts))), told.similarity)

    listened = _Overheard(
        stream,
        chunks(),
        request=stream.request,
        model=stream.model,
        backend=stream.backend,
        seed=stream.seed,
        on_close=stream.close,
        epilogue=epilogue,
        started=started,
    )
    # Weak, so that a stream that nobody holds any more ends at once.
    weak = weakref.ref(listened)
    return listened


class _Overheard(SpeechStream):
    """Its provenance is that of the stream that is listened to, which has the more exact times."""

    def __init__(self, stream: SpeechStream, chunks: Iterator[bytes], **options: Any) -> None:
        self._heard = stream
        super().__init__(chunks, **options)

    @property
    def provenance(self) -> Provenance:
        """Where the audio comes from; its timing is final once all audio has arrived."""
        return self._heard.provenance


class PlayedStream(SpeechStream):
    """A take played back, in the chunks in which it came. Its provenance has the times of its making.

    ``arrivals`` and ``first_audio_s`` are this playing's own. With ``timing="original"`` chunks come as
    late as they came then. ``error`` is raised after the last chunk.
    """

    def __init__(
        self,
        take: Take,
        backend: Capabilities,
        *,
        timing: ReplayTiming = "at once",
        error: VoicelabError | None = None,
    ) -> None:
        self._take = take
        self._error = error
        self._left = threading.Event()
        provenance = take.provenance
        started = time.perf_counter()
        super().__init__(
            self._played(started if timing == "original" else None),
            request=provenance.request,
            model=check_model(provenance.model),
            backend=backend,
            seed=provenance.seed,
            on_close=self._left.set,
            epilogue=lambda: Epilogue(take.words, take.told, take.similarity),
            started=started,
        )

    @property
    def provenance(self) -> Provenance:
        """Where the take comes from, with the timing of its making."""
        return self._take.provenance

    def _played(self, started: float | None) -> Iterator[bytes]:
        timing = self._take.timing
        for chunk, (seconds, _) in zip(self._take.chunks, timing.arrivals, strict=True):
            self._wait(started, seconds)
            yield chunk
        self._wait(started, timing.total_s)
        if self._error is not None:
            raise self._error

    def _wait(self, started: float | None, seconds: float) -> None:
        if started is not None:
            # Ends early when the stream is closed, by whomever.
            self._left.wait(started + seconds - time.perf_counter())
