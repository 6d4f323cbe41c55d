from __future__ import annotations

from typing import Any

import pytest
import typer.main

from voicelab.cli import app
from voicelab.schema import ProsodyControl, TTSRequest, VoiceCreate, WireModel

GROUP: Any = typer.main.get_command(app)
COMMANDS = {"say": GROUP.commands["say"], "create": GROUP.commands["voices"].commands["create"]}
OPTIONS = {
    command: {name: one for one in found.params for name in (*one.opts, *one.secondary_opts)}
    for command, found in COMMANDS.items()
}
FIELDS = [
    *((TTSRequest, name) for name in TTSRequest.model_fields if name not in {"text", "references", "prosody"}),
    *((ProsodyControl, name) for name in ProsodyControl.model_fields),
]
OF_VOICES = [
    (VoiceCreate, name) for name in VoiceCreate.model_fields.keys() - {"title", "voices", "type", "train_mode"}
]


@pytest.mark.parametrize(("model", "name"), [*FIELDS, *sorted(OF_VOICES, key=str)], ids=str)
def test_every_field_is_an_option_described_by_the_schema(model: type[WireModel], name: str) -> None:
    option = OPTIONS["create" if model is VoiceCreate else "say"]["--" + name.replace("_", "-")]
    field = model.model_fields[name]
    assert field.description
    assert option.help.startswith(field.description)
    if field.default not in {None, ()} and model is not VoiceCreate:
        shown = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        assert f"(default: {shown})" in option.help
    assert {"--text", "--tag", "--cover", "--enhance"} <= set(OPTIONS["create"])


# A value that the field takes and that is not its default, as it is written and as the request has it; and a bad one.
VALUES = {
    "temperature": ("0.25", 0.25, "1.1"),
    "top_p": ("1", 1.0, "nan"),
    "reference_id": ("ada", "ada", None),
    "chunk_length": ("150", 150, "99"),
    "format": ("wav", "wav", "flac"),
    "sample_rate": ("32000", 32000, "12345"),
    "mp3_bitrate": ("192", 192, "100"),
    "opus_bitrate": ("24", 24, "0"),
    "latency": ("low", "low", "lowest"),
    "max_new_tokens": ("7", 7, "0"),
    "repetition_penalty": ("1.5", 1.5, "0"),
    "min_chunk_length": ("0", 0, "101"),
    "early_stop_threshold": ("0.5", 0.5, "-1"),
    "speed": ("1.5", 1.5, "3"),
    "volume": ("-6", -6.0, "inf"),
}
SWITCHES = ("normalize", "condition_on_previous_chunks")


def test_all_fields_are_tested() -> None:
    assert {name for _, name in FIELDS} == {*VALUES, *SWITCHES}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("spelling", ["-", "_"])
def test_an_option_reaches_the_backend(run: Any, service: str, tones: Any, name: str, spelling: str) -> None:
    written, meant, _ = VALUES[name]
    run.well("say", "one two", "--base-url", service, "--" + name.replace("_", spelling), written)
    ((request, _, _),) = tones.asked
    values = {**dict(request), **dict(request.prosody or ProsodyControl())}
    assert values[name] == meant
    assert type(values[name]) is type(meant)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_can_be_turned_off(run: Any, service: str, tones: Any, name: str) -> None:
    run.well("say", "one", "--base-url", service, "--no-" + name.replace("_", "-"))
    assert getattr(tones.asked[0][0], name) is False


def test_defaults_are_the_interfaces(run: Any, service: str, tones: Any) -> None:
    run.well("say", "one", "--base-url", service)
    assert tones.asked == [(TTSRequest(text="one"), "s2-pro", None)]


@pytest.mark.parametrize("name", [name for name, (_, _, bad) in VALUES.items() if bad])
@pytest.mark.parametrize("written", ["bad", "word"])
def test_a_bad_value_is_one_line_that_names_the_field(run: Any, name: str, written: str) -> None:
    value = VALUES[name][2] or "" if written == "bad" else "many"
    assert f"{name}: " in run.refused("say", "one", "--" + name.replace("_", "-"), value)


def test_an_integer_outside_the_choices_is_rejected_with_the_choices(run: Any) -> None:
    assert "mp3_bitrate: must be 64, 128 or 192, got 100" in run("say", "one", "--mp3-bitrate", "100").stderr
    assert "mp3_bitrate: must be a whole number, got 'many'" in run("say", "one", "--mp3-bitrate", "many").stderr
