"""Operations of a frame: no synchronization with the host, and none that some devices lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.dual.tiny import CODEBOOKS, SPEECH, config_of, model_of, tensors_of
from tests.engine.dual.tiny_codec import TINY, save_codec, tiny_tensors
from voicelab.engine.dual.codec import CodecFile
from voicelab.engine.dual.step import DualStep, RowInput, RowState

CPU = torch.device("cpu")
HOST_READS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal", "aten::masked_select"}
START = RowState((SPEECH[0] + 5, *[5] * CODEBOOKS), 0, 0)


@pytest.fixture
def step() -> DualStep:
    config = config_of("s2-pro")
    return DualStep(model_of(config, tensors_of(config)), 3)


def given(state: RowState | None, position: int, seed: int = 3) -> RowInput:
    return RowInput(state, position, seed, temperature=0.8, top_p=0.9, redraw=True)


class Watch(TorchDispatchMode):
    """Record names and result types of all operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names, self.types = set[str](), set[torch.dtype]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.names.add(func._schema.name)
        self.types |= {
            one.dtype for one in (out if isinstance(out, tuple | list) else [out]) if isinstance(one, torch.Tensor)
        }
        return out


def _frame(step: DualStep) -> None:
    step._frame(3, 8)


def _prompt(step: DualStep) -> None:
    step.prefill(1, torch.tensor([START.column] * 5), 2)


@pytest.mark.parametrize("work", [_frame, _prompt])
@torch.no_grad()  # where operations are seen in their parts
def test_frame_has_no_synchronization_and_no_float64(step: DualStep, work: Callable[[DualStep], None]) -> None:
    """For CUDA graphs, and for Apple devices, which have no float64."""
    with Watch() as watch:
        work(step)
    assert any("scaled_dot_product" in name for name in watch.names)
    assert not watch.names & HOST_READS
    assert watch.types <= {torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool}


def test_codec_has_no_synchronization_and_no_float64(tmp_path: Any) -> None:
    codec = CodecFile.open(save_codec(tmp_path / "codec.pth", tiny_tensors())).load(CPU)
    with Watch() as watch:
        codec.decode_blocks(torch.zeros(2, 3, len(TINY.codebooks), dtype=torch.int64), [None, None])
        codec.encode(torch.ones(100))
    assert not watch.names & HOST_READS
    assert torch.float64 not in watch.types


@torch.inference_mode()
def test_frame_is_idempotent(step: DualStep) -> None:
    """A graph's warm-up runs it several times."""
    step.launch({0: given(START, 0)}, {})
    step.launch({0: given(None, 1)}, {})
    before = step._after.clone()
    step._frame(1, 2)
    assert torch.equal(step._after, before)


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1]), (3, [1, 2, 3]), (64, [1, 2, 4, 8, 16, 32, 64])])
def test_all_graph_sizes_are_prepared(rows: int, sizes: list[int]) -> None:
    """Every batch size and length is among the prepared ones."""
    config = config_of("s2-pro")
    step, graphs = DualStep(model_of(config, tensors_of(config)), rows), Mock()
    step._graphs = graphs
    step.prepare()
    prepared = [one.args for one in graphs.prepare.call_args_list]
    assert prepared == [(size, length) for size in sizes for length in (256, 512)]
    for row in range(rows):
        for position in (0, 255, 256, 511):
            step.launch({row: given(START, position)}, {})
            step.read()
    assert {one.args for one in graphs.run.call_args_list} == set(prepared)


@torch.inference_mode()
def test_dropped_row_is_not_read(step: DualStep) -> None:
    step.launch({0: given(START, 0), 2: given(START, 0, seed=4)}, {})
    assert step.in_flight(2)
    step.drop(2)
    assert not step.in_flight(2)
    assert set(step.read()) == {0}
    assert step.unread == 0


@torch.inference_mode()
def test_frame_after_end_of_speech_is_in_vocabulary() -> None:
    """The frame after the end is launched before the end is known."""
    config = config_of("s2-pro")
    tensors = tensors_of(config)
    tensors["embeddings.weight"][SPEECH[2]] = 100 * tensors["embeddings.weight"][SPEECH[0] + 5]
    step = DualStep(model_of(config, tensors), 1)
    ended = []
    for seed in range(20):
        start = RowState((SPEECH[0] + seed, *[seed] * CODEBOOKS), 0, 0)
        step.launch({0: given(start, 0, seed)}, {})
        step.launch({0: given(None, 1, seed)}, {})
        frame, after = step.read()[0], step.read()[0]
        ended.append(frame.ended)
        assert SPEECH[0] <= frame.state.column[0] <= SPEECH[1]
        assert after.finite
    assert any(ended)
