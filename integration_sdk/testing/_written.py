"""Reads records from what programs write: NDJSON, CSV, Parquet, SQLite, DuckDB."""

from __future__ import annotations

import csv
import gzip
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from integration_sdk._checks import needed

Record = dict[str, Any]
_SQLITE: Final = b"SQLite format 3\0"


def records_in(path: Path, data_type: str) -> Iterator[Record]:
    """Yield the records of *data_type* in a file, or in all files below a folder.

    A folder may be one that ``pull`` has written. A database has a table of that name, or only one.

    Raises:
        ValueError: There is nothing to read, or a line or a file is damaged.
    """
    if path.is_dir():
        of_pull = (path / data_type).is_dir()
        files = sorted((path / data_type if of_pull else path).rglob("*"))
        for file in files:
            if file.is_file() and not any(
                part.startswith(("_", ".")) for part in _below(file, path)
            ):
                yield from records_in(file, data_type)
        return
    if not path.is_file():
        raise ValueError(f"there is no {path.name}")
    try:
        yield from _reader(path)(path, data_type)
    except (OSError, ValueError, msgspec.MsgspecError, sqlite3.Error) as error:
        raise ValueError(f"{path.name}: {error}") from error


def _below(file: Path, path: Path) -> tuple[str, ...]:
    return file.relative_to(path).parts


def is_sqlite(path: Path) -> bool:
    """Return whether a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _reader(path: Path) -> Callable[[Path, str], Iterator[Record]]:
    if is_sqlite(path):
        return _sqlite
    for suffix, reader in READERS.items():
        if path.name.endswith(suffix):
            return reader
    raise ValueError(f"it is none of {', '.join(READERS)} and SQLite")


def _lines(path: Path, _type: str) -> Iterator[Record]:
    for number, line in enumerate(_text(path).splitlines(), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.MsgspecError as error:
                raise ValueError(f"line {number}: {error}") from None


def _text(path: Path) -> bytes:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".zst":
        zstandard = needed("zstandard", "zstd", "a .zst file")
        with path.open("rb") as file:
            text: bytes = zstandard.ZstdDecompressor().stream_reader(file).read()
            return text
    return path.read_bytes()


def _csv(path: Path, _type: str) -> Iterator[Record]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _parquet(path: Path, _type: str) -> Iterator[Record]:
    needed("pyarrow", "arrow", "a .parquet file")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    for batch in parquet.ParquetFile(path).iter_batches():
        yield from batch.to_pylist()


def _sqlite(path: Path, data_type: str) -> Iterator[Record]:
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = [
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for row in db.execute(f'SELECT * FROM "{_table(names, data_type)}"'):  # noqa: S608
            yield dict(row)


def _duckdb(path: Path, data_type: str) -> Iterator[Record]:
    duckdb = needed("duckdb", "duckdb", "a .duckdb file")
    with duckdb.connect(str(path), read_only=True) as db:
        names = [row[0] for row in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        rows = db.execute(f'SELECT * FROM "{_table(names, data_type)}"')  # noqa: S608
        columns = [column[0] for column in rows.description]
        for row in rows.fetchall():
            yield dict(zip(columns, row, strict=True))


def _table(names: list[str], data_type: str) -> str:
    if data_type in names or len(names) == 1:
        return data_type if data_type in names else names[0]
    raise ValueError(f"there is no table {data_type} among {', '.join(names) or 'none'}")


READERS: Final[dict[str, Callable[[Path, str], Iterator[Record]]]] = {
    ".ndjson": _lines,
    ".ndjson.gz": _lines,
    ".ndjson.zst": _lines,
    ".jsonl": _lines,
    ".csv": _csv,
    ".parquet": _parquet,
    ".duckdb": _duckdb,
}
