"""Questions that `streaming` and `prefetch` know how to measure: models, and fetching ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp

from benchmarks import _plots, streaming
from benchmarks._question import Figure, Goal, Question, Row, Rows
from benchmarks.page_server import PageServer, page_server
from benchmarks.prefetch import client_of, seconds_to_read

# Models

DICTS = "integration_sdk, dicts"
CPU = "CPU us/item"


def models(quick: bool) -> Rows:
    sizes = (1000,) if quick else (5000, 1000, 100)
    with page_server(streaming.ITEMS) as server:
        return asyncio.run(_costs(server.base_url, sizes, server))


async def _costs(base_url: str, sizes: tuple[int, ...], server: PageServer) -> Rows:
    rows: list[Row] = []
    async with client_of(base_url) as client, aiohttp.ClientSession(base_url) as session:
        readers = streaming.readers(server, client, session)
        for size in sizes:
            for reader in readers.values():
                await reader(size)
            costs = await streaming.measure(readers, size)
            rows += [
                Row(f"{size:,} a page", name, {CPU: Figure((cost,))})
                for name, cost in costs.items()
            ]
    return Rows(rows)


def _over_dicts(reader: str) -> Callable[[Rows], float]:
    def measured(rows: Rows) -> float:
        return rows.ratio("1,000 a page", f"integration_sdk, {reader}", CPU, DICTS)

    return measured


MODELS = Question(
    "models",
    "What does it cost to get attrs objects in place of dicts? All in one process.",
    models,
    goals=[
        Goal("CPU of typed attrs over dicts, 1,000 a page", "<=", 1.5, _over_dicts("attrs")),
        Goal("CPU of a 3-field model over dicts", "<=", 1.0, _over_dicts("3 fields")),
    ],
    compare=(CPU, DICTS),
)

# Fetching ahead

WALKS: Mapping[str, tuple[int, int, float, tuple[int, ...]]] = {
    "40 pages of 100, 50 ms": (40, 100, 0.05, (0, 1, 2, 4, 8, 16)),
    "40 pages of 1,000, 100 ms": (40, 1000, 0.1, (0, 8)),
    "400 pages of 10, 100 ms": (400, 10, 0.1, (0, 32)),
}
"""Pages, their size, latency in seconds, and how many pages ahead are tried."""
FASTER = "x faster"


def prefetch(quick: bool) -> Rows:
    chosen = list(WALKS)[:1] if quick else list(WALKS)
    return Rows([row for walk in chosen for row in _walk(walk, rounds=1 if quick else 5)])


def _walk(name: str, rounds: int) -> list[Row]:
    pages, size, latency, aheads = WALKS[name]
    # One by one is all waiting: its time hardly varies, and 400 pages of it take 40 seconds.
    rounds = 1 if pages > 100 else rounds
    with page_server(pages * size, latency=latency) as server:
        seconds = asyncio.run(_seconds(server.base_url, size, aheads, rounds))
    slow = Figure(seconds[0]).median
    return [
        Row(
            name,
            _ahead(ahead),
            {"s": Figure(took), FASTER: Figure(slow / one for one in took)},
            series={"speed-up": [(max(ahead, 1), slow / Figure(took).median)]},
        )
        for ahead, took in seconds.items()
    ]


async def _seconds(
    base_url: str, size: int, aheads: tuple[int, ...], rounds: int
) -> dict[int, list[float]]:
    took: dict[int, list[float]] = {ahead: [] for ahead in aheads}
    async with client_of(base_url) as client:
        await client.companies.list(page_size=size)
        for _ in range(rounds):
            for ahead in aheads:
                took[ahead].append(await seconds_to_read(client, size, ahead))
    return took


def _ahead(pages: int) -> str:
    return f"{pages} ahead" if pages else "one by one"


def _faster(walk: str, ahead: int) -> Callable[[Rows], float]:
    return lambda rows: rows.median(walk, _ahead(ahead), FASTER)


def _goal(walk: str, ahead: int, bound: float, *, needs_full: bool = True) -> Goal:
    what = f"times as fast, {walk}, prefetch {ahead}"
    return Goal(what, ">=", bound, _faster(walk, ahead), needs_full=needs_full)


def _draw(rows: Rows, folder: Path) -> list[Path]:
    walk = next(iter(WALKS))
    measured = [row.series["speed-up"][0] for row in rows.rows if row.setting == walk]
    curves = {"measured": measured[1:], "ideal": [(x, x) for x, _ in measured[1:]]}
    title = f"Prefetch scaling, {walk}"
    return _plots.lines(
        folder / "prefetch.png", title, "pages ahead", "times as fast", curves, logarithmic=True
    )


PREFETCH = Question(
    "prefetch",
    "How much faster is a list read when pages are fetched ahead?",
    prefetch,
    goals=[
        _goal("40 pages of 100, 50 ms", 8, 6.5, needs_full=False),
        _goal("40 pages of 1,000, 100 ms", 8, 7),
        _goal("400 pages of 10, 100 ms", 32, 28),
    ],
    plot=_draw,
)

QUESTIONS = (MODELS, PREFETCH)
