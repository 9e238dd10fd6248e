"""Pushes kept in a database: by one process at a time, whichever of them lives."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from attrs import evolve

from integration_sdk import (
    JournalError,
    JournalInUse,
    OutcomeStatus,
    PushRequest,
    RetryPolicy,
    Store,
)
from integration_sdk._push.table import DUTY, Duty
from integration_sdk._store import Journal, database
from integration_sdk._store.row import State
from integration_sdk.cli import main
from integration_sdk.sandbox import Sandbox
from tests.postgres import Server
from tests.push_model import Model
from tests.push_support import coordinator
from tests.test_journal import acked, sending

NAMED = PushRequest("c", "d", "invoices", {"n": 1}, reference="INV-1")
ONCE = RetryPolicy(attempts=1)
EXPIRED = "UPDATE integration_sdk.leases SET until = clock_timestamp() - interval '1 second'"


@pytest.fixture
async def url(postgres: Server) -> str:
    return await postgres.new_database()


@pytest.fixture
async def journal(url: str) -> AsyncIterator[Journal]:
    async with Store(url) as store:
        yield await store.lend()


# The lease


async def test_one_process_at_a_time_carries_the_pushes(url: str, journal: Journal) -> None:
    """The other is told which one does."""
    async with Store(url, patience=0) as other:
        with pytest.raises(JournalInUse, match=f"carried by process {os.getpid()} on "):
            await other.lend()


async def test_who_ends_hands_over_at_once(url: str) -> None:
    """The next one does not wait for the lease to expire, and finds all rows."""
    async with coordinator(Model(lambda _: 0.0), journal=url) as pushes:
        first = await (await pushes.submit(NAMED))
    model = Model()
    async with (
        Store(url, patience=0) as store,
        coordinator(model, journal=store) as pushes,
    ):
        second = await (await pushes.submit(NAMED))

    assert (first.key, first.status) == (second.key, OutcomeStatus.SUCCESS)
    assert not model.counts["push.create"]


async def test_who_was_replaced_writes_nothing_more(
    postgres: Server, url: str, journal: Journal
) -> None:
    """Its lease expired while it was frozen; its token is old for good."""
    await journal.commit([sending("a"), acked("b")])
    await postgres.execute(urlsplit(url).path[1:], EXPIRED)
    async with Store(url, patience=0) as store:
        successor = await store.lend()
        taken = await successor.claim()

        for row in (sending("c"), sending("a").to(acked("a").state, key="k")):
            with pytest.raises(JournalError, match="another process has taken over"):
                await journal.commit([row])

        assert [row.id for row in taken] == ["a", "b"]
        assert await successor.rows() == taken
        await successor.commit([sending("c")])


async def test_a_lease_is_renewed_while_its_process_lives(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a process that has died is succeeded when it has run out."""
    monkeypatch.setattr(database, "LEASE", 0.4)
    store = Store(url)
    first = await store.lend()
    await asyncio.sleep(0.8)
    async with Store(url, patience=0) as early:
        with pytest.raises(JournalInUse):
            await early.lend()

    (renewing,) = (one for one in asyncio.all_tasks() if one.get_name() == "integration_sdk lease")
    renewing.cancel()  # as if it had died
    async with Store(url, patience=5) as other:
        await other.lend()
        with pytest.raises(JournalError, match="another process has taken over"):
            await first.commit([sending("a")])
    await store.aclose()


async def test_a_coordinator_that_was_replaced_sends_nothing_more(
    postgres: Server, url: str
) -> None:
    """It ends with an error, and the other one goes on with what it has left."""
    model = Model(lambda _: float("inf"))

    async def carry_on_for_too_long() -> None:
        async with coordinator(model, journal=url, leave="detach", retry=ONCE) as pushes:
            await pushes.submit(NAMED)
            await postgres.execute(urlsplit(url).path[1:], EXPIRED)
            async with (
                Store(url, patience=0) as store,
                coordinator(model, journal=store, leave="detach") as successor,
            ):
                (taken,) = successor.recovered
                assert taken.key
                await pushes.submit(evolve(NAMED, reference="INV-2"))

    with pytest.raises(JournalError, match="another process has taken over"):
        await carry_on_for_too_long()
    assert model.counts["push.create"] == 1


async def test_commits_of_one_moment_fail_apart(journal: Journal) -> None:
    """They share a transaction, and a refused one takes no other with it."""
    await journal.commit([acked("x", "key")])
    commits = [journal.commit([acked(f"{at}", "key" if at == 7 else None)]) for at in range(20)]

    ends = await asyncio.gather(*commits, return_exceptions=True)

    assert [type(end).__name__ for end in ends].count("KeyClaimed") == 1
    assert len(await journal.rows()) == 20


# Journeys


def arrivals(sandbox: Sandbox) -> Counter[str]:
    """How often each invoice has arrived."""
    return Counter(one.record["invoiceNumber"] for one in sandbox.pushes)


async def test_a_database_that_is_restarted_costs_no_push(postgres: Server, url: str) -> None:
    """Nothing is sent while it is away; then all goes on by itself."""
    model = Model()
    requests = [PushRequest("c", "d", "invoices", {"n": at}, reference=f"{at}") for at in range(60)]

    async def restart() -> None:
        await asyncio.sleep(0.2)
        await asyncio.to_thread(postgres.stop)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(postgres.start)

    async with coordinator(model, journal=url, max_in_flight=2) as pushes:
        outcomes, _ = await asyncio.gather(collect(pushes.run(slowly(requests))), restart())

    assert {one.status for one in outcomes} == {OutcomeStatus.SUCCESS}
    assert model.counts["push.create"] == len(outcomes) == 60


async def collect(outcomes: Any) -> list[Any]:
    return [one async for one in outcomes]


async def slowly(requests: list[PushRequest]) -> AsyncIterator[PushRequest]:
    for one in requests:
        await asyncio.sleep(0.01)
        yield one


async def begin(config: dict[str, Any]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.proof_child", "once", json.dumps(config)),
        cwd=Path(__file__).parents[1],
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def run_to_the_end(config: dict[str, Any], dice: random.Random, *, kills: int) -> None:
    """Run the program until it ends well, and kill it as often before that."""
    for _ in range(kills):
        process = await begin(config)
        await asyncio.sleep(dice.uniform(0.6, 2.0))
        if process.returncode is None:
            process.kill()
        await process.wait()
    process = await begin(config)
    assert await process.wait() == 0


def config(sandbox: Sandbox, url: str, records: int) -> dict[str, Any]:
    company = sandbox.companies[0]
    return {
        "api_key": sandbox.api_key,
        "base_url": sandbox.base_url,
        "journal": url,
        "company": company.id,
        "connections": [one.id for one in company.connections[:1]],
        "name": "K",
        "records": records,
        "natural_key": True,
        "patience": 2.0,
        "in_flight": 8,
        "again": True,
        "lease": 1.0,
    }


async def check(sandbox: Sandbox, told: dict[str, Any]) -> None:
    """Each record has arrived once, or is in doubt on record, cut off as it was about to leave."""
    async with Store(told["journal"]) as store:
        rows = await (await store.lend()).rows()
    in_doubt = {row.reference for row in rows if DUTY[row.state] is Duty.DECIDE}
    sent = arrivals(sandbox)
    assert {row.reference for row in rows} == sent.keys() | in_doubt
    assert len(rows) == told["records"]
    assert set(sent.values()) == {1}
    assert len(in_doubt) < told["records"] / 20


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.long)])
async def test_a_process_that_is_killed_is_succeeded(url: str, kills: int) -> None:
    """On this host or another: nothing is doubled, nothing is lost."""
    async with Sandbox(companies=1, invoices=0) as sandbox:
        told = config(sandbox, url, 100 * (kills + 1))
        await run_to_the_end(told, random.Random(kills), kills=kills)
        await check(sandbox, told)


@pytest.mark.parametrize("freezes", [1, pytest.param(10, marks=pytest.mark.long)])
async def test_a_process_that_is_frozen_is_succeeded(url: str, freezes: int) -> None:
    """It goes on when another has taken over, and sends nothing that is sent already."""
    async with Sandbox(companies=1, invoices=0) as sandbox:
        told = config(sandbox, url, 60 * (freezes + 1))
        dice, frozen = random.Random(freezes), list[asyncio.subprocess.Process]()
        for _ in range(freezes):
            process = await begin(told)
            await asyncio.sleep(dice.uniform(0.6, 2.0))
            if process.returncode is None:
                process.send_signal(signal.SIGSTOP)
                frozen.append(process)
        last = await begin(told)
        await asyncio.sleep(2.0)
        for process in frozen:
            process.send_signal(signal.SIGCONT)
        await last.wait()
        for process in frozen:
            await process.wait()
        await run_to_the_end(told, dice, kills=0)  # where the thaw cost the last its lease
        await check(sandbox, told)


# The commands


def test_the_commands_work_on_a_database(
    postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """They show what is kept while a process carries it, and decide once none does."""
    url = asyncio.run(postgres.new_database()).replace("postgres:@", "postgres:s3cret@")

    async def leave_a_doubt() -> None:
        async with Store(url) as store:
            doubt = sending("aa1").to(State.AMBIGUOUS).to(State.ABSENT)
            await (await store.lend()).commit([doubt, acked("b")])
            assert await asyncio.to_thread(main, ["pushes", "list", "--journal", url]) == 0

    asyncio.run(leave_a_doubt())
    told = capsys.readouterr()
    assert "2 pushes in postgresql://postgres:***@" in told.out.replace("\n", "")
    assert main(["pushes", "resolve", "aa", "--journal", url, "--abandon"]) == 0
    decided = capsys.readouterr()
    assert main(["pushes", "list", "--journal", url, "--json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [(one["intent"], one["state"]) for one in listed] == [("aa1", "DECIDED"), ("b", "ACKED")]
    assert "s3cret" not in told.out + told.err + decided.out + decided.err
