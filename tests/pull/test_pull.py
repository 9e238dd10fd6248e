"""Companies x data types into files: what is there, what comes later, what goes wrong."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pytest
from attrs import evolve

import integration_sdk
from integration_sdk import Client, Store
from integration_sdk.errors import ConfigurationError, PaymentRequired, PullError
from integration_sdk.sandbox import Answer, Call, Sandbox
from tests.support.pull_support import (
    Place,
    assert_agrees,
    assert_holds,
    at_service,
    held,
    new_place,
    now,
    parts,
    rows_in,
    writing,
)
from tests.support.sandbox_support import until

T = TypeVar("T")
DOCS = Path(integration_sdk.__file__).parent / "docs"


@pytest.fixture(params=["ndjson", "parquet", "duckdb", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return await new_place(request, tmp_path, request.param)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=2, invoices=300) as running:
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.api_key, sandbox.base_url) as connected:
        yield connected


# What is there


async def test_each_record_comes_once(sandbox: Sandbox, client: Client, place: Place) -> None:
    """A first run writes each record once, in parts; a second one finds nothing to do."""
    first = await client.pull(["invoices", "customers"], **place.small_parts)
    again = await client.pull(["invoices", "customers"], **place.small_parts)

    await assert_agrees(sandbox, place.to)
    await assert_agrees(sandbox, place.to, "customers")
    assert (first.rows, again.rows, first.errors) == (2 * (300 + 200), 0, [])
    assert [unit.state.rows for unit in again.units if unit.data_type == "invoices"] == [300, 300]
    assert sum(unit.requests for unit in again.units) == 4


async def test_bytes_are_those_of_the_service(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """NDJSON passes them on untouched, one record a line."""
    await client.pull(["invoices"], to=tmp_path)

    company = sandbox.companies[0].id
    raws = [raw async for raw in client.company(company).data("invoices").list().raw()]
    assert b"".join(part.read_bytes() for part in parts(tmp_path, "invoices", company)) == (
        b"\n".join(raws) + b"\n"
    )


async def test_later_runs_bring_what_has_changed(
    sandbox: Sandbox, client: Client, place: Place
) -> None:
    """Edits and inserts, in the order of their changes; databases merge, files append."""
    company = sandbox.companies[0].id
    invoices = sandbox.data_set(company, "invoices")
    await client.pull(["invoices"], **place.options)
    invoices.edit_at(7, {"note": "edited", "modifiedDate": now()})
    invoices.append(json.loads(invoices.sample()) | {"id": "new", "modifiedDate": now()})

    receipt = await client.pull(["invoices"], **place.options)

    assert receipt.rows == 2
    await assert_agrees(sandbox, place.to)
    assert len(await rows_in(place.to, "invoices", company)) == 301 + place.appends
    if place.appends:
        rows = await rows_in(place.to, "invoices", company)
        assert [row["id"] for row in rows[-2:]] == [invoices.ids()[7], "new"]


async def test_a_full_run_notices_deletions(sandbox: Sandbox, client: Client, place: Place) -> None:
    """They stay until a full run replaces the unit; no part has a name that was used before."""
    company = sandbox.companies[0].id
    invoices = sandbox.data_set(company, "invoices")
    await client.pull(["invoices"], **place.small_parts)
    before = place.parts("invoices", company)
    deleted = invoices.ids()[3]
    invoices.delete(deleted)

    await client.pull(["invoices"], **place.small_parts)
    assert deleted in (await held(place.to, "invoices", company)).newest
    receipt = await client.pull(["invoices"], **place.small_parts, full=True)

    await assert_agrees(sandbox, place.to)
    assert not before & place.parts("invoices", company)
    assert sorted(unit.state.rows for unit in receipt.units) == [299, 300]


async def test_no_change_is_missed_while_reading(place: Place) -> None:
    """With somebody who writes all the while, one quiet run later the sink is the service."""
    async with (
        Sandbox(companies=2, invoices=800) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as client,
    ):
        sandbox.faults.latency(0.05)
        pull = {**place.options, "part_bytes": 250_000}
        async with writing(sandbox, pause=0.005) as writers:
            await client.pull(["invoices"], **pull)
            await client.pull(["invoices"], **pull)
        await client.pull(["invoices"], **pull)
        assert sum(writer.writes for writer in writers) > 50
        await assert_agrees(sandbox, place.to, after_deletions=True)
        await client.pull(["invoices"], **pull, full=True)
        await assert_agrees(sandbox, place.to)


@pytest.mark.parametrize("format_", ["parquet", "ndjson"])
async def test_the_newest_of_each_record(
    sandbox: Sandbox, client: Client, tmp_path: Path, format_: Any
) -> None:
    """The guide's query over the parts of several runs has each record once, as it is now."""
    out = tmp_path / "out"
    company = sandbox.companies[0].id
    invoices = sandbox.data_set(company, "invoices")
    await client.pull(["invoices"], to=out, format=format_)
    for number in range(3):
        invoices.edit_at(number, {"note": f"edit {number}", "modifiedDate": now(), "new": number})
        await client.pull(["invoices"], to=out, format=format_)

    guide = (DOCS / "guides" / "pull.md").read_text()
    (query,) = re.findall(r"```sql\n(SELECT .*?)```", guide, re.DOTALL)
    query = query.replace("'out/", f"'{out}/")
    if format_ == "ndjson":
        query = query.replace("read_parquet", "read_ndjson").replace(", file_row_number = true", "")
        query = query.replace("file_row_number DESC", "modifiedDate DESC")
    with duckdb.connect() as database:
        rows = database.sql(
            f"SELECT id, note, company FROM ({query}) WHERE company = '{company}'"  # noqa: S608
        ).fetchall()

    notes = {record["id"]: record["note"] for record in invoices}
    assert {str(id_): note for id_, note, _ in rows} == notes
    assert len(rows) == 300


async def test_new_companies_join(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    """Without a list of companies, all that there are when a run starts."""
    await client.pull(["invoices"], to=tmp_path)
    company = await client.companies.create("Late Ltd")

    receipt = await client.pull(["invoices"], to=tmp_path)

    assert company["id"] in {unit.company_id for unit in receipt.units}


async def test_some_companies(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    """With one, only those."""
    company = sandbox.companies[1].id

    units = [unit async for unit in client.pull(["items"], to=tmp_path, companies=[company])]

    assert [(unit.company_id, unit.data_type, unit.rows) for unit in units] == [
        (company, "items", 60)
    ]


@pytest.mark.parametrize("compression", ["gz", "zst"])
async def test_compressed_lines(
    sandbox: Sandbox, client: Client, tmp_path: Path, compression: Any
) -> None:
    """NDJSON may be compressed; DuckDB and others read it as it is."""
    import gzip

    import zstandard

    await client.pull(["items"], to=tmp_path, compression=compression)

    (part,) = parts(tmp_path, "items", sandbox.companies[0].id)
    data = part.read_bytes()
    text = gzip.decompress(data) if compression == "gz" else zstandard.decompress(data)
    assert part.name == f"part-00000.ndjson.{compression}"
    assert len(text.splitlines()) == 60


async def test_a_list_without_dates_is_read_as_a_whole(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Where not every record says when it was changed, each run replaces the unit."""
    company = sandbox.companies[0].id
    invoices = sandbox.data_set(company, "invoices")
    invoices.edit_at(5, {"modifiedDate": None})
    await client.pull(["invoices"], to=tmp_path, companies=[company])
    invoices.edit_at(6, {"note": "unnoticed by dates"})
    gone = invoices.ids()[9]
    invoices.delete(gone)

    receipt = await client.pull(["invoices"], to=tmp_path, companies=[company])

    assert [unit.state.snapshot for unit in receipt.units] == [True]
    newest = (await held(tmp_path, "invoices", company)).newest
    assert newest.keys() == at_service(sandbox, "invoices", company).keys()
    assert newest[invoices.ids()[6]]["note"] == "unnoticed by dates"


async def test_an_empty_list_may_fill(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    """A unit without records is complete; what comes later is found."""
    company = sandbox.companies[0].id
    items = sandbox.data_set(company, "items")
    records = list(items)
    for id_ in items.ids():
        items.delete(id_)
    first = await client.pull(["items"], to=tmp_path, companies=[company])
    items.append(records[0])

    second = await client.pull(["items"], to=tmp_path, companies=[company])

    assert (first.rows, second.rows, first.errors) == (0, 1, [])
    assert (await held(tmp_path, "items", company)).newest.keys() == {records[0]["id"]}


# What goes wrong


async def test_a_unit_that_fails_stops_no_other(
    sandbox: Sandbox, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in the receipt, in one line of the log for all, and mended by a later run."""
    ill = sandbox.companies[0].id
    rule = sandbox.faults.not_ready(route=f"GET /companies/{ill}/data")

    receipt = await client.pull(["invoices", "items"], to=tmp_path)
    errors = {(unit.company_id, str(unit.error)[:0]) for unit in receipt.errors}
    sandbox.faults.remove(rule)
    await client.pull(["invoices", "items"], to=tmp_path)

    assert errors == {(ill, "")}
    assert len(receipt.errors) == 2
    (told,) = [one.getMessage() for one in caplog.records if one.name == "integration_sdk.pull"]
    assert re.match(r"2 of 4 units are not complete, see `errors` of the receipt: .* 409", told)
    await assert_agrees(sandbox, tmp_path)


async def test_a_pull_is_run_once(client: Client, tmp_path: Path) -> None:
    """A second time it would count the units of the first again, and find its file closed."""
    pull = client.pull(["items"], to=tmp_path)
    await pull

    with pytest.raises(ConfigurationError, match=r"call client\.pull\(\) again"):
        await pull
    with pytest.raises(ConfigurationError, match=r"call client\.pull\(\) again"):
        await anext(aiter(pull))


async def test_no_id_leads_out_of_the_folder(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """The service chooses the ids of companies; one with slashes is refused, and nothing else."""
    good = sandbox.companies[0].id
    out, other = tmp_path / "out", tmp_path / "ledger"
    other.mkdir()
    (other / "book").write_text("kept")
    hostile = f"{good}/../../../../ledger"  # from the staging of a folder that is there

    async def renamed(_: Call, proceed: Callable[[], Awaitable[Answer]]) -> Answer:
        answer = await proceed()
        second = sandbox.companies[1].id.encode()
        return evolve(answer, body=answer.body.replace(second, hostile.encode()))

    sandbox.faults.add(renamed, route="^GET /companies$")
    receipt = await client.pull(["items"], to=out, at_once=1)

    assert [unit.company_id for unit in receipt.errors] == [hostile]
    assert [path.name for path in other.iterdir()] == ["book"]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "ledger"}
    await assert_holds(sandbox, out, "items", good)


async def test_an_expired_account_keeps_what_was_read(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """402 ends the run; the units before it are complete, and the next run goes on."""
    rule = sandbox.faults.status(402, route="GET /data/", skip=9)

    with pytest.raises(PaymentRequired):
        await client.pull(["invoices"], to=tmp_path, at_once=1)
    first = len((await held(tmp_path, "invoices", sandbox.companies[0].id)).newest)
    sandbox.faults.remove(rule)
    await client.pull(["invoices"], to=tmp_path)

    assert first == 300
    await assert_agrees(sandbox, tmp_path)


async def test_a_lost_line_costs_no_part(tmp_path: Path) -> None:
    """What was read before an error is written, and the next run goes on behind it."""
    async with (
        Sandbox(companies=1, invoices=5_000) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, retry=None) as client,
    ):
        rule = sandbox.faults.status(503, route="GET /data/", skip=7)
        (unit,) = [unit async for unit in client.pull(["invoices"], to=tmp_path)]
        sandbox.faults.remove(rule)
        (rest,) = [unit async for unit in client.pull(["invoices"], to=tmp_path)]

        assert unit.error is not None
        assert unit.rows >= 2_000
        assert unit.rows + rest.rows >= 5_000  # records of one moment come again
        await assert_agrees(sandbox, tmp_path)


async def test_leaving_the_loop_ends_the_run(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Whoever stops iterating stops the pull; a later run goes on."""
    async for _ in (units := aiter(client.pull(["invoices", "items"], to=tmp_path, at_once=1))):
        break
    await units.aclose()

    await client.pull(["invoices", "items"], to=tmp_path)
    await assert_agrees(sandbox, tmp_path)
    await assert_agrees(sandbox, tmp_path, "items")


async def test_cancelled_at_any_time(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    """The part that is being written is finished, nothing else is; the next run goes on."""
    store = Store()
    for requests in range(1, 13):
        pull: dict[str, Any] = {"to": tmp_path / "out", "store": store, "part_bytes": 50_000}
        answered = sandbox.served
        running = asyncio.ensure_future(client.pull(["invoices"], **pull, full=True))
        await until(lambda: sandbox.served >= answered + requests or running.done())  # noqa: B023
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    await client.pull(["invoices"], **pull)
    await assert_agrees(sandbox, tmp_path / "out")


async def test_who_is_cancelled_lets_go_of_the_folder(client: Client, tmp_path: Path) -> None:
    """Also where a thread is late: whoever begins next finds nobody there."""
    asyncio.get_running_loop().set_default_executor(LateThreads())
    for steps in range(12):
        running = asyncio.ensure_future(client.pull(["invoices"], to=tmp_path))
        await asyncio.sleep(0.005 * steps)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    assert not (await client.pull(["invoices"], to=tmp_path)).errors


class LateThreads(ThreadPoolExecutor):
    """Threads that take their time to begin."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        def late() -> T:
            time.sleep(0.02)
            return fn(*args, **kwargs)

        return super().submit(late)


async def test_two_at_once_take_a_postgres_store(client: Client, tmp_path: Path) -> None:
    """With another store, a folder is written by one pull at a time."""
    store = Store()
    units = aiter(client.pull(["invoices", "items"], to=tmp_path, store=store, at_once=1))
    await anext(units)

    with pytest.raises(ConfigurationError, match="several at once need a PostgreSQL store"):
        await client.pull(["invoices"], to=tmp_path, store=store)
    await units.aclose()
    assert not (await client.pull(["invoices"], to=tmp_path, store=store)).errors


async def test_a_part_that_is_gone_is_missed(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """A later run does not go on as if it were there; a full one reads it again."""
    company = sandbox.companies[0].id
    await client.pull(["invoices"], to=tmp_path)
    parts(tmp_path, "invoices", company)[0].unlink()

    receipt = await client.pull(["invoices"], to=tmp_path)
    (error,) = receipt.errors
    await client.pull(["invoices"], to=tmp_path, full=True)

    assert isinstance(error.error, PullError)
    assert "lacks part-00000 of invoices/" in str(error.error)
    await assert_agrees(sandbox, tmp_path)


async def test_places_that_are_something_else(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Each is refused before anything is read or written, and says why."""
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "data.csv").write_text("a,b")
    (tmp_path / "file").write_text("")
    out = tmp_path / "out"
    store = Store()
    await client.pull(["items"], to=out, store=store)

    async def refused(to: Path, **options: Any) -> str:
        with pytest.raises(ConfigurationError) as error:
            await client.pull(["items"], **{"to": to, "store": Store(), **options})
        return str(error.value)

    assert "holds files that no pull wrote (data.csv)" in await refused(tmp_path / "others")
    assert "is not a folder" in await refused(tmp_path / "file")
    assert "written with another store" in await refused(out)
    assert "written as ndjson, not parquet" in await refused(out, store=store, format="parquet")
    assert "use another scope" in await refused(tmp_path / "elsewhere", store=store)
    assert not (tmp_path / "elsewhere").exists()
    async with Sandbox() as another, Client(another.api_key, another.base_url) as stranger:
        with pytest.raises(ConfigurationError, match=f"belongs to {sandbox.base_url}"):
            await stranger.pull(["invoices"], to=out, store=store)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_types": ["invoice"]}, 'no data type "invoice"; did you mean "invoices"?'),
        ({"data_types": []}, "name a data type"),
        ({"format": "csv"}, "'ndjson', 'parquet', 'duckdb' or 'postgres', not 'csv'"),
        ({"companies": ["8b1d"]}, "there is no company 8b1d"),
        ({"format": "parquet", "compression": "gz"}, "compression is for ndjson"),
        ({"at_once": 0}, "at_once must be a whole number"),
        ({"full": "no"}, "full must be True or False"),
        ({"to": "s3://bucket/out"}, "'ndjson' writes to a path, not 's3://bucket/out'"),
        ({"to": "mysql://me:hunter2@host/books"}, "not 'mysql://me:***@host/books'"),
        ({"to": "postgresql://host/books", "format": "parquet"}, "'parquet' writes to a path"),
        (
            {"to": "out", "format": "postgres"},
            "'postgres' writes to a postgresql:// URL, not 'out'",
        ),
    ],
)
async def test_arguments_that_cannot_work(
    sandbox: Sandbox, client: Client, tmp_path: Path, options: Any, message: str
) -> None:
    """Each has its own clear error, and nothing is written."""
    out = tmp_path / "out"
    arguments = {"data_types": ["invoices"], "to": out, "store": Store(), **options}

    with pytest.raises(ConfigurationError) as error:
        await client.pull(**arguments)

    assert message in str(error.value)
    assert not out.exists()
