"""`push`: what comes out for what goes in, and what a journal makes of a second run."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from integration_sdk._coordinator.coordinator import CoordinatorOptions
from integration_sdk.cli._outcomes import Results
from integration_sdk.cli._pushing import PushJob, push, resume
from integration_sdk.cli._records import Plan
from integration_sdk.cli._service import Service
from integration_sdk.errors import ConfigurationError, JournalError, NotSent, Unauthorized
from integration_sdk.sandbox import Connection, Sandbox
from tests.cli_support import Done, ended, invoice, run, started, to, until, written


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=5) as running:
        yield running


@pytest.fixture
def books(sandbox: Sandbox) -> Connection:
    return sandbox.companies[0].connections[0]


def offline(sandbox: Sandbox) -> Connection:
    return next(one for one in sandbox.companies[0].connections if not one.online)


def posts(sandbox: Sandbox) -> int:
    return sandbox.count("POST", "/push/")


def service(sandbox: Sandbox, **changes: str) -> Service:
    facts: dict[str, Any] = {"base_url": sandbox.base_url, "api_key": sandbox.api_key} | changes
    return Service(**facts)


async def pushed(
    sandbox: Sandbox,
    connection: Connection,
    source: Path,
    *,
    journal: Path | None = None,
    checked: bool = False,
    patience: float = 0.2,
    key: str | None = None,
    url: str | None = None,
    **plan: Any,
) -> Done:
    """Push without a process of its own."""
    out, err = io.BytesIO(), io.StringIO()
    job = PushJob(
        source=str(source),
        plan=Plan(connection.company_id, connection.id, "invoices", **plan),
        journal=None if journal is None else str(journal),
        checked=checked,
        options={"patience": patience},
    )
    where = service(sandbox, api_key=key or sandbox.api_key, base_url=url or sandbox.base_url)
    code = await push(where, job, Results(out), Console(file=err, width=200))
    return Done(code, out.getvalue().decode(), err.getvalue())


async def resumed(sandbox: Sandbox, journal: Path) -> Done:
    out, err = io.BytesIO(), io.StringIO()
    options: CoordinatorOptions = {"patience": 0.2}
    code = await resume(
        service(sandbox),
        str(journal),
        Results(out),
        Console(file=err),
        options,
    )
    return Done(code, out.getvalue().decode(), err.getvalue())


# What comes out


async def test_every_line_has_one_outcome(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Each record comes out once, with its line, reference, status and key; exit code 0."""
    source = written(tmp_path / "r.ndjson", map(invoice, range(20)))

    done = await run(
        "push", str(source), *to(books), "--reference", "invoiceNumber", sandbox=sandbox
    )

    assert done.code == 0
    assert {line["line"]: line["reference"] for line in done.lines} == {
        number + 1: f"INV-{number}" for number in range(20)
    }
    assert {line["key"] for line in done.lines} == {one.key for one in sandbox.pushes}
    assert "20 SUCCESS in" in done.stderr


async def test_failures_say_why_and_exit_with_1(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A push that the platform refuses comes out FAILED with its reasons."""
    sandbox.faults.fail_next_push("the period is closed")

    done = await pushed(sandbox, books, written(tmp_path / "r", map(invoice, range(3))))

    assert done.code == 1
    (failed,) = (line for line in done.lines if line["status"] == "FAILED")
    assert any("the period is closed" in reason for reason in failed["errors"])


async def test_a_line_without_a_record_is_invalid_and_stops_nothing(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Bad lines are named by number, are not sent, and the others are."""
    source = tmp_path / "r.ndjson"
    good = json.dumps(invoice(1))
    source.write_text(f'\ufeff{good}\n\nnot json\n[1]\n{{"a": 1}}\n{json.dumps(invoice(2))}')

    done = await pushed(sandbox, books, source, reference="invoiceNumber")

    assert done.code == 1
    said = {line["line"]: line["status"] for line in done.lines}
    assert said == {1: "SUCCESS", 3: "INVALID", 4: "INVALID", 5: "INVALID", 6: "SUCCESS"}
    assert posts(sandbox) == 2


async def test_records_are_compared_with_the_options_on_request(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """With --check options a record that is not allowed is INVALID, each problem apart."""
    wrong = {name: value for name, value in invoice(1).items() if name != "status"}

    done = await pushed(sandbox, books, written(tmp_path / "r", [wrong]), checked=True)

    assert done.statuses == ["INVALID"]
    assert "status" in done.lines[0]["errors"][0]
    assert posts(sandbox) == 0


async def test_money_is_sent_as_it_was_written(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A fraction that no float holds reaches the service digit by digit."""
    source = tmp_path / "r.ndjson"
    source.write_text(json.dumps(invoice(1)).replace("120.5", "12345678901234567.10"))

    await pushed(sandbox, books, source)

    (body,) = (seen.body for seen in sandbox.requests if seen.method == "POST")
    assert b"12345678901234567.10" in body


async def test_updates_go_to_the_record_that_is_named(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """With --update-id a line is a PUT to the id that it holds."""
    created = await pushed(sandbox, books, written(tmp_path / "a", [invoice(1)]))
    assert created.code == 0
    record_id = sandbox.pushes[0].record_id
    source = written(tmp_path / "b", [invoice(1) | {"id": record_id}])

    done = await pushed(sandbox, books, source, update_id="id")

    assert done.code == 0
    assert sandbox.count("PUT", f"/push/invoices/{record_id}") == 1


# A second run


async def test_a_second_run_sends_nothing_again(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """The same file again makes 0 POSTs and gives the recorded outcomes."""
    sandbox.faults.fail_next_push("no")
    source, journal = written(tmp_path / "r", map(invoice, range(10))), tmp_path / "j.db"
    first = await pushed(sandbox, books, source, journal=journal)
    sent = posts(sandbox)

    again = await pushed(sandbox, books, source, journal=journal)

    assert posts(sandbox) == sent == 10
    assert (again.code, again.statuses) == (first.code, first.statuses)
    assert "10 of them had been sent in an earlier run" in again.stderr


async def test_records_are_known_by_content_wherever_they_stand(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Lines may move between places and files; only what is new or corrected is sent."""
    journal = tmp_path / "j.db"
    one, two = invoice(1), invoice(2)
    await pushed(sandbox, books, written(tmp_path / "a", [one, two]), journal=journal)
    changed = written(tmp_path / "b", [invoice(3), one, two | {"dueDate": "2025-01-01"}])

    done = await pushed(sandbox, books, changed, journal=journal)

    assert done.statuses == ["SUCCESS"] * 3
    assert posts(sandbox) == 4


async def test_equal_records_are_pushed_as_often_as_they_are_there(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Two equal lines are two records, today and when the file is run again."""
    source, journal = written(tmp_path / "r", [invoice(1), invoice(1)]), tmp_path / "j.db"

    await pushed(sandbox, books, source, journal=journal)
    again = await pushed(sandbox, books, source, journal=journal)

    assert posts(sandbox) == 2
    assert len({line["reference"] for line in again.lines}) == 2


async def test_a_reference_of_another_record_is_refused(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A changed record under a name that was pushed is INVALID, never pushed under it."""
    journal = tmp_path / "j.db"
    named: dict[str, Any] = {"journal": journal, "reference": "invoiceNumber"}
    await pushed(sandbox, books, written(tmp_path / "a", [invoice(1)]), **named)

    changed = written(tmp_path / "b", [invoice(1) | {"dueDate": "2025-01-01"}])
    done = await pushed(sandbox, books, changed, **named)

    assert done.statuses == ["INVALID"]
    assert posts(sandbox) == 1


# Doubt


async def test_a_push_in_doubt_exits_with_3_until_it_is_resolved(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """What may have been pushed is not sent again by any run, until a person says so."""
    source, journal = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "j.db"
    sandbox.faults.status(502, "a proxy's page", times=1, route="POST /push/")

    first = await pushed(sandbox, books, source, journal=journal)
    again = await pushed(sandbox, books, source, journal=journal)
    later = await resumed(sandbox, journal)

    assert first.code == again.code == later.code == 3
    assert first.statuses == ["IN_DOUBT", "SUCCESS", "SUCCESS"] == again.statuses
    assert later.statuses == ["IN_DOUBT"]
    assert posts(sandbox) == 3
    assert "pushes resolve INTENT" in first.stderr


async def test_what_turns_up_late_is_found_by_resume(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A push that the list showed too late goes on by itself when it is there."""
    source, journal = written(tmp_path / "r", [invoice(1)]), tmp_path / "j.db"
    sandbox.faults.lose_answer(times=1, route="POST /push/")
    lag = sandbox.faults.no_push_list(skip=1)
    first = await pushed(sandbox, books, source, journal=journal)
    sandbox.faults.remove(lag)

    later = await resumed(sandbox, journal)

    assert (first.code, later.code) == (3, 0)
    assert later.lines[0]["key"] == sandbox.pushes[0].key
    assert posts(sandbox) == 1


@pytest.mark.parametrize("command", ["push", "resume"])
async def test_a_decision_to_resend_is_carried_out_once(
    sandbox: Sandbox, books: Connection, tmp_path: Path, command: str
) -> None:
    """After `resolve --resend` either command sends the record, and only once."""
    source, journal = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "j.db"
    sandbox.faults.status(502, "a proxy's page", times=1, route="POST /push/")
    doubt = await pushed(sandbox, books, source, journal=journal)
    intent = next(line["intent"] for line in doubt.lines if "intent" in line)
    decided = await run("pushes", "resolve", intent[:8], "--journal", str(journal), "--resend")

    if command == "push":
        done = await pushed(sandbox, books, source, journal=journal)
    else:
        done = await resumed(sandbox, journal)
    after = await pushed(sandbox, books, source, journal=journal)

    assert (decided.code, done.code, after.code) == (0, 0, 0)
    assert posts(sandbox) == 4
    assert len(sandbox.pushes) == 3


# Refusals


async def test_a_wrong_key_is_found_out_before_anything_is_on_record(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """401 ends the command; with the right key the same file is pushed in full."""
    source, journal = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "j.db"

    with pytest.raises(Unauthorized):
        await pushed(sandbox, books, source, journal=journal, key="wrong")
    done = await pushed(sandbox, books, source, journal=journal)

    assert done.statuses == ["SUCCESS"] * 3


async def test_an_unreachable_service_is_one_error(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Where nobody listens, the command says so once, not once for every line."""
    source = written(tmp_path / "r", map(invoice, range(3)))

    with pytest.raises(NotSent):
        await pushed(sandbox, books, source, url="http://127.0.0.1:9")


async def test_a_refusal_that_is_not_about_the_record_stops_the_reading(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A connection that does not exist is not tried for the rest of a long file."""
    source = written(tmp_path / "r", map(invoice, range(5000)))
    wrong = Connection("nowhere", books.company_id, books.package, books.created)

    done = await pushed(sandbox, wrong, source)

    assert done.code == 1
    assert posts(sandbox) < 200
    assert "Stopped: POST" in done.stderr


async def test_what_cannot_be_right_is_said_before_anything_is_sent(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A deadline of 0 minutes or an odd id is wrong usage, not an outcome a line."""
    source = written(tmp_path / "r", [invoice(1)])

    with pytest.raises(ConfigurationError, match="timeout_minutes"):
        await pushed(sandbox, books, source, timeout_minutes=0)

    assert sandbox.requests == []


async def test_a_journal_in_use_is_refused(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """While one run owns a journal, another is told so and touches nothing."""
    source, journal = written(tmp_path / "r", [invoice(1)]), tmp_path / "j.db"
    arguments = ["push", "-", *to(books), "--journal", str(journal)]
    async with started(*arguments, sandbox=sandbox, stdin=PIPE) as owner:
        await until(journal.exists)
        await until(lambda: sandbox.count("GET", "/options/") == 1)
        with pytest.raises(JournalError, match="in use by another process"):
            await pushed(sandbox, books, source, journal=journal)
        done = await ended(owner, b"")
    assert done.code == 0


# Ends of the process


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
        first = await process.stderr.readuntil(b"leaves at once.\n")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    sandbox.bring_online(away)

    again = await resumed(sandbox, journal)

    assert done.code == 130
    assert "Left at once" in done.stderr, first
    assert again.statuses == ["SUCCESS"] * 3
    assert posts(sandbox) == 3


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
