"""`pushes list` and `pushes resolve`: a journal read, and decisions recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration_sdk.sandbox import Connection, Sandbox
from tests.support.cli_support import here, invoice, pushed, written
from tests.support.postgres import Server


async def filled(sandbox: Sandbox, journal: str, folder: Path, **options: object) -> list[str]:
    """Push four records: one fails, two are in doubt; return the intents of these."""
    books = sandbox.companies[0].connections[0]
    sandbox.faults.fail_next_push("no", times=1)
    sandbox.faults.status(502, "a proxy's page", times=2, skip=2, route="POST /push/")
    source = written(folder / "four", map(invoice, range(4)))
    done = await pushed(
        sandbox, books, source, journal=journal, reference="invoiceNumber", **options
    )
    assert sorted(done.statuses) == ["FAILED", "IN_DOUBT", "IN_DOUBT", "SUCCESS"]
    return [line["intent"] for line in done.lines if "intent" in line]


async def facts(journal: str, *options: str) -> list[dict[str, Any]]:
    done = await here("pushes", "list", "--journal", journal, *options, "--json")
    assert (done.code, done.stderr) == (0, "")
    return done.lines


@pytest.mark.virtual_time
async def test_list_counts_by_state_and_says_what_is_next(sandbox: Sandbox, tmp_path: Path) -> None:
    """Each state is counted, what is in doubt is named; --json has each push on a line."""
    where, books = str(tmp_path / "j.db"), sandbox.companies[0].connections[0]
    intents = await filled(sandbox, where, tmp_path)
    sandbox.faults.status(400, route="POST /push/")
    refused = written(tmp_path / "r", [invoice(4)])
    await pushed(sandbox, books, refused, journal=where, reference="invoiceNumber")

    done = await here("pushes", "list", "--journal", where)

    text = " ".join(done.stdout.split())
    for counted in ("5 pushes in ", "Success 1", "Failed 1", "DONE REFUSED 1"):
        assert counted in text
    assert "2 in doubt: check, and decide with `pushes resolve`" in text
    for one in await facts(where):
        assert one["reference"].startswith("INV-")
        assert one["company_id"] == sandbox.companies[0].id
        in_doubt = f"{one['intent']} {one['reference']} {one['company_id']} invoices" in text
        assert in_doubt == (one["intent"] in intents) == (one["state"] == "DOUBT")


DECISIONS = [
    (["--abandon"], "given up"),
    (["--resend"], "`pushes resume` sends it again"),
    (["--bind", "KEY"], "`pushes resume` waits for that push"),
]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("decision", "says"), DECISIONS)
async def test_a_decision_is_on_record(
    sandbox: Sandbox, tmp_path: Path, decision: list[str], says: str
) -> None:
    """Each is kept with the push, which the beginning of its id names; the others stay as is."""
    journal = str(tmp_path / "j.db")
    one, other = await filled(sandbox, journal, tmp_path)
    key = sandbox.push(sandbox.companies[0].connections[0], "invoices", invoice(9)).key
    words = [key if word == "KEY" else word for word in decision]
    where = sandbox if key in words else None

    done = await here("pushes", "resolve", one[:12], "--journal", journal, *words, sandbox=where)

    rows = {row["intent"]: row for row in await facts(journal)}
    assert (done.code, done.stderr) == (0, "")
    assert says in done.stdout
    assert rows[one]["decision"] == decision[0].strip("-")
    assert rows[one].get("key") == (key if "--bind" in decision else None)
    assert rows[one]["state"] != rows[other]["state"] == "DOUBT"


@pytest.mark.virtual_time
async def test_a_decision_that_cannot_be_made_changes_nothing(
    sandbox: Sandbox, books: Connection, tmp_path: Path
) -> None:
    """Unclear, settled and undoubted pushes are wrong usage; a key is of one such push."""
    journal = str(tmp_path / "j.db")
    one, _ = await filled(sandbox, journal, tmp_path)
    settled, failed = sorted(
        (row for row in await facts(journal) if "key" in row),
        key=lambda row: row["status"] == "Failed",
    )
    sandbox.faults.status(502, "a proxy's page", times=1, route="POST /push/")
    right = written(tmp_path / "r", [invoice(0) | {"note": "corrected"}])
    await pushed(sandbox, books, right, journal=journal, reference="invoiceNumber")
    before = await facts(journal)
    elsewhere = sandbox.push(sandbox.companies[0].connections[1], "invoices", invoice(9)).key
    wrong = {
        ("", "--abandon"): (2, "no intent that is not settled begins with ''"),
        ("zz", "--abandon"): (2, "no intent that is not settled begins with 'zz'"),
        (settled["intent"], "--resend"): (2, "no intent that is not settled"),
        (one, "--bind", " "): (2, "bind must be a non-empty string"),
        (one, "--bind", settled["key"]): (2, "is the key of another push"),
        (failed["intent"], "--bind", failed["key"]): (2, "is of an earlier attempt of this push"),
        (one, "--bind", elsewhere): (2, "is of another connection or data type"),
        (one, "--bind", "k-7"): (1, "there is no push k-7"),
    }

    for words, (code, says) in wrong.items():
        done = await here("pushes", "resolve", *words, "--journal", journal, sandbox=sandbox)
        assert (done.code, says in done.stderr) == (code, True), done.stderr

    assert await facts(journal) == before


async def test_a_scope_is_decided_about_by_its_name(
    sandbox: Sandbox, postgres: Server, tmp_path: Path
) -> None:
    """With --scope the commands see that scope alone; no password is shown."""
    where = (await postgres.new_database()).replace("postgres:@", "postgres:s3cret@")
    await filled(sandbox, where, tmp_path)
    async with Sandbox(companies=1, invoices=1, seed=1) as theirs:
        one, _ = await filled(theirs, where, tmp_path, scope="our books")
    scope = ("--scope", "our books")

    done = await here("pushes", "resolve", one, "--abandon", "--journal", where, *scope)
    shown = await here("pushes", "list", "--journal", where)

    decided = [row["intent"] for row in await facts(where, *scope) if row.get("decision")]
    assert (done.code, decided) == (0, [one])
    assert not any(row.get("decision") for row in await facts(where))
    assert "pushes in Store('postgresql://" in shown.stdout
    assert "s3cret" not in shown.stdout
