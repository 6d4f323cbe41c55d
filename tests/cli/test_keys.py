from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from voicelab.errors import AuthenticationError
from voicelab.service.keys import KeyStore

SECRET = re.compile(r"vl_[0-9A-Za-z]{49}")


def test_create_prints_the_secret_once_and_last_on_stdout(run: Any, tmp_path: Path) -> None:
    done = run("keys", "create", "ada", "--expires", "30d", "--credit", "1000")
    assert done.exit_code == 0, done.stderr
    secret = done.stdout.splitlines()[-1]
    assert SECRET.fullmatch(secret)
    assert (done.stdout + done.stderr).count(secret) == 1
    with KeyStore(tmp_path / "home" / "keys.sqlite3") as store:
        key = store.authenticate(secret)
    assert (key.name, key.credit) == ("ada", 1000)
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
