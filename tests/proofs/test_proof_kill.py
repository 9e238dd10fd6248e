"""Proof: a process that is killed while it pushes loses nothing, doubles nothing.

The full run is ``python -m benchmarks.proof kill``.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec import structs

from integration_sdk._store2.row import Row, State
from integration_sdk.sandbox import Sandbox
from tests.proofs.proof_kill import POINTS, Nursery, Report, Session, audit, kill_until, rows_of
from tests.proofs.proof_proxy import CutProxy


async def test_kills_at_any_point_do_no_harm(tmp_path: Path) -> None:
    """After restarts until the file is done: 0 doubled, 0 lost, 0 mis-linked, 0 unexamined."""
    report = Report()

    await kill_until(12, report, tmp_path, at_once=3, records=16, seed=5)

    assert report.violations == []
    assert report.kills.total() >= 12


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    async with (
        Sandbox(companies=1, invoices=1, push_seconds=(0.01, 0.1)) as sandbox,
        CutProxy(int(sandbox.base_url.rpartition(":")[2])) as proxy,
        Nursery() as nursery,
    ):
        yield Session(
            sandbox,
            sandbox.companies[0],
            proxy,
            nursery,
            random.Random(4),
            tmp_path / "pushes.db",
            "S",
            records=6,
        )


@pytest.mark.parametrize("label", ["push received", "push throttled", "byte of its answer"])
async def test_a_labelled_point_kills(session: Session, label: str) -> None:
    """A life that is to die at a point of its pushing does die there, and the next goes on."""
    assert label in POINTS
    assert not await session.live(label)
    assert await session.live()

    assert session.kills == {label: 1}
    assert audit(session, await rows_of(session.journal)) == []


async def test_a_third_run_of_a_file_that_is_done_sends_nothing(session: Session) -> None:
    """The program that was killed, ended well, and is started once more makes 0 POSTs."""
    await session.live("push answered")
    await session.live()
    posts = len(session.proxy.pushes)

    assert await session.live()

    assert len(session.proxy.pushes) == posts
    assert audit(session, await rows_of(session.journal)) == []


# The referee is refereed


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda rows: rows[1:], "lost"),
        (lambda rows: [*rows, structs.replace(rows[0], id="b", reference="b")], "7 rows for 6"),
        (lambda rows: [structs.replace(rows[0], key=rows[1].key), *rows[1:]], "mis-linked"),
        (
            lambda rows: [structs.replace(rows[0], key=None, state=State.LOST), *rows[1:]],
            "unexamined",
        ),
        (
            lambda rows: [structs.replace(rows[0], key=None, state=State.DOUBT), *rows[1:]],
            "it is there",
        ),
    ],
)
async def test_a_journal_that_is_wrong_is_seen(
    session: Session, lie: Callable[[list[Row]], list[Row]], said: str
) -> None:
    """Each kind of untruth in a journal is told as just that."""
    assert await session.live()
    rows = await rows_of(session.journal)
    assert audit(session, rows) == []

    assert any(said in wrong for wrong in audit(session, lie(rows)))


async def test_a_server_that_knows_better_is_believed(session: Session) -> None:
    """An operation too many is a duplicate, whatever the journal says."""
    assert await session.live()
    rows = await rows_of(session.journal)
    first = session.sandbox.pushes[0]
    connection = session.company.connections[0]
    session.sandbox.push(connection, first.data_type, first.record)

    assert any("duplicated" in wrong for wrong in audit(session, rows))
