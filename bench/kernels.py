"""Number of kernel launches per frame of the open weights on a CUDA device, counted in the code of torch's compiler.

    pip install triton
    python bench/kernels.py --random s2-pro            # needs no GPU

The compiler is given a simulated H100; its code is not run. A frame of full shape calls each compiled part as often as on a
device; the launches of a part are counted in its code: kernels, matrix products and attention of libraries, two per top-k
(gather, sort). Those of operations between the parts, such as the attention mask, are added. Libraries may split a product
into two launches. `compile_s` is the CPU time to write each part's code (`python_s`) and to compile its kernels by Triton
(`triton_s`). `refused` lists kernels that Triton cannot compile for an H100; it should be empty.
"""

# mypy: disable-error-code="assignment, attr-defined, method-assign, no-untyped-call, misc, import-not-found, arg-type"
# The compiler's device queries are patched.
from __future__ import annotations

import argparse
import ctypes
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import dual
import torch
import torch.nn.functional as F
from machine import machine, report
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from voicelab.engine.core.fused import OPTIONS, mark_dynamic
from voicelab.engine.dual.codec import COMPILING, CodecSizes, DualCodec
from voicelab.engine.dual.config import DualConfig, TowerConfig
from voicelab.engine.dual.model import WINDOW, DualLM
from voicelab.engine.dual.step import DualStep, _States
from voicelab.engine.dual.tower import Slots

BLOCK_FRAMES = 8
"""Codec frames per block with `latency="balanced"`."""
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


@dataclass
class _Part:
    """A compiled part."""

    launches: int
    python_s: float
    triton_s: float
    refused: list[str]
    calls: int = 0


class _Parts(TorchDispatchMode):
    """Count the calls of each compiled part of a frame, as Regions compiles it, and the operations between them."""

    def __init__(self, generated: list[str], **options: bool) -> None:
        super().__init__()
        self.parts, self.between = dict[str, _Part](), 0
        self._generated, self._options, self._inside = generated, OPTIONS | options, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.between += func.namespace == "aten" and not (self._inside or func.is_view)
        return out

    def compiled(self, function: Any, lengths: Mapping[int, int] = MappingProxyType({})) -> Any:
        """Compile like Regions.compiled, but run the function itself."""

        def run(*args: Any) -> Any:
            mark_dynamic(args, lengths)
            owner = getattr(function.__self__, "config", None)
            width = f" {owner.layers}" if isinstance(owner, TowerConfig) else ""
            name = f"{function.__name__}{width}" + " masked" * bool(width and args[4] is not None)
            self._inside = True
            if name not in self.parts:
                with _disable_current_modes():
                    self.parts[name] = self._part(function, args)
            self.parts[name].calls += 1
            out = function(*args)
            self._inside = False
            return out

        return run

    def _part(self, function: Any, args: tuple[Any, ...]) -> _Part:
        self._generated.clear()
        torch.compiler.reset()
        start_s = _cpu_s()
        try:
            torch.compile(function, fullgraph=True, options=self._options)(*args)
        except Exception:
            if not self._generated:
                raise
        code, triton_start_s = self._generated[0], _cpu_s()
        errors = refused(code)
        return _Part(_calls(code), triton_start_s - start_s, _cpu_s() - triton_start_s, errors)

    def figures(self) -> dict[str, Any]:
        """Return launches and seconds."""
        parts = self.parts.values()
        return {
            "launches": sum(part.calls * part.launches for part in parts) + self.between,
            "between": self.between,
            "parts": {
                name: {**vars(part), "python_s": round(part.python_s, 1), "triton_s": round(part.triton_s, 1)}
                for name, part in self.parts.items()
            },
            "compile_s": round(sum(part.python_s + part.triton_s for part in parts), 1),
        }


def _cpu_s() -> float:
    """Return the CPU time of this process and its children; other load on the machine affects it less than wall time."""
    return sum(os.times()[:4])


def frame(generated: list[str], config: DualConfig, speech: tuple[int, int, int], rows: int) -> dict[str, Any]:
    """Count the launches of a frame."""
    device, parts = torch.device("cuda:0"), _Parts(generated)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        model = DualLM(config, lambda _, *shape: torch.empty(shape, dtype=torch.bfloat16, device=device), speech, 4096)
        step = object.__new__(DualStep)  # without host state
        step.model, step._fused, step._widths = model, model.compiled(parts), (1 + config.codebooks, 1, 1, 1, WINDOW)
        states = _States(model, step._widths, torch.empty(model.draws(), dtype=torch.int64, device=device))
        step._cuda, step._begin, step._next = True, parts.compiled(states.begin), parts.compiled(states.next)
        step.slots = Slots(config.slow, 2 * rows, 4096, model.embeddings)
        step._fast_slots = Slots(config.fast, 2 * rows, config.codebooks + 1, model.embeddings)
        width = sum(step._widths)
        step._on_device = (
            torch.empty(rows, 2 + width, dtype=torch.int64, device=device),
            torch.empty(rows, 3, device=device),
        )
        step._before = torch.empty(rows, width, dtype=torch.int64, device=device)
        step._after = torch.empty(rows, 2 + width, dtype=torch.int64, device=device)
        with parts:
            step._frame(rows, 512)
    return parts.figures()


def codec(generated: list[str], streams: int) -> dict[str, Any]:
    """Count the launches of a codec block."""
    parts = _Parts(generated, **COMPILING)
    with torch.no_grad(), FakeTensorMode():
        with torch.device("cuda:0"):
            codec = DualCodec(CodecSizes())
            codes = torch.zeros(streams, BLOCK_FRAMES, len(codec.sizes.codebooks), dtype=torch.int64)
        _, states = codec.decode_blocks(codes, [None] * streams)
        pasts = [torch.cat(states_of_layer) for states_of_layer in zip(*states, strict=True)]
        with parts:
            parts.compiled(codec.decode_tensors, {0: -1})(codes.transpose(1, 2).contiguous(), *pasts)
    return parts.figures()


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
    """Count the launches of a frame and of a codec block, of a model of full shape."""
    generated, config = pretend(), DualConfig.of(dual.CONFIGS[name])
    return {
        "frame": frame(generated, config, config.speech or dual.S1_SPEECH, rows),
        "codec_block": codec(generated, rows),
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
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
