"""``voicelab serve`` as a program of its own: it answers, refuses and stops as a service must."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from voicelab.errors import AuthenticationError
from voicelab.service.keys import KeyStore
from voicelab.service.limits import KeyLimits
from voicelab.voices.store import VoiceStore

VOICELAB = str(Path(sys.executable).with_name("voicelab"))


@contextmanager
def _serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [VOICELAB, "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                match = re.search(r"http://127\.0\.0\.1:\d+", line)
                if match:
                    break
            assert match is not None
            yield process, match[0]
        finally:
            process.kill()


def _new_key() -> str:
    done = subprocess.run([VOICELAB, "keys", "create", "t"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()[-1]


def test_it_speaks_to_a_key_of_voicelab_keys_and_stops_at_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path))
    with _serving("--log", "json", "--metrics", "0") as (process, address):
        body = {"text": "Hello.", "format": "wav"}
        assert httpx.post(f"{address}/v1/tts", json=body, timeout=60).status_code == 401
        # A key made while the service runs is accepted at once.
        headers = {"Authorization": f"Bearer {_new_key()}"}
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


def test_check_prints_what_would_hold_and_serves_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limits.toml").write_text('active = 3\nkey_rate = "60/min"\n')
    monkeypatch.setenv("VOICELAB_SERVE_LIMITS", "limits.toml")
    monkeypatch.setenv("VOICELAB_SERVE_WAITING", "5")
    done = run("serve", "--check", "--key-active", "2")
    assert done.exit_code == 0, done.stderr
    held = tomllib.loads(done.stdout)
    assert (held["active"], held["waiting"], held["key_active"], held["key_rate"]) == (3, 5, 2, "60/min")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("--active", "0"), "active: --active: "),
        (("--limits", "nowhere.toml"), "nowhere.toml"),
        (("--log", "xml"), "log: "),
        (("--metrics", "x"), "metrics: "),
    ],
)
def test_a_bad_limit_is_one_line_that_says_where(run: Any, arguments: tuple[str, ...], where: str) -> None:
    done = run("serve", "--check", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert where in line


@pytest.mark.parametrize("port", ["many", "70000", "-1"])
def test_a_bad_port_is_one_line(port: str) -> None:
    done = subprocess.run(
        [VOICELAB, "serve", f"--port={port}"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "port: " in line


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [VOICELAB, "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot listen" in line
    assert "0 for a free one" in line


def test_a_second_server_on_the_same_voices_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path))
    with VoiceStore(exclusive=True):
        command = [VOICELAB, "serve", "--port", "0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "another server" in line


SECRET = re.compile(r"vl_[0-9A-Za-z]{49}")


def test_create_prints_the_secret_once_and_last_on_stdout(run: Any, tmp_path: Path) -> None:
    limits = ("--rate", "60/min", "--active", "4", "--daily", "500")
    done = run("keys", "create", "ada", "--expires", "30d", "--credit", "1000", *limits)
    assert done.exit_code == 0, done.stderr
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


def test_list_shows_no_secret(run: Any) -> None:
    secret = run("keys", "create", "ada").stdout.strip()
    done = run("keys", "list")
    assert "ada" in done.stdout
    assert secret[:11] in done.stdout
    assert secret[:20] not in done.stdout


def test_list_without_keys_says_how_to_make_one(run: Any) -> None:
    done = run("keys", "list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "voicelab keys create" in done.stderr


def test_revoke_refuses_the_key_from_then_on(run: Any, tmp_path: Path) -> None:
    secret = run("keys", "create", "ada").stdout.strip()
    assert "revoked" in run("keys", "revoke", "ada").stdout
    with KeyStore(tmp_path / "home" / "keys.sqlite3") as store, pytest.raises(AuthenticationError):
        store.authenticate(secret)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("create", "ada", "--expires", "soon"), "expires"),
        (("create", "ada", "--credit", "-1"), "credit"),
        (("create", "ada", "--credit", "much"), "credit"),
        (("create", "ada", "--rate", "often"), "rate"),
        (("create", "ada", "--active", "0"), "active"),
        (("create", "ada", "--daily", "0"), "daily"),
        (("create", " "), "name"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_field(run: Any, arguments: tuple[str, ...], field: str) -> None:
    done = run("keys", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"{field}: " in line


def test_revoking_an_unknown_key_says_so(run: Any) -> None:
    done = run("keys", "revoke", "nobody")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "no key" in line
