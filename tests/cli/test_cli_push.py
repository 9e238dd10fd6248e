"""`push`: what comes out for what goes in, and what a journal makes of a second run."""

from __future__ import annotations

import json
import tracemalloc
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration_sdk._push.table import new_row
from integration_sdk._store.row import Lane
from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import (
    ended,
    invoice,
    on_record,
    posts,
    pushed,
    run,
    started,
    to,
    until,
    written,
)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=5) as running:
        yield running


@pytest.fixture
def books(sandbox: Sandbox) -> Connection:
    return sandbox.companies[0].connections[0]


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
    endless = '{"amount": 1e99999999999999999999}'
    last = json.dumps(invoice(2))
    source.write_text(f'\ufeff{good}\n\nnot json\n[1]\n{{"a": 1}}\n{endless}\n{last}')

    done = await pushed(sandbox, books, source, reference="invoiceNumber")

    assert done.code == 1
    said = {line["line"]: line["status"] for line in done.lines}
    assert said == {1: "SUCCESS", **dict.fromkeys(range(3, 7), "INVALID"), 7: "SUCCESS"}
    assert posts(sandbox) == 2


async def test_records_are_compared_with_the_options_on_request(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """With --check options a record that is not allowed is INVALID, each problem apart."""
    wrong = {name: value for name, value in invoice(1).items() if name != "status"}

    done = await pushed(sandbox, books, written(tmp_path / "r", [wrong]), check="options")

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


# Refusals


async def test_a_wrong_key_is_found_out_before_anything_is_on_record(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """401 ends the command; with the right key the same file is pushed in full."""
    source, journal = written(tmp_path / "r", map(invoice, range(3))), tmp_path / "j.db"

    wrong = await pushed(sandbox, books, source, journal=journal, api_key="wrong")
    done = await pushed(sandbox, books, source, journal=journal)

    assert (wrong.code, wrong.stdout) == (1, "")
    assert done.statuses == ["SUCCESS"] * 3


async def test_an_unreachable_service_is_one_error(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Where nobody listens, the command says so once, not once for every line."""
    source = written(tmp_path / "r", map(invoice, range(3)))

    done = await pushed(sandbox, books, source, base_url="http://127.0.0.1:9")

    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.count("was not sent") == 1


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

    never = await pushed(sandbox, books, source, timeout_minutes=0)
    wrong = Connection("a/../b", books.company_id, books.package, books.created)
    odd = await pushed(sandbox, wrong, source)

    assert (never.code, odd.code, sandbox.requests) == (2, 2, [])
    assert "--timeout-minutes" in never.stderr


async def test_a_journal_in_use_is_refused(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """While one run owns a journal, another is told so and touches nothing."""
    source, journal = written(tmp_path / "r", [invoice(1)]), tmp_path / "j.db"
    arguments = ["push", "-", *to(books), "--journal", str(journal)]
    async with started(*arguments, sandbox=sandbox, stdin=PIPE) as owner:
        await until(journal.exists)
        await until(lambda: sandbox.count("GET", "/options/") == 1)
        refused = await pushed(sandbox, books, source, journal=journal)
        done = await ended(owner, b"")
    assert (refused.code, done.code) == (1, 0)
    assert "in use by another process" in refused.stderr


# What stops a run that nobody watches


async def test_a_run_ends_where_the_service_asks_for_more_than_max_pause(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """With --max-pause a spent quota ends the command, which says when to come back."""
    sandbox.faults.status(429, headers={"Retry-After": "3600"}, route="POST /push/")
    source = written(tmp_path / "r.ndjson", map(invoice, range(5)))

    done = await run("push", str(source), *to(books), "--max-pause", "60", sandbox=sandbox)

    assert done.code == 1
    assert "Stopped: " in done.stderr
    assert "Not before " in done.stderr


async def test_resume_ends_where_the_service_asks_for_more_than_max_pause(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """With --max-pause `pushes resume` tries once what never left, and says when to come back."""
    journal = tmp_path / "j.db"
    lane = Lane(books.company_id, books.id, "invoices")
    await on_record(journal, [new_row(lane, b"{}", id="aa1", reference="INV-1")])
    sandbox.faults.status(429, headers={"Retry-After": "3600"}, route="POST /push/")
    pause = ("--journal", str(journal), "--max-pause", "60")

    done = await run("pushes", "resume", *pause, sandbox=sandbox)

    assert (done.code, len(done.lines), sandbox.count("POST")) == (1, 1, 1)
    assert "Not before " in done.stderr


@pytest.mark.parametrize(
    "content", [b"a,b\n1,2\n", b"[1,\n2]\n", b"\x1f\x8b\x08\n", b"\xff\xfe{\n"]
)
async def test_another_format_than_ndjson_is_named(
    sandbox: Sandbox, books: Connection, tmp_path: Path, content: bytes
) -> None:
    """A file of another format is INVALID line by line, and the summary says what it has to be."""
    source = tmp_path / "records"
    source.write_bytes(content)

    done = await pushed(sandbox, books, source)

    assert (done.code, set(done.statuses)) == (1, {"INVALID"})
    assert "The input must be one JSON object per line (NDJSON)" in done.stderr
    assert "`mlr --icsv --ojsonl cat FILE`" in done.stderr


async def test_a_line_that_is_no_object_is_shown_as_it_stands(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """What a line holds in place of an object is shown as text, whatever its bytes."""
    done = await pushed(sandbox, books, written(tmp_path / "r.ndjson", [[1, 2]]))

    assert done.lines[0]["errors"] == ["line 1 is not a JSON object: [1, 2]"]


async def test_a_file_that_is_one_list_is_refused_without_being_read_as_one(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """A list of everything is an easy mistake, and its values take ten times its bytes."""
    source = written(tmp_path / "r", [[{"amount": 1.5}] * 200_000])

    tracemalloc.start()
    try:
        done = await pushed(sandbox, books, source)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert done.statuses == ["INVALID"]
    assert most < 5 * source.stat().st_size


async def test_an_object_may_have_space_around_it(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Indented lines, and those with a byte order mark or CRLF, hold their record."""
    texts = [json.dumps(invoice(number)) for number in range(3)]
    source = tmp_path / "r"
    source.write_bytes("\ufeff {}\r\n \t{} \r\n{}".format(*texts).encode())

    done = await pushed(sandbox, books, source)

    assert (done.code, done.statuses) == (0, ["SUCCESS"] * 3)
