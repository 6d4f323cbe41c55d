"""Who speaks, and how good it sounds: by trained models that are plugged in, and by the long-term spectrum."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import mel
from voicelab.audio.samples import Samples, resample
from voicelab.distribution import install_command
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.metrics.metric import MosPredictor, SpeakerEncoder, Subject, Tools, Undefined
from voicelab.storage import read_published

ENCODERS, PREDICTORS = "voicelab.speaker_encoders", "voicelab.mos_predictors"
_LOUD_DB = 30.0
_SHORTEST_S = 0.5
_DNSMOS_HZ = 16_000
# Of the weights inside the packages: they are loaded by pickle, and say what the figures mean.
_RESEMBLYZER_SHA256 = "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e"
_DNSMOS_SHA256 = "40e47248357a0e0d92b7ca266f4f87d4594938ca39f32ffe7a76e2e53fdd8f14"
_DISTILLMOS_SHA256 = "b18b3ac60227267cfb91e5d00ce22cc7b73716fd92f269484da1446e27031a40"


class Resemblyzer:
    """The trained encoder of the package Resemblyzer, whose weights lie inside it.

    The GE2E network of L. Wan, Q. Wang, A. Papir & I. Lopez Moreno, "Generalized end-to-end loss for speaker
    verification", ICASSP (2018), 256 numbers; two recordings of one speaker come to about 0.8 or more, of two
    speakers to about 0.6. Raises MissingExtra when it, or what it needs, is not installed, WeightsError for other weights.
    """

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                # It takes names of scipy from where they were before; nothing that its user could mend.
                warnings.simplefilter("ignore", DeprecationWarning)
                from resemblyzer import VoiceEncoder, preprocess_wav, voice_encoder
        except ImportError as error:
            raise MissingExtra(
                "telling speakers apart by Resemblyzer needs it installed: "
                f"{install_command('speaker')}, or without a compiler: pip install webrtcvad-wheels && "
                f"pip install --no-deps resemblyzer ({error})",
                extra="speaker",
            ) from error
        weights = Path(voice_encoder.__file__).with_name("pretrained.pt")
        read_published("Resemblyzer 0.1.4", [weights], _RESEMBLYZER_SHA256)
        self._prepare = preprocess_wav
        self._encoder: Any = VoiceEncoder("cpu", verbose=False)

    def embed(self, samples: Samples, rate: int) -> npt.NDArray[np.floating[Any]]:
        """Return 256 numbers; silence is cut out and the level made equal first, as the network expects."""
        sound = self._prepare(resample(samples, rate, 16_000))
        if not sound.size:
            raise Undefined("no speech is left without the silence")
        vector: npt.NDArray[np.floating[Any]] = self._encoder.embed_utterance(sound)
        return vector


Scale = Literal["ovrl", "sig", "bak", "p808"]


class Dnsmos:
    """The predictor of the package speechmos, whose weights lie inside it: DNSMOS, by default P.835 OVRL.

    ``scale`` is what is predicted: of ITU-T P.835's three ratings "ovrl", the whole, "sig", the speech alone, or "bak", how
    little the background disturbs (C. Reddy, V. Gopal & R. Cutler, "DNSMOS P.835: A non-intrusive perceptual objective
    speech quality metric to evaluate noise suppressors", ICASSP 2022); or "p808", the quality by absolute category rating
    of ITU-T P.808 (the same authors, "DNSMOS: A non-intrusive perceptual objective speech quality metric …", ICASSP 2021).
    All run from 1 (bad) to 5 (excellent), but clean speech comes to about 3 to 3.5 on "ovrl".

    Heard is what lies below 8 kHz, in windows of 9.01 s, one a second, and the score is their mean, as in the authors'
    program: a longer clip has several windows, a shorter one is doubled until it fills one. It was made for noise and for
    what suppressing it leaves, so it tells little of how natural a voice is. A window takes about a quarter of a second
    on one core; ``jobs`` of ``measure`` shares takes among processes. May be used by several threads at once.

    Raises MissingExtra when it is not installed, WeightsError for other weights, ArgumentError for another scale.
    """

    def __init__(self, scale: Scale = "ovrl") -> None:
        if scale not in get_args(Scale):
            raise ArgumentError.of("scale", f"{scale!r} is none of {', '.join(get_args(Scale))}")
        with MissingExtra.where("mos", "predicted_mos by DNSMOS"):
            import onnxruntime
            from speechmos import dnsmos
        self._scale: Scale = scale
        options = onnxruntime.SessionOptions()
        # Left to itself it lets a thread for every core spin: ten times as long where other work goes on.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        folder = Path(dnsmos.__file__).with_name("dnsmos_models")
        names = ("sig_bak_ovr.onnx", "model_v8.onnx")
        ratings, p808 = read_published("speechmos 0.0.1.1", [folder / name for name in names], _DNSMOS_SHA256)
        self._model: Any = dnsmos.DNSMOS.__new__(dnsmos.DNSMOS)
        self._model.onnx_sess = onnxruntime.InferenceSession(ratings, options)
        self._model.p808_onnx_sess = onnxruntime.InferenceSession(p808, options)

    def __reduce__(self) -> tuple[type[Dnsmos], tuple[Scale]]:
        # Each process loads its own.
        return Dnsmos, (self._scale,)

    def predict(self, samples: Samples, rate: int) -> float:
        """Return the score, nominally 1 to 5. Raises Undefined for silence and for rates under 16 kHz."""
        sound = np.clip(_heard(samples, rate, "DNSMOS"), -1.0, 1.0)
        return float(self._model(sound, _DNSMOS_HZ, is_personalized_MOS=False)[f"{self._scale}_mos"])


class DistillMos:
    """The predictor of the package distillmos, whose weights lie inside it: how good speech sounds, 1 to 5.

    B. Stahl & H. Gamper, "Distillation and pruning for scalable self-supervised representation-based speech quality
    assessment", ICASSP (2025), distilled from a model on XLS-R. Of clips that voicelab's benchmarks compare it puts natural
    voices above parametric ones, which DNSMOS does not. Heard is what lies below 8 kHz; a second takes about 0.1 s of one
    core. May be used by several threads at once. Raises MissingExtra when it is not installed, WeightsError for other
    weights.
    """

    def __init__(self) -> None:
        # For its command line it imports torchaudio, which its model has no use for.
        stand_in = {} if "torchaudio" in sys.modules else {"torchaudio": ModuleType("torchaudio")}
        try:
            with patch.dict(sys.modules, stand_in):
                from distillmos import ConvTransformerSQAModel, sqa
        except ImportError as error:
            raise MissingExtra(
                f"DistillMOS needs it installed: pip install --no-deps distillmos xls-r-sqa, beside torch ({error})",
                extra="distillmos",
            ) from error
        read_published("distillmos 0.9.1", [Path(sqa.DEFAULT_WEIGHTS_CHKPT)], _DISTILLMOS_SHA256)
        self._torch: Any = sqa.torch
        with redirect_stdout(io.StringIO()):  # it prints where its weights are
            self._model: Any = ConvTransformerSQAModel().eval()

    def __reduce__(self) -> tuple[type[DistillMos], tuple[()]]:
        # Each process loads its own.
        return DistillMos, ()

    def predict(self, samples: Samples, rate: int) -> float:
        """Return the score. Raises Undefined for silence and for rates under 16 kHz."""
        sound = np.ascontiguousarray(_heard(samples, rate, "DistillMOS"), np.float32)
        with self._torch.inference_mode():
            return float(self._model(self._torch.from_numpy(sound)[None])[0])


def _heard(samples: Samples, rate: int, judge: str) -> Samples:
    """Return a sound as a judge of 16 kHz hears it. Raises Undefined for silence and for lower rates."""
    if rate < _DNSMOS_HZ:
        raise Undefined(f"{judge} hears up to 8 kHz, and a rate of {rate} Hz ends before")
    if not samples.any():
        raise Undefined("the clip is silent" if samples.size else "the clip is empty")
    return resample(samples, rate, _DNSMOS_HZ)


_OWN_PREDICTORS: dict[str, type[MosPredictor]] = {"dnsmos": Dnsmos, "distillmos": DistillMos}
_OWN_ENCODERS: dict[str, type[SpeakerEncoder]] = {"resemblyzer": Resemblyzer}


def encoder_of(tools: Tools) -> SpeakerEncoder:
    """Return the encoder that the tools give or name; "resemblyzer" when they do neither.

    Raises ArgumentError for an unknown name, MissingExtra for one that is not installed.
    """
    given = tools.encoder if tools.encoder is not None else "resemblyzer"
    encoder = _plugged(ENCODERS, given, "encoder") if isinstance(given, str) else given
    if not isinstance(encoder, SpeakerEncoder):
        raise ArgumentError.of("encoder", f"{given!r} has no embed(samples, rate)")
    return encoder


def predictor_of(tools: Tools) -> MosPredictor:
    """Return the MOS predictor that the tools give or name; "dnsmos" when they do neither.

    Raises ArgumentError for an unknown name, MissingExtra for one that is not installed.
    """
    given = tools.predictor if tools.predictor is not None else "dnsmos"
    predictor = _plugged(PREDICTORS, given, "predictor") if isinstance(given, str) else given
    if not isinstance(predictor, MosPredictor):
        raise ArgumentError.of("predictor", f"{given!r} has no predict(samples, rate)")
    return predictor


@lru_cache(maxsize=8)
def _plugged(group: str, name: str, field: str) -> object:
    own: Mapping[str, type[object]] = _OWN_ENCODERS if group == ENCODERS else _OWN_PREDICTORS
    if name in own:
        return own[name]()
    entries = list(entry_points(group=group, name=name))
    if not entries:
        installed = sorted({*own, *(entry.name for entry in entry_points(group=group))})
        raise ArgumentError.of(field, f"{name!r} is not installed; there are {', '.join(installed)}")
    return entries[0].load()()


def _embedding(subject: Subject) -> npt.NDArray[np.floating[Any]]:
    if subject.clip.duration < _SHORTEST_S:
        raise Undefined(f"{subject.clip.duration:.2f} s is too short to tell who speaks")
    encoder = encoder_of(subject.tools)
    return np.asarray(encoder.embed(subject.clip.samples, subject.clip.rate), np.float64)


def speaker_similarity(subject: Subject) -> float:
    """Cosine of the angle between the clip's and the reference's speaker vectors, -1 to 1.

    ``Tools.encoder`` makes the vectors and decides what the figure means; by default Resemblyzer, a trained encoder,
    which the extra ``speaker`` brings.
    """
    return _cosine(subject.once(_embedding), subject.other.once(_embedding))


def spectral_similarity(subject: Subject) -> float:
    """Cosine of the angle between the clip's and the reference's long-term spectra, -1 to 1.

    Mean and spread of the mel levels of the loud frames, 40 bands from 60 Hz to 7.6 kHz, in dB, the mean level taken
    out: what F. Nolan, "The Phonetic Bases of Speaker Recognition" (1983) calls the long-term spectrum. It separates
    voices with different vocal tracts, but channels as well: a voice over the telephone is further from itself than
    from another speaker. Cosines are high for any two voices, so that they only rank, and a sentence or more is needed
    on both sides. ``speaker_similarity`` says who speaks.
    """
    return _cosine(subject.once(_long_term_spectrum), subject.other.once(_long_term_spectrum))


def _long_term_spectrum(subject: Subject) -> npt.NDArray[np.floating[Any]]:
    """Return 80 numbers. Raises Undefined for silence, a clip under 0.5 s and rates under 16 kHz."""
    clip = subject.clip
    if clip.duration < _SHORTEST_S:
        raise Undefined(f"{clip.duration:.2f} s is too short for a long-term spectrum")
    if clip.rate < 16_000:
        raise Undefined(f"voices are compared up to 7.6 kHz, and a rate of {clip.rate} Hz ends before")
    if not clip.samples.any():
        raise Undefined("the clip is silent")
    db = mel(clip.resample(16_000), bands=40, fmin=60.0, fmax=7600.0).db
    loudness = 10.0 * np.log10(np.power(10.0, db / 10.0).sum(axis=0))
    loud = db[:, loudness > loudness.max() - _LOUD_DB]
    mean = loud.mean(axis=1)
    return np.concatenate((mean - mean.mean(), loud.std(axis=1)))


def _cosine(ours: npt.NDArray[np.floating[Any]], theirs: npt.NDArray[np.floating[Any]]) -> float:
    if ours.shape != theirs.shape or ours.ndim != 1:
        raise ArgumentError.of("encoder", f"its vectors have shapes {ours.shape} and {theirs.shape}, not one length")
    scale = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    if not scale:
        raise Undefined("a speaker vector is all zeros")
    return min(1.0, max(-1.0, float(ours @ theirs) / scale))


def predicted_mos(subject: Subject) -> float:
    """Mean opinion score, 1 to 5, that the model in ``Tools.predictor`` predicts.

    By default Dnsmos, which predicts P.835 OVRL; its docstring says what that tells of a synthetic voice, and what not.
    Another is plugged in as an object with ``predict(samples, rate)`` or as an entry point. The best known for synthesis is
    UTMOS: T. Saeki et al., "UTMOS: UTokyo-SaruLab system for VoiceMOS Challenge 2022", Interspeech (2022).
    """
    return float(predictor_of(subject.tools).predict(subject.clip.samples, subject.clip.rate))


def distillmos(subject: Subject) -> float:
    """Mean opinion score, 1 to 5, that DistillMOS predicts, a second judge beside ``predicted_mos``; see ``DistillMos``."""
    return float(predictor_of(Tools(predictor="distillmos")).predict(subject.clip.samples, subject.clip.rate))
