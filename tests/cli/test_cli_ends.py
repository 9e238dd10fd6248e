"""How a run ends: Ctrl-C, kill -9, nobody who reads, an output that cannot be written."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import (
    Done,
    ended,
    invoice,
    left_open,
    offline,
    posts,
    pushed,
    resumed,
    run,
    started,
    to,
    until,
    written,
)

full_device = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="this system has no device that is always full"
)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=5) as running:
        yield running


@pytest.fixture
def books(sandbox: Sandbox) -> Connection:
    return sandbox.companies[0].connections[0]


async def test_ctrl_c_drains_and_says_how_to_go_on(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """After SIGINT nothing more is read, all that was sent has an outcome, a second run ends it."""
    sandbox.faults.latency(0.05)
    source, journal = written(tmp_path / "r", map(invoice, range(300))), tmp_path / "j.db"
    arguments = ["push", str(source), *to(books), "--journal", str(journal)]
    async with started(*arguments, sandbox=sandbox) as process:
        await until(lambda: posts(sandbox) >= 20)
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    sent = posts(sandbox)

    again = await run(*arguments, sandbox=sandbox)

    assert done.code == 130
    assert len(done.lines) == sent < 300
    assert set(done.statuses) == {"SUCCESS"}
    assert "Run the same command again" in done.stderr
    assert (again.code, len(again.lines), posts(sandbox)) == (0, 300, 300)


async def test_a_second_ctrl_c_leaves_at_once(sandbox: Sandbox, tmp_path: Path) -> None:
    """A platform that never answers holds nobody who presses twice; the next run goes on."""
    away = offline(sandbox)
    source, journal = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "j.db"
    arguments = ["push", str(source), *to(away), "--journal", str(journal)]
    async with started(*arguments, sandbox=sandbox) as process:
        await until(lambda: posts(sandbox) == 3)
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        first = await process.stderr.readuntil(b"quits at once.\n")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    sandbox.bring_online(away)

    again = await resumed(sandbox, journal)

    assert done.code == 130
    assert "Quit at once" in done.stderr, first
    assert again.statuses == ["SUCCESS"] * 3
    assert posts(sandbox) == 3


async def test_a_second_ctrl_c_leaves_a_run_that_is_held_up(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Whoever reads the outcomes has stopped, as a pager does: the loop waits for a full pipe."""
    source, journal = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "j.db"
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b" " * 4096):
            pass
    os.set_blocking(writing, True)
    arguments = ["push", str(source), *to(books), "--journal", str(journal)]
    async with started(*arguments, sandbox=sandbox, stdout=writing) as process:
        os.close(writing)
        await until(lambda: posts(sandbox) == 3)
        async with asyncio.timeout(60):
            while process.returncode is None:  # one may come before the loop is held up
                await asyncio.sleep(0.5)
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGINT)
        done = await ended(process)
    os.close(reading)

    again = await resumed(sandbox, journal)

    assert done.code == 130
    assert "Quit at once" in done.stderr
    assert len(sandbox.pushes) == posts(sandbox) == 3
    assert set(again.statuses) <= {"SUCCESS"}


async def test_a_killed_run_is_finished_by_the_next(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """kill -9 while pushes are being sent: the same command again doubles and loses none."""
    sandbox.faults.latency(0.05)
    source, journal = written(tmp_path / "r", map(invoice, range(60))), tmp_path / "j.db"
    arguments = ["push", str(source), *to(books), "--journal", str(journal)]
    async with started(*arguments, sandbox=sandbox) as process:
        await until(lambda: posts(sandbox) >= 15)
        process.kill()
        await ended(process)

    again = await pushed(
        sandbox, books, source, journal=journal, natural_key="invoiceNumber", patience=2.0
    )

    assert len(again.lines) == 60
    assert len(sandbox.pushes) + again.statuses.count("IN_DOUBT") >= 60
    numbers = [json.loads(seen.body)["invoiceNumber"] for seen in sandbox.requests if seen.body]
    assert len(numbers) == len(set(numbers))


async def test_a_pipe_is_pushed_as_it_comes(sandbox: Sandbox, books: Connection) -> None:
    """A line on standard input is pushed before the next one is there; SIGINT ends the wait."""
    async with started("push", "-", *to(books), sandbox=sandbox, stdin=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(invoice(1)).encode() + b"\n")
        first = json.loads(await process.stdout.readline())
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            assert await process.wait() == 130
    assert first["status"] == "SUCCESS"


async def test_when_nobody_reads_the_outcomes_it_stops_reading(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A closed pipe behind it ends the run in order, without a traceback."""
    sandbox.faults.latency(0.02)
    source = written(tmp_path / "r", map(invoice, range(2000)))
    arguments = ["push", str(source), *to(books), "--max-open", "50"]
    reading, writing = os.pipe()
    async with started(*arguments, sandbox=sandbox, stdout=writing) as process:
        os.close(writing)
        await asyncio.to_thread(os.read, reading, 1)
        os.close(reading)
        done = await ended(process)
    assert done.code == 130
    assert "Traceback" not in done.stderr
    assert posts(sandbox) < 2000


@pytest.mark.parametrize("records", [1, 5])
async def test_what_is_done_was_not_interrupted_though_nobody_read_it(
    sandbox: Sandbox, books: Connection, tmp_path: Path, records: int
) -> None:
    """As with ``| head -1``: with nothing left to do there is no command to run again."""
    sandbox.faults.push_seconds(0.5)
    source = written(tmp_path / "r", map(invoice, range(records)))
    reading, writing = os.pipe()
    async with started("push", str(source), *to(books), sandbox=sandbox, stdout=writing) as process:
        os.close(writing)
        os.close(reading)
        done = await ended(process)

    assert done.code == 0
    assert f"{records} SUCCESS" in done.stderr
    assert "Interrupted" not in done.stderr
    assert "Nobody reads the outcomes any more: waiting for open pushes." in done.stderr
    assert posts(sandbox) == records


async def test_resume_drains_at_ctrl_c_as_push_does(sandbox: Sandbox, tmp_path: Path) -> None:
    """A first SIGINT lets `pushes resume` wait on for what is open."""
    away, journal = offline(sandbox), tmp_path / "j.db"
    await left_open(sandbox, away, journal, invoice(1))
    seen = sandbox.served
    async with started("pushes", "resume", "--journal", str(journal), sandbox=sandbox) as process:
        await until(lambda: sandbox.served > seen)
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        await process.stderr.readuntil(b"quits at once.\n")
        sandbox.bring_online(away)
        done = await ended(process)
    assert (done.code, done.statuses) == (130, ["SUCCESS"])


async def interrupted(sandbox: Sandbox, running: Coroutine[Any, Any, Done]) -> Done:
    """Press Ctrl-C once the service has refused something anew."""
    refused = sandbox.count(status=429)
    task = asyncio.create_task(running)
    await until(lambda: sandbox.count(status=429) > refused)
    signal.raise_signal(signal.SIGINT)
    return await task


@pytest.mark.virtual_time
async def test_ctrl_c_does_not_wait_for_a_spent_quota(tmp_path: Path) -> None:
    """Where nothing is let through for hours, all that was begun has one outcome soon."""
    source, journal = written(tmp_path / "r", map(invoice, range(60))), tmp_path / "j.db"
    async with Sandbox(companies=1, invoices=5, daily_quota=30) as sandbox:
        books = sandbox.companies[0].connections[0]
        push = partial(pushed, sandbox, books, source, journal=journal)
        done = await interrupted(sandbox, push())
        later = await interrupted(sandbox, resumed(sandbox, journal))
        sent = len(sandbox.pushes)
    assert done.code == later.code == 130
    assert done.statuses.count("PENDING") == sent
    assert len({line["line"] for line in done.lines}) == len(done.lines)
    assert later.statuses == ["PENDING"] * sent
    assert re.search(r"Stopped: .*held back by the service until \d{4}-.* UTC", done.stderr)
    assert "Run the same command again" in done.stderr


@pytest.mark.virtual_time
async def test_a_line_that_joined_is_told_once_at_ctrl_c(sandbox: Sandbox, tmp_path: Path) -> None:
    """What an earlier run left is told with its line, even where it cannot be waited for."""
    away, journal = offline(sandbox), tmp_path / "j.db"
    await left_open(sandbox, away, journal, invoice(1))
    sandbox.faults.status(429, headers={"Retry-After": "3600"}, route="POST /push/")
    source = written(tmp_path / "r", map(invoice, (1, 2)))

    running = pushed(sandbox, away, source, journal=journal, reference="invoiceNumber")
    done = await interrupted(sandbox, running)

    assert sorted((line["line"], line["status"]) for line in done.lines) == [
        (1, "PENDING"),
        (2, "REJECTED"),
    ]


# Outputs that cannot be written


@full_device
async def test_outcomes_that_cannot_be_written_stop_the_reading(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A full disk under stdout is said in a line, and no further record is pushed."""
    source = written(tmp_path / "r", map(invoice, range(2000)))

    done = await run(
        "push", str(source), *to(books), "--max-open", "50", sandbox=sandbox, redirect=">/dev/full"
    )

    assert done.code == 1
    assert "Stopped: the outcomes cannot be written: No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert posts(sandbox) < 2000


async def test_without_stdout_nothing_is_pushed(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A closed stdout is wrong usage, in one line."""
    source = written(tmp_path / "r", [invoice(1)])

    done = await run("push", str(source), *to(books), sandbox=sandbox, redirect=">&-")

    assert (done.code, sandbox.requests) == (2, [])
    assert done.stderr.count("\n") == 1
    assert "standard output is closed" in done.stderr


async def test_without_stdout_a_journal_is_neither_listed_nor_decided_about(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A closed stdout is wrong usage, in one line, of every command whose results go there."""
    journal = tmp_path / "j.db"
    await pushed(sandbox, books, written(tmp_path / "r", [invoice(1)]), journal=journal)
    before = journal.read_bytes()

    listed = await run("pushes", "list", str(journal), redirect=">&-")
    decided = await run(
        *("pushes", "resolve", "0", "--journal", str(journal), "--abandon"), redirect=">&-"
    )
    shown = await run("demo", "--invoices", "1", "--pushes", "1", redirect=">&-")

    for done in (listed, decided, shown):
        assert done.code == 2
        assert done.stderr == (
            "integration-sdk: standard output is closed, and results are written to it\n"
        )
    assert journal.read_bytes() == before


async def test_without_stdin_there_is_nothing_to_push(sandbox: Sandbox, books: Connection) -> None:
    """A closed stdin is wrong usage, in one line."""
    done = await run("push", "-", *to(books), sandbox=sandbox, redirect="<&-")

    assert (done.code, sandbox.requests) == (2, [])
    assert done.stderr == "integration-sdk: cannot read standard input: it is closed\n"


@full_device
@pytest.mark.parametrize("option", ["--help", "--version"])
async def test_help_that_cannot_be_written_is_one_line(option: str) -> None:
    """A full disk under stdout is no reason for a traceback, whatever was to be written."""
    done = await run(option, redirect=">/dev/full")

    assert (done.code, done.stderr) == (1, "integration-sdk: No space left on device\n")


@full_device
async def test_a_list_that_cannot_be_written_is_one_line(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """What a journal holds, on a full disk, is an error in a line and nothing else."""
    journal = tmp_path / "j.db"
    await pushed(sandbox, books, written(tmp_path / "r", [invoice(1)]), journal=journal)

    done = await run("pushes", "list", "--journal", str(journal), redirect=">/dev/full")

    assert done.code == 1
    assert done.stderr == (
        "integration-sdk: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize(
    "redirect", [pytest.param("2>/dev/full", marks=full_device), "2>&-"], ids=["full", "closed"]
)
async def test_progress_that_cannot_be_shown_changes_nothing(
    sandbox: Sandbox, books: Connection, tmp_path: Path, redirect: str
) -> None:
    """With a full or closed stderr all outcomes are written, and the exit code is theirs."""
    source = written(tmp_path / "r", map(invoice, range(3)))

    done = await run("push", str(source), *to(books), sandbox=sandbox, redirect=redirect)

    assert (done.code, done.statuses) == (0, ["SUCCESS"] * 3)


async def test_progress_that_nobody_reads_changes_nothing(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A closed pipe behind stderr alone leaves the outcomes where they belong."""
    source, out = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "out"
    reading, writing = os.pipe()
    os.close(reading)
    command = started(
        "push", str(source), *to(books), sandbox=sandbox, stdout=writing, redirect=f"2>&1 >'{out}'"
    )
    async with command as process:
        os.close(writing)
        done = await ended(process)
    assert done.code == 0
    assert out.read_text().count("SUCCESS") == 3


async def test_a_key_that_is_revoked_ends_the_run(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """It says so once; the lines that were not sent wait for the next run."""
    rule = sandbox.faults.status(401, route="POST /push/", skip=10)
    source, journal = written(tmp_path / "r", map(invoice, range(400))), tmp_path / "j.db"

    done = await pushed(sandbox, books, source, journal=journal)
    sandbox.faults.remove(rule)
    again = await pushed(sandbox, books, source, journal=journal)

    assert done.statuses.count("SUCCESS") == 10
    assert posts(sandbox) < 400 + len(done.lines)
    assert len(done.lines) < 300
    assert done.code != 0
    assert again.code == 0
    assert again.statuses == ["SUCCESS"] * 400
