"""Metric, the tools that metrics use, and the subject that they measure."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from voicelab.asr.normalization import Normalizer
from voicelab.asr.recognizers import Recognizer
from voicelab.audio.samples import Samples
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, VoicelabError

Need = Literal["text", "reference", "recognizer", "encoder", "predictor"]
_Result = TypeVar("_Result")


class Undefined(VoicelabError):
    """A metric is undefined for a clip; ``measure`` records NaN and the reason, which is the message."""


@runtime_checkable
class SpeakerEncoder(Protocol):
    """Protocol for speaker encoders."""

    def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
        """Compute an embedding of fixed shape (n,) of mono ``samples`` in [-1, 1] at ``rate`` Hz."""
        ...


@runtime_checkable
class MosPredictor(Protocol):
    """Protocol for MOS predictors."""

    def predict(self, samples: Samples, rate: int) -> float:
        """Predict a mean opinion score, 1 to 5, of mono ``samples`` in [-1, 1] at ``rate`` Hz."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """Models used by metrics.

    ``recognizer``: speech recognizer, an object or a name, see ``voicelab.asr.recognizers`` (default: that of
    ``VOICELAB_RECOGNIZER``, else Whisper base). ``normalizer``: text normalization of reference and transcript for WER, see
    ``normalized_words``. ``encoder``: speaker encoder, an object or a name: "resemblyzer" (default, extra ``speaker``),
    "wavlm", "ecapa", or an entry point in the group ``voicelab.speaker_encoders``. ``predictor``: MOS predictor, an object or
    a name: "dnsmos" (default), "distillmos", "nisqa", "utmos", or an entry point in ``voicelab.mos_predictors``.
    """

    recognizer: Recognizer | str | None = None
    encoder: SpeakerEncoder | str = "resemblyzer"
    predictor: MosPredictor | str = "dnsmos"
    normalizer: Normalizer = "voicelab"


Results = dict[Callable[["Subject"], Any], Any]
"""Intermediate results of a subject by the function that computes them."""


@dataclass(eq=False)
class Subject:
    """A clip under measurement, with its reference, its spoken ``text`` (None if unknown) and cached intermediate results."""

    clip: Clip
    reference: Subject | None = None
    text: str | None = None
    tools: Tools = field(default_factory=Tools)
    results: Results = field(default_factory=dict, repr=False)

    def once(self, work: Callable[[Subject], _Result]) -> _Result:
        """Return ``work(self)``, or raise Undefined like ``work``; results are cached, so that metrics share computations."""
        if work not in self.results:
            try:
                self.results[work] = work(self)
            except Undefined as error:
                self.results[work] = error
        result = self.results[work]
        if isinstance(result, Undefined):
            raise Undefined(str(result))
        return cast("_Result", result)

    @property
    def said(self) -> str:
        """Spoken text of the clip. Raises Undefined if it is unknown."""
        if self.text is None or not self.text.strip():
            raise Undefined("the clip's text is unknown")
        return self.text

    @property
    def other(self) -> Subject:
        """Reference of the clip. Raises Undefined if there is none."""
        if self.reference is None:
            raise Undefined("there is no reference for this clip")
        return self.reference


@dataclass(frozen=True, slots=True)
class Metric:
    """Definition of a metric of a clip.

    ``name``: column name; ``unit``: "" if dimensionless; ``better``: direction of better values, if any. ``compute``:
    function that returns the value for a Subject, or raises Undefined with the reason; its docstring states the
    definition and source. ``needs``: required inputs besides the clip. ``module``: required package, installed by
    voicelab's ``extra``. ``slow``: takes tens of milliseconds or more per second of audio.

    Raises ArgumentError for a name that is not an identifier.
    """

    name: str
    unit: str
    compute: Callable[[Subject], float]
    better: Literal["higher", "lower"] | None = None
    needs: tuple[Need, ...] = ()
    module: str = ""
    extra: str = ""
    slow: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ArgumentError.of(
                "name", f"must be an identifier of letters, digits and underscores, got {self.name!r}"
            )

    @property
    def doc(self) -> str:
        """Definition and source of the metric."""
        return inspect.getdoc(self.compute.func if isinstance(self.compute, partial) else self.compute) or ""
