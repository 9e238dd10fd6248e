"""What fetching ahead gains, and what it costs the event loop and the memory.

Wall time against reading page by page, where each answer takes its time. Event-loop lag
while a list streams: how late a timer of 1 ms comes, and what CPU one turn of the loop
takes, which other processes of the machine cannot blur. Memory over a million records,
each run in a process of its own. Time from the start of a process to its first record.

    python -m benchmarks.prefetch
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.page_server import PageServer, page_server, pin_to_core
from benchmarks.streaming import Invoice
from integration_sdk import Client

T = TypeVar("T")
ROUNDS = 5
MANY = 1_000_000
MIB = 1024 * 1024


def client_of(base_url: str) -> Client:
    # More than the default is in flight here, and no company is concerned.
    return Client(api_key="benchmark", base_url=base_url)


# Wall time


async def seconds_to_read(client: Client, page_size: int, prefetch: int) -> float:
    began = time.perf_counter()
    async for _ in client.companies.list(page_size=page_size, prefetch=prefetch):
        pass
    return time.perf_counter() - began


async def gain(server: PageServer, page_size: int, prefetch: int, rounds: int) -> None:
    one: list[float] = []
    many: list[float] = []
    async with client_of(server.base_url) as client:
        await client.companies.list(page_size=page_size)
        assert server.requests
        for _ in range(rounds):
            one.append(await seconds_to_read(client, page_size, 0))
            many.append(await seconds_to_read(client, page_size, prefetch))
    slow, fast = statistics.median(one), statistics.median(many)
    requests = server.requests // (2 * rounds)
    print(f"{slow:>12.2f}{fast:>14.2f}{slow / fast:>9.1f}x{requests:>10}")


def wall_times() -> None:
    print(f"{'pages':>6}{'size':>6}{'latency':>9}{'prefetch':>9}", end="")
    print(f"{'one by one s':>14}{'prefetch s':>12}{'faster':>10}{'requests':>10}")
    for pages, size, latency, prefetch, rounds in (
        (40, 100, 0.05, 8, ROUNDS),
        (40, 1000, 0.1, 8, ROUNDS),
        (400, 10, 0.1, 32, 2),
    ):
        print(f"{pages:>6}{size:>6}{latency * 1000:>6.0f} ms{prefetch:>9}", end="", flush=True)
        with page_server(pages * size, latency=latency) as server:
            asyncio.run(gain(server, size, prefetch, rounds))


# Lag


async def watched(
    work: Coroutine[Any, Any, T], pause: float, clock: Callable[[], float]
) -> list[float]:
    """Return what *clock* went ahead beyond *pause* in each pause of a task beside *work*."""
    seen: list[float] = []

    async def watch() -> None:
        while True:
            before = clock()
            await asyncio.sleep(pause)
            seen.append(clock() - before - pause)

    watcher = asyncio.create_task(watch())
    await work
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
    return sorted(seen)


def at(seconds: list[float], share: float) -> float:
    """Return the value that *share* of the sorted *seconds* do not exceed, in milliseconds."""
    return seconds[min(int(len(seconds) * share), len(seconds) - 1)] * 1000


async def read(client: Client, page_size: int, model: Any) -> None:
    async for _ in client.companies.list(page_size=page_size, model=model):
        pass


async def loop_lag(server: PageServer) -> None:
    print(f"{'size':>6}  {'items':<6}{'lag p50 ms':>12}{'p99 ms':>8}{'max ms':>8}", end="")
    print(f"{'turn p50 ms':>13}{'p99 ms':>8}{'max ms':>8}{'timers':>8}")
    async with client_of(server.base_url) as client:
        for page_size in (5000, 1000, 100):
            for name, model in (("dicts", None), ("attrs", Invoice)):
                late = await watched(read(client, page_size, model), 0.001, time.perf_counter)
                spent = await watched(read(client, page_size, model), 0, time.thread_time)
                cells = [at(values, share) for values in (late, spent) for share in (0.5, 0.99, 1)]
                widths = (12, 8, 8, 13, 8, 8)
                row = "".join(f"{cell:>{w}.2f}" for cell, w in zip(cells, widths, strict=True))
                print(f"{page_size:>6}  {name:<6}{row}{len(late):>8}")


# Memory


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def growth(base_url: str, page_size: int, prefetch: int) -> None:
    """Print how much memory a million records took: at the middle, at the end, at most."""
    async with client_of(base_url) as client:
        await client.companies.list(page_size=1)
        base, seen, count = resident(), [], 0
        async for _ in client.companies.list(page_size=page_size, prefetch=prefetch):
            count += 1
            if count % 1000 == 0:
                seen.append(resident() - base)
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    mib = [max(first) / MIB, max(second) / MIB]
    print(
        f"{page_size:>6}{prefetch:>9}{count:>11,}{base / MIB:>10.1f}{mib[0]:>16.1f}{mib[1]:>16.1f}"
    )


def memory() -> None:
    print(f"{'size':>6}{'prefetch':>9}{'items':>11}{'base MiB':>10}", end="")
    print(f"{'1st half + MiB':>16}{'2nd half + MiB':>16}", flush=True)
    with page_server(MANY) as server:
        for page_size, prefetch in ((5000, 4), (1000, 8), (100, 8)):
            run_alone("growth", server.base_url, str(page_size), str(prefetch))


# First record


def run_alone(*arguments: str) -> float:
    """Run this module in a process of its own; return the seconds it took."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "benchmarks.prefetch", *arguments], check=True)
    return time.perf_counter() - began


FIRST = """
import asyncio, sys, time
from integration_sdk import Client
async def main():
    async with Client(api_key="benchmark", base_url=sys.argv[1]) as client:
        await client.companies.list().first()
asyncio.run(main())
"""


def first_record() -> None:
    with page_server(1000) as server:
        took = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", FIRST, server.base_url], check=True)
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import aiohttp"], check=True)
        aiohttp_alone = time.perf_counter() - began
    print(f"from process start to its end, one record: {statistics.median(took):.3f} s")
    print(f"of which python and aiohttp's import:       {aiohttp_alone:.3f} s")


def main() -> None:
    """Print the tables."""
    pin_to_core(0)
    if sys.argv[1:2] == ["growth"]:
        _, _, base_url, page_size, prefetch = sys.argv
        asyncio.run(growth(base_url, int(page_size), int(prefetch)))
        return
    wall_times()
    with page_server(100_000) as server:
        asyncio.run(loop_lag(server))
    first_record()
    memory()


if __name__ == "__main__":
    main()
