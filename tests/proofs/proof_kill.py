"""Processes that are killed while they push, restarted until the file is done, then audited.

A `Session` is one file of records, one journal, one company of the sandbox. Each life of its
process is killed at a labelled point (`POINTS`) or at a random moment. The sandbox lives in
this process and knows what arrived. When a life has come to its end unharmed, `audit` compares
the journal with the server's truth.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import define, field, frozen

from integration_sdk import Store
from integration_sdk._store2.row import Row, State
from integration_sdk.errors import JournalError
from integration_sdk.sandbox import Company, Operation, Rule, Sandbox
from tests.proofs.proof_proxy import Cut, CutProxy, Side

ROOT = Path(__file__).parents[2]
PUSH = "^POST {}/connections/.*/push/"
LIST = "^GET {}/push$"
POLL = "^GET {}/push"
LONGEST = 30.0
"""Seconds of a life, at most: one that takes longer hangs."""
DONE = frozenset({State.DONE, State.DOUBT})


@define(eq=False)
class Life:
    """One run of the program.

    Attributes:
        said: Its outcomes: reference, status, key.
        code: How it ended; None while it lives.
        opened: Whether it has opened its journal.
        on_outcome: Told how many there are, after each.
    """

    pid: int
    said: list[tuple[str, str, str | None]] = field(factory=list)
    code: int | None = None
    opened: bool = False
    killed: bool = False
    on_outcome: Callable[[int], None] = lambda _: None

    def kill(self) -> None:
        """Kill it with signal 9, unless it has ended."""
        if self.code is None and not self.killed:
            self.killed = True
            with suppress(ProcessLookupError):  # it has ended, and the nursery has yet to say so
                os.kill(self.pid, signal.SIGKILL)


@define(eq=False)
class Nursery:
    """A process that forks lives, one at a time."""

    _process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.proofs.proof_child",
            "nursery",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._running
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)  # with the life that keeps it
            await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # its pipes stay open else

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def begin(self, config: dict[str, Any]) -> Life:
        """Start a life."""
        stdin = self._running.stdin
        assert stdin is not None
        stdin.write(json.dumps(config).encode() + b"\n")
        return Life(int((await self._line()).removeprefix("pid ")))

    async def end(self, life: Life) -> None:
        """Hear it out."""
        while life.code is None:
            line = await self._line()
            if line.startswith("ended "):
                life.code = int(line.removeprefix("ended "))
            elif line == "open":
                life.opened = True
            else:
                reference, status, key = json.loads(line)
                life.said.append((reference, status, key))
                life.on_outcome(len(life.said))

    async def _line(self) -> str:
        stdout = self._running.stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line:
            raise RuntimeError("the nursery has ended")
        return line.decode().rstrip("\n")


@define(eq=False)
class Session:
    """A file of records on its way, however often the program dies.

    Attributes:
        kills: By label.
        lives: Programs started.
        last: The life that ended by itself.
        natural_key: Whether the records declare what tells them from others.
        again: Whether a life submits the whole file again.
        broken: Lives that ended neither by a kill nor well.
    """

    sandbox: Sandbox
    company: Company
    proxy: CutProxy
    nursery: Nursery
    dice: random.Random
    journal: Path
    name: str
    records: int = 40
    natural_key: bool = True
    again: bool = True
    kills: Counter[str] = field(factory=Counter)
    lives: int = 0
    last: Life | None = None
    broken: list[str] = field(factory=list)
    _rules: list[Rule] = field(factory=list)

    @property
    def config(self) -> dict[str, Any]:
        return {
            "api_key": self.sandbox.api_key,
            "base_url": self.proxy.base_url,
            "company": self.company.id,
            "connections": [one.id for one in self.company.connections[:2]],
            "journal": str(self.journal),
            "name": self.name,
            "natural_key": self.natural_key,
            "again": self.again,
            "records": self.records,
            "patience": 1.5,
        }

    async def run(self, labels: Sequence[str]) -> None:
        """Start the program, and again, until it ends by itself; each dies at one of *labels*."""
        while not await self.live(self.dice.choice(labels)):
            pass

    async def live(self, label: str = "") -> bool:
        """Live one life; return whether it ended by itself."""
        self.lives += 1
        life = await self.nursery.begin(self.config)
        if label:
            POINTS[label](self, life)
        try:
            async with asyncio.timeout(LONGEST):
                await self.nursery.end(life)
        except TimeoutError:
            self.broken.append(f"life {self.lives} ({label}) hangs")
            life.kill()
            await self.nursery.end(life)
            return True
        finally:
            self._disarm()
        return self._ended(life, label)

    def _ended(self, life: Life, label: str) -> bool:
        if life.code == -signal.SIGKILL:
            self.kills[label] += 1
            return False
        if life.code != 0:
            self.broken.append(f"life {self.lives} ({label}) ended with code {life.code}")
        self.last = life
        return True

    def hook(self, route: str, act: Callable[[Any], Awaitable[Any]]) -> None:
        """Let *act* carry one of the next few calls of this company on *route*."""

        async def carry(_call: Any, proceed: Any) -> Any:
            return await act(proceed)

        path = "^.*" + route.format(f"/companies/{self.company.id}").removeprefix("^")
        skip = self.dice.randrange(5)
        rule = self.sandbox.faults.add(carry, route=path, skip=skip, times=1, outermost=True)
        self._rules.append(rule)

    def _disarm(self) -> None:
        self.proxy.arm(None)
        while self._rules:
            self.sandbox.faults.remove(self._rules.pop())


# Points


def _soon(session: Session, life: Life, longest: float) -> None:
    asyncio.get_running_loop().call_later(session.dice.random() * longest, life.kill)


def _opening(session: Session, life: Life) -> None:
    _soon(session, life, 0.05)


def _any_time(session: Session, life: Life) -> None:
    _soon(session, life, 1.0)


def _a_long_time(session: Session, life: Life) -> None:
    _soon(session, life, 3.5)


def _before(route: str) -> Callable[[Session, Life], None]:
    def arm(session: Session, life: Life) -> None:
        async def act(proceed: Any) -> Any:
            life.kill()
            return await proceed()

        session.hook(route, act)

    return arm


def _after(route: str, longest: float = 0.0) -> Callable[[Session, Life], None]:
    def arm(session: Session, life: Life) -> None:
        async def act(proceed: Any) -> Any:
            answer = await proceed()
            if longest:
                _soon(session, life, longest)
            else:
                life.kill()
            return answer

        session.hook(route, act)

    return arm


def _throttled(session: Session, life: Life) -> None:
    """The push is refused for now; the process dies while it waits to send it again."""

    async def act(proceed: Any) -> Any:
        path = "^.*" + PUSH.format(f"/companies/{session.company.id}")
        session.sandbox.faults.status(429, headers={"Retry-After": "1"}, route=path, times=1)
        answer = await proceed()
        _soon(session, life, 0.8)
        return answer

    session.hook(PUSH, act)


def _at_byte(side: Side, longest: int) -> Callable[[Session, Life], None]:
    def arm(session: Session, life: Life) -> None:
        session.proxy.called = life.kill
        cut = Cut(side, session.dice.randrange(longest), "call")
        session.proxy.arm(cut, skip=session.dice.randrange(5))

    return arm


def _told(session: Session, life: Life) -> None:
    """Some outcomes are out: their final states must be on disk."""
    wanted = session.dice.randint(1, 8)
    life.on_outcome = lambda count: life.kill() if count == wanted else None


POINTS: Mapping[str, Callable[[Session, Life], None]] = {
    "opening the journal": _opening,
    "any time": _any_time,
    "a long time": _a_long_time,
    "push received": _before(PUSH),
    "push processed": _after(PUSH),
    "push answered": _after(PUSH, 0.004),
    "push throttled": _throttled,
    "byte of a push": _at_byte("request", 640),
    "byte of its answer": _at_byte("response", 500),
    "list asked for": _before(LIST),
    "list answered": _after(LIST, 0.004),
    "poll answered": _after(POLL, 0.004),
    "outcome told": _told,
}


# The audit


@frozen
class Report:
    """What many sessions came to."""

    kills: Counter[str] = field(factory=Counter)
    records: Counter[str] = field(factory=Counter)
    violations: list[str] = field(factory=list)

    async def judge(self, session: Session) -> None:
        self.kills.update(session.kills)
        try:
            rows = await rows_of(session.journal)
        except JournalError as error:
            self.violations.append(f"{session.name}: {error}")
            return
        self.records.update(row.state.value for row in rows)
        self.violations.extend(f"{session.name}: {one}" for one in audit(session, rows))


def audit(session: Session, rows: Sequence[Row]) -> list[str]:
    """Compare the journal with the server's truth."""
    there: dict[str, list[Operation]] = {}
    for operation in session.sandbox.pushes:
        if operation.company == session.company.id:
            there.setdefault(operation.record["invoiceNumber"], []).append(operation)
    names = [f"{session.name}-{number:05d}" for number in range(session.records)]
    kept = {row.reference: row for row in rows}
    wrong = list(session.broken)
    for name in names:
        wrong += [f"{name}: {what}" for what in _wrong(kept.get(name), there.get(name, []))]
    if len(rows) != len(names):
        wrong.append(f"{len(rows)} rows for {len(names)} records")
    return wrong + _wrongly_told(session, there)


def _wrong(row: Row | None, operations: Sequence[Operation]) -> list[str]:
    keys = {operation.key for operation in operations}
    if row is None:
        return [f"lost: not in the journal, {len(keys)} operations"]
    checks = {
        f"duplicated: {len(keys)} operations": len(keys) > 1,
        f"mis-linked: {row.key} is not its own": row.key is not None and row.key not in keys,
        f"unexamined: {row.state}": row.state not in DONE,
        f"in doubt ({row.state}), and it is there": row.key is None and bool(keys),
    }
    return [what for what, is_so in checks.items() if is_so]


def _wrongly_told(session: Session, there: Mapping[str, Sequence[Operation]]) -> list[str]:
    """Each record has one outcome in the last life, and it is true."""
    if session.last is None:
        return []
    said = session.last.said
    wrong = [] if len(said) == session.records else [f"{len(said)} outcomes"]
    for reference, status, key in said:
        keys = {operation.key for operation in there.get(reference, [])}
        if (status == "SUCCESS") != (key in keys) or status not in {"SUCCESS", "IN_DOUBT"}:
            wrong.append(f"{reference}: told {status} of {key}, and there is {keys}")
    return wrong


async def rows_of(path: Path) -> list[Row]:
    """Return what the journal holds, once nobody has it open."""
    async with Store(path) as store:
        return await (await store.lend()).everything()


async def kill_until(
    kills: int, report: Report, folder: Path, *, at_once: int, records: int, seed: int
) -> None:
    """Run sessions, some at the same time, until so many lives were killed."""
    numbers = iter(range(10**6))

    async def sessions(sandbox: Sandbox, company: Company) -> None:
        port = int(sandbox.base_url.rpartition(":")[2])
        async with CutProxy(port) as proxy, Nursery() as nursery:
            while report.kills.total() < kills:
                number = next(numbers)
                session = Session(
                    sandbox,
                    company,
                    proxy,
                    nursery,
                    random.Random(seed * 1000 + number),
                    folder / f"pushes-{number}.db",
                    f"S{seed}-{number}",
                    records=records,
                    natural_key=number % 3 != 2,
                    again=number % 2 == 0,
                )
                await session.run(list(POINTS))
                await report.judge(session)

    async with (
        Sandbox(companies=at_once, invoices=1, unlinked=0, push_seconds=(0.01, 0.2)) as sandbox,
        asyncio.TaskGroup() as tasks,
    ):
        for company in sandbox.companies:
            tasks.create_task(sessions(sandbox, company))
