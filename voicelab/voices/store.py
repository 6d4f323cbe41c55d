"""VoiceStore: the voice models of this machine, in one SQLite file and content-addressed files beside it.

Making a voice passes through the interface's states: ``begin`` (created), ``train`` (training), then
``finish`` (trained) or ``fail`` (failed). Nobody sees it before one of the last two. What a killed process
leaves behind is removed when the store is next opened, an hour later at the earliest, so that no process
removes what another is making.
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
from voicelab.schema import Author, SampleEntity, VoiceCreate, VoiceModel
from voicelab.storage import BlobFolder, Closing, Database, FileLock, data_home

LOCAL_OWNER: Final = "local"
"""Owner of the voices that are created on this machine without a service."""

_LOG = logging.getLogger("voicelab.voices")
_ID = re.compile("[0-9a-f]{32}", re.ASCII)
_STALE_SECONDS = 3600.0
_STATES = ("created", "training", "trained", "failed")
# ``told`` holds what the creator wrote: title, description, tags, languages.
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
    """One recording of a voice as it is kept: a WAV file, what is said in it, and a title with what was noticed."""

    audio: bytes = field(repr=False)
    text: str
    title: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed, as the title has it after the recording's length."""
        return tuple(self.title.split("; ")[1:])


class VoiceStore(Closing):
    """Voice models in ``folder``; by default ``voices`` in VOICELAB_HOME. Nothing is touched before it is needed.

    Safe to use from several threads, and from several processes. With ``exclusive`` it is a server's: a second
    server on the same folder is refused here. ``stale_s`` is the age in seconds at which what was begun and
    never finished is removed. Methods raise StoreError when the disk, the database or a file fails them.
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
        refused = f"another server uses the voice store {self.folder}"
        self._server = FileLock(self.folder / "server.lock", refused) if exclusive else None
        self._swept = False

    def __repr__(self) -> str:
        return f"VoiceStore({str(self.folder)!r})"

    def close(self) -> None:
        """Close the files and let another server have the store. Closing twice is fine."""
        self._database.close()
        if self._server is not None:
            self._server.close()

    def begin(self, request: VoiceCreate, samples: Sequence[Sample], owner: str, languages: Sequence[str] = ()) -> str:
        """Keep what a voice will be made of, and return its id. Nobody can see it yet."""
        self._ready(make=True)
        voice = secrets.token_hex(16)
        described = json.dumps(
            {
                "title": request.title,
                "description": request.description or "",
                "tags": request.tags,
                "languages": languages,
            }
        )
        # Large files are written before the transaction, which would keep others waiting. In it they are
        # only looked at again: a sweep, which is a transaction too, may have come between.
        for data in (*(sample.audio for sample in samples), request.cover_image):
            if data:
                self._blobs.put(data)
        now = time.time()
        with self._database.writing() as db:
            cover = self._blobs.put(request.cover_image) if request.cover_image else None
            kept = [(i, one.title, one.text, self._blobs.put(one.audio)) for i, one in enumerate(samples)]
            digest = _digest(voice, owner, request.visibility, now, described, cover, kept)
            row = (voice, owner, request.visibility, "created", now, now, 0, described, cover, digest)
            db.execute(f"INSERT INTO voices ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608 - a constant
            db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", [(voice, *sample) for sample in kept])
        return voice

    def train(self, id: str) -> None:
        """Say that the engine has begun."""
        self._change_state(id, "created", "training")

    def finish(self, id: str, fingerprint: str, embedding: bytes) -> VoiceModel:
        """Keep the engine's embedding of the voice, let it be seen, and return its record.

        Only the engine reads ``embedding``; ``fingerprint`` names the weights that it belongs to.
        """
        with self._database.writing() as db:
            _keep_embedding(db, id, fingerprint, embedding)
            _set_state(db, id, "training", "trained")
        with self._database.reading() as db:
            return _record(db, _row(db, id))

    def fail(self, id: str) -> None:
        """Say that the engine could not make it. Its creator can still look at the record."""
        self._change_state(id, "training", "failed")

    def get(self, id: str, owner: str) -> VoiceModel:
        """Return the record of a voice. Raises NotFound, the same for an unknown one and one private to another."""
        with self._visible(id, owner) as (db, row):
            return _record(db, row)

    def listed(self, owner: str) -> tuple[VoiceModel, ...]:
        """Return the records of the voices that ``owner`` made, the newest first; the log names a damaged one."""
        if not self._ready(make=False):
            return ()
        records = []
        with self._database.reading() as db:
            for row in _rows(db, "owner = ? AND state IN ('trained', 'failed') ORDER BY created_at DESC, id", owner):
                try:
                    records.append(_record(db, row))
                except StoreError as error:
                    # One that cannot be read must not hide the others.
                    _LOG.warning("a voice is not listed: %s", error)
        return tuple(records)

    def remove(self, id: str, owner: str) -> None:
        """Forget a voice that ``owner`` made, and the files that no other voice has. Raises NotFound."""
        self._look_up(id)
        mine = "SELECT cover FROM voices WHERE id = ? AND owner = ? AND state IN ('trained', 'failed')"
        with self._database.writing() as db:
            voice = db.execute(mine, (id, owner)).fetchone()
            if voice is None:
                raise _unknown(id)
            samples = db.execute("SELECT audio FROM samples WHERE voice = ?", (id,)).fetchall()
            db.execute("DELETE FROM voices WHERE id = ?", (id,))
        # Not before it is certain that the voice is gone, and in a transaction again, like the one in which another
        # process that makes a voice of the same recordings checks that they are there.
        with self._database.writing() as db:
            names = {name for (name,) in (voice, *samples) if name is not None}
            self._blobs.remove(names - _in_use(db))

    def embedding(self, id: str, owner: str, fingerprint: str) -> bytes | None:
        """Return the embedding of a voice for these weights; None when there is none. Raises NotFound."""
        with self._visible(id, owner) as (db, row):
            if row["state"] != "trained":
                raise _unknown(id)
            entry = db.execute(
                "SELECT data, digest FROM embeddings WHERE voice = ? AND fingerprint = ?", (id, fingerprint)
            ).fetchone()
        if entry is None:
            return None
        data = bytes(entry[0])
        # A damaged one can be made again from the samples.
        return data if hashlib.sha256(data).hexdigest() == entry[1] else None

    def keep_embedding(self, id: str, fingerprint: str, embedding: bytes) -> None:
        """Keep the embedding of a voice for other weights."""
        with self._database.writing() as db:
            _keep_embedding(db, id, fingerprint, embedding)

    def samples(self, id: str, owner: str) -> tuple[Sample, ...]:
        """Return the recordings of a voice, in order. Raises NotFound."""
        with self._visible(id, owner) as (db, _):
            rows = db.execute(
                "SELECT audio, text, title FROM samples WHERE voice = ? ORDER BY number", (id,)
            ).fetchall()
        return tuple(Sample(self._blobs.get(audio), text, title) for audio, text, title in rows)

    def sample(self, id: str, owner: str, number: int) -> bytes:
        """Return one recording of a voice, a WAV file; they count from 0. Raises NotFound."""
        with self._visible(id, owner) as (db, _):
            row = db.execute("SELECT audio FROM samples WHERE voice = ? AND number = ?", (id, number)).fetchone()
        if row is None:
            raise NotFound("this voice model has no such sample", status=404)
        return self._blobs.get(row[0])

    def cover(self, id: str, owner: str) -> bytes:
        """Return the cover picture of a voice. Raises NotFound, also when it has none."""
        with self._visible(id, owner) as (_, row):
            cover = row["cover"]
        if cover is None:
            raise NotFound("this voice model has no cover image", status=404)
        return self._blobs.get(cover)

    def count(self, id: str) -> None:
        """Count a synthesis with a voice."""
        with self._database.writing() as db:
            db.execute("UPDATE voices SET task_count = task_count + 1 WHERE id = ?", (id,))

    def _change_state(self, id: str, before: str, after: str) -> None:
        with self._database.writing() as db:
            _set_state(db, id, before, after)

    def _look_up(self, id: str) -> None:
        """Open the store for an id. Raises NotFound when it has none, or, without a look at the disk, for no id at all."""
        if _ID.fullmatch(id) is None or not self._ready(make=False):
            raise _unknown(id)

    @contextmanager
    def _visible(self, id: str, owner: str) -> Iterator[tuple[sqlite3.Connection, sqlite3.Row]]:
        """The database and a voice in it that ``owner`` may see. Raises NotFound."""
        self._look_up(id)
        with self._database.reading() as db:
            row = _row(db, id)
            if row["state"] not in _STATES:
                raise _damaged(id)
            if row["state"] not in {"trained", "failed"} or (row["visibility"] == "private" and row["owner"] != owner):
                raise _unknown(id)
            _kept(db, row)  # so that no flipped bit makes a private voice public
            yield db, row

    def _ready(self, *, make: bool) -> bool:
        if self._database.opened:
            return True
        if not self._database.path.exists():
            if not self._blobs.empty():
                raise StoreError(
                    f"the database of the voice store is gone: {self._database.path}; put it back, or remove "
                    f"{self._blobs.folder} to begin anew"
                )
            if not make:
                return False
        if not self._swept:
            self._sweep()
        return True

    def _sweep(self) -> None:
        with self._database.writing() as db:
            db.execute(
                "DELETE FROM voices WHERE state IN ('created', 'training') AND updated_at <= ?",
                (time.time() - self._stale_s,),
            )
            self._blobs.remove_unused(_in_use(db), self._stale_s)
        self._swept = True


def _in_use(db: sqlite3.Connection) -> set[str]:
    """The names of all files that some voice has."""
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


def _kept(db: sqlite3.Connection, row: sqlite3.Row) -> list[tuple[int, str, str, str]]:
    """The samples of a voice, after a check of all that was kept when it was made."""
    kept = db.execute(
        "SELECT number, title, text, audio FROM samples WHERE voice = ? ORDER BY number", (row["id"],)
    ).fetchall()
    digest = _digest(row["id"], row["owner"], row["visibility"], row["created_at"], row["told"], row["cover"], kept)
    if digest != row["digest"]:
        raise _damaged(row["id"])
    return kept


def _record(db: sqlite3.Connection, row: sqlite3.Row) -> VoiceModel:
    kept = _kept(db, row)
    voice = row["id"]
    samples = tuple(
        SampleEntity(title=title, text=text, audio=f"/model/{voice}/samples/{number}")
        for number, title, text, _ in kept
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


def _keep_embedding(db: sqlite3.Connection, id: str, fingerprint: str, data: bytes) -> None:
    row = (id, fingerprint, data, hashlib.sha256(data).hexdigest())
    db.execute("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?)", row)


def _set_state(db: sqlite3.Connection, id: str, before: str, after: str) -> None:
    done = db.execute(
        "UPDATE voices SET state = ?, updated_at = ? WHERE id = ? AND state = ?", (after, time.time(), id, before)
    )
    if done.rowcount != 1:
        raise StoreError(f"the voice model {id} is not in state {before}")


def _digest(id: str, *parts: Any) -> str:
    # SQLite does not notice a flipped bit inside a value; this does.
    return hashlib.sha256(json.dumps([id, *parts]).encode()).hexdigest()


def _damaged(id: str) -> StoreError:
    return StoreError(f"the record of the voice model {id} is damaged in the voice store")


def _unknown(id: str) -> NotFound:
    shown = id if len(id) <= 64 and id.isascii() and id.isprintable() else "of this id"
    return NotFound(f"there is no voice model {shown}", status=404)
