"""`plan`: what a push would do, told before anything is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration_sdk.cli._plan import Forecast
from integration_sdk.sandbox import Connection, Sandbox
from tests.cli_support import Done, invoice, posts, pushed, run, to, written


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=5) as running:
        yield running


@pytest.fixture
def books(sandbox: Sandbox) -> Connection:
    return sandbox.companies[0].connections[0]


async def plan(sandbox: Sandbox, source: Path, *options: str) -> Done:
    return await run("plan", str(source), *options, sandbox=sandbox)


def facts(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_what_is_refused_is_known_after_one_request(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """By the options or as no record, with line, reference and reasons; exit code 1."""
    wrong = invoice(7) | {"lineItems": "none"}
    source = written(tmp_path / "r", [*map(invoice, range(6)), wrong, invoice(0)])
    with source.open("a") as file:
        print("no record\n", file=file)

    done = await plan(sandbox, source, *to(books), "--reference", "invoiceNumber", "--json")

    assert done.code == 1
    found = facts(done)
    assert (found["records"], found["new"], found["known"]) == (9, 6, {"repeated": 1})
    assert [(one["line"], one["reference"]) for one in found["refused"]] == [
        (7, "INV-7"),
        (9, None),
    ]
    assert "lineItems" in found["refused"][0]["errors"][0]
    assert "no JSON object" in found["refused"][1]["errors"][0]
    assert sandbox.served == found["calls"]["options"] == 1
    assert posts(sandbox) == 0


async def test_push_does_what_was_planned(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """As many POSTs, and afterwards all is on record; the journal is not made by planning."""
    journal, source = tmp_path / "pushes.db", written(tmp_path / "r", map(invoice, range(12)))
    options = (*to(books), "--journal", str(journal), "--json")
    before = await plan(sandbox, source, *options)
    assert not journal.exists()

    await pushed(sandbox, books, source, journal=journal)
    after = await plan(sandbox, source, *options)

    assert (before.code, after.code) == (0, 0)
    assert facts(before)["calls"] == {"options": 1, "pushes": 12, "polls": 5}
    assert posts(sandbox) == facts(before)["calls"]["pushes"]
    assert facts(after)["known"] == {"Success": 12}
    assert facts(after)["calls"] == {"options": 1, "pushes": 0, "polls": 0}


async def test_a_reference_of_another_record_is_refused(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Whether the journal has it or an earlier line."""
    journal, first = tmp_path / "pushes.db", written(tmp_path / "1", [invoice(1)])
    await pushed(sandbox, books, first, journal=journal, reference="invoiceNumber")
    changed = [invoice(number) | {"note": "again"} for number in (1, 2)]
    source = written(tmp_path / "2", [*changed, invoice(2)])

    done = await plan(
        sandbox,
        source,
        *to(books),
        *("--journal", str(journal), "--reference", "invoiceNumber", "--json"),
    )

    found = facts(done)
    assert [one["line"] for one in found["refused"]] == [1, 3]
    assert "used for another record" in found["refused"][0]["errors"][0]
    assert "it is in line 2" in found["refused"][1]["errors"][0]
    assert posts(sandbox) == 1


async def test_a_quota_that_is_too_small_is_told(tmp_path: Path) -> None:
    """If the service names one: what is left of it, and until when."""
    async with Sandbox(companies=1, invoices=5, dialect="published", daily_quota=8) as sandbox:
        source = written(tmp_path / "r", map(invoice, range(12)))
        books = to(sandbox.companies[0].connections[0])

        found = facts(await plan(sandbox, source, *books, "--published", "--json"))
        shown = await plan(sandbox, source, *books, "--published")

    assert (found["quota"]["limit"], found["quota"]["remaining"]) == (8, 7)
    assert found["beyondQuota"] == 12 + 5 - 7
    assert "6 requests left until " in shown.stdout
    assert ": 11 have to wait" in shown.stdout


async def test_a_type_without_options_is_not_checked(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """The table says so, and what is assumed."""
    sandbox.faults.status(404, route="GET", times=1)
    source = written(tmp_path / "r", [{"any": "thing"}])

    done = await plan(sandbox, source, *to(books))

    assert done.code == 0
    assert "not checked" in done.stdout
    assert "the service names none" in done.stdout
    assert "Assumed: 1,000 requests a minute" in done.stdout


async def test_the_table_shows_the_first_that_are_refused(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Ten of them."""
    source = written(tmp_path / "r", [{"invoiceNumber": f"I-{number}"} for number in range(12)])

    done = await plan(sandbox, source, *to(books), "--reference", "invoiceNumber")

    assert done.code == 1
    assert "line 10  I-9 " in done.stdout
    assert "line 11" not in done.stdout
    assert "and 2 more; --json has all" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--scope", "one"], 2, "--scope names a part of --journal: give both"),
        (["--api-key", "wrong"], 1, "401"),
        (["--journal", "README.md"], 1, "is not a journal of this SDK"),
    ],
)
async def test_what_cannot_be_planned_is_one_sentence(
    sandbox: Sandbox, tmp_path: Path, options: list[str], code: int, says: str
) -> None:
    """Of the exit codes that other commands have."""
    books = to(sandbox.companies[0].connections[0])
    done = await plan(sandbox, written(tmp_path / "r", [invoice(1)]), *books, *options)

    assert done.code == code
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_input_that_is_not_there_asks_nothing(sandbox: Sandbox, books: Connection) -> None:
    """Exit code 2."""
    done = await plan(sandbox, Path("nowhere"), *to(books))

    assert done.code == 2
    assert "cannot read nowhere" in done.stderr
    assert sandbox.served == 0


@pytest.mark.parametrize(
    ("new", "seconds"), [(0, 0.0), (100, (100 + 20) * 0.01), (25_000, 1800.0), (25_001, 1800.02)]
)
def test_time_is_full_minutes_at_the_limit_and_a_rest(new: int, seconds: float) -> None:
    """25,000 pushes and 5,000 polls are 30 minutes of 1,000 requests."""
    assert Forecast({}, new=new, latency=0.1).seconds == pytest.approx(seconds)
