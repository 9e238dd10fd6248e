"""`demo`: the whole job on show, against the sandbox or a server of one's own."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from integration_sdk.cli._demo import DemoSettings, run_demo
from integration_sdk.errors import ConfigurationError, Unauthorized
from integration_sdk.sandbox import Sandbox
from tests.cli_support import run


def settings(sandbox: Sandbox | None = None, **changes: object) -> DemoSettings:
    facts: dict[str, object] = {
        "base_url": sandbox and sandbox.base_url,
        "api_key": sandbox and sandbox.api_key,
        "invoices": 400,
        "pushes": 12,
        "page_size": 50,
        "prefetch": 4,
    }
    return DemoSettings(**facts | changes)  # type: ignore[arg-type]  # a table of settings


async def shown(wanted: DemoSettings, *, terminal: bool = False) -> tuple[str, str]:
    """What the demo prints: the table, and what is beside it."""
    out, err = io.StringIO(), io.StringIO()
    how = {"force_terminal": terminal, "width": 100}
    await run_demo(wanted, Console(file=out, **how), Console(file=err, **how))  # type: ignore[arg-type]  # both
    return out.getvalue(), err.getvalue()


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
    assert " s of all calls together" in table["waits"]
    assert table["wall time"].endswith(" s")
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.virtual_time
@pytest.mark.parametrize("pushes", [0, 1])
async def test_a_small_demo_absorbs_its_trouble_too(pushes: int) -> None:
    """Where one call at a time is under way, no call is refused as often as it is tried."""
    wanted = DemoSettings(invoices=20, page_size=2, prefetch=0, pushes=pushes)

    table = figures((await shown(wanted))[0])

    assert table["invoices streamed"].startswith("20 in ")
    assert (table["answered 429"], table["answered 503"]) == ("2", "2")


@pytest.mark.parametrize(("pushes", "refused"), [(5, 0), (16, 2)])
async def test_most_pushes_of_a_small_demo_succeed(pushes: int, refused: int) -> None:
    """A platform that refused whatever it got would show nothing."""
    table, beside = await shown(DemoSettings(invoices=20, page_size=20, pushes=pushes))

    assert figures(table)["SUCCESS"] == str(pushes - refused)
    assert f"refuses {refused} records" in beside


async def test_nothing_is_pushed_to_a_server_of_ones_own_unless_allowed() -> None:
    """Without --allow-push the demo only reads there."""
    async with Sandbox(companies=1, invoices=400) as sandbox:
        table, beside = await shown(settings(sandbox))
        read_only = sandbox.count("POST")
        allowed, _ = await shown(settings(sandbox, allow_push=True))

        assert read_only == 0
        assert sandbox.count("POST") == 12
    assert "that takes --allow-push" in beside
    assert "records pushed" not in table
    assert figures(allowed)["SUCCESS"] == "12"


async def test_bars_are_for_terminals() -> None:
    """A terminal gets bars and a drawn table, a file plain lines."""
    async with Sandbox(companies=1, invoices=400) as sandbox:
        drawn = await shown(settings(sandbox), terminal=True)
        plain = await shown(settings(sandbox))

    assert "━" in drawn[1]
    assert "╭" in drawn[0]
    assert plain[0].isascii()
    assert "Streaming: 400 of 400" in plain[1]


async def test_an_error_comes_out_bare() -> None:
    """A wrong key is one Unauthorized, not a group of what the tasks met."""
    async with Sandbox(companies=1, invoices=1) as sandbox:
        with pytest.raises(Unauthorized):
            await shown(settings(sandbox, api_key="wrong"))
        sandbox.faults.status(401, route="/data/")
        with pytest.raises(Unauthorized):
            await shown(settings(sandbox))


async def test_an_account_without_connections_is_told_so() -> None:
    """Where there is nothing to read, the demo says what is missing."""
    async with Sandbox(companies=0) as sandbox:
        with pytest.raises(ConfigurationError, match="connect one first"):
            await shown(settings(sandbox))
