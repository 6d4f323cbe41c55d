"""Uses of voicelab in a forked process, each in an interpreter of its own: python -m tests.forked KIND."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

import voicelab as vl
from voicelab.runs.cache import Cache
from voicelab.session import Session

SENTENCE = "The birch canoe slid on the smooth planks."
SECONDS = 60


def warm_torch() -> None:
    """Start OpenMP's threads, as any program that uses torch does: a fork that needs them waits for ever."""
    torch.set_num_threads(2)
    torch.randn(4_000_000).exp().sum()


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def by_fork(function: Callable[[], object]) -> None:
    """Print what a function gives in a child of ``os.fork``, or that it hung."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            say(outcome(function))
        finally:
            os._exit(0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    say("hung")


def outcome(function: Callable[[], object]) -> str:
    try:
        return f"{function()}"
    except vl.VoicelabError as error:
        return f"{type(error).__name__}: {error}"


def length(lab: Session, text: str = SENTENCE, **fields: Any) -> str:
    return f"spoke {lab.speak(text, seed=1, **fields).duration:.2f} s"


def unused() -> None:
    lab = vl.connect()
    warm_torch()
    by_fork(lambda: length(lab))
    say(length(lab))


def used() -> None:
    lab = vl.connect()
    say(length(lab))
    by_fork(lambda: length(lab))
    say(length(lab))


def anew() -> None:
    lab = vl.connect()
    warm_torch()
    clip = lab.speak(SENTENCE)
    reference = vl.ReferenceAudio(audio=clip.to_bytes(), text=SENTENCE)
    lab.speak("Hi.", references=[reference])

    def speak() -> str:
        with vl.connect() as other:
            cloned = length(other, references=[reference], prosody={"speed": 1.2}, format="mp3")
            return f"{cloned.split()[0]} cloned, {length(other)}"

    by_fork(speak)
    say(length(lab))


def speaking() -> None:
    """Forks while another thread speaks, from its first call on, and one after its last."""
    lab, stop = vl.connect(), threading.Event()

    def speak() -> None:
        while not stop.is_set():
            lab.speak(SENTENCE)

    thread = threading.Thread(target=speak)
    thread.start()
    for _ in range(5):
        by_fork(lambda: lab.speak("Hi."))
        by_fork(lambda: length(vl.connect(), "Hi."))
    stop.set()
    thread.join()
    by_fork(lambda: length(vl.connect(), "Hi."))


def stream() -> None:
    lab = vl.connect()
    begun = lab.stream(SENTENCE)
    next(begun)
    by_fork(lambda: next(begun))
    say(f"parent: {len(list(begun)) > 1}")


def pool() -> None:
    _shared[:] = [vl.connect()]
    length_of_shared()
    with multiprocessing.get_context("fork").Pool(1) as processes:
        say(processes.apply_async(length_of_shared).get(SECONDS))


_shared: list[Session] = []


def length_of_shared() -> str:
    """Speak with a lab of the parent, by the memory that a fork copies."""
    return outcome(lambda: length(_shared[0]))


def sweep() -> None:
    lab = vl.connect()
    length(lab)
    warm_torch()
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as processes:
        work = lab.sweep("Hi.", temperature=[0.2, 0.5], cache=Cache(mkdtemp())).start(executor=processes)
        ended = work.wait(SECONDS)
        say(f"ended: {ended}, {work.progress}")


def sweep_of_parent() -> None:
    work = vl.connect().sweep("Hi.", temperature=[0.2, 0.5], cache=Cache(mkdtemp())).start()
    work.pause()
    by_fork(work.wait)
    work.unpause()
    say(f"ended: {work.wait(SECONDS)}")
    by_fork(work.wait)


def cache() -> None:
    lab, kept = vl.connect(), Cache(Path(mkdtemp()))
    kept.get_or_render(lab.backend, lab.call("Hi.", seed=1))
    by_fork(lambda: kept.get_or_render(lab.backend, lab.call("Hi.", seed=1)).cached)
    by_fork(lambda: kept.get_or_render(lab.backend, lab.call("Oh.", seed=1)).cached)


def store() -> None:
    lab = vl.connect()
    reference = vl.ReferenceAudio(audio=lab.speak(SENTENCE).to_bytes(), text=SENTENCE)
    voice = lab.create_voice("Ada", [reference.audio], texts=[SENTENCE])
    by_fork(lambda: lab.backend.get_voice(voice.id).title)
    by_fork(lambda: vl.connect().speak("Hi.", voice=voice).similarity is not None)
    by_fork(lambda: vl.connect().create_voice("Ben", [reference.audio], texts=[SENTENCE]).title)
    say(sorted(record.title for record in lab.backend.list_voices()))  # type: ignore[attr-defined]


def service() -> None:
    """Parent and child call a service at once, after the parent has a connection that waits for its next call."""
    lab = vl.connect(os.environ["SERVICE"])
    expected = {text: lab.speak(text, seed=1).sha256 for text in ("Hello", "Other words")}

    def all_right(text: str) -> str:
        return f"right: {all(lab.speak(text, seed=1).sha256 == expected[text] for _ in range(20))}"

    begun = lab.stream("A stream of the parent", seed=1)
    next(begun)
    thread = threading.Thread(target=lambda: say(all_right("Hello")))

    def child() -> str:
        answers = all_right("Other words")
        begun.close()
        lab.close()
        return answers

    thread.start()
    by_fork(child)
    thread.join()
    say(f"parent: {len(list(begun)) >= 1}, {all_right('Hello')}")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
