"""Number of kernel launches per frame of the open weights on a CUDA device, counted in the code of torch's compiler.

    pip install triton
    python bench/kernels.py --random s2-pro            # needs no GPU

The compiler is given a simulated H100; its code is not run. Models with one and two layers of each transformer are compiled,
from which the counts of the full model are exact, since each layer adds the same number. Launches are compiled kernels,
matrix products and attention of libraries, two per top-k (gather, sort), and those of the attention mask. Libraries may
split a product into two launches. `refused` lists kernels that Triton cannot compile for an H100; it should be empty.
"""

# mypy: disable-error-code="assignment, attr-defined, method-assign, no-untyped-call, misc, import-not-found, arg-type"
# The compiler's device queries are patched.
from __future__ import annotations

import argparse
import ctypes
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dual
import torch
import torch.nn.functional as F
from machine import machine, report
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from voicelab.engine.core.fused import OPTIONS
from voicelab.engine.dual.codec import COMPILING, CodecSizes, DualCodec
from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.model import WINDOW, DualLM
from voicelab.engine.dual.step import DualStep
from voicelab.engine.dual.tower import Slots, Tower

BLOCK_FRAMES = 8
"""Codec frames per block with `latency="balanced"`."""
EAGER_NODES = 4565
"""Launches per uncompiled frame of S2-Pro, at about 55 per layer."""
_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
struct Pretended final : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Pretended);
}
"""
"""Device guard that CPU builds of torch lack, for meta tensors on a CUDA device."""
_H100 = SimpleNamespace(
    name="H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    regs_per_multiprocessor=65_536,
    shared_memory_per_block=49_152,
    shared_memory_per_block_optin=232_448,
    shared_memory_per_multiprocessor=233_472,
    total_memory=80 << 30,
    L2_cache_size=50 << 20,
    gcnArchName="",
)


class _Written(Exception):
    """Control flow: the code has been generated."""


class _Driver:
    utils = SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 232_448, "multiprocessor_count": 132})

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0


def pretend() -> list[str]:
    """Patch the compiler to generate code for a simulated GPU; the code is appended to the returned list."""
    import torch._dynamo.device_interface as interface
    import torch.utils._triton as of_triton
    import triton.runtime
    from torch._functorch import config as functorch
    from torch._inductor import compile_fx, config, scheduler
    from torch._inductor.graph import GraphLowering

    if not torch.backends.cuda.is_built():
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder) / "guard.cpp", Path(folder) / "guard.so"
            source.write_text(_GUARD)
            root = Path(torch.__file__).parent
            options = ["-std=c++20", "-shared", "-fPIC", f"-I{root}/include", f"-L{root}/lib", "-lc10"]
            subprocess.run([shutil.which("g++") or "g++", str(source), "-o", str(library), *options], check=True)
            ctypes.CDLL(str(library))
    for owner in (interface.CudaInterface, interface.CudaInterface.Worker):
        owner.get_device_properties = staticmethod(lambda *_: _H100)
    interface.CudaInterface.is_available = staticmethod(lambda: True)
    torch.cuda.get_device_properties = lambda *_: _H100
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.current_device = lambda: 0
    scheduler.has_triton = compile_fx.has_triton = lambda: True
    compile_fx._check_triton_bf16_support = lambda _: None  # noqa: SLF001 - no public hook
    of_triton.triton_hash_with_backend = lambda: ""
    triton.runtime.driver.set_active(_Driver())
    # These options would run on the device.
    config.joint_graph_constant_folding = config.shape_padding = config.fx_graph_cache = False
    functorch.enable_autograd_cache = False
    F.scaled_dot_product_attention = _attention
    generated: list[str] = []

    def stop(graph: Any) -> None:
        generated.append(graph.codegen()[0].value)
        raise _Written

    GraphLowering.compile_to_module = stop
    return generated


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None) -> Tensor:
    """Compute attention by the operator that torch selects on CUDA with a mask."""
    mask = None
    if attn_mask is not None:
        mask = attn_mask.expand(*q.shape[:3], k.shape[2])
    out: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(  # noqa: SLF001
        q, k, v, mask, False
    )[0]
    return out


class _Launches(TorchDispatchMode):
    """Count operations that are not views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += not func.is_view
        return out


def launches(generated: list[str], config: DualConfig, speech: tuple[int, int, int], rows: int) -> int:
    """Count the launches of the compiled part of a frame."""
    device = torch.device("cuda:0")
    generated.clear()
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        model = DualLM(config, lambda _, *shape: torch.empty(shape, dtype=torch.bfloat16, device=device), speech, 4096)
        step = object.__new__(DualStep)  # without host state
        step.model, step._widths = model, (1 + config.codebooks, 1, 1, 1, WINDOW)
        step._draw_steps = torch.empty(model.draws(), dtype=torch.int64, device=device)
        step.slots = Slots(config.slow, rows, 4096, model.embeddings)
        step._fast_slots = Slots(config.fast, rows, config.codebooks, model.embeddings)
        state = torch.empty(rows, sum(step._widths), dtype=torch.int64, device=device)
        settings, seeds = torch.empty(rows, 3, device=device), torch.empty(rows, dtype=torch.int64, device=device)
        mask = torch.empty(
            rows * config.slow.kv_heads,
            1,
            config.slow.heads // config.slow.kv_heads,
            512,
            dtype=torch.bfloat16,
            device=device,
        )
        torch.compiler.reset()
        try:
            torch.compile(step._after_frame, fullgraph=True, dynamic=False, options=OPTIONS)(
                state, settings, seeds, mask
            )
        except Exception:
            if not generated:
                raise
    return _calls(generated[0])


def codec_launches(generated: list[str], streams: int) -> int:
    """Count the launches of a compiled codec block."""
    generated.clear()
    with torch.no_grad(), FakeTensorMode():
        with torch.device("cuda:0"):
            codec = DualCodec(CodecSizes())
            codes = torch.zeros(streams, BLOCK_FRAMES, len(codec.sizes.codebooks), dtype=torch.int64)
        _, states = codec.decode_blocks(codes, [None] * streams)
        pasts = [torch.cat(parts) for parts in zip(*states, strict=True)]
        torch.compiler.reset()
        try:
            fused = torch.compile(codec.decode_tensors, fullgraph=True, dynamic=False, options={**OPTIONS, **COMPILING})
            fused(*pasts, codes.transpose(1, 2).contiguous())
        except Exception:
            if not generated:
                raise
    return _calls(generated[0])


def refused(code: str) -> list[str]:
    """List kernels of `code` that Triton cannot compile, with the errors."""
    from torch._inductor.runtime import triton_helpers

    triton_helpers.set_driver_to_gpu = lambda: None
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        kernels = re.findall(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", code, re.DOTALL)
        for number, (name, source) in enumerate(kernels):
            path = Path(folder) / f"{number}.py"
            path.write_text(source, encoding="utf-8")
            kernel = runpy.run_path(str(path))[name]
            try:
                kernel._precompile_config(kernel.configs[0])  # noqa: SLF001 - as the compiler calls it
            except Exception as error:  # noqa: BLE001 - any error is reported
                faults.append(f"{name}: {str(error).splitlines()[-1]}")
    return faults


def _calls(code: str) -> int:
    body = code[code.index("def call(") :]
    lines = [line.strip() for line in body.splitlines() if not line.strip().startswith(("#", "assert_"))]
    calls = [line for line in lines if re.search(r"\.run\(|extern_kernels\.|torch\.ops\.", line)]
    return len(calls) + sum("aten.topk" in call for call in calls)


def counts(name: str, rows: int) -> dict[str, Any]:
    """Count the launches per frame of a model of full shape."""
    generated, config = pretend(), DualConfig.of(dual.CONFIGS[name])
    speech = config.speech or dual.S1_SPEECH

    def of(slow: int, fast: int) -> int:
        layers = zip((config.slow, config.fast), (slow, fast), strict=True)
        towers = [replace(tower, layers=count) for tower, count in layers]
        return launches(generated, replace(config, slow=towers[0], fast=towers[1]), speech, rows)

    tower = Tower(config.slow, [], torch.zeros(1), 1)
    with _Launches() as before:
        tower.mask(torch.zeros(rows, 1, dtype=torch.int64), 512, torch.float32)
    base, faults = of(1, 1), refused(generated[0])
    slow, fast = of(2, 1) - base, of(1, 2) - base
    layers = slow * config.slow.layers, fast * config.fast.layers
    rest = base - slow - fast
    block = codec_launches(generated, rows)
    faults += refused(generated[0])
    total = sum(layers) + rest + before.count + block / BLOCK_FRAMES
    return {
        "slow_layer": slow,
        "fast_layer_of_a_frame": fast,
        "slow": layers[0],
        "fast": layers[1],
        "choosing": rest,
        "before": before.count,
        "codec_of_a_piece": block,
        "codec": block / BLOCK_FRAMES,
        "all": total,
        "refused": faults,
    }


def main() -> None:
    """Count, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", choices=dual.CONFIGS, default="s2-pro", help="model that defines the shapes")
    parser.add_argument("--rows", type=int, default=1)
    options = parser.parse_args()
    try:
        import triton  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("triton is required by torch's compiler: pip install triton")
    figures = counts(options.random, options.rows)
    report(
        {
            "bench": "kernels",
            "model": options.random,
            "rows": options.rows,
            **figures,
            "uncompiled": EAGER_NODES,
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
