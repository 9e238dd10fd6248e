"""Proof: each intent is on stable storage before the first byte of its POST leaves.

The full run is ``python -m benchmarks.proof audit``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs import proof_audit
from tests.proofs.proof_audit import Event, audit, events


async def test_no_post_leaves_before_its_intent_is_on_disk(tmp_path: Path) -> None:
    """Sixty records, by the system calls: written, synced, and only then sent."""
    verdict = await audit(tmp_path, 60)

    assert verdict.early == ()
    assert len(set(verdict.posts)) == len(verdict.posts) == verdict.succeeded == 60


async def test_without_strace_the_rows_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a POST arrives, another process can already read its SENDING row."""
    monkeypatch.setattr(proof_audit, "STRACE", None)

    verdict = await audit(tmp_path, 20)

    assert verdict.early == ()
    assert len(verdict.posts) == verdict.succeeded == 20


if proof_audit.STRACE:

    async def test_a_journal_that_does_not_sync_is_caught(tmp_path: Path) -> None:
        """With ``synchronous = NORMAL`` POSTs leave before their intents are on disk."""
        verdict = await audit(tmp_path, 20, synchronous="NORMAL")

        assert len(verdict.early) >= 19


def test_calls_that_threads_interrupt_are_put_together_again() -> None:
    """A call in two parts begins with the first and ends with the second."""
    trace = [
        "7 fdatasync(3</j.db-wal> <unfinished ...>",
        '8 sendto(4<socket:[1]>, "POST /", 6, 0, NULL, 0) = 6',
        "7 <... fdatasync resumed>) = 0",
        "7 +++ exited with 0 +++",
    ]

    assert list(events(trace)) == [
        Event("fdatasync", True, False, trace[0]),
        Event("sendto", True, True, trace[1]),
        Event("fdatasync", False, True, trace[0]),
    ]
