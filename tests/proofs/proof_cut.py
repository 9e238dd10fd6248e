"""A push whose connection breaks at one byte, and what must then hold.

A case is one `PushRequest` in a lane of its own, through a `CutProxy` that breaks it. The
sandbox knows the truth, the client says what it believes, `judge` compares them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from attrs import evolve, field, frozen

from integration_sdk import Client, Dialect, OutcomeStatus, PushOutcome, PushRequest
from integration_sdk.sandbox import Company, Operation, Sandbox
from tests.proofs.proof_proxy import Cut, CutProxy, How, Side

Verb = Literal["POST", "PUT", "POST with a key"]
VERBS: tuple[Verb, ...] = ("POST", "PUT", "POST with a key")
HOWS: tuple[How, ...] = ("FIN", "RST", "stall")
QUIET = 2.0
"""Seconds that the list is searched; every push of the sandbox is final long before."""
LATE = 1.2
STALLED = 3.0
"""Seconds after which a client gives up on a line that hangs."""
BATCH = 200
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
class Case:
    """One push and where it breaks.

    Attributes:
        number: Makes its record unlike any other.
        cut: None for a push that arrives.
    """

    number: int
    verb: Verb
    cut: Cut | None

    @property
    def name(self) -> str:
        """The record's natural key."""
        return f"CUT-{self.number:06d}"

    @property
    def label(self) -> str:
        """What kind of case it is."""
        return f"{self.verb}, {self.cut.side} {self.cut.how}" if self.cut else self.verb

    def __str__(self) -> str:
        return f"{self.label} at byte {self.cut.at if self.cut else '-'} ({self.name})"


@frozen
class Seen:
    """What came of a case.

    Attributes:
        outcomes: What `Coordinator.run` gave.
        transmissions: Requests for the push that reached the proxy.
        operations: The server's truth: pushes of this record.
        lengths: Bytes of the request and of its answer, where both passed.
    """

    case: Case
    outcomes: Sequence[PushOutcome]
    transmissions: int
    operations: Sequence[Operation]
    lengths: dict[Side, int] = field(factory=dict)


@frozen
class Report:
    """Cases and violations."""

    cases: Counter[str] = field(factory=Counter)
    statuses: Counter[str] = field(factory=Counter)
    violations: list[str] = field(factory=list)

    def add(self, seen: Seen) -> None:
        self.cases[seen.case.label] += 1
        self.statuses.update(f"{one.status}" for one in seen.outcomes)
        self.violations.extend(f"{seen.case}: {wrong}" for wrong in judge(seen))


def judge(seen: Seen) -> list[str]:
    """Say what must not be."""
    if len(seen.outcomes) != 1:
        return [f"{len(seen.outcomes)} outcomes of one request"]
    (outcome,) = seen.outcomes
    keys = {operation.key for operation in seen.operations}
    wrong = {
        f"{len(keys)} operations of one request": len(keys) > 1,
        f"sent {seen.transmissions} times": seen.transmissions > _most(seen.case),
        f"linked to {outcome.key}, which is not its own": outcome.key not in {None, *keys},
        "SUCCESS without an operation": outcome.status is OutcomeStatus.SUCCESS and not keys,
        f"the outcome is {outcome.status} ({outcome.error})": not _allowed(seen, outcome),
    }
    return [what for what, is_so in wrong.items() if is_so]


def _most(case: Case) -> int:
    """A request that may have left is never sent again; with a key of its own it may be."""
    return 5 if case.verb == "POST with a key" else 1


def _allowed(seen: Seen, outcome: PushOutcome) -> bool:
    """In doubt is what cannot be known: a push that is not there, or was not when searched for."""
    if outcome.status is OutcomeStatus.SUCCESS:
        return True
    is_late = seen.case.cut is not None and seen.case.cut.how == "late"
    return outcome.status is OutcomeStatus.IN_DOUBT and (not seen.operations or is_late)


async def run_case(sandbox: Sandbox, company: Company, case: Case) -> Seen:
    """Push one record over a line that breaks."""
    published = case.verb == "POST with a key"
    dialect = Dialect.published() if published else Dialect.document()
    port = int(sandbox.base_url.rpartition(":")[2])
    async with (
        CutProxy(port, case.cut) as proxy,
        Client(sandbox.api_key, proxy.base_url, dialect=dialect, timeout=_timeout(case)) as client,
        client.coordinator(patience=QUIET) as pushes,
    ):
        request = _request(sandbox, company, case)
        outcomes = [outcome async for outcome in pushes.run([request])]
    operations = [one for one in sandbox.pushes if one.company == company.id]
    return Seen(case, outcomes, len(proxy.pushes), operations, proxy.lengths)


def _timeout(case: Case) -> float:
    return STALLED if case.cut is not None and case.cut.how == "stall" else 60.0


def _request(sandbox: Sandbox, company: Company, case: Case) -> PushRequest:
    """Half of the records declare what tells them from others, half do not."""
    connection = company.connections[case.number % 2]  # one answers later, one at once
    existing = sandbox.data_set(company.id, "invoices").ids()
    return PushRequest(
        company.id,
        connection.id,
        "invoices",
        INVOICE | {"invoiceNumber": case.name},
        record_id=existing[0] if case.verb == "PUT" else None,
        natural_key="invoiceNumber" if case.number % 4 < 2 else None,
    )


@asynccontextmanager
async def service(companies: int, *, published: bool) -> AsyncIterator[Sandbox]:
    """Run a sandbox with a lane for each case."""
    async with Sandbox(
        companies=companies,
        invoices=1,
        unlinked=0,
        push_seconds=(0.01, 0.05),
        dialect="published" if published else "document",
        remember=0,
    ) as sandbox:
        yield sandbox


async def run_cases(cases: Iterable[Case], report: Report) -> None:
    """Run cases of all kinds, many at the same time."""
    groups: dict[bool, list[Case]] = {False: [], True: []}
    for case in cases:
        groups[case.verb == "POST with a key"].append(case)
    await asyncio.gather(
        *(_run_batches(group, report, published=kind) for kind, group in groups.items())
    )


async def _run_batches(group: Sequence[Case], report: Report, *, published: bool) -> None:
    for start in range(0, len(group), BATCH):
        await _run_batch(group[start : start + BATCH], report, published=published)


async def _run_batch(batch: Sequence[Case], report: Report, *, published: bool) -> None:
    async with service(len(batch), published=published) as sandbox:
        jobs = (
            run_case(sandbox, company, case)
            for company, case in zip(sandbox.companies, batch, strict=True)
        )
        for seen in await asyncio.gather(*jobs):
            report.add(seen)


async def lengths(verb: Verb) -> dict[Side, int]:
    """Measure a push that arrives, and its answer."""
    async with service(1, published=verb == "POST with a key") as sandbox:
        seen = await run_case(sandbox, sandbox.companies[0], Case(0, verb, None))
    assert not judge(seen)
    return seen.lengths


async def every_byte(verbs: Sequence[Verb] = VERBS) -> list[Case]:
    """Return a case for each byte of request and answer, each end, each verb."""
    cuts: list[tuple[Verb, Cut]] = []
    for verb in verbs:
        measured = await lengths(verb)
        sides: tuple[Side, ...] = ("request", "response")
        cuts += [
            (verb, Cut(side, at, how))
            for side in sides
            for at in range(measured[side] + 1)
            for how in HOWS
        ]
        cuts += [(verb, Cut("request", 0, "late", LATE * n / 50)) for n in range(100)]
    return [Case(number, verb, cut) for number, (verb, cut) in enumerate(cuts, 1)]


async def sample(count: int, seed: int) -> list[Case]:
    """Return some of `every_byte`, and of each kind the first and last byte."""
    cases = await every_byte()
    edges: dict[str, list[Case]] = {}
    for case in cases:
        edges.setdefault(case.label, []).append(case)
    chosen = [one for kind in edges.values() for one in (kind[0], kind[-1])]
    chosen += random.Random(seed).sample(cases, count - len(chosen))
    return [evolve(case, number=number) for number, case in enumerate(chosen, 1)]
