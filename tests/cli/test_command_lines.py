"""Command lines, right and wrong: each with its exit code, and what it says where."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from integration_sdk import __main__, cli
from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import here, to

LANE = "--company c --connection k --type invoices"
URL, KEY = "--base-url http://127.0.0.1:9", "--api-key not-to-be-seen"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("INTEGRATION_SDK_BASE_URL", "INTEGRATION_SDK_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("r").write_text('{"a": 1}\n')
    Path("not-a-journal").write_text("not a journal, but long enough to be looked at as one" * 10)
    Path("faults").write_text('[{"fault": "latency", "seconds": 1}, {"fault": "lag"}]')


WRONG = f"""
nothing                                          | Unknown command "nothing"
push                                             | parameter --records requires an argument
push r                                           | parameter --company requires an argument
push r {LANE} {URL} {KEY} --jurnal x             | --jurnal. Did you mean --journal?
push r {LANE} {URL} {KEY} --timeout-minutes 0    | --timeout-minutes. Must be >= 1
push r {LANE} {KEY}                              | set INTEGRATION_SDK_BASE_URL and
push r {LANE} {URL}                              | or give --base-url and --api-key
push none {LANE} {URL} {KEY}                     | cannot read none: No such file or directory
push r {LANE} --base-url http://example.com {KEY} | would send the API key unencrypted
push r --company a/../b --connection k --type t {URL} {KEY} | cannot be part of a path
pull                                             | parameter --data-types requires an argument
pull invoices --to out --companies a,,b {URL} {KEY} | --companies needs ids, separated by commas
sandbox --port 65536                             | port cannot be 65536: Expected `int` <= 65535
sandbox --companies 51 --free-plan               | companies cannot be 51: the free plan
sandbox --faults none.json                       | cannot read none.json: No such file or directory
sandbox --port 0 --faults r                      | faults are a JSON list such as [
sandbox --port 0 --faults faults                 | fault 2: there is no fault 'lag': give one of
sandbox --port 0 --subscribe localhost           | url cannot be 'localhost'
pushes list                                      | --journal is missing
pushes list --journal none.db                    | there is no journal none.db
pushes resolve aa --journal r                    | Exactly 1 of {{--resend, --abandon, --bind}}
pushes resolve aa --journal r --resend --abandon | Exactly 1 of {{--resend, --abandon, --bind}}
pushes resolve aa --journal r --bind a/../b      | bind 'a/../b' cannot be part of a path
crashtest                                        | give the command that is to be tested behind --
crashtest -- no-such-program                     | there is no program 'no-such-program'
crashtest -- true                                | ended without a request to the sandbox: it has to
crashtest -- false                               | the program does not end well: exit code 1
crashtest --kills -1 -- true                     | kills and freezes are counts
"""


@pytest.mark.parametrize("row", WRONG.strip().splitlines(), ids=lambda row: row.split("  ")[0])
async def test_wrong_usage_is_one_line_and_exits_with_2(row: str) -> None:
    """What cannot work is said in a line on stderr that names it, never as a traceback."""
    line, complaint = (part.strip() for part in row.split("|", 1))

    done = await here(*line.split())

    assert complaint in done.stderr
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("integration-sdk: ")
    assert "not-to-be-seen" not in done.stderr
    made = {one.name for one in Path().iterdir()} - {"faults", "not-a-journal", "r"}
    assert not made


UNUSABLE = f"""
companies {URL} {KEY}                            | was not sent
push r {LANE} {URL} {KEY}                        | was not sent
pull invoices --to out {URL} {KEY}               | was not sent
crashtest --keep not-a-journal -- true           | not-a-journal/round-0: Not a directory
pushes list --journal not-a-journal              | is not a journal of this SDK
pushes list --journal postgresql://u@127.0.0.1:9/d | 127.0.0.1
pull invoices --to postgresql://u:not-to-be-seen@127.0.0.1:9/d {URL} {KEY} | cannot be reached
"""


@pytest.mark.virtual_time  # a database is waited for
@pytest.mark.parametrize("row", UNUSABLE.strip().splitlines(), ids=lambda row: row.split("  ")[0])
async def test_what_cannot_be_used_is_one_line_and_exits_with_1(row: str) -> None:
    """A service, a database or a file that cannot be used is no wrong usage."""
    line, complaint = (part.strip() for part in row.split("|", 1))

    done = await here(*line.split())

    assert complaint in done.stderr.splitlines()[-1]
    assert (done.code, done.stdout) == (1, "")
    assert "not-to-be-seen" not in done.stderr


# Help


@pytest.mark.parametrize("command", ["push", "pushes resume", "companies", "pull"])
async def test_help_names_the_environment_and_shows_no_key(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is set in the environment is used, never shown as a default."""
    monkeypatch.setenv("INTEGRATION_SDK_API_KEY", "not-to-be-seen")

    done = await here(*command.split(), "--help")

    assert done.code == 0
    assert "INTEGRATION_SDK_API_KEY" in done.stdout
    assert "not-to-be-seen" not in done.stdout


async def test_each_command_says_what_its_line_in_the_list_says() -> None:
    """The lists, with and without --help, are written without importing the commands."""
    listed = (await here("--help")).stdout + (await here("pushes", "--help")).stdout
    names = [*cli.COMMANDS, *(f"pushes {name}" for name in cli.JOURNAL)]

    assert (await here()).stdout == (await here("-h")).stdout == (await here("--help")).stdout
    assert (await here("pushes")).stdout == (await here("pushes", "--help")).stdout
    for command in names:
        assert f"│ {command.split()[-1]} " in listed
        done = await here(*command.split(), "--help")
        first = " ".join(done.stdout.split("\n\n")[1].split(".")[0].split())
        assert first in " ".join(listed.replace("│", " ").split()), command


def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where cyclopts is missing, the command hints at the extra and exits with 2."""
    for name in [one for one in sys.modules if one.startswith("integration_sdk.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("integration_sdk.cli", raising=False)
    monkeypatch.setitem(sys.modules, "cyclopts", None)

    with pytest.raises(SystemExit) as exited:
        __main__.main()

    assert exited.value.code == 2
    hint = "The command line needs two more packages: pip install 'integration-sdk[cli]'\n"
    assert capsys.readouterr().err == hint


# Companies and options


async def test_companies_are_listed_with_all_that_other_commands_need(sandbox: Sandbox) -> None:
    """Names, ids, connections; --json has the service's own object of each; none is said."""
    shown = await here("companies", sandbox=sandbox)
    plain = await here("companies", "--json", sandbox=sandbox)

    for company in sandbox.companies:
        assert f"{company.name} " in shown.stdout
        for id_ in (company.id, *(one.id for one in company.connections)):
            assert f"  {id_}" in shown.stdout
    assert [one["name"] for one in plain.lines] == [one.name for one in sandbox.companies]
    async with Sandbox(companies=0) as empty:
        done = await here("companies", sandbox=empty)
    assert (done.code, done.stdout) == (0, "This account has no companies.\n")


OPTIONS = [
    ("", "supplierName: String; required; Supplier name"),
    ("--update", "addresses: Array; Addresses"),
    ("--form", '"path": "addresses[].type"'),
    ("--schema", '"$schema": "https://json-schema.org/draft/2020-12/schema"'),
]


@pytest.mark.parametrize(("flag", "shown"), OPTIONS)
async def test_options_are_shown(
    sandbox: Sandbox, books: Connection, flag: str, shown: str
) -> None:
    """As a tree, as a form or as a schema."""
    done = await here("options", "suppliers", *to(books)[:4], *flag.split(), sandbox=sandbox)

    assert (done.code, done.stderr) == (0, "")
    assert shown in done.stdout


async def test_the_class_reads_and_writes_records(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """It is a program: model= takes it, and an instance can be pushed."""
    done = await here("options", "invoices", *to(books)[:4], "--class", sandbox=sandbox)
    program = f"""{done.stdout}
import asyncio
from integration_sdk import Client
async def main():
    async with Client({sandbox.api_key!r}, {sandbox.base_url!r}) as client:
        books = client.company({books.company_id!r})
        invoice = await books.data("invoices").list(model=Invoice).first()
        assert invoice.invoice_number and isinstance(invoice.total_amount, Decimal)
        assert isinstance(invoice.line_items[0].quantity, Decimal)
        sent = await books.connection({books.id!r}).push("invoices", invoice)
        print(sent.push_operation_key)
asyncio.run(main())
"""
    (tmp_path / "program.py").write_text(program)
    process = await asyncio.create_subprocess_exec(sys.executable, "program.py", stdout=-1)
    said, _ = await process.communicate()

    assert said.decode() == f"{sandbox.pushes[0].key}\n"
