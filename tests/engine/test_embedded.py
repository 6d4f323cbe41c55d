"""The voice inside the package, held to what its figures promise."""

from __future__ import annotations

import numpy as np

from voicelab.engine.local import LocalBackend
from voicelab.schema import TTSRequest

TEXTS = ("The birch canoe slid on the smooth planks.", "Rice is served.", "Glue the sheet to the dark blue background.")


def test_batched_is_single() -> None:
    backend = LocalBackend()
    try:
        requests = [TTSRequest(text=text, format="wav") for text in TEXTS]
        alone = [backend.synthesize(request, seed=3).clip().samples for request in requests]
        together = [backend.synthesize(request, seed=3) for request in requests]
        for single, stream in zip(alone, together, strict=True):
            samples = stream.clip().samples
            assert samples.shape == single.shape
            assert float(np.abs(samples - single).max()) <= 1e-4
            assert float(np.abs(samples).max()) > 0.05
    finally:
        backend.close()
