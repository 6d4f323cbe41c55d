"""Exception classes of voicelab.

    VoicelabError
    ├── RequestInvalid (ValueError)        invalid fields of a request, in ``.errors``
    ├── ArgumentError (ValueError)         invalid argument of a function, in ``.argument``
    ├── ServiceError                       error response of a service, or no response
    │   ├── AuthenticationError            401: API key missing or not accepted
    │   ├── PaymentRequired                402: a charging condition is not met
    │   ├── NotFound (LookupError)         404: unknown, or private to another caller
    │   ├── ServiceUnavailable             503, other 5xx, refused connections
    │   ├── ServiceTimeout (TimeoutError)  no response within the time limit
    │   └── StreamTruncated                truncated audio; ``.partial`` has the bytes received
    ├── AudioError (ValueError)            audio cannot be read or written
    ├── Cancelled                          cancelled by the caller
    ├── ExecutorError (RuntimeError)       a sweep lost its worker processes or cluster
    ├── StoreError (OSError)               stored data is missing, damaged or in use
    └── EngineError (RuntimeError)         failure of the local engine
        ├── EngineUnavailable              temporary failure (out of memory, restart); retry
        ├── WeightsError                   weights are missing or damaged
        ├── LicenseRequired                the license of the weights is not accepted
        └── MissingExtra (ImportError)     an optional dependency is not installed

Classes also inherit the matching builtin exception, so that ``except ValueError`` catches an invalid value in code that
does not import voicelab. Messages never contain secrets.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from voicelab.display import Shown
from voicelab.distribution import install_command

_PACKAGE: Final = Path(__file__).parent
_MAGIC: Final = "get_ipython().run_"
_MAX_SHOWN_LENGTH: Final = 60


def suggestion(name: object, choices: Iterable[str]) -> str:
    """Return "; did you mean X?" with the most similar of ``choices`` regardless of case, or "" if no choice is similar."""
    names, text = {choice.casefold(): choice for choice in choices}, str(name).casefold()
    completions = [choice for choice in names if len(text) > 2 and choice.startswith(text)]
    matches = completions or difflib.get_close_matches(text, names, n=1, cutoff=0.6)
    return f"; did you mean {names[matches[0]]}?" if matches and names[matches[0]] != str(name) else ""


def shortened(text: str, max_length: int) -> str:
    """Truncate a text to ``max_length`` characters, including an ellipsis."""
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def some(texts: Sequence[str], limit: int, separator: str = ", ") -> str:
    """Join the first ``limit`` texts, and append the number of further texts."""
    more = len(texts) - limit
    return separator.join(texts[:limit]) + (f"{separator}and {more} more" if more > 0 else "")


def check_options(options: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise ArgumentError for the first keyword that is not allowed."""
    names = list(allowed)
    for name in options:
        if name not in names:
            raise ArgumentError.of(name, f"unknown option; allowed options: {', '.join(names) or 'none'}")


def shown_value(value: object) -> str:
    """Format a rejected value for a message: a short scalar by its repr, any other value by its type."""
    is_scalar = (
        value is None or isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 2**64)
    )
    text = repr(value) if is_scalar else ""
    return text if 0 < len(text) <= _MAX_SHOWN_LENGTH else type(value).__name__


@dataclass(frozen=True, slots=True)
class FieldError:
    """Item of a 422 response body: an invalid field and the reason.

    Attributes:
        loc: path to the field, starting with its location, such as ``("body", "prosody", "speed")``.
        type: stable machine-readable name of the error.
        msg: human-readable message.
        ctx: optional details.
        in_: location (``path``, ``query``, ``header``, ``cookie`` or ``body``); ``in`` on the wire.
    """

    loc: tuple[str, ...]
    type: str
    msg: str
    ctx: str | None = None
    in_: str | None = "body"

    @property
    def field(self) -> str:
        """Dotted name of the field without its location, such as ``prosody.speed``."""
        return ".".join(self.loc[1:] if len(self.loc) > 1 and self.loc[0] == self.in_ else self.loc)

    def to_wire(self) -> dict[str, object]:
        """Return the item as JSON of the interface (section 7.1), without unset values."""
        wire = {"loc": list(self.loc), "type": self.type, "msg": self.msg, "ctx": self.ctx, "in": self.in_}
        return {name: value for name, value in wire.items() if value is not None}


class VoicelabError(Shown, Exception):
    """Base class of voicelab's exceptions."""


class _ShortTraceback:
    """Mixin for errors that the caller caused. IPython shows only line and message, unless ``%xmode Verbose`` is set."""

    __traceback__: TracebackType | None

    def _render_traceback_(self) -> list[str]:
        handler = sys.modules["IPython"].get_ipython().InteractiveTB
        if handler.mode == "Verbose":
            lines: list[str] = handler.structured_traceback(
                type(self), self, self.__traceback__, tb_offset=handler.tb_offset
            )
            return lines
        frames = traceback.extract_tb(self.__traceback__)
        depth = next(
            (n for n, frame in enumerate(frames) if Path(frame.filename).is_relative_to(_PACKAGE)), len(frames)
        )
        # IPython generates the line that calls a magic.
        shell = Path(sys.modules["IPython"].__file__ or "").parent
        callers = [frame for frame in frames[:depth] if not Path(frame.filename).is_relative_to(shell)]
        lines = [
            f"line {frame.lineno}: {frame.line}" for frame in callers[-1:] if frame.line and _MAGIC not in frame.line
        ]
        return [*lines, f"{type(self).__name__}: {self}"]


class RequestInvalid(_ShortTraceback, VoicelabError, ValueError):
    """Invalid fields of a request.

    ``errors`` has at least one :class:`FieldError`; ``str()`` lists all fields with reasons. ``status``, ``body`` and
    ``request_id`` are those of a service's response, or None if the request was not sent.
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
        # Pass the errors rather than the message, so that the exception can be pickled.
        super().__init__(self.errors)

    @classmethod
    def of(cls, field: str, msg: str, *, type: str = "value_error", in_: str = "body") -> Self:
        """Build the error for a field; ``field`` may be dotted (``prosody.speed``)."""
        return cls((FieldError(loc=(in_, *field.split(".")), type=type, msg=msg, in_=in_),))

    def __str__(self) -> str:
        return "; ".join(f"{error.field}: {error.msg}" for error in self.errors)

    def change(self, change: Callable[[FieldError], FieldError]) -> None:
        """Replace each item of ``errors`` by ``change(item)``, for example to use the name that the user typed."""
        self.errors = tuple(map(change, self.errors))
        self.args = (self.errors,)


class ArgumentError(_ShortTraceback, VoicelabError, ValueError):
    """Invalid argument of a function; ``argument`` is its name.

    Invalid fields of requests and new voices raise RequestInvalid instead.
    """

    def __init__(self, message: str, *, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument

    @classmethod
    def of(cls, argument: str, msg: str) -> Self:
        """Build the error for an argument: ``ArgumentError.of("p_values", "must not be empty")``."""
        return cls(f"{argument}: {msg}", argument=argument)


class ServiceError(VoicelabError):
    """Error response of a service, or no response.

    ``status`` is the HTTP status, or None if there was no response; ``body`` the raw response body; ``request_id``
    the service's identifier of the request, if any.
    """

    def __init__(
        self, message: str, *, status: int | None = None, body: bytes | None = None, request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.request_id = request_id


class AuthenticationError(ServiceError):
    """401: the API key is missing or not accepted."""


class PaymentRequired(ServiceError):
    """402: a charging condition is not met."""


class NotFound(_ShortTraceback, ServiceError, LookupError):
    """404: unknown, or private to another caller (the response is the same)."""


class ServiceUnavailable(ServiceError):
    """The service is overloaded, failing or unreachable (503, other 5xx, refused connections)."""


class ServiceTimeout(ServiceError, TimeoutError):
    """The service did not respond within the time limit."""


class StreamTruncated(ServiceError):
    """The audio stream ended early; ``partial`` has the bytes received.

    Other keywords are those of ServiceError.
    """

    def __init__(self, message: str, *, partial: bytes = b"", **response: Any) -> None:
        super().__init__(message, **response)
        self.partial = partial


class AudioError(VoicelabError, ValueError):
    """Audio cannot be read or written: damaged, truncated, or of an unsupported format.

    ``files`` maps the path of every unreadable file of a collection to the reason.
    """

    files: Mapping[str, str] = MappingProxyType({})


class Cancelled(VoicelabError):
    """The operation was cancelled by the caller."""


class ExecutorError(VoicelabError, RuntimeError):
    """A sweep lost its executor: worker processes, a cluster's scheduler, or all suitable workers."""


class StoreError(VoicelabError, OSError):
    """Stored data is missing, damaged or in use; the message names the file.

    ``files`` maps the path of every file that cannot be opened to the reason, as in AudioError.
    """

    files: Mapping[str, str] = MappingProxyType({})


class EngineError(VoicelabError, RuntimeError):
    """The local engine failed on a valid request."""


class EngineUnavailable(EngineError):
    """Temporary failure of the local engine: out of memory, or restarting."""


class WeightsError(EngineError):
    """Weights are missing, damaged, or of an unsupported layout."""


class LicenseRequired(EngineError):
    """The license of the weights is not accepted on this machine; the message states its terms."""


class MissingExtra(EngineError, ImportError):
    """An optional dependency is not installed; ``extra`` is the extra that provides it."""

    def __init__(self, message: str, *, extra: str = "all") -> None:
        super().__init__(message)
        self.extra = extra

    @classmethod
    def of(cls, extra: str, purpose: str) -> Self:
        """Build the error with the install command: ``MissingExtra.of("gpu", "open weights")``."""
        return cls(f"{purpose} requires an optional dependency: {install_command(extra)}", extra=extra)

    @classmethod
    @contextmanager
    def where(cls, extra: str, purpose: str) -> Iterator[None]:
        """Convert a failed import in the block to the error of ``of``, or to an error on an incomplete installation."""
        try:
            yield
        except (ImportError, OSError) as error:  # OSError: a library that a package needs
            if isinstance(error, ModuleNotFoundError) and "." not in str(error.name):
                raise cls.of(extra, purpose) from error
            message = f"{purpose} requires a package that is installed incompletely; reinstall it: {error}"
            raise cls(message, extra=extra) from error
