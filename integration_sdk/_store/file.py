"""A journal file: opening and writing. Synchronous.

SQLite in WAL mode with ``synchronous=FULL``: a commit returns once it is on stable storage.
What SQLite does not promise is added here:

* Only the owner's own files, and one owner at a time, as long as they keep their names: see
  ``_place``.
* A damaged file is refused as a whole, and left as it is. SQLite checks the structure, a checksum
  each row, a tally their number. A damaged tail of the WAL looks like a torn write that was
  never committed, so the number of the last commit is written to the lock file *after* the
  commit is durable: a file with fewer commits has lost some.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

from integration_sdk._store import place, schema
from integration_sdk._store.reading import UNUSABLE, JournalReader, code, is_empty
from integration_sdk._store.row import (
    SETTLED,
    Fenced,
    Intent,
    KeyClaimed,
    Owner,
    RowRefused,
    Snapshot,
)
from integration_sdk._system import sync_directory
from integration_sdk.errors import JournalError

_UNCERTAIN = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_AT_ONCE = 64
"""Rows per statement: after each, this thread may wait up to 5 ms for the GIL."""
_SNAPSHOTS = 256
"""Number of snapshots at which unused ones are dropped, from memory and from disk."""
_DROP_SNAPSHOTS = (
    "DELETE FROM snapshots WHERE digest NOT IN "
    "(SELECT snapshot FROM intents WHERE snapshot IS NOT NULL)"
)
_SKIPPED = "an intent is on record for another record"
UNSETTLED = f"state NOT IN {tuple(sorted(map(str, SETTLED)))}"


class JournalFile(JournalReader):
    """An open journal file; belongs to the thread that opened it.

    Attributes:
        references: Those of all rows when it was opened.
        store_payloads: Whether a record is kept until its push is final. Otherwise, and afterwards,
            only its hash and natural key are.

    Raises:
        JournalInUse: Another process or coordinator has it open.
        JournalError: The file is somebody else's, not a journal, damaged, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.store_payloads = True
        self._broken: str | None = None
        try:
            self._lock = place.take(path)
            try:
                self._db = self._opened()
                self._names = place.Names(path)
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise JournalError(f"The journal {path} cannot be opened: {error}.") from error

    def _opened(self) -> sqlite3.Connection:
        try:
            if self._is_blank():
                if self._last_commit():
                    raise self._gone()
                self._make()
            self._commits = self._checked()
            return self._taken_over(self._ready(self._path))
        except UNUSABLE as error:
            raise self._unreadable(error) from error

    def _is_blank(self) -> bool:
        """Whether there is nothing in the file: it is empty, or holds only a database header."""
        if self._wal.exists() and self._wal.stat().st_size:
            return False
        if not self._path.stat().st_size:
            return True
        with closing(self._connect(self._path, "ro")) as db:
            return is_empty(db)

    def _make(self) -> None:
        """Create the tables in a second file, which then replaces the blank one.

        After a crash halfway the blank file is still there, and the next open starts again.
        """
        unborn = self._path.with_name(self._path.name + "-new")
        for suffix in ("", "-wal", "-shm", "-journal"):
            unborn.with_name(unborn.name + suffix).unlink(missing_ok=True)
        os.close(place.own_file(unborn))
        self._ready(unborn).close()
        unborn.replace(self._path)
        sync_directory(self._path.parent)

    def _ready(self, path: Path) -> sqlite3.Connection:
        db = self._connect(path, "rw")
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            schema.migrate(db)
            # Only now, so that a new file is whole without its log, which is not renamed with it.
            db.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            db.close()
            raise
        return db

    def _taken_over(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """Give the file a new token: whoever opened it before can write nothing any more."""
        try:
            query = "UPDATE tally SET token = token + 1 RETURNING token"
            ((self._token,),) = db.execute(query).fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _gone(self) -> JournalError:
        """Return the error for a file that had commits and is empty now."""
        return JournalError(
            f"The journal {self._path} cannot be trusted: it is gone, or empty, and it had "
            f"{self._last_commit()} commits. Nothing was sent: restore it from a copy; or, to "
            f"begin a new one that knows of no push before, remove {self._path.name}-lock."
        )

    def _checked(self) -> int:
        """Check everything and return the number of commits.

        Read-only, because closing a writable connection checkpoints the WAL, and a damaged file
        must stay as it is.
        """
        with closing(self._connect(self._path, "ro")) as db:
            self._check_structure(db)
            return self._check_contents(db, least=self._last_commit())

    def write(self, commits: Sequence[Sequence[Intent]]) -> list[JournalError | None]:
        """Write the commits in one transaction; return for each its error, or None.

        On return, every commit without an error is on stable storage.
        """
        if self._broken is None and not self._names.are_kept():
            self._broken = "it, or its lock, was moved, deleted or replaced while it was open"
        if self._broken is not None:
            return [self._not_written(self._broken) for _ in commits]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            refused = self._write_one([row for rows in commits for row in rows])
            results = [refused and self._write_one(rows) for rows in commits]
            if len(self._snapshots) > _SNAPSHOTS:
                self._drop_snapshots()
            self._count_commit()
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            # After a full disk or a lock, nothing was written. A failed write or sync may have
            # worked, so nothing more is written until the journal is opened and read again.
            if code(error) in _UNCERTAIN:
                self._broken = str(error)
            self._roll_back()
            return [self._not_written(str(error)) for _ in commits]
        except BaseException:
            self._roll_back()
            raise
        self._commits += 1
        self._note_last_commit()
        return results

    def _count_commit(self) -> None:
        """Count a commit of ours. Whoever opened the file after us has another token."""
        counted = self._db.execute(
            "UPDATE tally SET commits = commits + 1 WHERE token = ?", (self._token,)
        )
        if not counted.rowcount:
            self._broken = "another process has opened it since"
            raise sqlite3.IntegrityError(self._broken)

    def _note_last_commit(self) -> None:
        number = self._commits.to_bytes(8)
        with suppress(OSError):  # what is committed is; with an older number, less is noticed
            os.pwrite(self._lock, number + zlib.crc32(number).to_bytes(4), 0)

    def _roll_back(self) -> None:
        self._snapshots.clear()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _not_written(self, why: str) -> JournalError:
        reopen = " (open it again to go on)" if self._broken else ""
        return JournalError(f"The journal {self._path} could not be written: {why}{reopen}.")

    def _write_one(self, rows: Sequence[Intent]) -> JournalError | None:
        self._db.execute("SAVEPOINT one")
        try:
            for row in rows:
                self._keep_snapshot(row.snapshot)
            for first in range(0, len(rows), _AT_ONCE):
                self._keep(rows[first : first + _AT_ONCE])
        except sqlite3.IntegrityError as error:
            self._db.execute("ROLLBACK TO one")
            self._snapshots.clear()
            return self._refusal(error, rows)
        finally:
            if self._db.in_transaction:
                self._db.execute("RELEASE one")
        return None

    def _keep(self, rows: Sequence[Intent]) -> None:
        values = [value for row in rows for value in schema.to_columns(row)]
        if self._db.execute(schema.upsert(len(rows)), values).rowcount < len(rows):
            raise sqlite3.IntegrityError(_SKIPPED)
        needed = [row for row in rows if row.payload and not row.is_settled]
        bodies = [(row.id, row.payload) for row in needed if self.store_payloads]
        if bodies:
            self._db.execute(schema.insert_payloads(len(bodies)), list(chain(*bodies)))

    def _refusal(self, error: sqlite3.IntegrityError, rows: Sequence[Intent]) -> RowRefused:
        query = "SELECT 1 FROM intents WHERE id = ? AND version >= ?"
        for row in rows if _SKIPPED in str(error) else ():
            if self._db.execute(query, (row.id, row.version)).fetchone():
                return Fenced(f"Refused by the journal: intent {row.id} was changed meanwhile")
        kind = KeyClaimed if "intents.key" in str(error) else RowRefused
        return kind(f"Refused by the journal: {error}")

    def _keep_snapshot(self, snapshot: Snapshot | None) -> None:
        if snapshot is None or snapshot.digest in self._snapshots:
            return
        insert = "INSERT OR IGNORE INTO snapshots VALUES (?, ?, ?, ?)"
        self._db.execute(insert, schema.snapshot_columns(snapshot))
        self._snapshots[snapshot.digest] = snapshot

    def _drop_snapshots(self) -> None:
        self._snapshots.clear()
        self._db.execute(_DROP_SNAPSHOTS)

    def bind(self, owner: Owner) -> Owner:
        """Bind the file to *owner* if it has none; return whose it is."""
        try:
            query = "UPDATE tally SET owner = ? WHERE owner = '' AND token = ?"
            self._db.execute(query, (schema.owner_text(owner), self._token))
            return self._owner(self._db) or owner
        except UNUSABLE as error:
            raise self._unreadable(error) from error

    def read(self, which: str = "TRUE", *values: str) -> list[Intent]:
        """Return the rows that meet a condition, in the order they were accepted."""
        try:
            return self._rows(self._db, which, *values)
        except UNUSABLE as error:
            raise self._unreadable(error) from error

    def owners(self, keys: Collection[str]) -> dict[str, str]:
        """Return the ids of the intents that own these push keys, by key."""
        query = "SELECT key, id FROM intents WHERE key IN (SELECT value FROM json_each(?))"
        try:
            return dict(self._db.execute(query, (json.dumps(list(keys)),)).fetchall())
        except UNUSABLE as error:
            raise self._unreadable(error) from error

    def close(self) -> None:
        """Drop unused snapshots if possible, checkpoint the WAL, unlock."""
        try:
            with closing(self._db), suppress(sqlite3.Error):  # they can be dropped next time
                if self._broken is None:
                    self._drop_snapshots()
        except sqlite3.Error as error:
            raise self._not_written(str(error)) from error
        finally:
            os.close(self._lock)
