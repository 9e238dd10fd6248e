"""Makes a pull of what people write: checks the arguments, finds sink and store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import integration_sdk
from integration_sdk._checks import needed, one_of, true_or_false, whole_number
from integration_sdk._context import RequestContext
from integration_sdk._pull.duckdb import DuckDb
from integration_sdk._pull.files import STORE, Files, Ndjson, Parquet, written_format
from integration_sdk._pull.postgres import Postgres
from integration_sdk._pull.pull import Elsewhere, Pull
from integration_sdk._pull.sink import Sink
from integration_sdk._pull.units import PullOptions
from integration_sdk._store.database import shown
from integration_sdk._store.rows import Documents
from integration_sdk._store.store import Store, is_url
from integration_sdk.errors import ConfigurationError

FORMATS: Final = ("ndjson", "parquet", "duckdb", "postgres")
MOST: Final = 1 << 50
LEAST: Final = 1 << 20


def pull(
    client: integration_sdk.Client,
    *,
    context: RequestContext,
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
    dask: Any,
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
    if not isinstance(store, Store | str | os.PathLike | None):
        raise ConfigurationError(f"store must be a Store, a path or a URL, not {store!r}")
    several = is_url(store) or (isinstance(store, Store) and store.shared)
    sink = open_sink(to, format_, compression, tokens=several)
    # Without a store of its own: a file beside, or the database itself.
    beside: str | Path = Path(to) / STORE
    if sink.format == "duckdb":
        beside = Path(f"{to}-pull.db")
    elif sink.format == "postgres":
        beside = str(to)

    service = str(context.session.base_url), client.dialect.name
    documents = partial(_documents, store, beside, *service)
    elsewhere: Elsewhere | None = None
    if dask is not None:
        needed("distributed", "dask", "a pull on Dask")
        from integration_sdk._pull.dask import on_cluster  # noqa: PLC0415 - an extra

        elsewhere = on_cluster(
            dask,
            context,
            store=store or beside,
            to=str(to),
            format_=sink.format,
            compression=compression,
            options=options,
        )
    return Pull(client, sink, documents, options, elsewhere)


def _names(argument: str, given: Iterable[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys([given] if isinstance(given, str) else given))
    for name in names:
        if not name:
            raise ConfigurationError(f"a name in {argument} is empty")
    return names


def format_of(to: str | os.PathLike[str]) -> str:
    """Return the format that is meant by *to*, or that was written there."""
    if is_url(to):
        return "postgres"
    if str(to).endswith(".duckdb"):
        return "duckdb"
    return written_format(Path(to)) or "ndjson"


def open_sink(
    to: str | os.PathLike[str], format_: str | None, compression: str | None, *, tokens: bool
) -> Sink:
    """Return the place to write to; with *tokens*, several processes may.

    Raises:
        ConfigurationError: There is no such format, it does not write there, or a package is
            missing.
    """
    format_ = format_ or format_of(to)
    one_of("format", format_, FORMATS)
    if compression is not None:
        one_of("compression", compression, ("gz", "zst"))
        if format_ != "ndjson":
            raise ConfigurationError(f"compression is for ndjson; {format_} is compressed anyway")
    is_database = format_ == "postgres"
    if not (is_url(to) if is_database else "://" not in str(to)):
        place = "postgresql:// URL" if is_database else "path"
        raise ConfigurationError(f"format {format_!r} writes to a {place}, not {shown(to)}")
    if is_database:
        return Postgres(str(to))
    if format_ == "duckdb":
        return DuckDb(Path(to))
    if format_ == "parquet":
        return Files(Path(to), Parquet(), tokens)
    return Files(Path(to), Ndjson(compression), tokens)


@asynccontextmanager
async def _documents(
    store: Any, default: str | Path, base_url: str, dialect: str
) -> AsyncIterator[Documents]:
    """Lend the documents of *store*, which is closed behind it if it was given by its name."""
    if isinstance(store, Store):
        yield await store.documents(base_url=base_url, dialect=dialect)
        return
    if isinstance(default, Path) and store is None:
        default.parent.mkdir(parents=True, exist_ok=True)
    async with Store(default if store is None else store) as ours:
        yield await ours.documents(base_url=base_url, dialect=dialect)
