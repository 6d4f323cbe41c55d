"""The language model: stepwise inference equals the training forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engine.tiny import LANGUAGE, begun, numpy_lm, phonemes, speaker, stepped
from training.lm import depth_logits
from voicelab.engine.core.sequence import Settings
from voicelab.engine.pointer.family import PointerRunner
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.rows import DWELL_STEPS
from voicelab.engine.pointer.speakers import speaker_statistics

GREEDY = Settings(temperature=0.0, repetition_penalty=1.0)


def test_stepwise_inference_equals_training_forward(lm: LM) -> None:
    """Greedy symbols of the runner equal the argmax of the training forward pass."""
    text = phonemes(30)
    runner = PointerRunner(numpy_lm(lm), rows=1)
    spoken = begun(runner, 0, text, settings=GREEDY)
    codes, pointers, dwells = [], [], []
    while spoken.pointer < 30:
        pointers.append(spoken.pointer)
        dwells.append(spoken.dwell)
        codes.append(torch.tensor(stepped(runner, [0])[0]))
    said = torch.stack(codes)
    assert said.shape[0] > LANGUAGE.slow.window  # else the window would not be tested

    seen, flags = (torch.tensor([[*values, values[0]]]) for values in (text.phones, text.flags))
    here = lm.encode_text(seen, flags)[:, pointers]
    frames = torch.cat([lm.begin[None, None], lm.encode_frames(said[None, :-1])], dim=1)
    given = lm.step_input(
        frames, text=here, dwell=torch.tensor([dwells]), speaker=lm.encode_speaker(speaker()[None, None])
    )
    hidden = lm.slow(given)
    logits = lm.first_logits(hidden)[0]
    for t, moved in enumerate([b - a for a, b in zip(pointers, [*pointers[1:], spoken.pointer], strict=True)]):
        allowed = logits[t].clone()
        if dwells[t] + 1 >= LANGUAGE.dwell:
            allowed[0] = -torch.inf
        best = int(allowed.argmax())
        assert (best // LANGUAGE.codebooks[0], best % LANGUAGE.codebooks[0]) == (moved, int(said[t, 0]))
    for i, others in enumerate(depth_logits(lm, hidden[0], said)):
        assert torch.equal(others.argmax(-1), said[:, i + 1])


def test_depth_logits_are_causal_over_codebooks(lm: LM) -> None:
    hidden = torch.randn(4, LANGUAGE.slow.width)
    codes = torch.zeros(4, 3, dtype=torch.int64)
    second, third = depth_logits(lm, hidden, codes)
    codes[:, 1:] = 5
    assert torch.equal(depth_logits(lm, hidden, codes)[0], second)
    codes[:, 1], codes[:, 2] = 0, 7
    assert torch.equal(depth_logits(lm, hidden, codes)[1], third)
    codes[:, 0] = 3
    assert not torch.allclose(depth_logits(lm, hidden, codes)[0], second)


def test_dwell_is_clamped(lm: LM) -> None:
    frames, voice = torch.zeros(1, 1, 32), torch.zeros(1, 1, 32)
    longest, longer = (
        lm.step_input(frames, text=frames, dwell=torch.tensor([[d]]), speaker=voice) for d in (DWELL_STEPS - 1, 5000)
    )
    assert torch.equal(longest, longer)


def test_speaker_statistics() -> None:
    latents = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0]], np.float32)
    assert speaker_statistics(latents).tolist() == pytest.approx([2.0, 0.0, (2 / 3) ** 0.5, 0.0, 1.5, 0.0])
    assert np.isfinite(speaker_statistics(latents[:1])).all()  # one frame has no deviation, not an undefined one
