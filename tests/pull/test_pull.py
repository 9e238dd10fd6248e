"""Companies x data types into files and databases: what is there, and what comes later."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import Client, errors
from integration_sdk.sandbox import Sandbox
from tests.support.pull_support import (
    STAMP,
    Place,
    Record,
    answer,
    assert_agrees,
    invoices,
    serving,
    stamped,
)

ONE_OF_EACH = pytest.mark.parametrize("place", ["ndjson", "postgres"], indirect=True)


async def test_each_record_comes_once(place: Place) -> None:
    """In parts; a later run of an unchanged account writes nothing, with one request a unit."""
    books = {"a": {"invoices": invoices(300)}, "b": {"invoices": invoices(200)}}
    async with serving(books) as (service, client):
        first = await client.pull(["invoices"], **place.options, part_bytes=5_000)
        service.log.clear()
        again = await client.pull(["invoices"], **place.options)

        await assert_agrees(books, place)
        assert (first.rows, first.errors, first.skipped) == (500, [], {})
        assert (again.rows, len(service.log)) == (0, 3)  # the companies, and each unit
        assert [(unit.rows, unit.requests, unit.error) for unit in again.units] == [
            (0, 1, None)
        ] * 2


async def test_later_runs_bring_what_has_changed(place: Place) -> None:
    """Databases merge, files append; deletions stay until a full run replaces the unit."""
    books = {"a": {"invoices": invoices(30)}}
    rows = books["a"]["invoices"]
    async with serving(books) as (_, client):
        await client.pull(["invoices"], **place.options)
        rows[7] |= {"note": "edited", "modifiedDate": stamped(100)}
        rows.append({"id": "new", "note": "new", "modifiedDate": stamped(101)})
        del rows[3]

        assert (await client.pull(["invoices"], **place.options)).rows == 2
        await assert_agrees(books, place, after_deletions=True)
        assert len(await place.rows()) == 31 + place.is_folder
        before = place.parts() if place.is_folder else []

        await client.pull(["invoices"], **place.options, full=True)
        await assert_agrees(books, place)
        assert len(await place.rows()) == 30
        assert not place.is_folder or not {*before} & {*place.parts()}
        assert (await client.pull(["invoices"], **place.options)).rows == 0


@ONE_OF_EACH
async def test_an_empty_list_takes_one_request(place: Place) -> None:
    """In each run after the first, until it has records."""
    books: dict[str, dict[str, list[Record]]] = {"a": {"invoices": []}}
    async with serving(books) as (service, client):
        for _ in range(2):
            service.log.clear()
            await client.pull(["invoices"], **place.options)
        assert service.data_requests == 1

        books["a"]["invoices"] = invoices(3)
        assert (await client.pull(["invoices"], **place.options)).rows == 3


async def test_thousands_of_one_date(place: Place) -> None:
    """A synchronisation stamps all records alike, before the first run or after it."""
    books = {"a": {"invoices": [row | {"modifiedDate": STAMP} for row in invoices(2_500)]}}
    async with serving(books) as (service, client):
        runs = [(await client.pull(["invoices"], **place.options)).rows for _ in range(2)]
        assert service.data_requests <= 10  # a few more than there are pages
        for row in books["a"]["invoices"]:
            row |= {"note": "again", "modifiedDate": stamped(500)}
        runs += [(await client.pull(["invoices"], **place.options)).rows for _ in range(2)]

        assert runs == [2_500, 0, 2_500, 0]
        await assert_agrees(books, place)


@pytest.mark.parametrize("why", ["no ids", "no dates", "no filter"])
async def test_what_cannot_be_read_by_changes(place: Place, why: str) -> None:
    """Each run reads it as a whole and replaces it in one step; two that are alike are two."""
    kinds: dict[str, list[Record]] = {
        "no ids": [{"accountId": one, "modifiedDate": STAMP} for one in ("1", "2", "2")],
        "no dates": [{"id": "1", "modifiedDate": None}, {"id": "2"}, *invoices(1)],
        "no filter": invoices(3),
    }
    rows, is_refused = kinds[why], why == "no filter"
    refuse = lambda request: answer(400) if is_refused and "query" in request.query else None
    books: dict[str, dict[str, list[Record]]] = {"a": {"balances": []}}
    async with serving(books, odd=refuse) as (_, client):
        await client.pull(["balances"], **place.options)  # nobody can tell yet
        books["a"]["balances"] = rows
        for _ in range(2):
            receipt = await client.pull(["balances"], **place.options)
            assert receipt.errors == []
            assert len(await place.rows("balances")) == 3
        assert receipt.rows == 0
        rows.pop()
        await client.pull(["balances"], **place.options)

        assert len(await place.rows("balances")) == 2


async def test_bytes_are_those_of_the_service(tmp_path: Path) -> None:
    """NDJSON passes them on untouched, one record a line, gzipped if so wished."""
    text = f'{{"id":"1", "rate": 8.00,\n"modifiedDate":"{STAMP}"}}'

    def write(row: Record) -> str:
        return text if "modifiedDate" in row else json.dumps(row)

    books = {"a": {"invoices": [{"id": "1", "modifiedDate": STAMP}]}}
    async with serving(books, texts=write) as (_, client):
        await client.pull(["invoices"], to=tmp_path / "plain")
        await client.pull(["invoices"], to=tmp_path / "gz", compression="gz")
        await client.pull(["invoices"], to=tmp_path / "gz")  # as it was written

    (part,) = Place(tmp_path / "plain", "ndjson").parts()
    assert part.read_text() == text.replace("\n", " ") + "\n"
    (part,) = Place(tmp_path / "gz", "ndjson").parts()
    assert part.name == "part-00000.ndjson.gz"


# Companies


@ONE_OF_EACH
async def test_companies_with_nothing_to_read_are_counted_by_name(place: Place) -> None:
    """Not linked, not ready, or without such data: no error, and the others are read."""
    books: Any = {"a": {"invoices": invoices(3)}, "b": {"invoices": []}, "c": {}}
    not_ready = lambda request: answer(409) if "/b/" in request.path else None
    async with serving(books, odd=not_ready) as (_, client):
        receipt = await client.pull(["invoices", "transfers"], **place.options)

    assert (receipt.rows, receipt.errors) == (3, [])
    assert receipt.skipped == {
        "not ready": ["Company a", "Company b", "Company c"],
        "not found": ["Company c"],
    }
    assert [unit.to_plain()["skipped"] for unit in receipt.units].count(None) == 1


@pytest.mark.integration_sandbox(companies=2, invoices=5, unlinked=1)
async def test_a_type_that_nobody_knows_is_an_error_and_an_unlinked_company_is_none(
    integration_sandbox: Sandbox, integration_client: Client, tmp_path: Path
) -> None:
    """It is misspelt, perhaps: a nightly job that finds nothing must not end well. The company is
    counted by name, for types below a company and below a connection.
    """
    receipt = await integration_client.pull(["invoices", "transfers", "widgets"], to=tmp_path)

    found = {(unit.data_type, type(unit.error)) for unit in receipt.errors}
    assert (found, receipt.rows > 5) == ({("widgets", errors.NotFound)}, True)
    assert receipt.skipped == {"not linked": [integration_sandbox.companies[1].name]}


@pytest.mark.parametrize("data_type", ["invoices", "transfers"])
async def test_one_that_fails_stops_nobody(
    data_type: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is in the receipt, once in the log, and the next run goes on.

    So it is if a company's connections cannot be listed.
    """
    place = Place(tmp_path / "out", "ndjson")
    book = {"invoices": invoices(3), "c/transfers": invoices(3)}
    books, connections = {"a": book, "b": book}, {"a": ["c"], "b": ["c"]}
    forbidden = lambda request: answer(403) if "/b/" in request.path else None
    async with serving(books, odd=forbidden, connections=connections) as (service, client):
        with caplog.at_level(logging.WARNING, "integration_sdk.pull"):
            receipt = await client.pull(data_type, to=tmp_path / "out")
        (failed,) = receipt.errors
        service.odd = lambda _: None
        again = await client.pull(data_type, to=tmp_path / "out")

        assert isinstance(failed.error, errors.Forbidden)
        assert failed.company_id == "b"
        assert [record.getMessage() for record in caplog.records] == [
            f"1 of 2 units are not complete, see `errors` of the receipt: {failed.error}"
        ]
        assert again.rows == 3
        assert len(await place.rows(data_type)) == 6


@pytest.mark.parametrize("status", [402, 403])
async def test_what_was_read_before_a_page_fails_is_kept(place: Place, status: int) -> None:
    """402 concerns the account and ends the run; the next run goes on behind what was written."""
    books = {"a": {"invoices": invoices(3_000)}}
    async with serving(books) as (service, client):
        service.odd = lambda _: answer(status) if service.data_requests > 4 else None
        with pytest.raises(errors.PaymentRequired) if status == 402 else nullcontext():
            receipt = await client.pull(["invoices"], **place.options, part_bytes=10_000)
            assert isinstance(receipt.errors[0].error, errors.Forbidden)
        assert not place.is_folder or place.parts() == []  # a first read appears as a whole
        service.odd = lambda _: None
        receipt = await client.pull(["invoices"], **place.options)

        assert 0 < receipt.rows < 3_000
        await assert_agrees(books, place)


async def test_data_below_connections_and_accounts(place: Place) -> None:
    """Each connection's transfers, each account's transactions: a unit of its own."""
    books = {
        "a": {
            "c1/transfers": invoices(3),
            "c2/transfers": invoices(2),
            "c1/bankAccounts": [{"id": "x", "modifiedDate": STAMP}, {"id": "y"}],
            "c2/bankAccounts": [],
            "c1/x": invoices(4),
            "c1/y": invoices(1),
        }
    }
    async with serving(books, connections={"a": ["c1", "c2"]}) as (_, client):
        receipt = await client.pull(["bankTransactions", "transfers"], **place.options)

        assert [
            (unit.data_type, unit.connection_id, unit.account_id, unit.rows)
            for unit in sorted(receipt.units, key=lambda unit: -unit.rows)
        ] == [
            ("bankTransactions", "c1", "x", 4),
            ("transfers", "c1", "", 3),
            ("transfers", "c2", "", 2),
            ("bankTransactions", "c1", "y", 1),
        ]
        assert len(await place.rows("transfers")) == 5
        assert len(await place.rows("bankTransactions")) == 5
        assert (await client.pull(["transfers"], **place.options)).rows == 0


# The run


async def test_units_come_as_they_end(tmp_path: Path) -> None:
    """And progress says what is being read, by name."""
    books = {"a": {"invoices": invoices(3)}, "b": {"invoices": invoices(2)}}
    async with serving(books) as (service, client):
        job = client.pull(["invoices"], to=tmp_path)
        seen = []

        def look(request: Any) -> None:
            if "/data/" in request.path:
                seen.append(job.progress)

        service.odd = look
        units = [unit async for unit in job]

    assert sorted(unit.rows for unit in units) == [2, 3]
    assert {reading[:2] for one in seen for reading in one.reading} == {
        ("Company a", "invoices"),
        ("Company b", "invoices"),
    }
    assert (job.progress.done, job.progress.units, job.progress.records) == (2, 2, 5)
    with pytest.raises(errors.ConfigurationError, match="a pull is run once"):
        await job


@ONE_OF_EACH
async def test_leaving_the_loop_stops_the_pull(place: Place) -> None:
    """What was read is written, and the next run goes on from there."""
    books = {one: {"invoices": invoices(2_000)} for one in "abcdef"}
    async with serving(books) as (service, client):
        options: Any = {**place.options, "part_bytes": 1_000, "at_once": 2}
        async with aclosing(aiter(client.pull(["invoices"], **options))) as units:
            async for _ in units:
                break
        service.log.clear()
        await asyncio.sleep(0.05)
        assert service.log == []
        receipt = await client.pull(["invoices"], **options)

        assert receipt.rows < 10_000
        await assert_agrees(books, place)


async def test_an_abandoned_loop_stops_the_pull(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the loop is left in a cycle of references, asyncio stops it and has nothing to report."""
    books = {one: {"invoices": invoices(2_000)} for one in "abcdef"}
    async with serving(books) as (_, client):
        units = aiter(client.pull(["invoices"], to=tmp_path, part_bytes=1_000, at_once=2))
        await anext(units)
        cycle: list[Any] = [units]
        cycle.append(cycle)
        del units, cycle
        gc.collect()
        await asyncio.sleep(0.5)

        await client.pull(["invoices"], to=tmp_path)  # it is not in use any more
    assert caplog.text == ""


async def test_a_pull_that_cannot_begin_leaves_no_task(tmp_path: Path) -> None:
    """An account that has ended is not asked for the connections of all its companies."""
    books: Any = {f"c{number}": {} for number in range(200)}
    async with serving(books) as (service, client):
        service.odd = lambda request: answer(402) if "connections" in request.path else None

        with pytest.raises(errors.PaymentRequired):
            await client.pull(["transfers"], to=tmp_path / "out")
        asked = len(service.log)
        await asyncio.sleep(0.5)

        assert len(service.log) <= asked + 20  # those that were on their way
