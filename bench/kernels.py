"""Kernels that a frame of the open weights is on a CUDA device, counted in the code that torch's compiler writes for one.

    pip install triton
    python bench/kernels.py --random s2-pro            # no GPU is needed

The compiler is made to believe in an H100 and writes its code, which is not run. Models of one and of two layers of each
transformer are compiled, for one row or more; what a layer adds is the same for each, so the figures of the whole are exact.
What is counted are launches: compiled kernels, products of matrices and attention of libraries, two for each selection of the
likeliest (gather, sort), and the mask made before. Libraries may split a product into two launches. `refused` names the
kernels that Triton, asked to compile them for an H100, does not: there should be none.
"""

# mypy: disable-error-code="assignment, attr-defined, method-assign, no-untyped-call, misc, import-not-found, arg-type"
# What the compiler asks of a device is replaced, attribute by attribute.
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

PIECE = 8
"""Frames of a piece of the codec with `latency="balanced"`."""
EAGER_NODES = 4565
"""Of a frame of S2-Pro, uncompiled, as counted when each layer was some 55."""
_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
struct Pretended final : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Pretended);
}
"""
"""What torch's build for CPUs lacks, so that tensors without storage can say that they are on a CUDA device."""
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
    """The code is there: no error."""


class _Driver:
    utils = SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 232_448, "multiprocessor_count": 132})

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0


def pretend() -> list[str]:
    """Makes this process's compiler write code for a GPU that is not there; what it has written is appended to the list."""
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
    compile_fx._check_triton_bf16_support = lambda _: None  # noqa: SLF001 - there is no other way in
    of_triton.triton_hash_with_backend = lambda: ""
    triton.runtime.driver.set_active(_Driver())
    # Both would compute on the device.
    config.joint_graph_constant_folding = config.shape_padding = config.fx_graph_cache = False
    functorch.enable_autograd_cache = False
    F.scaled_dot_product_attention = _attention
    written: list[str] = []

    def stop(graph: Any) -> None:
        written.append(graph.codegen()[0].value)
        raise _Written

    GraphLowering.compile_to_module = stop
    return written


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None) -> Tensor:
    """What torch chooses on a CUDA device where there is a mask."""
    mask = None
    if attn_mask is not None:
        mask = attn_mask.expand(*q.shape[:3], k.shape[2])
    out: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(  # noqa: SLF001
        q, k, v, mask, False
    )[0]
    return out


class _Launches(TorchDispatchMode):
    """Operations that make something new."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count += not func.is_view
        return out


def launches(written: list[str], config: DualConfig, speech: tuple[int, int, int], rows: int) -> int:
    """Of the compiled part of a frame."""
    device = torch.device("cuda:0")
    written.clear()
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        model = DualLM(config, lambda _, *shape: torch.empty(shape, dtype=torch.bfloat16, device=device), speech, 4096)
        step = object.__new__(DualStep)  # without what it has on the host
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
            if not written:
                raise
    return _calls(written[0])


def of_codec(written: list[str], streams: int) -> int:
    """Of a compiled piece of the codec."""
    written.clear()
    with torch.no_grad(), FakeTensorMode():
        with torch.device("cuda:0"):
            codec = DualCodec(CodecSizes())
            codes = torch.zeros(streams, PIECE, len(codec.sizes.codebooks), dtype=torch.int64)
        _, states = codec.decode_pieces(codes, [None] * streams)
        pasts = [torch.cat(parts) for parts in zip(*states, strict=True)]
        torch.compiler.reset()
        try:
            fused = torch.compile(codec.decode_more, fullgraph=True, dynamic=False, options={**OPTIONS, **COMPILING})
            fused(*pasts, codes.transpose(1, 2).contiguous())
        except Exception:
            if not written:
                raise
    return _calls(written[0])


def refused(code: str) -> list[str]:
    """The kernels of `code` that Triton does not compile, each with why."""
    from torch._inductor.runtime import triton_helpers

    triton_helpers.set_driver_to_gpu = lambda: None
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        found = re.findall(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", code, re.DOTALL)
        for number, (name, source) in enumerate(found):
            path = Path(folder) / f"{number}.py"
            path.write_text(source, encoding="utf-8")
            kernel = runpy.run_path(str(path))[name]
            try:
                kernel._precompile_config(kernel.configs[0])  # noqa: SLF001 - what the compiler itself calls
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what is asked for
                faults.append(f"{name}: {str(error).splitlines()[-1]}")
    return faults


def _calls(code: str) -> int:
    body = code[code.index("def call(") :]
    lines = [line.strip() for line in body.splitlines() if not line.strip().startswith(("#", "assert_"))]
    calls = [line for line in lines if re.search(r"\.run\(|extern_kernels\.|torch\.ops\.", line)]
    return len(calls) + sum("aten.topk" in call for call in calls)


def counts(name: str, rows: int) -> dict[str, Any]:
    """Launches of a frame of a model, of full shapes."""
    written, config = pretend(), DualConfig.of(dual.CONFIGS[name])
    speech = config.speech or dual.S1_SPEECH

    def of(slow: int, fast: int) -> int:
        layers = zip((config.slow, config.fast), (slow, fast), strict=True)
        towers = [replace(tower, layers=count) for tower, count in layers]
        return launches(written, replace(config, slow=towers[0], fast=towers[1]), speech, rows)

    tower = Tower(config.slow, [], torch.zeros(1), 1)
    with _Launches() as before:
        tower.mask(torch.zeros(rows, 1, dtype=torch.int64), 512, torch.float32)
    base, faults = of(1, 1), refused(written[0])
    slow, fast = of(2, 1) - base, of(1, 2) - base
    layers = slow * config.slow.layers, fast * config.fast.layers
    rest = base - slow - fast
    piece = of_codec(written, rows)
    faults += refused(written[0])
    total = sum(layers) + rest + before.count + piece / PIECE
    return {
        "slow_layer": slow,
        "fast_layer_of_a_frame": fast,
        "slow": layers[0],
        "fast": layers[1],
        "choosing": rest,
        "before": before.count,
        "codec_of_a_piece": piece,
        "codec": piece / PIECE,
        "all": total,
        "refused": faults,
    }


def main() -> None:
    """Count, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", choices=dual.CONFIGS, default="s2-pro", help="whose shapes the weights have")
    parser.add_argument("--rows", type=int, default=1)
    given = parser.parse_args()
    try:
        import triton  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("pip install triton: torch's compiler writes its code in it")
    figures = counts(given.random, given.rows)
    report(
        {
            "bench": "kernels",
            "model": given.random,
            "rows": given.rows,
            **figures,
            "uncompiled": EAGER_NODES,
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
