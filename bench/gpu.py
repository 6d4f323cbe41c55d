"""All GPU benchmarks of the open weights and of the embedded voice, in one run of at most eight minutes.

    python bench/gpu.py                              # writes build/gpu.json
    python bench/gpu.py --device cpu --tiny          # smoke test at tiny size; the figures are meaningless

Parts, the most important first: frames of one row, as a CUDA graph, then compiled (within three minutes: real-time factor,
and the fraction of the bandwidth measured on the device), and the start from stored code; 8 and 64 rows as a graph, then
compiled, with other numbers of rows; time to first audio with a cached and a new reference of ten seconds; memory of sixteen
streams of 4,096 positions; 64 streams of the embedded voice; the tests marked gpu, with tiny checkpoints in float32; equality
of frames with and without CUDA graphs; the slowest kernels; the codec, and the choice of float32, TF32 or bf16; the gain of
each optimization. The weights are random, of full shape, and drawn on the device. Each part has a time limit. The file is
written after each part and each batch size. A failure is recorded, and the next part runs; after an error that leaves the
device unusable, it runs in a new process.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import gc
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dual
import torch
from machine import machine, report
from torch import Tensor

from voicelab.engine.core.decoding import CodeBlock, DecodingThread
from voicelab.engine.core.scheduler import Scheduler
from voicelab.engine.core.sequence import Sequence, Settings
from voicelab.engine.dual.codec import CodecFile, CodecSizes, DualCodec, DualDecoding
from voicelab.engine.dual.model import DualLM
from voicelab.engine.dual.prompt import ChatPrompts, DualVoice, Reference
from voicelab.engine.dual.runner import DualRunner, Turn
from voicelab.engine.dual.step import DualStep

LIMIT_S = 460.0
_MAX_ERROR_DB = -60.0
TEXT = "The birch canoe slid on the smooth planks, and the salt breeze came across from the sea."
_TINY_CODEC = CodecSizes(
    encoder_width=8, encoder_layers=1, encoder_mlp=32, latent=128, layers=1, mlp=32, decoder_width=32
)


@dataclass(frozen=True)
class Plan:
    """Sizes of the measurements."""

    device: torch.device
    model: str
    rows: tuple[int, ...]
    frames: int
    streams: int
    positions: int
    codec: CodecSizes
    embedded: tuple[int, str]
    """Number of streams, and their text."""

    @classmethod
    def of(cls, device: str, tiny: bool) -> Plan:
        """Return full shapes, or tiny sizes for a smoke test on a CPU."""
        if tiny:
            return cls(torch.device(device), "tiny", (1, 2), 3, 2, 1024, _TINY_CODEC, (2, "Yes."))
        return cls(
            torch.device(device),
            "s2-pro",
            (1, 2, 4, 8, 16, 32, 64),
            60,
            16,
            4096,
            CodecSizes(),
            (64, " ".join([TEXT] * 3)),
        )


class LetterTokenizer:
    """Tokenizer with one id per letter; the cost of a prompt depends only on its length."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return [ord(letter) % 100 for letter in text]

    def special(self, token: str) -> int:
        """Return an arbitrary id of a special token."""
        return len(token)


def tests(_: Plan) -> dict[str, Any]:
    """Run the tests marked gpu."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests/engine"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    summary = process.stdout.strip().splitlines()[-1] if process.stdout.strip() else process.stderr[-300:]
    return {
        "status": process.returncode,
        "summary": summary,
        "failed": re.findall(r"^FAILED (\S+)", process.stdout, re.MULTILINE),
    }


def graph_and_eager(plan: Plan, model: DualLM) -> dict[str, Any]:
    """Compare codes of compiled CUDA graphs with eager execution, for 1 and 4 rows."""
    figures = {}
    for rows in (1, min(4, max(plan.rows))):
        with_graph, without = (
            torch.stack(dual.frames(DualStep(model, rows, graphs=graphs, compile=graphs), rows, 20, 0)[0])
            for graphs in (plan.device.type == "cuda", False)
        )
        same = with_graph == without
        figures[f"rows_{rows}"] = {"equal_codes": float(same.float().mean()), "all_equal": bool(same.all())}
    return figures


def speeds(
    plan: Plan, model: DualLM, rows: tuple[int, ...], figures: Figures, part: str, *, compiled: bool
) -> dict[str, Any]:
    """Measure frames per second by batch size, and the fraction of the measured read bandwidth; write each at once."""
    bandwidth = dual.read_bandwidth(plan.device)
    short = copy.copy(model)
    short.positions = 512  # short slots, so that many rows fit
    step = DualStep(short, max(rows), compile=compiled)
    measured: dict[str, Any] = {"bandwidth_gb_s": round(bandwidth / 1e9, 1)}
    measured |= {"frame_gb": round(dual.bytes_of_frame(model) / 1e9, 4), "first_call_s": {}, "rows": {}}
    figures.values["parts"][part] = measured
    for count in sorted(rows, key=lambda count: (count not in (1, 8, 64), count)):
        began = time.perf_counter()
        try:
            dual.frames(step, count, 1, 400)
            measured["first_call_s"][str(count)] = round(time.perf_counter() - began, 1)
            figures.write()
            measured["rows"][str(count)] = dual.speed(step, count, plan.frames, 400, bandwidth)
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 - continue with the other numbers of rows
            measured["failed"] = f"{count} rows: {_message(error)}"
            dual.synchronize(plan.device)  # raises if the device is unusable
        figures.write()
    return measured


def stored(model: DualLM) -> dict[str, Any]:
    """Measure the first frame of one row with code that an earlier part compiled and stored, and the parts traced."""
    counts = torch._dynamo.utils.counters["stats"]  # noqa: SLF001 - no public counter
    began, traced = time.perf_counter(), counts["unique_graphs"]
    dual.frames(DualStep(model, 1, compile=True), 1, 1, 400)
    return {"first_call_s": round(time.perf_counter() - began, 1), "traced": counts["unique_graphs"] - traced}


def ladder(plan: Plan, model: DualLM) -> dict[str, Any]:
    """Measure a frame of one row: eager, as a graph, compiled, and with the fast transformer in int8."""
    bandwidth = dual.read_bandwidth(plan.device)
    cuda = plan.device.type == "cuda"
    eager = dual.speed(DualStep(model, 1, graphs=False, compile=False), 1, plan.frames, 400, bandwidth)
    graph = dual.speed(DualStep(model, 1, graphs=cuda, compile=False), 1, plan.frames, 400, bandwidth)
    compiled = dual.speed(DualStep(model, 1, graphs=cuda), 1, plan.frames, 400, bandwidth)
    small = model.with_int8_depth()
    return {
        "eager": eager,
        "graph": graph,
        "compiled_graph": compiled,
        "graph_int8_depth": dual.speed(DualStep(small, 1, graphs=cuda), 1, plan.frames, 400, bandwidth),
    }


def first_audio(plan: Plan, model: DualLM, codec: DualCodec) -> dict[str, Any]:
    """Measure the time to the first frame of samples, through scheduler, codec thread and copies."""
    prompts = ChatPrompts(LetterTokenizer(), model.begin, model.config.codebooks)
    scheduler = Scheduler(lambda: DualRunner(model, prompts, 2), 2)
    decoding = DecodingThread(DualDecoding(codec, 16))
    times: dict[str, list[float]] = {"cached": [], "fresh": []}
    seconds = 10 if plan.model != "tiny" else 1
    try:
        for repeat in range(6):
            noise = 0.1 * torch.randn(seconds * codec.sample_rate, generator=torch.Generator().manual_seed(repeat))
            for kind in ("fresh", "cached"):
                began = time.perf_counter()
                if kind == "fresh":
                    codes = decoding.do(lambda noise=noise: codec.encode(noise), 10_000)  # type: ignore[misc]
                    codes = codes.clamp_max(model.config.entries - 1)
                    voice = DualVoice((Reference(TEXT, codes),))
                sequence = Sequence(voice, Settings(0.8, 0.8), repeat, 8)
                sequence.add(Turn(TEXT, "<|speaker:0|>"))
                sequence.finish()
                scheduler.submit(sequence)
                stream = decoding.decoding.open(None)
                for frame in sequence.frames():
                    if frame.codes is not None:
                        decoding.feed(CodeBlock(stream, frame.codes[None], final=False))
                        break
                times[kind].append(time.perf_counter() - began)
                sequence.cancel()
    finally:
        scheduler.close()
        decoding.close()
    # The first repeat captures graphs and loads kernels.
    return {f"{kind}_ms": round(1e3 * sorted(values[1:])[len(values[1:]) // 2], 1) for kind, values in times.items()}


def many_streams(plan: Plan, model: DualLM) -> dict[str, Any]:
    """Measure memory and speed of streams at the end of their slots."""
    cuda = plan.device.type == "cuda"
    bandwidth = dual.read_bandwidth(plan.device)
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(plan.device)
    step = DualStep(model, plan.streams)
    count = min(plan.frames, 30)
    figures = dual.speed(step, plan.streams, count, plan.positions - count - 1, bandwidth)
    peak = torch.cuda.max_memory_allocated(plan.device) if cuda else None
    return {
        "streams": plan.streams,
        "positions": plan.positions,
        **figures,
        "peak_gb": round(peak / 1e9, 2) if peak is not None else None,
    }


def random_codec(sizes: CodecSizes, device: torch.device) -> DualCodec:
    """Create a codec with random weights, drawn on the device."""
    with torch.device("meta"):
        codec = DualCodec(sizes)
    codec = codec.to_empty(device=device).requires_grad_(requires_grad=False).eval()
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in codec.named_parameters():
        if name.endswith(("alpha", "norm.weight")):
            parameter.fill_(1.0)
        else:
            parameter.normal_(0, 0.5 * max(1, parameter[0].numel()) ** -0.5, generator=generator)
    return codec


@torch.inference_mode()
def codecs(plan: Plan, codec: DualCodec) -> dict[str, Any]:
    """Measure frames per second by number of streams, in blocks of 1, 8 and 24 frames."""
    figures = {}
    for streams in plan.rows:
        for block in (1, 8, 24):
            figures[f"streams_{streams}_piece_{block}"] = codec_speed(codec, random_codes(codec, streams, block), 5)
    return {"frames_s": figures}


@torch.inference_mode()
def precision(plan: Plan, codec: DualCodec) -> dict[str, Any]:
    """Measure error and speed of the codec by precision.

    The decision is the fastest precision with an error of at most -60 dB relative to float32.
    """
    codes, blocks = random_codes(codec, 1, 64), random_codes(codec, plan.streams, 8)
    half = copy.deepcopy(codec).bfloat16()
    kinds = {"float32": (False, codec), "tf32": (True, codec), "bf16": (True, half)}
    exact, figures, before = torch.empty(0), dict[str, Any](), torch.get_float32_matmul_precision()
    try:
        for name, (tf32, variant) in kinds.items():
            torch.set_float32_matmul_precision("high" if tf32 else "highest")
            with torch.backends.cudnn.flags(allow_tf32=tf32):
                audio = variant.decode_blocks(codes, [None])[0].double().cpu()
                exact = audio if name == "float32" else exact
                ratio = float((audio - exact).square().sum() / exact.square().sum())
                error = round(10 * math.log10(ratio), 1) if ratio else None
                figures[name] = {"error_db": error, "frames_s": codec_speed(variant, blocks, 10)}
    finally:
        torch.set_float32_matmul_precision(before)
    fit = [name for name, row in figures.items() if row["error_db"] is None or row["error_db"] <= _MAX_ERROR_DB]
    return {"kinds": figures, "decision": max(fit, key=lambda name: figures[name]["frames_s"])}


def random_codes(codec: DualCodec, streams: int, frames: int) -> Tensor:
    """Draw codes on the codec's device, shape (streams, frames, codebooks)."""
    generator = torch.Generator().manual_seed(1)
    columns = [torch.randint(n, (streams, frames), generator=generator) for n in codec.sizes.codebooks]
    return torch.stack(columns, -1).to(codec.device)


def codec_speed(codec: DualCodec, codes: Tensor, count: int) -> float:
    """Measure frames per second of all streams, block by block."""
    states = codec.decode_blocks(codes, [None] * len(codes))[1]
    dual.synchronize(codec.device)
    began = time.perf_counter()
    for _ in range(count):
        states = codec.decode_blocks(codes, states)[1]
    dual.synchronize(codec.device)
    return round(count * codes.shape[0] * codes.shape[1] / (time.perf_counter() - began), 1)


def kernels(plan: Plan, model: DualLM) -> dict[str, Any]:
    """Measure the fraction of device time of each kernel in a frame of one row."""
    activity = torch.profiler.ProfilerActivity
    kinds = {activity.CPU, activity.CUDA if plan.device.type == "cuda" else activity.CPU}
    step = DualStep(model, 1, graphs=False)  # compiled on a GPU
    dual.frames(step, 1, 1, 400)
    with torch.profiler.profile(activities=kinds) as profile:
        dual.frames(step, 1, 1, 401)
    name = "self_device_time_total" if plan.device.type == "cuda" else "self_cpu_time_total"
    times = {event.key: getattr(event, name) for event in profile.key_averages()}
    total = sum(times.values()) or 1
    nodes = sum(event.count for event in profile.key_averages() if getattr(event, name))
    return {"nodes_of_a_frame": nodes} | {
        key[:90]: round(value / total, 4) for key, value in sorted(times.items(), key=lambda pair: -pair[1])[:15]
    }


def embedded(plan: Plan) -> dict[str, Any]:
    """Measure the embedded voice: real-time factors of concurrent streams, and time to first audio of one stream."""
    import voicelab

    streams, text = plan.embedded
    with voicelab.LocalBackend(device=str(plan.device), rows=streams) as backend:
        lab = voicelab.Lab(backend)
        lab.speak(text, seed=0)
        stream = lab.stream(text, seed=1, latency="low", format="pcm")
        for _ in stream:
            pass

        def factor(seed: int) -> float:
            start = time.perf_counter()
            seconds = lab.speak(text, seed=seed).duration
            return (time.perf_counter() - start) / seconds

        with ThreadPoolExecutor(streams) as pool:
            list(pool.map(factor, range(streams)))  # graphs of all sizes
            began = time.perf_counter()
            factors = sorted(pool.map(factor, range(streams)))
            took = time.perf_counter() - began
    return {
        "streams": streams,
        "first_audio_s": stream.first_audio_s,
        "rtf_median": round(factors[len(factors) // 2], 4),
        "rtf_worst": round(factors[-1], 4),
        "seconds": round(took, 2),
    }


def verdict(parts: dict[str, Any]) -> dict[str, str]:
    """Return for each goal whether it is met or not measured."""

    def figure(*path: str) -> Any:
        value: Any = parts
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    share = figure("one_row_compiled", "rows", "1", "share_of_bandwidth")
    goals = {
        "one row: at most 1.6 times the memory's limit": (None if not share else 1 / share, 1.6, False),
        "one row: real-time factor at most .195, as published; .34 was measured": (
            figure("one_row_compiled", "rows", "1", "rtf_of_each"),
            0.195,
            False,
        ),
        "first audio within 60 ms, the reference cached": (figure("first_audio", "cached_ms"), 60, False),
        "64 rows: 1,500 frames a second": (figure("frames", "rows", "64", "frames_s"), 1500, True),
        "at most 850 nodes a frame": (figure("kernels", "nodes_of_a_frame"), 850, False),
    }
    results = {}
    for goal, (value, limit, is_minimum) in goals.items():
        beaten = value is not None and (value >= limit if is_minimum else value <= limit)
        results[goal] = "not measured" if value is None else f"{value:.4g}: {'beaten' if beaten else 'not beaten'}"
    return results


class Figures:
    """Results as JSON, written after each part so that they survive a crash."""

    def __init__(self, out: Path, resumed: bool, **about: Any) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        self.values = (
            json.loads(out.read_text("utf-8")) if resumed else {**about, "parts": dict[str, Any](), "took_s": 0.0}
        )
        self._began, self._out = time.perf_counter() - self.values["took_s"], out

    @property
    def left_s(self) -> float:
        """Remaining seconds of the run."""
        return float(LIMIT_S - (time.perf_counter() - self._began))

    def part(self, name: str, limit_s: float, work: Callable[[], dict[str, Any]]) -> None:
        """Run a part within its time limit and the remaining time of the run."""
        start = time.perf_counter()
        limit = min(limit_s, self.left_s)
        if limit < 1:
            self.values["parts"][name] = {"left_out": "no time was left"}
            return
        try:
            with _limited(limit):
                result = work()
        except Exception as error:  # noqa: BLE001 - continue with the other parts
            result = self.values["parts"].get(name, {}) | {"failed": _message(error)}
        self.values["parts"][name] = {**result, "took_s": round(time.perf_counter() - start, 1)}
        self.write()
        gc.collect()  # a graph and its step refer to each other
        if torch.cuda.is_available():
            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except RuntimeError as error:
                if name == "weights":  # the first part of each process
                    raise SystemExit(f"the device is unusable: {_message(error)}") from error
                print(f"{name}: {_message(error)}; the next part runs in a new process", file=sys.stderr, flush=True)
                faulthandler.cancel_dump_traceback_later()
                os.execv(sys.executable, [sys.executable, *sys.argv, *["--resume"][: "--resume" not in sys.argv]])

    def write(self) -> None:
        """Write the results so far."""
        self.values["verdict"] = verdict(self.values["parts"])
        self.values["took_s"] = round(time.perf_counter() - self._began, 1)
        self._out.write_text(json.dumps(self.values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside the block after `seconds`."""

    def over(*_: object) -> None:
        raise TimeoutError(f"not finished after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # again, because torch's compiler catches what is raised in it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def about(plan: Plan) -> dict[str, Any]:
    """Describe the machine, and whether triton and its requirements (a C compiler, Python.h) are installed."""
    return {
        "device": torch.cuda.get_device_name(plan.device) if plan.device.type == "cuda" else plan.device.type,
        "cuda": torch.version.cuda,
        "triton": find_spec("triton") is not None,
        "c_compiler": shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
        "python_h": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
        "machine": machine(),
    }


def main() -> None:
    """Run every part, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="smoke test at tiny sizes")
    parser.add_argument("--codec", type=Path, help="codec.pth with real weights, for the choice of precision")
    parser.add_argument("--out", type=Path, default=Path("build/gpu.json"))
    parser.add_argument("--skip-tests", action="store_true", help="skip the test suite")
    parser.add_argument(
        "--resume", action="store_true", help="keep the results in --out and run only the missing parts"
    )
    options = parser.parse_args()
    plan = Plan.of(options.device, options.tiny)
    if options.tiny:
        torch.set_num_threads(1)  # threads do not pay at tiny sizes
    figures = Figures(options.out, options.resume, bench="gpu", tiny=options.tiny, **about(plan))
    # A hanging device cannot be interrupted.
    faulthandler.dump_traceback_later(max(1.0, figures.left_s + 20), exit=True, file=2)
    loaded: dict[str, Any] = {}
    cuda = plan.device.type == "cuda"

    def weights() -> dict[str, Any]:
        loaded["model"] = dual.random_model(plan.model, plan.device, positions=plan.positions)
        loaded["codec"] = (
            CodecFile.open(options.codec).load(plan.device) if options.codec else random_codec(plan.codec, plan.device)
        )
        return {"codec": options.codec.name if options.codec else "random"}

    def speed_of(name: str, rows: tuple[int, ...], *, compiled: bool = cuda) -> Callable[[], dict[str, Any]]:
        return lambda: speeds(plan, loaded["model"], rows, figures, name, compiled=compiled)

    figures.part("weights", 60, weights)
    large = tuple(count for count in plan.rows if count in (8, 64)) or plan.rows[-1:]
    # The most important first: one row, as a graph, then compiled.
    for name, limit, work in (
        ("one_row", 40, speed_of("one_row", (1,), compiled=False)),
        ("one_row_compiled", 120, speed_of("one_row_compiled", (1,))),
        *((("stored", 60, lambda: stored(loaded["model"])),) if cuda else ()),
        ("frames_uncompiled", 30, speed_of("frames_uncompiled", large, compiled=False)),
        ("frames", 150, speed_of("frames", plan.rows)),
        ("first_audio", 60, lambda: first_audio(plan, loaded["model"], loaded["codec"])),
        ("many_streams", 40, lambda: many_streams(plan, loaded["model"])),
        ("embedded", 60, lambda: embedded(plan)),
        ("tests", 100, lambda: tests(plan)),
        ("graph_and_eager", 60, lambda: graph_and_eager(plan, loaded["model"])),
        ("kernels", 30, lambda: kernels(plan, loaded["model"])),
        ("codec", 50, lambda: codecs(plan, loaded["codec"])),
        ("precision", 40, lambda: precision(plan, loaded["codec"])),
        ("ladder", 60, lambda: ladder(plan, loaded["model"])),
    ):
        if name not in figures.values["parts"] and not (name == "tests" and options.skip_tests):
            figures.part(name, limit * (10 if options.tiny else 1), work)  # smoke tests may run on a busy machine
    faulthandler.cancel_dump_traceback_later()
    figures.write()
    report(figures.values)


if __name__ == "__main__":
    main()
