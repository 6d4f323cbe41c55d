from __future__ import annotations

import csv
import json
import subprocess
import wave
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import playwright
import pytest
import yaml

from tests.listening.test_design import listening_test, sound
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, StoreError
from voicelab.listening.design import REFERENCE, Kind, ListeningTest
from voicelab.listening.results import analyze
from voicelab.listening.webmushra import export_webmushra, import_webmushra, read_results

KINDS: tuple[Kind, ...] = ("MUSHRA", "ABX", "MOS", "AB", "CMOS")


def pages(config: dict[str, Any]) -> list[dict[str, Any]]:
    ((mode, *drawn),) = (page for page in config["pages"] if isinstance(page, list))
    assert mode == "random"
    return drawn


def as_webmushra_reads(path: Path) -> Any:
    """Return what webMUSHRA's own parser makes of a configuration, in the node that comes with playwright."""
    parser = Path(__file__).with_name("yaml.min.js")
    script = (
        "global.window = {}; const found = require(process.argv[1]); const parser = found.parse ? found : window.YAML;"
        "console.log(JSON.stringify(parser.parse(require('fs').readFileSync(process.argv[2], 'utf8'))))"
    )
    node = Path(playwright.__file__).parent / "driver" / "node"
    done = subprocess.run([node, "-e", script, parser, path], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_yaml_js_reads_every_page(tmp_path: Path, kind: Kind) -> None:
    plain = listening_test(kind, "ab", items=2)
    names = {item: f"{item}: \"quoted\" '#' 今天" for item in plain.items}
    items = {names[item]: clips for item, clips in plain.items.items()}
    references = {names[item]: clip for item, clip in plain.references.items()}
    path = export_webmushra(ListeningTest("A: test", kind, items, references), tmp_path, root="configs/x")
    theirs = as_webmushra_reads(path)
    assert theirs == yaml.safe_load(path.read_text(encoding="utf-8"))
    assert [page["id"].split("/")[0] for page in pages(theirs)] == list(items)
    # Written as PyYAML does, no page would appear.
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(theirs, sort_keys=False))
    assert isinstance(as_webmushra_reads(tmp_path / "plain.yaml")["pages"][1], str)


def test_long_mushra_pages_are_not_strict(tmp_path: Path) -> None:
    short = listening_test("MUSHRA", items=1)
    long = {item: dict.fromkeys("ab", sound(7, 12.5)) for item in short.items}
    test = ListeningTest("long", "MUSHRA", long, short.references)
    strict = [
        [page.get("strict", True) for page in pages(as_webmushra_reads(export_webmushra(each, tmp_path)))]
        for each in (short, test)
    ]
    assert strict == [[True], [False]]


def test_x_alternates_and_file_names_are_blinded(tmp_path: Path) -> None:
    clips = {
        item: dict(zip(("marlow", "nadia"), two.values(), strict=True))
        for item, two in listening_test("ABX").items.items()
    }
    test = ListeningTest("trial", "ABX", clips)
    path = export_webmushra(test, tmp_path)
    drawn = pages(yaml.safe_load(path.read_text()))
    assert [list(page["stimuli"]) for page in drawn] == [["nadia"], ["marlow"]] * 2
    assert all("X is the sound called reference" in page["content"] for page in drawn)
    files = [file for page in drawn for file in (page["reference"], *page["stimuli"].values())]
    assert len(set(files)) == 8
    assert not any(name in file for file in files for name in ("marlow", "nadia", "s0"))
    rows: list[list[object]] = [
        ["trial", "Ada", page["id"], "reference", *page["stimuli"], "correct", 900] for page in drawn
    ]
    frame = read_results(test, write(tmp_path / "pc.csv", PAIRED, rows))
    # Right is right, whichever is X, which is what was chosen.
    assert frame["right"].all()
    assert frame["chosen"].tolist() == ["marlow", "nadia"] * 2


def test_listeners_without_unique_names_are_sessions(tmp_path: Path) -> None:
    test = listening_test("MOS", items=2)
    cells = [(item, system) for item in test.items for system in "ab"]
    rows: list[list[object]] = [
        ["trial", name, item, rating, system, 700]
        for name, rating in (("Ada", 5), ("Ada", 1), ("", 3), ("", 2))
        for item, system in cells
    ]
    frame = read_results(test, write(tmp_path / "lss.csv", LIKERT, rows))
    assert frame.groupby("listener", sort=False)["rating"].mean().to_dict() == {
        "Ada (1)": 5, "Ada (2)": 1, "anonymous (3)": 3, "anonymous (4)": 2,
    }  # fmt: skip
    assert analyze(test, frame).listeners == 4
    # analyze() recognizes the file, also saved again by a spreadsheet program.
    assert str(analyze(test, tmp_path / "lss.csv")) == str(analyze(test, frame))
    table = pd.read_csv(tmp_path / "lss.csv", keep_default_na=False)
    table.to_csv(tmp_path / "saved.csv", sep=";", encoding="utf-16", index=False)
    assert str(analyze(test, tmp_path / "saved.csv")) == str(analyze(test, frame))


def test_duplicate_responses_of_a_session_are_rejected(tmp_path: Path) -> None:
    test = listening_test("MUSHRA", items=1)
    rows: list[list[object]] = [
        ["trial", "Ada", uuid, "s0", system, 50, 900] for uuid in ("u1", "u2", "u1") for system in ("a", "b")
    ]
    assert read_results(test, write(tmp_path / "mushra.csv", MUSHRA, rows[:4]))["listener"].nunique() == 2
    with pytest.raises(ArgumentError, match="answered this question before"):
        read_results(test, write(tmp_path / "mushra.csv", MUSHRA, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_export_import_round_trip(tmp_path: Path, kind: Kind) -> None:
    test = listening_test(kind, "abc", items=3)
    path = export_webmushra(test, tmp_path, rate=48_000)
    assert path.name == "trial.yaml"
    config = yaml.safe_load(path.read_text())
    assert (config["testId"], config["pages"][-1]["type"], config["pages"][-1]["writeResults"]) == (
        "trial",
        "finish",
        True,
    )
    for page in pages(config):
        # What webMUSHRA demands: one rate and one length on a page.
        files = [*page["stimuli"].values(), *([page["reference"]] if "reference" in page else [])]
        shapes = set()
        for name in files:
            with wave.open(str(tmp_path / name)) as file:
                shapes.add((file.getframerate(), file.getnchannels(), file.getsampwidth(), file.getnframes()))
        assert len(shapes) == 1
        assert len({(tmp_path / name).read_bytes() for name in files}) == len(files)
        assert next(iter(shapes))[:3] == (48_000, 1, 2)
    if kind in {"AB", "ABX", "CMOS"}:
        assert len(pages(config)) == 3 * 3
        return
    back = import_webmushra(path, tmp_path)
    assert (back.kind, back.name, back.systems) == (kind, test.name, test.systems)
    assert set(back.items) == set(test.items)
    for item, clips in test.items.items():
        for system, clip in clips.items():
            got = back.items[item][system]
            assert got.rate == 48_000
            assert got.duration >= clip.duration
            # The same sound at the loudness of the test, then silence.
            gain = 10 ** (test.gains[item][system] / 20)
            length = int(clip.duration * 48_000)
            expected = clip.resample(48_000).samples[:length] * gain
            assert np.abs(got.samples[:length] - expected).max() < 2e-4
            assert np.abs(got.samples[length + 1 :]).max(initial=0) <= 1 / 32767


def write(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


# The columns are those that service/write.php of webMUSHRA writes.
MUSHRA = ["session_test_id", "name", "session_uuid", "trial_id", "rating_stimulus", "rating_score", "rating_time"]
CHOICE = ["choice_reference", "choice_non_reference", "choice_answer", "choice_time"]
PAIRED = ["session_test_id", "name", "trial_id", *CHOICE]
LIKERT = ["session_test_id", "name", "trial_id", "stimuli_rating", "stimuli", "rating_time"]


def test_mushra_results(tmp_path: Path) -> None:
    test = listening_test("MUSHRA", items=3)
    level = {"a": 80, "b": 60, REFERENCE: 100, "anchor35": 2, "anchor70": 45}
    rows: list[list[object]] = [
        ["trial", name, f"uuid-{name}", item, system, score - bias, 1500, ""]
        for bias, name in enumerate(("Ada", "Ben", "Cy"))
        for item in test.items
        for system, score in level.items()
    ]
    rows.append(["another", "Ada", "u", "s0", "a", 3, 100, ""])
    path = write(tmp_path / "mushra.csv", [*MUSHRA, "rating_comment"], rows)
    frame = read_results(test, path)
    assert len(frame) == 3 * 3 * 5
    assert set(frame["seconds"]) == {1.5}
    assert (frame["rating"].min(), frame["rating"].max()) == (0, 100)
    found = analyze(test, frame)
    assert found.listeners == 3
    assert found.scores["a"].value == pytest.approx(79)


def test_abx_results(tmp_path: Path) -> None:
    test = listening_test("ABX", "abc", items=2)
    rows: list[list[object]] = [
        ["trial", "Ada", "s0/a vs b", "reference", "b", "correct", 900, ""],
        ["trial", "Ada", "s0/b vs c", "reference", "c", "incorrect", 900, ""],
        ["trial", "Ada", "s1/a vs b", "reference", "b", "correct", 900, ""],
        ["trial", "Ada", "s1/b vs c", "reference", "b", "incorrect", 900, ""],
    ]
    frame = read_results(test, write(tmp_path / "pc.csv", [*PAIRED, "choice_comment"], rows))
    assert frame["chosen"].to_list() == ["a", "c", "a", "b"]
    found = analyze(test, frame)
    assert found.tests["a", "b"].estimate.value == 1.0
    assert found.tests["b", "c"].estimate.value == 0.0


@pytest.mark.parametrize(
    "row",
    [
        ["trial", "Ada", "nowhere", 3, "a", 700],
        ["trial", "Ada", "s0", 3, "z", 700],
        ["trial", "Ada", "s0", 9, "a", 700],
        ["trial", "Ada", "s0", "much", "a", 700],
        ["trial", "Ada"],
    ],
)
def test_invalid_result_row_is_named(tmp_path: Path, row: list[object]) -> None:
    test = listening_test("MOS", items=2)
    path = write(tmp_path / "lss.csv", LIKERT, [["trial", "Ada", "s0", 3, "a", 700], row])
    with pytest.raises(ArgumentError, match="line 3"):
        read_results(test, path)


def test_instructions_are_the_first_page(tmp_path: Path) -> None:
    test = replace(listening_test("MOS", items=1), instructions="Sit & listen.\nTwice.")
    first = as_webmushra_reads(export_webmushra(test, tmp_path))["pages"][0]
    assert first["content"] == f"<p>Sit &amp; listen.</p><p>Twice.</p><p>{test.question}</p>"


def test_example_configuration_and_results_by_test_id(tmp_path: Path) -> None:
    # Its configs/default.yaml has a colon in a text without quotes; the id of a test is not its name.
    (tmp_path / "abx.yaml").write_text(
        """
testname: ABX without looping
testId: abx_noloop
pages:
    - type: generic
      id: first_page
      content: These are the instructions. Reminder: In a listening test, listen (that's all).
    - - random
      - type: paired_comparison
        id: trial1
        unforced: I don't know
        reference: r.wav
        stimuli:
            C1: c.wav
    - {type: paired_comparison, id: always_last, reference: r.wav, stimuli: {C1: c.wav}}
"""
    )
    sounds = listening_test("AB", items=1).items["s0"]
    sounds["a"].save(tmp_path / "r.wav")
    sounds["b"].save(tmp_path / "c.wav")
    test = import_webmushra(tmp_path / "abx.yaml", tmp_path)
    assert (test.kind, test.systems, len(test.items)) == ("ABX", (REFERENCE, "C1"), 2)
    answers = ["correct", "correct", "incorrect", "undecided", "unknown"]
    rows: list[list[object]] = [
        ["abx_noloop", f"listener {number}", "trial1", "reference", "C1", answer, 900, ""]
        for number, answer in enumerate(answers)
    ]
    frame = read_results(test, write(tmp_path / "pc.csv", [*PAIRED, "choice_comment"], rows))
    # Who was undecided, or answered nothing, has not voted.
    assert frame["right"].tolist() == [True, True, False]
    others = write(tmp_path / "other.csv", PAIRED, [["another", "Ada", "trial1", "reference", "C1", "correct", 900]])
    with pytest.raises(ArgumentError, match="results of another, not of 'abx_noloop'"):
        read_results(test, others)
    rows[0][4] = "C2"
    with pytest.raises(ArgumentError, match="for two systems of the test, got 'correct' for 'reference' and 'C2'"):
        read_results(test, write(tmp_path / "pc.csv", [*PAIRED, "choice_comment"], rows))
    rated = listening_test("MOS", items=1)
    left = write(
        tmp_path / "lss.csv", LIKERT, [["trial", "Ada", "s0", "NA", "a", 1], ["trial", "Ada", "s0", 4, "b", 1]]
    )
    assert read_results(rated, left)["rating"].tolist() == [4]


def test_likert_points_other_than_mos_are_rejected(tmp_path: Path) -> None:
    listening_test("MOS", items=1).items["s0"]["a"].save(tmp_path / "a.wav")
    page = {"type": "likert_single_stimulus", "id": "p", "stimuli": {"a": "a.wav"}}
    seven = [{"value": str(point)} for point in range(1, 8)]
    for points in ([{"value": "much"}, {"value": "little"}], seven, [seven[:5], seven[:5]]):
        (tmp_path / "c.yaml").write_text(yaml.safe_dump({"pages": [{**page, "response": points}]}))
        with pytest.raises(ArgumentError, match="must be 1, 2, 3, 4, 5"):
            import_webmushra(tmp_path / "c.yaml", tmp_path)
    with pytest.raises(ArgumentError, match=r"kind: must be .*, got 'SMOS'"):  # no page has a reference and one sound
        export_webmushra(listening_test("SMOS", items=1), tmp_path)


@pytest.mark.parametrize("kind", ["AB", "CMOS"])
def test_pairs_are_concatenated_sounds(tmp_path: Path, kind: Kind) -> None:
    test = listening_test(kind, "abc", items=2)
    drawn = pages(yaml.safe_load(export_webmushra(test, tmp_path, rate=16_000).read_text()))
    firsts: Counter[tuple[frozenset[str], str]] = Counter()
    answers = {"AB": ["A", "B"], "CMOS": [str(point) for point in range(-3, 4)]}[kind]
    rows: list[list[object]] = []
    for page in drawn:
        assert [point["value"] for point in page["response"]] == answers
        item, _, pair = page["id"].partition("/")
        first, second = pair.split(" vs ")
        firsts[frozenset((first, second)), first] += 1
        sound = Clip.load(tmp_path / page["stimuli"]["both"]).samples
        parts = [test._stimuli[item, name].clip.samples for name in (first, second)]
        assert np.abs(sound[: parts[0].size] - parts[0]).max() < 1e-4
        begin = parts[0].size + 8000
        assert np.abs(sound[parts[0].size : begin]).max() < 1e-4
        assert np.abs(sound[begin : begin + parts[1].size] - parts[1]).max() < 1e-4
        # c is better by 2 than a, a than b.
        better = {"a": 1, "b": 0, "c": 2}[second] - {"a": 1, "b": 0, "c": 2}[first]
        rows += [["trial", name, page["id"], ("A" if better < 0 else "B") if kind == "AB" else better, "both", 900]
                 for name in ("Ada", "Ben")]  # fmt: skip
    assert set(firsts.values()) == {1}  # each pair either way round
    result = analyze(
        test, read_results(test, write(tmp_path / "lss.csv", LIKERT, sorted(rows, key=lambda row: str(row[1]))))
    )
    if kind == "AB":
        assert result.tests["b", "c"].estimate.value == 0.0
    else:
        assert result.scores["c against b"].value == 2.0
    rows[0][3] = 9
    with pytest.raises(ArgumentError, match="line 2"):
        read_results(test, write(tmp_path / "lss.csv", LIKERT, rows))


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("pages: [", StoreError, "YAML"),
        ("just text", ArgumentError, "list of pages"),
        ("pages: [{type: generic}]", ArgumentError, "must have one type"),
        ("pages: [{type: mushra, id: a, reference: r.wav}]", ArgumentError, "a page lacks 'stimuli'"),
        ("pages: [{type: mushra, id: a, reference: r.wav, stimuli: {a: none.wav}}]", StoreError, "cannot be read"),
        ("pages: [!!python/object/apply:os.getcwd []]", StoreError, "YAML"),
    ],
)
def test_invalid_configurations_are_rejected(tmp_path: Path, text: str, error: type[Exception], match: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(error, match=match):
        import_webmushra(tmp_path / "c.yaml", tmp_path)


def test_names_differing_in_punctuation_have_separate_files(tmp_path: Path) -> None:
    clips = listening_test("MOS", items=4).items
    sounds = [clip for item in clips.values() for clip in item.values()]
    asked = {"You are here.": sounds[0:2], "You are here?": sounds[2:4]}
    items = {item: dict(zip(("-6", "6"), two, strict=True)) for item, two in asked.items()}
    path = export_webmushra(ListeningTest("signs", "MOS", items, lufs=None), tmp_path, rate=sounds[0].rate)
    files = {
        (page["id"], system): tmp_path / file
        for page in pages(yaml.safe_load(path.read_text()))
        for system, file in page["stimuli"].items()
    }
    assert len(set(files.values())) == 4
    for (item, system), file in files.items():
        expected = items[item][system].samples
        assert np.abs(Clip.load(file).samples[: len(expected)] - expected).max() < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_item_names_may_have_slashes(tmp_path: Path, kind: Kind) -> None:
    plain = listening_test(kind, items=2)
    names = dict(zip(plain.items, ("text=He/she vs us, take 1", "text=He/she"), strict=True))
    items = {names[item]: clips for item, clips in plain.items.items()}
    references = {names[item]: clip for item, clip in plain.references.items()}
    test = ListeningTest("trial", kind, items, references)
    drawn = pages(yaml.safe_load(export_webmushra(test, tmp_path).read_text()))
    header, row = {
        "MUSHRA": (MUSHRA, ["a", 50, 900]),
        "ABX": (PAIRED, ["reference", "b", "correct", 900]),
        "MOS": (LIKERT, [4, "a", 900]),
        "AB": (LIKERT, ["A", "both", 900]),
        "CMOS": (LIKERT, [-3, "both", 900]),
    }[kind]
    before = ["trial", "Ada", "uuid"] if kind == "MUSHRA" else ["trial", "Ada"]
    path = write(tmp_path / "found.csv", header, [[*before, page["id"], *row] for page in drawn])
    assert list(read_results(test, path)["item"]) == list(items)
