"""bench/dual.py and bench/gpu.py at tiny size, and the published shapes."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import dual
import gpu
import pytest
import torch

from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.model import shapes_of

CPU = torch.device("cpu")


def test_time_limit_holds_where_a_compiler_catches_it() -> None:
    def work() -> None:
        with suppress(TimeoutError):
            time.sleep(10)
        time.sleep(10)

    with pytest.raises(TimeoutError), gpu._limited(0.01):
        work()


def test_time_limit_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "LIMIT_S", 10)
    figures = gpu.Figures(tmp_path / "gpu.json", resumed=False)
    figures.part("slow", 1, lambda: {"slept": time.sleep(60)})  # type: ignore[func-returns-value]
    figures.part("next", 1, lambda: {"figure": 3})
    figures._began -= 9.5
    figures.part("last", 1, dict)
    parts = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert parts["slow"]["failed"] == "TimeoutError: not finished after 1 s"
    assert parts["next"]["figure"] == 3
    assert figures.values["parts"]["last"] == {"left_out": "no time was left"}


def test_run_resumes_in_a_new_process_after_the_device_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def fail() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    monkeypatch.setattr("os.execv", lambda _, arguments: commands.append(arguments))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--tiny"])
    figures = gpu.Figures(tmp_path / "gpu.json", resumed=False)
    figures._began -= 20.0
    figures.part("one_row", 10, lambda: {"figure": 3})
    assert commands == [[sys.executable, "gpu.py", "--tiny", "--resume"]]
    resumed = gpu.Figures(tmp_path / "gpu.json", resumed=True)
    assert resumed.values["parts"]["one_row"]["figure"] == 3
    assert resumed.left_s < gpu.LIMIT_S - 20.0
    with pytest.raises(SystemExit, match="the device is unusable: RuntimeError: CUDA error"):  # would restart forever
        resumed.part("weights", 10, dict)
    assert len(commands) == 1


@pytest.mark.parametrize(("name", "tensors", "parameters"), [("s2-pro", 358, 4_561_852_416), ("s1", 287, 860_169_216)])
def test_published_shapes(name: str, tensors: int, parameters: int) -> None:
    shapes = shapes_of(DualConfig.of(dual.CONFIGS[name])).values()
    assert len(shapes) == tensors
    assert sum(torch.Size(shape).numel() for shape in shapes) == parameters


def test_bytes_of_frame() -> None:
    """Weights read per frame: slow layers and head once, fast layers nine times (14.74 GB for S2-Pro)."""
    config = DualConfig.of(dual.CONFIGS["s2-pro"])
    sizes = {name: 2 * torch.Size(shape).numel() for name, shape in shapes_of(config).items()}
    slow = sum(size for name, size in sizes.items() if name.startswith("layers."))
    fast = sum(size for name, size in sizes.items() if name.startswith("fast_layers."))
    counted = slow + 4097 * 2560 * 2 + 9 * (fast + 1024 * 2560 * 2)
    assert round(counted / 1e9, 1) == 14.6
    tiny = dual.random_model("tiny", CPU, positions=64)
    layers = {name: 2 * torch.Size(shape).numel() for name, shape in shapes_of(tiny.config).items() if "layers" in name}
    fast = sum(size for name, size in layers.items() if name.startswith("fast"))
    head = 32 * 2
    assert dual.bytes_of_frame(tiny) == sum(layers.values()) - fast + 65 * head + 9 * (fast + 64 * head)


def test_main_prints_one_line_of_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        ["dual.py", "--random", "tiny", "--device", "cpu", "--rows", "1,2", "--frames", "2", "--layers", "1"],
    )
    dual.main()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    figures = json.loads(printed)
    assert figures["layers"] == [1, 1]
    assert figures["machine"]["cpu"]
    assert figures["machine"]["cores"] >= 1
    assert figures["machine"]["python"].startswith("3.")
    assert set(figures["rows"]) == {"1", "2"}
    assert figures["rows"]["1"]["frames_s"] > 0


@pytest.mark.thorough
def test_all_parts_of_the_gpu_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "build" / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu", "--tiny", "--skip-tests", "--out", str(out)])
    gpu.main()
    figures = json.loads(out.read_text())
    assert figures == json.loads(capsys.readouterr().out)
    assert [name for name, part in figures["parts"].items() if "failed" in part] == []
    assert figures["parts"]["precision"]["decision"] in {"float32", "tf32", "bf16"}
    assert figures["parts"]["graph_and_eager"]["rows_1"]["all_equal"]
    assert figures["parts"]["first_audio"]["cached_ms"] > 0
