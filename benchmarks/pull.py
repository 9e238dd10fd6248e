"""What it costs to bring a hundred thousand invoices into files and databases.

From a sandbox in a process of its own, 2.1 KB each, pages of 1,000. "raw() alone" reads and writes
nothing; "from memory" feeds the same sink with records that are there already; "in the loop"
reads and writes in one task, without threads. The script is aiohttp, json and a line of NDJSON.

    python -m benchmarks pull
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks._contenders import Peer, peers_in_turn
from benchmarks._postgres import new_database, postgres
from benchmarks._question import Pick, Rows, at_least, question
from benchmarks._servers import sandbox_server

UNITS = 3
RAW, SCRIPT = "raw() alone", "aiohttp + json script"
SPEED, CPU, PEAK = "rows/s", "CPU us/row", "peak MiB"


def _peer(name: str, how: str) -> Peer:
    return Peer(name, "pulling:prepare", told={"model": how})


READERS = (_peer(RAW, "raw"), _peer(SCRIPT, "script"))


def _sinks(*formats: str) -> tuple[Peer, ...]:
    kinds = (("pull", "pull"), ("from memory", "memory"), ("in the loop", "loop"))
    return tuple(_peer(f"{one}, {name}", f"{how}:{one}") for one in formats for name, how in kinds)


def _speed(contender: str, over: str) -> Pick:
    return Pick("120,000 invoices", contender, SPEED, over=over)


@question(
    "What does it cost to bring records into files and databases, beside reading alone?",
    at_least(
        3.0,
        "pull to NDJSON over a script of aiohttp and json",
        _speed("ndjson, pull", SCRIPT),
        headline=True,
    ),
    at_least(
        0.8,
        "pull to Parquet over the same sink fed from memory",
        _speed("parquet, pull", "parquet, from memory"),
    ),
    at_least(  # where client and sandbox share two cores
        1.0,
        "pull to Parquet with two threads over conversion in the loop",
        _speed("parquet, pull", "parquet, in the loop"),
    ),
    compare=(SPEED, RAW),
)
def pull(quick: bool) -> Rows:
    """Measure each of them."""
    invoices, rounds = (4_000, 1) if quick else (40_000, 3)
    peers = (*READERS, *_sinks("ndjson", "parquet", "duckdb", "postgres"))
    with sandbox_server(companies=UNITS, invoices=invoices) as server, postgres() as database:

        def turn(peer: Peer) -> Mapping[str, float]:
            job = server.job()
            lanes = ((new_database(database), ""), *job.lanes)
            told = peer.work(replace(job, lanes=lanes), seconds=300)
            return {
                SPEED: told["items"] / told["seconds"],
                CPU: told["cpu"] / told["items"] * 1e6,
                PEAK: told["peak_mib"],
            }

        return Rows(peers_in_turn(f"{UNITS * invoices:,} invoices", peers, turn, rounds=rounds))
