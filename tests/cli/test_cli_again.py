"""`push` again: what a journal makes of a second run, and of what is in doubt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import (
    here,
    invoice,
    left_open,
    offline,
    posts,
    pushed,
    resumed,
    run,
    written,
)
from tests.support.postgres import Server


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=5) as running:
        yield running


@pytest.fixture
def books(sandbox: Sandbox) -> Connection:
    return sandbox.companies[0].connections[0]


def backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: backwards(value[name]) for name in reversed(value)}
    return [backwards(one) for one in value] if isinstance(value, list) else value


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
    assert "10 of them were sent by an earlier run" in again.stderr


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


async def test_the_order_of_members_makes_no_other_record(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Where the content is the name, members may change places at any depth."""
    journal = tmp_path / "j.db"
    await pushed(sandbox, books, written(tmp_path / "a", [invoice(1)]), journal=journal)
    moved = written(tmp_path / "b", [backwards(invoice(1))])

    done = await pushed(sandbox, books, moved, journal=journal)

    assert (done.code, done.statuses, posts(sandbox)) == (0, ["SUCCESS"], 1)


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


async def test_a_journal_can_be_in_a_schema_of_its_own(
    sandbox: Sandbox, books: Connection, tmp_path: Path, postgres: Server
) -> None:
    """With --schema each command uses the tables that `store migrate` made there."""
    url, source = await postgres.new_database(), written(tmp_path / "r", [invoice(1)])

    made = await here("store", "migrate", url, "--schema", "books")
    done = await pushed(sandbox, books, source, journal=url, schema="books")
    listed = await here("pushes", "list", url, "--schema", "books")
    usual = await here("pushes", "list", url)

    assert (made.code, done.statuses) == (0, ["SUCCESS"])
    assert "1 pushes in" in listed.stdout
    assert "holds no pushes" in usual.stdout


# What an earlier run left


async def test_what_goes_on_already_is_told_once_with_its_line(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """A line whose push is Pending waits for that push, of which the journal keeps no record."""
    away, journal = offline(sandbox), tmp_path / "j.db"
    await left_open(sandbox, away, journal, invoice(1))
    sandbox.bring_online(away)
    source = written(tmp_path / "r", [invoice(1)])

    done = await pushed(sandbox, away, source, journal=journal, reference="invoiceNumber")

    assert [(line["line"], line["status"]) for line in done.lines] == [(1, "SUCCESS")]
    assert posts(sandbox) == 1
    assert "1 of them were sent by an earlier run" in done.stderr


@pytest.mark.parametrize("other", ["connection", "update"])
async def test_a_push_to_elsewhere_does_not_answer_for_a_line(
    sandbox: Sandbox, books: Connection, tmp_path: Path, other: str
) -> None:
    """A name that is Pending for one connection is refused for another, and for an update."""
    away, journal = offline(sandbox), tmp_path / "j.db"
    await left_open(sandbox, away, journal, invoice(1))
    sandbox.bring_online(away)
    source = written(tmp_path / "r", [invoice(1)])
    plan: dict[str, Any] = {"journal": journal, "reference": "invoiceNumber"}

    if other == "connection":
        done = await pushed(sandbox, books, source, **plan)
    else:
        done = await pushed(sandbox, away, source, update_id="invoiceNumber", **plan)

    refused, earlier = sorted(done.lines, key=lambda line: line["status"])
    assert (refused["line"], refused["status"]) == (1, "INVALID")
    assert "'INV-1' was already used for a different record" in refused["errors"][0]
    assert (earlier["status"], earlier["key"]) == ("SUCCESS", sandbox.pushes[0].key)
    assert "line" not in earlier
    assert (done.code, posts(sandbox), sandbox.count("PUT")) == (1, 1, 0)


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
    intent = next(line["intent"] for line in first.lines if "intent" in line)
    assert f"decide about intent {intent}" in first.stderr
    assert "pushes resolve INTENT" in first.stderr


async def test_doubt_without_a_journal_says_what_is_left_to_do(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """No command is named that needs a journal where there is none."""
    sandbox.faults.status(502, "a proxy's page", times=1, route="POST /push/")

    done = await pushed(sandbox, books, written(tmp_path / "r", [invoice(1)]))

    assert (done.code, done.statuses) == (3, ["IN_DOUBT"])
    assert "Without --journal: look at the service" in done.stderr
    assert "decide(" not in done.stderr + done.stdout
    assert "resolve" not in done.stderr


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
    assert ("2 of them were sent by an earlier run" in done.stderr) == (command == "push")
    assert posts(sandbox) == 4
    assert len(sandbox.pushes) == 3
