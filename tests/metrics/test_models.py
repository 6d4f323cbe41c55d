from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Library
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import voicelab as vl
from tests.metrics import tiny
from tests.metrics.tiny import MODELS
from tests.speechlike import RATE, speechlike
from voicelab.audio.samples import Samples, resample
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.metrics import Tools, measure
from voicelab.metrics.models import Dnsmos, Ecapa, Nisqa, Utmos, WavLm

ROOT = Path(__file__).parents[2]
Figure = Callable[..., tuple[float, str]]


def voice(pitch: float, seconds: float = 2.0) -> Clip:
    return Clip(speechlike(seconds, pitch=pitch, noise=0.001), RATE)


class Pitcher:
    """An encoder that knows only how high a voice is: the strongest line of its spectrum, as an angle."""

    def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
        angle = np.pi * np.abs(np.fft.rfft(samples)).argmax() * rate / samples.size / 1000
        return np.array([np.cos(angle), np.sin(angle)])


class Level:
    """A predictor to whom louder is better."""

    def predict(self, samples: Samples, rate: int) -> float:
        return 1.0 + 4.0 * float(np.abs(samples).max())


def test_spectral_similarity_ranks_the_same_voice_highest(figure: Figure) -> None:
    reference = voice(120, 3.0)
    tilted = np.diff(voice(120).samples, prepend=np.float32(0))
    same, other = figure(voice(120), "spectral_similarity", reference=reference)[0], Clip(tilted, RATE)
    assert same > 0.95
    assert figure(other, "spectral_similarity", reference=reference)[0] < same - 0.02
    assert figure(reference, "spectral_similarity", reference=reference)[0] == pytest.approx(1.0)


def test_custom_encoder_is_used(sounds: Any, figure: Figure) -> None:
    low, high = sounds.sine(100, -6, 1.0), sounds.sine(350, -6, 1.0)
    tools = Tools(encoder=Pitcher())
    assert figure(high, "speaker_similarity", reference=low, tools=tools)[0] == pytest.approx(np.cos(np.pi / 4))


@pytest.mark.parametrize("tools", [Tools(), Tools(encoder="resemblyzer")])
def test_resemblyzer_where_installed(tools: Tools, figure: Figure) -> None:
    if importlib.util.find_spec("resemblyzer") is None:
        with pytest.raises(MissingExtra, match=r"pip install .*\[speaker\]"):
            figure(voice(120), "speaker_similarity", reference=voice(120), tools=tools)
        return
    same = figure(voice(120), "speaker_similarity", reference=voice(120, 3.0), tools=tools)[0]
    other = figure(voice(260), "speaker_similarity", reference=voice(120, 3.0), tools=tools)[0]
    assert same > 0.8
    assert other < same - 0.05


def test_custom_predictor_is_used(sounds: Any, figure: Figure) -> None:
    clip = sounds.clip(np.full(100, 0.5))
    assert figure(clip, "predicted_mos", tools=Tools(predictor=Level()))[0] == 3.0


@pytest.mark.thorough  # loads 80 MB of weights where the extra is installed, as the nightly run does
def test_distillmos_predicts_lower_mos_in_noise(sounds: Any, figure: Figure) -> None:
    if importlib.util.find_spec("distillmos") is None:
        with pytest.raises(MissingExtra, match=r"pip install .*\[distillmos\]"):
            figure(voice(120), "distillmos")
        return
    with vl.connect() as lab:
        clip = lab.speak("Rice is often served in round bowls.", seed=1)
    noisy = Clip(
        clip.samples + 0.02 * np.random.default_rng(0).standard_normal(len(clip)).astype(np.float32), clip.rate
    )
    good, bad = figure(clip, "distillmos")[0], figure(noisy, "distillmos")[0]
    assert 1 < bad < good - 0.5 < 5
    assert figure(clip, "predicted_mos", tools=Tools(predictor="distillmos"))[0] == pytest.approx(good)
    assert "must be at least 16000 Hz" in figure(voice(120).resample(8000), "distillmos")[1]
    assert "silent" in figure(sounds.clip(np.zeros(16_000), 16_000), "distillmos")[1]


def predicts() -> bool:
    return all(importlib.util.find_spec(name) for name in ("speechmos", "onnxruntime", "requests"))


def test_dnsmos_predicts_lower_mos_in_noise(figure: Figure) -> None:
    if not predicts():
        with pytest.raises(MissingExtra, match=r"pip install .*\[mos\]"):
            figure(voice(120), "predicted_mos")
        return
    clean = voice(120, 5.0)
    rough = Clip(clean.samples + np.random.default_rng(0).normal(0, 0.05, len(clean)).astype(np.float32), RATE)
    good, bad = figure(clean, "predicted_mos")[0], figure(rough, "predicted_mos")[0]
    assert 1 <= bad < good - 0.2 <= 5
    assert "silent" in figure(Clip(np.zeros(RATE, np.float32), RATE), "predicted_mos")[1]
    assert "16000 Hz" in figure(clean.resample(8000), "predicted_mos")[1]


def test_dnsmos_scales_agree_with_the_authors_program() -> None:
    dnsmos = pytest.importorskip("speechmos.dnsmos", exc_type=ImportError)
    # 11 s have two windows; 44.1 kHz and more than full scale are made what the network takes.
    clip = voice(120, 11.0)
    heard = resample(clip.samples, clip.rate, 16_000)
    told = dnsmos.run(np.clip(heard, -1, 1), 16_000)
    halves = [dnsmos.run(np.clip(heard[at : at + int(9.01 * 16_000)], -1, 1), 16_000)["ovrl_mos"] for at in (0, 16_000)]
    for scale in ("ovrl", "p808"):
        assert copy.copy(Dnsmos(scale)).predict(clip.samples, clip.rate) == told[f"{scale}_mos"]
    assert told["ovrl_mos"] == pytest.approx(np.mean(halves))
    with pytest.raises(ArgumentError, match="one of ovrl, sig, bak, p808"):
        Dnsmos("mos")  # type: ignore[arg-type]


def offline(*_: object) -> Any:
    raise OSError("no network")


@pytest.mark.parametrize(
    ("model", "module", "library", "packages", "command"),
    [
        (
            Nisqa,
            "torchmetrics.functional.audio.nisqa",
            Library(torch=Library(from_numpy=list), non_intrusive_speech_quality_assessment=offline),
            "torchmetrics librosa requests",
            "curl -fL --create-dirs -o ~/.torchmetrics/NISQA/nisqa.tar https://",
        ),
        (
            Utmos,
            "utmos_pytorch.utmos_torch",
            Library(torch=None, UTMOSScoreTorch=offline),
            "utmos-pytorch",
            "hf download Blinorot/UTMOS-PyTorch utmos_state_dict.pt",
        ),
        (
            WavLm,
            "transformers",
            Library(AutoFeatureExtractor=Library(from_pretrained=offline), WavLMForXVector=None),
            "transformers torch",
            "hf download microsoft/wavlm-base-plus-sv",
        ),
        (
            Ecapa,
            "speechbrain.inference.speaker",
            Library(torch=None, EncoderClassifier=Library(from_hparams=offline)),
            "speechbrain",
            "hf download speechbrain/spkrec-ecapa-voxceleb",
        ),
    ],
)
def test_missing_library_and_missing_weights_name_the_command(
    model: Any, module: str, library: Any, packages: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    with pytest.raises(MissingExtra, match=f"requires its package: pip install {packages} "):
        model()
    monkeypatch.setitem(sys.modules, module, library)  # its library, offline
    with pytest.raises(ArgumentError) as raised:
        model()
    assert f"with a network connection, run {command}" in str(raised.value)


@pytest.mark.thorough  # the nightly run installs the libraries
@pytest.mark.parametrize("name", MODELS)
def test_each_library_runs_with_random_weights(name: str, tmp_path: Path) -> None:
    libraries = {"wavlm": "transformers", "ecapa": "speechbrain", "nisqa": "torchmetrics", "utmos": "utmos_pytorch"} | {
        "paraformer": "funasr_onnx"
    }
    library = libraries[name]
    program = [sys.executable, "-W", "ignore", tiny.__file__, name, str(tmp_path)]
    homes = {"HOME": str(tmp_path), "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program, env={**os.environ, **homes}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if importlib.util.find_spec(library) is None or "Could not load this library" in done.stderr:
        assert done.returncode == 1
        return
    values = np.array(json.loads(done.stdout.splitlines()[-1]))
    assert values.shape == ((12,) if name in ("wavlm", "ecapa") else (1,))
    assert np.isfinite(values).all(), done.stderr


def test_package_that_a_library_imports_at_its_first_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def assess(*_: object) -> Any:
        raise ModuleNotFoundError("Install as `pip install librosa requests`.")

    library = Library(torch=Library(from_numpy=list), non_intrusive_speech_quality_assessment=assess)
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.audio.nisqa", library)
    with pytest.raises(MissingExtra, match="nisqa requires another package: Install as `pip install librosa requests`"):
        Nisqa()


def test_nisqa_gets_the_clips_own_rate(monkeypatch: pytest.MonkeyPatch, figure: Figure) -> None:
    rates: list[int] = []

    def assess(audio: object, rate: int) -> list[float]:
        rates.append(rate)
        return [4.0]

    library = Library(torch=Library(from_numpy=np.asarray), non_intrusive_speech_quality_assessment=assess)
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.audio.nisqa", library)
    tools = Tools(predictor=Nisqa())
    assert figure(voice(120).resample(48_000), "predicted_mos", tools=tools) == (4.0, "")
    assert rates == [16_000, 48_000]
    assert "at least 0.3 s, got 0.20 s" in figure(voice(120, 0.2), "predicted_mos", tools=tools)[1]


def test_unknown_models_are_rejected_early(figure: Figure) -> None:
    with pytest.raises(ArgumentError, match="one of ecapa, resemblyzer, wavlm"):
        figure(voice(120), "speaker_similarity", reference=voice(120), tools=Tools(encoder="x-vector"))
    with pytest.raises(ArgumentError, match="predict"):
        figure(voice(120), "predicted_mos", tools=Tools(predictor=Pitcher()))  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match="one of distillmos, dnsmos, nisqa, utmos, got 'utmosv2'; did you mean utmos"
    ):
        figure(voice(120), "predicted_mos", tools=Tools(predictor="utmosv2"))
    with pytest.raises(ArgumentError, match="embed"):
        figure(voice(120), "speaker_similarity", reference=voice(120), tools=Tools(encoder=Level()))  # type: ignore[arg-type]


def test_undefined_spectral_similarity_has_reasons(sounds: Any, figure: Figure) -> None:
    reference = voice(120)
    assert "at least 0.5 s" in figure(voice(120, 0.3), "spectral_similarity", reference=reference)[1]
    assert "silent" in figure(sounds.clip(np.zeros(RATE), RATE), "spectral_similarity", reference=reference)[1]
    assert "7.6 kHz" in figure(voice(120).resample(8000), "spectral_similarity", reference=reference)[1]


def test_embeddings_must_have_equal_shapes(sounds: Any) -> None:
    class AsItIs:
        def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
            return samples

    with pytest.raises(ArgumentError, match="equal shapes"):
        measure([voice(120)], ["speaker_similarity"], reference=voice(120, 1.0), tools=Tools(encoder=AsItIs()))
