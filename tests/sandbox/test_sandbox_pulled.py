"""A sandbox of one's own data: it serves what a pull has written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import Client
from integration_sdk.sandbox import Sandbox
from tests.support import cli_support
from tests.support.sandbox_support import serving

KINDS = ("invoices", "accounts")


async def pulled(sandbox: Sandbox, to: Path, **options: Any) -> list[tuple[str, str, int]]:
    """Pull `KINDS` to a folder; how many rows of what were written."""
    async with Client(sandbox.api_key, sandbox.base_url) as client:
        receipt = await client.pull(KINDS, to=to, **options)
    return sorted((unit.company_id, unit.data_type, unit.rows) for unit in receipt.units)


def plain(value: Any) -> Any:
    """A value as every format keeps it: without nothings, with numbers and moments as such."""
    if isinstance(value, dict):
        members = {name: plain(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member not in (None, [], {})}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def records(sandbox: Sandbox) -> dict[tuple[str, str], list[Any]]:
    return {
        (company.id, kind): [plain(record) for record in sandbox.data_set(company.id, kind)]
        for company in sandbox.companies
        for kind in KINDS
    }


def written(
    folder: Path, *lines: object, kind: str = "invoices", company: str = "c-1", part: int = 0
) -> Path:
    """A part with *lines*, as a pull writes it."""
    place = folder / kind / f"company={company}"
    place.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (place / f"part-{part:05}.ndjson").write_text(text)
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"format": "ndjson"},
        {"format": "ndjson", "compression": "gz"},
        {"format": "ndjson", "compression": "zst"},
        {"format": "parquet"},
    ],
    ids=lambda options: "-".join(options.values()),
)
async def test_what_was_pulled_is_served(options: dict[str, Any], tmp_path: Path) -> None:
    """Companies and records are the service's, with ids, dates and amounts; so a program that
    pulls from here gets what it got from there.
    """
    async with Sandbox(companies=2, invoices=5) as service:
        rows = await pulled(service, tmp_path / "out", **options)
        theirs = records(service)
    async with Sandbox(pulled=tmp_path / "out", seed=5) as copy:
        again = await pulled(copy, tmp_path / "again", **options)
        assert {company.id for company in copy.companies} == {company for company, _, _ in rows}
        assert records(copy) == theirs
    assert again == rows


async def test_the_last_state_of_a_record_counts(tmp_path: Path) -> None:
    """Later parts have later states; within a part a list that moved may show an older one last."""
    old, new = "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z"
    written(
        tmp_path,
        {"id": "a", "modifiedDate": new, "note": "2"},
        {"id": 7, "dueDate": "2024-05-01"},
        {"id": "a", "modifiedDate": old, "note": "1"},
        {"id": "b", "modifiedDate": new, "note": "1"},
    )
    written(tmp_path, {"id": "b", "modifiedDate": old, "note": "2"}, part=1)
    written(tmp_path, {"id": "VAT20"}, kind="taxRates")
    async with serving(pulled=tmp_path, daily_quota=True) as http:
        path = f"{http.company}/data/invoices"
        body = (await http.get(path)).body
        rates = await http.get(f"{http.company}/data/taxRates")
        due = (await http.get(path, query="dueDate>2024-04-30", orderBy="dueDate")).body
        one = (await http.get(f"{path}/b")).body

        assert (http.first.id, http.first.name) == ("c-1", "c-1")
    assert [(row["id"], row.get("note")) for row in body["results"]] == [
        ("a", "2"),
        (7, None),
        ("b", "2"),
    ]
    assert [row["id"] for row in due["results"]] == [7]
    assert one["note"] == "2"
    # a type of which the sandbox knows nothing, in a quota for one company
    assert rates.body["results"] == [{"id": "VAT20"}]
    assert rates.headers["X-Rate-Limit-Limit"] == "2000"


async def test_it_goes_on_from_there(tmp_path: Path) -> None:
    """Pushes are taken and appear; what was not pulled is empty; the next pull reads the change."""
    async with Sandbox(companies=1, invoices=3) as service:
        await pulled(service, tmp_path)
    async with serving(pulled=tmp_path) as http:
        await pulled(http.sandbox, tmp_path / "again")
        customer = {"customerName": "Toft", "status": "Active"}
        operation = (await http.post(f"{http.at(1)}/push/customers", customer)).body
        accounts = http.sandbox.data_set(http.first.id, "accounts")
        accounts.append({"id": "new", "modifiedDate": operation["completedOnUtc"]})
        customers = (await http.get(f"{http.company}/data/customers")).body
        rows = {kind: rows for _, kind, rows in await pulled(http.sandbox, tmp_path / "again")}

    assert operation["status"] == "Success"
    assert [row["customerName"] for row in customers["results"]] == ["Toft"]
    assert rows == {"invoices": 0, "accounts": 1}


async def test_parquet_becomes_records_again(tmp_path: Path) -> None:
    """What fits no column stands beside it as text there, an object of no known fields as text."""
    rows: list[dict[str, Any]] = [
        {
            "id": "a",
            "total": 12.50,
            "extra": {},
            "note": "[sic",
            "when": "2024-02-29T10:00:00.500000Z",
        },
        {"id": "b", "total": "n/a", "extra": {"of": ["x", 1]}, "note": None, "large": 10**25},
        {"id": "c", "extra": {"of": [], "count": 100}, "ref": {"id": "1", "name": "x"}},
        {"id": "d", "ref": {"id": "2"}},
    ]
    async with Sandbox(companies=1, invoices=0) as service:
        kept = service.data_set(service.companies[0].id, "invoices")
        for row in rows:
            kept.append(row)
        await pulled(service, tmp_path, format="parquet")
    async with Sandbox(pulled=tmp_path) as copy:
        served = list(copy.data_set(copy.companies[0].id, "invoices"))

    del rows[1]["note"]
    assert served == rows


@pytest.mark.parametrize("kind", ["invoices", "salesOrders"])
async def test_a_list_that_was_empty_is_an_empty_list(kind: str, tmp_path: Path) -> None:
    """A company without records is served, and asked what has changed; records may come to it."""
    (tmp_path / kind / "company=c-1").mkdir(parents=True)
    async with serving(pulled=tmp_path) as http:
        path = f"{http.company}/data/{kind}"
        found = await http.get(path, query="modifiedDate>=2024-01-01", orderBy="modifiedDate")
        http.sandbox.faults.drift(insert=1)
        grown = await http.get(path)

    assert (found.status, found.body["totalResults"], grown.body["totalResults"]) == (200, 0, 1)


def test_a_folder_that_is_none_of_a_pull_is_refused(tmp_path: Path) -> None:
    """ValueError names the folder, or the part and what is wrong with it."""
    other = tmp_path / "other" / "invoices" / "company=c"
    other.mkdir(parents=True)
    (other / "part-00000.csv").touch()
    parquet = written(tmp_path / "parquet") / "invoices" / "company=c-1" / "part-00001.parquet"
    parquet.write_bytes(b"PAR")
    odd = [
        (tmp_path / "nowhere", "nowhere holds no NDJSON or Parquet files of a pull"),
        (
            written(tmp_path / "line", {"note": "x"}),
            "part-00000.ndjson cannot .*required field `id",
        ),
        (written(tmp_path / "array", []), "part-00000.ndjson cannot be read .* Expected `object`"),
        (tmp_path / "other", "part-00000.csv cannot be read .* .csv is neither NDJSON nor Parquet"),
        (tmp_path / "parquet", "part-00001.parquet cannot be read"),
    ]
    for folder, message in odd:
        with pytest.raises(ValueError, match=message):
            Sandbox(pulled=folder)


async def test_the_command_serves_a_folder(tmp_path: Path) -> None:
    """--from FOLDER; a wrong one is wrong usage."""
    folder = written(tmp_path / "out", {"id": "a"}, company="c%201")

    async with cli_support.serving("--from", folder) as (url, key), Client(key, url) as client:
        companies = [company["id"] async for company in client.companies.list()]
    wrong = await cli_support.here("sandbox", "--from", tmp_path)

    assert (companies, wrong.code) == (["c 1"], 2)
    assert "holds no NDJSON or Parquet files of a pull" in wrong.stderr
