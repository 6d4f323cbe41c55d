"""What a metric is: a named figure of one clip, with its unit, what it needs, and where it comes from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from voicelab.asr.recognizers import Recognizer
from voicelab.audio.samples import Samples
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, VoicelabError

Need = Literal["text", "reference", "recognizer", "encoder", "predictor"]
_Result = TypeVar("_Result")


class Undefined(VoicelabError):
    """A metric has no value for this clip; the message says why. ``measure`` turns it into NaN with that reason."""


@runtime_checkable
class SpeakerEncoder(Protocol):
    """Turns speech into a vector that tells who speaks."""

    def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
        """Return a vector, always of the same length, for mono ``samples`` in [-1, 1] at ``rate`` Hz."""
        ...


@runtime_checkable
class MosPredictor(Protocol):
    """Predicts what listeners would say."""

    def predict(self, samples: Samples, rate: int) -> float:
        """Return a mean opinion score, 1 to 5, for mono ``samples`` in [-1, 1] at ``rate`` Hz."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What some metrics work with; None is the default of each, where there is one.

    ``recognizer`` hears words (default: voicelab's own, from the extra ``recognition``). ``encoder`` tells
    speakers apart: an object, or the name of an entry point in the group ``voicelab.speaker_encoders``
    (default "resemblyzer", from the extra ``speaker``). ``predictor`` predicts a MOS: an object, or a name in the group
    ``voicelab.mos_predictors`` (default: "dnsmos"). ``spoken`` writes a text as it is read aloud, "1984" as
    "nineteen eighty four"; without it, texts with figures in them have no word error.
    """

    recognizer: Recognizer | None = None
    encoder: SpeakerEncoder | str | None = None
    predictor: MosPredictor | str | None = None
    spoken: Callable[[str], str] | None = None


@dataclass(eq=False)
class Subject:
    """A clip while it is measured: with what it is compared to, and what was already computed of it.

    ``text`` is what it should say, None when that is unknown.
    """

    clip: Clip
    reference: Subject | None = None
    text: str | None = None
    tools: Tools = field(default_factory=Tools)
    _results: dict[Callable[[Subject], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, work: Callable[[Subject], _Result]) -> _Result:
        """Return ``work(self)``, computed the first time only, so that metrics share what is costly.

        Undefined is remembered as well, and raised again.
        """
        if work not in self._results:
            try:
                self._results[work] = work(self)
            except Undefined as error:
                self._results[work] = error
        result = self._results[work]
        if isinstance(result, Undefined):
            raise Undefined(str(result))
        return cast(_Result, result)

    @property
    def said(self) -> str:
        """What the clip should say. Raises Undefined when that is unknown."""
        if self.text is None or not self.text.strip():
            raise Undefined("the clip's text is unknown")
        return self.text

    @property
    def other(self) -> Subject:
        """What the clip is compared with. Raises Undefined when there is nothing."""
        if self.reference is None:
            raise Undefined("there is no reference for this clip")
        return self.reference


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a clip.

    ``name`` is a column's name, ``unit`` its unit ("" for a bare number), ``better`` says which way is
    better where one is. ``compute`` takes a Subject and returns the figure, or raises Undefined with the
    reason why there is none; its docstring says what is measured, from what source. ``needs`` names what
    must be given besides the clip. ``module`` is what must be installed and ``extra`` the extra of voicelab
    that brings it. ``slow`` metrics take tens of milliseconds or more for a second of audio.

    Raises ArgumentError for a name that is no identifier.
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
            raise ArgumentError.of("name", f"{self.name!r} cannot name a column: letters, digits and underscores")

    @property
    def doc(self) -> str:
        """What is measured, and by whose definition."""
        return inspect.getdoc(self.compute.func if isinstance(self.compute, partial) else self.compute) or ""
