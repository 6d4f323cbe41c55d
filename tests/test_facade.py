from __future__ import annotations

import subprocess
import sys

import pytest

import voicelab

# sympy and torch._dynamo come with torch's meta device. Each costs a fresh kernel half a second to three.
SLOW = "sympy torch._dynamo torch._inductor torch.onnx librosa numba scipy pandas onnxruntime"
SPEAK = "import voicelab; clip = voicelab.connect().speak('Hi.', seed=1)"


def test_all_is_sorted_and_listed() -> None:
    assert voicelab.__all__ == sorted(voicelab.__all__)
    assert set(voicelab.__all__) <= set(dir(voicelab))


@pytest.mark.parametrize("name", voicelab.__all__)
def test_a_public_name_resolves(name: str) -> None:
    value = getattr(voicelab, name)
    assert getattr(value, "__name__", name) == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="speek"):
        _ = voicelab.speek  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import voicelab", "torch numpy pydantic av librosa matplotlib httpx starlette ipywidgets"),
        ("import voicelab.lab", "torch ipywidgets httpx matplotlib"),
        (
            "import voicelab.clip, voicelab.audio.prosody, voicelab.backend",
            "torch librosa matplotlib IPython ipywidgets httpx starlette numba scipy voicelab.views",
        ),
        ("import voicelab.cli.doctor, voicelab.cli.study", "torch pandas scipy librosa matplotlib ipywidgets"),
        ("import voicelab.metrics, voicelab.stats", "torch pandas scipy librosa matplotlib jiwer pystoi numba"),
        ("from voicelab.errors import EngineError; EngineError('x')", "voicelab.views"),
        (SPEAK, f"{SLOW} matplotlib IPython ipywidgets"),
        (f"{SPEAK}; clip._repr_mimebundle_()", f"{SLOW} matplotlib.pyplot"),
    ],
)
def test_no_more_is_loaded_than_is_needed(code: str, absent: str) -> None:
    code += f"; import sys; print([name for name in {absent.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


def test_importing_takes_at_most_60_ms() -> None:
    # Of the processor's time, which other programs cannot lengthen much; the best of three.
    code = "import time; begun = time.process_time(); import voicelab; print(time.process_time() - begun)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(done.stdout) for done in runs) <= 0.060
