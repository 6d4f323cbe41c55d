"""What is kept on disk, each kind with a writer and a check, and how it is starved: killed, out of disk, two at once.

    python -m tests.week.kinds kill KIND HOME TIMES SEED    a writer that is forked and killed, again and again
    python -m tests.week.kinds fill KIND HOME BYTES         a disk that takes no file beyond so many bytes, then any again
    python -m tests.week.kinds once KIND HOME NAME          one write
    python -m tests.week.kinds write KIND HOME NAME TIMES   so many writes, beside another process perhaps

What was acknowledged is printed, one line each; the last line of ``fill`` is what was raised.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from voicelab.call import Call
from voicelab.clip import Take, Timing
from voicelab.errors import AuthenticationError, NotFound, ServiceUnavailable, StoreError, VoicelabError
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.schema import TTSRequest, VoiceCreate
from voicelab.service.keys import KeyStore, well_formed
from voicelab.takes.collection import load
from voicelab.voices.store import Sample, VoiceStore

CREDIT = 1_000_000
_BUSY_S = 30.0


class Kind(NamedTuple):
    """``open`` gives a function that writes what a name says and returns what to remember; ``check`` looks at all of that.

    A check returns how many things are there, and raises AssertionError for what is lost, half or something else. With
    ``damaged``, errors that say so are in order, too.
    """

    open: Callable[[Path], Callable[[str], str]]
    check: Callable[..., int]


def _noise(name: str) -> bytes:
    return random.Random(name).randbytes(300_000)  # as many writes as a kill may come between


def _voices(home: Path) -> Callable[[str], str]:
    store = VoiceStore(home / "voices", busy_s=_BUSY_S)

    def write(name: str) -> str:
        request = VoiceCreate(title=name, voices=(b"a",), visibility="private")
        voice = store.begin(request, (Sample(_noise(name), "", ""),), "ann")
        store.train(voice)
        store.finish(voice, "weights", name.encode())
        return f"{voice} {name}"

    return write


def _check_voices(home: Path, said: list[str], *, damaged: bool = False) -> int:
    with VoiceStore(home / "voices", stale_s=-1, busy_s=_BUSY_S) as store:
        listed = {voice.id: voice.title for voice in _or_named(damaged, lambda: store.listed("ann"), ())}
        for voice, name in {**listed, **dict(line.split() for line in said)}.items():
            record = _or_named(damaged, partial(store.get, voice, "ann"))
            assert record is None or (record.title, record.state) == (name, "trained")
            packed = _or_named(damaged, partial(store.embedding, voice, "ann", "weights"))
            assert packed in {name.encode()} | ({None} if damaged else set())
            samples = _or_named(damaged, partial(store.samples, voice, "ann"))
            assert samples is None or [one.audio for one in samples] == [_noise(name)]
    return len(listed)


def _keys(home: Path) -> Callable[[str], str]:
    store = KeyStore(home / "keys.sqlite3", busy_s=_BUSY_S)
    if not store.list():
        store.create("all", credit=CREDIT)
    shared = store.list()[0]

    def write(name: str) -> str:
        secret = store.create(name, credit=7).secret
        assert store.reserve(shared, 1)
        return secret

    return write


def _check_keys(home: Path, said: list[str], *, damaged: bool = False) -> int:
    """Of the credit that all share, each acknowledged line took one; made and not yet acknowledged are at most a few."""
    store = _or_named(damaged, lambda: KeyStore(home / "keys.sqlite3", busy_s=_BUSY_S))
    if store is None:
        return 0
    with store:
        for secret in said:
            key = _or_named(damaged, partial(store.authenticate, secret))
            assert key is None or damaged or key.credit == 7
        listed = _or_named(damaged, store.list, ())
        if not damaged:
            spent = CREDIT - (listed[0].credit or 0)
            assert len(said) <= spent <= len(listed) - 1
            assert all(well_formed(secret) for secret in said)
        return len(listed)


def _take(name: str) -> Take:
    audio = _noise(name)
    timing = Timing(0.1, 0.2, ((0.1, len(audio)),))
    return Take(Call(TTSRequest(text=f"Hello {name}", format="pcm"), "s1"), audio, timing, "writer", "f")


def _run(home: Path) -> Callable[[str], str]:
    def write(name: str) -> str:
        while True:
            try:
                journal = Journal(home / "run", ())
            except StoreError as error:
                if "another process" not in str(error):
                    raise
                time.sleep(random.uniform(0, 0.004))
                continue
            with journal:
                return f"{journal.add(_take(name), name=name).key} {name}"

    return write


def _check_run(home: Path, said: list[str], *, damaged: bool = False) -> int:
    run = _or_named(damaged or not said, lambda: load(home / "run"), ())
    return _check_takes({take.key: take for take in run}, said, damaged)


def _cache(home: Path) -> Callable[[str], str]:
    cache = Cache(home / "cache")
    return lambda name: f"{cache.put(_take(name)).key} {name}"


def _check_cache(home: Path, said: list[str], *, damaged: bool = False) -> int:
    return _check_takes(
        {take.key: take for take in _or_named(damaged, lambda: list(Cache(home / "cache")), ())}, said, damaged
    )


def _check_takes(takes: dict[str, Take], said: list[str], damaged: bool) -> int:
    for take in takes.values():
        audio = _or_named(damaged, partial(getattr, take, "audio"))
        name = take.request.text.split()[-1]
        assert audio in {_noise(name)} | ({None} if damaged else set())
        assert take.key == _take(name).key
    assert damaged or {line.split()[0] for line in said} <= takes.keys()
    return len(takes)


def _compiled(home: Path) -> Callable[[str], str]:
    home.mkdir(parents=True, exist_ok=True)
    os.environ |= {"VOICELAB_HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": str(home / "compiled")}
    import torch

    from voicelab.engine.core.fused import Regions

    def write(name: str) -> str:
        """Compile something new for each kill: once more than that, it waits for the kill."""
        turn = int(name.partition("-")[0])
        if (home / "turn").exists() and (home / "turn").read_text() == str(turn) and not name.endswith("-check"):
            time.sleep(600)
        frame = Regions(required=True).compiled(lambda x, y: (x * (turn + 2) + torch.sin(y)).relu())
        if not name.endswith("-check"):
            (home / "turn").write_text(str(turn))
        spoken = frame(torch.full((1, 4), 3.0), torch.zeros(1, 4))
        assert spoken.tolist() == [[3.0 * (turn + 2)] * 4]
        return name

    return write


def _check_compiled(home: Path, said: list[str], **_: bool) -> int:
    """What the kill came in the middle of is compiled by the next process, and its numbers are right."""
    if (home / "turn").exists():
        name = f"{(home / 'turn').read_text()}-check"
        subprocess.run(
            [sys.executable, "-m", "tests.week.kinds", "once", "compiled", str(home), name], check=True, timeout=250
        )
    return len(said)


def _or_named(damaged: bool, look: Callable[[], Any], other: Any = None) -> Any:
    """What a look gives; with ``damaged``, ``other`` where it raises an error of ours."""
    if not damaged:
        return look()
    try:
        return look()
    except (StoreError, NotFound, AuthenticationError, ServiceUnavailable):
        return other


KINDS = {
    "voices": Kind(_voices, _check_voices),
    "keys": Kind(_keys, _check_keys),
    "run": Kind(_run, _check_run),
    "cache": Kind(_cache, _check_cache),
    "compiled": Kind(_compiled, _check_compiled),
}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def kill(kind: Kind, home: Path, times: int, seed: int) -> None:
    chance, said = random.Random(seed), list[str]()
    longest = 12.0 if kind is KINDS["compiled"] else 0.08
    for turn in range(times):
        heard, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            write = kind.open(home)
            os.write(tell, b"\n")
            for number in itertools.count():
                os.write(tell, f"{write(f'{turn}-{number}')}\n".encode())
        os.close(tell)
        with os.fdopen(heard, "rb", buffering=0) as lines:
            lines.read(1)  # opened
            begun = lines.read(200) if chance.random() < 0.8 and kind is not KINDS["compiled"] else b""  # its first one
            time.sleep(chance.uniform(0.0, longest))
            os.killpg(child, signal.SIGKILL)  # the compiler that it started, too
            os.waitpid(child, 0)
            said += b"".join((begun, *iter(lambda: lines.read(65536), b""))).decode().split("\n")[:-1]
        kind.check(home, said)
        assert not [*home.rglob("damaged")]
    for line in said:
        say(line)


def fill(kind: Kind, home: Path, size: int) -> None:
    write = kind.open(home)
    say(write("before"))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    raised = "nothing was raised"
    try:
        for number in range(2000):
            say(write(f"full-{number}"))
    except VoicelabError as error:
        raised = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    say(write("after"))
    say(" ".join(raised.split()))


def main(command: str, name: str, home: str, *rest: str) -> None:
    kind = KINDS[name]
    if command == "kill":
        kill(kind, Path(home), *map(int, rest))
    elif command == "fill":
        fill(kind, Path(home), int(rest[0]))
    elif command == "once":
        say(kind.open(Path(home))(rest[0]))
    else:
        write = kind.open(Path(home))
        for number in range(int(rest[1])):
            say(write(f"{rest[0]}-{number}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
