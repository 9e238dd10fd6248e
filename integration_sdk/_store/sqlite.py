"""A scope in a SQLite file, which survives crashes and power loss, for one process at a time.

WAL mode with ``synchronous=FULL``: a commit returns once it is on stable storage. One thread does
the work. Everything asked for while it is busy, or in the same turn of the loop, becomes one
transaction, one hop to the thread and one back: after syncs, hops are the greatest cost of a file.
(To wait on purpose for more to join is no gain: measured.)
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from attrs import Factory, define, field

from integration_sdk._store import place
from integration_sdk._store.row import (
    SETTLED,
    Owner,
    Row,
    RowRefused,
    State,
    columns,
    from_document,
    indexed,
    to_document,
    to_snapshot,
)
from integration_sdk._store.rows import Commit, Document, key_claimed, next_document, stale
from integration_sdk._store.waiting import to_the_end
from integration_sdk._system import sync_directory
from integration_sdk.errors import JournalError, fresh_copy

T = TypeVar("T")

APPLICATION_ID: Final = 0x70757368  # "push"
VERSION: Final = 4
"""Of the tables. Until 3 they were those of versions before 0.1.0."""
_SETTLED: Final = str(tuple(sorted(map(str, SETTLED))))
_TABLES: Final = f"""
    CREATE TABLE scopes (
        scope TEXT PRIMARY KEY, base_url TEXT NOT NULL, dialect TEXT NOT NULL
    );
    CREATE TABLE pushes (
        number INTEGER PRIMARY KEY, scope TEXT NOT NULL, id TEXT NOT NULL, company TEXT NOT NULL,
        reference TEXT, key TEXT, state TEXT NOT NULL, status TEXT, version INTEGER NOT NULL,
        decision TEXT, snapshot TEXT, document TEXT NOT NULL,
        UNIQUE (scope, id), UNIQUE (scope, key)
    );
    CREATE UNIQUE INDEX a_reference_stands_for_one_push ON pushes (scope, reference)
        WHERE reference IS NOT NULL AND decision IS NOT 'resend';
    CREATE INDEX pushes_by_reference ON pushes (scope, reference) WHERE decision IS 'resend';
    CREATE INDEX live_pushes ON pushes (scope, company) WHERE state NOT IN {_SETTLED};
    CREATE INDEX pushes_by_snapshot ON pushes (snapshot) WHERE snapshot IS NOT NULL;
    CREATE TABLE payloads (number INTEGER PRIMARY KEY, payload BLOB NOT NULL);
    CREATE TABLE snapshots (id TEXT PRIMARY KEY, document TEXT NOT NULL);
    CREATE TABLE documents (
        scope TEXT, name TEXT, version INTEGER NOT NULL, token INTEGER NOT NULL, body BLOB,
        PRIMARY KEY (scope, name)
    );
    CREATE TRIGGER what_is_settled_needs_no_payload AFTER UPDATE ON pushes
        WHEN NEW.state IN {_SETTLED}
        BEGIN DELETE FROM payloads WHERE number = OLD.number; END;
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {VERSION};
"""
_ROWS: Final = 64
"""Rows of a statement. Not ``executemany``: after each of its rows, as after each statement, the
thread may wait 5 ms for the GIL (64 rows beside a busy loop: 1.5 s; in one statement 0.04)."""
_SNAPSHOTS: Final = 64
"""New snapshots after which those that no row needs are dropped."""
_UNREADABLE: Final = (sqlite3.Error, UnicodeError, msgspec.MsgspecError, json.JSONDecodeError)
_UNCERTAIN: Final = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_DAMAGE: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
"""Errors of the disk, the system or another program, which say nothing about the file."""

Work = Callable[[sqlite3.Connection], Any]


@lru_cache(256)
def _insert(rows: int) -> str:
    return f"INSERT INTO pushes ({_COLUMNS}) VALUES {_values(11, rows)} ON CONFLICT DO NOTHING"


@lru_cache(256)
def _insert_payloads(rows: int) -> str:
    return (
        "INSERT OR IGNORE INTO payloads SELECT number, column3"
        f" FROM (VALUES {_values(3, rows)}) JOIN pushes ON scope = column1 AND id = column2"
        f" WHERE state = '{State.QUEUED}'"
    )


@lru_cache(256)
def _update(rows: int) -> str:
    """Return the statement that writes next versions, and skips what is none."""
    return (
        "UPDATE pushes SET key = column5, state = column6, status = column7, version = column8,"
        " decision = column9, snapshot = column10, document = column11"
        f" FROM (VALUES {_values(11, rows)})"
        " WHERE scope = column1 AND id = column2 AND version = column8 - 1 AND"
        f" (state <> '{State.FINAL}' OR (state, key, status) IS (column6, column5, column7))"
    )


def _values(columns: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


_COLUMNS: Final = (
    "scope, id, company, reference, key, state, status, version, decision, snapshot, document"
)
_READ: Final = """
    SELECT document, payload, snapshot FROM pushes
    LEFT JOIN payloads ON payloads.number = pushes.number AND key IS NULL
"""
_AMONG: Final = "IN (SELECT value FROM json_each(?))"
_DROP_SNAPSHOTS: Final = (
    "DELETE FROM snapshots WHERE id NOT IN (SELECT snapshot FROM pushes WHERE snapshot IS NOT NULL)"
)


class SqliteFile:
    """An open file; belongs to one thread.

    Raises:
        JournalInUse: Another process or store has it open.
        JournalError: It is somebody else's, not a store, damaged, or cannot be opened.
    """

    def __init__(self, path: Path, scope: str) -> None:
        self._path, self._scope = path, scope
        self._broken: str | None = None
        self._snapshots: set[str] = set()  # on file
        try:
            self._lock = place.take(path)
            with ExitStack() as undo:
                undo.callback(os.close, self._lock)
                self._db = self._opened()
                undo.callback(self._db.close)
                self._names = place.Names(path)
                undo.pop_all()
        except OSError as error:
            raise JournalError(f"The journal {path} cannot be opened: {error}.") from error

    def _opened(self) -> sqlite3.Connection:
        is_new = not self._path.stat().st_size
        if not is_new:
            # Read-only, so that a damaged file stays as it is; unless its making was cut short,
            # after which only a writer can take back what was half done.
            half_made = self._path.with_name(self._path.name + "-journal").exists()
            with closing(_reading(self._path, "rw" if half_made else "ro")) as db:
                is_new = _is_blank(db)
        db = _connect(self._path, "rw")
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")  # or a record stays until it is written over
            if is_new:
                db.executescript(f"BEGIN EXCLUSIVE; {_TABLES} COMMIT;")
                sync_directory(self._path.parent)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(_DROP_SNAPSHOTS)
        except BaseException as error:
            db.close()
            if isinstance(error, sqlite3.Error):
                raise _unreadable(self._path, error) from error
            raise
        return db

    def commit(self, commits: Sequence[Commit]) -> list[Any]:
        """Return an answer or an error for each, once it is on stable storage.

        All are one transaction; if any is refused, each is one, so that it concerns it alone.
        """
        try:
            return self._transact(partial(self._write, commits))
        except RowRefused as error:
            if len(commits) == 1:
                return [error]
            return [self.commit([one])[0] for one in commits]
        except JournalError as error:
            return [fresh_copy(error) for _ in commits]

    def do(self, work: Work) -> Any:
        """Return the answer of *work*, or its error."""
        try:
            return self._transact(partial(work, self._db))
        except JournalError as error:
            return error

    def _transact(self, work: Callable[[], T]) -> T:
        if self._broken is None and not self._names.are_kept():
            self._broken = "it, or its lock, was moved, deleted or replaced while it was open"
        if self._broken is not None:
            raise self._not_written(self._broken)
        try:
            self._db.execute("BEGIN")
            answer = work()
            self._db.execute("COMMIT")
        except BaseException as error:
            self._snapshots.clear()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
                raise RowRefused(f"The journal {self._path} refused the row: {error}.") from error
            if isinstance(error, sqlite3.Error):
                # After a full disk or a lock, nothing was written. A failed write or sync may have
                # worked, so nothing more is written until the file is opened and read again.
                self._broken = str(error) if _code(error) in _UNCERTAIN else None
                raise self._not_written(str(error)) from error
            if isinstance(error, _UNREADABLE):
                raise _unreadable(self._path, error) from error
            raise
        return answer

    def _not_written(self, why: str) -> JournalError:
        reopen = " (reopen it to continue)" if self._broken else ""
        return JournalError(f"The journal {self._path} could not be written: {why}{reopen}.")

    def _write(self, commits: Sequence[Commit]) -> list[list[Row] | None]:
        self._keep_snapshots(chain(*(chain(one.rows, one.add) for one in commits)))
        joining = [row for one in commits if one.joins for row in one.add]
        added = [row for one in commits if not one.joins for row in one.add]
        inserted = self._add(joining)
        recorded = self._recorded(joining) if inserted < len(joining) else {}
        self._put([row for one in commits for row in one.rows])
        if self._add(added) < len(added):
            raise stale(added[0])
        return [
            [recorded.get(row.id, row) for row in one.add] if one.joins else None for one in commits
        ]

    def _add(self, rows: Sequence[Row]) -> int:
        """Insert what can be, and return how many."""
        inserted = 0
        for some, values in self._portions(rows):
            inserted += self._db.execute(_insert(len(some)), values).rowcount
            bodies = [(self._scope, row.id, row.payload) for row in some if row.payload is not None]
            if bodies:
                self._db.execute(_insert_payloads(len(bodies)), list(chain(*bodies)))
        return inserted

    def _put(self, rows: Sequence[Row]) -> None:
        for some, values in self._portions(rows):
            try:
                updated = self._db.execute(_update(len(some)), values).rowcount
            except sqlite3.IntegrityError as error:
                raise key_claimed(next((one.key for one in some if one.key), None)) from error
            if updated < len(some):
                raise stale(some[0])

    def _portions(self, rows: Sequence[Row]) -> Iterator[tuple[Sequence[Row], list[object]]]:
        for first in range(0, len(rows), _ROWS):
            some = rows[first : first + _ROWS]
            yield some, [value for row in some for value in (self._scope, *columns(row))]

    def _keep_snapshots(self, rows: Iterable[Row]) -> None:
        if len(self._snapshots) >= _SNAPSHOTS:
            self._db.execute(_DROP_SNAPSHOTS)
            self._snapshots.clear()
        for shot in [row.snapshot for row in rows if row.snapshot is not None]:
            if shot.id not in self._snapshots:
                values = (shot.id, to_document(shot))
                self._db.execute("INSERT OR IGNORE INTO snapshots VALUES (?, ?)", values)
                self._snapshots.add(shot.id)

    def _recorded(self, rows: Sequence[Row]) -> dict[str, Row]:
        """Return what is on record by id: of each row itself, or what has its reference."""
        by_id = {one.id: one for one in self.read(f"id {_AMONG}", _array(row.id for row in rows))}
        others = [row for row in rows if row.id not in by_id and row.reference is not None]
        which = f"reference {_AMONG} AND decision IS NOT 'resend'"
        references = _array(indexed(str(row.reference)) for row in others)
        holders = {one.reference: one for one in self.read(which, references)}
        return by_id | {row.id: holders[row.reference] for row in others}

    def read(self, which: str, *values: object) -> list[Row]:
        """Return the rows that meet a condition, in the order in which they were added."""
        return read(self._db, self._scope, which, *values)

    def close(self) -> None:
        """Checkpoint the log, and unlock."""
        try:
            self._db.close()
        finally:
            os.close(self._lock)


def read(db: sqlite3.Connection, scope: str, which: str, *values: object) -> list[Row]:
    """Return the rows of a scope that meet a condition, in the order in which they were added."""
    query = f"{_READ} WHERE scope = ? AND {which} ORDER BY pushes.number"
    found = db.execute(query, (scope, *values)).fetchall()
    query = f"SELECT document FROM snapshots WHERE id {_AMONG}"
    shots = db.execute(query, (_array({one[2] for one in found if one[2]}),)).fetchall()
    snapshots = {one.id: one for one in (to_snapshot(document) for (document,) in shots)}
    return [
        from_document(document, payload, snapshots.get(snapshot))
        for document, payload, snapshot in found
    ]


def read_file(path: Path, scope: str) -> list[Row]:
    """Return the rows of a file as of one moment, also while a program has it open.

    Leaves nothing beside a file that nobody has open.

    Raises:
        JournalError: It is somebody else's, not a store, damaged, or not readable.
    """
    try:
        place.refuse_others(path)
        while True:
            before = is_open, size, _ = _looks(path)
            try:
                rows = _read_once(path, scope, is_open=is_open) if size else []
            except (*_UNREADABLE, JournalError):
                if is_open or _looks(path) == before:
                    raise
            else:
                if is_open or _looks(path) == before:
                    return rows
    except OSError as error:
        raise JournalError(f"The journal {path} cannot be read: {error}.") from error
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def _read_once(path: Path, scope: str, *, is_open: bool) -> list[Row]:
    # SQLite makes a log beside a file that has none, unless nobody can be writing.
    with closing(_reading(path, "ro" if is_open else "ro&immutable=1")) as db:
        return [] if _is_blank(db) else read(db, scope, "TRUE")


def _looks(path: Path) -> tuple[bool, int, int]:
    """Return whether a program has a file open, its size, and when it was changed."""
    file = path.stat()
    return path.with_name(path.name + "-wal").exists(), file.st_size, file.st_mtime_ns


def _reading(path: Path, mode: str = "ro") -> sqlite3.Connection:
    """Return a read-only connection to a file that is found to be whole."""
    db = _connect(path, mode)
    try:
        db.execute("BEGIN")
        _check(path, db)
    except BaseException as error:
        db.close()
        if isinstance(error, _UNREADABLE):
            raise _unreadable(path, error) from error
        raise
    return db


def _check(path: Path, db: sqlite3.Connection) -> None:
    ((verdict,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    if _is_blank(db):
        return
    ((application,),) = db.execute("PRAGMA application_id").fetchall()
    if application != APPLICATION_ID:
        raise JournalError(f"{path} is not a journal of this SDK and was not changed.")
    ((version,),) = db.execute("PRAGMA user_version").fetchall()
    if version != VERSION:
        other = "newer" if version > VERSION else "older"
        raise JournalError(
            f"The journal {path} has version {version}; this SDK needs {VERSION}. It was not "
            f"changed: use the {other} SDK that made it."
        )


def _is_blank(db: sqlite3.Connection) -> bool:
    (things,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return not things


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    name = quote(str(path.absolute()))
    db = sqlite3.connect(
        f"file:{name}?mode={mode}", uri=True, isolation_level=None, cached_statements=512
    )
    try:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        db.close()
        raise
    return db


def _array(texts: Iterable[str]) -> str:
    return json.dumps(list(texts))


def _unreadable(path: Path, error: BaseException) -> JournalError:
    if _code(error) in _NO_DAMAGE:
        return JournalError(
            f"The journal {path} cannot be used: {error}. Check whether its disk is full, "
            "read-only or failing, or another program has locked the file."
        )
    return JournalError(
        f"The journal {path} cannot be trusted: {error}. Nothing was sent, and the file was not "
        "changed: restore a backup, or inspect it with sqlite3."
    )


def _code(error: BaseException) -> int:
    """Return SQLite's code of *error*, without its details; 0 if it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


# The asyncio side


@define(eq=False)
class _Batch:
    """What the thread does next, and who waits for it."""

    commits: list[Commit] = Factory(list)
    works: list[Work] = Factory(list)
    committed: list[asyncio.Future[Any]] = Factory(list)
    done: list[asyncio.Future[Any]] = Factory(list)

    def run(self, file: SqliteFile) -> list[Any]:
        done = file.commit(self.commits) if self.commits else []
        return [*done, *map(file.do, self.works)]

    def tell(self, answers: Sequence[Any]) -> None:
        for waiting, answer in zip((*self.committed, *self.done), answers, strict=True):
            if waiting.done():  # cancelled
                continue
            if isinstance(answer, Exception):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)


@define(eq=False)
class SqliteThread:
    """A file and the thread that it belongs to; created by `open`, for this loop and process."""

    path: Path
    scope: str
    _executor: ThreadPoolExecutor
    _file: SqliteFile
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop)
    _process: int = field(factory=os.getpid)
    _next: _Batch = field(init=False, factory=_Batch)
    _is_busy: bool = field(init=False, default=False)
    _closing: asyncio.Future[None] | None = field(init=False, default=None)

    @classmethod
    async def open(cls, path: Path, scope: str) -> SqliteThread:
        """Open or create a file; see `SqliteFile`. If cancelled, it is free again."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="journal")
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(executor, SqliteFile, path, scope)
        try:
            return cls(path, scope, executor, await to_the_end(opening))
        except BaseException:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await to_the_end(loop.run_in_executor(executor, opening.result().close))
            executor.shutdown(wait=False)
            raise

    def commit(self, commit: Commit) -> asyncio.Future[Any]:
        """Write all of it or nothing; the future may be cancelled, the commit goes on."""
        batch, waiting = self._batch(), self._loop.create_future()
        batch.commits.append(commit)
        batch.committed.append(waiting)
        return waiting

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the answer of *work*, which sees all earlier commits; one transaction."""
        batch, waiting = self._batch(), self._loop.create_future()
        batch.works.append(work)
        batch.done.append(waiting)
        answer: T = await waiting
        return answer

    async def ask(self, query: str, *values: object) -> list[Any]:
        """Return the rows that one statement yields, as `do`."""
        return await self.do(lambda db: db.execute(query, values).fetchall())

    async def bind(self, owner: Owner) -> Owner:
        """Bind the scope to *owner* if it has none; return whose it is."""
        await self.ask("INSERT OR IGNORE INTO scopes VALUES (?, ?, ?)", *owner)
        (found,) = await self.ask("SELECT * FROM scopes WHERE scope = ?", owner.scope)
        return Owner(*found)

    def _batch(self) -> _Batch:
        if self._closing is not None:
            raise JournalError(f"The journal {self.path} is closed.")
        self._check_place(asyncio.get_running_loop())
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._start)
        return self._next

    def _check_place(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._process != os.getpid() or self._loop is not loop:
            raise JournalError(
                f"The journal {self.path} was opened in another process or event loop: "
                "open it where it is used."
            )

    @property
    def is_left(self) -> bool:
        """Whether its loop has ended without closing it."""
        return self._loop.is_closed()

    def _start(self) -> None:
        batch, self._next = self._next, _Batch()
        self._is_busy = bool(batch.commits or batch.works)
        if self._is_busy:
            # A loop with virtual time waits for what it runs itself, and for no other thread.
            working = self._loop.run_in_executor(self._executor, self._work, batch)
            working.add_done_callback(partial(self._worked, batch))

    def _work(self, batch: _Batch) -> list[Any]:
        """On the thread."""
        try:
            return batch.run(self._file)
        except Exception as error:  # ours
            broken = f"The journal's writer broke: {error!r}"
            return [JournalError(broken) for _ in (*batch.commits, *batch.works)]

    def _worked(self, batch: _Batch, working: asyncio.Future[list[Any]]) -> None:
        self._start()
        batch.tell(working.result())

    async def close(self) -> None:
        """Finish pending work, checkpoint the log, unlock; also if the caller is cancelled.

        A file that `is_left` is closed from any loop of its process.
        """
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._check_place(self._loop if self.is_left else loop)
            if not self.is_left:
                self._start()  # the thread does one after the other
            self._closing = loop.run_in_executor(self._executor, self._file.close)
        try:
            await to_the_end(self._closing)
        finally:
            self._executor.shutdown()  # it has nothing left to do: its thread is gone at once


@define(eq=False)
class SqliteRows:
    """The rows of a file; see `Rows`."""

    _file: SqliteThread
    durable: bool = field(init=False, default=True)
    shared: bool = field(init=False, default=False)
    _taken: set[str] = field(init=False, factory=set)

    def add(self, rows: Sequence[Row]) -> asyncio.Future[list[Row]]:
        """Record new rows; return for each itself, or the row that has its reference."""
        return self._file.commit(Commit(add=rows, joins=True))

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> asyncio.Future[None]:
        """Record these next versions, and new rows, all or none."""
        return self._file.commit(Commit(rows, add))

    def decide(self, row: Row, add: Sequence[Row] = ()) -> asyncio.Future[None]:
        """`put` of one row."""
        return self.put([row], add)

    async def take(self, company: str) -> list[Row] | None:
        """Return the live rows of *company* once; afterwards nothing."""
        if company in self._taken:
            return []
        self._taken.add(company)
        return await self.rows(company=company, live=True)

    async def rows(
        self,
        *,
        ids: Collection[str] | None = None,
        reference: str | None = None,
        company: str | None = None,
        state: State | None = None,
        live: bool = False,
    ) -> list[Row]:
        """Return the rows for which all conditions hold, in the order of `add`."""
        conditions = {
            f"id {_AMONG}": None if ids is None else _array(ids),
            "reference = ?": reference and indexed(reference),
            "company = ?": company and indexed(company),
            "state = ?": state,
        }
        which = [one for one, value in conditions.items() if value is not None]
        which += [f"state NOT IN {_SETTLED}"] if live else []
        values = [value for value in conditions.values() if value is not None]
        condition = " AND ".join(which or ["TRUE"])
        return await self._file.do(lambda db: read(db, self._file.scope, condition, *values))

    async def owners(self, keys: Collection[str]) -> set[str]:
        """Return which of these push keys have an owner."""
        if not keys:
            return set()
        columns = {indexed(key): key for key in keys}
        query = f"SELECT key FROM pushes WHERE scope = ? AND key {_AMONG}"
        found = await self._file.ask(query, self._file.scope, _array(columns))
        return {columns[key] for (key,) in found}

    async def companies(self) -> list[str]:
        """Return the companies that have live rows."""
        query = (
            "SELECT document FROM pushes WHERE number IN (SELECT min(number) FROM pushes"
            f" WHERE scope = ? AND state NOT IN {_SETTLED} GROUP BY company)"
        )
        found = await self._file.ask(query, self._file.scope)
        return [from_document(document).company for (document,) in found]

    async def news(self) -> AsyncIterator[str]:
        """Yield nothing: a file has one process."""
        await asyncio.get_running_loop().create_future()
        yield ""

    async def release(self) -> None:
        """Let the next one take all companies."""
        self._taken.clear()


@define(eq=False)
class SqliteDocuments:
    """Documents of a file, which no other process has; see `Documents`."""

    _file: SqliteThread
    _claimed: set[str] = field(init=False, factory=set)

    async def claim(self, name: str) -> Document | None:
        """Take the document, unless another pull of this process has it."""
        if name in self._claimed:
            return None
        self._claimed.add(name)
        query = (
            "INSERT INTO documents VALUES (?, ?, 0, 1, NULL) ON CONFLICT DO UPDATE"
            " SET token = token + 1 RETURNING name, version, token, body"
        )
        try:
            ((*facts,),) = await self._file.ask(query, self._file.scope, name)
        except BaseException:
            self._claimed.discard(name)
            raise
        return Document(*facts)

    async def read(self, prefix: str) -> list[Document]:
        """Return all documents whose name begins so, by name."""
        query = (
            "SELECT name, version, 0, body FROM documents"
            " WHERE scope = ? AND substr(name, 1, ?) = ? ORDER BY name"
        )
        found = await self._file.ask(query, self._file.scope, len(prefix), prefix)
        return [Document(*facts) for facts in found]

    async def write(self, document: Document, body: bytes) -> Document:
        """Record a new body; return the next version."""

        def work(db: sqlite3.Connection) -> Document:
            query = "SELECT version, token FROM documents WHERE scope = ? AND name = ?"
            found = db.execute(query, (self._file.scope, document.name)).fetchone()
            recorded = Document(document.name, *(found or ()))
            written = next_document(recorded, document, body)
            db.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET version = excluded.version, body = excluded.body",
                (self._file.scope, document.name, written.version, recorded.token, body),
            )
            return written

        return await self._file.do(work)

    async def give_back(self, names: Collection[str]) -> None:
        """End these claims."""
        self._claimed.difference_update(names)
