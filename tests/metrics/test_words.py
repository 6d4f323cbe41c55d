from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
from pocketsphinx import get_model_path
from typer.testing import CliRunner

import voicelab as vl
from voicelab.asr.normalization import split_words
from voicelab.asr.recognizers import PocketRecognizer
from voicelab.audio.samples import Samples
from voicelab.audio.words import Words, WordTime
from voicelab.cli import app
from voicelab.clip import Clip
from voicelab.errors import ArgumentError
from voicelab.metrics import Tools, measure
from voicelab.metrics.words import _syllables

Figure = Callable[..., tuple[float, str]]


class Hears:
    """A recognizer of one recording: it has heard it before."""

    def __init__(self, said: str) -> None:
        self.said, self.times = said, 0

    def recognise(self, samples: Samples, rate: int) -> str:
        self.times += 1
        return self.said


def test_wer_and_cer_count_edits_by_word_and_character(sounds: Any) -> None:
    clip = sounds.noise(1.0, 0.1)
    # Two words substituted and one put in, of six.
    hears = Hears("the bird canoe slid the smooth planks")
    row = measure([clip], ["wer", "cer", "words"], text="The birch canoe slid on smooth", tools=Tools(hears)).iloc[0]
    assert row.wer == pytest.approx(3 / 6)
    assert row.words == 6
    assert row.cer == pytest.approx(jiwer.cer("the birch canoe slid on smooth", hears.said))
    assert hears.times == 1
    assert row.recognizer == "Hears"


def test_wer_may_exceed_one(sounds: Any, figure: Figure) -> None:
    assert figure(sounds.noise(1, 0.1), "wer", text="Apples", tools=Tools(Hears("pears and plums")))[0] == 3.0
    assert figure(sounds.noise(1, 0.1), "wer", text="One two", tools=Tools(Hears("")))[0] == 1.0


@pytest.mark.parametrize(
    ("text", "transcript", "whisper"),
    [
        ("I have fifty apples.", "I have 50 apples.", 0),
        ("It's one hundred dollars.", "It's $100.", 0),
        ("Doctor Smith came at seven thirty.", "Dr. Smith came at 7:30.", 2 / 5),
        ("He left the U.S. at 7 p.m.", "he left the US at seven pm", 4 / 9),
        ("I'm sure it's a grey colour.", "I am sure it is a gray color", 0),
        ("Chapter IV: the 1990s.", "chapter four the nineteen nineties", 1 / 4),
        ("我有50个苹果，３.５元。", "我有五十個蘋果三點五元", 7 / 9),
    ],
)
def test_spelling_does_not_count_in_wer(
    text: str, transcript: str, whisper: float, sounds: Any, figure: Figure
) -> None:
    clip = sounds.noise(1, 0.1)
    for said, heard in ((text, transcript), (transcript, text)):
        assert figure(clip, "wer", text=said, tools=Tools(Hears(heard)))[0] == 0.0
        assert figure(clip, "cer", text=said, tools=Tools(Hears(heard)))[0] == 0.0
    # The published rules miss some, and that is shown by their name.
    row = measure([clip], ["wer"], text=text, tools=Tools(Hears(transcript), normalizer="whisper")).iloc[0]
    assert row.wer == pytest.approx(whisper)
    assert row.normalizer == "whisper"


def test_errors_stay_errors_after_normalization(sounds: Any, figure: Figure) -> None:
    clip = sounds.noise(1, 0.1)
    for text, transcript in (("I have fifteen.", "I have fifty."), ("It costs $5.", "It costs five pounds.")):
        assert figure(clip, "wer", text=text, tools=Tools(Hears(transcript)))[0] > 0.0


def test_digits_of_other_languages_need_a_normalizer(sounds: Any, figure: Figure) -> None:
    clip, hears = sounds.noise(1, 0.1), Hears("fünf Äpfel")
    value, reason = figure(clip, "wer", text="5 Äpfel", tools=Tools(hears))
    assert math.isnan(value)
    assert "Tools(normalizer=" in reason

    def german(text: str) -> str:
        return text.replace("5", "fünf")

    row = measure([clip], ["wer"], text="5 Äpfel", tools=Tools(hears, normalizer=german)).iloc[0]
    assert (row.wer, row.normalizer) == (0.0, "german")
    assert figure(clip, "wer", text="5 Äpfel", tools=Tools(hears, normalizer=None))[0] == 0.5
    with pytest.raises(ArgumentError, match="must be voicelab, whisper, seed-tts-eval, None or a function, got 'nemo'"):
        figure(clip, "wer", text="one", tools=Tools(hears, normalizer="nemo"))
    with pytest.raises(ArgumentError, match=r"recognizer: must be a name or a .*Recognizer, got 3"):
        figure(clip, "wer", text="one", tools=Tools(3))  # type: ignore[arg-type]


def test_chinese_characters_count_as_words(sounds: Any, figure: Figure) -> None:
    clip, tools = sounds.noise(2, 0.1), Tools(Hears("今天天七很好"))
    row = measure([clip], ["wer", "cer", "words"], text="今天天气很好。", tools=tools).iloc[0]
    assert (row.words, row.wer, row.cer) == (6, pytest.approx(1 / 6), pytest.approx(1 / 6))
    assert "pocketsphinx supports only English" in figure(clip, "wer", text="今天", tools=Tools(PocketRecognizer()))[1]


def test_seed_tts_eval_converts_only_the_transcript(sounds: Any, figure: Figure) -> None:
    for text, transcript, wer in (("\u82f9\u679c", "\u860b\u679c", 0.0), ("\u860b\u679c", "\u860b\u679c", 0.5)):
        tools = Tools(Hears(transcript), normalizer="seed-tts-eval")
        assert figure(sounds.noise(1, 0.1), "wer", text=text, tools=tools)[0] == wer


def test_wer_without_text_is_undefined(sounds: Any, figure: Figure) -> None:
    tools = Tools(Hears("one"))
    assert "text is unknown" in figure(sounds.noise(1, 0.1), "wer", tools=tools)[1]
    assert "no word" in figure(sounds.noise(1, 0.1), "wer", text="?!", tools=tools)[1]


def test_embedded_voice_has_lower_wer_on_its_text_than_on_another() -> None:
    text = "Glue the sheet to the dark blue background."
    with vl.connect() as lab:
        clip = lab.speak(text, seed=0)
    right = measure([clip], ["wer", "cer"]).iloc[0]
    assert list(right.index) == ["wer", "cer", "recognizer", "normalizer", "undefined"]
    assert right.recognizer == "pocketsphinx"
    wrong = measure([clip], ["wer"], text="The birch canoe slid on the smooth planks.").iloc[0]
    assert right.wer < 0.7 < wrong.wer
    assert right.cer < right.wer + 0.2
    assert np.isfinite(right.cer)


TEXTS = ("We left at nine.", "The birch canoe slid on the smooth planks.")
UNRELIABLE = "It often misrecognizes clear speech"


def test_every_table_with_wer_prints_the_asr_model_and_its_accuracy(tmp_path: Path) -> None:
    with vl.connect() as lab:
        result = lab.sweep(list(TEXTS), temperature=[0.2, 1.0]).run(tmp_path / "run")
        clips = [take.clip() for take in result.takes]
        page = result.page(tmp_path / "page.html", metrics=["wer", "duration"]).read_text()
        swept = result.frame("wer", "duration")
        kept = vl.load(tmp_path / "run").frame("wer")
        effect = vl.effects(swept, "temperature", "wer", blocks=["text"])
    measured = vl.measure(clips, ["duration", "wer", "cer", "words"])
    assert list(measured) == ["duration", "wer", "cer", "words", "recognizer", "normalizer", "undefined"]
    for table in (measured, swept, kept, measured[["wer"]].round(2), measured.sort_values("cer").head(2)):
        for shown in (repr(table), str(table), table._repr_html_()):  # type: ignore[operator]
            assert "ASR model pocketsphinx, text normalizer voicelab. " + UNRELIABLE in shown
    assert measured["wer"].max() > 0.0  # as ever
    assert (measured.recognizer == "pocketsphinx").all()
    assert UNRELIABLE in str(effect)
    assert "WER by pocketsphinx, normalizer voicelab" in page
    assert UNRELIABLE in page
    for quiet in (measured[["duration"]], measured.drop(columns=["wer", "cer"]), vl.measure(clips[:1])):
        assert "ASR model" not in repr(quiet)
        assert "ASR model" not in quiet._repr_html_()  # type: ignore[operator]
    assert "ASR model" not in str(vl.effects(swept, "temperature", "duration", blocks=["text"]))


def test_a_comparison_of_recordings_prints_the_asr_model(tmp_path: Path, sounds: Any) -> None:
    for system in ("a", "b"):
        for item in ("one", "two"):
            (tmp_path / system).mkdir(exist_ok=True)
            sounds.noise(1.0, 0.1).save(tmp_path / system / f"{item}.wav")
            (tmp_path / system / f"{item}.txt").write_text("We left at nine.")
    systems = vl.collect(tmp_path / "{system}" / "{item}.wav", metrics=("wer", "duration"))
    for table in (systems.frame(), systems.summary()):
        assert UNRELIABLE in repr(table)
        assert UNRELIABLE in table._repr_html_()  # type: ignore[operator]
    shown = systems._repr_mimebundle_()
    assert UNRELIABLE in shown["text/html"]
    assert UNRELIABLE in shown["text/plain"]
    page = systems.page(tmp_path / "page.html").read_text()
    assert "WER by pocketsphinx, normalizer voicelab" in page
    assert UNRELIABLE in page
    printed = CliRunner().invoke(app, ["measure", str(tmp_path / "a"), "-m", "wer"])
    assert UNRELIABLE in printed.stdout
    written = CliRunner().invoke(app, ["measure", str(tmp_path / "a"), "-m", "wer", "-o", str(tmp_path / "t.csv")])
    assert UNRELIABLE in written.stderr
    assert "pocketsphinx" in (tmp_path / "t.csv").read_text()


def test_note_names_a_custom_recognizer(sounds: Any) -> None:
    table = measure([sounds.noise(1.0, 0.1)], ["wer"], text="one two", tools=Tools(Hears("one")))
    assert repr(table).endswith("wer: ASR model Hears, text normalizer voicelab.")
    assert table.attrs["note"] == "wer: ASR model Hears, text normalizer voicelab."


HELDOUT = Path(__file__).parents[2] / "training" / "data" / "heldout.txt"


@pytest.fixture(scope="module")
def spoken(sounds: Any) -> Clip:
    """Silence 0.3, speech 1.0, pause 0.5, speech 0.6, gap 0.15, speech 0.75, pause 0.8, speech 0.4, silence 0.2."""
    parts = [(0.3, 0), (1.0, 1), (0.5, 0), (0.6, 1), (0.15, 0), (0.75, 1), (0.8, 0), (0.4, 1), (0.2, 0)]
    clip: Clip = sounds.join(
        *(sounds.noise(seconds, 0.1 if loud else 0.0001, seed=n) for n, (seconds, loud) in enumerate(parts))
    )
    return clip


@pytest.mark.parametrize(
    ("metric", "expected"), [("pauses", 2), ("pause_time", 1.3), ("longest_pause", 0.8), ("speech_time", 4.2)]
)
def test_pauses_are_counted(metric: str, expected: float, spoken: Clip, figure: Figure) -> None:
    assert figure(spoken, metric)[0] == pytest.approx(expected, abs=0.011)


@pytest.mark.parametrize("gain", [1.0, 0.01])
@pytest.mark.parametrize("noise_db", [-60, -20])
def test_pauses_do_not_depend_on_level_or_noise(
    gain: float, noise_db: float, spoken: Clip, sounds: Any, figure: Figure
) -> None:
    noise = sounds.noise(spoken.duration, 0.1 * 10 ** (noise_db / 20), seed=99)
    clip = sounds.clip(gain * (spoken.samples + noise.samples))
    assert figure(clip, "pauses")[0] == 2
    assert figure(clip, "pause_time")[0] == pytest.approx(1.3, abs=0.08)


@pytest.mark.parametrize("rate", [11_025, 22_050, 44_100])
def test_frame_times_at_rates_with_fractional_hops(rate: int, sounds: Any, figure: Figure) -> None:
    loud, quiet = sounds.noise(14.0, 0.1, rate), sounds.noise(2.0, 0.0001, rate)
    clip = sounds.join(loud, quiet, loud)
    assert figure(clip, "speech_time")[0] == pytest.approx(30.0, abs=0.011)
    assert figure(clip, "longest_pause")[0] == pytest.approx(2.0, abs=0.03)


def test_click_is_not_speech(spoken: Clip, sounds: Any, figure: Figure) -> None:
    samples = np.array(spoken.samples)
    samples[round(1.55 * 48_000) :][:200] = 0.3  # 4 ms in the middle of the first pause
    assert figure(sounds.clip(samples), "pause_time")[0] == pytest.approx(1.3, abs=0.05)


def test_word_rate_includes_pauses(spoken: Clip, figure: Figure) -> None:
    text = "Don't stop: the birch canoe slid on the smooth-planed planks, twelve."
    assert figure(spoken, "word_rate", text=text)[0] == pytest.approx(12 / 4.2, rel=0.02)
    timed = Clip(spoken.samples, spoken.rate, words=Words((WordTime("one", 0.3, 1.0), WordTime("two", 2.0, 3.0))))
    assert figure(timed, "word_rate")[0] == pytest.approx(2 / 4.2, rel=0.02)


def test_syllable_rate_excludes_pauses(spoken: Clip, figure: Figure) -> None:
    # Seven words of one syllable each, and one of three.
    text = "The birch bark slid on the lake yesterday"
    assert figure(spoken, "syllable_rate", text=text)[0] == pytest.approx(10 / 2.9, rel=0.03)
    assert figure(spoken, "syllable_rate", text="今天天气很好。")[0] == pytest.approx(6 / 2.9, rel=0.03)


@pytest.mark.parametrize(
    ("word", "count"),
    [
        *[("the", 1), ("planks", 1), ("canoe", 2), ("smooth", 1), ("table", 2), ("wanted", 2), ("walked", 1)],
        *[("rhythm", 2), ("boxes", 2), ("makes", 1), ("syllable", 3), ("b", 1), ("yesterday", 3), ("sunset", 2)],
        *[("cities", 2), ("series", 2), ("agreed", 2), ("proceed", 2), ("watches", 2), ("hundred", 2), ("tables", 2)],
        *[("settled", 2), ("called", 1), ("while", 1), ("going", 2), ("radio", 3), ("nation", 2), ("usual", 3)],
        *[("didnt", 2), ("marriage", 2), ("special", 2), ("guard", 1), ("prism", 2)],
    ],
)
def test_syllables_of_english_spelling(word: str, count: int) -> None:
    assert _syllables(word) == count


def test_syllables_agree_with_the_cmu_dictionary() -> None:
    spoken: dict[str, set[int]] = {}
    for line in Path(get_model_path("en-us/cmudict-en-us.dict")).read_text(encoding="utf-8").splitlines():
        entry, *phones = line.split()
        word = re.sub(r"\(\d+\)$", "", entry).replace("'", "")
        if word.isalpha():
            spoken.setdefault(word, set()).add(sum(phone[0] in "AEIOU" for phone in phones))
    assert len(spoken) > 120_000
    right = [_syllables(word) in spoken[word] for word in sorted(spoken)[::4]]
    assert np.mean(right) > 0.91
    words = [word for word in split_words(HELDOUT.read_text(encoding="utf-8")) if word in spoken]
    ours = sum(map(_syllables, words))
    theirs = sum(min(spoken[word], key=lambda count: abs(count - _syllables(word))) for word in words)
    assert ours / theirs == pytest.approx(1.0, abs=0.005)


def test_undefined_rates_have_reasons(spoken: Clip, sounds: Any, figure: Figure) -> None:
    assert "words are unknown" in figure(spoken, "word_rate")[1]
    assert "text is unknown" in figure(spoken, "syllable_rate")[1]
    assert "digits" in figure(spoken, "syllable_rate", text="1984 für")[1]
    value, reason = figure(sounds.clip(np.zeros(48_000)), "pauses")
    assert math.isnan(value)
    assert reason == "pauses: the clip is silent"
