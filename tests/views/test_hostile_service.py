"""What a hostile service says (titles, notes, errors, word times, names) stays text: no markup, no code, no path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import ipywidgets
import pytest
from typer.testing import CliRunner

from tests.backends.conftest import QUICK, RECORD, Script, reply, script  # noqa: F401 - a fixture
from tests.sweeps.test_sweep import sweep
from tests.tones import ToneBackend
from voicelab.audio.words import Words, WordTime
from voicelab.backends.service import ServiceBackend
from voicelab.call import Call
from voicelab.cli import app
from voicelab.clip import Take, Timing
from voicelab.errors import RequestInvalid, ServiceError
from voicelab.lab import Lab
from voicelab.schema import TTSRequest
from voicelab.views.voice_panel import _record_html

EVIL = (
    "\"'><evil onload=evil>&lt;evil&gt;</td></script><script>evil()</script><img src=x onerror=evil> "
    "[link=evil]../../evil[/] \x1b]8;;evil\x07\x9b2J"
)
ACTS = ("application/javascript", "text/latex", "text/markdown")


class _Reader(HTMLParser):
    """Fails at an element or an attribute that nobody of ours writes."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"evil", "script", "iframe", "object", "style", "svg", "link"}
        for name, value in attrs:
            assert "evil" not in name
            if name.startswith("on") or name in {"href", "src"}:
                assert "evil" not in (value or "")
                assert value != "x"


def harmless(html: str) -> None:
    reader = _Reader()
    reader.feed(html)
    reader.close()


def shown(value: Any) -> str:
    """Check a value's outputs in a notebook, and return their HTML."""
    outputs: dict[str, Any] = value._repr_mimebundle_()
    assert not set(ACTS) & set(outputs)
    harmless(outputs["text/html"])
    return str(outputs["text/html"])


def everywhere(value: Any) -> Any:
    """The same JSON with the hostile text in place of every text that the interface leaves open."""
    if isinstance(value, dict):
        fixed = ("state", "type", "visibility", "created_at", "updated_at", "seed")
        return {key: one if key in fixed else everywhere(one) for key, one in value.items()}
    return [everywhere(one) for one in value] if isinstance(value, list) else EVIL if isinstance(value, str) else value


@pytest.fixture
def backend(script: Script) -> Iterator[ServiceBackend]:  # noqa: F811 - the fixture
    health = {
        "name": "x", "seed": "exact", "models": ["s1"], "voices": [{"id": "a", "title": "a", "description": "a"}],
        "languages": ["en"], "fingerprint": "x", "fields": [{"field": "top_p", "ignored": "why"}],
    }  # fmt: skip
    body = json.dumps({"status": "ready", "backend": {**everywhere(health), "models": ["s1"]}}).encode()
    script.health = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with ServiceBackend(script.url, "key-1", retry=QUICK) as one:
        yield one


def test_what_it_declares_and_the_record_of_a_voice(script: Script, backend: ServiceBackend) -> None:  # noqa: F811
    assert "evil" in shown(backend.capabilities)
    samples = [{"title": "t", "text": "x", "task_id": "", "audio": "a"}]
    record = {
        **json.loads(RECORD),
        "samples": samples,
        "tags": ["t"],
        "languages": ["en"],
        "cover_image": "x",
        "description": "d",
    }
    script.acts = [reply(200, json.dumps(everywhere(record)).encode(), content_type="application/json")]
    voice = backend.get_voice("a")
    assert "evil" in shown(voice)
    harmless(_record_html(voice))


def test_errors(script: Script, backend: ServiceBackend) -> None:  # noqa: F811
    item = {"loc": ["body", EVIL], "type": EVIL, "msg": EVIL, "ctx": {EVIL: EVIL}, "in": EVIL}
    script.acts = [
        reply(422, json.dumps([item]).encode(), content_type="application/json"),
        reply(402, json.dumps({"status": 402, "message": EVIL}).encode(), content_type="application/json"),
        reply(402, EVIL.encode(), content_type="text/html"),
    ]
    for kind in (RequestInvalid, ServiceError, ServiceError):
        with pytest.raises(kind) as caught:
            backend.get_voice("a")
        assert "evil" in shown(caught.value)
        assert not {"\x1b", "\x07", "\x9b"} & set(str(caught.value))


def test_a_clip_its_notes_and_words() -> None:
    audio = bytes(48_000)
    call = Call(TTSRequest(text=EVIL, format="pcm", sample_rate=24_000), knobs=((EVIL, EVIL),))
    clip = Take(call, audio, Timing(0.1, 0.2, ((0.1, len(audio)),)), EVIL, EVIL, notes=(EVIL,)).clip()
    clip = replace(clip, words=Words((WordTime(EVIL, 0.0, 0.5),), 1.0))
    assert shown(clip).count("evil") > 2
    assert "evil" in shown(clip.take)
    assert "evil" in shown(clip.words)


def test_a_sweep_that_it_fails(tmp_path: Path) -> None:
    def fail(_: int) -> None:
        raise ServiceError(EVIL)

    result = sweep(ToneBackend(fail), {"text": ["Oh.", EVIL]}).run(tmp_path / "run")
    shown(result)
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_panels(script: Script, backend: ServiceBackend) -> None:  # noqa: F811
    lab = Lab(backend)
    for panel in (lab.panel(), lab.panel(compact=True)):
        for one in _all(panel):
            if isinstance(one, ipywidgets.HTML):
                harmless(one.value)


def _all(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _all(child)


def test_a_terminal_is_not_commanded(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("VOICELAB_BASE_URL", script.url)
    monkeypatch.setenv("VOICELAB_API_KEY", "key-1")
    record = json.dumps(everywhere(json.loads(RECORD)), ensure_ascii=False).encode()
    script.acts = [reply(200, record, content_type="application/json"), reply(402, EVIL.encode())]
    for status in (0, 2):
        done = CliRunner().invoke(app, ["voices", "show", "a"])
        assert done.exit_code == status, done.output
        assert "evil" in done.output
        assert not {"\x1b", "\x07", "\x9b"} & set(done.output)
