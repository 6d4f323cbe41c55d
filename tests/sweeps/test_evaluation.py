"""Evaluation on lists: prompts of each row, models by name, intervals, resumption."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel
from typer.testing import CliRunner

import voicelab as vl
from tests.tones import ToneBackend
from voicelab.audio.samples import Samples
from voicelab.cli import app
from voicelab.errors import ArgumentError, RequestInvalid, StoreError

TEXTS = ("I have $50.", "Use {braces} here.", "The birch canoe.")


class Counting:
    """Recognizer and speaker encoder that count their calls; the embedding is of the mean level."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def recognise(self, samples: Samples, rate: int) -> str:
        self.calls += 1
        return "i have fifty dollars"

    def embed(self, samples: Samples, rate: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([1.0, 100 * float(np.abs(samples).mean())])


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    (tmp_path / "wavs").mkdir()
    for index, gain in enumerate((0.05, 0.8)):
        vl.Clip(np.full(24_000, gain, np.float32), 24_000).save(tmp_path / "wavs" / f"p{index}.wav")
    lines = [f"u{i}|A prompt.|wavs/p{i % 2}.wav|{text}\n" for i, text in enumerate(TEXTS)]
    (tmp_path / "meta.lst").write_text("".join(lines))
    return tmp_path / "meta.lst"


def labs() -> dict[str, Any]:
    return {"ours": vl.Lab(ToneBackend()), "theirs": vl.Lab(ToneBackend(fingerprint="tones-2"), volume=-12)}


def test_a_list_of_seed_tts_eval(meta: Path) -> None:
    tool = Counting()
    options: Any = {"folder": meta.parent / "out", "recognizer": tool, "encoder": tool, "normalizer": "voicelab"}
    options["metrics"] = ["wer", "cer", "speaker_similarity", "level"]
    result = vl.evaluate(meta, **options, **labs())
    frame = result.frame
    assert len(frame) == 3 * 2 * 3
    assert frame.groupby("item").wer.first()["u0"] == 0.0  # spelling does not count
    assert set(frame.text) == set(TEXTS)
    # Similarity is to each row's own prompt.
    (take,) = (row.take for row in result.table.select(item="u1", system="ours", repeat=0).rows)
    assert take is not None
    own = [vl.Clip.load(meta.parent / "wavs" / f"p{i}.wav") for i in (0, 1)]
    each = [
        float(vl.measure([take], "speaker_similarity", reference=clip, tools=tools(tool))["speaker_similarity"][0])
        for clip in own
    ]
    assert abs(each[0] - each[1]) > 1e-6
    assert frame[(frame["item"] == "u1") & (frame.system == "ours")].speaker_similarity.iloc[0] == each[1]
    # Differences are paired by item.
    means = frame.groupby(["item", "system"])["level"].mean().unstack()
    scores = result.scores[result.scores.metric == "level"].set_index(["system", "against"])
    assert scores.loc[("ours", "theirs"), "p"] == pytest.approx(ttest_rel(means.ours, means.theirs).pvalue)
    assert scores.loc[("ours", ""), "mean"] == pytest.approx(means.ours.mean())
    for words in ("WER, % (counting, normalizer voicelab)", "speaker similarity (counting)", "0 of 9"):
        assert words in repr(result)
    assert "counting instead of faster-whisper:large-v3 and normalizer voicelab instead of" in repr(result)
    record = json.loads((meta.parent / "out" / "evaluation.json").read_text())
    assert record == result.record()
    assert record["systems"] == {"ours": "tones-1", "theirs": "tones-2"}
    # The second call makes and measures no take.
    calls = tool.calls
    assert vl.evaluate(meta, **options, **labs()).record() == record
    assert tool.calls == calls == 18


def tools(tool: Counting) -> Any:
    from voicelab.metrics import Tools

    return Tools(encoder=tool)


def test_figures_are_named_after_the_protocol_with_its_models_only(meta: Path) -> None:
    class Own(Counting):
        name = "faster-whisper:large-v3"

    options: Any = {"folder": meta.parent / "out", "repeats": 1, "metrics": ["wer"], "ours": vl.Lab(ToneBackend())}
    ours = vl.evaluate(meta, recognizer=Own(), **options)
    assert ours.headings["wer"] == "WER, % (seed-tts-eval)"
    assert "Not comparable" not in repr(ours)
    other = vl.evaluate(meta, recognizer=Own(), normalizer="whisper", **options)
    assert other.headings["wer"] == "WER, % (faster-whisper:large-v3, normalizer whisper)"
    assert "Not comparable with published figures of seed-tts-eval" in repr(other)
    # Measurements by other models are not reused.
    assert other.frame.wer[0] != ours.frame.wer[0]


def test_tables_rows_and_folders(meta: Path) -> None:
    folder, lab = meta.parent, vl.Lab(ToneBackend())
    (folder / "t.csv").write_text("Text;Reference Audio;Reference Text\nOne.;wavs/p0.wav;A prompt.\nTwo.;;\n")
    rows = [{"text": "One.", "reference_audio": folder / "wavs/p0.wav"}, {"text": "Two."}]
    items: Any
    for number, items in enumerate((folder / "t.csv", rows, folder)):
        table = vl.evaluate(items, folder=folder / f"o{number}", metrics=["duration"], repeats=1, ours=lab).table
        prompts = [take.request.references for take in table.takes]
        assert prompts[0]
        assert prompts[0][0].text == ("" if items is rows else "A prompt.")
        assert len(table) == (3 if items is folder else 2)
    (folder / "texts").mkdir()
    for name in "ab":
        (folder / "texts" / f"{name}.txt").write_text(f"Text {name}.")
    plain = vl.evaluate(folder / "texts", folder=folder / "o", metrics=["duration"], repeats=1, ours=lab)
    assert plain.table.column("item").labels == ("a", "b")
    texts = vl.evaluate(["One.", "Two."], folder=folder / "o4", metrics=["duration"], repeats=1, ours=lab)
    assert list(texts.frame.text) == ["One.", "Two."]
    missing = pd.DataFrame({"text": ["One.", "Two."], "reference_audio": [float("nan")] * 2, "id": ["a", float("nan")]})
    for items in (pd.Series(["One.", "Two."]), np.array(["One.", "Two."]), missing):
        again = vl.evaluate(items, folder=folder / "o4", metrics="duration", repeats=1, ours=lab)
        assert list(again.frame.text) == ["One.", "Two."]
    (folder / "lines.txt").write_text("One.\nTwo.\n")
    (folder / "voices.csv").write_text("text,voice,speaker_id\nOne.,ada,1\nTwo.,ben,\n")
    for name, note in (
        ("lines.txt", "No row has a prompt"),
        ("voices.csv", "Columns that are not used: voice, speaker_id."),
    ):
        read = vl.evaluate(folder / name, folder=folder / "o5", metrics=["duration"], repeats=1, ours=lab)
        assert list(read.frame.text) == ["One.", "Two."]
        assert read.notes[0].startswith(note)
    assert "No row has a prompt" in repr(plain)


def test_systems_that_cannot_clone_speak_with_their_own_voice(meta: Path) -> None:
    tones = ToneBackend(fields=(vl.FieldSupport("references", ignored="tones cannot clone"),))
    command = vl.connect("command:espeak-ng -w {out} {text}")
    tool = Counting()
    options: Any = {"folder": meta.parent / "out", "encoder": tool, "repeats": 1, "metrics": ["speaker_similarity"]}
    systems: Any = {"ours": vl.Lab(ToneBackend()), "tones": vl.Lab(tones, voice="ben"), "espeak": command}
    result = vl.evaluate(meta, **options, **systems)
    assert {(request.reference_id, request.references) for request, *_ in tones.asked} == {("ben", None)}
    assert result.notes[:2] == (
        "tones did not receive the prompts (tones cannot clone) and used its own voice.",
        "espeak did not receive the prompts (espeak-ng has no such parameter) and used its own voice.",
    )
    assert result.frame.speaker_similarity.notna().all()
    (take,) = (row.take for row in result.table.select(item="u1", system="espeak").rows)
    assert take is not None
    assert take.notes == ("references had no effect: espeak-ng has no such parameter.",)
    # The voice is part of the key of a stored take.
    vl.evaluate(meta, **options, **systems)
    assert len(tones.asked) == len(TEXTS)
    vl.evaluate(meta, **options, **{**systems, "tones": vl.Lab(tones, voice="ada")})
    assert len(tones.asked) == 2 * len(TEXTS)


def test_a_system_without_a_voice_is_rejected_before_synthesis(meta: Path) -> None:
    tones = ToneBackend(
        fields=(vl.FieldSupport("references", ignored="tones cannot clone"),), voices=(), voice_required=True
    )
    with pytest.raises(RequestInvalid, match="voice: a voice is required, since the backend 'tones' lists none"):
        vl.evaluate(meta, folder=meta.parent / "out", metrics=["duration"], ours=vl.Lab(tones))
    assert not tones.asked


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ("a|x|no.wav|One.\nb|x|wavs/p0.wav|Two.\nc|x|gone.wav|Three.\n", r"row 1: .*no\.wav .*row 3: .*gone\.wav"),
        ("a|x|wavs/p0.wav|One.\na|x|wavs/p0.wav|Two.\n", "ids must be unique, got a more than once"),
        ("a|x|One.\n", r"line 1 .* must be id\|prompt text\|prompt wav\|text, got 'a\|x\|One"),
        (
            "a|x|wavs/p0.wav|\nb|x|wavs/p0.wav|B.\nc|x|wavs/p0.wav|\n",
            r"a text in every row, got none in row 1 \(a\), 3 \(c\)$",
        ),
        ("a|x|wavs/p0.wav|One.\n", "two rows or more, for confidence intervals, got 1"),
        (
            "a|x|meta.lst|One.\nb|x|gone.wav|Two.\n",
            r"row 1: .*meta\.lst: the file is text, not audio; row 2: .*gone\.wav",
        ),
        ("a|x|wavs/p0.wav|One | two.\nb|x|wavs/p0.wav|Two.\n", r"line 1 .* must be id\|prompt text\|prompt wav\|text"),
    ],
)
def test_invalid_lists(items: str, words: str, meta: Path) -> None:
    meta.write_text(items)
    with pytest.raises((ArgumentError, RequestInvalid), match=words):
        vl.evaluate(meta, folder=meta.parent / "out", metrics=["duration"], ours=vl.Lab(ToneBackend()))


def test_invalid_arguments(meta: Path) -> None:
    lab = vl.Lab(ToneBackend())
    with pytest.raises(ArgumentError, match="protocol: must be one of seed-tts-eval, got 'emns'"):
        vl.evaluate(meta, folder=meta.parent / "out", protocol="emns", ours=lab)
    with pytest.raises(ArgumentError, match="ours: a system must be a Lab, got str; use vl"):
        vl.evaluate(meta, folder=meta.parent / "out", ours="local:")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="name a system"):
        vl.evaluate(meta, folder=meta.parent / "out")
    with pytest.raises(StoreError, match="cannot be read"):
        vl.evaluate(meta.with_name("none.lst"), folder=meta.parent / "out", ours=lab)
    with pytest.raises(ArgumentError, match=r"items: must be texts or rows such as .*, got \('One.', 'p.wav'\)"):
        vl.evaluate([("One.", "p.wav")], folder=meta.parent / "out", ours=lab)  # type: ignore[list-item]
    invalid: Any
    for invalid, message in (
        (3, "items: must be texts or rows such as .*, got 3"),
        ([None, "One."], "items: must be texts or rows such as .*, got None"),
        ({"a": "One.", "b": "Two."}, "items: must be texts or rows such as .*, got {'a': 'One.'"),
        (pd.DataFrame({"text": ["One.", None], "n": [1.0, float("nan")]}), r"a text in every row, got none in row 2"),
        (pd.DataFrame({"text": ["One.", float("nan")]}), r"a text in every row, got none in row 2"),
        ([{"text": 1984}, {"text": "Two."}], "text: row 1: must be a string, got 1984"),
    ):
        with pytest.raises((ArgumentError, RequestInvalid), match=message):
            vl.evaluate(invalid, folder=meta.parent / "out", metrics=["duration"], ours=lab)
    meta.with_name("t.csv").write_text("id,sent\na,One.\nb,Two.\n")
    with pytest.raises(
        ArgumentError, match="must have a column text or infer_text or sentence, got the columns id, sent"
    ):
        vl.evaluate(meta.with_name("t.csv"), folder=meta.parent / "out", ours=lab)


def test_failures_are_counted_and_excluded(meta: Path) -> None:
    def step(note: int) -> None:
        if note == 12:  # the longer texts
            raise vl.ServiceUnavailable("busy", status=500)

    result = vl.evaluate(
        meta, folder=meta.parent / "out", metrics=["duration"], repeats=1, ours=vl.Lab(ToneBackend(step))
    )
    failed = len(result.table.failures)
    assert failed == 2
    assert f"{failed} of 3" in repr(result)
    assert "duration is not reported" in repr(result)


def test_equal_values_have_a_note(meta: Path) -> None:
    result = vl.evaluate(["One.", "Two."], folder=meta.parent / "out", metrics=["duration"], repeats=1, **labs())
    note = "duration of ours, theirs, ours - theirs has no interval: its value is the same for all items."
    assert note in result.notes


@pytest.mark.thorough
def test_a_thousand_rows_resume_within_two_seconds(meta: Path) -> None:
    meta.write_text("".join(f"u{i}|A prompt.|wavs/p{i % 2}.wav|Text {i}.\n" for i in range(1000)))
    options: Any = {"folder": meta.parent / "out", "metrics": ["duration"], "repeats": 1}
    vl.evaluate(meta, **options, ours=vl.Lab(ToneBackend()))
    begun = time.perf_counter()
    result = vl.evaluate(meta, **options, ours=vl.Lab(ToneBackend()))
    seconds = time.perf_counter() - begun
    assert len(result.table) == 1000
    assert seconds < 6, seconds  # 2 s on an idle core


def test_the_command_prints_the_result(meta: Path) -> None:
    meta.write_text("a|A.|wavs/p0.wav|One.\nb|A.|wavs/p0.wav|Two.\n")
    # An embedded voice clones speech only.
    speech = vl.connect().speak("A.", seed=1)
    speech.save(meta.parent / "wavs" / "p0.wav")
    arguments = ["evaluate", str(meta), "-m", " duration,", "--repeats", "1", "--recognizer", "pocketsphinx"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["items"] == 2
    again = CliRunner().invoke(app, arguments)
    assert "95% intervals over 2 items" in again.stdout
    twice = CliRunner().invoke(app, [*arguments, "--against", "local:"])
    assert "against: must be a backend other than local:, got local:" in twice.stderr
