"""``voicelab serve`` as a program of its own: it answers, refuses and stops as a service must."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import tomllib
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Run
from tests.served import program
from voicelab.errors import AuthenticationError
from voicelab.service.keys import KeyStore
from voicelab.service.limits import KeyLimits
from voicelab.voices.store import VoiceStore


def test_serves_keys_and_stops_at_sigterm(run: Run) -> None:
    with program("serve", "--port", "0", "--log", "json", "--metrics", "0") as (process, address):
        body = {"text": "Hello.", "format": "wav"}
        assert httpx.post(f"{address}/v1/tts", json=body, timeout=60).status_code == 401
        # A key made while the service runs is accepted at once.
        headers = {"Authorization": f"Bearer {run('keys', 'create', 't').stdout.splitlines()[-1]}"}
        answer = httpx.post(f"{address}/v1/tts", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200
        assert answer.content[:4] == b"RIFF"
        assert len(answer.content) > 10_000
        assert process.stdout is not None
        refused, spoken = (json.loads(process.stdout.readline()) for _ in range(2))
        assert (refused["status"], refused["key"]) == (401, None)
        assert (spoken["status"], spoken["key"], spoken["characters"]) == (200, "t", 6)
        assert process.stderr is not None
        metrics = next(line for line in process.stderr if "metrics are at" in line).split()[-1]
        assert 'voicelab_requests_total{route="/v1/tts",status="200"} 1.0' in httpx.get(metrics, timeout=20).text
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == 0


def test_check_prints_effective_limits(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "limits.toml").write_text('active = 3\nkey_rate = "60/min"\n')
    monkeypatch.setenv("VOICELAB_SERVE_LIMITS", "limits.toml")
    monkeypatch.setenv("VOICELAB_SERVE_WAITING", "5")
    done = run.well("serve", "--check", "--key-active", "2")
    held = tomllib.loads(done.stdout)
    assert (held["active"], held["waiting"], held["key_active"], held["key_rate"]) == (3, 5, 2, "60/min")


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("serve --check --active 0", "voicelab: active: --active: must be"),
        ("serve --check --limits nowhere.toml", "nowhere.toml"),
        ("serve --check --log xml", "log: "),
        ("serve --check --metrics x", "metrics: "),
        ("serve --port=many", "port: "),
        ("serve --port=70000", "port: "),
        ("serve --port=-1", "port: "),
        ("keys create ada --expires soon", "expires: "),
        ("keys create ada --credit -1", "credit: "),
        ("keys create ada --credit much", "credit: "),
        ("keys create ada --rate often", "rate: "),
        ("keys create ada --active 0", "active: "),
        ("keys create ada --daily 0", "daily: "),
        ("keys create ' '", "name: "),
        ("keys revoke nobody", "no key"),
    ],
)
def test_invalid_arguments_are_one_line_with_the_field(run: Run, command: str, where: str) -> None:
    assert where in run.refused(*shlex.split(command))


def test_a_port_in_use_is_one_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = run.refused("serve", "--port", str(taken.getsockname()[1]))
    assert "cannot listen" in line
    assert "0 for a free one" in line


def test_a_second_server_on_the_same_voices_is_one_line(run: Run) -> None:
    with VoiceStore(exclusive=True):
        assert "another server" in run.refused("serve", "--port", "0")


SECRET = re.compile(r"vl_[0-9A-Za-z]{49}")


def test_create_prints_the_secret_once_and_last_on_stdout(run: Run, tmp_path: Path) -> None:
    limits = ("--rate", "60/min", "--active", "4", "--daily", "500")
    done = run.well("keys", "create", "ada", "--expires", "30d", "--credit", "1000", *limits)
    secret = done.stdout.splitlines()[-1]
    assert SECRET.fullmatch(secret)
    assert (done.stdout + done.stderr).count(secret) == 1
    with KeyStore(tmp_path / "home" / "keys.sqlite3") as store:
        key = store.authenticate(secret)
    assert (key.name, key.credit) == ("ada", 1000)
    assert key.limits == KeyLimits(rate="60/min", active=4, daily=500)
    assert "1000 characters left  rate 60/min  active 4  daily 500" in done.stderr
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days == 30


def test_keys_are_made_listed_without_their_secrets_and_revoked(run: Run, tmp_path: Path) -> None:
    none = run.well("keys", "list")
    assert none.stdout == ""
    assert "voicelab keys create" in none.stderr
    secret = run("keys", "create", "ada").stdout.strip()
    listed = run("keys", "list").stdout
    assert "ada" in listed
    assert secret[:11] in listed
    assert secret[:20] not in listed
    assert "revoked" in run("keys", "revoke", "ada").stdout
    with KeyStore(tmp_path / "home" / "keys.sqlite3") as store, pytest.raises(AuthenticationError):
        store.authenticate(secret)
