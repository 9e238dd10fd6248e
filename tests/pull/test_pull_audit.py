"""What receipts say, and what an audit finds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import asyncpg
import duckdb
import pytest

from integration_sdk import Client
from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import Done, here, run
from tests.support.pull_support import Place, new_place, now, parts


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=2, invoices=120) as running:
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.api_key, sandbox.base_url) as connected:
        yield connected


@pytest.fixture(params=["ndjson", "parquet", "duckdb", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return await new_place(request, tmp_path, request.param)


async def test_a_receipt_names_counts_and_sums(
    sandbox: Sandbox, client: Client, place: Place
) -> None:
    """Exact sums of all numbers by currency, where a sink knows numbers; the first and last
    change; and what was sent for it.
    """
    receipt = await client.pull(["invoices"], **place.options)

    for unit in receipt.units:
        records = list(sandbox.data_set(unit.company_id, "invoices"))
        assert (unit.rows, unit.read, unit.requests) == (120, 120, 2)
        dates = [record["modifiedDate"] for record in records]
        assert (unit.first_change, unit.last_change) == (min(dates), max(dates))
        for currency in {record["currency"] for record in records if place.format != "ndjson"}:
            expected = sum(one["totalAmount"] for one in records if one["currency"] == currency)
            assert Decimal(unit.state.sums[currency]["totalAmount"]) == expected


async def test_an_audit_agrees_after_runs_of_all_kinds(
    sandbox: Sandbox, client: Client, place: Place
) -> None:
    """A first, a later and a full one; the service agrees, too."""
    company = sandbox.companies[0].id
    await client.pull(["invoices", "items"], **place.small_parts)
    assert (await audited(place, sandbox)).code == 0
    sandbox.data_set(company, "invoices").edit_at(3, {"modifiedDate": now(), "totalAmount": 7})
    await client.pull(["invoices", "items"], **place.small_parts)
    assert (await audited(place, sandbox)).code == 0
    await client.pull(["invoices", "items"], **place.small_parts, full=True)

    done = await audited(place, sandbox, ask_service=True)

    assert done.code == 0
    assert f"invoices {company}: 120 rows" in done.stdout
    assert len(done.stdout.splitlines()) == 4


async def test_an_audit_finds_what_was_changed(
    sandbox: Sandbox, client: Client, place: Place
) -> None:
    """A part that is gone, a row that is gone, an amount that is another."""
    company = sandbox.companies[0].id
    await client.pull(["invoices"], **place.small_parts)
    await spoil(place, company)

    done = await audited(place, sandbox)

    assert done.code == 1
    assert f"invoices {company} has" in done.stdout
    assert "the receipt says" in done.stdout


async def test_an_audit_asks_the_service(sandbox: Sandbox, client: Client, place: Place) -> None:
    """What the service has deleted shows only there."""
    await client.pull(["invoices"], **place.options)
    invoices = sandbox.data_set(sandbox.companies[0].id, "invoices")
    invoices.delete(invoices.ids()[0])

    assert (await audited(place, sandbox)).code == 0
    done = await audited(place, sandbox, ask_service=True)

    assert done.code == 1
    assert "has 1 records that are no longer at the service; --full removes them" in done.stdout


async def test_the_command(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    """It finds the format by itself, and names a place that no pull has written to."""
    await client.pull(["items"], to=tmp_path / "out", format="parquet")

    done = await run("audit", str(tmp_path / "out"), "--service", sandbox=sandbox)
    nothing = await run("audit", str(tmp_path / "nothing"))

    assert (done.code, done.stderr, len(done.stdout.splitlines())) == (0, "", 2)
    assert nothing.code == 2
    assert "no pull has written to" in nothing.stderr


async def test_receipts_are_kept_in_the_place(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """One a run, as JSON; the key is in none of what is written."""
    await client.pull(["items"], to=tmp_path)
    await client.pull(["items"], to=tmp_path)

    first, second = [json.loads(one.read_bytes()) for one in (tmp_path / "_receipts").iterdir()]
    assert {first["run"], second["run"]} == {1, 2}
    assert sandbox.api_key.encode() not in everything_below(tmp_path)


def everything_below(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())


async def audited(place: Place, sandbox: Sandbox, *, ask_service: bool = False) -> Done:
    """Audit without a process of its own."""
    return await here("audit", place.to, *["--service"] * ask_service, sandbox=sandbox)


async def spoil(place: Place, company: str) -> None:
    query = "DELETE FROM invoices WHERE id = (SELECT max(id) FROM invoices WHERE company = '{}')"
    if isinstance(place.to, str):
        database = await asyncpg.connect(place.to)
        await database.execute(query.format(company))
        await database.close()
    elif place.format == "duckdb":
        with duckdb.connect(str(place.to)) as database:
            database.sql(query.format(company))
    else:
        parts(place.to, "invoices", company)[0].unlink()
