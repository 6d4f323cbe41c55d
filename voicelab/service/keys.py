"""API keys: who may call the service, until when, and for how many characters.

A secret is ``vl_``, 256 random bits in base62 (43 characters) and a checksum of 6 characters, so
that a mistyped key is recognised without a look at the store, and a leaked one by its shape. The
store keeps a salted SHA-256 of it: slow hashes protect passwords, which people choose; 256 random
bits cannot be guessed however fast the hash is, and a slow one would cost every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from voicelab.errors import AuthenticationError, NotFound, PaymentRequired, RequestInvalid
from voicelab.service.limits import KeyLimits
from voicelab.storage import Closing, Database, data_home

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MARK = "vl_"
_RANDOM_DIGITS = 43  # 62**43 > 2**256
_CHECK_DIGITS = 6  # 62**6 > 2**32, the range of the CRC
_SECRET = re.compile(rf"{_MARK}[0-9A-Za-z]{{{_RANDOM_DIGITS + _CHECK_DIGITS}}}", re.ASCII)
# Enough to tell keys apart in a list; the 35 digits kept back are still 208 bits.
_PREFIX = len(_MARK) + 8
_SALT_BYTES = 16

_MIGRATIONS = (
    """
CREATE TABLE keys (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  prefix TEXT NOT NULL,
  salt BLOB NOT NULL,
  digest BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  credit INTEGER CHECK (credit >= 0)
);
CREATE INDEX keys_prefix ON keys (prefix);
""",
    """
ALTER TABLE keys ADD COLUMN rate TEXT;
ALTER TABLE keys ADD COLUMN active INTEGER;
ALTER TABLE keys ADD COLUMN daily INTEGER;
ALTER TABLE keys ADD COLUMN day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN spent INTEGER NOT NULL DEFAULT 0;
""",
)
_ALL = "SELECT id, name, prefix, created_at, expires_at, revoked_at, credit, rate, active, daily FROM keys"
_WITH_DIGEST = _ALL.replace(" FROM", ", salt, digest FROM")
_NO_LIMITS = KeyLimits()
_LARGEST = 2**63 - 1  # what an SQLite integer holds

_LIFETIME = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The record of a key. It holds no secret.

    ``prefix`` is the readable beginning of the secret; times are UTC; ``credit`` is the number of
    characters left, None when they are not counted.
    """

    id: int
    name: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    credit: int | None
    limits: KeyLimits = _NO_LIMITS

    def state(self, now: datetime) -> str:
        """Return ``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and now >= self.expires_at:
            return "expired"
        return "active"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key; ``secret`` is shown this once and kept nowhere."""

    key: ApiKey
    secret: str = field(repr=False)


def lifetime(text: str) -> timedelta:
    """Read a lifetime such as ``30d``: a whole number and s, m, h, d or w. Raises RequestInvalid."""
    match = _LIFETIME.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        message = "give a lifetime as a whole number and a unit: 90m, 12h, 30d, 4w"
        raise RequestInvalid.of("expires", message)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def well_formed(secret: str) -> bool:
    """Say whether a string has the shape of a secret and the right checksum."""
    return _SECRET.fullmatch(secret) is not None and secret.endswith(_checksum(secret[:-_CHECK_DIGITS]))


class KeyStore(Closing):
    """The keys of a service, in one SQLite file that only its owner may read.

    Safe to use from several threads; calls take turns. A write waits at most ``busy_s`` seconds for
    another process and then raises StoreError, as does a store that cannot be read.
    """

    def __init__(self, path: Path | str | None = None, *, busy_s: float = 2.0) -> None:
        self.path = Path(path) if path is not None else data_home() / "keys.sqlite3"
        self._database = Database(self.path, "key store", _MIGRATIONS, busy_s=busy_s)
        self._database.open()

    def __repr__(self) -> str:
        return f"KeyStore({str(self.path)!r})"

    def close(self) -> None:
        """Close the file; it is opened again when it is needed again."""
        self._database.close()

    def create(
        self,
        name: str,
        *,
        expires_in: timedelta | None = None,
        credit: int | None = None,
        limits: KeyLimits = _NO_LIMITS,
    ) -> NewKey:
        """Make a key that may speak ``credit`` characters (None: not counted) until ``expires_in`` from now.

        Raises RequestInvalid for a blank name, a lifetime that is not positive or a negative credit.
        """
        if not name.strip() or not name.isprintable():
            raise RequestInvalid.of("name", "give the key a name that says who uses it")
        if name.startswith(_MARK):
            raise RequestInvalid.of("name", f"a name cannot begin like a key ({_MARK})")
        if expires_in is not None and expires_in <= timedelta(0):
            raise RequestInvalid.of("expires", "the lifetime of a key must be positive")
        if credit is not None and not 0 <= credit <= _LARGEST:
            raise RequestInvalid.of("credit", "the credit is a number of characters, 0 or more")
        now = _now()
        secret = _new_secret()
        salt = secrets.token_bytes(_SALT_BYTES)
        try:
            expires = _seconds(now + expires_in) if expires_in is not None else None
        except OverflowError:
            raise RequestInvalid.of("expires", "no calendar goes that far") from None
        row = (name.strip(), secret[:_PREFIX], salt, _digest(salt, secret), _seconds(now), expires, credit)
        with self._database.writing() as db:
            cursor = db.execute(
                "INSERT INTO keys (name, prefix, salt, digest, created_at, expires_at, credit, rate, active, daily)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, limits.rate, limits.active, limits.daily),
            )
            key = _read(db.execute(_ALL + " WHERE id = ?", (cursor.lastrowid,)).fetchone())
        return NewKey(key, secret)

    def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, the oldest first, those expired or revoked too."""
        with self._database.reading() as db:
            rows = db.execute(_ALL + " ORDER BY id").fetchall()
        return tuple(_read(row) for row in rows)

    def usable(self) -> bool:
        """Say whether any key would be accepted now."""
        now = _now()
        return any(key.state(now) == "active" for key in self.list())

    def revoke(self, which: str) -> ApiKey:
        """Revoke the key of a name, or of a prefix, for good, and return it.

        Raises NotFound for none, RequestInvalid when several active keys have the name. Revoking a
        revoked key changes nothing.
        """
        with self._database.writing() as db:
            # The whole secret is taken too: it is what a person who finds a leaked key has at hand.
            rows = db.execute(
                _ALL + " WHERE name = ? OR prefix = ? ORDER BY id",
                (which, which[:_PREFIX] if which.startswith(_MARK) else which),
            ).fetchall()
            matches = list(map(_read, rows))
            live = [key for key in matches if key.revoked_at is None]
            if not matches:
                raise NotFound("there is no key of this name or prefix")
            if len(live) > 1:
                prefixes = ", ".join(key.prefix for key in live)
                raise RequestInvalid.of("key", f"several keys have this name; say which by its prefix: {prefixes}")
            if not live:
                return matches[-1]
            db.execute("UPDATE keys SET revoked_at = ? WHERE id = ?", (_seconds(_now()), live[0].id))
            return _read(db.execute(_ALL + " WHERE id = ?", (live[0].id,)).fetchone())

    def authenticate(self, secret: str) -> ApiKey:
        """Return the key that a secret belongs to. Raises AuthenticationError."""
        refused = AuthenticationError("The API key is not accepted", status=401)
        if not well_formed(secret):
            raise refused
        with self._database.reading() as db:
            rows = db.execute(_WITH_DIGEST + " WHERE prefix = ?", (secret[:_PREFIX],)).fetchall()
        key: ApiKey | None = None
        # Every row is compared, and one even when there is none, so that the time taken says nothing.
        for *row, salt, digest in rows or [(None, b"", b"")]:
            if hmac.compare_digest(_digest(salt, secret), digest):
                key = _read(row)
        if key is None:
            raise refused
        if (state := key.state(_now())) != "active":
            raise AuthenticationError(f"The API key is {state}", status=401)
        return key

    def reserve(self, key: ApiKey, characters: int, daily: int | None = None) -> bool:
        """Take ``characters`` from a key's credit, all or nothing; False when they are more than ``daily`` has left.

        A day is one of UTC. Raises PaymentRequired. A key whose characters are not counted costs no write.
        """
        if (key.credit is None and daily is None) or characters == 0:
            return True
        values = {"id": key.id, "characters": characters, "daily": daily, "today": _seconds(_now()) // 86_400}
        with self._database.writing() as db:
            # A clock that was set back goes on with the later day.
            db.execute("UPDATE keys SET day = :today, spent = 0 WHERE id = :id AND day < :today", values)
            taken = db.execute(
                "UPDATE keys SET credit = credit - :characters, spent = spent + :characters WHERE id = :id"
                " AND (credit IS NULL OR credit >= :characters) AND (:daily IS NULL OR spent + :characters <= :daily)",
                values,
            )
            if taken.rowcount == 1:
                return True
            (credit,) = db.execute("SELECT credit FROM keys WHERE id = :id", values).fetchone() or (0,)
            if credit is None or credit >= characters:
                return False
            raise PaymentRequired("The credit of this API key does not cover the request", status=402)

    def give_back(self, key: ApiKey, characters: int) -> None:
        """Return what was reserved and not delivered."""
        with self._database.writing() as db:
            db.execute(
                "UPDATE keys SET credit = credit + ?, spent = MAX(0, spent - ?) WHERE id = ?",
                (characters, characters, key.id),
            )


def _new_secret() -> str:
    begin = _MARK + _base62(secrets.randbits(256), _RANDOM_DIGITS)
    return begin + _checksum(begin)


def _checksum(begin: str) -> str:
    return _base62(zlib.crc32(begin.encode("ascii")), _CHECK_DIGITS)


def _base62(value: int, width: int) -> str:
    digits = []
    for _ in range(width):
        value, digit = divmod(value, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _digest(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode("ascii")).digest()


def _now() -> datetime:
    return datetime.now(UTC)


def _seconds(time: datetime) -> int:
    return int(time.timestamp())


def _time(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _read(row: Sequence[Any]) -> ApiKey:
    number, name, prefix, created, expires, revoked, credit, rate, active, daily = row
    limits = KeyLimits(rate=rate, active=active, daily=daily)
    created_at = datetime.fromtimestamp(created, UTC)
    return ApiKey(number, name, prefix, created_at, _time(expires), _time(revoked), credit, limits)
