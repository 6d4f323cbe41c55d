from __future__ import annotations

import math
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from tests.speechlike import RATE, speechlike
from tests.tones import ToneBackend
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.lab import Lab
from voicelab.metrics import BASIC, METRICS, Metric, Subject, Undefined, available, measure

Figure = Callable[..., tuple[float, str]]


def brightest(subject: Subject) -> float:
    """Return the frequency in Hz of the strongest line."""
    if not subject.clip.samples.any():
        raise Undefined("silence has no line")
    spectrum = np.abs(np.fft.rfft(subject.clip.samples))
    return float(spectrum.argmax()) * subject.clip.rate / len(subject.clip)


BRIGHTEST = Metric("brightest", "Hz", brightest)


def broken(subject: Subject) -> float:
    """Return what is not there."""
    return float(subject.clip.nothing)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def clips() -> list[Clip]:
    return [Clip(speechlike(1.5, pitch=pitch), RATE) for pitch in (110, 150, 200, 260)]


def test_table_has_a_row_per_clip_and_a_column_per_metric(clips: list[Clip], sounds: Any) -> None:
    frame = measure([*clips, sounds.clip(np.zeros(4800))])
    assert list(frame) == [*BASIC, "undefined"]
    assert len(frame) == 5
    assert all(frame[name].dtype == np.float64 for name in BASIC)
    assert frame.duration.tolist() == pytest.approx([1.5, 1.5, 1.5, 1.5, 0.1])
    assert frame.loudness[:4].notna().all()
    silent = frame.iloc[4]
    assert math.isnan(silent.loudness)
    assert "level: the clip is silent; peak: the clip is silent" in silent.undefined
    assert set(frame.columns[frame.iloc[4].isna()]) == {part.split(":")[0] for part in silent.undefined.split("; ")}


class Fetched:
    """Has a clip when it is asked for, as a take on disk has; counts how many there are at once."""

    there: ClassVar[list[weakref.ref[Clip]]] = []
    most = 0

    def __init__(self, pitch: float) -> None:
        self.pitch = pitch

    def clip(self) -> Clip:
        made = Clip(speechlike(0.5, pitch=self.pitch), RATE)
        Fetched.there.append(weakref.ref(made))
        Fetched.most = max(Fetched.most, sum(one() is not None for one in Fetched.there))
        return made


def test_takes_are_loaded_in_turn() -> None:
    takes = [Fetched(100.0 + 20.0 * number) for number in range(6)]
    frame = measure(takes, ["duration", "level"])
    assert len(Fetched.there) == 6
    assert Fetched.most <= 2
    pd.testing.assert_frame_equal(frame, measure([take.clip() for take in takes], ["duration", "level"]))
    # Other processes fetch for themselves.
    pd.testing.assert_frame_equal(frame, measure(takes, ["duration", "level"], jobs=2))


def test_no_clips_give_an_empty_table() -> None:
    frame = measure([], ["duration"])
    assert list(frame) == ["duration", "undefined"]
    assert frame.empty
    assert frame.duration.dtype == np.float64


def test_every_metric_documents_its_definition_and_source() -> None:
    assert set(BASIC) <= set(METRICS)
    for metric in available().values():
        assert len(metric.doc) > 40, metric.name
        assert metric.extra or not metric.module
    sources = {
        "true_peak": "BS.1770-4", "loudness": "BS.1770-4", "pauses": "Goldman-Eisler", "f0_sd": "Nolan", "jitter": "Praat",
        "mfcc_distance": "Kubichek", "shimmer_local": "Praat", "stoi": "Taal", "pesq": "P.862.2", "wer": "Levenshtein",
        "spectral_tilt": "Fant",
    }  # fmt: skip
    for name, source in sources.items():
        assert source in METRICS[name].doc


def test_custom_metric_is_passed_or_registered(clips: list[Clip], sounds: Any) -> None:
    frame = measure([sounds.sine(440, -6, 1.0), sounds.clip(np.zeros(100))], ["duration", BRIGHTEST])
    assert frame.brightest[0] == pytest.approx(440)
    assert frame.undefined.tolist() == ["", "brightest: silence has no line"]


def install(folder: Path, name: str, source: str, registered: str) -> None:
    """Leave a package as an installer does: a module, and beside it what it registers."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(registered)


def test_packages_register_metrics_encoders_and_predictors(tmp_path: Path) -> None:
    install(
        tmp_path,
        "mypack",
        "import numpy as np\n"
        "from voicelab.metrics import Metric\n"
        "METRICS = [Metric('halves', 's', lambda subject: subject.clip.duration / 2), Metric('ones', '', lambda _: 1)]\n"
        "class Encoder:\n"
        "    def embed(self, samples, rate): return np.ones(3)\n"
        "class Predictor:\n"
        "    def predict(self, samples, rate): return 4.5\n",
        "[voicelab.metrics]\nmine = mypack:METRICS\n"
        "[voicelab.speaker_encoders]\nflat = mypack:Encoder\n[voicelab.mos_predictors]\nkind = mypack:Predictor\n",
    )
    script = (
        "import numpy as np\n"
        "from voicelab.clip import Clip\n"
        "from voicelab.metrics import Tools, measure\n"
        "clip = Clip(np.full(24000, 0.1, np.float32), 24000)\n"
        "names = ['halves', 'ones', 'speaker_similarity', 'predicted_mos']\n"
        "frame = measure([clip], names, reference=clip, tools=Tools(encoder='flat', predictor='kind'))\n"
        "print([float(value) for value in frame.iloc[0, :4]])\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0.5, 1.0, 1.0, 4.5]"


@pytest.mark.parametrize(
    ("registered", "why"),
    [
        ("METRIC = Metric('loudness', '', lambda _: 0.0)", "name of the built-in metric 'loudness'"),
        ("METRIC = ['loudness']", "must be a Metric"),
        ("raise OSError('no disk')", "cannot be loaded: no disk"),
    ],
)
def test_invalid_entry_point_is_named(
    registered: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"badpack{abs(hash(registered))}"
    source = f"from voicelab.metrics import Metric\n{registered}\n"
    install(tmp_path, module, source, f"[voicelab.metrics]\nbad = {module}:METRIC\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ArgumentError, match=why) as caught:
        available()
    assert module in str(caught.value)
    # It does not stand in the way of what needs none of it.
    assert measure([], ["duration"]).empty


def test_text_and_reference_per_clip(clips: list[Clip]) -> None:
    frame = measure(clips[:2], ["words", "mfcc_distance"], text=["red", "red fox"], reference=[clips[0], None])
    assert frame.words.tolist() == [1.0, 2.0]
    assert frame.mfcc_distance[0] == 0.0
    assert frame.undefined[1] == "mfcc_distance: there is no reference for this clip"


def test_text_of_a_part_is_unknown() -> None:
    clip = Lab(ToneBackend()).speak("A red fox ran.")
    frame = measure([clip, clip.resample(16_000), clip.slice(0.0, 0.5)], ["words"])
    assert frame.words.tolist()[:2] == [4.0, 4.0]
    assert math.isnan(frame.words[2])
    assert measure([clip.slice(0.0, 0.5)], ["words"], text="A red").words[0] == 2.0


def test_text_defaults_to_that_of_the_request(sounds: Any) -> None:
    assert measure([sounds.arrived((0.1, 100))], ["words"]).words[0] == 1.0  # "One two" is a number
    assert measure([sounds.arrived((0.1, 100))], ["words"], text="A red fox").words[0] == 3.0


def test_intermediate_results_are_cached(clips: list[Clip]) -> None:
    calls = []

    def work(subject: Subject) -> float:
        calls.append(subject)
        raise Undefined("as ever")

    metrics = [Metric(name, "", lambda subject: subject.once(work)) for name in ("a", "b")]
    frame = measure(clips[:1], metrics)
    assert len(calls) == 1
    assert frame.undefined[0] == "a: as ever; b: as ever"


def test_nonfinite_result_is_undefined(clips: list[Clip]) -> None:
    frame = measure(clips[:1], [Metric("infinite", "", lambda _: math.inf)])
    assert math.isnan(frame.infinite[0])
    assert frame.undefined[0] == "infinite: the result is inf"


def test_exception_of_a_metric_names_the_clip(clips: list[Clip]) -> None:
    with pytest.raises(AttributeError) as caught:
        measure(clips[:1], [Metric("broken", "", broken)])
    assert caught.value.__notes__ == ["while measuring clip 0"]


def test_jobs_do_not_change_results(clips: list[Clip]) -> None:
    chosen: list[str | Metric] = ["loudness", "pauses", "words", BRIGHTEST]
    one = measure(clips, chosen, text=["a", "a b", "a b c", "a b c d"])
    two = measure(clips, chosen, text=["a", "a b", "a b c", "a b c d"], jobs=2)
    pd.testing.assert_frame_equal(one, two)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"metrics": ["loudnes"]}, "metrics"),
        ({"metrics": ["loudness", "loudness"]}, "metrics"),
        ({"metrics": []}, "metrics"),
        ({"metrics": [3]}, "metrics"),
        ({"metrics": ["mfcc_distance"]}, "reference"),
        ({"reference": []}, "reference"),
        ({"reference": [b"a.wav"] * 4}, "reference"),
        ({"text": ["a"]}, "text"),
        ({"text": [1, 2, 3, 4]}, "text"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": 2.0}, "jobs"),
        ({"jobs": 2, "metrics": [Metric("mine", "", lambda _: 0.0)]}, "jobs"),
        ({"clips": [b"a.wav"]}, "clips"),
    ],
)
def test_invalid_arguments_are_rejected(options: dict[str, Any], field: str, clips: list[Clip]) -> None:
    with pytest.raises(ArgumentError, match=f"^{field}: "):
        measure(**{"clips": clips, "metrics": BASIC, **options})


def test_renamed_metric_is_suggested() -> None:
    for old, new in (("shimmer", "shimmer_rms"), ("f0_mean", "f0_geometric_mean")):
        with pytest.raises(ArgumentError, match=f"did you mean {new}"):
            measure([], [old])


def test_metric_name_must_be_an_identifier() -> None:
    with pytest.raises(ArgumentError, match="name"):
        Metric("F0 (Hz)", "Hz", brightest)


def test_missing_package_names_the_extra(clips: list[Clip]) -> None:
    absent = Metric("absent", "", brightest, module="no_such_module_at_all", extra="metrics")
    with pytest.raises(MissingExtra, match=r"the metric absent requires .*pip install .*\[metrics\]"):
        measure(clips, [absent])


def test_missing_recognizer_names_the_extra(clips: list[Clip]) -> None:
    # In an interpreter of its own, where the import fails as it does when the package is not there.
    script = (
        "import sys; sys.modules['pocketsphinx'] = None\n"
        "import numpy as np\n"
        "from voicelab.clip import Clip\n"
        "from voicelab.errors import MissingExtra\n"
        "from voicelab.metrics import measure\n"
        "try: measure([Clip(np.zeros(100, np.float32), 16000)], ['wer'], text='a')\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert "the recognizer pocketsphinx requires" in done.stdout, done.stderr
    assert "[recognition]" in done.stdout


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "metrics.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    assert all(len(row) == 4 and all(cell.strip() for cell in row) for row in rows)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row[0])) == sorted(METRICS)
