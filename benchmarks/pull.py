"""What it costs to bring a hundred thousand invoices into files and databases.

From a sandbox in a process of its own, 2.1 KB each, pages of 1,000. "raw() alone" reads and writes
nothing; "from memory" feeds the same sink with records that are there already; "in the loop"
reads and writes in one task, without threads. The script is aiohttp, json and a line of NDJSON.

    python -m benchmarks pull
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks._goals import GOALS
from benchmarks._machine import pinned_to_last_core
from benchmarks._peers import Peer, peers_in_turn
from benchmarks._postgres import new_database, postgres
from benchmarks._question import Question, Row, Rows
from benchmarks._servers import in_own_process
from integration_sdk.sandbox import Sandbox

UNITS = 3
SPEED, CPU, PEAK = "rows/s", "CPU us/row", "peak MiB"


def _peer(name: str, how: str) -> Peer:
    return Peer(name, "pulling", told={"model": how})


READERS = (
    _peer("raw() alone", "raw"),
    _peer("aiohttp + json script", "script"),
)


def _sinks(*formats: str) -> tuple[Peer, ...]:
    kinds = (("pull", "pull"), ("from memory", "memory"), ("in the loop", "loop"))
    return tuple(_peer(f"{one}, {name}", f"{how}:{one}") for one in formats for name, how in kinds)


def pull(quick: bool) -> Rows:
    """Measure each of them."""
    invoices, rounds = (4_000, 1) if quick else (40_000, 3)
    setting = f"{UNITS * invoices:,} invoices"
    rows: list[Row] = []
    with _server(invoices) as server, postgres() as database:
        peers = (*READERS, *_sinks("ndjson", "parquet", "duckdb", "postgres"))

        def turn(peer: Peer) -> Mapping[str, float]:
            url = new_database(database)
            lanes = [(url, ""), *((company, "") for company in server["companies"])]
            job = {"base_url": server["base_url"], "api_key": server["api_key"], "lanes": lanes}
            told = peer.work(job, seconds=300)
            return {
                SPEED: told["items"] / told["seconds"],
                CPU: told["cpu"] / told["items"] * 1e6,
                PEAK: told["peak_mib"],
            }

        rows += peers_in_turn(setting, peers, turn, rounds=rounds)
    return Rows(rows)


@contextmanager
def _server(invoices: int) -> Iterator[Mapping[str, Any]]:
    with in_own_process(_serve, invoices) as (pipe, _):
        yield pipe.recv()


def _serve(pipe: Connection, invoices: int) -> None:
    pinned_to_last_core()
    asyncio.run(_run(pipe, invoices))


async def _run(pipe: Connection, invoices: int) -> None:
    async with Sandbox(companies=UNITS, invoices=invoices, remember=0) as sandbox:
        companies = [company.id for company in sandbox.companies]
        told = {"base_url": sandbox.base_url, "api_key": sandbox.api_key, "companies": companies}
        pipe.send(told)
        await asyncio.Event().wait()


PULL = Question(
    "pull",
    "What does it cost to bring records into files and databases, beside reading alone?",
    pull,
    goals=GOALS["pull"],
    compare=(SPEED, "raw() alone"),
)
QUESTIONS = (PULL,)
