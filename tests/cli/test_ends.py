"""How a command ends: Ctrl-C, kill -9, a pipe that nothing reads, an output that is full."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import (
    ended,
    here,
    invoice,
    left_open,
    offline,
    posts,
    run,
    started,
    to,
    written,
)
from tests.support.loops import until

QUITS_AT_ONCE = b"quits at once.\n"


async def test_ctrl_c_drains_and_says_how_to_go_on(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Nothing more is read, all that was sent has an outcome, a second run ends the file."""
    sandbox.faults.latency(0.05)
    source, journal = written(tmp_path / "r", map(invoice, range(100))), tmp_path / "j.db"
    arguments = ["push", str(source), *to(books), "--journal", str(journal)]
    async with started(*arguments, sandbox=sandbox) as process:
        await until(lambda: posts(sandbox) >= 5)
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    sent = posts(sandbox)

    again = await here(*arguments, sandbox=sandbox)

    assert done.code == 130
    assert len(done.lines) == sent < 100
    assert set(done.statuses) == {"SUCCESS"}
    assert "run the same command again" in done.stderr
    assert (again.code, len(again.lines), posts(sandbox)) == (0, 100, 100)


async def test_resume_drains_at_ctrl_c_as_push_does(sandbox: Sandbox, tmp_path: Path) -> None:
    """The first one lets it wait on for what is open; the second one quits, and loses nothing."""
    away, journal = offline(sandbox), tmp_path / "j.db"
    await left_open(sandbox, away, journal, invoice(1))
    for comes_back in (False, True):
        sandbox.requests.clear()
        arguments = ("pushes", "resume", "--journal", str(journal))
        async with started(*arguments, sandbox=sandbox) as process:
            await until(lambda: sandbox.count("GET", "/push") > 0)
            assert process.stderr is not None
            process.send_signal(signal.SIGINT)
            await process.stderr.readuntil(QUITS_AT_ONCE)
            if comes_back:
                sandbox.bring_online(away)
            else:
                process.send_signal(signal.SIGINT)
            done = await ended(process)
        assert (done.code, done.statuses) == (130, ["SUCCESS"] * comes_back)


async def test_a_pipe_that_is_written_after_ctrl_c_is_no_error(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """What still comes is not read; what was sent is waited for."""
    away, pipe = offline(sandbox), tmp_path / "records"
    os.mkfifo(pipe)
    command = ("push", "-", *to(away))
    with pipe.open("r+b", 0) as writer:
        async with started(*command, sandbox=sandbox, redirect=f"<{pipe}") as process:
            writer.write(json.dumps(invoice(1)).encode() + b"\n")
            await until(lambda: posts(sandbox) == 1)
            assert process.stderr is not None
            process.send_signal(signal.SIGINT)
            await process.stderr.readuntil(QUITS_AT_ONCE)
            writer.write(json.dumps(invoice(2)).encode() + b"\n")
            sandbox.bring_online(away)
            done = await ended(process)

    assert (done.code, done.statuses, posts(sandbox)) == (130, ["SUCCESS"], 1)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("end", ["\n", ""])
async def test_a_pipe_is_read_no_faster_than_it_is_pushed(
    sandbox: Sandbox, tmp_path: Path, end: str
) -> None:
    """`zcat` of a large file does not fill the memory, nor does a line without an end."""
    away, pipe, taken = offline(sandbox), tmp_path / "records", 0
    until_then = time.monotonic() + (5 if end else 30)
    text = (json.dumps(invoice(1) | {"note": "x" * 100_000}) + end).encode()
    os.mkfifo(pipe)
    command = ("push", "-", *to(away), "--max-open", "1")
    with pipe.open("r+b", 0) as writer:
        os.set_blocking(writer.fileno(), False)
        async with started(*command, sandbox=sandbox, redirect=f"<{pipe}") as process:
            while process.returncode is None and time.monotonic() < until_then:
                taken += writer.write(text[taken % len(text) :]) or 0
                await asyncio.sleep(0)
            done = None if end else await ended(process)

    assert taken < 100 << 20
    assert done is None or (done.code, "in a line" in done.stderr) == (2, True)


async def test_sigterm_ends_a_pull_and_the_next_goes_on(tmp_path: Path) -> None:
    """What was written stays, and is not written again."""
    async with Sandbox(companies=1, invoices=3000) as slow:
        slow.faults.latency(0.2)
        command = ("pull", "invoices", "--to", str(tmp_path / "out"))
        async with started(*command, sandbox=slow) as process:
            await until(lambda: slow.count("GET", "/data/invoices") >= 1)
            process.send_signal(signal.SIGTERM)
            done = await ended(process)
        slow.faults.clear()
        again = await here(*command, sandbox=slow)

    files = (tmp_path / "out" / "invoices").rglob("*.ndjson")
    ids = [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]
    assert done.code == 130
    assert done.stderr.endswith("interrupted. Run the same command again to continue.\n")
    assert (again.code, len(ids), len(set(ids))) == (0, 3000, 3000)


FULL = "standard output cannot be written: No space left on device\n"
OUTPUTS = [
    ("push", ">/dev/full", 1, f"Stopped: {FULL}"),
    ("companies", ">/dev/full", 1, FULL),
    ("--help", ">/dev/full", 1, "No space left on device\n"),
    ("companies", "| sleep 0 2>&1", 0, ""),
    ("companies", ">&-", 2, "standard output is closed, and results are written to it\n"),
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here is always full")
@pytest.mark.parametrize("output", OUTPUTS)
async def test_what_cannot_be_written_is_one_line(
    sandbox: Sandbox, books: Connection, tmp_path: Path, output: tuple[str, str, int, str]
) -> None:
    """Or none, once the reader has seen enough. Without stdout nothing is begun."""
    command, redirect, code, says = output
    source = written(tmp_path / "r", [invoice(1)])
    more = (str(source), *to(books)) if command == "push" else ()

    done = await run(command, *more, sandbox=sandbox, redirect=redirect)

    assert (done.code, "Traceback" in done.stderr) == (code, False)
    assert done.stderr.endswith(says) if says else not done.stderr
    assert code != 2 or sandbox.requests == []
