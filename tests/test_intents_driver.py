"""The seam, driven from asyncio over both journals by a driver of a dozen lines."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from attrs import Factory, define
from integration_sdk._push.effects import (
    Commit,
    Effect,
    FindOwners,
    Ledger,
    ListPushes,
    Machine,
    Policy,
    ReadSingly,
    Send,
)

from integration_sdk._http.requests import Phase
from integration_sdk._push import protocol, reconcile
from integration_sdk._push.evidence import ListedPushes
from integration_sdk._push.table import DUTY, Duty, SendResult, new_intent
from integration_sdk._store import Journal, SqliteJournal
from integration_sdk._store.row import Intent, Lane, State
from integration_sdk.errors import JournalError
from integration_sdk.models import PushOperation, PushStatus
from tests.memory_journal import MemoryJournal

LANE = Lane("company", "books", "invoices")
POLICY = Policy(search_patience=2.0, first_search=0.5)


@define
class Books:
    """A service that carries out every push and loses every third answer."""

    pushes: list[PushOperation] = Factory(list)

    def receive(self, intent: Intent) -> SendResult:
        key = f"key-{len(self.pushes)}"
        push = PushOperation(
            push_operation_key=key,
            company_id=LANE.company_id,
            data_connection_id=LANE.connection_id,
            data_type=LANE.data_type,
            status=PushStatus.SUCCESS,
            data={"invoiceNumber": intent.id},
        )
        self.pushes.insert(0, push)
        if len(self.pushes) % 3 == 0:
            return SendResult(Phase.MAY_HAVE_LEFT, cause="reset")
        return SendResult(Phase.ANSWERED, status=200, body={"pushOperationKey": key})


async def drive(machine: Machine[Any], journal: Journal, books: Books) -> Any:
    """Perform effects and report them, until the machine returns."""
    step, report = machine.send, None
    while True:
        try:
            effect = step(report)
        except StopIteration as done:
            return done.value
        try:
            step, report = machine.send, await perform(effect, journal, books)
        except JournalError as error:
            step, report = machine.throw, error  # type: ignore[assignment]  # throw takes the error


async def perform(effect: Effect, journal: Journal, books: Books) -> Any:
    match effect:
        case Commit(rows):
            return await journal.commit(rows)
        case Send(row):
            await journal.commit([row])
            return books.receive(row)
        case ListPushes():
            return ListedPushes(list(books.pushes), whole=True)
        case FindOwners(keys):
            return await journal.owners(keys)
        case ReadSingly(_, keys):
            return [one for one in books.pushes if one.key in keys]
        case _:
            await asyncio.sleep(0)
            return 0.0


@pytest.fixture(params=["memory", "file"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    one: Journal
    if request.param == "memory":
        one = MemoryJournal()
    else:
        one = await SqliteJournal.open(tmp_path / "pushes.db")
    yield one
    await one.close()


def records(count: int) -> list[Intent]:
    return [
        new_intent(LANE, b'{"invoiceNumber":"%d"}' % n, id=str(n), natural_key="invoiceNumber")
        for n in range(count)
    ]


async def push_all(journal: Journal, books: Books, ledger: Ledger) -> None:
    snapshot = await drive(protocol.take_snapshot(LANE.company_id), journal, books)

    def search(company_id: str) -> Machine[bool]:
        yield from reconcile.search_again(ledger, company_id, policy=POLICY)
        return True

    machines = [
        protocol.transmit(
            ledger,
            one,
            snapshot,
            policy=POLICY,
            chance=lambda: 0.5,
            new_key=lambda: "new",
            search=search,
        )
        for one in records(60)
    ]
    await asyncio.gather(*(drive(one, journal, books) for one in machines))


async def assert_all_linked(journal: Journal, books: Books) -> None:
    rows = await journal.rows()
    truth = {one.key: str((one.data or {})["invoiceNumber"]) for one in books.pushes}
    assert len(books.pushes) == len(rows) == 60
    assert {row.key: row.id for row in rows} == truth


async def test_lost_answers_are_found_again(journal: Journal) -> None:
    """60 pushes side by side, 20 answers lost: each is linked to its own push, sent once."""
    books, ledger = Books(), Ledger()
    await push_all(journal, books, ledger)
    assert len(ledger.doubted()) == 20

    await drive(reconcile.reconcile(ledger, LANE.company_id, policy=POLICY), journal, books)

    await assert_all_linked(journal, books)


async def test_the_next_process_goes_on_where_this_one_stopped(journal: Journal) -> None:
    """What the first ledger knew is read back, searched for, polled and settled."""
    books = Books()
    await push_all(journal, books, Ledger())
    ledger = Ledger()

    found = await drive(reconcile.recover(ledger, await journal.claim()), journal, books)
    for company_id in {row.lane.company_id for row in found if row.state is State.AMBIGUOUS}:
        await drive(reconcile.reconcile(ledger, company_id, policy=POLICY), journal, books)
    for row in await journal.claim():
        [push] = [one for one in books.pushes if one.key == row.key]
        await drive(protocol.settle(ledger, [(row.id, push, None)]), journal, books)

    assert sum(DUTY[row.state] is Duty.POLL for row in found) == 40
    await assert_all_linked(journal, books)
    assert {row.state for row in await journal.rows()} == {State.FINAL}
