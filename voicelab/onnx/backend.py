"""What voices that onnxruntime runs have in common: a text is read segment by segment, and each is spoken as a whole."""

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
from voicelab.backend import DEFAULT_MAX_TEXT, SpeechStream, StreamSummary
from voicelab.call import Call
from voicelab.capabilities import Capabilities, FieldSupport, check_call, check_text_length
from voicelab.engine.text import as_written, normalize
from voicelab.engine.text.segments import segment
from voicelab.errors import Cancelled, EngineError, MissingExtra, NotFound, RequestInvalid, WeightsError
from voicelab.schema import TTSRequest, VoiceCreate, VoiceModel
from voicelab.storage import Closing
from voicelab.tags import ignored, read_tags

_CLAUSE: Final = 80
"""Characters within which the first segment of latency "low" ends at a clause, if one ends there."""
_OPENING: Final = 15
"""Characters that the first segment of latency "balanced" and "low" has at least."""
_THREADS: Final = 4
"""Of one utterance at most: more gain little."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What is spoken in one run of the graph."""

    symbols: str
    """The voice's own symbols: each character is a phone or a mark."""
    words: tuple[tuple[str, int, int], ...] = ()
    """(word as it is read, its first symbol, the symbol after its last); empty where they are not known."""


class GraphSession:
    """A graph that is ready to run, by as many threads of callers at once as the machine has room for.

    Raises MissingExtra, and WeightsError for what is no graph of ONNX.
    """

    def __init__(self, graph: bytes, *, name: str, extra: str, threads: int | None = None) -> None:
        with MissingExtra.where(extra, name):
            import onnxruntime
        cores = os.cpu_count() or 1
        threads = threads or min(cores, _THREADS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # A thread that waits by spinning takes the core from whoever speaks beside it.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        self._name = name
        try:
            self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
            self.inputs = {one.name: (one.type, one.shape) for one in self._session.get_inputs()}
            self.outputs = [one.name for one in self._session.get_outputs()]
        except Exception as error:  # each of onnxruntime's errors stands alone
            message = f"{name}: this is no ONNX graph that onnxruntime can run: {_first_line(error)}"
            raise WeightsError(message) from error
        self.new_run = onnxruntime.RunOptions
        self.at_once = max(1, cores // threads)
        self._turn = threading.Semaphore(self.at_once)

    def run(self, outputs: list[str], inputs: dict[str, np.ndarray[Any, Any]], options: Any) -> list[Any]:
        """Return the outputs by these names. Raises Cancelled once ``options.terminate`` is set, and EngineError."""
        with self._turn:
            try:
                answer: list[Any] = self._session.run(outputs, inputs, options)
            except Exception as error:
                if options.terminate:
                    raise Cancelled("the speech was cancelled") from None
                raise EngineError(f"{self._name}: the graph failed: {_first_line(error)}") from error
        return answer


class OnnxBackend(Closing, ABC):
    """A voice whose graph turns the symbols of one utterance into samples. Nothing in it is random but the graph itself."""

    languages: tuple[str, ...] = ("en",)

    def __init__(self, session: GraphSession, rate: int, **declared: Any) -> None:
        """``declared`` is what Capabilities takes besides what all such voices have in common."""
        self.session, self.rate = session, rate
        common: dict[str, Any] = {"device": "cpu", "max_text": DEFAULT_MAX_TEXT, "prices": (), "one_model": True}
        self._capabilities = Capabilities(**common, at_once=session.at_once, **declared)
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """What this backend is and can do."""
        return self._capabilities

    def synthesize(self, call: Call) -> SpeechStream:
        """Begin to speak; the audio of each segment leaves as soon as it is made.

        Raises RequestInvalid for a voice that is not there, or a text without a word; EngineError when closed.
        """
        started = time.perf_counter()
        if self._closed:
            raise EngineError(f"the backend {self._capabilities.name!r} is closed")
        call = check_call(call, self._capabilities)
        check_text_length(call.request, self._capabilities.max_text)
        if call.request.references and call.request.reference_id is None:
            message = f"the backend {self._capabilities.name!r} clones no voice; choose one of its voices"
            raise RequestInvalid.of("references", message, type="unsupported")
        speaker, options = self.speaker(call.request), self.session.new_run()
        notes, words = list[str](), list[WordTime]()
        utterances = self._utterances(call, notes)
        first = next(utterances, None)
        if first is None:
            raise RequestInvalid.of("text", "there is no word in the text that can be spoken")
        volume = call.request.prosody.volume if call.request.prosody else 0.0
        prosody = ProsodyProcessor(self.rate, volume=volume)

        def audio() -> Iterator[bytes]:
            encoder = StreamEncoder.for_request(call.request, self.rate)
            at = 0
            for utterance in chain((first,), utterances):
                samples, own = self.say(utterance, speaker, call, options)
                begin = at / self.rate
                words.extend(WordTime(word.text, begin + word.start, begin + word.end) for word in own)
                at += samples.size
                yield encoder.feed(prosody.feed(samples))
            yield encoder.feed(prosody.finish()) + encoder.finish()

        def cancel() -> None:
            options.terminate = True  # in the middle of a run

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
        """Yield what a call's text is spoken as, segment by segment; to ``notes`` comes what was noticed in it."""
        tagged = read_tags(call.request.text, call.model)
        notes += ignored(tagged)
        for text in reading(call.request, tagged.said):
            words, noticed = self.written(text, call.request.normalize)
            notes += noticed
            if words:
                utterances, noticed = self.utterances(words)
                notes += noticed
                yield from utterances

    @abstractmethod
    def speaker(self, request: TTSRequest) -> Any:
        """Return who speaks, as ``say`` takes it. Raises RequestInvalid for a voice that there is not."""

    def written(self, text: str, normalized: bool) -> tuple[str, tuple[str, ...]]:
        """Return a segment in words, and notes on what was left out."""
        return _in_words(text, normalized, self.languages)

    @abstractmethod
    def utterances(self, text: str) -> tuple[list[Utterance], tuple[str, ...]]:
        """Return what a segment of text, in words, is spoken as, and notes. Raises MissingExtra, RequestInvalid."""

    @abstractmethod
    def say(self, utterance: Utterance, speaker: Any, call: Call, options: Any) -> tuple[Samples, tuple[WordTime, ...]]:
        """Return the samples of an utterance and its words' times from its beginning. Raises Cancelled, EngineError."""

    def create_voice(self, request: VoiceCreate) -> VoiceModel:  # noqa: ARG002 - as every backend has it
        """Refuse: this backend makes no voices. Raises RequestInvalid."""
        message = f"the backend {self._capabilities.name!r} makes no voices of recordings"
        raise RequestInvalid.of("voices", message, type="unsupported")

    def get_voice(self, id: str) -> VoiceModel:
        """Refuse: this backend stores no voices. Raises NotFound."""
        raise NotFound(f"the backend {self._capabilities.name!r} stores no voices, so there is no {id!r}", status=404)

    def close(self) -> None:
        """Take no more calls; what is being said goes on. May be called twice."""
        self._closed = True


# A sweep says the same texts again and again, and a segment takes as long to read as to encode.
@lru_cache(maxsize=512)
def _in_words(text: str, normalized: bool, languages: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    written = (normalize if normalized else as_written)(text, languages)
    return written.text, written.notes


def reading(request: TTSRequest, text: str) -> Iterator[str]:
    """Yield the segments of what is said of a request's text.

    The first is a sentence for latency "balanced", and for "low" a clause where one ends soon, so that it is heard
    sooner; all others are as ``chunk_length`` and ``min_chunk_length`` say.
    """
    if request.latency != "normal" and text.strip():
        first = segment(text, request.chunk_length, _OPENING)[0]
        if request.latency == "low" and len(first.text) > _CLAUSE // 2:
            clause = segment(text, _CLAUSE, _OPENING)[0]
            first = first if clause.ends_with == "word" else clause
        yield first.text
        text = text[first.end :]
    yield from (one.text for one in segment(text, request.chunk_length, request.min_chunk_length))


def ignored_fields(sampling: str, *more: str) -> tuple[FieldSupport, ...]:
    """Return what such a voice declares: ``sampling`` says why the fields of a language model do nothing."""
    each = "it speaks each segment as a whole, by itself"
    reasons = {
        **dict.fromkeys(("temperature", "top_p", "repetition_penalty", "max_new_tokens"), sampling),
        **dict.fromkeys(("condition_on_previous_chunks", "early_stop_threshold"), each),
        "references": "it clones no voice",
        **dict.fromkeys(more, "this voice has none"),
    }
    return tuple(FieldSupport(field, ignored=why) for field, why in reasons.items())


def digest(*parts: bytes | str) -> str:
    """Return 16 hexadecimal digits that tell these parts from others: a fingerprint."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return sha.hexdigest()[:16]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
