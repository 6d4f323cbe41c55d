"""A Python function as a backend: ``def tts(text): return samples, rate``."""

from __future__ import annotations

import copyreg
import hashlib
import re
import sys
import threading
import types
from collections import Counter, UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from voicelab.backend import SpeechStream
from voicelab.backends.child import conversions, converted, parameters, returned
from voicelab.backends.model import ModelBackend, Parameter
from voicelab.call import Call, VoicePreset
from voicelab.capabilities import Capabilities, SeedSupport
from voicelab.distribution import __version__
from voicelab.errors import ArgumentError

_DEPTH: Final = 6
_MAX_SAMPLES: Final = 4096
"""Maximum number of evenly spaced values sampled from each weight tensor for a fingerprint."""
_MAX_COMPARED: Final = 256
"""Maximum number of values sampled from an array, tensor or container to detect changes of a function's objects."""
_PLAIN: Final = (bool, int, float, complex, str, PurePath)
# Types whose objects change whenever they are used.
_RUNTIME: Final = re.compile(
    r"(logging|loguru|random|threading|_thread|_?queue|concurrent|asyncio|multiprocessing|numpy\.random)\."
)


class FunctionBackend(ModelBackend):
    """Backend of a function, or of another callable object, whose first parameter is the text.

    The function returns (samples, rate), a Clip, the bytes of an audio file or its path, or yields such values as
    blocks of a stream. The arguments are those of ModelBackend. ``at_once`` is 1 by default, because few models are
    thread-safe. The fingerprint is a digest of the code, the closure, the globals that the function uses, samples of the
    weights, what it uses from your own modules, and the versions of packages. It is renewed if these objects change between
    calls; if they change during a call, its take gets a separate fingerprint, so that no cache returns it.

    Raises ArgumentError if the function has no parameter for the text, or if another parameter has no default and is not
    one of those that ModelBackend maps by name.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        voices: Iterable[str | VoicePreset] | None = None,
        models: Iterable[str] | None = None,
        seed: SeedSupport | None = None,
        languages: Iterable[str] = (),
        at_once: int = 1,
        fingerprint: FunctionFingerprint | None = None,
    ) -> None:
        self._function, self._kinds = function, conversions(function)
        self._fingerprint = fingerprint or FunctionFingerprint(function)
        name = getattr(function, "__name__", "") or type(getattr(function, "func", function)).__name__
        if isinstance(function, type):
            raise ArgumentError.of("function", f"must be a function or an instance of {name}, got the class")
        try:
            listed = [*map(Parameter.of, parameters(function))]
        except (TypeError, ValueError) as error:
            raise ArgumentError.of("function", f"{name}: {error}") from None
        super().__init__(
            name,
            listed,
            voices=voices,
            models=models,
            seed=seed,
            languages=languages,
            at_once=at_once,
            fingerprint=self._fingerprint.value,
        )

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this backend, with the fingerprint that was last renewed."""
        if self._capabilities.fingerprint != self._fingerprint.value:
            self._capabilities = replace(self._capabilities, fingerprint=self._fingerprint.value)
        return self._capabilities

    def renew_fingerprint(self) -> None:
        """Renew the fingerprint if objects that the function uses have changed since its last call."""
        self._fingerprint.renew()

    def synthesize(self, call: Call) -> SpeechStream:
        """Return a stream as ModelBackend does, and compare the function's objects before and after the call."""
        self.renew_fingerprint()

        def ended(stream: SpeechStream, audio: bytes, error: object = None) -> tuple[str, ...]:  # noqa: ARG001 - of the protocol
            before = stream.backend.fingerprint
            if before == self._fingerprint.value:
                return ()
            stream.backend = replace(stream.backend, fingerprint=f"{before}-{self._fingerprint.value}")
            return (f"Objects that {stream.backend.name} uses changed during this take, so no cache reuses it.",)

        return super().synthesize(call).keep(ended, ended)

    def run(self, text: str, arguments: Mapping[str, Any], stop: threading.Event) -> Iterator[object]:  # noqa: ARG002 - a function cannot be interrupted
        """Call the function and yield the blocks of its result."""
        with self._fingerprint.calling():
            yield from returned(self._function(text, **converted(arguments, self._kinds)))


class FunctionFingerprint:
    """Fingerprint of a function, which follows the changes that the user makes to the objects that the function uses.

    Changes during a call are attributed to the function, as when it loads a model or counts its calls, unless its first call
    changed nothing. ``value`` is given in another process, which may not have the source, and then remains.
    """

    def __init__(self, function: Callable[..., object], value: str = "") -> None:
        self.value = value or fingerprint_of(function)
        self._function = None if value else function
        self._objects = self._digest()
        self._changes_itself: bool | None = None
        self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Count a call as running, and compare the objects at its end, before another call attributes changes to the user."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                objects = self._objects
                self._compare(by_user=self._changes_itself is False)
                if self._changes_itself is None:
                    self._changes_itself = objects != self._objects

    def renew(self) -> None:
        """Compute the value again if objects have changed since the last call; not while a call may be changing them."""
        with self._lock:
            if not self._running:
                self._compare(by_user=True)

    def _compare(self, *, by_user: bool) -> None:
        objects = self._digest()
        if by_user and self._function is not None and "" != objects != self._objects:
            self.value = fingerprint_of(self._function)
        self._objects = objects

    def _digest(self) -> str:
        """Return a sampled digest of the objects; "" if it is unknown."""
        with suppress(Exception):  # an object made by a call, such as a weak proxy, may raise any error
            if self._function is not None:
                return _Digests(_MAX_COMPARED).fingerprint(self._function)
        return ""


@dataclass(frozen=True)
class FunctionFactory:
    """Picklable factory that opens the backend of a function in another process.

    The function is pickled with cloudpickle if that is installed.
    """

    function: Callable[..., object] = field(compare=False)
    options: tuple[tuple[str, Any], ...] = ()
    fingerprint: str = ""
    _current: FunctionFingerprint = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_current", FunctionFingerprint(self.function, self.fingerprint))
        object.__setattr__(self, "fingerprint", self._current.value)

    def __call__(self) -> FunctionBackend:
        """Open the backend."""
        return FunctionBackend(self.function, fingerprint=self._current, **dict(self.options))

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            import cloudpickle  # type: ignore[import-untyped]  # it publishes no types
        except ImportError:
            return FunctionFactory, (self.function, self.options, self._current.value)
        return _factory, (cloudpickle.dumps(self.function), self.options, self._current.value)


def _factory(function: bytes, options: tuple[tuple[str, Any], ...], fingerprint: str) -> FunctionFactory:
    import cloudpickle

    return FunctionFactory(cloudpickle.loads(function), options, fingerprint)


def fingerprint_of(function: object) -> str:
    """Compute a fingerprint of a function from its code, defaults, closure, the globals that it uses, and package versions.

    Tensors of models are sampled. The state of random generators, loggers and threads is not included.
    """
    return _Digests().fingerprint(function)


class _Digests:
    """Digests of values and of the code that they use. Each digest is computed once, also in cycles of references.

    ``limit`` is the maximum number of values of arrays, tensors and containers to sample; 0 samples only tensors.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._code: list[tuple[str, Any]] = []
        self._names: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._known: dict[tuple[int, int], tuple[Any, bytes]] = {}  # the values are kept, so that their ids stay unique

    def fingerprint(self, function: object) -> str:
        digests = [("", self._of(function, _DEPTH))]
        for name, code in self._code:  # grows in this loop
            digests.append((name, _sha(name, *(self._of(item, _DEPTH) for item in _components(code, self._limit)))))
        return _sha(*(digest for _, digest in sorted(digests))).hex()[:16]

    def _of(self, value: Any, depth: int) -> bytes:
        """Return the digest of a value, to ``depth`` levels of nesting; functions and classes enter it by name."""
        if self._limit and type(value) in (str, bytes):
            return f"{type(value).__name__} {hash(value)}".encode()  # Python computes it once
        if value is None or isinstance(value, _PLAIN):
            return f"{type(value).__qualname__} {value!r}".encode()
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, bytes):
            return _sha(kind, value)
        if isinstance(value, types.ModuleType):
            return _sha(kind, value.__name__, _version(value.__name__))
        if isinstance(value, types.FunctionType | types.CodeType | type):
            return _sha(kind, self._name(value))
        if not depth or _RUNTIME.match(kind):
            return _sha(kind)
        if (id(value), depth) not in self._known:
            digests = [self._of(item, depth - 1) for item in _components(value, self._limit)]
            digests = sorted(digests) if isinstance(value, set | frozenset) else digests
            self._known[id(value), depth] = value, _sha(kind, *digests)
        return self._known[id(value), depth][1]

    def _name(self, code: Any) -> str:
        """Return the name of a function or class; the user's own also get a number, and their code is added to the digest."""
        if id(code) not in self._names:
            module, name = getattr(code, "__module__", None), getattr(code, "__qualname__", "code")
            package = _version(module)
            self._names[id(code)] = f"{module}.{name} {package}" if package else f"{name} {self._counts[name]}"
            if not package:
                self._counts[name] += 1
                self._code.append((self._names[id(code)], code))
        return self._names[id(code)]


def _sha(*items: str | bytes) -> bytes:
    sha = hashlib.sha256()
    for item in items:
        data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
        sha.update(b"%d:" % len(data))
        sha.update(data)
    return sha.digest()


def _components(value: Any, limit: int) -> Iterable[Any]:
    """Return the components of a value that may affect its behavior, such as its items, code or attributes."""
    if limit and isinstance(value, Mapping | list | tuple | set | frozenset | np.ndarray):
        return _sampled(value, limit)
    if isinstance(value, Mapping):
        return chain.from_iterable([*value.items()])  # copied at once, since another thread may change it
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return [str(value.dtype), value.shape, value.tobytes()]
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, value.co_varnames, value.co_consts]
    if isinstance(value, types.MethodType | staticmethod | classmethod | property):
        return [getattr(value, name, None) for name in ("__func__", "__self__", "fget", "fset")]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        names = _names(value.__code__)
        modules = {name: sys.modules[name] for name in names if name in sys.modules}  # imported in the function
        seen: set[str] = set()
        used = [item for scope in (value.__globals__, modules) for item in _used(scope, names, seen)]
        return [value.__code__, value.__defaults__, value.__kwdefaults__, *cells, *used]
    if isinstance(value, type):
        attributes = sorted(vars(value).items())
        items = [item for name, item in attributes if isinstance(item, types.FunctionType) or not name.startswith("__")]
        return [*value.__bases__, *items]
    return [type(value), _weights(value, limit or _MAX_SAMPLES) or getattr(value, "__dict__", None) or _reduced(value)]


def _sampled(value: Any, limit: int) -> Iterable[Any]:
    """Return the size of a container or array, and at most about ``limit`` of its values."""
    if isinstance(value, np.ndarray):
        values = value.flat[:: max(1, value.size // limit)]
        return [str(value.dtype), value.shape, values.tobytes() if value.dtype.kind != "O" else list(values)]
    step = max(1, len(value) // limit)
    is_in_memory = isinstance(
        value, dict | UserDict | types.MappingProxyType
    )  # others may read their items from a file
    items = islice(value.items() if is_in_memory else value, 0, None, step)
    return [len(value), *(chain.from_iterable(items) if is_in_memory else items)]


def _used(scope: Mapping[str, Any], names: Collection[str], seen: set[str]) -> Iterator[Any]:
    """Yield the values of names in a scope, and in the user's own modules among these values."""
    for name in names:
        if name in scope:
            yield (value := scope[name])
            is_users = isinstance(value, types.ModuleType) and not _version(value.__name__)
            if is_users and value.__name__ not in seen:
                seen.add(value.__name__)
                yield from _used(vars(value), names, seen)


def _reduced(value: Any) -> Any:
    """Return the parts from which ``pickle`` restores a value without attributes, such as a regular expression."""
    with suppress(Exception):  # many types cannot be restored
        reduce = copyreg.dispatch_table.get(type(value))
        return reduce(value) if reduce else value.__reduce_ex__(4)
    return None


def _names(code: types.CodeType) -> tuple[str, ...]:
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return tuple(dict.fromkeys((*code.co_names, *(name for const in inner for name in _names(const)))))


@lru_cache
def _version(module: str | None) -> str:
    """Return the version of an installed package; "standard" for the standard library, "" for the user's own modules."""
    root = (module or "").partition(".")[0]
    if root == "voicelab" or root in sys.stdlib_module_names:
        return __version__ if root == "voicelab" else "standard"
    package = sys.modules.get(root)
    file = str(getattr(package, "__file__", None) or next(iter(getattr(package, "__path__", ())), ""))
    if {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts):
        return ""
    with suppress(PackageNotFoundError):
        return str(getattr(package, "__version__", "") or version(root))
    return "installed"


def _weights(value: Any, limit: int) -> list[Any]:
    """Return samples of a tensor, or of the tensors of a model with a ``state_dict``."""
    try:
        tensors = value.state_dict() if hasattr(value, "state_dict") else {"": value}
        steps = {name: max(1, item.numel() // limit) for name, item in tensors.items()}
        flat = {name: item.detach().flatten()[:: steps[name]].cpu().float() for name, item in tensors.items()}
        return [(name, tuple(tensors[name].shape), samples.numpy()) for name, samples in flat.items()]
    except Exception:  # noqa: BLE001 - any object may have such a method
        return []
