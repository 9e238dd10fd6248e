"""Reads a journal file and detects damage; writes nothing, not even a lock.

A journal that a program has open is read as of one moment, while the program goes on writing.
"""

import os
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from attrs import define, field

from integration_sdk._store import place, schema
from integration_sdk._store.row import Intent, Owner, Snapshot
from integration_sdk.errors import JournalError

LAST_COMMIT = struct.Struct(">QI")
# Messages of sqlite3's errors may contain damaged text that cannot be decoded.
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
UNUSABLE = (*_UNREADABLE, schema.Damaged)
"""What reading a journal raises that cannot be read."""
_NO_DAMAGE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
"""Errors of the disk, the system or another program, which say nothing about the file."""
_READ = "SELECT * FROM intents LEFT JOIN payloads USING (number)"
_TRIES = 10
"""Readings until no program has opened the file meanwhile; the second nearly always is the last."""


_BITS = 23
_MASK = 2**_BITS - 1
_SHIFTS = (0, _BITS - 1, 64 - _BITS)


@define
class Filter:
    """A Bloom filter: remembers in one MiB which strings were added, give or take.

    ``text in filter`` is False only if *text* was never added. If it was never added, it is True
    for one in 3,000 after 200,000 strings, and for one in 40 after a million.
    """

    _bits: bytearray = field(init=False, factory=lambda: bytearray(2**_BITS // 8), repr=False)

    def add(self, text: str) -> None:
        """Add *text*."""
        number = hash(text)
        for shift in _SHIFTS:
            place = number >> shift & _MASK
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, text: str) -> bool:
        number = hash(text)
        places = (number >> shift & _MASK for shift in _SHIFTS)
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in places)


class JournalReader:
    """A journal file, to be read.

    Attributes:
        references: Those of all rows when it was checked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.references = Filter()
        self._snapshots: dict[str, Snapshot] = {}

    def read_all(self) -> list[Intent]:
        """Check the file, and return all rows as of one moment, in the order of acceptance.

        Raises:
            JournalError: The file is somebody else's, not a journal, damaged, or not readable.
        """
        try:
            place.refuse_others(self._path)
            for _ in range(_TRIES):
                before = self._path.stat()
                held = self._wal.exists()
                error, rows = self._attempt(held=held)
                unchanged = not self._wal.exists() and _is_as_it_was(before, self._path.stat())
                if held or unchanged:
                    break
        except OSError as failure:
            raise JournalError(f"The journal {self._path} cannot be read: {failure}.") from failure
        if error is not None:
            raise error
        return rows

    def _attempt(self, *, held: bool) -> tuple[JournalError | None, list[Intent]]:
        try:
            return None, self._read_once(held=held)
        except UNUSABLE as error:
            unreadable = self._unreadable(error)
            unreadable.__cause__ = error
            return unreadable, []
        except JournalError as error:
            return error, []

    def _read_once(self, *, held: bool) -> list[Intent]:
        least = self._last_commit()  # first, since the program may commit meanwhile
        # SQLite makes a log beside a file that has none, unless nobody can be writing.
        with closing(self._connect(self._path, "ro" if held else "ro&immutable=1")) as db:
            db.execute("BEGIN")
            if not least and is_empty(db):
                return []
            self._check_structure(db)
            self._check_contents(db, least=least)
            with closing(sqlite3.connect(":memory:")) as copy:  # of an older schema, to be read
                if schema.check_version(db) == len(schema.MIGRATIONS):
                    return self._rows(db)
                db.backup(copy)
                schema.migrate(copy)
                return self._rows(copy)

    @property
    def _wal(self) -> Path:
        return self._path.with_name(self._path.name + "-wal")

    def _last_commit(self) -> int:
        try:
            lock = os.open(place.lock_of(self._path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            record = os.pread(lock, LAST_COMMIT.size, 0)
        finally:
            os.close(lock)
        if len(record) < LAST_COMMIT.size:
            return 0
        number, checksum = LAST_COMMIT.unpack(record)
        return number if zlib.crc32(record[:8]) == checksum else 0

    def _check_structure(self, db: sqlite3.Connection) -> None:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        if application != schema.APPLICATION_ID:
            raise self._unusable("it is not a journal of this SDK")
        schema.check_tables(db)
        (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise self._unusable(verdict)

    def _check_contents(self, db: sqlite3.Connection, *, least: int) -> int:
        tallies = db.execute("SELECT commits, intents, payloads FROM tally").fetchall()
        if [list(map(type, one)) for one in tallies] != [[int, int, int]]:
            raise schema.Damaged("its tally is missing or damaged")
        ((commits, *counts),) = tallies
        if commits < least:
            raise self._unusable(
                f"it holds {commits} commits and had {least} (a journal restored "
                f"from an older copy is accepted once {self._path.name}-lock is removed)"
            )
        if schema.check_version(db) > 2:  # the first with an owner
            self._owner(db)
        if self._check_rows(db) != counts:
            intents, payloads = counts
            raise self._unusable(
                f"it does not hold the {intents} intents and {payloads} payloads it had"
            )
        return int(commits)

    def _owner(self, db: sqlite3.Connection) -> Owner | None:
        ((text,),) = db.execute("SELECT owner FROM tally").fetchall()
        return schema.read_owner(text)

    def _check_rows(self, db: sqlite3.Connection) -> list[int]:
        """Check all rows and their snapshots; return counts of rows and of rows with a payload."""
        snapshot = self._snapshot_of(db)
        rows = payloads = 0
        for row in _named(db.execute(_READ)):
            schema.check(row)
            if row["snapshot"] is not None:
                snapshot(str(row["snapshot"]))
            if row["reference"] is not None:
                self.references.add(str(row["reference"]))
            rows += 1
            payloads += row["payload"] is not None
        return [rows, payloads]

    def _rows(self, db: sqlite3.Connection, which: str = "TRUE", *values: str) -> list[Intent]:
        query = f"{_READ} WHERE {which} ORDER BY number"
        snapshot = self._snapshot_of(db)
        return [schema.from_row(row, snapshot) for row in _named(db.execute(query, values))]

    def _snapshot_of(self, db: sqlite3.Connection) -> Callable[[str], Snapshot]:
        def snapshot(digest: str) -> Snapshot:
            if digest not in self._snapshots:
                query = "SELECT * FROM snapshots WHERE digest = ?"
                row = db.execute(query, (digest,)).fetchone()
                self._snapshots[digest] = schema.read_snapshot(digest, row)
            return self._snapshots[digest]

        return snapshot

    def _connect(self, file: Path, mode: str) -> sqlite3.Connection:
        path = str(file.absolute())
        for special in "%?#":
            path = path.replace(special, f"%{ord(special):x}")
        db = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        return db

    def _unreadable(self, error: Exception) -> JournalError:
        if code(error) not in _NO_DAMAGE:
            return self._unusable(str(error))
        return JournalError(
            f"The journal {self._path} cannot be used: {error}. See whether its disk is full, "
            "read-only or failing, or another program has the file locked."
        )

    def _unusable(self, why: str) -> JournalError:
        return JournalError(
            f"The journal {self._path} cannot be trusted: {why}. Nothing was sent and the file "
            "is as it was: restore it from a copy, or look into it with sqlite3."
        )


def is_empty(db: sqlite3.Connection) -> bool:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (things,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return not (application or things)


def _is_as_it_was(before: os.stat_result, now: os.stat_result) -> bool:
    facts = [(one.st_ino, one.st_size, one.st_mtime_ns) for one in (before, now)]
    return facts[0] == facts[1]


def _named(cursor: sqlite3.Cursor) -> Iterator[dict[str, object]]:
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, values, strict=True)) for values in cursor)


def code(error: Exception) -> int:
    """Return SQLite's code of *error*, without its details; 0 if it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
