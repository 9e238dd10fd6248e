"""Many processes push with one database: anyone submits, one at a time acts for each company."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from benchmarks.virtual_service import Answer, Asked, Service, refusal
from integration_sdk import OutcomeStatus, PushOutcome, PushRequest, Store
from integration_sdk.errors import StoreUnavailable, Unauthorized
from integration_sdk.sandbox import Sandbox
from tests.support.postgres import Server
from tests.support.push_support import coordinator

COMPANIES = 4


@pytest.fixture
async def url(postgres: Server) -> str:
    return await postgres.new_database()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=COMPANIES, invoices=0, push_seconds=(0.1, 1.0)) as running:
        yield running


def requests(count: int) -> list[PushRequest]:
    return [
        PushRequest(f"c{at % COMPANIES}", "d", "invoices", {"n": at}, reference=f"{at}")
        for at in range(count)
    ]


async def collect(outcomes: AsyncIterator[PushOutcome]) -> list[PushOutcome]:
    return [one async for one in outcomes]


# In one process


async def test_anyone_submits_and_everyone_hears(url: str) -> None:
    """Two coordinators push the same records at the same moment: each record once, and both are
    told of all of them.
    """
    service = Service(lambda _: 0.1)
    async with (
        coordinator(service, journal=url) as one,
        coordinator(service, journal=url) as other,
        asyncio.timeout(120),
    ):
        ends = await asyncio.gather(
            collect(one.run(requests(40))), collect(other.run(reversed(requests(40))))
        )

    for told in ends:
        assert {each.status for each in told} == {OutcomeStatus.SUCCESS}
        assert {each.reference for each in told} == {str(at) for at in range(40)}
    assert service.count("push") == 40


async def test_who_leaves_hands_over_at_once(url: str) -> None:
    """The other one goes on with the open pushes of the first, without waiting for a lease."""
    service = Service(lambda _: 3.0)
    async with coordinator(service, journal=url) as other, asyncio.timeout(60):
        async with coordinator(service, journal=url, leave="detach") as one:
            left = await one.submit(requests(1)[0])
            joined = await other.submit(requests(1)[0])
        outcome = await joined

    assert (outcome.key, outcome.status) == (left.key, OutcomeStatus.SUCCESS)
    assert service.count("push") == 1


async def test_a_database_that_is_restarted_costs_no_push(postgres: Server, url: str) -> None:
    """Nothing is sent while it is away; then all goes on by itself."""
    service = Service()

    async def slowly() -> AsyncIterator[PushRequest]:
        for one in requests(60):
            await asyncio.sleep(0.01)
            yield one

    async def restart() -> None:
        await asyncio.sleep(0.2)
        await asyncio.to_thread(postgres.stop)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(postgres.start)

    async with (
        Store(url, wait_for_database=120) as store,
        coordinator(service, journal=store) as pushes,
    ):
        outcomes, _ = await asyncio.gather(collect(pushes.run(slowly())), restart())

    assert {one.status for one in outcomes} == {OutcomeStatus.SUCCESS}
    assert service.count("push") == len(outcomes) == 60


async def test_a_database_that_is_away_for_long_ends_no_coordinator(
    postgres: Server, url: str
) -> None:
    """Who pushes meanwhile is told; what was open ends, and later pushes are sent."""
    service = Service(lambda _: 2.0)
    first, second = requests(2)
    async with (
        Store(url, wait_for_database=1) as store,
        coordinator(service, journal=store) as pushes,
    ):
        before = await pushes.submit(first)
        await asyncio.to_thread(postgres.stop)
        try:
            with pytest.raises(StoreUnavailable):
                await pushes.submit(second)
            assert (await before).status is OutcomeStatus.SUCCESS
        finally:
            await asyncio.to_thread(postgres.start)
        async with asyncio.timeout(60):
            assert (await (await pushes.submit(second))).status is OutcomeStatus.SUCCESS
            while any(row.state != "FINAL" for row in await store.recorded()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)

    assert service.count("push") == 2


async def test_who_is_stopped_hands_over_at_once(url: str) -> None:
    """A worker whose key is refused sends nothing more; another one does."""
    service, refuses = Service(), True

    def answer(call: Asked) -> Answer | None:
        return refusal(401) if refuses and call.kind == "push" else None

    service.answer = answer
    async with (
        coordinator(service, journal=url) as stopped,
        coordinator(service, journal=url) as other,
        asyncio.timeout(60),
    ):
        for one in requests(3):
            with pytest.raises(Unauthorized):
                await stopped.submit(evolve(one, company_id="c"))
        refuses = False
        outcome = await (await other.submit(evolve(requests(4)[3], company_id="c")))

    assert outcome.status is OutcomeStatus.SUCCESS


# Processes that die


async def begin(config: dict[str, Any]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.proofs.proof_child", "once", json.dumps(config)),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


def config(sandbox: Sandbox, url: str, records: int) -> list[dict[str, Any]]:
    """What the workers do, each for one company more than its own."""
    common = {
        "api_key": sandbox.api_key,
        "base_url": sandbox.base_url,
        "journal": url,
        "natural_key": True,
        "patience": 2.0,
        "again": True,
        "lease": 1.0,
    }
    return [
        common
        | {
            "company": company.id,
            "connections": [one.id for one in company.connections[:1]],
            "name": f"K{at}",
            "records": records // COMPANIES,
        }
        for at, company in enumerate(sandbox.companies)
    ]


async def check(sandbox: Sandbox, url: str, records: int) -> None:
    """Each record has arrived once, or is in doubt on record, cut off as it was about to leave."""
    async with Store(url) as store:
        rows = await store.recorded()
    in_doubt = {row.reference for row in rows if row.state in {"DOUBT", "LOST"}}
    sent = Counter(one.record["invoiceNumber"] for one in sandbox.pushes)
    assert set(sent.values()) == {1}
    assert {row.reference for row in rows} == sent.keys() | in_doubt
    assert len(rows) == records
    assert len(in_doubt) < max(records / 20, 20)  # each kill cuts off up to ten of a company
    arrived = {one.key: one.record["invoiceNumber"] for one in sandbox.pushes}
    assert all(arrived[row.key] == row.reference for row in rows if row.key)


async def thawed(process: asyncio.subprocess.Process) -> None:
    """Let a process that was killed, frozen or at its end go on, and wait for its end."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
    await process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize(
    "times", [2, pytest.param(150, marks=[pytest.mark.long, pytest.mark.timeout(0)])]
)
async def test_workers_that_are_killed_or_frozen_are_succeeded(
    sandbox: Sandbox, url: str, how: signal.Signals, times: int
) -> None:
    """On this host or another: nothing is doubled, lost or linked to another record."""
    records, dice = COMPANIES * 20 * times, random.Random(times)
    work = config(sandbox, url, records)
    workers = [await begin(one) for one in work]
    frozen: list[asyncio.subprocess.Process] = []
    for _ in range(times):
        await asyncio.sleep(dice.uniform(0.2, 1.5))
        at = dice.randrange(len(workers))
        if workers[at].returncode is None:
            workers[at].send_signal(how)
            frozen.append(workers[at])
        workers[at] = await begin(work[at])
        if len(frozen) > 1 and how is signal.SIGSTOP:
            await thawed(frozen.pop(0))
    for one in frozen:
        await thawed(one)
    for process in workers:
        await process.wait()
    for each in work:  # where the thaw of another cost one of them its lease
        assert await (await begin(each)).wait() == 0
    await check(sandbox, url, records)
