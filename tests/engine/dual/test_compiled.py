"""A frame as torch's compiler makes it, on the CPU: the same codes and the same keys and values as uncompiled.

`make test` compiles nothing: that takes a minute for each configuration.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.dual.tiny import CODEBOOKS, SPEECH, config_of, model_of, tensors_of
from tests.engine.dual.tiny_codec import save_codec, tiny_tensors
from voicelab.engine.core.decoding import CodeBlock
from voicelab.engine.core.fused import Regions, has_compiler
from voicelab.engine.dual.codec import CodecFile, DualDecoding
from voicelab.engine.dual.step import DualStep, RowInput, RowState
from voicelab.engine.dual.tower import rotate
from voicelab.errors import EngineUnavailable
from voicelab.schema import Model


def _run(step: DualStep, rows: int, frames: int = 8) -> tuple[list[list[RowState]], Tensor]:
    """States after each frame and slot contents; halfway a row is parked and resumed."""
    after = []
    for row in range(rows):
        step.slots.clear(row)  # `prepare` wrote to them
    for position in range(2, 2 + frames):  # attention to one position would be compiled separately
        inputs = {}
        for row in range(rows):
            start = RowState((SPEECH[0] + 5 + row, *[5] * CODEBOOKS), position, 0)
            inputs[row] = RowInput(None if position > 2 else start, position, row, 0.8, 0.9, redraw=True)
        step.launch(inputs, {})
        after.append([one.state for one in step.read().values()])
        if position == frames // 2:
            held = step.slots.take(0, position + 1)
            step.slots.clear(0)
            step.slots.put(0, held)
    return after, torch.stack(step.slots.layers)[:, :, :rows, :, : 2 + frames]


@torch.inference_mode()
def test_all_layers_use_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight parts, each traced once; they give the same frames as the model, and progress is logged."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "code").touch()  # of another model
    traced: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        traced.append(graph)
        return graph.forward

    compile_by = torch.compile
    monkeypatch.setattr(  # not stored, because torch stores only code of its own backends
        torch, "compile", lambda function, **_: partial(compile_by(function, fullgraph=True, backend=backend))
    )
    config = config_of("s2-pro")
    model = model_of(config, tensors_of(config))
    compiled = DualStep(model, 1, compile=True)
    with caplog.at_level(logging.WARNING, "voicelab.engine"):
        compiled.prepare()
    begun, finished = caplog.messages
    assert begun == f"compiling frames of one row (step 1 of 2); compiled code is cached in {tmp_path}"
    assert finished.startswith("compiled frames of one row (step 1 of 2) in ")
    with torch._dynamo.config.patch(error_on_recompile=True):
        states, held = _run(compiled, 1, 4)
    expected, of_eager = _run(DualStep(model, 1), 1, 4)
    assert states == expected
    assert torch.equal(held, of_eager)
    assert len(traced) == 8


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
@pytest.mark.parametrize("name", ["s2-pro", "s1"])
@torch.inference_mode()
def test_compiled_equals_eager(name: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    config = config_of(name)
    model = model_of(config, tensors_of(config))
    compiled = DualStep(model, 16, compile=True)
    compiled.prepare()
    for rows in (1, 2, 5, 16):
        with torch._dynamo.config.patch(error_on_recompile=True):
            states, held = _run(compiled, rows)
        expected, of_eager = _run(DualStep(model, 16), rows)
        assert states == expected
        torch.testing.assert_close(held, of_eager, atol=1e-5, rtol=1e-5)
    assert any((tmp_path / "compiled").rglob("*.main.so"))
    stored = DualStep(model, 16, compile=True)
    stored.prepare()
    states, held = _run(stored, 5)
    expected, of_eager = _run(DualStep(model, 16), 5)
    assert states == expected
    torch.testing.assert_close(held, of_eager, atol=1e-5, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@torch.inference_mode()
def test_stored_code_is_used_only_if_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    count, x, turn = torch._dynamo.utils.counters["stats"], torch.randn(1, 4, 2, 8), torch.randn(1, 4, 1, 4, 2)

    def traced(*args: Tensor) -> int:
        """Call a function as a new process does, and compare it; return how many graphs were traced."""
        before = count["unique_graphs"]
        torch.testing.assert_close(Regions(required=True).compiled(rotate)(*args), rotate(*args))
        return count["unique_graphs"] - before

    assert [traced(x, turn), traced(x, turn)] == [1, 0]
    assert traced(x.double(), turn) == 1
    assert traced(x[:, :1], turn[:, :1]) == 1  # the guards of the stored code do not hold: it is replaced
    stored = max((tmp_path / "functions").glob("rotate-*"), key=lambda path: path.stat().st_mtime_ns)
    stored.write_bytes(stored.read_bytes()[:1000])
    assert traced(x[:, :1], turn[:, :1]) == 1
    assert "rotate is compiled again, because stored code cannot be used" in caplog.text
    monkeypatch.setattr(torch, "__version__", "2.99")
    assert traced(x[:, :1], turn[:, :1]) == 1
    columns = torch.tensor([[SPEECH[0] + 5, *[5] * CODEBOOKS]])
    for scaled in (True, False):  # models of equal sizes
        config = config_of("s1", scale_codebook_embeddings=scaled)
        model = model_of(config, tensors_of(config))
        torch.testing.assert_close(Regions(required=True).compiled(model.embed)(columns), model.embed(columns))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.timeout(1500)
def test_compiled_codec_equals_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams with different start times and block lengths; no compilation after `prepare`."""
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    path = save_codec(tmp_path / "codec.pth", tiny_tensors())
    codec = CodecFile.open(path).load(torch.device("cpu"))
    codes = torch.randint(0, 16, (16, 49, 3), generator=torch.Generator().manual_seed(1))
    compiled = DualDecoding(codec, 16, compile=True)
    compiled.prepare()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for streams in (1, 2, 5, 16):
            open_streams = [compiled.open(None) for _ in range(streams)]
            heard = [
                compiled.feed(
                    [CodeBlock(one, codes[i, begin:end].numpy(), final=end == 49) for i, one in enumerate(open_streams)]
                )
                for begin, end in pairwise((0, 1, 2, 4, 12, 15, 39, 49))
            ]
            for i, pieces in enumerate(zip(*heard, strict=True)):
                whole = torch.cat([torch.from_numpy(piece) for piece in pieces])
                torch.testing.assert_close(whole, codec.decode(codes[i]), atol=1e-5, rtol=1e-4)


def test_compilation_of_the_codec_logs_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    codec = CodecFile.open(save_codec(tmp_path / "codec.pth", tiny_tensors())).load(torch.device("cpu"))
    with caplog.at_level(logging.WARNING, "voicelab.engine"):
        DualDecoding(codec, 4, compile=True).prepare()
    steps = [f"the codec for {streams} streams (step {step} of 3)" for step, streams in ((1, 1), (2, 2), (3, 4))]
    begun = [message.partition(";")[0] for message in caplog.messages[::2]]
    assert begun == [f"compiling {step}" for step in steps]
    assert all(map(str.startswith, caplog.messages[1::2], [f"compiled {step} in " for step in steps]))


def test_frames_are_compiled_by_default_on_gpus_with_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, package = torch.device("cuda"), tmp_path / "triton"
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # a torch for GPUs installs triton
    assert not has_compiler(gpu)
    package.mkdir()
    assert not has_compiler(gpu)
    (package / "__init__.py").touch()
    importlib.invalidate_caches()
    assert has_compiler(gpu)
    assert not has_compiler(torch.device("cpu"))


def test_frame_runs_uncompiled_if_compiled_code_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Code that compiles but does not run on the device; a lack of memory is an error, as uncompiled frames need more."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def compiled_as(message: str, *, required: bool = False) -> Callable[..., Any]:
        def fails(*_: Any) -> Tensor:
            raise RuntimeError(message)

        monkeypatch.setattr(torch, "compile", lambda *_, **__: fails)
        return Regions(required=required).compiled(lambda x: x * 2)

    assert torch.equal(compiled_as("CUDA error: invalid argument")(torch.ones(1)), torch.full((1,), 2.0))
    assert "CUDA error: invalid argument; they run uncompiled, which is slower" in caplog.text
    with pytest.raises(RuntimeError, match="out of memory"):
        compiled_as("CUDA out of memory")(torch.ones(1))
    with pytest.raises(EngineUnavailable, match="Cannot access storage; compile=False runs them uncompiled"):
        compiled_as("Cannot access storage", required=True)(torch.ones(1))


def test_frame_runs_uncompiled_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.WARNING, "voicelab.engine")
    with config.patch({"cpp.cxx": (str(tmp_path / "none"),), "fx_graph_cache": False}):
        frame = Regions(required=False).compiled(lambda x, y: (x * 2 + y).sin())
        for _ in range(2):
            assert torch.equal(frame(torch.ones(1, 3), torch.ones(3)), torch.full((1, 3), 3.0).sin())
        with pytest.raises(EngineUnavailable, match="needs g\\+\\+"):
            Regions(required=True).compiled(lambda x, y: (x * 2 + y).cos())(torch.ones(1, 3), torch.ones(3))
    assert sum("cannot be compiled" in message for message in caplog.messages) == 1


@pytest.mark.thorough
def test_broken_cache_is_recompiled(tmp_path: Path) -> None:
    program = (
        "import torch, torch._dynamo\nfrom voicelab.engine.core.fused import Regions\n"
        "frame = Regions(required=True).compiled(lambda x, y: (x * 2 + y).relu())\n"
        "print(frame(torch.ones(1, 3), torch.ones(3)).tolist())"
    )

    compiled, elsewhere = tmp_path / "compiled", tmp_path / "elsewhere"

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        variables = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
        variables |= {"VOICELAB_HOME": str(tmp_path)}
        if folder != compiled:
            variables |= {"TORCHINDUCTOR_CACHE_DIR": str(folder)}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    assert run(compiled).stdout == "[[3.0, 3.0, 3.0]]\n"
    libraries = [*compiled.rglob("*.main.so")]
    for library in libraries:
        library.write_bytes(library.read_bytes()[:100])
    for after in ("aotautograd", "fxgraph"):  # what is written last, as it is not by who is killed while linking
        shutil.rmtree(compiled / after)
    shutil.copytree(compiled, elsewhere)
    assert run(compiled).stdout == "[[3.0, 3.0, 3.0]]\n"
    assert libraries
    assert "EngineUnavailable" in run(elsewhere).stderr  # a folder that is not ours is not emptied
    assert (elsewhere / libraries[0].relative_to(compiled)).stat().st_size == 100
