"""The same program again: after a crash, after a good end, with one reference twice.

A crash is stood in for by the rows that it leaves in the journal; `test_proof_kill` does it
with processes. Everything else is real: client, sockets, file.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from integration_sdk import Client, OutcomeStatus, PushOutcome, PushRequest, Store
from integration_sdk._push.table import new_row
from integration_sdk._records.codec import canonical, encode_record
from integration_sdk._store2.row import Lane, Mark, Row, State
from integration_sdk.sandbox import Sandbox
from tests.proofs.proof_child import invoice

NOTHING = Mark()

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.integration_sandbox(companies=1, invoices=1, push_seconds=(0.01, 0.05)),
]


def record(sandbox: Sandbox, number: int = 1) -> PushRequest:
    company = sandbox.companies[0]
    name = f"INV-{number}"
    return PushRequest(
        company.id,
        company.connections[0].id,
        "invoices",
        invoice(name),
        reference=name,
        natural_key="invoiceNumber",
    )


def left_behind(request: PushRequest, state: State, **facts: Any) -> Row:
    """Return the row of a process that died."""
    row = new_row(
        Lane(request.company_id, request.connection_id, request.data_type),
        canonical(encode_record(request.record)),
        id=f"intent of {request.reference}",
        natural_key=request.natural_key,
        reference=request.reference,
    )
    return row.next(state, attempts=1, holder="a process that died", **facts)


async def on_record(where: Path, rows: Sequence[Row]) -> None:
    """Put rows on record in a journal that nothing has open, each after one step at most."""
    async with Store(where) as store:
        kept = await store.lend()
        for row in rows:
            assert await kept.write(row) is row


async def run(sandbox: Sandbox, path: Path, requests: Iterable[PushRequest]) -> list[PushOutcome]:
    """Run the program; it must come to its end."""
    async with (
        asyncio.timeout(20),
        Client(sandbox.api_key, sandbox.base_url) as client,
        client.coordinator(journal=path, search_for=1.0) as pushes,
    ):
        return [outcome async for outcome in pushes.run(requests)]


def statuses(outcomes: Iterable[PushOutcome]) -> list[OutcomeStatus]:
    return [outcome.status for outcome in outcomes]


async def test_the_same_file_twice_is_pushed_once(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """A second run of a file that was pushed makes no POST, and gives the same outcomes."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    integration_sandbox.faults.fail_next_push("the period is closed", skip=3)
    file = [record(sandbox, number) for number in range(12)]

    first = await run(sandbox, path, file)
    posts = sandbox.count("POST", "/push/")
    second = await run(sandbox, path, file)

    assert posts == sandbox.count("POST", "/push/") == 12
    told = {(one.reference, one.status, one.key) for one in first}
    assert told == {(one.reference, one.status, one.key) for one in second}
    assert statuses(second).count(OutcomeStatus.FAILED) == 1


async def test_a_process_that_died_while_it_made_its_journal_can_start_again(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """A file with nothing in it but a database's header was never a journal: it becomes one."""
    path = tmp_path / "pushes.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert path.stat().st_size

    outcomes = await run(integration_sandbox, path, [record(integration_sandbox)])

    assert statuses(outcomes) == [OutcomeStatus.SUCCESS]


@pytest.mark.parametrize("status", [429, None])
async def test_a_push_that_waits_to_be_sent_again_is_sent_once(
    integration_sandbox: Sandbox, tmp_path: Path, status: int | None
) -> None:
    """Recovery goes on with it, the file names it again: still one POST, one outcome."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    await on_record(path, [left_behind(record(sandbox), State.QUEUED, http_status=status)])

    outcomes = await run(sandbox, path, [record(sandbox)])

    assert sandbox.count("POST", "/push/") == 1
    assert statuses(outcomes) == [OutcomeStatus.SUCCESS]


async def test_a_push_in_doubt_that_is_submitted_again_ends(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """It is searched for once, for both; nothing is sent, and the block can be left."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    await on_record(path, [left_behind(record(sandbox), State.SENDING, mark=NOTHING)])

    outcomes = await run(sandbox, path, [record(sandbox)])

    assert sandbox.count("POST", "/push/") == 0
    assert statuses(outcomes) == [OutcomeStatus.IN_DOUBT]


async def test_two_requests_of_one_reference_are_one_push(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """Submitted twice in one run, a reference is pushed once and both hear how it ended."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"

    outcomes = await run(sandbox, path, [record(sandbox), record(sandbox)])

    assert sandbox.count("POST", "/push/") == 1
    assert statuses(outcomes) == [OutcomeStatus.SUCCESS, OutcomeStatus.SUCCESS]
    assert outcomes[0].key == outcomes[1].key


async def test_a_later_snapshot_hides_no_push_of_an_earlier_life(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """What was there before the second life is not new to it, and still the first one's to find.

    Both lives died while they sent; the second one's push never arrived.
    """
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    connection = sandbox.companies[0].connections[0]
    arrived = sandbox.push(connection, "invoices", record(sandbox, 1).record)
    between = Mark((arrived.key,))
    await on_record(
        path,
        [
            left_behind(record(sandbox, 1), State.SENDING, mark=NOTHING),
            left_behind(record(sandbox, 2), State.SENDING, mark=between),
        ],
    )

    async with (
        Client(sandbox.api_key, sandbox.base_url) as client,
        client.coordinator(journal=path, search_for=1.0) as pushes,
    ):
        first, second = [await push for push in pushes.recovered]

    assert (first.status, first.key) == (OutcomeStatus.SUCCESS, arrived.key)
    assert second.status is OutcomeStatus.IN_DOUBT


async def test_a_block_that_detaches_waits_for_no_push(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """A push of an earlier run, submitted again and still Pending, holds nobody up."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    offline = sandbox.companies[0].connections[2]
    request = evolve(record(sandbox), connection_id=offline.id)
    pending = sandbox.push(offline, "invoices", request.record)
    await on_record(path, [left_behind(request, State.OPEN, key=pending.key)])

    async with (
        asyncio.timeout(20),
        Client(sandbox.api_key, sandbox.base_url) as client,
        client.coordinator(journal=path, leave="detach") as pushes,
    ):
        push = await pushes.submit(request)

    assert (await push).status is OutcomeStatus.PENDING
    assert sandbox.count("POST", "/push/") == 0
