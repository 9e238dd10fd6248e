"""The command as people run it, in a process of its own, against a sandbox in the test's."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from attrs import frozen

from integration_sdk import Client, PushRequest, cli
from integration_sdk.sandbox import Connection, Sandbox
from tests.support.loops import until
from tests.support.sandbox_support import DELIVERY

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
    there = {"BASE_URL": sandbox.base_url, "API_KEY": sandbox.api_key}
    return bare | {f"INTEGRATION_SDK_{name}": value for name, value in there.items()}


@asynccontextmanager
async def started(
    *arguments: str, sandbox: Sandbox | None = None, redirect: str | None = None
) -> AsyncIterator[Process]:
    """A command under way, killed if it is still there at the end; *redirect* as shells do."""
    shell = ("sh", "-c", f'exec "$@" {redirect}', "sh") if redirect else ()
    process = await asyncio.create_subprocess_exec(
        *shell,
        *COMMAND,
        *arguments,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env=environment(sandbox),
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: Process) -> Done:
    async with asyncio.timeout(SECONDS):
        stdout, stderr = await process.communicate()
    return Done(process.returncode or 0, stdout.decode(), stderr.decode())


async def run(*arguments: str, sandbox: Sandbox | None = None, redirect: str | None = None) -> Done:
    async with started(*arguments, sandbox=sandbox, redirect=redirect) as process:
        return await ended(process)


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


async def here(*arguments: object, sandbox: Sandbox | None = None) -> Done:
    """Run a command in this process and on this loop."""
    words = list(map(str, arguments))
    if sandbox:
        for option, value in (("--base-url", sandbox.base_url), ("--api-key", sandbox.api_key)):
            words += [] if option in words else [option, value]
    with captured() as (out, err):
        code = await cli.run(words)
    return Done(code, out(), err())


@asynccontextmanager
async def serving(*options: object) -> AsyncIterator[tuple[str, str]]:
    """A sandbox that the command serves on this loop until Ctrl-C: its address and key."""
    with captured() as (out, err):
        task = asyncio.create_task(cli.run(["sandbox", "--port", "0", *map(str, options)]))
        await until(lambda: task.done() or "INTEGRATION_SDK_API_KEY" in out())
        lines = (line.partition(": ") for line in out().splitlines())
        said = {name: value for name, _, value in lines}
        try:
            yield said["Sandbox"], said["API key"]
        finally:
            signal.raise_signal(signal.SIGINT)
            assert (await task, err()) == (0, "Sandbox stopped.\n")


@contextmanager
def captured() -> Iterator[tuple[Callable[[], str], Callable[[], str]]]:
    """What is written to stdout and stderr."""
    files = [TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2)]

    def read(file: TextIOWrapper) -> str:
        assert isinstance(file.buffer, BytesIO)
        return file.buffer.getvalue().decode()

    with redirect_stdout(files[0]), redirect_stderr(files[1]):
        yield partial(read, files[0]), partial(read, files[1])


async def pushed(sandbox: Sandbox, connection: Connection, source: Path, **options: object) -> Done:
    """Push without a process of its own; ``check="options"`` stands for ``--check options``."""
    given = {"patience": 0.2} | options
    pairs = [(f"--{name}", value) for name, value in given.items()]
    words = itertools.chain.from_iterable(pairs)
    return await here("push", source, *to(connection), *words, sandbox=sandbox)


async def resumed(sandbox: Sandbox, journal: str | Path) -> Done:
    return await here("pushes", "resume", "--journal", journal, "--patience", 0.2, sandbox=sandbox)


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
