"""`sandbox`, `demo` and `pull` as they are served and shown, to programs and in a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import signal
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import (
    COMMAND,
    ended,
    environment,
    here,
    invoice,
    serving,
    started,
    to,
    written,
)
from tests.support.loops import until
from tests.support.notification_support import listening


async def test_sandbox_serves_programs_of_any_language() -> None:
    """It says how it is called; posts the ends of pushes, signed; writes requests to stderr."""
    options = ("--port", "0", "--published", "--push-seconds", "0", "0", "--verbose")
    async with (
        asyncio.timeout(60),
        listening() as ear,
        started("sandbox", *options, *("--subscribe", ear.url) * 2) as process,
    ):
        assert process.stdout is not None
        said = [(await process.stdout.readline()).decode().strip() for _ in range(8)]
        url, key, curl = (line.partition(": ")[2] for line in said[2:5])
        headers = {"Authorization": shlex.split(curl)[2].partition(": ")[2]}
        record = {"supplierName": "Toft", "status": "Active"}
        async with aiohttp.ClientSession(url, headers=headers) as http:
            company = (await (await http.get("/companies?pageSize=1")).json())["results"][0]
            books = f"/companies/{company['id']}/connections/{company['dataConnections'][0]['id']}"
            operation = await (await http.post(f"{books}/push/suppliers", json=record)).json()
            await until(lambda: len(ear.heard) == 2)
        process.send_signal(signal.SIGINT)
        done = await ended(process)

    assert (done.code, done.stderr.splitlines()[-1]) == (0, "Sandbox stopped.")
    assert said[5].startswith(f"Look: {url}/#{quote(key)} ")
    assert shlex.split(said[6])[1:] == [
        f"INTEGRATION_SDK_BASE_URL={url}",
        f"INTEGRATION_SDK_API_KEY={key}",
    ]
    assert "--published" in said[7]
    assert ear.keys == [operation["pushOperationKey"]] * 2
    signed = [[line for line in said[:2] if is_signed(line, *one)] for one in ear.heard]
    assert sorted(signed) == sorted([line] for line in said[:2])
    written = [line.split(maxsplit=2)[2] for line in done.stderr.splitlines()[:-1]]
    assert written == ["GET /companies 200", f"POST {books}/push/suppliers 200"]


def is_signed(line: str, _: float, headers: dict[str, str], body: bytes) -> bool:
    with suppress(WebhookVerificationError):
        Webhook(line.removeprefix("Secret: ")).verify(body, headers)
        return True
    return False


ACCOUNTS: list[tuple[list[str], list[int]]] = [
    ([], [200, 200, 200]),
    (["--companies", "50", "--free-plan"], [402, 200, 200]),
    (["--daily-quota", "1"], [200, 429, 429]),
    (["--api-key", "another"], [401, 401, 401]),
    (["--faults", "faults.json"], [200, 504, 200]),
]


@pytest.mark.parametrize(("options", "statuses"), ACCOUNTS, ids=lambda one: "".join(map(str, one)))
async def test_the_account_is_as_the_options_say(
    options: list[str], statuses: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of any language meet plans, quotas, keys, and the faults of a file."""
    monkeypatch.chdir(tmp_path)
    Path("faults.json").write_text('[{"fault": "status", "code": 504, "route": "GET", "times": 1}]')
    credential = b64encode(Sandbox().api_key.encode()).decode()
    async with (
        serving("--invoices", 1, *options) as (url, _),
        aiohttp.ClientSession(url, headers={"Authorization": f"Basic {credential}"}) as http,
    ):
        found = []
        for method in ("POST", "GET", "GET"):
            async with http.request(method, "/companies", json={"name": "A"}) as answer:
                found.append(answer.status)
    assert found == statuses


@pytest.mark.virtual_time
async def test_the_demo_absorbs_trouble_and_shows_what_it_took() -> None:
    """Items, pages, requests, pushes by outcome, 429s, 503s, waits and times: nothing is lost."""
    done = await here("demo", "--invoices", 2000, "--pushes", 60)

    rows = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in done.stdout.splitlines()[1:])
    table = {row[0]: row[1] for row in rows}
    assert done.code == 0
    assert table["invoices streamed"].startswith("2,000 in ")
    assert table["pages"].startswith("4, ")
    assert (table["records pushed"], table["SUCCESS"], table["FAILED"]) == ("60", "53", "7")
    assert table["because the name is taken"] == "7"
    assert table["answered 429"] == "2"
    assert "\x1b" not in done.stdout + done.stderr


async def test_a_pull_prints_a_line_a_unit_and_the_last_line_on_stderr(tmp_path: Path) -> None:
    """Without a terminal there is no other; --quiet has none; --json has all of a receipt."""
    async with Sandbox(companies=2, invoices=10) as sandbox:
        command = ("pull", "invoices", "--to", tmp_path / "out")
        done = await here(*command, sandbox=sandbox)
        quiet = await here(*command, "--quiet", "--json", sandbox=sandbox)
        some = await here(
            *command, "--full", "--companies", sandbox.companies[1].id, sandbox=sandbox
        )

    assert (done.code, quiet.code, some.code) == (0, 0, 0)
    assert len(done.stdout.splitlines()) == 2
    assert all(line.endswith(": 10 records") for line in done.stdout.splitlines())
    assert done.stderr == "Records written: 20; units: 2\n"
    assert [one["rows"] for one in quiet.lines] == [0, 0]
    assert quiet.stderr == ""
    assert some.stderr == "Records written: 10; units: 1\n"


async def test_the_line_of_a_unit_says_where_its_records_stand(tmp_path: Path) -> None:
    """Those of a company's connections differ, and the accounts of one, too."""
    async with Sandbox(companies=1) as sandbox:
        types = ("transfers", "bankTransactions")
        done = await here("pull", *types, "--to", tmp_path / "out", sandbox=sandbox)

    lines = done.stdout.splitlines()
    assert len({*lines}) == len(lines) == 16
    assert all(f" {sandbox.companies[0].id}/" in line for line in lines)


async def test_a_unit_that_fails_is_named_and_exits_with_1(tmp_path: Path) -> None:
    """The others are complete, and the same command goes on."""
    async with Sandbox(companies=2, invoices=10) as sandbox:
        bad = sandbox.companies[0].id
        sandbox.faults.status(403, route=f"GET /companies/{bad}/data")
        done = await here("pull", "invoices", "--to", tmp_path / "out", sandbox=sandbox)

    assert done.code == 1
    assert "answered 403" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("Units that are not complete: 1. Run the same")


COLUMNS = 100


async def in_terminal(sandbox: Sandbox, *arguments: str) -> list[str]:
    """Return what a command writes to a terminal, line by line, without control sequences."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(sandbox) | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
    )
    os.close(theirs)
    reading = asyncio.create_task(asyncio.to_thread(_read_all, ours))
    assert await process.wait() == 0
    seen = (await reading).decode()
    os.close(ours)
    return [one for one in re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", seen)) if one]


def _read_all(descriptor: int) -> bytes:
    seen = b""
    with suppress(OSError):  # the other side is closed
        while more := os.read(descriptor, 1 << 16):
            seen += more
    return seen


@pytest.mark.parametrize("command", ["pull", "push"])
async def test_a_terminal_has_one_live_line(tmp_path: Path, command: str) -> None:
    """It fits, and is gone at the end; results stand above it, and the summary below."""
    async with Sandbox(companies=1, invoices=4000, push_seconds=(1.0, 1.0)) as sandbox:
        sandbox.faults.latency(0.3)
        source = written(tmp_path / "r", map(invoice, range(5)))
        lane = to(sandbox.companies[0].connections[0])
        words = {"pull": ["invoices", "--to", str(tmp_path / "out")], "push": [str(source), *lane]}
        shown = await in_terminal(sandbox, command, *words[command])

    live = [one for one in shown if one.startswith(("Pulling", "Pushing"))]
    results = [one for one in shown if "4,000 records" in one or '"SUCCESS"' in one]
    assert live
    assert all(len(one) <= COLUMNS for one in live)
    assert len({one.split()[0] for one in live}) == 1
    assert len(results) >= {"pull": 1, "push": 5}[command]
    assert shown[-1].startswith({"pull": "Records written: 4,000", "push": "5 SUCCESS"}[command])
