"""Records as Arrow tables: what becomes of each kind of value, and of what does not fit."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Client, ConfigurationError
from integration_sdk._records.arrow import in_schema, read, sums
from integration_sdk._records.columns import NO_COLUMNS, Columns
from integration_sdk.sandbox import Sandbox


def rows(*records: str, known: Columns = NO_COLUMNS) -> list[dict[str, Any]]:
    batch = read([record.encode() for record in records], known)
    assert not batch.rejects
    found: list[dict[str, Any]] = batch.table.to_pylist()
    return found


def learned(*records: str) -> Columns:
    return read([record.encode() for record in records], NO_COLUMNS).columns


NUMBERS = learned('{"x":1}')
TEXTS = learned('{"x":"a"}')
DATES = learned('{"x":"2024-01-01T00:00:00Z"}')
OBJECTS = learned('{"x":{"a":1}}')
LISTS = learned('{"x":[{"a":1}]}')
FLAGS = learned('{"x":true}')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20", Decimal(20)),
        ("8.0", Decimal(8)),
        ("12345678901234567.89", Decimal("12345678901234567.89")),
        ("99999999999999999999", Decimal(99999999999999999999)),
        ("1e-7", Decimal("1e-7")),
        ("0.123456789012345678", Decimal("0.123456789012345678")),
        ("-0.5E+3", Decimal(-500)),
        ('"8"', Decimal(8)),
        ("null", None),
    ],
)
def test_numbers_are_exact(text: str, value: Decimal | None) -> None:
    """One type for all of them, whatever the page wrote; a text of a number is one."""
    assert rows('{"x":' + text + "}", known=NUMBERS) == [{"x": value}]


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (NUMBERS, "1.5E+25"),  # decimal128 would take it for 12983758111592070983.9
        (NUMBERS, "0.1234567890123456789"),
        (NUMBERS, "100000000000000000000000"),
        (NUMBERS, "1E400"),
        (NUMBERS, '"eight"'),
        (NUMBERS, "true"),
        (NUMBERS, "{}"),
        (TEXTS, "8"),
        (TEXTS, '["a"]'),
        (FLAGS, "1"),
        (DATES, '"soon"'),
        (DATES, '"2024-13-01T00:00:00Z"'),
        (DATES, "20240101"),
        (OBJECTS, '{"a":"text"}'),
        (OBJECTS, '{"b":{}}'),
        (OBJECTS, "3"),
        (LISTS, '[{"a":1},{"a":"text"}]'),
        (LISTS, '[{"b":{}}]'),
        (LISTS, '{"a":1}'),
    ],
)
def test_what_does_not_fit_goes_beside(known: Columns, text: str) -> None:
    """As JSON text, of that record alone; the column keeps its type."""
    batch = read([b'{"y":1}', b'{"x":%s}' % text.encode()], known)

    assert not batch.rejects
    first, second = batch.table.to_pylist()
    assert (first["x"], first["x__json"]) == (None, None)
    assert (second["x"], second["x__json"]) == (None, text)
    assert batch.table.schema.field("x").type == read([], known).table.schema.field("x").type


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-02T03:04:05.1234567Z", datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)),
        ("2024-01-02T03:04:05", datetime(2024, 1, 2, 3, 4, 5, 0, UTC)),
        ("2024-01-02T03:04:05.9999999", datetime(2024, 1, 2, 3, 4, 5, 999999, UTC)),
        ("2024-01-02T03:04:05+02:00", datetime(2024, 1, 2, 1, 4, 5, 0, UTC)),
        ("2024-01-02T03:04:05.5-01:30", datetime(2024, 1, 2, 4, 34, 5, 500000, UTC)),
    ],
)
def test_dates_are_moments_in_utc(text: str, moment: datetime) -> None:
    """Cut to microseconds; without an offset they are UTC; together with any other form."""
    found = rows('{"x":"2021-01-01T00:00:00Z"}', json.dumps({"x": text}), known=DATES)

    assert [row["x"] for row in found] == [datetime(2021, 1, 1, tzinfo=UTC), moment]


def test_a_text_that_is_not_always_a_date_is_a_text() -> None:
    """If that shows in the first records; later ones go beside."""
    assert rows('{"x":"2024-01-01T00:00:00Z"}', '{"x":"soon"}')[1] == {"x": "soon"}


def test_columns_come_with_their_first_value() -> None:
    """Null, an empty list or an object of nulls has no type yet."""
    known = learned('{"a":1,"x":null,"y":[],"z":{"b":null}}')
    assert list(known.fields) == ["a"]

    batch = read([b'{"a":2,"x":{"b":1},"y":[1],"z":{"b":"c"}}'], known)

    assert batch.table.to_pylist() == [{"a": 2, "x": {"b": 1}, "y": [1], "z": {"b": "c"}}]


def test_an_object_may_grow() -> None:
    """A new member of an object is a new member of the struct."""
    batch = read([b'{"x":{"a":1,"b":{"c":[true]}}}', b'{"x":{"a":2}}'], OBJECTS)

    assert batch.table.to_pylist() == [
        {"x": {"a": 1, "b": {"c": [True]}}},
        {"x": {"a": 2, "b": None}},
    ]


def test_an_empty_object_makes_its_field_text() -> None:
    """Parquet has no empty struct; the field is text as a whole, under its own name."""
    assert rows('{"x":{"y":{}}}', '{"x":{"y":{"a":1}}}', '{"x":[1, 2]}', '{"x":null}') == [
        {"x": '{"y":{}}'},
        {"x": '{"y":{"a":1}}'},
        {"x": "[1, 2]"},
        {"x": None},
    ]


def test_an_empty_object_in_a_column_of_objects() -> None:
    """From then on all values of the field go beside; what is there stays."""
    batch = read([b'{"x":{"a":1,"b":{}}}', b'{"x":{"a":2}}'], OBJECTS)
    later = read([b'{"x":{"a":3}}'], batch.columns)

    assert [row["x__json"] for row in batch.table.to_pylist()] == ['{"a":1,"b":{}}', '{"a":2}']
    assert later.table.to_pylist() == [{"x": None, "x__json": '{"a":3}'}]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"x":1,"x":2}', "'x' twice"),
        ('{"x":{"a":1,"a":2}}', "'a' twice"),
        ('{"x":"\\ud800"}', "surrogates"),
        ("nonsense", "Expecting value"),
        ("[1]", "not an object"),
        ('{"x":1e-99999999999999999999}', "InvalidOperation"),
        (f'{{"y":{"1" * 5000}}}', "digits"),
    ],
)
def test_records_that_are_no_good_are_rejected(record: str, reason: str) -> None:
    """With the reason, and none of the others with them."""
    batch = read([b'{"x":1}', record.encode(), b'{"x":2}'], NO_COLUMNS)

    ((rejected, why),) = batch.rejects
    assert (rejected.decode(), reason in why) == (record, True)
    assert [row["x"] for row in batch.table.to_pylist()] == [1, 2]


def test_names_that_are_taken() -> None:
    """A field of a name that a sink needs, or that differs in case only, has another column."""
    assert rows('{"company":"a","x":1,"X":2,"y__json":3}') == [
        {"company__json": '"a"', "x": 1, "X__json": "2", "y__json__json": "3"}
    ]


@pytest.mark.parametrize("name", ["", ".x", "[0]", "\0", "a\0b", 'a"b', "a\\b", "a\nb", "Company"])
def test_any_name_is_a_name(name: str) -> None:
    """Of a field, of one that differs in case only, and of a member; numbers are summed."""
    first = json.dumps({"id": "1", name: 1.5, "o": {"a": 1}}).encode()
    second = json.dumps({"id": "2", f"{name}x": 2, f"{name}X": 3, "o": {name: 4, "a": 2}}).encode()
    one = read([first], NO_COLUMNS)
    other = read([second], one.columns)

    assert (one.rejects, other.rejects) == ([], [])
    assert sums(one.table)[""].get(name, "1.5") == "1.5"
    held = {str(value) for row in other.table.to_pylist() for value in row.values()}
    assert {"2", "3"} <= {value.removesuffix(".000000000000000000") for value in held}
    assert any("4" in value for value in held)


def test_members_that_differ_in_case_only_are_text() -> None:
    """They are one to a database, as names of fields are."""
    both = rows('{"x":{"a":1,"A":2}}', '{"x":{"a":3}}')
    other = read([b'{"x":{"A":1}}', b'{"x":{"a":2}}'], OBJECTS)

    assert both == [{"x": '{"a":1,"A":2}'}, {"x": '{"a":3}'}]
    assert other.table["x__json"].to_pylist() == ['{"A":1}', None]


TINY = [
    "1e-9999999",
    "0e-9999999",
    "1e-77",
    '"1e-9999999"',
    "0.5E-2000000",
    '"\\u002B5e-99999999"',
    '"1\\u0065-\\u0039999999"',
]
"""Arrow reads beyond a table of its own with such exponents, which ends the process."""


@pytest.mark.parametrize("tiny", TINY)
def test_an_exponent_ends_no_process(tiny: str) -> None:
    """A number that is too small for a column goes beside; texts that look like one stay."""
    items = [f'{{"id":"{uuid.uuid4()}","x":{value}}}'.encode() for value in ("1", tiny, "2")]
    nested = [f'{{"x":{{"a":{tiny}}}}}'.encode()]

    assert read(items, NUMBERS).table["x__json"].to_pylist() == [None, tiny, None]
    assert read(nested, OBJECTS).table["x__json"].to_pylist() == [f'{{"a":{tiny}}}']
    assert rows('{"x":"a"}', '{"x":"5E-1234567"}') == [{"x": "a"}, {"x": "5E-1234567"}]


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.list_(pa.decimal128(9, 2))])
def test_an_exponent_does_not_fit_a_schema(kind: pa.DataType) -> None:
    """Nor does it end the process there."""
    texts = ["1.25", "1e-9999999"]
    items = [[text] for text in texts] if pa.types.is_list(kind) else texts
    with pytest.raises(ConfigurationError, match="fit the schema"):
        in_schema(pa.table({"x": items}), pa.schema([("x", kind)]))


@pytest.mark.parametrize("depth", [100, 400, 800])
@pytest.mark.parametrize(("open_", "close"), [('{"a":', "}"), ("[", "]"), ('[{"a":', "}]")])
def test_what_is_nested_deeply_is_text(open_: str, close: str, depth: int) -> None:
    """Or, if no reader takes it at all, rejected; the other records are held up by neither."""
    deep = f"{open_ * depth}1{close * depth}"
    batch = read([b'{"x":1}', f'{{"y":{deep}}}'.encode(), b'{"x":2}'], NO_COLUMNS)
    later = read([f'{{"o":{deep},"z":1}}'.encode(), b'{"x":3}'], OBJECTS)

    for found, rows_ in ((batch, 3), (later, 2)):
        assert found.table.num_rows + len(found.rejects) == rows_
        assert depth > 400 or not found.rejects
    assert depth > 400 or deep in batch.table["y"].to_pylist()


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**22), 10**22)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.datetimes().map(datetime.isoformat),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
records = st.lists(st.dictionaries(st.sampled_from("xyz"), values, max_size=3), max_size=6)


@settings(max_examples=50)
@given(st.lists(records, min_size=1, max_size=4))
def test_nothing_is_lost(batches: Sequence[list[dict[str, Any]]]) -> None:
    """Whatever the records hold and in whatever order it comes: each value is in its column or
    beside it, and no column changes its type.
    """
    columns, types = NO_COLUMNS, dict[str, Any]()
    for batch in batches:
        texts = [json.dumps({"id": "a", **one}, default=float).encode() for one in batch]
        found = read(texts, columns)
        columns = found.columns
        assert not found.rejects
        for text, row in zip(texts, found.table.to_pylist(), strict=True):
            for field, value in json.loads(text).items():
                if holds_something(value):
                    name = columns.name(field)
                    assert row[name] is not None or row.get(f"{field}__json") is not None
        for column in found.table.schema:
            before = types.setdefault(column.name, column.type)
            grown = pa.types.is_nested(before)
            assert column.type == before or grown


def holds_something(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(holds_something, value))
    if isinstance(value, dict):
        return any(map(holds_something, value.values()))
    return value is not None


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
    """Of as many rows as asked for, with the sums of the records; the cursor is behind each."""
    expected = [(one["id"], one["totalAmount"]) for one in await invoices.collect()]

    batches = [(batch, invoices.progress.done) async for batch in invoices.arrow(rows=1_000)]

    assert [(len(batch), done) for batch, done in batches] == [
        (1_000, 1_000),
        (1_000, 2_000),
        (500, 2_500),
    ]
    table = pa.Table.from_batches([batch for batch, _ in batches])
    found = zip(table["id"].to_pylist(), table["totalAmount"].to_pylist(), strict=True)
    assert list(found) == expected


async def test_others_take_the_batches(invoices: Any) -> None:
    """By Arrow's own interface: DuckDB sums what Python sums."""
    total = sum(one["totalAmount"] for one in await invoices.collect())

    (batch,) = [batch async for batch in invoices.arrow()]

    with duckdb.connect() as database:
        database.register("invoices", batch)
        assert database.sql("SELECT sum(totalAmount) FROM invoices").fetchall() == [(total,)]


async def test_a_schema_of_ones_own(invoices: Any) -> None:
    """Its columns and types and no others; one that does not fit is refused."""
    schema = pa.schema([("id", pa.string()), ("totalAmount", pa.float64()), ("no", pa.int8())])

    (batch,) = [batch async for batch in invoices.arrow(schema=schema)]
    with pytest.raises(ConfigurationError, match="do not fit the schema"):
        await anext(invoices.arrow(schema=pa.schema([("id", pa.int64())])))

    assert batch.schema == schema
    assert batch["no"].null_count == 2_500
