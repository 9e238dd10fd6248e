"""The command as people run it, in a process of its own, against a sandbox in the test's."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal, TypeVar

from attrs import frozen
from msgspec import structs
from rich.console import Console

from integration_sdk import Client, PushRequest, Store
from integration_sdk._store.row import Row, State
from integration_sdk.cli._journals import Journal
from integration_sdk.cli._outcomes import Results
from integration_sdk.cli._pushing import push, resume
from integration_sdk.cli._records import Plan
from integration_sdk.cli._service import Service
from integration_sdk.sandbox import Connection, Sandbox
from tests.sandbox_support import DELIVERY

T = TypeVar("T")
COMMAND = (sys.executable, "-m", "integration_sdk")
SECONDS = 60.0


@frozen
class Done:
    """What a command came to."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def statuses(self) -> list[str]:
        return sorted(line["status"] for line in self.lines)


def environment(sandbox: Sandbox | None) -> dict[str, str]:
    bare = {name: value for name, value in os.environ.items() if "INTEGRATION_SDK" not in name}
    if sandbox is None:
        return bare
    there = {
        "INTEGRATION_SDK_BASE_URL": sandbox.base_url,
        "INTEGRATION_SDK_API_KEY": sandbox.api_key,
    }
    return bare | there


@asynccontextmanager
async def started(
    *arguments: str,
    sandbox: Sandbox | None = None,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    redirect: str | None = None,
) -> AsyncIterator[Process]:
    """A command under way, killed if it is still there at the end; *redirect* as shells do."""
    shell = ("sh", "-c", f'exec "$@" {redirect}', "sh") if redirect else ()
    process = await asyncio.create_subprocess_exec(
        *shell,
        *COMMAND,
        *arguments,
        stdin=stdin,
        stdout=stdout,
        stderr=PIPE,
        env=environment(sandbox),
        cwd=Path(__file__).parents[1],
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: Process, stdin: bytes | None = None) -> Done:
    async with asyncio.timeout(SECONDS):
        stdout, stderr = await process.communicate(stdin)
    return Done(process.returncode or 0, (stdout or b"").decode(), stderr.decode())


async def run(*arguments: str, sandbox: Sandbox | None = None, redirect: str | None = None) -> Done:
    async with started(*arguments, sandbox=sandbox, redirect=redirect) as process:
        return await ended(process)


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that another process is going to bring about."""
    async with asyncio.timeout(SECONDS):
        while not true():  # noqa: ASYNC110  # another process sets no event here
            await asyncio.sleep(0.01)


def invoice(number: int) -> dict[str, Any]:
    return DELIVERY | {"invoiceNumber": f"INV-{number}"}


def written(path: Path, records: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def to(connection: Connection) -> list[str]:
    """The options that name a connection's invoices."""
    company = ["--company", connection.company_id]
    return [*company, "--connection", connection.id, "--type", "invoices"]


def offline(sandbox: Sandbox) -> Connection:
    return next(one for one in sandbox.companies[0].connections if not one.online)


def posts(sandbox: Sandbox) -> int:
    return sandbox.count("POST", "/push/")


def service(sandbox: Sandbox, **changes: str) -> Service:
    facts: dict[str, Any] = {"base_url": sandbox.base_url, "api_key": sandbox.api_key} | changes
    return Service(**facts)


async def pushed(
    sandbox: Sandbox,
    connection: Connection,
    source: Path,
    *,
    journal: str | Path | None = None,
    check: Literal["options"] | None = None,
    patience: float = 0.2,
    key: str | None = None,
    url: str | None = None,
    **plan: Any,
) -> Done:
    """Push without a process of its own."""
    out, err = io.BytesIO(), io.StringIO()
    where = service(sandbox, api_key=key or sandbox.api_key, base_url=url or sandbox.base_url)
    code = await push(
        where,
        str(source),
        Plan(connection.company_id, connection.id, "invoices", **plan),
        Results(out),
        Console(file=err, width=200),
        journal=Journal(str(journal)) if journal else None,
        check=check,
        patience=patience,
    )
    return Done(code, out.getvalue().decode(), err.getvalue())


async def resumed(sandbox: Sandbox, journal: str | Path) -> Done:
    out, err = io.BytesIO(), io.StringIO()
    console = Console(file=err)
    kept = Journal(str(journal))
    code = await resume(service(sandbox), kept, Results(out), console, patience=0.2)
    return Done(code, out.getvalue().decode(), err.getvalue())


async def left_open(
    sandbox: Sandbox, connection: Connection, journal: Path, record: dict[str, Any]
) -> None:
    """Leave a push in a journal that is Pending for as long as its connection is offline."""
    lane = (connection.company_id, connection.id, "invoices")
    async with (
        Client(sandbox.api_key, sandbox.base_url) as client,
        client.coordinator(journal=journal, leave="detach") as pushes,
    ):
        await pushes.submit(PushRequest(*lane, record, reference=record["invoiceNumber"]))


async def on_record(where: str | Path, rows: Sequence[Row], scope: str = "default") -> None:
    """Put rows on record in a journal that nobody has open, each after one step at most."""
    async with Store(where, scope) as store:
        kept = await store.lend()
        for row in rows:
            begun = structs.replace(row, version=0, state=State.QUEUED, key=None)
            assert await at_once(kept.add([begun])) == [begun]
            if row.version:
                await kept.take(row.company)
                await at_once(kept.put([row]))


async def recorded(where: str | Path, scope: str = "default") -> dict[str, Row]:
    """All that is on record, by id."""
    async with Store(where, scope) as store:
        return {row.id: row for row in await store.recorded()}


async def at_once(answer: T | Awaitable[T]) -> T:
    return await answer if isawaitable(answer) else answer
