"""Program of a ``worker:`` process, and descriptions of the parameters of Python functions.

The program runs in the worker's own Python (3.9 or later). It imports only the standard library, because voicelab is not
installed there. Messages are JSON, one per line. The worker announces the parameters of the script's function ``tts``. It
answers each request with messages that have the same ``id``: ``samples``, ``audio`` (base64) or ``path`` for each block of
audio, and finally ``done``, or ``error`` if the function failed.
"""

from __future__ import annotations

import sys
import traceback

if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file: its modules would shadow packages, such as openai

import array
import base64
import importlib.util
import inspect
import io
import json
import os
import typing
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from enum import Enum
from pathlib import Path, PurePath
from types import SimpleNamespace

_MAX = 1e9  # bound of a parameter that has only the other bound
_TYPES = {bool: "bool", int: "int", float: "float", str: "str"}


def parameters(function: typing.Callable[..., object]) -> list[dict[str, typing.Any]]:
    """Describe the parameters of a function except the first, which is the text.

    Returns mappings with name, type ("bool", "int", "float", "str", or "" for any other type), required, optional (whether
    None is allowed), default (None if there is none), bounds, choices and description, from annotations and defaults.
    Raises TypeError if the function has no parameter for the text.
    """
    signature = inspect.signature(function)
    kinds = inspect.Parameter
    named = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    items = list(signature.parameters.values())
    if not items or items[0].kind not in named:
        raise TypeError(f"the first parameter must be the text, got {signature}")
    hints, accepted = _hints(function), (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    return [_described(item, hints.get(item.name, item.annotation)) for item in items[1:] if item.kind in accepted]


def conversions(function: typing.Callable[..., object]) -> dict[str, type]:
    """Map the names of parameters that are annotated with an Enum or a path class to this class."""
    kinds = {name: _unwrapped(hint)[0] for name, hint in _hints(function).items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, (Enum, PurePath))}


def converted(arguments: typing.Mapping[str, typing.Any], kinds: typing.Mapping[str, type]) -> dict[str, typing.Any]:
    """Convert arguments to the types of ``conversions``."""
    return {name: kinds[name](value) if name in kinds else value for name, value in arguments.items()}


def _hints(function: typing.Callable[..., object]) -> dict[str, typing.Any]:
    called = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    with suppress(Exception):  # annotations may contain names that cannot be imported
        return typing.get_type_hints(called, include_extras=True)
    return {}


def _described(item: inspect.Parameter, hint: typing.Any) -> dict[str, typing.Any]:
    required = item.default is item.empty
    default = None if required else item.default
    hint, metadata, optional = _unwrapped(hint)
    choices: list[typing.Any] = []
    if typing.get_origin(hint) is typing.Literal:
        choices = [choice for choice in typing.get_args(hint) if choice is not None]
    elif isinstance(hint, type) and issubclass(hint, Enum):
        choices = [member.value for member in hint]
    default = default.value if isinstance(default, Enum) else str(default) if isinstance(default, PurePath) else default
    kinds = {_TYPES.get(type(choice), "") for choice in choices}
    is_path = isinstance(hint, type) and issubclass(hint, PurePath)
    kind = kinds.pop() if len(kinds) == 1 else "str" if is_path else _TYPES.get(hint, "")
    kind = kind or ("" if choices else _TYPES.get(type(default), ""))
    if kind == "float" and type(default) is int:
        default = float(default)
    if default is not None and _TYPES.get(type(default)) != kind:
        kind, default = "", None
    low, high = (
        choices
        if choices and kind in ("int", "float")
        else [float(end) for data in metadata for name in names if (end := getattr(data, name, None)) is not None]
        for names in (("ge", "gt"), ("le", "lt"))
    )
    words = [data if isinstance(data, str) else getattr(data, "description", None) for data in metadata]
    return {
        "name": item.name,
        "type": kind,
        "required": required,
        "optional": optional or default is None,
        "default": default,
        "bounds": [min(low, default=-_MAX), max(high, default=_MAX)] if low or high else None,
        "choices": choices if kind in ("int", "float", "str") else [],
        "description": next((word for word in words if word), ""),
    }


def _unwrapped(hint: typing.Any) -> tuple[typing.Any, list[typing.Any], bool]:
    """Strip Annotated and None from a type; return the type, the metadata of Annotated, and whether None is allowed."""
    metadata: list[typing.Any] = []
    optional = False
    while True:
        arguments = typing.get_args(hint)
        if hasattr(hint, "__metadata__"):
            for data in hint.__metadata__:  # pydantic's Field has its bounds in ``metadata``
                metadata += [data, *(getattr(data, "metadata", None) or ())]
            hint = arguments[0]
        elif type(None) in arguments:
            optional = True
            rest = [argument for argument in arguments if argument is not type(None)]
            hint = rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]  # noqa: UP007 - Python 3.9
        elif set(arguments) == {int, float} and getattr(hint, "__origin__", typing.Union) is typing.Union:
            hint = float
        else:
            return hint, metadata, optional


def returned(value: typing.Any) -> typing.Iterator[object]:
    """Yield the blocks of a returned iterator, the content of a returned file object, or any other value itself.

    Coroutines and asynchronous iterators run in a thread, because the caller's thread may run an event loop, as in Jupyter.
    """
    if hasattr(value, "__await__") or hasattr(value, "__anext__"):
        import asyncio  # takes longer than most imports of voicelab

        with ThreadPoolExecutor(1) as thread, closing(asyncio.new_event_loop()) as loop, suppress(StopAsyncIteration):
            thread.submit(int).result()  # start the thread; an interrupt meanwhile would lose it
            try:
                while hasattr(value, "__anext__"):
                    yield thread.submit(loop.run_until_complete, value.__anext__()).result()
                yield from returned(thread.submit(loop.run_until_complete, value).result())
            finally:
                for task in asyncio.all_tasks(loop):  # after an interrupt of this thread
                    loop.call_soon_threadsafe(task.cancel)
                thread.submit(loop.run_until_complete, loop.shutdown_asyncgens()).result()
    elif isinstance(value, io.IOBase) or hasattr(value, "read"):
        file = typing.cast("typing.IO[bytes]", value)
        if getattr(file, "seekable", bool)():
            file.seek(0)
        yield file.read()
    elif hasattr(value, "__next__"):
        yield from typing.cast("typing.Iterator[object]", value)
    else:
        yield value


def described(value: typing.Any) -> str:
    """Describe a returned value that is not audio, for an error message."""
    return type(value).__name__ + (f" of {len(value)}" if isinstance(value, (tuple, list)) else "")


def _message(value: typing.Any) -> dict[str, object]:
    """Encode a returned value: samples and rate, bytes of an audio file, or a path."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"audio": base64.b64encode(value).decode()}
    if isinstance(value, (str, os.PathLike)):
        return {"path": str(Path(value).resolve())}
    if isinstance(value, typing.Mapping) and {"audio", "sampling_rate"} <= value.keys():
        value = (value["audio"], value["sampling_rate"])
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        expected = "(samples, rate), bytes of an audio file or a path"
        raise TypeError(f"tts() must return {expected}, got {described(value)}")
    samples, rate = value if not isinstance(value[0], (int, float)) else value[::-1]
    if hasattr(samples, "detach"):  # a tensor
        samples = samples.detach().cpu().float().numpy()
    if isinstance(samples, (list, tuple)):
        samples = array.array("q" if all(type(item) is int for item in samples) else "d", samples)
    view = memoryview(samples)
    shape, kind = list(view.shape or ()), view.format
    return {
        "samples": base64.b64encode(view.tobytes()).decode(),
        "shape": shape,
        "format": kind,
        "rate": rate.item() if hasattr(rate, "item") else rate,
    }


def _module_files() -> list[str]:
    """Return the files of the imported modules that belong neither to Python nor to an installed package."""
    modules = ((name, getattr(module, "__dict__", {})) for name, module in list(sys.modules.items()))  # may be lazy
    files = (attributes.get("__file__") for name, attributes in modules if name != "__main__")
    python = str(Path(os.__file__).parent)
    paths = {file for file in files if isinstance(file, str) and not file.startswith(python)}
    return sorted(path for path in paths if "-packages" not in path)


def main(script: str) -> None:
    """Import the script and answer requests from standard input until it ends."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # input() in the script raises EOFError
    os.dup2(2, 1)  # output printed by the script goes to its log

    def send(**message: object) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    sys.path.insert(0, str(Path(script).resolve().parent))
    spec = importlib.util.spec_from_file_location("voicelab_worker", script)
    if spec is None or spec.loader is None:
        raise ImportError(f"{script} must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "tts", None)):
        sys.exit(f"{script} must define a function tts(text, ...)")
    packages = sorted(
        (name, getattr(loaded, "__dict__", {}).get("__version__")) for name, loaded in sys.modules.items()
    )
    versions = {name: version for name, version in packages if isinstance(version, str) and "." not in name}
    versions["python"] = sys.version.split()[0]
    send(parameters=parameters(module.tts), versions=versions, files=_module_files())
    kinds = conversions(module.tts)
    for line in requests:
        request = json.loads(line)
        key, arguments = request["id"], request["arguments"]
        for item in arguments.get("references") or ():
            item["audio"] = base64.b64decode(item["audio"])
        if "references" in arguments:
            arguments["references"] = [SimpleNamespace(**item) for item in arguments["references"]]
        try:
            for value in returned(module.tts(request["text"], **converted(arguments, kinds))):
                send(id=key, **_message(value))
            send(id=key, done=True)
        except Exception as error:  # noqa: BLE001 - errors of the model
            # The traceback is sent here because the end of the log may arrive after this message.
            trace = "".join(traceback.format_exception(error))
            send(id=key, error=f"{type(error).__name__}: {error}", traceback=trace)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    main(sys.argv[0])
