from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from voicelab.backend import Capabilities, VoicePreset
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
from voicelab.schema import Author, SampleEntity, TTSRequest, VoiceModel

SECRET = "this-is-the-account's-key"


def html(value: object) -> str:
    outputs = value._repr_mimebundle_()  # type: ignore[attr-defined]
    assert outputs["text/plain"] == repr(value)
    return str(outputs["text/html"])


def test_capabilities_are_a_table_and_list_the_voices() -> None:
    voices = (VoicePreset("ada", "Ada", "low & calm"),)
    known = Capabilities("tones", ("s1", "s2-pro"), "cpu", "exact", "tones-1", voices=voices, max_text=20_000)
    said = html(known)
    for part in ("tones on cpu", "s1, s2-pro", "exact", "20,000 characters", "low &amp; calm", "tones-1"):
        assert part in said
    assert "price" not in said, "what is not known is not shown"
    assert "3.5 per million bytes" in html(
        Capabilities("a", ("s1",), "remote", "none", "b", price_per_million_bytes=3.5)
    )


def test_a_voice_shows_what_to_call_it_by() -> None:
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


def test_an_invalid_request_is_a_table_of_its_fields() -> None:
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


def test_other_errors_say_their_sentence_and_what_to_do() -> None:
    said = html(ServiceError("out of <order>", status=503, request_id="r-17"))
    for part in ("ServiceError", "out of &lt;order&gt;", "503", "r-17"):
        assert part in said
    assert "pip install 'jupyter-voicelab[local]'" in html(MissingExtra.of("local", "the embedded voice"))
    assert "EngineError" in html(EngineError("it broke"))


def test_no_body_of_an_answer_is_shown() -> None:
    body = f'{{"message": "key {SECRET} is wrong"}}'.encode()
    errors: list[VoicelabError] = [
        AuthenticationError("the key is not accepted", status=401, body=body),
        RequestInvalid((FieldError(("body", "text"), "t", "m", in_="body"),), body=body),
        StreamTruncated("cut off", partial=body, body=body),
    ]
    for error in errors:
        assert SECRET not in json.dumps(error._repr_mimebundle_())


def test_a_value_says_itself_in_plain_text_where_no_view_can_be_loaded(tmp_path: Path) -> None:
    # A real import that really fails: ipywidgets and matplotlib are found, and are not there.
    for name in ("anywidget", "matplotlib"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name={name!r})\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import voicelab\n"
        "import numpy as np; from voicelab.audio.clip import Clip; c = Clip(np.zeros(9, np.float32), 8000)\n"
        "print(sorted(c._repr_mimebundle_()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "['text/plain']\n"


def test_showing_an_error_loads_no_view_before_it_is_shown() -> None:
    code = (
        "import sys; from voicelab.errors import EngineError; e = EngineError('x')\n"
        "print([m for m in sys.modules if m.startswith('voicelab.views')]); print('text/html' in e._repr_mimebundle_())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["[]", "True"]
