"""The turn of a contender that reads a long list, and its figures.

All contenders read invoices of 26 fields and 2.1 KB from one page server on another core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks._machine import cpu_seconds
from benchmarks._page_server import PageServer
from benchmarks._peers import Peer, PeerTurn
from benchmarks._question import Row, Rows

CPU = "CPU us/item"
SPEED = "items/s"
PEAK = "peak MiB"
STALL = "stall p99 ms"
WORST = "stall worst ms"
SECONDS = "s"
BUSY = "server busy %"


def reading(server: PageServer, items: int, **job: Any) -> PeerTurn:
    """Return a turn that reads up to *items* and returns its figures."""

    def turn(peer: Peer) -> Mapping[str, float]:
        wanted = min(items, max(round(items * peer.share), job["page_size"]))
        _ = server.requests  # reset the count of the turn before
        busy = cpu_seconds(server.process)
        told = peer.work({"base_url": server.base_url, "limit": wanted, **job})
        busy = cpu_seconds(server.process) - busy
        count, stalls = told["items"], told["stalls"]
        return {
            CPU: told["cpu"] / count * 1e6,
            SPEED: count / told["seconds"],
            SECONDS: told["seconds"],
            PEAK: told["peak_mib"],
            "items": count,
            "requests": server.requests,
            BUSY: busy / told["since_start"] * 100,
            **({STALL: stalls["p99_ms"], WORST: stalls["worst_ms"]} if stalls else {}),
        }

    return turn


def pages_of(page_size: int) -> str:
    """Return the name of a page size in tables."""
    return f"{page_size:,} a page"


def only(rows: list[Row], *names: str) -> Rows:
    """Return *rows* with only the figures in *names*."""
    return Rows(
        Row(
            row.setting,
            row.contender,
            {name: row.figures[name] for name in names if name in row.figures},
            row.note,
        )
        for row in rows
    )
