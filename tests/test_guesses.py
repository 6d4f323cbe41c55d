"""Lines that a user of librosa, pandas and requests guesses: each works, or its error names the right name."""

from __future__ import annotations

import ast
import copy
import pickle
import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.io.wavfile

import voicelab as vl
from voicelab.errors import VoicelabError
from voicelab.guesses import GUESSES

WORKING = """
vl.connect("local")
vl.connect(voice="marlow", temperature=0.5, seed=1)
vl.connect(device="cpu", cache=folder / "cache")
vl.available_backends()
vl.__version__
dir(vl)
lab.speak("Yes.")
lab.speak(text="Yes.")
lab.speak("Yes.", voice="marlow")
lab.speak("Yes.", voice=lab.voices[1])
lab.speak("Yes.", voice=lab.voices.marlow)
lab.speak("Yes.", speed=1.5, volume=-6)
lab.speak("Yes.", seed=42)
lab.speak("Yes.", temperature=0)
lab.speak("Yes.", temperature=None)
lab.speak("Yes.", format="mp3")
lab.speak("Yes.", sample_rate=16000)
lab.speak("Yes.", **{"seed": 1, "top_p": 0.9})
lab.with_defaults(voice="marlow").speak("Yes.")
lab.with_defaults(seed=None)
next(iter(lab.stream("Yes.")))
list(lab.stream("Yes."))
lab.stream("Yes.").clip()
lab.call("Yes.", seed=1)
lab.voices
[voice.id for voice in lab.voices]
lab.voices["marlow"]
lab.capabilities.models
lab.defaults
help_text = lab.speak.__doc__
clip.samples
clip.rate
clip.duration
clip.peak, clip.level
clip.words
clip.take.seed
clip.audio()
clip.plot()
len(clip)
clip == copy.copy(clip)
pickle.loads(pickle.dumps(clip))
np.asarray(clip)
np.array(clip)
np.array(clip, dtype="float64")
np.abs(clip).max()
np.fft.rfft(clip)
np.concatenate([clip, other])
scipy.io.wavfile.write(folder / "scipy.wav", clip.rate, np.asarray(clip))
clip.resample(16000)
clip.slice(0.1, 0.2)
clip.save(folder / "saved.wav")
clip.save(str(folder / "saved.mp3"))
clip.to_bytes("wav")
vl.Clip.load(file)
vl.Clip.load(str(file))
vl.Clip(np.zeros(100, "float32"), 16000)
vl.Clip(np.asarray(clip) * 0.5, clip.rate)
pd.Series([clip, other]).map(lambda clip: clip.duration)
pd.DataFrame({"clip": [clip, other], "name": ["a", "b"]}).iloc[0]
vl.measure(clip)
vl.measure([clip, other])
vl.measure(clip, "duration")
vl.measure([clip], metrics=["loudness", "snr"])
vl.measure([clip, other])["duration"].mean()
vl.measure([clip, other]).to_csv(folder / "metrics.csv")
vl.METRICS["loudness"]
vl.compare(clip, other)
vl.compare([clip, other])
vl.compare((clip, other))
vl.compare({"cold": clip, "hot": other})
vl.compare(cold=clip, hot=other)
vl.compare(clip, other).metrics("duration")
lab.sweep("Yes.", temperature=[0.2, 0.8])
lab.sweep(["Yes.", "No."], speed=np.linspace(1, 2, 3))
lab.sweep("Yes.", temperature="0..1 step 0.5", repeats=3)
lab.sweep("Yes, {name}.", name=["Ann", "Bob"])
len(lab.sweep("Yes.", voice=["clara", "marlow"]))
result.frame()
result.frame(["duration", "level"])["level"].mean()
result.frame("duration").groupby("temperature")["duration"].mean()
result.takes[0].clip()
result.select(temperature=0.2)
vl.load(folder / "run")
vl.collect(folder / "*.wav")
lab.panel()
lab.panel("Yes.")
"""

ANSWERED = {
    'vl.speak("Yes.")': "vl.connect().speak(text)",
    'vl.tts("Yes.")': "vl.connect().speak(text)",
    "vl.play(clip)": "clip.audio()",
    "vl.display(clip)": "use IPython.display.display(clip)",
    "vl.analyse": "vl.analyze",
    "vl.measur": "did you mean measure?",
    "vl.Clip.from_file(file)": "vl.Clip.load(path)",
    "vl.Clip.lod(file)": "did you mean load?",
    "clip.sr": "did you mean rate?",
    "clip.sample_rate": "did you mean rate?",
    "clip.play()": "clip.audio()",
    'clip.to_wav("a.wav")': "clip.save(",
    "clip.numpy()": "clip.samples",
    "clip.shape": "clip.samples",
    "clip.length": "did you mean duration?",
    "clip.durations": "did you mean duration?",
    'lab.tts("Yes.")': "did you mean speak?",
    "lab.models": "lab.capabilities.models",
    "lab.explore()": "did you mean panel?",
    'lab.speak("Yes.", rate=1.5)': "did you mean speed?",
    'lab.speak("Yes.", speaker="marlow")': "did you mean voice?",
    'lab.speak("Yes.", language="en")': "use voice=",
    'lab.speak("Yes.", pitch=2)': "use another voice=",
    'lab.speak("Yes.", text_input="No.")': "did you mean text?",
    'lab.speak("Yes.", temprature=1)': "did you mean temperature?",
    'lab.speak("Yes.", sped=1)': "did you mean speed?",
    'lab.speak("Yes.", response_format="mp3")': "did you mean format?",
    'lab.speak("Yes.", temperature="hot")': "temperature: ",
    'lab.speak("Yes.", speed=9)': "speed: ",
    'lab.speak("Yes.", voice="marlo")': "did you mean marlow?",
    'lab.speak(text_input="Yes.")': "'text'",
    'lab.stream("Yes.", rate=1.5)': "did you mean speed?",
    'lab.sweep("Yes.", rate=[1, 1.5])': "did you mean speed?",
    "lab.with_defaults(speaker='marlow')": "did you mean voice?",
    "vl.connect(rate=1.5)": "did you mean speed?",
    'vl.connect("kokor")': "did you mean kokoro?",
    'vl.TTSRequest(text="Yes.", rate=2)': "prosody={'speed': …}",
    'vl.measure([clip], ["mos"])': "did you mean predicted_mos?",
    'vl.measure([clip], ["utmos"])': 'use "predicted_mos" with tools=Tools(predictor="utmos")',
    'vl.measure([clip], ["pitch"])': "did you mean f0_median?",
    'vl.measure([clip], ["loudnes"])': "did you mean loudness?",
    "vl.compare(clip)": "2 to 8 clips",
    "vl.compare(str(file), str(file))": "vl.load(path)",
    'vl.load_wav("a.wav")': "vl.Clip.load(path)",
    "vl.Client()": "vl.connect(address)",
    "vl.HTTPError": "did you mean ServiceError?",
    "vl.Timeout": "did you mean ServiceTimeout?",
    "vl.plot(clip)": "clip.plot()",
    "vl.wer(clip)": 'vl.measure(clip, ["wer"])',
    "vl.power(0.5)": "vl.plan_test",
    "vl.ttest(clip, other)": "vl.effects(",
    "vl.abx([clip, other])": "vl.ListeningTest(",
    'vl.read_csv("a.csv")': "vl.collect(path)",
    "vl.Clip.from_numpy(clip.samples, 44100)": "vl.Clip(samples, rate)",
    "clip.astype(float)": "clip.samples.astype",
    "vl.Clip(file)": "vl.Clip.load(path)",
    "vl.Clip(clip.samples, sr=44100)": "vl.Clip(samples, rate)",
    "vl.Clip.load(file, sr=16000)": "vl.Clip.load(path).resample(16000)",
    "vl.load(file, sr=16000)": "vl.load(path).resample(16000)",
    "clip.resample(target_sr=16000)": "clip.resample(16000)",
    "clip + other": "vl.Clip(np.concatenate([a, b]), a.rate)",
    "sum([clip, other])": "vl.Clip(np.concatenate([a, b]), a.rate)",
    "0.5 * clip": "vl.Clip(clip.samples * 0.5, clip.rate)",
    "vl.concat([clip, other])": "vl.Clip(np.concatenate([a, b]), a.rate)",
    "clip.words.to_frame()": "pd.DataFrame(clip.words)",
    "clip.words[0].word": "did you mean text?",
    "result.takes[0].samples": "take.clip().samples",
    "result.takes[0].play()": "take.clip().audio()",
    "vl.measure(clip.samples)": "vl.Clip(samples, rate)",
    'lab.speak(["Yes.", "No."])': "use lab.sweep(texts)",
    'vl.connect("localhost:8000")': "did you mean http://localhost:8000?",
    'vl.connect("my_tts.py")': "worker:PYTHON my_tts.py",
    'vl.connect("sh -c x")': "command:sh -c x {text}",
    'vl.connect("openai:localhost:8000")': "got 'localhost:8000'",
    "clip[:1000]": "clip.samples[…]",
    "samples, rate = clip": "clip.samples[…]",
    "clip.normalize()": "vl.Clip(clip.samples * 0.5, clip.rate)",
    "lab.voice": "did you mean voices?",
    'vl.connect(base_url="https://voice.example")': "vl.connect(address)",
    'vl.connect(token="abc")': "api_key=…",
    "vl.connect(timeout=10)": "vl.ServiceBackend(address, timeout=10)",
    'lab.sweep("Yes.", param_grid={"temperature": [0, 1]})': "lab.sweep(text, temperature=[0.2, 0.8])",
    'lab.sweep("Yes.", n_repeats=3)': "repeats=3",
    'result.to_csv("a.csv")': "table.df().to_csv",
    "result.head()": "table.df().head",
    "result.to_pandas()": "did you mean df?",
    'result["temperature"]': "table.df()[…]",
    "result.filter(temperature=0.2)": "did you mean select?",
    "result.anova()": "did you mean effects?",
    'result.rename(columns={"temperature": "t"})': "must be a key column",
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("guesses")
    lab = vl.connect()
    clip, other = lab.speak("Yes.", seed=1), lab.speak("No.", seed=2)
    result = lab.sweep("Yes.", temperature=[0.2, 0.8], cache=folder / "cache").run(folder / "run")
    modules = {"vl": vl, "np": np, "pd": pd, "scipy": scipy, "copy": copy, "pickle": pickle}
    file = clip.save(folder / "clip.wav")
    return {**modules, "folder": folder, "lab": lab, "clip": clip, "other": other, "result": result, "file": file}


def run(line: str, names: dict[str, Any]) -> None:
    exec(compile(ast.parse(line), line, "exec"), dict(names))  # noqa: S102 (lines of the tables above)


def test_at_least_65_of_80_guessed_lines_work() -> None:
    assert len(WORKING.split("\n")[1:-1]) >= 65
    assert len(set(WORKING.split("\n"))) + len(ANSWERED) >= 80


@pytest.mark.parametrize("line", WORKING.split("\n")[1:-1])
def test_a_guessed_line_works(line: str, names: dict[str, Any]) -> None:
    run(line, names)


@pytest.mark.parametrize(("line", "answer"), ANSWERED.items())
def test_a_guessed_line_is_answered_with_the_right_name(line: str, answer: str, names: dict[str, Any]) -> None:
    with pytest.raises((VoicelabError, AttributeError, TypeError)) as caught:
        run(line, names)
    assert answer in str(caught.value)


def test_a_clip_converts_to_an_array_of_its_samples(names: dict[str, Any]) -> None:
    clip: vl.Clip = names["clip"]
    assert np.array_equal(np.asarray(clip), clip.samples)
    assert np.asarray(clip, "float64").dtype == np.float64
    assert np.array(clip, copy=True).flags.writeable
    assert list(pd.Series([clip])) == [clip]
    with pytest.raises(vl.AudioError, match="copy"):
        clip.__array__(np.float64, copy=False)


def test_every_guess_of_an_attribute_is_no_attribute_and_its_answer_exists(names: dict[str, Any]) -> None:
    clip = names["clip"]
    owners: dict[str, Any] = {"voicelab": vl, "Clip": clip, "Lab": names["lab"], "TakeTable": names["result"]}
    owners |= {"Take": clip.take, "Words": clip.words, "WordTime": clip.words[0]}
    for kind, owner in owners.items():
        for guess, right in GUESSES[kind].items():
            # A subpackage is an attribute of the package once it is imported.
            assert isinstance(getattr(owner, guess, sys), ModuleType), (kind, guess)
            if right.isidentifier():
                assert hasattr(owner, right), (kind, guess, right)
    assert {right for right in GUESSES["metric"].values() if right.isidentifier()} <= set(vl.METRICS)
    keywords = vl.SpeechFields.__annotations__
    assert not set(GUESSES["speak"]) & set(keywords)
    assert {right for right in GUESSES["speak"].values() if right.isidentifier()} <= {*keywords, "text"}


def test_voices_of_the_package_are_those_of_a_lab() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import voicelab; voicelab.voices"], capture_output=True, text=True, check=False
    )
    assert "use vl.connect().voices" in ran.stderr
