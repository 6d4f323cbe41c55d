"""API keys with expiry, credit and limits.

A secret consists of ``vl_``, 256 random bits in base62 (43 characters) and a checksum of 6 characters. The prefix makes
leaked keys searchable, and the checksum detects mistyped keys without reading the store. The store contains a salted SHA-256
of each secret. Slow hashes protect weak passwords, but 256 random bits need no such protection, and a slow hash would delay
every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from voicelab.errors import AuthenticationError, NotFound, PaymentRequired, RequestInvalid
from voicelab.lifecycle import Closeable
from voicelab.service.limits import KeyLimits
from voicelab.storage import Database, data_home

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY_PREFIX = "vl_"
_RANDOM_DIGITS = 43  # 62**43 > 2**256
_CHECK_DIGITS = 6  # 62**6 > 2**32, the range of the CRC
_SECRET = re.compile(rf"{_KEY_PREFIX}[0-9A-Za-z]{{{_RANDOM_DIGITS + _CHECK_DIGITS}}}", re.ASCII)
# Eight digits identify a key in a list; the remaining 35 random digits still encode 208 bits.
_PREFIX_LENGTH = len(_KEY_PREFIX) + 8
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
    """
ALTER TABLE keys ADD COLUMN voices INTEGER;
ALTER TABLE keys ADD COLUMN voice_bytes INTEGER;
""",
)
_LIMITS = ", ".join(KeyLimits.model_fields)
_SELECT = f"SELECT id, name, prefix, created_at, expires_at, revoked_at, credit, {_LIMITS} FROM keys"  # noqa: S608 - constants
_SELECT_WITH_DIGEST = _SELECT.replace(" FROM", ", salt, digest FROM")
_NO_LIMITS = KeyLimits()
_MAX_CREDIT = 2**63 - 1  # SQLite's largest integer

_LIFETIME = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Record of a key, without its secret.

    ``prefix`` is the prefix of the secret; times are UTC; ``credit`` is the number of characters left, None if
    unlimited.
    """

    id: int
    name: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    credit: int | None
    limits: KeyLimits = _NO_LIMITS

    @property
    def owner(self) -> str:
        """Permanent owner id of the key's voice models, which does not contain the key."""
        # Ids restart at 1 in a new key store. If owners were identified by the id alone, the keys of a new store would own
        # the private voices of earlier keys.
        identity = f"{self.id} {self.prefix} {int(self.created_at.timestamp())}"
        return hashlib.sha256(identity.encode()).hexdigest()[:24]

    def state(self, time: datetime) -> str:
        """Return ``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and time >= self.expires_at:
            return "expired"
        return "active"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key with its ``secret``, which is not stored."""

    key: ApiKey
    secret: str = field(repr=False)


def lifetime(text: str) -> timedelta:
    """Parse a lifetime such as ``30d``: an integer and s, m, h, d or w. Raises RequestInvalid."""
    match = _LIFETIME.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        message = f"must be an integer and a unit, such as 90m, 12h, 30d or 4w, got {text!r}"
        raise RequestInvalid.of("expires", message)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def well_formed(secret: str) -> bool:
    """Return True if a string has the format and the checksum of a secret."""
    return _SECRET.fullmatch(secret) is not None and secret.endswith(_checksum(secret[:-_CHECK_DIGITS]))


class KeyStore(Closeable):
    """Store of API keys in an SQLite file that is readable by its owner only. Thread-safe.

    A write waits at most ``busy_s`` seconds for other processes. Methods raise StoreError.
    """

    def __init__(self, path: Path | str | None = None, *, busy_s: float = 2.0) -> None:
        self.path = Path(path) if path is not None else data_home() / "keys.sqlite3"
        self._database = Database(self.path, "key store", _MIGRATIONS, busy_s=busy_s)
        self._database.open()

    def __repr__(self) -> str:
        return f"KeyStore({str(self.path)!r})"

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        self._database.close()

    def create(
        self,
        name: str,
        *,
        expires_in: timedelta | None = None,
        credit: int | None = None,
        limits: KeyLimits = _NO_LIMITS,
    ) -> NewKey:
        """Create a key with ``credit`` characters (None: unlimited) and a lifetime of ``expires_in``.

        Raises RequestInvalid for a blank name, the name of an active key, a lifetime that is not positive or a negative
        credit.
        """
        if not name.strip() or not name.isprintable():
            raise RequestInvalid.of("name", f"must be printable and not blank, got {name!r}")
        if name.startswith(_KEY_PREFIX):
            raise RequestInvalid.of("name", f"must not start with {_KEY_PREFIX}, the prefix of secrets")
        if expires_in is not None and expires_in <= timedelta(0):
            raise RequestInvalid.of("expires", f"must be positive, got {expires_in}")
        if credit is not None and not 0 <= credit <= _MAX_CREDIT:
            raise RequestInvalid.of("credit", f"must be a number of characters, 0 or more, got {credit}")
        created = _now()
        secret = _new_secret()
        salt = secrets.token_bytes(_SALT_BYTES)
        try:
            expires = _seconds(created + expires_in) if expires_in is not None else None
        except OverflowError:
            raise RequestInvalid.of("expires", f"must end before the year 10000, got {expires_in}") from None
        prefix, digest = secret[:_PREFIX_LENGTH], _digest(salt, secret)
        row = (name.strip(), prefix, salt, digest, _seconds(created), expires, credit)
        with self._database.writing() as db:
            rows = db.execute(_SELECT + " WHERE name = ?", row[:1]).fetchall()
            if any(_read(other).state(created) == "active" for other in rows):
                message = (
                    f"must not be the name of an active key, got {name!r}; choose another name, or revoke that key"
                )
                raise RequestInvalid.of("name", message)
            cursor = db.execute(
                f"INSERT INTO keys (name, prefix, salt, digest, created_at, expires_at, credit, {_LIMITS})"  # noqa: S608 - constants
                f" VALUES ({', '.join('?' * (len(row) + len(KeyLimits.model_fields)))})",
                (*row, *(value for _, value in limits)),
            )
            key = _read(db.execute(_SELECT + " WHERE id = ?", (cursor.lastrowid,)).fetchone())
        return NewKey(key, secret)

    def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, including expired and revoked keys, oldest first."""
        with self._database.reading() as db:
            rows = db.execute(_SELECT + " ORDER BY id").fetchall()
        return tuple(_read(row) for row in rows)

    def usable(self) -> bool:
        """Return True if there is an active key."""
        time = _now()
        return any(key.state(time) == "active" for key in self.list())

    def find(self, name: str) -> tuple[ApiKey, ...]:
        """Return the keys with a name or prefix, including revoked keys, oldest first. Raises NotFound."""
        with self._database.reading() as db:
            return _find(db, name)

    def revoke(self, name: str) -> ApiKey:
        """Revoke the newest key with a name or prefix permanently, and return it. A revoked key is not changed.

        Raises NotFound for an unknown name.
        """
        with self._database.writing() as db:
            newest = _find(db, name)[-1]  # earlier keys of the name have expired or were revoked
            db.execute(
                "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (_seconds(_now()), newest.id)
            )
            return _read(db.execute(_SELECT + " WHERE id = ?", (newest.id,)).fetchone())

    def authenticate(self, secret: str) -> ApiKey:
        """Return the active key with this secret. Raises AuthenticationError."""
        refused = AuthenticationError("The API key is not accepted", status=401)
        if not well_formed(secret):
            raise refused
        with self._database.reading() as db:
            rows = db.execute(_SELECT_WITH_DIGEST + " WHERE prefix = ?", (secret[:_PREFIX_LENGTH],)).fetchall()
        key: ApiKey | None = None
        # Compare all rows, or a dummy row, to prevent timing attacks.
        for *row, salt, digest in rows or [(None, b"", b"")]:
            if hmac.compare_digest(_digest(salt, secret), digest):
                key = _read(row)
        if key is None:
            raise refused
        if (state := key.state(_now())) != "active":
            raise AuthenticationError(f"The API key is {state}", status=401)
        return key

    def reserve(self, key: ApiKey, characters: int, daily: int | None = None) -> bool:
        """Reserve ``characters`` of a key's credit, all or nothing; return False if the limit ``daily`` (UTC) is exceeded.

        Raises PaymentRequired if the credit is too low. Writes nothing if neither credit nor daily use is limited.
        """
        if (key.credit is None and daily is None) or characters == 0:
            return True
        values = {"id": key.id, "characters": characters, "daily": daily, "today": _seconds(_now()) // 86_400}
        with self._database.writing() as db:
            # If the clock was set back, the stored day stays, so that the daily limit is not reset.
            db.execute("UPDATE keys SET day = :today, spent = 0 WHERE id = :id AND day < :today", values)
            update = db.execute(
                "UPDATE keys SET credit = credit - :characters, spent = spent + :characters WHERE id = :id"
                " AND (credit IS NULL OR credit >= :characters) AND (:daily IS NULL OR spent + :characters <= :daily)",
                values,
            )
            if update.rowcount == 1:
                return True
            (credit,) = db.execute("SELECT credit FROM keys WHERE id = :id", values).fetchone() or (0,)
            if credit is None or credit >= characters:
                return False
            raise PaymentRequired("The credit of this API key does not cover the request", status=402)

    def refund(self, key: ApiKey, characters: int) -> None:
        """Refund characters that were reserved but not delivered."""
        with self._database.writing() as db:
            db.execute(
                "UPDATE keys SET credit = credit + ?, spent = MAX(0, spent - ?) WHERE id = ?",
                (characters, characters, key.id),
            )


def _new_secret() -> str:
    payload = _KEY_PREFIX + _base62(secrets.randbits(256), _RANDOM_DIGITS)
    return payload + _checksum(payload)


def _checksum(payload: str) -> str:
    return _base62(zlib.crc32(payload.encode("ascii")), _CHECK_DIGITS)


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


def _find(db: sqlite3.Connection, name: str) -> tuple[ApiKey, ...]:
    # A complete secret is accepted too, so that a leaked key can be looked up.
    prefix = name[:_PREFIX_LENGTH] if name.startswith(_KEY_PREFIX) else name
    rows = db.execute(_SELECT + " WHERE name = ? OR prefix = ? ORDER BY id", (name, prefix)).fetchall()
    if not rows:
        raise NotFound(f"no key has the name or prefix {prefix!r}; voicelab keys list lists all keys")
    return tuple(map(_read, rows))


def _read(row: Sequence[Any]) -> ApiKey:
    number, name, prefix, created, expires, revoked, credit, *values = row
    limits = KeyLimits(**dict(zip(KeyLimits.model_fields, values, strict=True)))
    created_at = datetime.fromtimestamp(created, UTC)
    return ApiKey(number, name, prefix, created_at, _time(expires), _time(revoked), credit, limits)
