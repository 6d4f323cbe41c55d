"""Fixtures: tiny models, without gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.engine.tiny import make_codec, make_lm
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.lm import LM


@pytest.fixture(scope="session")
def codec() -> Codec:
    return make_codec()


@pytest.fixture(scope="session")
def lm() -> LM:
    return make_lm()


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield
