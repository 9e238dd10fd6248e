"""Flat columns: nothing that a record holds is lost, and no column changes its type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from integration_sdk import Client
from integration_sdk._records.columns import Kinds, names, table
from integration_sdk.errors import ConfigurationError

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
FOLDERS = ["company", "connection", "account"]
"""A pull names its folders so: to readers of Parquet these are columns, too."""
FIELDS = [*FOLDERS, "a", "b", "c", "A", "a__json", "B__JSON", "", "nul\0", "'; \"", "ß", "SS"]

values = st.sampled_from([*POOLS, "number", "time"]).flatmap(
    lambda pool: st.sampled_from(POOLS[pool])
)
records = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)


def written(record: dict[str, str]) -> bytes:
    return (
        "{" + ",".join(f"{json.dumps(name)}:{raw}" for name, raw in record.items()) + "}"
    ).encode()


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


@settings(max_examples=120)
@given(st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=3), st.booleans())
@example([[{"a": number} for number in NUMBERS]], False)
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
        taken = {name.lower() for name in found.column_names}
        assert len(taken) == found.num_columns
        assert not taken & {*FOLDERS}
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


def test_most_values_say_what_a_column_holds() -> None:
    """An odd first value does not make a column of numbers, or of times, one of texts for good."""
    days = [b'"2024-05-31T09:30:00Z"', b'"2024-06-01T09:30:00Z"']
    rows = zip([b'"n/a"', b"1", b"2.5"], [b"0", *days], strict=True)
    found = table([b'{"amount":%b,"day":%b}' % row for row in rows], {})

    assert found["amount"].to_pylist() == [None, Decimal(1), Decimal("2.5")]
    assert found["amount__json"].to_pylist() == ['"n/a"', None, None]
    assert found["day"].to_pylist()[1] == datetime(2024, 5, 31, 9, 30, tzinfo=UTC)


def test_an_id_is_a_text() -> None:
    """Rows can be told apart by one column, whether ids are texts, numbers, or both."""
    found = table([b'{"id":7}', b'{"id":"007"}', b'{"id":null}', b'{"id":{}}'], {})

    assert found["id"].to_pylist() == ["7", "007", None, None]
    assert found["id__json"].to_pylist() == [None, None, None, "{}"]


@pytest.mark.parametrize(
    ("broken", "text"),
    [(rb'"a\ud83d"', "a\ufffd"), (b'"a\xff"', "a\ufffd"), (b'"\xe2\x82"', "\ufffd")],
)
def test_what_is_no_text_is_replaced(broken: bytes, text: str) -> None:
    """Half a surrogate pair and invalid UTF-8 spoil neither their record nor the others."""
    found = table([b'{"x":"b"}', b'{"x":' + broken + b',"y":{"z":' + broken + b"}}"], {})

    assert found["x"].to_pylist() == ["b", text]
    assert "\ufffd" in json.loads(found["y"].to_pylist()[1])["z"]


def test_rows_of_any_shape() -> None:
    """What is no object is kept as JSON text, and empty objects are rows, too."""
    found = table([b"[1]", b'{"x":1}', b"3"], {})

    assert found["__json"].to_pylist() == ["[1]", None, "3"]
    assert table([b"{}", b"{}"], {}).num_rows == 2


@pytest.mark.integration_sandbox(companies=1, invoices=2_500)
async def test_a_list_in_batches(integration_client: Client) -> None:
    """Of as many rows as asked for; the cursor is behind each; numbers are of two kinds."""
    company = await integration_client.companies.list().one()
    records = integration_client.company(company["id"]).data("invoices")
    invoices: Any = records.list(page_size=1000, numbers="decimal")
    with pytest.raises(ConfigurationError, match="numbers must be 'decimal' or 'float'"):
        invoices.arrow(numbers="int")
    expected = [(one["id"], one["totalAmount"]) for one in await invoices.collect()]

    batches = [(batch, invoices.report.items) async for batch in invoices.arrow(rows=1_000)]

    counts = [(len(batch), done) for batch, done in batches]
    assert counts == [(1_000, 1_000), (1_000, 2_000), (500, 2_500)]
    whole = pa.concat_tables(
        [pa.Table.from_batches([batch]) for batch, _ in batches], promote_options="default"
    )
    found = zip(whole["id"].to_pylist(), whole["totalAmount"].to_pylist(), strict=True)
    assert list(found) == expected
