"""Speaker similarity and predicted MOS by pluggable models, and similarity of long-term spectra."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import mel
from voicelab.audio.samples import Samples, resample
from voicelab.distribution import install_command
from voicelab.errors import ArgumentError, MissingExtra, suggestion
from voicelab.metrics.metric import MosPredictor, SpeakerEncoder, Subject, Tools, Undefined
from voicelab.metrics.programs import import_versioned, stub_module
from voicelab.storage import read_published

ENCODERS, PREDICTORS = "voicelab.speaker_encoders", "voicelab.mos_predictors"
_LOUD_RANGE_DB = 30.0
_MIN_DURATION_S = 0.5
_RATE = 16_000
# SHA-256 of the packages' weights, which define the metrics and are loaded by pickle.
_RESEMBLYZER_SHA256 = "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"
_DNSMOS_SHA256 = "40e47248357a0e0d92b7ca266f4f87d4594938ca39f32ffe7a76e2e53fdd8f14"
_DISTILLMOS_SHA256 = "b18b3ac60227267cfb91e5d00ce22cc7b73716fd92f269484da1446e27031a40"


class Resemblyzer:
    """Speaker encoder of the package Resemblyzer, with its weights.

    The GE2E network of L. Wan, Q. Wang, A. Papir & I. Lopez Moreno, "Generalized end-to-end loss for speaker
    verification", ICASSP (2018), 256 dimensions; the similarity of two recordings is about 0.8 or more if they are from
    one speaker, and about 0.6 otherwise. Raises MissingExtra if the package or a dependency is not installed,
    WeightsError if the weights have another digest.
    """

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                # The package imports deprecated names of scipy.
                warnings.simplefilter("ignore", DeprecationWarning)
                import_versioned("webrtcvad")  # Resemblyzer imports it
                from resemblyzer import VoiceEncoder, preprocess_wav, voice_encoder
        except ImportError as error:
            raise MissingExtra(
                "speaker similarity by Resemblyzer requires its package: "
                f"{install_command('speaker')}, or without a compiler: pip install librosa torch webrtcvad-wheels "
                f"&& pip install --no-deps resemblyzer ({error})",
                extra="speaker",
            ) from error
        weights = Path(voice_encoder.__file__).with_name("pretrained.pt")
        read_published("Resemblyzer 0.1.4", [weights], _RESEMBLYZER_SHA256)
        self._prepare = preprocess_wav
        self._encoder: Any = VoiceEncoder("cpu", verbose=False)

    def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
        """Compute an embedding (256,) after silence removal and level normalization."""
        speech = self._prepare(resample(samples, rate, _RATE))
        if not speech.size:
            raise Undefined("no speech remains after silence removal")
        embedding: npt.NDArray[np.floating[Any]] = self._encoder.embed_utterance(speech)
        return embedding


Scale = Literal["ovrl", "sig", "bak", "p808"]


class Dnsmos:
    """DNSMOS predictor of the package speechmos, with its weights; by default P.835 OVRL.

    ``scale`` selects an ITU-T P.835 rating: "ovrl", overall quality, "sig", speech signal, or "bak", background noise (C.
    Reddy, V. Gopal & R. Cutler, "DNSMOS P.835: A non-intrusive perceptual objective speech quality metric to evaluate noise
    suppressors", ICASSP 2022); or "p808", the absolute category rating of ITU-T P.808 (the same authors, "DNSMOS: A
    non-intrusive perceptual objective speech quality metric …", ICASSP 2021).
    All range from 1 (bad) to 5 (excellent), but clean speech scores about 3 to 3.5 on "ovrl".

    The input is the band below 8 kHz; the score is the mean over windows of 9.01 s with a hop of 1 s, and shorter clips are
    repeated, as in the authors' program. The model was trained on noise and noise suppression, so the score says little about
    the naturalness of a voice. A window takes about 0.25 s on one core; ``jobs`` of ``measure`` uses several processes.
    Thread-safe.

    Raises MissingExtra if speechmos is not installed, WeightsError if the weights have another digest, ArgumentError
    for an unknown scale.
    """

    domain: Final = "trained on noise and noise suppression, not on synthetic voices"

    def __init__(self, scale: Scale = "ovrl") -> None:
        if scale not in get_args(Scale):
            raise ArgumentError.of("scale", f"must be one of {', '.join(get_args(Scale))}, got {scale!r}")
        with MissingExtra.where("mos", "predicted_mos by DNSMOS"):
            import onnxruntime
            from speechmos import dnsmos
        self._scale: Scale = scale
        options = onnxruntime.SessionOptions()
        # By default onnxruntime busy-waits in a thread per core, which is 10 × slower on a busy machine.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        folder = Path(dnsmos.__file__).with_name("dnsmos_models")
        names = ("sig_bak_ovr.onnx", "model_v8.onnx")
        ratings, p808 = read_published("speechmos 0.0.1.1", [folder / name for name in names], _DNSMOS_SHA256)
        self._model: Any = dnsmos.DNSMOS.__new__(dnsmos.DNSMOS)
        self._model.onnx_sess = onnxruntime.InferenceSession(ratings, options)
        self._model.p808_onnx_sess = onnxruntime.InferenceSession(p808, options)

    def __reduce__(self) -> tuple[type[Dnsmos], tuple[Scale]]:
        # Each process loads the model.
        return Dnsmos, (self._scale,)

    def predict(self, samples: Samples, rate: int) -> float:
        """Predict a score, nominally 1 to 5. Raises Undefined for silence and rates below 16 kHz."""
        audio = np.clip(_model_input(samples, rate), -1.0, 1.0)
        return float(self._model(audio, _RATE, is_personalized_MOS=False)[f"{self._scale}_mos"])


class DistillMos:
    """DistillMOS predictor of the package distillmos, with its weights: predicted MOS, 1 to 5.

    B. Stahl & H. Gamper, "Distillation and pruning for scalable self-supervised representation-based speech quality
    assessment", ICASSP (2025), distilled from a model on XLS-R. In voicelab's benchmarks it ranks natural voices above
    parametric ones, which DNSMOS does not. The input is the band below 8 kHz; a second takes about 0.1 s on one core.
    Thread-safe. Raises MissingExtra when the package is not installed, WeightsError if the weights have another digest.
    """

    domain: Final = "distilled from a model of degraded natural and synthetic speech"

    def __init__(self) -> None:
        # torchaudio is needed only by the package's command line.
        try:
            with stub_module("torchaudio"):
                from distillmos import ConvTransformerSQAModel, sqa
        except ImportError as error:
            raise MissingExtra(
                f"DistillMOS requires torch and its package: pip install --no-deps distillmos xls-r-sqa ({error})",
                extra="distillmos",
            ) from error
        read_published("distillmos 0.9.1", [Path(sqa.DEFAULT_WEIGHTS_CHKPT)], _DISTILLMOS_SHA256)
        self._torch: Any = sqa.torch
        with redirect_stdout(io.StringIO()):  # the package prints the path of its weights
            self._model: Any = ConvTransformerSQAModel().eval()

    def __reduce__(self) -> tuple[type[DistillMos], tuple[()]]:
        # Each process loads the model.
        return DistillMos, ()

    def predict(self, samples: Samples, rate: int) -> float:
        """Predict a score. Raises Undefined for silence and rates below 16 kHz."""
        audio = np.ascontiguousarray(_model_input(samples, rate), np.float32)
        with self._torch.inference_mode():
            return float(self._model(self._torch.from_numpy(audio)[None])[0])


def _model_input(samples: Samples, rate: int) -> Samples:
    """Resample to 16 kHz. Raises Undefined for silence and lower rates."""
    if rate < _RATE:
        raise Undefined(f"the rate must be at least {_RATE} Hz, got {rate}")
    if not samples.any():
        raise Undefined("the clip is silent" if samples.size else "the clip is empty")
    return resample(samples, rate, _RATE)


def _imported(module: str, model: str, packages: str) -> Any:
    """Import the library of a model. Raises MissingExtra with the packages to install."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a compiled library that does not fit torch
        raise MissingExtra(f"the {model} requires its package: pip install {packages} ({error})") from error


def _loaded(load: Callable[[], Any], model: str, command: str) -> Any:
    """Load a model whose library fetches the weights.

    Raises ArgumentError with the command that fetches them, MissingExtra if the library needs another package.
    """
    try:
        return load()
    except ImportError as error:  # at its first use, with the command that installs the package
        raise MissingExtra(f"the {model} requires another package: {error}") from error
    except Exception as error:  # the packages' exceptions for missing or damaged weights are undocumented
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        field, name = model.split()
        message = (
            f"the weights of {name} are not on this machine, or are damaged: "
            f"with a network connection, run {command} ({reason})"
        )
        raise ArgumentError.of(field, message) from error


class Nisqa:
    """NISQA v2.0 predictor of the package torchmetrics, which fetches its weights: predicted MOS, 1 to 5.

    G. Mittag, B. Naderi, A. Chehadi & S. Möller, "NISQA: A deep CNN-self-attention model for multidimensional speech
    quality prediction with crowdsourced datasets", Interspeech (2021). It is not NISQA-TTS. The input has the clip's
    own sample rate, as in the authors' program, so the bandwidth affects the score. Raises MissingExtra when
    torchmetrics, librosa or requests is not installed, ArgumentError if the weights cannot be fetched.
    """

    domain: Final = "trained on natural speech with transmission distortions"

    def __init__(self) -> None:
        url = "https://github.com/gabrielmittag/NISQA/raw/refs/heads/master/weights/nisqa.tar"
        command = f"curl -fL --create-dirs -o ~/.torchmetrics/NISQA/nisqa.tar {url}"
        self._nisqa = _imported(
            "torchmetrics.functional.audio.nisqa", "predictor nisqa", "torchmetrics librosa requests"
        )
        _loaded(lambda: self.predict(np.ones(_RATE, np.float32), _RATE), "predictor nisqa", command)

    def predict(self, samples: Samples, rate: int) -> float:
        """Predict a score. Raises Undefined for silence, rates below 16 kHz, clips below 0.3 s or above 52 s."""
        if _model_input(samples, rate).size < 0.3 * _RATE:
            raise Undefined(f"the duration must be at least 0.3 s, got {samples.size / rate:.2f} s")
        audio = self._nisqa.torch.from_numpy(np.ascontiguousarray(samples, np.float32))
        try:
            return float(self._nisqa.non_intrusive_speech_quality_assessment(audio, int(rate))[0])
        except RuntimeError as error:
            raise Undefined(f"the duration must be at most 52 s, got {samples.size / rate:.2f} s") from error


class Utmos:
    """UTMOS strong learner of the package utmos-pytorch, which fetches its weights: predicted MOS, 1 to 5.

    T. Saeki et al., "UTMOS: UTokyo-SaruLab system for VoiceMOS Challenge 2022", Interspeech (2022). By the package's own test
    its scores equal those of the authors' program. The input is the band below 8 kHz. Raises MissingExtra when the package is
    not installed, ArgumentError if the weights cannot be fetched.
    """

    domain: Final = "trained on synthetic and converted English speech of the VoiceMOS Challenge 2022"

    def __init__(self) -> None:
        command = "hf download Blinorot/UTMOS-PyTorch utmos_state_dict.pt"
        package = _imported("utmos_pytorch.utmos_torch", "predictor utmos", "utmos-pytorch")
        self._torch, self._model = package.torch, _loaded(package.UTMOSScoreTorch, "predictor utmos", command)

    def predict(self, samples: Samples, rate: int) -> float:
        """Predict a score. Raises Undefined for silence and rates below 16 kHz."""
        audio = np.ascontiguousarray(_model_input(samples, rate), np.float32)
        return float(self._model.score(self._torch.from_numpy(audio))[0])


class WavLm:
    """WavLM base plus for speaker verification by transformers, which fetches its weights (microsoft/wavlm-base-plus-sv).

    S. Chen et al., "WavLM: Large-scale self-supervised pre-training for full stack speech processing", IEEE JSTSP 16 (2022),
    512 dimensions. It is not the fine-tuned WavLM large of Seed-TTS-eval. Raises MissingExtra if transformers is not
    installed, ArgumentError if the weights cannot be fetched.
    """

    def __init__(self) -> None:
        name = "microsoft/wavlm-base-plus-sv"
        package, command = _imported("transformers", "encoder wavlm", "transformers torch"), f"hf download {name}"
        prepare, model = package.AutoFeatureExtractor, package.WavLMForXVector
        self._prepare = _loaded(lambda: prepare.from_pretrained(name), "encoder wavlm", command)
        self._model = _loaded(lambda: model.from_pretrained(name).eval(), "encoder wavlm", command)

    def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
        """Compute an embedding (512,)."""
        inputs = self._prepare(resample(samples, rate, _RATE), sampling_rate=_RATE, return_tensors="pt")
        embedding: npt.NDArray[np.floating[Any]] = self._model(**inputs).embeddings[0].detach().numpy()
        return embedding


class Ecapa:
    """ECAPA-TDNN on VoxCeleb by speechbrain, which fetches its weights (speechbrain/spkrec-ecapa-voxceleb).

    B. Desplanques, J. Thienpondt & K. Demuynck, "ECAPA-TDNN: Emphasized channel attention, propagation and aggregation in
    TDNN based speaker verification", Interspeech (2020), 192 dimensions. Raises MissingExtra if speechbrain is missing,
    ArgumentError if the weights cannot be fetched.
    """

    def __init__(self) -> None:
        name = "speechbrain/spkrec-ecapa-voxceleb"
        package = _imported("speechbrain.inference.speaker", "encoder ecapa", "speechbrain")
        load = package.EncoderClassifier.from_hparams
        self._torch, self._model = package.torch, _loaded(lambda: load(name), "encoder ecapa", f"hf download {name}")

    def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
        """Compute an embedding (192,)."""
        audio = self._torch.from_numpy(np.ascontiguousarray(resample(samples, rate, _RATE), np.float32))
        embedding: npt.NDArray[np.floating[Any]] = self._model.encode_batch(audio[None])[0, 0].detach().numpy()
        return embedding


_PREDICTORS: Mapping[str, type[object]] = {"dnsmos": Dnsmos, "distillmos": DistillMos, "nisqa": Nisqa, "utmos": Utmos}
_ENCODERS: Mapping[str, type[object]] = {"resemblyzer": Resemblyzer, "wavlm": WavLm, "ecapa": Ecapa}


def tool_name(tool: object) -> str:
    """Return the name of a speaker encoder or MOS predictor, or the class name of an unnamed one."""
    return tool if isinstance(tool, str) else str(getattr(tool, "name", type(tool).__name__))


def training_domain(tools: Tools) -> str:
    """Return a phrase that describes the training data of the tools' MOS predictor."""
    named = _PREDICTORS.get(tool_name(tools.predictor), tools.predictor)
    return str(getattr(named, "domain", "whose training domain is not declared"))


def encoder_of(tools: Tools) -> SpeakerEncoder:
    """Return the tools' speaker encoder. Raises ArgumentError for an unknown name, MissingExtra if it is not installed."""
    encoder = _loaded_tool("encoder", tools.encoder) if isinstance(tools.encoder, str) else tools.encoder
    if not isinstance(encoder, SpeakerEncoder):
        raise ArgumentError.of("encoder", f"must have a method embed(samples, rate), got {tools.encoder!r}")
    return encoder


def predictor_of(tools: Tools) -> MosPredictor:
    """Return the tools' MOS predictor. Raises ArgumentError for an unknown name, MissingExtra if it is not installed."""
    predictor = _loaded_tool("predictor", tools.predictor) if isinstance(tools.predictor, str) else tools.predictor
    if not isinstance(predictor, MosPredictor):
        raise ArgumentError.of("predictor", f"must have a method predict(samples, rate), got {tools.predictor!r}")
    return predictor


@lru_cache(maxsize=8)
def _loaded_tool(field: str, name: str) -> object:
    builtin, group = (_ENCODERS, ENCODERS) if field == "encoder" else (_PREDICTORS, PREDICTORS)
    entries = {entry.name: entry for entry in entry_points(group=group)}
    if name not in {*builtin, *entries}:
        installed = sorted({*builtin, *entries})
        message = f"must be one of {', '.join(installed)}, got {name!r}{suggestion(name, installed)}"
        raise ArgumentError.of(field, message)
    return builtin[name]() if name in builtin else entries[name].load()()


def _embedding(subject: Subject) -> npt.NDArray[np.floating[Any]]:
    if subject.clip.duration < _MIN_DURATION_S:
        raise Undefined(f"the duration must be at least {_MIN_DURATION_S} s, got {subject.clip.duration:.2f} s")
    encoder = encoder_of(subject.tools)
    return np.asarray(encoder.embed(subject.clip.samples, subject.clip.rate), np.float64)


def speaker_similarity(subject: Subject) -> float:
    """Cosine similarity of the speaker embeddings of clip and reference, -1 to 1.

    The embeddings come from ``Tools.encoder``, by default Resemblyzer (extra ``speaker``). The range of values depends
    on the encoder.
    """
    return _cosine(subject.once(_embedding), subject.other.once(_embedding))


def spectral_similarity(subject: Subject) -> float:
    """Cosine similarity of the long-term spectra of clip and reference, -1 to 1.

    The features are mean and SD of the mel levels of loud frames, 40 bands from 60 Hz to 7.6 kHz, in dB, normalized by
    the mean level. They are the long-term spectrum of F. Nolan, "The Phonetic Bases of Speaker Recognition" (1983).
    This spectrum depends on the vocal tract, but also on the channel: a telephone recording of a speaker is less
    similar to a studio recording of the same speaker than another speaker's studio recording is. Values are high for
    any two voices, so use them only for ranking; both clips need a sentence or more. To identify speakers use
    ``speaker_similarity``.
    """
    return _cosine(subject.once(_long_term_spectrum), subject.other.once(_long_term_spectrum))


def _long_term_spectrum(subject: Subject) -> npt.NDArray[np.floating[Any]]:
    """Compute features (80,). Raises Undefined for silence, clips below 0.5 s and rates below 16 kHz."""
    clip = subject.clip
    if clip.duration < _MIN_DURATION_S:
        raise Undefined(f"the duration must be at least {_MIN_DURATION_S} s, got {clip.duration:.2f} s")
    if clip.rate < _RATE:
        raise Undefined(f"the rate must be at least {_RATE} Hz to compare spectra up to 7.6 kHz, got {clip.rate}")
    if not clip.samples.any():
        raise Undefined("the clip is silent")
    db = mel(clip.resample(_RATE), bands=40, fmin=60.0, fmax=7600.0).db
    loudness = 10.0 * np.log10(np.power(10.0, db / 10.0).sum(axis=0))
    loud = db[:, loudness > loudness.max() - _LOUD_RANGE_DB]
    mean = loud.mean(axis=1)
    return np.concatenate((mean - mean.mean(), loud.std(axis=1)))


def _cosine(ours: npt.NDArray[np.floating[Any]], theirs: npt.NDArray[np.floating[Any]]) -> float:
    if ours.shape != theirs.shape or ours.ndim != 1:
        raise ArgumentError.of(
            "encoder", f"embeddings must have equal shapes (n,), got {ours.shape} and {theirs.shape}"
        )
    scale = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    if not scale:
        raise Undefined("an embedding is zero")
    return min(1.0, max(-1.0, float(ours @ theirs) / scale))


def predicted_mos(subject: Subject) -> float:
    """Predicted mean opinion score, 1 to 5, by the model in ``Tools.predictor``.

    The default is "dnsmos", P.835 OVRL. "distillmos", "nisqa" and "utmos" are also available; their classes
    state the training domains. Other predictors are objects with ``predict(samples, rate)``, or entry points. Predictors
    hardly measure prosody: E. Cooper et al., "A review on subjective and objective evaluation of synthetic speech",
    Acoustical Science and Technology 45 (2024).
    """
    return float(predictor_of(subject.tools).predict(subject.clip.samples, subject.clip.rate))


def distillmos(subject: Subject) -> float:
    """Predicted mean opinion score, 1 to 5, by DistillMOS; see ``DistillMos``."""
    return float(predictor_of(Tools(predictor="distillmos")).predict(subject.clip.samples, subject.clip.rate))
