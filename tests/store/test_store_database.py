"""What a store in PostgreSQL promises when the database, the network or a process fails."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from integration_sdk._store.journal import Journal
from integration_sdk._store.rate import StoreRate
from integration_sdk._store.row import Lane, Row, State, to_document
from integration_sdk._store.store import Store
from integration_sdk.errors import ConfigurationError, JournalError, StoreUnavailable
from tests.support.postgres import Line, Server, fetch

SECRET = "s3cret"
LANE = Lane("acme", "connection", "invoices")
EXPIRE = "UPDATE integration_sdk.workers SET until = 0"
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'integr%'"


@pytest.fixture
async def url(postgres: Server) -> str:
    return await postgres.new_database()


@pytest.fixture
async def line(url: str) -> AsyncIterator[Line]:
    async with Line(url).between() as line:
        yield line


@asynccontextmanager
async def worker(url: str, **options: Any) -> AsyncIterator[Journal]:
    """The journal of a process that is alive."""
    async with Store(url, **options) as store:
        journal = await store._lend(base_url="http://a", dialect="document")
        await journal.beat()
        yield journal


def row(number: int, journal: Journal, reference: str | None = None) -> Row:
    facts = {"version": 0, "payload": b"{}", "holder": journal.holder}
    return Row(f"row-{number}", LANE, reference=reference, **facts)  # type: ignore[arg-type]  # facts of any type


def database(url: str) -> str:
    (name,) = re.findall(r"/(test_\d+)", url)
    return str(name)


async def test_rows_of_a_dead_worker_are_claimed_by_one(url: str) -> None:
    """By none while it beats; then by whoever looks first, and its own writes are refused."""
    async with worker(url) as dead, worker(url) as one, worker(url) as other:
        assert await one.beat() == 3
        mine = row(1, dead)
        await dead.write(mine)
        assert await one.claim() == []
        await fetch(url, EXPIRE)
        await asyncio.gather(one.beat(), other.beat())
        assert await one.beat() == 2

        claims = await asyncio.gather(one.claim(), other.claim())

        (taken,) = [*claims[0], *claims[1]]
        assert taken.holder in (one.holder, other.holder)
        assert await dead.write(mine.next(State.SENDING)) == taken


async def test_scopes_know_nothing_of_each_other(url: str) -> None:
    """Ids, references and keys may repeat; rows of another scope are not claimed."""
    async with worker(url) as one, worker(url, scope="other") as other:
        await one.write(mine := row(1, one, reference="INV-1"))
        await one.write(mine.next(State.OPEN, key="K"))
        await fetch(url, EXPIRE)
        assert await other.claim() == []
        assert await other.owners(["K"]) == set()
        assert await other.write(again := row(1, other, reference="INV-1")) is again


async def test_workers_tell_each_other(url: str) -> None:
    """All but the one that tells, within a scope, also after the connection was cut."""
    heard, own = asyncio.Queue[str](), list[str]()
    async with worker(url) as one, worker(url) as two, worker(url, scope="other") as three:
        two.listen(heard.put_nowait)
        one.listen(own.append)
        three.listen(own.append)
        for text in ("key-1", "key-2"):
            await two.beat()  # which connects it again
            while heard.empty():
                one.tell(text)
                await asyncio.sleep(0.05)
            assert await heard.get() == text
            while not heard.empty():
                heard.get_nowait()
            await fetch(url, CUT)
    assert own == []


async def test_write_whose_answer_is_lost_is_made_once(line: Line) -> None:
    """It is asked for again, and found to be on record."""
    async with worker(line.url) as journal:
        one = row(1, journal, reference="INV-1")
        for number, step in enumerate((one, one.next(State.SENDING)), 2):
            other = row(number, journal)  # else the answer is that the statement is understood
            for known in (other, other.next(State.SENDING)):
                await journal.write(known)
            line.lose_answers = 1
            assert await journal.write(step) is step

        assert await journal.rows([one.id]) == [step]
        assert journal.reconnected
        await journal.restore([step])
        assert not journal.reconnected


async def test_rows_that_were_claimed_without_an_answer_are_known_to_be_held(line: Line) -> None:
    """They are not left to nobody."""
    async with worker(line.url) as journal:
        assert not await journal.claim()  # else the answer is that the statement is understood
        async with worker(line.url) as gone:
            one = row(1, gone)
            await gone.write(one)
        line.lose_answers = 1
        assert not await journal.claim()

        assert journal.reconnected
        (held,) = await journal.held()
        assert (held.id, held.holder) == (one.id, journal.holder)


async def test_connections_that_are_cut_cost_nothing(url: str) -> None:
    """Whatever they were doing, it is done again; no error of the driver gets through."""
    async with worker(url) as journal, worker(url) as other:

        async def cut() -> None:
            while True:
                await fetch(url, CUT)
                await asyncio.sleep(0.1)

        async def settle(number: int) -> None:
            one = row(number, journal)
            for step in (
                one,
                one := one.next(State.SENDING),
                one := one.next(State.OPEN, key=f"key {number}"),
                one.next(State.DONE, status="Success"),
            ):
                assert await journal.write(step) is step

        cutting = asyncio.ensure_future(cut())
        for start in range(0, 30, 6):
            await asyncio.gather(*(settle(number) for number in range(start, start + 6)))
            await other.owners(["key 1"])
            await other.beat()
        cutting.cancel()
        await asyncio.wait([cutting])

        assert [one.state for one in await journal.everything()] == [State.DONE] * 30


FILL = f"""
    INSERT INTO integration_sdk.pushes
        (scope, id, company, reference, key, state, ghosts, holder, version, document)
    SELECT 'default', 'old ' || n, 'acme', 'old ' || n, 'old ' || n, 'DONE', 0, 'gone', 3,
        '{to_document(Row("old", LANE))}' FROM generate_series(1, 20000) AS n;
"""


async def test_no_call_reads_through_all_that_has_ended(url: str) -> None:
    """However many pushes are on record, and however early a plan was made."""
    async with worker(url) as journal:
        await fetch(url, FILL)
        plan = "SET plan_cache_mode = force_generic_plan"
        await fetch(url, f"ALTER DATABASE {database(url)} {plan}")
        await fetch(url, CUT)
        await fetch(url, "SELECT pg_stat_reset()")
        await journal.write(one := row(1, journal, reference="INV-1"))
        await journal.write(row(2, journal, reference="INV-1"))
        await journal.write(one := one.next(State.SENDING, ghosts=1))
        await journal.write(one := one.next(State.OPEN, key="key"))
        await journal.rows(["row-1"], ["INV-1", "old 1"], ["key", "old 2"])
        await journal.owners(["key", "old 1"])
        await journal.unexplained("acme")
        await journal.claim()
        await journal.restore([one])

    ((scans, read),) = await fetch(
        url,
        """SELECT max(tables.seq_scan), sum(indexes.idx_tup_read)
        FROM pg_stat_user_tables AS tables JOIN pg_stat_user_indexes AS indexes USING (relname)
        WHERE relname = 'pushes'""",
    )
    assert scans == 0
    assert read < 100


async def test_what_is_on_record_survives_a_crash_of_the_server(postgres: Server, url: str) -> None:
    """Also where the database is set to forget the last moment."""
    await fetch(url, f"ALTER DATABASE {database(url)} SET synchronous_commit = off")
    await fetch(url, "ALTER SYSTEM SET wal_writer_delay = 9999")
    await fetch(url, "SELECT pg_reload_conf()")
    async with worker(url, patience=120) as journal:
        await journal.write(one := row(1, journal))
        await asyncio.to_thread(postgres.stop)
        await asyncio.to_thread(postgres.start)

        assert await journal.everything() == [one]


@pytest.mark.parametrize("how", ["silent", "stopped", "locked"])
async def test_waiting_is_bounded(postgres: Server, url: str, line: Line, how: str) -> None:
    """Then the error says so; when the database is back, the same store goes on."""
    async with worker(line.url, patience=1.0) as journal:
        await journal.write(one := row(1, journal))
        locker = await asyncpg.connect(url)
        if how == "silent":
            line.silent = True
        elif how == "stopped":
            await asyncio.to_thread(postgres.stop)
        else:
            await locker.execute("BEGIN; LOCK TABLE integration_sdk.pushes")

        async with asyncio.timeout(60):
            steps = row(2, journal), one.next(State.SENDING)  # in one transaction
            ends = await asyncio.gather(*map(journal.write, steps), return_exceptions=True)
            assert [type(end) for end in ends] == [StoreUnavailable] * 2
            waiting = asyncio.ensure_future(journal.owners(["key"]))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

        line.silent = False
        if how == "stopped":
            await asyncio.to_thread(postgres.start)
            locker.terminate()
        else:
            await locker.close()
        later = one.next(State.SENDING)
        assert await journal.write(later) is later  # also if the last word got through, after all
        assert await journal.rows([one.id]) == [later]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda url: url.replace("postgres:@", "nobody:x@"), JournalError),
        (lambda url: url.replace("sslmode=disable", "sslmode=require"), JournalError),
        (lambda url: url.replace("sslmode=disable", "sslmode=odd"), ConfigurationError),
        (lambda url: re.sub(r":\d+/", ":99999/", url), ConfigurationError),
        (lambda url: url + "&port=99999", ConfigurationError),
    ],
    ids=["user", "TLS", "option", "port", "port in query"],
)
async def test_refusal_is_no_absence(
    line: Line, change: Callable[[str], str], error: type[Exception]
) -> None:
    """What waiting does not mend is said at once."""
    async with asyncio.timeout(60):
        with pytest.raises(error) as refused:
            async with worker(change(line.url), patience=600):
                pass
    assert not isinstance(refused.value, StoreUnavailable)


async def test_pooler_is_refused(url: str, line: Line) -> None:
    """Settings and notifications would go to others; nothing is changed."""
    line.is_pooler = True
    with pytest.raises(ConfigurationError, match="behind a pooler"):
        async with worker(line.url):
            pass

    tables = "SELECT FROM information_schema.tables WHERE table_name = 'pushes'"
    assert not await fetch(url, tables)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/db", "postgresql://h/db"),
        (f"postgresql://me:{SECRET}@h:5/db", "postgresql://me:***@h:5/db"),
        (f"postgresql://h/db?p%61ssword={SECRET}", "postgresql://***@h/db?***"),
        (
            f"postgres://me:{SECRET}@a,b/db?sslmode=require",
            "postgres://me:***@a,b/db?sslmode=require",
        ),
    ],
)
def test_password_is_never_shown(url: str, shown: str) -> None:
    """Wherever it stands in the URL."""
    assert repr(Store(url)) == f"Store('{shown}')"


async def test_password_is_in_no_error() -> None:
    """Which names the address."""
    async with Store(f"postgresql://me:{SECRET}@127.0.0.1:9/none", patience=0.3) as away:
        rate = away.rate(per_second=9)
        assert isinstance(rate, StoreRate)
        with pytest.raises(
            StoreUnavailable, match=r"the store postgresql://me:\*\*\*@127.0.0.1:9"
        ) as seen:
            await rate.acquire()
    assert SECRET not in f"{seen.value!r} {away!r} {pickle.dumps(seen.value)!r}"


@pytest.mark.parametrize("special", "#/?@[]")
def test_password_that_a_url_cannot_hold_is_refused_unseen(special: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigurationError, match="%23") as refused:
        Store(f"postgresql://me:12{special}{SECRET}@h/db")
    assert SECRET not in str(refused.value)


async def test_many_open_a_new_database_at_once(url: str) -> None:
    """One makes the tables, the others wait for it; schemas are apart."""
    stores = [Store(url, schema=f"s{number % 2}") for number in range(8)]
    journals = await asyncio.gather(*(one._lend(base_url="http://a") for one in stores))
    await journals[0].write(row(1, journals[0]))

    assert [len(await one.everything()) for one in journals] == [1, 0] * 4
    await asyncio.gather(*(one.aclose() for one in stores))


async def test_role_that_may_make_nothing_uses_what_is_there(postgres: Server, url: str) -> None:
    """If the tables are missing, the error names the guide that has the SQL."""
    name = database(url)
    await fetch(url, f"CREATE ROLE {name}_role LOGIN")
    narrow = postgres.url(name).replace("postgres:@", f"{name}_role@")
    assert narrow != postgres.url(name)
    with pytest.raises(ConfigurationError, match="guide on PostgreSQL"):
        async with worker(narrow):
            pass

    async with worker(url):
        pass
    await fetch(url, f"GRANT USAGE ON SCHEMA integration_sdk TO {name}_role")
    grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA integration_sdk"
    await fetch(url, f"{grant} TO {name}_role")
    async with worker(narrow) as journal:
        await journal.write(row(1, journal))
