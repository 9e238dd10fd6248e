"""The command as people run it, in a process of its own, against a sandbox in the test's."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from integration_sdk.sandbox import Connection, Sandbox
from tests.sandbox_support import DELIVERY

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
    *arguments: str, sandbox: Sandbox | None = None, stdin: int = DEVNULL, stdout: int = PIPE
) -> AsyncIterator[Process]:
    """A command under way, killed if it is still there at the end."""
    process = await asyncio.create_subprocess_exec(
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


async def run(*arguments: str, sandbox: Sandbox | None = None) -> Done:
    async with started(*arguments, sandbox=sandbox) as process:
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
