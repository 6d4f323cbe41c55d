from __future__ import annotations

import tracemalloc

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


def test_items_of_collected_recordings_are_random_as_texts_are() -> None:
    rng = np.random.default_rng(2)
    differences = [0.0, 0.4, 0.9]
    frame = pd.DataFrame(
        {"system": system, "item": str(item), "duration": 1.0 + (system == "b") * differences[item] + rng.normal(0, 0.05)}
        for system in "ab" for item in range(3) for _ in range(4)
    )  # fmt: skip
    by_item, by_text = (
        effects(frame.rename(columns={"item": name}), "system", "duration", blocks=name) for name in ("item", "text")
    )
    assert by_item.frame["p_texts"].tolist() == by_text.frame["p_texts"].tolist()
    by_sentence = effects(frame.rename(columns={"item": "sentence"}), "system", "duration", blocks="sentence")
    assert "p_texts" not in by_sentence.frame
    assert any("add texts='sentence'" in note for note in by_sentence.notes)


def test_axes_and_blocks_may_be_named_by_aliases_of_fields() -> None:
    fields = {"temperature": "prosody.speed", "latency": "reference_id"}
    frame = grid(2, lambda row: 3.0 * row["temperature"]).rename(columns=fields)
    result = effects(frame, ["speed", "voice"], "f0", blocks="text")
    assert list(result.frame.axis) == ["prosody.speed", "reference_id"]
    pd.testing.assert_frame_equal(result.frame, effects(frame, list(fields.values()), "f0", blocks="text").frame)
    assert list(effects(frame, "speed", "f0", blocks=["text", "voice"]).frame.axis) == ["prosody.speed"]
    with pytest.raises(ArgumentError, match="axes: there is no column 'volume'"):
        effects(frame, "volume", "f0")


def takes(*settings: dict[str, object], repeats: int = 3) -> pd.DataFrame:
    """Return a table of three texts with these settings, whose F0 depends on the voice only."""
    draw = np.random.default_rng(1)
    rows = [
        {"text": text, **setting, "f0_median": 100.0 + 50.0 * (setting["reference_id"] == "clara") + draw.normal()}
        for text in "abc"
        for setting in settings
        for _ in range(repeats)
    ]
    return pd.DataFrame(rows)


def test_settings_with_a_value_for_each_block_need_little_memory() -> None:
    items = np.repeat(np.arange(2000), 2)
    noise = np.random.default_rng(3).normal(size=items.size)
    table = pd.DataFrame({"system": ["a", "b"] * 2000, "item": items, "text": items.astype(str), "duration": noise})
    tracemalloc.start()
    try:
        result = effects(table, "system", "duration", blocks="item")
        peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert not [note for note in result.notes if "neither" in note]
    assert peak_mb < 30.0


def test_settings_that_vary_with_an_axis_or_within_cells_are_noted() -> None:
    voices, speeds = ("marlow", "clara"), (1.0, 1.2)
    grid = [{"reference_id": voice, "prosody.speed": speed, "pitch": 1} for voice in voices for speed in speeds]
    confounded = "the effect of prosody.speed may be that of reference_id."
    for settings in (grid[::3], grid[:3]):  # the voice varies with the speed, or a cell is missing
        result = effects(takes(*settings), "speed", blocks="text")
        assert any(note.endswith(confounded) for note in result.notes)
    table = takes(*grid)
    assert not [note for note in effects(table, ["speed", "voice"], blocks="text").notes if "neither" in note]
    result = effects(table, "speed")
    assert result.mixed == ("text", "reference_id")
    (note,) = (note for note in result.notes if "neither" in note)
    assert note.startswith("text and reference_id are neither an axis nor in blocks: the residual SD includes")
    axes = result.plot()
    assert "difference in SD of takes that differ in text and reference_id" in axes.get_xlabel()
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    assert axes.xaxis.label.get_window_extent().x1 <= axes.figure.bbox.width
    # A key column of a table of takes is a setting, even if it is no field.
    table["pitch"] = np.arange(len(table)) % 2
    assert effects(table, ["speed", "voice"], "f0_median", blocks="text").mixed == ()
    table.attrs["keys"] = ["text", "pitch", "repeat"]
    assert effects(table, ["speed", "voice"], "f0_median", blocks="text").mixed == ("pitch",)
