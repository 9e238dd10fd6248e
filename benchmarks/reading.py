"""What it takes to read a long list: CPU, memory, stalls of the loop, and time.

All contenders read invoices of 26 fields and 2.1 KB from one page server on another core.

- `streaming`: the limit is a blocking socket and msgspec. "aiohttp + msgspec" is the best that
  aiohttp allows: a page at a time, decoded by the faster of the two ways, nothing else. "aiohttp +
  json" is what most people write. "receive only" decodes nothing: the server's own limit.
- `stalls`: a timer that should fire every millisecond runs beside the reader. What counts is how
  late it is, including the ticks that a stall suppresses.
"""

# mypy: disable-error-code="import-not-found"
# matplotlib is an extra.

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks._contenders import (
    AIOHTTP,
    AIOHTTP_MSGSPEC,
    DLT_CLIENT,
    HTTPX_JSON,
    LENDING,
    RAW_SOCKET,
    SDK,
    Peer,
    peers_in_turn,
)
from benchmarks._machine import ROOT, cpu_seconds
from benchmarks._question import Figure, Goal, Pick, Row, Rows, at_least, at_most, question
from benchmarks._servers import PageServer, page_server
from benchmarks.peers._frame import Job

CPU, SPEED, PEAK, SECONDS = "CPU us/item", "items/s", "peak MiB", "s"
STALL, WORST, BUSY = "stall p99 ms", "stall worst ms", "server busy %"


def _reading(server: PageServer, items: int, **told: Any) -> Callable[[Peer], Mapping[str, float]]:
    """Return a turn that reads up to *items* and returns its figures."""

    def turn(peer: Peer) -> Mapping[str, float]:
        limit = min(items, max(round(items * peer.share), told["page_size"]))
        requests, busy = server.requests, cpu_seconds(server.process)
        seen = peer.work(Job(server.base_url, limit=limit, **told))
        busy = cpu_seconds(server.process) - busy
        count, stalls = seen["items"], seen["stalls"]
        return {
            CPU: seen["cpu"] / count * 1e6,
            SPEED: count / seen["seconds"],
            SECONDS: seen["seconds"],
            PEAK: seen["peak_mib"],
            "items": count,
            "requests": server.requests - requests,
            BUSY: busy / seen["since_start"] * 100,
            **({STALL: stalls["p99_ms"], WORST: stalls["worst_ms"]} if stalls else {}),
        }

    return turn


def _pages_of(page_size: int) -> str:
    return f"{page_size:,} a page"


# What one streamed record costs

FAST = (RAW_SOCKET, SDK, AIOHTTP_MSGSPEC)
SLOW = (AIOHTTP, HTTPX_JSON, DLT_CLIENT, LENDING)
SERVER = Peer("receive only", "readers:receive_only")


@question(
    "What does one streamed record cost, beside the least that it can cost?",
    *(
        at_most(
            1.2,
            f"CPU per dict, {size}, over raw socket + msgspec",
            Pick(size, SDK.name, CPU, over=RAW_SOCKET.name),
            limit=AIOHTTP_MSGSPEC.name,
            headline=size == "1,000 a page",
        )
        for size in map(_pages_of, (5000, 1000, 100))
    ),
    compare=(CPU, RAW_SOCKET.name),
)
def streaming(quick: bool) -> Rows:
    items, rounds = (8000, 1) if quick else (200_000, 7)
    rows: list[Row] = []
    for page_size in (5000, 1000, 100):
        setting = _pages_of(page_size)
        # The fast ones read for two seconds, so that their ratio is not that of a warm-up.
        with page_server(items) as server:
            turn = _reading(server, items, page_size=page_size)
            rows += peers_in_turn(setting, FAST, turn, rounds=rounds)
        with page_server(items // 5) as server:
            turn = _reading(server, items // 5, page_size=page_size)
            rows += peers_in_turn(setting, SLOW, turn, rounds=min(rounds, 3))
            alone = Rows(peers_in_turn(setting, (SERVER,), turn, rounds=rounds))
            rows += alone.only(SPEED, BUSY).rows
    return Rows(rows).only(CPU, SPEED, PEAK, "items", "requests", BUSY)


# Objects in place of dicts

DICTS = Peer("dicts", SDK.script)
KINDS = (
    DICTS,
    Peer("attrs, 16 fields", SDK.script, told={"model": "Invoice"}),
    Peer("attrs, 5 Decimals", SDK.script, told={"model": "Exact"}),
    Peer("attrs, 3 fields", SDK.script, told={"model": "Brief"}),
)


def _over_dicts(fields: int) -> Pick:
    return Pick("1,000 a page", f"attrs, {fields} fields", CPU, over=DICTS.name)


@question(
    "What does it cost to get attrs objects with snake_case names in place of dicts?",
    at_most(1.5, "CPU of typed attrs objects over dicts", _over_dicts(16)),
    at_most(1.0, "CPU of a 3-field model over dicts", _over_dicts(3)),
    compare=(CPU, DICTS.name),
)
def models(quick: bool) -> Rows:
    items, rounds = (10_000, 1) if quick else (40_000, 5)
    rows: list[Row] = []
    with page_server(items) as server:
        for page_size in (1000,) if quick else (5000, 1000, 100):
            turn = _reading(server, items, page_size=page_size)
            rows += peers_in_turn(_pages_of(page_size), KINDS, turn, rounds=rounds)
    return Rows(rows).only(CPU, SPEED)


# Memory

WINDOWS = {5000: (4, 64), 1000: (8, 30), 100: (8, 16)}
"""Pages ahead, and the MiB that a million may take, by page size."""
MILLION, QUARTER = "1,000,000 items", "250,000 items"


def _growth(pages: str) -> Callable[[Rows], float]:
    return lambda rows: (
        rows.median(f"{pages}, {MILLION}", SDK.name, PEAK)
        - rows.median(f"{pages}, {QUARTER}", SDK.name, PEAK)
    )


def _of_memory(page_size: int, mib: float) -> list[Goal]:
    pages = _pages_of(page_size)
    peak = Pick(f"{pages}, {MILLION}", SDK.name, PEAK)
    more = f"MiB more for {MILLION} than for a quarter, {pages}"
    return [
        at_most(mib, f"MiB over base, {MILLION}, {pages}", peak),
        at_most(4, more, _growth(pages)),
    ]


@question(
    "How much memory does a million records take, and does it grow on the way?",
    *(goal for size, (_, mib) in WINDOWS.items() for goal in _of_memory(size, mib)),
)
def memory(quick: bool) -> Rows:
    many = 100_000 if quick else 1_000_000
    rows: list[Row] = []
    with page_server(many) as server:
        for page_size, (prefetch, _) in WINDOWS.items():
            for items in (many // 4, many):
                setting = f"{_pages_of(page_size)}, {items:,} items"
                turn = _reading(server, items, page_size=page_size, prefetch=prefetch)
                # The others hold one page at a time, so one size of list is enough.
                once = (page_size, items) == (5000, many // 4)
                readers = (SDK, AIOHTTP, HTTPX_JSON) if once else (SDK,)
                rows += peers_in_turn(setting, readers, turn, rounds=1)
    return Rows(rows).only(PEAK, SPEED)


# Stalls of the event loop

TYPED = Peer(f"{SDK.name}, attrs", SDK.script, told={"model": "Invoice"})


@question(
    "How long does reading keep the rest of a service waiting?",
    *(
        at_most(
            bound,
            f"event-loop stall p99 in ms, {_pages_of(page_size)}, {peer.name}",
            Pick(_pages_of(page_size), peer.name, STALL),
            headline=(page_size, peer) == (5000, SDK),
        )
        for page_size, bound in ((5000, 15), (1000, 10))
        for peer in (SDK, TYPED)
    ),
)
def stalls(quick: bool) -> Rows:
    items, rounds = (10_000, 1) if quick else (40_000, 5)
    rows: list[Row] = []
    with page_server(items) as server:
        for page_size in (5000, 1000):
            turn = _reading(server, items, page_size=page_size, watch_loop=True)
            peers = (SDK, TYPED, AIOHTTP, HTTPX_JSON)
            rows += peers_in_turn(_pages_of(page_size), peers, turn, rounds=rounds)
    return Rows(rows).only(STALL, WORST, SPEED)


# Pages fetched ahead

WALKS: Mapping[str, tuple[int, int, float, tuple[int, ...]]] = {
    "40 pages of 100, 50 ms": (40, 100, 0.05, (0, 1, 2, 4, 8, 16)),
    "100 pages of 1,000, 100 ms": (100, 1000, 0.1, (0, 8)),
    "400 pages of 10, 100 ms": (400, 10, 0.1, (0, 32)),
}
"""Number of pages, their size, latency in seconds, and the numbers of pages ahead to try."""
FASTER, AT_BEST = "x faster", "x at best"


def _ahead(pages: int) -> str:
    return f"{pages} ahead" if pages else "one by one"


def _faster(walk: str, ahead: int, times: float, **more: bool) -> Goal:
    what = f"times as fast as one by one, {walk}, prefetch {ahead}"
    return at_least(times, what, Pick(walk, _ahead(ahead), FASTER), **more)


@question(
    "How much faster is a list read when pages are fetched ahead?",
    _faster("40 pages of 100, 50 ms", 8, 6.3, needs_full=False, headline=True),
    _faster("100 pages of 1,000, 100 ms", 8, 7),
    _faster("400 pages of 10, 100 ms", 32, 28),
)
def prefetch(quick: bool) -> Rows:
    chosen = list(WALKS)[:1] if quick else list(WALKS)
    rows = Rows(row for walk in chosen for row in _walk(walk, rounds=1 if quick else 5))
    if not quick and find_spec("matplotlib"):
        _draw(rows, ROOT / "benchmarks" / "prefetch.png")
    return rows


def _walk(name: str, rounds: int) -> list[Row]:
    pages, size, latency, aheads = WALKS[name]
    readers = [Peer(_ahead(ahead), SDK.script, told={"prefetch": ahead}) for ahead in aheads]
    # One page at a time is all waiting: it hardly varies, and 400 pages take 40 seconds.
    rounds = 1 if pages > 100 else rounds
    with page_server(pages * size, latency=latency) as server:
        turn = _reading(server, pages * size, page_size=size)
        rows = peers_in_turn(name, readers, turn, rounds=rounds)
    return [_compared(row, rows[0], pages, ahead) for row, ahead in zip(rows, aheads, strict=True)]


def _compared(row: Row, slow: Row, pages: int, ahead: int) -> Row:
    if SECONDS not in row.figures or SECONDS not in slow.figures:
        return row
    base, took = slow.figures[SECONDS].median, row.figures[SECONDS]
    best = pages / (1 + ceil((pages - 1) / (ahead + 1)))  # page 1 alone, then *ahead* at a time
    faster = Figure(base / one for one in took.values)
    figures = {SECONDS: took, FASTER: faster, AT_BEST: Figure((best,))}
    return Row(row.setting, row.contender, figures, row.note)


def _draw(rows: Rows, path: Path) -> None:
    """Draw README's picture."""
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415 - an extra

    walk, (_, _, _, (_, *aheads)) = next(iter(WALKS.items()))
    picture = Picture(figsize=(8, 4.5), layout="constrained")
    axes = picture.subplots()
    axes.set_title(f"Reading with pages fetched ahead: {walk} each", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    for figure, label in ((AT_BEST, "at best: page 1 alone, then the rest"), (FASTER, "measured")):
        heights = [rows.median(walk, _ahead(ahead), figure) for ahead in aheads]
        axes.plot(aheads, heights, marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(aheads, [str(ahead) for ahead in aheads])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("pages fetched ahead")
    axes.set_ylabel("times as fast as one by one")
    axes.legend(frameon=False)
    picture.savefig(path, dpi=100, facecolor="white")


# The start of a process

FIRST = "s to first item"


@question(
    "How long from the start of the process to the first record?",
    at_most(
        0.2,
        "seconds from process start to the first item",
        Pick("fresh process", SDK.name, FIRST),
        needs_full=False,
        limit=AIOHTTP.name,
    ),
    compare=(FIRST, AIOHTTP.name),
)
def first_item(quick: bool) -> Rows:
    with page_server(1000) as server:
        job = Job(server.base_url, page_size=100, first_only=True)
        return Rows(
            peers_in_turn(
                "fresh process",
                (SDK, AIOHTTP, HTTPX_JSON, DLT_CLIENT, LENDING),
                lambda peer: {FIRST: peer.work(job)["since_start"]},
                rounds=3 if quick else 7,
            )
        )


IMPORTED = (
    Peer("aiohttp", "import aiohttp"),
    Peer("integration_sdk", "import integration_sdk"),
    Peer("both", "import aiohttp; from integration_sdk import Client"),
    Peer("all, to push", "import aiohttp, cattrs; from integration_sdk import Client, Coordinator"),
    Peer("httpx", "import httpx", HTTPX_JSON.packages),
    Peer("dlt RESTClient", "import dlt.sources.helpers.rest_client", DLT_CLIENT.packages),
    Peer("codat-lending", "from codat_lending import CodatLending", LENDING.packages),
)
"""Their script is the import statement.

"both" is what a program that makes a `Client` waits for: aiohttp and everything for reading. The
coordinator is loaded by the first block, cattrs by the first push operation or error. The package
itself loads nothing until one of its names is used.
"""
MS = "import ms of CPU"
PROGRAM = "import time; t=time.process_time(); {}; print((time.process_time()-t)*1e3)"


@question(
    "How long does the import take?",
    at_most(
        100,
        "import in ms of CPU beyond aiohttp's own",
        Pick("fresh process", "both", MS, beyond="aiohttp"),
        needs_full=False,
    ),
    compare=(MS, "aiohttp"),
)
def import_time(quick: bool) -> Rows:
    def turn(peer: Peer) -> Mapping[str, float]:
        return {MS: float(peer.python("-c", PROGRAM.format(peer.script)))}

    return Rows(peers_in_turn("fresh process", IMPORTED, turn, rounds=3 if quick else 11))
