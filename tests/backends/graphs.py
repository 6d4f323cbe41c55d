"""Tiny ONNX graphs with the inputs, outputs and durations of the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

from voicelab.backends.kokoro import DURATIONS, FRAME

INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT
Inputs = dict[str, tuple[Any, list[Any]]]
"""Type and shape of each input."""


def ints(values: list[int]) -> Any:
    return np.array(values, np.int64)


def floats(values: list[float]) -> Any:
    return np.array(values, np.float32)


def model(
    nodes: Sequence[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, list[Any]], **constants: Any
) -> bytes:
    """Serialize a graph."""
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [
            helper.make_tensor_value_info(name, FLOAT, ["samples"] if name == "audio" else [1, 1, "samples"])
            for name in outputs
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    return bytes(made.SerializeToString())


def kokoro(frame: int = FRAME, durations: str = DURATIONS) -> bytes:
    """Build a graph with a tone of 2 to 5 frames per token (pads 5), divided by the speed; the style sets the frequency."""
    n = helper.make_node
    nodes = [
        n("Add", ["tokens", "three"], ["later"]),
        n("Mod", ["later", "four"], ["left"]),
        n("Cast", ["left"], ["longer"], to=FLOAT),
        n("Add", ["longer", "two"], ["slow"]),
        n("Div", ["slow", "speed"], ["fast"]),
        n("Round", ["fast"], ["whole"]),
        n("Squeeze", ["whole", "first"], ["flat"]),
        n("Clip", ["flat", "one"], [durations]),
        n("ReduceSum", [durations], ["frames"], keepdims=0),
        n("Mul", ["frames", "frame"], ["length"]),
        n("Range", ["zero", "length", "one"], ["time"]),
        n("ReduceMean", ["style"], ["mean"], keepdims=0),
        n("Add", ["mean", "one"], ["higher"]),
        n("Mul", ["higher", "step"], ["omega"]),
        n("Mul", ["time", "omega"], ["phase"]),
        n("Sin", ["phase"], ["tone"]),
        n("Mul", ["tone", "half"], ["audio"]),
    ]
    inputs: Inputs = {"tokens": (INT, [1, "n"]), "style": (FLOAT, [1, 256]), "speed": (FLOAT, [1])}
    f = np.float32
    return model(
        nodes, inputs, {"audio": ["samples"]}, three=ints([3]), four=ints([4]), two=floats([2]), first=ints([0]), one=f(1),
        zero=f(0), frame=f(frame), step=f(0.05), half=f(0.5),
    )  # fmt: skip


def piper(speakers: bool = False) -> bytes:
    """Build a graph with a tone of 256 samples per id, scaled, with noise; each speaker is an octave apart."""
    n = helper.make_node
    nodes = [
        n("Cast", ["input"], ["ids"], to=FLOAT),
        n("Split", ["scales", "ones"], ["noise_scale", "length_scale", "noise_w"], axis=0),
        n("Gather", ["table", "input"], ["embedded"]),  # fails for unknown ids, like the real graph
        n("Cast", ["input_lengths"], ["count"], to=FLOAT),
        n("Mul", ["count", "hop"], ["even"]),
        n("Mul", ["even", "length_scale"], ["long"]),
        n("Floor", ["long"], ["whole"]),
        n("Squeeze", ["whole", "first"], ["length"]),
        n("Range", ["zero", "length", "one"], ["time"]),
        *(
            [n("Cast", ["sid"], ["who"], to=FLOAT), n("Pow", ["two", "who"], ["octave"])]
            if speakers
            else [n("Identity", ["one"], ["octave"])]
        ),
        n("ReduceMean", ["embedded"], ["mean"], keepdims=0),
        n("Mul", ["mean", "octave"], ["omega"]),
        n("Mul", ["time", "omega"], ["phase"]),
        n("Sin", ["phase"], ["tone"]),
        n("RandomNormalLike", ["tone"], ["random"]),
        n("Mul", ["random", "noise_scale"], ["noise"]),
        n("Add", ["tone", "noise"], ["rough"]),
        n("Mul", ["rough", "tenth"], ["quiet"]),
        n("Unsqueeze", ["quiet", "lead"], ["output"]),
    ]
    inputs: Inputs = {"input": (INT, [1, "n"]), "input_lengths": (INT, [1]), "scales": (FLOAT, [3])}
    if speakers:
        inputs["sid"] = (INT, [1])
    f = np.float32
    return model(
        nodes, inputs, {"output": [1, 1, "samples"]}, ones=ints([1, 1, 1]), table=np.linspace(0.02, 0.2, 64, dtype=f),
        hop=floats([256]), first=ints([0]), zero=f(0), one=f(1), two=f(2), tenth=f(0.1), lead=ints([0, 1]),
    )  # fmt: skip
