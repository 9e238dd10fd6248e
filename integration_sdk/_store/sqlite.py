"""A store in a SQLite file, which survives crashes and power loss, for one process at a time.

WAL mode with ``synchronous=FULL``: a commit returns once it is on stable storage. One thread does
the work; each hop to it is one transaction.

* One user at a time: ``flock`` on ``<name>-lock``, which the death of a process releases.
* Only the owner's own regular files, mode 0600; no symbolic links.
* A file that is moved or deleted while it is open would be written on, and never be found again; a
  lock that is deleted is none. So both names are looked at before each transaction.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from integration_sdk._store.sql import SQLITE, VERSION, Statement, tables, texts
from integration_sdk._system import open_locked, sync_directory
from integration_sdk.errors import ConfigurationError, JournalError, JournalInUse

T = TypeVar("T")

APPLICATION_ID: Final = 0x70757368  # "push"
OLDEST: Final = (3, 38)
_UNCERTAIN: Final = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""After these the file has to be opened and read again: a failed write may have worked."""


class Sqlite:
    """A file and its thread. Opened by `open`; belongs to the event loop that opened it."""

    words: Final = SQLITE
    shared: Final = False
    connections: Final = 1

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(1, "integration_sdk journal")
        self._lock: int | None = None
        self._db: sqlite3.Connection
        self._broken: str | None = None

    @classmethod
    async def open(cls, path: Path) -> Sqlite:
        """Lock and open a file; make it if it is missing. Raises as `Store._lend`."""
        file = cls(path)
        try:
            await file._do(file._open)
        except BaseException:
            file._thread.submit(file._close)
            file._thread.shutdown()  # waits if the caller was cancelled: the next one may open it
            raise
        return file

    async def run(self, work: Sequence[Statement]) -> list[list[Any]]:
        """Return the rows of each statement, once all are on stable storage."""
        return await self._do(self._transact, work)

    async def close(self) -> None:
        """Checkpoint the log, and unlock."""
        try:
            await self._do(self._close)
        finally:
            self._thread.submit(self._close)  # if the caller was cancelled
            self._thread.shutdown()

    async def _do(self, work: Callable[..., T], *values: object) -> T:
        # A caller that is cancelled leaves it to the thread to end what it has begun.
        try:
            done = asyncio.get_running_loop().run_in_executor(self._thread, work, *values)
        except RuntimeError as error:
            raise JournalError(f"The journal {self.path} is closed.") from error
        return await done

    def listen(self, heard: Callable[[str], None]) -> None:
        """Do nothing: there are no other processes."""

    # In the thread

    def _open(self) -> None:
        try:
            self._lock = open_locked(_lock_of(self.path))
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            with _readable(self.path):
                self._db = _connect(self.path, "rw")
                if _is_blank(self._db, self.path):
                    self._make()
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                # Or a record stays in the file until it is overwritten.
                self._db.execute("PRAGMA secure_delete = ON")
                # Or the ids of a statement are sorted in a file.
                self._db.execute("PRAGMA temp_store = MEMORY")
            self.path.chmod(0o600)
            real = self.path.resolve()  # a directory's link that is set anew moves nothing
            self._names = [(one, one.stat()) for one in (real, _lock_of(real))]
        except BlockingIOError as error:
            raise JournalInUse(
                f"The journal {self.path} is in use by another process or coordinator: "
                "stop that one first, or use another file. Several can share one in PostgreSQL: "
                'journal=Store("postgresql://...").'
            ) from error
        except OSError as error:
            raise JournalError(f"The journal {self.path} cannot be opened: {error}.") from error

    def _make(self) -> None:
        self._db.execute("BEGIN EXCLUSIVE")
        for statement in tables(SQLITE):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute("COMMIT")
        sync_directory(self.path.parent)

    def _transact(self, work: Sequence[Statement]) -> list[list[Any]]:
        if self._broken is None and not all(_is_still(*one) for one in self._names):
            self._broken = "it, or its lock, was moved, deleted or replaced while it was open"
        if self._broken is not None:
            raise self._not_written(self._broken)
        try:
            self._db.execute("BEGIN")
            found = [self._db.execute(text, _named(values)).fetchall() for text, values in work]
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                self._broken = str(error) if _code(error) in _UNCERTAIN else None
                raise self._not_written(str(error)) from error
            raise
        return found

    def _not_written(self, why: str) -> JournalError:
        reopen = " (close and open it to continue)" if self._broken else ""
        return JournalError(f"The journal {self.path} could not be written: {why}{reopen}.")

    def _close(self) -> None:
        held, self._lock = self._lock, None
        try:
            if hasattr(self, "_db"):
                self._db.close()
        finally:
            if held is not None:
                os.close(held)


def read_file(path: Path, scope: str) -> list[Any]:
    """Return all rows of a file as they are read, also while a program has it open."""
    found, last, all_rows = list[Any](), 0, texts(SQLITE).all_rows
    if not path.exists() or not path.stat().st_size:
        return found
    with _readable(path), closing(_connect(path, "ro")) as db:
        db.execute("BEGIN")  # all as of one moment
        if _is_blank(db, path):
            return found
        while portion := db.execute(all_rows, _named((scope, last))).fetchall():
            found += portion
            last = portion[-1][-1]
    return found


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigurationError(
            f"a journal in a file needs SQLite {'.'.join(map(str, OLDEST))} or later, but this "
            f"Python has {sqlite3.sqlite_version}: use a newer Python, or a postgresql:// URL"
        )
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(address, uri=True, isolation_level=None, cached_statements=64)


def _named(values: Sequence[object]) -> dict[str, object]:
    return {str(number): value for number, value in enumerate(values, 1)}


def _code(error: Exception) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


# Whose it is, and what


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say in words what SQLite finds wrong with a file."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        if _code(error) == sqlite3.SQLITE_NOTADB:
            raise _not_ours(path) from error
        raise JournalError(
            f"The journal {path} cannot be read ({error}) and was not changed: if it is damaged, "
            "restore a backup."
        ) from error


def _is_blank(db: sqlite3.Connection, path: Path) -> bool:
    """Return whether a file has no tables yet; raise if it is damaged or not ours."""
    (check,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if check != "ok":
        raise sqlite3.DatabaseError(check)
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master").fetchall()}
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if not names and not application:
        return True
    if application != APPLICATION_ID or "versions" not in names:
        raise _not_ours(path)
    (version,) = db.execute(texts(SQLITE).version).fetchone()
    if version != VERSION:
        raise JournalError(
            f"The journal {path} has tables of version {version}, but this SDK needs {VERSION}: "
            "use the SDK that made it, or another file."
        )
    return False


def _not_ours(path: Path) -> JournalError:
    return JournalError(f"{path} is not a journal of this SDK and was not changed.")


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + "-lock")


def _is_still(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), file)
    except OSError:
        return False
