"""The same program again: after a crash, after a good end, with one reference twice.

A crash is stood in for by the rows that it leaves in the journal; `test_chaos` does it with
processes. Everything else is real: client, sockets, file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import Client, OutcomeStatus, PushOutcome, PushRequest, Store
from integration_sdk._push.agreement import natural_value
from integration_sdk._records.codec import canonical, encode_record
from integration_sdk._store.row import Lane, Mark, Row, State
from integration_sdk.sandbox import Sandbox
from tests.proofs.proof_cut import INVOICE

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.integration_sandbox(companies=1, invoices=1, push_seconds=(0.01, 0.05)),
]


def record(sandbox: Sandbox, number: int = 1, connection: int = 0) -> PushRequest:
    company, name = sandbox.companies[0], f"INV-{number}"
    return PushRequest(
        company.id,
        company.connections[connection].id,
        "invoices",
        INVOICE | {"invoiceNumber": name},
        reference=name,
        natural_key="invoiceNumber",
    )


def left_behind(request: PushRequest, state: State, **facts: Any) -> Row:
    """Return the row of a process that died."""
    body = canonical(encode_record(request.record))
    return Row(
        id=f"intent of {request.reference}",
        lane=Lane(request.company_id, request.connection_id, request.data_type),
        payload=body,
        payload_hash=sha256(body).hexdigest(),
        natural_key=request.natural_key,
        natural_value=natural_value(body, request.natural_key),
        reference=request.reference,
        version=0,
        state=state,
        **{"attempts": 1, "ghosts": int(state is State.SENDING), **facts},
    )


async def on_record(where: Path, *rows: Row) -> None:
    """Put rows on record in a journal that nothing has open."""
    async with Store(where) as store:
        journal = await store.lend()
        await asyncio.gather(*map(journal.write, rows))


async def run(sandbox: Sandbox, path: Path, requests: Iterable[PushRequest]) -> list[PushOutcome]:
    """Run the program; it must come to its end."""
    async with (
        asyncio.timeout(20),
        Client(sandbox.api_key, sandbox.base_url) as client,
        client.coordinator(journal=path, patience=1.0) as pushes,
    ):
        return [outcome async for outcome in pushes.run(requests)]


def statuses(outcomes: Iterable[PushOutcome]) -> list[OutcomeStatus]:
    return [outcome.status for outcome in outcomes]


async def test_the_same_file_twice_is_pushed_once(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """A second run of a file that was pushed makes no POST, and gives the same outcomes."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    sandbox.faults.fail_next_push("the period is closed", skip=3)
    file = [record(sandbox, number) for number in range(12)]

    first = await run(sandbox, path, file)
    posts = sandbox.count("POST", "/push/")
    second = await run(sandbox, path, file)

    assert posts == sandbox.count("POST", "/push/") == 12
    told = {(one.reference, one.status, one.key) for one in first}
    assert told == {(one.reference, one.status, one.key) for one in second}
    assert statuses(second).count(OutcomeStatus.FAILED) == 1


@pytest.mark.parametrize("status", [429, None])
async def test_a_push_that_waits_to_be_sent_again_is_sent_once(
    integration_sandbox: Sandbox, tmp_path: Path, status: int | None
) -> None:
    """Recovery goes on with it, the file names it again: still one POST, one outcome."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    await on_record(path, left_behind(record(sandbox), State.QUEUED, http_status=status))

    outcomes = await run(sandbox, path, [record(sandbox)])

    assert sandbox.count("POST", "/push/") == 1
    assert statuses(outcomes) == [OutcomeStatus.SUCCESS]


async def test_a_queued_push_that_is_there_is_not_sent_again(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """As after a restore: what its natural key finds in the list is its own."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    there = sandbox.push(
        sandbox.companies[0].connections[0], "invoices", dict(record(sandbox).record)
    )
    await asyncio.sleep(1)
    await on_record(path, left_behind(record(sandbox), State.QUEUED, attempts=0))

    (outcome,) = await run(sandbox, path, [record(sandbox)])

    assert sandbox.count("POST", "/push/") == 0
    assert (outcome.status, outcome.key) == (OutcomeStatus.SUCCESS, there.key)


async def test_a_push_in_doubt_that_is_submitted_again_ends(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """It is searched for once, for both; nothing is sent, and the block can be left."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    await on_record(path, left_behind(record(sandbox), State.SENDING, mark=Mark()))

    outcomes = await run(sandbox, path, [record(sandbox)])

    assert sandbox.count("POST", "/push/") == 0
    assert statuses(outcomes) == [OutcomeStatus.IN_DOUBT]


async def test_two_requests_of_one_reference_are_one_push(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """Submitted twice in one run, a reference is pushed once and both get its outcome."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"

    outcomes = await run(sandbox, path, [record(sandbox), record(sandbox)])

    assert sandbox.count("POST", "/push/") == 1
    assert statuses(outcomes) == [OutcomeStatus.SUCCESS, OutcomeStatus.SUCCESS]
    assert outcomes[0].key == outcomes[1].key


async def test_a_later_mark_hides_no_push_of_an_earlier_life(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """What was there before the second life is not new to it, and still the first one's to find.

    Both lives died while they sent; the second one's push never arrived.
    """
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    connection = sandbox.companies[0].connections[0]
    arrived = sandbox.push(connection, "invoices", dict(record(sandbox, 1).record))
    between = Mark((arrived.key,))
    await on_record(
        path,
        left_behind(record(sandbox, 1), State.SENDING, mark=Mark()),
        left_behind(record(sandbox, 2), State.SENDING, mark=between),
    )

    async with (
        Client(sandbox.api_key, sandbox.base_url) as client,
        client.coordinator(journal=path, patience=1.0) as pushes,
    ):
        first, second = [await push for push in pushes.recovered]

    assert (first.status, first.key) == (OutcomeStatus.SUCCESS, arrived.key)
    assert second.status is OutcomeStatus.IN_DOUBT


async def test_a_block_that_detaches_waits_for_no_push(
    integration_sandbox: Sandbox, tmp_path: Path
) -> None:
    """A push of an earlier run, submitted again and still Pending, holds no block up."""
    sandbox, path = integration_sandbox, tmp_path / "pushes.db"
    request = record(sandbox, connection=2)  # which is offline
    offline = sandbox.companies[0].connections[2]
    pending = sandbox.push(offline, "invoices", dict(request.record))
    await on_record(path, left_behind(request, State.OPEN, key=pending.key))

    async with (
        asyncio.timeout(20),
        Client(sandbox.api_key, sandbox.base_url) as client,
        client.coordinator(journal=path, leave="detach") as pushes,
    ):
        push = await pushes.submit(request)

    assert (await push).status is OutcomeStatus.PENDING
    assert sandbox.count("POST", "/push/") == 0
