"""Everything that only a GPU can tell of the open weights and of the embedded voice, in one run of at most ten minutes.

    python bench/gpu.py                              # writes build/gpu.json
    python bench/gpu.py --device cpu --tiny          # tries every part at tiny size; the figures then mean nothing

Parts: frames a second for each number of rows; frames as a graph against the same frames without one; what each optimization
gains; first audio with a cached and with a fresh reference of ten seconds; sixteen streams of 4,096 positions in memory; the
codec; the kernels that take longest; 64 streams of the embedded voice; the tests that are marked gpu, with their tiny
checkpoints in float32. The weights are random, of the full shapes, and drawn on the device. A part that fails says so in its
place.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dual
import torch
from machine import machine, report

from voicelab.engine.core.scheduler import Scheduler
from voicelab.engine.core.sequence import Sequence
from voicelab.engine.core.threads import DecodingThread
from voicelab.engine.dual.codec import CodecSizes, DualCodec
from voicelab.engine.dual.model import DualLM
from voicelab.engine.dual.prompt import ChatPrompts, Reference
from voicelab.engine.dual.runner import DualRunner, Turn
from voicelab.engine.dual.step import DualStep
from voicelab.engine.dual.voices import voice_of
from voicelab.engine.family import Piece, Settings

LIMIT_S = 570.0
TEXT = "The birch canoe slid on the smooth planks, and the salt breeze came across from the sea."
_TINY_CODEC = CodecSizes(
    encoder_width=8, encoder_layers=1, encoder_mlp=32, latent=128, layers=1, mlp=32, decoder_width=32
)


@dataclass(frozen=True)
class Plan:
    """What is measured, and at which sizes."""

    device: torch.device
    model: str
    rows: tuple[int, ...]
    frames: int
    streams: int
    positions: int
    codec: CodecSizes
    embedded: tuple[int, str]
    """Streams, and what each says."""

    @classmethod
    def of(cls, device: str, tiny: bool) -> Plan:
        """Full shapes; or sizes at which a CPU tries every part."""
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
    """One id for each letter: what a prompt costs depends on its length alone."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return [ord(letter) % 100 for letter in text]

    def special(self, token: str) -> int:
        """No text has special tokens here."""
        return len(token)


def tests(_: Plan) -> dict[str, Any]:
    """The whole suite that is marked gpu."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    return {
        "status": done.returncode,
        "summary": last,
        "failed": re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE),
    }


def graph_and_eager(plan: Plan, model: DualLM) -> dict[str, Any]:
    """The share of equal codes, and the frames that are equal from the start, for 1 and 4 rows."""
    figures = {}
    for rows in (1, min(4, max(plan.rows))):
        with_graph, without = (
            torch.stack(dual.frames(DualStep(model, rows, graphs=graphs), rows, 20, 0))
            for graphs in (plan.device.type == "cuda", False)
        )
        same = with_graph == without
        figures[f"rows_{rows}"] = {"equal_codes": float(same.float().mean()), "all_equal": bool(same.all())}
    return figures


def speeds(plan: Plan, model: DualLM) -> dict[str, Any]:
    """Frames a second by rows, beside what the measured copy bandwidth would allow."""
    bandwidth = dual.copy_bandwidth(plan.device)
    short = copy.copy(model)
    short.positions = 512  # slots no longer than needed: many rows shall fit
    step = DualStep(short, max(plan.rows))
    return {
        "copy_gb_s": round(bandwidth / 1e9, 1),
        "frame_gb": round(dual.bytes_of_frame(model) / 1e9, 4),
        "rows": {str(rows): dual.speed(step, rows, plan.frames, 400, bandwidth) for rows in plan.rows},
    }


def ladder(plan: Plan, model: DualLM) -> dict[str, Any]:
    """A frame of one row: operation by operation, as a graph, and with the fast transformer in 8 bits."""
    bandwidth = dual.copy_bandwidth(plan.device)
    cuda = plan.device.type == "cuda"
    eager = dual.speed(DualStep(model, 1, graphs=False), 1, plan.frames, 400, bandwidth)
    graph = dual.speed(DualStep(model, 1, graphs=cuda), 1, plan.frames, 400, bandwidth)
    small = model.with_int8_depth()
    return {
        "eager": eager,
        "graph": graph,
        "graph_int8_depth": dual.speed(DualStep(small, 1, graphs=cuda), 1, plan.frames, 400, bandwidth),
    }


def first_audio(plan: Plan, model: DualLM, codec: DualCodec) -> dict[str, Any]:
    """Seconds from a request to its first samples, one frame of them: through scheduler, codec thread and copies."""
    prompts = ChatPrompts(LetterTokenizer(), model.begin, model.config.codebooks)
    scheduler = Scheduler(lambda: DualRunner(model, prompts, 2), 2)
    decoding = DecodingThread(codec.decoding(16))
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
                    voice = voice_of((Reference(TEXT, codes),))
                sequence = Sequence(voice, Settings(0.8, 0.8), repeat, 8)
                sequence.add(Turn(TEXT, "<|speaker:0|>"))
                sequence.finish()
                scheduler.submit(sequence)
                stream = codec_stream = decoding.decoding.open()
                for frame in sequence.frames():
                    if frame.codes is not None:
                        decoding.feed(Piece(stream, frame.codes[None], last=False))
                        break
                times[kind].append(time.perf_counter() - began)
                decoding.decoding.close(codec_stream)
                sequence.cancel()
    finally:
        scheduler.close()
        decoding.close()
    # The first of each captures graphs and loads kernels.
    return {f"{kind}_ms": round(1e3 * sorted(values[1:])[len(values[1:]) // 2], 1) for kind, values in times.items()}


def many_streams(plan: Plan, model: DualLM) -> dict[str, Any]:
    """Memory and speed of streams that stand at the end of their slots."""
    cuda = plan.device.type == "cuda"
    bandwidth = dual.copy_bandwidth(plan.device)
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
    """A codec whose weights are drawn on the device."""
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
    """Frames a second by streams in pieces of 1, 8 and 24; what rounding products to TF32 and to bf16 changes."""
    device, figures = plan.device, dict[str, Any]()
    generator = torch.Generator().manual_seed(1)
    codes = torch.stack([torch.randint(n, (64, 24), generator=generator) for n in codec.sizes.codebooks], -1).to(device)
    for streams in plan.rows:
        for piece in (1, 8, 24):
            states = codec.decode_pieces(codes[:streams, :piece], [None] * streams)[1]
            dual.synchronize(device)
            began = time.perf_counter()
            for _ in range(5):
                states = codec.decode_pieces(codes[:streams, :piece], states)[1]
            dual.synchronize(device)
            figures[f"streams_{streams}_piece_{piece}"] = round(5 * streams * piece / (time.perf_counter() - began), 1)
    with torch.backends.cudnn.flags(allow_tf32=False):
        exact = codec.decode_pieces(codes[:1], [None])[0]
    rounded = codec.decode_pieces(codes[:1], [None])[0]
    half = copy.deepcopy(codec).bfloat16().decode_pieces(codes[:1], [None])[0].float()
    errors = {name: float((one - exact).abs().max()) for name, one in (("default", rounded), ("bf16", half))}
    return {"frames_s": figures, "largest_error": errors, "largest_sample": float(exact.abs().max())}


def kernels(plan: Plan, model: DualLM) -> dict[str, Any]:
    """The share of the device's time that each kind of kernel takes in a frame of one row."""
    activity = torch.profiler.ProfilerActivity
    kinds = {activity.CPU, activity.CUDA if plan.device.type == "cuda" else activity.CPU}
    step = DualStep(model, 1, graphs=False)
    dual.frames(step, 1, 2, 400)
    with torch.profiler.profile(activities=kinds) as profile:
        dual.frames(step, 1, 3, 402)
    name = "self_device_time_total" if plan.device.type == "cuda" else "self_cpu_time_total"
    times = {one.key: getattr(one, name) for one in profile.key_averages()}
    total = sum(times.values()) or 1
    return {key[:90]: round(one / total, 4) for key, one in sorted(times.items(), key=lambda pair: -pair[1])[:15]}


def embedded(plan: Plan) -> dict[str, Any]:
    """The embedded voice: the real-time factor of each of many streams at once, and the time to the first audio of one."""
    import voicelab

    streams, text = plan.embedded
    with voicelab.LocalBackend(device=str(plan.device), rows=streams) as backend:
        lab = voicelab.Lab(backend)
        lab.speak(text, seed=0)
        one = lab.stream(text, seed=1, latency="low", format="pcm")
        for _ in one:
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
        "first_audio_s": one.first_audio_s,
        "rtf_median": round(factors[len(factors) // 2], 4),
        "rtf_worst": round(factors[-1], 4),
        "seconds": round(took, 2),
    }


def main() -> None:
    """Run every part, and write what came of it after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the parts")
    parser.add_argument("--out", type=Path, default=Path("build/gpu.json"))
    parser.add_argument("--skip-tests", action="store_true", help="leave the test suite out")
    given = parser.parse_args()
    plan, began = Plan.of(given.device, given.tiny), time.perf_counter()
    cuda = plan.device.type == "cuda"
    figures: dict[str, Any] = {
        "bench": "gpu",
        "device": torch.cuda.get_device_name(plan.device) if cuda else plan.device.type,
        "cuda": torch.version.cuda,
        "tiny": given.tiny,
        "machine": machine(),
        "parts": {},
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)

    def part(name: str, work: Callable[[], dict[str, Any]]) -> None:
        start = time.perf_counter()
        if start - began > LIMIT_S:
            figures["parts"][name] = {"left_out": "no time was left"}
            return
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - one part that fails must not cost the others
            result = {"failed": f"{type(error).__name__}: {error}"[:500]}
        figures["parts"][name] = {**result, "took_s": round(time.perf_counter() - start, 1)}
        given.out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    model = dual.random_model(plan.model, plan.device, positions=plan.positions)
    codec = random_codec(plan.codec, plan.device)
    part("frames", lambda: speeds(plan, model))
    part("graph_and_eager", lambda: graph_and_eager(plan, model))
    part("ladder", lambda: ladder(plan, model))
    part("first_audio", lambda: first_audio(plan, model, codec))
    part("many_streams", lambda: many_streams(plan, model))
    part("codec", lambda: codecs(plan, codec))
    part("kernels", lambda: kernels(plan, model))
    part("embedded", lambda: embedded(plan))
    if not given.skip_tests:
        part("tests", lambda: tests(plan))
    figures["took_s"] = round(time.perf_counter() - began, 1)
    given.out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report(figures)


if __name__ == "__main__":
    main()
