"""Pulls that are killed at any moment."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from integration_sdk import Client
from tests.support.pull_support import (
    Lists,
    Place,
    Writer,
    assert_agrees,
    invoices,
    new_place,
    sizes_seen,
    writing,
)

RECORDS: Final = 1_500
LONG: Final = [pytest.mark.long, pytest.mark.timeout(1_800)]
PROGRAM: Final = """
import asyncio, sys
from integration_sdk import Client, errors
async def main(url, to, format, full):
    async with Client("key", url) as client:
        receipt = await client.pull(
            ["invoices"], to=to, format=format, full=full == "full", part_bytes=40_000)
        assert not receipt.errors, receipt.errors
asyncio.run(main(*sys.argv[1:]))
"""


def throttled(chance: random.Random) -> Any:
    """Answers 429 and 503 now and then."""

    def answer(_: web.Request) -> web.Response | None:
        status = chance.choices((0, 429, 503), (94, 3, 3))[0]
        return web.Response(status=status, headers={"Retry-After": "0"}) if status else None

    return answer


@pytest.mark.parametrize(
    ("format_", "processes", "kills"),
    [
        ("ndjson", 1, 2),
        ("duckdb", 1, 1),
        ("postgres", 2, 1),
        *(
            pytest.param(one, processes, 50, marks=LONG)
            for one, processes in (
                *(("ndjson", 1), ("parquet", 1), ("duckdb", 1), ("postgres", 1)),
                ("postgres", 2),
            )
        ),
    ],
)
async def test_kills_at_any_time_cost_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, format_: str, processes: int, kills: int
) -> None:
    """One quiet run later each record is there in its last state, once; the next writes nothing."""
    chance = random.Random(f"{format_} {processes} {kills}")
    place = await new_place(request, tmp_path, format_)
    books = {one: {"invoices": invoices(RECORDS)} for one in ("a", "b")}
    async with Lists(books, odd=throttled(chance)) as service:
        async with writing(Writer(books, chance)):
            for number in range(kills):
                full = "full" if number % 3 == 2 else ""
                started = [await begun(service, place, full) for _ in range(processes)]
                for process in started:
                    await killed(service, process, chance)
                if place.is_folder:
                    assert all(size > 0.8 * RECORDS for size in sizes_seen(Path(place.to)))
        service.odd = lambda _: None
        async with Client("key", service.url) as client:
            quiet = await client.pull(["invoices"], **place.options)
            assert quiet.errors == []
            await assert_agrees(books, place, after_deletions=True)
            before = service.data_requests
            again = await client.pull(["invoices"], **place.options)
            assert (again.rows, service.data_requests - before) == (0, 2)
            await client.pull(["invoices"], **place.options, full=True)
            await assert_agrees(books, place)


async def begun(service: Lists, place: Place, full: str) -> Process:
    program = (sys.executable, "-c", PROGRAM, service.url, str(place.to), place.format, full)
    return await asyncio.create_subprocess_exec(*program, stderr=PIPE)


async def killed(service: Lists, process: Process, chance: random.Random) -> None:
    """Let a process send some requests, and kill it soon after one of them."""
    enough = len(service.log) + chance.randrange(1, 12)
    ending = asyncio.create_task(process.wait())
    while len(service.log) < enough and not ending.done():
        await asyncio.wait([ending], timeout=0.005)
    await asyncio.wait([ending], timeout=chance.uniform(0, 0.1))
    if process.returncode is None:
        process.kill()
    _, stderr = await process.communicate()
    await ending
    # A service that throttles for longer than a call is repeated is an error of its unit.
    assert process.returncode in {0, -9} or b"answered" in stderr, stderr.decode()
