from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.test_sweep import sweep_over
from tests.tones import ToneBackend
from voicelab.call import Call
from voicelab.errors import RequestInvalid, StoreError
from voicelab.lab import Lab
from voicelab.runs.cache import Cache
from voicelab.schema import ReferenceAudio, TTSRequest
from voicelab.sweeps.run import Budget
from voicelab.sweeps.spec import read_spec, retyped, texts_of

WHOLE = """
text = ["One.", "Two."]
repeats = 2
seed = 7
model = "s1"
concurrency = 3

[fields]
format = "pcm"
prosody = {speed = 1.5}

[axes]
temperature = "0..1 step 0.5"
voice = ["ada", "ben"]
top_p = 0.5

[budget]
requests = 24
"""


def read(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_says_what_the_call_would(tmp_path: Path) -> None:
    spec = read_spec(read(tmp_path, WHOLE))
    lab = Lab(ToneBackend())
    made = lab.sweep(spec.text, cache=Cache(tmp_path / "cache"), **spec.options)
    by_hand = lab.sweep(
        ["One.", "Two."],
        repeats=2,
        seed=7,
        model="s1",
        format="pcm",
        prosody={"speed": 1.5},
        temperature=[0.0, 0.5, 1.0],
        voice=["ada", "ben"],
        top_p=[0.5],
    )
    assert made.jobs() == by_hand.jobs()
    assert spec.budget == Budget(requests=24)
    assert dict(spec.run) == {"concurrency": 3}
    assert len(made.run(budget=spec.budget, **spec.run).takes) == 24


def test_references_are_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"a")
    (tmp_path / "b.wav").write_bytes(b"b")
    spec = read_spec(read(tmp_path, 'text = "One."\n[fields]\nreferences = [{audio = "a.wav", text = "A."}]'))
    assert spec.options["references"] == [ReferenceAudio(audio=b"a", text="A.")]
    (tmp_path / "a.txt").write_text("A.")
    assert read_spec(read(tmp_path, 'text = "One."\n[fields]\nreferences = ["a.wav"]')).options == spec.options
    spec = read_spec(
        read(
            tmp_path,
            'text = "One."\n[axes]\nreferences = [[{audio = "a.wav"}], [{audio = "a.wav"}, {audio = "b.wav"}]]',
        )
    )
    sweep = Lab(ToneBackend()).sweep(spec.text, **spec.options)
    assert [len(cell.call.request.references or ()) for cell in sweep.grid.cells] == [1, 2]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('text = "One."\nrepeat = 2', "repeat"),
        ('text = "One."\nfields = 3', "fields"),
        ('text = "One."\n[budget]\nmoney = 3', "budget.money"),
        ('text = "One."\n[budget]\nrequests = -3', "budget.requests"),
        ('text = "One."\n[fields]\ntop_p = 1\n[axes]\ntop_p = [0, 1]', "top_p"),
        ('text = "One."\n[fields]\nreferences = [3]', "references"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        read_spec(read(tmp_path, text))
    assert [error.field for error in caught.value.errors] == [field]


def test_no_file_no_toml_no_audio(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        read_spec(tmp_path / "none.toml")
    with pytest.raises(StoreError, match="must be TOML"):
        read_spec(read(tmp_path, "text = "))
    with pytest.raises(StoreError, match=r"gone\.wav cannot be read"):
        read_spec(read(tmp_path, 'text = "One."\n[fields]\nreferences = [{audio = "gone.wav"}]'))


TEXTS = ["One line.\r\nTwo.", "a\u2028b\x0cc\x85d", r"Open C:\new folder", "Two\nlines", r"\\ and \r", "Plain."]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_nobody_touched_stays_as_it_is(text: str) -> None:
    given = sweep_over(ToneBackend(), Call(TTSRequest(text=text)), {})
    assert retyped(given, texts_of(given), []) == given
    assert "\n" not in texts_of(given)


def test_texts_that_nobody_touched_stay_while_another_is_added() -> None:
    given = sweep_over(ToneBackend(), Call(TTSRequest(text="One.")), {"text": TEXTS})
    assert retyped(given, texts_of(given), []) == given
    (axis,) = retyped(given, texts_of(given) + "\nNew.", []).axes
    assert list(axis.values) == [*TEXTS, "New."]


def test_what_is_typed_is_read_as_it_is_meant() -> None:
    given = sweep_over(ToneBackend(), Call(TTSRequest(text="One.")), {})
    assert retyped(given, r"A\nB", []).base.request.text == "A\nB"
    assert retyped(given, r"C:\temp, C:\\new", []).base.request.text == r"C:\temp, C:\new"
    assert [axis.values for axis in retyped(given, "A\n\n B\n", []).axes] == [("A", " B")]


def test_a_file_says_who_speaks_by_the_same_addresses_as_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "systems.toml"
    path.write_text(
        'text = "Hello."\nbackend = "replay:takes"\n[axes]\nbackend = ["local:", "https://voice.example"]\n'
    )
    spec = read_spec(path)
    assert spec.backend == "replay:takes"
    assert dict(spec.backends) == {"local:": "local:", "https://voice.example": "https://voice.example"}
    assert "backend" not in spec.options
    path.write_text('text = "Hello."\n[axes.backend]\nours = "local:"\n')
    assert dict(read_spec(path).backends) == {"ours": "local:"}
    path.write_text('text = "Hello."\nbackend = 3\n')
    with pytest.raises(RequestInvalid, match="backend: must be an address in quotes"):
        read_spec(path)
