"""Pushers on a service that fails in changing ways, and what must then hold.

They share a client: tasks are cancelled, blocks are left and their journals opened again, processes
are killed. What was said of each push is compared with the service's own record of it.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any, Literal

import aiohttp
from attrs import Factory, define

from integration_sdk import (
    Client,
    Dialect,
    OutcomeStatus,
    PushOutcome,
    PushRequest,
)
from integration_sdk.sandbox import Company, Operation, Rule, Sandbox

FAULTS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("status", {"code": 429, "headers": {"Retry-After": "1"}}),
    ("status", {"code": 500}),
    ("status", {"code": 503}),
    ("status", {"code": 503, "body": "<html>Back soon</html>", "headers": {"Retry-After": "10"}}),
    ("html_from_proxy", {"status": 502}),
    ("html_from_proxy", {"status": 504, "processed": True}),
    ("drop_connection", {"before": True}),
    ("drop_connection", {"before": False}),
    ("lose_answer", {}),
    ("truncate", {"at_byte": 300}),
    ("latency", {"seconds": (0.0, 1.0)}),
    ("late_answer", {"seconds": (0.0, 1.0)}),
    ("rate_limit", {"per_second": 200}),
    ("concurrency_limit", {"per_company": 5}),
    ("list_lag", {"seconds": 1.0}),
    ("unavailable", {"seconds": 0.5}),
)
WINDOWS = frozenset({"rate_limit", "concurrency_limit", "list_lag", "unavailable"})
"""Faults of all calls; the others strike some of them."""
PATIENCE = 1.5
"""Seconds that a lost push is searched for: longer than lists lag, shorter than some pauses."""
LONGEST_CALL = 10.0
"""Seconds for one call, with all that it waits for."""
Said = dict[str, list[PushOutcome]]
"""All outcomes of each push, by its reference."""
FINAL = frozenset({OutcomeStatus.SUCCESS, OutcomeStatus.FAILED, OutcomeStatus.TIMED_OUT})


@define
class Report:
    """What was done, and what was wrong."""

    done: Counter[str] = Factory(Counter)
    violations: list[str] = Factory(list)


@define(eq=False)
class Lines:
    """All connections of a client, those that it opens later as well."""

    _are_cut: bool = False
    _sessions: set[aiohttp.ClientSession] = Factory(set)

    def trace(self) -> aiohttp.TraceConfig:
        """Return what tells of each request, right before it gets a connection."""
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._begin)
        return trace

    async def cut(self) -> None:
        """Close all connections, and let nobody open another: not a byte leaves from here on."""
        self._are_cut = True
        connectors = [one.connector for one in self._sessions if one.connector is not None]
        closing = [asyncio.ensure_future(one.close()) for one in connectors]
        await asyncio.sleep(0)
        assert all(one.closed for one in connectors), closing

    async def _begin(self, session: aiohttp.ClientSession, *_: object) -> None:
        if self._are_cut:
            raise aiohttp.ClientConnectionError("the process was killed")
        self._sessions.add(session)


@define(eq=False)
class Soak:
    """One soak; a round is a journal for each pusher."""

    sandbox: Sandbox
    _new_client: Callable[..., Client]
    client: Client
    folder: Path
    rounds: int
    dice: random.Random
    report: Report = Factory(Report)

    async def run(self) -> Report:
        """Run all at once, and judge them."""
        weather = asyncio.create_task(self._weather())
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(self._push_on(number))
        finally:
            weather.cancel()
            with suppress(asyncio.CancelledError):
                await weather
        await asyncio.sleep(LONGEST_CALL)  # a poll may be under way whose wait has ended
        stats = self.client.stats()
        if stats.in_flight or stats.waiting:
            self.report.violations.append(f"calls are left: {stats}")
        return self.report

    def _company(self) -> Company:
        return self.dice.choice(self.sandbox.companies)

    async def _weather(self) -> None:
        while True:
            rules = [self._fault() for _ in range(self.dice.randrange(4))]
            await asyncio.sleep(self.dice.choice([0.5, 2.0, 3.0]))
            for rule in rules:
                self.sandbox.faults.remove(rule)

    def _fault(self) -> Rule:
        name, options = self.dice.choice(FAULTS)
        chance = {} if name in WINDOWS else {"probability": self.dice.choice([0.02, 0.1, 0.3])}
        rule: Rule = getattr(self.sandbox.faults, name)(**options, **chance)
        return rule

    # Pushing

    async def _push_on(self, pusher: int) -> None:
        for life in range(self.rounds):
            company = self._company()
            names = [f"{pusher}-{life}-{at}" for at in range(self.dice.choice([1, 10, 60]))]
            requests = [self._request(company, name) for name in names]
            journal = self.dice.choice([None, self.folder / f"{pusher}-{life}.db"])
            said = await self._said_of(requests, journal)
            self._judge(names, said)

    def _request(self, company: Company, name: str) -> PushRequest:
        connection = self.dice.choice(company.connections[:2])
        record = {"supplierName": name, "status": "Active"}
        lane = company.id, connection.id, "suppliers"
        return PushRequest(*lane, record, reference=name, natural_key="supplierName")

    async def _said_of(self, requests: list[PushRequest], journal: Path | None) -> Said:
        """Push *requests*, with a journal as often as it takes; return all outcomes, by name."""
        said: Said = {str(one.reference): [] for one in requests}
        if journal is None:
            await self._push(self.client, requests, None, said)
            return said
        while not all(ones and ones[-1].status != "PENDING" for ones in said.values()):
            if self.dice.random() < 0.8:
                journal = await self._push_until_killed(requests, journal, said)
                continue
            try:
                async with asyncio.timeout(self.dice.choice([None, 2.0, 8.0])):
                    await self._push(self.client, requests, journal, said)
            except TimeoutError:
                self.report.done["blocks cancelled"] += 1
        return said

    async def _push_until_killed(
        self, requests: list[PushRequest], journal: Path, said: Said
    ) -> Path:
        """Push in a "process" that is killed after a while; return the journal that it leaves.

        From one moment on, nothing that it sends, writes or says reaches anybody: its lines are
        cut, and its successor gets a copy of its journal.
        """
        lines = Lines()
        async with self._new_client(trace_configs=[lines.trace()]) as client:
            process = asyncio.create_task(self._push(client, requests, journal, said))
            await self._bad_moment(requests[0].company_id, process)
            if process.done():
                process.result()
                return journal
            await lines.cut()
            left = _copy(journal, self.folder / f"{journal.stem}+.db")
            process.cancel()
            with suppress(asyncio.CancelledError):
                await process
        self.report.done["processes killed"] += 1
        return left

    async def _bad_moment(self, company: str, process: asyncio.Task[None]) -> None:
        """Wait until one of the next calls is received or answered, or for a while."""
        called = asyncio.Event()

        async def carry(_call: Any, proceed: Any) -> Any:
            answer = await proceed() if self.dice.random() < 0.5 else None
            called.set()
            return answer or await proceed()

        path = f"^(GET|POST) /companies/{company}/.*push"
        skip = self.dice.choice([0, 5, 50])
        rule = self.sandbox.faults.add(carry, route=path, skip=skip, times=1, outermost=True)
        waiting = asyncio.create_task(called.wait())
        longest = self.dice.choice([0.0, 0.1, 1.0, 10.0])
        await asyncio.wait([process, waiting], timeout=longest, return_when="FIRST_COMPLETED")
        waiting.cancel()
        self.sandbox.faults.remove(rule)
        for _ in range(self.dice.choice([0, 1, 2, 3, 10])):  # turns of the loop
            await asyncio.sleep(0)

    async def _push(
        self, client: Client, requests: list[PushRequest], journal: Path | None, said: Said
    ) -> None:
        """Push *requests* in a block, and add what is said of them."""
        async for outcome in self._outcomes(client, requests, journal):
            said[str(outcome.reference)].append(outcome)

    async def _outcomes(
        self, client: Client, requests: list[PushRequest], journal: Path | None
    ) -> AsyncIterator[PushOutcome]:
        async with (
            client.coordinator(
                journal=journal,
                leave=self.dice.choice(["drain", "detach"]),
                max_open=self.dice.choice([3, 2000]),
                patience=PATIENCE,
            ) as pushes,
            aclosing(pushes.run(requests)) as outcomes,
        ):
            async for outcome in outcomes:
                yield outcome

    def _judge(self, names: Sequence[str], said: Mapping[str, Sequence[PushOutcome]]) -> None:
        operations: dict[str, list[Operation]] = {name: [] for name in names}
        for one in self.sandbox.pushes:
            name = str((one.record or {}).get("supplierName"))
            operations.get(name, []).append(one)
        for name in names:
            self.report.done["pushes judged"] += 1
            wrong = _wrong(said[name], operations[name])
            self.report.violations.extend(f"push {name}: {what}" for what in wrong)


def _copy(journal: Path, to: Path) -> Path:
    """Copy a journal as a crash would leave it: what is committed, and the number in its lock."""
    if not journal.exists():
        return to
    with closing(sqlite3.connect(journal)) as there, closing(sqlite3.connect(to)) as copy:
        there.backup(copy)
    return to


def _wrong(said: Sequence[PushOutcome], operations: Sequence[Operation]) -> list[str]:
    """Say what must not be: *said* of one push, of which the service has *operations*."""
    keys = {one.key for one in operations}
    status = said[-1].status if said else None
    finals = {one.status for one in said} & FINAL
    wrong = {
        f"{len(keys)} operations": len(keys) > 1,
        "no outcome": status is None,
        f"the outcomes {sorted(finals)}": len(finals) > 1,
        f"{status} without an operation": status is OutcomeStatus.SUCCESS and not keys,
        f"{status} with an operation": status is OutcomeStatus.REJECTED and bool(keys),
        "the key of another": bool({one.key for one in said} - {None, *keys}),
    }
    return [what for what, is_so in wrong.items() if is_so]


async def soak(
    folder: Path, rounds: int, *, seed: int, dialect: Literal["document", "published"]
) -> Report:
    """Soak a client in a service of its own."""
    speaks = Dialect.published() if dialect == "published" else Dialect.document()
    async with Sandbox(3, 600, seed=seed, dialect=dialect, push_seconds=(0.05, 1.0)) as sandbox:

        def new_client(**options: Any) -> Client:
            return Client(
                sandbox.api_key, sandbox.base_url, dialect=speaks, timeout=LONGEST_CALL, **options
            )

        async with new_client() as client:
            dice = random.Random(seed)
            return await Soak(sandbox, new_client, client, folder, rounds, dice).run()
