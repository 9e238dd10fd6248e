"""What a store promises of pushes on record: the same in a file and in a database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from integration_sdk._store.journal import Journal
from integration_sdk._store.row import Attempt, Lane, Mark, Result, Row, State
from integration_sdk._store.store import Store
from tests.support.postgres import Server, fetch

LANE = Lane("acme", "xero", "invoices")
Open = Callable[..., Awaitable[Journal]]
numbers = count()


@pytest.fixture(params=["file", "database"])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store: both kinds promise the same."""
    if request.param == "file":
        return str(tmp_path / "pushes.db")
    server: Server = request.getfixturevalue("postgres")
    return await server.new_database()


@pytest.fixture
async def open_store(where: str) -> AsyncIterator[Open]:
    """Return what opens the place for one more worker."""
    async with AsyncExitStack() as stores:

        async def opened(scope: str = "default", **options: Any) -> Journal:
            store = await stores.enter_async_context(Store(where, scope, **options))
            return await store._lend()

        yield opened


@pytest.fixture
async def journal(open_store: Open) -> Journal:
    return await open_store()


def new(journal: Journal, **facts: Any) -> Row:
    row = Row(id=f"push-{next(numbers)}", lane=LANE, holder=journal.holder, payload=b'{"a": 1}')
    return structs.replace(row, version=0, **facts)


async def added(journal: Journal, **facts: Any) -> Row:
    row = new(journal, **facts)
    assert await journal.write(row) is row
    return row


async def moved(journal: Journal, row: Row, state: State, **facts: Any) -> Row:
    later = row.next(state, **facts)
    assert await journal.write(later) is later
    return later


async def recorded(journal: Journal, row: Row) -> Row:
    (found,) = await journal.rows([row.id])
    return found


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b"{}", None),
        ('{"é😀":"\\u0000"}'.encode(), None),
        (b"\xff\x00file", "application/pdf"),
        (b"", "text/plain"),
    ],
)
async def test_row_comes_back_as_it_was_written(
    journal: Journal, payload: bytes, content_type: str | None
) -> None:
    """Every field, and the body byte for byte."""
    row = await added(
        journal,
        payload=payload,
        reference="INV 'é😀' 17",
        record_id="r1",
        content_type=content_type,
        mark=Mark(("k2", "k1"), whole=False, latest=1.5, taken_at=7),
        error='half \\u0000 "quoted"',
        replays=2,
        ghosts=1,
        earlier=(Attempt("hash", result=Result.REFUSED, http_status=400),),
    )

    assert await recorded(journal, row) == row
    assert await journal.rows(references=["INV 'é😀' 17"]) == [row]


async def test_body_is_dropped_once_the_key_is_known_and_nothing_is_unexplained(
    journal: Journal,
) -> None:
    """While a row has ghosts, its body tells its push from others'."""
    sending = await added(journal, state=State.SENDING, ghosts=2)
    opened = await moved(journal, sending, State.OPEN, key="K1", ghosts=1)
    assert (await recorded(journal, opened)).payload == b'{"a": 1}'

    done = await moved(journal, opened, State.DONE, result=Result.ENDED, ghosts=0)
    assert (await recorded(journal, done)).payload is None


async def test_one_reference_is_one_row(journal: Journal) -> None:
    """Of two rows that are written at once the first is recorded, and both writers learn it."""
    one, two = new(journal, reference="INV-17"), new(journal, reference="INV-17")

    first, second = await asyncio.gather(journal.write(one), journal.write(two))

    assert first is one
    assert second == one
    assert await journal.write(new(journal, reference="INV-17")) == one
    assert await journal.everything() == [one]


async def test_write_names_the_version_before(journal: Journal) -> None:
    """Whoever lost a row, or has read an old version, is answered with what is on record."""
    row = await added(journal)
    later = await moved(journal, row, State.SENDING)
    other = row.next(State.SENDING, holder="another")

    assert await journal.write(other) == later
    assert await recorded(journal, row) == later


async def test_written_twice_is_written(journal: Journal) -> None:
    """The answer of a database may be lost, and the write is then repeated."""
    row = await added(journal, reference="INV-1")
    again = structs.replace(row)
    assert await journal.write(again) is again

    later = await moved(journal, row, State.OPEN, key="K")
    again = structs.replace(later)
    assert await journal.write(again) is again


async def test_a_key_has_one_owner(journal: Journal) -> None:
    """Compared without case; a row that wants another's stays as it is, also if both want it."""
    row, other = await added(journal), await added(journal)
    opened = row.next(State.OPEN, key="ABC-1"), other.next(State.OPEN, key="abc-1")

    assert await asyncio.gather(*map(journal.write, opened)) == [opened[0], other]
    assert await journal.write(other.next(State.OPEN, key="abc-1")) == other
    assert await journal.owners(["abc-1", "abc-2"]) == {"abc-1"}
    assert [one.id for one in await journal.rows(keys=["Abc-1"])] == [row.id]


async def test_keys_of_earlier_attempts_stay_the_rows_own(journal: Journal) -> None:
    """A row that is sent again with a corrected record keeps the key of its failed push."""
    failed = await added(journal, reference="INV-1", state=State.DONE, key=None)
    failed = await moved(journal, failed, State.OPEN, key="OLD")
    again = await moved(
        journal,
        failed,
        State.QUEUED,
        key=None,
        earlier=(failed.as_attempt(),),
        payload=b'{"a": 2}',
    )
    other = await added(journal)

    assert await journal.write(other.next(State.OPEN, key="old")) == other
    assert await journal.owners(["OLD"]) == {"OLD"}
    assert await journal.rows(keys=["OLD"]) == [again]
    assert (await recorded(journal, again)).payload == b'{"a": 2}'
    await moved(journal, again, State.OPEN, key="NEW")


async def test_two_steps_of_one_row_may_be_asked_for_at_once(journal: Journal) -> None:
    """They are written one after the other."""
    row = new(journal)
    steps = [row, row.next(State.SENDING), row.next(State.SENDING).next(State.LOST)]

    answers = await asyncio.gather(*map(journal.write, steps))

    assert answers == steps
    assert await recorded(journal, row) == steps[-1]


async def test_write_that_is_not_waited_for_is_made(journal: Journal) -> None:
    """A caller that is cancelled does not undo it."""
    row = new(journal)
    journal.write(row).cancel()
    await journal.write(new(journal))

    assert await recorded(journal, row) == row


async def test_unexplained_rows_are_those_with_ghosts(journal: Journal) -> None:
    """Whatever their state: an abandoned row may own a push, one that is queued does not."""
    await added(journal)
    lost = await added(journal, state=State.LOST, ghosts=1)
    abandoned = await added(journal, state=State.DONE, result=Result.ABANDONED, ghosts=1)
    await added(journal, state=State.LOST, ghosts=1, lane=Lane("another", "xero", "invoices"))

    assert await journal.unexplained("acme") == [lost, abandoned]


async def test_next_worker_takes_over_what_an_earlier_one_left(where: str) -> None:
    """All that is not done, in order; the former holder's writes are refused from then on."""
    async with Store(where) as store:
        before = await store._lend()
        queued = await added(before, reference="1")
        lost = await added(before, state=State.LOST, ghosts=1)
        await added(before, state=State.DONE, result=Result.REFUSED)

    async with Store(where) as store:
        journal = await store._lend()
        claimed = await journal.claim()

        assert [one.id for one in claimed] == [queued.id, lost.id]
        assert {one.holder for one in claimed} == {journal.holder}
        assert await journal.claim() == []
        assert (await journal.everything())[:2] == claimed
        assert await journal.write(queued.next(State.SENDING)) == claimed[0]


async def test_row_that_the_store_has_lost_is_written_again(
    where: str, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a failover to a standby without the last commits: said once, and nothing hangs."""
    row = await added(journal, reference="INV-1")
    sending = await moved(journal, row, State.SENDING, ghosts=1)
    await forget(where)

    opened = await moved(journal, sending, State.OPEN, key="K", ghosts=0)

    assert await recorded(journal, row) == opened
    assert "older than known here" in caplog.text


async def test_all_rows_are_put_back_at_once(
    where: str, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """What a coordinator does when the database was away; harmless when nothing was lost."""
    rows = [await added(journal, reference=str(number)) for number in range(3)]
    await journal.restore(rows)
    assert not caplog.text

    await forget(where)
    await journal.restore(rows)

    assert await journal.everything() == rows
    assert "3 pushes were missing on record" in caplog.text


async def forget(where: str) -> None:
    """Put the store back to when it was empty."""
    if "://" in where:
        await fetch(where, "TRUNCATE integration_sdk.pushes")
    else:
        with closing(sqlite3.connect(where)) as db, db:
            db.execute("DELETE FROM pushes")
