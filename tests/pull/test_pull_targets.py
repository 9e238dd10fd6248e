"""Where a pull writes to: what is refused, what users do to it, who shares it, what fails."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from integration_sdk import Client, errors
from tests.support.postgres import Line, execute
from tests.support.pull_support import Place, answer, assert_agrees, invoices, serving, stamped

DATABASES = pytest.mark.parametrize("place", ["duckdb", "postgres"], indirect=True)
FOLDERS = pytest.mark.parametrize("place", ["ndjson", "parquet"], indirect=True)


def books_of(*companies: str, count: int = 20) -> dict[str, Any]:
    return {company: {"invoices": invoices(count)} for company in companies}


def snapshot(path: Path) -> dict[str, bytes]:
    """All files below a path, but for locks."""
    files = (one for one in path.rglob("*") if one.is_file() and one.parent.name != "locks")
    return {str(one.relative_to(path)): one.read_bytes() for one in files}


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format must be"),
        ({"to": "s3://bucket/books"}, "to must be a path, not 's3://bucket/books'"),
        ({"to": "x", "format": "postgres"}, "to must be a postgresql:// URL, not 'x'"),
        ({"to": "postgresql://u:secret@h/d", "format": "parquet"}, "u:***@h/d"),
        ({"format": "parquet", "compression": "gz"}, "compression is for ndjson, not parquet"),
        ({"to": "x.duckdb", "compression": "gz"}, "compression is for ndjson, not duckdb"),
        ({"to": "postgresql://h/d", "compression": "gz"}, "compression is for ndjson, not postgr"),
        ({"data_types": []}, "name a data type"),
        ({"data_types": ["invoice"]}, 'there is no data type "invoice"; did you mean "invoices"?'),
        ({"companies": ["zz"]}, "there is no company zz"),
        ({"to": "postgresql://u:pass#word@h/d"}, "in its password, write #"),
        ({"to": "x.duckdb", "dask": "tcp://127.0.0.1:1"}, "a DuckDB file has one writer"),
        ({"dask": 3}, "dask must be a scheduler's address"),
    ],
)
async def test_wrong_arguments(
    options: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has an error of its own; nothing is written, and no password is shown."""
    monkeypatch.chdir(tmp_path)
    given: Any = {"data_types": ["invoices"], "to": tmp_path / "out", **options}
    async with serving(books_of("a")) as (_, client):
        with pytest.raises(errors.ConfigurationError) as error:
            await client.pull(given.pop("data_types"), **given)

    assert message in str(error.value)
    assert "secret" not in str(error.value)
    assert snapshot(tmp_path).keys() <= {"out/_state/folder.json"}  # empty


async def test_a_pull_that_is_not_awaited_says_so(tmp_path: Path) -> None:
    """As a coroutine does: it has read nothing, and a nightly job would not notice."""
    async with serving(books_of("a")) as (_, client):
        with pytest.warns(RuntimeWarning, match=r"Pull of invoices to .* was never awaited"):
            client.pull(["invoices"], to=tmp_path / "out")


async def test_a_folder_of_something_else(tmp_path: Path) -> None:
    """Is left alone, as one of another format, and a file."""
    (tmp_path / "report.xlsx").write_bytes(b"")
    (tmp_path / "out").mkdir()
    (tmp_path / "x.duckdb").write_bytes(b"no database, but long enough to be one" * 500)
    async with serving(books_of("a")) as (_, client):
        await client.pull(["invoices"], to=tmp_path / "out", format="parquet")
        before = snapshot(tmp_path)
        refused: Any = (
            (tmp_path, None, "was not written by a pull, it holds"),
            (tmp_path / "out", "ndjson", "was written as parquet, not ndjson"),
            (tmp_path / "report.xlsx", None, "is not a folder"),
        )
        for to, format_, message in refused:
            with pytest.raises(errors.ConfigurationError, match=message):
                await client.pull(["invoices"], to=to, format=format_)
        with pytest.raises(errors.PullError, match="cannot be opened"):
            await client.pull(["invoices"], to=tmp_path / "x.duckdb")

    assert snapshot(tmp_path) == before


async def test_the_target_of_another_account(place: Place) -> None:
    """Is noticed by its companies."""
    async with serving(books_of("a")) as (_, client):
        await client.pull(["invoices"], **place.options)
    async with serving(books_of("b")) as (_, client):
        with pytest.raises(errors.ConfigurationError, match="of another account only"):
            await client.pull(["invoices"], **place.options)


async def test_a_target_in_use(tmp_path: Path) -> None:
    """One process a folder or file; it says so, and the command is not wrong: run it later."""
    async with serving(books_of("a", "b")) as (service, client):
        gate = asyncio.Event()
        service.odd = lambda request: gate.wait() if "/b/" in request.path else None
        for to in (tmp_path / "out", tmp_path / "x.duckdb"):
            gate.clear()
            async for _ in (units := aiter(client.pull(["invoices"], to=to, at_once=1))):
                with pytest.raises(errors.PullError, match=r"another pull|already att"):
                    await client.pull(["invoices"], to=to)
                break
            await units.aclose()
            gate.set()
            await client.pull(["invoices"], to=to)


async def test_a_system_that_cannot_exchange_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS: a generation replaces another in two steps, and nothing of it is left."""
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    async with serving(books_of("a")) as (_, client):
        for _ in range(3):
            receipt = await client.pull(["invoices"], to=tmp_path / "out", full=True)
            assert (receipt.errors, receipt.rows) == ([], 20)

    assert len([*tmp_path.rglob("part-*")]) == 1


@pytest.mark.parametrize(
    ("options", "package", "extra"),
    [
        ({"format": "parquet"}, "pyarrow", "arrow"),
        ({"format": "duckdb"}, "duckdb", "duckdb"),
        ({"to": "postgresql://nowhere/x"}, "asyncpg", "postgres"),
        ({"dask": "tcp://127.0.0.1:1"}, "distributed", "dask"),
    ],
)
async def test_a_missing_extra(
    options: Any, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Says what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    client = Client("key", "http://127.0.0.1:1")

    with pytest.raises(errors.ConfigurationError, match=rf'pip install "integration-sdk\[{extra}'):
        client.pull(["invoices"], **{"to": tmp_path / "out", **options})


async def test_a_database_that_lacks_rights(database: Place) -> None:
    """Says which right, and to whom; with it, the pull goes on."""
    parts = urlsplit(str(database.to))
    await execute(str(database.to), "CREATE ROLE reader LOGIN")
    await execute(str(database.to), "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    host = parts.netloc.rpartition("@")[2]
    place = Place(urlunsplit(parts._replace(netloc=f"reader@{host}")), "postgres")
    books = books_of("a")
    async with serving(books) as (_, client):
        with pytest.raises(errors.ConfigurationError, match="must be allowed to CREATE tables"):
            await client.pull(["invoices"], **place.options)
        await execute(str(database.to), "GRANT CREATE ON SCHEMA public TO reader")
        await client.pull(["invoices"], **place.options)

    await assert_agrees(books, place)


# What users do


@DATABASES
async def test_a_table_of_someone_else(place: Place) -> None:
    """Is left alone; other tables do not matter."""
    await place.select("CREATE TABLE invoices (mine int)")
    async with serving({"a": {"invoices": invoices(2), "items": invoices(2)}}) as (_, client):
        with pytest.raises(errors.ConfigurationError, match="that no pull made"):
            await client.pull(["invoices"], **place.options)
        assert (await client.pull(["items"], **place.options)).rows == 2

    assert await place.select("SELECT * FROM invoices") == []


@DATABASES
async def test_users_may_add_to_tables_and_drop_them(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Columns and views of theirs stay; what they drop is noticed and read again."""
    books = books_of("a", "b")
    rows = books["a"]["invoices"]
    async with serving(books) as (_, client):
        await client.pull(["invoices"], **place.options)
        for statement in (
            "ALTER TABLE invoices ADD COLUMN mine int",
            "UPDATE invoices SET mine = 7",
            "CREATE VIEW notes AS SELECT note FROM invoices_view",
        ):
            await place.select(statement)
        rows[0] |= {"note": "edited", "newField": 1, "modifiedDate": stamped(100)}
        await client.pull(["invoices"], **place.options)

        await assert_agrees(books, place)
        assert await place.select("SELECT DISTINCT mine FROM invoices") == [(7,)]
        assert ("edited",) in await place.select("SELECT note FROM notes")
        found = await place.select('SELECT "newField" FROM invoices_view WHERE "newField" > 0')
        assert [int(one) for (one,) in found] == [1]

        for full in (False, True):
            await place.select("DROP VIEW notes" if not full else "SELECT 1")
            await place.select("DROP TABLE invoices CASCADE")
            await client.pull(["invoices"], **place.options, full=full, companies=["a"])
            await client.pull(["invoices"], **place.options)
            await assert_agrees(books, place)
    assert "has lost its table" in caplog.text


@FOLDERS
async def test_a_part_that_was_deleted(place: Place) -> None:
    """Is reported for its company alone, and a full run repairs it."""
    books = books_of("a", "b")
    async with serving(books) as (_, client):
        await client.pull(["invoices"], **place.options)
        place.parts()[0].unlink()
        receipt = await client.pull(["invoices"], **place.options)
        (failed,) = receipt.errors
        assert failed.company_id == "a"
        assert "lacks part-00000 of invoices of a, which was written" in str(failed.error)

        assert (await client.pull(["invoices"], **place.options, full=True)).errors == []
        await assert_agrees(books, place)


# What fails


def full_for(end: str) -> Callable[[int], None]:
    """``os.fsync`` on a disk that is full for files whose names end so."""
    sync = os.fsync

    def fails(descriptor: int) -> None:
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).endswith(end):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    return fails


@FOLDERS
async def test_a_full_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends the run with an error of its own; readers see nothing of it; the next run goes on."""
    books = books_of("a", "b", count=3_000)
    async with serving(books) as (_, client):
        monkeypatch.setattr(os, "fsync", full_for(".tmp"))
        with pytest.raises(errors.PullError, match=r"run again to go on: .*No space left"):
            await client.pull(["invoices"], **place.options, part_bytes=50_000)
        assert place.parts() == []
        assert list(Path(place.to).rglob("*.tmp")) == []
        monkeypatch.undo()
        await client.pull(["invoices"], **place.options)
        await assert_agrees(books, place)


async def test_a_full_read_that_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves what an interrupted run has read, so the next run goes on with that."""
    books, place = books_of("a", count=3_000), Place(tmp_path / "out", "ndjson")
    async with serving(books) as (service, client):
        service.odd = lambda _: answer(403) if service.data_requests > 4 else None
        assert (await client.pull(["invoices"], **place.options, part_bytes=50_000)).errors
        service.odd = lambda _: None
        monkeypatch.setattr(os, "fsync", full_for(".company=a.json.new"))
        with pytest.raises(errors.PullError, match="No space left"):
            await client.pull(["invoices"], **place.options, full=True)
        monkeypatch.undo()
        assert (await client.pull(["invoices"], **place.options)).errors == []
        await assert_agrees(books, place)


async def test_a_database_that_is_lost_and_comes_back(database: Place) -> None:
    """Connections are cut, and an answer to COMMIT is lost: no record is missing or doubled."""
    books = books_of("a", "b", count=2_000)
    async with serving(books) as (service, client), Line(str(database.to)).between() as line:
        cuts = 0

        def cut(request: Any) -> None:
            nonlocal cuts
            if "/data/" in request.path and cuts < 4:
                cuts += 1
                line.cut()

        service.odd = cut
        line.lose_answers, line.that_hold = 2, b"COMMIT"
        receipt = await client.pull(["invoices"], to=line.url, part_bytes=20_000)

        assert (cuts, receipt.errors) == (4, [])
        await assert_agrees(books, database)
        assert (await client.pull(["invoices"], **database.options)).rows == 0


async def test_a_database_that_does_not_come_back(
    database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends the run after 30 s, however many units wait for it."""
    loop, books = asyncio.get_running_loop(), books_of("a", "b", "c", "d", count=3_000)
    real, began, lost = loop.time, loop.time(), asyncio.Event()
    async with serving(books) as (service, client):
        service.odd = lambda _: lost.set() if service.data_requests > 9 else None
        async with Line(str(database.to)).between() as line:
            run = asyncio.ensure_future(client.pull(["invoices"], to=line.url, part_bytes=20_000))
            await lost.wait()
        monkeypatch.setattr(loop, "time", lambda: began + 20 * (real() - began))
        at = loop.time()
        with pytest.raises(errors.PullError, match="cannot be reached"):
            await run

        assert 30 < loop.time() - at < 200


async def test_a_cancelled_pull_is_not_begun_again(database: Place) -> None:
    """A unit begins again when its database is lost, but not once the pull is cancelled."""
    async with (
        serving(books_of("a", count=5_000)) as (service, client),
        Line(str(database.to)).between() as line,
    ):
        held = asyncio.Event()

        def hold(_: Any) -> None:
            if service.data_requests > 3:
                line.silent = True
                held.set()

        service.odd = hold
        run = asyncio.ensure_future(client.pull(["invoices"], to=line.url, part_bytes=20_000))
        await held.wait()
        await asyncio.sleep(0.3)
        run.cancel()
        await asyncio.sleep(0.01)
        line.silent, service.odd, asked = False, lambda _: None, service.data_requests
        line.cut()
        with pytest.raises(asyncio.CancelledError):
            await run

        assert service.data_requests == asked


@pytest.mark.parametrize("place", ["ndjson", "postgres"], indirect=True)
async def test_a_target_that_goes_back(place: Place) -> None:
    """As one does that is restored or fails over: what is there decides, and nothing is missing."""
    books = books_of("a", count=4_500)
    async with serving(books) as (service, client):

        async def go_back(_: Any) -> None:
            if service.data_requests == 6:  # in the middle of the list
                if place.is_folder:
                    state = Path(place.to) / "_state/invoices/company=a.json"
                    while not state.exists():  # noqa: ASYNC110 - pages are read ahead of parts
                        await asyncio.sleep(0.01)
                    state.unlink()
                else:
                    await place.select("DELETE FROM invoices")
                    await place.select("DELETE FROM _pull_units")

        service.odd = go_back
        async for unit in client.pull(["invoices"], **place.options, part_bytes=20_000):
            assert unit.error is None
            if not place.is_folder:  # others may have the unit while the run goes on
                lock = "pg_try_advisory_lock(hashtextextended('invoices of a', 0))"
                assert await place.select(f"SELECT {lock}") == [(True,)]
        await assert_agrees(books, place)


async def test_a_unit_that_is_taken_is_waited_for(database: Place) -> None:
    """While others are read; then it is found unchanged."""
    books = books_of("a", "b")
    async with serving(books) as (service, client):
        db = await asyncpg.connect(str(database.to))
        await db.execute("SELECT pg_advisory_lock(hashtextextended('invoices of a', 0))")
        job = aiter(client.pull(["invoices"], **database.options))
        first = await anext(job)
        await db.close()
        second = await anext(job)
        await job.aclose()

    assert (first.company_id, second.company_id) == ("b", "a")
    assert service.data_requests == 6
    await assert_agrees(books, database)


async def test_a_full_disk_below_duckdb(tmp_path: Path) -> None:
    """Its error says so, and not that nothing is left to roll back; the next run goes on."""
    books = {"a": {"invoices": invoices(2_000, text="abc" * 100)}}
    target = Place(tmp_path / "books.duckdb", "duckdb")
    async with serving(books) as (_, client):
        _, unlimited = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited))
        try:
            with pytest.raises(errors.PullError, match="File too large"):
                await client.pull(["invoices"], **target.options)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await client.pull(["invoices"], **target.options)
        await assert_agrees(books, target)


async def test_a_duckdb_file_opens_in_duckdb_1(tmp_path: Path) -> None:
    """It has the storage version 64, of DuckDB 1.0; its own default is read by 2.0 or later."""
    async with serving(books_of("a")) as (_, client):
        await client.pull(["invoices"], to=tmp_path / "books.duckdb")

    assert int.from_bytes((tmp_path / "books.duckdb").read_bytes()[12:20], "little") == 64
