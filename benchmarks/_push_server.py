"""The sandbox in a process of its own, on the machine's last core, to push to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Literal

from attrs import frozen

from benchmarks._machine import pinned_to_last_core
from benchmarks._servers import in_own_process
from integration_sdk.sandbox import Sandbox


@frozen
class Served:
    """What the server has seen.

    Attributes:
        requests: Number of requests answered.
        ended: When each push ended, in seconds since 1970, by key.
    """

    requests: int
    ended: dict[str, float]


@frozen
class PushServer:
    """The server's address."""

    base_url: str
    api_key: str
    lanes: tuple[tuple[str, str], ...]
    process: int
    _pipe: Connection

    def served(self) -> Served:
        """Return what the server has seen so far."""
        self._pipe.send("served")
        return Served(*self._pipe.recv())


@contextmanager
def push_server(
    companies: int,
    seconds: tuple[float, float],
    *,
    dialect: Literal["document", "published"] = "published",
) -> Iterator[PushServer]:
    """Serve *companies* whose platform takes between the two *seconds* for a push."""
    settings = {"companies": companies, "push_seconds": seconds, "dialect": dialect}
    with in_own_process(_serve, settings) as (pipe, process):
        base_url, api_key, lanes = pipe.recv()
        yield PushServer(base_url, api_key, lanes, process, pipe)


def _serve(pipe: Connection, settings: dict[str, Any]) -> None:
    pinned_to_last_core()
    asyncio.run(_run(pipe, settings))


async def _run(pipe: Connection, settings: dict[str, Any]) -> None:
    sandbox = Sandbox(invoices=0, remember=0, **settings)
    async with sandbox:
        behind = time.time() - sandbox.clock.now()
        lanes = tuple((company.id, company.connections[0].id) for company in sandbox.companies)
        pipe.send((sandbox.base_url, sandbox.api_key, lanes))

        def tell() -> None:
            pipe.recv()
            ended = {
                push.key: push.completed + behind
                for push in sandbox.pushes
                if push.completed is not None
            }
            pipe.send((sandbox.served, ended))

        asyncio.get_running_loop().add_reader(pipe.fileno(), tell)
        await asyncio.Event().wait()
