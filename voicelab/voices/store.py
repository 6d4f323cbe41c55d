"""VoiceStore: voice models on disk, in a SQLite database and content-addressed files.

Creation passes through the states of the interface: ``begin`` (created), ``train`` (training), then ``finish`` (trained) or
``fail`` (failed). A voice is visible once it is trained or failed. Unfinished voices of killed processes are removed when
the store is opened, once they are an hour old: before that, another process may still be creating them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from voicelab.errors import NotFound, StoreError
from voicelab.lifecycle import Closeable
from voicelab.schema import Author, SampleEntity, VoiceCreate, VoiceModel
from voicelab.storage import BlobFolder, Database, FileLock, data_home

LOCAL_OWNER: Final = "local"
"""Owner of voices created on this machine without a service."""

_LOG = logging.getLogger("voicelab.voices")
_ID = re.compile("[0-9a-f]{32}", re.ASCII)
_STALE_SECONDS = 3600.0
_STATES = ("created", "training", "trained", "failed")
# ``told`` is JSON with title, description, tags and languages.
_COLUMNS = "id, owner, visibility, state, created_at, updated_at, task_count, told, cover, digest"
_MIGRATIONS: Final = (
    """
    CREATE TABLE voices (
      id TEXT PRIMARY KEY,
      owner TEXT NOT NULL,
      visibility TEXT NOT NULL CHECK (visibility IN ('public', 'unlist', 'private')),
      state TEXT NOT NULL CHECK (state IN ('created', 'training', 'trained', 'failed')),
      created_at REAL NOT NULL,
      updated_at REAL NOT NULL,
      task_count INTEGER NOT NULL DEFAULT 0 CHECK (task_count >= 0),
      told TEXT NOT NULL,
      cover TEXT,
      digest TEXT NOT NULL
    );
    CREATE TABLE samples (
      voice TEXT NOT NULL REFERENCES voices (id) ON DELETE CASCADE,
      number INTEGER NOT NULL,
      title TEXT NOT NULL,
      text TEXT NOT NULL,
      audio TEXT NOT NULL,
      PRIMARY KEY (voice, number)
    );
    CREATE TABLE embeddings (
      voice TEXT NOT NULL REFERENCES voices (id) ON DELETE CASCADE,
      fingerprint TEXT NOT NULL,
      data BLOB NOT NULL,
      digest TEXT NOT NULL,
      PRIMARY KEY (voice, fingerprint)
    );
    """,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A recording of a voice: WAV file, transcript, and a title with length and notes."""

    audio: bytes = field(repr=False)
    text: str
    title: str

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes in the title, after the length."""
        return tuple(self.title.split("; ")[1:])


class VoiceStore(Closeable):
    """Voice models in a folder, which is opened on first use. Thread-safe and process-safe.

    Methods raise StoreError if the disk, the database or a file fails.

    Args:
        folder: Folder (default: ``voices`` in VOICELAB_HOME).
        exclusive: Lock the store for a server; a second server raises StoreError.
        busy_s: Timeout in seconds for the lock of the database.
        stale_s: Age in seconds at which unfinished voices are removed.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        exclusive: bool = False,
        busy_s: float = 2.0,
        stale_s: float = _STALE_SECONDS,
    ) -> None:
        self.folder = Path(folder) if folder is not None else data_home() / "voices"
        self._stale_s = stale_s
        self._blobs = BlobFolder(self.folder / "files", private=True)
        self._database = Database(self.folder / "voices.sqlite3", "voice store", _MIGRATIONS, busy_s=busy_s)
        message = f"another server uses the voice store {self.folder}: end it, or set VOICELAB_HOME to another folder"
        self._server_lock = FileLock(self.folder / "server.lock", message) if exclusive else None
        self._is_clean = False

    def __repr__(self) -> str:
        return f"VoiceStore({str(self.folder)!r})"

    def close(self) -> None:
        """Close the database and release the server lock. Idempotent."""
        self._database.close()
        if self._server_lock is not None:
            self._server_lock.close()

    def begin(self, request: VoiceCreate, samples: Sequence[Sample], owner: str, languages: Sequence[str] = ()) -> str:
        """Store the recordings of a new, invisible voice, and return its ID."""
        self._open(create=True)
        voice = secrets.token_hex(16)
        described = json.dumps(
            {
                "title": request.title,
                "description": request.description or "",
                "tags": request.tags,
                "languages": languages,
            }
        )
        # Large files are written before the transaction, to keep it short; put() within the transaction restores
        # files that a concurrent cleanup has removed.
        for data in (*(sample.audio for sample in samples), request.cover_image):
            if data:
                self._blobs.put(data)
        created = time.time()
        with self._database.writing() as db:
            cover = self._blobs.put(request.cover_image) if request.cover_image else None
            rows = [(i, sample.title, sample.text, self._blobs.put(sample.audio)) for i, sample in enumerate(samples)]
            digest = _digest(voice, owner, request.visibility, created, described, cover, rows)
            row = (voice, owner, request.visibility, "created", created, created, 0, described, cover, digest)
            db.execute(f"INSERT INTO voices ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608 - a constant
            db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", [(voice, *sample) for sample in rows])
        return voice

    def train(self, id: str) -> None:
        """Set the state to training."""
        self._change_state(id, "created", "training")

    def finish(self, id: str, fingerprint: str, embedding: bytes) -> VoiceModel:
        """Store the embedding of a voice, make it visible, and return its record.

        ``embedding`` is opaque; ``fingerprint`` identifies the weights that computed it.
        """
        with self._database.writing() as db:
            _insert_embedding(db, id, fingerprint, embedding)
            _set_state(db, id, "training", "trained")
        with self._database.reading() as db:
            return _record(db, _row(db, id))

    def fail(self, id: str) -> None:
        """Set the state to failed; the record becomes visible."""
        self._change_state(id, "training", "failed")

    def get(self, id: str, owner: str) -> VoiceModel:
        """Return the record of a voice. Raises the same NotFound if it is unknown or private to another owner."""
        with self._visible(id, owner) as (db, row):
            return _record(db, row)

    def owners(self) -> tuple[str, ...]:
        """Return the owners of all voices."""
        if not self._open(create=False):
            return ()
        with self._database.reading() as db:
            return tuple(owner for (owner,) in db.execute("SELECT DISTINCT owner FROM voices ORDER BY owner"))

    def usage(self, owner: str) -> tuple[int, int]:
        """Return the number of voices of ``owner``, including unfinished ones, and the size of their recordings in bytes."""
        if not self._open(create=False):
            return 0, 0
        query = "SELECT DISTINCT audio FROM samples JOIN voices ON voice = id WHERE owner = ?"
        with self._database.reading() as db:
            ((count,),) = db.execute("SELECT COUNT(*) FROM voices WHERE owner = ?", (owner,))
            return int(count), self._blobs.size(name for (name,) in db.execute(query, (owner,)))

    def listed(self, owner: str) -> tuple[VoiceModel, ...]:
        """Return the records of the voices of ``owner``, newest first; damaged records are logged and skipped."""
        if not self._open(create=False):
            return ()
        records = []
        with self._database.reading() as db:
            for row in _rows(db, "owner = ? AND state IN ('trained', 'failed') ORDER BY created_at DESC, id", owner):
                try:
                    records.append(_record(db, row))
                except StoreError as error:
                    _LOG.warning("a voice is not listed: %s", error)
        return tuple(records)

    def remove(self, id: str, owner: str) -> None:
        """Remove a voice of ``owner``, and its files unless other voices use them. Raises NotFound."""
        self._check_id(id)
        query = "SELECT cover FROM voices WHERE id = ? AND owner = ? AND state IN ('trained', 'failed')"
        with self._database.writing() as db:
            voice = db.execute(query, (id, owner)).fetchone()
            if voice is None:
                raise _unknown(id)
            samples = db.execute("SELECT audio FROM samples WHERE voice = ?", (id,)).fetchall()
            db.execute("DELETE FROM voices WHERE id = ?", (id,))
        # Files are removed after the deletion is committed, in another transaction, because another process may be creating
        # a voice from the same recordings.
        with self._database.writing() as db:
            names = {name for (name,) in (voice, *samples) if name is not None}
            self._blobs.remove(names - _in_use(db))

    def embedding(self, id: str, owner: str, fingerprint: str) -> bytes | None:
        """Return the embedding of a voice for the weights with this fingerprint; None if it has none. Raises NotFound."""
        with self._visible(id, owner) as (db, row):
            if row["state"] != "trained":
                raise _unknown(id)
            entry = db.execute(
                "SELECT data, digest FROM embeddings WHERE voice = ? AND fingerprint = ?", (id, fingerprint)
            ).fetchone()
        if entry is None:
            return None
        data = bytes(entry[0])
        # None for a damaged embedding, which can be computed again from the samples.
        return data if hashlib.sha256(data).hexdigest() == entry[1] else None

    def add_embedding(self, id: str, fingerprint: str, embedding: bytes) -> None:
        """Store a voice's embedding for the weights with this fingerprint."""
        with self._database.writing() as db:
            _insert_embedding(db, id, fingerprint, embedding)

    def samples(self, id: str, owner: str) -> tuple[Sample, ...]:
        """Return the recordings of a voice, in order. Raises NotFound."""
        with self._visible(id, owner) as (db, _):
            rows = db.execute(
                "SELECT audio, text, title FROM samples WHERE voice = ? ORDER BY number", (id,)
            ).fetchall()
        return tuple(Sample(self._blobs.get(audio), text, title) for audio, text, title in rows)

    def sample(self, id: str, owner: str, number: int) -> bytes:
        """Return a recording of a voice, by index from 0, as a WAV file. Raises NotFound."""
        with self._visible(id, owner) as (db, _):
            row = db.execute("SELECT audio FROM samples WHERE voice = ? AND number = ?", (id, number)).fetchone()
        if row is None:
            raise NotFound("this voice model has no such sample", status=404)
        return self._blobs.get(row[0])

    def cover(self, id: str, owner: str) -> bytes:
        """Return the cover image of a voice. Raises NotFound for an unknown voice or if there is no image."""
        with self._visible(id, owner) as (_, row):
            cover = row["cover"]
        if cover is None:
            raise NotFound("this voice model has no cover image", status=404)
        return self._blobs.get(cover)

    def count(self, id: str) -> None:
        """Increment the number of syntheses of a voice."""
        with self._database.writing() as db:
            db.execute("UPDATE voices SET task_count = task_count + 1 WHERE id = ?", (id,))

    def _change_state(self, id: str, before: str, after: str) -> None:
        with self._database.writing() as db:
            _set_state(db, id, before, after)

    def _check_id(self, id: str) -> None:
        """Open the store to access a voice. Raises NotFound if the ID is invalid or the store does not exist."""
        if _ID.fullmatch(id) is None or not self._open(create=False):
            raise _unknown(id)

    @contextmanager
    def _visible(self, id: str, owner: str) -> Iterator[tuple[sqlite3.Connection, sqlite3.Row]]:
        """Yield the database and the row of a voice that is visible to ``owner``. Raises NotFound."""
        self._check_id(id)
        with self._database.reading() as db:
            row = _row(db, id)
            if row["state"] not in _STATES:
                raise _damaged(id)
            if row["state"] not in {"trained", "failed"} or (row["visibility"] == "private" and row["owner"] != owner):
                raise _unknown(id)
            _verified_samples(db, row)  # a flipped bit must not make a private voice public
            yield db, row

    def _open(self, *, create: bool) -> bool:
        """Open the store; return False if it does not exist."""
        if self._database.opened:
            return True
        if not self._database.path.exists():
            if not self._blobs.empty():
                raise StoreError(
                    f"the database of the voice store is missing: {self._database.path}; restore it, or remove "
                    f"{self._blobs.folder} to delete all voices"
                )
            if not create:
                return False
        if not self._is_clean:
            self._clean_up()
        return True

    def _clean_up(self) -> None:
        with self._database.writing() as db:
            db.execute(
                "DELETE FROM voices WHERE state IN ('created', 'training') AND updated_at <= ?",
                (time.time() - self._stale_s,),
            )
            self._blobs.remove_unused(_in_use(db), self._stale_s)
        self._is_clean = True


def _in_use(db: sqlite3.Connection) -> set[str]:
    rows = db.execute("SELECT audio FROM samples UNION SELECT cover FROM voices WHERE cover IS NOT NULL")
    return {name for (name,) in rows}


def _rows(db: sqlite3.Connection, where: str, value: str) -> list[sqlite3.Row]:
    cursor = db.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(f"SELECT {_COLUMNS} FROM voices WHERE {where}", (value,)).fetchall()  # noqa: S608 - constants


def _row(db: sqlite3.Connection, id: str) -> sqlite3.Row:
    for row in _rows(db, "id = ?", id):
        return row
    raise _unknown(id)


def _verified_samples(db: sqlite3.Connection, row: sqlite3.Row) -> list[tuple[int, str, str, str]]:
    """Verify the digest of a voice and return its samples. Raises StoreError."""
    samples = db.execute(
        "SELECT number, title, text, audio FROM samples WHERE voice = ? ORDER BY number", (row["id"],)
    ).fetchall()
    digest = _digest(row["id"], row["owner"], row["visibility"], row["created_at"], row["told"], row["cover"], samples)
    if digest != row["digest"]:
        raise _damaged(row["id"])
    return samples


def _record(db: sqlite3.Connection, row: sqlite3.Row) -> VoiceModel:
    voice = row["id"]
    samples = tuple(
        SampleEntity(title=title, text=text, audio=f"/model/{voice}/samples/{number}")
        for number, title, text, _ in _verified_samples(db, row)
    )
    try:
        return VoiceModel(
            **json.loads(row["told"]),
            id=voice,
            cover_image=f"/model/{voice}/cover" if row["cover"] else "",
            state=row["state"],
            created_at=datetime.fromtimestamp(row["created_at"], UTC),
            updated_at=datetime.fromtimestamp(row["updated_at"], UTC),
            visibility=row["visibility"],
            task_count=row["task_count"],
            author=Author(id=row["owner"]),
            train_mode="fast",
            samples=samples,
        )
    except (ValueError, OverflowError, TypeError) as error:
        raise _damaged(voice) from error


def _insert_embedding(db: sqlite3.Connection, id: str, fingerprint: str, data: bytes) -> None:
    row = (id, fingerprint, data, hashlib.sha256(data).hexdigest())
    db.execute("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?)", row)


def _set_state(db: sqlite3.Connection, id: str, before: str, after: str) -> None:
    cursor = db.execute(
        "UPDATE voices SET state = ?, updated_at = ? WHERE id = ? AND state = ?", (after, time.time(), id, before)
    )
    if cursor.rowcount != 1:
        raise StoreError(f"the voice model {id} must be in state {before}")


def _digest(id: str, *values: Any) -> str:
    # A digest is needed because SQLite does not detect flipped bits inside a value.
    return hashlib.sha256(json.dumps([id, *values]).encode()).hexdigest()


def _damaged(id: str) -> StoreError:
    return StoreError(f"the record of the voice model {id} is damaged in the voice store")


def _unknown(id: str) -> NotFound:
    name = id if len(id) <= 64 and id.isascii() and id.isprintable() else "of this id"
    return NotFound(f"there is no voice model {name}", status=404)
