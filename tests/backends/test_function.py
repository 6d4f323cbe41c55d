"""Python functions as backends: parameters, returned values, streams, fingerprints, other processes."""

from __future__ import annotations

import asyncio
import importlib
import io
import itertools
import logging
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace as Library
from typing import Annotated, Any, Literal

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import pytest
from pydantic import Field

import voicelab as vl
from tests.service.conftest import Start
from tests.tones import there
from voicelab.backends.function import fingerprint_of
from voicelab.errors import ArgumentError, Cancelled, EngineError, RequestInvalid

RATE = 24_000
SINE = (0.3 * np.sin(np.arange(RATE // 10) / 20)).astype(np.float32)
CALLS: list[dict[str, Any]] = []


def model(
    text: str,
    voice: Literal["ann", "bob"] = "ann",
    seed: int | None = None,
    speed: float = 1.25,
    temperature: float = 0.3,
    cfg: Annotated[float, Field(ge=0, le=4, description="Guidance.")] = 2.0,
    steps: int | None = None,
    style: Literal["calm", "lively"] = "calm",
    cache: bool = True,
) -> tuple[np.ndarray[Any, Any], int]:
    CALLS.append({key: value for key, value in locals().items() if key != "text"})
    return SINE * cfg / 4, RATE


def cloned(text: str, ref_audio: str, ref_text: str = "", references: tuple[Any, ...] = ()) -> tuple[Any, int]:
    CALLS.append({"audio": vl.Clip.load(ref_audio), "text": ref_text, "references": references})
    return SINE, RATE


def test_parameters_become_fields_and_backend_parameters() -> None:
    with vl.connect(model) as lab:
        assert [voice.id for voice in lab.voices] == ["ann", "bob"]
        assert [(k.name, k.type, k.default, k.bounds, k.choices) for k in lab.capabilities.knobs] == [
            ("cfg", "float", 2.0, (0.0, 4.0), ()),
            ("steps", "int", None, None, ()),
            ("style", "str", "calm", None, ("calm", "lively")),
        ]
        take = lab.speak("Hello.", voice="bob", style="lively", seed=2**40 + 5, steps=0).take  # type: ignore[call-arg]
        assert CALLS[-1] == {
            "voice": "bob",
            "seed": 5,
            "speed": 1.25,
            "temperature": 0.3,
            "cfg": 2.0,
            "steps": 0,
            "style": "lively",
            "cache": True,
        }
        assert take.call.settings["prosody.speed"] == 1.25  # type: ignore[union-attr]
        assert take.call.request.temperature == 0.3  # type: ignore[union-attr]
        assert take.notes == ()  # type: ignore[union-attr]
        drawn = lab.speak("Hello.", speed=0.8).take
        assert (CALLS[-1]["seed"], CALLS[-1]["speed"], CALLS[-1]["steps"]) == (drawn.seed, 0.8, None)  # type: ignore[union-attr]
        assert drawn.seed is not None  # type: ignore[union-attr]
        assert lab.speak("Hello.", top_p=0.1).notes == ("top_p had no effect: model has no such parameter.",)
        with pytest.raises(RequestInvalid, match="voice: unknown voice 'eve'; available: ann, bob"):
            lab.speak("Hello.", voice="eve")
        with pytest.raises(RequestInvalid, match="references: model has no parameter 'references' or 'ref_audio'"):
            lab.speak("Hello.", references=lab.speak("Hi."))
        with pytest.raises(RequestInvalid, match="cfg: must be between 0 and 4, got 5"):
            lab.speak("Hello.", cfg=5)  # type: ignore[call-arg]
    table = vl.connect(model, cfg=1.0).sweep("Hello.", steps=[4, 8], repeats=2).run()  # type: ignore[call-arg]
    assert len(table) == 4


def test_a_function_works_in_a_service_a_panel_and_a_listening_test(start: Start) -> None:
    lab = vl.connect(model)
    service = start(lab.backend)
    with vl.connect(service.url, api_key=service.secret) as remote:
        assert [voice.id for voice in remote.voices] == ["ann", "bob"]
        assert remote.speak("Hello.", voice="bob", seed=3) == lab.speak("Hello.", voice="bob", seed=3)
        assert CALLS[-2]["voice"] == CALLS[-1]["voice"] == "bob"
    grid = lab.sweep(["One.", "Two."], speed=[0.8, 1.2])
    assert "SweepPanel" in repr(grid.panel())
    assert len(grid.run().listening_test("AB", seed=1, lufs=None).items) == 2


def test_a_recording_is_passed_as_a_file_and_its_transcript() -> None:
    lab = vl.connect(cloned)
    recording = vl.connect(model).speak("Hi there.")
    lab.speak("Hello.", references=recording)
    assert CALLS[-1]["text"] == "Hi there."
    assert CALLS[-1]["audio"].duration == recording.duration
    assert CALLS[-1]["references"][0].audio[:4] == b"RIFF"
    with pytest.raises(RequestInvalid, match="references: cloned needs a recording"):
        lab.speak("Hello.")
    with pytest.raises(RequestInvalid, match="voice: cloned has no parameter 'voice', got 'ann'"):
        lab.speak("Hello.", voice="ann")


@pytest.mark.parametrize(
    ("value", "notes"),
    [
        ((SINE, RATE), 0),
        ((RATE, SINE), 0),
        (((SINE * 32767).astype(np.int16), np.int64(RATE)), 0),
        ((((SINE + 1) * 127.5).astype(np.uint8), 24_000.0), 0),
        (((SINE * 32767).astype(int).tolist(), RATE), 0),
        ((SINE[None], RATE), 0),
        ({"audio": SINE[None].astype(np.float64), "sampling_rate": RATE}, 0),
        ((np.stack([SINE, SINE]), RATE), 1),
        ((np.stack([SINE, SINE], axis=1), RATE), 1),
        ((SINE * 6, RATE), 1),
        (vl.Clip(SINE, RATE), 0),
        (vl.Clip(SINE, RATE).to_bytes("wav"), 0),
        (vl.Clip(SINE, RATE).to_bytes("mp3"), 0),
        (memoryview(vl.Clip(SINE, RATE).to_bytes("wav")), 0),
        (io.BytesIO(vl.Clip(SINE, RATE).to_bytes("wav")), 0),
        (Library(read=lambda: vl.Clip(SINE, RATE).to_bytes("wav")), 0),
        (io.BufferedReader(io.BytesIO(vl.Clip(SINE, RATE).to_bytes("wav"))), 0),
    ],
)
def test_returned_values(value: object, notes: int) -> None:
    clip = vl.connect(lambda text: value).speak("Hello.", sample_rate=RATE)
    assert clip.duration == pytest.approx(0.1, abs=0.05)
    assert float(np.abs(clip.samples).max()) == pytest.approx(
        1.0 if "clipped" in "".join(clip.notes) else 0.3, abs=0.02
    )
    assert len(clip.notes) == notes, clip.notes


def test_a_tensor_and_a_path_are_returned_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(SINE, requires_grad=True)[None]
    assert vl.connect(lambda text: (tensor, torch.tensor(RATE))).speak("Hello.").duration == pytest.approx(0.1)
    path = tmp_path / "a.wav"
    path.write_bytes(vl.Clip(SINE, RATE).to_bytes("mp3"))  # the content counts, not the name
    assert vl.connect(lambda text: path).speak("Hello.").duration == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((np.array([0, np.nan, 0]), RATE), "must return finite samples, got nan at sample 1"),
        ((np.zeros(0), RATE), "must return audio, got no samples"),
        ((SINE * 30_000, RATE), "divide 16-bit values by 32768"),
        ((np.zeros((30, 40)), RATE), r"shape \(n,\), got shape \(30, 40\)"),
        ((np.array(["a"]), RATE), "must return numbers"),
        ((SINE, "24000"), "sample rate that must be an integer in Hz, got '24000'"),
        ((SINE, None), "sample rate"),
        ((SINE, 0), "sample rate"),
        ((SINE, 24), r"sample rate that must be between 1000 and 768000 Hz, got 24 \(24 kHz is 24000 Hz\)$"),
        ((SINE, 24_000.5), r"sample rate that must be an integer in Hz, got 24000\.5"),
        ((SINE, float("nan")), "sample rate"),
        (SINE, r"must return \(samples, rate\), a Clip, .* got ndarray"),
        (None, "got NoneType"),
        (b"", "got an empty file"),
        (b"{}", r"must return readable audio: the file is text, not audio; it begins with b'\{\}'"),
        (b"<html>x", "readable audio: the file is an HTML page"),
        ("nowhere.wav", "must return readable audio: .*nowhere.wav"),
        (Future[int](), "got Future"),
        ((SINE, RATE, None), "got tuple of 3"),
        (iter([(SINE, RATE), (SINE, 2 * RATE)]), "one sample rate, got 24000 and 48000 Hz"),
        (iter([]), "must return audio"),
        (iter([(np.zeros(0), RATE)]), "got no samples"),
    ],
)
def test_bad_returned_values_are_errors(value: object, message: str) -> None:
    def broken(text: str) -> object:
        return value

    with pytest.raises(EngineError, match=f"broken .*{message}"):
        vl.connect(broken).speak("Hello.")


class Style(Enum):
    CALM = "calm"
    LIVELY = "lively"


def test_annotations_of_parameters() -> None:
    def own(
        text: str,
        voice: Style = Style.CALM,
        style: Style = Style.CALM,
        steps: Literal[4, 8, None] = 4,  # noqa: PYI061
        rate: Annotated[float, Field(gt=0)] = 1.0,
        gain: float | int = 1,  # noqa: PYI041 - as users write
        folder: Path = Path(),
        tags: tuple[str, ...] = (),
        window: tuple[int, float] | None = None,
        top_k: object = None,
        mode: Literal["auto", 1] = 1,
    ) -> tuple[Any, int]:
        CALLS.append({key: value for key, value in locals().items() if key != "text"})
        return SINE, RATE

    lab: Any = vl.connect(own)
    assert [voice.id for voice in lab.voices] == ["calm", "lively"]
    for style in ("lively", Style.LIVELY):
        lab.speak("Hello.", voice="lively", style=style, steps=8, gain=0.5, folder=Path("a"))
        values = {
            "voice": Style.LIVELY,
            "style": Style.LIVELY,
            "steps": 8,
            "gain": 0.5,
            "folder": Path("a"),
            "tags": (),
        }
        assert CALLS[-1] == {**values, "rate": 1.0, "window": None, "top_k": None, "mode": 1}
    for fields, message in (
        ({"style": "loud"}, "style: must be 'calm' or 'lively', got 'loud'"),
        ({"steps": 5}, "steps: must be between 4 and 8|steps: must be 4 or 8, got 5"),
        ({"rate": -1}, r"rate: must be between 0 and 1e\+09, got -1"),
        ({"tags": ["a"]}, "tags: cannot be set; own must annotate it with bool, int"),
        ({"window": 0.5}, "window: cannot be set; own must annotate it with bool, int"),
        ({"top_k": 3}, "top_k: cannot be set; own must annotate it with bool, int"),
        ({"mode": "auto"}, "mode: cannot be set; own must annotate it with .*, or a Literal or Enum of one type"),
    ):
        with pytest.raises(RequestInvalid, match=message):
            lab.speak("Hello.", **fields)


def test_models_are_the_values_of_the_parameter() -> None:
    def sized(text: str, model: Literal["small", "large"] = "large") -> tuple[Any, int]:
        CALLS.append({"model": model})
        return SINE, RATE

    def numbered(text: str, voice: Literal[0, 1] = 0) -> tuple[Any, int]:
        return SINE, RATE

    assert vl.connect(numbered).voices == ()  # voices have names
    lab = vl.connect(sized)
    for options, model in (({}, "large"), ({"model": "small"}, "small")):
        lab.speak("Hello.", **options)  # type: ignore[arg-type]
        assert CALLS[-1] == {"model": model}
    assert set(lab.capabilities.models) == {"small", "large"}
    with pytest.raises(RequestInvalid, match="model"):
        lab.speak("Hello.", model="medium")


def test_asynchronous_functions(tmp_path: Path) -> None:
    ended = threading.Event()

    async def later(text: str) -> Any:
        await asyncio.sleep(0.001)
        (tmp_path / "a.wav").write_bytes(vl.Clip(SINE, RATE).to_bytes("wav"))
        return tmp_path / "a.wav" if text == "path" else blocks(text)

    async def blocks(text: str) -> AsyncIterator[Any]:
        try:
            for _ in range(3):
                await asyncio.sleep(0.001)
                yield SINE, RATE
        finally:
            ended.set()

    async def in_a_running_loop() -> float:  # as in a cell of a notebook
        return vl.connect(blocks).speak("Hello.").duration

    assert vl.connect(later).speak("path").duration == pytest.approx(0.1)
    assert vl.connect(later).speak("blocks").duration == pytest.approx(0.3)
    assert asyncio.run(in_a_running_loop()) == pytest.approx(0.3)
    ended.clear()
    stream = vl.connect(blocks).stream("Hello.", format="pcm")
    next(stream)
    stream.close()
    assert ended.is_set()


def test_an_interrupt_ends_an_asynchronous_function() -> None:
    async def endless(text: str) -> Any:
        await asyncio.sleep(0.5)  # CPython delays a signal that arrives just before a lock is awaited
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        vl.connect(endless).speak("Hello.")
    assert time.monotonic() - started < 30


def test_own_parameters_in_extra_are_typed_keywords() -> None:
    lab = vl.connect(lambda text, pitch=220.0: (SINE * pitch / 1000, RATE))
    loud = lab.speak("Hello.", extra={"pitch": 330})
    assert np.abs(loud.samples).max() == pytest.approx(1.5 * np.abs(lab.speak("Hello.").samples).max(), rel=0.01)
    assert lab.with_defaults(extra={"pitch": 330}).call("Hello.").knobs == (("pitch", 330.0),)
    with pytest.raises(vl.RequestInvalid, match="pitch: must be a number, got 'high'"):
        lab.speak("Hello.", extra={"pitch": "high"})
    with pytest.raises(vl.RequestInvalid, match=r"pitch: pass pitch or extra\['pitch'\], not both"):
        lab.speak("Hello.", extra={"pitch": 330}, pitch=220)  # type: ignore[call-arg]
    with pytest.raises(vl.RequestInvalid, match="accepts no extra fields, got 'speed_up'"):
        lab.speak("Hello.", extra={"speed_up": 2})


def test_errors_of_the_function_name_it() -> None:
    def broken(text: str) -> Iterator[tuple[Any, int]]:
        yield SINE, RATE
        raise KeyError("weights")

    stream = vl.connect(broken).stream("Hello.", format="pcm")
    assert len(next(stream)) > 0
    with pytest.raises(EngineError, match="broken raised KeyError: 'weights'"):
        next(stream)

    def program(text: str) -> None:
        sys.exit("no checkpoint")

    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    lab = vl.connect(interrupted)
    with pytest.raises(KeyboardInterrupt):  # not a failed take for each text
        lab.sweep(["a", "b", "c"]).run()
    work = lab.sweep(["a", "b", "c"]).start()
    assert work.wait(20)
    assert (work.state, work.progress.failed) == ("cancelled", 0)
    with pytest.raises(EngineError, match=r"^program raised SystemExit: no checkpoint$"):
        vl.connect(program).speak("Hello.")
    (row,) = vl.connect(program).sweep("Hello.").run().rows
    assert "program raised SystemExit: no checkpoint" in str(row.error)

    def checked(text: str) -> None:
        raise AssertionError

    with pytest.raises(EngineError, match=r"^checked raised AssertionError$"):
        vl.connect(checked).speak("Hello.")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "the first parameter must be the text"),
        (Exception, "must be a function or an instance of Exception, got the class"),
        (lambda text, speaker: None, "parameter 'speaker' must have a default, or be voice, seed, speed, model, ref"),
        (lambda voice, text: None, "the first parameter must be the text, got 'text' elsewhere"),
        (
            partial(lambda text, temperature: None, temperature=3.0),
            "temperature: must be between 0 and 1, got 3; rename",
        ),
    ],
)
def test_functions_that_cannot_be_called(function: Callable[..., object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        vl.connect(function)


def test_arguments_of_connect() -> None:
    with pytest.raises(ArgumentError, match=r"backend: must be a Backend, got function; use vl.connect"):
        vl.Lab(model)  # type: ignore[arg-type]
    with pytest.raises(RequestInvalid, match="backend: must be an address, a function or a Backend, got int"):
        vl.connect(3)  # type: ignore[arg-type]
    with pytest.raises(RequestInvalid, match="device: must be None with a function"):
        vl.connect(model, device="cpu")
    with pytest.raises(ArgumentError, match="voices: <lambda> must have a parameter 'voice'"):
        vl.connect(lambda text: None, voices=["a"])
    invalid: Any
    for option, invalid in (("voices", 3), ("models", [""]), ("languages", 3)):
        with pytest.raises(ArgumentError, match=f"^{option}: must be a list of names, got "):
            vl.from_function(model, **{option: invalid})
    with pytest.raises(ArgumentError, match=r"^seed: must be one of exact, best-effort, none, unknown, got 'yes'$"):
        vl.from_function(model, seed="yes")  # type: ignore[arg-type]
    assert vl.from_function(model, languages="en").capabilities.languages == ("en",)
    with pytest.raises(RequestInvalid, match=r"^time_limit_s: a function does not accept this option; omit it$"):
        vl.connect(model, time_limit_s=9)
    with pytest.raises(ArgumentError, match=r"^at_once: must be a whole number, at least 1, got 0$"):
        vl.connect(model, at_once=0)
    with pytest.raises(RequestInvalid, match="voices: the backend 'service' does not accept this option"):
        vl.connect("http://127.0.0.1:9", voices=["a"])
    lab = vl.connect(model)
    assert vl.connect(lab.backend, temperature=0.5).defaults["temperature"] == 0.5
    own = vl.from_function(model, voices=["eve"], models=["large", "small"], seed="exact", languages=["en"])
    capabilities = own.capabilities
    assert (capabilities.voices[0].id, capabilities.models, capabilities.seed) == ("eve", ("large", "small"), "exact")


def test_blocks_are_streamed_and_closing_stops_the_function() -> None:
    ended = threading.Event()

    def slowly(text: str) -> Iterator[tuple[Any, int]]:
        try:
            while True:
                yield SINE, RATE
        finally:
            ended.set()

    lab = vl.connect(slowly)
    first, second = lab.stream("Hello.", format="pcm"), lab.stream("Hello.", format="pcm")
    assert all(next(stream) for stream in (first, second, first))  # an unfinished stream does not block another
    first.close()
    assert ended.wait(1)
    with pytest.raises(Cancelled):
        next(first)


def test_calls_are_serialized_by_default() -> None:
    inside: list[int] = []
    most: list[int] = []

    def counted(text: str) -> tuple[Any, int]:
        inside.append(1)
        time.sleep(0.005)
        most.append(len(inside))
        inside.pop()
        return SINE, RATE

    vl.connect(counted).sweep(["a", "b", "c", "d"]).run(concurrency=4)
    assert max(most) == 1


def test_the_fingerprint_follows_modules_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = (
        "import own\ndef tts(text): return own.parts.gain()",
        "import own.parts as parts\ndef tts(text): return parts.gain()",
        "import own\ndef tts(text):\n    import own.parts\n    return own.parts.gain()",
        "import own\ndef tts(text):\n    from own.parts import gain as used\n    return used()",
    )
    found = []
    for number, (use, gain) in enumerate(itertools.product(uses, (1, 2))):
        folder = tmp_path / str(number)
        (folder / "own").mkdir(parents=True)
        (folder / "own" / "__init__.py").write_text("from . import parts; __version__ = '1'")
        (folder / "own" / "parts.py").write_text(f"VALUE = {gain}\ndef gain(): return VALUE")
        (folder / "script.py").write_text(use)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            tts = importlib.import_module("script").tts
            found += [fingerprint_of(tts), fingerprint_of(tts)]
            for name in ("script", "own", "own.parts"):
                sys.modules.pop(name)
    assert found[::2] == found[1::2]
    assert len({*found}) == 2 * len(uses)


def test_the_fingerprint_follows_what_the_function_uses() -> None:
    def made(gain: float, shift: int = 0) -> Callable[[str], object]:
        table = {"gain": [gain]}

        def inner(text: str) -> object:
            return SINE[shift:] * table["gain"][0]

        return inner

    class Network:
        def __init__(self, weight: float) -> None:
            self.weights = np.full(4, weight)

        def __call__(self, text: str) -> object:
            return self.weights

    assert fingerprint_of(made(0.1)) == fingerprint_of(made(0.1))
    changed = [made(0.1), made(0.2), made(0.1, 1), Network(1), Network(2), Network(1).__call__, partial(model, cfg=1.0)]
    changed += [partial(model, cfg=2.0), model, lambda text: SINE, lambda text: SINE * 2]

    def reads(constants: object) -> Callable[[str], object]:
        return lambda text: constants

    def through(value: float) -> Callable[[str], object]:
        def inner() -> float:
            return value

        def outer() -> float:
            return inner()

        def outermost() -> float:
            return outer()

        return lambda text: outermost()

    changed += [through(value) for value in (1, 2)]
    # A pronunciation dictionary with one edited word.
    lexicon = {str(n): [n] for n in range(10_000)}
    changed += [reads(lexicon), reads(lexicon | {"7001": [0]})]
    for kind in (partial, staticmethod, classmethod, property):
        for get in (lambda *_: 1, lambda *_: 2):
            changed.append(reads(type("C", (type("Base", (), {"get": kind(get)}),), {})))
    for restored in (re.compile, np.float32, lambda text: range(int(text)), bytearray.fromhex):
        changed += [reads(restored(text)) for text in ("11", "12")]
    enum: Any = Enum
    changed += [reads(type("C", (), {"GAIN": gain})) for gain in (1, 2)]
    changed += [reads(enum("C", {"GAIN": gain})) for gain in (1, 2)]
    assert len({fingerprint_of(item) for item in changed}) == len(changed)


def test_the_fingerprint_does_not_depend_on_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from voicelab.backends.function import fingerprint_of\n"
        "class Own: pass\n"
        "SETS = {frozenset(text) for text in ('abz', 'cy', 'qrs', 'tuv')} | {Own, Own()} | {*'abcdefgh'}\n"
        "def tts(text): return SETS, text in {'x', 'y'}\n"
        "print(fingerprint_of(tts))"
    )
    found = [
        subprocess.check_output([sys.executable, script], env={**os.environ, "PYTHONHASHSEED": str(seed)})
        for seed in (1, 2, 3)
    ]
    assert len({*found}) == 1


def test_the_fingerprint_does_not_depend_on_calls() -> None:
    log, rng, used, lock = logging.getLogger("tts"), np.random.RandomState(0), queue.Queue[str](), threading.Condition()

    def tts(text: str) -> object:
        with lock:
            log.info("%s %s", rng.normal(), logging.getLogger(text))
            used.put(text)
        return SINE, RATE

    before = fingerprint_of(tts)
    tts("other")
    assert fingerprint_of(tts) == before


def _weighted(weights: np.ndarray[Any, Any]) -> tuple[Library, Callable[[str], Any]]:
    owner = Library(weights=weights, scale=1.0)

    def tts(text: str) -> object:
        return SINE * owner.weights[-1] * owner.scale, RATE

    return owner, tts


@pytest.mark.parametrize("use", ["sweep", "speak", "cached"])
def test_a_model_that_changes_after_connect_gets_takes_of_its_own(use: str, tmp_path: Path) -> None:
    owner, tts = _weighted(np.full(100_000, 0.4))
    cached = {"cache": tmp_path} if use == "cached" else {}

    def peak_and_take(lab: vl.Lab) -> tuple[float, Any]:
        clip = lab.sweep("One.", cache=tmp_path).run().clip() if use == "sweep" else lab.speak("One.", temperature=0)
        return round(float(np.abs(clip.samples).max()), 2), clip.take

    lab = vl.connect(tts, **cached)  # type: ignore[arg-type]
    first = peak_and_take(lab)
    owner.weights[:] = 0.8
    second = peak_and_take(lab)
    owner.scale = 1.5
    third = peak_and_take(lab)
    assert [first[0], second[0], third[0]] == [0.12, 0.24, 0.36]
    assert len({first[1].fingerprint, second[1].fingerprint, third[1].fingerprint}) == 3
    owner.scale, owner.weights = 1.0, np.full(100_000, 0.4)  # the first weights, in another array
    for again in (lab, vl.connect(tts, **cached)):  # type: ignore[arg-type]
        peak, take = peak_and_take(again)
        assert (peak, take.fingerprint, take.cached) == (0.12, first[1].fingerprint, use != "speak")
    factory = pickle.loads(pickle.dumps(lab.factory))  # noqa: S301 - of this test
    assert factory().capabilities.fingerprint == first[1].fingerprint


def test_what_a_function_changes_itself_does_not_change_its_fingerprint(tmp_path: Path) -> None:
    owner = Library(model=None, count=0)

    def tts(text: str) -> object:
        owner.model = owner.model or Library(weights=np.full(3, 0.25))
        owner.count += 1
        return SINE * owner.model.weights[0], RATE

    lab = vl.connect(tts)
    for count in (2, 2):
        assert lab.sweep(["One.", "Two."], cache=tmp_path).run().notes == ()
        assert owner.count == count
    owner.model.weights[:] = 0.5
    assert not any(row.cached for row in lab.sweep(["One.", "Two."], cache=tmp_path).run().rows)
    fingerprint = there(lab.speak("One.").take).fingerprint
    with lab.stream("Two.") as stream:  # cancelled after its first chunk
        next(stream)
    assert there(lab.speak("Three.").take).fingerprint == fingerprint
    assert vl.connect(tts).speak("One.").notes == ()


def test_a_container_that_grows_while_it_is_compared_is_compared() -> None:
    owner: dict[str, object] = {}

    class Growing:
        """Adds an item when it is inspected, as another thread may do."""

        def __reduce_ex__(self, protocol: object) -> Any:
            owner[f"added {len(owner)}"] = protocol
            return Growing, ()

    lab = vl.connect(lambda text: (SINE * len(owner), RATE))
    before = there(lab.speak("One.").take).fingerprint
    owner["growing"] = Growing()
    assert not there(lab.speak("One.").take).fingerprint.startswith(before)


def test_long_texts_are_not_copied_in_every_call() -> None:
    lexicon = "word " * 2_000_000
    lab = vl.connect(lambda text: (SINE * bool(lexicon), RATE))
    tracemalloc.start()
    lab.speak("One.")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_an_object_that_cannot_be_inspected_does_not_fail_a_call(tmp_path: Path) -> None:
    np.savez(tmp_path / "voices.npz", ann=SINE)
    owner = Library(file=None, bag=None)

    def tts(text: str) -> object:
        owner.file = np.load(tmp_path / "voices.npz")
        owner.bag = owner.file.f  # has no __class__
        with owner.file:
            return owner.bag.ann, RATE

    lab = vl.connect(tts)
    assert [round(lab.speak(text).duration, 2) for text in ("One.", "Two.")] == [0.1, 0.1]


def test_weights_that_change_while_a_sweep_runs_are_noted_and_no_take_has_another_models_fingerprint(
    tmp_path: Path,
) -> None:
    weights, running, changed = np.full(3, 0.25), threading.Event(), threading.Event()

    def tts(text: str) -> object:
        if text == "Three.":
            running.set()
            assert changed.wait(20)
        return SINE * weights[0], RATE

    lab = vl.connect(tts)
    texts = ["One.", "Two.", "Three.", "Four."]
    work = lab.sweep(texts, cache=tmp_path).start()
    assert running.wait(20)
    weights[:] = 0.5
    changed.set()
    assert work.wait(20)
    one, two, three, four = (outcome.take for outcome in work.outcomes)
    assert one.fingerprint == two.fingerprint != four.fingerprint  # type: ignore[union-attr]
    assert three.notes == ("Objects that tts uses changed during this take, so no cache reuses it.",)  # type: ignore[union-attr]
    note = "tts changed while the sweep ran: its takes have 3 fingerprints"
    table = lab.sweep(texts, cache=tmp_path).table(work)
    assert table.notes == (f'{note}, which frame(also=["fingerprint"]) lists; run the sweep again.',)
    again = lab.sweep(texts, cache=tmp_path).run()
    assert [row.cached for row in again.rows] == [False, False, False, True]
    assert {round(float(np.abs(row.take.clip().samples).max()), 2) for row in again.rows if row.take} == {0.15}


def test_fingerprints_of_long_chains_and_of_shared_and_recursive_values() -> None:
    def chained(value: int) -> Any:
        scope: dict[str, Any] = {"VALUE": value}
        lines = (f"def f{number}(text): return f{number + 1}(text)" for number in range(2000))
        exec("\n".join([*lines, "def f2000(text): return VALUE"]), scope)  # noqa: S102 - of this test
        return scope["f0"]

    def nested(value: int) -> Any:
        shared: list[Any] = [value]
        for _ in range(5):
            shared = [shared] * 100
        shared.append(shared)
        return lambda text: shared

    for made in (chained, nested):
        assert fingerprint_of(made(1)) == fingerprint_of(made(1)) != fingerprint_of(made(2))


def test_a_factory_is_the_same_in_another_process() -> None:
    gain = 0.5
    lab = vl.connect(lambda text: (SINE * gain, RATE), at_once=2)
    factory = pickle.loads(pickle.dumps(lab.factory))  # noqa: S301 - of this test
    assert factory == lab.factory
    assert hash(factory) == hash(lab.factory)
    assert factory().capabilities == lab.capabilities
    assert cloudpickle.loads(cloudpickle.dumps(lab.factory)) == lab.factory


def test_the_overhead_of_a_call_is_below_1_ms() -> None:
    block = np.full(441, 0.1, np.float32)
    lab = vl.connect(lambda text: (block, 44_100))
    times = []
    for _ in range(50):
        started = time.perf_counter()
        lab.speak("Hello.")
        times.append(time.perf_counter() - started)
    assert min(times) < 1e-3
