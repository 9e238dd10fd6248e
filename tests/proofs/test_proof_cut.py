"""Proof: a push whose connection breaks at any byte is never doubled, lost or mis-linked.

Each byte of request and answer, FIN, RST, a line that hangs, and a request that arrives late, for
create, update and a create with an Idempotency-Key: some of the cases here, all with ``-m long``.
A case is one `PushRequest` to a company of its own, through a `CutProxy`. The sandbox knows the
truth, the client says what it believes, `judge` compares them.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from attrs import define, evolve, field, frozen

from integration_sdk import Client, Dialect, OutcomeStatus, PushOutcome, PushRequest
from integration_sdk.sandbox import Company, Operation, Sandbox
from tests.support.session_support import Peer, message, raw_server

# Many clients on one core are slow: on a real clock, some give up on a line that does not hang.
pytestmark = pytest.mark.virtual_time

Side = Literal["request", "response"]
How = Literal["FIN", "RST", "stall", "late"]
Verb = Literal["POST", "PUT", "POST with a key"]
VERBS: tuple[Verb, ...] = ("POST", "PUT", "POST with a key")
HOWS: tuple[How, ...] = ("FIN", "RST", "stall")
SIDES: tuple[Side, ...] = ("request", "response")
BATCH = 200
PUSH = re.compile(rb"(POST|PUT|DELETE) ")
INVOICE = {
    "customerRef": {"id": "c-1"},
    "issueDate": "2024-03-01",
    "dueDate": "2024-03-31",
    "currency": "GBP",
    "status": "Submitted",
    "lineItems": [{"description": "Ash worktop", "unitAmount": 120.5, "quantity": 2}],
}
"""An invoice that every platform takes."""


@frozen
class Cut:
    """Where the line breaks: so many bytes get through, and then how it ends.

    ``FIN`` and ``RST`` end both connections, ``stall`` lets both hang until the client goes.
    ``late`` resets the client's, and the service gets the whole request *delay* seconds later.
    """

    side: Side
    at: int
    how: How
    delay: float = 0.0


@define(eq=False)
class CutProxy:
    """Stands before the service on *target*, a port of this machine.

    Attributes:
        cut: What happens to the first push.
        pushes: Requests for a push that arrived here, whole.
        lengths: Bytes of the last push and of its answer.
    """

    target: int
    cut: Cut | None
    pushes: list[bytes] = field(factory=list, repr=False)
    lengths: dict[Side, int] = field(factory=dict)

    async def serve(self, client: Peer) -> None:
        service = Peer(client.server, *await asyncio.open_connection("127.0.0.1", self.target))
        try:
            await self._carry(client, service)
        finally:
            service.writer.close()

    async def _carry(self, client: Peer, service: Peer) -> None:
        while True:
            request = await message(client.reader)
            is_push = PUSH.match(request) is not None
            cut = self.cut if is_push and not self.pushes else None
            if is_push:
                self.pushes.append(request)
            if cut is not None and cut.how == "late":
                client.reset()
                await asyncio.sleep(cut.delay)
            elif cut is not None and cut.side == "request":
                service.write(request[: cut.at])
                break
            service.write(request)
            answer = await message(service.reader)
            if is_push:
                self.lengths = {"request": len(request), "response": len(answer)}
            client.write(answer[: cut.at] if cut else answer)
            await client.writer.drain()
            if cut is not None:
                break
        await service.writer.drain()
        if cut.how == "stall":
            await client.reader.read()
        if cut.how == "RST":
            client.reset()
            service.reset()


@frozen
class Case:
    """One push and where it breaks; without a cut it arrives."""

    number: int
    verb: Verb
    cut: Cut | None

    @property
    def kind(self) -> str:
        return f"{self.verb}, {self.cut.side} {self.cut.how}" if self.cut else self.verb


@frozen
class Seen:
    """What came of a case.

    transmissions: Requests for the push that reached the proxy.
    operations: The server's truth: pushes of this record.
    """

    case: Case
    outcomes: Sequence[PushOutcome]
    transmissions: int
    operations: Sequence[Operation]
    lengths: dict[Side, int]


def judge(seen: Seen) -> list[str]:
    """Say what must not be."""
    if len(seen.outcomes) != 1:
        return [f"{len(seen.outcomes)} outcomes of one request"]
    (outcome,) = seen.outcomes
    keys = {operation.key for operation in seen.operations}
    most = 5 if seen.case.verb == "POST with a key" else 1
    is_late = seen.case.cut is not None and seen.case.cut.how == "late"
    # What cannot be known: a push that is not there, or was not when it was searched for.
    in_doubt = outcome.status is OutcomeStatus.IN_DOUBT and (not keys or is_late)
    wrong = {
        f"{len(keys)} operations of one request": len(keys) > 1,
        f"sent {seen.transmissions} times": seen.transmissions > most,
        f"linked to {outcome.key}, which is not its own": outcome.key not in {None, *keys},
        "SUCCESS without an operation": outcome.status is OutcomeStatus.SUCCESS and not keys,
        f"the outcome is {outcome.status} ({outcome.error})": not (
            in_doubt or outcome.status is OutcomeStatus.SUCCESS
        ),
    }
    return [what for what, is_so in wrong.items() if is_so]


@asynccontextmanager
async def service(companies: int, *, published: bool = False) -> AsyncIterator[Sandbox]:
    """Run a sandbox with a company for each case."""
    async with Sandbox(
        companies=companies,
        invoices=1,
        unlinked=0,
        push_seconds=(0.01, 0.05),
        dialect="published" if published else "document",
        remember=0,
    ) as sandbox:
        yield sandbox


async def push(sandbox: Sandbox, company: Company, case: Case) -> Seen:
    """Push one record over a line that breaks; it is searched for long after it is final."""
    published = case.verb == "POST with a key"
    dialect = Dialect.published() if published else Dialect.document()
    timeout = 3.0 if case.cut is not None and case.cut.how == "stall" else 60.0
    request = PushRequest(
        company.id,
        company.connections[case.number % 2].id,  # one answers later, one at once
        "invoices",
        INVOICE | {"invoiceNumber": f"CUT-{case.number:06d}"},
        record_id=sandbox.data_set(company.id, "invoices").ids()[0] if case.verb == "PUT" else None,
        natural_key="invoiceNumber" if case.number % 4 < 2 else None,
    )
    proxy = CutProxy(int(sandbox.base_url.rpartition(":")[2]), case.cut)
    async with (
        raw_server(proxy.serve) as line,
        Client(sandbox.api_key, line.base_url, dialect=dialect, timeout=timeout) as client,
        client.coordinator(patience=2.0) as pushes,
    ):
        outcomes = [outcome async for outcome in pushes.run([request])]
    operations = [one for one in sandbox.pushes if one.company == company.id]
    return Seen(case, outcomes, len(proxy.pushes), operations, proxy.lengths)


async def every_byte() -> list[Case]:
    """Return a case for each byte of request and answer, each end, each verb."""
    cuts: list[tuple[Verb, Cut]] = []
    for verb in VERBS:
        async with service(1, published=verb == "POST with a key") as sandbox:
            seen = await push(sandbox, sandbox.companies[0], Case(0, verb, None))
        cuts += [
            (verb, Cut(side, at, how))
            for side in SIDES
            for at in range(seen.lengths[side] + 1)
            for how in HOWS
        ]
        cuts += [(verb, Cut("request", 0, "late", 1.2 * n / 50)) for n in range(100)]
    return [Case(number, verb, cut) for number, (verb, cut) in enumerate(cuts, 1)]


async def all_of(cases: Sequence[Case]) -> list[Seen]:
    """Run cases of all kinds, many at the same time; there must be no violation."""
    found: list[Seen] = []
    for published in (False, True):
        group = [one for one in cases if (one.verb == "POST with a key") is published]
        for first in range(0, len(group), BATCH):
            batch = group[first : first + BATCH]
            async with service(len(batch), published=published) as sandbox:
                found += await asyncio.gather(
                    *(push(sandbox, *one) for one in zip(sandbox.companies, batch, strict=True))
                )
    assert [f"{one.case}: {wrong}" for one in found for wrong in judge(one)] == []
    return found


async def test_a_cut_at_any_byte_does_no_harm() -> None:
    """One outcome a request, true; at most one operation; sent once; in doubt only if not there."""
    cases = await every_byte()
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.kind, []).append(case)
    edges = [one for kind in kinds.values() for one in (kind[0], kind[-1])]
    chosen = edges + random.Random(6).sample(cases, 48 - len(edges))

    found = await all_of([evolve(case, number=number) for number, case in enumerate(chosen, 1)])

    assert len({one.case.kind for one in found}) == 21
    told = Counter(one.outcomes[0].status for one in found)
    assert set(told) == {OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT}


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_a_cut_at_every_byte_does_no_harm() -> None:
    """All of them, some 10,000."""
    await all_of(await every_byte())


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda seen: evolve(seen, outcomes=()), "0 outcomes"),
        (lambda seen: evolve(seen, operations=[*seen.operations, other(seen)]), "2 operations"),
        (lambda seen: evolve(seen, transmissions=2), "sent 2 times"),
        (lambda seen: evolve(seen, operations=[other(seen)]), "not its own"),
        (lambda seen: evolve(seen, operations=()), "SUCCESS without"),
        (lambda seen: told_as(seen, OutcomeStatus.IN_DOUBT), "the outcome is IN_DOUBT"),
        (lambda seen: told_as(seen, OutcomeStatus.REJECTED), "the outcome is REJECTED"),
    ],
)
async def test_each_violation_is_seen(lie: Callable[[Seen], Seen], said: str) -> None:
    """A case in which something went wrong is told as just that."""
    async with service(1) as sandbox:
        seen = await push(sandbox, sandbox.companies[0], Case(1, "POST", None))
    assert judge(seen) == []

    assert any(said in wrong for wrong in judge(lie(seen)))


def other(seen: Seen) -> Operation:
    return evolve(seen.operations[0], key="another")


def told_as(seen: Seen, status: OutcomeStatus) -> Seen:
    return evolve(seen, outcomes=[evolve(seen.outcomes[0], status=status)])
