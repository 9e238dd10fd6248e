"""The tables of a store and every statement about them: one text for SQLite and PostgreSQL.

They differ in a handful of `Words`. Rows go in as a JSON array, and a statement that writes returns
the ids that it has written, so a batch has no failure of its own: a row that is not returned was
refused. ``$1`` is a parameter in both. Needs SQLite 3.38, for ``->>`` and RETURNING.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

VERSION: Final = 1  # of the tables
PORTION: Final = 500  # rows that one statement claims, at most
READ_AT_ONCE: Final = 5_000  # rows that one statement reads of all, so that it ends in time

Statement = tuple[str, Sequence[object]]
"""A text and its parameters, ``$1`` first."""


class Words(NamedTuple):
    """Where the two databases differ."""

    serial: str  # a column that numbers the rows
    float: str
    each: str  # the values of a JSON array, as JSON
    texts: str  # the same, as texts
    skip: str  # rows that are locked, in a claim
    now: str  # seconds since 1970, by the database's clock


SQLITE: Final = Words(
    serial="INTEGER PRIMARY KEY",
    float="REAL",
    each="json_each",
    texts="json_each",
    skip="",
    now="((julianday('now') - 2440587.5) * 86400.0)",
)
POSTGRES: Final = Words(
    serial="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    float="float8",
    each="json_array_elements",
    texts="json_array_elements_text",
    skip="FOR UPDATE SKIP LOCKED",
    now="extract(epoch FROM clock_timestamp())::float8",
)


class Database(Protocol):
    """A database that is open, or opens itself when it is asked."""

    @property
    def words(self) -> Words: ...
    @property
    def shared(self) -> bool:
        """Whether other processes may use it at the same time."""

    @property
    def connections(self) -> int:
        """How often it was connected to; more than once if it was lost."""

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call *heard* with each text that is told in the database, until it is closed."""

    async def run(self, work: Sequence[Statement]) -> list[list[Any]]:
        """Return the rows of each statement; all of them are one transaction.

        Raises:
            StoreUnavailable: It is not known whether the work was done. So work must bear being
                done twice; `Database` itself may repeat it.
            JournalError: Nothing was done.
        """


# The scope stands last in each unique index: with it first, SQLite reads the whole scope for each
# row of an UPDATE.
TABLES: Final = f"""
CREATE TABLE versions (version integer NOT NULL);
INSERT INTO versions VALUES ({VERSION});
CREATE TABLE scopes (scope text PRIMARY KEY, base_url text NOT NULL, dialect text NOT NULL);
CREATE TABLE workers (holder text PRIMARY KEY, scope text NOT NULL, until {{float}} NOT NULL);
CREATE TABLE pushes (
    number {{serial}}, scope text NOT NULL, id text NOT NULL, company text NOT NULL,
    reference text, key text, state text NOT NULL, ghosts integer NOT NULL, holder text NOT NULL,
    version bigint NOT NULL, document text NOT NULL, payload text,
    added_at {{float}} NOT NULL DEFAULT ({{now}}),
    UNIQUE (id, scope), UNIQUE (reference, scope), UNIQUE (key, scope)
);
CREATE INDEX live_pushes ON pushes (scope, holder) WHERE state <> 'DONE';
CREATE INDEX unexplained ON pushes (scope, company) WHERE ghosts > 0;
CREATE TABLE earlier_keys (
    key text NOT NULL, scope text NOT NULL, id text NOT NULL, PRIMARY KEY (key, scope)
);
CREATE TABLE rates (
    name text PRIMARY KEY, next_at {{float}} NOT NULL, paused_until {{float}} NOT NULL
)"""

_NEW: Final = """
    SELECT value ->> 'id' AS id, value ->> 'company' AS company, value ->> 'reference' AS reference,
        value ->> 'key' AS key, value ->> 'state' AS state,
        CAST(value ->> 'ghosts' AS integer) AS ghosts, value ->> 'holder' AS holder,
        CAST(value ->> 'version' AS bigint) AS version, value ->> 'document' AS document,
        value ->> 'payload' AS payload
    FROM {each}($1) AS one WHERE true"""
_UPDATE: Final = f"""
    UPDATE pushes SET company = new.company, key = new.key, state = new.state,
        ghosts = new.ghosts, holder = new.holder, version = new.version,
        document = new.document, payload = new.payload
    FROM ({_NEW}) AS new
    WHERE pushes.scope = $2 AND pushes.id = new.id
        AND NOT EXISTS (SELECT 1 FROM pushes AS other
            WHERE other.scope = $2 AND other.key = new.key AND other.id <> new.id)
        AND NOT EXISTS (SELECT 1 FROM earlier_keys AS earlier
            WHERE earlier.scope = $2 AND earlier.key = new.key AND earlier.id <> new.id)
        AND (VERSIONS)
    RETURNING pushes.id"""
# The answer to a write may be lost, and the write is then repeated: written twice is written.
_NEXT: Final = """pushes.version = new.version - 1
    OR pushes.version = new.version AND pushes.document = new.document
        AND pushes.state = new.state AND pushes.holder = new.holder"""
_ROW: Final = "document, state, ghosts, version, holder, payload, number"
_READ: Final = f"SELECT {_ROW} FROM pushes WHERE scope = $1 AND "
_AMONG: Final = "IN (SELECT value FROM {texts}"
_IS_ALIVE: Final = "until > {now}"


class Texts(NamedTuple):
    """Every statement, by name. *rows* are a JSON array of objects, *texts* one of strings."""

    version: str = "SELECT max(version) FROM versions"
    bind: str = "INSERT INTO scopes VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    owner: str = "SELECT scope, base_url, dialect FROM scopes WHERE scope = $1"
    # rows, scope -> ids
    insert: str = f"""
        INSERT INTO pushes (scope, id, company, reference, key, state, ghosts, holder, version,
            document, payload)
        SELECT $2, id, company, reference, key, state, ghosts, holder, version, document, payload
        FROM ({_NEW}) AS new WHERE true ON CONFLICT DO NOTHING RETURNING id"""
    update: str = _UPDATE.replace("VERSIONS", _NEXT)
    restore: str = _UPDATE.replace("VERSIONS", "pushes.version < new.version")
    # rows {key, id}, scope
    keep_keys: str = """
        INSERT INTO earlier_keys SELECT value ->> 'key', $2, value ->> 'id'
        FROM {each}($1) AS one WHERE true ON CONFLICT DO NOTHING"""
    # scope, holder -> rows
    claim: str = f"""
        UPDATE pushes SET holder = $2, version = version + 1 WHERE number IN (
            SELECT number FROM pushes WHERE scope = $1 AND state <> 'DONE' AND holder <> $2
                AND holder NOT IN (SELECT workers.holder FROM workers WHERE {_IS_ALIVE})
            ORDER BY number LIMIT {PORTION} {{skip}})
        RETURNING {_ROW}"""
    # scope, texts ids, texts references, texts keys -> rows
    # With OR in place of UNION, PostgreSQL would read the whole scope.
    by_name: str = f"""{_READ} number IN (
            SELECT number FROM pushes WHERE scope = $1 AND id {_AMONG}($2))
            UNION SELECT number FROM pushes WHERE scope = $1 AND reference {_AMONG}($3))
            UNION SELECT number FROM pushes WHERE scope = $1 AND key {_AMONG}($4))
            UNION SELECT number FROM earlier_keys JOIN pushes USING (scope, id)
                WHERE scope = $1 AND earlier_keys.key {_AMONG}($4))) ORDER BY number"""
    # scope, number -> rows behind that number
    all_rows: str = f"{_READ} number > $2 ORDER BY number LIMIT {READ_AT_ONCE}"
    # scope, holder -> rows
    held: str = f"{_READ} holder = $2 AND state <> 'DONE' ORDER BY number"
    # scope, company -> rows
    unexplained: str = f"{_READ} company = $2 AND ghosts > 0 ORDER BY number"
    # scope, texts keys -> keys
    owners: str = f"""
        SELECT key FROM pushes WHERE scope = $1 AND key {_AMONG}($2))
        UNION SELECT key FROM earlier_keys WHERE scope = $1 AND key {_AMONG}($2))"""
    # holder, scope, seconds -> how many others are alive
    beat: str = f"""
        INSERT INTO workers VALUES ($1, $2, {{now}} + $3)
        ON CONFLICT (holder) DO UPDATE SET until = excluded.until
        RETURNING (SELECT count(*) FROM workers AS other
            WHERE other.scope = $2 AND other.holder <> $1 AND other.{_IS_ALIVE})"""
    bury: str = "DELETE FROM workers WHERE holder = $1 OR until < {now} - 600"
    tell: str = "SELECT pg_notify(current_schema(), value) FROM {texts}($1)"
    # name, count, interval, span of a burst -> seconds until the first slot
    # Nobody waits for 100 slots and two minutes, unless the database's clock was set back.
    reserve: str = """
        INSERT INTO rates AS rate VALUES ($1, {now} - $4::float8 + $2 * $3::float8, 0)
        ON CONFLICT (name) DO UPDATE SET next_at = $2 * $3::float8 + greatest(
            least(rate.next_at, {now} + 120 + 100 * $3::float8),
            least(rate.paused_until, {now} + 60),
            {now} - $4::float8)
        RETURNING next_at - $2 * $3::float8 - {now}"""
    # name, seconds
    pause: str = """
        INSERT INTO rates AS rate VALUES ($1, 0, {now} + $2::float8)
        ON CONFLICT (name) DO UPDATE
            SET paused_until = greatest(rate.paused_until, excluded.paused_until)"""


def texts(words: Words) -> Texts:
    """Return the statements in the words of one database."""
    names = words._asdict()
    return Texts(*(one.format(**names) for one in Texts()))


def tables(words: Words) -> list[str]:
    """Return the statements that make the tables of a new database."""
    return [one.strip() for one in TABLES.format(**words._asdict()).split(";")]
