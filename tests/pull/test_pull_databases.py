"""Pulls into DuckDB and PostgreSQL: columns, what does not fit, and who may write."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pytest
from attrs import evolve

from integration_sdk import Client, Store
from integration_sdk.errors import ConfigurationError, PullError
from integration_sdk.sandbox import Sandbox
from tests.support.postgres import Line, Server
from tests.support.pull_support import Place, assert_agrees, new_place, now, rows_in
from tests.support.sandbox_support import holding, until


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=2, invoices=300) as running:
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.api_key, sandbox.base_url) as connected:
        yield connected


@pytest.fixture(params=["duckdb", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return await new_place(request, tmp_path, request.param)


async def asked(place: Place, query: str) -> list[tuple[Any, ...]]:
    if isinstance(place.to, Path):
        with duckdb.connect(str(place.to)) as database:
            rows: list[tuple[Any, ...]] = database.execute(query).fetchall()
            return rows
    database = await asyncpg.connect(place.to)
    try:
        return [tuple(row) for row in await database.fetch(query)]
    finally:
        await database.close()


class Books:
    """The items of a company, and the rows that became of them."""

    def __init__(self, sandbox: Sandbox, client: Client, place: Place) -> None:
        self.company = sandbox.companies[0].id
        self.items = sandbox.data_set(self.company, "items")
        for id_ in self.items.ids():
            self.items.delete(id_)
        self.client = client
        self.place = place

    async def pulled(self, *records: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Add *records*, pull, and return all rows by id, without what is null."""
        for record in records:
            self.items.append({"modifiedDate": now(), **record})
        receipt = await self.client.pull(["items"], **self.place.options, companies=[self.company])
        assert not receipt.errors, receipt.errors
        rows = await rows_in(self.place.to, "items", self.company)
        return {
            row["id"]: {name: value for name, value in row.items() if value is not None}
            for row in rows
        }


@pytest.fixture
def books(sandbox: Sandbox, client: Client, place: Place) -> Books:
    return Books(sandbox, client, place)


async def test_columns_have_the_types_of_values(books: Books, place: Place) -> None:
    """Numbers exact, dates in UTC and cut to microseconds, nested values whole."""
    rows = await books.pulled(
        {"id": "1", "amount": 20, "when": "2024-01-02T03:04:05.9999999Z", "is": True, "t": "x"},
        {"id": "2", "amount": 12345678901234567.5, "when": "2024-01-02T03:04:05", "o": {"a": [1]}},
    )

    assert rows["1"]["amount"] == Decimal(20)
    assert rows["1"]["when"] == datetime(2024, 1, 2, 3, 4, 5, 999999, UTC)
    assert rows["2"]["when"] == datetime(2024, 1, 2, 3, 4, 5, 0, UTC)
    assert (rows["1"]["is"], rows["1"]["t"], rows["1"]["company"]) == (True, "x", books.company)
    nested = rows["2"]["o"]
    assert (json.loads(nested) if place.format == "postgres" else nested) == {"a": [1]}


async def test_later_fields_are_later_columns(books: Books) -> None:
    """Rows of before have null there; so it is with members of objects."""
    await books.pulled({"id": "1", "o": {"a": "x"}})

    rows = await books.pulled({"id": "2", "o": {"a": "y", "b": "z"}, "new": 5})

    assert "new" not in rows["1"]
    assert rows["2"]["new"] == 5
    assert "z" in str(rows["2"]["o"])


async def test_what_does_not_fit_goes_beside(books: Books) -> None:
    """Into a column of its own, and the type of the first stays."""
    await books.pulled({"id": "1", "x": 1, "when": "2024-01-02T03:04:05Z", "t": "text"})

    rows = await books.pulled(
        {"id": "2", "x": "one", "when": "soon", "t": 7},
        {"id": "3", "x": 3, "when": "2024-02-30T00:00:00Z", "t": "text"},
    )

    assert (rows["2"]["x__json"], rows["2"]["t__json"]) == ('"one"', "7")
    assert (rows["2"]["when__json"], rows["3"]["when__json"]) == (
        '"soon"',
        '"2024-02-30T00:00:00Z"',
    )
    assert not {"x", "when", "t"} & rows["2"].keys()
    assert (rows["3"]["x"], rows["3"]["t"]) == (3, "text")
    assert not {"x__json", "t__json"} & rows["3"].keys()


async def half_a_pair(_: Any, proceed: Any) -> Any:
    answer = await proceed()
    return evolve(answer, body=answer.body.replace(b'"half"', b'"\\ud800"'))


async def test_records_that_cannot_be_written_are_kept(
    sandbox: Sandbox, books: Books, place: Place
) -> None:
    """In a table, with the reason; the others are not held up."""
    sandbox.faults.add(half_a_pair, route="GET /data/items")

    rows = await books.pulled({"id": "1"}, {"id": "2", "t": "half"}, {"id": "3"})

    assert rows.keys() == {"1", "3"}
    ((type_, company, reason, record),) = await asked(
        place, "SELECT * FROM _integration_sdk_rejects"
    )
    assert (type_, company, bool(reason)) == ("items", books.company, True)
    assert '"id":"2"' in record


async def test_names_of_all_kinds(books: Books) -> None:
    """A later record brings them, or it is rejected; either way the next ones come."""
    odd = ["", "\0", "Company", "ID", ".x", 'a"b', "a\\b"]
    await books.pulled({"id": "1", "o": {"b": 1}, "Company": "x"})
    for number, name in enumerate(odd):
        await books.pulled({"id": f"f{number}", name: 1}, {"id": f"m{number}", "o": {name: 1}})
    last = await books.pulled({"id": "2", "o": {"B": 2, "b": 1}})

    assert {row["company"] for row in last.values()} == {books.company}
    lost = {"f1", "m1"} if books.place.format == "postgres" else set()  # jsonb has no NUL
    both = {f"{kind}{number}" for number in range(len(odd)) for kind in "fm"}
    assert last.keys() == {"1", "2"} | both - lost


async def test_a_failed_batch_leaves_no_gap(
    sandbox: Sandbox, client: Client, postgres: Server
) -> None:
    """What comes behind it is not written before it is."""
    url = await postgres.new_database()
    first, second = sandbox.companies
    await client.pull(["invoices"], to=url, companies=[first.id])
    early = sandbox.data_set(second.id, "invoices").ids()[10]
    database = await asyncpg.connect(url)
    await database.execute(f"ALTER TABLE invoices ADD CONSTRAINT trouble CHECK (id <> '{early}')")

    failed = await client.pull(["invoices"], to=url, part_bytes=100_000)
    await database.execute("ALTER TABLE invoices DROP CONSTRAINT trouble")
    await database.close()
    receipt = await client.pull(["invoices"], to=url, part_bytes=100_000)

    (unit,) = failed.errors
    assert (unit.company_id, type(unit.error)) == (second.id, PullError)
    assert receipt.errors == []
    await assert_agrees(sandbox, url)


async def test_a_lost_answer_costs_nothing(
    sandbox: Sandbox, client: Client, postgres: Server
) -> None:
    """Whichever it is: what was committed is not done twice, what was not is done again."""
    url, store, pulls = await postgres.new_database(), Store(), 1
    company = sandbox.companies[0].id
    sandbox.data_set(company, "items").append(
        {"id": "refused", "name": "a\0b", "modifiedDate": now()}
    )
    async with Line(url) as line:
        pull: dict[str, Any] = {"to": line.url, "store": store, "companies": [company]}
        await client.pull(["items"], **pull)
        for line.that_hold in (b"COMMIT", b"INSERT"):
            for passing in count():
                line.first_pass, line.lose_answers = passing, 1
                receipt = await client.pull(["items"], **pull, full=True)
                pulls += 1
                assert [(one.error, one.state.rows) for one in receipt.units] == [(None, 60)]
                if line.lose_answers:  # there are no more of them
                    break
            assert passing > 2
    assert len(await rows_in(url, "items", company)) == 60
    for query in (
        "SELECT count(*) FROM _integration_sdk_rejects",
        "SELECT count(*) FROM _integration_sdk_receipts",
    ):
        assert await asked(Place(url, "postgres"), query) == [(pulls,)]


@pytest.mark.parametrize(
    ("code", "rest"), [("40P01", None), ("57P01", None), ("53100", "no space left for ")]
)
async def test_a_database_that_cannot_just_now(
    client: Client, postgres: Server, code: str, rest: str | None
) -> None:
    """A deadlock, or a restart, is waited for; a full disk ends the run, once."""
    url = await postgres.new_database()
    place = Place(url, "postgres")
    await client.pull(["items"], to=url)
    await asked(place, "CREATE SEQUENCE times")
    await asked(
        place,
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('times') = 1 THEN RAISE EXCEPTION 'just now' USING ERRCODE = '{code}';"
        " END IF; RETURN NEW; END $$",
    )
    await asked(
        place, "CREATE TRIGGER fails BEFORE INSERT ON _staged_items EXECUTE FUNCTION fail()"
    )

    pulling = client.pull(["items"], to=url, full=True, at_once=1)
    if rest is None:
        assert not (await pulling).errors
    else:
        with pytest.raises(PullError, match=rest):
            await pulling
    assert not (await client.pull(["items"], to=url)).errors


async def test_a_new_column_holds_nobody_up(
    sandbox: Sandbox, client: Client, postgres: Server
) -> None:
    """Who reads a table for long delays the pull that adds a column, but no other reader."""
    url = await postgres.new_database()
    company = sandbox.companies[0].id
    await client.pull(["items"], to=url, companies=[company])
    sandbox.data_set(company, "items").edit_at(3, {"extra": 1, "modifiedDate": now()})
    reader = await asyncpg.connect(url)
    async with reader.transaction():
        await reader.fetch("SELECT * FROM items")
        pulling = asyncio.ensure_future(client.pull(["items"], to=url, companies=[company]))
        other = await asyncpg.connect(url)
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await other.fetchval(waits):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
        await other.execute("SET statement_timeout = '10s'")
        assert await other.fetchval("SELECT count(*) FROM items") == 60
        assert not pulling.done()
    await asyncio.gather(reader.close(), other.close())

    assert not (await pulling).errors
    assert sum(row["extra"] is not None for row in await rows_in(url, "items", company)) == 1


async def test_a_column_is_added_to_both_tables_or_none(
    sandbox: Sandbox, client: Client, postgres: Server
) -> None:
    """A pull that ends between the two leaves no full read behind that cannot be written."""
    url = await postgres.new_database()
    company = sandbox.companies[0].id
    pull: dict[str, Any] = {"to": url, "companies": [company]}
    await client.pull(["items"], **pull)
    sandbox.data_set(company, "items").edit_at(3, {"extra": 1, "modifiedDate": now()})
    place = Place(url, "postgres")
    await asked(place, "ALTER TABLE _staged_items RENAME TO elsewhere")
    assert len((await client.pull(["items"], **pull)).errors) == 1
    await asked(place, "ALTER TABLE elsewhere RENAME TO _staged_items")

    assert not (await client.pull(["items"], **pull, full=True)).errors
    assert sum(row["extra"] is not None for row in await rows_in(url, "items", company)) == 1


async def test_columns_that_another_process_has_added(
    sandbox: Sandbox, client: Client, postgres: Server
) -> None:
    """Who goes on with its unit knows them."""
    url, gate = await postgres.new_database(), asyncio.Event()
    first, second = (company.id for company in sandbox.companies)
    await client.pull(["items"], to=url)
    slow = sandbox.faults.add(holding(gate), route=f"GET /companies/{first}/data/items", times=1)
    waits = asyncio.ensure_future(client.pull(["items"], to=url, at_once=1))
    await until(lambda: slow.hits)
    for number in range(2):
        change = {"extra": 1, "modifiedDate": now()}
        sandbox.data_set(second, "items").edit_at(number, change)
    sandbox.faults.status(409, route=f"GET /companies/{second}/data/items", skip=4, times=1)
    receipt = await client.pull(["items"], to=url, companies=[second], full=True)
    assert len(receipt.errors) == 1

    gate.set()
    assert not (await waits).errors
    assert sum(row["extra"] is not None for row in await rows_in(url, "items", second)) == 2


async def test_a_frozen_process_changes_nothing(
    sandbox: Sandbox, client: Client, postgres: Server
) -> None:
    """Its token is old when it writes, and the database refuses it; it looks who was faster."""
    url, store = await postgres.new_database(), Store()
    company = sandbox.companies[0].id
    gate = asyncio.Event()
    answered = sandbox.served
    sandbox.faults.add(holding(gate), route="GET /data/invoices", skip=3, times=1)
    pull: dict[str, Any] = {"to": url, "store": store, "companies": [company]}
    frozen = asyncio.ensure_future(client.pull(["invoices"], **pull))
    await until(lambda: sandbox.served >= answered + 4)

    documents = await store.documents()
    await documents.give_back([f"pull/unit/invoices/{company}"])  # its lease expires
    other = await client.pull(["invoices"], **pull)
    invoices = sandbox.data_set(company, "invoices")
    invoices.edit_at(3, {"note": "newer", "modifiedDate": now()})
    await client.pull(["invoices"], **pull)
    gate.set()
    (unit,) = (await frozen).units

    assert (other.rows, unit.rows, unit.error) == (300, 0, None)
    assert unit.state.rows == 300
    rows = await rows_in(url, "invoices", company)
    assert {row["note"] for row in rows if row["id"] == invoices.ids()[3]} == {"newer"}
    assert len(rows) == 300


async def test_the_last_state_of_a_batch_counts(place: Place) -> None:
    """A record that changes while its changes are read comes twice; the later one stays."""
    async with (
        Sandbox(companies=1, invoices=1_500) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as client,
    ):
        company = sandbox.companies[0].id
        invoices = sandbox.data_set(company, "invoices")
        await client.pull(["invoices"], **place.options)
        for number in range(1_500):
            invoices.edit_at(number, {"note": "once", "modifiedDate": now()})

        async def edit_again(_: Any, proceed: Any) -> Any:
            answer = await proceed()
            invoices.edit_at(3, {"note": "twice", "modifiedDate": now()})
            return answer

        sandbox.faults.add(edit_again, route="GET /data/invoices", times=1)
        receipt = await client.pull(["invoices"], **place.options)

        assert receipt.units[0].read == 1_501
        rows = await rows_in(place.to, "invoices", company)
        edited = invoices.ids()[3]
        assert [row["note"] for row in rows if row["id"] == edited] == ["twice"]
        assert len(rows) == 1_500


async def test_processes_share_the_work(postgres: Server) -> None:
    """Each unit is read by one of them; one that began later looks once for what has changed."""
    types = ["items", "suppliers"]
    async with (
        Sandbox(companies=12, invoices=0, unlinked=0) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as one,
        Client(sandbox.api_key, sandbox.base_url) as other,
    ):
        sandbox.faults.latency(0.05)
        await one.pull(types, to=await postgres.new_database())
        alone = sandbox.served
        url = await postgres.new_database()

        receipts = await asyncio.gather(
            one.pull(types, to=url, at_once=4), other.pull(types, to=url, at_once=4)
        )

        # Another list of companies, and what one of them had begun before the other did.
        assert sandbox.served - alone <= alone + 5
        assert all(receipt.rows for receipt in receipts)
        assert sum(receipt.rows for receipt in receipts) == 12 * (60 + 80)
        await assert_agrees(sandbox, url, "items")
        await assert_agrees(sandbox, url, "suppliers")


async def test_databases_of_others(
    sandbox: Sandbox, client: Client, postgres: Server, tmp_path: Path
) -> None:
    """Tables that no pull has made are left alone; a file in use names the process."""
    url, file = await postgres.new_database(), tmp_path / "other.duckdb"
    await asked(Place(url, "postgres"), "CREATE TABLE items (x int)")
    await asked(Place(file, "duckdb"), "CREATE TABLE mine (x int)")

    receipt = await client.pull(["items"], to=url)
    with pytest.raises(ConfigurationError, match=r"holds tables that no pull wrote \(mine\)"):
        await client.pull(["items"], to=file)

    assert len(receipt.errors) == 2
    for unit in receipt.errors:
        assert 'has a table "items" that no pull wrote' in str(unit.error)


async def test_passwords_stay_with_the_database(client: Client) -> None:
    """Wherever in the URL they are, no error shows them, and no repr of a pull."""
    url = "postgresql://me:hunter2@127.0.0.1/books"
    pulls = client.pull(["items", "bills"], to=url), client.pull("items", to="out", store=url)
    assert [repr(pull) for pull in pulls] == [
        "<Pull of items, bills to postgresql://me@127.0.0.1/books>",
        f"<Pull of items to {Path('out').absolute()}>",
    ]
    for url in ("postgresql://me:hunter2@", "postgresql://me@", "postgresql://"):
        to = f"{url}127.0.0.1:1/books?user=me&password=hunter2"
        for pull in (client.pull(["items"], to=to), client.pull(["items"], to="out", store=to)):
            assert "hunter2" not in repr(pull)
        with pytest.raises(ConfigurationError, match="cannot be opened") as caught:
            await client.pull(["items"], to=to)
        assert "127.0.0.1:1/books?user=me" in str(caught.value)
        assert "hunter2" not in str(caught.value)


async def test_a_file_is_free_however_its_pull_is_cancelled(client: Client, tmp_path: Path) -> None:
    """A scope of anyio cancels a task again at each await, until it has ended."""
    for steps in range(12):
        running = asyncio.ensure_future(client.pull(["items"], to=tmp_path / "out.duckdb"))
        await asyncio.sleep(0.02 * steps)
        while not running.done():
            running.cancel()
            await asyncio.sleep(0)

    assert not (await client.pull(["items"], to=tmp_path / "out.duckdb")).errors


async def test_a_socket_is_named_as_a_url(client: Client, tmp_path: Path) -> None:
    """Workers of a Dask cluster are given what messages show."""
    url = f"postgresql:///books?host={tmp_path}"
    with pytest.raises(ConfigurationError) as caught:
        await client.pull(["items"], to=f"{url}&password=hunter2")
    assert str(caught.value).startswith(f"{url} cannot be opened")


@pytest.mark.parametrize(
    "password", ["hunter2/x", "x#hunter2", "x@y/hunter2", "[hunter2", "[x]hunter2"]
)
async def test_a_password_that_breaks_its_url_is_not_shown(client: Client, password: str) -> None:
    """Nor is its end taken for the host; the message says how to write it."""
    with pytest.raises(ConfigurationError, match="in its password, write") as caught:
        await client.pull(["items"], to=f"postgresql://me:{password}@127.0.0.1:1/books")
    assert "hunter2" not in str(caught.value)


async def test_a_setting_of_the_database_makes_no_code_of_names(postgres: Server) -> None:
    """Fields are named in SQL; old settings would end the text at a quote behind a backslash."""
    url = await postgres.new_database()
    place, name = Place(url, "postgres"), url.partition("?")[0].rpartition("/")[2]
    await postgres.execute(
        "postgres", f"ALTER DATABASE {name} SET standard_conforming_strings = off"
    )
    async with (
        Sandbox(companies=1, invoices=0) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as client,
    ):
        odd = "x\\'||pg_sleep(9)||"
        rows = await Books(sandbox, client, place).pulled({"id": "1", odd: "kept"})

    assert rows["1"][odd] == "kept"


async def test_a_file_in_use(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    """It has one writer at a time, and the message names it."""
    path = tmp_path / "out.duckdb"
    await client.pull(["items"], to=path)
    script = f"import duckdb; db = duckdb.connect({str(path)!r}); print(1, flush=True); input()"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=PIPE, stdout=PIPE
    )
    assert holder.stdout is not None
    await holder.stdout.readline()

    with pytest.raises(ConfigurationError, match=f"is open in process {holder.pid}; one writer"):
        await client.pull(["items"], to=path)

    holder.kill()
    await holder.wait()
    units = aiter(client.pull(["items"], to=path))
    await anext(units)
    with pytest.raises(ConfigurationError, match=f"is open in process {os.getpid()}; one writer"):
        await client.pull(["items"], to=path, store=Store())
    await units.aclose()
    assert not (await client.pull(["items"], to=path)).errors
