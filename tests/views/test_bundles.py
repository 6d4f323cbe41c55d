from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.tones import ToneBackend, there
from voicelab.call import Knob, VoicePreset
from voicelab.capabilities import Capabilities, FieldSupport, Price
from voicelab.clip import Clip
from voicelab.distribution import install_command
from voicelab.errors import (
    AuthenticationError,
    EngineError,
    FieldError,
    MissingExtra,
    RequestInvalid,
    ServiceError,
    StreamTruncated,
    VoicelabError,
)
from voicelab.lab import Lab
from voicelab.schema import Author, SampleEntity, TTSRequest, VoiceModel
from voicelab.stats import effects
from voicelab.views.bundles import caption, clip_bundle, clip_picture, clip_text, effects_bundle, embedded_audio

RATE = 24_000


def tone(seconds: float = 1.0, level: float = 0.1, notes: tuple[str, ...] = ()) -> Clip:
    time = np.arange(int(seconds * RATE)) / RATE
    return Clip((level * np.sin(2 * np.pi * 220 * time)).astype(np.float32), RATE, loading_notes=notes)


class Page(HTMLParser):
    """The elements of a piece of HTML, with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: dict[str, dict[str, str | None]] = {}
        self.said = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] = dict(attrs)

    def handle_data(self, data: str) -> None:
        self.said += data

    def data(self, tag: str) -> bytes:
        source = self.elements[tag]["src"] or ""
        return base64.b64decode(source.partition("base64,")[2], validate=True)


def test_clip_output_has_audio_picture_and_text() -> None:
    clip = tone()
    bundle = clip._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    page = Page(bundle["text/html"])
    assert page.data("img") == base64.b64decode(bundle["image/png"])
    assert "controls" in page.elements["audio"]
    assert "source" not in page.elements, "an untrusted notebook would strip it"
    assert "1.00 s · 24000 Hz" in page.said


def test_embedded_audio_has_the_level_of_the_clip() -> None:
    clip = tone(level=0.1)
    heard = Clip.load(Page(clip_bundle(clip)["text/html"]).data("audio"))
    assert heard.duration == pytest.approx(clip.duration, abs=0.1)
    middle = heard.slice(0.3, 0.7)
    # LAME's presets take 0.45 dB off; peak normalisation would have put 20 dB on.
    assert middle.level == pytest.approx(clip.level, abs=0.6)


def test_ipython_audio_is_not_normalized_and_accepts_options() -> None:
    clip = tone(level=0.1)
    audio = clip.audio(autoplay=True)
    assert type(audio).__module__ == "IPython.lib.display"
    heard = Clip.load(audio.data)
    assert heard.peak == pytest.approx(0.1, abs=1e-4)
    assert np.abs(heard.samples - clip.samples).max() <= 1 / 65536 + 1e-7
    assert audio.autoplay
    assert 'type="audio/wav"' in audio._repr_html_()


def test_outputs_are_reproducible_across_processes() -> None:
    code = (
        "import hashlib, json, numpy as np; from voicelab.clip import Clip; "
        "from voicelab.views.bundles import clip_bundle; t = np.arange(24000) / 24000; "
        "c = Clip((0.1 * np.sin(2 * np.pi * 220 * t)).astype(np.float32), 24000); "
        "print(hashlib.sha256(json.dumps(clip_bundle(c)).encode()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert other.strip() == hashlib.sha256(json.dumps(clip_bundle(tone())).encode()).hexdigest()
    assert clip_bundle(tone()) == clip_bundle(tone())
    assert clip_bundle(tone()) != clip_bundle(tone(level=0.2))


def test_output_is_self_contained_and_leaves_no_figure_open() -> None:
    from matplotlib import pyplot as plt

    others = plt.get_fignums()
    html = re.sub('base64,[^"]+', "", clip_bundle(tone(notes=("2 <symbols> were left out",)))["text/html"])
    assert plt.get_fignums() == others
    assert "2 &lt;symbols&gt; were left out" in html
    assert "http" not in html
    assert " id=" not in html
    assert "<script" not in html


def test_long_clips_are_truncated_to_the_budget_with_a_note() -> None:
    html = clip_bundle(tone(2.0))["text/html"]
    assert re.search(r"128 kbit/s, \d+ of 1024 KiB</span></div>", html)
    audio, said = embedded_audio(tone(18.0), 200_000)
    assert len(audio) <= 200_000
    assert said.startswith("mp3, 64 kbit/s")
    assert "only" not in said
    audio, said = embedded_audio(tone(20.0), 50_000)
    assert 45_000 < len(audio) <= 50_000
    seconds = there(re.search(r"only the first (\d+\.\d) s of 20\.0 s fit", said))
    assert Clip.load(base64.b64decode(audio)).duration == pytest.approx(float(seconds[1]), abs=0.15)
    with pytest.raises(RequestInvalid, match="budget"):
        embedded_audio(tone(), 100)


def test_caption_lists_changed_settings() -> None:
    lab = Lab(ToneBackend())
    assert caption(lab.speak("One", voice="ada", seed=1)) == "0.15 s · ada · temperature 0.7 · seed 1"
    asked = lab.speak("One", temperature=0.2, speed=1.5, latency="low", seed=3)
    assert caption(asked) == "0.15 s · default voice · temperature 0.2 · latency low · speed 1.5 · seed 3"
    assert caption(tone()) == "1.00 s · 24000 Hz"
    assert caption(asked) in clip_bundle(asked)["text/html"]


def test_text_has_rounded_figures() -> None:
    assert re.fullmatch(
        r"Clip\(1\.00 s, 24000 Hz, -23 dBFS, F0 220 Hz, mel (-\d+ ){7}-\d+ dB\)", clip_text(tone(level=0.1))
    )
    assert clip_text(tone(level=0.1)) == clip_text(tone(level=0.1 + 1e-6))
    assert "(first 60 s)" in clip_text(Clip(np.zeros(61 * 1000, np.float32), 1000))


def test_picture_is_small_transparent_and_readable_on_both_themes() -> None:
    data = base64.b64decode(clip_picture(tone()))
    assert len(data) < 60_000
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    assert image.size == (640, 260)
    assert image.getpixel((1, 1))[3] == 0  # type: ignore[index]
    pixels = np.asarray(image).reshape(-1, 4)
    ink = pixels[(pixels[:, 3] > 250) & (np.ptp(pixels[:, :3].astype(int), axis=1) < 6)]
    assert len(ink) > 200
    # The axes' lines and letters: neither white on a white page nor black on a dark one.
    assert 100 <= np.median(ink[:, 0]) <= 140


@pytest.mark.parametrize("samples", [0, 1, RATE])
def test_silent_and_empty_clips_have_outputs(samples: int) -> None:
    bundle = clip_bundle(Clip(np.zeros(samples, np.float32), RATE))
    assert "-inf dBFS, unvoiced" in bundle["text/plain"]
    assert "nan" not in bundle["text/html"].lower().replace(Page(bundle["text/html"]).elements["img"]["src"] or "", "")


SECRET = "this-is-the-account's-key"


def html(value: object) -> str:
    outputs = value._repr_mimebundle_()  # type: ignore[attr-defined]
    assert outputs["text/plain"] == repr(value)
    return str(outputs["text/html"])


def test_presets_have_samples_if_synthesis_is_free() -> None:
    backend = ToneBackend(prices=())
    said = html(Lab(backend).voices)
    assert said.count("<audio") == len(backend.asked) == len(backend.capabilities.voices) == 2
    assert {request.reference_id for request, _, _ in backend.asked} == {"ada", "ben"}
    for unknown in (ToneBackend(), ToneBackend(prices=(Price(3.5),))):
        assert "<audio" not in html(Lab(unknown).voices)
        assert unknown.asked == []


def test_presets_without_samples_state_the_reason() -> None:
    lab = Lab(ToneBackend(lambda _: out_of_breath(), prices=()))
    said = html(lab.voices)
    assert "<audio" not in said
    assert "ada" in said
    assert "No samples: out of breath" in said


def out_of_breath() -> None:
    raise EngineError("out of breath")


def test_take_output_has_provenance() -> None:
    take = there(Lab(ToneBackend()).speak("Hello <you>.", voice="ada", temperature=0.3, seed=9, speed=1.2).take)
    said = html(take)
    for part in ("Hello &lt;you&gt;.", "<td>0.3", "<td>9<", "ada", "1.2", "tones-1", take.digest, "first audio, s"):
        assert part in said.replace('<td style="text-align:left;vertical-align:top">', "<td>"), part


def test_capabilities_output_lists_fields_and_voices() -> None:
    voices = (VoicePreset("ada", "Ada", "low & calm"),)
    known = Capabilities("tones", ("s1", "s2-pro"), "cpu", "exact", "tones-1", voices=voices, max_text=20_000)
    said = html(known)
    for part in ("tones on cpu", "s1, s2-pro", "exact", "20,000 characters", "low &amp; calm", "tones-1"):
        assert part in said
    assert "price" not in said, "what is not known is not shown"
    fields = (FieldSupport("top_p", ignored="no sampling"), FieldSupport("prosody.speed", bounds=(0.8, 1.2)))
    knobs = (Knob("pep", "float", 0.5, "How lively it is.", (0.0, 1.0)),)
    said = html(Capabilities("a", ("s1",), "cpu", "none", "b", fields=fields, knobs=knobs))
    for part in ("top_p", "no effect: no sampling", "0.8 to 1.2", "pep", "float from 0 to 1", "How lively it is."):
        assert part in said
    assert "3.5 per million bytes" in html(Capabilities("a", ("s1",), "remote", "none", "b", prices=(Price(3.5),)))


def test_voice_output_has_its_id() -> None:
    moment = datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)
    voice = VoiceModel(
        id="0123abcd",
        title="<Ada>",
        state="trained",
        visibility="private",
        created_at=moment,
        updated_at=moment,
        languages=("en",),
        author=Author(id="1", nickname="me", avatar=""),
        samples=(SampleEntity(title="One", text="How now", task_id="t", audio="https://voice.example/one.mp3"),),
    )
    said = html(voice)
    for part in ("0123abcd", "&lt;Ada&gt;", "trained", "private", "2026-11-21 01:02:03 UTC", "How now"):
        assert part in said
    assert "voice.example" not in said, "a page must not fetch anything"


def test_invalid_request_output_is_a_table_of_fields() -> None:
    with pytest.raises(RequestInvalid) as caught:
        TTSRequest.build(text="x", temperature=3, top_p=-1)
    said = html(caught.value)
    assert len(caught.value.errors) == 2
    assert said.count("<tr>") == 3
    for item in caught.value.errors:
        assert f'<td style="text-align:left;vertical-align:top">{item.field}</td>' in said
    trick = RequestInvalid((FieldError(("body", "<script>"), "t", "<b>bad</b>", in_="body"),))
    assert "<script>" not in html(trick)
    assert "<b>bad" not in html(trick)


def test_error_output_has_message_and_remedy() -> None:
    said = html(ServiceError("out of <order>", status=503, request_id="r-17"))
    for part in ("ServiceError", "out of &lt;order&gt;", "503", "r-17"):
        assert part in said
    assert f"<pre>{install_command('gpu')}</pre>" in html(MissingExtra.of("gpu", "the device 'cuda'"))
    assert "EngineError" in html(EngineError("it broke"))


def test_error_output_omits_response_bodies() -> None:
    body = f'{{"message": "key {SECRET} is wrong"}}'.encode()
    errors: list[VoicelabError] = [
        AuthenticationError("the key is not accepted", status=401, body=body),
        RequestInvalid((FieldError(("body", "text"), "t", "m", in_="body"),), body=body),
        StreamTruncated("cut off", partial=body, body=body),
    ]
    for error in errors:
        assert SECRET not in json.dumps(error._repr_mimebundle_())


def test_effects_output_is_a_table_with_a_forest_plot() -> None:
    noise = np.random.default_rng(1).normal(size=(8, 30))
    names = [f"m{place}" for place in range(30)]
    frame = pd.DataFrame(noise, columns=names).assign(speed=np.repeat([1, 2], 4), loudness=-23.0, duration=range(8))
    shown = effects_bundle(effects(frame, "speed", ["loudness", "duration", *names]))
    rows = shown["text/html"].split("<tr>")[2:]
    assert len(rows) == 32
    assert '<b data-pick="duration">Duration, s</b><div>speed</div>' in rows[0], "what acts is first"
    assert "no difference" in rows[-1]
    assert '<p role="note">The figure omits 7 rows of the table.</p>' in shown["text/html"]
    assert shown["text/plain"].count("\n") == 32 + 1 + 4
    still = effects_bundle(effects(frame, "speed", "loudness"))
    assert "image/png" not in still, "there is nothing to draw"
    assert "<img" not in still["text/html"]
