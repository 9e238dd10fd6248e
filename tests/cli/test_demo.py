"""`demo`: the whole job on show, against the sandbox or a server of one's own."""

from __future__ import annotations

import re

import pytest

from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import here, run

SMALL = ("--invoices", 400, "--pushes", 12, "--page-size", 50, "--prefetch", 4)


def figures(table: str) -> dict[str, str]:
    rows = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in table.splitlines()[1:])
    return {row[0]: row[1] for row in rows}


async def test_the_command_absorbs_trouble_and_shows_what_it_took() -> None:
    """Items, pages, requests, pushes by outcome, 429s, 503s, waits and times: nothing is lost."""
    done = await run("demo", "--invoices", "2000", "--pushes", "60", "--page-size", "100")

    assert done.code == 0
    table = figures(done.stdout)
    assert table["invoices streamed"].startswith("2,000 in ")
    assert table["pages"].startswith("20, ")
    assert table["records pushed"].startswith("60 in ")
    assert (table["SUCCESS"], table["FAILED"]) == ("53", "7")
    assert table["because"].endswith("(7)")
    assert (table["answered 429"], table["answered 503"]) == ("2", "2")
    assert int(table["requests"].replace(",", "")) >= 80
    assert " s for all calls together" in table["waits"]
    assert table["wall time"].endswith(" s")
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.virtual_time
@pytest.mark.parametrize("pushes", [0, 1])
async def test_a_small_demo_absorbs_its_trouble_too(pushes: int) -> None:
    """Where one call at a time is under way, no call is refused as often as it is tried."""
    small = ("--invoices", 20, "--page-size", 2, "--prefetch", 0, "--pushes", pushes)

    table = figures((await here("demo", *small)).stdout)

    assert table["invoices streamed"].startswith("20 in ")
    assert (table["answered 429"], table["answered 503"]) == ("2", "2")


@pytest.mark.virtual_time
@pytest.mark.parametrize(("pushes", "refused"), [(5, 0), (16, 2)])
async def test_most_pushes_of_a_small_demo_succeed(pushes: int, refused: int) -> None:
    """A platform that refused whatever it got would show nothing."""
    done = await here("demo", "--invoices", 20, "--page-size", 20, "--pushes", pushes)

    assert figures(done.stdout)["SUCCESS"] == str(pushes - refused)
    assert f"refuses {refused} records" in done.stderr


async def test_nothing_is_pushed_to_a_server_of_ones_own_unless_allowed() -> None:
    """Without --allow-push the demo only reads there."""
    async with Sandbox(companies=1, invoices=400) as sandbox:
        done = await here("demo", *SMALL, sandbox=sandbox)
        read_only = sandbox.count("POST")
        allowed = await here("demo", *SMALL, "--allow-push", sandbox=sandbox)

        assert read_only == 0
        assert sandbox.count("POST") == 12
    assert "without --allow-push" in done.stderr
    assert "records pushed" not in done.stdout
    assert figures(allowed.stdout)["SUCCESS"] == "12"


async def test_bars_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets bars and a drawn table, a file plain lines."""
    async with Sandbox(companies=1, invoices=400) as sandbox:
        plain = await here("demo", *SMALL, sandbox=sandbox)
        monkeypatch.setenv("FORCE_COLOR", "1")
        drawn = await here("demo", *SMALL, sandbox=sandbox)

    assert "━" in drawn.stderr
    assert "╭" in drawn.stdout
    assert plain.stdout.isascii()
    assert "Streaming: 400 of 400" in plain.stderr


async def test_an_error_is_one_line() -> None:
    """A wrong key is one line, not one for each of the tasks that met it."""
    async with Sandbox(companies=1, invoices=1) as sandbox:
        sandbox.faults.status(401, route="/data/")
        done = await here("demo", *SMALL, sandbox=sandbox)

    assert done.code == 1
    assert "answered 401" in done.stderr.splitlines()[-1]


async def test_an_account_without_connections_is_told_so() -> None:
    """Where there is nothing to read, the demo says what is missing."""
    async with Sandbox(companies=0) as sandbox:
        done = await here("demo", sandbox=sandbox)

    assert (done.code, "connect one first" in done.stderr) == (2, True)
