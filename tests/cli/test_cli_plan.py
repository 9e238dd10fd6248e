"""`plan`: what a push would do, told before anything is sent."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from integration_sdk.cli._plan import Forecast
from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import Done, here, invoice, posts, pushed, run, to, written


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=5) as running:
        yield running


@pytest.fixture
def books(sandbox: Sandbox) -> Connection:
    return sandbox.companies[0].connections[0]


@define
class Planning:
    """`plan` without a process of its own."""

    sandbox: Sandbox

    async def __call__(self, source: Path, **options: object) -> Done:
        given = [
            (f"--{name}", *([] if value is True else [value])) for name, value in options.items()
        ]
        words = itertools.chain.from_iterable(given)
        published = ["--published"] * (self.sandbox.dialect == "published")
        books = self.sandbox.companies[0].connections[0]
        return await here("plan", source, *to(books), *words, *published, sandbox=self.sandbox)

    async def facts(self, source: Path, **options: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self(source, json=True, **options)).stdout)
        return found


@pytest.fixture
def planning(sandbox: Sandbox) -> Planning:
    return Planning(sandbox)


async def test_what_is_refused_is_known_after_one_request(
    planning: Planning, tmp_path: Path
) -> None:
    """By the options or as no record, with line, reference and reasons; exit code 1."""
    sandbox = planning.sandbox
    wrong = invoice(7) | {"lineItems": "none"}
    source = written(tmp_path / "r", [*map(invoice, range(6)), wrong, invoice(0)])
    with source.open("a") as file:
        print("no record\n", file=file)

    done = await planning(source, reference="invoiceNumber", json=True)

    found = json.loads(done.stdout)
    assert done.code == 1
    assert (found["records"], found["new"], found["known"]) == (9, 6, {"repeated": 1})
    refused = {one["line"]: one for one in found["refused"]}
    assert {line: one["reference"] for line, one in refused.items()} == {7: "INV-7", 9: None}
    assert "lineItems" in refused[7]["errors"][0]
    assert "is not a JSON object" in refused[9]["errors"][0]
    assert sandbox.served == found["calls"]["options"] == 1
    assert posts(sandbox) == 0


async def test_push_does_what_was_planned(
    planning: Planning, books: Connection, tmp_path: Path
) -> None:
    """As many POSTs, and afterwards all is on record; the journal is not made by planning."""
    journal, source = tmp_path / "pushes.db", written(tmp_path / "r", map(invoice, range(12)))
    before = await planning.facts(source, journal=str(journal))
    assert not journal.exists()

    await pushed(planning.sandbox, books, source, journal=journal)
    after = await planning(source, journal=str(journal), json=True)

    assert before["calls"] == {"options": 1, "pushes": 12, "polls": 5}
    assert posts(planning.sandbox) == before["calls"]["pushes"]
    assert after.code == 0
    assert json.loads(after.stdout)["known"] == {"Success": 12}
    assert json.loads(after.stdout)["calls"] == {"options": 1, "pushes": 0, "polls": 0}


async def test_a_reference_of_another_record_is_refused(
    planning: Planning, books: Connection, tmp_path: Path
) -> None:
    """Whether the journal has it or an earlier line."""
    journal, first = tmp_path / "pushes.db", written(tmp_path / "1", [invoice(1)])
    await pushed(planning.sandbox, books, first, journal=journal, reference="invoiceNumber")
    changed = [invoice(number) | {"note": "again"} for number in (1, 2)]
    source = written(tmp_path / "2", [*changed, invoice(2)])

    found = await planning.facts(source, journal=str(journal), reference="invoiceNumber")

    assert [one["line"] for one in found["refused"]] == [1, 3]
    assert "reference 'INV-1'" in found["refused"][0]["errors"][0]
    assert "it is in line 2" in found["refused"][1]["errors"][0]
    assert posts(planning.sandbox) == 1


async def test_a_quota_that_is_too_small_is_told(tmp_path: Path) -> None:
    """If the service names one: what is left of it, and until when."""
    async with Sandbox(companies=1, invoices=5, dialect="published", daily_quota=8) as sandbox:
        source = written(tmp_path / "r", map(invoice, range(12)))
        planning = Planning(sandbox)

        found = await planning.facts(source)
        shown = await planning(source)

    assert (found["quota"]["limit"], found["quota"]["remaining"]) == (8, 7)
    assert found["beyondQuota"] == 12 + 5 - 7
    assert "6 requests left until " in shown.stdout
    assert ": 11 have to wait" in shown.stdout


@pytest.mark.parametrize("part", ["--company", "--connection", "--type"])
async def test_what_does_not_exist_is_no_plan(sandbox: Sandbox, tmp_path: Path, part: str) -> None:
    """`plan && push` is a gate: every record would be refused."""
    source = written(tmp_path / "r", [invoice(1)])
    given = to(sandbox.companies[0].connections[0])
    given[given.index(part) + 1] = "nowhere"

    done = await here("plan", source, *given, sandbox=sandbox)

    assert (done.code, done.stdout) == (1, "")
    assert "nowhere" in done.stderr
    assert "answered 404: " in done.stderr
    assert "Check the ids and the data type" in done.stderr


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405])
async def test_what_the_service_refuses_is_no_plan(
    planning: Planning, tmp_path: Path, status: int
) -> None:
    """It would refuse the pushes, too."""
    planning.sandbox.faults.status(status, route="GET")

    done = await planning(written(tmp_path / "r", [invoice(1)]))

    assert (done.code, done.stdout) == (1, "")
    assert f"answered {status}" in done.stderr


@pytest.mark.parametrize("status", [409, 500])
async def test_what_cannot_be_checked_for_now_is_not_checked(
    planning: Planning, tmp_path: Path, status: int
) -> None:
    """The table says so, and what is assumed."""
    planning.sandbox.faults.status(status, route="GET", times=3)

    done = await planning(written(tmp_path / "r", [{"any": "thing"}]))

    assert done.code == 0
    assert "not checked" in done.stdout
    assert "the service names none" in done.stdout
    assert "Assumed: 1,000 requests a minute" in done.stdout


async def test_the_table_shows_the_first_that_are_refused(
    planning: Planning, tmp_path: Path
) -> None:
    """Ten of them."""
    source = written(tmp_path / "r", [{"invoiceNumber": f"I-{number}"} for number in range(12)])

    done = await planning(source, reference="invoiceNumber")

    assert done.code == 1
    assert "line 10  I-9 " in done.stdout
    assert "line 11" not in done.stdout
    assert "and 2 more; --json has all" in done.stdout


@pytest.mark.parametrize(
    "case",
    [
        ("r", ["--scope", "one"], 2, "--scope and --schema need --journal"),
        ("r", ["--api-key", "wrong"], 1, "401"),
        ("r", ["--journal", "README.md"], 1, "is not a journal of this SDK"),
        ("nowhere", [], 2, "nowhere: No such file"),
    ],
)
async def test_what_cannot_be_planned_is_one_sentence(
    sandbox: Sandbox, tmp_path: Path, case: tuple[str, list[str], int, str]
) -> None:
    """Of the exit codes that other commands have."""
    source, options, code, says = case
    written(tmp_path / "r", [invoice(1)])
    books = to(sandbox.companies[0].connections[0])

    done = await run("plan", str(tmp_path / source), *books, *options, sandbox=sandbox)

    assert done.code == code
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("new", "seconds"), [(0, 0.0), (100, (100 + 20) * 0.01), (25_000, 1800.0), (25_001, 1800.02)]
)
def test_time_is_full_minutes_at_the_limit_and_a_rest(new: int, seconds: float) -> None:
    """25,000 pushes and 5,000 polls are 30 minutes of 1,000 requests."""
    assert Forecast({}, new=new, latency=0.1).seconds == pytest.approx(seconds)


def test_what_the_journal_has_open_is_waited_for() -> None:
    """What never left is sent, what was sent is polled, what has ended takes nothing."""
    known = Counter({"QUEUED": 3, "OPEN": 1, "LOST": 1, "Success": 7, "DOUBT": 2})

    assert Forecast({}, new=2, known=known).calls == {"options": 1, "pushes": 5, "polls": 5}
    assert Forecast({}, known=Counter(OPEN=2)).calls == {"options": 1, "pushes": 0, "polls": 2}
