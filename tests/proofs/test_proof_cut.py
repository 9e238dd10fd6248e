"""Proof: a push whose connection breaks at any byte is never doubled, lost or mis-linked.

Each byte of request and answer, FIN, RST and a line that hangs, for create, update and a create
with an Idempotency-Key: some of the cases here, all with ``-m long``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from integration_sdk import OutcomeStatus
from integration_sdk.sandbox import Operation
from tests.proofs.proof_cut import Case, Report, Seen, every_byte, judge, run_cases, sample, service
from tests.proofs.proof_cut import run_case as push
from tests.proofs.proof_proxy import Cut

# Ninety clients on one core are slow: on a real clock, some give up on a line that does not hang.
pytestmark = pytest.mark.virtual_time


async def test_a_cut_at_any_byte_does_no_harm() -> None:
    """One outcome a request, true; at most one operation; sent once; in doubt only if not there."""
    report = Report()

    await run_cases(await sample(90, seed=6), report)

    assert report.violations == []
    assert report.cases.total() == 90
    assert len(report.cases) == 21
    assert set(report.statuses) == {OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT}


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_a_cut_at_every_byte_does_no_harm() -> None:
    """All of them, some 6,000."""
    report = Report()

    await run_cases(await every_byte(), report)

    assert report.violations == []


async def test_a_lost_answer_is_found_without_the_caller() -> None:
    """An operation that exists is the request's SUCCESS, though its answer never came."""
    async with service(1, published=False) as sandbox:
        case = Case(1, "POST", Cut("response", 0, "RST"))
        seen = await push(sandbox, sandbox.companies[0], case)

    (outcome,) = seen.outcomes
    assert (outcome.status, outcome.key) == (OutcomeStatus.SUCCESS, seen.operations[0].key)
    assert seen.transmissions == 1


# The referee is refereed


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda seen: evolve(seen, outcomes=()), "0 outcomes"),
        (lambda seen: evolve(seen, operations=[*seen.operations, other(seen)]), "2 operations"),
        (lambda seen: evolve(seen, transmissions=2), "sent 2 times"),
        (lambda seen: evolve(seen, operations=[other(seen)]), "not its own"),
        (lambda seen: evolve(seen, operations=()), "SUCCESS without"),
        (lambda seen: status(seen, OutcomeStatus.IN_DOUBT), "the outcome is IN_DOUBT"),
        (lambda seen: status(seen, OutcomeStatus.REJECTED), "the outcome is REJECTED"),
    ],
)
async def test_each_violation_is_seen(lie: Callable[[Seen], Seen], said: str) -> None:
    """A case in which something went wrong is told as just that."""
    async with service(1, published=False) as sandbox:
        seen = await push(sandbox, sandbox.companies[0], Case(1, "POST", None))
    assert judge(seen) == []

    assert any(said in wrong for wrong in judge(lie(seen)))


def other(seen: Seen) -> Operation:
    return evolve(seen.operations[0], key="another")


def status(seen: Seen, status: OutcomeStatus) -> Seen:
    return evolve(seen, outcomes=[evolve(seen.outcomes[0], status=status)])
