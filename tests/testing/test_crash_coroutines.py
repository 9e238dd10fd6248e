"""Coroutines that are killed in virtual time, through the fixture that users have."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_sdk import Client, PushRequest
from tests.testing import crash_programs

Crashes = Callable[..., None]
pytestmark = pytest.mark.integration_sandbox(companies=1, invoices=60, push_seconds=(0.02, 0.1))


async def without_a_journal() -> None:
    async with Client() as client:
        (company,) = await client.companies.list().collect()
        books = client.company(company["id"]).connection(company["dataConnections"][0]["id"])
        for number in range(8):
            await books.push("suppliers", {"supplierName": f"s-{number}", "status": "Active"})


async def with_a_journal() -> None:
    async with Client() as client, client.coordinator(journal="pushes.db") as pushes:
        (company,) = await client.companies.list().collect()
        lane = company["id"], company["dataConnections"][0]["id"], "suppliers"
        requests = (
            PushRequest(
                *lane,
                {"supplierName": f"s-{number}", "status": "Active"},
                reference=f"s-{number}",
                natural_key="supplierName",
            )
            for number in range(20)
        )
        async for _ in pushes.run(requests):
            pass


@pytest.mark.crashes(kills=8)
def test_a_journal_survives_kills(integration_crashes: Crashes) -> None:
    """Its lock is free again, and what was committed is there."""
    integration_crashes(with_a_journal)


def test_what_keeps_no_record_is_doubled(integration_crashes: Crashes) -> None:
    """The message names the kill and the requests."""
    with pytest.raises(AssertionError) as failed:
        integration_crashes(without_a_journal)

    told = str(failed.value)
    assert told.startswith("doubled, round ")
    assert re.search(r"life \d+ was killed (just after|before|while|at) ", told)
    assert re.search(r"\nand \d+ more$", told)


async def rows(page: int) -> list[dict[str, object]]:
    async with Client() as client:
        (company,) = await client.companies.list().collect()
        invoices = client.company(company["id"]).data("invoices")
        got = await invoices.list(page_size=20).collect()
    return got[20 * page :][:20]


async def cursor_before_data() -> None:
    cursor = Path("cursor")
    with Path("out.ndjson").open("a") as out:  # noqa: ASYNC230  # the buffer is what is tested
        for page in range(int(cursor.read_text()) if cursor.exists() else 0, 3):
            for row in await rows(page):
                print(json.dumps({"id": row["id"]}), file=out)
            cursor.write_text(str(page + 1))


async def replaces_the_file() -> None:
    got = [row for page in range(3) for row in await rows(page)]
    Path("part").write_text("".join(f"{json.dumps(row)}\n" for row in got))
    Path("part").replace("out.ndjson")


@pytest.mark.crashes(files={"out.ndjson": "invoices"})
def test_what_is_in_a_buffer_is_lost(integration_crashes: Crashes) -> None:
    """As it is when a process is killed."""
    with pytest.raises(AssertionError, match="missing"):
        integration_crashes(cursor_before_data)


@pytest.mark.crashes(files={"out.ndjson": "invoices"}, changes=2)
def test_files_are_looked_at(integration_crashes: Crashes) -> None:
    """Also after changes, which are to be read again."""
    integration_crashes(replaces_the_file)


@pytest.mark.crashes(kills=10)
def test_nothing_of_a_killed_life_runs_on(integration_crashes: Crashes) -> None:
    """No ``finally``, no timer, no other task; only lives that end by themselves clean up."""
    begun: list[object] = []
    ended: list[object] = []
    stopped: list[object] = []
    ticks: list[object] = []

    async def tick(life: object) -> None:
        try:
            while True:
                await asyncio.sleep(0.001)
                ticks.append(life)
        finally:
            stopped.append(life)

    async def main() -> None:
        life = object()
        assert set(ticks) <= set(begun[-1:])  # since the last look, only the last life ticked
        ticks.clear()
        begun.append(life)
        ticking = asyncio.create_task(tick(life))
        try:
            await without_a_journal()
            assert not ticking.done()  # it is left running
        finally:
            ended.append(life)

    with pytest.raises(AssertionError, match="doubled"):
        integration_crashes(main)

    assert len(begun) - len(ended) == 10
    assert set(stopped) == set(ended)


@pytest.mark.crashes(kills=20)
def test_a_kill_may_come_between_any_two_steps(integration_crashes: Crashes) -> None:
    """Also where no time passes and nothing is sent."""
    steps: list[int] = []

    async def main() -> None:
        await rows(0)
        steps.append(0)
        for _ in range(1000):
            await asyncio.sleep(0)
            steps[-1] += 1
        await rows(0)

    integration_crashes(main)

    assert any(1 < count < 1000 for count in steps)


@pytest.mark.crashes(kills=10)
def test_an_open_transaction_is_rolled_back(integration_crashes: Crashes) -> None:
    """A database that a killed life had open is locked no longer."""

    async def main() -> None:
        db = sqlite3.connect("own.db", timeout=0)
        db.execute("CREATE TABLE IF NOT EXISTS done (name TEXT)")
        assert db.execute("SELECT count(*) FROM done").fetchone() == (0,)
        db.execute("INSERT INTO done VALUES ('half')")
        await rows(0)
        db.rollback()
        db.close()

    integration_crashes(main)


@pytest.mark.crashes(kills=1, freezes=1)
@pytest.mark.integration_sandbox(companies=1, push_seconds=(7200, 10_800))
def test_hours_pass_at_once(integration_crashes: Crashes) -> None:
    """Polls included; a life may take a day."""
    integration_crashes(with_a_journal)


@pytest.mark.crashes(kills=0, freezes=1)
@pytest.mark.integration_faults("status", 400, route="POST /push/", skip=3, times=1)
def test_faults_may_be_chosen(integration_crashes: Crashes) -> None:
    """They take the place of the usual ones: this ends the program once, after three pushes."""
    with pytest.raises(AssertionError) as failed:
        integration_crashes(without_a_journal)

    found = [line for line in str(failed.value).splitlines() if line.startswith("doubled")]
    assert len(found) == 3


@pytest.mark.crashes(kills=2, freezes=0)
def test_a_program_runs_in_real_time(integration_crashes: Crashes, tmp_path: Path) -> None:
    """A command takes the place of the coroutine."""
    script = tmp_path / "program.py"
    script.write_text(crash_programs.LINKS_RIGHTLY)

    integration_crashes(sys.executable, str(script))


def test_what_cannot_be_tested_is_said(integration_crashes: Crashes) -> None:
    """A program that fails by itself, or asks nothing."""

    async def fails() -> None:
        raise LookupError("no such company")

    async def idle() -> None:
        pass

    with pytest.raises(ValueError, match="LookupError: no such company"):
        integration_crashes(fails)
    with pytest.raises(ValueError, match="without a request to the sandbox"):
        integration_crashes(idle)


@pytest.mark.crashes(kills=3)
def test_the_process_is_left_as_it_was(
    integration_crashes: Crashes, request: pytest.FixtureRequest
) -> None:
    """No file or thread more, and after the test its folder and environment."""
    there = Path.cwd(), dict(os.environ)
    threads, files = threading.active_count(), len(list(Path("/dev/fd").iterdir()))

    integration_crashes(with_a_journal)

    assert threading.active_count() <= threads  # one of an earlier test may have ended
    assert len(list(Path("/dev/fd").iterdir())) <= files
    request.getfixturevalue("monkeypatch").undo()
    assert (Path.cwd(), dict(os.environ)) == there
