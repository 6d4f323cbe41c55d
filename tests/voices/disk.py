"""A disk that forgets what was not synced: replays what recorder.c wrote down, and shows every state after a loss of power.

The model is the strictest that POSIX allows: a file's bytes are kept by a sync of the file, its name by a sync of the
folder, and what was not synced may be there or not. Changes of the names in one folder keep their order.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = struct.Struct("<cIIq")


@dataclass(frozen=True)
class Step:
    what: str
    path: Path
    number: int
    data: bytes


def recorded(log: Path) -> list[Step]:
    data, at, steps = log.read_bytes(), 0, []
    while at < len(data):
        what, length, size, number = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        path = Path(data[at : at + length].decode())
        steps.append(Step(what.decode(), path, number, data[at + length : at + length + size]))
        at += length + size
    return steps


@dataclass
class _File:
    kept: bytes = b""
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)

    def now(self, count: int | None = None) -> bytes:
        """Its bytes with the first `count` of the unsynced changes, or all."""
        made = bytearray(self.kept)
        for at, data in self.unsynced[:count]:
            if data is None:
                made[at:] = bytes(max(0, at - len(made)))
            else:
                made.extend(bytes(max(0, at - len(made))))
                made[at : at + len(data)] = data
        return bytes(made)


@dataclass
class _Folder:
    kept: dict[str, _File | _Folder] = field(default_factory=dict)
    unsynced: list[tuple[str, _File | _Folder | None]] = field(default_factory=list)

    def now(self, count: int | None = None) -> dict[str, _File | _Folder]:
        names = dict(self.kept)
        for name, what in self.unsynced[:count]:
            if what is None:
                names.pop(name, None)
            else:
                names[name] = what
        return names


class Disk:
    """Everything under `root`, which is there and empty at first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._top = _Folder()

    def do(self, step: Step) -> None:
        folder, name = self._folder(step.path.parent), step.path.name
        if step.what == "M":
            folder.unsynced.append((name, _Folder()))
        elif step.what == "C":
            found = folder.now().get(name)
            if isinstance(found, _File):
                found.unsynced.append((0, None))
            else:
                folder.unsynced.append((name, _File()))
        elif step.what == "U":
            folder.unsynced.append((name, None))
        elif step.what == "R":
            target = Path(step.data.decode())
            assert target.parent == step.path.parent
            # One change, as file systems make it: never neither name, never lost between them.
            folder.unsynced.append((target.name, folder.now()[name]))
            folder.unsynced.append((name, None))
        elif step.path == self._root:
            self._sync(self._top)
        elif step.what == "S":
            self._sync(folder.now()[name])
        else:
            file = folder.now()[name]
            assert isinstance(file, _File)
            file.unsynced.append((step.number, step.data if step.what == "W" else None))

    def after_power_loss(self, chance: random.Random) -> Iterator[Callable[[Path], None]]:
        """What writes each of some possible states into a folder."""
        everything: Callable[[int], int] = lambda count: count  # noqa: E731
        nothing: Callable[[int], int] = lambda _: 0  # noqa: E731
        some: Callable[[int], int] = lambda count: chance.randint(0, count)  # noqa: E731
        for names, data in (
            (everything, everything),
            (nothing, nothing),
            (everything, nothing),
            (nothing, everything),
            (some, some),
            (some, some),
        ):
            yield lambda to, names=names, data=data: _write(self._top, to, names, data)  # type: ignore[misc]

    def _folder(self, path: Path) -> _Folder:
        folder = self._top
        for part in path.relative_to(self._root).parts if path.is_relative_to(self._root) else ():
            found = folder.now()[part]
            assert isinstance(found, _Folder)
            folder = found
        return folder

    def _sync(self, what: _File | _Folder) -> None:
        if isinstance(what, _File):
            what.kept = what.now()
        else:
            what.kept = what.now()
        what.unsynced.clear()


def _write(folder: _Folder, to: Path, names: Callable[[int], int], data: Callable[[int], int]) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for name, what in folder.now(names(len(folder.unsynced))).items():
        if isinstance(what, _Folder):
            _write(what, to / name, names, data)
        else:
            (to / name).write_bytes(what.now(data(len(what.unsynced))))
