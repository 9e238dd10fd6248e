"""The tables of a journal file, and how a row is stored.

``PRAGMA user_version`` counts the migrations applied; a file is brought up to date in one
transaction, and a file from a newer SDK is refused. Each row carries a checksum over all its
columns (its payload is covered by *payload_hash*), since SQLite itself does not notice a
changed byte inside a value.

Payloads have a table of their own: a row is written three times but its payload once, and the
payloads of settled pushes free whole pages for new ones. So a file grows by half a kilobyte per
push, whatever the size of its record.
"""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import structs

from integration_sdk._store.row import (
    IMMUTABLE,
    Evidence,
    Intent,
    Lane,
    Owner,
    Snapshot,
    State,
    as_line,
    from_line,
)
from integration_sdk.errors import JournalError

APPLICATION_ID = 0x70757368  # "push"
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE intents (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
        company_id TEXT NOT NULL, connection_id TEXT NOT NULL, data_type TEXT NOT NULL,
        method TEXT NOT NULL, payload_hash TEXT NOT NULL,
        natural_key TEXT, natural_value TEXT, record_id TEXT, reference TEXT,
        idempotency_key TEXT, timeout_minutes INTEGER, snapshot TEXT REFERENCES snapshots,
        state TEXT NOT NULL, attempts INTEGER NOT NULL, retry INTEGER NOT NULL,
        key TEXT UNIQUE, evidence TEXT, candidates TEXT NOT NULL, status TEXT,
        http_status INTEGER, error TEXT, decision TEXT, parent TEXT,
        checksum INTEGER NOT NULL
    );
    CREATE INDEX intents_by_reference ON intents (reference) WHERE reference IS NOT NULL;
    CREATE UNIQUE INDEX a_reference_stands_for_one_intent ON intents (reference)
        WHERE reference IS NOT NULL AND decision IS NOT 'resend';
    CREATE INDEX intents_by_snapshot ON intents (snapshot) WHERE snapshot IS NOT NULL;
    CREATE TABLE payloads (
        number INTEGER PRIMARY KEY REFERENCES intents, payload BLOB NOT NULL
    );
    CREATE TABLE snapshots (
        digest TEXT NOT NULL PRIMARY KEY, whole INTEGER NOT NULL, keys TEXT NOT NULL
    );
    CREATE TABLE tally (
        commits INTEGER NOT NULL, intents INTEGER NOT NULL, payloads INTEGER NOT NULL
    );
    INSERT INTO tally VALUES (0, 0, 0);
    CREATE TRIGGER intents_are_counted AFTER INSERT ON intents
        BEGIN UPDATE tally SET intents = intents + 1; END;
    CREATE TRIGGER intents_stay BEFORE DELETE ON intents
        BEGIN SELECT RAISE(ABORT, 'an intent is never deleted'); END;
    CREATE TRIGGER final_is_final BEFORE UPDATE ON intents
        WHEN OLD.state = 'FINAL'
            AND (NEW.state, NEW.key, NEW.status) IS NOT (OLD.state, OLD.key, OLD.status)
        BEGIN SELECT RAISE(ABORT, 'a final intent never changes'); END;
    CREATE TRIGGER payloads_are_counted AFTER INSERT ON payloads
        BEGIN UPDATE tally SET payloads = payloads + 1; END;
    CREATE TRIGGER what_is_settled_needs_no_payload AFTER UPDATE ON intents
        WHEN NEW.state = 'FINAL' OR (NEW.state IN ('NOT_SENT', 'REJECTED') AND NOT NEW.retry)
        BEGIN DELETE FROM payloads WHERE number = OLD.number; END;
    CREATE TRIGGER payloads_that_go_are_counted AFTER DELETE ON payloads
        BEGIN UPDATE tally SET payloads = payloads - 1; END;
    """,
    """
    DROP TRIGGER what_is_settled_needs_no_payload;
    UPDATE intents SET state = 'QUEUED'
        WHERE state = 'INTENT' OR (retry AND state IN ('NOT_SENT', 'REJECTED'));
    UPDATE intents SET state = 'LATE' WHERE state = 'DECIDED' AND decision = 'bind';
    ALTER TABLE intents DROP COLUMN retry;
    ALTER TABLE intents ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE snapshots ADD COLUMN taken_at INTEGER;
    ALTER TABLE tally ADD COLUMN token INTEGER NOT NULL DEFAULT 0;
    UPDATE intents SET checksum = checksum_of({columns});
    CREATE TRIGGER what_is_settled_needs_no_payload AFTER UPDATE ON intents
        WHEN NEW.state IN ('FINAL', 'NOT_SENT', 'REJECTED')
        BEGIN DELETE FROM payloads WHERE number = OLD.number; END;
    """,
    "ALTER TABLE tally ADD COLUMN owner TEXT NOT NULL DEFAULT '';",
)
"""The first may be found in files; what follows brings them up to date. Until schema 2, what was to
be sent was called INTENT, or NOT_SENT or REJECTED with a mark."""

_FACTS = tuple(one.name for one in structs.fields(Intent) if one.name not in ("lane", "payload"))
_COLUMNS = (*Lane._fields, *_FACTS, "checksum")
_CHECKSUMMED = sorted((*Lane._fields, *_FACTS))
_EVER_CHECKSUMMED = sorted((*_CHECKSUMMED, "retry"))  # the last until schema 2
_IMMUTABLE_COLUMNS = (*Lane._fields, *IMMUTABLE)
_VALUES = f"({', '.join('?' * len(_COLUMNS))})"
_INSERT = f"INSERT INTO intents ({', '.join(_COLUMNS)}) VALUES "  # noqa: S608  # our own words
_OR_UPDATE = (
    " ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(
        f"{name} = excluded.{name}" for name in _COLUMNS if name not in ("id", *_IMMUTABLE_COLUMNS)
    )
    + f" WHERE ({', '.join(_IMMUTABLE_COLUMNS)})"
    + f" IS ({', '.join(f'excluded.{name}' for name in _IMMUTABLE_COLUMNS)})"
    + " AND (version < excluded.version OR checksum = excluded.checksum)"
    # A refused push is sent again under a key of its own.
    + " AND (idempotency_key IS excluded.idempotency_key"
    + f" OR (state = '{State.QUEUED}' AND http_status IS NOT NULL))"
)


@lru_cache
def upsert(rows: int) -> str:
    """Return the statement that writes this many *rows* at once, in their order.

    It skips a row whose intent is on record with a different record, or in a later version.
    """
    return _INSERT + ", ".join([_VALUES] * rows) + _OR_UPDATE


class Damaged(Exception):  # never leaves the journal: its file says where
    """What was read differs from what was written."""


def check_version(db: sqlite3.Connection) -> int:
    """Return the file's schema version.

    Raises:
        JournalError: It was written by a newer SDK.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise JournalError(
            f"The journal has schema {version}, this SDK knows {len(MIGRATIONS)}: "
            "open it with the newer SDK that wrote it."
        )
    return int(version)


def check_tables(db: sqlite3.Connection) -> None:
    """Compare tables, indexes and triggers with those that the migrations create.

    Raises:
        Damaged: They differ, so constraints may be missing.
    """
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    made = sqlite3.connect(":memory:")
    try:
        made.executescript(_script(made, 0, check_version(db)))
        intact = made.execute(query).fetchall() == db.execute(query).fetchall()
    finally:
        made.close()
    if not intact:
        raise Damaged("its tables are not as they were made")


def migrate(db: sqlite3.Connection) -> None:
    """Apply all missing migrations, or none."""
    version = check_version(db)
    if version == len(MIGRATIONS):
        return
    steps = _script(db, version, len(MIGRATIONS))
    marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {len(MIGRATIONS)};"
    try:
        db.executescript(f"BEGIN EXCLUSIVE; {steps} {marks} COMMIT;")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _script(db: sqlite3.Connection, first: int, last: int) -> str:
    def checksum_of(*values: object) -> int:
        return _checksum(dict(zip(_CHECKSUMMED, values, strict=True)))

    db.create_function("checksum_of", len(_CHECKSUMMED), checksum_of, deterministic=True)
    return "".join(MIGRATIONS[first:last]).replace("{columns}", ", ".join(_CHECKSUMMED))


@lru_cache
def insert_payloads(rows: int) -> str:
    """Return the statement that stores this many payloads, given by intent id."""
    return (
        "INSERT OR IGNORE INTO payloads SELECT number, column2 "  # noqa: S608  # our own words
        f"FROM (VALUES {', '.join(['(?, ?)'] * rows)}) JOIN intents ON id = column1"
    )


def to_columns(intent: Intent) -> tuple[object, ...]:
    """Return the column values of an intent's row, without its payload."""
    facts = {name: getattr(intent, name) for name in _FACTS}
    facts["snapshot"] = intent.snapshot and intent.snapshot.digest
    facts["candidates"] = "\n".join(map(as_line, intent.candidates))
    facts["state"] = str(intent.state)
    facts["evidence"] = intent.evidence and str(intent.evidence)
    facts = {**intent.lane._asdict(), **facts}
    return (*facts.values(), _checksum(facts))


def from_row(row: dict[str, object], snapshot: Callable[[str], Snapshot]) -> Intent:
    """Return the intent of a row, given by column name; newer columns may be missing.

    Raises:
        Damaged: The row is not what was written.
    """
    check(row)
    facts = {name: row[name] for name in _CHECKSUMMED if name in row}
    return _read(facts, row["payload"], snapshot)


def check(row: Mapping[str, object]) -> None:
    """Compare a row with its checksum.

    Raises:
        Damaged: The row is not what was written.
    """
    intact = row["checksum"] == _checksum(row)
    if not intact or not _is_payload(row["payload"], row["payload_hash"]):
        raise Damaged(f"the row of intent {row['id']!r} is damaged")


def _is_payload(payload: object, digest: object) -> bool:
    if isinstance(payload, bytes):
        return hashlib.sha256(payload).hexdigest() == digest
    return payload is None


def _read(row: dict[str, object], payload: object, snapshot: Callable[[str], Snapshot]) -> Intent:
    lane = Lane(*(str(row.pop(name)) for name in Lane._fields))
    row["state"] = State(str(row["state"]))
    row["evidence"] = row["evidence"] and Evidence(str(row["evidence"]))
    row["candidates"] = _lines(str(row["candidates"]))
    row["snapshot"] = row["snapshot"] and snapshot(str(row["snapshot"]))
    return Intent(lane=lane, payload=payload, **row)  # type: ignore[arg-type]  # checksummed


def _checksum(facts: Mapping[str, object]) -> int:
    """Return a checksum that ignores absent values, so that a new column keeps old rows valid."""
    present = [(name, one) for name in _EVER_CHECKSUMMED if (one := facts.get(name)) is not None]
    return zlib.crc32(repr(present).encode("utf-8", "surrogatepass"))


def owner_text(owner: Owner) -> str:
    """Return what the tally says of the file's owner; "" while it has none."""
    facts = json.dumps(owner)
    return f"{zlib.crc32(facts.encode()):08x}{facts}"


def read_owner(text: object) -> Owner | None:
    """Return the owner of a file, None if it has none yet.

    Raises:
        Damaged: It is not what was written.
    """
    if text == "":
        return None
    try:
        owner = Owner(*json.loads(str(text)[8:]))
        intact = owner_text(owner) == text
    except (ValueError, TypeError):
        intact = False
    if not intact:
        raise Damaged("the name of its owner is damaged")
    return owner


def snapshot_columns(snapshot: Snapshot) -> tuple[str, int, str, int | None]:
    """Return the column values of a snapshot's row."""
    keys = "\n".join(sorted(map(as_line, snapshot.keys)))
    return snapshot.digest, int(snapshot.whole), keys, snapshot.taken_at


def read_snapshot(digest: str, row: Sequence[Any] | None) -> Snapshot:
    """Return a snapshot, after comparing it with its digest; *row* may lack newer columns.

    Raises:
        Damaged: The snapshot is missing, or not what was written.
    """
    _, whole, keys, *newer = row or (digest, 0, "")
    try:
        snapshot = Snapshot(frozenset(_lines(keys)), bool(whole), *newer)
    except (ValueError, TypeError):  # the last for a value that is no text
        snapshot = None
    if snapshot is None or snapshot.digest != digest:
        raise Damaged(f"the snapshot {digest[:12]} is damaged")
    return snapshot


def _lines(text: str) -> tuple[str, ...]:
    return tuple(map(from_line, filter(None, text.split("\n"))))
