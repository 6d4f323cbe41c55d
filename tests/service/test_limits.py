from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from voicelab.errors import RequestInvalid
from voicelab.service.limits import VARIABLE, KeyLimits, Limits, describe_limits, read_limits, read_rate


def test_precedence_of_options_variables_and_file(tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text('active = 3\nwaiting = 4\n\nbody = 5\nkey_rate = "60/min"\n')
    environ = {"VOICELAB_SERVE_ACTIVE": "30", "VOICELAB_SERVE_WAITING": "40", "VOICELAB_SERVE_OTHER": "x"}
    limits, sources = read_limits({"active": "300", "waiting": None}, file, environ)
    assert (limits.active, limits.waiting, limits.body, limits.key_rate) == (300, 40, 5, "60/min")
    assert sources["active"] == "--active"
    assert sources["waiting"] == "VOICELAB_SERVE_WAITING"
    assert sources["body"] == f"{file} line 4"
    assert limits.uploads == Limits().uploads


def test_described_limits_can_be_read_again(tmp_path: Path) -> None:
    limits = Limits(active=3, key_rate="5/s", lag_seconds=0.5)
    text = describe_limits(limits, {"active": "--active"})
    assert "concurrent speech requests; --active" in text.lower()
    assert all(name in text for name in Limits.model_fields)
    file = tmp_path / "limits.toml"
    file.write_text(text)
    assert read_limits({}, file, {})[0] == limits
    assert tomllib.loads(text)["key_rate"] == "5/s"


def test_all_errors_are_reported_with_their_source(tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text('# limits\nactive = true\n\nbodyy = 3\nkey_rate = "often"\nkey_daily = 1.5\n')
    with pytest.raises(RequestInvalid) as caught:
        read_limits({"waiting": "-1"}, file, {VARIABLE + "HEAD_SECONDS": "nan"})
    said = str(caught.value).split("; ")
    begins = [
        f"active: {file} line 2: ",
        "waiting: --waiting: ",
        "head_seconds: VOICELAB_SERVE_HEAD_SECONDS: ",
        f"key_rate: {file} line 5: ",
        f"key_daily: {file} line 6: ",
        f"bodyy: {file} line 4: unknown field",
    ]
    for begin in begins:
        assert any(line.startswith(begin) for line in said), (begin, said)


@pytest.mark.parametrize("data", [b"active 3", b"\xff", b"active = 1\nactive = 2"])
def test_invalid_toml_is_rejected(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "limits.toml"
    file.write_bytes(data)
    with pytest.raises(RequestInvalid, match="not valid TOML"):
        read_limits({}, file, {})


@pytest.mark.parametrize(("text", "rate"), [("60/min", (60, 60)), ("5/s", (5, 1)), ("9/day", (9, 86400))])
def test_a_rate_is_read(text: str, rate: tuple[int, int]) -> None:
    assert read_rate(KeyLimits(rate=text).rate or "") == rate


@pytest.mark.parametrize("text", ["", "60", "0/min", "-1/s", "60/week", "1.5/s", "60 / min", "٣/s"])
def test_invalid_rates_are_rejected(text: str) -> None:
    with pytest.raises(RequestInvalid, match="60/min"):
        KeyLimits(rate=text)
