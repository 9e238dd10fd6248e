"""Disks fill and files rot: what a journal file does then."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from integration_sdk._store.file import JournalFile
from integration_sdk._store.reading import JournalReader
from msgspec import structs

from integration_sdk._store import place, schema
from integration_sdk._store.row import Intent, KeyClaimed, Snapshot, State
from integration_sdk.errors import JournalError
from tests.journal_child import sending


def acked(name: str) -> Intent:
    return sending(name).to(State.ACKED, key=f"key-{name}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


@pytest.fixture
def file(path: Path) -> Iterator[JournalFile]:
    opened = JournalFile(path)
    yield opened
    opened.close()


def error_of(file: JournalFile, *rows: Intent) -> JournalError | None:
    [result] = file.write([rows])
    return result


# Commits that fail


def test_a_full_disk_refuses_for_certain_and_for_now(file: JournalFile) -> None:
    """A commit that does not fit leaves nothing behind; with room again the journal goes on."""
    (pages,) = file._db.execute("PRAGMA page_count").fetchone()
    file._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    many = [sending(f"a-{number}") for number in range(200)]

    assert "full" in str(error_of(file, *many))
    assert file.read() == []
    file._db.execute("PRAGMA max_page_count = 100000")
    assert error_of(file, *many) is None
    assert len(file.read()) == 200


def test_a_read_only_database_refuses_for_certain(file: JournalFile) -> None:
    """What cannot be written is said, and nothing is half-written."""
    file._db.execute("PRAGMA query_only = ON")
    assert "readonly" in str(error_of(file, sending("a")))
    file._db.execute("PRAGMA query_only = OFF")

    assert error_of(file, sending("a")) is None
    assert len(file.read()) == 1


def test_a_file_without_write_permission_is_refused() -> None:
    """A journal that could not be written is refused when it is opened, not at the first push."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "pushes.db"
    JournalFile(path).close()
    path.chmod(0o400)
    nobody = 65534
    privileged = os.geteuid() == 0  # root may write anything: be somebody else for a moment
    if privileged:
        for one in (folder, path, path.with_name("pushes.db-lock")):
            os.chown(one, nobody, nobody)
        os.seteuid(nobody)
    try:
        with pytest.raises(JournalError, match="Permission denied"):
            JournalFile(path)
    finally:
        if privileged:
            os.seteuid(0)
        shutil.rmtree(folder)


class FailingSync:
    """A connection whose COMMIT works and then reports a failed sync, as a dying disk may."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, statement: str, *values: Any) -> Any:
        result = self._db.execute(statement, *values)
        if statement == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return result


def test_after_a_failed_sync_nothing_more_is_written(path: Path) -> None:
    """What is on disk is not known any more: the journal has to be opened and read again."""
    file = JournalFile(path)
    real = file._db
    file._db = FailingSync(real)  # type: ignore[assignment]  # a connection that fails
    assert "open it again" in str(error_of(file, sending("a")))
    file._db = real

    assert "open it again" in str(error_of(file, sending("b")))
    file.close()
    again = JournalFile(path)
    assert [row.id for row in again.read()] == ["a"]
    again.close()


def test_a_row_that_cannot_be_spelt_leaves_the_next_ones_alone(file: JournalFile) -> None:
    """Text that no file can hold fails its own commit, nothing of which stays, and no later one."""
    with pytest.raises(UnicodeEncodeError):
        file.write([[sending("a-1"), structs.replace(sending("a-2"), reference="\ud800")]])

    assert error_of(file, sending("a-3")) is None
    assert [row.id for row in file.read()] == ["a-3"]


def test_a_refused_row_does_not_take_its_snapshot_along(file: JournalFile) -> None:
    """A snapshot that was rolled back with its row is written again with the next."""
    assert error_of(file, acked("a")) is None
    claims = sending("b").to(State.ACKED, key="key-a")
    assert isinstance(error_of(file, sending("c"), claims), KeyClaimed)

    assert error_of(file, sending("d")) is None
    assert file.read()[1:] == [sending("d")]


# Files that rot


def folder_of(tmp_path: Path, *, closed: bool) -> tuple[Path, list[Intent]]:
    """A journal as a killed process leaves it, or as a closed one does."""
    made = tmp_path / "made"
    made.mkdir()
    file = JournalFile(made / "pushes.db")
    file.write([[sending(f"a-{number}") for number in range(20)]])
    file._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # old pages in the file, new in the WAL
    file.write([[acked(f"a-{number}")] for number in range(10)])
    for number in range(5):
        file.write([[sending(f"b-{number}")]])
    rows = file.read()
    if closed:
        file.close()
    left = tmp_path / "left"
    shutil.copytree(made, left, ignore=shutil.ignore_patterns("*-shm"))
    if not closed:
        file.close()
    return left, rows


def outcome(folder: Path) -> list[Intent] | str:
    """The rows of a journal that opens, or why it does not."""
    try:
        file = JournalFile(folder / "pushes.db")
    except JournalError as error:
        return str(error)
    try:
        return file.read()
    finally:
        file.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if not one.match("*-shm")}


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def flipped(tmp_path: Path, left: Path, name: str, bit: int) -> tuple[list[Intent] | str, bool]:
    """Open a copy with one bit flipped: what comes of it, and whether the copy stays as it was."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(left, copy)
    flip(copy / name, bit)
    before = contents(copy)
    return outcome(copy), before.items() <= contents(copy).items()


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_flipped_bits_are_noticed_or_harmless(tmp_path: Path, closed: bool) -> None:
    """600 flipped bits each: all intents intact, or a clear error and the file as it was."""
    left, rows = folder_of(tmp_path, closed=closed)
    dice = Random(6)
    names = sorted(contents(left))
    refused = 0
    for _ in range(600):
        name = dice.choice(names)
        bit = dice.randrange((left / name).stat().st_size * 8)
        found, untouched = flipped(tmp_path, left, name, bit)
        if isinstance(found, str):
            refused += 1
            assert "cannot be trusted" in found
            assert untouched
        else:
            assert found == rows

    assert refused > 40


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_bit_of_the_log_matters_or_does_not(tmp_path: Path) -> None:
    """20,000 bits of the files a killed process leaves, one by one."""
    left, rows = folder_of(tmp_path, closed=False)
    dice = Random(7)
    sizes = {name: (left / name).stat().st_size * 8 for name in sorted(contents(left))}
    for _ in range(20_000):
        name = dice.choice(list(sizes))
        found, untouched = flipped(tmp_path, left, name, dice.randrange(sizes[name]))
        assert untouched if isinstance(found, str) else found == rows


def unchecked_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(schema, "_checksum", lambda facts: facts.get("checksum", 0))


def unchecked_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalFile, "_last_commit", lambda self: 0)


@pytest.mark.parametrize("seed_bug", [unchecked_rows, unchecked_commits])
def test_missing_checks_are_caught(
    tmp_path: Path, seed_bug: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Without row checksums or the number of the last commit, flipped bits slip through."""
    with pytest.MonkeyPatch.context() as patch:
        seed_bug(patch)
        closed = seed_bug is unchecked_rows
        name = "pushes.db" if closed else "pushes.db-wal"
        left, rows = folder_of(tmp_path, closed=closed)
        dice = Random(8)
        wrong = 0
        for _ in range(2000):
            bit = dice.randrange((left / name).stat().st_size * 8)
            try:
                found, _ = flipped(tmp_path, left, name, bit)
            except ValueError:  # no state of ours, say: read as if it were
                wrong += 1
            else:
                wrong += found != rows and not isinstance(found, str)
            if wrong:
                break

    assert wrong


def test_a_torn_log_opens_with_what_was_committed(tmp_path: Path) -> None:
    """Power loss cuts the log anywhere: every image opens with a whole number of commits."""
    left, rows = folder_of(tmp_path, closed=False)
    log = (left / "pushes.db-wal").read_bytes()
    (left / "pushes.db-lock").unlink()  # it had not reached the disk either
    ids = [row.id for row in rows]
    seen = set()
    for length in range(0, len(log), 997):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(left, copy)
        (copy / "pushes.db-wal").write_bytes(log[:length])
        found = outcome(copy)
        assert not isinstance(found, str), found
        assert [row.id for row in found] == ids[: len(found)]
        seen.add(len(found))
    assert {20, 24} <= seen


@pytest.mark.parametrize("name", ["pushes.db-wal", "pushes.db"])
def test_a_lost_part_is_noticed(tmp_path: Path, name: str) -> None:
    """A log or a file that was removed or emptied after its commits is missed."""
    left, _ = folder_of(tmp_path, closed=False)
    (left / name).unlink()
    if name == "pushes.db":
        (left / "pushes.db-wal").unlink()

    assert "cannot be trusted" in outcome(left)


@pytest.mark.parametrize("left", ["nothing", "an empty file", "an empty log too", "a header"])
def test_a_file_of_which_nothing_is_left_is_no_new_journal(path: Path, left: str) -> None:
    """It had commits: who opens it is told what is missing, and nothing takes its place."""
    file = JournalFile(path)
    file.write([[sending("a")]])
    file.close()
    path.unlink()
    if left != "nothing":
        path.touch(0o600)
    if left == "an empty log too":
        path.with_name(f"{path.name}-wal").touch(0o600)
    if left == "a header":
        with closing(sqlite3.connect(path)) as db:
            db.executescript("CREATE TABLE t (a); DROP TABLE t; VACUUM")
    before = path.read_bytes() if path.exists() else b""

    for _ in range(2):
        with pytest.raises(JournalError, match="gone, or empty, and it had 1 commits"):
            JournalFile(path)
    assert path.read_bytes() == before


def test_an_older_copy_is_accepted_on_purpose_only(tmp_path: Path) -> None:
    """A restored backup has lost intents; who removes the lock file says that he knows."""
    left, rows = folder_of(tmp_path, closed=False)
    (left / "pushes.db-wal").unlink()

    assert "restored from an older copy" in outcome(left)
    (left / "pushes.db-lock").unlink()
    assert len(outcome(left)) == 20 < len(rows)


def test_a_row_that_rots_while_the_journal_is_open_is_not_believed(file: JournalFile) -> None:
    """Each row is checked each time it is read."""
    file.write([[sending("a")]])
    file._db.execute("UPDATE intents SET error = 'another'")

    with pytest.raises(JournalError, match="'a' is damaged"):
        file.read()


def test_a_database_that_turns_unreadable_is_said(file: JournalFile) -> None:
    """A read of a broken file is an error of the journal's, not of SQLite's."""
    file.write([[sending("a")]])
    file._db.execute("ALTER TABLE intents RENAME TO gone")

    for read in (file.read, lambda: file.owners(["key"])):
        with pytest.raises(JournalError, match="cannot be trusted: no such table"):
            read()
    file._db.execute("ALTER TABLE gone RENAME TO intents")


def test_a_row_that_is_missing_is_noticed(path: Path) -> None:
    """The rows are counted: one less than there were is damage."""
    file = JournalFile(path)
    file.write([[sending("a"), sending("b")]])
    trigger = "SELECT sql FROM sqlite_schema WHERE name = 'intents_stay'"
    [[again]] = file._db.execute(trigger).fetchall()
    file._db.execute("PRAGMA foreign_keys = OFF")
    file._db.execute("DROP TRIGGER intents_stay")
    file._db.execute("DELETE FROM intents WHERE id = 'a'")
    file._db.execute("DELETE FROM payloads WHERE number = 1")
    file._db.execute(again)
    file.close()

    with pytest.raises(JournalError, match="does not hold the 2 intents and 1 payloads"):
        JournalFile(path)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM tally",
        "INSERT INTO tally SELECT * FROM tally",
        "UPDATE tally SET commits = 'many'",
        "UPDATE tally SET intents = x'00'",
        "UPDATE snapshots SET keys = x'00'",
        "UPDATE snapshots SET whole = 0",
        "UPDATE snapshots SET digest = x'00'",
        "DELETE FROM snapshots",
    ],
)
def test_a_table_that_is_empty_or_holds_odd_values_is_damage(path: Path, damage: str) -> None:
    """It is said as any other damage, and not with an error of Python's own."""
    with closing(JournalFile(path)) as file:
        row = sending("a")
        error_of(file, structs.replace(row, snapshot=Snapshot(frozenset({"k"}))))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(damage)
        db.commit()

    with pytest.raises(JournalError, match="cannot be trusted"):
        JournalFile(path)
    with pytest.raises(JournalError, match="cannot be trusted"):
        JournalReader(path).read_all()


def test_a_file_that_is_no_journal_is_left_alone(path: Path) -> None:
    """A mistyped path costs a file of records neither its mode nor its peace."""
    path.write_text('{"invoiceNumber": "INV-1"}\n', encoding="utf-8")
    path.chmod(0o644)

    with pytest.raises(JournalError, match="is not a journal of this SDK"):
        JournalFile(path)

    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_payload_that_is_missing_or_astray_is_noticed(path: Path) -> None:
    """A record that was kept, and is gone or nobody's, is damage: its push could not be resent."""
    file = JournalFile(path)
    file.write([[sending("a"), sending("b")]])
    file._db.execute("PRAGMA foreign_keys = OFF")
    file._db.execute("UPDATE payloads SET number = 17 WHERE number = 1")
    file.close()

    with pytest.raises(JournalError, match="2 intents and 2 payloads"):
        JournalFile(path)


def test_a_guard_that_is_missing_is_noticed(path: Path) -> None:
    """A journal whose triggers or indexes were changed does not hold its promises."""
    file = JournalFile(path)
    file._db.execute("DROP TRIGGER final_is_final")
    file.close()

    with pytest.raises(JournalError, match="tables are not as they were made"):
        JournalFile(path)


def test_no_lock_is_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lock two owners could open one journal: only the last may write."""
    monkeypatch.setattr(place, "_lock_for_us", lambda lock, path: None)
    first, second = JournalFile(path), JournalFile(path)

    fenced = error_of(first, sending("a"))
    assert "another process has opened it since" in str(fenced)
    assert error_of(second, sending("b")) is None
    assert error_of(first, sending("c")) is not None
    assert [row.id for row in second.read()] == ["b"]
    first.close()
    second.close()
