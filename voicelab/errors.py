"""Every error voicelab raises on purpose, as one tree.

    VoicelabError
    ├── RequestInvalid (ValueError)        a request breaks a rule; ``.errors`` names every field
    ├── ArgumentError (ValueError)         an argument of a function is wrong; ``.argument`` names it
    ├── ServiceError                       a service answered with an error, or not at all
    │   ├── AuthenticationError            401: no key, or one that is not accepted
    │   ├── PaymentRequired                402: a charging condition is not met
    │   ├── NotFound (LookupError)         404: unknown, or private to another caller
    │   ├── ServiceUnavailable             503, other 5xx, refused connections
    │   ├── ServiceTimeout (TimeoutError)  no answer within the time allowed
    │   └── StreamTruncated                the audio ended early; ``.partial`` is what did arrive
    ├── AudioError (ValueError)            audio that cannot be read or written
    ├── Cancelled                          the work was stopped on request
    ├── StoreError (OSError)               what is kept on this machine's disk is missing, damaged or in use
    └── EngineError (RuntimeError)         the local engine failed
        ├── EngineUnavailable              it cannot serve now (no memory, started anew); try again
        ├── WeightsError                   weights are missing or damaged
        ├── LicenseRequired                weights whose license was not accepted
        └── MissingExtra (ImportError)     an optional dependency is not installed

Each class also inherits the builtin that fits it, so that ``except ValueError`` in code that does not
import voicelab still catches a bad value. No message ever holds a secret.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from voicelab.display import Shown
from voicelab.distribution import install_command

_PACKAGE: Final = Path(__file__).parent
_MAGIC: Final = "get_ipython().run_"


def suggestion(typed: object, choices: Iterable[str]) -> str:
    """Return which of ``choices`` was meant, as the end of a sentence: "; did you mean speed?". Or "", where none is near."""
    names, word = list(choices), str(typed)
    begins = [name for name in names if len(word) > 2 and name.startswith(word)]
    close = begins or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close and close[0] != word else ""


def shortened(text: str, most: int) -> str:
    """Return a text of ``most`` characters at most, with an ellipsis at its end where it was longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def check_options(options: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise ArgumentError for a keyword that is not among those that are allowed, which it lists."""
    names = list(allowed)
    for name in options:
        if name not in names:
            raise ArgumentError.of(name, f"unknown option; the options are {', '.join(names) or 'none'}")


@dataclass(frozen=True, slots=True)
class FieldError:
    """One item of a 422 body: which field is wrong, and why.

    ``loc`` is the path to the field as the interface spells it, its first part the place
    (``("body", "prosody", "speed")``); ``type`` a stable machine-readable name; ``msg`` a sentence
    for people; ``ctx`` optional further detail; ``in_`` the place (``path``, ``query``, ``header``,
    ``cookie`` or ``body``), on the wire ``in``, which Python reserves.
    """

    loc: tuple[str, ...]
    type: str
    msg: str
    ctx: str | None = None
    in_: str | None = "body"

    @property
    def field(self) -> str:
        """Dotted name of the field without its place, for example ``prosody.speed``."""
        parts = self.loc[1:] if len(self.loc) > 1 and self.loc[0] == self.in_ else self.loc
        return ".".join(parts)

    def to_wire(self) -> dict[str, object]:
        """Return the item as the interface's section 7.1 has it; absent values are left out."""
        wire = {"loc": list(self.loc), "type": self.type, "msg": self.msg, "ctx": self.ctx, "in": self.in_}
        return {name: value for name, value in wire.items() if value is not None}


class VoicelabError(Shown, Exception):
    """Base of every error that voicelab raises on purpose."""


class _ShortTraceback:
    """An error of whoever calls: IPython shows the line that called and the sentence, all with ``%xmode Verbose``."""

    __traceback__: TracebackType | None

    def _render_traceback_(self) -> list[str]:
        handler = sys.modules["IPython"].get_ipython().InteractiveTB
        if handler.mode == "Verbose":
            lines: list[str] = handler.structured_traceback(
                type(self), self, self.__traceback__, tb_offset=handler.tb_offset
            )
            return lines
        frames = traceback.extract_tb(self.__traceback__)
        ours = next((n for n, frame in enumerate(frames) if Path(frame.filename).is_relative_to(_PACKAGE)), len(frames))
        # A magic is called by IPython, from a line that IPython wrote.
        shell = Path(sys.modules["IPython"].__file__ or "").parent
        theirs = [frame for frame in frames[:ours] if not Path(frame.filename).is_relative_to(shell)]
        called = [f"line {one.lineno}: {one.line}" for one in theirs[-1:] if one.line and _MAGIC not in one.line]
        return [*called, f"{type(self).__name__}: {self}"]


class RequestInvalid(_ShortTraceback, VoicelabError, ValueError):
    """A request breaks a rule of the interface.

    ``errors`` holds at least one :class:`FieldError`; ``str()`` names every field with its reason.
    When it was a service that refused, ``status``, ``body`` and ``request_id`` are as in a ServiceError;
    they are None when the request never left.
    """

    errors: tuple[FieldError, ...]

    def __init__(
        self,
        errors: Iterable[FieldError],
        *,
        status: int | None = None,
        body: bytes | None = None,
        request_id: str | None = None,
    ) -> None:
        self.errors = tuple(errors)
        self.status = status
        self.body = body
        self.request_id = request_id
        # The arguments are the errors themselves, not the sentence, so that the exception survives pickling.
        super().__init__(self.errors)

    @classmethod
    def of(cls, field: str, msg: str, *, type: str = "value_error", in_: str = "body") -> Self:
        """Build the error for one field; ``field`` may be dotted (``prosody.speed``)."""
        return cls((FieldError(loc=(in_, *field.split(".")), type=type, msg=msg, in_=in_),))

    def __str__(self) -> str:
        return "; ".join(f"{error.field}: {error.msg}" for error in self.errors)

    def change(self, change: Callable[[FieldError], FieldError]) -> None:
        """Say every item in another way, such as by the name that was typed."""
        self.errors = tuple(map(change, self.errors))
        self.args = (self.errors,)


class ArgumentError(_ShortTraceback, VoicelabError, ValueError):
    """A function was called with a wrong argument; ``argument`` is its name.

    Fields of a request, and of a voice to be made, are RequestInvalid instead, wherever they are checked.
    """

    def __init__(self, message: str, *, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument

    @classmethod
    def of(cls, argument: str, msg: str) -> Self:
        """Build the error for one argument: ``ArgumentError.of("p_values", "there are none")``."""
        return cls(f"{argument}: {msg}", argument=argument)


class ServiceError(VoicelabError):
    """A service answered with an error, or did not answer.

    ``status`` is the HTTP status or None when there was no answer, ``body`` the raw answer and
    ``request_id`` the service's own name of the call, where it gave one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        body: bytes | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.request_id = request_id


class AuthenticationError(ServiceError):
    """401: there is no key, or the key is not accepted."""


class PaymentRequired(ServiceError):
    """402: a charging condition is not met."""


class NotFound(_ShortTraceback, ServiceError, LookupError):
    """404: the thing is unknown, or private to another caller; the answer is the same."""


class ServiceUnavailable(ServiceError):
    """The service is overloaded, broken or cannot be reached (503, other 5xx, refused connections)."""


class ServiceTimeout(ServiceError, TimeoutError):
    """The service did not answer within the time allowed."""


class StreamTruncated(ServiceError):
    """The audio ended before the service said that it was complete; ``partial`` is what did arrive.

    ``answer`` is what else a ServiceError says.
    """

    def __init__(self, message: str, *, partial: bytes = b"", **answer: Any) -> None:
        super().__init__(message, **answer)
        self.partial = partial


class AudioError(VoicelabError, ValueError):
    """Audio that cannot be read or written: damaged, truncated, of an unknown or refused format."""


class Cancelled(VoicelabError):
    """The work was stopped because the caller cancelled it."""


class ExecutorError(VoicelabError, RuntimeError):
    """What makes a sweep's takes is gone: the processes of an executor, a cluster's scheduler, or every fit worker."""


class StoreError(VoicelabError, OSError):
    """What is kept on this machine's disk is missing, damaged or in use; the message names the file."""


class EngineError(VoicelabError, RuntimeError):
    """The local engine failed; the request itself was valid."""


class EngineUnavailable(EngineError):
    """The local engine cannot serve now, and may in a moment: memory is short, or it was started anew."""


class WeightsError(EngineError):
    """Weights are missing, damaged, or of a layout that this version does not know."""


class LicenseRequired(EngineError):
    """Weights are under a license that was not accepted on this machine; the message states its terms."""


class MissingExtra(EngineError, ImportError):
    """An optional dependency is not installed; ``extra`` says which one provides it."""

    def __init__(self, message: str, *, extra: str = "all") -> None:
        super().__init__(message)
        self.extra = extra

    @classmethod
    def of(cls, extra: str, purpose: str) -> Self:
        """Build the error that says what to install: ``MissingExtra.of("local", "the embedded voice")``."""
        return cls(f"{purpose} needs an optional part: {install_command(extra)}", extra=extra)

    @classmethod
    @contextmanager
    def where(cls, extra: str, purpose: str) -> Iterator[None]:
        """Raise the error of ``of`` where the block cannot import something."""
        try:
            yield
        except ImportError as error:
            raise cls.of(extra, purpose) from error
