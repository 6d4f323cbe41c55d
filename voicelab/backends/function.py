"""A Python function as a backend: ``def tts(text): return samples, rate``."""

from __future__ import annotations

import copyreg
import hashlib
import re
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from voicelab.backends.child import conversions, converted, parameters, returned
from voicelab.backends.model import ModelBackend, Parameter
from voicelab.call import VoicePreset
from voicelab.capabilities import SeedSupport
from voicelab.distribution import __version__
from voicelab.errors import ArgumentError

_DEPTH: Final = 6
_MAX_SAMPLES: Final = 4096
"""Maximum number of evenly spaced values sampled from each weight tensor for a fingerprint."""
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
    weights, what it uses from your own modules, and the versions of packages.

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
        fingerprint: str | None = None,
    ) -> None:
        self._function, self._kinds = function, conversions(function)
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
            fingerprint=fingerprint or fingerprint_of(function),
        )

    def run(self, text: str, arguments: Mapping[str, Any], stop: threading.Event) -> Iterator[object]:  # noqa: ARG002 - a function cannot be interrupted
        """Call the function and yield the blocks of its result."""
        yield from returned(self._function(text, **converted(arguments, self._kinds)))


@dataclass(frozen=True)
class FunctionFactory:
    """Picklable factory that opens the backend of a function in another process.

    The function is pickled with cloudpickle if that is installed.
    """

    function: Callable[..., object] = field(compare=False)
    options: tuple[tuple[str, Any], ...] = ()
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if not self.fingerprint:  # compute it here: another process may not have the source
            object.__setattr__(self, "fingerprint", fingerprint_of(self.function))

    def __call__(self) -> FunctionBackend:
        """Open the backend."""
        return FunctionBackend(self.function, fingerprint=self.fingerprint, **dict(self.options))

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            import cloudpickle  # type: ignore[import-untyped]  # it publishes no types
        except ImportError:
            return FunctionFactory, (self.function, self.options, self.fingerprint)
        return _factory, (cloudpickle.dumps(self.function), self.options, self.fingerprint)


def _factory(function: bytes, options: tuple[tuple[str, Any], ...], fingerprint: str) -> FunctionFactory:
    import cloudpickle

    return FunctionFactory(cloudpickle.loads(function), options, fingerprint)


def fingerprint_of(function: object) -> str:
    """Compute a fingerprint of a function from its code, defaults, closure, the globals that it uses, and package versions.

    Tensors of models are sampled. The state of random generators, loggers and threads is not included.
    """
    return _Digests().fingerprint(function)


class _Digests:
    """Digests of values and of the code that they use. Each digest is computed once, also in cycles of references."""

    def __init__(self) -> None:
        self._code: list[tuple[str, Any]] = []
        self._names: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._known: dict[tuple[int, int], tuple[Any, bytes]] = {}  # the values are kept, so that their ids stay unique

    def fingerprint(self, function: object) -> str:
        digests = [("", self._of(function, _DEPTH))]
        for name, code in self._code:  # grows in this loop
            digests.append((name, _sha(name, *(self._of(item, _DEPTH) for item in _components(code)))))
        return _sha(*(digest for _, digest in sorted(digests))).hex()[:16]

    def _of(self, value: Any, depth: int) -> bytes:
        """Return the digest of a value, to ``depth`` levels of nesting; functions and classes enter it by name."""
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
            digests = [self._of(item, depth - 1) for item in _components(value)]
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


def _components(value: Any) -> Iterable[Any]:
    """Return the components of a value that may affect its behavior, such as its items, code or attributes."""
    if isinstance(value, Mapping):
        return chain.from_iterable(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return value
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
    return [type(value), _weights(value) or getattr(value, "__dict__", None) or _reduced(value)]


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


def _weights(value: Any) -> list[Any]:
    """Return samples of a tensor, or of the tensors of a model with a ``state_dict``."""
    try:
        tensors = value.state_dict() if hasattr(value, "state_dict") else {"": value}
        steps = {name: max(1, item.numel() // _MAX_SAMPLES) for name, item in tensors.items()}
        flat = {name: item.detach().flatten()[:: steps[name]].cpu().float() for name, item in tensors.items()}
        return [(name, tuple(tensors[name].shape), samples.numpy()) for name, samples in flat.items()]
    except Exception:  # noqa: BLE001 - any object may have such a method
        return []
