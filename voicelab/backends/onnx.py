"""Base of the ONNX backends: text is split into segments, and each is synthesized in one run of the graph."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np

from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.prosody import ProsodyProcessor
from voicelab.audio.samples import Samples
from voicelab.audio.words import WordTime
from voicelab.backend import DEFAULT_MAX_TEXT, SpeechStream, StreamSummary, VoicelessBackend
from voicelab.call import Call
from voicelab.capabilities import Capabilities, FieldSupport
from voicelab.errors import Cancelled, EngineError, MissingExtra, RequestInvalid, WeightsError
from voicelab.lifecycle import ProcessOwner
from voicelab.schema import TTSRequest
from voicelab.tags import ignored, read_tags
from voicelab.text import as_written, normalize
from voicelab.text.segments import segment

_MAX_CLAUSE: Final = 80
"""Maximum characters of a first segment that ends at a clause boundary, for latency "low"."""
_MIN_FIRST_SEGMENT: Final = 15
"""Minimum characters of the first segment, for latency "balanced" and "low"."""
_MAX_THREADS: Final = 4
"""Maximum threads of one run; more threads gain little speed."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Input of one run of the graph."""

    symbols: str
    """Symbols of the voice, one character per phone or punctuation mark."""
    words: tuple[tuple[str, int, int], ...] = ()
    """(normalized word, index of its first symbol, index after its last symbol); empty if unknown."""


class GraphSession:
    """ONNX inference session with a limit on concurrent runs.

    Raises MissingExtra, and WeightsError if the data are not an ONNX graph.
    """

    def __init__(self, graph: bytes, *, name: str, extra: str, threads: int | None = None) -> None:
        with MissingExtra.where(extra, name):
            import onnxruntime
        cores = os.cpu_count() or 1
        threads = threads or min(cores, _MAX_THREADS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Spinning threads would take cores from concurrent runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        self._name = name
        try:
            self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
            self.inputs = {tensor.name: (tensor.type, tensor.shape) for tensor in self._session.get_inputs()}
            self.outputs = [tensor.name for tensor in self._session.get_outputs()]
        except Exception as error:  # onnxruntime's errors have no common base class
            raise WeightsError(f"{name}: not an ONNX graph that onnxruntime can run: {_first_line(error)}") from error
        self.new_run = onnxruntime.RunOptions
        self.max_concurrency = max(1, cores // threads)
        self._slots = threading.Semaphore(self.max_concurrency)
        self._owner = ProcessOwner()

    def run(self, outputs: list[str], inputs: dict[str, np.ndarray[Any, Any]], options: Any) -> list[Any]:
        """Run the graph and return the named outputs. Raises Cancelled once ``options.terminate`` is set, and EngineError."""
        self._owner.check(self._name)
        with self._slots:
            try:
                results: list[Any] = self._session.run(outputs, inputs, options)
            except Exception as error:
                if options.terminate:
                    raise Cancelled("the synthesis was cancelled") from None
                raise EngineError(f"{self._name}: the graph failed: {_first_line(error)}") from error
        return results


class OnnxBackend(VoicelessBackend, ABC):
    """Base class of backends whose graph maps the symbols of an utterance to samples.

    All steps except the run of the graph must be deterministic.
    """

    languages: tuple[str, ...] = ("en",)

    def __init__(self, session: GraphSession, rate: int, **declared: Any) -> None:
        """Create the backend; ``declared`` are further arguments of Capabilities."""
        self.session, self.rate = session, rate
        common: dict[str, Any] = {"device": "cpu", "max_text": DEFAULT_MAX_TEXT, "prices": (), "one_model": True}
        super().__init__(Capabilities(**common, at_once=session.max_concurrency, **declared))

    def synthesize(self, call: Call) -> SpeechStream:
        """Start synthesis; the audio of each segment is sent as soon as it is ready.

        Raises RequestInvalid for an unknown voice or a text without words, and EngineError after ``close()``.
        """
        started = time.perf_counter()
        call = self.checked(call)
        if call.request.references and call.request.reference_id is None:
            message = (
                f"the backend {self._capabilities.name!r} does not support voice cloning; choose one of its voices"
            )
            raise RequestInvalid.of("references", message, type="unsupported")
        speaker, options = self.speaker(call.request), self.session.new_run()
        notes, words = list[str](), list[WordTime]()
        utterances = self._utterances(call, notes)
        first_utterance = next(utterances, None)
        if first_utterance is None:
            raise RequestInvalid.of("text", "the text has no word that can be spoken")
        volume = call.request.prosody.volume if call.request.prosody else 0.0
        prosody = ProsodyProcessor(self.rate, volume=volume)

        def audio() -> Iterator[bytes]:
            encoder = StreamEncoder.for_request(call.request, self.rate)
            sample_count = 0
            for utterance in chain((first_utterance,), utterances):
                samples, utterance_words = self.say(utterance, speaker, call, options)
                begin = sample_count / self.rate
                words.extend(WordTime(word.text, begin + word.start, begin + word.end) for word in utterance_words)
                sample_count += samples.size
                yield encoder.feed(prosody.feed(samples))
            yield encoder.feed(prosody.finish()) + encoder.finish()

        def cancel() -> None:
            options.terminate = True  # ends a run in progress

        def summary() -> StreamSummary:
            return StreamSummary(tuple(words), tuple(dict.fromkeys((*notes, *prosody.notes))))

        return SpeechStream(
            audio(),
            call=call,
            backend=self._capabilities,
            on_close=cancel,
            notes=notes.copy,
            summary=summary,
            started=started,
        )

    def _utterances(self, call: Call, notes: list[str]) -> Iterator[Utterance]:
        """Yield the utterances of a call's text, segment by segment, and append to ``notes``.

        The complete text is normalized before the first audio, because a service sends the notes in a header.
        """
        tagged = read_tags(call.request.text, call.model)
        notes += ignored(tagged)
        segments = split_text(call.request, tagged.said)
        normalized = [self.normalize_text(text, call.request.normalize) for text in segments]
        notes += dict.fromkeys(note for _, segment_notes in normalized for note in segment_notes)
        for words, _ in normalized:
            if words:
                utterances, segment_notes = self.utterances(words)
                notes += segment_notes
                yield from utterances

    @abstractmethod
    def speaker(self, request: TTSRequest) -> Any:
        """Return the speaker argument of ``say`` for a request. Raises RequestInvalid for an unknown voice."""

    def normalize_text(self, text: str, normalized: bool) -> tuple[str, tuple[str, ...]]:
        """Normalize a segment to words; return them with notes on skipped characters."""
        return _normalize_text(text, normalized, self.languages)

    @abstractmethod
    def utterances(self, text: str) -> tuple[list[Utterance], tuple[str, ...]]:
        """Convert a normalized segment to utterances; return them with notes. Raises MissingExtra, RequestInvalid."""

    @abstractmethod
    def say(self, utterance: Utterance, speaker: Any, call: Call, options: Any) -> tuple[Samples, tuple[WordTime, ...]]:
        """Synthesize an utterance; return samples, and word times relative to them. Raises Cancelled, EngineError."""


# Sweeps repeat the same texts, and normalizing a segment takes as long as encoding it.
@lru_cache(maxsize=512)
def _normalize_text(text: str, normalized: bool, languages: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    result = (normalize if normalized else as_written)(text, languages)
    return result.text, result.notes


def split_text(request: TTSRequest, text: str) -> Iterator[str]:
    """Split the spoken text of a request into segments.

    To reduce latency, the first segment is one sentence for latency "balanced". For "low", it is a clause if a clause ends
    early, else also one sentence. All other segments follow ``chunk_length`` and ``min_chunk_length``.
    """
    if request.latency != "normal" and text.strip():
        opening = segment(text, request.chunk_length, _MIN_FIRST_SEGMENT)[0]
        if request.latency == "low" and len(opening.text) > _MAX_CLAUSE // 2:
            clause = segment(text, _MAX_CLAUSE, _MIN_FIRST_SEGMENT)[0]
            opening = opening if clause.ends_with == "word" else clause
        yield opening.text
        text = text[opening.end :]
    yield from (item.text for item in segment(text, request.chunk_length, request.min_chunk_length))


def ignored_fields(sampling: str, *more: str) -> tuple[FieldSupport, ...]:
    """Declare the fields that ONNX voices ignore, and ``more``; ``sampling`` is the reason for the sampling fields."""
    independent = "each segment is synthesized independently"
    reasons = {
        **dict.fromkeys(("temperature", "top_p", "repetition_penalty", "max_new_tokens"), sampling),
        **dict.fromkeys(("condition_on_previous_chunks", "early_stop_threshold"), independent),
        "references": "the backend does not support voice cloning",
        **dict.fromkeys(more, "the voice does not support it"),
    }
    return tuple(FieldSupport(field, ignored=reason) for field, reason in reasons.items())


def digest(*items: bytes | str) -> str:
    """Compute a fingerprint of 16 hexadecimal digits."""
    sha = hashlib.sha256()
    for item in items:
        sha.update(hashlib.sha256(item.encode() if isinstance(item, str) else item).digest())
    return sha.hexdigest()[:16]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
