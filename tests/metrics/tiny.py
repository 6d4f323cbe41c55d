"""Run a model of its own library with tiny random weights: ``python tiny.py NAME FOLDER`` prints what it returns.

The weights lie where the library caches what it fetches, so that the library itself finds and loads them, offline.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.speechlike import RATE, speechlike
from voicelab.asr.recognizers import ParaformerRecognizer, recognizer_by_name


def cached(folder: Path, repository: str) -> Path:
    """Return the folder of a repository's files in the cache of the Hugging Face Hub."""
    root = folder / "hub" / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("0" * 40)
    files = root / "snapshots" / ("0" * 40)
    files.mkdir(parents=True)
    return files


def wavlm(folder: Path) -> None:
    import transformers

    config = transformers.WavLMConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8,) * 7,
        tdnn_dim=(8,) * 5,
        xvector_output_dim=12,
        num_buckets=8,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    files = cached(folder, "microsoft/wavlm-base-plus-sv")
    transformers.WavLMForXVector(config).save_pretrained(files)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(files)


def ecapa(folder: Path) -> None:
    import torch
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    norm = "!new:speechbrain.processing.features.InputNormalization"
    settings = f"""
        compute_features: !new:speechbrain.lobes.features.Fbank {{n_mels: 16}}
        mean_var_norm: {norm} {{norm_type: sentence, std_norm: False}}
        embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
            input_size: 16
            channels: [16, 16, 16, 16, 48]
            kernel_sizes: [5, 3, 3, 3, 1]
            dilations: [1, 2, 3, 4, 1]
            attention_channels: 8
            lin_neurons: 12
        classifier: !new:speechbrain.lobes.models.ECAPA_TDNN.Classifier {{input_size: 12, out_neurons: 2}}
        mean_var_norm_emb: {norm} {{norm_type: global, std_norm: False}}
        modules: {{compute_features: !ref <compute_features>, mean_var_norm: !ref <mean_var_norm>,
            embedding_model: !ref <embedding_model>, mean_var_norm_emb: !ref <mean_var_norm_emb>,
            classifier: !ref <classifier>}}
        label_encoder: !new:speechbrain.dataio.encoder.CategoricalEncoder
        pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
            loadables: {{embedding_model: !ref <embedding_model>}}
            paths: {{embedding_model: speechbrain/spkrec-ecapa-voxceleb/embedding_model.ckpt}}
    """
    files = cached(folder, "speechbrain/spkrec-ecapa-voxceleb")
    (files / "hyperparams.yaml").write_text("\n".join(line.removeprefix(" " * 8) for line in settings.splitlines()))
    sizes = {"channels": [16, 16, 16, 16, 48], "attention_channels": 8, "lin_neurons": 12}
    torch.save(ECAPA_TDNN(16, **sizes).state_dict(), files / "embedding_model.ckpt")


def nisqa(folder: Path) -> None:
    import torch
    from torchmetrics.functional.audio.nisqa import _NISQADIM, NISQA_DIR

    sizes = {"cnn_c_out_1": 4, "cnn_c_out_2": 4, "cnn_c_out_3": 4, "td_sa_d_model": 8, "td_sa_h": 8, "pool_att_h": 8}
    pools = {"cnn_pool_1": [24, 7], "cnn_pool_2": [12, 5], "cnn_pool_3": [6, 3], "cnn_kernel_size": [3, 3]}
    drops = dict.fromkeys(("cnn_dropout", "td_sa_dropout", "pool_att_dropout"), 0.0)
    mels = {"ms_n_fft": 4096, "ms_hop_length": 0.01, "ms_win_length": 0.02, "ms_n_mels": 48, "ms_fmax": 20_000}
    segments = {"ms_seg_length": 15, "ms_seg_hop_length": 4, "ms_max_segments": 1300, "ms_sr": None}
    args = {**sizes, **pools, **drops, **mels, **segments, "td_sa_num_layers": 1, "td_sa_nhead": 1}
    path = Path(os.path.expanduser(NISQA_DIR), "nisqa.tar")  # noqa: PTH111 - as the library does
    path.parent.mkdir(parents=True)
    torch.save({"args": args, "model_state_dict": _NISQADIM(args).state_dict()}, path)


def utmos(folder: Path) -> None:
    import torch
    from utmos_pytorch.utmos_torch import UTMOSModel

    torch.save(UTMOSModel().state_dict(), cached(folder, "Blinorot/UTMOS-PyTorch") / "utmos_state_dict.pt")


def paraformer(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    files = folder / ParaformerRecognizer.repository  # a folder of this name in the current folder has priority
    files.mkdir(parents=True)
    scores = numpy_helper.from_array(np.eye(5, dtype=np.float32)[None, [3, 4]], "scores")
    nodes = [
        helper.make_node("ReduceSum", ["speech"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "zero"], ["none"]),
        helper.make_node("Add", ["scores", "none"], ["logits"]),
        helper.make_node("Identity", ["count"], ["token_num"]),
        helper.make_node("Identity", ["speech_lengths"], ["lengths"]),
    ]
    zero, count = (
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        numpy_helper.from_array(np.array([2], np.int32), "count"),
    )
    inputs: list[Any] = [("speech", TensorProto.FLOAT, ["b", "t", 560]), ("speech_lengths", TensorProto.INT32, ["b"])]
    outputs: list[Any] = [("logits", TensorProto.FLOAT, ["b", "n", 5]), ("token_num", TensorProto.INT32, ["b"])]
    taken, given = ([helper.make_tensor_value_info(*item) for item in items] for items in (inputs, outputs))
    graph = helper.make_graph(nodes, "paraformer", taken, given, [scores, zero, count])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, files / "model_quant.onnx")
    mel = {
        "fs": 16_000,
        "window": "hamming",
        "n_mels": 80,
        "frame_length": 25,
        "frame_shift": 10,
        "lfr_m": 7,
        "lfr_n": 6,
    }
    (files / "config.yaml").write_text(json.dumps({"frontend_conf": mel, "model_conf": {}}))
    (files / "tokens.json").write_text(json.dumps(["<blank>", "<s>", "</s>", "\u4f60", "\u597d"]))
    numbers = " ".join(["1"] * 560)
    lines = [f"<{name}> 560 560\n<LearnRateCoef> 0 [ {numbers} ]\n" for name in ("AddShift", "Rescale")]
    (files / "am.mvn").write_text("<Nnet>\n<Splice> 560 560\n[ 0 ]\n" + "".join(lines) + "</Nnet>\n")


MODELS: dict[str, Callable[[Path], None]] = {
    "wavlm": wavlm,
    "ecapa": ecapa,
    "nisqa": nisqa,
    "utmos": utmos,
    "paraformer": paraformer,
}


def main(name: str, folder: str) -> None:
    from voicelab.metrics import Tools
    from voicelab.metrics.models import encoder_of, predictor_of

    MODELS[name](Path(folder))
    samples = speechlike(2.0, pitch=120)
    if name == "paraformer":
        assert recognizer_by_name(name).recognise(samples, RATE) == "\u4f60\u597d"
        sys.stdout.write("[0.0]")
        return
    model: Any = encoder_of(Tools(encoder=name)) if name in ("wavlm", "ecapa") else predictor_of(Tools(predictor=name))
    values = np.atleast_1d(model.embed(samples, RATE) if hasattr(model, "embed") else model.predict(samples, RATE))
    sys.stdout.write(json.dumps(values.astype(float).tolist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
