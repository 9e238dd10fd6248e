"""Makes a pull of what people write: checks the arguments, finds sink and store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import integration_sdk
from integration_sdk._checks import one_of, true_or_false, whole_number
from integration_sdk._pull.duckdb import DuckDb
from integration_sdk._pull.files import STORE, Files, Ndjson, Parquet
from integration_sdk._pull.postgres import Postgres
from integration_sdk._pull.pull import Pull, PullOptions
from integration_sdk._pull.sink import Sink
from integration_sdk._pull.state import Identity
from integration_sdk._store.store import is_url
from integration_sdk._store2.rows import Documents
from integration_sdk._store2.sqlite import SqliteDocuments, SqliteThread
from integration_sdk.errors import ConfigurationError

FORMATS: Final = ("ndjson", "parquet", "duckdb", "postgres")
MOST: Final = 1 << 50
LEAST: Final = 1 << 20


def pull(
    client: integration_sdk.Client,
    *,
    base_url: str,
    data_types: Iterable[str],
    to: str | os.PathLike[str],
    format_: str | None,
    companies: Iterable[str] | None,
    full: bool,
    store: Any,
    compression: str | None,
    at_once: int,
    max_bytes: int,
    part_bytes: int,
) -> Pull:
    """Return the pull that these arguments of `Client.pull` ask for.

    Raises:
        ConfigurationError: One of them cannot work.
    """
    true_or_false("full", full)
    options = PullOptions(
        data_types=_names("data_types", data_types),
        companies=None if companies is None else _names("companies", companies),
        full=full,
        at_once=whole_number("at_once", at_once, 1, 1_000),
        max_bytes=whole_number("max_bytes", max_bytes, LEAST, MOST),
        part_bytes=whole_number("part_bytes", part_bytes, 1, MOST),
    )
    if not options.data_types:
        raise ConfigurationError('name a data type, such as "invoices"')
    sink = open_sink(to, format_, compression)
    beside = Path(f"{to}-pull.db") if sink.format == "duckdb" else Path(to) / STORE

    def identity(sink: Sink) -> Identity:
        return Identity(
            target=sink.target, format=sink.format, base_url=base_url, dialect=client.dialect.name
        )

    def documents() -> AbstractAsyncContextManager[Documents]:
        return _documents(store, beside)

    return Pull(client, identity, sink, documents, options)


def _names(argument: str, given: Iterable[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys([given] if isinstance(given, str) else given))
    for name in names:
        if not name:
            raise ConfigurationError(f"a name in {argument} is empty")
    return names


def open_sink(to: str | os.PathLike[str], format_: str | None, compression: str | None) -> Sink:
    """Return the place to write to.

    Raises:
        ConfigurationError: There is no such format, or a package is missing.
    """
    if format_ is None:
        is_file = str(to).endswith(".duckdb")
        format_ = "postgres" if is_url(to) else "duckdb" if is_file else "ndjson"
    one_of("format", format_, FORMATS)
    if compression is not None:
        one_of("compression", compression, ("gz", "zst"))
        if format_ != "ndjson":
            raise ConfigurationError(f"compression is for ndjson; {format_} is compressed anyway")
    if format_ == "postgres":
        return Postgres(str(to))
    if format_ == "duckdb":
        return DuckDb(Path(to))
    if format_ == "parquet":
        return Files(Path(to), Parquet())
    return Files(Path(to), Ndjson(compression))


@asynccontextmanager
async def _documents(store: Any, default: Path) -> AsyncIterator[Documents]:
    if not isinstance(store, str | os.PathLike | None):
        yield store
        return
    if store is None:
        default.parent.mkdir(parents=True, exist_ok=True)
    file = await SqliteThread.open(default if store is None else Path(store), "default")
    try:
        yield SqliteDocuments(file)
    finally:
        await file.close()
