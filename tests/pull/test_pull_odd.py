"""Records as they come: uneven, with odd values; what is read back is what was sent."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import integration_sdk
from tests.support.postgres import fetch
from tests.support.pull_support import STAMP, Place, Record, serving, stamped

GUIDE = (Path(integration_sdk.__file__).parent / "docs/guides/pull.md").read_text()
ODD = [
    *("8.0", "20", "0.1234567890123456789", "1.0823456789012345", "1e-06", "1E5", "1e400", "-0"),
    *("12345678901234567890123", "1e-30", "true", "false", "null", "[]", "{}", '""', '"00123"'),
    *('"12E4"', '" 5"', '"NullId"', '"it\'s \\"quoted\\""', '"tab\\tand\\nline"', '"\\u0000"'),
    *('"2024-02-29T12:00:00.1234567"', '"2024-02-30T00:00:00Z"', '"0000-01-01T00:00:00Z"'),
    *('"2024-05-05T23:30:00+02:00"', '"2021-01-01T00:00:00"', '"\\ud83d\\ude00"', '"\u00e9"'),
    *('{"rate":1.12345678901234567890,"a":[1e-07]}', '[{"x":null}]', '"\\\\N"', '"a\\\\b"'),
]
NAMES = ["amount", "Amount", "dueDate", "ref", "note", "", "xmin", "record", "company", "b__json"]
NAMES += ["select", 'say "so"', "x" * 80, "über", "a b", "0", "lineItems", "isPaid", "source"]


def uneven(count: int, seed: int) -> list[str]:
    """Texts of records with any of the names and values, a name mostly with one kind of value."""
    chance = random.Random(seed)
    usual = {name: chance.choice(ODD) for name in NAMES}
    records = []
    for n in range(count):
        some = chance.sample(NAMES, chance.randrange(len(NAMES)))
        fields = {
            name: chance.choice([usual[name], usual[name], chance.choice(ODD)]) for name in some
        }
        fields |= {"id": f'"i{n}"', "modifiedDate": f'"{stamped(n)}"'}
        records.append("{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in fields.items()) + "}")
    return records


def exact(value: Any) -> Any:
    """A value as it is compared: numbers by their digits, times as moments, JSON decoded."""
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT.*\d", value):
        try:
            moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value))
        except ValueError:
            return value
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: exact(member) for name, member in value.items()}
    if isinstance(value, list):
        return [exact(member) for member in value]
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return Decimal(value) if is_number else value


def decoded(text: str) -> Any:
    return exact(json.loads(text, parse_float=Decimal, parse_int=Decimal))


def value_of(row: Record, name: str, kinds: dict[str, str]) -> Any:
    """What a row of flat columns says of a field."""
    beside = [row[one] for one in (f"{name}__json", f"{name}__json__json") if row.get(one)]
    own = None if name.endswith("__json") else row.get(name)
    if beside or kinds.get(name) == "json":
        assert not beside or own is None
        text = beside[0] if beside else own
        return None if text is None else decoded(text)
    return exact(own)


def by_lines(folder: Path, lines: list[str]) -> dict[str, Any]:
    """Run lines of the guide, as they are there, on another folder."""
    known: dict[str, Any] = {"duckdb": duckdb, "polars": pl, "pyarrow": pa, "Path": Path}
    for line in lines:
        assert line in GUIDE
        exec(line.replace("out/invoices", str(folder)), known)  # noqa: S102 (the line of our own page)
    return known


def lines_of(start: str) -> str:
    found = re.search(rf"^{re.escape(start)}.*?(?=^\w|\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0].strip("\n")


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
async def test_what_is_read_back_is_what_was_sent(
    seed: int, tmp_path: Path, database: Place
) -> None:
    """By duckdb, polars, pandas and pyarrow from parts, and by both databases from tables."""
    sent = {company: uneven(60, seed * 10 + n) for n, company in enumerate("abc")}
    texts = {f"{company}{n}": text for company in sent for n, text in enumerate(sent[company])}
    books: Any = {
        company: {
            "invoices": [{"text": f"{company}{n}", "modifiedDate": stamped(n)} for n in range(60)]
        }
        for company in sent
    }
    write = lambda row: texts[row["text"]] if "text" in row else json.dumps(row)
    async with serving(books, texts=write) as (_, client):
        for to in (tmp_path / "out", tmp_path / "x.duckdb", database.to):
            format_ = "parquet" if to == tmp_path / "out" else None
            options: Any = {"format": format_, "part_bytes": 2_000, "companies": ["a", "b", "c"]}
            receipt = await client.pull(["invoices"], to=to, **options)
            assert (receipt.rows, receipt.errors) == (180, [])
    starts = ("parts =", "newest =", "frame =", "table =", "books = ")
    found = by_lines(tmp_path / "out/invoices", [lines_of(start) for start in starts])
    with duckdb.connect(str(tmp_path / "x.duckdb")) as duck:
        from_table = duck.sql("SELECT * FROM invoices_view").to_arrow_table().to_pylist()
    found_by = {
        "pyarrow": found["table"].to_pylist(),
        "pandas": found["books"]
        .astype(object)
        .where(found["books"].notna(), None)
        .to_dict("records"),
        "polars": found["frame"].to_dicts(),
        "duckdb of files": found["newest"].to_arrow_table().to_pylist(),
        "duckdb": from_table,
        "postgres": [
            dict(row) for row in await fetch(str(database.to), "SELECT * FROM invoices_view")
        ],
    }
    ((learned,),) = await database.select("SELECT learned FROM _pull_tables")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as duck:
        ((known,),) = duck.execute("SELECT learned FROM _pull_tables").fetchall()
    of_files = json.loads((tmp_path / "out/_state/invoices.columns.json").read_text())
    kinds = {"postgres": json.loads(learned)["kinds"], "duckdb": json.loads(known)["kinds"]}
    for name, rows in found_by.items():
        assert len(rows) == 180, name
        for row in rows:
            record = decoded(sent[row["company"]][int(row["id"][1:])])
            for field_ in record.keys() - {"id", "company", ""}:
                if name in {"duckdb", "postgres"} and (
                    field_ in {"xmin", "record"} or len(field_) > 50
                ):
                    continue  # in the record only
                value, got = record[field_], value_of(row, field_, kinds.get(name, of_files))
                if "\0" in (value, got):  # no text of PostgreSQL can hold it
                    value, got = value.replace("\0", ""), got.replace("\0", "")
                assert got == value, (name, field_)


async def test_a_bad_record_stops_nobody(place: Place) -> None:
    """Half a surrogate, invalid UTF-8, 2,000 fields, an id twice, no object: all are stored."""
    bad = [
        '{"id":"1","modifiedDate":"%s","note":"cut \\ud83d"}',
        '{"id":"2","modifiedDate":"%s","note":"\udcff"}',
        '{"id":"3","modifiedDate":"%s",' + ",".join(f'"f{n}":{n}' for n in range(2_000)) + "}",
        '{"id":"4","modifiedDate":"%s","note":"old"}',
        '{"id":"4","modifiedDate":"%s","note":"new"}',
        '{"id":"' + "long" * 1_000 + '","modifiedDate":"%s"}',
        '{"id":"5","modifiedDate":"%s","deep":' + "[" * 100 + "]" * 100 + "}",
    ]
    books = {"a": {"invoices": [{"n": n, "modifiedDate": STAMP} for n in range(len(bad))]}}
    write = lambda row: bad[row["n"]] % STAMP if "n" in row else json.dumps(row)
    async with serving(books, texts=write) as (_, client):
        receipt = await client.pull(["invoices"], **place.options)
        (unit,) = receipt.units
        again = await client.pull(["invoices"], **place.options)

    assert (receipt.errors, unit.mended, again.errors) == ([], 2, [])
    assert again.rows == 0
    rows = {row["id"][:9]: row for row in await place.rows()}
    assert len(rows) == 6
    assert rows["1"]["note"] == "cut \ufffd"
    assert rows["2"]["note"].strip("\ufffd") == ""
    assert rows["4"]["note"] == "new"  # of two states with one id and date, the last counts
    assert rows["3"]["f1999"] == 1999
    if place.format == "ndjson":
        query = f"SELECT * FROM read_ndjson('{place.to}/invoices/**/part-*')"
        assert len(duckdb.connect().execute(query).fetchall()) == 6
