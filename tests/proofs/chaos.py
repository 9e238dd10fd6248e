"""Workers that push through one store while they are killed and frozen, and what must then hold.

    python -m tests.proofs.chaos file 1,2,3       one worker, kill -9
    python -m tests.proofs.chaos kill 1,2,3       workers on PostgreSQL, kill -9
    python -m tests.proofs.chaos freeze 1,2,3     the same, SIGSTOP beyond the lease
    python -m tests.proofs.chaos both 1,2,3       now this, now that

Answers and requests get lost, calls are throttled; each worker has some of its neighbours' records.
One record in four is a file that is attached to a bill. A worker that is killed is started again
with the same records. At the end the store is compared with the service's own ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import Factory, define

from integration_sdk import Client, PushRequest, Store
from integration_sdk._store.row import Row, State
from integration_sdk.sandbox import Sandbox
from tests.support.postgres import postgres_server

ROOT = Path(__file__).parents[2]
LEASE = 2.0
LONGEST = 600.0
"""Seconds that a worker may take once nothing happens to it any more."""


# The worker


def requests(span: Sequence[int], lanes: Sequence[Sequence[str]]) -> Iterator[PushRequest]:
    for number in range(*span):
        name, (company, books) = f"S{number:05d}", lanes[number % len(lanes)]
        if number % 4 == 3:
            file = f"{name}.pdf", b"%PDF \xff " + name.encode()
            yield PushRequest(
                company, books, "bills", None, reference=name, record_id=name, attach=file
            )
        else:
            record = {"supplierName": name, "status": "Active"}
            natural = "supplierName" if number % 4 else None
            yield PushRequest(
                company, books, "suppliers", record, reference=name, natural_key=natural
            )


async def work(facts: dict[str, Any]) -> None:
    """Push the records."""
    async with (
        Store(facts["store"], lease=LEASE) as store,
        Client(facts["api_key"], facts["base_url"]) as client,
        client.coordinator(journal=store, patience=3.0, max_open=20) as pushes,
    ):
        async for _ in pushes.run(requests(facts["span"], facts["lanes"])):
            pass


# The world


@define
class Report:
    """What one run came to."""

    events: int = 0
    states: Counter[str] = Factory(Counter)
    requests: int = 0
    violations: list[str] = Factory(list)


async def run(
    how: str, seed: int, store: str, *, records: int, events: int, workers: int = 2
) -> Report:
    """Let workers push, let things happen to them, and let one push all of it once more."""
    dice, report = random.Random(seed), Report()
    async with Sandbox(companies=6, invoices=10, push_seconds=(0.3, 2.0), seed=seed) as sandbox:
        faults, route = sandbox.faults, "POST /push/"
        faults.lose_answer(probability=0.04, route=route)
        faults.drop_connection(before=True, probability=0.01, route=route)
        faults.status(429, probability=0.02, route=route)
        faults.latency((0.01, 0.06))
        facts = {
            "store": store,
            "api_key": sandbox.api_key,
            "base_url": sandbox.base_url,
            "lanes": [(one.id, one.connections[0].id) for one in sandbox.companies],
        }
        share = -(-records // (1 if how == "file" else workers))
        spans = [
            (max(0, first - share // 4), min(records, first + share * 5 // 4))
            for first in range(0, records, share)
        ]
        mishaps: dict[str, Any] = {"how": how, "dice": dice, "events": events}
        await asyncio.gather(*(_live(facts, span, report, **mishaps) for span in spans))
        there = defaultdict[str, list[str]](list)
        for push in sandbox.pushes:
            name = push.record_id if push.verb == "ATTACH" else push.record["supplierName"]
            there[str(name)].append(push.key)
        report.requests, posts = len(sandbox.requests), sandbox.count("POST", "/push/")
        await _end(await _start(facts, (0, records)), report)
        if (more := sandbox.count("POST", "/push/") - posts) > 0:
            report.violations.append(f"{more} POSTs of records that were done")
    async with Store(store) as looked_at:
        rows = {str(row.reference): row for row in await looked_at._recorded()}
    names = [f"S{number:05d}" for number in range(records)]
    for name in names:
        report.violations += [f"{name}: {what}" for what in wrong(rows.get(name), there[name])]
    report.states.update(row.state.value for row in rows.values())
    if len(rows) != records:
        report.violations.append(f"{len(rows)} rows for {records} records")
    return report


async def _live(
    facts: dict[str, Any],
    span: tuple[int, int],
    report: Report,
    *,
    how: str,
    dice: random.Random,
    events: int,
) -> None:
    """Let a worker push a span, through all that happens to it, to the end."""
    worker = await _start(facts, span)
    while report.events < events:
        await asyncio.sleep(1.0 + dice.random() * 2.0)
        if worker.returncode is not None:
            break
        report.events += 1
        if how == "freeze" or (how == "both" and dice.random() < 0.5):
            with suppress(ProcessLookupError):  # it has just ended
                worker.send_signal(signal.SIGSTOP)
                await asyncio.sleep(dice.choice([0.5, 1.5, 2.0]) * LEASE)
                worker.send_signal(signal.SIGCONT)
        else:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.communicate()
            worker = await _start(facts, span)
    await _end(worker, report)


async def _start(facts: dict[str, Any], span: tuple[int, int]) -> asyncio.subprocess.Process:
    work = "tests.proofs.chaos", "work", json.dumps(facts | {"span": span})
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", *work, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )


async def _end(worker: asyncio.subprocess.Process, report: Report) -> None:
    ending = asyncio.ensure_future(worker.communicate())
    await asyncio.wait([ending], timeout=LONGEST)
    if not ending.done():
        report.violations.append("a worker hangs")
        worker.kill()
    _, errors = await ending
    if worker.returncode:
        report.violations.append(
            f"a worker ended with {worker.returncode}: {errors.decode()[-2000:]}"
        )


def wrong(row: Row | None, keys: Sequence[str]) -> list[str]:
    if row is None:
        return [f"lost: no row, {len(keys)} pushes"]
    checks = {
        f"doubled: {len(keys)} pushes": len(keys) > 1,
        f"mis-linked: {row.key}": row.key is not None and row.key not in keys,
        f"unsettled: {row.state}": row.state not in {State.DONE, State.DOUBT},
        "done, and not there": row.state is State.DONE and not keys,
    }
    return [what for what, is_so in checks.items() if is_so]


async def _run_all(how: str, seeds: Sequence[int], **sizes: int) -> bool:
    failed, records = False, sizes["records"]
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        for seed in seeds:
            store = f"{folder}/{seed}.db" if how == "file" else await server.new_database()
            began = time.perf_counter()
            report = await run(how, seed, store, **sizes)
            seconds = time.perf_counter() - began
            sys.stdout.write(
                f"{how} seed {seed}: {report.events} events, {records} records, {seconds:.0f} s, "
                f"states {dict(report.states)}, {report.requests / records:.2f} requests a record, "
                f"{len(report.violations)} violations {report.violations[:5]}\n"
            )
            sys.stdout.flush()
            failed = failed or bool(report.violations)
    return failed


def main() -> None:
    logging.getLogger("integration_sdk").setLevel(logging.CRITICAL)  # each event is a warning
    if sys.argv[1] == "work":
        asyncio.run(work(json.loads(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=["file", "kill", "freeze", "both"])
    parser.add_argument("seeds", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--records", type=int, default=1600)
    parser.add_argument("--events", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    os.nice(1)
    sys.exit(asyncio.run(_run_all(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
