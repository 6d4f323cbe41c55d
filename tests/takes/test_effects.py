from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.stats.test_effects import grid
from voicelab.errors import ArgumentError
from voicelab.takes.table import effects


def test_metrics_default_to_columns_named_as_metrics() -> None:
    # A sweep table has numeric columns of request fields.
    frame = grid(11).rename(columns={"f0": "f0_median"}).assign(chunk_length=300, bytes=range(96), loudness=-23.0)
    frame["seed"] = pd.array([1, None] * 48, dtype="UInt64")
    result = effects(frame, ["temperature", "seed"], blocks="text")
    assert set(result.frame.metric) == {"f0_median", "loudness"}
    assert set(effects(frame[["text", "bytes", "latency"]], "latency").frame.metric) == {"bytes"}
    # Columns of every sweep table need naming, unless there is no other metric.
    timed = frame.assign(first_audio_s=np.arange(96.0), rtf=0.1 + np.arange(96.0))
    assert set(effects(timed, "temperature").frame.metric) == {"f0_median", "loudness"}
    assert set(effects(timed, "temperature", "rtf").frame.metric) == {"rtf"}
    bare = timed.drop(columns=["f0_median", "loudness"])
    assert set(effects(bare, "temperature").frame.metric) == {"first_audio_s", "rtf"}


def test_axes_and_blocks_may_be_named_by_aliases_of_fields() -> None:
    fields = {"temperature": "prosody.speed", "latency": "reference_id"}
    frame = grid(2, lambda row: 3.0 * row["temperature"]).rename(columns=fields)
    result = effects(frame, ["speed", "voice"], "f0", blocks="text")
    assert list(result.frame.axis) == ["prosody.speed", "reference_id"]
    pd.testing.assert_frame_equal(result.frame, effects(frame, list(fields.values()), "f0", blocks="text").frame)
    assert list(effects(frame, "speed", "f0", blocks=["text", "voice"]).frame.axis) == ["prosody.speed"]
    with pytest.raises(ArgumentError, match="axes: there is no column 'volume'"):
        effects(frame, "volume", "f0")
