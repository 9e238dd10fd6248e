"""Flat columns: nothing that a record holds is lost, and no column changes its type."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Client
from integration_sdk._options_given import Numbers
from integration_sdk._records.columns import Kinds, names, table
from integration_sdk.errors import ConfigurationError
from integration_sdk.sandbox import Sandbox

NUMBERS = [
    *["1", "0", "-7", "8.0", "1e3", "1E+5", "1e-7", "1.50", "12345678901234567.89", "-0", "0e-99"],
    *["0.1234567890123456789", "1e25", "99999999999999999999", "100000000000000000000", "5e-19"],
    *["1e-400", "1e400", "1e-2000000", "1e99999999999999999999", "3.000000000000000000000"],
    *["99999999999999999999.999999999999999999", "-5e-18"],
]
TIMES = [
    *["2024-05-31T09:30:00Z", "2024-05-31T09:30:00.1234567Z", "2024-05-31T09:30:00"],
    *["2024-05-31T09:30:00+02:00", "2024-02-30T00:00:00Z", "2024-05-31T24:00:00Z"],
    *["0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00"],
    "9999-12-31T23:59:59.9999999",
]
TEXTS = ["a", "", "2024-05-31", "é\n\"'", "8", "00123", "12E4", " 5", "true", "null", "\U0001f600"]
OTHERS = ["{}", "[]", '[{"a":1}]', '{"a":{"b":[1,2]}}', '[1,"x"]', "true", "false", "null"]
POOLS = {
    "number": NUMBERS,
    "time": [json.dumps(text) for text in TIMES],
    "text": [json.dumps(text) for text in TEXTS],
    "other": OTHERS,
}
FIELDS = ["a", "b", "c", "A", "a__json", "B__JSON", "company", "", "nul\0", "'; \"", "ß", "SS"]

values = st.sampled_from([*POOLS, "number", "time"]).flatmap(
    lambda pool: st.sampled_from(POOLS[pool])
)
records = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)


def written(record: dict[str, str]) -> bytes:
    return (
        "{" + ",".join(f"{json.dumps(name)}:{raw}" for name, raw in record.items()) + "}"
    ).encode()


def rows(*texts: str, kinds: Kinds | None = None, numbers: Numbers = "decimal") -> Any:
    items = [text.encode() for text in texts]
    return table(items, {} if kinds is None else kinds, numbers).to_pylist()


def means(found: object, raw: str) -> bool:
    """Whether a value in a column is exactly what the service wrote."""
    if isinstance(found, Decimal):
        return found == Decimal(raw)
    if isinstance(found, float):
        return found == float(raw)
    said = json.loads(raw)
    if isinstance(found, datetime):
        moment = datetime.fromisoformat(said)
        return found == (moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return type(found) is type(said) and bool(found == said)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=3), st.booleans())
def test_nothing_is_lost(batches: Sequence[list[dict[str, str]]], floats: bool) -> None:
    """Each value stands in its column as it was said, or beside it as JSON text; a row holds
    nothing else. Kinds are only added, types stay, and names differ in more than their case.
    """
    kinds: Kinds = {}
    types: dict[str, pa.DataType] = {}
    for batch in batches:
        before = list(kinds.items())
        found = table(list(map(written, batch)), kinds, "float" if floats else "decimal")

        assert list(kinds.items())[: len(before)] == before
        assert len({name.lower() for name in found.column_names}) == found.num_columns
        assert all(types.setdefault(one.name, one.type) == one.type for one in found.schema)
        places = names(kinds)
        for record, row in zip(batch, found.to_pylist(), strict=True):
            left = {name: value for name, value in row.items() if value is not None}
            for field, raw in record.items():
                if raw == "null":
                    continue
                own, beside = places[field]
                if beside in left:
                    assert left.pop(beside) == raw
                elif kinds[field] == "json":
                    assert own is not None
                    assert left.pop(own) == raw
                else:
                    assert own is not None
                    assert means(left.pop(own), raw)
            assert not left


@settings(max_examples=30, deadline=None)
@given(st.lists(records, min_size=1, max_size=8))
def test_readers_take_any_table(tmp_path_factory: Any, batch: list[dict[str, str]]) -> None:
    """Parquet and DuckDB have all columns and rows, under the same names."""
    path = tmp_path_factory.mktemp("parquet") / "part.parquet"
    found = table(list(map(written, batch)), {})
    if not found.num_columns:
        return
    pq.write_table(found, path)

    with duckdb.connect() as database:
        read = database.read_parquet(str(path))
        assert read.columns == found.column_names
        assert len(read.fetchall()) == len(batch)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12345678901234567.89", Decimal("12345678901234567.89")),
        ("-0.5E+3", Decimal(-500)),
        ("1e-7", Decimal("1e-7")),
        ("null", None),
    ],
)
def test_numbers_are_exact(text: str, value: Decimal | None) -> None:
    """One type for all of them, whatever notation the service uses."""
    assert rows('{"x":1}', f'{{"x":{text}}}')[1] == {"x": value}


@pytest.mark.parametrize("text", ["00123", "12E4", " 5", "8", "1e-400"])
def test_a_text_stays_a_text(text: str) -> None:
    """Even in a column of numbers, whatever Python's Decimal would make of it."""
    found = rows('{"x":1}', json.dumps({"x": text}))

    assert found[1] == {"x": None, "x__json": json.dumps(text)}
    assert rows(json.dumps({"x": text}), '{"x":1}')[0] == {"x": text, "x__json": None}


def test_times_are_moments_in_utc() -> None:
    """Cut to microseconds; without an offset they are UTC."""
    texts = ["2024-01-02T03:04:05.1234567Z", "2024-01-02T03:04:05", "2024-01-02T03:04:05+02:00"]

    assert [row["x"] for row in rows(*(f'{{"x":"{text}"}}' for text in texts))] == [
        datetime(2024, 1, 2, 3, 4, 5, 123456, UTC),
        datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC),
    ]


@pytest.mark.parametrize("other", ["soon", 1, None, "2024-01-02"])
def test_a_field_that_is_not_always_a_time(other: object) -> None:
    """It is a text if that shows in its first records."""
    first = rows('{"x":"2024-01-02T03:04:05Z"}', json.dumps({"x": other}))[0]["x"]

    assert isinstance(first, str) is isinstance(other, str | int)


@pytest.mark.parametrize(
    ("broken", "text"),
    [(rb'"a\ud83d"', "a\ufffd"), (b'"a\xff"', "a\ufffd"), (b'"\xe2\x82"', "\ufffd")],
)
def test_what_is_no_text_is_replaced(broken: bytes, text: str) -> None:
    """Half a surrogate pair and invalid UTF-8 spoil neither their record nor the others."""
    found = table([b'{"x":"b"}', b'{"x":' + broken + b',"y":{"z":' + broken + b"}}"], {})

    assert found["x"].to_pylist() == ["b", text]
    assert "\ufffd" in json.loads(found["y"].to_pylist()[1])["z"]


def test_what_is_no_object_is_kept() -> None:
    """As JSON text; it is a row like any other."""
    found = rows("[1]", '{"x":1}', "3")

    assert [row["__json"] for row in found] == ["[1]", None, "3"]


def test_rows_without_columns() -> None:
    """Empty objects are rows, too."""
    assert table([b"{}", b"{}"], {}).num_rows == 2


def test_a_map_with_a_key_for_each_record_is_text() -> None:
    """Its keys are no columns, so that cost does not grow with their number."""
    found = table([b'{"x":{"k%d":1}}' % n for n in range(2_000)], {})

    assert found.column_names == ["x"]
    assert found["x"][7].as_py() == '{"k7":1}'


def test_many_fields() -> None:
    """2,000 fields are 2,000 columns."""
    assert table([json.dumps({f"f{n}": n for n in range(2_000)}).encode()], {}).num_columns == 2_000


# Of a list


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with (
        Sandbox(companies=1, invoices=2_500) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as connected,
    ):
        yield connected


@pytest.fixture
async def invoices(client: Client) -> Any:
    company = await client.companies.list().first()
    assert company is not None
    return client.company(company["id"]).data("invoices").list(page_size=1000, numbers="decimal")


async def test_a_list_in_batches(invoices: Any) -> None:
    """Of as many rows as asked for; the cursor is behind each."""
    expected = [(one["id"], one["totalAmount"]) for one in await invoices.collect()]

    batches = [(batch, invoices.report.items) async for batch in invoices.arrow(rows=1_000)]

    counts = [(len(batch), done) for batch, done in batches]
    assert counts == [(1_000, 1_000), (1_000, 2_000), (500, 2_500)]
    whole = pa.concat_tables(
        [pa.Table.from_batches([batch]) for batch, _ in batches], promote_options="default"
    )
    found = zip(whole["id"].to_pylist(), whole["totalAmount"].to_pylist(), strict=True)
    assert list(found) == expected


async def test_doubles_to_compute_with(invoices: Any) -> None:
    """Pandas has quantiles and products of them."""
    (batch,) = [batch async for batch in invoices.arrow(numbers="float")]

    amounts = batch.to_pandas()["totalAmount"]

    assert amounts.dtype == "float64"
    assert (amounts * 1.2).quantile(0.5) > 0


async def test_numbers_are_decimals_or_doubles(invoices: Any) -> None:
    """Anything else is an error before a request."""
    with pytest.raises(ConfigurationError, match="numbers must be 'decimal' or 'float'"):
        invoices.arrow(numbers="int")


# The guide's lines

UNEVEN = [
    ['{"id":"1","amount":1.10,"ref":{"a":1},"at":"2024-05-31T09:30:00Z"}', '{"id":"2","amount":2}'],
    ['{"id":"3","amount":"3","ref":"none","new":true}', '{"id":"4","at":"soon","more":1e25}'],
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kinds: Kinds = {}
    for number, part in enumerate(UNEVEN):
        company = tmp_path / f"company={number}"
        company.mkdir()
        pq.write_table(
            table([text.encode() for text in part], kinds), company / "part-00000.parquet"
        )
    return tmp_path


COLUMNS = {"id", "amount", "amount__json", "ref", "at", "at__json", "new", "more__json", "more"}


def test_readers_read_uneven_parts_whole(folder: Path) -> None:
    """By one line each, as in the guide: all columns of all parts, with their values."""
    parts = sorted(folder.rglob("*.parquet"))
    with duckdb.connect() as database:
        files = f"{folder}/*/*.parquet"
        by_duckdb = database.read_parquet(files, union_by_name=True, hive_partitioning=True)
        by_duckdb = by_duckdb.order("id").to_arrow_table()
    frames = [pl.read_parquet(part, hive_partitioning=True) for part in parts]
    by_polars = pl.concat(frames, how="diagonal")
    one_by_one = [ds.dataset(part, partitioning="hive").to_table() for part in parts]
    by_pyarrow = pa.concat_tables(one_by_one, promote_options="default")
    tables = {
        "duckdb": by_duckdb,
        "pandas": pa.Table.from_pandas(by_pyarrow.to_pandas()),
        "polars": by_polars.to_arrow(),
        "pyarrow": by_pyarrow,
    }

    for name, found in tables.items():
        assert {*found.column_names} == COLUMNS | {"company"}, name
        assert found["amount"].to_pylist() == [Decimal("1.1"), Decimal(2), None, None], name
        assert found["ref"].to_pylist() == ['{"a":1}', None, '"none"', None], name
        assert found["at__json"].to_pylist() == [None, None, None, '"soon"'], name
        assert found["company"].to_pylist() in ([0, 0, 1, 1], ["0", "0", "1", "1"]), name
