from __future__ import annotations

import re
import sqlite3
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.served import locked
from voicelab.errors import (
    AuthenticationError,
    NotFound,
    PaymentRequired,
    RequestInvalid,
    StoreError,
)
from voicelab.service import keys as module
from voicelab.service.keys import KeyStore, lifetime, well_formed
from voicelab.service.limits import KeyLimits


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    with KeyStore(tmp_path / "keys.sqlite3", busy_s=0.2) as store:
        yield store


def test_secrets_have_prefix_and_checksum(store: KeyStore) -> None:
    secrets = [store.create(f"a{number}").secret for number in range(10)]
    assert len(set(secrets)) == 10
    for secret in secrets:
        assert re.fullmatch(r"vl_[0-9A-Za-z]{49}", secret)
        assert well_formed(secret)


def test_checksum_detects_typos(store: KeyStore) -> None:
    secret = store.create("a").secret
    for place in range(len(secret)):
        other = "0" if secret[place] != "0" else "1"
        assert not well_formed(secret[:place] + other + secret[place + 1 :])
    assert not well_formed(secret + "0")
    assert not well_formed(secret[:-1])
    assert not well_formed(secret + "\n")


def test_a_wrong_secret_is_refused(store: KeyStore) -> None:
    made = store.create("a")
    stranger = module._new_secret()
    # The same prefix as a real key, and a checksum that fits: only the hash can tell.
    begin = made.secret[:11] + stranger[11:-6]
    lookalike = begin + module._checksum(begin)
    assert well_formed(lookalike)
    for wrong in (stranger, lookalike, "", "vl_", made.secret.swapcase(), made.key.prefix, "é" * 52):
        with pytest.raises(AuthenticationError, match="not accepted") as caught:
            store.authenticate(wrong)
        assert not wrong or wrong not in str(caught.value)


def test_a_key_expires_at_its_very_second_and_comes_back_while_a_clock_is_set_back(
    store: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, lasting = (
        store.create("a", expires_in=timedelta(days=30)),
        store.create("b", expires_in=timedelta(days=31)),
    )
    assert created.key.expires_at is not None
    for after in (-1.0, -0.001, 0.0, 1.0, -3600.0, 1.0):
        now = created.key.expires_at + timedelta(seconds=after)
        monkeypatch.setattr(module, "_now", lambda now=now: now)
        assert created.key.state(now) == ("active" if after < 0 else "expired")
        assert store.authenticate(lasting.secret) == lasting.key
        with nullcontext() if after < 0 else pytest.raises(AuthenticationError, match="expired"):
            assert store.authenticate(created.secret) == created.key
    monkeypatch.setattr(module, "_now", lambda: now + timedelta(days=2))
    assert not store.usable()


@pytest.mark.parametrize("how", ["name", "prefix", "secret"])
def test_a_revoked_key_is_refused(store: KeyStore, how: str) -> None:
    made = store.create("laptop")
    kept = store.create("desk")
    which = {"name": "laptop", "prefix": made.key.prefix, "secret": made.secret}[how]
    revoked = store.revoke(which)
    assert revoked.revoked_at is not None
    with pytest.raises(AuthenticationError, match="revoked") as caught:
        store.authenticate(made.secret)
    for shown in ("".join(traceback.format_exception(caught.value)), repr(vars(caught.value))):
        assert made.secret[11:] not in shown
    assert store.revoke(which) == revoked
    assert store.usable()
    assert store.authenticate(kept.secret) == kept.key


def test_one_active_key_has_a_name(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one = store.create("same", expires_in=timedelta(hours=1))
    with pytest.raises(NotFound, match="no key has the name or prefix 'none'; voicelab keys list lists all keys"):
        store.revoke("none")
    for name in ("same", " same "):
        with pytest.raises(RequestInvalid, match=r"name: must not be the name of an active key, got ' ?same ?'"):
            store.create(name)
    monkeypatch.setattr(module, "_now", lambda: datetime.now(UTC) + timedelta(hours=2))
    two = store.create("same")  # the first has expired
    assert store.revoke("same").id == two.key.id
    assert store.revoke(one.key.prefix).id == one.key.id
    assert store.create("same").key.id > two.key.id
    with pytest.raises(NotFound):
        store.revoke("other")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("90m", 5400), ("12h", 43200), ("30d", 2592000), (" 4w ", 2419200)]
)
def test_a_lifetime_is_read(text: str, seconds: int) -> None:
    assert lifetime(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "0d", "1.5d", "30 d", "1y", "9999999d", "٣d"])
def test_invalid_lifetimes_are_rejected(text: str) -> None:
    with pytest.raises(RequestInvalid, match="expires"):
        lifetime(text)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("name", {"name": " "}),
        ("name", {"name": "a\nb"}),
        ("name", {"name": "vl_x"}),
        ("expires", {"expires_in": timedelta(0)}),
        ("expires", {"expires_in": timedelta(days=999_999_000)}),
        ("credit", {"credit": -1}),
        ("credit", {"credit": 2**63}),
    ],
)
def test_invalid_keys_are_rejected(store: KeyStore, field: str, wrong: dict[str, object]) -> None:
    with pytest.raises(RequestInvalid, match=field):
        store.create(**{"name": "a", **wrong})  # type: ignore[arg-type]
    assert store.list() == ()


def test_credit_is_taken_whole_or_not_at_all(store: KeyStore) -> None:
    made = store.create("a", credit=10)
    store.reserve(made.key, 7)
    with pytest.raises(PaymentRequired):
        store.reserve(made.key, 4)
    assert store.list()[0].credit == 3
    with KeyStore(store.path, busy_s=0.1) as other:  # which a transaction that was left open would lock out
        other.refund(made.key, 5)
    store.reserve(made.key, 8)
    assert store.list()[0].credit == 0


def test_credit_is_never_taken_twice(store: KeyStore) -> None:
    made = store.create("a", credit=50)
    taken = []

    def take() -> None:
        for _ in range(10):
            try:
                store.reserve(made.key, 1)
            except PaymentRequired:
                continue
            taken.append(1)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(take) for _ in range(8)]:
            done.result()
    assert len(taken) == 50
    assert store.list()[0].credit == 0


def test_unusable_store(store: KeyStore) -> None:
    store.create("a")
    with locked(store.path), pytest.raises(StoreError, match="locked"):
        store.create("b")
    assert [key.name for key in store.list()] == ["a"]
    store.path.write_bytes(b"this is no database, but long enough to look at" * 20)
    with pytest.raises(StoreError, match=re.escape(str(store.path))):
        KeyStore(store.path)


def test_migration_of_a_store_without_limits(tmp_path: Path) -> None:
    path = tmp_path / "keys.sqlite3"
    with closing(sqlite3.connect(path)) as old, old:
        old.executescript(module._MIGRATIONS[0] + "PRAGMA user_version = 1;")
        old.execute(
            "INSERT INTO keys (name, prefix, salt, digest, created_at, credit) VALUES ('a', 'vl_0', '', '', 0, 5)"
        )
    with KeyStore(path) as store:
        (key,) = store.list()
        assert (key.credit, key.limits) == (5, KeyLimits())
        assert store.reserve(key, 5, daily=5)


def test_a_day_begins_anew_and_a_clock_set_back_begins_none(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = store.create("a").key
    day = datetime(2026, 1, 2, 0, 30, tzinfo=UTC)
    monkeypatch.setattr(module, "_now", lambda: day)
    assert store.reserve(key, 8, 10)
    assert not store.reserve(key, 3, 10)
    store.refund(key, 4)
    assert store.reserve(key, 6, 10)
    day -= timedelta(hours=1)
    assert not store.reserve(key, 1, 10)
    day += timedelta(days=1, hours=1)
    assert store.reserve(key, 10, 10)


def test_credit_and_the_day_are_spent_together_or_not_at_all(store: KeyStore) -> None:
    key = store.create("a", credit=10).key
    assert not store.reserve(key, 6, 5)
    with pytest.raises(PaymentRequired):
        store.reserve(key, 11, 100)
    assert store.reserve(key, 5, 5)
    assert store.list()[0].credit == 5
