"""Is a push ever doubled, lost or linked to the wrong operation? The full runs.

    python -m tests.proofs.proof cut      a cut at every byte of request and answer
    python -m tests.proofs.proof kill     a process killed 2,000 times while it pushes
    python -m tests.proofs.proof audit    1,000 POSTs: the intent on disk before the first byte
    python -m tests.proofs.proof soak     readers, pushers and waiters, in all weathers
    python -m tests.proofs.proof all      all of them (the default); exits with 1 on a violation

The suite runs a part of each (``tests/test_proof_*.py``); cases and judges are the same.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from attrs import Factory, frozen

from integration_sdk.testing import run_virtual
from tests.proofs import proof_audit, proof_backoff, proof_cut, proof_kill, proof_soak

ENOUGH_CASES, ENOUGH_KILLS, ENOUGH_POSTS = 2_000, 2_000, 1_000
ENOUGH_SOAKS, SOAK_ROUNDS = 20, 10
RECORDS = 40
AT_ONCE = 4
SHOWN = 20
"""Maximum number of violations printed for each proof."""


@frozen
class Result:
    """The result of a proof.

    Attributes:
        rows: What was done, how often, and how often it went wrong.
        violations: In words.
        notes: Remarks.
    """

    rows: Sequence[tuple[str, int, int]]
    violations: Sequence[str]
    notes: Sequence[str] = Factory(tuple)


async def cut(quick: bool) -> Result:
    """Cut the connection at every byte; do the same with a retry decorator, for comparison."""
    cases = await (proof_cut.sample(200, seed=1) if quick else proof_cut.every_byte())
    report = proof_cut.Report()
    await proof_cut.run_cases(cases, report)
    rows = [
        (label, count, _count(report.violations, label)) for label, count in report.cases.items()
    ]
    too_few = [] if quick or len(cases) >= ENOUGH_CASES else [f"only {len(cases)} cases"]
    by_hand = [case for case in cases if case.verb == "POST" and _is_broken(case)]
    doubled = await proof_backoff.duplicates(by_hand)
    notes = [
        f"outcomes: {_counts(report.statuses)}",
        f"for comparison, @backoff.on_exception around POST: {doubled} of {len(by_hand)} doubled",
    ]
    return Result(sorted(rows), [*report.violations, *too_few], notes)


def _is_broken(case: proof_cut.Case) -> bool:
    """Whether the cut closes the connection; a decorator on ``ClientError`` misses a hang."""
    return case.cut is not None and case.cut.how in {"FIN", "RST"}


async def kill(quick: bool) -> Result:
    """Kill a pushing process at labelled points and random times; restart it until it is done."""
    report = proof_kill.Report()
    kills = 30 if quick else ENOUGH_KILLS
    with tempfile.TemporaryDirectory() as folder:
        await proof_kill.kill_until(
            kills, report, Path(folder), at_once=AT_ONCE, records=RECORDS, seed=1
        )
    rows = [(f"killed: {label}", count, 0) for label, count in sorted(report.kills.items())]
    rows.append(("records audited", report.records.total(), len(report.violations)))
    return Result(rows, report.violations, [f"rows at the end: {_counts(report.records)}"])


async def audit(quick: bool) -> Result:
    """Audit the system calls of a process that pushes; then seed a fault that must be found."""
    posts = 100 if quick else ENOUGH_POSTS
    with tempfile.TemporaryDirectory() as folder:
        seen = await proof_audit.audit(Path(folder), posts)
    violations = [f"{name} left before its intent was on disk" for name in seen.early]
    if not len(set(seen.posts)) == len(seen.posts) == seen.succeeded == posts:
        violations.append(f"{len(seen.posts)} POSTs, {seen.succeeded} pushed, of {posts} records")
    rows = [(f"POSTs, watched by {seen.how}", len(seen.posts), len(seen.early))]
    return Result(rows, violations, await _seeded() if proof_audit.STRACE else ())


async def _seeded() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        seen = await proof_audit.audit(Path(folder), 50, synchronous="NORMAL")
    return [f"with synchronous = NORMAL: {len(seen.early)} of {len(seen.posts)} left too early"]


async def soak(quick: bool) -> Result:
    """Let many read, push, wait, break off and be killed, while the service fails in every way."""
    report = proof_soak.Report()
    for seed in range(2 if quick else ENOUGH_SOAKS):
        dialect: Literal["document", "published"] = "published" if seed % 2 else "document"
        with tempfile.TemporaryDirectory() as folder:
            one = proof_soak.soak(Path(folder), SOAK_ROUNDS, seed=seed, dialect=dialect)
            seen = await asyncio.to_thread(run_virtual, one)
        report.done += seen.done
        report.violations += [f"soak {seed}, {dialect}: {wrong}" for wrong in seen.violations]
    rows = [(what, count, 0) for what, count in sorted(report.done.items())]
    return Result(rows, report.violations)


PROOFS: Mapping[str, Callable[[bool], Awaitable[Result]]] = {
    "cut": cut,
    "kill": kill,
    "audit": audit,
    "soak": soak,
}


def _count(violations: Sequence[str], label: str) -> int:
    return sum(one.startswith(f"{label} at ") for one in violations)


def _counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counter.items()))


def table(name: str, result: Result, seconds: float) -> str:
    """Return a result as lines."""
    total = sum(count for _, count, _ in result.rows)
    rows = [*result.rows, ("in all", total, len(result.violations))]
    lines = [f"{name} ({seconds:.0f} s)", f"  {'':<34}{'cases':>8}{'violations':>12}"]
    lines += [f"  {label:<34}{count:>8,}{wrong:>12,}" for label, count, wrong in rows]
    lines += [f"  {note}" for note in result.notes]
    lines += [f"  VIOLATION {one}" for one in result.violations[:SHOWN]]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proofs in *arguments*; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.proof", description=__doc__)
    parser.add_argument("proof", nargs="?", default="all", choices=[*PROOFS, "all"])
    parser.add_argument("--quick", action="store_true", help="a part of the cases")
    told = parser.parse_args(arguments)
    logging.getLogger("integration_sdk").setLevel(logging.CRITICAL)  # each cut is a warning
    failed = False
    for name in PROOFS if told.proof == "all" else [told.proof]:
        began = time.monotonic()
        result = asyncio.run(_run(name, quick=told.quick))
        print(table(name, result, time.monotonic() - began), flush=True)
        failed = failed or bool(result.violations)
    return int(failed)


async def _run(name: str, *, quick: bool) -> Result:
    return await PROOFS[name](quick)


if __name__ == "__main__":
    sys.exit(main())
