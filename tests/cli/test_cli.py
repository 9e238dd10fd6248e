"""The command as such: its help, its errors, its exit codes, the sandbox it serves."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from integration_sdk import __main__, __version__
from integration_sdk.cli import main
from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import ended, run, serving, started, until
from tests.support.notification_support import listening

PUSH = ("push", "records", "--company", "c", "--connection", "k", "--type", "invoices")
URL, KEY = ("--base-url", "http://127.0.0.1:9"), ("--api-key", "not-to-be-seen")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("INTEGRATION_SDK_BASE_URL", "INTEGRATION_SDK_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("package", ["cyclopts", "rich"])
def test_without_the_extra_one_line_says_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where cyclopts or rich is missing, the command hints at the extra and exits with 2."""
    for name in [one for one in sys.modules if one.startswith(("integration_sdk.cli", package))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("integration_sdk.cli", raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(SystemExit) as exited:
        __main__.main()

    assert exited.value.code == 2
    hint = "The command line needs two more packages: pip install 'integration-sdk[cli]'\n"
    assert capsys.readouterr().err == hint


async def test_ctrl_c_while_the_command_is_loaded_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second of imports is long enough for Ctrl-C; it shows no traceback either."""
    (tmp_path / "cyclopts.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    done = await run("--version")

    assert (done.code, done.stderr) == (130, "integration-sdk: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "Unknown command"),
        ([*PUSH, *URL, *KEY, "--jurnal", "x"], "--jurnal"),
        (["push"], ": RECORDS is missing; see integration-sdk push --help"),
        (["push", "records"], ": --company is missing; see integration-sdk push --help"),
        (["push", "records", "--company", "c"], ": --connection is missing; see "),
        (["push", "records", "--company"], ": --company needs a value"),
        ([*PUSH, "--max-open"], ": --max-open needs a value"),
        (["pull"], ": DATA-TYPES is missing; see integration-sdk pull --help"),
        (["pushes", "resolve"], " is missing; see integration-sdk pushes resolve --help"),
        ([*PUSH, *URL, *KEY, "--check", "all"], "--check"),
        ([*PUSH, *KEY], "give --base-url, or set INTEGRATION_SDK_BASE_URL"),
        ([*PUSH, *URL], "set INTEGRATION_SDK_API_KEY, or give --api-key"),
        ([*PUSH, *URL, *KEY], "cannot read records: No such file or directory"),
        ([*PUSH, "--base-url", "http://example.com", *KEY], "would send the API key unencrypted"),
        (
            ["demo", "--base-url", "http://127.0.0.1:9"],
            "set INTEGRATION_SDK_API_KEY, or give --api-k",
        ),
        (["demo", "--page-size", "5001"], "page_size"),
        (["demo", "--pushes", "-1"], 'Invalid value "-1" for --pushes. Must be >= 0'),
        (["sandbox", "--port", "65536"], "port cannot be 65536: Expected `int` <= 65535"),
        (["sandbox", "--push-seconds", "3", "1"], "push_seconds cannot be (3.0, 1.0): "),
        (["sandbox", "--api-key", ""], "api_key cannot be empty: "),
        (["sandbox", "--companies", "51", "--free-plan"], "companies cannot be 51: the free plan"),
        (["sandbox", "--account-age-days", "366"], "account_age_days needs free_plan: "),
        (["sandbox", "--legacy-removed", "maybe"], "unexpected: maybe; see --help"),
        (["pushes", "list", "a.db", "b.db"], "unexpected: b.db; see --help"),
        (["sandbox", "--faults", "none.json"], "cannot read none.json: No such file or directory"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_wrong_usage_is_one_line_and_exits_with_2(
    arguments: Sequence[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot work is said in a line on stderr that names it, never as a traceback."""
    assert main(arguments) == 2

    said = capsys.readouterr()
    assert complaint in said.err
    assert said.err.splitlines()[-1].startswith("integration-sdk: ")
    assert "Traceback" not in said.err
    assert "not-to-be-seen" not in said.err + said.out
    assert said.out == ""


def test_a_service_that_is_not_there_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of a call are a line on stderr, too."""
    assert main(["demo", *URL, *KEY]) == 1

    said = capsys.readouterr()
    assert "was not sent" in said.err.splitlines()[-1]
    assert "not-to-be-seen" not in said.err


@pytest.mark.parametrize("command", [["push"], ["pushes", "resume"], ["demo"]])
def test_help_names_the_environment_and_shows_no_key(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that is set in the environment is used, never shown as a default."""
    monkeypatch.setenv("INTEGRATION_SDK_API_KEY", "not-to-be-seen")

    assert main([*command, "--help"]) == 0

    text = capsys.readouterr().out
    assert "INTEGRATION_SDK_API_KEY" in text
    assert "not-to-be-seen" not in text


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the version and nothing else."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
async def test_sandbox_says_how_to_call_it_until_ctrl_c(by: signal.Signals) -> None:
    """The address and key it prints work, and Ctrl-C or SIGTERM ends it in order."""
    async with started("sandbox", "--port", "0", "--invoices", "10") as process:
        assert process.stdout is not None
        said = [(await process.stdout.readline()).decode().strip() for _ in range(3)]
        url = said[0].removeprefix("Sandbox: ")
        key = said[1].removeprefix("API key: ")
        curl = said[2]
        credential = curl.partition("Authorization: ")[2].partition("'")[0]
        async with (
            aiohttp.ClientSession(headers={"Authorization": credential}) as session,
            session.get(f"{url}/companies") as answer,
        ):
            assert answer.status == 200
        process.send_signal(by)
        done = await ended(process)
    assert key
    assert curl.endswith(f"{url}/companies")
    assert (done.code, done.stderr) == (0, "Sandbox stopped.\n")


async def test_sandbox_serves_programs_of_any_language() -> None:
    """It posts the ends of pushes to subscribers, signed, and writes what it is asked to stderr."""
    options = ("--port", "0", "--published", "--push-seconds", "0", "0", "--verbose")
    proof = ("--authorization", "Bearer ours")
    async with (
        asyncio.timeout(60),
        listening() as ear,
        started("sandbox", *options, *proof, *("--subscribe", ear.url) * 2) as process,
    ):
        assert process.stdout is not None
        said = [(await process.stdout.readline()).decode().strip() for _ in range(8)]
        url, _, curl = (line.partition(": ")[2] for line in said[2:5])
        headers = {"Authorization": shlex.split(curl)[2].partition(": ")[2]}
        record = {"supplierName": "Toft", "status": "Active"}
        async with aiohttp.ClientSession(url, headers=headers) as http:
            company = (await (await http.get("/companies?pageSize=1")).json())["results"][0]
            books = f"/companies/{company['id']}/connections/{company['dataConnections'][0]['id']}"
            operation = await (await http.post(f"{books}/push/suppliers", json=record)).json()
            await until(lambda: len(ear.heard) == 2)
        process.send_signal(signal.SIGTERM)
        done = await ended(process)

    assert "published" in said[7]
    assert ear.keys == [operation["pushOperationKey"]] * 2
    # The two are told at the same time: whose telling comes first is not said.
    signed = [[line for line in said[:2] if is_signed(line, *one)] for one in ear.heard]
    assert sorted(signed) == sorted([line] for line in said[:2])
    assert [told["authorization"] for _, told, _ in ear.heard] == [proof[1]] * 2
    written = [line.split(maxsplit=2)[2] for line in done.stderr.splitlines()[:-1]]
    assert written == ["GET /companies?pageSize=1 200", f"POST {books}/push/suppliers 200"]


def is_signed(line: str, _: float, headers: dict[str, str], body: bytes) -> bool:
    with suppress(WebhookVerificationError):
        Webhook(line.removeprefix("Secret: ")).verify(body, headers)
        return True
    return False


def test_an_address_to_post_to_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be posted to is wrong usage."""
    assert main(["sandbox", "--port", "0", "--subscribe", "localhost"]) == 2
    assert "an http:// or https:// address, not 'localhost'" in capsys.readouterr().err


def test_authorization_is_for_subscribers(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --subscribe nobody would be sent it, nor is it the key to call with."""
    assert main(["sandbox", "--port", "0", "--authorization", "Bearer ours"]) == 2
    assert "--authorization is for requests to --subscribe: give both" in capsys.readouterr().err


@pytest.mark.virtual_time
async def test_sandbox_goes_wrong_as_a_file_says(tmp_path: Path) -> None:
    """--faults and --push-seconds give programs in any language what Python's tests have."""
    faults = tmp_path / "faults.json"
    faults.write_text(
        '[{"fault": "latency", "seconds": [0, 0.01]},'
        ' {"fault": "html_from_proxy", "status": 500, "route": "PUT"},'
        ' {"fault": "html_from_proxy", "status": 504, "route": "GET", "times": 1}]'
    )
    options = ("--invoices", 1, "--push-seconds", 60, 80, "--faults", faults)
    connection = Sandbox().companies[0].connections[0]
    company = f"/companies/{connection.company_id}"
    record = {"supplierName": "A", "status": "Active"}

    async with serving(*options) as (url, key), aiohttp.ClientSession(url) as http:
        http.headers["Authorization"] = f"Basic {b64encode(key.encode()).decode()}"
        async with http.get("/companies") as answer:
            told: list[object] = [answer.status]
        path = f"{company}/connections/{connection.id}/push/suppliers"
        async with http.post(path, json=record) as answer:
            pushed = (await answer.json())["pushOperationKey"]
        for _ in range(2):
            await asyncio.sleep(45)
            async with http.get(f"{company}/push/{pushed}") as answer:
                told.append((await answer.json())["status"])

    assert told == [504, "Pending", "Success"]


async def first_answers(url: str, key: str) -> list[object]:
    """What a create, the sync settings, a legacy path and two reads are answered."""
    calls: list[tuple[str, str, object]] = [
        ("POST", "/companies", {"name": "A"}),
        ("POST", "/profile/syncSettings", {"syncSchedule": 1}),
        ("GET", f"/companies/{Sandbox().companies[0].id}/data/bankAccounts", None),
        ("GET", "/companies/", None),
        ("GET", "/companies", None),
    ]
    headers = {"Authorization": f"Basic {b64encode(key.encode()).decode()}"}
    answered: list[object] = []
    async with aiohttp.ClientSession(url, headers=headers) as session:
        for method, path, body in calls:
            async with session.request(method, path, json=body) as answer:
                answered.append(answer.status)
    return answered


@pytest.mark.parametrize(
    ("options", "statuses"),
    [
        ([], [200, 204, 404, 200, 200]),
        (["--companies", "50"], [200, 204, 404, 200, 200]),
        (["--companies", "50", "--free-plan"], [402, 402, 404, 200, 200]),
        (["--free-plan", "--account-age-days", "364"], [200, 402, 404, 200, 200]),
        (["--free-plan", "--account-age-days", "366"], [402] * 5),
        (["--no-legacy-removed"], [200, 204, 200, 200, 200]),
        (["--daily-quota", "3"], [200, 204, 404, 429, 429]),
        (["--api-key", "another"], [401] * 5),
    ],
    ids=lambda one: " ".join(map(str, one)),
)
async def test_the_account_of_the_command_is_as_its_options_say(
    options: list[str], statuses: list[int]
) -> None:
    """Programs of any language meet the plans, quotas and times that Python's tests can."""
    async with serving("--invoices", 1, *options) as (url, _):
        assert await first_answers(url, Sandbox().api_key) == statuses


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[{"fault": "latency", "seconds": 1}, {"fault": "lag"}]', "fault 2: there is no fault 'l"),
        ('[{"seconds": 1}]', "fault 1: there is no fault None: give one of status, html_from_pr"),
        ('[{"fault": "status"}]', "fault 1: Missing required argument 'code'"),
        ('[{"fault": "status", "code": "503"}]', "fault 1: code cannot be '503': Expected `int`"),
        ('[{"fault": "latency", "seconds": "1"}]', "fault 1: seconds cannot be '1': Expected `fl"),
        (
            '[{"fault": "latency", "seconds": 1, "rout": "GET"}]',
            "fault 1: Unexpected keyword argument 'rout'",
        ),
        ('[{"fault": "latency", "seconds": 1, "times": 0}]', "fault 1: times cannot be 0: Exp"),
        (
            '[{"fault": "latency", "seconds": [1]}]',
            "fault 1: seconds cannot be [1]: Expected `(least, most)` of length 2, got 1",
        ),
        (
            '[{"fault": "status", "code": 503, "headers": [1]}]',
            "fault 1: headers cannot be [1]: Expected `object`, got `array`",
        ),
        ('{"fault": "latency", "seconds": 1}', 'faults are a JSON list such as [{"fault": '),
        ("\udcff", "faults are a JSON list such as"),
    ],
)
def test_a_fault_that_is_none_is_named(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of faults is refused in a line with its name and the number of the fault."""
    faults = tmp_path / "faults.json"
    faults.write_bytes(text.encode(errors="surrogateescape"))

    assert main(["sandbox", "--port", "0", "--faults", str(faults)]) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"integration-sdk: {faults}: {complaint}")
    assert said.count("\n") == 1


async def test_a_port_in_use_is_one_line() -> None:
    """A sandbox that cannot listen says where and why."""
    async with Sandbox(invoices=1) as first:
        port = first.base_url.rpartition(":")[2]
        done = await run("sandbox", "--port", port)

    assert done.code == 1
    where = f"the sandbox cannot listen on 127.0.0.1:{port}"
    assert done.stderr == f"integration-sdk: {where}: Address already in use\n"


async def test_the_module_runs_as_the_command_does(tmp_path: Path) -> None:
    """`python -m integration_sdk` exits with the command's code."""
    done = await run("pushes", "list", "--journal", str(tmp_path / "none.db"))

    assert done.code == 2
    assert done.stderr.startswith("integration-sdk: there is no journal")
