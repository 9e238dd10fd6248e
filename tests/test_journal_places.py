"""A journal whose disk, directory or names change under it: what is said, and what is kept."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from integration_sdk._store.file import JournalFile

from integration_sdk._store import schema
from integration_sdk.errors import JournalError, JournalInUse
from integration_sdk.models import OutcomeStatus, PushOutcome, PushRequest
from tests.journal_child import sending
from tests.push_model import Model, request
from tests.push_support import collect, coordinator


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


@pytest.fixture
def file(path: Path) -> Iterator[JournalFile]:
    opened = JournalFile(path)
    yield opened
    opened.close()


def error_of(file: JournalFile, name: str) -> JournalError | None:
    [result] = file.write([[sending(name)]])
    return result


def names(path: Path) -> list[str]:
    with closing(JournalFile(path)) as file:
        return [row.id for row in file.read()]


# Names that are lost


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("yesterday.db"))


def replaced(path: Path) -> None:
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def unlocked(path: Path) -> None:
    path.with_name(path.name + "-lock").unlink()


def out_of_the_way(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("lose", [deleted, moved, replaced, unlocked, out_of_the_way])
def test_a_journal_that_nobody_would_find_is_not_written_on(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """What was written to it would be forgotten, or a second owner could open it meanwhile."""
    folder = tmp_path / "folder"
    folder.mkdir()
    file = JournalFile(folder / "pushes.db")
    assert error_of(file, "a") is None

    lose(folder / "pushes.db")

    assert "moved, deleted or replaced" in str(error_of(file, "b"))
    assert "open it again" in str(error_of(file, "c"))
    assert [row.id for row in file.read()] == ["a"]
    file.close()


def test_a_process_may_change_its_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal given by a relative path stays where it was when it was opened."""
    monkeypatch.chdir(path.parent)
    with closing(JournalFile(Path(path.name))) as file:
        monkeypatch.chdir("/")

        assert error_of(file, "a") is None
    assert names(path) == ["a"]


def test_a_link_to_its_directory_may_be_set_anew(tmp_path: Path) -> None:
    """As by a deployment, while the old process still settles what it has sent."""
    (tmp_path / "release-1").mkdir()
    (tmp_path / "current").symlink_to("release-1")
    with closing(JournalFile(tmp_path / "current" / "pushes.db")) as file:
        (tmp_path / "current").unlink()
        (tmp_path / "current").symlink_to("release-2")

        assert error_of(file, "a") is None
    assert names(tmp_path / "release-1" / "pushes.db") == ["a"]


def test_a_directory_that_may_not_be_searched_any_more_is_no_loss(
    file: JournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that gives up its rights goes on with the journal that it has open."""

    def refuse(self: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refuse)
        assert error_of(file, "a") is None


@pytest.mark.virtual_time
async def test_nothing_more_is_sent_once_the_journal_is_gone(path: Path) -> None:
    """The run ends with the error; what was sent before is waited for."""
    model = Model()
    outcomes: list[PushOutcome] = []

    def requests() -> Iterator[PushRequest]:
        for number in range(10):
            if number == 5:
                path.unlink()
            yield request(number)

    with pytest.raises(JournalError, match="moved, deleted or replaced"):
        async with coordinator(model, journal=path, max_in_flight=1) as pushes:
            await collect(pushes.run(requests()), outcomes)

    assert model.counts["push.create"] == 5
    assert [one.status for one in outcomes].count(OutcomeStatus.SUCCESS) == 5


# Disks


def test_a_new_journal_is_whole_without_its_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is not written back, as on a full disk, is left behind where it is renamed."""
    ready, readers = JournalFile._ready, list[sqlite3.Connection]()

    def watched(self: JournalFile, made: Path) -> sqlite3.Connection:
        db = ready(self, made)
        if made != path:  # whoever reads keeps the log from being written back
            readers.append(sqlite3.connect(made))
            assert readers[0].execute("SELECT commits FROM tally").fetchall() == [(0,)]
        return db

    monkeypatch.setattr(JournalFile, "_ready", watched)
    JournalFile(path).close()
    [reader] = readers
    reader.close()

    assert names(path) == []


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_READONLY_DIRECTORY,
    ],
)
def test_a_disk_without_room_is_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Nobody is sent to look for a copy of a file that is intact; later it can be opened."""

    def fail(db: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = code
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrate", fail)
        with pytest.raises(JournalError, match="cannot be used: database or disk is full") as why:
            JournalFile(path)
    assert "trusted" not in str(why.value)

    assert names(path) == []


def test_a_commit_counts_though_its_number_cannot_be_noted(
    file: JournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on stable storage is not called unwritten."""

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        assert error_of(file, "a") is None

    assert error_of(file, "b") is None
    assert file._last_commit() == 2


def test_a_journal_closes_while_another_program_has_it_locked(path: Path) -> None:
    """All is on record: only snapshots that nobody needs stay until it is next closed."""
    file = JournalFile(path)
    assert error_of(file, "a") is None
    file._db.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        file.close()

    assert names(path) == ["a"]


# What a file system refuses


def refusing(number: int) -> Callable[..., None]:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_a_disk_without_locks_is_not_called_in_use(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may have none: there is no other owner to be ended."""
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))

    with pytest.raises(JournalError, match="cannot be locked: No locks available") as why:
        JournalFile(path)
    assert not isinstance(why.value, JournalInUse)


def test_a_disk_without_modes_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be made its owner's alone is refused, with an error of this SDK."""
    monkeypatch.setattr(os, "fchmod", refusing(errno.EPERM))

    with pytest.raises(JournalError, match=r"pushes\.db cannot be opened: .*not permitted"):
        JournalFile(path)


@pytest.mark.parametrize("name", ["file/pushes.db", "x" * 300], ids=["below a file", "too long"])
def test_a_path_that_cannot_be_is_said(tmp_path: Path, name: str) -> None:
    """Every error of a journal is an error of this SDK."""
    (tmp_path / "file").touch()

    with pytest.raises(JournalError, match="cannot be opened"):
        JournalFile(tmp_path / name)


WITHOUT_FCNTL = """
import asyncio, sys
sys.modules["fcntl"] = None  # as on a system that is not POSIX
from integration_sdk import Client
from integration_sdk.errors import JournalError

async def main(path):
    async with Client("key-0123456789", "http://localhost:1") as client:
        async with client.coordinator():
            print("in memory")
        try:
            async with client.coordinator(journal=path):
                print("on disk")
        except JournalError as error:
            print(error)

asyncio.run(main(sys.argv[1]))
"""


def test_a_system_without_file_locks_is_told_what_a_journal_takes(path: Path) -> None:
    """Pushes in memory work there, and the error says so."""
    program = [sys.executable, "-c", WITHOUT_FCNTL, str(path)]
    ran = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)

    first, second = ran.stdout.splitlines()
    assert first == "in memory"
    assert "POSIX" in second
    assert "Leave journal= out" in second
    assert not path.exists()
