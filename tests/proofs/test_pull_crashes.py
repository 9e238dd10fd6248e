"""Pulls that are killed: between any two steps, and at any time with somebody who writes."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import ended, run, started, until
from tests.support.pull_support import Place, assert_agrees, new_place, shown_sizes, writing

INVOICES: Final = 1_500
LONG: Final = [pytest.mark.long, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("how", ["crash", "freeze", "full"])
@pytest.mark.parametrize(
    ("format_", "every"),
    [("ndjson", 16), *(pytest.param(one, 1, marks=LONG) for one in ("ndjson", "parquet"))],
)
async def test_a_stop_at_any_step_costs_nothing(how: str, format_: str, every: int) -> None:
    """Of a process that crashes, or is overtaken while it is frozen, or finds the disk full.

    The next run agrees with the service, no state is there twice, no reader saw a part of it.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.proofs.pull_crashes",
        how,
        format_,
        str(every),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    out, err = await child.communicate()

    assert child.returncode == 0, err.decode()
    count, *steps = out.decode().splitlines()
    assert int(count) > {"crash": 120, "freeze": 120, "lapse": 20, "full": 60}[how] // every
    assert any("exchange" in step for step in steps) or every > 1 or how in {"full", "lapse"}


async def test_a_process_that_thaws_and_dies_leaves_no_part_behind() -> None:
    """A first read is staged under the token of its claim, which is no place of others."""
    await test_a_stop_at_any_step_costs_nothing("lapse", "ndjson", 2)


@pytest.mark.parametrize(
    ("format_", "kills"),
    [
        ("ndjson", 2),
        ("postgres", 1),
        *(pytest.param(one, 50, marks=LONG) for one in ("ndjson", "parquet", "duckdb", "postgres")),
    ],
)
async def test_kills_at_any_time_cost_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, format_: str, kills: int
) -> None:
    """With 429s, 503s and somebody who writes all the while, one quiet run is the service again."""
    chance = random.Random(f"{format_} {kills}")
    place = await new_place(request, tmp_path, format_)
    async with Sandbox(companies=2, invoices=INVOICES) as sandbox:
        sandbox.faults.status(503, route="GET", probability=0.03)
        sandbox.faults.rate_limit(per_second=40, burst=20)
        sandbox.faults.latency(0.005)
        to = str(place.to)
        command = ("pull", "invoices", "--to", to, "--format", format_, "--part", "1")
        async with writing(sandbox), reading(place):
            for number in range(kills):
                full = ["--full"] if number % 3 == 2 else []
                await killed(sandbox, chance, *command, *full)
        quiet = await run(*command, sandbox=sandbox)
        assert quiet.code == 0, quiet.stderr
        await assert_agrees(sandbox, place.to, after_deletions=True)

        assert (await run(*command, "--full", sandbox=sandbox)).code == 0
        await assert_agrees(sandbox, place.to)


async def killed(sandbox: Sandbox, chance: random.Random, *command: str) -> None:
    """Run *command* until it has sent some requests, and kill it soon after one of them."""
    enough = sandbox.served + chance.randrange(1, 24)
    async with started(*command, sandbox=sandbox) as process:
        waiting = asyncio.create_task(until(lambda: sandbox.served >= enough))
        ending = asyncio.create_task(process.wait())
        await asyncio.wait([waiting, ending], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(chance.uniform(0, 0.1))
        waiting.cancel()
        ending.cancel()
        await asyncio.wait([waiting, ending])
        if process.returncode is None:
            process.kill()
        done = await ended(process)
    assert done.code in {0, 1, -9}, done.stderr


@asynccontextmanager
async def reading(place: Place) -> AsyncIterator[None]:
    """Look at files all the while: units are whole, or not there."""

    async def look() -> None:
        while place.appends:
            await asyncio.sleep(0.5)
            try:
                sizes = list(shown_sizes(Path(place.to), "invoices"))
            except FileNotFoundError:  # replaced meanwhile: an old listing, never a mixture
                continue
            assert all(size > 0.9 * INVOICES for size in sizes), f"torn: {sizes}"

    looking = asyncio.create_task(look())
    yield
    looking.cancel()
    await asyncio.wait([looking])
    if not looking.cancelled():
        looking.result()
