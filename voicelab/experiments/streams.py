"""Streams that are copied while they are read, and streams of takes that were kept."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Literal

from voicelab.backend import Capabilities, SpeechStream, StreamSummary
from voicelab.clip import Take, Timing
from voicelab.errors import Cancelled, VoicelabError

__all__ = ["RecordedStream", "ReplayTiming", "tee"]

ReplayTiming = Literal["original", "at once"]
"""Whether recorded chunks come when they came then, or as fast as they are read."""

Finished = Callable[[SpeechStream, bytes], tuple[str, ...]]
Failed = Callable[[SpeechStream, bytes, VoicelabError], None]


def tee(stream: SpeechStream, *, started: float, finished: Finished, failed: Failed | None = None) -> SpeechStream:
    """Return a stream of the same audio, at the same times, that hands a copy on when it ends.

    Args:
        stream: read by nobody else.
        started: ``time.perf_counter()`` at the call.
        finished: gets the stream and all its audio once that has arrived; returns notes to add.
        failed: gets the stream, the audio so far and the error that ends it.

    Neither is called for a stream that its reader leaves.
    """
    return _Tee(stream, started, finished, failed)


class _Tee(SpeechStream):
    """Its timing and its take are those of the stream behind it, which has the more exact times."""

    def __init__(self, stream: SpeechStream, started: float, finished: Finished, failed: Failed | None) -> None:
        self._source = stream
        parts: list[bytes] = []
        added: list[str] = []
        self._added = added
        # Weak, so that a stream that nobody holds any more ends at once.
        outer = weakref.ref(self)

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

        def summary() -> StreamSummary:
            this = outer()
            if this is not None:
                # A service may have drawn a seed, and sent it with the audio.
                this.seed = stream.seed
            added.extend(finished(stream, b"".join(parts)))
            inner = stream.summary
            return StreamSummary(inner.words, (*inner.notes, *added), inner.similarity)

        super().__init__(
            chunks(),
            call=stream.call,
            backend=stream.backend,
            seed=stream.seed,
            on_close=stream.close,
            summary=summary,
            started=started,
        )

    @property
    def timing(self) -> Timing:
        """When the audio came; final once all audio has arrived."""
        return self._source.timing

    def take_of(self, audio: bytes, repeat: int = 0) -> Take:
        """Return the take of the stream behind this one, with the notes that were added."""
        return self._source.take_of(audio, repeat).noted(*self._added)


class RecordedStream(SpeechStream):
    """A take played back, in the chunks in which it came. Its timing is that of its making.

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
        started = time.perf_counter()
        super().__init__(
            self._played(started if timing == "original" else None),
            call=take.call,
            backend=backend,
            seed=take.seed,
            on_close=self._left.set,
            summary=lambda: StreamSummary(take.words, take.all_notes, take.similarity),
            started=started,
        )

    @property
    def timing(self) -> Timing:
        """When the audio came when it was made."""
        return self._take.timing

    def take_of(self, audio: bytes, repeat: int = 0) -> Take:  # noqa: ARG002 - the take has its own
        """Return the take that is played."""
        return self._take

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
