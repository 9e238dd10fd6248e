"""Reading a long list: what an item costs, what latency costs, what the loop and memory feel.

Everybody reads invoices of 26 fields and 2.1 KB from one page server on another core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _plots
from benchmarks._machine import cpu_seconds
from benchmarks._peers import DLT, HTTPX, VENDOR, Peer, Turn, interleaved
from benchmarks._question import Goal, Question, Row, Rows
from benchmarks.page_server import PageServer, page_server

LIMIT = Peer("raw socket + msgspec", "raw_socket")
SERVER = Peer("receive only", "receive_only")
SDK = Peer("integration_sdk", "sdk_streaming")
AIOHTTP = Peer("aiohttp + json", "aiohttp_json")
HTTPX_JSON = Peer("httpx", "httpx_json", HTTPX)
DLT_CLIENT = Peer("dlt RESTClient", "dlt_rest_client", DLT, share=0.25)
LENDING = Peer("codat-lending", "vendor_lending", VENDOR, share=0.125)
EVERYBODY = (LIMIT, SDK, AIOHTTP, HTTPX_JSON, DLT_CLIENT, LENDING)

CPU = "CPU us/item"
SPEED = "items/s"
PEAK = "peak MiB"
STALL = "stall p99 ms"


def _turns(server: PageServer, items: int, **job: Any) -> Turn:
    """Return what a turn is: read up to *items*, and say what it took."""

    def turn(peer: Peer) -> Mapping[str, float]:
        wanted = min(items, max(round(items * peer.share), job["page_size"]))
        _ = server.requests  # forget those of the turn before
        busy = cpu_seconds(server.process)
        told = peer.work({"base_url": server.base_url, "limit": wanted, **job})
        busy = cpu_seconds(server.process) - busy
        count = told["items"]
        figures = {
            CPU: told["cpu"] / count * 1e6,
            SPEED: count / told["seconds"],
            PEAK: told["peak_mib"],
            "items": count,
            "requests, warm-up too": server.requests,
            "server busy %": busy / told["since_start"] * 100,
        }
        stalls = told["stalls"]
        if stalls:
            figures |= {STALL: stalls["p99_ms"], "stall worst ms": stalls["worst_ms"]}
        return figures

    return turn


def _only(rows: list[Row], *names: str) -> list[Row]:
    return [
        Row(
            row.setting,
            row.contender,
            {name: figure for name, figure in row.figures.items() if name in names},
            row.note,
        )
        for row in rows
    ]


# What an item costs


def streaming(quick: bool) -> Rows:
    items, rounds = (10_000, 2) if quick else (40_000, 5)
    rows: list[Row] = []
    with page_server(items) as server:
        for page_size in (5000, 1000, 100):
            turn = _turns(server, items, page_size=page_size, prefetch=8)
            peers = (SERVER, *EVERYBODY)
            rows += interleaved(_pages_of(page_size), peers, turn, rounds=rounds)
    return Rows(rows)


def _pages_of(page_size: int) -> str:
    return f"{page_size:,} a page"


def _draw_cpu(rows: Rows, folder: Path) -> list[Path]:
    setting = _pages_of(1000)
    lengths = {
        row.contender: row.figures[CPU].median
        for row in rows.rows
        if row.setting == setting and row.contender != SERVER.name and CPU in row.figures
    }
    title = "CPU per streamed record of 2.1 KB, 1,000 a page"
    return _plots.bars(folder / "streaming.png", title, "microseconds", lengths)


def _cost_goal(page_size: int) -> Goal:
    def measured(rows: Rows) -> float:
        return rows.ratio(_pages_of(page_size), SDK.name, CPU, LIMIT.name)

    what = f"CPU per dict, pages of {page_size:,}, over raw socket + msgspec"
    return Goal(what, "<=", 1.15, measured, needs_full=True)


STREAMING = Question(
    "streaming",
    "What does one streamed record cost, beside the least that it can cost?",
    streaming,
    goals=[_cost_goal(page_size) for page_size in (5000, 1000, 100)],
    compare=(CPU, LIMIT.name),
    plot=_draw_cpu,
)


# What latency costs


def latency(quick: bool) -> Rows:
    pages, rounds = (10, 1) if quick else (20, 5)
    rows: list[Row] = []
    for seconds in (0.02, 0.1):
        with page_server(pages * 1000, latency=seconds) as server:
            turn = _turns(server, pages * 1000, page_size=1000, prefetch=8)
            setting = f"{seconds * 1000:.0f} ms"
            rows += interleaved(setting, EVERYBODY, turn, rounds=rounds)
    return Rows(_only(rows, SPEED, PEAK))


LATENCY = Question(
    "latency",
    "How many records a second arrive when every answer takes its time? 1,000 a page.",
    latency,
    compare=(SPEED, LIMIT.name),
)


# What the event loop feels


def stalls(quick: bool) -> Rows:
    items, rounds = (10_000, 2) if quick else (40_000, 5)
    rows: list[Row] = []
    with page_server(items) as server:
        for page_size in (5000, 1000):
            turn = _turns(server, items, page_size=page_size, prefetch=8, watch_loop=True)
            peers = (SDK, AIOHTTP, HTTPX_JSON)
            rows += interleaved(_pages_of(page_size), peers, turn, rounds=rounds)
    return Rows(_only(rows, STALL, "stall worst ms", SPEED))


def _stall_goal(page_size: int, milliseconds: float) -> Goal:
    def measured(rows: Rows) -> float:
        return rows.median(_pages_of(page_size), SDK.name, STALL)

    what = f"event-loop stall p99 in ms, pages of {page_size:,}"
    return Goal(what, "<=", milliseconds, measured)


STALLS = Question(
    "stalls",
    "How long does reading keep the rest of a service waiting?",
    stalls,
    goals=[_stall_goal(5000, 10), _stall_goal(1000, 5)],
)


# What memory feels

WINDOWS = ((5000, 4, 64), (1000, 8, 30), (100, 8, 16))
"""Page size, pages ahead, and MiB allowed."""


def memory(quick: bool) -> Rows:
    many = 100_000 if quick else 1_000_000
    rows: list[Row] = []
    with page_server(many) as server:
        for page_size, prefetch, _ in WINDOWS:
            for items in (many // 4, many):
                setting = f"{_pages_of(page_size)}, {items:,} items"
                turn = _turns(server, items, page_size=page_size, prefetch=prefetch)
                rows += interleaved(setting, _readers(page_size, items, many), turn, rounds=1)
    return Rows(_only(rows, PEAK, SPEED))


def _readers(page_size: int, items: int, many: int) -> Sequence[Peer]:
    """Return who reads; others than the SDK once, since theirs is a page at a time."""
    return (SDK, AIOHTTP, HTTPX_JSON) if (page_size, items) == (5000, many // 4) else (SDK,)


def _memory_goals(page_size: int, mib: float) -> list[Goal]:
    def peak(rows: Rows) -> float:
        return rows.median(f"{_pages_of(page_size)}, 1,000,000 items", SDK.name, PEAK)

    def growth(rows: Rows) -> float:
        return peak(rows) - rows.median(f"{_pages_of(page_size)}, 250,000 items", SDK.name, PEAK)

    what = f"1M items, pages of {page_size:,}:"
    return [
        Goal(f"{what} MiB over base", "<=", mib, peak, needs_full=True),
        Goal(f"{what} MiB more than for a quarter", "<=", 4, growth, needs_full=True),
    ]


MEMORY = Question(
    "memory",
    "How much memory does a million records take, and does it grow on the way?",
    memory,
    goals=[goal for size, _, mib in WINDOWS for goal in _memory_goals(size, mib)],
)

QUESTIONS = (STREAMING, LATENCY, STALLS, MEMORY)
