"""What operators are told to run works: the SQL and the commands of the guides."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import integration_sdk
from integration_sdk._store.row import Lane, Result, Row, State
from integration_sdk._store.sql import POSTGRES, tables
from integration_sdk._store.store import Store
from tests.support.postgres import Server, execute, fetch

GUIDES = Path(integration_sdk.__file__).parent / "docs" / "guides"
LANE = Lane("acme", "connection", "invoices")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (GUIDES / page).read_text(), re.DOTALL | re.MULTILINE
    )


def row(number: int, **facts: object) -> Row:
    return Row(f"row-{number}", LANE, version=0, payload=b"{}", reference=f"INV-{number}", **facts)  # type: ignore[arg-type]  # facts of any type


async def test_sql_of_the_postgresql_page_works(postgres: Server) -> None:
    """Tables, roles, counts, holders, and the deletion of old pushes."""
    url = await postgres.new_database()
    make, grant, unfinished, holders, delete = blocks("postgresql.md", "sql")
    assert ";\n".join(tables(POSTGRES)) in make
    await execute(url, make)
    await execute(url, f"CREATE ROLE worker; {grant}")
    async with Store(url) as store:
        journal = await store._lend()
        await journal.beat()
        rows = [
            row(1, holder=journal.holder),
            row(2, state=State.DONE, result=Result.ABANDONED, ghosts=1),
            row(3, state=State.DONE, result=Result.REFUSED),
        ]
        await asyncio.gather(*map(journal.write, rows))

        ((scope, state, count, oldest),) = await fetch(url, unfinished)
        assert (scope, state, count) == ("default", "QUEUED", 1)
        assert 0 <= oldest < 60
        ((holder, _, held, alive),) = await fetch(url, holders)
        assert (holder, held, alive) == (journal.holder, 1, True)
        await execute(url, delete)
        assert len(await journal.everything()) == 3
        await execute(url, "UPDATE integration_sdk.pushes SET added_at = added_at - 401 * 86400")
        await execute(url, delete)
        assert [one.id for one in await journal.everything()] == ["row-1", "row-2"]


@pytest.mark.parametrize("kind", ["file", "database"])
async def test_restored_store_searches_for_what_was_queued(
    kind: str, postgres: Server, tmp_path: Path
) -> None:
    """Whatever its text: nothing that may have been sent since is sent again."""
    where = str(tmp_path / "pushes.db") if kind == "file" else await postgres.new_database()
    backup, restore, mark = blocks("backup.md", "console")
    (update,) = blocks("backup.md", "sql")
    queued = row(1, error='odd \0 \\u0000 "text"')
    async with Store(where) as store:
        journal = await store._lend()
        await journal.write(queued)
        if kind == "file":
            assert run(backup, tmp_path) == ""
        await journal.write(queued.next(State.SENDING).next(State.LOST))
    if kind == "file":
        assert run(restore, tmp_path) == "ok\n"
        assert run(mark, tmp_path) == ""
    else:
        await execute(where, "UPDATE integration_sdk.pushes SET state = 'QUEUED', version = 0")
        await execute(where, f"SET search_path = integration_sdk; {update}")

    async with Store(where) as store:
        (found,) = await (await store._lend()).claim()
    assert (found.state, found.ghosts, found.reference) == (State.SENDING, 1, "INV-1")
    assert found.payload == b"{}"


def run(commands: str, folder: Path) -> str:
    """Run the commands of a page; return what they print."""
    lines = "\n".join(re.findall(r"^\$ (.*)$", commands, re.MULTILINE))
    lines = lines.replace("python -c", f"{sys.executable} -c")
    done = subprocess.run(
        ["sh", "-ec", lines], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout
