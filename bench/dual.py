"""Speed of the open-weight models with random weights of full shape: frames per second by batch size, real-time factor per
row, and achieved fraction of the memory bandwidth measured in the same process.

    python bench/dual.py --random s2-pro --device cuda
    python bench/dual.py --random s2-pro --device cpu --layers 2 --rows 1,4 --frames 4

Weights are drawn on the device; their values do not affect speed. ``--layers`` truncates both transformers, for machines on
which the full model does not fit; the figures are then those of the truncated model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from machine import machine, report
from torch import Tensor

from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.model import DualLM
from voicelab.engine.dual.step import DualStep, RowInput, RowState
from voicelab.engine.dual.tower import Int8Matrix

FRAME_S = 2048 / 44_100
_PLAIN = {"rope_base": 1e6, "norm_eps": 1e-6, "attention_qkv_bias": False, "attention_o_bias": False, "dropout": 0.0}
_S2 = {**_PLAIN, "n_head": 32, "n_local_heads": 8, "head_dim": 128, "dim": 2560, "intermediate_size": 9728}
_S1 = {**_PLAIN, "n_head": 16, "n_local_heads": 8, "dim": 1024, "intermediate_size": 3072}
_TINY = {**_PLAIN, "n_head": 4, "n_local_heads": 2, "head_dim": 16, "dim": 32, "intermediate_size": 48}


def _two_towers(
    sizes: dict[str, Any], layers: int, vocabulary: int, entries: int, ids: tuple[int, int, int]
) -> dict[str, Any]:
    slow = {**sizes, "n_layer": layers, "vocab_size": vocabulary, "max_seq_len": 32_768, "attention_qk_norm": True}
    fast = {**sizes, "n_layer": 4, "vocab_size": entries, "max_seq_len": 11, "attention_qk_norm": False}
    return {
        "model_type": "fish_qwen3_omni",
        "text_config": {**slow, "tie_word_embeddings": True},
        "audio_decoder_config": {**fast, "num_codebooks": 10, "text_dim": sizes["dim"]},
        **dict(zip(("semantic_start_token_id", "semantic_end_token_id", "eos_token_id"), ids, strict=True)),
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "s2-pro": _two_towers(_S2, 36, 155_776, 4096, (151_678, 155_773, 151_645)),
    "s1": {
        **_S1,
        "model_type": "dual_ar",
        "head_dim": 128,
        "n_layer": 28,
        "n_fast_layer": 4,
        "fast_head_dim": 64,
        "vocab_size": 155_776,
        "max_seq_len": 8192,
        "attention_qk_norm": True,
        "fast_attention_qk_norm": False,
        "codebook_size": 4096,
        "num_codebooks": 10,
        "scale_codebook_embeddings": True,
        "tie_word_embeddings": False,
    },
    "tiny": _two_towers(_TINY, 2, 256, 64, (128, 191, 100)),
}
"""`config.json` of each model, and a tiny one for tests."""
S1_SPEECH = (151_658, 155_753, 151_647)


def random_model(
    name: str, device: torch.device, *, positions: int, layers: int | None = None, dtype: torch.dtype = torch.bfloat16
) -> DualLM:
    """Create a model of full shape with random weights, drawn on the device."""
    config = DualConfig.of(CONFIGS[name])
    if layers is not None:
        slow, fast = (replace(tower, layers=min(layers, tower.layers)) for tower in (config.slow, config.fast))
        config = replace(config, slow=slow, fast=fast)
    generator = torch.Generator(device).manual_seed(0)

    def draw(tensor: str, *shape: int) -> Tensor:
        if "norm" in tensor:
            return torch.ones(shape, device=device, dtype=dtype)
        return torch.empty(shape, device=device, dtype=dtype).normal_(0, 0.02, generator=generator)

    return DualLM(config, draw, config.speech or S1_SPEECH, positions)


def synchronize(device: torch.device) -> None:
    """Wait for pending device work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copy_bandwidth(device: torch.device) -> float:
    """Measure the bandwidth of copying a large tensor in bytes per second, read and write; best of ten."""
    size = 2**31 if device.type == "cuda" else 2**27
    source, target = (
        torch.ones(size, dtype=torch.uint8, device=device),
        torch.empty(size, dtype=torch.uint8, device=device),
    )
    best = float("inf")
    for _ in range(10):
        synchronize(device)
        began = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size / best


def read_bandwidth(device: torch.device) -> float:
    """Measure the bandwidth of summing a large tensor in bytes per second; best of ten."""
    source, best = torch.ones(2**29 if device.type == "cuda" else 2**26, device=device), float("inf")
    for _ in range(10):
        synchronize(device)
        began = time.perf_counter()
        source.sum()
        synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 4 * source.numel() / best


def bytes_of_frame(model: DualLM) -> int:
    """Return the bytes of weights read per frame: slow layers and head once, fast layers per codebook after the first."""

    def size(*matrices: Tensor | Int8Matrix | None) -> int:
        parts = [(m.weight, m.scale) if isinstance(m, Int8Matrix) else (m,) for m in matrices]
        return sum(part.numel() * part.element_size() for pair in parts for part in pair if part is not None)

    def layers(tower: Any) -> int:
        return sum(size(*vars(block).values()) for block in tower.blocks)

    fast = layers(model.fast) + size(model.fast_head)
    return layers(model.slow) + size(model.head) + (model.config.codebooks - 1) * fast


def inputs(model: DualLM, rows: int, position: int, frame: int) -> dict[int, RowInput]:
    """Build the row inputs of a frame: initially a frame of speech, then its own output; default settings."""
    begun = RowState((model.begin, *[0] * model.config.codebooks), position, frame, turn_frames=1)
    state = None if frame else begun
    return {row: RowInput(state, position, seed=row, temperature=0.8, top_p=0.8, redraw=True) for row in range(rows)}


@torch.inference_mode()
def frames(step: DualStep, rows: int, count: int, position: int) -> tuple[list[Tensor], list[float]]:
    """Generate frames from a position on, each launched before the previous one is read.

    Returns:
        The codes of each frame, shape (rows, codebooks), and the seconds between frames.
    """
    codes, times = [], []

    def read() -> None:
        out = step.read()
        codes.append(torch.stack([out[row].entries for row in range(rows)]))

    for frame in range(count):
        began = time.perf_counter()
        step.launch(inputs(step.model, rows, position + frame, frame), {})
        if frame:
            read()
            times.append(time.perf_counter() - began)
    read()
    return codes, times


def speed(step: DualStep, rows: int, count: int, position: int, bandwidth: float) -> dict[str, float]:
    """Measure the median duration of a frame, after two warm-up frames."""
    frames(step, rows, 2, position)
    times = frames(step, rows, count + 1, position)[1]
    median = sorted(times)[len(times) // 2]
    return {
        "frame_ms": round(1e3 * median, 3),
        "frames_s": round(rows / median, 1),
        "rtf_of_each": round(median / FRAME_S, 4),
        "read_gb_s": round(bytes_of_frame(step.model) / median / 1e9, 2),
        "share_of_bandwidth": round(bytes_of_frame(step.model) / bandwidth / median, 3),
    }


def measure(options: argparse.Namespace, device: torch.device, rows: Sequence[int]) -> dict[str, Any]:
    """Measure one model."""
    name, position, count = options.random, options.position, options.frames
    positions = max(512, position + count + 2)
    dtype = torch.float32 if options.type == "float32" else torch.bfloat16
    model = random_model(name, device, positions=positions, layers=options.layers, dtype=dtype)
    if options.type == "int8":
        model = model.with_int8_depth()
    bandwidth = read_bandwidth(device)
    step = DualStep(model, max(rows), compile=options.compile)
    figures = {str(each): speed(step, each, count, position, bandwidth) for each in rows}
    cuda = device.type == "cuda"
    return {
        "model": name,
        "layers": [model.config.slow.layers, model.config.fast.layers],
        "device": torch.cuda.get_device_name(device) if cuda else device.type,
        "type": options.type,
        "threads": torch.get_num_threads(),
        "position": position,
        "bandwidth_gb_s": round(bandwidth / 1e9, 1),
        "frame_gb": round(bytes_of_frame(model) / 1e9, 4),
        "rows": figures,
        "peak_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 3) if cuda else None,
    }


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", choices=CONFIGS, default="s2-pro", help="model that defines the shapes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, help="maximum layers of each transformer")
    parser.add_argument("--rows", default="1,2,4,8,16,32,64", help="batch sizes, comma-separated")
    parser.add_argument(
        "--type", choices=("bfloat16", "float32", "int8"), default="bfloat16", help="int8: of the fast transformer"
    )
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="default: on CUDA devices")
    parser.add_argument("--frames", type=int, default=40, help="timed frames")
    parser.add_argument("--position", type=int, default=500, help="position of the rows in their slots")
    options = parser.parse_args()
    rows = [int(each) for each in options.rows.split(",")]
    if options.threads:
        torch.set_num_threads(options.threads)
    figures = measure(options, torch.device(options.device), rows)
    report({"bench": "dual", **figures, "machine": machine()})


if __name__ == "__main__":
    main()
