"""A Python function as a backend: ``def tts(text): return samples, rate``."""

from __future__ import annotations

import copyreg
import hashlib
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from voicelab.backends.child import conversions, converted, parameters, returned
from voicelab.backends.model import ModelBackend, Parameter
from voicelab.call import VoicePreset
from voicelab.capabilities import SeedSupport
from voicelab.errors import ArgumentError

_DEPTH: Final = 6
_MAX_SAMPLES: Final = 4096
"""Maximum number of evenly spaced values sampled from each weight tensor for a fingerprint."""


class FunctionBackend(ModelBackend):
    """Backend of a function, or of another callable object, whose first parameter is the text.

    The function returns (samples, rate), a Clip, the bytes of an audio file or its path, or yields such values as
    blocks of a stream. The arguments are those of ModelBackend. ``at_once`` is 1 by default, because few models are
    thread-safe. The fingerprint is a digest of the code, the closure, the globals that the function uses, samples of the
    weights, the functions that it uses of your own modules, and the versions of packages.

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
    """Compute a fingerprint of a function from its code, defaults, closure, used globals, and the versions of modules.

    Tensors of models are sampled. Other objects from packages are represented by type and version.
    """
    sha = hashlib.sha256()
    _add(sha, function, {}, _DEPTH)
    return sha.hexdigest()[:16]


def _add(sha: Any, value: Any, seen: dict[int, tuple[int, int]], depth: int) -> None:
    """Add a value to the digest, including nested values down to ``depth`` levels below the code that uses them."""
    sha.update(f"{type(value).__module__}.{type(value).__qualname__}:".encode())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | PurePath):
        sha.update(repr(value).encode())
    elif isinstance(value, types.ModuleType):
        sha.update(f"{value.__name__} {_version(value.__name__)}".encode())
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        sha.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif (visit := seen.get(id(value), (0, 0)))[0] >= depth:
        sha.update(str(visit[1]).encode())
    else:
        seen[id(value)] = depth, len(seen)
        is_code = isinstance(value, types.FunctionType | types.CodeType | type)
        for part in _parts(value):
            _add(sha, part, seen, depth if is_code else depth - 1)
        if not is_code:
            del seen[id(value)]  # shared data are added wherever they occur


def _parts(value: Any) -> Iterable[Any]:
    """Return the components of a value that may affect its behavior, such as items, code or attributes."""
    if isinstance(value, Mapping):
        return [item for pair in value.items() for item in pair]
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, value.co_varnames, value.co_consts]
    if isinstance(value, types.MethodType | staticmethod | classmethod | property):
        return [getattr(value, name, None) for name in ("__func__", "__self__", "fget", "fset")]
    if isinstance(value, types.FunctionType):
        if (version := _version(value.__module__)) or _standard(value.__module__):
            return [f"{value.__module__}.{value.__qualname__}", version]
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        names = _names(value.__code__)
        modules = {name: sys.modules[name] for name in names if name in sys.modules}  # imported in the function
        used = [part for scope in (value.__globals__, modules) for part in _used(scope, names)]
        return [value.__code__, value.__defaults__, value.__kwdefaults__, *cells, *used]
    if isinstance(value, type):
        attributes = sorted(vars(value).items())
        items = [item for name, item in attributes if isinstance(item, types.FunctionType) or not name.startswith("__")]
        package = _version(value.__module__) or _standard(value.__module__)
        return [f"{value.__module__}.{value.__qualname__}", *([package] if package else (*value.__bases__, *items))]
    return [type(value), _weights(value) or getattr(value, "__dict__", None) or _reduced(value)]


def _used(scope: Mapping[str, Any], names: Collection[str], seen: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield the values of these names in a scope, and in the user's own modules among these values."""
    for name in names:
        if name in scope:
            yield (value := scope[name])
            own = isinstance(value, types.ModuleType) and not (_version(value.__name__) or _standard(value.__name__))
            if own and value.__name__ not in seen:
                yield from _used(vars(value), names, seen | {value.__name__})


def _reduced(value: Any) -> Any:
    """Return the parts from which ``pickle`` restores a value without attributes, such as a regular expression."""
    with suppress(Exception):  # many types cannot be restored
        reduce = copyreg.dispatch_table.get(type(value))
        return reduce(value) if reduce else value.__reduce_ex__(4)
    return None


def _names(code: types.CodeType) -> tuple[str, ...]:
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return tuple(dict.fromkeys((*code.co_names, *(name for const in inner for name in _names(const)))))


def _version(module: str | None) -> str:
    """Return the version of a module's package; "" for the user's own modules."""
    package = sys.modules.get((module or "").partition(".")[0])
    return str(getattr(package, "__version__", "") or "")


def _standard(module: str | None) -> bool:
    return (module or "").partition(".")[0] in {*sys.stdlib_module_names} - {"__main__"}


def _weights(value: Any) -> list[Any]:
    """Return samples of a tensor, or of the tensors of a model with a ``state_dict``."""
    try:
        tensors = value.state_dict() if hasattr(value, "state_dict") else {"": value}
        steps = {name: max(1, item.numel() // _MAX_SAMPLES) for name, item in tensors.items()}
        flat = {name: item.detach().flatten()[:: steps[name]].cpu().float() for name, item in tensors.items()}
        return [(name, tuple(tensors[name].shape), samples.numpy()) for name, samples in flat.items()]
    except Exception:  # noqa: BLE001 - any object may have such a method
        return []
