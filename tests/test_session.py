from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from IPython.core.completer import provisionalcompleter

from tests.tones import Keeper, ToneBackend, there
from voicelab.backends.service import ServiceBackend
from voicelab.call import VoicePreset, bare_type, speech_keywords
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, NotFound, RequestInvalid
from voicelab.lab import Lab, SweepFields, connect
from voicelab.schema import ProsodyControl, ReferenceAudio
from voicelab.session import SpeechFields


class Recorder(Keeper):
    """Also counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def backend() -> Recorder:
    return Recorder()


@pytest.fixture
def lab(backend: Recorder) -> Lab:
    return Lab(backend)


def test_references_are_paths_and_clips_too(lab: Lab, tmp_path: Path) -> None:
    clip = lab.speak("[angry] Yes.")
    file = clip.save(tmp_path / "yes.wav")
    kept = there(lab.request("a", references=[file, clip]).references)
    assert [one.text for one in kept] == ["", "Yes."]
    assert Clip.load(tmp_path / "yes.wav").duration == pytest.approx(clip.duration, abs=0.01)
    assert kept[0].audio == (tmp_path / "yes.wav").read_bytes()
    assert lab.with_defaults(references=str(tmp_path / "yes.wav")).request("a").references == kept[:1]
    several = lab.sweep("a", references={"file": file, "both": [file, clip]}).grid.cells
    assert [len(cell.call.request.references or ()) for cell in several] == [1, 2]
    with pytest.raises(RequestInvalid, match=r"^references: .*none.wav cannot be read: No such file"):
        lab.speak("a", references=tmp_path / "none.wav")
    with pytest.raises(RequestInvalid, match=r"^voices: none.wav cannot be read: No such file"):
        lab.create_voice("Ada", "none.wav")


def test_speak_asks_for_wav_and_otherwise_for_the_interfaces_defaults(lab: Lab, backend: Recorder) -> None:
    clip = lab.speak("Hello", seed=3)
    (request, model, seed), *_ = backend.asked
    assert (request.format, request.temperature, request.latency, model, seed) == ("wav", 0.7, "normal", "s2-pro", 3)
    assert there(clip.take).seed == 3
    assert len(clip) == 5 * 1200 * 44100 // 24000


def test_a_field_overrides_a_default_and_defaults_pile_up(backend: Recorder) -> None:
    base = Lab(backend, temperature=0.2, seed=5, model="s1")
    base.with_defaults(top_p=0.3, voice="ada").speak("a", temperature=0.9)
    ((request, model, seed),) = backend.asked
    assert (request.temperature, request.top_p, request.reference_id, model, seed) == (0.9, 0.3, "ada", "s1", 5)
    assert "top_p" not in base.defaults
    assert base.with_defaults(temperature=None).request("a").temperature == 0.7
    with pytest.raises(RequestInvalid, match="text"):
        base.with_defaults(text="a")  # type: ignore[call-arg]
    # None in a call is the default for what stands beside the request.
    beside = base.with_defaults(voice="ada").call("a", seed=None, model=None, voice=None)
    assert (beside.seed, beside.model, beside.request.reference_id) == (5, "s1", "ada")


def test_speed_and_volume_are_those_of_prosody(backend: Recorder) -> None:
    lab = Lab(backend, speed=1.5, volume=-3)
    assert lab.request("Hello").prosody == ProsodyControl(speed=1.5, volume=-3)
    assert lab.request("Hello", speed=0.8).prosody == ProsodyControl(speed=0.8, volume=-3)
    assert lab.with_defaults(speed=None).request("Hello").prosody == ProsodyControl(volume=-3)
    assert lab.with_defaults(speed=2).request("Hello", prosody={"volume": 6}).prosody == ProsodyControl(volume=6)
    lab.speak("Hello", speed=1.1)
    assert backend.asked[-1][0].prosody == ProsodyControl(speed=1.1, volume=-3)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"speed": 9}, "speed"),
        ({"prosody": {"speed": 9}}, "prosody.speed"),
        ({"volume": 1, "prosody": {"speed": 2}}, "volume"),
    )
    for fields, name in wrong:
        with pytest.raises(RequestInvalid) as caught:
            lab.request("Hello", **fields)
        assert [item.field for item in caught.value.errors] == [name]


def test_errors_name_what_was_typed_and_suggest_a_voice() -> None:
    lab = Lab(ToneBackend())
    with pytest.raises(RequestInvalid, match=r"^voice: There is no such voice; did you mean ada\?$"):
        lab.speak("Hello", voice="adda")
    with pytest.raises(RequestInvalid, match=r"^voice: There is no such voice; did you mean ada\?$"):
        lab.speak("Hello", voice="Ada")
    lab = Lab(Keeper())
    made = lab.create_voice("Grandma", b"RIFF")
    with pytest.raises(RequestInvalid, match=f"; the voice 'Grandma' has the id '{made.id}'$"):
        lab.speak("Hello", voice="Grandma")
    lab = Lab(ToneBackend())
    with pytest.raises(RequestInvalid, match=r"^reference_id: There is no such voice"):
        lab.speak("Hello", reference_id="nobody")


def test_the_fields_are_completed_and_voices_are_had_by_name() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    try:
        shell.user_ns["lab"] = lab = Lab(ToneBackend())
        with provisionalcompleter():
            for line in ("lab.speak('x', temp", "lab.stream('x', spee", "lab.sweep('x', voi"):
                assert any(one.text.endswith("=") for one in shell.Completer.completions(line, len(line))), line
        ran = shell.run_cell("lab.speak('x', temprature=1)")  # type: ignore[no-untyped-call]
        wrong = ran.error_in_exec
        assert isinstance(wrong, RequestInvalid)
        assert wrong._render_traceback_() == ["line 1: lab.speak('x', temprature=1)", f"RequestInvalid: {wrong}"]
        shell.run_line_magic("xmode", "Verbose")
        assert len(wrong._render_traceback_()) > 2
        shell.run_line_magic("xmode", "Context")
    finally:
        InteractiveShell.clear_instance()
    assert lab.voices.ada == lab.voices["ada"] == lab.voices[0]
    assert "<td" in lab.voices._repr_mimebundle_()["text/html"]
    with pytest.raises(ArgumentError, match="available: ada, ben"):
        lab.voices["xyz"]
    with pytest.raises(ArgumentError, match=r"voice: unknown voice 'Adda'; did you mean ada\?"):
        lab.voices["Adda"]
    assert not hasattr(lab.voices, "_repr_png_")


@pytest.mark.parametrize("voice", ["ben", VoicePreset("ben", "Ben")])
def test_a_voice_by_id_or_by_itself(lab: Lab, backend: Recorder, voice: str | VoicePreset) -> None:
    lab.speak("a", voice=voice)
    lab.speak("a", voice=lab.create_voice("Ben", b"RIFF"))
    assert [request.reference_id for request, _, _ in backend.asked] == ["ben", backend.made[0].id]


def test_who_speaks_in_the_call_replaces_who_speaks_by_default(backend: Recorder) -> None:
    lab = Lab(backend, voice="ada")
    reference = ReferenceAudio(audio=b"RIFF", text="a")
    assert lab.request("a").reference_id == "ada"
    assert lab.request("a", voice="ben").reference_id == "ben"
    assert lab.request("a", reference_id=None).reference_id is None
    cloned = lab.request("a", references=[reference])
    assert (cloned.reference_id, cloned.references) == (None, (reference,))


def test_who_speaks_by_new_defaults_replaces_who_spoke_by_the_old(backend: Recorder) -> None:
    reference = ReferenceAudio(audio=b"RIFF", text="a")
    cloned = Lab(backend, voice="ada").with_defaults(references=[reference])
    assert (cloned.request("a").reference_id, cloned.request("a").references) == (None, (reference,))
    assert cloned.with_defaults(voice="ben").request("a").references is None
    assert Lab(backend, voice="ada").with_defaults(reference_id="ben").request("a").reference_id == "ben"
    # What is taken away, or says nothing of who speaks, leaves it.
    assert Lab(backend, voice="ada").with_defaults(references=None, top_p=0.5).request("a").reference_id == "ada"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"temperature": 1.5}, "temperature"),
        ({"temprature": 0.5}, "temprature"),
        ({"voice": "ada", "reference_id": "ben"}, "reference_id"),
        ({"voice": 7}, "voice"),
        ({"voice": ""}, "voice"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"model": "s3"}, "model"),
    ],
)
def test_a_bad_field_is_named_before_anything_runs(
    lab: Lab, backend: Recorder, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestInvalid, match=field):
        lab.speak("a", **fields)
    with pytest.raises(RequestInvalid, match=field):
        lab.with_defaults(**fields)
    assert backend.asked == []


def test_a_backend_without_seeds_refuses_one() -> None:
    lab = Lab(ToneBackend(seed="none"))
    with pytest.raises(RequestInvalid, match="seed"):
        lab.speak("a", seed=1)
    with pytest.raises(RequestInvalid, match="seed"):
        lab.with_defaults(seed=1)
    assert lab.speak("a").duration > 0


def test_create_voice_takes_paths_bytes_and_clips_and_is_private(lab: Lab, backend: Recorder, tmp_path: Path) -> None:
    clip = lab.speak("a")
    path = clip.save(tmp_path / "a.wav")
    lab.create_voice("Ada", [path, str(path), path.read_bytes(), clip], texts=["a"] * 4)
    assert backend.created is not None
    assert set(backend.created.voices) == {path.read_bytes()}
    assert (backend.created.visibility, len(backend.created.voices)) == ("private", 4)
    lab.create_voice("Ada", clip, texts="a")
    assert backend.created.texts == ("a",)
    assert Clip.load(backend.created.voices[0]) == clip


def test_the_transcript_of_a_whole_take_is_known(lab: Lab, backend: Recorder) -> None:
    clip = lab.speak("[angry] Yes, of course.")
    for recordings, texts in (
        (clip, ("Yes, of course.",)),
        ([clip.resample(16_000)], ("Yes, of course.",)),
        (clip.slice(0.0, 0.3), ()),  # the text of a part is unknown
        ([clip, b"RIFF"], ()),
        (Clip(clip.samples, clip.rate), ()),
    ):
        lab.create_voice("Ada", recordings)  # type: ignore[arg-type]  # a list of mixed types
        assert there(backend.created).texts == texts
    assert there(lab.request("a", references=clip.slice(0.0, 0.3)).references)[0].text == ""


def test_a_backend_that_lists_no_voices_has_those_that_the_lab_made(lab: Lab) -> None:
    assert lab.stored_voices() == ()
    made = lab.with_defaults(seed=1).create_voice("Ada", b"RIFF")
    assert lab.stored_voices() == (made,)


def test_a_backend_that_cannot_delete_voices_says_so(lab: Lab) -> None:
    with pytest.raises(RequestInvalid, match="the backend 'tones' does not support deleting voices"):
        lab.delete_voice(lab.create_voice("Ben", b"RIFF"))


def test_an_unknown_voice_is_not_found(lab: Lab) -> None:
    with pytest.raises(NotFound):
        lab.get_voice("nobody")


def test_leaving_the_block_closes_the_backend(backend: Recorder) -> None:
    with Lab(backend) as lab:
        assert lab.backend is backend
    assert backend.closed == 1


def test_the_repr_is_stable_and_short(backend: Recorder) -> None:
    long = ReferenceAudio(audio=b"secret" * 1000, text="t" * 1000)
    assert repr(Lab(backend, temperature=0.2)) == "Lab(tones on cpu, 2 voices, temperature=0.2)"
    assert len(repr(Lab(backend, references=[long]))) < 100


def test_two_threads_may_speak_at_once(lab: Lab) -> None:
    clips: dict[int, Clip] = {}
    threads = [threading.Thread(target=lambda n=n: clips.update({n: lab.speak("Hello", seed=n)})) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(clips[n] == lab.speak("Hello", seed=n) for n in range(4))


def test_connect_takes_the_service_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("VOICELAB_API_KEY", "planted-secret")
    with connect(temperature=0.1) as lab:
        assert isinstance(lab.backend, ServiceBackend)
        assert "planted-secret" not in repr(lab) + repr(lab.backend) + str(lab.capabilities)
        assert lab.request("a").temperature == 0.1


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"api_key": "k"}, "api_key"),
        ({"backend": "http://127.0.0.1:9", "device": "cpu"}, "device"),
        ({"model": "s3"}, "model"),
        ({"top_p": 2}, "top_p"),
    ],
)
def test_connect_refuses_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], field: str
) -> None:
    monkeypatch.delenv("VOICELAB_BASE_URL", raising=False)
    with pytest.raises(RequestInvalid, match=field):
        connect(**arguments)


def test_speech_fields_have_the_names_and_types_of_the_schema() -> None:
    hints = get_type_hints(SpeechFields)
    keywords = speech_keywords()
    assert set(hints) == set(keywords)
    assert set(SweepFields.__annotations__) == {*keywords} - {"seed"}
    for name, (annotation, _, description) in keywords.items():
        assert description
        assert f"    {name}: {description}" in (Lab.speak.__doc__ or "")
        assert type(None) in get_args(hints[name]), name
        if name not in ("references", "prosody", "voice"):  # these also take paths, mappings and presets
            assert hints[name] == bare_type(annotation) | None, name


SNIPPET = """
from typing import Any

import voicelab as vl

lab = vl.connect(voice="marlow", {wrong}top_p=None)
knobs: dict[str, Any] = {{"noise_scale": 0.3}}
clip: vl.Clip = lab.speak("Yes.", {wrong}seed=1, references="a.wav", **knobs)
lab.with_defaults({wrong}speed=None).stream("Yes.", {wrong}volume=-3)
lab.call("Yes.", {wrong}latency="low")
lab.sweep("Yes.", {swept}latency=["low", "normal"], speed="0.8..1.2 step 0.1", voice={{"a": "marlow"}}, extra=knobs)
{attribute}
"""
# Argument, and the error of mypy at each call. "hot" could be the range of a sweep.
WRONG = {"temprature=0.5, ": "call-arg", "temperature='hot', ": "arg-type", "normalize='yes', ": "arg-type"}


@pytest.mark.thorough
def test_type_checkers_reject_unknown_and_mistyped_fields(tmp_path: Path) -> None:
    fillings = [{"wrong": "", "swept": "", "attribute": "clip.rate"}]
    fillings += [{"wrong": wrong, "swept": wrong.replace("'hot'", "print"), "attribute": "clip.sr"} for wrong in WRONG]
    files = [tmp_path / f"snippet_{index}.py" for index in range(len(fillings))]
    for file, filling in zip(files, fillings, strict=True):
        file.write_text(SNIPPET.format(**filling))
    mypy = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *map(str, files)]
    ran = subprocess.run(mypy, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    found = [line for line in ran.stdout.splitlines() if "snippet_" in line and ": error:" in line]
    assert not [line for line in found if "snippet_0" in line], ran.stdout
    for index, code in enumerate(WRONG.values(), 1):
        errors = [line for line in found if f"snippet_{index}" in line]
        assert len([line for line in errors if f"[{code}]" in line]) == 6, errors
        assert any('"sr"  [attr-defined]' in line for line in errors), errors
