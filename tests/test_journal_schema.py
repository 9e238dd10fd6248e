"""Journal files of older and newer SDKs, and the settings durability rests on."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integration_sdk._store.file import JournalFile

from integration_sdk._store import JournalReader, SqliteJournal, schema
from integration_sdk._store.row import Intent, Snapshot, State
from integration_sdk.errors import JournalError
from tests.test_journal import acked, count, final, sending


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


async def written(path: Path) -> list[Intent]:
    journal = await SqliteJournal.open(path)
    await journal.commit([sending("a"), acked("b"), final("c")])
    rows = await journal.rows()
    await journal.close()
    return rows


def with_migration(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, script))


async def test_an_older_file_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of an older SDK is brought up to date when it is opened, and loses nothing."""
    rows = await written(path)
    with_migration(monkeypatch, "CREATE TABLE notes (id TEXT); INSERT INTO notes VALUES ('a');")

    journal = await SqliteJournal.open(path)
    assert await journal.rows() == rows
    await journal.close()

    assert count(path, "notes") == 1
    assert version(path) == len(schema.MIGRATIONS)


OLD_FILE = Path(__file__).with_name("journal_schema_1.sql").read_text()
"""A journal that an SDK of schema 1 has left, with a push in each of its states."""
NOW = {
    "intent": State.QUEUED,
    "unsent": State.QUEUED,
    "throttled": State.QUEUED,
    "refused": State.REJECTED,
    "sending": State.SENDING,
    "absent": State.ABSENT,
    "bound": State.LATE,
    "given-up": State.DECIDED,
    "acked": State.ACKED,
    "final": State.FINAL,
}


async def test_a_journal_of_the_version_before_goes_on(path: Path) -> None:
    """Each push is in the state that this version calls so, with its record; only to look at it
    changes nothing.
    """
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLD_FILE)
    before = content(path)

    looked_at = JournalReader(path).read_all()
    assert content(path) == before
    journal = await SqliteJournal.open(path)
    rows = await journal.rows()
    kept = [row.to(State.SENDING, idempotency_key="new") for row in rows if row.id == "throttled"]
    await journal.commit(kept)
    await journal.close()

    assert {row.id: row.state for row in rows} == NOW
    assert looked_at == rows
    assert all((row.payload is None) == (row.id in {"refused", "final"}) for row in rows)
    assert version(path) == len(schema.MIGRATIONS)
    assert {row.id: row.state for row in JournalReader(path).read_all()} == NOW | {
        "throttled": State.SENDING
    }


def test_damage_in_a_journal_of_the_version_before_is_seen(path: Path) -> None:
    """It is looked for before anything is brought up to date."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLD_FILE)
        db.execute("UPDATE intents SET attempts = 7 WHERE id = 'sending'")
        db.commit()

    with pytest.raises(JournalError, match="row of intent 'sending' is damaged"):
        JournalFile(path)
    assert version(path) == 1


@given(st.frozensets(st.text()), st.booleans(), st.none() | st.integers(0, 2**40))
def test_a_snapshot_holds_whatever_keys_a_list_shows(
    keys: frozenset[str], whole: bool, taken_at: int | None
) -> None:
    """No key that a service lists makes a file that is refused when it is opened again."""
    snapshot = Snapshot(keys, whole, taken_at)
    row = schema.snapshot_columns(snapshot)

    assert schema.read_snapshot(row[0], row) == snapshot


def test_snapshots_are_stored_as_they_were() -> None:
    """Files of older SDKs hold the keys line by line, under the hash of these lines."""
    digest = hashlib.sha256(b"False\na-1\nb 2").hexdigest()

    assert schema.snapshot_columns(Snapshot(frozenset({"b 2", "a-1"}), whole=False)) == (
        digest,
        0,
        "a-1\nb 2",
        None,
    )


@pytest.mark.parametrize("keys", ["a", '"'])
def test_a_snapshot_that_is_not_what_was_written_is_damaged(keys: str) -> None:
    """Whatever stands in its place."""
    with pytest.raises(schema.Damaged, match="is damaged"):
        schema.read_snapshot(Snapshot(frozenset("b")).digest, ("", 1, keys, None))


def content(path: Path) -> bytes:
    return path.read_bytes()


def version(path: Path) -> int:
    db = sqlite3.connect(path)
    ((number,),) = db.execute("PRAGMA user_version").fetchall()
    db.close()
    return int(number)


async def test_a_failed_migration_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a migration is none: the file is as the older SDK left it."""
    rows = await written(path)
    with monkeypatch.context() as patch:
        with_migration(patch, "CREATE TABLE notes (id TEXT); INSERT INTO missing VALUES (1);")
        with pytest.raises(JournalError, match="cannot be trusted"):
            await SqliteJournal.open(path)

    journal = await SqliteJournal.open(path)
    assert await journal.rows() == rows
    await journal.close()
    assert version(path) == len(schema.MIGRATIONS)


async def test_a_newer_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a newer SDK is not guessed at."""
    with monkeypatch.context() as patch:
        with_migration(patch, "CREATE TABLE notes (id TEXT);")
        await written(path)

    with pytest.raises(JournalError, match="open it with the newer SDK"):
        await SqliteJournal.open(path)


def test_full_synchronous_write_ahead_logging(path: Path) -> None:
    """The settings durability rests on are in force on the connection that writes."""
    file = JournalFile(path)
    settings = {
        name: file._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous")
    }
    file.close()

    assert settings == {"journal_mode": "wal", "synchronous": 2}
