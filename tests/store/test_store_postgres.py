"""What a store in PostgreSQL promises when the database, the network or a process fails."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import asyncpg
import pytest

from integration_sdk import Store, cli
from integration_sdk._store.database import VERSION, migrate, migration
from integration_sdk._store.row import (
    Evidence,
    Fenced,
    KeyClaimed,
    Lane,
    Row,
    RowRefused,
    Snapshot,
    Stale,
    State,
    to_document,
)
from integration_sdk._store.rows import Document, Rows
from integration_sdk.errors import ConfigurationError, JournalError, StoreUnavailable
from tests.store.test_store_rates import times_of
from tests.support.postgres import Line, Pooler, Server

SECRET = "s3cret"
LANE = Lane("acme", "connection", "invoices")
EXPIRE = "UPDATE integration_sdk.workers SET until = '-infinity'"
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'integr%'"


@pytest.fixture
async def url(postgres: Server) -> str:
    return await postgres.new_database()


@pytest.fixture
async def line(url: str) -> AsyncIterator[Line]:
    async with Line(url) as between:
        yield between


@asynccontextmanager
async def rows_of(url: str, **options: Any) -> AsyncIterator[Rows]:
    """The rows of a process with this store."""
    async with Store(url, **options) as store:
        yield await store.lend(base_url="http://a", dialect="document")


async def sql(url: str, query: str, *values: object) -> Any:
    db = await asyncpg.connect(url)
    try:
        return await db.fetch(query, *values)
    finally:
        await db.close()


def news_of(rows: Rows) -> AbstractAsyncContextManager[AsyncGenerator[str, None]]:
    return aclosing(cast("AsyncGenerator[str, None]", rows.news()))


def row(number: int, company: str = "acme", reference: str | None = None) -> Row:
    lane = LANE._replace(company_id=company)
    return Row(f"row-{number}", lane, reference=reference, payload=b"{}")


FILL = f"""
    INSERT INTO integration_sdk.pushes
        (scope, id, company, reference, key, state, status, version, document, writer)
    SELECT 'default', 'old ' || n, 'acme', 'old ' || n, 'old ' || n, '{State.FINAL}', 'Success', 3,
        '{to_document(row(0))}', 'w' FROM generate_series(1, 20000) AS n;
    ANALYZE; SELECT pg_stat_reset()
"""  # noqa: S608 - of a test


def sent(one: Row) -> Row:
    return one.to(State.SENDING, attempts=one.attempts + 1)


async def settle(rows: Rows, one: Row, key: str) -> None:
    """Take a row through its states, each on record."""
    steps: list[Callable[[Row], Row]] = [
        sent,
        lambda now: now.to(State.OPEN, key=key, evidence=Evidence.OWN_ANSWER),
        lambda now: now.to(State.FINAL, status="Success"),
    ]
    for step in steps:
        one = step(one)
        await awaited(rows.put([one]))


async def awaited(answer: Any) -> Any:
    return await answer


# Leases


async def test_who_was_replaced_writes_nothing_more(url: str) -> None:
    """Its lease expired while it was frozen: its writes and those of its row are refused, and it
    has no lease any more. The other one, or it itself, goes on from the row on record.
    """
    async with rows_of(url) as one, rows_of(url) as other:
        (mine,) = await awaited(one.add([row(1)]))
        assert await one.take("acme") == [mine]
        assert await other.take("acme") is None
        await sql(url, EXPIRE)

        theirs = await other.take("acme")
        assert theirs == [mine]
        with pytest.raises(Fenced):
            await awaited(one.put([sent(mine)]))
        await awaited(other.put([sent(theirs[0])]))
        with pytest.raises(Fenced):  # without a look at the database
            await awaited(one.put([sent(mine)]))

        await other.release()
        assert await one.take("acme") == [sent(mine)]


async def test_who_asks_for_a_lease_in_vain_locks_nothing(url: str) -> None:
    """Many processes ask, again and again, while the holder writes."""
    async with rows_of(url) as one, rows_of(url) as other:
        await one.take("acme")

        assert await other.take("acme") is None

        assert await sql(url, "SELECT FROM integration_sdk.leases WHERE xmax = 0")


async def test_who_hears_of_every_push_does_not_ask_for_the_lease_each_time(url: str) -> None:
    """Forty workers would otherwise ask forty times a push; who ends says so."""
    query = (
        "SELECT max(query_start) FROM pg_stat_activity"
        " WHERE query LIKE '%INTO leases%' AND pid <> pg_backend_pid()"
    )
    async with rows_of(url) as one, rows_of(url) as other, news_of(other) as news:
        await awaited(one.add([row(9)]))
        assert await anext(news) == "acme"
        await one.take("acme")
        assert await other.take("acme") is None
        (asked,) = await sql(url, query)
        for number in range(5):
            await awaited(one.add([row(number)]))
            await awaited(one.put([sent(row(number))]))
            assert await anext(news) == "acme"
            assert await other.take("acme") is None
        assert await sql(url, query) == [asked]

        await one.release()

        async for _ in news:
            if await other.take("acme"):
                break


async def test_who_ends_hands_over_at_once_and_says_so(url: str) -> None:
    """Nobody waits for the lease to expire."""
    async with rows_of(url) as other, news_of(other) as news:
        async with rows_of(url) as one:
            await one.take("acme")
            await awaited(one.add([row(1)]))
            assert await other.take("acme") is None
        async for company in news:
            assert company == "acme"
            if await other.take("acme") is not None:
                break


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
async def test_who_is_cancelled_at_taking_or_ending_leaves_no_lease(url: str, turns: int) -> None:
    """At any moment: once it has ended, the next one acts."""
    async with rows_of(url) as other:
        store = Store(url)
        one = await store.lend()
        for work in (one.take("acme"), store.take_back()):
            task = asyncio.ensure_future(work)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await store.aclose()

        assert await other.take("acme") == []


CHILD = """
import asyncio, sys
from integration_sdk._store.row import Fenced, Row, Lane, State
from integration_sdk._store.store import Store

async def main():
    async with Store(sys.argv[1]) as store:
        rows = await store.lend()
        await rows.add([Row("row-1", Lane("acme", "connection", "invoices"))])
        (row,) = await rows.take("acme")
        print("taken", flush=True)
        sys.stdin.readline()
        try:
            await rows.put([row.to(State.SENDING)])
        except Fenced:
            print("fenced", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_process_that_stands_still_is_succeeded(url: str, how: signal.Signals) -> None:
    """When its lease has expired. If it wakes, it writes nothing."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert await child.stdout.readline() == b"taken\n"
    child.send_signal(how)
    await sql(url, EXPIRE)
    async with rows_of(url) as rows, news_of(rows) as news:
        async for company in news:
            if taken := await rows.take(company):
                await awaited(rows.put([sent(one) for one in taken]))
                break
        if how is signal.SIGSTOP:
            child.send_signal(signal.SIGCONT)
            child.stdin.write(b"go on\n")
            assert await child.stdout.readline() == b"fenced\n"
    await child.wait()


async def test_a_lease_is_kept_however_slow_the_database_is(url: str, line: Line) -> None:
    """Heartbeats do not wait behind other work, here 0.6 s a trip."""
    async with rows_of(line.url, patience=60) as rows:
        await rows.take("acme")
        await awaited(rows.add([row(1)]))
        line.delay = 0.3
        query = "SELECT until FROM integration_sdk.workers"
        before = after = await sql(url, query)
        adding = asyncio.ensure_future(asyncio.sleep(0))
        while after == before:
            if adding.done():
                adding = asyncio.ensure_future(awaited(rows.owners(["key"])))
            await asyncio.sleep(0.1)
            after = await sql(url, query)
        await adding
        await awaited(rows.put([sent(row(1))]))
        line.delay = 0.0


# News


async def test_an_owner_hears_of_what_others_add_and_they_of_what_becomes_of_it(url: str) -> None:
    """So anybody may ask, and the owner sends."""
    async with (
        rows_of(url) as owner,
        rows_of(url) as asker,
        news_of(owner) as of_owner,
        news_of(asker) as of_asker,
    ):
        assert await owner.take("acme") == []
        heard = asyncio.ensure_future(anext(of_owner))
        await asyncio.sleep(0.1)

        await awaited(asker.add([row(1)]))
        assert await heard == "acme"
        (found,) = await owner.rows(company="acme", state=State.QUEUED)
        await settle(owner, found, "key")

        async for company in of_asker:
            (outcome,) = await asker.rows(ids=["row-1"])
            if company == "acme" and outcome.state is State.FINAL:
                break


async def test_what_no_notification_has_told_is_found_all_the_same(url: str) -> None:
    """The connection that listens is cut, and another process adds meanwhile."""
    async with (
        rows_of(url) as owner,
        rows_of(url) as asker,
        news_of(owner) as news,
    ):
        await owner.take("acme")
        heard = asyncio.ensure_future(anext(news))
        await asyncio.sleep(0.1)
        await sql(url, CUT)
        await awaited(asker.add([row(1)]))

        assert await heard == "acme"


async def test_a_company_without_a_printable_name_is_told_by_its_name(url: str) -> None:
    """Names that are kept as a hash are found in the row."""
    async with rows_of(url) as one, rows_of(url) as other, news_of(other) as news:
        await awaited(one.add([row(1, company="a\0b" * 1000)]))

        assert await anext(news) == "a\0b" * 1000


# Writing


async def test_the_writes_of_one_moment_go_together_and_fail_apart(url: str) -> None:
    """A bad value concerns its own push, and no other one."""
    async with rows_of(url) as rows:
        many = [row(number) for number in range(30)]
        await awaited(rows.add(many))
        await rows.take("acme")
        puts = [sent(one) for one in many]
        puts[3] = many[3].to(State.FINAL, status="odd \0")
        puts[4] = many[4].to(State.FINAL, status="odd \ud800")
        puts[5] = many[4]
        puts[6] = many[6].to(State.OPEN, key="key")
        puts[7] = many[7].to(State.OPEN, key="key")

        ends = await asyncio.gather(
            *(awaited(rows.put([one])) for one in puts), return_exceptions=True
        )

        wrong = {at: type(end) for at, end in enumerate(ends) if end is not None}
        assert wrong == {3: RowRefused, 4: RowRefused, 5: Stale, 7: KeyClaimed}


async def test_a_write_whose_answer_is_lost_is_made_once(line: Line) -> None:
    """It is asked for again, and found to be on record."""
    async with rows_of(line.url) as rows:
        await rows.take("acme")
        one = row(1, reference="INV-1")
        for step in (lambda: rows.add([one]), lambda: rows.put([sent(one)], [row(2)])):
            await rows.owners(["key"])
            line.lose_answers = 1
            await awaited(step())

        assert await rows.rows() == [sent(one), row(2)]


async def test_connections_that_are_cut_cost_nothing(url: str) -> None:
    """Whatever they were doing, it is done again; no error of the driver gets through."""
    async with rows_of(url) as rows, rows_of(url) as other:
        await rows.take("acme")

        async def cut() -> None:
            while True:
                await sql(url, CUT)
                await asyncio.sleep(0.1)

        cutting = asyncio.ensure_future(cut())
        for start in range(0, 60, 6):
            some = [row(number) for number in range(start, start + 6)]
            await awaited(rows.add(some))
            await asyncio.gather(*(settle(rows, one, f"key {one.id}") for one in some))
            await other.owners(["key row-1"])
            await other.take("b")
        cutting.cancel()
        await asyncio.wait([cutting])

        ended = await rows.rows(company="acme", state=State.FINAL)
        assert len(ended) == 60
        assert await other.take("acme") is None


async def test_snapshots_that_no_row_needs_are_deleted(url: str) -> None:
    """A row shares its snapshot with others, and has it until its key is known."""
    shot = Snapshot(frozenset({"a", "b\0\ud800"}), taken_at=5, id="shot")
    async with rows_of(url) as rows:
        await awaited(rows.add([row(1), row(2)]))
        await rows.take("acme")
        lost = [one.to(State.LOST, snapshot=shot) for one in (row(1), row(2))]
        await awaited(rows.put(lost))
        assert [one.snapshot for one in await rows.rows()] == [shot, shot]
        assert len(await sql(url, "SELECT 1 FROM integration_sdk.snapshots")) == 1

        await awaited(rows.put([one.to(State.OPEN, key=one.id) for one in lost]))
        await rows.release()

        assert not await sql(url, "SELECT 1 FROM integration_sdk.snapshots")


async def test_a_snapshot_that_was_deleted_too_early_is_written_again(url: str) -> None:
    """Another process found it needless in a moment in which no row had it."""
    shot = Snapshot(frozenset({"a"}), id="shot")
    async with rows_of(url) as rows:
        await awaited(rows.add([row(1), row(2)]))
        await rows.take("acme")
        lost = row(1).to(State.LOST, snapshot=shot)
        await awaited(rows.put([lost]))
        await awaited(rows.put([lost.to(State.OPEN, key="key")]))
        await sql(url, "DELETE FROM integration_sdk.snapshots")

        await awaited(rows.put([row(2).to(State.LOST, snapshot=shot)]))

        assert [one.snapshot for one in await rows.rows(state=State.LOST)] == [shot]


async def test_no_call_reads_through_all_that_has_ended(url: str) -> None:
    """However many pushes are on record, and however early a plan was made."""
    await migrate(url, "integration_sdk")
    await sql_script(url, FILL)
    await sql(url, f"ALTER DATABASE {database(url)} SET plan_cache_mode = force_generic_plan")
    async with rows_of(url) as rows, rows_of(url) as asker, news_of(rows) as news:
        await rows.take("acme")
        for number in (1, 2):  # one push
            await awaited(asker.add([row(number, reference="INV-1")]))
        async for company in news:
            if company == "acme":
                break
        (found,) = await rows.rows(company="acme", state=State.QUEUED)
        await settle(rows, found, "key")
        await asker.rows(reference="INV-1")
        await rows.owners(["key", "old 1"])
        await rows.companies()
        await rows.rows(live=True)

    ((reads,),) = await sql(
        url, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'pushes'"
    )
    assert reads == 0


async def test_all_that_is_on_record_is_read_in_portions(url: str) -> None:
    """A million rows in one answer would not arrive within the time that a statement has."""
    await migrate(url, "integration_sdk")
    await sql_script(url, FILL)
    async with Store(url) as store:
        recorded = await store.recorded()

    assert len(recorded) == 20000
    ((scans,),) = await sql(
        url, "SELECT idx_scan FROM pg_stat_user_tables WHERE relname = 'pushes'"
    )
    assert scans >= 3


async def test_a_first_load_reads_what_it_writes_and_no_more(url: str) -> None:
    """The database has no statistics of a table that was empty a moment ago."""
    async with rows_of(url) as rows:
        await rows.take("acme")
        for start in range(0, 300, 10):
            some = [row(number, reference=f"INV-{number}") for number in range(start, start + 10)]
            await awaited(rows.add(some))
            await asyncio.gather(*(settle(rows, one, f"key {one.id}") for one in some))
            await rows.rows(reference="INV-1")
            await rows.rows(ids=["row-1"])
            await rows.owners(["key row-1"])

    query = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'pushes'"
    ((read,),) = await sql(url, query)
    assert read < 7 * 300


async def test_a_plan_that_was_made_for_empty_tables_does_for_full_ones(url: str) -> None:
    """Many pushes are queued at once, and the next look for statistics is a minute away."""
    await migrate(url, "integration_sdk")
    await sql(url, f"ALTER DATABASE {database(url)} SET plan_cache_mode = force_generic_plan")
    await sql(url, "VACUUM ANALYZE integration_sdk.payloads")
    async with rows_of(url) as rows:
        await rows.take("acme")
        for number in (1, 2):
            await awaited(rows.add([row(number)]))
            await settle(rows, row(number), f"key {number}")
            await rows.rows(ids=[f"row-{number}"])
            await sql(
                url,
                """INSERT INTO integration_sdk.payloads
                SELECT n + $1 * 10000, '' FROM generate_series(1, 5000) AS n""",
                number,
            )

    query = """
        SELECT seq_tup_read + idx_tup_read FROM pg_stat_user_tables
        JOIN pg_stat_user_indexes USING (relname) WHERE relname = 'payloads'
    """
    ((read,),) = await sql(url, query)
    assert read < 10


async def test_what_is_on_record_survives_a_crash_of_the_server(postgres: Server, url: str) -> None:
    """Also where the database is set to forget the last moment."""
    for setting in (
        "DATABASE {} SET synchronous_commit = off",
        "SYSTEM SET wal_writer_delay = 9999",
    ):
        await sql(url, f"ALTER {setting}".format(database(url)))
    await sql(url, "SELECT pg_reload_conf()")
    async with rows_of(url, patience=120) as rows:
        await awaited(rows.add([row(1)]))
        await asyncio.to_thread(postgres.stop)
        await asyncio.to_thread(postgres.start)

        assert await rows.rows() == [row(1)]


# A database that is away


@pytest.mark.parametrize("how", ["silent", "stopped", "read-only", "frozen lock"])
async def test_patience_bounds_every_call(postgres: Server, url: str, line: Line, how: str) -> None:
    """Then the error says so; when the database is back, the same store goes on."""
    async with rows_of(line.url, patience=1.0) as rows:
        await awaited(rows.add([row(1)]))
        await rows.take("acme")
        locker = await asyncpg.connect(url)
        if how == "silent":
            line.silent = True
        elif how == "stopped":
            await asyncio.to_thread(postgres.stop)
        elif how == "read-only":
            await sql(url, f"ALTER DATABASE {database(url)} SET default_transaction_read_only = on")
            await sql(url, CUT)
        else:
            await locker.execute("BEGIN; LOCK TABLE integration_sdk.pushes")

        async with asyncio.timeout(60):
            for call in (rows.add([row(2)]), rows.put([sent(row(1))])):
                with pytest.raises(StoreUnavailable, match="cannot be reached"):
                    await awaited(call)
            waiting = asyncio.ensure_future(awaited(rows.take("b")))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

        line.silent = False
        if how == "stopped":
            await asyncio.to_thread(postgres.start)
        elif how == "read-only":
            db = await asyncpg.connect(url)
            await db.execute("SET default_transaction_read_only = off")
            await db.execute(f"ALTER DATABASE {database(url)} RESET default_transaction_read_only")
            await db.close()
            await sql(url, CUT)
        if how != "stopped":
            await locker.close()
        else:
            locker.terminate()
        with suppress(Stale):  # nobody can know whether the last word got through, or will
            await awaited(rows.put([sent(row(1))]))
        assert await rows.rows(ids=["row-1"]) == [sent(row(1))]
        await awaited(rows.put([sent(sent(row(1)))]))


def database(url: str) -> str:
    (name,) = re.findall(r"/(test_\d+)", url)
    return str(name)


async def test_a_database_that_answers_nothing_holds_up_no_end(line: Line) -> None:
    """Release, close and cancellation are bounded, too."""
    store = Store(line.url, patience=1.0)
    rows = await store.lend()
    await rows.take("acme")
    line.silent = True
    reading = asyncio.ensure_future(awaited(rows.rows()))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(30):
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        await store.aclose()


async def test_who_waits_says_so(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    """After two seconds, once."""
    line.silent = True
    async with Store(line.url, patience=2.5) as store:
        with pytest.raises(StoreUnavailable):
            await store.lend(base_url="http://a")

    told = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert [one for one in told if "does not answer; waiting for up to 2.5 s" in one]
    assert len(told) == 1


async def test_who_waits_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """If the database, or the network, has said so."""
    with pytest.raises(StoreUnavailable):
        await Store("postgresql://127.0.0.1:9/none", patience=2.5).lend(base_url="http://a")

    assert "Connect call failed" in caplog.text


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda url: url.replace("postgres:@", "nobody:x@"), JournalError),
        (lambda url: url.replace("/test_", "/none_"), JournalError),
        (lambda url: url.replace("sslmode=disable", "sslmode=require"), JournalError),
        (lambda url: url.replace("sslmode=disable", "sslmode=odd"), ConfigurationError),
        (lambda url: url.replace("127.0.0.1:", "127.0.0.1:x"), ConfigurationError),
    ],
    ids=["user", "database", "TLS", "option", "port"],
)
async def test_a_refusal_is_no_absence(
    line: Line, change: Callable[[str], str], error: type[Exception]
) -> None:
    """What waiting does not mend is said at once."""
    async with asyncio.timeout(60):
        with pytest.raises(error) as refused:
            async with rows_of(change(line.url), patience=600):
                pass
    assert not isinstance(refused.value, StoreUnavailable)


async def test_a_name_without_a_password_is_shown(line: Line) -> None:
    """There is nothing to hide then."""
    async with Store(line.url.replace("postgres:@", "nobody@")) as store:
        with pytest.raises(JournalError, match='role "nobody" does not exist'):
            await store.lend(base_url="http://a")


async def test_a_database_that_is_away_is_waited_for_and_then_reported() -> None:
    """With the address, and without the password."""
    async with Store(f"postgresql://me:{SECRET}@127.0.0.1:9/none", patience=0.3) as away:
        with pytest.raises(
            StoreUnavailable, match=r"the store postgresql://me:\*\*\*@127.0.0.1:9"
        ) as seen:
            await away.rate(per_second=9).acquire()
    assert SECRET not in f"{seen.value!r} {away!r} {pickle.dumps(seen.value)!r}"


async def test_of_several_hosts_one_that_is_silent_costs_no_patience(url: str, line: Line) -> None:
    """Nor does one that is down: the primary is found among them."""
    async with Line(url) as dead:
        dead.silent = True
        live = urlsplit(line.url).netloc.partition("@")[2]
        hosts = f"127.0.0.1:9,{urlsplit(dead.url).netloc.partition('@')[2]},{live}"
        async with rows_of(line.url.replace(live, hosts), patience=6.0) as rows:
            await rows.take("acme")
            await awaited(rows.add([row(1)]))


async def test_a_database_that_comes_back_is_used_again(postgres: Server, url: str) -> None:
    """It is stopped as a machine that fails, and started again: calls wait that long."""
    async with Store(url, patience=120) as store:
        rate = store.rate(per_second=100)
        await rate.acquire()

        await asyncio.to_thread(postgres.stop)
        waiting = asyncio.ensure_future(times_of(rate, 3))
        await asyncio.sleep(0.2)
        was_waiting = not waiting.done()
        await asyncio.to_thread(postgres.start)

        assert len(await waiting) == 3
    assert was_waiting


async def test_a_pooler_meets_no_setting_that_it_refuses(line: Line) -> None:
    """PgBouncer takes these parameters with a connection, and refuses or ignores others."""
    async with rows_of(line.url) as rows:
        await rows.take("acme")

    known = {b"user", b"database", b"client_encoding", b"application_name"}
    asked = {name for opening in line.opened_with for name in opening[8:].split(b"\0")[:-2:2]}
    assert asked <= known


async def test_a_pooler_that_keeps_no_session_is_refused(url: str) -> None:
    """Settings and notifications would go to others; nothing is changed."""
    async with Pooler(url) as pooler:
        with pytest.raises(ConfigurationError, match="pooler in transaction or statement mode"):
            async with rows_of(pooler.url):
                pass

    tables = "SELECT FROM information_schema.tables WHERE table_name = 'pushes'"
    assert not await sql(url, tables)


# The URL


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgresql:///db?host=/run", "postgresql:///db?host=/run"),
        (f"postgresql://me:{SECRET}@h:5/db", "postgresql://me:***@h:5/db"),
        (f"postgresql://me:{SECRET}@x@h:5/db", "postgresql://me:***@h:5/db"),
        (f"postgresql://h/db?password={SECRET}", "postgresql://***@h/db?***"),
        (
            f"postgres://me:{SECRET}@a,b/db?sslmode=require",
            "postgres://me:***@a,b/db?sslmode=require",
        ),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    """Wherever it stands in the URL."""
    assert repr(Store(url)) == f"Store('{shown}')"


def test_without_asyncpg_the_extra_is_named() -> None:
    """And what to install."""
    program = """
import sys
sys.modules["asyncpg"] = None
from integration_sdk import Store
Store("postgresql://h/db")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "pip install 'integration-sdk[postgres]'" in ended.stderr


@pytest.mark.parametrize("special", ["#", "/", "?", "[", "[x]", "@x/"])
def test_a_password_that_a_url_cannot_hold_is_refused_unseen(special: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigurationError, match="%23") as refused:
        Store(f"postgresql://me:12{special}{SECRET}@h/db")

    assert SECRET not in str(refused.value)
    assert "postgresql://me:***@h/db" in str(refused.value)


@pytest.mark.parametrize("odd", ["@", ":", ",", "100%", "%23", "é"])
async def test_a_password_may_hold_anything_else(odd: str) -> None:
    """As it is, or in the form that URLs have for it."""
    async with Store(f"postgresql://me:1{odd}{SECRET}@127.0.0.1:9/none", patience=0.1) as store:
        with pytest.raises(StoreUnavailable, match="Connect call failed") as refused:
            await store.lend(base_url="http://a")

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("schema", ["", "A", "a b", 'a"', "1a", "x" * 64, None])
def test_a_schema_has_a_plain_name(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="schema must be"):
        Store("postgresql://h/db", schema=schema)


# The tables


async def test_many_open_a_new_database_at_once(url: str) -> None:
    """One makes the tables, the others wait for it; schemas are apart."""
    stores = [Store(url, schema=f"s{number % 2}") for number in range(8)]
    documents = await asyncio.gather(*(one.documents(base_url="http://a") for one in stores))
    await documents[0].write(Document("a"), b"1")

    assert [len(await one.read("")) for one in documents[:3]] == [1, 0, 1]
    for store in stores:
        await store.aclose()


@pytest.mark.parametrize(("version", "which"), [(VERSION + 1, "newer"), (2, "older")])
async def test_tables_of_another_version_are_left_alone(url: str, version: int, which: str) -> None:
    """It is not guessed what they mean."""
    async with rows_of(url):
        pass
    await sql(url, "UPDATE integration_sdk.migrations SET version = $1", version)

    with pytest.raises(JournalError, match=f"version {version} .*use the {which} SDK"):
        async with rows_of(url):
            pass


async def test_a_role_that_may_make_nothing_uses_what_is_there(postgres: Server, url: str) -> None:
    """If the tables are missing, the error names the command that makes them."""
    name = database(url)
    await sql_script(url, f"CREATE ROLE {name}_role LOGIN")
    theirs = url.replace("postgres:@", f"{name}_role:@")

    steps: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: migrate(url, "integration_sdk"),
        lambda: migrate(url, "integration_sdk"),  # does nothing
        lambda: sql_script(url, f"GRANT USAGE ON SCHEMA integration_sdk TO {name}_role"),
    )
    for step in steps:
        with pytest.raises(ConfigurationError, match="integration-sdk store migrate"):
            async with rows_of(theirs):
                pass
        await step()
    await sql_script(
        url,
        f"""GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA integration_sdk
            TO {name}_role""",
    )
    async with rows_of(theirs) as rows:
        await rows.take("acme")
        await awaited(rows.add([row(1)]))
        await settle(rows, row(1), "key")


async def test_what_the_command_prints_makes_the_same_tables(url: str) -> None:
    """For those whose databases are changed by other tools."""
    await sql_script(url, migration("integration_sdk"))

    async with rows_of(url) as rows:
        await awaited(rows.add([row(1)]))


OPERATORS = Path(cli.__file__).parents[1] / "docs" / "guides" / "postgresql.md"


async def test_what_operators_are_told_to_run_works(url: str) -> None:
    """Roles, counts, the deletion of old pushes, and the step after a restore."""
    blocks = re.findall(r"^ *```sql\n(.*?)^ *```", OPERATORS.read_text(), re.DOTALL | re.MULTILINE)
    grant, unfinished, workers, delete, restore = blocks
    async with rows_of(url) as rows:
        await rows.take("acme")
        await awaited(rows.add([row(1, reference="INV-1"), row(2)]))
        await settle(rows, row(1, reference="INV-1"), "key")

        await sql_script(url, f"CREATE ROLE worker; {grant}")
        ((scope, state, count, _),) = await sql(url, unfinished)
        assert (scope, state, count) == ("default", "QUEUED", 1)
        ((_, _, companies, alive),) = await sql(url, workers)
        assert (companies, alive) == (1, True)
        await sql_script(url, delete)
        assert len(await rows.rows()) == 2
        await sql(url, "UPDATE integration_sdk.pushes SET added_at = now() - interval '401 days'")
        await sql_script(url, delete + restore)
        assert await rows.rows() == [sent(row(2))]


async def sql_script(url: str, script: str) -> None:
    db = await asyncpg.connect(url)
    await db.execute(script)
    await db.close()


# Limits of calls


async def reserved(url: str) -> tuple[float, float]:
    """Return how far ahead of the database's clock the next slot is, and when it is, in seconds."""
    now = "extract(epoch FROM clock_timestamp())::float8"
    (row,) = await sql(url, f"SELECT next_at - {now}, next_at FROM integration_sdk.rates")  # noqa: S608
    return row[0], row[1]


async def test_processes_keep_a_limit_together(url: str) -> None:
    """Each has a store of its own, and each call a slot that no other one has."""
    async with Store(url) as a, Store(url) as b, Store(url) as c:
        rates = [store.rate(per_second=100) for store in (a, b, c)]
        await rates[0].acquire()
        _, before = await reserved(url)

        await asyncio.gather(*(times_of(rate, 20) for rate in rates))

        _, after = await reserved(url)
    assert after - before >= 0.6 - 1e-6


async def test_a_burst_may_leave_at_once(url: str) -> None:
    """As many as it allows, and the next one waits: here for a quarter of an hour."""
    async with Store(url) as store:
        rate = store.rate(per_second=0.001, burst=4)
        await times_of(rate, 4)

        ahead, _ = await reserved(url)
    assert 500 < ahead <= 1000


async def test_a_refusal_that_one_process_meets_stops_all(url: str) -> None:
    """Until the time is over that the service has named."""
    paused = "SELECT FROM integration_sdk.rates WHERE paused_until > 0"
    after = "SELECT FROM integration_sdk.rates WHERE next_at >= paused_until + 0.01"
    async with Store(url) as one, Store(url) as other:
        met, hears = one.rate(per_second=100), other.rate(per_second=100)
        await met.acquire()
        met.paused(0.6)
        while not await sql(url, paused):
            pass  # it is on its way
        was_before = not await sql(url, after)

        await hears.acquire()

        assert was_before
        assert await sql(url, after)


async def test_a_clock_that_steps_back_stops_no_calls(url: str) -> None:
    """The database's clock was an hour ahead, and is put right."""
    async with Store(url) as store:
        rate = store.rate(per_second=100)
        rate.paused(0.1)
        await rate.acquire()
        await sql(
            url,
            """UPDATE integration_sdk.rates SET seen = seen + 3600, next_at = next_at + 3600,
            paused_until = paused_until + 3600""",
        )
        async with asyncio.timeout(60):
            await asyncio.gather(*(rate.acquire() for _ in range(10)))
        (found,) = await sql(
            url, "SELECT next_at - extract(epoch FROM now()) AS wait FROM integration_sdk.rates"
        )
        assert found["wait"] < 1


async def test_a_long_pause_is_no_pause_for_all(url: str) -> None:
    """A minute at most is on record; then each process hears from the service itself."""
    async with Store(url) as store:
        rate = store.rate(per_second=100)
        await rate.acquire()
        rate.paused(86400.0)
        query = "SELECT paused_until - extract(epoch FROM now()) AS wait FROM integration_sdk.rates"
        wait = 0.0
        while wait <= 0:
            await asyncio.sleep(0.01)
            ((wait,),) = await sql(url, query)
        assert 50 < wait <= 60


async def test_a_lock_is_waited_for_within_patience(url: str) -> None:
    """Also one that is held for longer than a statement may wait."""
    async with Store(url) as store:
        rate = store.rate(per_second=100)
        await rate.acquire()
        locker = await asyncpg.connect(url)
        await locker.execute("BEGIN; UPDATE integration_sdk.rates SET next_at = next_at")
        waiting = asyncio.ensure_future(rate.acquire())
        timed_out = (
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        )
        while not await sql(url, timed_out):  # noqa: ASYNC110 - of others
            await asyncio.sleep(0.01)
        await locker.close()

        await waiting


# Documents of pulls


async def test_a_document_is_changed_by_who_has_claimed_it(url: str) -> None:
    """One live process at a time; tokens only grow; who was replaced writes nothing more."""
    async with Store(url) as one, Store(url) as other:
        mine, theirs = await one.documents(base_url="http://a"), await other.documents()
        first = await mine.claim("cursor")
        assert first is not None
        assert await theirs.claim("cursor") is None
        written = await mine.write(first, b"\0\xff")
        await sql(url, EXPIRE)

        second = await theirs.claim("cursor")
        assert second is not None
        assert (second.version, second.body) == (1, b"\0\xff")
        assert second.token > first.token
        with pytest.raises(Fenced):
            await mine.write(written, b"old")
        await theirs.write(second, b"new")
        for documents in (theirs, mine):
            await documents.give_back(["cursor"])

        third = await mine.claim("cursor")
        assert third is not None
        assert (third.version, third.body) == (2, b"new")
        assert third.token > second.token


# Scopes


async def test_scopes_are_apart(url: str) -> None:
    """Each has rows, references, keys and leases of its own, and belongs to its own service."""
    async with Store(url, "one") as one, Store(url, "two") as two:
        first = await one.lend(base_url="http://a", dialect="document")
        second = await two.lend(base_url="http://b", dialect="document")
        for rows in (first, second):
            assert await awaited(rows.add([row(1, reference="INV-1")])) == [
                row(1, reference="INV-1")
            ]
            assert await rows.take("acme") == [row(1, reference="INV-1")]
            await settle(rows, row(1, reference="INV-1"), "key")
        assert len(await first.rows()) == 1
